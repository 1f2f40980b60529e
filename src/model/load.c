// SPDX-License-Identifier: MIT
// load.c: opens a model: finds every tensor that the graph needs and holds its shape against the hyper-parameters. Weights are
// not touched: a file whose weights are a hole is opened as fast as any.

#include "model/model.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

// ---- what a layer holds ----

enum extent { ONE, EMBD, Q, K, V, O, HEAD, FF, EXPERTS, HALF_ROT };
enum when { ALWAYS, MAYBE, DENSE, EXPERT }; // MAYBE: NULL if it is not there

static const struct layer_row {
    const char *name; // behind "blk.N."
    size_t at;        // in struct model_layer
    enum extent ne[3];
    enum when when;
} layer_rows[] = {
#define ROW(name, field, a, b, c, when) \
    { name, offsetof(struct model_layer, field), {a, b, c}, when }
    ROW("attn_norm.weight", attn_norm, EMBD, ONE, ONE, ALWAYS),
    ROW("attn_q.weight", q, EMBD, Q, ONE, ALWAYS),
    ROW("attn_k.weight", k, EMBD, K, ONE, ALWAYS),
    ROW("attn_v.weight", v, EMBD, V, ONE, ALWAYS),
    ROW("attn_output.weight", o, O, EMBD, ONE, ALWAYS),
    ROW("attn_q.bias", q_bias, Q, ONE, ONE, MAYBE),
    ROW("attn_k.bias", k_bias, K, ONE, ONE, MAYBE),
    ROW("attn_v.bias", v_bias, V, ONE, ONE, MAYBE),
    ROW("attn_output.bias", o_bias, EMBD, ONE, ONE, MAYBE),
    ROW("attn_q_norm.weight", q_norm, HEAD, ONE, ONE, MAYBE),
    ROW("attn_k_norm.weight", k_norm, HEAD, ONE, ONE, MAYBE),
    ROW("rope_freqs.weight", freq_factors, HALF_ROT, ONE, ONE, MAYBE),
    ROW("ffn_norm.weight", ffn_norm, EMBD, ONE, ONE, ALWAYS),
    ROW("ffn_gate.weight", gate, EMBD, FF, ONE, DENSE),
    ROW("ffn_up.weight", up, EMBD, FF, ONE, DENSE),
    ROW("ffn_down.weight", down, FF, EMBD, ONE, DENSE),
    ROW("ffn_gate_inp.weight", router, EMBD, EXPERTS, ONE, EXPERT),
    ROW("ffn_gate_exps.weight", gates, EMBD, FF, EXPERTS, EXPERT),
    ROW("ffn_up_exps.weight", ups, EMBD, FF, EXPERTS, EXPERT),
    ROW("ffn_down_exps.weight", downs, FF, EMBD, EXPERTS, EXPERT),
#undef ROW
};
#define N_LAYER_ROWS (sizeof layer_rows / sizeof *layer_rows)
#define N_MODEL_WEIGHTS 7 // with room for a second copy of a tied output

static int64_t extent_of(const struct model_params *p, enum extent e) {
    switch (e) {
        case EMBD: return p->n_embd;
        case Q: return p->n_head * p->head_size;
        case K: return p->n_head_kv * p->head_size;
        case V: return p->n_head_kv * p->head_size_v;
        case O: return p->n_head * p->head_size_v;
        case HEAD: return p->head_size;
        case FF: return p->n_ff;
        case EXPERTS: return p->n_expert;
        case HALF_ROT: return p->n_rot / 2;
        default: return 1;
    }
}

// ---- finding ----

// Vectors are added to and multiplied with f32; only matrices come in other types.
static bool type_check(const struct ggml_tensor *t, bool is_vector, struct model_error *error) {
    const struct ggml_type_traits *traits = ggml_get_type_traits(t->type);
    if (is_vector && t->type != GGML_TYPE_F32) {
        return model_fail(error, "tensor '%s' is %s, f32 is wanted", t->name, ggml_type_name(t->type));
    }
    if (!is_vector && t->type != GGML_TYPE_F32 && (traits == NULL || traits->to_float == NULL)) {
        return model_fail(error, "tensor '%s' is %s, which is no type of weights", t->name, ggml_type_name(t->type));
    }
    return true;
}

