// SPDX-License-Identifier: MIT
// test_meta_memory.c: memory of graphs on a composite device: each device has as much as a plan of its part requires, alternating
// graphs keep their addresses, and memory that was planned for another split grows.

#include "berth-alloc.h"
#include "berth-meta.h"
#include "support/meta_layer.h"

#define OUT (LAYER_EMBD * LAYER_TOKENS)

static int64_t share(int64_t units, int n, int j) {
    return units * (j + 1) / n - units * j / n;
}

// Returns the bytes that the layer takes on a device with the given heads and rows.
static size_t bytes_alone(struct layer_dims dims) {
    size_t size = 0;
    struct layer l = layer_new(dims);
    ggml_backend_buffer_t weights = ggml_backend_alloc_ctx_tensors_from_buft(l.fixed, ggml_backend_cpu_buffer_type());
    ggml_gallocr_t galloc = ggml_gallocr_new(ggml_backend_cpu_buffer_type());
    ggml_gallocr_reserve_n_size(galloc, l.graph, NULL, NULL, &size);
    assert_true(weights != NULL && size > 0);
    ggml_gallocr_free(galloc);
    ggml_backend_buffer_free(weights);
    layer_free(&l);
    return size;
}

static ggml_backend_dev_t device(int *n, ggml_backend_meta_get_split_state_t get_state) {
    ggml_backend_dev_t devs[] = {layer_cpu(), layer_cpu(), layer_cpu(), layer_cpu()};
    return ggml_backend_meta_device(devs, (size_t) *n, get_state, n);
}

static void each_part_is_planned_alone(void **state) {
    (void) state;
    static int n_parts[] = {1, 2, 3, 4};
    static const struct layer_dims dims[] = {{4, 160}, {5, 224}, {4, 512}};
    for (size_t d = 0; d < sizeof dims / sizeof dims[0]; d++) {
        for (int i = 0; i < 4; i++) {
            const int n = n_parts[i];
            struct layer l = layer_new(dims[d]);
            ggml_backend_buffer_type_t buft = ggml_backend_dev_buffer_type(device(&n_parts[i], layer_state));
            ggml_backend_buffer_t weights = ggml_backend_alloc_ctx_tensors_from_buft(l.fixed, buft);
            ggml_gallocr_t galloc = ggml_gallocr_new(buft);
            size_t sum = 0, said = 0;
            ggml_gallocr_reserve_n_size(galloc, l.graph, NULL, NULL, &said);
            assert_true(weights != NULL && ggml_gallocr_alloc_graph(galloc, l.graph));
            for (int j = 0; j < n; j++) {
                const struct layer_dims part = {share(dims[d].kv, n, j), share(dims[d].ff / LAYER_FF_UNIT, n, j) * LAYER_FF_UNIT};
                const size_t is = berth_meta_buffer_size(l.out->buffer, (size_t) j), want = bytes_alone(part);
                if (is != want) {
                    fail_msg("device %d of %d: %zu bytes, a plan of its part alone has %zu", j, n, is, want);
                }
                sum += is;
            }
            assert_int_equal(said, sum);
            assert_int_equal(ggml_gallocr_get_buffer_size(galloc, 0), sum);
            ggml_gallocr_free(galloc);
            ggml_backend_buffer_free(weights);
            layer_free(&l);
        }
    }
}

// ---- layers of one shape with different splits ----

static bool is_mirrored;

static struct ggml_backend_meta_split_state state_of(const struct ggml_tensor *t, void *user) {
    static const struct ggml_backend_meta_split_state whole = {
        .axis = GGML_BACKEND_SPLIT_AXIS_MIRRORED, .n_segments = 1, .nr = {1}};
    return is_mirrored ? whole : layer_state(t, user);
}

struct placed {
    struct layer l;
    ggml_backend_buffer_t weights;
};

static struct placed placed_new(ggml_backend_buffer_type_t buft) {
    struct placed p = {.l = layer_new((struct layer_dims){4, 512})};
    p.weights = ggml_backend_alloc_ctx_tensors_from_buft(p.l.fixed, buft);
    assert_non_null(p.weights);
    layer_fill(&p.l);
    return p;
}

static void placed_free(struct placed *p) {
    ggml_backend_buffer_free(p->weights);
    layer_free(&p->l);
}

static void compute(ggml_backend_t backend, struct placed *p, float *out) {
    assert_int_equal(ggml_backend_graph_compute(backend, p->l.graph), GGML_STATUS_SUCCESS);
    ggml_backend_tensor_get(p->l.out, out, 0, OUT * sizeof *out);
}

static void is_near(const float *a, const float *b) {
    for (int i = 0; i < OUT; i++) {
        assert_true(fabsf(a[i] - b[i]) < 1e-3f);
    }
}

