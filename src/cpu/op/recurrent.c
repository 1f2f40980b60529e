// SPDX-License-Identifier: MIT
// recurrent.c: linear attention whose state is a d x d matrix per head: RWKV_WKV6 and 7 (arXiv 2404.05892, 2503.14456),
// GATED_LINEAR_ATTN (2312.06635), GATED_DELTA_NET (2412.06464). All are f32. A unit of work is one head of one sequence. The
// result holds the outputs of all tokens, then the states. States are updated in the result.

#include "base/min.h"
#include "cpu/op/scratch.h"
#include "cpu/optable.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static bool sources_f32(const struct ggml_tensor *op, int n) {
    for (int i = 0; i < n; i++) {
        if (op->src[i] == NULL || op->src[i]->type != GGML_TYPE_F32) {
            return false;
        }
    }
    return op->type == GGML_TYPE_F32;
}

// ---- wkv6, wkv7, gla: sources are [d, n_head, n_token]; sequences have equal length and follow each other ----

// One token of one head. S: the d x d state. x[i]: the head's part of source i. y: the head's part of the result.
typedef void (*wkv_step_t)(
    const struct cpu_kernels *k, const struct ggml_tensor *op, int64_t d, float *S, const float *const *x, float *y);

struct wkv {
    int n_src;              // sources before the state src[n_src]
    unsigned constant_srcs; // bit i: source i is the same for all tokens
    wkv_step_t step;
};

static bool wkv_supports(const struct ggml_tensor *op, const struct wkv *w) {
    if (!sources_f32(op, w->n_src + 1) || !ggml_is_contiguous(op)) {
        return false;
    }
    for (int i = 0; i <= w->n_src; i++) {
        if (!ggml_is_contiguous(op->src[i])) {
            return false;
        }
    }
    return true;
}

static void wkv_run(const struct cpu_params *p, struct ggml_tensor *op, const struct wkv *w, const struct ggml_tensor *k) {
    const struct ggml_tensor *state = op->src[w->n_src];
    const int64_t d = k->ne[0], n_head = k->ne[1], n_token = k->ne[2], n_seq = state->ne[1];
    if (n_seq == 0 || n_token % n_seq != 0) {
        cpu_fail(
            p, "%s: %" PRId64 " tokens cannot be divided into %" PRId64 " sequences of equal length", op->name, n_token, n_seq);
        return;
    }
    // The products may overflow: without tokens the sources are empty, so nothing limits their other extents.
    int64_t n_state, n_result;
    if (__builtin_mul_overflow(n_head, n_seq, &n_state) || __builtin_mul_overflow(n_state, d, &n_state) ||
        __builtin_mul_overflow(n_state, d, &n_state) || __builtin_mul_overflow(d * n_head, n_token, &n_result) ||
        __builtin_add_overflow(n_result, n_state, &n_result)) {
        cpu_fail(p, "%s: the state of %" PRId64 " heads of size %" PRId64 " and %" PRId64 " sequences is too large", op->name,
            n_head, d, n_seq);
        return;
    }
    if (d > INT32_MAX || ggml_nelements(state) < n_state || ggml_nelements(op) < n_result) {
        cpu_fail(p, "%s: state has %" PRId64 " elements and result %" PRId64 ", %" PRId64 " and %" PRId64 " are required",
            op->name, ggml_nelements(state), ggml_nelements(op), n_state, n_result);
        return;
    }
    for (int i = 0; i < w->n_src; i++) {
        const int64_t n_required = (w->constant_srcs >> i & 1) != 0 ? d * n_head : d * n_head * n_token;
        if (ggml_nelements(op->src[i]) < n_required) {
            cpu_fail(p, "%s: source %d has %" PRId64 " elements, %" PRId64 " are required", op->name, i,
                ggml_nelements(op->src[i]), n_required);
            return;
        }
    }
    if (d == 0) {
        return;
    }
    const int64_t n_each = n_token / n_seq;
    float *y = op->data, *states = y + d * n_head * n_token;
    int64_t i, end;
    for (cpu_share(p, n_head * n_seq, &i, &end); i < end; i++) {
        const int64_t seq = i / n_head, h = i % n_head;
        float *S = states + i * d * d;
        memcpy(S, (const float *) state->data + i * d * d, (size_t) (d * d) * sizeof *S);
        for (int64_t t = seq * n_each; t < (seq + 1) * n_each; t++) {
            const float *x[GGML_MAX_SRC];
            for (int j = 0; j < w->n_src; j++) {
                x[j] = (const float *) op->src[j]->data + ((w->constant_srcs >> j & 1) != 0 ? h : t * n_head + h) * d;
            }
            w->step(p->k, op, d, S, x, y + (t * n_head + h) * d);
        }
    }
}

