// SPDX-License-Identifier: MIT
// exact.c: finds the cheapest schedule of a small graph within limits on live bytes, by A* over states. A second search
// (budget_exact_packed) is for limits on the packed peak; it lists all schedules by rising cost.

#include "base/min.h"
#include "plan/budget/budget.h"

#include <string.h>

// ---- states ----

#define BUDGET_WORD 64       // largest number of ops
#define BUDGET_SRCS_MAX 12   // largest number of sources with bytes of an op: there is a move for each set of them
#define STATES_MAX (1 << 24) // largest number of states of a proof
#define BUDGET_NO UINT64_MAX // there is no path from here to the goal

struct budget_words {
    const struct budget_graph *g;
    uint64_t srcs[BUDGET_WORD], readers[BUDGET_WORD], takeover[BUDGET_WORD];
    uint64_t ends[BUDGET_WORD];  // ops of which this op overwrites a source
    uint64_t spill[BUDGET_WORD]; // cost of spilling or of reading back
    uint64_t inputs, keep, recomputable, sized, spillable;
    uint64_t taken; // values whose memory some op may take over; 0 unless the limits are on the packed peak
};

// A move is a step together with the choice of sources that are discarded after the step.
struct budget_move {
    struct budget_state to; // the state after the move
    struct berth_budget_step step;
    uint64_t cost;
};

struct budget_moves {
    struct budget_move *at;
    size_t n, cap;
};

#define BIT(i) ((uint64_t) 1 << (i))

// False: the graph has too many ops, or an op has too many sources.
static bool budget_words_init(struct budget_words *w, const struct budget_graph *g) {
    *w = (struct budget_words){.g = g};
    for (int32_t i = 0; i < g->n && g->n <= BUDGET_WORD; i++) {
        for (int32_t k = g->srcs.start[i]; k < g->srcs.start[i + 1]; k++) {
            w->srcs[i] |= BIT(g->srcs.at[k]);
            w->takeover[i] |= (g->takeover[i] >> (k - g->srcs.start[i]) & 1) != 0 ? BIT(g->srcs.at[k]) : 0;
        }
        for (int32_t k = g->readers.start[i]; k < g->readers.start[i + 1]; k++) {
            w->readers[i] |= BIT(g->readers.at[k]);
        }
        if (g->until[i] >= 0) {
            w->ends[g->until[i]] |= BIT(i);
        }
        w->spill[i] = budget_spill_cost(g, i);
        w->inputs |= budget_is_input(g, i) ? BIT(i) : 0;
        w->keep |= g->keep[i] ? BIT(i) : 0;
        w->recomputable |= g->can_recompute[i] ? BIT(i) : 0;
        w->sized |= g->size[i] > 0 ? BIT(i) : 0;
        w->spillable |= g->size[i] > 0 && g->spill_pool[i] >= 0 ? BIT(i) : 0;
    }
    bool is_small = g->n <= BUDGET_WORD;
    for (int32_t i = 0; i < g->n && is_small; i++) {
        is_small = __builtin_popcountll(w->srcs[i] & w->sized) <= BUDGET_SRCS_MAX;
    }
    return is_small;
}

static struct budget_state budget_first(const struct budget_words *w) {
    return (struct budget_state){.live = w->inputs, .done = w->inputs};
}

static uint64_t all_once(const struct budget_words *w) {
    const int32_t n = w->g->n;
    return (n == BUDGET_WORD ? UINT64_MAX : BIT(n) - 1) & ~w->recomputable;
}

static bool budget_is_goal(const struct budget_words *w, const struct budget_state *s) {
    return (all_once(w) & ~s->done) == 0 && (w->keep & ~s->live) == 0;
}

// Returns the ops that must not run because an op of done has overwritten a source.
static uint64_t ended_find(const struct budget_words *w, uint64_t done) {
    uint64_t ended = 0;
    for (uint64_t left = done & ~w->inputs; left != 0; left &= left - 1) {
        ended |= w->ends[__builtin_ctzll(left)];
    }
    return ended;
}

