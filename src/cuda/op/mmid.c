// SPDX-License-Identifier: MIT
// mmid.c: MUL_MAT_ID. Each token has a list of experts. A slot is an index in that list. If there are few (token, slot) pairs,
// each pair is a product of one column (kernel/mv.cuh). Otherwise the columns are sorted by expert into tiles (kernel/mmid.cu),
// and one launch computes all tiles (mid.cuh, mma90.cuh). A fusion computes the products of the gate and up weights and their
// GLU: with few pairs in one launch. With many pairs, the product of the down weights is included: the columns are sorted once
// and converted once for gate and up, and the GLU is computed when its result is converted.

#include "cuda/op/matmul.h"

#include "core/graph.h"

#define MV_PAIRS 32    // largest number of (token, slot) pairs that are computed without sorting
#define TWIN_PAIRS 512 // largest number of pairs for which one launch computes the products with gate and up weights

// Layout of the arena: [columns][scales][lists: expert per tile; source and two destinations per column].
struct plan {
    bool vectors; // each pair is a product of one column; of the other fields, only n_pairs is set
    bool mid;     // mid computes the tiles, otherwise mma90
    int nt;       // columns per tile
    int64_t n_pairs, n_tiles;
    struct cuda_columns c;
    size_t lists; // byte offset of the lists in the arena
    size_t size;  // bytes of the arena
};

// Sets the layout of the arena for n_tiles tiles.
static void plan_lay_out(struct plan *p, const struct ggml_tensor *op, int64_t n_tiles) {
    p->n_tiles = n_tiles;
    p->c = cuda_columns_of(cuda_mm_type(op->src[0]->type), op->src[0]->ne[0], n_tiles * p->nt, 1, p->nt);
    p->lists = (size_t) gpu_round_up((int64_t) p->c.size, 256);
    p->size = p->lists + (size_t) (n_tiles * (1 + 3 * p->nt)) * sizeof(int32_t);
}

// can_mid: the result of cuda_can_mid.
static struct plan plan_of(const struct gpu_device *dev, const struct ggml_tensor *op, bool can_mid) {
    const struct ggml_tensor *w = op->src[0], *x = op->src[1], *ids = op->src[2];
    const struct cuda_mm_type *t = cuda_mm_type(w->type);
    struct plan p = {.n_pairs = ids->ne[0] * ids->ne[1]};
    const bool can_mv = x->type == GGML_TYPE_F32 && cuda_mv_fits(dev, t, w->ne[0]), has_mma = cuda_traits(dev)->has_kernels_90a;
    p.vectors = can_mv && (p.n_pairs <= MV_PAIRS || (!has_mma && !(can_mid && t->mid[0] != NULL)));
    if (!p.vectors) {
        // With few pairs per expert, small tiles have fewer unused columns.
        const int64_t per_expert = p.n_pairs / (w->ne[2] > 0 ? w->ne[2] : 1);
        p.mid = can_mid && t->mid[0] != NULL && (per_expert <= CUDA_MID_MAX || !has_mma);
        p.nt = t->mma_128 != NULL && !p.mid ? 128 : 64;
        while (p.mid && p.nt > 8 && p.nt / 4 >= per_expert) {
            p.nt /= 2;
        }
        plan_lay_out(&p, op, p.n_pairs / p.nt + min_i64(w->ne[2], p.n_pairs));
    }
    return p;
}

static bool mmid_supports(const struct gpu_device *dev, const struct ggml_tensor *op) {
    const struct ggml_tensor *w = op->src[0], *x = op->src[1], *ids = op->src[2];
    if (w == NULL || x == NULL || ids == NULL || cuda_mm_type(w->type) == NULL || op->type != GGML_TYPE_F32 ||
        !gpu_is_float(x->type) || ids->type != GGML_TYPE_I32) {
        return false;
    }
    const bool rows = w->nb[0] == ggml_type_size(w->type) && x->nb[0] == ggml_type_size(x->type) && op->nb[0] == sizeof(float) &&
                      ids->nb[0] == sizeof(int32_t) && w->nb[1] % ggml_type_size(w->type) == 0;
    const bool fits = w->ne[0] == x->ne[0] && w->ne[0] > 0 && w->ne[2] <= MMID_EXPERTS && w->ne[3] == 1 && x->ne[3] == 1 &&
                      ids->ne[0] * ids->ne[1] < 65536 && x->ne[1] > 0 && ids->ne[0] % x->ne[1] == 0 &&
                      ggml_nelements(op) < INT32_MAX && w->ne[1] < INT32_MAX;
    return rows && fits && (cuda_traits(dev)->has_kernels_90a || cuda_can_mid(w) || plan_of(dev, op, false).vectors);
}

