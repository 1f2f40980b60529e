// SPDX-License-Identifier: MIT
// fused.c: cases with several ops that a backend may compute in one launch: norms with the ops before and after them, ROPE into a
// cache, products of a few columns with norm, sum or gate, layers of experts, and parts of state space layers.

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
    bool norm;    // a norm of the heads comes before ROPE
    bool streams; // the rows of two sequences form one cache: its view comes between ROPE and SET_ROWS
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

static struct ggml_tensor *rope_input(struct op_build *b, const struct rope_case *c, int64_t n_head) {
    struct ggml_tensor *x = op_input(b, GGML_TYPE_F32, NE(c->d, n_head, c->n_token, 1));
    if (!c->norm) {
        return x;
    }
    return ggml_mul(b->ctx, ggml_rms_norm(b->ctx, x, 1e-5f), op_input(b, GGML_TYPE_F32, NE(c->d, 1, 1, 1)));
}

static struct ggml_tensor *rope_cache(struct op_build *b, const struct rope_case *c) {
    const int64_t width = c->d * c->n_head;
    struct ggml_tensor *cache = op_input(b, c->cache, c->streams ? NE(width, 16, 2, 1) : NE(width, 32, 1, 1));
    return c->streams ? ggml_reshape_2d(b->ctx, cache, width, 32) : cache;
}

// Rotates queries, rotates keys into a cache, and copies values into another cache. Returns the three results concatenated.
static struct ggml_tensor *build_rope_qkv(struct op_build *b, const void *arg) {
    const struct rope_case *c = arg;
    const int64_t width = c->d * c->n_head;
    struct ggml_tensor *q = rope_input(b, c, 2 * c->n_head), *k = rope_input(b, c, c->n_head);
    struct ggml_tensor *v = op_input(b, GGML_TYPE_F32, NE(width, c->n_token, 1, 1));
    struct ggml_tensor *pos = op_indices(b, GGML_TYPE_I32, NE(c->n_token, 1, 1, 1), 500, false);
    struct ggml_tensor *to = op_indices(b, GGML_TYPE_I64, NE(c->n_token, 1, 1, 1), 32, true);
    q = ggml_rope(b->ctx, q, pos, (int) c->d, c->mode);
    k = ggml_rope(b->ctx, k, pos, (int) c->d, c->mode);
    struct ggml_tensor *keys = ggml_set_rows(b->ctx, rope_cache(b, c), ggml_reshape_2d(b->ctx, k, width, c->n_token), to);
    struct ggml_tensor *values = ggml_set_rows(b->ctx, rope_cache(b, c), v, to);
    struct ggml_tensor *both = ggml_concat(b->ctx, keys, values, 1);
    both = c->cache == GGML_TYPE_F32 ? both : ggml_cast(b->ctx, both, GGML_TYPE_F32);
    q = ggml_reshape_1d(b->ctx, q, ggml_nelements(q));
    return ggml_concat(b->ctx, q, ggml_reshape_1d(b->ctx, both, ggml_nelements(both)), 0);
}

struct mv_case {
    enum ggml_type type;
    int64_t k, m, n;
    bool norm;
    // 0: ADD after the product, 1: SWIGLU, 2: GEGLU, 3: two products, 4: three products, 5: SWIGLU, a product and ADD
    int kind;
};

static struct ggml_tensor *build_mv(struct op_build *b, const void *arg) {
    const struct mv_case *c = arg;
    struct ggml_tensor *x = op_input(b, GGML_TYPE_F32, NE(c->k, c->n, 1, 1)), *w[3];
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
        case 0: return ggml_add(b->ctx, y[0], op_input(b, GGML_TYPE_F32, NE(c->m, c->n, 1, 1)));
        case 1: return ggml_swiglu_split(b->ctx, y[0], y[1]);
        case 2: return ggml_geglu_split(b->ctx, y[0], y[1]);
        case 3: return ggml_concat(b->ctx, y[0], y[2], 0);
        case 5:
            x = ggml_mul_mat(b->ctx, op_input(b, c->type, NE(c->m, 100, 1, 1)), ggml_swiglu_split(b->ctx, y[0], y[1]));
            return ggml_add(b->ctx, x, op_input(b, GGML_TYPE_F32, NE(100, c->n, 1, 1)));
        default: return ggml_concat(b->ctx, y[0], ggml_concat(b->ctx, y[1], y[2], 0), 0);
    }
}

