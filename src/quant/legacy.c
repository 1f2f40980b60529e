// SPDX-License-Identifier: MIT
// legacy.c: q4_0 q4_1 q5_0 q5_1 q8_0 q8_1: blocks of 32 elements with one scale, or with a scale and an offset.
//
//     q4_0, q5_0, q8_0   x = d * (q - bias)      bias 8, 16, 0
//     q4_1, q5_1         x = d * q + m           m the least element
//     q8_1               x = d * q               s = d * sum(q); a dot product with q4_1 or q5_1 multiplies s by their offset m
//
// Byte j of qs holds element j in its low nibble and element j + 16 in its high nibble. Bit i of qh is the fifth bit of element
// i. The bytes equal those of the reference, so the order of operations must not change. With an importance matrix, weighted.c
// searches for the scale. If the weights of a block are unusable (berth_weighted_init), the block is quantised as without
// weights.
#include "base/min.h"
#include "quant/half.h"
#include "quant/quants.h"
#include "quant/round.h"
#include "quant/vec.h"
#include "quant/weighted.h"

#include <float.h>

enum { QK = 32 };

static void block_range(const float *x, float *lo, float *hi) {
    v4f low = v4_all(FLT_MAX);
    v4f high = v4_all(-FLT_MAX);
    for (int j = 0; j < QK; j += 4) {
        const v4f v = v4_load(x + j);
        low = v4_select(v < low, v, low);
        high = v4_select(v > high, v, high);
    }
    *lo = low[0];
    *hi = high[0];
    for (int k = 1; k < 4; k++) {
        *lo = min_f32(low[k], *lo);
        *hi = max_f32(high[k], *hi);
    }
}

// Returns the element of the largest magnitude, with its sign. If magnitudes are equal, returns the first element. If all
// elements are NaN, returns 0.
static float block_extreme(const float *x) {
    float lo, hi;
    if (!v4_range(x, QK, &lo, &hi)) {
        block_range(x, &lo, &hi);
    }
    if (lo != -hi) {
        if (!(lo <= hi)) {
            return 0.0f;
        }
        return hi > -lo ? hi : lo;
    }
    int j = 0;
    while (j < QK && fabsf(x[j]) != hi) {
        j++;
    }
    return hi > 0.0f && j < QK ? x[j] : 0.0f;
}

// A level above 15 (from non-finite input) changes the neighbouring nibble, as in the reference.
static void pack_4(const uint8_t *restrict q, uint8_t *restrict qs) {
    for (int j = 0; j < QK / 2; j++) {
        qs[j] = (uint8_t) (q[j] | q[j + QK / 2] << 4);
    }
}

static void pack_5(const uint8_t *restrict q, uint8_t *restrict qs, uint8_t *restrict qh) {
    for (int j = 0; j < QK / 2; j++) {
        qs[j] = (uint8_t) ((q[j] & 15) | (q[j + QK / 2] & 15) << 4);
    }
#if defined(__aarch64__)
    const uint8x16_t bit = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201u)), fifth = vdupq_n_u8(16);
    uint8x16_t sum = vpaddq_u8(vandq_u8(vtstq_u8(vld1q_u8(q), fifth), bit), vandq_u8(vtstq_u8(vld1q_u8(q + 16), fifth), bit));
    sum = vpaddq_u8(sum, sum);
    sum = vpaddq_u8(sum, sum);
    const uint32_t bits = vgetq_lane_u32(vreinterpretq_u32_u8(sum), 0);
    memcpy(qh, &bits, sizeof(bits));
#else
    for (int i = 0; i < 4; i++) {
        // Extracts bit 4 of eight bytes. The multiplication moves the bit of byte b to bit 56 + b, without carries.
        uint64_t eight;
        memcpy(&eight, q + 8 * i, sizeof(eight));
        qh[i] = (uint8_t) ((eight >> 4 & 0x0101010101010101u) * 0x0102040810204080u >> 56);
    }
#endif
}

static int nibble_at(const uint8_t *qs, int j) {
    return j < QK / 2 ? qs[j] & 15 : qs[j - QK / 2] >> 4;
}

