// SPDX-License-Identifier: MIT
// ops.c: op constructors of the 2023 API that have other parameters in the current API or do not exist there. They build current
// ops.

#include "compat2023/compat2023.h"
#include "core/op.h"

#include <math.h>

// ---- the same op with other parameters ----

struct ggml_tensor *berth_2023_ggml_concat(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b) {
    return ggml_concat(ctx, a, b, 2);
}

struct ggml_tensor *berth_2023_ggml_leaky(struct ggml_context *ctx, struct ggml_tensor *a) {
    return ggml_leaky_relu(ctx, a, 0.1f, false);
}

#define GROUP_NORM_EPS 1e-6f // a constant in the 2023 API

struct ggml_tensor *berth_2023_ggml_group_norm(struct ggml_context *ctx, struct ggml_tensor *a, int n_groups) {
    return ggml_group_norm(ctx, a, n_groups, GROUP_NORM_EPS);
}

struct ggml_tensor *berth_2023_ggml_group_norm_inplace(struct ggml_context *ctx, struct ggml_tensor *a, int n_groups) {
    return ggml_group_norm_inplace(ctx, a, n_groups, GROUP_NORM_EPS);
}

// The factor b is a tensor, because its value may be set after the graph is built.
static struct ggml_tensor *scale_by(
    struct ggml_context *ctx, const char *func, struct ggml_tensor *a, struct ggml_tensor *b, bool inplace) {
    BERTH_SOURCES_AS(ctx, func, a, b);
    BERTH_REQUIRE_AS(ctx, func, ggml_is_scalar(b), "the factor is " BERTH_SHAPE ", must be one number", BERTH_NE(b));
    return inplace ? ggml_mul_inplace(ctx, a, b) : ggml_mul(ctx, a, b);
}

struct ggml_tensor *berth_2023_ggml_scale(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b) {
    return scale_by(ctx, "ggml_scale", a, b, false);
}

struct ggml_tensor *berth_2023_ggml_scale_inplace(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b) {
    return scale_by(ctx, "ggml_scale_inplace", a, b, true);
}

struct ggml_tensor *berth_2023_ggml_cpy_inplace(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b) {
    return ggml_cpy(ctx, a, b); // ggml_cpy returns a view of b
}

// In the 2023 API, the result had a's layout, contiguous or not, and a's memory.
struct ggml_tensor *berth_2023_ggml_cont_inplace(struct ggml_context *ctx, struct ggml_tensor *a) {
    BERTH_SOURCES_AS(ctx, "ggml_cont_inplace", a);
    return ggml_view_tensor(ctx, a);
}

struct ggml_tensor *berth_2023_ggml_soft_max_ext(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *mask, float scale) {
    return ggml_soft_max_ext(ctx, a, mask, scale, 0.0f);
}

struct ggml_tensor *berth_2023_ggml_soft_max_back(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b) {
    return ggml_soft_max_ext_back(ctx, a, b, 1.0f, 0.0f);
}

struct ggml_tensor *berth_2023_ggml_soft_max_back_inplace(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b) {
    return ggml_soft_max_ext_back_inplace(ctx, a, b, 1.0f, 0.0f);
}

struct ggml_tensor *berth_2023_ggml_im2col(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, int s0, int s1,
    int p0, int p1, int d0, int d1, bool is_2D) {
    return ggml_im2col(ctx, a, b, s0, s1, p0, p1, d0, d1, is_2D, GGML_TYPE_F16);
}

struct ggml_tensor *berth_2023_ggml_conv_depthwise_2d(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, int s0, int s1, int p0, int p1, int d0, int d1) {
    return ggml_conv_2d_dw(ctx, a, b, s0, s1, p0, p1, d0, d1);
}

struct ggml_tensor *berth_2023_ggml_upscale(struct ggml_context *ctx, struct ggml_tensor *a, int scale_factor) {
    return ggml_upscale(ctx, a, scale_factor, GGML_SCALE_MODE_NEAREST);
}

void berth_2023_ggml_set_param(struct ggml_context *ctx, struct ggml_tensor *tensor) {
    (void) ctx;
    ggml_set_param(tensor);
}

