// SPDX-License-Identifier: MIT
// latency.c: the functions of latency.h.

#include "serve/latency.h"

#include <math.h>

double latency_limit(int i_bucket) {
    static const double limits[LATENCY_N_BUCKETS] = {
        0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60, INFINITY};
    return limits[i_bucket];
}

void latency_add(struct latency *l, int64_t time_us) {
    int i = 0;
    while ((double) time_us > 1e6 * latency_limit(i)) {
        i++;
    }
    l->counts[i]++;
    l->n++;
    l->sum_us += time_us;
}
