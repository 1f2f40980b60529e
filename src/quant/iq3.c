// SPDX-License-Identifier: MIT
// iq3.c: iq3_xxs iq3_s: groups of 4 elements as points of a codebook, with separate magnitudes and signs.
//
//     iq3_xxs   256 points; qs holds 64 indices, then 32 bits per 32 elements: four times 7 sign bits and a 4-bit scale
//               x = d * (0.5 + scale) / 2 * value * sign; the eighth sign is such that the number of minus signs is even
//     iq3_s     512 points, indices of 8 + 1 bits (qh), 8 sign bits per 8 elements, a 4-bit scale per 32
//               x = d * (1 + 2 * scale) * value * sign
//
// An octet is a set of 8 elements (two groups) that share a byte of signs.
#include "base/min.h"
#include "quant/grids.h"
#include "quant/lattice.h"
#include "quant/quants.h"
#include "quant/round.h"

enum { GROUP = 4, N_GROUPS = QK_K / GROUP, CELL = 32, N_CELLS = QK_K / CELL, N_OCTETS = QK_K / 8 };

static const struct lattice lattice_xxs = LATTICE(grid_iq3_xxs, runs_iq3_xxs, GROUP, 3, 8, 4, 12, 20, 28, 36, 44, 52, 62);
static const struct lattice lattice_s = LATTICE(grid_iq3_s, runs_iq3_s, GROUP, 3, 8, 1, 3, 5, 7, 9, 11, 13, 15);

static const float levels_xxs[16] = {
    0.25f, 0.75f, 1.25f, 1.75f, 2.25f, 2.75f, 3.25f, 3.75f, 4.25f, 4.75f, 5.25f, 5.75f, 6.25f, 6.75f, 7.25f, 7.75f};
static const float levels_s[16] = {1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31};

static int is_odd(unsigned bits) {
    return __builtin_popcount(bits) & 1;
}

// ---- search ----

struct result {
    uint16_t d;
    uint16_t point[N_GROUPS];
    uint8_t sign[N_OCTETS];
    uint8_t scale[N_CELLS];
};

// Parts 4u and 4u + 1 of the cell are the two groups of octet u with correct signs. Parts 4u + 2 and 4u + 3 are the same groups
// with one wrong sign. If `odd`, one sign of the octet must be wrong: in the first group (way 0) or in the second group (way 1).
static void octet_init(const struct lattice *lattice, const struct frame *f, int octet, bool odd, struct cell *cell) {
    const int u = octet % 4;
    const int depth = f->hard ? LATTICE_MAX_DEPTH : 1;
    for (int h = 0; h < 2; h++) {
        const int at = octet * 8 + h * GROUP;
        struct part *plain = &cell->part[4 * u + h], *flipped = plain + 2;
        flipped->n = 0;
        if (odd) {
            berth_lattice_parts(lattice, f->x + at, f->w + at, cell->lo, cell->hi, depth, plain, flipped);
        } else {
            berth_lattice_part(lattice, f->x + at, f->w + at, 0.0f, false, cell->lo, cell->hi, depth, plain);
        }
    }
    const uint8_t p = (uint8_t) (4 * u);
    if (odd) {
        cell->unit[u] = (struct unit){2, {{2, {(uint8_t) (p + 2), (uint8_t) (p + 1)}}, {2, {p, (uint8_t) (p + 3)}}}};
    } else {
        cell->unit[u] = (struct unit){1, {{2, {p, (uint8_t) (p + 1)}}}};
    }
}

// even: octets must have an even number of minus signs. If an element is not finite, returns false.
static bool block_fit(
    const struct lattice *lattice, const float *levels, bool even, const float *x, const float *w, struct result *out) {
    struct frame f;
    struct cell cells[N_CELLS];
    float d;
    memset(out, 0, sizeof(*out));
    if (!frame_init(&f, x, w, QK_K)) {
        return false;
    }
    for (int j = 0; j < QK_K; j++) {
        out->sign[j / 8] |= (uint8_t) ((f.x[j] < 0.0f) << (j % 8));
        f.x[j] = fabsf(f.x[j]);
    }
    for (int c = 0; c < N_CELLS; c++) {
        float amax = 0.0f;
        for (int j = c * CELL; j < (c + 1) * CELL; j++) {
            amax = max_f32(f.x[j], amax);
        }
        // A scale of amax / values[7] writes the largest element as the largest value. Smaller scales clip the largest element.
        cells[c].lo = (f.hard ? 0.5f : 0.8f) * amax / lattice->values[7];
        cells[c].hi = (f.hard ? 3.0f : 1.5f) * amax / lattice->values[7];
        cells[c].n_units = 4;
        cells[c].n_parts = 16;
        for (int u = 0; u < 4; u++) {
            octet_init(lattice, &f, 4 * c + u, even && is_odd(out->sign[4 * c + u]), &cells[c]);
        }
    }
    out->d = berth_lattice_fit(&f, cells, N_CELLS, levels, 16, 1.0f, &d, out->scale);
    for (int o = 0; o < N_OCTETS; o++) {
        const struct cell *cell = &cells[o / 4];
        const struct unit *unit = &cell->unit[o % 4];
        const float scale = d * levels[out->scale[o / 4]];
        const int way = berth_lattice_way(cell, unit, scale);
        const bool odd = even && is_odd(out->sign[o]);
        for (int h = 0; h < 2; h++) {
            const int at = o * 8 + h * GROUP;
            int point = berth_lattice_point(cell, unit->way[way].part[h], scale);
            if (point < 0) {
                point = berth_lattice_best(lattice, f.x + at, f.w + at, 0.0f, odd && h == way, scale);
            }
            out->point[2 * o + h] = (uint16_t) point;
        }
        if (odd) {
            const int at = o * 8 + way * GROUP; // way: index of the group with the wrong sign
            out->sign[o] ^=
                (uint8_t) (1 << (way * GROUP + berth_lattice_flip(lattice, out->point[2 * o + way], f.x + at, f.w + at)));
        }
    }
    return true;
}

