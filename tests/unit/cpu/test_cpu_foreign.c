// SPDX-License-Identifier: MIT
// test_cpu_foreign.c: ggml's own libggml-base and libggml load Berth's libggml-cpu and compute a small transformer with it. The
// result must be bit-identical to that on Berth's libggml-base, and close to that of ggml's CPU library.

#include "support/check.h"
#include "support/oracle.h"

#include "ggml-backend-impl.h"
#include "ggml-cpu.h"

#include <math.h>

#define N_EMBD 64
#define N_TOKENS 24
#define N_HEAD 4
#define N_LAYER 3

// The functions that build the graph, from one libggml-base or the other.
#define API(X) \
    X(struct ggml_context *, ggml_init, (struct ggml_init_params)) \
    X(void, ggml_free, (struct ggml_context *) ) \
    X(struct ggml_tensor *, ggml_new_tensor_2d, (struct ggml_context *, enum ggml_type, int64_t, int64_t)) \
    X(struct ggml_tensor *, ggml_mul_mat, (struct ggml_context *, struct ggml_tensor *, struct ggml_tensor *) ) \
    X(struct ggml_tensor *, ggml_add, (struct ggml_context *, struct ggml_tensor *, struct ggml_tensor *) ) \
    X(struct ggml_tensor *, ggml_mul, (struct ggml_context *, struct ggml_tensor *, struct ggml_tensor *) ) \
    X(struct ggml_tensor *, ggml_silu, (struct ggml_context *, struct ggml_tensor *) ) \
    X(struct ggml_tensor *, ggml_cont, (struct ggml_context *, struct ggml_tensor *) ) \
    X(struct ggml_tensor *, ggml_rms_norm, (struct ggml_context *, struct ggml_tensor *, float) ) \
    X(struct ggml_tensor *, ggml_soft_max_ext, \
        (struct ggml_context *, struct ggml_tensor *, struct ggml_tensor *, float, float) ) \
    X(struct ggml_tensor *, ggml_reshape_3d, (struct ggml_context *, struct ggml_tensor *, int64_t, int64_t, int64_t)) \
    X(struct ggml_tensor *, ggml_cont_2d, (struct ggml_context *, struct ggml_tensor *, int64_t, int64_t)) \
    X(struct ggml_tensor *, ggml_permute, (struct ggml_context *, struct ggml_tensor *, int, int, int, int) ) \
    X(struct ggml_cgraph *, ggml_new_graph, (struct ggml_context *) ) \
    X(void, ggml_build_forward_expand, (struct ggml_cgraph *, struct ggml_tensor *) )

#define MEMBER(type, name, args) type(*name) args;
struct api {
    API(MEMBER)
};

static bool symbol(void *lib, const char *name, void *function) {
    void *found = dlsym(lib, name);
    memcpy(function, &found, sizeof found);
    return found != NULL;
}

static bool api_open(struct api *api, void *lib) {
#define LOAD(type, name, args) &&symbol(lib, #name, &api->name)
    return true API(LOAD);
}

// ---- the model ----

static struct ggml_tensor *weights(const struct api *g, struct ggml_context *ctx, int64_t ne0, int64_t ne1, uint64_t seed) {
    struct ggml_tensor *t = g->ggml_new_tensor_2d(ctx, GGML_TYPE_F32, ne0, ne1);
    struct check_rng rng = check_rng_new(seed);
    for (int64_t i = 0; i < ne0 * ne1; i++) {
        ((float *) t->data)[i] = ((float) (check_rng_next(&rng) >> 40) * 0x1p-24f - 0.5f) * 0.3f;
    }
    return t;
}

static struct ggml_tensor *heads(const struct api *g, struct ggml_context *ctx, struct ggml_tensor *t) {
    return g->ggml_permute(ctx, g->ggml_reshape_3d(ctx, t, N_EMBD / N_HEAD, N_HEAD, N_TOKENS), 0, 2, 1, 3);
}

static struct ggml_tensor *layer(const struct api *g, struct ggml_context *ctx, struct ggml_tensor *h, uint64_t seed) {
    struct ggml_tensor *n = g->ggml_rms_norm(ctx, h, 1e-5f);
    struct ggml_tensor *q = heads(g, ctx, g->ggml_mul_mat(ctx, weights(g, ctx, N_EMBD, N_EMBD, seed + 1), n));
    struct ggml_tensor *k = heads(g, ctx, g->ggml_mul_mat(ctx, weights(g, ctx, N_EMBD, N_EMBD, seed + 2), n));
    struct ggml_tensor *v = heads(g, ctx, g->ggml_mul_mat(ctx, weights(g, ctx, N_EMBD, N_EMBD, seed + 3), n));
    struct ggml_tensor *p = g->ggml_soft_max_ext(ctx, g->ggml_mul_mat(ctx, k, q), NULL, 0.25f, 0.0f);
    v = g->ggml_cont(ctx, g->ggml_permute(ctx, v, 1, 0, 2, 3));
    struct ggml_tensor *a = g->ggml_permute(ctx, g->ggml_mul_mat(ctx, v, p), 0, 2, 1, 3);
    a = g->ggml_cont_2d(ctx, a, N_EMBD, N_TOKENS);
    h = g->ggml_add(ctx, h, g->ggml_mul_mat(ctx, weights(g, ctx, N_EMBD, N_EMBD, seed + 4), a));
    n = g->ggml_rms_norm(ctx, h, 1e-5f);
    struct ggml_tensor *u = g->ggml_silu(ctx, g->ggml_mul_mat(ctx, weights(g, ctx, N_EMBD, 4 * N_EMBD, seed + 5), n));
    u = g->ggml_mul(ctx, u, g->ggml_mul_mat(ctx, weights(g, ctx, N_EMBD, 4 * N_EMBD, seed + 6), n));
    return g->ggml_add(ctx, h, g->ggml_mul_mat(ctx, weights(g, ctx, 4 * N_EMBD, N_EMBD, seed + 7), u));
}

