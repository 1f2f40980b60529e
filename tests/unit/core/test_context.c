// SPDX-License-Identifier: MIT
// test_context.c: contexts and tensors: arenas of any size and alignment, poison, views, names, queries with NULL.

#include "core/optable.h"

#include "support/check.h"

static struct ggml_context *context(size_t size) {
    return ggml_init((struct ggml_init_params){.mem_size = size});
}

static void arena_size_is_sufficient(void **state) {
    (void) state;
    struct ggml_context *ctx = context(2 * ggml_tensor_overhead() + 16 * sizeof(float));
    struct ggml_tensor *a = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 8);
    struct ggml_tensor *b = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 8);
    assert_false(berth_is_poison(a) || berth_is_poison(b));
    assert_int_equal(ggml_used_mem(ctx), ggml_get_mem_size(ctx));
    assert_ptr_equal(ggml_get_first_tensor(ctx), a);
    assert_ptr_equal(ggml_get_next_tensor(ctx, a), b);
    assert_null(ggml_get_next_tensor(ctx, b));
    assert_string_equal(berth_context_error(ctx), "");
    ggml_free(ctx);
}

static void full_arena_is_poison_with_numbers(void **state) {
    (void) state;
    check_quiet();
    struct ggml_context *ctx = context(1000);
    struct ggml_tensor *t = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 1000);
    assert_true(berth_is_poison(t));
    assert_int_equal(t->type, GGML_TYPE_F32);
    assert_int_equal(ggml_nelements(t), 1);
    assert_null(t->data);
    char needed[32]; // struct of a tensor, which grows with GGML_MAX_NAME, and 1,000 floats
    snprintf(needed, sizeof needed, "%zu bytes needed", ggml_tensor_overhead() + 4000);
    assert_non_null(strstr(berth_context_error(ctx), needed));
    assert_non_null(strstr(berth_context_error(ctx), "1008 of 1008 left"));
    // Results of ops on poison are poison, too, and the first error stays.
    struct ggml_tensor *u = ggml_add(ctx, t, t);
    assert_true(berth_is_poison(u));
    assert_non_null(strstr(berth_poison_error(u), needed));
    // A smaller tensor still fits.
    assert_false(berth_is_poison(ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 4)));
    ggml_reset(ctx);
    assert_string_equal(berth_context_error(ctx), "");
    assert_int_equal(ggml_used_mem(ctx), 0);
    ggml_free(ctx);
}

static void poison_crosses_contexts(void **state) {
    (void) state;
    check_quiet();
    struct ggml_context *one = context(16), *two = context(1 << 16);
    struct ggml_tensor *bad = ggml_new_tensor_1d(one, GGML_TYPE_F32, 4);
    struct ggml_tensor *ok = ggml_new_tensor_1d(two, GGML_TYPE_F32, 4);
    struct ggml_tensor *sum = ggml_add(two, ok, bad);
    assert_true(berth_is_poison(sum));
    assert_string_equal(berth_context_error(two), berth_context_error(one));
    ggml_free(one);
    assert_non_null(strstr(berth_poison_error(sum), "arena is full")); // the context has its own copy of the text
    ggml_free(two);
}

static void poison_cannot_be_changed(void **state) {
    (void) state;
    check_quiet();
    struct ggml_context *ctx = context(16);
    struct ggml_tensor *bad = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 4);
    ggml_set_name(bad, "mine");
    ggml_format_name(bad, "%d", 1);
    ggml_set_input(bad);
    ggml_set_output(bad);
    ggml_set_param(bad);
    assert_string_equal(ggml_get_name(bad), "poison");
    assert_int_equal(bad->flags & 15, 0);
    ggml_free(ctx);
}

static void callers_memory_of_any_alignment(void **state) {
    (void) state;
    static char memory[4096 + 64];
    for (size_t skew = 0; skew < 32; skew++) {
        struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = 4096, .mem_buffer = memory + skew});
        assert_ptr_equal(ggml_get_mem_buffer(ctx), memory + skew);
        struct ggml_tensor *t = ggml_new_tensor_2d(ctx, GGML_TYPE_F16, 16, 16);
        assert_false(berth_is_poison(t));
        assert_int_equal((uintptr_t) t % GGML_MEM_ALIGN, 0);
        assert_int_equal((uintptr_t) t->data % GGML_MEM_ALIGN, 0);
        assert_true((char *) t->data + ggml_nbytes(t) <= memory + skew + 4096);
        memset(t->data, 0, ggml_nbytes(t));
        ggml_free(ctx);
    }
    // The memory is too small for one aligned byte.
    check_quiet();
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = 3, .mem_buffer = memory + 1});
    assert_true(berth_is_poison(ggml_new_tensor_1d(ctx, GGML_TYPE_I8, 1)));
    ggml_free(ctx);
}

