// SPDX-License-Identifier: MIT
// gen1.c: tests ggml_allocr_*, the first generation of allocators. The memory comes from the program, from a buffer or from a
// backend.

#include "program.h"

enum { ALIGN = 32 };

static size_t place(ggml_allocr_t alloc, const struct model *m) {
    ggml_allocr_alloc(alloc, m->x);
    ggml_allocr_alloc(alloc, m->b);
    return ggml_allocr_alloc_graph(alloc, m->graph);
}

static size_t measure(ggml_allocr_t alloc) {
    struct model m = model_build();
    const size_t size = place(alloc, &m);
    CHECK(ggml_allocr_is_measure(alloc));
    CHECK(size == ggml_allocr_max_size(alloc));
    CHECK(size < 8 * N * sizeof(float)); // memory of dead tensors is reused
    CHECK(m.y->data != NULL);
    ggml_allocr_free(alloc);
    ggml_free(m.ctx);
    return size;
}

static void tokens(ggml_backend_t backend, ggml_allocr_t alloc, size_t size) {
    CHECK(alloc != NULL && !ggml_allocr_is_measure(alloc) && ggml_allocr_get_buffer(alloc) != NULL);
    for (int t = 0; t < 3; t++) {
        ggml_allocr_reset(alloc);
        struct model m = model_build();
        CHECK(place(alloc, &m) <= size);
        model_set(&m);
        ggml_backend_graph_compute(backend, m.graph);
        model_check(&m);
        ggml_free(m.ctx);
    }
    ggml_allocr_free(alloc);
}

// The measured size suffices for every misalignment. With less memory, the allocator reports an error.
static void memory(ggml_backend_t backend) {
    const size_t size = measure(ggml_allocr_new_measure(ALIGN));
    char *block = malloc(size + ALIGN);
    for (int off = 0; off < ALIGN; off++) {
        tokens(backend, ggml_allocr_new(block + off, size, ALIGN), size);
    }
    ggml_allocr_t small = ggml_allocr_new(block, size - 3 * ALIGN, ALIGN);
    struct model m = model_build();
    const size_t wanted = place(small, &m);
    CHECK(wanted > size - 3 * ALIGN && wanted <= size);
    CHECK(m.y->data == NULL && m.x->data != NULL);
    CHECK(strstr(berth_last_error(), "needs") != NULL);
    CHECK(berth_2023_graph_compute_status(backend, m.graph) == GGML_STATUS_FAILED);
    ggml_backend_graph_compute(backend, m.graph); // reports the error and continues
    ggml_allocr_free(small);
    ggml_free(m.ctx);
    free(block);
}

static int count_at(void *const *addrs, int n, const void *p) {
    int k = 0;
    for (int i = 0; i < n; i++) {
        k += addrs[i] == p;
    }
    return k;
}

// Memory that is freed between two barriers of the parse order must not be reused before the second barrier.
static void parse_order(void) {
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = 256 * 1024, .no_alloc = true});
    struct ggml_cgraph *graph = ggml_new_graph(ctx);
    struct ggml_tensor *x = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, N), *t = x;
    void *addrs[8];
    struct ggml_tensor *c[8];
    for (int i = 0; i < 8; i++) {
        c[i] = t = ggml_cont(ctx, t);
    }
    ggml_build_forward_expand(graph, t);
    ggml_allocr_t alloc = ggml_allocr_new_measure(ALIGN);
    const size_t no_order = ggml_allocr_alloc_graph(alloc, graph);
    ggml_allocr_free(alloc);

    ggml_free(ctx);
    ctx = ggml_init((struct ggml_init_params){.mem_size = 256 * 1024, .no_alloc = true});
    graph = ggml_new_graph(ctx);
    t = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, N);
    for (int i = 0; i < 8; i++) {
        c[i] = t = ggml_cont(ctx, t);
    }
    ggml_build_forward_expand(graph, t);
    const int order[] = {0, 1, 2, 3, -1, 4, 5, 6, 7, -1};
    alloc = ggml_allocr_new_measure(ALIGN);
    ggml_allocr_set_parse_seq(alloc, order, 10);
    const size_t ordered = ggml_allocr_alloc_graph(alloc, graph);
    for (int i = 0; i < 8; i++) {
        addrs[i] = c[i]->data;
    }
    for (int i = 0; i < 4; i++) { // four nodes share no memory, before and after the barrier
        CHECK(count_at(addrs, 4, addrs[i]) == 1 && count_at(addrs + 4, 4, addrs[4 + i]) == 1);
    }
    CHECK(ordered > no_order);
    ggml_allocr_free(alloc);
    ggml_free(ctx);
}

int main(void) {
    ggml_backend_t backend = backend_open(1);
    CHECK(ggml_backend_is_cpu(backend));
    memory(backend);

    const size_t size = measure(ggml_allocr_new_measure_from_backend(backend));
    tokens(backend, ggml_allocr_new_from_backend(backend, size), size);

    ggml_backend_buffer_t buffer = ggml_backend_alloc_buffer(backend, size);
    CHECK(ggml_backend_buffer_get_size(buffer) == size && ggml_backend_buffer_get_base(buffer) != NULL);
    tokens(backend, ggml_allocr_new_from_buffer(buffer), size); // the allocator does not free the buffer
    tokens(backend, ggml_allocr_new_from_buffer(buffer), size);
    ggml_backend_buffer_free(buffer);
    parse_order();

    ggml_allocr_free(NULL);
    CHECK(ggml_allocr_new(NULL, 0, ALIGN) == NULL);
    ggml_backend_free(backend);
    return 0;
}
