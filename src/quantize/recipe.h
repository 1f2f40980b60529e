// SPDX-License-Identifier: MIT
// recipe.h: which type each tensor of a model gets: one for all, a mix as llama-quantize names it, or by patterns of names.
#pragma once

#include "berth.h"

#include <stdbool.h>

#define GGUF_MAX_RULES 64

struct gguf_mix;

// One --tensor-type: names that match the pattern get the type.
struct gguf_rule {
    char pattern[128];
    enum ggml_type type;
};

struct gguf_types {
    enum ggml_type type;        // of what no rule says otherwise
    const struct gguf_mix *mix; // NULL: all alike
    struct gguf_rule rules[GGUF_MAX_RULES];
    int n_rules;
    // of the model
    const struct gguf_context *meta;
    int64_t n_layer, n_expert;
    int64_t n_share; // heads that share keys and values
    bool is_70b;     // 80 layers with shared keys and values
    bool has_output, has_imatrix;
};

// The mix of that name, or the type, in any case; is_pure: the type alone. False: there is none.
bool gguf_types_parse(const char *name, bool is_pure, struct gguf_types *out);
// Whether something that is asked for cannot be made without an importance matrix.
bool gguf_types_want_imatrix(const struct gguf_types *types);
bool gguf_type_parse(const char *name, enum ggml_type *type);
// "PATTERN=TYPE"; false: it is none, or there are too many.
bool gguf_types_rule(const char *text, struct gguf_types *out);
// What is asked for, as it was named.
const char *gguf_types_name(const struct gguf_types *types);
// Of general.file_type; -1: there is none.
int gguf_types_file_type(const struct gguf_types *types);
// Looks at the model that is to be made of.
void gguf_types_look(struct gguf_types *types, const struct gguf_context *meta, bool has_imatrix);
// The type that a tensor gets; its own: it stays as it is.
enum ggml_type gguf_types_of(const struct gguf_types *types, const struct ggml_tensor *t);
// Names of mixes, NULL behind the last.
const char *gguf_mix_name(int i);
