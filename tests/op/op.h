// SPDX-License-Identifier: MIT
// op.h: the op suite, which compares results of ops with the reference. A case is a small graph with its input data. Berth's CPU
// backend computes a case on one thread and on several. The reference computes it on the same tensors (oracle_link.h), because
// the ABI is the same. If the reference does not compute a case or is imprecise, the builder names a loop in double precision
// (plain.h). Each family of ops is one file with a function op_suite_<family>(), listed in runner.c. Example:
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

// The reference has several CPU libraries, called variants, one for each kind of processor: armv8.0_1, armv8.2_1, ...
//
// Products of quantised rows. Sums within a block are integers and exact, so results differ only by the order in which blocks are
// added. The variants armv8.2_1 and armv8.0_1 differ by at most 9.6e-13 (q5_1). Berth differs from them by at most 2.6e-11, if
// terms nearly cancel (measured with op-suite -k MUL_MAT --spread armv8.2_1,armv8.0_1).
#define OP_QUANT 1e-10
// For results of fewer than 8 numbers, whose terms may cancel (measured: 3.1e-10).
#define OP_QUANT_FEW 1e-8
// Products of f16. The variant armv8.2_2 adds in f16. Berth adds in f32, or adds a few terms in f16. The largest measured errors:
//   armv8.2_2 to armv8.2_1                   9e-6 (OP_F16); results of few numbers 6.8e-5
//   armv8.2_2 to Berth                       results of few numbers 1.2e-4 (OP_F16_FEW)
//   Berth, sums in f32, to double            4e-8
//   Berth, some sums in f16, to double       1.9e-7 with one column, 7.6e-7 with many columns (OP_F16_PLAIN),
//                                            7.9e-6 for one number whose terms cancel (OP_F16_PLAIN_FEW)
//   armv8.2_2 to double                      3.4e-6 with one column, 1.1e-5 with many columns
#define OP_F16 1e-5
#define OP_F16_FEW 2e-4
#define OP_F16_PLAIN 1e-6
#define OP_F16_PLAIN_FEW 1e-5
// bf16 results compared with double precision. An element that is rounded in the other direction has a squared error of 1.5e-5 of
// its square, but few elements are. The largest measured error is 1.5e-6, of activations that ggml reads from a table of f16
// values.
#define OP_BF16 2e-6

// ---- layouts of an input in memory; a case is also built with its inputs in each of these layouts ----

enum op_layout {
    OP_AS_BUILT, // as the builder of the case creates the input
    OP_STRIDED,  // elements of a row are two elements apart
    OP_HOLES,    // rows and planes have gaps
    OP_SWAP_01,  // the two axes are swapped in memory
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
    int which;        // input that gets `layout`; -1: all inputs
    int n_inputs;     // inputs created so far
    const char *skip; // set by a builder: the reason why this case cannot be built
    // Set by a builder: computes the result in double precision. Its tolerance; 0: the tolerance to the reference.
    op_plain_t plain;
    double plain_nmse;
};

typedef struct ggml_tensor *(*op_build_t)(struct op_build *b, const void *arg);

// op: the name under which the result is counted. arg is passed to build.
void op_case(struct op_suite *s, const char *op, const char *what, double max_nmse, op_build_t build, const void *arg);
// The result is valid until the next call.
const char *op_text(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
// Whether cases of this op run (-k). If not, a family may skip the loops that create them.
bool op_wanted(const struct op_suite *s, const char *op);

// ---- inputs: the same numbers for the same case in every run ----

uint64_t op_random(struct op_build *b);
float op_uniform(struct op_build *b, float lo, float hi);
// A tensor of any type, filled with numbers in [-1, 1] or [lo, hi]. Quantised tensors are quantised from floats.
struct ggml_tensor *op_input(struct op_build *b, enum ggml_type type, const int64_t *ne);
struct ggml_tensor *op_input_range(struct op_build *b, enum ggml_type type, const int64_t *ne, float lo, float hi);
// i32 or i64 integers in [0, below). distinct: no number repeats in a row; requires ne[0] <= below.
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

// The elements in order. The caller frees the result.
double *op_values(const struct ggml_tensor *t);
// Returns v rounded to the type: f32, f16 or bf16.
double op_rounded(enum ggml_type type, double v);
// Normalised mean squared error. Infinite if NaN or infinities are at different positions. 0 only if all values are equal.
double op_nmse(const double *got, const double *want, int64_t n);

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
