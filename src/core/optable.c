// SPDX-License-Identifier: MIT
// optable.c: the op table and the names that come from it.

#include "core/optable.h"

#include "core/grad.h"
#include "core/graph.h"
#include "ggml-backend-impl.h"

// clang-format off
static const struct berth_op_info ops[GGML_OP_COUNT] = {
    [GGML_OP_NONE] = {"NONE", "none", .n_src = 0, .is_empty = true, .is_flat = true},
    [GGML_OP_DUP] = {"DUP", "x", .n_src = 1, .grad = berth_grad_dup, .grad_srcs = 1},
    [GGML_OP_ADD] = {"ADD", "x+y", .n_src = 2, .in_place = true, .grad = berth_grad_add, .grad_srcs = 3},
    [GGML_OP_ADD_ID] = {"ADD_ID", "x[i]+y", .n_src = 3, .in_place = true, .grad = berth_grad_add_id, .grad_srcs = 3},
    [GGML_OP_ADD1] = {"ADD1", "x+y", .n_src = 2, .in_place = true, .grad = berth_grad_add1, .grad_srcs = 3},
    [GGML_OP_ACC] = {"ACC", "view(x,nb,offset)+=y->x", .n_src = 2, .writes_src = true, .grad = berth_grad_acc, .grad_srcs = 3},
    [GGML_OP_SUB] = {"SUB", "x-y", .n_src = 2, .in_place = true, .grad = berth_grad_sub, .grad_srcs = 3},
    [GGML_OP_MUL] = {"MUL", "x*y", .n_src = 2, .in_place = true, .grad = berth_grad_mul, .grad_srcs = 3},
    [GGML_OP_DIV] = {"DIV", "x/y", .n_src = 2, .in_place = true, .grad = berth_grad_div, .grad_srcs = 3},
    [GGML_OP_SQR] = {"SQR", "x^2", .n_src = 1, .in_place = true, .grad = berth_grad_sqr, .grad_srcs = 1},
    [GGML_OP_SQRT] = {"SQRT", "√x", .n_src = 1, .in_place = true, .grad = berth_grad_sqrt, .grad_srcs = 1},
    [GGML_OP_LOG] = {"LOG", "log(x)", .n_src = 1, .in_place = true, .grad = berth_grad_log, .grad_srcs = 1},
    [GGML_OP_SIN] = {"SIN", "sin(x)", .n_src = 1, .grad = berth_grad_sin, .grad_srcs = 1},
    [GGML_OP_COS] = {"COS", "cos(x)", .n_src = 1, .grad = berth_grad_cos, .grad_srcs = 1},
    [GGML_OP_SUM] = {"SUM", "Σx", .n_src = 1, .grad = berth_grad_sum, .grad_srcs = 1},
    [GGML_OP_SUM_ROWS] = {"SUM_ROWS", "Σx_k", .n_src = 1, .grad = berth_grad_sum_rows, .grad_srcs = 1},
    [GGML_OP_CUMSUM] = {"CUMSUM", "cumsum(x)", .n_src = 1, .may_expand = true, .grad = berth_grad_cumsum, .grad_srcs = 1},
    [GGML_OP_MEAN] = {"MEAN", "Σx/n", .n_src = 1, .grad = berth_grad_mean, .grad_srcs = 1},
    [GGML_OP_ARGMAX] = {"ARGMAX", "argmax(x)", .n_src = 1, .is_flat = true},
    [GGML_OP_COUNT_EQUAL] = {"COUNT_EQUAL", "count_equal(x)", .n_src = 2, .is_flat = true},
    [GGML_OP_REPEAT] = {"REPEAT", "repeat(x)", .n_src = 1, .grad = berth_grad_repeat, .grad_srcs = 1},
    [GGML_OP_REPEAT_BACK] = {"REPEAT_BACK", "repeat_back(x)", .n_src = 1, .grad = berth_grad_repeat_back, .grad_srcs = 1},
    [GGML_OP_CONCAT] = {"CONCAT", "concat(x, y)", .n_src = 2, .grad = berth_grad_concat, .grad_srcs = 3},
    [GGML_OP_SILU_BACK] = {"SILU_BACK", "silu_back(x)", .n_src = 2, .in_place = true},
    [GGML_OP_NORM] = {"NORM", "norm(x)", .n_src = 1, .grad = berth_grad_norm, .grad_srcs = 1},
    [GGML_OP_RMS_NORM] = {"RMS_NORM", "rms_norm(x)", .n_src = 1, .in_place = true, .grad = berth_grad_rms_norm, .grad_srcs = 1},
    [GGML_OP_RMS_NORM_BACK] = {"RMS_NORM_BACK", "rms_norm_back(x)", .n_src = 2, .in_place = true},
    [GGML_OP_GROUP_NORM] = {"GROUP_NORM", "group_norm(x)", .n_src = 1, .grad = berth_grad_group_norm, .grad_srcs = 1},
    [GGML_OP_L2_NORM] = {"L2_NORM", "l2_norm(x)", .n_src = 1, .grad = berth_grad_l2_norm, .grad_srcs = 1},
    [GGML_OP_MUL_MAT] = {"MUL_MAT", "X*Y", .n_src = 2, .may_expand = true, .grad = berth_grad_mul_mat, .grad_srcs = 3},
    [GGML_OP_MUL_MAT_ID] = {"MUL_MAT_ID", "X[i]*Y", .n_src = 3, .may_expand = true, .grad = berth_grad_mul_mat_id, .grad_srcs = 3},
    [GGML_OP_OUT_PROD] = {"OUT_PROD", "X*Y", .n_src = 2, .grad = berth_grad_out_prod, .grad_srcs = 3},
    [GGML_OP_SCALE] = {"SCALE", "x*v", .n_src = 1, .in_place = true, .grad = berth_grad_scale, .grad_srcs = 1},
    [GGML_OP_SET] = {"SET", "y-\\>view(x)", .n_src = 2, .writes_src = true, .grad = berth_grad_set, .grad_srcs = 3},
    [GGML_OP_CPY] = {"CPY", "x-\\>y", .n_src = 2, .writes_src = true, .grad = berth_grad_cpy, .grad_srcs = 1},
    [GGML_OP_CONT] = {"CONT", "cont(x)", .n_src = 1, .grad = berth_grad_cont, .grad_srcs = 1},
    [GGML_OP_RESHAPE] = {"RESHAPE", "reshape(x)", .n_src = 1, .is_view = true, .is_empty = true, .grad = berth_grad_reshape, .grad_srcs = 1},
    [GGML_OP_VIEW] = {"VIEW", "view(x)", .n_src = 1, .is_view = true, .is_empty = true, .grad = berth_grad_view, .grad_srcs = 1},
    [GGML_OP_PERMUTE] = {"PERMUTE", "permute(x)", .n_src = 1, .is_view = true, .is_empty = true, .grad = berth_grad_permute, .grad_srcs = 1},
    [GGML_OP_TRANSPOSE] = {"TRANSPOSE", "transpose(x)", .n_src = 1, .is_view = true, .is_empty = true, .grad = berth_grad_transpose, .grad_srcs = 1},
    [GGML_OP_GET_ROWS] = {"GET_ROWS", "get_rows(x)", .n_src = 2, .grad = berth_grad_get_rows, .grad_srcs = 1},
    [GGML_OP_GET_ROWS_BACK] = {"GET_ROWS_BACK", "get_rows_back(x)", .n_src = 2, .grad = berth_grad_get_rows_back, .grad_srcs = 1},
    [GGML_OP_SET_ROWS] = {"SET_ROWS", "set_rows(x)", .n_src = 3, .writes_src = true, .grad = berth_grad_set_rows, .grad_srcs = 5},
    [GGML_OP_DIAG] = {"DIAG", "diag(x)", .n_src = 1, .grad = berth_grad_diag, .grad_srcs = 1},
    [GGML_OP_DIAG_MASK_INF] = {"DIAG_MASK_INF", "diag_mask_inf(x)", .n_src = 1, .in_place = true, .grad = berth_grad_diag_mask, .grad_srcs = 1},
    [GGML_OP_DIAG_MASK_ZERO] = {"DIAG_MASK_ZERO", "diag_mask_zero(x)", .n_src = 1, .in_place = true, .grad = berth_grad_diag_mask, .grad_srcs = 1},
    [GGML_OP_SOFT_MAX] = {"SOFT_MAX", "soft_max(x)", .n_src = 3, .in_place = true, .grad = berth_grad_soft_max, .grad_srcs = 7},
    [GGML_OP_SOFT_MAX_BACK] = {"SOFT_MAX_BACK", "soft_max_back(x)", .n_src = 2, .in_place = true},
    [GGML_OP_ROPE] = {"ROPE", "rope(x)", .n_src = 3, .in_place = true, .grad = berth_grad_rope, .grad_srcs = 1},
    [GGML_OP_ROPE_BACK] = {"ROPE_BACK", "rope_back(x)", .n_src = 3, .in_place = true, .grad = berth_grad_rope_back, .grad_srcs = 1},
    [GGML_OP_CLAMP] = {"CLAMP", "clamp(x)", .n_src = 1, .in_place = true, .grad = berth_grad_clamp, .grad_srcs = 1},
    [GGML_OP_CONV_TRANSPOSE_1D] = {"CONV_TRANSPOSE_1D", "conv_transpose_1d(x)", .n_src = 2},
    [GGML_OP_IM2COL] = {"IM2COL", "im2col(x)", .n_src = 2, .grad = berth_grad_im2col, .grad_srcs = 2},
    [GGML_OP_IM2COL_BACK] = {"IM2COL_BACK", "im2col_back(x)", .n_src = 2},
    [GGML_OP_IM2COL_3D] = {"IM2COL_3D", "im2col_3d(x)", .n_src = 2},
    [GGML_OP_COL2IM_1D] = {"COL2IM_1D", "col2im_1d(x)", .n_src = 1},
    [GGML_OP_CONV_2D] = {"CONV_2D", "conv_2d(x)", .n_src = 2, .grad = berth_grad_conv_2d, .grad_srcs = 3},
    [GGML_OP_CONV_3D] = {"CONV_3D", "conv_3d(x)", .n_src = 2},
    [GGML_OP_CONV_2D_DW] = {"CONV_2D_DW", "conv_2d_dw(x)", .n_src = 2, .grad = berth_grad_conv_2d_dw, .grad_srcs = 3},
    [GGML_OP_CONV_TRANSPOSE_2D] = {"CONV_TRANSPOSE_2D", "conv_transpose_2d(x)", .n_src = 2},
    [GGML_OP_POOL_1D] = {"POOL_1D", "pool_1d(x)", .n_src = 1, .grad = berth_grad_pool_1d, .grad_srcs = 1},
    [GGML_OP_POOL_2D] = {"POOL_2D", "pool_2d(x)", .n_src = 1, .grad = berth_grad_pool_2d, .grad_srcs = 1},
    [GGML_OP_POOL_2D_BACK] = {"POOL_2D_BACK", "pool_2d_back(x)", .n_src = 2},
    [GGML_OP_UPSCALE] = {"UPSCALE", "upscale(x)", .n_src = 1, .grad = berth_grad_upscale, .grad_srcs = 1},
    [GGML_OP_PAD] = {"PAD", "pad(x)", .n_src = 1, .grad = berth_grad_pad, .grad_srcs = 1},
    [GGML_OP_PAD_REFLECT_1D] = {"PAD_REFLECT_1D", "pad_reflect_1d(x)", .n_src = 1},
    [GGML_OP_ROLL] = {"ROLL", "roll(x)", .n_src = 1, .grad = berth_grad_roll, .grad_srcs = 1},
    [GGML_OP_ARANGE] = {"ARANGE", "arange(start, stop, step)", .n_src = 0, .is_flat = true},
    [GGML_OP_TIMESTEP_EMBEDDING] = {"TIMESTEP_EMBEDDING", "timestep_embedding(timesteps, dim, max_period)", .n_src = 1},
    [GGML_OP_ARGSORT] = {"ARGSORT", "argsort(x)", .n_src = 1, .may_expand = true, .is_flat = true},
    [GGML_OP_TOP_K] = {"TOP_K", "top_k(x)", .n_src = 1, .may_expand = true, .is_flat = true},
    [GGML_OP_LEAKY_RELU] = {"LEAKY_RELU", "leaky_relu(x)", .n_src = 1, .grad = berth_grad_leaky_relu, .grad_srcs = 1},
    [GGML_OP_TRI] = {"TRI", "tri(x)", .n_src = 1, .grad = berth_grad_tri, .grad_srcs = 1},
    [GGML_OP_FILL] = {"FILL", "fill(x, c)", .n_src = 1, .in_place = true, .is_flat = true},
    [GGML_OP_FLASH_ATTN_EXT] = {"FLASH_ATTN_EXT", "flash_attn_ext(x)", .n_src = 5, .may_expand = true, .grad = berth_grad_flash_attn_ext, .grad_srcs = 23},
    [GGML_OP_FLASH_ATTN_BACK] = {"FLASH_ATTN_BACK", "flash_attn_back(x)", .n_src = 4},
    [GGML_OP_SSM_CONV] = {"SSM_CONV", "ssm_conv(x)", .n_src = 2},
    [GGML_OP_SSM_SCAN] = {"SSM_SCAN", "ssm_scan(x)", .n_src = 7},
    [GGML_OP_WIN_PART] = {"WIN_PART", "win_part(x)", .n_src = 1},
    [GGML_OP_WIN_UNPART] = {"WIN_UNPART", "win_unpart(x)", .n_src = 1},
    [GGML_OP_GET_REL_POS] = {"GET_REL_POS", "get_rel_pos(x)", .n_src = 1},
    [GGML_OP_ADD_REL_POS] = {"ADD_REL_POS", "add_rel_pos(x)", .n_src = 3},
    [GGML_OP_RWKV_WKV6] = {"RWKV_WKV6", "rwkv_wkv6(k, v, r, tf, td, s)", .n_src = 6},
    [GGML_OP_GATED_LINEAR_ATTN] = {"GATED_LINEAR_ATTN", "gated_linear_attn(k, v, q, gate, s)", .n_src = 5},
    [GGML_OP_RWKV_WKV7] = {"RWKV_WKV7", "rwkv_wkv7(r, w, k, v, a, b, s)", .n_src = 7},
    [GGML_OP_SOLVE_TRI] = {"SOLVE_TRI", "A X = B, A triangular, solve X", .n_src = 2},
    [GGML_OP_GATED_DELTA_NET] = {"GATED_DELTA_NET", "gated_delta_net(q, k, v, g, beta, s)", .n_src = 6},
    [GGML_OP_LIGHTNING_INDEXER] = {"LIGHTNING_INDEXER", "lightning_indexer(q, k, weights, mask)", .n_src = 4},
    [GGML_OP_DSV4_HC_COMB] = {"DSV4_HC_COMB", "dsv4_hc_comb(mixes, scale, base)", .n_src = 3},
    [GGML_OP_DSV4_HC_PRE] = {"DSV4_HC_PRE", "dsv4_hc_pre(x, weights)", .n_src = 2},
    [GGML_OP_DSV4_HC_POST] = {"DSV4_HC_POST", "dsv4_hc_post(x, residual, post, comb)", .n_src = 4},
    [GGML_OP_UNARY] = {"UNARY", "unary(x)", .n_src = 1, .in_place = true, .grad = berth_grad_unary, .grad_srcs = 1},
    [GGML_OP_MAP_CUSTOM1] = {"MAP_CUSTOM1", "map_custom(x)", .n_src = 1},
    [GGML_OP_MAP_CUSTOM2] = {"MAP_CUSTOM2", "map_custom(x,y)", .n_src = 2},
    [GGML_OP_MAP_CUSTOM3] = {"MAP_CUSTOM3", "map_custom(x,y,z)", .n_src = 3},
    [GGML_OP_CUSTOM] = {"CUSTOM", "custom(x)", .n_src = 10},
    [GGML_OP_CROSS_ENTROPY_LOSS] = {"CROSS_ENTROPY_LOSS", "cross_entropy_loss(x,y)", .n_src = 2, .grad = berth_grad_cross_entropy_loss, .grad_srcs = 1},
    [GGML_OP_CROSS_ENTROPY_LOSS_BACK] = {"CROSS_ENTROPY_LOSS_BACK", "cross_entropy_loss_back(x,y)", .n_src = 3},
    [GGML_OP_OPT_STEP_ADAMW] = {"OPT_STEP_ADAMW", "adamw(x)", .n_src = 5, .writes_src = true},
    [GGML_OP_OPT_STEP_SGD] = {"OPT_STEP_SGD", "sgd(x)", .n_src = 3, .writes_src = true},
    [GGML_OP_GLU] = {"GLU", "glu(x)", .n_src = 2, .grad = berth_grad_glu, .grad_srcs = 3},
};
// clang-format on

