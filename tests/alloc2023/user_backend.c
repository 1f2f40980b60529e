// SPDX-License-Identifier: MIT
// user_backend.c: a backend as a program of 2023 defines it (toy), with its own memory and padding. The test checks that its
// init_tensor and free_tensor are called once per tensor, in the right order, and not while measuring.

#include "program.h"

#include "ggml-backend-impl.h"

enum { PAD = 96 };

struct counts {
    int n_init, n_free, n_alive, n_max_alive, n_set, n_get, n_buffers;
    int n_extra; // tensors with a tensor->extra that the backend has allocated and not freed
    const struct ggml_tensor *alive[256];
};

static void toy_buffer_free(ggml_backend_buffer_t buffer) {
    ((struct counts *) buffer->backend->context)->n_buffers--;
    free(buffer->context);
}

static void *toy_base(ggml_backend_buffer_t buffer) {
    return buffer->context;
}

static size_t toy_alloc_size(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor) {
    (void) buffer;
    return ggml_nbytes(tensor) + PAD;
}

static void toy_init_tensor(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor) {
    struct counts *c = buffer->backend->context;
    CHECK(tensor->data != NULL && tensor->buffer == buffer);
    c->n_init++;
    for (int i = 0; i < c->n_alive; i++) {
        CHECK(c->alive[i] != tensor);
    }
    c->alive[c->n_alive++] = tensor;
    c->n_max_alive = c->n_alive > c->n_max_alive ? c->n_alive : c->n_max_alive;
    if (tensor->view_src != NULL) {
        tensor->extra = tensor->view_src->extra;
    } else {
        tensor->extra = malloc(8);
        c->n_extra++;
    }
}

static void toy_free_tensor(ggml_backend_buffer_t buffer, struct ggml_tensor *tensor) {
    struct counts *c = buffer->backend->context;
    int i = 0;
    while (i < c->n_alive && c->alive[i] != tensor) {
        i++;
    }
    CHECK(i < c->n_alive); // init_tensor was called before free_tensor
    c->alive[i] = c->alive[--c->n_alive];
    c->n_free++;
    CHECK(tensor->view_src == NULL && tensor->extra != NULL);
    free(tensor->extra);
    tensor->extra = NULL;
    c->n_extra--;
}

static const char *toy_name(ggml_backend_t backend) {
    (void) backend;
    return "toy";
}

static void toy_free(ggml_backend_t backend) {
    free(backend);
}

static ggml_backend_buffer_t toy_alloc_buffer(ggml_backend_t backend, size_t size) {
    static const struct ggml_backend_buffer_i iface = {
        toy_buffer_free, toy_base, toy_alloc_size, toy_init_tensor, toy_free_tensor};
    ((struct counts *) backend->context)->n_buffers++;
    return ggml_backend_buffer_init(backend, iface, aligned_alloc(64, (size + 63) / 64 * 64), size);
}

static size_t toy_alignment(ggml_backend_t backend) {
    (void) backend;
    return 64;
}

static void toy_set(ggml_backend_t backend, struct ggml_tensor *tensor, const void *data, size_t offset, size_t size) {
    ((struct counts *) backend->context)->n_set++;
    memcpy((char *) tensor->data + offset, data, size);
}

static void toy_get(ggml_backend_t backend, const struct ggml_tensor *tensor, void *data, size_t offset, size_t size) {
    ((struct counts *) backend->context)->n_get++;
    memcpy(data, (const char *) tensor->data + offset, size);
}

static void toy_synchronize(ggml_backend_t backend) {
    (void) backend;
}

// Computes the ops of the model: add, relu, cont, scale. Views need no computation.
static void toy_compute(ggml_backend_t backend, struct ggml_cgraph *graph) {
    (void) backend;
    for (int i = 0; i < ggml_graph_n_nodes(graph); i++) {
        struct ggml_tensor *t = ggml_graph_node(graph, i);
        const float *a = t->src[0]->data, *b = t->src[1] != NULL ? t->src[1]->data : NULL;
        for (int64_t k = 0; k < ggml_nelements(t); k++) {
            float *y = (float *) t->data + k;
            switch (t->op) {
                case GGML_OP_ADD: *y = a[k] + b[k]; break;
                case GGML_OP_UNARY: *y = a[k] > 0 ? a[k] : 0; break;
                case GGML_OP_CONT: *y = a[k]; break;
                case GGML_OP_SCALE: *y = a[k] * 0.5f; break;
                default: break;
            }
        }
    }
}

