// SPDX-License-Identifier: MIT
// solve.c: runs the methods, the fastest first: the given order, another order, exact search, chains, then heuristics with local
// search. The methods limit live bytes. If the packed peak exceeds a limit, the limit on live bytes is lowered.

#include "base/min.h"
#include "plan/budget/budget.h"

#include <inttypes.h>
#include <string.h>

#define MAX_NODES_DEFAULT 30000 // limit on the nodes of the exact search, if the caller gives none
#define MAX_NODES_LAST 1000000  // limit of a last exact search, if all methods failed and the caller allows time
#define PACKED_OPS_MAX 12       // largest graph of which all schedules are listed
#define N_LOWER 12              // the limits are lowered at most this often
#define VARIANTS_WORK 500000000 // limit on the counted work of all heuristic variants together, about two seconds
#define LOWERED_WORK_DIVISOR 16 // divides VARIANTS_WORK while limits are lowered
#define KICKS_MAX 4000000       // limit on the kicks (random cuts, improve.c) of the local search

struct solver {
    struct budget_graph g;
    const struct berth_budget_params *params;
    struct budget_proof proof;
    uint64_t *limits; // [n_pools] the caller's limits; the limits in g->pools may be lower
    uint64_t *peaks;  // [n_pools] peaks of the last checked schedule
    struct budget_trace t;
    struct budget_steps best;
    uint64_t best_cost;
    bool has_best;             // best is a schedule within the limits
    bool is_proven;            // best is the cheapest schedule within the limits
    bool is_proven_impossible; // it is proven that no schedule is within the limits
    bool is_conclusive;        // the last checked schedule fits, or it is proven that it does not
    bool is_hoisted;           // the ops are in the hoisted order: once ops run as early as possible (budget_hoist)
    uint64_t bound;            // no schedule within the limits costs less
    const char *method;
    int64_t n_nodes;
};

static void limits_reset(struct solver *s) {
    for (int32_t p = 0; p < s->g.n_pools; p++) {
        s->g.pools[p].limit = s->limits[p];
    }
}

// Packs a schedule. *fits: the schedule is within the caller's limits. Keeps the cheapest such schedule in s->best. Sets s->peaks
// to the packed peaks, or to the peaks of live bytes if the schedule was not packed.
static enum ggml_status steps_offer(struct solver *s, const struct budget_steps *steps, const char *method, bool *fits) {
    *fits = false;
    s->is_conclusive = true;
    if (!budget_trace(&s->g, steps, &s->t)) {
        return GGML_STATUS_ALLOC_FAILED;
    }
    BERTH_ASSERT(s->t.fault < 0);
    if (s->t.fault >= 0) {
        return berth_fail(GGML_STATUS_FAILED, "budget: %s: step %d of %zu %s", method, s->t.fault, steps->n, s->t.why);
    }
    *fits = true;
    memcpy(s->peaks, s->t.peak, (size_t) s->g.n_pools * sizeof *s->peaks);
    for (int32_t p = 0; p < s->g.n_pools; p++) {
        *fits = *fits && s->peaks[p] <= s->limits[p];
    }
    enum ggml_status status = GGML_STATUS_SUCCESS;
    if (*fits && !s->params->live_only) {
        status = budget_pack(&s->g, steps, &s->t, &(struct budget_pack){s->limits, BUDGET_PACK_US}, s->peaks, &s->is_conclusive);
    }
    for (int32_t p = 0; p < s->g.n_pools; p++) {
        *fits = *fits && s->peaks[p] <= s->limits[p];
    }
    if (status != GGML_STATUS_SUCCESS) {
        return status;
    }
    const uint64_t cost = budget_cost(&s->g, steps);
    if (*fits && (!s->has_best || cost < s->best_cost)) {
        if (!budget_copy(&s->best, steps)) {
            return GGML_STATUS_ALLOC_FAILED;
        }
        s->has_best = true;
        s->best_cost = cost;
        s->method = method;
        s->is_proven = cost <= s->bound;
    }
    return GGML_STATUS_SUCCESS;
}

static bool steps_given(const struct budget_graph *g, const int32_t *order, struct budget_steps *out) {
    bool ok = true;
    out->n = 0;
    for (int32_t k = 0; ok && k < g->n; k++) {
        const int32_t i = order == NULL ? k : order[k];
        ok = budget_is_input(g, i) || budget_put(out, i, BERTH_BUDGET_RUN);
    }
    return ok;
}

// ---- exact ----

struct offer {
    struct solver *s;
    enum ggml_status status;
    uint64_t undecided_cost; // least cost of a schedule for which the packing search ended without a plan and without a proof
};

