/* The arithmetic of a convolution, on contiguous memory. */
#ifndef AOTI_UNFOLD_H
#define AOTI_UNFOLD_H

#include "internal.h"

enum { SPACE = 3 };

/* Everything as three spatial dimensions; the missing ones have size 1. */
struct shape {
    int64_t samples, in_channels, out_channels, groups;
    int64_t in[SPACE], out[SPACE], kernel[SPACE], stride[SPACE], padding[SPACE], dilation[SPACE];
    bool transposed;
};

static inline int64_t volume(const int64_t *sizes) { return sizes[0] * sizes[1] * sizes[2]; }

/* Adds the convolution to `out`, which holds the bias already: in (samples, in_channels, space), weight
 * (out_channels, in_channels / groups, kernel), or transposed (in_channels, out_channels / groups, kernel),
 * out (samples, out_channels, space); all contiguous, of `type`: float32 or float64. */
AOTITorchError convolve(int32_t type, const struct shape *s, char *in, char *weight, char *out);

#endif
