// SPDX-License-Identifier: MIT
// params.c: the hyper-parameters of a model, from its keys. What the keys say is held against the tensors' shapes in load.c; here
// only ranges are checked, so that no product below can overflow.

#include "model/model.h"

#include <float.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MAX_WIDTH ((int64_t) 1 << 24)   // elements of a row
#define MAX_CONTEXT ((int64_t) 1 << 30) // positions
#define MAX_LAYERS 4096                 // of a model that has no tensors yet

// A row an architecture; all of them are built the same way (graph.c), but for how
// they turn queries and keys, and whether a window that their file names counts: in llama, qwen2 and qwen3 llama.cpp looks at all
// positions whatever the file says, and so it is here.
static const struct arch_row {
    const char *name;
    int rope_type;
    bool has_window;
} archs[] = {
    {"llama", GGML_ROPE_TYPE_NORMAL, false},
    {"mistral", GGML_ROPE_TYPE_NORMAL, true},
    {"qwen2", GGML_ROPE_TYPE_NEOX, false},
    {"qwen3", GGML_ROPE_TYPE_NEOX, false},
};

static bool arch_find(const struct gguf_context *meta, struct model_params *p, bool *has_window, struct model_error *error) {
    const char *name;
    if (!keys_text(meta, "general.architecture", &name, error)) {
        return false;
    }
    for (size_t i = 0; name != NULL && i < sizeof archs / sizeof *archs; i++) {
        if (strcmp(name, archs[i].name) == 0) {
            p->arch      = archs[i].name;
            p->rope_type = archs[i].rope_type;
            *has_window  = archs[i].has_window;
            return true;
        }
    }
    if (name == NULL) {
        return model_fail(error, "it is no model: key 'general.architecture' is missing");
    }
    char known[256] = "";
    for (size_t i = 0, n = 0; i < sizeof archs / sizeof *archs && n < sizeof known; i++) {
        n += (size_t) snprintf(known + n, sizeof known - n, "%s%s", i > 0 ? ", " : "", archs[i].name);
    }
    return model_fail(error, "architecture '%.64s' is not supported; known are %s", name, known);
}

static const char *key_of(const struct model_params *p, const char *rest, char text[96]) {
    snprintf(text, 96, "%s.%s", p->arch, rest);
    return text;
}

// *out is 0 for an absent key.
static bool get(const struct gguf_context *meta, const struct model_params *p, const char *rest, int64_t max, int64_t *out,
    struct model_error *error) {
    char key[96];
    *out = 0;
    return keys_int(meta, key_of(p, rest, key), 1, max, out, error);
}

static bool need(const struct gguf_context *meta, const struct model_params *p, const char *rest, int64_t max, int64_t *out,
    struct model_error *error) {
    char key[96];
    if (!get(meta, p, rest, max, out, error)) {
        return false;
    }
    return *out > 0 || model_fail(error, "key '%s' is missing", key_of(p, rest, key));
}

static bool sizes_read(const struct gguf_context *meta, struct model_params *p, struct model_error *error) {
    char key[96];
    const int64_t n_most = gguf_get_n_tensors(meta) > 0 ? gguf_get_n_tensors(meta) : MAX_LAYERS; // a layer has tensors
    if (!need(meta, p, "block_count", n_most, &p->n_layer, error) ||
        !need(meta, p, "embedding_length", MAX_WIDTH, &p->n_embd, error) ||
        !need(meta, p, "attention.head_count", p->n_embd, &p->n_head, error) ||
        !get(meta, p, "attention.head_count_kv", p->n_head, &p->n_head_kv, error) ||
        !get(meta, p, "attention.key_length", MAX_WIDTH, &p->head_size, error) ||
        !get(meta, p, "attention.value_length", MAX_WIDTH, &p->head_size_v, error) ||
        !need(meta, p, "feed_forward_length", MAX_WIDTH, &p->n_ff, error) ||
        !get(meta, p, "context_length", MAX_CONTEXT, &p->n_ctx_train, error) ||
        !keys_int(meta, key_of(p, "expert_count", key), 0, 4096, &p->n_expert, error) ||
        !keys_int(meta, key_of(p, "expert_used_count", key), 0, p->n_expert, &p->n_expert_used, error)) {
        return false;
    }
    p->n_head_kv   = p->n_head_kv > 0 ? p->n_head_kv : p->n_head;
    p->n_ctx_train = p->n_ctx_train > 0 ? p->n_ctx_train : 2048;
    if (p->n_head % p->n_head_kv != 0) {
        return model_fail(error, "%" PRId64 " heads cannot share %" PRId64 " heads of keys and values", p->n_head, p->n_head_kv);
    }
    if (p->head_size == 0 && p->n_embd % p->n_head != 0) {
        return model_fail(error, "%" PRId64 " elements cannot be dealt to %" PRId64 " heads", p->n_embd, p->n_head);
    }
    p->head_size   = p->head_size > 0 ? p->head_size : p->n_embd / p->n_head;
    p->head_size_v = p->head_size_v > 0 ? p->head_size_v : p->head_size;
    if (p->n_expert > 0 && p->n_expert_used == 0) {
        return model_fail(
            error, "there are %" PRId64 " experts, but key '%s' is missing", p->n_expert, key_of(p, "expert_used_count", key));
    }
    return true;
}

