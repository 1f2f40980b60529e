// SPDX-License-Identifier: MIT
// ssm.c: SSM_SCAN and SSM_CONV of state space models, and the ops around them in a layer. The layers of Mamba have these nodes,
// with views between them:
//     CONCAT of the last inputs and the new inputs, CPY of the last inputs into the cache, SSM_CONV, ADD, SILU
//     SSM_SCAN, CPY of the new states into the cache
//     CONT of the gate, MUL, ADD, SWIGLU
// Each line is one launch.

#include "gpu/kernel/ssm.h"

#include "gpu/op/op.h"

#include "core/graph.h"

#define D_MAX 256         // scan_any: most states of a row
#define WARPS_PER_BLOCK 4 // scan_any: each warp computes one row

static bool sources_f32(const struct ggml_tensor *op, int n) {
    for (int i = 0; i < n; i++) {
        if (op->src[i] == NULL || op->src[i]->type != GGML_TYPE_F32) {
            return false;
        }
    }
    return op->type == GGML_TYPE_F32;
}

static bool is_f32(const struct ggml_tensor *t) {
    return t != NULL && t->type == GGML_TYPE_F32;
}

// ---- SSM_SCAN ----

// Returns the number of states to keep: op parameter 0, or 1 if the parameter is 0. It is 0 in graphs built by ggml before 0.25.
static int64_t scan_kept(const struct ggml_tensor *op) {
    return param_i32(op, 0) == 0 ? 1 : param_i32(op, 0);
}

static bool scan_supports(GPU_DEV, const struct ggml_tensor *op) {
    if (!sources_f32(op, 6) || op->src[6] == NULL || op->src[6]->type != GGML_TYPE_I32 || op->src[6]->nb[0] != sizeof(int32_t)) {
        return false;
    }
    const struct ggml_tensor *s = op->src[0], *x = op->src[1], *dt = op->src[2], *A = op->src[3], *B = op->src[4],
                             *C = op->src[5];
    const int64_t K = scan_kept(op);
    const double want = (double) ggml_nelements(x) + (double) K * (double) (s->ne[0] * s->ne[1] * s->ne[2] * x->ne[3]);
    return s->ne[0] <= D_MAX && K >= 1 && (K == 1 || A->ne[0] == 1) && s->ne[1] == x->ne[0] && s->ne[2] == x->ne[1] &&
           dt->ne[0] == x->ne[1] && dt->ne[1] == x->ne[2] && dt->ne[2] == x->ne[3] && (A->ne[0] == 1 || A->ne[0] == s->ne[0]) &&
           A->ne[1] == x->ne[1] && B->ne[0] == s->ne[0] && B->ne[2] == x->ne[2] && B->ne[3] == x->ne[3] &&
           ggml_are_same_shape(B, C) && gpu_rows_are_dense(B) && gpu_rows_are_dense(C) && B->ne[1] > 0 &&
           x->ne[1] % B->ne[1] == 0 && op->src[6]->ne[0] >= x->ne[3] && ggml_is_contiguous(op) &&
           (double) ggml_nelements(op) >= want;
}

static bool rows_are_aligned_16(const struct ggml_tensor *t) {
    return ((uintptr_t) t->data | t->nb[1] | t->nb[2] | t->nb[3]) % 16 == 0;
}

