// SPDX-License-Identifier: MIT
// test_backend_bare.c: devices that implement nothing, or lack some functions. Every call of the interface returns a default or
// fails with an error, and no missing function is called.

#include "support/check.h"

#include "support/device_full.h"

#include "backend/backend.h"
#include "core/graph.h"
#include "ggml-alloc.h"

#define N 8

static struct ggml_backend_reg bare_reg;
static struct ggml_backend_device bare_device = {.reg = &bare_reg};
static struct ggml_backend_buffer_type bare_buft = {.device = &bare_device};
static struct ggml_backend bare_backend = {.device = &bare_device};
static struct ggml_backend_event bare_event = {.device = &bare_device};
static struct ggml_backend_event orphan_event = {0};
static struct ggml_backend bare_backend_no_device = {0};

static int setup(void **state) {
    (void) state;
    full_start();
    check_quiet();
    berth_clear_error();
    return 0;
}

static int teardown(void **state) {
    (void) state;
    full_stop();
    return 0;
}

static void assert_error(const char *part) {
    if (strstr(berth_last_error(), part) == NULL) {
        fail_msg("the last error is \"%s\", without \"%s\"", berth_last_error(), part);
    }
    berth_clear_error();
}

static struct ggml_context *new_context(void) {
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = 1 << 20, .no_alloc = true});
    assert_non_null(ctx);
    return ctx;
}

static void *bare_base(ggml_backend_buffer_t buffer) {
    return buffer->context;
}

static void bare_set(ggml_backend_buffer_t buffer, struct ggml_tensor *t, const void *data, size_t offset, size_t size) {
    (void) buffer;
    memcpy((char *) t->data + offset, data, size);
}

static void bare_get(ggml_backend_buffer_t buffer, const struct ggml_tensor *t, void *data, size_t offset, size_t size) {
    (void) buffer;
    memcpy(data, (const char *) t->data + offset, size);
}

static bool bare_is_host(ggml_backend_buffer_type_t buft) {
    (void) buft;
    return true;
}

// Makes a buffer over `memory` that has get_base and no other function.
static ggml_backend_buffer_t bare_buffer(float *memory) {
    return ggml_backend_buffer_init(&bare_buft, (struct ggml_backend_buffer_i){.get_base = bare_base}, memory, N * sizeof(float));
}

static void device_without_functions(void **state) {
    (void) state;
    struct ggml_backend_dev_props props;
    memset(&props, 0xFF, sizeof props);
    size_t mem_free = 1, mem_total = 1;
    struct ggml_tensor op = {.op = GGML_OP_ADD};
    assert_null(ggml_backend_dev_name(&bare_device));
    assert_null(ggml_backend_dev_description(&bare_device));
    ggml_backend_dev_memory(&bare_device, &mem_free, NULL);
    ggml_backend_dev_memory(&bare_device, NULL, &mem_total);
    assert_int_equal(mem_free + mem_total, 0);
    assert_int_equal(ggml_backend_dev_type(&bare_device), GGML_BACKEND_DEVICE_TYPE_CPU);
    ggml_backend_dev_get_props(&bare_device, &props);
    assert_null(props.name);
    assert_null(ggml_backend_dev_init(&bare_device, NULL));
    assert_error("cannot create a backend");
    assert_null(ggml_backend_dev_buffer_type(&bare_device));
    assert_null(ggml_backend_dev_host_buffer_type(&bare_device));
    assert_null(ggml_backend_dev_buffer_from_host_ptr(&bare_device, &op, sizeof op, 0));
    assert_error("cannot use host memory");
    assert_null(ggml_backend_dev_buffer_from_host_ptr(&bare_device, NULL, 0, 0));
    assert_error("the pointer is NULL");
    assert_false(ggml_backend_dev_supports_op(&bare_device, &op) || ggml_backend_dev_supports_op(&bare_device, NULL));
    assert_false(ggml_backend_dev_supports_buft(&bare_device, &bare_buft) || ggml_backend_dev_supports_buft(&fake.dev, NULL));
    assert_false(ggml_backend_dev_offload_op(&bare_device, &op) || ggml_backend_dev_offload_op(&bare_device, NULL));
    assert_ptr_equal(ggml_backend_dev_backend_reg(&bare_device), &bare_reg);
    assert_null(ggml_backend_reg_name(&bare_reg));
    assert_int_equal(ggml_backend_reg_dev_count(&bare_reg), 0);
    assert_null(ggml_backend_reg_dev_get(&bare_reg, 0));
    assert_error("there is no device 0, the registry has 0");
    assert_null(ggml_backend_reg_get_proc_address(&bare_reg, "x"));
    assert_null(ggml_backend_reg_get_proc_address(&bare_reg, NULL));
    assert_null(ggml_backend_event_new(&bare_device));
    ggml_backend_event_free(&bare_event);
    ggml_backend_event_free(&orphan_event);
    ggml_backend_event_synchronize(&bare_event);
    assert_error("the device has no events");
    ggml_backend_event_synchronize(&orphan_event);
    assert_error("the device has no events");
}

