// SPDX-License-Identifier: MIT
// recipe.c: decides the type of each tensor. A mix gives more bits to the tensors that lose most by quantisation.
// tests/unit/quantize/test_quantize_recipe_oracle.c compares the mixes with llama.cpp's own quantiser.

#include "quantize/quantize.h"

#include "base/min.h"

#include "gguf.h"

#include <fnmatch.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

// The layers in which a tensor gets the better type. EDGES: the first and the last eighth of the layers. EDGES_AND_THIRDS: EDGES,
// and every third layer between them.
enum where { NOWHERE, EVERYWHERE, FIRST_2, FIRST_4, FIRST_16TH, FIRST_8TH, EDGES, EDGES_AND_THIRDS };

struct better {
    enum ggml_type good, else_type; // type in the layers that `where` selects; type in the other layers
    enum where where;
};

struct recipe_mix {
    const char *name;
    int file_type;
    enum ggml_type base, query;       // type of most tensors; type of attn_q and attn_k
    enum ggml_type embedding, output; // type of an untied embedding; type of the output
    enum ggml_type wide;              // attn_v with 4 or more query heads per value head; NO_TYPE: the type that `value` gives
    struct better value, fused, down; // attn_v, attn_qkv, ffn_down
    struct better up;                 // ffn_up, ffn_gate
    enum ggml_type out, out_of_8;     // attn_output; attn_output with 8 experts
    enum ggml_type kv_of_8;           // attn_k and attn_v with 8 experts
    bool has_base_with_imatrix;       // with an imatrix, value, fused and down get base
};

#define NO_TYPE GGML_TYPE_COUNT
#define Q2 GGML_TYPE_Q2_K
#define Q3 GGML_TYPE_Q3_K
#define Q4 GGML_TYPE_Q4_K
#define Q5 GGML_TYPE_Q5_K
#define Q6 GGML_TYPE_Q6_K
#define Q8 GGML_TYPE_Q8_0
#define I1S GGML_TYPE_IQ1_S
#define I1M GGML_TYPE_IQ1_M
#define I2XXS GGML_TYPE_IQ2_XXS
#define I2XS GGML_TYPE_IQ2_XS
#define I2S GGML_TYPE_IQ2_S
#define I3XXS GGML_TYPE_IQ3_XXS
#define I3S GGML_TYPE_IQ3_S
#define I4NL GGML_TYPE_IQ4_NL
#define I4XS GGML_TYPE_IQ4_XS
#define ALL(type) \
    { type, type, NOWHERE }
// Queries, keys, the embedding and ffn_up get the type of most tensors.
#define BASE(type) .base = type, .query = type, .embedding = type, .output = Q6, .up = ALL(type), .kv_of_8 = Q8
// Mixes of two bits and fewer. The embedding, attn_v and the ffn_down of the first eighth of the layers get the type `rest`.
// attn_output gets the type `to`.
#define LOW(type, rest, to) \
    .base = type, .query = type, .embedding = rest, .output = Q5, .wide = Q4, .value = ALL(rest), .fused = ALL(rest), \
    .down = {rest, type, FIRST_8TH}, .up = ALL(type), .out = to, .out_of_8 = Q5, .kv_of_8 = Q4
