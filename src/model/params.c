// SPDX-License-Identifier: MIT
// params.c: reads keys of a file and the hyper-parameters of a model. Files are untrusted, so the type and the range of every key
// are checked. The ranges ensure that no product of hyper-parameters overflows. load.c checks the shapes of the tensors.

#include "model/model.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define MAX_WIDTH ((int64_t) 1 << 24)   // elements per row
#define MAX_CONTEXT ((int64_t) 1 << 30) // positions
#define MAX_LAYERS 4096                 // for a header without tensors; otherwise the number of tensors is the limit

// ---- keys ----

// False: not an integer, or the value does not fit.
static bool value_as_int(const struct gguf_context *meta, int64_t id, int64_t *out) {
    switch (gguf_get_kv_type(meta, id)) {
        case GGUF_TYPE_UINT8: *out = gguf_get_val_u8(meta, id); return true;
        case GGUF_TYPE_INT8: *out = gguf_get_val_i8(meta, id); return true;
        case GGUF_TYPE_UINT16: *out = gguf_get_val_u16(meta, id); return true;
        case GGUF_TYPE_INT16: *out = gguf_get_val_i16(meta, id); return true;
        case GGUF_TYPE_UINT32: *out = gguf_get_val_u32(meta, id); return true;
        case GGUF_TYPE_INT32: *out = gguf_get_val_i32(meta, id); return true;
        case GGUF_TYPE_INT64: *out = gguf_get_val_i64(meta, id); return true;
        case GGUF_TYPE_UINT64: {
            const uint64_t value = gguf_get_val_u64(meta, id);
            *out = (int64_t) value;
            return value <= INT64_MAX;
        }
        default: return false;
    }
}

// Some keys hold one value per layer. The values must be equal.
static bool array_as_int(const struct gguf_context *meta, int64_t id, int64_t *out) {
    const size_t n = gguf_get_arr_n(meta, id);
    const void *data = NULL;
    const bool is_u32 = gguf_get_arr_type(meta, id) == GGUF_TYPE_UINT32;
    if (n > 0 && (is_u32 || gguf_get_arr_type(meta, id) == GGUF_TYPE_INT32)) {
        data = gguf_get_arr_data(meta, id);
    }
    if (data == NULL) {
        return false;
    }
    *out = is_u32 ? (int64_t) ((const uint32_t *) data)[0] : ((const int32_t *) data)[0];
    for (size_t i = 1; i < n; i++) {
        if (((const uint32_t *) data)[i] != ((const uint32_t *) data)[0]) {
            return false;
        }
    }
    return true;
}

bool keys_int(
    const struct gguf_context *meta, const char *key, int64_t min, int64_t max, int64_t *out, struct model_error *error) {
    const int64_t id = gguf_find_key(meta, key);
    int64_t value;
    if (id < 0) {
        return true;
    }
    const bool is_list = gguf_get_kv_type(meta, id) == GGUF_TYPE_ARRAY;
    if (is_list ? !array_as_int(meta, id, &value) : !value_as_int(meta, id, &value)) {
        return model_fail(error, "key '%s' has type %s, but must be an integer", key,
            is_list ? "array (its values are not equal integers)" : gguf_type_name(gguf_get_kv_type(meta, id)));
    }
    if (value < min || value > max) {
        return model_fail(error, "key '%s' is %" PRId64 ", but must be between %" PRId64 " and %" PRId64, key, value, min, max);
    }
    *out = value;
    return true;
}

bool keys_real(const struct gguf_context *meta, const char *key, float *out, struct model_error *error) {
    const int64_t id = gguf_find_key(meta, key);
    if (id < 0) {
        return true;
    }
    const enum gguf_type type = gguf_get_kv_type(meta, id);
    if (type != GGUF_TYPE_FLOAT32 && type != GGUF_TYPE_FLOAT64) {
        return model_fail(error, "key '%s' has type %s, but must be a float", key, gguf_type_name(type));
    }
    *out = type == GGUF_TYPE_FLOAT32 ? gguf_get_val_f32(meta, id) : (float) gguf_get_val_f64(meta, id);
    return isfinite(*out) || model_fail(error, "key '%s' is not finite", key);
}

