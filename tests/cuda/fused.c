// SPDX-License-Identifier: MIT
// fused.c: cases with several ops that a backend may compute in one launch: norms with the ops before and after them, ROPE into a
// cache, products of one column with norm, sum or gate.

#include "fused.h"

struct norm_case {
    bool rms, sum, mul, add, keep; // keep: another op reads the sum too, as in a residual stream
    int64_t ne[4];
};

static struct ggml_tensor *build_norm(struct op_build *b, const void *arg) {
    const struct norm_case *c = arg;
    struct ggml_tensor *x = op_input(b, GGML_TYPE_F32, c->ne), *s = x, *y;
    if (c->sum) {
        s = ggml_add(b->ctx, x, op_input(b, GGML_TYPE_F32, c->ne));
    }
    y = c->rms ? ggml_rms_norm(b->ctx, s, 1e-5f) : ggml_norm(b->ctx, s, 1e-5f);
    if (c->mul) {
        y = ggml_mul(b->ctx, y, op_input(b, GGML_TYPE_F32, NE(c->ne[0], 1, 1, 1)));
    }
    if (c->add) {
        y = ggml_add(b->ctx, y, op_input(b, GGML_TYPE_F32, NE(c->ne[0], 1, 1, 1)));
    }
    y = ggml_silu(b->ctx, y); // an op after the fusion
    return c->keep ? ggml_add(b->ctx, y, s) : y;
}

struct rope_case {
    int mode;
    enum ggml_type cache;
    int64_t d, n_head, n_token;
};

static struct ggml_tensor *build_rope(struct op_build *b, const void *arg) {
    const struct rope_case *c = arg;
    struct ggml_tensor *k = op_input(b, GGML_TYPE_F32, NE(c->d, c->n_head, c->n_token, 1));
    struct ggml_tensor *pos = op_indices(b, GGML_TYPE_I32, NE(c->n_token, 1, 1, 1), 500, false);
    struct ggml_tensor *to = op_indices(b, GGML_TYPE_I64, NE(c->n_token, 1, 1, 1), 32, true);
    struct ggml_tensor *cache = op_input(b, c->cache, NE(c->d * c->n_head, 32, 1, 1));
    k = ggml_rope(b->ctx, ggml_scale(b->ctx, k, 1.5f), pos, (int) c->d, c->mode);
    return ggml_set_rows(b->ctx, cache, ggml_reshape_2d(b->ctx, k, c->d * c->n_head, c->n_token), to);
}

// Rotates queries, rotates keys into a cache, and copies values into another cache. Returns the three results concatenated.
static struct ggml_tensor *build_rope_qkv(struct op_build *b, const void *arg) {
    const struct rope_case *c = arg;
    const int64_t width = c->d * c->n_head;
    struct ggml_tensor *q = op_input(b, GGML_TYPE_F32, NE(c->d, 2 * c->n_head, c->n_token, 1));
    struct ggml_tensor *k = op_input(b, GGML_TYPE_F32, NE(c->d, c->n_head, c->n_token, 1));
    struct ggml_tensor *v = op_input(b, GGML_TYPE_F32, NE(width, c->n_token, 1, 1));
    struct ggml_tensor *pos = op_indices(b, GGML_TYPE_I32, NE(c->n_token, 1, 1, 1), 500, false);
    struct ggml_tensor *to = op_indices(b, GGML_TYPE_I64, NE(c->n_token, 1, 1, 1), 32, true);
    struct ggml_tensor *keys = op_input(b, c->cache, NE(width, 32, 1, 1)), *values = op_input(b, c->cache, NE(width, 32, 1, 1));
    q = ggml_rope(b->ctx, q, pos, (int) c->d, c->mode);
    k = ggml_rope(b->ctx, k, pos, (int) c->d, c->mode);
    keys = ggml_set_rows(b->ctx, keys, ggml_reshape_2d(b->ctx, k, width, c->n_token), to);
    values = ggml_set_rows(b->ctx, values, v, to);
    struct ggml_tensor *both = ggml_concat(b->ctx, keys, values, 1);
    both = c->cache == GGML_TYPE_F32 ? both : ggml_cast(b->ctx, both, GGML_TYPE_F32);
    q = ggml_reshape_1d(b->ctx, q, ggml_nelements(q));
    return ggml_concat(b->ctx, q, ggml_reshape_1d(b->ctx, both, ggml_nelements(both)), 0);
}

