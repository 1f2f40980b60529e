// SPDX-License-Identifier: MIT
// test_op_limits.c: constructors of ops at their limits: sizes that overflow 63 bits are refused with a reason, windows that do not fit,
// and the numbers that a constructor stores. Tensors have no memory, so they can have 2^62 elements.

#include "support/check.h"

#include "base/base.h"
#include "core/graph.h"
#include "core/op.h"
#include "core/optable.h"

static struct ggml_context *ctx;

static int setup(void **state) {
    (void) state;
    check_quiet();
    berth_clear_error();
    ctx = ggml_init((struct ggml_init_params){.mem_size = 1 << 20, .no_alloc = true});
    return ctx == NULL;
}

static int teardown(void **state) {
    (void) state;
    ggml_free(ctx);
    return 0;
}

static void assert_refused(const struct ggml_tensor *t, const char *part) {
    assert_true(berth_poisoned(t));
    if (strstr(berth_last_error(), part) == NULL) {
        fail_msg("the last error is \"%s\", without \"%s\"", berth_last_error(), part);
    }
    berth_clear_error();
}

static void assert_shape(const struct ggml_tensor *t, int64_t ne0, int64_t ne1, int64_t ne2, int64_t ne3) {
    assert_false(berth_poisoned(t));
    assert_true(t->ne[0] == ne0 && t->ne[1] == ne1 && t->ne[2] == ne2 && t->ne[3] == ne3);
}

static struct ggml_tensor *f32(int64_t ne0, int64_t ne1, int64_t ne2, int64_t ne3) {
    struct ggml_tensor *t = ggml_new_tensor_4d(ctx, GGML_TYPE_F32, ne0, ne1, ne2, ne3);
    assert_false(berth_poisoned(t));
    return t;
}

static struct ggml_tensor *i8(int64_t ne0, int64_t ne1, int64_t ne2, int64_t ne3) {
    struct ggml_tensor *t = ggml_new_tensor_4d(ctx, GGML_TYPE_I8, ne0, ne1, ne2, ne3);
    assert_false(berth_poisoned(t));
    return t;
}

static float param_f32(const struct ggml_tensor *t, int i) {
    float x;
    memcpy(&x, &t->op_params[i], sizeof x);
    return x;
}

#define TWO_TO(n) (INT64_C(1) << (n))

static void graphs_have_different_uids(void **state) {
    (void) state;
    const uint64_t first = ggml_graph_next_uid();
    assert_true(first != 0); // 0 means that a graph has no uid
    assert_true(ggml_graph_next_uid() != first);
}

static void rows(void **state) {
    (void) state;
    struct ggml_tensor *a = f32(5, 2, 1, 1);
    assert_shape(ggml_pad_reflect_1d(ctx, a, 2, 4), 11, 2, 1, 1);
    assert_shape(ggml_pad_reflect_1d(ctx, a, 4, 2), 11, 2, 1, 1);
    assert_refused(ggml_pad_reflect_1d(ctx, a, 5, 0), "padding by 5 and 0");
    assert_refused(ggml_pad_reflect_1d(ctx, a, 0, 5), "padding by 0 and 5");
    assert_refused(ggml_pad_reflect_1d(ctx, a, -1, 0), "padding by -1 and 0");
    assert_refused(ggml_pad_reflect_1d(ctx, a, 0, -1), "padding by 0 and -1");
    assert_shape(ggml_pad_ext(ctx, a, 1, 2, 3, 4, 5, 6, 7, 8), 8, 9, 12, 16);
    assert_shape(ggml_concat(ctx, i8(1, TWO_TO(61), 1, 1), i8(1, TWO_TO(61), 1, 1), 1), 1, TWO_TO(62), 1, 1);
    assert_refused(ggml_concat(ctx, i8(1, TWO_TO(62), 1, 1), i8(1, TWO_TO(62), 1, 1), 1), "exceed 63 bits");
    assert_refused(ggml_concat(ctx, a, f32(5, 2, 2, 1), 1), "may differ in dimension 1 only");
    assert_refused(ggml_upscale(ctx, f32(TWO_TO(34), 1, 1, 1), 1 << 30, GGML_SCALE_MODE_NEAREST), "");
    assert_refused(ggml_upscale(ctx, f32(1, TWO_TO(34), 1, 1), 1 << 30, GGML_SCALE_MODE_NEAREST), "");
}

