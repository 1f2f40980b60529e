// SPDX-License-Identifier: MIT
// prop_meta.c: random graphs on composite devices of 2, 3 and 4 CPUs, with weights and caches split at random. The results must
// equal those of one CPU up to rounding. META_ONE=seed META_N=n prints one graph on n devices.

#include "support/meta_split.h"

#include <math.h>

#define N_GRAPHS check_cases(300)
#define N_POOL 64

struct net {
    struct ggml_context *fixed, *ctx; // fixed: weights, inputs and caches; ctx: the graph
    struct ggml_cgraph *graph;
    struct ggml_tensor *pool[N_POOL];
    int n;
    struct check_rng rng;
    int n_fixed;
};

static uint64_t below(struct net *m, uint64_t n) {
    return check_rng_below(&m->rng, n);
}

static struct ggml_tensor *fixed_new(struct net *m, enum ggml_type type, int64_t a, int64_t b, int64_t c, const char *kind) {
    struct ggml_tensor *t = ggml_new_tensor_3d(m->fixed, type, a, b, c);
    ggml_format_name(t, "%s%d", kind, m->n_fixed++);
    return t;
}

static void pool_add(struct net *m, struct ggml_tensor *t) {
    if (m->n < N_POOL) {
        m->pool[m->n++] = t;
    }
}

static struct ggml_tensor *pick(struct net *m) {
    return m->pool[below(m, (uint64_t) m->n)];
}

// Returns a tensor of the pool with the shape of t, or a new weight with that shape.
static struct ggml_tensor *pick_like(struct net *m, struct ggml_tensor *t) {
    for (int tries = 0; tries < 8; tries++) {
        struct ggml_tensor *o = pick(m);
        if (ggml_are_same_shape(o, t)) {
            return o;
        }
    }
    return fixed_new(m, GGML_TYPE_F32, t->ne[0], t->ne[1], t->ne[2], "w");
}

static struct ggml_tensor *dense(struct net *m, struct ggml_tensor *t) {
    const bool is_dense = t->nb[0] == sizeof(float) && t->nb[1] == t->nb[0] * (size_t) t->ne[0] &&
                          t->nb[2] == t->nb[1] * (size_t) t->ne[1] && t->nb[3] == t->nb[2] * (size_t) t->ne[2];
    return is_dense ? t : ggml_cont(m->ctx, t);
}

typedef struct ggml_tensor *(*build_fn)(struct net *m);

static struct ggml_tensor *build_product(struct net *m) {
    static const enum ggml_type types[] = {GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_Q8_0, GGML_TYPE_Q4_0};
    struct ggml_tensor *x = dense(m, pick(m));
    enum ggml_type type = types[below(m, 4)];
    type = x->ne[0] % ggml_blck_size(type) == 0 ? type : GGML_TYPE_F32;
    static const int64_t outs[] = {32, 64, 96, 128};
    const int64_t n_mat = below(m, 4) == 0 ? x->ne[2] : 1;
    return ggml_mul_mat(m->ctx, fixed_new(m, type, x->ne[0], outs[below(m, 4)], n_mat, "w"), x);
}

static struct ggml_tensor *build_pair(struct net *m) {
    struct ggml_tensor *a = pick(m), *b = pick_like(m, a);
    const uint64_t kind = below(m, 4);
    return kind == 0   ? ggml_add(m->ctx, a, b)
           : kind == 1 ? ggml_mul(m->ctx, a, b)
           : kind == 2 ? ggml_sub(m->ctx, a, b)
                       : ggml_swiglu_split(m->ctx, dense(m, a), dense(m, b));
}

static struct ggml_tensor *build_broadcast(struct net *m) {
    struct ggml_tensor *a = pick(m);
    struct ggml_tensor *w = fixed_new(m, GGML_TYPE_F32, a->ne[0], below(m, 2) == 0 ? 1 : a->ne[1], 1, "w");
    return below(m, 2) == 0 ? ggml_mul(m->ctx, a, w) : ggml_add(m->ctx, a, w);
}

