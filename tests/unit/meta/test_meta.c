// SPDX-License-Identifier: MIT
// test_meta.c: a composite device: its properties, its memory, sums over devices by copies and by functions of the devices'
// registry, a repeated layer of a model, errors, and failing allocations.

#include "support/meta_layer.h"
#include "support/meta_split.h"

#include "backend/backend.h"

// ---- device ----

static void device_properties(void **state) {
    (void) state;
    static struct meta_split m = {.seed = 1, .n = 2, .only_axis = -1};
    ggml_backend_dev_t dev = meta_split_device(&m);
    struct ggml_backend_dev_props p = {0};
    size_t free_bytes, total, cpu_free, cpu_total;
    assert_non_null(dev);
    assert_ptr_equal(dev, meta_split_device(&m));
    assert_string_equal(ggml_backend_dev_name(dev), "Meta(CPU,CPU)");
    assert_int_equal(ggml_backend_dev_type(dev), GGML_BACKEND_DEVICE_TYPE_META);
    ggml_backend_dev_get_props(dev, &p);
    assert_true(p.caps.mmap_support);
    ggml_backend_dev_memory(dev, &free_bytes, &total);
    ggml_backend_dev_memory(layer_cpu(), &cpu_free, &cpu_total);
    assert_true(total == 2 * cpu_total);
    ggml_backend_buffer_type_t buft = ggml_backend_dev_buffer_type(dev);
    assert_true(ggml_backend_buft_is_meta(buft) && !ggml_backend_buft_is_meta(ggml_backend_cpu_buffer_type()));
    assert_false(ggml_backend_buft_is_host(buft)); // its addresses cannot be dereferenced
    assert_true(ggml_backend_dev_supports_buft(dev, buft));
    assert_false(ggml_backend_dev_supports_buft(dev, ggml_backend_cpu_buffer_type()));
    ggml_backend_t backend = ggml_backend_dev_init(dev, NULL);
    assert_true(ggml_backend_is_meta(backend));
    assert_int_equal(ggml_backend_meta_n_backends(backend), 2);
    assert_true(ggml_backend_is_cpu(ggml_backend_meta_simple_backend(backend, 1)));
    assert_null(ggml_backend_meta_simple_backend(backend, 2));
    ggml_backend_free(backend);
    assert_null(ggml_backend_meta_device(NULL, 2, NULL, NULL));
    assert_null(ggml_backend_meta_device(&dev, 1, NULL, NULL)); // a composite device of composite devices
    assert_string_equal(ggml_backend_meta_split_axis_name(GGML_BACKEND_SPLIT_AXIS_PARTIAL), "PARTIAL");
    assert_string_equal(ggml_backend_meta_split_axis_name(GGML_BACKEND_SPLIT_AXIS_2), "2");
}

// ---- memory ----

static void check_range(struct ggml_tensor *t, struct check_rng *rng, uint8_t *want, size_t size) {
    const size_t unit = ggml_type_size(t->type), from = check_rng_below(rng, size / unit) * unit;
    const size_t len = (1 + check_rng_below(rng, (size - from) / unit)) * unit;
    uint8_t *bytes = malloc(size);
    ggml_backend_tensor_get(t, bytes, from, len);
    assert_memory_equal(bytes, want + from, len);
    for (size_t i = 0; i < len; i++) {
        want[from + i] = t->type == GGML_TYPE_F32 ? (uint8_t) (check_rng_next(rng) & 0x3F) : (uint8_t) check_rng_next(rng);
    }
    ggml_backend_tensor_set(t, want + from, from, len);
    ggml_backend_tensor_get(t, bytes, 0, size);
    assert_memory_equal(bytes, want, size);
    ggml_backend_tensor_memset(t, 0, from, len);
    memset(want + from, 0, len);
    ggml_backend_tensor_get(t, bytes, 0, size);
    assert_memory_equal(bytes, want, size);
    free(bytes);
}