static void products(void **state) {
    (void) state;
    struct ggml_tensor *a = f32(3, 4, 1, 1), *b = f32(5, 4, 1, 1);
    assert_shape(ggml_out_prod(ctx, a, b), 3, 5, 1, 1);
    assert_refused(ggml_out_prod(ctx, ggml_transpose(ctx, f32(4, 3, 1, 1)), b), "a is transposed");
    assert_refused(ggml_out_prod(ctx, f32(3, 5, 1, 1), b), "differ in ne[1]");
}

static void glu_parameters(void **state) {
    (void) state;
    struct ggml_tensor *a = f32(4, 1, 1, 1), *b = f32(4, 1, 1, 1);
    const struct ggml_tensor *oai = ggml_swiglu_oai(ctx, a, b, 1.5f, 7), *clamp = ggml_swiglu_clamp(ctx, a, b, 9);
    assert_true(param_f32(oai, 2) == 1.5f && param_f32(oai, 3) == 7);
    assert_true(param_f32(clamp, 3) == 9);
    assert_true(berth_poisoned(ggml_swiglu_oai(ctx, a, f32(5, 1, 1, 1), 1.5f, 7)));
    assert_true(berth_poisoned(ggml_swiglu_clamp(ctx, a, f32(5, 1, 1, 1), 9)));
}

static void windows(void **state) {
    (void) state;
    struct ggml_tensor *a = f32(3, 9, 1, 1), *b = f32(5, 5, 1, 1), *c = f32(3, 3, 9, 1), *d = f32(5, 5, 5, 1);
    assert_refused(ggml_conv_2d_direct(ctx, a, b, 1, 1, 0, 0, 1, 1), "no window of 9 fits into a height of 5");
    assert_shape(ggml_conv_2d_direct(ctx, a, b, 1, 2, 0, 2, 1, 1), 3, 1, 1, 1);
    assert_refused(ggml_conv_3d_direct(ctx, c, d, 1, 1, 1, 0, 0, 0, 1, 1, 1, 1, 1, 1), "no window of 9 fits into a depth of 5");
    assert_refused(ggml_conv_3d(ctx, c, d, 1, 1, 1, 1, 0, 0, 0, 1, 1, 1), "no window of 9 fits into a depth of 5");
    assert_refused(ggml_conv_3d(ctx, c, d, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1), "IC is 0");
    assert_shape(ggml_conv_3d(ctx, f32(3, 3, 2, 4), f32(5, 5, 5, 6), 2, 1, 1, 1, 0, 0, 0, 1, 1, 1), 3, 3, 4, 6);
    assert_refused(ggml_im2col_3d(ctx, i8(TWO_TO(20), TWO_TO(20), 1, 1), i8(TWO_TO(20), TWO_TO(20), 1, TWO_TO(22)),
                       TWO_TO(30) - 1, 1, 1, 1, 0, 0, 0, 1, 1, 1, GGML_TYPE_F16),
        "makes too many elements");
    assert_shape(ggml_conv_transpose_1d(ctx, f32(3, 2, 4, 1), f32(5, 4, 1, 1), 2, 0, 1), 11, 2, 1, 1);
    assert_refused(ggml_conv_transpose_1d(ctx, f32(3, 1, 1, 1), f32(TWO_TO(34) + 1, 1, 1, 1), 1 << 30, 0, 1), "no valid width");
    assert_refused(ggml_conv_transpose_1d(ctx, f32(3, 1, 1, 1), f32(5, 1, 1, 1), -1, 0, 1), "no valid width");
    assert_refused(ggml_conv_transpose_2d_p0(ctx, f32(3, 3, 1, 1), f32(1, TWO_TO(34) + 1, 1, 1), 1 << 30), "no valid extent");
}

