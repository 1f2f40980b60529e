// SPDX-License-Identifier: MIT
// rules.c: which shapes an op has, for nodes that no constructor made here: they came over the wire. A row an op; an op without
// a row does not go over the wire, and schedulers give it to another device. Types are for the device's supports_op to refuse.

#include "mpi/wire.h"

#include <string.h>

// r: the result, a to e: its sources
#define SOURCES(r) \
    const struct ggml_tensor *a = (r)->src[0], *b = (r)->src[1], *c = (r)->src[2], *d = (r)->src[3], *e = (r)->src[4]; \
    (void) a, (void) b, (void) c, (void) d, (void) e

static bool has_shape(const struct ggml_tensor *t, int64_t ne0, int64_t ne1, int64_t ne2, int64_t ne3) {
    return t->ne[0] == ne0 && t->ne[1] == ne1 && t->ne[2] == ne2 && t->ne[3] == ne3;
}

static bool divides(int64_t a, int64_t b) {
    return a > 0 && b % a == 0;
}

static bool is_repeat(const struct ggml_tensor *small, const struct ggml_tensor *large) {
    bool ok = true;
    for (int i = 0; i < GGML_MAX_DIMS; i++) {
        ok = ok && divides(small->ne[i], large->ne[i]);
    }
    return ok;
}

// Products of extents that fit 63 bits: its bytes lie in memory.
static int64_t n_of(const struct ggml_tensor *t) {
    int64_t n = 1;
    for (int i = 0; i < GGML_MAX_DIMS; i++) {
        n = __builtin_mul_overflow(n, t->ne[i], &n) ? -1 : n;
    }
    return n;
}

// ---- one function a kind of rule: the sources it needs are there ----

static bool anything(const struct ggml_tensor *r) {
    (void) r;
    return true;
}

static bool as_source(const struct ggml_tensor *r) {
    return ggml_are_same_shape(r, r->src[0]);
}

static bool as_many(const struct ggml_tensor *r) {
    SOURCES(r);
    return n_of(r) >= 0 && n_of(r) == n_of(a) && (b == NULL || n_of(b) == n_of(a));
}

static bool with_repeated(const struct ggml_tensor *r) {
    SOURCES(r);
    return ggml_are_same_shape(r, a) && is_repeat(b, a);
}

static bool repeats(const struct ggml_tensor *r) {
    return is_repeat(r->src[0], r);
}

static bool product(const struct ggml_tensor *r) {
    SOURCES(r);
    return a->ne[0] == b->ne[0] && divides(a->ne[2], b->ne[2]) && divides(a->ne[3], b->ne[3]) && !ggml_is_transposed(a) &&
           has_shape(r, a->ne[1], b->ne[1], b->ne[2], b->ne[3]);
}

static bool product_by_id(const struct ggml_tensor *r) {
    SOURCES(r);
    return a->ne[0] == b->ne[0] && a->ne[3] == 1 && b->ne[3] == 1 && c->type == GGML_TYPE_I32 && c->ne[2] == 1 && c->ne[3] == 1 &&
           c->ne[1] == b->ne[2] && divides(b->ne[1], c->ne[0]) && !ggml_is_transposed(a) &&
           has_shape(r, a->ne[1], c->ne[0], b->ne[2], 1);
}

static bool add_by_id(const struct ggml_tensor *r) {
    SOURCES(r);
    return ggml_are_same_shape(r, a) && a->ne[3] == 1 && a->ne[0] == b->ne[0] && b->ne[2] == 1 && b->ne[3] == 1 &&
           c->type == GGML_TYPE_I32 && has_shape(c, a->ne[1], a->ne[2], 1, 1);
}

static bool rows_got(const struct ggml_tensor *r) {
    SOURCES(r);
    return b->type == GGML_TYPE_I32 && b->ne[3] == 1 && a->ne[2] == b->ne[1] && a->ne[3] == b->ne[2] &&
           has_shape(r, a->ne[0], b->ne[0], b->ne[1], b->ne[2]);
}

