/* Matrix products on raw memory, used by the operators. */
#ifndef AOTI_GEMM_H
#define AOTI_GEMM_H

#include "internal.h"

/* A matrix in memory: element (i, j) at data[i * row + j * column], strides in elements. */
struct matrix {
    void *data;
    int64_t row, column;
};

/* c = alpha * a @ b + beta * c, with a (m, k), b (k, n), c (m, n); `dtype` float32 or float64. With beta 0, c
 * is not read. */
AOTITorchError gemm(int32_t dtype, int64_t m, int64_t n, int64_t k, double alpha, struct matrix a,
                    struct matrix b, double beta, struct matrix c);

/* The type that products of `dtype` are computed in: itself, float32 for the 16-bit types, int64 for
 * integers (which wrap around, as ATen's do). -1: no products of this type. */
int32_t accumulator_of(int32_t dtype);
/* The same as gemm, for an accumulator type. */
AOTITorchError product(int32_t accumulator, int64_t m, int64_t n, int64_t k, double alpha, struct matrix a,
                       struct matrix b, double beta, struct matrix c);

#endif
