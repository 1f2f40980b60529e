// SPDX-License-Identifier: MIT
// test_cpu_tier.c: berth_cpu_op_tier returns the tiers that compute an op.

#include "support/check.h"

#include "cpu/cpu.h"

#include "berth-cpu.h"

static char text[128];

static struct ggml_context *context(void) {
    cpu_init();
    return ggml_init((struct ggml_init_params){.mem_size = 1 << 20, .no_alloc = true});
}

static struct ggml_tensor *matrix(struct ggml_context *ctx, enum ggml_type type) {
    return ggml_new_tensor_2d(ctx, type, 256, 4);
}

static void test_dot(void **state) {
    (void) state;
    struct ggml_context *ctx = context();
    struct ggml_tensor *f32 = ggml_mul_mat(ctx, matrix(ctx, GGML_TYPE_F32), matrix(ctx, GGML_TYPE_F32));
    assert_true(berth_cpu_op_tier(f32, text, sizeof text));
    const size_t slot = cpu_kernels_best.tile[GGML_TYPE_F32].run != NULL ? CPU_SLOT(tile[GGML_TYPE_F32].run)
                                                                         : CPU_SLOT(traits[GGML_TYPE_F32].vec_dot);
    assert_string_equal(text, cpu_slot_tier(slot));
    // A slot is reported as portable exactly if no tier filled it.
    assert_true((cpu_kernels_best.tile[GGML_TYPE_F32].run != cpu_kernels_portable.tile[GGML_TYPE_F32].run) ==
                (strcmp(cpu_slot_tier(CPU_SLOT(tile[GGML_TYPE_F32].run)), "portable") != 0));
    assert_true((cpu_kernels_best.add != cpu_kernels_portable.add) == (strcmp(cpu_slot_tier(CPU_SLOT(add)), "portable") != 0));
    ggml_free(ctx);
}

static void test_own_loops(void **state) {
    (void) state;
    struct ggml_context *ctx = context();
    assert_true(berth_cpu_op_tier(ggml_abs(ctx, matrix(ctx, GGML_TYPE_F32)), text, sizeof text));
    assert_string_equal(text, "portable");
    assert_true(berth_cpu_op_tier(ggml_silu(ctx, matrix(ctx, GGML_TYPE_F32)), text, sizeof text));
    assert_string_equal(text, cpu_slot_tier(CPU_SLOT(silu)));
    ggml_free(ctx);
}

static void test_none(void **state) {
    (void) state;
    struct ggml_context *ctx = context();
    assert_true(berth_cpu_op_tier(ggml_transpose(ctx, matrix(ctx, GGML_TYPE_F32)), text, sizeof text));
    assert_string_equal(text, "");
    struct ggml_tensor *back = matrix(ctx, GGML_TYPE_F32);
    back->op = GGML_OP_FLASH_ATTN_BACK;
    assert_false(berth_cpu_op_tier(back, text, sizeof text));
    assert_string_equal(text, "");
    assert_false(berth_cpu_op_tier(NULL, text, sizeof text));
    // A text that is too short is truncated.
    assert_true(berth_cpu_op_tier(ggml_abs(ctx, matrix(ctx, GGML_TYPE_F32)), text, 4));
    assert_string_equal(text, "por");
    assert_true(berth_cpu_op_tier(ggml_abs(ctx, matrix(ctx, GGML_TYPE_F32)), NULL, 0));
    ggml_free(ctx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dot),
        cmocka_unit_test(test_own_loops),
        cmocka_unit_test(test_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
