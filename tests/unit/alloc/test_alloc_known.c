// SPDX-License-Identifier: MIT
// test_alloc_known.c: graphs that look equal to a graph with a stored plan but differ from it. The allocator must not use the
// stored plan for them.

#include "support/check.h"

#include "core/graph.h"
#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "ggml-cpu.h"
#include "support/device_full.h"

struct sample {
    struct ggml_context *ctx;
    struct ggml_cgraph *graph;
};

static struct sample sample_new(void) {
    struct sample m = {.ctx = ggml_init((struct ggml_init_params){.mem_size = 64 * 1024, .no_alloc = true})};
    m.graph = ggml_new_graph_custom(m.ctx, 32, false);
    return m;
}

static struct ggml_tensor *floats(struct ggml_context *ctx) {
    return ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 64);
}

static void list(struct sample *m, struct ggml_tensor **nodes, int n) {
    memcpy(m->graph->nodes, nodes, (size_t) n * sizeof nodes[0]);
    m->graph->n_nodes = n;
}

static void place(ggml_gallocr_t galloc, struct sample *m, bool reserve) {
    if (reserve) {
        assert_true(ggml_gallocr_reserve(galloc, m->graph));
    }
    assert_true(ggml_gallocr_alloc_graph(galloc, m->graph));
}

static void verify(ggml_gallocr_t galloc, struct sample *m) {
    if (!berth_gallocr_verify(galloc, m->graph)) {
        fail_msg("%s", berth_last_error());
    }
}

// Builds a -> b and c = b + p. p has memory of the caller. If is_result is set, p is a result that reads a. Otherwise p is a
// leaf.
static struct sample with_placed_node(bool is_result, float *memory) {
    struct sample m = sample_new();
    struct ggml_tensor *x = floats(m.ctx), *a = ggml_cont(m.ctx, x), *b = ggml_sqr(m.ctx, a);
    struct ggml_tensor *p = is_result ? ggml_cont(m.ctx, a) : floats(m.ctx), *c = ggml_add(m.ctx, b, p);
    p->data = memory;
    list(&m, (struct ggml_tensor *[]){a, b, p, c}, 4);
    return m;
}

static void node_with_memory_reads(void **state) {
    (void) state;
    float memory[64];
    for (int reserve = 0; reserve < 2; reserve++) {
        ggml_gallocr_t galloc = ggml_gallocr_new(ggml_backend_cpu_buffer_type());
        for (int k = 0; k < 4; k++) {
            struct sample m = with_placed_node(k % 2 == 1, memory);
            place(galloc, &m, reserve != 0);
            verify(galloc, &m);
            ggml_free(m.ctx);
        }
        ggml_gallocr_free(galloc);
    }
}

// Builds x -> a -> b -> mid -> c and d = c + u. If is_listed is set, u is the tensor a. Otherwise u is a separate tensor with the
// same op, sources and shape as a, and the graph does not list it.
static struct sample source_unlisted(bool is_listed) {
    struct sample m = sample_new();
    struct ggml_tensor *x = floats(m.ctx), *a = ggml_cont(m.ctx, x), *b = ggml_cont(m.ctx, a), *mid = ggml_cont(m.ctx, b);
    struct ggml_tensor *c = ggml_cont(m.ctx, mid), *u = is_listed ? a : ggml_cont(m.ctx, x), *d = ggml_add(m.ctx, c, u);
    list(&m, (struct ggml_tensor *[]){a, b, mid, c, d}, 5);
    return m;
}

static void unlisted_source_looks_like_a_node(void **state) {
    (void) state;
    for (int reserve = 0; reserve < 2; reserve++) {
        for (int order = 0; order < 2; order++) {
            ggml_gallocr_t galloc = ggml_gallocr_new(ggml_backend_cpu_buffer_type());
            for (int k = 0; k < 4; k++) {
                const bool is_listed = (k + order) % 2 == 1;
                struct sample m = source_unlisted(is_listed);
                place(galloc, &m, reserve != 0);
                // An unlisted tensor has memory only from its first reader on, which berth_gallocr_verify does not model.
                if (is_listed) {
                    verify(galloc, &m);
                }
                ggml_free(m.ctx);
            }
            ggml_gallocr_free(galloc);
        }
    }
}

// The nodes are p, a, mid, b, c and out, with mid = p, c = a + b and out = c + mid. If is_twice is set, b and a are the same
// tensor. The graph then lists this tensor a second time after mid, the last reader of p. Otherwise b is a separate tensor.
static struct sample listed(bool is_twice) {
    struct sample m = sample_new();
    struct ggml_tensor *x = floats(m.ctx), *p = ggml_cont(m.ctx, x), *a = ggml_cont(m.ctx, x), *mid = ggml_cont(m.ctx, p);
    struct ggml_tensor *b = is_twice ? a : ggml_cont(m.ctx, x), *c = ggml_add(m.ctx, a, b), *out = ggml_add(m.ctx, c, mid);
    list(&m, (struct ggml_tensor *[]){p, a, mid, b, c, out}, 6);
    m.graph->leafs[m.graph->n_leafs++] = x;
    return m;
}

// The buffers of this test have init_tensor. The allocator uses another code path for such buffers.
static void node_is_listed_again(void **state) {
    (void) state;
    full_init();
    for (int order = 0; order < 2; order++) {
        ggml_gallocr_t galloc = ggml_gallocr_new(&fake.buft);
        for (int k = 0; k < 4; k++) {
            struct sample m = listed((k + order) % 2 == 1);
            place(galloc, &m, false);
            verify(galloc, &m);
            ggml_free(m.ctx);
        }
        ggml_gallocr_free(galloc);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(node_with_memory_reads),
        cmocka_unit_test(unlisted_source_looks_like_a_node),
        cmocka_unit_test(node_is_listed_again),
    };
    return cmocka_run_group_tests_name("alloc_known", tests, NULL, NULL);
}
