// SPDX-License-Identifier: MIT
// ssm.c: cases of op/ssm.c: state space models (SSM_CONV, SSM_SCAN), triangular solver (SOLVE_TRI), hyper-connections (DSV4_HC_*).

#include "op.h"
#include "plain.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>

#define N(a) (sizeof(a) / sizeof((a)[0]))

// ---- SSM_CONV ----

struct conv {
    int64_t d_conv, d_inner, n_token, n_seq;
    bool has_gaps, specials;
};

static struct ggml_tensor *build_conv(struct op_build *b, const void *arg) {
    const struct conv *c = arg;
    const int64_t *ne = NE(c->d_conv - 1 + c->n_token, c->d_inner, c->n_seq, 1);
    struct ggml_tensor *x = c->has_gaps ? op_input_holes(b, GGML_TYPE_F32, ne) : op_input(b, GGML_TYPE_F32, ne);
    if (c->specials) {
        op_with_specials(x);
    }
    b->plain = c->specials ? NULL : op_plain_ssm_conv;
    return ggml_ssm_conv(b->ctx, x, op_input(b, GGML_TYPE_F32, NE(c->d_conv, c->d_inner, 1, 1)));
}

// ---- SSM_SCAN ----

struct scan {
    int64_t d_state, d_head, n_head, n_group, n_token, n_seq;
    bool is_scalar_decay, packed;
    float dt_lo, dt_hi;
    int64_t K; // number of states in the result
};

static struct ggml_tensor *build_scan(struct op_build *b, const void *arg) {
    const struct scan *c = arg;
    struct ggml_context *ctx = b->ctx;
    struct ggml_tensor *s = op_input(b, GGML_TYPE_F32, NE(c->d_state, c->d_head, c->n_head, c->n_seq + 1));
    struct ggml_tensor *x = op_input(b, GGML_TYPE_F32, NE(c->d_head, c->n_head, c->n_token, c->n_seq));
    struct ggml_tensor *dt = op_input_range(b, GGML_TYPE_F32, NE(c->n_head, c->n_token, c->n_seq, 1), c->dt_lo, c->dt_hi);
    struct ggml_tensor *A =
        op_input_range(b, GGML_TYPE_F32, NE(c->is_scalar_decay ? 1 : c->d_state, c->n_head, 1, 1), -2.0f, 0.0f);
    struct ggml_tensor *B = op_input(b, GGML_TYPE_F32, NE(c->d_state, 2 * c->n_group, c->n_token, c->n_seq));
    struct ggml_tensor *C;
    if (c->packed) {
        struct ggml_tensor *both = B;
        B = ggml_view_4d(ctx, both, c->d_state, c->n_group, c->n_token, c->n_seq, both->nb[1], both->nb[2], both->nb[3], 0);
        C = ggml_view_4d(ctx, both, c->d_state, c->n_group, c->n_token, c->n_seq, both->nb[1], both->nb[2], both->nb[3],
            (size_t) c->n_group * both->nb[1]);
    } else {
        B = op_input(b, GGML_TYPE_F32, NE(c->d_state, c->n_group, c->n_token, c->n_seq));
        C = op_input(b, GGML_TYPE_F32, NE(c->d_state, c->n_group, c->n_token, c->n_seq));
    }
    return ggml_ssm_scan(ctx, s, x, dt, A, B, C, op_indices(b, GGML_TYPE_I32, NE(c->n_seq, 1, 1, 1), c->n_seq + 1, false), c->K);
}