#define BOTH(...) .value = {__VA_ARGS__}, .fused = {__VA_ARGS__}
static const struct recipe_mix mixes[] = {
    {"iq1_s", 24, LOW(I1S, Q2, I2XXS)},
    {"iq1_m", 31, LOW(I1M, Q2, I2XXS)},
    {"iq2_xxs", 19, LOW(I2XXS, Q2, I2XXS)},
    {"iq2_xs", 20, LOW(I2XS, Q2, I2XS)},
    {"iq2_s", 28, LOW(I2XS, I3S, I3S)},
    {"iq2_m", 29, LOW(I2S, I3S, I3S)},
    {"iq3_xxs", 23, I3XXS, I2S, I3S, Q5, Q4, ALL(I3S), ALL(I3S), {Q4, Q3, FIRST_8TH}, ALL(I3XXS), I3S, Q5, Q8, true},
    {"iq3_xs", 22, I3S, I3XXS, I3S, Q6, Q4, ALL(I3S), ALL(I3S), ALL(I3S), {I3S, I3XXS, EDGES}, I3S, Q5, Q8, false},
    {"iq3_s", 26, BASE(I3S), .wide = Q4, BOTH(I3S, I3S, NOWHERE), .down = ALL(I3S), .out = I3S, .out_of_8 = Q5},
    {"iq3_m", 27, BASE(I3S), .wide = Q4, BOTH(Q4, Q4, NOWHERE), .down = {Q4, I3S, FIRST_8TH}, .out = Q4, .out_of_8 = Q5},
    {"iq4_nl", 25, BASE(I4NL), .wide = Q5, BOTH(I4NL, I4NL, NOWHERE), .down = {Q5, I4NL, FIRST_8TH}, .out = I4NL, .out_of_8 = Q5,
        .has_base_with_imatrix = true},
    {"iq4_xs", 30, BASE(I4XS), .wide = Q5, BOTH(I4XS, I4XS, NOWHERE), .down = {Q5, I4XS, FIRST_8TH}, .out = I4XS, .out_of_8 = Q5,
        .has_base_with_imatrix = true},
    {"q2_K", 10, BASE(Q2), .wide = Q4, BOTH(Q3, Q3, NOWHERE), .down = ALL(Q3), .out = Q3, .out_of_8 = Q5},
    {"q2_K_S", 21, BASE(Q2), .wide = Q4, BOTH(Q2, Q2, NOWHERE), .down = {Q4, Q2, FIRST_8TH}, .out = Q2, .out_of_8 = Q2},
    {"q3_K_S", 11, BASE(Q3), .wide = NO_TYPE, BOTH(Q3, Q3, NOWHERE), .down = ALL(Q3), .out = Q3, .out_of_8 = Q5},
    {"q3_K_M", 12, BASE(Q3), .wide = NO_TYPE, BOTH(Q5, Q4, FIRST_2), .down = {Q5, Q4, FIRST_16TH}, .out = Q4, .out_of_8 = Q5},
    {"q3_K_L", 13, BASE(Q3), .wide = NO_TYPE, BOTH(Q5, Q3, EVERYWHERE), .down = ALL(Q5), .out = Q5, .out_of_8 = Q3},
    {"q4_K_S", 14, BASE(Q4), .wide = NO_TYPE, BOTH(Q5, Q4, FIRST_4), .down = {Q5, Q4, FIRST_8TH}, .out = Q4, .out_of_8 = Q5},
    {"q4_K_M", 15, BASE(Q4), .wide = NO_TYPE, BOTH(Q6, Q4, EDGES_AND_THIRDS), .down = {Q6, Q4, EDGES_AND_THIRDS}, .out = Q4,
        .out_of_8 = Q5},
    {"q5_K_S", 16, BASE(Q5), .wide = NO_TYPE, BOTH(Q5, Q5, NOWHERE), .down = ALL(Q5), .out = Q5, .out_of_8 = Q5},
    {"q5_K_M", 17, BASE(Q5), .wide = NO_TYPE, BOTH(Q6, Q5, EDGES_AND_THIRDS), .down = {Q6, Q5, EDGES_AND_THIRDS}, .out = Q5,
        .out_of_8 = Q5},
};
#define N_MIXES ((int) (sizeof mixes / sizeof *mixes))

const char *recipe_mix_name(int i) {
    return i >= 0 && i < N_MIXES ? mixes[i].name : NULL;
}

// ---- parsing ----

bool recipe_type_parse(const char *text, enum ggml_type *type) {
    for (int i = 0; i < GGML_TYPE_COUNT; i++) {
        if (ggml_blck_size((enum ggml_type) i) > 0 && strcasecmp(text, ggml_type_name((enum ggml_type) i)) == 0) {
            *type = (enum ggml_type) i;
            return true;
        }
    }
    return false;
}

bool recipe_parse(const char *name, bool is_pure, struct recipe *out) {
    for (int i = 0; !is_pure && i < N_MIXES; i++) {
        if (strcasecmp(name, mixes[i].name) == 0) {
            out->mix = &mixes[i];
            out->type = mixes[i].base;
            return true;
        }
    }
    return recipe_type_parse(name, &out->type);
}

