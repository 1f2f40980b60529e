// SPDX-License-Identifier: MIT
// test_cpu_refuse.c: graphs that the constructors accept but that cannot be computed. They end with GGML_STATUS_FAILED and an error
// that contains the numbers, and nothing outside the tensors is accessed.

#include "support/check.h"

#include "ggml-cpu.h"

#define MEM (1 << 20)

static ggml_backend_t cpu; // for ggml_backend_supports_op

static struct ggml_context *arena(void) {
    check_quiet();
    return ggml_init((struct ggml_init_params){.mem_size = MEM});
}

static void expect_failure(struct ggml_context *ctx, struct ggml_tensor *t, const char *text) {
    struct ggml_cgraph *graph = ggml_new_graph(ctx);
    ggml_build_forward_expand(graph, t);
    for (int n_threads = 1; n_threads <= 4; n_threads += 3) {
        if (ggml_graph_compute_with_ctx(ctx, graph, n_threads) != GGML_STATUS_FAILED) {
            fail_msg("%s was computed", ggml_op_name(t->op));
        }
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
    struct ggml_tensor *a = ggml_new_tensor_4d(ctx, GGML_TYPE_F32, 2, 3, 3, 1);
    expect_failure(ctx, ggml_win_unpart(ctx, a, 5, 4, 3), "WIN_UNPART");
}

// ggml's own backend ends the process for this op.
static void test_attention_backwards(void **state) {
    (void) state;
    struct ggml_context *ctx = arena();
    struct ggml_tensor *q = zeros(ctx, GGML_TYPE_F32, 8, 4), *k = zeros(ctx, GGML_TYPE_F32, 8, 4);
    expect_failure(ctx, ggml_flash_attn_back(ctx, q, k, k, q, false), "backward pass of attention is not implemented");
    ctx = arena();
    struct ggml_tensor *t = zeros(ctx, GGML_TYPE_F32, 8, 4); // as a foreign constructor would create it
    t->op = GGML_OP_FLASH_ATTN_BACK;
    for (int i = 0; i < 4; i++) {
        t->src[i] = zeros(ctx, GGML_TYPE_F32, 8, 4);
    }
    expect_failure(ctx, t, "FLASH_ATTN_BACK");
}

// The result of MUL_MAT is larger in one dimension than its sources allow. A constructor of another library may create such a
// tensor.
static void test_product_of_another_shape(void **state) {
    (void) state;
    for (int dim = 0; dim < 4; dim++) {
        struct ggml_context *ctx = arena();
        struct ggml_tensor *t =
            ggml_new_tensor_4d(ctx, GGML_TYPE_F32, dim == 0 ? 5 : 4, dim == 1 ? 4 : 3, dim == 2 ? 2 : 1, dim == 3 ? 2 : 1);
        t->op = GGML_OP_MUL_MAT;
        t->src[0] = zeros(ctx, GGML_TYPE_F32, 8, 4);
        t->src[1] = zeros(ctx, GGML_TYPE_F32, 8, 3);
        expect_failure(ctx, t, "MUL_MAT");
    }
}

// The program edits extents and strides. With strides of 0, a few bytes can represent any number of elements, and the product of
// the extents overflows to a small number.
static void test_sizes_that_wrap(void **state) {
    (void) state;
    const int64_t far = ((int64_t) 1 << 62) + 1; // far * 4 overflows to 4
    struct ggml_context *ctx = arena();
    struct ggml_tensor *k = ggml_new_tensor_4d(ctx, GGML_TYPE_F32, 2, 2, 1, 1),
                       *x = ggml_new_tensor_4d(ctx, GGML_TYPE_F32, 4, 4, 1, 1);
    struct ggml_tensor *t = ggml_im2col(ctx, k, x, 1, 1, 0, 0, 1, 1, true, GGML_TYPE_F32);
    assert_int_equal(t->ne[0], 4);
    k->ne[0] = far, k->ne[1] = 4;
    memset(k->nb, 0, sizeof k->nb);
    assert_false(ggml_backend_supports_op(cpu, t));
    expect_failure(ctx, t, "IM2COL");

    ctx = arena();
    k = ggml_new_tensor_4d(ctx, GGML_TYPE_F32, 2, 2, 1, 1);
    x = ggml_new_tensor_4d(ctx, GGML_TYPE_F32, 4, 3, 3, 1);
    t = ggml_im2col_back(ctx, x, k, (int64_t[]){4, 4, 1, 1}, 1, 1, 0, 0, 1, 1, true);
    k->ne[0] = far, k->ne[1] = 4;
    memset(k->nb, 0, sizeof k->nb);
    assert_false(ggml_backend_supports_op(cpu, t));
    expect_failure(ctx, t, "IM2COL_BACK");

    ctx = arena(); // the width of the data is huge, with a stride of 0
    k = ggml_new_tensor_4d(ctx, GGML_TYPE_F32, 2, 1, 1, 1);
    x = ggml_new_tensor_4d(ctx, GGML_TYPE_F32, 4, 1, 1, 1);
    t = ggml_conv_transpose_1d(ctx, k, x, 0, 0, 1);
    assert_int_equal(t->ne[0], 2);
    x->ne[0] = (int64_t) 1 << 62;
    memset(x->nb, 0, sizeof x->nb);
    expect_failure(ctx, t, "CONV_TRANSPOSE_1D");
}

static void test_elements_past_the_buffer(void **state) {
    (void) state;
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = MEM, .no_alloc = true});
    struct ggml_tensor *a = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 8, 4);
    ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors(ctx, cpu);
    ggml_set_f32(a, 3);
    assert_true(ggml_get_f32_nd(a, 7, 3, 0, 0) == 3);
    a->ne[1] = (int64_t) 1 << 40, a->ne[2] = INT64_MAX;
    berth_clear_error();
    assert_true(ggml_get_f32_nd(a, 0, 1 << 30, 0, 0) == 0);
    assert_non_null(strstr(berth_last_error(), "is not inside its buffer"));
    assert_true(ggml_get_f32_nd(a, 7, 3, 0, 0) == 3); // an element within the buffer
    ggml_set_f32_1d(a, 1 << 30, 1);
    berth_clear_error();
    ggml_set_f32(a, 1);
    assert_non_null(strstr(berth_last_error(), "63 bits"));
    a->nb[1] = a->nb[2] = 0;
    ggml_set_i32(a, 1);
    assert_non_null(strstr(berth_last_error(), "elements"));
    ggml_backend_buffer_free(buffer);
    ggml_free(ctx);
}

