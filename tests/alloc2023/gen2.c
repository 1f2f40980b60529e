// SPDX-License-Identifier: MIT
// gen2.c: tests ggml_tallocr_t and ggml_gallocr_t, the second generation of allocators, with 1, 2 or 77 tensor allocators.

#include "program.h"

#include "ggml-impl.h"

static void one_allocator(ggml_backend_t backend) {
    ggml_gallocr_t galloc = ggml_gallocr_new();
    struct model m = model_build();
    ggml_tallocr_t talloc = ggml_tallocr_new_measure_from_backend(backend);
    ggml_tallocr_alloc(talloc, m.x);
    ggml_tallocr_alloc(talloc, m.b);
    const size_t size = ggml_gallocr_alloc_graph(galloc, talloc, m.graph);
    CHECK(ggml_tallocr_is_measure(talloc) && ggml_tallocr_max_size(talloc) == size);
    ggml_tallocr_free(talloc);
    ggml_free(m.ctx);

    talloc = ggml_tallocr_new_from_backend(backend, size);
    for (int t = 0; t < 3; t++) {
        m = model_build();
        ggml_tallocr_reset(talloc);
        ggml_tallocr_alloc(talloc, m.x);
        ggml_tallocr_alloc(talloc, m.b);
        CHECK(ggml_gallocr_alloc_graph(galloc, talloc, m.graph) <= size);
        CHECK(ggml_get_backend(m.y) == backend);
        model_set(&m);
        ggml_backend_graph_compute(backend, m.graph);
        model_check(&m);
        CHECK(ggml_gallocr_alloc_graph(galloc, talloc, m.graph) <= size); // the graph is placed already: no tensor moves
        model_check(&m);
        ggml_free(m.ctx);
    }
    CHECK(ggml_tallocr_max_size(talloc) <= size);
    ggml_tallocr_free(talloc);
    ggml_gallocr_free(galloc);
}

static size_t slot_of(struct ggml_hash_set set, struct ggml_tensor *t) {
    size_t i = (size_t) t % set.size;
    while (set.keys[i] != NULL && set.keys[i] != t) {
        i = (i + 1) % set.size;
    }
    set.keys[i] = t;
    return i;
}

// Assigns the nodes to n tensor allocators in turn.
static void assign(struct ggml_hash_set set, ggml_tallocr_t *by_slot, struct model *m, ggml_tallocr_t *tallocs, int n) {
    memset(set.keys, 0, set.size * sizeof set.keys[0]);
    for (int i = 0; i < ggml_graph_n_nodes(m->graph); i++) {
        by_slot[slot_of(set, ggml_graph_node(m->graph, i))] = tallocs[i % n];
    }
    by_slot[slot_of(set, m->x)] = tallocs[0];
    by_slot[slot_of(set, m->b)] = tallocs[1];
}

static void two_allocators(ggml_backend_t backend) {
    enum { SLOTS = 1021 };
    static struct ggml_tensor *keys[SLOTS];
    static ggml_tallocr_t by_slot[SLOTS];
    struct ggml_hash_set set = {SLOTS, keys};
    ggml_gallocr_t galloc = ggml_gallocr_new();
    ggml_tallocr_t measure[] = {ggml_tallocr_new_measure_from_backend(backend), ggml_tallocr_new_measure(64)}, real[2];
    struct model m = model_build();
    assign(set, by_slot, &m, measure, 2);
    ggml_gallocr_alloc_graph_n(galloc, m.graph, set, by_slot);
    const size_t sizes[] = {ggml_tallocr_max_size(measure[0]), ggml_tallocr_max_size(measure[1])};
    CHECK(sizes[0] > 0 && sizes[1] > 0);
    ggml_free(m.ctx);
    void *memory = malloc(sizes[1]);
    real[0] = ggml_tallocr_new_from_backend(backend, sizes[0]);
    real[1] = ggml_tallocr_new(memory, sizes[1], 64);
    for (int t = 0; t < 3; t++) {
        m = model_build();
        ggml_tallocr_reset(real[0]);
        ggml_tallocr_reset(real[1]);
        assign(set, by_slot, &m, real, 2);
        ggml_gallocr_alloc_graph_n(galloc, m.graph, set, by_slot);
        CHECK(m.x->buffer == ggml_tallocr_get_buffer(real[0]) && m.b->buffer == ggml_tallocr_get_buffer(real[1]));
        model_set(&m);
        ggml_backend_graph_compute(backend, m.graph);
        model_check(&m);
        ggml_free(m.ctx);
    }
    for (int i = 0; i < 2; i++) {
        ggml_tallocr_free(measure[i]);
        ggml_tallocr_free(real[i]);
    }
    free(memory);
    ggml_gallocr_free(galloc);
}