bool recipe_rule_parse(const char *text, struct recipe *out) {
    const char *equals = strrchr(text, '=');
    if (equals == NULL || out->n_rules == RECIPE_MAX_RULES || equals == text) {
        return false;
    }
    struct recipe_rule *rule = &out->rules[out->n_rules];
    const int n = snprintf(rule->pattern, sizeof rule->pattern, "%.*s", (int) (equals - text), text);
    if (n >= (int) sizeof rule->pattern || !recipe_type_parse(equals + 1, &rule->type)) {
        return false;
    }
    out->n_rules++;
    return true;
}

const char *recipe_name(const struct recipe *r) {
    return r->mix != NULL ? r->mix->name : ggml_type_name(r->type);
}

int recipe_file_type(const struct recipe *r) {
    return r->mix != NULL ? r->mix->file_type : berth_type_file_type(r->type);
}

static bool recipe_needs_imatrix(const struct recipe *r) {
    return ggml_quantize_requires_imatrix(r->type) || (r->mix != NULL && ggml_quantize_requires_imatrix(r->mix->out));
}

bool recipe_check(const struct recipe *r, bool has_imatrix, struct model_error *error) {
    if (recipe_needs_imatrix(r) && !has_imatrix) {
        return model_fail(error, "%s requires an importance matrix: create one with 'berth imatrix' and pass it with --imatrix",
            recipe_name(r));
    }
    bool ok = quantize_can_make(r->type, has_imatrix);
    for (int i = 0; ok && i < r->n_rules; i++) {
        ok = quantize_can_make(r->rules[i].type, has_imatrix);
    }
    return ok || model_fail(error, "%s", berth_last_error());
}

// ---- properties of the model ----

// Returns the value of a key; the largest value of a list; 0: absent.
static int64_t model_integer(const struct gguf_context *meta, const char *rest) {
    const int64_t arch = gguf_find_key(meta, "general.architecture");
    char key[160];
    if (arch < 0 || gguf_get_kv_type(meta, arch) != GGUF_TYPE_STRING) {
        return 0;
    }
    snprintf(key, sizeof key, "%.64s.%s", gguf_get_val_str(meta, arch), rest);
    const int64_t id = gguf_find_key(meta, key);
    const enum gguf_type type = id >= 0 ? gguf_get_kv_type(meta, id) : GGUF_TYPE_COUNT;
    const bool is_list = type == GGUF_TYPE_ARRAY &&
                         (gguf_get_arr_type(meta, id) == GGUF_TYPE_UINT32 || gguf_get_arr_type(meta, id) == GGUF_TYPE_INT32);
    int64_t most = type == GGUF_TYPE_UINT32 ? (int64_t) gguf_get_val_u32(meta, id) : 0;
    for (size_t i = 0; is_list && i < gguf_get_arr_n(meta, id); i++) {
        const int64_t n = ((const int32_t *) gguf_get_arr_data(meta, id))[i];
        most = max_i64(n, most);
    }
    return most;
}

static bool is_arch(const struct gguf_context *meta, const char *name) {
    const int64_t arch = gguf_find_key(meta, "general.architecture");
    return arch >= 0 && gguf_get_kv_type(meta, arch) == GGUF_TYPE_STRING && strcmp(gguf_get_val_str(meta, arch), name) == 0;
}

void recipe_set_model(struct recipe *r, const struct gguf_context *meta, bool has_imatrix) {
    const int64_t n_head = model_integer(meta, "attention.head_count"), n_kv = model_integer(meta, "attention.head_count_kv");
    r->meta = meta;
    r->n_layer = model_integer(meta, "block_count");
    r->n_expert = model_integer(meta, "expert_count");
    r->n_share = n_kv > 0 ? n_head / n_kv : 1;
    r->is_70b = r->n_layer == 80 && n_kv > 0 && n_kv != n_head && (is_arch(meta, "llama") || is_arch(meta, "qwen2"));
    r->has_output = gguf_find_tensor(meta, "output.weight") >= 0;
    r->has_imatrix = has_imatrix;
}

// ---- types of tensors ----

