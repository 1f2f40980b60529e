// SPDX-License-Identifier: MIT
// graph.c: measures the time to build a graph of 10,000 nodes, for Berth and the reference in one run. The graph is that of a llama
// model: 313 layers of 32 ops over existing weights. The time covers creating the context, calling the constructors and expanding
// the graph. The two implementations alternate, and the result is the median of 20 runs. Both graphs must have the same nodes.
// Without the reference, only Berth is timed.
#include "clock.h"
#include "support/oracle.h"

#include "ggml.h"

#define N_LAYERS 313
#define N_RUNS 20
#define N_EMBD 512
#define N_HEAD 8
#define N_HEAD_DIM (N_EMBD / N_HEAD)
#define N_FF 1408
#define N_CTX 256
#define N_TOKENS 4
#define MAX_NODES 16384

#define FUNCTIONS(X) \
    X(ggml_init) \
    X(ggml_free) \
    X(ggml_new_tensor_1d) \
    X(ggml_new_tensor_2d) \
    X(ggml_new_graph_custom) \
    X(ggml_graph_overhead_custom) \
    X(ggml_build_forward_expand) \
    X(ggml_graph_n_nodes) \
    X(ggml_graph_node) \
    X(ggml_tensor_overhead) \
    X(ggml_row_size) \
    X(ggml_get_rows) \
    X(ggml_rms_norm) \
    X(ggml_mul) \
    X(ggml_mul_mat) \
    X(ggml_reshape_3d) \
    X(ggml_rope_ext) \
    X(ggml_view_1d) \
    X(ggml_view_2d) \
    X(ggml_view_3d) \
    X(ggml_transpose) \
    X(ggml_cpy) \
    X(ggml_permute) \
    X(ggml_soft_max_ext) \
    X(ggml_cont_2d) \
    X(ggml_add) \
    X(ggml_silu)

// One implementation. Both are called through function pointers, so that the calls cost the same.
struct side {
#define X(f) __typeof__(f) *f;
    FUNCTIONS(X)
#undef X
    struct ggml_context *weights;
    struct ggml_tensor *embd;
    struct layer {
        struct ggml_tensor *attn_norm, *wq, *wk, *wv, *wo, *ffn_norm, *gate, *up, *down, *k_cache, *v_cache;
    } layers[N_LAYERS];
    void *memory; // for the context of the graph
    size_t memory_size;
    double seconds[N_RUNS];
    int n_nodes;
    int ops[MAX_NODES];
};

static void side_load_own(struct side *s) {
#define X(f) s->f = f;
    FUNCTIONS(X)
#undef X
}

static bool side_load(struct side *s, void *handle) {
    bool all = true;
#define X(f) all = (*(void **) &s->f = dlsym(handle, #f)) != NULL && all;
    FUNCTIONS(X)
#undef X
    return all;
}

static bool side_init(struct side *s) {
    const size_t n_weights = 11 * N_LAYERS + 1;
    s->weights = s->ggml_init((struct ggml_init_params){n_weights * s->ggml_tensor_overhead(), NULL, true});
    s->memory_size = MAX_NODES * s->ggml_tensor_overhead() + s->ggml_graph_overhead_custom(MAX_NODES, false);
    s->memory = calloc(1, s->memory_size);
    if (s->weights == NULL || s->memory == NULL) {
        return false;
    }
    struct ggml_context *ctx = s->weights;
    s->embd = s->ggml_new_tensor_2d(ctx, GGML_TYPE_Q8_0, N_EMBD, 1000);
    for (int i = 0; i < N_LAYERS; i++) {
        struct layer *l = &s->layers[i];
        l->attn_norm = s->ggml_new_tensor_1d(ctx, GGML_TYPE_F32, N_EMBD);
        l->ffn_norm = s->ggml_new_tensor_1d(ctx, GGML_TYPE_F32, N_EMBD);
        l->wq = s->ggml_new_tensor_2d(ctx, GGML_TYPE_Q4_0, N_EMBD, N_EMBD);
        l->wk = s->ggml_new_tensor_2d(ctx, GGML_TYPE_Q4_0, N_EMBD, N_EMBD);
        l->wv = s->ggml_new_tensor_2d(ctx, GGML_TYPE_Q4_0, N_EMBD, N_EMBD);
        l->wo = s->ggml_new_tensor_2d(ctx, GGML_TYPE_Q4_0, N_EMBD, N_EMBD);
        l->gate = s->ggml_new_tensor_2d(ctx, GGML_TYPE_Q4_0, N_EMBD, N_FF);
        l->up = s->ggml_new_tensor_2d(ctx, GGML_TYPE_Q4_0, N_EMBD, N_FF);
        l->down = s->ggml_new_tensor_2d(ctx, GGML_TYPE_Q4_0, N_FF, N_EMBD);
        l->k_cache = s->ggml_new_tensor_1d(ctx, GGML_TYPE_F16, N_EMBD * N_CTX);
        l->v_cache = s->ggml_new_tensor_1d(ctx, GGML_TYPE_F16, N_EMBD * N_CTX);
    }
    return true;
}

