// SPDX-License-Identifier: MIT
// model.c: builds the solver's view of a graph, and computes the bytes that every schedule requires. The time is O(n), plus O(n)
// per value that cannot be recomputed.

#include "base/min.h"
#include "plan/budget/budget.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define LEAST_WORK 20000000 // limit on values * ops for the least bytes

void budget_graph_fini(struct budget_graph *g) {
    berth_arrays_free(&g->mem);
    *g = (struct budget_graph){0};
}

// ---- checks of the caller's input ----

// Returns true if `until` is a later op that runs only once: a once op or an output.
static bool is_until_valid(const struct berth_budget_op *ops, size_t n, size_t i, int32_t until) {
    return until > 0 && (size_t) until > i && (size_t) until < n && (ops[until].flags & BERTH_BUDGET_INPUT) == 0 &&
           (ops[until].flags & (BERTH_BUDGET_ONCE | BERTH_BUDGET_OUTPUT)) != 0;
}

struct totals {
    size_t n_srcs;
    uint64_t cost, size;
};

static enum ggml_status op_check(const struct berth_budget_op *ops, size_t n, size_t i, struct totals *sum) {
    const struct berth_budget_op *op = &ops[i];
    if (op->size > (uint64_t) 1 << 62 || op->cost > (uint64_t) 1 << 53) {
        return berth_fail(GGML_STATUS_FAILED, "budget: op %zu of %zu has a size above 2^62 or a cost above 2^53", i, n);
    }
    if (op->group < 0 || op->group > 1 << 20) {
        return berth_fail(GGML_STATUS_FAILED, "budget: op %zu has group %d (allowed: 0 to 2^20)", i, op->group);
    }
    if (op->n_srcs < 0 || op->n_srcs > INT32_MAX || (op->n_srcs > 0 && op->srcs == NULL)) {
        return berth_fail(GGML_STATUS_FAILED, "budget: op %zu has an invalid list of %" PRId64 " sources", i, op->n_srcs);
    }
    for (int32_t k = 0; k < op->n_srcs; k++) {
        const int32_t src = op->srcs[k];
        if (src < 0 || (size_t) src >= n ||
            ((size_t) src >= i && ((ops[src].flags & BERTH_BUDGET_INPUT) == 0 || (size_t) src == i))) {
            return berth_fail(GGML_STATUS_FAILED, "budget: op %zu reads value %d, which is not before it", i, src);
        }
    }
    const bool is_input = (op->flags & BERTH_BUDGET_INPUT) != 0;
    if (op->until != 0 && (is_input || !is_until_valid(ops, n, i, op->until))) {
        return berth_fail(
            GGML_STATUS_FAILED, "budget: op %zu has until = %d, which is not a later op that runs once", i, op->until);
    }
    if (is_input && op->n_srcs > 0) {
        return berth_fail(GGML_STATUS_FAILED, "budget: op %zu is an input with %" PRId64 " sources", i, op->n_srcs);
    }
    sum->n_srcs += (size_t) op->n_srcs;
    sum->cost += is_input ? 0 : op->cost;
    sum->size += op->size;
    if (sum->cost > (uint64_t) 1 << 60 || sum->size > (uint64_t) 1 << 62) { // later code adds sizes without overflow checks
        return berth_fail(GGML_STATUS_FAILED,
            "budget: up to op %zu of %zu, costs sum to %" PRIu64 " and sizes to %" PRIu64 " (limits: 2^60 and 2^62)", i, n,
            sum->cost, sum->size);
    }
    return GGML_STATUS_SUCCESS;
}

static int32_t groups_most(const struct berth_budget_op *ops, size_t n) {
    int32_t most = 0;
    for (size_t i = 0; i < n; i++) {
        most = max_i32(ops[i].group, most);
    }
    return most;
}

// ---- pools ----

static int32_t pool_index(struct budget_graph *g, int32_t id) {
    for (int32_t p = 0; p < g->n_pools; p++) {
        if (g->pools[p].id == id) {
            return p;
        }
    }
    g->pools[g->n_pools] = (struct budget_pool){.id = id, .spill_to = -1, .limit = UINT64_MAX};
    return g->n_pools++;
}

static int by_id(const void *a, const void *b) {
    const struct budget_pool *x = a, *y = b;
    return x->id < y->id ? -1 : x->id > y->id;
}

