// SPDX-License-Identifier: MIT
// mv.c: products of one column (kernel/mv.cuh). A fusion computes a chain of nodes: the norm of the column, up to three products,
// and the addition of the residual or the gate (GLU). With one column, it is one launch. With up to 128 columns, a second launch
// converts the columns and computes the norm. With 17 to 128 columns, this launch also computes the gate. cuda_mv_gather moves products of a column together.

#include "cuda/op/matmul.h"

#include "core/graph.h"

// ---- one launch ----

// Returns the elements of a row in one stage of a warp's ring.
static int64_t step_of(const struct cuda_mm_type *t) {
    if (ggml_is_quantized(t->type)) {
        return 2048;
    }
    return t->type == GGML_TYPE_F32 ? 512 : 1024;
}
// Returns the bytes of a column of k elements in shared memory (mv.cuh).
static int64_t column_size(const struct cuda_mm_type *t, int64_t k) {
    return ggml_is_quantized(t->type) ? k / 32 * 48 : gpu_round_up(k, 8) * 4;
}
static int64_t stage_size(const struct cuda_mm_type *t) { // bytes of one stage of one warp: two rows
    const int64_t bytes = step_of(t) / ggml_blck_size(t->type) * (int64_t) ggml_type_size(t->type);
    return ((bytes + 30) / 16 * 16 + 16) * 2;
}
static int64_t fixed_size(const struct cuda_mm_type *t, int64_t k) { // bytes of shared memory for barriers and the column
    return MV_WARPS * 64 + gpu_round_up(column_size(t, k), 16) + 64;
}

bool cuda_mv_fits(const struct gpu_device *dev, const struct cuda_mm_type *t, int64_t k) {
    return t->mv != NULL && fixed_size(t, k) + MV_WARPS * stage_size(t) <= (int64_t) cuda_traits(dev)->shared_max;
}

// Returns whether all rows begin and end at multiples of 16 bytes.
static bool rows_are_aligned_16(const struct cuda_mm_type *t, const mv_args *a) {
    uintptr_t bits =
        (uintptr_t) a->w_row | (uintptr_t) a->w_z2 | (uintptr_t) a->w_z3 | (uintptr_t) a->k * ggml_type_size(t->type);
    for (int i = 0; i < a->n_parts; i++) {
        bits |= (uintptr_t) a->w[i];
    }
    return bits % 16 == 0;
}

static enum ggml_status run_block(struct gpu_run *r, const struct cuda_mm_type *t, mv_args *a, int64_t nz) {
    const int64_t rows_per_turn = a->glu != MV_GLU_NONE ? 2 : 4, shared = fixed_size(t, a->k);
    int64_t n_turns = 0;
    for (int i = 0; i < (a->glu != MV_GLU_NONE ? 1 : a->n_parts); i++) {
        n_turns += (a->m[i] + rows_per_turn - 1) / rows_per_turn;
    }
    const int64_t max_blocks = (int64_t) cuda_traits(r->dev)->n_sm *
                               (MVB_BLOCKS * (shared + 2048) <= (int64_t) cuda_traits(r->dev)->shared_max ? MVB_BLOCKS : 1);
    const int64_t grid = min_i64(n_turns, max_i64(max_blocks / nz, 1));
    a->n_full = a->n_turns = (int) n_turns;
    a->n_last = (int) rows_per_turn;
    if (a->n_parts == 1 || a->glu != MV_GLU_NONE) { // distribute the last rows evenly over all blocks
        const int64_t n_full = a->m[0] / (grid * rows_per_turn) * grid, rows_left = a->m[0] - n_full * rows_per_turn;
        a->n_full = (int) n_full;
        a->n_last = (int) (rows_left > 0 ? (rows_left + grid - 1) / grid : rows_per_turn);
        a->n_turns = (int) (n_full + (rows_left + a->n_last - 1) / a->n_last);
    }
    const struct gpu_dims dims = gpu_grid(grid, 1, nz, MV_WARPS * 32, shared);
    return gpu_launch(r, t->mvb, dims, a);
}

