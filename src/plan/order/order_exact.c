// SPDX-License-Identifier: MIT
// order_exact.c: finds the order of a part with the lowest peak, by a best-first search over sets of tasks that have run.
//
// A move is the set of all tasks that must still run before some block can die. No block dies before the last task of a move has
// run, so the order inside the move does not matter. A move that contains another move is not tried, because the smaller move can
// be made first.
// A move is free if it raises neither the live bytes nor the peak. A free move is made at once. This loses nothing, because live
// bytes are a submodular function of the set of tasks: after more tasks have run, the move adds at most as many live bytes.
// The set with the lowest peak is expanded first; of equal sets, the set with the most tasks. The first complete set is the
// optimum.

#include "base/min.h"
#include "plan/order/order.h"

#include <string.h>

struct move {
    uint64_t set;  // tasks, one bit per task
    uint64_t dead; // bytes of the blocks that die at the end of the move
    uint64_t last; // tasks that may run last and reuse a dying block
};

struct node {
    uint64_t done; // set of tasks that have run
    uint64_t live, peak;
    uint32_t parent;
    uint8_t last;   // task that runs last in the move from the parent to this node, 64: any task
    uint8_t n_done; // number of tasks in done
    bool is_stale;  // the set was later reached with a lower peak
};

struct exact {
    const struct order_part *p;
    int32_t n_blocks;
    uint64_t *needs;  // [n_blocks] tasks that must run before the block dies
    uint64_t *size;   // [n_blocks]
    uint64_t *taker;  // [n_blocks] tasks that may take over the block
    uint64_t *before; // [n] all tasks that must run before this one
    uint64_t *succ;   // [n]
    uint64_t all;
    struct move *moves;    // [n_blocks + 1] moves from the current set
    struct node *children; // [n_blocks + 1] the nodes to which the moves lead
    int n_moves;
    struct node *nodes;
    size_t n_nodes, n_cap;
    uint32_t *heap; // indices of nodes
    size_t n_heap, n_heap_cap;
    uint32_t *table; // hash table from set to node + 1, open addressing
    size_t n_table;  // a power of two
};

// ---- moves ----

static bool exact_init(struct exact *e, struct berth_arrays *mem) {
    const struct order_part *p = e->p;
    const size_t n = (size_t) p->n;
    e->before = berth_arrays_new(mem, n, sizeof *e->before);
    e->succ = berth_arrays_new(mem, n, sizeof *e->succ);
    e->needs = berth_arrays_new(mem, (size_t) p->n_blocks + n, sizeof *e->needs);
    e->size = berth_arrays_new(mem, (size_t) p->n_blocks + n, sizeof *e->size);
    e->taker = berth_arrays_new(mem, (size_t) p->n_blocks + n, sizeof *e->taker);
    e->moves = berth_arrays_new(mem, (size_t) p->n_blocks + n + 1, sizeof *e->moves);
    e->children = berth_arrays_new(mem, (size_t) p->n_blocks + n + 1, sizeof *e->children);
    if (mem->has_failed) {
        return false;
    }
    for (int32_t i = 0; i < p->n; i++) { // local numbers are a valid order
        for (int32_t k = p->pred.start[i]; k < p->pred.start[i + 1]; k++) {
            e->before[i] |= e->before[p->pred.at[k]] | (uint64_t) 1 << p->pred.at[k];
            e->succ[p->pred.at[k]] |= (uint64_t) 1 << i;
        }
    }
    e->n_blocks = p->n_blocks;
    for (int32_t b = 0; b < p->n_blocks; b++) {
        e->size[b] = p->size[b];
        for (int32_t k = p->users.start[b]; k < p->users.start[b + 1]; k++) {
            e->needs[b] |= e->before[p->users.at[k]] | (uint64_t) 1 << p->users.at[k];
        }
    }
    for (int32_t i = 0; i < p->n; i++) {
        if (p->need[i] > p->stay[i]) { // unused result: a block of size 0 dies after task i
            e->needs[e->n_blocks++] = e->before[i] | (uint64_t) 1 << i;
        }
        for (int32_t k = p->takeover.start[i]; k < p->takeover.start[i + 1]; k++) {
            e->taker[p->takeover.at[k]] |= (uint64_t) 1 << i;
        }
    }
    e->all = n == 64 ? UINT64_MAX : ((uint64_t) 1 << n) - 1;
    return true;
}

