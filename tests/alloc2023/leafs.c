// SPDX-License-Identifier: MIT
// leafs.c: tests when ggml_allocr_t gives memory to the leaves of a graph. Late leaf: a copy overwrites the leaf before any node
// reads it. The memory of a late leaf is used only from that copy on, as in ggml in 2023. Other leaves have memory from the
// start, because the program may write to them after allocation.

#include "program.h"

enum { ALIGN = 32 };
#define SIZE (N * sizeof(float))

static struct ggml_context *context_new(void) {
    return ggml_init((struct ggml_init_params){.mem_size = 4 * 1024 * 1024, .no_alloc = true});
}

static struct ggml_tensor *leaf_new(struct ggml_context *ctx) {
    return ggml_new_tensor_1d(ctx, GGML_TYPE_F32, N);
}

static float get_at(struct ggml_tensor *t, int i) {
    float value;
    ggml_backend_tensor_get(t, &value, (size_t) i * sizeof value, sizeof value);
    return value;
}

// ---- measured sizes ----

// Each copy is the source of the next copy. Returns the last copy.
static struct ggml_tensor *copies_build(struct ggml_context *ctx, struct ggml_tensor *x, int n, struct ggml_cgraph *graph) {
    for (int i = 0; i < n; i++) {
        x = ggml_cpy(ctx, x, leaf_new(ctx));
    }
    ggml_build_forward_expand(graph, x);
    return x;
}

// The measured size does not grow with the number of copies and is sufficient.
static void copies(ggml_backend_t backend) {
    enum { N_COPIES = 32 };
    struct ggml_context *ctx = context_new();
    struct ggml_cgraph *graph = ggml_new_graph(ctx);
    struct ggml_tensor *x = leaf_new(ctx);
    copies_build(ctx, x, N_COPIES, graph);
    ggml_allocr_t alloc = ggml_allocr_new_measure(ALIGN);
    ggml_allocr_alloc(alloc, x);
    const size_t size = ggml_allocr_alloc_graph(alloc, graph);
    CHECK(size >= 2 * SIZE && size < 2 * SIZE + ALIGN); // two tensors, for any number of copies
    ggml_allocr_free(alloc);
    ggml_free(ctx);

    ctx = context_new();
    graph = ggml_new_graph(ctx);
    x = leaf_new(ctx);
    struct ggml_tensor *y = copies_build(ctx, x, N_COPIES, graph);
    void *memory = malloc(size);
    alloc = ggml_allocr_new(memory, size, ALIGN);
    ggml_allocr_alloc(alloc, x);
    CHECK(ggml_allocr_alloc_graph(alloc, graph) <= size);
    set_all(x, 3);
    ggml_backend_graph_compute(backend, graph);
    CHECK(get_at(y, 0) == 3 && get_at(y, N - 1) == 3);
    ggml_allocr_free(alloc);
    free(memory);
    ggml_free(ctx);
}

enum { EMBD = 64, HEADS = 4, TOKENS = 16, HEAD = EMBD / HEADS };

struct gpt2 {
    struct ggml_context *weights;
    struct ggml_tensor *gain, *qkv, *proj, *up, *down;
};

static struct gpt2 gpt2_new(void) {
    struct gpt2 m = {.weights = context_new()};
    m.gain = ggml_new_tensor_1d(m.weights, GGML_TYPE_F32, EMBD);
    m.qkv = ggml_new_tensor_2d(m.weights, GGML_TYPE_F32, EMBD, 3 * EMBD);
    m.proj = ggml_new_tensor_2d(m.weights, GGML_TYPE_F32, EMBD, EMBD);
    m.up = ggml_new_tensor_2d(m.weights, GGML_TYPE_F32, EMBD, 4 * EMBD);
    m.down = ggml_new_tensor_2d(m.weights, GGML_TYPE_F32, 4 * EMBD, EMBD);
    return m;
}

static struct ggml_tensor *gpt2_attention(const struct gpt2 *m, struct ggml_context *ctx, struct ggml_tensor *cur) {
    cur = ggml_mul_mat(ctx, m->qkv, ggml_mul(ctx, ggml_norm(ctx, cur, 1e-5f), m->gain));
    const size_t nb = cur->nb[1], part = EMBD * sizeof(float);
    struct ggml_tensor *q = ggml_view_2d(ctx, cur, EMBD, TOKENS, nb, 0), *k = ggml_view_2d(ctx, cur, EMBD, TOKENS, nb, part);
    struct ggml_tensor *v = ggml_view_3d(ctx, cur, HEAD, HEADS, TOKENS, HEAD * sizeof(float), nb, 2 * part);
    q = ggml_permute(ctx, ggml_cpy(ctx, q, ggml_new_tensor_3d(ctx, GGML_TYPE_F32, HEAD, HEADS, TOKENS)), 0, 2, 1, 3);
    k = ggml_permute(ctx, ggml_cpy(ctx, k, ggml_new_tensor_3d(ctx, GGML_TYPE_F32, HEAD, HEADS, TOKENS)), 0, 2, 1, 3);
    v = ggml_cpy(ctx, ggml_permute(ctx, v, 1, 2, 0, 3), ggml_new_tensor_3d(ctx, GGML_TYPE_F32, TOKENS, HEAD, HEADS));
    struct ggml_tensor *kqv = ggml_mul_mat(ctx, v, ggml_soft_max(ctx, ggml_mul_mat(ctx, k, q)));
    cur = ggml_cpy(ctx, ggml_permute(ctx, kqv, 0, 2, 1, 3), ggml_new_tensor_2d(ctx, GGML_TYPE_F32, EMBD, TOKENS));
    return ggml_mul_mat(ctx, m->proj, cur);
}

