// SPDX-License-Identifier: MIT
// alloc.c: compares Berth's graph allocator with ggml's, in one process and on the same graphs. Measures the time of reserve, the
// time of alloc_graph for a rebuilt graph (a program rebuilds its graph for every token) and for a graph that already has its
// addresses, and the requested bytes. Buffers have addresses and no memory, so only the allocators are timed.
//
//     bench-alloc                      generated graphs of 100 to 100,000 nodes
//     bench-alloc FILE.ggraph[.gz]...  captured graphs in addition; BENCH_VERBOSE=1 prints a line per captured graph
//
// A ratio is Berth's shortest time divided by ggml's shortest time over many alternating runs. Each graph has a limit per ratio. A
// graph above a limit is measured up to N_REPEATS times, because other load only makes runs slower. The exit code is 1 if a size is
// larger than ggml's or a ratio is above its limit.

#include "base/base.h"
#include "capture/ggraph.h"
#include "clock.h"
#include "core/graph.h"
#include "support/oracle.h"

#include <stdlib.h>
#include <string.h>

#define N_REPEATS 4 // measurements of a graph, at most

// ---- the two sides ----

struct side {
    ggml_gallocr_t (*new_n)(ggml_backend_buffer_type_t *, int);
    void (*free)(ggml_gallocr_t);
    bool (*reserve_n)(ggml_gallocr_t, struct ggml_cgraph *, const int *, const int *);
    bool (*alloc_graph)(ggml_gallocr_t, struct ggml_cgraph *);
    size_t (*get_buffer_size)(ggml_gallocr_t, int);
    ggml_backend_buffer_t (*buffer_init)(ggml_backend_buffer_type_t, struct ggml_backend_buffer_i, void *, size_t);
};

static struct side sides[2]; // Berth, ggml
static struct side *making;  // the side whose allocator runs; no_memory creates buffers for it

static void *base_of(ggml_backend_buffer_t buffer) {
    return buffer->context;
}

static ggml_backend_buffer_t no_memory(ggml_backend_buffer_type_t buft, size_t size) {
    return making->buffer_init(buft, (struct ggml_backend_buffer_i){.get_base = base_of}, (void *) (uintptr_t) 0x10000000, size);
}

static bool load_reference(void) {
    sides[0] = (struct side){ggml_gallocr_new_n, ggml_gallocr_free, ggml_gallocr_reserve_n, ggml_gallocr_alloc_graph,
        ggml_gallocr_get_buffer_size, ggml_backend_buffer_init};
    void *lib = oracle_load("libggml-base.so");
    if (lib == NULL) {
        return false;
    }
    struct side *r = &sides[1];
    *(void **) &r->new_n = dlsym(lib, "ggml_gallocr_new_n");
    *(void **) &r->free = dlsym(lib, "ggml_gallocr_free");
    *(void **) &r->reserve_n = dlsym(lib, "ggml_gallocr_reserve_n");
    *(void **) &r->alloc_graph = dlsym(lib, "ggml_gallocr_alloc_graph");
    *(void **) &r->get_buffer_size = dlsym(lib, "ggml_gallocr_get_buffer_size");
    *(void **) &r->buffer_init = dlsym(lib, "ggml_backend_buffer_init");
    return r->new_n != NULL && r->free != NULL && r->reserve_n != NULL && r->alloc_graph != NULL && r->buffer_init != NULL;
}

// ---- a graph ----

struct job {
    const char *name;
    struct ggml_cgraph *graph;
    ggml_backend_buffer_type_t *bufts;
    int n_bufs;
    const int *node_bufs, *leaf_bufs;
    struct berth_gallocr_params options;
    struct ggml_tensor **ours; // tensors that the allocator places; job_reset clears their addresses
    size_t n_ours, ours_cap;
};

static bool job_remember(struct job *job, struct ggml_tensor *t) {
    if (t == NULL || t->data != NULL) {
        return true;
    }
    if (!berth_grow((void **) &job->ours, &job->ours_cap, job->n_ours + 1, sizeof job->ours[0])) {
        return false;
    }
    job->ours[job->n_ours++] = t;
    return true;
}