// Returns true for tensors that are never converted. Position tables, routers, short filters and biases are small, and the
// model's results depend strongly on them.
static bool is_kept(const char *name) {
    const size_t n = strlen(name);
    static const char *const parts[] = {"position_embd", "token_types", "ffn_gate_inp", "ssm_conv1d", "shortconv.conv", "_norm.",
        ".bias", "attn_rel_b", "altup", "laurel", "per_layer_model_proj", "time_mix_first", "time_mix_decay", "time_mix_lerp",
        "time_mix_w", "time_mix_a", "time_mix_v1", "time_mix_v2", "time_mix_g1", "time_mix_g2"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (strstr(name, parts[i]) != NULL) {
            return true;
        }
    }
    return n > 4 && strncmp(name, "blk.", 4) == 0 && (n < 7 || strcmp(name + n - 7, ".weight") != 0);
}

static enum ggml_type better_type(const struct better *b, int64_t i, int64_t n) {
    bool is_good = false;
    switch (b->where) {
        case NOWHERE: break;
        case EVERYWHERE: is_good = true; break;
        case FIRST_2: is_good = i < 2; break;
        case FIRST_4: is_good = i < 4; break;
        case FIRST_16TH: is_good = i < n / 16; break;
        case FIRST_8TH: is_good = i < n / 8; break;
        case EDGES: is_good = i < n / 8 || i >= 7 * n / 8; break;
        case EDGES_AND_THIRDS: is_good = i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2; break;
    }
    return is_good ? b->good : b->else_type;
}

// A mix of two bits and fewer (LOW).
static bool is_low(const struct recipe_mix *m) {
    return m->kv_of_8 == Q4;
}

// Sets *rest to the name after the layer. -1: not in a layer.
static long layer_parse(const char *name, const char **rest) {
    char *end = NULL;
    const long layer = strncmp(name, "blk.", 4) == 0 ? strtol(name + 4, &end, 10) : -1;
    *rest = layer >= 0 && *end == '.' ? end + 1 : name;
    return *rest == name ? -1 : layer;
}

enum part { PART_OTHER, PART_QUERY, PART_KEY, PART_VALUE, PART_FUSED, PART_OUT, PART_DOWN, PART_UP, PART_GATE };

static enum part part_parse(const char *rest) {
    static const struct {
        const char *text;
        enum part part;
    } rows[] = {{"attn_qkv.", PART_FUSED}, {"attn_q.", PART_QUERY}, {"attn_k.", PART_KEY}, {"attn_v.", PART_VALUE},
        {"attn_kv_b.", PART_VALUE}, {"attn_output.", PART_OUT}, {"ffn_down", PART_DOWN}, {"ffn_up", PART_UP},
        {"ffn_gate", PART_GATE}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (strstr(rest, rows[i].text) != NULL && strstr(rest, ".weight") != NULL && !is_kept(rest)) {
            return rows[i].part;
        }
    }
    return PART_OTHER;
}

// Returns the index of a tensor among the tensors with the same role, in the order of layer and name. *n: number of these
// tensors. A layer may have none or several of them. Fused tensors (attn_qkv) count as values.
static int64_t part_index(const struct recipe *r, const char *name, enum part part, int64_t *n) {
    const char *rest;
    const long layer = layer_parse(name, &rest);
    int64_t index = 0;
    *n = 0;
    for (int64_t i = 0; i < gguf_get_n_tensors(r->meta); i++) {
        const char *other = gguf_get_tensor_name(r->meta, i);
        const long at = layer_parse(other, &rest);
        const enum part kind = part_parse(rest) == PART_FUSED ? PART_VALUE : part_parse(rest);
        if (at >= 0 && kind == part) {
            index += at < layer || (at == layer && strcmp(other, name) < 0);
            ++*n;
        }
    }
    return index;
}

static bool has_base_only(const struct recipe *r) {
    return r->mix->has_base_with_imatrix && r->has_imatrix;
}

// The error of a value matters more, the more query heads share the value.
static enum ggml_type value_type(const struct recipe *r, const char *name, enum part part) {
    const struct recipe_mix *m = r->mix;
    const bool is_wide = m->wide != NO_TYPE && (r->n_share >= 4 || (is_low(m) && r->n_expert >= 4));
    int64_t n;
    const int64_t i = part_index(r, name, PART_VALUE, &n);
    const struct better *b = part == PART_FUSED ? &m->fused : &m->value;
    enum ggml_type type = has_base_only(r) ? m->base : better_type(b, i, n);
    if (is_wide) {
        type = m->wide;
    }
    return r->is_70b && !is_low(m) && (type == Q3 || type == Q4) ? Q5 : type;
}

