// SPDX-License-Identifier: MIT
// matmul_cases.h: random products in guarded memory, for prop_matmul.c and long_matmul.c. Sources, results and work memory each end
// before a page that cannot be accessed.
#pragma once

#include "support/walled.h"

#include "core/graph.h"
#include "cpu/cpu.h"
#include "cpu/op/gemm.h"

#include <math.h>

#define N_WALLED 16

// The guarded memory (walled.h) of the current case.
static struct {
    void *at;
    size_t size;
} list[N_WALLED];
static int n_list;

static inline void *listed(size_t size) {
    assert_true(n_list < N_WALLED);
    list[n_list].at = walled(size);
    list[n_list].size = size;
    return list[n_list++].at;
}

static inline void list_free(void) {
    while (n_list > 0) {
        n_list--;
        walled_free(list[n_list].at, list[n_list].size);
    }
}

static inline int64_t pick(struct check_rng *r, int64_t low, int64_t high) {
    return low + (int64_t) check_rng_below(r, (uint64_t) (high - low + 1));
}

// ---- tensors ----

static inline float random_float(struct check_rng *r) {
    return (float) ((double) (int64_t) (check_rng_next(r) >> 40) / 8388608.0 - 1.0);
}

// Gaps between rows keep the NaN values that walled() has set.
static inline void fill(struct check_rng *r, struct ggml_tensor *t) {
    float row[4096];
    for (int64_t i = 0; i < ggml_nrows(t); i++) {
        const struct cpu_row_pos at = cpu_row_pos(t, i);
        for (int64_t k = 0; k < t->ne[0]; k++) {
            row[k] = random_float(r);
        }
        if (t->nb[0] == ggml_type_size(t->type)) {
            cpu_kernels_portable.traits[t->type].from_float(row, cpu_row(t, at), t->ne[0]);
        } else {
            for (int64_t k = 0; k < t->ne[0]; k++) {
                cpu_kernels_portable.traits[t->type].from_float(row + k, cpu_row(t, at) + (size_t) k * t->nb[0], 1);
            }
        }
    }
}

// Makes a tensor in guarded memory: dense, with gaps between its rows, with dimensions 1 and 2 swapped in memory, or 0 and 1.
static inline struct ggml_tensor *tensor(struct check_rng *r, struct ggml_context *ctx, enum ggml_type type, const int64_t *ne) {
    struct ggml_tensor *t = ggml_new_tensor_4d(ctx, type, ne[0], ne[1], ne[2], ne[3]);
    const size_t row = ggml_row_size(type, ne[0]), unit = ggml_type_size(type);
    const int form = (int) check_rng_below(r, 5);
    if (form == 1) { // gaps
        t->nb[1] = row + unit * check_rng_below(r, 3);
        t->nb[2] = t->nb[1] * (size_t) ne[1] + unit * check_rng_below(r, 3);
        t->nb[3] = t->nb[2] * (size_t) ne[2];
    } else if (form == 2) { // permuted 0 2 1 3
        t->nb[2] = row;
        t->nb[1] = row * (size_t) ne[2];
        t->nb[3] = t->nb[1] * (size_t) ne[1];
    } else if (form == 3 && ggml_blck_size(type) == 1) { // transposed
        t->nb[1] = unit;
        t->nb[0] = unit * (size_t) ne[1];
        t->nb[2] = row * (size_t) ne[1];
        t->nb[3] = t->nb[2] * (size_t) ne[2];
    }
    t->data = listed(ggml_nbytes(t));
    fill(r, t);
    return t;
}

// Adds gaps between the rows of a result. They hold NaN and must keep it.
static inline void rows_add_gaps(struct check_rng *r, struct ggml_tensor *t) {
    t->nb[1] += sizeof(float) * check_rng_below(r, 4);
    t->nb[2] = t->nb[1] * (size_t) t->ne[1] + sizeof(float) * check_rng_below(r, 2);
    t->nb[3] = t->nb[2] * (size_t) t->ne[2];
}

// ---- one op ----

