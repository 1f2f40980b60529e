// SPDX-License-Identifier: MIT
// test_sched_foreign.c: the scheduler with ggml's own CPU backend, from its package, together with Berth's. Ops alternate between
// both and give the same results as on one. BERTH_REFERENCE=DIR names the folder with the package's libraries (default
// .cache/reference/...). Without it, or under a sanitizer, the test is skipped with a message.

#include "support/check.h"
#include "support/oracle.h"

#include "berth.h"
#include "ggml-backend.h"
#include "ggml-cpu.h"

#include <glob.h>
#include <math.h>

enum { W = 64, H = 4, STEPS = 12 };

static ggml_backend_t foreign; // ggml's CPU backend; NULL: the test is skipped

// The package's library requires a libggml-base.so. It gets Berth's, because this process has already loaded that one.
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
        for (size_t i = found.gl_pathc; i > 0 && reg == NULL; i--) { // the newest type of processor that this machine supports
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

struct net {
    struct ggml_context *ctx, *cache_ctx;
    struct ggml_cgraph *graph;
    struct ggml_tensor *x, *w, *cache, *out;
};

// Returns the backend of step i. turns: 0 Berth's backend, 1 ggml's, 2 both alternately.
static ggml_backend_t at(ggml_backend_t *backends, int turns, int i) {
    return turns == 2 ? backends[i % 2] : backends[1 - turns];
}

// A chain of STEPS ops that also writes each step to a row of a cache and reads it back through a view.
static void net_build(struct net *n, ggml_backend_sched_t sched, ggml_backend_t *backends, int turns) {
    struct ggml_init_params params = {.mem_size = 1 << 20, .no_alloc = true};
    n->ctx = ggml_init(params);
    n->graph = ggml_new_graph(n->ctx);
    n->x = ggml_new_tensor_2d(n->ctx, GGML_TYPE_F32, W, H);
    n->w = ggml_new_tensor_2d(n->ctx, GGML_TYPE_F32, W, W);
    struct ggml_tensor *t = n->x;
    ggml_set_input(n->x);
    ggml_set_input(n->w);
    for (int i = 0; i < STEPS; i++) {
        t = i % 3 == 0 ? ggml_mul_mat(n->ctx, n->w, t) : i % 3 == 1 ? ggml_rms_norm(n->ctx, t, 1e-5f) : ggml_add(n->ctx, t, n->x);
        ggml_backend_sched_set_tensor_backend(sched, t, at(backends, turns, i));
        struct ggml_tensor *rows = ggml_view_2d(n->ctx, n->cache, W, H, n->cache->nb[1], (size_t) i * H * n->cache->nb[1]);
        struct ggml_tensor *write = ggml_cpy(n->ctx, t, rows);
        ggml_backend_sched_set_tensor_backend(sched, write, at(backends, turns, i));
        ggml_build_forward_expand(n->graph, write);
        t = ggml_add(n->ctx, rows, n->x);
        ggml_backend_sched_set_tensor_backend(sched, t, at(backends, turns, i + 1));
    }
    ggml_set_output(t);
    n->out = t;
    ggml_build_forward_expand(n->graph, t);
}

// Computes the graph three times. The result includes the cache.
static void compute(int turns, bool parallel, float *result, int *n_splits) {
    ggml_backend_t own = ggml_backend_cpu_init();
    ggml_backend_t backends[] = {foreign, own};
    ggml_backend_sched_t sched = ggml_backend_sched_new(backends, NULL, 2, 64, parallel, false);
    struct ggml_init_params params = {.mem_size = 1 << 16, .no_alloc = true};
    struct net n = {.cache_ctx = ggml_init(params)};
    n.cache = ggml_new_tensor_2d(n.cache_ctx, GGML_TYPE_F32, W, STEPS * H);
    ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors(n.cache_ctx, own);
    static float values[W * W];
    struct check_rng rng = check_rng_new(7);
    for (int i = 0; i < W * W; i++) {
        values[i] = (float) check_rng_below(&rng, 1000) / 1000.0f - 0.5f;
    }
    for (int run = 0; run < 3; run++) {
        ggml_backend_sched_reset(sched);
        net_build(&n, sched, backends, turns);
        assert_true(ggml_backend_sched_alloc_graph(sched, n.graph));
        ggml_backend_tensor_set(n.w, values, 0, ggml_nbytes(n.w));
        ggml_backend_tensor_set(n.x, values + run * W, 0, ggml_nbytes(n.x));
        assert_int_equal(ggml_backend_sched_graph_compute(sched, n.graph), GGML_STATUS_SUCCESS);
        ggml_backend_tensor_get(n.out, result + run * 2 * W * H, 0, ggml_nbytes(n.out));
        ggml_backend_tensor_get(n.cache, result + (run * 2 + 1) * W * H, 0, W * H * sizeof(float));
        ggml_free(n.ctx);
    }
    struct berth_sched_stats stats;
    berth_sched_stats(sched, &stats);
    assert_int_equal(stats.n_planned, 1);
    *n_splits = ggml_backend_sched_get_n_splits(sched);
    ggml_backend_sched_free(sched);
    ggml_backend_buffer_free(buffer);
    ggml_free(n.cache_ctx);
    ggml_backend_free(own);
}

static void two_cpu_backends_take_turns(void **state) {
    (void) state;
    if (foreign == NULL) {
        print_message("skipped: no CPU library of the reference that runs here (%s)\n", oracle_why());
        skip();
    }
    enum { SIZE = 3 * 2 * W * H };
    static float own[SIZE], other[SIZE], turns[SIZE];
    int n_splits;
    for (int parallel = 0; parallel < 2; parallel++) {
        compute(0, parallel != 0, own, &n_splits);
        assert_int_equal(n_splits, 1);
        compute(1, parallel != 0, other, &n_splits);
        assert_int_equal(n_splits, 1);
        compute(2, parallel != 0, turns, &n_splits);
        assert_true(n_splits > STEPS);
        for (int i = 0; i < SIZE; i++) {
            assert_true(isfinite(own[i]) && fabsf(own[i] - other[i]) < 1e-3f && fabsf(own[i] - turns[i]) < 1e-3f);
        }
    }
}

int main(void) {
    check_quiet();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_cpu_backends_take_turns),
    };
    return cmocka_run_group_tests_name("sched_foreign", tests, group_setup, group_teardown);
}