enum ggml_status cuda_mv(struct gpu_run *r, const struct cuda_mm_type *t, mv_args *a, int64_t nz) {
    a->wait = 1;
    if (t->mvb != NULL && rows_are_aligned_16(t, a)) {
        return run_block(r, t, a, nz);
    }
    int64_t n_turns = a->glu != MV_GLU_NONE ? a->m[0] : 0; // a turn is two rows of one warp
    for (int i = 0; i < a->n_parts && a->glu == MV_GLU_NONE; i++) {
        n_turns += (a->m[i] + 1) / 2;
    }
    // All blocks of all nz products run at the same time.
    const int64_t n_blocks = (n_turns + MV_WARPS - 1) / MV_WARPS,
                  max_blocks = max_i64((int64_t) cuda_traits(r->dev)->n_sm / nz, 1);
    // One block per multiprocessor uses all of the shared memory. Two blocks of half the size took a fifth longer, because their
    // rings were too short.
    const int64_t fixed = fixed_size(t, a->k), stage = MV_WARPS * stage_size(t),
                  max_stages = ((int64_t) cuda_traits(r->dev)->shared_max - fixed) / stage;
    a->n_stages = (int) min_i64(max_stages, 7);
    const struct gpu_dims dims = gpu_grid(min_i64(n_blocks, max_blocks), 1, nz, MV_WARPS * 32, fixed + a->n_stages * stage);
    return gpu_launch(r, t->mv, dims, a);
}

bool cuda_is_vector(const struct gpu_device *dev, const struct cuda_mm_type *t, const struct ggml_tensor *op) {
    const struct ggml_tensor *w = op->src[0], *x = op->src[1];
    const bool sixteens = (t->type != GGML_TYPE_Q4_K && t->type != GGML_TYPE_Q5_K) ||
                          ((uintptr_t) w->data | w->nb[1] | w->nb[2] | w->nb[3]) % 16 == 0; // q4_K, q5_K: read in 16-byte words
    return x->ne[1] == 1 && x->type == GGML_TYPE_F32 && sixteens && cuda_mv_fits(dev, t, x->ne[0]);
}

// ---- fusion with the surrounding ops ----

// Nodes that are computed together: [RMS_NORM MUL or GLU] MUL_MAT ... [GLU or ADD].
struct chain {
    const struct ggml_tensor *norm, *scale; // RMS_NORM and its weights; NULL: no norm
    const struct ggml_tensor *gate;         // GLU before the products; NULL: none
    const struct ggml_tensor *x;            // the columns, before the norm
    const struct ggml_tensor *in;           // the columns, after the norm
    const struct ggml_tensor *mm[MV_PARTS];
    int n_mm;
    const struct ggml_tensor *glu, *sum, *other; // gate of two products; or ADD of one product, and its other source
    int n;                                       // number of nodes of the chain
};

static const struct ggml_tensor *node_at(const struct ggml_cgraph *graph, int i, enum ggml_op op) {
    const struct ggml_tensor *node = i < graph->n_nodes ? graph->nodes[i] : NULL;
    return node != NULL && node->op == op && (node->flags & GGML_TENSOR_FLAG_COMPUTE) != 0 ? node : NULL;
}

// Returns whether t is n contiguous rows of f32. A row is a column of a product.
static bool has_rows(const struct ggml_tensor *t, int64_t n) {
    return t->type == GGML_TYPE_F32 && t->ne[0] > 0 && t->ne[1] == n && ggml_nrows(t) == n && ggml_is_contiguous(t) &&
           t->data != NULL;
}
static bool is_row(const struct ggml_tensor *t) {
    return has_rows(t, 1);
}

