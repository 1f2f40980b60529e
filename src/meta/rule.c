// SPDX-License-Identifier: MIT
// rule.c: the split rules of the op table (optable.h, `split` and `partial_rule`).
// A rule decides which states the sources must have (node->want), so that each device computes its part without data from other
// devices. It also decides the state of the result (node->out). An op without a rule gets mirrored sources. A rule does not
// access the memory of tensors.

#include "meta/program.h"

#include "core/op_params.h"
#include "core/optable.h"

typedef bool (*rule_fn)(struct meta_node *node);

static const meta_state *have_of(const struct meta_node *node, int k) {
    return node->have[k] != NULL ? node->have[k] : &meta_mirrored;
}

static bool is_split_on(const struct meta_node *node, int k, int axis) {
    return node->have[k] != NULL && (int) node->have[k]->axis == axis;
}

static const meta_state *first_split_on(const struct meta_node *node, int axis) {
    if (is_split_on(node, 0, axis)) {
        return node->have[0];
    }
    return is_split_on(node, 1, axis) ? node->have[1] : NULL;
}

// Returns state s along another axis, with every count multiplied by num / den. Returns NULL if a result is not an integer.
static const meta_state *state_scale(struct meta_node *node, const meta_state *s, int axis, int64_t num, int64_t den) {
    meta_state *m = &node->made[node->n_made];
    return meta_scaled(s, node->n, axis, num, den, m) ? (node->n_made++, m) : NULL;
}

static bool out_set(struct meta_node *node, const meta_state *out) {
    if (out == NULL || meta_state_fault(out, node->t, node->n) != NULL) {
        return false;
    }
    node->out = *out;
    return true;
}

// Requires state s for source k, or the complete source if it is broadcast along the split axis. Returns false if the extents do
// not match.
static bool source_follow(struct meta_node *node, int k, const meta_state *s) {
    const struct ggml_tensor *src = node->t->src[k];
    if (src == NULL) {
        return true;
    }
    const int64_t ne = src->ne[s->axis];
    node->want[k] = ne == 1 && node->t->ne[s->axis] != 1 ? &meta_mirrored : s;
    return ne == 1 || ne == node->t->ne[s->axis];
}

// ---- elementwise ops with broadcasting ----

static bool rule_each(struct meta_node *node) {
    const meta_state *lead = NULL;
    for (int k = 0; k < GGML_MAX_SRC && lead == NULL; k++) {
        const meta_state *s = have_of(node, k);
        lead = meta_is_split(s) && node->t->src[k]->ne[s->axis] == node->t->ne[s->axis] ? s : NULL;
    }
    bool ok = lead != NULL;
    for (int k = 0; k < GGML_MAX_SRC && ok; k++) {
        ok = source_follow(node, k, lead);
    }
    return ok && out_set(node, lead);
}

// Rows and expert biases are split along axis 0 in the same way. The expert ids are mirrored.
static bool rule_add_id(struct meta_node *node) {
    const meta_state *lead = first_split_on(node, 0);
    node->want[0] = node->want[1] = lead;
    return lead != NULL && out_set(node, lead);
}

// If one source holds both factors in each row, its state must be one segment with two repetitions, so that each device has the
// same share of both factors.
static bool rule_glu(struct meta_node *node) {
    const meta_state *s = have_of(node, 0);
    if (node->t->src[1] != NULL) {
        return rule_each(node);
    }
    if (s->axis != GGML_BACKEND_SPLIT_AXIS_0) {
        node->want[0] = s;
        return meta_is_split(s) && out_set(node, s);
    }
    if (s->n_segments != 1 || s->nr[0] != 2) {
        return false;
    }
    meta_state one_factor = *s;
    one_factor.nr[0] = 1;
    node->want[0] = s;
    return out_set(node, &one_factor);
}

// ---- ops per row ----

static bool rule_rows(struct meta_node *node) {
    const meta_state *s = have_of(node, 0);
    bool ok = meta_is_split(s) && s->axis > 0 && node->t->src[0]->ne[s->axis] == node->t->ne[s->axis];
    for (int k = 0; k < GGML_MAX_SRC && ok; k++) {
        ok = source_follow(node, k, s);
    }
    return ok && out_set(node, s);
}

