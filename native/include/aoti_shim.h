/* Control interface of the built-in host, for the program that embeds it.
 *
 * What a plugin calls is in aoti_host.h. The functions here are how the embedder looks after the host:
 * reads the text of the last error, names a BLAS, registers a device, sets the current stream.
 *
 * Every function that returns int32_t returns 0, or one of the codes below (the values of ExecuTorch's
 * runtime/core/error.h) after storing a message for the calling thread.
 */
#ifndef AOTI_SHIM_H
#define AOTI_SHIM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define AOTI_SHIM_EXPORT __attribute__((visibility("default")))

/* Raised when a struct or a function of this header changes incompatibly. */
#define AOTI_SHIM_ABI 1

enum aoti_shim_code {
    AOTI_OK = 0x00,
    AOTI_INTERNAL = 0x01,
    AOTI_INVALID_STATE = 0x02,
    AOTI_NOT_SUPPORTED = 0x10,
    AOTI_INVALID_ARGUMENT = 0x12,
    AOTI_NOT_FOUND = 0x20,
    AOTI_MEMORY_ALLOCATION_FAILED = 0x21,
    AOTI_ACCESS_FAILED = 0x22,
};

AOTI_SHIM_EXPORT int32_t aoti_shim_abi_version(void);

/* The calling thread's last error: returns its code (0: none since the last clear) and points *message at
 * its text, which stays valid until the next failing call of that thread. `message` may be NULL. */
AOTI_SHIM_EXPORT int32_t aoti_shim_last_error(const char **message);
AOTI_SHIM_EXPORT void aoti_shim_clear_error(void);

/* Where aoti_torch_warn and aoti_torch_print_tensor_handle write. NULL: standard error, one line each. */
typedef void (*aoti_warning_handler)(const char *function, const char *file, uint32_t line, const char *text);
AOTI_SHIM_EXPORT void aoti_shim_set_warning_handler(aoti_warning_handler handler);

/* Tensors and storages alive in the process, and the bytes that owning storages hold: for leak tests. */
struct aoti_shim_stats {
    int64_t tensors;
    int64_t storages;
    int64_t owned_bytes;
};
AOTI_SHIM_EXPORT void aoti_shim_get_stats(struct aoti_shim_stats *stats);

/* CBLAS `sgemm` and `dgemm` (row-major capable, scalar alpha and beta), with integers of `int_bits` (32 or
 * 64). NULL for both goes back to the built-in loop. Not to be called while a plugin runs. */
AOTI_SHIM_EXPORT int32_t aoti_shim_set_blas(void *cblas_sgemm, void *cblas_dgemm, int32_t int_bits);

/* --- devices ------------------------------------------------------------------------------------------- */

enum aoti_copy_kind { AOTI_COPY_HOST_TO_DEVICE = 1, AOTI_COPY_DEVICE_TO_HOST = 2, AOTI_COPY_ON_DEVICE = 3 };

/* How the host reaches one kind of device. All functions but those marked optional are required; each
 * returns 0 or an error number of its own that `error_text` explains. `stream` is a native stream (for CUDA
 * a cudaStream_t, NULL being the default stream); copies and fills are ordered on it and may be asynchronous.
 */
struct aoti_device_ops {
    uint32_t struct_size; /* sizeof(struct aoti_device_ops) of the caller */
    void *context;        /* handed back as the first argument of each function */
    int (*get_device)(void *context, int32_t *index);
    int (*set_device)(void *context, int32_t index);
    int (*allocate)(void *context, size_t bytes, void *stream, void **pointer);
    int (*release)(void *context, void *pointer, void *stream);
    int (*copy)(void *context, void *to, const void *from, size_t bytes, int kind, void *stream);
    int (*fill)(void *context, void *pointer, int byte, size_t bytes, void *stream);
    int (*synchronize)(void *context, void *stream);
    const char *(*error_text)(void *context, int error);                 /* optional */
    int (*allocate_pinned)(void *context, size_t bytes, void **pointer); /* optional */
    int (*release_pinned)(void *context, void *pointer);                 /* optional */
};

/* Registers (or with NULL removes) the table of a device type; the table is copied. The CPU is built in and
 * cannot be replaced. Tensors of a removed device must be gone. */
AOTI_SHIM_EXPORT int32_t aoti_shim_register_device(int32_t device_type, const struct aoti_device_ops *ops);
AOTI_SHIM_EXPORT int32_t aoti_shim_has_device(int32_t device_type);

/* Fills the CUDA table from a libcudart: a path, or NULL for one that the process has already loaded. */
AOTI_SHIM_EXPORT int32_t aoti_shim_load_cuda(const char *libcudart_path);

/* The calling thread's current stream of a CUDA device (index -1: the current device). */
AOTI_SHIM_EXPORT int32_t aoti_shim_set_current_stream(int32_t device_index, void *stream);
AOTI_SHIM_EXPORT int32_t aoti_shim_synchronize(int32_t device_type, int32_t device_index);

#ifdef __cplusplus
}
#endif

#endif
