// SPDX-License-Identifier: MIT
// prop_sched_rival.c: compares the bytes that Berth's scheduler and the reference's scheduler reserve, on random graphs over two
// or three devices.

#include "support/check.h"
#include "support/device_plain.h"
#include "support/oracle.h"

#include "ggml-backend.h"

enum { N_DEVICES = 3, N_WEIGHTS = 6, N_NODES = 40, WIDTH = 16 };

#define FUNCTIONS(X) \
    X(ggml_backend_buffer_init) \
    X(ggml_backend_buffer_free) \
    X(ggml_backend_buffer_get_base) \
    X(ggml_backend_buffer_set_usage) \
    X(ggml_backend_buft_alloc_buffer) \
    X(ggml_backend_tensor_alloc) \
    X(ggml_backend_sched_new) \
    X(ggml_backend_sched_free) \
    X(ggml_backend_sched_reserve) \
    X(ggml_backend_sched_get_n_splits) \
    X(ggml_backend_sched_get_buffer_size)

struct sched_api {
#define X(f) __typeof__(f) *f;
    FUNCTIONS(X)
#undef X
};

// ---- a random graph ----

struct net {
    struct ggml_context *ctx;
    struct ggml_cgraph *graph;
    struct ggml_tensor *weights[N_WEIGHTS];
    struct ggml_tensor *t[N_NODES + 4]; // with WIDTH columns each
    int n;
};

static struct ggml_tensor *pick(const struct net *net, struct check_rng *r) {
    const int back = check_rng_below(r, 3) == 0 || net->n < 4 ? net->n : 4;
    return net->t[net->n - 1 - (int) check_rng_below(r, (uint64_t) back)];
}

// Returns a view of n_rows rows of a random weight; 0: a complete weight, or a view of any number of rows. NULL: the weight has
// fewer rows.
static struct ggml_tensor *weight(const struct net *net, struct check_rng *r, int64_t n_rows) {
    struct ggml_tensor *w = net->weights[check_rng_below(r, N_WEIGHTS)];
    if (n_rows == 0 && check_rng_below(r, 2) == 0) {
        return w;
    }
    n_rows = n_rows > 0 ? n_rows : WIDTH * (1 + (int64_t) check_rng_below(r, (uint64_t) w->ne[1] / WIDTH));
    return n_rows <= w->ne[1] ? ggml_view_2d(net->ctx, w, WIDTH, n_rows, w->nb[1], 0) : NULL;
}

static struct ggml_tensor *op(const struct net *net, struct check_rng *r) {
    struct ggml_tensor *a = pick(net, r), *b = pick(net, r), *w = NULL;
    switch (check_rng_below(r, 8)) {
        case 0: return ggml_scale(net->ctx, a, 2.0f);
        case 1: return ggml_rms_norm(net->ctx, a, 1e-5f);
        case 2: return ggml_can_repeat(b, a) ? ggml_add(net->ctx, a, b) : NULL;
        case 3: return a->ne[1] + b->ne[1] < 256 ? ggml_concat(net->ctx, a, b, 1) : NULL;
        case 4: // a product with a complete weight or a part of it, reshaped to WIDTH columns
            w = weight(net, r, check_rng_below(r, 2) == 0 ? WIDTH : 0);
            a = ggml_mul_mat(net->ctx, w, a);
            return ggml_reshape_2d(net->ctx, a, WIDTH, ggml_nelements(a) / WIDTH);
        case 5: w = weight(net, r, a->ne[1]); return w != NULL ? ggml_add(net->ctx, a, w) : NULL;
        case 6: w = weight(net, r, 1); return ggml_mul(net->ctx, a, w);
        default: return ggml_silu(net->ctx, a);
    }
}

