/* Scalars in and out of tensors. */
#include <math.h>
#include <string.h>

#include "internal.h"

static AOTITorchError scalar_to_tensor(const void *value, int32_t dtype, AtenTensorHandle *out) {
    if (out == NULL) {
        return FAIL(AOTI_INVALID_ARGUMENT, "'ret_new_tensor' is a null pointer");
    }
    TRY(tensor_empty(0, NULL, NULL, dtype, (struct device){DEVICE_CPU, -1}, out));
    memcpy((*out)->storage->data, value, dtype_itemsize(dtype));
    return AOTI_OK;
}

#define SCALAR_TO_TENSOR(name, type, dtype)                                                           \
    AOTITorchError aoti_torch_scalar_to_tensor_##name(type value, AtenTensorHandle *ret_new_tensor) { \
        TRY(scalar_to_tensor(&value, dtype, ret_new_tensor));                                         \
        return AOTI_OK;                                                                               \
    }

SCALAR_TO_TENSOR(bool, bool, DTYPE_BOOL)
SCALAR_TO_TENSOR(uint8, uint8_t, DTYPE_UINT8)
SCALAR_TO_TENSOR(uint16, uint16_t, DTYPE_UINT16)
SCALAR_TO_TENSOR(uint32, uint32_t, DTYPE_UINT32)
SCALAR_TO_TENSOR(uint64, uint64_t, DTYPE_UINT64)
SCALAR_TO_TENSOR(int8, int8_t, DTYPE_INT8)
SCALAR_TO_TENSOR(int16, int16_t, DTYPE_INT16)
SCALAR_TO_TENSOR(int32, int32_t, DTYPE_INT32)
SCALAR_TO_TENSOR(int64, int64_t, DTYPE_INT64)
SCALAR_TO_TENSOR(float32, float, DTYPE_FLOAT32)
SCALAR_TO_TENSOR(float64, double, DTYPE_FLOAT64)
SCALAR_TO_TENSOR(complex64, struct aoti_complex64, DTYPE_COMPLEX64)
SCALAR_TO_TENSOR(complex128, struct aoti_complex128, DTYPE_COMPLEX128)

/* --- item ---------------------------------------------------------------------------------------------- */

/* Whether the one element, as a double or a 64-bit integer, is a value of the wanted type, as ATen asks. */
static AOTITorchError item_fits(int32_t dtype, int32_t from, const void *element) {
    double value = 0, imaginary = 0;
    int64_t integer = 0;
    if (dtype_is_complex(from)) {
        double pair[2];
        convert_run(1, (char *)pair, 16, DTYPE_COMPLEX128, element, 16, from);
        value = pair[0];
        imaginary = pair[1];
        if (imaginary != 0 && !dtype_is_complex(dtype)) {
            return FAIL(AOTI_INVALID_ARGUMENT, "a complex value has no %s", dtype_text(dtype));
        }
    } else {
        convert_run(1, (char *)&value, 8, DTYPE_FLOAT64, element, 16, from);
    }
    bool fits = true;
    if (dtype == DTYPE_BOOL || dtype_is_complex(dtype)) {
        return AOTI_OK;
    }
    if (dtype_is_floating(dtype)) {
        static const double largest[] = {
            [DTYPE_FLOAT16] = 65504.0,
            [DTYPE_FLOAT32] = 0x1.fffffep127,
            [DTYPE_BFLOAT16] = 0x1.fep127,
        };
        fits = dtype == DTYPE_FLOAT64 || !isfinite(value) || fabs(value) <= largest[dtype];
    } else {
        int bits = 8 * (int)dtype_itemsize(dtype);
        bool is_signed =
            dtype == DTYPE_INT8 || dtype == DTYPE_INT16 || dtype == DTYPE_INT32 || dtype == DTYPE_INT64;
        if (dtype_is_integral(from) && from != DTYPE_UINT64) {
            convert_run(1, (char *)&integer, 8, DTYPE_INT64, element, 16, from);
            /* A negative integer fits an unsigned type if its absolute value does: ATen lets it wrap. */
            if (is_signed) {
                fits = bits == 64 ||
                       (integer >= -(INT64_C(1) << (bits - 1)) && integer < INT64_C(1) << (bits - 1));
            } else {
                fits = bits == 64 || (integer > -(INT64_C(1) << bits) && integer < INT64_C(1) << bits);
            }
        } else if (from == DTYPE_UINT64) {
            uint64_t natural;
            memcpy(&natural, element, sizeof natural);
            fits = (!is_signed && bits == 64) || natural < UINT64_C(1) << (is_signed ? bits - 1 : bits);
        } else {
            /* Between the least and the greatest value, as a double: 2^63 is what INT64_MAX rounds to. */
            double high = ldexp(1.0, is_signed ? bits - 1 : bits);
            fits = value >= (is_signed ? -high : 0.0) && value <= (bits == 64 ? high : high - 1);
        }
    }
    if (!fits) {
        return FAIL(AOTI_INVALID_ARGUMENT, "the value %g of a %s does not fit a %s", value, dtype_text(from),
                    dtype_text(dtype));
    }
    return AOTI_OK;
}

