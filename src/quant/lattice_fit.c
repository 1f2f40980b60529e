// SPDX-License-Identifier: MIT
// lattice_fit.c: finds d and the levels of a superblock with the least squared error, given the best points at every scale
// (lattice.c).
// The own scale of a cell is the scale that is best for the cell alone. The gain is defined in struct part.
//   1. Each cell finds its own scale: the best trial scale, improved by a / b of its points.
//   2. Trial values of d map the largest own scale to different levels. For a hard block, all trials are evaluated. Otherwise,
//      only the two trials with the least search_distance are evaluated.
//   3. The best d is refitted by least squares to the chosen points.
// All steps of a cell's parts are merged into one sorted list with the sums of a and b (struct bundle), so one look-up evaluates
// a scale.
#include "base/base.h"
#include "base/min.h"
#include "quant/lattice.h"

#include <string.h>

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

// a = sum(w x g), b = sum(w g g) (struct part).
struct ab {
    float a, b;
};

static inline float ab_gain(struct ab t, float scale) {
    return scale * (2.0f * t.a - scale * t.b);
}

static struct ab way_at(const struct cell *cell, const struct way *way, float scale) {
    struct ab t = {0.0f, 0.0f};
    for (int i = 0; i < way->n_parts; i++) {
        const struct part *p = &cell->part[way->part[i]];
        const int k = step_at(p, scale);
        t.a += p->a[k];
        t.b += p->b[k];
    }
    return t;
}

int berth_lattice_way(const struct cell *cell, const struct unit *unit, float scale) {
    return unit->n_ways > 1 &&
           ab_gain(way_at(cell, &unit->way[1], scale), scale) > ab_gain(way_at(cell, &unit->way[0], scale), scale);
}

// ---- all steps of a cell ----

enum {
    MAX_BUNDLE_PARTS = 8,
    MAX_BUNDLE_STEPS = 1 + MAX_BUNDLE_PARTS * (LATTICE_MAX_STEPS - 1),
    PLACE_BITS = 4, // places per octave, as a power of two
    N_PLACES = 6 << PLACE_BITS
};

// The sums of a and b between consecutive steps. If each unit of a cell has one way, one bundle has the sums over the cell.
// Otherwise each unit has a bundle. A place is a range of scales whose floats have the same upper bits.
struct bundle {
    int n; // number of intervals: number of steps + 1
    int n_ways;
    uint32_t first;                     // bits of the scale at place 0
    uint8_t start[N_PLACES];            // interval in which each place begins
    float from[MAX_BUNDLE_STEPS + 3];   // start of each interval; then three INFINITY
    struct ab sum[2][MAX_BUNDLE_STEPS]; // sums of each way in each interval
    float most;                         // upper bound of the gain at any scale
};

struct steps {
    int n_bundles;
    struct bundle bundle[LATTICE_MAX_UNITS];
};

// One step of a part.
struct event {
    float at; // scale at which the best point of the part changes
    int part; // index into the parts of the cell
};

// Inserts the steps of a part into the sorted list. If rounding made a step smaller than the previous step, the step gets the
// previous scale.
static int add_events(const struct cell *cell, int part, struct event *events, int n) {
    const struct part *p = &cell->part[part];
    float at = -INFINITY;
    for (int k = 1; k < p->n; k++) {
        if (!(p->step[k] <= at)) {
            at = p->step[k] > at ? p->step[k] : INFINITY; // INFINITY: the step is NaN
        }
        int i = n++;
        for (; i > 0 && events[i - 1].at > at; i--) {
            events[i] = events[i - 1];
        }
        events[i] = (struct event){at, part};
    }
    return n;
}

