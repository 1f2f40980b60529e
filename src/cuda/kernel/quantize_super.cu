// SPDX-License-Identifier: MIT
// quantize_super.cu: SET_ROWS and copies into formats with blocks of more than 32 elements. A warp quantises a block. The bytes are
// those of the CPU backend (quantize_row_X_ref in quant/*.c), so sums have the order of the row, and this file is compiled without
// contraction of products and sums (cmake/cuda.cmake). A run is the elements that share a scale.

#include "cuda/kernel/quantize.cuh"
#include "cuda/kernel/rows.cuh"

enum { SUPER_WARPS = 4 };

// Memory of a warp.
struct super_work {
    float x[QK_K];               // elements
    float scale[16], offset[16]; // of each run
    int8_t s[16], m[16];         // integer scale and offset of each run
    uint8_t q[QK_K];             // levels
};

#define LEAST 1e-15f    // smaller magnitudes count as zero
#define HALF_NAN 0x7e00 // BERTH_HALF_NAN in quant/normalise.h

// Rounds to nearest even. If |v| >= 2^22, the result is wrong, but equals the reference's.
DEV int rint_wrapped(float v) {
    return (int) (__float_as_uint(v + 0x1.8p23f) & 0x7fffff) - 0x400000;
}
DEV int nearest_in(float v, int lo, int hi) {
    return max(min(rint_wrapped(v), hi), lo);
}
// Returns the element of the largest magnitude. If there are several, returns the first of them.
DEV float run_extreme(const float *x, int n) {
    float max = 0.0f;
    for (int i = 0; i < n; i++) {
        if (fabsf(x[i]) > fabsf(max)) {
            max = x[i];
        }
    }
    return max;
}
DEV float run_amax(const float *x, int n) {
    return fabsf(run_extreme(x, n));
}

// ---- q2_K q4_K q5_K: a scale and an offset per run ----

// A search for a scale and an offset of a run (struct line_search in quant/weighted.h).
struct line_search {
    int len, q_max;
    float first, step;
    int n_trials;
    bool absolute;
};

// Finds x = scale * q + offset with the least weighted error, as quant/weighted.c does. Writes the levels to q.
DEV float fit_line(const float *x, const line_search &how, uint8_t *q, float *offset) {
    float power = 0.0f;
    for (int i = 0; i < how.len && !how.absolute; i++) {
        power = mad(x[i], x[i], power);
    }
    const float base = how.absolute ? 0.0f : sqrtf(power / (float) how.len);
    float lo = x[0], top = x[0], sum_w = base + fabsf(x[0]), sum_x = sum_w * x[0];
    for (int i = 1; i < how.len; i++) {
        const float w = base + fabsf(x[i]);
        lo = fminf(x[i], lo);
        top = fmaxf(x[i], top);
        sum_w += w;
        sum_x = mad(w, x[i], sum_x);
    }
    float from = fminf(0.0f, lo);
    *offset = from;
    if (top <= from) {
        for (int i = 0; i < how.len; i++) {
            q[i] = 0;
        }
        return 0.0f;
    }
    const float inverse = (float) how.q_max / (top - from);
    float scale = 1.0f / inverse, best = 0.0f;
    for (int i = 0; i < how.len; i++) {
        q[i] = (uint8_t) nearest_in((x[i] - from) * inverse, 0, how.q_max);
        const float e = mad(scale, (float) q[i], from) - x[i], w = base + fabsf(x[i]);
        best = how.absolute ? mad(w, fabsf(e), best) : best + w * (e * e);
    }
    for (int t = 0; t < how.n_trials; t++) {
        const float by = (how.first + how.step * (float) t + (float) how.q_max) / (top - from);
        float sq = 0.0f, sqq = 0.0f, sqx = 0.0f;
        for (int i = 0; i < how.len; i++) {
            const float l = (float) nearest_in(by * (x[i] - from), 0, how.q_max), wq = (base + fabsf(x[i])) * l;
            sq += wq;
            sqq += wq * l;
            sqx += wq * x[i];
        }
        const float det = mad(sum_w, sqq, -(sq * sq)), level = mad(sqq, sum_x, -(sq * sqx)) / det;
        const bool is_above = level > 0.0f;
        const float slope = is_above ? sqx / sqq : mad(sum_w, sqx, -(sum_x * sq)) / det, low = is_above ? 0.0f : level;
        float error = 0.0f;
        for (int i = 0; i < how.len; i++) {
            const float l = (float) nearest_in(by * (x[i] - from), 0, how.q_max), e = mad(slope, l, low) - x[i];
            error = mad(base + fabsf(x[i]), how.absolute ? fabsf(e) : e * e, error);
        }
        if (det > 0.0f && error < best) {
            for (int i = 0; i < how.len; i++) {
                q[i] = (uint8_t) nearest_in((x[i] - from) * by, 0, how.q_max);
            }
            best = error;
            scale = slope;
            from = *offset = low;
        }
    }
    return scale;
}