static AOTITorchError item(AtenTensorHandle tensor, int32_t dtype, void *out) {
    if (!shim_is_tensor(tensor) || tensor->storage == NULL) {
        return FAIL(AOTI_INVALID_ARGUMENT, "'tensor' is %s",
                    shim_is_tensor(tensor) ? "undefined" : shim_not_a_tensor(tensor));
    }
    if (out == NULL) {
        return FAIL(AOTI_INVALID_ARGUMENT, "'ret_value' is a null pointer");
    }
    if (tensor->numel != 1) {
        return FAIL(AOTI_INVALID_ARGUMENT, "a tensor of %lld elements is not a scalar",
                    (long long)tensor->numel);
    }
    if (!convert_supported(dtype, tensor->dtype)) {
        return FAIL(AOTI_NOT_SUPPORTED, "no conversion from %s to %s", dtype_text(tensor->dtype),
                    dtype_text(dtype));
    }
    _Alignas(16) char element[16] = {0};
    size_t itemsize = dtype_itemsize(tensor->dtype);
    if (tensor_on_cpu(tensor)) {
        memcpy(element, tensor_data(tensor), itemsize);
    } else {
        TRY(device_copy(tensor->storage->device, element, tensor_data(tensor), itemsize,
                        AOTI_COPY_DEVICE_TO_HOST));
    }
    if (dtype != tensor->dtype) {
        TRY(item_fits(dtype, tensor->dtype, element));
    }
    convert_run(1, out, 16, dtype, element, 16, tensor->dtype);
    return AOTI_OK;
}

#define ITEM(name, type, dtype)                                                       \
    AOTITorchError aoti_torch_item_##name(AtenTensorHandle tensor, type *ret_value) { \
        TRY(item(tensor, dtype, ret_value));                                          \
        return AOTI_OK;                                                               \
    }

ITEM(bool, bool, DTYPE_BOOL)
ITEM(uint8, uint8_t, DTYPE_UINT8)
ITEM(uint16, uint16_t, DTYPE_UINT16)
ITEM(uint32, uint32_t, DTYPE_UINT32)
ITEM(uint64, uint64_t, DTYPE_UINT64)
ITEM(int8, int8_t, DTYPE_INT8)
ITEM(int16, int16_t, DTYPE_INT16)
ITEM(int32, int32_t, DTYPE_INT32)
ITEM(int64, int64_t, DTYPE_INT64)
ITEM(float16, uint16_t, DTYPE_FLOAT16)
ITEM(bfloat16, uint16_t, DTYPE_BFLOAT16)
ITEM(float32, float, DTYPE_FLOAT32)
ITEM(float64, double, DTYPE_FLOAT64)
ITEM(complex64, struct aoti_complex64, DTYPE_COMPLEX64)