static size_t one_device(ggml_backend_reg_t reg) {
    (void) reg;
    return 1;
}

static void registry_that_counts_but_gives_none(void **state) {
    (void) state;
    struct ggml_backend_reg reg = {.iface = {.get_device_count = one_device}};
    assert_int_equal(ggml_backend_reg_dev_count(&reg), 1);
    assert_null(ggml_backend_reg_dev_get(&reg, 0));
    assert_error("there is no device 0, the registry has 1");
}

static void backend_without_functions(void **state) {
    (void) state;
    struct ggml_context *ctx = new_context();
    struct ggml_cgraph *graph = ggml_new_graph(ctx);
    int plan;
    assert_null(ggml_backend_guid(&bare_backend));
    assert_string_equal(ggml_backend_name(&bare_backend), "NULL");
    assert_null(ggml_backend_get_default_buffer_type(&bare_backend));
    assert_null(ggml_backend_get_default_buffer_type(&bare_backend_no_device));
    assert_null(ggml_backend_alloc_buffer(&bare_backend, 4));
    assert_error("buffer type is NULL");
    ggml_backend_synchronize(&bare_backend); // nothing to wait for
    assert_int_equal(ggml_backend_graph_compute(&bare_backend, graph), GGML_STATUS_FAILED);
    assert_error("does not implement it");
    assert_null(ggml_backend_graph_plan_create(&bare_backend, graph));
    assert_error("does not implement it");
    ggml_backend_graph_plan_free(&bare_backend, &plan);
    assert_error("does not implement it");
    assert_int_equal(ggml_backend_graph_plan_compute(&bare_backend, &plan), GGML_STATUS_FAILED);
    assert_error("does not implement it");
    ggml_backend_event_record(&bare_event, &bare_backend);
    assert_error("the backend has no events");
    ggml_backend_event_record(&bare_event, NULL);
    assert_error("the backend is NULL");
    ggml_backend_event_wait(&bare_backend, &bare_event);
    assert_error("the backend has no events");
    ggml_backend_event_wait(NULL, &bare_event);
    assert_error("the backend is NULL");
    ggml_backend_synchronize(&bare_backend); // reports and removes its stored failure
    ggml_backend_free(&bare_backend);        // has no free function
    ggml_free(ctx);
}

static void buffer_type_without_functions(void **state) {
    (void) state;
    assert_null(ggml_backend_buft_name(&bare_buft));
    assert_null(ggml_backend_buft_alloc_buffer(&bare_buft, 4));
    assert_error("cannot be allocated");
    assert_int_equal(ggml_backend_buft_get_alignment(&bare_buft), 1);
    assert_int_equal(ggml_backend_buft_get_max_size(&bare_buft), SIZE_MAX);
    assert_int_equal(ggml_backend_buft_get_alloc_size(&bare_buft, NULL), 0);
    assert_false(ggml_backend_buft_is_host(&bare_buft));
    ggml_backend_buffer_t empty = ggml_backend_buft_alloc_buffer(&bare_buft, 0);
    assert_non_null(empty);
    assert_null(ggml_backend_buffer_get_base(empty));
    ggml_backend_buffer_free(empty);
}

