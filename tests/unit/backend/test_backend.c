// SPDX-License-Identifier: MIT
// test_backend.c: the backend interface on a fake device: transfers, rejected calls that write nothing, deferred reports of
// failures in void functions, and NULL arguments of every function.

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "support/device_full.h"

#include "backend/backend.h"
#include "ggml-opt.h"

#define N 8

static void no_log(enum ggml_log_level level, const char *text, void *user_data) {
    (void) level;
    (void) text;
    (void) user_data;
}

static int setup(void **state) {
    (void) state;
    full_start();
    ggml_log_set(no_log, NULL);
    berth_clear_error();
    return 0;
}

static int teardown(void **state) {
    (void) state;
    full_stop();
    return 0;
}

static struct ggml_context *new_context(void) {
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = 1 << 20, .no_alloc = true});
    assert_non_null(ctx);
    return ctx;
}

static void assert_error(const char *part) {
    if (strstr(berth_last_error(), part) == NULL) {
        fail_msg("the last error is \"%s\", without \"%s\"", berth_last_error(), part);
    }
    berth_clear_error();
}

// Makes a tensor of N floats with the values base, base + 1, ... in a buffer of the fake device or of the host.
static struct ggml_tensor *placed(struct ggml_context *ctx, ggml_backend_buffer_t buffer, float base, const char *name) {
    struct ggml_tensor *t = ggml_set_name(ggml_new_tensor_1d(ctx, GGML_TYPE_F32, N), name);
    assert_int_equal(ggml_backend_tensor_alloc(buffer, t, ggml_backend_buffer_get_base(buffer)), GGML_STATUS_SUCCESS);
    float values[N];
    for (int i = 0; i < N; i++) {
        values[i] = base + (float) i;
    }
    ggml_backend_tensor_set(t, values, 0, sizeof values);
    return t;
}

static void assert_values(const struct ggml_tensor *t, float base) {
    for (int i = 0; i < N; i++) {
        assert_float_equal(((const float *) t->data)[i], base + (float) i, 0);
    }
}

// ---- buffers ----

