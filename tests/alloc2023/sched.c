// SPDX-License-Identifier: MIT
// sched.c: tests the scheduler of the 2023 API with the CPU and a backend that the program defines (toy). Outside its own calls
// the toy's memory is inaccessible, so a missing copy causes a crash.

#include "program.h"

#include "ggml-backend-impl.h"

#include <sys/mman.h>

enum { MAX_BUFFERS = 8 };

// ---- the backend ----

struct pages {
    char *base;
    size_t size;
};

struct toy {
    struct pages *buffers[MAX_BUFFERS];
    int n_buffers, n_computed;
    bool is_full; // allocation fails
};

static void toy_set_access(ggml_backend_t backend, bool is_accessible) {
    struct toy *toy = backend->context;
    for (int i = 0; i < toy->n_buffers; i++) {
        CHECK(mprotect(toy->buffers[i]->base, toy->buffers[i]->size, is_accessible ? PROT_READ | PROT_WRITE : PROT_NONE) == 0);
    }
}

static void toy_buffer_free(ggml_backend_buffer_t buffer) {
    struct toy *toy = buffer->backend->context;
    struct pages *pages = buffer->context;
    int i = 0;
    while (toy->buffers[i] != pages) {
        i++;
    }
    toy->buffers[i] = toy->buffers[--toy->n_buffers];
    munmap(pages->base, pages->size);
    free(pages);
}

static void *toy_base(ggml_backend_buffer_t buffer) {
    return ((struct pages *) buffer->context)->base;
}

static const char *toy_name(ggml_backend_t backend) {
    (void) backend;
    return "toy";
}

static void toy_free(ggml_backend_t backend) {
    free(backend);
}