// Clears the buffer of the graph. Asserts that all tensors of the graph are then zero, including those in memory that was added.
static void is_cleared(struct placed *p) {
    static char bytes[1 << 20];
    ggml_backend_buffer_clear(p->l.out->buffer, 0);
    for (int i = 0; i < ggml_graph_n_nodes(p->l.graph); i++) {
        const struct ggml_tensor *t = ggml_graph_node(p->l.graph, i);
        if (t->buffer == p->l.out->buffer && t->view_src == NULL) {
            const size_t size = ggml_nbytes(t);
            assert_true(size <= sizeof bytes);
            memset(bytes, 1, size);
            ggml_backend_tensor_get(t, bytes, 0, size);
            for (size_t k = 0; k < size; k++) {
                assert_int_equal(bytes[k], 0);
            }
        }
    }
}

// The allocator takes the second graph for the first, because their tensors have the same sizes. On each device the tensors of the
// second graph are larger, because it is not split.
static void memory_of_another_split_grows(void **state) {
    (void) state;
    static int n = 2;
    static float split[OUT], whole[OUT], again[OUT];
    struct berth_meta_stats stats;
    ggml_backend_dev_t dev = device(&n, state_of);
    ggml_backend_buffer_type_t buft = ggml_backend_dev_buffer_type(dev);
    ggml_backend_t backend = ggml_backend_dev_init(dev, NULL);
    is_mirrored = false;
    struct placed a = placed_new(buft);
    is_mirrored = true;
    struct placed b = placed_new(buft);
    ggml_gallocr_t galloc = ggml_gallocr_new(buft);
    assert_true(ggml_gallocr_alloc_graph(galloc, a.l.graph));
    const size_t before = ggml_gallocr_get_buffer_size(galloc, 0);
    compute(backend, &a, split);
    assert_true(berth_meta_stats(backend, &stats) && stats.n_grown == 0);
    assert_true(ggml_gallocr_alloc_graph(galloc, b.l.graph));
    compute(backend, &b, whole);
    assert_true(berth_meta_stats(backend, &stats) && stats.n_grown > 0);
    assert_true(ggml_gallocr_get_buffer_size(galloc, 0) > before);
    is_near(split, whole);
    is_cleared(&b);
    assert_true(ggml_gallocr_alloc_graph(galloc, a.l.graph));
    compute(backend, &a, again);
    assert_memory_equal(again, split, sizeof split);
    ggml_gallocr_free(galloc);
    ggml_backend_free(backend);
    placed_free(&a);
    placed_free(&b);
}

// Two alternating graphs: the results of one are valid until the other is computed, and both are cache hits.
static void graphs_alternate(void **state) {
    (void) state;
    static int n = 3;
    static float first[OUT], second[OUT];
    struct berth_meta_stats stats;
    ggml_backend_dev_t dev = device(&n, layer_state);
    ggml_backend_buffer_type_t buft = ggml_backend_dev_buffer_type(dev);
    ggml_backend_t backend = ggml_backend_dev_init(dev, NULL);
    struct placed a = placed_new(buft);
    struct ggml_context *ctx = layer_ctx(8);
    struct ggml_tensor *twice = ggml_scale(ctx, ggml_mul_mat(ctx, a.l.up, a.l.x), 2.0f);
    struct ggml_cgraph *other = ggml_new_graph_custom(ctx, 256, false);
    ggml_gallocr_t galloc = ggml_gallocr_new(buft);
    ggml_build_forward_expand(other, twice);
    for (int i = 0; i < 5; i++) {
        assert_true(ggml_gallocr_alloc_graph(galloc, a.l.graph));
        compute(backend, &a, i == 0 ? first : second);
        assert_true(ggml_gallocr_alloc_graph(galloc, other));
        ggml_backend_tensor_get(a.l.out, second, 0, sizeof second);
        assert_memory_equal(first, second, sizeof first);
        assert_int_equal(ggml_backend_graph_compute(backend, other), GGML_STATUS_SUCCESS);
    }
    assert_true(berth_meta_stats(backend, &stats) && stats.n_grown == 0 && stats.n_cache_misses == 2);
    ggml_gallocr_free(galloc);
    ggml_backend_free(backend);
    placed_free(&a);
    ggml_free(ctx);
}

// ---- more graphs than the allocator stores plans for ----

// A chain of `length` products of x. No two chains have the same plan.
struct chain {
    struct ggml_context *ctx;
    struct ggml_tensor *out;
    struct ggml_cgraph *graph;
};

static struct chain chain_new(const struct layer *l, int length) {
    struct chain c = {.ctx = layer_ctx(3 * (size_t) length + 8)};
    c.out = ggml_scale(c.ctx, l->x, 1.0f / (float) length);
    for (int i = 0; i < length; i++) {
        c.out = ggml_mul_mat(c.ctx, l->down, ggml_mul_mat(c.ctx, l->up, c.out));
    }
    c.graph = ggml_new_graph_custom(c.ctx, 256, false);
    ggml_build_forward_expand(c.graph, c.out);
    return c;
}

