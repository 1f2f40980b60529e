// SPDX-License-Identifier: MIT
// test_graph.c: graphs: order, leaves and nodes, full graphs, copies, views, slots for gradients, printing.

#include "support/check.h"

#include "core/graph.h"

static struct ggml_context *context(void) {
    return ggml_init((struct ggml_init_params){.mem_size = 1 << 20});
}

static int uses(const struct ggml_cgraph *g, const struct ggml_tensor *t) {
    const size_t i = berth_hash_find(&g->visited_hash_set, t);
    assert_true(i != BERTH_HASH_NONE && berth_bit_get(g->visited_hash_set.used, i));
    return g->use_counts[i];
}

static void sources_come_first(void **state) {
    (void) state;
    struct ggml_context *ctx = context();
    struct ggml_tensor *a = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 4);
    struct ggml_tensor *p = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 4);
    ggml_set_param(p);
    struct ggml_tensor *b = ggml_add(ctx, a, p);
    struct ggml_tensor *c = ggml_mul(ctx, b, b);
    struct ggml_cgraph *g = ggml_new_graph(ctx);
    ggml_build_forward_expand(g, c);
    assert_int_equal(g->n_leafs, 1);
    assert_int_equal(g->n_nodes, 3);
    assert_ptr_equal(ggml_graph_node(g, 0), p); // a parameter is a node
    assert_ptr_equal(ggml_graph_node(g, 1), b);
    assert_ptr_equal(ggml_graph_node(g, -1), c);
    assert_string_equal(a->name, "leaf_0");
    assert_string_equal(b->name, "node_1");
    assert_int_equal(uses(g, b), 2);
    assert_int_equal(uses(g, c), 0);
    ggml_build_forward_expand(g, c); // a second time adds nothing
    assert_int_equal(g->n_nodes, 3);
    assert_ptr_equal(ggml_graph_get_tensor(g, "node_1"), b);
    assert_null(ggml_graph_get_tensor(g, "absent"));
    assert_null(ggml_graph_get_grad(g, b));
    ggml_free(ctx);
}

// A source that the program has edited depends on its reader. Building the graph must fail.
static void cycles_are_refused(void **state) {
    (void) state;
    check_quiet();
    for (int kind = 0; kind < 4; kind++) {
        struct ggml_context *ctx = context();
        struct ggml_tensor *x = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 4);
        struct ggml_tensor *a = ggml_add(ctx, x, x), *b = ggml_sqr(ctx, a), *c = ggml_neg(ctx, b);
        struct ggml_cgraph *g = ggml_new_graph(ctx);
        switch (kind) {
            case 0: a->src[1] = a; break;                          // through itself
            case 1: a->src[1] = c; break;                          // through two other nodes
            case 2: a->src[0] = ggml_view_1d(ctx, b, 4, 0); break; // through a view
            default:
                a->src[0] = ggml_cast(ctx, x, GGML_TYPE_F32),
                a->src[0]->src[0] = c; // a cast may have itself as a source, but must not be part of a longer cycle
        }
        ggml_build_forward_expand(g, c);
        assert_int_equal(berth_graph_check(g), GGML_STATUS_FAILED);
        assert_non_null(strstr(berth_last_error(), "cycle"));
        ggml_graph_clear(g); // a failed graph can be cleared and used again
        ggml_build_forward_expand(g, ggml_sqr(ctx, x));
        assert_int_equal(berth_graph_check(g), GGML_STATUS_SUCCESS);
        assert_int_equal(g->n_nodes, 1);
        ggml_free(ctx);
    }
    struct ggml_context *ctx = context();
    struct ggml_tensor *x = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 4), *cast = ggml_cast(ctx, x, GGML_TYPE_F16);
    struct ggml_cgraph *g = ggml_new_graph(ctx);
    ggml_build_forward_expand(g, ggml_sqr(ctx, ggml_cast(ctx, cast, GGML_TYPE_F32)));
    assert_int_equal(berth_graph_check(g), GGML_STATUS_SUCCESS);
    assert_int_equal(uses(g, cast), 2); // one of them is the cast itself
    assert_int_equal(uses(g, x), 1);
    ggml_free(ctx);
}

static void selected_branch_is_computed(void **state) {
    (void) state;
    struct ggml_context *ctx = context();
    struct ggml_tensor *a = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 4);
    struct ggml_tensor *shared = ggml_neg(ctx, a);
    struct ggml_tensor *branch[] = {ggml_abs(ctx, shared), ggml_sgn(ctx, shared)};
    struct ggml_cgraph *g = ggml_new_graph(ctx);
    assert_ptr_equal(ggml_build_forward_select(g, branch, 2, 1), branch[1]);
    assert_int_equal(g->n_nodes, 3);
    assert_false(branch[0]->flags & GGML_TENSOR_FLAG_COMPUTE);
    assert_true(branch[1]->flags & GGML_TENSOR_FLAG_COMPUTE);
    assert_true(shared->flags & GGML_TENSOR_FLAG_COMPUTE); // although the branch that was not selected added it
    check_quiet();
    assert_null(ggml_build_forward_select(g, branch, 2, 2));
    ggml_free(ctx);
}

