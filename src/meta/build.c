// SPDX-License-Identifier: MIT
// build.c: makes the steps of a graph, in node order. For each node:
// 1. The rule of the node's op (rule.c) decides which states the sources must have.
// 2. Sources in other states are converted. After the parts of a partial root have been summed, the root is mirrored. A complete
//    copy of a split root is valid until a node writes to the root.
// 3. Each device gets its part of the node.

#include "meta/build.h"

#include "core/optable.h"

// ---- nodes ----

static void node_put(struct meta_builder *b, int j, struct ggml_tensor *part) {
    struct meta_program *p = b->p;
    if (!berth_grow((void **) &p->nodes[j], &p->nodes_cap[j], p->n_nodes[j] + 1, sizeof p->nodes[j][0])) {
        b->has_failed = true;
        return;
    }
    p->nodes[j][p->n_nodes[j]++] = part;
}

static void run_open(struct meta_builder *b) {
    struct meta_step *step = b->is_running ? NULL : meta_step_add(b, META_COMPUTE);
    if (step == NULL) {
        return;
    }
    step->from = meta_builder_take(b, (size_t) b->n, sizeof step->from[0]);
    step->to = meta_builder_take(b, (size_t) b->n, sizeof step->to[0]);
    for (int j = 0; step->from != NULL && step->to != NULL && j < b->n; j++) {
        step->from[j] = step->to[j] = (int32_t) b->p->n_nodes[j];
    }
}

static bool has_empty_source(const struct meta_version *srcs, const struct ggml_tensor *t, int j) {
    for (int k = 0; k < GGML_MAX_SRC; k++) {
        if (t->src[k] != NULL && t->src[k] != t && ggml_nelements(t->src[k]) > 0 && ggml_nelements(&srcs[k].parts[j]) == 0) {
            return true;
        }
    }
    return false;
}

static void node_emit(
    struct meta_builder *b, const struct ggml_tensor *t, struct meta_version out, const struct meta_version *srcs) {
    struct ggml_tensor *zeros = NULL;
    run_open(b);
    if (b->has_failed) {
        return;
    }
    struct meta_step *step = &b->p->steps[b->p->n_steps - 1];
    for (int j = 0; j < b->n && !b->has_failed; j++) {
        struct ggml_tensor *part = &out.parts[j];
        if (ggml_nelements(part) == 0) {
            continue;
        }
        if (has_empty_source(srcs, t, j)) { // this device has no term of the sum: its part is set to 0
            if (zeros == NULL) {
                zeros = meta_parts_take(b);
            }
            if (zeros != NULL) {
                zeros[j] = *part;
                zeros[j].op = t->op;
            }
            continue;
        }
        part->op = t->op;
        part->flags = t->flags;
        memcpy(part->op_params, t->op_params, sizeof part->op_params);
        for (int k = 0; k < GGML_MAX_SRC; k++) {
            part->src[k] = t->src[k] != NULL ? &srcs[k].parts[j] : NULL;
        }
        if (b->sizing != NULL) {
            meta_sizing_enlarge(b->sizing, t, j, part);
        }
        node_put(b, j, part);
        step->to[j] = (int32_t) b->p->n_nodes[j];
    }
    b->clock++;
    for (int k = 0; k < GGML_MAX_SRC; k++) {
        if (t->src[k] != NULL) {
            meta_use(b, srcs[k]);
        }
    }
    meta_use(b, out);
    step = zeros != NULL ? meta_step_add(b, META_ZERO) : NULL;
    if (step != NULL) {
        step->dst = zeros;
        meta_use(b, out);
    }
}

static void cost_add(struct meta_builder *b, const struct ggml_tensor *t, int64_t n_bytes) {
    struct meta_program *p = b->p;
    if (!berth_grow((void **) &p->costs, &p->costs_cap, p->n_costs + 1, sizeof p->costs[0])) {
        b->has_failed = true;
        return;
    }
    struct meta_cost *cost = &p->costs[p->n_costs++];
    *cost = (struct meta_cost){.op = t->op, .n_bytes = n_bytes};
    memcpy(cost->name, t->name, sizeof cost->name);
}

