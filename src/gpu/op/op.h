// SPDX-License-Identifier: MIT
// op.h: helpers of op drivers: views of tensors, element indices, launch grids, and checks of layouts.
#pragma once

#include "core/op_params.h"
#include "gpu/gpu.h"
#include "gpu/kernel/args.h"

#include <string.h>

static inline struct gpu_view gpu_view_of(const struct ggml_tensor *t) {
    struct gpu_view v = {.p = t->data, .type = (int32_t) t->type};
    for (int i = 0; i < 4; i++) {
        v.ne[i] = t->ne[i];
        v.nb[i] = (int64_t) t->nb[i];
    }
    return v;
}

// Returns the constants for a fast division by d. Requires 1 <= d < 2^31.
static inline struct gpu_div gpu_div_of(int64_t d) {
    uint32_t shift = 0;
    while (shift < 31 && (1u << shift) < (uint32_t) d) {
        shift++;
    }
    const uint64_t mul = ((UINT64_C(1) << 32) * ((UINT64_C(1) << shift) - (uint64_t) d)) / (uint64_t) d + 1;
    return (struct gpu_div){.mul = (uint32_t) mul, .shift = shift, .d = (uint32_t) d};
}

#define GPU_INDEX_MAX (INT64_C(1) << 31) // gpu_index requires fewer elements

// Returns the divisors of t. If t has GPU_INDEX_MAX or more elements, d0.d is 0, and kernels divide by the extents of t. If t is
// empty, d0.d is 0 too.
static inline struct gpu_index gpu_index_of(const struct ggml_tensor *t) {
    if (ggml_nelements(t) == 0 || ggml_nelements(t) >= GPU_INDEX_MAX) {
        return (struct gpu_index){.d0 = {.d = 0}};
    }
    return (struct gpu_index){
        .d0 = gpu_div_of(t->ne[0]), .d01 = gpu_div_of(t->ne[0] * t->ne[1]), .d012 = gpu_div_of(t->ne[0] * t->ne[1] * t->ne[2])};
}

// Returns the number of blocks of `size` threads for n elements, limited to what keeps every multiprocessor busy. If the grid has
// fewer threads than elements, the kernel loops over the elements in strides of the grid.
static inline unsigned gpu_blocks(const struct gpu_run *r, int64_t n, int size) {
    return (unsigned) max_i64(1, min_i64((n + size - 1) / size, (int64_t) r->dev->n_units * (2048 / size) * 4));
}

// Sets gpu_dims.overlap, so the kernel must call dep_wait() or wait_for_previous().
static inline struct gpu_dims gpu_grid(int64_t x, int64_t y, int64_t z, int64_t block, int64_t shared_size) {
    return (struct gpu_dims){.grid = {(unsigned) x, (unsigned) y, (unsigned) z},
        .block = {(unsigned) block},
        .shared_size = (unsigned) shared_size,
        .overlap = true};
}

static inline struct gpu_dims gpu_dims_1d(const struct gpu_run *r, int64_t n, int size) {
    return gpu_grid(gpu_blocks(r, n, size), 1, 1, size, 0);
}

static inline struct gpu_op_args gpu_op_args_of(const struct ggml_tensor *op) {
    struct gpu_op_args g = {.dst = gpu_view_of(op), .index = gpu_index_of(op), .n = ggml_nelements(op), .what = (int32_t) op->op};
    struct gpu_view *views[] = {&g.a, &g.b, &g.c, &g.d};
    for (int i = 0; i < 4; i++) {
        if (op->src[i] != NULL) {
            *views[i] = gpu_view_of(op->src[i]);
        }
    }
    memcpy(g.p, op->op_params, sizeof g.p);
    memcpy(g.f, op->op_params, sizeof g.f);
    return g;
}

// Runs an op whose kernel has one thread per element and no arguments except struct gpu_op_args.
static inline enum ggml_status gpu_elementwise_run(struct gpu_run *r, struct ggml_tensor *op) {
    const struct gpu_op_args g = gpu_op_args_of(op);
    return gpu_launch(r, r->row->kernel, gpu_dims_1d(r, g.n, 256), &g);
}

static inline bool gpu_is_float(enum ggml_type t) {
    return t == GGML_TYPE_F32 || t == GGML_TYPE_F16 || t == GGML_TYPE_BF16;
}
// Returns whether the elements of each row are contiguous. For a row of one element, nb[0] does not matter.
static inline bool gpu_rows_are_dense(const struct ggml_tensor *t) {
    return t->nb[0] == ggml_type_size(t->type) || t->ne[0] == 1;
}
// Returns whether a tensor is contiguous f32 and aligned, so that it can be read as float4.
static inline bool gpu_is_float4(const struct ggml_tensor *t) {
    return t->type == GGML_TYPE_F32 && ggml_is_contiguous(t) && (uintptr_t) t->data % 16 == 0;
}
static inline int64_t gpu_round_up(int64_t n, int64_t to) {
    return (n + to - 1) / to * to;
}
// Returns the source of `node` that is not `from`. Returns NULL if neither or both sources are `from`.
static inline const struct ggml_tensor *gpu_other_source(const struct ggml_tensor *node, const struct ggml_tensor *from) {
    if ((node->src[0] == from) == (node->src[1] == from)) {
        return NULL;
    }
    return node->src[node->src[0] == from];
}

// Returns whether kernel/dequant.cuh reads elements of type t.
static inline bool gpu_can_widen(enum ggml_type t) {
    return t == GGML_TYPE_F32 || t == GGML_TYPE_F16 || t == GGML_TYPE_BF16 || ggml_is_quantized(t);
}

// For ADD and ADD1 with a quantised source 0 and result (op/rows.c).
bool gpu_can_add_quantised(const struct gpu_device *dev, const struct ggml_tensor *op);
enum ggml_status gpu_add_quantised(struct gpu_run *r, struct ggml_tensor *op);

// Returns whether the device has a kernel that writes blocks of type t.
static inline bool gpu_can_quantise(const struct gpu_device *dev, enum ggml_type t) {
    if (ggml_blck_size(t) > 32 && !dev->has_superblocks) {
        return false;
    }
    switch (t) {
        case GGML_TYPE_Q4_0:
        case GGML_TYPE_Q4_1:
        case GGML_TYPE_Q5_0:
        case GGML_TYPE_Q5_1:
        case GGML_TYPE_Q8_0:
        case GGML_TYPE_Q2_K:
        case GGML_TYPE_Q3_K:
        case GGML_TYPE_Q4_K:
        case GGML_TYPE_Q5_K:
        case GGML_TYPE_Q6_K:
        case GGML_TYPE_IQ4_NL:
        case GGML_TYPE_IQ4_XS:
        case GGML_TYPE_TQ1_0:
        case GGML_TYPE_TQ2_0:
        case GGML_TYPE_MXFP4:
        case GGML_TYPE_NVFP4:
        case GGML_TYPE_Q1_0:
        case GGML_TYPE_Q2_0: return true;
        default: return false;
    }
}
