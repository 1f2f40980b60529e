// SPDX-License-Identifier: MIT
// alloc_cases.h: random graphs, computed with memory of the graph allocator and with separate memory for every tensor. All
// results must have the same bytes.
#pragma once

#include "support/check.h"

#include "ggml-alloc.h"
#include "ggml-backend-impl.h"
#include "ggml-cpu.h"

#define CASES_NODES_MAX 60
#define CASES_TENSORS_MAX 256
#define CASES_BUFS_MAX 4

// ---- buffer types of several alignments and largest sizes, all in host memory ----

static size_t align_16(ggml_backend_buffer_type_t t) {
    return (void) t, 16;
}
static size_t align_32(ggml_backend_buffer_type_t t) {
    return (void) t, 32;
}
static size_t max_4096(ggml_backend_buffer_type_t t) {
    return (void) t, 4096;
}
static size_t max_8192(ggml_backend_buffer_type_t t) {
    return (void) t, 8192;
}
static size_t padded_size(ggml_backend_buffer_type_t t, const struct ggml_tensor *x) {
    return (void) t, ggml_nbytes(x) + 40;
}

static ggml_backend_t case_cpu;
static struct ggml_backend_buffer_type case_bufts[CASES_BUFS_MAX];

static inline void cases_init(void) {
    case_cpu = ggml_backend_cpu_init();
    ggml_backend_cpu_set_n_threads(case_cpu, 1);
    for (int i = 0; i < CASES_BUFS_MAX; i++) {
        case_bufts[i] = *ggml_backend_cpu_buffer_type();
    }
    case_bufts[1].iface.get_alignment = align_16;
    case_bufts[1].iface.get_max_size = max_4096;
    case_bufts[2].iface.get_alignment = align_32;
    case_bufts[2].iface.get_max_size = max_8192;
    case_bufts[2].iface.get_alloc_size = padded_size;
    case_bufts[3].iface.get_alignment = align_32;
}

// ---- a random graph ----

struct net {
    struct ggml_context *weights, *ctx;
    struct ggml_cgraph *graph;
    ggml_backend_buffer_t weights_buffer;
    struct ggml_tensor *t[CASES_TENSORS_MAX]; // all tensors that an op may read; the first two are weights
    int n_t;
};

static inline struct ggml_tensor *net_pick(struct net *n, struct check_rng *r) {
    // Picks mostly recent tensors, so that the graph contains long chains.
    const int back = check_rng_below(r, 3) == 0 ? n->n_t : n->n_t < 5 ? n->n_t : 5;
    return n->t[n->n_t - 1 - (int) check_rng_below(r, (uint64_t) back)];
}

static inline struct ggml_tensor *net_pick_like(struct net *n, struct check_rng *r, const struct ggml_tensor *a) {
    for (int k = 0; k < 12; k++) {
        struct ggml_tensor *b = net_pick(n, r);
        if (ggml_are_same_shape(a, b)) {
            return b;
        }
    }
    return NULL;
}

static inline struct ggml_tensor *net_view(struct ggml_context *ctx, struct check_rng *r, struct ggml_tensor *a) {
    switch (check_rng_below(r, 5)) {
        case 0: return ggml_is_contiguous(a) ? ggml_reshape_1d(ctx, a, ggml_nelements(a)) : NULL;
        case 1: return ggml_is_contiguous(a) ? ggml_reshape_2d(ctx, a, a->ne[1], a->ne[0]) : NULL;
        case 2: return ggml_transpose(ctx, a);
        case 3: {
            const int64_t rows = a->ne[1] / 2, skip = a->ne[1] - rows;
            return ggml_view_2d(ctx, a, a->ne[0], rows, a->nb[1], (size_t) skip * a->nb[1]);
        }
        default: return ggml_view_2d(ctx, a, a->ne[0], a->ne[1], a->nb[1], 0);
    }
}

