/* What the files of the built-in host share: tensors, storages, errors, devices. */
#ifndef AOTI_INTERNAL_H
#define AOTI_INTERNAL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "aoti_host.h"
#include "aoti_shim.h"
#include "codes.h"

/* --- errors (error.c) ---------------------------------------------------------------------------------- */

/* Stores the message for this thread. */
__attribute__((format(printf, 3, 4))) void shim_set_error(int32_t code, const char *function,
                                                          const char *format, ...);
/* Says in which function the last error arose, as seen from further out. */
void shim_set_error_function(const char *function);
/* Stores the message under this function's name, and is `code`: where that is a constant, the compiler sees
 * that it isn't 0. */
#define FAIL(code, ...) (shim_set_error((code), __func__, __VA_ARGS__), (AOTITorchError)(code))
#define REQUIRE(condition, code, ...)       \
    do {                                    \
        if (!(condition)) {                 \
            return FAIL(code, __VA_ARGS__); \
        }                                   \
    } while (0)
#define REQUIRE_OUT(pointer) \
    REQUIRE((pointer) != NULL, AOTI_INVALID_ARGUMENT, "'%s' is a null pointer", #pointer)
#define REQUIRE_TENSOR(handle)                                                                    \
    do {                                                                                          \
        if (!shim_is_tensor(handle)) {                                                            \
            return FAIL(AOTI_INVALID_ARGUMENT, "'%s' is %s", #handle, shim_not_a_tensor(handle)); \
        }                                                                                         \
    } while (0)
#define REQUIRE_DEFINED(handle)                                                                            \
    do {                                                                                                   \
        REQUIRE_TENSOR(handle);                                                                            \
        REQUIRE((handle)->storage != NULL, AOTI_INVALID_ARGUMENT, "'%s' is an undefined tensor", #handle); \
    } while (0)
/* Hands a failure on, under this function's name. Every function does, so that the message ends up with the
 * name of the shim that the plugin called, which is the only one that its author knows. */
#define TRY(expression)                         \
    do {                                        \
        AOTITorchError try_code = (expression); \
        if (try_code != AOTI_OK) {              \
            shim_set_error_function(__func__);  \
            return try_code;                    \
        }                                       \
    } while (0)
/* The same where there is something to clean up: the code is in `code`, the cleaning up at `done`. */
#define TRY_OR_DONE(expression)                \
    do {                                       \
        code = (expression);                   \
        if (code != AOTI_OK) {                 \
            shim_set_error_function(__func__); \
            goto done;                         \
        }                                      \
    } while (0)

/* --- element types (codes.c, dtype.c) ------------------------------------------------------------------ */

/* Bytes of one element; 0 for a code that is no element type of ours. */
size_t dtype_itemsize(int32_t dtype);
const char *dtype_text(int32_t dtype);
bool dtype_is_floating(int32_t dtype);
bool dtype_is_complex(int32_t dtype);
/* Integers and bool. */
bool dtype_is_integral(int32_t dtype);

/* --- devices (device.c) -------------------------------------------------------------------------------- */

enum { DEVICE_TYPES = 32, DEVICE_INDEXES = 64 };

struct device {
    int32_t type;
    int32_t index; /* -1 on the CPU */
};

/* Checks that the type is registered, and replaces index -1 by the current device. */
AOTITorchError device_resolve(int32_t type, int32_t index, struct device *device);
AOTITorchError device_allocate(struct device device, size_t bytes, void **pointer, void **stream);
void device_release(struct device device, void *pointer, void *stream);
AOTITorchError device_allocate_pinned(size_t bytes, void **pointer);
void device_release_pinned(void *pointer);
/* On the device's current stream; returns when the bytes are there, unless both ends are on the device. */
AOTITorchError device_copy(struct device device, void *to, const void *from, size_t bytes, int kind);
AOTITorchError device_fill(struct device device, void *pointer, int byte, size_t bytes);
AOTITorchError device_synchronize(struct device device);
AOTITorchError device_get_current(int32_t type, int32_t *index);
AOTITorchError device_set_current(int32_t type, int32_t index);
void *stream_get(int32_t index);
void stream_set(int32_t index, void *stream);

/* --- storages (storage.c) ------------------------------------------------------------------------------ */

typedef void (*storage_deleter)(void *data, void *context);

struct storage {
    _Atomic int64_t references;
    void *data; /* NULL only if nbytes is 0 */
    size_t nbytes;
    struct device device;
    enum { STORAGE_BORROWED, STORAGE_OWNED, STORAGE_PINNED } kind;
    void *stream; /* the one that device memory was allocated on */
    storage_deleter deleter;
    void *deleter_context;
};

AOTITorchError storage_new_owned(size_t nbytes, struct device device, struct storage **storage);
AOTITorchError storage_new_pinned(size_t nbytes, struct storage **storage);
AOTITorchError storage_new_borrowed(void *data, size_t nbytes, struct device device,
                                    struct storage **storage);
void storage_retain(struct storage *storage);
void storage_release(struct storage *storage);
extern _Atomic int64_t live_tensors;

/* --- tensors (tensor.c) -------------------------------------------------------------------------------- */

#define TENSOR_MAGIC UINT64_C(0x524f534e45544941)
enum { MAX_DIMS = 64 };

struct AtenTensorOpaque {
    uint64_t magic;          /* TENSOR_MAGIC while the handle is alive */
    struct storage *storage; /* NULL: undefined tensor */
    int64_t offset;          /* elements */
    int64_t numel;
    int64_t ndim;
    int64_t capacity; /* dimensions that `sizes` and `strides` have room for */
    int64_t *sizes;
    int64_t *strides; /* elements */
    int32_t dtype;
    int32_t layout; /* strided; _mkldnn for a weight that came packed */
    int64_t dims[]; /* sizes, then strides, unless assignment moved them to the heap */
};

static inline bool shim_is_tensor(const struct AtenTensorOpaque *tensor) {
    return tensor != NULL && ((uintptr_t)tensor & 7) == 0 && tensor->magic == TENSOR_MAGIC;
}
const char *shim_not_a_tensor(const struct AtenTensorOpaque *tensor);

static inline bool tensor_on_cpu(const struct AtenTensorOpaque *tensor) {
    return tensor->storage->device.type == DEVICE_CPU;
}
static inline void *tensor_data(const struct AtenTensorOpaque *tensor) {
    char *data = tensor->storage->data;
    return data == NULL ? NULL : data + tensor->offset * (int64_t)dtype_itemsize(tensor->dtype);
}

/* Sizes and strides of a tensor to be: checked against negative values and overflow. */
struct geometry {
    int64_t ndim;
    const int64_t *sizes;
    const int64_t *strides;
    int64_t offset;
    int64_t numel;
    size_t nbytes; /* from the start of the storage to the end of the last element; 0 without elements */
};
/* `strides` NULL means contiguous; `buffer` (MAX_DIMS) then holds them. */
AOTITorchError geometry_check(int64_t ndim, const int64_t *sizes, const int64_t *strides, int64_t offset,
                              int32_t dtype, int64_t *buffer, struct geometry *geometry);
void contiguous_strides(int64_t ndim, const int64_t *sizes, int64_t *strides);
/* The strides that clone gives: the same if they are dense, else dense in the same order of dimensions. */
void preserved_strides(const struct AtenTensorOpaque *tensor, int64_t *strides);
bool tensor_is_contiguous(const struct AtenTensorOpaque *tensor);
bool tensor_is_dense(const struct AtenTensorOpaque *tensor);
bool same_sizes(const struct AtenTensorOpaque *a, const struct AtenTensorOpaque *b);

/* Takes over the caller's reference to `storage`, also when it fails. */
AOTITorchError tensor_wrap(struct storage *storage, const struct geometry *geometry, int32_t dtype,
                           AtenTensorHandle *out);
AOTITorchError tensor_empty(int64_t ndim, const int64_t *sizes, const int64_t *strides, int32_t dtype,
                            struct device device, AtenTensorHandle *out);
/* A view of the same storage; `offset` is absolute, in elements; refused if it leaves the storage. */
AOTITorchError tensor_view(AtenTensorHandle self, int64_t ndim, const int64_t *sizes, const int64_t *strides,
                           int64_t offset, int32_t dtype, AtenTensorHandle *out);
void tensor_delete(AtenTensorHandle tensor);
/* The same for what may not have been made. */
static inline void tensor_drop(AtenTensorHandle tensor) {
    if (tensor != NULL) {
        tensor_delete(tensor);
    }
}
/* A tensor of its own memory, in rows, from a weight packed for oneDNN (packed.c). */
AOTITorchError tensor_from_packed(const void *data, int64_t ndim, const int64_t *sizes, int32_t dtype,
                                  const uint8_t *metadata, int64_t metadata_size, AtenTensorHandle *out);
/* Puts a dimension that may count from the end into [0, ndim); a 0-d tensor counts as 1-d. */
AOTITorchError wrap_dim(int64_t dim, int64_t ndim, int64_t *wrapped);

/* --- copies (copy.c, convert.c) ------------------------------------------------------------------------ */

/* One side of an element-wise copy in CPU memory; strides in elements, may be 0. */
struct strided {
    void *data;
    const int64_t *strides;
    int32_t dtype;
};
bool convert_supported(int32_t to, int32_t from);
/* Element types must be convertible; both sides are CPU memory. */
void strided_copy(int64_t ndim, const int64_t *sizes, struct strided to, struct strided from);
/* `count` elements, strides in bytes. */
void convert_run(int64_t count, char *to, int64_t to_stride, int32_t to_dtype, const char *from,
                 int64_t from_stride, int32_t from_dtype);
AOTITorchError tensor_copy(AtenTensorHandle self, AtenTensorHandle src);
/* A contiguous CPU copy in another type, malloc'ed; NULL when memory is short (or there are no elements). */
AOTITorchError tensor_to_buffer(AtenTensorHandle tensor, int32_t dtype, void **buffer);

float half_to_float(uint16_t bits);
uint16_t half_from_float(float value);
static inline float bfloat16_to_float(uint16_t bits) {
    union {
        uint32_t bits;
        float value;
    } pun = {.bits = (uint32_t)bits << 16};
    return pun.value;
}

#endif