// Returns a plan with twice the tiles: those of the gate weights, then those of the up weights.
static struct plan twin_of(const struct plan *p, const struct ggml_tensor *op) {
    struct plan twin = *p;
    plan_lay_out(&twin, op, 2 * p->n_tiles);
    return twin;
}

static size_t mmid_work_size(const struct gpu_device *dev, const struct ggml_tensor *op) {
    size_t size = 0;
    for (int can_mid = 0; can_mid < 2; can_mid++) { // the weights may have no address yet
        const struct plan p = plan_of(dev, op, can_mid);
        size = max_size(size, p.size);
        if (p.mid && p.n_pairs <= TWIN_PAIRS) {
            size = max_size(size, twin_of(&p, op).size);
        }
    }
    return size;
}

// up, glu: NULL, or the product of the same columns with the up weights, and the GLU of both, which is written instead.
static enum ggml_status run_vectors(struct gpu_run *r, const struct ggml_tensor *op, const struct ggml_tensor *up,
    const struct ggml_tensor *glu, int64_t n_pairs) {
    const struct ggml_tensor *w = op->src[0], *x = op->src[1], *ids = op->src[2], *y = glu != NULL ? glu : op;
    mv_args a = {.w = {w->data},
        .y = {y->data},
        .m = {(int) w->ne[1]},
        .n_parts = 1,
        .x = x->data,
        .ids = ids->data,
        .w_row = (int64_t) w->nb[1],
        .w_z2 = (int64_t) w->nb[2],
        .x_col = (int64_t) (x->nb[1] / sizeof(float)),
        .x_z2 = (int64_t) (x->nb[2] / sizeof(float)),
        .y_col = (int64_t) (y->nb[1] / sizeof(float)),
        .y_z2 = (int64_t) (y->nb[2] / sizeof(float)),
        .ids_row = (int64_t) (ids->nb[1] / sizeof(int32_t)),
        .k = (int) w->ne[0],
        .ne2 = 1,
        .r2 = 1,
        .r3 = 1,
        .n_used = (int) ids->ne[0],
        .n_experts = (int) w->ne[2],
        .x_ne1 = (int) x->ne[1]};
    if (glu != NULL) {
        a.w[1] = up->src[0]->data;
        a.m[1] = a.m[0];
        a.n_parts = 2;
        a.glu = glu->op_params[0] == GGML_GLU_OP_SWIGLU ? MV_GLU_SWIGLU : MV_GLU_GEGLU;
    }
    return cuda_mv(r, cuda_mm_type(w->type), &a, n_pairs);
}

// ---- sorted columns ----

// One launch can compute the products of the same columns with two tensors of experts, if the tensors are a multiple of an expert
// apart. The second tensor then is a continuation of the first one.
struct twin {
    const struct ggml_tensor *first; // the product whose weights have the lower address
    int expert, y;                   // distance of the second product's weights, in experts, and of its results, in floats
    void *y_base;                    // the lower address of the two results
    int y_off;                       // distance of the first product's results from y_base, in floats
};

// Addresses in the arena.
struct sorted {
    char *work;
    int32_t *experts, *from, *to[2];
};

static struct sorted sorted_at(char *work, const struct plan *p, size_t lists) {
    struct sorted s = {.work = work, .experts = (int32_t *) (work + lists)};
    s.from = s.experts + p->n_tiles;
    s.to[0] = s.from + p->n_tiles * p->nt;
    s.to[1] = s.to[0] + p->n_tiles * p->nt;
    return s;
}