// A copy or a fill overwrites a new leaf or a part of it, directly or through a view.
static inline struct ggml_tensor *net_overwrite(struct net *n, struct check_rng *r, struct ggml_tensor *a) {
    struct ggml_context *ctx = n->ctx;
    struct ggml_tensor *leaf = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, a->ne[0], a->ne[1]);
    struct ggml_tensor *other = check_rng_below(r, 3) == 0 ? net_pick(n, r) : leaf;
    n->t[n->n_t++] = leaf;
    switch (check_rng_below(r, 8)) {
        case 0: return ggml_fill_inplace(ctx, leaf, 0.5f);
        case 1: return ggml_cpy(ctx, ggml_transpose(ctx, a), ggml_reshape_2d(ctx, leaf, a->ne[1], a->ne[0]));
        case 2: { // overwrites only a part of the leaf
            struct ggml_tensor *from = ggml_view_2d(ctx, a, a->ne[0], a->ne[1] / 2, a->nb[1], 0);
            return ggml_cpy(ctx, from, ggml_view_2d(ctx, leaf, a->ne[0], a->ne[1] / 2, leaf->nb[1], 0));
        }
        case 3: return ggml_cpy(ctx, a, ggml_transpose(ctx, ggml_reshape_2d(ctx, leaf, a->ne[1], a->ne[0])));
        case 4: // the leaf, or another tensor, is read before the leaf is overwritten
            ggml_build_forward_expand(n->graph, ggml_cont(ctx, other));
            return ggml_cpy(ctx, a, leaf);
        default: return ggml_cpy(ctx, a, leaf);
    }
}

// Returns NULL if the op is not possible with these tensors.
static inline struct ggml_tensor *net_op(struct net *n, struct check_rng *r) {
    struct ggml_context *ctx = n->ctx;
    struct ggml_tensor *a = net_pick(n, r);
    struct ggml_tensor *b = net_pick_like(n, r, a);
    const bool is_plain = ggml_is_contiguous(a) && a->nb[0] == sizeof(float) && a->nb[1] == a->nb[0] * (size_t) a->ne[0];
    switch (check_rng_below(r, 23)) {
        case 0:
        case 1: return b != NULL && ggml_is_contiguous_rows(a) && ggml_is_contiguous_rows(b) ? ggml_add(ctx, a, b) : NULL;
        case 2: return b != NULL && ggml_is_contiguous_rows(a) && ggml_is_contiguous_rows(b) ? ggml_mul(ctx, a, b) : NULL;
        case 3: return b != NULL && ggml_is_contiguous_rows(a) && ggml_is_contiguous_rows(b) ? ggml_sub(ctx, b, a) : NULL;
        case 4: return is_plain ? ggml_scale(ctx, a, 0.75f) : NULL;
        case 5: return is_plain ? ggml_relu(ctx, a) : NULL;
        case 6: return is_plain ? ggml_neg(ctx, a) : NULL;
        case 7: return is_plain && a->ne[0] > 0 ? ggml_rms_norm(ctx, a, 1e-5f) : NULL;
        case 8: return is_plain && a->ne[0] > 0 ? ggml_norm(ctx, a, 1e-5f) : NULL;
        case 9: return is_plain && a->ne[0] > 0 ? ggml_soft_max(ctx, a) : NULL;
        case 10: return is_plain ? ggml_clamp(ctx, a, -1.0f, 1.0f) : NULL;
        case 11:
            return is_plain && ggml_is_contiguous(n->t[0]) && a->ne[0] == n->t[0]->ne[0] ? ggml_mul_mat(ctx, n->t[0], a) : NULL;
        case 12: return ggml_cont(ctx, a);
        case 13: return is_plain ? ggml_tanh(ctx, a) : NULL;
        case 14: return is_plain ? ggml_scale_inplace(ctx, a, 1.25f) : NULL; // writes into a
        case 15: return b != NULL && b != a && b->view_src == NULL && a->view_src == NULL ? ggml_cpy(ctx, a, b) : NULL;
        case 16:
        case 17:
        case 18: return n->n_t < CASES_TENSORS_MAX / 2 ? net_overwrite(n, r, a) : NULL;
        default: return net_view(ctx, r, a);
    }
}

static inline struct ggml_tensor *net_new(struct ggml_context *ctx, struct check_rng *r) {
    static const int64_t extents[] = {4, 8, 8, 8, 16};
    const int64_t ne1 = check_rng_below(r, 25) == 0 ? 0 : extents[check_rng_below(r, 5)];
    return ggml_new_tensor_2d(ctx, GGML_TYPE_F32, extents[check_rng_below(r, 5)], ne1);
}

