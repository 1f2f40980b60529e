// SPDX-License-Identifier: MIT
// solve.c: the entry points of the planner, in bytes. fast.c finds the first plan of a pool; search.c finds better plans. In
// debug builds berth_plan_check checks every plan.

#include "base/min.h"
#include "plan/solve/plan.h"
#include "plan/solve/proof.h"

#include <string.h>

#define FEW_ITEMS 64

struct solve {
    const struct berth_plan_item *items;
    int64_t n;
    struct berth_plan_params params;
    struct plan_traits traits;
    uint64_t *offsets;
    struct berth_plan_report report;
    int64_t start_us;
    int64_t searched_us;     // time or counted work that searches have used
    struct plan_work work;   // counted work of searches, if params.is_counted
    uint64_t peak_max;       // bytes; the highest peak of a pool so far
    int32_t n_left;          // pools that are not planned yet
    struct plan_watch watch; // ask == NULL: there is no callback
    struct plan_proof proof; // write == NULL: no proof is written
    struct berth_scratch scratch;
};

// ---- peaks in bytes ----

// Computes the bytes that a pool requires (*peak) and the number of items that end at the peak (*n_peak). With several chunks,
// *peak is the sum of the used bytes of the chunks.
static enum ggml_status pool_peak(const struct plan_pool *pool, const uint64_t *offsets, uint64_t *peak, int64_t *n_peak) {
    *peak = 0;
    *n_peak = 0;
    for (int32_t k = 0; k < pool->n_ids; k++) {
        int32_t i = pool->ids[k];
        uint64_t end = offsets[i] + pool->items[i].size;
        if (pool->items[i].size > 0 && end >= *peak) {
            *n_peak = end > *peak ? 1 : *n_peak + 1;
            *peak = end;
        }
    }
    if (pool->chunk_limit == 0 || *peak <= pool->chunk_limit) {
        return GGML_STATUS_SUCCESS;
    }
    size_t n = (size_t) pool->n_ids;
    struct berth_arrays mem = {0};
    uint64_t *key = berth_arrays_new(&mem, 2 * n, sizeof *key);
    int32_t *idx = berth_arrays_new(&mem, 2 * n, sizeof *idx);
    if (mem.has_failed) {
        berth_arrays_free(&mem);
        return berth_fail(GGML_STATUS_ALLOC_FAILED, "plan: out of memory for the chunks of %d items", pool->n_ids);
    }
    for (int32_t k = 0; k < pool->n_ids; k++) {
        idx[k] = pool->ids[k];
        key[k] = offsets[idx[k]] / pool->chunk_limit;
    }
    berth_plan_sort(key, idx, key + n, idx + n, pool->n_ids);
    *peak = 0;
    uint64_t used = 0;
    for (int32_t k = 0; k < pool->n_ids; k++) {
        uint64_t end = offsets[idx[k]] % pool->chunk_limit + pool->items[idx[k]].size;
        if (pool->items[idx[k]].size > 0 && end > used) {
            used = end;
        }
        if (k + 1 == pool->n_ids || key[k + 1] != key[k]) {
            *peak += used;
            used = 0;
        }
    }
    berth_arrays_free(&mem);
    return GGML_STATUS_SUCCESS;
}

// ---- one pool ----

// The result for one pool, in bytes.
struct outcome {
    uint64_t peak, bound;
    int64_t bound_step, n_peak, n_nodes;
    const char *method;
};

// Raises the bound in bytes to `bound`, which is in units. Subtracts pad_max bytes, because the padding of the highest block does
// not count.
static void outcome_raise_bound(struct outcome *out, const struct plan_pool *pool, int64_t bound) {
    const struct plan_prob *p = &pool->prob;
    if (!p->bound_is_inexact && p->chunk == 0 && bound > p->bound && bound <= INT64_MAX / (int64_t) pool->unit) {
        uint64_t bytes = (uint64_t) bound * pool->unit - pool->pad_max;
        out->bound = max_u64(bytes, out->bound);
    }
}

