/* Convolution in one to three dimensions, transposed too: checks, layouts, and what is fused with it. */
#include <stdlib.h>
#include <string.h>

#include "gemm.h"
#include "pointwise.h"
#include "unfold.h"

/* Whether a (N, C, H, W) or (N, C, D, H, W) tensor lies with its channels innermost, by ATen's rule. */
static bool channels_last(const struct AtenTensorOpaque *tensor) {
    static const int order[2][5] = {{1, 3, 2, 0}, {1, 4, 3, 2, 0}};
    if ((tensor->ndim != 4 && tensor->ndim != 5) || tensor->strides[1] == 0) {
        return false;
    }
    int64_t least = 0;
    for (int64_t i = 0; i < tensor->ndim; i++) {
        int d = order[tensor->ndim - 4][i];
        if (tensor->sizes[d] == 0 || tensor->strides[d] < least || (d == 0 && least == tensor->strides[1])) {
            return false;
        }
        least = tensor->strides[d] * (tensor->sizes[d] > 1 ? tensor->sizes[d] : 1);
    }
    return true;
}

/* One value for every dimension, or one for each. */
static AOTITorchError parameter(const int64_t *values, int64_t count, int64_t dims, int64_t least,
                                int64_t *out, const char *name) {
    if (values == NULL || (count != 1 && count != dims)) {
        return FAIL(AOTI_INVALID_ARGUMENT, "'%s' has %lld values for %lld dimensions", name,
                    values == NULL ? 0LL : (long long)count, (long long)dims);
    }
    for (int64_t d = 0; d < dims; d++) {
        int64_t value = values[count == 1 ? 0 : d];
        if (value < least || value > INT32_MAX) {
            return FAIL(AOTI_INVALID_ARGUMENT, "'%s' is %lld", name, (long long)value);
        }
        out[SPACE - dims + d] = value;
    }
    return AOTI_OK;
}

struct call {
    AtenTensorHandle input, weight, bias;
    const int64_t *stride, *padding, *dilation, *output_padding;
    int64_t stride_count, padding_count, dilation_count, output_padding_count, groups;
    bool transposed;
    /* What follows the convolution: NULL for nothing. */
    const char *binary;
    AtenTensorHandle other;
    double alpha;
    const char *attribute, **algorithm;
    const double **scalars;
    int64_t scalar_count;
};

static AOTITorchError shape_of(const struct call *call, struct shape *s) {
    AtenTensorHandle input = call->input, weight = call->weight;
    int64_t dims = input->ndim - 2, extra[SPACE] = {0};
    if (dims < 1 || dims > SPACE || weight->ndim != input->ndim) {
        return FAIL(AOTI_INVALID_ARGUMENT, "a %lld-d input and a %lld-d weight", (long long)input->ndim,
                    (long long)weight->ndim);
    }
    *s = (struct shape){.transposed = call->transposed, .groups = call->groups};
    for (int d = 0; d < SPACE; d++) {
        s->in[d] = s->out[d] = s->kernel[d] = s->stride[d] = s->dilation[d] = 1;
    }
    TRY(parameter(call->stride, call->stride_count, dims, 1, s->stride, "stride"));
    TRY(parameter(call->padding, call->padding_count, dims, 0, s->padding, "padding"));
    TRY(parameter(call->dilation, call->dilation_count, dims, 1, s->dilation, "dilation"));
    if (call->transposed) {
        TRY(parameter(call->output_padding, call->output_padding_count, dims, 0, extra, "output_padding"));
    }
    s->samples = input->sizes[0];
    s->in_channels = input->sizes[1];
    int64_t given = call->transposed ? weight->sizes[0] : weight->sizes[1];
    int64_t other = call->transposed ? weight->sizes[1] : weight->sizes[0];
    if (call->groups < 1 || s->in_channels % call->groups != 0 ||
        (!call->transposed && other % call->groups != 0) ||
        given != (call->transposed ? s->in_channels : s->in_channels / call->groups) ||
        __builtin_mul_overflow(other, call->transposed ? call->groups : 1, &s->out_channels)) {
        return FAIL(AOTI_INVALID_ARGUMENT, "%lld input channels, a weight (%lld, %lld) and %lld groups",
                    (long long)s->in_channels, (long long)weight->sizes[0], (long long)weight->sizes[1],
                    (long long)call->groups);
    }
    for (int64_t d = SPACE - dims; d < SPACE; d++) {
        int64_t in = input->sizes[d - SPACE + dims + 2], kernel = weight->sizes[d - SPACE + dims + 2];
        /* With sizes and parameters below 2^31 nothing here overflows. */
        if (in > INT32_MAX || kernel > INT32_MAX || kernel < 1) {
            return FAIL(AOTI_INVALID_ARGUMENT, "a kernel of size %lld on an input of size %lld",
                        (long long)kernel, (long long)in);
        }
        int64_t reach;
        if (__builtin_mul_overflow(s->dilation[d], kernel - 1, &reach) || reach > INT32_MAX) {
            return FAIL(AOTI_INVALID_ARGUMENT, "a dilated kernel of size %lld", (long long)kernel);
        }
        s->in[d] = in;
        s->kernel[d] = kernel;
        if (call->transposed) {
            s->out[d] = (in - 1) * s->stride[d] - 2 * s->padding[d] + reach + extra[d] + 1;
        } else {
            int64_t room = in + 2 * s->padding[d] - reach - 1;
            s->out[d] = room < 0 ? 0 : room / s->stride[d] + 1;
        }
        if (s->out[d] < 1) {
            return FAIL(
                AOTI_INVALID_ARGUMENT,
                "a kernel of size %lld (dilated %lld) does not fit an input of size %lld, padding %lld",
                (long long)kernel, (long long)reach + 1, (long long)in, (long long)s->padding[d]);
        }
    }
    return AOTI_OK;
}

