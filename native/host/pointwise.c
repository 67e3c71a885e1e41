/* What frozen models apply to the result of a linear layer or a convolution, by oneDNN's names. */
#include "pointwise.h"

#include <math.h>
#include <string.h>

enum activation {
    NONE,
    RELU,
    SIGMOID,
    TANH,
    SWISH,
    HARDSWISH,
    HARDSIGMOID,
    GELU,
    GELU_TANH,
    LEAKY_RELU,
    HARDTANH
};

/* x + 3, held between 0 and 6. NaN stays NaN, which fmin and fmax would lose. */
static double ramp(double x) { return x < -3 ? 0 : x > 3 ? 6 : x + 3; }

static double activate(enum activation activation, double x, double a, double b) {
    switch (activation) {
        case RELU: return x > 0 || isnan(x) ? x : 0;
        case SIGMOID: return 1 / (1 + exp(-x));
        case TANH: return tanh(x);
        case SWISH: return x / (1 + exp(-x));
        case HARDSWISH: return x * ramp(x) / 6;
        case HARDSIGMOID: return ramp(x) / 6;
        case GELU: return 0.5 * x * (1 + erf(x * 0.70710678118654752440));
        case GELU_TANH: return 0.5 * x * (1 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
        case LEAKY_RELU: return x > 0 ? x : a * x;
        case HARDTANH: return x < a ? a : x > b ? b : x;
        default: return x;
    }
}

AOTITorchError pointwise(const char *attribute, const double **scalars, int64_t scalar_count,
                         const char **algorithm, int32_t type, void *values, int64_t count) {
    static const struct {
        const char *name;
        enum activation activation;
        int scalars;
    } known[] = {
        {"none", NONE, 0},
        {"relu", RELU, 0},
        {"sigmoid", SIGMOID, 0},
        {"tanh", TANH, 0},
        {"swish", SWISH, 0},
        {"hardswish", HARDSWISH, 0},
        {"hardsigmoid", HARDSIGMOID, 0},
        {"gelu", GELU, 0},
        {"leaky_relu", LEAKY_RELU, 1},
        {"hardtanh", HARDTANH, 2},
    };
    if (attribute == NULL) {
        return FAIL(AOTI_INVALID_ARGUMENT, "'attr' is a null pointer");
    }
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(attribute, known[i].name) != 0) {
            continue;
        }
        double given[2] = {0, 0};
        for (int s = 0; s < known[i].scalars; s++) {
            if (scalars == NULL || s >= scalar_count || scalars[s] == NULL) {
                return FAIL(AOTI_INVALID_ARGUMENT, "%s has %lld scalars instead of %d", attribute,
                            (long long)scalar_count, known[i].scalars);
            }
            given[s] = *scalars[s];
        }
        enum activation activation = known[i].activation;
        if (activation == GELU && algorithm != NULL && *algorithm != NULL &&
            strcmp(*algorithm, "tanh") == 0) {
            activation = GELU_TANH;
        }
        for (int64_t at = 0; activation != NONE && at < count; at++) {
            if (type == DTYPE_FLOAT32) {
                ((float *)values)[at] =
                    (float)activate(activation, ((float *)values)[at], given[0], given[1]);
            } else {
                ((double *)values)[at] = activate(activation, ((double *)values)[at], given[0], given[1]);
            }
        }
        return AOTI_OK;
    }
    return FAIL(AOTI_NOT_SUPPORTED, "the fused operation '%.40s' is not known here", attribute);
}

AOTITorchError combine(const char *attribute, double alpha, int32_t type, void *values, int64_t ndim,
                       const int64_t *sizes, AtenTensorHandle other) {
    static const char *const known[] = {"add", "sub", "mul", "div"};
    size_t operation = 0;
    while (operation < 4 && (attribute == NULL || strcmp(attribute, known[operation]) != 0)) {
        operation++;
    }
    if (operation == 4) {
        return FAIL(AOTI_NOT_SUPPORTED, "the fused operation '%.40s' is not known here",
                    attribute != NULL ? attribute : "(null)");
    }
    if (!shim_is_tensor(other) || other->storage == NULL || !tensor_on_cpu(other)) {
        return FAIL(AOTI_INVALID_ARGUMENT, "'other' is not a CPU tensor of this host");
    }
    AtenTensorHandle full;
    TRY(tensor_empty(ndim, sizes, NULL, type, (struct device){DEVICE_CPU, -1}, &full));
    AOTITorchError code;
    TRY_OR_DONE(tensor_copy(full, other));
    for (int64_t i = 0; i < full->numel; i++) {
        bool narrow = type == DTYPE_FLOAT32;
        const void *others = full->storage->data;
        double left = narrow ? (double)((float *)values)[i] : ((double *)values)[i];
        double right = alpha * (narrow ? (double)((const float *)others)[i] : ((const double *)others)[i]);
        const double results[] = {left + right, left - right, left * right, left / right};
        double result = results[operation];
        if (narrow) {
            ((float *)values)[i] = (float)result;
        } else {
            ((double *)values)[i] = result;
        }
    }
done:
    tensor_delete(full);
    return code;
}