static void chain_run(ggml_backend_t backend, struct chain *c, float *out) {
    if (ggml_backend_graph_compute(backend, c->graph) != GGML_STATUS_SUCCESS) {
        fail_msg("%s", berth_last_error());
    }
    ggml_backend_tensor_get(c->out, out, 0, OUT * sizeof *out);
}

// The graphs are placed one after the other and then computed alternately, with or without a new allocation. If there are too many
// graphs, computing the first one fails, and the error asks for a new allocation.
static void many_graphs_alternate(void **state) {
    (void) state;
    enum { N = 90, N_TURNS = 20 };
    static int n = 2;
    static float want[N_TURNS][OUT], got[OUT];
    static struct chain chains[N];
    ggml_backend_dev_t dev = device(&n, layer_state);
    ggml_backend_buffer_type_t buft = ggml_backend_dev_buffer_type(dev);
    ggml_backend_t backend = ggml_backend_dev_init(dev, NULL);
    struct placed a = placed_new(buft);
    ggml_gallocr_t galloc = ggml_gallocr_new(buft);
    for (int i = 0; i < N; i++) {
        chains[i] = chain_new(&a.l, i + 1);
    }
    for (int i = 0; i < N_TURNS; i++) {
        assert_true(ggml_gallocr_alloc_graph(galloc, chains[i].graph));
        chain_run(backend, &chains[i], want[i]);
    }
    for (int turn = 0; turn < 3; turn++) {
        for (int i = 0; i < N_TURNS; i++) {
            chain_run(backend, &chains[i], got);
            assert_memory_equal(got, want[i], sizeof got);
        }
    }
    for (int turn = 0; turn < 3; turn++) {
        for (int i = 0; i < N_TURNS; i++) {
            assert_true(ggml_gallocr_alloc_graph(galloc, chains[i].graph));
            chain_run(backend, &chains[i], got);
            assert_memory_equal(got, want[i], sizeof got);
        }
    }
    for (int i = 1; i < N; i++) {
        assert_true(ggml_gallocr_alloc_graph(galloc, chains[i].graph));
    }
    assert_int_equal(ggml_backend_graph_compute(backend, chains[0].graph), GGML_STATUS_FAILED);
    assert_non_null(strstr(berth_last_error(), "allocate the graph again"));
    assert_true(ggml_gallocr_alloc_graph(galloc, chains[0].graph));
    chain_run(backend, &chains[0], got);
    assert_memory_equal(got, want[0], sizeof got);
    for (int i = 0; i < N; i++) {
        ggml_free(chains[i].ctx);
    }
    ggml_gallocr_free(galloc);
    ggml_backend_free(backend);
    placed_free(&a);
}

// ---- memory that shrank ----

// Gives all rows of weight w0 to device 0, and all rows of w1 to device 1.
static struct ggml_backend_meta_split_state all_to_one(const struct ggml_tensor *t, void *user) {
    (void) user;
    struct ggml_backend_meta_split_state s = {.axis = GGML_BACKEND_SPLIT_AXIS_MIRRORED, .n_segments = 1, .nr = {1}};
    if (t->name[0] == 'w') {
        s.axis = GGML_BACKEND_SPLIT_AXIS_1;
        s.ne[t->name[1] - '0'] = t->ne[1];
    }
    return s;
}

static struct ggml_cgraph *product(struct ggml_context *ctx, struct ggml_tensor *w, struct ggml_tensor *x) {
    struct ggml_cgraph *graph = ggml_new_graph_custom(ctx, 8, false);
    ggml_build_forward_expand(graph, ggml_sqr(ctx, ggml_mul_mat(ctx, w, x)));
    return graph;
}

