// SPDX-License-Identifier: MIT
// check.c: the checker of schedules, independent of the methods. It also computes the packed peak: each step of a schedule
// becomes a separate op, berth_plan_order_items makes items from these ops, and the planner packs the items.

#include "plan/budget/budget.h"

#include <inttypes.h>
#include <string.h>

// ---- a schedule as ops that run once each ----

static struct berth_order_op op_plain(const struct budget_graph *g, int32_t i) {
    const struct berth_budget_op *op = &g->ops[i];
    return (struct berth_order_op){.view_of = -1, .size = op->size, .align = op->align, .pool = op->pool};
}

// Makes op from step k. srcs: memory for the sources of op.
static void step_unroll(const struct budget_graph *g, const struct budget_steps *s, const struct budget_trace *t, int32_t k,
    struct berth_order_op *op, int32_t *srcs) {
    const struct berth_budget_op *from = &g->ops[s->at[k].op];
    // The values that the op reads, each once; from->srcs may contain a value several times.
    const int32_t *values = &g->srcs.at[g->srcs.start[s->at[k].op]], n_values = t->start[k + 1] - t->start[k];
    *op = op_plain(g, s->at[k].op);
    op->srcs = srcs;
    op->flags = t->last[g->n + k] == (int32_t) s->n ? BERTH_ORDER_OUTPUT : 0;
    if (s->at[k].kind != BERTH_BUDGET_RUN) {
        srcs[0] = t->src[t->start[k]];
        op->n_srcs = 1;
        if (s->at[k].kind == BERTH_BUDGET_SPILL) {
            op->pool = g->pools[g->spill_pool[s->at[k].op]].id;
        }
        return;
    }
    op->inplace = from->inplace;
    op->n_srcs = from->n_srcs;
    for (int32_t j = 0; j < from->n_srcs; j++) {
        for (int32_t m = 0; m < n_values; m++) {
            if (values[m] == from->srcs[j]) {
                srcs[j] = t->src[t->start[k] + m];
            }
        }
    }
}

// Returns the schedule as g->n + s->n ops. Op g->n + k is step k. The first g->n ops are inputs that exist before the first step:
// op i is value i if that is an input of the graph, otherwise op i has no bytes. NULL: out of memory.
static struct berth_order_op *steps_unroll(
    const struct budget_graph *g, const struct budget_steps *s, const struct budget_trace *t, struct berth_arrays *mem) {
    size_t n_srcs = 0;
    for (size_t k = 0; k < s->n; k++) {
        n_srcs += 1 + (size_t) g->ops[s->at[k].op].n_srcs;
    }
    struct berth_order_op *ops = berth_arrays_new(mem, (size_t) g->n + s->n, sizeof *ops);
    int32_t *srcs = berth_arrays_new(mem, n_srcs, sizeof *srcs);
    if (mem->has_failed) {
        return NULL;
    }
    for (int32_t i = 0; i < g->n; i++) {
        ops[i] = op_plain(g, i);
        ops[i].flags = BERTH_ORDER_INPUT | (budget_is_input(g, i) && g->keep[i] ? BERTH_ORDER_OUTPUT : 0);
        if (!budget_is_input(g, i)) {
            ops[i].size = 0;
        }
    }
    for (int32_t k = 0; k < (int32_t) s->n; k++) {
        step_unroll(g, s, t, k, &ops[g->n + k], srcs);
        srcs += ops[g->n + k].n_srcs;
    }
    return ops;
}

static enum ggml_status budget_items(const struct budget_graph *g, const struct budget_steps *s, const struct budget_trace *t,
    struct berth_plan_item *items, int64_t *n_items, int32_t *item_of) {
    struct berth_arrays mem = {0};
    const struct berth_order_op *ops = steps_unroll(g, s, t, &mem);
    enum ggml_status status = GGML_STATUS_ALLOC_FAILED;
    if (ops != NULL) {
        status = berth_plan_order_items(ops, g->n + (int64_t) s->n, NULL, items, n_items, item_of);
    }
    berth_arrays_free(&mem);
    return status;
}

