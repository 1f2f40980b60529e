// SPDX-License-Identifier: MIT
// copy.c: cases of op/copy.c: every pair of types that the reference converts between, in several layouts.

#include "op.h"
#include "plain.h"

#define N(a) (sizeof(a) / sizeof((a)[0]))

struct copy {
    enum ggml_type from, to;
    const int64_t *ne, *ne_to;
    int layout; // layout of the source: 0 dense, 1 holes, 2 swapped, from 3: permuted
    int target; // layout of the destination: 0 dense, 1 holes, 2 swapped
    int op;
};

enum { COPY_CPY, COPY_CONT, COPY_DUP };

// Axis i of the tensor in memory becomes axis permutations[][i] of the view. The views are contiguous along axis 2, axis 3 and
// axis 0.
static const int permutations[][4] = {{2, 0, 1, 3}, {3, 0, 1, 2}, {0, 2, 1, 3}};
enum { LAYOUTS = 3 + (int) N(permutations) };

static struct ggml_tensor *permuted(struct op_build *b, enum ggml_type type, const int64_t *ne, const int *permutation) {
    const int64_t in_memory[4] = {ne[permutation[0]], ne[permutation[1]], ne[permutation[2]], ne[permutation[3]]};
    return ggml_permute(b->ctx, op_input(b, type, in_memory), permutation[0], permutation[1], permutation[2], permutation[3]);
}

static struct ggml_tensor *source(struct op_build *b, const struct copy *c) {
    switch (c->layout) {
        case 0: return op_input(b, c->from, c->ne);
        case 1: return op_input_holes(b, c->from, c->ne);
        case 2: return op_input_swapped(b, c->from, c->ne);
        default: return permuted(b, c->from, c->ne, permutations[c->layout - 3]);
    }
}

static struct ggml_tensor *build_copy(struct op_build *b, const void *arg) {
    const struct copy *c = arg;
    struct ggml_tensor *x = source(b, c);
    if (c->op == COPY_CONT) {
        return ggml_cont(b->ctx, x);
    }
    if (c->op == COPY_DUP) {
        return ggml_dup(b->ctx, x);
    }
    struct ggml_tensor *y = c->target == 0   ? ggml_new_tensor(b->ctx, c->to, 4, c->ne_to)
                            : c->target == 1 ? op_input_holes(b, c->to, c->ne_to)
                                             : op_input_swapped(b, c->to, c->ne_to);
    if (ggml_is_quantized(c->to) && c->from == c->to) {
        b->plain = op_plain_copy; // the reference copies only some of these types
    }
    return ggml_cpy(b->ctx, x, y);
}

static const int64_t shapes[][4] = {{256, 5, 3, 2}, {512, 300, 1, 1}, {1, 1, 1, 1}, {30, 7, 2, 1}, {0, 4, 1, 1}};

