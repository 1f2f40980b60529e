// SPDX-License-Identifier: MIT
// lora_sample.h: random adapters for the models of model_sample.h, as GGUF files, optionally with one error.
#pragma once

#include "model_sample.h"

struct sample_lora {
    int rank;
    float alpha;           // 0: no key for alpha
    enum ggml_type type;   // type of the tensors
    const char *type_key;  // value of the key general.type; NULL: "adapter"
    const char *kind_key;  // value of the key adapter.type; NULL: "lora"
    const char *arch;      // general.architecture; NULL: that of the model
    const char *leave_out; // name of a tensor that is not written; NULL: none
    const char *stray;     // name of a tensor that is added although the model has no such weight; NULL: none
    int more;              // columns by which each matrix A is too wide
};

static inline void sample_lora_matrix(
    const struct sample_lora *l, struct gguf_context *g, struct ggml_context *ctx, const char *name, int64_t n0, int64_t n1) {
    if (l->leave_out != NULL && strcmp(l->leave_out, name) == 0) {
        return;
    }
    struct ggml_tensor *t = ggml_new_tensor_2d(ctx, l->type, n0, n1);
    struct check_rng r = check_rng_new((uint64_t) (n0 * 31 + n1 + (int64_t) strlen(name)));
    float row[512];
    for (int64_t j = 0; j < n1; j++) {
        for (int64_t i = 0; i < n0; i++) {
            row[i] = ((float) check_rng_below(&r, 2001) / 1000 - 1) / sqrtf((float) n0);
        }
        ggml_quantize_chunk(l->type, row, (char *) t->data + (size_t) j * t->nb[1], 0, 1, n0, NULL);
    }
    ggml_set_name(t, name);
    gguf_add_tensor(g, t);
}

// The caller deletes the file.
static inline void sample_lora_write(const struct sample_lora *l, const struct sample_model *m, char *path) {
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = (size_t) 4 << 20});
    struct gguf_context *g = gguf_init_empty();
    gguf_set_val_str(g, "general.type", l->type_key != NULL ? l->type_key : "adapter");
    gguf_set_val_str(g, "adapter.type", l->kind_key != NULL ? l->kind_key : "lora");
    gguf_set_val_str(g, "general.architecture", l->arch != NULL ? l->arch : m->arch);
    if (l->alpha != 0) {
        gguf_set_val_f32(g, "adapter.lora.alpha", l->alpha);
    }
    const struct {
        const char *name;
        int64_t n_in, n_out;
    } rows[] = {{"attn_q", m->n_embd, m->n_embd}, {"attn_output", m->n_embd, m->n_embd}, {"ffn_gate", m->n_embd, m->n_ff},
        {"ffn_up", m->n_embd, m->n_ff}, {"ffn_down", m->n_ff, m->n_embd}};
    for (int i = 0; i < m->n_layer; i++) {
        for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
            char name[64];
            snprintf(name, sizeof name, "blk.%d.%s.weight.lora_a", i, rows[k].name);
            sample_lora_matrix(l, g, ctx, name, rows[k].n_in + l->more, l->rank);
            name[strlen(name) - 1] = 'b';
            sample_lora_matrix(l, g, ctx, name, l->rank, rows[k].n_out);
        }
    }
    if (l->stray != NULL) {
        sample_lora_matrix(l, g, ctx, l->stray, 8, 8);
    }
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    assert_true(gguf_write_to_file(g, path, false));
    gguf_free(g);
    ggml_free(ctx);
}
