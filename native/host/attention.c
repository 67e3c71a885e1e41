/* Scaled dot product attention: softmax(scale * q @ k^T + mask) @ v, some rows at a time. */
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "gemm.h"

enum { ROWS = 64 };

#define DEFINE_SOFTMAX(type, EXP, LOG)                                                          \
    /* In place on one row; returns the logarithm of the sum of exponentials. */                \
    static type softmax_##type(type *row, int64_t count, const type *mask, int64_t allowed) {   \
        type greatest = -INFINITY, sum = 0;                                                     \
        for (int64_t j = 0; j < count; j++) {                                                   \
            row[j] = j >= allowed ? -(type)INFINITY : mask != NULL ? row[j] + mask[j] : row[j]; \
            greatest = row[j] > greatest || isnan(row[j]) ? row[j] : greatest;                  \
        }                                                                                       \
        if (greatest == -(type)INFINITY) { /* nothing to attend to */                           \
            for (int64_t j = 0; j < count; j++) {                                               \
                row[j] = 0;                                                                     \
            }                                                                                   \
            return -(type)INFINITY;                                                             \
        }                                                                                       \
        for (int64_t j = 0; j < count; j++) {                                                   \
            row[j] = EXP(row[j] - greatest);                                                    \
            sum += row[j];                                                                      \
        }                                                                                       \
        for (int64_t j = 0; j < count; j++) {                                                   \
            row[j] /= sum;                                                                      \
        }                                                                                       \
        return greatest + LOG(sum);                                                             \
    }

DEFINE_SOFTMAX(float, expf, logf)
DEFINE_SOFTMAX(double, exp, log)

/* All contiguous, of the accumulator type: q (heads, queries, depth), k (heads / group, keys, depth),
 * v (heads / group, keys, values), out (heads, queries, values), log_sum (heads, queries), mask (heads, queries, keys) or NULL. */
struct problem {
    int32_t type;
    int64_t heads, group, queries, keys, depth, values; /* `group` heads of the query share a key and value */
    char *q, *k, *v, *mask, *out, *log_sum;
    double scale;
    bool causal;
};

static AOTITorchError attend(const struct problem *p) {
    int64_t item = (int64_t)dtype_itemsize(p->type);
    int64_t bytes;
    char *scores = NULL;
    if (__builtin_mul_overflow(p->keys, ROWS * item, &bytes) ||
        (scores = malloc((size_t)bytes + 1)) == NULL) {
        return FAIL(AOTI_MEMORY_ALLOCATION_FAILED, "no memory for %d rows of %lld scores", ROWS,
                    (long long)p->keys);
    }
    AOTITorchError code = AOTI_OK;
    for (int64_t h = 0; h < p->heads; h++) {
        for (int64_t first = 0; first < p->queries; first += ROWS) {
            int64_t rows = p->queries - first < ROWS ? p->queries - first : ROWS, at = h * p->queries + first;
            TRY_OR_DONE(gemm(p->type, rows, p->keys, p->depth, p->scale,
                             (struct matrix){p->q + at * p->depth * item, p->depth, 1},
                             (struct matrix){p->k + h / p->group * p->keys * p->depth * item, 1, p->depth}, 0,
                             (struct matrix){scores, p->keys, 1}));
            for (int64_t i = 0; i < rows; i++) {
                int64_t allowed = p->causal && first + i + 1 < p->keys ? first + i + 1 : p->keys;
                char *mask = p->mask != NULL ? p->mask + (at + i) * p->keys * item : NULL;
                if (p->type == DTYPE_FLOAT32) {
                    float *row = (float *)(void *)scores + i * p->keys;
                    ((float *)(void *)p->log_sum)[at + i] =
                        softmax_float(row, p->keys, (float *)(void *)mask, allowed);
                } else {
                    double *row = (double *)(void *)scores + i * p->keys;
                    ((double *)(void *)p->log_sum)[at + i] =
                        softmax_double(row, p->keys, (double *)(void *)mask, allowed);
                }
            }
            TRY_OR_DONE(gemm(p->type, rows, p->values, p->keys, 1, (struct matrix){scores, p->keys, 1},
                             (struct matrix){p->v + h / p->group * p->keys * p->values * item, p->values, 1},
                             0, (struct matrix){p->out + at * p->values * item, p->values, 1}));
        }
    }
done:
    free(scores);
    return code;
}

/* The mask broadcast to (batch, heads, queries, keys), in the accumulator's type; a boolean one: 0, -inf. */
static AOTITorchError read_mask(AtenTensorHandle mask, const int64_t *sizes, int32_t type, char **buffer) {
    AtenTensorHandle full;
    TRY(tensor_empty(4, sizes, NULL, type, (struct device){DEVICE_CPU, -1}, &full));
    AOTITorchError code;
    void *copy;
    TRY_OR_DONE(tensor_copy(full, mask));
    TRY_OR_DONE(tensor_to_buffer(full, type, &copy));
    *buffer = copy;
    for (int64_t i = 0; mask->dtype == DTYPE_BOOL && i < full->numel; i++) {
        if (type == DTYPE_FLOAT32) {
            ((float *)copy)[i] = ((float *)copy)[i] != 0 ? 0 : -INFINITY;
        } else {
            ((double *)copy)[i] = ((double *)copy)[i] != 0 ? 0 : -(double)INFINITY;
        }
    }
done:
    tensor_delete(full);
    return code;
}

