// SPDX-License-Identifier: MIT
// order_model.c: makes tasks, blocks and edges from ops; see order.h. The time is linear in ops and sources, with one exception:
// a view that depends on several tasks is followed once per reader.
//
// A task has an edge to another task that reads its result, directly or through pure views. Two tasks keep their order if both
// access memory that one of them writes, or if both have effects. A write into memory of size 0 counts as an effect.

#include "base/min.h"
#include "plan/order/order.h"

#include <inttypes.h>
#include <string.h>

// ---- lists from pairs ----

struct pairs {
    int32_t (*at)[2];
    size_t n, n_cap;
};

static bool pairs_add(struct pairs *pairs, int32_t key, int32_t value) {
    if (!BERTH_GROW(&pairs->at, &pairs->n_cap, pairs->n + 1)) {
        return false;
    }
    pairs->at[pairs->n][0] = key;
    pairs->at[pairs->n][1] = value;
    pairs->n++;
    return true;
}

// Makes one list per key from pairs, without duplicates. side: the column of the pairs that is the key. Values are in [0,
// n_values).
static bool lists_build(
    struct order_lists *lists, struct berth_arrays *mem, const struct pairs *pairs, int side, int32_t n_keys, int32_t n_values) {
    lists->start = berth_arrays_new(mem, (size_t) n_keys + 1, sizeof(int32_t));
    lists->at = berth_arrays_new(mem, pairs->n, sizeof(int32_t));
    int32_t *seen = berth_malloc(((size_t) n_values + 1) * sizeof *seen);
    if (lists->start == NULL || lists->at == NULL || seen == NULL) {
        berth_free(seen);
        return false;
    }
    for (size_t i = 0; i < pairs->n; i++) {
        lists->start[pairs->at[i][side] + 1]++;
    }
    for (int32_t k = 0; k < n_keys; k++) {
        lists->start[k + 1] += lists->start[k];
    }
    for (size_t i = pairs->n; i-- > 0;) {
        lists->at[--lists->start[pairs->at[i][side] + 1]] = pairs->at[i][1 - side];
    }
    // Now list k begins at start[k + 1].
    for (int32_t v = 0; v < n_values; v++) {
        seen[v] = -1;
    }
    int32_t n = 0;
    for (int32_t k = 0; k < n_keys; k++) {
        const int32_t lo = lists->start[k + 1], hi = k + 1 < n_keys ? lists->start[k + 2] : (int32_t) pairs->n;
        lists->start[k] = n;
        for (int32_t i = lo; i < hi; i++) {
            const int32_t v = lists->at[i];
            if (seen[v] != k) {
                seen[v] = k;
                lists->at[n++] = v;
            }
        }
    }
    lists->start[n_keys] = n;
    berth_free(seen);
    return true;
}

// ---- building the graph ----

struct build {
    struct order_graph *g;
    struct berth_arrays *mem;
    struct pairs edges, uses, takes;
    int32_t *only_task;  // [n_ops] the only task that a pure view waits for; -1: none, -2: several
    int32_t *stack;      // [n_ops] views that are being followed
    int32_t *seen;       // [n_ops] last reader that visited this op
    int32_t *last_write; // [n_ops] by root: the last task that wrote, -1: none
    struct pairs reads;  // linked lists by root: tasks that have read the memory since the last write
    int32_t *read_head;  // [n_ops] by root: index in reads of the newest entry, -1: none
};

static enum ggml_status out_of_memory(size_t n_ops) {
    return berth_fail(GGML_STATUS_ALLOC_FAILED, "order: out of memory for %zu ops", n_ops);
}

static bool is_input(const struct berth_order_op *op) {
    return (op->flags & BERTH_ORDER_INPUT) != 0;
}

static bool is_pure_view(const struct berth_order_op *op) {
    return !is_input(op) && op->view_of >= 0 && (op->flags & (BERTH_ORDER_WRITES | BERTH_ORDER_EFFECT)) == 0;
}

