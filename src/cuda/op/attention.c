// SPDX-License-Identifier: MIT
// attention.c: FLASH_ATTN_EXT. A group is the heads that share keys. A row is one head of one query. A split is the part of the
// keys that one block processes. Kernels (kernel/attn*.cuh):
//   attn90: many queries with f16 keys and values on sm_90a, after attn_mask has classified the mask's tiles
//   attn_few: up to 8 rows per group, with keys and values in f16, or both in a format of blocks of 32
//   attn_wide: head dimensions above 256, and types that attn does not read
//   attn: all other cases
// attn_few, attn_wide and attn divide the keys into so many splits that every multiprocessor has blocks, and skip keys that the
// mask hides. attn_join combines the results of the splits.

#include "cuda/kernel/attn_args.h"

#include "cuda/cuda.h"
#include "gpu/op/op.h"

#include <math.h>

enum { ROWS = 16, WARPS = 4, ROWS_90 = 128, MANY_QUERIES = 128, BLOCKS_MAX = 3, STEP = 16 };

struct split_kernel {
    const char *name;
    int rows, warps, blocks; // rows per block, warps per block, blocks per multiprocessor
    int step;                // keys that a block processes at a time
};

struct attn {
    const struct ggml_tensor *q, *k, *v, *mask, *sinks;
    int d;           // head dimension of the kernel: 64, 128, 256 or ATTN_WIDE
    int64_t group;   // heads per group
    int64_t n_rows;  // rows of the op
    int64_t n_tiles; // tiles of kernel.rows rows per group
    size_t shared;   // bytes of shared memory per block
    // for the kernels that split the keys
    struct split_kernel kernel;
    bool bf; // multiply bf16: f32 and bf16 values may exceed the f16 range
    int n_stages, warp_shared;
    int64_t n_split;
    bool skips; // the kernel looks for keys that the mask hides
    // for attn90
    bool many;                // attn90 computes the op
    int k_rows;               // keys per tile
    int64_t q_tiles, k_tiles; // tiles of the mask
    size_t work;              // bytes of work memory of the chosen kernel
};

static bool is_dense(const struct ggml_tensor *t) {
    return t->nb[0] == ggml_type_size(t->type);
}

// Returns whether attn reads keys or values like t.
static bool is_fast(const struct ggml_tensor *t) {
    switch (t->type) {
        case GGML_TYPE_F32:
        case GGML_TYPE_F16:
        case GGML_TYPE_BF16:
        case GGML_TYPE_Q8_0:
        case GGML_TYPE_Q4_0:
        case GGML_TYPE_Q4_1:
        case GGML_TYPE_Q5_0:
        case GGML_TYPE_Q5_1:
        case GGML_TYPE_IQ4_NL: return is_dense(t);
        default: return false;
    }
}

// Returns whether a tensor map (TMA) can describe t: t is f16, and its address and strides are multiples of 16 bytes.
static bool can_map(const struct ggml_tensor *t) {
    return t->type == GGML_TYPE_F16 && ((uintptr_t) t->data | t->nb[1] | t->nb[2] | t->nb[3]) % 16 == 0;
}

// Returns whether the kernel reads keys and values as they are, without unpacking them to f16.
static bool is_direct(const struct attn *a) {
    return can_map(a->k) && can_map(a->v) && a->k->ne[0] == a->d && a->v->ne[0] == a->d;
}

// Returns the bytes between rows in shared memory; equals attn_pitch() in kernel/attn.cuh.
static size_t pitch_of(const struct ggml_tensor *t) {
    return (((ggml_row_size(t->type, t->ne[0]) + 30) / 16) | 1) * 16;
}

// Returns the bytes of shared memory of a block of attn. Shared memory holds n_stages stages of keys and values per warp, and
// rows unpacked to f16. At the end, it holds the sums of the warps instead.
static size_t split_shared(const struct attn *a, int n_stages) {
    const size_t stage = ROWS * (pitch_of(a->k) + pitch_of(a->v));
    const size_t unpacked = is_direct(a) ? 0 : (size_t) (WARPS * ROWS * (a->d + 8) * 2);
    return max_size(WARPS * (size_t) n_stages * stage + unpacked, (size_t) (WARPS * ROWS * (a->d + 2) * 4));
}

