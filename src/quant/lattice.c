// SPDX-License-Identifier: MIT
// lattice.c: which points of a codebook, and which scales, leave the least squared error?
//
// Writing a group as scale * g takes f(scale) = 2 * scale * a - scale^2 * b off its sum of squares, where a = sum(w x g) and
// b = sum(w g g) depend on the point g but not on the scale. f / scale = 2a - scale * b is a straight line for each point, so the
// best point as a function of the scale is the upper envelope of lines: a handful of steps, found once a group. From then on
// every scale is tried exactly, for all groups of a superblock, without going back to the codebook:
//   - a cell's own scale is the best of some places, moved to a / b of the points chosen there until it stands still;
//   - d is tried over a range of places for the largest cell, then refitted by least squares to the points it chose.
//
// The best point at one scale: the line of a point is the sum of those of its halves, of which there are at most 81 each. Points
// that share an upper half stand together, and a run is passed over if its upper half, with the best of all lower halves, falls
// short of the best point so far. A few runs in a hundred are left.
#include "quant/lattice.h"
#include "base/base.h"
#include "quant/vec.h"

#include <string.h>

// ---- one group: the envelope ----

enum { MAX_HALF_CODES = 256, MAX_RUNS = 96 };

// Lines of the halves of all points: twice a, b, and the least cost of a wrong sign.
struct half {
    _Alignas(16) float a2[MAX_HALF_CODES];
    _Alignas(16) float b[MAX_HALF_CODES];
    _Alignas(16) float flip[MAX_HALF_CODES];
};

struct group {
    const struct lattice *lattice;
    bool flipped;
    int width;   // bits of half a point
    int n_codes; // lower halves up to the last that is not void; a multiple of 4
    struct half low;
    struct half run; // upper halves, by run
};

static void half_init(const struct lattice *l, const float *x, const float *w, float shift, int n_codes, struct half *half) {
    for (int i = 0; i < n_codes; i++) {
        half->a2[i] = -1e30f; // void codes are never the best
        half->b[i]  = 0.0f;
    }
    half->a2[0]   = 0.0f;
    half->flip[0] = INFINITY;
    // Fields are added one at a time above those that are done; downward, so that the sums without the field are still there.
    for (int k = 0, n = 1; k < l->dim / 2; k++, n <<= l->n_bits) {
        for (int v = l->n_values - 1; v >= 0; v--) {
            const float g  = l->values[v] + shift;
            const float xg = w[k] * x[k] * g;
            const float gg = w[k] * g * g;
            for (int code = 0; code < n; code++) {
                half->a2[v * n + code]   = half->a2[code] + 2.0f * xg;
                half->b[v * n + code]    = half->b[code] + gg;
                half->flip[v * n + code] = xg < half->flip[code] ? xg : half->flip[code];
            }
        }
    }
}

static void group_init(const struct lattice *l, const float *x, const float *w, float shift, bool flipped, struct group *g) {
    const int half_dim = l->dim / 2;
    struct half high;
    g->lattice = l;
    g->flipped = flipped;
    g->width   = half_dim * l->n_bits;
    g->n_codes = 0;
    for (int k = 0; k < half_dim; k++) {
        g->n_codes |= (l->n_values - 1) << (k * l->n_bits);
    }
    g->n_codes = (g->n_codes + 4) & ~3;
    half_init(l, x, w, shift, g->n_codes, &g->low);
    half_init(l, x + half_dim, w + half_dim, shift, g->n_codes, &high);
    for (int r = 0; r < l->n_runs; r++) {
        const int code = l->points[l->runs[r]] >> g->width;
        g->run.a2[r]   = high.a2[code];
        g->run.b[r]    = high.b[code];
        g->run.flip[r] = high.flip[code];
    }
}

// A point with its line.
struct point {
    int index, run;
    float a2, b;
};

// Height and place of the best point so far.
struct peak {
    float y;
    int index, run;
};

static inline void scan_run(const struct group *g, int run, const float *low, float base, struct peak *best) {
    const uint16_t *points = g->lattice->points;
    const int mask         = (1 << g->width) - 1;
    const int end          = g->lattice->runs[run + 1];
    const float high_flip  = g->run.flip[run];
    for (int i = g->lattice->runs[run]; i < end; i++) {
        const int code = points[i] & mask;
        float y        = base + low[code];
        if (BERTH_UNLIKELY(y > best->y)) {
            if (g->flipped) {
                y -= 4.0f * (g->low.flip[code] < high_flip ? g->low.flip[code] : high_flip);
            }
            if (y > best->y) {
                *best = (struct peak){y, i, run};
            }
        }
    }
}

