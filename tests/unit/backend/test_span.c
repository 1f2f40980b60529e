// SPDX-License-Identifier: MIT
// test_span.c: no byte outside a tensor's memory is accessed, whatever its strides, extents and views are. Calls of set, get,
// memset, copy and compute that would do so fail with the numbers, and the memory around the tensor is unchanged.

#include "support/check.h"

#include "ggml-alloc.h"
#include "ggml-backend-impl.h"
#include "ggml-cpu.h"

#define FAR ((size_t) 1 << 20)
#define N_BYTES 4096

// The buffer covers the middle third of `memory`. The other thirds must not change.
struct guarded_buffer {
    struct ggml_context *ctx;
    char *memory;
    ggml_backend_buffer_t buffer;
    ggml_backend_t cpu;
};

static struct guarded_buffer guarded_buffer_open(void) {
    check_quiet();
    struct guarded_buffer y = {.ctx = ggml_init((struct ggml_init_params){.mem_size = 1 << 20, .no_alloc = true})};
    y.memory = aligned_alloc(64, 3 * N_BYTES);
    memset(y.memory, 0x5a, 3 * N_BYTES);
    y.buffer = ggml_backend_cpu_buffer_from_ptr(y.memory + N_BYTES, N_BYTES);
    y.cpu = ggml_backend_cpu_init();
    assert_non_null(y.buffer);
    return y;
}

static void guarded_buffer_close(struct guarded_buffer *y) {
    for (int i = 0; i < N_BYTES; i++) {
        assert_int_equal(y->memory[i], 0x5a);
        assert_int_equal(y->memory[2 * N_BYTES + i], 0x5a);
    }
    ggml_backend_free(y->cpu);
    ggml_backend_buffer_free(y->buffer);
    ggml_free(y->ctx);
    free(y->memory);
}

// Makes a tensor of the last 16 floats of the buffer.
static struct ggml_tensor *last_floats(struct guarded_buffer *y) {
    struct ggml_tensor *a = ggml_new_tensor_1d(y->ctx, GGML_TYPE_F32, 16);
    assert_int_equal(ggml_backend_tensor_alloc(y->buffer, a, y->memory + 2 * N_BYTES - 64), GGML_STATUS_SUCCESS);
    return a;
}

static void assert_error(const char *text) {
    if (strstr(berth_last_error(), text) == NULL) {
        fail_msg("'%s' does not say '%s'", berth_last_error(), text);
    }
}

static void test_strides_that_wrap(void **state) {
    (void) state;
    struct guarded_buffer y = guarded_buffer_open();
    struct ggml_tensor *a = last_floats(&y);
    assert_true(berth_is_poison(ggml_view_3d(y.ctx, a, 4, 2, 2, FAR, (size_t) 0 - FAR, 0)));
    assert_error("63 bits");
    assert_true(berth_is_poison(ggml_view_2d(y.ctx, a, 4, 2, (size_t) 1 << 63, 0)));
    assert_true(berth_is_poison(ggml_view_4d(y.ctx, a, 2, 2, 2, 2, (size_t) 1 << 62, (size_t) 1 << 62, (size_t) 1 << 62, 0)));
    assert_false(berth_is_poison(ggml_view_2d(y.ctx, a, 4, 1, (size_t) 0 - FAR, 0))); // an unused stride
    guarded_buffer_close(&y);
}

// The test sets extents and strides directly, because the constructors would refuse them.
static void test_size_of_strides_that_wrap(void **state) {
    (void) state;
    struct guarded_buffer y = guarded_buffer_open();
    struct ggml_tensor *v = ggml_view_3d(y.ctx, last_floats(&y), 4, 2, 2, 16, 32, 0);
    assert_int_equal(ggml_nbytes(v), 64);
    v->nb[1] = FAR;
    v->nb[2] = (size_t) 0 - FAR;
    assert_true(ggml_nbytes(v) == (size_t) 1 << 63);
    assert_true(ggml_nbytes_pad(v) == (size_t) 1 << 63);
    v->nb[2] = (size_t) 1 << 48;
    assert_true(ggml_nbytes(v) == ((size_t) 1 << 48) + FAR + 16);
    guarded_buffer_close(&y);
}

static enum ggml_status compute(struct guarded_buffer *y, struct ggml_tensor *t, bool direct) {
    struct ggml_cgraph *graph = ggml_new_graph(y->ctx);
    ggml_build_forward_expand(graph, t);
    if (direct) {
        struct ggml_cplan plan = ggml_graph_plan(graph, 1, NULL);
        plan.work_data = calloc(1, plan.work_size + 1);
        const enum ggml_status status = ggml_graph_compute(graph, &plan);
        free(plan.work_data);
        return status;
    }
    return ggml_backend_graph_compute(y->cpu, graph);
}

