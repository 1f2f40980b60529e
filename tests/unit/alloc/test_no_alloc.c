// SPDX-License-Identifier: MIT
// test_no_alloc.c: after a graph is reserved, computing it, or an equal graph in which no tensor is larger, allocates no memory. A
// thousand steps over a dozen shapes run with every allocation failing, Berth's and libc's: on the CPU, on devices with copies
// between them, with several graphs in flight, and on a composite device. The results equal those of a backend that reserved
// nothing.

#include "berth-cpu.h"
#include "berth-meta.h"
#include "support/check.h"
#include "support/device.h"
#include "support/libc_fail.h"

enum {
    WIDTH = 64,
    HEADS = 4,
    HEAD = WIDTH / HEADS,
    TOKENS = 32,
    KEYS = 600,
    VOCAB = 96,
    N_SHAPES = 12,
    N_STEPS = 1000 / CHECK_PART
};

// ---- a model of one layer, with weights on the backends ----

enum { W_Q, W_OUT, W_VOCAB, KEYS_K, KEYS_V, N_PLACED };

struct shape {
    struct ggml_context *ctx;
    struct ggml_cgraph *graph;
    struct ggml_tensor *x, *pos, *mask, *out;
    int n, n_kv;
    float want[VOCAB * TOKENS];
};

// A rig is a set of backends with the weights of the model on them, and graphs of all shapes.
struct rig {
    struct device dev[2];
    int n_devices;              // number of entries in dev
    ggml_backend_t backends[3]; // the CPU is the last
    int n_backends;
    bool is_meta; // the first backend is a composite device of two devices, which has all weights
    struct ggml_context *ctx;
    struct ggml_tensor *placed[N_PLACED];
    ggml_backend_buffer_t buffers[N_PLACED];
    struct shape shapes[N_SHAPES];
};

// Fills a tensor with values that depend only on the seed, so that the weights are the same in every rig.
static void placed_fill(struct ggml_tensor *t, uint64_t seed) {
    static uint8_t bytes[KEYS * WIDTH * sizeof(float)];
    static float values[KEYS * WIDTH];
    struct check_rng rng = check_rng_new(seed + 7);
    const int64_t n = ggml_nelements(t);
    for (int64_t i = 0; i < n; i++) {
        values[i] = (float) (int64_t) (check_rng_below(&rng, 2001) - 1000) / 2000.0f;
    }
    ggml_quantize_chunk(t->type, values, bytes, 0, ggml_nrows(t), t->ne[0], NULL);
    ggml_backend_tensor_set(t, t->type == GGML_TYPE_F32 ? (const void *) values : bytes, 0, ggml_nbytes(t));
}

