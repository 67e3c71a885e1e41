/* mm_out, addmm_out, bmm_out, baddbmm_out: out = beta * self + alpha * batch1 @ batch2. */
#include <stdlib.h>

#include "gemm.h"

static AOTITorchError check_operand(AtenTensorHandle tensor, int64_t ndim, int32_t dtype, const char *name) {
    if (!shim_is_tensor(tensor) || tensor->storage == NULL) {
        return FAIL(AOTI_INVALID_ARGUMENT, "'%s' is %s", name,
                    shim_is_tensor(tensor) ? "an undefined tensor" : shim_not_a_tensor(tensor));
    }
    if (!tensor_on_cpu(tensor)) {
        return FAIL(AOTI_INVALID_ARGUMENT, "'%s' is not on the CPU", name);
    }
    if (ndim >= 0 && tensor->ndim != ndim) {
        return FAIL(AOTI_INVALID_ARGUMENT, "'%s' has %lld dimensions instead of %lld", name,
                    (long long)tensor->ndim, (long long)ndim);
    }
    if (tensor->dtype != dtype) {
        return FAIL(AOTI_INVALID_ARGUMENT, "'%s' is %s, the output is %s", name, dtype_text(tensor->dtype),
                    dtype_text(dtype));
    }
    return AOTI_OK;
}

/* An operand as the product reads it: where it lies, or a contiguous copy in the accumulator's type. */
struct operand {
    char *data;
    int64_t batch, row, column; /* strides in elements of the accumulator */
    void *copy;
};

static AOTITorchError operand_of(AtenTensorHandle tensor, int32_t accumulator, struct operand *operand) {
    int64_t rows = tensor->sizes[tensor->ndim - 2], columns = tensor->sizes[tensor->ndim - 1];
    int64_t row = tensor->strides[tensor->ndim - 2], column = tensor->strides[tensor->ndim - 1];
    bool readable = (column == 1 || columns == 1) || (row == 1 || rows == 1);
    if (tensor->dtype == accumulator && readable) {
        *operand = (struct operand){tensor_data(tensor), tensor->ndim == 3 ? tensor->strides[0] : 0, row,
                                    column, NULL};
        return AOTI_OK;
    }
    TRY(tensor_to_buffer(tensor, accumulator, &operand->copy));
    operand->data = operand->copy;
    operand->batch = rows * columns;
    operand->row = columns;
    operand->column = 1;
    return AOTI_OK;
}

/* The operands of all four: `ndim` is 2 or 3, `self` NULL without an addend. */
static AOTITorchError multiply(AtenTensorHandle out, AtenTensorHandle self, AtenTensorHandle left,
                               AtenTensorHandle right, int64_t ndim, double beta, double alpha) {
    if (!shim_is_tensor(out) || out->storage == NULL) {
        return FAIL(AOTI_INVALID_ARGUMENT, "'out' is %s",
                    shim_is_tensor(out) ? "an undefined tensor" : shim_not_a_tensor(out));
    }
    int32_t dtype = out->dtype, accumulator = accumulator_of(dtype);
    if (accumulator < 0) {
        return FAIL(AOTI_NOT_SUPPORTED, "no matrix product of %s", dtype_text(dtype));
    }
    TRY(check_operand(out, ndim, dtype, "out"));
    TRY(check_operand(left, ndim, dtype, ndim == 2 ? "mat1" : "batch1"));
    TRY(check_operand(right, ndim, dtype, ndim == 2 ? "mat2" : "batch2"));
    int64_t batches = ndim == 3 ? out->sizes[0] : 1;
    int64_t m = out->sizes[ndim - 2], n = out->sizes[ndim - 1], k = left->sizes[ndim - 1];
    if (left->sizes[ndim - 2] != m || right->sizes[ndim - 2] != k || right->sizes[ndim - 1] != n ||
        (ndim == 3 && (left->sizes[0] != batches || right->sizes[0] != batches))) {
        return FAIL(AOTI_INVALID_ARGUMENT,
                    "the sizes (%lld, %lld) and (%lld, %lld) don't make (%lld, %lld), or the batches differ",
                    (long long)left->sizes[ndim - 2], (long long)k, (long long)right->sizes[ndim - 2],
                    (long long)right->sizes[ndim - 1], (long long)m, (long long)n);
    }
    if (self == NULL) {
        beta = 0;
    } else {
        TRY(check_operand(self, -1, dtype, "self"));
    }
    if (out->numel == 0) {
        return AOTI_OK;
    }
    /* In place where the output has the accumulator's type, else in a buffer, rounded once at the end. */
    void *buffer = NULL;
    struct operand a = {0}, b = {0},
                   c = {tensor_data(out), ndim == 3 ? out->strides[0] : 0, out->strides[ndim - 2],
                        out->strides[ndim - 1], NULL};
    int64_t strides[MAX_DIMS];
    const int64_t *c_strides = out->strides;
    AOTITorchError code = AOTI_OK;
    if (accumulator != dtype) {
        contiguous_strides(ndim, out->sizes, strides);
        c_strides = strides;
        buffer = malloc((size_t)out->numel * dtype_itemsize(accumulator));
        if (buffer == NULL) {
            return FAIL(AOTI_MEMORY_ALLOCATION_FAILED, "no memory for a matrix product");
        }
        c = (struct operand){buffer, m * n, n, 1, NULL};
    }
    if (beta != 0 && (self != out || buffer != NULL)) {
        /* Broadcast the addend into the output: a view of the target with the source's broadcasting. */
        struct storage storage = {.data = buffer, .device = out->storage->device};
        struct AtenTensorOpaque target = *out;
        if (buffer != NULL) {
            target.storage = &storage;
            target.offset = 0;
            target.dtype = accumulator;
            target.strides = (int64_t *)c_strides;
        }
        TRY_OR_DONE(tensor_copy(&target, self));
    }
    TRY_OR_DONE(operand_of(left, accumulator, &a));
    TRY_OR_DONE(operand_of(right, accumulator, &b));
    int64_t itemsize = (int64_t)dtype_itemsize(accumulator);
    for (int64_t i = 0; i < batches; i++) {
        TRY_OR_DONE(product(accumulator, m, n, k, alpha,
                            (struct matrix){a.data + i * a.batch * itemsize, a.row, a.column},
                            (struct matrix){b.data + i * b.batch * itemsize, b.row, b.column}, beta,
                            (struct matrix){c.data + i * c.batch * itemsize, c.row, c.column}));
    }
    if (buffer != NULL) {
        strided_copy(ndim, out->sizes, (struct strided){tensor_data(out), out->strides, dtype},
                     (struct strided){buffer, c_strides, accumulator});
    }
done:
    free(a.copy);
    free(b.copy);
    free(buffer);
    return code;
}

