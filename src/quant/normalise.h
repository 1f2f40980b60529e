// SPDX-License-Identifier: MIT
// normalise.h: prepares a block for a search. A frame is a scaled copy of the elements and weights of a block: elements are
// multiplied by a power of two so that the largest magnitude is in [1, 2), and weights so that their mean is 1. Squares in the
// frame neither overflow nor underflow, for any row. In the frame, |x| < 2, w > 0, and all values are finite. A search finds a
// scale d in the frame. The block stores it multiplied by `outer` and rounded to f16; frame_round_half returns this f16 and the
// value that it has in the frame.
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
    double outer; // factor from values in the frame to values of the row
    float amax;   // largest |x|: in [1, 2), or 0 for a block of zeros
    bool uneven;  // weights differ
    bool hard;    // a longer search is needed: few elements have most of the weight or of the squares, or most have one sign
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

// Returns whether the block is hard, and sets f->uneven. The test uses the ratio sum(v)^2 / (n * sum(v^2)), which is 1 if all
// values v are equal and small if few values are large. For v = x * x of a normally distributed row the ratio is a third, and a
// block below 0.2 is hard. For the weights, a block below 0.25 is hard. For v = x, the ratio is large if most elements have one
// sign: above 0.3 the block is hard, because half of the grid would be unused.
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

// Returns false if an element is not finite. w: NULL or n weights; 1e-12 replaces a weight that is not a positive finite number.
// n: a multiple of 4.
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

// Returns the weights of block i. w: weights of all blocks, or NULL.
static inline const float *block_weights(const float *w, int64_t i) {
    return w != NULL ? w + i * QK_K : NULL;
}

// Returns the finite f16 nearest to *v * outer. Replaces *v by the value that this f16 has in the frame.
static inline uint16_t frame_round_half(const struct frame *f, float *v) {
    const double out = *v * f->outer;
    const float kept = (float) min_f64(BERTH_HALF_MAX, max_f64(-BERTH_HALF_MAX, out));
    const uint16_t h = berth_float_to_half(kept);
    const double back = berth_half_to_float(h) / f->outer;
    *v = (float) min_f64(1e30, max_f64(-1e30, back)); // beyond 1e30, all elements of the row are negligible
    return h;
}

// Returns the factor by which a search multiplies the scales that it found, so that dot products keep their size. A least-squares
// fit makes the dequantised values y a little too small: the dot product of x and y is smaller than that of x with itself. The
// factor xx / xy makes the two equal, but it increases the squared error; xx and xy are the sums of w x x and w x y. The levels
// are not rounded anew with the larger scale, because that would make them smaller and undo the correction. share: the part of
// the correction that is applied; below 1 for formats whose error would grow too much. With uneven weights, half of the share is
// applied. The growth is limited to 20%.
static inline float frame_growth(const struct frame *f, float xx, float xy, float share) {
    const float most = 0.2f;
    const float growth = xy > 0.5f * xx ? share * (xx / xy - 1.0f) : 0.0f;
    return 1.0f + (f->uneven ? 0.5f : 1.0f) * min_f32(growth, most);
}