static void fill_bias(int32_t type, const struct shape *s, const void *bias, void *out) {
    int64_t space = volume(s->out);
    for (int64_t i = 0; i < s->samples * s->out_channels; i++) {
        for (int64_t p = 0; p < space; p++) {
            if (type == DTYPE_FLOAT32) {
                ((float *)out)[i * space + p] = bias != NULL ? ((const float *)bias)[i % s->out_channels] : 0;
            } else {
                ((double *)out)[i * space + p] =
                    bias != NULL ? ((const double *)bias)[i % s->out_channels] : 0;
            }
        }
    }
}

static AOTITorchError convolution(const struct call *call, AtenTensorHandle *ret) {
    AtenTensorHandle operands[] = {call->input, call->weight, call->bias};
    static const char *const names[] = {"input", "weight", "bias"};
    for (int i = 0; i < (call->bias != NULL ? 3 : 2); i++) {
        if (!shim_is_tensor(operands[i]) || operands[i]->storage == NULL || !tensor_on_cpu(operands[i])) {
            return FAIL(AOTI_INVALID_ARGUMENT, "'%s' is not a CPU tensor of this host", names[i]);
        }
        if (operands[i]->dtype != call->input->dtype) {
            return FAIL(AOTI_INVALID_ARGUMENT, "'%s' is %s, the input is %s", names[i],
                        dtype_text(operands[i]->dtype), dtype_text(call->input->dtype));
        }
    }
    int32_t dtype = call->input->dtype, type = accumulator_of(dtype);
    if (type != DTYPE_FLOAT32 && type != DTYPE_FLOAT64) {
        return FAIL(AOTI_NOT_SUPPORTED, "no convolution of %s", dtype_text(dtype));
    }
    struct shape s;
    TRY(shape_of(call, &s));
    if (call->bias != NULL && (call->bias->ndim != 1 || call->bias->sizes[0] != s.out_channels)) {
        return FAIL(AOTI_INVALID_ARGUMENT, "the bias is not one value for each of %lld channels",
                    (long long)s.out_channels);
    }
    int64_t dims = call->input->ndim, sizes[5], strides[5], plain[5];
    sizes[0] = s.samples;
    sizes[1] = s.out_channels;
    for (int64_t d = 2; d < dims; d++) {
        sizes[d] = s.out[SPACE - dims + d];
    }
    struct geometry geometry;
    TRY(geometry_check(dims, sizes, NULL, 0, type, plain, &geometry));
    memcpy(strides, plain, sizeof strides);
    /* As ATen: a weight packed for oneDNN makes the result lie with its channels innermost. */
    bool packed = call->weight->layout == LAYOUT_MKLDNN && dims >= 4;
    if (packed || ((channels_last(call->input) || channels_last(call->weight)) &&
                   (dims == 4 || type == DTYPE_FLOAT32))) {
        int64_t stride = s.out_channels > 1 ? s.out_channels : 1;
        strides[1] = 1;
        for (int64_t d = dims - 1; d >= 2; d--) {
            strides[d] = stride;
            stride *= sizes[d] > 1 ? sizes[d] : 1;
        }
        strides[0] = stride;
    }
    void *in = NULL, *weight = NULL, *bias = NULL, *buffer = NULL;
    AtenTensorHandle out = NULL;
    AOTITorchError code;
    TRY_OR_DONE(tensor_empty(dims, sizes, strides, dtype, (struct device){DEVICE_CPU, -1}, &out));
    TRY_OR_DONE(tensor_to_buffer(call->input, type, &in));
    TRY_OR_DONE(tensor_to_buffer(call->weight, type, &weight));
    if (call->bias != NULL) {
        TRY_OR_DONE(tensor_to_buffer(call->bias, type, &bias));
    }
    if ((buffer = malloc(geometry.nbytes + 1)) == NULL) {
        code = FAIL(AOTI_MEMORY_ALLOCATION_FAILED, "no memory for %zu bytes", geometry.nbytes);
        goto done;
    }
    if (out->numel != 0) {
        fill_bias(type, &s, bias, buffer);
        TRY_OR_DONE(convolve(type, &s, in, weight, buffer));
        if (call->binary != NULL) {
            TRY_OR_DONE(combine(call->binary, call->alpha, type, buffer, dims, sizes, call->other));
        }
        if (call->attribute != NULL) {
            TRY_OR_DONE(pointwise(call->attribute, call->scalars, call->scalar_count, call->algorithm, type,
                                  buffer, out->numel));
        }
        strided_copy(dims, sizes, (struct strided){tensor_data(out), out->strides, dtype},
                     (struct strided){buffer, plain, type});
    }
    *ret = out;
    out = NULL; /* the caller's now */
done:
    free(in);
    free(weight);
    free(bias);
    free(buffer);
    tensor_drop(out);
    return code;
}