static void host_buffers(void **state) {
    (void) state;
    ggml_backend_buffer_type_t type = ggml_backend_cpu_buffer_type();
    assert_string_equal(ggml_backend_buft_name(type), "CPU");
    assert_int_equal(ggml_backend_buft_get_alignment(type), 32);
    assert_true(ggml_backend_buft_get_max_size(type) == SIZE_MAX);
    assert_true(ggml_backend_buft_is_host(type));

    ggml_backend_buffer_t buffer = ggml_backend_buft_alloc_buffer(type, 100);
    assert_int_equal(ggml_backend_buffer_get_size(buffer), 100);
    assert_int_equal((uintptr_t) ggml_backend_buffer_get_base(buffer) % 64, 0);
    assert_int_equal(ggml_backend_buffer_get_usage(buffer), GGML_BACKEND_BUFFER_USAGE_ANY);
    ggml_backend_buffer_set_usage(buffer, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    assert_int_equal(ggml_backend_buffer_get_usage(buffer), GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    ggml_backend_buffer_clear(buffer, 0x5A);
    assert_int_equal(((uint8_t *) ggml_backend_buffer_get_base(buffer))[99], 0x5A);
    ggml_backend_buffer_reset(buffer);
    ggml_backend_buffer_free(buffer);

    ggml_backend_buffer_t empty = ggml_backend_buft_alloc_buffer(type, 0);
    assert_non_null(empty);
    assert_null(ggml_backend_buffer_get_base(empty));
    ggml_backend_buffer_clear(empty, 0);
    ggml_backend_buffer_free(empty);

    berth_alloc_fail_at(1);
    assert_null(ggml_backend_buft_alloc_buffer(type, 12345));
    berth_alloc_fail_at(0);
    assert_error("12345 bytes");
}

static void host_pointer(void **state) {
    (void) state;
    _Alignas(64) char memory[256] = {0};
    ggml_backend_buffer_t buffer = ggml_backend_cpu_buffer_from_ptr(memory, sizeof memory);
    assert_string_equal(ggml_backend_buffer_name(buffer), "CPU_Mapped");
    assert_ptr_equal(ggml_backend_buffer_get_base(buffer), memory);
    ggml_backend_buffer_clear(buffer, 3);
    ggml_backend_buffer_free(buffer);
    assert_int_equal(memory[255], 3);
    assert_null(ggml_backend_cpu_buffer_from_ptr(memory + 4, 8));
    assert_error("aligned to 32");
    assert_null(ggml_backend_cpu_buffer_from_ptr(NULL, 8));
    assert_null(ggml_backend_dev_buffer_from_host_ptr(&fake.dev, memory, 8, 8));
    assert_error("cannot use host memory");
}

static void multi_buffers(void **state) {
    (void) state;
    enum { n = 1000 };
    static ggml_backend_buffer_t parts[n];
    for (int i = 0; i < n; i++) {
        parts[i] = ggml_backend_buft_alloc_buffer(&fake.buft, 64);
    }
    ggml_backend_buffer_t all = ggml_backend_multi_buffer_alloc_buffer(parts, n);
    assert_true(ggml_backend_buffer_is_multi_buffer(all));
    assert_false(ggml_backend_buffer_is_multi_buffer(parts[0]));
    assert_int_equal(ggml_backend_buffer_get_size(all), n * 64);
    assert_string_equal(ggml_backend_buffer_name(all), "Fake");
    assert_null(ggml_backend_buffer_get_base(all));
    ggml_backend_buffer_set_usage(all, GGML_BACKEND_BUFFER_USAGE_COMPUTE);
    ggml_backend_buffer_clear(all, 7);
    ggml_backend_buffer_reset(all);
    for (int i = 0; i < n; i++) {
        assert_int_equal(parts[i]->usage, GGML_BACKEND_BUFFER_USAGE_COMPUTE);
        assert_int_equal(((uint8_t *) ggml_backend_buffer_get_base(parts[i]))[63], 7);
    }
    assert_int_equal(full.n_reset, n);
    ggml_backend_buffer_free(all);

    assert_null(ggml_backend_multi_buffer_alloc_buffer(NULL, 3));
    ggml_backend_buffer_t none[2] = {NULL, NULL};
    assert_null(ggml_backend_multi_buffer_alloc_buffer(none, 2));
    assert_error("buffer 0 of 2 is NULL");
}

// ---- placing ----

static void placing(void **state) {
    (void) state;
    struct ggml_context *ctx = new_context();
    ggml_backend_buffer_t buffer = ggml_backend_buft_alloc_buffer(&fake.buft, 128);
    char *base = ggml_backend_buffer_get_base(buffer);
    struct ggml_tensor *t = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 32);
    struct ggml_tensor *view = ggml_view_1d(ctx, t, 4, 16);

    assert_int_equal(ggml_backend_view_init(view), GGML_STATUS_FAILED);
    assert_error("has no memory");
    assert_int_equal(ggml_backend_tensor_alloc(buffer, t, base + 4), GGML_STATUS_FAILED);
    assert_error("is not inside the buffer");
    assert_int_equal(ggml_backend_tensor_alloc(buffer, t, base - 4), GGML_STATUS_FAILED);
    full.fail_init = 1;
    assert_int_equal(ggml_backend_tensor_alloc(buffer, t, base), GGML_STATUS_ALLOC_FAILED);
    assert_null(t->data);
    assert_null(t->buffer);
    assert_int_equal(ggml_backend_tensor_alloc(buffer, t, base), GGML_STATUS_SUCCESS);
    assert_int_equal(ggml_backend_tensor_alloc(buffer, t, base), GGML_STATUS_FAILED);
    assert_error("has memory already");
    full.fail_init = 1;
    assert_int_equal(ggml_backend_view_init(view), GGML_STATUS_ALLOC_FAILED);
    assert_null(view->buffer);
    assert_int_equal(ggml_backend_view_init(view), GGML_STATUS_SUCCESS);
    assert_ptr_equal(view->data, base + 16);
    assert_int_equal(ggml_backend_view_init(t), GGML_STATUS_FAILED);
    assert_error("is not a view");
    ggml_backend_buffer_free(buffer);
    ggml_free(ctx);
}

// ---- data transfer ----

static void access_in_bounds(void **state) {
    (void) state;
    struct ggml_context *ctx = new_context();
    ggml_backend_t backend = ggml_backend_dev_init(&fake.dev, NULL);
    ggml_backend_buffer_t buffer = ggml_backend_alloc_buffer(backend, 64);
    struct ggml_tensor *t = placed(ctx, buffer, 1, "t");
    float out[N] = {0};
    ggml_backend_tensor_get(t, out, 4, 8);
    assert_float_equal(out[0], 2, 0);
    assert_float_equal(out[2], 0, 0);

    // Transfers the first two of every four floats of the tensor. On the host they are packed.
    const float pairs[] = {-1, -2, -3, -4};
    ggml_backend_tensor_set_2d(t, pairs, 0, 8, 2, 16, 8);
    assert_int_equal(full.n_set_2d, 1);
    ggml_backend_tensor_get_2d(t, out, 16, 8, 1, 999, 999);
    assert_float_equal(out[0], -3, 0);
    float packed[4] = {0};
    ggml_backend_tensor_get_2d_async(backend, t, packed, 0, 8, 2, 16, 8);
    assert_memory_equal(packed, pairs, sizeof pairs);
    assert_int_equal(full.n_async, 2);
    ggml_backend_tensor_set_2d_async(backend, t, packed, 8, 4, 2, 4, 4);
    ggml_backend_tensor_memset(t, 0, 28, 4);
    ggml_backend_tensor_get_async(backend, t, out, 0, sizeof out);
    const float expected[N] = {-1, -2, -1, -2, -3, -4, 7, 0};
    assert_memory_equal(out, expected, sizeof out);

    // A transfer of 0 bytes is not an error, at any offset.
    ggml_backend_tensor_set(t, NULL, 1000, 0);
    ggml_backend_tensor_set_2d(t, NULL, 1000, 4, 0, 0, 0);
    assert_string_equal(berth_last_error(), "");

    // A backend without async functions waits and uses the buffer.
    backend->iface.set_tensor_async = NULL;
    backend->iface.get_tensor_async = NULL;
    const int n_wait = fake.n_waits, n_set = fake.n_sets, n_get = fake.n_gets;
    ggml_backend_tensor_set_async(backend, t, pairs, 0, 4);
    ggml_backend_tensor_get_async(backend, t, out, 0, 4);
    assert_int_equal(fake.n_waits - n_wait, 2);
    assert_int_equal(fake.n_sets - n_set, 1);
    assert_int_equal(fake.n_gets - n_get, 1);
    ggml_backend_buffer_free(buffer);
    ggml_backend_free(backend);
    ggml_free(ctx);
}

static void access_refused(void **state) {
    (void) state;
    struct ggml_context *ctx = new_context();
    ggml_backend_buffer_t buffer = ggml_backend_buft_alloc_buffer(&fake.buft, 64);
    struct ggml_tensor *t = placed(ctx, buffer, 1, "t");
    struct ggml_tensor *nowhere = ggml_set_name(ggml_new_tensor_1d(ctx, GGML_TYPE_F32, N), "nowhere");
    char data[64] = {0};
    static const struct {
        size_t offset, size, n, stride;
    } outside[] = {
        {0, 33, 1, 0},
        {32, 1, 1, 0},
        {SIZE_MAX, 2, 1, 0},
        {2, SIZE_MAX, 1, 0},
        {0, 8, 5, 8},
        {0, 8, 2, 25},
        {0, 8, SIZE_MAX, 8},
        {0, 1, 3, SIZE_MAX / 2},
        {0, 1, 2, SIZE_MAX},
    };
    const int n_set = fake.n_sets;
    for (size_t i = 0; i < sizeof outside / sizeof outside[0]; i++) {
        if (outside[i].n == 1) {
            ggml_backend_tensor_set(t, data, outside[i].offset, outside[i].size);
            assert_error("of t");
            ggml_backend_tensor_get(t, data, outside[i].offset, outside[i].size);
            assert_error("32 bytes of t");
            ggml_backend_tensor_memset(t, 0, outside[i].offset, outside[i].size);
            assert_error("ggml_backend_tensor_memset");
        }
        ggml_backend_tensor_set_2d(t, data, outside[i].offset, outside[i].size, outside[i].n, outside[i].stride, 0);
        assert_error("ggml_backend_tensor_set_2d");
        ggml_backend_tensor_get_2d(t, data, outside[i].offset, outside[i].size, outside[i].n, outside[i].stride, 0);
        assert_error("ggml_backend_tensor_get_2d");
    }
    ggml_backend_tensor_set(nowhere, data, 0, 4);
    assert_error("nowhere has no buffer");
    ggml_backend_tensor_get(nowhere, data, 0, 4);
    assert_error("nowhere has no buffer");
    ggml_backend_tensor_memset(nowhere, 0, 0, 4);
    assert_error("nowhere has no buffer");
    ggml_backend_tensor_set(t, NULL, 0, 4);
    assert_error("is NULL");
    ggml_backend_tensor_get(NULL, data, 0, 4);
    assert_error("the tensor is NULL");
    ggml_backend_tensor_set(ggml_add(ctx, NULL, t), data, 0, 4);
    assert_error("ggml_add");
    assert_int_equal(fake.n_sets, n_set);
    assert_values(t, 1);
    ggml_backend_buffer_free(buffer);

    fake.buffer_iface.get_tensor = NULL;
    buffer = ggml_backend_buft_alloc_buffer(&fake.buft, 64);
    t = placed(ctx, buffer, 1, "t2");
    ggml_backend_tensor_get(t, data, 0, 4);
    assert_error("type Fake do not implement it");
    ggml_backend_buffer_free(buffer);
    ggml_free(ctx);
}

// ---- copies ----

static void copies(void **state) {
    (void) state;
    struct ggml_context *ctx = new_context();
    ggml_backend_buffer_t on_host = ggml_backend_buft_alloc_buffer(ggml_backend_cpu_buffer_type(), 64),
                          on_host2 = ggml_backend_buft_alloc_buffer(ggml_backend_cpu_buffer_type(), 64),
                          far = ggml_backend_buft_alloc_buffer(&fake.buft, 64),
                          far2 = ggml_backend_buft_alloc_buffer(&fake.buft, 64);
    struct ggml_tensor *h = placed(ctx, on_host, 10, "h"), *h2 = placed(ctx, on_host2, 20, "h2"), *d = placed(ctx, far, 30, "d"),
                       *d2 = placed(ctx, far2, 40, "d2");
    ggml_backend_tensor_copy(h, h2);
    assert_values(h2, 10);
    ggml_backend_tensor_copy(h, d); // host to device
    assert_values(d, 10);
    ggml_backend_tensor_copy(d2, h); // device to host
    assert_values(h, 40);
    fake.n_gets = fake.n_sets = 0;
    ggml_backend_tensor_copy(d2, d); // through the host
    assert_values(d, 40);
    assert_int_equal(fake.n_gets, 1);
    assert_int_equal(fake.n_sets, 1);
    d->buffer->iface.cpy_tensor = full_copy;
    ggml_backend_tensor_copy(d2, d); // by the buffer itself
    assert_int_equal(full.n_copy, 1);
    assert_true(ggml_backend_buffer_copy_tensor(d2, d));
    assert_false(ggml_backend_buffer_copy_tensor(h, d2));
    assert_string_equal(berth_last_error(), "");

    // Different layouts.
    struct ggml_tensor *other = ggml_set_name(ggml_new_tensor_1d(ctx, GGML_TYPE_F32, N - 1), "other");
    struct ggml_tensor *ints = ggml_new_tensor_1d(ctx, GGML_TYPE_I32, N);
    ggml_backend_tensor_copy(h, other);
    assert_error("other has no buffer");
    assert_int_equal(ggml_backend_tensor_alloc(on_host2, other, ggml_backend_buffer_get_base(on_host2)), 0);
    assert_int_equal(ggml_backend_tensor_alloc(on_host2, ints, ggml_backend_buffer_get_base(on_host2)), 0);
    ggml_backend_tensor_copy(h, other);
    assert_error("layouts differ: h is f32 [8, 1, 1, 1]");
    ggml_backend_tensor_copy(h, ints);
    assert_error("is i32 [8, 1, 1, 1]");
    assert_values(h2, 10);

    // A copy through the host fails if its memory cannot be allocated.
    d->buffer->iface.cpy_tensor = NULL;
    ggml_backend_tensor_set(d, h2->data, 0, 32);
    berth_alloc_fail_at(1);
    ggml_backend_tensor_copy(d2, d);
    berth_alloc_fail_at(0);
    assert_error("out of memory for 32 bytes to copy d2");
    assert_values(d, 10);
    ggml_backend_buffer_free(on_host);
    ggml_backend_buffer_free(on_host2);
    ggml_backend_buffer_free(far);
    ggml_backend_buffer_free(far2);
    ggml_free(ctx);
}

// ---- deferred reports of void functions ----

static void late_reports(void **state) {
    (void) state;
    struct ggml_context *ctx = new_context();
    ggml_backend_t a = ggml_backend_dev_init(&fake.dev, NULL);
    ggml_backend_t b = ggml_backend_dev_init(&fake.dev, NULL);
    ggml_backend_buffer_t buffer = ggml_backend_alloc_buffer(a, 64);
    struct ggml_tensor *t = placed(ctx, buffer, 1, "t");
    struct ggml_tensor *nowhere = ggml_set_name(ggml_new_tensor_1d(ctx, GGML_TYPE_F32, N), "nowhere");
    struct ggml_cgraph *graph = ggml_new_graph(ctx);
    float x = 0;

    ggml_backend_tensor_set_async(a, t, &x, 32, 4);
    ggml_backend_tensor_get_async(a, nowhere, &x, 0, 4); // only the first failure is stored
    berth_clear_error();
    assert_int_equal(ggml_backend_graph_compute(b, graph), GGML_STATUS_SUCCESS);
    assert_int_equal(ggml_backend_graph_compute(a, graph), GGML_STATUS_FAILED);
    assert_error("from offset 32");
    assert_int_equal(fake.n_computes, 1);
    assert_int_equal(ggml_backend_graph_compute(a, graph), GGML_STATUS_SUCCESS);

    ggml_backend_tensor_copy_async(a, b, t, nowhere);
    berth_clear_error();
    ggml_backend_synchronize(a);
    assert_string_equal(berth_last_error(), "");
    ggml_backend_synchronize(b);
    assert_error("nowhere has no buffer");
    assert_int_equal(berth_backend_synchronize(b), GGML_STATUS_SUCCESS);

    ggml_backend_event_wait(a, NULL);
    ggml_backend_graph_plan_t plan = ggml_backend_graph_plan_create(a, graph);
    assert_int_equal(ggml_backend_graph_plan_compute(a, plan), GGML_STATUS_FAILED);
    assert_error("the event is NULL");
    assert_int_equal(ggml_backend_graph_plan_compute(a, plan), GGML_STATUS_SUCCESS);
    ggml_backend_graph_plan_free(a, plan);

    berth_alloc_watch(true);
    ggml_backend_tensor_set_async(a, nowhere, &x, 0, 4);
    assert_int_equal(berth_alloc_alive(), 1);
    ggml_backend_free(a); // its stored failure is freed too
    assert_int_equal(berth_alloc_alive(), 0);
    berth_alloc_watch(false);
    ggml_backend_buffer_free(buffer);
    ggml_backend_free(b);
    ggml_free(ctx);
}

static void computing(void **state) {
    (void) state;
    struct ggml_context *ctx = new_context();
    ggml_backend_t backend = ggml_backend_dev_init(&fake.dev, NULL);
    struct ggml_tensor *x = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, N);
    struct ggml_tensor *sum = ggml_add(ctx, x, x);
    struct ggml_cgraph *graph = ggml_new_graph(ctx);
    ggml_build_forward_expand(graph, sum);
    ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors(ctx, backend);
    const float in[N] = {1, 2, 3, 4, 5, 6, 7, 8};
    float out[N];
    ggml_backend_tensor_set(x, in, 0, sizeof in);
    assert_int_equal(ggml_backend_graph_compute(backend, graph), GGML_STATUS_SUCCESS);
    ggml_backend_tensor_get(sum, out, 0, sizeof out);
    assert_float_equal(out[7], 16, 0);
    assert_true(ggml_backend_supports_op(backend, sum));
    assert_false(ggml_backend_supports_op(backend, x));
    assert_true(ggml_backend_supports_buft(backend, &fake.buft));
    assert_false(ggml_backend_offload_op(backend, sum));

    ggml_backend_event_t event = ggml_backend_event_new(&fake.dev);
    ggml_backend_event_record(event, backend);
    ggml_backend_event_wait(backend, event);
    ggml_backend_event_synchronize(event);
    assert_int_equal(fake.n_events, 3);
    ggml_backend_event_free(event);

    // A node without memory is rejected.
    struct ggml_cgraph *unplaced = ggml_new_graph(ctx);
    ggml_build_forward_expand(unplaced, ggml_set_name(ggml_add(ctx, x, x), "late"));
    assert_int_equal(ggml_backend_graph_compute(backend, unplaced), GGML_STATUS_FAILED);
    assert_error("cannot compute node 0 of 1, late (ADD): the result late has no memory");

    // Poison is rejected with its own message.
    struct ggml_cgraph *bad = ggml_new_graph(ctx);
    ggml_build_forward_expand(bad, ggml_add(ctx, x, ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 3)));
    berth_clear_error();
    const int n = fake.n_computes;
    assert_int_equal(ggml_backend_graph_compute(backend, bad), GGML_STATUS_FAILED);
    assert_int_equal(fake.n_computes, n);
    assert_error("ggml_add");
    assert_null(ggml_backend_graph_plan_create(backend, bad));
    backend->iface.graph_plan_create = NULL;
    assert_null(ggml_backend_graph_plan_create(backend, graph));
    assert_error("backend Fake does not implement it");
    ggml_backend_buffer_free(buffer);
    ggml_backend_free(backend);
    ggml_free(ctx);
}