static void no_alloc_gives_no_data(void **state) {
    (void) state;
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = 4096, .no_alloc = true});
    assert_null(ggml_new_tensor_1d(ctx, GGML_TYPE_F32, INT64_C(1) << 40)->data);
    assert_true(ggml_get_no_alloc(ctx));
    ggml_set_no_alloc(ctx, false);
    assert_non_null(ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 4)->data);
    ggml_free(ctx);
}

static void invalid_shapes(void **state) {
    (void) state;
    check_quiet();
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = 1 << 16, .no_alloc = true});
    const int64_t huge[4] = {INT64_C(1) << 40, INT64_C(1) << 40, 4, 4};
    assert_true(berth_is_poison(ggml_new_tensor(ctx, GGML_TYPE_F32, 4, huge)));
    assert_true(berth_is_poison(ggml_new_tensor(ctx, GGML_TYPE_F32, 0, huge)));
    assert_true(berth_is_poison(ggml_new_tensor(ctx, GGML_TYPE_F32, 5, huge)));
    assert_true(berth_is_poison(ggml_new_tensor(ctx, GGML_TYPE_F32, 1, NULL)));
    assert_true(berth_is_poison(ggml_new_tensor_1d(ctx, GGML_TYPE_F32, -1)));
    assert_true(berth_is_poison(ggml_new_tensor_1d(ctx, (enum ggml_type) 4, 32)));
    assert_true(berth_is_poison(ggml_new_tensor_1d(ctx, (enum ggml_type) 999, 32)));
    assert_true(berth_is_poison(ggml_new_tensor_1d(ctx, GGML_TYPE_Q4_0, 33)));
    assert_non_null(strstr(berth_last_error(), "33"));
    ggml_free(ctx);
}

static void views_refer_to_the_owner(void **state) {
    (void) state;
    check_quiet();
    struct ggml_context *ctx = context(1 << 16);
    struct ggml_tensor *a = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 64);
    ggml_set_name(a, "weights");
    struct ggml_tensor *v = ggml_view_1d(ctx, a, 32, 64);
    struct ggml_tensor *w = ggml_view_1d(ctx, v, 8, 32);
    assert_ptr_equal(w->view_src, a);
    assert_int_equal(w->view_offs, 96);
    assert_ptr_equal(w->data, (char *) a->data + 96);
    assert_string_equal(ggml_get_name(v), "weights (view)");
    assert_true(berth_is_poison(ggml_view_1d(ctx, a, 64, 4)));
    assert_true(berth_is_poison(ggml_view_1d(ctx, w, 1, SIZE_MAX - 8)));
    ggml_free(ctx);
}

static void long_names_are_cut(void **state) {
    (void) state;
    struct ggml_context *ctx = context(1 << 16);
    struct ggml_tensor *a = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 1);
    char text[200];
    memset(text, 'n', sizeof text);
    text[sizeof text - 1] = '\0';
    ggml_set_name(a, text);
    assert_int_equal(strlen(a->name), GGML_MAX_NAME - 1);
    assert_int_equal(strlen(ggml_view_tensor(ctx, a)->name), GGML_MAX_NAME - 1);
    ggml_set_name(a, "short");
    assert_ptr_equal(ggml_get_tensor(ctx, "short"), a);
    assert_null(ggml_get_tensor(ctx, "absent"));
    ggml_free(ctx);
}

