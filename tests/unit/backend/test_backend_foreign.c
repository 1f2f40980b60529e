// SPDX-License-Identifier: MIT
// test_backend_foreign.c: loads ggml's own CPU backend, from its package, with Berth's base library, queries it and computes on it.
// BERTH_REFERENCE=DIR names the folder with the package's libraries (default: the folder of tools/fetch-reference.sh). Without it,
// or under a sanitizer (which cannot separate two CPU backends), the test is skipped with a message.

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "berth.h"
#include "ggml-backend.h"
#include "quant/quants.h"
#include "support/module.h"
#include "support/oracle.h"

#include <dlfcn.h>
#include <glob.h>
#include <math.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#    define SANITIZED 1
#elif defined(__has_feature)
#    if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#        define SANITIZED 1
#    endif
#endif
#ifndef SANITIZED
#    define SANITIZED 0
#endif

static ggml_backend_t backend; // a backend of the reference; NULL: the tests are skipped

static void need_reference(void) {
    if (backend == NULL) {
        print_message("%s", SANITIZED ? "skipped: built with a sanitizer\n"
                                      : "skipped: no CPU library of the reference that runs here (set BERTH_REFERENCE)\n");
        skip();
    }
}

// Links the package's CPU libraries and this process's base library into one folder, as a package of Berth would have them.
static void link_all(const char *pattern) {
    glob_t found;
    char to[2 * MODULE_PATH];
    if (glob(pattern, 0, NULL, &found) != 0) {
        return;
    }
    for (size_t i = 0; i < found.gl_pathc; i++) {
        char *from = realpath(found.gl_pathv[i], NULL);
        snprintf(to, sizeof to, "%s%s", module_dir, strrchr(found.gl_pathv[i], '/'));
        if (from != NULL && symlink(from, to) != 0) {
            print_message("cannot link %s\n", to);
        }
        free(from);
    }
    globfree(&found);
    Dl_info info;
    if (dladdr((void *) (uintptr_t) &ggml_init, &info) != 0 && symlink(info.dli_fname, module_path("libggml-base.so")) != 0) {
        print_message("cannot link the base\n");
    }
}

static int group_setup(void **state) {
    (void) state;
    const char *dir = getenv("BERTH_REFERENCE");
    char pattern[2 * MODULE_PATH];
    if (!module_setup()) {
        return -1;
    }
    snprintf(pattern, sizeof pattern, "%s/libggml-cpu-*.so",
        dir != NULL ? dir : ".cache/reference/" ORACLE_ARCH "-" ORACLE_VERSION "/bins/" ORACLE_ARCH);
    if (!SANITIZED) {
        link_all(pattern);
    }
    ggml_backend_reg_t reg = NULL;
    for (size_t i = 0; i < sizeof oracle_cpus / sizeof oracle_cpus[0] && reg == NULL;
         i++) { // the best that this machine supports
        if (access(module_path(oracle_cpus[i]), R_OK) == 0) {
            reg = ggml_backend_load(module_path(oracle_cpus[i]));
        }
    }
    backend = reg != NULL ? ggml_backend_dev_init(ggml_backend_reg_dev_get(reg, 0), NULL) : NULL;
    return 0;
}

static int group_teardown(void **state) {
    (void) state;
    ggml_backend_free(backend);
    module_teardown();
    return 0;
}

// ---- device ----

static void its_device_answers(void **state) {
    (void) state;
    need_reference();
    ggml_backend_dev_t dev = ggml_backend_get_device(backend);
    ggml_backend_reg_t reg = ggml_backend_dev_backend_reg(dev);
    struct ggml_backend_dev_props props;
    ggml_backend_dev_get_props(dev, &props);
    assert_string_equal(ggml_backend_name(backend), "CPU");
    assert_string_equal(props.name, "CPU");
    assert_int_equal(props.type, GGML_BACKEND_DEVICE_TYPE_CPU);
    assert_true(props.caps.buffer_from_host_ptr);
    assert_true(props.memory_total > 0);
    assert_ptr_equal(ggml_backend_get_default_buffer_type(backend), ggml_backend_cpu_buffer_type());
    assert_non_null(ggml_backend_reg_get_proc_address(reg, "ggml_backend_set_n_threads"));
    assert_null(ggml_backend_event_new(dev));
    _Alignas(64) static char memory[128];
    ggml_backend_buffer_t buffer = ggml_backend_dev_buffer_from_host_ptr(dev, memory, sizeof memory, sizeof memory);
    assert_ptr_equal(ggml_backend_buffer_get_base(buffer), memory);
    ggml_backend_buffer_free(buffer);
}

// ---- compute ----

enum { K = 64, ROWS = 16, COLS = 3 };

struct numbers {
    float w[ROWS][K], x[COLS][K], y[ROWS];
    double expected[COLS][ROWS]; // w x + y
};

static float next(uint32_t *seed) {
    *seed = *seed * 1664525u + 1013904223u;
    return (float) (*seed >> 8) / (float) (1 << 23) - 1.0f;
}

static double dot(const float *a, const float *b, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++) {
        sum += (double) a[i] * (double) b[i];
    }
    return sum;
}

