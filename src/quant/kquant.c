// SPDX-License-Identifier: MIT
// kquant.c: q3_K q6_K q8_K: superblocks of 256 elements with a scale and no offset.
//
//     q3_K   16 runs of 16: x = d * (s - 32) * (q - 4)    s has 6 bits, q has 3: two in qs, the third in hmask
//     q6_K   16 runs of 16: x = d * s * (q - 32)          s has 8 bits, q has 6: four in ql, two in qh
//     q8_K   x = d * q                                    d is an f32; bsums holds the sum of each 16 levels; used in dot products
//                                                         only; the bytes equal those of the reference
//
// q3_K: the four 2-bit fields of a byte of qs belong to elements that are 32 apart; 32 bytes hold 128 elements. The bits of a
// byte of hmask belong to elements that are 32 apart.
// q6_K: 64 bytes of ql and 32 bytes of qh hold 128 elements. The nibbles of a byte of ql belong to elements that are 64 apart.
// The 2-bit fields of a byte of qh belong to elements that are 32 apart.
#include "quant/quants.h"
#include "quant/round.h"
#include "quant/scalar.h"
#include "quant/weighted.h"

enum { RUN = 16, N_RUNS = QK_K / RUN };

// ---- q3_K ----

static const struct grid grid_q3 = {-4, 3, NULL};

static int q3_scale(const uint8_t *scales, int r) {
    const int low = r < 8 ? scales[r] & 15 : scales[r - 8] >> 4;
    const int high = scales[8 + r % 4] >> (2 * (r / 4)) & 3;
    return (low | high << 4) - 32;
}

static void q3_set_scale(uint8_t *scales, int r, int s) {
    const unsigned v = (unsigned) (s + 32);
    scales[r % 8] |= (uint8_t) ((v & 15) << (r < 8 ? 0 : 4));
    scales[8 + r % 4] |= (uint8_t) ((v >> 4) << (2 * (r / 4)));
}

static void q3_pack(const int8_t *s, const uint8_t *q, block_q3_K *y) {
    memset(y->scales, 0, sizeof(y->scales));
    for (int r = 0; r < N_RUNS; r++) {
        q3_set_scale(y->scales, r, s[r]);
    }
    for (int j = 0; j < 64; j++) {
        const uint8_t *from = q + j / 32 * 128 + j % 32;
        y->qs[j] = (uint8_t) ((from[0] & 3) | (from[32] & 3) << 2 | (from[64] & 3) << 4 | (from[96] & 3) << 6);
    }
    memset(y->hmask, 0, sizeof(y->hmask));
    for (int r = 0; r < 8; r++) {
        for (int j = 0; j < 32; j++) {
            y->hmask[j] |= (uint8_t) (q[32 * r + j] >> 2 << r);
        }
    }
}

BERTH_QUANTIZE_SUPER(q3_K, berth_fit_super(&f, RUN, &grid_q3, -32, s, q), berth_plain_q3(x + i * QK_K, s, q), q3_pack)

void dequantize_row_q3_K(const block_q3_K *GGML_RESTRICT x, float *GGML_RESTRICT y, int64_t k) {
    for (int64_t i = 0; i < k / QK_K; i++, y += QK_K) {
        const float d = berth_half_to_float(x[i].d);
        for (int r = 0; r < N_RUNS; r++) {
            const float scale = d * (float) q3_scale(x[i].scales, r);
            const int j0 = r * RUN; // constant shifts within a run, so that compilers use vectors
            const uint8_t *qs = x[i].qs + j0 / 128 * 32 + j0 % 32, *hmask = x[i].hmask + j0 % 32;
            for (int j = 0; j < RUN; j++) {
                const int low = qs[j] >> (2 * (j0 / 32 % 4)) & 3;
                const int high = hmask[j] >> (j0 / 32) & 1;
                y[j0 + j] = scale * (float) ((low | high << 2) - 4);
            }
        }
    }
}

// ---- q6_K ----

static const struct grid grid_q6 = {-32, 31, NULL};

static void q6_pack(const int8_t *s, const uint8_t *q, block_q6_K *y) {
    memcpy(y->scales, s, sizeof(y->scales));
    for (int j = 0; j < 128; j++) {
        const uint8_t *from = q + j / 64 * 128 + j % 64;
        y->ql[j] = (uint8_t) ((from[0] & 15) | (from[64] & 15) << 4);
    }
    for (int j = 0; j < 64; j++) {
        const uint8_t *from = q + j / 32 * 128 + j % 32;
        y->qh[j] = (uint8_t) (from[0] >> 4 | from[32] >> 4 << 2 | from[64] >> 4 << 4 | from[96] >> 4 << 6);
    }
}

BERTH_QUANTIZE_SUPER(q6_K, berth_fit_super(&f, RUN, &grid_q6, -128, s, q), berth_plain_q6(x + i * QK_K, s, q), q6_pack)

void dequantize_row_q6_K(const block_q6_K *GGML_RESTRICT x, float *GGML_RESTRICT y, int64_t k) {
    for (int64_t i = 0; i < k / QK_K; i++, y += QK_K) {
        const float d = berth_half_to_float(x[i].d);
        for (int r = 0; r < N_RUNS; r++) {
            const float scale = d * (float) x[i].scales[r];
            const int j0 = r * RUN;
            const uint8_t *ql = x[i].ql + j0 / 128 * 64 + j0 % 64, *qh = x[i].qh + j0 / 128 * 32 + j0 % 32;
            for (int j = 0; j < RUN; j++) {
                const int low = ql[j] >> (4 * (j0 / 64 % 2)) & 15;
                const int high = qh[j] >> (2 * (j0 / 32 % 4)) & 3;
                y[j0 + j] = scale * (float) ((low | high << 4) - 32);
            }
        }
    }
}

// ---- q8_K ----

void quantize_row_q8_K_ref(const float *GGML_RESTRICT x, block_q8_K *GGML_RESTRICT y, int64_t k) {
    for (int64_t i = 0; i < k / QK_K; i++, x += QK_K) {
        float amax = 0.0f;
        float max = 0.0f;
        for (int j = 0; j < QK_K; j++) {
            if (fabsf(x[j]) > amax) {
                amax = fabsf(x[j]);
                max = x[j];
            }
        }
        memset(&y[i], 0, sizeof(y[i]));
        if (amax == 0.0f) {
            continue;
        }
        const float inverse = -127.0f / max;
        for (int j = 0; j < QK_K; j++) {
            y[i].qs[j] = (int8_t) min_i32(berth_rint_wrapped(inverse * x[j]), 127);
            y[i].bsums[j / RUN] = (int16_t) (y[i].bsums[j / RUN] + y[i].qs[j]);
        }
        y[i].d = 1 / inverse;
    }
}

void dequantize_row_q8_K(const block_q8_K *GGML_RESTRICT x, float *GGML_RESTRICT y, int64_t k) {
    for (int64_t i = 0; i < k / QK_K; i++, y += QK_K) {
        for (int j = 0; j < QK_K; j++) {
            y[j] = x[i].d * (float) x[i].qs[j];
        }
    }
}
