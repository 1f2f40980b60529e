// SPDX-License-Identifier: MIT
// recur.c: recurrences over tokens: RWKV_WKV6 and 7, GATED_LINEAR_ATTN, GATED_DELTA_NET, SOLVE_TRI; the hyper-connections
// DSV4_HC_*; LIGHTNING_INDEXER.

#include "gpu/kernel/recur.h"

#include "gpu/op/op.h"

#include <math.h>

#define D_MAX 256         // largest row of a state; 8 elements per lane
#define WARPS_PER_BLOCK 4 // each warp computes one row of a state

static bool sources_f32(const struct ggml_tensor *op, int n) {
    for (int i = 0; i < n; i++) {
        if (op->src[i] == NULL || op->src[i]->type != GGML_TYPE_F32) {
            return false;
        }
    }
    return op->type == GGML_TYPE_F32;
}

// ---- states of d x d matrices, one per head ----

#define LINES_MIN 4 // with fewer tokens, a warp per line is faster

static enum ggml_status recur_launch(struct gpu_run *r, const struct gpu_recur_args *g) {
    if (g->n_token >= LINES_MIN && g->n_kept <= 1 && (g->d == 64 || g->d == 128)) {
        static const struct {
            enum ggml_op op;
            const char *kernel_64, *kernel_128;
        } kernels[] = {{GGML_OP_RWKV_WKV6, "wkv6_64", "wkv6_128"}, {GGML_OP_RWKV_WKV7, "wkv7_64", "wkv7_128"},
            {GGML_OP_GATED_LINEAR_ATTN, "gla_64", "gla_128"}, {GGML_OP_GATED_DELTA_NET, "delta_64", "delta_128"}};
        int i = 0;
        while ((int32_t) kernels[i].op != g->what) {
            i++;
        }
        const struct gpu_dims dims = gpu_grid(g->n_head * g->n_seq, g->d / LINES_ROWS, 1, LINES_THREADS, 0);
        return gpu_launch(r, g->d == 64 ? kernels[i].kernel_64 : kernels[i].kernel_128, dims, g);
    }
    const struct gpu_dims dims = {
        .grid = {(unsigned) (g->n_head * g->n_seq), (unsigned) ((g->d + WARPS_PER_BLOCK - 1) / WARPS_PER_BLOCK)},
        .block = {32, WARPS_PER_BLOCK},
        .overlap = true};
    return gpu_launch(r, "recur", dims, g);
}

struct wkv {
    int n;     // number of sources with shape [d, n_head, n_token]; the state is the next source
    int shape; // index of the source from which this shape is read
};

static struct wkv wkv_of(const struct ggml_tensor *op) {
    if (op->op == GGML_OP_RWKV_WKV7) {
        return (struct wkv){6, 2};
    }
    return op->op == GGML_OP_RWKV_WKV6 ? (struct wkv){5, 0} : (struct wkv){4, 0};
}

static bool wkv_supports(GPU_DEV, const struct ggml_tensor *op) {
    const struct wkv wkv = wkv_of(op);
    const int n = wkv.n;
    if (!sources_f32(op, n + 1) || !ggml_is_contiguous(op)) {
        return false;
    }
    const struct ggml_tensor *k = op->src[wkv.shape], *state = op->src[n];
    const int64_t d = k->ne[0], n_head = k->ne[1], n_token = k->ne[2], n_seq = state->ne[1];
    for (int i = 0; i <= n; i++) {
        const int64_t want = op->op == GGML_OP_RWKV_WKV6 && i == 3 ? d * n_head : d * n_head * n_token;
        if (!ggml_is_contiguous(op->src[i]) || (i < n && ggml_nelements(op->src[i]) < want)) {
            return false;
        }
    }
    return d <= D_MAX && n_seq > 0 && n_token % n_seq == 0 && ggml_nelements(state) >= d * d * n_head * n_seq &&
           ggml_nelements(op) >= d * n_head * n_token + d * d * n_head * n_seq;
}

