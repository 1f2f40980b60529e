// SPDX-License-Identifier: MIT
// lattice.c: which point of a codebook leaves the least squared error, at every scale?
//
// Writing a group as scale * g takes f(scale) = 2 * scale * a - scale^2 * b off its sum of squares, where a = sum(w x g) and
// b = sum(w g g) depend on the point g but not on the scale. f / scale = 2a - scale * b is a straight line for each point, so the
// best point as a function of the scale is the upper envelope of lines: a handful of steps, found once a group. From then on
// every scale is tried exactly, for all groups of a superblock, without going back to the codebook (lattice_fit.c).
//
// The best point at one scale: the line of a point is the sum of those of its halves, of which there are at most 81 each. Points
// that share an upper half stand together, and a run is passed over if its upper half, with the best of all lower halves, falls
// short of the best point so far. A few runs in a hundred are left; none, as a rule, where a point has to show above a known one.
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

// Lines of the halves of all points: twice a, b, and, for flipped points alone, the least cost of a wrong sign.
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
static int half_init(const struct lattice *l, const float *x, const float *w, float shift, bool flipped, struct half *half) {
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
                half->a2[v * n + code] = half->a2[code] + xg2;
                half->b[v * n + code]  = half->b[code] + gg;
            }
            for (int code = 0; flipped && code < n; code++) {
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
    g->n_codes = half_init(l, x, w, shift, flipped, &g->low);
    (void) half_init(l, x + half_dim, w + half_dim, shift, flipped, &high);
    for (; g->n_codes % 4 != 0; g->n_codes++) {
        half_void(&g->low, g->n_codes);
    }
    for (g->n_runs = 0; g->n_runs < l->n_runs; g->n_runs++) {
        const int code       = g->codes[l->points[l->runs[g->n_runs]] >> g->width];
        g->run.a2[g->n_runs] = high.a2[code];
        g->run.b[g->n_runs]  = high.b[code];
        if (flipped) {
            g->run.flip[g->n_runs] = high.flip[code];
        }
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

// The best of a run, the first of equals. Which one it is cannot be predicted, so there are no branches.
static inline void scan_run(const struct group *g, int run, const float *low, float base, struct peak *best) {
    const uint16_t *points = g->lattice->points;
    const uint8_t *codes   = g->codes;
    const int mask         = (1 << g->width) - 1;
    const int end          = g->lattice->runs[run + 1];
    float y                = best->y;
    int index              = -1;
    if (g->flipped) {
        const float high_flip = g->run.flip[run];
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
    float cost     = 0.0f;
    if (g->flipped) {
        const float lf = g->low.flip[code];
        const float hf = g->run.flip[best.run];
        cost           = 4.0f * (lf < hf ? lf : hf);
    }
    return (struct point){
        best.index, best.run, g->low.a2[code] + g->run.a2[best.run] - cost, g->low.b[code] + g->run.b[best.run]};
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

static void part_init(const struct group *g, float lo, float hi, int depth, struct part *part) {
    const struct point first = highest(g, lo, -INFINITY);
    const struct point last  = highest(g, hi, first.a2 - hi * first.b - slack(g, hi));
    part->n                  = 0;
    put_step(first, 0.0f, part);
    // No last point: there is but one scale, zero.
    if (last.index >= 0 && last.index != first.index && first.b > last.b) {
        envelope(g, first, last, depth, part);
    }
}

void berth_lattice_part(const struct lattice *lattice, const float *x, const float *w, float shift, bool flipped, float lo,
    float hi, int depth, struct part *part) {
    struct group g;
    group_init(lattice, x, w, shift, flipped, &g);
    part_init(&g, lo, hi, depth, part);
}

void berth_lattice_parts(const struct lattice *lattice, const float *x, const float *w, float lo, float hi, int depth,
    struct part *plain, struct part *flipped) {
    struct group g;
    group_init(lattice, x, w, 0.0f, true, &g);
    part_init(&g, lo, hi, depth, flipped);
    g.flipped = false;
    part_init(&g, lo, hi, depth, plain);
}

int berth_lattice_best(const struct lattice *lattice, const float *x, const float *w, float shift, bool flipped, float scale) {
    struct group g;
    group_init(lattice, x, w, shift, flipped, &g);
    return highest(&g, scale, -INFINITY).index;
}