static void placed_make(struct rig *r) {
    struct ggml_init_params params = {.mem_size = 1 << 16, .no_alloc = true};
    r->ctx = ggml_init(params);
    r->placed[W_Q] = ggml_new_tensor_2d(r->ctx, GGML_TYPE_Q4_0, WIDTH, WIDTH);
    r->placed[W_OUT] = ggml_new_tensor_2d(r->ctx, GGML_TYPE_F32, WIDTH, WIDTH);
    r->placed[W_VOCAB] = ggml_new_tensor_2d(r->ctx, GGML_TYPE_Q8_0, WIDTH, VOCAB);
    r->placed[KEYS_K] = ggml_new_tensor_3d(r->ctx, GGML_TYPE_F16, HEAD, KEYS, HEADS);
    r->placed[KEYS_V] = ggml_new_tensor_3d(r->ctx, GGML_TYPE_F16, HEAD, KEYS, HEADS);
    for (int i = 0; i < N_PLACED; i++) {
        ggml_backend_t backend = r->backends[r->is_meta ? 0 : i % r->n_backends];
        ggml_format_name(r->placed[i], "%d", i);
        r->buffers[i] = ggml_backend_alloc_buffer(backend, ggml_nbytes(r->placed[i]));
        ggml_backend_buffer_set_usage(r->buffers[i], GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
        assert_int_equal(ggml_backend_tensor_alloc(r->buffers[i], r->placed[i], ggml_backend_buffer_get_base(r->buffers[i])), 0);
        placed_fill(r->placed[i], (uint64_t) i);
    }
}

static struct ggml_tensor *keys(struct ggml_context *ctx, struct ggml_tensor *t, int n_kv) {
    return ggml_view_3d(ctx, t, HEAD, n_kv, HEADS, t->nb[1], t->nb[2], 0);
}

static void shape_make(const struct rig *r, struct shape *s, int n, int n_kv) {
    struct ggml_init_params params = {.mem_size = 1 << 17, .no_alloc = true};
    struct ggml_context *ctx = s->ctx = ggml_init(params);
    s->n = n;
    s->n_kv = n_kv;
    s->x = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, WIDTH, n);
    s->pos = ggml_new_tensor_1d(ctx, GGML_TYPE_I32, n);
    s->mask = ggml_new_tensor_2d(ctx, GGML_TYPE_F16, n_kv, n);
    s->graph = ggml_new_graph_custom(ctx, 64, false);
    ggml_set_input(s->x);
    ggml_set_input(s->pos);
    ggml_set_input(s->mask);
    struct ggml_tensor *q = ggml_mul_mat(ctx, r->placed[W_Q], ggml_rms_norm(ctx, s->x, 1e-5f));
    q = ggml_rope(ctx, ggml_reshape_3d(ctx, q, HEAD, HEADS, n), s->pos, HEAD, 0);
    struct ggml_tensor *seen = ggml_flash_attn_ext(ctx, ggml_permute(ctx, q, 0, 2, 1, 3), keys(ctx, r->placed[KEYS_K], n_kv),
        keys(ctx, r->placed[KEYS_V], n_kv), s->mask, 0.25f, 0.0f, 0.0f);
    struct ggml_tensor *y = ggml_mul_mat(ctx, r->placed[W_OUT], ggml_reshape_2d(ctx, seen, WIDTH, n));
    y = ggml_silu(ctx, ggml_add(ctx, y, s->x));
    s->out = ggml_soft_max(ctx, ggml_mul_mat(ctx, r->placed[W_VOCAB], y));
    ggml_set_output(s->out);
    ggml_build_forward_expand(s->graph, s->out);
}

static void inputs_set(const struct shape *s) {
    static float x[WIDTH * TOKENS];
    static ggml_fp16_t mask[KEYS * TOKENS];
    static int32_t pos[TOKENS];
    for (int i = 0; i < WIDTH * s->n; i++) {
        x[i] = (float) (i * 37 % 101 - 50) / 50.0f;
    }
    for (int i = 0; i < s->n; i++) {
        pos[i] = i;
        memset(mask + i * s->n_kv, 0, (size_t) s->n_kv * sizeof mask[0]);
    }
    ggml_backend_tensor_set(s->x, x, 0, ggml_nbytes(s->x));
    ggml_backend_tensor_set(s->pos, pos, 0, ggml_nbytes(s->pos));
    ggml_backend_tensor_set(s->mask, mask, 0, ggml_nbytes(s->mask));
}

// The first shape is the largest. The others have fewer tokens, fewer keys or both, and use every code path for products with few
// columns.
static void shapes_make(struct rig *r) {
    static const int tokens[N_SHAPES] = {TOKENS, 1, 2, 3, 4, 7, 8, 13, 16, 31, TOKENS, 1};
    static const int n_keys[N_SHAPES] = {KEYS, KEYS, 512, 257, 599, 300, 256, 64, 400, 100, 32, 16};
    for (int i = 0; i < N_SHAPES; i++) {
        shape_make(r, &r->shapes[i], tokens[i], n_keys[i]);
    }
}

// ---- rigs ----

static void *reg_proc(ggml_backend_reg_t reg, const char *name);

static struct ggml_backend_reg reg = {.api_version = GGML_BACKEND_API_VERSION, .iface = {.get_proc_address = reg_proc}};

// A test device computes on its own CPU backend, which has the work memory.
static enum ggml_status device_reserve(ggml_backend_t backend, const struct ggml_cgraph *graph) {
    return berth_cpu_reserve(((struct device *) backend->context)->cpu, graph);
}

static void *reg_proc(ggml_backend_reg_t of, const char *name) {
    (void) of;
    void *address = NULL;
    enum ggml_status (*proc)(ggml_backend_t, const struct ggml_cgraph *) = device_reserve;
    if (strcmp(name, "berth_backend_reserve") == 0) {
        memcpy(&address, &proc, sizeof address);
    }
    return address;
}