// Rule of softmax. The mask is broadcast. If the heads (axis 2) are split, sinks are split too, and max_bias is not supported.
static bool rule_soft_max(struct meta_node *node) {
    const struct ggml_tensor *sinks = node->t->src[2];
    const meta_state *s = have_of(node, 0);
    if (!meta_is_split(s) || s->axis == 0 || (s->axis == 2 && param_f32(node->t, 1) != 0.0f) || !source_follow(node, 0, s) ||
        !source_follow(node, 1, s)) {
        return false;
    }
    node->want[2] = sinks != NULL && s->axis == 2 ? state_scale(node, s, 0, 1, 1) : &meta_mirrored;
    return node->want[2] != NULL && out_set(node, s);
}

// Rule of rope. The positions of the tokens are along axis 2, which must not be split.
static bool rule_rope(struct meta_node *node) {
    const meta_state *s = have_of(node, 0);
    node->want[0] = s;
    return (s->axis == 1 || s->axis == 3) && out_set(node, s);
}

// Rule of ops whose result has the same extent as the source along the split axis.
static bool rule_keep(struct meta_node *node) {
    const meta_state *s = have_of(node, 0);
    node->want[0] = s;
    return meta_is_split(s) && node->t->src[0]->ne[s->axis] == node->t->ne[s->axis] && out_set(node, s);
}

// ---- products ----

// Sets the states of a product that sums over the split axis. Each device has a part of the sum, so the result is partial.
static bool product_sum(struct meta_node *node, const meta_state *s) {
    node->want[0] = node->want[1] = s;
    for (int k = 0; k < 2; k++) {
        if (meta_state_fault(s, node->t->src[k], node->n) != NULL) {
            return false;
        }
    }
    node->out = meta_partial;
    return true;
}

// Sets the states of a product whose batches are split. One matrix of the first source is multiplied with `times` matrices of the
// second.
static bool product_batch(struct meta_node *node, int axis) {
    const struct ggml_tensor *a = node->t->src[0], *b = node->t->src[1];
    const bool by_first = is_split_on(node, 0, axis);
    const meta_state *s = node->have[by_first ? 0 : 1];
    const int64_t times = b->ne[axis] / a->ne[axis];
    const meta_state *of_b = by_first ? state_scale(node, s, axis, times, 1) : s;
    const meta_state *of_a = s;
    if (!by_first) {
        of_a = a->ne[axis] == 1 ? &meta_mirrored : state_scale(node, s, axis, 1, times);
    }
    node->want[0] = of_a;
    node->want[1] = of_b;
    return of_a != NULL && of_b != NULL && out_set(node, of_b);
}

static bool rule_mul_mat(struct meta_node *node) {
    for (int axis = 2; axis < GGML_MAX_DIMS; axis++) {
        if (is_split_on(node, 0, axis) || (!is_split_on(node, 0, 0) && !is_split_on(node, 0, 1) && is_split_on(node, 1, axis))) {
            return product_batch(node, axis);
        }
    }
    if (is_split_on(node, 0, 0) || (!is_split_on(node, 0, 1) && is_split_on(node, 1, 0))) {
        return product_sum(node, node->have[is_split_on(node, 0, 0) ? 0 : 1]);
    }
    if (is_split_on(node, 0, 1)) {
        node->want[0] = node->have[0];
        return out_set(node, state_scale(node, node->have[0], 0, 1, 1));
    }
    node->want[1] = node->have[1];
    return is_split_on(node, 1, 1) && out_set(node, node->have[1]);
}

static bool rule_mul_mat_id(struct meta_node *node) {
    if (is_split_on(node, 0, 1)) {
        node->want[0] = node->have[0];
        return out_set(node, state_scale(node, node->have[0], 0, 1, 1));
    }
    const int k = is_split_on(node, 0, 0) ? 0 : 1;
    return is_split_on(node, k, 0) && !is_split_on(node, 0, 2) && product_sum(node, node->have[k]);
}

// ---- rows by index, copies ----

static bool rule_get_rows(struct meta_node *node) {
    node->want[0] = node->have[0];
    return is_split_on(node, 0, 0) && out_set(node, node->have[0]);
}

// The indices select positions of axis 1, so this axis must not be split.
static bool rule_set_rows(struct meta_node *node) {
    const struct ggml_tensor *rows = node->t->src[0], *ids = node->t->src[1];
    const meta_state *s = have_of(node, 2);
    node->want[0] = node->want[2] = s;
    if (!meta_is_split(s) || s->axis == 1 || (s->axis > 1 && ids->ne[s->axis - 1] != 1)) {
        return false;
    }
    return rows->ne[s->axis] == node->t->ne[s->axis] && out_set(node, s);
}