// copy: NULL, or a second place for the new states.
static enum ggml_status scan_launch(struct gpu_run *r, const struct ggml_tensor *op, float *copy) {
    const struct ggml_tensor *s = op->src[0], *x = op->src[1], *A = op->src[3], *B = op->src[4], *C = op->src[5];
    const int64_t d_state = s->ne[0], d_head = x->ne[0], n_head = x->ne[1], n_seq = x->ne[3];
    const struct gpu_scan_args g = {.s = gpu_view_of(s),
        .x = gpu_view_of(x),
        .dt = gpu_view_of(op->src[2]),
        .a = gpu_view_of(A),
        .b = gpu_view_of(B),
        .c = gpu_view_of(C),
        .ids = op->src[6]->data,
        .y = op->data,
        .states = (float *) op->data + ggml_nelements(x),
        .copy = copy,
        .n_kept = scan_kept(op)};
    if (d_head == 1 && d_state == SCAN_STATES && A->ne[0] == SCAN_STATES && B->ne[1] == 1 && n_seq <= 65535) {
        const int64_t n_blocks = (n_head + SCAN_CHANNELS - 1) / SCAN_CHANNELS;
        return gpu_launch(r, "scan_channels", gpu_grid(n_blocks, n_seq, 1, 128, 0), &g);
    }
    const bool is_square = d_state == 64 || d_state == 128 || d_state == 256;
    if (is_square && A->ne[0] == 1 && g.n_kept == 1 && rows_are_aligned_16(B) && rows_are_aligned_16(C)) {
        const int64_t n_blocks = (d_head + SCAN_ROWS - 1) / SCAN_ROWS, shared_size = 4 * SCAN_TOKENS * d_state * 4;
        const char *kernel = "scan_heads_256";
        if (d_state < 256) {
            kernel = d_state == 64 ? "scan_heads_64" : "scan_heads_128";
        }
        return gpu_launch(r, kernel, gpu_grid(n_head * n_seq, n_blocks, 1, 128, shared_size), &g);
    }
    const struct gpu_dims dims = {
        .grid = {(unsigned) (n_head * n_seq), (unsigned) ((d_head + WARPS_PER_BLOCK - 1) / WARPS_PER_BLOCK)},
        .block = {32, WARPS_PER_BLOCK},
        .overlap = true};
    return gpu_launch(r, "scan_any", dims, &g);
}

static enum ggml_status scan_run(struct gpu_run *r, struct ggml_tensor *op) {
    return scan_launch(r, op, NULL);
}

// Returns the CPY of the new states if the next computed node after the SSM_SCAN at node i is one. Sets *n to the number of nodes
// up to it. Otherwise returns NULL. Requires one sequence: with several, the old state of one may be the new state of another.
static const struct ggml_tensor *scan_copy_at(const struct ggml_cgraph *graph, int i, int *n) {
    const struct ggml_tensor *op = gpu_node_at(graph, i, GGML_OP_SSM_SCAN);
    const int at = gpu_next_computed(graph, i + 1);
    const struct ggml_tensor *copy = op != NULL ? gpu_node_at(graph, at, GGML_OP_CPY) : NULL;
    if (copy == NULL || op->src[1]->ne[3] != 1 || !is_f32(copy) || !ggml_is_contiguous(copy)) {
        return NULL;
    }
    const struct ggml_tensor *from = copy->src[0];
    const size_t states_off = (size_t) ggml_nelements(op->src[1]) * sizeof(float);
    *n = at - i + 1;
    return from->view_src == op && from->view_offs == states_off && is_f32(from) && ggml_is_contiguous(from) &&
                   ggml_nelements(from) == op->src[0]->ne[0] * op->src[0]->ne[1] * op->src[0]->ne[2]
               ? copy
               : NULL;
}

// Returns whether the copy may be written while other threads still read the sources. The copy may replace the old state, because
// the thread that writes a state has read it before.
static bool may_write_copy(const struct ggml_tensor *op, const struct ggml_tensor *copy) {
    for (int i = 1; i < 7; i++) {
        if (gpu_overlap(copy, op->src[i])) {
            return false;
        }
    }
    const struct ggml_tensor *s = op->src[0];
    const size_t off = (size_t) ((const char *) copy->data - (const char *) s->data);
    return !gpu_overlap(copy, op) && (!gpu_overlap(copy, s) || (ggml_is_contiguous(s) && copy->data >= s->data &&
                                                                   off % (ggml_nbytes(s) / (size_t) s->ne[3]) == 0));
}

static int scan_match(const struct gpu_device *dev, const struct ggml_cgraph *graph, int i) {
    int n = 0;
    const struct ggml_tensor *copy = scan_copy_at(graph, i, &n);
    return copy != NULL && gpu_supports_op(dev, graph->nodes[i]) && may_write_copy(graph->nodes[i], copy) ? n : 0;
}

static enum ggml_status scan_fused_run(struct gpu_run *r, const struct ggml_cgraph *graph, int i, int n) {
    const struct ggml_tensor *copy = scan_copy_at(graph, i, &n);
    return scan_launch(r, graph->nodes[i], copy->data);
}

const struct gpu_fusion gpu_fusion_scan = {
    .name = "SSM_SCAN and the copy of its states", .match = scan_match, .run = scan_fused_run};

