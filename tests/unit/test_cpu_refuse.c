// SPDX-License-Identifier: MIT
// test_cpu_refuse.c: graphs that constructors let through but that cannot be computed end in GGML_STATUS_FAILED, with the numbers
// in the error, and nothing outside the tensors is touched.

#include "support/check.h"

#include "ggml-cpu.h"

#define MEM (1 << 20)

static struct ggml_context *arena(void) {
    check_quiet();
    return ggml_init((struct ggml_init_params){.mem_size = MEM});
}

static void expect_failure(struct ggml_context *ctx, struct ggml_tensor *t, const char *text) {
    struct ggml_cgraph *graph = ggml_new_graph(ctx);
    ggml_build_forward_expand(graph, t);
    for (int n_threads = 1; n_threads <= 4; n_threads += 3) {
        assert_int_equal(ggml_graph_compute_with_ctx(ctx, graph, n_threads), GGML_STATUS_FAILED);
        assert_non_null(strstr(berth_last_error(), text));
    }
    ggml_free(ctx);
}

static struct ggml_tensor *zeros(struct ggml_context *ctx, enum ggml_type type, int64_t ne0, int64_t ne1) {
    struct ggml_tensor *t = ggml_new_tensor_2d(ctx, type, ne0, ne1);
    memset(t->data, 0, ggml_nbytes(t));
    return t;
}

static void test_set_past_the_end(void **state) {
    (void) state;
    struct ggml_context *ctx = arena();
    struct ggml_tensor *a = zeros(ctx, GGML_TYPE_F32, 8, 4), *b = zeros(ctx, GGML_TYPE_F32, 8, 2);
    expect_failure(ctx, ggml_set_2d(ctx, a, b, a->nb[1], 3 * a->nb[1]), "offset 96");
}

static void test_set_with_wide_strides(void **state) {
    (void) state;
    struct ggml_context *ctx = arena();
    struct ggml_tensor *a = zeros(ctx, GGML_TYPE_F32, 8, 4), *b = zeros(ctx, GGML_TYPE_F32, 4, 2);
    expect_failure(ctx, ggml_set_2d_inplace(ctx, a, b, (size_t) INT32_MAX, 0), "128 bytes");
}

static void test_acc_past_the_end(void **state) {
    (void) state;
    struct ggml_context *ctx = arena();
    struct ggml_tensor *a = zeros(ctx, GGML_TYPE_F32, 8, 4), *b = zeros(ctx, GGML_TYPE_F32, 8, 4);
    expect_failure(ctx, ggml_acc(ctx, a, b, a->nb[1], a->nb[2], a->nb[3], 4), "ACC");
}

static void test_too_few_windows(void **state) {
    (void) state;
    struct ggml_context *ctx = arena();
    struct ggml_tensor *a    = ggml_new_tensor_4d(ctx, GGML_TYPE_F32, 2, 3, 3, 1);
    expect_failure(ctx, ggml_win_unpart(ctx, a, 5, 4, 3), "WIN_UNPART");
}

// ggml's own backend ends the process here.
static void test_attention_backwards(void **state) {
    (void) state;
    struct ggml_context *ctx = arena();
    struct ggml_tensor *q = zeros(ctx, GGML_TYPE_F32, 8, 4), *k = zeros(ctx, GGML_TYPE_F32, 8, 4);
    expect_failure(ctx, ggml_flash_attn_back(ctx, q, k, k, q, false), "no backward pass of attention");
    ctx                   = arena();
    struct ggml_tensor *t = zeros(ctx, GGML_TYPE_F32, 8, 4); // from another constructor than ours
    t->op                 = GGML_OP_FLASH_ATTN_BACK;
    for (int i = 0; i < 4; i++) {
        t->src[i] = zeros(ctx, GGML_TYPE_F32, 8, 4);
    }
    expect_failure(ctx, t, "FLASH_ATTN_BACK");
}

// As another constructor than ours may make it: more rows than there are.
static void test_product_of_another_shape(void **state) {
    (void) state;
    for (int dim = 0; dim < 4; dim++) {
        struct ggml_context *ctx = arena();
        struct ggml_tensor *t =
            ggml_new_tensor_4d(ctx, GGML_TYPE_F32, dim == 0 ? 5 : 4, dim == 1 ? 4 : 3, dim == 2 ? 2 : 1, dim == 3 ? 2 : 1);
        t->op     = GGML_OP_MUL_MAT;
        t->src[0] = zeros(ctx, GGML_TYPE_F32, 8, 4);
        t->src[1] = zeros(ctx, GGML_TYPE_F32, 8, 3);
        expect_failure(ctx, t, "MUL_MAT");
    }
}

static void test_types_nobody_computes(void **state) {
    (void) state;
    struct ggml_context *ctx = arena();
    expect_failure(ctx, ggml_sum_rows(ctx, zeros(ctx, GGML_TYPE_I32, 8, 4)), "SUM_ROWS");
    ctx = arena();
    expect_failure(ctx, ggml_argsort(ctx, zeros(ctx, GGML_TYPE_I32, 8, 4), GGML_SORT_ORDER_ASC), "ARGSORT");
    ctx = arena();
    expect_failure(ctx, ggml_count_equal(ctx, zeros(ctx, GGML_TYPE_F32, 8, 4), zeros(ctx, GGML_TYPE_F32, 8, 4)), "COUNT_EQUAL");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_set_past_the_end),
        cmocka_unit_test(test_set_with_wide_strides),
        cmocka_unit_test(test_acc_past_the_end),
        cmocka_unit_test(test_too_few_windows),
        cmocka_unit_test(test_attention_backwards),
        cmocka_unit_test(test_product_of_another_shape),
        cmocka_unit_test(test_types_nobody_computes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