static size_t gpt2_measure(const struct gpt2 *m, int n_layers) {
    struct ggml_context *ctx = context_new();
    struct ggml_cgraph *graph = ggml_new_graph(ctx);
    ggml_allocr_t alloc = ggml_allocr_new_measure(ALIGN);
    struct ggml_tensor *cur = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, EMBD, TOKENS);
    ggml_allocr_alloc(alloc, cur);
    for (int i = 0; i < n_layers; i++) {
        cur = ggml_add(ctx, gpt2_attention(m, ctx, cur), cur);
        struct ggml_tensor *up = ggml_mul_mat(ctx, m->up, ggml_mul(ctx, ggml_norm(ctx, cur, 1e-5f), m->gain));
        cur = ggml_add(ctx, ggml_mul_mat(ctx, m->down, ggml_gelu(ctx, up)), cur);
    }
    ggml_build_forward_expand(graph, cur);
    const size_t size = ggml_allocr_alloc_graph(alloc, graph);
    ggml_allocr_free(alloc);
    ggml_free(ctx);
    return size;
}

// The measured size does not grow with the number of layers.
static void gpt2(ggml_backend_t backend) {
    struct gpt2 m = gpt2_new();
    ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors(m.weights, backend);
    const size_t hidden = EMBD * TOKENS * sizeof(float);
    const size_t one = gpt2_measure(&m, 1), twelve = gpt2_measure(&m, 12);
    printf("gpt-2 with 1 layer: %zu bytes, with 12 layers: %zu bytes\n", one, twelve);
    CHECK(twelve == one && twelve < 7 * hidden + ALIGN);
    ggml_backend_buffer_free(buffer);
    ggml_free(m.weights);
}

// ---- random graphs: results must equal those with separate memory for each tensor ----

enum { N_MAX = 80 };

struct random_graph {
    struct ggml_context *ctx;
    struct ggml_cgraph *graph;
    struct ggml_tensor *t[N_MAX + 1];
    struct ggml_tensor *leafs[2 * N_MAX]; // leaves that the program writes after allocation
    int n, n_leafs;
    bool is_read[N_MAX + 1];
};

static uint64_t state;

static int draw(int n) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (int) ((state >> 33) % (uint64_t) n);
}

static struct ggml_tensor *pick(struct random_graph *g) {
    const int i = draw(2) ? g->n - 1 - draw(g->n < 4 ? g->n : 4) : draw(g->n);
    g->is_read[i] = true;
    return g->t[i];
}

static struct ggml_tensor *host_leaf(struct random_graph *g) {
    return g->leafs[g->n_leafs++] = leaf_new(g->ctx);
}

static struct ggml_tensor *half(struct ggml_context *ctx, struct ggml_tensor *t) {
    return ggml_view_1d(ctx, t, N / 2, 0);
}

static struct ggml_tensor *random_op(struct random_graph *g) {
    struct ggml_context *ctx = g->ctx;
    struct ggml_tensor *a = pick(g), *leaf, *copy;
    switch (draw(12)) {
        case 0: return ggml_add(ctx, a, pick(g));
        case 1: return ggml_mul(ctx, a, pick(g));
        case 2: return ggml_relu(ctx, a);
        case 3: return ggml_cont(ctx, a);
        case 4: return ggml_add(ctx, a, host_leaf(g));
        case 5: // the program writes the second half
            leaf = host_leaf(g);
            copy = ggml_cpy(ctx, half(ctx, a), half(ctx, leaf));
            ggml_build_forward_expand(g->graph, copy);
            return ggml_add(ctx, a, leaf);
        case 6: // read before it is overwritten
            leaf = host_leaf(g);
            copy = ggml_add(ctx, a, leaf);
            ggml_build_forward_expand(g->graph, copy);
            return ggml_add(ctx, ggml_cpy(ctx, a, leaf), copy);
        case 7: // overwritten twice, the second time in part
            leaf = leaf_new(ctx);
            ggml_build_forward_expand(g->graph, ggml_cpy(ctx, a, leaf));
            ggml_build_forward_expand(g->graph, ggml_cpy(ctx, half(ctx, pick(g)), half(ctx, leaf)));
            return ggml_add(ctx, leaf, a);
        case 8: // through a view of the complete leaf
            leaf = ggml_reshape_2d(ctx, leaf_new(ctx), 8, N / 8);
            return ggml_reshape_1d(ctx, ggml_cpy(ctx, a, leaf), N);
        default: return ggml_cpy(ctx, a, leaf_new(ctx));
    }
}