static void devices(void **state) {
    (void) state;
    size_t mem_free, mem_total;
    ggml_backend_dev_memory(&fake.dev, &mem_free, &mem_total);
    assert_int_equal(mem_free, 5);
    assert_int_equal(mem_total, 7);
    struct ggml_backend_dev_props props;
    memset(&props, 0xEE, sizeof props);
    ggml_backend_dev_get_props(&fake.dev, &props);
    assert_string_equal(props.name, "Fake");
    assert_true(props.caps.events);
    assert_false(props.caps.async);
    assert_false(props.caps.mmap_support); // libraries of older releases do not set it
    assert_null(props.device_id);
    assert_ptr_equal(ggml_backend_dev_buffer_type(&fake.dev), &fake.buft);
    assert_null(ggml_backend_dev_host_buffer_type(&fake.dev));
    assert_ptr_equal(ggml_backend_buft_get_device(&fake.buft), &fake.dev);

    assert_string_equal(ggml_backend_meta_split_axis_name(GGML_BACKEND_SPLIT_AXIS_2), "2");
    assert_string_equal(ggml_backend_meta_split_axis_name(GGML_BACKEND_SPLIT_AXIS_MIRRORED), "MIRRORED");
    assert_null(ggml_backend_meta_device(NULL, 0, NULL, NULL));
    assert_error("0 devices");
}

