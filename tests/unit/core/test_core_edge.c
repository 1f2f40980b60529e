// SPDX-License-Identifier: MIT
// test_core_edge.c: rarely used functions of core: types and tables by number, printed objects, graphs that are copied over others,
// drawn, fused, or reset with memory on a device. The arguments include NULL and invalid names, sizes and kinds.

#include "support/check.h"

#include "core/graph.h"
#include "core/op.h"
#include "ggml-backend-impl.h"
#include "ggml-cpu.h"

#include <limits.h>
#include <unistd.h>

static char log_text[1 << 14]; // start of the log output

static void log_keep(enum ggml_log_level level, const char *text, void *user_data) {
    (void) level, (void) user_data;
    strncat(log_text, text, sizeof log_text - strlen(log_text) - 1);
}

static struct ggml_context *ctx;

static int setup(void **state) {
    (void) state;
    check_quiet();
    berth_clear_error();
    log_text[0] = '\0';
    ctx = ggml_init((struct ggml_init_params){.mem_size = 4 << 20});
    return ctx == NULL;
}

static int teardown(void **state) {
    (void) state;
    ggml_free(ctx);
    return 0;
}

static void assert_error(const char *part) {
    if (strstr(berth_last_error(), part) == NULL) {
        fail_msg("the last error is \"%s\", without \"%s\"", berth_last_error(), part);
    }
    berth_clear_error();
}

// ---- types and tables ----

static void types(void **state) {
    (void) state;
    assert_null(ggml_get_type_traits((enum ggml_type) - 1));
    assert_null(ggml_get_type_traits(GGML_TYPE_COUNT));
    assert_int_equal(berth_type_file_type(GGML_TYPE_F32), 0);
    assert_int_equal(berth_type_file_type(GGML_TYPE_F16), 1);
    assert_int_equal(berth_type_file_type(GGML_TYPE_I32), -1);
    assert_int_equal(berth_type_file_type(GGML_TYPE_COUNT), -1);
    const float in[3] = {1.5f, -2.0f, 0.0f};
    float out[3] = {9, 9, 9};
    ggml_fp16_t half[3];
    ggml_bf16_t brain[3], again[3];
    ggml_fp32_to_fp16_row(in, half, 3);
    ggml_fp16_to_fp32_row(half, out, 3);
    assert_memory_equal(in, out, sizeof in);
    ggml_fp32_to_bf16_row(in, brain, 3);
    ggml_fp32_to_bf16_row_ref(in, again, 3);
    assert_memory_equal(brain, again, sizeof brain);
    ggml_bf16_to_fp32_row(brain, out, 3);
    assert_memory_equal(in, out, sizeof in);
    assert_true(ggml_bf16_to_fp32(ggml_fp32_to_bf16(-2.0f)) == -2.0f && ggml_fp16_to_fp32(half[0]) == 1.5f);
}

