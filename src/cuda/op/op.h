// SPDX-License-Identifier: MIT
// op.h: what the drivers of small ops share: views of tensors, indices, grids, and questions about layouts.
#pragma once

#include "cuda/cuda.h"
#include "cuda/kernel/args.h"

#include <string.h>

static inline struct cuda_view cuda_view_of(const struct ggml_tensor *t) {
    struct cuda_view v = {.p = t->data, .type = (int32_t) t->type};
    for (int i = 0; i < 4; i++) {
        v.ne[i] = t->ne[i];
        v.nb[i] = (int64_t) t->nb[i];
    }
    return v;
}

// d: 1 .. 2^31 - 1
static inline struct cuda_div cuda_div_of(int64_t d) {
    uint32_t shift = 0;
    while (shift < 31 && (1u << shift) < (uint32_t) d) {
        shift++;
    }
    const uint64_t mul = ((UINT64_C(1) << 32) * ((UINT64_C(1) << shift) - (uint64_t) d)) / (uint64_t) d + 1;
    return (struct cuda_div){.mul = (uint32_t) mul, .shift = shift, .d = (uint32_t) d};
}

#define CUDA_FLAT_MAX (INT64_C(1) << 31) // a flat index of fewer elements can be split by cuda_index

static inline struct cuda_index cuda_index_of(const struct ggml_tensor *t) {
    if (ggml_nelements(t) >= CUDA_FLAT_MAX) {
        return (struct cuda_index){.d0 = {.d = 0}};
    }
    return (struct cuda_index){.d0 = cuda_div_of(t->ne[0]),
        .d01 = cuda_div_of(t->ne[0] * t->ne[1]),
        .d012 = cuda_div_of(t->ne[0] * t->ne[1] * t->ne[2])};
}

// Blocks of `size` threads for n of them, at most as many as keep every multiprocessor busy: kernels go on in steps of the grid.
static inline unsigned cuda_blocks(const struct cuda_run *r, int64_t n, int size) {
    const int64_t want = (n + size - 1) / size, most = (int64_t) r->traits->n_sm * (2048 / size) * 4;
    return (unsigned) (want < 1 ? 1 : want < most ? want : most);
}

// One dimension of blocks for n elements, for a kernel that waits for the one before (dep_wait).
static inline struct cuda_dims cuda_flat(const struct cuda_run *r, int64_t n, int size) {
    return (struct cuda_dims){.grid = {cuda_blocks(r, n, size)}, .block = {(unsigned) size}, .overlap = true};
}

static inline bool cuda_is_float(enum ggml_type t) {
    return t == GGML_TYPE_F32 || t == GGML_TYPE_F16 || t == GGML_TYPE_BF16;
}
// Elements of a row follow each other; of a single one the stride says nothing.
static inline bool cuda_rows_are_dense(const struct ggml_tensor *t) {
    return t->nb[0] == ggml_type_size(t->type) || t->ne[0] == 1;
}
// f32 without gaps, to be read four at a time.
static inline bool cuda_is_f32_fours(const struct ggml_tensor *t) {
    return t->type == GGML_TYPE_F32 && ggml_is_contiguous(t) && (uintptr_t) t->data % 16 == 0;
}
static inline float cuda_param_f32(const struct ggml_tensor *t, int i) {
    float v;
    memcpy(&v, (const char *) t->op_params + (size_t) i * sizeof v, sizeof v);
    return v;
}
static inline int32_t cuda_param_i32(const struct ggml_tensor *t, int i) {
    return t->op_params[i];
}