static int n_lines;
static char last_line[512];

static void log_keep(enum ggml_log_level level, const char *text, void *user_data) {
    (void) level;
    (void) user_data;
    n_lines++;
    snprintf(last_line, sizeof last_line, "%s", text);
}

static size_t doubled(ggml_backend_buffer_type_t buft, const struct ggml_tensor *tensor) {
    (void) buft;
    return 2 * ggml_nbytes(tensor);
}

// A buffer type may request more bytes than ggml_nbytes. For some ops, such as ADD, ggml then ends the process. Berth accepts the
// size and logs one warning.
static void expanding_types(void **state) {
    (void) state;
    struct ggml_context *ctx = new_context();
    struct ggml_backend_buffer_type buft = fake.buft;
    buft.iface.get_alloc_size = doubled;
    struct ggml_tensor *leaf = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 32), *quant = ggml_new_tensor_1d(ctx, GGML_TYPE_Q8_0, 32);
    struct ggml_tensor *sorted = ggml_argsort(ctx, leaf, GGML_SORT_ORDER_ASC), *sum = ggml_add(ctx, leaf, leaf);
    struct ggml_tensor *cast = ggml_cast(ctx, leaf, GGML_TYPE_Q8_0), *fine[] = {leaf, quant, sorted, cast};
    ggml_log_set(log_keep, NULL);
    n_lines = 0;
    for (int i = 0; i < 4; i++) {
        assert_int_equal(ggml_backend_buft_get_alloc_size(&buft, fine[i]), 2 * ggml_nbytes(fine[i]));
    }
    assert_int_equal(n_lines, 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(ggml_backend_buft_get_alloc_size(&buft, sum), 256);
        assert_int_equal(n_lines, 1);
    }
    assert_non_null(strstr(last_line, "256 bytes"));
    assert_non_null(strstr(last_line, "ADD"));
    ggml_log_set(NULL, NULL);
    ggml_free(ctx);
}

