// SPDX-License-Identifier: MIT
// op_samples.c: one builder an op. Rows are 256 long, a whole number of blocks of every format.

#include "cli/op_samples.h"

#include <stddef.h>

#define F32 GGML_TYPE_F32
#define I32 GGML_TYPE_I32
#define N 256

// The arguments of every builder; most use a part of them.
#define ARGS struct ggml_context *c, enum ggml_type a, enum ggml_type b, int sub
#define UNUSED (void) c, (void) a, (void) b, (void) sub

static struct ggml_tensor *shaped(struct ggml_context *c, enum ggml_type t, int64_t n0, int64_t n1, int64_t n2, int64_t n3) {
    return ggml_new_tensor_4d(c, t, n0, n1, n2, n3);
}
static struct ggml_tensor *rows(struct ggml_context *c, enum ggml_type t) {
    return shaped(c, t, N, 4, 1, 1);
}

#define SAMPLE(name, expr) \
    static struct ggml_tensor *make_##name(ARGS) { \
        UNUSED; \
        return (expr); \
    }
// A function of one tensor; A of one tensor and some numbers; of two tensors
#define ONE(name) SAMPLE(name, ggml_##name(c, rows(c, a)))
#define ONE_WITH(name, ...) SAMPLE(name, ggml_##name(c, rows(c, a), __VA_ARGS__))
#define TWO(name) SAMPLE(name, ggml_##name(c, rows(c, a), rows(c, b)))
#define TWICE(name) SAMPLE(name, ggml_##name(c, rows(c, a), rows(c, a)))

ONE(dup)
TWO(add)
SAMPLE(add_id, ggml_add_id(c, shaped(c, a, N, 2, 4, 1), rows(c, b), shaped(c, I32, 2, 4, 1, 1)))
SAMPLE(add1, ggml_add1(c, rows(c, a), shaped(c, b, 1, 1, 1, 1)))
SAMPLE(acc, ggml_acc(c, rows(c, a), rows(c, a), ggml_row_size(a, N), ggml_row_size(a, N) * 4, ggml_row_size(a, N) * 4, 0))
TWO(sub)
TWO(mul)
TWO(div)
ONE(sqr)
ONE(sqrt)
ONE(log)
ONE(sin)
ONE(cos)
ONE(sum)
ONE(sum_rows)
ONE(cumsum)
ONE(mean)
ONE(argmax)
TWICE(count_equal)
SAMPLE(repeat, ggml_repeat(c, rows(c, a), shaped(c, a, N, 8, 1, 1)))
SAMPLE(repeat_back, ggml_repeat_back(c, shaped(c, a, N, 8, 1, 1), rows(c, a)))
SAMPLE(concat, ggml_concat(c, rows(c, a), rows(c, a), 1))
TWICE(silu_back)
ONE_WITH(norm, 1e-5f)
ONE_WITH(rms_norm, 1e-5f)
SAMPLE(rms_norm_back, ggml_rms_norm_back(c, rows(c, a), rows(c, a), 1e-5f))
SAMPLE(group_norm, ggml_group_norm(c, shaped(c, a, N, 1, 4, 1), 2, 1e-5f))
ONE_WITH(l2_norm, 1e-5f)
TWO(mul_mat)
SAMPLE(mul_mat_id, ggml_mul_mat_id(c, shaped(c, a, N, 4, 4, 1), shaped(c, b, N, 2, 4, 1), shaped(c, I32, 2, 4, 1, 1)))
TWO(out_prod)
ONE_WITH(scale, 2.0f)
SAMPLE(set, ggml_set(c, rows(c, a), rows(c, a), ggml_row_size(a, N), ggml_row_size(a, N) * 4, ggml_row_size(a, N) * 4, 0))
SAMPLE(cpy, ggml_cpy(c, rows(c, a), rows(c, b)))
ONE(cont)
ONE_WITH(reshape_2d, N, 4)
ONE_WITH(view_1d, N, 0)
ONE_WITH(permute, 0, 2, 1, 3)
ONE(transpose)
SAMPLE(get_rows, ggml_get_rows(c, rows(c, a), shaped(c, I32, 4, 1, 1, 1)))
SAMPLE(get_rows_back, ggml_get_rows_back(c, rows(c, a), shaped(c, I32, 4, 1, 1, 1), rows(c, F32)))
SAMPLE(set_rows, ggml_set_rows(c, rows(c, b), rows(c, a), shaped(c, GGML_TYPE_I64, 4, 1, 1, 1)))
SAMPLE(diag, ggml_diag(c, shaped(c, a, N, 1, 1, 1)))
ONE_WITH(diag_mask_inf, 0)
ONE_WITH(diag_mask_zero, 0)
SAMPLE(soft_max, ggml_soft_max_ext(c, rows(c, a), rows(c, b), 1.0f, 0.0f))
SAMPLE(soft_max_back, ggml_soft_max_ext_back(c, rows(c, a), rows(c, a), 1.0f, 0.0f))
SAMPLE(rope, ggml_rope(c, shaped(c, a, N, 2, 4, 1), shaped(c, I32, 4, 1, 1, 1), N, 0))
SAMPLE(rope_back, ggml_rope_ext_back(c, shaped(c, a, N, 2, 4, 1), shaped(c, I32, 4, 1, 1, 1), NULL, N, 0, 0, 10000.0f, 1.0f, 0.0f,
                      1.0f, 32.0f, 1.0f))
