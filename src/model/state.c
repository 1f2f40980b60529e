// SPDX-License-Identifier: MIT
// state.c: builds state-space layers (Mamba 2). A layer is a short convolution over the last inputs, then a scan that decays the
// state of each head and adds the new input. The size of the state does not depend on the length of the sequence. The cache of
// layer i holds this state: s->k[i] has the last inputs of the convolution [kernel - 1, channels], s->v[i] has the states of the
// heads [state size, head size, heads].

#include "model/graph.h"

static struct ggml_tensor *columns_view(struct graph_builder *b, struct ggml_tensor *x, int64_t at, int64_t n) {
    return ggml_view_2d(b->ctx, x, n, x->ne[1], x->nb[1], (size_t) at * ggml_element_size(x));
}

static void state_write(struct graph_builder *b, struct ggml_tensor *x, struct ggml_tensor *to, const char *name) {
    ggml_build_forward_expand(b->graph, builder_named(b, ggml_cpy(b->ctx, x, to), name));
}

// Returns [channels, n_tokens].
static struct ggml_tensor *state_convolve(struct graph_builder *b, struct ggml_tensor *x) {
    const struct model_layer *l = &b->m->layers[b->i];
    struct ggml_tensor *before = b->s->k[b->i];
    const int64_t n_tokens = x->ne[1], n_kept = before->ne[0];
    struct ggml_tensor *all = ggml_concat(b->ctx, before, ggml_transpose(b->ctx, x), 0); // [n_kept + n_tokens, channels]
    struct ggml_tensor *last = ggml_view_2d(b->ctx, builder_named(b, all, "state.conv_in"), n_kept, all->ne[1], all->nb[1],
        (size_t) n_tokens * ggml_element_size(all));
    state_write(b, last, before, "state.conv_kept");
    struct ggml_tensor *y = builder_named(b, ggml_ssm_conv(b->ctx, all, l->conv), "state.conv");
    y = builder_named(b, ggml_add(b->ctx, y, l->conv_bias), "state.conv");
    return builder_named(b, ggml_silu(b->ctx, y), "state.conv_act");
}

// Returns [head, heads, n_tokens].
static struct ggml_tensor *state_scan(struct graph_builder *b, struct ggml_tensor *x, struct ggml_tensor *step) {
    const struct model_params *p = b->p;
    const struct model_layer *l = &b->m->layers[b->i];
    const int64_t n_tokens = x->ne[1], head = p->n_inner / p->n_state_head, n_all = p->n_group_state * p->n_state;
    const size_t element_size = ggml_element_size(x), row = x->nb[1], group = (size_t) p->n_state * element_size;
    struct ggml_tensor *v = ggml_view_4d(
        b->ctx, x, head, p->n_state_head, n_tokens, 1, (size_t) head * element_size, row, row * (size_t) n_tokens, 0);
    struct ggml_tensor *in = ggml_view_4d(b->ctx, x, p->n_state, p->n_group_state, n_tokens, 1, group, row,
        row * (size_t) n_tokens, (size_t) p->n_inner * element_size);
    struct ggml_tensor *out = ggml_view_4d(b->ctx, x, p->n_state, p->n_group_state, n_tokens, 1, group, row,
        row * (size_t) n_tokens, (size_t) (p->n_inner + n_all) * element_size);
    step = builder_named(b, ggml_add(b->ctx, step, l->step_bias), "state.step");
    struct ggml_tensor *state = b->s->v[b->i];
    struct ggml_tensor *scan =
        builder_named(b, ggml_ssm_scan(b->ctx, state, v, step, l->decay, in, out, b->in->states, 1), "state.scan");
    state_write(b, ggml_view_1d(b->ctx, scan, ggml_nelements(state), (size_t) ggml_nelements(v) * element_size),
        ggml_view_1d(b->ctx, state, ggml_nelements(state), 0), "state.kept");
    struct ggml_tensor *y = ggml_view_3d(
        b->ctx, scan, head, p->n_state_head, n_tokens, (size_t) head * element_size, (size_t) p->n_inner * element_size, 0);
    v = ggml_view_3d(b->ctx, x, head, p->n_state_head, n_tokens, (size_t) head * element_size, row, 0);
    return builder_named(b, ggml_add(b->ctx, y, builder_named(b, ggml_mul(b->ctx, v, l->skip), "state.skip")), "state.sum");
}

struct ggml_tensor *builder_state(struct graph_builder *b, struct ggml_tensor *x) {
    const struct model_params *p = b->p;
    const struct model_layer *l = &b->m->layers[b->i];
    const int64_t n_tokens = x->ne[1], n_conv = l->conv->ne[1];
    struct ggml_tensor *all = builder_product(b, l->state_in, NULL, x, "state.in"); // [gate | convolved | steps, n_tokens]
    struct ggml_tensor *gate = ggml_cont(b->ctx, columns_view(b, all, 0, p->n_inner));
    struct ggml_tensor *y = state_scan(b, state_convolve(b, columns_view(b, all, p->n_inner, n_conv)),
        columns_view(b, all, p->n_inner + n_conv, p->n_state_head));
    y = ggml_swiglu_split(b->ctx, builder_named(b, gate, "state.gate"), ggml_reshape_2d(b->ctx, y, p->n_inner, n_tokens));
    y = ggml_reshape_3d(b->ctx, builder_named(b, y, "state.act"), p->n_inner / p->n_group_state, p->n_group_state, n_tokens);
    y = builder_norm(b, y, l->state_norm, NULL, "state.norm");
    return builder_product(b, l->state_out, NULL, ggml_reshape_2d(b->ctx, y, p->n_inner, n_tokens), "state.out");
}
