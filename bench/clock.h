// SPDX-License-Identifier: MIT
// clock.h: reads a clock in seconds, and computes a median.
#pragma once

#include <stdlib.h>
#include <time.h>

static inline double clock_s(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double) t.tv_sec + (double) t.tv_nsec * 1e-9;
}

static inline int clock_by_value(const void *a, const void *b) {
    const double x = *(const double *) a, y = *(const double *) b;
    return (x > y) - (x < y);
}

// The median of x[0..n). Sorts x.
static inline double clock_median(double *x, int n) {
    qsort(x, (size_t) n, sizeof *x, clock_by_value);
    return (x[(n - 1) / 2] + x[n / 2]) / 2;
}