static enum budget_answer steps_judge(const struct budget_steps *steps, void *user) {
    struct offer *p = user;
    bool fits;
    p->status = steps_offer(p->s, steps, "exact", &fits);
    if (p->status != GGML_STATUS_SUCCESS) {
        return BUDGET_OUT_OF_MEMORY;
    }
    if (!fits && !p->s->is_conclusive) {
        p->undecided_cost = min_u64(p->undecided_cost, budget_cost(&p->s->g, steps));
    }
    return fits ? BUDGET_FOUND : BUDGET_NONE;
}

static enum ggml_status exact_run(struct solver *s, int64_t most, struct budget_steps *steps) {
    uint64_t cost = s->bound;
    if (most < 0) {
        return GGML_STATUS_SUCCESS;
    }
    enum budget_answer answer = budget_exact(&s->g, &s->proof, most, &s->n_nodes, steps, &cost);
    if (answer < BUDGET_GAVE_UP) {
        return answer == BUDGET_OUT_OF_MEMORY ? GGML_STATUS_ALLOC_FAILED : GGML_STATUS_FAILED;
    }
    s->is_proven_impossible = answer == BUDGET_NONE;
    s->bound = max_u64(cost, s->bound);
    if (answer != BUDGET_FOUND) {
        return GGML_STATUS_SUCCESS;
    }
    bool fits;
    struct offer p = {s, steps_offer(s, steps, "exact", &fits), UINT64_MAX};
    if (p.status != GGML_STATUS_SUCCESS || fits || s->g.n > PACKED_OPS_MAX) {
        return p.status;
    }
    answer = budget_exact_packed(&s->g, &(struct budget_judge){steps_judge, &p}, 20 * most, &s->n_nodes, steps, &cost);
    if (answer == BUDGET_OUT_OF_MEMORY && p.status == GGML_STATUS_SUCCESS) {
        p.status = GGML_STATUS_ALLOC_FAILED;
    }
    s->bound = max_u64(min_u64(cost, p.undecided_cost), s->bound);
    s->is_proven = s->has_best && s->best_cost <= s->bound;
    return p.status;
}

// ---- chains ----

static enum ggml_status chain_run(struct solver *s, struct budget_steps *steps) {
    const enum budget_answer answer = budget_chain(&s->g, steps);
    if (answer != BUDGET_FOUND) {
        return answer == BUDGET_OUT_OF_MEMORY ? GGML_STATUS_ALLOC_FAILED : GGML_STATUS_SUCCESS;
    }
    const uint64_t cost = budget_cost(&s->g, steps);
    bool fits;
    s->bound = max_u64(cost, s->bound);
    return steps_offer(s, steps, "chain", &fits);
}

// ---- heuristics ----

// A variant is a heuristic with its parameters. In this order:
// - budget_sets;
// - budget_trim from the given order of ops, once per entry of trim_styles;
// - budget_trim from the order of the order pass, if there is one, once per entry of trim_styles;
// - budget_walk, once per entry of walk_powers.
static const struct budget_style trim_styles[] = {{0, 1}, {0.05, 0.25}, {1, 1}, {0.05, 4}, {0, 0}, {1, 0}, {0.2, 16}, {0, 64}};
static const double walk_powers[] = {1, 0.5, 2, 0};

// Runs one variant. order: the order of the order pass, or NULL.
static enum budget_answer variant_run(
    struct solver *s, int variant, const int32_t *order, int64_t end_work, struct budget_steps *steps, const char **method) {
    const int n_styles = (int) (sizeof trim_styles / sizeof *trim_styles);
    const struct budget_end end = {.work = end_work, .us = INT64_MAX};
    if (--variant < 0) {
        struct budget_steps given = {0};
        *method = "sets";
        const enum budget_answer answer =
            steps_given(&s->g, order, &given) ? budget_sets(&s->g, &given, steps) : BUDGET_OUT_OF_MEMORY;
        berth_free(given.at);
        return answer;
    }
    if (variant >= 2 * n_styles) {
        *method = "walk";
        return budget_walk(&s->g, walk_powers[variant - 2 * n_styles], &end, steps);
    }
    *method = "trim";
    if (variant >= n_styles && order == NULL) {
        return BUDGET_GAVE_UP;
    }
    if (!steps_given(&s->g, variant >= n_styles ? order : NULL, steps)) {
        return BUDGET_OUT_OF_MEMORY;
    }
    return budget_trim(&s->g, &trim_styles[variant % n_styles], &end, steps);
}

#define N_VARIANTS (1 + 2 * (int) (sizeof trim_styles / sizeof *trim_styles) + (int) (sizeof walk_powers / sizeof *walk_powers))