static void side_fini(struct side *s) {
    if (s->weights != NULL) {
        s->ggml_free(s->weights);
    }
    free(s->memory);
}

static struct ggml_tensor *rope(const struct side *s, struct ggml_context *ctx, struct ggml_tensor *x, struct ggml_tensor *pos) {
    x = s->ggml_reshape_3d(ctx, x, N_HEAD_DIM, N_HEAD, N_TOKENS);
    return s->ggml_rope_ext(ctx, x, pos, NULL, N_HEAD_DIM, GGML_ROPE_TYPE_NORMAL, N_CTX, 10000.0f, 1.0f, 0.0f, 1.0f, 32.0f, 1.0f);
}

static struct ggml_tensor *attention(const struct side *s, struct ggml_context *ctx, struct ggml_cgraph *g, const struct layer *l,
    struct ggml_tensor *x, struct ggml_tensor *pos, struct ggml_tensor *mask) {
    const size_t row = s->ggml_row_size(GGML_TYPE_F16, N_EMBD);
    const size_t head_row = s->ggml_row_size(GGML_TYPE_F16, N_HEAD_DIM);
    struct ggml_tensor *q = rope(s, ctx, s->ggml_mul_mat(ctx, l->wq, x), pos);
    struct ggml_tensor *k = rope(s, ctx, s->ggml_mul_mat(ctx, l->wk, x), pos);
    struct ggml_tensor *v = s->ggml_transpose(ctx, s->ggml_mul_mat(ctx, l->wv, x));

    struct ggml_tensor *k_to = s->ggml_view_1d(ctx, l->k_cache, N_EMBD * N_TOKENS, 8 * row);
    struct ggml_tensor *v_to = s->ggml_view_2d(ctx, l->v_cache, N_TOKENS, N_EMBD, 2 * N_CTX, 2 * 8);
    s->ggml_build_forward_expand(g, s->ggml_cpy(ctx, k, k_to));
    s->ggml_build_forward_expand(g, s->ggml_cpy(ctx, v, v_to));

    struct ggml_tensor *keys = s->ggml_view_3d(ctx, l->k_cache, N_HEAD_DIM, 32, N_HEAD, row, head_row, 0);
    struct ggml_tensor *values = s->ggml_view_3d(ctx, l->v_cache, 32, N_HEAD_DIM, N_HEAD, 2 * N_CTX, 2 * N_CTX * N_HEAD_DIM, 0);
    struct ggml_tensor *kq = s->ggml_mul_mat(ctx, keys, s->ggml_permute(ctx, q, 0, 2, 1, 3));
    kq = s->ggml_soft_max_ext(ctx, kq, mask, 0.125f, 0.0f);
    struct ggml_tensor *kqv = s->ggml_mul_mat(ctx, values, kq);
    kqv = s->ggml_cont_2d(ctx, s->ggml_permute(ctx, kqv, 0, 2, 1, 3), N_EMBD, N_TOKENS);
    return s->ggml_mul_mat(ctx, l->wo, kqv);
}

