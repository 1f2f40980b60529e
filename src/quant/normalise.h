// SPDX-License-Identifier: MIT
// normalise.h: prepares a block for a search. A frame is a scaled copy of the elements and weights of a block. The elements are
// scaled by a power of two. In the frame, the largest |x| is in [1, 2), w > 0, and the mean of w is 1, so squares neither
// overflow nor underflow. A search finds the scale d of the frame. The block stores d * outer as f16.
#pragma once

#include "base/min.h"
#include "quant/blocks.h"
#include "quant/half.h"
#include "quant/vec.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

static inline float float_clamp(float v, float lo, float hi) {
    return min_f32(hi, max_f32(lo, v)); // NaN stays NaN
}

struct frame {
    _Alignas(16) float x[QK_K];
    _Alignas(16) float w[QK_K];
    double outer; // element of the row = x * outer
    float amax;   // largest |x|: in [1, 2), or 0 for a block of zeros
    bool uneven;  // weights differ
    bool hard;    // needs a longer search (frame_is_hard)
};

#define BERTH_HALF_NAN 0x7e00u
#define BERTH_HALF_MAX 65504.0f

// A superblock in runs: x = d * s[run] * q - dmin * m[run].
struct affine_super {
    uint16_t d, dmin;
    uint8_t s[16], m[16], q[QK_K];
};

static inline bool berth_is_finite(const float *x, int n) {
    bool finite = true;
    for (int i = 0; i < n; i++) {
        finite &= isfinite(x[i]) != 0;
    }
    return finite;
}

// Makes a block that dequantises to NaN: all zeros except for d.
static inline void berth_block_nan(void *block, size_t size, uint16_t *d) {
    memset(block, 0, size);
    *d = BERTH_HALF_NAN;
}

// Sets f->uneven. The ratio sum(v)^2 / (n * sum(v^2)) is 1 if all v are equal, and small if few v are large. A block is hard if:
//   - the ratio for v = x * x is below 0.2 (it is 1/3 for normally distributed rows), or
//   - the ratio for v = w is below 0.25, or
//   - the ratio for v = x is above 0.3: most elements have one sign, and half of the grid would be unused.
static inline bool frame_is_hard(struct frame *f, int n) {
    v4f sum = v4_all(0.0f), power = sum, power2 = sum, weight2 = sum;
    for (int i = 0; i < n; i += 4) {
        const v4f x = v4_load(f->x + i);
        const v4f w = v4_load(f->w + i);
        const v4f xx = x * x;
        sum += x;
        power += xx;
        power2 += xx * xx;
        weight2 += w * w;
    }
    const float count = (float) n;
    const float all = v4_sum(sum);
    const float p = v4_sum(power);
    f->uneven = v4_sum(weight2) > 1.001f * count; // the mean of the weights is 1
    return count < 0.25f * v4_sum(weight2) || p * p < 0.2f * count * v4_sum(power2) || all * all > 0.3f * count * p;
}

static inline void frame_weights(struct frame *f, const float *w, int n) {
    double total = 0.0;
    for (int i = 0; i < n; i++) {
        f->w[i] = 1.0f;
        total += w[i] > 0.0f && isfinite(w[i]) ? w[i] : 0.0f;
    }
    for (int i = 0; i < n && total > 0.0; i++) {
        const double wi = w[i] > 0.0f && isfinite(w[i]) ? w[i] / total * n : 0.0;
        f->w[i] = wi > 1e-12 ? (float) wi : 1e-12f;
    }
}

// If an element is not finite, returns false. w: NULL for equal weights, or n weights; a weight that is not a positive finite
// number becomes 1e-12. n: a multiple of 4.
static inline bool frame_init(struct frame *f, const float *x, const float *w, int n) {
    float lo, hi;
    if (!v4_range(x, n, &lo, &hi) || !isfinite(lo) || !isfinite(hi)) {
        return false;
    }
    const float amax = hi > -lo ? fabsf(hi) : fabsf(lo);
    int exponent = 0;
    (void) frexpf(amax, &exponent);
    exponent = amax > 0.0f ? exponent - 1 : 0;
    f->outer = ldexp(1.0, exponent);
    const double inner = ldexp(1.0, -exponent);
    const bool simple = exponent > -120 && exponent < 120; // `inner` is exact as a float
    for (int i = 0; i < n && simple; i += 4) {
        v4_store(f->x + i, v4_load(x + i) * v4_all((float) inner));
    }
    for (int i = 0; i < n && !simple; i++) {
        f->x[i] = (float) (x[i] * inner);
    }
    if (w == NULL) {
        for (int i = 0; i < n; i += 4) {
            v4_store(f->w + i, v4_all(1.0f));
        }
    } else {
        frame_weights(f, w, n);
    }
    f->amax = (float) (amax * inner);
    f->hard = frame_is_hard(f, n);
    return true;
}

// Returns the weights of block i; NULL if w is NULL.
static inline const float *block_weights(const float *w, int64_t i) {
    return w != NULL ? w + i * QK_K : NULL;
}

// Returns the finite f16 nearest to *v * outer. Sets *v to the value of this f16 in the frame.
static inline uint16_t frame_round_half(const struct frame *f, float *v) {
    const double out = *v * f->outer;
    const float kept = (float) min_f64(BERTH_HALF_MAX, max_f64(-BERTH_HALF_MAX, out));
    const uint16_t h = berth_float_to_half(kept);
    const double back = berth_half_to_float(h) / f->outer;
    *v = (float) min_f64(1e30, max_f64(-1e30, back)); // beyond 1e30, all elements are far smaller than any nonzero f16
    return h;
}

// Returns the factor by which to enlarge a scale. A least-squares fit makes the dequantised values y a little too small, and with
// them all dot products with the row. The factor xx / xy, with xx = sum(w x x) and xy = sum(w x y), corrects the dot products but
// increases the squared error. share: the part of the correction that is applied; below 1 for formats whose error would grow too
// much. If the weights are uneven, half of the share is applied. The growth is at most 20%. Callers must not round the levels
// again with the larger scale, because that would undo the correction.
static inline float frame_growth(const struct frame *f, float xx, float xy, float share) {
    const float most = 0.2f;
    const float growth = xy > 0.5f * xx ? share * (xx / xy - 1.0f) : 0.0f;
    return 1.0f + (f->uneven ? 0.5f : 1.0f) * min_f32(growth, most);
}