// The buffer has no functions, and its type has no name. Error messages must not need the name.
static void buffer_without_functions(void **state) {
    (void) state;
    float memory[N] = {1, 2, 3}, data[N] = {9};
    struct ggml_context *ctx = new_context();
    ggml_backend_buffer_t b = bare_buffer(memory);
    struct ggml_tensor *t = ggml_set_name(ggml_new_tensor_1d(ctx, GGML_TYPE_F32, N), "t");
    assert_int_equal(ggml_backend_buffer_init_tensor(b, NULL), GGML_STATUS_FAILED);
    assert_error("the tensor is NULL");
    assert_int_equal(ggml_backend_tensor_alloc(b, t, memory), GGML_STATUS_SUCCESS);
    ggml_backend_buffer_clear(b, 0);
    assert_error("cannot be cleared");
    ggml_backend_tensor_set(t, data, 0, 4);
    assert_error("do not implement it (tensor t)");
    ggml_backend_tensor_get(t, data, 0, 4);
    assert_error("do not implement it (tensor t)");
    ggml_backend_tensor_set_2d(t, data, 0, 4, 2, 8, 8);
    assert_error("do not implement it (tensor t)");
    ggml_backend_tensor_get_2d(t, data, 0, 4, 2, 8, 8);
    assert_error("do not implement it (tensor t)");
    ggml_backend_tensor_memset(t, 0, 0, 4);
    assert_error("do not implement it (tensor t)");
    ggml_set_zero(t);
    assert_error("does not support memset");
    assert_true(memory[0] == 1 && data[0] == 9);

    // Copies. At first the host can neither read the source buffer nor write the destination buffer.
    float other[N] = {0};
    ggml_backend_buffer_t into = bare_buffer(other);
    struct ggml_tensor *u = ggml_set_name(ggml_new_tensor_1d(ctx, GGML_TYPE_F32, N), "u");
    assert_int_equal(ggml_backend_tensor_alloc(into, u, other), GGML_STATUS_SUCCESS);
    ggml_backend_tensor_copy(t, u);
    assert_error("cannot be read");
    b->iface.get_tensor = bare_get;
    ggml_backend_tensor_copy(t, u);
    assert_error("cannot be written");
    ggml_backend_tensor_copy_async(&bare_backend, &bare_backend, t, u);
    assert_error("cannot be written");
    ggml_backend_synchronize(&bare_backend);
    into->iface.set_tensor = bare_set;
    berth_clear_error();
    ggml_backend_tensor_copy_async(NULL, NULL, t, u);
    assert_true(other[0] == 1 && other[2] == 3);
    assert_string_equal(berth_last_error(), "");
    assert_false(ggml_backend_buffer_copy_tensor(t, u)); // the buffer cannot copy by itself

    // One side is host memory that lacks a function.
    bare_buft.iface = (struct ggml_backend_buffer_type_i){.is_host = bare_is_host};
    into->iface.set_tensor = NULL;
    b->iface.get_tensor = NULL;
    ggml_backend_tensor_copy(t, u);
    assert_error("cannot be read");
    bare_buft.iface = (struct ggml_backend_buffer_type_i){0};
    ggml_backend_buffer_free(b);
    ggml_backend_buffer_free(into);
    ggml_free(ctx);
}

static int n_copied;

static bool bare_copy(ggml_backend_buffer_t buffer, const struct ggml_tensor *src, struct ggml_tensor *dst) {
    if (buffer->iface.set_tensor != NULL) {
        return false;
    }
    n_copied++;
    memcpy(dst->data, src->data, ggml_nbytes(src));
    return true;
}

// Each way to copy a tensor needs other functions. The result says whether the tensor was copied.
static void copies_take_the_function_that_exists(void **state) {
    (void) state;
    float memory[N] = {1, 2, 3}, other[N] = {0};
    struct ggml_context *ctx = new_context();
    ggml_backend_buffer_t from = bare_buffer(memory), to = bare_buffer(other);
    struct ggml_tensor *t = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, N), *u = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, N);
    assert_int_equal(ggml_backend_tensor_alloc(from, t, memory), GGML_STATUS_SUCCESS);
    assert_int_equal(ggml_backend_tensor_alloc(to, u, other), GGML_STATUS_SUCCESS);
    assert_false(berth_tensor_copy(__func__, NULL, t, u, NULL));
    assert_true(berth_tensor_copy(__func__, NULL, t, t, NULL)); // nothing to do
    assert_false(berth_tensor_copy(__func__, NULL, t, NULL, NULL));

    to->iface.cpy_tensor = bare_copy;
    assert_true(berth_tensor_copy(__func__, NULL, t, u, NULL));
    assert_true(n_copied == 1 && other[2] == 3);

    from->iface.get_tensor = bare_get;
    to->iface.set_tensor = bare_set;
    memory[2] = 4;
    berth_alloc_fail_at(1);
    assert_false(berth_tensor_copy(__func__, NULL, t, u, NULL)); // no memory for the way through the host
    berth_alloc_fail_at(0);
    assert_true(berth_tensor_copy(__func__, NULL, t, u, NULL));
    assert_true(n_copied == 1 && other[2] == 4);

    // If one side is host memory, the function of the other side suffices.
    bare_buft.iface.is_host = bare_is_host;
    to->iface.cpy_tensor = NULL;
    from->iface.get_tensor = NULL;
    memory[2] = 5;
    assert_true(berth_tensor_copy(__func__, NULL, t, u, NULL));
    assert_true(other[2] == 5);
    from->iface.get_tensor = bare_get;
    to->iface.set_tensor = NULL;
    memory[2] = 6;
    assert_true(berth_tensor_copy(__func__, NULL, t, u, NULL));
    assert_true(other[2] == 6);
    bare_buft.iface = (struct ggml_backend_buffer_type_i){0};
    ggml_backend_buffer_free(from);
    ggml_backend_buffer_free(to);
    ggml_free(ctx);
}

