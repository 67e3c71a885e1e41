/* Element conversion. Every type is read into one of four carriers (int64, uint64, double, complex double)
 * and written from it, which gives the result of C's direct cast for all pairs, without a routine a pair. */
#include <math.h>
#include <string.h>

#include "internal.h"

float half_to_float(uint16_t bits) {
    uint32_t sign = (uint32_t)(bits & 0x8000) << 16, exponent = (bits >> 10) & 0x1f, mantissa = bits & 0x3ff;
    float value;
    uint32_t wide;
    if (exponent == 0) {
        value = (float)mantissa * 0x1p-24f;
        memcpy(&wide, &value, sizeof wide);
        wide |= sign;
    } else if (exponent == 0x1f) {
        wide = sign | 0x7f800000 | mantissa << 13;
    } else {
        wide = sign | (exponent + 112) << 23 | mantissa << 13;
    }
    memcpy(&value, &wide, sizeof value);
    return value;
}

uint16_t half_from_float(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    bits &= 0x7fffffff;
    if (bits > 0x7f800000) {
        return sign | 0x7e00;
    }
    if (bits >= 0x477ff000) { /* rounds to 65536 or more */
        return sign | 0x7c00;
    }
    if (bits < 0x38800000) { /* subnormal: the addition rounds to even at the right place */
        float magnitude;
        memcpy(&magnitude, &bits, sizeof magnitude);
        magnitude += 0.5f;
        memcpy(&bits, &magnitude, sizeof bits);
        return sign | (uint16_t)(bits - 0x3f000000);
    }
    bits += 0xfff + (bits >> 13 & 1);
    return sign | (uint16_t)((bits - 0x38000000) >> 13);
}

static uint16_t bfloat16_from_float(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7fffffff) > 0x7f800000) {
        return 0x7fc0;
    }
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

enum carrier { CARRY_NONE, CARRY_INT64, CARRY_UINT64, CARRY_DOUBLE, CARRY_COMPLEX };
struct complex_double {
    double real, imag;
};

static enum carrier carrier_of(int32_t dtype) {
    switch (dtype) {
        case DTYPE_UINT64: return CARRY_UINT64;
        case DTYPE_FLOAT16:
        case DTYPE_BFLOAT16:
        case DTYPE_FLOAT32:
        case DTYPE_FLOAT64: return CARRY_DOUBLE;
        case DTYPE_COMPLEX32:
        case DTYPE_COMPLEX64:
        case DTYPE_COMPLEX128: return CARRY_COMPLEX;
        default: return dtype_is_integral(dtype) ? CARRY_INT64 : CARRY_NONE;
    }
}

bool convert_supported(int32_t to, int32_t from) {
    return dtype_itemsize(to) != 0 &&
           (to == from || (carrier_of(to) != CARRY_NONE && carrier_of(from) != CARRY_NONE));
}

/* Out of range, and for NaN, what x86's conversion gives; C leaves it undefined. */
static inline int64_t to_int64(double value) {
    return value >= -0x1p63 && value < 0x1p63 ? (int64_t)value : INT64_MIN;
}
static inline uint64_t to_uint64(double value) {
    return value >= 0x1p63 && value < 0x1p64 ? (uint64_t)value : (uint64_t)to_int64(value);
}

enum { CHUNK = 256 };
union carried {
    int64_t i[CHUNK];
    uint64_t u[CHUNK];
    double d[CHUNK];
    struct complex_double c[CHUNK];
};

#define READ(type, member, expression)                    \
    for (int64_t i = 0; i < count; i++, from += stride) { \
        type raw;                                         \
        memcpy(&raw, from, sizeof raw);                   \
        carried->member[i] = (expression);                \
    }                                                     \
    break

static void read_run(union carried *carried, int64_t count, const char *from, int64_t stride, int32_t dtype) {
    struct pair16 {
        uint16_t real, imag;
    };
    switch (dtype) {
        case DTYPE_BOOL: READ(uint8_t, i, raw != 0);
        case DTYPE_UINT8: READ(uint8_t, i, raw);
        case DTYPE_INT8: READ(int8_t, i, raw);
        case DTYPE_INT16: READ(int16_t, i, raw);
        case DTYPE_INT32: READ(int32_t, i, raw);
        case DTYPE_INT64: READ(int64_t, i, raw);
        case DTYPE_UINT16: READ(uint16_t, i, raw);
        case DTYPE_UINT32: READ(uint32_t, i, raw);
        case DTYPE_UINT64: READ(uint64_t, u, raw);
        case DTYPE_FLOAT16: READ(uint16_t, d, (double)half_to_float(raw));
        case DTYPE_BFLOAT16: READ(uint16_t, d, (double)bfloat16_to_float(raw));
        case DTYPE_FLOAT32: READ(float, d, (double)raw);
        case DTYPE_FLOAT64: READ(double, d, raw);
        case DTYPE_COMPLEX32:
            READ(struct pair16, c,
                 ((struct complex_double){half_to_float(raw.real), half_to_float(raw.imag)}));
        case DTYPE_COMPLEX64: READ(struct aoti_complex64, c, ((struct complex_double){raw.real, raw.imag}));
        case DTYPE_COMPLEX128: READ(struct complex_double, c, raw);
        default: break;
    }
}