// Returns the sums of one way of n_units units. at[p]: current step of part p.
static struct ab sum_units(const struct cell *cell, const struct unit *units, int n_units, int way, const uint8_t *at) {
    struct ab sum = {0.0f, 0.0f};
    for (int u = 0; u < n_units; u++) {
        const struct way *w = &units[u].way[way];
        struct ab t = {0.0f, 0.0f};
        for (int i = 0; i < w->n_parts; i++) {
            const struct part *p = &cell->part[w->part[i]];
            t.a += p->a[at[w->part[i]]];
            t.b += p->b[at[w->part[i]]];
        }
        sum.a += t.a;
        sum.b += t.b;
    }
    return sum;
}

static inline int place_of(const struct bundle *b, float scale) {
    const int32_t off = (int32_t) (berth_float_bits(scale) - b->first) >> (23 - PLACE_BITS);
    return min_int(max_int(off, 0), N_PLACES - 1);
}

static void bundle_init(const struct cell *cell, const struct unit *units, int n_units, struct bundle *b) {
    struct event events[MAX_BUNDLE_STEPS];
    uint8_t at[LATTICE_MAX_PARTS] = {0};
    int n = 0;
    b->n_ways = units[0].n_ways;
    for (int u = 0; u < n_units; u++) {
        for (int way = 0; way < b->n_ways; way++) {
            for (int i = 0; i < units[u].way[way].n_parts; i++) {
                n = add_events(cell, units[u].way[way].part[i], events, n);
            }
        }
    }
    b->n = n + 1;
    b->most = 0.0f;
    b->first = berth_float_bits(cell->lo);
    for (int k = 0, place = 0; k <= n; k++) {
        if (k > 0) {
            at[events[k - 1].part]++;
        }
        b->from[k] = k > 0 ? events[k - 1].at : 0.0f;
        for (int way = 0; way < b->n_ways; way++) {
            const struct ab t = sum_units(cell, units, n_units, way, at);
            b->sum[way][k] = t;
            if (t.a > 0.0f && t.a * t.a > b->most * t.b) {
                b->most = t.a * t.a / t.b;
            }
        }
        int last = N_PLACES - 1;
        if (k < n) {
            last = events[k].at > 0.0f ? place_of(b, events[k].at) : 0;
        }
        for (; place <= last; place++) {
            b->start[place] = (uint8_t) k;
        }
    }
    for (int k = n + 1; k <= n + 3; k++) {
        b->from[k] = INFINITY;
    }
}

static void steps_init(const struct cell *cell, struct steps *s) {
    bool one_way = true;
    for (int u = 0; u < cell->n_units; u++) {
        one_way &= cell->unit[u].n_ways == 1;
    }
    s->n_bundles = one_way ? 1 : cell->n_units;
    for (int i = 0; i < s->n_bundles; i++) {
        bundle_init(cell, &cell->unit[i], one_way ? cell->n_units : 1, &s->bundle[i]);
    }
}

static inline struct ab bundle_at(const struct bundle *b, float scale) {
    int i = b->start[place_of(b, scale)];
    i += scale >= b->from[i + 1];
    i += scale >= b->from[i + 1];
    while (BERTH_UNLIKELY(scale >= b->from[i + 1])) {
        i++;
    }
    const struct ab first = b->sum[0][i];
    if (b->n_ways == 1) {
        return first;
    }
    const struct ab second = b->sum[1][i];
    const bool is_second = ab_gain(second, scale) > ab_gain(first, scale);
    return (struct ab){is_second ? second.a : first.a, is_second ? second.b : first.b}; // without a branch
}

static inline struct ab cell_at(const struct steps *s, float scale) {
    struct ab sum = bundle_at(&s->bundle[0], scale);
    for (int i = 1; i < s->n_bundles; i++) {
        const struct ab t = bundle_at(&s->bundle[i], scale);
        sum.a += t.a;
        sum.b += t.b;
    }
    return sum;
}