// Matches RMS_NORM and MUL by one row at nodes i and i + 1. Fills c and returns the MUL. Returns NULL if there is no match.
static const struct ggml_tensor *norm_at(const struct ggml_cgraph *graph, int i, struct chain *c) {
    const struct ggml_tensor *norm = node_at(graph, i, GGML_OP_RMS_NORM), *mul = node_at(graph, i + 1, GGML_OP_MUL);
    if (norm == NULL || mul == NULL || !gpu_is_used_once(graph, norm) || (norm->ne[1] == 1 && norm->ne[0] > MV_NORM_MAX)) {
        return NULL;
    }
    const struct ggml_tensor *scale = gpu_other_source(mul, norm);
    const int64_t n = norm->ne[1];
    if (scale == NULL || !has_rows(norm->src[0], n) || !has_rows(mul, n) || !is_row(scale) || scale->ne[0] != mul->ne[0]) {
        return NULL;
    }
    c->norm = norm;
    c->scale = scale;
    c->x = norm->src[0];
    return mul;
}

static bool is_gate(const struct ggml_tensor *glu) {
    return glu->op_params[0] == GGML_GLU_OP_SWIGLU || glu->op_params[0] == GGML_GLU_OP_GEGLU;
}

// Matches a GLU of two sources at node i. Fills c and returns the GLU. Returns NULL if there is no match.
static const struct ggml_tensor *gate_at(const struct ggml_cgraph *graph, int i, struct chain *c) {
    const struct ggml_tensor *glu = node_at(graph, i, GGML_OP_GLU);
    if (glu == NULL || glu->src[1] == NULL || !is_gate(glu) || glu->ne[1] <= CUDA_FEW_MAX) {
        return NULL;
    }
    const int64_t n = glu->ne[1];
    if (!has_rows(glu, n) || !has_rows(glu->src[0], n) || !has_rows(glu->src[1], n) || glu->src[0]->ne[0] != glu->ne[0]) {
        return NULL;
    }
    c->gate = glu;
    c->x = glu->src[0];
    return glu;
}

// Returns whether a kernel that supports chains computes the product.
static bool is_chain_product(const struct gpu_device *dev, const struct cuda_mm_type *t, const struct ggml_tensor *mm) {
    return cuda_is_vector(dev, t, mm) || cuda_is_few(dev, t, mm) || cuda_is_mid(dev, t, mm);
}

static bool chain_accepts(
    const struct gpu_device *dev, const struct ggml_cgraph *graph, const struct chain *c, const struct ggml_tensor *mm) {
    const struct ggml_tensor *w = mm->src[0], *first = c->n_mm > 0 ? c->mm[0]->src[0] : w;
    const struct cuda_mm_type *t = cuda_mm_type(w->type);
    const int64_t n = mm->src[1]->ne[1];
    return t != NULL && gpu_supports_op(dev, mm) && is_chain_product(dev, t, mm) && has_rows(mm, n) && has_rows(mm->src[1], n) &&
           ggml_nrows(w) == w->ne[1] && gpu_is_const(graph, w) && w->type == first->type && w->nb[1] == first->nb[1];
}

// Adds node i, which follows the products, to the chain if it is a gate of two products or an ADD of one product.
static void chain_extend(const struct gpu_device *dev, const struct ggml_cgraph *graph, int i, struct chain *c) {
    const int64_t n = c->mm[0]->ne[1];
    const struct ggml_tensor *glu = node_at(graph, i, GGML_OP_GLU), *sum = node_at(graph, i, GGML_OP_ADD);
    const bool can_gate = !cuda_is_mid(dev, cuda_mm_type(c->mm[0]->src[0]->type), c->mm[0]);
    if (c->n_mm == 2 && can_gate && glu != NULL && has_rows(glu, n) && gpu_is_used_once(graph, c->mm[0]) &&
        gpu_is_used_once(graph, c->mm[1]) && is_gate(glu) &&
        ((glu->src[0] == c->mm[0] && glu->src[1] == c->mm[1]) || (glu->src[0] == c->mm[1] && glu->src[1] == c->mm[0]))) {
        c->glu = glu;
        c->n++;
    } else if (c->n_mm == 1 && sum != NULL && has_rows(sum, n) && gpu_is_used_once(graph, c->mm[0])) {
        const struct ggml_tensor *other = gpu_other_source(sum, c->mm[0]);
        if (other != NULL && (is_row(other) || has_rows(other, n)) && other->ne[0] == sum->ne[0]) {
            c->sum = sum;
            c->other = other;
            c->n++;
        }
    }
}

