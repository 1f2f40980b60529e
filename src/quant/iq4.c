// SPDX-License-Identifier: MIT
// iq4.c: iq4_nl iq4_xs: 4 bits per element that index a table of 16 values.
//
//     iq4_nl   32 elements: x = d * value                           byte j holds elements j and j + 16
//     iq4_xs   8 runs of 32: x = d * (scale - 32) * value           a scale has 6 bits: the low 4 in scales_l, the upper 2 in
//                                                                   scales_h; the 16 bytes of a run are as in iq4_nl
#include "quant/quants.h"
#include "quant/round.h"
#include "quant/scalar.h"
#include "quant/weighted.h"

enum { RUN = 32 };

static const int8_t values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
static const struct grid grid_4 = {-127, 113, values};

static void pack_run(const uint8_t *q, uint8_t *qs) {
    for (int j = 0; j < RUN / 2; j++) {
        qs[j] = (uint8_t) (q[j] | q[j + RUN / 2] << 4);
    }
}

static void unpack_run(const uint8_t *qs, float scale, float *y) {
    for (int j = 0; j < RUN / 2; j++) {
        y[j] = scale * (float) values[qs[j] & 15];
        y[j + RUN / 2] = scale * (float) values[qs[j] >> 4];
    }
}

// ---- iq4_nl ----

static void quantize_blocks_iq4_nl(const float *x, block_iq4_nl *y, int64_t n, const float *w) {
    for (int64_t i = 0; i < n; i++) {
        struct frame f;
        uint8_t q[RUN] = {0};
        y[i].d = BERTH_HALF_NAN;
        if (frame_init(&f, x + i * RUN, w != NULL ? w + i * RUN : NULL, RUN)) {
            y[i].d = berth_fit_run(&f, 0, RUN, &grid_4, q);
        }
        pack_run(q, y[i].qs);
    }
}

void quantize_row_iq4_nl_ref(const float *GGML_RESTRICT x, block_iq4_nl *GGML_RESTRICT y, int64_t k) {
    for (int64_t i = 0; i < k / RUN; i++) {
        uint8_t q[RUN] = {0};
        y[i].d = berth_is_finite(x + i * RUN, RUN) ? berth_plain_iq4_nl(x + i * RUN, values, q) : BERTH_HALF_NAN;
        pack_run(q, y[i].qs);
    }
}

void dequantize_row_iq4_nl(const block_iq4_nl *GGML_RESTRICT x, float *GGML_RESTRICT y, int64_t k) {
    for (int64_t i = 0; i < k / RUN; i++) {
        unpack_run(x[i].qs, berth_half_to_float(x[i].d), y + i * RUN);
    }
}

BERTH_QUANTIZE_WEIGHTED(iq4_nl, RUN)

// ---- iq4_xs ----

static void pack_super(const int8_t *s, const uint8_t *q, block_iq4_xs *y) {
    memset(y->scales_l, 0, sizeof(y->scales_l));
    y->scales_h = 0;
    for (int r = 0; r < QK_K / RUN; r++) {
        const unsigned v = (unsigned) (s[r] + 32);
        y->scales_l[r / 2] |= (uint8_t) ((v & 15) << (4 * (r % 2)));
        y->scales_h = (uint16_t) (y->scales_h | v >> 4 << (2 * r));
        pack_run(q + r * RUN, y->qs + r * RUN / 2);
    }
}

BERTH_QUANTIZE_SUPER(
    iq4_xs, berth_fit_super(&f, RUN, &grid_4, -32, s, q), berth_plain_iq4_xs(x + i * QK_K, values, s, q), pack_super)

void dequantize_row_iq4_xs(const block_iq4_xs *GGML_RESTRICT x, float *GGML_RESTRICT y, int64_t k) {
    for (int64_t i = 0; i < k / QK_K; i++, y += QK_K) {
        const float d = berth_half_to_float(x[i].d);
        for (int r = 0; r < QK_K / RUN; r++) {
            const int s = (x[i].scales_l[r / 2] >> (4 * (r % 2)) & 15) | (x[i].scales_h >> (2 * r) & 3) << 4;
            unpack_run(x[i].qs + r * RUN / 2, d * (float) (s - 32), y + r * RUN);
        }
    }
}