static enum ggml_status pools_find(struct budget_graph *g, const struct berth_budget_params *params) {
    int32_t last = -1;
    for (int64_t k = 0; k < params->n_pools; k++) {
        const struct berth_budget_pool *pool = &params->pools[k];
        struct budget_pool *own = &g->pools[pool_index(g, pool->pool)];
        own->limit = pool->limit;
        if (pool->may_spill && (pool->spill_to == pool->pool || !(pool->spill_cost_per_byte >= 0))) {
            return berth_fail(GGML_STATUS_FAILED, "budget: pool %d cannot spill to pool %d at a cost of %g per byte", pool->pool,
                pool->spill_to, pool->spill_cost_per_byte);
        }
        if (pool->may_spill) {
            pool_index(g, pool->spill_to);
        }
    }
    for (int32_t i = 0; i < g->n; i++) {
        if (i == 0 || g->ops[i].pool != last) {
            last = g->ops[i].pool;
            pool_index(g, last);
        }
    }
    qsort(g->pools, (size_t) g->n_pools, sizeof *g->pools, by_id);
    for (int64_t k = 0; k < params->n_pools; k++) {
        const struct berth_budget_pool *pool = &params->pools[k];
        struct budget_pool *own = &g->pools[pool_index(g, pool->pool)];
        own->spill_to = pool->may_spill ? pool_index(g, pool->spill_to) : -1;
        own->per_byte = pool->spill_cost_per_byte;
        own->each = pool->spill_cost_per_copy;
    }
    for (int32_t i = 0; i < g->n; i++) {
        g->pool[i] = i > 0 && g->ops[i].pool == g->ops[i - 1].pool ? g->pool[i - 1] : pool_index(g, g->ops[i].pool);
        g->spill_pool[i] = (g->ops[i].flags & BERTH_BUDGET_NO_SPILL) != 0 ? -1 : g->pools[g->pool[i]].spill_to;
    }
    return GGML_STATUS_SUCCESS;
}

uint64_t budget_spill_cost(const struct budget_graph *g, int32_t value) {
    const struct budget_pool *pool = &g->pools[g->pool[value]];
    const double cost = (double) g->size[value] * pool->per_byte;
    return pool->each + (cost > 0x1p53 ? (uint64_t) 1 << 53 : (uint64_t) cost);
}

// ---- lists ----

static void srcs_fill(struct budget_graph *g, int32_t *seen) {
    int32_t n = 0;
    for (int32_t i = 0; i < g->n; i++) {
        g->srcs.start[i] = n;
        for (int32_t k = 0; k < g->ops[i].n_srcs; k++) {
            const int32_t src = g->ops[i].srcs[k];
            if (seen[src] != i + 1) {
                seen[src] = i + 1;
                g->srcs.at[n++] = src;
                g->readers.start[src + 1]++;
            }
        }
    }
    g->srcs.start[g->n] = n;
    for (int32_t i = 0; i < g->n; i++) {
        g->readers.start[i + 1] += g->readers.start[i];
        seen[i] = g->readers.start[i];
    }
    for (int32_t i = 0; i < g->n; i++) {
        for (int32_t k = g->srcs.start[i]; k < g->srcs.start[i + 1]; k++) {
            g->readers.at[seen[g->srcs.at[k]]++] = i;
        }
    }
}

// Finds the sources whose memory op i may reuse. The rule is the same as in berth_plan_order_items: the source has the size and
// pool of the result and a sufficient alignment, the op reads it once, and it is not kept to the end.
static void takeover_fill(struct budget_graph *g, int32_t i) {
    const struct berth_budget_op *op = &g->ops[i];
    for (int32_t k = 0; k < op->n_srcs && k < 64; k++) {
        const int32_t src = op->srcs[k];
        int32_t n_reads = 0;
        for (int32_t j = 0; j < op->n_srcs; j++) {
            n_reads += op->srcs[j] == src;
        }
        const uint64_t a = g->ops[src].align == 0 ? 1 : g->ops[src].align, b = op->align == 0 ? 1 : op->align;
        if ((op->inplace >> k & 1) == 0 || n_reads != 1 || g->keep[src] || op->size == 0 || g->ops[src].size != op->size ||
            g->pool[src] != g->pool[i] || a % b != 0) {
            continue;
        }
        for (int32_t j = g->srcs.start[i]; j < g->srcs.start[i + 1] && j - g->srcs.start[i] < 64; j++) {
            g->takeover[i] |= g->srcs.at[j] == src ? (uint64_t) 1 << (j - g->srcs.start[i]) : 0;
        }
    }
}