static void mv_cases(struct op_suite *s) {
    static const enum ggml_type types[] = {GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_BF16, GGML_TYPE_Q8_0, GGML_TYPE_Q4_0,
        GGML_TYPE_Q4_K, GGML_TYPE_Q6_K, GGML_TYPE_IQ4_NL};
    static const int64_t columns[] = {1, 2, 3, 8, 13, 32}, sizes[][2] = {{256, 5}, {768, 256}, {4096, 301}, {10240, 64}};
    enum { N_TYPES = sizeof types / sizeof types[0], N_COLUMNS = sizeof columns / sizeof columns[0], N_KINDS = 6 };
    for (int i = 0; i < N_TYPES * 4 * N_COLUMNS * N_KINDS * 2; i++) {
        const int kind = i / 2 % N_KINDS, size = i / 2 / N_KINDS / N_COLUMNS % 4;
        const struct mv_case c = {.type = types[i / 2 / N_KINDS / N_COLUMNS / 4],
            .k = sizes[size][0],
            .m = sizes[size][1],
            .n = columns[i / 2 / N_KINDS % N_COLUMNS],
            .norm = i % 2 == 1,
            .kind = kind};
        if (kind < 5 || c.m % ggml_blck_size(c.type) == 0) {
            const char *text =
                op_text("%s size %d columns %d norm %d kind %d", ggml_type_name(c.type), size, (int) c.n, c.norm, kind);
            op_case(s, "FUSED_MV", text, OP_F32, build_mv, &c);
        }
    }
}

struct experts_case {
    enum ggml_type type, type_down;
    int64_t n_embd, n_ff, n_expert, n_used, n_token;
    bool norm, geglu;
};

static struct ggml_tensor *flat(struct op_build *b, struct ggml_tensor *t) {
    return ggml_reshape_1d(b->ctx, t, ggml_nelements(t));
}

// A layer of experts. Returns the weights of the selected experts and the sum of the experts' results, concatenated. The weights
// come first, so that their nodes come before the products.
static struct ggml_tensor *build_experts(struct op_build *b, const void *arg) {
    const struct experts_case *c = arg;
    struct ggml_context *ctx = b->ctx;
    struct ggml_tensor *logits = op_input_range(b, GGML_TYPE_F32, NE(c->n_expert, c->n_token, 1, 1), -3.0f, 3.0f);
    struct ggml_tensor *x = op_input(b, GGML_TYPE_F32, NE(c->n_embd, 1, c->n_token, 1));
    struct ggml_tensor *gate = op_input(b, c->type, NE(c->n_embd, c->n_ff, c->n_expert, 1));
    struct ggml_tensor *up = op_input(b, c->type, NE(c->n_embd, c->n_ff, c->n_expert, 1));
    struct ggml_tensor *down = op_input(b, c->type_down, NE(c->n_ff, c->n_embd, c->n_expert, 1));
    struct ggml_tensor *probs = ggml_soft_max(ctx, logits);
    struct ggml_tensor *sort = ggml_argsort(ctx, probs, GGML_SORT_ORDER_DESC);
    struct ggml_tensor *ids = ggml_view_2d(ctx, sort, c->n_used, c->n_token, sort->nb[1], 0);
    struct ggml_tensor *w = ggml_get_rows(ctx, ggml_reshape_3d(ctx, probs, 1, c->n_expert, c->n_token), ids);
    if (c->norm) {
        w = ggml_reshape_2d(ctx, w, c->n_used, c->n_token);
        w = ggml_div(ctx, w, ggml_clamp(ctx, ggml_sum_rows(ctx, w), 6e-5f, 1e30f));
        w = ggml_reshape_3d(ctx, w, 1, c->n_used, c->n_token);
    }
    struct ggml_tensor *g = ggml_mul_mat_id(ctx, gate, x, ids), *u = ggml_mul_mat_id(ctx, up, x, ids);
    struct ggml_tensor *y = c->geglu ? ggml_geglu_split(ctx, g, u) : ggml_swiglu_split(ctx, g, u);
    y = ggml_mul(ctx, ggml_mul_mat_id(ctx, down, y, ids), w);
    struct ggml_tensor *sum = NULL;
    for (int64_t i = 0; i < c->n_used; i++) {
        struct ggml_tensor *slot = ggml_view_2d(ctx, y, c->n_embd, c->n_token, y->nb[2], (size_t) i * y->nb[1]);
        sum = sum != NULL ? ggml_add(ctx, sum, slot) : slot;
    }
    return ggml_concat(ctx, flat(b, ggml_scale(ctx, w, 1.0f)), flat(b, ggml_cont(ctx, sum)), 0);
}