// A graph on the second device alone frees the memory of the first device. Computing a graph that used the freed memory fails with
// an error. The graph can be allocated again.
static void shrunk_memory_is_reported(void **state) {
    (void) state;
    static int n = 2;
    ggml_backend_dev_t dev = device(&n, all_to_one);
    ggml_backend_buffer_type_t buft = ggml_backend_dev_buffer_type(dev);
    ggml_backend_t backend = ggml_backend_dev_init(dev, NULL);
    struct ggml_context *fixed = layer_ctx(8), *ctx = ggml_init((struct ggml_init_params){.mem_size = 1 << 18, .no_alloc = true});
    struct ggml_tensor *w0 = ggml_new_tensor_2d(fixed, GGML_TYPE_F32, 32, 512),
                       *w1 = ggml_new_tensor_2d(fixed, GGML_TYPE_F32, 32, 2048),
                       *x = ggml_new_tensor_2d(fixed, GGML_TYPE_F32, 32, 64);
    ggml_set_name(w0, "w0");
    ggml_set_name(w1, "w1");
    ggml_set_name(x, "x");
    ggml_backend_buffer_t weights = ggml_backend_alloc_ctx_tensors_from_buft(fixed, buft);
    assert_non_null(weights);
    ggml_backend_buffer_clear(weights, 0);
    struct ggml_cgraph *first = product(ctx, w0, x), *second = product(ctx, w1, x);
    struct ggml_tensor *out = ggml_graph_node(first, -1);
    ggml_gallocr_t galloc = ggml_gallocr_new(buft);
    assert_true(ggml_gallocr_alloc_graph(galloc, first));
    assert_int_equal(ggml_backend_graph_compute(backend, first), GGML_STATUS_SUCCESS);
    assert_true(ggml_gallocr_reserve(galloc, second));
    assert_true(berth_meta_buffer_size(out->buffer, 0) < ggml_nbytes(out));
    assert_int_equal(ggml_backend_graph_compute(backend, first), GGML_STATUS_FAILED);
    assert_non_null(strstr(berth_last_error(), "on device 0, whose buffer has"));
    assert_true(ggml_gallocr_alloc_graph(galloc, first));
    assert_int_equal(ggml_backend_graph_compute(backend, first), GGML_STATUS_SUCCESS);
    ggml_gallocr_free(galloc);
    ggml_backend_buffer_free(weights);
    ggml_backend_free(backend);
    ggml_free(ctx);
    ggml_free(fixed);
}

// A graph of a scheduler: an input that is set for each step, and products with split weights.
struct step {
    struct ggml_context *ctx;
    struct ggml_tensor *in, *out;
    struct ggml_cgraph *graph;
};

static struct step step_new(const struct layer *l, int64_t n_tokens) {
    struct step s = {.ctx = layer_ctx(8)};
    s.in = ggml_new_tensor_2d(s.ctx, GGML_TYPE_F32, LAYER_EMBD, n_tokens);
    s.out = ggml_mul_mat(s.ctx, l->down, ggml_mul_mat(s.ctx, l->up, s.in));
    s.graph = ggml_new_graph_custom(s.ctx, 256, false);
    ggml_set_input(s.in);
    ggml_set_output(s.out);
    ggml_build_forward_expand(s.graph, s.out);
    return s;
}

// Returns the first element of the result, which is proportional to the input's values.
static float step_run(ggml_backend_sched_t sched, struct step *s, float value) {
    float in[OUT], out = 0;
    for (int i = 0; i < OUT; i++) {
        in[i] = value;
    }
    ggml_backend_sched_reset(sched);
    assert_true(ggml_backend_sched_alloc_graph(sched, s->graph));
    ggml_backend_tensor_set(s->in, in, 0, ggml_nbytes(s->in));
    assert_int_equal(ggml_backend_sched_graph_compute(sched, s->graph), GGML_STATUS_SUCCESS);
    ggml_backend_tensor_get(s->out, &out, 0, sizeof out);
    return out;
}

// Two graphs alternate without a reserve. The inputs of each graph are written to the addresses from which the graph reads them.
static void graphs_of_a_scheduler_alternate(void **state) {
    (void) state;
    static int n = 2;
    ggml_backend_dev_t dev = device(&n, layer_state);
    ggml_backend_t backends[] = {ggml_backend_dev_init(dev, NULL), ggml_backend_cpu_init()};
    struct placed a = placed_new(ggml_backend_dev_buffer_type(dev));
    struct step large = step_new(&a.l, LAYER_TOKENS), small = step_new(&a.l, 1);
    ggml_backend_sched_t sched = ggml_backend_sched_new(backends, NULL, 2, 64, false, false);
    const float once = step_run(sched, &large, 1.0f);
    assert_true(fabsf(once) > 1e-3f);
    for (int i = 2; i < 8; i++) {
        const float want = (float) i * once;
        assert_true(fabsf(step_run(sched, &small, (float) i) - want) <= 1e-4f * fabsf(want));
        assert_true(fabsf(step_run(sched, &large, (float) i) - want) <= 1e-4f * fabsf(want));
    }
    ggml_backend_sched_free(sched);
    placed_free(&a);
    ggml_free(large.ctx);
    ggml_free(small.ctx);
    ggml_backend_free(backends[0]);
    ggml_backend_free(backends[1]);
}

int main(void) {
    check_quiet();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_part_is_planned_alone),
        cmocka_unit_test(memory_of_another_split_grows),
        cmocka_unit_test(graphs_alternate),
        cmocka_unit_test(many_graphs_alternate),
        cmocka_unit_test(shrunk_memory_is_reported),
        cmocka_unit_test(graphs_of_a_scheduler_alternate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