// src: k, v, r, first, decay. y = (S + first k v) r; S = decay S + k v. The rows of S are indexed by keys.
static void wkv6_step(
    const struct cpu_kernels *k, const struct ggml_tensor *op, int64_t d, float *S, const float *const *x, float *y) {
    (void) op;
    const float *key = x[0], *v = x[1], *r = x[2], *first = x[3], *decay = x[4];
    k->fill(d, y, 0.0f);
    for (int64_t i = 0; i < d; i++) {
        float *row = S + i * d;
        k->mad(d, y, row, r[i]);
        k->mad(d, y, v, r[i] * first[i] * key[i]);
        k->scale(d, row, row, decay[i], 0.0f);
        k->mad(d, row, v, key[i]);
    }
}

// src: k, v, q, gate. S = gate S + k v; y = scale S q. The rows of S are indexed by keys.
static void gla_step(
    const struct cpu_kernels *k, const struct ggml_tensor *op, int64_t d, float *S, const float *const *x, float *y) {
    const float *key = x[0], *v = x[1], *q = x[2], *gate = x[3];
    const float scale = param_f32(op, 0);
    k->fill(d, y, 0.0f);
    for (int64_t i = 0; i < d; i++) {
        float *row = S + i * d;
        k->scale(d, row, row, gate[i], 0.0f);
        k->mad(d, row, v, key[i]);
        k->mad(d, y, row, q[i] * scale);
    }
}

// src: r, w, k, v, a, b. S = w S + v k + (S a) b; y = S r. The rows of S are indexed by values.
static void wkv7_step(
    const struct cpu_kernels *k, const struct ggml_tensor *op, int64_t d, float *S, const float *const *x, float *y) {
    (void) op;
    const float *r = x[0], *w = x[1], *key = x[2], *v = x[3], *a = x[4], *b = x[5];
    const ggml_vec_dot_t dot = k->traits[GGML_TYPE_F32].vec_dot;
    for (int64_t i = 0; i < d; i++) {
        float *row = S + i * d;
        float sa;
        dot(cpu_dot_length(d), &sa, 0, row, 0, a, 0, 1);
        k->mul(d, row, row, w);
        k->mad(d, row, key, v[i]);
        k->mad(d, row, b, sa);
        dot(cpu_dot_length(d), &y[i], 0, row, 0, r, 0, 1);
    }
}

static const struct wkv wkv6 = {5, 1u << 3, wkv6_step}, wkv7 = {6, 0, wkv7_step}, gla = {4, 0, gla_step};

static bool wkv6_supports(const struct ggml_tensor *op) {
    return wkv_supports(op, &wkv6);
}
static bool wkv7_supports(const struct ggml_tensor *op) {
    return wkv_supports(op, &wkv7);
}
static bool gla_supports(const struct ggml_tensor *op) {
    return wkv_supports(op, &gla);
}
static void wkv6_run(const struct cpu_params *p, struct ggml_tensor *op) {
    wkv_run(p, op, &wkv6, op->src[0]);
}
static void wkv7_run(const struct cpu_params *p, struct ggml_tensor *op) {
    wkv_run(p, op, &wkv7, op->src[2]);
}
static void gla_run(const struct cpu_params *p, struct ggml_tensor *op) {
    wkv_run(p, op, &gla, op->src[0]);
}

// ---- the gated delta rule: S = exp(g) S; S += beta (v - S k) k; y = S q / sqrt(d). The rows of S are indexed by values. ----

// The product may overflow: without tokens the sources are empty, so nothing limits their other extents.
static bool is_state(const struct ggml_tensor *state, int64_t d, int64_t n_head, int64_t n_seq) {
    int64_t size;
    return !__builtin_mul_overflow(d, d, &size) && !__builtin_mul_overflow(size, n_head, &size) &&
           !__builtin_mul_overflow(size, n_seq, &size) && ggml_nelements(state) == size;
}

// q and k may have fewer heads and sequences than v; they are then repeated.
static bool delta_supports(const struct ggml_tensor *op) {
    if (!sources_f32(op, 6) || !ggml_is_contiguous(op)) {
        return false;
    }
    const struct ggml_tensor *v = op->src[2], *g = op->src[3], *beta = op->src[4], *state = op->src[5];
    const int64_t d = v->ne[0];
    for (int i = 0; i < 2; i++) {
        const struct ggml_tensor *x = op->src[i];
        if (x->nb[0] != sizeof(float) || x->ne[0] != d || x->ne[1] <= 0 || x->ne[2] != v->ne[2] || x->ne[3] <= 0 ||
            v->ne[1] % x->ne[1] != 0 || v->ne[3] % x->ne[3] != 0) {
            return false;
        }
    }
    int64_t n, n_values, n_result; // may overflow if sources are empty
    if (!berth_mul_i64_ok(v->ne[1], v->ne[2], &n) || !berth_mul_i64_ok(n, v->ne[3], &n) || !berth_mul_i64_ok(n, d, &n_values) ||
        !berth_mul_i64_ok(max_i64(param_i32(op, 0), 1), ggml_nelements(state), &n_result) ||
        !berth_add_i64_ok(n_result, n_values, &n_result) || d > INT32_MAX || ggml_nelements(op) < n_result) {
        return false;
    }
    return v->nb[0] == sizeof(float) && (g->ne[0] == 1 || g->ne[0] == d) && ggml_nelements(g) == n * g->ne[0] &&
           ggml_nelements(beta) == n && is_state(state, d, v->ne[1], v->ne[3]) && ggml_is_contiguous(g) &&
           ggml_is_contiguous(beta) && ggml_is_contiguous(state);
}