// ---- the least bytes of every schedule ----

// Every schedule has these values in memory while op runs: the sources and the result of op, outputs on which op depends, and
// values that cannot be recomputed and that later ops need. is_up[i]: op depends on value i. is_down[i]: value i depends on op.
int32_t budget_alive(const struct budget_graph *g, int32_t op, int32_t pool, int32_t *alive, bool *is_up, uint64_t *bytes) {
    bool *is_down = is_up + g->n, *is_there = is_up + 2 * (size_t) g->n;
    memset(is_up, 0, 3 * (size_t) g->n * sizeof *is_up);
    is_up[op] = is_down[op] = is_there[op] = true;
    for (int32_t i = g->n; i-- > 0;) {
        for (int32_t k = g->srcs.start[i]; is_up[i] && k < g->srcs.start[i + 1]; k++) {
            is_up[g->srcs.at[k]] = true;
        }
    }
    bool takes = false;
    for (int32_t k = g->srcs.start[op]; k < g->srcs.start[op + 1]; k++) {
        is_there[g->srcs.at[k]] = true;
    }
    for (int32_t i = 0; i < g->n; i++) {
        for (int32_t k = g->srcs.start[i]; k < g->srcs.start[i + 1] && !is_down[i]; k++) {
            is_down[i] = is_down[g->srcs.at[k]];
        }
    }
    int32_t n = 0;
    *bytes = 0;
    for (int32_t i = 0; i < g->n; i++) {
        const bool can_spill = g->spill_pool[i] >= 0;
        bool is_needed = false;
        for (int32_t k = g->readers.start[i]; k < g->readers.start[i + 1] && !is_needed; k++) {
            is_needed = is_down[g->readers.at[k]] && g->readers.at[k] != op;
        }
        const bool was_made = budget_is_input(g, i) || (is_up[i] && i != op);
        is_there[i] = is_there[i] || (was_made && !can_spill && (g->keep[i] || (!g->can_recompute[i] && is_needed)));
        if (!is_there[i] || g->pool[i] != pool || g->size[i] == 0) {
            continue;
        }
        alive[n++] = i;
        *bytes += g->size[i];
    }
    for (int32_t k = g->srcs.start[op]; k < g->srcs.start[op + 1]; k++) {
        const int32_t bit = k - g->srcs.start[op];
        takes = takes || (bit < 64 && (g->takeover[op] >> bit & 1) != 0);
    }
    *bytes -= takes && g->pool[op] == pool ? g->size[op] : 0;
    return n;
}

// Sets least and tight to the bytes required at the end of a schedule (all kept values) or at its start (all inputs).
static void ends_find(struct budget_graph *g) {
    for (int32_t i = 0; i < g->n; i++) {
        g->least[g->pool[i]] += g->keep[i] && g->spill_pool[i] < 0 ? g->size[i] : 0;
        if (g->keep[i]) {
            g->tight[g->pool[i]] = i;
        }
    }
    for (int32_t p = 0; p < g->n_pools; p++) {
        uint64_t inputs = 0;
        int32_t first = -1;
        for (int32_t i = 0; i < g->n; i++) {
            const bool is_input = budget_is_input(g, i) && g->pool[i] == p;
            inputs += is_input ? g->size[i] : 0;
            if (is_input && first < 0) {
                first = i;
            }
        }
        if (inputs > g->least[p]) {
            g->tight[p] = first;
            g->least[p] = inputs;
        }
    }
}

// Returns the bytes of the sources and the result of op i, in the pool of the result.
static uint64_t own_bytes(const struct budget_graph *g, int32_t i) {
    uint64_t bytes = g->takeover[i] != 0 ? 0 : g->size[i];
    for (int32_t k = g->srcs.start[i]; k < g->srcs.start[i + 1]; k++) {
        bytes += g->pool[g->srcs.at[k]] == g->pool[i] ? g->size[g->srcs.at[k]] : 0;
    }
    return bytes;
}

