/* Sizes, strides and offsets: checks against negative values and overflow, and the layouts that follow. */
#include "internal.h"

void contiguous_strides(int64_t ndim, const int64_t *sizes, int64_t *strides) {
    int64_t stride = 1;
    for (int64_t d = ndim - 1; d >= 0; d--) {
        strides[d] = stride;
        stride *= sizes[d] > 1 ? sizes[d] : 1;
    }
}

AOTITorchError geometry_check(int64_t ndim, const int64_t *sizes, const int64_t *strides, int64_t offset,
                              int32_t dtype, int64_t *buffer, struct geometry *geometry) {
    int64_t itemsize = (int64_t)dtype_itemsize(dtype);
    if (itemsize == 0) {
        return FAIL(AOTI_NOT_SUPPORTED, "element type code %d is not known", (int)dtype);
    }
    if (ndim < 0 || ndim > MAX_DIMS) {
        return FAIL(AOTI_INVALID_ARGUMENT, "%lld dimensions are outside 0 to %d", (long long)ndim, MAX_DIMS);
    }
    if (ndim > 0 && sizes == NULL) {
        return FAIL(AOTI_INVALID_ARGUMENT, "no sizes for %lld dimensions", (long long)ndim);
    }
    if (offset < 0) {
        return FAIL(AOTI_INVALID_ARGUMENT, "storage offset %lld is negative", (long long)offset);
    }
    /* The product of max(size, 1) bounds every contiguous stride, also next to a size of 0. */
    int64_t product = 1;
    bool empty = false;
    for (int64_t d = 0; d < ndim; d++) {
        if (sizes[d] < 0) {
            return FAIL(AOTI_INVALID_ARGUMENT, "size %lld of dimension %lld is negative", (long long)sizes[d],
                        (long long)d);
        }
        empty = empty || sizes[d] == 0;
        if (__builtin_mul_overflow(product, sizes[d] > 1 ? sizes[d] : 1, &product)) {
            return FAIL(AOTI_INVALID_ARGUMENT, "the number of elements overflows");
        }
    }
    if (strides == NULL) {
        contiguous_strides(ndim, sizes, buffer);
        strides = buffer;
    }
    int64_t last = offset;
    for (int64_t d = 0; d < ndim; d++) {
        int64_t reach;
        if (strides[d] < 0) {
            return FAIL(AOTI_INVALID_ARGUMENT, "stride %lld of dimension %lld is negative",
                        (long long)strides[d], (long long)d);
        }
        if (!empty && (__builtin_mul_overflow(sizes[d] - 1, strides[d], &reach) ||
                       __builtin_add_overflow(last, reach, &last))) {
            return FAIL(AOTI_INVALID_ARGUMENT, "the extent of the strides overflows");
        }
    }
    int64_t nbytes = 0;
    if (!empty &&
        (__builtin_add_overflow(last, 1, &last) || __builtin_mul_overflow(last, itemsize, &nbytes))) {
        return FAIL(AOTI_INVALID_ARGUMENT, "the size in bytes overflows");
    }
    if (empty && __builtin_mul_overflow(offset, itemsize, &last)) {
        return FAIL(AOTI_INVALID_ARGUMENT, "the storage offset overflows");
    }
    *geometry = (struct geometry){ndim, sizes, strides, offset, empty ? 0 : product, (size_t)nbytes};
    return AOTI_OK;
}

bool tensor_is_contiguous(const struct AtenTensorOpaque *tensor) {
    int64_t expected = 1;
    if (tensor->numel == 0) {
        return true;
    }
    for (int64_t d = tensor->ndim - 1; d >= 0; d--) {
        if (tensor->sizes[d] != 1) {
            if (tensor->strides[d] != expected) {
                return false;
            }
            expected *= tensor->sizes[d];
        }
    }
    return true;
}

bool tensor_is_dense(const struct AtenTensorOpaque *tensor) {
    /* Non-overlapping and dense: sorted by stride, each stride is the product of the sizes before it. */
    int64_t order[MAX_DIMS];
    int64_t count = 0;
    if (tensor->numel == 0) {
        return true;
    }
    for (int64_t d = 0; d < tensor->ndim; d++) {
        if (tensor->sizes[d] != 1) {
            int64_t at = count++;
            while (at > 0 && tensor->strides[order[at - 1]] > tensor->strides[d]) {
                order[at] = order[at - 1];
                at--;
            }
            order[at] = d;
        }
    }
    int64_t expected = 1;
    for (int64_t i = 0; i < count; i++) {
        if (tensor->strides[order[i]] != expected) {
            return false;
        }
        expected *= tensor->sizes[order[i]];
    }
    return true;
}

/* Which of two dimensions is the outer one: 1 if `a` is, -1 if `b` is, 0 if their strides don't tell. */
static int outer_dimension(const struct AtenTensorOpaque *tensor, int64_t a, int64_t b) {
    int64_t stride_a = tensor->strides[a], stride_b = tensor->strides[b];
    if (stride_a == 0 || stride_b == 0) {
        return 0;
    }
    if (stride_a != stride_b) {
        return stride_a > stride_b ? 1 : -1;
    }
    return tensor->sizes[a] > tensor->sizes[b] ? 1 : 0;
}

void preserved_strides(const struct AtenTensorOpaque *tensor, int64_t *strides) {
    if (tensor_is_dense(tensor)) {
        for (int64_t d = 0; d < tensor->ndim; d++) {
            strides[d] = tensor->strides[d];
        }
        return;
    }
    /* ATen's order: from the innermost dimension, an insertion sort in which 0 strides don't compare. */
    int64_t order[MAX_DIMS];
    for (int64_t i = 0; i < tensor->ndim; i++) {
        order[i] = tensor->ndim - 1 - i;
    }
    for (int64_t i = 1; i < tensor->ndim; i++) {
        int64_t at = i;
        for (int64_t before = i - 1; before >= 0; before--) {
            int outer = outer_dimension(tensor, order[before], order[at]);
            if (outer > 0) {
                int64_t swap = order[before];
                order[before] = order[at];
                order[at] = swap;
                at = before;
            } else if (outer < 0) {
                break;
            }
        }
    }
    int64_t stride = 1;
    for (int64_t i = 0; i < tensor->ndim; i++) {
        strides[order[i]] = stride;
        stride *= tensor->sizes[order[i]] > 1 ? tensor->sizes[order[i]] : 1;
    }
}

bool same_sizes(const struct AtenTensorOpaque *a, const struct AtenTensorOpaque *b) {
    if (a->ndim != b->ndim) {
        return false;
    }
    for (int64_t d = 0; d < a->ndim; d++) {
        if (a->sizes[d] != b->sizes[d]) {
            return false;
        }
    }
    return true;
}

AOTITorchError wrap_dim(int64_t dim, int64_t ndim, int64_t *wrapped) {
    int64_t bound = ndim == 0 ? 1 : ndim;
    if (dim < -bound || dim >= bound) {
        return FAIL(AOTI_INVALID_ARGUMENT, "dimension %lld is outside [%lld, %lld]", (long long)dim,
                    (long long)-bound, (long long)(bound - 1));
    }
    *wrapped = dim < 0 ? dim + bound : dim;
    return AOTI_OK;
}
