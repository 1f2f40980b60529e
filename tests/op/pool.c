// SPDX-License-Identifier: MIT
// pool.c: cases of op/pool.c and op/upscale.c.

#include "op.h"

#define N(a) (sizeof(a) / sizeof((a)[0]))

struct pool {
    enum ggml_op op;
    enum ggml_type type;
    const int64_t *ne;
    enum ggml_op_pool kind;
    const int *q; // window, strides and padding: two numbers each
    bool specials;
};

static struct ggml_tensor *build_pool(struct op_build *b, const void *arg) {
    const struct pool *c = arg;
    const int *q = c->q;
    struct ggml_context *ctx = b->ctx;
    struct ggml_tensor *a = op_input(b, c->type, c->ne);
    if (c->specials) {
        op_with_specials(a);
    }
    if (c->op == GGML_OP_POOL_1D) {
        return ggml_pool_1d(ctx, a, c->kind, q[0], q[2], q[4]);
    }
    struct ggml_tensor *pooled = ggml_pool_2d(ctx, a, c->kind, q[0], q[1], q[2], q[3], (float) q[4], (float) q[5]);
    if (c->op == GGML_OP_POOL_2D || pooled->op != GGML_OP_POOL_2D) {
        return pooled;
    }
    return ggml_pool_2d_back(
        ctx, op_input(b, GGML_TYPE_F32, pooled->ne), a, c->kind, q[0], q[1], q[2], q[3], (float) q[4], (float) q[5]);
}

struct upscale {
    const int64_t *ne;
    int64_t to[4];
    uint32_t mode;
    int layout;
};

static struct ggml_tensor *build_upscale(struct op_build *b, const void *arg) {
    const struct upscale *c = arg;
    struct ggml_tensor *a = c->layout == 1   ? op_input_holes(b, GGML_TYPE_F32, c->ne)
                            : c->layout == 2 ? op_input_swapped(b, GGML_TYPE_F32, c->ne)
                                             : op_input(b, GGML_TYPE_F32, c->ne);
    return ggml_interpolate(b->ctx, a, c->to[0], c->to[1], c->to[2], c->to[3], c->mode);
}

static void upscales(struct op_suite *s) {
    static const int64_t pictures[][4] = {{5, 4, 3, 2}, {1, 1, 2, 1}, {16, 9, 2, 1}, {33, 31, 1, 2}};
    static const uint32_t modes[] = {GGML_SCALE_MODE_NEAREST, GGML_SCALE_MODE_BILINEAR, GGML_SCALE_MODE_BICUBIC,
        GGML_SCALE_MODE_BILINEAR | GGML_SCALE_FLAG_ALIGN_CORNERS, GGML_SCALE_MODE_BICUBIC | GGML_SCALE_FLAG_ALIGN_CORNERS,
        GGML_SCALE_MODE_NEAREST | GGML_SCALE_FLAG_ALIGN_CORNERS, GGML_SCALE_MODE_BILINEAR | GGML_SCALE_FLAG_ANTIALIAS,
        GGML_SCALE_MODE_BILINEAR | GGML_SCALE_FLAG_ANTIALIAS | GGML_SCALE_FLAG_ALIGN_CORNERS};
    static const int num[] = {2, 3, 1, 3, 1, 5}, den[] = {1, 1, 1, 2, 2, 3};
    for (size_t i = 0; i < N(pictures); i++) {
        for (size_t m = 0; m < N(modes); m++) {
            for (size_t f = 0; f < N(num); f++) {
                const int64_t *ne = pictures[i];
                struct upscale c = {
                    ne, {ne[0] * num[f] / den[f], ne[1] * num[f] / den[f], ne[2], ne[3]}, modes[m], (int) (f % 3)};
                c.to[0] += f == 3;
                c.to[2] *= f == 1 ? 2 : 1;
                c.to[0] += c.to[0] == 0;
                c.to[1] += c.to[1] == 0;
                op_case(s, "UPSCALE", op_text("picture %zu mode %x times %d/%d", i, (unsigned) modes[m], num[f], den[f]), OP_F32,
                    build_upscale, &c);
            }
        }
    }
}

void op_suite_pool(struct op_suite *s) {
    static const int64_t pictures[][4] = {{7, 6, 5, 2}, {16, 16, 3, 1}, {1, 9, 1, 1}, {40, 33, 8, 2}, {5, 4, 3, 2}};
    static const int q[][6] = {{1, 1, 1, 1, 0, 0}, {2, 2, 2, 2, 0, 0}, {3, 3, 3, 3, 0, 0}, {3, 2, 2, 1, 0, 0}, {3, 3, 2, 2, 1, 1},
        {5, 5, 1, 1, 2, 2}, {2, 3, 3, 2, 1, 0}};
    static const enum ggml_op ops[] = {GGML_OP_POOL_1D, GGML_OP_POOL_2D, GGML_OP_POOL_2D_BACK};
    for (size_t o = 0; o < N(ops); o++) {
        for (size_t i = 0; i < N(pictures); i++) {
            for (size_t j = 0; j < N(q); j++) {
                for (int kind = 0; kind < GGML_OP_POOL_COUNT; kind++) {
                    for (int k = 0; k < 3; k++) { // plain, special values, f16
                        if (k == 2 && ops[o] == GGML_OP_POOL_2D_BACK) {
                            continue; // the reference misreads the bits of f16
                        }
                        const int64_t wide = pictures[i][0] + 2 * q[j][4], high = pictures[i][1] + 2 * q[j][5];
                        if (wide < q[j][0] || (ops[o] != GGML_OP_POOL_1D && high < q[j][1])) {
                            continue; // no window fits, so the constructor refuses it
                        }
                        const struct pool c = {
                            ops[o], k == 2 ? GGML_TYPE_F16 : GGML_TYPE_F32, pictures[i], (enum ggml_op_pool) kind, q[j], k == 1};
                        op_case(s, ggml_op_name(ops[o]), op_text("picture %zu window %zu kind %d %d", i, j, kind, k), OP_F32,
                            build_pool, &c);
                    }
                }
            }
        }
    }
    upscales(s);
}
