// SPDX-License-Identifier: MIT
// graph.h: what the parts of a graph share while it is built (graph.c, attention.c, state.c, ffn.c).
#pragma once

#include "model/model.h"

struct graph_builder {
    const struct graph_shape *s;
    const struct model *m;
    const struct model_params *p;
    struct ggml_context *ctx;
    struct ggml_cgraph *graph;
    struct graph_inputs *in;
    int64_t i; // the layer, -1: none
};

static inline bool builder_has(const struct graph_builder *b, unsigned has) {
    return (b->p->desc->has & has) != 0;
}

// ---- builder.c ----

// t with its name: blk.3.ffn.up for the builder's layer.
struct ggml_tensor *builder_named(const struct graph_builder *b, struct ggml_tensor *t, const char *name);
// The architecture's norm of x; weight and bias may be NULL.
struct ggml_tensor *builder_norm(
    struct graph_builder *b, struct ggml_tensor *x, struct ggml_tensor *weight, struct ggml_tensor *bias, const char *name);
// weight * x with what adapters add, and a bias if there is one.
struct ggml_tensor *builder_product(
    struct graph_builder *b, struct ggml_tensor *weight, struct ggml_tensor *bias, struct ggml_tensor *x, const char *name);
// cap * tanh(x / cap)
struct ggml_tensor *builder_capped(struct graph_builder *b, struct ggml_tensor *x, float cap, const char *name);

// How many rows layer i sees: of its cache, if there is one (attention.c).
int64_t builder_seen(const struct graph_builder *b, int64_t i);

// ---- parts of layer b->i ----

struct ggml_tensor *builder_attention(struct graph_builder *b, struct ggml_tensor *x); // attention.c
struct ggml_tensor *builder_state(struct graph_builder *b, struct ggml_tensor *x);     // state.c: with ARCH_STATE
struct ggml_tensor *builder_ffn(struct graph_builder *b, struct ggml_tensor *x);       // ffn.c
