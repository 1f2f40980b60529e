// SPDX-License-Identifier: MIT
// builder.c: helpers for all parts of a graph.

#include "model/graph.h"

#include <stdio.h>

struct ggml_tensor *builder_named(const struct graph_builder *b, struct ggml_tensor *t, const char *name) {
    if (b->i >= 0) { // the index of the current layer
        ggml_format_name(t, "blk.%d.%s", (int) b->i, name);
    } else {
        ggml_set_name(t, name);
    }
    return t;
}

// The normalised value before the product with the weight gets the suffix .rms or .norm.
struct ggml_tensor *builder_norm(
    struct graph_builder *b, struct ggml_tensor *x, struct ggml_tensor *weight, struct ggml_tensor *bias, const char *name) {
    const bool has_mean = builder_has(b, ARCH_LAYER_NORM);
    char part[32];
    snprintf(part, sizeof part, "%s.%s", name, has_mean ? "norm" : "rms");
    x = builder_named(b, has_mean ? ggml_norm(b->ctx, x, b->p->eps) : ggml_rms_norm(b->ctx, x, b->p->eps), part);
    x = builder_named(b, ggml_mul(b->ctx, x, weight), name);
    return bias != NULL ? builder_named(b, ggml_add(b->ctx, x, bias), name) : x;
}

struct ggml_tensor *builder_product(
    struct graph_builder *b, struct ggml_tensor *weight, struct ggml_tensor *bias, struct ggml_tensor *x, const char *name) {
    struct ggml_tensor *y = builder_named(b, ggml_mul_mat(b->ctx, weight, x), name);
    for (const struct model_lora *lora = b->m->loras; lora != NULL; lora = lora->next) {
        const struct lora_pair *pair = lora_find(lora, weight);
        if (pair != NULL) {
            char part[48];
            snprintf(part, sizeof part, "%s.lora", name);
            struct ggml_tensor *low = builder_named(b, ggml_mul_mat(b->ctx, pair->a, x), part);
            struct ggml_tensor *add = builder_named(b, ggml_mul_mat(b->ctx, pair->b, low), part);
            y = builder_named(b, ggml_add(b->ctx, y, builder_named(b, ggml_scale(b->ctx, add, pair->scale), part)), name);
        }
    }
    return bias != NULL ? builder_named(b, ggml_add(b->ctx, y, bias), name) : y;
}

struct ggml_tensor *builder_capped(struct graph_builder *b, struct ggml_tensor *x, float cap, const char *name) {
    x = builder_named(b, ggml_scale(b->ctx, x, 1 / cap), name);
    x = builder_named(b, ggml_tanh(b->ctx, x), name);
    return builder_named(b, ggml_scale(b->ctx, x, cap), name);
}