static inline void net_build(struct net *n, uint64_t seed) {
    struct check_rng r = check_rng_new(seed);
    n->n_t = 0;
    n->weights = ggml_init((struct ggml_init_params){.mem_size = 16 * ggml_tensor_overhead(), .no_alloc = true});
    n->ctx = ggml_init((struct ggml_init_params){
        .mem_size = 2000 * ggml_tensor_overhead() + ggml_graph_overhead_custom(512, false), .no_alloc = true});
    n->graph = ggml_new_graph_custom(n->ctx, 512, false);
    n->t[n->n_t++] = ggml_set_name(ggml_new_tensor_2d(n->weights, GGML_TYPE_F32, 8, 8), "w");
    n->t[n->n_t++] = ggml_set_name(ggml_new_tensor_2d(n->weights, GGML_TYPE_F32, 8, 16), "cache");
    n->weights_buffer = ggml_backend_alloc_ctx_tensors_from_buft(n->weights, ggml_backend_cpu_buffer_type());
    for (int i = 1 + (int) check_rng_below(&r, 4); i > 0; i--) {
        struct ggml_tensor *x = net_new(n->ctx, &r);
        if (check_rng_below(&r, 2) == 0) {
            ggml_set_input(x);
        }
        n->t[n->n_t++] = x;
    }
    const int n_nodes = 1 + (int) check_rng_below(&r, CASES_NODES_MAX);
    for (int i = 0, n_try = 0; i < n_nodes && n_try < 20 * n_nodes; n_try++) {
        struct ggml_tensor *x = net_op(n, &r);
        if (x == NULL || !ggml_backend_supports_op(case_cpu, x)) {
            continue;
        }
        i++;
        if (check_rng_below(&r, 12) == 0) {
            ggml_set_output(x);
        }
        ggml_format_name(x, "n%d", i);
        n->t[n->n_t++] = x;
        ggml_build_forward_expand(n->graph, x); // also tensors that no op reads
    }
    assert_string_equal(berth_context_error(n->ctx), "");
}

static inline void net_free(struct net *n) {
    ggml_backend_buffer_free(n->weights_buffer);
    ggml_free(n->weights);
    ggml_free(n->ctx);
}

// Numbers depend only on the seed, so that both nets of a case get the same numbers.
static inline void net_fill(struct net *n, uint64_t seed) {
    for (int i = 0; i < n->n_t; i++) {
        struct check_rng r = check_rng_new(seed ^ 0xF111 ^ (uint64_t) i << 40);
        struct ggml_tensor *x = n->t[i];
        if (x->op != GGML_OP_NONE || x->data == NULL) {
            continue;
        }
        for (int64_t k = 0; k < ggml_nelements(x); k++) {
            ((float *) x->data)[k] = (float) ((double) check_rng_below(&r, 2000) / 500.0 - 2.0);
        }
    }
}

// For berth_gallocr_params.inplace: allows two more ops to run in place.
static inline bool wide_in_place(const struct ggml_tensor *node, int i_src, void *user) {
    (void) user;
    return i_src == 0 && (node->op == GGML_OP_NORM || node->op == GGML_OP_CLAMP);
}

// ---- one case ----

// Whether tensor i still holds its value after the graph has run: a weight (i < 2), an output, or a tensor that no op reads.
static inline bool is_compared(struct net *n, int i, bool outputs_only) {
    if ((n->t[i]->flags & GGML_TENSOR_FLAG_OUTPUT) != 0 || i < 2) {
        return true;
    }
    if (outputs_only) {
        return false;
    }
    for (int k = 0; k < ggml_graph_n_nodes(n->graph); k++) {
        for (int s = 0; s < GGML_MAX_SRC; s++) {
            if (ggml_graph_node(n->graph, k)->src[s] == n->t[i]) {
                return false;
            }
        }
    }
    return true; // no op reads it: it keeps its memory
}

