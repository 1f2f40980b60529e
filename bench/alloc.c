// SPDX-License-Identifier: MIT
// alloc.c: Berth's graph allocator against ggml's, in one process and on the same graphs: time of a reserve, time of alloc_graph
// for a graph that is built again (what a program does for every token) and for one that is placed already, and the bytes asked
// for. Buffers have addresses and no memory, so that only the allocators are timed.
//
//     bench-alloc                      graphs of 100 to 100,000 nodes
//     bench-alloc FILE.ggraph[.gz]...  captured graphs as well
//
// Ratios are Berth's time over ggml's. Exit code 1 if a size is larger than ggml's or a bar is missed.

#include "base/base.h"
#include "cli/ggraph.h"
#include "core/graph.h"
#include "support/oracle.h"

#include <time.h>

#define BAR_RESERVE 1.0 // where the fast path meets the bound
#define BAR_ALLOC 0.5

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
static struct side *making;  // who asks for buffers right now

static void *base_of(ggml_backend_buffer_t buffer) {
    return buffer->context;
}

static ggml_backend_buffer_t no_memory(ggml_backend_buffer_type_t buft, size_t size) {
    return making->buffer_init(buft, (struct ggml_backend_buffer_i){.get_base = base_of}, (void *) (uintptr_t) 0x10000000, size);
}

static bool load_reference(void) {
    sides[0]  = (struct side){ggml_gallocr_new_n, ggml_gallocr_free, ggml_gallocr_reserve_n, ggml_gallocr_alloc_graph,
         ggml_gallocr_get_buffer_size, ggml_backend_buffer_init};
    void *lib = oracle_load("libggml-base.so");
    if (lib == NULL) {
        return false;
    }
    struct side *r                 = &sides[1];
    *(void **) &r->new_n           = dlsym(lib, "ggml_gallocr_new_n");
    *(void **) &r->free            = dlsym(lib, "ggml_gallocr_free");
    *(void **) &r->reserve_n       = dlsym(lib, "ggml_gallocr_reserve_n");
    *(void **) &r->alloc_graph     = dlsym(lib, "ggml_gallocr_alloc_graph");
    *(void **) &r->get_buffer_size = dlsym(lib, "ggml_gallocr_get_buffer_size");
    *(void **) &r->buffer_init     = dlsym(lib, "ggml_backend_buffer_init");
    return r->new_n != NULL && r->free != NULL && r->reserve_n != NULL && r->alloc_graph != NULL && r->buffer_init != NULL;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double) t.tv_sec + 1e-9 * (double) t.tv_nsec;
}

// ---- graphs ----

struct job {
    const char *name;
    struct ggml_cgraph *graph;
    ggml_backend_buffer_type_t *bufts;
    int n_bufs;
    const int *node_bufs, *leaf_bufs;
    struct berth_gallocr_options options;
    struct ggml_tensor **ours; // tensors without memory of their own, to be reset
    size_t n_ours, ours_cap;
};

static bool job_remember(struct job *job, struct ggml_tensor *t) {
    if (t->data != NULL) {
        return true;
    }
    if (!berth_grow((void **) &job->ours, &job->ours_cap, job->n_ours + 1, sizeof job->ours[0])) {
        return false;
    }
    job->ours[job->n_ours++] = t;
    return true;
}

static bool job_prepare(struct job *job) {
    bool ok = true;
    for (int i = 0; i < job->graph->n_nodes; i++) {
        ok = ok && job_remember(job, job->graph->nodes[i]);
        for (int k = 0; k < GGML_MAX_SRC; k++) {
            struct ggml_tensor *s = job->graph->nodes[i]->src[k];
            ok                    = ok && (s == NULL || job_remember(job, s));
        }
    }
    for (int i = 0; i < job->graph->n_leafs; i++) {
        ok = ok && job_remember(job, job->graph->leafs[i]);
    }
    return ok;
}

static void job_reset(struct job *job) {
    for (size_t i = 0; i < job->n_ours; i++) {
        job->ours[i]->data   = NULL;
        job->ours[i]->buffer = NULL;
    }
}