static enum ggml_status ops_check(const struct berth_order_op *ops, size_t n_ops) {
    uint64_t sum = 0;
    if (n_ops >= INT32_MAX) {
        return berth_fail(GGML_STATUS_FAILED, "order: %zu ops exceed the limit of %d", n_ops, INT32_MAX - 1);
    }
    for (size_t i = 0; i < n_ops; i++) {
        const struct berth_order_op *op = &ops[i];
        if (op->n_srcs < 0 || op->n_srcs > INT32_MAX || (op->n_srcs > 0 && op->srcs == NULL)) {
            return berth_fail(GGML_STATUS_FAILED, "order: op %zu has an invalid list of %" PRId64 " sources at %p", i, op->n_srcs,
                (const void *) op->srcs);
        }
        for (int32_t k = -1; k < op->n_srcs; k++) {
            const int32_t src = k < 0 ? op->view_of : op->srcs[k];
            if (k < 0 && src < 0) {
                continue;
            }
            const bool in_range = src >= 0 && (size_t) src < n_ops;
            const bool is_self = in_range && (size_t) src == i;
            if (!in_range || (k < 0 && is_self) || (!is_self && (size_t) src > i && !is_input(&ops[src]))) {
                return berth_fail(GGML_STATUS_FAILED, "order: op %zu %s %d, which is not an input and not before it", i,
                    k < 0 ? "is a view of" : "reads", src);
            }
        }
        if (op->view_of >= 0 && is_input(op) && !is_input(&ops[op->view_of])) {
            return berth_fail(GGML_STATUS_FAILED, "order: input %zu is a view of op %d, which is computed", i, op->view_of);
        }
        if ((op->flags & BERTH_ORDER_WRITES) != 0 && op->view_of < 0) {
            return berth_fail(GGML_STATUS_FAILED, "order: op %zu has the flag for writing into a view, but it is not a view", i);
        }
        if (op->size > (uint64_t) 1 << 62 || __builtin_add_overflow(sum, op->size, &sum) || sum > INT64_MAX) {
            return berth_fail(GGML_STATUS_FAILED, "order: up to op %zu, the sizes sum to more than 2^63 - 1", i);
        }
    }
    return GGML_STATUS_SUCCESS;
}

// Finds the root of each op. An input may be a view of an input that comes later.
static enum ggml_status roots_find(struct order_graph *g) {
    for (int32_t i = 0; i < g->n_ops; i++) {
        g->root[i] = -1;
    }
    for (int32_t i = 0; i < g->n_ops; i++) {
        int32_t r = i, n_steps = 0;
        while (g->root[r] < 0 && g->ops[r].view_of >= 0) {
            r = g->ops[r].view_of;
            if (++n_steps > g->n_ops) {
                return berth_fail(GGML_STATUS_FAILED, "order: input %d is a view of itself through other inputs", i);
            }
        }
        if (g->root[r] >= 0) {
            r = g->root[r];
        }
        for (int32_t k = i; g->root[k] < 0;) {
            g->root[k] = r;
            if (g->ops[k].view_of >= 0) {
                k = g->ops[k].view_of;
            }
        }
    }
    return GGML_STATUS_SUCCESS;
}

// Returns source k of an op; k == -1: the op of which it is a view. Negative result: none.
static int32_t op_source(const struct berth_order_op *op, int32_t k) {
    return k < 0 ? op->view_of : op->srcs[k];
}

// Adds edges to `task` from the tasks that op `from` waits for, through pure views. reader: the op of `task`.
static bool edges_add(struct build *b, int32_t from, int32_t task, int32_t reader) {
    const struct order_graph *g = b->g;
    int32_t n = 0;
    b->stack[n++] = from;
    while (n > 0) {
        const int32_t i = b->stack[--n];
        int32_t waits_for = g->op_task[i];
        if (waits_for < 0) {
            waits_for = is_input(&g->ops[i]) ? -1 : b->only_task[i];
        }
        if (waits_for >= 0 && waits_for != task && !pairs_add(&b->edges, waits_for, task)) {
            return false;
        }
        if (waits_for != -2) {
            continue;
        }
        for (int32_t k = -1; k < g->ops[i].n_srcs; k++) {
            const int32_t src = op_source(&g->ops[i], k);
            if (src >= 0 && src != i && b->seen[src] != reader) {
                b->seen[src] = reader;
                b->stack[n++] = src;
            }
        }
    }
    return true;
}