// Calls that the training functions reject, and their parameters. The other tests are in test_opt.
static void training(void **state) {
    (void) state;
    struct ggml_opt_optimizer_params own = ggml_opt_get_default_optimizer_params(NULL);
    assert_float_equal(own.adamw.beta2, 0.999f, 0);
    own.sgd.alpha = 2;
    assert_float_equal(ggml_opt_get_constant_optimizer_params(&own).sgd.alpha, 2, 0);
    const struct ggml_opt_params params = ggml_opt_default_params(NULL, GGML_OPT_LOSS_TYPE_SUM);
    assert_int_equal(params.build_type, GGML_OPT_BUILD_TYPE_OPT);
    assert_int_equal(params.opt_period, 1);
    assert_string_equal(ggml_opt_optimizer_name(params.optimizer), "adamw");
    assert_null(ggml_opt_init(params));
    assert_error("ggml_opt_init: the scheduler is NULL");
    double loss = 1, unc = 1;
    ggml_opt_result_loss(NULL, &loss, &unc);
    assert_true(loss == 0 && isnan(unc)); // as for an empty result
    ggml_opt_fit(NULL, NULL, NULL, NULL, NULL, GGML_OPT_LOSS_TYPE_SUM, GGML_OPT_OPTIMIZER_TYPE_SGD, NULL, 1, 1, 0, true);
    assert_error("ggml_opt_fit");
}