// ---- experts ----

// In the 2023 API, each expert is a separate tensor. Row t of ids holds the experts that are selected for token t. The op uses
// column `id` of each row. In the current API, one tensor holds all experts. So the graph concatenates the experts each time it
// runs.
struct ggml_tensor *berth_2023_ggml_mul_mat_id(
    struct ggml_context *ctx, struct ggml_tensor *const as[], int n_as, struct ggml_tensor *ids, int id, struct ggml_tensor *b) {
    static const char func[] = "ggml_mul_mat_id";
    BERTH_SOURCES_AS(ctx, func, ids, b);
    BERTH_REQUIRE_AS(ctx, func, as != NULL && n_as > 0, "%d experts, must be at least 1", n_as);
    BERTH_REQUIRE_AS(ctx, func, ids->type == GGML_TYPE_I32 && id >= 0 && id < ids->ne[0] && ids->ne[1] == b->ne[1],
        "ids are %s " BERTH_SHAPE ", must be i32 with more than %d ids per token and one row for each of %" PRId64 " tokens",
        ggml_type_name(ids->type), BERTH_NE(ids), id, b->ne[1]);
    BERTH_REQUIRE_AS(ctx, func, b->ne[2] == 1 && b->ne[3] == 1, "b is " BERTH_SHAPE ", must be a matrix", BERTH_NE(b));
    struct ggml_tensor *experts = as[0];
    for (int i = 1; i < n_as; i++) {
        experts = ggml_concat(ctx, experts, as[i], 2);
    }
    struct ggml_tensor *chosen = ggml_cont(ctx, ggml_view_2d(ctx, ids, 1, ids->ne[1], ids->nb[1], (size_t) id * ids->nb[0]));
    struct ggml_tensor *tokens = ggml_reshape_3d(ctx, ggml_is_contiguous(b) ? b : ggml_cont(ctx, b), b->ne[0], 1, b->ne[1]);
    struct ggml_tensor *result = ggml_mul_mat_id(ctx, experts, tokens, chosen);
    return result != NULL && !berth_poisoned(result) ? ggml_reshape_2d(ctx, result, result->ne[0], b->ne[1]) : result;
}

// ---- positions ----

#define ROPE_GLM 4 // a bit of mode that no current model uses

static struct ggml_tensor *rope_mode_check(struct ggml_context *ctx, const char *func, struct ggml_tensor *a, int mode) {
    BERTH_SOURCES_AS(ctx, func, a);
    BERTH_REQUIRE_AS(ctx, func, (mode & ~GGML_ROPE_TYPE_NEOX) == 0,
        "mode %d: only 0 (adjacent pairs) and 2 (NeoX) are supported, not 1 (n_past skipped) and %d (GLM)", mode, ROPE_GLM);
    return a;
}

struct ggml_tensor *berth_2023_ggml_rope(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, int n_dims, int mode, int n_ctx) {
    (void) n_ctx;
    return ggml_rope(ctx, rope_mode_check(ctx, "ggml_rope", a, mode), b, n_dims, mode);
}

struct ggml_tensor *berth_2023_ggml_rope_inplace(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, int n_dims, int mode, int n_ctx) {
    (void) n_ctx;
    return ggml_rope_inplace(ctx, rope_mode_check(ctx, "ggml_rope_inplace", a, mode), b, n_dims, mode);
}

struct ggml_tensor *berth_2023_ggml_rope_custom(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b,
    int n_dims, int mode, int n_ctx, int n_orig_ctx, float freq_base, float freq_scale, float ext_factor, float attn_factor,
    float beta_fast, float beta_slow) {
    (void) n_ctx;
    return ggml_rope_ext(ctx, rope_mode_check(ctx, "ggml_rope_custom", a, mode), b, NULL, n_dims, mode, n_orig_ctx, freq_base,
        freq_scale, ext_factor, attn_factor, beta_fast, beta_slow);
}

