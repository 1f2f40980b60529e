// SPDX-License-Identifier: MIT
// lattice.c: finds the point of a codebook with the least squared error for a group of elements, for every scale.
//
// A point is a vector g of the codebook. Its gain at a scale (struct part) is 2 * scale * a - scale^2 * b, with a = sum(w x g)
// and b = sum(w g g). The height of a point is gain / scale = 2a - scale * b, a straight line over the scale. So the best points
// for all scales are the upper envelope of these lines. The envelope is computed once per group. lattice_fit.c then evaluates
// scales with the envelopes only.
//
// A point consists of a lower and an upper half. Its line is the sum of the lines of its halves. There are only 64 or 81
// different halves. Points with the same upper half are adjacent and form a run. A run is skipped if its upper half and the best
// lower half together are not above the best point so far. A few percent of the runs remain.
#include "quant/lattice.h"

#include "base/base.h"
#include "base/min.h"
#include "quant/vec.h"

#include <string.h>

// Inlined, so that arguments like `line`, `flipped` and sizes are constants.
#define INLINE static inline __attribute__((always_inline))

// ---- one group: the envelope ----

// RUNS_PER_CHECK: runs whose bounds are compared together. MAX_HALVES: 81, rounded up to a multiple of RUNS_PER_CHECK.
enum { MAX_HALVES = 96, RUNS_PER_CHECK = 16 };

// Index of a half, by the bits of its fields. 2-bit fields hold digits of base 3, 3-bit fields digits of base 8.
#define ONE_3(n) n, n + 1, n + 2, 0
#define TWO_3(n) ONE_3(n), ONE_3(n + 3), ONE_3(n + 6), ONE_3(0)
#define THREE_3(n) TWO_3(n), TWO_3(n + 9), TWO_3(n + 18), TWO_3(0)
#define ONE_8(n) n, n + 1, n + 2, n + 3, n + 4, n + 5, n + 6, n + 7
static const uint8_t codes_3[192] = {THREE_3(0), THREE_3(27), THREE_3(54)};
static const uint8_t codes_8[64] = {ONE_8(0), ONE_8(8), ONE_8(16), ONE_8(24), ONE_8(32), ONE_8(40), ONE_8(48), ONE_8(56)};

// Lines of all lower or all upper halves, by index.
struct half {
    _Alignas(16) float a2[MAX_HALVES]; // 2 a
    _Alignas(16) float b[MAX_HALVES];
    _Alignas(16) float flip[MAX_HALVES]; // least height lost by one wrong sign
};

struct group {
    const struct lattice *lattice;
    bool flipped;
    int width;            // bits per half of a point
    const uint8_t *codes; // maps the bits of a half to its index
    int n_halves;         // rounded up to a multiple of 4
    float a2_size;        // upper bound of |2 a| of any point
    float b_size;         // upper bound of b of any point
    struct half low, high;
};

enum { LINE_A2, LINE_B, LINE_FLIP };

// out[v * n + i] = in[i] + term[v]; for LINE_FLIP, the smaller of the two. Accesses up to 3 floats past the ends of the arrays.
INLINE void spread(const float *in, int n, const float *term, int n_values, int line, float *out) {
    for (int v = 0; v < n_values; v++) {
        const v4f t = v4_all(term[v]);
        for (int i = 0; i < n; i += 4) {
            const v4f at = v4_load(in + i);
            v4_store(out + v * n + i, line == LINE_FLIP ? v4_min(at, t) : at + t);
        }
    }
}

// Computes one kind of line for all halves.
INLINE void half_line(
    const float *x, const float *w, const float *values, float shift, int n_fields, int n_values, int line, float *out) {
    _Alignas(16) float before[2][32] = {{line == LINE_FLIP ? INFINITY : 0.0f}};
    for (int k = 0, n = 1; k < n_fields; k++, n *= n_values) {
        float term[8];
        for (int v = 0; v < n_values; v++) {
            const float g = values[v] + shift;
            if (line == LINE_B) {
                term[v] = w[k] * g * g;
            } else {
                term[v] = (line == LINE_A2 ? 2.0f : 4.0f) * (w[k] * x[k] * g);
            }
        }
        spread(before[k % 2], n, term, n_values, line, k + 1 < n_fields ? before[(k + 1) % 2] : out);
    }
}

