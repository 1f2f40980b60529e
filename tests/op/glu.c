// SPDX-License-Identifier: MIT
// glu.c: cases of op/glu.c: every activation, with both operands in one source or in two sources, f32 and f16.

#include "op.h"
#include "plain.h"

#include <stddef.h>

#define N(a) (sizeof(a) / sizeof((a)[0]))

enum { PLAIN, SWAPPED, SPLIT };
enum { DENSE, HOLES, SPECIALS };

struct glu {
    enum ggml_glu_op op;
    int form, layout;
    enum ggml_type type;
    const int64_t *ne;
    float limit;
};

static struct ggml_tensor *input(struct op_build *b, const struct glu *c, float range) {
    return c->layout == HOLES ? op_input_holes(b, c->type, c->ne) : op_input_range(b, c->type, c->ne, -range, range);
}

static struct ggml_tensor *build_glu(struct op_build *b, const void *arg) {
    const struct glu *c = arg;
    struct ggml_tensor *x = input(b, c, 6.0f), *g = c->form == SPLIT ? input(b, c, 1.0f) : NULL;
    if (c->layout == SPECIALS) {
        op_with_specials(x);
    }
    if (c->op == GGML_GLU_OP_SWIGLU_OAI) {
        b->plain = c->layout != SPECIALS ? op_plain_glu : NULL;
        return ggml_swiglu_oai(b->ctx, x, g, 1.702f, c->limit);
    }
    if (c->op == GGML_GLU_OP_SWIGLU_CLAMP && c->form != SWAPPED) {
        return ggml_swiglu_clamp(b->ctx, x, g, c->limit);
    }
    return g != NULL ? ggml_glu_split(b->ctx, x, g, c->op) : ggml_glu(b->ctx, x, c->op, c->form == SWAPPED);
}

void op_suite_glu(struct op_suite *s) {
    static const int64_t shapes[][4] = {{2, 1, 1, 1}, {20, 3, 2, 2}, {33, 5, 1, 1}, {2050, 3, 2, 1}, {256, 70, 1, 1}};
    for (int op = 0; op < GGML_GLU_OP_COUNT; op++) {
        for (int form = PLAIN; form <= SPLIT; form++) {
            for (size_t i = 0; i < N(shapes); i++) {
                for (int half = 0; half < 2; half++) {
                    const struct glu c = {(enum ggml_glu_op) op, form, DENSE, half ? GGML_TYPE_F16 : GGML_TYPE_F32, shapes[i],
                        i == 2 ? 0.5f : 7.0f};
                    op_case(s, "GLU", op_text("%s form %d shape %zu half %d", ggml_glu_op_name(c.op), form, i, half),
                        half ? 1e-6 : OP_F32, build_glu, &c);
                }
            }
            for (int layout = HOLES; layout <= SPECIALS; layout++) {
                // Rows may have gaps, planes may not.
                const struct glu c = {(enum ggml_glu_op) op, form, layout, GGML_TYPE_F32, NE(64, 5, 1, 1), 7.0f};
                op_case(s, "GLU", op_text("%s form %d layout %d", ggml_glu_op_name(c.op), form, layout), OP_F32, build_glu, &c);
            }
        }
    }
}