struct times {
    double reserve, rebuilt, placed;
    size_t size;
    bool at_bound;
};

static void keep_least(double *least, double t) {
    *least = *least == 0 || t < *least ? t : *least;
}

static bool measure_once(struct job *job, int s, struct times *t) {
    making = &sides[s];
    job_reset(job);
    ggml_gallocr_t galloc = making->new_n(job->bufts, job->n_bufs);
    if (s == 0) {
        berth_gallocr_set_options(galloc, &job->options);
    }
    double t0 = now();
    bool ok   = making->reserve_n(galloc, job->graph, job->node_bufs, job->leaf_bufs);
    keep_least(&t->reserve, now() - t0);
    t->size     = 0;
    t->at_bound = true;
    for (int i = 0; i < job->n_bufs && ok; i++) {
        struct berth_plan_report report;
        t->size += making->get_buffer_size(galloc, i);
        t->at_bound = t->at_bound && s == 0 && berth_gallocr_report(galloc, i, &report) == GGML_STATUS_SUCCESS &&
                      report.peak == report.bound;
    }
    for (int k = 0; k < 4 && ok; k++) {
        job_reset(job);
        t0 = now();
        ok = making->alloc_graph(galloc, job->graph);
        if (k > 0) {
            keep_least(&t->rebuilt, now() - t0);
        }
        t0 = now();
        ok = ok && making->alloc_graph(galloc, job->graph);
        if (k > 0) {
            keep_least(&t->placed, now() - t0);
        }
    }
    job_reset(job);
    making->free(galloc);
    return ok;
}

struct sums {
    struct times t[2];
    int n, n_at_bound, n_larger;
    double reserve_at_bound[2];
};

// Both in turn, so that noise of the machine hits both.
static bool measure(struct job *job, struct sums *sums, bool print) {
    struct times t[2] = {0};
    const int n_times = job->graph->n_nodes > 20000 ? 5 : job->graph->n_nodes > 2000 ? 15 : 50;
    if (!job_prepare(job)) {
        return false;
    }
    for (int k = 0; k < n_times; k++) {
        for (int s = 0; s < 2; s++) {
            if (!measure_once(job, s, &t[s])) {
                printf("%s: %s\n", job->name, s == 0 ? berth_last_error() : "ggml fails");
                berth_free(job->ours);
                return false;
            }
        }
    }
    if (print) {
        printf("%-28s %7d nodes  reserve %9.1f us, ratio %5.2f%s  alloc_graph %8.1f us, ratio %4.2f, placed %4.2f  size %.4f\n",
            job->name, job->graph->n_nodes, 1e6 * t[0].reserve, t[0].reserve / t[1].reserve, t[0].at_bound ? " " : "*",
            1e6 * t[0].rebuilt, t[0].rebuilt / t[1].rebuilt, t[0].placed / t[1].placed, (double) t[0].size / (double) t[1].size);
    }
    for (int s = 0; s < 2; s++) {
        sums->t[s].reserve += t[s].reserve;
        sums->t[s].rebuilt += t[s].rebuilt;
        sums->t[s].placed += t[s].placed;
        sums->t[s].size += t[s].size;
        sums->reserve_at_bound[s] += t[0].at_bound ? t[s].reserve : 0;
    }
    sums->n++;
    sums->n_at_bound += t[0].at_bound;
    sums->n_larger += t[0].size > t[1].size;
    berth_free(job->ours);
    return true;
}