static struct ggml_tensor *build_norm(struct net *m) {
    struct ggml_tensor *a = pick(m);
    return below(m, 2) == 0 ? ggml_rms_norm(m->ctx, a, 1e-5f) : ggml_norm(m->ctx, a, 1e-5f);
}

static struct ggml_tensor *build_soft_max(struct net *m) {
    struct ggml_tensor *a = dense(m, pick(m));
    struct ggml_tensor *mask = below(m, 2) == 0 ? fixed_new(m, GGML_TYPE_F32, a->ne[0], a->ne[1], 1, "mask") : NULL;
    return ggml_soft_max_ext(m->ctx, a, mask, 0.5f, 0.0f);
}

static struct ggml_tensor *build_unary(struct net *m) {
    struct ggml_tensor *a = dense(m, pick(m));
    const uint64_t kind = below(m, 4);
    return kind == 0   ? ggml_silu(m->ctx, a)
           : kind == 1 ? ggml_scale(m->ctx, a, 0.7f)
           : kind == 2 ? ggml_tanh(m->ctx, a)
                       : ggml_scale_bias(m->ctx, a, 0.5f, 0.1f);
}

static struct ggml_tensor *build_glu(struct net *m) {
    struct ggml_tensor *a = dense(m, pick(m));
    return a->ne[0] % 2 == 0 ? ggml_swiglu(m->ctx, a) : ggml_silu(m->ctx, a);
}

static struct ggml_tensor *build_shape(struct net *m) {
    struct ggml_tensor *a = dense(m, pick(m));
    const int64_t n = ggml_nelements(a);
    switch (below(m, 5)) {
        case 0: return ggml_reshape_3d(m->ctx, a, 8, a->ne[0] / 8, n / a->ne[0]);
        case 1: return ggml_reshape_2d(m->ctx, a, a->ne[0] * a->ne[1], a->ne[2]);
        case 2: return ggml_permute(m->ctx, a, 0, 2, 1, 3);
        case 3: return ggml_cont(m->ctx, ggml_transpose(m->ctx, a));
        default: return ggml_cont_2d(m->ctx, a, n / a->ne[1], a->ne[1]);
    }
}

static struct ggml_tensor *build_view(struct net *m) {
    struct ggml_tensor *a = pick(m);
    if (a->ne[1] < 2 || a->ne[0] < 16) {
        return ggml_cont(m->ctx, a);
    }
    if (below(m, 2) == 0) { // a range of rows
        const int64_t from = (int64_t) below(m, (uint64_t) a->ne[1] / 2);
        return ggml_view_3d(m->ctx, a, a->ne[0], a->ne[1] - from, a->ne[2], a->nb[1], a->nb[2], (size_t) from * a->nb[1]);
    }
    return ggml_view_3d(m->ctx, a, a->ne[0] / 2, a->ne[1], a->ne[2], a->nb[1], a->nb[2], (size_t) (a->ne[0] / 2) * a->nb[0]);
}

static struct ggml_tensor *build_concat(struct net *m) {
    struct ggml_tensor *a = pick(m);
    return ggml_nelements(a) < 20000 ? ggml_concat(m->ctx, a, pick_like(m, a), (int) below(m, 3))
                                     : ggml_scale(m->ctx, dense(m, a), 1.1f);
}

static struct ggml_tensor *build_rope(struct net *m) {
    struct ggml_tensor *a = dense(m, pick(m));
    struct ggml_tensor *x = ggml_reshape_3d(m->ctx, a, 8, ggml_nelements(a) / 8 / a->ne[2], a->ne[2]);
    return ggml_rope(m->ctx, x, fixed_new(m, GGML_TYPE_I32, a->ne[2], 1, 1, "pos"), 8, 0);
}

static struct ggml_tensor *build_rows(struct net *m) {
    struct ggml_tensor *a = dense(m, pick(m));
    struct ggml_tensor *x = ggml_reshape_2d(m->ctx, a, a->ne[0], a->ne[1] * a->ne[2]);
    if (x->ne[1] < 6) {
        return ggml_scale(m->ctx, x, 2.0f);
    }
    return ggml_get_rows(m->ctx, x, fixed_new(m, GGML_TYPE_I32, 8, 1, 1, "ids"));
}

