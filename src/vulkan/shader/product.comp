#version 450
// SPDX-License-Identifier: MIT
// product.comp: products of matrices, for weights of one type per kernel. mv: up to MV_COLS columns; 32 threads compute a row. mm:
// tiles of MM_TILE rows and columns; the threads unpack a part of both into shared memory, and each computes 4 x 4 sums.
//KERNEL mv_f32 -DPRODUCT_MV -DTYPE=f32 -DTYPE_f32
//KERNEL mv_f16 -DPRODUCT_MV -DTYPE=f16 -DTYPE_f16
//KERNEL mv_bf16 -DPRODUCT_MV -DTYPE=bf16 -DTYPE_bf16
//KERNEL mv_FORMAT -DPRODUCT_MV
//KERNEL mm_f32 -DPRODUCT_MM -DTYPE=f32 -DTYPE_f32
//KERNEL mm_f16 -DPRODUCT_MM -DTYPE=f16 -DTYPE_f16
//KERNEL mm_bf16 -DPRODUCT_MM -DTYPE=bf16 -DTYPE_bf16
//KERNEL mm_FORMAT -DPRODUCT_MM
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "tensor.glsl"
#include "weights.glsl"
#include "products.h"

ARGS(vulkan_product_args)

#ifdef PRODUCT_MV
shared float parts[MV_COLS][128];

void main() {
    const uint lane = gl_LocalInvocationID.x, thread = gl_LocalInvocationID.y * 32u + lane;
    const int64_t row = int64_t(gl_WorkGroupID.x) * gl_WorkGroupSize.y + gl_LocalInvocationID.y;
    const int64_t n_k = g.w.ne[0], x_step = g.x.nb[0], w_step = g.w.nb[0];
    const bool has_ids = g.ids.p != 0;
    int64_t z2 = int64_t(gl_WorkGroupID.z) % g.y.ne[2], z3 = int64_t(gl_WorkGroupID.z) / g.y.ne[2];
    int64_t w2 = z2 / g.r2, w3 = z3 / g.r3, column = 0, x_column = 0;
    bool is_there = row < g.w.ne[1];
    int n_cols = int(g.x.ne[1]);
    if (has_ids) { // one column: slot WorkGroupID.y of token z2
        column = int64_t(gl_WorkGroupID.y);
        x_column = column % g.x.ne[1];
        const int expert = load_i32(at_indices(g.ids, column, z2, 0, 0));
        is_there = is_there && expert >= 0 && expert < g.w.ne[2];
        w2 = is_there ? int64_t(expert) : 0;
        w3 = 0;
        n_cols = 1;
    }
    const uint64_t w = at_indices(g.w, 0, is_there ? row : 0, w2, w3), x = at_indices(g.x, 0, x_column, z2, z3);
    const int x_type = g.x.type;
    const int64_t x_col = g.x.nb[1];
    float sums[MV_COLS];
    for (int c = 0; c < MV_COLS; c++) {
        sums[c] = 0.0;
    }
    if (is_there) {
        for (uint i = lane; i < uint(n_k); i += 32u) {
            const float v = weight_at(w, i, w_step);
            for (int c = 0; c < n_cols; c++) {
                const uint64_t p = x + uint64_t(int64_t(i) * x_step + int64_t(c) * x_col);
                sums[c] = fma(v, x_type == GGML_TYPE_F32 ? load_f32(p) : load_number(p, x_type), sums[c]);
            }
        }
    }
    for (int c = 0; c < n_cols; c++) {
        parts[c][thread] = sums[c];
    }
    barrier();
    if (int(lane) < n_cols && row < g.w.ne[1]) {
        float s = 0.0;
        for (uint i = 0u; i < 32u; i++) {
            s += parts[lane][gl_LocalInvocationID.y * 32u + i];
        }
        store_f32(at_indices(g.y, row, column + int64_t(lane), z2, z3), s);
    }
}
#endif

#ifdef PRODUCT_MM
const uint STEP = 32u; // elements of a row per turn
shared float w_tile[STEP][MM_TILE + 1];
shared float x_tile[STEP][MM_TILE + 1];

void main() {
    const uint tx = gl_LocalInvocationID.x, ty = gl_LocalInvocationID.y, thread = ty * 16u + tx;
    const int64_t z2 = int64_t(gl_WorkGroupID.z) % g.y.ne[2], z3 = int64_t(gl_WorkGroupID.z) / g.y.ne[2];
    const int64_t row_0 = int64_t(gl_WorkGroupID.x) * MM_TILE, col_0 = int64_t(gl_WorkGroupID.y) * MM_TILE;
    const int64_t n_rows = g.w.ne[1], n_cols = g.x.ne[1], w_step = g.w.nb[0], x_step = g.x.nb[0];
    const uint n_k = uint(g.w.ne[0]);
    const uint64_t w = at_indices(g.w, 0, 0, z2 / g.r2, z3 / g.r3), x = at_indices(g.x, 0, 0, z2, z3);
    const int x_type = g.x.type;
    float sums[4][4];
    for (int a = 0; a < 4; a++) {
        for (int b = 0; b < 4; b++) {
            sums[a][b] = 0.0;
        }
    }
    for (uint k = 0u; k < n_k; k += STEP) {
        barrier();
        for (uint i = thread; i < STEP * uint(MM_TILE); i += 256u) {
            const uint e = i % STEP, at = i / STEP;
            const int64_t row = row_0 + int64_t(at), col = col_0 + int64_t(at);
            float wv = 0.0, xv = 0.0;
            if (k + e < n_k && row < n_rows) {
                wv = weight_at(w + uint64_t(row * g.w.nb[1]), k + e, w_step);
            }
            if (k + e < n_k && col < n_cols) {
                const uint64_t p = x + uint64_t(col * g.x.nb[1] + int64_t(k + e) * x_step);
                xv = x_type == GGML_TYPE_F32 ? load_f32(p) : load_number(p, x_type);
            }
            w_tile[e][at] = wv;
            x_tile[e][at] = xv;
        }
        barrier();
        for (uint e = 0u; e < STEP; e++) {
            float wv[4], xv[4];
            for (int a = 0; a < 4; a++) {
                wv[a] = w_tile[e][tx + 16u * uint(a)];
                xv[a] = x_tile[e][ty + 16u * uint(a)];
            }
            for (int a = 0; a < 4; a++) {
                for (int b = 0; b < 4; b++) {
                    sums[a][b] = fma(wv[a], xv[b], sums[a][b]);
                }
            }
        }
    }
    for (int a = 0; a < 4; a++) {
        for (int b = 0; b < 4; b++) {
            const int64_t row = row_0 + int64_t(tx) + 16 * a, col = col_0 + int64_t(ty) + 16 * b;
            if (row < n_rows && col < n_cols) {
                store_f32(at_indices(g.y, row, col, z2, z3), sums[a][b]);
            }
        }
    }
}
#endif