static enum ggml_status pool_plan(struct solve *s, struct plan_pool *pool, struct outcome *out) {
    struct plan_prob *p = &pool->prob;
    struct plan_state state = {.peak = PLAN_NO_CAP, .bound = p->bound, .method = "start"};
    struct plan_goal goal = {.seed = s->params.seed,
        .n_threads = s->params.n_threads > 1 && !s->params.is_counted ? s->params.n_threads : 1,
        .is_brief = s->params.is_brief,
        .proof = s->proof.write != NULL ? &s->proof : NULL};
    struct plan_work timed = {0};
    int64_t *memory = berth_scratch_take(&s->scratch, 2 * (size_t) p->n * sizeof *memory);
    if (memory == NULL) {
        return berth_fail(GGML_STATUS_ALLOC_FAILED, "plan: out of memory for %d offsets", p->n);
    }
    state.off = memory;
    state.spare = memory + p->n;
    if (s->params.memory_limit > 0) {
        goal.enough = (int64_t) (min_u64(s->params.memory_limit, INT64_MAX) / pool->unit);
    }
    if (p->chunk == 0 && s->params.start != NULL && berth_plan_pool_take(pool, s->params.start, state.off)) {
        state.peak = berth_plan_peak(p, state.off);
        if (!p->bound_is_inexact || berth_plan_is_valid(p, state.off)) {
            memcpy(state.spare, state.off, (size_t) p->n * sizeof *state.off);
        } else {
            state.peak = PLAN_NO_CAP;
        }
    }
    enum ggml_status status = berth_plan_fast(p, &goal, &state);
    if (p->chunk > 0 && status == GGML_STATUS_SUCCESS) {
        status = berth_plan_chunked(p, &goal, &state);
    }
    if (status != GGML_STATUS_SUCCESS) {
        return status;
    }
    if (s->params.time_limit_us > 0 && !plan_is_done(&state, &goal)) {
        // The unused time of earlier pools is divided among the remaining pools.
        const struct plan_work *clock = s->params.is_counted ? &s->work : NULL;
        const int64_t now = plan_now_us(clock), left = s->params.time_limit_us - s->searched_us;
        goal.work = s->params.is_counted ? &s->work : NULL;
        goal.deadline_us = left > INT64_MAX / 2 - now ? INT64_MAX / 2 : now + left / s->n_left;
        if (!s->params.is_counted && berth_plan_counts_work(p)) {
            timed.wall_end_us = goal.deadline_us;
            goal.work = &timed;
            goal.deadline_us = INT64_MAX / 2;
        }
        atomic_store(&s->watch.least, INT64_MAX);
        s->watch.state = &state;
        s->watch.unit = pool->unit;
        goal.watch = s->watch.ask != NULL ? &s->watch : NULL;
        if (left > 0 && !atomic_load(&s->watch.is_over)) {
            status = berth_plan_search(p, &goal, &state);
        }
        s->searched_us += plan_now_us(clock) - now;
    }
    if (status != GGML_STATUS_SUCCESS) {
        return status;
    }
    BERTH_ASSERT_WHOLE(berth_plan_is_valid(p, state.off));
    berth_plan_pool_apply(pool, state.off, s->offsets);
    out->method = state.method;
    out->n_nodes = state.n_nodes;
    outcome_raise_bound(out, pool, state.bound);
    return GGML_STATUS_SUCCESS;
}

// Returns an item whose offset exceeds 2^62, -1: none. Plan files cannot hold larger offsets.
static int32_t item_beyond_limit(const struct solve *s, const int32_t *ids, int32_t n) {
    for (int32_t k = 0; k < n; k++) {
        if (s->offsets[ids[k]] > PLAN_SIZE_MAX) {
            return ids[k];
        }
    }
    return -1;
}

