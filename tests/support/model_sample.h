// SPDX-License-Identifier: MIT
// model_sample.h: small models of the llama family with random weights, as GGUF files, optionally with one error.
#pragma once

#include "check.h"
#include "gguf.h"
#include "model/model.h"

#include <math.h>
#include <unistd.h>

struct sample_model {
    const char *arch;
    int n_layer, n_embd, n_head, n_head_kv, n_ff, n_vocab, n_expert;
    int head_size, head_size_v; // 0: n_embd / n_head
    bool has_bias, has_qk_norm, has_output, has_freqs, has_long_freqs;
    const char *leave_out;                         // name of a tensor or a key that is not written; NULL: none
    const char *twist;                             // name of a tensor that is written with one column too many; NULL: none
    void (*last)(struct gguf_context *g, void *x); // called before the file is written, to change keys; NULL: none
    void *last_arg;
    uint32_t alignment; // alignment of the tensors in the file; 0: the default; 1: tensors start at odd addresses
};

static inline struct sample_model sample_model_default(void) {
    return (struct sample_model){
        .arch = "llama", .n_layer = 3, .n_embd = 32, .n_head = 4, .n_head_kv = 2, .n_ff = 48, .n_vocab = 40, .has_output = true};
}

static inline void sample_weight(const struct sample_model *m, struct gguf_context *g, struct ggml_context *ctx, uint64_t *seed,
    const char *name, int64_t n0, int64_t n1, int64_t n2) {
    if (m->leave_out != NULL && strcmp(m->leave_out, name) == 0) {
        return;
    }
    n0 += m->twist != NULL && strcmp(m->twist, name) == 0;
    struct ggml_tensor *t = ggml_new_tensor_3d(ctx, GGML_TYPE_F32, n0, n1, n2);
    struct check_rng r = check_rng_new(++*seed);
    const bool is_norm = n1 == 1 && strstr(name, "norm") != NULL;
    for (int64_t i = 0; i < ggml_nelements(t); i++) {
        const float x = (float) check_rng_below(&r, 2001) / 1000 - 1;
        ((float *) t->data)[i] = is_norm || strstr(name, "rope") != NULL ? 1 + x / 4 : x / sqrtf((float) n0) * 1.5f;
    }
    ggml_set_name(t, name);
    gguf_add_tensor(g, t);
}

static inline void sample_layer(
    const struct sample_model *m, struct gguf_context *g, struct ggml_context *ctx, uint64_t *seed, int i) {
    const int64_t e = m->n_embd, ff = m->n_ff, x = m->n_expert;
    const int64_t head = m->head_size > 0 ? m->head_size : e / m->n_head;
    const int64_t head_v = m->head_size_v > 0 ? m->head_size_v : e / m->n_head;
    const int64_t q = head * m->n_head, k_all = head * m->n_head_kv, v_all = head_v * m->n_head_kv, o = head_v * m->n_head;
    const struct {
        const char *name;
        int64_t n0, n1, n2;
        bool is_there;
    } rows[] = {
        {"attn_norm.weight", e, 1, 1, true},
        {"attn_q.weight", e, q, 1, true},
        {"attn_k.weight", e, k_all, 1, true},
        {"attn_v.weight", e, v_all, 1, true},
        {"attn_output.weight", o, e, 1, true},
        {"attn_q.bias", q, 1, 1, m->has_bias},
        {"attn_k.bias", k_all, 1, 1, m->has_bias},
        {"attn_v.bias", v_all, 1, 1, m->has_bias},
        {"attn_q_norm.weight", head, 1, 1, m->has_qk_norm},
        {"attn_k_norm.weight", head, 1, 1, m->has_qk_norm},
        {"ffn_norm.weight", e, 1, 1, true},
        {"ffn_gate.weight", e, ff, 1, x == 0},
        {"ffn_up.weight", e, ff, 1, x == 0},
        {"ffn_down.weight", ff, e, 1, x == 0},
        {"ffn_gate_inp.weight", e, x, 1, x > 0},
        {"ffn_gate_exps.weight", e, ff, x, x > 0},
        {"ffn_up_exps.weight", e, ff, x, x > 0},
        {"ffn_down_exps.weight", ff, e, x, x > 0},
    };
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%d.%s", i, rows[k].name);
        if (rows[k].is_there) {
            sample_weight(m, g, ctx, seed, name, rows[k].n0, rows[k].n1, rows[k].n2);
        }
    }
}

