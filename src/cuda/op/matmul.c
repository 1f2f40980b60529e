// SPDX-License-Identifier: MIT
// matmul.c: MUL_MAT. The first line whose columns and conditions match determines the kernel:
//
//   columns       kernel  conditions
//   1             mv      the type has an mv kernel, and the column is f32 and fits into shared memory (cuda_is_vector, mv.c)
//   1 to 8        mf      weights and columns are f32 and aligned to 16 bytes (can_run_floats)
//   2 to 16       few90   the GPU has the sm_90a kernels, the type has a few90 kernel, the product is not a batch (cuda_is_few, few.c)
//   17 to 32      mid     the weights are f16 or bf16, otherwise as below
//   17 or more    cuBLAS  cuBLAS is installed, the weights are dense, the columns are f32 and not a batch (can_run_blas)
//   9 to 128      mid     the weights are not f32 and are aligned to 16 bytes (cuda_can_mid)
//   129 or more   mid     cuda_can_mid as above, and the GPU does not have the sm_90a kernels, or mma90 would have work for at most
//                         half of the multiprocessors
//   1 to 16       mmv     none
//   17 or more    mmv     the GPU does not have the sm_90a kernels
//   17 or more    mma90   none
//
// mid is mid90 or mid80 (kernel/mid.cuh).
//
// In the code, the limits are MF_COLS (8), CUDA_MID_MIN (8), CUDA_MM_WIDE (16), CUDA_DENSE_MAX (32) and CUDA_MID_MAX (128).
// mmv, mid and mma90 read columns that were converted to f16 or bf16; mid and mma90 read them in tiles. cuBLAS reads
// converted columns, too, unless the weights are f32. mv and mf read the columns unconverted. Converted columns stay in the arena
// until another op uses the arena. If the next product has the same columns, it does not convert them again.

#include "cuda/op/matmul.h"

#include "cuda/blas.h"

// ---- types ----

// The kernels of each type (struct cuda_mm_type). HOT types are common: they have an mv kernel, and mma90 kernels for tiles of 64
// and of 256 columns. COLD types have no mv kernel, and one mma90 kernel, for tiles of 128 columns. Both have mid kernels for
// four tile widths (MID), and mmv kernels with 16 and with 8 warps.
// clang-format off
#define MID(name) {"mid_" #name "_8", "mid_" #name "_16", "mid_" #name "_32", "mid_" #name "_64"}
#define FEW(name) {"few90_" #name "_8", "few90_" #name "_16"}
#define HOT(TYPE, name)   {GGML_TYPE_##TYPE, "mv_" #name, "mmv_" #name, "mmv_" #name, "mma90_" #name "_64", NULL, "mma90_" #name "_256", false, NULL, "mmv_" #name "_8", "mmv_" #name "_8", MID(name), FEW(name)}
#define COLD(TYPE, name)  {GGML_TYPE_##TYPE, NULL, "mmv_" #name, "mmv_" #name, NULL, "mma90_" #name "_128", NULL, false, NULL, "mmv_" #name "_8", "mmv_" #name "_8", MID(name), {NULL}}
static const struct cuda_mm_type types[] = {
    {GGML_TYPE_F32, "mv_f32", "mmv_f32", "mmv_f32", "mma90_f32_64", NULL, "mma90_f32_256", true, "mvb_f32", "mmv_f32", "mmv_f32", {NULL}, {NULL}},
    {GGML_TYPE_F16, "mv_f16", "mmv_f16", "mmv_f16_wide", "mma90_f16_64", NULL, "mma90_f16_256", false, "mvb_f16", "mmv_f16_8", "mmv_f16_wide_8", MID(f16), FEW(f16)},
    {GGML_TYPE_BF16, "mv_bf16", "mmv_bf16", "mmv_bf16_wide", "mma90_bf16_64", NULL, "mma90_bf16_256", true, "mvb_bf16", "mmv_bf16_8", "mmv_bf16_wide_8", MID(bf16), FEW(bf16)},
    {GGML_TYPE_Q8_0, "mv_q8_0", "mmv_q8_0", "mmv_q8_0", "mma90_q8_0_64", NULL, "mma90_q8_0_256", false, NULL, "mmv_q8_0", "mmv_q8_0", MID(q8_0), FEW(q8_0)},
    HOT(Q4_0, q4_0), HOT(Q4_1, q4_1), HOT(Q5_0, q5_0), HOT(Q5_1, q5_1), HOT(Q2_K, q2_K), HOT(Q3_K, q3_K),
    HOT(Q4_K, q4_K), HOT(Q5_K, q5_K), HOT(Q6_K, q6_K), HOT(IQ4_NL, iq4_nl), HOT(IQ4_XS, iq4_xs), HOT(MXFP4, mxfp4), HOT(NVFP4, nvfp4),
    COLD(IQ2_XXS, iq2_xxs), COLD(IQ2_XS, iq2_xs), COLD(IQ2_S, iq2_s), COLD(IQ3_XXS, iq3_xxs), COLD(IQ3_S, iq3_s),
    COLD(IQ1_S, iq1_s), COLD(IQ1_M, iq1_m), COLD(Q1_0, q1_0), COLD(Q2_0, q2_0), COLD(TQ1_0, tq1_0), COLD(TQ2_0, tq2_0),
};
// clang-format on