static void write_octet(const struct lattice *lattice, const unsigned *point, unsigned sign, float scale, float *y) {
    for (int k = 0; k < 8; k++) {
        const float v = scale * lattice_value(lattice, (int) point[k / GROUP], k % GROUP);
        y[k] = sign >> k & 1 ? -v : v;
    }
}

// ---- iq3_xxs ----

static void quantize_blocks_iq3_xxs(const float *x, block_iq3_xxs *y, int64_t n, const float *w) {
    for (int64_t i = 0; i < n; i++) {
        struct result r;
        y[i].d = block_fit(&lattice_xxs, levels_xxs, true, x + i * QK_K, block_weights(w, i), &r) ? r.d : BERTH_HALF_NAN;
        for (int g = 0; g < N_GROUPS; g++) {
            y[i].qs[g] = (uint8_t) r.point[g];
        }
        for (int c = 0; c < N_CELLS; c++) {
            uint32_t tail = (uint32_t) r.scale[c] << 28;
            for (int u = 0; u < 4; u++) {
                tail |= (uint32_t) (r.sign[4 * c + u] & 127) << (7 * u);
            }
            for (int k = 0; k < 4; k++) {
                y[i].qs[N_GROUPS + 4 * c + k] = (uint8_t) (tail >> (8 * k));
            }
        }
    }
}

void quantize_row_iq3_xxs_ref(const float *GGML_RESTRICT x, block_iq3_xxs *GGML_RESTRICT y, int64_t k) {
    quantize_blocks_iq3_xxs(x, y, k / QK_K, NULL);
}

void dequantize_row_iq3_xxs(const block_iq3_xxs *GGML_RESTRICT x, float *GGML_RESTRICT y, int64_t k) {
    for (int64_t i = 0; i < k / QK_K; i++, y += QK_K) {
        const float d = berth_half_to_float(x[i].d);
        for (int c = 0; c < N_CELLS; c++) {
            const uint8_t *t = x[i].qs + N_GROUPS + 4 * c;
            const uint32_t tail = t[0] | (uint32_t) t[1] << 8 | (uint32_t) t[2] << 16 | (uint32_t) t[3] << 24;
            const float scale = d * (0.5f + (float) (tail >> 28)) * 0.5f;
            for (int u = 0; u < 4; u++) {
                const uint8_t *q = x[i].qs + 8 * c + 2 * u;
                const unsigned point[2] = {q[0], q[1]};
                const unsigned sign = tail >> (7 * u) & 127;
                write_octet(&lattice_xxs, point, sign | (unsigned) is_odd(sign) << 7, scale, y + c * CELL + u * 8);
            }
        }
    }
}

BERTH_QUANTIZE_WEIGHTED(iq3_xxs, QK_K)

// ---- iq3_s ----

static void quantize_blocks_iq3_s(const float *x, block_iq3_s *y, int64_t n, const float *w) {
    for (int64_t i = 0; i < n; i++) {
        struct result r;
        memset(&y[i], 0, sizeof(y[i]));
        y[i].d = block_fit(&lattice_s, levels_s, false, x + i * QK_K, block_weights(w, i), &r) ? r.d : BERTH_HALF_NAN;
        for (int g = 0; g < N_GROUPS; g++) {
            y[i].qs[g] = (uint8_t) r.point[g];
            y[i].qh[g / 8] |= (uint8_t) (r.point[g] >> 8 << (g % 8));
        }
        memcpy(y[i].signs, r.sign, sizeof(r.sign));
        for (int c = 0; c < N_CELLS; c++) {
            y[i].scales[c / 2] |= (uint8_t) (r.scale[c] << (4 * (c % 2)));
        }
    }
}

void quantize_row_iq3_s_ref(const float *GGML_RESTRICT x, block_iq3_s *GGML_RESTRICT y, int64_t k) {
    quantize_blocks_iq3_s(x, y, k / QK_K, NULL);
}

void dequantize_row_iq3_s(const block_iq3_s *GGML_RESTRICT x, float *GGML_RESTRICT y, int64_t k) {
    for (int64_t i = 0; i < k / QK_K; i++, y += QK_K) {
        const float d = berth_half_to_float(x[i].d);
        for (int o = 0; o < N_OCTETS; o++) {
            const int c = o / 4;
            const float scale = d * (float) (1 + 2 * (x[i].scales[c / 2] >> (4 * (c % 2)) & 15));
            unsigned point[2];
            for (int h = 0; h < 2; h++) {
                const int g = 2 * o + h;
                point[h] = x[i].qs[g] | (unsigned) (x[i].qh[g / 8] >> (g % 8) & 1) << 8;
            }
            write_octet(&lattice_s, point, x[i].signs[o], scale, y + o * 8);
        }
    }
}

BERTH_QUANTIZE_WEIGHTED(iq3_s, QK_K)

// ---- tables ----

// For the API only: Berth's tables are constant.
void iq3xs_init_impl(int grid_size) {
    (void) grid_size;
}

void iq3xs_free_impl(int grid_size) {
    (void) grid_size;
}
