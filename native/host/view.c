/* Views: the same storage seen with other sizes, strides, offset or element type. */
#include "internal.h"

AOTITorchError aoti_torch__reinterpret_tensor(AtenTensorHandle self, int64_t ndim, const int64_t *sizes_ptr,
                                              const int64_t *strides_ptr, int64_t storage_offset,
                                              AtenTensorHandle *ret_new_tensor) {
    REQUIRE_DEFINED(self);
    REQUIRE_OUT(ret_new_tensor);
    /* As in PyTorch, the offset counts from where `self` begins. */
    int64_t offset;
    REQUIRE(!__builtin_add_overflow(self->offset, storage_offset, &offset), AOTI_INVALID_ARGUMENT,
            "the storage offset overflows");
    TRY(tensor_view(self, ndim, sizes_ptr, strides_ptr, offset, self->dtype, ret_new_tensor));
    return AOTI_OK;
}

AOTITorchError aoti_torch_as_strided(AtenTensorHandle self, const int64_t *sizes_ptr,
                                     const int64_t *strides_ptr, AtenTensorHandle *ret) {
    REQUIRE_DEFINED(self);
    REQUIRE_OUT(ret);
    TRY(tensor_view(self, self->ndim, sizes_ptr, strides_ptr, self->offset, self->dtype, ret));
    return AOTI_OK;
}

AOTITorchError aoti_torch__alloc_from_pool(AtenTensorHandle self, int64_t offset_bytes, int32_t dtype,
                                           int64_t ndim, const int64_t *sizes_ptr, const int64_t *strides_ptr,
                                           AtenTensorHandle *ret_new_tensor) {
    REQUIRE_DEFINED(self);
    REQUIRE_OUT(ret_new_tensor);
    int64_t itemsize = (int64_t)dtype_itemsize(dtype);
    REQUIRE(itemsize != 0, AOTI_NOT_SUPPORTED, "element type code %d is not known", (int)dtype);
    REQUIRE(self->offset == 0, AOTI_INVALID_ARGUMENT, "the pool does not begin where its storage begins");
    REQUIRE(offset_bytes >= 0 && offset_bytes % itemsize == 0, AOTI_INVALID_ARGUMENT,
            "offset %lld is not a multiple of the %lld bytes of a %s", (long long)offset_bytes,
            (long long)itemsize, dtype_text(dtype));
    TRY(tensor_view(self, ndim, sizes_ptr, strides_ptr, offset_bytes / itemsize, dtype, ret_new_tensor));
    return AOTI_OK;
}

static AOTITorchError view_dtype(AtenTensorHandle self, int32_t dtype, AtenTensorHandle *out) {
    int64_t from = (int64_t)dtype_itemsize(self->dtype), to = (int64_t)dtype_itemsize(dtype);
    int64_t sizes[MAX_DIMS], strides[MAX_DIMS], offset = self->offset;
    int64_t last = self->ndim - 1;
    if (to == 0) {
        return FAIL(AOTI_NOT_SUPPORTED, "element type code %d is not known", (int)dtype);
    }
    for (int64_t d = 0; d < self->ndim; d++) {
        sizes[d] = self->sizes[d];
        strides[d] = self->strides[d];
    }
    if (from != to) {
        if (self->ndim == 0 || self->strides[last] != 1) {
            return FAIL(AOTI_INVALID_ARGUMENT, "a view from %s to %s needs a last dimension with stride 1",
                        dtype_text(self->dtype), dtype_text(dtype));
        }
        if (from > to) {
            int64_t ratio = from / to;
            bool overflow = __builtin_mul_overflow(sizes[last], ratio, &sizes[last]);
            for (int64_t d = 0; d < last; d++) {
                overflow = __builtin_mul_overflow(strides[d], ratio, &strides[d]) || overflow;
            }
            overflow = __builtin_mul_overflow(offset, ratio, &offset) || overflow;
            if (overflow) {
                return FAIL(AOTI_INVALID_ARGUMENT, "the sizes of the view overflow");
            }
        } else {
            int64_t ratio = to / from;
            bool divisible = sizes[last] % ratio == 0 && offset % ratio == 0;
            for (int64_t d = 0; d < last; d++) {
                divisible = divisible && (strides[d] % ratio == 0);
                strides[d] /= ratio;
            }
            if (!divisible) {
                return FAIL(
                    AOTI_INVALID_ARGUMENT,
                    "the last size, the offset and the other strides must be multiples of %lld to view "
                    "%s as %s",
                    (long long)ratio, dtype_text(self->dtype), dtype_text(dtype));
            }
            sizes[last] /= ratio;
            offset /= ratio;
        }
    }
    return tensor_view(self, self->ndim, sizes, strides, offset, dtype, out);
}

AOTITorchError aoti_torch_view_dtype(AtenTensorHandle self, int32_t dtype, AtenTensorHandle *ret) {
    REQUIRE_DEFINED(self);
    REQUIRE_OUT(ret);
    TRY(view_dtype(self, dtype, ret));
    return AOTI_OK;
}

AOTITorchError aoti_torch_cpu_view_dtype(AtenTensorHandle self, int32_t dtype, AtenTensorHandle *ret0) {
    REQUIRE_DEFINED(self);
    REQUIRE_OUT(ret0);
    TRY(view_dtype(self, dtype, ret0));
    return AOTI_OK;
}