// Returns the only task that a pure view waits for, -1: none, -2: several.
static int32_t view_only_task(const struct build *b, int32_t i) {
    const struct order_graph *g = b->g;
    int32_t only_task = -1;
    for (int32_t k = -1; k < g->ops[i].n_srcs; k++) {
        const int32_t src = op_source(&g->ops[i], k);
        if (src < 0 || src == i || is_input(&g->ops[src])) {
            continue;
        }
        const int32_t waits_for = g->op_task[src] >= 0 ? g->op_task[src] : b->only_task[src];
        if (waits_for == -2 || (waits_for >= 0 && only_task >= 0 && waits_for != only_task)) {
            return -2;
        }
        if (waits_for >= 0) {
            only_task = waits_for;
        }
    }
    return only_task;
}

// Adds a use of the memory of root r by task t. Adds edges to t from the last writer of r and, if t writes, from the readers
// since that write.
static bool use_add(struct build *b, int32_t t, int32_t r, bool writes) {
    const struct order_graph *g = b->g;
    const int32_t block = g->op_block[r];
    if (block >= 0 && g->made[t] != block && !pairs_add(&b->uses, block, t)) {
        return false;
    }
    if (b->last_write[r] >= 0 && b->last_write[r] != t && !pairs_add(&b->edges, b->last_write[r], t)) {
        return false;
    }
    if (!writes) {
        if (!pairs_add(&b->reads, t, b->read_head[r])) {
            return false;
        }
        b->read_head[r] = (int32_t) b->reads.n - 1;
        return true;
    }
    for (int32_t k = b->read_head[r]; k >= 0; k = b->reads.at[k][1]) {
        if (b->reads.at[k][0] != t && !pairs_add(&b->edges, b->reads.at[k][0], t)) {
            return false;
        }
    }
    b->read_head[r] = -1;
    b->last_write[r] = t;
    return true;
}

static bool is_aligned_like(const struct berth_order_op *src, const struct berth_order_op *op) {
    return (src->align == 0 ? 1 : src->align) % (op->align == 0 ? 1 : op->align) == 0;
}

static bool takeovers_add(struct build *b, int32_t i, int32_t t) {
    const struct order_graph *g = b->g;
    const struct berth_order_op *op = &g->ops[i];
    for (int32_t k = 0; k < op->n_srcs && k < 64; k++) {
        const int32_t src = op->srcs[k], block = g->op_block[src];
        if ((op->inplace >> k & 1) == 0 || g->made[t] < 0 || src == i || g->root[src] != src || block < 0 || g->keep[block] ||
            g->size[block] != op->size || g->pool[block] != g->pool[g->made[t]] || !is_aligned_like(&g->ops[src], op)) {
            continue;
        }
        int n_reads = 0; // a second read of the same memory would see overwritten bytes
        for (int32_t j = 0; j < op->n_srcs; j++) {
            n_reads += g->root[op->srcs[j]] == src;
        }
        if (n_reads == 1 && !pairs_add(&b->takes, t, block)) {
            return false;
        }
    }
    return true;
}

static bool blocks_find(struct order_graph *g, struct berth_arrays *mem) {
    g->size = berth_arrays_new(mem, (size_t) g->n_ops, sizeof *g->size);
    g->pool = berth_arrays_new(mem, (size_t) g->n_ops, sizeof *g->pool);
    g->keep = berth_arrays_new(mem, (size_t) g->n_ops, sizeof *g->keep);
    g->block_op = berth_arrays_new(mem, (size_t) g->n_ops, sizeof *g->block_op);
    g->op_block = berth_arrays_new(mem, (size_t) g->n_ops, sizeof *g->op_block);
    if (mem->has_failed) {
        return false;
    }
    int32_t *pools = NULL;
    size_t n_pools_cap = 0;
    for (int32_t i = 0; i < g->n_ops; i++) {
        g->op_block[i] = -1;
        if (g->root[i] != i || g->ops[i].size == 0) {
            continue;
        }
        int32_t k = 0; // pools are few
        while (k < g->n_pools && pools[k] != g->ops[i].pool) {
            k++;
        }
        if (k == g->n_pools) {
            if (!BERTH_GROW(&pools, &n_pools_cap, (size_t) k + 1)) {
                berth_free(pools);
                return false;
            }
            pools[g->n_pools++] = g->ops[i].pool;
        }
        g->op_block[i] = g->n_blocks;
        g->block_op[g->n_blocks] = i;
        g->size[g->n_blocks] = g->ops[i].size;
        g->pool[g->n_blocks] = k;
        g->n_blocks++;
    }
    berth_free(pools);
    for (int32_t i = 0; i < g->n_ops; i++) {
        if ((g->ops[i].flags & BERTH_ORDER_OUTPUT) != 0 && g->op_block[g->root[i]] >= 0) {
            g->keep[g->op_block[g->root[i]]] = true;
        }
    }
    return true;
}