static struct ggml_tensor *wide_window(int64_t k, int64_t n, int stride, int pad, int dilation) {
    return ggml_conv_2d_dw_direct(ctx, i8(k, 1, 1, 1), i8(n, 1, 1, 1), stride, 1, pad, 0, dilation, 1);
}

// Each number that the count of windows is computed from exceeds 63 bits. If it wrapped, the count would be valid.
static void windows_beyond_63_bits(void **state) {
    (void) state;
    assert_refused(wide_window(TWO_TO(62) + 1, 5, 1, 0, 4), "no window of 4611686018427387905 fits"); // 4 * 2^62
    assert_refused(wide_window(1, INT64_MAX, -(1 << 30), 1, 1), "no window of 1 fits");               // 2^63 - 1 + 2
    assert_refused(wide_window(TWO_TO(62) + 5, TWO_TO(62) + 4, -(1 << 30), 0, -1), "no window of");   // 2^62 + 4 + 2^62 + 4
    assert_refused(wide_window(INT64_MAX, 2, 1 << 30, -2, 1), "no window of");                        // 2 - 4 - (2^63 - 2) - 1
    assert_shape(wide_window(3, 11, 2, 1, 3), 4, 1, 1, 1);
    struct ggml_tensor *channels_first = ggml_permute(ctx, i8(8, 3, 3, 1), 2, 0, 1, 3), *a = i8(1, 1, 1, 8);
    const struct ggml_tensor *fits = ggml_conv_2d_dw_direct(ctx, a, channels_first, 1, 1, 0, 0, 1, 1);
    assert_true(!berth_poisoned(fits) && fits->nb[2] == 1 && fits->nb[0] == 8 && fits->nb[1] == 24);
    // All failed ops of a context share one poison tensor, whose strides stay.
    const struct ggml_tensor poison = *wide_window(INT64_MAX, 2, 1 << 30, -2, 1);
    struct ggml_tensor *wide = ggml_conv_2d_dw_direct(ctx, a, channels_first, 1, 1, 1 << 29, 1 << 29, 1, 1); // 2^63 elements
    assert_memory_equal(wide->nb, poison.nb, sizeof poison.nb);
    assert_refused(wide, "");
}

static struct ggml_tensor *scan(int64_t d_state, int64_t n_token, int64_t n_seq, int64_t d_s, int64_t K) {
    struct ggml_tensor *s = f32(d_state, d_s, 1, 1), *x = f32(d_s, 1, n_token, n_seq), *dt = f32(1, n_token, n_seq, 1);
    struct ggml_tensor *A = f32(1, 1, 1, 1), *B = f32(d_state, 1, n_token, n_seq),
                       *ids = ggml_new_tensor_1d(ctx, GGML_TYPE_I32, n_seq);
    return ggml_ssm_scan(ctx, s, x, dt, A, B, B, ids, K);
}

static void states_of_scans(void **state) {
    (void) state;
    berth_client_release("v0.5.0"); // clients of other releases do not pass K
    assert_shape(scan(4, 3, 2, 5, 1), 4 * 5 * 2 + 5 * 3 * 2, 1, 1, 1);
    assert_shape(scan(4, 3, 2, 5, 7), 4 * 5 * 2 * 7 + 5 * 3 * 2, 1, 1, 1);
    assert_refused(scan(TWO_TO(20), 1, 1, TWO_TO(20), 1 << 30), "make too many elements");       // states * K: 2^70
    assert_refused(scan(TWO_TO(20), 1, TWO_TO(30), TWO_TO(20), 1), "make too many elements");    // states * sequences: 2^70
    assert_refused(scan(TWO_TO(20), TWO_TO(21), 1, TWO_TO(20), (1 << 23) - 1), "make too many"); // 2^63 - 2^40 + 2^41
    assert_refused(scan(4, 3, 2, 5, 0), "K is 0");
    assert_refused(scan(4, 3, 2, 5, TWO_TO(31)), "K is 2147483648");
}

