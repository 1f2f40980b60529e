// SPDX-License-Identifier: MIT
// gpt2_2023_11.cpp: a C++ program for the ggml API of November 2023. A tensor allocator places the weights in a buffer of a
// backend. A graph allocator over tensor allocators measures and places graphs. The program evaluates one sequence, or several in
// one batch with a mask.

#include "ggml/ggml-alloc.h"
#include "ggml/ggml-backend.h"
#include "ggml/ggml.h"

#include "gpt2_build.h"

#include <vector>

namespace {

void fill(struct ggml_tensor *tensor, const float *data) {
    ggml_backend_tensor_set(tensor, data, 0, ggml_nbytes(tensor));
}

struct ggml_tensor *attend(struct ggml_context *ctx, struct ggml_tensor *kq, const struct inputs *in) {
    kq = ggml_scale(ctx, kq, in->scale);
    kq = in->mask != nullptr ? ggml_add(ctx, kq, in->mask) : ggml_diag_mask_inf(ctx, kq, in->n_past);
    return ggml_soft_max(ctx, kq);
}

struct session {
    ggml_backend_t backend = nullptr;
    struct ggml_context *ctx = nullptr;
    ggml_backend_buffer_t data = nullptr;
    ggml_backend_buffer_t work = nullptr;
    ggml_gallocr_t galloc = nullptr;
    ggml_tallocr_t talloc = nullptr;
    struct model m = {};
    std::vector<uint8_t> memory = std::vector<uint8_t>(ggml_tensor_overhead() * 1024 + ggml_graph_overhead());

    ~session() {
        ggml_tallocr_free(talloc);
        ggml_gallocr_free(galloc);
        ggml_backend_buffer_free(work);
        ggml_backend_buffer_free(data);
        ggml_free(ctx);
        ggml_backend_free(backend);
    }
};

bool load(struct session &s, const struct weights *w) {
    struct ggml_init_params params = {ggml_tensor_overhead() * 64, nullptr, true};
    s.backend = ggml_backend_cpu_init();
    s.ctx = ggml_init(params);
    if (!s.backend || !s.ctx) {
        fprintf(stderr, "cannot create a backend\n");
        return false;
    }
    ggml_backend_cpu_set_n_threads(s.backend, 2);
    model_make(&s.m, s.ctx);
    size_t size = 0;
    for (struct ggml_tensor *t = ggml_get_first_tensor(s.ctx); t != nullptr; t = ggml_get_next_tensor(s.ctx, t)) {
        size += ggml_nbytes(t) + ggml_backend_get_alignment(s.backend);
    }
    s.data = ggml_backend_alloc_buffer(s.backend, size);
    ggml_tallocr_t talloc = ggml_tallocr_new_from_buffer(s.data);
    for (struct ggml_tensor *t = ggml_get_first_tensor(s.ctx); t != nullptr; t = ggml_get_next_tensor(s.ctx, t)) {
        ggml_tallocr_alloc(talloc, t);
    }
    ggml_tallocr_free(talloc);
    model_fill(&s.m, w, fill);
    s.galloc = ggml_gallocr_new();
    return true;
}

// The inputs get their data later, when they have memory.
struct ggml_cgraph *build(struct session &s, ggml_tallocr_t talloc, struct inputs &in, bool has_mask) {
    struct ggml_init_params params = {s.memory.size(), s.memory.data(), true};
    struct ggml_context *ctx = ggml_init(params);
    struct ggml_cgraph *gf = ggml_new_graph(ctx);
    in.tokens = ggml_new_tensor_1d(ctx, GGML_TYPE_I32, in.n);
    in.positions = ggml_new_tensor_1d(ctx, GGML_TYPE_I32, in.n);
    in.scale = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 1);
    in.mask = has_mask ? ggml_new_tensor_3d(ctx, GGML_TYPE_F32, in.n_past + in.n, in.n, 1) : nullptr;
    for (struct ggml_tensor *t : {in.tokens, in.positions, in.scale, in.mask}) {
        if (t != nullptr) {
            ggml_tallocr_alloc(talloc, t);
        }
    }
    gpt2_build(ctx, gf, &s.m, &in, attend);
    ggml_free(ctx);
    return gf;
}

