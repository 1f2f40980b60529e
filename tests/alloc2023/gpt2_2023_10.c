// SPDX-License-Identifier: MIT
// gpt2_2023_10.c: a C program for the ggml API of autumn 2023. Weights and cache are in the memory of a context. One ggml_allocr
// measures the largest graph, and another places every graph.

#include "ggml/ggml-alloc.h"
#include "ggml/ggml.h"

#include "gpt2_build.h"

#define ALIGNMENT 32

static void fill(struct ggml_tensor *tensor, const float *data) {
    memcpy(tensor->data, data, ggml_nbytes(tensor));
}

static struct ggml_tensor *attend(struct ggml_context *ctx, struct ggml_tensor *kq, const struct inputs *in) {
    kq = ggml_scale_inplace(ctx, kq, in->scale);
    return ggml_soft_max_inplace(ctx, ggml_diag_mask_inf_inplace(ctx, kq, in->n_past));
}

// If the allocator only measures, the caller must not write to the input.
static struct ggml_tensor *input(struct ggml_context *ctx, struct ggml_allocr *alloc, enum ggml_type type, int n) {
    struct ggml_tensor *t = ggml_new_tensor_1d(ctx, type, n);
    ggml_allocr_alloc(alloc, t);
    return t;
}

static struct ggml_cgraph *graph_build(
    const struct model *m, struct ggml_allocr *alloc, void *memory, size_t memory_size, const int *tokens, int n, int n_past) {
    struct ggml_init_params params = {memory_size, memory, true};
    struct ggml_context *ctx = ggml_init(params);
    struct ggml_cgraph *gf = ggml_new_graph(ctx);
    struct inputs in = {NULL, NULL, NULL, NULL, n, n_past};
    in.tokens = input(ctx, alloc, GGML_TYPE_I32, n);
    in.positions = input(ctx, alloc, GGML_TYPE_I32, n);
    in.scale = input(ctx, alloc, GGML_TYPE_F32, 1);
    if (!ggml_allocr_is_measure(alloc)) {
        memcpy(in.tokens->data, tokens, (size_t) n * ggml_element_size(in.tokens));
        for (int i = 0; i < n; i++) {
            ggml_set_i32_1d(in.positions, i, n_past + i);
        }
        ggml_set_f32(in.scale, kq_scale);
    }
    gpt2_build(ctx, gf, m, &in, attend);
    ggml_free(ctx); // the graph is in the program's memory
    return gf;
}

static int eval(const struct model *m, struct ggml_allocr *alloc, void *memory, size_t memory_size, const int *tokens, int n,
    int n_past, float *logits) {
    ggml_allocr_reset(alloc);
    struct ggml_cgraph *gf = graph_build(m, alloc, memory, memory_size, tokens, n, n_past);
    ggml_allocr_alloc_graph(alloc, gf);
    struct ggml_cplan plan = ggml_graph_plan(gf, 2);
    plan.work_data = malloc(plan.work_size + 1);
    const int status = ggml_graph_compute(gf, &plan);
    free(plan.work_data);
    struct ggml_tensor *last = gf->nodes[gf->n_nodes - 1];
    memcpy(logits, ggml_get_data_f32(last) + (n - 1) * N_VOCAB, N_VOCAB * sizeof(float));
    return status == GGML_EXIT_SUCCESS && gf->n_leafs > 0 && gf->leafs[0]->op == GGML_OP_NONE;
}

int gpt2_2023_10(const struct weights *w, const int *prompt, struct answer *answer) {
    struct ggml_init_params params = {sizeof(struct weights) + 4 * 1024 * 1024, NULL, false};
    struct ggml_context *ctx = ggml_init(params);
    struct model m;
    if (!ctx) {
        fprintf(stderr, "cannot create a context\n");
        return 0;
    }
    model_make(&m, ctx);
    model_fill(&m, w, fill);

    const size_t memory_size = ggml_tensor_overhead() * GGML_MAX_NODES + ggml_graph_overhead();
    void *memory = malloc(memory_size);
    struct ggml_allocr *alloc = ggml_allocr_new_measure(ALIGNMENT);
    struct ggml_cgraph *worst = graph_build(&m, alloc, memory, memory_size, prompt, N_PROMPT, N_CTX - N_PROMPT);
    const size_t size = ggml_allocr_alloc_graph(alloc, worst) + ALIGNMENT;
    ggml_allocr_free(alloc);

    void *compute = malloc(size);
    alloc = ggml_allocr_new(compute, size, ALIGNMENT);
    int tokens[N_TOKENS_MAX + 1], n_past = 0, ok = 1;
    memcpy(tokens, prompt, N_PROMPT * sizeof(int));
    for (int i = 0; i < N_PREDICT && ok; i++) {
        const int n = i == 0 ? N_PROMPT : 1;
        ok = eval(&m, alloc, memory, memory_size, tokens + n_past, n, n_past, answer->logits);
        n_past += n;
        tokens[n_past] = answer->tokens[i] = logits_best(answer->logits);
    }
    ggml_allocr_free(alloc);
    free(compute);
    free(memory);
    ggml_free(ctx);
    return ok;
}