// Without 2-D functions, the pieces are transferred one by one. Host buffers transfer at any offset.
static void pieces_and_offsets(void **state) {
    (void) state;
    float memory[N] = {0}, back[N] = {0};
    const float data[] = {1, 0, 2, 0, 3};
    struct ggml_context *ctx = new_context();
    ggml_backend_buffer_t b = bare_buffer(memory);
    b->iface.set_tensor = bare_set;
    b->iface.get_tensor = bare_get;
    struct ggml_tensor *t = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, N), *h = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, N);
    assert_int_equal(ggml_backend_tensor_alloc(b, t, memory), GGML_STATUS_SUCCESS);
    ggml_backend_tensor_set_2d(t, data, 4, 4, 3, 12, 8);
    assert_true(
        memory[1] == 1 && memory[4] == 2 && memory[7] == 3 && memory[0] + memory[2] + memory[3] + memory[5] + memory[6] == 0);
    ggml_backend_tensor_get_2d(t, back, 4, 4, 3, 12, 8);
    assert_memory_equal(back, data, sizeof data);

    ggml_backend_buffer_t host = ggml_backend_buft_alloc_buffer(ggml_backend_cpu_buffer_type(), sizeof memory);
    assert_int_equal(ggml_backend_tensor_alloc(host, h, ggml_backend_buffer_get_base(host)), GGML_STATUS_SUCCESS);
    ggml_backend_tensor_memset(h, 0, 0, sizeof memory);
    ggml_backend_tensor_set(h, data, 8, sizeof data);
    ggml_backend_tensor_get(h, back, 16, 4);
    assert_true(back[0] == 2);
    ggml_backend_tensor_memset(h, 0xFF, 12, 4);
    const uint32_t *bits = h->data;
    assert_true(bits[0] + bits[1] == 0 && bits[3] == UINT32_MAX && ((float *) h->data)[2] == 1 && ((float *) h->data)[4] == 2);
    ggml_backend_buffer_free(b);
    ggml_backend_buffer_free(host);
    ggml_free(ctx);
}

static int n_2d; // calls of the functions below

static void get_2d(ggml_backend_buffer_t buffer, const struct ggml_tensor *t, void *data, size_t offset, size_t size, size_t n,
    size_t stride, size_t stride_data) {
    (void) buffer;
    n_2d++;
    for (size_t i = 0; i < n; i++) {
        memcpy((char *) data + i * stride_data, (const char *) t->data + offset + i * stride, size);
    }
}

static void set_2d_async(ggml_backend_t backend, struct ggml_tensor *t, const void *data, size_t offset, size_t size, size_t n,
    size_t stride, size_t stride_data) {
    (void) backend;
    n_2d++;
    for (size_t i = 0; i < n; i++) {
        memcpy((char *) t->data + offset + i * stride, (const char *) data + i * stride_data, size);
    }
}

static void get_2d_async(ggml_backend_t backend, const struct ggml_tensor *t, void *data, size_t offset, size_t size, size_t n,
    size_t stride, size_t stride_data) {
    (void) backend;
    get_2d(NULL, t, data, offset, size, n, stride, stride_data);
}

static bool copy_async(ggml_backend_t from, ggml_backend_t to, const struct ggml_tensor *src, struct ggml_tensor *dst) {
    (void) to;
    memcpy(dst->data, src->data, ggml_nbytes(src));
    return from != NULL && from->context == NULL; // false: Berth must copy the tensor in another way
}