struct mv_case {
    enum ggml_type type;
    int64_t k, m;
    bool norm;
    int kind; // 0: ADD after the product, 1: SWIGLU, 2: GEGLU, 3: two products, 4: three products
};

static struct ggml_tensor *build_mv(struct op_build *b, const void *arg) {
    const struct mv_case *c = arg;
    struct ggml_tensor *x = op_input(b, GGML_TYPE_F32, NE(c->k, 1, 1, 1)), *w[3];
    for (int i = 0; i < 3; i++) { // with two or three products, the last has another number of rows
        w[i] = op_input(b, c->type, NE(c->k, c->kind > 2 && i == 2 ? c->m / 2 + 1 : c->m, 1, 1));
    }
    if (c->norm) {
        x = ggml_mul(b->ctx, ggml_rms_norm(b->ctx, x, 1e-5f), op_input(b, GGML_TYPE_F32, NE(c->k, 1, 1, 1)));
    }
    struct ggml_tensor *y[3];
    for (int i = 0; i < 3; i++) {
        y[i] = ggml_mul_mat(b->ctx, w[i], x);
    }
    switch (c->kind) {
        case 0: return ggml_add(b->ctx, y[0], op_input(b, GGML_TYPE_F32, NE(c->m, 1, 1, 1)));
        case 1: return ggml_swiglu_split(b->ctx, y[0], y[1]);
        case 2: return ggml_geglu_split(b->ctx, y[0], y[1]);
        case 3: return ggml_concat(b->ctx, y[0], y[2], 0);
        default: return ggml_concat(b->ctx, y[0], ggml_concat(b->ctx, y[1], y[2], 0), 0);
    }
}

static void mv_cases(struct op_suite *s) {
    static const enum ggml_type types[] = {GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_BF16, GGML_TYPE_Q8_0, GGML_TYPE_Q4_0,
        GGML_TYPE_Q4_K, GGML_TYPE_Q6_K, GGML_TYPE_IQ4_NL};
    static const int64_t sizes[][2] = {{256, 5}, {768, 130}, {4096, 301}, {10240, 64}};
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            for (int k = 0; k < 10; k++) {
                const struct mv_case c = {types[t], sizes[i][0], sizes[i][1], k % 2 == 1, k / 2};
                op_case(s, "FUSED_MV", op_text("%s size %zu norm %d kind %d", ggml_type_name(types[t]), i, k % 2, k / 2), OP_F32,
                    build_mv, &c);
            }
        }
    }
}

void op_suite_fused(struct op_suite *s) {
    static const int64_t shapes[][4] = {
        {4096, 1, 1, 1}, {4096, 7, 1, 1}, {128, 5, 3, 2}, {129, 4, 1, 1}, {5, 3, 1, 1}, {20000, 2, 1, 1}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        for (int k = 0; k < 32; k++) {
            struct norm_case c = {.rms = k & 1, .sum = k & 2, .mul = k & 4, .add = k & 8, .keep = k & 16};
            for (int j = 0; j < 4; j++) {
                c.ne[j] = shapes[i][j];
            }
            op_case(s, "FUSED_NORM", op_text("shape %zu kind %d", i, k), OP_F32, build_norm, &c);
        }
    }
    static const enum ggml_type caches[] = {GGML_TYPE_F16, GGML_TYPE_F32, GGML_TYPE_BF16, GGML_TYPE_Q8_0};
    for (int mode = 0; mode <= GGML_ROPE_TYPE_NEOX; mode += GGML_ROPE_TYPE_NEOX) {
        for (size_t t = 0; t < sizeof caches / sizeof caches[0]; t++) {
            const struct rope_case one = {mode, caches[t], 128, 8, 1}, many = {mode, caches[t], 64, 3, 17};
            op_case(s, "FUSED_ROPE", op_text("mode %d %s", mode, ggml_type_name(caches[t])), OP_F32, build_rope, &one);
            op_case(s, "FUSED_ROPE", op_text("mode %d %s many", mode, ggml_type_name(caches[t])), OP_F32, build_rope, &many);
            if (caches[t] != GGML_TYPE_Q8_0) {
                op_case(
                    s, "FUSED_ROPE_QKV", op_text("mode %d %s", mode, ggml_type_name(caches[t])), OP_F32, build_rope_qkv, &one);
                op_case(s, "FUSED_ROPE_QKV", op_text("mode %d %s many", mode, ggml_type_name(caches[t])), OP_F32, build_rope_qkv,
                    &many);
            }
        }
    }
    mv_cases(s);
}