INLINE void half_lines(const struct lattice *l, const float *x, const float *w, float shift, bool flipped, int n_fields,
    int n_values, struct half *h) {
    half_line(x, w, l->values, shift, n_fields, n_values, LINE_A2, h->a2);
    half_line(x, w, l->values, shift, n_fields, n_values, LINE_B, h->b);
    if (flipped) {
        half_line(x, w, l->values, shift, n_fields, n_values, LINE_FLIP, h->flip);
    }
}

// Returns the number of entries, a multiple of 4. Padding entries are never the best.
static int half_init(const struct lattice *l, const float *x, const float *w, float shift, bool flipped, struct half *h) {
    if (l->n_values == 8) {
        half_lines(l, x, w, shift, flipped, 2, 8, h);
        return 64;
    }
    half_lines(l, x, w, shift, flipped, 4, 3, h);
    for (int i = 81; i < 84; i++) {
        h->a2[i] = -1e30f;
        h->b[i] = 0.0f;
        h->flip[i] = 0.0f;
    }
    return 84;
}

static void group_init(const struct lattice *l, const float *x, const float *w, float shift, bool flipped, struct group *g) {
    const int half_dim = l->dim / 2;
    g->lattice = l;
    g->flipped = flipped;
    g->width = half_dim * l->n_bits;
    g->codes = l->n_values == 3 ? codes_3 : codes_8;
    g->n_halves = half_init(l, x, w, shift, flipped, &g->low);
    (void) half_init(l, x + half_dim, w + half_dim, shift, flipped, &g->high);
    const float size = fabsf(l->values[l->n_values - 1]) + fabsf(shift); // the last value has the largest magnitude
    float wx = 0.0f, ww = 0.0f;
    for (int k = 0; k < l->dim; k++) {
        wx += w[k] * fabsf(x[k]);
        ww += w[k];
    }
    g->a2_size = 2.0f * wx * size;
    g->b_size = ww * size * size;
}

// The height at a scale is a2 - scale * b.
struct point {
    int index;
    float a2, b;
};

struct heights {
    float scale;
    _Alignas(16) float low[MAX_HALVES];
    _Alignas(16) float flipped[MAX_HALVES]; // height of each lower half with one wrong sign
    _Alignas(16) float bound[MAX_HALVES];   // upper bound of the heights of each run
};

static inline float line_at(const struct half *h, int i, float scale) {
    return h->a2[i] - scale * h->b[i];
}

// Returns the highest bound of a run, and stores the index of that run in *first.
INLINE float heights_init(const struct group *g, bool flipped, float scale, int *first, struct heights *t) {
    const v4f s = v4_all(scale);
    v4f top = v4_all(-INFINITY);
    v4f top2 = top;
    t->scale = scale;
    for (int i = 0; i < g->n_halves; i += 4) {
        const v4f y = v4_load(g->low.a2 + i) - s * v4_load(g->low.b + i);
        top = v4_max(top, y);
        v4_store(t->low + i, y);
        if (flipped) {
            const v4f y2 = y - v4_load(g->low.flip + i);
            top2 = v4_max(top2, y2);
            v4_store(t->flipped + i, y2);
        }
    }
    const v4f summit = v4_all(v4_highest(top)), summit2 = v4_all(flipped ? v4_highest(top2) : 0.0f);
    v4i at = {0, 1, 2, 3}, best_at = at;
    top = v4_all(-INFINITY);
    for (int r = 0; r < g->n_halves; r += 4, at += 4) {
        const v4f y = v4_load(g->high.a2 + r) - s * v4_load(g->high.b + r);
        const v4f bound = flipped ? v4_max(y + summit2, y - v4_load(g->high.flip + r) + summit) : y + summit;
        best_at = (v4i) v4_select(bound > top, (v4f) at, (v4f) best_at);
        top = v4_max(top, bound);
        v4_store(t->bound + r, bound);
    }
    for (int r = g->n_halves; r % RUNS_PER_CHECK != 0; r += 4) {
        v4_store(t->bound + r, v4_all(-INFINITY));
    }
    const float highest = v4_highest(top);
    *first = v4_first(top == v4_all(highest), best_at);
    return highest;
}