// Decides the states of the node's sources and of its result. have: receives the current states of the sources. Returns false if
// all sources must be made complete.
static bool node_decide(struct meta_builder *b, const struct ggml_tensor *t, const meta_state **have, struct meta_node *node) {
    bool has_sums = false, may_stay_partial = true, ok = true;
    *node = (struct meta_node){.t = t, .n = b->n};
    for (int k = 0; k < GGML_MAX_SRC; k++) {
        const bool is_source = t->src[k] != NULL && t->src[k] != t; // a cast lists itself as its second source
        have[k] = is_source ? meta_state_of(b, t->src[k]) : NULL;
        node->have[k] = have[k];
        if (is_source && have[k] == NULL) {
            node->have[k] = &meta_mirrored;
            ok = false;
        }
        if (node->have[k] != NULL && meta_is_partial(node->have[k])) {
            has_sums = true;
            may_stay_partial &= meta_row_of(b, t->src[k])->n_uses == 1;
        }
    }
    if (has_sums && may_stay_partial && ok && meta_rule_sum(node)) {
        return true;
    }
    for (int k = 0; k < GGML_MAX_SRC; k++) {
        if (node->have[k] != NULL && meta_is_partial(node->have[k])) {
            node->have[k] = &meta_mirrored;
        }
    }
    ok = meta_rule(node) && ok &&
         (meta_is_mirrored(&node->out) || ggml_is_contiguous(meta_root(t))); // parts of a split root are contiguous
    for (int k = 0; k < GGML_MAX_SRC && ok; k++) {
        ok = node->have[k] == NULL || meta_can_convert(b, t->src[k], have[k], node->want[k], t);
    }
    return ok;
}

static void want_whole(struct meta_node *node) {
    for (int k = 0; k < GGML_MAX_SRC; k++) {
        node->want[k] = &meta_mirrored;
    }
    node->out = meta_mirrored;
}

// Returns the destination of a node that writes into a view.
// If the result has the state of the view, the destination is in the root's parts.
// Otherwise the destination is a view of the complete root. If the complete root is a copy, sets *is_copy to true; the caller
// then updates the parts from the copy after the node.
static struct meta_version out_in_place(
    struct meta_builder *b, const struct ggml_tensor *t, struct meta_node *node, bool *is_copy) {
    struct meta_row *row = meta_row_of(b, t);
    const meta_state *now = meta_state_of(b, t);

    *is_copy = false;
    if (now != NULL && meta_same(now, &node->out, b->n)) {
        return meta_native(b, t);
    }
    want_whole(node);
    const struct meta_version whole = meta_whole_root(b, t->view_src);
    *is_copy = !meta_is_mirrored(row->state);
    return meta_whole_view(b, t, whole);
}

// Returns the destination of a node that is not a view. If the node has its own memory in another state than `out`, the
// destination is temporary, and *is_moved becomes true; the caller then moves the result to the node's memory after the node.
static struct meta_version out_in_own_memory(
    struct meta_builder *b, const struct ggml_tensor *t, const meta_state *out, bool *is_moved) {
    struct meta_row *row = meta_row_of(b, t);

    *is_moved = meta_is_own(b, t) && !meta_same(row->state, out, b->n);
    if (*is_moved) {
        return meta_temp_new(b, t, out);
    }
    if (!meta_is_own(b, t)) {
        row->state = meta_state_keep(b, out);
    }
    row->native.parts = NULL;
    return meta_native(b, t);
}

// Some ops update their sources, for example an optimiser step updates the moments. If the op updated a complete copy of a
// source, the parts are updated from the copy. If the op updated the parts, the complete copy becomes invalid.
static void write_back(struct meta_builder *b, const struct ggml_tensor *t, const struct meta_version *srcs) {
    const struct berth_op_info *info = berth_op_info(t->op);
    for (int k = 0; k < GGML_MAX_SRC; k++) {
        if (t->src[k] == NULL || info == NULL || (info->updates >> k & 1) == 0) {
            continue;
        }
        const struct ggml_tensor *root = meta_root(t->src[k]);
        struct meta_row *row = meta_row_of(b, root);
        row->has_whole = row->has_whole && srcs[k].temp == row->whole.temp;
        if (row->has_whole) {
            meta_move(b, root, row->whole, &meta_mirrored, meta_native(b, root), row->state);
        }
    }
}

