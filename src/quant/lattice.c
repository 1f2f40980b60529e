// SPDX-License-Identifier: MIT
// lattice.c: which points of a codebook, and which scales, leave the least squared error?
//
// Writing a group as scale * g takes f(scale) = 2 * scale * a - scale^2 * b off its sum of squares, where a = sum(w x g) and
// b = sum(w g g) depend on the point g but not on the scale. f / scale = 2a - scale * b is a straight line for each point, so the
// best point as a function of the scale is the upper envelope of lines: a handful of steps, found once a group. From then on
// every scale is tried exactly, for all groups of a superblock, without going back to the codebook:
//   - a cell's own best scale is at some stretch between steps, where it is a / b of the stretch;
//   - d is tried over a range of places for the largest cell, then refitted by least squares to the points it chose.
// a and b of all points come from tables over half points: two look-ups a point.
// Cost: three passes over the codebook a group, then about 10,000 look-ups of steps a superblock.
#include "quant/lattice.h"
#include "quant/vec.h"

#include <string.h>

// ---- one group: the envelope ----

// a, b and least cost of a wrong sign, for all values of half a point.
struct half_point {
    float a, b, flip;
};

static void half_points(
    const struct lattice *l, const float *x, const float *w, float shift, int k0, int k1, struct half_point *out) {
    const int n_bits = l->n_bits;
    out[0]           = (struct half_point){0.0f, 0.0f, INFINITY};
    // Fields are added one at a time above those that are done; downward, so that the sums without the field are still there.
    for (int k = k0, n = 1; k < k1; k++, n <<= n_bits) {
        for (int v = l->n_values - 1; v >= 0; v--) {
            const float g  = l->values[v] + shift;
            const float xg = w[k] * x[k] * g;
            const float gg = w[k] * g * g;
            for (int code = 0; code < n; code++) {
                struct half_point *p = &out[v * n + code];
                p->a                 = out[code].a + xg;
                p->b                 = out[code].b + gg;
                p->flip              = xg < out[code].flip ? xg : out[code].flip;
            }
        }
    }
}

// Lines of a set of points: twice a, and b. n is a multiple of 4.
struct lines {
    int n;
    _Alignas(16) float a2[LATTICE_MAX_POINTS];
    _Alignas(16) float b[LATTICE_MAX_POINTS];
    uint16_t point[LATTICE_MAX_POINTS];
};

static int highest(const struct lines *l, float scale) {
    v4f best      = v4_load(l->a2) - v4_all(scale) * v4_load(l->b);
    v4i best_at   = {0, 1, 2, 3};
    v4i at        = best_at;
    const v4i dat = {4, 4, 4, 4};
    for (int i = 4; i < l->n; i += 4) {
        const v4f v  = v4_load(l->a2 + i) - v4_all(scale) * v4_load(l->b + i);
        const v4i up = v > best;
        at += dat;
        best    = v4_select(up, v, best);
        best_at = (up & at) | (~up & best_at);
    }
    int k = 0;
    for (int i = 1; i < 4; i++) {
        k = best[i] > best[k] ? i : k;
    }
    return best_at[k];
}

// Scale at which the higher b of two lines gives way.
static float crossing(const struct lines *l, int i, int j) {
    return (l->a2[i] - l->a2[j]) / (l->b[i] - l->b[j]);
}

static void put_step(const struct lines *l, int i, float from, struct part *p) {
    p->step[p->n]  = from;
    p->a[p->n]     = 0.5f * l->a2[i];
    p->b[p->n]     = l->b[i];
    p->point[p->n] = l->point[i];
    p->n++;
}

// Steps after line i, the last of them to line j. Both are on the envelope, b of i above b of j.
static void envelope(const struct lines *l, int i, int j, int room, struct part *p) {
    const float at = crossing(l, i, j);
    const int k    = room > 0 ? highest(l, at) : i;
    const float yi = l->a2[i] - at * l->b[i];
    const float yk = l->a2[k] - at * l->b[k];
    if (k != i && k != j && yk > yi + 1e-6f * fabsf(yi) && l->b[k] < l->b[i] && l->b[k] > l->b[j]) {
        envelope(l, i, k, room - 1, p);
        envelope(l, k, j, room - 1, p);
    } else if (p->n < LATTICE_MAX_STEPS) {
        put_step(l, j, at, p);
    }
}