// Adds the size of `value`, which cannot be recomputed, to bytes[i] of every op i during which it must be in memory. It must be
// in memory during op i if both conditions hold:
// - Op i is a reader of `value`, or depends on one. For an input, this condition always holds.
// - A reader of `value` depends on op i. For a kept value, this condition always holds.
// Readers of `value` are left out, because own_bytes counts their sources. marks: [3 n] scratch.
static void unrecomputable_add(const struct budget_graph *g, int32_t value, uint8_t *marks, uint64_t *bytes) {
    uint8_t *is_down = marks, *is_up = marks + g->n, *reads = marks + 2 * (size_t) g->n;
    memset(marks, 0, 3 * (size_t) g->n);
    for (int32_t k = g->readers.start[value]; k < g->readers.start[value + 1]; k++) {
        reads[g->readers.at[k]] = 1;
    }
    for (int32_t i = 0; i < g->n; i++) {
        is_down[i] = reads[i];
        for (int32_t k = g->srcs.start[i]; k < g->srcs.start[i + 1] && is_down[i] == 0; k++) {
            is_down[i] = is_down[g->srcs.at[k]];
        }
    }
    for (int32_t i = g->n; i-- > 0;) {
        for (int32_t k = g->srcs.start[i]; (is_up[i] | reads[i]) != 0 && k < g->srcs.start[i + 1]; k++) {
            is_up[g->srcs.at[k]] = 1;
        }
    }
    for (int32_t i = 0; i < g->n; i++) {
        const bool is_there = budget_is_input(g, value) || is_down[i] != 0;
        if (i != value && reads[i] == 0 && is_there && (g->keep[value] || is_up[i] != 0) && g->pool[i] == g->pool[value]) {
            bytes[i] += g->size[value];
        }
    }
}

// Sets least[p] to the maximum of the bytes required at the start, at the end and during each op. In a large graph, not all
// values are counted, so least[p] may be too low.
static bool least_find(struct budget_graph *g) {
    struct berth_arrays mem = {0};
    uint8_t *marks = berth_arrays_new(&mem, 3 * (size_t) g->n, sizeof *marks);
    uint64_t *bytes = berth_arrays_new(&mem, (size_t) g->n, sizeof *bytes);
    int64_t n_values_left = g->n > 0 ? LEAST_WORK / g->n : 0;
    if (mem.has_failed) {
        berth_arrays_free(&mem);
        return false;
    }
    ends_find(g);
    for (int32_t i = 0; i < g->n; i++) {
        bytes[i] = own_bytes(g, i);
    }
    for (int32_t i = 0; i < g->n && n_values_left > 0; i++) {
        if (!g->can_recompute[i] && g->size[i] > 0 && g->spill_pool[i] < 0) {
            unrecomputable_add(g, i, marks, bytes);
            n_values_left--;
        }
    }
    for (int32_t i = 0; i < g->n; i++) {
        if (!budget_is_input(g, i) && bytes[i] > g->least[g->pool[i]]) {
            g->least[g->pool[i]] = bytes[i];
            g->tight[g->pool[i]] = i;
        }
    }
    berth_arrays_free(&mem);
    return true;
}

static bool rows_alloc(struct budget_graph *g, size_t n_srcs, size_t n_pools) {
    const size_t n = (size_t) g->n;
    g->srcs.start = berth_arrays_new(&g->mem, n + 1, sizeof *g->srcs.start);
    g->srcs.at = berth_arrays_new(&g->mem, n_srcs, sizeof *g->srcs.at);
    g->readers.start = berth_arrays_new(&g->mem, n + 1, sizeof *g->readers.start);
    g->readers.at = berth_arrays_new(&g->mem, n_srcs, sizeof *g->readers.at);
    g->takeover = berth_arrays_new(&g->mem, n + 1, sizeof *g->takeover);
    g->size = berth_arrays_new(&g->mem, n + 1, sizeof *g->size);
    g->cost = berth_arrays_new(&g->mem, n + 1, sizeof *g->cost);
    g->pool = berth_arrays_new(&g->mem, n + 1, sizeof *g->pool);
    g->spill_pool = berth_arrays_new(&g->mem, n + 1, sizeof *g->spill_pool);
    g->keep = berth_arrays_new(&g->mem, n + 1, sizeof *g->keep);
    g->can_recompute = berth_arrays_new(&g->mem, n + 1, sizeof *g->can_recompute);
    g->once_before = berth_arrays_new(&g->mem, n + 1, sizeof *g->once_before);
    g->until = berth_arrays_new(&g->mem, n + 1, sizeof *g->until);
    g->work = berth_arrays_new(&g->mem, 1, sizeof *g->work);
    g->pools = berth_arrays_new(&g->mem, n_pools + 1, sizeof *g->pools);
    g->tight = berth_arrays_new(&g->mem, n_pools + 1, sizeof *g->tight);
    g->least = berth_arrays_new(&g->mem, n_pools + 1, sizeof *g->least);
    return !g->mem.has_failed;
}