static void plain_cases(struct op_suite *s) {
    static const enum ggml_type pairs[][2] = {
        {GGML_TYPE_F32, GGML_TYPE_F32},
        {GGML_TYPE_F32, GGML_TYPE_F16},
        {GGML_TYPE_F32, GGML_TYPE_BF16},
        {GGML_TYPE_F32, GGML_TYPE_I32},
        {GGML_TYPE_F16, GGML_TYPE_F32},
        {GGML_TYPE_F16, GGML_TYPE_F16},
        {GGML_TYPE_F16, GGML_TYPE_BF16},
        {GGML_TYPE_BF16, GGML_TYPE_F32},
        {GGML_TYPE_BF16, GGML_TYPE_F16},
        {GGML_TYPE_BF16, GGML_TYPE_BF16},
        {GGML_TYPE_I32, GGML_TYPE_F32},
        {GGML_TYPE_I32, GGML_TYPE_I32},
    };
    for (size_t p = 0; p < N(pairs); p++) {
        for (size_t i = 0; i < N(shapes); i++) {
            for (int layout = 0; layout < 3; layout++) {
                for (int target = 0; target < 3; target++) {
                    if (shapes[i][0] == 0 && (layout > 0 || target > 0)) {
                        continue;
                    }
                    const struct copy c = {pairs[p][0], pairs[p][1], shapes[i], shapes[i], layout, target, COPY_CPY};
                    op_case(s, "CPY",
                        op_text("%s to %s shape %zu layout %d to %d", ggml_type_name(c.from), ggml_type_name(c.to), i, layout,
                            target),
                        OP_EXACT, build_copy, &c);
                }
            }
        }
        for (int layout = 3; layout < LAYOUTS; layout++) {
            const struct copy c = {pairs[p][0], pairs[p][1], shapes[0], shapes[0], layout, 1, COPY_CPY};
            op_case(s, "CPY", op_text("%s to %s permuted %d", ggml_type_name(c.from), ggml_type_name(c.to), layout), OP_EXACT,
                build_copy, &c);
        }
        // Different shapes with the same number of elements.
        static const int64_t wide[4] = {60, 4, 3, 1}, tall[4] = {12, 5, 4, 3};
        for (int layout = 0; layout < 3; layout++) {
            const struct copy c = {pairs[p][0], pairs[p][1], wide, tall, layout, 0, COPY_CPY};
            op_case(s, "CPY", op_text("%s to %s reshaped from %d", ggml_type_name(c.from), ggml_type_name(c.to), layout),
                OP_EXACT, build_copy, &c);
        }
    }
}

static void quant_cases(struct op_suite *s) {
    for (int t = 0; t < GGML_TYPE_COUNT; t++) {
        const enum ggml_type type = (enum ggml_type) t;
        if (!ggml_is_quantized(type) || t == GGML_TYPE_Q8_1 || t == GGML_TYPE_Q8_K) {
            continue;
        }
        for (size_t i = 0; i < 2; i++) {
            for (int layout = 0; layout < 2; layout++) {
                // f16 and bf16 have many values that are exactly between two quantisation levels.
                static const enum ggml_type sources[] = {GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_BF16};
                for (size_t f = 0; f < N(sources); f++) {
                    const struct copy to = {sources[f], type, shapes[i], shapes[i], layout, 0, COPY_CPY};
                    op_case(s, "CPY",
                        op_text("%s to %s shape %zu layout %d", ggml_type_name(sources[f]), ggml_type_name(type), i, layout),
                        OP_EXACT, build_copy, &to);
                }
                const struct copy from = {type, GGML_TYPE_F32, shapes[i], shapes[i], layout, 0, COPY_CPY};
                op_case(s, "CPY", op_text("%s to f32 shape %zu layout %d", ggml_type_name(type), i, layout), OP_F32, build_copy,
                    &from);
            }
        }
        const struct copy same = {type, type, shapes[0], shapes[0], 0, 0, COPY_CPY};
        op_case(s, "CPY", op_text("%s to itself", ggml_type_name(type)), OP_EXACT, build_copy, &same);
    }
}

void op_suite_copy(struct op_suite *s) {
    plain_cases(s);
    quant_cases(s);
    static const enum ggml_type types[] = {GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_BF16, GGML_TYPE_I32};
    for (size_t t = 0; t < N(types); t++) {
        for (size_t i = 0; i < N(shapes); i++) {
            for (int layout = 0; layout < (shapes[i][0] > 0 ? LAYOUTS : 1); layout++) {
                const struct copy cont = {types[t], types[t], shapes[i], shapes[i], layout, 0, COPY_CONT};
                op_case(s, "CONT", op_text("%s shape %zu layout %d", ggml_type_name(types[t]), i, layout), OP_EXACT, build_copy,
                    &cont);
                const struct copy dup = {types[t], types[t], shapes[i], shapes[i], layout, 0, COPY_DUP};
                op_case(
                    s, "DUP", op_text("%s shape %zu layout %d", ggml_type_name(types[t]), i, layout), OP_EXACT, build_copy, &dup);
            }
        }
    }
}
