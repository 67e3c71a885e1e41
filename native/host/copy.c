/* Copies: with broadcasting and casts, between any strides, to and from devices. */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

void strided_copy(int64_t ndim, const int64_t *sizes, struct strided to, struct strided from) {
    int64_t to_item = (int64_t)dtype_itemsize(to.dtype), from_item = (int64_t)dtype_itemsize(from.dtype);
    struct {
        int64_t size, to, from; /* strides in bytes */
    } dims[MAX_DIMS];
    int64_t count = 0;
    for (int64_t d = 0; d < ndim; d++) {
        if (sizes[d] == 0) {
            return;
        }
        if (sizes[d] != 1) {
            /* Largest target stride outermost, so that writes run through memory. */
            int64_t at = count++;
            int64_t to_stride = to.strides[d] * to_item, from_stride = from.strides[d] * from_item;
            while (at > 0 && dims[at - 1].to < to_stride) {
                dims[at] = dims[at - 1];
                at--;
            }
            dims[at].size = sizes[d];
            dims[at].to = to_stride;
            dims[at].from = from_stride;
        }
    }
    /* Merge neighbours that are one run of memory on both sides. */
    int64_t merged = 0;
    for (int64_t d = 0; d < count; d++) {
        if (merged > 0 && dims[merged - 1].to == dims[d].to * dims[d].size &&
            dims[merged - 1].from == dims[d].from * dims[d].size) {
            dims[merged - 1].size *= dims[d].size;
            dims[merged - 1].to = dims[d].to;
            dims[merged - 1].from = dims[d].from;
        } else {
            dims[merged++] = dims[d];
        }
    }
    int64_t inner = merged > 0 ? dims[merged - 1].size : 1;
    int64_t inner_to = merged > 0 ? dims[merged - 1].to : to_item;
    int64_t inner_from = merged > 0 ? dims[merged - 1].from : from_item;
    int64_t outer = merged > 0 ? merged - 1 : 0;
    int64_t at[MAX_DIMS] = {0};
    char *target = to.data;
    const char *source = from.data;
    for (;;) {
        convert_run(inner, target, inner_to, to.dtype, source, inner_from, from.dtype);
        int64_t d = outer - 1;
        for (; d >= 0; d--) {
            target += dims[d].to;
            source += dims[d].from;
            if (++at[d] < dims[d].size) {
                break;
            }
            target -= dims[d].to * dims[d].size;
            source -= dims[d].from * dims[d].size;
            at[d] = 0;
        }
        if (d < 0) {
            return;
        }
    }
}

/* Bytes from the first to past the last element. */
static size_t extent(const struct AtenTensorOpaque *tensor) {
    int64_t last = 0;
    for (int64_t d = 0; d < tensor->ndim; d++) {
        last += (tensor->sizes[d] - 1) * tensor->strides[d];
    }
    return tensor->numel == 0 ? 0 : (size_t)(last + 1) * dtype_itemsize(tensor->dtype);
}

/* A copy in host memory of everything between the first and the last element. */
static AOTITorchError fetch(const struct AtenTensorOpaque *tensor, void **host) {
    size_t bytes = extent(tensor);
    *host = malloc(bytes);
    if (*host == NULL) {
        return FAIL(AOTI_MEMORY_ALLOCATION_FAILED, "no memory to stage %zu bytes", bytes);
    }
    AOTITorchError code =
        device_copy(tensor->storage->device, *host, tensor_data(tensor), bytes, AOTI_COPY_DEVICE_TO_HOST);
    if (code != AOTI_OK) {
        free(*host);
        *host = NULL;
    }
    return code;
}

static bool same_layout(const struct AtenTensorOpaque *a, const struct AtenTensorOpaque *b) {
    if (a->dtype != b->dtype || !same_sizes(a, b) || !tensor_is_dense(a)) {
        return false;
    }
    for (int64_t d = 0; d < a->ndim; d++) {
        if (a->sizes[d] != 1 && a->strides[d] != b->strides[d]) {
            return false;
        }
    }
    return true;
}

