// SPDX-License-Identifier: MIT
// prop_matmul.c: products and attention with random shapes, types, batches and layouts. The results have the same bits for every
// number of threads and are close to those of the portable kernels. Every number of columns from 1 to 70 occurs with some formats
// (long_matmul.c: with all). With batch invariance, the results have the same bits for every number of columns.

#include "matmul_cases.h"

#include "berth-cpu.h"
#include "ggml-backend.h"

// ---- products ----

static enum ggml_type pick_type(struct check_rng *r) {
    for (;;) {
        const enum ggml_type type = (enum ggml_type) check_rng_below(r, GGML_TYPE_COUNT);
        const struct ggml_type_traits_cpu *traits = &cpu_kernels_portable.traits[type];
        if (traits->vec_dot != NULL && traits->from_float != NULL) {
            return type;
        }
    }
}

static void product(struct check_rng *r, uint64_t seed) {
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = 1 << 16, .no_alloc = true});
    const enum ggml_type a = pick_type(r), b = check_rng_below(r, 4) > 0 ? GGML_TYPE_F32 : GGML_TYPE_F16;
    const int64_t blck = ggml_blck_size(a), n = blck == 1 ? pick(r, 1, 300) : blck * pick(r, 1, blck == 32 ? 12 : 3);
    const int64_t batch2 = pick(r, 1, 2), batch3 = pick(r, 1, 2), many2 = pick(r, 1, 3), many3 = pick(r, 1, 2);
    const int64_t ne_a[] = {n, pick(r, 1, 90), batch2, batch3};
    const int64_t ne_b[] = {n, check_rng_below(r, 3) == 0 ? pick(r, 1, 4) : pick(r, 5, 60), batch2 * many2, batch3 * many3};
    char what[128];
    snprintf(what, sizeof what, "seed %llu: %s %d x %d times %s x %d, batches %d %d times %d %d", (unsigned long long) seed,
        ggml_type_name(a), (int) n, (int) ne_a[1], ggml_type_name(b), (int) ne_b[1], (int) batch2, (int) batch3, (int) many2,
        (int) many3);
    struct ggml_tensor *x = tensor(r, ctx, a, ne_a);
    if (x->nb[0] != ggml_type_size(a)) { // the op requires dense rows
        ggml_free(ctx);
        list_free();
        return;
    }
    struct ggml_tensor *op = ggml_mul_mat(ctx, x, tensor(r, ctx, b, ne_b));
    rows_add_gaps(r, op);
    // The numbers are below 1, and f16 and 8-bit values round them to 8 to 11 bits.
    check(ctx, op, 0.02 * sqrt((double) n) + 1e-3, what);
    ggml_free(ctx);
}

static void attention(struct check_rng *r, uint64_t seed) {
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = 1 << 16, .no_alloc = true});
    const enum ggml_type types[] = {GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_BF16, GGML_TYPE_Q8_0, GGML_TYPE_Q4_0};
    const enum ggml_type type = types[check_rng_below(r, 5)];
    const int64_t d = type >= GGML_TYPE_Q4_0 && type != GGML_TYPE_BF16 ? 32 * pick(r, 1, 4) : pick(r, 1, 130);
    const int64_t n_kv = check_rng_below(r, 2) == 0 ? pick(r, 1, 70) : pick(r, 200, 900), n_heads = pick(r, 1, 3);
    const int64_t ne_q[] = {d, pick(r, 1, 40), n_heads * pick(r, 1, 3), 2}, ne_k[] = {d, n_kv, n_heads, 2};
    const int64_t ne_m[] = {
        n_kv + pick(r, 0, 3), ne_q[1] + pick(r, 0, 3), check_rng_below(r, 2) == 0 ? ne_q[2] : 1, pick(r, 1, 2)};
    char what[128];
    snprintf(what, sizeof what, "seed %llu: attention, %s keys %d x %d, %d queries, heads %d of %d", (unsigned long long) seed,
        ggml_type_name(type), (int) d, (int) n_kv, (int) ne_q[1], (int) n_heads, (int) ne_q[2]);
    struct ggml_tensor *q = tensor(r, ctx, GGML_TYPE_F32, ne_q), *k = tensor(r, ctx, type, ne_k), *v = tensor(r, ctx, type, ne_k);
    if (k->nb[0] != ggml_type_size(type)) {
        ggml_free(ctx);
        list_free();
        return;
    }
    struct ggml_tensor *mask = NULL;
    if (check_rng_below(r, 3) > 0) {
        mask = ggml_new_tensor_4d(ctx, GGML_TYPE_F16, ne_m[0], ne_m[1], ne_m[2], ne_m[3]);
        mask->data = listed(ggml_nbytes(mask));
        for (int64_t i = 0; i < ggml_nelements(mask); i++) {
            ((uint16_t *) mask->data)[i] = i % ne_m[0] > i / ne_m[0] % ne_m[1] * 7 + 3 ? 0xfc00 : 0;
        }
    }
    struct ggml_tensor *op = ggml_flash_attn_ext(ctx, q, k, v, mask, 1.0f / sqrtf((float) d), 0.0f, 0.0f);
    rows_add_gaps(r, op);
    check(ctx, op, 0.02, what);
    ggml_free(ctx);
}