ONE_WITH(clamp, 0.0f, 1.0f)
SAMPLE(conv_transpose_1d, ggml_conv_transpose_1d(c, shaped(c, a, N, 4, 2, 1), shaped(c, b, N, 2, 1, 1), 1, 0, 1))
SAMPLE(im2col, ggml_im2col(c, shaped(c, F32, 3, 3, 2, 4), shaped(c, a, N, 8, 2, 1), 1, 1, 0, 0, 1, 1, true, b))
static struct ggml_tensor *make_im2col_back(ARGS) {
    UNUSED;
    int64_t ne[4] = {N, 8, 2, 1};
    return ggml_im2col_back(c, shaped(c, a, 3 * 3 * 2, N - 2, 6, 1), shaped(c, F32, 3, 3, 2, 4), ne, 1, 1, 0, 0, 1, 1, true);
}
SAMPLE(im2col_3d, ggml_im2col_3d(c, shaped(c, F32, 3, 3, 3, 8), shaped(c, a, N, 8, 8, 2), 2, 1, 1, 1, 0, 0, 0, 1, 1, 1, b))
SAMPLE(col2im_1d, ggml_col2im_1d(c, shaped(c, a, N, 4, 1, 1), 1, 64, 0))
SAMPLE(conv_2d, ggml_conv_2d_direct(c, shaped(c, a, N, 3, 2, 4), shaped(c, b, N, 8, 2, 1), 1, 1, 0, 0, 1, 1))
SAMPLE(conv_3d, ggml_conv_3d_direct(c, shaped(c, a, N, 3, 3, 8), shaped(c, b, N, 8, 8, 2), 1, 1, 1, 0, 0, 0, 1, 1, 1, 2, 1, 4))
SAMPLE(conv_2d_dw, ggml_conv_2d_dw_direct(c, shaped(c, a, N, 3, 1, 2), shaped(c, b, N, 8, 2, 1), 1, 1, 0, 0, 1, 1))
SAMPLE(conv_transpose_2d, ggml_conv_transpose_2d_p0(c, shaped(c, a, N, 2, 4, 2), shaped(c, b, N, 8, 2, 1), 1))
ONE_WITH(pool_1d, GGML_OP_POOL_MAX, 2, 2, 0)
ONE_WITH(pool_2d, GGML_OP_POOL_MAX, 2, 2, 2, 2, 0.0f, 0.0f)
SAMPLE(pool_2d_back, ggml_pool_2d_back(c, shaped(c, F32, N / 2, 2, 1, 1), rows(c, a), GGML_OP_POOL_MAX, 2, 2, 2, 2, 0.0f, 0.0f))
ONE_WITH(upscale, 2, GGML_SCALE_MODE_NEAREST)
ONE_WITH(pad, 0, 1, 0, 0)
ONE_WITH(pad_reflect_1d, 1, 1)
ONE_WITH(roll, 1, 0, 0, 0)
SAMPLE(arange, a == F32 ? ggml_arange(c, 0.0f, 8.0f, 1.0f) : NULL)
SAMPLE(timestep_embedding, ggml_timestep_embedding(c, shaped(c, a, N, 1, 1, 1), 32, 10000))
ONE_WITH(argsort, GGML_SORT_ORDER_ASC)
ONE_WITH(top_k, 2)
ONE_WITH(leaky_relu, 0.1f, false)
SAMPLE(tri, ggml_tri(c, shaped(c, a, N, N, 1, 1), GGML_TRI_TYPE_LOWER))
ONE_WITH(fill, 1.0f)
SAMPLE(flash_attn_ext, ggml_flash_attn_ext(c, shaped(c, F32, N, 4, 2, 1), shaped(c, a, N, 8, 2, 1), shaped(c, b, N, 8, 2, 1),
                           shaped(c, GGML_TYPE_F16, 8, 4, 1, 1), 1.0f, 0.0f, 0.0f))