static void quantising(void **state) {
    (void) state;
    float rows[512] = {1, 2, 3};
    char to[4096];
    ggml_quantize_init(GGML_TYPE_IQ2_XS);
    assert_int_equal(ggml_quantize_chunk(GGML_TYPE_F32, rows, to, 0, 2, 256, NULL), 2048);
    assert_memory_equal(to, rows, 2048);
    assert_int_equal(ggml_quantize_chunk(GGML_TYPE_BF16, rows, to, 0, 2, 256, NULL), 1024);
    assert_int_equal(ggml_quantize_chunk(GGML_TYPE_Q4_0, rows, to, 256, 1, 256, NULL), 144);
    const struct {
        enum ggml_type type;
        const float *src;
        void *dst;
        int64_t start, n_rows, n;
        const char *error;
    } bad[] = {
        {GGML_TYPE_COUNT, rows, to, 0, 1, 256, "floats cannot be quantised"},
        {GGML_TYPE_I32, rows, to, 0, 1, 256, "floats cannot be quantised"},
        {GGML_TYPE_Q4_0, NULL, to, 0, 1, 256, "do not fill blocks"},
        {GGML_TYPE_Q4_0, rows, NULL, 0, 1, 256, "do not fill blocks"},
        {GGML_TYPE_Q4_0, rows, to, -256, 1, 256, "do not fill blocks"},
        {GGML_TYPE_Q4_0, rows, to, 0, -1, 256, "do not fill blocks"},
        {GGML_TYPE_Q4_0, rows, to, 0, 1, 0, "do not fill blocks"},
        {GGML_TYPE_Q4_0, rows, to, 100, 1, 256, "do not fill blocks"},
        {GGML_TYPE_Q4_0, rows, to, 0, 1, 33, "do not fill blocks"},
        {GGML_TYPE_IQ2_XXS, rows, to, 0, 1, 256, "importance matrix"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(
            ggml_quantize_chunk(bad[i].type, bad[i].src, bad[i].dst, bad[i].start, bad[i].n_rows, bad[i].n, NULL), 0);
        assert_error(bad[i].error);
    }
    ggml_quantize_free();
}

static void tables_of_ops(void **state) {
    (void) state;
    assert_true(ggml_op_can_inplace(GGML_OP_ADD));
    assert_false(ggml_op_can_inplace(GGML_OP_MUL_MAT) || ggml_op_can_inplace(GGML_OP_COUNT));
    assert_false(ggml_op_alloc_size_may_expand(GGML_OP_ADD) || ggml_op_alloc_size_may_expand(GGML_OP_COUNT));
    assert_int_equal(berth_op_family("GLU:SWIGLU"), BERTH_OP_ACTIVATION);
    assert_int_equal(berth_op_family("nothing"), BERTH_OP_OTHER);
    assert_int_equal(berth_op_family(NULL), BERTH_OP_OTHER);
    assert_null(berth_op_relation(GGML_OP_COUNT));
    assert_null(berth_op_sample(ctx, GGML_OP_COUNT, 0, GGML_TYPE_F32, GGML_TYPE_F32));
    assert_null(berth_op_sample(ctx, GGML_OP_NONE, 0, GGML_TYPE_F32, GGML_TYPE_F32));
}

static void threads(void **state) {
    (void) state;
    ggml_threadpool_params_init(NULL, 2);
    struct ggml_threadpool_params p = ggml_threadpool_params_default(2), q = p;
    assert_true(ggml_threadpool_params_match(&p, &q));
    assert_false(ggml_threadpool_params_match(NULL, &q) || ggml_threadpool_params_match(&p, NULL));
    q.n_threads = 3;
    assert_false(ggml_threadpool_params_match(&p, &q));
    q = p, q.prio = GGML_SCHED_PRIO_HIGH;
    assert_false(ggml_threadpool_params_match(&p, &q));
    q = p, q.poll = 1;
    assert_false(ggml_threadpool_params_match(&p, &q));
    q = p, q.strict_cpu = true;
    assert_false(ggml_threadpool_params_match(&p, &q));
    q = p, q.cpumask[3] = true;
    assert_false(ggml_threadpool_params_match(&p, &q));
}

// ---- contexts and tensors ----

static void contexts(void **state) {
    (void) state;
    assert_null(ggml_init((struct ggml_init_params){.mem_size = SIZE_MAX}));
    assert_error("exceed the address space");
    struct ggml_tensor *t = ggml_set_name(ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 4), "t");
    ggml_new_graph_custom(ctx, 4, false);
    ggml_log_set(log_keep, NULL);
    ggml_print_objects(ctx);
    ggml_print_objects(NULL);
    ggml_print_object(NULL);
    assert_non_null(strstr(log_text, ": 2"));
    assert_null(ggml_get_tensor(ctx, NULL));
    assert_null(ggml_get_tensor(ctx, "u"));
    assert_ptr_equal(ggml_get_tensor(ctx, "t"), t);
    ggml_set_no_alloc(NULL, true);
    assert_string_equal(berth_context_error(NULL), "");
    assert_string_equal(berth_poison_error(t), "");
    assert_false(berth_is_poison(NULL));
    assert_null(ggml_new_buffer(ctx, SIZE_MAX));
    assert_null(ggml_new_buffer(ctx, SIZE_MAX - 40));
    // If the caller gave the arena memory, a failed ggml_init does not free it.
    char arena[4096];
    berth_alloc_fail_at(1);
    assert_null(ggml_init((struct ggml_init_params){.mem_size = sizeof arena, .mem_buffer = arena}));
    berth_alloc_fail_at(0);
    assert_error("out of memory");
}