void lattice_part(const struct lattice *lattice, const float *x, const float *w, float shift, bool flipped, float lo, float hi,
    struct part *part) {
    struct half_point low[256], high[256];
    struct lines all, above;
    const int half  = lattice->dim / 2;
    const int width = half * lattice->n_bits;
    half_points(lattice, x, w, shift, 0, half, low);
    half_points(lattice, x, w, shift, half, lattice->dim, high);
    all.n = lattice->n_points;
    for (int i = 0; i < all.n; i++) {
        const struct half_point *p = &low[lattice->points[i] & ((1 << width) - 1)];
        const struct half_point *q = &high[lattice->points[i] >> width];
        const float flip           = p->flip < q->flip ? p->flip : q->flip;
        all.a2[i]                  = 2.0f * (p->a + q->a - (flipped ? 2.0f * flip : 0.0f));
        all.b[i]                   = p->b + q->b;
        all.point[i]               = (uint16_t) i;
    }
    const int first = highest(&all, lo);
    const int last  = highest(&all, hi);
    part->n         = 0;
    put_step(&all, first, 0.0f, part);
    if (first == last || !(all.b[first] > all.b[last])) {
        return;
    }
    // Only lines above the crossing of the ends can show between them.
    const float at    = crossing(&all, first, last);
    const float floor = all.a2[first] - at * all.b[first];
    above.n           = 0;
    for (int i = 0; i < all.n; i++) {
        above.a2[above.n]    = all.a2[i];
        above.b[above.n]     = all.b[i];
        above.point[above.n] = all.point[i];
        above.n += all.a2[i] - at * all.b[i] > floor && i != first && i != last;
        if (above.n == LATTICE_MAX_POINTS - 8) {
            break;
        }
    }
    const int ends[2] = {first, last};
    for (int e = 0; e < 2 || above.n % 4 != 0; e++) {
        above.a2[above.n]    = all.a2[ends[e & 1]];
        above.b[above.n]     = all.b[ends[e & 1]];
        above.point[above.n] = all.point[ends[e & 1]];
        above.n++;
    }
    int i = 0;
    while (above.point[i] != first) {
        i++;
    }
    int j = 0;
    while (above.point[j] != last) {
        j++;
    }
    envelope(&above, i, j, 8, part);
}

// ---- look-ups ----

static inline int step_at(const struct part *p, float scale) {
    int i = 0;
    while (i + 1 < p->n && scale >= p->step[i + 1]) {
        i++;
    }
    return i;
}

int lattice_point(const struct part *part, float scale) {
    return part->point[step_at(part, scale)];
}

struct ab {
    float a, b;
};

static inline float gain(struct ab t, float scale) {
    return scale * (2.0f * t.a - scale * t.b);
}

static struct ab way_at(const struct cell *cell, const struct way *way, float scale) {
    struct ab t = {0.0f, 0.0f};
    for (int i = 0; i < way->n_parts; i++) {
        const struct part *p = &cell->part[way->part[i]];
        const int k          = step_at(p, scale);
        t.a += p->a[k];
        t.b += p->b[k];
    }
    return t;
}

int lattice_way(const struct cell *cell, const struct unit *unit, float scale) {
    return unit->n_ways > 1 && gain(way_at(cell, &unit->way[1], scale), scale) > gain(way_at(cell, &unit->way[0], scale), scale);
}

static struct ab cell_at(const struct cell *cell, float scale) {
    struct ab sum = {0.0f, 0.0f};
    for (int u = 0; u < cell->n_units; u++) {
        const struct unit *unit = &cell->unit[u];
        struct ab t             = way_at(cell, &unit->way[0], scale);
        if (unit->n_ways > 1) {
            const struct ab other = way_at(cell, &unit->way[1], scale);
            t                     = gain(other, scale) > gain(t, scale) ? other : t;
        }
        sum.a += t.a;
        sum.b += t.b;
    }
    return sum;
}