bool keys_bool(const struct gguf_context *meta, const char *key, bool *out, struct model_error *error) {
    const int64_t id = gguf_find_key(meta, key);
    if (id < 0) {
        return true;
    }
    if (gguf_get_kv_type(meta, id) != GGUF_TYPE_BOOL) {
        return model_fail(error, "key '%s' has type %s, but must be a bool", key, gguf_type_name(gguf_get_kv_type(meta, id)));
    }
    *out = gguf_get_val_bool(meta, id);
    return true;
}

bool keys_text(const struct gguf_context *meta, const char *key, const char **out, struct model_error *error) {
    const int64_t id = gguf_find_key(meta, key);
    *out = NULL;
    if (id < 0) {
        return true;
    }
    if (gguf_get_kv_type(meta, id) != GGUF_TYPE_STRING) {
        return model_fail(error, "key '%s' has type %s, but must be a string", key, gguf_type_name(gguf_get_kv_type(meta, id)));
    }
    *out = gguf_get_val_str(meta, id);
    return true;
}

// ---- hyper-parameters ----

static bool arch_read(const struct gguf_context *meta, struct model_params *p, struct model_error *error) {
    const char *name;
    if (!keys_text(meta, "general.architecture", &name, error)) {
        return false;
    }
    if (name == NULL) {
        return model_fail(error, "not a model: key 'general.architecture' is missing");
    }
    p->desc = arch_find(name);
    if (p->desc == NULL) {
        char known[256];
        arch_names(known, sizeof known);
        return model_fail(error, "architecture '%.64s' is not supported; supported: %s", name, known);
    }
    p->arch = p->desc->name;
    return true;
}

static const char *key_format(const struct model_params *p, const char *suffix, char text[96]) {
    snprintf(text, 96, "%s.%s", p->arch, suffix);
    return text;
}

// Sets *out to 0 if the key is absent.
static bool count_get(const struct gguf_context *meta, const struct model_params *p, const char *suffix, int64_t max,
    int64_t *out, struct model_error *error) {
    char key[96];
    *out = 0;
    return keys_int(meta, key_format(p, suffix, key), 1, max, out, error);
}

static void count_default(int64_t *x, int64_t value) {
    if (*x <= 0) {
        *x = value;
    }
}

static bool count_require(const struct gguf_context *meta, const struct model_params *p, const char *suffix, int64_t max,
    int64_t *out, struct model_error *error) {
    char key[96];
    if (!count_get(meta, p, suffix, max, out, error)) {
        return false;
    }
    return *out > 0 || model_fail(error, "key '%s' is missing", key_format(p, suffix, key));
}

static bool state_read(const struct gguf_context *meta, struct model_params *p, struct model_error *error) {
    if (!count_require(meta, p, "ssm.inner_size", MAX_WIDTH, &p->n_inner, error) ||
        !count_require(meta, p, "ssm.state_size", MAX_WIDTH, &p->n_state, error) ||
        !count_require(meta, p, "ssm.time_step_rank", p->n_inner, &p->n_state_head, error) ||
        !count_require(meta, p, "ssm.group_count", p->n_state_head, &p->n_group_state, error) ||
        !count_require(meta, p, "ssm.conv_kernel", 1024, &p->n_conv, error)) {
        return false;
    }
    // Not used: state-space layers have no attention and no feed-forward part.
    p->n_head = p->n_head_kv = p->head_size = p->head_size_v = p->n_ff = 1;
    if (p->n_inner % p->n_state_head != 0 || p->n_state_head % p->n_group_state != 0 || p->n_conv < 2) {
        return model_fail(error,
            "invalid state sizes: %" PRId64 " elements, %" PRId64 " heads, %" PRId64 " groups, convolution kernel %" PRId64,
            p->n_inner, p->n_state_head, p->n_group_state, p->n_conv);
    }
    return true;
}

