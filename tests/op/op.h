// SPDX-License-Identifier: MIT
// op.h: the op suite: every case builds a small graph, computes it with Berth's CPU backend on one thread and on several, and
// with the reference's CPU library on the very same tensors (the ABI is one; oracle_link.h), and compares. A case that the
// reference does not compute is compared with a loop in double precision where the builder names one (plain.h). A family of ops
// is one file with a function op_suite_<family>(struct op_suite *), named in runner.c, that calls op_case() for each of its
// cases:
//
//     static struct ggml_tensor *build_add(struct op_build *b, const void *arg) {
//         const struct shapes *s = arg;
//         return ggml_add(b->ctx, op_input(b, GGML_TYPE_F32, s->a), op_input(b, s->type, s->b));
//     }
//     op_case(s, "ADD", op_text("%s", s->name), OP_F32, build_add, &shapes);
#pragma once

#include "ggml-cpu.h"
#include "ggml.h"

#include <stdbool.h>
#include <stdint.h>

// How close the results must be.
#define OP_EXACT 0.0 // the same bytes
#define OP_F32 1e-7  // normalised mean squared error

// Products of quantised rows: the sums are of whole numbers, and only the order in which blocks are added up is free. The
// reference's variants armv8.2_1 and armv8.0_1 are up to 9.6e-13 from each other (q5_1), and equal for 15 of the 22 types;
// Berth is up to 2.6e-11 from them, where few numbers cancel (op-suite -k MUL_MAT --spread armv8.2_1,armv8.0_1).
#define OP_QUANT 1e-10
#define OP_QUANT_FEW 1e-8 // a product of one number may be all cancellation: 3.1e-10
// Products of f16: variants that have half-precision arithmetic add up halves. armv8.2_2 is up to 6.8e-5 from armv8.2_1 for few
// numbers, 9e-6 for more. Berth adds up floats, or short runs of halves where the machine multiplies those: it is held to
// OP_HALF_PLAIN of double precision (measured: 4e-8, and of halves 1.9e-7 for one column, 7.6e-7 for many; armv8.2_2 has 3.4e-6
// and 1.1e-5). A product of one number that is all cancellation is 7.9e-6 from it, and 1.2e-4 from armv8.2_2.
#define OP_HALF 1e-5
#define OP_HALF_FEW 2e-4
#define OP_HALF_PLAIN 1e-6
#define OP_HALF_PLAIN_FEW 1e-5
// Results of bf16 against double precision: a last bit is 1.5e-5 of the square, and now and then it falls on the other side, more
// often where an activation goes through a table of halves, as ggml has it (1.5e-6).
#define OP_BF16 2e-6

// ---- layouts: how an input may lie in memory; a case is built again with its inputs in each of them ----

enum op_layout {
    OP_AS_BUILT,
    OP_STRIDED, // elements of a row are two apart
    OP_HOLES,   // rows and planes are further apart than they are long
    OP_SWAP_01, // the two axes have changed places in memory
    OP_SWAP_02,
    OP_SWAP_03,
    OP_SWAP_12,
    OP_SWAP_13,
    OP_SWAP_23,
    OP_EMPTY_0, // the axis has no elements
    OP_EMPTY_1,
    OP_EMPTY_2,
    OP_EMPTY_3,
    OP_N_LAYOUTS,
};

struct op_suite;

// Fills out with the result's elements in their order.
typedef void (*op_plain_t)(const struct ggml_tensor *t, double *out);

struct op_build {
    struct ggml_context *ctx;
    uint64_t rng;
    enum op_layout layout;
    int which;        // the input that has this layout, in the order they are made; -1: all of them
    int n_inputs;     // made so far
    const char *skip; // set by a builder: why this case cannot be made
    // set by a builder: what the result is, and how close to it Berth's must be; 0: as close as to the reference's. For what the
    // reference does not compute, or computes roughly.
    op_plain_t plain;
    double plain_nmse;
};

typedef struct ggml_tensor *(*op_build_t)(struct op_build *b, const void *arg);

// One case. op: the name the result is counted under. arg is handed to build.
void op_case(struct op_suite *s, const char *op, const char *what, double max_nmse, op_build_t build, const void *arg);
// Text for `what`; valid until the next call.
const char *op_text(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
// Whether -k chose this op; a family may skip its loops otherwise.
bool op_wanted(const struct op_suite *s, const char *op);

// ---- inputs: the same numbers for the same case, in every run ----

uint64_t op_random(struct op_build *b);
float op_uniform(struct op_build *b, float lo, float hi);
// A tensor of any type filled with numbers in [-1, 1], or [lo, hi]. Quantised ones are quantised from floats.
struct ggml_tensor *op_input(struct op_build *b, enum ggml_type type, const int64_t *ne);
struct ggml_tensor *op_input_range(struct op_build *b, enum ggml_type type, const int64_t *ne, float lo, float hi);
// i32 or i64 whole numbers in [0, below); distinct: no number twice in a row of ne[0], which is at most `below`
struct ggml_tensor *op_indices(struct op_build *b, enum ggml_type type, const int64_t *ne, int64_t below, bool distinct);
// Element i in their order, whatever the layout; NULL past the end.
void *op_at(struct ggml_tensor *t, int64_t i);
// Overwrites some elements of an f32 tensor with NaN, both infinities, zeros, a subnormal and huge numbers.
struct ggml_tensor *op_with_specials(struct ggml_tensor *t);

// A view of a larger tensor that has the shape of ne but holes between rows.
struct ggml_tensor *op_input_holes(struct op_build *b, enum ggml_type type, const int64_t *ne);
// Axes 0 and 1 swapped in memory: nb[0] > nb[1]. Not for quantised types.
struct ggml_tensor *op_input_swapped(struct op_build *b, enum ggml_type type, const int64_t *ne);

#define NE(...) ((const int64_t[4]){__VA_ARGS__})

// ---- results ----

// The tensor's elements in their order, as doubles. The caller frees them.
double *op_values(const struct ggml_tensor *t);
// v as a tensor of this type holds it: f32, f16 or bf16.
double op_rounded(enum ggml_type type, double v);
// Normalised mean squared error of `is` against `want`; infinite if NaN or infinities are in other places. 0 only if all are
// equal.
double op_nmse(const double *is, const double *want, int64_t n);

// ---- families ----

void op_suite_eltwise(struct op_suite *s);
void op_suite_copy(struct op_suite *s);
void op_suite_matmul(struct op_suite *s);
void op_suite_norm(struct op_suite *s);
void op_suite_rows(struct op_suite *s);
void op_suite_conv(struct op_suite *s);
void op_suite_pool(struct op_suite *s);
void op_suite_pad(struct op_suite *s);
void op_suite_sort(struct op_suite *s);
void op_suite_repeat(struct op_suite *s);
void op_suite_reduce(struct op_suite *s);
void op_suite_rope(struct op_suite *s);
void op_suite_attn(struct op_suite *s);
void op_suite_moe(struct op_suite *s);
void op_suite_ssm(struct op_suite *s);
void op_suite_recurrent(struct op_suite *s);
void op_suite_glu(struct op_suite *s);
void op_suite_train(struct op_suite *s);
void op_suite_custom(struct op_suite *s);
