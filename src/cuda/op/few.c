// SPDX-License-Identifier: MIT
// few.c: products with 2 to 16 columns on sm_90a (kernel/few90.cuh). One launch converts the columns (kernel/act_few.cu), the next
// one multiplies. Converted columns stay in the arena, like those of matmul.c. If the columns are few and short, each block of the
// product converts them itself.

#include "cuda/op/matmul.h"

static bool is_dense(const struct cuda_mm_type *t) {
    return !ggml_is_quantized(t->type);
}
static int64_t chunk_of(const struct cuda_mm_type *t) { // elements per chunk
    return is_dense(t) ? 64 : 256;
}
// Returns whether the products of the residuals are computed. They need further columns of the tensor cores, which 8 columns allow
// for up to 4 columns.
static bool has_rest(const struct cuda_mm_type *t, int64_t n) {
    return is_dense(t) && n <= CUDA_MM_FEW;
}
static int64_t record_size(const struct cuda_mm_type *t, int64_t n) { // bytes of a chunk of the columns
    if (has_rest(t, n)) {
        n = n <= 2 ? 4 : 8;
    }
    return is_dense(t) ? FEW_RECORD_16(n) : FEW_RECORD_8(n);
}
static int64_t records_size(const struct cuda_mm_type *t, int64_t k, int64_t n) {
    const int64_t n_chunks = (k + chunk_of(t) - 1) / chunk_of(t);
    return gpu_round_up(n_chunks * record_size(t, n), 256);
}

size_t cuda_few_work_size(const struct cuda_mm_type *t, int64_t k, int64_t n) {
    n = min_i64(n, CUDA_FEW_MAX);
    // The records of 3 columns with residuals are larger than those of 5 columns without.
    const int64_t size = max_i64(records_size(t, k, n), records_size(t, k, min_i64(n, CUDA_MM_FEW)));
    return t->few[0] != NULL ? (size_t) (size + CUDA_FEW_MAX * (int64_t) sizeof(float)) : 0;
}

// How a product uses shared memory.
struct few_shape {
    int64_t part_steps, n_stages; // as in few_args; n_stages 0: the product does not fit
    int64_t shared_size;
    int64_t pitch; // bytes between the rows of a stage
};

static struct few_shape shape_of(const struct cuda_traits *traits, const struct cuda_mm_type *t, int64_t k, int64_t n) {
    const int64_t chunk = chunk_of(t), n_steps = ((k + chunk - 1) / chunk + FEW_CHUNKS - 1) / FEW_CHUNKS;
    const int64_t step_bytes = FEW_CHUNKS * chunk / ggml_blck_size(t->type) * (int64_t) ggml_type_size(t->type);
    const int64_t pitch = is_dense(t) ? step_bytes + 64 : (step_bytes + 111) / 128 * 128 + 16, stage = FEW_ROWS * pitch;
    const int64_t nb = n > 8 ? 2 : 1; // groups of 8 columns
    struct few_shape s = {.n_stages = 0, .pitch = pitch};
    const int64_t enough = 4; // stages; fewer stages make the warps wait for memory
    for (int64_t n_parts = 1; n_parts <= n_steps && s.n_stages < enough; n_parts++) {
        s.part_steps = (n_steps + n_parts - 1) / n_parts;
        const int64_t kept = n_parts > 1 ? FEW_BATCH * 512 * nb : 0;
        const int64_t fixed = FEW_FIXED(nb) + s.part_steps * FEW_CHUNKS * record_size(t, n) + kept;
        s.n_stages = s.part_steps <= FEW_STEPS ? max_i64(((int64_t) traits->shared_max - fixed) / stage, 0) : 0;
        s.n_stages = min_i64(s.n_stages, FEW_STAGES) / 2 * 2;
        s.shared_size = fixed + s.n_stages * stage;
    }
    return s;
}

static int64_t tiles_of(const few_args *a) {
    if (a->glu != MV_GLU_NONE) {
        return (a->m[0] + 7) / 8;
    }
    int64_t n = 0;
    for (int i = 0; i < a->n_parts; i++) {
        n += (a->m[i] + FEW_ROWS - 1) / FEW_ROWS;
    }
    return n;
}

bool cuda_is_few(const struct gpu_device *dev, const struct cuda_mm_type *t, const struct ggml_tensor *op) {
    const struct ggml_tensor *w = op->src[0], *x = op->src[1];
    const struct cuda_traits *traits = cuda_traits(dev);
    if (!traits->has_kernels_90a || t->few[0] == NULL || x->ne[1] < 2 || x->ne[1] > CUDA_FEW_MAX || ggml_nrows(x) != x->ne[1] ||
        ggml_nrows(w) != w->ne[1] || ((uintptr_t) w->data | w->nb[1]) % 16 != 0 || (is_dense(t) && w->ne[0] % 64 != 0)) {
        return false;
    }
    return shape_of(traits, t, w->ne[0], x->ne[1]).n_stages >= 2;
}