struct ggml_tensor *berth_2023_ggml_rope_custom_inplace(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b,
    int n_dims, int mode, int n_ctx, int n_orig_ctx, float freq_base, float freq_scale, float ext_factor, float attn_factor,
    float beta_fast, float beta_slow) {
    (void) n_ctx;
    return ggml_rope_ext_inplace(ctx, rope_mode_check(ctx, "ggml_rope_custom_inplace", a, mode), b, NULL, n_dims, mode,
        n_orig_ctx, freq_base, freq_scale, ext_factor, attn_factor, beta_fast, beta_slow);
}

struct ggml_tensor *berth_2023_ggml_rope_back(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, int n_dims,
    int mode, int n_ctx, int n_orig_ctx, float freq_base, float freq_scale, float ext_factor, float attn_factor, float beta_fast,
    float beta_slow, float xpos_base, bool xpos_down) {
    (void) n_ctx;
    (void) xpos_down;
    BERTH_SOURCES_AS(ctx, "ggml_rope_back", a, b);
    BERTH_REQUIRE_AS(ctx, "ggml_rope_back", xpos_base == 0.0f, "xpos_base %g: the backward pass of xPos is not implemented",
        (double) xpos_base);
    return ggml_rope_ext_back(ctx, rope_mode_check(ctx, "ggml_rope_back", a, mode), b, NULL, n_dims, mode, n_orig_ctx, freq_base,
        freq_scale, ext_factor, attn_factor, beta_fast, beta_slow);
}

// The graph computes the positions, because tensors of a no_alloc context have no memory yet.
static struct ggml_tensor *positions_from(struct ggml_context *ctx, const char *func, const struct ggml_tensor *a, int n_past) {
    BERTH_SOURCES_AS(ctx, func, a);
    BERTH_REQUIRE_AS(ctx, func, n_past >= 0 && n_past + a->ne[2] <= 1 << 24, "positions %d to %" PRId64 ", must be 0 to 2^24",
        n_past, n_past + a->ne[2]);
    return ggml_cast(ctx, ggml_arange(ctx, (float) n_past, (float) (n_past + a->ne[2]), 1.0f), GGML_TYPE_I32);
}

struct ggml_tensor *berth_2023_ggml_rope_past(
    struct ggml_context *ctx, struct ggml_tensor *a, int n_past, int n_dims, int mode, int n_ctx) {
    return berth_2023_ggml_rope(ctx, a, positions_from(ctx, "ggml_rope", a, n_past), n_dims, mode, n_ctx);
}

struct ggml_tensor *berth_2023_ggml_rope_past_inplace(
    struct ggml_context *ctx, struct ggml_tensor *a, int n_past, int n_dims, int mode, int n_ctx) {
    return berth_2023_ggml_rope_inplace(ctx, a, positions_from(ctx, "ggml_rope_inplace", a, n_past), n_dims, mode, n_ctx);
}

struct ggml_tensor *berth_2023_ggml_rope_custom_past(struct ggml_context *ctx, struct ggml_tensor *a, int n_past, int n_dims,
    int mode, int n_ctx, float freq_base, float freq_scale) {
    return berth_2023_ggml_rope_custom(ctx, a, positions_from(ctx, "ggml_rope_custom", a, n_past), n_dims, mode, n_ctx, 0,
        freq_base, freq_scale, 0.0f, 1.0f, 0.0f, 0.0f);
}

struct ggml_tensor *berth_2023_ggml_rope_custom_past_inplace(struct ggml_context *ctx, struct ggml_tensor *a, int n_past,
    int n_dims, int mode, int n_ctx, float freq_base, float freq_scale) {
    return berth_2023_ggml_rope_custom_inplace(ctx, a, positions_from(ctx, "ggml_rope_custom_inplace", a, n_past), n_dims, mode,
        n_ctx, 0, freq_base, freq_scale, 0.0f, 1.0f, 0.0f, 0.0f);
}

