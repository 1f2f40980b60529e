// SPDX-License-Identifier: MIT
// recurrent.c: cases of op/recurrent.c: linear attention over several sequences.

#include "op.h"

#include <stddef.h>

#define N(a) (sizeof(a) / sizeof((a)[0]))

enum { WKV6, WKV7, GLA };
static const char *const names[] = {"RWKV_WKV6", "RWKV_WKV7", "GATED_LINEAR_ATTN"};

struct wkv {
    int which;
    int64_t d, n_head, n_token, n_seq;
    float range, scale;
    bool specials;
};

static struct ggml_tensor *build_wkv(struct op_build *b, const void *arg) {
    const struct wkv *c = arg;
    struct ggml_context *ctx = b->ctx;
    const int64_t *ne = NE(c->d, c->n_head, c->n_token, 1);
    struct ggml_tensor *k = op_input_range(b, GGML_TYPE_F32, ne, -c->range, c->range);
    struct ggml_tensor *v = op_input(b, GGML_TYPE_F32, ne), *q = op_input(b, GGML_TYPE_F32, ne);
    struct ggml_tensor *decay = op_input_range(b, GGML_TYPE_F32, ne, 0.2f, 1.0f);
    struct ggml_tensor *state = op_input(b, GGML_TYPE_F32, NE(c->d * c->d * c->n_head, c->n_seq, 1, 1));
    if (c->specials) {
        float *x = op_with_specials(v)->data;
        for (int64_t i = 18; i < ggml_nelements(v) && i < 22; i++) {
            x[i] = 1.0f; // replaces 3e38, whose sums may or may not overflow, depending on the order of additions
        }
    }
    switch (c->which) {
        case WKV6: return ggml_rwkv_wkv6(ctx, k, v, q, op_input(b, GGML_TYPE_F32, NE(c->d, c->n_head, 1, 1)), decay, state);
        case WKV7:
            return ggml_rwkv_wkv7(ctx, q, decay, k, v, op_input_range(b, GGML_TYPE_F32, ne, -0.1f, 0.1f),
                op_input_range(b, GGML_TYPE_F32, ne, -0.1f, 0.1f), state);
        default: return ggml_gated_linear_attn(ctx, k, v, q, decay, state, c->scale);
    }
}

struct delta {
    int64_t d, n_head, n_token, n_seq;
    int64_t n_head_k, n_seq_k; // heads and sequences of q and k
    bool by_key;               // one gate per key element
    bool packed;               // q, k, v are parts of one tensor
    int64_t n_kept;            // K: number of states in the result
};

static struct ggml_tensor *build_delta(struct op_build *b, const void *arg) {
    const struct delta *c = arg;
    struct ggml_context *ctx = b->ctx;
    const int64_t *ne = NE(c->d, c->n_head, c->n_token, c->n_seq), *ne_k = NE(c->d, c->n_head_k, c->n_token, c->n_seq_k);
    struct ggml_tensor *q, *k, *v;
    if (c->packed) {
        struct ggml_tensor *all =
            op_input_range(b, GGML_TYPE_F32, NE(c->d, 2 * c->n_head_k + c->n_head, c->n_token, c->n_seq), -0.4f, 0.4f);
        const size_t *nb = all->nb, at = (size_t) c->n_head_k * nb[1];
        q = ggml_view_4d(ctx, all, c->d, c->n_head_k, c->n_token, c->n_seq, nb[1], nb[2], nb[3], 0);
        k = ggml_view_4d(ctx, all, c->d, c->n_head_k, c->n_token, c->n_seq, nb[1], nb[2], nb[3], at);
        v = ggml_view_4d(ctx, all, c->d, c->n_head, c->n_token, c->n_seq, nb[1], nb[2], nb[3], 2 * at);
    } else {
        q = op_input(b, GGML_TYPE_F32, ne_k);
        k = op_input_range(b, GGML_TYPE_F32, ne_k, -0.3f, 0.3f);
        v = op_input(b, GGML_TYPE_F32, ne);
    }
    struct ggml_tensor *g =
        op_input_range(b, GGML_TYPE_F32, NE(c->by_key ? c->d : 1, c->n_head, c->n_token, c->n_seq), -2.0f, 0.0f);
    struct ggml_tensor *beta = op_input_range(b, GGML_TYPE_F32, NE(1, c->n_head, c->n_token, c->n_seq), 0.0f, 1.0f);
    return ggml_gated_delta_net(
        ctx, q, k, v, g, beta, op_input(b, GGML_TYPE_F32, NE(c->d, c->d, c->n_head, c->n_seq)), c->n_kept);
}

void op_suite_recurrent(struct op_suite *s) {
    // The reference reads past a row of wkv7 whose length is not a multiple of its vector step: 16 elements on ARM, 64 with
    // AVX-512.
    static const int64_t sizes[][4] = {{16, 1, 1, 1}, {64, 2, 4, 2}, {32, 3, 7, 1}, {64, 1, 33, 3}, {48, 2, 4, 1}, {16, 4, 12, 4},
        {80, 3, 6, 2}, {128, 1, 5, 1}, {64, 8, 16, 2}, {16, 40, 3, 3}};
#if defined(__x86_64__)
    const int64_t wkv7_step = 64;
#else
    const int64_t wkv7_step = 16;
#endif
    for (int which = WKV6; which <= GLA; which++) {
        for (size_t i = 0; i < N(sizes); i++) {
            if (which == WKV7 && sizes[i][0] % wkv7_step != 0) {
                continue;
            }
            // variant 1: a wide range of values. 2: another scale. 3: special values (specials).
            for (int variant = 0; variant < 4; variant++) {
                const struct wkv c = {which, sizes[i][0], sizes[i][1], sizes[i][2], sizes[i][3], variant == 1 ? 3.0f : 1.0f,
                    variant == 2 ? 0.125f : 1.0f, variant == 3};
                op_case(s, names[which], op_text("size %zu variant %d", i, variant), OP_F32, build_wkv, &c);
            }
        }
    }
    static const int64_t odd[][4] = {{1, 1, 3, 1}, {5, 2, 4, 2}, {17, 3, 6, 3}};
    for (int which = WKV6; which <= GLA; which += 2) {
        for (size_t i = 0; i < N(odd); i++) {
            const struct wkv c = {which, odd[i][0], odd[i][1], odd[i][2], odd[i][3], 1.0f, 1.0f, false};
            op_case(s, names[which], op_text("odd size %zu", i), OP_F32, build_wkv, &c);
        }
    }
    for (size_t i = 0; i < N(sizes) + N(odd); i++) {
        const int64_t *z = i < N(sizes) ? sizes[i] : odd[i - N(sizes)];
        for (int by_key = 0; by_key < 2; by_key++) {
            // variant 1: packed. 2: three states. 3: half as many heads of q and k. 4: one sequence of q and k, many states.
            for (int variant = 0; variant < 5; variant++) {
                struct delta c = {z[0], z[1], z[2], z[3], z[1], z[3], by_key, variant == 1, variant == 2 ? 3 : 1};
                c.n_head_k = variant == 3 && z[1] % 2 == 0 ? z[1] / 2 : z[1];
                c.n_seq_k = variant == 4 ? 1 : z[3];
                c.n_kept = variant == 4 ? z[2] + 2 : c.n_kept;
                op_case(
                    s, "GATED_DELTA_NET", op_text("size %zu by key %d variant %d", i, by_key, variant), OP_F32, build_delta, &c);
            }
        }
    }
}