int lattice_flip(const struct lattice *lattice, int point, const float *x, const float *w) {
    int best   = 0;
    float cost = INFINITY;
    for (int k = 0; k < lattice->dim; k++) {
        const float c = w[k] * x[k] * lattice_value(lattice, point, k);
        if (c < cost) {
            cost = c;
            best = k;
        }
    }
    return best;
}

// ---- a superblock ----

// The scale a cell would choose alone.
static float own_scale(const struct cell *cell) {
    float best  = 0.0f;
    float scale = 0.0f;
    for (int p = 0; p < cell->n_parts; p++) {
        for (int i = 0; i < cell->part[p].n; i++) {
            const struct ab t = cell_at(cell, cell->part[p].step[i]);
            if (t.a > 0.0f && t.a * t.a > best * t.b) {
                best  = t.a * t.a / t.b;
                scale = t.a / t.b;
            }
        }
    }
    return scale;
}

struct choice {
    float d;
    uint16_t h;
    float gain;
    uint8_t level[LATTICE_MAX_CELLS];
};

// With d fixed, each cell takes the best level next to its own scale.
static void choose_levels(
    const struct cell *cells, int n_cells, const float *own, const float *levels, int n_levels, int reach, struct choice *c) {
    const float step = levels[1] - levels[0];
    c->gain          = 0.0f;
    for (int i = 0; i < n_cells; i++) {
        const float place = c->d > 0.0f ? (own[i] / c->d - levels[0]) / step : 0.0f;
        const int middle  = place < 0.0f ? 0 : place > (float) (n_levels - 1) ? n_levels - 1 : (int) (place + 0.5f);
        const int from    = middle - reach < 0 ? 0 : middle - reach;
        const int to      = middle + reach > n_levels - 1 ? n_levels - 1 : middle + reach;
        float best        = -INFINITY;
        for (int k = from; k <= to; k++) {
            const float scale = c->d * levels[k];
            const float g     = gain(cell_at(&cells[i], scale), scale);
            if (g > best || k == from) {
                best        = g;
                c->level[i] = (uint8_t) k;
            }
        }
        c->gain += best;
    }
}

static float refit(const struct cell *cells, int n_cells, const float *levels, const struct choice *c) {
    float a = 0.0f;
    float b = 0.0f;
    for (int i = 0; i < n_cells; i++) {
        const float level = levels[c->level[i]];
        const struct ab t = cell_at(&cells[i], c->d * level);
        a += level * t.a;
        b += level * level * t.b;
    }
    return a > 0.0f ? a / b : 0.0f;
}

uint16_t lattice_fit(
    const struct frame *f, const struct cell *cells, int n_cells, const float *levels, int n_levels, float *d, uint8_t *level) {
    enum { N_ROUNDS = 4 };
    float own[LATTICE_MAX_CELLS] = {0};
    float max                    = 0.0f;
    struct choice best           = {.d = 0.0f};
    for (int i = 0; i < n_cells; i++) {
        own[i] = own_scale(&cells[i]);
        max    = own[i] > max ? own[i] : max;
    }
    // The largest cell at the top level, beyond it, or as low as the middle, in quarter steps.
    const float top     = levels[n_levels - 1];
    const float quarter = 0.25f * (levels[1] - levels[0]);
    for (int t = -4; t < 2 * n_levels; t++) {
        struct choice c = {.d = max / (top - quarter * (float) t)};
        c.h             = frame_round_half(f, &c.d);
        choose_levels(cells, n_cells, own, levels, n_levels, 1, &c);
        if (c.gain > best.gain) {
            best = c;
        }
    }
    for (int round = 0; round < N_ROUNDS && best.d > 0.0f; round++) {
        struct choice c = {.d = refit(cells, n_cells, levels, &best)};
        c.h             = frame_round_half(f, &c.d);
        if (c.h == best.h) {
            break;
        }
        choose_levels(cells, n_cells, own, levels, n_levels, 2, &c);
        if (!(c.gain > best.gain)) {
            break;
        }
        best = c;
    }
    *d = best.d;
    memcpy(level, best.level, (size_t) n_cells);
    return best.h;
}
