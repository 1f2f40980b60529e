// SPDX-License-Identifier: MIT
// device_graph.h: random graphs for tests of the scheduler. rg_check compares random devices with one CPU backend. A seed gives
// the same graph, devices and numbers on every machine.
#pragma once

#include "support/check.h"
#include "support/device.h"

enum {
    RG_W = 32,       // elements per row of all tensors
    RG_H = 8,        // rows of the results
    RG_KV_ROWS = 16, // rows of the tensors that graphs write to
    RG_MAX_DEVICES = 40,
    RG_N_WEIGHTS = 6,
    RG_N_KV = 3,
    RG_N_INPUTS = 4,
    RG_MAX_OUT = 64,
    RG_MOST_RESIDENT = 16384 // bytes of a device for copies of weights
};

struct rg_params {
    uint64_t seed;
    int n_nodes;
    int n_devices; // in addition to the CPU
    bool async;    // some devices work in their own threads
    bool parallel; // the scheduler may have several graphs in flight
    bool offload;  // devices compute with weights of the host and of other devices
    bool resident; // devices keep copies of weights
    int delay_us;  // longest delay before each job of a device
    int n_runs;    // graphs that are computed
};

// Objects that outlive a graph: devices, weights, and memory that graphs write to (kv).
struct rg_world {
    struct device devices[RG_MAX_DEVICES];
    int n_devices;
    ggml_backend_t cpu;
    ggml_backend_t backends[RG_MAX_DEVICES + 1];
    struct ggml_context *ctx;
    struct ggml_tensor *weights[RG_N_WEIGHTS], *kv[RG_N_KV];
    ggml_backend_buffer_t buffers[RG_N_WEIGHTS + RG_N_KV];
};

struct rg_graph {
    struct ggml_context *ctx;
    struct ggml_cgraph *graph;
    struct ggml_tensor *inputs[RG_N_INPUTS], *out[RG_MAX_OUT];
    int n_out;
};

static inline uint64_t rg_mix(uint64_t x) {
    x ^= x >> 31;
    x *= 0x7FB5D329728EA185u;
    x ^= x >> 27;
    x *= 0x81DADEF4BC2DD44Du;
    return x ^ (x >> 33);
}

// Views, reshapes and copies are always supported. The seed chooses about three quarters of the other ops, and two thirds of the
// types other than f32.
static inline bool rg_supports(const struct device *dev, const struct ggml_tensor *op) {
    switch (op->op) {
        case GGML_OP_NONE:
        case GGML_OP_VIEW:
        case GGML_OP_RESHAPE:
        case GGML_OP_PERMUTE:
        case GGML_OP_TRANSPOSE:
        case GGML_OP_CPY: return true;
        default: break;
    }
    if (rg_mix(dev->seed + (uint64_t) op->op * 77) % 4 == 0) {
        return false;
    }
    for (int k = 0; k < 2; k++) {
        if (op->src[k] != NULL && op->src[k]->type != GGML_TYPE_F32 && rg_mix(dev->seed + (uint64_t) op->src[k]->type) % 3 == 0) {
            return false;
        }
    }
    return true;
}

static inline void rg_fill(struct ggml_tensor *t, uint64_t seed) {
    const size_t n = (size_t) ggml_nelements(t);
    float *values = malloc(n * sizeof *values);
    struct check_rng rng = check_rng_new(seed);
    for (size_t i = 0; i < n; i++) {
        values[i] = (float) (int64_t) (check_rng_below(&rng, 2001) - 1000) / 2000.0f;
    }
    if (t->type == GGML_TYPE_F16) {
        ggml_fp16_t *half = malloc(n * sizeof *half);
        ggml_fp32_to_fp16_row(values, half, (int64_t) n);
        ggml_backend_tensor_set(t, half, 0, n * sizeof *half);
        free(half);
    } else {
        ggml_backend_tensor_set(t, values, 0, n * sizeof *values);
    }
    free(values);
}

