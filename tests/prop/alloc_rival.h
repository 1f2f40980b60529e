// SPDX-License-Identifier: MIT
// alloc_rival.h: compares the graph allocator with its rival, the reference's graph allocator, on random small graphs and random
// buffer types. Berth must never take more bytes. Both allocators read the same graph in memory, because Berth has the ABI of
// ggml.
#pragma once

#include "support/check.h"
#include "support/oracle.h"

#include "ggml-alloc.h"
#include "ggml-backend-impl.h"

#define RIVAL_BUFS_MAX 4
#define RIVAL_NODES_MAX 40

// ---- buffer types: only their sizes are read, no memory is allocated ----

struct rival_type {
    size_t align, max;
};

static struct rival_type rival_types[RIVAL_BUFS_MAX];
static struct ggml_backend_buffer_type rival_bufts[RIVAL_BUFS_MAX];

static const char *rival_name(ggml_backend_buffer_type_t t) {
    return (void) t, "rival";
}
static size_t rival_align(ggml_backend_buffer_type_t t) {
    return ((struct rival_type *) t->context)->align;
}
static size_t rival_max(ggml_backend_buffer_type_t t) {
    return ((struct rival_type *) t->context)->max;
}
static bool rival_is_host(ggml_backend_buffer_type_t t) {
    return (void) t, true;
}

static inline void rival_types_draw(struct check_rng *r) {
    for (int i = 0; i < RIVAL_BUFS_MAX; i++) {
        const size_t maxima[] = {SIZE_MAX, SIZE_MAX, 16, 32, 64, 256};

        rival_types[i] = (struct rival_type){(size_t) 1 << check_rng_below(r, 7), maxima[check_rng_below(r, 6)]};
        rival_bufts[i] = (struct ggml_backend_buffer_type){
            .iface = {.get_name = rival_name, .get_alignment = rival_align, .get_max_size = rival_max, .is_host = rival_is_host},
            .context = &rival_types[i]};
    }
}

// ---- a random graph ----

struct rival_net {
    struct ggml_context *ctx;
    struct ggml_cgraph *graph;
    struct ggml_tensor *t[RIVAL_NODES_MAX + 8];
    int n_t;
};

static inline struct ggml_tensor *rival_any(struct rival_net *n, struct check_rng *r) {
    const int back = check_rng_below(r, 3) == 0 || n->n_t < 4 ? n->n_t : 4;
    return n->t[n->n_t - 1 - (int) check_rng_below(r, (uint64_t) back)];
}

static inline struct ggml_tensor *rival_op(struct rival_net *n, struct check_rng *r) {
    struct ggml_tensor *a = rival_any(n, r), *b = rival_any(n, r);
    const int64_t size = ggml_nelements(a);
    switch (check_rng_below(r, 13)) {
        case 0: return ggml_scale(n->ctx, a, 2.0f);
        case 1: return ggml_relu(n->ctx, a);
        case 2: return ggml_sqr(n->ctx, a);
        case 3:
        case 4: return ggml_are_same_shape(a, b) ? ggml_add(n->ctx, a, b) : NULL;
        case 5: return ggml_are_same_shape(a, b) ? ggml_mul(n->ctx, b, a) : NULL;
        case 6: return size > 1 ? ggml_view_1d(n->ctx, a, size / 2, 0) : NULL;
        case 7: return ggml_reshape_1d(n->ctx, a, size);
        case 8: return size + ggml_nelements(b) < 64 ? ggml_concat(n->ctx, a, b, 0) : NULL;
        case 9: return ggml_cont(n->ctx, a);
        case 10: return ggml_sum(n->ctx, a);
        case 11: return ggml_cpy(n->ctx, a, ggml_new_tensor_1d(n->ctx, GGML_TYPE_F32, size));
        default: return ggml_clamp(n->ctx, a, 0.0f, 1.0f);
    }
}

static inline void rival_net_build(struct rival_net *n, struct check_rng *r) {
    const size_t size = 128 * ggml_tensor_overhead() + ggml_graph_overhead_custom(128, false);
    *n = (struct rival_net){.ctx = ggml_init((struct ggml_init_params){.mem_size = size, .no_alloc = true})};
    n->graph = ggml_new_graph_custom(n->ctx, 128, false);
    for (int i = 1 + (int) check_rng_below(r, 4); i > 0; i--) {
        struct ggml_tensor *x = ggml_new_tensor_1d(n->ctx, GGML_TYPE_F32, 1 + (int64_t) check_rng_below(r, 6));
        if (check_rng_below(r, 2) == 0) {
            ggml_set_input(x);
        }
        n->t[n->n_t++] = x;
    }
    for (int i = 2 + (int) check_rng_below(r, RIVAL_NODES_MAX - 2); i > 0; i--) {
        struct ggml_tensor *x = rival_op(n, r);
        if (x == NULL) {
            continue;
        }
        if (check_rng_below(r, 12) == 0) {
            ggml_set_output(x);
        }
        n->t[n->n_t++] = x;
        if (check_rng_below(r, 4) != 0) {
            ggml_build_forward_expand(n->graph, x);
        }
    }
    ggml_build_forward_expand(n->graph, n->t[n->n_t - 1]);
    assert_string_equal(berth_context_error(n->ctx), "");
}