static struct ggml_tensor *wkv6(int64_t d, int64_t n_head, int64_t n_token, int64_t state, int64_t n_seq) {
    struct ggml_tensor *k = i8(d, n_head, n_token, 1);
    return ggml_rwkv_wkv6(ctx, k, k, k, k, k, i8(state, n_seq, 1, 1));
}

static void states_of_linear_attention(void **state) {
    (void) state;
    assert_shape(wkv6(4, 3, 5, 4 * 4 * 3, 2), 4 * 3, 5 + 4 * 2, 1, 1);
    assert_refused(wkv6(4, 3, 5, 4 * 4 * 3 + 1, 2), "state is");
    assert_refused(wkv6(TWO_TO(32), 1, 1, 0, TWO_TO(32)), "state is");          // 2^64 columns
    assert_refused(wkv6(TWO_TO(32), TWO_TO(16), 1, 0, TWO_TO(16)), "state is"); // 2^96 elements
    assert_refused(wkv6(1, 1, TWO_TO(62), 1, TWO_TO(62)), "state is");          // 2^62 + 2^62 columns
}

static struct ggml_tensor *delta_net(int64_t d, int64_t n_token, int64_t n_seq, int64_t K) {
    struct ggml_tensor *v = f32(d, 1, n_token, n_seq), *g = f32(1, 1, n_token, n_seq);
    return ggml_gated_delta_net(ctx, v, v, v, g, g, f32(d, d, 1, n_seq), K);
}

static void states_of_delta_nets(void **state) {
    (void) state;
    assert_shape(delta_net(4, 5, 2, 3), 4, (5 + 3 * 4) * 2, 1, 1);
    assert_refused(delta_net(TWO_TO(20), 1, TWO_TO(20), 1 << 30), "makes too many elements"); // (2^50 + 1) * 2^20 columns
    assert_refused(delta_net(4, 5, 2, 0), "K is 0");
    assert_refused(delta_net(4, 5, 2, TWO_TO(31)), "K is 2147483648");
}

static void hyper_connections(void **state) {
    (void) state;
    struct ggml_tensor *mixes = f32(24, 5, 1, 1), *scale = f32(3, 1, 1, 1), *base = f32(24, 1, 1, 1);
    assert_shape(ggml_dsv4_hc_comb(ctx, mixes, scale, base, 0, 1), 4, 4, 5, 1);
    assert_refused(ggml_dsv4_hc_comb(ctx, i8(24, 5, 1, 1), scale, base, 0, 1), "i8, f32, f32, all must be f32");
    assert_refused(ggml_dsv4_hc_comb(ctx, mixes, i8(3, 1, 1, 1), base, 0, 1), "f32, i8, f32, all must be f32");
    assert_refused(ggml_dsv4_hc_comb(ctx, mixes, scale, i8(24, 1, 1, 1), 0, 1), "f32, f32, i8, all must be f32");
    assert_refused(ggml_dsv4_hc_comb(ctx, mixes, scale, base, 0, 0), "n_iter is 0");
    assert_refused(ggml_dsv4_hc_comb(ctx, f32(23, 5, 1, 1), scale, base, 0, 1), "mixes are");
    assert_refused(ggml_dsv4_hc_comb(ctx, mixes, f32(2, 1, 1, 1), base, 0, 1), "scale is");
    assert_refused(ggml_dsv4_hc_comb(ctx, mixes, scale, f32(25, 1, 1, 1), 0, 1), "base is");
    struct ggml_tensor *x = f32(7, 4, 5, 1);
    assert_shape(ggml_dsv4_hc_pre(ctx, x, f32(4, 5, 1, 1)), 7, 5, 1, 1);
    assert_refused(ggml_dsv4_hc_pre(ctx, x, f32(5, 5, 1, 1)), "do not match");
    assert_refused(ggml_dsv4_hc_pre(ctx, x, f32(4, 4, 1, 1)), "do not match");
    assert_refused(ggml_dsv4_hc_pre(ctx, x, i8(4, 5, 1, 1)), "both must be f32");
    assert_shape(ggml_dsv4_hc_pre_gated(ctx, x, x, 2), 7, 5, 1, 1);
    assert_refused(ggml_dsv4_hc_pre_gated(ctx, x, f32(7, 4, 4, 1), 2), "does not match");
}