SAMPLE(flash_attn_back, ggml_flash_attn_back(c, rows(c, F32), rows(c, a), rows(c, a), rows(c, F32), false))
SAMPLE(ssm_conv, ggml_ssm_conv(c, shaped(c, a, N, 8, 1, 1), shaped(c, a, 4, 8, 1, 1)))
SAMPLE(
    ssm_scan, ggml_ssm_scan(c, shaped(c, a, 16, N, 2, 1), shaped(c, a, N, 2, 4, 1), shaped(c, a, 2, 4, 1, 1),
                  shaped(c, a, 16, 2, 1, 1), shaped(c, a, 16, 1, 4, 1), shaped(c, a, 16, 1, 4, 1), shaped(c, I32, 1, 1, 1, 1), 1))
SAMPLE(win_part, ggml_win_part(c, shaped(c, a, N, 4, 4, 1), 2))
SAMPLE(win_unpart, ggml_win_unpart(c, shaped(c, a, N, 2, 2, 4), 4, 4, 2))
SAMPLE(get_rel_pos, ggml_get_rel_pos(c, shaped(c, a, N, 7, 1, 1), 4, 4))
SAMPLE(add_rel_pos, ggml_add_rel_pos(c, shaped(c, a, 16, 8, 1, 1), shaped(c, F32, 4, 4, 2, 1), shaped(c, F32, 4, 4, 2, 1)))

// Recurrent ones: heads of 64, 2 of them, 4 tokens, 1 sequence.
#define HEADS(t) shaped(c, t, 64, 2, 4, 1)
#define STATE(t) shaped(c, t, 64 * 64 * 2, 1, 1, 1)
SAMPLE(rwkv_wkv6, ggml_rwkv_wkv6(c, HEADS(a), HEADS(a), HEADS(a), shaped(c, a, 64, 2, 1, 1), HEADS(a), STATE(a)))
SAMPLE(gated_linear_attn, ggml_gated_linear_attn(c, HEADS(a), HEADS(a), HEADS(a), HEADS(a), STATE(a), 1.0f))
SAMPLE(rwkv_wkv7, ggml_rwkv_wkv7(c, HEADS(a), HEADS(a), HEADS(a), HEADS(a), HEADS(a), HEADS(a), STATE(a)))
SAMPLE(solve_tri, ggml_solve_tri(c, shaped(c, a, N, N, 1, 1), shaped(c, a, 4, N, 1, 1), true, true, false))
SAMPLE(gated_delta_net, ggml_gated_delta_net(c, HEADS(a), HEADS(a), HEADS(a), shaped(c, a, 1, 2, 4, 1), shaped(c, a, 1, 2, 4, 1),
                            shaped(c, a, 64, 64, 2, 1), 1))
SAMPLE(lightning_indexer, ggml_lightning_indexer(c, shaped(c, F32, N, 2, 4, 1), shaped(c, a, N, 1, 8, 1),
                              shaped(c, F32, 2, 4, 1, 1), shaped(c, GGML_TYPE_F16, 8, 4, 1, 1)))
SAMPLE(
    dsv4_hc_comb, ggml_dsv4_hc_comb(c, shaped(c, a, 24, 4, 1, 1), shaped(c, a, 3, 1, 1, 1), shaped(c, a, 24, 1, 1, 1), 1e-6f, 2))
SAMPLE(dsv4_hc_pre, ggml_dsv4_hc_pre(c, shaped(c, a, N, 4, 2, 1), shaped(c, a, 4, 2, 1, 1)))
SAMPLE(dsv4_hc_post,
    ggml_dsv4_hc_post(c, shaped(c, a, N, 2, 1, 1), shaped(c, a, N, 4, 2, 1), shaped(c, a, 4, 2, 1, 1), shaped(c, a, 4, 4, 2, 1)))

