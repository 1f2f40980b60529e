// SPDX-License-Identifier: MIT
// chunked.c: finds better plans for a pool of several chunks. The used length of a chunk is the highest end of its blocks. The
// cost of a plan is the sum of the used lengths of its chunks. The blocks are placed in a given order. Each block goes where the
// used length of its chunk grows least; of several such places, it takes the smallest gap. Four orders of the blocks are tried.
// Then pairs of blocks are exchanged in the best of these orders. With the blocks in the order of their first steps, the method
// is ggml's online best fit. The method proves no bound. It takes O(n^2) per order.

#include "base/min.h"
#include "plan/solve/plan.h"

#include <string.h>

#define BLOCKS_MAX 2000     // problems with more blocks keep their plan
#define FAST_WORK 2000000   // limit on exchanges * blocks^2 without a deadline; 4 ms
#define TRIES_PER_BLOCK 400 // limit on exchanges per block

struct chunked {
    const struct plan_prob *p;
    uint64_t *key;   // [2n] scratch of the sort
    int32_t *spare;  // [n] scratch of the sort
    int32_t *order;  // [n]
    int32_t *placed; // [n] by rising offset
    int64_t *used;   // [n + 1] used length of each chunk
    int64_t *plan;   // [n] offsets of the order that was placed last
    int64_t *most;   // [n] the largest total of a section in the lifetime of each block
};

static int64_t total_used(struct chunked *c, const int64_t *off) {
    const struct plan_prob *p = c->p;
    int64_t sum = 0;
    memset(c->used, 0, ((size_t) p->n + 1) * sizeof *c->used);
    for (int32_t i = 0; i < p->n; i++) {
        const int64_t k = off[i] / p->chunk, end = off[i] % p->chunk + p->size[i];
        if (k > p->n) {
            return PLAN_NO_CAP; // a plan of the fast path may use more than n chunks
        }
        if (end > c->used[k]) {
            sum += end - c->used[k];
            c->used[k] = end;
        }
    }
    return sum;
}

// A place for a block: its offset, the increase of the chunk's used length, and the units of the gap that stay free.
struct choice {
    int64_t at, adds, left;
};

static void choice_offer(struct choice *best, const struct chunked *c, int64_t at, int64_t gap_end, int64_t size) {
    const int64_t k = at / c->p->chunk, end = at % c->p->chunk + size;
    const int64_t adds = end > c->used[k] ? end - c->used[k] : 0, left = gap_end - at - size;
    if (best->at < 0 || adds < best->adds || (adds == best->adds && left < best->left)) {
        *best = (struct choice){at, adds, left};
    }
}

// Returns the end of the gap that begins at `at`: `end` or the end of the chunk, whichever is lower.
static int64_t gap_end(const struct plan_prob *p, int64_t at, int64_t end) {
    const int64_t chunk_end = (at / p->chunk + 1) * p->chunk;
    return min_i64(end, chunk_end);
}

static struct choice best_place(const struct chunked *c, int32_t n_placed, int32_t i) {
    const struct plan_prob *p = c->p;
    struct choice best = {.at = -1};
    const int64_t limit = PLAN_NO_CAP - p->size[i];
    int64_t at = 0;
    for (int32_t k = 0; k < n_placed && at >= 0; k++) {
        const int32_t j = c->placed[k];
        if (p->end[j] <= p->begin[i] || p->end[i] <= p->begin[j] || c->plan[j] + p->size[j] <= at) {
            continue;
        }
        // The free units before block j may extend over several chunks.
        while (at >= 0 && c->plan[j] - at >= p->size[i]) {
            choice_offer(&best, c, at, gap_end(p, at, c->plan[j]), p->size[i]);
            at = berth_plan_lowest_at(p, i, (at / p->chunk + 1) * p->chunk, limit);
        }
        if (at >= 0 && at < c->plan[j] + p->size[j]) {
            at = berth_plan_lowest_at(p, i, c->plan[j] + p->size[j], limit);
        }
    }
    // The free units after all placed blocks, up to the first empty chunk.
    while (at >= 0) {
        choice_offer(&best, c, at, gap_end(p, at, PLAN_NO_CAP), p->size[i]);
        if (c->used[at / p->chunk] == 0) {
            break;
        }
        at = berth_plan_lowest_at(p, i, (at / p->chunk + 1) * p->chunk, limit);
    }
    return best;
}

// Returns the cost of c->plan, PLAN_NO_CAP: above target.
static int64_t place_all(struct chunked *c, int64_t target) {
    int64_t sum = 0;
    memset(c->used, 0, ((size_t) c->p->n + 1) * sizeof *c->used);
    for (int32_t o = 0; o < c->p->n; o++) {
        const int32_t i = c->order[o];
        const struct choice best = best_place(c, o, i);
        sum += best.adds;
        if (best.at < 0 || sum > target) {
            return PLAN_NO_CAP;
        }
        if (best.adds > 0) {
            c->used[best.at / c->p->chunk] += best.adds;
        }
        c->plan[i] = best.at;
        int32_t k = o;
        for (; k > 0 && c->plan[c->placed[k - 1]] > best.at; k--) {
            c->placed[k] = c->placed[k - 1];
        }
        c->placed[k] = i;
    }
    return sum;
}

