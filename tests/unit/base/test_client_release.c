// SPDX-License-Identifier: MIT
// test_client_release.c: effects of a client's release: ggml_ssm_scan has a ninth argument, which programs built for ggml 0.19 do
// not pass.

#include "support/check.h"

#include "base/base.h"

static struct ggml_context *ctx;

static int context_new(void **state) {
    (void) state;
    ctx = ggml_init((struct ggml_init_params){.mem_size = 1 << 20, .no_alloc = true});
    return ctx == NULL;
}

static int context_free(void **state) {
    (void) state;
    ggml_free(ctx);
    return 0;
}

static struct ggml_tensor *f32(int64_t ne0, int64_t ne1, int64_t ne2) {
    return ggml_new_tensor_3d(ctx, GGML_TYPE_F32, ne0, ne1, ne2);
}

// 24 outputs, states of 48 numbers. a_rows: numbers per head in A. K: the ninth argument, the number of states in the result.
static struct ggml_tensor *scan(int64_t a_rows, int64_t K) {
    return ggml_ssm_scan(ctx, f32(8, 2, 3), ggml_new_tensor_4d(ctx, GGML_TYPE_F32, 2, 3, 4, 1), f32(3, 4, 1), f32(a_rows, 3, 1),
        f32(8, 1, 4), f32(8, 1, 4), ggml_new_tensor_1d(ctx, GGML_TYPE_I32, 1), K);
}

static void has_states(struct ggml_tensor *t, int64_t K) {
    assert_false(berth_is_poison(t));
    assert_int_equal(t->op_params[0], K);
    assert_int_equal(t->ne[0], 24 + K * 48);
}

static void is_poison(struct ggml_tensor *t) {
    assert_true(berth_is_poison(t));
}

// One test function, because a process keeps the first known release.
static void states_by_release(void **state) {
    (void) state;
    assert_int_equal(berth_client_minor(), 0);
    has_states(scan(1, 1), 1);
    has_states(scan(1, 5), 5);
    has_states(scan(8, 5), 1);
    has_states(scan(1, 0), 1);
    has_states(scan(1, -7), 1);
    has_states(scan(1, INT64_C(0x7f0012345678)), 1);

    berth_client_release("v0.5.0");
    assert_int_equal(berth_client_minor(), 25);
    has_states(scan(1, 300), 300);
    is_poison(scan(1, 0));
    is_poison(scan(8, 2));
    is_poison(scan(1, INT64_C(1) << 31));

    berth_client_release("b10361"); // a second client in the same process
    assert_int_equal(berth_client_minor(), 0);
    has_states(scan(1, 3), 3);
    has_states(scan(8, 3), 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(states_by_release, context_new, context_free),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
