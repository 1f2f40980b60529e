// SPDX-License-Identifier: MIT
// mmid.c: MUL_MAT_ID. Each token has a list of experts. A slot is an index in that list. If there are few (token, slot) pairs,
// each pair is a product of one column (kernel/mv.cuh). Otherwise the columns are sorted by expert into tiles (kernel/mmid.cu),
// and one launch computes all tiles (mid90.cuh, mma90.cuh).

#include "cuda/op/matmul.h"

#define MV_PAIRS 32 // largest number of (token, slot) pairs that are computed without sorting

// Layout of the arena: [columns][scales][lists: expert per tile, source and destination per column].
struct plan {
    bool vectors; // each pair is a product of one column; of the other fields, only n_pairs is set
    bool mid;     // mid90 computes the tiles, otherwise mma90
    int nt;       // columns per tile
    int64_t n_pairs, n_tiles;
    struct cuda_columns c;
    size_t lists; // byte offset of the lists in the arena
    size_t size;  // bytes of the arena
};

// can_mid: the result of cuda_can_mid.
static struct plan plan_of(const struct cuda_device *dev, const struct ggml_tensor *op, bool can_mid) {
    const struct ggml_tensor *w = op->src[0], *x = op->src[1], *ids = op->src[2];
    const struct cuda_mm_type *t = cuda_mm_type(w->type);
    struct plan p = {.n_pairs = ids->ne[0] * ids->ne[1]};
    const bool can_mv = x->type == GGML_TYPE_F32 && cuda_mv_fits(dev, t, w->ne[0]);
    p.vectors = can_mv && (p.n_pairs <= MV_PAIRS || !cuda_traits(dev)->has_kernels_90a);
    if (!p.vectors) {
        // With few pairs per expert, small tiles have fewer unused columns.
        const int64_t per_expert = p.n_pairs / (w->ne[2] > 0 ? w->ne[2] : 1);
        p.mid = can_mid && t->mid[0] != NULL && per_expert <= CUDA_MID_MAX;
        p.nt = t->mma_128 != NULL && !p.mid ? 128 : 64;
        while (p.mid && p.nt > 8 && p.nt / 4 >= per_expert) {
            p.nt /= 2;
        }
        p.n_tiles = p.n_pairs / p.nt + min_i64(w->ne[2], p.n_pairs);
        p.c = cuda_columns_of(t, w->ne[0], p.n_tiles * p.nt, 1, p.nt);
        p.lists = (size_t) cuda_round_up((int64_t) p.c.size, 256);
        p.size = p.lists + (size_t) (p.n_tiles * (1 + 2 * p.nt)) * sizeof(int32_t);
    }
    return p;
}

static bool mmid_supports(const struct cuda_device *dev, const struct ggml_tensor *op) {
    const struct ggml_tensor *w = op->src[0], *x = op->src[1], *ids = op->src[2];
    if (w == NULL || x == NULL || ids == NULL || cuda_mm_type(w->type) == NULL || op->type != GGML_TYPE_F32 ||
        !cuda_is_float(x->type) || ids->type != GGML_TYPE_I32) {
        return false;
    }
    const bool rows = w->nb[0] == ggml_type_size(w->type) && x->nb[0] == ggml_type_size(x->type) && op->nb[0] == sizeof(float) &&
                      ids->nb[0] == sizeof(int32_t) && w->nb[1] % ggml_type_size(w->type) == 0;
    const bool fits = w->ne[0] == x->ne[0] && w->ne[0] > 0 && w->ne[2] <= MMID_EXPERTS && w->ne[3] == 1 && x->ne[3] == 1 &&
                      ids->ne[0] * ids->ne[1] < 65536 && x->ne[1] > 0 && ids->ne[0] % x->ne[1] == 0 &&
                      ggml_nelements(op) < INT32_MAX && w->ne[1] < INT32_MAX;
    return rows && fits && (cuda_traits(dev)->has_kernels_90a || plan_of(dev, op, false).vectors);
}

static size_t mmid_work_size(const struct cuda_device *dev, const struct ggml_tensor *op) {
    // The weights may have no address yet.
    return max_size(plan_of(dev, op, false).size, plan_of(dev, op, cuda_traits(dev)->has_kernels_90a).size);
}

