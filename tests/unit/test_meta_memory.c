// SPDX-License-Identifier: MIT
// test_meta_memory.c: memory of graphs on a device made of several: each device has what a plan of its part alone takes, graphs
// that take turns keep their places, and memory that was planned for another split grows.

#include "berth-alloc.h"
#include "berth-meta.h"
#include "support/meta_layer.h"

#define OUT (LAYER_EMBD * LAYER_TOKENS)

static int64_t share(int64_t units, int n, int j) {
    return units * (j + 1) / n - units * j / n;
}

// What the layer takes on a device that has so many heads and rows.
static size_t bytes_alone(struct layer_dims dims) {
    size_t size                   = 0;
    struct layer l                = layer_new(dims);
    ggml_backend_buffer_t weights = ggml_backend_alloc_ctx_tensors_from_buft(l.fixed, ggml_backend_cpu_buffer_type());
    ggml_gallocr_t galloc         = ggml_gallocr_new(ggml_backend_cpu_buffer_type());
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

static void each_part_is_as_planned_alone(void **state) {
    (void) state;
    static int n_parts[]                  = {1, 2, 3, 4};
    static const struct layer_dims dims[] = {{4, 160}, {5, 224}, {4, 512}};
    for (size_t d = 0; d < sizeof dims / sizeof dims[0]; d++) {
        for (int i = 0; i < 4; i++) {
            const int n                     = n_parts[i];
            struct layer l                  = layer_new(dims[d]);
            ggml_backend_buffer_type_t buft = ggml_backend_dev_buffer_type(device(&n_parts[i], layer_state));
            ggml_backend_buffer_t weights   = ggml_backend_alloc_ctx_tensors_from_buft(l.fixed, buft);
            ggml_gallocr_t galloc           = ggml_gallocr_new(buft);
            size_t sum = 0, said = 0;
            ggml_gallocr_reserve_n_size(galloc, l.graph, NULL, NULL, &said);
            assert_true(weights != NULL && ggml_gallocr_alloc_graph(galloc, l.graph));
            for (int j = 0; j < n; j++) {
                const struct layer_dims part = {share(dims[d].kv, n, j), share(dims[d].ff / LAYER_FF_UNIT, n, j) * LAYER_FF_UNIT};
                const size_t is = berth_meta_buffer_size(l.out->buffer, (size_t) j), want = bytes_alone(part);
                if (is != want) {
                    fail_msg("part %d of %d: %zu bytes, %zu alone", j, n, is, want);
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

// ---- layers of one shape, split in one way or another ----

static bool is_whole;

static struct ggml_backend_meta_split_state state_of(const struct ggml_tensor *t, void *user) {
    static const struct ggml_backend_meta_split_state whole = {
        .axis = GGML_BACKEND_SPLIT_AXIS_MIRRORED, .n_segments = 1, .nr = {1}};
    return is_whole ? whole : layer_state(t, user);
}

struct placed {
    struct layer l;
    ggml_backend_buffer_t weights;
};

static struct placed placed_new(ggml_backend_buffer_type_t buft) {
    struct placed p = {.l = layer_new((struct layer_dims){4, 512})};
    p.weights       = ggml_backend_alloc_ctx_tensors_from_buft(p.l.fixed, buft);
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

// The allocator knows the second graph: its tensors are as large. On each device they are larger, since nothing is split.
static void memory_of_another_split_grows(void **state) {
    (void) state;
    static int n = 2;
    static float split[OUT], whole[OUT], again[OUT];
    struct berth_meta_stats stats;
    ggml_backend_dev_t dev          = device(&n, state_of);
    ggml_backend_buffer_type_t buft = ggml_backend_dev_buffer_type(dev);
    ggml_backend_t backend          = ggml_backend_dev_init(dev, NULL);
    is_whole                        = false;
    struct placed a                 = placed_new(buft);
    is_whole                        = true;
    struct placed b                 = placed_new(buft);
    ggml_gallocr_t galloc           = ggml_gallocr_new(buft);
    assert_true(ggml_gallocr_alloc_graph(galloc, a.l.graph));
    const size_t before = ggml_gallocr_get_buffer_size(galloc, 0);
    compute(backend, &a, split);
    assert_true(berth_meta_stats(backend, &stats) && stats.n_grown == 0);
    assert_true(ggml_gallocr_alloc_graph(galloc, b.l.graph));
    compute(backend, &b, whole);
    assert_true(berth_meta_stats(backend, &stats) && stats.n_grown > 0);
    assert_true(ggml_gallocr_get_buffer_size(galloc, 0) > before);
    is_near(split, whole);
    assert_true(ggml_gallocr_alloc_graph(galloc, a.l.graph));
    compute(backend, &a, again);
    assert_memory_equal(again, split, sizeof split);
    ggml_gallocr_free(galloc);
    ggml_backend_free(backend);
    placed_free(&a);
    placed_free(&b);
}

// Two graphs that take turns: results of the one are there until the other is computed, and both are found again.
static void graphs_take_turns(void **state) {
    (void) state;
    static int n = 3;
    static float first[OUT], second[OUT];
    struct berth_meta_stats stats;
    ggml_backend_dev_t dev          = device(&n, layer_state);
    ggml_backend_buffer_type_t buft = ggml_backend_dev_buffer_type(dev);
    ggml_backend_t backend          = ggml_backend_dev_init(dev, NULL);
    struct placed a                 = placed_new(buft);
    struct ggml_context *ctx        = layer_ctx(8);
    struct ggml_tensor *twice       = ggml_scale(ctx, ggml_mul_mat(ctx, a.l.up, a.l.x), 2.0f);
    struct ggml_cgraph *other       = ggml_new_graph_custom(ctx, 256, false);
    ggml_gallocr_t galloc           = ggml_gallocr_new(buft);
    ggml_build_forward_expand(other, twice);
    for (int i = 0; i < 5; i++) {
        assert_true(ggml_gallocr_alloc_graph(galloc, a.l.graph));
        compute(backend, &a, i == 0 ? first : second);
        assert_true(ggml_gallocr_alloc_graph(galloc, other));
        ggml_backend_tensor_get(a.l.out, second, 0, sizeof second);
        assert_memory_equal(first, second, sizeof first);
        assert_int_equal(ggml_backend_graph_compute(backend, other), GGML_STATUS_SUCCESS);
    }
    assert_true(berth_meta_stats(backend, &stats) && stats.n_grown == 0 && stats.n_built == 2);
    ggml_gallocr_free(galloc);
    ggml_backend_free(backend);
    placed_free(&a);
    ggml_free(ctx);
}

// What a scheduler computes: an input that is set for each step, and products with weights that are split.
struct step {
    struct ggml_context *ctx;
    struct ggml_tensor *in, *out;
    struct ggml_cgraph *graph;
};

static struct step step_new(const struct layer *l, int64_t n_tokens) {
    struct step s = {.ctx = layer_ctx(8)};
    s.in          = ggml_new_tensor_2d(s.ctx, GGML_TYPE_F32, LAYER_EMBD, n_tokens);
    s.out         = ggml_mul_mat(s.ctx, l->down, ggml_mul_mat(s.ctx, l->up, s.in));
    s.graph       = ggml_new_graph_custom(s.ctx, 256, false);
    ggml_set_input(s.in);
    ggml_set_output(s.out);
    ggml_build_forward_expand(s.graph, s.out);
    return s;
}

// The first result, which is as many times as large as the input's values are.
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

// Nobody reserved: a graph that comes again after another one has its inputs where it is computed.
static void graphs_of_a_scheduler_take_turns(void **state) {
    (void) state;
    static int n              = 2;
    ggml_backend_dev_t dev    = device(&n, layer_state);
    ggml_backend_t backends[] = {ggml_backend_dev_init(dev, NULL), ggml_backend_cpu_init()};
    struct placed a           = placed_new(ggml_backend_dev_buffer_type(dev));
    struct step large = step_new(&a.l, LAYER_TOKENS), small = step_new(&a.l, 1);
    ggml_backend_sched_t sched = ggml_backend_sched_new(backends, NULL, 2, 64, false, false);
    const float once           = step_run(sched, &large, 1.0f);
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
        cmocka_unit_test(each_part_is_as_planned_alone),
        cmocka_unit_test(memory_of_another_split_grows),
        cmocka_unit_test(graphs_take_turns),
        cmocka_unit_test(graphs_of_a_scheduler_take_turns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