// Finds the minimal sets of tasks after which a block dies, or all remaining tasks if no block can die.
static void moves_find(struct exact *e, uint64_t done) {
    int n = 0;
    for (int32_t b = 0; b < e->n_blocks; b++) {
        const uint64_t set = e->needs[b] & ~done;
        if (set == 0) {
            continue;
        }
        int kept = 0;
        bool is_new = true;
        for (int i = 0; i < n && is_new; i++) {
            if (e->moves[i].set == set) {
                e->moves[i].dead += e->size[b];
                e->moves[i].last |= e->taker[b];
                is_new = false;
            } else if ((e->moves[i].set & ~set) == 0) {
                is_new = false; // contains a smaller move
            }
        }
        if (!is_new) {
            continue;
        }
        for (int i = 0; i < n; i++) {
            if ((set & ~e->moves[i].set) != 0) {
                e->moves[kept++] = e->moves[i];
            }
        }
        e->moves[kept] = (struct move){set, e->size[b], e->taker[b]};
        n = kept + 1;
    }
    if (n == 0 && done != e->all) {
        e->moves[n++] = (struct move){e->all & ~done, 0, 0};
    }
    e->n_moves = n;
}

// Returns the live bytes after a move. *peak: the largest number of live bytes during the move. *last: the task that takes over a
// block, 64: none.
static uint64_t move_effect(const struct exact *e, const struct move *move, uint64_t live, uint64_t *peak, uint8_t *last) {
    const struct order_part *p = e->p;
    uint64_t stay = 0, most = 0, saved = 0;
    *last = 64;
    for (uint64_t s = move->set; s != 0; s &= s - 1) {
        const int t = __builtin_ctzll(s);
        most = max_u64(stay + p->need[t], most);
        stay += p->stay[t];
        if ((move->last >> t & 1) != 0 && (e->succ[t] & move->set) == 0 && p->need[t] > saved) {
            saved = p->need[t];
            *last = (uint8_t) t;
        }
    }
    *peak = live + (*last < 64 ? stay - p->stay[*last] : most);
    return live + stay - move->dead;
}

// ---- the search ----

static bool heap_before(const struct exact *e, uint32_t x, uint32_t y) {
    const struct node *a = &e->nodes[x], *b = &e->nodes[y];
    if (a->peak != b->peak) {
        return a->peak < b->peak;
    }
    if (a->n_done != b->n_done) {
        return a->n_done > b->n_done;
    }
    return a->live != b->live ? a->live < b->live : x < y;
}

static bool heap_push(struct exact *e, uint32_t x) {
    if (!BERTH_GROW(&e->heap, &e->n_heap_cap, e->n_heap + 1)) {
        return false;
    }
    size_t i = e->n_heap++;
    for (; i > 0 && heap_before(e, x, e->heap[(i - 1) / 2]); i = (i - 1) / 2) {
        e->heap[i] = e->heap[(i - 1) / 2];
    }
    e->heap[i] = x;
    return true;
}

static uint32_t heap_pop(struct exact *e) {
    const uint32_t top = e->heap[0], x = e->heap[--e->n_heap];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= e->n_heap) {
            break;
        }
        child += child + 1 < e->n_heap && heap_before(e, e->heap[child + 1], e->heap[child]);
        if (!heap_before(e, e->heap[child], x)) {
            break;
        }
        e->heap[i] = e->heap[child];
        i = child;
    }
    e->heap[i] = x;
    return top;
}

static size_t table_find(const struct exact *e, uint64_t done) {
    size_t i = (size_t) ((done ^ done >> 32) * 0x9e3779b97f4a7c15u >> 32) & (e->n_table - 1);
    while (e->table[i] != 0 && e->nodes[e->table[i] - 1].done != done) {
        i = (i + 1) & (e->n_table - 1);
    }
    return i;
}

static bool table_reserve(struct exact *e) {
    if (2 * (e->n_nodes + 1) <= e->n_table) {
        return true;
    }
    const size_t n = e->n_table == 0 ? 1024 : 4 * e->n_table;
    uint32_t *table = berth_calloc(n, sizeof *table);
    if (table == NULL) {
        return false;
    }
    uint32_t *old = e->table;
    const size_t n_old = e->n_table;
    e->table = table;
    e->n_table = n;
    for (size_t i = 0; i < n_old; i++) {
        if (old[i] != 0) {
            e->table[table_find(e, e->nodes[old[i] - 1].done)] = old[i];
        }
    }
    berth_free(old);
    return true;
}

