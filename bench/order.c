// SPDX-License-Identifier: MIT
// order.c: measures the quality and the speed of the order pass.
//
//     bench-order                       compares the peaks of random graphs (cells) with the proven optimum, 100 graphs per kind;
//                                       fails above 1.01 times the optimum or above 1 ms
//     bench-order graphs/*/*.ggraph.gz  compares the peaks of captured graphs in the given and in the new order, by live bytes and
//                                       by plan, and prints the mean gain per folder
//         -v     prints a line per graph
//         -t US  time limit of the solver in microseconds
//         -b N   width of the beam

#include "clock.h"
#include "order_ops.h"

#include <getopt.h>

// ---- random cells ----

#define MAX_OPS 96
#define MAX_SRCS 96

struct cell {
    struct berth_order_op ops[MAX_OPS];
    int32_t srcs[MAX_OPS][MAX_SRCS];
    int32_t n;
};

static uint64_t rng;

static uint32_t roll(uint32_t n) {
    rng ^= rng << 13;
    rng ^= rng >> 7;
    rng ^= rng << 17;
    return (uint32_t) ((rng >> 32) * n >> 32);
}

static int32_t op_add(struct cell *c, uint64_t size) {
    c->ops[c->n] = (struct berth_order_op){.srcs = c->srcs[c->n], .view_of = -1, .size = size};
    return c->n++;
}

static void src_add(struct cell *c, int32_t op, int32_t src) {
    for (int32_t k = 0; k < c->ops[op].n_srcs; k++) {
        if (c->srcs[op][k] == src) {
            return;
        }
    }
    c->srcs[op][c->ops[op].n_srcs++] = src;
}

static bool is_even; // true: all values have one size; false: 1 to 16 pages

static uint64_t some_size(void) {
    return is_even ? 65536 : (uint64_t) (1 + roll(16)) * 4096;
}

// Adds the output: an op that reads all values that no other op reads.
static void cell_close(struct cell *c) {
    bool is_read[MAX_OPS] = {0};
    for (int32_t i = 0; i < c->n; i++) {
        for (int32_t k = 0; k < c->ops[i].n_srcs; k++) {
            is_read[c->srcs[i][k]] = true;
        }
    }
    const int32_t n = c->n, out = op_add(c, 16 * 4096);
    c->ops[out].flags = BERTH_ORDER_OUTPUT;
    for (int32_t i = 0; i < n; i++) {
        if (!is_read[i]) {
            src_add(c, out, i);
        }
    }
}

// A Watts-Strogatz graph: a ring of n ops with edges to the two neighbours on either side, three of four edges rewired at random.
// An edge leads from the op with the lower number to the op with the higher number.
static void cell_watts_strogatz(struct cell *c, int32_t n) {
    c->n = 0;
    const int32_t in = op_add(c, some_size());
    c->ops[in].flags = BERTH_ORDER_INPUT;
    for (int32_t i = 0; i < n - 1; i++) {
        op_add(c, some_size());
    }
    const int32_t ring = n - 1;
    for (int32_t i = 0; i < ring; i++) {
        for (int32_t k = 1; k <= 2; k++) {
            int32_t j = (i + k) % ring;
            if (roll(4) < 3) {
                j = (int32_t) roll((uint32_t) ring);
            }
            if (i != j) {
                src_add(c, 1 + (i > j ? i : j), 1 + (i < j ? i : j));
            }
        }
    }
    for (int32_t i = 1; i <= ring; i++) {
        if (c->ops[i].n_srcs == 0) {
            src_add(c, i, in);
        }
    }
    cell_close(c);
}

// Branches that start from random earlier values, some of which join; about 56 ops in breadth-first order.
static void cell_branched(struct cell *c) {
    c->n = 0;
    const int32_t in = op_add(c, some_size());
    c->ops[in].flags = BERTH_ORDER_INPUT;
    int32_t tips[8];
    const int32_t n_tips = 4 + (int32_t) roll(4);
    for (int32_t i = 0; i < n_tips; i++) {
        tips[i] = in;
    }
    while (c->n < 55) {
        for (int32_t i = 0; i < n_tips && c->n < 55; i++) {
            const int32_t op = op_add(c, some_size());
            src_add(c, op, tips[i]);
            if (roll(4) == 0) {
                src_add(c, op, tips[roll((uint32_t) n_tips)]);
            }
            if (roll(8) == 0) {
                tips[roll((uint32_t) n_tips)] = op;
            }
            tips[i] = op;
        }
    }
    cell_close(c);
}