static void use_attn(const struct cuda_traits *traits, struct attn *a) {
    static const struct split_kernel direct[3] = {
        {"attn_64", ROWS, WARPS, 2, 64}, {"attn_128", ROWS, WARPS, 2, 64}, {"attn_256", ROWS, WARPS, 1, 64}};
    static const struct split_kernel any[3] = {{"attn_any_64", ROWS, WARPS, BLOCKS_MAX, 64},
        {"attn_any_128", ROWS, WARPS, BLOCKS_MAX, 64}, {"attn_any_256", ROWS, WARPS, 1, 64}};
    static const struct split_kernel bf16[3] = {
        {"attn_bf16_64", ROWS, WARPS, 2, 64}, {"attn_bf16_128", ROWS, WARPS, 2, 64}, {"attn_bf16_256", ROWS, WARPS, 1, 64}};
    const int i_width = a->d / 128; // index of 64, 128, 256
    if (a->bf) {
        a->kernel = bf16[i_width];
    } else {
        a->kernel = is_direct(a) ? direct[i_width] : any[i_width];
    }
    // Use three stages if kernel.blocks blocks with three stages fit into a multiprocessor's shared memory, otherwise two. Use
    // one stage if a block with two stages does not fit.
    a->n_stages = 3;
    while (a->n_stages > 2 && (split_shared(a, a->n_stages) + 1024) * (size_t) a->kernel.blocks > traits->shared_max) {
        a->n_stages--;
    }
    while (a->n_stages > 1 && split_shared(a, a->n_stages) > traits->shared_max) {
        a->n_stages--;
    }
    a->shared = split_shared(a, a->n_stages);
}

// Returns a kernel for few rows with f16 keys and values. The kernels differ in the number of warps per block. If blocks would be
// less than half of the multiprocessors, the keys are split: many keys over large blocks, so that fewer splits must be combined.
// Otherwise the largest blocks that all run at the same time are the fastest.
static struct split_kernel few_f16(const struct cuda_traits *traits, const struct attn *a) {
    enum { FEW = 8, N = 4, MIDDLE = 1, SMALL = 2, MANY_KEYS = 768 };
    static const struct split_kernel kernels[2][N] = {
        {{"attn_few_f16_64x16", FEW, 16, 1, 16 * STEP}, {"attn_few_f16_64x8", FEW, 8, 2, 8 * STEP},
            {"attn_few_f16_64x4", FEW, 4, 4, 4 * STEP}, {"attn_few_f16_64x4", FEW, 4, 4, 4 * STEP}},
        {{"attn_few_f16_128x12", FEW, 12, 1, 12 * STEP}, {"attn_few_f16_128x6", FEW, 6, 2, 6 * STEP},
            {"attn_few_f16_128x4", FEW, 4, 3, 4 * STEP}, {"attn_few_f16_128x3", FEW, 3, 4, 3 * STEP}}};
    const struct split_kernel *k = kernels[a->d == 128];
    const int64_t n_sm = traits->n_sm, n_blocks = a->k->ne[2] * a->q->ne[3];
    if (2 * n_blocks <= n_sm) {
        return k[a->k->ne[1] * n_blocks >= MANY_KEYS * n_sm ? 0 : SMALL];
    }
    for (int i = 0; i < N; i++) {
        if (n_blocks <= n_sm * k[i].blocks) {
            return k[i];
        }
    }
    return k[MIDDLE];
}