const struct cuda_mm_type *cuda_mm_type(enum ggml_type type) {
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (types[i].type == type) {
            return &types[i];
        }
    }
    return NULL;
}

// ---- columns ----

#define MID_ROWS_MAX (65535 * 64 / 3) // a grid has at most 65,535 blocks along y, for up to three matrices

bool cuda_can_mid(const struct ggml_tensor *w) {
    return cuda_mm_type(w->type)->mid[0] != NULL && ((uintptr_t) w->data | w->nb[1] | w->nb[2] | w->nb[3]) % 16 == 0 &&
           w->nb[1] < (1u << 26) && w->ne[1] <= MID_ROWS_MAX;
}

int cuda_mm_tile(const struct gpu_device *dev, const struct cuda_mm_type *t, int64_t m, int64_t n, bool can_mid, bool *is_mid) {
    const int nt_mma = t->mma_128 != NULL ? 128 : 256;
    const int64_t n_blocks = (m + 127) / 128 * ((n + nt_mma - 1) / nt_mma); // of mma90
    const bool is_mma = cuda_traits(dev)->has_kernels_90a && n > CUDA_MID_MAX && n_blocks > cuda_traits(dev)->n_sm / 2;
    *is_mid = can_mid && n > CUDA_MID_MIN && !is_mma;
    if (*is_mid) {
        int nt = 16;
        while (nt < n && nt < 64) {
            nt *= 2;
        }
        return nt;
    }
    if (n <= CUDA_MM_WIDE || !cuda_traits(dev)->has_kernels_90a) {
        return 0;
    }
    return nt_mma == 256 && n <= CUDA_MID_MAX ? 64 : nt_mma;
}

struct cuda_columns cuda_columns_of(const struct cuda_mm_type *t, int64_t k, int64_t n, int64_t nz, int nt) {
    // rest: mmv_f32 always multiplies the rounding residuals. Of the other types, those with separate kernels mmv and mmv_wide
    // multiply them for few columns.
    struct cuda_columns c = {.nt = nt, .nz = nz, .rest = nt == 0 && n <= CUDA_MM_FEW && t->mmv != t->mmv_wide};
    c.rest |= nt == 0 && t->type == GGML_TYPE_F32;
    c.n = nt > 0 ? gpu_round_up(n, nt) : n;
    c.columns_size = (size_t) (nz * c.n * (c.rest ? 2 : 1) * gpu_round_up(k, 256)) * sizeof(uint16_t);
    c.columns_size = (size_t) gpu_round_up((int64_t) c.columns_size, 256);
    c.size = c.columns_size + (size_t) (nz * c.n) * sizeof(float);
    return c;
}

unsigned cuda_act_threads(int64_t k) {
    const int64_t n = gpu_round_up((k + 255) / 256 * 16, 32);
    return n <= ACT_THREADS ? (unsigned) n : 256;
}

// Converts the columns, unless the arena still holds them. Returns their address in the arena. Returns NULL if the launch failed or
// the arena is too small.
static char *columns_get(
    struct gpu_run *r, const struct cuda_mm_type *t, const struct cuda_source *s, const struct cuda_columns *c) {
    const struct ggml_tensor *x = s->x;
    const int kind = 1 + (c->nt << 3 | t->bf << 1 | c->rest);
    if (r->kept == s->as && r->kept_kind == kind) {
        return r->work;
    }
    char *work = gpu_work(r, c->size);
    if (work == NULL) {
        return NULL;
    }
    const act_args a = {.x = x->data,
        .tiles = (uint16_t *) work,
        .scale = (float *) (work + c->columns_size),
        .x_col = (int64_t) x->nb[1],
        .x_z2 = (int64_t) x->nb[2],
        .x_z3 = (int64_t) x->nb[3],
        .norm = s->norm,
        .x2 = s->x2 != NULL ? s->x2->data : NULL,
        .eps = s->eps,
        .glu = (int) s->glu,
        .x_ne1 = 1,
        .x_type = cuda_column_type(x->type),
        .k = (int) x->ne[0],
        .n = (int) x->ne[1],
        .nt = c->nt > 0 ? c->nt : 1,
        .ne2 = (int) x->ne[2],
        .bf = t->bf,
        .plain = c->plain,
        .flat = c->nt == 0,
        .rest = c->rest,
        .wait = 1};
    const struct gpu_dims dims = gpu_grid(c->n, c->nz, 1, cuda_act_threads(x->ne[0]), 0);
    if (gpu_launch(r, "act_tiles", dims, &a) != GGML_STATUS_SUCCESS) {
        return NULL;
    }
    r->kept = s->as;
    r->kept_kind = kind;
    return work;
}