static void devices_init(struct rig *r, int n_devices, bool async) {
    memset(r, 0, sizeof *r);
    r->n_devices = n_devices;
    for (int d = 0; d < n_devices; d++) {
        device_init(&r->dev[d], d == 0 ? "first" : "second");
        r->dev[d].dev.reg = &reg;
        r->dev[d].is_async = async;
        r->dev[d].has_events = async;
        r->dev[d].copies_async = async;
        r->backends[d] = device_start(&r->dev[d]);
    }
}

static void cpu_add(struct rig *r, int n_threads) {
    ggml_backend_t cpu = r->backends[r->n_backends++] = ggml_backend_cpu_init();
    ggml_backend_cpu_set_n_threads(cpu, n_threads);
    placed_make(r);
    shapes_make(r);
}

static void rig_init(struct rig *r, int n_devices, bool async, int n_threads) {
    devices_init(r, n_devices, async);
    r->n_backends = n_devices;
    cpu_add(r, n_threads);
}

// Heads and vocabulary are split over the devices, and the results of attention are summed. So the composite device has a step of
// every kind.
static struct ggml_backend_meta_split_state split_of(const struct ggml_tensor *t, void *user) {
    static const enum ggml_backend_meta_split_axis axes[N_PLACED] = {GGML_BACKEND_SPLIT_AXIS_1, GGML_BACKEND_SPLIT_AXIS_0,
        GGML_BACKEND_SPLIT_AXIS_1, GGML_BACKEND_SPLIT_AXIS_2, GGML_BACKEND_SPLIT_AXIS_2};
    struct ggml_backend_meta_split_state s = {.axis = axes[atoi(t->name)], .n_segments = 1, .nr = {1}};
    (void) user;
    s.ne[0] = s.ne[1] = t->ne[s.axis] / 2;
    return s;
}

// The composite device has two devices with separate memory, or the CPU twice.
static void rig_init_meta(struct rig *r, int n_devices) {
    ggml_backend_dev_t cpu = ggml_backend_reg_dev_get(ggml_backend_cpu_reg(), 0), parts[] = {cpu, cpu};
    devices_init(r, n_devices, false);
    for (int d = 0; d < n_devices; d++) {
        parts[d] = &r->dev[d].dev;
    }
    r->is_meta = true;
    r->backends[0] = ggml_backend_dev_init(ggml_backend_meta_device(parts, 2, split_of, NULL), NULL);
    r->n_backends = 1;
    assert_true(ggml_backend_is_meta(r->backends[0]));
    cpu_add(r, 1);
}

static void shapes_free(struct rig *r) {
    for (int i = 0; i < N_SHAPES; i++) {
        ggml_free(r->shapes[i].ctx);
    }
}

static void rig_fini(struct rig *r) {
    shapes_free(r);
    ggml_free(r->ctx);
    for (int i = 0; i < N_PLACED; i++) {
        ggml_backend_buffer_free(r->buffers[i]);
    }
    if (r->is_meta) {
        ggml_backend_free(r->backends[0]);
    }
    for (int d = 0; d < r->n_devices; d++) {
        assert_int_equal(r->dev[d].n_buffers, 0);
        device_stop(&r->dev[d]);
    }
    ggml_backend_free(r->backends[r->n_backends - 1]);
}

// Computes the expected results on a CPU backend without reserving.
static void answers(struct rig *of) {
    struct rig plain;
    rig_init(&plain, 0, false, 1);
    for (int i = 0; i < N_SHAPES; i++) {
        struct shape *s = &plain.shapes[i];
        ggml_gallocr_t galloc = ggml_gallocr_new(ggml_backend_cpu_buffer_type());
        assert_true(ggml_gallocr_alloc_graph(galloc, s->graph));
        inputs_set(s);
        assert_int_equal(ggml_backend_graph_compute(plain.backends[0], s->graph), GGML_STATUS_SUCCESS);
        ggml_backend_tensor_get(s->out, of->shapes[i].want, 0, ggml_nbytes(s->out));
        ggml_gallocr_free(galloc);
    }
    rig_fini(&plain);
}

// ---- check ----

static bool is_right(const struct shape *s) {
    static float got[VOCAB * TOKENS];
    ggml_backend_tensor_get(s->out, got, 0, ggml_nbytes(s->out));
    return memcmp(got, s->want, ggml_nbytes(s->out)) == 0;
}

struct count {
    int n_failed, n_wrong; // computes that failed; computes with a wrong result
    int64_t n_made;        // allocations
};

