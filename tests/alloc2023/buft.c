// SPDX-License-Identifier: MIT
// buft.c: buffer types and the registry of December 2023 and February 2024, with a backend that the program defines (guest.h).
// Compiled as C and as C++. BERTH_2023 is the month of the ggml API: 202312 or 202402.

#include "guest.h"
#include "program.h"

static struct ggml_context *context_new(void) {
    struct ggml_init_params params = {512 * 1024, NULL, true};
    return ggml_init(params);
}

// ---- the registry ----

static char registry_params[32];

static ggml_backend_t registry_init(const char *params, void *user_data) {
    snprintf(registry_params, sizeof registry_params, "%s", params);
    return (ggml_backend_t) user_data;
}

static void registry(ggml_backend_t backend) {
    CHECK(ggml_backend_reg_get_count() == 1 && strcmp(ggml_backend_reg_get_name(0), "CPU") == 0);
    CHECK(ggml_backend_reg_get_default_buffer_type(0) == ggml_backend_cpu_buffer_type());
    ggml_backend_register("Guest", registry_init, guest_buffer_type(), backend);
    ggml_backend_register("guest", registry_init, guest_buffer_type(), NULL); // the name is in use
    ggml_backend_register(NULL, registry_init, guest_buffer_type(), NULL);
    CHECK(ggml_backend_reg_get_count() == 2 && strcmp(ggml_backend_reg_get_name(1), "Guest") == 0);
    CHECK(ggml_backend_reg_find_by_name("cpu") == 0 && ggml_backend_reg_find_by_name("GUEST") == 1);
    CHECK(ggml_backend_reg_find_by_name("Gues") == SIZE_MAX && ggml_backend_reg_find_by_name(NULL) == SIZE_MAX);
    CHECK(ggml_backend_reg_get_default_buffer_type(1) == guest_buffer_type());
    CHECK(ggml_backend_reg_init_backend_from_str("guest:one:two") == backend && strcmp(registry_params, "one:two") == 0);
    CHECK(ggml_backend_reg_init_backend_from_str("guest") == backend && strcmp(registry_params, "") == 0);
    CHECK(ggml_backend_reg_init_backend(1, "x") == backend && strcmp(registry_params, "x") == 0);
    CHECK(ggml_backend_reg_init_backend_from_str("CUDA9:1") == NULL && strstr(berth_last_error(), "CUDA9") != NULL);
    CHECK(ggml_backend_reg_init_backend(2, "") == NULL && ggml_backend_reg_get_name(7) == NULL);
    CHECK(ggml_backend_reg_init_backend_from_str(NULL) == NULL && ggml_backend_reg_get_default_buffer_type(9) == NULL);
    ggml_backend_buffer_t buffer = ggml_backend_reg_alloc_buffer(1, 100);
    CHECK(buffer != NULL && buffer->size == 100 && guest.n_buffers == 1);
    ggml_backend_buffer_free(buffer);
    berth_alloc_fail_at(1);
    ggml_backend_register("Other", registry_init, guest_buffer_type(), backend);
    berth_alloc_fail_at(0);
    CHECK(ggml_backend_reg_get_count() == 2 && strstr(berth_last_error(), "out of memory for Other") != NULL);
    ggml_backend_t cpu = ggml_backend_reg_init_backend_from_str("CPU");
    CHECK(cpu != NULL && ggml_backend_is_cpu(cpu));
    ggml_backend_free(cpu);
}

// ---- types ----

static void types(ggml_backend_t backend, ggml_backend_t cpu) {
    ggml_backend_buffer_type_t buft = ggml_backend_get_default_buffer_type(backend), host = ggml_backend_cpu_buffer_type();
    CHECK(buft == guest_buffer_type() && ggml_backend_get_default_buffer_type(cpu) == host);
    CHECK(ggml_backend_buft_get_alignment(buft) == 128 && ggml_backend_get_alignment(backend) == 128);
    CHECK(ggml_backend_get_alignment(cpu) == (BERTH_2023 < 202402 ? 64 : 32));
    CHECK(ggml_backend_buft_supports_backend(buft, backend) && !ggml_backend_buft_supports_backend(buft, cpu));
    CHECK(ggml_backend_buft_supports_backend(host, cpu) && !ggml_backend_buft_supports_backend(host, backend));
    struct ggml_context *ctx = context_new();
    struct ggml_tensor *a = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, N), *b = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, N);
    CHECK(ggml_backend_buft_get_alloc_size(buft, a) == N * sizeof(float) + guest.pad);
    CHECK(ggml_backend_buft_get_alloc_size(host, a) == N * sizeof(float));
    ggml_backend_buffer_t buffer = ggml_backend_buft_alloc_buffer(buft, 4096);
    CHECK(ggml_backend_buffer_get_size(buffer) == 4096 && ggml_backend_buffer_get_alignment(buffer) == 128);
    CHECK(ggml_backend_buffer_get_alloc_size(buffer, a) == N * sizeof(float) + guest.pad);
