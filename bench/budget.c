// SPDX-License-Identifier: MIT
// budget.c: measures the cost of memory limits on training graphs. The limits are shares of the memory that a graph takes without a
// limit. The budget solver is compared with two heuristics: square-root checkpointing, which keeps every k-th value of the forward
// pass, with the best k; and greedy by size over cost, which recomputes the values with the largest ratio, with the best number of
// values. The checker replays every schedule.
//
//     bench-budget                               a generated training graph of 10,000 ops; fails above 5 s
//     bench-budget graphs/api/train-*.ggraph.gz  captured graphs
//         -t MS     time limit of the local search, default 500
//         -n NODES  limit of the exact search, default 1,000,000

#include "alloc/budget.h"
#include "capture/ggraph.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct subject {
    const struct berth_budget_op *ops;
    int32_t n;
    int32_t turn;     // the last op of the forward pass
    int32_t *readers; // [n] number of ops that read a result
};

static int64_t max_nodes = 1000000; // of the exact search

// ---- schedules that keep all values of the forward pass except a set ----

struct plan {
    const struct subject *s;
    const bool *drop; // [n] the values that are not kept
    bool *is_back;    // [n] the value has been recomputed
    struct berth_budget_step *steps;
    size_t n, cap;
};

static bool step_put(struct plan *p, int32_t op) {
    if (p->n == p->cap) {
        p->cap = 2 * p->cap + 1024;
        p->steps = realloc(p->steps, p->cap * sizeof *p->steps);
    }
    p->steps[p->n++] = (struct berth_budget_step){op, BERTH_BUDGET_RUN};
    return p->steps != NULL;
}

static void value_recompute(struct plan *p, int32_t op) {
    p->is_back[op] = true;
    for (int32_t k = 0; k < p->s->ops[op].n_srcs; k++) {
        const int32_t src = p->s->ops[op].srcs[k];
        if (p->drop[src] && !p->is_back[src]) {
            value_recompute(p, src);
        }
    }
    step_put(p, op);
}

// The cost of the schedule, UINT64_MAX if it exceeds the memory limit.
static uint64_t drop_cost(const struct subject *s, const bool *drop, const struct berth_budget_params *params) {
    struct plan p = {.s = s, .drop = drop, .is_back = calloc((size_t) s->n + 1, 1)};
    for (int32_t i = 0; i < s->n; i++) {
        for (int32_t k = 0; i > s->turn && k < s->ops[i].n_srcs; k++) {
            const int32_t src = s->ops[i].srcs[k];
            if (drop[src] && !p.is_back[src]) {
                value_recompute(&p, src);
            }
        }
        if ((s->ops[i].flags & BERTH_BUDGET_INPUT) == 0) {
            step_put(&p, i);
        }
    }
    struct berth_budget_result *r = NULL;
    uint64_t cost = UINT64_MAX;
    if (berth_budget_check(s->ops, s->n, params, p.steps, p.n, &r) == GGML_STATUS_SUCCESS && r->fits) {
        cost = r->cost;
    }
    berth_budget_free(r);
    free(p.is_back);
    free(p.steps);
    return cost;
}

static bool may_drop(const struct subject *s, int32_t i) {
    return i <= s->turn && s->ops[i].flags == 0 && s->ops[i].size > 0 && s->readers[i] > 0;
}

// ---- the heuristics ----

static uint64_t heuristic_root(const struct subject *s, const struct berth_budget_params *params) {
    bool *drop = calloc((size_t) s->n + 1, sizeof *drop);
    uint64_t best = UINT64_MAX;
    for (int32_t length = 2; length <= s->turn + 1; length += 1 + length / 12) {
        for (int32_t i = 0; i <= s->turn; i++) {
            drop[i] = may_drop(s, i) && i % length != 0;
        }
        const uint64_t cost = drop_cost(s, drop, params);
        best = cost < best ? cost : best;
    }
    free(drop);
    return best;
}

static const struct subject *sorted_of;

static int by_ratio(const void *a, const void *b) {
    const struct berth_budget_op *x = &sorted_of->ops[*(const int32_t *) a], *y = &sorted_of->ops[*(const int32_t *) b];
    const double u = (double) x->size / (double) (x->cost + 1), v = (double) y->size / (double) (y->cost + 1);
    return u != v ? (u > v ? -1 : 1) : *(const int32_t *) a - *(const int32_t *) b;
}

