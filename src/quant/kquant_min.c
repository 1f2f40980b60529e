// SPDX-License-Identifier: MIT
// kquant_min.c: q2_K q4_K q5_K: superblocks of 256 elements with a scale and an offset per run.
//
//     q2_K   16 runs of 16: x = d * s * q - dmin * m      s and m have 4 bits, q has 2
//     q4_K    8 runs of 32: x = d * s * q - dmin * m      s and m have 6 bits, q has 4
//     q5_K    8 runs of 32: x = d * s * q - dmin * m      s and m have 6 bits, q has 5: the fifth is in qh
//
// qs of q2_K: the four 2-bit fields of a byte belong to elements that are 32 apart; 32 bytes hold 128 elements. qs of q4_K and
// q5_K: the nibbles of a byte belong to elements that are 32 apart; 32 bytes hold 64 elements. Bit r of qh[j] belongs to element
// j of run r.
// The 12 bytes of scales of q4_K and q5_K: bytes 0-3 hold s of runs 0-3 in their low 6 bits, bytes 4-7 hold m of runs 0-3. Bytes
// 8-11 hold the low 4 bits of s (low nibble) and m (high nibble) of runs 4-7. The upper 2 bits of these s and m are in the upper
// 2 bits of bytes 0-3 and 4-7.
#include "quant/quants.h"
#include "quant/round.h"
#include "quant/scalar.h"
#include "quant/weighted.h"

// Defines three functions. quantize_blocks_X searches long for the best scales. quantize_row_X_ref writes the same bytes as the
// reference; `how` initialises its struct line_search (weighted.h). quantize_X calls quantize_blocks_X for each row. `pack`
// writes the superblock into y[i].
#define WITH_MIN(name, run, q_max, s_max, how, pack) \
    static void quantize_blocks_##name(const float *x, block_##name *y, int64_t n, const float *w) { \
        for (int64_t i = 0; i < n; i++) { \
            struct frame f; \
            struct affine_super a = nan_super; \
            if (frame_init(&f, x + i * QK_K, block_weights(w, i), QK_K)) { \
                berth_fit_affine_super(&f, run, q_max, s_max, &a); \
            } \
            y[i].d = a.d; \
            y[i].dmin = a.dmin; \
            pack(&a, &y[i]); \
        } \
    } \
    void quantize_row_##name##_ref(const float *GGML_RESTRICT x, block_##name *GGML_RESTRICT y, int64_t k) { \
        static const struct line_search search = how; \
        for (int64_t i = 0; i < k / QK_K; i++) { \
            struct affine_super a = nan_super; \
            if (berth_is_finite(x + i * QK_K, QK_K)) { \
                berth_plain_affine(x + i * QK_K, &search, s_max, &a); \
            } \
            y[i].d = a.d; \
            y[i].dmin = a.dmin; \
            pack(&a, &y[i]); \
        } \
    } \
    BERTH_QUANTIZE_WEIGHTED(name, QK_K)

static const struct affine_super nan_super = {.d = BERTH_HALF_NAN, .dmin = BERTH_HALF_NAN};

// ---- q2_K ----

enum { RUN_Q2 = 16, N_RUNS_Q2 = QK_K / RUN_Q2 };

static void q2_pack(const struct affine_super *a, block_q2_K *y) {
    for (int r = 0; r < N_RUNS_Q2; r++) {
        y->scales[r] = (uint8_t) (a->s[r] | a->m[r] << 4);
    }
    for (int j = 0; j < 64; j++) {
        const uint8_t *from = a->q + j / 32 * 128 + j % 32;
        y->qs[j] = (uint8_t) (from[0] | from[32] << 2 | from[64] << 4 | from[96] << 6);
    }
}

// Initialisers of struct line_search: len, q_max, first, step, n_trials, absolute.
#define LINE_SEARCH_Q2 \
    { RUN_Q2, 3, -0.5f, 0.1f, 16, true }
WITH_MIN(q2_K, RUN_Q2, 3, 15, LINE_SEARCH_Q2, q2_pack)