// How positions beyond those of training are squeezed in.
static bool scaling_read(const struct gguf_context *meta, struct model_params *p, struct model_error *error) {
    char key[96];
    const char *type;
    float factor  = 0;
    p->n_ctx_orig = p->n_ctx_train;
    p->freq_scale = p->attn_factor = 1;
    if (!keys_text(meta, key_of(p, "rope.scaling.type", key), &type, error) ||
        !keys_real(meta, key_of(p, "rope.scale_linear", key), &factor, error) ||
        !keys_real(meta, key_of(p, "rope.scaling.factor", key), &factor, error) ||
        !keys_real(meta, key_of(p, "rope.scaling.attn_factor", key), &p->attn_factor, error) ||
        !keys_int(meta, key_of(p, "rope.scaling.original_context_length", key), 1, MAX_CONTEXT, &p->n_ctx_orig, error)) {
        return false;
    }
    if (type == NULL) {
        type = "linear";
    }
    const bool is_yarn = strcmp(type, "yarn") == 0;
    if (!is_yarn && strcmp(type, "linear") != 0 && strcmp(type, "none") != 0 && strcmp(type, "longrope") != 0) {
        return model_fail(error, "rope scaling '%.64s' is not supported; none, linear, yarn and longrope are", type);
    }
    if (factor < 0) {
        return model_fail(error, "rope scaling factor %g is negative", (double) factor);
    }
    if (factor > 0 && factor < FLT_MIN) { // its inverse may be infinite
        return model_fail(error, "rope scaling factor %g is too small", (double) factor);
    }
    p->ext_factor = is_yarn ? 1 : 0;
    if (factor > 0 && strcmp(type, "none") != 0) {
        p->freq_scale = 1 / factor;
    }
    return true;
}

bool model_params_read(const struct gguf_context *meta, struct model_params *p, struct model_error *error) {
    char key[96];
    bool has_window = false;
    *p              = (struct model_params){.freq_base = 10000, .rms_eps = 0};
    if (!arch_find(meta, p, &has_window, error) || !sizes_read(meta, p, error) || !scaling_read(meta, p, error)) {
        return false;
    }
    p->n_rot = p->head_size;
    if (!keys_int(meta, key_of(p, "rope.dimension_count", key), 2, p->head_size, &p->n_rot, error) ||
        !keys_real(meta, key_of(p, "rope.freq_base", key), &p->freq_base, error) ||
        !keys_real(meta, key_of(p, "attention.layer_norm_rms_epsilon", key), &p->rms_eps, error) ||
        (has_window && !keys_int(meta, key_of(p, "attention.sliding_window", key), 0, MAX_CONTEXT, &p->n_window, error))) {
        return false;
    }
    if (p->n_rot % 2 != 0) {
        return model_fail(error, "rope turns pairs, but %" PRId64 " elements are to be turned", p->n_rot);
    }
    if (!(p->rms_eps > 0) || !(p->freq_base > 0)) {
        return model_fail(error, "%s",
            p->freq_base > 0 ? "the epsilon of the norm is missing or not positive"
                             : "the base of rope's frequencies is not positive");
    }
    return true;
}