static uint64_t heuristic_greedy(const struct subject *s, const struct berth_budget_params *params) {
    bool *drop = calloc((size_t) s->n + 1, sizeof *drop);
    int32_t *sorted = calloc((size_t) s->n + 1, sizeof *sorted), n = 0;
    uint64_t best = UINT64_MAX;
    for (int32_t i = 0; i <= s->turn; i++) {
        if (may_drop(s, i)) {
            sorted[n++] = i;
        }
    }
    sorted_of = s;
    qsort(sorted, (size_t) n, sizeof *sorted, by_ratio);
    for (int32_t k = 0, done = 0; k <= 100; k++) {
        for (; done < (int32_t) ((int64_t) n * k / 100); done++) {
            drop[sorted[done]] = true;
        }
        const uint64_t cost = drop_cost(s, drop, params);
        best = cost < best ? cost : best;
    }
    free(drop);
    free(sorted);
    return best;
}

// ---- a table ----

static struct {
    int n_cases, n_worse, n_compared;
    double saved;
} sum;

static void cell(uint64_t cost, uint64_t once) {
    if (cost == UINT64_MAX) {
        printf("  %8s", "-");
    } else {
        printf("  %8.4f", (double) cost / (double) once);
    }
}

static bool row(const struct subject *s, const char *what, uint64_t bytes, int64_t time_us) {
    const struct berth_budget_pool pool = {.limit = bytes};
    const struct berth_budget_params params = {
        .pools = &pool, .n_pools = 1, .time_limit_us = time_us, .seed = 1, .max_nodes = max_nodes};
    struct berth_budget_result *r = NULL;
    if (berth_budget_solve(s->ops, s->n, &params, &r) != GGML_STATUS_SUCCESS) {
        fprintf(stderr, "%s\n", berth_last_error());
        return false;
    }
    const uint64_t root = heuristic_root(s, &params), greedy = heuristic_greedy(s, &params),
                   cost = r->fits ? r->cost : UINT64_MAX;
    printf("  %-12s %14" PRIu64, what, bytes);
    cell(cost, r->cost_once);
    cell(root, r->cost_once);
    cell(greedy, r->cost_once);
    printf("   %7.0f ms  %s, %" PRId64 " recomputed%s\n", (double) r->time_us / 1000, r->method, r->n_recomputed,
        r->proven ? ", proven" : "");
    const uint64_t rival = root < greedy ? root : greedy;
    sum.n_cases++;
    sum.n_worse += cost > rival;
    if (rival != UINT64_MAX && rival > r->cost_once && cost != UINT64_MAX) {
        sum.n_compared++;
        sum.saved += 1 - (double) (cost - r->cost_once) / (double) (rival - r->cost_once);
    }
    if (r->fits && r->uses[0].peak > bytes) {
        fprintf(stderr, "the plan of a schedule takes %" PRIu64 " bytes, the limit is %" PRIu64 "\n", r->uses[0].peak, bytes);
        return false;
    }
    berth_budget_free(r);
    return true;
}

static bool table(struct subject *s, const char *name, int64_t time_us) {
    static const double shares[] = {0.9, 0.7, 0.5, 0.35};
    struct berth_budget_result *r = NULL;
    if (berth_budget_solve(s->ops, s->n, NULL, &r) != GGML_STATUS_SUCCESS) {
        fprintf(stderr, "%s: %s\n", name, berth_last_error());
        return false;
    }
    const uint64_t peak = r->uses[0].peak, least = r->uses[0].live_bound;
    bool ok = true, was_least = false;
    printf("%s: %d ops, %" PRIu64 " bytes without a limit, every schedule needs at least %" PRIu64 "\n", name, s->n, peak, least);
    printf("  %-12s %14s  %8s  %8s  %8s\n", "share", "bytes", "berth", "root", "greedy");
    for (size_t k = 0; ok && k < sizeof shares / sizeof *shares; k++) {
        const uint64_t bytes = (uint64_t) (shares[k] * (double) peak);
        char what[64];
        snprintf(what, sizeof what, "%.2f", shares[k]);
        if (bytes >= least) {
            ok = row(s, what, bytes, time_us);
        } else if (!was_least) {
            printf("  %-12s %14" PRIu64 "  cannot fit: %" PRIu64 " bytes short\n", what, bytes, least - bytes);
            was_least = true;
            ok = row(s, "least + 5%", least + least / 20, time_us);
        }
    }
    berth_budget_free(r);
    return ok;
}

static bool subject_init(struct subject *s, const struct berth_budget_op *ops, int32_t n, int32_t turn) {
    *s = (struct subject){ops, n, turn, calloc((size_t) n + 1, sizeof(int32_t))};
    for (int32_t i = 0; s->readers != NULL && i < n; i++) {
        for (int32_t k = 0; k < ops[i].n_srcs; k++) {
            s->readers[ops[i].srcs[k]]++;
        }
    }
    return s->readers != NULL;
}

// ---- captured graphs ----