static bool heads_read(const struct gguf_context *meta, struct model_params *p, struct model_error *error) {
    char key[96];
    if (!count_require(meta, p, "attention.head_count", p->n_embd, &p->n_head, error) ||
        !count_get(meta, p, "attention.head_count_kv", p->n_head, &p->n_head_kv, error) ||
        !count_get(meta, p, "attention.key_length", MAX_WIDTH, &p->head_size, error) ||
        !count_get(meta, p, "attention.value_length", MAX_WIDTH, &p->head_size_v, error) ||
        !count_require(meta, p, "feed_forward_length", MAX_WIDTH, &p->n_ff, error) ||
        !keys_int(meta, key_format(p, "expert_count", key), 0, 4096, &p->n_expert, error) ||
        !keys_int(meta, key_format(p, "expert_used_count", key), 0, p->n_expert, &p->n_expert_used, error) ||
        !count_get(meta, p, "expert_feed_forward_length", MAX_WIDTH, &p->n_ff_expert, error)) {
        return false;
    }
    count_default(&p->n_ff_expert, p->n_ff);
    count_default(&p->n_head_kv, p->n_head);
    if (p->n_head % p->n_head_kv != 0) {
        return model_fail(
            error, "%" PRId64 " heads are not a multiple of %" PRId64 " key and value heads", p->n_head, p->n_head_kv);
    }
    if (p->head_size == 0 && p->n_embd % p->n_head != 0) {
        return model_fail(error, "embedding length %" PRId64 " is not a multiple of %" PRId64 " heads", p->n_embd, p->n_head);
    }
    count_default(&p->head_size, p->n_embd / p->n_head);
    count_default(&p->head_size_v, p->head_size);
    if (p->n_expert > 0 && p->n_expert_used == 0) {
        return model_fail(error, "there are %" PRId64 " experts, but key '%s' is missing", p->n_expert,
            key_format(p, "expert_used_count", key));
    }
    return true;
}

static bool sizes_read(const struct gguf_context *meta, struct model_params *p, struct model_error *error) {
    // Every layer has at least one tensor.
    const int64_t n_most = gguf_get_n_tensors(meta) > 0 ? gguf_get_n_tensors(meta) : MAX_LAYERS;
    if (!count_require(meta, p, "block_count", n_most, &p->n_layer, error) ||
        !count_require(meta, p, "embedding_length", MAX_WIDTH, &p->n_embd, error) ||
        !count_get(meta, p, "context_length", MAX_CONTEXT, &p->n_ctx_train, error)) {
        return false;
    }
    count_default(&p->n_ctx_train, 2048);
    return (p->desc->has & ARCH_STATE) != 0 ? state_read(meta, p, error) : heads_read(meta, p, error);
}

static bool experts_read(const struct gguf_context *meta, struct model_params *p, struct model_error *error) {
    char key[96];
    int64_t func = 0;
    p->expert_scale = 1;
    p->norm_weights = p->desc->share == SHARE_SUM;
    if (p->desc->share != SHARE_KEYS || p->n_expert == 0) {
        return true;
    }
    if (!keys_int(meta, key_format(p, "leading_dense_block_count", key), 0, p->n_layer, &p->n_dense, error) ||
        !keys_int(meta, key_format(p, "expert_shared_count", key), 0, 4096, &p->n_shared, error) ||
        !keys_int(meta, key_format(p, "expert_group_count", key), 0, p->n_expert, &p->n_group, error) ||
        !keys_int(meta, key_format(p, "expert_group_used_count", key), 0, p->n_group, &p->n_group_used, error) ||
        !keys_int(meta, key_format(p, "expert_gating_func", key), 0, 2, &func, error) ||
        !keys_bool(meta, key_format(p, "expert_weights_norm", key), &p->norm_weights, error) ||
        !keys_real(meta, key_format(p, "expert_weights_scale", key), &p->expert_scale, error)) {
        return false;
    }
    p->has_sigmoid = func == 2;
    if (p->n_group <= 1 || p->n_group_used <= 0 || p->n_group_used >= p->n_group) {
        p->n_group = 0;
    }
    if (p->n_group > 0 && (p->n_expert % p->n_group != 0 || p->n_expert / p->n_group < 2)) {
        return model_fail(
            error, "%" PRId64 " experts cannot be divided into %" PRId64 " equal groups of two or more", p->n_expert, p->n_group);
    }
    if (p->n_group > 0 && p->n_expert_used > p->n_expert / p->n_group * p->n_group_used) {
        return model_fail(error, "cannot select %" PRId64 " experts from %" PRId64 " groups of %" PRId64, p->n_expert_used,
            p->n_group_used, p->n_expert / p->n_group);
    }
    return true;
}

