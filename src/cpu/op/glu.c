// SPDX-License-Identifier: MIT
// glu.c: GLU: y = act(x) * g (arXiv 2002.05202). x and g are two tensors, or the two halves of each row of one tensor. Types are
// f32, f16 and bf16; pieces of rows are computed in f32.

#include "base/min.h"
#include "cpu/optable.h"
#include "cpu/rowio.h"

#include <math.h>

// y[i] = act(x[i]) * g[i]; y may be x, but not g.
typedef void (*gate_t)(
    const struct cpu_kernels *k, const struct ggml_tensor *op, int64_t n, float *y, const float *x, const float *g);

static void gate_relu(
    const struct cpu_kernels *k, const struct ggml_tensor *op, int64_t n, float *y, const float *x, const float *g) {
    (void) k, (void) op;
    for (int64_t i = 0; i < n; i++) {
        y[i] = x[i] > 0.0f ? x[i] * g[i] : 0.0f;
    }
}

static void gate_gelu_erf(
    const struct cpu_kernels *k, const struct ggml_tensor *op, int64_t n, float *y, const float *x, const float *g) {
    (void) k, (void) op;
    for (int64_t i = 0; i < n; i++) {
        y[i] = 0.5f * x[i] * (1.0f + erff(x[i] * 0.70710678118654752440f)) * g[i];
    }
}

static float limit_both(float x, float limit) {
    if (x < -limit) {
        return -limit;
    }
    return min_f32(limit, x); // NaN stays NaN
}

// SWIGLU_OAI: x is limited from above, g from both sides, and 1 is added to g.
static void gate_oai(
    const struct cpu_kernels *k, const struct ggml_tensor *op, int64_t n, float *y, const float *x, const float *g) {
    (void) k;
    const float alpha = param_f32(op, 2), limit = param_f32(op, 3);
    for (int64_t i = 0; i < n; i++) {
        const float v = min_f32(limit, x[i]); // NaN stays NaN
        y[i] = v / (1.0f + expf(alpha * -v)) * (limit_both(g[i], limit) + 1.0f);
    }
}

// As gate_oai, without the addition of 1, and with alpha = 1.
static void gate_clamp(
    const struct cpu_kernels *k, const struct ggml_tensor *op, int64_t n, float *y, const float *x, const float *g) {
    (void) k;
    const float limit = param_f32(op, 3);
    for (int64_t i = 0; i < n; i++) {
        const float v = min_f32(limit, x[i]);
        y[i] = v / (1.0f + expf(-v)) * limit_both(g[i], limit);
    }
}

static void gate_silu(
    const struct cpu_kernels *k, const struct ggml_tensor *op, int64_t n, float *y, const float *x, const float *g) {
    (void) op;
    k->silu_mul(n, y, x, g);
}

// Rounds argument and result to f16, as ggml's tables do. n <= CPU_PIECE.
static void act_rounded_f16(const struct cpu_kernels *k, cpu_row1_t act, int64_t n, float *y, const float *x) {
    uint16_t f16[CPU_PIECE];
    k->traits[GGML_TYPE_F16].from_float(x, f16, n);
    k->to_float[GGML_TYPE_F16](f16, y, n);
    act(n, y, y);
    k->traits[GGML_TYPE_F16].from_float(y, f16, n);
    k->to_float[GGML_TYPE_F16](f16, y, n);
}

static void gate_gelu(
    const struct cpu_kernels *k, const struct ggml_tensor *op, int64_t n, float *y, const float *x, const float *g) {
    float act[CPU_PIECE];
    act_rounded_f16(k, k->gelu, n, act, x);
    // For f16, ggml reads its table at every value. At -infinity, the table holds NaN.
    if (op->src[0]->type == GGML_TYPE_F16) {
        for (int64_t i = 0; i < n; i++) {
            y[i] = (x[i] == -INFINITY ? NAN : act[i]) * g[i];
        }
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        // For other types, ggml reads its table only if |x| < 10.
        const float v = x[i] >= 10.0f ? x[i] : act[i];
        y[i] = x[i] <= -10.0f ? 0.0f : v * g[i];
    }
}

