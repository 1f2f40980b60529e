// SPDX-License-Identifier: MIT
// budget_deep.h: random graphs whose values are read long after they are computed, without and with a memory limit.
#pragma once

#include "support/device_graph.h"

enum { N_WEIGHTS = 3, MAX_DEPTH = 14, WIDTH = 32, MAX_RESULT = MAX_DEPTH * 64 * 4 };

// A deep graph: its second half reads the values of its first half in reverse order, so many values have long lifetimes.
struct deep {
    struct ggml_context *weights, *ctx;
    struct ggml_tensor *w[N_WEIGHTS], *x, *out[MAX_DEPTH];
    int n_out;
    struct ggml_cgraph *graph;
    ggml_backend_buffer_t buffer;
};

// Counts over all graphs of a test.
struct tally {
    size_t n_kept;               // graphs for which a schedule within the limit was found
    size_t n_out, n_in;          // values spilled, values read back
    size_t n_recomputed, n_over; // ops recomputed; runs that used more memory than the limit
};

static char expected[MAX_RESULT], got[MAX_RESULT];

// ---- graphs ----

static inline struct ggml_tensor *deep_op(struct deep *d, struct check_rng *rng, struct ggml_tensor *a, struct ggml_tensor *b) {
    struct ggml_context *ctx = d->ctx;
    const int64_t half = a->ne[1] / 2;
    switch (check_rng_below(rng, 8)) {
        case 0: return ggml_add(ctx, a, b);
        case 1: return ggml_mul(ctx, a, ggml_tanh(ctx, b));
        case 2: return ggml_rms_norm(ctx, ggml_add(ctx, a, b), 1e-5f);
        case 3: return ggml_add(ctx, b, ggml_cont(ctx, ggml_transpose(ctx, ggml_cont(ctx, ggml_transpose(ctx, a)))));
        case 4:
            return ggml_concat(ctx, ggml_view_2d(ctx, b, WIDTH, half, b->nb[1], (size_t) half * b->nb[1]),
                ggml_view_2d(ctx, a, WIDTH, half, a->nb[1], 0), 1);
        default: return ggml_add(ctx, ggml_silu(ctx, ggml_mul_mat(ctx, d->w[check_rng_below(rng, N_WEIGHTS)], a)), b);
    }
}

// Allocates the weights and makes an empty graph.
static inline void deep_weights(struct deep *d, ggml_backend_t backend) {
    *d = (struct deep){0};
    d->weights = ggml_init((struct ggml_init_params){.mem_size = 1 << 14, .no_alloc = true});
    d->ctx = ggml_init((struct ggml_init_params){.mem_size = 1 << 20, .no_alloc = true});
    d->graph = ggml_new_graph(d->ctx);
    for (int i = 0; i < N_WEIGHTS; i++) {
        d->w[i] = ggml_new_tensor_2d(d->weights, GGML_TYPE_F32, WIDTH, WIDTH);
    }
    d->buffer = ggml_backend_alloc_ctx_tensors(d->weights, backend);
}