// Returns the ops that will not run after `done`: they must not run, or their results are not needed.
static uint64_t finished_find(const struct budget_words *w, uint64_t done) {
    uint64_t finished = ended_find(w, done);
    for (int32_t i = w->g->n; i-- > 0;) {
        const bool is_read = (w->readers[i] & ~finished) != 0;
        if ((w->recomputable & BIT(i)) == 0) {
            finished |= done & BIT(i);
        } else if (!is_read) {
            finished |= BIT(i);
        }
    }
    return finished;
}

// Returns the values that no op will read after `done` and that are not kept.
static uint64_t dead_find(const struct budget_words *w, uint64_t done) {
    const uint64_t finished = finished_find(w, done);
    uint64_t dead = 0;
    for (int32_t i = 0; i < w->g->n; i++) {
        dead |= (w->readers[i] & ~finished) == 0 && (w->keep & BIT(i)) == 0 ? BIT(i) : 0;
    }
    return dead;
}

// Returns a lower bound of the cost to the goal; BUDGET_NO: the goal is unreachable.
static uint64_t budget_to_go(const struct budget_words *w, const struct budget_state *s) {
    uint64_t need = all_once(w) & ~s->done, moved = w->keep & s->done & ~s->live, cost = 0;
    for (int32_t i = w->g->n; i-- > 0;) {
        if ((need & BIT(i)) == 0 || (w->inputs & BIT(i)) != 0) {
            continue;
        }
        const uint64_t lacking = w->srcs[i] & ~s->live;
        need |= lacking & ~s->out;
        moved |= lacking & s->out;
        cost += w->g->cost[i];
    }
    if ((need & (s->done | ended_find(w, s->done))) != 0) {
        return BUDGET_NO; // a needed value is lost and cannot be recomputed
    }
    for (int32_t i = 0; moved != 0 && i < w->g->n; i++) {
        const bool may_run = (w->recomputable & BIT(i)) != 0 && w->g->cost[i] < w->spill[i];
        if ((moved & BIT(i)) != 0) {
            cost += may_run ? w->g->cost[i] : w->spill[i];
        }
    }
    return cost;
}

// ---- moves ----

static uint64_t bytes_in(const struct budget_words *w, const struct budget_state *s, int32_t pool) {
    uint64_t sum = 0;
    for (uint64_t left = s->live; left != 0; left &= left - 1) {
        const int32_t i = __builtin_ctzll(left);
        sum += w->g->pool[i] == pool ? w->g->size[i] : 0;
    }
    for (uint64_t left = s->out; left != 0; left &= left - 1) {
        const int32_t i = __builtin_ctzll(left);
        sum += w->g->spill_pool[i] == pool ? w->g->size[i] : 0;
    }
    return sum;
}

static bool move_put(struct budget_moves *m, struct budget_state to, int32_t op, enum berth_budget_kind kind, uint64_t cost) {
    if (!BERTH_GROW(&m->at, &m->cap, m->n + 1)) {
        return false;
    }
    m->at[m->n++] = (struct budget_move){to, {op, kind}, cost};
    return true;
}

// Adds one move for each subset of the sources of op i that may be discarded.
static bool runs_find(const struct budget_words *w, const struct budget_state *s, int32_t i, struct budget_moves *m) {
    const struct budget_graph *g = w->g;
    struct budget_state to = {s->live | BIT(i), s->out, s->done | (BIT(i) & ~w->recomputable)};
    const uint64_t dead = dead_find(w, to.done), limit = g->pools[g->pool[i]].limit, bytes = bytes_in(w, s, g->pool[i]);
    const uint64_t may_go = w->srcs[i] & w->sized & ~dead & (~w->keep | s->out);
    uint64_t go = 0;
    if ((dead & BIT(i)) != 0 && (w->recomputable & BIT(i)) != 0) {
        return true; // no op would read the result
    }
    do { // for every subset of may_go
        const bool takes = (w->takeover[i] & (go | dead)) != 0;
        const struct budget_state then = {to.live & ~go & ~dead, to.out & ~dead, to.done};
        if (bytes + (takes ? 0 : g->size[i]) <= limit && !move_put(m, then, i, BERTH_BUDGET_RUN, g->cost[i])) {
            return false;
        }
        go = (go - may_go) & may_go;
    } while (go != 0);
    return true;
}