// Computes s, m and q of a superblock. Returns d in the low half and dmin in the high half.
DEV uint32_t fit_affine(super_work *w, const line_search &how, int s_max, int lane) {
    const int n_runs = QK_K / how.len;
    float max_scale = 0.0f, max_offset = 0.0f;
    if (lane < n_runs) {
        float low;
        w->scale[lane] = fit_line(w->x + lane * how.len, how, w->q + lane * how.len, &low);
        w->offset[lane] = -low;
    }
    __syncwarp();
    for (int r = 0; r < n_runs; r++) {
        max_scale = fmaxf(w->scale[r], max_scale);
        max_offset = fmaxf(w->offset[r], max_offset);
    }
    const float by_s = max_scale > 0.0f ? (float) s_max / max_scale : 0.0f;
    const float by_m = max_offset > 0.0f ? (float) s_max / max_offset : 0.0f;
    const uint16_t d = float_to_half(max_scale / (float) s_max), dmin = float_to_half(max_offset / (float) s_max);
    if (lane < n_runs) {
        const int s = min(rint_wrapped(by_s * w->scale[lane]), s_max) & s_max;
        const int m = min(rint_wrapped(by_m * w->offset[lane]), s_max) & s_max;
        const float step = half_to_float(d) * (float) s, low = half_to_float(dmin) * (float) m;
        w->s[lane] = (int8_t) s;
        w->m[lane] = (int8_t) m;
        for (int i = lane * how.len; i < (lane + 1) * how.len && step != 0.0f; i++) {
            w->q[i] = (uint8_t) nearest_in((w->x[i] + low) / step, 0, how.q_max);
        }
    }
    __syncwarp();
    return d | (uint32_t) dmin << 16;
}

// Four 2-bit fields per byte; the elements of a byte are 32 apart.
DEV void pack_2_bits(const uint8_t *q, uint8_t *qs, int lane) {
    for (int j = lane; j < 64; j += 32) {
        const uint8_t *from = q + j / 32 * 128 + j % 32;
        qs[j] = (uint8_t) ((from[0] & 3) | (from[32] & 3) << 2 | (from[64] & 3) << 4 | (from[96] & 3) << 6);
    }
}
// Two nibbles per byte; the elements of a byte are `apart` apart.
DEV void pack_4_bits(const uint8_t *q, int apart, uint8_t *qs, int lane) {
    for (int j = lane; j < 128; j += 32) {
        const uint8_t *from = q + j / apart * 2 * apart + j % apart;
        qs[j] = (uint8_t) ((from[0] & 15) | (from[apart] & 15) << 4);
    }
}
DEV void pack_scales(const super_work *w, uint8_t *packed, int lane) {
    if (lane < 4) {
        packed[lane] = (uint8_t) (w->s[lane] | (w->s[lane + 4] >> 4) << 6);
        packed[lane + 4] = (uint8_t) (w->m[lane] | (w->m[lane + 4] >> 4) << 6);
        packed[lane + 8] = (uint8_t) ((w->s[lane + 4] & 15) | (w->m[lane + 4] & 15) << 4);
    }
}

DEV void quantize(super_work *w, block_q2_K *y, int lane) {
    const uint32_t dm = fit_affine(w, {16, 3, -0.5f, 0.1f, 16, true}, 15, lane);
    y->d = (uint16_t) dm, y->dmin = (uint16_t) (dm >> 16);
    if (lane < 16) {
        y->scales[lane] = (uint8_t) (w->s[lane] | w->m[lane] << 4);
    }
    pack_2_bits(w->q, y->qs, lane);
}
DEV void quantize(super_work *w, block_q4_K *y, int lane) {
    const uint32_t dm = fit_affine(w, {32, 15, -1.0f, 0.1f, 21, false}, 63, lane);
    y->d = (uint16_t) dm, y->dmin = (uint16_t) (dm >> 16);
    pack_scales(w, y->scales, lane);
    pack_4_bits(w->q, 32, y->qs, lane);
}
DEV void quantize(super_work *w, block_q5_K *y, int lane) {
    const uint32_t dm = fit_affine(w, {32, 31, -0.5f, 0.1f, 16, false}, 63, lane);
    y->d = (uint16_t) dm, y->dmin = (uint16_t) (dm >> 16);
    pack_scales(w, y->scales, lane);
    pack_4_bits(w->q, 32, y->qs, lane);
    unsigned high = 0;
    for (int r = 0; r < 8; r++) {
        high |= (unsigned) (w->q[32 * r + lane] >> 4) << r;
    }
    y->qh[lane] = (uint8_t) high;
}

