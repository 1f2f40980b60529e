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
// short of the best point so far. A few runs in a hundred are left; none, as a rule, where a point has to show above a known one.
//
// The best points of a whole cell: the steps of its parts in one order, with the sums of a and b between them (struct bundle).
#include "quant/lattice.h"
#include "base/base.h"
#include "quant/vec.h"

#include <string.h>

// ---- one group: the envelope ----

enum { MAX_HALF_CODES = 84, MAX_RUNS = 96 };

// Number of a half among all that there are: its fields are digits of base 3, or of base 8 as they stand.
#define ONE_3(n) n, n + 1, n + 2, 0
#define TWO_3(n) ONE_3(n), ONE_3(n + 3), ONE_3(n + 6), ONE_3(0)
#define THREE_3(n) TWO_3(n), TWO_3(n + 9), TWO_3(n + 18), TWO_3(0)
#define ONE_8(n) n, n + 1, n + 2, n + 3, n + 4, n + 5, n + 6, n + 7
static const uint8_t codes_3[192] = {THREE_3(0), THREE_3(27), THREE_3(54)};
static const uint8_t codes_8[64]  = {ONE_8(0), ONE_8(8), ONE_8(16), ONE_8(24), ONE_8(32), ONE_8(40), ONE_8(48), ONE_8(56)};

// Lines of the halves of all points: twice a, b, and the least cost of a wrong sign.
struct half {
    _Alignas(16) float a2[MAX_RUNS];
    _Alignas(16) float b[MAX_RUNS];
    _Alignas(16) float flip[MAX_RUNS];
};

struct group {
    const struct lattice *lattice;
    bool flipped;
    int width;            // bits of half a point
    const uint8_t *codes; // from half a point to the number of the half
    int n_codes;          // lower halves; a multiple of 4, the last ones void
    int n_runs;           // a multiple of 4, the last ones void
    float a2_size;        // no sum of 2 w x g is larger
    float b_size;         // nor of w g g
    struct half low;
    struct half run; // upper halves, by run
};

// Void lines are never the best.
static void half_void(struct half *half, int i) {
    half->a2[i]   = -1e30f;
    half->b[i]    = 0.0f;
    half->flip[i] = 0.0f;
}

// Returns how many lines there are.
static int half_init(const struct lattice *l, const float *x, const float *w, float shift, struct half *half) {
    int n         = 1;
    half->a2[0]   = 0.0f;
    half->b[0]    = 0.0f;
    half->flip[0] = INFINITY;
    // Fields are added one at a time above those that are done; downward, so that the sums without the field are still there.
    for (int k = 0; k < l->dim / 2; k++, n *= l->n_values) {
        for (int v = l->n_values - 1; v >= 0; v--) {
            const float g   = l->values[v] + shift;
            const float xg  = w[k] * x[k] * g;
            const float xg2 = 2.0f * xg;
            const float gg  = w[k] * g * g;
            for (int code = 0; code < n; code++) {
                half->a2[v * n + code]   = half->a2[code] + xg2;
                half->b[v * n + code]    = half->b[code] + gg;
                half->flip[v * n + code] = xg < half->flip[code] ? xg : half->flip[code];
            }
        }
    }
    return n;
}

