/* sort, sort_stable and topk along one dimension. Every element becomes a 64-bit key whose unsigned order is
 * the wanted one (NaN above all numbers, as in ATen), then one stable merge sort serves all types. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

struct keyed {
    uint64_t key;
    int64_t index;
};

static void merge_sort(struct keyed *items, struct keyed *spare, int64_t count) {
    enum { RUN = 16 };
    for (int64_t start = 0; start < count; start += RUN) {
        int64_t end = count - start < RUN ? count : start + RUN;
        for (int64_t i = start + 1; i < end; i++) {
            struct keyed item = items[i];
            int64_t at = i;
            for (; at > start && items[at - 1].key > item.key; at--) {
                items[at] = items[at - 1];
            }
            items[at] = item;
        }
    }
    struct keyed *from = items, *to = spare;
    for (int64_t width = RUN; width < count; width *= 2) {
        for (int64_t start = 0; start < count; start += 2 * width) {
            int64_t middle = count - start < width ? count : start + width;
            int64_t end = count - start < 2 * width ? count : start + 2 * width;
            int64_t left = start, right = middle;
            for (int64_t at = start; at < end; at++) {
                bool take_left = left < middle && (right >= end || from[left].key <= from[right].key);
                to[at] = from[take_left ? left++ : right++];
            }
        }
        struct keyed *swap = from;
        from = to;
        to = swap;
    }
    if (from != items) {
        memcpy(items, from, (size_t)count * sizeof *items);
    }
}

/* Reads `count` elements (stride in bytes) as keys in ascending order, or complemented for descending. */
static void read_keys(struct keyed *items, int64_t count, const char *from, int64_t stride, int32_t dtype,
                      bool descending) {
    const uint64_t top = UINT64_C(1) << 63;
    for (int64_t i = 0; i < count; i++, from += stride) {
        uint64_t key;
        if (dtype == DTYPE_UINT64) {
            memcpy(&key, from, sizeof key);
        } else if (dtype_is_integral(dtype)) {
            int64_t value;
            convert_run(1, (char *)&value, 8, DTYPE_INT64, from, stride, dtype);
            key = (uint64_t)value ^ top;
        } else {
            double value;
            convert_run(1, (char *)&value, 8, DTYPE_FLOAT64, from, stride, dtype);
            value += 0.0; /* -0.0 equals 0.0 */
            memcpy(&key, &value, sizeof key);
            key = isnan(value) ? UINT64_MAX : key & top ? ~key : key | top;
        }
        items[i] = (struct keyed){descending ? ~key : key, i};
    }
}

/* Sorts each line along `dim` and writes its first `kept` elements and their indices. */
static AOTITorchError sort_lines(AtenTensorHandle self, int64_t dim, int64_t kept, bool descending,
                                 AtenTensorHandle values, AtenTensorHandle indices) {
    bool scalar = self->ndim == 0;
    int64_t count = scalar ? 1 : self->sizes[dim], lines = count == 0 ? 0 : self->numel / count;
    int64_t itemsize = (int64_t)dtype_itemsize(self->dtype);
    int64_t source_step = scalar ? itemsize : self->strides[dim] * itemsize;
    int64_t value_step = scalar ? itemsize : values->strides[dim] * itemsize;
    int64_t index_step = scalar ? 1 : indices->strides[dim];
    struct keyed *items;
    size_t bytes;
    if (kept == 0 || lines == 0) {
        return AOTI_OK;
    }
    if (__builtin_mul_overflow((size_t)count, 2 * sizeof *items, &bytes) || (items = malloc(bytes)) == NULL) {
        return FAIL(AOTI_MEMORY_ALLOCATION_FAILED, "no memory to sort %lld elements", (long long)count);
    }
    int64_t at[MAX_DIMS] = {0};
    const char *source = tensor_data(self);
    char *value = tensor_data(values);
    int64_t *index = tensor_data(indices);
    for (int64_t line = 0; line < lines; line++) {
        read_keys(items, count, source, source_step, self->dtype, descending);
        merge_sort(items, items + count, count);
        for (int64_t i = 0; i < kept; i++) {
            memcpy(value + i * value_step, source + items[i].index * source_step, (size_t)itemsize);
            index[i * index_step] = items[i].index;
        }
        for (int64_t d = self->ndim - 1; d >= 0; d--) {
            if (d == dim) {
                continue;
            }
            source += self->strides[d] * itemsize;
            value += values->strides[d] * itemsize;
            index += indices->strides[d];
            if (++at[d] < self->sizes[d]) {
                break;
            }
            source -= self->strides[d] * itemsize * self->sizes[d];
            value -= values->strides[d] * itemsize * self->sizes[d];
            index -= indices->strides[d] * self->sizes[d];
            at[d] = 0;
        }
    }
    free(items);
    return AOTI_OK;
}

