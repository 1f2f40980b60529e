// SPDX-License-Identifier: MIT
// stream_plan.c: chooses which weights stay in memory. No tensor and no file is used here. The time is linear.
//
// Weights that are larger than half of the window are resident first, because the window must hold the largest streamed weight,
// and twice that weight lets the reader work while the graph uses it. The other weights follow in the order of their bit-reversed
// index, which spreads any number of them evenly. With more memory, almost the same weights and some more are resident.

#include "backend/stream.h"

#include "base/min.h"

// At first, one part of this many is the window.
#define WINDOW_PARTS 8

static size_t bits_reverse(size_t x, int n_bits) {
    size_t r = 0;
    for (int i = 0; i < n_bits; i++) {
        r = r << 1 | (x >> i & 1);
    }
    return r;
}

static void resident_try(struct stream_weight *w, uint64_t room, struct stream_plan *plan) {
    if (w->place == STREAM_STREAMED && w->size <= room - plan->resident) {
        w->place = STREAM_RESIDENT;
        plan->resident += w->size;
    }
}

// Fills the memory outside the window. Returns the largest streamed weight.
static uint64_t places_fill(struct stream_weight *weights, size_t n, uint64_t left, struct stream_plan *plan) {
    const uint64_t room = left - plan->window;
    uint64_t largest = 0;
    int n_bits = 0;
    *plan = (struct stream_plan){.window = plan->window};
    for (size_t i = 0; i < n; i++) {
        weights[i].place = weights[i].size > left / 2 ? STREAM_PAGED : STREAM_STREAMED;
        if (weights[i].size > plan->window / 2) {
            resident_try(&weights[i], room, plan);
        }
    }
    while (n_bits < 63 && (size_t) 1 << n_bits < n) {
        n_bits++;
    }
    for (size_t k = 0; k < (size_t) 1 << n_bits; k++) {
        const size_t i = bits_reverse(k, n_bits);
        if (i < n) {
            resident_try(&weights[i], room, plan);
        }
    }
    for (size_t i = 0; i < n; i++) {
        if (weights[i].place == STREAM_STREAMED) {
            plan->streamed += weights[i].size;
            largest = max_u64(largest, weights[i].size);
        } else if (weights[i].place == STREAM_PAGED) {
            plan->paged += weights[i].size;
        }
    }
    return largest;
}

static bool is_all_resident(struct stream_weight *weights, size_t n, uint64_t left, struct stream_plan *plan) {
    *plan = (struct stream_plan){0};
    for (size_t i = 0; i < n; i++) {
        weights[i].place = STREAM_STREAMED;
        resident_try(&weights[i], left, plan);
        if (weights[i].place != STREAM_RESIDENT) {
            return false;
        }
    }
    return true;
}

void stream_plan_make(struct stream_weight *weights, size_t n, uint64_t left, struct stream_plan *plan) {
    if (is_all_resident(weights, n, left, plan)) {
        return;
    }
    plan->window = left / WINDOW_PARTS;
    uint64_t largest = places_fill(weights, n, left, plan);
    // A larger window leaves less memory for resident weights, so larger weights may be streamed. No streamed weight is larger than
    // left / 2.
    while (largest > plan->window / 2 && plan->window < left / 2) {
        plan->window = min_u64(2 * largest, left / 2);
        largest = places_fill(weights, n, left, plan);
    }
}