static bool tasks_find(struct order_graph *g, struct berth_arrays *mem) {
    g->task_op = berth_arrays_new(mem, (size_t) g->n_ops, sizeof *g->task_op);
    g->op_task = berth_arrays_new(mem, (size_t) g->n_ops, sizeof *g->op_task);
    g->made = berth_arrays_new(mem, (size_t) g->n_ops, sizeof *g->made);
    if (mem->has_failed) {
        return false;
    }
    for (int32_t i = 0; i < g->n_ops; i++) {
        g->op_task[i] = -1;
        if (!is_input(&g->ops[i]) && !is_pure_view(&g->ops[i])) {
            g->op_task[i] = g->n_tasks;
            g->made[g->n_tasks] = g->root[i] == i ? g->op_block[i] : -1;
            g->task_op[g->n_tasks] = i;
            g->n_tasks++;
        }
    }
    return true;
}

static bool tasks_connect(struct build *b) {
    struct order_graph *g = b->g;
    int32_t last_effect = -1;
    for (int32_t i = 0; i < g->n_ops; i++) {
        b->seen[i] = b->last_write[i] = b->read_head[i] = -1;
    }
    for (int32_t i = 0; i < g->n_ops; i++) {
        const struct berth_order_op *op = &g->ops[i];
        const int32_t t = g->op_task[i];
        if (is_pure_view(op)) {
            b->only_task[i] = view_only_task(b, i);
        }
        if (t < 0) {
            continue;
        }
        for (int32_t k = -1; k < op->n_srcs; k++) {
            const int32_t src = op_source(op, k);
            if (src < 0 || src == i) {
                continue;
            }
            if (!edges_add(b, src, t, i) || (k >= 0 && !use_add(b, t, g->root[src], false))) {
                return false;
            }
        }
        const bool writes = (op->flags & BERTH_ORDER_WRITES) != 0;
        if (op->view_of >= 0 && !use_add(b, t, g->root[i], writes)) {
            return false;
        }
        if ((op->flags & BERTH_ORDER_EFFECT) != 0 || (writes && g->ops[g->root[i]].size == 0)) {
            if (last_effect >= 0 && !pairs_add(&b->edges, last_effect, t)) {
                return false;
            }
            last_effect = t;
        }
        if (!takeovers_add(b, i, t)) {
            return false;
        }
    }
    return true;
}

enum ggml_status order_graph_init(
    struct order_graph *g, struct berth_arrays *mem, const struct berth_order_op *ops, size_t n_ops) {
    *g = (struct order_graph){.ops = ops, .n_ops = (int32_t) n_ops};
    enum ggml_status status = ops_check(ops, n_ops);
    if (status != GGML_STATUS_SUCCESS) {
        return status;
    }
    struct berth_arrays scratch = {0};
    struct build b = {.g = g, .mem = mem};
    g->root = berth_arrays_new(mem, n_ops, sizeof *g->root);
    b.only_task = berth_arrays_new(&scratch, n_ops, sizeof *b.only_task);
    b.stack = berth_arrays_new(&scratch, n_ops, sizeof *b.stack);
    b.seen = berth_arrays_new(&scratch, n_ops, sizeof *b.seen);
    b.last_write = berth_arrays_new(&scratch, n_ops, sizeof *b.last_write);
    b.read_head = berth_arrays_new(&scratch, n_ops, sizeof *b.read_head);
    if (mem->has_failed || scratch.has_failed) {
        status = out_of_memory(n_ops);
        goto done;
    }
    status = roots_find(g);
    if (status != GGML_STATUS_SUCCESS) {
        goto done;
    }
    if (!blocks_find(g, mem) || !tasks_find(g, mem) || !tasks_connect(&b)) {
        status = out_of_memory(n_ops);
        goto done;
    }
    if (b.edges.n + b.uses.n + b.takes.n > INT32_MAX) {
        status = berth_fail(GGML_STATUS_FAILED, "order: more than %d edges", INT32_MAX);
        goto done;
    }
    if (!lists_build(&g->succ, mem, &b.edges, 0, g->n_tasks, g->n_tasks) ||
        !lists_build(&g->pred, mem, &b.edges, 1, g->n_tasks, g->n_tasks) ||
        !lists_build(&g->users, mem, &b.uses, 0, g->n_blocks, g->n_tasks) ||
        !lists_build(&g->used, mem, &b.uses, 1, g->n_tasks, g->n_blocks) ||
        !lists_build(&g->takeover, mem, &b.takes, 0, g->n_tasks, g->n_blocks)) {
        status = out_of_memory(n_ops);
        goto done;
    }
    for (int32_t k = 0; k < g->n_blocks; k++) {
        // An input that no op uses is kept to the end, because the caller may use it.
        g->keep[k] |= is_input(&ops[g->block_op[k]]) && g->users.start[k] == g->users.start[k + 1];
    }
done:
    berth_free(b.edges.at);
    berth_free(b.uses.at);
    berth_free(b.takes.at);
    berth_free(b.reads.at);
    berth_arrays_free(&scratch);
    return status;
}

