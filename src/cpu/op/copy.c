// SPDX-License-Identifier: MIT
// copy.c: DUP, CPY, CONT: copies elements in order from one layout and type to another. Shapes may differ; the number of elements
// is equal. Equal types are copied as bytes. Other types are converted through f32, and to i32 by rounding toward zero. i64 is
// converted directly to i32. A cell is an element or a block.

#include "base/min.h"
#include "cpu/optable.h"
#include "cpu/rowio.h"

static bool is_dense(const struct ggml_tensor *t) {
    return t->nb[0] == ggml_type_size(t->type);
}

static bool can_widen(const struct ggml_tensor *t) {
    return t->type == GGML_TYPE_I32 || cpu_kernels_portable.to_float[t->type] != NULL;
}

// i64 to i32: graphs pass the row indices of SET_ROWS to GET_ROWS, which reads i32.
static bool is_narrowing(const struct ggml_tensor *a, const struct ggml_tensor *op) {
    return a->type == GGML_TYPE_I64 && op->type == GGML_TYPE_I32;
}

static bool copy_supports(const struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0];
    if (a == NULL || ggml_nelements(a) != ggml_nelements(op)) {
        return false;
    }
    const bool a_quant = ggml_is_quantized(a->type), op_quant = ggml_is_quantized(op->type);
    if ((a_quant && !is_dense(a)) || (op_quant && !is_dense(op))) {
        return false;
    }
    return a->type == op->type || is_narrowing(a, op) ||
           (can_widen(a) && cpu_kernels_portable.traits[op->type].from_float != NULL);
}

// ---- elements i .. i+n-1 of a tensor in order, copied to and from dense memory of its type ----

// Iterates over a range of elements. Run: elements of the range in one row.
struct run {
    const struct ggml_tensor *t;
    int64_t i;    // first element of the run
    int64_t left; // elements from the run to the end
    int64_t done; // elements before the run
    char *at;     // address of the run
    int64_t n;    // elements of the run
};

static bool run_next(struct run *r) {
    r->i += r->n;
    r->done += r->n;
    r->left -= r->n;
    if (r->left <= 0) {
        return false;
    }
    const int64_t ir = r->i / r->t->ne[0], i0 = r->i % r->t->ne[0];
    const int64_t in_row = r->t->ne[0] - i0;
    r->n = min_i64(r->left, in_row);
    r->at = cpu_row(r->t, cpu_row_pos(r->t, ir)) + (size_t) (i0 / ggml_blck_size(r->t->type)) * r->t->nb[0];
    return true;
}

static void strided_copy(char *to, size_t to_step, const char *from, size_t from_step, int64_t n, size_t size) {
    // Constant sizes compile to plain loads and stores.
    switch (size) {
#define CASE(bytes) \
    case bytes: \
        for (int64_t i = 0; i < n; i++) { \
            memcpy(to + (size_t) i * to_step, from + (size_t) i * from_step, bytes); \
        } \
        break;
        CASE(1)
        CASE(2)
        CASE(4)
        CASE(8)
#undef CASE
    }
}

// Returns the address of elements i .. i+n-1 in dense memory: in t, or in buf.
static const char *cells_gather(const struct ggml_tensor *t, int64_t i, int64_t n, char *buf) {
    const size_t size = ggml_type_size(t->type);
    const int64_t blck = ggml_blck_size(t->type);
    for (struct run r = {.t = t, .i = i, .left = n}; run_next(&r);) {
        if (is_dense(t)) {
            if (r.n == n) {
                return r.at;
            }
            memcpy(buf + (size_t) (r.done / blck) * size, r.at, (size_t) (r.n / blck) * size);
        } else {
            strided_copy(buf + (size_t) r.done * size, size, r.at, t->nb[0], r.n, size);
        }
    }
    return buf;
}

