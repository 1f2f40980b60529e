// SPDX-License-Identifier: MIT
// bench/moves.c: a graph under a budget, whose values move to a file and back: with the moves beside the ops, and in a row with
// them, by turns. Both results are compared with those of the graph without a budget, bit by bit.
//
//     bench-moves [-d FOLDER] [-l LAYERS] [-w WIDTH] [-c COLUMNS] [-s SHARE] [-n RUNS]
//
// Times are the best of the runs: of the clock, since a thread that copies works beside the one that computes.

#include "berth-budget-graph.h"
#include "berth-sched.h"
#include "berth.h"
#include "ggml-alloc.h"
#include "ggml-cpu.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct size {
    int n_layers;
    int64_t width, n_columns;
};

// A way there and a way back that wants the values of the way there, the last one first.
struct net {
    struct ggml_context *ctx, *weights;
    ggml_backend_buffer_t buffer;
    struct ggml_tensor *w, *x, *out;
    struct ggml_cgraph *graph;
};

static void fill(struct ggml_tensor *t, float scale) {
    const size_t n = (size_t) ggml_nelements(t);
    float *values = malloc(n * sizeof *values);
    for (size_t i = 0; i < n; i++) {
        values[i] = scale * (float) ((i * 2654435761u >> 7) % 2001) / 1000 - scale;
    }
    ggml_backend_tensor_set(t, values, 0, n * sizeof *values);
    free(values);
}

static struct net net_new(const struct size *size, ggml_backend_t cpu) {
    const size_t n = 8 * (size_t) size->n_layers + 64;
    struct net net = {0};
    net.weights = ggml_init((struct ggml_init_params){.mem_size = 4096, .no_alloc = true});
    net.w = ggml_new_tensor_2d(net.weights, GGML_TYPE_F32, size->width, size->width);
    net.buffer = ggml_backend_alloc_ctx_tensors(net.weights, cpu);
    net.ctx = ggml_init((struct ggml_init_params){
        .mem_size = n * ggml_tensor_overhead() + ggml_graph_overhead_custom(n, false), .no_alloc = true});
    net.graph = ggml_new_graph_custom(net.ctx, n, false);
    net.x = ggml_new_tensor_2d(net.ctx, GGML_TYPE_F32, size->width, size->n_columns);
    ggml_set_input(net.x);
    struct ggml_tensor **there = calloc((size_t) size->n_layers, sizeof(struct ggml_tensor *)), *t = net.x;
    for (int i = 0; i < size->n_layers; i++) {
        t = there[i] = ggml_silu(net.ctx, ggml_mul_mat(net.ctx, net.w, t));
    }
    for (int i = size->n_layers; i-- > 0;) {
        t = ggml_mul_mat(net.ctx, net.w, ggml_mul(net.ctx, t, there[i]));
    }
    net.out = t;
    ggml_set_output(t);
    ggml_build_forward_expand(net.graph, t);
    fill(net.w, 0.1f);
    free(there);
    return net;
}

static void net_free(struct net *net) {
    ggml_backend_buffer_free(net->buffer);
    ggml_free(net->weights);
    ggml_free(net->ctx);
}

static float *results(const struct net *net) {
    float *values = malloc(ggml_nbytes(net->out));
    ggml_backend_tensor_get(net->out, values, 0, ggml_nbytes(net->out));
    return values;
}

// All the memory it takes; seconds of the best run.
static float *plain_run(const struct size *size, ggml_backend_t cpu, int n_runs, size_t *bytes, double *seconds) {
    struct net net = net_new(size, cpu);
    ggml_gallocr_t galloc = ggml_gallocr_new(ggml_backend_cpu_buffer_type());
    bool ok = ggml_gallocr_alloc_graph(galloc, net.graph);
    *seconds = 1e30;
    for (int i = 0; ok && i < n_runs; i++) {
        fill(net.x, 1);
        const int64_t begin = ggml_time_us();
        ok = ggml_backend_graph_compute(cpu, net.graph) == GGML_STATUS_SUCCESS;
        const double s = (double) (ggml_time_us() - begin) / 1e6;
        *seconds = s < *seconds ? s : *seconds;
    }
    float *values = ok ? results(&net) : NULL;
    *bytes = ggml_gallocr_get_buffer_size(galloc, 0);
    ggml_gallocr_free(galloc);
    net_free(&net);
    return values;
}

static ggml_backend_sched_t sched_new(
    ggml_backend_t *backends, ggml_backend_buffer_type_t *bufts, struct ggml_cgraph *graph, bool overlap) {
    ggml_backend_sched_t sched = ggml_backend_sched_new(backends, bufts, 2, 64, false, false);
    berth_sched_set_overlap(sched, overlap);
    for (int i = 0; i < ggml_graph_n_nodes(graph); i++) {
        ggml_backend_sched_set_tensor_backend(sched, ggml_graph_node(graph, i), backends[0]);
    }
    berth_sched_set_moves(sched, graph, backends[0], backends[1]);
    return sched;
}

