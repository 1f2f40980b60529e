// SPDX-License-Identifier: MIT
// norm.c: cases of op/norm.c.

#include "op.h"

#define N(a) (sizeof(a) / sizeof((a)[0]))

struct norm {
    int which;
    const int64_t *ne;
    float eps;
    int layout;
    bool inplace;
    int n_groups;
};

enum { NORM, RMS_NORM, L2_NORM, GROUP_NORM };
static const char *const names[] = {"NORM", "RMS_NORM", "L2_NORM", "GROUP_NORM"};

static struct ggml_tensor *build_norm(struct op_build *b, const void *arg) {
    const struct norm *c = arg;
    struct ggml_context *ctx = b->ctx;
    struct ggml_tensor *x =
        c->layout == 1 ? op_input_holes(b, GGML_TYPE_F32, c->ne) : op_input_range(b, GGML_TYPE_F32, c->ne, -2.0f, 3.0f);
    switch (c->which) {
        case NORM: return c->inplace ? ggml_norm_inplace(ctx, x, c->eps) : ggml_norm(ctx, x, c->eps);
        case RMS_NORM: return c->inplace ? ggml_rms_norm_inplace(ctx, x, c->eps) : ggml_rms_norm(ctx, x, c->eps);
        case L2_NORM: return c->inplace ? ggml_l2_norm_inplace(ctx, x, c->eps) : ggml_l2_norm(ctx, x, c->eps);
        default:
            return c->inplace ? ggml_group_norm_inplace(ctx, x, c->n_groups, c->eps)
                              : ggml_group_norm(ctx, x, c->n_groups, c->eps);
    }
}

void op_suite_norm(struct op_suite *s) {
    static const int64_t shapes[][4] = {{1, 1, 1, 1}, {5, 3, 8, 2}, {64, 5, 4, 3}, {257, 40, 3, 1}, {4096, 9, 1, 1}};
    static const float eps[] = {0.0f, 1e-6f, 1e-5f, 1.0f};
    for (int which = NORM; which <= L2_NORM; which++) {
        for (size_t i = 0; i < N(shapes); i++) {
            for (size_t e = 0; e < N(eps); e++) {
                for (int layout = 0; layout < 2; layout++) {
                    if (which == NORM && shapes[i][0] == 1) {
                        continue; // 0/0 or rounding noise
                    }
                    const struct norm c = {which, shapes[i], eps[e], layout, layout == 0 && e == 2, 0};
                    op_case(s, names[which], op_text("shape %zu eps %g layout %d", i, (double) eps[e], layout), OP_F32,
                        build_norm, &c);
                }
            }
        }
    }
    static const int64_t images[][4] = {{5, 3, 8, 2}, {16, 16, 32, 1}, {7, 9, 10, 3}};
    static const int groups[] = {1, 2, 4, 3};
    for (size_t i = 0; i < N(images); i++) {
        for (size_t g = 0; g < N(groups); g++) {
            for (int inplace = 0; inplace < 2; inplace++) {
                const struct norm c = {GROUP_NORM, images[i], 1e-5f, 0, inplace, groups[g]};
                op_case(s, names[GROUP_NORM], op_text("shape %zu groups %d", i, groups[g]), OP_F32, build_norm, &c);
            }
        }
    }
}
