// SPDX-License-Identifier: MIT
// matmul.c: cases of op/matmul.c: every type of src[0], shapes around the tile sizes, broadcast and permuted batches.

#include "op.h"
#include "plain.h"

#include <math.h>

#define N(a) (sizeof(a) / sizeof((a)[0]))

struct matmul {
    enum ggml_type ta, tb;
    int64_t k, rows, cols;
    int64_t a2, a3, b2, b3; // batches
    int layout;             // 0 dense, 1 a with holes, 2 b permuted
};

static struct ggml_tensor *build_matmul(struct op_build *b, const void *arg) {
    const struct matmul *c = arg;
    struct ggml_tensor *x = c->layout == 1 ? op_input_holes(b, c->ta, NE(c->k, c->rows, c->a2, c->a3))
                                           : op_input(b, c->ta, NE(c->k, c->rows, c->a2, c->a3));
    struct ggml_tensor *y = c->layout == 2 ? ggml_permute(b->ctx, op_input(b, c->tb, NE(c->k, c->b2, c->cols, c->b3)), 0, 2, 1, 3)
                                           : op_input(b, c->tb, NE(c->k, c->cols, c->b2, c->b3));
    if (c->ta == GGML_TYPE_F16) {
        b->plain = op_plain_mul_mat;
        b->plain_nmse = c->rows * c->cols < 8 ? OP_F16_PLAIN_FEW : OP_F16_PLAIN;
    }
    return ggml_mul_mat(b->ctx, x, y);
}

// src[0] is a scaled Hadamard matrix, and the hint is set.
static struct ggml_tensor *build_hadamard(struct op_build *b, const void *arg) {
    const struct matmul *c = arg;
    struct ggml_tensor *x = op_input(b, c->ta, NE(c->k, c->k, 1, 1));
    for (int64_t i = 0; i < ggml_nelements(x); i++) {
        const int minus = __builtin_parityll((uint64_t) (i / c->k) & (uint64_t) (i % c->k));
        *(float *) op_at(x, i) = (minus ? -1.0f : 1.0f) / sqrtf((float) c->k);
    }
    struct ggml_tensor *y = c->layout == 2 ? ggml_permute(b->ctx, op_input(b, c->tb, NE(c->k, c->b2, c->cols, c->b3)), 0, 2, 1, 3)
                            : c->layout == 1 ? op_input_holes(b, c->tb, NE(c->k, c->cols, c->b2, c->b3))
                                             : op_input(b, c->tb, NE(c->k, c->cols, c->b2, c->b3));
    struct ggml_tensor *t = ggml_mul_mat(b->ctx, x, y);
    ggml_mul_mat_set_hint(t, GGML_HINT_SRC0_IS_HADAMARD);
    ggml_prec_set_acc(t, GGML_PREC_F16);
    ggml_prec_set_src(t, GGML_PREC_Q8, 1);
    return t;
}

static void hadamard_cases(struct op_suite *s) {
    for (int64_t k = 1; k <= 512; k *= 2) {
        for (int half = 0; half < 2; half++) {
            for (int layout = 0; layout < 3; layout++) {
                const struct matmul c = {GGML_TYPE_F32, half ? GGML_TYPE_F16 : GGML_TYPE_F32, k, k, 7, 1, 1, 2, 3, layout};
                op_case(s, "MUL_MAT", op_text("hadamard k %lld half %d layout %d", (long long) k, half, layout), OP_F32,
                    build_hadamard, &c);
            }
        }
    }
}

static void cases(struct op_suite *s, enum ggml_type ta, enum ggml_type tb, int64_t k, double tol) {
    static const int64_t sizes[][2] = {{1, 1}, {1, 7}, {7, 1}, {5, 3}, {32, 16}, {33, 17}, {70, 40}, {200, 1}};
    for (size_t i = 0; i < N(sizes); i++) {
        const struct matmul c = {ta, tb, k, sizes[i][0], sizes[i][1], 1, 1, 1, 1, 0};
        // If the result has few numbers, its relative error varies more.
        const double tol_few = tol == OP_F16 ? OP_F16_FEW : tol == OP_QUANT ? OP_QUANT_FEW : tol;
        const double tol_here = c.rows * c.cols < 8 ? tol_few : tol;
        op_case(s, "MUL_MAT",
            op_text("%s %s k %lld %lldx%lld", ggml_type_name(ta), ggml_type_name(tb), (long long) k, (long long) c.rows,
                (long long) c.cols),
            tol_here, build_matmul, &c);
    }
    static const int64_t batches[][4] = {{2, 3, 2, 3}, {1, 1, 3, 2}, {2, 1, 4, 3}};
    for (size_t i = 0; i < N(batches); i++) {
        for (int layout = 0; layout < 3; layout++) {
            const int64_t cols = layout == 2 ? 33 : 5;
            const struct matmul c = {ta, tb, k, 9, cols, batches[i][0], batches[i][1], batches[i][2], batches[i][3], layout};
            op_case(s, "MUL_MAT",
                op_text("%s %s k %lld batch %zu layout %d", ggml_type_name(ta), ggml_type_name(tb), (long long) k, i, layout),
                tol, build_matmul, &c);
        }
    }
}

void op_suite_matmul(struct op_suite *s) {
    if (!op_wanted(s, "MUL_MAT")) {
        return;
    }
    static const int64_t depths[] = {1, 31, 64, 257, 1024};
    for (size_t i = 0; i < N(depths); i++) {
        cases(s, GGML_TYPE_F32, GGML_TYPE_F32, depths[i], OP_F32);
        cases(s, GGML_TYPE_F16, GGML_TYPE_F32, depths[i], OP_F16);
        cases(s, GGML_TYPE_F16, GGML_TYPE_F16, depths[i], OP_F16);
        cases(s, GGML_TYPE_BF16, GGML_TYPE_F32, depths[i], OP_F32);
        cases(s, GGML_TYPE_BF16, GGML_TYPE_BF16, depths[i], OP_F32);
    }
    for (int t = 0; t < GGML_TYPE_COUNT; t++) {
        if (ggml_is_quantized((enum ggml_type) t) && t != GGML_TYPE_Q8_1 && t != GGML_TYPE_Q8_K) {
            const int64_t blck = ggml_blck_size((enum ggml_type) t);
            if (blck <= 64) { // a row that does not fill a group of blocks
                cases(s, (enum ggml_type) t, GGML_TYPE_F32, 3 * blck, OP_QUANT);
            }
            cases(s, (enum ggml_type) t, GGML_TYPE_F32, 256, OP_QUANT);
            cases(s, (enum ggml_type) t, GGML_TYPE_F32, 1024, OP_QUANT);
        }
    }
    hadamard_cases(s);
}