static struct ggml_tensor *make_unary(ARGS) {
    UNUSED;
    return sub == GGML_UNARY_OP_XIELU ? ggml_xielu(c, rows(c, a), 0.8f, 0.8f, 0.5f, -1e-6f)
                                      : ggml_unary(c, rows(c, a), (enum ggml_unary_op) sub);
}
SAMPLE(glu, sub == GGML_GLU_OP_SWIGLU_OAI     ? ggml_swiglu_oai(c, rows(c, a), rows(c, a), 1.7f, 7.0f)
            : sub == GGML_GLU_OP_SWIGLU_CLAMP ? ggml_swiglu_clamp(c, rows(c, a), rows(c, a), 7.0f)
                                              : ggml_glu_split(c, rows(c, a), rows(c, a), (enum ggml_glu_op) sub))

static void custom1(struct ggml_tensor *dst, const struct ggml_tensor *x, int ith, int nth, void *data) {
    (void) dst, (void) x, (void) ith, (void) nth, (void) data;
}
static void custom2(
    struct ggml_tensor *dst, const struct ggml_tensor *x, const struct ggml_tensor *y, int ith, int nth, void *data) {
    (void) y;
    custom1(dst, x, ith, nth, data);
}
static void custom3(struct ggml_tensor *dst, const struct ggml_tensor *x, const struct ggml_tensor *y,
    const struct ggml_tensor *z, int ith, int nth, void *data) {
    (void) y, (void) z;
    custom1(dst, x, ith, nth, data);
}
static void custom(struct ggml_tensor *dst, int ith, int nth, void *data) {
    custom1(dst, NULL, ith, nth, data);
}
SAMPLE(map_custom1, ggml_map_custom1(c, rows(c, a), custom1, 1, NULL))
SAMPLE(map_custom2, ggml_map_custom2(c, rows(c, a), rows(c, a), custom2, 1, NULL))
SAMPLE(map_custom3, ggml_map_custom3(c, rows(c, a), rows(c, a), rows(c, a), custom3, 1, NULL))
static struct ggml_tensor *make_custom(ARGS) {
    UNUSED;
    struct ggml_tensor *source = rows(c, a);
    return ggml_custom_4d(c, a, N, 4, 1, 1, &source, 1, custom, 1, NULL);
}
TWICE(cross_entropy_loss)
SAMPLE(cross_entropy_loss_back, ggml_cross_entropy_loss_back(c, shaped(c, a, 1, 1, 1, 1), rows(c, a), rows(c, a)))

// The weights of a step are parameters of a model.
static struct ggml_tensor *parameter(struct ggml_context *c, enum ggml_type type) {
    struct ggml_tensor *t = rows(c, type);
    ggml_set_param(t);
    return t;
}
SAMPLE(opt_step_adamw, ggml_opt_step_adamw(c, parameter(c, a), rows(c, a), rows(c, a), rows(c, a), shaped(c, F32, 7, 1, 1, 1)))
SAMPLE(opt_step_sgd, ggml_opt_step_sgd(c, parameter(c, a), rows(c, a), shaped(c, F32, 2, 1, 1, 1)))