// Runs the variants until the counted work reaches `end`, and copies the cheapest schedule to out. As long as no schedule is
// found, a variant may use all of the work. Afterwards, variant v may continue until the counted work reaches the fraction (v +
// 4) / (N_VARIANTS + 4) of the total; if it has passed this fraction already, v is skipped, except for the last four variants.
static enum budget_answer variants_run(
    struct solver *s, const int32_t *order, int64_t end, struct budget_steps *out, const char **method) {
    struct budget_steps steps = {0};
    uint64_t best = UINT64_MAX;
    enum budget_answer found = BUDGET_GAVE_UP;
    const int64_t begin = *s->g.work;
    for (int variant = 0; variant < N_VARIANTS && found != BUDGET_OUT_OF_MEMORY; variant++) {
        const char *name;
        const int64_t now = *s->g.work, share = begin + (end - begin) * (variant + 4) / (N_VARIANTS + 4);
        if ((variant > 0 && now > end) || (now > share && found == BUDGET_FOUND && variant < N_VARIANTS - 4)) {
            continue;
        }
        enum budget_answer answer = variant_run(s, variant, order, found == BUDGET_FOUND ? share : end, &steps, &name);
        if (answer == BUDGET_FOUND) {
            answer = budget_improve(&s->g, s->params->seed, 0, 0, &steps);
        }
        if (answer == BUDGET_FOUND && budget_cost(&s->g, &steps) < best) {
            best = budget_cost(&s->g, &steps);
            found = budget_copy(out, &steps) ? BUDGET_FOUND : BUDGET_OUT_OF_MEMORY;
            *method = name;
        }
        if (answer == BUDGET_OUT_OF_MEMORY) {
            found = answer;
        }
    }
    berth_free(steps.at);
    return found;
}

// Lowers the limits of pools with a too high packed peak, by about half of the excess. False: no limit can be lowered.
static bool limits_lower(struct solver *s) {
    bool may = false;
    for (int32_t p = 0; p < s->g.n_pools; p++) {
        uint64_t *limit = &s->g.pools[p].limit;
        if (s->peaks[p] <= s->limits[p]) {
            continue;
        }
        const uint64_t over = s->peaks[p] - s->limits[p], least = *limit / 512 + 1, step = max_u64(over / 2 + 1, least);
        may = may || (*limit > step && *limit - step >= s->g.least[p]);
        *limit = *limit > step ? *limit - step : 0;
    }
    return may;
}

static enum ggml_status heuristics_run(struct solver *s, const int32_t *order, struct budget_steps *steps) {
    enum ggml_status status = GGML_STATUS_SUCCESS;
    bool fits = false;
    for (int round = 0; round < N_LOWER && !fits; round++) {
        const char *method;
        const int64_t end = *s->g.work + (round == 0 ? VARIANTS_WORK : VARIANTS_WORK / LOWERED_WORK_DIVISOR);
        enum budget_answer answer = variants_run(s, order, end, steps, &method);
        if (answer == BUDGET_OUT_OF_MEMORY) {
            return GGML_STATUS_ALLOC_FAILED;
        }
        if (answer != BUDGET_FOUND) {
            break;
        }
        status = steps_offer(s, steps, method, &fits);
        if (status != GGML_STATUS_SUCCESS) {
            break;
        }
        if (s->params->time_limit_us > 0) {
            bool is_better = false;
            answer = budget_improve(&s->g, s->params->seed + (uint64_t) round,
                ggml_time_us() + s->params->time_limit_us / (fits ? 1 : 4), KICKS_MAX, steps);
            status =
                answer == BUDGET_OUT_OF_MEMORY ? GGML_STATUS_ALLOC_FAILED : steps_offer(s, steps, "local search", &is_better);
            fits = fits || is_better;
        }
        if (status != GGML_STATUS_SUCCESS || (!fits && !limits_lower(s))) {
            break;
        }
    }
    limits_reset(s);
    return status;
}

// ---- all methods ----

// Returns a pool in which every schedule exceeds the limit, -1: none is known.
static int32_t impossible_find(const struct solver *s) {
    for (int32_t p = 0; p < s->g.n_pools; p++) {
        if (s->g.least[p] > s->limits[p]) {
            return p;
        }
    }
    return -1;
}

static enum ggml_status hoisted_run(struct solver *s, const int32_t *order);