// Returns the result of the model on a device, which the caller frees. NULL: the compute failed.
static float *model_run(const struct api *g, ggml_backend_dev_t dev) {
    struct ggml_context *ctx = g->ggml_init((struct ggml_init_params){.mem_size = 64u << 20});
    struct ggml_tensor *h = weights(g, ctx, N_EMBD, N_TOKENS, 1);
    for (uint64_t i = 0; i < N_LAYER; i++) {
        h = layer(g, ctx, h, 100 * (i + 1));
    }
    struct ggml_cgraph *graph = g->ggml_new_graph(ctx);
    g->ggml_build_forward_expand(graph, h);
    ggml_backend_t backend = dev->iface.init_backend(dev, NULL);
    float *out = NULL;
    if (backend->iface.graph_compute(backend, graph) == GGML_STATUS_SUCCESS) {
        out = malloc(sizeof(float) * N_EMBD * N_TOKENS);
        memcpy(out, h->data, sizeof(float) * N_EMBD * N_TOKENS);
    }
    backend->iface.free(backend);
    g->ggml_free(ctx);
    return out;
}

static double nmse(const float *is, const float *want) {
    double err = 0, norm = 0;
    for (int i = 0; i < N_EMBD * N_TOKENS; i++) {
        err += (double) (is[i] - want[i]) * (is[i] - want[i]);
        norm += (double) want[i] * want[i];
    }
    return err / norm;
}

// ---- the test ----

// Returns the path of Berth's CPU library, which this program is linked with.
static const char *own_cpu_library(void) {
    Dl_info info;
    void *at;
    ggml_backend_t (*function)(void) = ggml_backend_cpu_init;
    memcpy(&at, &function, sizeof at);
    return dladdr(at, &info) != 0 ? info.dli_fname : NULL;
}

static ggml_backend_dev_t reference_device(void) {
    static const char *const libraries[] = {"libggml-cpu-armv8.6_1.so", "libggml-cpu-armv8.2_2.so", "libggml-cpu-armv8.0_1.so",
        "libggml-cpu-haswell.so", "libggml-cpu-x64.so"};
    for (size_t i = 0; i < sizeof libraries / sizeof libraries[0]; i++) {
        int (*score)(void) = NULL;
        ggml_backend_reg_t (*init)(void) = NULL;
        void *lib = oracle_load(libraries[i]);
        if (lib != NULL && symbol(lib, "ggml_backend_score", &score) && score() > 0 && symbol(lib, "ggml_backend_init", &init)) {
            return init()->iface.get_device(init(), 0);
        }
    }
    return NULL;
}

static void the_reference_loads_and_runs_berth_cpu(void **state) {
    (void) state;
    void *base = oracle_load("libggml-base.so");
    void *ggml = base != NULL ? oracle_load("libggml." ORACLE_BUILD ".so") : NULL;
    if (ggml == NULL) {
        printf("skipped: %s\n", oracle_why());
        skip();
    }
    struct api theirs, ours;
    ggml_backend_reg_t (*load)(const char *) = NULL;
    ggml_backend_dev_t (*by_name)(const char *) = NULL;
    assert_true(api_open(&theirs, base));
    assert_true(api_open(&ours, RTLD_DEFAULT));
    assert_true(symbol(ggml, "ggml_backend_load", &load));
    assert_true(symbol(ggml, "ggml_backend_dev_by_name", &by_name));

    ggml_backend_reg_t reg = load(own_cpu_library());
    assert_non_null(reg);
    assert_ptr_not_equal(reg, ggml_backend_cpu_reg()); // a second copy of Berth's CPU library, which uses ggml's libraries
    assert_ptr_equal(by_name("CPU"), reg->iface.get_device(reg, 0));

    float *here = model_run(&ours, ggml_backend_cpu_reg()->iface.get_device(ggml_backend_cpu_reg(), 0));
    float *there = model_run(&theirs, reg->iface.get_device(reg, 0));
    assert_non_null(here);
    assert_non_null(there);
    assert_memory_equal(here, there, sizeof(float) * N_EMBD * N_TOKENS);

    ggml_backend_dev_t dev = reference_device();
    assert_non_null(dev);
    float *want = model_run(&theirs, dev);
    float *mix = model_run(&ours, dev); // the reference's CPU library on Berth's tensors
    assert_non_null(want);
    assert_non_null(mix);
    printf("%d layers: Berth's CPU library is bit-identical on both base libraries, nmse to ggml's CPU library %.2g\n", N_LAYER,
        nmse(here, want));
    assert_true(nmse(here, want) < 1e-7);
    assert_memory_equal(want, mix, sizeof(float) * N_EMBD * N_TOKENS);
    free(here), free(there), free(want), free(mix);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_reference_loads_and_runs_berth_cpu)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