// Starts (on) or stops counting Berth's allocations. with_libc: libc's allocations fail, too; false if a test device needs them.
static void arm(bool on, bool with_libc) {
    atomic_store(&n_asked, 0);
    berth_alloc_watch(on);
    berth_alloc_fail_at(0);
    atomic_store(&must_fail, on && with_libc);
}

static struct count disarm(struct count c) {
    atomic_store(&must_fail, false);
    c.n_made = berth_alloc_made() + atomic_load(&n_asked);
    berth_alloc_watch(false);
    return c;
}

static void expect_no_allocation(struct count c) {
    assert_int_equal(c.n_failed, 0);
    assert_int_equal(c.n_wrong, 0);
    assert_int_equal(c.n_made, 0);
}

// Visits the shapes in an order in which a cache of the last few shapes has few hits.
static int shape_at(int step) {
    return (step * 7 + step / N_SHAPES * 5) % N_SHAPES;
}

static struct count sched_steps(struct rig *r, ggml_backend_sched_t sched, int n_steps, bool with_libc) {
    struct count c = {0};
    arm(true, with_libc);
    for (int i = 0; i < n_steps; i++) {
        const struct shape *s = &r->shapes[shape_at(i)];
        ggml_backend_sched_reset(sched);
        const bool has_memory = ggml_backend_sched_alloc_graph(sched, s->graph);
        if (has_memory) {
            inputs_set(s);
        }
        if (!has_memory || ggml_backend_sched_graph_compute(sched, s->graph) != GGML_STATUS_SUCCESS) {
            c.n_failed++;
        } else {
            c.n_wrong += !is_right(s);
        }
    }
    return disarm(c);
}

static void check_rig(struct rig *r, bool with_libc, bool parallel) {
    answers(r);
    ggml_backend_sched_t sched = ggml_backend_sched_new(r->backends, NULL, r->n_backends, 64, parallel, true);
    assert_true(ggml_backend_sched_reserve(sched, r->shapes[0].graph));
    expect_no_allocation(sched_steps(r, sched, N_STEPS, with_libc));
    ggml_backend_sched_free(sched);
    rig_fini(r);
}

static void check_with(int n_devices, bool async, int n_threads, bool parallel) {
    static struct rig r;
    rig_init(&r, n_devices, async, n_threads);
    check_rig(&r, !async, parallel);
}

// The device computes with weights of the host, which the scheduler copies early.
static void weights_of_the_host(void **state) {
    static struct rig r;
    (void) state;
    rig_init(&r, 1, true, 1);
    r.dev[0].offload_batch = 1;
    check_rig(&r, false, false);
    assert_true(r.dev[0].n_async_sets > 0);
}

// The device keeps copies of the weights of the host. Until they are filled, the device computes only graphs of 4 tokens or more.
// Afterwards it computes all graphs.
static void resident_copies(void **state) {
    static struct rig r;
    struct shape few;
    (void) state;
    rig_init(&r, 1, false, 1);
    r.dev[0].offload_batch = 4;
    answers(&r);
    ggml_backend_sched_t sched = ggml_backend_sched_new(r.backends, NULL, r.n_backends, 64, false, true);
    berth_sched_set_resident_limit(sched, r.backends[0], 1 << 20);
    shape_make(&r, &few, 3, KEYS);
    assert_true(ggml_backend_sched_reserve(sched, r.shapes[0].graph));
    assert_true(ggml_backend_sched_reserve(sched, few.graph));
    expect_no_allocation(sched_steps(&r, sched, N_STEPS, true));
    const int n_before = r.dev[0].n_computes;
    expect_no_allocation(sched_steps(&r, sched, N_SHAPES, true));
    assert_true(r.dev[0].n_computes >= n_before + N_SHAPES);
    ggml_backend_sched_free(sched);
    ggml_free(few.ctx);
    rig_fini(&r);
}

static void one_thread(void **state) {
    (void) state;
    check_with(0, false, 1, false);
}

static void two_threads(void **state) {
    (void) state;
    check_with(0, false, 2, false);
}

static void devices_with_copies(void **state) {
    (void) state;
    check_with(2, false, 1, false);
}

static void devices_at_once(void **state) {
    (void) state;
    check_with(2, true, 1, false);
}

static void graphs_in_flight(void **state) {
    (void) state;
    check_with(2, true, 1, true);
    check_with(2, false, 1, true);
}