static bool bench_cells(const char *name, int kind, int64_t nodes, int32_t beam) {
    struct cell c;
    int32_t order[MAX_OPS];
    const int n = 100;
    double given = 0, ours = 0, worst = 0, ms = 0, worst_ms = 0;
    int n_proven = 0, n_exact = 0;
    rng = 88172645463325252u + (uint64_t) kind;
    for (int i = 0; i < n; i++) {
        if (kind == 0) {
            cell_branched(&c);
        } else {
            cell_watts_strogatz(&c, kind);
        }
        const struct berth_order_params params = {.max_nodes = nodes, .beam_width = beam}, all = {.max_nodes = 40000000};
        struct berth_order_report r, best;
        const double start = 1e3 * clock_s(CLOCK_PROCESS_CPUTIME_ID);
        if (berth_plan_order(c.ops, c.n, &params, order, &r) != GGML_STATUS_SUCCESS) {
            return false;
        }
        const double took = 1e3 * clock_s(CLOCK_PROCESS_CPUTIME_ID) - start;
        best = r;
        if (!r.proven && berth_plan_order(c.ops, c.n, &all, order, &best) != GGML_STATUS_SUCCESS) {
            return false;
        }
        const double opt = (double) best.live, ratio = (double) r.live / opt;
        given += (double) r.live_given / opt;
        ours += ratio;
        worst = ratio > worst ? ratio : worst;
        ms += took;
        worst_ms = took > worst_ms ? took : worst_ms;
        n_proven += best.proven;
        n_exact += r.proven;
    }
    printf(
        "%-22s %7.3f %8.4f %8.4f %8.3f %8.3f %6d %8d\n", name, given / n, ours / n, worst, ms / n, worst_ms, n_exact, n_proven);
    return ours / n <= 1.01 && ms / n <= 1.0 && n_proven == n;
}

// ---- captured graphs ----

struct gains {
    char group[32];
    int n, n_lower, n_solved_lower, n_higher, n_proven;
    double live, solved, best, ms, worst_ms;
};

// Whether ops that access memory into which some op writes keep their order, and ops with outside effects theirs. Checks all pairs,
// without the data structures of the order pass.
static bool effects_are_kept(const struct order_ops *g, const int32_t *order) {
    int32_t *slot = malloc(((size_t) g->n_ops + 1) * sizeof *slot), *root = malloc(((size_t) g->n_ops + 1) * sizeof *root);
    bool ok = slot != NULL && root != NULL;
    int32_t last = -1;
    for (int32_t i = 0; ok && i < g->n_ops; i++) {
        slot[order[i]] = i;
        for (root[i] = i; g->ops[root[i]].view_of >= 0;) {
            root[i] = g->ops[root[i]].view_of;
        }
    }
    for (int32_t w = 0; ok && w < g->n_ops; w++) {
        const bool writes = (g->ops[w].flags & BERTH_ORDER_WRITES) != 0;
        if ((g->ops[w].flags & BERTH_ORDER_EFFECT) != 0 || (writes && g->ops[root[w]].size == 0)) {
            ok = ok && slot[w] > last;
            last = slot[w];
        }
        for (int32_t i = 0; writes && i < g->n_nodes; i++) {
            // a view does not access memory; the ops that read it do
            bool uses = root[i] == root[w] && (g->ops[i].flags & BERTH_ORDER_WRITES) != 0;
            for (int32_t k = 0; k < g->ops[i].n_srcs; k++) {
                uses |= root[g->srcs[i][k]] == root[w] && (g->ops[i].view_of < 0 || (g->ops[i].flags & BERTH_ORDER_WRITES) != 0);
            }
            ok = ok && (!uses || i == w || (i < w) == (slot[i] < slot[w]));
        }
    }
    free(slot);
    free(root);
    return ok;
}

