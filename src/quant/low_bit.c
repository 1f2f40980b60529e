// SPDX-License-Identifier: MIT
// low_bit.c: formats of one to two bits per element with one scale per block.
//
//     q1_0    128 elements, d * (bit ? 1 : -1)               d is the mean magnitude
//     q2_0     64 elements, d * (q - 1), q of 2 bits         d is the largest magnitude, so q = 3 is never written
//     tq1_0   256 elements, d * (t - 1), five trits per byte d is the largest magnitude
//     tq2_0   256 elements, d * (q - 1), q of 2 bits         d is the largest magnitude
//
// A trit is a digit of base 3. A byte of tq1_0 holds five trits t0..t4 as the fraction 0.t0t1t2t3t4 in base 3, times 256, rounded
// up. Multiplying the byte by 3 moves t0 to bit 8 and above. The low byte then holds the other trits in the same form.
// Trits of a byte are 32 elements apart in bytes 0-31 of qs, 16 elements in bytes 32-47, and 4 elements in qh (four trits).
// The bytes of rows equal those of the reference. Importance weights are ignored.
#include "quant/half.h"
#include "quant/quants.h"
#include "quant/round.h"
#include "quant/vec.h"

// Rounds to nearest, ties away from zero. If the result does not fit in 32 bits, it saturates as an int64_t, and the low 32 bits
// are returned, as in the reference: -1 for a large positive v, otherwise 0.
static int round_low(float v) {
    const float r = roundf(v);
    if (!(fabsf(r) < 0x1p31f)) {
        return r > 0 ? -1 : 0;
    }
    return (int) r;
}

// ---- q1_0 ----

void quantize_row_q1_0_ref(const float *GGML_RESTRICT x, block_q1_0 *GGML_RESTRICT y, int64_t k) {
    for (int64_t i = 0; i < k / QK_Q1_0; i++) {
        const float *b = x + i * QK_Q1_0;
        float sum = 0.0f;
        for (int j = 0; j < QK_Q1_0; j++) {
            sum += fabsf(b[j]);
        }
        y[i].d = berth_float_to_half(sum / (float) QK_Q1_0);
        for (int j = 0; j < QK_Q1_0 / 8; j++) {
            y[i].qs[j] = 0;
            for (int t = 0; t < 8; t++) {
                y[i].qs[j] |= (uint8_t) ((b[8 * j + t] >= 0.0f) << t);
            }
        }
    }
}

void dequantize_row_q1_0(const block_q1_0 *GGML_RESTRICT x, float *GGML_RESTRICT y, int64_t k) {
    for (int64_t i = 0; i < k / QK_Q1_0; i++) {
        const float d = berth_half_to_float(x[i].d);
        for (int j = 0; j < QK_Q1_0; j++) {
            y[i * QK_Q1_0 + j] = x[i].qs[j / 8] >> (j % 8) & 1 ? d : -d;
        }
    }
}

BERTH_QUANTIZE_PLAIN(q1_0, QK_Q1_0)

// ---- q2_0 ----

void quantize_row_q2_0_ref(const float *GGML_RESTRICT x, block_q2_0 *GGML_RESTRICT y, int64_t k) {
    for (int64_t i = 0; i < k / QK_Q2_0; i++) {
        const float *b = x + i * QK_Q2_0;
        const float d = v4_largest(b, QK_Q2_0);
        const float id = inverse_or_0(d);
        y[i].d = berth_float_to_half(d);
        for (int j = 0; j < QK_Q2_0 / 4; j++) {
            y[i].qs[j] = 0;
            for (int t = 0; t < 4; t++) {
                const int q = berth_clamp_i32(berth_round_i32(b[4 * j + t] * id), -1, 2) + 1;
                y[i].qs[j] |= (uint8_t) (q << (2 * t));
            }
        }
    }
}

