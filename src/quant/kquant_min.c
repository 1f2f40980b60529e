// SPDX-License-Identifier: MIT
// kquant_min.c: q2_K q4_K q5_K: superblocks of 256 with a scale and an offset a run.
//
//     q2_K   16 runs of 16: x = d * s * q - dmin * m      s and m of 4 bits, q of 2
//     q4_K    8 runs of 32: the same                      s and m of 6 bits, q of 4
//     q5_K    8 runs of 32: the same                      s and m of 6 bits, q of 5: the fifth in qh
//
// qs of q2_K: the 2-bit fields of a byte are 32 elements apart, 128 elements to 32 bytes. qs of q4_K and q5_K: nibbles are 32
// elements apart, 64 elements to 32 bytes; bit r of qh[j] belongs to element j of run r.
// The 12 bytes of scales hold eight s and eight m: the first four of each in the low 6 bits of bytes 0-3 and 4-7; of the others
// the low nibbles share bytes 8-11 and the upper two bits sit above those of the first four.
#include "quant/quants.h"
#include "quant/round.h"
#include "quant/scalar.h"

// ---- q2_K ----

enum { RUN_Q2 = 16, N_RUNS_Q2 = QK_K / RUN_Q2 };

static void quantize_blocks_q2_K(const float *x, block_q2_K *y, int64_t n, const float *w) {
    for (int64_t i = 0; i < n; i++) {
        struct frame f;
        uint8_t q[QK_K], s[N_RUNS_Q2], m[N_RUNS_Q2];
        memset(&y[i], 0, sizeof(y[i]));
        if (!frame_init(&f, x + i * QK_K, w != NULL ? w + i * QK_K : NULL, QK_K)) {
            y[i].d = y[i].dmin = BERTH_HALF_NAN;
            continue;
        }
        berth_fit_affine_super(&f, RUN_Q2, 3, 15, s, m, q, &y[i].d, &y[i].dmin);
        for (int r = 0; r < N_RUNS_Q2; r++) {
            y[i].scales[r] = (uint8_t) (s[r] | m[r] << 4);
        }
        for (int j = 0; j < QK_K; j++) {
            y[i].qs[j / 128 * 32 + j % 32] |= (uint8_t) (q[j] << (2 * (j / 32 % 4)));
        }
    }
}

void quantize_row_q2_K_ref(const float *GGML_RESTRICT x, block_q2_K *GGML_RESTRICT y, int64_t k) {
    quantize_blocks_q2_K(x, y, k / QK_K, NULL);
}

void dequantize_row_q2_K(const block_q2_K *GGML_RESTRICT x, float *GGML_RESTRICT y, int64_t k) {
    for (int64_t i = 0; i < k / QK_K; i++, y += QK_K) {
        const float d    = berth_half_to_float(x[i].d);
        const float dmin = berth_half_to_float(x[i].dmin);
        for (int r = 0; r < N_RUNS_Q2; r++) {
            const float scale  = d * (float) (x[i].scales[r] & 15);
            const float offset = dmin * (float) (x[i].scales[r] >> 4);
            for (int j = r * RUN_Q2; j < (r + 1) * RUN_Q2; j++) {
                y[j] = scale * (float) (x[i].qs[j / 128 * 32 + j % 32] >> (2 * (j / 32 % 4)) & 3) - offset;
            }
        }
    }
}

BERTH_QUANTIZE_WEIGHTED(q2_K, QK_K)

// ---- q4_K, q5_K ----

enum { RUN = 32, N_RUNS = QK_K / RUN };

static void pack_scales(const uint8_t *s, const uint8_t *m, uint8_t *packed) {
    for (int r = 0; r < 4; r++) {
        packed[r]     = (uint8_t) (s[r] | (s[r + 4] >> 4) << 6);
        packed[r + 4] = (uint8_t) (m[r] | (m[r + 4] >> 4) << 6);
        packed[r + 8] = (uint8_t) ((s[r + 4] & 15) | (m[r + 4] & 15) << 4);
    }
}

static void unpack_scales(const uint8_t *packed, uint8_t *s, uint8_t *m) {
    for (int r = 0; r < 4; r++) {
        s[r]     = packed[r] & 63;
        m[r]     = packed[r + 4] & 63;
        s[r + 4] = (uint8_t) ((packed[r + 8] & 15) | packed[r] >> 6 << 4);
        m[r + 4] = (uint8_t) (packed[r + 8] >> 4 | packed[r + 4] >> 6 << 4);
    }
}