// Chooses attn_few and returns true if it supports the op and fits into shared memory: head dimensions 64 and 128, up to 8 rows
// per group.
static bool try_few(const struct cuda_traits *traits, struct attn *a) {
    enum { FEW = 8, STAGES = 3 };
    static const struct split_kernel q8_0[2] = {
        {"attn_few_q8_0_64x16", FEW, 16, 1, 16 * STEP}, {"attn_few_q8_0_128x12", FEW, 12, 1, 12 * STEP}};
    static const struct split_kernel blocks[2] = {
        {"attn_few_blocks_64x16", FEW, 16, 1, 16 * STEP}, {"attn_few_blocks_128x12", FEW, 12, 1, 12 * STEP}};
    const bool is_blocks = ggml_is_quantized(a->k->type) && ggml_is_quantized(a->v->type);
    const bool fits = (a->d == 64 || a->d == 128) && a->k->ne[0] == a->d && a->v->ne[0] == a->d &&
                      a->q->ne[1] * a->group <= FEW && a->k->nb[1] < (1u << 26) && a->v->nb[1] < (1u << 26);
    if (!fits || (!is_blocks && !is_direct(a))) {
        return false;
    }
    if (!is_blocks) {
        a->kernel = few_f16(traits, a);
    } else if (a->k->type == GGML_TYPE_Q8_0 && a->v->type == GGML_TYPE_Q8_0) {
        a->kernel = q8_0[a->d == 128];
    } else {
        a->kernel = blocks[a->d == 128];
    }
    a->warp_shared = is_blocks ? (int) (STAGES * STEP * (pitch_of(a->k) + pitch_of(a->v))) : 0;
    a->shared = (size_t) (a->kernel.warps * max_int(a->warp_shared, FEW * (a->d + 2) * 4));
    return a->shared <= traits->shared_max;
}

static void use_wide(struct attn *a) {
    enum { WIDE_ROWS = 32, WIDE_KEYS = 32, WIDE_WARPS = 8 };
    a->kernel = (struct split_kernel){a->bf ? "attn_wide_bf16" : "attn_wide_f16", WIDE_ROWS, WIDE_WARPS, 1, WIDE_KEYS};
    a->shared = (size_t) ((WIDE_ROWS + WIDE_KEYS) * (ATTN_WIDE + 8) * 2 + WIDE_WARPS * 16 * WIDE_KEYS * 4);
}

// Sets the tiles, the splits and the work memory of a kernel that splits the keys. With several splits, all blocks run at the same
// time.
static void set_splits(const struct cuda_traits *traits, struct attn *a) {
    enum { MIN_STEPS = 4 }; // with fewer steps per warp, looking for hidden keys takes longer than processing them
    const int64_t n_kv = a->k->ne[1];
    const struct ggml_tensor *mask = a->mask;
    a->n_tiles = (a->q->ne[1] * a->group + a->kernel.rows - 1) / a->kernel.rows;
    const int64_t blocks_per_sm = (int64_t) (traits->shared_max / (a->shared + 1024));
    const int64_t max_blocks = traits->n_sm * clamp_i64(blocks_per_sm, 1, a->kernel.blocks);
    const int64_t n_blocks = max_i64(a->n_tiles * a->k->ne[2] * a->q->ne[3], 1); // per split
    const int64_t n_steps = (n_kv + a->kernel.step - 1) / a->kernel.step,
                  n_max = clamp_i64(max_blocks / n_blocks, 1, ATTN_SPLITS);
    const int64_t steps_per_split = (n_steps + n_max - 1) / n_max;
    a->n_split = (n_steps + steps_per_split - 1) / steps_per_split;
    a->skips = mask != NULL && ((uintptr_t) mask->data | mask->nb[1] | mask->nb[2] | mask->nb[3]) % 16 == 0 &&
               steps_per_split >= MIN_STEPS;
    a->work = a->n_split > 1 ? (size_t) (a->n_split * a->n_rows * (a->v->ne[0] + 2)) * sizeof(float) : 0;
}