// Returns the bytes of the result. The work memory has the bytes that the op needs, rounded up to a multiple of 64. It lacks the
// bytes that ggml_graph_plan adds for alignment. So it ends directly before the inaccessible page.
static inline char *compute(struct ggml_context *ctx, struct ggml_tensor *op, int n_threads, bool use_ref) {
    struct ggml_cgraph *graph = ggml_new_graph_custom(ctx, 8, false);
    graph->nodes[0] = op;
    graph->n_nodes = 1;
    op->flags |= GGML_TENSOR_FLAG_COMPUTE;
    op->data = listed(ggml_nbytes(op));
    struct ggml_cplan plan = ggml_graph_plan(graph, n_threads, NULL);
    plan.work_data = plan.work_size > 0 ? listed((plan.work_size - 1) / 64 * 64) : NULL;
    plan.use_ref = use_ref;
    if (ggml_graph_compute(graph, &plan) != GGML_STATUS_SUCCESS) {
        fail_msg("%s", berth_last_error());
    }
    return op->data;
}

static inline bool is_element(const struct ggml_tensor *t, size_t off) {
    const size_t i3 = off / t->nb[3], r3 = off % t->nb[3], i2 = r3 / t->nb[2], r2 = r3 % t->nb[2], i1 = r2 / t->nb[1];
    return (int64_t) i3 < t->ne[3] && (int64_t) i2 < t->ne[2] && (int64_t) i1 < t->ne[1] &&
           r2 % t->nb[1] < (size_t) t->ne[0] * sizeof(float);
}

static inline void check(struct ggml_context *ctx, struct ggml_tensor *op, double tolerance, const char *what) {
    const size_t size = ggml_nbytes(op);
    const char *one = compute(ctx, op, 1, false), *ref = compute(ctx, op, 2, true);
    for (int n = 2; n <= 5; n += 3) {
        const char *many = compute(ctx, op, n, false);
        if (memcmp(one, many, size) != 0) {
            fail_msg("%s: %d threads give other bits than one", what, n);
        }
    }
    for (size_t off = 0; off < size; off += sizeof(float)) {
        float got, want;
        memcpy(&got, one + off, sizeof got);
        memcpy(&want, ref + off, sizeof want);
        if (!is_element(op, off)) {
            assert_true(isnan(got));
        } else if (!(fabs((double) got - (double) want) <= tolerance)) {
            fail_msg("%s: %g instead of %g at byte %zu of %zu", what, (double) got, (double) want, off, size);
        }
    }
    list_free();
}

// ---- every number of columns ----

#define COLUMNS_MAX 70
#define N_BLOCKS 16 // random blocks per format

// Stores the formats that MUL_MAT accepts as weights and returns their number.
static inline int formats(enum ggml_type all[GGML_TYPE_COUNT]) {
    int n = 0;
    for (int type = 0; type < GGML_TYPE_COUNT; type++) {
        if (cpu_kernels_portable.traits[type].vec_dot != NULL && cpu_kernels_portable.to_float[type] != NULL) {
            all[n++] = (enum ggml_type) type;
        }
    }
    return n;
}

// Fills dense rows with random blocks. A format has N_BLOCKS blocks, because some formats quantise slowly.
static inline void fill_blocks(struct check_rng *r, struct ggml_tensor *t) {
    static char *blocks[GGML_TYPE_COUNT];
    const int64_t blck = ggml_blck_size(t->type);
    const size_t size = ggml_type_size(t->type);
    if (blck == 1) {
        fill(r, t);
        return;
    }
    if (blocks[t->type] == NULL) {
        float x[N_BLOCKS * 256], weights[256];
        for (int i = 0; i < N_BLOCKS * 256; i++) {
            x[i] = random_float(r);
        }
        for (int i = 0; i < 256; i++) {
            weights[i] = 1.0f;
        }
        blocks[t->type] = malloc(N_BLOCKS * size);
        const bool has_weights = ggml_quantize_requires_imatrix(t->type);
        ggml_quantize_chunk(t->type, x, blocks[t->type], 0, N_BLOCKS, blck, has_weights ? weights : NULL);
    }
    char *to = t->data;
    for (int64_t i = 0; i < ggml_nelements(t) / blck; i++) {
        memcpy(to + (size_t) i * size, blocks[t->type] + check_rng_below(r, N_BLOCKS) * size, size);
    }
}