static void test_invalid_types(void **state) {
    (void) state;
    const int types[] = {-3, INT32_MIN, 4, GGML_TYPE_COUNT, 1 << 20};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        for (int which = 0; which < 3; which++) {
            struct ggml_context *ctx = arena();
            struct ggml_tensor *a = zeros(ctx, GGML_TYPE_F32, 8, 4), *b = zeros(ctx, GGML_TYPE_F32, 8, 3),
                               *t = ggml_mul_mat(ctx, a, b);
            (which == 0 ? t : which == 1 ? a : b)->type = (enum ggml_type) types[i];
            assert_false(ggml_backend_supports_op(cpu, t));
            expect_failure(ctx, t, "does not exist");
        }
    }
}

static void test_unsupported_types(void **state) {
    (void) state;
    struct ggml_context *ctx = arena();
    expect_failure(ctx, ggml_sum_rows(ctx, zeros(ctx, GGML_TYPE_I32, 8, 4)), "SUM_ROWS");
    ctx = arena();
    expect_failure(ctx, ggml_argsort(ctx, zeros(ctx, GGML_TYPE_I32, 8, 4), GGML_SORT_ORDER_ASC), "ARGSORT");
    ctx = arena();
    expect_failure(ctx, ggml_count_equal(ctx, zeros(ctx, GGML_TYPE_F32, 8, 4), zeros(ctx, GGML_TYPE_F32, 8, 4)), "COUNT_EQUAL");
}

// ---- empty sources ----

