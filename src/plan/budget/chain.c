// SPDX-License-Identifier: MIT
// chain.c: solves a chain of ops and its backward pass exactly, by dynamic programming. A chain is xk = f(xk-1) for k = 1 .. l,
// then middle ops, then g = b(previous g, xk) for k = l .. 1. All values have one size.
//
// D(s, t, m) is the least cost of computing xt, xt-1, .., xs+1 for the backward pass, if xs is in memory and m more values fit:
//     D(s, t, m) = min over s < k <= t of  cost(s + 1 .. k) + D(k, t, m - 1) + D(s, k - 1, m)
// Here xk is the first x after xs that is kept: first xs+1 .. xk are computed, then the backward pass runs from t down to k + 1
// with xk in memory, then xk is freed and the backward pass runs from k - 1 down to s + 1.
//
// If all costs are equal, D depends only on the length t - s and on m. It is convex in the length. It follows that if the length
// grows by 1, the best k - s stays or grows by 1. So at most two values of k are tried per cell.

#include "base/min.h"
#include "plan/budget/budget.h"

#include <stdlib.h>

#define WORK_MAX 300000000             // limit on table cells * choices of k
#define INFINITE_COST (UINT64_MAX / 4) // there is no schedule; the sum of a few such costs does not overflow

struct chain {
    const struct budget_graph *g;
    struct berth_arrays mem;
    int32_t *x;      // [l + 1] ops; x[0]: an input, -1: none
    int32_t *back;   // [l + 1] the op of the backward pass that reads x[k]
    int32_t *middle; // [n_middle] ops between xl and the backward pass
    int32_t l, n_middle;
    int32_t first_op; // op that runs once before all others, -1: none
    int32_t n_fit;    // number of values that fit into memory in addition to x[0] and one g
    int32_t m_least;  // least m with which an op of the backward pass can run
    bool has_equal_costs;
    uint64_t *sum;  // [l + 1] sum[k]: cost of computing x[1] .. x[k]
    uint64_t *d;    // D(s, t, m), at cell_index(m, s, t)
    int32_t *split; // the best k - s for D(s, t, m), at cell_index(m, s, t)
};

// ---- recognising a chain ----

// Returns the number of sources of op i, without inputs of size 0. Writes the first two to out.
static int32_t srcs_real(const struct budget_graph *g, int32_t i, int32_t out[2]) {
    int32_t n = 0;
    for (int32_t k = g->srcs.start[i]; k < g->srcs.start[i + 1]; k++) {
        if (g->size[g->srcs.at[k]] == 0 && budget_is_input(g, g->srcs.at[k])) {
            continue;
        }
        if (n < 2) {
            out[n] = g->srcs.at[k];
        }
        n++;
    }
    return n;
}

// Lists x[0] and the longest sequence of ops that read only the previous op. *next: the op after the sequence.
static int32_t forward_find(const struct budget_graph *g, int32_t *list, int32_t *next) {
    int32_t n = 0, src[2];
    list[0] = -1;
    for (*next = 0; *next < g->n; (*next)++) {
        const int32_t i = *next;
        if (budget_is_input(g, i)) {
            continue;
        }
        const int32_t n_real = srcs_real(g, i, src);
        if (n == 0 && n_real == 1 && budget_is_input(g, src[0])) {
            list[0] = src[0];
        } else if (n_real != (n == 0 ? 0 : 1) || (n > 0 && src[0] != list[n])) {
            break;
        }
        list[++n] = i;
    }
    return n;
}

// The backward pass begins at op next, after x[1] .. x[n]. Sets c->l, c->back and c->middle.
static bool back_find(struct chain *c, int32_t n, int32_t next) {
    const struct budget_graph *g = c->g;
    int32_t before = c->x[n], k = -1, src[2];
    for (int32_t i = next; i < g->n; i++) {
        if (budget_is_input(g, i)) {
            continue;
        }
        int32_t other = -1;
        if (srcs_real(g, i, src) == 2 && (src[0] == before || src[1] == before)) {
            other = src[src[0] == before];
        }
        if (other < 0) {
            return false;
        }
        if (k < 0) { // the first x that the backward pass reads
            for (k = n; k > 0 && c->x[k] != other; k--) {
            }
            c->l = k;
        } else {
            k--;
        }
        if (k < 0 || c->x[k] != other) {
            return false;
        }
        c->back[k] = i;
        before = i;
    }
    if (k < 0 || k > 1 || c->l < 1) {
        return false;
    }
    c->n_middle = n - c->l;
    c->middle = &c->x[c->l + 1];
    return true;
}

