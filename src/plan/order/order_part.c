// SPDX-License-Identifier: MIT
// order_part.c: functions on a part (a range of an order; see order.h). The time is linear in the tasks, edges and uses of the
// part.

#include "base/min.h"
#include "plan/order/order.h"

#include <string.h>

struct local {
    struct order_part *p;
    const struct order_graph *g;
    const int32_t *position;
    int32_t lo, hi;
    int32_t *block; // [n] scratch: blocks that can die in the part
    int32_t *slot;  // [g->n_blocks] local number + 1, 0: unknown, -1: cannot die
};

// Returns the local number of block b. Returns -1 if the block cannot die in the part, because it is kept to the end or has a
// user after the part. The users are searched from the last one back, because such a user is then found soonest.
static int32_t local_block(struct local *l, int32_t b) {
    const struct order_graph *g = l->g;
    if (l->slot[b] == 0) {
        bool dies = !g->keep[b];
        for (int32_t k = g->users.start[b + 1]; dies && k-- > g->users.start[b];) {
            dies = l->position[g->users.at[k]] < l->hi;
        }
        l->slot[b] = -1;
        if (dies) {
            l->block[l->p->n_blocks] = b;
            l->slot[b] = ++l->p->n_blocks;
        }
    }
    return l->slot[b] > 0 ? l->slot[b] - 1 : -1;
}

static void lists_alloc(struct order_lists *lists, struct berth_arrays *mem, int32_t n_keys, size_t n) {
    lists->start = berth_arrays_new(mem, (size_t) n_keys + 1, sizeof(int32_t));
    lists->at = berth_arrays_new(mem, n, sizeof(int32_t));
}

static bool part_edges(struct order_part *p, struct berth_arrays *mem, const struct local *l) {
    const struct order_graph *g = l->g;
    size_t n_pred = 0, n_succ = 0;
    for (int32_t i = 0; i < p->n; i++) {
        const int32_t t = p->tasks[i];
        n_pred += (size_t) (g->pred.start[t + 1] - g->pred.start[t]);
        n_succ += (size_t) (g->succ.start[t + 1] - g->succ.start[t]);
    }
    lists_alloc(&p->pred, mem, p->n, n_pred);
    lists_alloc(&p->succ, mem, p->n, n_succ);
    if (mem->has_failed) {
        return false;
    }
    int32_t i_pred = 0, i_succ = 0;
    for (int32_t i = 0; i < p->n; i++) {
        const int32_t t = p->tasks[i];
        for (int32_t k = g->pred.start[t]; k < g->pred.start[t + 1]; k++) {
            const int32_t at = l->position[g->pred.at[k]];
            if (at >= l->lo) {
                p->pred.at[i_pred++] = at - l->lo;
            }
        }
        for (int32_t k = g->succ.start[t]; k < g->succ.start[t + 1]; k++) {
            const int32_t at = l->position[g->succ.at[k]];
            if (at < l->hi) {
                p->succ.at[i_succ++] = at - l->lo;
            }
        }
        p->pred.start[i + 1] = i_pred;
        p->succ.start[i + 1] = i_succ;
    }
    return true;
}

static bool part_blocks(struct order_part *p, struct berth_arrays *mem, struct local *l) {
    const struct order_graph *g = l->g;
    size_t n_used = 0, n_take = 0;
    for (int32_t i = 0; i < p->n; i++) {
        const int32_t t = p->tasks[i];
        n_used += (size_t) (g->used.start[t + 1] - g->used.start[t]);
        n_take += (size_t) (g->takeover.start[t + 1] - g->takeover.start[t]);
    }
    p->need = berth_arrays_new(mem, (size_t) p->n, sizeof *p->need);
    p->stay = berth_arrays_new(mem, (size_t) p->n, sizeof *p->stay);
    l->block = berth_arrays_new(mem, n_used + (size_t) p->n, sizeof *l->block);
    lists_alloc(&p->used, mem, p->n, n_used);
    lists_alloc(&p->takeover, mem, p->n, n_take);
    if (mem->has_failed) {
        return false;
    }
    int32_t i_used = 0, i_take = 0;
    for (int32_t i = 0; i < p->n; i++) {
        const int32_t t = p->tasks[i], made = g->made[t];
        if (made >= 0) {
            p->need[i] = g->size[made];
            p->stay[i] = g->keep[made] || g->users.start[made + 1] > g->users.start[made] ? g->size[made] : 0;
            local_block(l, made);
        }
        for (int32_t k = g->used.start[t]; k < g->used.start[t + 1]; k++) {
            const int32_t b = local_block(l, g->used.at[k]);
            if (b >= 0) {
                p->used.at[i_used++] = b;
            }
        }
        for (int32_t k = g->takeover.start[t]; k < g->takeover.start[t + 1]; k++) {
            const int32_t b = local_block(l, g->takeover.at[k]);
            if (b >= 0) {
                p->takeover.at[i_take++] = b;
            }
        }
        p->used.start[i + 1] = i_used;
        p->takeover.start[i + 1] = i_take;
    }
    p->size = berth_arrays_new(mem, (size_t) p->n_blocks, sizeof *p->size);
    lists_alloc(&p->users, mem, p->n_blocks, (size_t) i_used);
    if (mem->has_failed) {
        return false;
    }
    for (int32_t k = 0; k < i_used; k++) {
        p->users.start[p->used.at[k] + 1]++;
    }
    for (int32_t b = 0; b < p->n_blocks; b++) {
        p->size[b] = g->size[l->block[b]];
        p->users.start[b + 1] += p->users.start[b];
    }
    for (int32_t i = p->n; i-- > 0;) {
        for (int32_t k = p->used.start[i]; k < p->used.start[i + 1]; k++) {
            p->users.at[--p->users.start[p->used.at[k] + 1]] = i;
        }
    }
    // Now the list of block b begins at start[b + 1].
    memmove(p->users.start, p->users.start + 1, (size_t) p->n_blocks * sizeof *p->users.start);
    p->users.start[p->n_blocks] = i_used;
    return true;
}

