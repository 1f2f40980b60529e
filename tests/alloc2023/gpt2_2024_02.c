// SPDX-License-Identifier: MIT
// gpt2_2024_02.c: a C program for the ggml API of February 2024. In this API, one call allocates all weights, the softmax takes
// the mask and the factor as arguments, and the allocators belong to the backend.

#define BERTH_2023 202402

#include "ggml/ggml-alloc.h"
#include "ggml/ggml-backend.h"
#include "ggml/ggml.h"

#include "gpt2_build.h"

static void fill(struct ggml_tensor *tensor, const float *data) {
    ggml_backend_tensor_set(tensor, data, 0, ggml_nbytes(tensor));
}

static struct ggml_tensor *attend(struct ggml_context *ctx, struct ggml_tensor *kq, const struct inputs *in) {
    return ggml_soft_max_ext(ctx, kq, in->mask, kq_scale);
}

static struct ggml_cgraph *graph_build(
    const struct model *m, ggml_allocr_t alloc, void *memory, size_t memory_size, struct inputs *in) {
    struct ggml_init_params params = {memory_size, memory, true};
    struct ggml_context *ctx = ggml_init(params);
    struct ggml_cgraph *gf = ggml_new_graph_custom(ctx, GGML_DEFAULT_GRAPH_SIZE, false);
    in->tokens = ggml_new_tensor_1d(ctx, GGML_TYPE_I32, in->n);
    in->positions = ggml_new_tensor_1d(ctx, GGML_TYPE_I32, in->n);
    in->mask = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, in->n_past + in->n, in->n);
    ggml_allocr_alloc(alloc, in->tokens);
    ggml_allocr_alloc(alloc, in->positions);
    ggml_allocr_alloc(alloc, in->mask);
    gpt2_build(ctx, gf, m, in, attend);
    ggml_free(ctx);
    return gf;
}

static void inputs_set(const struct inputs *in, const int *tokens) {
    const int n_kv = in->n_past + in->n;
    int32_t positions[N_CTX];
    float *mask = malloc((size_t) n_kv * (size_t) in->n * sizeof(float));
    for (int i = 0; i < in->n; i++) {
        positions[i] = in->n_past + i;
        for (int k = 0; k < n_kv; k++) {
            mask[i * n_kv + k] = k <= positions[i] ? 0.0f : -INFINITY;
        }
    }
    ggml_backend_tensor_set(in->tokens, tokens, 0, ggml_nbytes(in->tokens));
    ggml_backend_tensor_set(in->positions, positions, 0, ggml_nbytes(in->positions));
    ggml_backend_tensor_set(in->mask, mask, 0, ggml_nbytes(in->mask));
    free(mask);
}

int gpt2_2024_02(const struct weights *w, const int *prompt, struct answer *answer) {
    ggml_backend_t backend = ggml_backend_cpu_init();
    struct ggml_init_params params = {ggml_tensor_overhead() * 64, NULL, true};
    struct ggml_context *ctx = ggml_init(params);
    struct model m;
    model_make(&m, ctx);
    ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors(ctx, backend);
    if (buffer == NULL) {
        fprintf(stderr, "cannot allocate the weights\n");
        return 0;
    }
    model_fill(&m, w, fill);

    const size_t memory_size = ggml_tensor_overhead() * GGML_DEFAULT_GRAPH_SIZE + ggml_graph_overhead();
    void *memory = malloc(memory_size);
    struct inputs worst = {NULL, NULL, NULL, NULL, N_PROMPT, N_CTX - N_PROMPT};
    ggml_allocr_t alloc = ggml_allocr_new_measure_from_backend(backend);
    const size_t size = ggml_allocr_alloc_graph(alloc, graph_build(&m, alloc, memory, memory_size, &worst));
    ggml_allocr_free(alloc);
    alloc = ggml_allocr_new_from_backend(backend, size);

    int tokens[N_TOKENS_MAX + 1], n_past = 0;
    memcpy(tokens, prompt, N_PROMPT * sizeof(int));
    for (int i = 0; i < N_PREDICT; i++) {
        struct inputs in = {NULL, NULL, NULL, NULL, i == 0 ? N_PROMPT : 1, n_past};
        ggml_allocr_reset(alloc);
        struct ggml_cgraph *gf = graph_build(&m, alloc, memory, memory_size, &in);
        ggml_allocr_alloc_graph(alloc, gf);
        inputs_set(&in, tokens + n_past);
        ggml_backend_graph_compute(backend, gf);
        struct ggml_tensor *logits = gf->nodes[gf->n_nodes - 1];
        ggml_backend_tensor_get(logits, answer->logits, (size_t) (in.n - 1) * logits->nb[1], sizeof answer->logits);
        n_past += in.n;
        tokens[n_past] = answer->tokens[i] = logits_best(answer->logits);
    }
    ggml_allocr_free(alloc);
    free(memory);
    ggml_backend_buffer_free(buffer);
    ggml_free(ctx);
    ggml_backend_free(backend);
    return 1;
}
