// SPDX-License-Identifier: MIT
// rearrange.c: ops in five groups, with the kernel of each group:
//   place_any      moves elements unchanged: REPEAT, CONCAT, DIAG, PAD, PAD_REFLECT_1D, ROLL, WIN_PART, WIN_UNPART, GET_REL_POS
//   place_band     keeps a triangle: DIAG_MASK_*, TRI
//   place_part     sets or adds to a part of a tensor: SET, ACC
//   place_add_id   adds selected rows or one number: ADD_ID, ADD1
//   place_made     computes each element from its index: ARANGE, TIMESTEP_EMBEDDING, ADD_REL_POS

#include "gpu/kernel/rearrange.h"

#include "gpu/op/op.h"

#include <math.h>

#define BLOCK 256

// Returns whether place_any can move the elements of t. A quantised block moves as one element, and the blocks of a row must be
// contiguous.
static bool is_movable(const struct ggml_tensor *t) {
    return t != NULL && (ggml_blck_size(t->type) == 1 || t->nb[0] == ggml_type_size(t->type));
}

// Returns a view of t in which each quantised block counts as one element.
static struct gpu_view view_in_blocks(const struct ggml_tensor *t) {
    struct gpu_view v = gpu_view_of(t);
    v.ne[0] /= ggml_blck_size(t->type);
    return v;
}

// what: the value of gpu_rearrange_args.what, which differs from op->op for a circular PAD. p: parameters; see source_of in
// kernel/rearrange.cu.
static enum ggml_status place_launch(struct gpu_run *r, struct ggml_tensor *op, enum ggml_op what, const int32_t p[4]) {
    struct ggml_tensor shape = *op;
    shape.ne[0] = op->ne[0] / ggml_blck_size(op->type);
    struct gpu_rearrange_args args = {.dst = view_in_blocks(op),
        .a = view_in_blocks(op->src[0]),
        .index = gpu_index_of(&shape),
        .n = ggml_nelements(op) / ggml_blck_size(op->type),
        .what = (int32_t) what,
        .size = (int32_t) ggml_type_size(op->type)};
    memcpy(args.p, p, sizeof args.p);
    if (op->src[1] != NULL) {
        args.b = view_in_blocks(op->src[1]);
    }
    return gpu_launch(r, "place_any", gpu_dims_1d(r, args.n, BLOCK), &args);
}

static enum ggml_status place_run(struct gpu_run *r, struct ggml_tensor *op) {
    return place_launch(r, op, op->op, op->op_params);
}

static bool has_same_plain_type(const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0];
    return a != NULL && a->type == op->type && ggml_blck_size(a->type) == 1;
}

// ---- REPEAT, CONCAT, DIAG ----

static bool repeat_supports(GPU_DEV, const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0];
    return is_movable(a) && is_movable(op) && a->type == op->type && ggml_can_repeat(a, op);
}

static bool concat_supports(GPU_DEV, const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0], *b = op->src[1];
    const int32_t dim = param_i32(op, 0);
    if (!is_movable(a) || !is_movable(b) || !is_movable(op) || a->type != op->type || b->type != op->type || dim < 0 || dim > 3) {
        return false;
    }
    for (int i = 0; i < 4; i++) {
        if (i == dim ? op->ne[i] != a->ne[i] + b->ne[i] : op->ne[i] != a->ne[i] || op->ne[i] != b->ne[i]) {
            return false;
        }
    }
    return dim != 0 || a->ne[0] % ggml_blck_size(a->type) == 0;
}

static bool diag_supports(GPU_DEV, const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0];
    return has_same_plain_type(op) && a->ne[1] == 1 && op->ne[0] == a->ne[0] && op->ne[1] == a->ne[0] && op->ne[2] == a->ne[2] &&
           op->ne[3] == a->ne[3];
}

// ---- PAD, PAD_REFLECT_1D, ROLL, windows ----

static bool pad_supports(GPU_DEV, const struct ggml_tensor *op) {
    const bool is_circular = param_i32(op, 8) != 0;
    bool fits = has_same_plain_type(op) && !(is_circular && ggml_nelements(op->src[0]) == 0);
    for (int i = 0; i < 4 && fits; i++) {
        fits = op->ne[i] == op->src[0]->ne[i] + param_i32(op, 2 * i) + param_i32(op, 2 * i + 1);
    }
    return fits;
}

