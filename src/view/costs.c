// SPDX-License-Identifier: MIT
// costs.c: applies a memory limit to a CSV with the columns `cost` and `reads`. A row is a value and the op that computes it, at
// step `lower`, from the values in `reads`. The solver decides which ops to recompute and which values to spill. The items of the
// solver's schedule replace the items of the file. If a value is computed twice, it becomes two items.

#include "base/base.h"
#include "base/json.h"
#include "berth-budget-graph.h"
#include "view/plan.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define SPILL_BYTES 4096 // spilling or reading back this number of bytes costs 1, in the unit of the column `cost`
static const char spill_price[] = "4096 bytes moved one way cost 1, in the unit of the column 'cost'";

struct named {
    const char *id;
    int32_t op;
};

struct rows {
    const struct berth_plan_set *set;
    const char *path;
    struct named *names;         // [n] sorted by id
    int32_t *order;              // [n] row numbers by ascending step; row order[k] is op k
    struct berth_budget_op *ops; // [n]
    int32_t *srcs;
    size_t n_srcs, srcs_cap;
    size_t *starts; // [n + 1] srcs of op k: indices starts[k] to starts[k + 1] - 1
};

static int by_id(const void *a, const void *b) {
    return strcmp(((const struct named *) a)->id, ((const struct named *) b)->id);
}

struct step {
    int64_t first;
    int32_t row;
};

static int by_step(const void *a, const void *b) {
    const struct step *x = a, *y = b;
    if (x->first != y->first) {
        return x->first < y->first ? -1 : 1;
    }
    return x->row < y->row ? -1 : 1;
}

static void rows_fini(struct rows *r) {
    berth_free(r->names);
    berth_free(r->order);
    berth_free(r->ops);
    berth_free(r->starts);
    berth_free(r->srcs);
}

static enum ggml_status no_memory(const struct rows *r) {
    return berth_fail(GGML_STATUS_ALLOC_FAILED, "%s: out of memory for a budget of %" PRId64 " rows", r->path, r->set->n_items);
}

// Refuses sets for which a memory limit is not defined.
static enum ggml_status set_check(const struct rows *r) {
    const struct berth_plan_set *set = r->set;
    if (set->costs == NULL || set->reads == NULL) {
        return berth_fail(
            GGML_STATUS_FAILED, "%s: --budget requires a captured graph, or a CSV with the columns 'cost' and 'reads'", r->path);
    }
    if (set->n_items >= INT32_MAX / 8) {
        return berth_fail(GGML_STATUS_FAILED, "%s: too many rows for --budget: %" PRId64 "", r->path, set->n_items);
    }
    for (int64_t i = 0; i < set->n_items; i++) {
        const struct berth_plan_item *item = &set->items[i];
        if (item->alias != 0 || item->is_fixed || item->pool != set->items[0].pool) {
            return berth_fail(GGML_STATUS_FAILED,
                "%s: '%s' has an alias, a fixed offset or another pool, which --budget does not support", r->path, set->ids[i]);
        }
    }
    return GGML_STATUS_SUCCESS;
}

static enum ggml_status rows_sort(struct rows *r) {
    const size_t n = r->set->n_items;
    r->names = berth_calloc(n + 1, sizeof *r->names);
    r->order = berth_calloc(n + 1, sizeof *r->order);
    r->ops = berth_calloc(n + 1, sizeof *r->ops);
    r->starts = berth_calloc(n + 1, sizeof *r->starts);
    if (r->names == NULL || r->order == NULL || r->ops == NULL || r->starts == NULL) {
        return no_memory(r);
    }
    struct step *steps = berth_calloc(n + 1, sizeof *steps);
    if (steps == NULL) {
        return no_memory(r);
    }
    for (size_t i = 0; i < n; i++) {
        steps[i] = (struct step){r->set->items[i].first, (int32_t) i};
    }
    qsort(steps, n, sizeof *steps, by_step);
    for (size_t k = 0; k < n; k++) {
        r->order[k] = steps[k].row;
        r->names[k] = (struct named){r->set->ids[r->order[k]], (int32_t) k};
    }
    berth_free(steps);
    qsort(r->names, n, sizeof *r->names, by_id);
    return GGML_STATUS_SUCCESS;
}