// ---- graph copies ----

static int seen[4], n_seen, stop_after;

static bool count_node(int index, struct ggml_tensor *t1, struct ggml_tensor *t2, void *user_data) {
    (void) user_data;
    float a[N], b[N];
    ggml_backend_tensor_get(t1, a, 0, ggml_nbytes(t1));
    ggml_backend_tensor_get(t2, b, 0, ggml_nbytes(t2));
    assert_memory_equal(a, b, ggml_nbytes(t1));
    seen[n_seen++] = index;
    return n_seen != stop_after;
}

static void graph_copies(void **state) {
    (void) state;
    struct ggml_context *ctx = new_context();
    ggml_backend_t backend = ggml_backend_dev_init(&fake.dev, NULL), other = ggml_backend_dev_init(&fake.dev, NULL);
    struct ggml_tensor *x = ggml_set_name(ggml_new_tensor_1d(ctx, GGML_TYPE_F32, N), "x");
    struct ggml_tensor *sum = ggml_set_name(ggml_add(ctx, x, x), "sum");
    struct ggml_tensor *half = ggml_set_name(ggml_view_1d(ctx, sum, N / 2, N / 2 * sizeof(float)), "half");
    struct ggml_tensor *more = ggml_set_name(ggml_add(ctx, half, half), "more");
    struct ggml_cgraph *graph = ggml_new_graph(ctx);
    ggml_set_output(more);
    ggml_build_forward_expand(graph, more);

    assert_null(ggml_backend_graph_copy(backend, graph).graph);
    assert_error("allocate the graph first");
    assert_false(ggml_backend_compare_graph_backend(backend, other, graph, count_node, NULL, NULL, 0));

    ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors(ctx, backend);
    const float in[N] = {1, 2, 3, 4, 5, 6, 7, 8};
    ggml_backend_tensor_set(x, in, 0, sizeof in);
    struct ggml_backend_graph_copy copy = ggml_backend_graph_copy(other, graph);
    assert_int_equal(ggml_graph_n_nodes(copy.graph), 3);
    struct ggml_tensor *last = ggml_graph_node(copy.graph, -1), *view = ggml_graph_node(copy.graph, 1);
    assert_string_equal(last->name, "more");
    assert_int_equal(last->flags, more->flags);
    assert_ptr_equal(view->view_src, ggml_graph_node(copy.graph, 0));
    assert_ptr_equal(last->src[0], view);
    assert_ptr_not_equal(view->view_src->data, sum->data);
    assert_int_equal((char *) view->data - (char *) view->view_src->data, 16);
    assert_memory_equal(view->view_src->src[0]->data, in, sizeof in);
    ggml_backend_graph_copy_free(copy);

    assert_true(ggml_backend_compare_graph_backend(backend, other, graph, count_node, NULL, NULL, 0));
    assert_int_equal(n_seen, 2);
    assert_int_equal(seen[1], 2); // the view is not shown
    n_seen = 0, stop_after = 1;
    assert_true(ggml_backend_compare_graph_backend(backend, other, graph, count_node, NULL, NULL, 0));
    assert_int_equal(n_seen, 1);
    const struct ggml_tensor *chosen[] = {more};
    n_seen = 0, stop_after = 0;
    assert_true(ggml_backend_compare_graph_backend(backend, other, graph, count_node, NULL, chosen, 1));
    assert_int_equal(n_seen, 1);
    assert_int_equal(seen[0], 2);
    ggml_backend_buffer_free(buffer);
    ggml_backend_free(backend);
    ggml_backend_free(other);
    ggml_free(ctx);
}

// Copies a graph whose chain is too long for a recursive function.
static void graph_copy_deep(void **state) {
    (void) state;
    enum { n = 200000 };
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){
        .mem_size = (n + 8) * ggml_tensor_overhead() + ggml_graph_overhead_custom(n + 8, false), .no_alloc = true});
    ggml_backend_t backend = ggml_backend_dev_init(&fake.dev, NULL);
    struct ggml_tensor *t = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 1), *one = t;
    for (int i = 0; i < n; i++) {
        t = ggml_add(ctx, t, one);
    }
    struct ggml_cgraph *graph = ggml_new_graph_custom(ctx, n + 8, false);
    ggml_build_forward_expand(graph, t);
    ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors(ctx, backend);
    struct ggml_backend_graph_copy copy = ggml_backend_graph_copy(backend, graph);
    assert_int_equal(ggml_graph_n_nodes(copy.graph), n);
    ggml_backend_graph_copy_free(copy);
    ggml_backend_buffer_free(buffer);
    ggml_backend_free(backend);
    ggml_free(ctx);
}

// ---- NULL ----