// Converts the columns, unless the arena still holds them. Returns their address in the arena. Returns NULL if the launch failed or
// the arena is too small.
static char *columns_get(struct gpu_run *r, const struct cuda_mm_type *t, const struct cuda_source *s) {
    const struct ggml_tensor *x = s->x;
    const int64_t k = x->ne[0], n = x->ne[1];
    const int kind = 1 << 16 | is_dense(t) << 2 | (is_dense(t) && t->bf) << 1 | has_rest(t, n);
    if (r->kept == s->as && r->kept_kind == kind) {
        return r->work;
    }
    char *work = gpu_work(r, cuda_few_work_size(t, k, n));
    if (work == NULL) {
        return NULL;
    }
    const act_few_args a = {.x = x->data,
        .norm = s->norm,
        .records = work,
        .scale = (float *) (work + records_size(t, k, n)),
        .x_col = (int64_t) x->nb[1],
        .eps = s->eps,
        .x_type = cuda_column_type(x->type),
        .k = (int) k,
        .n = (int) n,
        .bf = t->bf,
        .rest = has_rest(t, n),
        .wait = 1};
    // A norm and a scale per column require all elements of a column in one block.
    const int64_t per_block = 16 * 256,
                  n_blocks = s->norm != NULL || (is_dense(t) && !t->bf) ? 1 : (k + per_block - 1) / per_block;
    const struct gpu_dims dims = gpu_grid(n, n_blocks, 1, 512, 0);
    if (gpu_launch(r, is_dense(t) ? "act_few_16" : "act_few_8", dims, &a) != GGML_STATUS_SUCCESS) {
        return NULL;
    }
    r->kept = s->as;
    r->kept_kind = kind;
    return work;
}

// Describes the matrices for copies of boxes: one copy per step instead of eight. A box has 8 rows of `pitch` bytes, as elements of 8
// bytes. Elements after the end of a row and rows after the end of a matrix are zeros. If the driver or the hardware cannot copy
// boxes, rows are copied.
static void set_maps(struct gpu_run *r, const struct cuda_mm_type *t, few_args *a, int64_t pitch) {
    enum { UINT64 = 4, BOX_MAX = 256, PROMOTE_256 = 3 };
    const struct cuda_driver *cu = cuda_api(r->dev);
    const int64_t row_size = gpu_round_up((int64_t) ggml_row_size(t->type, a->k), 16);
    a->has_maps = cu->TensorMapEncodeTiled != NULL && pitch / 8 <= BOX_MAX;
    for (int i = 0; i < a->n_parts && a->has_maps; i++) {
        const uint64_t dims[2] = {(uint64_t) row_size / 8, (uint64_t) a->m[i]}, strides[1] = {(uint64_t) a->w_row};
        const uint32_t box[2] = {(uint32_t) pitch / 8, 8}, steps[2] = {1, 1};
        a->has_maps = cu->TensorMapEncodeTiled(&a->maps[i], UINT64, 2, (void *) (uintptr_t) a->w[i], dims, strides, box, steps, 0,
                          0, PROMOTE_256, 0) == CUDA_SUCCESS;
    }
}

static bool ranges_overlap(const void *a, size_t a_size, const void *b, size_t b_size) {
    return (const char *) a < (const char *) b + b_size && (const char *) b < (const char *) a + a_size;
}

// Returns whether the blocks convert the columns themselves: there are so few elements that this takes less time than another
// launch, and no result is written where another block may still read.
static bool converts_itself(
    const struct cuda_mm_type *t, const few_args *a, const struct cuda_source *s, const struct few_shape *shape) {
    enum { MOST = 16384 }; // elements
    const int64_t n_steps = ((a->k + 255) / 256 + FEW_CHUNKS - 1) / FEW_CHUNKS;
    if (is_dense(t) || s->x->type != GGML_TYPE_F32 || (int64_t) a->n * a->k > MOST || shape->part_steps < n_steps) {
        return false;
    }
    for (int i = 0; i < a->n_parts; i++) {
        const size_t size = (size_t) (a->n * a->y_col[i]) * sizeof(float);
        if (ranges_overlap(a->y[i], size, s->x->data, ggml_nbytes(s->x)) ||
            (s->norm != NULL && ranges_overlap(a->y[i], size, s->norm, (size_t) a->k * sizeof(float)))) {
            return false;
        }
    }
    return true;
}

enum ggml_status cuda_few(struct gpu_run *r, const struct cuda_mm_type *t, few_args *a, const struct cuda_source *source) {
    a->k = (int) source->x->ne[0];
    a->n = (int) source->x->ne[1];
    a->n_tiles = (int) tiles_of(a);
    a->rest = has_rest(t, a->n);
    a->wait = 1;
    const int64_t n_blocks = min_i64(a->n_tiles, cuda_traits(r->dev)->n_sm);
    const struct few_shape s = shape_of(cuda_traits(r->dev), t, a->k, a->n);
    if (converts_itself(t, a, source, &s)) {
        a->x = source->x->data;
        a->x_col = (int64_t) source->x->nb[1];
        a->norm = source->norm;
        a->eps = source->eps;
    } else {
        const char *columns = columns_get(r, t, source);
        if (columns == NULL) {
            return GGML_STATUS_FAILED;
        }
        a->records = columns;
        a->scale = is_dense(t) ? (const float *) (columns + records_size(t, a->k, a->n)) : NULL;
    }
    a->part_steps = (int) s.part_steps;
    a->n_stages = (int) s.n_stages;
    set_maps(r, t, a, s.pitch);
    return gpu_launch(r, t->few[a->n > 8], gpu_grid(n_blocks, 1, 1, FEW_THREADS, s.shared_size), a);
}
