// SPDX-License-Identifier: MIT
// load.c: opens a model: finds every tensor that the graph needs and compares its shape with the hyper-parameters. No weights are
// read.

#include "model/model.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

// ---- tensors of a layer ----

// extent_of computes these from the hyper-parameters.
enum extent {
    ONE,
    EMBD,
    Q,
    K,
    V,
    QKV,
    O,
    HEAD,
    HEADS,
    HEADS_KV,
    FF,
    FF_TWO,
    EXPERT_FF,
    SHARED_FF,
    EXPERTS,
    HALF_ROT,
    RANK,
    LATENT,
    MLA_Q,
    MLA_UNROTATED,
    MLA_V,
    MLA_O,
    KERNEL,
    INNER,
    CHANNELS,
    STATE_IN,
    STATE_HEADS,
    GROUP_INNER,
    GROUPS
};

// Properties of one layer. The bits do not overlap with arch_has.
enum layer_is {
    LAYER_EXPERT = 1 << 28, // the layer has experts
    LAYER_FUSED = 1 << 29,  // the file has one matrix for queries, keys and values
    LAYER_RANK = 1 << 30,   // the file has a low-rank query projection
};

enum when { ALWAYS, MAYBE }; // MAYBE: optional, NULL if absent

static const struct layer_row {
    const char *name; // without the prefix "blk.N."
    size_t at;        // offset in struct model_layer
    enum extent ne[3];
    enum when when;
    unsigned required; // bits that the layer must have
    unsigned excluded; // bits that the layer must not have
} layer_rows[] = {
#define ROW(name, field, a, b, c, when, required, excluded) \
    { name, offsetof(struct model_layer, field), {a, b, c}, when, required, excluded }
    ROW("attn_norm.weight", attn_norm, EMBD, ONE, ONE, ALWAYS, 0, 0),
    ROW("attn_norm.weight", attn_norm, EMBD, ONE, ONE, ALWAYS, ARCH_STATE, 0),
    ROW("ssm_in.weight", state_in, EMBD, STATE_IN, ONE, ALWAYS, ARCH_STATE, 0),
    ROW("ssm_conv1d.weight", conv, KERNEL, CHANNELS, ONE, ALWAYS, ARCH_STATE, 0),
    ROW("ssm_conv1d.bias", conv_bias, CHANNELS, ONE, ONE, ALWAYS, ARCH_STATE, 0),
    ROW("ssm_dt.bias", step_bias, STATE_HEADS, ONE, ONE, ALWAYS, ARCH_STATE, 0),
    ROW("ssm_a", decay, ONE, STATE_HEADS, ONE, ALWAYS, ARCH_STATE, 0),
    ROW("ssm_d", skip, ONE, STATE_HEADS, ONE, ALWAYS, ARCH_STATE, 0),
    ROW("ssm_norm.weight", state_norm, GROUP_INNER, GROUPS, ONE, ALWAYS, ARCH_STATE, 0),
    ROW("ssm_out.weight", state_out, INNER, EMBD, ONE, ALWAYS, ARCH_STATE, 0),
    ROW("attn_norm.bias", attn_norm_bias, EMBD, ONE, ONE, MAYBE, ARCH_LAYER_NORM, 0),
    ROW("attn_qkv.weight", qkv, EMBD, QKV, ONE, ALWAYS, LAYER_FUSED, 0),
    ROW("attn_qkv.bias", qkv_bias, QKV, ONE, ONE, MAYBE, LAYER_FUSED, 0),
    ROW("attn_q.weight", q, EMBD, Q, ONE, ALWAYS, 0, LAYER_FUSED | ARCH_MLA),
    ROW("attn_k.weight", k, EMBD, K, ONE, ALWAYS, 0, LAYER_FUSED | ARCH_MLA),
    ROW("attn_v.weight", v, EMBD, V, ONE, ALWAYS, 0, LAYER_FUSED | ARCH_MLA),
    ROW("attn_output.weight", o, O, EMBD, ONE, ALWAYS, 0, ARCH_MLA),
    ROW("attn_q.bias", q_bias, Q, ONE, ONE, MAYBE, 0, LAYER_FUSED | ARCH_MLA),
    ROW("attn_k.bias", k_bias, K, ONE, ONE, MAYBE, 0, LAYER_FUSED | ARCH_MLA),
    ROW("attn_v.bias", v_bias, V, ONE, ONE, MAYBE, 0, LAYER_FUSED | ARCH_MLA),
    ROW("attn_output.bias", o_bias, EMBD, ONE, ONE, MAYBE, 0, 0),
    ROW("attn_q_norm.weight", q_norm, HEAD, ONE, ONE, MAYBE, 0, ARCH_QK_WIDE | ARCH_QK_EACH | ARCH_MLA),
    ROW("attn_k_norm.weight", k_norm, HEAD, ONE, ONE, MAYBE, 0, ARCH_QK_WIDE | ARCH_QK_EACH | ARCH_MLA),
    ROW("attn_q.weight", q, EMBD, MLA_Q, ONE, ALWAYS, ARCH_MLA, LAYER_RANK),
    ROW("attn_q_a.weight", q_a, EMBD, RANK, ONE, ALWAYS, LAYER_RANK, 0),
    ROW("attn_q_a_norm.weight", q_a_norm, RANK, ONE, ONE, ALWAYS, LAYER_RANK, 0),
    ROW("attn_q_b.weight", q_b, RANK, MLA_Q, ONE, ALWAYS, LAYER_RANK, 0),
    ROW("attn_kv_a_mqa.weight", kv_a, EMBD, HEAD, ONE, ALWAYS, ARCH_MLA, 0),
    ROW("attn_kv_a_norm.weight", kv_a_norm, LATENT, ONE, ONE, ALWAYS, ARCH_MLA, 0),
    ROW("attn_k_b.weight", k_b, MLA_UNROTATED, LATENT, HEADS, ALWAYS, ARCH_MLA, 0),
    ROW("attn_v_b.weight", v_b, LATENT, MLA_V, HEADS, ALWAYS, ARCH_MLA, 0),
    ROW("attn_output.weight", o, MLA_O, EMBD, ONE, ALWAYS, ARCH_MLA, 0),
    ROW("attn_q_norm.weight", q_norm, Q, ONE, ONE, ALWAYS, ARCH_QK_WIDE, 0),
    ROW("attn_k_norm.weight", k_norm, K, ONE, ONE, ALWAYS, ARCH_QK_WIDE, 0),
    ROW("attn_q_norm.weight", q_norm, HEAD, HEADS, ONE, MAYBE, ARCH_QK_EACH, 0),
    ROW("attn_k_norm.weight", k_norm, HEAD, HEADS_KV, ONE, MAYBE, ARCH_QK_EACH, 0),
    ROW("attn_sinks.weight", sinks, HEADS, ONE, ONE, ALWAYS, ARCH_SINKS, 0),
    ROW("rope_freqs.weight", freq_factors, HALF_ROT, ONE, ONE, MAYBE, 0, ARCH_POSITIONS),
    ROW("post_attention_norm.weight", post_attn_norm, EMBD, ONE, ONE, ALWAYS, ARCH_POST_NORMS, 0),
    ROW("post_attention_norm.weight", ffn_norm, EMBD, ONE, ONE, ALWAYS, ARCH_NORM_IS_POST, 0),
    ROW("ffn_norm.weight", ffn_norm, EMBD, ONE, ONE, ALWAYS, 0, ARCH_PARALLEL | ARCH_NORM_IS_POST),
    ROW("ffn_norm.bias", ffn_norm_bias, EMBD, ONE, ONE, MAYBE, ARCH_LAYER_NORM, ARCH_PARALLEL),
    ROW("ffn_gate.weight", gate, EMBD, FF, ONE, ALWAYS, 0, LAYER_EXPERT | ARCH_FUSED_FFN | ARCH_NO_GATE),
    ROW("ffn_gate.bias", gate_bias, FF, ONE, ONE, MAYBE, 0, LAYER_EXPERT | ARCH_FUSED_FFN | ARCH_NO_GATE),
    ROW("ffn_up.weight", up, EMBD, FF, ONE, ALWAYS, 0, LAYER_EXPERT | ARCH_FUSED_FFN),
    ROW("ffn_up.bias", up_bias, FF, ONE, ONE, MAYBE, 0, LAYER_EXPERT | ARCH_FUSED_FFN),
    ROW("ffn_up.weight", up, EMBD, FF_TWO, ONE, ALWAYS, ARCH_FUSED_FFN, LAYER_EXPERT),
    ROW("ffn_down.weight", down, FF, EMBD, ONE, ALWAYS, 0, LAYER_EXPERT),
    ROW("ffn_down.bias", down_bias, EMBD, ONE, ONE, MAYBE, 0, LAYER_EXPERT),
    ROW("ffn_gate_inp.weight", router, EMBD, EXPERTS, ONE, ALWAYS, LAYER_EXPERT, 0),
    ROW("ffn_gate_inp.bias", router_bias, EXPERTS, ONE, ONE, MAYBE, LAYER_EXPERT, 0),
    ROW("exp_probs_b.bias", router_add, EXPERTS, ONE, ONE, MAYBE, LAYER_EXPERT, 0),
    ROW("ffn_gate_shexp.weight", gate_shared, EMBD, SHARED_FF, ONE, MAYBE, LAYER_EXPERT | ARCH_SOME_DENSE, 0),
    ROW("ffn_up_shexp.weight", up_shared, EMBD, SHARED_FF, ONE, MAYBE, LAYER_EXPERT | ARCH_SOME_DENSE, 0),
    ROW("ffn_down_shexp.weight", down_shared, SHARED_FF, EMBD, ONE, MAYBE, LAYER_EXPERT | ARCH_SOME_DENSE, 0),
    ROW("ffn_gate_exps.weight", gates, EMBD, EXPERT_FF, EXPERTS, ALWAYS, LAYER_EXPERT, 0),
    ROW("ffn_gate_exps.bias", gates_bias, EXPERT_FF, EXPERTS, ONE, MAYBE, LAYER_EXPERT, 0),
    ROW("ffn_up_exps.weight", ups, EMBD, EXPERT_FF, EXPERTS, ALWAYS, LAYER_EXPERT, 0),
    ROW("ffn_up_exps.bias", ups_bias, EXPERT_FF, EXPERTS, ONE, MAYBE, LAYER_EXPERT, 0),
    ROW("ffn_down_exps.weight", downs, EXPERT_FF, EMBD, EXPERTS, ALWAYS, LAYER_EXPERT, 0),
    ROW("ffn_down_exps.bias", downs_bias, EMBD, EXPERTS, ONE, MAYBE, LAYER_EXPERT, 0),
    ROW("post_ffw_norm.weight", post_ffn_norm, EMBD, ONE, ONE, ALWAYS, ARCH_POST_NORMS, 0),
#undef ROW
};
#define N_LAYER_ROWS (sizeof layer_rows / sizeof *layer_rows)
#define N_MODEL_WEIGHTS 10 // tensors outside layers, including a copy of the embedding for a tied output