static size_t delta_work_size(const struct ggml_tensor *op, int n_tasks) {
    return cpu_scratch_size(op->src[2]->ne[0], n_tasks);
}

static void delta_token(const struct cpu_params *p, int64_t d, float *S, const float *decay, const float *q, const float *k,
    const float *v, float beta, float *y) {
    const ggml_vec_dot_t dot = p->k->traits[GGML_TYPE_F32].vec_dot;
    const float scale = 1.0f / sqrtf((float) d);
    for (int64_t i = 0; i < d; i++) {
        float *row = S + i * d;
        float retrieved;
        p->k->mul(d, row, row, decay);
        dot(cpu_dot_length(d), &retrieved, 0, row, 0, k, 0, 1);
        p->k->mad(d, row, k, (v[i] - retrieved) * beta);
        dot(cpu_dot_length(d), &y[i], 0, row, 0, q, 0, 1);
        y[i] *= scale;
    }
}

static const float *at_f32(const struct ggml_tensor *t, int64_t i1, int64_t i2, int64_t i3) {
    return (const float *) (const void *) cpu_row_at(t, i1, i2, i3);
}

// After the outputs, the result holds n_kept states: after the last token, after the second to last token, and so on. With fewer
// than n_kept tokens, the remaining states are not written.
static void delta_run(const struct cpu_params *p, struct ggml_tensor *op) {
    const struct ggml_tensor *q = op->src[0], *k = op->src[1], *v = op->src[2], *g = op->src[3], *beta = op->src[4];
    const int64_t d = v->ne[0], n_head = v->ne[1], n_token = v->ne[2], n_seq = v->ne[3];
    const int64_t n_kept = param_i32(op, 0), state_size = d * d * n_head * n_seq;
    const int64_t n_gate = g->ne[0];
    float *decay = cpu_scratch(p, d), *y = op->data, *states = y + d * n_head * n_token * n_seq;
    int64_t i, end;
    for (cpu_share(p, n_head * n_seq, &i, &end); i < end; i++) {
        const int64_t seq = i / n_head, h = i % n_head;
        float *S = states + i * d * d;
        memcpy(S, (const float *) op->src[5]->data + i * d * d, (size_t) (d * d) * sizeof *S);
        for (int64_t t = 0; t < n_token; t++) {
            const int64_t at = (seq * n_token + t) * n_head + h;
            const float *gate = (const float *) g->data + at * n_gate;
            if (n_gate == 1) {
                p->k->fill(d, decay, expf(gate[0]));
            } else {
                p->k->exp(d, decay, gate);
            }
            delta_token(p, d, S, decay, at_f32(q, h % q->ne[1], t, seq / (n_seq / q->ne[3])),
                at_f32(k, h % k->ne[1], t, seq / (n_seq / k->ne[3])), at_f32(v, h, t, seq), ((const float *) beta->data)[at],
                y + at * d);
            const int64_t slot = n_token - 1 - t;
            if (slot > 0 && slot < n_kept) {
                memcpy(S + slot * state_size, S, (size_t) (d * d) * sizeof *S);
            }
        }
    }
}

// empty_srcs: the sources that are empty if there are no tokens. The op then copies the state to the result.
const struct cpu_op_entry cpu_ops_recurrent[] = {
    // 0x17: all except src[3] (first), which does not depend on tokens
    {GGML_OP_RWKV_WKV6, {.supports = wkv6_supports, .run = wkv6_run, .uses = CPU_USE_MAD | CPU_USE_SCALE, .empty_srcs = 0x17}},
    {GGML_OP_RWKV_WKV7,
        {.supports = wkv7_supports, .run = wkv7_run, .uses = CPU_USE_DOT_F32 | CPU_USE_MUL | CPU_USE_MAD, .empty_srcs = 0x3f}},
    {GGML_OP_GATED_LINEAR_ATTN,
        {.supports = gla_supports, .run = gla_run, .uses = CPU_USE_MAD | CPU_USE_SCALE, .empty_srcs = 0xf}},
    {GGML_OP_GATED_DELTA_NET, {.supports = delta_supports,
                                  .work_size = delta_work_size,
                                  .run = delta_run,
                                  .uses = CPU_USE_DOT_F32 | CPU_USE_EXP | CPU_USE_MUL | CPU_USE_MAD,
                                  .empty_srcs = 0x1f}},
    CPU_OPS_END,
};