static struct ggml_tensor dense_of(const struct ggml_tensor *t) {
    struct ggml_tensor d = {.type = GGML_TYPE_F32, .nb = {sizeof(float)}};
    memcpy(d.ne, t->ne, sizeof d.ne);
    for (int i = 1; i < GGML_MAX_DIMS; i++) {
        d.nb[i] = d.nb[i - 1] * (size_t) d.ne[i - 1];
    }
    return d;
}

// Returns the state of `to`, which has the elements of `from` (state s) in another shape. Both shapes are contiguous. Returns
// NULL if no state describes `to`.
static const meta_state *state_reshape(
    struct meta_node *node, const meta_state *s, const struct ggml_tensor *from, const struct ggml_tensor *to) {
    const struct ggml_tensor a = dense_of(from), b = dense_of(to);
    meta_state *m = &node->made[node->n_made];
    if (ggml_are_same_shape(from, to)) {
        return s;
    }
    return meta_view_state(&a, s, &b, node->n, m) ? (node->n_made++, m) : NULL;
}

static bool rule_cont(struct meta_node *node) {
    node->want[0] = have_of(node, 0);
    return meta_is_split(node->want[0]) && out_set(node, state_reshape(node, node->want[0], node->t->src[0], node->t));
}

// Rule of a copy. The state of the destination (source 1) decides which state the copied tensor (source 0) must have.
static bool rule_cpy(struct meta_node *node) {
    if (node->t->src[1] == node->t) { // a cast
        return rule_cont(node);
    }
    const meta_state *s = have_of(node, 1);
    node->want[1] = s;
    node->want[0] = meta_is_split(s) ? state_reshape(node, s, node->t->src[1], node->t->src[0]) : NULL;
    return node->want[0] != NULL && meta_state_fault(node->want[0], node->t->src[0], node->n) == NULL && out_set(node, s);
}

// Along the concatenation axis, the segments of the second source follow those of the first.
static bool rule_concat(struct meta_node *node) {
    const int dim = node->t->op_params[0];
    const meta_state *a = have_of(node, 0), *b = have_of(node, 1);
    if ((int) a->axis != dim || (int) b->axis != dim) {
        return (int) a->axis != dim && (int) b->axis != dim && rule_each(node);
    }
    meta_state both = *a;
    for (int j = 0; j < node->n; j++) { // each device must have elements of both sources or of neither
        if ((meta_len(a, node->n, j) == 0) != (meta_len(b, node->n, j) == 0)) {
            return false;
        }
    }
    for (uint32_t i = 0; i < b->n_segments; i++) {
        for (uint32_t r = 0; r < b->nr[i]; r++) {
            if (!meta_segment_add(&both, node->n, &b->ne[i * (uint32_t) node->n])) {
                return false;
            }
        }
    }
    node->want[0] = a;
    node->want[1] = b;
    return out_set(node, &both);
}

// ---- attention and recurrent layers ----

// The heads are split. Each head of the keys and values belongs to `times` heads of the queries. The heads are axis 2 of the
// sources and axis 1 of the result.
static bool rule_flash_attn(struct meta_node *node) {
    const struct ggml_tensor *q = node->t->src[0], *k = node->t->src[1], *mask = node->t->src[3];
    const int64_t times = q->ne[2] / k->ne[2];
    const meta_state *of_q = NULL;
    if (is_split_on(node, 0, 2)) {
        of_q = node->have[0];
    } else if (is_split_on(node, 1, 2)) {
        of_q = state_scale(node, node->have[1], 2, times, 1);
    }
    const meta_state *of_k = of_q != NULL ? state_scale(node, of_q, 2, 1, times) : NULL;
    const meta_state *of_sinks = of_k != NULL ? state_scale(node, of_q, 0, 1, 1) : NULL;
    if (of_sinks == NULL || k->ne[2] != node->t->src[2]->ne[2] || param_f32(node->t, 1) != 0.0f) {
        return false;
    }
    node->want[0] = of_q;
    node->want[1] = node->want[2] = of_k;
    node->want[3] = mask == NULL || mask->ne[2] == 1 ? &meta_mirrored : of_q;
    node->want[4] = of_sinks;
    return (mask == NULL || mask->ne[2] == 1 || mask->ne[2] == q->ne[2]) && out_set(node, state_scale(node, of_q, 1, 1, 1));
}