// ---- q3_K q6_K: a scale per run of 16 ----

// Rounds the scales of 16 runs to s_min .. -s_min - 1 and computes the levels. Returns d.
DEV uint16_t fit_scales(super_work *w, int bias, int s_min, int lane) {
    const float inverse = (float) s_min / run_extreme(w->scale, 16);
    const uint16_t d = float_to_half(1.0f / inverse);
    if (lane < 16) {
        const int s = (int8_t) min(rint_wrapped(inverse * w->scale[lane]), -s_min - 1);
        const float step = half_to_float(d) * (float) s;
        w->s[lane] = (int8_t) s;
        for (int i = lane * 16; i < (lane + 1) * 16 && step != 0.0f; i++) {
            w->q[i] = (uint8_t) (nearest_in(w->x[i] / step, -bias, bias - 1) + bias);
        }
    }
    __syncwarp();
    return d;
}

// Finds the scale of a run, as q3_run in quant/plain.c.
DEV float fit_q3_run(const float *x, uint8_t *q) {
    const float max = run_extreme(x, 16), inverse = -4.0f / max;
    float a = 0.0f, b = 0.0f;
    if (fabsf(max) < LEAST) {
        for (int i = 0; i < 16; i++) {
            q[i] = 0;
        }
        return 0.0f;
    }
    for (int i = 0; i < 16; i++) {
        const int level = nearest_in(inverse * x[i], -4, 3);
        const float l = (float) level, w = x[i] * x[i];
        q[i] = (uint8_t) (level + 4);
        a = mad(w * x[i], l, a);
        b = mad(w * l, l, b);
    }
    bool is_changed = true;
    for (int round = 0; round < 5 && is_changed; round++) {
        is_changed = false;
        for (int i = 0; i < 16; i++) {
            const float l = (float) (q[i] - 4), w = x[i] * x[i], wx = w * x[i];
            float rest_a = mad(-wx, l, a);
            if (!(rest_a > 0.0f)) {
                continue;
            }
            float rest_b = mad(-(w * l), l, b);
            const int next = nearest_in(x[i] * rest_b / rest_a, -4, 3);
            rest_a = mad(wx, (float) next, rest_a);
            rest_b = mad(w * (float) next, (float) next, rest_b);
            if (next + 4 != q[i] && rest_b > 0.0f && rest_a * rest_a * b > a * a * rest_b) {
                q[i] = (uint8_t) (next + 4);
                a = rest_a, b = rest_b;
                is_changed = true;
            }
        }
    }
    return b > 0.0f ? a / b : 0.0f;
}

DEV void quantize(super_work *w, block_q3_K *y, int lane) {
    if (lane < 16) {
        w->scale[lane] = fit_q3_run(w->x + 16 * lane, w->q + 16 * lane);
        w->s[lane] = -32;
    }
    __syncwarp();
    const bool is_zero = run_extreme(w->scale, 16) == 0.0f;
    y->d = is_zero ? 0 : fit_scales(w, 4, -32, lane);
    if (lane < 8) {
        y->scales[lane] = (uint8_t) (((w->s[lane] + 32) & 15) | ((w->s[lane + 8] + 32) & 15) << 4);
    } else if (lane < 12) {
        unsigned packed = 0;
        for (int i = 0; i < 4; i++) {
            packed |= (unsigned) (w->s[lane - 8 + 4 * i] + 32) >> 4 << (2 * i);
        }
        y->scales[lane] = (uint8_t) packed;
    }
    pack_2_bits(w->q, y->qs, lane);
    unsigned high = 0;
    for (int r = 0; r < 8; r++) {
        high |= (unsigned) (w->q[32 * r + lane] >> 2) << r;
    }
    y->hmask[lane] = (uint8_t) high;
}