static int64_t extent_of(const struct model_params *p, enum extent e) {
    switch (e) {
        case EMBD: return p->n_embd;
        case Q: return p->n_head * p->head_size;
        case K: return p->n_head_kv * p->head_size;
        case V: return p->n_head_kv * p->head_size_v;
        case QKV: return (p->n_head + p->n_head_kv) * p->head_size + p->n_head_kv * p->head_size_v;
        case O: return p->n_head * p->head_size_v;
        case HEAD: return p->head_size;
        case HEADS: return p->n_head;
        case HEADS_KV: return p->n_head_kv;
        case FF: return p->n_ff;
        case FF_TWO: return 2 * p->n_ff;
        case EXPERT_FF: return p->n_ff_expert;
        case SHARED_FF: return p->n_ff_expert * p->n_shared;
        case EXPERTS: return p->n_expert;
        case RANK: return p->n_rank;
        case LATENT: return p->head_size_v;
        case MLA_Q: return p->n_head * p->mla_key;
        case MLA_UNROTATED: return p->mla_key - p->n_rot;
        case MLA_V: return p->mla_value;
        case KERNEL: return p->n_conv;
        case INNER: return p->n_inner;
        case CHANNELS: return p->n_inner + 2 * p->n_group_state * p->n_state;
        case STATE_IN: return 2 * p->n_inner + 2 * p->n_group_state * p->n_state + p->n_state_head;
        case STATE_HEADS: return p->n_state_head;
        case GROUP_INNER: return p->n_group_state > 0 ? p->n_inner / p->n_group_state : 0; // 0 groups without ARCH_STATE
        case GROUPS: return p->n_group_state;
        case MLA_O: return p->n_head * p->mla_value;
        case HALF_ROT: return p->n_rot / 2;
        default: return 1;
    }
}

