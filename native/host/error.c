/* Error text, kept per thread: a plugin turns a failing shim into "API call failed at FILE, line N", so the
 * reason is lost unless the host remembers it. */
#include <stdarg.h>
#include <stdio.h>

#include "internal.h"

static _Thread_local struct {
    int32_t code;
    char text[512];
} last_error;

void shim_set_error(int32_t code, const char *function, const char *format, ...) {
    int used = snprintf(last_error.text, sizeof last_error.text, "%s: ", function);
    if (used > 0 && (size_t)used < sizeof last_error.text) {
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(last_error.text + used, sizeof last_error.text - (size_t)used, format, arguments);
        va_end(arguments);
    }
    last_error.code = code;
}

int32_t aoti_shim_abi_version(void) { return AOTI_SHIM_ABI; }

int32_t aoti_shim_last_error(const char **message) {
    if (message != NULL) {
        *message = last_error.text;
    }
    return last_error.code;
}

void aoti_shim_clear_error(void) {
    last_error.code = AOTI_OK;
    last_error.text[0] = '\0';
}

const char *torch_exception_get_what(void) { return last_error.text; }
const char *torch_exception_get_what_without_backtrace(void) { return last_error.text; }

const char *shim_not_a_tensor(const struct AtenTensorOpaque *tensor) {
    return tensor == NULL ? "a null handle" : "not a tensor of this host (freed, or made by another one?)";
}