static void state_space_cases(struct op_suite *s) {
    static const int64_t filters[][2] = {{4, 1}, {1, 7}, {2, 64}, {3, 100}, {9, 33}, {4, 1030}};
    for (size_t i = 0; i < N(filters); i++) {
        for (int64_t n_token = 1; n_token < 30; n_token *= 3) {
            for (int64_t n_seq = 1; n_seq < 4; n_seq += 2) {
                const struct conv c = {filters[i][0], filters[i][1], n_token, n_seq, i == 0 && n_token == 3, n_token == 9};
                op_case(s, "SSM_CONV", op_text("filter %zu tokens %d sequences %d", i, (int) n_token, (int) n_seq), OP_F32,
                    build_conv, &c);
            }
        }
    }
    static const int64_t sizes[][6] = {{16, 1, 33, 1, 5, 2}, {16, 1, 1, 1, 1, 1}, {128, 64, 4, 1, 3, 1}, {64, 8, 6, 2, 7, 3},
        {5, 3, 4, 4, 2, 2}, {17, 9, 8, 2, 33, 1}, {1, 1, 1, 1, 1, 1}, {16, 1, 512, 1, 2, 2}, {128, 16, 24, 3, 4, 2},
        {256, 4, 2, 1, 9, 1}, {16, 1, 70, 1, 77, 2}, {64, 20, 3, 1, 40, 2}, {128, 33, 4, 2, 19, 1}};
    for (size_t i = 0; i < N(sizes); i++) {
        for (int is_scalar_decay = 0; is_scalar_decay < 2; is_scalar_decay++) {
            // variant 1: dt has a wide range. variant 2: B and C are parts of one tensor. K differs if is_scalar_decay is set.
            for (int variant = 0; variant < 3; variant++) {
                const int64_t *z = sizes[i];
                const struct scan c = {z[0], z[1], z[2], z[3], z[4], z[5], is_scalar_decay, variant == 2,
                    variant == 1 ? -5.0f : -1.0f, variant == 1 ? 25.0f : 1.0f,
                    !is_scalar_decay || variant == 1 ? 1
                    : variant == 0                   ? z[4] + 2
                                                     : z[4] / 2 + 1};
                op_case(s, "SSM_SCAN", op_text("size %zu one rate %d variant %d", i, is_scalar_decay, variant), OP_F32,
                    build_scan, &c);
            }
        }
    }
}

// ---- SOLVE_TRI ----

struct solve {
    int64_t n, m, ne2, ne3;
    bool zero;
};

static struct ggml_tensor *build_solve(struct op_build *b, const void *arg) {
    const struct solve *c = arg;
    struct ggml_tensor *a = op_input_range(b, GGML_TYPE_F32, NE(c->n, c->n, c->ne2, c->ne3), -0.2f, 0.2f);
    for (int64_t i = 0; i < ggml_nelements(a); i++) {
        if (i / c->n % c->n == i % c->n) {
            float *x = op_at(a, i);
            *x = c->zero ? 0.0f : 1.7f + *x;
        }
    }
    return ggml_solve_tri(b->ctx, a, op_input(b, GGML_TYPE_F32, NE(c->m, c->n, c->ne2, c->ne3)), true, true, false);
}

static void solve_cases(struct op_suite *s) {
    for (int64_t n = 1; n < 140; n = n * 2 + 1) {
        for (int64_t m = 1; m < 130; m = m * 4 + 1) {
            for (int64_t ne2 = 1; ne2 < 3; ne2++) {
                const struct solve c = {n, m, ne2, 3, false};
                op_case(s, "SOLVE_TRI", op_text("%dx%d batch %d", (int) n, (int) m, (int) ne2), OP_F32, build_solve, &c);
            }
        }
    }
    const struct solve zero = {4, 3, 1, 1, true};
    op_case(s, "SOLVE_TRI", "a zero on the diagonal", OP_F32, build_solve, &zero);
}

// ---- hyper-connections ----

struct hc {
    int64_t n_embd, n_stream, n_token;
    float eps;
    int n_iter;
    bool has_gaps;
};

static struct ggml_tensor *input(struct op_build *b, const struct hc *c, const int64_t *ne) {
    return c->has_gaps ? op_input_holes(b, GGML_TYPE_F32, ne) : op_input(b, GGML_TYPE_F32, ne);
}