static inline struct ggml_tensor *weights_new(
    struct check_rng *r, struct ggml_context *ctx, enum ggml_type type, int64_t n, int64_t n_rows, int64_t n_batches) {
    struct ggml_tensor *t = ggml_new_tensor_3d(ctx, type, n, n_rows, n_batches);
    t->data = listed(ggml_nbytes(t));
    fill_blocks(r, t);
    return t;
}

static inline int64_t random_length(struct check_rng *r, enum ggml_type type) {
    const int64_t blck = ggml_blck_size(type);
    if (blck == 1) { // some kernels require multiples of 32
        return check_rng_below(r, 2) == 0 ? 32 * pick(r, 1, 20) : pick(r, 1, 600);
    }
    return blck * pick(r, 1, 768 / blck);
}

// The largest error of a product, divided by the norm of the row. Elements of columns are below 1 and are rounded to the type that
// the row's type is multiplied with: with 8 bits, the error of an element has a standard deviation of 1 / (127 sqrt(12)).
static inline double error_limit(enum ggml_type type) {
    switch (type) {
        case GGML_TYPE_F32: return 1e-5;
        case GGML_TYPE_F16: return 1e-2; // some tiers add in f16
        case GGML_TYPE_BF16: return 5e-3;
        default: return 1.6e-2;
    }
}

// Compares a product with the product of the same numbers in double.
static inline void check_exact(const struct ggml_tensor *op, const float *got, const char *what) {
    const struct ggml_tensor *a = op->src[0], *b = op->src[1];
    const double limit = error_limit(a->type);
    float x[1024];
    for (int64_t r = 0; r < a->ne[1]; r++) {
        double norm = 0;
        cpu_kernels_portable.to_float[a->type]((const char *) a->data + (size_t) r * a->nb[1], x, a->ne[0]);
        for (int64_t i = 0; i < a->ne[0]; i++) {
            norm += (double) x[i] * x[i];
        }
        for (int64_t c = 0; c < b->ne[1]; c++) {
            const float *y = (const float *) (const void *) ((const char *) b->data + (size_t) c * b->nb[1]);
            double sum = 0;
            for (int64_t i = 0; i < a->ne[0]; i++) {
                sum += (double) x[i] * y[i];
            }
            const double error = fabs((double) got[c * a->ne[1] + r] - sum);
            if (!(error <= limit * sqrt(norm))) {
                fail_msg("%s: row %d, column %d: %g instead of %g, norm of the row %g", what, (int) r, (int) c,
                    (double) got[c * a->ne[1] + r], sum, sqrt(norm));
            }
        }
    }
}

static inline void columns_case(uint64_t seed, enum ggml_type type, int64_t n_cols) {
    struct check_rng rng = check_rng_new(seed + (uint64_t) n_cols * GGML_TYPE_COUNT + type), *r = &rng;
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = 1 << 16, .no_alloc = true});
    const int64_t n = random_length(r, type), n_rows = pick(r, 1, 40);
    const int n_threads = (int) pick(r, 2, 5);
    char what[128];
    snprintf(what, sizeof what, "seed %llu: %s %d x %d times %d columns", (unsigned long long) seed, ggml_type_name(type),
        (int) n, (int) n_rows, (int) n_cols);
    struct ggml_tensor *y = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, n, n_cols);
    y->data = listed(ggml_nbytes(y));
    fill(r, y);
    struct ggml_tensor *op = ggml_mul_mat(ctx, weights_new(r, ctx, type, n, n_rows, 1), y);
    const char *one = compute(ctx, op, 1, false), *many = compute(ctx, op, n_threads, false);
    if (memcmp(one, many, ggml_nbytes(op)) != 0) {
        fail_msg("%s: %d threads give other bits than one", what, n_threads);
    }
    check_exact(op, (const float *) (const void *) one, what);
    list_free();
    ggml_free(ctx);
}
