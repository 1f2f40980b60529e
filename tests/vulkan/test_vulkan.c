// SPDX-License-Identifier: MIT
// test_vulkan.c: tests the Vulkan backend on the driver of this machine: buffers with and without staging, graphs, tensors beyond the
// limits of a dispatch and of a storage buffer, no allocation after a reserve, failing allocations. Without a device the program
// exits with 77.

#include "base/base.h"
#include "vulkan/backend.h"

#include "ggml-alloc.h"
#include "ggml-vulkan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct ggml_context *context_new(void) {
    struct ggml_init_params params = {.mem_size = 1 << 20, .no_alloc = true};
    return ggml_init(params);
}

// ---- buffers ----

static void check_transfers(void) {
    enum { SIZE = 5 << 20 }; // more than the staging memory
    ggml_backend_buffer_t buffer = ggml_backend_buft_alloc_buffer(ggml_backend_vk_buffer_type(0), 2 * SIZE + 1024);
    assert_non_null(buffer);
    struct ggml_context *ctx = context_new();
    struct ggml_tensor *a = ggml_new_tensor_1d(ctx, GGML_TYPE_I8, SIZE), *b = ggml_new_tensor_1d(ctx, GGML_TYPE_I8, SIZE);
    char *base = ggml_backend_buffer_get_base(buffer);
    assert_int_equal(ggml_backend_tensor_alloc(buffer, a, base), GGML_STATUS_SUCCESS);
    assert_int_equal(ggml_backend_tensor_alloc(buffer, b, base + SIZE + 256), GGML_STATUS_SUCCESS);
    uint8_t *from = malloc(SIZE), *to = malloc(SIZE);
    for (int i = 0; i < SIZE; i++) {
        from[i] = (uint8_t) (i * 7 + i / 251);
    }
    ggml_backend_buffer_clear(buffer, 0x5a);
    ggml_backend_tensor_set(a, from + 3, 3, SIZE - 10); // an offset and a size that are no multiples of 4
    ggml_backend_tensor_get(a, to, 0, SIZE);
    assert_memory_equal(to + 3, from + 3, SIZE - 10);
    assert_int_equal(to[2], 0x5a);
    assert_int_equal(to[SIZE - 7], 0x5a);
    ggml_backend_tensor_copy(a, b);
    ggml_backend_tensor_get(b, from, 0, SIZE);
    assert_memory_equal(from, to, SIZE);
    ggml_backend_tensor_memset(b, 9, 1, 5);
    ggml_backend_tensor_get(b, from, 0, 8);
    assert_int_equal(from[0], to[0]);
    assert_int_equal(from[1], 9);
    assert_int_equal(from[5], 9);
    assert_int_equal(from[6], to[6]);
    free(from), free(to);
    ggml_free(ctx);
    ggml_backend_buffer_free(buffer);
}

static void buffers_keep_their_bytes(void **state) {
    (void) state;
    check_transfers();
    vulkan_devices_reset();
    setenv("BERTH_VULKAN_STAGING", "1", 1);
    check_transfers();
    unsetenv("BERTH_VULKAN_STAGING");
    vulkan_devices_reset();
}

static void a_buffer_that_does_not_fit_is_an_error(void **state) {
    (void) state;
    assert_null(ggml_backend_buft_alloc_buffer(ggml_backend_vk_buffer_type(0), (size_t) 1 << 46));
    assert_non_null(strstr(berth_last_error(), "cannot allocate 70368744177664 bytes"));
    check_transfers();
}

// ---- graphs ----

// A graph with n columns: soft_max(w x) + x.
static struct ggml_cgraph *graph_new(struct ggml_context *ctx, int64_t n, struct ggml_tensor **x, struct ggml_tensor **y) {
    struct ggml_tensor *w = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 64, 64);
    *x = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 64, n);
    ggml_set_input(w);
    ggml_set_input(*x);
    *y = ggml_add(ctx, ggml_soft_max(ctx, ggml_mul_mat(ctx, w, *x)), *x);
    ggml_set_output(*y);
    struct ggml_cgraph *graph = ggml_new_graph(ctx);
    ggml_build_forward_expand(graph, *y);
    return graph;
}

static void a_reserved_graph_allocates_nothing(void **state) {
    (void) state;
    ggml_backend_t backend = ggml_backend_vk_init(0);
    assert_non_null(backend);
    struct ggml_context *ctx = context_new();
    struct ggml_tensor *x, *y;
    struct ggml_cgraph *graph = graph_new(ctx, 20, &x, &y);
    assert_int_equal(vulkan_backend_reserve(backend, graph), GGML_STATUS_SUCCESS);
    ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors(ctx, backend);
    assert_non_null(buffer);
    assert_null(ggml_get_first_tensor(ctx)->view_src);
    float values[64 * 64] = {0};
    ggml_backend_tensor_set(ggml_get_first_tensor(ctx), values, 0, sizeof values); // w: zeros, so the soft_max is 1 / 64
    for (int i = 0; i < 64 * 20; i++) {
        values[i] = (float) i;
    }
    ggml_backend_tensor_set(x, values, 0, 64 * 20 * sizeof(float));
    const size_t n_before = vulkan_backend_n_allocs(backend);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(ggml_backend_graph_compute(backend, graph), GGML_STATUS_SUCCESS);
    }
    assert_int_equal(vulkan_backend_n_allocs(backend), n_before);
    ggml_backend_tensor_get(y, values, 0, 64 * 20 * sizeof(float));
    for (int i = 0; i < 64 * 20; i++) {
        assert_true(values[i] == (float) i + 1.0f / 64);
    }
    ggml_backend_buffer_free(buffer);
    ggml_free(ctx);
    ggml_backend_free(backend);
}