// The product has more columns than the panels (repacked columns) can hold at once. So the op repacks and multiplies them in
// several rounds. Several batches of columns may use the same matrix.
static void rounds(struct check_rng *r, uint64_t seed) {
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = 1 << 16, .no_alloc = true});
    const enum ggml_type types[] = {GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_Q8_0, GGML_TYPE_Q4_K};
    const enum ggml_type a = types[seed % 4];
    const int64_t n = a == GGML_TYPE_Q4_K ? 256 : 64 * pick(r, 1, 4), share2 = pick(r, 1, 3), share3 = pick(r, 1, 2);
    const int64_t batch2 = pick(r, 1, 3), batch3 = pick(r, 1, 2), n_batches = batch2 * batch3 * share2 * share3;
    const int64_t ne_a[] = {n, pick(r, 1, 20), batch2, batch3};
    const int64_t ne_b[] = {n, ((1 << 20) / n + pick(r, 1, 3000)) / n_batches + 1, batch2 * share2, batch3 * share3};
    char what[128];
    snprintf(what, sizeof what, "seed %llu: %s %d x %d times f32 x %d, batches %d %d times %d %d", (unsigned long long) seed,
        ggml_type_name(a), (int) n, (int) ne_a[1], (int) ne_b[1], (int) batch2, (int) batch3, (int) share2, (int) share3);
    struct ggml_tensor *x = ggml_new_tensor_4d(ctx, a, ne_a[0], ne_a[1], ne_a[2], ne_a[3]);
    struct ggml_tensor *y = ggml_new_tensor_4d(ctx, GGML_TYPE_F32, ne_b[0], ne_b[1], ne_b[2], ne_b[3]);
    x->data = listed(ggml_nbytes(x));
    y->data = listed(ggml_nbytes(y));
    fill(r, x);
    fill(r, y);
    struct ggml_tensor *op = ggml_mul_mat(ctx, x, y);
    assert_true(cpu_kernels_best.gemm[a].run == NULL || cpu_gemm_work_size(&cpu_kernels_best, a, y, 1) < ggml_nbytes(y));
    check(ctx, op, 0.02 * sqrt((double) n) + 1e-3, what);
    ggml_free(ctx);
}

static void run(void (*op)(struct check_rng *, uint64_t), int n) {
    cpu_init();
    const uint64_t seed = check_seed(1);
    for (int i = 0; i < n; i++) {
        struct check_rng rng = check_rng_new(seed + (uint64_t) i);
        op(&rng, seed + (uint64_t) i);
    }
}

// Each number of columns with a few formats. All formats occur.
static void every_number_of_columns(void **state) {
    (void) state;
    cpu_init();
    const uint64_t seed = check_seed(1);
    enum ggml_type all[GGML_TYPE_COUNT];
    const int n_formats = formats(all), n_each = check_cases(4);
    for (int64_t n = 1; n <= COLUMNS_MAX; n++) {
        for (int i = 0; i < n_each; i++) {
            columns_case(seed, all[(n * n_each + i + (int64_t) (seed % 1000)) % n_formats], n);
        }
    }
}

// ---- batch invariance: a result has the same bits for every number of columns, tokens or sequences ----

#define BATCH_MAX 33

static const float *compute_invariant(struct ggml_context *ctx, struct ggml_tensor *op, int n_threads) {
    static ggml_backend_t backend;
    if (backend == NULL) {
        backend = ggml_backend_cpu_init();
        berth_cpu_set_batch_invariant(backend, true);
    }
    struct ggml_cgraph *graph = ggml_new_graph_custom(ctx, 8, false);
    graph->nodes[0] = op;
    graph->n_nodes = 1;
    op->flags |= GGML_TENSOR_FLAG_COMPUTE;
    op->data = listed(ggml_nbytes(op));
    ggml_backend_cpu_set_n_threads(backend, n_threads);
    if (ggml_backend_graph_compute(backend, graph) != GGML_STATUS_SUCCESS) {
        fail_msg("%s", berth_last_error());
    }
    return op->data;
}

