// SPDX-License-Identifier: MIT
// op.h: the op suite, which compares results of ops with the reference. A case is a small graph with its input data. Berth's CPU
// backend computes it on one thread and on several. The reference's CPU library computes it on the same tensors (oracle_link.h),
// which is possible because the ABI is the same. A builder may also name a loop in double precision (plain.h), for cases that the
// reference does not compute or computes imprecisely. Each family of ops is one file with a function op_suite_<family>(struct
// op_suite *), which calls op_case() for each case. runner.c lists these functions. Example:
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

// Tolerances.
#define OP_EXACT 0.0 // equal values
#define OP_F32 1e-7  // normalised mean squared error

// Variants are the reference's CPU libraries for different processors, such as armv8.2_1. Products of quantised rows: the sums
// within blocks are integers, so only the order in which blocks are added differs. The variants armv8.2_1 and armv8.0_1 are equal
// for 15 of the 22 types and differ by at most 9.6e-13 (q5_1). Berth differs from them by at most 2.6e-11, in products whose terms
// nearly cancel (measured with op-suite -k MUL_MAT --spread armv8.2_1,armv8.0_1).
#define OP_QUANT 1e-10
// For results of fewer than 8 numbers, all of which may be small because their terms cancel (measured: 3.1e-10).
#define OP_QUANT_FEW 1e-8
// Products of f16. Variants for processors with f16 arithmetic add in f16: armv8.2_2 differs from armv8.2_1 by up to 9e-6, and by
// up to 6.8e-5 if the result has few numbers. Berth adds in f32, or on processors with f16 arithmetic a few terms in f16 and these
// sums in f32. It must be within OP_F16_PLAIN of double precision. Measured: 4e-8 in f32; in f16 1.9e-7 for one column and 7.6e-7
// for many, where armv8.2_2 has 3.4e-6 and 1.1e-5. A result of one number whose terms cancel differs by 7.9e-6 from double
// precision and by 1.2e-4 from armv8.2_2; OP_F16_FEW and OP_F16_PLAIN_FEW allow for that.
#define OP_F16 1e-5
#define OP_F16_FEW 2e-4
#define OP_F16_PLAIN 1e-6
#define OP_F16_PLAIN_FEW 1e-5
// bf16 results compared with double precision: an element that is rounded in the other direction has a squared error of 1.5e-5 of
// its square, and few elements are. There are more for activations that ggml reads from a table of f16 values: measured 1.5e-6.
#define OP_BF16 2e-6

// ---- layouts of an input in memory; a case is also built with its inputs in each of these layouts ----

enum op_layout {
    OP_AS_BUILT,
    OP_STRIDED, // elements of a row are two elements apart
    OP_HOLES,   // rows and planes have gaps
    OP_SWAP_01, // the two axes are swapped in memory
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

// Fills out with the elements of the result in order.
typedef void (*op_plain_t)(const struct ggml_tensor *t, double *out);

struct op_build {
    struct ggml_context *ctx;
    uint64_t rng;
    enum op_layout layout;
    int which;        // number of the input, in order of creation, that gets `layout`; the others are as built; -1: all inputs
    int n_inputs;     // inputs created so far
    const char *skip; // set by a builder: the reason why this case cannot be built
    // Set by a builder: the function that computes the result in double precision, and the tolerance to it; 0: the tolerance to the
    // reference. For ops that the reference does not compute, or computes imprecisely.
    op_plain_t plain;
    double plain_nmse;
};

typedef struct ggml_tensor *(*op_build_t)(struct op_build *b, const void *arg);

// Runs one case. op: the name under which the result is counted. arg is passed to build.
void op_case(struct op_suite *s, const char *op, const char *what, double max_nmse, op_build_t build, const void *arg);
// Formats the text for `what`; valid until the next call.
const char *op_text(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
// Whether cases of this op run: -k names it, or there is no -k. A family may skip its loops if not.
bool op_wanted(const struct op_suite *s, const char *op);

// ---- inputs: the same numbers for the same case in every run ----

uint64_t op_random(struct op_build *b);
float op_uniform(struct op_build *b, float lo, float hi);
// A tensor of any type, filled with numbers in [-1, 1] or [lo, hi]. Quantised tensors are quantised from floats.
struct ggml_tensor *op_input(struct op_build *b, enum ggml_type type, const int64_t *ne);
struct ggml_tensor *op_input_range(struct op_build *b, enum ggml_type type, const int64_t *ne, float lo, float hi);
// i32 or i64 integers in [0, below). distinct: no number occurs twice among the ne[0] elements of a row; ne[0] is at most `below`.
struct ggml_tensor *op_indices(struct op_build *b, enum ggml_type type, const int64_t *ne, int64_t below, bool distinct);
// Element i in order, for any layout; NULL past the end.
void *op_at(struct ggml_tensor *t, int64_t i);
// Overwrites some elements of an f32 tensor with NaN, both infinities, zeros, a subnormal and huge numbers.
struct ggml_tensor *op_with_specials(struct ggml_tensor *t);

// A view with shape ne of a larger tensor, so that there are gaps between rows.
struct ggml_tensor *op_input_holes(struct op_build *b, enum ggml_type type, const int64_t *ne);
// Axes 0 and 1 swapped in memory: nb[0] > nb[1]. Not for quantised types.
struct ggml_tensor *op_input_swapped(struct op_build *b, enum ggml_type type, const int64_t *ne);

#define NE(...) ((const int64_t[4]){__VA_ARGS__})

// ---- results ----

// Returns the elements of the tensor in order, as doubles. The caller frees them.
double *op_values(const struct ggml_tensor *t);
// Returns v rounded to the type: f32, f16 or bf16.
double op_rounded(enum ggml_type type, double v);
// Returns the normalised mean squared error of the values `is` relative to the expected values `want`. It is infinite if NaN or
// infinities are at different positions, and 0 only if all values are equal.
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