static AOTITorchError copy_devices(AtenTensorHandle self, AtenTensorHandle src, const int64_t *src_strides) {
    bool to_cpu = tensor_on_cpu(self), from_cpu = tensor_on_cpu(src);
    struct device device = to_cpu ? src->storage->device : self->storage->device;
    bool one_device =
        to_cpu || from_cpu ||
        (src->storage->device.type == device.type && src->storage->device.index == device.index);
    if (same_layout(self, src) && one_device) {
        int kind = to_cpu     ? AOTI_COPY_DEVICE_TO_HOST
                   : from_cpu ? AOTI_COPY_HOST_TO_DEVICE
                              : AOTI_COPY_ON_DEVICE;
        return device_copy(device, tensor_data(self), tensor_data(src), extent(self), kind);
    }
    /* Anything else goes through the host: no kernels here. Elements of the target that lie between its own
     * are read and written back unchanged. */
    void *source = NULL, *target = NULL;
    AOTITorchError code = AOTI_OK;
    if (!from_cpu) {
        TRY_OR_DONE(fetch(src, &source));
    }
    if (!to_cpu) {
        TRY_OR_DONE(fetch(self, &target));
    }
    strided_copy(self->ndim, self->sizes,
                 (struct strided){to_cpu ? tensor_data(self) : target, self->strides, self->dtype},
                 (struct strided){from_cpu ? tensor_data(src) : source, src_strides, src->dtype});
    if (!to_cpu) {
        TRY_OR_DONE(device_copy(self->storage->device, tensor_data(self), target, extent(self),
                                AOTI_COPY_HOST_TO_DEVICE));
    }
done:
    free(source);
    free(target);
    return code;
}

AOTITorchError tensor_copy(AtenTensorHandle self, AtenTensorHandle src) {
    int64_t strides[MAX_DIMS]; /* of src, broadcast to the dimensions of self */
    if (!convert_supported(self->dtype, src->dtype)) {
        return FAIL(AOTI_NOT_SUPPORTED, "no conversion from %s to %s", dtype_text(src->dtype),
                    dtype_text(self->dtype));
    }
    if (src->ndim > self->ndim) {
        return FAIL(AOTI_INVALID_ARGUMENT, "a %lld-d source does not fit a %lld-d target",
                    (long long)src->ndim, (long long)self->ndim);
    }
    for (int64_t d = self->ndim - 1, s = src->ndim - 1; d >= 0; d--, s--) {
        if (s < 0) {
            strides[d] = 0;
        } else if (src->sizes[s] == self->sizes[d]) {
            strides[d] = src->strides[s];
        } else if (src->sizes[s] == 1) {
            strides[d] = 0;
        } else {
            return FAIL(AOTI_INVALID_ARGUMENT,
                        "size %lld of the source does not broadcast to size %lld of the target",
                        (long long)src->sizes[s], (long long)self->sizes[d]);
        }
    }
    if (self->numel == 0) {
        return AOTI_OK;
    }
    if (!tensor_on_cpu(self) || !tensor_on_cpu(src)) {
        return copy_devices(self, src, strides);
    }
    strided_copy(self->ndim, self->sizes, (struct strided){tensor_data(self), self->strides, self->dtype},
                 (struct strided){tensor_data(src), strides, src->dtype});
    return AOTI_OK;
}

AOTITorchError tensor_to_buffer(AtenTensorHandle tensor, int32_t dtype, void **buffer) {
    *buffer = NULL;
    if (!convert_supported(dtype, tensor->dtype)) {
        return FAIL(AOTI_NOT_SUPPORTED, "no conversion from %s to %s", dtype_text(tensor->dtype),
                    dtype_text(dtype));
    }
    int64_t strides[MAX_DIMS];
    size_t bytes;
    contiguous_strides(tensor->ndim, tensor->sizes, strides);
    if (__builtin_mul_overflow((size_t)tensor->numel, dtype_itemsize(dtype), &bytes) ||
        (*buffer = malloc(bytes == 0 ? 1 : bytes)) == NULL) {
        return FAIL(AOTI_MEMORY_ALLOCATION_FAILED, "no memory for a copy of %lld elements",
                    (long long)tensor->numel);
    }
    if (tensor->numel == 0) {
        return AOTI_OK;
    }
    void *host = NULL;
    if (!tensor_on_cpu(tensor)) {
        AOTITorchError code = fetch(tensor, &host);
        if (code != AOTI_OK) {
            free(*buffer);
            return code;
        }
    }
    strided_copy(tensor->ndim, tensor->sizes, (struct strided){*buffer, strides, dtype},
                 (struct strided){host != NULL ? host : tensor_data(tensor), tensor->strides, tensor->dtype});
    free(host);
    return AOTI_OK;
}