static struct ggml_context *context(void) {
    return ggml_init((struct ggml_init_params){.mem_size = 1 << 16, .no_alloc = true});
}

// Returns a tensor with the last n of all in dimension `dim`.
static struct ggml_tensor *last_of(struct ggml_context *ctx, const struct ggml_tensor *all, int dim, int64_t n) {
    struct ggml_tensor *t = ggml_new_tensor(ctx, all->type, 4, all->ne);
    memcpy(t->nb, all->nb, sizeof t->nb);
    t->ne[dim] = n;
    t->data = (char *) all->data + (size_t) (all->ne[dim] - n) * all->nb[dim];
    return t;
}

static struct ggml_tensor *floats(struct check_rng *r, struct ggml_context *ctx, enum ggml_type type, const int64_t *ne) {
    struct ggml_tensor *t = ggml_new_tensor(ctx, type, 4, ne);
    t->data = listed(ggml_nbytes(t));
    fill(r, t);
    return t;
}

static void expect_same(const float *got, const float *all, int64_t n, int64_t n_all, const char *what) {
    if (memcmp(got, all + (n_all - n), (size_t) n * sizeof *got) != 0) {
        fail_msg("%s: other bits than with the whole batch", what);
    }
}

static void invariant_products(void **state) {
    (void) state;
    cpu_init();
    const uint64_t seed = check_seed(1);
    enum ggml_type all[GGML_TYPE_COUNT];
    const int n_formats = formats(all);
    for (int i = 0; i < 2 * n_formats; i++) {
        const enum ggml_type type = all[i % n_formats];
        struct check_rng rng = check_rng_new(seed + (uint64_t) i), *r = &rng;
        const int64_t n = random_length(r, type), n_rows = pick(r, 1, 40);
        for (int64_t n_cols = BATCH_MAX - 1; n_cols > 0; n_cols -= check_step()) {
            struct check_rng same = rng;
            struct ggml_context *ctx = context();
            struct ggml_tensor *x = weights_new(&same, ctx, type, n, n_rows, 1);
            struct ggml_tensor *y = floats(&same, ctx, GGML_TYPE_F32, (int64_t[]){n, BATCH_MAX, 1, 1});
            const float *whole = compute_invariant(ctx, ggml_mul_mat(ctx, x, y), 1);
            const float *some = compute_invariant(ctx, ggml_mul_mat(ctx, x, last_of(ctx, y, 1, n_cols)), (int) pick(&same, 1, 3));
            char what[128];
            snprintf(what, sizeof what, "%s, %d elements, %d rows, %d columns", ggml_type_name(type), (int) n, (int) n_rows,
                (int) n_cols);
            expect_same(some, whole, n_cols * n_rows, BATCH_MAX * n_rows, what);
            list_free();
            ggml_free(ctx);
        }
    }
}

// Tokens of MUL_MAT_ID. Each uses 2 of 4 experts.
static void invariant_experts(void **state) {
    (void) state;
    cpu_init();
    const uint64_t seed = check_seed(1);
    enum ggml_type all[GGML_TYPE_COUNT];
    const int n_formats = formats(all);
    for (int i = 0; i < n_formats; i++) {
        struct check_rng rng = check_rng_new(seed + (uint64_t) i), *r = &rng;
        const int64_t n = random_length(r, all[i]), n_rows = pick(r, 1, 40);
        for (int64_t n_tokens = BATCH_MAX - 1; n_tokens > 0; n_tokens -= check_step()) {
            struct check_rng same = rng;
            struct ggml_context *ctx = context();
            struct ggml_tensor *x = weights_new(&same, ctx, all[i], n, n_rows, 4);
            struct ggml_tensor *y = floats(&same, ctx, GGML_TYPE_F32, (int64_t[]){n, 1, BATCH_MAX, 1});
            struct ggml_tensor *ids = ggml_new_tensor_2d(ctx, GGML_TYPE_I32, 2, BATCH_MAX);
            int32_t *id = ids->data = listed(ggml_nbytes(ids));
            for (int t = 0; t < BATCH_MAX; t++) {
                id[2 * t] = (int32_t) pick(&same, 0, 3);
                id[2 * t + 1] = (id[2 * t] + (int32_t) pick(&same, 1, 3)) % 4;
            }
            const float *whole = compute_invariant(ctx, ggml_mul_mat_id(ctx, x, y, ids), 1);
            const float *some = compute_invariant(ctx,
                ggml_mul_mat_id(ctx, x, last_of(ctx, y, 2, n_tokens), last_of(ctx, ids, 1, n_tokens)), (int) pick(&same, 1, 3));
            char what[128];
            snprintf(what, sizeof what, "experts of %s, %d elements, %d rows, %d tokens", ggml_type_name(all[i]), (int) n,
                (int) n_rows, (int) n_tokens);
            expect_same(some, whole, 2 * n_tokens * n_rows, 2 * BATCH_MAX * n_rows, what);
            list_free();
            ggml_free(ctx);
        }
    }
}