AOTITorchError aoti_torch_cpu__scaled_dot_product_flash_attention_for_cpu(
    AtenTensorHandle query, AtenTensorHandle key, AtenTensorHandle value, double dropout_p, int32_t is_causal,
    AtenTensorHandle *attn_mask, double *scale, AtenTensorHandle *ret0, AtenTensorHandle *ret1) {
    const struct device cpu = {DEVICE_CPU, -1};
    REQUIRE_DEFINED(query);
    REQUIRE_DEFINED(key);
    REQUIRE_DEFINED(value);
    REQUIRE_OUT(ret0);
    REQUIRE_OUT(ret1);
    REQUIRE(tensor_on_cpu(query) && tensor_on_cpu(key) && tensor_on_cpu(value), AOTI_INVALID_ARGUMENT,
            "an operand is not on the CPU");
    REQUIRE(dropout_p == 0, AOTI_NOT_SUPPORTED, "dropout %g in attention", dropout_p);
    int32_t dtype = query->dtype, type = accumulator_of(dtype);
    REQUIRE(type == DTYPE_FLOAT32 || type == DTYPE_FLOAT64, AOTI_NOT_SUPPORTED, "no attention of %s",
            dtype_text(dtype));
    REQUIRE(key->dtype == dtype && value->dtype == dtype, AOTI_INVALID_ARGUMENT,
            "query, key and value differ in type");
    REQUIRE(query->ndim == 4 && key->ndim == 4 && value->ndim == 4, AOTI_INVALID_ARGUMENT,
            "query, key and value must have 4 dimensions");
    const int64_t *q = query->sizes, *k = key->sizes, *v = value->sizes;
    REQUIRE(k[0] == q[0] && v[0] == q[0] && k[1] == v[1] && k[2] == v[2] && k[3] == q[3],
            AOTI_INVALID_ARGUMENT, "the sizes of query, key and value don't fit");
    REQUIRE(k[1] != 0 ? q[1] % k[1] == 0 : q[1] == 0, AOTI_INVALID_ARGUMENT,
            "%lld heads of the query can't share %lld of the key", (long long)q[1], (long long)k[1]);
    AtenTensorHandle mask = attn_mask != NULL ? *attn_mask : NULL;
    if (mask != NULL) {
        REQUIRE_DEFINED(mask);
        REQUIRE(tensor_on_cpu(mask), AOTI_INVALID_ARGUMENT, "the mask is not on the CPU");
    }
    /* Both results lie as (batch, queries, heads, ...) and are seen transposed, as ATen's do. */
    int64_t sizes[4] = {q[0], q[1], q[2], v[3]};
    int64_t strides[4] = {q[2] * q[1] * v[3], v[3], q[1] * v[3], 1}, sum_strides[3] = {q[2] * q[1], 1, q[1]};
    AtenTensorHandle out = NULL, log_sum = NULL, results = NULL, sums = NULL;
    struct problem p = {
        .type = type,
        .heads = q[0] * q[1],
        .group = k[1] != 0 ? q[1] / k[1] : 1,
        .queries = q[2],
        .keys = k[2],
        .depth = q[3],
        .values = v[3],
        .scale = scale != NULL ? *scale : 1 / sqrt((double)q[3]),
        .causal = is_causal != 0,
    };
    void *buffers[3] = {NULL, NULL, NULL};
    AOTITorchError code;
    TRY_OR_DONE(tensor_to_buffer(query, type, &buffers[0]));
    TRY_OR_DONE(tensor_to_buffer(key, type, &buffers[1]));
    TRY_OR_DONE(tensor_to_buffer(value, type, &buffers[2]));
    if (mask != NULL) {
        TRY_OR_DONE(read_mask(mask, (int64_t[]){q[0], q[1], q[2], k[2]}, type, &p.mask));
    }
    TRY_OR_DONE(tensor_empty(4, sizes, strides, dtype, cpu, &out));
    TRY_OR_DONE(tensor_empty(3, sizes, sum_strides, type, cpu, &log_sum));
    TRY_OR_DONE(tensor_empty(4, sizes, NULL, type, cpu, &results));
    TRY_OR_DONE(tensor_empty(3, sizes, NULL, type, cpu, &sums));
    if (p.heads * p.queries != 0) {
        p.q = buffers[0];
        p.k = buffers[1];
        p.v = buffers[2];
        p.out = results->storage->data;
        p.log_sum = sums->storage->data;
        TRY_OR_DONE(attend(&p));
        TRY_OR_DONE(tensor_copy(out, results));
        TRY_OR_DONE(tensor_copy(log_sum, sums));
    }
    *ret0 = out;
    *ret1 = log_sum;
    out = log_sum = NULL; /* the caller's now */
done:
    for (int i = 0; i < 3; i++) {
        free(buffers[i]);
    }
    free(p.mask);
    tensor_drop(results);
    tensor_drop(sums);
    tensor_drop(out);
    tensor_drop(log_sum);
    return code;
}