static struct random_graph random_build(uint64_t seed) {
    struct random_graph g = {.ctx = context_new()};
    state = seed;
    g.graph = ggml_new_graph(g.ctx);
    g.t[g.n++] = leaf_new(g.ctx);
    for (int i = 5 + draw(N_MAX - 5); i > 0; i--) {
        g.t[g.n] = random_op(&g);
        g.n++;
        if (draw(3) == 0) {
            ggml_build_forward_expand(g.graph, g.t[g.n - 1]);
        }
    }
    ggml_build_forward_expand(g.graph, g.t[g.n - 1]);
    return g;
}

static void random_compute(ggml_backend_t backend, struct random_graph *g) {
    set_all(g->t[0], 0.5f);
    for (int i = 0; i < g->n_leafs; i++) {
        if (g->leafs[i]->data != NULL) { // the leaf is in the graph
            set_all(g->leafs[i], 0.25f * (float) (i % 7));
        }
    }
    ggml_backend_graph_compute(backend, g->graph);
}

static void random_graphs(ggml_backend_t backend) {
    size_t n_shared = 0, n_own = 0;
    for (uint64_t seed = 1; seed <= 500; seed++) {
        struct random_graph a = random_build(seed), b = random_build(seed);
        ggml_allocr_t alloc = ggml_allocr_new_measure_from_backend(backend);
        ggml_allocr_alloc(alloc, a.t[0]);
        const size_t size = ggml_allocr_alloc_graph(alloc, a.graph);
        ggml_allocr_free(alloc);
        ggml_free(a.ctx);

        a = random_build(seed);
        alloc = ggml_allocr_new_from_backend(backend, size);
        ggml_allocr_alloc(alloc, a.t[0]);
        CHECK(ggml_allocr_alloc_graph(alloc, a.graph) <= size);
        random_compute(backend, &a);
        ggml_backend_buffer_t own = ggml_backend_alloc_ctx_tensors(b.ctx, backend);
        random_compute(backend, &b);
        for (int i = 1; i < a.n; i++) {
            for (int k = 0; k < N && !a.is_read[i] && a.t[i]->data != NULL; k += N / 4) {
                const float x = get_at(a.t[i], k), y = get_at(b.t[i], k);
                if (memcmp(&x, &y, sizeof x) != 0) {
                    printf("seed %d: tensor %d is %g, should be %g\n", (int) seed, i, (double) x, (double) y);
                    exit(1);
                }
            }
        }
        n_shared += size;
        n_own += ggml_backend_buffer_get_size(own);
        ggml_allocr_free(alloc);
        ggml_backend_buffer_free(own);
        ggml_free(a.ctx);
        ggml_free(b.ctx);
    }
    printf("500 graphs: %.2f of the memory of separate tensors\n", (double) n_shared / (double) n_own);
    CHECK(n_shared < n_own / 2);
}

// ---- other cases of leaves ----

// A leaf that the program has placed keeps its address.
static void placed_leafs_stay(ggml_backend_t backend) {
    struct ggml_context *ctx = context_new();
    struct ggml_cgraph *graph = ggml_new_graph(ctx);
    struct ggml_tensor *x = leaf_new(ctx), *leaf = leaf_new(ctx);
    struct ggml_tensor *y = ggml_relu(ctx, ggml_cpy(ctx, ggml_cont(ctx, ggml_cont(ctx, x)), leaf));
    ggml_build_forward_expand(graph, y);
    ggml_allocr_t alloc = ggml_allocr_new_from_backend(backend, 16 * SIZE);
    ggml_allocr_alloc(alloc, x);
    ggml_allocr_alloc(alloc, leaf);
    void *data = leaf->data;
    ggml_allocr_alloc_graph(alloc, graph);
    CHECK(leaf->data == data);
    set_all(x, 4);
    set_all(leaf, 5);
    ggml_backend_graph_compute(backend, graph);
    CHECK(get_at(y, 1) == 4);

    // A graph that grows and is allocated again without a reset keeps its addresses.
    struct ggml_tensor *z = ggml_add(ctx, y, ggml_cpy(ctx, y, leaf_new(ctx)));
    ggml_build_forward_expand(graph, z);
    void *place = y->data;
    ggml_allocr_alloc_graph(alloc, graph);
    CHECK(y->data == place && leaf->data == data && z->data != NULL);
    set_all(x, 6);
    ggml_backend_graph_compute(backend, graph);
    CHECK(get_at(z, 2) == 12);
    ggml_allocr_free(alloc);
    ggml_free(ctx);
}