// ---- SSM_CONV ----

static bool ssm_conv_supports(GPU_DEV, const struct ggml_tensor *op) {
    const struct ggml_tensor *x = op->src[0], *c = op->src[1];
    return sources_f32(op, 2) && x->ne[1] == c->ne[1] && op->ne[0] == c->ne[1] && op->ne[1] == x->ne[0] - c->ne[0] + 1 &&
           op->ne[2] == x->ne[2];
}

// Nodes that one launch computes: [CONCAT [CPY]] SSM_CONV [ADD] [SILU].
struct conv_chain {
    struct ggml_tensor *concat;            // NULL: none; then kept is NULL too
    const struct ggml_tensor *kept;        // the CPY of the last inputs
    const struct ggml_tensor *conv, *bias; // bias: the weights, not the node
    struct ggml_tensor *out;               // last node of the chain
    bool silu;
    int n; // number of nodes of the chain; 0: no chain
};

// Returns whether `copy` copies the last d_conv - 1 inputs of `all`, of n_tokens + d_conv - 1 inputs per channel.
static bool copies_last(const struct ggml_tensor *copy, const struct ggml_tensor *all, int64_t n_tokens) {
    const struct ggml_tensor *from = copy->src[0];
    return from->view_src == all && from->view_offs == (size_t) n_tokens * sizeof(float) && is_f32(from) &&
           from->ne[0] == all->ne[0] - n_tokens && from->ne[1] == all->ne[1] && from->ne[2] == all->ne[2] &&
           from->nb[0] == sizeof(float) && from->nb[1] == all->nb[1] && (from->nb[2] == all->nb[2] || from->ne[2] == 1) &&
           is_f32(copy) && ggml_is_contiguous(copy);
}

static bool can_convolve(const struct ggml_tensor *conv) {
    return conv->src[1]->ne[0] >= 2 && conv->src[1]->ne[0] <= 4 && conv->ne[2] <= 65535 &&
           conv->ne[1] <= (int64_t) 65535 * CONV_TOKENS;
}

// Adds the ADD and the SILU after node `at` to the chain, and sets its number of nodes.
static void chain_finish(const struct ggml_cgraph *graph, int i, int at, struct conv_chain *c) {
    c->out = graph->nodes[at];
    c->n = at - i + 1;
    int next = gpu_next_computed(graph, at + 1);
    const struct ggml_tensor *add = gpu_node_at(graph, next, GGML_OP_ADD);
    if (add != NULL && gpu_is_used_once(graph, c->out) && add->src[0] == c->out && is_f32(add) && is_f32(add->src[1]) &&
        ggml_is_contiguous(add->src[1]) && ggml_nelements(add->src[1]) == add->ne[0] && add->src[1]->ne[0] == add->ne[0]) {
        c->bias = add->src[1];
        c->out = graph->nodes[next];
        c->n = next - i + 1;
        next = gpu_next_computed(graph, next + 1);
    }
    const struct ggml_tensor *act = gpu_node_at(graph, next, GGML_OP_UNARY);
    if (act != NULL && gpu_is_used_once(graph, c->out) && act->src[0] == c->out && is_f32(act) &&
        param_i32(act, 0) == GGML_UNARY_OP_SILU) {
        c->silu = true;
        c->out = graph->nodes[next];
        c->n = next - i + 1;
    }
}

// Returns the chain that starts at node i. It depends only on the graph, not on addresses.
static struct conv_chain conv_chain_at(const struct ggml_cgraph *graph, int i) {
    struct conv_chain c = {.concat = gpu_node_at(graph, i, GGML_OP_CONCAT)};
    int at = i;
    if (c.concat != NULL) {
        at = gpu_next_computed(graph, i + 1);
        c.kept = gpu_node_at(graph, at, GGML_OP_CPY);
        if (c.kept != NULL) {
            at = gpu_next_computed(graph, at + 1);
        }
    }
    c.conv = gpu_node_at(graph, at, GGML_OP_SSM_CONV);
    if (c.conv == NULL || !sources_f32(c.conv, 2) || !can_convolve(c.conv)) {
        return c;
    }
    if (c.concat != NULL) {
        const struct ggml_tensor *all = c.concat;
        const int64_t n_before = c.conv->src[1]->ne[0] - 1;
        if (c.conv->src[0] != all || param_i32(all, 0) != 0 || !sources_f32(all, 2) || all->src[0]->ne[0] != n_before ||
            all->ne[3] != 1 || gpu_n_uses(graph, all) != (c.kept != NULL ? 2 : 1) ||
            (c.kept != NULL && (!copies_last(c.kept, all, c.conv->ne[1]) || !gpu_is_used_once(graph, c.kept->src[0])))) {
            return c;
        }
    }
    chain_finish(graph, i, at, &c);
    return c;
}

