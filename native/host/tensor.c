/* Tensor handles: making, sharing, viewing and deleting them. */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

static AtenTensorHandle handle_new(int64_t ndim) {
    AtenTensorHandle tensor = malloc(sizeof *tensor + (size_t)(2 * ndim + 1) * sizeof(int64_t));
    if (tensor != NULL) {
        *tensor = (struct AtenTensorOpaque){.magic = TENSOR_MAGIC, .ndim = ndim, .capacity = ndim};
        tensor->sizes = tensor->dims;
        tensor->strides = tensor->dims + ndim;
        atomic_fetch_add_explicit(&live_tensors, 1, memory_order_relaxed);
    }
    return tensor;
}

AOTITorchError tensor_wrap(struct storage *storage, const struct geometry *geometry, int32_t dtype,
                           AtenTensorHandle *out) {
    AtenTensorHandle tensor = handle_new(geometry->ndim);
    if (tensor == NULL) {
        storage_release(storage);
        return FAIL(AOTI_MEMORY_ALLOCATION_FAILED, "no memory for a tensor handle");
    }
    tensor->storage = storage;
    tensor->offset = geometry->offset;
    tensor->numel = geometry->numel;
    tensor->dtype = dtype;
    for (int64_t d = 0; d < geometry->ndim; d++) {
        tensor->sizes[d] = geometry->sizes[d];
        tensor->strides[d] = geometry->strides[d];
    }
    *out = tensor;
    return AOTI_OK;
}

AOTITorchError tensor_empty(int64_t ndim, const int64_t *sizes, const int64_t *strides, int32_t dtype,
                            struct device device, AtenTensorHandle *out) {
    int64_t buffer[MAX_DIMS];
    struct geometry geometry;
    struct storage *storage;
    TRY(geometry_check(ndim, sizes, strides, 0, dtype, buffer, &geometry));
    TRY(storage_new_owned(geometry.nbytes, device, &storage));
    return tensor_wrap(storage, &geometry, dtype, out);
}

AOTITorchError tensor_view(AtenTensorHandle self, int64_t ndim, const int64_t *sizes, const int64_t *strides,
                           int64_t offset, int32_t dtype, AtenTensorHandle *out) {
    int64_t buffer[MAX_DIMS];
    struct geometry geometry;
    TRY(geometry_check(ndim, sizes, strides, offset, dtype, buffer, &geometry));
    if (geometry.nbytes > self->storage->nbytes) {
        return FAIL(AOTI_INVALID_ARGUMENT, "a view that reaches byte %zu leaves its storage of %zu bytes",
                    geometry.nbytes, self->storage->nbytes);
    }
    storage_retain(self->storage);
    return tensor_wrap(self->storage, &geometry, dtype, out);
}

void tensor_delete(AtenTensorHandle tensor) {
    if (tensor->storage != NULL) {
        storage_release(tensor->storage);
    }
    if (tensor->sizes != tensor->dims) {
        free(tensor->sizes);
    }
    tensor->magic = 0;
    atomic_fetch_sub_explicit(&live_tensors, 1, memory_order_relaxed);
    free(tensor);
}

AOTITorchError aoti_torch_delete_tensor_object(AtenTensorHandle tensor) {
    REQUIRE_TENSOR(tensor);
    tensor_delete(tensor);
    return AOTI_OK;
}

AOTITorchError aoti_torch_new_uninitialized_tensor(AtenTensorHandle *ret) {
    REQUIRE_OUT(ret);
    /* An undefined tensor has the sizes {0}, as in ATen. */
    AtenTensorHandle tensor = handle_new(1);
    REQUIRE(tensor != NULL, AOTI_MEMORY_ALLOCATION_FAILED, "no memory for a tensor handle");
    tensor->sizes[0] = 0;
    tensor->strides[0] = 1;
    tensor->dtype = -1;
    *ret = tensor;
    return AOTI_OK;
}