static struct ggml_tensor *build_cache(struct net *m) {
    struct ggml_tensor *a = dense(m, pick(m));
    struct ggml_tensor *x = ggml_reshape_2d(m->ctx, a, a->ne[0], a->ne[1] * a->ne[2]);
    const enum ggml_type type = below(m, 2) == 0 ? GGML_TYPE_F32 : GGML_TYPE_F16;
    struct ggml_tensor *cache = fixed_new(m, type, x->ne[0], x->ne[1] + 8, 1, "cache");
    struct ggml_tensor *to = ggml_view_2d(m->ctx, cache, x->ne[0], x->ne[1], cache->nb[1], 4 * cache->nb[1]);
    struct ggml_tensor *done = below(m, 2) == 0
                                   ? ggml_cpy(m->ctx, x, to)
                                   : ggml_set_rows(m->ctx, cache, x, fixed_new(m, GGML_TYPE_I64, x->ne[1], 1, 1, "rows"));
    return ggml_cast(m->ctx, done, GGML_TYPE_F32);
}

static struct ggml_tensor *build_sum(struct net *m) {
    struct ggml_tensor *a = dense(m, pick(m));
    return ggml_add(m->ctx, a, ggml_sum_rows(m->ctx, a));
}

static struct ggml_tensor *build_in_place(struct net *m) {
    struct ggml_tensor *a = ggml_scale(m->ctx, dense(m, pick(m)), 0.9f);
    return ggml_add_inplace(m->ctx, a, pick_like(m, a));
}

// Keys and values have fewer heads than queries.
static struct ggml_tensor *build_attention(struct net *m) {
    struct ggml_tensor *q = fixed_new(m, GGML_TYPE_F32, 32, 4, 4, "q"), *k = fixed_new(m, GGML_TYPE_F16, 32, 16, 2, "kv"),
                       *v = fixed_new(m, GGML_TYPE_F16, 32, 16, 2, "kv");
    return ggml_flash_attn_ext(m->ctx, q, k, v, fixed_new(m, GGML_TYPE_F16, 16, 4, 1, "mask"), 0.2f, 0.0f, 0.0f);
}

static const build_fn builders[] = {build_product, build_product, build_product, build_pair, build_pair, build_broadcast,
    build_norm, build_soft_max, build_unary, build_glu, build_shape, build_shape, build_view, build_concat, build_rope,
    build_rows, build_cache, build_sum, build_in_place, build_attention};

static struct net net_make(uint64_t seed) {
    struct net m = {.rng = check_rng_new(seed)};
    m.fixed = ggml_init((struct ggml_init_params){.mem_size = 256 * ggml_tensor_overhead(), .no_alloc = true});
    m.ctx = ggml_init((struct ggml_init_params){
        .mem_size = 1024 * ggml_tensor_overhead() + ggml_graph_overhead_custom(1024, false), .no_alloc = true});
    pool_add(&m, fixed_new(&m, GGML_TYPE_F32, 64, 8, 2, "x"));
    pool_add(&m, fixed_new(&m, GGML_TYPE_F32, 32, 6, 1, "x"));
    const int n_ops = 3 + (int) below(&m, 15);
    for (int i = 0; i < n_ops; i++) {
        struct ggml_tensor *t = builders[below(&m, sizeof builders / sizeof builders[0])](&m);
        if (berth_is_poison(t) || ggml_nelements(t) > 60000 || t->ne[3] > 1) { // the op refuses these shapes
            continue;
        }
        pool_add(&m, t);
    }
    m.graph = ggml_new_graph_custom(m.ctx, 1024, false);
    for (int i = 0; i < m.n; i++) {
        if (i >= m.n - 3) {
            ggml_set_output(m.pool[i]);
            if (m.pool[i]->view_src != NULL && m.pool[i]->view_src->op != GGML_OP_NONE) {
                ggml_set_output(m.pool[i]->view_src);
            }
            ggml_build_forward_expand(m.graph, m.pool[i]);
        }
    }
    return m;
}

static void net_free(struct net *m) {
    ggml_free(m->ctx);
    ggml_free(m->fixed);
}

