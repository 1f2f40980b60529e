// SPDX-License-Identifier: MIT
// moe.c: fusions around the products of experts (mmid.c): the selection of experts, and the weighted sum of their results.

#include "gpu/kernel/moe.h"

#include "gpu/op/op.h"

#include "core/graph.h"

#include <math.h>

// ---- selection ----

// Nodes that one launch computes: SOFT_MAX ARGSORT GET_ROWS [SUM_ROWS [CLAMP] DIV], with views between them. The experts are the
// first n_used indices of each row of the ARGSORT.
struct router {
    const struct ggml_tensor *logits;
    const struct ggml_tensor *sort, *ids; // ids: the view of sort
    struct ggml_tensor *weights;          // last node
    float lo, hi;
    bool norm;
    int n; // number of nodes; 0: no match
};

// Returns whether t is a view of all elements of `from`, or `from` itself.
static bool is_whole_view(const struct ggml_tensor *t, const struct ggml_tensor *from) {
    return t == from || (t->op == GGML_OP_RESHAPE && t->src[0] == from) ||
           (t->op == GGML_OP_RESHAPE && t->src[0]->op == GGML_OP_RESHAPE && t->src[0]->src[0] == from);
}

// Adds [SUM_ROWS [CLAMP] DIV] after node `at` to the router.
static void router_extend(const struct ggml_cgraph *graph, int i, int at, struct router *r) {
    const struct ggml_tensor *got = r->weights;
    const struct ggml_tensor *sum = gpu_node_at(graph, at, GGML_OP_SUM_ROWS), *last = sum;
    if (sum == NULL || sum->src[0]->op != GGML_OP_RESHAPE || sum->src[0]->src[0] != got || sum->src[0]->ne[0] != r->ids->ne[0] ||
        !gpu_is_used_once(graph, got) || !gpu_is_used_once(graph, sum)) {
        return;
    }
    float lo = -INFINITY, hi = INFINITY;
    at = gpu_next_computed(graph, at + 1);
    const struct ggml_tensor *clamp = gpu_node_at(graph, at, GGML_OP_CLAMP);
    if (clamp != NULL && clamp->src[0] == sum && gpu_is_used_once(graph, clamp)) {
        lo = param_f32(clamp, 0);
        hi = param_f32(clamp, 1);
        last = clamp;
        at = gpu_next_computed(graph, at + 1);
    }
    struct ggml_tensor *div = gpu_node_at(graph, at, GGML_OP_DIV);
    if (div != NULL && div->src[0] == sum->src[0] && div->src[1] == last && gpu_n_uses(graph, sum->src[0]) == 2 &&
        div->type == GGML_TYPE_F32 && ggml_is_contiguous(div)) {
        r->norm = true;
        r->lo = lo;
        r->hi = hi;
        r->weights = div;
        r->n = at - i + 1;
    }
}

static struct router router_at(const struct ggml_cgraph *graph, int i) {
    struct router r = {.n = 0};
    const struct ggml_tensor *soft = gpu_node_at(graph, i, GGML_OP_SOFT_MAX);
    if (soft == NULL || soft->src[1] != NULL || soft->src[2] != NULL || param_f32(soft, 0) != 1.0f || soft->ne[2] != 1 ||
        soft->ne[3] != 1 || soft->ne[0] > ROUTER_EXPERTS || soft->src[0]->type != GGML_TYPE_F32 ||
        !ggml_is_contiguous(soft->src[0]) || gpu_n_uses(graph, soft) != 2) {
        return r;
    }
    int at = gpu_next_computed(graph, i + 1);
    r.sort = gpu_node_at(graph, at, GGML_OP_ARGSORT);
    if (r.sort == NULL || r.sort->src[0] != soft || param_i32(r.sort, 0) != GGML_SORT_ORDER_DESC ||
        !gpu_is_used_once(graph, r.sort)) {
        return r;
    }
    at = gpu_next_computed(graph, at + 1);
    r.weights = gpu_node_at(graph, at, GGML_OP_GET_ROWS);
    if (r.weights == NULL || !is_whole_view(r.weights->src[0], soft) || r.weights->src[0] == soft ||
        !gpu_is_used_once(graph, r.weights->src[0]) || r.weights->src[0]->ne[0] != 1 || r.weights->src[0]->ne[1] != soft->ne[0] ||
        !ggml_is_contiguous(r.weights)) {
        return r;
    }
    r.logits = soft->src[0];
    r.ids = r.weights->src[1];
    if (r.ids->op != GGML_OP_VIEW || r.ids->src[0] != r.sort || r.ids->view_offs != r.sort->view_offs || r.ids->ne[0] > 32 ||
        r.ids->ne[1] != soft->ne[1] || r.ids->nb[1] != r.sort->nb[1] || r.ids->nb[0] != sizeof(int32_t)) {
        return r;
    }
    r.n = at - i + 1;
    router_extend(graph, i, gpu_next_computed(graph, at + 1), &r);
    return r;
}

static int router_match(const struct gpu_device *dev, const struct ggml_cgraph *graph, int i) {
    const struct router r = router_at(graph, i);
    return r.n > 0 && gpu_supports_op(dev, graph->nodes[i]) && !gpu_overlap(r.sort, r.logits) &&
                   !gpu_overlap(r.weights, r.logits) && !gpu_overlap(r.weights, r.sort)
               ? r.n
               : 0;
}