void dequantize_row_q2_0(const block_q2_0 *GGML_RESTRICT x, float *GGML_RESTRICT y, int64_t k) {
    for (int64_t i = 0; i < k / QK_Q2_0; i++) {
        const float d = berth_half_to_float(x[i].d);
        for (int j = 0; j < QK_Q2_0; j++) {
            y[i * QK_Q2_0 + j] = (float) ((x[i].qs[j / 4] >> (2 * (j % 4)) & 3) - 1) * d;
        }
    }
}

BERTH_QUANTIZE_PLAIN(q2_0, QK_Q2_0)

// ---- tq1_0 ----

// Trit r of byte j is element r * n_bytes + j. Returns the number of elements packed.
static int pack_trits(const float *x, float id, int n_bytes, int n_runs, uint8_t *qs) {
    for (int j = 0; j < n_bytes; j++) {
        int v = 0;
        for (int r = 0; r < 5; r++) {
            v = 3 * v + (r < n_runs ? (round_low(x[r * n_bytes + j] * id) + 1) & 0xff : 0);
        }
        v = v & 0xff;
        qs[j] = (uint8_t) ((v * 256 + 242) / 243);
    }
    return n_bytes * n_runs;
}

static int unpack_trits(const uint8_t *qs, float d, int n_bytes, int n_runs, float *y) {
    static const uint8_t power[5] = {1, 3, 9, 27, 81};
    for (int r = 0; r < n_runs; r++) {
        for (int j = 0; j < n_bytes; j++) {
            const uint8_t fraction = (uint8_t) (qs[j] * power[r]);
            y[r * n_bytes + j] = (float) ((fraction * 3 >> 8) - 1) * d;
        }
    }
    return n_bytes * n_runs;
}

void quantize_row_tq1_0_ref(const float *GGML_RESTRICT x, block_tq1_0 *GGML_RESTRICT y, int64_t k) {
    for (int64_t i = 0; i < k / QK_K; i++, x += QK_K) {
        const float d = berth_amax(x, QK_K);
        const float id = inverse_or_0(d);
        int at = pack_trits(x, id, 32, 5, y[i].qs);
        at += pack_trits(x + at, id, 16, 5, y[i].qs + 32);
        pack_trits(x + at, id, 4, 4, y[i].qh);
        y[i].d = berth_float_to_half(d);
    }
}

void dequantize_row_tq1_0(const block_tq1_0 *GGML_RESTRICT x, float *GGML_RESTRICT y, int64_t k) {
    for (int64_t i = 0; i < k / QK_K; i++) {
        const float d = berth_half_to_float(x[i].d);
        y += unpack_trits(x[i].qs, d, 32, 5, y);
        y += unpack_trits(x[i].qs + 32, d, 16, 5, y);
        y += unpack_trits(x[i].qh, d, 4, 4, y);
    }
}

BERTH_QUANTIZE_PLAIN(tq1_0, QK_K)

// ---- tq2_0 ----

void quantize_row_tq2_0_ref(const float *GGML_RESTRICT x, block_tq2_0 *GGML_RESTRICT y, int64_t k) {
    for (int64_t i = 0; i < k / QK_K; i++, x += QK_K) {
        const float d = berth_amax(x, QK_K);
        const float id = inverse_or_0(d);
        for (int j = 0; j < QK_K / 4; j++) {
            const float *run = x + j / 32 * 128 + j % 32;
            unsigned v = 0;
            for (int r = 0; r < 4; r++) {
                v |= (unsigned) ((round_low(run[32 * r] * id) + 1) & 3) << (2 * r);
            }
            y[i].qs[j] = (uint8_t) v;
        }
        y[i].d = berth_float_to_half(d);
    }
}

void dequantize_row_tq2_0(const block_tq2_0 *GGML_RESTRICT x, float *GGML_RESTRICT y, int64_t k) {
    for (int64_t i = 0; i < k / QK_K; i++, y += QK_K) {
        const float d = berth_half_to_float(x[i].d);
        for (int j = 0; j < QK_K; j++) {
            y[j] = (float) ((x[i].qs[j / 128 * 32 + j % 32] >> (2 * (j / 32 % 4)) & 3) - 1) * d;
        }
    }
}

BERTH_QUANTIZE_PLAIN(tq2_0, QK_K)