// xPos: after RoPE, the pair (i, i + 1) at position p is multiplied by ((i + 0.4 n) / (1.4 n))^(p / base). n is the number of
// elements of a row. If `down` is true, the pair is divided by this factor.
struct ggml_tensor *berth_2023_ggml_rope_xpos_inplace(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, int n_dims, float base, bool down) {
    static const char func[] = "ggml_rope_xpos_inplace";
    BERTH_SOURCES_AS(ctx, func, a, b);
    BERTH_REQUIRE_AS(ctx, func, base != 0.0f && a->ne[0] % 2 == 0 && a->ne[0] <= 1 << 24,
        "base %g must not be 0, rows of %" PRId64 " elements must be even and at most 2^24", (double) base, a->ne[0]);
    const float n = (float) a->ne[0];
    struct ggml_tensor *rotated = ggml_rope_inplace(ctx, a, b, n_dims, GGML_ROPE_TYPE_NORMAL);
    struct ggml_tensor *pairs = ggml_arange(ctx, 0.4f * n, 1.4f * n, 2.0f); // i + 0.4 n
    BERTH_SOURCES_AS(ctx, func, rotated, pairs);
    struct ggml_tensor *logs = ggml_log(ctx, ggml_scale(ctx, pairs, 1.0f / (1.4f * n)));
    logs = ggml_scale(ctx, logs, (down ? -1.0f : 1.0f) / base);
    logs = ggml_view_2d(ctx, logs, 1, a->ne[0] / 2, sizeof(float), 0);
    logs = ggml_reshape_2d(ctx, ggml_repeat_4d(ctx, logs, 2, a->ne[0] / 2, 1, 1), 1, a->ne[0]); // per element
    struct ggml_tensor *times = ggml_reshape_2d(ctx, ggml_cast(ctx, b, GGML_TYPE_F32), 1, b->ne[0]);
    struct ggml_tensor *zeta = ggml_exp(ctx, ggml_mul_mat(ctx, logs, times)); // [row, tokens]
    return ggml_mul_inplace(ctx, rotated, ggml_reshape_3d(ctx, zeta, a->ne[0], 1, b->ne[0]));
}

// Returns base^(first + step k) for k from 0 to n - 1.
static struct ggml_tensor *powers_of(struct ggml_context *ctx, double base, int first, int step, int n) {
    struct ggml_tensor *exponents = ggml_arange(ctx, (float) first, (float) (first + step * n), (float) step);
    return ggml_exp(ctx, ggml_scale(ctx, exponents, (float) log(base)));
}

// Adds slope(head) * column. Let m be the largest power of two that is at most n_head. Heads are counted from 0. Head h < m has
// the slope 2^(-bias_max (h + 1) / m). Head m + i has the slope 2^(-bias_max (2 i + 1) / (2 m)).
struct ggml_tensor *berth_2023_ggml_alibi(
    struct ggml_context *ctx, struct ggml_tensor *a, int n_past, int n_head, float bias_max) {
    static const char func[] = "ggml_alibi";
    (void) n_past;
    BERTH_SOURCES_AS(ctx, func, a);
    BERTH_REQUIRE_AS(ctx, func, n_head > 0 && n_head <= 1 << 16 && a->ne[2] == n_head && a->ne[0] <= 1 << 24,
        "%d heads (n_head), but a is " BERTH_SHAPE, n_head, BERTH_NE(a));
    int n_low = 1;
    while (2 * n_low <= n_head) {
        n_low *= 2;
    }
    struct ggml_tensor *slopes = powers_of(ctx, pow(2.0, -(double) bias_max / n_low), 1, 1, n_low);
    if (n_head > n_low) {
        struct ggml_tensor *more = powers_of(ctx, pow(2.0, -(double) bias_max / 2 / n_low), 1, 2, n_head - n_low);
        slopes = ggml_concat(ctx, slopes, more, 0);
    }
    struct ggml_tensor *columns = ggml_arange(ctx, 0.0f, (float) a->ne[0], 1.0f);
    columns = ggml_reshape_2d(ctx, columns, 1, a->ne[0]);
    slopes = ggml_reshape_2d(ctx, slopes, 1, n_head);
    struct ggml_tensor *bias = ggml_mul_mat(ctx, columns, slopes); // [columns, heads]
    return ggml_add_inplace(ctx, a, ggml_reshape_3d(ctx, bias, a->ne[0], 1, n_head));
}

// ---- fused ops of the 2023 API, built from unfused ops ----