static bool spills_find(const struct budget_words *w, const struct budget_state *s, int32_t i, struct budget_moves *m) {
    const struct budget_graph *g = w->g;
    const int32_t home = g->pool[i], spill_pool = g->spill_pool[i];
    bool ok = true;
    if ((s->live & ~s->out & BIT(i)) != 0 && bytes_in(w, s, spill_pool) + g->size[i] <= g->pools[spill_pool].limit) {
        const struct budget_state stays = {s->live, s->out | BIT(i), s->done}, goes = {s->live & ~BIT(i), stays.out, s->done};
        ok = move_put(m, goes, i, BERTH_BUDGET_SPILL, w->spill[i]) && move_put(m, stays, i, BERTH_BUDGET_SPILL, w->spill[i]);
    }
    if ((s->out & ~s->live & BIT(i)) != 0 && bytes_in(w, s, home) + g->size[i] <= g->pools[home].limit) {
        const struct budget_state stays = {s->live | BIT(i), s->out, s->done}, goes = {stays.live, s->out & ~BIT(i), s->done};
        ok = move_put(m, goes, i, BERTH_BUDGET_RESTORE, w->spill[i]) && move_put(m, stays, i, BERTH_BUDGET_RESTORE, w->spill[i]);
    }
    return ok;
}

static bool can_run(const struct budget_words *w, const struct budget_state *s, uint64_t excluded, int32_t i) {
    const int32_t before = w->g->once_before[i];
    return ((excluded | s->live) & BIT(i)) == 0 && (before < 0 || (s->done & BIT(before)) != 0) && (w->srcs[i] & ~s->live) == 0;
}

// Returns an op that can run now without any disadvantage, -1: none. Such an op is a once op whose result has no bytes, which
// neither forbids other ops nor prevents a takeover.
static int32_t forced_find(const struct budget_words *w, const struct budget_state *s, uint64_t excluded) {
    const uint64_t finished = finished_find(w, s->done);
    for (uint64_t left = all_once(w) & ~s->done & ~w->sized; left != 0; left &= left - 1) {
        const int32_t i = __builtin_ctzll(left);
        if (can_run(w, s, excluded, i) && (w->ends[i] & ~finished) == 0 && (w->srcs[i] & w->taken) == 0) {
            return i;
        }
    }
    return -1;
}

// Finds every useful move. A value that later ops may need is discarded only right after a step that reads it, because keeping it
// longer without another read has no use. False: out of memory.
static bool budget_moves_find(const struct budget_words *w, const struct budget_state *s, struct budget_moves *m) {
    const struct budget_graph *g = w->g;
    const uint64_t excluded = s->done | ended_find(w, s->done);
    const int32_t forced = forced_find(w, s, excluded);
    bool ok = true;
    m->n = 0;
    if (forced >= 0) {
        return runs_find(w, s, forced, m);
    }
    for (int32_t i = 0; ok && i < g->n; i++) {
        if (can_run(w, s, excluded, i)) {
            ok = runs_find(w, s, i, m);
        }
        if (ok && (w->spillable & BIT(i)) != 0 && ((s->live | s->out) & BIT(i)) != 0) {
            ok = spills_find(w, s, i, m);
        }
    }
    return ok;
}

// ---- search ----