// Computes the expected results on a composite device without reserving; its sums round differently from those of one device.
static void meta_answers(struct rig *of) {
    static struct rig plain;
    rig_init_meta(&plain, of->n_devices);
    for (int i = 0; i < N_SHAPES; i++) {
        const struct shape *s = &plain.shapes[i];
        ggml_backend_sched_t sched = ggml_backend_sched_new(plain.backends, NULL, plain.n_backends, 64, false, true);
        assert_true(ggml_backend_sched_alloc_graph(sched, s->graph));
        inputs_set(s);
        assert_int_equal(ggml_backend_sched_graph_compute(sched, s->graph), GGML_STATUS_SUCCESS);
        ggml_backend_tensor_get(s->out, of->shapes[i].want, 0, ggml_nbytes(s->out));
        ggml_backend_sched_free(sched);
    }
    rig_fini(&plain);
}

static void meta_check_with(int n_devices) {
    static struct rig r;
    struct berth_meta_stats stats;
    rig_init_meta(&r, n_devices);
    meta_answers(&r);
    ggml_backend_sched_t sched = ggml_backend_sched_new(r.backends, NULL, r.n_backends, 64, false, true);
    assert_true(ggml_backend_sched_reserve(sched, r.shapes[0].graph));
    expect_no_allocation(sched_steps(&r, sched, N_STEPS, true));
    assert_true(berth_meta_stats(r.backends[0], &stats));
    assert_true(stats.n_sums >= N_STEPS && stats.n_cache_misses > N_STEPS / 2); // new programs were made during the steps
    ggml_backend_sched_free(sched);
    rig_fini(&r);
}

static void device_of_two(void **state) {
    (void) state;
    meta_check_with(0);
}

static void device_of_two_with_copies(void **state) {
    (void) state;
    meta_check_with(2);
}

// A composite device plans the memory of each of its devices. These plans are freed too.
static void plans_of_a_device_of_two_are_freed(void **state) {
    (void) state;
    static struct rig r;
    for (int round = 0; round < 2; round++) { // the first round also makes what lasts as long as the process
        berth_alloc_watch(true);
        rig_init_meta(&r, 0);
        ggml_backend_sched_t sched = ggml_backend_sched_new(r.backends, NULL, r.n_backends, 64, false, true);
        for (int i = 0; i < N_SHAPES; i++) {
            assert_true(ggml_backend_sched_reserve(sched, r.shapes[i].graph));
            assert_true(ggml_backend_sched_alloc_graph(sched, r.shapes[i].graph));
        }
        ggml_backend_sched_free(sched);
        rig_fini(&r);
        assert_true(round == 0 || berth_alloc_alive() == 0);
        berth_alloc_watch(false);
    }
}

// Computes graphs of several shapes, without calls of ggml_backend_sched_alloc_graph. No step allocates memory.
static void without_alloc(void **state) {
    (void) state;
    static struct rig r;
    rig_init(&r, 2, false, 1);
    ggml_backend_sched_t sched = ggml_backend_sched_new(r.backends, NULL, r.n_backends, 64, false, true);
    assert_true(ggml_backend_sched_reserve(sched, r.shapes[0].graph));
    struct count c = {0};
    arm(true, true);
    for (int i = 0; i < N_STEPS; i++) {
        c.n_failed += ggml_backend_sched_graph_compute(sched, r.shapes[shape_at(i)].graph) != GGML_STATUS_SUCCESS;
    }
    expect_no_allocation(disarm(c));
    ggml_backend_sched_free(sched);
    rig_fini(&r);
}

// Three graphs are reserved. The second is the largest, so the first then gets other addresses. Computing any of them still
// allocates nothing.
static void several_reserved(void **state) {
    (void) state;
    static struct rig r;
    rig_init(&r, 2, false, 1);
    answers(&r);
    ggml_backend_sched_t sched = ggml_backend_sched_new(r.backends, NULL, r.n_backends, 64, false, true);
    assert_true(ggml_backend_sched_reserve(sched, r.shapes[1].graph));
    assert_true(ggml_backend_sched_reserve(sched, r.shapes[0].graph));
    assert_true(ggml_backend_sched_reserve(sched, r.shapes[2].graph));
    expect_no_allocation(sched_steps(&r, sched, N_STEPS, true));
    ggml_backend_sched_free(sched);
    rig_fini(&r);
}