// Optional functions that few devices have: 2-D transfers, and copies between two backends.
static void optional_functions(void **state) {
    (void) state;
    float memory[N] = {0}, other[N] = {0}, data[N] = {1, 2, 3, 4}, back[N] = {0};
    struct ggml_context *ctx = new_context();
    ggml_backend_buffer_t b = bare_buffer(memory), b2 = bare_buffer(other);
    struct ggml_tensor *t = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, N), *u = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, N);
    assert_int_equal(ggml_backend_tensor_alloc(b, t, memory), GGML_STATUS_SUCCESS);
    assert_int_equal(ggml_backend_tensor_alloc(b2, u, other), GGML_STATUS_SUCCESS);
    b->iface.get_tensor_2d = get_2d;
    struct ggml_backend backend = {
        .iface = {.set_tensor_2d_async = set_2d_async, .get_tensor_2d_async = get_2d_async, .cpy_tensor_async = copy_async}};
    struct ggml_backend refuses = backend;
    refuses.context = &refuses;
    ggml_backend_tensor_set_2d_async(&backend, t, data, 0, 4, 2, 8, 4);
    assert_true(memory[0] == 1 && memory[1] == 0 && memory[2] == 2);
    ggml_backend_tensor_get_2d_async(&backend, t, back, 0, 4, 2, 8, 4);
    assert_true(back[0] == 1 && back[1] == 2);
    memset(back, 0, sizeof back);
    ggml_backend_tensor_get_2d(t, back, 0, 4, 2, 8, 4);
    assert_true(back[0] == 1 && back[1] == 2);
    assert_int_equal(n_2d, 3);
    ggml_backend_tensor_copy_async(&backend, &backend, t, u);
    assert_memory_equal(memory, other, sizeof memory);
    ggml_backend_tensor_copy_async(&backend, &backend, t, t); // nothing to do
    assert_string_equal(berth_last_error(), "");
    ggml_backend_tensor_copy_async(&refuses, &backend, t, u);
    assert_error("cannot be read");
    ggml_backend_synchronize(&backend);
    // Pieces whose sizes overflow in different ways.
    berth_clear_error();
    ggml_backend_tensor_set_2d(t, data, 0, 4, SIZE_MAX, SIZE_MAX, 4);
    assert_error("exceed the");
    ggml_backend_tensor_set_2d(t, data, SIZE_MAX, 4, 2, 8, 4);
    assert_error("exceed the");
    ggml_backend_tensor_set_2d(t, data, SIZE_MAX - 8, 16, 2, 4, 4);
    assert_error("exceed the");
    ggml_backend_tensor_set_2d(t, data, 0, 4, 0, 8, 4); // no pieces
    assert_string_equal(berth_last_error(), "");
    ggml_backend_buffer_free(b);
    ggml_backend_buffer_free(b2);
    ggml_free(ctx);
}