// ---- live bytes of an order ----

static int32_t list_len(const struct order_lists *lists, int32_t k) {
    return lists->start[k + 1] - lists->start[k];
}

bool order_measure(
    const struct order_graph *g, const int32_t *tasks, struct order_live *out, uint64_t *step_live, uint64_t *step_peak) {
    const size_t n_pools = g->n_pools == 0 ? 1 : (size_t) g->n_pools;
    struct berth_arrays mem = {0};
    int32_t *left = berth_arrays_new(&mem, (size_t) g->n_blocks, sizeof *left);
    uint64_t *live = berth_arrays_new(&mem, 2 * n_pools, sizeof *live), now = 0;
    if (mem.has_failed) {
        berth_arrays_free(&mem);
        return false;
    }
    uint64_t *peak = live + n_pools;
    for (int32_t b = 0; b < g->n_blocks; b++) {
        left[b] = list_len(&g->users, b);
        const bool is_input_block = (g->ops[g->block_op[b]].flags & BERTH_ORDER_INPUT) != 0;
        live[g->pool[b]] += is_input_block ? g->size[b] : 0;
        now += is_input_block ? g->size[b] : 0;
    }
    memcpy(peak, live, n_pools * sizeof *live);
    out->total = now;
    for (int32_t i = 0; i < g->n_tasks; i++) {
        const int32_t t = tasks[i], made = g->made[t];
        bool takes = false;
        for (int32_t k = g->takeover.start[t]; k < g->takeover.start[t + 1]; k++) {
            takes |= left[g->takeover.at[k]] == 1;
        }
        const uint64_t need = made < 0 || takes ? 0 : g->size[made];
        out->total = max_u64(now + need, out->total);
        if (step_peak != NULL) {
            step_live[i] = now;
            step_peak[i] = now + need;
        }
        if (made >= 0) {
            const int32_t pool = g->pool[made];
            peak[pool] = max_u64(live[pool] + need, peak[pool]);
            const bool stays = g->keep[made] || left[made] > 0;
            live[pool] += stays ? g->size[made] : 0;
            now += stays ? g->size[made] : 0;
        }
        for (int32_t k = g->used.start[t]; k < g->used.start[t + 1]; k++) {
            const int32_t b = g->used.at[k];
            if (--left[b] == 0 && !g->keep[b]) {
                live[g->pool[b]] -= g->size[b];
                now -= g->size[b];
            }
        }
    }
    out->by_pool = 0;
    for (size_t k = 0; k < n_pools; k++) {
        out->by_pool += peak[k];
    }
    berth_arrays_free(&mem);
    return true;
}

bool order_is_topological(const struct order_graph *g, const int32_t *tasks, int32_t *position) {
    for (int32_t i = 0; i < g->n_tasks; i++) {
        position[i] = -1;
    }
    for (int32_t i = 0; i < g->n_tasks; i++) {
        if (tasks[i] < 0 || tasks[i] >= g->n_tasks || position[tasks[i]] >= 0) {
            return false;
        }
        position[tasks[i]] = i;
        for (int32_t k = g->pred.start[tasks[i]]; k < g->pred.start[tasks[i] + 1]; k++) {
            if (position[g->pred.at[k]] < 0) {
                return false;
            }
        }
    }
    return true;
}