static void many_allocators(ggml_backend_t backend) {
    enum { SLOTS = 1021, MANY = 77 };
    static struct ggml_tensor *keys[SLOTS];
    static ggml_tallocr_t by_slot[SLOTS];
    ggml_tallocr_t tallocs[MANY];
    struct ggml_hash_set set = {SLOTS, keys};
    ggml_gallocr_t galloc = ggml_gallocr_new();
    for (int i = 0; i < MANY; i++) {
        tallocs[i] = ggml_tallocr_new_from_backend(backend, 4 * N * sizeof(float));
    }
    struct model m = model_build();
    CHECK(ggml_graph_n_nodes(m.graph) >= MANY);
    assign(set, by_slot, &m, tallocs, MANY);
    ggml_gallocr_alloc_graph_n(galloc, m.graph, set, by_slot);
    model_set(&m);
    ggml_backend_graph_compute(backend, m.graph);
    model_check(&m);
    bool is_used[MANY] = {false};
    for (int i = 0; i < ggml_graph_n_nodes(m.graph); i++) { // each node is in its allocator, except for views and in-place nodes
        for (int k = 0; k < MANY; k++) {
            is_used[k] = is_used[k] || ggml_graph_node(m.graph, i)->buffer == ggml_tallocr_get_buffer(tallocs[k]);
        }
    }
    CHECK(is_used[MANY - 1] || is_used[MANY - 2]);
    ggml_free(m.ctx);
    for (int i = 0; i < MANY; i++) {
        ggml_tallocr_free(tallocs[i]);
    }
    ggml_gallocr_free(galloc);
}

static void whole_context(ggml_backend_t backend) {
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = 64 * 1024, .no_alloc = true});
    struct ggml_tensor *a = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 3), *b = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 5);
    struct ggml_tensor *v = ggml_view_1d(ctx, b, 2, 4);
    ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors_from_buft(ctx, ggml_backend_get_default_buffer_type(backend));
    const float five[] = {1, 2, 3, 4, 5};
    float three[3], two[2];
    CHECK(buffer != NULL && a->buffer == buffer && b->buffer == buffer && v->buffer == buffer);
    CHECK(ggml_get_backend(v) == backend);
    ggml_backend_tensor_set(b, five, 0, sizeof five);
    ggml_backend_tensor_get(v, two, 0, sizeof two);
    CHECK(two[0] == 2 && two[1] == 3);
    ggml_backend_tensor_set_async(a, five, 0, sizeof three);
    ggml_backend_synchronize(backend);
    struct ggml_context *other = ggml_init((struct ggml_init_params){.mem_size = 64 * 1024, .no_alloc = true});
    struct ggml_tensor *c = ggml_new_tensor_1d(other, GGML_TYPE_F32, 3);
    ggml_backend_buffer_t second = ggml_backend_alloc_ctx_tensors(other, backend);
    ggml_backend_tensor_copy(a, c);
    ggml_backend_tensor_get_async(c, three, 0, sizeof three);
    CHECK(three[2] == 3);
    ggml_set_zero(c); // a function of ggml.h on a 2023 buffer
    ggml_backend_tensor_get(c, three, 0, sizeof three);
    CHECK(three[2] == 0);
    ggml_backend_buffer_free(buffer);
    ggml_backend_buffer_free(second);
    ggml_free(ctx);
    ggml_free(other);
}

