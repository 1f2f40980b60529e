// SPDX-License-Identifier: MIT
// copy.c: DUP, CPY, CONT: elements in their order from one layout and type to another. Shapes may differ, the number of elements
// does not. Same type: bytes move as they are. Otherwise through f32, one rounding; to i32 toward zero.

#include "cpu/optable.h"
#include "cpu/rowio.h"

static bool is_dense(const struct ggml_tensor *t) {
    return t->nb[0] == ggml_type_size(t->type);
}

static bool can_widen(const struct ggml_tensor *t) {
    return t->type == GGML_TYPE_I32 || cpu_kernels_best.to_float[t->type] != NULL;
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
    return a->type == op->type || (can_widen(a) && cpu_kernels_best.traits[op->type].from_float != NULL);
}

// ---- elements i .. i+n-1 of a tensor in their order, to and from dense memory of its type ----

// Calls for each run of elements that lie in one row: position of the first, how many, and how many came before.
struct run {
    const struct ggml_tensor *t;
    int64_t i, left, done;
    char *at;  // the run
    int64_t n; // its elements
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
    r->n                 = r->left < in_row ? r->left : in_row;
    r->at                = cpu_row(r->t, cpu_row_pos(r->t, ir)) + (size_t) (i0 / ggml_blck_size(r->t->type)) * r->t->nb[0];
    return true;
}

static void strided_copy(char *to, size_t to_step, const char *from, size_t from_step, int64_t n, size_t size) {
    // constant sizes let the compiler see plain loads and stores
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

// The dense elements: where they lie, or gathered into buf.
static const char *gather(const struct ggml_tensor *t, int64_t i, int64_t n, char *buf) {
    const size_t size  = ggml_type_size(t->type);
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

static void scatter(const struct ggml_tensor *t, int64_t i, int64_t n, const char *buf) {
    const size_t size  = ggml_type_size(t->type);
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

// Dense n elements of one type to another; both ends as copy_supports allows.
static void convert(
    const struct cpu_kernels *k, enum ggml_type from_type, const char *from, enum ggml_type to_type, char *to, int64_t n) {
    float buf[CPU_PIECE];
    const float *x = buf;
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
    const size_t end   = (size_t) b1 * 64 < ggml_nbytes(op) ? (size_t) b1 * 64 : ggml_nbytes(op);
    if (end > first && op->data != op->src[0]->data) {
        memmove((char *) op->data + first, (const char *) op->src[0]->data + first, end - first);
    }
}

static void copy_run(const struct cpu_params *p, struct ggml_tensor *op) {
    const struct ggml_tensor *a = op->src[0];
    if (a->type == op->type && ggml_is_contiguous(a) && ggml_is_contiguous(op)) {
        copy_bytes(p, op);
        return;
    }
    _Alignas(16) char buf_a[CPU_PIECE * 8], buf_op[CPU_PIECE * 8];
    const int64_t n = ggml_nelements(op);
    int64_t i0, i1;
    cpu_share(p, (n + CPU_PIECE - 1) / CPU_PIECE, &i0, &i1);
    for (int64_t i = i0 * CPU_PIECE; i < i1 * CPU_PIECE && i < n; i += CPU_PIECE) {
        const int64_t m  = n - i < CPU_PIECE ? n - i : CPU_PIECE;
        const char *from = gather(a, i, m, buf_a);
        if (a->type != op->type) {
            convert(p->k, a->type, from, op->type, buf_op, m);
            from = buf_op;
        }
        scatter(op, i, m, from);
    }
}

const struct cpu_op_entry cpu_ops_copy[] = {
    {GGML_OP_DUP, {.supports = copy_supports, .run = copy_run, .uses = CPU_USE_RETYPE}},
    {GGML_OP_CPY, {.supports = copy_supports, .run = copy_run, .uses = CPU_USE_RETYPE}},
    {GGML_OP_CONT, {.supports = copy_supports, .run = copy_run, .uses = CPU_USE_RETYPE}},
    CPU_OPS_END,
};