// ---- few columns ----

static int64_t mmv_chunk(enum ggml_type t) { // elements per chunk; equals the chunk size in kernel/decode.cuh
    return t == GGML_TYPE_F32 || t == GGML_TYPE_F16 || t == GGML_TYPE_BF16 ? 128 : 256;
}
// Returns the warps per block. Each warp copies chunks of weights in advance into its own ring in shared memory. A stage of the
// ring holds one chunk. The rings of 16 warps use twice as many bytes per stage as the rings of 8 warps. So 8 warps are used if
// the GPU has little shared memory. f32 and q8_0 have the largest chunks, so they have only kernels with 8 warps.
static int64_t mmv_warps(const struct gpu_run *r, enum ggml_type t) {
    const bool has_room = cuda_traits(r->dev)->shared_max >= 200 * 1024;
    return t == GGML_TYPE_F32 || t == GGML_TYPE_Q8_0 || !has_room ? MMV_WARPS_LARGE : MMV_WARPS;
}

static enum ggml_status mmv_launch(struct gpu_run *r, const struct cuda_mm_type *t, mmv_args *a, const struct cuda_columns *c) {
    const int64_t chunk = mmv_chunk(t->type), warps = mmv_warps(r, t->type), n = min_i64(a->n, 8), fixed = MMV_FIXED(warps);
    const int64_t bytes = chunk / ggml_blck_size(t->type) * (int64_t) ggml_type_size(t->type);
    const int64_t stage = (((bytes + 14) / 16 + 1) | 1) * 16 * 16 * warps, shared_max = (int64_t) cuda_traits(r->dev)->shared_max;
    const int64_t n_chunks = (a->k + chunk - 1) / chunk, parts = c->rest ? 2 : 1;
    int64_t k_part = n_chunks;
    while (fixed + parts * n * (k_part * chunk + 8) * 2 + 2 * stage > shared_max && k_part > 1) {
        k_part = (k_part + 1) / 2;
    }
    const int64_t cols = fixed + parts * n * (k_part * chunk + 8) * 2, max_stages = (shared_max - cols) / stage;
    a->k_part = (int) k_part;
    // With 16 warps and quantised weights, three stages are 4% slower than two (H200).
    const int64_t useful_stages = ggml_is_quantized(t->type) && warps == MMV_WARPS ? 2 : 7;
    a->n_stages = (int) min_i64(max_stages, useful_stages);
    a->wait = 1;
    const int64_t tiles = (a->m + 15) / 16, blocks = (int64_t) cuda_traits(r->dev)->n_sm;
    const struct gpu_dims dims = gpu_grid(min_i64(tiles, blocks), (a->n + 7) / 8, c->nz, warps * 32, cols + a->n_stages * stage);
    const char *kernel_16 = c->rest ? t->mmv : t->mmv_wide, *kernel_8 = c->rest ? t->mmv_8 : t->mmv_wide_8;
    return gpu_launch(r, warps == MMV_WARPS ? kernel_16 : kernel_8, dims, a);
}

// Initialisers that all products with several columns have in common.
// clang-format off
#define MM_OPERANDS(w_, x_, op) \
    .w = (w_)->data, .w_row = (int64_t) (w_)->nb[1], .w_z2 = (int64_t) (w_)->nb[2], .w_z3 = (int64_t) (w_)->nb[3], \
    .y = (op)->data, .y_col = (int64_t) ((op)->nb[1] / sizeof(float)), .y_z2 = (int64_t) ((op)->nb[2] / sizeof(float)), \
    .y_z3 = (int64_t) ((op)->nb[3] / sizeof(float)), .m = (int) (w_)->ne[1], .k = (int) (w_)->ne[0], .n = (int) (x_)->ne[1], \
    .ne2 = (int) (x_)->ne[2], .r2 = (int) ((x_)->ne[2] / (w_)->ne[2]), .r3 = (int) ((x_)->ne[3] / (w_)->ne[3])