static void null_everywhere(void **state) {
    (void) state;
    check_quiet();
    assert_null(ggml_new_tensor_1d(NULL, GGML_TYPE_F32, 1));
    assert_null(ggml_add(NULL, NULL, NULL));
    assert_null(ggml_new_graph(NULL));
    assert_null(ggml_get_first_tensor(NULL));
    assert_null(ggml_new_buffer(NULL, 8));
    assert_int_equal(ggml_nbytes(NULL), 0);
    assert_int_equal(ggml_nelements(NULL), 0);
    assert_false(ggml_is_contiguous(NULL) || ggml_is_permuted(NULL) || ggml_can_repeat(NULL, NULL));
    assert_int_equal(ggml_used_mem(NULL), 0);
    ggml_free(NULL);
    ggml_reset(NULL);
    ggml_set_input(NULL);
    ggml_set_loss(NULL);
    ggml_build_forward_expand(NULL, NULL);
    ggml_graph_clear(NULL);
    ggml_graph_print(NULL);
    assert_int_equal(berth_graph_check(NULL), GGML_STATUS_FAILED);
    struct ggml_context *ctx = context(1 << 12);
    assert_true(berth_is_poison(ggml_add(ctx, NULL, NULL)));
    assert_non_null(strstr(berth_context_error(ctx), "ggml_add"));
    ggml_free(ctx);
}

// Every op has a row in the table of ops, and a sample that its constructor accepts for at least one pair of types. `berth ops`,
// prop_ops and the tests of devices use these samples.
static void every_op_has_a_row_and_a_sample(void **state) {
    (void) state;
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = 1 << 20, .no_alloc = true});
    for (int op = 0; op < GGML_OP_COUNT; op++) {
        const struct berth_op_info *info = berth_op_info((enum ggml_op) op);
        assert_non_null(info);
        assert_int_equal(info->family, berth_op_family(info->name));
        bool found = op == GGML_OP_NONE || op == GGML_OP_FLASH_ATTN_BACK; // the latter is always refused
        for (int a = 0; a < GGML_TYPE_COUNT && !found; a++) {
            ggml_reset(ctx);
            const struct ggml_tensor *t = ggml_blck_size((enum ggml_type) a) > 0
                                              ? berth_op_sample(ctx, (enum ggml_op) op, 0, (enum ggml_type) a, GGML_TYPE_F32)
                                              : NULL;
            found = t != NULL && !berth_is_poison(t) && t->op == (enum ggml_op) op;
        }
        if (!found) {
            fail_msg("%s has no sample", info->name);
        }
    }
    assert_int_equal(berth_op_family("UNARY:SILU"), BERTH_OP_ACTIVATION);
    assert_int_equal(berth_op_family("NO_SUCH_OP"), BERTH_OP_OTHER);
    assert_null(berth_op_sample(ctx, GGML_OP_COUNT, 0, GGML_TYPE_F32, GGML_TYPE_F32));
    ggml_free(ctx);
}

// A node from a constructor has a valid shape. With another extent, a missing source or an additional source, the shape is invalid.
static void shapes_hold_as_constructors_make_them(void **state) {
    (void) state;
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = 1 << 20, .no_alloc = true});
    int n_ops = 0;
    for (int op = 0; op < GGML_OP_COUNT; op++) {
        const struct berth_op_info *info = berth_op_info((enum ggml_op) op);
        ggml_reset(ctx);
        struct ggml_tensor *t = berth_op_sample(ctx, (enum ggml_op) op, 0, GGML_TYPE_F32, GGML_TYPE_F32);
        if (t == NULL || berth_is_poison(t) || info->shape == NULL) {
            assert_true(t == NULL || berth_is_poison(t) || berth_op_shape_holds(t) == info->is_empty);
            continue;
        }
        n_ops++;
        assert_true(berth_op_shape_holds(t));
        t->ne[0]++;
        assert_false(berth_op_shape_holds(t));
        t->ne[0]--;
        struct ggml_tensor more = *t;
        more.src[info->n_src] = t;
        assert_false(berth_op_shape_holds(&more));
        t->src[0] = NULL;
        assert_false(berth_op_shape_holds(t));
    }
    assert_true(n_ops >= 35);
    assert_false(berth_op_shape_holds(NULL));
    ggml_free(ctx);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes_hold_as_constructors_make_them),
        cmocka_unit_test(arena_size_is_sufficient),
        cmocka_unit_test(full_arena_is_poison_with_numbers),
        cmocka_unit_test(poison_crosses_contexts),
        cmocka_unit_test(poison_cannot_be_changed),
        cmocka_unit_test(callers_memory_of_any_alignment),
        cmocka_unit_test(no_alloc_gives_no_data),
        cmocka_unit_test(invalid_shapes),
        cmocka_unit_test(views_refer_to_the_owner),
        cmocka_unit_test(long_names_are_cut),
        cmocka_unit_test(null_everywhere),
        cmocka_unit_test(every_op_has_a_row_and_a_sample),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