// next: NULL, or a later product of the same pairs. twin: NULL, or as in mmid_args.
static enum ggml_status sort_launch(struct gpu_run *r, const struct plan *p, const struct sorted *s, const struct ggml_tensor *op,
    const struct ggml_tensor *next, const struct twin *twin) {
    const struct ggml_tensor *ids = op->src[2], *last = next != NULL ? next : op;
    const struct mmid_args a = {.ids = ids->data,
        .experts = s->experts,
        .from = s->from,
        .to = {s->to[0], next != NULL ? s->to[1] : NULL},
        .ids_row = (int64_t) (ids->nb[1] / sizeof(int32_t)),
        .y_col = {(int64_t) (op->nb[1] / sizeof(float)), (int64_t) (last->nb[1] / sizeof(float))},
        .y_z2 = {(int64_t) (op->nb[2] / sizeof(float)), (int64_t) (last->nb[2] / sizeof(float))},
        .n_used = (int) ids->ne[0],
        .n_pairs = (int) p->n_pairs,
        .n_experts = (int) op->src[0]->ne[2],
        .nt = p->nt,
        .n_tiles = (int) p->n_tiles,
        .y_off = twin != NULL ? twin->y_off : 0,
        .twin_expert = twin != NULL ? twin->expert : 0,
        .twin_y = twin != NULL ? twin->y : 0,
        .wait = 1};
    const int64_t n_threads = min_i64(gpu_round_up(max_i64(a.n_experts, p->n_tiles * p->nt), 32), 1024);
    return gpu_launch(r, "mmid_sort", gpu_grid(1, 1, 1, n_threads, 0), &a);
}

// Converts the columns x, or act(x) * up if up is not NULL, for the weights of `op`.
static enum ggml_status convert_launch(struct gpu_run *r, const struct plan *p, const struct sorted *s,
    const struct ggml_tensor *op, const struct ggml_tensor *x, const struct ggml_tensor *up, enum mv_glu glu) {
    const act_args a = {.x = x->data,
        .x2 = up != NULL ? up->data : NULL,
        .tiles = (uint16_t *) s->work,
        .scale = (float *) (s->work + p->c.columns_size),
        .from = s->from,
        .x_col = (int64_t) x->nb[1],
        .from_z2 = (int64_t) x->nb[2],
        .x_ne1 = (int) x->ne[1],
        .n_used = (int) op->src[2]->ne[0],
        .glu = (int) glu,
        .x_type = cuda_column_type(x->type),
        .k = (int) x->ne[0],
        .n = (int) p->c.n,
        .nt = p->nt,
        .ne2 = 1,
        .bf = cuda_mm_type(op->src[0]->type)->bf,
        .wait = 1};
    return gpu_launch(r, "act_tiles", gpu_grid(p->c.n, 1, 1, cuda_act_threads(x->ne[0]), 0), &a);
}

// y: address of the results. to: which destinations of the columns.
static enum ggml_status tiles_launch(
    struct gpu_run *r, const struct plan *p, const struct sorted *s, const struct ggml_tensor *op, void *y, int to) {
    const struct ggml_tensor *w = op->src[0];
    const struct cuda_mm_type *t = cuda_mm_type(w->type);
    mma_args a = {.w = w->data,
        .tiles = (const uint16_t *) s->work,
        .scale = (const float *) (s->work + p->c.columns_size),
        .y = y,
        .tile_expert = s->experts,
        .to = s->to[to],
        .w_row = (int64_t) w->nb[1],
        .w_z2 = (int64_t) w->nb[2],
        .m = (int) w->ne[1],
        .k = (int) w->ne[0],
        .n = (int) p->c.n,
        .ne2 = 1,
        .r2 = 1,
        .r3 = 1,
        .n_tiles = (int) p->n_tiles,
        .wait = 1};
    if (p->mid) {
        return cuda_mid_tiles(r, t, p->nt, &a, 1);
    }
    if (!cuda_traits(r->dev)->has_kernels_90a) { // supports() may be called before the weights have an address
        return shim_error(GGML_STATUS_FAILED, "%s: the %s weights '%s' of MUL_MAT_ID begin at %p, which is not a multiple of 16",
            r->dev->name, ggml_type_name(w->type), w->name, w->data);
    }
    return cuda_mm_tiles(r, t, p->nt, &a, 1);
}

static enum ggml_status mmid_run(struct gpu_run *r, struct ggml_tensor *op) {
    const struct plan p = plan_of(r->dev, op, cuda_can_mid(op->src[0]));
    if (p.vectors) {
        return run_vectors(r, op, NULL, NULL, p.n_pairs);
    }
    char *work = gpu_work(r, p.size);
    if (work == NULL) {
        return GGML_STATUS_FAILED;
    }
    const struct sorted s = sorted_at(work, &p, p.lists);
    enum ggml_status status = sort_launch(r, &p, &s, op, NULL, NULL);
    if (status == GGML_STATUS_SUCCESS) {
        status = convert_launch(r, &p, &s, op, op->src[1], NULL, MV_GLU_NONE);
    }
    return status == GGML_STATUS_SUCCESS ? tiles_launch(r, &p, &s, op, op->data, 0) : status;
}