static void build_node(struct meta_builder *b, const struct ggml_tensor *t) {
    const meta_state *have[GGML_MAX_SRC];
    struct meta_node node;
    struct meta_version srcs[GGML_MAX_SRC] = {{0}}, out;
    struct meta_row *row = meta_row_of(b, t);
    bool is_copy = false, is_moved = false;
    b->whole_bytes = 0;
    const bool is_split_kept = node_decide(b, t, have, &node);
    if (!is_split_kept) {
        want_whole(&node);
    }
    if (t->view_src != NULL) {
        out = out_in_place(b, t, &node, &is_copy);
    }
    for (int k = 0; k < GGML_MAX_SRC && !b->has_failed; k++) {
        if (t->src[k] != NULL && t->src[k] != t) {
            srcs[k] = meta_convert(b, t->src[k], meta_state_of(b, t->src[k]), node.want[k], t);
            b->has_failed = b->has_failed || srcs[k].parts == NULL;
        }
    }
    if (t->view_src == NULL) {
        out = out_in_own_memory(b, t, &node.out, &is_moved);
    }
    for (int k = 0; k < GGML_MAX_SRC; k++) {
        if (t->src[k] == t) {
            srcs[k] = out;
        }
    }
    if (b->has_failed || out.parts == NULL) {
        b->has_failed = true;
        return;
    }
    node_emit(b, t, out, srcs);
    row->has_whole = row->has_whole && is_copy;
    if (is_copy) {
        meta_move(b, t->view_src, row->whole, &meta_mirrored, meta_native(b, t->view_src), row->state);
    }
    write_back(b, t, srcs);
    if (is_moved && meta_is_partial(&node.out)) {
        meta_sum(b, t, out);
    }
    if (is_moved) {
        meta_move(b, t, out, meta_is_partial(&node.out) ? &meta_mirrored : meta_state_keep(b, &node.out), meta_native(b, t),
            row->state);
    }
    if (!is_split_kept || is_copy) {
        cost_add(b, t, b->whole_bytes);
    }
}

// ---- graphs ----

static enum ggml_status check_root(const struct ggml_tensor *t) {
    const struct ggml_tensor *root = meta_root(t);
    char text[192];
    const char *fault;
    if (root->view_src != NULL) {
        fault = "is a view of a view";
    } else if (meta_buffer_of(root->buffer) == NULL) {
        fault = "has no memory there";
    } else {
        fault = meta_root_fault(root, text, sizeof text);
    }
    return fault == NULL ? GGML_STATUS_SUCCESS
                         : berth_fail(GGML_STATUS_FAILED, "a composite device cannot compute %s (%s): it %s", berth_name_of(t),
                               ggml_op_name(t->op), fault);
}

static enum ggml_status rows_init(struct meta_builder *b) {
    struct meta_program *p = b->p;
    b->rows[p->rec.n_rows].state = &meta_mirrored; // the extra row, which meta_row_of returns if it finds no row
    for (int32_t r = 0; r < p->rec.n_rows; r++) {
        const struct ggml_tensor *t = p->rec.tensors[r];
        b->rows[r].native.temp = b->rows[r].whole.temp = -1;
        if (b->sizing == NULL && ggml_nelements(t) > 0 && check_root(t) != GGML_STATUS_SUCCESS) {
            return GGML_STATUS_FAILED;
        }
        const bool is_planned = b->sizing != NULL && meta_sizing_item(b->sizing, t) >= 0;
        const struct meta_buffer *mb = is_planned ? NULL : meta_buffer_of(t->buffer);
        b->rows[r].state = t->view_src == NULL && mb != NULL ? meta_state_keep(b, meta_root_state(t)) : &meta_mirrored;
        p->seen[r] = (struct meta_seen){.data = t->data, .buffer_id = mb != NULL ? mb->id : 0, .before = b->rows[r].state};
    }
    for (int32_t r = 0; r < p->rec.n_nodes; r++) {
        for (int k = 0; k < GGML_MAX_SRC; k++) {
            const struct ggml_tensor *s = p->rec.tensors[r]->src[k];
            if (s != NULL && meta_computes(p->rec.tensors[r])) {
                meta_row_of(b, s)->n_uses++;
            }
        }
    }
    return GGML_STATUS_SUCCESS;
}

enum ggml_status meta_build(struct meta_builder *b) {
    struct meta_program *p = b->p;
    const enum ggml_status status = rows_init(b);
    if (status != GGML_STATUS_SUCCESS) {
        return status;
    }
    for (int32_t r = 0; r < p->rec.n_nodes && !b->has_failed; r++) {
        if (meta_computes(p->rec.tensors[r])) {
            build_node(b, p->rec.tensors[r]);
        }
    }
    for (int32_t r = 0; r < p->rec.n_rows; r++) {
        p->seen[r].after = b->rows[r].state;
    }
    if (b->has_failed) {
        return berth_fail(
            GGML_STATUS_ALLOC_FAILED, "out of memory for the parts of a graph of %d nodes on %d devices", p->rec.n_nodes, p->n);
    }
    return GGML_STATUS_SUCCESS;
}