static AOTITorchError sorted_pair(AtenTensorHandle self, int64_t dim, const int64_t *sizes,
                                  const int64_t *strides, int64_t kept, bool descending,
                                  AtenTensorHandle *values, AtenTensorHandle *indices) {
    const struct device cpu = {DEVICE_CPU, -1};
    AtenTensorHandle value = NULL, index = NULL;
    AOTITorchError code;
    TRY_OR_DONE(tensor_empty(self->ndim, sizes, strides, self->dtype, cpu, &value));
    TRY_OR_DONE(tensor_empty(self->ndim, sizes, strides, DTYPE_INT64, cpu, &index));
    TRY_OR_DONE(sort_lines(self, dim, kept, descending, value, index));
    *values = value;
    *indices = index;
    value = index = NULL; /* the caller's now */
done:
    tensor_drop(value);
    tensor_drop(index);
    return code;
}

static AOTITorchError sortable(AtenTensorHandle self) {
    if (!tensor_on_cpu(self)) {
        return FAIL(AOTI_INVALID_ARGUMENT, "'self' is not on the CPU");
    }
    if (dtype_is_complex(self->dtype) || !convert_supported(DTYPE_FLOAT64, self->dtype)) {
        return FAIL(AOTI_NOT_SUPPORTED, "%s has no order here", dtype_text(self->dtype));
    }
    return AOTI_OK;
}

static AOTITorchError sort(AtenTensorHandle self, int64_t dim, bool descending, AtenTensorHandle *values,
                           AtenTensorHandle *indices) {
    int64_t strides[MAX_DIMS];
    TRY(sortable(self));
    TRY(wrap_dim(dim, self->ndim, &dim));
    preserved_strides(self, strides);
    int64_t count = self->ndim == 0 ? 1 : self->sizes[dim];
    return sorted_pair(self, dim, self->sizes, strides, count, descending, values, indices);
}

AOTITorchError aoti_torch_cpu_sort_stable(AtenTensorHandle self, int32_t *stable, int64_t dim,
                                          int32_t descending, AtenTensorHandle *ret0,
                                          AtenTensorHandle *ret1) {
    (void)stable;
    REQUIRE_DEFINED(self);
    REQUIRE_OUT(ret0);
    REQUIRE_OUT(ret1);
    TRY(sort(self, dim, descending != 0, ret0, ret1));
    return AOTI_OK;
}

AOTITorchError aoti_torch_cpu_sort(AtenTensorHandle self, int64_t dim, int32_t descending,
                                   AtenTensorHandle *ret0, AtenTensorHandle *ret1) {
    REQUIRE_DEFINED(self);
    REQUIRE_OUT(ret0);
    REQUIRE_OUT(ret1);
    TRY(sort(self, dim, descending != 0, ret0, ret1));
    return AOTI_OK;
}

AOTITorchError aoti_torch_cpu_topk(AtenTensorHandle self, int64_t k, int64_t dim, int32_t largest,
                                   int32_t sorted, AtenTensorHandle *ret0, AtenTensorHandle *ret1) {
    int64_t sizes[MAX_DIMS];
    (void)sorted; /* always */
    REQUIRE_DEFINED(self);
    REQUIRE_OUT(ret0);
    REQUIRE_OUT(ret1);
    TRY(sortable(self));
    TRY(wrap_dim(dim, self->ndim, &dim));
    int64_t count = self->ndim == 0 ? 1 : self->sizes[dim];
    REQUIRE(k >= 0 && k <= count, AOTI_INVALID_ARGUMENT, "k = %lld is outside 0 to %lld", (long long)k,
            (long long)count);
    for (int64_t d = 0; d < self->ndim; d++) {
        sizes[d] = d == dim ? k : self->sizes[d];
    }
    /* A 0-d tensor is its own greatest element, whatever k is. */
    TRY(sorted_pair(self, dim, sizes, NULL, self->ndim == 0 ? 1 : k, largest != 0, ret0, ret1));
    return AOTI_OK;
}
