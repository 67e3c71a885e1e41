/* What a plugin may ask about a tensor. Pointers to sizes and strides live as long as the handle. */
#include "internal.h"

static void *data_pointer(AtenTensorHandle tensor) {
    return tensor->storage == NULL || tensor->numel == 0 ? NULL : tensor_data(tensor);
}

AOTITorchError aoti_torch_get_data_ptr(AtenTensorHandle tensor, void **ret_data_ptr) {
    REQUIRE_TENSOR(tensor);
    REQUIRE_OUT(ret_data_ptr);
    *ret_data_ptr = data_pointer(tensor);
    return AOTI_OK;
}

AOTITorchError torch_get_mutable_data_ptr(AtenTensorHandle tensor, void **ret_data_ptr) {
    REQUIRE_TENSOR(tensor);
    REQUIRE_OUT(ret_data_ptr);
    *ret_data_ptr = data_pointer(tensor);
    return AOTI_OK;
}

AOTITorchError torch_get_const_data_ptr(AtenTensorHandle tensor, const void **ret_data_ptr) {
    REQUIRE_TENSOR(tensor);
    REQUIRE_OUT(ret_data_ptr);
    *ret_data_ptr = data_pointer(tensor);
    return AOTI_OK;
}

AOTITorchError aoti_torch_get_dim(AtenTensorHandle tensor, int64_t *ret_dim) {
    REQUIRE_TENSOR(tensor);
    REQUIRE_OUT(ret_dim);
    *ret_dim = tensor->ndim;
    return AOTI_OK;
}

AOTITorchError aoti_torch_get_numel(AtenTensorHandle tensor, int64_t *ret_numel) {
    REQUIRE_TENSOR(tensor);
    REQUIRE_OUT(ret_numel);
    *ret_numel = tensor->numel;
    return AOTI_OK;
}

AOTITorchError aoti_torch_get_sizes(AtenTensorHandle tensor, int64_t **ret_sizes) {
    REQUIRE_TENSOR(tensor);
    REQUIRE_OUT(ret_sizes);
    *ret_sizes = tensor->sizes;
    return AOTI_OK;
}

AOTITorchError aoti_torch_get_strides(AtenTensorHandle tensor, int64_t **ret_strides) {
    REQUIRE_TENSOR(tensor);
    REQUIRE_OUT(ret_strides);
    *ret_strides = tensor->strides;
    return AOTI_OK;
}

AOTITorchError aoti_torch_get_size(AtenTensorHandle tensor, int64_t d, int64_t *ret_size) {
    REQUIRE_TENSOR(tensor);
    REQUIRE_OUT(ret_size);
    REQUIRE(tensor->ndim > 0, AOTI_INVALID_ARGUMENT, "a 0-d tensor has no size %lld", (long long)d);
    TRY(wrap_dim(d, tensor->ndim, &d));
    *ret_size = tensor->sizes[d];
    return AOTI_OK;
}

AOTITorchError aoti_torch_get_stride(AtenTensorHandle tensor, int64_t d, int64_t *ret_stride) {
    REQUIRE_TENSOR(tensor);
    REQUIRE_OUT(ret_stride);
    REQUIRE(tensor->ndim > 0, AOTI_INVALID_ARGUMENT, "a 0-d tensor has no stride %lld", (long long)d);
    TRY(wrap_dim(d, tensor->ndim, &d));
    *ret_stride = tensor->strides[d];
    return AOTI_OK;
}

AOTITorchError aoti_torch_get_dtype(AtenTensorHandle tensor, int32_t *ret_dtype) {
    REQUIRE_DEFINED(tensor);
    REQUIRE_OUT(ret_dtype);
    *ret_dtype = tensor->dtype;
    return AOTI_OK;
}

AOTITorchError aoti_torch_get_layout(AtenTensorHandle tensor, int32_t *ret_layout) {
    REQUIRE_TENSOR(tensor);
    REQUIRE_OUT(ret_layout);
    *ret_layout = tensor->layout;
    return AOTI_OK;
}

AOTITorchError aoti_torch_get_device_type(AtenTensorHandle tensor, int32_t *ret_device_type) {
    REQUIRE_DEFINED(tensor);
    REQUIRE_OUT(ret_device_type);
    *ret_device_type = tensor->storage->device.type;
    return AOTI_OK;
}

AOTITorchError aoti_torch_get_device_index(AtenTensorHandle tensor, int32_t *ret_device_index) {
    REQUIRE_DEFINED(tensor);
    REQUIRE_OUT(ret_device_index);
    *ret_device_index = tensor->storage->device.index;
    return AOTI_OK;
}

AOTITorchError aoti_torch_get_storage_offset(AtenTensorHandle tensor, int64_t *ret_storage_offset) {
    REQUIRE_TENSOR(tensor);
    REQUIRE_OUT(ret_storage_offset);
    *ret_storage_offset = tensor->offset;
    return AOTI_OK;
}

AOTITorchError aoti_torch_get_storage_size(AtenTensorHandle tensor, int64_t *ret_size) {
    REQUIRE_DEFINED(tensor);
    REQUIRE_OUT(ret_size);
    *ret_size = (int64_t)tensor->storage->nbytes;
    return AOTI_OK;
}

AOTITorchError aoti_torch_get_storage_numel(AtenTensorHandle tensor, int64_t *ret_numel) {
    REQUIRE_DEFINED(tensor);
    REQUIRE_OUT(ret_numel);
    *ret_numel = (int64_t)(tensor->storage->nbytes / dtype_itemsize(tensor->dtype));
    return AOTI_OK;
}

AOTITorchError torch_has_storage(AtenTensorHandle tensor, bool *ret_has_storage) {
    REQUIRE_TENSOR(tensor);
    REQUIRE_OUT(ret_has_storage);
    *ret_has_storage = tensor->storage != NULL;
    return AOTI_OK;
}

AOTITorchError aoti_torch_is_defined(AtenTensorHandle tensor, bool *ret_is_defined) {
    REQUIRE_TENSOR(tensor);
    REQUIRE_OUT(ret_is_defined);
    *ret_is_defined = tensor->storage != NULL;
    return AOTI_OK;
}

AOTITorchError aoti_torch_is_contiguous(AtenTensorHandle tensor, bool *ret_is_contiguous) {
    REQUIRE_TENSOR(tensor);
    REQUIRE_OUT(ret_is_contiguous);
    *ret_is_contiguous = tensor_is_contiguous(tensor);
    return AOTI_OK;
}