static bool file_run(const char *path, int64_t time_us) {
    struct ggraph g;
    struct graph_ops o;
    ggml_backend_buffer_type_t types[16];
    if (ggraph_read(&g, path) != GGML_STATUS_SUCCESS || g.n_bufs > 16) {
        fprintf(stderr, "%s\n", berth_last_error());
        return false;
    }
    ggraph_bufts(&g, types);
    const struct graph_sizes sizes = {types[0], ggml_backend_buft_get_alignment(types[0])};
    bool ok = graph_ops_init(&o, g.graph, &sizes) == GGML_STATUS_SUCCESS;
    if (ok) {
        struct subject s;
        int32_t turn = -1;
        for (int32_t i = 0; i < o.n; i++) {
            turn = (o.tensors[i]->flags & GGML_TENSOR_FLAG_LOSS) != 0 ? i : turn;
        }
        if (turn < 0) {
            printf("%s: skipped, the graph has no loss\n", path);
        } else {
            const char *name = strrchr(path, '/');
            ok = subject_init(&s, o.ops, o.n, turn) && table(&s, name == NULL ? path : name + 1, time_us);
            free(s.readers);
        }
        graph_ops_fini(&o);
    }
    ggraph_free(&g);
    return ok;
}

// ---- a generated graph ----

#define LAYER 8

// A deep network with its backward pass. In each layer, expensive and cheap ops alternate. The backward pass reads all results.
static bool generated_run(int32_t n_layers, int64_t time_us) {
    const int32_t n_there = n_layers * LAYER, n = 2 * n_there;
    struct berth_budget_op *ops = calloc((size_t) n + 1, sizeof *ops);
    int32_t(*srcs)[3] = calloc((size_t) n + 1, sizeof *srcs);
    struct subject s;
    for (int32_t i = 0; i < n; i++) {
        const int32_t mirror = n - 1 - i, kind = (i < n_there ? i : mirror) % LAYER;
        ops[i] = (struct berth_budget_op){.srcs = srcs[i], .size = (uint64_t) (kind % 3 == 0 ? 4 : 1) << 20, .align = 64};
        ops[i].cost = kind % 2 == 0 ? 1000 : 50;
        if (i > 0) {
            srcs[i][ops[i].n_srcs++] = i - 1;
        }
        if (i < n_there && kind == LAYER - 1 && i > LAYER) {
            srcs[i][ops[i].n_srcs++] = i - LAYER;
        }
        if (i > n_there) {
            srcs[i][ops[i].n_srcs++] = mirror;
        }
    }
    bool ok = subject_init(&s, ops, n, n_there - 1);
    struct berth_budget_result *r = NULL;
    ok = ok && berth_budget_solve(ops, n, NULL, &r) == GGML_STATUS_SUCCESS;
    const uint64_t peak = ok ? r->uses[0].peak : 0;
    berth_budget_free(r);
    for (int k = 0; ok && k < 4; k++) {
        const struct berth_budget_pool pool = {.limit = peak * (uint64_t) (9 - 2 * k) / 10};
        const struct berth_budget_params params = {.pools = &pool, .n_pools = 1, .time_limit_us = time_us};
        r = NULL;
        ok = berth_budget_solve(ops, n, &params, &r) == GGML_STATUS_SUCCESS && r->fits && r->time_us <= 5000000;
        if (r != NULL) {
            printf("%d ops at %d%% of the memory: %s, cost %.4f times that of running every op once, %.2f s, %s%s\n", n,
                90 - 20 * k, r->fits ? "fits" : "does not fit", (double) r->cost / (double) r->cost_once,
                (double) r->time_us / 1e6, r->method, ok ? "" : ": FAILED");
        }
        berth_budget_free(r);
    }
    free(ops);
    free(srcs);
    free(s.readers);
    return ok;
}

int main(int argc, char **argv) {
    int64_t time_us = 500000;
    for (int c; (c = getopt(argc, argv, "t:n:")) != -1;) {
        if (c != 't' && c != 'n') {
            return 2;
        }
        time_us = c == 't' ? (int64_t) (1000 * atof(optarg)) : time_us;
        max_nodes = c == 'n' ? atoll(optarg) : max_nodes;
    }
    bool ok = true;
    if (optind == argc) {
        ok = generated_run(625, 0);
    }
    for (int i = optind; ok && i < argc; i++) {
        ok = file_run(argv[i], time_us);
    }
    if (sum.n_cases > 0) {
        printf("%d cases: worse than a heuristic in %d; saves %.1f%% of the extra cost of the better heuristic on average over "
               "%d cases\n",
            sum.n_cases, sum.n_worse, sum.n_compared == 0 ? 0 : 100 * sum.saved / sum.n_compared, sum.n_compared);
        ok = ok && sum.n_worse == 0;
    }
    return ok ? 0 : 1;
}
