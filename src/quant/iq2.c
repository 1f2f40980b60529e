// SPDX-License-Identifier: MIT
// iq2.c: iq2_xxs iq2_xs iq2_s: groups of 8 elements as points of a codebook, with separate magnitudes and signs.
//
//     iq2_xxs   256 points, a 4-bit scale per 32 elements; 32 elements have 64 bits: four 8-bit indices, four times 7 sign bits,
//               the scale
//     iq2_xs    512 points, a 4-bit scale per 16 elements; 8 elements have 16 bits: a 9-bit index and 7 sign bits
//     iq2_s    1024 points, a 4-bit scale per 16 elements; indices of 8 + 2 bits (qh), 8 sign bits (second half of qs)
//
// x = d * (0.5 + scale) / 4 * value * sign. With 7 sign bits, the eighth sign makes the number of minus signs even. So if a group
// has an odd number of negative elements, one sign is written wrong.
#include "base/min.h"
#include "quant/grids.h"
#include "quant/lattice.h"
#include "quant/quants.h"
#include "quant/round.h"

enum { GROUP = 8, N_GROUPS = QK_K / GROUP };

static const struct lattice lattice_xxs = LATTICE(grid_iq2_xxs, runs_iq2_xxs, GROUP, 2, 3, 8, 25, 43);
static const struct lattice lattice_xs = LATTICE(grid_iq2_xs, runs_iq2_xs, GROUP, 2, 3, 8, 25, 43);
static const struct lattice lattice_s = LATTICE(grid_iq2_s, runs_iq2_s, GROUP, 2, 3, 8, 25, 43);

static const float levels[16] = {0.125f, 0.375f, 0.625f, 0.875f, 1.125f, 1.375f, 1.625f, 1.875f, 2.125f, 2.375f, 2.625f, 2.875f,
    3.125f, 3.375f, 3.625f, 3.875f};

// The argument `share` of frame_growth for iq2_xxs. With 1, the squared error would exceed the reference's.
#define GROWTH_SHARE_XXS 0.85f

static int is_odd(unsigned bits) {
    return __builtin_popcount(bits) & 1;
}

static unsigned with_parity(unsigned seven) {
    return seven | (unsigned) is_odd(seven) << 7;
}

// ---- search ----

struct result {
    uint16_t d;
    uint16_t point[N_GROUPS];
    uint8_t sign[N_GROUPS];
    uint8_t scale[N_GROUPS / 2]; // one per cell
};

// n_units groups share a scale. even: the number of minus signs of a group must be even. If an element is not finite, returns
// false.
static bool block_fit(const struct lattice *lattice, int n_units, bool even, const float *x, const float *w, struct result *out) {
    struct frame f;
    struct cell cells[LATTICE_MAX_CELLS];
    float d;
    memset(out, 0, sizeof(*out));
    if (!frame_init(&f, x, w, QK_K)) {
        return false;
    }
    for (int g = 0; g < N_GROUPS; g++) {
        for (int k = 0; k < GROUP; k++) {
            out->sign[g] |= (uint8_t) ((f.x[g * GROUP + k] < 0.0f) << k);
            f.x[g * GROUP + k] = fabsf(f.x[g * GROUP + k]);
        }
    }
    for (int c = 0; c < N_GROUPS / n_units; c++) {
        struct cell *cell = &cells[c];
        float amax = 0.0f;
        for (int j = c * n_units * GROUP; j < (c + 1) * n_units * GROUP; j++) {
            amax = max_f32(f.x[j], amax);
        }
        // A scale of amax / 43 writes the largest element as 43, the largest value. Smaller scales clip the largest element. For
        // a hard block, the scales go from a third of amax / 43 up to amax / 8. A scale of amax / 8 writes the largest element as
        // 8, the smallest value.
        cell->lo = (even ? 0.55f : 0.65f) * amax / 43;
        cell->hi = (even ? 1.6f : 1.4f) * amax / 43;
        int depth = even ? 2 : 1;
        if (f.hard) {
            cell->lo = 0.33f * amax / 43;
            cell->hi = 5.4f * amax / 43;
            depth = LATTICE_MAX_DEPTH;
        }
        cell->n_units = cell->n_parts = n_units;
        for (int u = 0; u < n_units; u++) {
            const int g = c * n_units + u;
            cell->unit[u] = (struct unit){1, {{1, {(uint8_t) u}}}};
            berth_lattice_part(lattice, f.x + g * GROUP, f.w + g * GROUP, 0.0f, even && is_odd(out->sign[g]), cell->lo, cell->hi,
                depth, &cell->part[u]);
        }
    }
    out->d = berth_lattice_fit(&f, cells, N_GROUPS / n_units, levels, 16, n_units == 4 ? GROWTH_SHARE_XXS : 1.0f, &d, out->scale);
    for (int g = 0; g < N_GROUPS; g++) {
        const bool flipped = even && is_odd(out->sign[g]);
        const float scale = d * levels[out->scale[g / n_units]];
        int point = berth_lattice_point(&cells[g / n_units], g % n_units, scale);
        if (point < 0) {
            point = berth_lattice_best(lattice, f.x + g * GROUP, f.w + g * GROUP, 0.0f, flipped, scale);
        }
        out->point[g] = (uint16_t) point;
        if (flipped) {
            out->sign[g] ^= (uint8_t) (1 << berth_lattice_flip(lattice, out->point[g], f.x + g * GROUP, f.w + g * GROUP));
        }
    }
    return true;
}

static void write_group(const struct lattice *lattice, unsigned point, unsigned sign, float scale, float *y) {
    for (int k = 0; k < GROUP; k++) {
        const float v = scale * lattice_value(lattice, (int) point, k);
        y[k] = sign >> k & 1 ? -v : v;
    }
}

