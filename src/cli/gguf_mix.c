// SPDX-License-Identifier: MIT
// gguf_mix.c: see gguf_mix.h. A mix gives more bits to what suffers most: values of attention, the feed-forward part's way back,
// the output. A row a mix; tests/unit/test_model_mix_oracle.c holds them against what llama.cpp's own quantiser does.

#include "cli/gguf_mix.h"

#include "gguf.h"

#include <fnmatch.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

// In which layers a tensor gets the better type.
enum where { NOWHERE, EVERYWHERE, FIRST_2, FIRST_4, FIRST_16TH, FIRST_8TH, MORE };

struct better {
    enum ggml_type good, else_type;
    enum where where;
};

struct gguf_mix {
    const char *name;
    int file_type;
    enum ggml_type base;
    struct better value, fused, down;
    enum ggml_type out, out_of_8; // attn_output, and of a model with 8 experts
};

#define Q3 GGML_TYPE_Q3_K
#define Q4 GGML_TYPE_Q4_K
#define Q5 GGML_TYPE_Q5_K
#define Q6 GGML_TYPE_Q6_K
static const struct gguf_mix mixes[] = {
    {"q3_K_S", 11, Q3, {Q3, Q3, NOWHERE}, {Q3, Q3, NOWHERE}, {Q3, Q3, NOWHERE}, Q3, Q5},
    {"q3_K_M", 12, Q3, {Q5, Q4, FIRST_2}, {Q5, Q4, FIRST_2}, {Q5, Q4, FIRST_16TH}, Q4, Q5},
    {"q3_K_L", 13, Q3, {Q5, Q3, EVERYWHERE}, {Q5, Q3, EVERYWHERE}, {Q5, Q3, EVERYWHERE}, Q5, Q3},
    {"q4_K_S", 14, Q4, {Q5, Q4, FIRST_4}, {Q5, Q4, FIRST_4}, {Q5, Q4, FIRST_8TH}, Q4, Q5},
    {"q4_K_M", 15, Q4, {Q6, Q4, MORE}, {Q6, Q4, MORE}, {Q6, Q4, MORE}, Q4, Q5},
    {"q5_K_S", 16, Q5, {Q5, Q5, NOWHERE}, {Q5, Q5, NOWHERE}, {Q5, Q5, NOWHERE}, Q5, Q5},
    {"q5_K_M", 17, Q5, {Q6, Q5, MORE}, {Q6, Q5, MORE}, {Q6, Q5, MORE}, Q5, Q5},
};
#define N_MIXES ((int) (sizeof mixes / sizeof *mixes))

const char *gguf_mix_name(int i) {
    return i >= 0 && i < N_MIXES ? mixes[i].name : NULL;
}

// ---- what is asked for ----

bool gguf_type_parse(const char *text, enum ggml_type *type) {
    for (int i = 0; i < GGML_TYPE_COUNT; i++) {
        if (ggml_blck_size((enum ggml_type) i) > 0 && strcasecmp(text, ggml_type_name((enum ggml_type) i)) == 0) {
            *type = (enum ggml_type) i;
            return true;
        }
    }
    return false;
}

bool gguf_types_parse(const char *name, struct gguf_types *out) {
    for (int i = 0; i < N_MIXES; i++) {
        if (strcasecmp(name, mixes[i].name) == 0) {
            out->mix  = &mixes[i];
            out->type = mixes[i].base;
            return true;
        }
    }
    return gguf_type_parse(name, &out->type);
}

bool gguf_types_rule(const char *text, struct gguf_types *out) {
    const char *equals = strrchr(text, '=');
    if (equals == NULL || out->n_rules == GGUF_MAX_RULES || equals == text) {
        return false;
    }
    struct gguf_rule *rule = &out->rules[out->n_rules];
    const int n            = snprintf(rule->pattern, sizeof rule->pattern, "%.*s", (int) (equals - text), text);
    if (n >= (int) sizeof rule->pattern || !gguf_type_parse(equals + 1, &rule->type)) {
        return false;
    }
    out->n_rules++;
    return true;
}

const char *gguf_types_name(const struct gguf_types *types) {
    return types->mix != NULL ? types->mix->name : ggml_type_name(types->type);
}

int gguf_types_file_type(const struct gguf_types *types) {
    return types->mix != NULL ? types->mix->file_type : berth_type_file_type(types->type);
}

// ---- the model ----