// clang-format on

// ---- f32 columns and weights without conversion ----

static size_t floats_shared(const struct ggml_tensor *x) { // bytes of the columns and of the sums
    return (size_t) (MF_COLS * x->ne[0]) * sizeof(float) + 2 * MF_THREADS / 32 * MF_ROWS * MF_COLS * sizeof(float);
}

// Returns whether mf can compute the product.
static bool can_run_floats(const struct gpu_device *dev, const struct ggml_tensor *op) {
    const struct ggml_tensor *w = op->src[0], *x = op->src[1];
    const uintptr_t bits =
        (uintptr_t) w->data | w->nb[1] | w->nb[2] | w->nb[3] | (uintptr_t) x->data | x->nb[1] | x->nb[2] | x->nb[3];
    return w->type == GGML_TYPE_F32 && x->type == GGML_TYPE_F32 && x->ne[1] <= MF_COLS && x->ne[0] % 4 == 0 && bits % 16 == 0 &&
           floats_shared(x) <= cuda_traits(dev)->shared_max;
}

static enum ggml_status run_floats(struct gpu_run *r, struct ggml_tensor *op) {
    const struct ggml_tensor *w = op->src[0], *x = op->src[1];
    const mf_args a = {MM_OPERANDS(w, x, op), .x = x->data, .x_col = (int64_t) (x->nb[1] / sizeof(float)),
        .x_z2 = (int64_t) (x->nb[2] / sizeof(float)), .x_z3 = (int64_t) (x->nb[3] / sizeof(float)),
        .w_const = gpu_is_const(r->graph, w), .wait = 1};
    const int64_t n_turns = (a.m + MF_ROWS - 1) / MF_ROWS, max_blocks = cuda_traits(r->dev)->n_sm;
    const struct gpu_dims dims = gpu_grid(min_i64(n_turns, max_blocks), 1, x->ne[2] * x->ne[3], MF_THREADS, floats_shared(x));
    return gpu_launch(r, "mf_f32", dims, &a);
}

// ---- many columns ----

// How mid divides a product among blocks.
struct mid_shape {
    // groups: groups of four warps. row_groups: groups with different rows; the other groups have other chunks of the same rows.
    // ranks: blocks per cluster.
    int64_t groups, row_groups, ranks;
    int64_t n_stages; // chunks in each ring; less than 2: the block does not fit
    int64_t shared;   // bytes of shared memory
    double cost;      // predicted time of the product; the unit is the time of one chunk
};

// Returns the distance of the rows of a chunk in a ring, in bytes; equals mmv_stage::PITCH. *bytes: bytes of a chunk.
static int64_t mid_pitch(const struct cuda_mm_type *t, int64_t *bytes) {
    *bytes = mmv_chunk(t->type) / ggml_blck_size(t->type) * (int64_t) ggml_type_size(t->type);
    return (((*bytes + 14) / 16 + 1) | 1) * 16;
}

// Returns the number of blocks of `rows` rows of all matrices.
static int64_t mid_row_blocks(const mma_args *a, int64_t rows) {
    int64_t n = (a->m + rows - 1) / rows;
    for (int i = 0; i < a->n_more; i++) {
        n += (a->m_more[i] + rows - 1) / rows;
    }
    return n;
}

static struct mid_shape mid90_shape_of(const struct gpu_run *r, const struct cuda_mm_type *t, int nt, const mma_args *a,
    int64_t nz, int64_t row_groups, int64_t ranks) {
    int64_t bytes;
    const int64_t pitch = mid_pitch(t, &bytes), chunk = mmv_chunk(t->type), chunk_groups = MID_GROUPS / row_groups,
                  n_sm = cuda_traits(r->dev)->n_sm;
    const int64_t columns_size = chunk_groups * nt * chunk * 2, stage = MID_GROUPS * 64 * pitch + columns_size;
    struct mid_shape s = {.groups = MID_GROUPS, .row_groups = row_groups, .ranks = ranks};
    s.n_stages = min_i64(((int64_t) cuda_traits(r->dev)->shared_max - MID_HEAD) / stage, MID_STAGES);
    const int64_t sums = (int64_t) MID_GROUPS * nt * MID_PITCH * (int64_t) sizeof(float);
    s.shared = MID_HEAD + max_i64(sums, s.n_stages * stage);
    const int64_t n_blocks = mid_row_blocks(a, 64 * row_groups) * ranks * a->n_tiles * nz;
    int64_t usable = n_sm;
    if (ranks > 2) { // not all multiprocessors can be part of large clusters (H200)
        usable = n_sm * (ranks == 4 ? 7 : 6) / 8;
    }
    const int64_t n_at_once = max_i64(usable / ranks, 1) * ranks, n_waves = (n_blocks + n_at_once - 1) / n_at_once;
    const int64_t n_chunks = ((a->k + chunk - 1) / chunk + ranks * chunk_groups - 1) / (ranks * chunk_groups);
    const double per_chunk = 1 + 0.5 * (double) columns_size / (double) (MID_GROUPS * 64 * bytes);
    s.cost = (double) n_waves * ((double) n_chunks * per_chunk + 2);
    return s;
}

