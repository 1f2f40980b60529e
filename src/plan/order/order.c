// SPDX-License-Identifier: MIT
// order.c: the order pass. It cuts the graph into parts and improves the parts with the highest peaks. Then it improves windows
// (ranges of up to ORDER_EXACT_MAX tasks around the peak). The new order is used only if its peak of live bytes is lower. If the
// caller gives params for the solver, the plan of the new order must also have a lower peak.

#include "plan/order/order.h"
#include "base/min.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MAX_NODES_DEFAULT 20000
#define BEAM_DEFAULT 64
#define BEAM_FIRST 4 // beam width for small parts; the peak that this beam finds is the first limit of the exact search
#define N_REFINE 64  // largest number of windows that are improved

struct part {
    int32_t lo, hi;
    uint64_t peak; // of the current order
};

struct pass {
    const struct berth_order_params *params;
    struct berth_order_report *report;
    struct order_graph g;
    struct berth_arrays mem;
    int32_t *tasks;                  // [n_tasks] the current order
    int32_t *position;               // [n_tasks] index of each task in tasks
    int32_t *local;                  // [n_tasks] an order inside a part, in local numbers
    int32_t *best;                   // [n_tasks] the best order inside the part, in local numbers
    int32_t *moved;                  // [n_tasks] scratch
    uint64_t *step_live, *step_peak; // [n_tasks] live bytes before and while the task at each position runs
    struct part *parts;
    int32_t n_parts;
};

// ---- cutting ----

// The task at position c is a cut task if every task before c has a successor at or before c, and every task after c has a
// predecessor at or after c. Then every order runs the same tasks before the task at c.
static void parts_cut(struct pass *s) {
    const struct order_graph *g = &s->g;
    // Each task after c has a last predecessor, -1: none. back[c] is the least position of these predecessors.
    int32_t *back = s->moved;
    int32_t least = INT32_MAX;
    for (int32_t i = g->n_tasks; i-- > 0;) {
        back[i] = least;
        int32_t last = -1;
        for (int32_t k = g->pred.start[i]; k < g->pred.start[i + 1]; k++) {
            last = max_i32(g->pred.at[k], last);
        }
        least = min_i32(last, least);
    }
    // Each task before c has a first successor, INT32_MAX: none. far is the largest position of these successors.
    int32_t far = -1, lo = 0;
    for (int32_t c = 0; c < g->n_tasks; c++) {
        if ((far <= c && back[c] >= c) || c + 1 == g->n_tasks) {
            s->parts[s->n_parts++] = (struct part){.lo = lo, .hi = c + 1};
            lo = c + 1;
        }
        int32_t first = INT32_MAX;
        for (int32_t k = g->succ.start[c]; k < g->succ.start[c + 1]; k++) {
            first = min_i32(g->succ.at[k], first);
        }
        far = max_i32(first, far);
    }
    for (int32_t k = 0; k < s->n_parts; k++) {
        for (int32_t i = s->parts[k].lo; i < s->parts[k].hi; i++) {
            s->parts[k].peak = max_u64(s->step_peak[i], s->parts[k].peak);
        }
    }
}

// ---- one part ----

static void order_apply(struct pass *s, int32_t lo, int32_t n, const int32_t *local) {
    for (int32_t i = 0; i < n; i++) {
        s->moved[i] = s->tasks[lo + local[i]];
    }
    for (int32_t i = 0; i < n; i++) {
        s->tasks[lo + i] = s->moved[i];
        s->position[s->moved[i]] = lo + i;
    }
}

// Returns the tasks [lo, hi) of the current order as a part. order_part_init fills in the other fields.
static struct order_part part_new(const struct pass *s, int32_t lo, int32_t hi) {
    return (struct order_part){.n = hi - lo, .tasks = s->tasks + lo, .live = s->step_live[lo]};
}