static void quantize_blocks_q4_K(const float *x, block_q4_K *y, int64_t n, const float *w) {
    for (int64_t i = 0; i < n; i++) {
        struct frame f;
        uint8_t q[QK_K], s[N_RUNS], m[N_RUNS];
        memset(&y[i], 0, sizeof(y[i]));
        if (!frame_init(&f, x + i * QK_K, w != NULL ? w + i * QK_K : NULL, QK_K)) {
            y[i].d = y[i].dmin = BERTH_HALF_NAN;
            continue;
        }
        berth_fit_affine_super(&f, RUN, 15, 63, s, m, q, &y[i].d, &y[i].dmin);
        pack_scales(s, m, y[i].scales);
        for (int j = 0; j < QK_K; j++) {
            y[i].qs[j / 64 * 32 + j % 32] |= (uint8_t) (q[j] << (4 * (j / 32 % 2)));
        }
    }
}

void quantize_row_q4_K_ref(const float *GGML_RESTRICT x, block_q4_K *GGML_RESTRICT y, int64_t k) {
    quantize_blocks_q4_K(x, y, k / QK_K, NULL);
}

void dequantize_row_q4_K(const block_q4_K *GGML_RESTRICT x, float *GGML_RESTRICT y, int64_t k) {
    for (int64_t i = 0; i < k / QK_K; i++, y += QK_K) {
        uint8_t s[N_RUNS], m[N_RUNS];
        const float d    = berth_half_to_float(x[i].d);
        const float dmin = berth_half_to_float(x[i].dmin);
        unpack_scales(x[i].scales, s, m);
        for (int r = 0; r < N_RUNS; r++) {
            const float scale  = d * (float) s[r];
            const float offset = dmin * (float) m[r];
            for (int j = 0; j < RUN; j++) {
                y[r * RUN + j] = scale * (float) (x[i].qs[r / 2 * 32 + j] >> (4 * (r % 2)) & 15) - offset;
            }
        }
    }
}

BERTH_QUANTIZE_WEIGHTED(q4_K, QK_K)

static void quantize_blocks_q5_K(const float *x, block_q5_K *y, int64_t n, const float *w) {
    for (int64_t i = 0; i < n; i++) {
        struct frame f;
        uint8_t q[QK_K], s[N_RUNS], m[N_RUNS];
        memset(&y[i], 0, sizeof(y[i]));
        if (!frame_init(&f, x + i * QK_K, w != NULL ? w + i * QK_K : NULL, QK_K)) {
            y[i].d = y[i].dmin = BERTH_HALF_NAN;
            continue;
        }
        berth_fit_affine_super(&f, RUN, 31, 63, s, m, q, &y[i].d, &y[i].dmin);
        pack_scales(s, m, y[i].scales);
        for (int j = 0; j < QK_K; j++) {
            y[i].qs[j / 64 * 32 + j % 32] |= (uint8_t) ((q[j] & 15) << (4 * (j / 32 % 2)));
            y[i].qh[j % 32] |= (uint8_t) ((q[j] >> 4) << (j / 32));
        }
    }
}

void quantize_row_q5_K_ref(const float *GGML_RESTRICT x, block_q5_K *GGML_RESTRICT y, int64_t k) {
    quantize_blocks_q5_K(x, y, k / QK_K, NULL);
}

void dequantize_row_q5_K(const block_q5_K *GGML_RESTRICT x, float *GGML_RESTRICT y, int64_t k) {
    for (int64_t i = 0; i < k / QK_K; i++, y += QK_K) {
        uint8_t s[N_RUNS], m[N_RUNS];
        const float d    = berth_half_to_float(x[i].d);
        const float dmin = berth_half_to_float(x[i].dmin);
        unpack_scales(x[i].scales, s, m);
        for (int r = 0; r < N_RUNS; r++) {
            const float scale  = d * (float) s[r];
            const float offset = dmin * (float) m[r];
            for (int j = 0; j < RUN; j++) {
                const int low  = x[i].qs[r / 2 * 32 + j] >> (4 * (r % 2)) & 15;
                const int high = x[i].qh[j] >> r & 1;
                y[r * RUN + j] = scale * (float) (low | high << 4) - offset;
            }
        }
    }
}

BERTH_QUANTIZE_WEIGHTED(q5_K, QK_K)