static enum ggml_status router_run(struct gpu_run *run, const struct ggml_cgraph *graph, int i, int n) {
    const struct router r = router_at(graph, i);
    const struct gpu_router_args g = {.logits = r.logits->data,
        .ids = r.ids->data,
        .weights = r.weights->data,
        .ids_row = (int64_t) (r.ids->nb[1] / sizeof(int32_t)),
        .n_tokens = r.logits->ne[1],
        .n_experts = (int32_t) r.logits->ne[0],
        .n_used = (int32_t) r.ids->ne[0],
        .lo = r.lo,
        .hi = r.hi,
        .norm = r.norm};
    enum { WARPS = 4 }; // one token per warp
    const struct gpu_dims dims = {.grid = {(unsigned) ((g.n_tokens + WARPS - 1) / WARPS)}, .block = {32, WARPS}, .overlap = true};
    (void) n;
    return gpu_launch(run, "moe_router", dims, &g);
}

const struct gpu_fusion gpu_fusion_router = {.name = "selection of experts", .match = router_match, .run = router_run};

// ---- weighted sum ----

// Nodes that one launch computes: MUL by the weights, and n_used - 1 ADDs of its slots.
struct expert_sum {
    const struct ggml_tensor *x, *w; // [n, n_used, n_tokens], [1, n_used, n_tokens]
    struct ggml_tensor *out;         // last ADD
    int n;                           // number of nodes; 0: no match
};

// Returns whether t is slot `slot` of all tokens of x.
static bool is_slot(const struct ggml_cgraph *graph, const struct ggml_tensor *t, const struct ggml_tensor *x, int64_t slot) {
    return t->op == GGML_OP_VIEW && t->src[0] == x && t->view_offs == (size_t) slot * x->nb[1] && t->ne[0] == x->ne[0] &&
           t->ne[1] == x->ne[2] && t->ne[2] == 1 && t->ne[3] == 1 && (t->nb[1] == x->nb[2] || t->ne[1] == 1) &&
           gpu_is_used_once(graph, t);
}

static struct expert_sum expert_sum_at(const struct ggml_cgraph *graph, int i) {
    struct expert_sum s = {.n = 0};
    const struct ggml_tensor *mul = gpu_node_at(graph, i, GGML_OP_MUL);
    if (mul == NULL || mul->view_src != NULL || mul->ne[3] != 1 || mul->ne[1] < 2 || mul->ne[0] % 4 != 0 ||
        gpu_n_uses(graph, mul) != mul->ne[1]) {
        return s;
    }
    s.x = mul->src[0];
    s.w = mul->src[1];
    if (s.x->type != GGML_TYPE_F32 || s.w->type != GGML_TYPE_F32 || s.w->ne[0] != 1 || s.w->ne[1] != mul->ne[1] ||
        s.w->ne[2] != mul->ne[2] || s.w->ne[3] != 1 || !ggml_is_contiguous(s.x) || !ggml_is_contiguous(s.w)) {
        return s;
    }
    int at = i;
    struct ggml_tensor *sum = NULL;
    for (int64_t slot = 1; slot < mul->ne[1]; slot++) {
        at = gpu_next_computed(graph, at + 1);
        struct ggml_tensor *add = gpu_node_at(graph, at, GGML_OP_ADD);
        if (add == NULL || !is_slot(graph, add->src[1], mul, slot) || !ggml_is_contiguous(add) ||
            (sum != NULL ? add->src[0] != sum || !gpu_is_used_once(graph, sum) : !is_slot(graph, add->src[0], mul, 0))) {
            return s;
        }
        sum = add;
    }
    s.out = sum;
    s.n = at - i + 1;
    return s;
}

static int expert_sum_match(GPU_DEV, const struct ggml_cgraph *graph, int i) {
    const struct expert_sum s = expert_sum_at(graph, i);
    return s.n > 0 && gpu_is_float4(s.x) && gpu_is_float4(s.out) && !gpu_overlap(s.out, s.x) && !gpu_overlap(s.out, s.w) ? s.n
                                                                                                                         : 0;
}

static enum ggml_status expert_sum_run(struct gpu_run *r, const struct ggml_cgraph *graph, int i, int n) {
    const struct expert_sum s = expert_sum_at(graph, i);
    const struct gpu_expert_sum_args g = {.dst = s.out->data,
        .x = s.x->data,
        .w = s.w->data,
        .n = s.x->ne[0],
        .n_tokens = s.x->ne[2],
        .n_used = (int32_t) s.x->ne[1]};
    (void) n;
    return gpu_launch(r, "moe_sum", gpu_dims_1d(r, g.n / 4 * g.n_tokens, 128), &g);
}

const struct gpu_fusion gpu_fusion_expert_sum = {
    .name = "weighted sum of experts", .match = expert_sum_match, .run = expert_sum_run};

// ---- memory ----

void gpu_moe_keep(const struct ggml_cgraph *graph, struct ggml_backend_graph_optimize_params *params) {
    for (int i = 0; i < graph->n_nodes; i++) {
        const struct router r = router_at(graph, i);
        const struct expert_sum s = expert_sum_at(graph, i);
        if (r.n > 0) {
            gpu_keep(params, r.logits, r.weights);
        }
        if (s.n > 0) {
            gpu_keep(params, s.x, s.out);
            gpu_keep(params, s.w, s.out);
        }
    }
}