static struct mid_shape mid80_shape_of(const struct gpu_run *r, const struct cuda_mm_type *t, int nt, const mma_args *a,
    int64_t nz, int64_t groups, int64_t row_groups) {
    int64_t bytes;
    const int64_t pitch = mid_pitch(t, &bytes), chunk = mmv_chunk(t->type), chunk_groups = groups / row_groups;
    const int64_t shared_max = (int64_t) cuda_traits(r->dev)->shared_max, columns_size = MID80_STEPS * chunk_groups * nt * 128,
                  stage = groups * 64 * pitch;
    struct mid_shape s = {.groups = groups, .row_groups = row_groups, .ranks = 1};
    s.n_stages = min_i64((shared_max - columns_size) / stage, MID_STAGES);
    const int64_t sums = groups * nt * MID_PITCH * (int64_t) sizeof(float);
    s.shared = max_i64(sums, columns_size + s.n_stages * stage);
    const int64_t per_sm = clamp_i64(shared_max / (s.shared + 1024), 1, 4), n_at_once = per_sm * cuda_traits(r->dev)->n_sm;
    const int64_t n_blocks = mid_row_blocks(a, 64 * row_groups) * a->n_tiles * nz,
                  n_waves = (n_blocks + n_at_once - 1) / n_at_once;
    const int64_t n_turns = ((a->k + chunk - 1) / chunk + chunk_groups - 1) / chunk_groups;
    // Two groups on a multiprocessor take as long as one; more share its tensor cores.
    s.cost = (double) (n_waves * (n_turns + 2)) * (double) max_i64(per_sm * groups, 2);
    return s;
}

static void shape_keep_cheaper(struct mid_shape *best, struct mid_shape s) {
    if (s.n_stages >= 2 && (best->n_stages == 0 || s.cost < best->cost)) {
        *best = s;
    }
}

enum ggml_status cuda_mid_tiles(struct gpu_run *r, const struct cuda_mm_type *t, int nt, mma_args *a, int64_t nz) {
    const bool is_90a = cuda_traits(r->dev)->has_kernels_90a;
    struct mid_shape best = {.n_stages = 0};
    for (int64_t row_groups = 1; row_groups <= MID_GROUPS; row_groups *= 2) {
        for (int64_t ranks = 1; is_90a && ranks <= min_i64(8, cuda_traits(r->dev)->n_sm); ranks *= 2) {
            shape_keep_cheaper(&best, mid90_shape_of(r, t, nt, a, nz, row_groups, ranks));
        }
        for (int64_t groups = row_groups; !is_90a && groups <= MID_GROUPS; groups *= 2) {
            shape_keep_cheaper(&best, mid80_shape_of(r, t, nt, a, nz, groups, row_groups));
        }
    }
    BERTH_ASSERT(best.n_stages >= 2); // some shape fits into the shared memory of every GPU
    a->n_row_groups = (int) best.row_groups;
    a->n_stages = (int) best.n_stages;
    const int64_t n_row_blocks = mid_row_blocks(a, 64 * best.row_groups), n_tiles = a->n_tiles * nz;
    // mid90: the blocks of a cluster are along x. mid80: the tiles of the same rows are along x, so that they run at the same time and
    // the L2 cache has the rows.
    struct gpu_dims dims =
        gpu_grid(is_90a ? best.ranks : n_tiles, n_row_blocks, is_90a ? n_tiles : 1, best.groups * 128, best.shared);
    dims.cluster = (unsigned) best.ranks;
    int i = 0; // nt is 8, 16, 32 or 64
    while (8 << i < nt) {
        i++;
    }
    return gpu_launch(r, t->mid[i], dims, a);
}