// The position of a tensor in the model decides its type. If the model has experts and the mix is not low (is_low), the position
// is the layer. Otherwise it is part_index.
static enum ggml_type ffn_type(const struct recipe *r, const char *name, long layer, enum part part) {
    const struct recipe_mix *m = r->mix;
    struct better b = part == PART_DOWN ? m->down : m->up;
    int64_t n;
    if (part == PART_DOWN && has_base_only(r)) {
        return m->base;
    }
    if (b.good == Q4 && b.else_type == I3S && r->n_expert == 8) { // the mix iq3_m
        b.where = EDGES_AND_THIRDS;
    }
    return better_type(&b, r->n_expert > 1 && !is_low(m) ? layer : part_index(r, name, part, &n), r->n_layer);
}

static enum ggml_type mix_type(const struct recipe *r, const char *name) {
    const struct recipe_mix *m = r->mix;
    const bool has_8_experts = r->n_expert == 8;
    if (strcmp(name, "output.weight") == 0 || strcmp(name, "token_embd.weight") == 0) {
        return name[0] == 'o' || !r->has_output ? m->output : m->embedding;
    }
    if (strcmp(name, "per_layer_token_embd.weight") == 0) {
        return m->embedding;
    }
    const char *rest;
    const long layer = layer_parse(name, &rest);
    const enum part part = layer >= 0 ? part_parse(rest) : PART_OTHER;
    switch (part) {
        case PART_QUERY: return m->query;
        case PART_KEY: return has_8_experts ? m->kv_of_8 : m->query;
        case PART_VALUE: return has_8_experts ? m->kv_of_8 : value_type(r, name, part);
        case PART_FUSED: return value_type(r, name, part);
        case PART_OUT: return has_8_experts ? m->out_of_8 : m->out;
        case PART_DOWN:
        case PART_UP:
        case PART_GATE: return ffn_type(r, name, layer, part);
        case PART_OTHER: break;
    }
    return m->base;
}

// Returns the type. If its blocks do not divide rows of n elements, returns the nearest type whose blocks do.
static enum ggml_type type_fit(enum ggml_type type, int64_t n) {
    static const struct {
        enum ggml_type from, to;
    } rows[] = {{Q2, GGML_TYPE_Q4_0}, {Q3, GGML_TYPE_Q4_0}, {Q4, GGML_TYPE_Q5_0}, {Q5, GGML_TYPE_Q5_1}, {Q6, Q8}, {I1S, I4NL},
        {I1M, I4NL}, {I2XXS, I4NL}, {I2XS, I4NL}, {I2S, I4NL}, {I3XXS, I4NL}, {I3S, I4NL}, {I4XS, I4NL}, {I4NL, GGML_TYPE_F16},
        {Q8, GGML_TYPE_F16}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].from == type && n % ggml_blck_size(type) != 0) {
            return n % ggml_blck_size(rows[i].to) == 0 ? rows[i].to : GGML_TYPE_F16;
        }
    }
    return type;
}

enum ggml_type recipe_type(const struct recipe *r, const struct ggml_tensor *t) {
    // Vectors keep their type, because ops add and multiply them without conversion.
    for (int i = 0; t->ne[1] > 1 && i < r->n_rules; i++) {
        if (fnmatch(r->rules[i].pattern, t->name, 0) == 0) {
            const enum ggml_type type = r->rules[i].type;
            return t->ne[0] % ggml_blck_size(type) == 0 ? type : t->type;
        }
    }
    if (t->ne[1] <= 1 || is_kept(t->name)) {
        return t->type;
    }
    if (r->mix != NULL) {
        const bool is_odd_output = strcmp(t->name, "output.weight") == 0 && t->ne[0] % 256 != 0;
        return type_fit(is_odd_output ? Q6 : mix_type(r, t->name), t->ne[0]);
    }
    return t->ne[0] % ggml_blck_size(r->type) == 0 ? r->type : t->type;
}