static int fifth_bit(const uint8_t *qh, int j) {
    uint32_t bits;
    memcpy(&bits, qh, sizeof bits);
    return (int) (bits >> j & 1) << 4;
}

// ---- q4_0, q5_0 ----

// Returns the low byte of v as a signed number, limited to max. The reference does the same with levels that do not fit in a
// byte.
static inline v4i low_byte(v4i v, int max) {
    v = v << 24 >> 24;
    const v4i above = v > max;
    return (above & max) | (~above & v);
}

static void levels_biased(const float *x, float d, int bias, uint8_t *q) {
    const v4f id = v4_all(inverse_or_0(d));
    const v4f half = v4_all((float) bias + 0.5f);
    v4i v[QK / 4];
    for (int j = 0; j < QK / 4; j++) {
        v[j] = low_byte(berth_trunc_4(v4_load(x + 4 * j) * id + half), 2 * bias - 1);
    }
    v4_store_bytes(v, QK, q);
}

#define PACK_4(y) pack_4(q, (y).qs)
#define PACK_5(y) pack_5(q, (y).qs, (y).qh)
#define LEVEL_4(x, j) nibble_at((x).qs, j)
#define LEVEL_5(x, j) (nibble_at((x).qs, j) | fifth_bit((x).qh, j))

#define BIASED(name, bias, PACK, LEVEL) \
    void quantize_row_##name##_ref(const float *GGML_RESTRICT x, block_##name *GGML_RESTRICT y, int64_t k) { \
        for (int64_t i = 0; i < k / QK; i++) { \
            uint8_t q[QK]; \
            const float d = block_extreme(x + i * QK) / -(bias); \
            y[i].d = berth_float_to_half(d); \
            levels_biased(x + i * QK, d, bias, q); \
            PACK(y[i]); \
        } \
    } \
    void dequantize_row_##name(const block_##name *GGML_RESTRICT x, float *GGML_RESTRICT y, int64_t k) { \
        for (int64_t i = 0; i < k / QK; i++) { \
            const float d = berth_half_to_float(x[i].d); \
            for (int j = 0; j < QK / 2; j++) { /* both halves of a byte, so that compilers use vectors */ \
                y[i * QK + j] = (float) (LEVEL(x[i], j) - (bias)) * d; \
                y[i * QK + QK / 2 + j] = (float) (LEVEL(x[i], QK / 2 + j) - (bias)) * d; \
            } \
        } \
    }
BIASED(q4_0, 8, PACK_4, LEVEL_4)
BIASED(q5_0, 16, PACK_5, LEVEL_5)

// ---- q4_1, q5_1 ----

static v4i low_byte_15(v4i v) {
    return low_byte(v, 15);
}

static v4i level_as_is(v4i v) {
    return v;
}

#define WITH_MIN(name, q_max, kept, PACK, LEVEL) \
    void quantize_row_##name##_ref(const float *GGML_RESTRICT x, block_##name *GGML_RESTRICT y, int64_t k) { \
        for (int64_t i = 0; i < k / QK; i++) { \
            uint8_t q[QK]; \
            float lo, hi; \
            block_range(x + i * QK, &lo, &hi); \
            const float d = (hi - lo) / (q_max); \
            const float id = inverse_or_0(d); \
            v4i v[QK / 4]; \
            for (int j = 0; j < QK / 4; j++) { \
                v[j] = kept(berth_trunc_4((v4_load(x + i * QK + 4 * j) - v4_all(lo)) * v4_all(id) + v4_all(0.5f))); \
            } \
            v4_store_bytes(v, QK, q); \
            y[i].d = berth_float_to_half(d); \
            y[i].m = berth_float_to_half(lo); \
            PACK(y[i]); \
        } \
    } \
    void dequantize_row_##name(const block_##name *GGML_RESTRICT x, float *GGML_RESTRICT y, int64_t k) { \
        for (int64_t i = 0; i < k / QK; i++) { \
            const float d = berth_half_to_float(x[i].d); \
            const float m = berth_half_to_float(x[i].m); \
            for (int j = 0; j < QK / 2; j++) { \
                y[i * QK + j] = (float) LEVEL(x[i], j) * d + m; \
                y[i * QK + QK / 2 + j] = (float) LEVEL(x[i], QK / 2 + j) * d + m; \
            } \
        } \
    }