static inline void compare_nets(struct net *a, struct net *b, bool outputs_only, uint64_t seed, const char *what) {
    static float x[4096], y[4096];
    for (int i = 0; i < a->n_t; i++) {
        if (!is_compared(a, i, outputs_only) || a->t[i]->data == NULL) {
            continue;
        }
        const size_t size = ggml_nbytes(a->t[i]);
        assert_true(size == ggml_nbytes(b->t[i]) && size <= sizeof x);
        if (size == 0) {
            continue;
        }
        memcpy(x, a->t[i]->data, size);
        memcpy(y, b->t[i]->data, size);
        if (memcmp(x, y, size) != 0) {
            fail_msg("seed %llu, %s: tensor %s (%s) differs", (unsigned long long) seed, what, a->t[i]->name,
                ggml_op_name(a->t[i]->op));
        }
    }
}

static inline void case_ids(struct net *n, struct check_rng *r, int n_bufs, int *node_ids, int *leaf_ids) {
    for (int i = 0; i < ggml_graph_n_nodes(n->graph); i++) {
        node_ids[i] = (int) check_rng_below(r, (uint64_t) n_bufs);
    }
    for (int i = 0; i < CASES_TENSORS_MAX; i++) {
        leaf_ids[i] = (int) check_rng_below(r, (uint64_t) n_bufs);
    }
}

static inline void case_run(uint64_t seed, bool checked) {
    struct check_rng r = check_rng_new(seed ^ 0xCA5E);
    struct net a, b;
    net_build(&a, seed);
    net_build(&b, seed);

    // Net b has separate memory for every tensor.
    ggml_backend_buffer_t own = ggml_backend_alloc_ctx_tensors_from_buft(b.ctx, ggml_backend_cpu_buffer_type());
    net_fill(&b, seed);
    if (ggml_backend_graph_compute(case_cpu, b.graph) != GGML_STATUS_SUCCESS) {
        fail_msg("seed %llu: %s", (unsigned long long) seed, berth_last_error());
    }

    // Net a has memory from the allocator.
    ggml_backend_buffer_type_t types[6];
    int node_ids[CASES_TENSORS_MAX], leaf_ids[CASES_TENSORS_MAX];
    const int n_bufs = 1 + (int) check_rng_below(&r, 5);
    for (int i = 0; i < n_bufs; i++) {
        types[i] = &case_bufts[check_rng_below(&r, CASES_BUFS_MAX)];
    }
    case_ids(&a, &r, n_bufs, node_ids, leaf_ids);
    ggml_gallocr_t galloc = ggml_gallocr_new_n(types, n_bufs);
    struct berth_gallocr_params o = berth_gallocr_params_default();
    o.inplace_via_views = check_rng_below(&r, 4) != 0;
    o.free_unread = check_rng_below(&r, 4) == 0;
    o.inplace = check_rng_below(&r, 2) == 0 ? wide_in_place : NULL;
    berth_gallocr_set_params(galloc, &o);
    assert_true(ggml_gallocr_reserve_n(galloc, a.graph, node_ids, leaf_ids));
    assert_true(ggml_gallocr_alloc_graph(galloc, a.graph));
    if (!berth_gallocr_verify(galloc, a.graph)) {
        fail_msg("seed %llu: %s", (unsigned long long) seed, berth_last_error());
    }
    for (int k = 0; k < 2; k++) { // the second run uses the plan of the first
        net_fill(&a, seed);
        if (checked && k == 1) {
            if (berth_gallocr_compute_checked(galloc, a.graph, case_cpu, ggml_backend_graph_compute) != GGML_STATUS_SUCCESS) {
                fail_msg("seed %llu: %s", (unsigned long long) seed, berth_last_error());
            }
        } else {
            assert_int_equal(ggml_backend_graph_compute(case_cpu, a.graph), GGML_STATUS_SUCCESS);
        }
        compare_nets(&a, &b, o.free_unread, seed, k == 0 ? "first" : checked ? "checked" : "second");
        assert_true(ggml_gallocr_alloc_graph(galloc, a.graph));
    }
    ggml_gallocr_free(galloc);
    ggml_backend_buffer_free(own);
    net_free(&a);
    net_free(&b);
}

static inline void cases_run(uint64_t seed, int n) {
    check_quiet();
    cases_init();
    assert_non_null(case_cpu);
    for (int i = 0; i < n; i++) {
        case_run(seed + (uint64_t) i, i % 10 == 0);
    }
    ggml_backend_free(case_cpu);
    printf("%d graphs\n", n);
}