// Plans one pool. is_chunked: the plan may use several chunks. If *needs_chunks is true on return, there is no result, and the
// caller must try again with is_chunked.
static enum ggml_status pool_try(
    struct solve *s, int32_t *ids, int32_t n, bool is_chunked, struct outcome *out, bool *needs_chunks) {
    struct plan_pool pool = {
        .items = s->items, .ids = ids, .n_ids = n, .chunk_limit = s->params.chunk_limit, .is_chunked = is_chunked};
    const struct berth_scratch_mark mark = s->scratch.at;
    *out = (struct outcome){.method = "nothing to place"};
    *needs_chunks = false;
    enum ggml_status status = berth_plan_pool_init(&pool, &s->traits, &s->scratch);
    if (status != GGML_STATUS_SUCCESS) {
        goto done;
    }
    // A pool with padding, alignments or fixed offsets is not planned as one chunk.
    if (!is_chunked && s->params.chunk_limit > 0 && pool.prob.n > 0 &&
        (pool.pad_max > 0 || plan_prob_is_constrained(&pool.prob))) {
        *needs_chunks = true;
        goto done;
    }
    status = berth_plan_pool_bound(&pool);
    if (status != GGML_STATUS_SUCCESS) {
        goto done;
    }
    out->bound = pool.bound;
    out->bound_step = pool.bound_step;
    if (!is_chunked && s->params.chunk_limit > 0 && pool.bound > s->params.chunk_limit) {
        *needs_chunks = true;
        goto done;
    }
    if (pool.prob.n > 0) {
        status = pool_plan(s, &pool, out);
    } else {
        berth_plan_pool_apply(&pool, NULL, s->offsets);
    }
    if (status == GGML_STATUS_SUCCESS) {
        status = pool_peak(&pool, s->offsets, &out->peak, &out->n_peak);
        *needs_chunks = !is_chunked && s->params.chunk_limit > 0 && out->peak > s->params.chunk_limit;
    }
    if (status != GGML_STATUS_SUCCESS || *needs_chunks) {
        goto done;
    }
    if (out->peak > (uint64_t) INT64_MAX) {
        status = berth_fail(GGML_STATUS_FAILED, "plan: a pool of %d items requires %llu bytes, more than 2^63 - 1", n,
            (unsigned long long) out->peak);
    } else if (s->params.start != NULL) {
        uint64_t peak;
        int64_t n_peak;
        status = pool_peak(&pool, s->params.start, &peak, &n_peak);
        if (status != GGML_STATUS_SUCCESS) {
            goto done;
        }
        if (peak < out->peak || item_beyond_limit(s, ids, n) >= 0) {
            for (int32_t k = 0; k < n; k++) {
                s->offsets[ids[k]] = s->params.start[ids[k]];
            }
            out->peak = peak;
            out->n_peak = n_peak;
            out->method = "start";
        }
    }
    if (status == GGML_STATUS_SUCCESS && s->proof.write != NULL) {
        status = berth_plan_proof_write(&s->proof, &pool, &out->bound);
    }
done:
    berth_plan_proof_fini(&s->proof);
    berth_plan_pool_fini(&pool);
    berth_scratch_back(&s->scratch, mark);
    return status;
}

static enum ggml_status pool_solve(struct solve *s, int32_t *ids, int32_t n) {
    struct outcome out;
    bool needs_chunks;
    enum ggml_status status = pool_try(s, ids, n, false, &out, &needs_chunks);
    if (needs_chunks && status == GGML_STATUS_SUCCESS) {
        status = pool_try(s, ids, n, true, &out, &needs_chunks);
    }
    if (status != GGML_STATUS_SUCCESS) {
        return status;
    }
    if (out.peak > PLAN_SIZE_MAX || s->params.chunk_limit > 0) {
        const int32_t i = item_beyond_limit(s, ids, n);
        if (i >= 0) {
            return berth_fail(GGML_STATUS_FAILED, "plan: item %d of %llu bytes would have offset %llu, but the limit is 2^62", i,
                (unsigned long long) s->items[i].size, (unsigned long long) s->offsets[i]);
        }
    }
    s->n_left--;
    struct berth_plan_report *r = &s->report;
    uint64_t capacity = s->params.memory_limit;
    bool fits = capacity == 0 || out.peak <= capacity;
    if (__builtin_add_overflow(r->peak, out.peak, &r->peak) || __builtin_add_overflow(r->bound, out.bound, &r->bound)) {
        return berth_fail(GGML_STATUS_FAILED, "plan: the pools together need more than 2^64 - 1 bytes");
    }
    // With a capacity, the result "does not fit" is proven if one pool provably does not fit. All other results are proven only
    // if the results of all pools are proven.
    bool is_proven = capacity == 0 ? out.peak == out.bound : fits || out.bound > capacity;
    bool is_proven_no = !fits && is_proven;
    bool was_proven_no = !r->fits && r->proven;
    r->proven = is_proven_no || was_proven_no || (r->proven && is_proven);
    r->fits &= fits;
    r->n_nodes += out.n_nodes;
    r->n_peak += out.n_peak;
    if (out.peak > s->peak_max || s->peak_max == 0) {
        s->peak_max = out.peak;
        r->method = out.method;
        r->bound_step = out.bound_step;
    }
    return GGML_STATUS_SUCCESS;
}