// The numbers depend only on the tensor's name.
static void fill(struct ggml_tensor *t) {
    struct check_rng rng = check_rng_new(meta_split_hash(&(struct meta_split){.seed = 7}, t->name));
    const int64_t n = ggml_nelements(t);
    float *values = malloc((size_t) n * sizeof *values);
    void *bytes = calloc(1, ggml_nbytes(t) + 8);
    for (int64_t i = 0; i < n; i++) {
        values[i] = (float) ((double) check_rng_below(&rng, 2001) / 1000.0 - 1.0);
    }
    if (t->type == GGML_TYPE_I32 || t->type == GGML_TYPE_I64) { // I64: each row number once, in another order; I32: 0 to 5
        for (int64_t i = 0; i < n; i++) {
            const int64_t v = t->type == GGML_TYPE_I64 ? (i * 5 + 3) % n : i % 6;
            if (t->type == GGML_TYPE_I64) {
                ((int64_t *) bytes)[i] = n % 5 == 0 ? n - 1 - i : v;
            } else {
                ((int32_t *) bytes)[i] = (int32_t) v;
            }
        }
    } else {
        ggml_quantize_chunk(t->type, values, bytes, 0, n / t->ne[0], t->ne[0], NULL);
    }
    ggml_backend_tensor_set(t, bytes, 0, ggml_nbytes(t));
    free(values);
    free(bytes);
}

struct result {
    float *values;
    int64_t n;
};

static void read_into(const struct ggml_tensor *t, struct result *r) {
    r->n = ggml_nelements(t);
    r->values = calloc((size_t) r->n + 1, sizeof(float));
    char *raw = malloc(ggml_nbytes(t) + 1);
    ggml_backend_tensor_get(t, raw, 0, ggml_nbytes(t));
    for (int64_t i = 0; i < r->n; i++) {
        const int64_t at[4] = {
            i % t->ne[0], i / t->ne[0] % t->ne[1], i / t->ne[0] / t->ne[1] % t->ne[2], i / t->ne[0] / t->ne[1] / t->ne[2]};
        size_t off = 0;
        for (int d = 0; d < 4; d++) {
            off += (size_t) at[d] * t->nb[d];
        }
        memcpy(&r->values[i], raw + off, sizeof(float));
    }
    free(raw);
}

// Computes the graph twice and reads the last three tensors of the pool.
static void run(struct net *m, ggml_backend_t backend, struct result *out) {
    ggml_backend_buffer_type_t buft = ggml_backend_get_default_buffer_type(backend);
    ggml_backend_buffer_t weights = ggml_backend_alloc_ctx_tensors_from_buft(m->fixed, buft);
    assert_non_null(weights);
    ggml_gallocr_t galloc = ggml_gallocr_new(buft);
    if (!ggml_gallocr_alloc_graph(galloc, m->graph)) {
        fail_msg("%s", berth_last_error());
    }
    for (int pass = 0; pass < 2; pass++) {
        for (struct ggml_tensor *t = ggml_get_first_tensor(m->fixed); t != NULL; t = ggml_get_next_tensor(m->fixed, t)) {
            fill(t);
        }
        const enum ggml_status status = ggml_backend_graph_compute(backend, m->graph);
        if (status != GGML_STATUS_SUCCESS) {
            fail_msg("%s", berth_last_error());
        }
    }
    for (int i = 0; i < 3 && i < m->n; i++) {
        read_into(m->pool[m->n - 1 - i], &out[i]);
    }
    ggml_gallocr_free(galloc);
    ggml_backend_buffer_free(weights);
}

static double error_of(const struct result *got, const struct result *want) {
    double off = 0, all = 0;
    for (int64_t i = 0; i < want->n; i++) {
        const double d = (double) got->values[i] - (double) want->values[i];
        if (isnan(got->values[i]) != isnan(want->values[i])) {
            return INFINITY;
        }
        off += isfinite(d) ? d * d : 0;
        all += isfinite(want->values[i]) ? (double) want->values[i] * (double) want->values[i] : 0;
    }
    return off / (all > 0 ? all : 1);
}