static void tensors(void **state) {
    (void) state;
    struct ggml_tensor *t = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 4), *h = ggml_new_tensor_1d(ctx, GGML_TYPE_F16, 4);
    assert_null(ggml_get_data(NULL));
    assert_null(ggml_get_data_f32(NULL));
    assert_ptr_equal(ggml_get_data(t), ggml_get_data_f32(t));
    assert_null(ggml_get_data_f32(h));
    assert_error("is f16");
    assert_null(ggml_set_name(NULL, "x"));
    assert_null(ggml_format_name(NULL, "%d", 1));
    assert_ptr_equal(ggml_set_name(t, NULL), t);
    struct ggml_tensor *poison = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, -1);
    const char *no_format = NULL;
    assert_ptr_equal(ggml_format_name(poison, "%d", 1), poison);
    assert_ptr_equal(ggml_format_name(t, no_format, 1), t);
    assert_ptr_equal(ggml_set_name(poison, "p"), poison);
    ggml_set_loss(NULL);
    ggml_set_loss(h);
    ggml_unravel_index(NULL, 5, NULL, NULL, NULL, NULL);
    int64_t last = -1;
    ggml_unravel_index(t, 5, NULL, NULL, NULL, &last);
    assert_int_equal(last, 1);
    assert_null(ggml_set_zero(NULL));
    assert_ptr_equal(ggml_set_zero(poison), poison);
    struct ggml_tensor *nothing = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 0);
    assert_ptr_equal(ggml_set_zero(nothing), nothing);
    struct ggml_tensor bad_type = {.type = GGML_TYPE_COUNT, .ne = {1, 1, 1, 1}};
    assert_false(ggml_is_contiguous(&bad_type) || ggml_is_contiguously_allocated(&bad_type));
    struct ggml_tensor no_memory = *t;
    no_memory.data = NULL;
    ggml_set_zero(&no_memory);
    assert_error("no memory");
}

// ---- graphs ----

static void graph_over_a_graph(void **state) {
    (void) state;
    struct ggml_tensor *a = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 4), *old = ggml_neg(ctx, a), *new = ggml_sqr(ctx, a);
    struct ggml_cgraph *one = ggml_new_graph_custom(ctx, 8, true), *two = ggml_new_graph_custom(ctx, 8, true);
    ggml_build_forward_expand(one, new);
    for (int i = 0; i < 100; i++) { // the copy of `one` replaces the node that was added to `two`
        ggml_build_forward_expand(two, ggml_neg(ctx, old));
        ggml_graph_cpy(one, two);
        assert_int_equal(berth_graph_check(two), GGML_STATUS_SUCCESS);
        assert_int_equal(ggml_graph_n_nodes(two), 1);
    }
    ggml_build_forward_expand(two, old);
    assert_int_equal(ggml_graph_n_nodes(two), 2);
    assert_ptr_equal(ggml_graph_node(two, 1), old);
    ggml_graph_cpy(two, two);
    assert_int_equal(ggml_graph_n_nodes(two), 2);
    struct ggml_cgraph view = ggml_graph_view(two, 0, 0), *none = ggml_new_graph_custom(ctx, 4, false);
    ggml_graph_cpy(none, &view); // copying to a view must not change the viewed graph
    assert_ptr_equal(ggml_graph_nodes(two)[1], old);
    assert_null(ggml_graph_nodes(NULL));
    assert_null(ggml_graph_get_tensor(two, NULL));
    ggml_graph_cpy(two, none);
    assert_int_equal(berth_graph_check(none), GGML_STATUS_FAILED); // `none` cannot hold a copy of `two`
    berth_clear_error();
    ggml_hash_set_free(NULL);
    ggml_hash_set_reset(NULL);
    ggml_hash_set_reset(&(struct ggml_hash_set){0});
    assert_int_equal(ggml_graph_overhead_custom(SIZE_MAX, true), SIZE_MAX);
    assert_error("is too large");
    assert_null(ggml_build_forward_select(two, &a, 1, 1));
    assert_null(ggml_build_forward_select(two, &a, 1, -1));
    assert_null(ggml_build_forward_select(two, NULL, 1, 0));
    assert_null(ggml_build_forward_select(NULL, &a, 1, 0));
}