/* `integer`, `number`: the element as the target's C type, from an integer carrier and from a double. */
#define WRITE(type, integer, number)                                          \
    do {                                                                      \
        switch (carrier) {                                                    \
            case CARRY_INT64: WRITE_EACH(type, carried->i[i], integer);       \
            case CARRY_UINT64: WRITE_EACH(type, carried->u[i], integer);      \
            case CARRY_DOUBLE: WRITE_EACH(type, carried->d[i], number);       \
            case CARRY_COMPLEX: WRITE_EACH(type, carried->c[i].real, number); \
            case CARRY_NONE: break;                                           \
        }                                                                     \
        return;                                                               \
    } while (0)
#define WRITE_EACH(type, element, expression)           \
    for (int64_t i = 0; i < count; i++, to += stride) { \
        __auto_type value = (element);                  \
        type raw = (type)(expression);                  \
        memcpy(to, &raw, sizeof raw);                   \
    }                                                   \
    break
#define WRITE_COMPLEX(type, make)                                              \
    do {                                                                       \
        for (int64_t i = 0; i < count; i++, to += stride) {                    \
            double real = carrier == CARRY_INT64    ? (double)carried->i[i]    \
                          : carrier == CARRY_UINT64 ? (double)carried->u[i]    \
                          : carrier == CARRY_DOUBLE ? carried->d[i]            \
                                                    : carried->c[i].real;      \
            double imag = carrier == CARRY_COMPLEX ? carried->c[i].imag : 0.0; \
            type raw = make;                                                   \
            memcpy(to, &raw, sizeof raw);                                      \
        }                                                                      \
        return;                                                                \
    } while (0)

static void write_run(const union carried *carried, enum carrier carrier, int64_t count, char *to,
                      int64_t stride, int32_t dtype) {
    struct pair16 {
        uint16_t real, imag;
    };
    switch (dtype) {
        case DTYPE_BOOL: {
            if (carrier == CARRY_COMPLEX) {
                for (int64_t i = 0; i < count; i++, to += stride) {
                    *to = carried->c[i].real != 0 || carried->c[i].imag != 0;
                }
                return;
            }
            WRITE(uint8_t, value != 0, value != 0);
        }
        case DTYPE_UINT8: WRITE(uint8_t, value, to_int64(value));
        case DTYPE_INT8: WRITE(int8_t, value, to_int64(value));
        case DTYPE_INT16: WRITE(int16_t, value, to_int64(value));
        case DTYPE_INT32: WRITE(int32_t, value, to_int64(value));
        case DTYPE_INT64: WRITE(int64_t, value, to_int64(value));
        case DTYPE_UINT16: WRITE(uint16_t, value, to_int64(value));
        case DTYPE_UINT32: WRITE(uint32_t, value, to_int64(value));
        case DTYPE_UINT64: WRITE(uint64_t, value, to_uint64(value));
        case DTYPE_FLOAT16: WRITE(uint16_t, half_from_float((float)value), half_from_float((float)value));
        case DTYPE_BFLOAT16:
            WRITE(uint16_t, bfloat16_from_float((float)value), bfloat16_from_float((float)value));
        case DTYPE_FLOAT32: WRITE(float, value, value);
        case DTYPE_FLOAT64: WRITE(double, value, value);
        case DTYPE_COMPLEX32:
            WRITE_COMPLEX(struct pair16,
                          ((struct pair16){half_from_float((float)real), half_from_float((float)imag)}));
        case DTYPE_COMPLEX64:
            WRITE_COMPLEX(struct aoti_complex64, ((struct aoti_complex64){(float)real, (float)imag}));
        case DTYPE_COMPLEX128: WRITE_COMPLEX(struct complex_double, ((struct complex_double){real, imag}));
        default: return;
    }
}

#define MOVE(type)                                                              \
    for (int64_t i = 0; i < count; i++, to += to_stride, from += from_stride) { \
        type raw;                                                               \
        memcpy(&raw, from, sizeof raw);                                         \
        memcpy(to, &raw, sizeof raw);                                           \
    }                                                                           \
    break

static void move_run(int64_t count, char *to, int64_t to_stride, const char *from, int64_t from_stride,
                     size_t itemsize) {
    if (to_stride == (int64_t)itemsize && from_stride == (int64_t)itemsize) {
        memmove(to, from, (size_t)count * itemsize);
        return;
    }
    switch (itemsize) {
        case 1: MOVE(uint8_t);
        case 2: MOVE(uint16_t);
        case 4: MOVE(uint32_t);
        case 8: MOVE(uint64_t);
        case 16: MOVE(struct complex_double);
        default: break;
    }
}

void convert_run(int64_t count, char *to, int64_t to_stride, int32_t to_dtype, const char *from,
                 int64_t from_stride, int32_t from_dtype) {
    if (to_dtype == from_dtype) {
        move_run(count, to, to_stride, from, from_stride, dtype_itemsize(to_dtype));
        return;
    }
    union carried carried;
    for (int64_t done = 0; done < count; done += CHUNK) {
        int64_t chunk = count - done < CHUNK ? count - done : CHUNK;
        read_run(&carried, chunk, from + done * from_stride, from_stride, from_dtype);
        write_run(&carried, carrier_of(from_dtype), chunk, to + done * to_stride, to_stride, to_dtype);
    }
}