// Finds the scale of a run of 16 with levels -32 .. 31, as berth_weighted_scale in quant/weighted.c.
DEV float fit_q6_run(const float *x, uint8_t *q) {
    const float max = run_extreme(x, 16);
    float scale = 0.0f, best = 0.0f, chosen = 0.0f;
    if (fabsf(max) < LEAST) {
        for (int i = 0; i < 16; i++) {
            q[i] = 0;
        }
        return 0.0f;
    }
    for (int t = 0; t < 19; t++) {
        const int tenths = t == 0 ? 0 : t < 10 ? t - 10 : t - 9;
        const float inverse = -(32.0f + 0.1f * (float) tenths) / max;
        float a = 0.0f, b = 0.0f;
        for (int i = 0; i < 16; i++) {
            const float l = (float) nearest_in(x[i] * inverse, -32, 31), w = x[i] * x[i];
            a = t == 0 ? a + w * x[i] * l : mad(w * x[i], l, a);
            b = t == 0 ? b + w * l * l : mad(w * l, l, b);
        }
        if (t == 0 || (b > 0.0f && a * a > best * b)) {
            chosen = inverse;
            scale = b != 0.0f ? a / b : 0.0f;
            best = scale * a;
        }
    }
    for (int i = 0; i < 16; i++) {
        q[i] = (uint8_t) (nearest_in(x[i] * chosen, -32, 31) + 32);
    }
    return scale;
}

DEV void quantize(super_work *w, block_q6_K *y, int lane) {
    if (lane < 16) {
        w->scale[lane] = fit_q6_run(w->x + 16 * lane, w->q + 16 * lane);
        w->s[lane] = 0;
    }
    __syncwarp();
    const bool is_zero = fabsf(run_extreme(w->scale, 16)) < LEAST;
    for (int i = lane; i < QK_K && is_zero; i += 32) {
        w->q[i] = 0;
    }
    __syncwarp();
    y->d = is_zero ? 0 : fit_scales(w, 32, -128, lane);
    if (lane < 16) {
        y->scales[lane] = w->s[lane];
    }
    pack_4_bits(w->q, 64, y->ql, lane);
    for (int j = lane; j < 64; j += 32) {
        const uint8_t *from = w->q + j / 32 * 128 + j % 32;
        y->qh[j] = (uint8_t) (from[0] >> 4 | from[32] >> 4 << 2 | from[64] >> 4 << 4 | from[96] >> 4 << 6);
    }
}

// ---- iq4_xs: a scale per run of 32 ----

DEV void sum_iq4(const float *x, float inverse, float *a, float *b) {
    *a = *b = 0.0f;
    for (int i = 0; i < 32; i++) {
        const float v = (float) values_iq4[nearest_iq4(inverse * x[i])], wv = x[i] * x[i] * v;
        *a = mad(wv, x[i], *a);
        *b = mad(wv, v, *b);
    }
}
DEV float fit_iq4_run(const float *x) {
    const float max = run_extreme(x, 32), first = (float) values_iq4[0];
    float a, b;
    if (fabsf(max) < LEAST) {
        return 0.0f;
    }
    sum_iq4(x, 1.0f / (-max / first), &a, &b);
    float scale = a / b, best = scale * a;
    for (int t = -7; t <= 7; t++) {
        sum_iq4(x, ((float) t + first) / max, &a, &b);
        if (b > 0.0f && a * a > best * b) {
            scale = a / b;
            best = scale * a;
        }
    }
    return scale;
}
DEV void quantize(super_work *w, block_iq4_xs *y, int lane) {
    if (lane < 8) {
        w->scale[lane] = fit_iq4_run(w->x + 32 * lane);
    }
    __syncwarp();
    const float d = -run_extreme(w->scale, 8) / 32, inverse = d != 0.0f ? 1.0f / d : 0.0f;
    unsigned high = 0;
    for (int r = 0; r < 8; r++) {
        const int s = nearest_in(inverse * w->scale[r], -32, 31);
        const float step = d * (float) s, by = step != 0.0f ? 1.0f / step : 0.0f;
        w->s[r] = (int8_t) s;
        high |= (unsigned) (s + 32) >> 4 << (2 * r);
        w->q[32 * r + lane] = (uint8_t) nearest_iq4(by * w->x[32 * r + lane]);
    }
    __syncwarp();
    if (lane < 4) {
        y->scales_l[lane] = (uint8_t) (((w->s[2 * lane] + 32) & 15) | ((w->s[2 * lane + 1] + 32) & 15) << 4);
    }
    y->d = float_to_half(d);
    y->scales_h = (uint16_t) high;
    pack_4_bits(w->q, 16, y->qs, lane);
}

