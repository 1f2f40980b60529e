// SPDX-License-Identifier: MIT
// test_budget_cost.c: the cost of a node, counted by hand for every kind of product; calls with missing arguments; graphs with
// custom ops, which run once under any memory limit.

#include "support/check.h"

#include "berth-budget-graph.h"
#include "ggml-cpu.h"

#include <math.h>

#define NODE 4096 // fixed cost of a node; a byte costs 2

static struct ggml_tensor *f32(struct ggml_context *ctx, int64_t a, int64_t b, int64_t c, int64_t d) {
    return ggml_new_tensor_4d(ctx, GGML_TYPE_F32, a, b, c, d);
}

static struct ggml_context *context(void) {
    return ggml_init((struct ggml_init_params){.mem_size = (size_t) 1 << 20, .no_alloc = true});
}

static void products_cost_their_multiply_adds(void **state) {
    (void) state;
    struct ggml_context *ctx = context();
    struct ggml_tensor *f16 = ggml_new_tensor_4d(ctx, GGML_TYPE_F16, 2, 2, 3, 4);
    const struct {
        struct ggml_tensor *node;
        uint64_t flops, bytes;
    } rows[] = {
        {ggml_mul_mat(ctx, f32(ctx, 8, 4, 1, 1), f32(ctx, 8, 3, 1, 1)), 2 * 12 * 8, 48 + 128 + 96},
        {ggml_out_prod(ctx, f32(ctx, 4, 5, 1, 1), f32(ctx, 3, 5, 1, 1)), 2 * 12 * 5, 48 + 80 + 60},
        {ggml_conv_2d_direct(ctx, f32(ctx, 2, 2, 3, 4), f32(ctx, 6, 6, 3, 1), 1, 1, 0, 0, 1, 1), 2 * 100 * 12, 400 + 192 + 432},
        {ggml_conv_2d_dw_direct(ctx, f32(ctx, 2, 2, 1, 3), f32(ctx, 6, 6, 3, 1), 1, 1, 0, 0, 1, 1), 2 * 75 * 4, 300 + 48 + 432},
        {ggml_conv_transpose_1d(ctx, f32(ctx, 2, 3, 4, 1), f32(ctx, 6, 4, 1, 1), 1, 0, 1), 2 * 24 * 6, 84 + 96 + 96},
        {ggml_conv_transpose_2d_p0(ctx, f16, f32(ctx, 5, 5, 4, 1), 1), 2 * 48 * 25, 432 + 96 + 400},
        {ggml_flash_attn_ext(ctx, f32(ctx, 8, 4, 2, 1), f32(ctx, 8, 6, 2, 1), f32(ctx, 8, 6, 2, 1), NULL, 1.0f, 0.0f, 0.0f),
            4 * 64 * 6, 256 + 256 + 384 + 384},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_false(berth_is_poison(rows[i].node));
        assert_int_equal(berth_budget_node_cost(rows[i].node), NODE + rows[i].flops + 2 * rows[i].bytes);
    }
    // For a table, only the rows that are read count, whatever its length.
    struct ggml_tensor *ids = ggml_new_tensor_1d(ctx, GGML_TYPE_I32, 3);
    assert_int_equal(berth_budget_node_cost(ggml_get_rows(ctx, f32(ctx, 8, 100, 1, 1), ids)), NODE + 24 * 8 + 2 * (96 + 12 + 96));
    assert_int_equal(
        berth_budget_node_cost(ggml_get_rows(ctx, f32(ctx, 8, 1000, 1, 1), ids)), NODE + 24 * 8 + 2 * (96 + 12 + 96));
    struct ggml_tensor *to = ggml_new_tensor_1d(ctx, GGML_TYPE_I64, 3), *few = f32(ctx, 8, 3, 1, 1);
    for (int64_t n = 100; n <= 1000; n *= 10) {
        struct ggml_tensor *table = ggml_new_tensor_2d(ctx, GGML_TYPE_F16, 8, n);
        struct ggml_tensor *part = ggml_view_2d(ctx, table, 8, n / 2, table->nb[1], 0);
        assert_int_equal(berth_budget_node_cost(ggml_set_rows(ctx, table, few, to)), NODE + 24 * 8 + 2 * (48 + 96 + 24));
        assert_int_equal(berth_budget_node_cost(ggml_set_rows(ctx, part, few, to)), NODE + 24 * 8 + 2 * (48 + 96 + 24));
    }
    // A view costs nothing. Costs beyond the limit are capped so that sums do not overflow.
    assert_int_equal(berth_budget_node_cost(ggml_reshape_1d(ctx, f32(ctx, 8, 8, 1, 1), 64)), 0);
    assert_int_equal(berth_budget_node_cost(NULL), 0);
    struct ggml_tensor *large = f32(ctx, (int64_t) 1 << 20, (int64_t) 1 << 20, 1, 1);
    assert_true(berth_budget_node_cost(ggml_mul_mat(ctx, large, large)) == (uint64_t) 1 << 52);
    struct ggml_tensor cut = *ggml_mul_mat(ctx, f32(ctx, 8, 4, 1, 1), f32(ctx, 8, 3, 1, 1)); // hand-made
    cut.src[1] = NULL;
    assert_int_equal(berth_budget_node_cost(&cut), NODE + 32 * 8 + 2 * (48 + 128));
    cut.op = GGML_OP_COUNT;
    assert_int_equal(berth_budget_node_cost(&cut), 0);
    ggml_free(ctx);
}