// State-space layers have only the rows with ARCH_STATE.
static bool layer_has_row(const struct layer_row *row, unsigned bits) {
    return (row->required & ~bits) == 0 && (row->excluded & bits) == 0 && (row->required & ARCH_STATE) == (bits & ARCH_STATE);
}

// ---- search ----

// Vectors must be f32, because f32 values are added to or multiplied with them.
static bool type_check(const struct ggml_tensor *t, bool is_vector, struct model_error *error) {
    if (is_vector && t->type != GGML_TYPE_F32) {
        return model_fail(error, "tensor '%s' has type %s, but must be f32", t->name, ggml_type_name(t->type));
    }
    return type_is_real(t->type) ||
           model_fail(error, "tensor '%s' has type %s, which cannot be converted to f32", t->name, ggml_type_name(t->type));
}

// Fills m->by_id with the tensors of all files, in file order. So tensor_find does not search a ggml_context.
static bool ids_make(struct model *m, struct model_error *error) {
    int64_t n = 0, i = 0;
    for (int64_t f = 0; f < m->n_files; f++) {
        n += gguf_get_n_tensors(berth_gguf_map_meta(m->files[f]));
    }
    m->by_id = berth_calloc((size_t) n + 1, sizeof *m->by_id);
    if (m->by_id == NULL) {
        return model_fail(error, "out of memory for the table of %" PRId64 " tensors", n);
    }
    for (int64_t f = 0; f < m->n_files; f++) {
        struct ggml_context *ctx = berth_gguf_map_tensors(m->files[f]);
        for (struct ggml_tensor *t = ggml_get_first_tensor(ctx); t != NULL && i < n; t = ggml_get_next_tensor(ctx, t)) {
            m->by_id[i++] = t;
        }
    }
    return true;
}