// head_size is the size of the cached row. head_size_v is the size of its latent part.
static bool mla_read(const struct gguf_context *meta, struct model_params *p, struct model_error *error) {
    int64_t n_latent;
    if ((p->desc->has & ARCH_MLA) == 0) {
        return true;
    }
    if (!count_require(meta, p, "attention.key_length_mla", MAX_WIDTH, &p->mla_key, error) ||
        !count_require(meta, p, "attention.value_length_mla", MAX_WIDTH, &p->mla_value, error) ||
        !count_require(meta, p, "attention.kv_lora_rank", MAX_WIDTH, &n_latent, error) ||
        !count_get(meta, p, "attention.q_lora_rank", MAX_WIDTH, &p->n_rank, error)) {
        return false;
    }
    if (p->n_head_kv != 1 || p->head_size_v != n_latent || p->head_size != n_latent + p->n_rot || p->mla_key <= p->n_rot) {
        return model_fail(error,
            "key length %" PRId64 ", value length %" PRId64 " and %" PRId64
            " rotated elements do not match a latent row of %" PRId64,
            p->head_size, p->head_size_v, p->n_rot, n_latent);
    }
    return true;
}

static bool scaling_read(const struct gguf_context *meta, struct model_params *p, struct model_error *error) {
    char key[96];
    const char *type;
    float factor = 0;
    p->n_ctx_orig = p->n_ctx_train;
    p->freq_scale = p->attn_factor = 1;
    if (!keys_text(meta, key_format(p, "rope.scaling.type", key), &type, error) ||
        !keys_real(meta, key_format(p, "rope.scale_linear", key), &factor, error) ||
        !keys_real(meta, key_format(p, "rope.scaling.factor", key), &factor, error) ||
        !keys_real(meta, key_format(p, "rope.scaling.attn_factor", key), &p->attn_factor, error) ||
        !keys_int(meta, key_format(p, "rope.scaling.original_context_length", key), 1, MAX_CONTEXT, &p->n_ctx_orig, error)) {
        return false;
    }
    if (type == NULL) {
        type = "linear";
    }
    const bool is_yarn = strcmp(type, "yarn") == 0;
    if (!is_yarn && strcmp(type, "linear") != 0 && strcmp(type, "none") != 0 && strcmp(type, "longrope") != 0) {
        return model_fail(error, "RoPE scaling '%.64s' is not supported; supported: none, linear, yarn, longrope", type);
    }
    if (factor < 0) {
        return model_fail(error, "RoPE scaling factor %g is negative", (double) factor);
    }
    if (factor > 0 && factor < FLT_MIN) { // the inverse could be infinite
        return model_fail(error, "RoPE scaling factor %g is too small", (double) factor);
    }
    p->ext_factor = is_yarn ? 1 : 0;
    if (factor > 0 && strcmp(type, "none") != 0) {
        p->freq_scale = 1 / factor;
    }
    return true;
}

static bool window_read(const struct gguf_context *meta, struct model_params *p, struct model_error *error) {
    char key[96];
    int64_t every = p->desc->window_every;
    if (every > 1 && !keys_int(meta, key_format(p, "attention.sliding_window_pattern", key), 1, MAX_LAYERS, &every, error)) {
        return false;
    }
    p->window_every = (int) every;
    return every == 0 || keys_int(meta, key_format(p, "attention.sliding_window", key), 0, MAX_CONTEXT, &p->n_window, error);
}