#if BERTH_2023 >= 202402
    CHECK(ggml_backend_buffer_get_type(buffer) == buft);
    CHECK(strcmp(ggml_backend_buft_name(buft), "guest's type") == 0 && strcmp(ggml_backend_buft_name(host), "CPU") == 0);
    CHECK(strcmp(ggml_backend_buffer_name(buffer), "guest's") == 0);
    CHECK(ggml_backend_buft_is_host(host) && !ggml_backend_buft_is_host(buft) && !ggml_backend_buffer_is_host(buffer));
    CHECK(ggml_backend_buft_get_max_size(host) == SIZE_MAX && ggml_backend_get_max_size(cpu) == SIZE_MAX);
    CHECK(ggml_backend_buffer_get_max_size(buffer) == guest.max_size);
    ggml_backend_buffer_set_usage(buffer, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    CHECK(buffer->usage == GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    ggml_backend_buffer_reset(buffer);
    CHECK(ggml_backend_cpu_hbm_buffer_type() != NULL);
#else
    CHECK(ggml_backend_buffer_type(buffer) == buft);
#endif
    // Places tensors explicitly.
    char *base = (char *) ggml_backend_buffer_get_base(buffer);
    float values[N], got[N];
    for (int i = 0; i < N; i++) {
        values[i] = (float) i;
    }
    ggml_backend_tensor_alloc(buffer, a, base);
    ggml_backend_tensor_alloc(buffer, b, base + 4096); // does not fit
    CHECK(a->data == base && a->buffer == buffer && b->data == NULL);
    ggml_backend_tensor_alloc(buffer, b, base + 1024);
    struct ggml_tensor *v = ggml_view_1d(ctx, a, 2, 8);
    v->buffer = NULL;
    v->data = NULL;
    ggml_backend_view_init(buffer, v);
    CHECK(v->buffer == buffer && v->data == base + 8);
    ggml_backend_tensor_set_async(backend, a, values, 0, sizeof values);
    ggml_backend_tensor_get_async(backend, v, got, 0, 8);
    CHECK(got[0] == 2.0f && got[1] == 3.0f);
#if BERTH_2023 >= 202402
    ggml_backend_buffer_clear(buffer, 0);
    ggml_backend_tensor_get(a, got, 0, sizeof got);
    CHECK(got[5] == 0.0f);
    ggml_backend_tensor_set(a, values, 0, sizeof values);
#endif

    // Copies: checks which function is called.
    char memory[2 * N * sizeof(float) + 64];
    char *aligned = memory + (64 - (uintptr_t) memory % 64);
    struct ggml_tensor *h = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, N);
    ggml_backend_buffer_t over = ggml_backend_cpu_buffer_from_ptr(aligned, N * sizeof(float));
    ggml_backend_tensor_alloc(over, h, aligned);
    CHECK(h->data == aligned && ggml_backend_buffer_get_base(over) == aligned && over->context == aligned);
    guest.n_copied = guest.n_set = guest.n_get = 0;
    ggml_backend_tensor_copy(a, h);
    CHECK(memcmp(aligned, values, sizeof values) == 0);
    CHECK(BERTH_2023 < 202402 ? guest.n_copied == 1 : guest.n_get == 1);
    ggml_backend_tensor_copy(h, b);
    CHECK(BERTH_2023 < 202402 ? guest.n_copied == 2 && guest.n_set == 0 : guest.n_set == 1);
    ggml_backend_tensor_get(b, got, 0, sizeof got);
    CHECK(memcmp(got, values, sizeof values) == 0);
    guest.n_copied = 0;
    ggml_backend_tensor_copy(a, b);
    ggml_backend_tensor_copy_async(backend, b, a);
    CHECK(guest.n_copied == 2);
    ggml_backend_buffer_free(over);
    ggml_backend_buffer_free(buffer);
    ggml_free(ctx);
}

// ---- allocators ----

