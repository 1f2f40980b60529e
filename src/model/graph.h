// SPDX-License-Identifier: MIT
// graph.h: the state and the helpers that graph.c, attention.c, state.c and ffn.c share while they build a graph.
#pragma once

#include "model/model.h"

struct graph_builder {
    const struct graph_shape *s;
    const struct model *m;
    const struct model_params *p;
    struct ggml_context *ctx;
    struct ggml_cgraph *graph;
    struct graph_inputs *in;
    int64_t i; // current layer; -1: none
};

static inline bool builder_has(const struct graph_builder *b, unsigned has) {
    return (b->p->desc->has & has) != 0;
}

// ---- builder.c ----

// Sets the name of t and returns t. In a layer the name gets a prefix: blk.3.ffn.up.
struct ggml_tensor *builder_named(const struct graph_builder *b, struct ggml_tensor *t, const char *name);
// Returns the architecture's norm of x, multiplied by weight, plus the bias unless it is NULL.
struct ggml_tensor *builder_norm(
    struct graph_builder *b, struct ggml_tensor *x, struct ggml_tensor *weight, struct ggml_tensor *bias, const char *name);
// Returns weight * x plus the products of all adapters for this weight, plus the bias unless it is NULL.
struct ggml_tensor *builder_product(
    struct graph_builder *b, struct ggml_tensor *weight, struct ggml_tensor *bias, struct ggml_tensor *x, const char *name);
// Returns cap * tanh(x / cap).
struct ggml_tensor *builder_capped(struct graph_builder *b, struct ggml_tensor *x, float cap, const char *name);

// Returns the number of key rows that layer i attends to. Without a cache, it is the number of tokens.
int64_t builder_n_visible(const struct graph_builder *b, int64_t i);

// ---- parts of layer b->i ----

struct ggml_tensor *builder_attention(struct graph_builder *b, struct ggml_tensor *x); // attention.c
struct ggml_tensor *builder_state(struct graph_builder *b, struct ggml_tensor *x);     // state.c: with ARCH_STATE
struct ggml_tensor *builder_ffn(struct graph_builder *b, struct ggml_tensor *x);       // ffn.c