static ggml_backend_buffer_t toy_alloc_buffer(ggml_backend_t backend, size_t size) {
    static const struct ggml_backend_buffer_i iface = {toy_buffer_free, toy_base, NULL, NULL, NULL};
    struct toy *toy = backend->context;
    if (toy->is_full) {
        return NULL;
    }
    struct pages *pages = malloc(sizeof *pages);
    pages->size = (size + 65535) / 65536 * 65536;
    pages->base = mmap(NULL, pages->size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(pages->base != MAP_FAILED && toy->n_buffers < MAX_BUFFERS);
    ggml_backend_buffer_t buffer = ggml_backend_buffer_init(backend, iface, pages, size);
    if (buffer == NULL) {
        munmap(pages->base, pages->size);
        free(pages);
        return NULL;
    }
    toy->buffers[toy->n_buffers++] = pages;
    return buffer;
}

static size_t toy_alignment(ggml_backend_t backend) {
    (void) backend;
    return 64;
}

static void toy_set(ggml_backend_t backend, struct ggml_tensor *tensor, const void *data, size_t offset, size_t size) {
    toy_set_access(backend, true);
    memcpy((char *) tensor->data + offset, data, size);
    toy_set_access(backend, false);
}

static void toy_get(ggml_backend_t backend, const struct ggml_tensor *tensor, void *data, size_t offset, size_t size) {
    toy_set_access(backend, true);
    memcpy(data, (const char *) tensor->data + offset, size);
    toy_set_access(backend, false);
}

static void toy_synchronize(ggml_backend_t backend) {
    (void) backend;
}

static void toy_compute(ggml_backend_t backend, struct ggml_cgraph *graph) {
    toy_set_access(backend, true);
    for (int i = 0; i < ggml_graph_n_nodes(graph); i++) {
        struct ggml_tensor *t = ggml_graph_node(graph, i);
        for (int64_t k = 0; k < ggml_nelements(t); k++) {
            const float a = ((const float *) t->src[0]->data)[k];
            switch (t->op) {
                case GGML_OP_ADD: ((float *) t->data)[k] = a + ((const float *) t->src[1]->data)[k]; break;
                case GGML_OP_UNARY: ((float *) t->data)[k] = a > 0 ? a : 0; break;
                default: CHECK(t->view_src != NULL); break;
            }
        }
        ((struct toy *) backend->context)->n_computed++;
    }
    toy_set_access(backend, false);
}

static bool toy_supports(ggml_backend_t backend, const struct ggml_tensor *op) {
    (void) backend;
    return op->op == GGML_OP_ADD || op->op == GGML_OP_UNARY;
}

static ggml_backend_t toy_new(struct toy *toy) {
    static const struct ggml_backend_i iface = {toy_name, toy_free, toy_alloc_buffer, toy_alignment, toy_set, toy_get,
        toy_synchronize, NULL, NULL, NULL, NULL, NULL, toy_compute, toy_supports};
    ggml_backend_t backend = malloc(sizeof(struct ggml_backend));

    *backend = (struct ggml_backend){iface, toy};
    return backend;
}

// ---- programs ----

// x comes from the CPU's allocator. If has_weight, b decides the backend. Otherwise the program assigns the nodes.
static void prepare(ggml_backend_sched_t sched, ggml_backend_t *backends, struct model *m, bool has_weight) {
    ggml_tallocr_t talloc = ggml_backend_sched_get_tallocr(sched, backends[1]);
    ggml_tallocr_alloc(talloc, m->x);
    if (!has_weight) {
        ggml_tallocr_alloc(talloc, m->b);
    }
    for (int i = 0; i < ggml_graph_n_nodes(m->graph) && !has_weight; i++) {
        struct ggml_tensor *node = ggml_graph_node(m->graph, i);
        if (ggml_backend_supports_op(backends[0], node)) {
            ggml_backend_sched_set_node_backend(sched, node, backends[0]);
        }
    }
}

static struct model build(ggml_backend_sched_t sched, ggml_backend_t *backends, struct ggml_tensor *b) {
    struct model m = model_build_with(b);
    prepare(sched, backends, &m, b != NULL);
    return m;
}

static void computes(ggml_backend_t *backends, struct toy *toy, bool with_weight) {
    ggml_backend_sched_t sched = ggml_backend_sched_new(backends, 2);
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = 64 * 1024, .no_alloc = true});
    struct ggml_tensor *b = with_weight ? ggml_new_tensor_1d(ctx, GGML_TYPE_F32, N) : NULL;
    ggml_backend_buffer_t store = with_weight ? ggml_backend_alloc_ctx_tensors(ctx, backends[0]) : NULL;
    CHECK(sched != NULL && (store != NULL) == with_weight);
    CHECK(ggml_tallocr_is_measure(ggml_backend_sched_get_tallocr(sched, backends[0])));
    struct model m = build(sched, backends, b);
    CHECK(berth_2023_sched_graph_compute_status(sched, m.graph) == GGML_STATUS_FAILED); // not measured yet
    ggml_free(m.ctx);
    m = build(sched, backends, b);
    ggml_backend_sched_init_measure(sched, m.graph);
    CHECK(m.x->data == NULL && m.y->data == NULL);
    ggml_free(m.ctx);
    CHECK(!ggml_tallocr_is_measure(ggml_backend_sched_get_tallocr(sched, backends[0])));
    for (int t = 0; t < 4; t++) {
        m = build(sched, backends, b);
        toy->n_computed = 0;
        if (t == 2) { // the program assigns the last sum
            ggml_backend_sched_set_node_backend(sched, m.y, backends[1]);
        }
        model_set(&m);
        ggml_backend_sched_graph_compute(sched, m.graph);
        CHECK(m.x->buffer == ggml_backend_sched_get_buffer(sched, backends[1]));
        CHECK(ggml_get_backend(m.y) == backends[t == 2 ? 1 : 0]);
        CHECK(toy->n_computed >= 3 * N_LAYERS - 1);
        model_check(&m);
        if (t == 3) { // the same graph again, with its inputs placed anew
            m.x->buffer = NULL;
            m.x->data = NULL;
            m.b->buffer = b == NULL ? NULL : m.b->buffer;
            m.b->data = b == NULL ? NULL : m.b->data;
            prepare(sched, backends, &m, b != NULL);
            model_set(&m);
            CHECK(berth_2023_sched_graph_compute_status(sched, m.graph) == GGML_STATUS_SUCCESS);
            model_check(&m);
        }
        ggml_free(m.ctx);
    }
    ggml_backend_sched_free(sched);
    ggml_backend_buffer_free(store);
    ggml_free(ctx);
    CHECK(toy->n_buffers == 0);
}