// The file's tensors by their id: the context's own search by name would look at all of them.
static bool ids_make(struct model *m, struct model_error *error) {
    struct ggml_context *ctx = berth_gguf_map_tensors(m->file);
    const int64_t n          = gguf_get_n_tensors(berth_gguf_map_meta(m->file));
    int64_t i                = 0;
    m->by_id                 = model_alloc_calloc((size_t) n + 1, sizeof *m->by_id);
    if (m->by_id == NULL) {
        return model_fail(error, "out of memory for the table of %" PRId64 " tensors", n);
    }
    for (struct ggml_tensor *t = ggml_get_first_tensor(ctx); t != NULL && i < n; t = ggml_get_next_tensor(ctx, t)) {
        m->by_id[i++] = t;
    }
    return true;
}

static struct ggml_tensor *tensor_find(const struct model *m, const char *name) {
    const int64_t id = gguf_find_tensor(berth_gguf_map_meta(m->file), name);
    return id >= 0 ? m->by_id[id] : NULL;
}

static bool weight_find(struct model *m, const char *name, const int64_t ne[3], int64_t layer, bool is_needed,
    struct ggml_tensor **slot, struct model_error *error) {
    struct ggml_tensor *t = tensor_find(m, name);
    *slot                 = t;
    if (t == NULL) {
        return !is_needed || model_fail(error, "tensor '%s' is missing", name);
    }
    if (t->ne[0] != ne[0] || t->ne[1] != ne[1] || t->ne[2] != ne[2] || t->ne[3] != 1) {
        return model_fail(error,
            "tensor '%s' is [%" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64 "], by the keys it is [%" PRId64 ", %" PRId64
            ", %" PRId64 ", 1]",
            name, t->ne[0], t->ne[1], t->ne[2], t->ne[3], ne[0], ne[1], ne[2]);
    }
    m->weights[m->n_weights++] = (struct model_weight){.file = t, .slot = slot, .layer = layer};
    return type_check(t, ne[1] == 1 && ne[2] == 1, error);
}

static bool layer_find(struct model *m, int64_t i, struct model_error *error) {
    const struct model_params *p = &m->params;
    for (size_t r = 0; r < N_LAYER_ROWS; r++) {
        const struct layer_row *row = &layer_rows[r];
        if (row->when == (p->n_expert > 0 ? DENSE : EXPERT)) {
            continue;
        }
        char name[GGML_MAX_NAME];
        snprintf(name, sizeof name, "blk.%" PRId64 ".%s", i, row->name);
        const int64_t ne[3]       = {extent_of(p, row->ne[0]), extent_of(p, row->ne[1]), extent_of(p, row->ne[2])};
        struct ggml_tensor **slot = (struct ggml_tensor **) (void *) ((char *) &m->layers[i] + row->at);
        if (!weight_find(m, name, ne, i, row->when != MAYBE, slot, error)) {
            return false;
        }
    }
    return true;
}

// The embedding has a row a token: the vocabulary's size is what it says.
static bool vocab_size_find(struct model *m, struct model_error *error) {
    const struct ggml_tensor *t = tensor_find(m, "token_embd.weight");
    if (t == NULL) {
        return model_fail(error, "tensor 'token_embd.weight' is missing");
    }
    m->params.n_vocab = t->ne[1];
    return (t->ne[1] > 0 && t->ne[1] <= INT32_MAX) ||
           model_fail(error, "tensor 'token_embd.weight' has %" PRId64 " rows, one a token", t->ne[1]);
}