static bool job_prepare(struct job *job) {
    for (int i = 0; i < job->graph->n_nodes; i++) {
        for (int k = -1; k < GGML_MAX_SRC; k++) {
            if (!job_remember(job, k < 0 ? job->graph->nodes[i] : job->graph->nodes[i]->src[k])) {
                return false;
            }
        }
    }
    for (int i = 0; i < job->graph->n_leafs; i++) {
        if (!job_remember(job, job->graph->leafs[i])) {
            return false;
        }
    }
    return true;
}

static void job_reset(struct job *job) {
    for (size_t i = 0; i < job->n_ours; i++) {
        job->ours[i]->data = NULL;
        job->ours[i]->buffer = NULL;
    }
}

enum what { RESERVE, REBUILT, PLACED, N_WHAT };

static const struct {
    const char *name;
    double limit; // of Berth's time divided by ggml's
} whats[N_WHAT] = {{"reserve", 1.0}, {"alloc_graph, graph rebuilt", 0.5}, {"alloc_graph, has addresses", 1.0}};

struct times {
    double least[N_WHAT]; // seconds
    size_t size;          // bytes of all buffers
    bool at_bound;        // every buffer's peak equals its bound
    bool at_once;         // every plan was found by the planner's first method
};

static void keep_least(double *least, double t) {
    *least = *least == 0 || t < *least ? t : *least;
}

static bool measure_once(struct job *job, int s, struct times *t) {
    making = &sides[s];
    job_reset(job);
    ggml_gallocr_t galloc = making->new_n(job->bufts, job->n_bufs);
    if (s == 0) {
        berth_gallocr_set_params(galloc, &job->options);
    }
    double t0 = clock_s(CLOCK_MONOTONIC);
    bool ok = making->reserve_n(galloc, job->graph, job->node_bufs, job->leaf_bufs);
    keep_least(&t->least[RESERVE], clock_s(CLOCK_MONOTONIC) - t0);
    t->size = 0;
    t->at_bound = t->at_once = s == 0;
    for (int i = 0; i < job->n_bufs && ok; i++) {
        struct berth_plan_report report;
        t->size += making->get_buffer_size(galloc, i);
        if (s == 0 && berth_gallocr_report(galloc, i, &report) == GGML_STATUS_SUCCESS) {
            t->at_bound = t->at_bound && report.peak == report.bound;
            t->at_once = t->at_once && (strcmp(report.method, "outward") == 0 || report.peak == 0);
        }
    }
    for (int k = 0; k < 4 && ok; k++) {
        job_reset(job);
        t0 = clock_s(CLOCK_MONOTONIC);
        ok = making->alloc_graph(galloc, job->graph);
        if (k > 0) {
            keep_least(&t->least[REBUILT], clock_s(CLOCK_MONOTONIC) - t0);
        }
        t0 = clock_s(CLOCK_MONOTONIC);
        ok = ok && making->alloc_graph(galloc, job->graph);
        if (k > 0) {
            keep_least(&t->least[PLACED], clock_s(CLOCK_MONOTONIC) - t0);
        }
    }
    job_reset(job);
    making->free(galloc);
    return ok;
}

// ---- results ----

struct ratio {
    double value;
    char name[96];
};

// The results of the generated or of the captured graphs.
struct tally {
    struct ratio *ratios[N_WHAT + 1]; // RESERVE: graphs whose bound is reached at once; N_WHAT: reserve of the other graphs
    size_t n[N_WHAT + 1], cap[N_WHAT + 1];
    double sizes[2];
    int n_graphs, n_at_bound, n_larger;
};

static bool tally_add(struct tally *tally, int what, double value, const char *name) {
    if (!berth_grow((void **) &tally->ratios[what], &tally->cap[what], tally->n[what] + 1, sizeof tally->ratios[what][0])) {
        return false;
    }
    struct ratio *r = &tally->ratios[what][tally->n[what]++];
    r->value = value;
    snprintf(r->name, sizeof r->name, "%s", name);
    return true;
}

static bool is_missed(const struct times t[2]) {
    bool missed = false;
    for (int w = 0; w < N_WHAT; w++) {
        missed = missed || t[0].least[w] > whats[w].limit * t[1].least[w];
    }
    return missed;
}

