// SPDX-License-Identifier: MIT
// eltwise.c: ADD, SUB, MUL, DIV with broadcast, and the elementwise ops with one source. Types are f32, f16 and bf16 in any
// combination, with any strides. The first source of ADD may also be quantised. All ops compute in f32 on pieces of rows
// (rowio.h).

#include "base/min.h"
#include "cpu/optable.h"
#include "cpu/rowio.h"

#include <math.h>

// ---- two sources ----

static bool binary_supports(const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0], *b = op->src[1];
    return a != NULL && b != NULL && cpu_is_float(a->type) && cpu_is_float(b->type) && cpu_is_float(op->type) &&
           cpu_are_same_shape(a, op) && (cpu_are_same_shape(a, b) || ggml_can_repeat(b, a));
}

static bool add_supports(const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0], *b = op->src[1];
    if (a == NULL || b == NULL || cpu_is_float(a->type) || !ggml_is_quantized(a->type)) {
        return binary_supports(op);
    }
    const struct cpu_kernels *k = &cpu_kernels_portable;
    return k->to_float[a->type] != NULL && k->traits[op->type].from_float != NULL && b->type == GGML_TYPE_F32 &&
           (op->type == a->type || cpu_is_float(op->type)) && ggml_are_same_shape(a, op) && ggml_can_repeat(b, a);
}

// True if op and src[0] can be computed as one long row.
static bool is_flat(const struct ggml_tensor *op) {
    return cpu_is_f32_dense(op) && op->nb[1] == op->nb[0] * (size_t) op->ne[0] && op->nb[2] == op->nb[1] * (size_t) op->ne[1] &&
           op->nb[3] == op->nb[2] * (size_t) op->ne[2] && cpu_are_same_layout(op, op->src[0]);
}

static void binary_run_flat(const struct cpu_params *p, struct ggml_tensor *op, cpu_row2_t row2) {
    const int64_t line = 16; // no two tasks write the same cache line
    const int64_t n = op->ne[0] * op->ne[1] * op->ne[2] * op->ne[3];
    int64_t i0, i1;
    cpu_share(p, (n + line - 1) / line, &i0, &i1);
    i0 *= line;
    i1 = min_i64(i1 * line, n);
    if (i0 < i1) {
        row2(i1 - i0, (float *) op->data + i0, (const float *) op->src[0]->data + i0, (const float *) op->src[1]->data + i0);
    }
}

// True if each task can compute complete rows: all tensors are f32 with dense rows, b is not repeated within a row, and there are
// at least nth rows.
static bool binary_can_run_rows(const struct ggml_tensor *op, int nth) {
    const struct ggml_tensor *a = op->src[0], *b = op->src[1];
    return cpu_is_f32_dense(op) && cpu_is_f32_dense(a) && cpu_is_f32_dense(b) && b->ne[0] == op->ne[0] && ggml_nrows(op) >= nth;
}

static void binary_run_rows(const struct cpu_params *p, struct ggml_tensor *op, cpu_row2_t row2) {
    const struct ggml_tensor *a = op->src[0], *b = op->src[1];
    int64_t ir, end;
    cpu_share(p, ggml_nrows(op), &ir, &end);
    for (struct cpu_row_pos at = cpu_row_pos(op, ir); ir < end; ir++, cpu_row_step(op, &at)) {
        row2(op->ne[0], (float *) (void *) cpu_row(op, at), (const float *) (const void *) cpu_row(a, at),
            (const float *) (const void *) cpu_row_repeat(b, at));
    }
}

static void binary_run(const struct cpu_params *p, struct ggml_tensor *op, cpu_row2_t row2) {
    if (is_flat(op) && cpu_are_same_layout(op, op->src[1])) {
        binary_run_flat(p, op, row2);
        return;
    }
    if (binary_can_run_rows(op, p->nth)) {
        binary_run_rows(p, op, row2);
        return;
    }
    const struct ggml_tensor *a = op->src[0], *b = op->src[1];
    float buf_a[CPU_PIECE], buf_b[CPU_PIECE], buf_z[CPU_PIECE];
    for (struct cpu_pieces it = cpu_pieces(p, op); cpu_piece_next(&it);) {
        char *z = cpu_row(op, it.at);
        const float *x = cpu_row_load(p->k, a, cpu_row(a, it.at), it.i0, it.n, buf_a);
        const float *y = cpu_row_load_repeat(p->k, b, cpu_row_repeat(b, it.at), it.i0, it.n, buf_b);
        float *to = cpu_row_target(op, z, it.i0, buf_z);
        row2(it.n, to, x, y);
        cpu_row_store(p->k, op, z, it.i0, it.n, to);
    }
}