static void nodes_by_hand(void **state) {
    (void) state;
    struct ggml_cgraph *g = ggml_new_graph_custom(ctx, 4, false);
    struct ggml_tensor *t = ggml_neg(ctx, ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 4));
    struct ggml_tensor *poison = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, -1);
    ggml_graph_add_node(g, poison);
    ggml_graph_add_node(g, t);
    assert_int_equal(berth_graph_check(g), GGML_STATUS_FAILED);
    assert_error("-1");
}

static char *file_text(const char *path) {
    static char text[1 << 14];
    FILE *f = fopen(path, "r");
    const size_t n = f != NULL ? fread(text, 1, sizeof text - 1, f) : 0;
    text[n] = '\0';
    if (f != NULL) {
        fclose(f);
    }
    return text;
}

static void drawn(void **state) {
    (void) state;
    struct ggml_tensor *w = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 4), *x = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 4);
    ggml_set_param(w);
    struct ggml_tensor *y = ggml_silu(ctx, ggml_mul(ctx, w, x)), *loss = ggml_sum(ctx, ggml_reglu_split(ctx, y, y));
    ggml_set_loss(loss);
    ggml_set_output(x);
    struct ggml_cgraph *g = ggml_new_graph_custom(ctx, 64, true);
    ggml_build_forward_expand(g, loss);
    ggml_build_backward_expand(ctx, g, NULL);
    ggml_log_set(log_keep, NULL);
    ggml_graph_print(g);
    assert_non_null(strstr(log_text, "MUL"));
    char path[] = "/tmp/berth-dot-XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    ggml_graph_dump_dot(g, g, path);
    const char *text = file_text(path);
    assert_true(strstr(text, "yellow") != NULL && strstr(text, "lightblue") != NULL && strstr(text, "green") != NULL);
    assert_true(strstr(text, "SILU") != NULL && strstr(text, "REGLU") != NULL);
    ggml_graph_dump_dot(g, NULL, path);
    assert_string_equal(berth_last_error(), "");
    unlink(path);
    check_quiet();
    ggml_graph_dump_dot(NULL, NULL, path);
    assert_error("no graph");
    ggml_graph_dump_dot(g, g, NULL);
    assert_error("no file name");
    if (access("/dev/full", W_OK) == 0) {
        ggml_graph_dump_dot(g, g, "/dev/full");
        assert_error("could not be written completely");
    }
}

