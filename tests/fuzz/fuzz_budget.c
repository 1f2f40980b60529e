// SPDX-License-Identifier: MIT
// fuzz_budget.c: takes the input as ops and pools for the budget solver, and as steps of a schedule for its checker. There must be
// no crash, no schedule that the checker refuses or that exceeds the memory limit, and no cost below the bound, and the solver
// must end in time.

#include "fuzz/bytes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_OPS 20 // in one of 64 inputs
#define FEW_OPS 7  // in all other inputs; so few that the exact search ends immediately
#define MAX_NODES 300
#define MAX_SRCS 4
#define MAX_STEPS 64
#define PATIENCE_US 15000000 // limit for one solve; sanitizers are slow

struct problem {
    struct berth_budget_op ops[MAX_OPS];
    int32_t srcs[MAX_OPS][MAX_SRCS];
    size_t n;
    struct berth_budget_pool pools[2];
    struct berth_budget_params params;
};

// Features that the ops of one input may have. An input uses few features, because combinations often contradict each other.
enum { RAW = 1, FLAGS = 2, INPLACE = 4, POOLS = 8, UNTIL = 16, ALIGNED = 32 };

static void read_op(struct bytes *b, struct problem *p, uint64_t features) {
    const int32_t i = (int32_t) p->n++;
    struct berth_budget_op *op = &p->ops[i];
    const uint64_t has = get(b, 1) & features;
    *op = (struct berth_budget_op){.srcs = p->srcs[i], .size = some_size(b), .cost = some_size(b)};
    op->n_srcs = i == 0 ? 0 : (int32_t) (get(b, 1) % (MAX_SRCS + 1));
    for (int32_t k = 0; k < op->n_srcs; k++) {
        p->srcs[i][k] = (has & RAW) != 0 ? (int32_t) get(b, 1) - 8 : i - 1 - (int32_t) (get(b, 1) % 8) % i;
    }
    op->flags = (has & FLAGS) != 0 ? (uint32_t) (get(b, 1) & 15) : 0;
    op->n_srcs = (op->flags & BERTH_BUDGET_INPUT) != 0 && (has & RAW) == 0 ? 0 : op->n_srcs;
    op->inplace = (has & INPLACE) != 0 ? get(b, 1) : 0;
    op->pool = (has & POOLS) != 0 ? (int32_t) (get(b, 1) % 2) : 0;
    op->group = (has & FLAGS) != 0 ? (int32_t) (get(b, 1) % 3) : 0;
    op->until = (has & UNTIL) != 0 ? i + (int32_t) (get(b, 1) % 8) : 0;
    op->align = (has & ALIGNED) != 0 ? some_size(b) : 1;
}

static void read_problem(struct bytes *b, struct problem *p) {
    const uint64_t shape = get(b, 1), features = get(b, 1);
    *p = (struct problem){0};
    p->pools[0] = (struct berth_budget_pool){.limit = some_size(b) * 4};
    p->pools[1] = (struct berth_budget_pool){.pool = 1, .limit = some_size(b) * 4};
    p->pools[0].may_spill = (shape & 1) != 0;
    p->pools[0].spill_to = (shape & 2) != 0 ? 1 : 7;
    p->pools[0].spill_cost_per_byte = (double) get(b, 1) / 16;
    p->params.pools = p->pools;
    p->params.n_pools = (shape & 4) != 0 ? 2 : 1;
    p->params.live_only = (shape & 40) != 0; // packing takes most of the time, so many inputs skip it
    p->params.max_nodes = (shape & 0x50) == 0x50 ? -1 : MAX_NODES;
    p->params.seed = shape;
    const size_t n_most = (shape & 0xDE) == 0xC0 ? MAX_OPS : FEW_OPS;
    while (b->p < b->end && p->n < n_most) {
        read_op(b, p, features);
    }
}

static void check_found(const struct problem *p, const struct berth_budget_result *r) {
    struct berth_budget_result *checked = NULL;
    expect(berth_budget_check(p->ops, p->n, &p->params, r->steps, r->n_steps, &checked) == GGML_STATUS_SUCCESS,
        "the checker refuses a schedule");
    expect(checked->fits == r->fits && checked->cost == r->cost && checked->n_recomputed == r->n_recomputed,
        "the checker finds another result");
    expect(!r->fits || r->cost_bound <= r->cost, "the bound is above the cost");
    expect(r->cost >= r->cost_once || r->n_steps == 0, "cheaper than running every op once");
    for (int64_t k = 0; r->fits && k < r->n_uses; k++) {
        expect((p->params.live_only ? r->uses[k].live : r->uses[k].peak) <= r->uses[k].limit, "above its limit");
        expect(r->uses[k].live_bound <= r->uses[k].live, "live bytes below the least of every schedule");
    }
    expect(!(r->fits && r->proven) || r->cost == r->cost_bound, "proven, but not at the bound");
    berth_budget_free(checked);
    struct berth_plan_item *items = calloc(p->n + r->n_steps + 1, sizeof *items);
    int64_t n_items = 0;
    expect(items != NULL &&
               berth_budget_items(p->ops, p->n, &p->params, r->steps, r->n_steps, items, &n_items, NULL) == GGML_STATUS_SUCCESS,
        "no items for a valid schedule");
    free(items);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct bytes b = {data, data + size};
    struct problem p;
    struct berth_budget_result *r = NULL;
    ggml_log_set(quiet, NULL);
    read_problem(&b, &p);
    const int64_t begin_us = ggml_time_us();
    const enum ggml_status status = berth_budget_solve(p.ops, p.n, &p.params, &r);
    expect(status == GGML_STATUS_SUCCESS || status == GGML_STATUS_FAILED, "out of memory");
    expect((status == GGML_STATUS_SUCCESS) == (r != NULL), "a result without success");
    expect(ggml_time_us() - begin_us < PATIENCE_US, "the solver took too long");
    if (r != NULL) {
        check_found(&p, r);
        berth_budget_free(r);
    }
    struct berth_budget_step steps[MAX_STEPS];
    size_t n_steps = 0;
    for (size_t k = 0; k < size && n_steps < MAX_STEPS; k++) { // the same bytes as steps, most of them invalid
        steps[n_steps++] = (struct berth_budget_step){data[k] % 32 - 1, (enum berth_budget_kind)(data[k] / 32 % 4)};
    }
    r = NULL;
    (void) berth_budget_check(p.ops, p.n, &p.params, steps, n_steps, &r);
    berth_budget_free(r);
    return 0;
}