static const struct ggml_tensor *first_result(const struct chain *c) {
    if (c->glu != NULL) {
        return c->glu;
    }
    return c->sum != NULL ? c->sum : c->mm[0];
}

// Returns whether the chain may write its results while other threads still read: no result overlaps another result, nor, with one
// column, the column or the weights of the norm (more columns are read by an earlier launch), and a result overlaps the other source of ADD only if each thread reads an element just before it
// writes that element.
static bool may_write(const struct chain *c) {
    const struct ggml_tensor *out[MV_PARTS] = {first_result(c), c->mm[1], c->mm[2]};
    const int n_out = c->glu != NULL ? 1 : c->n_mm;
    for (int i = 0; i < n_out; i++) {
        const bool is_one = c->x->ne[1] == 1;
        if ((is_one && (gpu_overlap(out[i], c->x) || (c->scale != NULL && gpu_overlap(out[i], c->scale)))) ||
            (c->other != NULL && !gpu_may_write_over(out[i], c->other))) {
            return false;
        }
        for (int j = 0; j < i; j++) {
            if (gpu_overlap(out[i], out[j])) {
                return false;
            }
        }
    }
    return true;
}

// Returns the chain that starts at node i. If there is no chain of at least two nodes, n is 0.
static struct chain chain_at(const struct gpu_device *dev, const struct ggml_cgraph *graph, int i) {
    struct chain c = {0};
    const struct ggml_tensor *in = norm_at(graph, i, &c), *mm;
    c.n = in != NULL ? 2 : 0;
    if (in == NULL && (in = gate_at(graph, i, &c)) != NULL) {
        c.n = 1;
    }
    while (c.n_mm < MV_PARTS && (mm = node_at(graph, i + c.n, GGML_OP_MUL_MAT)) != NULL && (in == NULL || mm->src[1] == in) &&
           chain_accepts(dev, graph, &c, mm)) {
        in = mm->src[1];
        c.mm[c.n_mm++] = mm;
        c.n++;
    }
    const bool is_fused = c.norm != NULL || c.gate != NULL; // the result of the norm or of the gate is not written
    if (c.n_mm == 0 || (is_fused && gpu_n_uses(graph, in) != c.n_mm)) {
        c.n = 0;
        return c;
    }
    c.in = in;
    if (!is_fused) {
        c.x = in;
    }
    chain_extend(dev, graph, i + c.n, &c);
    if (c.n < 2 || !may_write(&c)) {
        c.n = 0;
    }
    return c;
}

static int chain_match(const struct gpu_device *dev, const struct ggml_cgraph *graph, int i) {
    const enum ggml_op op = graph->nodes[i]->op;
    return op == GGML_OP_RMS_NORM || op == GGML_OP_MUL_MAT || op == GGML_OP_GLU ? chain_at(dev, graph, i).n : 0;
}

static enum mv_glu glu_of(const struct ggml_tensor *glu) {
    if (glu == NULL) {
        return MV_GLU_NONE;
    }
    return glu->op_params[0] == GGML_GLU_OP_SWIGLU ? MV_GLU_SWIGLU : MV_GLU_GEGLU;
}

// Sets the weights, the results and the rows of the products. With a gate, the gate's product comes first.
static void chain_parts(const struct chain *c, const char **w, float **y, int *m) {
    const bool swapped = c->glu != NULL && c->glu->src[0] != c->mm[0];
    for (int j = 0; j < c->n_mm; j++) {
        w[swapped ? !j : j] = c->mm[j]->src[0]->data;
        y[j] = c->mm[j]->data;
        m[j] = (int) c->mm[j]->src[0]->ne[1];
    }
    y[0] = first_result(c)->data;
}

static int64_t add_col(const struct chain *c) { // floats from one column of c->other to the next; 0: all columns are the same
    return c->other != NULL && c->other->ne[1] > 1 ? c->other->ne[0] : 0;
}