// If the backward pass does not read x0, x1 replaces x0 as the base of the chain.
static bool base_shift(struct chain *c) {
    c->first_op = -1;
    if (c->x[0] < 0 || c->g->size[c->x[0]] == 0 || c->back[0] >= 0) {
        return true;
    }
    if (c->l < 2 || c->g->size[c->x[0]] < c->g->size[c->x[1]]) {
        return false;
    }
    c->first_op = c->x[1];
    c->x++;
    c->back++;
    c->l--;
    return true;
}

static bool sizes_fit(struct chain *c) {
    const struct budget_graph *g = c->g;
    const uint64_t size = g->size[c->x[1]], grad_size = g->size[c->back[1]], base = c->x[0] < 0 ? 0 : g->size[c->x[0]];
    const uint64_t limit = g->pools[g->pool[c->x[1]]].limit;
    int32_t n_inputs = 0;
    c->has_equal_costs = true;
    c->sum[0] = 0;
    for (int32_t k = 1; k <= c->l; k++) {
        const int32_t i = c->x[k];
        if (g->size[i] != size || g->size[c->back[k]] != grad_size || !g->can_recompute[i] || g->until[i] >= 0 ||
            g->takeover[i] != 0 || g->takeover[c->back[k]] != 0) {
            return false;
        }
        c->has_equal_costs = c->has_equal_costs && g->cost[i] == g->cost[c->x[1]];
        c->sum[k] = c->sum[k - 1] + g->cost[i];
    }
    for (int32_t i = 0; i < g->n; i++) {
        n_inputs += budget_is_input(g, i) && g->size[i] > 0;
    }
    for (int32_t k = 0; k < c->n_middle; k++) {
        if (g->size[c->middle[k]] != size || g->takeover[c->middle[k]] != 0) {
            return false;
        }
    }
    if (size == 0 || size != grad_size || n_inputs > 1 || (n_inputs == 1 && base == 0) || g->n_pools != 1 ||
        limit < base + 3 * size) {
        return false;
    }
    const uint64_t n_fit = (limit - base) / size - 1; // one value less, because one g is in memory
    c->n_fit = n_fit > (uint64_t) c->l + 2 ? c->l + 2 : (int32_t) n_fit;
    c->m_least = 2; // the value x[k], and the g that is computed
    return true;
}

// ---- the recurrence ----

static int32_t cell_index(const struct chain *c, int32_t m, int32_t s, int32_t t) {
    const int32_t n = c->l + 1;
    return c->has_equal_costs ? m * n + (t - s) : (m * n + s) * n + t;
}

static uint64_t cell_value(const struct chain *c, int32_t m, int32_t s, int32_t t) {
    if (t <= s) {
        return 0;
    }
    return m < c->m_least ? INFINITE_COST : c->d[cell_index(c, m, s, t)];
}

static uint64_t with_split(const struct chain *c, int32_t m, int32_t s, int32_t t, int32_t k) {
    return c->sum[k] - c->sum[s] + cell_value(c, m - 1, k, t) + cell_value(c, m, s, k - 1);
}

static void cell_fill(struct chain *c, int32_t m, int32_t s, int32_t t, int32_t first, int32_t last) {
    uint64_t best = INFINITE_COST;
    int32_t split = t;
    for (int32_t k = first; k <= last; k++) {
        const uint64_t cost = with_split(c, m, s, t, k);
        if (cost < best) {
            best = cost;
            split = k;
        }
    }
    c->d[cell_index(c, m, s, t)] = best;
    c->split[cell_index(c, m, s, t)] = split - s;
}