static void keep_better(struct chunked *c, struct plan_state *s, int64_t sum) {
    if (sum < s->peak) {
        memcpy(s->spare, c->plan, (size_t) c->p->n * sizeof *c->plan);
        plan_state_take(s, sum, "chunks");
    }
}

// ---- orders ----

enum order { BY_SIZE, BY_FIRST, BY_AREA, BY_CROWD, N_ORDERS };

static uint64_t key_of(const struct chunked *c, enum order by, int32_t i) {
    const struct plan_prob *p = c->p;
    switch (by) {
        case BY_SIZE: return ~(uint64_t) p->size[i];
        case BY_FIRST: return (uint64_t) p->begin[i];
        case BY_AREA: return ~plan_coarse((double) p->size[i] * (double) (p->end[i] - p->begin[i]), 20);
        default: return ~(uint64_t) c->most[i];
    }
}

static void order_by(struct chunked *c, enum order by) {
    uint64_t *key = c->key;
    for (int32_t i = 0; i < c->p->n; i++) {
        c->order[i] = i;
        key[i] = ~(uint64_t) c->p->size[i];
    }
    if (by != BY_FIRST) { // larger blocks come first among equal keys; BY_FIRST keeps the order of the problem
        berth_plan_sort(key, c->order, key + c->p->n, c->spare, c->p->n);
    }
    for (int32_t k = 0; k < c->p->n; k++) {
        key[k] = key_of(c, by, c->order[k]);
    }
    berth_plan_sort(key, c->order, key + c->p->n, c->spare, c->p->n);
}

static void plan_exchange(struct chunked *c, const struct plan_goal *g, struct plan_state *s, int64_t last) {
    const int32_t n = c->p->n;
    int64_t tries = (int64_t) n * TRIES_PER_BLOCK; // fewer tries for fewer blocks, which have fewer orders
    uint64_t random = g->seed;
    if (g->deadline_us <= 0 && tries > FAST_WORK / ((int64_t) n * n)) {
        tries = FAST_WORK / ((int64_t) n * n);
    }
    for (; tries > 0 && n > 1 && !plan_is_done(s, g); tries--) {
        if (g->deadline_us > 0 && plan_now_us(g->work) >= g->deadline_us) {
            break;
        }
        random = random * 6364136223846793005u + 1442695040888963407u;
        const int32_t x = (int32_t) ((random >> 33) % (uint64_t) n), y = (int32_t) ((random >> 13) % (uint64_t) n);
        const int32_t was = c->order[x];
        c->order[x] = c->order[y];
        c->order[y] = was;
        plan_work_add(g->work, plan_work_place(n));
        const int64_t sum = place_all(c, last);
        if (sum == PLAN_NO_CAP) {
            c->order[y] = c->order[x];
            c->order[x] = was;
        } else {
            last = sum;
            keep_better(c, s, sum);
        }
    }
}

static void plan_improve(struct chunked *c, const struct plan_goal *g, struct plan_state *s) {
    enum order best = BY_FIRST;
    int64_t best_sum = PLAN_NO_CAP;
    for (int by = 0; by < N_ORDERS && !plan_is_done(s, g); by++) {
        order_by(c, (enum order) by);
        const int64_t sum = place_all(c, PLAN_NO_CAP - 1);
        if (sum < best_sum) {
            best_sum = sum;
            best = (enum order) by;
        }
        keep_better(c, s, sum);
    }
    if (best_sum != PLAN_NO_CAP && !plan_is_done(s, g)) {
        order_by(c, best);
        plan_exchange(c, g, s, best_sum);
    }
}

enum ggml_status berth_plan_chunked(const struct plan_prob *p, const struct plan_goal *g, struct plan_state *s) {
    const size_t n = (size_t) p->n;
    if (p->n_fixed > 0 || p->n > BLOCKS_MAX) {
        return GGML_STATUS_SUCCESS;
    }
    struct berth_arrays mem = {0};
    struct chunked c = {.p = p, .order = berth_arrays_new(&mem, n, sizeof *c.order)};
    c.placed = berth_arrays_new(&mem, n, sizeof *c.placed);
    c.used = berth_arrays_new(&mem, n + 1, sizeof *c.used);
    c.plan = berth_arrays_new(&mem, n, sizeof *c.plan);
    c.most = berth_arrays_new(&mem, n, sizeof *c.most);
    c.key = berth_arrays_new(&mem, 2 * n, sizeof *c.key);
    c.spare = berth_arrays_new(&mem, n, sizeof *c.spare);
    const bool ok = !mem.has_failed && berth_plan_life_max(p, c.most);
    if (ok) {
        s->peak = total_used(&c, s->off);
        plan_improve(&c, g, s);
    }
    berth_arrays_free(&mem);
    return ok ? GGML_STATUS_SUCCESS : berth_fail(GGML_STATUS_ALLOC_FAILED, "plan: out of memory for chunks of %d blocks", p->n);
}