// Between two barriers, nodes may run in any order. So memory that is freed there is not reused there.
static void parse_order(void) {
    enum { N_COPIES = 4 };
    struct ggml_context *ctx = context_new();
    struct ggml_cgraph *graph = ggml_new_graph(ctx);
    struct ggml_tensor *x = leaf_new(ctx), *leafs[N_COPIES], *y = x;
    for (int i = 0; i < N_COPIES; i++) {
        leafs[i] = leaf_new(ctx);
        y = ggml_cpy(ctx, y, leafs[i]);
    }
    ggml_build_forward_expand(graph, y);
    const int order[] = {0, 1, 2, -1, 3, -1};
    ggml_allocr_t alloc = ggml_allocr_new_measure(ALIGN);
    ggml_allocr_set_parse_seq(alloc, order, 6);
    ggml_allocr_alloc(alloc, x);
    const size_t size = ggml_allocr_alloc_graph(alloc, graph);
    CHECK(size >= 4 * SIZE && size < 4 * SIZE + ALIGN); // x and three leaves
    for (int i = 0; i < 3; i++) {
        CHECK(leafs[i]->data != x->data && leafs[i]->data != leafs[(i + 1) % 3]->data);
    }
    CHECK(leafs[3]->data != leafs[2]->data);
    ggml_allocr_free(alloc);
    ggml_free(ctx);
}

// An alignment need not be a power of two.
static void alignment_24(ggml_backend_t backend) {
    struct ggml_context *ctx = context_new();
    struct ggml_cgraph *graph = ggml_new_graph(ctx);
    struct ggml_tensor *x = leaf_new(ctx), *y = ggml_cont(ctx, x), *z = ggml_add(ctx, x, ggml_cont(ctx, y));
    ggml_build_forward_expand(graph, z);
    ggml_allocr_t alloc = ggml_allocr_new_measure(24);
    ggml_allocr_alloc(alloc, x);
    const size_t size = ggml_allocr_alloc_graph(alloc, graph);
    ggml_allocr_free(alloc);
    x->data = y->data = z->data = z->src[1]->data = NULL;
    x->buffer = y->buffer = z->buffer = z->src[1]->buffer = NULL;
    void *memory = malloc(size);
    alloc = ggml_allocr_new(memory, size, 24);
    ggml_allocr_alloc(alloc, x);
    ggml_allocr_alloc_graph(alloc, graph);
    CHECK((size_t) x->data % 24 == 0 && (size_t) y->data % 24 == 0 && (size_t) z->data % 24 == 0);
    set_all(x, 2);
    ggml_backend_graph_compute(backend, graph);
    CHECK(get_at(z, 5) == 4);
    ggml_allocr_free(alloc);
    free(memory);
    ggml_free(ctx);
}

// Each allocation fails in turn. The graph then has no memory, an error is set, and nothing leaks.
static void allocations_fail(void) {
    struct ggml_context *ctx = context_new();
    struct ggml_cgraph *graph = ggml_new_graph(ctx);
    struct ggml_tensor *x = leaf_new(ctx);
    copies_build(ctx, x, 8, graph);
    int n_refused = 0;
    for (int64_t n = 0, n_made = 0; n <= n_made; n++) { // none fails at n = 0
        struct ggml_tensor *t = ggml_get_first_tensor(ctx);
        for (; t != NULL; t = ggml_get_next_tensor(ctx, t)) {
            t->data = NULL;
            t->buffer = NULL;
        }
        berth_clear_error();
        berth_alloc_watch(true);
        berth_alloc_fail_at(n);
        ggml_allocr_t alloc = ggml_allocr_new_measure(ALIGN);
        if (alloc != NULL) {
            ggml_allocr_alloc(alloc, x);
            ggml_allocr_alloc_graph(alloc, graph);
        }
        ggml_allocr_free(alloc);
        berth_alloc_fail_at(0);
        if (n == 0) {
            n_made = berth_alloc_made();
        }
        CHECK(berth_alloc_alive() == 0);
        berth_alloc_watch(false);
        CHECK(n > 0 || berth_last_error()[0] == '\0');
        n_refused += berth_last_error()[0] != '\0';
    }
    CHECK(n_refused > 10);
    ggml_free(ctx);
}

int main(void) {
    ggml_backend_t backend = backend_open(1);
    copies(backend);
    gpt2(backend);
    random_graphs(backend);
    placed_leafs_stay(backend);
    parse_order();
    alignment_24(backend);
    allocations_fail();
    ggml_backend_free(backend);
    return 0;
}