// Fills once_before. last: [groups_most + 1] scratch.
static void groups_find(struct budget_graph *g, int32_t *last) {
    for (int32_t i = 0; i <= groups_most(g->ops, (size_t) g->n); i++) {
        last[i] = -1;
    }
    for (int32_t i = 0; i < g->n; i++) {
        int32_t *before = &last[g->ops[i].group];
        g->once_before[i] = -1;
        if (budget_is_once(g, i)) {
            g->once_before[i] = *before;
            *before = i;
        }
    }
}

static enum ggml_status rows_fill(struct budget_graph *g, const struct berth_budget_params *params) {
    int32_t *seen = berth_calloc((size_t) g->n + (size_t) groups_most(g->ops, (size_t) g->n) + 1, sizeof *seen);
    if (seen == NULL) {
        return GGML_STATUS_ALLOC_FAILED;
    }
    const enum ggml_status status = pools_find(g, params);
    srcs_fill(g, seen);
    for (int32_t i = 0; i < g->n; i++) {
        const struct berth_budget_op *op = &g->ops[i];
        g->size[i] = op->size;
        g->cost[i] = budget_is_input(g, i) ? 0 : op->cost;
        g->keep[i] = (op->flags & BERTH_BUDGET_OUTPUT) != 0 || g->readers.start[i] == g->readers.start[i + 1];
        g->can_recompute[i] = !g->keep[i] && (op->flags & (BERTH_BUDGET_INPUT | BERTH_BUDGET_ONCE)) == 0;
        g->until[i] = op->until > 0 ? op->until : -1;
    }
    groups_find(g, seen);
    berth_free(seen);
    for (int32_t p = 0; p < g->n_pools; p++) {
        g->tight[p] = -1;
    }
    for (int32_t i = 0; i < g->n; i++) {
        takeover_fill(g, i);
    }
    return status != GGML_STATUS_SUCCESS || least_find(g) ? status : GGML_STATUS_ALLOC_FAILED;
}

enum ggml_status budget_graph_init(
    struct budget_graph *g, const struct berth_budget_op *ops, int64_t n_ops, const struct berth_budget_params *params) {
    *g = (struct budget_graph){.ops = ops, .n = (int32_t) n_ops};
    struct totals sum = {0};
    if (n_ops < 0 || n_ops > INT32_MAX / 8 || (ops == NULL && n_ops > 0) || params->n_pools < 0 ||
        params->n_pools > INT32_MAX / 8 || (params->pools == NULL && params->n_pools > 0)) {
        return berth_fail(GGML_STATUS_FAILED,
            "budget: a pointer is NULL, or n_ops = %" PRId64 " or n_pools = %" PRId64 " is not between 0 and %d", n_ops,
            params->n_pools, INT32_MAX / 8);
    }
    for (int64_t i = 0; i < n_ops; i++) {
        const enum ggml_status status = op_check(ops, (size_t) n_ops, (size_t) i, &sum);
        if (status != GGML_STATUS_SUCCESS) {
            return status;
        }
    }
    g->cost_once = sum.cost;
    int32_t n_pools = 1;
    for (int64_t i = 1; i < n_ops; i++) {
        n_pools += ops[i].pool != ops[i - 1].pool;
    }
    enum ggml_status status = GGML_STATUS_ALLOC_FAILED;
    if (rows_alloc(g, sum.n_srcs, (size_t) (n_pools + 2 * params->n_pools))) {
        status = rows_fill(g, params);
    }
    if (status == GGML_STATUS_ALLOC_FAILED) {
        berth_fail(status, "budget: out of memory for %" PRId64 " ops", n_ops);
    }
    if (status != GGML_STATUS_SUCCESS) {
        budget_graph_fini(g);
    }
    return status;
}
