// SPDX-License-Identifier: MIT
// custom.c: cases of op/custom.c: the functions receive their sources, task numbers and user data.

#include "custom_functions.h"
#include "op.h"

#include <stddef.h>

#define N(a) (sizeof(a) / sizeof((a)[0]))

struct custom {
    int n_src; // 1 to 3: MAP_CUSTOMn; 0: CUSTOM
    const int64_t *ne;
    int n_tasks;
    bool inplace;
};

static struct ggml_tensor *build_custom(struct op_build *b, const void *arg) {
    if (b->layout >= OP_EMPTY_0) {
        b->skip = "the functions read every source";
    }
    const struct custom *c = arg;
    struct ggml_context *ctx = b->ctx;
    void *userdata = (void *) (uintptr_t) &op_custom_factor;
    struct ggml_tensor *x[4];
    for (size_t i = 0; i < N(x); i++) {
        x[i] = op_input(b, GGML_TYPE_F32, i == 1 ? NE(3, 1, 1, 1) : c->ne);
    }
    switch (c->n_src) {
        case 1:
            return (c->inplace ? ggml_map_custom1_inplace : ggml_map_custom1)(ctx, x[0], op_custom_map1, c->n_tasks, userdata);
        case 2:
            return (c->inplace ? ggml_map_custom2_inplace : ggml_map_custom2)(
                ctx, x[0], x[1], op_custom_map2, c->n_tasks, userdata);
        case 3:
            return (c->inplace ? ggml_map_custom3_inplace : ggml_map_custom3)(
                ctx, x[0], x[1], x[2], op_custom_map3, c->n_tasks, userdata);
        default:
            return c->inplace ? ggml_custom_inplace(ctx, x[0], x + 1, 3, op_custom_any, c->n_tasks, userdata)
                              : ggml_custom_4d(ctx, GGML_TYPE_F32, c->ne[1], c->ne[0], c->ne[2], c->ne[3], x, 4, op_custom_any,
                                    c->n_tasks, userdata);
    }
}

void op_suite_custom(struct op_suite *s) {
    static const char *const names[] = {"CUSTOM", "MAP_CUSTOM1", "MAP_CUSTOM2", "MAP_CUSTOM3"};
    static const int64_t shapes[][4] = {{1, 1, 1, 1}, {5, 3, 2, 2}, {64, 9, 1, 1}, {1000, 40, 1, 1}};
    static const int tasks[] = {1, 2, 3, 100, GGML_N_TASKS_MAX};
    for (int n_src = 0; n_src < 4; n_src++) {
        for (size_t i = 0; i < N(shapes); i++) {
            for (size_t t = 0; t < N(tasks); t++) {
                for (int inplace = 0; inplace < 2; inplace++) {
                    const struct custom c = {n_src, shapes[i], tasks[t], inplace};
                    op_case(s, names[n_src], op_text("shape %zu tasks %d in place %d", i, tasks[t], inplace), OP_EXACT,
                        build_custom, &c);
                }
            }
        }
    }
}