// The channels are axis 1 of both sources and axis 0 of the result.
static bool rule_ssm_conv(struct meta_node *node) {
    const meta_state *s = first_split_on(node, 1);
    node->want[0] = node->want[1] = s;
    return s != NULL && out_set(node, state_scale(node, s, 0, 1, 1));
}

// ---- optimiser steps: the sources are the weights, their gradients, the moments, and the hyperparameters ----

static bool rule_step(struct meta_node *node) {
    const meta_state *s = have_of(node, 0);
    const int n_params = berth_op_info(node->t->op)->n_src - 1; // index of the last source, which holds the hyperparameters
    bool ok = meta_is_split(s);
    for (int k = 0; k < n_params && ok; k++) {
        node->want[k] = s;
        ok = k == 1 ||
             meta_same(have_of(node, k), s, node->n); // all sources but the gradient are updated: they must have this state
    }
    return ok && out_set(node, s);
}

// ---- table ----

static const rule_fn rules[BERTH_SPLIT_RULES] = {[BERTH_SPLIT_EACH] = rule_each,
    [BERTH_SPLIT_ADD_ID] = rule_add_id,
    [BERTH_SPLIT_GLU] = rule_glu,
    [BERTH_SPLIT_ROWS] = rule_rows,
    [BERTH_SPLIT_SOFT_MAX] = rule_soft_max,
    [BERTH_SPLIT_ROPE] = rule_rope,
    [BERTH_SPLIT_KEEP] = rule_keep,
    [BERTH_SPLIT_MUL_MAT] = rule_mul_mat,
    [BERTH_SPLIT_MUL_MAT_ID] = rule_mul_mat_id,
    [BERTH_SPLIT_GET_ROWS] = rule_get_rows,
    [BERTH_SPLIT_SET_ROWS] = rule_set_rows,
    [BERTH_SPLIT_CONT] = rule_cont,
    [BERTH_SPLIT_CPY] = rule_cpy,
    [BERTH_SPLIT_CONCAT] = rule_concat,
    [BERTH_SPLIT_FLASH_ATTN] = rule_flash_attn,
    [BERTH_SPLIT_SSM_CONV] = rule_ssm_conv,
    [BERTH_SPLIT_STEP] = rule_step};

static void want_whole(struct meta_node *node) {
    for (int k = 0; k < GGML_MAX_SRC; k++) {
        node->want[k] = &meta_mirrored;
    }
    node->n_made = 0;
    node->out = meta_mirrored;
}

bool meta_rule(struct meta_node *node) {
    const struct berth_op_info *info = berth_op_info(node->t->op);
    const rule_fn rule = info != NULL ? rules[info->split] : NULL;
    bool has_split = false;
    for (int k = 0; k < GGML_MAX_SRC; k++) {
        has_split = has_split || meta_is_split(have_of(node, k));
    }
    want_whole(node);
    if (!has_split) {
        return true;
    }
    if (rule != NULL && rule(node)) {
        return true;
    }
    want_whole(node);
    return false;
}

bool meta_rule_sum(struct meta_node *node) {
    const struct berth_op_info *info = berth_op_info(node->t->op);
    const enum berth_partial_rule rule = info != NULL ? info->partial_rule : BERTH_PARTIAL_NONE;
    int n_sums = 0, n_srcs = 0;
    bool is_float = node->t->type == GGML_TYPE_F32 && node->t->view_src == NULL;
    for (int k = 0; k < GGML_MAX_SRC; k++) {
        const meta_state *s = have_of(node, k);
        n_srcs += node->have[k] != NULL;
        n_sums += meta_is_partial(s);
        is_float &=
            (node->have[k] == NULL || node->t->src[k]->type == GGML_TYPE_F32) && (meta_is_partial(s) || meta_is_mirrored(s));
        node->want[k] = s;
    }
    bool ok = false;
    if (rule == BERTH_PARTIAL_ADD) {
        ok = n_sums == n_srcs;
    } else if (rule == BERTH_PARTIAL_MUL_FIRST) {
        ok = n_sums == 1 && meta_is_partial(have_of(node, 0));
    } else if (rule == BERTH_PARTIAL_LINEAR) {
        ok = n_srcs == 1;
    } else if (rule == BERTH_PARTIAL_SCALE) {
        ok = n_srcs == 1 && param_f32(node->t, 1) == 0.0f;
    }
    if (!ok || !is_float) {
        return false;
    }
    node->out = meta_partial;
    return true;
}
