// SPDX-License-Identifier: MIT
// fp4.c: mxfp4 and nvfp4: 4-bit floats (sign, 2 bits of exponent, 1 of mantissa) with a scale of 8 bits.
//
//     mxfp4   32 elements, the scale is a power of two: 2^(e - 127)
//     nvfp4   64 elements in 4 groups of 16; the scale of a group is an unsigned float of 4 bits of exponent and 3 of mantissa
//
// The values 0 0.5 1 1.5 2 3 4 6 are stored doubled (0 1 2 3 4 6 8 12), as integers, so the code halves the scales. Byte j of a
// group of n elements holds element j in its low nibble and element j + n / 2 in its high nibble.
// The bytes of rows equal those of the reference. Importance weights are ignored.
#include "quant/half.h"
#include "quant/quants.h"
#include "quant/round.h"
#include "quant/vec.h"

static const int8_t value_x2[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// Returns the indices of the values nearest to four elements. If two values are equally near, the smaller magnitude wins. Zero
// has index 0, not 8 (minus zero). d: the halved scale.
static inline v4i value_nearest(v4f x, float d) {
    const v4f size = v4_abs(x);
    v4i best = {0, 0, 0, 0};
    v4f best_error = size;
    for (int i = 1; i < 8; i++) {
        const v4f error = v4_abs(v4_all((float) value_x2[i] * d) - size);
        const v4i nearer = error < best_error;
        best = (nearer & i) | (~nearer & best);
        best_error = v4_select(nearer, error, best_error);
    }
    return best | ((x < v4_all(0.0f)) & (best != 0) & 8);
}

static void pack_group(const float *x, float d, int n, uint8_t *qs) {
    for (int j = 0; j < n / 2; j += 4) {
        const v4i q = value_nearest(v4_load(x + j), d) | value_nearest(v4_load(x + j + n / 2), d) << 4;
        for (int k = 0; k < 4; k++) {
            qs[j + k] = (uint8_t) q[k];
        }
    }
}

static void unpack_group(const uint8_t *qs, float d, int n, float *y) {
    for (int j = 0; j < n / 2; j++) {
        y[j] = (float) value_x2[qs[j] & 15] * d;
        y[j + n / 2] = (float) value_x2[qs[j] >> 4] * d;
    }
}

// ---- mxfp4 ----

// Returns 2^(e - 128), half the scale. The two smallest are subnormal.
static float half_scale_e8m0(uint8_t e) {
    return berth_bits_float(e < 2 ? 0x00200000u << e : (uint32_t) (e - 1) << 23);
}

void quantize_row_mxfp4_ref(const float *GGML_RESTRICT x, block_mxfp4 *GGML_RESTRICT y, int64_t k) {
    for (int64_t i = 0; i < k / QK_MXFP4; i++) {
        const float amax = v4_largest(x + i * QK_MXFP4, QK_MXFP4);
        // The largest value is 6 = 1.5 * 2^2. The scale is such that amax / scale has the exponent of 6, which is 2.
        y[i].e = amax > 0.0f ? (uint8_t) berth_trunc_i32(floorf(log2f(amax)) - 2 + 127) : 0;
        pack_group(x + i * QK_MXFP4, half_scale_e8m0(y[i].e), QK_MXFP4, y[i].qs);
    }
}

void dequantize_row_mxfp4(const block_mxfp4 *GGML_RESTRICT x, float *GGML_RESTRICT y, int64_t k) {
    for (int64_t i = 0; i < k / QK_MXFP4; i++) {
        unpack_group(x[i].qs, half_scale_e8m0(x[i].e), QK_MXFP4, y + i * QK_MXFP4);
    }
}

BERTH_QUANTIZE_PLAIN(mxfp4, QK_MXFP4)

// ---- nvfp4 ----

enum { NVFP4_GROUP = 16 };

// Returns half the scale; 0 for 0x7f, which is NaN. Otherwise, the sign bit is ignored.
static float half_scale_ue4m3(uint8_t s) {
    const int exponent = s >> 3 & 15;
    const int mantissa = s & 7;
    if (s == 0x7f) {
        return 0.0f;
    }
    return exponent == 0 ? (float) mantissa * 0x1p-10f
                         : berth_bits_float((uint32_t) (exponent - 7 - 1 + 127) << 23 | (uint32_t) mantissa << 20);
}

static uint8_t scale_to_ue4m3(float d) {
    if (!(d > 0.0f)) {
        return 0;
    }
    if (d < 0x1p-6f) {
        return (uint8_t) min_i32(berth_round_i32(d * 0x1p9f), 7);
    }
    // Rounding may carry into the exponent. All codes from 0x78 on (exponent 15) become 0x7e, the largest scale, as in the
    // reference.
    const uint32_t code = ((berth_float_bits(d) + 0x80000u) >> 20) - ((127u - 7u) << 3);
    return code >= 0x78 ? 0x7e : (uint8_t) code;
}

void quantize_row_nvfp4_ref(const float *GGML_RESTRICT x, block_nvfp4 *GGML_RESTRICT y, int64_t k) {
    for (int64_t i = 0; i < k / QK_NVFP4; i++) {
        for (int g = 0; g < QK_NVFP4 / NVFP4_GROUP; g++) {
            const float *b = x + i * QK_NVFP4 + g * NVFP4_GROUP;
            y[i].d[g] = scale_to_ue4m3(v4_largest(b, NVFP4_GROUP) / 6.0f);
            pack_group(b, half_scale_ue4m3(y[i].d[g]), NVFP4_GROUP, y[i].qs + g * NVFP4_GROUP / 2);
        }
    }
}

void dequantize_row_nvfp4(const block_nvfp4 *GGML_RESTRICT x, float *GGML_RESTRICT y, int64_t k) {
    for (int64_t i = 0; i < k / QK_NVFP4; i++) {
        for (int g = 0; g < QK_NVFP4 / NVFP4_GROUP; g++) {
            unpack_group(
                x[i].qs + g * NVFP4_GROUP / 2, half_scale_ue4m3(x[i].d[g]), NVFP4_GROUP, y + i * QK_NVFP4 + g * NVFP4_GROUP);
        }
    }
}

BERTH_QUANTIZE_PLAIN(nvfp4, QK_NVFP4)