void dequantize_row_q2_K(const block_q2_K *GGML_RESTRICT x, float *GGML_RESTRICT y, int64_t k) {
    for (int64_t i = 0; i < k / QK_K; i++, y += QK_K) {
        const float d = berth_half_to_float(x[i].d);
        const float dmin = berth_half_to_float(x[i].dmin);
        for (int r = 0; r < N_RUNS_Q2; r++) {
            const float scale = d * (float) (x[i].scales[r] & 15);
            const float offset = dmin * (float) (x[i].scales[r] >> 4);
            const int j0 = r * RUN_Q2;
            const uint8_t *qs = x[i].qs + j0 / 128 * 32 + j0 % 32;
            // The shift is the same for all elements of a run, so that compilers vectorise this loop.
            for (int j = 0; j < RUN_Q2; j++) {
                y[j0 + j] = scale * (float) (qs[j] >> (2 * (j0 / 32 % 4)) & 3) - offset;
            }
        }
    }
}

// ---- q4_K, q5_K ----

enum { RUN = 32, N_RUNS = QK_K / RUN };

static void pack_scales(const uint8_t *s, const uint8_t *m, uint8_t *packed) {
    for (int r = 0; r < 4; r++) {
        packed[r] = (uint8_t) (s[r] | (s[r + 4] >> 4) << 6);
        packed[r + 4] = (uint8_t) (m[r] | (m[r + 4] >> 4) << 6);
        packed[r + 8] = (uint8_t) ((s[r + 4] & 15) | (m[r + 4] & 15) << 4);
    }
}

static void unpack_scales(const uint8_t *packed, uint8_t *s, uint8_t *m) {
    for (int r = 0; r < 4; r++) {
        s[r] = packed[r] & 63;
        m[r] = packed[r + 4] & 63;
        s[r + 4] = (uint8_t) ((packed[r + 8] & 15) | packed[r] >> 6 << 4);
        m[r + 4] = (uint8_t) (packed[r + 8] >> 4 | packed[r + 4] >> 6 << 4);
    }
}

static void q4_pack(const struct affine_super *a, block_q4_K *y) {
    pack_scales(a->s, a->m, y->scales);
    for (int j = 0; j < 128; j++) {
        const uint8_t *from = a->q + j / 32 * 64 + j % 32;
        y->qs[j] = (uint8_t) (from[0] | from[32] << 4);
    }
}

#define LINE_SEARCH_Q4 \
    { RUN, 15, -1.0f, 0.1f, 21, false }
WITH_MIN(q4_K, RUN, 15, 63, LINE_SEARCH_Q4, q4_pack)

#define DEQUANTIZE_WITH_MIN(name, level) \
    void dequantize_row_##name(const block_##name *GGML_RESTRICT x, float *GGML_RESTRICT y, int64_t k) { \
        for (int64_t i = 0; i < k / QK_K; i++, y += QK_K) { \
            uint8_t s[N_RUNS], m[N_RUNS]; \
            const float d = berth_half_to_float(x[i].d); \
            const float dmin = berth_half_to_float(x[i].dmin); \
            unpack_scales(x[i].scales, s, m); \
            for (int r = 0; r < N_RUNS; r++) { \
                const float scale = d * (float) s[r]; \
                const float offset = dmin * (float) m[r]; \
                for (int j = 0; j < RUN; j++) { \
                    y[r * RUN + j] = scale * (float) (level) -offset; \
                } \
            } \
        } \
    }
#define LEVEL_4 (x[i].qs[r / 2 * 32 + j] >> (4 * (r % 2)) & 15)
DEQUANTIZE_WITH_MIN(q4_K, LEVEL_4)

static void q5_pack(const struct affine_super *a, block_q5_K *y) {
    pack_scales(a->s, a->m, y->scales);
    for (int j = 0; j < 128; j++) {
        const uint8_t *from = a->q + j / 32 * 64 + j % 32;
        y->qs[j] = (uint8_t) ((from[0] & 15) | (from[32] & 15) << 4);
    }
    memset(y->qh, 0, sizeof(y->qh));
    for (int r = 0; r < N_RUNS; r++) {
        for (int j = 0; j < RUN; j++) {
            y->qh[j] |= (uint8_t) (a->q[RUN * r + j] >> 4 << r);
        }
    }
}

#define LINE_SEARCH_Q5 \
    { RUN, 31, -0.5f, 0.1f, 16, false }
WITH_MIN(q5_K, RUN, 31, 63, LINE_SEARCH_Q5, q5_pack)

DEQUANTIZE_WITH_MIN(q5_K, LEVEL_4 | (x[i].qh[j] >> r & 1) << 4)