static inline void rg_world_init(struct rg_world *w, const struct rg_params *p, bool with_devices) {
    struct check_rng rng = check_rng_new(p->seed ^ 0xABCDEF);
    w->n_devices = with_devices ? p->n_devices : 0;
    w->cpu = ggml_backend_cpu_init();
    ggml_backend_cpu_set_n_threads(w->cpu, 1);
    for (int d = 0; d < w->n_devices; d++) {
        char name[16];
        snprintf(name, sizeof name, "dev%d", d);
        device_init(&w->devices[d], name);
        w->devices[d].seed = check_rng_next(&rng);
        w->devices[d].supports = check_rng_below(&rng, 4) == 0 ? NULL : rg_supports;
        w->devices[d].is_async = p->async && check_rng_below(&rng, 4) != 0;
        w->devices[d].has_events = w->devices[d].is_async && check_rng_below(&rng, 3) != 0;
        w->devices[d].copies_async = w->devices[d].is_async && check_rng_below(&rng, 3) != 0;
        w->devices[d].reads_host = check_rng_below(&rng, 5) == 0;
        w->devices[d].delay_us = p->delay_us;
        w->devices[d].set_us_per_kb = p->offload ? (int) check_rng_below(&rng, 30) : 0;
        w->devices[d].offload_batch = p->offload ? 1 : 0;
        w->devices[d].max_size = check_rng_below(&rng, 6) == 0 ? 16384 : 0;
        w->backends[d] = device_start(&w->devices[d]);
    }
    w->backends[w->n_devices] = w->cpu;
    struct ggml_init_params params = {.mem_size = 1 << 16, .no_alloc = true};
    w->ctx = ggml_init(params);
    for (int i = 0; i < RG_N_WEIGHTS + RG_N_KV; i++) {
        const bool is_kv = i >= RG_N_WEIGHTS;
        struct ggml_tensor *t =
            ggml_new_tensor_2d(w->ctx, !is_kv && i % 2 == 1 ? GGML_TYPE_F16 : GGML_TYPE_F32, RG_W, is_kv ? RG_KV_ROWS : RG_W);
        ggml_format_name(t, is_kv ? "kv%d" : "w%d", is_kv ? i - RG_N_WEIGHTS : i);
        const uint64_t at = check_rng_below(&rng, (uint64_t) p->n_devices + 1);
        ggml_backend_t backend = with_devices ? w->backends[at] : w->cpu;
        w->buffers[i] = ggml_backend_alloc_buffer(backend, ggml_nbytes(t));
        assert_non_null(w->buffers[i]);
        if (!is_kv) {
            ggml_backend_buffer_set_usage(w->buffers[i], GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
        }
        assert_int_equal(ggml_backend_tensor_alloc(w->buffers[i], t, ggml_backend_buffer_get_base(w->buffers[i])), 0);
        rg_fill(t, p->seed + (uint64_t) i);
        *(is_kv ? &w->kv[i - RG_N_WEIGHTS] : &w->weights[i]) = t;
    }
}

static inline void rg_world_fini(struct rg_world *w) {
    for (int i = 0; i < RG_N_WEIGHTS + RG_N_KV; i++) {
        ggml_backend_buffer_free(w->buffers[i]);
    }
    ggml_free(w->ctx);
    for (int d = 0; d < w->n_devices; d++) {
        assert_int_equal(w->devices[d].n_buffers, 0);
        device_stop(&w->devices[d]);
    }
    ggml_backend_free(w->cpu);
}

// ---- graphs ----

struct rg_pool {
    struct ggml_tensor *values[64]; // all RG_W x RG_H of F32
    int n;
};

static inline struct ggml_tensor *rg_any(struct rg_pool *pool, struct check_rng *rng) {
    return pool->values[check_rng_below(rng, (uint64_t) pool->n)];
}

// Returns a view of RG_H / 2 rows, of a value of the pool or of memory that graphs write to.
static inline struct ggml_tensor *rg_half(
    struct ggml_context *ctx, struct rg_world *w, struct rg_pool *pool, struct check_rng *rng) {
    if (check_rng_below(rng, 3) == 0) {
        struct ggml_tensor *kv = w->kv[check_rng_below(rng, RG_N_KV)];
        return ggml_view_2d(ctx, kv, RG_W, RG_H / 2, kv->nb[1], check_rng_below(rng, RG_KV_ROWS - RG_H / 2 + 1) * kv->nb[1]);
    }
    struct ggml_tensor *a = rg_any(pool, rng);
    return ggml_view_2d(ctx, a, RG_W, RG_H / 2, a->nb[1], check_rng_below(rng, 2) * (RG_H / 2) * a->nb[1]);
}

static inline struct ggml_tensor *rg_op(
    struct ggml_context *ctx, struct rg_world *w, struct rg_pool *pool, struct check_rng *rng, struct ggml_cgraph *graph) {
    struct ggml_tensor *a = rg_any(pool, rng), *b = rg_any(pool, rng);
    switch (check_rng_below(rng, 20)) {
        case 0: return ggml_add(ctx, a, b);
        case 1: return ggml_mul(ctx, a, b);
        case 2: return ggml_sub(ctx, a, b);
        case 3: return ggml_scale(ctx, a, 0.5f);
        case 4: return ggml_tanh(ctx, a);
        case 5: return ggml_silu(ctx, a);
        case 6: return ggml_rms_norm(ctx, a, 1e-5f);
        case 7: return ggml_soft_max(ctx, a);
        case 8:
        case 9:
        case 10: return ggml_tanh(ctx, ggml_mul_mat(ctx, w->weights[check_rng_below(rng, RG_N_WEIGHTS)], a));
        case 11: return ggml_reshape_2d(ctx, ggml_cont(ctx, ggml_transpose(ctx, a)), RG_W, RG_H);
        case 12: return ggml_repeat(ctx, rg_half(ctx, w, pool, rng), a);
        case 13: return ggml_concat(ctx, rg_half(ctx, w, pool, rng), rg_half(ctx, w, pool, rng), 1);
        case 14: return a->view_src == NULL ? ggml_add_inplace(ctx, a, b) : ggml_add(ctx, a, b);
        case 15: return ggml_scale_inplace(ctx, a, 0.75f);
        case 16: { // writes memory that later graphs read
            struct ggml_tensor *kv = w->kv[check_rng_below(rng, RG_N_KV)];
            struct ggml_tensor *rows = ggml_view_2d(ctx, kv, RG_W, RG_H, kv->nb[1], check_rng_below(rng, RG_H + 1) * kv->nb[1]);
            ggml_build_forward_expand(graph, ggml_cpy(ctx, ggml_tanh(ctx, ggml_add(ctx, rows, a)), rows));
            return ggml_sqr(ctx, a);
        }
        case 17:
        case 18: return ggml_cpy(ctx, a, ggml_new_tensor_2d(ctx, GGML_TYPE_F32, RG_W, RG_H)); // a copy overwrites a leaf
        default: {                                                                            // overwrites rows of a value
            struct ggml_tensor *half = rg_half(ctx, w, pool, rng);
            ggml_build_forward_expand(graph, ggml_cpy(ctx, ggml_scale(ctx, rg_half(ctx, w, pool, rng), 0.5f), half));
            return ggml_neg(ctx, a);
        }
    }
}

static inline void rg_graph_init(struct rg_graph *g, struct rg_world *w, const struct rg_params *p, uint64_t seed) {
    struct check_rng rng = check_rng_new(seed);
    const size_t size = (size_t) p->n_nodes * 8 + 64;
    struct ggml_init_params params = {
        .mem_size = size * ggml_tensor_overhead() + ggml_graph_overhead_custom(size, false), .no_alloc = true};
    g->ctx = ggml_init(params);
    g->graph = ggml_new_graph_custom(g->ctx, size, false);
    g->n_out = 0;
    struct rg_pool pool = {.n = 0};
    for (int i = 0; i < RG_N_INPUTS; i++) {
        g->inputs[i] = ggml_new_tensor_2d(g->ctx, GGML_TYPE_F32, RG_W, RG_H);
        ggml_format_name(g->inputs[i], "in%d", i);
        ggml_set_input(g->inputs[i]);
        pool.values[pool.n++] =
            ggml_scale(g->ctx, g->inputs[i], 1.5f); // a computed copy, so that no op overwrites the input in place
        ggml_build_forward_expand(g->graph, pool.values[i]);
    }
    int n = 0;
    while (ggml_graph_n_nodes(g->graph) < p->n_nodes || g->n_out == 0) {
        struct ggml_tensor *t = rg_op(g->ctx, w, &pool, &rng, g->graph);
        ggml_format_name(t, "t%d", n++);
        ggml_build_forward_expand(g->graph, t);
        if (g->n_out < RG_MAX_OUT && (check_rng_below(&rng, 20) == 0 || ggml_graph_n_nodes(g->graph) >= p->n_nodes)) {
            struct ggml_tensor *out =
                ggml_tanh(g->ctx, t); // a separate tensor that is not in the pool, so that no later op overwrites it
            ggml_set_output(out);
            ggml_build_forward_expand(g->graph, out);
            g->out[g->n_out++] = out;
        }
        if (pool.n < 64 && check_rng_below(&rng, 3) != 0) {
            pool.values[pool.n++] = t;
        } else {
            pool.values[check_rng_below(&rng, (uint64_t) pool.n)] = t;
        }
    }
    assert_string_equal(berth_context_error(g->ctx), "");
}

static inline void rg_set_inputs(struct rg_graph *g, uint64_t seed) {
    for (int i = 0; i < RG_N_INPUTS; i++) {
        rg_fill(g->inputs[i], seed + (uint64_t) i);
    }
}

static inline size_t rg_results(struct rg_graph *g, struct rg_world *w, char *bytes) {
    char *at = bytes;
    for (int i = 0; i < g->n_out; i++) {
        ggml_backend_tensor_get(g->out[i], at, 0, ggml_nbytes(g->out[i]));
        at += ggml_nbytes(g->out[i]);
    }
    for (int i = 0; i < RG_N_KV; i++) {
        ggml_backend_tensor_get(w->kv[i], at, 0, ggml_nbytes(w->kv[i]));
        at += ggml_nbytes(w->kv[i]);
    }
    return (size_t) (at - bytes);
}

enum { RG_RESULT_SIZE = (RG_MAX_OUT * RG_H + RG_N_KV * RG_KV_ROWS) * RG_W * 4 };

// Assigns about one node in 40 to a random backend that supports it. The choice depends only on the seed.
static inline void rg_choose(struct rg_graph *g, struct rg_world *w, ggml_backend_sched_t sched, uint64_t seed) {
    struct check_rng rng = check_rng_new(seed ^ 0x5EED);
    for (int i = 0; i < ggml_graph_n_nodes(g->graph); i++) {
        struct ggml_tensor *t = ggml_graph_node(g->graph, i);
        ggml_backend_t backend = w->backends[check_rng_below(&rng, (uint64_t) w->n_devices + 1)];
        if (check_rng_below(&rng, 40) == 0 && t->view_src == NULL && ggml_backend_supports_op(backend, t)) {
            bool has_unsupported_writer = false; // an op that writes to t is not supported on this backend
            for (int j = 0; j < ggml_graph_n_nodes(g->graph); j++) {
                const struct ggml_tensor *o = ggml_graph_node(g->graph, j);
                has_unsupported_writer = has_unsupported_writer || (o->view_src == t && !ggml_backend_supports_op(backend, o));
            }
            if (!has_unsupported_writer) {
                ggml_backend_sched_set_tensor_backend(sched, t, backend);
            }
        }
    }
}

// Runs two graphs through one scheduler, n_runs times in total. Writes the results of the last two runs to bytes.
static inline size_t rg_run(struct rg_world *w, const struct rg_params *p, char *bytes, struct berth_sched_stats *stats) {
    ggml_backend_sched_t sched =
        ggml_backend_sched_new(w->backends, NULL, w->n_devices + 1, 64, p->parallel && w->n_devices > 0, p->offload);
    struct rg_graph g[2];
    size_t size = 0;
    assert_non_null(sched);
    for (int k = 0; k < 2; k++) {
        rg_graph_init(&g[k], w, p, p->seed + (uint64_t) k);
    }
    for (int d = 0; d < w->n_devices && p->resident; d++) {
        berth_sched_set_resident_limit(sched, w->backends[d], (size_t) rg_mix(p->seed + (uint64_t) d) % RG_MOST_RESIDENT);
    }
    for (int run = 0; run < p->n_runs; run++) {
        struct rg_graph *at = &g[run / 2 % 2];
        if (run % 5 == 4) { // builds the same graph anew, possibly at other addresses
            ggml_backend_sched_synchronize(sched);
            ggml_free(at->ctx);
            rg_graph_init(at, w, p, p->seed + (uint64_t) (run / 2 % 2));
        }
        ggml_backend_sched_reset(sched);
        rg_choose(at, w, sched, p->seed);
        if (!ggml_backend_sched_alloc_graph(sched, at->graph)) {
            fail_msg("seed %llu: %s", (unsigned long long) p->seed, berth_last_error());
        }
        if (!p->parallel) {
            ggml_backend_sched_synchronize(sched);
        }
        rg_set_inputs(at, p->seed * 1000 + (uint64_t) run * 10);
        if (ggml_backend_sched_graph_compute_async(sched, at->graph) != GGML_STATUS_SUCCESS) {
            fail_msg("seed %llu: %s", (unsigned long long) p->seed, berth_last_error());
        }
        if (run >= p->n_runs - 2) {
            assert_int_equal(berth_sched_synchronize(sched), GGML_STATUS_SUCCESS);
            size += rg_results(at, w, bytes + size);
        }
    }
    if (stats != NULL) {
        berth_sched_stats(sched, stats);
    }
    ggml_backend_sched_free(sched);
    ggml_free(g[0].ctx);
    ggml_free(g[1].ctx);
    return size;
}

// The results must be equal bit for bit.
static inline void rg_check(const struct rg_params *p) {
    static char expected[2 * RG_RESULT_SIZE], got[2 * RG_RESULT_SIZE];
    static struct rg_world alone, world;
    rg_world_init(&alone, p, false);
    const size_t size = rg_run(&alone, p, expected, NULL);
    rg_world_fini(&alone);
    rg_world_init(&world, p, true);
    const size_t got_size = rg_run(&world, p, got, NULL);
    rg_world_fini(&world);
    if (size != got_size || memcmp(expected, got, size) != 0) {
        size_t i = 0;
        while (i < size && expected[i] == got[i]) {
            i++;
        }
        fail_msg("seed %llu, %d nodes, %d devices, async %d, parallel %d: results differ from byte %zu of %zu on",
            (unsigned long long) p->seed, p->n_nodes, p->n_devices, p->async, p->parallel, i, size);
    }
}