static void experts_cases(struct op_suite *s) {
    static const enum ggml_type types[] = {GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_Q8_0, GGML_TYPE_Q4_K, GGML_TYPE_Q6_K};
    static const int64_t tokens[] = {1, 4, 16, 70};
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
        for (size_t i = 0; i < sizeof tokens / sizeof tokens[0]; i++) {
            const struct experts_case c = {types[t], types[t] == GGML_TYPE_Q4_K && i % 2 == 1 ? GGML_TYPE_Q6_K : types[t], 256,
                512, t == 3 ? 40 : 8, t == 4 ? 2 : 4, tokens[i], t != 1, t == 2};
            op_case(s, "FUSED_EXPERTS", op_text("%s tokens %d", ggml_type_name(types[t]), (int) tokens[i]), OP_F32, build_experts,
                &c);
        }
    }
}

struct ssm_case {
    int64_t d_state, d_head, n_head, n_token, n_seq, d_conv;
    bool in_place; // the convolution writes the last inputs over the first ones
};

// A convolution, its bias and activation, and the write of its last inputs into a cache.
static struct ggml_tensor *build_ssm_conv(struct op_build *b, const void *arg) {
    const struct ssm_case *c = arg;
    struct ggml_context *ctx = b->ctx;
    struct ggml_tensor *before = op_input(b, GGML_TYPE_F32, NE(c->d_conv - 1, c->n_head, c->n_seq, 1));
    struct ggml_tensor *x = op_input(b, GGML_TYPE_F32, NE(2 * c->n_head, c->n_token, c->n_seq, 1));
    struct ggml_tensor *cache = c->in_place ? before : op_input(b, GGML_TYPE_F32, NE(c->d_conv - 1, c->n_head, c->n_seq, 1));
    x = ggml_view_3d(ctx, x, c->n_head, c->n_token, c->n_seq, x->nb[1], x->nb[2], 0);
    struct ggml_tensor *all = ggml_concat(ctx, before, ggml_transpose(ctx, x), 0);
    struct ggml_tensor *last =
        ggml_view_3d(ctx, all, c->d_conv - 1, c->n_head, c->n_seq, all->nb[1], all->nb[2], (size_t) c->n_token * sizeof(float));
    struct ggml_tensor *kept = ggml_cpy(ctx, last, cache);
    struct ggml_tensor *y = ggml_ssm_conv(ctx, all, op_input(b, GGML_TYPE_F32, NE(c->d_conv, c->n_head, 1, 1)));
    y = ggml_silu(ctx, ggml_add(ctx, y, op_input(b, GGML_TYPE_F32, NE(c->n_head, 1, 1, 1))));
    return ggml_concat(ctx, flat(b, kept), flat(b, y), 0);
}