static void invalid_places(void **state) {
    (void) state;
    float all[3 * N] = {0}, *memory = all + N;
    struct ggml_context *ctx = new_context();
    ggml_backend_buffer_t b = bare_buffer(memory);
    struct ggml_tensor *t = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, N / 2);
    struct ggml_tensor *whole = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, N);
    struct ggml_tensor *view = ggml_view_1d(ctx, whole, 2, 8);
    assert_int_equal(ggml_backend_tensor_alloc(b, NULL, memory), GGML_STATUS_FAILED);
    assert_error("the tensor is NULL");
    assert_int_equal(ggml_backend_tensor_alloc(b, t, NULL), GGML_STATUS_FAILED);
    assert_error("the address is NULL");
    assert_int_equal(ggml_backend_tensor_alloc(b, t, (char *) memory - 4), GGML_STATUS_FAILED);
    assert_error("is not inside the buffer");
    assert_int_equal(ggml_backend_tensor_alloc(b, t, memory + N + 1), GGML_STATUS_FAILED);
    assert_error("is not inside the buffer");
    assert_int_equal(ggml_backend_tensor_alloc(b, t, memory + N - 1), GGML_STATUS_FAILED);
    assert_error("is not inside the buffer");
    assert_int_equal(ggml_backend_tensor_alloc(b, view, memory), GGML_STATUS_FAILED);
    assert_error("is a view");
    assert_int_equal(ggml_backend_view_init(t), GGML_STATUS_FAILED);
    assert_error("is not a view");
    assert_int_equal(ggml_backend_view_init(view), GGML_STATUS_FAILED);
    assert_error("which has no memory");
    whole->buffer = b; // the address is still missing
    assert_int_equal(ggml_backend_view_init(view), GGML_STATUS_FAILED);
    assert_error("which has no memory");
    ggml_backend_tensor_set(whole, memory, 0, 4);
    assert_error("has no memory in its buffer");
    whole->buffer = NULL;
    assert_int_equal(ggml_backend_tensor_alloc(b, whole, memory), GGML_STATUS_SUCCESS);
    assert_int_equal(ggml_backend_view_init(view), GGML_STATUS_SUCCESS);
    assert_ptr_equal(view->data, memory + 2);
    assert_int_equal(ggml_backend_view_init(view), GGML_STATUS_FAILED);
    assert_error("has a buffer already");
    t->data = memory;
    assert_int_equal(ggml_backend_tensor_alloc(b, t, memory), GGML_STATUS_FAILED);
    assert_error("has memory already");
    b->iface.get_base = NULL;
    t->data = NULL;
    assert_int_equal(ggml_backend_tensor_alloc(b, t, memory), GGML_STATUS_FAILED);
    assert_error("is not inside the buffer");
    struct ggml_tensor *poison = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, -1);
    assert_int_equal(ggml_backend_tensor_alloc(b, poison, memory), GGML_STATUS_FAILED);
    assert_error("-1");
    ggml_backend_buffer_free(b);
    ggml_free(ctx);
}

static void invalid_multi_buffers(void **state) {
    (void) state;
    float memory[N];
    ggml_backend_buffer_t b[2] = {bare_buffer(memory), bare_buffer(memory)}, none[2] = {b[0], NULL};
    assert_null(ggml_backend_multi_buffer_alloc_buffer(NULL, 2));
    assert_null(ggml_backend_multi_buffer_alloc_buffer(b, 0));
    assert_error("no buffers given");
    assert_null(ggml_backend_multi_buffer_alloc_buffer(none, 2));
    assert_error("buffer 1 of 2 is NULL");
    b[1]->size = SIZE_MAX;
    assert_null(ggml_backend_multi_buffer_alloc_buffer(b, 2));
    assert_error("overflow");
    ggml_backend_buffer_free(b[0]);
    ggml_backend_buffer_free(b[1]);
}

static void copies_between_host_buffers(void **state) {
    (void) state;
    struct ggml_context *ctx = new_context();
    ggml_backend_buffer_type_t cpu = ggml_backend_cpu_buffer_type();
    ggml_backend_buffer_t host = ggml_backend_buft_alloc_buffer(cpu, 256);
    float memory[N] = {4, 5}, got[2];
    ggml_backend_buffer_t far = bare_buffer(memory);
    struct ggml_tensor *a = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 2), *c = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 2);
    struct ggml_tensor *f = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 2), *wide = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 1, 2);
    char *base = ggml_backend_buffer_get_base(host);
    assert_int_equal(ggml_backend_tensor_alloc(host, a, base), GGML_STATUS_SUCCESS);
    assert_int_equal(ggml_backend_tensor_alloc(host, c, base + 64), GGML_STATUS_SUCCESS);
    assert_int_equal(ggml_backend_tensor_alloc(host, wide, base + 128), GGML_STATUS_SUCCESS);
    assert_int_equal(ggml_backend_tensor_alloc(far, f, memory), GGML_STATUS_SUCCESS);
    ggml_backend_tensor_set(a, (const float[]){1, 2}, 0, 8);
    assert_true(ggml_backend_buffer_copy_tensor(a, c));
    ggml_backend_tensor_get(c, got, 0, 8);
    assert_true(got[0] == 1 && got[1] == 2);
    assert_false(ggml_backend_buffer_copy_tensor(f, c)); // not host memory
    assert_false(ggml_backend_buffer_copy_tensor(a, wide));
    assert_error("layouts differ");
    wide->ne[0] = 2, wide->ne[1] = 1, wide->nb[1] = 64; // differs only in the stride of a single row
    assert_false(ggml_backend_buffer_copy_tensor(a, wide));
    assert_error("layouts differ");
    ggml_backend_tensor_copy(a, a);
    assert_string_equal(berth_last_error(), "");
    ggml_backend_buffer_free(host);
    ggml_backend_buffer_free(far);
    ggml_free(ctx);
}