// ---- both allocators ----

struct rival_api {
    ggml_gallocr_t (*new_n)(ggml_backend_buffer_type_t *, int);
    void (*free)(ggml_gallocr_t);
    void (*sizes)(ggml_gallocr_t, struct ggml_cgraph *, const int *, const int *, size_t *);
};

static inline bool rival_load(struct rival_api *api) {
    void *base = oracle_load("libggml-base.so");
    if (base == NULL) {
        return false;
    }
    *(void **) &api->new_n = dlsym(base, "ggml_gallocr_new_n");
    *(void **) &api->free = dlsym(base, "ggml_gallocr_free");
    *(void **) &api->sizes = dlsym(base, "ggml_gallocr_reserve_n_size");
    return api->new_n != NULL && api->free != NULL && api->sizes != NULL;
}

static inline size_t rival_total(
    const struct rival_api *api, struct rival_net *n, int n_bufs, const int *node_ids, const int *leaf_ids, size_t *sizes) {
    ggml_backend_buffer_type_t types[RIVAL_BUFS_MAX];
    size_t total = 0;
    for (int i = 0; i < n_bufs; i++) {
        types[i] = &rival_bufts[i];
        sizes[i] = 0;
    }
    ggml_gallocr_t galloc = api->new_n(types, n_bufs);
    api->sizes(galloc, n->graph, node_ids, leaf_ids, sizes);
    api->free(galloc);
    for (int i = 0; i < n_bufs; i++) {
        total += sizes[i];
    }
    return total;
}

// Returns whether Berth's size is larger. Adds Berth's size, divided by the reference's, to *ratio_sum.
static inline bool rival_case(const struct rival_api *ggml, uint64_t seed, double *ratio_sum) {
    const struct rival_api berth = {ggml_gallocr_new_n, ggml_gallocr_free, ggml_gallocr_reserve_n_size};
    struct check_rng r = check_rng_new(seed ^ 0x517A1);
    struct rival_net n;
    int node_ids[128], leaf_ids[128];
    size_t a[RIVAL_BUFS_MAX], b[RIVAL_BUFS_MAX];
    rival_types_draw(&r);
    rival_net_build(&n, &r);
    const int n_bufs = 1 + (int) check_rng_below(&r, RIVAL_BUFS_MAX);
    for (int i = 0; i < 128; i++) {
        node_ids[i] = (int) check_rng_below(&r, (uint64_t) n_bufs);
        leaf_ids[i] = (int) check_rng_below(&r, (uint64_t) n_bufs);
    }
    const size_t ours = rival_total(&berth, &n, n_bufs, node_ids, leaf_ids, a);
    const size_t reference = rival_total(ggml, &n, n_bufs, node_ids, leaf_ids, b);
    bool is_larger = ours > reference;
    if (is_larger) {
        printf("seed %llu: Berth takes %zu bytes, the reference %zu:", (unsigned long long) seed, ours, reference);
        for (int i = 0; i < n_bufs; i++) {
            printf(" [align %zu max %lld] %zu, %zu;", rival_types[i].align, (long long) rival_types[i].max, a[i], b[i]);
        }
        printf(" %d nodes\n", ggml_graph_n_nodes(n.graph));
    }
    *ratio_sum += reference > 0 ? (double) ours / (double) reference : 1.0;
    ggml_free(n.ctx);
    return is_larger;
}

static inline void rival_cases(uint64_t seed, int count) {
    struct rival_api ggml;
    check_quiet();
    if (!rival_load(&ggml)) {
        printf("skipped: %s\n", oracle_why());
        skip();
    }
    int n_larger = 0;
    double ratio_sum = 0;
    for (int i = 0; i < count; i++) {
        n_larger += rival_case(&ggml, seed + (uint64_t) i, &ratio_sum);
    }
    printf("%d graphs: Berth takes %.4f of the reference's bytes on average, more for %d graphs\n", count, ratio_sum / count,
        n_larger);
    assert_int_equal(n_larger, 0);
}
