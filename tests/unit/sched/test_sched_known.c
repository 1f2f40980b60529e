// SPDX-License-Identifier: MIT
// test_sched_known.c: graphs that look equal to a cached graph but are not. Their results must be correct.

#include "support/check.h"

#include "core/graph.h"
#include "ggml-backend.h"
#include "ggml-cpu.h"

#define N 64

struct sample {
    struct ggml_context *ctx;
    struct ggml_cgraph *graph;
    struct ggml_tensor *x, *out;
};

static struct sample sample_new(void) {
    struct sample m = {.ctx = ggml_init((struct ggml_init_params){.mem_size = 64 * 1024, .no_alloc = true})};
    m.graph = ggml_new_graph_custom(m.ctx, 32, false);
    m.x = ggml_new_tensor_1d(m.ctx, GGML_TYPE_F32, N);
    ggml_set_input(m.x);
    m.graph->leafs[m.graph->n_leafs++] = m.x;
    return m;
}

static void list(struct sample *m, struct ggml_tensor **nodes, int n) {
    for (int i = 0; i < n; i++) {
        nodes[i]->flags |= GGML_TENSOR_FLAG_COMPUTE;
        m->graph->nodes[m->graph->n_nodes++] = nodes[i];
    }
    m->out = nodes[n - 1];
    ggml_set_output(m->out);
}

// Builds out = a + b + mid = (1/2 + 1/2 + 2) x. If is_twice is set, b and a are the same tensor, and the graph lists this tensor
// a second time after mid, the last reader of p. Otherwise b is a separate tensor.
static struct sample listed(bool is_twice) {
    struct sample m = sample_new();
    struct ggml_tensor *p = ggml_scale(m.ctx, m.x, 2.0f), *a = ggml_scale(m.ctx, m.x, 0.5f), *mid = ggml_cont(m.ctx, p);
    struct ggml_tensor *b = is_twice ? a : ggml_scale(m.ctx, m.x, 0.5f), *c = ggml_add(m.ctx, a, b),
                       *out = ggml_add(m.ctx, c, mid);
    list(&m, (struct ggml_tensor *[]){p, a, mid, b, c, out}, 6);
    return m;
}

// Builds out = d + u, after a few nodes that reuse memory. If is_node is set, u is the tensor a. Otherwise u is a separate tensor
// with the same op, sources and shape as a, and the graph does not list it.
static struct sample source_unlisted(bool is_node) {
    struct sample m = sample_new();
    struct ggml_tensor *a = ggml_cont(m.ctx, m.x), *b = ggml_scale(m.ctx, a, 2.0f), *c = ggml_cont(m.ctx, b);
    struct ggml_tensor *d = ggml_cont(m.ctx, c), *u = is_node ? a : ggml_cont(m.ctx, m.x), *out = ggml_add(m.ctx, d, u);
    u->flags |= GGML_TENSOR_FLAG_COMPUTE; // like a
    list(&m, (struct ggml_tensor *[]){a, b, c, d, out}, 5);
    return m;
}

static void run(struct sample (*make)(bool), bool is_sound[2]) {
    ggml_backend_t cpu = ggml_backend_cpu_init();
    ggml_backend_cpu_set_n_threads(cpu, 1);
    for (int order = 0; order < 2; order++) {
        ggml_backend_sched_t sched = ggml_backend_sched_new(&cpu, NULL, 1, 32, false, true);
        for (int k = 0; k < 8; k++) {
            const bool other = (k + order) % 2 == 1;
            struct sample m = make(other);
            assert_true(ggml_backend_sched_alloc_graph(sched, m.graph));
            float x[N], y[N];
            for (int i = 0; i < N; i++) {
                x[i] = (float) (i + k);
            }
            ggml_backend_tensor_set(m.x, x, 0, sizeof x);
            assert_int_equal(ggml_backend_sched_graph_compute(sched, m.graph), GGML_STATUS_SUCCESS);
            ggml_backend_tensor_get(m.out, y, 0, sizeof y);
            for (int i = 0; i < N && is_sound[other]; i++) {
                assert_float_equal(y[i], 3.0f * x[i], 0);
            }
            ggml_backend_sched_reset(sched);
            ggml_free(m.ctx);
        }
        ggml_backend_sched_free(sched);
    }
    ggml_backend_free(cpu);
}

static void node_is_listed_again(void **state) {
    (void) state;
    run(listed, (bool[]){true, true});
}

static void tensor_outside_is_a_node(void **state) {
    (void) state;
    run(source_unlisted, (bool[]){false, true}); // an unlisted tensor is not computed, so its content is undefined
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(node_is_listed_again),
        cmocka_unit_test(tensor_outside_is_a_node),
    };
    return cmocka_run_group_tests_name("sched_known", tests, NULL, NULL);
}