static void group_init(const struct lattice *l, const float *x, const float *w, float shift, bool flipped, struct group *g) {
    const int half_dim = l->dim / 2;
    struct half high;
    g->lattice = l;
    g->flipped = flipped;
    g->width   = half_dim * l->n_bits;
    g->codes   = l->n_values == 3 ? codes_3 : codes_8;
    g->n_codes = half_init(l, x, w, shift, &g->low);
    (void) half_init(l, x + half_dim, w + half_dim, shift, &high);
    for (; g->n_codes % 4 != 0; g->n_codes++) {
        half_void(&g->low, g->n_codes);
    }
    for (g->n_runs = 0; g->n_runs < l->n_runs; g->n_runs++) {
        const int code         = g->codes[l->points[l->runs[g->n_runs]] >> g->width];
        g->run.a2[g->n_runs]   = high.a2[code];
        g->run.b[g->n_runs]    = high.b[code];
        g->run.flip[g->n_runs] = high.flip[code];
    }
    for (; g->n_runs % 4 != 0; g->n_runs++) {
        half_void(&g->run, g->n_runs);
    }
    const float size = fabsf(l->values[l->n_values - 1]) + fabsf(shift); // the first is no larger
    float wx = 0.0f, ww = 0.0f;
    for (int k = 0; k < l->dim; k++) {
        wx += w[k] * fabsf(x[k]);
        ww += w[k];
    }
    g->a2_size = 2.0f * wx * size;
    g->b_size  = ww * size * size;
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

// The best of a run, the first of equals. Which one it is nobody can foretell: no branches.
static inline void scan_run(const struct group *g, int run, const float *low, float base, struct peak *best) {
    const uint16_t *points = g->lattice->points;
    const uint8_t *codes   = g->codes;
    const int mask         = (1 << g->width) - 1;
    const int end          = g->lattice->runs[run + 1];
    const float high_flip  = g->run.flip[run];
    float y                = best->y;
    int index              = -1;
    if (g->flipped) {
        for (int i = g->lattice->runs[run]; i < end; i++) {
            const int code   = codes[points[i] & mask];
            const float flip = g->low.flip[code] < high_flip ? g->low.flip[code] : high_flip;
            const float yi   = base + low[code] - 4.0f * flip;
            index            = yi > y ? i : index;
            y                = yi > y ? yi : y;
        }
    } else {
        for (int i = g->lattice->runs[run]; i < end; i++) {
            const float yi = base + low[codes[points[i] & mask]];
            index          = yi > y ? i : index;
            y              = yi > y ? yi : y;
        }
    }
    best->run   = index >= 0 ? run : best->run;
    best->index = index >= 0 ? index : best->index;
    best->y     = y;
}

// The best point at this scale. above: index is -1 if none is higher.
static struct point highest(const struct group *g, float scale, float above) {
    _Alignas(16) float low[MAX_HALF_CODES];
    _Alignas(16) float high[MAX_RUNS];
    const v4f s = v4_all(scale);
    v4f top     = v4_all(-INFINITY);
    v4f top_run = top;
    for (int i = 0; i < g->n_codes; i += 4) {
        const v4f y = v4_load(g->low.a2 + i) - s * v4_load(g->low.b + i);
        top         = v4_max(top, y);
        v4_store(low + i, y);
    }
    for (int r = 0; r < g->n_runs; r += 4) {
        const v4f y = v4_load(g->run.a2 + r) - s * v4_load(g->run.b + r);
        top_run     = v4_max(top_run, y);
        v4_store(high + r, y);
    }
    const float summit  = v4_highest(top);
    const float first_y = v4_highest(top_run);
    struct peak best    = {above, -1, 0};
    if (first_y + summit > above) {
        int first = 0;
        while (!v4_any(v4_load(high + first) == v4_all(first_y))) {
            first += 4;
        }
        while (high[first] != first_y) {
            first++;
        }
        scan_run(g, first, low, first_y, &best);
        for (int r = 0; r < g->n_runs; r += 4) {
            if (BERTH_UNLIKELY(v4_any(v4_load(high + r) + v4_all(summit) > v4_all(best.y)))) {
                for (int k = r; k < r + 4; k++) {
                    if (high[k] + summit > best.y && k != first) {
                        scan_run(g, k, low, high[k], &best);
                    }
                }
            }
        }
    }
    if (best.index < 0) {
        return (struct point){.index = -1};
    }
    const int code = g->codes[g->lattice->points[best.index] & ((1 << g->width) - 1)];
    const float lf = g->low.flip[code];
    const float hf = g->run.flip[best.run];
    return (struct point){best.index, best.run,
        g->low.a2[code] + g->run.a2[best.run] - (g->flipped ? 4.0f * (lf < hf ? lf : hf) : 0.0f),
        g->low.b[code] + g->run.b[best.run]};
}

// More than the roundings of a line's height can come to.
static float slack(const struct group *g, float scale) {
    return 1e-5f * (g->a2_size + scale * g->b_size);
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
    const float at = (i.a2 - j.a2) / (i.b - j.b);
    const float yi = i.a2 - at * i.b;
    // A point that shows by less than a thousandth is left out.
    const float least    = yi + 1e-3f * fabsf(yi);
    const struct point k = depth > 0 ? highest(g, at, least - slack(g, fabsf(at))) : i;
    if (k.index >= 0 && k.a2 - at * k.b > least && k.b < i.b && k.b > j.b) {
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
    const struct point first = highest(&g, lo, -INFINITY);
    const struct point last  = highest(&g, hi, first.a2 - hi * first.b - slack(&g, hi));
    part->n                  = 0;
    put_step(first, 0.0f, part);
    // No last point: there is but one scale, zero.
    if (last.index >= 0 && last.index != first.index && first.b > last.b) {
        envelope(&g, first, last, DEPTH, part);
    }
}

int berth_lattice_best(const struct lattice *lattice, const float *x, const float *w, float shift, bool flipped, float scale) {
    struct group g;
    group_init(lattice, x, w, shift, flipped, &g);
    return highest(&g, scale, -INFINITY).index;
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

// ---- all steps of a cell ----

enum {
    MAX_BUNDLE_PARTS = 8,
    MAX_BUNDLE_STEPS = 1 + MAX_BUNDLE_PARTS * (LATTICE_MAX_STEPS - 1),
    PLACE_BITS       = 4, // places to the octave, as a power of two
    N_PLACES         = 6 << PLACE_BITS
};

// The units of a cell, or one unit that has two ways: the sums of each way between one step of some part and the next.
struct bundle {
    int n;
    int n_ways;
    uint32_t first;                   // bits of the scale at place 0
    uint8_t start[N_PLACES];          // steps up to this place
    float from[MAX_BUNDLE_STEPS + 3]; // ends with INFINITY
    struct ab sum[2][MAX_BUNDLE_STEPS];
    float most; // no scale gains more
};

struct steps {
    int n_bundles;
    struct bundle bundle[LATTICE_MAX_UNITS];
};

struct event {
    float at;
    int part;
};

// Adds the steps of a part to the sorted events. One that lies before the step it follows is taken with that one.
static int add_events(const struct cell *cell, int part, struct event *events, int n) {
    const struct part *p = &cell->part[part];
    float at             = -INFINITY;
    for (int k = 1; k < p->n; k++) {
        at    = p->step[k] > at ? p->step[k] : p->step[k] <= at ? at : INFINITY;
        int i = n++;
        for (; i > 0 && events[i - 1].at > at; i--) {
            events[i] = events[i - 1];
        }
        events[i] = (struct event){at, part};
    }
    return n;
}

// Sums of one way of n_units units, each part at the step that at[] says.
static struct ab sum_units(const struct cell *cell, const struct unit *units, int n_units, int way, const uint8_t *at) {
    struct ab sum = {0.0f, 0.0f};
    for (int u = 0; u < n_units; u++) {
        const struct way *w = &units[u].way[way];
        struct ab t         = {0.0f, 0.0f};
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
    return off < 0 ? 0 : off < N_PLACES ? off : N_PLACES - 1;
}

static void bundle_init(const struct cell *cell, const struct unit *units, int n_units, struct bundle *b) {
    struct event events[MAX_BUNDLE_STEPS];
    uint8_t at[LATTICE_MAX_PARTS] = {0};
    int n                         = 0;
    b->n_ways                     = units[0].n_ways;
    for (int u = 0; u < n_units; u++) {
        for (int way = 0; way < b->n_ways; way++) {
            for (int i = 0; i < units[u].way[way].n_parts; i++) {
                n = add_events(cell, units[u].way[way].part[i], events, n);
            }
        }
    }
    b->n     = n + 1;
    b->most  = 0.0f;
    b->first = berth_float_bits(cell->lo);
    for (int k = 0, place = 0; k <= n; k++) {
        if (k > 0) {
            at[events[k - 1].part]++;
        }
        b->from[k] = k > 0 ? events[k - 1].at : 0.0f;
        for (int way = 0; way < b->n_ways; way++) {
            const struct ab t = sum_units(cell, units, n_units, way, at);
            b->sum[way][k]    = t;
            b->most           = t.a > 0.0f && t.a * t.a > b->most * t.b ? t.a * t.a / t.b : b->most;
        }
        // Places whose lower end comes before the next step start here.
        const int last = k < n ? (events[k].at > 0.0f ? place_of(b, events[k].at) : 0) : N_PLACES - 1;
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
        one_way = one_way && cell->unit[u].n_ways == 1;
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
    struct ab t = b->sum[0][i];
    if (b->n_ways > 1) {
        const struct ab other = b->sum[1][i];
        const bool better     = gain(other, scale) > gain(t, scale);
        t.a                   = better ? other.a : t.a;
        t.b                   = better ? other.b : t.b;
    }
    return t;
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
static float own_scale(const struct cell *cell, const struct steps *steps) {
    enum { N_TRIALS = 16, N_ROUNDS = 3 };
    const float factor = cell->lo > 0.0f ? powf(cell->hi / cell->lo, 1.0f / (N_TRIALS - 1)) : 1.0f;
    float best         = 0.0f;
    float scale        = 0.0f;
    float trial        = cell->lo;
    for (int t = 0; t < N_TRIALS + N_ROUNDS; t++) {
        const struct ab at = cell_at(steps, t < N_TRIALS ? trial : scale);
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

struct search {
    int n_cells;
    const float *levels;
    int n_levels;
    struct steps steps[LATTICE_MAX_CELLS];
    float own[LATTICE_MAX_CELLS];  // best scale of each cell
    float rest[LATTICE_MAX_CELLS]; // what the cells after this one can gain at most
};

// With d fixed, each cell takes the best level next to its own scale. False: given up, since the gain cannot be above least.
static bool choose_levels(const struct search *z, int reach, float least, struct choice *c) {
    const int n_levels = z->n_levels;
    const float step   = z->levels[1] - z->levels[0];
    c->gain            = 0.0f;
    for (int i = 0; i < z->n_cells; i++) {
        const float place = c->d > 0.0f ? (z->own[i] / c->d - z->levels[0]) / step : 0.0f;
        const int middle  = place < 0.0f ? 0 : place > (float) (n_levels - 1) ? n_levels - 1 : (int) (place + 0.5f);
        const int from    = middle - reach < 0 ? 0 : middle - reach;
        const int to      = middle + reach > n_levels - 1 ? n_levels - 1 : middle + reach;
        float best        = -INFINITY;
        int chosen        = from;
        for (int k = from; k <= to; k++) {
            const float scale = c->d * z->levels[k];
            const float g     = gain(cell_at(&z->steps[i], scale), scale);
            chosen            = g > best ? k : chosen;
            best              = g > best ? g : best;
        }
        c->level[i] = (uint8_t) chosen;
        c->gain += best;
        if (c->gain + z->rest[i] < least) {
            return false;
        }
    }
    return true;
}

static float refit(const struct search *z, const struct choice *c) {
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

// Steps and bounds of all cells. Returns the largest of their own scales.
static float search_init(const struct cell *cells, struct search *z) {
    float max  = 0.0f;
    float rest = 0.0f;
    for (int i = z->n_cells - 1; i >= 0; i--) {
        z->rest[i] = 1.00001f * rest; // and roundings
        steps_init(&cells[i], &z->steps[i]);
        z->own[i] = own_scale(&cells[i], &z->steps[i]);
        max       = z->own[i] > max ? z->own[i] : max;
        for (int k = 0; k < z->steps[i].n_bundles; k++) {
            rest += z->steps[i].bundle[k].most;
        }
    }
    return max;
}

uint16_t berth_lattice_fit(
    const struct frame *f, const struct cell *cells, int n_cells, const float *levels, int n_levels, float *d, uint8_t *level) {
    enum { N_ROUNDS = 4 };
    struct choice best = {.d = 0.0f};
    struct search z;
    z.n_cells       = n_cells;
    z.levels        = levels;
    z.n_levels      = n_levels;
    const float max = search_init(cells, &z);
    // The largest cell at the top level, beyond it, or as low as the middle, in quarter steps.
    const float top     = levels[n_levels - 1];
    const float quarter = 0.25f * (levels[1] - levels[0]);
    for (int t = -4; t < 2 * n_levels; t++) {
        struct choice c = {.d = max / (top - quarter * (float) t)};
        c.h             = frame_round_half(f, &c.d);
        if (choose_levels(&z, 1, 0.99999f * best.gain, &c) && c.gain > best.gain) {
            best = c;
        }
    }
    for (int round = 0; round < N_ROUNDS && best.d > 0.0f; round++) {
        struct choice c = {.d = refit(&z, &best)};
        c.h             = frame_round_half(f, &c.d);
        if (c.h == best.h || !choose_levels(&z, 2, 0.99999f * best.gain, &c) || !(c.gain > best.gain)) {
            break;
        }
        best = c;
    }
    *d = best.d;
    memcpy(level, best.level, (size_t) n_cells);
    return best.h;
}
