// SPDX-License-Identifier: MIT
// plan_made.h: generated packing problems for bench-plan and tests. A seed gives the same problem on every machine.
//
//   hard      150 to 420 items like those of MiniMalloc's instances. The items are pieces of a rectangle of time and memory. At
//             one step, called `full`, the pieces take all of the rectangle's memory. So the height of the rectangle is the
//             optimum. Greedy methods may reach it.
//   pieces    300 to 700 pieces of such a rectangle, without a check that greedy methods fail
//   random    any number of items with independent sizes and lifetimes, at one item per step on average. wide: sizes of 2^6 to
//             2^24 bytes and lifetimes of 1 to 2^12 steps, both log-uniform. Otherwise: sizes uniform up to 1 MiB, and lifetimes
//             exponential with a mean of 400 steps.
//   training  10,000 to 60,000 items of a network and its gradients. Activations live from their forward step to their backward
//             step. Gradients, workspace and other values live for a few steps.
#pragma once

#include "base/base.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// A generated ("made") problem.
struct plan_made {
    struct berth_plan_item *items;
    int64_t n, cap;
    uint64_t optimum; // the lowest possible peak in bytes; 0: unknown
    uint64_t random;
};

static inline uint64_t made_random(struct plan_made *m) {
    m->random += 0x9E3779B97F4A7C15u;
    uint64_t z = m->random;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

static inline int64_t made_below(struct plan_made *m, int64_t n) {
    return (int64_t) (made_random(m) % (uint64_t) n);
}

static inline int64_t made_between(struct plan_made *m, int64_t lo, int64_t hi) {
    return lo + made_below(m, hi - lo + 1);
}

// Adds an item that lives in [lower, upper).
static inline void made_add(struct plan_made *m, int64_t lower, int64_t upper, int64_t size) {
    if (m->n == m->cap) {
        m->cap = 2 * m->cap + 256;
        m->items = realloc(m->items, (size_t) m->cap * sizeof *m->items);
        if (m->items == NULL) {
            abort();
        }
    }
    m->items[m->n++] = (struct berth_plan_item){.first = lower, .last = upper - 1, .size = (uint64_t) size, .align = 1};
}

static inline void made_free(struct plan_made *m) {
    free(m->items);
    *m = (struct plan_made){0};
}

// ---- hard ----

#define MADE_SIDE 1024 // the rectangle has so many steps, and its height is so many units of memory
#define MADE_UNIT 1024 // bytes per unit

// Cuts the rectangle into n pieces. A cut divides either the lifetime or the size of a piece. Then pieces that are not alive at
// step `full` may be shortened or removed, so that the other steps have free memory.
static inline void made_cut(struct plan_made *m, int64_t n, int64_t full) {
    made_add(m, 0, MADE_SIDE, MADE_SIDE);
    while (m->n < n) {
        struct berth_plan_item *it = &m->items[made_below(m, m->n)];
        const int64_t width = it->last - it->first + 1;
        const bool divides_lifetime = made_below(m, 2) == 0;
        const int64_t side = divides_lifetime ? width : (int64_t) it->size;
        if (side < 2) {
            continue;
        }
        const int64_t at = made_between(m, 1, side - 1);
        const int64_t lo = it->first, hi = it->last + 1, size = (int64_t) it->size;
        if (divides_lifetime) {
            it->last = lo + at - 1;
            made_add(m, lo + at, hi, size);
        } else {
            it->size = (uint64_t) at;
            made_add(m, lo, hi, size - at);
        }
    }
    const int64_t loose = made_between(m, 8,
        40); // percent of pieces to change; this removes 1 to 12% of the area, as in instances A to E
    for (int64_t i = 0; i < m->n; i++) {
        struct berth_plan_item *it = &m->items[i];
        const int64_t width = it->last - it->first + 1;
        if ((it->first <= full && full <= it->last) || made_below(m, 100) >= loose) {
            continue;
        }
        if (width > 2) {
            it->last -= made_below(m, width / 2);
        } else {
            *it = m->items[--m->n];
            i--;
        }
    }
}

// Returns the first item that overlaps bytes [lo, hi) at a step of [from, to), -1: none. `fixed` of an item is its offset.
static inline int64_t made_meets(const struct plan_made *m, int64_t from, int64_t to, int64_t lo, int64_t hi) {
    for (int64_t i = 0; i < m->n; i++) {
        const struct berth_plan_item *it = &m->items[i];
        const int64_t at = (int64_t) it->fixed;
        if (it->first < to && from <= it->last && at < hi && lo < at + (int64_t) it->size) {
            return i;
        }
    }
    return -1;
}

// A gap is a range of bytes that no piece uses at step `full`. Each gap gets a piece, so that step `full` has no free memory. The
// piece is also alive at the neighbouring steps at which its bytes are free, but no more than 40 steps away from `full`.
static inline void made_fill(struct plan_made *m, int64_t full) {
    for (int64_t lo = 0; lo < MADE_SIDE;) {
        const int64_t in = made_meets(m, full, full + 1, lo, lo + 1);
        if (in >= 0) {
            lo = (int64_t) m->items[in].fixed + (int64_t) m->items[in].size;
            continue;
        }
        int64_t hi = lo + 1, from = full, to = full + 1;
        while (hi < MADE_SIDE && made_meets(m, full, full + 1, lo, hi + 1) < 0) {
            hi++;
        }
        while (from > 0 && from > full - 40 && made_meets(m, from - 1, from, lo, hi) < 0) {
            from--;
        }
        while (to < MADE_SIDE && to < full + 40 && made_meets(m, to, to + 1, lo, hi) < 0) {
            to++;
        }
        made_add(m, from, to, hi - lo);
        m->items[m->n - 1].fixed = (uint64_t) lo;
        lo = hi;
    }
}

// Stacks up to n random pieces: each piece gets the lowest offset above all earlier pieces with a common step. Then fills the
// gaps.
static inline void made_stack(struct plan_made *m, int64_t n, int64_t full) {
    int64_t *skyline = calloc(MADE_SIDE, sizeof *skyline);
    if (skyline == NULL) {
        abort();
    }
    for (int64_t misses = 0; m->n < n && misses < 200;) {
        const int64_t width = made_between(m, 8, 20) + made_between(m, 8, 36);
        const int64_t size = made_between(m, 15, 45) + made_between(m, 15, 60);
        const int64_t lower = made_below(m, MADE_SIDE - width);
        int64_t level = 0;
        for (int64_t t = lower; t < lower + width; t++) {
            level = skyline[t] > level ? skyline[t] : level;
        }
        if (level + size > MADE_SIDE) {
            misses++;
            continue;
        }
        made_add(m, lower, lower + width, size);
        m->items[m->n - 1].fixed = (uint64_t) level;
        for (int64_t t = lower; t < lower + width; t++) {
            skyline[t] = level + size;
        }
    }
    made_fill(m, full);
    free(skyline);
}

static inline void plan_made_hard(struct plan_made *m, uint64_t seed) {
    *m = (struct plan_made){.random = seed * 0xD1342543DE82EF95u, .optimum = (uint64_t) MADE_SIDE * MADE_UNIT};
    const int64_t n = made_between(m, 150, 420);
    const int64_t full = made_below(m, MADE_SIDE);
    if (made_below(m, 4) > 0) {
        made_cut(m, n, full);
    } else {
        made_stack(m, n, full);
    }
    for (int64_t i = 0; i < m->n; i++) {
        m->items[i].size *= MADE_UNIT;
        m->items[i].fixed = 0; // made_stack has stored the offset there
    }
}

static inline void plan_made_pieces(struct plan_made *m, uint64_t seed) {
    *m = (struct plan_made){.random = seed * 0xD1342543DE82EF95u, .optimum = (uint64_t) MADE_SIDE * MADE_UNIT};
    const int64_t n = made_between(m, 300, 700);
    made_cut(m, n, made_below(m, MADE_SIDE));
    for (int64_t i = 0; i < m->n; i++) {
        m->items[i].size *= MADE_UNIT;
    }
}

// ---- random ----

static inline double made_fraction(struct plan_made *m) {
    return (double) (made_random(m) >> 11) / 9007199254740992.0;
}

static inline void plan_made_random(struct plan_made *m, int64_t n, bool is_wide, uint64_t seed) {
    *m = (struct plan_made){.random = seed * 0xD1342543DE82EF95u};
    for (int64_t i = 0; i < n; i++) {
        const int64_t first = made_below(m, n);
        const double size = made_fraction(m), steps = made_fraction(m);
        if (is_wide) {
            made_add(m, first, first + (int64_t) exp2(12 * steps), (int64_t) exp2(6 + 18 * size));
        } else {
            made_add(m, first, first + 1 - (int64_t) (400 * log(1 - steps)), 1 + (int64_t) (size * (1 << 20)));
        }
    }
}

// ---- training ----

// A network of blocks of ops: its sizes, and which values it keeps.
struct made_net {
    int64_t n_blocks, n_ops; // n_ops: ops per block
    int64_t base_size;       // bytes of the smallest activation
    int kind;                // 0: equal blocks, 1: stages whose sizes halve, 2: all blocks differ, 3: all ops differ
    int keeps_grads;         // not 0: gradients of weights live until the end
};

static inline int64_t made_size(struct plan_made *m, const struct made_net *net, int64_t block, int64_t op, bool *is_small) {
    static const int64_t times[] = {1, 1, 3, 1, 4, 4, 1, 2};
    int64_t size = net->base_size * times[(uint64_t) (op * 5 + (net->kind == 2 ? block * 3 : 0)) % 8];
    *is_small = op % 5 == 4;
    if (*is_small) {
        return 512 * made_between(m, 1, 8);
    }
    size = net->kind == 1 ? size >> (4 * block / net->n_blocks) : size;
    size = net->kind == 2 ? size / made_between(m, 1, 7) : size;
    size = net->kind == 3 ? (size * made_between(m, 4, 128) / 128) >> made_below(m, 5) : size;
    return (size / 512 + 1) * 512;
}

// Adds the items of op k of block b. In the forward pass, the op runs at step b * n_ops + k. The backward pass starts at step
// n_blocks * n_ops. It has two steps per op and runs the ops in reverse order.
static inline void made_op(struct plan_made *m, const struct made_net *net, int64_t b, int64_t k) {
    const int64_t n_forward = net->n_blocks * net->n_ops, end = 3 * n_forward;
    const int64_t at = b * net->n_ops + k, back = n_forward + 2 * (n_forward - 1 - at);
    bool is_small;
    const int64_t size = made_size(m, net, b, k, &is_small);
    const bool is_kept = is_small || (k * 7 + b * (net->kind == 2)) % 3 != 0;
    made_add(m, at, is_kept ? back + 2 : at + made_between(m, 2, 4), size);
    if (k == 0) { // the residual is kept until the end of the block
        made_add(m, at, at + net->n_ops, net->base_size / 512 * 512 + 512);
    }
    made_add(m, back, back + 2 + made_between(m, 0, k == net->n_ops - 1 ? 2 * net->n_ops : 5), size);
    if (k % 2 == 0) { // the gradient of a weight, and its workspace
        const int64_t weight = (net->base_size / made_between(m, 2, 9) / 512 + 1) * 512;
        made_add(m, back + 1, net->keeps_grads ? end : back + 3, weight);
        made_add(m, back, back + 1, 512 * made_between(m, 1, 1 + size / 1024));
    }
    if (k % 4 == 1) {
        made_add(m, at, at + 1, 512 * made_between(m, 1, 1 + size / 512));
    }
}

static inline void plan_made_training(struct plan_made *m, uint64_t seed) {
    *m = (struct plan_made){.random = seed * 0xA0761D6478BD642Fu};
    struct made_net net = {.kind = (int) made_below(m, 4), .keeps_grads = (int) made_below(m, 2)};
    const int64_t n = made_between(m, 10000, 60000);
    net.n_ops = made_between(m, 8, 40);
    net.n_blocks = 10 * n / (33 * net.n_ops) + 1;
    net.base_size = 512 * made_between(m, 20, 20000);
    for (int64_t b = 0; b < net.n_blocks; b++) {
        for (int64_t k = 0; k < net.n_ops; k++) {
            made_op(m, &net, b, k);
        }
    }
}
