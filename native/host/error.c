/* Error text, kept per thread: a plugin turns a failing shim into "API call failed at FILE, line N", so the
 * reason is lost unless the host remembers it. */
#include <stdarg.h>
#include <stdio.h>

#include "internal.h"

/* The names are copied: a plugin's own (aoti_torch_check) goes with the plugin. */
static _Thread_local struct {
    int32_t code;
    char function[128];
    char reason[512];
    char text[656]; /* both, made when it is asked for */
} last_error;

void shim_set_error(int32_t code, const char *function, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(last_error.reason, sizeof last_error.reason, format, arguments);
    va_end(arguments);
    last_error.code = code;
    shim_set_error_function(function);
}

void shim_set_error_function(const char *function) {
    snprintf(last_error.function, sizeof last_error.function, "%s", function);
}

static const char *text(void) {
    if (last_error.code == AOTI_OK) {
        return "";
    }
    snprintf(last_error.text, sizeof last_error.text, "%s: %s", last_error.function, last_error.reason);
    return last_error.text;
}

int32_t aoti_shim_abi_version(void) { return AOTI_SHIM_ABI; }

int32_t aoti_shim_last_error(const char **message) {
    if (message != NULL) {
        *message = text();
    }
    return last_error.code;
}

void aoti_shim_clear_error(void) { last_error.code = AOTI_OK; }

const char *torch_exception_get_what(void) { return text(); }
const char *torch_exception_get_what_without_backtrace(void) { return text(); }

const char *shim_not_a_tensor(const struct AtenTensorOpaque *tensor) {
    return tensor == NULL ? "a null handle" : "not a tensor of this host (freed, or made by another one?)";
}
