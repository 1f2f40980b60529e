// SPDX-License-Identifier: MIT
// test_op_cost.c: the cost of every op (berth_op_cost), compared with hand-computed costs for products, attention, convolutions,
// rows, copies and views.

#include "core/optable.h"

#include "support/check.h"

static struct ggml_tensor *f32(struct ggml_context *ctx, int64_t a, int64_t b, int64_t c, int64_t d) {
    return ggml_new_tensor_4d(ctx, GGML_TYPE_F32, a, b, c, d);
}

static struct ggml_context *context(void) {
    return ggml_init((struct ggml_init_params){.mem_size = (size_t) 1 << 20, .no_alloc = true});
}

static void assert_cost(const struct ggml_tensor *node, double flops, double read_size, double written_size) {
    const struct berth_op_cost c = berth_op_cost(node);
    if (berth_is_poison(node) || c.flops != flops || c.read_size != read_size || c.written_size != written_size) {
        fail_msg("%s: flops %.0f, read %.0f, written %.0f; %.0f, %.0f, %.0f expected", ggml_op_desc(node), c.flops, c.read_size,
            c.written_size, flops, read_size, written_size);
    }
}

static void every_op_has_a_cost(void **state) {
    (void) state;
    check_quiet();
    struct ggml_context *ctx = context();
    for (int op = 0; op < GGML_OP_COUNT; op++) {
        const struct berth_op_info *info = berth_op_info((enum ggml_op) op);
        for (int a = 0; a < GGML_TYPE_COUNT; a++) {
            ggml_reset(ctx);
            const struct ggml_tensor *t = ggml_blck_size((enum ggml_type) a) > 0
                                              ? berth_op_sample(ctx, (enum ggml_op) op, 0, (enum ggml_type) a, GGML_TYPE_F32)
                                              : NULL;
            if (t == NULL || berth_is_poison(t) || t->op != (enum ggml_op) op) {
                continue;
            }
            const struct berth_op_cost c = berth_op_cost(t);
            assert_true((c.written_size > 0) == !info->is_empty);
            assert_true((c.read_size > 0) == (!info->is_empty && info->n_src > 0 && op != GGML_OP_FILL));
            assert_true(c.flops == 0 || !info->is_empty);
            assert_true(c.flops > 0 || info->family == BERTH_OP_MOVE || op == GGML_OP_IM2COL || op == GGML_OP_IM2COL_3D);
        }
    }
    ggml_free(ctx);
}

static void products(void **state) {
    (void) state;
    struct ggml_context *ctx = context();
    assert_cost(ggml_mul_mat(ctx, f32(ctx, 8, 4, 1, 1), f32(ctx, 8, 3, 1, 1)), 2 * 12 * 8, 128 + 96, 48);
    struct ggml_tensor *x = f32(ctx, 4, 5, 1, 1);
    assert_cost(ggml_out_prod(ctx, x, f32(ctx, 3, 5, 1, 1)), 2 * 12 * 5, 80 + 60, 48);
    assert_cost(ggml_out_prod(ctx, x, x), 2 * 16 * 5, 80, 64); // x is read once
    // At most the selected experts count as read, of 8 experts with 128 bytes each.
    struct ggml_tensor *experts = f32(ctx, 8, 4, 8, 1), *b = f32(ctx, 8, 1, 3, 1);
    struct ggml_tensor *few = ggml_new_tensor_2d(ctx, GGML_TYPE_I32, 2, 3), *all = ggml_new_tensor_2d(ctx, GGML_TYPE_I32, 4, 3);
    assert_cost(ggml_mul_mat_id(ctx, experts, b, few), 2 * 24 * 8, 6 * 128 + 96 + 24, 96);
    assert_cost(ggml_mul_mat_id(ctx, experts, b, all), 2 * 48 * 8, 8 * 128 + 96 + 48, 192);
    // A program could build a node without its second source. It costs as much as an elementwise op: one operation per element of
    // the larger of result and source.
    struct ggml_tensor cut = *ggml_mul_mat(ctx, f32(ctx, 8, 4, 1, 1), f32(ctx, 8, 3, 1, 1));
    cut.src[1] = NULL;
    assert_cost(&cut, 32, 128, 48);
    ggml_free(ctx);
}

static void attention(void **state) {
    (void) state;
    struct ggml_context *ctx = context();
    // 8 queries of 16 elements, 6 keys, and 6 values of 8 elements. The order of the sources is q, k, v, mask.
    struct ggml_tensor *q = f32(ctx, 16, 4, 2, 1), *k = f32(ctx, 16, 6, 2, 1), *v = f32(ctx, 8, 6, 2, 1);
    struct ggml_tensor *mask = ggml_new_tensor_2d(ctx, GGML_TYPE_F16, 6, 4);
    assert_cost(ggml_flash_attn_ext(ctx, q, k, v, mask, 1.0f, 0.0f, 0.0f), 2 * 8 * 6 * (16 + 8), 512 + 768 + 384 + 48, 256);
    // In a view with gaps, only the elements count. This view has half of the keys' elements.
    struct ggml_tensor *part = ggml_view_4d(ctx, k, 8, 6, 2, 1, k->nb[1], k->nb[2], k->nb[3], 0);
    struct ggml_tensor *q8 = f32(ctx, 8, 4, 2, 1);
    assert_cost(ggml_flash_attn_ext(ctx, q8, part, v, NULL, 1.0f, 0.0f, 0.0f), 2 * 8 * 6 * (8 + 8), 256 + 384 + 384, 256);
    assert_cost(ggml_soft_max(ctx, q), 128, 512, 512);
    ggml_free(ctx);
}