static enum ggml_status run_vectors(
    struct cuda_run *r, const struct cuda_mm_type *t, struct ggml_tensor *op, const struct plan *p) {
    const struct ggml_tensor *w = op->src[0], *x = op->src[1], *ids = op->src[2];
    mv_args a = {.w = {w->data},
        .y = {op->data},
        .m = {(int) w->ne[1]},
        .n_parts = 1,
        .x = x->data,
        .ids = ids->data,
        .w_row = (int64_t) w->nb[1],
        .w_z2 = (int64_t) w->nb[2],
        .x_col = (int64_t) (x->nb[1] / sizeof(float)),
        .x_z2 = (int64_t) (x->nb[2] / sizeof(float)),
        .y_col = (int64_t) (op->nb[1] / sizeof(float)),
        .y_z2 = (int64_t) (op->nb[2] / sizeof(float)),
        .ids_row = (int64_t) (ids->nb[1] / sizeof(int32_t)),
        .k = (int) w->ne[0],
        .ne2 = 1,
        .r2 = 1,
        .r3 = 1,
        .n_used = (int) ids->ne[0],
        .n_experts = (int) w->ne[2],
        .x_ne1 = (int) x->ne[1]};
    return cuda_mv(r, t, &a, p->n_pairs);
}

static enum ggml_status mmid_run(struct cuda_run *r, struct ggml_tensor *op) {
    const struct ggml_tensor *w = op->src[0], *x = op->src[1], *ids = op->src[2];
    const struct cuda_mm_type *t = cuda_mm_type(w->type);
    const struct plan p = plan_of(r->dev, op, cuda_can_mid(r->dev, w));
    if (p.vectors) {
        return run_vectors(r, t, op, &p);
    }
    char *work = cuda_work(r, p.size);
    if (work == NULL) {
        return GGML_STATUS_FAILED;
    }
    int32_t *experts = (int32_t *) (work + p.lists), *from = experts + p.n_tiles, *to = from + p.n_tiles * p.nt;
    const struct mmid_args sort = {.ids = ids->data,
        .experts = experts,
        .from = from,
        .to = to,
        .ids_row = (int64_t) (ids->nb[1] / sizeof(int32_t)),
        .y_col = (int64_t) (op->nb[1] / sizeof(float)),
        .y_z2 = (int64_t) (op->nb[2] / sizeof(float)),
        .n_used = (int) ids->ne[0],
        .n_pairs = (int) p.n_pairs,
        .n_experts = (int) w->ne[2],
        .x_ne1 = (int) x->ne[1],
        .nt = p.nt,
        .n_tiles = (int) p.n_tiles,
        .wait = 1};
    enum ggml_status status = cuda_launch_one(r, "mmid_sort", cuda_grid(1, 1, 1, 1024, 0), &sort);
    const act_args act = {.x = x->data,
        .tiles = (uint16_t *) work,
        .scale = (float *) (work + p.c.columns_size),
        .from = from,
        .x_col = (int64_t) x->nb[1],
        .from_z2 = (int64_t) x->nb[2],
        .x_ne1 = (int) x->ne[1],
        .x_type = cuda_column_type(x->type),
        .k = (int) x->ne[0],
        .n = (int) p.c.n,
        .nt = p.nt,
        .ne2 = 1,
        .bf = t->bf,
        .wait = 1};
    if (status == GGML_STATUS_SUCCESS) {
        const struct cuda_dims dims = cuda_grid(p.c.n, 1, 1, 256, 0);
        status = cuda_launch_one(r, "act_tiles", dims, &act);
    }
    mma_args a = {.w = w->data,
        .tiles = (const uint16_t *) work,
        .scale = (const float *) (work + p.c.columns_size),
        .y = op->data,
        .tile_expert = experts,
        .to = to,
        .w_row = (int64_t) w->nb[1],
        .w_z2 = (int64_t) w->nb[2],
        .m = (int) w->ne[1],
        .k = (int) w->ne[0],
        .n = (int) p.c.n,
        .ne2 = 1,
        .r2 = 1,
        .r3 = 1,
        .n_tiles = (int) p.n_tiles,
        .wait = 1};
    if (status != GGML_STATUS_SUCCESS) {
        return status;
    }
    return p.mid ? cuda_mid_tiles(r, t, p.nt, &a, 1) : cuda_mm_tiles(r, t, p.nt, &a, 1);
}

const struct cuda_op_entry cuda_ops_mmid[] = {
    {GGML_OP_MUL_MAT_ID, {.supports = mmid_supports, .work_size = mmid_work_size, .run = mmid_run}},
    CUDA_OPS_END,
};