// Adds a source to op k. word: the id of a row, from the column `reads`.
static enum ggml_status read_add(struct rows *r, size_t k, const char *word) {
    const struct berth_plan_set *set = r->set;
    const struct named key = {word, 0}, *found = bsearch(&key, r->names, set->n_items, sizeof key, by_id);
    const int32_t row = r->order[k];
    if (found == NULL) {
        return berth_fail(GGML_STATUS_FAILED, "%s: '%s' reads '%s', but there is no such row", r->path, set->ids[row], word);
    }
    const struct berth_plan_item *item = &set->items[row], *src = &set->items[r->order[found->op]];
    if (src->first > item->first || src->last < item->first || (size_t) found->op == k) {
        return berth_fail(GGML_STATUS_FAILED, "%s: '%s' reads '%s' at step %" PRId64 ", at which it is not alive", r->path,
            set->ids[row], word, item->first);
    }
    if (!berth_grow((void **) &r->srcs, &r->srcs_cap, r->n_srcs + 1, sizeof *r->srcs)) {
        return no_memory(r);
    }
    r->srcs[r->n_srcs++] = found->op;
    return GGML_STATUS_SUCCESS;
}

static enum ggml_status reads_add(struct rows *r, size_t k) {
    enum ggml_status status = GGML_STATUS_SUCCESS;
    char *words = strdup(r->set->reads[r->order[k]]), *rest = NULL;
    if (words == NULL) {
        return no_memory(r);
    }
    for (char *word = strtok_r(words, " \t", &rest); word != NULL && status == GGML_STATUS_SUCCESS;
         word = strtok_r(NULL, " \t", &rest)) {
        status = read_add(r, k, word);
    }
    free(words);
    return status;
}

// Makes one op per row:
// - A row without a cost that reads nothing is an input.
// - A row without a cost that reads values must not be recomputed.
// - A value whose lifetime ends after its last reader is an output.
static enum ggml_status ops_fill(struct rows *r) {
    const struct berth_plan_set *set = r->set;
    const size_t n = set->n_items;
    enum ggml_status status = GGML_STATUS_SUCCESS;
    for (size_t k = 0; k < n && status == GGML_STATUS_SUCCESS; k++) {
        r->starts[k] = r->n_srcs;
        status = reads_add(r, k);
    }
    r->starts[n] = r->n_srcs;
    for (size_t k = 0; k < n && status == GGML_STATUS_SUCCESS; k++) {
        const struct berth_plan_item *item = &set->items[r->order[k]];
        const uint64_t cost = set->costs[r->order[k]];
        struct berth_budget_op *op = &r->ops[k];
        op->srcs = r->srcs == NULL ? NULL : &r->srcs[r->starts[k]];
        op->n_srcs = (int32_t) (r->starts[k + 1] - r->starts[k]);
        op->pool = item->pool;
        op->size = item->size;
        op->align = item->align;
        op->cost = cost == BERTH_PLAN_ANY ? 0 : cost;
        if (cost == BERTH_PLAN_ANY) {
            op->flags |= op->n_srcs == 0 ? BERTH_BUDGET_INPUT : BERTH_BUDGET_ONCE;
        }
        op->flags |= BERTH_BUDGET_OUTPUT; // a later row that reads the value at the end of its lifetime clears the flag
        for (int32_t j = 0; j < op->n_srcs; j++) {
            const int32_t src = op->srcs[j];
            r->ops[src].flags &= set->items[r->order[src]].last <= item->first ? ~(uint32_t) BERTH_BUDGET_OUTPUT : UINT32_MAX;
        }
    }
    return status;
}

// ---- the items of the schedule ----

static void item_write(
    struct berth_json_writer *w, const struct rows *r, const struct berth_plan_item *item, int32_t op, const char *suffix) {
    char name[4096];
    snprintf(name, sizeof name, "%.*s%s", (int) (sizeof name - sizeof BERTH_BUDGET_SUFFIX_RECOMPUTED), r->set->ids[r->order[op]],
        suffix);
    berth_json_line(w, 0);
    berth_json_printf(w,
        "{'id': %s, 'first': %" PRId64 ", 'last': %" PRId64 ", 'size': %" PRIu64 ", 'alignment': %" PRIu64 ", 'pool': %" PRId32
        "}",
        name, item->first, item->last, item->size, item->align, item->pool);
}

struct schedule {
    const struct rows *r;
    const struct berth_budget_params *params;
    const struct berth_budget_result *b;
};