static int32_t beam_width(const struct pass *s) {
    return s->params->beam_width > 0 ? (int32_t) min_i64(s->params->beam_width, INT32_MAX) : BEAM_DEFAULT;
}

static int64_t max_nodes(const struct pass *s) {
    return s->params->max_nodes > 0 ? s->params->max_nodes : MAX_NODES_DEFAULT;
}

struct best {
    uint64_t bound; // proven lower bound of the part
    uint64_t peak;  // of the best order so far
    bool is_new;    // pass.best has the best order
};

static void best_take(struct pass *s, const struct order_part *p, struct best *best, uint64_t peak) {
    memcpy(s->best, s->local, (size_t) p->n * sizeof *s->best);
    best->peak = peak;
    best->is_new = true;
}

// Searches for the optimum with a quarter of the nodes. If this search gives up, bisects between the bound and the best peak.
// False: out of memory.
static bool part_exact(struct pass *s, const struct order_part *p, struct best *best) {
    const int64_t most = max_nodes(s);
    int64_t n_nodes = 0;
    uint64_t lo = best->bound, peak;
    for (bool is_first = true; lo < best->peak && n_nodes < most; is_first = false) {
        const uint64_t aim = is_first ? lo : lo + (best->peak - lo) / 2;
        const uint64_t limit = is_first ? best->peak : aim + 1;
        const struct order_ask ask = {aim, limit, min_i64(most - n_nodes, most / 4)};
        const enum order_result result = order_exact(p, &ask, s->local, &peak, &n_nodes);
        if (result == ORDER_OUT_OF_MEMORY) {
            return false;
        }
        if (result == ORDER_BETTER) {
            const uint64_t real = order_part_peak(p, s->local); // may be lower than peak
            if (real == UINT64_MAX) {
                return false;
            }
            BERTH_ASSERT_INTERNAL(real <= peak);
            best_take(s, p, best, real);
            if (is_first) {
                best->bound = best->peak;
            }
        } else if (result == ORDER_NONE_BETTER && lo == best->bound) {
            best->bound = limit;
        }
        if (is_first) {
            lo = best->bound;
        } else if (result != ORDER_BETTER) {
            lo = aim + 1;
        }
    }
    s->report->n_nodes += n_nodes;
    return true;
}

// Tries the depth-first order, beam searches and, for small parts, the exact search.
static bool part_improve(struct pass *s, const struct order_part *p, struct best *best) {
    const bool is_small = p->n <= ORDER_EXACT_MAX;
    const int32_t widths[] = {0, is_small ? BEAM_FIRST : 1, beam_width(s)}; // 0: depth first
    for (int method = 0; method < (is_small ? 2 : 3) && best->bound < best->peak; method++) {
        uint64_t peak = 0;
        const enum order_result result = widths[method] == 0 ? order_depth_first(p, best->peak, s->local, &peak)
                                                             : order_beam(p, best->peak, widths[method], s->local, &peak);
        if (result == ORDER_OUT_OF_MEMORY) {
            return false;
        }
        if (result == ORDER_BETTER) {
            best_take(s, p, best, peak);
        }
    }
    return !is_small || part_exact(s, p, best);
}

static int by_peak(const void *a, const void *b) {
    const struct part *x = a, *y = b;
    if (x->peak != y->peak) {
        return x->peak < y->peak ? 1 : -1;
    }
    return x->lo < y->lo ? -1 : 1;
}

// Improves the parts, those with the highest peaks first. Stops when no remaining part has a higher peak than the improved parts.
static bool parts_improve(struct pass *s) {
    uint64_t reached = 0, bound = 0;
    qsort(s->parts, (size_t) s->n_parts, sizeof *s->parts, by_peak);
    for (int32_t k = 0; k < s->n_parts && s->parts[k].peak > reached; k++) {
        struct part *part = &s->parts[k];
        struct berth_arrays mem = {0};
        struct order_part p = part_new(s, part->lo, part->hi);
        struct best best = {.peak = part->peak};
        bool ok = order_part_init(&p, &mem, &s->g, s->position);
        if (ok) {
            best.bound = p.bound;
            ok = part_improve(s, &p, &best);
        }
        if (ok && best.is_new) {
            order_apply(s, part->lo, p.n, s->best);
        }
        berth_arrays_free(&mem);
        if (!ok) {
            return false;
        }
        part->peak = best.peak;
        s->report->n_parts++;
        s->report->n_exact += best.bound == best.peak;
        bound = max_u64(best.bound, bound);
        reached = max_u64(best.peak, reached);
    }
    s->report->live_bound = bound;
    return true;
}

