// SPDX-License-Identifier: MIT
// test_fault.c: builds a context, 50 ops and a graph, with each allocation failing in turn and with every arena size from 0 to
// sufficient. There must be no crash and no leak, and every failure must set an error.

#include "support/check.h"

#include <pthread.h>

#define N_OPS 50

// Builds into ctx. Returns true if there was no error.
static bool build(struct ggml_context *ctx) {
    struct ggml_tensor *w = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 8, 8);
    struct ggml_tensor *x = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 8, 4);
    struct ggml_tensor *t = x;
    for (int i = 0; i < N_OPS / 10; i++) {
        struct ggml_tensor *n = ggml_rms_norm(ctx, t, 1e-5f);
        struct ggml_tensor *q = ggml_mul_mat(ctx, w, n);
        struct ggml_tensor *r = ggml_reshape_3d(ctx, q, 4, 2, 4);
        struct ggml_tensor *p = ggml_permute(ctx, r, 0, 2, 1, 3);
        struct ggml_tensor *c = ggml_cont_2d(ctx, p, 8, 4);
        struct ggml_tensor *s = ggml_soft_max(ctx, c);
        struct ggml_tensor *u = ggml_silu_inplace(ctx, s);
        struct ggml_tensor *v = ggml_view_2d(ctx, u, 8, 2, u != NULL ? u->nb[1] : 0, 0);
        struct ggml_tensor *k = ggml_repeat(ctx, v, t);
        t = ggml_add(ctx, t, k);
    }
    ggml_set_output(t);
    struct ggml_cgraph *g = ggml_new_graph_custom(ctx, 100, false);
    ggml_build_forward_expand(g, t);
    const bool sound = berth_graph_check(g) == GGML_STATUS_SUCCESS && berth_context_error(ctx)[0] == '\0';
    if (sound) {
        assert_int_equal(ggml_graph_n_nodes(g), N_OPS);
    } else {
        assert_true(berth_last_error()[0] != '\0');
    }
    return sound;
}

static void every_allocation_fails_once(void **state) {
    (void) state;
    check_quiet();
    bool sound = false;
    int64_t n = 0;
    while (!sound) {
        n++;
        berth_clear_error();
        berth_alloc_watch(true);
        berth_alloc_fail_at(n);
        struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = 1 << 16});
        sound = ctx != NULL && build(ctx);
        if (ctx == NULL) {
            assert_non_null(strstr(berth_last_error(), "out of memory"));
        }
        ggml_free(ctx);
        assert_int_equal(berth_alloc_alive(), 0);
        assert_true(n < 1000);
    }
    berth_alloc_fail_at(0);
    berth_alloc_watch(false);
    print_message("%lld allocations, each failed once\n", (long long) n - 1);
    assert_true(n > 2);
}

static void every_arena_size(void **state) {
    (void) state;
    check_quiet();
    size_t n_poison = 0, n_sound = 0;
    for (size_t size = 0; n_sound < 3; size += 16) {
        berth_clear_error();
        berth_alloc_watch(true);
        struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = size});
        assert_non_null(ctx);
        if (build(ctx)) {
            n_sound++;
        } else {
            n_poison++;
            assert_non_null(strstr(berth_context_error(ctx), "bytes needed"));
            assert_int_equal(n_sound, 0); // every size above a sufficient one is sufficient
        }
        ggml_free(ctx);
        assert_int_equal(berth_alloc_alive(), 0);
        assert_true(size < 1 << 20);
    }
    berth_alloc_watch(false);
    print_message("%zu arena sizes too small, each an error\n", n_poison);
    assert_true(n_poison > 100);
}

// The walk through a deep graph allocates heap memory. If that fails, the graph reports it.
static void deep_walk_without_memory(void **state) {
    (void) state;
    check_quiet();
    const int depth = 5000;
    const size_t size = (size_t) (depth + 1) * (ggml_tensor_overhead() + 16) + ggml_graph_overhead_custom(8192, false);
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = size});
    struct ggml_tensor *t = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 4);
    for (int i = 0; i < depth; i++) {
        t = ggml_neg(ctx, t);
    }
    struct ggml_cgraph *g = ggml_new_graph_custom(ctx, 8192, false);
    bool sound = false;
    int64_t n = 0;
    while (!sound) {
        n++;
        ggml_graph_clear(g);
        berth_alloc_watch(true);
        berth_alloc_fail_at(n);
        ggml_build_forward_expand(g, t);
        sound = berth_graph_check(g) == GGML_STATUS_SUCCESS;
        assert_int_equal(berth_alloc_alive(), 0);
        assert_true(n < 100);
        if (!sound) {
            assert_non_null(strstr(berth_last_error(), "out of memory"));
        }
    }
    berth_alloc_fail_at(0);
    berth_alloc_watch(false);
    assert_true(n > 3);
    assert_int_equal(ggml_graph_n_nodes(g), depth);
    ggml_free(ctx);
}

static void *thread_builds(void *arg) {
    for (int i = 0; i < 200; i++) {
        struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = (size_t) (uintptr_t) arg + (size_t) i * 256});
        build(ctx);
        ggml_free(ctx);
    }
    return NULL;
}

// Threads with separate contexts share no mutable data. The thread sanitizer checks this test.
static void threads_share_nothing(void **state) {
    (void) state;
    check_quiet();
    pthread_t t[4];
    for (uintptr_t i = 0; i < 4; i++) {
        assert_int_equal(pthread_create(&t[i], NULL, thread_builds, (void *) (i * 4096)), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(t[i], NULL);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocation_fails_once),
        cmocka_unit_test(every_arena_size),
        cmocka_unit_test(deep_walk_without_memory),
        cmocka_unit_test(threads_share_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