static struct ggml_cgraph *build(const struct side *s, struct ggml_context *ctx) {
    struct ggml_cgraph *g = s->ggml_new_graph_custom(ctx, MAX_NODES, false);
    struct ggml_tensor *tokens = s->ggml_new_tensor_1d(ctx, GGML_TYPE_I32, N_TOKENS);
    struct ggml_tensor *pos = s->ggml_new_tensor_1d(ctx, GGML_TYPE_I32, N_TOKENS);
    struct ggml_tensor *mask = s->ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 32, 32);
    struct ggml_tensor *x = s->ggml_get_rows(ctx, s->embd, tokens);
    for (int i = 0; i < N_LAYERS; i++) {
        const struct layer *l = &s->layers[i];
        struct ggml_tensor *in = s->ggml_mul(ctx, s->ggml_rms_norm(ctx, x, 1e-5f), l->attn_norm);
        x = s->ggml_add(ctx, x, attention(s, ctx, g, l, in, pos, mask));
        struct ggml_tensor *ff = s->ggml_mul(ctx, s->ggml_rms_norm(ctx, x, 1e-5f), l->ffn_norm);
        struct ggml_tensor *up = s->ggml_mul_mat(ctx, l->up, ff);
        ff = s->ggml_mul(ctx, s->ggml_silu(ctx, s->ggml_mul_mat(ctx, l->gate, ff)), up);
        x = s->ggml_add(ctx, x, s->ggml_mul_mat(ctx, l->down, ff));
    }
    s->ggml_build_forward_expand(g, x);
    return g;
}

static void run(struct side *s, int i) {
    const double start = clock_s(CLOCK_MONOTONIC);
    struct ggml_context *ctx = s->ggml_init((struct ggml_init_params){s->memory_size, s->memory, true});
    struct ggml_cgraph *g = build(s, ctx);
    s->seconds[i] = clock_s(CLOCK_MONOTONIC) - start;
    s->n_nodes = s->ggml_graph_n_nodes(g);
    for (int k = 0; k < s->n_nodes && k < MAX_NODES; k++) {
        s->ops[k] = (int) s->ggml_graph_node(g, k)->op;
    }
    s->ggml_free(ctx);
}

int main(void) {
    static struct side berth, ref;
    void *base = oracle_load("libggml-base.so");
    const bool with_ref = base != NULL && side_load(&ref, base) && side_init(&ref);
    side_load_own(&berth);
    if (!side_init(&berth)) {
        fprintf(stderr, "graph: cannot set up Berth\n");
        return 1;
    }
    for (int i = -2; i < N_RUNS; i++) { // the first two runs are not counted
        const int k = i < 0 ? 0 : i;
        if (i % 2 == 0) {
            run(&berth, k);
        }
        if (with_ref) {
            run(&ref, k);
        }
        if (i % 2 != 0) {
            run(&berth, k);
        }
    }
    const double t = clock_median(berth.seconds, N_RUNS);
    printf("graph of %d nodes: Berth %.0f us\n", berth.n_nodes, 1e6 * t);
    int rc = 0;
    if (with_ref) {
        const double t_ref = clock_median(ref.seconds, N_RUNS);
        printf("graph of %d nodes: reference %.0f us\n", ref.n_nodes, 1e6 * t_ref);
        printf("ratio %.3f (Berth / reference, medians of %d runs; the goal is at most 1.0)\n", t / t_ref, N_RUNS);
        if (berth.n_nodes != ref.n_nodes || memcmp(berth.ops, ref.ops, sizeof(berth.ops)) != 0) {
            printf("graph: the nodes differ\n");
            rc = 1;
        }
    } else {
        printf("graph: without the reference: %s\n", oracle_why());
    }
    side_fini(&berth);
    side_fini(&ref);
    return rc;
}