struct run {
    const uint16_t *point, *end;
    float y;         // height of the upper half
    float y_flipped; // height of the upper half with one wrong sign
};

INLINE struct run run_get(const struct group *g, bool flipped, float scale, int i) {
    const uint16_t *points = g->lattice->points, *runs = g->lattice->runs;
    const float y = line_at(&g->high, i, scale);
    return (struct run){points + runs[i], points + runs[i + 1], y, flipped ? y - g->high.flip[i] : 0.0f};
}

INLINE float point_at(const struct heights *t, bool flipped, const struct run *run, int code) {
    return flipped ? berth_larger(run->y + t->flipped[code], run->y_flipped + t->low[code]) : run->y + t->low[code];
}

INLINE float run_top(const struct group *g, const struct heights *t, bool flipped, int i) {
    const struct run run = run_get(g, flipped, t->scale, i);
    const uint8_t *codes = g->codes;
    const int mask = (1 << g->width) - 1;
    const uint16_t *p = run.point;
    float a = -INFINITY, b = a, c = a, d = a;
    for (; p + 4 <= run.end; p += 4) {
        a = berth_larger(a, point_at(t, flipped, &run, codes[p[0] & mask]));
        b = berth_larger(b, point_at(t, flipped, &run, codes[p[1] & mask]));
        c = berth_larger(c, point_at(t, flipped, &run, codes[p[2] & mask]));
        d = berth_larger(d, point_at(t, flipped, &run, codes[p[3] & mask]));
    }
    for (; p < run.end; p++) {
        a = berth_larger(a, point_at(t, flipped, &run, codes[p[0] & mask]));
    }
    return berth_larger(berth_larger(a, b), berth_larger(c, d));
}

// Returns the first point of a run that has this height.
INLINE int run_find(const struct group *g, const struct heights *t, bool flipped, int i, float top) {
    const struct run run = run_get(g, flipped, t->scale, i);
    const uint8_t *codes = g->codes;
    const int mask = (1 << g->width) - 1;
    const uint16_t *p = run.point;
    while (p + 1 < run.end && point_at(t, flipped, &run, codes[*p & mask]) != top) {
        p++;
    }
    return (int) (p - g->lattice->points);
}

INLINE struct point highest_of(const struct group *g, bool flipped, float scale, float above) {
    struct heights t;
    int first;
    int run = -1;
    float best = above;
    if (heights_init(g, flipped, scale, &first, &t) > above) {
        const float y = run_top(g, &t, flipped, first);
        if (y > best) {
            best = y;
            run = first;
        }
        for (int r = 0; r < g->n_halves; r += RUNS_PER_CHECK) {
            const float *p = t.bound + r;
            const v4f most = v4_max(v4_max(v4_load(p), v4_load(p + 4)), v4_max(v4_load(p + 8), v4_load(p + 12)));
            if (!v4_any(most > v4_all(best))) {
                continue;
            }
            for (int k = r; k < r + RUNS_PER_CHECK; k++) {
                if (t.bound[k] > best && k != first) {
                    const float yk = run_top(g, &t, flipped, k);
                    if (yk > best) {
                        best = yk;
                        run = k;
                    }
                }
            }
        }
    }
    if (run < 0) {
        return (struct point){.index = -1};
    }
    const int index = run_find(g, &t, flipped, run, best);
    const int code = g->codes[g->lattice->points[index] & ((1 << g->width) - 1)];
    const float cost = flipped ? min_f32(g->low.flip[code], g->high.flip[run]) : 0.0f;
    return (struct point){index, g->low.a2[code] + g->high.a2[run] - cost, g->low.b[code] + g->high.b[run]};
}

// Returns the best point at this scale; index is -1 if no point is higher than `above`.
static struct point point_highest(const struct group *g, float scale, float above) {
    return g->flipped ? highest_of(g, true, scale, above) : highest_of(g, false, scale, above);
}

static float point_height(struct point p, float scale) {
    return p.a2 - scale * p.b;
}

