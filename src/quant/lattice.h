// SPDX-License-Identifier: MIT
// lattice.h: x = d * level[cell] * point, for groups of elements that are written as points of a codebook.
//
// A superblock is a row of cells: elements that share a level. A cell is made of units; a unit may be written in one of up to two
// ways (a sign flipped here or there, a shift up or down), each a sum of parts. A part is one point of the codebook.
//
//     superblock --> cell (8 or 16) --> unit --> way (1 or 2) --> part --> point
#pragma once

#include "quant/normalise.h"

enum {
    LATTICE_MAX_CELLS = 16,
    LATTICE_MAX_UNITS = 4,
    LATTICE_MAX_PARTS = 16,
    LATTICE_MAX_DEPTH = 3,
    LATTICE_MAX_STEPS = 1 + (1 << LATTICE_MAX_DEPTH)
};

// A codebook: words of dim fields of n_bits, each numbering one of n_values values, and its runs (grids.h).
struct lattice {
    const uint16_t *points;
    const uint16_t *runs;
    int dim, n_bits;
    int n_values;
    float values[8];
};
#define LATTICE(points, runs, dim, n_bits, n_values, ...) \
    { \
        points, runs, dim, n_bits, n_values, { \
            __VA_ARGS__ \
        } \
    }

// The best point for every scale: point[i] from step[i] up to step[i + 1]. With a = sum(w x g) and b = sum(w g g) over its values
// g, writing the elements as scale * g takes 2 * scale * a - scale^2 * b off their sum of squares.
struct part {
    int n;
    float step[LATTICE_MAX_STEPS];
    float a[LATTICE_MAX_STEPS];
    float b[LATTICE_MAX_STEPS];
    uint16_t point[LATTICE_MAX_STEPS];
};

struct way {
    int n_parts;
    uint8_t part[4]; // of the cell
};

struct unit {
    int n_ways;
    struct way way[2];
};

struct cell {
    float lo, hi; // scales the parts were made for
    int n_units, n_parts;
    struct unit unit[LATTICE_MAX_UNITS];
    struct part part[LATTICE_MAX_PARTS];
};

// Fills the part for dim elements. x: signed, or magnitudes where signs are kept apart. shift is added to every value. flipped:
// one element, the one that costs least, is written with the wrong sign. Scales from lo to hi are told apart; beyond, the ends
// hold. depth: 1 + 2^depth steps at most; LATTICE_MAX_DEPTH where a block is hard.
void berth_lattice_part(const struct lattice *lattice, const float *x, const float *w, float shift, bool flipped, float lo,
    float hi, int depth, struct part *part);

// Both, as it is and flipped, without a shift.
void berth_lattice_parts(const struct lattice *lattice, const float *x, const float *w, float lo, float hi, int depth,
    struct part *plain, struct part *flipped);

// The shift, up (0) or down (1), that is better at the middle scale for n_groups groups together, and their parts with it: the
// best points at three scales.
int berth_lattice_shift(const struct lattice *lattice, const float *x, const float *w, int n_groups, float shift, float lo,
    float middle, float hi, struct part *parts);

// The point of a part (an index into the codebook) at one scale; -1 for a scale that the cell was not made for.
int berth_lattice_point(const struct cell *cell, int part, float scale);
// The best point at one scale, exactly. Arguments as in lattice_part.
int berth_lattice_best(const struct lattice *lattice, const float *x, const float *w, float shift, bool flipped, float scale);
// The way a unit is written at this scale.
int berth_lattice_way(const struct cell *cell, const struct unit *unit, float scale);

// Chooses a level of levels[0..n_levels) for each cell, and d: *d is the one that points are chosen for; the half returned, a
// little larger, is the one to be written with them (frame_growth, part).
uint16_t berth_lattice_fit(const struct frame *f, const struct cell *cells, int n_cells, const float *levels, int n_levels,
    float part, float *d, uint8_t *level);

// Element to be flipped so that a point written with one wrong sign costs least.
int berth_lattice_flip(const struct lattice *lattice, int point, const float *x, const float *w);

static inline float lattice_value(const struct lattice *l, int point, int k) {
    return l->values[l->points[point] >> (l->n_bits * k) & ((1 << l->n_bits) - 1)];
}