static void convolutions(void **state) {
    (void) state;
    struct ggml_context *ctx = context();
    struct ggml_tensor *image = f32(ctx, 6, 6, 3, 1), *f16 = ggml_new_tensor_4d(ctx, GGML_TYPE_F16, 2, 2, 3, 4);
    assert_cost(ggml_conv_2d_direct(ctx, f32(ctx, 2, 2, 3, 4), image, 1, 1, 0, 0, 1, 1), 2 * 100 * 12, 192 + 432, 400);
    assert_cost(ggml_conv_2d_dw_direct(ctx, f32(ctx, 2, 2, 1, 3), image, 1, 1, 0, 0, 1, 1), 2 * 75 * 4, 48 + 432, 300);
    assert_cost(ggml_conv_3d_direct(ctx, f32(ctx, 2, 2, 2, 3 * 4), f32(ctx, 3, 3, 3, 3), 1, 1, 1, 0, 0, 0, 1, 1, 1, 3, 1, 4),
        2 * 32 * 8 * 3, 384 + 324, 128);
    assert_cost(ggml_conv_transpose_1d(ctx, f32(ctx, 2, 3, 4, 1), f32(ctx, 6, 4, 1, 1), 1, 0, 1), 2 * 24 * 6, 96 + 96, 84);
    assert_cost(ggml_conv_transpose_2d_p0(ctx, f16, f32(ctx, 5, 5, 4, 1), 1), 2 * 48 * 25, 96 + 400, 432);
    assert_cost(ggml_conv_transpose_2d_p0(ctx, f16, f32(ctx, 5, 5, 4, 2), 1), 2 * 48 * 25 * 2, 96 + 800, 864);
    assert_cost(ggml_im2col(ctx, f32(ctx, 2, 2, 3, 4), image, 1, 1, 0, 0, 1, 1, true, GGML_TYPE_F32), 0, 192 + 432, 12 * 25 * 4);
    ggml_free(ctx);
}

static void rows_and_copies(void **state) {
    (void) state;
    struct ggml_context *ctx = context();
    struct ggml_tensor *table = ggml_new_tensor_2d(ctx, GGML_TYPE_F16, 8, 100), *three = f32(ctx, 8, 3, 1, 1);
    struct ggml_tensor *ids = ggml_new_tensor_1d(ctx, GGML_TYPE_I32, 3), *to = ggml_new_tensor_1d(ctx, GGML_TYPE_I64, 3);
    assert_cost(ggml_get_rows(ctx, table, ids), 0, 48 + 12, 96);
    assert_cost(ggml_set_rows(ctx, table, three, to), 0, 96 + 24, 48);
    assert_cost(ggml_cpy(ctx, three, ggml_new_tensor_2d(ctx, GGML_TYPE_F16, 8, 3)), 0, 96, 48);
    assert_cost(ggml_cast(ctx, three, GGML_TYPE_F16), 0, 96, 48);
    assert_cost(ggml_cont(ctx, ggml_transpose(ctx, three)), 0, 96, 96);
    assert_cost(ggml_fill(ctx, three, 1.0f), 0, 0, 96);
    // A part of 8 elements: the op copies all elements, or in place only the part.
    struct ggml_tensor *part = f32(ctx, 8, 1, 1, 1);
    assert_cost(ggml_set(ctx, three, part, 32, 96, 96, 0), 0, 96 + 32, 96);
    assert_cost(ggml_set_inplace(ctx, three, part, 32, 96, 96, 0), 0, 32, 32);
    assert_cost(ggml_acc(ctx, three, part, 32, 96, 96, 0), 24, 96 + 32, 96);
    assert_cost(ggml_acc_inplace(ctx, three, part, 32, 96, 96, 0), 8, 64, 32);
    ggml_free(ctx);
}

static void others(void **state) {
    (void) state;
    struct ggml_context *ctx = context();
    struct ggml_tensor *a = f32(ctx, 8, 3, 1, 1), *row = f32(ctx, 8, 1, 1, 1);
    assert_cost(ggml_add(ctx, a, row), 24, 96 + 32, 96);
    assert_cost(ggml_add_inplace(ctx, a, row), 24, 96 + 32, 96);
    assert_cost(ggml_mul(ctx, a, a), 24, 96, 96);
    assert_cost(ggml_sum(ctx, a), 24, 96, 4);
    ggml_set_param(a);
    assert_cost(
        ggml_opt_step_adamw(ctx, a, f32(ctx, 8, 3, 1, 1), f32(ctx, 8, 3, 1, 1), f32(ctx, 8, 3, 1, 1), f32(ctx, 7, 1, 1, 1)), 24,
        4 * 96 + 28, 3 * 96); // weights and both moments are written
    assert_cost(ggml_reshape_1d(ctx, a, 24), 0, 0, 0);
    assert_cost(a, 0, 0, 0);
    struct ggml_tensor no_op = *a;
    no_op.op = GGML_OP_COUNT;
    assert_cost(&no_op, 0, 0, 0);
    assert_true(berth_op_cost(NULL).read_size == 0);
    ggml_free(ctx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_op_has_a_cost),
        cmocka_unit_test(products),
        cmocka_unit_test(attention),
        cmocka_unit_test(convolutions),
        cmocka_unit_test(rows_and_copies),
        cmocka_unit_test(others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
