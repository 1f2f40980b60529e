// SPDX-License-Identifier: MIT
// latency.h: a histogram of times, as Prometheus expects it. It has fixed buckets, so adding a time allocates nothing.
#pragma once

#include "base/base.h"

#define LATENCY_N_BUCKETS 16

struct latency {
    int64_t counts[LATENCY_N_BUCKETS]; // times above the limit of the preceding bucket and not above that of this one
    int64_t n, sum_us;
};

// Returns the largest time of a bucket in seconds; INFINITY: the last one has no limit.
double latency_limit(int i_bucket);
void latency_add(struct latency *l, int64_t time_us);