static void invalid_graphs(void **state) {
    (void) state;
    struct ggml_context *ctx = new_context();
    ggml_backend_t backend = ggml_backend_dev_init(&fake.dev, NULL);
    struct ggml_cgraph *graph = ggml_new_graph_custom(ctx, 16, false);
    struct ggml_tensor *a = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, N);
    struct ggml_tensor *sum = ggml_add(ctx, a, a);
    struct ggml_tensor *view = ggml_view_1d(ctx, a, 2, 0);
    ggml_build_forward_expand(graph, sum);
    ggml_build_forward_expand(graph, view);
    assert_int_equal(ggml_backend_graph_compute(backend, graph), GGML_STATUS_FAILED);
    assert_error("has no memory");
    ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors(ctx, backend);
    assert_non_null(buffer);
    assert_int_equal(ggml_backend_graph_compute(backend, graph), GGML_STATUS_SUCCESS);
    view->view_offs = (size_t) 1 << 40; // an unread view is not checked
    assert_int_equal(ggml_backend_graph_compute(backend, graph), GGML_STATUS_SUCCESS);
    sum->op = (enum ggml_op) 9999;
    void *was = sum->data;
    sum->data = NULL;
    assert_int_equal(ggml_backend_graph_compute(backend, graph), GGML_STATUS_FAILED);
    assert_error("cannot compute node");
    sum->op = GGML_OP_ADD, sum->data = was;
    struct ggml_tensor *poison = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, -1);
    graph->nodes[1] = poison; // set by hand: a constructor would report it earlier
    assert_int_equal(ggml_backend_graph_compute(backend, graph), GGML_STATUS_FAILED);
    assert_error("-1");
    assert_null(ggml_backend_graph_plan_create(backend, graph));
    graph->nodes[1] = view;
    ggml_backend_buffer_free(buffer);
    ggml_backend_free(backend);
    ggml_free(ctx);
}

static size_t no_alignment(ggml_backend_buffer_type_t buft) {
    (void) buft;
    return 0;
}

static size_t padded_size(ggml_backend_buffer_type_t buft, const struct ggml_tensor *t) {
    (void) buft;
    return ggml_nbytes(t) + 12;
}

static void odd_buffer_types(void **state) {
    (void) state;
    struct ggml_backend_buffer_type odd = {.iface = {.get_alignment = no_alignment, .get_alloc_size = padded_size}};
    struct ggml_tensor t = {.op = (enum ggml_op) 9999, .ne = {1, 1, 1, 1}, .nb = {4, 4, 4, 4}};
    assert_int_equal(ggml_backend_buft_get_alignment(&odd), 1);
    assert_int_equal(ggml_backend_buft_get_alloc_size(&odd, &t), 16); // an unknown op may request more
    assert_int_equal(ggml_backend_buft_get_alloc_size(&odd, NULL), 0);
    t.op = GGML_OP_ADD;
    assert_int_equal(ggml_backend_buft_get_alloc_size(&odd, &t), 16); // one warning, then none
    assert_int_equal(ggml_backend_buft_get_alloc_size(&odd, &t), 16);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(device_without_functions, setup, teardown),
        cmocka_unit_test_setup_teardown(registry_that_counts_but_gives_none, setup, teardown),
        cmocka_unit_test_setup_teardown(backend_without_functions, setup, teardown),
        cmocka_unit_test_setup_teardown(buffer_type_without_functions, setup, teardown),
        cmocka_unit_test_setup_teardown(buffer_without_functions, setup, teardown),
        cmocka_unit_test_setup_teardown(copies_take_the_function_that_exists, setup, teardown),
        cmocka_unit_test_setup_teardown(pieces_and_offsets, setup, teardown),
        cmocka_unit_test_setup_teardown(optional_functions, setup, teardown),
        cmocka_unit_test_setup_teardown(invalid_places, setup, teardown),
        cmocka_unit_test_setup_teardown(invalid_multi_buffers, setup, teardown),
        cmocka_unit_test_setup_teardown(copies_between_host_buffers, setup, teardown),
        cmocka_unit_test_setup_teardown(invalid_graphs, setup, teardown),
        cmocka_unit_test_setup_teardown(odd_buffer_types, setup, teardown),
    };
    return cmocka_run_group_tests_name("backend_bare", tests, NULL, NULL);
}