static bool tensors_find(struct model *m, struct model_error *error) {
    struct model_params *p = &m->params;
    if (!ids_make(m, error) || !vocab_size_find(m, error)) {
        return false;
    }
    const size_t n = N_MODEL_WEIGHTS + (size_t) p->n_layer * N_LAYER_ROWS;
    m->layers      = model_alloc_calloc((size_t) p->n_layer, sizeof *m->layers);
    m->weights     = model_alloc_calloc(n, sizeof *m->weights);
    if (m->layers == NULL || m->weights == NULL) {
        return model_fail(error, "out of memory for the tables of %" PRId64 " layers", p->n_layer);
    }
    const int64_t table[3] = {p->n_embd, p->n_vocab, 1}, row[3] = {p->n_embd, 1, 1}, half[3] = {p->n_rot / 2, 1, 1};
    if (!weight_find(m, "token_embd.weight", table, -1, true, &m->token_embd, error) ||
        !weight_find(m, "output_norm.weight", row, p->n_layer, true, &m->output_norm, error) ||
        !weight_find(m, "output.weight", table, p->n_layer, false, &m->output, error) ||
        !weight_find(m, "rope_freqs.weight", half, 0, false, &m->rope_freqs, error) ||
        !weight_find(m, "rope_factors_long.weight", half, 0, false, &m->rope_long, error) ||
        !weight_find(m, "rope_factors_short.weight", half, 0, false, &m->rope_short, error)) {
        return false;
    }
    for (int64_t i = 0; i < p->n_layer; i++) {
        if (!layer_find(m, i, error)) {
            return false;
        }
    }
    m->is_tied = m->output == NULL;
    return true;
}

// ---- a model that is not there yet ----

// What may be there is so in the architectures that have it: qwen2 has biases, qwen3 norms of queries and keys.
static bool is_row_of(const struct model_params *p, const struct layer_row *row) {
    if (row->when != MAYBE) {
        return row->when != (p->n_expert > 0 ? DENSE : EXPERT);
    }
    return (strcmp(p->arch, "qwen2") == 0 && row->ne[1] == ONE && strstr(row->name, ".bias") != NULL && row->ne[0] != EMBD) ||
           (strcmp(p->arch, "qwen3") == 0 && row->ne[0] == HEAD);
}

bool model_shapes(const struct model_params *p, bool has_output, model_shape_t tell, void *user) {
    const int64_t table[3] = {p->n_embd, p->n_vocab, 1}, one[3] = {p->n_embd, 1, 1};
    if (!tell("token_embd.weight", table, user) || !tell("output_norm.weight", one, user) ||
        (has_output && !tell("output.weight", table, user))) {
        return false;
    }
    for (int64_t i = 0; i < p->n_layer; i++) {
        for (size_t r = 0; r < N_LAYER_ROWS; r++) {
            const struct layer_row *row = &layer_rows[r];
            const int64_t ne[3]         = {extent_of(p, row->ne[0]), extent_of(p, row->ne[1]), extent_of(p, row->ne[2])};
            char name[GGML_MAX_NAME];
            snprintf(name, sizeof name, "blk.%" PRId64 ".%s", i, row->name);
            if (is_row_of(p, row) && !tell(name, ne, user)) {
                return false;
            }
        }
    }
    return true;
}

static struct model *open_as(const char *path, bool read, struct model_error *error) {
    struct model *m = model_alloc_calloc(1, sizeof *m);
    if (m == NULL) {
        model_fail(error, "out of memory");
        return NULL;
    }
    m->file = berth_gguf_map_open(path, &(struct berth_gguf_map_params){.read = read});
    if (m->file == NULL) {
        model_fail(error, "%s", berth_last_error());
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
    return open_as(path, false, error);
}

struct model *model_open_read(const char *path, struct model_error *error) {
    return open_as(path, true, error);
}

void model_free(struct model *m) {
    if (m == NULL) {
        return;
    }
    for (struct model_lora *lora = m->loras; lora != NULL;) {
        struct model_lora *next = lora->next;
        lora_free(lora);
        lora = next;
    }
    for (int d = 0; d < m->n_parts; d++) {
        ggml_backend_buffer_free(m->parts[d].buffer);
        ggml_free(m->parts[d].ctx);
    }
    model_alloc_free(m->parts);
    model_alloc_free(m->layer_device);
    model_alloc_free(m->layers);
    model_alloc_free(m->weights);
    model_alloc_free(m->by_id);
    berth_gguf_map_close(m->file);
    model_alloc_free(m);
}