// Attention of sequences with a cache each: dim 3, one query per sequence. Attention of the tokens of a prompt: dim 1.
static void invariant_attention(void **state) {
    (void) state;
    cpu_init();
    const uint64_t seed = check_seed(1);
    const enum ggml_type types[] = {GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_BF16, GGML_TYPE_Q8_0, GGML_TYPE_Q4_0};
    for (int i = 0; i < 10; i++) {
        struct check_rng rng = check_rng_new(seed + (uint64_t) i), *r = &rng;
        const int dim = i < 5 ? 3 : 1;
        const int64_t d = 32 * pick(r, 1, 4), n_kv = 64 * pick(r, 1, 12), n_heads = pick(r, 1, 3), n_q = n_heads * pick(r, 1, 4);
        for (int64_t n = BATCH_MAX - 1; n > 0; n -= check_step()) {
            struct check_rng same = rng;
            struct ggml_context *ctx = context();
            int64_t ne_q[] = {d, 1, n_q, 1}, ne_k[] = {d, n_kv, n_heads, dim == 3 ? BATCH_MAX : 1}, ne_m[] = {n_kv, 1, 1, 1};
            ne_q[dim] = ne_m[dim] = BATCH_MAX;
            struct ggml_tensor *q = floats(&same, ctx, GGML_TYPE_F32, ne_q), *k = floats(&same, ctx, types[i % 5], ne_k);
            struct ggml_tensor *v = floats(&same, ctx, types[i % 5], ne_k), *mask = floats(&same, ctx, GGML_TYPE_F16, ne_m);
            for (int64_t j = 0; j < ggml_nelements(mask); j++) { // each query sees the keys before a random one
                if (j % n_kv > 1 + j / n_kv * 7919 % n_kv) {
                    ((uint16_t *) mask->data)[j] = 0xfc00; // -inf
                }
            }
            const float scale = 1.0f / sqrtf((float) d);
            const float *whole = compute_invariant(ctx, ggml_flash_attn_ext(ctx, q, k, v, mask, scale, 0.0f, 0.0f), 1);
            if (dim == 3) {
                k = last_of(ctx, k, dim, n);
                v = last_of(ctx, v, dim, n);
            }
            const float *some = compute_invariant(ctx,
                ggml_flash_attn_ext(ctx, last_of(ctx, q, dim, n), k, v, last_of(ctx, mask, dim, n), scale, 0.0f, 0.0f),
                (int) pick(&same, 1, 3));
            char what[128];
            snprintf(what, sizeof what, "attention, %s, heads of %d, %d keys, heads %d of %d, %d %s",
                ggml_type_name(types[i % 5]), (int) d, (int) n_kv, (int) n_heads, (int) n_q, (int) n,
                dim == 3 ? "sequences" : "tokens");
            expect_same(some, whole, d * n_q * n, d * n_q * BATCH_MAX, what);
            list_free();
            ggml_free(ctx);
        }
    }
}

static void random_products(void **state) {
    (void) state;
    run(product, check_cases(150));
}

static void several_rounds(void **state) {
    (void) state;
    run(rounds, check_cases(16) < 4 ? 4 : check_cases(16));
}

static void random_attention(void **state) {
    (void) state;
    run(attention, check_cases(60));
}

// An argument selects one of the tests.
int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_products), cmocka_unit_test(every_number_of_columns),
        cmocka_unit_test(several_rounds), cmocka_unit_test(random_attention), cmocka_unit_test(invariant_products),
        cmocka_unit_test(invariant_experts), cmocka_unit_test(invariant_attention)};
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests_name("prop_matmul", tests, NULL, NULL);
}