// ---- one scale per block ----

// Rounds to nearest, ties away from zero. A result beyond 32 bits becomes -1 if positive, otherwise 0, as in quant/low_bit.c.
DEV int round_low(float v) {
    const float r = roundf(v);
    if (!(fabsf(r) < 0x1p31f)) {
        return r > 0 ? -1 : 0;
    }
    return (int) r;
}
DEV void quantize(super_work *w, block_q1_0 *y, int lane) {
    float sum = 0.0f;
    for (int i = 0; i < QK_Q1_0; i++) {
        sum += fabsf(w->x[i]);
    }
    y->d = float_to_half(sum / (float) QK_Q1_0);
    if (lane < QK_Q1_0 / 8) {
        unsigned bits = 0;
        for (int i = 0; i < 8; i++) {
            bits |= (unsigned) (w->x[8 * lane + i] >= 0.0f) << i;
        }
        y->qs[lane] = (uint8_t) bits;
    }
}
DEV void quantize(super_work *w, block_q2_0 *y, int lane) {
    const float d = run_amax(w->x, QK_Q2_0), id = reciprocal(d);
    y->d = float_to_half(d);
    if (lane < QK_Q2_0 / 4) {
        unsigned bits = 0;
        for (int i = 0; i < 4; i++) {
            bits |= (unsigned) (max(min(__float2int_rz(roundf(w->x[4 * lane + i] * id)), 2), -1) + 1) << (2 * i);
        }
        y->qs[lane] = (uint8_t) bits;
    }
}
// Packs up to five digits of base 3 per byte. Digit r of byte j is element r * n_bytes + j.
DEV void pack_trits(const float *x, float id, int n_bytes, int n_runs, uint8_t *qs, int lane) {
    for (int j = lane; j < n_bytes; j += 32) {
        int v = 0;
        for (int r = 0; r < 5; r++) {
            v = 3 * v + (r < n_runs ? (round_low(x[r * n_bytes + j] * id) + 1) & 0xff : 0);
        }
        v = v & 0xff;
        qs[j] = (uint8_t) ((v * 256 + 242) / 243);
    }
}
DEV void quantize(super_work *w, block_tq1_0 *y, int lane) {
    const float d = run_amax(w->x, QK_K), id = reciprocal(d);
    pack_trits(w->x, id, 32, 5, y->qs, lane);
    pack_trits(w->x + 160, id, 16, 5, y->qs + 32, lane);
    pack_trits(w->x + 240, id, 4, 4, y->qh, lane);
    y->d = float_to_half(d);
}
DEV void quantize(super_work *w, block_tq2_0 *y, int lane) {
    const float d = run_amax(w->x, QK_K), id = reciprocal(d);
    for (int i = lane; i < QK_K; i += 32) {
        w->q[i] = (uint8_t) ((round_low(w->x[i] * id) + 1) & 3);
    }
    __syncwarp();
    pack_2_bits(w->q, y->qs, lane);
    y->d = float_to_half(d);
}
DEV uint8_t scale_to_ue4m3(float d) {
    if (!(d > 0.0f)) {
        return 0;
    }
    if (d < 0x1p-6f) {
        return (uint8_t) min((int) roundf(d * 0x1p9f), 7);
    }
    const uint32_t code = ((__float_as_uint(d) + 0x80000u) >> 20) - ((127u - 7u) << 3);
    return code >= 0x78 ? 0x7e : (uint8_t) code;
}
DEV void quantize(super_work *w, block_nvfp4 *y, int lane) {
    const int group = lane / 8, at = group * 16 + lane % 8;
    const uint8_t scale = scale_to_ue4m3(run_amax(w->x + 16 * group, 16) / 6.0f);
    const float d = half_scale_ue4m3(scale);
    y->d[group] = scale;
    y->qs[lane] = (uint8_t) (nearest_fp4(w->x[at], d) | nearest_fp4(w->x[at + 8], d) << 4);
}

// ---- kernels ----

