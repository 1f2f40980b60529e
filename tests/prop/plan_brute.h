// SPDX-License-Identifier: MIT
// plan_brute.h: random numbers, and the least peak by brute force, without code of the solver.
#pragma once

#include "berth.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BRUTE_MAX 12

static uint64_t brute_seed = 1;

static inline uint64_t brute_random(uint64_t below) {
    brute_seed += 0x9E3779B97F4A7C15u;
    uint64_t z = brute_seed;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return (z ^ z >> 31) % below;
}

static inline struct berth_plan_item brute_item(int64_t first, int64_t last, uint64_t size) {
    return (struct berth_plan_item){first, last, size, 1, 0, 0, 0, false};
}

static inline bool brute_meet(const struct berth_plan_item *x, const struct berth_plan_item *y) {
    return x->first <= y->last && y->first <= x->last;
}

// Checks every pair of items by the definition of a valid plan.
static inline bool brute_is_valid(const struct berth_plan_item *items, int64_t n, uint64_t max_chunk, const uint64_t *off) {
    for (int64_t i = 0; i < n; i++) {
        uint64_t in = max_chunk > 0 ? off[i] % max_chunk : off[i];
        if ((items[i].align > 1 && in % items[i].align != 0) || (items[i].is_fixed && off[i] != items[i].fixed) ||
            (max_chunk > 0 && in + items[i].size > max_chunk)) {
            return false;
        }
        for (int64_t j = 0; j < i; j++) {
            bool is_group = items[i].alias > 0 && items[i].alias == items[j].alias;
            if (is_group && (off[i] != off[j] || items[i].pool != items[j].pool)) {
                return false;
            }
            if (!is_group && items[i].pool == items[j].pool && items[i].size > 0 && items[j].size > 0 &&
                brute_meet(&items[i], &items[j]) && off[i] < off[j] + items[j].size && off[j] < off[i] + items[i].size) {
                return false;
            }
        }
    }
    return true;
}

static inline uint64_t brute_live(const struct berth_plan_item *items, int64_t n) {
    uint64_t most = 0;
    for (int64_t i = 0; i < n; i++) {
        uint64_t sum = 0;
        for (int64_t j = 0; j < n; j++) {
            sum += items[j].first <= items[i].first && items[i].first <= items[j].last ? items[j].size : 0;
        }
        most = sum > most ? sum : most;
    }
    return most;
}

struct brute {
    const struct berth_plan_item *items;
    int64_t n;
    uint64_t off[BRUTE_MAX];
    bool placed[BRUTE_MAX];
    uint64_t best, live;
};

// Places items by rising offset, each at the lowest offset that the placed items allow. at: the highest offset of a placed item.
// peak: the highest end of a placed item.
static inline void brute_place(struct brute *b, int64_t n_left, uint64_t at, uint64_t peak) {
    if (n_left == 0) {
        b->best = peak < b->best ? peak : b->best;
        return;
    }
    for (int64_t i = 0; i < b->n && b->best > b->live; i++) {
        if (b->placed[i]) {
            continue;
        }
        uint64_t off = 0;
        for (int64_t j = 0; j < b->n; j++) {
            if (b->placed[j] && brute_meet(&b->items[i], &b->items[j]) && b->off[j] + b->items[j].size > off) {
                off = b->off[j] + b->items[j].size;
            }
        }
        uint64_t end = off + b->items[i].size;
        if (off < at || end >= b->best) {
            continue;
        }
        b->placed[i] = true;
        b->off[i] = off;
        brute_place(b, n_left - 1, off, end > peak ? end : peak);
        b->placed[i] = false;
    }
}

// Items have no alignments, fixed offsets, alias groups or pools; n <= BRUTE_MAX.
static inline uint64_t brute_optimum(const struct berth_plan_item *items, int64_t n) {
    struct brute b = {.items = items, .n = n, .live = brute_live(items, n)};
    b.best = 1;
    for (int64_t i = 0; i < n; i++) {
        b.best += items[i].size;
    }
    brute_place(&b, n, 0, 0);
    return b.best;
}

static inline void brute_print(const struct berth_plan_item *items, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        printf("  item %lld: steps %lld to %lld, size %llu, align %llu, fixed %lld, alias %d, pool %d\n", (long long) i,
            (long long) items[i].first, (long long) items[i].last, (unsigned long long) items[i].size,
            (unsigned long long) items[i].align, items[i].is_fixed ? (long long) items[i].fixed : -1, items[i].alias,
            items[i].pool);
    }
}