static struct ggml_tensor *tensor_find(const struct model *m, const char *name) {
    int64_t first = 0;
    for (int64_t f = 0; f < m->n_files; f++) {
        const struct gguf_context *meta = berth_gguf_map_meta(m->files[f]);
        const int64_t id = gguf_find_tensor(meta, name);
        if (id >= 0) {
            return m->by_id[first + id];
        }
        first += gguf_get_n_tensors(meta);
    }
    return NULL;
}

struct weight_spec {
    const char *name;
    int64_t ne[3];
    int64_t layer;
    bool is_needed;
    struct ggml_tensor **slot;
};

static bool weight_find(struct model *m, const struct weight_spec *w, struct model_error *error) {
    const char *name = w->name;
    const int64_t *ne = w->ne;
    struct ggml_tensor *t = *w->slot = tensor_find(m, name);
    if (t == NULL) {
        return !w->is_needed || model_fail(error, "tensor '%s' is missing", name);
    }
    if (t->ne[0] != ne[0] || t->ne[1] != ne[1] || t->ne[2] != ne[2] || t->ne[3] != 1) {
        return model_fail(error,
            "tensor '%s' is [%" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64 "], but the keys require [%" PRId64 ", %" PRId64
            ", %" PRId64 ", 1]",
            name, t->ne[0], t->ne[1], t->ne[2], t->ne[3], ne[0], ne[1], ne[2]);
    }
    const bool is_vector = (ne[1] == 1 && ne[2] == 1) || strstr(name, ".bias") != NULL || strstr(name, "_norm.") != NULL ||
                           strstr(name, ".ssm_conv1d") != NULL || ne[0] == 1;
    m->weights[m->n_weights++] = (struct model_weight){.file = t, .slot = w->slot, .layer = w->layer, .is_vector = is_vector};
    return type_check(t, is_vector, error);
}

static bool has_tensor(const struct model *m, int64_t i, const char *suffix) {
    char name[GGML_MAX_NAME];
    snprintf(name, sizeof name, "blk.%" PRId64 ".%s", i, suffix);
    return tensor_find(m, name) != NULL;
}