static void add_run(const struct cpu_params *p, struct ggml_tensor *op) {
    binary_run(p, op, p->k->add);
}
static void sub_run(const struct cpu_params *p, struct ggml_tensor *op) {
    binary_run(p, op, p->k->sub);
}
static void mul_run(const struct cpu_params *p, struct ggml_tensor *op) {
    binary_run(p, op, p->k->mul);
}
static void div_run(const struct cpu_params *p, struct ggml_tensor *op) {
    binary_run(p, op, p->k->div);
}

// ---- one source ----

typedef void (*map_t)(const struct cpu_kernels *k, const struct ggml_tensor *op, int64_t n, float *y, const float *x);

static bool map_supports(const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0];
    return a != NULL && cpu_is_float(a->type) && cpu_is_float(op->type) && cpu_are_same_shape(a, op);
}

static __attribute__((noinline)) void map_run_pieces(const struct cpu_params *p, struct ggml_tensor *op, map_t map) {
    const struct ggml_tensor *a = op->src[0];
    float buf_x[CPU_PIECE], buf_y[CPU_PIECE];
    for (struct cpu_pieces it = cpu_pieces(p, op); cpu_piece_next(&it);) {
        char *y = cpu_row(op, it.at);
        const float *x = cpu_row_load(p->k, a, cpu_row(a, it.at), it.i0, it.n, buf_x);
        float *to = cpu_row_target(op, y, it.i0, buf_y);
        map(p->k, op, it.n, to, x);
        cpu_row_store(p->k, op, y, it.i0, it.n, to);
    }
}

static void map_run(const struct cpu_params *p, struct ggml_tensor *op, map_t map) {
    if (p->nth == 1 && is_flat(op)) {
        map(p->k, op, op->ne[0] * op->ne[1] * op->ne[2] * op->ne[3], op->data, op->src[0]->data);
    } else {
        map_run_pieces(p, op, map);
    }
}

#define MAP(name, expr) \
    static void map_##name(const struct cpu_kernels *k, const struct ggml_tensor *op, int64_t n, float *y, const float *x) { \
        (void) k, (void) op; \
        for (int64_t i = 0; i < n; i++) { \
            const float v = x[i]; \
            y[i] = (expr); \
        } \
    }
#define MAP_KERNEL(name) \
    static void map_##name(const struct cpu_kernels *k, const struct ggml_tensor *op, int64_t n, float *y, const float *x) { \
        (void) op; \
        k->name(n, y, x); \
    }

static float clip_to_1(float v) {
    return fminf(1.0f, fmaxf(0.0f, v));
}

MAP(sqr, v *v)
MAP(sqrt, sqrtf(v))
MAP(log, logf(v))
MAP(sin, sinf(v))
MAP(cos, cosf(v))
MAP(abs, fabsf(v))
MAP(sgn, (float) ((v > 0.0f) - (v < 0.0f)))
MAP(neg, -v)
MAP(step, v > 0.0f ? 1.0f : 0.0f)
MAP(elu, v > 0.0f ? v : expm1f(v))
MAP(relu, v > 0.0f ? v : 0.0f)
MAP(hardswish, v *clip_to_1((v + 3.0f) / 6.0f))
MAP(hardsigmoid, clip_to_1((v + 3.0f) / 6.0f))
MAP(expm1, expm1f(v))
MAP(softplus, v > 20.0f ? v : logf(1.0f + expf(v)))
MAP(gelu_erf, 0.5f * v * (1.0f + erff(v * 0.70710678118654752440f)))
MAP(floor, floorf(v))
MAP(ceil, ceilf(v))
MAP(round, roundf(v))
MAP(trunc, truncf(v))
MAP_KERNEL(tanh)
MAP_KERNEL(sigmoid)
MAP_KERNEL(gelu)
MAP_KERNEL(gelu_quick)
MAP_KERNEL(silu)
MAP_KERNEL(exp)

static void map_xielu(const struct cpu_kernels *k, const struct ggml_tensor *op, int64_t n, float *y, const float *x) {
    (void) k;
    const float alpha_n = param_f32(op, 1), alpha_p = param_f32(op, 2), beta = param_f32(op, 3);
    const float eps = param_f32(op, 4);
    for (int64_t i = 0; i < n; i++) {
        const float v = x[i];
        y[i] = v > 0.0f ? alpha_p * v * v + beta * v : (expm1f(fminf(v, eps)) - v) * alpha_n + beta * v;
    }
}

static void map_scale(const struct cpu_kernels *k, const struct ggml_tensor *op, int64_t n, float *y, const float *x) {
    k->scale(n, y, x, param_f32(op, 0), param_f32(op, 1));
}

static void map_clamp(const struct cpu_kernels *k, const struct ggml_tensor *op, int64_t n, float *y, const float *x) {
    (void) k;
    const float lo = param_f32(op, 0), hi = param_f32(op, 1);
    for (int64_t i = 0; i < n; i++) {
        y[i] = fmaxf(fminf(x[i], hi), lo);
    }
}