static struct attn attn_of(const struct gpu_device *dev, const struct ggml_tensor *op) {
    const struct cuda_traits *traits = cuda_traits(dev);
    struct attn a = {.q = op->src[0], .k = op->src[1], .v = op->src[2], .mask = op->src[3], .sinks = op->src[4]};
    const int64_t d = max_i64(a.k->ne[0], a.v->ne[0]), n_kv = a.k->ne[1], n_q = a.q->ne[1];
    a.d = 64;
    while (a.d < d && a.d < 256) {
        a.d *= 2;
    }
    if (d > 256 || !is_dense(a.q) || !is_fast(a.k) || !is_fast(a.v)) {
        a.d = ATTN_WIDE;
    }
    a.group = a.q->ne[2] / a.k->ne[2];
    a.n_rows = n_q * a.q->ne[2] * a.q->ne[3];
    a.many = a.d <= 256 && traits->has_kernels_90a && cuda_api(dev)->TensorMapEncodeTiled != NULL && n_q >= MANY_QUERIES &&
             can_map(a.k) && can_map(a.v);
    if (a.many) {
        a.k_rows = a.d == 256 ? 64 : 128;
        a.q_tiles = (n_q + ROWS_90 - 1) / ROWS_90;
        a.k_tiles = (n_kv + a.k_rows - 1) / a.k_rows;
        a.shared = (size_t) (2 * 64 * a.d * 2 + 4 * a.k_rows * a.d * 2 + 128 + a.k_tiles + 1024);
        a.work = a.mask != NULL ? (size_t) (a.mask->ne[2] * a.mask->ne[3] * a.q_tiles * a.k_tiles) : 0;
        a.many = a.shared <= traits->shared_max;
    }
    if (!a.many) {
        a.bf = !ggml_is_quantized(a.k->type) && !ggml_is_quantized(a.v->type) &&
               (a.k->type != GGML_TYPE_F16 || a.v->type != GGML_TYPE_F16);
        if (a.d == ATTN_WIDE) {
            use_wide(&a);
        } else if (!try_few(traits, &a)) {
            use_attn(traits, &a);
        }
        set_splits(traits, &a);
    }
    return a;
}

static bool attention_supports(const struct gpu_device *dev, const struct ggml_tensor *op) {
    const struct ggml_tensor *q = op->src[0], *k = op->src[1], *v = op->src[2], *mask = op->src[3], *sinks = op->src[4];
    if (q == NULL || k == NULL || v == NULL || q->type != GGML_TYPE_F32 || op->type != GGML_TYPE_F32 || !gpu_can_widen(k->type) ||
        !gpu_can_widen(v->type)) {
        return false;
    }
    const bool rows = (is_dense(k) || gpu_is_float(k->type)) && (is_dense(v) || gpu_is_float(v->type)) &&
                      q->ne[0] * (int64_t) max_size(q->nb[0], max_size(k->nb[0], v->nb[0])) < INT32_MAX &&
                      ggml_is_contiguous(op) && (k->type != GGML_TYPE_F32 || k->nb[1] % 4 == 0);
    const bool fits = q->ne[0] == k->ne[0] && k->ne[0] % 4 == 0 && v->ne[0] % 4 == 0 && k->ne[0] <= ATTN_WIDE &&
                      v->ne[0] <= ATTN_WIDE && k->ne[1] == v->ne[1] && k->ne[1] > 0 && k->ne[1] < INT32_MAX / 2 &&
                      k->ne[2] == v->ne[2] && k->ne[2] > 0 && q->ne[2] % k->ne[2] == 0 && k->ne[3] > 0 && v->ne[3] > 0 &&
                      q->ne[3] % k->ne[3] == 0 && q->ne[3] % v->ne[3] == 0 && q->ne[3] < 65536 &&
                      q->ne[1] * q->ne[2] < 65535 * ROWS && ggml_nrows(op) < INT32_MAX;
    const bool mask_fits =
        mask == NULL || (mask->type == GGML_TYPE_F16 && mask->nb[0] == 2 && mask->ne[0] >= k->ne[1] && mask->ne[1] >= q->ne[1] &&
                            mask->ne[2] > 0 && mask->ne[3] > 0 && mask->ne[2] * mask->ne[3] < 65536);
    return rows && fits && mask_fits && (sinks == NULL || (sinks->type == GGML_TYPE_F32 && sinks->nb[0] == sizeof(float))) &&
           attn_of(dev, op).shared <= cuda_traits(dev)->shared_max;
}