static enum ggml_status wkv_run(struct gpu_run *r, struct ggml_tensor *op) {
    const struct wkv wkv = wkv_of(op);
    const int n = wkv.n;
    const struct ggml_tensor *k = op->src[wkv.shape];
    struct gpu_recur_args g = {.state = op->src[n]->data,
        .y = op->data,
        .states = (float *) op->data + ggml_nelements(k),
        .d = k->ne[0],
        .n_head = k->ne[1],
        .n_seq = op->src[n]->ne[1],
        .n_token = k->ne[2] / op->src[n]->ne[1],
        .n_kept = 1,
        .scale = op->op == GGML_OP_GATED_LINEAR_ATTN ? param_f32(op, 0) : 1.0f,
        .what = (int32_t) op->op};
    for (int i = 0; i < n; i++) {
        g.x[i] = op->src[i]->data;
    }
    return recur_launch(r, &g);
}

static bool delta_supports(GPU_DEV, const struct ggml_tensor *op) {
    if (!sources_f32(op, 6) || !ggml_is_contiguous(op)) {
        return false;
    }
    const struct ggml_tensor *v = op->src[2], *g = op->src[3], *beta = op->src[4], *state = op->src[5];
    const int64_t d = v->ne[0], n = v->ne[1] * v->ne[2] * v->ne[3], n_kept = max_i64(param_i32(op, 0), 1);
    for (int i = 0; i < 2; i++) {
        const struct ggml_tensor *x = op->src[i];
        if (x->nb[0] != sizeof(float) || x->ne[0] != d || x->ne[2] != v->ne[2] || x->ne[1] <= 0 || x->ne[3] <= 0 ||
            v->ne[1] % x->ne[1] != 0 || v->ne[3] % x->ne[3] != 0) {
            return false;
        }
    }
    return d <= D_MAX && ggml_nelements(op) >= d * n + n_kept * ggml_nelements(state) && v->nb[0] == sizeof(float) &&
           (g->ne[0] == 1 || g->ne[0] == d) && ggml_nelements(g) == n * g->ne[0] && ggml_nelements(beta) == n &&
           ggml_nelements(state) == d * d * v->ne[1] * v->ne[3] && ggml_is_contiguous(g) && ggml_is_contiguous(beta) &&
           ggml_is_contiguous(state);
}

static enum ggml_status delta_run(struct gpu_run *r, struct ggml_tensor *op) {
    const struct ggml_tensor *v = op->src[2];
    const struct gpu_recur_args g = {.x = {[3] = op->src[3]->data, [4] = op->src[4]->data},
        .state = op->src[5]->data,
        .y = op->data,
        .states = (float *) op->data + ggml_nelements(v),
        .q = gpu_view_of(op->src[0]),
        .k = gpu_view_of(op->src[1]),
        .v = gpu_view_of(v),
        .d = v->ne[0],
        .n_head = v->ne[1],
        .n_token = v->ne[2],
        .n_seq = v->ne[3],
        .n_kept = param_i32(op, 0),
        .n_gate = op->src[3]->ne[0],
        .scale = 1.0f / sqrtf((float) v->ne[0]),
        .what = (int32_t) op->op};
    return recur_launch(r, &g);
}

// ---- ops with one thread, or one warp, per element ----

static bool solve_supports(GPU_DEV, const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0], *b = op->src[1];
    return sources_f32(op, 2) && a->ne[0] == a->ne[1] && a->ne[1] == b->ne[1] && a->ne[2] == b->ne[2] && a->ne[3] == b->ne[3] &&
           ggml_are_same_shape(b, op);
}

static enum ggml_status solve_run(struct gpu_run *r, struct ggml_tensor *op) {
    struct gpu_op_args g = gpu_op_args_of(op);
    g.n = op->ne[0] * op->ne[2] * op->ne[3];
    return gpu_launch(r, "solve_tri", gpu_dims_1d(r, g.n, 64), &g);
}

#define HC 4                      // number of residual streams
#define HC_MIX (2 * HC + HC * HC) // weights: HC to join streams, HC to distribute a result, HC * HC to mix streams

static bool comb_supports(GPU_DEV, const struct ggml_tensor *op) {
    return sources_f32(op, 3) && op->src[1]->ne[0] >= 3 && op->src[2]->ne[0] >= HC_MIX && ggml_is_contiguous(op) &&
           op->src[0]->ne[0] == HC_MIX && op->ne[0] == HC && op->ne[1] == HC && op->ne[2] == op->src[0]->ne[1];
}

