// SPDX-License-Identifier: MIT
// iq1.c: iq1_s iq1_m: groups of 8 elements as points of a codebook with the values -1, 0 and 1:
// x = d * (2 * scale + 1) * (value + shift). The shift of a group is +1/8 or -1/8. The index of a point has 11 bits; qs holds the
// low 8.
//
//     iq1_s   a 3-bit scale and one shift per 32 elements. A word of qh holds both, and the upper 3 bits of four indices.
//     iq1_m   a 3-bit scale per 16 elements and a shift per 8. A nibble of qh holds the upper 3 bits of an index and its shift.
//             scales holds four 16-bit words. The low 12 bits of a word are four scales; the upper nibbles form the f16 d.
#include "quant/grids.h"
#include "quant/lattice.h"
#include "quant/quants.h"
#include "quant/round.h"

enum { GROUP = 8, N_GROUPS = QK_K / GROUP };

static const struct lattice lattice = LATTICE(grid_iq1, runs_iq1, GROUP, 2, 3, -1, 0, 1);
static const float levels[8] = {1, 3, 5, 7, 9, 11, 13, 15};
static const float shift = 0.125f;

// The argument `share` of frame_growth for iq1_m. With 1, the squared error would exceed the reference's.
#define GROWTH_SHARE_M 0.9f

// ---- search ----

struct result {
    uint16_t d;
    uint16_t point[N_GROUPS];
    uint8_t down[N_GROUPS]; // 1: shifted down
    uint8_t scale[N_GROUPS / 2];
};

// Computes parts (lattice.h) for both shifts, so that the shift can be chosen at every scale. shared_shift: all groups of the
// cell have the same shift.
static void cell_init_both_shifts(const struct frame *f, int at, int n_groups, bool shared_shift, struct cell *cell) {
    memset(cell->unit, 0, sizeof(cell->unit));
    cell->n_units = shared_shift ? 1 : n_groups;
    for (int g = 0; g < n_groups; g++, at += GROUP) {
        struct unit *unit = &cell->unit[shared_shift ? 0 : g];
        unit->n_ways = 2;
        for (int down = 0; down < 2; down++) {
            struct way *way = &unit->way[down];
            way->part[way->n_parts++] = (uint8_t) (2 * g + down);
            berth_lattice_part(&lattice, f->x + at, f->w + at, down ? -shift : shift, false, cell->lo, cell->hi,
                LATTICE_MAX_DEPTH, &cell->part[2 * g + down]);
        }
    }
}

// Chooses the shifts at the middle of the range of scales and stores them in `down`. Computes parts for the chosen shifts only.
static void cell_init_one_shift(
    const struct frame *f, int at, int n_groups, bool shared_shift, struct cell *cell, uint8_t *down) {
    const float middle = 0.5f * (cell->lo + cell->hi);
    const int step = shared_shift ? n_groups : 1;
    cell->n_units = n_groups;
    for (int g = 0; g < n_groups; g += step) {
        const float *x = f->x + at + g * GROUP, *w = f->w + at + g * GROUP;
        const int d = berth_lattice_shift(&lattice, x, w, step, shift, cell->lo, middle, cell->hi, &cell->part[g]);
        for (int i = g; i < g + step; i++) {
            cell->unit[i] = (struct unit){1, {{1, {(uint8_t) i}}}};
            down[i] = (uint8_t) d;
        }
    }
}

// n_groups groups share a scale. shared_shift: the groups also share a shift. If an element is not finite, returns false.
static bool block_fit(int n_groups, bool shared_shift, const float *x, const float *w, struct result *out) {
    struct frame f;
    struct cell cells[LATTICE_MAX_CELLS];
    float d;
    memset(out, 0, sizeof(*out));
    if (!frame_init(&f, x, w, QK_K)) {
        return false;
    }
    for (int c = 0; c < N_GROUPS / n_groups; c++) {
        struct cell *cell = &cells[c];
        const int at = c * n_groups * GROUP;
        const float amax = v4_largest(f.x + at, n_groups * GROUP);
        // A scale of amax writes the largest element as about 1, the largest value. Smaller scales clip the largest element. Hard
        // blocks need a wider range, because few elements matter.
        cell->lo = amax * (shared_shift ? 0.35f : 0.4f);
        cell->hi = amax * (shared_shift ? 0.75f : 0.8f);
        if (f.hard) {
            cell->lo = amax * (1.0f / 32);
            cell->hi = amax * 1.5f;
        }
        cell->n_parts = f.hard ? 2 * n_groups : n_groups;
        if (f.hard) {
            cell_init_both_shifts(&f, at, n_groups, shared_shift, cell);
        } else {
            cell_init_one_shift(&f, at, n_groups, shared_shift, cell, out->down + c * n_groups);
        }
    }
    out->d = berth_lattice_fit(&f, cells, N_GROUPS / n_groups, levels, 8, shared_shift ? 1.0f : GROWTH_SHARE_M, &d, out->scale);
    for (int g = 0; g < N_GROUPS; g++) {
        const struct cell *cell = &cells[g / n_groups];
        const float scale = d * levels[out->scale[g / n_groups]];
        int part = g % n_groups;
        if (f.hard) {
            const struct unit *unit = &cell->unit[shared_shift ? 0 : g % n_groups];
            out->down[g] = (uint8_t) berth_lattice_way(cell, unit, scale);
            part = 2 * part + out->down[g];
        }
        int point = berth_lattice_point(cell, part, scale);
        if (point < 0) {
            point = berth_lattice_best(&lattice, f.x + g * GROUP, f.w + g * GROUP, out->down[g] ? -shift : shift, false, scale);
        }
        out->point[g] = (uint16_t) point;
    }
    return true;
}