static void numbers_make(struct numbers *n) {
    uint32_t seed = 12345;
    for (int i = 0; i < ROWS; i++) {
        for (int k = 0; k < K; k++) {
            n->w[i][k] = next(&seed);
        }
        n->y[i] = next(&seed);
    }
    for (int j = 0; j < COLS; j++) {
        for (int k = 0; k < K; k++) {
            n->x[j][k] = next(&seed);
        }
        for (int i = 0; i < ROWS; i++) {
            n->expected[j][i] = (double) n->y[i] + dot(n->w[i], n->x[j], K);
        }
    }
}

static void pack(enum ggml_type type, const float *from, void *to, int64_t n) {
    switch (type) {
        case GGML_TYPE_F16: ggml_fp32_to_fp16_row(from, to, n); break;
        case GGML_TYPE_Q8_0: quantize_row_q8_0_ref(from, to, n); break;
        case GGML_TYPE_Q4_0: quantize_row_q4_0_ref(from, to, n); break;
        default: memcpy(to, from, (size_t) n * sizeof *from);
    }
}

// Computes w x + y with weights of the type in memory of buft. Returns the largest error.
static double largest_error(enum ggml_type type, ggml_backend_buffer_type_t buft, bool with_plan) {
    static struct numbers n;
    numbers_make(&n);
    struct ggml_init_params params = {.mem_size = 1 << 20, .no_alloc = true};
    struct ggml_context *weights = ggml_init(params), *ctx = ggml_init(params);
    struct ggml_tensor *w = ggml_set_name(ggml_new_tensor_2d(weights, type, K, ROWS), "w");
    ggml_backend_buffer_t held = ggml_backend_alloc_ctx_tensors_from_buft(weights, buft);
    assert_non_null(held);
    ggml_backend_buffer_set_usage(held, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);

    struct ggml_tensor *x = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, K, COLS);
    struct ggml_tensor *y = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, ROWS);
    struct ggml_tensor *out = ggml_add(ctx, ggml_mul_mat(ctx, w, x), y);
    struct ggml_cgraph *graph = ggml_new_graph(ctx);
    ggml_build_forward_expand(graph, out);
    assert_true(ggml_backend_supports_op(backend, out->src[0]));
    ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors(ctx, backend);

    static char packed[sizeof n.w];
    pack(type, &n.w[0][0], packed, (int64_t) K * ROWS);
    ggml_backend_tensor_set(w, packed, 0, ggml_nbytes(w));
    ggml_backend_tensor_set(x, n.x, 0, sizeof n.x);
    ggml_backend_tensor_set_async(backend, y, n.y, 0, sizeof n.y);
    if (with_plan) {
        ggml_backend_graph_plan_t plan = ggml_backend_graph_plan_create(backend, graph);
        assert_int_equal(ggml_backend_graph_plan_compute(backend, plan), GGML_STATUS_SUCCESS);
        ggml_backend_graph_plan_free(backend, plan);
    } else {
        assert_int_equal(ggml_backend_graph_compute(backend, graph), GGML_STATUS_SUCCESS);
    }
    float got[COLS][ROWS];
    ggml_backend_tensor_get(out, got, 0, sizeof got);
    double worst = 0;
    for (int j = 0; j < COLS; j++) {
        for (int i = 0; i < ROWS; i++) {
            const double error = fabs((double) got[j][i] - n.expected[j][i]);
            worst = error > worst ? error : worst;
        }
    }
    ggml_backend_buffer_free(held);
    ggml_backend_buffer_free(buffer);
    ggml_free(weights);
    ggml_free(ctx);
    return worst;
}

static void it_computes(void **state) {
    (void) state;
    need_reference();
    ggml_backend_buffer_type_t host = ggml_backend_cpu_buffer_type();
    assert_true(largest_error(GGML_TYPE_F32, host, false) < 1e-5);
    assert_true(largest_error(GGML_TYPE_F32, host, true) < 1e-5);
    assert_true(largest_error(GGML_TYPE_F16, host, false) < 1e-2);
    assert_true(largest_error(GGML_TYPE_Q8_0, host, false) < 5e-2);
    assert_true(largest_error(GGML_TYPE_Q4_0, host, false) < 8e-1);
}

// The reference has its own buffer types, which repack weights. Weights in them cannot be read back.
static void it_repacks(void **state) {
    (void) state;
    need_reference();
    ggml_backend_dev_t dev = ggml_backend_get_device(backend);
    ggml_backend_dev_get_extra_bufts_t get;
    void *p = ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(dev), "ggml_backend_dev_get_extra_bufts");
    memcpy(&get, &p, sizeof get);
    int n_tried = 0;
    for (ggml_backend_buffer_type_t *buft = get != NULL ? get(dev) : NULL; buft != NULL && *buft != NULL; buft++) {
        assert_true(ggml_backend_dev_supports_buft(dev, *buft));
        if (strcmp(ggml_backend_buft_name(*buft), "CPU_REPACK") == 0) {
            assert_true(largest_error(GGML_TYPE_Q4_0, *buft, false) < 8e-1);
            n_tried++;
        }
    }
    print_message("%d repacking buffer types\n", n_tried);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(its_device_answers),
        cmocka_unit_test(it_computes),
        cmocka_unit_test(it_repacks),
    };
    return cmocka_run_group_tests_name("backend_foreign", tests, group_setup, group_teardown);
}