// Adds a node. *added: its index; UINT32_MAX if the set is already known with the same or a lower peak. False: out of memory.
static bool node_add(struct exact *e, const struct node *node, uint32_t *added) {
    *added = UINT32_MAX;
    if (!table_reserve(e)) {
        return false;
    }
    const size_t at = table_find(e, node->done);
    if (e->table[at] != 0) {
        struct node *old = &e->nodes[e->table[at] - 1];
        if (old->peak <= node->peak) {
            return true;
        }
        old->is_stale = true;
    }
    if (e->n_nodes >= UINT32_MAX - 1 || !BERTH_GROW(&e->nodes, &e->n_cap, e->n_nodes + 1)) {
        return false;
    }
    e->nodes[e->n_nodes] = *node;
    *added = (uint32_t) e->n_nodes++;
    e->table[at] = *added + 1;
    return true;
}

// Follows free moves from *x. Sets *x to the last node and adds the nodes after it to the heap.
static bool node_expand(struct exact *e, uint32_t *x, uint64_t limit) {
    for (;;) {
        const struct node from = e->nodes[*x];
        bool is_free = false;
        uint32_t added = UINT32_MAX;
        moves_find(e, from.done);
        int n_children = 0;
        for (int i = 0; i < e->n_moves && !is_free; i++) {
            const struct move *move = &e->moves[i];
            struct node child = {.done = from.done | move->set, .parent = *x};
            child.n_done = (uint8_t) (from.n_done + __builtin_popcountll(move->set));
            child.live = move_effect(e, move, from.live, &child.peak, &child.last);
            is_free = child.live <= from.live && child.peak <= from.peak;
            child.peak = max_u64(child.peak, from.peak);
            if (is_free) {
                if (!node_add(e, &child, &added)) {
                    return false;
                }
            } else if (child.peak < limit) {
                e->children[n_children++] = child;
            }
        }
        if (is_free && added == UINT32_MAX) {
            return true;
        }
        if (!is_free) {
            for (int i = 0; i < n_children; i++) {
                if (!node_add(e, &e->children[i], &added) || (added != UINT32_MAX && !heap_push(e, added))) {
                    return false;
                }
            }
            return true;
        }
        *x = added;
    }
}

// Writes the order of tasks that leads to node x. Inside a move, the task that takes over a block comes last.
static void path_write(const struct exact *e, uint32_t x, int32_t *order) {
    int32_t at = e->p->n;
    for (; e->nodes[x].parent != UINT32_MAX; x = e->nodes[x].parent) {
        uint64_t set = e->nodes[x].done & ~e->nodes[e->nodes[x].parent].done;
        const uint8_t last = e->nodes[x].last;
        if (last < 64) {
            order[--at] = last;
            set &= ~((uint64_t) 1 << last);
        }
        for (; set != 0; set &= ~((uint64_t) 1 << order[at])) {
            order[--at] = 63 - __builtin_clzll(set);
        }
    }
}

enum order_result order_exact(
    const struct order_part *p, const struct order_ask *ask, int32_t *order, uint64_t *peak, int64_t *n_nodes) {
    if (p->bound >= ask->limit) {
        return ORDER_NONE_BETTER;
    }
    struct berth_arrays mem = {0};
    struct exact e = {.p = p};
    enum order_result result = ORDER_OUT_OF_MEMORY;
    if (!exact_init(&e, &mem) || !BERTH_GROW(&e.nodes, &e.n_cap, 1024) || !heap_push(&e, 0)) {
        goto fail;
    }
    e.nodes[0] = (struct node){.live = p->live, .peak = max_u64(ask->aim, p->bound), .parent = UINT32_MAX};
    e.n_nodes = 1;
    result = ORDER_NONE_BETTER;
    while (e.n_heap > 0) {
        uint32_t x = heap_pop(&e);
        if (e.nodes[x].is_stale) {
            continue;
        }
        if ((int64_t) e.n_nodes > ask->max_nodes) {
            result = ORDER_GAVE_UP;
            break;
        }
        if (!node_expand(&e, &x, ask->limit)) {
            result = ORDER_OUT_OF_MEMORY;
            break;
        }
        if (e.nodes[x].done == e.all) {
            *peak = e.nodes[x].peak;
            path_write(&e, x, order);
            result = ORDER_BETTER;
            break;
        }
    }
    *n_nodes += (int64_t) e.n_nodes;
fail:
    berth_free(e.nodes);
    berth_free(e.heap);
    berth_free(e.table);
    berth_arrays_free(&mem);
    return result;
}
