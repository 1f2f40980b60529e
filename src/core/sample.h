// SPDX-License-Identifier: MIT
// sample.h: macros that define samples. A sample is a small node with an op, for queries to devices and for tests; the op's row in
// the op table names the function that makes it (optable.h). The tensors of samples have 256 elements along ne[0], a multiple of
// the block size of every format. If the op's constructor refuses the types, the sample is the poison tensor that the constructor
// returns.
#pragma once

#include "core/optable.h"

#define F32 GGML_TYPE_F32
#define I32 GGML_TYPE_I32
#define N 256

// The arguments of every sample: context, two types, and the formula of UNARY or GLU (sub). Most samples use only some of them.
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
// Samples of ops with one source (ONE), one source and parameters (ONE_WITH), two sources of types a and b (TWO), and two sources
// of type a (TWICE).
#define ONE(name) SAMPLE(name, ggml_##name(c, sample_rows(c, a)))
#define ONE_WITH(name, ...) SAMPLE(name, ggml_##name(c, sample_rows(c, a), __VA_ARGS__))
#define TWO(name) SAMPLE(name, ggml_##name(c, sample_rows(c, a), sample_rows(c, b)))
#define TWICE(name) SAMPLE(name, ggml_##name(c, sample_rows(c, a), sample_rows(c, a)))