// Computes the bound of the part: while a task runs, at least the blocks that it uses or allocates are alive, and the earlier
// blocks that cannot die in the part.
static void part_bound(struct order_part *p, const struct local *l) {
    const struct order_graph *g = l->g;
    uint64_t mortal = 0; // bytes from before the part that may die
    for (int32_t b = 0; b < p->n_blocks; b++) {
        const int32_t op = g->block_op[l->block[b]], t = g->op_task[op];
        mortal += t < 0 || l->position[t] < l->lo ? p->size[b] : 0;
    }
    p->bound = p->live;
    for (int32_t i = 0; i < p->n; i++) {
        uint64_t sum = p->live - mortal + (p->takeover.start[i + 1] > p->takeover.start[i] ? 0 : p->need[i]);
        for (int32_t k = p->used.start[i]; k < p->used.start[i + 1]; k++) {
            sum += p->size[p->used.at[k]];
        }
        p->bound = max_u64(sum, p->bound);
    }
}

bool order_part_init(struct order_part *p, struct berth_arrays *mem, const struct order_graph *g, const int32_t *position) {
    const int32_t lo = position[p->tasks[0]];
    struct local l = {.p = p, .g = g, .position = position, .lo = lo, .hi = lo + p->n};
    l.slot = berth_arrays_new(mem, (size_t) g->n_blocks, sizeof *l.slot);
    if (l.slot == NULL || !part_edges(p, mem, &l) || !part_blocks(p, mem, &l)) {
        return false;
    }
    part_bound(p, &l);
    return true;
}

uint64_t order_part_peak(const struct order_part *p, const int32_t *order) {
    int32_t *left = berth_malloc(((size_t) p->n_blocks + 1) * sizeof *left);
    if (left == NULL) {
        return UINT64_MAX;
    }
    uint64_t live = p->live, peak = live;
    for (int32_t b = 0; b < p->n_blocks; b++) {
        left[b] = p->users.start[b + 1] - p->users.start[b];
    }
    for (int32_t i = 0; i < p->n; i++) {
        const int32_t t = order[i];
        uint64_t need = p->need[t];
        for (int32_t k = p->takeover.start[t]; k < p->takeover.start[t + 1]; k++) {
            if (left[p->takeover.at[k]] == 1) {
                need = 0;
            }
        }
        peak = max_u64(live + need, peak);
        live += p->stay[t];
        for (int32_t k = p->used.start[t]; k < p->used.start[t + 1]; k++) {
            live -= --left[p->used.at[k]] == 0 ? p->size[p->used.at[k]] : 0;
        }
    }
    berth_free(left);
    return peak;
}

// ---- depth first ----

struct visit {
    int32_t task;
    int32_t next; // predecessors visited so far
};

enum order_result order_depth_first(const struct order_part *p, uint64_t limit, int32_t *order, uint64_t *peak) {
    const size_t n = (size_t) p->n;
    struct berth_arrays mem = {0};
    uint64_t *path_need = berth_arrays_new(&mem, n, sizeof *path_need); // largest sum of needs on a path
    bool *done = berth_arrays_new(&mem, n, sizeof *done);
    struct visit *stack = berth_arrays_new(&mem, n, sizeof *stack);
    int32_t *preds = berth_arrays_new(&mem, (size_t) p->pred.start[n], sizeof *preds); // predecessors by falling path_need
    int32_t n_order = 0;
    enum order_result result = ORDER_OUT_OF_MEMORY;
    if (mem.has_failed) {
        goto fail;
    }
    for (int32_t i = 0; i < p->n; i++) {
        const int32_t lo = p->pred.start[i], hi = p->pred.start[i + 1];
        for (int32_t k = lo; k < hi; k++) {
            const int32_t pred_task = p->pred.at[k];
            int32_t j = k;
            for (; j > lo && path_need[preds[j - 1]] < path_need[pred_task]; j--) {
                preds[j] = preds[j - 1];
            }
            preds[j] = pred_task;
        }
        path_need[i] = p->need[i] + (hi > lo ? path_need[preds[lo]] : 0);
    }
    for (int32_t end = 0; end < p->n; end++) {
        if (p->succ.start[end + 1] > p->succ.start[end]) {
            continue;
        }
        int32_t n_stack = 0;
        stack[n_stack++] = (struct visit){end, 0};
        while (n_stack > 0) {
            struct visit *top = &stack[n_stack - 1];
            const int32_t k = p->pred.start[top->task] + top->next;
            if (k == p->pred.start[top->task + 1]) {
                done[top->task] = true;
                order[n_order++] = top->task;
                n_stack--;
            } else {
                top->next++;
                if (!done[preds[k]]) {
                    stack[n_stack++] = (struct visit){preds[k], 0};
                }
            }
        }
    }
    *peak = order_part_peak(p, order);
    result = *peak < limit ? ORDER_BETTER : ORDER_GAVE_UP;
    if (*peak == UINT64_MAX) {
        result = ORDER_OUT_OF_MEMORY;
    }
fail:
    berth_arrays_free(&mem);
    return result;
}