static void test_compute_through_wild_views(void **state) {
    (void) state;
    static const size_t strides[][2] = {
        {FAR, (size_t) 0 - FAR}, {(size_t) 1 << 48, 32}, {16, (size_t) 1 << 48}, {16, 36}, {20, 32}, {(size_t) 0 - 64, 64}};
    for (size_t i = 0; i < sizeof strides / sizeof strides[0]; i++) {
        for (int k = 0; k < 4; k++) {
            struct guarded_buffer y = guarded_buffer_open();
            struct ggml_tensor *a = last_floats(&y), *v = ggml_view_3d(y.ctx, a, 4, 2, 2, 16, 32, 0);
            assert_int_equal(ggml_backend_view_init(v), GGML_STATUS_SUCCESS);
            v->nb[1] = strides[i][0];
            v->nb[2] = strides[i][1];
            struct ggml_tensor *t = (k & 1) != 0 ? ggml_sqr_inplace(y.ctx, v) : ggml_sum(y.ctx, v);
            if (t->view_src != NULL) {
                memcpy(t->nb, v->nb, sizeof t->nb);
                t->buffer = y.buffer;
            } else {
                assert_int_equal(ggml_backend_tensor_alloc(y.buffer, t, y.memory + N_BYTES), GGML_STATUS_SUCCESS);
            }
            assert_int_equal(compute(&y, t, (k & 2) != 0), GGML_STATUS_FAILED);
            assert_error("bytes");
            guarded_buffer_close(&y);
        }
    }
}

// A program increases the extents of a tensor after the tensor was placed.
static void test_compute_past_the_buffer(void **state) {
    (void) state;
    struct guarded_buffer y = guarded_buffer_open();
    struct ggml_tensor *a = last_floats(&y), *t = ggml_sum(y.ctx, a);
    assert_int_equal(ggml_backend_tensor_alloc(y.buffer, t, y.memory + N_BYTES), GGML_STATUS_SUCCESS);
    assert_int_equal(compute(&y, t, false), GGML_STATUS_SUCCESS);
    a->ne[0] = 17;
    assert_int_equal(compute(&y, t, false), GGML_STATUS_FAILED);
    assert_error("4096 bytes");
    assert_int_equal(compute(&y, t, true), GGML_STATUS_FAILED);
    guarded_buffer_close(&y);
}

static void test_rows_that_tear_blocks(void **state) {
    (void) state;
    struct guarded_buffer y = guarded_buffer_open();
    struct ggml_tensor *q = ggml_new_tensor_2d(y.ctx, GGML_TYPE_Q4_0, 64, 4);
    assert_int_equal(ggml_backend_tensor_alloc(y.buffer, q, y.memory + N_BYTES), GGML_STATUS_SUCCESS);
    ggml_backend_tensor_memset(q, 0, 0, ggml_nbytes(q));
    struct ggml_tensor *cut = ggml_view_1d(y.ctx, q, 40, 0), *f = ggml_new_tensor_1d(y.ctx, GGML_TYPE_F32, 40);
    assert_int_equal(ggml_backend_tensor_alloc(y.buffer, f, y.memory + N_BYTES + 1024), GGML_STATUS_SUCCESS);
    assert_int_equal(ggml_backend_view_init(cut), GGML_STATUS_SUCCESS);
    struct ggml_tensor *copy = ggml_cpy(y.ctx, cut, f);
    assert_int_equal(ggml_backend_view_init(copy), GGML_STATUS_SUCCESS);
    assert_int_equal(compute(&y, copy, false), GGML_STATUS_FAILED);
    assert_error("blocks of 32");
    guarded_buffer_close(&y);
}

// Makes a view that spans 112 bytes of a source that has 64 bytes.
static struct ggml_tensor *view_past_its_source(struct guarded_buffer *y) {
    struct ggml_tensor *v = ggml_view_2d(y->ctx, last_floats(y), 4, 4, 16 + 16, 0);
    assert_false(berth_is_poison(v));
    assert_int_equal(ggml_backend_view_init(v), GGML_STATUS_SUCCESS);
    return v;
}