static void sinks_of_attention(void **state) {
    (void) state;
    struct ggml_tensor *q = f32(8, 2, 4, 1), *k = f32(8, 6, 4, 1);
    struct ggml_tensor *t = ggml_flash_attn_ext(ctx, q, k, k, NULL, 1, 0, 0), *sinks = f32(4, 1, 1, 1);
    ggml_flash_attn_ext_add_sinks(t, sinks);
    assert_ptr_equal(t->src[4], sinks);
    assert_true(berth_op_shape_holds(t));
    t->src[4] = f32(5, 1, 1, 1); // a program may change sources of a node
    assert_false(berth_op_shape_holds(t));
    t->src[4] = ggml_new_tensor_1d(ctx, GGML_TYPE_F16, 4);
    assert_false(berth_op_shape_holds(t));
    ggml_flash_attn_ext_add_sinks(t, NULL);
    assert_null(t->src[4]);
    assert_false(berth_poisoned(t));
    ggml_flash_attn_ext_add_sinks(t, f32(5, 1, 1, 1));
    assert_refused(t, "must be f32 with one element for each of 4 heads");
}

static void plain_types_are_quantised_from_any_element(void **state) {
    (void) state;
    const float values[] = {1, 2, 3, 4, 5, 6};
    float to[6] = {0};
    assert_int_equal(ggml_quantize_chunk(GGML_TYPE_F32, values, to, 2, 2, 2, NULL), 4 * sizeof(float));
    assert_true(to[0] + to[1] == 0);
    assert_memory_equal(to + 2, values + 2, 4 * sizeof(float));
}

// The program passes accumulators for gradients, also for a node whose gradient is not needed.
static void unneeded_accumulators_are_ignored(void **state) {
    (void) state;
    struct ggml_tensor *x = f32(4, 1, 1, 1), *y = f32(4, 1, 1, 1);
    ggml_set_param(x);
    struct ggml_tensor *plain = ggml_sqr(ctx, y), *used = ggml_mul(ctx, x, plain), *loss = ggml_sum(ctx, used);
    ggml_set_loss(loss);
    struct ggml_cgraph *graph = ggml_new_graph_custom(ctx, 64, true);
    ggml_build_forward_expand(graph, loss);
    struct ggml_tensor *accs[8] = {0};
    for (int i = 0; i < ggml_graph_n_nodes(graph); i++) {
        accs[i] = f32(ggml_graph_node(graph, i)->ne[0], 1, 1, 1);
    }
    ggml_build_backward_expand(ctx, graph, accs);
    assert_null(ggml_graph_get_grad_acc(graph, plain));
    assert_non_null(ggml_graph_get_grad_acc(graph, used));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(graphs_have_different_uids, setup, teardown), // first, to see the first uid
        cmocka_unit_test_setup_teardown(rows, setup, teardown),
        cmocka_unit_test_setup_teardown(products, setup, teardown),
        cmocka_unit_test_setup_teardown(glu_parameters, setup, teardown),
        cmocka_unit_test_setup_teardown(windows, setup, teardown),
        cmocka_unit_test_setup_teardown(windows_beyond_63_bits, setup, teardown),
        cmocka_unit_test_setup_teardown(states_of_scans, setup, teardown),
        cmocka_unit_test_setup_teardown(states_of_linear_attention, setup, teardown),
        cmocka_unit_test_setup_teardown(states_of_delta_nets, setup, teardown),
        cmocka_unit_test_setup_teardown(hyper_connections, setup, teardown),
        cmocka_unit_test_setup_teardown(sinks_of_attention, setup, teardown),
        cmocka_unit_test_setup_teardown(plain_types_are_quantised_from_any_element, setup, teardown),
        cmocka_unit_test_setup_teardown(unneeded_accumulators_are_ignored, setup, teardown),
    };
    return cmocka_run_group_tests_name("op_limits", tests, NULL, NULL);
}
