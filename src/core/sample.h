// SPDX-License-Identifier: MIT
// sample.h: macros that define samples. A sample is a small node with an op, for device queries and tests (optable.h).
// Most tensors of samples have N = 256 elements along ne[0], because 256 is a multiple of every block size.
// SAMPLE(name, expr) defines sample_name, which returns expr. expr uses its parameters: c is the context, a and b are types.
// If the op's constructor refuses the types, the sample is poison (op.h).
#pragma once

#include "core/optable.h"

#define F32 GGML_TYPE_F32
#define I32 GGML_TYPE_I32
#define N 256

// sub: number of the formula of UNARY or GLU (ggml_unary_op, ggml_glu_op).
#define BERTH_SAMPLE_ARGS struct ggml_context *c, enum ggml_type a, enum ggml_type b, int sub
#define BERTH_SAMPLE_UNUSED (void) c, (void) a, (void) b, (void) sub

static inline struct ggml_tensor *sample_shaped(
    struct ggml_context *c, enum ggml_type t, int64_t n0, int64_t n1, int64_t n2, int64_t n3) {
    return ggml_new_tensor_4d(c, t, n0, n1, n2, n3);
}
static inline struct ggml_tensor *sample_rows(struct ggml_context *c, enum ggml_type t) {
    return sample_shaped(c, t, N, 4, 1, 1);
}

#define SAMPLE(name, expr) \
    static inline struct ggml_tensor *sample_##name(BERTH_SAMPLE_ARGS) { \
        BERTH_SAMPLE_UNUSED; \
        return (expr); \
    }
// ONE: one source; ONE_WITH: one source and parameters; TWO: sources of types a and b; TWICE: two sources of type a.
#define ONE(name) SAMPLE(name, ggml_##name(c, sample_rows(c, a)))
#define ONE_WITH(name, ...) SAMPLE(name, ggml_##name(c, sample_rows(c, a), __VA_ARGS__))
#define TWO(name) SAMPLE(name, ggml_##name(c, sample_rows(c, a), sample_rows(c, b)))
#define TWICE(name) SAMPLE(name, ggml_##name(c, sample_rows(c, a), sample_rows(c, a)))