static void fused(void **state) {
    (void) state;
    struct ggml_tensor *x = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 4);
    struct ggml_tensor *a = ggml_rms_norm(ctx, x, 1e-5f), *b = ggml_mul(ctx, a, x), *v = ggml_view_1d(ctx, b, 2, 0);
    struct ggml_tensor *c = ggml_neg(ctx, v);
    struct ggml_cgraph *g = ggml_new_graph_custom(ctx, 8, false);
    ggml_build_forward_expand(g, c);
    const int idxs[] = {0, 1, 2, 3}, outputs[] = {3}, first[] = {1}, far[] = {0, 9}, before[] = {-1, 0};
    const enum ggml_op ops[] = {GGML_OP_RMS_NORM, GGML_OP_MUL, GGML_OP_VIEW, GGML_OP_UNARY}, others[] = {GGML_OP_ADD};
    assert_true(ggml_can_fuse_subgraph_ext(g, idxs, 2, ops, first, 1));
    assert_true(ggml_can_fuse_subgraph_ext(g, idxs, 4, ops, outputs, 1));
    assert_false(ggml_can_fuse_subgraph_ext(NULL, idxs, 2, ops, first, 1));
    assert_false(ggml_can_fuse_subgraph_ext(g, NULL, 2, ops, first, 1));
    assert_false(ggml_can_fuse_subgraph_ext(g, idxs, 2, NULL, first, 1));
    assert_false(ggml_can_fuse_subgraph_ext(g, idxs, 2, ops, NULL, 1));
    assert_false(ggml_can_fuse_subgraph_ext(g, idxs, 2, ops, first, 0));
    assert_false(ggml_can_fuse_subgraph_ext(g, far, 2, ops, first, 1));
    assert_false(ggml_can_fuse_subgraph_ext(g, before, 2, ops, first, 1));
    assert_false(ggml_can_fuse_subgraph_ext(g, idxs, 1, others, first, 1));
    assert_false(ggml_can_fuse_subgraph_ext(g, idxs + 1, 1, ops + 1, outputs, 1)); // a node outside reads the result
    assert_false(ggml_can_fuse_subgraph_ext(g, idxs + 2, 2, ops + 2, outputs, 1)); // a view whose source is outside
    ggml_set_output(a);
    assert_false(ggml_can_fuse_subgraph_ext(g, idxs, 2, ops, first, 1));
    a->flags &= ~(GGML_TENSOR_FLAG_OUTPUT | GGML_TENSOR_FLAG_COMPUTE);
    assert_false(ggml_can_fuse_subgraph_ext(g, idxs, 2, ops, first, 1));
    struct ggml_cgraph *bare = ggml_new_graph_custom(ctx, 4, false); // ggml_graph_add_node adds to no hash set
    a->flags |= GGML_TENSOR_FLAG_COMPUTE;
    ggml_graph_add_node(bare, a);
    ggml_graph_add_node(bare, b);
    assert_false(ggml_can_fuse_subgraph_ext(bare, idxs, 2, ops, first, 1));
}

// ---- gradients in the memory of a device ----

static int n_memset, n_set;

static void far_memset(struct ggml_backend_buffer *b, struct ggml_tensor *t, uint8_t value, size_t offset, size_t size) {
    (void) b, (void) t, (void) value, (void) offset, (void) size;
    n_memset++;
}

static void far_set(struct ggml_backend_buffer *b, struct ggml_tensor *t, const void *data, size_t offset, size_t size) {
    (void) b, (void) t, (void) data, (void) offset, (void) size;
    n_set++;
}

static void *far_base(struct ggml_backend_buffer *b) {
    (void) b;
    return (void *) 4096; // never accessed
}

// A view that is created after its source was placed has an address but no buffer. Its memory still belongs to the source's device.
static void memory_of_a_device(void **state) {
    (void) state;
    struct ggml_backend_buffer far = {
        .iface = {.get_base = far_base, .memset_tensor = far_memset, .set_tensor = far_set}, .size = 1 << 16};
    struct ggml_tensor *w = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 4), *loss = ggml_sum(ctx, w);
    ggml_set_param(w);
    ggml_set_loss(loss);
    struct ggml_context *there = ggml_init((struct ggml_init_params){.mem_size = 1 << 16, .no_alloc = true});
    struct ggml_tensor *all = ggml_new_tensor_1d(there, GGML_TYPE_F32, 8);
    all->buffer = &far, all->data = far_base(&far);
    struct ggml_cgraph *g = ggml_new_graph_custom(ctx, 64, true);
    ggml_build_forward_expand(g, loss);
    assert_int_equal(ggml_graph_n_nodes(g), 2); // a parameter is a node
    struct ggml_tensor *accs[] = {ggml_view_1d(there, all, 4, 0), ggml_view_1d(there, all, 1, 16)};
    assert_null(accs[0]->buffer);
    assert_non_null(accs[0]->data);
    ggml_build_backward_expand(ctx, g, accs);
    ggml_graph_reset(g);
    assert_int_equal(n_memset, 1);
    assert_int_equal(n_set, 1);
    ggml_set_zero(accs[1]);
    assert_int_equal(n_memset, 2);
    far.iface.set_tensor = NULL;
    far.iface.memset_tensor = NULL;
    ggml_graph_reset(g);
    assert_error("cannot be written");
    ggml_set_zero(accs[1]);
    assert_error("does not support memset");
    all->buffer = NULL;
    berth_set_one(w); // not a scalar
    assert_error("must be one f32");
    ggml_free(there);
}