static struct point highest(const struct group *g, float scale) {
    const int n_runs = g->lattice->n_runs;
    _Alignas(16) float low[MAX_HALF_CODES];
    _Alignas(16) float high[MAX_RUNS];
    v4f top = v4_all(-INFINITY);
    for (int i = 0; i < g->n_codes; i += 4) {
        const v4f y = v4_load(g->low.a2 + i) - v4_all(scale) * v4_load(g->low.b + i);
        top         = v4_max(top, y);
        v4_store(low + i, y);
    }
    top                = v4_max(top, (v4f){top[2], top[3], top[0], top[1]});
    const float summit = top[0] > top[1] ? top[0] : top[1];
    int first          = 0;
    float first_y      = -INFINITY;
    for (int r = 0; r < n_runs; r++) {
        high[r] = g->run.a2[r] - scale * g->run.b[r];
        if (BERTH_UNLIKELY(high[r] > first_y)) {
            first_y = high[r];
            first   = r;
        }
    }
    struct peak best = {-INFINITY, 0, 0};
    scan_run(g, first, low, first_y, &best);
    for (int r = 0; r < n_runs; r++) {
        if (high[r] + summit > best.y && r != first) {
            scan_run(g, r, low, high[r], &best);
        }
    }
    const int code = g->lattice->points[best.index] & ((1 << g->width) - 1);
    const float lf = g->low.flip[code];
    const float hf = g->run.flip[best.run];
    return (struct point){best.index, best.run,
        g->low.a2[code] + g->run.a2[best.run] - (g->flipped ? 4.0f * (lf < hf ? lf : hf) : 0.0f),
        g->low.b[code] + g->run.b[best.run]};
}

static void put_step(struct point at, float from, struct part *p) {
    p->step[p->n]  = from;
    p->a[p->n]     = 0.5f * at.a2;
    p->b[p->n]     = at.b;
    p->point[p->n] = (uint16_t) at.index;
    p->n++;
}

// Steps after point i, the last of them to point j. Both are on the envelope, b of i above b of j.
static void envelope(const struct group *g, struct point i, struct point j, int depth, struct part *p) {
    const float at       = (i.a2 - j.a2) / (i.b - j.b);
    const struct point k = depth > 0 ? highest(g, at) : i;
    const float yi       = i.a2 - at * i.b;
    const float yk       = k.a2 - at * k.b;
    // A point that shows by less than a thousandth is left out.
    if (yk > yi + 1e-3f * fabsf(yi) && k.b < i.b && k.b > j.b) {
        envelope(g, i, k, depth - 1, p);
        envelope(g, k, j, depth - 1, p);
    } else {
        put_step(j, at, p);
    }
}

void berth_lattice_part(const struct lattice *lattice, const float *x, const float *w, float shift, bool flipped, float lo,
    float hi, struct part *part) {
    enum { DEPTH = 3 }; // 1 + 2^3 steps at most
    struct group g;
    group_init(lattice, x, w, shift, flipped, &g);
    const struct point first = highest(&g, lo);
    const struct point last  = highest(&g, hi);
    part->n                  = 0;
    put_step(first, 0.0f, part);
    if (first.index != last.index && first.b > last.b) {
        envelope(&g, first, last, DEPTH, part);
    }
}

int berth_lattice_best(const struct lattice *lattice, const float *x, const float *w, float shift, bool flipped, float scale) {
    struct group g;
    group_init(lattice, x, w, shift, flipped, &g);
    return highest(&g, scale).index;
}

// ---- look-ups ----

static inline int step_at(const struct part *p, float scale) {
    int i = 0;
    while (i + 1 < p->n && scale >= p->step[i + 1]) {
        i++;
    }
    return i;
}

int berth_lattice_point(const struct cell *cell, int part, float scale) {
    return scale < cell->lo || scale > cell->hi ? -1 : cell->part[part].point[step_at(&cell->part[part], scale)];
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

int berth_lattice_way(const struct cell *cell, const struct unit *unit, float scale) {
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

int berth_lattice_flip(const struct lattice *lattice, int point, const float *x, const float *w) {
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
    enum { N_TRIALS = 16, N_ROUNDS = 3 };
    const float factor = cell->lo > 0.0f ? powf(cell->hi / cell->lo, 1.0f / (N_TRIALS - 1)) : 1.0f;
    float best         = 0.0f;
    float scale        = 0.0f;
    float trial        = cell->lo;
    for (int t = 0; t < N_TRIALS + N_ROUNDS; t++) {
        const struct ab at = cell_at(cell, t < N_TRIALS ? trial : scale);
        if (at.a > 0.0f && at.a * at.a > best * at.b) {
            best  = at.a * at.a / at.b;
            scale = at.a / at.b;
        }
        trial *= factor;
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

uint16_t berth_lattice_fit(
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