static AOTITorchError empty_strided(int64_t ndim, const int64_t *sizes, const int64_t *strides, int32_t dtype,
                                    int32_t device_type, int32_t device_index, AtenTensorHandle *out) {
    struct device device;
    TRY(device_resolve(device_type, device_index, &device));
    return tensor_empty(ndim, sizes, strides, dtype, device, out);
}

AOTITorchError aoti_torch_empty_strided(int64_t ndim, const int64_t *sizes_ptr, const int64_t *strides_ptr,
                                        int32_t dtype, int32_t device_type, int32_t device_index,
                                        AtenTensorHandle *ret_new_tensor) {
    REQUIRE_OUT(ret_new_tensor);
    TRY(empty_strided(ndim, sizes_ptr, strides_ptr, dtype, device_type, device_index, ret_new_tensor));
    return AOTI_OK;
}

AOTITorchError aoti_torch_empty_strided_pinned(int64_t ndim, const int64_t *sizes_ptr,
                                               const int64_t *strides_ptr, int32_t dtype, int32_t device_type,
                                               int32_t device_index, AtenTensorHandle *ret_new_tensor) {
    (void)device_index;
    REQUIRE_OUT(ret_new_tensor);
    REQUIRE(device_type == DEVICE_CPU, AOTI_INVALID_ARGUMENT, "only CPU memory can be pinned");
    int64_t buffer[MAX_DIMS];
    struct geometry geometry;
    struct storage *storage;
    TRY(geometry_check(ndim, sizes_ptr, strides_ptr, 0, dtype, buffer, &geometry));
    TRY(storage_new_pinned(geometry.nbytes, &storage));
    TRY(tensor_wrap(storage, &geometry, dtype, ret_new_tensor));
    return AOTI_OK;
}

static AOTITorchError from_blob(void *data, int64_t ndim, const int64_t *sizes, const int64_t *strides,
                                int64_t storage_offset, int32_t dtype, int32_t device_type,
                                int32_t device_index, int32_t layout, storage_deleter deleter, void *context,
                                AtenTensorHandle *out) {
    int64_t buffer[MAX_DIMS];
    struct geometry geometry;
    struct device device;
    struct storage *storage;
    if (layout != LAYOUT_STRIDED) {
        return FAIL(AOTI_NOT_SUPPORTED, "layout %d is not strided", (int)layout);
    }
    TRY(device_resolve(device_type, device_index, &device));
    TRY(geometry_check(ndim, sizes, strides, storage_offset, dtype, buffer, &geometry));
    if (data == NULL && geometry.nbytes != 0) {
        return FAIL(AOTI_INVALID_ARGUMENT, "no data for a tensor of %zu bytes", geometry.nbytes);
    }
    TRY(storage_new_borrowed(data, geometry.nbytes, device, &storage));
    TRY(tensor_wrap(storage, &geometry, dtype, out));
    if (deleter != NULL) {
        storage->data = data; /* kept for the deleter, also without elements */
        storage->deleter = deleter;
        storage->deleter_context = context;
    }
    return AOTI_OK;
}

AOTITorchError aoti_torch_create_tensor_from_blob(void *data, int64_t ndim, const int64_t *sizes_ptr,
                                                  const int64_t *strides_ptr, int64_t storage_offset,
                                                  int32_t dtype, int32_t device_type, int32_t device_index,
                                                  AtenTensorHandle *ret) {
    REQUIRE_OUT(ret);
    TRY(from_blob(data, ndim, sizes_ptr, strides_ptr, storage_offset, dtype, device_type, device_index, 0,
                  NULL, NULL, ret));
    return AOTI_OK;
}