enum ggml_status cuda_mm_tiles(struct gpu_run *r, const struct cuda_mm_type *t, int nt, const mma_args *a, int64_t nz) {
    const bool dense = !ggml_is_quantized(t->type);
    const int64_t chunk = dense ? 64 : 256, bytes = chunk / ggml_blck_size(t->type) * (int64_t) ggml_type_size(t->type);
    const int64_t pitch = (((bytes + 14) / 16 + 1) | 1) * 16;
    const int64_t n_a = dense && t->type != GGML_TYPE_F32 ? 4 : 2, n_b = nt == 256 ? 4 : 6;
    const struct gpu_dims dims =
        gpu_grid(a->n_tiles, (a->m + 127) / 128, nz, 384, n_b * nt * 128 + n_a * pitch * 128 + 256 + 1024 + 64);
    if (nt == 128) {
        return gpu_launch(r, t->mma_128, dims, a);
    }
    return gpu_launch(r, nt == 64 ? t->mma_64 : t->mma_256, dims, a);
}

// ---- MUL_MAT ----

static bool matmul_supports(GPU_DEV, const struct ggml_tensor *op) {
    const struct ggml_tensor *w = op->src[0], *x = op->src[1];
    if (w == NULL || x == NULL || cuda_mm_type(w->type) == NULL || op->type != GGML_TYPE_F32 || !gpu_is_float(x->type)) {
        return false;
    }
    const bool rows = w->nb[0] == ggml_type_size(w->type) && x->nb[0] == ggml_type_size(x->type) && op->nb[0] == sizeof(float);
    const bool fits = w->ne[0] == x->ne[0] && w->ne[0] > 0 && w->ne[0] < INT32_MAX && w->ne[1] < INT32_MAX &&
                      x->ne[1] < INT32_MAX && x->ne[2] % w->ne[2] == 0 && x->ne[3] % w->ne[3] == 0 &&
                      x->ne[2] * x->ne[3] < 65536 && (op->nb[1] | op->nb[2] | op->nb[3]) % sizeof(float) == 0;
    // If the size of a block is a multiple of 4, the kernels read the block in aligned words of 4 bytes. Other blocks may have
    // any address.
    const bool aligned = !ggml_is_quantized(w->type) || ggml_type_size(w->type) % 4 != 0 || w->nb[1] % 4 == 0;
    return rows && fits && aligned && x->ne[1] / 8 < 65535;
}

// Returns whether cuBLAS computes the product: a single product (not a batch) of dense weights with many columns.
static bool can_run_blas(const struct gpu_device *dev, const struct cuda_mm_type *t, const struct ggml_tensor *op) {
    const struct ggml_tensor *w = op->src[0], *x = op->src[1];
    return !ggml_is_quantized(t->type) && x->ne[1] > CUDA_MM_WIDE && x->ne[2] * x->ne[3] == 1 && x->type == GGML_TYPE_F32 &&
           w->nb[1] % ggml_type_size(w->type) == 0 && w->nb[1] / ggml_type_size(w->type) < INT32_MAX && cuda_blas_is_ready(dev);
}

static struct cuda_columns blas_columns(const struct cuda_mm_type *t, const struct ggml_tensor *x) {
    struct cuda_columns c = {.nt = 1, .plain = true, .n = x->ne[1], .nz = 1};
    if (t->type != GGML_TYPE_F32) { // cuBLAS reads f32 columns unconverted
        c.columns_size = (size_t) gpu_round_up(x->ne[1] * gpu_round_up(x->ne[0], 8) * (int64_t) sizeof(uint16_t), 256);
    }
    c.size = c.columns_size + CUDA_BLAS_WORK;
    return c;
}

static struct cuda_columns matmul_columns(const struct gpu_device *dev, const struct ggml_tensor *op) {
    const struct cuda_mm_type *t = cuda_mm_type(op->src[0]->type);
    const struct ggml_tensor *x = op->src[1];
    if (can_run_blas(dev, t, op) && (x->ne[1] > CUDA_DENSE_MAX || !cuda_can_mid(op->src[0]))) {
        return blas_columns(t, x);
    }
    bool is_mid;
    const int nt = cuda_mm_tile(dev, t, op->ne[0], x->ne[1], cuda_can_mid(op->src[0]), &is_mid);
    struct cuda_columns c = cuda_columns_of(t, x->ne[0], x->ne[1], x->ne[2] * x->ne[3], nt);
    c.is_mid = is_mid;
    return c;
}