static struct ggml_tensor *build_comb(struct op_build *b, const void *arg) {
    const struct hc *c = arg;
    struct ggml_tensor *m = c->has_gaps ? op_input_holes(b, GGML_TYPE_F32, NE(24, c->n_token, 1, 1))
                                        : op_input_range(b, GGML_TYPE_F32, NE(24, c->n_token, 1, 1), -4.0f, 4.0f);
    return ggml_dsv4_hc_comb(
        b->ctx, m, op_input(b, GGML_TYPE_F32, NE(3, 1, 1, 1)), op_input(b, GGML_TYPE_F32, NE(24, 1, 1, 1)), c->eps, c->n_iter);
}

static struct ggml_tensor *build_pre(struct op_build *b, const void *arg) {
    const struct hc *c = arg;
    return ggml_dsv4_hc_pre(
        b->ctx, input(b, c, NE(c->n_embd, c->n_stream, c->n_token, 1)), input(b, c, NE(c->n_stream, c->n_token, 1, 1)));
}

static struct ggml_tensor *build_pre_gated(struct op_build *b, const void *arg) {
    const struct hc *c = arg;
    const int64_t *ne = NE(c->n_embd, c->n_stream, c->n_token, 1);
    return ggml_dsv4_hc_pre_gated(b->ctx, input(b, c, ne), input(b, c, ne), c->eps);
}

static struct ggml_tensor *build_post(struct op_build *b, const void *arg) {
    const struct hc *c = arg;
    return ggml_dsv4_hc_post(b->ctx, input(b, c, NE(c->n_embd, c->n_token, 1, 1)),
        input(b, c, NE(c->n_embd, c->n_stream, c->n_token, 1)), input(b, c, NE(c->n_stream, c->n_token, 1, 1)),
        input(b, c, NE(c->n_stream, c->n_stream, c->n_token, 1)));
}

static struct ggml_tensor *build_post_alone(struct op_build *b, const void *arg) {
    const struct hc *c = arg;
    return ggml_dsv4_hc_post(b->ctx, input(b, c, NE(c->n_embd, c->n_token, 1, 1)),
        input(b, c, NE(c->n_embd, c->n_stream, c->n_token, 1)), input(b, c, NE(c->n_stream, c->n_token, 1, 1)), NULL);
}

static void hc_cases(struct op_suite *s) {
    static const float eps[] = {1e-6f, 0.0f, 0.1f};
    for (int64_t n_token = 1; n_token < 200; n_token = n_token * 3 + 1) {
        for (int n_iter = 1; n_iter < 22; n_iter = n_iter * 2 + 1) {
            for (size_t e = 0; e < N(eps); e++) {
                const struct hc c = {0, 4, n_token, eps[e], n_iter, n_token == 4};
                op_case(s, "DSV4_HC_COMB", op_text("tokens %d iterations %d eps %zu", (int) n_token, n_iter, e), OP_F32,
                    build_comb, &c);
            }
        }
    }
    static const int64_t streams[] = {1, 2, 4};
    for (int64_t n_embd = 1; n_embd < 5000; n_embd = n_embd * 5 + 2) {
        for (size_t i = 0; i < N(streams); i++) {
            for (int64_t n_token = 1; n_token < 20; n_token = n_token * 3 + 1) {
                const struct hc c = {n_embd, streams[i], n_token, 0.0f, 0, n_token == 4};
                char what[96];
                snprintf(what, sizeof what, "%d elements, %d streams, %d tokens", (int) n_embd, (int) streams[i], (int) n_token);
                op_case(s, "DSV4_HC_PRE", what, OP_F32, build_pre, &c);
                const struct hc gated = {n_embd, streams[i], n_token, n_token == 1 ? 1.0f : -2.5f, 0, n_token == 4};
                op_case(s, "DSV4_HC_PRE", op_text("gated, %s", what), OP_F32, build_pre_gated, &gated);
                op_case(s, "DSV4_HC_POST", op_text("no matrix, %s", what), OP_F32, build_post_alone, &c);
                op_case(s, "DSV4_HC_POST", what, OP_F32, build_post, &c);
            }
        }
    }
}

void op_suite_ssm(struct op_suite *s) {
    state_space_cases(s);
    solve_cases(s);
    hc_cases(s);
}
