// SPDX-License-Identifier: MIT
// test_cpu_refuse_data.c: invalid numbers that the constructors do not see, so that the op drivers must detect them: indices out of
// range, and unusable parameters of an op. The compute ends with GGML_STATUS_FAILED and a message that contains the number, nothing
// crashes, and the next graph runs.

#include "support/check.h"

#include "ggml-cpu.h"

static struct ggml_context *ctx;

static struct ggml_tensor *numbers(int64_t ne0, int64_t ne1, int64_t ne2, int64_t ne3) {
    struct ggml_tensor *t = ggml_new_tensor_4d(ctx, GGML_TYPE_F32, ne0, ne1, ne2, ne3);
    for (int64_t i = 0; i < ggml_nelements(t); i++) {
        ((float *) t->data)[i] = (float) (i % 7) * 0.25f - 0.75f;
    }
    return t;
}

// Makes a tensor of indices. All elements are v, except the last one, which is `last`.
static struct ggml_tensor *indices(int64_t ne0, int64_t ne1, int32_t v, int32_t last) {
    struct ggml_tensor *t = ggml_new_tensor_2d(ctx, GGML_TYPE_I32, ne0, ne1);
    for (int64_t i = 0; i < ggml_nelements(t); i++) {
        ((int32_t *) t->data)[i] = i == ggml_nelements(t) - 1 ? last : v;
    }
    return t;
}

static enum ggml_status compute(struct ggml_tensor *t, int n_threads) {
    assert_false(berth_is_poison(t));
    struct ggml_cgraph *graph = ggml_new_graph(ctx);
    ggml_build_forward_expand(graph, t);
    return ggml_graph_compute_with_ctx(ctx, graph, n_threads);
}

// The op must fail with a message that contains `text`, on one thread and on several. Afterwards the same threads must compute.
static void expect_refused(struct ggml_tensor *t, const char *text) {
    for (int n_threads = 1; n_threads <= 4; n_threads += 3) {
        assert_int_equal(compute(t, n_threads), GGML_STATUS_FAILED);
        if (strstr(berth_last_error(), text) == NULL) {
            fail_msg("'%s' does not say '%s'", berth_last_error(), text);
        }
        assert_int_equal(compute(ggml_sqr(ctx, numbers(64, 9, 1, 1)), n_threads), GGML_STATUS_SUCCESS);
    }
}

static struct ggml_tensor *rope(int n_dims, int mode, int *sections) {
    struct ggml_tensor *a = numbers(16, 2, 3, 1), *pos = indices(sections != NULL ? 12 : 3, 1, 5, 7);
    return sections != NULL ? ggml_rope_multi(ctx, a, pos, NULL, n_dims, sections, mode, 0, 1e4f, 1.0f, 0.0f, 1.0f, 0.0f, 0.0f)
                            : ggml_rope(ctx, a, pos, n_dims, mode);
}

static void test_rope(void **state) {
    (void) state;
    expect_refused(rope(18, GGML_ROPE_TYPE_NORMAL, NULL), "18");
    expect_refused(rope(7, GGML_ROPE_TYPE_NEOX, NULL), "7");
    expect_refused(rope(0, GGML_ROPE_TYPE_NEOX, NULL), "n_dims is 0");
    expect_refused(rope(-4, GGML_ROPE_TYPE_NORMAL, NULL), "-4");
    expect_refused(rope(16, 4, NULL), "unknown RoPE mode 4");
    expect_refused(rope(16, GGML_ROPE_TYPE_VISION, (int[]){4, 4, 0, 0}), "vision");
    expect_refused(rope(16, GGML_ROPE_TYPE_MROPE, (int[]){0, 0, 0, 8}), "sections");
    expect_refused(rope(16, GGML_ROPE_TYPE_MROPE, (int[]){-4, 8, 4, 0}), "-4");
    expect_refused(rope(16, GGML_ROPE_TYPE_IMROPE, (int[]){9, 9, 9, 9}), "sections");
}

static void test_experts(void **state) {
    (void) state;
    static const int32_t bad[] = {-1, 5, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char text[16];
        snprintf(text, sizeof text, "%d", bad[i]);
        expect_refused(ggml_mul_mat_id(ctx, numbers(40, 9, 5, 1), numbers(40, 1, 6, 1), indices(3, 6, 4, bad[i])), text);
        expect_refused(ggml_add_id(ctx, numbers(40, 3, 6, 1), numbers(40, 5, 1, 1), indices(3, 6, 4, bad[i])), text);
        expect_refused(ggml_get_rows_back(ctx, numbers(8, 3, 1, 1), indices(3, 1, 4, bad[i]), numbers(8, 5, 1, 1)), text);
    }
    expect_refused(ggml_get_rows_back(ctx, numbers(8, 3, 1, 1), indices(4, 1, 0, 0), numbers(8, 5, 1, 1)), "4 row indices");
}

static struct ggml_tensor *scan(int64_t n_group, int32_t id) {
    return ggml_ssm_scan(ctx, numbers(8, 2, 3, 2), numbers(2, 3, 4, 1), numbers(3, 4, 1, 1), numbers(8, 3, 1, 1),
        numbers(8, n_group, 4, 1), numbers(8, n_group, 4, 1), indices(1, 1, 0, id), 1);
}

static void test_recurrent(void **state) {
    (void) state;
    expect_refused(scan(1, 2), "selects state 2, there are 2");
    expect_refused(scan(1, -1), "state -1");
    expect_refused(scan(2, 0), "2 groups");
    struct ggml_tensor *x = numbers(4, 2, 5, 1), *S = numbers(4 * 4 * 2, 2, 1, 1);
    expect_refused(ggml_gated_linear_attn(ctx, x, x, x, x, S, 1.0f), "5 tokens");
    expect_refused(ggml_rwkv_wkv7(ctx, numbers(4, 2, 4, 1), x, x, x, x, x, numbers(4 * 4 * 2, 1, 1, 1)), "source 0 has 32");
    expect_refused(ggml_rwkv_wkv6(ctx, x, x, x, numbers(4, 1, 1, 1), x, numbers(4 * 4 * 2, 1, 1, 1)), "source 3 has 4");
}

static int context_open(void **state) {
    (void) state;
    check_quiet();
    ctx = ggml_init((struct ggml_init_params){.mem_size = 16u << 20});
    return ctx == NULL;
}

static int context_close(void **state) {
    (void) state;
    ggml_free(ctx);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_rope, context_open, context_close),
        cmocka_unit_test_setup_teardown(test_experts, context_open, context_close),
        cmocka_unit_test_setup_teardown(test_recurrent, context_open, context_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