// After a failed computation, y is NaN.
static void check_spoiled(const struct model *m) {
    float y[N];
    for (int i = 0; i < N; i++) {
        y[i] = 1.0f;
    }
    ggml_backend_tensor_get(m->y, y, 0, sizeof y);
    for (int i = 0; i < N; i++) {
        CHECK(y[i] != y[i]);
    }
}

static void assign_to_toy(ggml_backend_sched_t sched, ggml_backend_t *backends, struct model *m) {
    for (int i = 0; i < ggml_graph_n_nodes(m->graph); i++) {
        struct ggml_tensor *node = ggml_graph_node(m->graph, i);
        if (ggml_backend_supports_op(backends[0], node)) {
            ggml_backend_sched_set_node_backend(sched, node, backends[0]);
        }
    }
}

static struct model build_on_cpu(ggml_backend_sched_t sched, ggml_backend_t *backends) {
    struct model m = model_build();
    for (int i = 0; i < ggml_graph_n_nodes(m.graph); i++) {
        ggml_backend_sched_set_node_backend(sched, ggml_graph_node(m.graph, i), backends[1]);
    }
    ggml_tallocr_t talloc = ggml_backend_sched_get_tallocr(sched, backends[1]);
    ggml_tallocr_alloc(talloc, m.x);
    ggml_tallocr_alloc(talloc, m.b);
    return m;
}

// Measuring puts all nodes on the CPU. Nodes are then assigned to the toy, whose buffer must grow.
static void grows(ggml_backend_t *backends, struct toy *toy) {
    ggml_backend_sched_t sched = ggml_backend_sched_new(backends, 2);
    struct model m = build_on_cpu(sched, backends);
    ggml_backend_sched_init_measure(sched, m.graph);
    ggml_free(m.ctx);
    CHECK(ggml_backend_buffer_get_size(ggml_backend_sched_get_buffer(sched, backends[0])) < N * sizeof(float));
    for (int t = 0; t < 4; t++) {
        m = build_on_cpu(sched, backends);
        toy->n_computed = 0;
        if (t % 2 == 1) {
            assign_to_toy(sched, backends, &m);
        }
        model_set(&m);
        ggml_backend_sched_graph_compute(sched, m.graph);
        CHECK((toy->n_computed > 0) == (t % 2 == 1));
        model_check(&m);
        CHECK(toy->n_buffers == 1); // the smaller buffer is freed
        ggml_free(m.ctx);
    }
    ggml_backend_sched_free(sched);

    // If the backend has no more memory, the graph fails, and the next graph works.
    sched = ggml_backend_sched_new(backends, 2);
    m = build_on_cpu(sched, backends);
    ggml_backend_sched_init_measure(sched, m.graph);
    ggml_free(m.ctx);
    m = build_on_cpu(sched, backends);
    model_set(&m);
    ggml_backend_sched_graph_compute(sched, m.graph);
    model_check(&m);
    toy->is_full = true;
    m.x->buffer = m.b->buffer = NULL; // the same graph, with its inputs placed anew
    m.x->data = m.b->data = NULL;
    ggml_tallocr_alloc(ggml_backend_sched_get_tallocr(sched, backends[1]), m.x);
    ggml_tallocr_alloc(ggml_backend_sched_get_tallocr(sched, backends[1]), m.b);
    assign_to_toy(sched, backends, &m);
    model_set(&m);
    ggml_backend_sched_graph_compute(sched, m.graph);
    CHECK(strstr(berth_last_error(), "memory") != NULL);
    check_spoiled(&m);
    toy->is_full = false;
    ggml_free(m.ctx);
    m = build_on_cpu(sched, backends);
    assign_to_toy(sched, backends, &m);
    model_set(&m);
    ggml_backend_sched_graph_compute(sched, m.graph);
    model_check(&m);
    ggml_free(m.ctx);
    ggml_backend_sched_free(sched);
    CHECK(toy->n_buffers == 0);
}