static bool is_rounded(const struct net *m) {
    for (struct ggml_tensor *t = ggml_get_first_tensor(m->fixed); t != NULL; t = ggml_get_next_tensor(m->fixed, t)) {
        if (t->type == GGML_TYPE_F16 || ggml_is_quantized(t->type)) {
            return true;
        }
    }
    return false;
}

static void one_graph(uint64_t seed, int n_devices, bool is_verbose) {
    struct meta_split *split = calloc(1, sizeof *split); // not freed: devices live as long as the process
    *split = (struct meta_split){.seed = seed, .n = n_devices, .only_axis = -1, .may_be_sum = true};
    struct result want[3] = {{0}}, got[3] = {{0}};
    struct net plain = net_make(seed), parts = net_make(seed);
    ggml_backend_t cpu = ggml_backend_cpu_init();
    ggml_backend_t meta = ggml_backend_dev_init(meta_split_device(split), NULL);
    for (int j = 0; j < n_devices; j++) {
        ggml_backend_cpu_set_n_threads(ggml_backend_meta_simple_backend(meta, (size_t) j), 1);
    }
    ggml_backend_cpu_set_n_threads(cpu, 1);
    run(&plain, cpu, want);
    run(&parts, meta, got);
    struct berth_meta_stats stats;
    assert_true(berth_meta_stats(meta, &stats));
    assert_int_equal(stats.n_cache_misses, 1);
    assert_int_equal(stats.n_grown, 0); // the plan fitted the first graph and did not grow
    if (is_verbose) {
        for (int i = 0; i < ggml_graph_n_nodes(plain.graph); i++) {
            const struct ggml_tensor *t = ggml_graph_node(plain.graph, i);
            printf("%s %s [%lld %lld %lld] nb %zu %zu %zu offs %zu <-", t->name, ggml_op_name(t->op), (long long) t->ne[0],
                (long long) t->ne[1], (long long) t->ne[2], t->nb[0], t->nb[1], t->nb[2], t->view_offs);
            for (int k = 0; k < 4 && t->src[k] != NULL; k++) {
                printf(" %s", t->src[k]->name);
            }
            printf("\n");
        }
        for (struct ggml_tensor *t = ggml_get_first_tensor(plain.fixed); t != NULL; t = ggml_get_next_tensor(plain.fixed, t)) {
            const struct ggml_backend_meta_split_state s = meta_split_state(t, split);
            printf("%s %s [%lld %lld %lld] axis %d:", t->name, ggml_type_name(t->type), (long long) t->ne[0],
                (long long) t->ne[1], (long long) t->ne[2], (int) s.axis);
            for (uint32_t i = 0; i < s.n_segments && s.axis < 4; i++) {
                printf(" %ux", s.nr[i]);
                for (int j = 0; j < n_devices; j++) {
                    printf(" %lld", (long long) s.ne[i * (uint32_t) n_devices + (uint32_t) j]);
                }
            }
            printf("\n");
        }
        berth_meta_explain(meta, stdout);
    }
    // f16 and quantised rows are rounded after sums whose order may differ.
    const double most = is_rounded(&plain) ? 1e-4 : 1e-9;
    for (int i = 0; i < 3; i++) {
        const double error = want[i].values != NULL ? error_of(&got[i], &want[i]) : 0;
        if (!(error < most)) {
            fail_msg("seed %llu, %d devices, result %d of %lld numbers: nmse %g", (unsigned long long) seed, n_devices, i,
                (long long) want[i].n, error);
        }
        free(want[i].values);
        free(got[i].values);
    }
    ggml_backend_free(meta);
    ggml_backend_free(cpu);
    net_free(&plain);
    net_free(&parts);
}

static void random_graphs(void **state) {
    (void) state;
    const uint64_t seed = check_seed(1);
    if (getenv("META_ONE") != NULL) {
        one_graph(strtoull(getenv("META_ONE"), NULL, 0), atoi(getenv("META_N")), true);
        return;
    }
    for (uint64_t i = 0; i < (uint64_t) N_GRAPHS; i++) {
        one_graph(seed * 1000 + i, 2 + (int) (i % 3), false);
    }
}

int main(void) {
    check_quiet();
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_graphs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
