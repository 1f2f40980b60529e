// SPDX-License-Identifier: MIT
// test_sched_foreign.c: the scheduler with ggml's own CPU backend, from its package, as a second backend beside Berth's: ops in
// turns on both, the same numbers as on one. BERTH_REFERENCE=DIR names the folder with the package's libraries (default
// .cache/reference/...); without it, or under a sanitizer, the test is skipped with a line.

#include "support/check.h"
#include "support/oracle.h"

#include "ggml-backend.h"
#include "ggml-cpu.h"

#include <glob.h>
#include <math.h>

enum { W = 64, H = 4, STEPS = 12 };

static ggml_backend_t foreign; // NULL: skip

// The package's library asks for libggml-base.so by that name, which this process has already: Berth's.
static int group_setup(void **state) {
    (void) state;
    char pattern[PATH_MAX + 32];
    glob_t found;
    if (ORACLE_SANITIZED || oracle_dir() == NULL) {
        return 0;
    }
    snprintf(pattern, sizeof pattern, "%s/libggml-cpu-*.so", oracle_dir());
    if (glob(pattern, 0, NULL, &found) == 0) {
        ggml_backend_reg_t reg = NULL;
        for (size_t i = found.gl_pathc; i > 0 && reg == NULL; i--) { // the newest machine that this one is
            reg = ggml_backend_load(found.gl_pathv[i - 1]);
        }
        foreign = reg != NULL ? ggml_backend_dev_init(ggml_backend_reg_dev_get(reg, 0), NULL) : NULL;
        globfree(&found);
    }
    return 0;
}

static int group_teardown(void **state) {
    (void) state;
    ggml_backend_free(foreign);
    return 0;
}

// A net of STEPS ops, each where `turns` says: 0 Berth, 1 the other, 2 in turns.
static void compute(int turns, float *result, int *n_splits) {
    ggml_backend_t own             = ggml_backend_cpu_init();
    ggml_backend_t backends[]      = {foreign, own};
    ggml_backend_sched_t sched     = ggml_backend_sched_new(backends, NULL, 2, 64, false, false);
    struct ggml_init_params params = {.mem_size = 1 << 20, .no_alloc = true};
    struct ggml_context *ctx       = ggml_init(params);
    struct ggml_cgraph *graph      = ggml_new_graph(ctx);
    struct ggml_tensor *x = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, W, H), *w = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, W, W);
    struct ggml_tensor *t = x;
    ggml_set_input(x);
    ggml_set_input(w);
    for (int i = 0; i < STEPS; i++) {
        t = i % 3 == 0 ? ggml_mul_mat(ctx, w, t) : i % 3 == 1 ? ggml_rms_norm(ctx, t, 1e-5f) : ggml_add(ctx, t, x);
        ggml_backend_sched_set_tensor_backend(sched, t, turns == 2 ? backends[i % 2] : turns == 1 ? foreign : own);
    }
    ggml_set_output(t);
    ggml_build_forward_expand(graph, t);
    assert_true(ggml_backend_sched_alloc_graph(sched, graph));
    struct check_rng rng = check_rng_new(7);
    static float values[W * W];
    for (int i = 0; i < W * W; i++) {
        values[i] = (float) check_rng_below(&rng, 1000) / 1000.0f - 0.5f;
    }
    ggml_backend_tensor_set(w, values, 0, ggml_nbytes(w));
    ggml_backend_tensor_set(x, values, 0, ggml_nbytes(x));
    assert_int_equal(ggml_backend_sched_graph_compute(sched, graph), GGML_STATUS_SUCCESS);
    ggml_backend_tensor_get(t, result, 0, ggml_nbytes(t));
    *n_splits = ggml_backend_sched_get_n_splits(sched);
    ggml_backend_sched_free(sched);
    ggml_free(ctx);
    ggml_backend_free(own);
}

static void two_cpu_backends_take_turns(void **state) {
    (void) state;
    if (foreign == NULL) {
        print_message("skipped: no CPU library of the reference that runs here (%s)\n", oracle_why());
        skip();
    }
    static float own[W * H], other[W * H], turns[W * H];
    int n_splits;
    compute(0, own, &n_splits);
    assert_int_equal(n_splits, 1);
    compute(1, other, &n_splits);
    assert_int_equal(n_splits, 1);
    compute(2, turns, &n_splits);
    assert_int_equal(n_splits, STEPS);
    for (int i = 0; i < W * H; i++) {
        assert_true(isfinite(own[i]) && fabsf(own[i] - other[i]) < 1e-3f && fabsf(own[i] - turns[i]) < 1e-3f);
    }
}

int main(void) {
    check_quiet();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_cpu_backends_take_turns),
    };
    return cmocka_run_group_tests_name("sched_foreign", tests, group_setup, group_teardown);
}