// Returns a size that suffices for the columns of this op and for any smaller number of columns, because graphs are reserved with
// the largest number. A smaller number may select another kernel, which may need more memory.
static size_t matmul_work_size(const struct gpu_device *dev, const struct ggml_tensor *op) {
    const struct cuda_mm_type *t = cuda_mm_type(op->src[0]->type);
    const struct ggml_tensor *x = op->src[1];
    size_t size = cuda_is_vector(dev, t, op) ? 0 : matmul_columns(dev, op).size;
    size = max_size(size, cuda_few_work_size(t, x->ne[0], x->ne[1]));
    if (can_run_blas(dev, t, op)) { // even if mid90 is chosen here, because the choice depends on the address of the weights
        size = max_size(size, blas_columns(t, x).size);
    }
    static const int64_t limits[] = {CUDA_MM_FEW, CUDA_MM_WIDE, CUDA_MID_MAX};
    for (size_t i = 0; i <= sizeof limits / sizeof limits[0]; i++) {
        const int64_t n = i < sizeof limits / sizeof limits[0] ? min_i64(limits[i], x->ne[1]) : x->ne[1];
        // cuda_can_mid depends on the address of the weights, which may not be set yet. So both of its results are considered.
        for (int can_mid = 0; can_mid < 2; can_mid++) {
            bool is_mid;
            const int nt = cuda_mm_tile(dev, t, op->ne[0], n, can_mid && t->mid[0] != NULL, &is_mid);
            size = max_size(size, cuda_columns_of(t, x->ne[0], n, x->ne[2] * x->ne[3], nt).size);
        }
    }
    // cuBLAS computes only single products. A smaller graph may have a single product instead of this batch.
    if (x->ne[2] * x->ne[3] > 1) {
        struct ggml_tensor column = *x, one = *op;
        column.ne[2] = column.ne[3] = 1;
        one.src[1] = &column;
        size = max_size(size, matmul_columns(dev, &one).size);
    }
    return size;
}

static enum ggml_status run_one(struct gpu_run *r, const struct cuda_mm_type *t, struct ggml_tensor *op) {
    const struct ggml_tensor *w = op->src[0], *x = op->src[1];
    mv_args a = {.w = {w->data},
        .y = {op->data},
        .m = {(int) w->ne[1]},
        .n_parts = 1,
        .x = x->data,
        .w_row = (int64_t) w->nb[1],
        .w_z2 = (int64_t) w->nb[2],
        .w_z3 = (int64_t) w->nb[3],
        .x_z2 = (int64_t) (x->nb[2] / sizeof(float)),
        .x_z3 = (int64_t) (x->nb[3] / sizeof(float)),
        .y_z2 = (int64_t) (op->nb[2] / sizeof(float)),
        .y_z3 = (int64_t) (op->nb[3] / sizeof(float)),
        .k = (int) w->ne[0],
        .ne2 = (int) x->ne[2],
        .r2 = (int) (x->ne[2] / w->ne[2]),
        .r3 = (int) (x->ne[3] / w->ne[3]),
        .w_const = gpu_is_const(r->graph, w)};
    return cuda_mv(r, t, &a, x->ne[2] * x->ne[3]);
}

static enum ggml_status run_few90(struct gpu_run *r, const struct cuda_mm_type *t, struct ggml_tensor *op) {
    const struct ggml_tensor *w = op->src[0], *x = op->src[1];
    few_args a = {.w = {w->data},
        .y = {op->data},
        .m = {(int) w->ne[1]},
        .n_parts = 1,
        .w_row = (int64_t) w->nb[1],
        .y_col = {(int64_t) (op->nb[1] / sizeof(float))},
        .w_const = gpu_is_const(r->graph, w)};
    return cuda_few(r, t, &a, &(struct cuda_source){.x = x, .as = x});
}

static enum ggml_status run_few(
    struct gpu_run *r, const struct cuda_mm_type *t, struct ggml_tensor *op, const struct cuda_columns *c, const char *columns) {
    const struct ggml_tensor *w = op->src[0], *x = op->src[1];
    const int64_t kpad = gpu_round_up(x->ne[0], 256);
    const uintptr_t starts = (uintptr_t) w->data | w->nb[1] | w->nb[2] | w->nb[3];
    mmv_args a = {MM_OPERANDS(w, x, op), .xh = (const uint16_t *) columns, .scale = (const float *) (columns + c->columns_size),
        .xh_col = kpad, .xh_z = kpad * x->ne[1] * (c->rest ? 2 : 1), .xh_rest = x->ne[1], .scale_z = x->ne[1],
        .w_fours = starts % 4 == 0, .w_sixteens = starts % 16 == 0 && w->nb[1] < (1u << 26),
        .w_const = gpu_is_const(r->graph, w)};
    return mmv_launch(r, t, &a, c);
}