static bool rows_set(const struct ggml_tensor *r) {
    SOURCES(r);
    return (b->type == GGML_TYPE_I64 || b->type == GGML_TYPE_I32) && has_shape(r, a->ne[0], r->ne[1], a->ne[2], a->ne[3]) &&
           b->ne[0] == a->ne[1] && divides(b->ne[1], a->ne[2]) && divides(b->ne[2], a->ne[3]) && b->ne[3] == 1 &&
           ggml_is_contiguous_rows(r) && ggml_is_contiguous_rows(a) && (c == NULL || ggml_are_same_shape(r, c));
}

static bool glu(const struct ggml_tensor *r) {
    SOURCES(r);
    const bool is_whole = b != NULL;
    return ggml_is_contiguous_rows(a) &&
           (!is_whole || (ggml_is_contiguous_rows(b) && ggml_are_same_shape(a, b) && a->type == b->type)) &&
           (is_whole || a->ne[0] % 2 == 0) && has_shape(r, is_whole ? a->ne[0] : a->ne[0] / 2, a->ne[1], a->ne[2], a->ne[3]);
}

static bool softmax(const struct ggml_tensor *r) {
    SOURCES(r);
    return ggml_are_same_shape(r, a) && ggml_is_contiguous(a) &&
           (b == NULL ||
               ((b->type == GGML_TYPE_F16 || b->type == GGML_TYPE_F32) && ggml_is_contiguous(b) && b->ne[0] == a->ne[0] &&
                   b->ne[1] >= a->ne[1] && divides(b->ne[2], a->ne[2]) && divides(b->ne[3], a->ne[3]))) &&
           (c == NULL || (c->type == GGML_TYPE_F32 && has_shape(c, a->ne[2], 1, 1, 1)));
}

static bool rope(const struct ggml_tensor *r) {
    SOURCES(r);
    int32_t n_dims = r->op_params[1], mode = r->op_params[2];
    const int64_t n_pos = (mode & GGML_ROPE_TYPE_MROPE) != 0 ? 4 * a->ne[2] : a->ne[2];
    return ggml_are_same_shape(r, a) && b->type == GGML_TYPE_I32 && has_shape(b, n_pos, 1, 1, 1) && n_dims > 0 &&
           n_dims % 2 == 0 && n_dims <= a->ne[0] &&
           (c == NULL || (c->type == GGML_TYPE_F32 && c->ne[0] >= n_dims / 2 && c->ne[1] == 1 && c->ne[2] == 1 && c->ne[3] == 1));
}

static bool attention(const struct ggml_tensor *r) {
    SOURCES(r); // q, k, v, mask, sinks
    return b->ne[0] == a->ne[0] && divides(b->ne[2], a->ne[2]) && divides(c->ne[2], a->ne[2]) && b->ne[1] == c->ne[1] &&
           a->ne[3] == b->ne[3] && a->ne[3] == c->ne[3] && has_shape(r, c->ne[0], a->ne[2], a->ne[1], a->ne[3]) &&
           (d == NULL || (d->type == GGML_TYPE_F16 && ggml_is_contiguous(d) && d->ne[0] >= b->ne[1] && d->ne[1] >= a->ne[1] &&
                             divides(d->ne[2], a->ne[2]) && divides(d->ne[3], a->ne[3]))) &&
           (e == NULL || (e->type == GGML_TYPE_F32 && has_shape(e, a->ne[2], 1, 1, 1)));
}

static bool rows_summed(const struct ggml_tensor *r) {
    SOURCES(r);
    return has_shape(r, 1, a->ne[1], a->ne[2], a->ne[3]);
}

static bool joined(const struct ggml_tensor *r) {
    SOURCES(r);
    const int32_t dim = r->op_params[0];
    bool ok = dim >= 0 && dim < GGML_MAX_DIMS && a->type == b->type && r->type == a->type;
    for (int i = 0; ok && i < GGML_MAX_DIMS; i++) {
        ok = i == dim ? r->ne[i] == a->ne[i] + b->ne[i] : r->ne[i] == a->ne[i] && b->ne[i] == a->ne[i];
    }
    return ok;
}