static struct ggml_tensor *filled(
    struct ggml_context *ctx, enum ggml_type type, int64_t ne0, int64_t ne1, int64_t ne2, int64_t ne3) {
    struct ggml_tensor *t = ggml_new_tensor_4d(ctx, type, ne0, ne1, ne2, ne3);
    if (ggml_nbytes(t) > 0) {
        memset(t->data, 0, ggml_nbytes(t));
    }
    return t;
}

static void test_sources_empty_in_an_outer_extent(void **state) {
    (void) state;
    struct ggml_context *ctx = arena();
    expect_failure(ctx, ggml_timestep_embedding(ctx, ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 4, 0), 8, 100), "empty");
    ctx = arena();
    expect_failure(ctx, ggml_get_rel_pos(ctx, ggml_new_tensor_3d(ctx, GGML_TYPE_F16, 8, 7, 0), 4, 4), "empty");
    for (int i = 0; i < 2; i++) {
        ctx = arena();
        struct ggml_tensor *b = filled(ctx, GGML_TYPE_F32, 8, 5, i == 0 ? 0 : 1, 1);
        expect_failure(ctx,
            ggml_add_id(ctx, filled(ctx, GGML_TYPE_F32, 8, 2, 3, 1), b, filled(ctx, GGML_TYPE_I32, 2, 3, 1, 1 - i)), "empty");
    }
    ctx = arena();
    struct ggml_tensor *t = ggml_soft_max_ext(ctx, filled(ctx, GGML_TYPE_F32, 8, 2, 3, 1), NULL, 1.0f, 0.0f);
    t->src[2] = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 3, 0);
    expect_failure(ctx, t, "empty");
    ctx = arena();
    t = ggml_flash_attn_ext(ctx, filled(ctx, GGML_TYPE_F32, 8, 2, 3, 1), filled(ctx, GGML_TYPE_F32, 8, 4, 3, 1),
        filled(ctx, GGML_TYPE_F32, 8, 4, 3, 1), NULL, 1.0f, 0.0f, 0.0f);
    t->src[4] = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 3, 0);
    expect_failure(ctx, t, "empty");
    ctx = arena();
    t = ggml_rope(ctx, filled(ctx, GGML_TYPE_F32, 8, 2, 3, 1), filled(ctx, GGML_TYPE_I32, 3, 1, 1, 1), 8, 0);
    t->src[2] = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 4, 0);
    expect_failure(ctx, t, "empty");
}

// Empty sources are accepted if the op reads nothing from them.
static void test_empty_sources_that_count_as_nothing(void **state) {
    (void) state;
    struct ggml_context *ctx = arena();
    struct ggml_cgraph *graph = ggml_new_graph(ctx);
    struct ggml_tensor *none = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 8, 0), *some = filled(ctx, GGML_TYPE_F32, 8, 3, 1, 1);
    struct ggml_tensor *rows = ggml_new_tensor_2d(ctx, GGML_TYPE_I32, 0, INT64_MAX / 2); // empty, but with a huge number of rows
    struct ggml_tensor *results[] = {
        ggml_sum(ctx, none),
        ggml_sum(ctx, ggml_new_tensor_2d(ctx, GGML_TYPE_F32, INT64_MAX / 4, 0)),
        ggml_count_equal(ctx, rows, rows),
        ggml_concat(ctx, none, some, 1),
        ggml_pad(ctx, none, 0, 2, 0, 0),
        ggml_set_rows(ctx, some, none, ggml_new_tensor_1d(ctx, GGML_TYPE_I64, 0)),
        ggml_flash_attn_ext(ctx, filled(ctx, GGML_TYPE_F32, 8, 2, 3, 1), ggml_new_tensor_3d(ctx, GGML_TYPE_F32, 8, 0, 3),
            ggml_new_tensor_3d(ctx, GGML_TYPE_F32, 8, 0, 3), NULL, 1.0f, 0.0f, 0.0f),
    };
    for (size_t i = 0; i < sizeof results / sizeof results[0]; i++) {
        ggml_build_forward_expand(graph, results[i]);
    }
    if (ggml_graph_compute_with_ctx(ctx, graph, 1) != GGML_STATUS_SUCCESS) {
        fail_msg("%s", berth_last_error());
    }
    for (size_t i = 0; i < sizeof results / sizeof results[0]; i++) {
        for (size_t j = 0; j < ggml_nbytes(results[i]); j++) {
            assert_int_equal(((const char *) results[i]->data)[j], 0);
        }
    }
    ggml_free(ctx);
}