AOTITorchError aoti_torch_cpu_mm_out(AtenTensorHandle out, AtenTensorHandle self, AtenTensorHandle mat2) {
    TRY(multiply(out, NULL, self, mat2, 2, 0, 1));
    return AOTI_OK;
}

AOTITorchError aoti_torch_mm_out(AtenTensorHandle out, AtenTensorHandle self, AtenTensorHandle mat2) {
    TRY(multiply(out, NULL, self, mat2, 2, 0, 1));
    return AOTI_OK;
}

#define REQUIRE_ADDEND() REQUIRE(self != NULL, AOTI_INVALID_ARGUMENT, "'self' is a null handle")

AOTITorchError aoti_torch_cpu_addmm_out(AtenTensorHandle out, AtenTensorHandle self, AtenTensorHandle mat1,
                                        AtenTensorHandle mat2, double beta, double alpha) {
    REQUIRE_ADDEND();
    TRY(multiply(out, self, mat1, mat2, 2, beta, alpha));
    return AOTI_OK;
}

AOTITorchError aoti_torch_addmm_out(AtenTensorHandle out, AtenTensorHandle self, AtenTensorHandle mat1,
                                    AtenTensorHandle mat2, float beta, float alpha) {
    REQUIRE_ADDEND();
    TRY(multiply(out, self, mat1, mat2, 2, (double)beta, (double)alpha));
    return AOTI_OK;
}

AOTITorchError aoti_torch_cpu_bmm_out(AtenTensorHandle out, AtenTensorHandle self, AtenTensorHandle mat2) {
    TRY(multiply(out, NULL, self, mat2, 3, 0, 1));
    return AOTI_OK;
}

AOTITorchError aoti_torch_bmm_out(AtenTensorHandle out, AtenTensorHandle self, AtenTensorHandle mat2) {
    TRY(multiply(out, NULL, self, mat2, 3, 0, 1));
    return AOTI_OK;
}

AOTITorchError aoti_torch_cpu_baddbmm_out(AtenTensorHandle out, AtenTensorHandle self,
                                          AtenTensorHandle batch1, AtenTensorHandle batch2, double beta,
                                          double alpha) {
    REQUIRE_ADDEND();
    TRY(multiply(out, self, batch1, batch2, 3, beta, alpha));
    return AOTI_OK;
}

AOTITorchError aoti_torch__mm_plus_mm_out(AtenTensorHandle out, AtenTensorHandle a, AtenTensorHandle b,
                                          AtenTensorHandle c, AtenTensorHandle d) {
    TRY(multiply(out, NULL, a, b, 2, 0, 1));
    TRY(multiply(out, out, c, d, 2, 1, 1));
    return AOTI_OK;
}