static bool toy_supports(ggml_backend_t backend, const struct ggml_tensor *op) {
    (void) backend;
    return op->op == GGML_OP_ADD;
}

static ggml_backend_t toy_new(struct counts *counts) {
    static const struct ggml_backend_i iface = {toy_name, toy_free, toy_alloc_buffer, toy_alignment, toy_set, toy_get,
        toy_synchronize, NULL, NULL, NULL, NULL, NULL, toy_compute, toy_supports};
    ggml_backend_t backend = malloc(sizeof(struct ggml_backend));

    *backend = (struct ggml_backend){iface, counts};
    return backend;
}

int main(void) {
    struct counts counts = {0};
    ggml_backend_t backend = toy_new(&counts);
    ggml_log_set(log_drop, NULL);
    CHECK(strcmp(ggml_backend_name(backend), "toy") == 0 && !ggml_backend_is_cpu(backend));
    CHECK(ggml_backend_get_alignment(backend) == 64);

    ggml_allocr_t alloc = ggml_allocr_new_measure_from_backend(backend);
    struct model m = model_build();
    ggml_allocr_alloc(alloc, m.x);
    ggml_allocr_alloc(alloc, m.b);
    const size_t size = ggml_allocr_alloc_graph(alloc, m.graph);
    CHECK(counts.n_init == 0 && counts.n_free == 0);
    CHECK(size % 64 == 0 && size >= 3 * (N * sizeof(float) + PAD));
    ggml_allocr_free(alloc);
    ggml_free(m.ctx);

    alloc = ggml_allocr_new_from_backend(backend, size);
    CHECK(ggml_allocr_get_buffer(alloc)->backend == backend && ggml_allocr_get_buffer(alloc)->size == size);
    m = model_build();
    ggml_allocr_alloc(alloc, m.x);
    ggml_allocr_alloc(alloc, m.b);
    CHECK(ggml_allocr_alloc_graph(alloc, m.graph) == size);
    CHECK(counts.n_init == 2 + ggml_graph_n_nodes(m.graph)); // includes views, each once
    CHECK(counts.n_free > 0 && counts.n_free < counts.n_init);
    CHECK(counts.n_extra == 1 && m.y->extra != NULL); // free_tensor was called for all tensors except the result
    model_set(&m);
    ggml_backend_graph_compute(backend, m.graph);
    model_check(&m);
    CHECK(counts.n_set == 2 && counts.n_get == 1);
    for (int i = 0; i < ggml_graph_n_nodes(m.graph); i++) {
        CHECK(ggml_get_backend(ggml_graph_node(m.graph, i)) == backend);
    }

    // Allocates the graph a second time, with one more node. Berth must not call free_tensor a second time for a tensor.
    struct ggml_tensor *added = ggml_cont(m.ctx, m.y);
    ggml_build_forward_expand(m.graph, added);
    ggml_allocr_alloc_graph(alloc, m.graph);
    CHECK(counts.n_extra == 1 && added->extra != NULL && m.y->extra == NULL);
    free(added->extra);
    ggml_free(m.ctx);

    // Copies between the two backends.
    ggml_backend_t cpu = ggml_backend_cpu_init();
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = 64 * 1024, .no_alloc = true});
    struct ggml_tensor *on_cpu_tensor = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 4),
                       *on_toy_tensor = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 4);
    ggml_allocr_t on_cpu = ggml_allocr_new_from_backend(cpu, 64);
    const float four[] = {1, 2, 3, 4};
    float got[4];
    ggml_allocr_reset(alloc);
    counts.n_alive = 0;
    ggml_allocr_alloc(on_cpu, on_cpu_tensor);
    ggml_allocr_alloc(alloc, on_toy_tensor);
    ggml_backend_tensor_set(on_cpu_tensor, four, 0, sizeof four);
    ggml_backend_tensor_copy(on_cpu_tensor, on_toy_tensor);
    ggml_backend_tensor_get(on_toy_tensor, got, 0, sizeof got);
    CHECK(memcmp(four, got, sizeof got) == 0);
    free(on_toy_tensor->extra);
    ggml_allocr_free(on_cpu);
    ggml_allocr_free(alloc);
    CHECK(counts.n_buffers == 0);
    ggml_free(ctx);
    ggml_backend_free(cpu);
    ggml_backend_free(backend);
    return 0;
}