// The size suffices for this number of queries and keys and for any smaller number, which may use another kernel or more splits.
// With several splits, set_splits() launches no more blocks than run at the same time. This limits the rows of all splits
// together.
static size_t attention_work_size(const struct gpu_device *dev, const struct ggml_tensor *op) {
    const struct attn a = attn_of(dev, op);
    const int64_t n_kv = a.k->ne[1];
    // BLOCKS_MAX blocks of attn per multiprocessor (48 rows) have at least as many rows as the blocks of attn_wide or attn_few.
    const int64_t rows = min_i64(a.n_rows * ATTN_SPLITS, BLOCKS_MAX * cuda_traits(dev)->n_sm * ROWS);
    const size_t split = n_kv > STEP ? (size_t) (rows * (a.v->ne[0] + 2)) * sizeof(float) : 0;
    const size_t tiles = a.mask != NULL ? (size_t) (a.mask->ne[2] * a.mask->ne[3] *
                                                    (gpu_round_up(a.q->ne[1], ROWS_90) / ROWS_90) * (gpu_round_up(n_kv, 64) / 64))
                                        : 0;
    return max_size(a.work, max_size(split, tiles));
}

static void set_slopes(struct attn_args *a, float max_bias) {
    if (max_bias > 0.0f) {
        a->n_slope = 1;
        while (a->n_slope * 2 <= a->n_head) {
            a->n_slope *= 2;
        }
        a->slope_base[0] = -max_bias / (float) a->n_slope;
        a->slope_base[1] = -max_bias / 2.0f / (float) a->n_slope;
    }
}

static struct attn_args args_of(const struct attn *p, const struct ggml_tensor *op, char *work) {
    const struct ggml_tensor *q = p->q, *k = p->k, *v = p->v, *mask = p->mask;
    struct attn_args a = {.q = q->data,
        .k = k->data,
        .v = v->data,
        .mask = mask != NULL ? mask->data : NULL,
        .sinks = p->sinks != NULL ? p->sinks->data : NULL,
        .y = op->data,
        .part = (float *) work,
        .q_1 = (int64_t) q->nb[1],
        .q_2 = (int64_t) q->nb[2],
        .q_3 = (int64_t) q->nb[3],
        .k_1 = (int64_t) k->nb[1],
        .k_2 = (int64_t) k->nb[2],
        .k_3 = (int64_t) k->nb[3],
        .v_1 = (int64_t) v->nb[1],
        .v_2 = (int64_t) v->nb[2],
        .v_3 = (int64_t) v->nb[3],
        .mask_1 = mask != NULL ? (int64_t) mask->nb[1] : 0,
        .mask_2 = mask != NULL ? (int64_t) mask->nb[2] : 0,
        .mask_3 = mask != NULL ? (int64_t) mask->nb[3] : 0,
        .mask_ne2 = mask != NULL ? (int) mask->ne[2] : 1,
        .mask_ne3 = mask != NULL ? (int) mask->ne[3] : 1,
        .q_0 = (int) q->nb[0],
        .k_0 = (int) k->nb[0],
        .v_0 = (int) v->nb[0],
        .scale = param_f32(op, 0),
        .softcap = param_f32(op, 2),
        .d_k = (int) k->ne[0],
        .d_v = (int) v->ne[0],
        .n_kv = (int) k->ne[1],
        .n_q = (int) q->ne[1],
        .n_head = (int) q->ne[2],
        .n_group = (int) p->group,
        .n_batch = (int) q->ne[3],
        .k_type = (int) k->type,
        .v_type = (int) v->type,
        .k_row_size = (int) ggml_row_size(k->type, k->ne[0]),
        .v_row_size = (int) ggml_row_size(v->type, v->ne[0]),
        .k_r3 = (int) (q->ne[3] / k->ne[3]),
        .v_r3 = (int) (q->ne[3] / v->ne[3]),
        .n_stages = p->n_stages,
        .warp_shared = p->warp_shared,
        .n_split = (int) p->n_split,
        .n_rows = (int) p->n_rows,
        .skips = p->skips,
        .early = q->ne[1] == 1,
        .wait = 1};
    a.limit = a.part + p->n_split * p->n_rows * a.d_v;
    if (a.softcap != 0.0f) {
        a.scale /= a.softcap;
    }
    set_slopes(&a, param_f32(op, 1));
    return a;
}