// ---- windows ----

// Searches exactly for an order of [lo, hi) with a peak below `peak`. *gained: found.
static bool window_improve(struct pass *s, int32_t lo, int32_t hi, uint64_t peak, bool *gained) {
    struct berth_arrays mem = {0};
    struct order_part p = part_new(s, lo, hi);
    enum order_result result = ORDER_OUT_OF_MEMORY;
    if (order_part_init(&p, &mem, &s->g, s->position)) {
        const struct order_ask ask = {0, peak, max_nodes(s) / 4};
        result = order_exact(&p, &ask, s->local, &peak, &s->report->n_nodes);
    }
    if (result == ORDER_BETTER) {
        order_apply(s, lo, p.n, s->local);
    }
    *gained = result == ORDER_BETTER;
    berth_arrays_free(&mem);
    return result != ORDER_OUT_OF_MEMORY;
}

// Improves windows around the task with the highest peak, because any range of an order can be treated as a part.
static bool windows_improve(struct pass *s) {
    const int32_t n_tasks = s->g.n_tasks;
    static const int32_t before[] = {ORDER_EXACT_MAX / 2, ORDER_EXACT_MAX - 8, 8, ORDER_EXACT_MAX - 20, 20};
    for (int round = 0; round < N_REFINE; round++) {
        struct order_live live;
        if (!order_measure(&s->g, s->tasks, &live, s->step_live, s->step_peak)) {
            return false;
        }
        int32_t at = 0;
        while (at < n_tasks && s->step_peak[at] < live.total) {
            at++;
        }
        if (at == n_tasks || live.total == s->report->live_bound) {
            return true;
        }
        bool gained = false;
        for (size_t k = 0; k < sizeof before / sizeof *before && !gained; k++) {
            const int32_t lo = at < before[k] ? 0 : at - before[k],
                          hi = n_tasks - lo < ORDER_EXACT_MAX ? n_tasks : lo + ORDER_EXACT_MAX;
            if (!window_improve(s, lo, hi, live.total, &gained)) {
                return false;
            }
        }
        if (!gained) {
            return true;
        }
    }
    return true;
}

// ---- from tasks back to ops ----

// Computes the sort key of each op, so that views stay next to a task. The key is 3 * (position of the task) + k, where k is 0
// for views that the task reads before any other task, 1 for the task itself, and 2 for unread views of its result.
static void classes_find(const struct pass *s, int64_t *at) {
    const struct order_graph *g = &s->g;
    for (int32_t i = 0; i < g->n_ops; i++) {
        at[i] = g->op_task[i] >= 0 ? 3 * (int64_t) s->position[g->op_task[i]] + 1 : -1;
    }
    for (int32_t i = g->n_ops; i-- > 0;) { // from readers to views; -1: no task reads the op
        if (at[i] < 0) {
            continue;
        }
        const int64_t read_at = at[i] / 3 * 3;
        for (int32_t k = -1; k < g->ops[i].n_srcs; k++) {
            const int32_t src = k < 0 ? g->ops[i].view_of : g->ops[i].srcs[k];
            if (src >= 0 && src != i && g->op_task[src] < 0 && (at[src] < 0 || at[src] > read_at)) {
                at[src] = read_at;
            }
        }
    }
    for (int32_t i = 0; i < g->n_ops; i++) {
        if (at[i] >= 0) {
            continue;
        }
        for (int32_t k = -1; k < g->ops[i].n_srcs; k++) {
            const int32_t src = k < 0 ? g->ops[i].view_of : g->ops[i].srcs[k];
            if (src >= 0 && src != i && (g->ops[src].flags & BERTH_ORDER_INPUT) == 0) {
                at[i] = max_i64(at[src] / 3 * 3 + 2, at[i]);
            }
        }
        at[i] = max_i64(at[i], 0);
    }
}