int berth_lattice_flip(const struct lattice *lattice, int point, const float *x, const float *w) {
    int best = 0;
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

// Returns the sums of the cell at its own scale, which is a / b.
static struct ab own_best(const struct cell *cell, const struct steps *steps, int n_trials, int n_rounds) {
    const float factor = cell->lo > 0.0f ? powf(cell->hi / cell->lo, 1.0f / (float) (n_trials - 1)) : 1.0f;
    float most = 0.0f;
    float scale = 0.0f;
    float trial = cell->lo;
    struct ab best = {0.0f, 1.0f};
    for (int t = 0; t < n_trials + n_rounds; t++) {
        const struct ab at = cell_at(steps, t < n_trials ? trial : scale);
        if (at.a > 0.0f && at.a * at.a > most * at.b) {
            most = at.a * at.a / at.b;
            scale = at.a / at.b;
            best = at;
        }
        trial *= factor;
    }
    return best;
}

struct choice {
    float d;    // value of h in the frame (normalise.h)
    uint16_t h; // the f16 that the block would store
    float gain;
    uint8_t level[LATTICE_MAX_CELLS];
};

struct search {
    int n_cells;
    const float *levels;
    int n_levels;
    struct steps steps[LATTICE_MAX_CELLS];
    _Alignas(16) float own[LATTICE_MAX_CELLS];   // own scale of each cell
    _Alignas(16) float own_b[LATTICE_MAX_CELLS]; // b at the own scale (search_distance)
    float later_gain[LATTICE_MAX_CELLS];         // upper bound of the gain of later cells
};

// With d fixed, gives each cell the best level within `reach` of its own scale. If the gain cannot reach `least`, returns false
// and leaves the choice incomplete.
static bool choose_levels(const struct search *z, int reach, float least, struct choice *c) {
    const int n_levels = z->n_levels;
    const float step = z->levels[1] - z->levels[0];
    c->gain = 0.0f;
    for (int i = 0; i < z->n_cells; i++) {
        const float place = c->d > 0.0f ? (z->own[i] / c->d - z->levels[0]) / step : 0.0f;
        const int middle = (int) (float_clamp(place, 0.0f, (float) (n_levels - 1)) + 0.5f);
        const int from = max_int(0, middle - reach);
        const int to = min_int(n_levels - 1, middle + reach);
        float best = -INFINITY;
        int chosen = from;
        for (int k = from; k <= to; k++) {
            const float scale = c->d * z->levels[k];
            const float g = ab_gain(cell_at(&z->steps[i], scale), scale);
            if (g > best) {
                best = g;
                chosen = k;
            }
        }
        c->level[i] = (uint8_t) chosen;
        c->gain += best;
        if (c->gain + z->later_gain[i] < least) {
            return false;
        }
    }
    return true;
}

static float choice_refit(const struct search *z, const struct choice *c) {
    float a = 0.0f;
    float b = 0.0f;
    for (int i = 0; i < z->n_cells; i++) {
        const float level = z->levels[c->level[i]];
        const struct ab t = cell_at(&z->steps[i], c->d * level);
        a += level * t.a;
        b += level * level * t.b;
    }
    return a > 0.0f ? a / b : 0.0f;
}

// Returns the factor by which to enlarge d, because the d with the least squared error makes dot products a little too small
// (frame_growth).
static float choice_growth(const struct frame *f, const struct search *z, const struct choice *c, float share) {
    float xx = 0.0f, xy = 0.0f;
    for (int i = 0; i < QK_K; i++) {
        xx += f->w[i] * f->x[i] * f->x[i];
    }
    for (int i = 0; i < z->n_cells; i++) {
        const float scale = c->d * z->levels[c->level[i]];
        xy += scale * cell_at(&z->steps[i], scale).a;
    }
    return frame_growth(f, xx, xy, share);
}

// Returns the largest own scale.
static float search_init(const struct frame *f, const struct cell *cells, struct search *z) {
    const int n_trials = f->hard ? 16 : 4;
    const int n_rounds = f->hard ? 3 : 1;
    float max = 0.0f;
    float later_gain = 0.0f;
    for (int i = z->n_cells - 1; i >= 0; i--) {
        z->later_gain[i] = 1.00001f * later_gain; // includes rounding errors
        steps_init(&cells[i], &z->steps[i]);
        const struct ab own = own_best(&cells[i], &z->steps[i], n_trials, n_rounds);
        z->own[i] = own.a / own.b;
        z->own_b[i] = own.b;
        max = max_f32(z->own[i], max);
        for (int k = 0; k < z->steps[i].n_bundles; k++) {
            later_gain += z->steps[i].bundle[k].most;
        }
    }
    return max;
}

// Approximates the loss of gain with this d. Each cell takes the level nearest to its own scale. At a distance e from the own
// scale, the gain is lower by b * e^2.
static float search_distance(const struct search *z, float d) {
    const v4f step = v4_all(z->levels[1] - z->levels[0]);
    const v4f low = v4_all(z->levels[0]);
    const v4f last = v4_all((float) (z->n_levels - 1));
    const v4f per_step = v4_all(1.0f / (d * step[0]));
    v4f sum = v4_all(0.0f);
    for (int i = 0; i < z->n_cells; i += 4) {
        const v4f own = v4_load(z->own + i);
        const v4f place = v4_round((own - v4_all(d) * low) * per_step);
        const v4f level = low + step * v4_min(v4_max(place, v4_all(0.0f)), last);
        const v4f off = own - v4_all(d) * level;
        sum += v4_load(z->own_b + i) * off * off;
    }
    return v4_sum(sum);
}

static void try_d(const struct frame *f, const struct search *z, float d, struct choice *best) {
    struct choice c = {.d = d};
    c.h = frame_round_half(f, &c.d);
    if (choose_levels(z, 1, 0.99999f * best->gain, &c) && c.gain > best->gain) {
        *best = c;
    }
}

// Tries values of d that map the largest own scale to positions a quarter of a level apart. The positions go from one level above
// the top level, which is clipped, down to about the middle level.
static void try_places(const struct frame *f, const struct search *z, float max, struct choice *best) {
    const float top = z->levels[z->n_levels - 1];
    const float quarter = 0.25f * (z->levels[1] - z->levels[0]);
    float least[2] = {INFINITY, INFINITY}, kept[2] = {max / top, max / top};
    for (int t = -4; t < 2 * z->n_levels; t++) {
        const float d = max / (top - quarter * (float) t);
        if (f->hard) {
            try_d(f, z, d, best);
            continue;
        }
        const float off = search_distance(z, d);
        const int i = off < least[0] ? 0 : 1;
        if (i == 0) {
            least[1] = least[0];
            kept[1] = kept[0];
        }
        if (off < least[i]) {
            least[i] = off;
            kept[i] = d;
        }
    }
    for (int i = 0; i < 2 && !f->hard; i++) {
        try_d(f, z, kept[i], best);
    }
}

uint16_t berth_lattice_fit(const struct frame *f, const struct cell *cells, int n_cells, const float *levels, int n_levels,
    float growth_share, float *d, uint8_t *level) {
    enum { N_ROUNDS = 4 };
    struct choice best = {.d = 0.0f};
    struct search z;
    z.n_cells = n_cells;
    z.levels = levels;
    z.n_levels = n_levels;
    const float max = search_init(f, cells, &z);
    if (max > 0.0f) {
        try_places(f, &z, max, &best);
    }
    for (int round = 0; round < N_ROUNDS && best.d > 0.0f; round++) {
        struct choice c = {.d = choice_refit(&z, &best)};
        c.h = frame_round_half(f, &c.d);
        if (c.h == best.h || !choose_levels(&z, f->hard ? 2 : 1, 0.99999f * best.gain, &c) || !(c.gain > best.gain)) {
            break;
        }
        best = c;
    }
    *d = best.d;
    best.d *= choice_growth(f, &z, &best, growth_share);
    best.h = frame_round_half(f, &best.d);
    memcpy(level, best.level, (size_t) n_cells);
    return best.h;
}