// ---- packing ----

static size_t pool_gather(const struct berth_plan_item *items, size_t n, int32_t pool, struct berth_plan_item *out) {
    size_t n_out = 0;
    for (size_t i = 0; i < n; i++) {
        if (items[i].pool == pool) {
            out[n_out++] = items[i];
        }
    }
    return n_out;
}

static enum ggml_status pools_pack(const struct budget_graph *g, const struct budget_pack *how, struct berth_plan_item *items,
    size_t n_items, uint64_t *peaks, bool *is_conclusive) {
    struct berth_plan_item *part = berth_calloc(n_items + 1, sizeof *part);
    uint64_t *offsets = berth_calloc(n_items + 1, sizeof *offsets);
    enum ggml_status status = part == NULL || offsets == NULL ? GGML_STATUS_ALLOC_FAILED : GGML_STATUS_SUCCESS;
    for (int32_t p = 0; p < g->n_pools && status == GGML_STATUS_SUCCESS; p++) {
        const size_t n = pool_gather(items, n_items, g->pools[p].id, part);
        const struct berth_plan_params params = {
            .memory_limit = how->limits[p] == UINT64_MAX || how->limits[p] > (uint64_t) 1 << 62 ? 0 : how->limits[p],
            .time_limit_us = how->time_limit_us,
            .is_counted = true}; // limits the work instead of the time: the same plan on every machine
        struct berth_plan_report report = {0};
        status = berth_plan_solve(part, (int64_t) n, &params, offsets, &report);
        BERTH_ASSERT_WHOLE(
            status != GGML_STATUS_SUCCESS || berth_plan_check(part, (int64_t) n, NULL, offsets, NULL) != GGML_STATUS_FAILED);
        peaks[p] = report.peak;
        *is_conclusive = *is_conclusive && (report.peak <= how->limits[p] || report.proven);
    }
    berth_free(part);
    berth_free(offsets);
    return status;
}

enum ggml_status budget_pack(const struct budget_graph *g, const struct budget_steps *s, const struct budget_trace *t,
    const struct budget_pack *how, uint64_t *peaks, bool *is_conclusive) {
    const size_t n = (size_t) g->n + s->n;
    struct berth_plan_item *items = berth_calloc(n + 1, sizeof *items);
    int64_t n_items = 0;
    *is_conclusive = true;
    enum ggml_status status = items == NULL ? GGML_STATUS_ALLOC_FAILED : budget_items(g, s, t, items, &n_items, NULL);
    if (status == GGML_STATUS_SUCCESS) {
        status = pools_pack(g, how, items, (size_t) n_items, peaks, is_conclusive);
    }
    berth_free(items);
    return status;
}

// ---- the public checker ----

void berth_budget_free(struct berth_budget_result *result) {
    if (result != NULL) {
        berth_free(result->steps);
        berth_free(result->uses);
        berth_free(result->alive);
        berth_free(result);
    }
}

static bool result_alloc(const struct budget_graph *g, size_t n_steps, struct berth_budget_result *r) {
    r->steps = berth_calloc(n_steps + 1, sizeof *r->steps);
    r->uses = berth_calloc((size_t) g->n_pools + 1, sizeof *r->uses);
    r->alive = berth_calloc((size_t) g->n + 1, sizeof *r->alive);
    return r->steps != NULL && r->uses != NULL && r->alive != NULL;
}

static void result_count(const struct budget_graph *g, const struct budget_steps *s, struct berth_budget_result *r) {
    size_t n_run = 0;
    for (size_t k = 0; k < s->n; k++) {
        n_run += s->at[k].kind == BERTH_BUDGET_RUN;
        r->n_spilled += s->at[k].kind == BERTH_BUDGET_SPILL;
        r->n_restored += s->at[k].kind == BERTH_BUDGET_RESTORE;
    }
    for (int32_t i = 0; i < g->n; i++) {
        n_run -= !budget_is_input(g, i);
    }
    r->n_recomputed = n_run;
    r->cost = budget_cost(g, s);
    r->cost_once = g->cost_once;
    r->cost_bound = g->cost_once;
    r->n_steps = s->n;
    r->tight_op = -1;
    if (s->n > 0) {
        memcpy(r->steps, s->at, s->n * sizeof *r->steps);
    }
}