/* A call with nothing fused to it; the rest is the caller's to fill in. */
static struct call call_of(AtenTensorHandle input, AtenTensorHandle weight, AtenTensorHandle bias,
                           const int64_t *stride, int64_t stride_count, const int64_t *padding,
                           int64_t padding_count, const int64_t *dilation, int64_t dilation_count,
                           int64_t groups) {
    return (struct call){
        .input = input,
        .weight = weight,
        .bias = bias,
        .stride = stride,
        .stride_count = stride_count,
        .padding = padding,
        .padding_count = padding_count,
        .dilation = dilation,
        .dilation_count = dilation_count,
        .groups = groups,
        .alpha = 1,
    };
}

AOTITorchError aoti_torch_cpu_convolution(AtenTensorHandle input, AtenTensorHandle weight,
                                          AtenTensorHandle *bias, const int64_t *stride, int64_t stride_len_,
                                          const int64_t *padding, int64_t padding_len_,
                                          const int64_t *dilation, int64_t dilation_len_, int32_t transposed,
                                          const int64_t *output_padding, int64_t output_padding_len_,
                                          int64_t groups, AtenTensorHandle *ret0) {
    REQUIRE_DEFINED(input);
    REQUIRE_OUT(ret0);
    struct call call = call_of(input, weight, bias != NULL ? *bias : NULL, stride, stride_len_, padding,
                               padding_len_, dilation, dilation_len_, groups);
    call.transposed = transposed != 0;
    call.output_padding = output_padding;
    call.output_padding_count = output_padding_len_;
    TRY(convolution(&call, ret0));
    return AOTI_OK;
}

AOTITorchError aoti_torch_convolution(AtenTensorHandle input, AtenTensorHandle weight, AtenTensorHandle bias,
                                      const int64_t *stride_ptr, int64_t stride_size,
                                      const int64_t *padding_ptr, int64_t padding_size,
                                      const int64_t *dilation_ptr, int64_t dilation_size, int transposed,
                                      const int64_t *output_padding_ptr, int64_t output_padding_size,
                                      int64_t groups, AtenTensorHandle *ret) {
    REQUIRE_DEFINED(input);
    REQUIRE_OUT(ret);
    struct call call = call_of(input, weight, bias, stride_ptr, stride_size, padding_ptr, padding_size,
                               dilation_ptr, dilation_size, groups);
    call.transposed = transposed != 0;
    call.output_padding = output_padding_ptr;
    call.output_padding_count = output_padding_size;
    TRY(convolution(&call, ret));
    return AOTI_OK;
}