static bool scales_read(const struct gguf_context *meta, struct model_params *p, struct model_error *error) {
    char key[96];
    const unsigned has = p->desc->has;
    const bool is_wide = (has & ARCH_WIDE_QUERIES) != 0 && p->n_layer == p->desc->n_layer_wide;
    int64_t query_size = p->mla_key > 0 ? p->mla_key : p->head_size;
    if (is_wide) {
        query_size = p->n_embd / p->n_head;
    }
    p->attn_scale = 1 / sqrtf((float) query_size);
    p->embd_scale = (has & ARCH_EMBD_ROOT) != 0 ? sqrtf((float) p->n_embd) : 1;
    p->residual_scale = p->logit_scale = 1;
    p->attn_cap = (has & ARCH_SOFT_CAPS) != 0 ? 50 : 0;
    p->logit_cap = (has & ARCH_SOFT_CAPS) != 0 ? 30 : 0;
    const struct {
        unsigned has;
        const char *key;
        float *out;
    } rows[] = {{ARCH_SCALES, "attention.scale", &p->attn_scale}, {ARCH_SCALES, "embedding_scale", &p->embd_scale},
        {ARCH_SCALES, "residual_scale", &p->residual_scale}, {ARCH_SCALES | ARCH_LOGIT_SCALE, "logit_scale", &p->logit_scale},
        {ARCH_SOFT_CAPS, "attn_logit_softcapping", &p->attn_cap},
        {ARCH_SOFT_CAPS | ARCH_LOGIT_CAP, "final_logit_softcapping", &p->logit_cap}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if ((has & rows[i].has) != 0 && !keys_real(meta, key_format(p, rows[i].key, key), rows[i].out, error)) {
            return false;
        }
    }
    // With MLA, YaRN's magnitude scale applies to all elements of queries and keys, so attn_scale contains its square. ggml's
    // RoPE would scale only the elements that it rotates, so attn_factor is set to cancel that scale.
    if ((has & ARCH_MLA) != 0) {
        float log_multiplier = 0;
        if (!keys_real(meta, key_format(p, "rope.scaling.yarn_log_multiplier", key), &log_multiplier, error)) {
            return false;
        }
        const float log_scale = logf(1 / p->freq_scale), factor = p->attn_factor * (1 + log_multiplier * log_scale);
        p->attn_scale *= factor * factor;
        p->attn_factor /= 1 + 0.1f * log_scale;
    }
    if ((has & ARCH_SCALES) != 0) { // a value of 0 means that the key is absent
        if (p->attn_scale == 0) {
            p->attn_scale = 1 / sqrtf((float) p->head_size);
        }
        if (p->embd_scale == 0) {
            p->embd_scale = 1;
        }
        if (p->residual_scale == 0) {
            p->residual_scale = 1;
        }
        p->logit_scale = p->logit_scale != 0 ? 1 / p->logit_scale : 1;
    }
    return true;
}

static bool rope_read(const struct gguf_context *meta, struct model_params *p, struct model_error *error) {
    char key[96];
    if ((p->desc->has & ARCH_STATE) != 0) {
        p->freq_scale = p->attn_factor = 1;
        return true;
    }
    p->n_rot = p->head_size;
    p->freq_base = 10000;
    p->freq_base_window = 0;
    if (!scaling_read(meta, p, error) ||
        !keys_int(meta, key_format(p, "rope.dimension_count", key), 2, p->head_size, &p->n_rot, error) ||
        !keys_real(meta, key_format(p, "rope.freq_base", key), &p->freq_base, error)) {
        return false;
    }
    p->freq_base_window = p->freq_base;
    p->freq_scale_window = p->freq_scale;
    if ((p->desc->has & ARCH_LOCAL_ROPE) != 0) {
        p->freq_base_window = 10000;
        p->freq_scale_window = 1;
        if (!keys_real(meta, key_format(p, "rope.freq_base_swa", key), &p->freq_base_window, error)) {
            return false;
        }
    }
    if (p->n_rot % 2 != 0) {
        return model_fail(error, "RoPE rotates pairs of elements, but key 'rope.dimension_count' is odd: %" PRId64, p->n_rot);
    }
    return (p->freq_base > 0 && p->freq_base_window > 0) || model_fail(error, "the RoPE base frequency is not positive");
}

bool model_params_read(const struct gguf_context *meta, struct model_params *p, struct model_error *error) {
    char key[96];
    *p = (struct model_params){0};
    if (!arch_read(meta, p, error) || !sizes_read(meta, p, error) || !experts_read(meta, p, error) ||
        !rope_read(meta, p, error) || !mla_read(meta, p, error) || !window_read(meta, p, error) || !scales_read(meta, p, error)) {
        return false;
    }
    const char *eps = (p->desc->has & ARCH_LAYER_NORM) != 0 ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon";
    return keys_real(meta, key_format(p, eps, key), &p->eps, error) &&
           (p->eps > 0 || model_fail(error, "the epsilon of the norm is missing or not positive"));
}

bool params_has_window(const struct model_params *p, int64_t i) {
    return p->n_window > 0 && (p->window_every == 1 || i % p->window_every < p->window_every - 1);
}

bool params_has_experts(const struct model_params *p, int64_t i) {
    return p->n_expert > 0 && i >= p->n_dense;
}