static void allocator_and_backend(void **state) {
    (void) state;
    for (int n_threads = 1; n_threads <= 2; n_threads++) {
        static struct rig r;
        rig_init(&r, 0, false, n_threads);
        answers(&r);
        ggml_gallocr_t galloc = ggml_gallocr_new(ggml_backend_cpu_buffer_type());
        assert_true(ggml_gallocr_reserve(galloc, r.shapes[0].graph));
        assert_int_equal(berth_backend_reserve(r.backends[0], r.shapes[0].graph), GGML_STATUS_SUCCESS);
        assert_int_equal(berth_cpu_work_size(r.backends[0]), berth_backend_reserve_size(r.backends[0], r.shapes[0].graph));
        struct count c = {0};
        arm(true, true);
        for (int i = 0; i < N_STEPS; i++) {
            const struct shape *s = &r.shapes[shape_at(i)];
            const bool has_memory = ggml_gallocr_alloc_graph(galloc, s->graph);
            if (has_memory) {
                inputs_set(s);
            }
            if (!has_memory || ggml_backend_graph_compute(r.backends[0], s->graph) != GGML_STATUS_SUCCESS) {
                c.n_failed++;
            } else {
                c.n_wrong += !is_right(s);
            }
        }
        expect_no_allocation(disarm(c));
        ggml_gallocr_free(galloc);
        rig_fini(&r);
    }
}

// ---- work memory of single ops ----

struct extents {
    int64_t n_in, n_out, n_cols, n_batch, n_experts, n_kv;
};

static struct extents extents_below(struct check_rng *rng, const struct extents *most) {
    struct extents e = *most;
    int64_t *const all = &e.n_in;
    for (int i = 0; i < 6; i++) {
        all[i] = 1 + (int64_t) check_rng_below(rng, (uint64_t) all[i]);
    }
    e.n_in = (e.n_in + 31) / 32 * 32; // a multiple of a block
    return e;
}

enum { N_KINDS = 6 };

static struct ggml_tensor *op_make(struct ggml_context *ctx, int kind, enum ggml_type type, const struct extents *e) {
    struct ggml_tensor *a, *b;
    switch (kind) {
        case 0:
            a = ggml_new_tensor_2d(ctx, type, e->n_in, e->n_out);
            b = ggml_new_tensor_3d(ctx, GGML_TYPE_F32, e->n_in, e->n_cols, e->n_batch);
            return ggml_mul_mat(ctx, a, b);
        case 1:
            a = ggml_new_tensor_3d(ctx, type, e->n_in, e->n_out, e->n_experts);
            b = ggml_new_tensor_3d(ctx, GGML_TYPE_F32, e->n_in, 1, e->n_cols);
            return ggml_mul_mat_id(ctx, a, b, ggml_new_tensor_2d(ctx, GGML_TYPE_I32, 1, e->n_cols));
        case 2:
            a = ggml_new_tensor_4d(ctx, GGML_TYPE_F16, 3, 3, e->n_batch * 4, e->n_out);
            b = ggml_new_tensor_4d(ctx, GGML_TYPE_F32, e->n_cols + 3, e->n_cols + 3, e->n_batch * 4, 1);
            return ggml_conv_2d_direct(ctx, a, b, 1, 1, 0, 0, 1, 1);
        case 3:
        case 4: // a part of a row, or all of it
            a = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, e->n_kv, e->n_cols);
            return kind == 3 ? ggml_top_k(ctx, a, (int) (8 * e->n_out < e->n_kv ? 8 * e->n_out : e->n_kv))
                             : ggml_argsort(ctx, a, GGML_SORT_ORDER_ASC);
        default:
            a = ggml_new_tensor_3d(ctx, GGML_TYPE_F32, e->n_in, e->n_cols, e->n_batch * 2);
            b = ggml_new_tensor_3d(ctx, GGML_TYPE_F16, e->n_in, e->n_kv, e->n_batch);
            return ggml_flash_attn_ext(ctx, a, b, b, NULL, 1.0f, 0.0f, 0.0f);
    }
}