static enum ggml_status pad_run(struct gpu_run *r, struct ggml_tensor *op) {
    const int32_t p[4] = {param_i32(op, 0), param_i32(op, 2), param_i32(op, 4), param_i32(op, 6)};
    return place_launch(r, op, param_i32(op, 8) != 0 ? GGML_OP_ROLL : GGML_OP_PAD, p);
}

static bool reflect_supports(GPU_DEV, const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0];
    const int64_t left = param_i32(op, 0), right = param_i32(op, 1);
    return has_same_plain_type(op) && left >= 0 && right >= 0 && left < a->ne[0] && right < a->ne[0] &&
           op->ne[0] == a->ne[0] + left + right && op->ne[1] == a->ne[1] && op->ne[2] == a->ne[2] && op->ne[3] == a->ne[3];
}

static bool roll_supports(GPU_DEV, const struct ggml_tensor *op) {
    return has_same_plain_type(op) && ggml_are_same_shape(op->src[0], op);
}

static bool win_part_supports(GPU_DEV, const struct ggml_tensor *op) {
    const int64_t n_x = param_i32(op, 0), n_y = param_i32(op, 1), w = param_i32(op, 2);
    return has_same_plain_type(op) && w > 0 && n_x > 0 && op->ne[0] == op->src[0]->ne[0] && op->ne[1] == w && op->ne[2] == w &&
           op->ne[3] == n_x * n_y;
}

static bool win_unpart_supports(GPU_DEV, const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0];
    const int64_t w = param_i32(op, 0);
    return has_same_plain_type(op) && w > 0 && op->ne[0] == a->ne[0] && op->ne[3] == 1 && w <= a->ne[1] && w <= a->ne[2] &&
           ((op->ne[1] + w - 1) / w) * ((op->ne[2] + w - 1) / w) <= a->ne[3];
}

static enum ggml_status win_unpart_run(struct gpu_run *r, struct ggml_tensor *op) {
    const int32_t w = param_i32(op, 0);
    return place_launch(r, op, GGML_OP_WIN_UNPART, (const int32_t[4]){w, (int32_t) ((op->ne[1] + w - 1) / w)});
}

static bool rel_pos_supports(GPU_DEV, const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0];
    return a != NULL && ggml_type_size(a->type) == ggml_type_size(op->type) && ggml_blck_size(a->type) == 1 &&
           ggml_blck_size(op->type) == 1 && op->ne[0] == a->ne[0] && op->ne[1] == op->ne[2] && a->ne[1] == 2 * op->ne[1] - 1 &&
           op->ne[3] == 1;
}

// ---- triangles ----

#define FAR (INT64_C(1) << 40) // beyond the end of every row; small enough that additions do not overflow

static bool same_f32(GPU_DEV, const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0];
    return a != NULL && a->type == GGML_TYPE_F32 && op->type == GGML_TYPE_F32 && ggml_are_same_shape(a, op);
}

// Keeps elements i1 + first to i1 + end - 1 of each row i1. All other elements become `value`.
static enum ggml_status keep_band_launch(struct gpu_run *r, struct ggml_tensor *op, int64_t first, int64_t end, float value) {
    const struct gpu_band_args args = {.dst = gpu_view_of(op),
        .a = gpu_view_of(op->src[0]),
        .index = gpu_index_of(op),
        .n = ggml_nelements(op),
        .first = first,
        .end = end,
        .value = value};
    return gpu_launch(r, "place_band", gpu_dims_1d(r, args.n, BLOCK), &args);
}

static enum ggml_status mask_run(struct gpu_run *r, struct ggml_tensor *op) {
    return keep_band_launch(r, op, -FAR, (int64_t) param_i32(op, 0) + 1, op->op == GGML_OP_DIAG_MASK_INF ? -INFINITY : 0.0f);
}

static bool tri_supports(const struct gpu_device *dev, const struct ggml_tensor *op) {
    return same_f32(dev, op) && (unsigned) param_i32(op, 0) <= GGML_TRI_TYPE_LOWER;
}