AOTITorchError aoti_torch_cpu_mkldnn__convolution_pointwise(
    AtenTensorHandle X, AtenTensorHandle W, AtenTensorHandle *B, const int64_t *padding, int64_t padding_len_,
    const int64_t *stride, int64_t stride_len_, const int64_t *dilation, int64_t dilation_len_,
    int64_t groups, const char *attr, const double **scalars, int64_t scalars_len_, const char **algorithm,
    AtenTensorHandle *ret0) {
    REQUIRE_DEFINED(X);
    REQUIRE_DEFINED(W);
    REQUIRE_OUT(attr);
    REQUIRE_OUT(ret0);
    struct call call = call_of(X, W, B != NULL ? *B : NULL, stride, stride_len_, padding, padding_len_,
                               dilation, dilation_len_, groups);
    call.attribute = attr;
    call.algorithm = algorithm;
    call.scalars = scalars;
    call.scalar_count = scalars_len_;
    TRY(convolution(&call, ret0));
    return AOTI_OK;
}

AOTITorchError aoti_torch_cpu_mkldnn__convolution_pointwise_binary(
    AtenTensorHandle X, AtenTensorHandle other, AtenTensorHandle W, AtenTensorHandle *B,
    const int64_t *padding, int64_t padding_len_, const int64_t *stride, int64_t stride_len_,
    const int64_t *dilation, int64_t dilation_len_, int64_t groups, const char *binary_attr, double *alpha,
    const char **unary_attr, const double **unary_scalars, int64_t unary_scalars_len_,
    const char **unary_algorithm, AtenTensorHandle *ret0) {
    REQUIRE_DEFINED(X);
    REQUIRE_DEFINED(W);
    REQUIRE_OUT(binary_attr);
    REQUIRE_OUT(ret0);
    struct call call = call_of(X, W, B != NULL ? *B : NULL, stride, stride_len_, padding, padding_len_,
                               dilation, dilation_len_, groups);
    call.binary = binary_attr;
    call.other = other;
    call.alpha = alpha != NULL ? *alpha : 1;
    call.attribute = unary_attr != NULL ? *unary_attr : NULL;
    call.algorithm = unary_algorithm;
    call.scalars = unary_scalars;
    call.scalar_count = unary_scalars_len_;
    TRY(convolution(&call, ret0));
    return AOTI_OK;
}

/* The same, written over `other`, which is returned. */
AOTITorchError aoti_torch_cpu_mkldnn__convolution_pointwise_binary_(
    AtenTensorHandle other, AtenTensorHandle X, AtenTensorHandle W, AtenTensorHandle *B,
    const int64_t *padding, int64_t padding_len_, const int64_t *stride, int64_t stride_len_,
    const int64_t *dilation, int64_t dilation_len_, int64_t groups, const char *binary_attr, double *alpha,
    const char **unary_attr, const double **unary_scalars, int64_t unary_scalars_len_,
    const char **unary_algorithm, AtenTensorHandle *ret0) {
    AtenTensorHandle result;
    REQUIRE_DEFINED(other);
    REQUIRE_OUT(ret0);
    TRY(aoti_torch_cpu_mkldnn__convolution_pointwise_binary(
        X, other, W, B, padding, padding_len_, stride, stride_len_, dilation, dilation_len_, groups,
        binary_attr, alpha, unary_attr, unary_scalars, unary_scalars_len_, unary_algorithm, &result));
    AOTITorchError code;
    if (!same_sizes(other, result)) {
        code = FAIL(AOTI_INVALID_ARGUMENT, "'other' does not have the sizes of the result");
        goto done;
    }
    TRY_OR_DONE(tensor_copy(other, result));
    TRY_OR_DONE(aoti_torch_new_tensor_handle(other, ret0));
done:
    tensor_delete(result);
    return code;
}
