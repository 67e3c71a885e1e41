/* What a plugin asks of its surroundings: grad mode, checks, warnings, profiling. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

/* There is no autograd here; the mode is kept per thread, so that a plugin gets back what it set. */
static _Thread_local bool grad_mode;
static _Atomic(aoti_warning_handler) warning_handler;

bool aoti_torch_grad_mode_is_enabled(void) { return grad_mode; }
void aoti_torch_grad_mode_set_enabled(bool enabled) { grad_mode = enabled; }

void aoti_shim_set_warning_handler(aoti_warning_handler handler) { atomic_store(&warning_handler, handler); }

static void say(const char *function, const char *file, uint32_t line, const char *text) {
    aoti_warning_handler handler = atomic_load(&warning_handler);
    if (handler != NULL) {
        handler(function != NULL ? function : "", file != NULL ? file : "", line, text != NULL ? text : "");
    } else {
        fprintf(stderr, "[aoti] %s:%u: %s\n", file != NULL ? file : "?", (unsigned)line,
                text != NULL ? text : "");
    }
}

void aoti_torch_warn(const char *func, const char *file, uint32_t line, const char *msg) {
    say(func, file, line, msg);
}

/* --- a failed check ------------------------------------------------------------------------------------ */

/* The plugin must not go on: the check guards a memory access. PyTorch throws, and the plugin's entry point
 * turns the exception into an error code and a text. There is no C++ here, but there is in the plugin: throw
 * a std::runtime_error with the runtime that the caller itself uses, be it shared or linked into it. (In an
 * OpenMP region no exception can leave the kernel, and the C++ runtime ends the process, as under PyTorch.)
 * Returns if the caller has no C++ runtime. */
static void throw_from(void *caller, const char *text) {
    struct {
        void *(*allocate)(size_t);
        void (*construct)(void *, const char *);
        void (*destroy)(void *);
        void (*raise)(void *, void *, void (*)(void *));
        void *type;
    } cxx;
    const struct {
        const char *name;
        void *slot;
    } symbols[] = {
        {"__cxa_allocate_exception", &cxx.allocate}, {"_ZNSt13runtime_errorC1EPKc", &cxx.construct},
        {"_ZNSt13runtime_errorD1Ev", &cxx.destroy},  {"__cxa_throw", &cxx.raise},
        {"_ZTISt13runtime_error", &cxx.type},
    };
    enum { ROOM = 64 }; /* a runtime_error has 16 bytes */
    Dl_info info;
    if (dladdr(caller, &info) == 0 || info.dli_fname == NULL) {
        return;
    }
    void *library = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    if (library == NULL && (library = dlopen(NULL, RTLD_LAZY)) == NULL) {
        return;
    }
    bool whole = true;
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *symbol = dlsym(library, symbols[i].name);
        whole = whole && symbol != NULL;
        memcpy(symbols[i].slot, &symbol, sizeof symbol);
    }
    dlclose(library); /* its code is running: it stays */
    if (whole) {
        void *exception = cxx.allocate(ROOM);
        cxx.construct(exception, text);
        cxx.raise(exception, cxx.type, cxx.destroy);
    }
}

void aoti_torch_check(bool cond, const char *func, const char *file, uint32_t line, const char *msg) {
    if (__builtin_expect(!cond, 0)) {
        const char *text;
        shim_set_error(AOTI_INVALID_ARGUMENT, func != NULL ? func : "aoti_torch_check", "%s (%s:%u)",
                       msg != NULL ? msg : "check failed", file != NULL ? file : "?", (unsigned)line);
        aoti_shim_last_error(&text);
        throw_from(__builtin_return_address(0), text);
    }
}

/* --- profiling: nobody listens ------------------------------------------------------------------------- */

static struct {
    char nothing;
} no_profile;