// ---- all pools ----

// Lists the item numbers sorted by pool. The list is in scratch.
static enum ggml_status sort_pools(const struct berth_plan_item *items, int64_t n, bool has_pools, struct berth_scratch *scratch,
    int32_t **ids, int32_t *n_pools) {
    *n_pools = 1;
    *ids = berth_scratch_take(scratch, (size_t) n * (has_pools ? 2 : 1) * sizeof **ids);
    if (*ids == NULL) {
        return berth_fail(GGML_STATUS_ALLOC_FAILED, "plan: out of memory for %lld items", (long long) n);
    }
    for (int32_t i = 0; i < n; i++) {
        (*ids)[i] = i;
    }
    if (!has_pools) {
        return GGML_STATUS_SUCCESS;
    }
    const struct berth_scratch_mark mark = scratch->at;
    uint64_t *key = berth_scratch_take(scratch, (size_t) n * 2 * sizeof *key);
    if (key == NULL) {
        return berth_fail(GGML_STATUS_ALLOC_FAILED, "plan: out of memory for %lld items", (long long) n);
    }
    for (int32_t i = 0; i < n; i++) {
        key[i] = (uint32_t) items[i].pool;
    }
    berth_plan_sort(key, *ids, key + n, *ids + n, (int32_t) n);
    for (int32_t i = 1; i < n; i++) {
        *n_pools += key[i] != key[i - 1];
    }
    berth_scratch_back(scratch, mark);
    return GGML_STATUS_SUCCESS;
}

static int32_t pool_end(const struct berth_plan_item *items, const int32_t *ids, int32_t from, int64_t n) {
    int32_t end = from + 1;
    while (end < n && items[ids[end]].pool == items[ids[from]].pool) {
        end++;
    }
    return end;
}

// Fails if an alias group has items of different pools, because then no plan is valid.
static enum ggml_status groups_check(const struct berth_plan_item *items, int64_t n) {
    struct berth_arrays mem = {0};
    struct berth_plan_item *copy = berth_arrays_new(&mem, (size_t) n, sizeof *copy);
    uint64_t *off = berth_arrays_new(&mem, (size_t) n, sizeof *off);
    if (mem.has_failed) {
        berth_arrays_free(&mem);
        return berth_fail(GGML_STATUS_ALLOC_FAILED, "plan: out of memory for %lld items", (long long) n);
    }
    for (int64_t i = 0; i < n; i++) {
        copy[i] = (struct berth_plan_item){.alias = items[i].alias, .pool = items[i].pool};
    }
    struct berth_plan_fault fault;
    const enum ggml_status status = berth_plan_check(copy, n, NULL, off, &fault);
    if (status == GGML_STATUS_FAILED) {
        berth_fail(status, "plan: items %lld and %lld of alias group %d have different pools, %d and %d", (long long) fault.i,
            (long long) fault.j, items[fault.i].alias, items[fault.i].pool, items[fault.j].pool);
    }
    berth_arrays_free(&mem);
    return status;
}

static enum ggml_status solve_all(struct solve *s) {
    enum ggml_status status = berth_plan_items_check(s->items, s->n, s->params.chunk_limit, &s->traits);
    if (status != GGML_STATUS_SUCCESS || s->n == 0) {
        return status;
    }
    if (s->traits.has_alias && s->traits.has_pools) {
        status = groups_check(s->items, s->n);
        if (status != GGML_STATUS_SUCCESS) {
            return status;
        }
    }
    if (s->params.start != NULL) {
        struct berth_plan_fault fault = {0};
        status = berth_plan_check(s->items, s->n, &s->params, s->params.start, &fault);
        if (status == GGML_STATUS_FAILED) {
            berth_fail(status, "plan: the start plan is invalid at item %lld (other item %lld, fault %d)", (long long) fault.i,
                (long long) fault.j, (int) fault.kind);
        }
        if (status != GGML_STATUS_SUCCESS) {
            return status;
        }
    }
    int32_t *ids = NULL;
    status = sort_pools(s->items, s->n, s->traits.has_pools, &s->scratch, &ids, &s->n_left);
    for (int32_t from = 0, end; from < s->n && status == GGML_STATUS_SUCCESS; from = end) {
        end = pool_end(s->items, ids, from, s->n);
        status = pool_solve(s, ids + from, end - from);
    }
    return status;
}