static enum ggml_status methods_run(struct solver *s, int32_t *order, struct budget_steps *steps) {
    bool fits, is_new = false;
    if (!steps_given(&s->g, NULL, steps) || !budget_copy(&s->best, steps)) {
        return GGML_STATUS_ALLOC_FAILED;
    }
    const int32_t impossible = impossible_find(s);
    if (impossible >= 0) {
        s->is_proven_impossible = true;
        return budget_proof_least(&s->g, &s->proof, impossible);
    }
    enum ggml_status status = steps_offer(s, steps, s->is_hoisted ? "hoisted" : "as given", &fits);
    if (status != GGML_STATUS_SUCCESS || s->has_best) {
        return status;
    }
    if (!s->is_hoisted && !budget_hoist(&s->g, order, &is_new)) {
        return GGML_STATUS_ALLOC_FAILED;
    }
    if (is_new) {
        return hoisted_run(s, order);
    }
    status = budget_reorder(&s->g, order, &is_new);
    if (is_new) { // is_new implies success
        status = steps_given(&s->g, order, steps) ? steps_offer(s, steps, "order", &fits) : GGML_STATUS_ALLOC_FAILED;
    }
    if (status != GGML_STATUS_SUCCESS || s->is_proven) {
        return status;
    }
    const int64_t asked = s->params->max_nodes;
    status = exact_run(s, asked == 0 ? MAX_NODES_DEFAULT : asked, steps);
    if (status != GGML_STATUS_SUCCESS || s->is_proven || s->is_proven_impossible) {
        return status;
    }
    status = chain_run(s, steps);
    if (status != GGML_STATUS_SUCCESS || s->is_proven || s->is_proven_impossible) {
        return status;
    }
    status = heuristics_run(s, is_new ? order : NULL, steps);
    if (status != GGML_STATUS_SUCCESS || s->has_best || s->is_proven_impossible || asked != 0 || s->params->time_limit_us <= 0) {
        return status;
    }
    return exact_run(s, MAX_NODES_LAST, steps);
}

// Reports the op at which the tightest pool is fullest, and the values alive there.
static enum ggml_status tight_report(const struct solver *s, struct berth_budget_result *r) {
    bool *scratch = berth_calloc(3 * (size_t) s->g.n + 1, sizeof *scratch);
    int32_t pool = -1;
    double worst = -1;
    for (int32_t p = 0; p < s->g.n_pools; p++) {
        const double full = s->limits[p] == 0 ? (double) s->g.least[p] : (double) s->g.least[p] / (double) s->limits[p];
        if (s->g.tight[p] >= 0 && full > worst) {
            worst = full;
            pool = p;
        }
    }
    if (scratch == NULL) {
        return berth_fail(GGML_STATUS_ALLOC_FAILED, "budget: out of memory for the list of %d values", s->g.n);
    }
    if (pool >= 0) {
        uint64_t bytes;
        r->tight_op = s->g.tight[pool];
        r->n_alive = budget_alive(&s->g, r->tight_op, pool, r->alive, scratch, &bytes);
        for (int64_t i = 1; i < r->n_alive; i++) { // sorts by falling size
            const int32_t x = r->alive[i];
            int64_t k = i;
            for (; k > 0 && s->g.size[r->alive[k - 1]] < s->g.size[x]; k--) {
                r->alive[k] = r->alive[k - 1];
            }
            r->alive[k] = x;
        }
    }
    berth_free(scratch);
    return GGML_STATUS_SUCCESS;
}

static enum ggml_status solver_init(
    struct solver *s, const struct berth_budget_op *ops, int64_t n_ops, const struct berth_budget_params *params) {
    *s = (struct solver){.params = params, .proof = {.write = params->proof, .user = params->proof_data}};
    const enum ggml_status status = budget_graph_init(&s->g, ops, n_ops, params);
    if (status != GGML_STATUS_SUCCESS) {
        return status;
    }
    s->limits = berth_arrays_new(&s->g.mem, (size_t) s->g.n_pools, sizeof *s->limits);
    s->peaks = berth_arrays_new(&s->g.mem, (size_t) s->g.n_pools, sizeof *s->peaks);
    s->bound = s->g.cost_once;
    if (s->g.mem.has_failed) {
        return GGML_STATUS_ALLOC_FAILED;
    }
    for (int32_t p = 0; p < s->g.n_pools; p++) {
        s->limits[p] = s->g.pools[p].limit;
    }
    return GGML_STATUS_SUCCESS;
}

static void solver_fini(struct solver *s) {
    budget_trace_fini(&s->t);
    berth_free(s->best.at);
    budget_graph_fini(&s->g);
}

static enum ggml_status solver_run(struct solver *s) {
    struct budget_steps steps = {0};
    int32_t *order = berth_calloc((size_t) s->g.n + 1, sizeof *order);
    enum ggml_status status = order == NULL ? GGML_STATUS_ALLOC_FAILED : methods_run(s, order, &steps);
    berth_free(steps.at);
    berth_free(order);
    return status;
}

