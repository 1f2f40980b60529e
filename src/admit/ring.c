// SPDX-License-Identifier: MIT
// ring.c: rings that hold one number per step, from the present step to the last one that a sequence can reach.

#include "admit/state.h"
#include "base/min.h"

static int32_t array_max(const int32_t *x, int64_t n) {
    int32_t most = 0;
    for (int64_t i = 0; i < n; i++) {
        most = max_i32(most, x[i]);
    }
    return most;
}

static void array_add(int32_t *x, int64_t n, int32_t value) {
    for (int64_t i = 0; i < n; i++) {
        x[i] += value;
    }
}

static int64_t ring_index(const struct admit *a, int64_t t) {
    const int64_t i = a->i_now + t;
    return i < a->params.n_ctx ? i : i - a->params.n_ctx;
}

int32_t admit_ring_get(const struct admit *a, const int32_t *ring, int64_t t) {
    return ring[ring_index(a, t)];
}

int32_t admit_ring_max(const struct admit *a, const int32_t *ring, int64_t t, int64_t n) {
    const int64_t i = ring_index(a, t);
    const int64_t n_first = min_i64(n, a->params.n_ctx - i); // up to the end of the array; the others are at its start
    return max_i32(array_max(ring + i, n_first), array_max(ring, n - n_first));
}

void admit_ring_add(const struct admit *a, int32_t *ring, int64_t t, int64_t n, int32_t value) {
    const int64_t i = ring_index(a, t);
    const int64_t n_first = min_i64(n, a->params.n_ctx - i);
    array_add(ring + i, n_first, value);
    array_add(ring, n - n_first, value);
}
