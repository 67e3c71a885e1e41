/* The linear layer of frozen models: activation(x @ weight^T + bias), the weight packed or not. */
#include <stdlib.h>

#include "gemm.h"
#include "pointwise.h"

AOTITorchError aoti_torch_cpu__linear_pointwise(AtenTensorHandle X, AtenTensorHandle W, AtenTensorHandle *B,
                                                const char *attr, const double **scalars, int64_t scalars_len_,
                                                const char **algorithm, AtenTensorHandle *ret0) {
    REQUIRE_DEFINED(X);
    REQUIRE_DEFINED(W);
    REQUIRE_OUT(ret0);
    AtenTensorHandle bias = B != NULL ? *B : NULL;
    int32_t dtype = X->dtype, type = accumulator_of(dtype);
    REQUIRE(type == DTYPE_FLOAT32 || type == DTYPE_FLOAT64, AOTI_NOT_SUPPORTED, "no linear layer of %s",
            dtype_text(dtype));
    REQUIRE(tensor_on_cpu(X) && tensor_on_cpu(W) && W->dtype == dtype, AOTI_INVALID_ARGUMENT,
            "the weight is no %s tensor on the CPU", dtype_text(dtype));
    REQUIRE(X->ndim >= 1 && W->ndim == 2 && X->sizes[X->ndim - 1] == W->sizes[1], AOTI_INVALID_ARGUMENT,
            "a %lld-d input and a %lld-d weight don't fit", (long long)X->ndim, (long long)W->ndim);
    int64_t outputs = W->sizes[0], inputs = W->sizes[1], sizes[MAX_DIMS], rows = 1;
    for (int64_t d = 0; d < X->ndim; d++) {
        sizes[d] = d == X->ndim - 1 ? outputs : X->sizes[d];
        rows *= d == X->ndim - 1 ? 1 : X->sizes[d];
    }
    if (bias != NULL) {
        REQUIRE_DEFINED(bias);
        REQUIRE(tensor_on_cpu(bias) && bias->dtype == dtype && bias->ndim == 1 && bias->sizes[0] == outputs,
                AOTI_INVALID_ARGUMENT, "the bias is not one %s for each of %lld outputs", dtype_text(dtype),
                (long long)outputs);
    }
    const struct device cpu = {DEVICE_CPU, -1};
    AtenTensorHandle result = NULL, out = NULL;
    void *x = NULL, *weight = NULL;
    TRY(tensor_empty(X->ndim, sizes, NULL, type, cpu, &result, __func__));
    AOTITorchError code = bias != NULL ? tensor_copy(result, bias, __func__) : AOTI_OK;
    code = code != AOTI_OK ? code : tensor_to_buffer(X, type, &x, __func__);
    code = code != AOTI_OK ? code : tensor_to_buffer(W, type, &weight, __func__);
    if (code == AOTI_OK && result->numel != 0) {
        code = gemm(type, rows, outputs, inputs, 1, (struct matrix){x, inputs, 1}, (struct matrix){weight, 1, inputs},
                    bias != NULL, (struct matrix){tensor_data(result), outputs, 1}, __func__);
    }
    if (code == AOTI_OK) {
        code = pointwise(attr, scalars, scalars_len_, algorithm, type, result->storage->data, result->numel, __func__);
    }
    if (code == AOTI_OK && type != dtype) {
        code = tensor_empty(X->ndim, sizes, NULL, dtype, cpu, &out, __func__);
        code = code != AOTI_OK ? code : tensor_copy(out, result, __func__);
    }
    free(x);
    free(weight);
    if (code != AOTI_OK || out != NULL) {
        tensor_delete(result);
    }
    if (code != AOTI_OK) {
        if (out != NULL) {
            tensor_delete(out);
        }
        return code;
    }
    *ret0 = out != NULL ? out : result;
    return AOTI_OK;
}