static enum ggml_status run_many(
    struct gpu_run *r, const struct cuda_mm_type *t, struct ggml_tensor *op, const struct cuda_columns *c, const char *columns) {
    const struct ggml_tensor *w = op->src[0], *x = op->src[1];
    mma_args a = {MM_OPERANDS(w, x, op), .tiles = (const uint16_t *) columns,
        .scale = (const float *) (columns + c->columns_size), .tiles_z = c->n * gpu_round_up(x->ne[0], 256), .scale_z = c->n,
        .n_tiles = (int) (c->n / c->nt), .wait = 1, .w_const = gpu_is_const(r->graph, w)};
    if (c->is_mid) {
        return cuda_mid_tiles(r, t, c->nt, &a, c->nz);
    }
    return cuda_mm_tiles(r, t, c->nt, &a, c->nz);
}

bool cuda_is_mid(const struct gpu_device *dev, const struct cuda_mm_type *t, const struct ggml_tensor *op) {
    const struct ggml_tensor *x = op->src[1];
    return x->ne[1] > CUDA_MID_MIN && x->ne[1] <= CUDA_MID_MAX && ggml_nrows(x) == x->ne[1] && !cuda_is_few(dev, t, op) &&
           matmul_columns(dev, op).is_mid;
}

enum ggml_status cuda_mid(struct gpu_run *r, const struct cuda_mm_type *t, mma_args *a, const struct ggml_tensor *op,
    const struct cuda_source *source) {
    const struct cuda_columns c = matmul_columns(r->dev, op);
    const char *columns = columns_get(r, t, source, &c);
    if (columns == NULL) {
        return GGML_STATUS_FAILED;
    }
    a->tiles = (const uint16_t *) columns;
    a->scale = (const float *) (columns + c.columns_size);
    a->k = (int) source->x->ne[0];
    a->n = (int) source->x->ne[1];
    a->ne2 = a->r2 = a->r3 = 1;
    a->n_tiles = (int) (c.n / c.nt);
    a->wait = 1;
    return cuda_mid_tiles(r, t, c.nt, a, 1);
}

static enum ggml_status run_blas(
    struct gpu_run *r, const struct cuda_mm_type *t, struct ggml_tensor *op, const struct cuda_columns *c, char *columns) {
    const struct ggml_tensor *w = op->src[0], *x = op->src[1];
    const bool floats = t->type == GGML_TYPE_F32;
    const struct cuda_gemm g = {.type = t->type,
        .w = w->data,
        .x = floats ? x->data : (const void *) columns,
        .y = op->data,
        .m = w->ne[1],
        .n = x->ne[1],
        .k = w->ne[0],
        .w_row = (int64_t) (w->nb[1] / ggml_type_size(w->type)),
        .x_col = floats ? (int64_t) (x->nb[1] / sizeof(float)) : gpu_round_up(x->ne[0], 8),
        .y_col = (int64_t) (op->nb[1] / sizeof(float)),
        .work = columns + c->columns_size};
    return cuda_blas_gemm(r, &g);
}

static enum ggml_status matmul_run(struct gpu_run *r, struct ggml_tensor *op) {
    const struct cuda_mm_type *t = cuda_mm_type(op->src[0]->type);
    if (cuda_is_vector(r->dev, t, op)) {
        return run_one(r, t, op);
    }
    if (can_run_floats(r->dev, op)) {
        return run_floats(r, op);
    }
    if (cuda_is_few(r->dev, t, op)) {
        return run_few90(r, t, op);
    }
    const struct cuda_columns c = matmul_columns(r->dev, op);
    const bool is_unconverted = c.plain && c.columns_size == 0;
    char *columns =
        is_unconverted ? gpu_work(r, c.size) : columns_get(r, t, &(struct cuda_source){.x = op->src[1], .as = op->src[1]}, &c);
    if (columns == NULL) {
        return GGML_STATUS_FAILED;
    }
    if (c.plain) {
        return run_blas(r, t, op, &c, columns);
    }
    return c.nt > 0 ? run_many(r, t, op, &c, columns) : run_few(r, t, op, &c, columns);
}

const struct gpu_op_entry cuda_ops_matmul[] = {
    {GGML_OP_MUL_MAT, {.supports = matmul_supports, .work_size = matmul_work_size, .run = matmul_run}},
    GPU_OPS_END,
};
