/* Matrix products: through a BLAS named at run time, or a blocked loop. */
#include "gemm.h"

#include <stdlib.h>
#include <string.h>

enum { CBLAS_ROW_MAJOR = 101, CBLAS_NO_TRANS = 111, CBLAS_TRANS = 112 };

typedef void (*sgemm32)(int, int, int, int32_t, int32_t, int32_t, float, const float *, int32_t,
                        const float *, int32_t, float, float *, int32_t);
typedef void (*dgemm32)(int, int, int, int32_t, int32_t, int32_t, double, const double *, int32_t,
                        const double *, int32_t, double, double *, int32_t);
typedef void (*sgemm64)(int, int, int, int64_t, int64_t, int64_t, float, const float *, int64_t,
                        const float *, int64_t, float, float *, int64_t);
typedef void (*dgemm64)(int, int, int, int64_t, int64_t, int64_t, double, const double *, int64_t,
                        const double *, int64_t, double, double *, int64_t);

static _Atomic(void *) blas_sgemm, blas_dgemm;
static _Atomic int32_t blas_int_bits = 32;

int32_t aoti_shim_set_blas(void *cblas_sgemm, void *cblas_dgemm, int32_t int_bits) {
    REQUIRE(int_bits == 32 || int_bits == 64, AOTI_INVALID_ARGUMENT, "BLAS integers of %d bits",
            (int)int_bits);
    REQUIRE((cblas_sgemm == NULL) == (cblas_dgemm == NULL), AOTI_INVALID_ARGUMENT,
            "only one of sgemm and dgemm");
    atomic_store(&blas_int_bits, int_bits);
    atomic_store(&blas_sgemm, cblas_sgemm);
    atomic_store(&blas_dgemm, cblas_dgemm);
    return AOTI_OK;
}

/* Whether BLAS can read the matrix as it lies: one stride 1, the other at least the row's length. */
static bool blas_layout(struct matrix matrix, int64_t rows, int64_t columns, int *transposed,
                        int64_t *leading) {
    int64_t row = rows == 1 ? columns : matrix.row, column = columns == 1 ? rows : matrix.column;
    if (matrix.column == 1 || columns == 1) {
        if (row >= columns && row >= 1) {
            *transposed = CBLAS_NO_TRANS;
            *leading = row;
            return true;
        }
    }
    if (matrix.row == 1 || rows == 1) {
        if (column >= rows && column >= 1) {
            *transposed = CBLAS_TRANS;
            *leading = column;
            return true;
        }
    }
    return false;
}