enum ggml_status berth_plan_solve_watched(const struct berth_plan_item *items, int64_t n, const struct berth_plan_params *params,
    berth_plan_watch_t watch, void *user, uint64_t *offsets, struct berth_plan_report *report) {
    if (n > 0 && offsets == NULL) {
        return berth_fail(GGML_STATUS_FAILED, "plan: offsets is NULL, but there are %lld items", (long long) n);
    }
    // Reading the clock twice takes as long as planning a few items.
    const bool is_timed = n > FEW_ITEMS || (params != NULL && params->time_limit_us > 0);
    struct solve s; // not cleared: its scratch is too large
    s.items = items;
    s.n = n;
    s.params = params != NULL ? *params : (struct berth_plan_params){0};
    s.offsets = offsets;
    s.report = (struct berth_plan_report){.proven = true, .fits = true, .method = "nothing to place"};
    s.start_us = is_timed ? ggml_time_us() : 0;
    s.searched_us = 0;
    s.work = (struct plan_work){0};
    s.peak_max = 0;
    s.n_left = 0;
    s.watch = (struct plan_watch){.ask = watch, .user = user, .lock = ATOMIC_FLAG_INIT};
    s.proof = (struct plan_proof){.write = s.params.proof, .user = s.params.proof_data, .lock = ATOMIC_FLAG_INIT};
    berth_scratch_init(&s.scratch);
    enum ggml_status status = solve_all(&s);
    berth_scratch_fini(&s.scratch);
    if (status != GGML_STATUS_SUCCESS) {
        return status;
    }
    BERTH_ASSERT_WHOLE(berth_plan_check(items, n, params, offsets, NULL) != GGML_STATUS_FAILED);
    s.report.gap = s.report.bound > 0 ? (double) s.report.peak / (double) s.report.bound - 1 : 0;
    s.report.time_us = is_timed ? ggml_time_us() - s.start_us : 0;
    if (report != NULL) {
        *report = s.report;
    }
    return GGML_STATUS_SUCCESS;
}

enum ggml_status berth_plan_solve(const struct berth_plan_item *items, int64_t n, const struct berth_plan_params *params,
    uint64_t *offsets, struct berth_plan_report *report) {
    return berth_plan_solve_watched(items, n, params, NULL, NULL, offsets, report);
}

enum ggml_status berth_plan_bound(
    const struct berth_plan_item *items, int64_t n, const struct berth_plan_params *params, uint64_t *bound, int64_t *step) {
    uint64_t chunk_limit = params != NULL ? params->chunk_limit : 0;
    struct plan_traits traits;
    enum ggml_status status = berth_plan_items_check(items, n, chunk_limit, &traits);
    if (status != GGML_STATUS_SUCCESS) {
        return status;
    }
    int32_t *ids = NULL;
    int32_t n_pools;
    uint64_t sum = 0;
    uint64_t most = 0;
    int64_t at = 0;
    struct berth_scratch scratch;
    berth_scratch_init(&scratch);
    if (n > 0) {
        status = sort_pools(items, n, traits.has_pools, &scratch, &ids, &n_pools);
    }
    for (int32_t from = 0, end; from < n && status == GGML_STATUS_SUCCESS; from = end) {
        const struct berth_scratch_mark mark = scratch.at;
        end = pool_end(items, ids, from, n);
        struct plan_pool pool = {
            .items = items, .ids = ids + from, .n_ids = end - from, .chunk_limit = chunk_limit, .is_chunked = chunk_limit > 0};
        status = berth_plan_pool_init(&pool, &traits, &scratch);
        if (status == GGML_STATUS_SUCCESS) {
            status = berth_plan_pool_bound(&pool);
            berth_plan_pool_fini(&pool);
        }
        if (pool.bound > most) {
            most = pool.bound;
            at = pool.bound_step;
        }
        if (__builtin_add_overflow(sum, pool.bound, &sum)) {
            status = berth_fail(GGML_STATUS_FAILED, "plan: the pools together need more than 2^64 - 1 bytes");
        }
        berth_scratch_back(&scratch, mark);
    }
    berth_scratch_fini(&scratch);
    if (status != GGML_STATUS_SUCCESS) {
        return status;
    }
    if (bound != NULL) {
        *bound = sum;
    }
    if (step != NULL) {
        *step = at;
    }
    return GGML_STATUS_SUCCESS;
}