struct node {
    struct budget_state state;
    struct berth_budget_step step; // the step that led to this node
    int32_t parent;                // -1: this is the start
    uint64_t cost, to_go;          // cost from the start; lower bound of the cost to the goal
};

struct waiting {
    uint64_t total, cost; // lower bound of the cost of a schedule through the node; cost from the start to the node
    int32_t node;
};

struct search {
    struct budget_words w;
    struct node *nodes;
    size_t n_nodes, nodes_cap;
    struct waiting *heap; // least total first; among equals, the largest cost
    size_t n_heap, heap_cap;
    int32_t *slots; // hash table from state to node + 1, 0: free
    size_t n_slots;
    struct budget_moves moves;
};

static void search_fini(struct search *s) {
    berth_free(s->nodes);
    berth_free(s->heap);
    berth_free(s->slots);
    berth_free(s->moves.at);
}

// ---- the heap ----

static bool is_before(const struct waiting *a, const struct waiting *b) {
    return a->total != b->total ? a->total < b->total : a->cost > b->cost;
}

static bool heap_push(struct search *s, struct waiting x) {
    if (!BERTH_GROW(&s->heap, &s->heap_cap, s->n_heap + 1)) {
        return false;
    }
    size_t i = s->n_heap++;
    for (; i > 0 && is_before(&x, &s->heap[(i - 1) / 2]); i = (i - 1) / 2) {
        s->heap[i] = s->heap[(i - 1) / 2];
    }
    s->heap[i] = x;
    return true;
}

static struct waiting heap_pop(struct search *s) {
    const struct waiting top = s->heap[0], x = s->heap[--s->n_heap];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < s->n_heap; i = child) {
        child += child + 1 < s->n_heap && is_before(&s->heap[child + 1], &s->heap[child]);
        if (!is_before(&s->heap[child], &x)) {
            break;
        }
        s->heap[i] = s->heap[child];
    }
    s->heap[i] = x;
    return top;
}

// ---- known states ----

static size_t state_hash(const struct budget_state *x) {
    uint64_t h = x->live * 0x9E3779B97F4A7C15u ^ (x->done + 0x632BE59BD9B4E019u) * 0xBF58476D1CE4E5B9u;
    h = (h ^ h >> 29 ^ x->out) * 0x94D049BB133111EBu;
    return (size_t) (h ^ h >> 32);
}

static bool is_same(const struct budget_state *a, const struct budget_state *b) {
    return a->live == b->live && a->out == b->out && a->done == b->done;
}

static int32_t *slot_find(const struct search *s, const struct budget_state *x) {
    size_t i = state_hash(x) & (s->n_slots - 1);
    while (s->slots[i] != 0 && !is_same(&s->nodes[s->slots[i] - 1].state, x)) {
        i = (i + 1) & (s->n_slots - 1);
    }
    return &s->slots[i];
}

static bool slots_grow(struct search *s) {
    const size_t n = s->n_slots == 0 ? 1024 : 2 * s->n_slots;
    int32_t *slots = berth_calloc(n, sizeof *slots);
    if (slots == NULL) {
        return false;
    }
    berth_free(s->slots);
    s->slots = slots;
    s->n_slots = n;
    for (size_t i = 0; i < s->n_nodes; i++) {
        *slot_find(s, &s->nodes[i].state) = (int32_t) i + 1;
    }
    return true;
}

// Records the path if the state is new or the path is cheaper. False: out of memory.
static bool node_reach(
    struct search *s, const struct budget_state *x, struct berth_budget_step step, int32_t parent, uint64_t cost) {
    if (2 * (s->n_nodes + 1) > s->n_slots && !slots_grow(s)) {
        return false;
    }
    int32_t *slot = slot_find(s, x);
    if (*slot == 0) {
        const uint64_t to_go = budget_to_go(&s->w, x);
        if (!BERTH_GROW(&s->nodes, &s->nodes_cap, s->n_nodes + 1)) {
            return false;
        }
        s->nodes[s->n_nodes++] = (struct node){*x, step, parent, cost, to_go};
        *slot = (int32_t) s->n_nodes;
    } else if (cost >= s->nodes[*slot - 1].cost) {
        return true;
    }
    struct node *node = &s->nodes[*slot - 1];
    node->step = step;
    node->parent = parent;
    node->cost = cost;
    return node->to_go == BUDGET_NO || heap_push(s, (struct waiting){cost + node->to_go, cost, *slot - 1});
}