AOTITorchError aoti_torch_copy_(AtenTensorHandle self, AtenTensorHandle src, int32_t non_blocking) {
    /* A copy that touches host memory always waits, which `non_blocking` permits. */
    (void)non_blocking;
    REQUIRE_DEFINED(self);
    REQUIRE_DEFINED(src);
    TRY(tensor_copy(self, src));
    return AOTI_OK;
}

AOTITorchError aoti_torch_tensor_copy_(AtenTensorHandle src, AtenTensorHandle dst) {
    REQUIRE_DEFINED(src);
    REQUIRE_DEFINED(dst);
    TRY(tensor_copy(dst, src));
    return AOTI_OK;
}

AOTITorchError aoti_torch_clone(AtenTensorHandle self, AtenTensorHandle *ret) {
    int64_t strides[MAX_DIMS];
    REQUIRE_DEFINED(self);
    REQUIRE_OUT(ret);
    preserved_strides(self, strides);
    AtenTensorHandle clone;
    TRY(tensor_empty(self->ndim, self->sizes, strides, self->dtype, self->storage->device, &clone));
    AOTITorchError code;
    TRY_OR_DONE(tensor_copy(clone, self));
    *ret = clone;
done:
    if (code != AOTI_OK) {
        tensor_delete(clone);
    }
    return code;
}

AOTITorchError aoti_torch_clone_preserve_strides(AtenTensorHandle self, AtenTensorHandle *ret) {
    REQUIRE_DEFINED(self);
    REQUIRE_OUT(ret);
    AtenTensorHandle clone;
    TRY(tensor_empty(self->ndim, self->sizes, self->strides, self->dtype, self->storage->device, &clone));
    /* The bytes between the elements too: overlapping elements and gaps come out as they are. */
    AOTITorchError code = AOTI_OK;
    if (self->numel != 0 && tensor_on_cpu(self)) {
        memcpy(tensor_data(clone), tensor_data(self), extent(self));
    } else if (self->numel != 0) {
        TRY_OR_DONE(device_copy(self->storage->device, tensor_data(clone), tensor_data(self), extent(self),
                                AOTI_COPY_ON_DEVICE));
    }
    *ret = clone;
done:
    if (code != AOTI_OK) {
        tensor_delete(clone);
    }
    return code;
}

AOTITorchError aoti_torch_zero_(AtenTensorHandle self) {
    REQUIRE_DEFINED(self);
    if (self->numel == 0) {
        return AOTI_OK;
    }
    if (tensor_is_dense(self)) {
        TRY(device_fill(self->storage->device, tensor_data(self), 0, extent(self)));
        return AOTI_OK;
    }
    static const char zero[16];
    static const int64_t no_strides[MAX_DIMS];
    if (tensor_on_cpu(self)) {
        strided_copy(self->ndim, self->sizes, (struct strided){tensor_data(self), self->strides, self->dtype},
                     (struct strided){(void *)zero, no_strides, self->dtype});
        return AOTI_OK;
    }
    void *host;
    TRY(fetch(self, &host));
    strided_copy(self->ndim, self->sizes, (struct strided){host, self->strides, self->dtype},
                 (struct strided){(void *)zero, no_strides, self->dtype});
    AOTITorchError code;
    TRY_OR_DONE(
        device_copy(self->storage->device, tensor_data(self), host, extent(self), AOTI_COPY_HOST_TO_DEVICE));
done:
    free(host);
    return code;
}