// For every split, the bytes that were written are read back, completely and in any range.
static void bytes_are_scattered_and_gathered(void **state) {
    (void) state;
    static struct meta_split m[60];
    static const enum ggml_type types[] = {GGML_TYPE_F32, GGML_TYPE_Q4_0, GGML_TYPE_F16};
    struct check_rng rng = check_rng_new(check_seed(3));
    for (int i = 0; i < 60; i++) {
        m[i] = (struct meta_split){.seed = check_rng_next(&rng), .n = 2 + i % 3, .only_axis = -1, .may_be_sum = true};
        struct ggml_context *ctx = layer_ctx(8);
        ggml_backend_buffer_type_t buft = ggml_backend_dev_buffer_type(meta_split_device(&m[i]));
        for (int k = 0; k < 3; k++) {
            struct ggml_tensor *t = ggml_new_tensor_4d(ctx, types[k], 64, 6, 5, 4);
            ggml_format_name(t, "t%d", k);
        }
        ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors_from_buft(ctx, buft);
        assert_non_null(buffer);
        assert_true(ggml_backend_buffer_is_meta(buffer));
        ggml_backend_buffer_set_usage(buffer, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
        ggml_backend_buffer_clear(buffer, 0);
        for (struct ggml_tensor *t = ggml_get_first_tensor(ctx); t != NULL; t = ggml_get_next_tensor(ctx, t)) {
            const size_t size = ggml_nbytes(t);
            uint8_t *want = calloc(1, size);
            for (int n = 0; n < 5; n++) {
                check_range(t, &rng, want, size);
            }
            free(want);
        }
        ggml_backend_buffer_free(buffer);
        ggml_free(ctx);
    }
}

static struct ggml_backend_meta_split_state wrong_state(const struct ggml_tensor *t, void *user) {
    const int which = *(int *) user;
    struct ggml_backend_meta_split_state s = {.axis = GGML_BACKEND_SPLIT_AXIS_0, .n_segments = 1, .nr = {1}};
    // which 0: the parts have one element too many. 1: the first part has half a block. 2: too many segments. 3: no axis.
    s.ne[0] = which == 0 ? t->ne[0] : 16;
    s.ne[1] = which == 0 ? 1 : t->ne[0] - 16;
    s.n_segments = which == 2 ? 17 : 1;
    s.axis = which == 3 ? GGML_BACKEND_SPLIT_AXIS_NONE : s.axis;
    return s;
}

static void wrong_splits_are_refused(void **state) {
    (void) state;
    static int which[4] = {0, 1, 2, 3};
    ggml_backend_dev_t devs[] = {layer_cpu(), layer_cpu()};
    for (int i = 0; i < 4; i++) {
        ggml_backend_dev_t dev = ggml_backend_meta_device(devs, 2, wrong_state, &which[i]);
        struct ggml_context *ctx = layer_ctx(2);
        struct ggml_tensor *t = ggml_new_tensor_2d(ctx, GGML_TYPE_Q4_0, 64, 2);
        assert_null(ggml_backend_alloc_ctx_tensors_from_buft(ctx, ggml_backend_dev_buffer_type(dev)));
        assert_non_null(strstr(berth_last_error(), "split"));
        assert_null(t->buffer);
        ggml_free(ctx);
    }
}

// ---- one layer ----

// Computes the layer n_times and stores each result in out. Frees everything.
static enum ggml_status layer_run(ggml_backend_dev_t dev, int n_times, float *out, struct berth_meta_stats *stats) {
    enum ggml_status status = GGML_STATUS_ALLOC_FAILED;
    struct layer l = layer_new(layer_dims_usual);
    ggml_backend_buffer_type_t buft = ggml_backend_dev_buffer_type(dev);
    ggml_backend_buffer_t weights = ggml_backend_alloc_ctx_tensors_from_buft(l.fixed, buft);
    ggml_backend_t backend = weights != NULL ? ggml_backend_dev_init(dev, NULL) : NULL;
    ggml_gallocr_t galloc = backend != NULL ? ggml_gallocr_new(buft) : NULL;
    if (galloc != NULL && ggml_gallocr_alloc_graph(galloc, l.graph)) {
        layer_fill(&l);
        for (int i = 0; i < n_times; i++) {
            status = ggml_backend_graph_compute(backend, l.graph);
            if (status != GGML_STATUS_SUCCESS) {
                break;
            }
            ggml_backend_tensor_get(l.out, out + i * LAYER_EMBD * LAYER_TOKENS, 0, ggml_nbytes(l.out));
        }
    }
    if (stats != NULL && backend != NULL) {
        berth_meta_stats(backend, stats);
    }
    ggml_gallocr_free(galloc);
    ggml_backend_free(backend);
    ggml_backend_buffer_free(weights);
    layer_free(&l);
    return status;
}

static void layer_is_repeated(void **state) {
    (void) state;
    static int n_parts[] = {2, 3, 4};
    ggml_backend_dev_t devs[] = {layer_cpu(), layer_cpu(), layer_cpu(), layer_cpu()};
    static float want[LAYER_EMBD * LAYER_TOKENS], is[3 * LAYER_EMBD * LAYER_TOKENS];
    assert_int_equal(layer_run(layer_cpu(), 1, want, NULL), GGML_STATUS_SUCCESS);
    for (int i = 0; i < 3; i++) {
        struct berth_meta_stats stats = {0};
        ggml_backend_dev_t dev = ggml_backend_meta_device(devs, (size_t) n_parts[i], layer_state, &n_parts[i]);
        assert_int_equal(layer_run(dev, 3, is, &stats), GGML_STATUS_SUCCESS);
        assert_memory_equal(is, is + LAYER_EMBD * LAYER_TOKENS, sizeof want);
        assert_memory_equal(is, is + 2 * LAYER_EMBD * LAYER_TOKENS, sizeof want);
        for (int k = 0; k < LAYER_EMBD * LAYER_TOKENS; k++) {
            assert_true(is[k] - want[k] < 1e-4f && want[k] - is[k] < 1e-4f);
        }
        assert_int_equal(stats.n_graphs, 3);
        assert_int_equal(stats.n_cache_misses, 1);
        assert_int_equal(stats.n_sums, 3 * 2); // attention and feed-forward only
        assert_int_equal(stats.n_gathered, 0);
        assert_int_equal(stats.redistributed_size, 0);
    }
}

// Every allocation fails once. More than half of the runs fail, the others succeed. Nothing leaks.
static void allocations_fail(void **state) {
    (void) state;
    static int n = 2;
    ggml_backend_dev_t devs[] = {layer_cpu(), layer_cpu()};
    static float out[LAYER_EMBD * LAYER_TOKENS];
    ggml_backend_dev_t dev = ggml_backend_meta_device(devs, 2, layer_state, &n);
    assert_int_equal(layer_run(dev, 1, out, NULL), GGML_STATUS_SUCCESS);
    berth_alloc_watch(true);
    assert_int_equal(layer_run(dev, 1, out, NULL), GGML_STATUS_SUCCESS);
    const int64_t n_all = berth_alloc_made();
    berth_alloc_watch(false);
    int64_t n_failed = 0;
    for (int64_t at = 1; at <= n_all; at++) {
        berth_alloc_watch(true);
        berth_alloc_fail_at(at);
        const enum ggml_status status = layer_run(dev, 1, out, NULL);
        berth_alloc_fail_at(0);
        const int64_t alive = berth_alloc_alive();
        berth_alloc_watch(false);
        if (alive != 0) {
            fail_msg("allocation %lld of %lld: %lld left", (long long) at, (long long) n_all, (long long) alive);
        }
        n_failed += status != GGML_STATUS_SUCCESS;
    }
    printf("%lld of %lld failing allocations caused an error\n", (long long) n_failed, (long long) n_all);
    assert_true(n_failed > n_all / 2);
}

// ---- sums by functions of the devices' registry ----

static struct {
    int n_init, n_free, n_sums;
    bool refuses;
} comm;

static void *comm_init(ggml_backend_t *backends, size_t n) {
    assert_true(ggml_backend_is_cpu(backends[n - 1]));
    comm.n_init++;
    return &comm;
}

static void comm_free(void *ctx) {
    assert_ptr_equal(ctx, &comm);
    comm.n_free++;
}

static bool comm_allreduce(void *ctx, struct ggml_tensor **tensors) {
    assert_ptr_equal(ctx, &comm);
    if (comm.refuses) {
        return false;
    }
    comm.n_sums++;
    float *a = tensors[0]->data, *b = tensors[1]->data;
    for (int64_t i = 0; i < ggml_nelements(tensors[0]); i++) {
        a[i] = b[i] = a[i] + b[i];
    }
    return true;
}

static void *comm_proc(ggml_backend_reg_t reg, const char *name) {
    (void) reg;
    return strcmp(name, "ggml_backend_comm_init") == 0               ? (void *) (uintptr_t) comm_init
           : strcmp(name, "ggml_backend_comm_free") == 0             ? (void *) (uintptr_t) comm_free
           : strcmp(name, "ggml_backend_comm_allreduce_tensor") == 0 ? (void *) (uintptr_t) comm_allreduce
                                                                     : NULL;
}

static void registry_functions_sum(void **state) {
    (void) state;
    static int n = 2;
    static struct ggml_backend_reg reg = {.api_version = GGML_BACKEND_API_VERSION, .iface = {.get_proc_address = comm_proc}};
    static struct ggml_backend_device parts[2];
    static float want[LAYER_EMBD * LAYER_TOKENS], is[LAYER_EMBD * LAYER_TOKENS];
    parts[0] = parts[1] = *layer_cpu();
    parts[0].reg = parts[1].reg = &reg;
    ggml_backend_dev_t devs[] = {&parts[0], &parts[1]}, plain[] = {layer_cpu(), layer_cpu()};
    ggml_backend_dev_t dev = ggml_backend_meta_device(devs, 2, layer_state, &n);
    assert_int_equal(layer_run(ggml_backend_meta_device(plain, 2, layer_state, &n), 1, want, NULL), GGML_STATUS_SUCCESS);
    for (int i = 0; i < 2; i++) {
        comm.refuses = i == 1;
        assert_int_equal(layer_run(dev, 1, is, NULL), GGML_STATUS_SUCCESS);
        assert_memory_equal(is, want, sizeof want); // the sum of two numbers does not depend on their order
        assert_int_equal(comm.n_sums, 2);
        assert_int_equal(comm.n_init, i + 1);
        assert_int_equal(comm.n_free, i + 1);
    }
}

int main(void) {
    check_quiet();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(device_properties),
        cmocka_unit_test(bytes_are_scattered_and_gathered),
        cmocka_unit_test(wrong_splits_are_refused),
        cmocka_unit_test(layer_is_repeated),
        cmocka_unit_test(allocations_fail),
        cmocka_unit_test(registry_functions_sum),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
