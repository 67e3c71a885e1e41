#ifndef AOTI_POINTWISE_H
#define AOTI_POINTWISE_H

#include "internal.h"

/* Applies the operation named by `attribute` in place to `count` contiguous values, float32 or float64. */
AOTITorchError pointwise(const char *attribute, const double **scalars, int64_t scalar_count,
                         const char **algorithm, int32_t type, void *values, int64_t count);

/* Combines contiguous values of these sizes with `other`, which may broadcast: values OP alpha * other. */
AOTITorchError combine(const char *attribute, double alpha, int32_t type, void *values, int64_t ndim,
                       const int64_t *sizes, AtenTensorHandle other);

#endif