static void allocators(ggml_backend_t backend) {
    ggml_gallocr_t galloc = ggml_gallocr_new();
    struct model m = model_build();
    ggml_tallocr_t talloc = ggml_tallocr_new_measure_from_buft(guest_buffer_type());
    const int n_before = guest.n_buffers;
    ggml_tallocr_alloc(talloc, m.x);
    ggml_tallocr_alloc(talloc, m.b);
    const size_t size = ggml_gallocr_alloc_graph(galloc, talloc, m.graph);
    CHECK(size % 128 == 0 && size >= 3 * (N * sizeof(float) + guest.pad) && guest.n_buffers == n_before);
    ggml_tallocr_free(talloc);
    ggml_free(m.ctx);
    talloc = ggml_tallocr_new_from_buft(guest_buffer_type(), size);
    m = model_build();
    ggml_tallocr_alloc(talloc, m.x);
    ggml_tallocr_alloc(talloc, m.b);
    CHECK(ggml_gallocr_alloc_graph(galloc, talloc, m.graph) == size);
    model_set(&m);
    ggml_backend_graph_plan_t plan = ggml_backend_graph_plan_create(backend, m.graph);
    ggml_backend_graph_plan_compute(backend, plan);
    ggml_backend_graph_plan_free(backend, plan);
    CHECK(guest.n_plans == 0);
    model_check(&m);
    ggml_free(m.ctx);
    ggml_tallocr_free(talloc);
    ggml_gallocr_free(galloc);
    CHECK(guest.n_buffers == n_before);
}

#if BERTH_2023 >= 202402
static const char *pinned_name(ggml_backend_buffer_t buffer) {
    (void) buffer;
    return "pinned";
}

static int n_unpinned;

static void pinned_free(ggml_backend_buffer_t buffer) {
    free(buffer->context);
    n_unpinned++;
}

// Tensors that exceed the largest buffer of the type, and a CPU buffer whose functions the program replaces.
static void test_multi_buffers(ggml_backend_t backend) {
    struct ggml_context *ctx = context_new();
    struct ggml_tensor *t[6];
    for (int i = 0; i < 6; i++) {
        t[i] = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, N);
    }
    guest.max_size = 2 * (N * sizeof(float) + 128);
    ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors_from_buft(ctx, guest_buffer_type());
    CHECK(buffer != NULL && ggml_backend_buffer_is_multi_buffer(buffer) && guest.n_buffers == 3);
    CHECK(t[0]->buffer != t[5]->buffer && t[0]->buffer != buffer && buffer->size >= 6 * N * sizeof(float));
    float values[N];
    ggml_backend_buffer_clear(buffer, 0);
    ggml_backend_tensor_get(t[5], values, 0, sizeof values);
    CHECK(values[N - 1] == 0.0f && ggml_backend_buffer_name(buffer) != NULL && ggml_backend_buffer_get_base(buffer) == NULL);
    ggml_backend_buffer_set_usage(buffer, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    ggml_backend_multi_buffer_set_usage(buffer, GGML_BACKEND_BUFFER_USAGE_ANY);
    ggml_backend_buffer_free(buffer);
    CHECK(guest.n_buffers == 0);
    ggml_free(ctx);
    guest.max_size = SIZE_MAX;

    ggml_backend_buffer_t two[2] = {ggml_backend_alloc_buffer(backend, 10), ggml_backend_alloc_buffer(backend, 20)};
    buffer = ggml_backend_multi_buffer_alloc_buffer(two, 2);
    CHECK(buffer != NULL && ggml_backend_buffer_get_size(buffer) == 30 && !ggml_backend_buffer_is_multi_buffer(two[0]));
    ggml_backend_buffer_free(buffer);
    CHECK(guest.n_buffers == 0);

    void *memory = aligned_alloc(64, 4096);
    buffer = ggml_backend_cpu_buffer_from_ptr(memory, 4096);
    buffer->iface.get_name = pinned_name;
    buffer->iface.free_buffer = pinned_free;
    buffer->buft = guest_buffer_type();
    CHECK(strcmp(ggml_backend_buffer_name(buffer), "pinned") == 0 && ggml_backend_buffer_get_base(buffer) == memory);
    ggml_backend_buffer_free(buffer);
    CHECK(n_unpinned == 1);
}

static bool stop(void *data) {
    ++*(int *) data;
    return true;
}

static void test_abort_callback(ggml_backend_t cpu) {
    struct model m = model_build();
    ggml_tallocr_t talloc = ggml_tallocr_new_from_backend(cpu, 1 << 16);
    ggml_gallocr_t galloc = ggml_gallocr_new();
    int n_asked = 0;
    ggml_tallocr_alloc(talloc, m.x);
    ggml_tallocr_alloc(talloc, m.b);
    ggml_gallocr_alloc_graph(galloc, talloc, m.graph);
    model_set(&m);
    ggml_backend_cpu_set_abort_callback(cpu, stop, &n_asked);
    CHECK(!ggml_backend_graph_compute(cpu, m.graph) && n_asked > 0);
    ggml_backend_cpu_set_abort_callback(cpu, NULL, NULL);
    model_set(&m);
    CHECK(ggml_backend_graph_compute(cpu, m.graph));
    model_check(&m);
    ggml_free(m.ctx);
    ggml_gallocr_free(galloc);
    ggml_tallocr_free(talloc);
}
#endif