static unsigned layer_bits(const struct model *m, int64_t i) {
    const unsigned has = m->params.desc->has;
    return has | (params_has_experts(&m->params, i) ? (unsigned) LAYER_EXPERT : 0) |
           ((has & ARCH_FUSED_QKV) != 0 && has_tensor(m, i, "attn_qkv.weight") ? (unsigned) LAYER_FUSED : 0) |
           ((has & ARCH_MLA) != 0 && has_tensor(m, i, "attn_q_a.weight") ? (unsigned) LAYER_RANK : 0);
}

static bool layer_find(struct model *m, int64_t i, struct model_error *error) {
    const struct model_params *p = &m->params;
    const unsigned bits = layer_bits(m, i);
    for (size_t r = 0; r < N_LAYER_ROWS; r++) {
        const struct layer_row *row = &layer_rows[r];
        if (!layer_has_row(row, bits)) {
            continue;
        }
        char name[GGML_MAX_NAME];
        snprintf(name, sizeof name, "blk.%" PRId64 ".%s", i, row->name);
        const struct weight_spec spec = {.name = name,
            .ne = {extent_of(p, row->ne[0]), extent_of(p, row->ne[1]), extent_of(p, row->ne[2])},
            .layer = i,
            .is_needed = row->when != MAYBE,
            .slot = (struct ggml_tensor **) (void *) ((char *) &m->layers[i] + row->at)};
        if (!weight_find(m, &spec, error)) {
            return false;
        }
    }
    return true;
}

// The vocabulary size is the number of rows of the embedding.
static bool vocab_size_find(struct model *m, struct model_error *error) {
    const struct ggml_tensor *t = tensor_find(m, "token_embd.weight");
    if (t == NULL) {
        return model_fail(error, "tensor 'token_embd.weight' is missing");
    }
    m->params.n_vocab = t->ne[1];
    return (t->ne[1] > 0 && t->ne[1] <= INT32_MAX) ||
           model_fail(error, "tensor 'token_embd.weight' has an invalid number of rows (one per token): %" PRId64, t->ne[1]);
}

static bool tensors_find(struct model *m, struct model_error *error) {
    struct model_params *p = &m->params;
    if (!ids_make(m, error) || !vocab_size_find(m, error)) {
        return false;
    }
    const size_t n = N_MODEL_WEIGHTS + (size_t) p->n_layer * N_LAYER_ROWS;
    m->layers = berth_calloc((size_t) p->n_layer, sizeof *m->layers);
    m->weights = berth_calloc(n, sizeof *m->weights);
    if (m->layers == NULL || m->weights == NULL) {
        return model_fail(error, "out of memory for the tables of %" PRId64 " layers", p->n_layer);
    }
    const int64_t n_embd = p->n_embd, half = p->n_rot / 2, last = p->n_layer;
    const struct weight_spec rows[] = {
        {"position_embd.weight", {n_embd, p->n_ctx_train, 1}, -1, true, &m->position_embd},
        {"output_norm.bias", {n_embd, 1, 1}, last, false, &m->output_norm_bias},
        {"token_embd.weight", {n_embd, p->n_vocab, 1}, -1, true, &m->token_embd},
        {"output_norm.weight", {n_embd, 1, 1}, last, true, &m->output_norm},
        {"output.weight", {n_embd, p->n_vocab, 1}, last, false, &m->output},
        {"rope_freqs.weight", {half, 1, 1}, 0, false, &m->rope_freqs},
        {"rope_factors_long.weight", {half, 1, 1}, 0, false, &m->rope_long},
        {"rope_factors_short.weight", {half, 1, 1}, 0, false, &m->rope_short},
    };
    const unsigned required_bits[] = {ARCH_POSITIONS, ARCH_LAYER_NORM}; // bits that the first two rows require
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const bool is_used = i >= sizeof required_bits / sizeof *required_bits || (p->desc->has & required_bits[i]) != 0;
        if (is_used && !weight_find(m, &rows[i], error)) {
            return false;
        }
    }
    for (int64_t i = 0; i < p->n_layer; i++) {
        if (!layer_find(m, i, error)) {
            return false;
        }
    }
    m->is_tied = m->output == NULL;
    return true;
}