// clang-format off
static const map_t unary_maps[GGML_UNARY_OP_COUNT] = {
    [GGML_UNARY_OP_ABS] = map_abs,
    [GGML_UNARY_OP_SGN] = map_sgn,
    [GGML_UNARY_OP_NEG] = map_neg,
    [GGML_UNARY_OP_STEP] = map_step,
    [GGML_UNARY_OP_TANH] = map_tanh,
    [GGML_UNARY_OP_ELU] = map_elu,
    [GGML_UNARY_OP_RELU] = map_relu,
    [GGML_UNARY_OP_SIGMOID] = map_sigmoid,
    [GGML_UNARY_OP_GELU] = map_gelu,
    [GGML_UNARY_OP_GELU_QUICK] = map_gelu_quick,
    [GGML_UNARY_OP_SILU] = map_silu,
    [GGML_UNARY_OP_HARDSWISH] = map_hardswish,
    [GGML_UNARY_OP_HARDSIGMOID] = map_hardsigmoid,
    [GGML_UNARY_OP_EXP] = map_exp,
    [GGML_UNARY_OP_EXPM1] = map_expm1,
    [GGML_UNARY_OP_SOFTPLUS] = map_softplus,
    [GGML_UNARY_OP_GELU_ERF] = map_gelu_erf,
    [GGML_UNARY_OP_XIELU] = map_xielu,
    [GGML_UNARY_OP_FLOOR] = map_floor,
    [GGML_UNARY_OP_CEIL] = map_ceil,
    [GGML_UNARY_OP_ROUND] = map_round,
    [GGML_UNARY_OP_TRUNC] = map_trunc,
};
// clang-format on

static map_t unary_map(const struct ggml_tensor *op) {
    const int32_t u = param_i32(op, 0);
    return u >= 0 && u < GGML_UNARY_OP_COUNT ? unary_maps[u] : NULL;
}

static bool unary_supports(const struct ggml_tensor *op) {
    return map_supports(op) && unary_map(op) != NULL;
}

static unsigned unary_uses(const struct ggml_tensor *op) {
    switch ((enum ggml_unary_op) param_i32(op, 0)) {
        case GGML_UNARY_OP_TANH: return CPU_USE_TANH;
        case GGML_UNARY_OP_SIGMOID: return CPU_USE_SIGMOID;
        case GGML_UNARY_OP_GELU: return CPU_USE_GELU;
        case GGML_UNARY_OP_GELU_QUICK: return CPU_USE_GELU_QUICK;
        case GGML_UNARY_OP_SILU: return CPU_USE_SILU;
        case GGML_UNARY_OP_EXP: return CPU_USE_EXP;
        default: return 0;
    }
}

static void unary_run(const struct cpu_params *p, struct ggml_tensor *op) {
    map_run(p, op, unary_map(op));
}

#define MAP_RUN(name) \
    static void name##_run(const struct cpu_params *p, struct ggml_tensor *op) { \
        map_run(p, op, map_##name); \
    }
MAP_RUN(sqr)
MAP_RUN(sqrt)
MAP_RUN(log)
MAP_RUN(sin)
MAP_RUN(cos)
MAP_RUN(scale)
MAP_RUN(clamp)

// uses, uses_by: the kernels that the op calls (enum cpu_use).
const struct cpu_op_entry cpu_ops_eltwise[] = {
    {GGML_OP_ADD, {.supports = add_supports, .run = add_run, .uses = CPU_USE_ADD | CPU_USE_CONVERT}},
    {GGML_OP_SUB, {.supports = binary_supports, .run = sub_run, .uses = CPU_USE_SUB | CPU_USE_CONVERT}},
    {GGML_OP_MUL, {.supports = binary_supports, .run = mul_run, .uses = CPU_USE_MUL | CPU_USE_CONVERT}},
    {GGML_OP_DIV, {.supports = binary_supports, .run = div_run, .uses = CPU_USE_DIV | CPU_USE_CONVERT}},
    {GGML_OP_SQR, {.supports = map_supports, .run = sqr_run, .uses = CPU_USE_CONVERT}},
    {GGML_OP_SQRT, {.supports = map_supports, .run = sqrt_run, .uses = CPU_USE_CONVERT}},
    {GGML_OP_LOG, {.supports = map_supports, .run = log_run, .uses = CPU_USE_CONVERT}},
    {GGML_OP_SIN, {.supports = map_supports, .run = sin_run, .uses = CPU_USE_CONVERT}},
    {GGML_OP_COS, {.supports = map_supports, .run = cos_run, .uses = CPU_USE_CONVERT}},
    {GGML_OP_SCALE, {.supports = map_supports, .run = scale_run, .uses = CPU_USE_SCALE | CPU_USE_CONVERT}},
    {GGML_OP_CLAMP, {.supports = map_supports, .run = clamp_run, .uses = CPU_USE_CONVERT}},
    {GGML_OP_UNARY, {.supports = unary_supports, .run = unary_run, .uses = CPU_USE_CONVERT, .uses_by = unary_uses}},
    CPU_OPS_END,
};