AOTITorchError aoti_torch_create_tensor_from_blob_v2(void *data, int64_t ndim, const int64_t *sizes_ptr,
                                                     const int64_t *strides_ptr, int64_t storage_offset,
                                                     int32_t dtype, int32_t device_type, int32_t device_index,
                                                     AtenTensorHandle *ret, int32_t layout,
                                                     const uint8_t *opaque_metadata,
                                                     int64_t opaque_metadata_size) {
    REQUIRE_OUT(ret);
    if (layout == LAYOUT_MKLDNN && device_type == DEVICE_CPU && storage_offset == 0) {
        TRY(tensor_from_packed(data, ndim, sizes_ptr, dtype, opaque_metadata, opaque_metadata_size, ret));
        return AOTI_OK;
    }
    TRY(from_blob(data, ndim, sizes_ptr, strides_ptr, storage_offset, dtype, device_type, device_index,
                  layout, NULL, NULL, ret));
    return AOTI_OK;
}

AOTITorchError torch_from_blob(void *data, int64_t ndim, const int64_t *sizes_ptr, const int64_t *strides_ptr,
                               int64_t storage_offset, int32_t dtype, int32_t device_type,
                               int32_t device_index, AtenTensorHandle *ret, int32_t layout,
                               const uint8_t *opaque_metadata, int64_t opaque_metadata_size,
                               void (*deleter)(void *data, void *ctx), void *deleter_ctx) {
    (void)opaque_metadata;
    (void)opaque_metadata_size;
    REQUIRE_OUT(ret);
    TRY(from_blob(data, ndim, sizes_ptr, strides_ptr, storage_offset, dtype, device_type, device_index,
                  layout, deleter, deleter_ctx, ret));
    return AOTI_OK;
}

static AOTITorchError share(AtenTensorHandle tensor, AtenTensorHandle *out) {
    if (tensor->storage == NULL) {
        return aoti_torch_new_uninitialized_tensor(out);
    }
    struct geometry geometry = {tensor->ndim,   tensor->sizes, tensor->strides,
                                tensor->offset, tensor->numel, tensor->storage->nbytes};
    storage_retain(tensor->storage);
    TRY(tensor_wrap(tensor->storage, &geometry, tensor->dtype, out));
    (*out)->layout = tensor->layout;
    return AOTI_OK;
}

AOTITorchError aoti_torch_new_tensor_handle(AtenTensorHandle orig_handle, AtenTensorHandle *new_handle) {
    REQUIRE_TENSOR(orig_handle);
    REQUIRE_OUT(new_handle);
    TRY(share(orig_handle, new_handle));
    return AOTI_OK;
}

AOTITorchError aoti_torch_assign_tensors_out(AtenTensorHandle src, AtenTensorHandle *ret_dst) {
    REQUIRE_TENSOR(src);
    REQUIRE_OUT(ret_dst);
    TRY(share(src, ret_dst));
    return AOTI_OK;
}

AOTITorchError aoti_torch_assign_tensors(AtenTensorHandle src, AtenTensorHandle dst) {
    REQUIRE_TENSOR(src);
    REQUIRE_TENSOR(dst);
    if (src == dst) {
        return AOTI_OK;
    }
    if (src->ndim > dst->capacity) {
        int64_t *dims = malloc((size_t)(2 * src->ndim) * sizeof *dims);
        REQUIRE(dims != NULL, AOTI_MEMORY_ALLOCATION_FAILED, "no memory for %lld dimensions",
                (long long)src->ndim);
        if (dst->sizes != dst->dims) {
            free(dst->sizes);
        }
        dst->sizes = dims;
        dst->strides = dims + src->ndim;
        dst->capacity = src->ndim;
    }
    if (src->storage != NULL) {
        storage_retain(src->storage);
    }
    if (dst->storage != NULL) {
        storage_release(dst->storage);
    }
    dst->storage = src->storage;
    dst->offset = src->offset;
    dst->numel = src->numel;
    dst->ndim = src->ndim;
    dst->dtype = src->dtype;
    dst->layout = src->layout;
    memcpy(dst->sizes, src->sizes, (size_t)src->ndim * sizeof(int64_t));
    memcpy(dst->strides, src->strides, (size_t)src->ndim * sizeof(int64_t));
    return AOTI_OK;
}
