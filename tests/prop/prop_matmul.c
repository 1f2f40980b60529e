// SPDX-License-Identifier: MIT
// prop_matmul.c: products and attention with random shapes, types, batches and layouts. The results have the same bits for every
// number of threads and are close to those of the portable kernels. Sources, results and work memory each end before a page that
// cannot be accessed.

#include "support/walled.h"

#include "core/graph.h"
#include "cpu/cpu.h"
#include "cpu/op/gemm.h"

#include <math.h>

#define N_WALLED 16

// The guarded memory (walled.h) of the current case.
static struct {
    void *at;
    size_t size;
} list[N_WALLED];
static int n_list;

static void *listed(size_t size) {
    assert_true(n_list < N_WALLED);
    list[n_list].at = walled(size);
    list[n_list].size = size;
    return list[n_list++].at;
}

static void list_free(void) {
    while (n_list > 0) {
        n_list--;
        walled_free(list[n_list].at, list[n_list].size);
    }
}

static int64_t pick(struct check_rng *r, int64_t low, int64_t high) {
    return low + (int64_t) check_rng_below(r, (uint64_t) (high - low + 1));
}

// ---- tensors ----

// Gaps between rows keep the NaN values that walled() has set.
static void fill(struct check_rng *r, struct ggml_tensor *t) {
    float row[4096];
    for (int64_t i = 0; i < ggml_nrows(t); i++) {
        const struct cpu_row_pos at = cpu_row_pos(t, i);
        for (int64_t k = 0; k < t->ne[0]; k++) {
            row[k] = (float) ((double) (int64_t) (check_rng_next(r) >> 40) / 8388608.0 - 1.0);
        }
        if (t->nb[0] == ggml_type_size(t->type)) {
            cpu_kernels_portable.traits[t->type].from_float(row, cpu_row(t, at), t->ne[0]);
        } else {
            for (int64_t k = 0; k < t->ne[0]; k++) {
                cpu_kernels_portable.traits[t->type].from_float(row + k, cpu_row(t, at) + (size_t) k * t->nb[0], 1);
            }
        }
    }
}

// Makes a tensor in guarded memory: dense, with gaps between its rows, with dimensions 1 and 2 swapped in memory, or 0 and 1.
static struct ggml_tensor *tensor(struct check_rng *r, struct ggml_context *ctx, enum ggml_type type, const int64_t *ne) {
    struct ggml_tensor *t = ggml_new_tensor_4d(ctx, type, ne[0], ne[1], ne[2], ne[3]);
    const size_t row = ggml_row_size(type, ne[0]), unit = ggml_type_size(type);
    const int form = (int) check_rng_below(r, 5);
    if (form == 1) { // gaps
        t->nb[1] = row + unit * check_rng_below(r, 3);
        t->nb[2] = t->nb[1] * (size_t) ne[1] + unit * check_rng_below(r, 3);
        t->nb[3] = t->nb[2] * (size_t) ne[2];
    } else if (form == 2) { // permuted 0 2 1 3
        t->nb[2] = row;
        t->nb[1] = row * (size_t) ne[2];
        t->nb[3] = t->nb[1] * (size_t) ne[1];
    } else if (form == 3 && ggml_blck_size(type) == 1) { // transposed
        t->nb[1] = unit;
        t->nb[0] = unit * (size_t) ne[1];
        t->nb[2] = row * (size_t) ne[1];
        t->nb[3] = t->nb[2] * (size_t) ne[2];
    }
    t->data = listed(ggml_nbytes(t));
    fill(r, t);
    return t;
}

// Adds gaps between the rows of a result. They hold NaN and must keep it.
static void rows_add_gaps(struct check_rng *r, struct ggml_tensor *t) {
    t->nb[1] += sizeof(float) * check_rng_below(r, 4);
    t->nb[2] = t->nb[1] * (size_t) t->ne[1] + sizeof(float) * check_rng_below(r, 2);
    t->nb[3] = t->nb[2] * (size_t) t->ne[2];
}

// ---- one op ----

// Returns the bytes of the result. The work memory has the bytes that the op needs, rounded up to a multiple of 64. It lacks the
// bytes that ggml_graph_plan adds for alignment. So it ends directly before the inaccessible page.
static char *compute(struct ggml_context *ctx, struct ggml_tensor *op, int n_threads, bool use_ref) {
    struct ggml_cgraph *graph = ggml_new_graph_custom(ctx, 8, false);
    graph->nodes[0] = op;
    graph->n_nodes = 1;
    op->flags |= GGML_TENSOR_FLAG_COMPUTE;
    op->data = listed(ggml_nbytes(op));
    struct ggml_cplan plan = ggml_graph_plan(graph, n_threads, NULL);
    plan.work_data = plan.work_size > 0 ? listed((plan.work_size - 1) / 64 * 64) : NULL;
    plan.use_ref = use_ref;
    if (ggml_graph_compute(graph, &plan) != GGML_STATUS_SUCCESS) {
        fail_msg("%s", berth_last_error());
    }
    return op->data;
}

static bool is_element(const struct ggml_tensor *t, size_t off) {
    const size_t i3 = off / t->nb[3], r3 = off % t->nb[3], i2 = r3 / t->nb[2], r2 = r3 % t->nb[2], i1 = r2 / t->nb[1];
    return (int64_t) i3 < t->ne[3] && (int64_t) i2 < t->ne[2] && (int64_t) i1 < t->ne[1] &&
           r2 % t->nb[1] < (size_t) t->ne[0] * sizeof(float);
}

static void check(struct ggml_context *ctx, struct ggml_tensor *op, double tolerance, const char *what) {
    const size_t size = ggml_nbytes(op);
    const char *one = compute(ctx, op, 1, false), *ref = compute(ctx, op, 2, true);
    for (int n = 2; n <= 5; n += 3) {
        const char *many = compute(ctx, op, n, false);
        if (memcmp(one, many, size) != 0) {
            fail_msg("%s: %d threads give other bits than one", what, n);
        }
    }
    for (size_t off = 0; off < size; off += sizeof(float)) {
        float got, want;
        memcpy(&got, one + off, sizeof got);
        memcpy(&want, ref + off, sizeof want);
        if (!is_element(op, off)) {
            assert_true(isnan(got));
        } else if (!(fabs((double) got - (double) want) <= tolerance)) {
            fail_msg("%s: %g instead of %g at byte %zu of %zu", what, (double) got, (double) want, off, size);
        }
    }
    list_free();
}

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
    assert_true(cpu_kernels_best.gemm[a].run == NULL || cpu_gemm_work_size(a, y, 1) < ggml_nbytes(y));
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
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_products), cmocka_unit_test(several_rounds), cmocka_unit_test(random_attention)};
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests_name("prop_matmul", tests, NULL, NULL);
}