static void cells_scatter(const struct ggml_tensor *t, int64_t i, int64_t n, const char *buf) {
    const size_t size = ggml_type_size(t->type);
    const int64_t blck = ggml_blck_size(t->type);
    for (struct run r = {.t = t, .i = i, .left = n}; run_next(&r);) {
        const char *from = buf + (size_t) (r.done / blck) * size;
        if (!is_dense(t)) {
            strided_copy(r.at, t->nb[0], from, size, r.n, size);
        } else if (r.at != from) {
            memcpy(r.at, from, (size_t) (r.n / blck) * size);
        }
    }
}

// copy_supports has checked the types.
static void cells_convert(
    const struct cpu_kernels *k, enum ggml_type from_type, const char *from, enum ggml_type to_type, char *to, int64_t n) {
    float buf[CPU_PIECE];
    const float *x = buf;
    if (from_type == GGML_TYPE_I64) {
        for (int64_t i = 0; i < n; i++) {
            int64_t wide;
            memcpy(&wide, from + (size_t) i * sizeof wide, sizeof wide);
            const int32_t v = (int32_t) clamp_i64(wide, INT32_MIN, INT32_MAX); // an invalid index must not become valid
            memcpy(to + (size_t) i * sizeof v, &v, sizeof v);
        }
        return;
    }
    if (from_type == GGML_TYPE_F32) {
        x = (const float *) (const void *) from;
    } else if (from_type == GGML_TYPE_I32) {
        const int32_t *v = (const int32_t *) (const void *) from;
        for (int64_t i = 0; i < n; i++) {
            buf[i] = (float) v[i];
        }
    } else {
        k->to_float[from_type](from, buf, n);
    }
    k->traits[to_type].from_float(x, to, n);
}

// ---- the op ----

static void copy_bytes(const struct cpu_params *p, struct ggml_tensor *op) {
    int64_t b0, b1;
    cpu_share(p, ((int64_t) ggml_nbytes(op) + 63) / 64, &b0, &b1);
    const size_t first = (size_t) b0 * 64;
    const size_t end = min_size((size_t) b1 * 64, ggml_nbytes(op));
    if (end > first && op->data != op->src[0]->data) {
        memmove((char *) op->data + first, (const char *) op->src[0]->data + first, end - first);
    }
}

// For the same type and shape and dense rows.
static void copy_rows(const struct cpu_params *p, struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0];
    const size_t size = ggml_row_size(op->type, op->ne[0]);
    int64_t ir, end;
    cpu_share(p, op->ne[1] * op->ne[2] * op->ne[3], &ir, &end);
    for (struct cpu_row_pos at = cpu_row_pos(op, ir); ir < end;) {
        const int64_t n = min_i64(end - ir, op->ne[1] - at.i1);
        char *to = cpu_row(op, at);
        const char *row = cpu_row(a, at);
        for (int64_t i = 0; i < n; i++) {
            memmove(to + (size_t) i * op->nb[1], row + (size_t) i * a->nb[1], size);
        }
        ir += n;
        at = cpu_row_pos(op, ir);
    }
}

// ---- transposed sources, dense along dimension 1, 2 or 3: copied in squares, so that each cache line is loaded once ----

#define SQUARE 16

// to[j][i] = from[i][j] for i < ni, j < nj.
#define TRANSPOSE(size) \
    static void transpose_##size(char *to, size_t to_step, const char *from, size_t from_step, int64_t ni, int64_t nj) { \
        for (int64_t i0 = 0; i0 < ni; i0 += SQUARE) { \
            const int64_t n = ni - i0 < SQUARE ? ni - i0 : SQUARE; \
            for (int64_t j = 0; j < nj; j++) { \
                char *row = to + (size_t) j * to_step + (size_t) i0 * size; \
                const char *at = from + (size_t) i0 * from_step + (size_t) j * size; \
                for (int64_t i = 0; i < n; i++) { \
                    memcpy(row + (size_t) i * size, at + (size_t) i * from_step, size); \
                } \
            } \
        } \
    }
TRANSPOSE(2)
TRANSPOSE(4)