// Blocks of attention and a gated unit over external weights, the shape of what programs run; width n.
static struct ggml_tensor *block(
    struct ggml_context *ctx, struct ggml_tensor *x, struct ggml_tensor *w, struct ggml_tensor *wide) {
    struct ggml_tensor *n = ggml_mul(ctx, ggml_rms_norm(ctx, x, 1e-5f), w);
    struct ggml_tensor *q = ggml_mul_mat(ctx, w, n), *k = ggml_mul_mat(ctx, w, n), *v = ggml_mul_mat(ctx, w, n);
    struct ggml_tensor *a = ggml_soft_max(ctx, ggml_mul_mat(ctx, k, q));
    struct ggml_tensor *o = ggml_mul_mat(ctx, ggml_cont(ctx, ggml_transpose(ctx, v)), a);
    x                     = ggml_add(ctx, x, o);
    struct ggml_tensor *m = ggml_rms_norm(ctx, x, 1e-5f);
    struct ggml_tensor *g = ggml_silu(ctx, ggml_mul_mat(ctx, wide, m)), *u = ggml_mul_mat(ctx, wide, m);
    struct ggml_tensor *h = ggml_mul(ctx, g, u);
    return ggml_add(ctx, x, ggml_view_2d(ctx, h, x->ne[0], x->ne[1], h->nb[1], 0));
}

static bool bench_made(struct ggml_backend_buffer_type *buft, int n_nodes, struct sums *sums) {
    const size_t size              = (size_t) n_nodes + 64;
    struct ggml_init_params params = {
        .mem_size = (size + 64) * 2 * ggml_tensor_overhead() + ggml_graph_overhead_custom(size, false), .no_alloc = true};
    struct ggml_context *ctx  = ggml_init(params);
    struct ggml_cgraph *graph = ggml_new_graph_custom(ctx, size, false);
    struct ggml_tensor *w     = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 64, 64),
                       *wide  = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 64, 256);
    struct ggml_tensor *x     = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 64, 64);
    w->data = wide->data = w; // somebody else's
    ggml_set_input(x);
    struct ggml_tensor *y = x;
    while (graph->n_nodes + 20 <= n_nodes) {
        y = block(ctx, y, w, wide);
        ggml_build_forward_expand(graph, y);
    }
    ggml_set_output(y);
    ggml_backend_buffer_type_t types[] = {buft};
    struct job job = {.name = "made", .graph = graph, .bufts = types, .n_bufs = 1, .options = berth_gallocr_options_default()};
    const bool ok  = berth_graph_check(graph) == GGML_STATUS_SUCCESS && measure(&job, sums, true);
    ggml_free(ctx);
    return ok;
}

static bool bench_file(const char *path, struct sums *sums) {
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
        .graph              = g.graph,
        .bufts              = types,
        .n_bufs             = g.n_bufs,
        .node_bufs          = g.node_bufs,
        .leaf_bufs          = g.leaf_bufs,
        .options            = berth_gallocr_options_default()};
    const bool ok  = measure(&job, sums, getenv("BENCH_VERBOSE") != NULL);
    ggraph_free(&g);
    return ok;
}

static bool conclude(const char *what, const struct sums *s) {
    const double reserve = s->reserve_at_bound[1] > 0 ? s->reserve_at_bound[0] / s->reserve_at_bound[1] : 0;
    const double rebuilt = s->t[0].rebuilt / s->t[1].rebuilt, placed = s->t[0].placed / s->t[1].placed;
    printf("%s: %d graphs, %d at the bound, %d larger than ggml's; sum of sizes %.4f of ggml's\n"
           "  reserve %.2f of ggml's time where the bound is met (all: %.2f), alloc_graph %.2f, placed already %.2f\n",
        what, s->n, s->n_at_bound, s->n_larger, (double) s->t[0].size / (double) s->t[1].size, reserve,
        s->t[0].reserve / s->t[1].reserve, rebuilt, placed);
    return s->n_larger == 0 && reserve <= BAR_RESERVE && rebuilt <= BAR_ALLOC;
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
    struct sums made = {0}, files = {0};
    bool ok = true;
    for (int n = 100; n <= 100000; n *= 10) {
        ok = bench_made(&buft, n, &made) && ok;
        ok = (n == 100000 || bench_made(&buft, 3 * n, &made)) && ok;
    }
    ok = conclude("made graphs", &made) && ok;
    for (int i = 1; i < argc; i++) {
        ok = bench_file(argv[i], &files) && ok;
    }
    if (files.n > 0) {
        ok = conclude("captured graphs", &files) && ok;
    }
    return ok ? 0 : 1;
}
