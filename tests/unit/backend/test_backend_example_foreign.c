// SPDX-License-Identifier: MIT
// test_backend_example_foreign.c: the example of docs/dev/adding-a-backend.md, compiled with the command it gives, loaded and run.

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "berth.h"
#include "ggml-backend.h"
#include "support/module.h"

static void the_example_runs(void **state) {
    (void) state;
    if (!module_has_compiler()) {
        print_message("skipped: no compiler to build the example with\n");
        skip();
    }
    assert_true(module_compile("libggml-toy.so", "examples/backend/toy.c", "-Wall -Wextra -Wpedantic -Werror"));
    ggml_backend_load_all_from_path(module_dir);
    ggml_backend_t backend = ggml_backend_init_by_name("toy0", NULL);
    assert_non_null(backend);

    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = 1 << 20, .no_alloc = true});
    struct ggml_tensor *a = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 4);
    struct ggml_tensor *b = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 4);
    struct ggml_tensor *out = ggml_mul(ctx, ggml_add(ctx, a, b), b);
    struct ggml_tensor *root = ggml_sqrt(ctx, out);
    struct ggml_cgraph *graph = ggml_new_graph(ctx);
    ggml_build_forward_expand(graph, out);
    ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors(ctx, backend);
    const float in_a[] = {1, 2, 3, 4}, in_b[] = {10, 20, 30, 40}, expected[] = {110, 440, 990, 1760};
    float got[4];
    ggml_backend_tensor_set(a, in_a, 0, sizeof in_a);
    ggml_backend_tensor_set(b, in_b, 0, sizeof in_b);
    assert_true(ggml_backend_supports_op(backend, out));
    assert_int_equal(ggml_backend_graph_compute(backend, graph), GGML_STATUS_SUCCESS);
    ggml_backend_tensor_get(out, got, 0, sizeof got);
    assert_memory_equal(got, expected, sizeof got);

    assert_false(ggml_backend_supports_op(backend, root));
    ggml_build_forward_expand(graph, root);
    assert_int_equal(ggml_backend_graph_compute(backend, graph), GGML_STATUS_FAILED);
    ggml_backend_reg_t reg = ggml_backend_dev_backend_reg(ggml_backend_get_device(backend));
    ggml_backend_buffer_free(buffer);
    ggml_backend_free(backend);
    ggml_backend_unload(reg);
    assert_null(ggml_backend_dev_by_name("toy0"));
    ggml_free(ctx);
}

static int group_setup(void **state) {
    (void) state;
    return module_setup() ? 0 : -1;
}

static int group_teardown(void **state) {
    (void) state;
    module_teardown();
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_example_runs)};
    return cmocka_run_group_tests_name("backend_example_foreign", tests, group_setup, group_teardown);
}