// Returns the work memory of the op with extents e. is_most: returns the work memory that a reserve of this op takes. It must
// suffice for every op of the same kind whose extents are not larger.
static size_t op_work(ggml_backend_t backend, int kind, enum ggml_type type, const struct extents *e, bool is_most) {
    struct ggml_init_params params = {.mem_size = 1 << 14, .no_alloc = true};
    struct ggml_context *ctx = ggml_init(params);
    struct ggml_cgraph *graph = ggml_new_graph_custom(ctx, 8, false);
    ggml_build_forward_expand(graph, op_make(ctx, kind, type, e));
    const size_t size = is_most ? berth_cpu_reserve_size(backend, graph) : berth_cpu_graph_work_size(backend, graph);
    ggml_free(ctx);
    return size;
}

static void smaller_ops(void **state) {
    (void) state;
    static const enum ggml_type types[] = {GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_Q4_0, GGML_TYPE_Q8_0, GGML_TYPE_IQ4_NL};
    const struct extents most = {256, 64, 64, 4, 8, 4096};
    struct check_rng rng = check_rng_new(19);
    ggml_backend_t backend = ggml_backend_cpu_init();
    for (int i = 0; i < check_cases(4000); i++) {
        const int kind = (int) check_rng_below(&rng, N_KINDS);
        const enum ggml_type type = types[check_rng_below(&rng, 5)];
        const struct extents e = extents_below(&rng, &most), less = extents_below(&rng, &e);
        ggml_backend_cpu_set_n_threads(backend, 1 + (int) check_rng_below(&rng, 4));
        if (op_work(backend, kind, type, &less, false) > op_work(backend, kind, type, &e, true)) {
            fail_msg("case %d: op %d of %s takes %zu bytes, %zu were reserved for a larger one", i, kind, ggml_type_name(type),
                op_work(backend, kind, type, &less, false), op_work(backend, kind, type, &e, true));
        }
    }
    ggml_backend_free(backend);
}

// Proves that the watch works: a scheduler without a reserve allocates.
static void watch_sees_allocations(void **state) {
    (void) state;
    static struct rig r;
    rig_init(&r, 0, false, 1);
    answers(&r);
    ggml_backend_sched_t sched = ggml_backend_sched_new(r.backends, NULL, r.n_backends, 64, false, true);
    const struct count c = sched_steps(&r, sched, N_SHAPES, true);
    assert_true(c.n_failed > 0 || c.n_made > 0);
    ggml_backend_sched_free(sched);
    rig_fini(&r);
}

// The n-th allocation of a reserve fails, for every n. The reserve then fails, or it succeeds because it does not need that
// allocation. After a failure, a second reserve succeeds.
static void failing_reserve(void **state) {
    (void) state;
    static struct rig r;
    rig_init(&r, 2, false, 1);
    answers(&r);
    int64_t n_all = 1;
    for (int64_t n = 1; n <= n_all; n++) {
        ggml_backend_sched_t sched = ggml_backend_sched_new(r.backends, NULL, r.n_backends, 64, false, true);
        berth_alloc_watch(true);
        berth_alloc_fail_at(n);
        const bool ok = ggml_backend_sched_reserve(sched, r.shapes[0].graph);
        berth_alloc_fail_at(0);
        n_all = ok ? n_all : n + 1;
        berth_alloc_watch(false);
        assert_true(ok || ggml_backend_sched_reserve(sched, r.shapes[0].graph));
        if (n % 16 == 1) {
            expect_no_allocation(sched_steps(&r, sched, 2 * N_SHAPES, true));
        }
        ggml_backend_sched_free(sched);
        shapes_free(&r); // their addresses belonged to the freed scheduler
        shapes_make(&r);
    }
    assert_true(n_all > 20);
    rig_fini(&r);
}

int main(void) {
    check_quiet();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_thread),
        cmocka_unit_test(two_threads),
        cmocka_unit_test(devices_with_copies),
        cmocka_unit_test(devices_at_once),
        cmocka_unit_test(weights_of_the_host),
        cmocka_unit_test(resident_copies),
        cmocka_unit_test(graphs_in_flight),
        cmocka_unit_test(device_of_two),
        cmocka_unit_test(device_of_two_with_copies),
        cmocka_unit_test(plans_of_a_device_of_two_are_freed),
        cmocka_unit_test(without_alloc),
        cmocka_unit_test(several_reserved),
        cmocka_unit_test(allocator_and_backend),
        cmocka_unit_test(smaller_ops),
        cmocka_unit_test(watch_sees_allocations),
        cmocka_unit_test(failing_reserve),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