// 70,000 rows are more workgroups than a dispatch may have; 160 MB are more than the range of a storage buffer (lavapipe: 128 MiB).
static void limits_of_the_driver_do_not_limit_tensors(void **state) {
    (void) state;
    ggml_backend_t backend = ggml_backend_vk_init(0);
    assert_non_null(backend);
    const int64_t shapes[2][2] = {{4, 70000}, {40 << 20, 1}};
    for (int i = 0; i < 2; i++) {
        struct ggml_context *ctx = context_new();
        struct ggml_tensor *x = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, shapes[i][0], shapes[i][1]);
        struct ggml_tensor *y = i == 0 ? ggml_rms_norm_inplace(ctx, x, 0.0f) : ggml_scale_inplace(ctx, x, 0.5f);
        struct ggml_cgraph *graph = ggml_new_graph(ctx);
        ggml_build_forward_expand(graph, y);
        ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors(ctx, backend);
        assert_non_null(buffer);
        const float two[4] = {2.0f, 2.0f, 2.0f, 2.0f};
        float last[4] = {0};
        const size_t last_off = ggml_nbytes(x) - sizeof last;
        ggml_backend_buffer_clear(buffer, 0);
        ggml_backend_tensor_set(x, two, last_off, sizeof two);
        assert_int_equal(ggml_backend_graph_compute(backend, graph), GGML_STATUS_SUCCESS);
        ggml_backend_tensor_get(y, last, last_off, sizeof last);
        for (int j = 0; j < 4; j++) {
            assert_true(last[j] == 1.0f);
        }
        ggml_backend_buffer_free(buffer);
        ggml_free(ctx);
    }
    ggml_backend_free(backend);
}

// ---- failures ----

// Creates a backend and computes a graph. Returns false if something failed.
static bool try_compute(void) {
    struct ggml_context *ctx = context_new();
    ggml_backend_t backend = ctx != NULL ? ggml_backend_vk_init(0) : NULL;
    ggml_backend_buffer_t buffer = NULL;
    bool is_ok = false;
    if (backend != NULL) {
        struct ggml_tensor *x, *y;
        struct ggml_cgraph *graph = graph_new(ctx, 3, &x, &y);
        buffer = ggml_backend_alloc_ctx_tensors(ctx, backend);
        is_ok = buffer != NULL && vulkan_backend_reserve(backend, graph) == GGML_STATUS_SUCCESS &&
                ggml_backend_graph_compute(backend, graph) == GGML_STATUS_SUCCESS;
    }
    ggml_backend_buffer_free(buffer);
    ggml_backend_free(backend);
    ggml_free(ctx);
    return is_ok;
}

static void every_failing_allocation_is_an_error(void **state) {
    (void) state;
    assert_true(try_compute());
    bool is_ok = false;
    for (int n = 1; !is_ok; n++) {
        assert_true(n < 1000);
        berth_alloc_fail_at(n);
        is_ok = try_compute();
        berth_alloc_fail_at(0);
    }
}

static void a_missing_driver_is_not_an_error(void **state) {
    (void) state;
    vulkan_devices_reset();
    setenv("BERTH_VULKAN_DRIVER", "/nonexistent.so", 1);
    assert_int_equal(ggml_backend_vk_get_device_count(), 0);
    assert_null(ggml_backend_vk_init(0));
    assert_non_null(strstr(berth_last_error(), "device 0 does not exist: this machine has 0"));
    assert_null(ggml_backend_vk_buffer_type(0));
    unsetenv("BERTH_VULKAN_DRIVER");
    vulkan_devices_reset();
    assert_true(ggml_backend_vk_get_device_count() > 0);
}

int main(void) {
    if (ggml_backend_vk_get_device_count() == 0) {
        printf("skipped: this machine has no Vulkan device\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buffers_keep_their_bytes),
        cmocka_unit_test(a_buffer_that_does_not_fit_is_an_error),
        cmocka_unit_test(a_reserved_graph_allocates_nothing),
        cmocka_unit_test(limits_of_the_driver_do_not_limit_tensors),
        cmocka_unit_test(every_failing_allocation_is_an_error),
        cmocka_unit_test(a_missing_driver_is_not_an_error),
    };
    const int n_failed = cmocka_run_group_tests(tests, NULL, NULL);
    vulkan_devices_reset();
    return n_failed;
}
