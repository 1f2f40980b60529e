// SPDX-License-Identifier: MIT
// forms.c: a program that does not define its date. Some functions have different parameters at different dates. If the types of
// the arguments are sufficient to choose, each form compiles and works as at its date. Compiled as C and as C++.

#include "ggml/ggml.h"

#include "ggml/ggml-alloc.h"
#include "ggml/ggml-backend.h"

#include "program.h"

static void prepare(ggml_backend_sched_t sched, ggml_backend_t backend, struct model *m) {
    ggml_tallocr_t talloc = ggml_backend_sched_get_tallocr(sched, backend);
    ggml_tallocr_alloc(talloc, m->x);
    ggml_tallocr_alloc(talloc, m->b);
}

static void run_scheduled(ggml_backend_sched_t sched, ggml_backend_t backend) {
    struct model m = model_build();
    CHECK(sched != NULL);
    prepare(sched, backend, &m);
    ggml_backend_sched_init_measure(sched, m.graph);
    ggml_free(m.ctx);
    ggml_backend_sched_reset(sched);
    m = model_build();
    prepare(sched, backend, &m);
    model_set(&m);
    ggml_backend_sched_graph_compute(sched, m.graph);
    CHECK(ggml_backend_sched_get_n_splits(sched) == 1 && ggml_backend_sched_get_node_backend(sched, m.y) == backend);
    model_check(&m);
    ggml_free(m.ctx);
    ggml_backend_sched_free(sched);
}

int main(void) {
    ggml_backend_t backend = ggml_backend_cpu_init();
    ggml_log_set(log_drop, NULL);
    run_scheduled(ggml_backend_sched_new(&backend, 1), backend);
    run_scheduled(ggml_backend_sched_new(&backend, NULL, 1, GGML_DEFAULT_GRAPH_SIZE), backend);

    struct ggml_init_params params = {64 * 1024, NULL, true};
    struct ggml_context *ctx = ggml_init(params);
    struct ggml_tensor *t = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 4);
    ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors(ctx, backend);
    const float four[4] = {1, 2, 3, 4};
    float got[4];
    ggml_backend_tensor_set_async(t, four, 0, sizeof four);
    ggml_backend_tensor_get_async(backend, t, got, 0, sizeof got);
    CHECK(memcmp(got, four, sizeof got) == 0);
    ggml_backend_tensor_set_async(backend, t, four + 1, 0, sizeof(float));
    ggml_backend_tensor_get_async(t, got, 0, sizeof(float));
    CHECK(got[0] == 2.0f);
    CHECK(ggml_backend_buffer_is_host(buffer) && ggml_backend_buft_is_host(ggml_backend_buffer_get_type(buffer)));
    CHECK(strcmp(ggml_backend_buffer_name(buffer), "CPU") == 0);
    ggml_backend_buffer_set_usage(buffer, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    ggml_backend_buffer_clear(buffer, 0);
    ggml_backend_tensor_get(t, got, 0, sizeof got);
    CHECK(got[3] == 0.0f);
    float memory[16];
    ggml_backend_buffer_t one = ggml_backend_cpu_buffer_from_ptr(memory, sizeof memory);
    ggml_backend_buffer_t two = ggml_backend_cpu_buffer_from_ptr(backend, memory, sizeof memory);
    CHECK(ggml_backend_buffer_get_base(one) == (void *) memory && ggml_backend_buffer_get_base(two) == (void *) memory);
    ggml_backend_buffer_free(one);
    ggml_backend_buffer_free(two);
    ggml_backend_buffer_free(buffer);
    ggml_free(ctx);
    ggml_backend_free(backend);
    return 0;
}