// ---- gate, up, GLU and down ----

struct experts {
    const struct ggml_tensor *gate, *up, *down; // down: NULL if it does not follow
    struct ggml_tensor *glu;                    // NULL: no match
    int n_glu, n_down;                          // number of nodes up to glu, and up to down
};

// Returns the nodes that start at node i. They depend only on the graph, not on addresses.
static struct experts experts_at(const struct ggml_cgraph *graph, int i) {
    struct experts e = {.gate = gpu_node_at(graph, i, GGML_OP_MUL_MAT_ID)};
    if (e.gate == NULL) {
        return e;
    }
    int at = gpu_next_computed(graph, i + 1);
    e.up = gpu_node_at(graph, at, GGML_OP_MUL_MAT_ID);
    if (e.up == NULL || e.up->src[1] != e.gate->src[1] || e.up->src[2] != e.gate->src[2] ||
        e.up->src[0]->type != e.gate->src[0]->type || !ggml_are_same_shape(e.up->src[0], e.gate->src[0]) ||
        !ggml_are_same_stride(e.up->src[0], e.gate->src[0]) || !ggml_are_same_stride(e.up, e.gate)) {
        return e;
    }
    at = gpu_next_computed(graph, at + 1);
    struct ggml_tensor *glu = gpu_node_at(graph, at, GGML_OP_GLU);
    if (glu == NULL || !gpu_is_used_once(graph, e.gate) || !gpu_is_used_once(graph, e.up) ||
        (glu->op_params[0] != GGML_GLU_OP_SWIGLU && glu->op_params[0] != GGML_GLU_OP_GEGLU) || glu->type != GGML_TYPE_F32 ||
        !ggml_are_same_shape(glu, e.gate) || !ggml_is_contiguous(glu)) {
        return e;
    }
    if (glu->src[0] == e.up && glu->src[1] == e.gate) {
        const struct ggml_tensor *first = e.gate;
        e.gate = e.up;
        e.up = first;
    }
    if (glu->src[0] != e.gate || glu->src[1] != e.up) {
        return e;
    }
    e.glu = glu;
    e.n_glu = at - i + 1;
    at = gpu_next_computed(graph, at + 1);
    e.down = gpu_node_at(graph, at, GGML_OP_MUL_MAT_ID);
    if (e.down != NULL && (e.down->src[1] != glu || e.down->src[2] != e.gate->src[2] || !gpu_is_used_once(graph, glu))) {
        e.down = NULL;
    }
    e.n_down = at - i + 1;
    return e;
}

static int experts_match(const struct gpu_device *dev, const struct ggml_cgraph *graph, int i) {
    const struct experts e = experts_at(graph, i);
    if (e.glu == NULL || !gpu_supports_op(dev, e.gate) || !gpu_supports_op(dev, e.up)) {
        return 0;
    }
    const struct plan p = plan_of(dev, e.gate, cuda_can_mid(e.gate->src[0]));
    const struct plan up = plan_of(dev, e.up, cuda_can_mid(e.up->src[0]));
    if (p.vectors) {
        return !gpu_overlap(e.glu, e.gate->src[1]) && !gpu_overlap(e.glu, e.gate->src[2]) ? e.n_glu : 0;
    }
    if (e.down == NULL || !gpu_supports_op(dev, e.down) || gpu_overlap(e.gate, e.up) || gpu_overlap(e.gate, e.gate->src[2]) ||
        gpu_overlap(e.up, e.gate->src[2])) {
        return 0;
    }
    const struct plan down = plan_of(dev, e.down, cuda_can_mid(e.down->src[0]));
    const bool is_same = !down.vectors && p.nt == up.nt && p.mid == up.mid && p.nt == down.nt && p.n_tiles == down.n_tiles;
    return is_same ? e.n_down : 0;
}