AOTITorchError aoti_record_function_start(const char *name, IValueMapHandle kwargs,
                                          const C10IValueHandle *inputs, const uint64_t n_inputs,
                                          AtenRecordFunctionHandle *guard) {
    (void)name;
    (void)kwargs;
    (void)inputs;
    (void)n_inputs;
    REQUIRE_OUT(guard);
    *guard = (AtenRecordFunctionHandle)&no_profile;
    return AOTI_OK;
}

AOTITorchError aoti_record_function_end(AtenRecordFunctionHandle guard) {
    REQUIRE_OUT(guard);
    return AOTI_OK;
}

/* Values are made only to be handed to the profile. */
AOTITorchError aoti_torch_int64_to_ivalue(int64_t val, C10IValueHandle *ivalue) {
    (void)val;
    REQUIRE_OUT(ivalue);
    *ivalue = (C10IValueHandle)&no_profile;
    return AOTI_OK;
}

AOTITorchError aoti_torch_str_to_ivalue(const char *val, C10IValueHandle *ivalue) {
    REQUIRE_OUT(val);
    REQUIRE_OUT(ivalue);
    *ivalue = (C10IValueHandle)&no_profile;
    return AOTI_OK;
}

AOTITorchError aoti_torch_strlist_to_ivalue(const char **val, int64_t len, C10IValueHandle *ivalue) {
    REQUIRE(val != NULL || len == 0, AOTI_INVALID_ARGUMENT, "'val' is a null pointer");
    REQUIRE_OUT(ivalue);
    *ivalue = (C10IValueHandle)&no_profile;
    return AOTI_OK;
}

AOTITorchError aoti_torch_tensor_to_ivalue(AtenTensorHandle val, C10IValueHandle *ivalue) {
    REQUIRE_TENSOR(val);
    REQUIRE_OUT(ivalue);
    *ivalue = (C10IValueHandle)&no_profile;
    return AOTI_OK;
}

AOTITorchError aoti_torch_delete_c10_value_object(C10IValueHandle handle) {
    REQUIRE_OUT(handle);
    return AOTI_OK;
}

/* --- debugging ----------------------------------------------------------------------------------------- */

void aoti_torch_print_tensor_handle(AtenTensorHandle self, const char *msg) {
    char text[256];
    if (!shim_is_tensor(self)) {
        snprintf(text, sizeof text, "%s: %s", msg != NULL ? msg : "tensor", shim_not_a_tensor(self));
    } else {
        int used = snprintf(text, sizeof text, "%.100s: %s [", msg != NULL ? msg : "tensor",
                            self->storage != NULL ? dtype_text(self->dtype) : "undefined");
        for (int64_t d = 0; d < self->ndim && used > 0 && (size_t)used < sizeof text - 32; d++) {
            used += snprintf(text + used, sizeof text - (size_t)used, d ? ", %" PRId64 : "%" PRId64,
                             self->sizes[d]);
        }
        if (used > 0 && (size_t)used < sizeof text - 2) {
            snprintf(text + used, sizeof text - (size_t)used, "]");
        }
    }
    say(__func__, "libaoti_shim", 0, text);
}

static AOTITorchError check_inf_and_nan(const char *name, AtenTensorHandle tensor) {
    if (!dtype_is_floating(tensor->dtype)) {
        return AOTI_OK;
    }
    void *buffer;
    TRY(tensor_to_buffer(tensor, DTYPE_FLOAT64, &buffer));
    const double *values = buffer;
    int64_t bad = 0;
    for (int64_t i = 0; i < tensor->numel; i++) {
        bad += !(__builtin_fabs(values[i]) <= __DBL_MAX__);
    }
    free(buffer);
    if (bad != 0) {
        return FAIL(AOTI_INVALID_STATE, "%s has %lld infinite or NaN elements of %lld",
                    name != NULL ? name : "a tensor", (long long)bad, (long long)tensor->numel);
    }
    return AOTI_OK;
}

AOTITorchError aoti_torch_check_inf_and_nan(const char *tensor_name, AtenTensorHandle tensor) {
    REQUIRE_DEFINED(tensor);
    TRY(check_inf_and_nan(tensor_name, tensor));
    return AOTI_OK;
}