// The sides alternate, so that other load on the machine affects both.
static bool measure(struct job *job, struct tally *tally, bool print) {
    struct times t[2] = {0};
    const int n_times = job->graph->n_nodes > 20000 ? 5 : job->graph->n_nodes > 2000 ? 15 : 50;
    bool ok = job_prepare(job);
    for (int again = 0; again < N_REPEATS && ok && (again == 0 || is_missed(t)); again++) {
        for (int k = 0; k < 2 * n_times && ok; k++) {
            ok = measure_once(job, k % 2, &t[k % 2]);
            if (!ok) {
                printf("%s: %s\n", job->name, k % 2 == 0 ? berth_last_error() : "ggml fails");
            }
        }
    }
    berth_free(job->ours);
    if (!ok) {
        return false;
    }
    double ratio[N_WHAT];
    for (int w = 0; w < N_WHAT; w++) {
        ratio[w] = t[0].least[w] / t[1].least[w];
        ok = tally_add(tally, w == RESERVE && !t[0].at_once ? N_WHAT : w, ratio[w], job->name) && ok;
    }
    if (print) {
        printf("%-28s %7d nodes  reserve %9.1f us, ratio %5.2f%s  alloc_graph %8.1f us, ratio %4.2f, placed %4.2f  size %.4f\n",
            job->name, job->graph->n_nodes, 1e6 * t[0].least[RESERVE], ratio[RESERVE], t[0].at_once ? " " : "*",
            1e6 * t[0].least[REBUILT], ratio[REBUILT], ratio[PLACED], (double) t[0].size / (double) t[1].size);
    }
    tally->n_graphs++;
    tally->n_at_bound += t[0].at_bound;
    tally->n_larger += t[0].size > t[1].size;
    tally->sizes[0] += (double) t[0].size;
    tally->sizes[1] += (double) t[1].size;
    return ok;
}

static int by_value(const void *a, const void *b) {
    const double x = ((const struct ratio *) a)->value, y = ((const struct ratio *) b)->value;
    return x < y ? -1 : x > y;
}

// Prints one line of the table. Returns the number of graphs above the limit.
static size_t print_ratios(const char *name, struct ratio *r, size_t n, double limit) {
    size_t n_within = 0;
    if (n == 0) {
        return 0;
    }
    qsort(r, n, sizeof *r, by_value);
    while (n_within < n && r[n_within].value <= limit) {
        n_within++;
    }
    printf("  %-32s %4zu %6.2f %6.2f %6.2f %6.2f   at most %.1f: %5.1f%%   worst: %s\n", name, n, r[0].value, r[n / 2].value,
        r[n * 9 / 10].value, r[n - 1].value, limit, 100.0 * (double) n_within / (double) n, r[n - 1].name);
    return n - n_within;
}

static bool conclude(const char *what, struct tally *t) {
    printf("%s: %d graphs, %d at the bound, %d larger than ggml's; sum of sizes %.4f of ggml's\n", what, t->n_graphs,
        t->n_at_bound, t->n_larger, t->sizes[0] / t->sizes[1]);
    printf("  %-32s %4s %6s %6s %6s %6s\n", "time / ggml's time", "n", "best", "median", "90%", "worst");
    size_t n_missed = 0;
    for (int w = 0; w < N_WHAT; w++) {
        n_missed += print_ratios(whats[w].name, t->ratios[w], t->n[w], whats[w].limit);
        if (w == RESERVE) { // printed only: these graphs have no limit
            print_ratios("reserve, bound not at once", t->ratios[N_WHAT], t->n[N_WHAT], whats[w].limit);
        }
    }
    for (int w = 0; w <= N_WHAT; w++) {
        berth_free(t->ratios[w]);
    }
    return t->n_larger == 0 && n_missed == 0;
}

// ---- graphs ----