// Returns whether one launch computes gate and up, and fills *t.
static bool twin_at(const struct experts *e, const struct plan *p, const struct plan *down, struct twin *t) {
    const bool is_first = (uintptr_t) e->gate->src[0]->data < (uintptr_t) e->up->src[0]->data;
    const struct ggml_tensor *first = is_first ? e->gate : e->up, *second = is_first ? e->up : e->gate;
    const size_t expert_size = first->src[0]->nb[2];
    const size_t off = (size_t) ((const char *) second->src[0]->data - (const char *) first->src[0]->data);
    const int64_t y = ((const char *) second->data - (const char *) first->data) / (int64_t) sizeof(float);
    *t = (struct twin){.first = first,
        .expert = (int) (off / expert_size),
        .y = (int) y,
        .y_base = y > 0 ? first->data : second->data,
        .y_off = y > 0 ? 0 : (int) -y};
    const int64_t y_end = (y > 0 ? y : -y) + ggml_nelements(first);
    return p->mid && down->mid && p->n_pairs <= TWIN_PAIRS && off % expert_size == 0 && off > 0 &&
           off / expert_size < INT32_MAX / 2 && y_end < INT32_MAX;
}

// Computes gate and up. s: lists for twice the tiles.
static enum ggml_status run_gate_and_up(struct gpu_run *r, const struct experts *e, const struct plan *p, const struct sorted *s,
    bool is_twin, const struct twin *twin) {
    const struct plan both = is_twin ? twin_of(p, e->gate) : *p;
    const struct ggml_tensor *first = is_twin ? twin->first : e->gate;
    enum ggml_status status = sort_launch(r, p, s, first, e->down, is_twin ? twin : NULL);
    if (status == GGML_STATUS_SUCCESS) {
        status = convert_launch(r, &both, s, first, first->src[1], NULL, MV_GLU_NONE);
    }
    if (status == GGML_STATUS_SUCCESS) {
        status = tiles_launch(r, &both, s, first, is_twin ? twin->y_base : first->data, 0);
    }
    return status == GGML_STATUS_SUCCESS && !is_twin ? tiles_launch(r, p, s, e->up, e->up->data, 0) : status;
}

static enum ggml_status experts_run(struct gpu_run *r, const struct ggml_cgraph *graph, int i, int n) {
    const struct experts e = experts_at(graph, i);
    const enum mv_glu glu = e.glu->op_params[0] == GGML_GLU_OP_SWIGLU ? MV_GLU_SWIGLU : MV_GLU_GEGLU;
    if (n == e.n_glu) {
        return run_vectors(r, e.gate, e.up, e.glu, e.gate->src[2]->ne[0] * e.gate->src[2]->ne[1]);
    }
    const struct plan p = plan_of(r->dev, e.gate, cuda_can_mid(e.gate->src[0]));
    const struct plan down = plan_of(r->dev, e.down, cuda_can_mid(e.down->src[0]));
    struct twin twin;
    const bool is_twin = twin_at(&e, &p, &down, &twin);
    const struct plan both = is_twin ? twin_of(&p, e.gate) : p;
    // The columns of both conversions begin at the same address, the lists after the longer ones.
    const size_t lists = max_size(both.lists, down.lists);
    char *work = gpu_work(r, lists + (both.size - both.lists));
    if (work == NULL) {
        return GGML_STATUS_FAILED;
    }
    const struct sorted s = sorted_at(work, &both, lists);
    enum ggml_status status = run_gate_and_up(r, &e, &p, &s, is_twin, &twin);
    if (status == GGML_STATUS_SUCCESS) {
        status = convert_launch(r, &down, &s, e.down, e.gate, e.up, glu);
    }
    return status == GGML_STATUS_SUCCESS ? tiles_launch(r, &down, &s, e.down, e.down->data, 1) : status;
}

const struct gpu_fusion cuda_fusion_experts = {
    .name = "products of experts with their gate", .match = experts_match, .run = experts_run};

void cuda_experts_keep(const struct ggml_cgraph *graph, struct ggml_backend_graph_optimize_params *params) {
    for (int i = 0; i < graph->n_nodes; i++) {
        const struct experts e = experts_at(graph, i);
        if (e.glu != NULL) {
            gpu_keep(params, e.gate->src[1], e.glu);
        }
    }
}

const struct gpu_op_entry cuda_ops_mmid[] = {
    {GGML_OP_MUL_MAT_ID, {.supports = mmid_supports, .work_size = mmid_work_size, .run = mmid_run}},
    GPU_OPS_END,
};
