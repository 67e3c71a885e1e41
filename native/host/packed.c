/* Weights that PyTorch packed for oneDNN when it froze a model: laid out in blocks, described by a copy of
 * oneDNN's memory descriptor (version 3). They are put back into rows as the plugin creates them. A
 * descriptor that differs in anything from what is known here is refused. */
#include <string.h>

#include "internal.h"

/* struct dnnl_memory_desc of oneDNN 3, as it lies in memory on 64-bit machines: 768 bytes, then 4 of
 * PyTorch's for the number of groups, which the dimensions tell too. */
enum { DNNL_DIMS = 12, DNNL_BLOCKED = 2, DESCRIPTOR_SIZE = 772 };
struct descriptor {
    int32_t kind; /* 1 */
    int32_t ndims;
    int64_t dims[DNNL_DIMS];
    int32_t data_type;
    int64_t padded_dims[DNNL_DIMS];
    int64_t padded_offsets[DNNL_DIMS];
    int64_t offset0;
    int32_t format_kind;
    int64_t strides[DNNL_DIMS]; /* of whole blocks, in elements */
    int32_t block_count;
    int64_t blocks[DNNL_DIMS]; /* sizes of the inner blocks, outermost first */
    int64_t block_dims[DNNL_DIMS];
    uint64_t extra_flags; /* compensations for quantised types */
};
_Static_assert(sizeof(struct descriptor) == 624, "no padding but what the machine gives oneDNN's struct too");

static int32_t data_type_of(int32_t dtype) {
    switch (dtype) {
        case DTYPE_FLOAT16: return 1;
        case DTYPE_BFLOAT16: return 2;
        case DTYPE_FLOAT32: return 3;
        case DTYPE_INT32: return 4;
        case DTYPE_INT8: return 5;
        case DTYPE_UINT8: return 6;
        default: return -1;
    }
}

/* Whether the descriptor is one of ours, and of these sizes; a grouped convolution's has its groups first. */
static bool understood(const struct descriptor *d, int64_t ndim, const int64_t *sizes, int32_t dtype) {
    bool grouped = ndim >= 1 && d->ndims == ndim + 1;
    if (d->kind != 1 || (d->ndims != ndim && !grouped) || d->ndims < 1 || d->ndims > DNNL_DIMS ||
        d->data_type != data_type_of(dtype) || d->format_kind != DNNL_BLOCKED || d->offset0 != 0 ||
        d->extra_flags != 0 || d->block_count < 0 || d->block_count > DNNL_DIMS) {
        return false;
    }
    int64_t inner[DNNL_DIMS], product = 1, first;
    for (int i = 0; i < d->ndims; i++) {
        inner[i] = 1;
    }
    for (int i = 0; i < d->block_count; i++) {
        int64_t dim = d->block_dims[i];
        if (dim < 0 || dim >= d->ndims || d->blocks[i] < 1 || d->blocks[i] > 4096 ||
            __builtin_mul_overflow(inner[dim], d->blocks[i], &inner[dim])) {
            return false;
        }
    }
    for (int i = 0; i < d->ndims; i++) {
        if (d->dims[i] < 1 || d->padded_dims[i] < d->dims[i] || d->padded_dims[i] % inner[i] != 0 ||
            d->padded_offsets[i] != 0 || d->strides[i] < 0 ||
            __builtin_mul_overflow(product, d->dims[i], &product)) {
            return false;
        }
    }
    int32_t skipped = grouped ? 1 : 0;
    if (grouped && (__builtin_mul_overflow(d->dims[0], d->dims[1], &first) || first != sizes[0])) {
        return false;
    }
    for (int64_t i = skipped; i < ndim; i++) {
        if (d->dims[i + skipped] != sizes[i]) {
            return false;
        }
    }
    return true;
}

/* Where the element at `at` lies, in elements. */
static int64_t packed_offset(const struct descriptor *d, const int64_t *at) {
    int64_t outer[DNNL_DIMS], offset = 0, step = 1;
    memcpy(outer, at, sizeof outer);
    for (int i = d->block_count - 1; i >= 0; i--) {
        int64_t *position = &outer[d->block_dims[i]];
        offset += *position % d->blocks[i] * step;
        *position /= d->blocks[i];
        step *= d->blocks[i];
    }
    for (int i = 0; i < d->ndims; i++) {
        offset += outer[i] * d->strides[i];
    }
    return offset;
}

AOTITorchError tensor_from_packed(const void *data, int64_t ndim, const int64_t *sizes, int32_t dtype,
                                  const uint8_t *metadata, int64_t metadata_size, AtenTensorHandle *out) {
    struct descriptor d;
    if (metadata == NULL || metadata_size != DESCRIPTOR_SIZE) {
        return FAIL(
            AOTI_NOT_SUPPORTED,
            "weights packed for oneDNN, with a descriptor of %lld bytes instead of %d (PyTorch can host it)",
            (long long)(metadata != NULL ? metadata_size : 0), DESCRIPTOR_SIZE);
    }
    memcpy(&d, metadata, sizeof d);
    if (data == NULL || (ndim > 0 && sizes == NULL) || !understood(&d, ndim, sizes, dtype)) {
        return FAIL(AOTI_NOT_SUPPORTED,
                    "weights packed for oneDNN in a way that is not known here (PyTorch can host it)");
    }
    AtenTensorHandle tensor;
    TRY(tensor_empty(ndim, sizes, NULL, dtype, (struct device){DEVICE_CPU, -1}, &tensor));
    size_t itemsize = dtype_itemsize(dtype);
    char *to = tensor->storage->data;
    int64_t at[DNNL_DIMS] = {0};
    for (int64_t i = 0; i < tensor->numel; i++, to += itemsize) {
        memcpy(to, (const char *)data + packed_offset(&d, at) * (int64_t)itemsize, itemsize);
        for (int dim = d.ndims - 1; dim >= 0 && ++at[dim] == d.dims[dim]; dim--) {
            at[dim] = 0;
        }
    }
    tensor->layout = LAYOUT_MKLDNN;
    *out = tensor;
    return AOTI_OK;
}
