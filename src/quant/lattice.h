// SPDX-License-Identifier: MIT
// lattice.h: fits x = d * level[cell] * point to a superblock of an iq format. Each group of 4 or 8 elements is written as a
// point, which is an entry of a codebook.
//
// A cell is a set of elements that share an integer scale, the level. A cell is divided into units. A way is one of the one or
// two encodings of a unit. The two ways of a unit differ in a flipped sign or in a shift. A way consists of parts. A part is one
// group of elements, with its best point at every scale. A part stores two sums for each point, a and b (struct part). The sums a
// and b of a way are the totals over its parts.
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

// A codebook. A point is a word of dim fields of n_bits each. A field is an index into `values`. A run is the consecutive points
// with the same upper half. runs[i] is the index of the first point of run i (grids.h).
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

// The best point of a group for every scale: point[i] for scales from step[i] up to step[i + 1]. g: the values of the point.
// a = sum(w x g), b = sum(w g g). The squared error of writing the elements as scale * g is sum(w x x) - gain, with
// gain = 2 * scale * a - scale^2 * b.
struct part {
    int n;
    float step[LATTICE_MAX_STEPS];
    float a[LATTICE_MAX_STEPS];
    float b[LATTICE_MAX_STEPS];
    uint16_t point[LATTICE_MAX_STEPS];
};

struct way {
    int n_parts;
    uint8_t part[4]; // indices into the parts of the cell
};

struct unit {
    int n_ways;
    struct way way[2];
};

struct cell {
    float lo, hi; // range of scales for which the parts were computed
    int n_units, n_parts;
    struct unit unit[LATTICE_MAX_UNITS];
    struct part part[LATTICE_MAX_PARTS];
};

// Computes the part of dim elements for scales from lo to hi. x: signed, or magnitudes if signs are stored separately. shift:
// added to every value. flipped: computes the part with one wrong sign, at the element where it costs least; for combinations of
// signs that the format cannot store. depth: the part has at most 1 + 2^depth steps; LATTICE_MAX_DEPTH for hard blocks
// (normalise.h).
void berth_lattice_part(const struct lattice *lattice, const float *x, const float *w, float shift, bool flipped, float lo,
    float hi, int depth, struct part *part);

// Computes two parts without a shift: not flipped and flipped.
void berth_lattice_parts(const struct lattice *lattice, const float *x, const float *w, float lo, float hi, int depth,
    struct part *plain, struct part *flipped);

// Returns the better shift at the scale `middle` for n_groups groups together: up (0) or down (1). Then computes the parts of the
// groups with this shift. Such a part has at most three points: the best ones at the scales lo, middle and hi.
int berth_lattice_shift(const struct lattice *lattice, const float *x, const float *w, int n_groups, float shift, float lo,
    float middle, float hi, struct part *parts);

// Returns the point of a part at a scale, an index into the codebook. If the scale is outside the range of the cell, returns -1.
int berth_lattice_point(const struct cell *cell, int part, float scale);
// Searches the codebook for the best point at one scale. Arguments as in berth_lattice_part.
int berth_lattice_best(const struct lattice *lattice, const float *x, const float *w, float shift, bool flipped, float scale);
// Returns the better way of a unit at this scale: 0 or 1.
int berth_lattice_way(const struct cell *cell, const struct unit *unit, float scale);

// Chooses *d, and for each cell an index level[i] into levels[0..n_levels). The caller then chooses the points for the scales
// *d * levels[level[i]]. Returns the f16 to store as d. It is a little larger than *d, because a least-squares fit makes dot
// products too small (frame_growth). growth_share: the part of this correction that is applied, at most 1.
uint16_t berth_lattice_fit(const struct frame *f, const struct cell *cells, int n_cells, const float *levels, int n_levels,
    float growth_share, float *d, uint8_t *level);

// Returns the element for which a wrong sign costs least at this point.
int berth_lattice_flip(const struct lattice *lattice, int point, const float *x, const float *w);

static inline float lattice_value(const struct lattice *l, int point, int k) {
    return l->values[l->points[point] >> (l->n_bits * k) & ((1 << l->n_bits) - 1)];
}
