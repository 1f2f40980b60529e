// SPDX-License-Identifier: MIT
// rows.h: random rows of every kind that a quantiser may receive, and importance matrices.
#pragma once

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

static uint64_t rng_state;

static inline uint64_t rng(void) {
    uint64_t z = rng_state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static inline double uniform(void) {
    return (double) (rng() >> 11) * 0x1p-53;
}

static inline double gauss(void) {
    return sqrt(-2.0 * log(1.0 - uniform())) * cos(6.283185307179586 * uniform());
}

enum kind {
    GAUSS,
    UNIFORM,
    POSITIVE,
    NEGATIVE,
    OUTLIER,
    LUMPY,
    SPARSE,
    GRID,
    CONSTANT,
    SINGLE,
    ZERO,
    LARGE,
    SMALL,
    HUGE_ROW,
    DENORMAL,
    N_FINITE_KINDS,
    NONFINITE = N_FINITE_KINDS,
    N_KINDS,
};
// In rows of huge numbers, scales overflow, and quantisers convert numbers to int that do not fit, which is undefined in C. Berth
// saturates, as the reference's build for Arm does. The reference's build for x86 does not, so these kinds are not compared there.
#if defined(__x86_64__)
#    define N_COMPARED_KINDS HUGE_ROW
#else
#    define N_COMPARED_KINDS N_KINDS
#endif
static const char *const kind_names[N_KINDS] = {"gauss", "uniform", "positive", "negative", "outlier", "lumpy", "sparse", "grid",
    "constant", "single", "zero", "large", "small", "huge", "denormal", "nonfinite"};
// Whether the kind counts in the mean error: its numbers are within the range of every format and are not exactly representable.
static inline bool is_ordinary(enum kind kind) {
    return kind <= GRID;
}

static inline void fill(enum kind kind, float *x, int n) {
    const double c = gauss();
    double lump = 1;
    const int at = (int) (rng() % (uint64_t) n);
    for (int i = 0; i < n; i++) {
        if (i % 16 == 0) {
            lump = exp(2 * gauss());
        }
        double v = 0;
        switch (kind) {
            case GAUSS: v = gauss(); break;
            case UNIFORM: v = 2 * uniform() - 1; break;
            case POSITIVE: v = 0.5 + uniform(); break;
            case NEGATIVE: v = -0.1 - fabs(gauss()); break;
            case OUTLIER: v = gauss() * (rng() % 64 == 0 ? 20 : 1); break;
            case LUMPY: v = gauss() * lump; break;
            case SPARSE: v = rng() % 8 == 0 ? gauss() : 0; break;
            case GRID: v = (double) (int) (rng() % 65 - 32) / 16; break;
            case CONSTANT: v = c; break;
            case SINGLE: v = i == at ? c : 0; break;
            case ZERO: v = rng() % 2 ? 0.0 : -0.0; break;
            case LARGE: v = gauss() * 3e5; break;
            case SMALL: v = gauss() * 1e-7; break;
            case HUGE_ROW: v = gauss() * 1e37; break;
            case DENORMAL: v = gauss() * 1e-40; break;
            default: v = rng() % 16 == 0 ? (rng() % 2 ? NAN : rng() % 2 ? INFINITY : -INFINITY) : gauss(); break;
        }
        x[i] = (float) v;
    }
}

// Fills the weights of an importance matrix with random numbers of similar or of very different magnitudes. Some rows contain
// zeros, but every 16th weight is not zero.
static inline void fill_weights(float *w, int n) {
    const double spread = 1 + 2 * (double) (rng() % 2);
    const bool sparse = rng() % 4 == 0;
    for (int i = 0; i < n; i++) {
        w[i] = sparse && i % 16 != 0 && rng() % 4 == 0 ? 0.0f : (float) exp(spread * gauss());
    }
}