// Writes the items of the schedule as JSON. The steps 0 to n - 1 of the solver's items stand for values that exist before the
// first op, so step n is written as step 0.
static enum ggml_status schedule_write(FILE *file, void *user) {
    const struct schedule *s = user;
    const struct rows *r = s->r;
    const struct berth_budget_result *b = s->b;
    const int64_t n = r->set->n_items;
    const size_t n_all = (size_t) (n + b->n_steps) + 1;
    struct berth_plan_item *items = berth_calloc(n_all, sizeof *items);
    int32_t *item_of = berth_calloc(n_all, sizeof *item_of);
    bool *has_run = berth_calloc(n_all, sizeof *has_run);
    int64_t n_items = 0;
    enum ggml_status status = GGML_STATUS_ALLOC_FAILED;
    if (items != NULL && item_of != NULL && has_run != NULL) {
        status = berth_budget_items(r->ops, n, s->params, b->steps, b->n_steps, items, &n_items, item_of);
    }
    struct berth_json_writer w = {.file = file};
    berth_json_begin(&w, NULL, '{');
    berth_json_begin(&w, "items", '[');
    for (int64_t k = 0; k < n + b->n_steps && status == GGML_STATUS_SUCCESS; k++) {
        const int32_t op = k < n ? (int32_t) k : b->steps[k - n].op;
        if (item_of[k] >= 0) {
            struct berth_plan_item item = items[item_of[k]];
            item.first = item.first < n ? 0 : item.first - n;
            item.last = item.last < n ? 0 : item.last - n;
            const enum berth_budget_kind kind = k < n ? BERTH_BUDGET_RUN : b->steps[k - n].kind;
            const char *suffix = has_run[op] ? BERTH_BUDGET_SUFFIX_RECOMPUTED : "";
            if (kind != BERTH_BUDGET_RUN) {
                suffix = kind == BERTH_BUDGET_SPILL ? BERTH_BUDGET_SUFFIX_SPILLED : BERTH_BUDGET_SUFFIX_RESTORED;
            }
            item_write(&w, r, &item, op, suffix);
        }
        has_run[op] = k >= n;
    }
    berth_json_end(&w);
    berth_json_end(&w);
    berth_free(items);
    berth_free(item_of);
    berth_free(has_run);
    return status;
}

static enum ggml_status set_replace(struct schedule s, struct berth_plan_set **set) {
    struct berth_plan_set *made = NULL;
    const enum ggml_status status = view_set_make(schedule_write, &s, s.r->path, &made);
    if (status == GGML_STATUS_SUCCESS) {
        berth_plan_set_free(*set);
        *set = made;
    }
    return status;
}

static enum ggml_status rows_solve(struct rows *r, struct view_plan *plan) {
    const int32_t own = r->set->n_items > 0 ? r->set->items[0].pool : 0, other = own == INT32_MAX ? own - 1 : own + 1;
    const struct berth_budget_pool pools[] = {{.pool = own,
                                                  .limit = plan->budget.bytes,
                                                  .may_spill = plan->budget.spill > 0,
                                                  .spill_to = other,
                                                  .spill_cost_per_byte = 1.0 / SPILL_BYTES},
        {.pool = other, .limit = plan->budget.spill}};
    const struct berth_budget_params params = {.pools = pools,
        .n_pools = plan->budget.spill > 0 ? 2 : 1,
        .time_limit_us = VIEW_BUDGET_US,
        .seed = 1,
        .proof = plan->budget.proof,
        .proof_data = plan->budget.proof_data};
    plan->spill_price = spill_price;
    if (plan->budget.on_ops != NULL && !plan->budget.on_ops(r->ops, r->set->n_items, &params, plan->budget.user)) {
        return GGML_STATUS_SUCCESS;
    }
    const enum ggml_status status = berth_budget_solve(r->ops, r->set->n_items, &params, &plan->budgeted);
    if (status != GGML_STATUS_SUCCESS) {
        return status;
    }
    for (int64_t i = 0; i < plan->budgeted->n_alive; i++) {
        const int32_t row = r->order[plan->budgeted->alive[i]];
        view_plan_alive_add(plan, i, r->set->ids[row], r->set->items[row].size);
    }
    return plan->budgeted->fits ? set_replace((struct schedule){r, &params, plan->budgeted}, &plan->set) : status;
}

enum ggml_status view_plan_budget_set(const char *path, struct view_plan *plan) {
    struct rows r = {.set = plan->set, .path = path};
    enum ggml_status status = set_check(&r);
    if (status == GGML_STATUS_SUCCESS) {
        status = rows_sort(&r);
    }
    if (status == GGML_STATUS_SUCCESS) {
        status = ops_fill(&r);
    }
    if (status == GGML_STATUS_SUCCESS) {
        status = rows_solve(&r, plan);
    }
    rows_fini(&r);
    return status;
}