// v is [n_kv, head size, n_head]: one row per element of a head.
struct ggml_tensor *berth_2023_ggml_flash_attn(
    struct ggml_context *ctx, struct ggml_tensor *q, struct ggml_tensor *k, struct ggml_tensor *v, bool masked) {
    BERTH_SOURCES_AS(ctx, "ggml_flash_attn", q, k, v);
    struct ggml_tensor *kq = ggml_scale(ctx, ggml_mul_mat(ctx, k, q), 1.0f / sqrtf((float) q->ne[0]));
    if (masked) {
        kq = ggml_diag_mask_inf(ctx, kq, (int) (k->ne[1] - q->ne[1]));
    }
    return ggml_mul_mat(ctx, v, ggml_soft_max(ctx, kq));
}

struct ggml_tensor *berth_2023_ggml_flash_ff(struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b0,
    struct ggml_tensor *b1, struct ggml_tensor *c0, struct ggml_tensor *c1) {
    struct ggml_tensor *hidden = ggml_gelu(ctx, ggml_add(ctx, ggml_mul_mat(ctx, b0, a), b1));
    return ggml_add(ctx, ggml_mul_mat(ctx, c0, hidden), c1);
}

// ---- functions of the caller ----

// The user data of the current custom op is the address of the caller's function.
typedef void (*any_function)(void);

static void *function_pack(any_function fun) {
    void *packed;
    _Static_assert(sizeof packed == sizeof fun, "a function pointer is as large as a data pointer");
    memcpy(&packed, &fun, sizeof packed);
    return packed;
}

static any_function function_unpack(void *packed) {
    any_function fun;
    memcpy(&fun, &packed, sizeof fun);
    return fun;
}

static char *row_at(const struct ggml_tensor *t, int64_t row) {
    const int64_t i1 = row % t->ne[1], i2 = row / t->ne[1] % t->ne[2], i3 = row / t->ne[1] / t->ne[2];
    return (char *) t->data + (size_t) i1 * t->nb[1] + (size_t) i2 * t->nb[2] + (size_t) i3 * t->nb[3];
}

static void unary_run(struct ggml_tensor *dst, const struct ggml_tensor *a, int ith, int nth, void *userdata) {
    const ggml_unary_op_f32_t fun = (ggml_unary_op_f32_t) function_unpack(userdata);
    for (int64_t row = ith; row < ggml_nrows(a); row += nth) {
        fun((int) a->ne[0], (float *) (void *) row_at(dst, row), (const float *) (void *) row_at(a, row));
    }
}

static void binary_run(
    struct ggml_tensor *dst, const struct ggml_tensor *a, const struct ggml_tensor *b, int ith, int nth, void *userdata) {
    const ggml_binary_op_f32_t fun = (ggml_binary_op_f32_t) function_unpack(userdata);
    for (int64_t row = ith; row < ggml_nrows(a); row += nth) {
        fun((int) a->ne[0], (float *) (void *) row_at(dst, row), (const float *) (void *) row_at(a, row),
            (const float *) (void *) row_at(b, row));
    }
}

static void custom1_run(struct ggml_tensor *dst, const struct ggml_tensor *a, int ith, int nth, void *userdata) {
    (void) nth;
    if (ith == 0) {
        ((ggml_custom1_op_f32_t) function_unpack(userdata))(dst, a);
    }
}

static void custom2_run(
    struct ggml_tensor *dst, const struct ggml_tensor *a, const struct ggml_tensor *b, int ith, int nth, void *userdata) {
    (void) nth;
    if (ith == 0) {
        ((ggml_custom2_op_f32_t) function_unpack(userdata))(dst, a, b);
    }
}

static void custom3_run(struct ggml_tensor *dst, const struct ggml_tensor *a, const struct ggml_tensor *b,
    const struct ggml_tensor *c, int ith, int nth, void *userdata) {
    (void) nth;
    if (ith == 0) {
        ((ggml_custom3_op_f32_t) function_unpack(userdata))(dst, a, b, c);
    }
}