// If a graph needs more, a backend's buffer grows, and tensors that were placed before move to the larger buffer.
static void grows(ggml_backend_t backend) {
    ggml_gallocr_t galloc = ggml_gallocr_new();
    ggml_tallocr_t talloc = ggml_tallocr_new_from_backend(backend, N * sizeof(float));
    for (int t = 0; t < 3; t++) {
        struct model m = model_build();
        ggml_tallocr_alloc(talloc, m.x);
        ggml_tallocr_alloc(talloc, m.b);
        model_set(&m);
        ggml_gallocr_alloc_graph(galloc, talloc, m.graph);
        ggml_backend_graph_compute(backend, m.graph);
        model_check(&m);
        ggml_free(m.ctx);
        ggml_tallocr_reset(talloc);
    }
    ggml_tallocr_free(talloc);
    void *memory = malloc(N); // memory of the program cannot grow
    talloc = ggml_tallocr_new(memory, N, 32);
    struct model m = model_build();
    ggml_gallocr_alloc_graph(galloc, talloc, m.graph);
    ggml_backend_graph_compute(backend, m.graph);
    float y[N] = {0};
    ggml_backend_tensor_get(m.y, y, 0, sizeof y);
    CHECK(y[0] != y[0] && y[N - 1] != y[N - 1]);
    ggml_free(m.ctx);
    ggml_tallocr_free(talloc);
    ggml_gallocr_free(galloc);
    free(memory);
}

// The program changes a graph between two computations and allocates it again.
static void changed_graphs(ggml_backend_t backend) {
    for (int kind = 0; kind < 2; kind++) {
        struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = 512 * 1024, .no_alloc = true});
        struct ggml_tensor *x = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, N), *a = scale_by(ctx, x, 2.0f);
        struct ggml_tensor *b = scale_by(ctx, a, 3.0f), *c = scale_by(ctx, b, 5.0f), *d = scale_by(ctx, c, 7.0f);
        struct ggml_tensor *e = ggml_add(ctx, d, a), *out = ggml_add(ctx, e, b);
        struct ggml_cgraph *graph = ggml_new_graph(ctx);
        ggml_build_forward_expand(graph, out);
        ggml_gallocr_t galloc = ggml_gallocr_new();
        ggml_tallocr_t talloc = ggml_tallocr_new_from_backend(backend, 1);
        for (int t = 0; t < 3; t++) {
            struct ggml_tensor *all[] = {x, a, b, c, d, e, out};
            for (int i = 0; i < 7; i++) { // as programs of 2023 did, unless they built a new graph
                all[i]->data = NULL;
                all[i]->buffer = NULL;
            }
            if (t == 1 && kind == 0) {
                out->src[1] = c;
            } else if (t == 1) {
                ggml_set_output(b);
            }
            ggml_tallocr_reset(talloc);
            ggml_gallocr_alloc_graph(galloc, talloc, graph);
            float values[N];
            set_all(x, 1);
            ggml_backend_graph_compute(backend, graph);
            ggml_backend_tensor_get(out, values, 0, sizeof values);
            CHECK(values[0] == (t > 0 && kind == 0 ? 242.0f : 218.0f));
            if (t > 0 && kind == 1) {
                ggml_backend_tensor_get(b, values, 0, sizeof values);
                CHECK(values[0] == 6.0f);
            }
        }
        ggml_tallocr_free(talloc);
        ggml_gallocr_free(galloc);
        ggml_free(ctx);
    }
}

int main(void) {
    ggml_backend_t backend = backend_open(2);
    one_allocator(backend);
    two_allocators(backend);
    many_allocators(backend);
    whole_context(backend);
    grows(backend);
    changed_graphs(backend);
    ggml_tallocr_free(NULL);
    ggml_gallocr_free(NULL);
    ggml_backend_free(backend);
    return 0;
}