// Describes t for copies of boxes. A box has k_rows rows of 64 f16, in the swizzled order that wgmma reads.
static enum ggml_status set_map(struct gpu_run *r, const struct ggml_tensor *t, int k_rows, struct cuda_tensor_map *map) {
    enum { FLOAT16 = 6, SWIZZLE_128 = 3, PROMOTE_256 = 3 };
    const uint64_t dims[4] = {(uint64_t) t->ne[0], (uint64_t) t->ne[1], (uint64_t) t->ne[2], (uint64_t) t->ne[3]};
    const uint64_t strides[3] = {t->nb[1], t->nb[2], t->nb[3]};
    const uint32_t box[4] = {64, (uint32_t) k_rows, 1, 1}, steps[4] = {1, 1, 1, 1};
    const CUresult rc = cuda_api(r->dev)->TensorMapEncodeTiled(
        map, FLOAT16, 4, t->data, dims, strides, box, steps, 0, SWIZZLE_128, PROMOTE_256, 0);
    return rc == CUDA_SUCCESS ? GGML_STATUS_SUCCESS
                              : cuda_fail((struct cuda_device *) r->dev, rc, "encoding a tensor map of %s", t->name);
}

static enum ggml_status run_many(struct gpu_run *r, const struct attn *p, struct attn_args *a, char *work) {
    struct attn90_args args;
    enum ggml_status status = GGML_STATUS_SUCCESS;
    if (a->mask != NULL) {
        a->kinds = (uint8_t *) work;
        const struct attn_mask_args mask = {.mask = a->mask,
            .kinds = (uint8_t *) work,
            .mask_1 = a->mask_1,
            .mask_2 = a->mask_2,
            .mask_3 = a->mask_3,
            .ne2 = a->mask_ne2,
            .n_q = a->n_q,
            .n_kv = a->n_kv,
            .q_rows = ROWS_90,
            .k_rows = p->k_rows,
            .wait = 1};
        const struct gpu_dims dims = gpu_grid(p->k_tiles, p->q_tiles, a->mask_ne2 * a->mask_ne3, 256, 0);
        status = gpu_launch(r, "attn_mask", dims, &mask);
        if (status != GGML_STATUS_SUCCESS) {
            return status;
        }
    }
    memset(&args, 0, sizeof args);
    args.a = *a;
    if ((status = set_map(r, p->k, p->k_rows, &args.k_map)) != GGML_STATUS_SUCCESS ||
        (status = set_map(r, p->v, p->k_rows, &args.v_map)) != GGML_STATUS_SUCCESS) {
        return status;
    }
    const struct gpu_dims dims = gpu_grid(p->q_tiles, a->n_head, a->n_batch, 384, p->shared);
    static const char *const names[3] = {"attn90_64", "attn90_128", "attn90_256"};
    return gpu_launch(r, names[p->d / 128], dims, &args);
}

static enum ggml_status attention_run(struct gpu_run *r, struct ggml_tensor *op) {
    const struct attn p = attn_of(r->dev, op);
    char *work = p.work > 0 ? gpu_work(r, p.work) : NULL;
    if (p.work > 0 && work == NULL) {
        return GGML_STATUS_FAILED;
    }
    struct attn_args a = args_of(&p, op, work);
    if (p.many) {
        return run_many(r, &p, &a, work);
    }
    const struct gpu_dims dims = gpu_grid(p.n_split, p.n_tiles * p.k->ne[2], a.n_batch, p.kernel.warps * 32, p.shared);
    const enum ggml_status status = gpu_launch(r, p.kernel.name, dims, &a);
    if (status != GGML_STATUS_SUCCESS || p.n_split <= 1) {
        return status;
    }
    const struct gpu_dims join = gpu_grid(p.n_rows, 1, 1, 128, 0);
    return gpu_launch(r, "attn_join", join, &a);
}

const struct gpu_op_entry cuda_ops_attention[] = {
    {GGML_OP_FLASH_ATTN_EXT, {.supports = attention_supports, .work_size = attention_work_size, .run = attention_run}},
    GPU_OPS_END,
};