static void missing_arguments_are_rejected(void **state) {
    (void) state;
    struct ggml_context *ctx = context(), *made = NULL;
    struct ggml_cgraph *graph = ggml_new_graph(ctx), *out = NULL;
    struct berth_budget_result *result = NULL;
    ggml_build_forward_expand(graph, ggml_sqr(ctx, ggml_sqr(ctx, f32(ctx, 8, 8, 1, 1))));
    struct berth_graph_budget_params p = {.memory_limit = 1 << 20};
    assert_int_equal(berth_graph_budget(NULL, &p, &made, &out, &result), GGML_STATUS_FAILED);
    assert_int_equal(berth_graph_budget(graph, NULL, &made, &out, &result), GGML_STATUS_FAILED);
    assert_int_equal(berth_graph_budget(graph, &p, NULL, &out, &result), GGML_STATUS_FAILED);
    assert_int_equal(berth_graph_budget(graph, &p, &made, NULL, &result), GGML_STATUS_FAILED);
    assert_int_equal(berth_graph_budget(graph, &p, &made, &out, NULL), GGML_STATUS_FAILED);
    const double costs[] = {-1, 0x1p41, (double) NAN};
    for (int i = 0; i < 3; i++) {
        p.spill_cost_per_byte = costs[i];
        assert_int_equal(berth_graph_budget(graph, &p, &made, &out, &result), GGML_STATUS_FAILED);
        assert_non_null(strstr(berth_last_error(), "spill_cost_per_byte is"));
    }
    p.spill_cost_per_byte = 0;
    int pools[2] = {7, 7};
    struct ggml_cgraph *bad = ggml_new_graph(ctx);
    ggml_build_forward_expand(bad, ggml_add(ctx, f32(ctx, 3, 1, 1, 1), f32(ctx, 2, 1, 1, 1)));
    assert_int_equal(berth_graph_budget(bad, &p, &made, &out, &result), GGML_STATUS_FAILED);
    assert_true(made == NULL && out == NULL && result == NULL);
    berth_budget_pools(NULL, pools, 2);
    berth_budget_pools(graph, NULL, 2);
    assert_int_equal(pools[0], 7);
    berth_budget_pools(graph, pools, 1);
    assert_true(pools[0] == 0 && pools[1] == 7);
    assert_int_equal(berth_budget_pool_of(NULL), -1);
    ggml_free(ctx);
}

// ---- custom ops ----

static void one(struct ggml_tensor *dst, const struct ggml_tensor *a, int ith, int nth, void *user) {
    (void) dst, (void) a, (void) ith, (void) nth, (void) user;
}

static void two(struct ggml_tensor *dst, const struct ggml_tensor *a, const struct ggml_tensor *b, int ith, int nth, void *user) {
    (void) b;
    one(dst, a, ith, nth, user);
}

static void three(struct ggml_tensor *dst, const struct ggml_tensor *a, const struct ggml_tensor *b, const struct ggml_tensor *c,
    int ith, int nth, void *user) {
    (void) b, (void) c;
    one(dst, a, ith, nth, user);
}

static void any(struct ggml_tensor *dst, int ith, int nth, void *user) {
    one(dst, NULL, ith, nth, user);
}

static struct ggml_tensor *custom_op(struct ggml_context *ctx, struct ggml_tensor *a, int kind) {
    switch (kind) {
        case 0: return ggml_map_custom1(ctx, a, one, 1, NULL);
        case 1: return ggml_map_custom2(ctx, a, a, two, 1, NULL);
        case 2: return ggml_map_custom3(ctx, a, a, a, three, 1, NULL);
        default: return ggml_custom_4d(ctx, GGML_TYPE_F32, 64, 64, 1, 1, &a, 1, any, 1, NULL);
    }
}

// The effects of a custom op are unknown, so it is never recomputed; if the memory limit cannot be met, the result says so.
static void custom_ops_run_once(void **state) {
    (void) state;
    for (int kind = 0; kind < 4; kind++) {
        for (uint64_t bytes = 1 << 14; bytes <= 1 << 20; bytes *= 2) {
            struct ggml_context *ctx = context(), *made = NULL;
            struct ggml_cgraph *graph = ggml_new_graph(ctx), *out = NULL;
            struct ggml_tensor *first = ggml_sqr(ctx, f32(ctx, 64, 64, 1, 1)), *t = first;
            for (int i = 0; i < 4; i++) {
                t = ggml_sqr(ctx, custom_op(ctx, t, kind));
            }
            ggml_build_forward_expand(graph, ggml_add(ctx, t, first));
            struct berth_budget_result *result = NULL;
            const struct berth_graph_budget_params p = {.memory_limit = bytes};
            assert_int_equal(berth_graph_budget(graph, &p, &made, &out, &result), GGML_STATUS_SUCCESS);
            assert_non_null(result);
            assert_true(result->fits == (out != NULL));
            assert_true(result->fits || bytes < 1 << 20); // ten results of 16 KiB
            for (int i = 0; out != NULL && i < ggml_graph_n_nodes(out); i++) {
                for (int k = 0; k < i; k++) {
                    assert_ptr_not_equal(ggml_graph_node(out, i), ggml_graph_node(out, k));
                }
            }
            assert_true(out == NULL || ggml_graph_n_nodes(out) == ggml_graph_n_nodes(graph));
            berth_budget_free(result);
            ggml_free(made);
            ggml_free(ctx);
        }
    }
}

int main(void) {
    check_quiet();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_cost_their_multiply_adds),
        cmocka_unit_test(missing_arguments_are_rejected),
        cmocka_unit_test(custom_ops_run_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