// ---- shapes of a model without a file ----

// A model without a file has an optional tensor only if its architecture uses the tensor: qwen2 has biases, qwen3 and gemma3 have
// norms of queries and keys.
static bool is_expected(const struct model_params *p, const struct layer_row *row) {
    const char *arch = p->arch;
    return row->when == ALWAYS ||
           (strcmp(arch, "qwen2") == 0 && strncmp(row->name, "attn_", 5) == 0 && strstr(row->name, ".bias") != NULL &&
               row->ne[0] != EMBD) ||
           ((strcmp(arch, "qwen3") == 0 || strcmp(arch, "qwen3moe") == 0 || strcmp(arch, "gemma3") == 0) && row->ne[0] == HEAD);
}

bool model_shapes(const struct model_params *p, bool has_output, model_shape_t each, void *user) {
    const int64_t table[3] = {p->n_embd, p->n_vocab, 1}, vector[3] = {p->n_embd, 1, 1};
    const int64_t positions[3] = {p->n_embd, p->n_ctx_train, 1};
    if (((p->desc->has & ARCH_POSITIONS) != 0 && !each("position_embd.weight", positions, user)) ||
        !each("token_embd.weight", table, user) || !each("output_norm.weight", vector, user) ||
        (has_output && !each("output.weight", table, user))) {
        return false;
    }
    for (int64_t i = 0; i < p->n_layer; i++) {
        const unsigned bits = p->desc->has | (params_has_experts(p, i) ? (unsigned) LAYER_EXPERT : 0);
        for (size_t r = 0; r < N_LAYER_ROWS; r++) {
            const struct layer_row *row = &layer_rows[r];
            const int64_t ne[3] = {extent_of(p, row->ne[0]), extent_of(p, row->ne[1]), extent_of(p, row->ne[2])};
            char name[GGML_MAX_NAME];
            snprintf(name, sizeof name, "blk.%" PRId64 ".%s", i, row->name);
            if (layer_has_row(row, bits) && is_expected(p, row) && !each(name, ne, user)) {
                return false;
            }
        }
    }
    return true;
}

static struct model *model_open_with(const char *path, bool read, struct model_error *error) {
    struct model *m = berth_calloc(1, sizeof *m);
    if (m == NULL) {
        model_fail(error, "out of memory");
        return NULL;
    }
    m->engine = &engine_native;
    if (!model_files_open(m, path, read, error) || !model_files_check(m, path, error)) {
        model_free(m);
        return NULL;
    }
    struct model_error why = {""};
    if (!model_params_read(berth_gguf_map_meta(m->file), &m->params, &why) || !tensors_find(m, &why)) {
        model_fail(error, "%s: %s", path, why.text);
        model_free(m);
        return NULL;
    }
    return m;
}

struct model *model_open(const char *path, struct model_error *error) {
    return model_open_with(path, false, error);
}

struct model *model_open_read(const char *path, struct model_error *error) {
    return model_open_with(path, true, error);
}

bool model_is_native(const char *path, bool is_pool) {
    struct berth_gguf_map *file = berth_gguf_map_open(path, &(struct berth_gguf_map_params){0});
    struct model_error error = {""};
    const char *arch = NULL;
    bool is_native = true;
    if (file != NULL && keys_text(berth_gguf_map_meta(file), "general.architecture", &arch, &error) && arch != NULL) {
        const struct model_arch *desc = arch_find(arch);
        is_native = desc != NULL && !(is_pool && (desc->has & ARCH_STATE) != 0);
    }
    berth_gguf_map_close(file);
    return is_native;
}

void model_free(struct model *m) {
    if (m == NULL) {
        return;
    }
    if (m->engine->model_fini != NULL) {
        m->engine->model_fini(m);
    }
    for (struct model_lora *lora = m->loras; lora != NULL;) {
        struct model_lora *next = lora->next;
        lora_free(lora);
        lora = next;
    }
    model_parts_free(m->parts, m->n_parts);
    berth_free(m->layer_device);
    berth_free(m->expert_device);
    berth_free(m->layers);
    berth_free(m->weights);
    berth_free(m->by_id);
    model_files_close(m);
    berth_free(m);
}
