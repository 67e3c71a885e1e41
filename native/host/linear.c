/* The linear layer of frozen models: activation(x @ weight^T + bias), the weight packed or not. */
#include <stdlib.h>

#include "gemm.h"
#include "pointwise.h"

struct activation {
    const char *attribute, **algorithm;
    const double **scalars;
    int64_t scalar_count;
};

/* `other` is combined with the result by `binary`, or NULL; then comes the activation. */
static AOTITorchError linear(AtenTensorHandle X, AtenTensorHandle W, AtenTensorHandle *B,
                             AtenTensorHandle other, const char *binary, struct activation after,
                             AtenTensorHandle *ret0) {
    AtenTensorHandle bias = B != NULL ? *B : NULL;
    int32_t dtype = X->dtype, type = accumulator_of(dtype);
    if (type != DTYPE_FLOAT32 && type != DTYPE_FLOAT64) {
        return FAIL(AOTI_NOT_SUPPORTED, "no linear layer of %s", dtype_text(dtype));
    }
    if (!tensor_on_cpu(X) || !tensor_on_cpu(W) || W->dtype != dtype) {
        return FAIL(AOTI_INVALID_ARGUMENT, "the weight is no %s tensor on the CPU", dtype_text(dtype));
    }
    if (X->ndim < 1 || W->ndim != 2 || X->sizes[X->ndim - 1] != W->sizes[1]) {
        return FAIL(AOTI_INVALID_ARGUMENT, "a %lld-d input and a %lld-d weight don't fit", (long long)X->ndim,
                    (long long)W->ndim);
    }
    int64_t outputs = W->sizes[0], inputs = W->sizes[1], sizes[MAX_DIMS], rows = 1;
    for (int64_t d = 0; d < X->ndim; d++) {
        sizes[d] = d == X->ndim - 1 ? outputs : X->sizes[d];
        rows *= d == X->ndim - 1 ? 1 : X->sizes[d];
    }
    if (bias != NULL) {
        if (!shim_is_tensor(bias) || bias->storage == NULL) {
            return FAIL(AOTI_INVALID_ARGUMENT, "'B' is not a tensor of this host");
        }
        if (!tensor_on_cpu(bias) || bias->dtype != dtype || bias->ndim != 1 || bias->sizes[0] != outputs) {
            return FAIL(AOTI_INVALID_ARGUMENT, "the bias is not one %s for each of %lld outputs",
                        dtype_text(dtype), (long long)outputs);
        }
    }
    const struct device cpu = {DEVICE_CPU, -1};
    AtenTensorHandle result = NULL, out = NULL;
    void *x = NULL, *weight = NULL;
    AOTITorchError code;
    TRY_OR_DONE(tensor_empty(X->ndim, sizes, NULL, type, cpu, &result));
    if (bias != NULL) {
        TRY_OR_DONE(tensor_copy(result, bias));
    }
    TRY_OR_DONE(tensor_to_buffer(X, type, &x));
    TRY_OR_DONE(tensor_to_buffer(W, type, &weight));
    if (result->numel != 0) {
        TRY_OR_DONE(gemm(type, rows, outputs, inputs, 1, (struct matrix){x, inputs, 1},
                         (struct matrix){weight, 1, inputs}, bias != NULL,
                         (struct matrix){tensor_data(result), outputs, 1}));
    }
    if (binary != NULL) {
        TRY_OR_DONE(combine(binary, 1, type, result->storage->data, X->ndim, sizes, other));
    }
    TRY_OR_DONE(pointwise(after.attribute, after.scalars, after.scalar_count, after.algorithm, type,
                          result->storage->data, result->numel));
    if (type == dtype) {
        out = result;
        result = NULL;
    } else {
        TRY_OR_DONE(tensor_empty(X->ndim, sizes, NULL, dtype, cpu, &out));
        TRY_OR_DONE(tensor_copy(out, result));
    }
    *ret0 = out;
    out = NULL; /* the caller's now */
done:
    free(x);
    free(weight);
    tensor_drop(result);
    tensor_drop(out);
    return code;
}

AOTITorchError aoti_torch_cpu__linear_pointwise(AtenTensorHandle X, AtenTensorHandle W, AtenTensorHandle *B,
                                                const char *attr, const double **scalars,
                                                int64_t scalars_len_, const char **algorithm,
                                                AtenTensorHandle *ret0) {
    REQUIRE_DEFINED(X);
    REQUIRE_DEFINED(W);
    REQUIRE_OUT(ret0);
    struct activation after = {attr, algorithm, scalars, scalars_len_};
    TRY(linear(X, W, B, NULL, NULL, after, ret0));
    return AOTI_OK;
}

AOTITorchError aoti_torch_cpu__linear_pointwise_binary(AtenTensorHandle X, AtenTensorHandle other,
                                                       AtenTensorHandle W, AtenTensorHandle *B,
                                                       const char *attr, AtenTensorHandle *ret0) {
    REQUIRE_DEFINED(X);
    REQUIRE_DEFINED(W);
    REQUIRE_OUT(attr);
    REQUIRE_OUT(ret0);
    TRY(linear(X, W, B, other, attr, (struct activation){"none", NULL, NULL, 0}, ret0));
    return AOTI_OK;
}
