// SPDX-License-Identifier: MIT
// pad.c: cases of op/pad.c.

#include "op.h"

#define N(a) (sizeof(a) / sizeof((a)[0]))

struct pad {
    enum ggml_op op;
    const int64_t *ne;
    const int *q; // parameters of the op
    int layout;   // 0 dense, 1 holes, 2 swapped
    bool flag;    // circular, inplace
    enum ggml_type type;
};

static struct ggml_tensor *build(struct op_build *b, const void *arg) {
    const struct pad *c = arg;
    struct ggml_context *ctx = b->ctx;
    const int *q = c->q;
    struct ggml_tensor *a = c->layout == 1   ? op_input_holes(b, c->type, c->ne)
                            : c->layout == 2 ? op_input_swapped(b, c->type, c->ne)
                                             : op_input(b, c->type, c->ne);
    switch (c->op) {
        case GGML_OP_PAD:
            return c->flag ? ggml_pad_ext_circular(ctx, a, q[0], q[1], q[2], q[3], q[4], q[5], q[6], q[7])
                           : ggml_pad_ext(ctx, a, q[0], q[1], q[2], q[3], q[4], q[5], q[6], q[7]);
        case GGML_OP_PAD_REFLECT_1D: return ggml_pad_reflect_1d(ctx, a, q[0], q[1]);
        case GGML_OP_ROLL: return ggml_roll(ctx, a, q[0], q[1], q[2], q[3]);
        case GGML_OP_WIN_PART: return ggml_win_part(ctx, a, q[0]);
        case GGML_OP_WIN_UNPART: return ggml_win_unpart(ctx, a, q[0], q[1], q[2]);
        case GGML_OP_GET_REL_POS: return ggml_get_rel_pos(ctx, a, q[0], q[0]);
        default: break;
    }
    // ne: [w, x, y, batch] of both position tensors
    const int64_t *ne = c->ne;
    struct ggml_tensor *ph = op_input(b, GGML_TYPE_F32, ne);
    struct ggml_tensor *sums = op_input(b, GGML_TYPE_F32, NE(ne[0] * ne[0], ne[1] * ne[2], ne[3], 1));
    return c->flag ? ggml_add_rel_pos_inplace(ctx, sums, a, ph) : ggml_add_rel_pos(ctx, sums, a, ph);
}

static void one(struct op_suite *s, const struct pad *c, const char *what) {
    op_case(s, ggml_op_name(c->op), what, OP_EXACT, build, c);
}

static const int64_t shapes[][4] = {{5, 4, 3, 2}, {16, 3, 1, 1}, {33, 5, 2, 2}, {300, 70, 2, 1}, {7, 6, 5, 4}};

static void pads(struct op_suite *s) {
    static const int sides[][8] = {{0, 0, 0, 0, 0, 0, 0, 0}, {0, 3, 0, 0, 0, 0, 0, 0}, {2, 3, 1, 0, 0, 1, 1, 1},
        {4, 4, 2, 2, 0, 0, 0, 0}, {0, 0, 0, 3, 0, 2, 0, 1}, {-2, 3, 0, -1, 0, 0, 0, 0}, {5, 0, 0, 0, 1, 1, 0, 0}};
    static const int small_sides[][8] = {{0, 0, 0, 0, 0, 0, 0, 0}, {0, 3, 0, 0, 0, 0, 0, 0}, {2, 3, 1, 0, 0, 1, 1, 1},
        {4, 4, 2, 2, 0, 0, 0, 0}, {1, 1, 1, 1, 1, 1, 1, 1}};
    for (size_t i = 0; i < N(shapes); i++) {
        for (int layout = 0; layout < 3; layout++) {
            for (size_t q = 0; q < N(sides); q++) {
                one(s, &(struct pad){GGML_OP_PAD, shapes[i], sides[q], layout, false, GGML_TYPE_F32},
                    op_text("shape %zu sides %zu layout %d", i, q, layout));
            }
            for (size_t q = 0; q < N(small_sides); q++) {
                one(s, &(struct pad){GGML_OP_PAD, shapes[i], small_sides[q], layout, true, GGML_TYPE_F32},
                    op_text("circular shape %zu sides %zu layout %d", i, q, layout));
            }
        }
        static const int reflect[][2] = {{0, 0}, {1, 0}, {0, 1}, {2, 3}, {4, 4}, {4, 1}, {1, 3}, {3, 3}};
        for (size_t q = 0; q < N(reflect); q++) {
            one(s, &(struct pad){GGML_OP_PAD_REFLECT_1D, shapes[i], reflect[q], 0, false, GGML_TYPE_F32},
                op_text("shape %zu by %d %d", i, reflect[q][0], reflect[q][1]));
        }
        static const int rolls[][4] = {{0, 0, 0, 0}, {1, 0, 0, 0}, {-1, 0, 0, 0}, {3, 2, 0, 0}, {-4, -2, 0, 0}, {4, -1, 0, 0}};
        for (size_t q = 0; q < N(rolls); q++) {
            for (int layout = 0; layout < 2; layout++) {
                one(s, &(struct pad){GGML_OP_ROLL, shapes[i], rolls[q], layout, false, GGML_TYPE_F32},
                    op_text("shape %zu by %zu layout %d", i, q, layout));
            }
        }
    }
    static const int far[] = {2, 1, -2, 3};
    for (int layout = 0; layout < 2; layout++) {
        one(s, &(struct pad){GGML_OP_ROLL, shapes[4], far, layout, false, GGML_TYPE_F32}, op_text("all axes layout %d", layout));
    }
}

void op_suite_pad(struct op_suite *s) {
    pads(s);
    static const int64_t pictures[][4] = {{3, 5, 4, 1}, {8, 14, 14, 1}, {1, 7, 9, 1}, {64, 20, 13, 1}, {5, 1, 1, 1}};
    for (size_t i = 0; i < N(pictures); i++) {
        for (int w = 1; w <= 9; w++) {
            const int x = (int) pictures[i][1], y = (int) pictures[i][2];
            const int64_t parts[] = {pictures[i][0], w, w, ((x + w - 1) / w) * ((y + w - 1) / w)};
            one(s, &(struct pad){GGML_OP_WIN_PART, pictures[i], (int[]){w}, 0, false, GGML_TYPE_F32},
                op_text("picture %zu windows of %d", i, w));
            one(s, &(struct pad){GGML_OP_WIN_UNPART, parts, (int[]){x, y, w}, 0, false, GGML_TYPE_F32},
                op_text("picture %zu windows of %d", i, w));
        }
    }
    for (int width = 1; width <= 65; width += 8) {
        for (int n = 1; n <= 9; n += 2) {
            one(s, &(struct pad){GGML_OP_GET_REL_POS, NE(width, 2 * n - 1, 1, 1), (int[]){n}, 0, false, GGML_TYPE_F16},
                op_text("width %d within %d", width, n));
            if (width < 34) {
                for (int inplace = 0; inplace < 2; inplace++) {
                    one(s, &(struct pad){GGML_OP_ADD_REL_POS, NE(n, 2, width, 3), (int[]){0}, 0, inplace, GGML_TYPE_F32},
                        op_text("w %d over %d inplace %d", n, width, inplace));
                }
            }
        }
    }
}