static const char *const unary_names[GGML_UNARY_OP_COUNT] = {"ABS", "SGN", "NEG", "STEP", "TANH", "ELU", "RELU", "SIGMOID",
    "GELU", "GELU_QUICK", "SILU", "HARDSWISH", "HARDSIGMOID", "EXP", "EXPM1", "SOFTPLUS", "GELU_ERF", "XIELU", "FLOOR", "CEIL",
    "ROUND", "TRUNC"};

static const char *const glu_names[GGML_GLU_OP_COUNT] = {
    "REGLU", "GEGLU", "SWIGLU", "SWIGLU_OAI", "GEGLU_ERF", "GEGLU_QUICK", "SWIGLU_CLAMP"};

const struct berth_op_info *berth_op_info(enum ggml_op op) {
    return (unsigned) op < GGML_OP_COUNT ? &ops[op] : NULL;
}

const char *ggml_op_name(enum ggml_op op) {
    return (unsigned) op < GGML_OP_COUNT ? ops[op].name : "UNKNOWN";
}

const char *ggml_op_symbol(enum ggml_op op) {
    return (unsigned) op < GGML_OP_COUNT ? ops[op].symbol : "?";
}

const char *ggml_unary_op_name(enum ggml_unary_op op) {
    return (unsigned) op < GGML_UNARY_OP_COUNT ? unary_names[op] : "UNKNOWN";
}

const char *ggml_glu_op_name(enum ggml_glu_op op) {
    return (unsigned) op < GGML_GLU_OP_COUNT ? glu_names[op] : "UNKNOWN";
}

const char *ggml_op_desc(const struct ggml_tensor *t) {
    if (t == NULL) {
        return "NONE";
    }
    if (t->op == GGML_OP_UNARY) {
        return ggml_unary_op_name((enum ggml_unary_op) t->op_params[0]);
    }
    if (t->op == GGML_OP_GLU) {
        return ggml_glu_op_name((enum ggml_glu_op) t->op_params[0]);
    }
    return ggml_op_name(t->op);
}

bool ggml_op_can_inplace(enum ggml_op op) {
    return (unsigned) op < GGML_OP_COUNT && ops[op].in_place;
}

bool ggml_op_alloc_size_may_expand(enum ggml_op op) {
    return (unsigned) op < GGML_OP_COUNT && ops[op].may_expand;
}