// Returns whether no result overlaps memory that other threads still read.
static bool may_write_chain(const struct conv_chain *c) {
    const struct ggml_tensor *in[] = {c->concat != NULL ? c->concat->src[0] : c->conv->src[0],
        c->concat != NULL ? c->concat->src[1] : c->conv->src[0], c->conv->src[1], c->bias};
    for (size_t i = 0; i < sizeof in / sizeof in[0]; i++) {
        if (in[i] == NULL) {
            continue;
        }
        // The thread that writes the last inputs of a channel has read the first inputs before.
        const bool is_same = i == 0 && c->kept != NULL && c->kept->data == in[0]->data && ggml_is_contiguous(in[0]);
        if (gpu_overlap(c->out, in[i]) || (c->kept != NULL && !is_same && gpu_overlap(c->kept, in[i]))) {
            return false;
        }
    }
    return c->kept == NULL || !gpu_overlap(c->out, c->kept);
}

static int conv_match(const struct gpu_device *dev, const struct ggml_cgraph *graph, int i) {
    const struct conv_chain c = conv_chain_at(graph, i);
    return c.n > 1 && gpu_supports_op(dev, c.conv) && may_write_chain(&c) ? c.n : 0;
}

static enum ggml_status conv_launch(struct gpu_run *r, const struct conv_chain *c) {
    struct gpu_ssm_conv_args g = {.x = gpu_view_of(c->concat != NULL ? c->concat->src[1] : c->conv->src[0]),
        .w = gpu_view_of(c->conv->src[1]),
        .dst = gpu_view_of(c->out),
        .bias = c->bias != NULL ? c->bias->data : NULL,
        .kept = c->kept != NULL ? c->kept->data : NULL,
        .silu = c->silu};
    if (c->concat != NULL) {
        g.before = gpu_view_of(c->concat->src[0]);
    }
    static const char *const kernels[] = {"ssm_conv_2", "ssm_conv_3", "ssm_conv_4"};
    const struct gpu_dims dims = gpu_grid((g.dst.ne[0] + CONV_THREADS - 1) / CONV_THREADS,
        (g.dst.ne[1] + CONV_TOKENS - 1) / CONV_TOKENS, g.dst.ne[2], CONV_THREADS, 0);
    return gpu_launch(r, kernels[g.w.ne[0] - 2], dims, &g);
}

static enum ggml_status conv_fused_run(struct gpu_run *r, const struct ggml_cgraph *graph, int i, int n) {
    const struct conv_chain c = conv_chain_at(graph, i);
    (void) n;
    return conv_launch(r, &c);
}

static enum ggml_status ssm_conv_run(struct gpu_run *r, struct ggml_tensor *op) {
    if (can_convolve(op)) {
        const struct conv_chain c = {.conv = op, .out = op};
        return conv_launch(r, &c);
    }
    const struct gpu_op_args g = gpu_op_args_of(op);
    return gpu_launch(r, "ssm_conv_any", gpu_dims_1d(r, g.n, 256), &g);
}

const struct gpu_fusion gpu_fusion_conv = {
    .name = "SSM_CONV with its inputs, bias and SILU", .match = conv_match, .run = conv_fused_run};

// ---- the gate after the scan ----

// Nodes that one launch computes: [CONT] MUL ADD SWIGLU, which is silu(z) * (y + x * d).
struct gate_chain {
    const struct ggml_tensor *z, *y, *x, *d;
    struct ggml_tensor *out;
    int n; // 0: no chain
};

