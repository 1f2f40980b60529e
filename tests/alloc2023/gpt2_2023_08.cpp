// SPDX-License-Identifier: MIT
// gpt2_2023_08.cpp: a C++ program for the ggml API of summer 2023. All tensors are in the memory of contexts, the factor comes
// from ggml_new_f32, and the graph is a variable that a function returns by value.

#include "ggml/ggml.h"

#include "gpt2_build.h"

#include <vector>

namespace {

void fill(struct ggml_tensor *tensor, const float *data) {
    memcpy(tensor->data, data, ggml_nbytes(tensor));
}

struct ggml_tensor *attend(struct ggml_context *ctx, struct ggml_tensor *kq, const struct inputs *in) {
    kq = ggml_scale(ctx, kq, ggml_new_f32(ctx, 1.0f / sqrtf(float(N_EMBD) / float(N_HEAD))));
    return ggml_soft_max(ctx, ggml_diag_mask_inf(ctx, kq, in->n_past));
}

struct ggml_cgraph graph_of(struct ggml_context *ctx, const struct model &m, const int *tokens, int n, int n_past) {
    struct ggml_cgraph gf = {};
    struct inputs in = {};
    in.n = n;
    in.n_past = n_past;
    in.tokens = ggml_new_tensor_1d(ctx, GGML_TYPE_I32, n);
    in.positions = ggml_new_tensor_1d(ctx, GGML_TYPE_I32, n);
    memcpy(in.tokens->data, tokens, n * ggml_element_size(in.tokens));
    for (int i = 0; i < n; i++) {
        ((int32_t *) in.positions->data)[i] = n_past + i;
    }
    gpt2_build(ctx, &gf, &m, &in, attend);
    return gf;
}

bool eval(const struct model &m, const int *tokens, int n, int n_past, std::vector<float> &logits) {
    static std::vector<uint8_t> memory(16 * 1024 * 1024);
    struct ggml_init_params params = {};
    params.mem_size = memory.size();
    params.mem_buffer = memory.data();
    struct ggml_context *ctx = ggml_init(params);
    struct ggml_cgraph gf = graph_of(ctx, m, tokens, n, n_past);
    ggml_graph_compute_with_ctx(ctx, &gf, 2);
    const struct ggml_tensor *last = gf.nodes[gf.n_nodes - 1];
    const float *data = (const float *) last->data + (n - 1) * N_VOCAB;
    logits.assign(data, data + N_VOCAB);

    // In 2023, this was the function that builds the graph of one result.
    struct ggml_cgraph rebuilt = ggml_build_forward(gf.nodes[gf.n_nodes - 1]);
    const bool ok = rebuilt.n_nodes > 0 && rebuilt.nodes[rebuilt.n_nodes - 1] == last && rebuilt.n_nodes <= gf.n_nodes;
    ggml_free(ctx);
    return ok && gf.n_nodes < GGML_MAX_NODES;
}

} // namespace

int gpt2_2023_08(const struct weights *w, const int *prompt, struct answer *answer) {
    struct ggml_init_params params = {sizeof(struct weights) + 4 * 1024 * 1024, nullptr, false};
    struct ggml_context *ctx = ggml_init(params);
    if (!ctx) {
        fprintf(stderr, "cannot create a context\n");
        return 0;
    }
    struct model m;
    model_make(&m, ctx);
    model_fill(&m, w, fill);
    std::vector<int> tokens(prompt, prompt + N_PROMPT);
    std::vector<float> logits;
    bool ok = true;
    int n_past = 0;
    for (int i = 0; i < N_PREDICT && ok; i++) {
        const int n = int(tokens.size()) - n_past;
        ok = eval(m, tokens.data() + n_past, n, n_past, logits);
        n_past += n;
        answer->tokens[i] = logits_best(logits.data());
        tokens.push_back(answer->tokens[i]);
    }
    memcpy(answer->logits, logits.data(), sizeof answer->logits);
    ggml_free(ctx);
    return ok;
}