// Returns the dimension 1, 2 or 3 along which the source is dense. If there is none, or elements do not have 2 or 4 bytes,
// returns 0.
static int transposed_dim(const struct ggml_tensor *a) {
    const size_t size = ggml_type_size(a->type);
    if (ggml_is_quantized(a->type) || (size != 2 && size != 4)) {
        return 0;
    }
    for (int d = 1; d < GGML_MAX_DIMS; d++) {
        if (a->ne[d] > 1 && a->nb[d] == size) {
            return d;
        }
    }
    return 0;
}

// Source and result have the same type and shape, and the result is dense. A unit of work is SQUARE indices along dimension d and
// all indices along dimension 0.
static void copy_transposed(const struct cpu_params *p, struct ggml_tensor *op, int d) {
    const struct ggml_tensor *a = op->src[0];
    const size_t size = ggml_type_size(a->type);
    const int d1 = d == 1 ? 2 : 1, d2 = d == 3 ? 2 : 3;
    const int64_t n_bands = (op->ne[d] + SQUARE - 1) / SQUARE;
    int64_t u, end;
    cpu_share(p, n_bands * op->ne[d1] * op->ne[d2], &u, &end);
    for (; u < end; u++) {
        const int64_t j = u % n_bands * SQUARE, i1 = u / n_bands % op->ne[d1], i2 = u / n_bands / op->ne[d1];
        const int64_t n = min_i64(op->ne[d] - j, SQUARE);
        char *to = (char *) op->data + (size_t) j * op->nb[d] + (size_t) i1 * op->nb[d1] + (size_t) i2 * op->nb[d2];
        const char *from = (const char *) a->data + (size_t) j * size + (size_t) i1 * a->nb[d1] + (size_t) i2 * a->nb[d2];
        (size == 2 ? transpose_2 : transpose_4)(to, op->nb[d], from, a->nb[0], op->ne[0], n);
    }
}

static void copy_run(const struct cpu_params *p, struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0];
    if (a->type == op->type && ggml_is_contiguous(a) && ggml_is_contiguous(op)) {
        copy_bytes(p, op);
        return;
    }
    if (a->type == op->type && cpu_are_same_shape(a, op) && is_dense(op) && a->data != op->data) {
        const int d = transposed_dim(a);
        if (is_dense(a) && op->ne[1] * op->ne[2] * op->ne[3] >= p->nth) {
            copy_rows(p, op);
            return;
        }
        if (!is_dense(a) && d != 0) {
            copy_transposed(p, op, d);
            return;
        }
    }
    _Alignas(16) char buf_a[CPU_PIECE * 8], buf_op[CPU_PIECE * 8];
    const int64_t n = ggml_nelements(op);
    int64_t i0, i1;
    cpu_share(p, (n + CPU_PIECE - 1) / CPU_PIECE, &i0, &i1);
    for (int64_t i = i0 * CPU_PIECE; i < i1 * CPU_PIECE && i < n; i += CPU_PIECE) {
        const int64_t m = min_i64(n - i, CPU_PIECE);
        const char *from = cells_gather(a, i, m, buf_a);
        if (a->type != op->type) {
            cells_convert(p->k, a->type, from, op->type, buf_op, m);
            from = buf_op;
        }
        cells_scatter(op, i, m, from);
    }
}

const struct cpu_op_entry cpu_ops_copy[] = {
    {GGML_OP_DUP, {.supports = copy_supports, .run = copy_run, .uses = CPU_USE_RETYPE}},
    {GGML_OP_CPY, {.supports = copy_supports, .run = copy_run, .uses = CPU_USE_RETYPE}},
    {GGML_OP_CONT, {.supports = copy_supports, .run = copy_run, .uses = CPU_USE_RETYPE}},
    {GGML_OP_NONE, {.run = NULL}},
    {GGML_OP_RESHAPE, {.run = NULL}},
    {GGML_OP_VIEW, {.run = NULL}},
    {GGML_OP_PERMUTE, {.run = NULL}},
    {GGML_OP_TRANSPOSE, {.run = NULL}},
    CPU_OPS_END,
};