// The caller's function requires contiguous f32 rows.
static struct ggml_tensor *rows_check(struct ggml_context *ctx, const char *func, struct ggml_tensor *a) {
    BERTH_SOURCES_AS(ctx, func, a);
    BERTH_REQUIRE_AS(ctx, func, a->type == GGML_TYPE_F32 && a->nb[0] == sizeof(float) && a->ne[0] <= INT32_MAX,
        "rows of %" PRId64 " elements of %s, stride %zu bytes, must be dense f32", a->ne[0], ggml_type_name(a->type), a->nb[0]);
    return a;
}

static struct ggml_tensor *binary_check(
    struct ggml_context *ctx, const char *func, struct ggml_tensor *a, struct ggml_tensor *b) {
    BERTH_SOURCES_AS(ctx, func, a, b);
    BERTH_REQUIRE_AS(ctx, func, ggml_are_same_shape(a, b), "a is " BERTH_SHAPE ", b is " BERTH_SHAPE, BERTH_NE(a), BERTH_NE(b));
    return rows_check(ctx, func, b);
}

struct ggml_tensor *berth_2023_ggml_map_unary_f32(struct ggml_context *ctx, struct ggml_tensor *a, ggml_unary_op_f32_t fun) {
    a = rows_check(ctx, "ggml_map_unary_f32", a);
    return ggml_map_custom1(ctx, a, unary_run, 1, function_pack((any_function) fun));
}

struct ggml_tensor *berth_2023_ggml_map_unary_inplace_f32(
    struct ggml_context *ctx, struct ggml_tensor *a, ggml_unary_op_f32_t fun) {
    a = rows_check(ctx, "ggml_map_unary_inplace_f32", a);
    return ggml_map_custom1_inplace(ctx, a, unary_run, 1, function_pack((any_function) fun));
}

struct ggml_tensor *berth_2023_ggml_map_binary_f32(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, ggml_binary_op_f32_t fun) {
    a = rows_check(ctx, "ggml_map_binary_f32", a);
    b = binary_check(ctx, "ggml_map_binary_f32", a, b);
    return ggml_map_custom2(ctx, a, b, binary_run, 1, function_pack((any_function) fun));
}

struct ggml_tensor *berth_2023_ggml_map_binary_inplace_f32(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, ggml_binary_op_f32_t fun) {
    a = rows_check(ctx, "ggml_map_binary_inplace_f32", a);
    b = binary_check(ctx, "ggml_map_binary_inplace_f32", a, b);
    return ggml_map_custom2_inplace(ctx, a, b, binary_run, 1, function_pack((any_function) fun));
}

struct ggml_tensor *berth_2023_ggml_map_custom1_f32(struct ggml_context *ctx, struct ggml_tensor *a, ggml_custom1_op_f32_t fun) {
    return ggml_map_custom1(ctx, a, custom1_run, 1, function_pack((any_function) fun));
}

struct ggml_tensor *berth_2023_ggml_map_custom1_inplace_f32(
    struct ggml_context *ctx, struct ggml_tensor *a, ggml_custom1_op_f32_t fun) {
    return ggml_map_custom1_inplace(ctx, a, custom1_run, 1, function_pack((any_function) fun));
}

struct ggml_tensor *berth_2023_ggml_map_custom2_f32(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, ggml_custom2_op_f32_t fun) {
    return ggml_map_custom2(ctx, a, b, custom2_run, 1, function_pack((any_function) fun));
}

struct ggml_tensor *berth_2023_ggml_map_custom2_inplace_f32(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, ggml_custom2_op_f32_t fun) {
    return ggml_map_custom2_inplace(ctx, a, b, custom2_run, 1, function_pack((any_function) fun));
}

struct ggml_tensor *berth_2023_ggml_map_custom3_f32(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, struct ggml_tensor *c, ggml_custom3_op_f32_t fun) {
    return ggml_map_custom3(ctx, a, b, c, custom3_run, 1, function_pack((any_function) fun));
}

struct ggml_tensor *berth_2023_ggml_map_custom3_inplace_f32(
    struct ggml_context *ctx, struct ggml_tensor *a, struct ggml_tensor *b, struct ggml_tensor *c, ggml_custom3_op_f32_t fun) {
    return ggml_map_custom3_inplace(ctx, a, b, c, custom3_run, 1, function_pack((any_function) fun));
}