// One mode, in a graph and a scheduler of its own.
struct mode {
    struct net net;
    struct ggml_context *ctx;
    struct ggml_cgraph *graph;
    struct berth_budget_result *told;
    ggml_backend_sched_t sched;
    double best;
    bool is_same;
};

static bool mode_init(struct mode *m, const struct size *size, ggml_backend_t *backends, ggml_backend_buffer_type_t *bufts,
    size_t bytes, bool overlap) {
    const struct berth_graph_budget_params params = {
        .bytes = bytes, .spill_buft = bufts[1], .spill_bytes = SIZE_MAX / 4, .spill_cost = (double) size->width / 4};
    m->net = net_new(size, backends[0]);
    m->best = 1e30;
    if (berth_graph_budget(m->net.graph, &params, &m->ctx, &m->graph, &m->told) != GGML_STATUS_SUCCESS || m->graph == NULL) {
        fprintf(stderr, "no schedule within %zu bytes\n", bytes);
        return false;
    }
    m->sched = sched_new(backends, bufts, m->graph, overlap);
    m->is_same = true;
    return ggml_backend_sched_alloc_graph(m->sched, m->graph);
}

static bool mode_run(struct mode *m, const float *want) {
    fill(m->net.x, 1);
    const int64_t begin = ggml_time_us();
    const bool ok = ggml_backend_sched_graph_compute(m->sched, m->graph) == GGML_STATUS_SUCCESS;
    const double s = (double) (ggml_time_us() - begin) / 1e6;
    float *values = results(&m->net);
    m->best = s < m->best ? s : m->best;
    m->is_same = m->is_same && ok && memcmp(values, want, ggml_nbytes(m->net.out)) == 0;
    free(values);
    return ok;
}

static void mode_fini(struct mode *m) {
    ggml_backend_sched_free(m->sched);
    berth_budget_free(m->told);
    ggml_free(m->ctx);
    net_free(&m->net);
}

static void tell(const char *name, const struct mode *m, double plain) {
    struct berth_sched_stats stats;
    berth_sched_get_stats(m->sched, &stats);
    printf("%-10s %8.1f ms  %.3f of unbudgeted  %s, %zu out, %zu in, %zu again, %lld beside\n", name, 1e3 * m->best,
        m->best / plain, m->is_same ? "same bits" : "OTHER BITS", m->told->n_out, m->told->n_in, m->told->n_again,
        (long long) stats.n_beside);
}

int main(int argc, char **argv) {
    struct size size = {.n_layers = 24, .width = 64, .n_columns = 16384};
    const char *folder = "/tmp";
    double share = 0.4;
    int n_runs = 15, c;
    while ((c = getopt(argc, argv, "d:l:w:c:s:n:")) != -1) {
        switch (c) {
            case 'd': folder = optarg; break;
            case 'l': size.n_layers = atoi(optarg); break;
            case 'w': size.width = atoi(optarg); break;
            case 'c': size.n_columns = atoi(optarg); break;
            case 's': share = atof(optarg); break;
            case 'n': n_runs = atoi(optarg); break;
            default: fprintf(stderr, "see the head of bench/moves.c\n"); return 2;
        }
    }
    ggml_time_init();
    ggml_backend_t backends[] = {ggml_backend_cpu_init(), ggml_backend_cpu_init()};
    ggml_backend_cpu_set_n_threads(backends[0], 1);
    ggml_backend_cpu_set_n_threads(backends[1], 1);
    ggml_backend_buffer_type_t bufts[] = {ggml_backend_cpu_buffer_type(), berth_file_buffer_type_new(folder)};
    size_t whole = 0;
    double plain = 0;
    float *want = plain_run(&size, backends[0], n_runs, &whole, &plain);
    const size_t bytes = (size_t) (share * (double) whole);
    struct mode modes[2] = {0};
    bool ok = want != NULL;
    for (int k = 0; k < 2; k++) {
        ok = ok && mode_init(&modes[k], &size, backends, bufts, bytes, k == 1);
    }
    for (int i = 0; ok && i < n_runs; i++) {
        ok = mode_run(&modes[0], want) && mode_run(&modes[1], want);
    }
    if (ok) {
        const double values = (double) size.width * (double) size.n_columns * 4 / 1048576;
        printf("%d layers, values of %.1f MiB, %.1f of %.1f MiB, best of %d\n", size.n_layers, values, (double) bytes / 1048576,
            (double) whole / 1048576, n_runs);
        printf("unbudgeted %8.1f ms\n", 1e3 * plain);
        tell("in a row", &modes[0], plain);
        tell("beside", &modes[1], plain);
        printf("beside takes %.3f of in a row; foretold %.3f\n", modes[1].best / modes[0].best,
            (double) modes[0].told->cost_beside / (double) modes[0].told->cost);
        ok = modes[0].is_same && modes[1].is_same;
    }
    mode_fini(&modes[0]);
    mode_fini(&modes[1]);
    free(want);
    ggml_backend_free(backends[0]);
    ggml_backend_free(backends[1]);
    berth_file_buffer_type_free(bufts[1]);
    return ok ? 0 : 1;
}