static void backward_without(void **state) {
    (void) state;
    struct ggml_cgraph *g = ggml_new_graph_custom(ctx, 64, false);
    ggml_build_backward_expand(NULL, g, NULL);
    assert_error("the context is NULL");
    ggml_build_backward_expand(ctx, NULL, NULL);
    assert_error("the graph is NULL");
    ggml_build_forward_expand(g, ggml_neg(ctx, ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 4)));
    ggml_build_backward_expand(ctx, g, NULL);
    assert_error("created without gradients");
}

// The ids [k, t] apply to every index of the fourth axis. The shape rule and the gradient must agree with the constructor.
static void add_id_with_a_fourth_extent(void **state) {
    (void) state;
    struct ggml_tensor *a = ggml_new_tensor_4d(ctx, GGML_TYPE_F32, 2, 2, 1, 2), *b = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 2, 3);
    struct ggml_tensor *ids = ggml_new_tensor_2d(ctx, GGML_TYPE_I32, 2, 1), *sum = ggml_add_id(ctx, a, b, ids);
    assert_false(berth_is_poison(sum));
    assert_true(berth_op_shape_holds(sum));
    ggml_set_f32(a, 1);
    ggml_set_f32(b, 1);
    ((int32_t *) ids->data)[0] = 2;
    ((int32_t *) ids->data)[1] = 0;
    ggml_set_param(b);
    struct ggml_tensor *loss = ggml_sum(ctx, sum);
    ggml_set_loss(loss);
    struct ggml_cgraph *g = ggml_new_graph_custom(ctx, 64, true);
    ggml_build_forward_expand(g, loss);
    ggml_build_backward_expand(ctx, g, NULL);
    ggml_graph_reset(g);
    assert_int_equal(ggml_graph_compute_with_ctx(ctx, g, 1), GGML_STATUS_SUCCESS);
    const struct ggml_tensor *grad = ggml_graph_get_grad(g, b);
    assert_non_null(grad);
    static const float expected[] = {2, 2, 0, 0, 2, 2};
    assert_memory_equal(grad->data, expected, sizeof expected);
}

// ---- refusals ----

static void assert_refused(struct ggml_tensor *t, const char *part) {
    assert_true(berth_poisoned(t));
    assert_error(part);
}

// The bytes of the partial block at the end of a row exceed 64 bits: 34 * 542551296285575048 = 2^64 + 16.
static void view_of_a_partial_block_overflows(void **state) {
    (void) state;
    struct ggml_tensor *a = ggml_new_tensor_1d(ctx, GGML_TYPE_Q8_0, 64);
    assert_false(berth_poisoned(ggml_view_1d(ctx, a, 40, 0)));
    assert_refused(ggml_view_1d(ctx, a, 542551296285575048, 0), "bytes");
}

static void mul_mat_id_of_four_dimensions(void **state) {
    (void) state;
    for (int which = 0; which < 3; which++) {
        struct ggml_tensor *as = ggml_new_tensor_4d(ctx, GGML_TYPE_F32, 8, 4, 2, which == 1 ? 2 : 1);
        struct ggml_tensor *b = ggml_new_tensor_4d(ctx, GGML_TYPE_F32, 8, 2, 3, which == 2 ? 2 : 1);
        struct ggml_tensor *t = ggml_mul_mat_id(ctx, as, b, ggml_new_tensor_2d(ctx, GGML_TYPE_I32, 2, 3));
        assert_int_equal(berth_poisoned(t), which != 0);
        if (which != 0) {
            assert_refused(t, "must have three dimensions");
        }
    }
}