static void result_uses(const struct budget_graph *g, const struct budget_trace *t, const uint64_t *peaks, bool live_only,
    struct berth_budget_result *r) {
    r->fits = true;
    r->n_uses = g->n_pools;
    for (int32_t p = 0; p < g->n_pools; p++) {
        r->uses[p] = (struct berth_budget_use){
            .pool = g->pools[p].id, .limit = g->pools[p].limit, .live = t->peak[p], .peak = peaks[p], .live_bound = g->least[p]};
        r->fits = r->fits && (live_only ? t->peak[p] : peaks[p]) <= g->pools[p].limit;
    }
}

/*@ predicate steps_are_valid(struct budget_graph *g, struct budget_steps *s) =
        \valid_read(g) && \valid_read(s) && 0 <= g->n && \valid_read(g->ops + (0 .. g->n - 1)) &&
        \valid_read(s->at + (0 .. s->n - 1)) &&
        (\forall integer k; 0 <= k < s->n ==> 0 <= s->at[k].op < g->n);

    // The sum of the sizes of the ops of the first n steps.
    logic integer sizes_sum{L}(struct budget_graph *g, struct budget_steps *s, integer n) =
        n <= 0 ? 0 : sizes_sum(g, s, n - 1) + g->ops[s->at[n - 1].op].size; */

// Adds the sizes of the ops of all steps to sum. False: the sum exceeds 2^63 - 1 at step *k.
/*@ requires steps_are_valid(g, s) && \valid(k) && \separated(k, g, s, g->ops + (0 .. g->n - 1), s->at + (0 .. s->n - 1));
    requires sum <= INT64_MAX;
    assigns *k;
    ensures \result ==> *k == s->n;
    ensures !\result ==> *k < s->n && sum + sizes_sum{Pre}(g, s, *k + 1) > INT64_MAX;
    ensures sum + sizes_sum{Pre}(g, s, *k) <= INT64_MAX; */
static bool sizes_add(const struct budget_graph *g, const struct budget_steps *s, uint64_t sum, size_t *k) {
    /*@ loop invariant 0 <= *k <= s->n && sum <= INT64_MAX;
        loop invariant sum == \at(sum, Pre) + sizes_sum{Pre}(g, s, *k);
        loop assigns *k, sum;
        loop variant s->n - *k; */
    for (*k = 0; *k < s->n; (*k)++) {
        if (__builtin_add_overflow(sum, g->ops[s->at[*k].op].size, &sum) || sum > INT64_MAX) {
            return false;
        }
    }
    return true;
}

// Fails if the sum of the sizes of all inputs and steps exceeds 2^63 - 1, because the order pass adds them.
static enum ggml_status sizes_check(const struct budget_graph *g, const struct budget_steps *s) {
    uint64_t sum = 0;
    for (int32_t i = 0; i < g->n; i++) { // at most 2^62 in total: checked by budget_graph_init
        sum += budget_is_input(g, i) ? g->ops[i].size : 0;
    }
    size_t k;
    if (!sizes_add(g, s, sum, &k)) {
        return berth_fail(GGML_STATUS_FAILED, "budget: up to step %zu of %zu, the sizes sum to more than 2^63 - 1", k, s->n);
    }
    return GGML_STATUS_SUCCESS;
}

