// SPDX-License-Identifier: MIT
// galloc_joint.c: several graphs that run one after another in one arena. Their steps follow each other on one time line, so that
// the planner sees that they never meet; tensors that must outlive a graph are alive on all of it, at one place (an alias group).

#include "alloc/capture.h"

struct joint {
    struct ggml_gallocr *galloc;
    struct galloc_plan **plans; // [n]
    int n;
    struct ggml_tensor *const *keep;
    int n_keep;
};

static int32_t keep_index(const struct joint *j, const struct ggml_tensor *t) {
    for (int k = 0; k < j->n_keep; k++) {
        if (j->keep[k] == t) {
            return k;
        }
    }
    return -1;
}

// Pool p of all graphs, solved as one.
static enum ggml_status solve_pool(struct joint *j, int p, struct berth_plan_item *items, uint64_t *offsets, int64_t n_steps) {
    struct berth_plan_report report;
    int64_t n = 0, base = 0;
    for (int g = 0; g < j->n; g++) {
        const struct lifetimes *lives = &j->plans[g]->lives;
        for (size_t i = 0; i < lives->n_items; i++) {
            if (lives->items[i].pool != p) {
                continue;
            }
            const int32_t owner = lives->owners[i];
            items[n] = lives->items[i];
            items[n].pool = 0;
            items[n].first += base;
            items[n].last += base;
            if (lifetime_rows(&j->plans[g]->rec)[owner].is_kept) {
                items[n].first = 0;
                items[n].last = n_steps - 1;
                items[n].alias = 1 + keep_index(j, j->plans[g]->rec.tensors[owner]);
            }
            n++;
        }
        base += j->plans[g]->rec.n_nodes + 1;
    }
    const struct berth_plan_params params = {.max_chunk = j->plans[0]->needs[p].max_chunk,
        .budget_us = j->galloc->options.budget_us,
        .is_brief = j->galloc->options.budget_us == 0};
    const enum ggml_status status = berth_plan_solve(items, n, &params, offsets, &report);
    n = 0;
    for (int g = 0; g < j->n && status == GGML_STATUS_SUCCESS; g++) {
        struct galloc_plan *plan = j->plans[g];
        for (size_t i = 0; i < plan->lives.n_items; i++) {
            if (plan->lives.items[i].pool == p) {
                plan->offsets[i] = offsets[n++];
            }
        }
        plan->needs[p].report = report;
    }
    return status;
}

// One arena has one largest chunk.
static void share_limits(struct joint *j) {
    for (int p = 0; p < j->galloc->n_pools; p++) {
        size_t most = 0;
        for (int g = 0; g < j->n; g++) {
            most = j->plans[g]->needs[p].max_chunk > most ? j->plans[g]->needs[p].max_chunk : most;
        }
        for (int g = 0; g < j->n; g++) {
            j->plans[g]->needs[p].max_chunk = most;
        }
    }
}

static enum ggml_status solve(struct joint *j) {
    size_t n = 1;
    int64_t n_steps = 0;
    for (int g = 0; g < j->n; g++) {
        struct galloc_plan *plan = j->plans[g];
        n += plan->lives.n_items;
        n_steps += plan->rec.n_nodes + 1;
        berth_galloc_plan_prepare(j->galloc, plan);
    }
    struct berth_plan_item *items = berth_malloc(n * sizeof *items);
    uint64_t *offsets = berth_malloc(n * sizeof *offsets);
    enum ggml_status status = GGML_STATUS_SUCCESS;
    if (items == NULL || offsets == NULL) {
        status = berth_fail(GGML_STATUS_ALLOC_FAILED, "out of memory for the plan of %zu items", n);
    }
    share_limits(j);
    for (int p = 0; p < j->galloc->n_pools && status == GGML_STATUS_SUCCESS; p++) {
        status = solve_pool(j, p, items, offsets, n_steps);
    }
    berth_free(items);
    berth_free(offsets);
    return status;
}

static enum ggml_status make_plans(struct joint *j, const struct berth_gallocr_graph *graphs) {
    enum ggml_status status = GGML_STATUS_SUCCESS;
    for (int g = 0; g < j->n && status == GGML_STATUS_SUCCESS; g++) {
        j->plans[g] = berth_galloc_plan_new(j->galloc, true);
        if (j->plans[g] == NULL) {
            return GGML_STATUS_ALLOC_FAILED;
        }
        j->plans[g]->is_pinned = true;
        j->plans[g]->keep = j->keep;
        j->plans[g]->n_keep = j->n_keep;
        if (graphs[g].graph == NULL) {
            return berth_fail(GGML_STATUS_FAILED, "berth_gallocr_reserve_joint: graph %d of %d is NULL", g, j->n);
        }
        status = berth_galloc_plan_items(
            j->galloc, j->plans[g], graphs[g].graph, graphs[g].node_buffer_ids, graphs[g].leaf_buffer_ids);
        j->plans[g]->keep = NULL; // the caller's
        j->plans[g]->n_keep = 0;
    }
    if (status == GGML_STATUS_SUCCESS) {
        status = solve(j);
    }
    for (int g = 0; g < j->n && status == GGML_STATUS_SUCCESS; g++) {
        status = berth_galloc_plan_settle(j->galloc, j->plans[g]);
    }
    return status;
}

enum ggml_status berth_gallocr_reserve_joint(
    ggml_gallocr_t galloc, const struct berth_gallocr_graph *graphs, int n_graphs, struct ggml_tensor *const *keep, int n_keep) {
    if (galloc == NULL || graphs == NULL || n_graphs <= 0 || (keep == NULL && n_keep > 0)) {
        return berth_fail(GGML_STATUS_FAILED, "berth_gallocr_reserve_joint: no allocator, or %d graphs", n_graphs);
    }
    for (int k = 0; k < n_keep; k++) {
        if (keep[k] == NULL || keep[k]->view_src != NULL) {
            return berth_fail(GGML_STATUS_FAILED, "berth_gallocr_reserve_joint: tensor %d to keep is %s", k,
                keep[k] == NULL ? "NULL" : "a view: name what it looks at");
        }
    }
    struct joint j = {.galloc = galloc, .n = n_graphs, .keep = keep, .n_keep = n_keep};
    j.plans = berth_calloc((size_t) n_graphs, sizeof j.plans[0]);
    if (j.plans == NULL) {
        return berth_fail(GGML_STATUS_ALLOC_FAILED, "berth_gallocr_reserve_joint: out of memory for %d plans", n_graphs);
    }
    enum ggml_status status = make_plans(&j, graphs);
    for (int g = 0; g < n_graphs && status == GGML_STATUS_SUCCESS; g++) {
        status = berth_galloc_buffers_reserve(galloc, j.plans[g]);
    }
    if (status == GGML_STATUS_SUCCESS) {
        berth_galloc_forget(galloc);
        for (int g = n_graphs - 1; g >= 0; g--) { // the first one first
            berth_galloc_adopt(galloc, j.plans[g]);
        }
        for (int g = 0; g < n_graphs; g++) {
            berth_capture(galloc, j.plans[g], &j.plans[g]->rec);
        }
    }
    for (int g = 0; g < n_graphs && status != GGML_STATUS_SUCCESS; g++) {
        berth_galloc_plan_free(galloc, j.plans[g]);
    }
    berth_free(j.plans);
    return status;
}