static enum ggml_status comb_run(struct gpu_run *r, struct ggml_tensor *op) {
    const struct gpu_op_args g = gpu_op_args_of(op);
    return gpu_launch(r, "hc_comb", gpu_dims_1d(r, op->ne[2], 64), &g);
}

static bool pre_supports(GPU_DEV, const struct ggml_tensor *op) {
    if (!sources_f32(op, 2)) {
        return false;
    }
    const struct ggml_tensor *x = op->src[0], *w = op->src[1];
    return op->ne[0] == x->ne[0] && op->ne[1] == x->ne[2] &&
           (param_i32(op, 1) != 0 ? ggml_are_same_shape(x, w) : w->ne[0] == x->ne[1] && w->ne[1] == x->ne[2]);
}

static bool post_supports(GPU_DEV, const struct ggml_tensor *op) {
    const struct ggml_tensor *x = op->src[0], *post = op->src[2], *comb = op->src[3];
    return sources_f32(op, comb != NULL ? 4 : 3) && ggml_are_same_shape(op->src[1], op) && x->ne[0] == op->ne[0] &&
           x->ne[1] == op->ne[2] && post->ne[0] == op->ne[1] && post->ne[1] == op->ne[2] &&
           (comb == NULL || (comb->ne[0] == op->ne[1] && comb->ne[1] == op->ne[1] && comb->ne[2] == op->ne[2]));
}

static bool index_supports(GPU_DEV, const struct ggml_tensor *op) {
    const struct ggml_tensor *q = op->src[0], *k = op->src[1], *w = op->src[2], *mask = op->src[3];
    if (q == NULL || k == NULL || w == NULL || mask == NULL || q->type != GGML_TYPE_F32 || w->type != GGML_TYPE_F32 ||
        mask->type != GGML_TYPE_F16 || op->type != GGML_TYPE_F32 || q->ne[0] > D_MAX || op->ne[2] != 1) {
        return false;
    }
    const bool fits = q->ne[0] == k->ne[0] && k->ne[3] == q->ne[3] && w->ne[0] == q->ne[1] && w->ne[1] == q->ne[2] &&
                      w->ne[3] == q->ne[3] && mask->ne[0] == k->ne[2] && mask->ne[1] == q->ne[2] && op->ne[0] == k->ne[2] &&
                      op->ne[1] == q->ne[2] && op->ne[3] == q->ne[3];
    return fits && q->nb[0] == sizeof(float) && gpu_can_widen(k->type) &&
           (gpu_is_float(k->type) || k->nb[0] == ggml_type_size(k->type));
}

static enum ggml_status index_run(struct gpu_run *r, struct ggml_tensor *op) {
    const struct gpu_op_args g = gpu_op_args_of(op);
    struct gpu_dims dims = gpu_dims_1d(r, g.n * 32, 32 * WARPS_PER_BLOCK);
    dims.block[0] = 32;
    dims.block[1] = WARPS_PER_BLOCK;
    return gpu_launch(r, "lightning_indexer", dims, &g);
}

#define WKV \
    { .supports = wkv_supports, .run = wkv_run }

const struct gpu_op_entry gpu_ops_recur[] = {
    {GGML_OP_RWKV_WKV6, WKV},
    {GGML_OP_RWKV_WKV7, WKV},
    {GGML_OP_GATED_LINEAR_ATTN, WKV},
    {GGML_OP_GATED_DELTA_NET, {.supports = delta_supports, .run = delta_run}},
    {GGML_OP_SOLVE_TRI, {.supports = solve_supports, .run = solve_run}},
    {GGML_OP_DSV4_HC_COMB, {.supports = comb_supports, .run = comb_run}},
    {GGML_OP_DSV4_HC_PRE, {.supports = pre_supports, .run = gpu_elementwise_run, .kernel = "hc_pre"}},
    {GGML_OP_DSV4_HC_POST, {.supports = post_supports, .run = gpu_elementwise_run, .kernel = "hc_post"}},
    {GGML_OP_LIGHTNING_INDEXER, {.supports = index_supports, .run = index_run}},
    GPU_OPS_END,
};