// ---- a graph on another backend ----

struct seen {
    int n, stop_at, n_wrong;
};

static bool compare_nodes(int i, struct ggml_tensor *t1, struct ggml_tensor *t2, void *user_data) {
    struct seen *seen = (struct seen *) user_data;
    float one[N], two[N];
    (void) i;
    ggml_backend_tensor_get(t1, one, 0, ggml_nbytes(t1));
    ggml_backend_tensor_get(t2, two, 0, ggml_nbytes(t2));
    if (!guest_owns(t2) || memcmp(one, two, ggml_nbytes(t1)) != 0) {
        seen->n_wrong++;
    }
    return ++seen->n != seen->stop_at;
}

static bool graph_copy_works(ggml_backend_t backend, ggml_backend_t cpu, struct seen *seen) {
    struct model m = model_build();
    ggml_tallocr_t talloc = ggml_tallocr_new_from_backend(cpu, 1 << 16);
    ggml_gallocr_t galloc = ggml_gallocr_new();
    bool is_done = false;
    if (m.ctx != NULL && m.graph != NULL && talloc != NULL && galloc != NULL) {
        ggml_tallocr_alloc(talloc, m.x);
        ggml_tallocr_alloc(talloc, m.b);
        ggml_gallocr_alloc_graph(galloc, talloc, m.graph);
        model_set(&m);
        struct ggml_backend_graph_copy copy = ggml_backend_graph_copy(backend, m.graph);
        if (copy.graph != NULL) {
            CHECK(guest_owns(copy.graph->nodes[0]) && copy.graph->n_nodes == m.graph->n_nodes);
            ggml_backend_graph_compute(backend, copy.graph);
            struct model two = m;
            two.y = copy.graph->nodes[copy.graph->n_nodes - 1];
            model_check(&two);
            is_done = true;
        }
        ggml_backend_graph_copy_free(copy);
        ggml_backend_compare_graph_backend(cpu, backend, m.graph, compare_nodes, seen);
    }
    ggml_gallocr_free(galloc);
    ggml_tallocr_free(talloc);
    ggml_free(m.ctx);
    return is_done;
}

// Makes each allocation fail in turn. Nothing may leak.
static void every_allocation_may_fail(void) {
    bool was_hit = true;
    for (int64_t n = 1; was_hit; n++) {
        berth_alloc_watch(true);
        const int64_t before = berth_alloc_made();
        ggml_backend_t backend = guest_init();
        struct seen seen = {0, 0, 0};
        berth_alloc_fail_at(n);
        ggml_backend_t cpu = ggml_backend_cpu_init();
        bool is_done = false;
        if (cpu != NULL) {
            ggml_backend_cpu_set_n_threads(cpu, 1);
            is_done = graph_copy_works(backend, cpu, &seen);
        }
        struct ggml_context *ctx = context_new();
        if (ctx != NULL) {
            ggml_new_tensor_1d(ctx, GGML_TYPE_F32, N);
            ggml_new_tensor_1d(ctx, GGML_TYPE_F32, N);
            guest.max_size = N * sizeof(float) + 128;
            ggml_backend_buffer_free(ggml_backend_alloc_ctx_tensors(ctx, backend));
            ggml_free(ctx);
        }
        was_hit = berth_alloc_made() - before >= n - 1;
        berth_alloc_fail_at(0);
        CHECK(is_done || was_hit);
        CHECK(seen.n_wrong == 0);
        ggml_backend_free(cpu);
        if (berth_alloc_alive() != 0 || guest.n_buffers != 0) {
            printf("allocation %lld fails: %lld allocations and %d buffers leaked\n", (long long) n,
                (long long) berth_alloc_alive(), guest.n_buffers);
            exit(1);
        }
        berth_alloc_watch(false);
        CHECK(was_hit || n > 30);
    }
}

int main(void) {
    ggml_log_set(log_drop, NULL);
    ggml_backend_t backend = guest_init(), cpu = ggml_backend_cpu_init();
    struct seen seen = {0, 0, 0}, few = {0, 3, 0};
    ggml_backend_cpu_set_n_threads(cpu, 1);
    registry(backend);
    types(backend, cpu);
    allocators(backend);
#if BERTH_2023 >= 202402
    test_multi_buffers(backend);
    test_abort_callback(cpu);
#endif
    CHECK(graph_copy_works(backend, cpu, &seen) && seen.n == 4 * N_LAYERS + N_LAYERS && seen.n_wrong == 0);
    CHECK(graph_copy_works(backend, cpu, &few) && few.n == 3 && few.n_wrong == 0);
    CHECK(guest.n_buffers == 0);
    ggml_backend_free(cpu);
    ggml_backend_free(backend);
    every_allocation_may_fail();
    return 0;
}