static void takes_null(void **state) {
    (void) state;
    char data[8];
    size_t size;
    struct ggml_backend_dev_props props;
    ggml_backend_buft_name(NULL), ggml_backend_buft_alloc_buffer(NULL, 1), ggml_backend_buft_get_alignment(NULL);
    ggml_backend_buft_get_max_size(NULL), ggml_backend_buft_get_alloc_size(NULL, NULL), ggml_backend_buft_is_host(NULL);
    ggml_backend_buft_get_device(NULL), ggml_backend_buffer_name(NULL), ggml_backend_buffer_free(NULL);
    ggml_backend_buffer_get_base(NULL), ggml_backend_buffer_get_size(NULL), ggml_backend_buffer_init_tensor(NULL, NULL);
    ggml_backend_buffer_get_alignment(NULL), ggml_backend_buffer_get_max_size(NULL);
    ggml_backend_buffer_get_alloc_size(NULL, NULL), ggml_backend_buffer_clear(NULL, 0), ggml_backend_buffer_is_host(NULL);
    ggml_backend_buffer_set_usage(NULL, GGML_BACKEND_BUFFER_USAGE_ANY), ggml_backend_buffer_get_usage(NULL);
    ggml_backend_buffer_get_type(NULL), ggml_backend_buffer_reset(NULL), ggml_backend_tensor_copy(NULL, NULL);
    ggml_backend_guid(NULL), ggml_backend_name(NULL), ggml_backend_free(NULL), ggml_backend_get_default_buffer_type(NULL);
    ggml_backend_alloc_buffer(NULL, 1), ggml_backend_get_alignment(NULL), ggml_backend_get_max_size(NULL);
    ggml_backend_tensor_set_async(NULL, NULL, data, 0, 1), ggml_backend_tensor_get_async(NULL, NULL, data, 0, 1);
    ggml_backend_tensor_set_2d_async(NULL, NULL, data, 0, 1, 1, 1, 1);
    ggml_backend_tensor_get_2d_async(NULL, NULL, data, 0, 1, 1, 1, 1);
    ggml_backend_tensor_set(NULL, NULL, 0, 1), ggml_backend_tensor_get(NULL, NULL, 0, 1);
    ggml_backend_tensor_set_2d(NULL, NULL, 0, 1, 1, 1, 1), ggml_backend_tensor_get_2d(NULL, NULL, 0, 1, 1, 1, 1);
    ggml_backend_tensor_memset(NULL, 0, 0, 1), ggml_backend_synchronize(NULL);
    assert_null(ggml_backend_graph_plan_create(NULL, NULL));
    ggml_backend_graph_plan_free(NULL, NULL), ggml_backend_graph_plan_free(NULL, data);
    assert_int_equal(ggml_backend_graph_plan_compute(NULL, NULL), GGML_STATUS_FAILED);
    assert_int_equal(ggml_backend_graph_compute(NULL, NULL), GGML_STATUS_FAILED);
    assert_int_equal(ggml_backend_graph_compute_async(NULL, NULL), GGML_STATUS_FAILED);
    ggml_backend_supports_op(NULL, NULL), ggml_backend_supports_buft(NULL, NULL), ggml_backend_offload_op(NULL, NULL);
    ggml_backend_tensor_copy_async(NULL, NULL, NULL, NULL), ggml_backend_get_device(NULL), ggml_backend_event_new(NULL);
    ggml_backend_event_free(NULL), ggml_backend_event_record(NULL, NULL), ggml_backend_event_synchronize(NULL);
    ggml_backend_event_wait(NULL, NULL), ggml_backend_dev_name(NULL), ggml_backend_dev_description(NULL);
    ggml_backend_dev_memory(NULL, NULL, &size), ggml_backend_dev_type(NULL), ggml_backend_dev_get_props(NULL, NULL);
    assert_int_equal(size, 0);
    ggml_backend_dev_get_props(NULL, &props), ggml_backend_dev_backend_reg(NULL), ggml_backend_dev_init(NULL, NULL);
    ggml_backend_dev_buffer_type(NULL), ggml_backend_dev_host_buffer_type(NULL);
    ggml_backend_dev_buffer_from_host_ptr(NULL, NULL, 0, 0), ggml_backend_dev_supports_op(NULL, NULL);
    ggml_backend_dev_supports_buft(NULL, NULL), ggml_backend_dev_offload_op(NULL, NULL), ggml_backend_reg_name(NULL);
    ggml_backend_reg_dev_count(NULL), ggml_backend_reg_dev_get(NULL, 0), ggml_backend_reg_get_proc_address(NULL, NULL);
    assert_null(ggml_backend_graph_copy(NULL, NULL).graph);
    ggml_backend_graph_copy_free((struct ggml_backend_graph_copy){0});
    assert_false(ggml_backend_compare_graph_backend(NULL, NULL, NULL, NULL, NULL, NULL, 0));
    assert_int_equal(ggml_backend_tensor_alloc(NULL, NULL, NULL), GGML_STATUS_FAILED);
    assert_int_equal(ggml_backend_view_init(NULL), GGML_STATUS_FAILED);
    assert_false(ggml_backend_buffer_copy_tensor(NULL, NULL));
    assert_false(ggml_backend_buffer_is_multi_buffer(NULL));
    ggml_backend_multi_buffer_set_usage(NULL, GGML_BACKEND_BUFFER_USAGE_ANY);
    assert_false(ggml_backend_is_meta(NULL) || ggml_backend_buffer_is_meta(NULL) || ggml_backend_buft_is_meta(NULL));
    ggml_backend_meta_n_backends(NULL), ggml_backend_meta_simple_backend(NULL, 0);
    ggml_backend_meta_alloc_ctx_tensors_from_buft(NULL, NULL);
    ggml_backend_buffer_free(ggml_backend_buffer_init(NULL, (struct ggml_backend_buffer_i){0}, NULL, 4));
}

// ---- the n-th allocation fails ----