static void write_group(unsigned point, bool down, float scale, float *y) {
    for (int k = 0; k < GROUP; k++) {
        y[k] = scale * (lattice_value(&lattice, (int) point, k) + (down ? -shift : shift));
    }
}

// ---- iq1_s ----

static void quantize_blocks_iq1_s(const float *x, block_iq1_s *y, int64_t n, const float *w) {
    for (int64_t i = 0; i < n; i++) {
        struct result r;
        y[i].d = block_fit(4, true, x + i * QK_K, block_weights(w, i), &r) ? r.d : BERTH_HALF_NAN;
        for (int c = 0; c < 8; c++) {
            unsigned head = (unsigned) r.scale[c] << 12 | (unsigned) r.down[4 * c] << 15;
            for (int u = 0; u < 4; u++) {
                y[i].qs[4 * c + u] = (uint8_t) r.point[4 * c + u];
                head |= (unsigned) r.point[4 * c + u] >> 8 << (3 * u);
            }
            y[i].qh[c] = (uint16_t) head;
        }
    }
}

void dequantize_row_iq1_s(const block_iq1_s *GGML_RESTRICT x, float *GGML_RESTRICT y, int64_t k) {
    for (int64_t i = 0; i < k / QK_K; i++, y += QK_K) {
        const float d = berth_half_to_float(x[i].d);
        for (int g = 0; g < N_GROUPS; g++) {
            const unsigned head = x[i].qh[g / 4];
            const float scale = d * (float) (2 * (head >> 12 & 7) + 1);
            write_group(x[i].qs[g] | (head >> (3 * (g % 4)) & 7) << 8, head >> 15, scale, y + g * GROUP);
        }
    }
}

BERTH_QUANTIZE_WEIGHTED(iq1_s, QK_K)

// ---- iq1_m ----

static unsigned word_of(const uint8_t *scales, int i) {
    return scales[2 * i] | (unsigned) scales[2 * i + 1] << 8;
}

static void quantize_blocks_iq1_m(const float *x, block_iq1_m *y, int64_t n, const float *w) {
    for (int64_t i = 0; i < n; i++) {
        struct result r;
        memset(&y[i], 0, sizeof(y[i]));
        const unsigned d = block_fit(2, false, x + i * QK_K, block_weights(w, i), &r) ? r.d : BERTH_HALF_NAN;
        for (int g = 0; g < N_GROUPS; g++) {
            y[i].qs[g] = (uint8_t) r.point[g];
            y[i].qh[g / 2] |= (uint8_t) ((r.point[g] >> 8 | r.down[g] << 3) << (4 * (g % 2)));
        }
        for (int k = 0; k < 4; k++) {
            unsigned word = (d >> (4 * k) & 15) << 12;
            for (int c = 0; c < 4; c++) {
                word |= (unsigned) r.scale[4 * k + c] << (3 * c);
            }
            y[i].scales[2 * k] = (uint8_t) word;
            y[i].scales[2 * k + 1] = (uint8_t) (word >> 8);
        }
    }
}

void dequantize_row_iq1_m(const block_iq1_m *GGML_RESTRICT x, float *GGML_RESTRICT y, int64_t k) {
    for (int64_t i = 0; i < k / QK_K; i++, y += QK_K) {
        unsigned h = 0;
        for (int j = 0; j < 4; j++) {
            h |= word_of(x[i].scales, j) >> 12 << (4 * j);
        }
        const float d = berth_half_to_float((uint16_t) h);
        for (int g = 0; g < N_GROUPS; g++) {
            const unsigned head = x[i].qh[g / 2] >> (4 * (g % 2)) & 15;
            const unsigned s = word_of(x[i].scales, g / 8) >> (3 * (g / 2 % 4)) & 7;
            write_group(x[i].qs[g] | (head & 7) << 8, head >> 3, d * (float) (2 * s + 1), y + g * GROUP);
        }
    }
}

BERTH_QUANTIZE_WEIGHTED(iq1_m, QK_K)