static void full_graph_fails_with_a_message(void **state) {
    (void) state;
    check_quiet();
    struct ggml_context *ctx = context();
    struct ggml_tensor *a = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 4);
    struct ggml_tensor *t = a;
    for (int i = 0; i < 12; i++) {
        t = ggml_neg(ctx, t);
    }
    for (size_t size = 1; size <= 12; size++) {
        struct ggml_cgraph *g = ggml_new_graph_custom(ctx, size, false);
        ggml_build_forward_expand(g, t);
        if (size < 12) {
            assert_int_equal(berth_graph_check(g), GGML_STATUS_FAILED);
            assert_non_null(strstr(berth_last_error(), "full"));
            assert_true(berth_is_poison(ggml_graph_node(g, -1)));
            ggml_build_forward_expand(g, a); // the graph stays failed, without a new message
            ggml_graph_add_node(g, a);
            assert_int_equal(g->n_nodes, (int) size);
        } else {
            assert_int_equal(berth_graph_check(g), GGML_STATUS_SUCCESS);
            ggml_graph_add_node(g, a);
            assert_int_equal(berth_graph_check(g), GGML_STATUS_FAILED);
            ggml_graph_clear(g);
            ggml_build_forward_expand(g, t);
            assert_int_equal(berth_graph_check(g), GGML_STATUS_SUCCESS);
        }
    }
    // Fills all slots for leaves, then adds one more.
    struct ggml_cgraph *g = ggml_new_graph_custom(ctx, 2, false);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(berth_graph_check(g), GGML_STATUS_SUCCESS);
        ggml_build_forward_expand(g, ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 1));
    }
    assert_int_equal(berth_graph_check(g), GGML_STATUS_FAILED);
    assert_null(ggml_new_graph_custom(ctx, SIZE_MAX / 4, false));
    ggml_free(ctx);
}

static void poison_in_a_graph_is_found(void **state) {
    (void) state;
    check_quiet();
    struct ggml_context *ctx = context();
    struct ggml_tensor *a = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 4, 4);
    struct ggml_tensor *b = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 5, 4);
    struct ggml_cgraph *g = ggml_new_graph(ctx);
    ggml_build_forward_expand(g, ggml_neg(ctx, ggml_mul_mat(ctx, a, b)));
    assert_int_equal(berth_graph_check(g), GGML_STATUS_FAILED);
    assert_non_null(strstr(berth_last_error(), "ggml_mul_mat"));
    ggml_free(ctx);
}

static void copies_and_views(void **state) {
    (void) state;
    check_quiet();
    struct ggml_context *ctx = context();
    struct ggml_tensor *a = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 4);
    struct ggml_tensor *b = ggml_neg(ctx, a);
    struct ggml_tensor *c = ggml_add(ctx, a, b);
    struct ggml_cgraph *g = ggml_new_graph_custom(ctx, 16, true);
    ggml_build_forward_expand(g, c);
    struct ggml_cgraph *dup = ggml_graph_dup(ctx, g, false);
    assert_int_equal(dup->n_nodes, 2);
    assert_non_null(dup->grads);
    assert_int_equal(uses(dup, a), 2);
    struct ggml_cgraph view = ggml_graph_view(g, 1, 2);
    assert_int_equal(view.n_nodes, 1);
    assert_ptr_equal(ggml_graph_node(&view, 0), c);
    ggml_build_forward_expand(&view, c); // nothing can be added to a view: an error, and no change
    assert_int_equal(view.n_nodes, 1);
    assert_int_equal(ggml_graph_view(g, 1, 9).n_nodes, 0);
    struct ggml_cgraph *small = ggml_new_graph_custom(ctx, 1, false);
    ggml_graph_cpy(g, small);
    assert_int_equal(berth_graph_check(small), GGML_STATUS_FAILED);
    assert_null(ggml_graph_node(g, 2));
    ggml_free(ctx);
}