WITH_MIN(q4_1, 15, low_byte_15, PACK_4, LEVEL_4)
WITH_MIN(q5_1, 31, level_as_is, PACK_5, LEVEL_5)

// ---- q8_0, q8_1 ----

static float levels_8bit(const float *x, int8_t *q) {
    const float d = berth_amax(x, QK) / 127;
    const float id = inverse_or_0(d);
    v4i v[QK / 4];
    for (int j = 0; j < QK / 4; j++) {
        v[j] = berth_round_4(v4_load(x + 4 * j) * v4_all(id));
    }
    v4_store_bytes(v, QK, (uint8_t *) q);
    return d;
}

void quantize_row_q8_0_ref(const float *GGML_RESTRICT x, block_q8_0 *GGML_RESTRICT y, int64_t k) {
    for (int64_t i = 0; i < k / QK; i++) {
        y[i].d = berth_float_to_half(levels_8bit(x + i * QK, y[i].qs));
    }
}

void dequantize_row_q8_0(const block_q8_0 *GGML_RESTRICT x, float *GGML_RESTRICT y, int64_t k) {
    for (int64_t i = 0; i < k / QK; i++) {
        const float d = berth_half_to_float(x[i].d);
        for (int j = 0; j < QK; j++) {
            y[i * QK + j] = (float) x[i].qs[j] * d;
        }
    }
}

void quantize_row_q8_1_ref(const float *GGML_RESTRICT x, block_q8_1 *GGML_RESTRICT y, int64_t k) {
    for (int64_t i = 0; i < k / QK; i++) {
        const float d = levels_8bit(x + i * QK, y[i].qs);
        int sum = 0;
        for (int j = 0; j < QK; j++) {
            sum += y[i].qs[j];
        }
        y[i].d = berth_float_to_half(d);
        y[i].s = berth_float_to_half((float) sum * d);
    }
}

BERTH_QUANTIZE_PLAIN(q8_0, QK)

// ---- with an importance matrix ----

static const struct scale_search scale_4 = {QK, 8, false};
static const struct scale_search scale_5 = {QK, 16, false};
static const struct line_search line_4 = {QK, 15, -0.9f, 0.05f, 37, false};
static const struct line_search line_5 = {QK, 31, -0.9f, 0.05f, 37, false};

// Defines quantize_blocks_X and quantize_X. `search` writes q and, into y[i], d and m.
#define SEARCHED(name, search, PACK) \
    static void quantize_blocks_##name(const float *x, block_##name *y, int64_t n, const float *w) { \
        if (w == NULL) { \
            quantize_row_##name##_ref(x, y, n *QK); \
            return; \
        } \
        const float power = berth_row_power(x, n * QK); \
        for (int64_t i = 0; i < n; i++) { \
            float weight[QK]; \
            uint8_t q[QK]; \
            if (!berth_weighted_init(x + i * QK, w + i * QK, power, weight)) { \
                quantize_row_##name##_ref(x + i * QK, y + i, QK); \
                continue; \
            } \
            search; \
            PACK(y[i]); \
        } \
    } \
    BERTH_QUANTIZE_WEIGHTED(name, QK)
#define SCALE(how) y[i].d = berth_float_to_half(berth_weighted_scale(x + i * QK, weight, how, q))
#define LINE(how) \
    float m; \
    y[i].d = berth_float_to_half(berth_weighted_line(x + i * QK, weight, how, q, &m)); \
    y[i].m = berth_float_to_half(m)
SEARCHED(q4_0, SCALE(&scale_4), PACK_4)
SEARCHED(q5_0, SCALE(&scale_5), PACK_5)
SEARCHED(q4_1, LINE(&line_4), PACK_4)
SEARCHED(q5_1, LINE(&line_5), PACK_5)
