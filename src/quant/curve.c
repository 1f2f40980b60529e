// SPDX-License-Identifier: MIT
// curve.c: computes the sums a and b (curve.h) of a run for every scale in one pass. At inverse scale 0, all elements round to
// the same grid value. As the inverse scale grows, an element moves from grid value to grid value. A move is one such change of
// an element. The inverse scale at which each move happens is known. a and b at an inverse scale are their values at inverse
// scale 0 plus the changes by all moves up to that inverse scale.
// There are 32 or 64 places (curve.h) per octave, for four octaves. Cost: one move per element and level, and one pass over the
// places.
#include "quant/curve.h"

#include "base/min.h"

#include <string.h>

// The moves of an element with magnitude 1 away from zero in one direction.
struct moves {
    int n;
    float threshold[16]; // inverse scale at which the move happens; an element x moves at threshold / |x|
    float by[16];        // change of the grid value g
    float square[16];    // change of g * g
};

static void moves_init(struct moves *m, const struct grid *grid, int direction) {
    m->n = 0;
    if (grid->values == NULL) {
        const float end = direction > 0 ? grid->hi : -grid->lo;
        for (float k = 1.0f; k <= end; k += 1.0f, m->n++) {
            m->threshold[m->n] = k - 0.5f;
            m->by[m->n] = (float) direction;
            m->square[m->n] = k * k - (k - 1.0f) * (k - 1.0f);
        }
        return;
    }
    int i = 0;
    while (grid->values[i] < 0) {
        i++;
    }
    // At inverse scale zero, every element has the smallest value >= 0.
    for (; direction > 0 ? i < 15 : i > 0; i += direction, m->n++) {
        const float here = grid->values[i];
        const float next = grid->values[i + direction];
        m->threshold[m->n] = 0.5f * (here + next) * (float) direction;
        m->by[m->n] = next - here;
        m->square[m->n] = next * next - here * here;
    }
}

static void curve_add_moves(struct curve *c, int sign, float x, float w, const struct moves *m) {
    const float wx = sign ? -w * x : w * x;
    const float inverse = 1.0f / fabsf(x);
    for (int k = 0; k < m->n; k++) {
        const int i = curve_place(c, m->threshold[k] * inverse);
        if (i >= c->n_places) {
            break;
        }
        c->a[sign][i] += wx * m->by[k];
        c->b[sign][i] += w * m->square[k];
    }
}

static void curve_add_peak(struct curve *c, float scale, float gain) {
    int at = c->n_peaks < CURVE_PEAKS ? c->n_peaks++ : CURVE_PEAKS;
    while (at > 0 && c->gain[at - 1] < gain) {
        if (at < CURVE_PEAKS) {
            c->gain[at] = c->gain[at - 1];
            c->peak[at] = c->peak[at - 1];
        }
        at--;
    }
    if (at < CURVE_PEAKS) {
        c->gain[at] = gain;
        c->peak[at] = scale;
    }
}

// Replaces the changes in the places by running sums and finds peaks. A peak is a place whose best gain a * a / b is not below
// the best gain of its neighbours. Neighbours with equal gains are peaks too, because a run with one nonzero element has the same
// best gain in every place.
static void curve_sum(struct curve *c, int sign, float a, float b) {
    static const float near = 0.9999f;
    float before = 0.0f;
    float here = 0.0f;
    float scale = 0.0f;
    for (int i = 0; i < c->n_places; i++) {
        const bool moved = c->b[sign][i] != 0.0f;
        a += c->a[sign][i];
        b += c->b[sign][i];
        c->a[sign][i] = a;
        c->b[sign][i] = b;
        if (moved || i == 0) {
            const float next = a > 0.0f && b > 0.0f ? a * a / b : 0.0f;
            if (here > 0.0f && here > near * before && here > near * next) {
                curve_add_peak(c, scale, here);
            }
            before = here;
            here = next;
            scale = next > 0.0f ? a / b : 0.0f;
            if (sign) {
                scale = -scale;
            }
        }
    }
    if (here > 0.0f && here > near * before) {
        curve_add_peak(c, scale, here);
    }
}

void berth_curve_init(struct curve *c, const float *x, const float *w, int len, float amax, const struct grid *grid, bool fine) {
    struct moves up, down;
    const float edge = max_f32(grid->hi, -grid->lo);
    float g0 = 0.0f; // grid value of every element at inverse scale zero
    float wx = 0.0f, ww = 0.0f, wxx = 0.0f;
    moves_init(&up, grid, 1);
    moves_init(&down, grid, -1);
    for (int i = 15; grid->values != NULL && i >= 0 && grid->values[i] >= 0; i--) {
        g0 = grid->values[i];
    }
    c->n_peaks = 0;
    c->first = berth_float_bits(0.25f * edge / amax);
    c->shift = fine ? 17 : 18;
    c->n_places = CURVE_OCTAVES << (23 - c->shift);
    for (int sign = 0; sign < 2; sign++) {
        memset(c->a[sign], 0, (size_t) c->n_places * sizeof(float));
        memset(c->b[sign], 0, (size_t) c->n_places * sizeof(float));
    }
    for (int j = 0; j < len; j++) {
        wx += w[j] * x[j];
        ww += w[j];
        wxx += w[j] * x[j] * x[j];
        if (x[j] != 0.0f) {
            curve_add_moves(c, 0, x[j], w[j], x[j] > 0.0f ? &up : &down);
            curve_add_moves(c, 1, x[j], w[j], x[j] > 0.0f ? &down : &up);
        }
    }
    curve_sum(c, 0, g0 * wx, g0 * g0 * ww);
    curve_sum(c, 1, -g0 * wx, g0 * g0 * ww);
    while (c->n_peaks > 1 && wxx - c->gain[c->n_peaks - 1] > 2.0f * (wxx - c->gain[0]) + 1e-3f * wxx) {
        c->n_peaks--;
    }
}