// Measures with the longest past, then allocates a buffer of that size.
bool reserve(struct session &s, int n, bool has_mask) {
    struct inputs in = {nullptr, nullptr, nullptr, nullptr, n, N_CTX - n};
    ggml_tallocr_t size = ggml_tallocr_new_measure_from_backend(s.backend);
    const size_t bytes = ggml_gallocr_alloc_graph(s.galloc, size, build(s, size, in, has_mask));
    ggml_tallocr_free(size);
    s.work = ggml_backend_alloc_buffer(s.backend, bytes);
    s.talloc = ggml_tallocr_new_from_buffer(s.work);
    return s.talloc != nullptr;
}

// A token at a position of a sequence, and the logits after it.
struct row {
    int token, position, sequence;
    std::vector<float> logits;
};

// cells: the cached tokens, to which the rows are appended.
void eval(struct session &s, std::vector<row> &rows, std::vector<row> &cells, bool has_mask) {
    struct inputs in = {nullptr, nullptr, nullptr, nullptr, int(rows.size()), int(cells.size())};
    ggml_tallocr_reset(s.talloc);
    struct ggml_cgraph *gf = build(s, s.talloc, in, has_mask);
    ggml_gallocr_alloc_graph(s.galloc, s.talloc, gf);
    for (const row &r : rows) {
        cells.push_back(r);
    }
    std::vector<int32_t> tokens, positions;
    std::vector<float> mask;
    for (const row &r : rows) {
        tokens.push_back(r.token);
        positions.push_back(r.position);
        for (const row &c : cells) {
            mask.push_back(c.sequence == r.sequence && c.position <= r.position ? 0.0f : -INFINITY);
        }
    }
    ggml_backend_tensor_set(in.tokens, tokens.data(), 0, tokens.size() * sizeof(int32_t));
    ggml_backend_tensor_set(in.positions, positions.data(), 0, positions.size() * sizeof(int32_t));
    ggml_backend_tensor_set(in.scale, &kq_scale, 0, sizeof kq_scale);
    if (has_mask) {
        ggml_backend_tensor_set(in.mask, mask.data(), 0, mask.size() * sizeof(float));
    }
    ggml_backend_graph_compute(s.backend, gf);
    const struct ggml_tensor *logits = gf->nodes[gf->n_nodes - 1];
    for (size_t i = 0; i < rows.size(); i++) {
        rows[i].logits.resize(N_VOCAB);
        ggml_backend_tensor_get(logits, rows[i].logits.data(), i * logits->nb[1], N_VOCAB * sizeof(float));
    }
}

bool generate(
    const struct weights *w, const int *prompts, struct answer *answers, int n_sequences, int n_predict, bool has_mask) {
    struct session s;
    if (!load(s, w) || !reserve(s, n_sequences * N_PROMPT, has_mask)) {
        return false;
    }
    std::vector<row> cells, rows;
    for (int q = 0; q < n_sequences; q++) {
        for (int i = 0; i < N_PROMPT; i++) {
            rows.push_back({prompts[q * N_PROMPT + i], i, q, {}});
        }
    }
    for (int step = 0; step < n_predict; step++) {
        eval(s, rows, cells, has_mask);
        std::vector<row> next;
        for (const row &r : rows) {
            if (r.position == N_PROMPT - 1 + step) { // the last token of its sequence
                answers[r.sequence].tokens[step] = logits_best(r.logits.data());
                memcpy(answers[r.sequence].logits, r.logits.data(), N_VOCAB * sizeof(float));
                next.push_back({answers[r.sequence].tokens[step], r.position + 1, r.sequence, {}});
            }
        }
        rows = next;
    }
    return true;
}

} // namespace

int gpt2_2023_11(const struct weights *w, const int *prompt, struct answer *answer) {
    return generate(w, prompt, answer, 1, N_PREDICT, false);
}

// The sequences share the cells of the cache.
int gpt2_2023_11_batched(const struct weights *w, const int *prompts, struct answer *answers, int n_sequences) {
    return generate(w, prompts, answers, n_sequences, N_CTX / n_sequences - N_PROMPT, true);
}