static bool sorted(const struct ggml_tensor *r) {
    return ggml_are_same_shape(r, r->src[0]) && r->type == GGML_TYPE_I32;
}

static const struct {
    bool (*holds)(const struct ggml_tensor *r);
    int n_needed, n_most; // sources: so many at least, and no others behind the most
} rules[GGML_OP_COUNT] = {
    [GGML_OP_NONE] = {anything, 0, GGML_MAX_SRC},
    [GGML_OP_RESHAPE] = {anything, 0, GGML_MAX_SRC},
    [GGML_OP_VIEW] = {anything, 0, GGML_MAX_SRC},
    [GGML_OP_PERMUTE] = {anything, 0, GGML_MAX_SRC},
    [GGML_OP_TRANSPOSE] = {anything, 0, GGML_MAX_SRC},
    [GGML_OP_DUP] = {as_many, 1, 1},
    [GGML_OP_CPY] = {as_many, 1, 2},
    [GGML_OP_CONT] = {as_many, 1, 1},
    [GGML_OP_ADD] = {with_repeated, 2, 2},
    [GGML_OP_SUB] = {with_repeated, 2, 2},
    [GGML_OP_MUL] = {with_repeated, 2, 2},
    [GGML_OP_DIV] = {with_repeated, 2, 2},
    [GGML_OP_ADD_ID] = {add_by_id, 3, 3},
    [GGML_OP_SQR] = {as_source, 1, 1},
    [GGML_OP_SQRT] = {as_source, 1, 1},
    [GGML_OP_LOG] = {as_source, 1, 1},
    [GGML_OP_SIN] = {as_source, 1, 1},
    [GGML_OP_COS] = {as_source, 1, 1},
    [GGML_OP_UNARY] = {as_source, 1, 1},
    [GGML_OP_SCALE] = {as_source, 1, 1},
    [GGML_OP_CLAMP] = {as_source, 1, 1},
    [GGML_OP_LEAKY_RELU] = {as_source, 1, 1},
    [GGML_OP_NORM] = {as_source, 1, 1},
    [GGML_OP_RMS_NORM] = {as_source, 1, 1},
    [GGML_OP_L2_NORM] = {as_source, 1, 1},
    [GGML_OP_DIAG_MASK_INF] = {as_source, 1, 1},
    [GGML_OP_DIAG_MASK_ZERO] = {as_source, 1, 1},
    [GGML_OP_SUM_ROWS] = {rows_summed, 1, 1},
    [GGML_OP_MEAN] = {rows_summed, 1, 1},
    [GGML_OP_REPEAT] = {repeats, 1, 1},
    [GGML_OP_CONCAT] = {joined, 2, 2},
    [GGML_OP_ARGSORT] = {sorted, 1, 1},
    [GGML_OP_MUL_MAT] = {product, 2, 2},
    [GGML_OP_MUL_MAT_ID] = {product_by_id, 3, 3},
    [GGML_OP_GET_ROWS] = {rows_got, 2, 2},
    [GGML_OP_SET_ROWS] = {rows_set, 2, 3},
    [GGML_OP_GLU] = {glu, 1, 2},
    [GGML_OP_SOFT_MAX] = {softmax, 1, 3},
    [GGML_OP_ROPE] = {rope, 2, 3},
    [GGML_OP_FLASH_ATTN_EXT] = {attention, 3, 5},
};

bool mpi_rules_hold(const struct ggml_tensor *node) {
    if ((unsigned) node->op >= GGML_OP_COUNT || rules[node->op].holds == NULL) {
        return false;
    }
    for (int i = 0; i < GGML_MAX_SRC; i++) {
        if (node->src[i] == NULL ? i < rules[node->op].n_needed : i >= rules[node->op].n_most) {
            return false;
        }
    }
    return rules[node->op].holds(node);
}