// Runs a chain of several columns.
static enum ggml_status chain_run_many(struct gpu_run *r, const struct chain *c) {
    const struct cuda_mm_type *t = cuda_mm_type(c->mm[0]->src[0]->type);
    const struct cuda_source source = {.x = c->x,
        .as = c->in,
        .norm = c->scale != NULL ? c->scale->data : NULL,
        .eps = c->norm != NULL ? param_f32(c->norm, 0) : 0.0f,
        .glu = glu_of(c->gate),
        .x2 = c->gate != NULL ? c->gate->src[1] : NULL};
    const float *add = c->other != NULL ? c->other->data : NULL;
    few_args a = {.n_parts = c->n_mm,
        .add = add,
        .add_col = add_col(c),
        .w_row = (int64_t) c->mm[0]->src[0]->nb[1],
        .glu = (int) glu_of(c->glu),
        .w_const = 1};
    chain_parts(c, a.w, a.y, a.m);
    for (int j = 0; j < c->n_mm; j++) {
        a.y_col[j] = a.m[j];
    }
    if (cuda_is_few(r->dev, t, c->mm[0])) {
        return cuda_few(r, t, &a, &source);
    }
    mma_args b = {.w = a.w[0],
        .y = a.y[0],
        .m = a.m[0],
        .y_col = a.y_col[0],
        .w_row = a.w_row,
        .n_more = c->n_mm - 1,
        .add = add,
        .add_col = a.add_col,
        .w_const = 1};
    for (int j = 1; j < c->n_mm; j++) {
        b.w_more[j - 1] = a.w[j];
        b.y_more[j - 1] = a.y[j];
        b.m_more[j - 1] = a.m[j];
        b.y_col_more[j - 1] = a.y_col[j];
    }
    return cuda_mid(r, t, &b, c->mm[0], &source);
}

static enum ggml_status chain_run(struct gpu_run *r, const struct ggml_cgraph *graph, int i, int n) {
    const struct chain c = chain_at(r->dev, graph, i);
    (void) n;
    if (c.x->ne[1] > 1) {
        return chain_run_many(r, &c);
    }
    mv_args a = {.n_parts = c.n_mm,
        .x = c.x->data,
        .norm = c.scale != NULL ? c.scale->data : NULL,
        .add = c.other != NULL ? c.other->data : NULL,
        .eps = c.norm != NULL ? param_f32(c.norm, 0) : 0.0f,
        .w_row = (int64_t) c.mm[0]->src[0]->nb[1],
        .k = (int) c.mm[0]->src[0]->ne[0],
        .ne2 = 1,
        .r2 = 1,
        .r3 = 1,
        .glu = (int) glu_of(c.glu),
        .w_const = 1};
    chain_parts(&c, a.w, a.y, a.m);
    return cuda_mv(r, cuda_mm_type(c.mm[0]->src[0]->type), &a, 1);
}

const struct gpu_fusion cuda_fusion_mv = {
    .name = "products of a few columns with norm, sum or gate", .match = chain_match, .run = chain_run};

// ---- order ----

void cuda_mv_gather(struct ggml_cgraph *graph) {
    enum { AHEAD = 16 }; // nodes to search for products of the same column
    for (int i = 0; i < graph->n_nodes; i++) {
        const struct ggml_tensor *first = graph->nodes[i];
        if (first->op != GGML_OP_MUL_MAT) {
            continue;
        }
        int at = i + 1; // destination of the next product of the same column
        for (int j = i + 1; j < graph->n_nodes && j <= i + AHEAD; j++) {
            struct ggml_tensor *node = graph->nodes[j];
            if (gpu_writes_into(node, first->src[1])) {
                break;
            }
            if (node->op != GGML_OP_MUL_MAT || node->src[1] != first->src[1] || !gpu_is_const(graph, node->src[0])) {
                continue;
            }
            memmove(&graph->nodes[at + 1], &graph->nodes[at], (size_t) (j - at) * sizeof graph->nodes[0]);
            graph->nodes[at++] = node;
        }
        i = at - 1;
    }
}