enum ggml_status budget_result(const struct budget_graph *g, const struct berth_budget_params *params,
    const struct budget_steps *s, int64_t pack_us, struct berth_budget_result **result) {
    struct berth_budget_result *r = berth_calloc(1, sizeof *r);
    struct budget_trace t = {0};
    uint64_t *limits = berth_calloc(2 * (size_t) g->n_pools + 1, sizeof *limits);
    enum ggml_status status = GGML_STATUS_ALLOC_FAILED;
    bool is_conclusive;
    if (r == NULL || limits == NULL || !result_alloc(g, s->n, r) || !budget_trace(g, s, &t)) {
        goto fail;
    }
    if (t.fault >= 0) {
        status = berth_fail(GGML_STATUS_FAILED, "budget: step %d of %zu %s", t.fault, s->n, t.why);
        goto fail;
    }
    uint64_t *peaks = limits + g->n_pools;
    for (int32_t p = 0; p < g->n_pools; p++) {
        limits[p] = g->pools[p].limit;
    }
    result_count(g, s, r);
    status = sizes_check(g, s);
    if (!params->live_only && status == GGML_STATUS_SUCCESS) {
        status = budget_pack(g, s, &t, &(struct budget_pack){limits, pack_us}, peaks, &is_conclusive);
    }
    if (status == GGML_STATUS_SUCCESS) {
        result_uses(g, &t, peaks, params->live_only, r);
        *result = r;
        r = NULL;
    }
fail:
    if (status == GGML_STATUS_ALLOC_FAILED) {
        berth_fail(status, "budget: out of memory for checking a schedule of %zu steps", s->n);
    }
    berth_budget_free(r);
    berth_free(limits);
    budget_trace_fini(&t);
    return status;
}

static const struct berth_budget_params no_params;

enum ggml_status berth_budget_check(const struct berth_budget_op *ops, int64_t n_ops, const struct berth_budget_params *params,
    const struct berth_budget_step *steps, int64_t n_steps, struct berth_budget_result **result) {
    struct budget_graph g;
    if (params == NULL) {
        params = &no_params;
    }
    if (result == NULL || n_steps < 0 || (steps == NULL && n_steps > 0)) {
        return berth_fail(GGML_STATUS_FAILED, "budget: result or steps is NULL, or n_steps = %" PRId64 " is negative", n_steps);
    }
    *result = NULL;
    enum ggml_status status = budget_graph_init(&g, ops, n_ops, params);
    if (status == GGML_STATUS_SUCCESS) {
        const struct budget_steps s = {.at = (struct berth_budget_step *) steps, .n = (size_t) n_steps};
        status = budget_result(&g, params, &s, BUDGET_PACK_US, result);
        budget_graph_fini(&g);
    }
    return status;
}

enum ggml_status berth_budget_items(const struct berth_budget_op *ops, int64_t n_ops, const struct berth_budget_params *params,
    const struct berth_budget_step *steps, int64_t n_steps, struct berth_plan_item *items, int64_t *n_items, int32_t *item_of) {
    struct budget_graph g;
    struct budget_trace t = {0};
    if (params == NULL) {
        params = &no_params;
    }
    if (items == NULL || n_items == NULL || n_steps < 0 || (steps == NULL && n_steps > 0)) {
        return berth_fail(
            GGML_STATUS_FAILED, "budget: items, n_items or steps is NULL, or n_steps = %" PRId64 " is negative", n_steps);
    }
    enum ggml_status status = budget_graph_init(&g, ops, n_ops, params);
    if (status != GGML_STATUS_SUCCESS) {
        return status;
    }
    const struct budget_steps s = {.at = (struct berth_budget_step *) steps, .n = (size_t) n_steps};
    if (!budget_trace(&g, &s, &t)) {
        status = berth_fail(GGML_STATUS_ALLOC_FAILED, "budget: out of memory for the items of %" PRId64 " steps", n_steps);
    } else if (t.fault >= 0) {
        status = berth_fail(GGML_STATUS_FAILED, "budget: step %d of %" PRId64 " %s", t.fault, n_steps, t.why);
    } else {
        status = budget_items(&g, &s, &t, items, n_items, item_of);
    }
    budget_trace_fini(&t);
    budget_graph_fini(&g);
    return status;
}