static inline void deep_init(struct deep *d, uint64_t seed, int depth, ggml_backend_t backend) {
    struct check_rng rng = check_rng_new(seed);
    deep_weights(d, backend);
    ggml_backend_buffer_set_usage(d->buffer, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    d->x = ggml_new_tensor_2d(d->ctx, GGML_TYPE_F32, WIDTH, 2 + 2 * (int64_t) check_rng_below(&rng, 12));
    ggml_set_input(d->x);
    struct ggml_tensor *forward[MAX_DEPTH] = {ggml_tanh(d->ctx, d->x)}, *t = forward[0];
    for (int i = 1; i < depth; i++) {
        t = forward[i] = deep_op(d, &rng, t, forward[check_rng_below(&rng, (uint64_t) i)]);
    }
    for (int i = depth - 1; i >= 0; i--) { // the second half reads the values of the first half in reverse order
        t = deep_op(d, &rng, t, forward[i]);
        if (i == 0 || check_rng_below(&rng, 4) == 0) {
            d->out[d->n_out] = ggml_sum_rows(d->ctx, t);
            ggml_set_output(d->out[d->n_out]);
            ggml_build_forward_expand(d->graph, d->out[d->n_out++]);
        }
    }
    assert_int_equal(berth_graph_check(d->graph), GGML_STATUS_SUCCESS);
}

static inline void deep_fini(struct deep *d) {
    ggml_backend_buffer_free(d->buffer);
    ggml_free(d->weights);
    ggml_free(d->ctx);
}

static inline void deep_fill(struct deep *d, uint64_t seed) {
    for (int i = 0; i < N_WEIGHTS; i++) {
        rg_fill(d->w[i], seed + 1 + (uint64_t) i);
    }
    rg_fill(d->x, seed);
}

static inline size_t deep_results(struct deep *d, char *bytes) {
    size_t n = 0;
    for (int i = 0; i < d->n_out; i++) {
        assert_true(n + ggml_nbytes(d->out[i]) <= MAX_RESULT);
        ggml_backend_tensor_get(d->out[i], bytes + n, 0, ggml_nbytes(d->out[i]));
        n += ggml_nbytes(d->out[i]);
    }
    return n;
}

// Computes the graph without a memory limit. Copies the results, *size bytes, to `expected`. Returns the size of the compute
// buffer.
static inline size_t plain_run(uint64_t seed, int depth, ggml_backend_t backend, size_t *size) {
    struct deep d;
    deep_init(&d, seed, depth, backend);
    ggml_gallocr_t galloc = ggml_gallocr_new(ggml_backend_get_default_buffer_type(backend));
    assert_true(ggml_gallocr_alloc_graph(galloc, d.graph));
    deep_fill(&d, seed);
    assert_int_equal(ggml_backend_graph_compute(backend, d.graph), GGML_STATUS_SUCCESS);
    *size = deep_results(&d, expected);
    const size_t unlimited_size = ggml_gallocr_get_buffer_size(galloc, 0);
    ggml_gallocr_free(galloc);
    deep_fini(&d);
    return unlimited_size;
}

// ---- memory limits ----

// A graph that berth_graph_budget has rewritten for a memory limit.
struct limited {
    struct ggml_context *ctx;
    struct ggml_cgraph *graph; // NULL: no schedule within the limit was found
    struct berth_budget_result *r;
    struct berth_graph_budget_params params;
};

// Draws a limit between the least bytes of any schedule and unlimited_size. The cost of spilling varies, so that both spills and
// recomputations occur.
static inline void limited_init(struct limited *u, struct ggml_cgraph *graph, uint64_t seed, size_t unlimited_size,
    ggml_backend_buffer_type_t own, ggml_backend_buffer_type_t other) {
    struct check_rng rng = check_rng_new(seed ^ 0xB0D6E7);
    *u = (struct limited){.params = {.buft = own, .spill_buft = other, .seed = seed}};
    assert_int_equal(berth_graph_budget(graph, &u->params, &u->ctx, &u->graph, &u->r), GGML_STATUS_SUCCESS);
    assert_true(!u->r->fits && u->r->proven && u->graph == NULL);
    const uint64_t least = u->r->uses[0].live_bound;
    u->params.memory_limit = least + check_rng_below(&rng, unlimited_size > least ? unlimited_size - least : 1);
    u->params.spill_limit = check_rng_below(&rng, 4) == 0 ? unlimited_size / 4 : 4 * unlimited_size;
    u->params.spill_cost_per_byte = check_rng_below(&rng, 3) == 0 ? 8 : 0.01;
    berth_budget_free(u->r);
    assert_int_equal(berth_graph_budget(graph, &u->params, &u->ctx, &u->graph, &u->r), GGML_STATUS_SUCCESS);
    assert_int_equal(u->r->n_uses, 2);
    assert_int_equal(u->r->fits, u->graph != NULL);
}

static inline void limited_fini(struct limited *u, struct tally *t) {
    t->n_kept += u->r->fits;
    t->n_out += u->r->fits ? u->r->n_spilled : 0;
    t->n_in += u->r->fits ? u->r->n_restored : 0;
    t->n_recomputed += u->r->fits ? u->r->n_recomputed : 0;
    berth_budget_free(u->r);
    ggml_free(u->ctx);
}

static inline void results_compare(uint64_t seed, int depth, size_t size, size_t got_size) {
    if (size != got_size || memcmp(expected, got, size) != 0) {
        fail_msg("seed %llu, depth %d: results differ", (unsigned long long) seed, depth);
    }
}

// Nodes go to the backend own, copies of spilled values to the backend other. The caller then writes the inputs.
static inline void sched_begin(
    ggml_backend_sched_t sched, struct limited *u, ggml_backend_t own, ggml_backend_t other, uint64_t seed) {
    ggml_backend_sched_reset(sched);
    for (int i = 0; i < ggml_graph_n_nodes(u->graph); i++) {
        ggml_backend_sched_set_tensor_backend(sched, ggml_graph_node(u->graph, i), own);
    }
    berth_sched_set_spill_backends(sched, u->graph, own, other);
    if (!ggml_backend_sched_alloc_graph(sched, u->graph)) {
        fail_msg("seed %llu: %s", (unsigned long long) seed, berth_last_error());
    }
}