// Makes the order of ops from the order of tasks. Inputs keep their positions.
static bool ops_order(const struct pass *s, int32_t *order) {
    const struct order_graph *g = &s->g;
    const size_t n_classes = 3 * (size_t) g->n_tasks + 3;
    struct berth_arrays mem = {0};
    int64_t *at = berth_arrays_new(&mem, (size_t) g->n_ops, sizeof *at);
    int32_t *start = berth_arrays_new(&mem, n_classes + 1, sizeof *start);
    int32_t *sorted = berth_arrays_new(&mem, (size_t) g->n_ops, sizeof *sorted);
    const bool ok = !mem.has_failed;
    if (ok) {
        classes_find(s, at);
        for (int32_t i = 0; i < g->n_ops; i++) {
            start[at[i] + 1] += (g->ops[i].flags & BERTH_ORDER_INPUT) == 0;
        }
        for (size_t c = 0; c < n_classes; c++) {
            start[c + 1] += start[c];
        }
        for (int32_t i = 0; i < g->n_ops; i++) {
            if ((g->ops[i].flags & BERTH_ORDER_INPUT) == 0) {
                sorted[start[at[i]]++] = i;
            }
        }
        for (int32_t i = 0, k = 0; i < g->n_ops; i++) {
            order[i] = (g->ops[i].flags & BERTH_ORDER_INPUT) != 0 ? i : sorted[k++];
        }
    }
    berth_arrays_free(&mem);
    return ok;
}

// ---- comparing the plans of both orders ----

static enum ggml_status solved_peak(
    const struct pass *s, const int32_t *order, struct berth_plan_item *items, uint64_t *offsets, uint64_t *peak) {
    int64_t n_items;
    struct berth_plan_report report;
    enum ggml_status status = berth_plan_order_items(s->g.ops, s->g.n_ops, order, items, &n_items, NULL);
    if (status == GGML_STATUS_SUCCESS) {
        struct berth_plan_params params = *s->params->plan;
        params.proof = NULL; // the caller would receive the proofs of two orders
        status = berth_plan_solve(items, n_items, &params, offsets, &report);
        *peak = report.peak;
    }
    return status;
}

static enum ggml_status solver_decides(struct pass *s, const int32_t *order, bool *accepted) {
    const size_t n = (size_t) s->g.n_ops;
    struct berth_arrays mem = {0};
    struct berth_plan_item *items = berth_arrays_new(&mem, n, sizeof *items);
    uint64_t *offsets = berth_arrays_new(&mem, n, sizeof *offsets);
    enum ggml_status status = GGML_STATUS_ALLOC_FAILED;
    uint64_t peak = 0;
    if (mem.has_failed) {
        berth_fail(status, "order: out of memory for planning two orders of %zu ops", n);
        goto fail;
    }
    status = solved_peak(s, NULL, items, offsets, &s->report->peak_given);
    if (*accepted && status == GGML_STATUS_SUCCESS) {
        status = solved_peak(s, order, items, offsets, &peak);
    }
    *accepted = *accepted && peak < s->report->peak_given && status == GGML_STATUS_SUCCESS;
    s->report->peak = *accepted ? peak : s->report->peak_given;
fail:
    berth_arrays_free(&mem);
    return status;
}