// Uses everything that the tests above use: a backend, tensors in several buffers, stored failures, a copied and compared graph.
static void one_life(void) {
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = 1 << 16, .no_alloc = true});
    ggml_backend_t backend = ggml_backend_dev_init(&fake.dev, NULL);
    struct ggml_tensor *x = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, N);
    struct ggml_tensor *sum = ggml_add(ctx, x, x);
    struct ggml_tensor *view = ggml_view_1d(ctx, sum, 2, 0);
    struct ggml_cgraph *graph = ggml_new_graph_custom(ctx, 16, false);
    const float in[N] = {1};
    float out[N];
    ggml_build_forward_expand(graph, sum);
    fake.max_size = 64;
    ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors(ctx, backend);
    if (buffer == NULL && x != NULL) {
        assert_null(x->data);
        assert_null(sum->buffer);
        assert_null(view->buffer);
    }
    ggml_backend_tensor_set_async(backend, x, in, 0, sizeof in);
    ggml_backend_tensor_set_async(backend, x, in, 1, sizeof in);
    ggml_backend_graph_compute(backend, graph);
    ggml_backend_graph_plan_t plan = ggml_backend_graph_plan_create(backend, graph);
    ggml_backend_graph_plan_compute(backend, plan);
    ggml_backend_graph_plan_free(backend, plan);
    ggml_backend_tensor_copy(x, sum);
    ggml_backend_tensor_get(sum, out, 0, sizeof out);
    n_seen = 0, stop_after = 0;
    ggml_backend_compare_graph_backend(backend, backend, graph, count_node, NULL, NULL, 0);
    ggml_backend_event_free(ggml_backend_event_new(&fake.dev));
    ggml_backend_tensor_memset(NULL, 0, 0, 1);
    ggml_backend_buffer_free(buffer);
    ggml_backend_free(backend);
    ggml_free(ctx);
}

static void every_allocation_fails_once(void **state) {
    (void) state;
    berth_alloc_watch(true);
    one_life();
    const int64_t n = berth_alloc_made();
    assert_int_equal(berth_alloc_alive(), 0);
    assert_true(n > 10);
    for (int64_t i = 1; i <= n; i++) {
        berth_alloc_watch(true);
        berth_alloc_fail_at(i);
        one_life();
        berth_alloc_fail_at(0);
        if (berth_alloc_alive() != 0) {
            fail_msg("%d allocations leak when allocation %d fails", (int) berth_alloc_alive(), (int) i);
        }
    }
    berth_alloc_watch(false);
}

// ---- memory that can be given back ----

struct counting_holder {
    struct berth_holder holder;
    bool is_nested; // its function calls berth_reclaim
    int n_asked;
};

static bool holder_counts(struct berth_holder *holder, ggml_backend_buffer_type_t buft) {
    struct counting_holder *h = (struct counting_holder *) holder;
    h->n_asked++;
    if (h->is_nested) {
        assert_true(berth_reclaim(buft));
    }
    return true;
}

// Two calls of berth_reclaim at the same time, here one inside the other: both ask all holders that are not held.
static void reclaiming(void **state) {
    (void) state;
    struct counting_holder holders[3] = {{.is_nested = false}, {.is_nested = true}, {.is_nested = false}};
    assert_false(berth_reclaim(&fake.buft));
    for (int i = 0; i < 3; i++) {
        holders[i].holder.reclaim = holder_counts;
        berth_holder_add(&holders[i].holder);
    }
    assert_true(berth_reclaim(&fake.buft));
    assert_int_equal(holders[0].n_asked, 2);
    assert_int_equal(holders[1].n_asked, 1);
    assert_int_equal(holders[2].n_asked, 2);

    holders[1].is_nested = false;
    berth_holder_hold(&holders[0].holder);
    assert_true(berth_reclaim(&fake.buft));
    berth_holder_let_go(&holders[0].holder);
    assert_int_equal(holders[0].n_asked, 2);
    assert_int_equal(holders[1].n_asked, 2);

    berth_reclaim_pause();
    berth_reclaim_pause();
    berth_reclaim_resume();
    assert_false(berth_reclaim(&fake.buft));
    berth_reclaim_resume();
    assert_true(berth_reclaim(&fake.buft));
    assert_int_equal(holders[0].n_asked, 3);
    for (int i = 0; i < 3; i++) {
        berth_holder_remove(&holders[i].holder);
    }
    assert_false(berth_reclaim(&fake.buft));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(host_buffers, setup, teardown),
        cmocka_unit_test_setup_teardown(host_pointer, setup, teardown),
        cmocka_unit_test_setup_teardown(multi_buffers, setup, teardown),
        cmocka_unit_test_setup_teardown(placing, setup, teardown),
        cmocka_unit_test_setup_teardown(access_in_bounds, setup, teardown),
        cmocka_unit_test_setup_teardown(access_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(copies, setup, teardown),
        cmocka_unit_test_setup_teardown(late_reports, setup, teardown),
        cmocka_unit_test_setup_teardown(computing, setup, teardown),
        cmocka_unit_test_setup_teardown(devices, setup, teardown),
        cmocka_unit_test_setup_teardown(expanding_types, setup, teardown),
        cmocka_unit_test_setup_teardown(training, setup, teardown),
        cmocka_unit_test_setup_teardown(graph_copies, setup, teardown),
        cmocka_unit_test_setup_teardown(graph_copy_deep, setup, teardown),
        cmocka_unit_test_setup_teardown(reclaiming, setup, teardown),
        cmocka_unit_test_setup_teardown(takes_null, setup, teardown),
        cmocka_unit_test_setup_teardown(every_allocation_fails_once, setup, teardown),
    };
    return cmocka_run_group_tests_name("backend", tests, NULL, NULL);
}