static inline void sample_u32(const struct sample_model *m, struct gguf_context *g, const char *rest, uint32_t value) {
    char key[96];
    snprintf(key, sizeof key, "%s.%s", m->arch, rest);
    if (m->leave_out == NULL || strcmp(m->leave_out, rest) != 0) {
        gguf_set_val_u32(g, key, value);
    }
}

// path must end in XXXXXX. The caller deletes the file.
static inline void sample_model_write(const struct sample_model *m, char *path) {
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = (size_t) 16 << 20});
    struct gguf_context *g = gguf_init_empty();
    uint64_t seed = 1;
    char key[96];
    gguf_set_val_str(g, "general.architecture", m->arch);
    sample_u32(m, g, "block_count", (uint32_t) m->n_layer);
    sample_u32(m, g, "context_length", 600);
    sample_u32(m, g, "embedding_length", (uint32_t) m->n_embd);
    sample_u32(m, g, "feed_forward_length", (uint32_t) m->n_ff);
    sample_u32(m, g, "attention.head_count", (uint32_t) m->n_head);
    sample_u32(m, g, "attention.head_count_kv", (uint32_t) m->n_head_kv);
    if (m->head_size > 0) {
        sample_u32(m, g, "attention.key_length", (uint32_t) m->head_size);
        sample_u32(m, g, "attention.value_length", (uint32_t) m->head_size_v);
    }
    if (m->n_expert > 0) {
        sample_u32(m, g, "expert_count", (uint32_t) m->n_expert);
        sample_u32(m, g, "expert_used_count", 2);
    }
    snprintf(key, sizeof key, "%s.attention.layer_norm_rms_epsilon", m->arch);
    gguf_set_val_f32(g, key, 1e-5f);
    if (m->alignment > 0) {
        struct ggml_tensor *filler = ggml_new_tensor_1d(ctx, GGML_TYPE_I8, 3);
        memset(filler->data, 1, 3);
        ggml_set_name(filler, "filler");
        gguf_set_val_u32(g, GGUF_KEY_GENERAL_ALIGNMENT, m->alignment);
        gguf_add_tensor(g, filler);
    }
    sample_weight(m, g, ctx, &seed, "token_embd.weight", m->n_embd, m->n_vocab, 1);
    sample_weight(m, g, ctx, &seed, "output_norm.weight", m->n_embd, 1, 1);
    if (m->has_output) {
        sample_weight(m, g, ctx, &seed, "output.weight", m->n_embd, m->n_vocab, 1);
    }
    if (m->has_freqs) {
        sample_weight(m, g, ctx, &seed, "rope_freqs.weight", m->n_embd / m->n_head / 2, 1, 1);
    }
    if (m->has_long_freqs) {
        sample_weight(m, g, ctx, &seed, "rope_factors_long.weight", m->n_embd / m->n_head / 2, 1, 1);
        sample_weight(m, g, ctx, &seed, "rope_factors_short.weight", m->n_embd / m->n_head / 2, 1, 1);
    }
    for (int i = 0; i < m->n_layer; i++) {
        sample_layer(m, g, ctx, &seed, i);
    }
    if (m->last != NULL) {
        m->last(g, m->last_arg);
    }
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    assert_true(gguf_write_to_file(g, path, false));
    gguf_free(g);
    ggml_free(ctx);
}