static enum ggml_status tri_run(struct gpu_run *r, struct ggml_tensor *op) {
    switch ((enum ggml_tri_type) param_i32(op, 0)) {
        case GGML_TRI_TYPE_UPPER_DIAG: return keep_band_launch(r, op, 0, FAR, 0.0f);
        case GGML_TRI_TYPE_UPPER: return keep_band_launch(r, op, 1, FAR, 0.0f);
        case GGML_TRI_TYPE_LOWER_DIAG: return keep_band_launch(r, op, -FAR, 1, 0.0f);
        default: return keep_band_launch(r, op, -FAR, 0, 0.0f);
    }
}

// ---- SET, ACC ----

// *part: the part of the result to which source 1 is written. Returns false if the part is not within the result, if its strides
// are not multiples of an element, or if its rows overlap.
static bool part_of(const struct ggml_tensor *op, struct gpu_view *part) {
    const struct ggml_tensor *b = op->src[1];
    const int64_t off = param_i32(op, 3);
    int64_t end = off + 4;
    *part = gpu_view_of(b);
    part->nb[0] = 4;
    if (off < 0 || off % 4 != 0) {
        return false;
    }
    for (int i = 0; i < 4; i++) {
        const int64_t nb = i == 0 ? 4 : param_i32(op, i - 1);
        if (b->ne[i] == 1) {
            continue;
        }
        if (nb < 0 || nb % 4 != 0 || b->ne[i] > INT32_MAX || (i > 0 && nb < b->ne[i - 1] * part->nb[i - 1])) {
            return false;
        }
        part->nb[i] = nb;
        end += (b->ne[i] - 1) * nb;
    }
    part->p = (char *) op->data + off;
    return end <= (int64_t) ggml_nbytes(op);
}

static bool part_supports(GPU_DEV, const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0], *b = op->src[1];
    struct gpu_view part;
    return a != NULL && b != NULL && a->type == op->type && b->type == op->type && ggml_are_same_shape(a, op) &&
           ggml_is_contiguous(op) && (op->type == GGML_TYPE_F32 || (op->op == GGML_OP_SET && op->type == GGML_TYPE_I32)) &&
           (ggml_nelements(b) == 0 || part_of(op, &part));
}

// Copies source 0 to the result.
static enum ggml_status part_copy(struct gpu_run *r, struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0];
    if (ggml_is_contiguous(a)) {
        return gpu_copy_bytes(r, op->data, a->data, ggml_nbytes(op));
    }
    return place_launch(r, op, GGML_OP_REPEAT, op->op_params);
}

static enum ggml_status part_run(struct gpu_run *r, struct ggml_tensor *op) {
    const struct ggml_tensor *b = op->src[1];
    struct gpu_part_args args = {
        .b = gpu_view_of(b), .index = gpu_index_of(b), .n = ggml_nelements(b), .add = op->op == GGML_OP_ACC};
    if (args.n > 0 && !part_of(op, &args.part)) {
        return shim_error(GGML_STATUS_FAILED, "%s: the part that %s '%s' writes is not within its result", r->dev->name,
            ggml_op_name(op->op), op->name);
    }
    const enum ggml_status status = op->data != op->src[0]->data ? part_copy(r, op) : GGML_STATUS_SUCCESS;
    if (status != GGML_STATUS_SUCCESS || args.n == 0) {
        return status;
    }
    return gpu_launch(r, "place_part", gpu_dims_1d(r, args.n, BLOCK), &args);
}

// ---- ADD_ID, ADD1 ----

static bool add_id_supports(GPU_DEV, const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0], *b = op->src[1], *ids = op->src[2];
    return a != NULL && b != NULL && ids != NULL && gpu_is_float(a->type) && gpu_is_float(b->type) && gpu_is_float(op->type) &&
           ids->type == GGML_TYPE_I32 && ggml_are_same_shape(a, op) && a->ne[0] == b->ne[0] && a->ne[1] == ids->ne[0] &&
           a->ne[2] == ids->ne[1];
}