static void net_build(struct net *net, struct check_rng *r, const struct sched_api *s, struct plain_device *devices,
    int n_devices, ggml_backend_buffer_t *buffers) {
    const size_t size = 256 * ggml_tensor_overhead() + ggml_graph_overhead_custom(256, false);
    *net = (struct net){.ctx = ggml_init((struct ggml_init_params){.mem_size = size, .no_alloc = true})};
    net->graph = ggml_new_graph_custom(net->ctx, 256, false);
    for (int i = 0; i < N_WEIGHTS; i++) {
        struct ggml_tensor *w = ggml_new_tensor_2d(net->ctx, GGML_TYPE_F32, WIDTH, WIDTH * (1 + (int64_t) check_rng_below(r, 4)));
        buffers[i] = s->ggml_backend_buft_alloc_buffer(&devices[check_rng_below(r, (uint64_t) n_devices)].buft, ggml_nbytes(w));
        s->ggml_backend_buffer_set_usage(buffers[i], GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
        assert_int_equal(s->ggml_backend_tensor_alloc(buffers[i], w, s->ggml_backend_buffer_get_base(buffers[i])), 0);
        net->weights[i] = w;
    }
    for (int i = 0; i < 2; i++) {
        net->t[net->n] = ggml_new_tensor_2d(net->ctx, GGML_TYPE_F32, WIDTH, 1 + (int64_t) check_rng_below(r, 32));
        ggml_set_input(net->t[net->n++]);
    }
    for (int i = 2 + (int) check_rng_below(r, N_NODES - 2); i > 0; i--) {
        struct ggml_tensor *t = op(net, r);
        if (t == NULL || t->ne[1] > 512) {
            continue;
        }
        if (check_rng_below(r, 12) == 0) {
            ggml_set_output(t);
        }
        net->t[net->n++] = t;
        if (check_rng_below(r, 4) != 0) {
            ggml_build_forward_expand(net->graph, t);
        }
    }
    ggml_set_output(net->t[net->n - 1]);
    ggml_build_forward_expand(net->graph, net->t[net->n - 1]);
    assert_string_equal(berth_context_error(net->ctx), "");
}

static size_t reserved_bytes(const struct sched_api *s, uint64_t seed) {
    struct check_rng r = check_rng_new(seed ^ 0x5C4ED);
    struct plain_device devices[N_DEVICES];
    ggml_backend_t backends[N_DEVICES];
    ggml_backend_buffer_t buffers[N_WEIGHTS];
    const int n_devices = 2 + (int) check_rng_below(&r, N_DEVICES - 1);
    struct net net;
    for (int d = 0; d < n_devices; d++) {
        plain_device_init(&devices[d], s->ggml_backend_buffer_init, d == n_devices - 1);
        backends[d] = &devices[d].backend;
    }
    net_build(&net, &r, s, devices, n_devices, buffers);
    ggml_backend_sched_t sched = s->ggml_backend_sched_new(backends, NULL, n_devices, 256, false, false);
    assert_true(s->ggml_backend_sched_reserve(sched, net.graph));
    size_t total = 0;
    for (int d = 0; d < n_devices; d++) {
        total += s->ggml_backend_sched_get_buffer_size(sched, backends[d]);
    }
    s->ggml_backend_sched_free(sched);
    for (int i = 0; i < N_WEIGHTS; i++) {
        s->ggml_backend_buffer_free(buffers[i]);
    }
    ggml_free(net.ctx);
    return total;
}

static bool apis_load(struct sched_api *own, struct sched_api *reference) {
    void *base = oracle_load("libggml-base.so");
    bool all = base != NULL;
#define X(f) \
    own->f = f; \
    all = all && (*(void **) &reference->f = dlsym(base, #f)) != NULL;
    FUNCTIONS(X)
#undef X
    return all;
}

static void smaller_on_average(void **state) {
    (void) state;
    struct sched_api own, reference;
    if (!apis_load(&own, &reference)) {
        printf("skipped: %s\n", oracle_why());
        skip();
    }
    const uint64_t seed = check_seed(1), count = 2000;
    double sum = 0, worst = 0;
    int n_larger = 0;
    for (uint64_t i = 0; i < count; i++) {
        const double own_bytes = (double) reserved_bytes(&own, seed + i),
                     reference_bytes = (double) reserved_bytes(&reference, seed + i);
        const double ratio = reference_bytes > 0 ? own_bytes / reference_bytes : 1.0;
        n_larger += ratio > 1.0;
        sum += ratio;
        worst = ratio > worst ? ratio : worst;
    }
    printf("%llu graphs: Berth reserves %.4f of the reference's bytes on average, %.3f at worst; more for %d graphs\n",
        (unsigned long long) count, sum / (double) count, worst, n_larger);
    assert_true(sum / (double) count < 0.9);
    assert_true(worst < 1.5);
}

int main(void) {
    check_quiet();
    const struct CMUnitTest tests[] = {cmocka_unit_test(smaller_on_average)};
    return cmocka_run_group_tests_name("sched compared with the reference", tests, NULL, NULL);
}