// Without tokens, the state is copied to the result unchanged.
static void test_states_without_tokens(void **state) {
    (void) state;
    enum { D = 16, HEADS = 2, N = D * D * HEADS };
    struct ggml_context *ctx = arena();
    struct ggml_cgraph *graph = ggml_new_graph(ctx);
    struct ggml_tensor *none = ggml_new_tensor_3d(ctx, GGML_TYPE_F32, D, HEADS, 0),
                       *s = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, N);
    struct ggml_tensor *gate = ggml_new_tensor_4d(ctx, GGML_TYPE_F32, 1, HEADS, 0, 1), *flat = ggml_reshape_2d(ctx, s, N, 1);
    for (int i = 0; i < N; i++) {
        ((float *) s->data)[i] = (float) (i % 31) - 15.0f;
    }
    struct ggml_tensor *results[] = {
        ggml_rwkv_wkv6(ctx, none, none, none, filled(ctx, GGML_TYPE_F32, D, HEADS, 1, 1), none, flat),
        ggml_rwkv_wkv7(ctx, none, none, none, none, none, none, flat),
        ggml_gated_linear_attn(ctx, none, none, none, none, flat, 0.5f),
        ggml_gated_delta_net(ctx, none, none, none, gate, gate, ggml_reshape_4d(ctx, s, D, D, HEADS, 1), 1),
        ggml_ssm_scan(ctx, ggml_reshape_4d(ctx, s, D, D, HEADS, 1), ggml_new_tensor_4d(ctx, GGML_TYPE_F32, D, HEADS, 0, 1),
            ggml_new_tensor_3d(ctx, GGML_TYPE_F32, HEADS, 0, 1), filled(ctx, GGML_TYPE_F32, 1, HEADS, 1, 1),
            ggml_new_tensor_4d(ctx, GGML_TYPE_F32, D, 1, 0, 1), ggml_new_tensor_4d(ctx, GGML_TYPE_F32, D, 1, 0, 1),
            filled(ctx, GGML_TYPE_I32, 1, 1, 1, 1), 1),
    };
    for (size_t i = 0; i < sizeof results / sizeof results[0]; i++) {
        assert_false(berth_is_poison(results[i]));
        memset(results[i]->data, 0x77, ggml_nbytes(results[i]));
        ggml_build_forward_expand(graph, results[i]);
    }
    if (ggml_graph_compute_with_ctx(ctx, graph, 1) != GGML_STATUS_SUCCESS) {
        fail_msg("%s", berth_last_error());
    }
    for (size_t i = 0; i < sizeof results / sizeof results[0]; i++) {
        assert_true(ggml_nelements(results[i]) >= N);
        assert_memory_equal(results[i]->data, s->data, N * sizeof(float));
    }
    ggml_free(ctx);
}

int main(void) {
    cpu = ggml_backend_cpu_init();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_set_past_the_end),
        cmocka_unit_test(test_set_with_wide_strides),
        cmocka_unit_test(test_acc_past_the_end),
        cmocka_unit_test(test_too_few_windows),
        cmocka_unit_test(test_attention_backwards),
        cmocka_unit_test(test_product_of_another_shape),
        cmocka_unit_test(test_sizes_that_wrap),
        cmocka_unit_test(test_elements_past_the_buffer),
        cmocka_unit_test(test_invalid_types),
        cmocka_unit_test(test_unsupported_types),
        cmocka_unit_test(test_sources_empty_in_an_outer_extent),
        cmocka_unit_test(test_empty_sources_that_count_as_nothing),
        cmocka_unit_test(test_states_without_tokens),
    };
    const int n_failed = cmocka_run_group_tests(tests, NULL, NULL);
    ggml_backend_free(cpu);
    return n_failed;
}