// One transformer layer: attention and a gated feed-forward part, over weights that have memory.
static struct ggml_tensor *block(
    struct ggml_context *ctx, struct ggml_tensor *x, struct ggml_tensor *w, struct ggml_tensor *wide) {
    struct ggml_tensor *n = ggml_mul(ctx, ggml_rms_norm(ctx, x, 1e-5f), w);
    struct ggml_tensor *q = ggml_mul_mat(ctx, w, n), *k = ggml_mul_mat(ctx, w, n), *v = ggml_mul_mat(ctx, w, n);
    struct ggml_tensor *a = ggml_soft_max(ctx, ggml_mul_mat(ctx, k, q));
    struct ggml_tensor *o = ggml_mul_mat(ctx, ggml_cont(ctx, ggml_transpose(ctx, v)), a);
    x = ggml_add(ctx, x, o);
    struct ggml_tensor *m = ggml_rms_norm(ctx, x, 1e-5f);
    struct ggml_tensor *g = ggml_silu(ctx, ggml_mul_mat(ctx, wide, m)), *u = ggml_mul_mat(ctx, wide, m);
    struct ggml_tensor *h = ggml_mul(ctx, g, u);
    return ggml_add(ctx, x, ggml_view_2d(ctx, h, x->ne[0], x->ne[1], h->nb[1], 0));
}

static bool bench_made(struct ggml_backend_buffer_type *buft, int n_nodes, struct tally *tally) {
    const size_t size = (size_t) n_nodes + 64;
    struct ggml_init_params params = {
        .mem_size = (size + 64) * 2 * ggml_tensor_overhead() + ggml_graph_overhead_custom(size, false), .no_alloc = true};
    struct ggml_context *ctx = ggml_init(params);
    struct ggml_cgraph *graph = ggml_new_graph_custom(ctx, size, false);
    struct ggml_tensor *w = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 64, 64),
                       *wide = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 64, 256);
    struct ggml_tensor *x = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 64, 64);
    w->data = wide->data = w; // any address: the allocator must not place weights
    ggml_set_input(x);
    struct ggml_tensor *y = x;
    while (graph->n_nodes + 20 <= n_nodes) {
        y = block(ctx, y, w, wide);
        ggml_build_forward_expand(graph, y);
    }
    ggml_set_output(y);
    ggml_backend_buffer_type_t types[] = {buft};
    char name[32];
    snprintf(name, sizeof name, "generated, %d nodes", graph->n_nodes);
    struct job job = {.name = name, .graph = graph, .bufts = types, .n_bufs = 1, .options = berth_gallocr_params_default()};
    const bool ok = berth_graph_check(graph) == GGML_STATUS_SUCCESS && measure(&job, tally, true);
    ggml_free(ctx);
    return ok;
}

static bool bench_file(const char *path, struct tally *tally) {
    struct ggraph g;
    ggml_backend_buffer_type_t types[64];
    if (ggraph_read(&g, path) != GGML_STATUS_SUCCESS || g.n_bufs > 64) {
        printf("%s: %s\n", path, berth_last_error());
        return false;
    }
    ggraph_bufts(&g, types);
    for (int i = 0; i < g.n_bufs; i++) {
        types[i]->iface.alloc_buffer = no_memory;
    }
    struct job job = {.name = g.name,
        .graph = g.graph,
        .bufts = types,
        .n_bufs = g.n_bufs,
        .node_bufs = g.node_bufs,
        .leaf_bufs = g.leaf_bufs,
        .options = berth_gallocr_params_default()};
    const bool ok = measure(&job, tally, getenv("BENCH_VERBOSE") != NULL);
    ggraph_free(&g);
    return ok;
}

static size_t align_32(ggml_backend_buffer_type_t buft) {
    (void) buft;
    return 32;
}

static const char *name_of(ggml_backend_buffer_type_t buft) {
    (void) buft;
    return "bench";
}

int main(int argc, char **argv) {
    if (!load_reference()) {
        printf("skipped: %s\n", oracle_why());
        return 77;
    }
    struct ggml_backend_buffer_type buft = {.iface = {.get_name = name_of, .alloc_buffer = no_memory, .get_alignment = align_32}};
    struct tally made = {0}, files = {0};
    bool ok = true;
    for (int n = 100; n <= 100000; n *= 10) {
        ok = bench_made(&buft, n, &made) && ok;
        ok = (n == 100000 || bench_made(&buft, 3 * n, &made)) && ok;
    }
    ok = conclude("generated graphs", &made) && ok;
    for (int i = 1; i < argc; i++) {
        ok = bench_file(argv[i], &files) && ok;
    }
    if (files.n_graphs > 0) {
        ok = conclude("captured graphs", &files) && ok;
    }
    return ok ? 0 : 1;
}
