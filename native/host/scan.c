/* Running sums and products, and the indices of what is not zero. */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

/* In place along lines of `count` elements `step` apart. float32 sums in double, the 16-bit types in float,
 * integers wrap around: as ATen does on the CPU. */
static void scan_line(char *at, int64_t count, int64_t step, int32_t dtype, bool multiply) {
    double real = multiply ? 1 : 0;
    float narrow = multiply ? 1 : 0;
    uint64_t whole = multiply ? 1 : 0;
    for (int64_t i = 0; i < count; i++, at += step) {
        if (dtype_is_integral(dtype)) {
            uint64_t value;
            convert_run(1, (char *)&value, 8, DTYPE_INT64, at, 8, dtype);
            whole = multiply ? whole * value : whole + value;
            convert_run(1, at, 8, dtype, (char *)&whole, 8, DTYPE_INT64);
        } else if (dtype == DTYPE_FLOAT16 || dtype == DTYPE_BFLOAT16) {
            float value;
            convert_run(1, (char *)&value, 4, DTYPE_FLOAT32, at, 4, dtype);
            narrow = multiply ? narrow * value : narrow + value;
            convert_run(1, at, 4, dtype, (char *)&narrow, 4, DTYPE_FLOAT32);
        } else {
            double value;
            convert_run(1, (char *)&value, 8, DTYPE_FLOAT64, at, 8, dtype);
            real = multiply ? real * value : real + value;
            convert_run(1, at, 8, dtype, (char *)&real, 8, DTYPE_FLOAT64);
        }
    }
}

static AOTITorchError scan(AtenTensorHandle self, int64_t dim, const int32_t *dtype, bool multiply,
                           AtenTensorHandle *out) {
    int32_t to = dtype != NULL ? *dtype : dtype_is_integral(self->dtype) ? DTYPE_INT64 : self->dtype;
    if (!tensor_on_cpu(self)) {
        return FAIL(AOTI_INVALID_ARGUMENT, "'self' is not on the CPU");
    }
    if (dtype_is_complex(to) || !convert_supported(DTYPE_FLOAT64, to) || to == DTYPE_BOOL) {
        return FAIL(AOTI_NOT_SUPPORTED, "no running sum of %s", dtype_text(to));
    }
    TRY(wrap_dim(dim, self->ndim, &dim));
    AtenTensorHandle result;
    TRY(tensor_empty(self->ndim, self->sizes, NULL, to, (struct device){DEVICE_CPU, -1}, &result));
    AOTITorchError code;
    TRY_OR_DONE(tensor_copy(result, self));
    if (self->ndim > 0 && self->numel > 0) {
        int64_t itemsize = (int64_t)dtype_itemsize(to), count = self->sizes[dim],
                inner = result->strides[dim];
        char *data = tensor_data(result);
        for (int64_t outer = 0; outer < self->numel / (count * inner); outer++) {
            for (int64_t i = 0; i < inner; i++) {
                scan_line(data + (outer * count * inner + i) * itemsize, count, inner * itemsize, to,
                          multiply);
            }
        }
    }
    *out = result;
done:
    if (code != AOTI_OK) {
        tensor_delete(result);
    }
    return code;
}

AOTITorchError aoti_torch_cpu_cumsum(AtenTensorHandle self, int64_t dim, int32_t *dtype,
                                     AtenTensorHandle *ret0) {
    REQUIRE_DEFINED(self);
    REQUIRE_OUT(ret0);
    TRY(scan(self, dim, dtype, false, ret0));
    return AOTI_OK;
}

AOTITorchError aoti_torch_cpu_cumprod(AtenTensorHandle self, int64_t dim, int32_t *dtype,
                                      AtenTensorHandle *ret0) {
    REQUIRE_DEFINED(self);
    REQUIRE_OUT(ret0);
    TRY(scan(self, dim, dtype, true, ret0));
    return AOTI_OK;
}

static AOTITorchError nonzero(AtenTensorHandle self, AtenTensorHandle *out) {
    if (!tensor_on_cpu(self)) {
        return FAIL(AOTI_INVALID_ARGUMENT, "'self' is not on the CPU");
    }
    void *buffer;
    TRY(tensor_to_buffer(self, DTYPE_BOOL, &buffer));
    const uint8_t *set = buffer;
    int64_t sizes[2] = {0, self->ndim}, at[MAX_DIMS] = {0};
    for (int64_t i = 0; i < self->numel; i++) {
        sizes[0] += set[i];
    }
    /* Laid out by columns, one dimension after the other, as ATen does. */
    const int64_t strides[2] = {1, sizes[0]};
    AOTITorchError code = tensor_empty(2, sizes, strides, DTYPE_INT64, (struct device){DEVICE_CPU, -1}, out);
    if (code == AOTI_OK && self->ndim > 0) { /* of a 0-d tensor only the count is told: there is no index */
        int64_t *index = (*out)->storage->data;
        for (int64_t i = 0; i < self->numel; i++) {
            if (set[i]) {
                for (int64_t d = 0; d < self->ndim; d++) {
                    index[d * sizes[0]] = at[d];
                }
                index++;
            }
            for (int64_t d = self->ndim - 1; d >= 0; d--) {
                if (++at[d] < self->sizes[d]) {
                    break;
                }
                at[d] = 0;
            }
        }
    }
    free(buffer);
    return code;
}

AOTITorchError aoti_torch_cpu_nonzero(AtenTensorHandle self, AtenTensorHandle *ret0) {
    REQUIRE_DEFINED(self);
    REQUIRE_OUT(ret0);
    TRY(nonzero(self, ret0));
    return AOTI_OK;
}

AOTITorchError aoti_torch_nonzero(AtenTensorHandle self, AtenTensorHandle *out) {
    REQUIRE_DEFINED(self);
    REQUIRE_OUT(out);
    TRY(nonzero(self, out));
    return AOTI_OK;
}