static void gate_gelu_quick(
    const struct cpu_kernels *k, const struct ggml_tensor *op, int64_t n, float *y, const float *x, const float *g) {
    (void) op;
    act_rounded_f16(k, k->gelu_quick, n, y, x);
    k->mul(n, y, y, g);
}

// clang-format off
static const gate_t gates[GGML_GLU_OP_COUNT] = {
    [GGML_GLU_OP_REGLU] = gate_relu,
    [GGML_GLU_OP_GEGLU] = gate_gelu,
    [GGML_GLU_OP_SWIGLU] = gate_silu,
    [GGML_GLU_OP_SWIGLU_OAI] = gate_oai,
    [GGML_GLU_OP_GEGLU_ERF] = gate_gelu_erf,
    [GGML_GLU_OP_GEGLU_QUICK] = gate_gelu_quick,
    [GGML_GLU_OP_SWIGLU_CLAMP] = gate_clamp,
};
// clang-format on

static gate_t gate_of(const struct ggml_tensor *op) {
    const int32_t i = param_i32(op, 0);
    return i >= 0 && i < GGML_GLU_OP_COUNT ? gates[i] : NULL;
}

static bool glu_supports(const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0], *b = op->src[1];
    if (a == NULL || gate_of(op) == NULL || !cpu_is_float(a->type) || !cpu_is_float(op->type)) {
        return false;
    }
    if (b != NULL && (!cpu_is_float(b->type) || !ggml_are_same_shape(a, b))) {
        return false;
    }
    return op->ne[0] == (b != NULL ? a->ne[0] : a->ne[0] / 2) && op->ne[1] == a->ne[1] && op->ne[2] == a->ne[2] &&
           op->ne[3] == a->ne[3];
}

static unsigned glu_uses(const struct ggml_tensor *op) {
    switch ((enum ggml_glu_op) param_i32(op, 0)) {
        case GGML_GLU_OP_GEGLU: return CPU_USE_GELU;
        case GGML_GLU_OP_SWIGLU: return CPU_USE_SILU | CPU_USE_MUL;
        case GGML_GLU_OP_GEGLU_QUICK: return CPU_USE_GELU_QUICK | CPU_USE_MUL;
        default: return 0;
    }
}

static void glu_run(const struct cpu_params *p, struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0], *b = op->src[1] != NULL ? op->src[1] : a;
    const gate_t gate = gate_of(op);
    const int64_t half = op->src[1] != NULL ? 0 : op->ne[0];
    const bool swapped = half > 0 && param_i32(op, 1) != 0;
    const int64_t x0 = swapped ? half : 0, g0 = swapped ? 0 : half; // first element of each operand
    float buf_x[CPU_PIECE], buf_g[CPU_PIECE], buf_y[CPU_PIECE];
    for (struct cpu_pieces it = cpu_pieces(p, op); cpu_piece_next(&it);) {
        char *row = cpu_row(op, it.at);
        const float *x = cpu_row_load(p->k, a, cpu_row(a, it.at), x0 + it.i0, it.n, buf_x);
        const float *g = cpu_row_load(p->k, b, cpu_row(b, it.at), g0 + it.i0, it.n, buf_g);
        float *y = cpu_row_target(op, row, it.i0, buf_y);
        gate(p->k, op, it.n, y, x, g);
        cpu_row_store(p->k, op, row, it.i0, it.n, y);
    }
}

const struct cpu_op_entry cpu_ops_glu[] = {
    {GGML_OP_GLU, {.supports = glu_supports, .run = glu_run, .uses = CPU_USE_CONVERT, .uses_by = glu_uses}},
    CPU_OPS_END,
};