static enum ggml_status pass_run(struct pass *s, int32_t *order) {
    const struct order_graph *g = &s->g;
    const size_t n = (size_t) g->n_tasks;
    struct order_live given, found;
    s->tasks = berth_arrays_new(&s->mem, n, sizeof *s->tasks);
    s->position = berth_arrays_new(&s->mem, n, sizeof *s->position);
    s->local = berth_arrays_new(&s->mem, n, sizeof *s->local);
    s->best = berth_arrays_new(&s->mem, n, sizeof *s->best);
    s->moved = berth_arrays_new(&s->mem, n, sizeof *s->moved);
    s->step_live = berth_arrays_new(&s->mem, n, sizeof *s->step_live);
    s->step_peak = berth_arrays_new(&s->mem, n, sizeof *s->step_peak);
    s->parts = berth_arrays_new(&s->mem, n, sizeof *s->parts);
    if (s->mem.has_failed) {
        return GGML_STATUS_ALLOC_FAILED;
    }
    for (int32_t i = 0; i < g->n_tasks; i++) {
        s->tasks[i] = s->position[i] = i;
    }
    if (!order_measure(g, s->tasks, &given, s->step_live, s->step_peak)) {
        return GGML_STATUS_ALLOC_FAILED;
    }
    const uint64_t first_live = n == 0 ? 0 : s->step_live[0];
    parts_cut(s);
    if (!parts_improve(s) || !windows_improve(s) || !order_measure(g, s->tasks, &found, NULL, NULL)) {
        return GGML_STATUS_ALLOC_FAILED;
    }
    BERTH_ASSERT_INTERNAL(order_is_topological(g, s->tasks, s->moved));
    struct berth_order_report *report = s->report;
    report->live_given = given.by_pool;
    report->changed = found.by_pool < given.by_pool;
    report->live = report->changed ? found.by_pool : given.by_pool;
    if (report->changed && !ops_order(s, order)) {
        return GGML_STATUS_ALLOC_FAILED;
    }
    if (s->params->plan != NULL) {
        const enum ggml_status status = solver_decides(s, order, &report->changed);
        if (status != GGML_STATUS_SUCCESS) {
            return status;
        }
    }
    report->live = report->changed ? found.by_pool : given.by_pool;
    // Inputs are alive at the start of every order.
    const uint64_t at_start = n == 0 ? given.total : first_live;
    const uint64_t bound = max_u64(at_start, report->live_bound);
    report->live_bound = g->n_pools > 1 ? 0 : bound;
    report->proven = g->n_pools <= 1 && report->live <= report->live_bound;
    return GGML_STATUS_SUCCESS;
}

enum ggml_status berth_plan_order(const struct berth_order_op *ops, int64_t n_ops, const struct berth_order_params *params,
    int32_t *order, struct berth_order_report *report) {
    static const struct berth_order_params defaults;
    struct berth_order_report mine;
    if (n_ops < 0 || ((ops == NULL || order == NULL) && n_ops > 0)) {
        return berth_fail(GGML_STATUS_FAILED, "order: ops or order is NULL, or n_ops = %" PRId64 " is negative", n_ops);
    }
    const int64_t start = ggml_time_us();
    struct pass s = {.params = params == NULL ? &defaults : params, .report = report == NULL ? &mine : report};
    *s.report = (struct berth_order_report){0};
    for (int64_t i = 0; i < n_ops; i++) {
        order[i] = (int32_t) i;
    }
    enum ggml_status status = order_graph_init(&s.g, &s.mem, ops, (size_t) n_ops);
    if (status == GGML_STATUS_SUCCESS) {
        status = pass_run(&s, order);
        if (status == GGML_STATUS_ALLOC_FAILED) {
            berth_fail(status, "order: out of memory for %" PRId64 " ops", n_ops);
        }
    }
    if (status != GGML_STATUS_SUCCESS || !s.report->changed) {
        for (int64_t i = 0; i < n_ops; i++) {
            order[i] = (int32_t) i;
        }
    }
    berth_arrays_free(&s.mem);
    s.report->time_us = ggml_time_us() - start;
    return status;
}
