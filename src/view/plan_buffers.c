// SPDX-License-Identifier: MIT
// plan_buffers.c: the buffers of a plan: the pools that its items name, which items lie in each, and what the file says of them.
// Files may have as many pools as items: O(n log n).

#include "view/plan.h"

#include "base/base.h"

#include <stdlib.h>

// ---- what the file says of pools ----

static int by_pool(const void *a, const void *b) {
    const struct berth_plan_pool *x = a, *y = b;
    return (x->pool > y->pool) - (x->pool < y->pool);
}

void cli_pools_sort(struct berth_plan_set *set) {
    if (set->n_pools > 1) {
        qsort(set->pools, set->n_pools, sizeof set->pools[0], by_pool);
    }
}

const struct berth_plan_pool *cli_pools_find(const struct berth_plan_set *set, int32_t pool) {
    const struct berth_plan_pool key = {.pool = pool};
    return set->n_pools > 0 ? bsearch(&key, set->pools, set->n_pools, sizeof set->pools[0], by_pool) : NULL;
}

// ---- which items lie where ----

struct member {
    int32_t pool;
    size_t item;
};

static int by_member(const void *a, const void *b) {
    const struct member *x = a, *y = b;
    return x->pool != y->pool ? (x->pool < y->pool ? -1 : 1) : (x->item > y->item) - (x->item < y->item);
}

// The items by pool, then by number, and how many pools there are.
static struct member *members_of(const struct berth_plan_set *set, size_t *n_pools) {
    struct member *members = malloc((set->n_items + 1) * sizeof *members);
    *n_pools = 0;
    for (size_t i = 0; members != NULL && i < set->n_items; i++) {
        members[i] = (struct member){set->items[i].pool, i};
    }
    if (members != NULL && set->n_items > 0) {
        qsort(members, set->n_items, sizeof *members, by_member);
    }
    for (size_t i = 0; members != NULL && i < set->n_items; i++) {
        *n_pools += i == 0 || members[i].pool != members[i - 1].pool;
    }
    return members;
}

static struct cli_buffer buffer_of(const struct berth_plan_set *set, int32_t pool, const size_t *items) {
    const struct berth_plan_pool *said = cli_pools_find(set, pool);
    struct cli_buffer buffer = {.pool = pool, .items = items};
    if (said != NULL) {
        buffer.max_chunk = said->max_chunk < (uint64_t) 1 << 62 ? said->max_chunk : 0;
        snprintf(buffer.name, sizeof buffer.name, "%s", said->name);
    }
    return buffer;
}

enum ggml_status cli_plan_buffers(struct cli_plan *plan) {
    const struct berth_plan_set *set = plan->set;
    size_t n_pools;
    struct member *members = members_of(set, &n_pools);
    plan->order = malloc((set->n_items + 1) * sizeof *plan->order);
    plan->buffers = malloc((n_pools + 1) * sizeof *plan->buffers);
    if (members == NULL || plan->order == NULL || plan->buffers == NULL) {
        free(members);
        return berth_fail(GGML_STATUS_ALLOC_FAILED, "out of memory for %zu buffers of %zu items", n_pools, set->n_items);
    }
    cli_pools_sort(plan->set);
    for (size_t i = 0; i < set->n_items; i++) {
        plan->order[i] = members[i].item;
        if (i == 0 || members[i].pool != members[i - 1].pool) {
            plan->buffers[plan->n_buffers++] = buffer_of(set, members[i].pool, &plan->order[i]);
        }
        plan->buffers[plan->n_buffers - 1].n_items++;
    }
    free(members);
    return GGML_STATUS_SUCCESS;
}

void cli_plan_alive_add(struct cli_plan *plan, size_t i, const char *name, uint64_t size) {
    if (i < CLI_BUDGET_N_ALIVE) {
        snprintf(plan->alive[i].name, sizeof plan->alive[i].name, "%s", name);
        plan->alive[i].size = size;
    }
}

void cli_plan_free(struct cli_plan *plan) {
    berth_plan_set_free(plan->set);
    berth_budget_free(plan->budgeted);
    free(plan->homes);
    free(plan->buffers);
    free(plan->order);
    *plan = (struct cli_plan){0};
}