#define ROW(OP, name) \
    { GGML_OP_##OP, NULL, make_##name }
#define ROW2(OP, name, relation) \
    { GGML_OP_##OP, relation, make_##name }
// clang-format off
static const struct cli_op_sample samples[] = {
    ROW(DUP, dup), ROW2(ADD, add, "+"), ROW2(ADD_ID, add_id, "+"), ROW2(ADD1, add1, "+"), ROW(ACC, acc), ROW2(SUB, sub, "-"),
    ROW2(MUL, mul, "x"), ROW2(DIV, div, "/"), ROW(SQR, sqr), ROW(SQRT, sqrt), ROW(LOG, log), ROW(SIN, sin), ROW(COS, cos),
    ROW(SUM, sum), ROW(SUM_ROWS, sum_rows), ROW(CUMSUM, cumsum), ROW(MEAN, mean), ROW(ARGMAX, argmax),
    ROW(COUNT_EQUAL, count_equal), ROW(REPEAT, repeat), ROW(REPEAT_BACK, repeat_back), ROW(CONCAT, concat),
    ROW(SILU_BACK, silu_back), ROW(NORM, norm), ROW(RMS_NORM, rms_norm), ROW(RMS_NORM_BACK, rms_norm_back),
    ROW(GROUP_NORM, group_norm), ROW(L2_NORM, l2_norm), ROW2(MUL_MAT, mul_mat, "x"), ROW2(MUL_MAT_ID, mul_mat_id, "x"),
    ROW2(OUT_PROD, out_prod, "x"), ROW(SCALE, scale), ROW(SET, set), ROW2(CPY, cpy, "to"), ROW(CONT, cont),
    ROW(RESHAPE, reshape_2d), ROW(VIEW, view_1d), ROW(PERMUTE, permute), ROW(TRANSPOSE, transpose), ROW(GET_ROWS, get_rows),
    ROW(GET_ROWS_BACK, get_rows_back), ROW2(SET_ROWS, set_rows, "to"), ROW(DIAG, diag), ROW(DIAG_MASK_INF, diag_mask_inf),
    ROW(DIAG_MASK_ZERO, diag_mask_zero), ROW2(SOFT_MAX, soft_max, "with mask"), ROW(SOFT_MAX_BACK, soft_max_back),
    ROW(ROPE, rope), ROW(ROPE_BACK, rope_back), ROW(CLAMP, clamp), ROW2(CONV_TRANSPOSE_1D, conv_transpose_1d, "on"),
    ROW2(IM2COL, im2col, "to"), ROW(IM2COL_BACK, im2col_back), ROW2(IM2COL_3D, im2col_3d, "to"), ROW(COL2IM_1D, col2im_1d),
    ROW2(CONV_2D, conv_2d, "on"), ROW2(CONV_3D, conv_3d, "on"), ROW2(CONV_2D_DW, conv_2d_dw, "on"),
    ROW2(CONV_TRANSPOSE_2D, conv_transpose_2d, "on"), ROW(POOL_1D, pool_1d), ROW(POOL_2D, pool_2d),
    ROW(POOL_2D_BACK, pool_2d_back), ROW(UPSCALE, upscale), ROW(PAD, pad), ROW(PAD_REFLECT_1D, pad_reflect_1d), ROW(ROLL, roll),
    ROW(ARANGE, arange), ROW(TIMESTEP_EMBEDDING, timestep_embedding), ROW(ARGSORT, argsort), ROW(TOP_K, top_k),
    ROW(LEAKY_RELU, leaky_relu), ROW(TRI, tri), ROW(FILL, fill), ROW2(FLASH_ATTN_EXT, flash_attn_ext, "keys, values"),
    ROW(FLASH_ATTN_BACK, flash_attn_back), ROW(SSM_CONV, ssm_conv), ROW(SSM_SCAN, ssm_scan), ROW(WIN_PART, win_part),
    ROW(WIN_UNPART, win_unpart), ROW(GET_REL_POS, get_rel_pos), ROW(ADD_REL_POS, add_rel_pos), ROW(RWKV_WKV6, rwkv_wkv6),
    ROW(GATED_LINEAR_ATTN, gated_linear_attn), ROW(RWKV_WKV7, rwkv_wkv7), ROW(SOLVE_TRI, solve_tri),
    ROW(GATED_DELTA_NET, gated_delta_net), ROW(LIGHTNING_INDEXER, lightning_indexer), ROW(DSV4_HC_COMB, dsv4_hc_comb),
    ROW(DSV4_HC_PRE, dsv4_hc_pre), ROW(DSV4_HC_POST, dsv4_hc_post), ROW(UNARY, unary), ROW(MAP_CUSTOM1, map_custom1),
    ROW(MAP_CUSTOM2, map_custom2), ROW(MAP_CUSTOM3, map_custom3), ROW(CUSTOM, custom), ROW(CROSS_ENTROPY_LOSS, cross_entropy_loss),
    ROW(CROSS_ENTROPY_LOSS_BACK, cross_entropy_loss_back), ROW(OPT_STEP_ADAMW, opt_step_adamw), ROW(OPT_STEP_SGD, opt_step_sgd),
    ROW(GLU, glu),
};
// clang-format on

const struct cli_op_sample *cli_op_sample(enum ggml_op op) {
    for (size_t i = 0; i < sizeof samples / sizeof samples[0]; i++) {
        if (samples[i].op == op) {
            return &samples[i];
        }
    }
    return NULL;
}