// Returns an upper bound of the rounding error of a height.
static float height_slack(const struct group *g, float scale) {
    return 1e-5f * (g->a2_size + scale * g->b_size);
}

static void part_add_step(struct point at, float from, struct part *p) {
    p->step[p->n] = from;
    p->a[p->n] = 0.5f * at.a2;
    p->b[p->n] = at.b;
    p->point[p->n] = (uint16_t) at.index;
    p->n++;
}

// Adds the steps of the envelope after point i, up to and including point j. Both points are on the envelope, and i.b > j.b, so j
// is better at larger scales. If a third point is higher at the scale where the lines of i and j cross, recurses between i and
// the third point and between the third point and j.
static void envelope_add(const struct group *g, struct point i, struct point j, int depth, struct part *p) {
    const float at = (i.a2 - j.a2) / (i.b - j.b);
    const float yi = point_height(i, at);
    // Points that raise the envelope by less than a thousandth are omitted.
    const float least = yi + 1e-3f * fabsf(yi);
    const struct point k = depth > 0 ? point_highest(g, at, least - height_slack(g, fabsf(at))) : i;
    if (k.index >= 0 && point_height(k, at) > least && k.b < i.b && k.b > j.b) {
        envelope_add(g, i, k, depth - 1, p);
        envelope_add(g, k, j, depth - 1, p);
    } else {
        part_add_step(j, at, p);
    }
}

static void part_init(const struct group *g, float lo, float hi, int depth, struct part *part) {
    const struct point first = point_highest(g, lo, -INFINITY);
    const struct point last = point_highest(g, hi, point_height(first, hi) - height_slack(g, hi));
    part->n = 0;
    part_add_step(first, 0.0f, part);
    // If all elements are zero, no last point is found. Then lo and hi are 0.
    if (last.index >= 0 && last.index != first.index && first.b > last.b) {
        envelope_add(g, first, last, depth, part);
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

// Adds a step from point i to point j at the scale where their lines cross. If j is not found or not better than i at larger
// scales, adds nothing. Returns the point of the last step.
static struct point part_step_to(struct point i, struct point j, struct part *p) {
    if (j.index < 0 || j.index == i.index || !(j.b < i.b)) {
        return i;
    }
    part_add_step(j, (i.a2 - j.a2) / (i.b - j.b), p);
    return j;
}

int berth_lattice_shift(const struct lattice *lattice, const float *x, const float *w, int n_groups, float shift, float lo,
    float middle, float hi, struct part *parts) {
    struct group g[2][LATTICE_MAX_UNITS];
    struct point at[2][LATTICE_MAX_UNITS];
    float sum[2] = {0.0f, 0.0f};
    for (int i = 0; i < n_groups; i++) {
        for (int down = 0; down < 2; down++) {
            group_init(lattice, x + i * lattice->dim, w + i * lattice->dim, down ? -shift : shift, false, &g[down][i]);
            // With one group, the downward shift matters only if its point is higher.
            at[down][i] = point_highest(&g[down][i], middle, n_groups == 1 && down ? sum[0] : -INFINITY);
            sum[down] += at[down][i].index >= 0 ? point_height(at[down][i], middle) : -INFINITY;
        }
    }
    const int down = sum[1] > sum[0];
    for (int i = 0; i < n_groups; i++) {
        const struct group *chosen = &g[down][i];
        const struct point p = at[down][i];
        const struct point first = point_highest(chosen, lo, point_height(p, lo) + height_slack(chosen, lo));
        const struct point last = point_highest(chosen, hi, point_height(p, hi) + height_slack(chosen, hi));
        const bool has_first = first.index >= 0 && first.b > p.b;
        parts[i].n = 0;
        part_add_step(has_first ? first : p, 0.0f, &parts[i]);
        (void) part_step_to(has_first ? part_step_to(first, p, &parts[i]) : p, last, &parts[i]);
    }
    return down;
}

int berth_lattice_best(const struct lattice *lattice, const float *x, const float *w, float shift, bool flipped, float scale) {
    struct group g;
    group_init(lattice, x, w, shift, flipped, &g);
    return point_highest(&g, scale, -INFINITY).index;
}