// ---- running the methods on the hoisted order ----

// Writes the ops in the given order: ops[k] is a copy of op order[k], with all op numbers translated. place: [n] scratch.
static void ops_renumber(
    const struct budget_graph *g, const int32_t *order, struct berth_budget_op *ops, int32_t *srcs, int32_t *place) {
    for (int32_t k = 0; k < g->n; k++) {
        place[order[k]] = k;
    }
    for (int32_t k = 0; k < g->n; k++) {
        const struct berth_budget_op *from = &g->ops[order[k]];
        ops[k] = *from;
        ops[k].srcs = srcs;
        ops[k].until = from->until > 0 ? place[from->until] : 0;
        for (int32_t j = 0; j < from->n_srcs; j++) {
            *srcs++ = place[from->srcs[j]];
        }
    }
}

// Runs all methods on the ops in the hoisted order. Stores the results in s, with the original op numbers.
static enum ggml_status hoisted_run(struct solver *s, const int32_t *order) {
    size_t n_srcs = 0;
    for (int32_t i = 0; i < s->g.n; i++) {
        n_srcs += (size_t) s->g.ops[i].n_srcs;
    }
    struct solver h = {0};
    struct berth_arrays mem = {0};
    struct berth_budget_op *ops = berth_arrays_new(&mem, (size_t) s->g.n, sizeof *ops);
    int32_t *srcs = berth_arrays_new(&mem, n_srcs, sizeof *srcs);
    int32_t *place = berth_arrays_new(&mem, (size_t) s->g.n, sizeof *place);
    enum ggml_status status = GGML_STATUS_ALLOC_FAILED;
    if (!mem.has_failed) {
        ops_renumber(&s->g, order, ops, srcs, place);
        status = solver_init(&h, ops, (size_t) s->g.n, s->params);
        h.is_hoisted = true;
        h.proof.order = order;
    }
    if (status == GGML_STATUS_SUCCESS) {
        status = solver_run(&h);
    }
    if (status == GGML_STATUS_SUCCESS) {
        status = budget_copy(&s->best, &h.best) ? GGML_STATUS_SUCCESS : GGML_STATUS_ALLOC_FAILED;
    }
    if (status == GGML_STATUS_SUCCESS) {
        for (size_t k = 0; k < s->best.n; k++) {
            s->best.at[k].op = order[s->best.at[k].op];
        }
        s->best_cost = h.best_cost;
        s->has_best = h.has_best;
        s->is_proven = h.is_proven;
        s->is_proven_impossible = h.is_proven_impossible;
        s->bound = h.bound;
        s->method = h.method;
        s->n_nodes = h.n_nodes;
    }
    solver_fini(&h);
    berth_arrays_free(&mem);
    return status;
}

static enum ggml_status result_make(struct solver *s, struct berth_budget_result **result) {
    enum ggml_status status = budget_result(&s->g, s->params, &s->best, BUDGET_PACK_US, result);
    if (status == GGML_STATUS_SUCCESS) {
        struct berth_budget_result *r = *result;
        r->proven = r->fits ? s->is_proven : s->is_proven_impossible;
        r->cost_bound = s->bound;
        r->method = s->has_best ? s->method : "none fits";
        r->n_nodes = s->n_nodes;
        status = tight_report(s, r);
    }
    if (status != GGML_STATUS_SUCCESS) {
        berth_budget_free(*result);
        *result = NULL;
    }
    return status;
}

enum ggml_status berth_budget_solve(const struct berth_budget_op *ops, int64_t n_ops, const struct berth_budget_params *params,
    struct berth_budget_result **result) {
    static const struct berth_budget_params no_params;
    const int64_t begin_us = ggml_time_us();
    struct solver s;
    if (result == NULL) {
        return berth_fail(GGML_STATUS_FAILED, "budget: result is NULL");
    }
    *result = NULL;
    enum ggml_status status = solver_init(&s, ops, n_ops, params == NULL ? &no_params : params);
    if (status == GGML_STATUS_SUCCESS) {
        status = solver_run(&s);
    }
    if (status == GGML_STATUS_SUCCESS) {
        status = result_make(&s, result);
    }
    if (status == GGML_STATUS_ALLOC_FAILED) {
        berth_fail(status, "budget: out of memory for %" PRId64 " ops", n_ops);
    }
    if (status == GGML_STATUS_SUCCESS) {
        (*result)->time_us = ggml_time_us() - begin_us;
    }
    solver_fini(&s);
    return status;
}
