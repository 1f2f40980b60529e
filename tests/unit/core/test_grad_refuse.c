// SPDX-License-Identifier: MIT
// test_grad_refuse.c: backward passes that are not supported. Each error names the node and the rule, and the graph cannot be
// computed.

#include "support/check.h"

#include "core/op.h"
#include "ggml-cpu.h"

#define N 4

static struct ggml_context *ctx;

static int setup(void **state) {
    (void) state;
    check_quiet();
    berth_clear_error();
    ctx = ggml_init((struct ggml_init_params){.mem_size = 8 << 20});
    return ctx == NULL;
}

static int teardown(void **state) {
    (void) state;
    ggml_free(ctx);
    return 0;
}

static struct ggml_tensor *tensor(enum ggml_type type, int64_t ne0, int64_t ne1, int64_t ne2) {
    struct ggml_tensor *t = ggml_new_tensor_3d(ctx, type, ne0, ne1, ne2);
    memset(t->data, 0, ggml_nbytes(t));
    return t;
}

static struct ggml_tensor *param(int64_t ne0, int64_t ne1, int64_t ne2) {
    struct ggml_tensor *t = tensor(GGML_TYPE_F32, ne0, ne1, ne2);
    ggml_set_param(t);
    return t;
}

static struct ggml_cgraph *backward(struct ggml_tensor *y) {
    struct ggml_cgraph *g = ggml_new_graph_custom(ctx, 512, true);
    struct ggml_tensor *loss = ggml_sum(ctx, y);
    ggml_set_loss(loss);
    ggml_build_forward_expand(g, loss);
    ggml_build_backward_expand(ctx, g, NULL);
    return g;
}

// Asserts that the backward pass of y is refused with an error that contains `text`, and that the graph cannot be computed.
static void refused(struct ggml_tensor *y, const char *text) {
    if (berth_is_poison(y)) {
        fail_msg("the op was not made: %s", berth_poison_error(y));
    }
    struct ggml_cgraph *g = backward(y);
    if (strstr(berth_last_error(), text) == NULL) {
        fail_msg("%s: the last error is \"%s\", without \"%s\"", ggml_op_desc(y), berth_last_error(), text);
    }
    assert_int_equal(berth_graph_check(g), GGML_STATUS_FAILED);
    assert_int_equal(ggml_graph_compute_with_ctx(ctx, g, 1), GGML_STATUS_FAILED);
    berth_clear_error();
    teardown(NULL);
    setup(NULL); // a new context, because a context keeps its first error
}

static void without_a_rule(void **state) {
    (void) state;
    refused(ggml_out_prod(ctx, tensor(GGML_TYPE_F32, N, 3, 1), param(N, 3, 2)), "more batches");
    refused(ggml_group_norm(ctx, param(N, 1, 3), 2, 1e-5f), "3 channels are not divisible into 2 groups");
    refused(ggml_get_rows(ctx, param(N, 3, 2), tensor(GGML_TYPE_I32, 5, 2, 1)), "requires a matrix");
    refused(ggml_set_rows(ctx, tensor(GGML_TYPE_F32, N, 6, 2), param(N, 3, 2), tensor(GGML_TYPE_I64, 3, 1, 1)), "are shared");
    refused(ggml_soft_max_ext(ctx, tensor(GGML_TYPE_F32, N, 3, 2), param(N, 3, 1), 1.0f, 8.0f), "slopes");
    refused(ggml_soft_max_ext(ctx, tensor(GGML_TYPE_F32, N, 3, 2), param(N, 5, 1), 1.0f, 0.0f), "unused rows");
    refused(ggml_pad_ext(ctx, param(N, 3, 1), 0, -1, 0, 0, 0, 0, 0, 0), "have no gradient rule");
    refused(ggml_pad_ext(ctx, param(N, 3, 1), -1, 0, 0, 0, 0, 0, 0, 0), "have no gradient rule");
    refused(ggml_pad_circular(ctx, param(N, 3, 1), 1, 1, 0, 0), "have no gradient rule");
    refused(ggml_upscale(ctx, param(N, 3, 1), 2, GGML_SCALE_MODE_BILINEAR), "integer factors");
    refused(ggml_interpolate(ctx, param(N, 3, 1), N + 1, 3, 1, 1, GGML_SCALE_MODE_NEAREST), "integer factors");
    refused(ggml_interpolate(ctx, param(N, 3, 1), N, 4, 1, 1, GGML_SCALE_MODE_NEAREST), "integer factors");
    refused(ggml_interpolate(ctx, param(N, 3, 1), N, 3, 2, 1, GGML_SCALE_MODE_NEAREST), "integer factors");
    refused(ggml_interpolate(ctx, param(N, 3, 1), N, 3, 1, 2, GGML_SCALE_MODE_NEAREST), "integer factors");
    refused(ggml_sqr_inplace(ctx, param(N, 3, 1)), "in-place");
}

// Nodes with an unknown formula or op, which no constructor builds.
static void of_unknown_kinds(void **state) {
    (void) state;
    struct ggml_tensor *y = ggml_exp(ctx, param(N, 3, 1));
    y->op_params[0] = GGML_UNARY_OP_COUNT;
    refused(y, "no gradient rule");
    y = ggml_reglu(ctx, param(N, 3, 1));
    y->op_params[0] = GGML_GLU_OP_COUNT;
    refused(y, "not a ggml_glu_op");
    y = ggml_scale(ctx, param(N, 3, 1), 2);
    y->op = (enum ggml_op)(GGML_OP_COUNT + 7); // an unknown op passes no gradient on
    struct ggml_cgraph *g = backward(y);
    assert_null(ggml_graph_get_grad(g, y->src[0]));
}

static void strided_views(void **state) {
    (void) state;
    struct ggml_tensor *w = param(N, N, 1);
    struct ggml_tensor *v = ggml_view_2d(ctx, w, 2, 2, w->nb[1], 0);
    v->nb[0] = 2 * sizeof(float); // every other element
    refused(ggml_cont(ctx, v), "a view with strides");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(without_a_rule, setup, teardown),
        cmocka_unit_test_setup_teardown(of_unknown_kinds, setup, teardown),
        cmocka_unit_test_setup_teardown(strided_views, setup, teardown),
    };
    return cmocka_run_group_tests_name("grad_refuse", tests, NULL, NULL);
}