static int bench_files(char **paths, int n_paths, bool verbose, int64_t time_limit_us, int32_t beam) {
    struct gains groups[16] = {0};
    int n_groups = 0, n_bad = 0, n_split = 0, n_effects = 0, n_broken = 0;
    for (int i = 0; i < n_paths; i++) {
        struct order_ops g;
        if (!order_ops_read(paths[i], &g)) {
            fprintf(stderr, "%s: cannot be read as a captured graph\n", paths[i]);
            n_bad++;
            continue;
        }
        if (g.is_split) {
            n_split++;
            order_ops_free(&g);
            continue;
        }
        const struct berth_plan_params plan = {.time_limit_us = time_limit_us};
        const struct berth_order_params params = {.beam_width = beam}, decide = {.beam_width = beam, .plan = &plan};
        struct berth_order_report live, r;
        int32_t *order = malloc(((size_t) g.n_ops + 1) * sizeof *order);
        const double start = 1e3 * clock_s(CLOCK_PROCESS_CPUTIME_ID);
        bool ok = order != NULL && berth_plan_order(g.ops, g.n_ops, &params, order, &live) == GGML_STATUS_SUCCESS;
        const double took = 1e3 * clock_s(CLOCK_PROCESS_CPUTIME_ID) - start;
        ok = ok && berth_plan_order(g.ops, g.n_ops, &decide, order, &r) == GGML_STATUS_SUCCESS;
        const bool kept = ok && effects_are_kept(&g, order);
        n_effects += kept && ok && r.changed;
        n_broken += ok && !kept;
        free(order);
        const char *slash = strrchr(paths[i], '/'), *name = slash == NULL ? paths[i] : slash + 1, *from = slash;
        while (from != NULL && from > paths[i] && from[-1] != '/') {
            from--;
        }
        if (!ok) {
            fprintf(stderr, "%s: %s\n", paths[i], berth_last_error());
            n_bad++;
            order_ops_free(&g);
            continue;
        }
        char group[32];
        snprintf(group, sizeof group, "%.*s", from == NULL ? 1 : (int) (slash - from), from == NULL ? "." : from);
        int k = 0;
        while (k < n_groups && strcmp(groups[k].group, group) != 0) {
            k++;
        }
        if (k == 16) {
            k = 15;
        } else if (k == n_groups) {
            memcpy(groups[n_groups++].group, group, sizeof group);
        }
        const double gain = 1 - (double) r.peak / (double) (r.peak_given == 0 ? 1 : r.peak_given);
        groups[k].n++;
        groups[k].n_lower += live.live < live.live_given;
        groups[k].n_solved_lower += r.peak < r.peak_given;
        groups[k].n_higher += r.peak > r.peak_given;
        groups[k].n_proven += live.proven;
        groups[k].live += live.live_given == 0 ? 0 : 1 - (double) live.live / (double) live.live_given;
        groups[k].solved += r.peak_given == 0 ? 0 : gain;
        groups[k].best = gain > groups[k].best ? gain : groups[k].best;
        groups[k].ms += took;
        groups[k].worst_ms = took > groups[k].worst_ms ? took : groups[k].worst_ms;
        if (verbose) {
            printf("%s/%s: %d ops, live %llu -> %llu (bound %llu%s), solved %llu -> %llu, %lld parts, %lld exact, %.2f ms\n",
                group, name, g.n_nodes, (unsigned long long) live.live_given, (unsigned long long) live.live,
                (unsigned long long) live.live_bound, live.proven ? ", proven" : "", (unsigned long long) r.peak_given,
                (unsigned long long) r.peak, (long long) live.n_parts, (long long) live.n_exact, took);
        }
        order_ops_free(&g);
    }
    printf("%-10s %6s %10s %12s %7s %10s %12s %9s %7s %8s\n", "group", "graphs", "live lower", "solved lower", "higher",
        "live gain", "solved gain", "best gain", "proven", "ms mean");
    for (int k = 0; k < n_groups; k++) {
        const struct gains *x = &groups[k];
        printf("%-10s %6d %10d %12d %7d %9.2f%% %11.2f%% %8.2f%% %7d %8.2f (max %.1f)\n", x->group, x->n, x->n_lower,
            x->n_solved_lower, x->n_higher, 100 * x->live / x->n, 100 * x->solved / x->n, 100 * x->best, x->n_proven,
            x->ms / x->n, x->worst_ms);
        n_bad += x->n_higher;
    }
    printf("%s: ops with effects keep their order in the %d graphs whose order changed\n", n_broken == 0 ? "ok" : "FAILED",
        n_effects);
    n_bad += n_broken;
    if (n_split > 0) {
        printf("%d graphs left out: a scheduler has split them over buffers, which fixes their order\n", n_split);
    }
    return n_bad == 0 ? 0 : 1;
}

int main(int argc, char **argv) {
    bool verbose = false;
    int64_t time_limit_us = 0, nodes = 0;
    int32_t beam = 0;
    for (int c; (c = getopt(argc, argv, "vt:b:n:")) != -1;) {
        switch (c) {
            case 'v': verbose = true; break;
            case 't': time_limit_us = atoll(optarg); break;
            case 'b': beam = atoi(optarg); break;
            case 'n': nodes = atoll(optarg); break;
            default: return 2;
        }
    }
    if (optind < argc) {
        return bench_files(argv + optind, argc - optind, verbose, time_limit_us, beam);
    }
    printf("peak of live bytes / proven optimum\n%-22s %7s %8s %8s %8s %8s %6s %8s\n", "100 graphs each", "given", "ordered",
        "worst", "ms mean", "ms max", "proven", "optima");
    bool ok = true;
    for (int even = 1; even >= 0; even--) {
        is_even = even;
        printf("%s\n", even ? "values of one size" : "values of 1 to 16 pages");
        ok = bench_cells("  Watts-Strogatz 32", 32, nodes, beam) && ok;
        ok = bench_cells("  Watts-Strogatz 48", 48, nodes, beam) && ok;
        ok = bench_cells("  branched 56", 0, nodes, beam) && ok;
    }
    return ok ? 0 : 1;
}
