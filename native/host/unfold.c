/* Convolution as a matrix product: unfold the image into columns, multiply, for each sample and group. */
#include "unfold.h"

#include <stdlib.h>

#include "gemm.h"

/* Moves elements between an image (channels, space) and its unfolded columns (channels * kernel, positions);
 * `space` is the image's size, `positions` where the kernel is put. Folding back adds up. */
#define DEFINE_UNFOLD(type)                                                                                 \
    static void unfold_##type(const struct shape *s, int64_t channels, const int64_t *space,                \
                              const int64_t *positions, type *image, type *columns, bool back) {            \
        for (int64_t c = 0; c < channels; c++) {                                                            \
            for (int64_t kz = 0; kz < s->kernel[0]; kz++) {                                                 \
                for (int64_t ky = 0; ky < s->kernel[1]; ky++) {                                             \
                    for (int64_t kx = 0; kx < s->kernel[2]; kx++) {                                         \
                        for (int64_t oz = 0; oz < positions[0]; oz++) {                                     \
                            int64_t z = oz * s->stride[0] - s->padding[0] + kz * s->dilation[0];            \
                            for (int64_t oy = 0; oy < positions[1]; oy++) {                                 \
                                int64_t y = oy * s->stride[1] - s->padding[1] + ky * s->dilation[1];        \
                                bool inside = z >= 0 && z < space[0] && y >= 0 && y < space[1];             \
                                type *row =                                                                 \
                                    inside ? image + ((c * space[0] + z) * space[1] + y) * space[2] : NULL; \
                                int64_t x = kx * s->dilation[2] - s->padding[2];                            \
                                for (int64_t ox = 0; ox < positions[2]; ox++, x += s->stride[2]) {          \
                                    bool hit = inside && x >= 0 && x < space[2];                            \
                                    if (!back) {                                                            \
                                        *columns++ = hit ? row[x] : 0;                                      \
                                    } else {                                                                \
                                        if (hit) {                                                          \
                                            row[x] += *columns;                                             \
                                        }                                                                   \
                                        columns++;                                                          \
                                    }                                                                       \
                                }                                                                           \
                            }                                                                               \
                        }                                                                                   \
                    }                                                                                       \
                }                                                                                           \
            }                                                                                               \
        }                                                                                                   \
    }

DEFINE_UNFOLD(float)
DEFINE_UNFOLD(double)

static void unfold(int32_t type, const struct shape *s, int64_t channels, const int64_t *space,
                   const int64_t *positions, void *image, void *columns, bool back) {
    if (type == DTYPE_FLOAT32) {
        unfold_float(s, channels, space, positions, image, columns, back);
    } else {
        unfold_double(s, channels, space, positions, image, columns, back);
    }
}

static bool is_pointwise(const struct shape *s) {
    for (int d = 0; d < SPACE; d++) {
        if (s->kernel[d] != 1 || s->stride[d] != 1 || s->padding[d] != 0) {
            return false;
        }
    }
    return true;
}

AOTITorchError convolve(int32_t type, const struct shape *s, char *in, char *weight, char *out) {
    int64_t item = (int64_t)dtype_itemsize(type);
    int64_t in_group = s->in_channels / s->groups, out_group = s->out_channels / s->groups;
    int64_t taps = volume(s->kernel), in_space = volume(s->in), out_space = volume(s->out);
    int64_t rows = (s->transposed ? out_group : in_group) * taps,
            positions = s->transposed ? in_space : out_space;
    int64_t count, bytes;
    char *columns = NULL;
    if (!is_pointwise(s) || s->transposed) {
        if (__builtin_mul_overflow(rows, positions, &count) || __builtin_mul_overflow(count, item, &bytes) ||
            (columns = malloc((size_t)bytes)) == NULL) {
            return FAIL(AOTI_MEMORY_ALLOCATION_FAILED, "no memory to unfold an image");
        }
    }
    AOTITorchError code = AOTI_OK;
    for (int64_t n = 0; n < s->samples; n++) {
        for (int64_t g = 0; g < s->groups; g++) {
            char *image = in + (n * s->in_channels + g * in_group) * in_space * item;
            char *result = out + (n * s->out_channels + g * out_group) * out_space * item;
            if (s->transposed) { /* weight (in, out / groups, taps) */
                char *w = weight + g * in_group * rows * item;
                TRY_OR_DONE(gemm(type, rows, in_space, in_group, 1, (struct matrix){w, 1, rows},
                                 (struct matrix){image, in_space, 1}, 0,
                                 (struct matrix){columns, in_space, 1}));
                unfold(type, s, out_group, s->out, s->in, result, columns, true);
            } else { /* weight (out, in / groups, taps) */
                char *w = weight + g * out_group * rows * item;
                if (columns != NULL) {
                    unfold(type, s, in_group, s->in, s->out, image, columns, false);
                }
                TRY_OR_DONE(gemm(type, out_group, out_space, rows, 1, (struct matrix){w, rows, 1},
                                 (struct matrix){columns != NULL ? columns : image, out_space, 1}, 1,
                                 (struct matrix){result, out_space, 1}));
            }
        }
    }
done:
    free(columns);
    return code;
}