static struct gate_chain gate_chain_at(const struct ggml_cgraph *graph, int i) {
    struct gate_chain c = {.n = 0};
    const struct ggml_tensor *cont = gpu_node_at(graph, i, GGML_OP_CONT);
    const int i_mul = cont != NULL ? gpu_next_computed(graph, i + 1) : i;
    const struct ggml_tensor *mul = gpu_node_at(graph, i_mul, GGML_OP_MUL);
    const int i_add = gpu_next_computed(graph, i_mul + 1);
    const struct ggml_tensor *add = mul != NULL ? gpu_node_at(graph, i_add, GGML_OP_ADD) : NULL;
    const int i_glu = gpu_next_computed(graph, i_add + 1);
    struct ggml_tensor *glu = add != NULL ? gpu_node_at(graph, i_glu, GGML_OP_GLU) : NULL;
    if (glu == NULL || glu->src[1] == NULL || param_i32(glu, 0) != GGML_GLU_OP_SWIGLU || !sources_f32(glu, 2) ||
        !sources_f32(add, 2) || !sources_f32(mul, 2) || !gpu_is_used_once(graph, mul)) {
        return c;
    }
    c.y = gpu_other_source(add, mul);
    c.x = mul->src[0];
    c.d = mul->src[1];
    c.z = glu->src[0];
    c.out = glu;
    if (c.y == NULL || !ggml_are_same_shape(c.y, add) || !ggml_are_same_shape(mul, add) || !ggml_are_same_shape(c.x, mul) ||
        glu->src[1] != add || !ggml_are_same_shape(glu, add) || !gpu_is_used_once(graph, add) || !ggml_are_same_shape(c.z, glu)) {
        return c;
    }
    if (cont != NULL) {
        if (c.z != cont || !is_f32(cont->src[0]) || !ggml_are_same_shape(cont, cont->src[0]) || !gpu_is_used_once(graph, cont)) {
            return c;
        }
        c.z = cont->src[0];
    }
    c.n = i_glu - i + 1;
    return c;
}

static int gate_match(const struct gpu_device *dev, const struct ggml_cgraph *graph, int i) {
    const struct gate_chain c = gate_chain_at(graph, i);
    return c.n > 0 && gpu_supports_op(dev, c.out) && gpu_may_write_over(c.out, c.z) && gpu_may_write_over(c.out, c.y) &&
                   gpu_may_write_over(c.out, c.x) && !gpu_overlap(c.out, c.d)
               ? c.n
               : 0;
}

static enum ggml_status gate_run(struct gpu_run *r, const struct ggml_cgraph *graph, int i, int n) {
    const struct gate_chain c = gate_chain_at(graph, i);
    const struct gpu_ssm_gate_args g = {.dst = gpu_view_of(c.out),
        .y = gpu_view_of(c.y),
        .x = gpu_view_of(c.x),
        .d = gpu_view_of(c.d),
        .z = gpu_view_of(c.z),
        .index = gpu_index_of(c.out),
        .n = ggml_nelements(c.out)};
    (void) n;
    return gpu_launch(r, "ssm_gate", gpu_dims_1d(r, g.n, 256), &g);
}

const struct gpu_fusion gpu_fusion_gate = {.name = "gate of a state space layer", .match = gate_match, .run = gate_run};

// ---- memory ----

void gpu_ssm_keep(const struct ggml_cgraph *graph, struct ggml_backend_graph_optimize_params *params) {
    for (int i = 0; i < graph->n_nodes; i++) {
        const struct conv_chain conv = conv_chain_at(graph, i);
        const struct gate_chain gate = gate_chain_at(graph, i);
        if (conv.n > 1 && conv.concat != NULL) {
            gpu_keep(params, conv.concat->src[0], conv.out);
            gpu_keep(params, conv.concat->src[1], conv.out);
        } else if (conv.n > 1) {
            gpu_keep(params, conv.conv->src[0], conv.out);
        }
        if (gate.n > 0) {
            gpu_keep(params, gate.z, gate.out);
            gpu_keep(params, gate.y, gate.out);
            gpu_keep(params, gate.x, gate.out);
        }
    }
}

const struct gpu_op_entry gpu_ops_ssm[] = {
    {GGML_OP_SSM_CONV, {.supports = ssm_conv_supports, .run = ssm_conv_run}},
    {GGML_OP_SSM_SCAN, {.supports = scan_supports, .run = scan_run}},
    GPU_OPS_END,
};