// A superblock with an element that is not finite becomes a block of zeros whose d, and dmin if it exists, is NaN.
template <class BLOCK> DEV void set_nan(BLOCK *y, int lane) {
    for (int i = lane; i < (int) sizeof *y; i += 32) {
        reinterpret_cast<uint8_t *>(y)[i] = 0;
    }
    __syncwarp();
    y->d = HALF_NAN;
}
template <class BLOCK> DEV void quantize_finite(super_work *w, BLOCK *y, int lane) {
    bool is_finite = true;
    for (int i = lane; i < QK_K; i += 32) {
        is_finite &= fabsf(w->x[i]) < INFINITY;
    }
    if (__all_sync(~0u, is_finite)) {
        quantize(w, y, lane);
    } else {
        set_nan(y, lane);
    }
}
template <class BLOCK> DEV void quantize_min(super_work *w, BLOCK *y, int lane) {
    quantize_finite(w, y, lane);
    __syncwarp();
    if (y->d == HALF_NAN) {
        y->dmin = HALF_NAN;
    }
}

// Quantises the elements in w->x to the block of a dense row that starts at element i.
DEV void super_quantize(super_work *w, char *row, int type, int64_t i, int lane) {
    switch (type) {
        case GGML_TYPE_Q2_K: quantize_min(w, (block_q2_K *) row + i / QK_K, lane); break;
        case GGML_TYPE_Q3_K: quantize_finite(w, (block_q3_K *) row + i / QK_K, lane); break;
        case GGML_TYPE_Q4_K: quantize_min(w, (block_q4_K *) row + i / QK_K, lane); break;
        case GGML_TYPE_Q5_K: quantize_min(w, (block_q5_K *) row + i / QK_K, lane); break;
        case GGML_TYPE_Q6_K: quantize_finite(w, (block_q6_K *) row + i / QK_K, lane); break;
        case GGML_TYPE_IQ4_XS: quantize_finite(w, (block_iq4_xs *) row + i / QK_K, lane); break;
        case GGML_TYPE_TQ1_0: quantize(w, (block_tq1_0 *) row + i / QK_K, lane); break;
        case GGML_TYPE_TQ2_0: quantize(w, (block_tq2_0 *) row + i / QK_K, lane); break;
        case GGML_TYPE_NVFP4: quantize(w, (block_nvfp4 *) row + i / QK_NVFP4, lane); break;
        case GGML_TYPE_Q1_0: quantize(w, (block_q1_0 *) row + i / QK_Q1_0, lane); break;
        default: quantize(w, (block_q2_0 *) row + i / QK_Q2_0, lane); break;
    }
}

// Like rows_set_blocks, for blocks of g.dst_block elements.
KERNEL __launch_bounds__(SUPER_WARPS * 32) rows_set_super(const __grid_constant__ struct gpu_rows_args g) {
    __shared__ super_work works[SUPER_WARPS];
    dep_begin();
    super_work *w = &works[threadIdx.x / 32];
    const int lane = threadIdx.x % 32;
    const int64_t n_blocks = g.a.ne[0] / g.dst_block;
    for (int64_t ib = thread_index() / 32; ib < n_blocks * g.n_rows; ib += thread_count() / 32) {
        const int64_t ir = ib / n_blocks, i0 = ib % n_blocks * g.dst_block;
        const int64_t i1 = ir % g.a.ne[1], i2 = ir / g.a.ne[1] % g.a.ne[2], i3 = ir / (g.a.ne[1] * g.a.ne[2]);
        const int64_t number = number_at(g.numbers, i1, i2 % g.numbers.ne[1], i3 % g.numbers.ne[2]);
        if (number < 0 || number >= g.dst.ne[1]) {
            continue;
        }
        for (int i = lane; i < g.dst_block; i += 32) {
            w->x[i] = load_number(at(g.a, i0 + i, i1, i2, i3), g.a.type);
        }
        __syncwarp();
        super_quantize(w, at(g.dst, 0, number, i2, i3), g.dst.type, i0, lane);
        __syncwarp();
    }
}

// Like copy_narrow, for blocks of g.dst_block elements.
KERNEL __launch_bounds__(SUPER_WARPS * 32) copy_narrow_super(const __grid_constant__ struct gpu_copy_args g) {
    __shared__ super_work works[SUPER_WARPS];
    dep_begin();
    super_work *w = &works[threadIdx.x / 32];
    const int lane = threadIdx.x % 32;
    for (int64_t ib = thread_index() / 32; ib < g.n; ib += thread_count() / 32) {
        for (int i = lane; i < g.dst_block; i += 32) {
            w->x[i] = copy_source(g, ib * g.dst_block + i);
        }
        __syncwarp();
        const at4 to = place_of(ib * g.dst_block, g.dst, g.dst_index);
        super_quantize(w, at(g.dst, 0, to.i1, to.i2, to.i3), g.dst.type, to.i0, lane);
        __syncwarp();
    }
}