static int64_t number(const struct gguf_context *meta, const char *rest) {
    const int64_t arch = gguf_find_key(meta, "general.architecture");
    char key[160];
    if (arch < 0 || gguf_get_kv_type(meta, arch) != GGUF_TYPE_STRING) {
        return 0;
    }
    snprintf(key, sizeof key, "%.64s.%s", gguf_get_val_str(meta, arch), rest);
    const int64_t id = gguf_find_key(meta, key);
    return id >= 0 && gguf_get_kv_type(meta, id) == GGUF_TYPE_UINT32 ? (int64_t) gguf_get_val_u32(meta, id) : 0;
}

void gguf_types_look(struct gguf_types *types, const struct gguf_context *meta) {
    types->n_layer    = number(meta, "block_count");
    types->n_expert   = number(meta, "expert_count");
    types->has_output = gguf_find_tensor(meta, "output.weight") >= 0;
}

// ---- a tensor ----

// What is a table of positions, a router, a short filter or a bias keeps its numbers: it is small, and everything hangs on it.
static bool is_kept(const char *name) {
    const size_t n                   = strlen(name);
    static const char *const parts[] = {
        "position_embd", "token_types", "ffn_gate_inp", "ssm_conv1d", "_norm.", ".bias", "attn_rel_b"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (strstr(name, parts[i]) != NULL) {
            return true;
        }
    }
    return n > 4 && strncmp(name, "blk.", 4) == 0 && (n < 7 || strcmp(name + n - 7, ".weight") != 0);
}

static enum ggml_type better_of(const struct better *b, int64_t i, int64_t n) {
    bool is_good = false;
    switch (b->where) {
        case NOWHERE: break;
        case EVERYWHERE: is_good = true; break;
        case FIRST_2: is_good = i < 2; break;
        case FIRST_4: is_good = i < 4; break;
        case FIRST_16TH: is_good = i < n / 16; break;
        case FIRST_8TH: is_good = i < n / 8; break;
        case MORE: is_good = i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2; break;
    }
    return is_good ? b->good : b->else_type;
}

static enum ggml_type mix_type(const struct gguf_types *types, const char *name) {
    const struct gguf_mix *m = types->mix;
    if (strcmp(name, "output.weight") == 0 || (strcmp(name, "token_embd.weight") == 0 && !types->has_output)) {
        return GGML_TYPE_Q6_K;
    }
    char *rest;
    const long layer = strncmp(name, "blk.", 4) == 0 ? strtol(name + 4, &rest, 10) : -1;
    if (layer < 0 || *rest++ != '.') {
        return m->base;
    }
    if (strncmp(rest, "attn_v.", 7) == 0 || strncmp(rest, "attn_k.", 7) == 0) {
        return types->n_expert == 8 ? GGML_TYPE_Q8_0 : rest[5] == 'v' ? better_of(&m->value, layer, types->n_layer) : m->base;
    }
    if (strncmp(rest, "attn_qkv.", 9) == 0) {
        return better_of(&m->fused, layer, types->n_layer);
    }
    if (strncmp(rest, "ffn_down", 8) == 0) {
        return better_of(&m->down, layer, types->n_layer);
    }
    return strncmp(rest, "attn_output.", 12) != 0 ? m->base : types->n_expert == 8 ? m->out_of_8 : m->out;
}

// The nearest type that rows of n can have.
static enum ggml_type fitting(enum ggml_type type, int64_t n) {
    static const struct {
        enum ggml_type from, to;
    } rows[] = {{Q3, GGML_TYPE_Q4_0}, {Q4, GGML_TYPE_Q5_0}, {Q5, GGML_TYPE_Q5_1}, {Q6, GGML_TYPE_Q8_0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].from == type && n % ggml_blck_size(type) != 0) {
            return n % ggml_blck_size(rows[i].to) == 0 ? rows[i].to : GGML_TYPE_F16;
        }
    }
    return type;
}

enum ggml_type gguf_types_of(const struct gguf_types *types, const struct ggml_tensor *t) {
    for (int i = 0; t->ne[1] > 1 && i < types->n_rules; i++) { // vectors are added and multiplied as they are
        if (fnmatch(types->rules[i].pattern, t->name, 0) == 0) {
            const enum ggml_type type = types->rules[i].type;
            return t->ne[0] % ggml_blck_size(type) == 0 ? type : t->type;
        }
    }
    if (t->ne[1] <= 1 || is_kept(t->name)) {
        return t->type;
    }
    if (types->mix != NULL) {
        return fitting(mix_type(types, t->name), t->ne[0]);
    }
    return t->ne[0] % ggml_blck_size(types->type) == 0 ? types->type : t->type;
}