// Twice the padding must fit an int. A height that is too small is refused like a width.
static void convolution_limits(void **state) {
    (void) state;
    struct ggml_tensor *a = ggml_new_tensor_4d(ctx, GGML_TYPE_F32, 3, 3, 2, 1),
                       *high = ggml_new_tensor_4d(ctx, GGML_TYPE_F32, 1, 9, 1, 2);
    struct ggml_tensor *b = ggml_new_tensor_4d(ctx, GGML_TYPE_F32, 5, 5, 2, 1);
    const int most = INT_MAX / 2, least = INT_MIN / 2;
    assert_false(berth_poisoned(ggml_conv_2d_direct(ctx, a, b, most, 1, most, 1, 1, 1)));
    assert_refused(ggml_conv_2d_direct(ctx, a, b, most, 1, most + 1, 1, 1, 1), "no window of 3 fits into a width of 5");
    assert_false(berth_poisoned(ggml_conv_2d_direct(ctx, a, b, INT_MIN, 1, least, 1, 1, 1)));
    assert_refused(ggml_conv_2d_direct(ctx, a, b, INT_MIN, 1, least - 1, 1, 1, 1), "no window of 3 fits into a width of 5");
    assert_refused(ggml_conv_2d_dw_direct(ctx, high, b, 1, 1, 0, 0, 1, 1), "no window of 9 fits into a height of 5");
    assert_refused(ggml_conv_2d_dw_direct(ctx, high, b, 1, 0, 0, 4, 1, 1), "no window of 9 fits into a height of 5");
}

static void graphs_that_cannot_be_computed(void **state) {
    (void) state;
    assert_int_equal(berth_graph_check(NULL), GGML_STATUS_FAILED);
    assert_error("the graph is NULL");
    struct ggml_cgraph *g = ggml_new_graph_custom(ctx, 4, false);
    assert_int_equal(berth_graph_check(g), GGML_STATUS_SUCCESS);
    struct ggml_tensor *poison = ggml_scale(ctx, NULL, 1), *sound = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 4);
    g->leafs[g->n_leafs++] = sound;
    g->leafs[g->n_leafs++] = poison; // by hand: ggml_build_forward_expand refuses it
    assert_int_equal(berth_graph_check(g), GGML_STATUS_FAILED);
    assert_error("ggml_scale");

    struct ggml_cgraph *small = ggml_new_graph_custom(ctx, 2, false);
    ggml_build_forward_expand(small, ggml_sqr(ctx, ggml_sqr(ctx, ggml_sqr(ctx, sound))));
    assert_int_equal(berth_graph_check(small), GGML_STATUS_FAILED);
    assert_error("it has room for 2 nodes");

    // A long chain fills the hash set before the first node is added. A set for 2 nodes and 2 leafs has 5 slots.
    struct ggml_tensor *end = sound;
    for (int i = 0; i < 8; i++) {
        end = ggml_sqr(ctx, end);
    }
    small = ggml_new_graph_custom(ctx, 2, false);
    ggml_build_forward_expand(small, end);
    assert_error("at least 4 are needed");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(types, setup, teardown),
        cmocka_unit_test_setup_teardown(quantising, setup, teardown),
        cmocka_unit_test_setup_teardown(tables_of_ops, setup, teardown),
        cmocka_unit_test_setup_teardown(threads, setup, teardown),
        cmocka_unit_test_setup_teardown(contexts, setup, teardown),
        cmocka_unit_test_setup_teardown(tensors, setup, teardown),
        cmocka_unit_test_setup_teardown(graph_over_a_graph, setup, teardown),
        cmocka_unit_test_setup_teardown(nodes_by_hand, setup, teardown),
        cmocka_unit_test_setup_teardown(drawn, setup, teardown),
        cmocka_unit_test_setup_teardown(fused, setup, teardown),
        cmocka_unit_test_setup_teardown(memory_of_a_device, setup, teardown),
        cmocka_unit_test_setup_teardown(backward_without, setup, teardown),
        cmocka_unit_test_setup_teardown(add_id_with_a_fourth_extent, setup, teardown),
        cmocka_unit_test_setup_teardown(view_of_a_partial_block_overflows, setup, teardown),
        cmocka_unit_test_setup_teardown(mul_mat_id_of_four_dimensions, setup, teardown),
        cmocka_unit_test_setup_teardown(convolution_limits, setup, teardown),
        cmocka_unit_test_setup_teardown(graphs_that_cannot_be_computed, setup, teardown),
    };
    return cmocka_run_group_tests_name("core_odd", tests, NULL, NULL);
}