// A scan, the write of its states into the cache, and the gate.
static struct ggml_tensor *build_ssm_scan(struct op_build *b, const void *arg) {
    const struct ssm_case *c = arg;
    struct ggml_context *ctx = b->ctx;
    struct ggml_tensor *s = op_input(b, GGML_TYPE_F32, NE(c->d_state, c->d_head, c->n_head, c->n_seq + 1));
    struct ggml_tensor *x = op_input(b, GGML_TYPE_F32, NE(c->d_head, c->n_head, c->n_token, c->n_seq));
    struct ggml_tensor *dt = op_input(b, GGML_TYPE_F32, NE(c->n_head, c->n_token, c->n_seq, 1));
    struct ggml_tensor *A = op_input_range(b, GGML_TYPE_F32, NE(c->d_head == 1 ? c->d_state : 1, c->n_head, 1, 1), -2.0f, 0.0f);
    struct ggml_tensor *B = op_input(b, GGML_TYPE_F32, NE(c->d_state, 1, c->n_token, c->n_seq));
    struct ggml_tensor *C = op_input(b, GGML_TYPE_F32, NE(c->d_state, 1, c->n_token, c->n_seq));
    struct ggml_tensor *ids = op_indices(b, GGML_TYPE_I32, NE(c->n_seq, 1, 1, 1), c->n_seq + 1, false);
    const int64_t n_states = c->d_state * c->d_head * c->n_head * c->n_seq;
    struct ggml_tensor *scan = ggml_ssm_scan(ctx, s, x, dt, A, B, C, ids, 1);
    struct ggml_tensor *states = ggml_view_1d(ctx, scan, n_states, (size_t) ggml_nelements(x) * sizeof(float));
    struct ggml_tensor *kept = ggml_cpy(ctx, states, ggml_view_1d(ctx, s, n_states, 0));
    struct ggml_tensor *y = ggml_view_4d(ctx, scan, c->d_head, c->n_head, c->n_token, c->n_seq, x->nb[1], x->nb[2], x->nb[3], 0);
    struct ggml_tensor *z = op_input(b, GGML_TYPE_F32, NE(2 * c->d_head, c->n_head, c->n_token, c->n_seq));
    z = ggml_view_4d(ctx, z, c->d_head, c->n_head, c->n_token, c->n_seq, z->nb[1], z->nb[2], z->nb[3], 0);
    struct ggml_tensor *d = op_input(b, GGML_TYPE_F32, NE(1, c->n_head, 1, 1));
    y = ggml_swiglu_split(ctx, ggml_cont(ctx, z), ggml_add(ctx, y, ggml_mul(ctx, x, d)));
    return ggml_concat(ctx, flat(b, kept), flat(b, y), 0);
}

static void ssm_cases(struct op_suite *s) {
    static const struct ssm_case cases[] = {{16, 1, 300, 1, 1, 4, false}, {16, 1, 33, 70, 1, 4, true},
        {16, 1, 64, 20, 3, 3, false}, {16, 1, 130, 2, 2, 4, true}, {64, 24, 5, 35, 1, 2, false}, {128, 64, 6, 65, 1, 4, false},
        {256, 16, 3, 9, 2, 4, true}, {128, 64, 2, 1, 1, 4, true}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        op_case(s, "FUSED_SSM_CONV", op_text("case %zu", i), OP_F32, build_ssm_conv, &cases[i]);
        op_case(s, "FUSED_SSM_SCAN", op_text("case %zu", i), OP_F32, build_ssm_scan, &cases[i]);
    }
}

static void rope_qkv_cases(struct op_suite *s, const struct rope_case *shape) {
    const int64_t heads[] = {shape->d, 32, 72, 256};
    for (int i = 0; i < 16; i++) {
        struct rope_case c = *shape;
        c.norm = i & 1;
        c.streams = i & 2;
        c.d = heads[i / 4];
        const char *text = op_text("mode %d %s tokens %d head %d norm %d streams %d", c.mode, ggml_type_name(c.cache),
            (int) c.n_token, (int) c.d, c.norm, c.streams);
        op_case(s, "FUSED_ROPE_QKV", text, OP_F32, build_rope_qkv, &c);
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
            const struct rope_case one = {mode, caches[t], 128, 8, 1, false, false},
                                   many = {mode, caches[t], 64, 3, 17, false, false};
            op_case(s, "FUSED_ROPE", op_text("mode %d %s", mode, ggml_type_name(caches[t])), OP_F32, build_rope, &one);
            op_case(s, "FUSED_ROPE", op_text("mode %d %s many", mode, ggml_type_name(caches[t])), OP_F32, build_rope, &many);
            if (caches[t] != GGML_TYPE_Q8_0) {
                rope_qkv_cases(s, &one);
                rope_qkv_cases(s, &many);
            }
        }
    }
    mv_cases(s);
    experts_cases(s);
    ssm_cases(s);
}