static bool table_fill(struct chain *c) {
    const size_t n = (size_t) c->l + 1, n_m = (size_t) c->n_fit + 1, cells = c->has_equal_costs ? n * n_m : n * n * n_m;
    if (!c->has_equal_costs && (double) cells * (double) n > WORK_MAX) {
        return false;
    }
    c->d = berth_arrays_new(&c->mem, cells, sizeof *c->d);
    c->split = berth_arrays_new(&c->mem, cells, sizeof *c->split);
    if (c->mem.has_failed) {
        return false;
    }
    for (int32_t m = c->m_least; m <= c->n_fit; m++) {
        for (int32_t t = 1, k = 1; c->has_equal_costs && t <= c->l; t++) {
            cell_fill(c, m, 0, t, m == c->m_least ? t : k, m == c->m_least ? t : min_i32(k + 1, t));
            k = c->split[cell_index(c, m, 0, t)];
        }
        for (int32_t length = 1; !c->has_equal_costs && length <= c->l; length++) {
            for (int32_t s = 0; s + length <= c->l; s++) {
                cell_fill(c, m, s, s + length, s + 1, s + length);
            }
        }
    }
    return true;
}

// ---- writing the steps ----

// A task of steps_write. t >= 0: write the steps for D(s, t, m). t < 0: run back[s].
struct stretch {
    int32_t s, t, m;
};

static bool runs_put(const struct chain *c, int32_t s, int32_t k, struct budget_steps *out) {
    bool ok = true;
    for (int32_t j = s + 1; ok && j <= k; j++) {
        ok = budget_put(out, c->x[j], BERTH_BUDGET_RUN);
    }
    return ok;
}

// Writes the steps, with a stack instead of recursion. A stretch with t > s runs x[s + 1] .. x[k]. Then it runs D(k, t, m - 1),
// back[k] and D(s, k - 1, m) in this order, so they are pushed in the reverse order. The first stretch with t == s is at the end
// of the forward pass and runs the middle ops.
static bool steps_write(const struct chain *c, struct budget_steps *out) {
    struct stretch *stack = berth_calloc(3 * ((size_t) c->l + 4), sizeof *stack);
    size_t n = 0;
    bool ok = stack != NULL, has_run_middle = false;
    out->n = 0;
    if (ok) {
        stack[n++] = (struct stretch){0, c->l, c->n_fit};
        ok = c->first_op < 0 || budget_put(out, c->first_op, BERTH_BUDGET_RUN);
    }
    while (ok && n > 0) {
        const struct stretch at = stack[--n];
        if (at.t < 0) {
            ok = budget_put(out, c->back[at.s], BERTH_BUDGET_RUN);
        } else if (at.t > at.s) {
            const int32_t k = at.s + c->split[cell_index(c, at.m, at.s, at.t)];
            ok = runs_put(c, at.s, k, out);
            stack[n++] = (struct stretch){at.s, k - 1, at.m};
            stack[n++] = (struct stretch){k, -1, 0};
            stack[n++] = (struct stretch){k, at.t, at.m - 1};
        } else if (!has_run_middle) {
            has_run_middle = true;
            for (int32_t k = 0; ok && k < c->n_middle; k++) {
                ok = budget_put(out, c->middle[k], BERTH_BUDGET_RUN);
            }
        }
    }
    if (ok && c->back[0] >= 0) {
        ok = budget_put(out, c->back[0], BERTH_BUDGET_RUN);
    }
    berth_free(stack);
    return ok;
}

enum budget_answer budget_chain(const struct budget_graph *g, struct budget_steps *out) {
    struct chain c = {.g = g};
    enum budget_answer answer = BUDGET_OUT_OF_MEMORY;
    int32_t next;
    c.x = berth_arrays_new(&c.mem, (size_t) g->n + 2, sizeof *c.x);
    c.back = berth_arrays_new(&c.mem, (size_t) g->n + 2, sizeof *c.back);
    c.sum = berth_arrays_new(&c.mem, (size_t) g->n + 2, sizeof *c.sum);
    if (!c.mem.has_failed) {
        c.back[0] = -1;
        const int32_t n = forward_find(g, c.x, &next);
        answer =
            n >= 2 && back_find(&c, n, next) && base_shift(&c) && sizes_fit(&c) && table_fill(&c) ? BUDGET_FOUND : BUDGET_GAVE_UP;
    }
    if (answer == BUDGET_FOUND && cell_value(&c, c.n_fit, 0, c.l) >= INFINITE_COST) {
        answer = BUDGET_GAVE_UP;
    }
    if (answer == BUDGET_FOUND && !steps_write(&c, out)) {
        answer = BUDGET_OUT_OF_MEMORY;
    }
    berth_arrays_free(&c.mem);
    return answer;
}