static void test_set_and_get_through_views(void **state) {
    (void) state;
    char bytes[256];
    for (int way = 0; way < 8; way++) {
        struct guarded_buffer y = guarded_buffer_open();
        struct ggml_tensor *v = view_past_its_source(&y);
        const size_t size = ggml_nbytes(v);
        memset(bytes, 7, sizeof bytes);
        berth_clear_error();
        switch (way) {
            case 0: ggml_backend_tensor_set(v, bytes, 0, size); break;
            case 1: ggml_backend_tensor_get(v, bytes, 0, size); break;
            case 2: ggml_backend_tensor_memset(v, 9, 0, size); break;
            case 3: ggml_backend_tensor_set_2d(v, bytes, 0, 16, 4, 32, 16); break;
            case 4: ggml_backend_tensor_get_2d(v, bytes, 0, 16, 4, 32, 16); break;
            case 5: ggml_backend_tensor_set_async(y.cpu, v, bytes, 60, 8); break;
            case 6: ggml_set_zero(v); break;
            case 7: ggml_backend_tensor_get_async(y.cpu, v, bytes, 64, 4); break;
        }
        assert_error("64 bytes");
        assert_int_equal(bytes[0], 7);
        berth_clear_error();
        ggml_backend_tensor_set(v, bytes, 48, 16); // a range inside the source is accessible
        assert_string_equal(berth_last_error(), "");
        guarded_buffer_close(&y);
    }
}

static void test_copies_through_views(void **state) {
    (void) state;
    struct guarded_buffer y = guarded_buffer_open();
    struct ggml_tensor *v = view_past_its_source(&y), *whole = ggml_new_tensor_1d(y.ctx, GGML_TYPE_F32, 64);
    assert_int_equal(ggml_backend_tensor_alloc(y.buffer, whole, y.memory + N_BYTES), GGML_STATUS_SUCCESS);
    struct ggml_tensor *sound = ggml_view_2d(y.ctx, whole, 4, 4, 32, 0);
    assert_int_equal(ggml_backend_view_init(sound), GGML_STATUS_SUCCESS);
    ggml_backend_tensor_memset(whole, 3, 0, 256);
    berth_clear_error();
    ggml_backend_tensor_copy(sound, v);
    assert_error("64 bytes");
    berth_clear_error();
    ggml_backend_tensor_copy(v, sound);
    assert_error("64 bytes");
    berth_clear_error();
    ggml_backend_tensor_copy_async(y.cpu, y.cpu, sound, v);
    assert_error("64 bytes");
    guarded_buffer_close(&y);
}

static void test_counts_past_63_bits(void **state) {
    (void) state;
    struct guarded_buffer y = guarded_buffer_open();
    const int64_t big = (int64_t) 1 << 31;
    assert_true(berth_is_poison(ggml_new_tensor_4d(y.ctx, GGML_TYPE_Q4_0, big, big, 2, 1)));
    assert_true(berth_is_poison(ggml_new_tensor_4d(y.ctx, GGML_TYPE_Q4_0, big, big, 4, 1)));
    assert_true(berth_is_poison(ggml_new_tensor_4d(y.ctx, GGML_TYPE_IQ1_S, big, big, 2, 1)));
    assert_true(berth_is_poison(ggml_new_tensor_4d(y.ctx, GGML_TYPE_F32, 0, big, big, 2)));
    assert_false(berth_is_poison(ggml_new_tensor_4d(y.ctx, GGML_TYPE_Q4_0, big, big / 2, 2, 1)));
    berth_clear_error();
    assert_int_equal(ggml_row_size(GGML_TYPE_F32, INT64_MAX), 0);
    assert_error("has no valid size");
    assert_int_equal(ggml_row_size(GGML_TYPE_Q8_K, INT64_MAX), 0);
    guarded_buffer_close(&y);
}

static void test_rows_longer_than_an_int(void **state) {
    (void) state;
    struct guarded_buffer y = guarded_buffer_open();
    const int64_t big = ((int64_t) 1 << 31) + 32;
    struct ggml_tensor *a = ggml_new_tensor_2d(y.ctx, GGML_TYPE_Q8_0, big, 2),
                       *b = ggml_new_tensor_2d(y.ctx, GGML_TYPE_F32, big, 3);
    assert_false(ggml_backend_supports_op(y.cpu, ggml_mul_mat(y.ctx, a, b)));
    struct ggml_tensor *q = ggml_new_tensor_3d(y.ctx, GGML_TYPE_F32, big, 1, 1),
                       *v = ggml_new_tensor_3d(y.ctx, GGML_TYPE_F32, 32, 2, 1);
    struct ggml_tensor *k = ggml_new_tensor_3d(y.ctx, GGML_TYPE_F32, big, 2, 1);
    assert_false(ggml_backend_supports_op(y.cpu, ggml_flash_attn_ext(y.ctx, q, k, v, NULL, 1.0f, 0.0f, 0.0f)));
    guarded_buffer_close(&y);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_strides_that_wrap),
        cmocka_unit_test(test_size_of_strides_that_wrap),
        cmocka_unit_test(test_compute_through_wild_views),
        cmocka_unit_test(test_compute_past_the_buffer),
        cmocka_unit_test(test_rows_that_tear_blocks),
        cmocka_unit_test(test_set_and_get_through_views),
        cmocka_unit_test(test_copies_through_views),
        cmocka_unit_test(test_counts_past_63_bits),
        cmocka_unit_test(test_rows_longer_than_an_int),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