// The program changes a graph between two computations.
static void changed_graphs(ggml_backend_t *backends) {
    for (int kind = 0; kind < 2; kind++) {
        ggml_backend_sched_t sched = ggml_backend_sched_new(backends, 2);
        struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = 512 * 1024, .no_alloc = true});
        struct ggml_tensor *x = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, N), *a = ggml_add(ctx, x, x), *b = ggml_add(ctx, a, x);
        struct ggml_tensor *c = ggml_add(ctx, b, b), *d = ggml_add(ctx, c, c), *e = ggml_add(ctx, d, a),
                           *out = ggml_add(ctx, e, b);
        struct ggml_cgraph *graph = ggml_new_graph(ctx);
        ggml_build_forward_expand(graph, out);
        ggml_backend_sched_init_measure(sched, graph);
        for (int t = 0; t < 4; t++) {
            if (t == 2 && kind == 0) {
                out->src[1] = c;
            } else if (t == 2) {
                ggml_set_output(b);
            }
            ggml_backend_sched_set_node_backend(sched, c, backends[t % 2]);
            x->buffer = NULL;
            x->data = NULL;
            ggml_tallocr_alloc(ggml_backend_sched_get_tallocr(sched, backends[1]), x);
            float values[N];
            for (int i = 0; i < N; i++) {
                values[i] = 1.0f;
            }
            ggml_backend_tensor_set(x, values, 0, sizeof values);
            ggml_backend_sched_graph_compute(sched, graph); // a 2, b 3, c 6, d 12, e 14
            ggml_backend_tensor_get(out, values, 0, sizeof values);
            CHECK(values[0] == (t >= 2 && kind == 0 ? 20.0f : 17.0f));
            ggml_backend_tensor_get(b, values, 0, sizeof values);
            CHECK(t < 2 || kind == 0 || values[0] == 3.0f);
        }
        ggml_backend_sched_free(sched);
        ggml_free(ctx);
    }
}

// Inputs are larger than the measured ones. The allocator grows while some inputs are in its smaller buffer.
static void inputs_grow(ggml_backend_t *backends) {
    enum { LARGE = 1 << 16 };
    ggml_backend_sched_t sched = ggml_backend_sched_new(backends, 2);
    struct model m = build_on_cpu(sched, backends);
    ggml_backend_sched_init_measure(sched, m.graph);
    ggml_free(m.ctx);
    for (int t = 0; t < 3; t++) {
        struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = 512 * 1024, .no_alloc = true});
        ggml_tallocr_t talloc = ggml_backend_sched_get_tallocr(sched, backends[1]);
        struct ggml_tensor *one = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 1), *x = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, LARGE);
        struct ggml_tensor *y = ggml_add(ctx, scale_by(ctx, x, 2.0f), one);
        struct ggml_cgraph *graph = ggml_new_graph(ctx);
        ggml_build_forward_expand(graph, y);
        ggml_tallocr_alloc(talloc, one);
        ggml_backend_tensor_set(one, &(float){1.0f}, 0, sizeof(float));
        ggml_tallocr_alloc(talloc, x);
        CHECK(x->data != NULL);
        float *values = malloc(LARGE * sizeof(float));
        for (int i = 0; i < LARGE; i++) {
            values[i] = (float) (i + t);
        }
        ggml_backend_tensor_set(x, values, 0, LARGE * sizeof(float));
        ggml_backend_sched_graph_compute(sched, graph);
        ggml_backend_tensor_get(y, values, 0, LARGE * sizeof(float));
        for (int i = 0; i < LARGE; i++) {
            CHECK(values[i] == 2.0f * (float) (i + t) + 1.0f);
        }
        free(values);
        ggml_free(ctx);
        m = build_on_cpu(sched, backends); // the small graph in between
        model_set(&m);
        ggml_backend_sched_graph_compute(sched, m.graph);
        model_check(&m);
        ggml_free(m.ctx);
    }
    ggml_backend_sched_free(sched);
}