// ---- iq2_xxs ----

static void quantize_blocks_iq2_xxs(const float *x, block_iq2_xxs *y, int64_t n, const float *w) {
    for (int64_t i = 0; i < n; i++) {
        struct result r;
        memset(&y[i], 0, sizeof(y[i]));
        y[i].d = block_fit(&lattice_xxs, 4, true, x + i * QK_K, block_weights(w, i), &r) ? r.d : BERTH_HALF_NAN;
        for (int c = 0; c < 8; c++) {
            uint64_t bits = (uint64_t) r.scale[c] << 60;
            for (int u = 0; u < 4; u++) {
                bits |= (uint64_t) r.point[4 * c + u] << (8 * u) | (uint64_t) (r.sign[4 * c + u] & 127) << (32 + 7 * u);
            }
            for (int k = 0; k < 4; k++) {
                y[i].qs[4 * c + k] = (uint16_t) (bits >> (16 * k));
            }
        }
    }
}

void dequantize_row_iq2_xxs(const block_iq2_xxs *GGML_RESTRICT x, float *GGML_RESTRICT y, int64_t k) {
    for (int64_t i = 0; i < k / QK_K; i++, y += QK_K) {
        const float d = berth_half_to_float(x[i].d);
        for (int c = 0; c < 8; c++) {
            const uint16_t *q = x[i].qs + 4 * c;
            const uint32_t tail = q[2] | (uint32_t) q[3] << 16;
            const float scale = d * (0.5f + (float) (tail >> 28)) * 0.25f;
            for (int u = 0; u < 4; u++) {
                write_group(&lattice_xxs, q[u / 2] >> (8 * (u % 2)) & 255, with_parity(tail >> (7 * u) & 127), scale,
                    y + (4 * c + u) * GROUP);
            }
        }
    }
}

BERTH_QUANTIZE_WEIGHTED(iq2_xxs, QK_K)

// ---- iq2_xs ----

static void pack_scales(const uint8_t *s, uint8_t *packed) {
    for (int c = 0; c < 8; c++) {
        packed[c] = (uint8_t) (s[2 * c] | s[2 * c + 1] << 4);
    }
}

static float scale_of(float d, const uint8_t *packed, int cell) {
    return d * (0.5f + (float) (packed[cell / 2] >> (4 * (cell % 2)) & 15)) * 0.25f;
}

static void quantize_blocks_iq2_xs(const float *x, block_iq2_xs *y, int64_t n, const float *w) {
    for (int64_t i = 0; i < n; i++) {
        struct result r;
        y[i].d = block_fit(&lattice_xs, 2, true, x + i * QK_K, block_weights(w, i), &r) ? r.d : BERTH_HALF_NAN;
        for (int g = 0; g < N_GROUPS; g++) {
            y[i].qs[g] = (uint16_t) (r.point[g] | (r.sign[g] & 127) << 9);
        }
        pack_scales(r.scale, y[i].scales);
    }
}

void dequantize_row_iq2_xs(const block_iq2_xs *GGML_RESTRICT x, float *GGML_RESTRICT y, int64_t k) {
    for (int64_t i = 0; i < k / QK_K; i++, y += QK_K) {
        const float d = berth_half_to_float(x[i].d);
        for (int g = 0; g < N_GROUPS; g++) {
            write_group(
                &lattice_xs, x[i].qs[g] & 511, with_parity(x[i].qs[g] >> 9), scale_of(d, x[i].scales, g / 2), y + g * GROUP);
        }
    }
}

BERTH_QUANTIZE_WEIGHTED(iq2_xs, QK_K)

// ---- iq2_s ----

static void quantize_blocks_iq2_s(const float *x, block_iq2_s *y, int64_t n, const float *w) {
    for (int64_t i = 0; i < n; i++) {
        struct result r;
        memset(&y[i], 0, sizeof(y[i]));
        y[i].d = block_fit(&lattice_s, 2, false, x + i * QK_K, block_weights(w, i), &r) ? r.d : BERTH_HALF_NAN;
        for (int g = 0; g < N_GROUPS; g++) {
            y[i].qs[g] = (uint8_t) r.point[g];
            y[i].qs[N_GROUPS + g] = r.sign[g];
            y[i].qh[g / 4] |= (uint8_t) (r.point[g] >> 8 << (2 * (g % 4)));
        }
        pack_scales(r.scale, y[i].scales);
    }
}

void quantize_row_iq2_s_ref(const float *GGML_RESTRICT x, block_iq2_s *GGML_RESTRICT y, int64_t k) {
    quantize_blocks_iq2_s(x, y, k / QK_K, NULL);
}

void dequantize_row_iq2_s(const block_iq2_s *GGML_RESTRICT x, float *GGML_RESTRICT y, int64_t k) {
    for (int64_t i = 0; i < k / QK_K; i++, y += QK_K) {
        const float d = berth_half_to_float(x[i].d);
        for (int g = 0; g < N_GROUPS; g++) {
            const unsigned point = x[i].qs[g] | (unsigned) (x[i].qh[g / 4] >> (2 * (g % 4)) & 3) << 8;
            write_group(&lattice_s, point, x[i].qs[N_GROUPS + g], scale_of(d, x[i].scales, g / 2), y + g * GROUP);
        }
    }
}

BERTH_QUANTIZE_WEIGHTED(iq2_s, QK_K)

// ---- tables ----

// For the API only: Berth's tables are constant.
void iq2xs_init_impl(enum ggml_type type) {
    (void) type;
}

void iq2xs_free_impl(enum ggml_type type) {
    (void) type;
}