static bool add1_supports(const struct gpu_device *dev, const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0], *b = op->src[1];
    return gpu_can_add_quantised(dev, op) || (a != NULL && b != NULL && op->type == a->type && gpu_is_float(a->type) &&
                                                 gpu_is_float(b->type) && ggml_nelements(b) == 1 && ggml_are_same_shape(a, op));
}

static enum ggml_status add1_run(struct gpu_run *r, struct ggml_tensor *op) {
    return ggml_is_quantized(op->type) ? gpu_add_quantised(r, op) : gpu_elementwise_run(r, op);
}

// ---- ARANGE, TIMESTEP_EMBEDDING, ADD_REL_POS ----

static bool arange_supports(GPU_DEV, const struct ggml_tensor *op) {
    return op->type == GGML_TYPE_F32;
}

static bool timestep_supports(GPU_DEV, const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0];
    return a != NULL && a->type == GGML_TYPE_F32 && op->type == GGML_TYPE_F32 && op->nb[0] == sizeof(float) &&
           op->ne[0] == param_i32(op, 0) && op->ne[1] == a->ne[0];
}

static bool add_rel_pos_supports(const struct gpu_device *dev, const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0], *pw = op->src[1], *ph = op->src[2];
    return same_f32(dev, op) && pw != NULL && ph != NULL && pw->type == GGML_TYPE_F32 && ph->type == GGML_TYPE_F32 &&
           ggml_are_same_shape(pw, ph) && ggml_is_contiguous(a) && ggml_is_contiguous(op) && ggml_is_contiguous(pw) &&
           ggml_is_contiguous(ph) && pw->ne[0] * pw->ne[0] == a->ne[0] && pw->ne[1] * pw->ne[2] == a->ne[1] &&
           pw->ne[3] == a->ne[2] && a->ne[3] == 1;
}

const struct gpu_op_entry gpu_ops_rearrange[] = {
    {GGML_OP_REPEAT, {.supports = repeat_supports, .run = place_run}},
    // Models concatenate with an empty tensor at the first token.
    {GGML_OP_CONCAT, {.supports = concat_supports, .run = place_run, .empty_srcs = 1 << 0 | 1 << 1}},
    {GGML_OP_DIAG, {.supports = diag_supports, .run = place_run}},
    {GGML_OP_PAD, {.supports = pad_supports, .run = pad_run, .empty_srcs = 1 << 0}},
    {GGML_OP_PAD_REFLECT_1D, {.supports = reflect_supports, .run = place_run}},
    {GGML_OP_ROLL, {.supports = roll_supports, .run = place_run}},
    {GGML_OP_WIN_PART, {.supports = win_part_supports, .run = place_run}},
    {GGML_OP_WIN_UNPART, {.supports = win_unpart_supports, .run = win_unpart_run}},
    {GGML_OP_GET_REL_POS, {.supports = rel_pos_supports, .run = place_run}},
    {GGML_OP_DIAG_MASK_INF, {.supports = same_f32, .run = mask_run}},
    {GGML_OP_DIAG_MASK_ZERO, {.supports = same_f32, .run = mask_run}},
    {GGML_OP_TRI, {.supports = tri_supports, .run = tri_run}},
    {GGML_OP_SET, {.supports = part_supports, .run = part_run, .empty_srcs = 1 << 1}},
    {GGML_OP_ACC, {.supports = part_supports, .run = part_run, .empty_srcs = 1 << 1}},
    {GGML_OP_ADD_ID, {.supports = add_id_supports, .run = gpu_elementwise_run, .kernel = "place_add_id"}},
    {GGML_OP_ADD1, {.supports = add1_supports, .run = add1_run, .kernel = "place_add_id"}},
    {GGML_OP_ARANGE, {.supports = arange_supports, .run = gpu_elementwise_run, .kernel = "place_made"}},
    {GGML_OP_TIMESTEP_EMBEDDING, {.supports = timestep_supports, .run = gpu_elementwise_run, .kernel = "place_made"}},
    {GGML_OP_ADD_REL_POS, {.supports = add_rel_pos_supports, .run = gpu_elementwise_run, .kernel = "place_made"}},
    GPU_OPS_END,
};