static void failures(ggml_backend_t *backends, struct toy *toy) {
    ggml_backend_t none[] = {backends[0], NULL};
    CHECK(ggml_backend_sched_new(NULL, 2) == NULL && ggml_backend_sched_new(none, 2) == NULL);
    ggml_backend_sched_t sched = ggml_backend_sched_new(backends, 2);
    struct model m = build(sched, backends, NULL);
    toy->is_full = true;
    ggml_backend_sched_init_measure(sched, m.graph);
    CHECK(strstr(berth_last_error(), "toy") != NULL);
    ggml_free(m.ctx);
    toy->is_full = false;
    m = build(sched, backends, NULL); // the scheduler still measures
    ggml_backend_sched_init_measure(sched, m.graph);
    ggml_free(m.ctx);

    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = 512 * 1024, .no_alloc = true});
    struct ggml_tensor *large = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 1 << 20);
    struct ggml_cgraph *graph = ggml_new_graph(ctx);
    ggml_build_forward_expand(graph, ggml_relu(ctx, large));
    CHECK(berth_2023_sched_graph_compute_status(sched, graph) == GGML_STATUS_SUCCESS); // larger than measured
    m = build(sched, backends, NULL);
    model_set(&m);
    CHECK(berth_2023_sched_graph_compute_status(sched, m.graph) == GGML_STATUS_SUCCESS);
    model_check(&m);
    ggml_free(m.ctx);
    ggml_free(ctx);
    ggml_backend_sched_graph_compute(sched, NULL);
    ggml_backend_sched_init_measure(NULL, NULL);
    CHECK(ggml_backend_sched_get_tallocr(sched, NULL) == NULL && ggml_backend_sched_get_buffer(NULL, backends[0]) == NULL);
    ggml_backend_sched_free(sched);
    ggml_backend_sched_free(NULL);
}

// Returns NULL if there is no scheduler.
static ggml_backend_sched_t try_all(ggml_backend_t *backends) {
    ggml_backend_sched_t sched = ggml_backend_sched_new(backends, 2);
    for (int t = 0; t < 2 && sched != NULL; t++) {
        struct model m = model_build();
        if (m.ctx != NULL && m.graph != NULL) {
            prepare(sched, backends, &m, false);
            if (t == 0) {
                ggml_backend_sched_init_measure(sched, m.graph);
            } else {
                model_set(&m);
                ggml_backend_sched_graph_compute(sched, m.graph);
            }
        }
        ggml_free(m.ctx);
    }
    return sched;
}

// Each allocation fails in turn. Nothing leaks, and a scheduler that was created still works.
static void every_allocation_may_fail(void) {
    bool was_hit = true;
    for (int64_t n = 1; was_hit; n++) {
        static struct toy toy;
        berth_alloc_watch(true);
        ggml_backend_t backends[] = {toy_new(&toy), ggml_backend_cpu_init()};
        ggml_backend_cpu_set_n_threads(backends[1], 1);
        const int64_t before = berth_alloc_made();
        berth_alloc_fail_at(n);
        ggml_backend_sched_t sched = try_all(backends);
        was_hit = berth_alloc_made() - before >= n - 1;
        berth_alloc_fail_at(0);
        if (sched != NULL) {
            const bool is_measured = !ggml_tallocr_is_measure(ggml_backend_sched_get_tallocr(sched, backends[0]));
            struct model m = build(sched, backends, NULL);
            if (!is_measured) {
                ggml_backend_sched_init_measure(sched, m.graph);
                ggml_free(m.ctx);
                m = build(sched, backends, NULL);
            }
            model_set(&m);
            CHECK(berth_2023_sched_graph_compute_status(sched, m.graph) == GGML_STATUS_SUCCESS);
            model_check(&m);
            ggml_free(m.ctx);
        }
        CHECK(was_hit || sched != NULL);
        ggml_backend_sched_free(sched);
        ggml_backend_free(backends[0]);
        ggml_backend_free(backends[1]);
        if (berth_alloc_alive() != 0 || toy.n_buffers != 0) {
            printf("allocation %lld fails: %lld allocations and %d buffers leaked\n", (long long) n,
                (long long) berth_alloc_alive(), toy.n_buffers);
            exit(1);
        }
        berth_alloc_watch(false);
        CHECK(was_hit || n > 40);
    }
}

int main(void) {
    static struct toy toy;
    ggml_log_set(log_drop, NULL);
    ggml_backend_t backends[] = {toy_new(&toy), ggml_backend_cpu_init()};
    computes(backends, &toy, true);
    computes(backends, &toy, false);
    grows(backends, &toy);
    inputs_grow(backends);
    changed_graphs(backends);
    failures(backends, &toy);
    every_allocation_may_fail();
    ggml_backend_free(backends[0]);
    ggml_backend_free(backends[1]);
    return 0;
}