static bool path_write(const struct search *s, int32_t node, struct budget_steps *out) {
    out->n = 0;
    for (; s->nodes[node].parent >= 0; node = s->nodes[node].parent) {
        if (!budget_put(out, s->nodes[node].step.op, s->nodes[node].step.kind)) {
            return false;
        }
    }
    for (size_t i = 0; i < out->n / 2; i++) {
        const struct berth_budget_step x = out->at[i];
        out->at[i] = out->at[out->n - 1 - i];
        out->at[out->n - 1 - i] = x;
    }
    return true;
}

static enum budget_answer search_run(
    struct search *s, int64_t max_nodes, int64_t *n_nodes, struct budget_steps *out, uint64_t *cost) {
    const struct budget_state first = budget_first(&s->w);
    if (!node_reach(s, &first, (struct berth_budget_step){0}, -1, 0)) {
        return BUDGET_OUT_OF_MEMORY;
    }
    while (s->n_heap > 0) {
        const struct waiting at = heap_pop(s);
        const struct node node = s->nodes[at.node];
        if (at.cost > node.cost) {
            continue; // a cheaper path was found later
        }
        *cost = at.total;
        if (budget_is_goal(&s->w, &node.state)) {
            return path_write(s, at.node, out) ? BUDGET_FOUND : BUDGET_OUT_OF_MEMORY;
        }
        if (++*n_nodes > max_nodes) {
            return BUDGET_GAVE_UP;
        }
        bool ok = budget_moves_find(&s->w, &node.state, &s->moves);
        for (size_t k = 0; ok && k < s->moves.n; k++) {
            ok = node_reach(s, &s->moves.at[k].to, s->moves.at[k].step, at.node, node.cost + s->moves.at[k].cost);
        }
        if (!ok) {
            return BUDGET_OUT_OF_MEMORY;
        }
    }
    return BUDGET_NONE;
}

// Writes that there is no schedule: from each reached state, only reached states follow, or states from which there is no path to
// the goal.
static enum budget_answer none_write(const struct search *s, const struct budget_proof *proof) {
    struct budget_state *states = berth_malloc(s->n_nodes * sizeof *states);
    size_t n = 0;
    if (states == NULL) {
        return BUDGET_OUT_OF_MEMORY;
    }
    for (size_t i = 0; i < s->n_nodes; i++) {
        if (s->nodes[i].to_go != BUDGET_NO) {
            states[n++] = s->nodes[i].state;
        }
    }
    if (n > STATES_MAX) {
        berth_free(states);
        return BUDGET_GAVE_UP; // the checkers take no proof as long as this
    }
    const enum ggml_status status = budget_proof_states(s->w.g, proof, states, n);
    berth_free(states);
    if (status == GGML_STATUS_ALLOC_FAILED) {
        return BUDGET_OUT_OF_MEMORY;
    }
    return status == GGML_STATUS_SUCCESS ? BUDGET_NONE : BUDGET_NOT_WRITTEN;
}

enum budget_answer budget_exact(const struct budget_graph *g, const struct budget_proof *proof, int64_t max_nodes,
    int64_t *n_nodes, struct budget_steps *out, uint64_t *cost) {
    struct search s = {0};
    *cost = g->cost_once;
    if (!budget_words_init(&s.w, g)) {
        return BUDGET_GAVE_UP;
    }
    enum budget_answer answer = search_run(&s, max_nodes, n_nodes, out, cost);
    if (answer == BUDGET_NONE && proof->write != NULL) {
        answer = none_write(&s, proof);
    }
    search_fini(&s);
    return answer;
}