static void reset_clears_gradients(void **state) {
    (void) state;
    check_quiet();
    struct ggml_context *ctx = context();
    struct ggml_tensor *a = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 1);
    struct ggml_tensor *loss = ggml_sum(ctx, ggml_neg(ctx, a));
    ggml_set_loss(loss);
    struct ggml_cgraph *g = ggml_new_graph_custom(ctx, 16, true);
    ggml_build_forward_expand(g, loss);
    struct ggml_tensor *acc[2] = {ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 1), ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 1)};
    for (int i = 0; i < 2; i++) {
        *(float *) acc[i]->data = 5.0f;
        g->grad_accs[berth_hash_find(&g->visited_hash_set, g->nodes[i])] = acc[i];
    }
    ggml_graph_reset(g);
    assert_true(*(float *) acc[0]->data == 0.0f);
    assert_true(*(float *) acc[1]->data == 1.0f);
    assert_ptr_equal(ggml_graph_get_grad_acc(g, loss), acc[1]);
    ggml_graph_reset(ggml_new_graph(ctx)); // the graph has no gradients: an error
    assert_non_null(strstr(berth_last_error(), "no gradients"));
    ggml_free(ctx);
}

static void prints_and_draws(void **state) {
    (void) state;
    check_quiet();
    struct ggml_context *ctx = context();
    struct ggml_tensor *a = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 4);
    ggml_set_name(a, "a \"quoted\" {name}");
    struct ggml_cgraph *g = ggml_new_graph(ctx);
    ggml_build_forward_expand(g, ggml_silu(ctx, a));
    ggml_graph_print(g);
    char path[] = "/tmp/berth-dot-XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    ggml_graph_dump_dot(NULL, g, path);
    FILE *f = fdopen(fd, "r");
    char text[4096] = "";
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    remove(path);
    assert_non_null(strstr(text, "digraph"));
    assert_non_null(strstr(text, "\\\"quoted\\\""));
    assert_non_null(strstr(text, "SILU"));
    berth_clear_error();
    ggml_graph_dump_dot(NULL, g, "/nowhere/at/all.dot");
    assert_non_null(strstr(berth_last_error(), "/nowhere/at/all.dot"));
    berth_clear_error();
    ggml_graph_dump_dot(NULL, g, "/dev/full");
    assert_non_null(strstr(berth_last_error(), "completely"));
    ggml_free(ctx);
}

static void fusing_sees_outside_readers(void **state) {
    (void) state;
    struct ggml_context *ctx = context();
    struct ggml_tensor *a = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 4);
    struct ggml_tensor *n = ggml_rms_norm(ctx, a, 1e-5f);
    struct ggml_tensor *m = ggml_mul(ctx, n, a);
    struct ggml_cgraph *g = ggml_new_graph(ctx);
    ggml_build_forward_expand(g, m);
    const enum ggml_op ops[] = {GGML_OP_RMS_NORM, GGML_OP_MUL};
    assert_true(ggml_can_fuse_subgraph_ext(g, (int[]){0, 1}, 2, ops, (int[]){1}, 1));
    ggml_build_forward_expand(g, ggml_neg(ctx, n)); // a node outside reads the norm now
    assert_false(ggml_can_fuse_subgraph_ext(g, (int[]){0, 1}, 2, ops, (int[]){1}, 1));
    assert_false(ggml_can_fuse_subgraph_ext(g, (int[]){0, 7}, 2, ops, (int[]){1}, 1));
    ggml_free(ctx);
}

static void hash_sets(void **state) {
    (void) state;
    check_quiet();
    struct ggml_hash_set set = ggml_hash_set_new(100);
    assert_int_equal(set.size, 131);
    struct ggml_tensor *key = (struct ggml_tensor *) &set;
    const size_t i = berth_hash_find(&set, key);
    berth_bit_set(set.used, i);
    set.keys[i] = key;
    assert_int_equal(berth_hash_find(&set, key), i);
    ggml_hash_set_reset(&set);
    assert_false(berth_bit_get(set.used, i));
    ggml_hash_set_free(&set);
    for (int64_t n = 1; n <= 2; n++) {
        berth_alloc_watch(true);
        berth_alloc_fail_at(n);
        set = ggml_hash_set_new(100);
        assert_int_equal(berth_hash_find(&set, key), BERTH_HASH_NONE);
        ggml_hash_set_free(&set);
        assert_int_equal(berth_alloc_alive(), 0);
    }
    berth_alloc_fail_at(0);
    berth_alloc_watch(false);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sources_come_first),
        cmocka_unit_test(cycles_are_refused),
        cmocka_unit_test(selected_branch_is_computed),
        cmocka_unit_test(full_graph_fails_with_a_message),
        cmocka_unit_test(poison_in_a_graph_is_found),
        cmocka_unit_test(copies_and_views),
        cmocka_unit_test(reset_clears_gradients),
        cmocka_unit_test(prints_and_draws),
        cmocka_unit_test(fusing_sees_outside_readers),
        cmocka_unit_test(hash_sets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