static void call_blas(int32_t dtype, int ta, int tb, int64_t m, int64_t n, int64_t k, double alpha,
                      const void *a, int64_t lda, const void *b, int64_t ldb, double beta, void *c,
                      int64_t ldc) {
    void *function = atomic_load(dtype == DTYPE_FLOAT32 ? &blas_sgemm : &blas_dgemm);
    bool wide = atomic_load(&blas_int_bits) == 64;
    if (dtype == DTYPE_FLOAT32 && wide) {
        ((sgemm64)function)(CBLAS_ROW_MAJOR, ta, tb, m, n, k, (float)alpha, a, lda, b, ldb, (float)beta, c,
                            ldc);
    } else if (dtype == DTYPE_FLOAT32) {
        ((sgemm32)function)(CBLAS_ROW_MAJOR, ta, tb, (int32_t)m, (int32_t)n, (int32_t)k, (float)alpha, a,
                            (int32_t)lda, b, (int32_t)ldb, (float)beta, c, (int32_t)ldc);
    } else if (wide) {
        ((dgemm64)function)(CBLAS_ROW_MAJOR, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
    } else {
        ((dgemm32)function)(CBLAS_ROW_MAJOR, ta, tb, (int32_t)m, (int32_t)n, (int32_t)k, alpha, a,
                            (int32_t)lda, b, (int32_t)ldb, beta, c, (int32_t)ldc);
    }
}

/* --- the built-in loop --------------------------------------------------------------------------------- */

/* Blocks of b are packed into rows of COLUMNS; four rows of c are updated at a time, so that each packed
 * row is read once for four. The compiler vectorises the loop over columns for the ISA of each clone. */
enum { BLOCK_K = 256, COLUMNS = 64, ROWS = 4 };

#define DEFINE_LOOP(name, type, wide, ISA)                                                                   \
    ISA static void name(int64_t m, int64_t n, int64_t k, type alpha, const type *a, int64_t ar, int64_t ac, \
                         const type *b, int64_t br, int64_t bc, type *c, int64_t cr, int64_t cc,             \
                         type *restrict packed) {                                                            \
        for (int64_t p0 = 0; p0 < k; p0 += BLOCK_K) {                                                        \
            int64_t depth = k - p0 < BLOCK_K ? k - p0 : BLOCK_K;                                             \
            for (int64_t j0 = 0; j0 < n; j0 += COLUMNS) {                                                    \
                int64_t width = n - j0 < COLUMNS ? n - j0 : COLUMNS;                                         \
                for (int64_t p = 0; p < depth; p++) {                                                        \
                    for (int64_t j = 0; j < COLUMNS; j++) {                                                  \
                        packed[p * COLUMNS + j] = j < width ? b[(p0 + p) * br + (j0 + j) * bc] : 0;          \
                    }                                                                                        \
                }                                                                                            \
                for (int64_t i0 = 0; i0 < m; i0 += ROWS) {                                                   \
                    int64_t height = m - i0 < ROWS ? m - i0 : ROWS;                                          \
                    type sums[ROWS][COLUMNS] = {{0}};                                                        \
                    for (int64_t p = 0; p < depth; p++) {                                                    \
                        const type *row = packed + p * COLUMNS;                                              \
                        for (int64_t i = 0; i < ROWS; i++) {                                                 \
                            type left = i < height ? a[(i0 + i) * ar + (p0 + p) * ac] : 0;                   \
                            for (int64_t j = 0; j < COLUMNS; j++) {                                          \
                                sums[i][j] = (type)((wide)sums[i][j] + (wide)left * (wide)row[j]);           \
                            }                                                                                \
                        }                                                                                    \
                    }                                                                                        \
                    for (int64_t i = 0; i < height; i++) {                                                   \
                        for (int64_t j = 0; j < width; j++) {                                                \
                            type *to = &c[(i0 + i) * cr + (j0 + j) * cc];                                    \
                            *to = (type)((wide) * to + (wide)alpha * (wide)sums[i][j]);                      \
                        }                                                                                    \
                    }                                                                                        \
                }                                                                                            \
            }                                                                                                \
        }                                                                                                    \
    }

DEFINE_LOOP(loop_float, float, float, )
DEFINE_LOOP(loop_double, double, double, )
DEFINE_LOOP(loop_int64, int64_t, uint64_t, ) /* unsigned: overflow wraps */
#if defined(__x86_64__)
DEFINE_LOOP(loop_float_avx2, float, float, __attribute__((target("avx2,fma"))))
DEFINE_LOOP(loop_double_avx2, double, double, __attribute__((target("avx2,fma"))))
DEFINE_LOOP(loop_float_avx512, float, float, __attribute__((target("avx512f,prefer-vector-width=512"))))
DEFINE_LOOP(loop_double_avx512, double, double, __attribute__((target("avx512f,prefer-vector-width=512"))))
#define PICK(name)                                                                     \
    (__builtin_cpu_supports("avx512f")                                 ? name##_avx512 \
     : __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? name##_avx2   \
                                                                       : name)
#else
#define PICK(name) name
#endif

#define SCALE(type, wide)                                                       \
    for (int64_t i = 0; i < m; i++) {                                           \
        for (int64_t j = 0; j < n; j++) {                                       \
            type *to = &((type *)c.data)[i * c.row + j * c.column];             \
            *to = beta == 0 ? (type)0 : (type)((wide) * to * (wide)(type)beta); \
        }                                                                       \
    }

static AOTITorchError loop(int32_t dtype, int64_t m, int64_t n, int64_t k, double alpha, struct matrix a,
                           struct matrix b, double beta, struct matrix c) {
    void *packed = malloc((size_t)BLOCK_K * COLUMNS * 8);
    if (packed == NULL) {
        return FAIL(AOTI_MEMORY_ALLOCATION_FAILED, "no memory for a matrix product");
    }
    if (dtype == DTYPE_FLOAT32) {
        if (beta != 1) {
            SCALE(float, float)
        }
        PICK(loop_float)(m, n, k, (float)alpha, a.data, a.row, a.column, b.data, b.row, b.column, c.data,
                         c.row, c.column, packed);
    } else if (dtype == DTYPE_FLOAT64) {
        if (beta != 1) {
            SCALE(double, double)
        }
        PICK(loop_double)(m, n, k, alpha, a.data, a.row, a.column, b.data, b.row, b.column, c.data, c.row,
                          c.column, packed);
    } else {
        if (beta != 1) {
            SCALE(int64_t, uint64_t)
        }
        loop_int64(m, n, k, (int64_t)alpha, a.data, a.row, a.column, b.data, b.row, b.column, c.data, c.row,
                   c.column, packed);
    }
    free(packed);
    return AOTI_OK;
}

AOTITorchError gemm(int32_t dtype, int64_t m, int64_t n, int64_t k, double alpha, struct matrix a,
                    struct matrix b, double beta, struct matrix c) {
    if (m == 0 || n == 0) {
        return AOTI_OK;
    }
    bool have_blas = atomic_load(dtype == DTYPE_FLOAT32 ? &blas_sgemm : &blas_dgemm) != NULL;
    if (have_blas && k != 0) {
        int ta, tb, tc;
        int64_t lda, ldb, ldc;
        if (blas_layout(a, m, k, &ta, &lda) && blas_layout(b, k, n, &tb, &ldb) &&
            blas_layout(c, m, n, &tc, &ldc)) {
            int64_t largest = m > n ? m : n;
            largest = largest > k ? largest : k;
            largest = largest > lda ? largest : lda;
            largest = largest > ldb ? largest : ldb;
            largest = largest > ldc ? largest : ldc;
            if (largest <= INT32_MAX || atomic_load(&blas_int_bits) == 64) {
                if (tc == CBLAS_NO_TRANS) {
                    call_blas(dtype, ta, tb, m, n, k, alpha, a.data, lda, b.data, ldb, beta, c.data, ldc);
                } else { /* c lies by columns: compute its transpose */
                    call_blas(dtype, tb == CBLAS_TRANS ? CBLAS_NO_TRANS : CBLAS_TRANS,
                              ta == CBLAS_TRANS ? CBLAS_NO_TRANS : CBLAS_TRANS, n, m, k, alpha, b.data, ldb,
                              a.data, lda, beta, c.data, ldc);
                }
                return AOTI_OK;
            }
        }
    }
    return loop(dtype, m, n, k, alpha, a, b, beta, c);
}

int32_t accumulator_of(int32_t dtype) {
    switch (dtype) {
        case DTYPE_FLOAT32:
        case DTYPE_FLOAT16:
        case DTYPE_BFLOAT16: return DTYPE_FLOAT32;
        case DTYPE_FLOAT64: return DTYPE_FLOAT64;
        default: return dtype_is_integral(dtype) && dtype != DTYPE_BOOL ? DTYPE_INT64 : -1;
    }
}

AOTITorchError product(int32_t accumulator, int64_t m, int64_t n, int64_t k, double alpha, struct matrix a,
                       struct matrix b, double beta, struct matrix c) {
    if (accumulator != DTYPE_INT64) {
        return gemm(accumulator, m, n, k, alpha, a, b, beta, c);
    }
    return m == 0 || n == 0 ? AOTI_OK : loop(DTYPE_INT64, m, n, k, alpha, a, b, beta, c);
}