// ---- all schedules ----

#define PACK_NODES 200 // packing one schedule counts as this number of nodes

struct listing {
    struct budget_words w;
    struct budget_steps *steps;
    const struct budget_judge *judge;
    uint64_t most, next; // cost limit of this round; least cost of a schedule above this limit
    int64_t left;        // number of nodes until the node limit
    size_t max_steps;
};

// Lists all schedules that continue from the state and cost at most l->most, by depth-first search.
static enum budget_answer list_from(struct listing *l, const struct budget_state *state, uint64_t cost) {
    const uint64_t to_go = budget_to_go(&l->w, state);
    if (to_go == BUDGET_NO || cost + to_go > l->most) {
        if (to_go != BUDGET_NO && cost + to_go < l->next) {
            l->next = cost + to_go;
        }
        return BUDGET_NONE;
    }
    if (--l->left < 0 || l->steps->n > l->max_steps) {
        return BUDGET_GAVE_UP;
    }
    if (budget_is_goal(&l->w, state)) {
        l->left -= PACK_NODES;
        return l->judge->accepts(l->steps, l->judge->user);
    }
    struct budget_moves moves = {0};
    enum budget_answer answer = budget_moves_find(&l->w, state, &moves) ? BUDGET_NONE : BUDGET_OUT_OF_MEMORY;
    for (size_t k = 0; answer == BUDGET_NONE && k < moves.n; k++) {
        answer = BUDGET_OUT_OF_MEMORY;
        if (budget_put(l->steps, moves.at[k].step.op, moves.at[k].step.kind)) {
            answer = list_from(l, &moves.at[k].to, cost + moves.at[k].cost);
        }
        l->steps->n -= answer == BUDGET_NONE;
    }
    berth_free(moves.at);
    return answer;
}

// An idle run is a run whose result no op reads. Its reads can prevent a takeover and so lower the packed peak. list_from omits
// idle runs. Returns the least cost of a useful idle run, UINT64_MAX: none.
static uint64_t idle_run_cost(const struct budget_words *w) {
    uint64_t least = UINT64_MAX;
    for (int32_t i = 0; i < w->g->n; i++) {
        if ((w->recomputable & BIT(i)) != 0 && (w->srcs[i] & w->taken) != 0) {
            least = min_u64(least, w->g->cost[i]);
        }
    }
    return least;
}

// Each round lists the schedules up to one cost limit. The next round has the least cost above that limit (iterative deepening).
enum budget_answer budget_exact_packed(const struct budget_graph *g, const struct budget_judge *judge, int64_t max_nodes,
    int64_t *n_nodes, struct budget_steps *out, uint64_t *cost) {
    struct listing l = {.steps = out, .judge = judge, .left = max_nodes, .max_steps = 8 * (size_t) g->n + 8};
    enum budget_answer answer = BUDGET_GAVE_UP;
    if (!budget_words_init(&l.w, g)) {
        return answer;
    }
    for (int32_t i = 0; i < g->n; i++) {
        l.w.taken |= l.w.takeover[i];
    }
    const uint64_t idle = idle_run_cost(&l.w);
    const uint64_t listed = idle > UINT64_MAX - *cost ? UINT64_MAX : *cost + idle; // all schedules that cost less are listed
    const struct budget_state first = budget_first(&l.w);
    for (l.most = *cost; l.most != UINT64_MAX; l.most = l.next) {
        l.next = UINT64_MAX;
        out->n = 0;
        *cost = min_u64(l.most, listed);
        answer = list_from(&l, &first, 0);
        if (answer != BUDGET_NONE) {
            break;
        }
    }
    *n_nodes += max_nodes - l.left;
    return answer;
}
