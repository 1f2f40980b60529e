#version 450
// SPDX-License-Identifier: MIT
// product.comp: products of matrices, for weights of one type per kernel. mv: up to MV_COLS columns; 32 threads compute a row. mm:
// tiles of MM_TILE rows and columns; the threads unpack a part of both into shared memory, and each computes 4 x 4 sums.
//KERNEL mv_f32 -DPRODUCT_MV -DTYPE=f32 -DTYPE_f32
//KERNEL mv_f16 -DPRODUCT_MV -DTYPE=f16 -DTYPE_f16
//KERNEL mv_bf16 -DPRODUCT_MV -DTYPE=bf16 -DTYPE_bf16
//KERNEL mv_q4_0 -DPRODUCT_MV -DTYPE=q4_0 -DTYPE_q4_0 -DQK=32u -DQB=18u
//KERNEL mv_q4_1 -DPRODUCT_MV -DTYPE=q4_1 -DTYPE_q4_1 -DQK=32u -DQB=20u
//KERNEL mv_q5_0 -DPRODUCT_MV -DTYPE=q5_0 -DTYPE_q5_0 -DQK=32u -DQB=22u
//KERNEL mv_q5_1 -DPRODUCT_MV -DTYPE=q5_1 -DTYPE_q5_1 -DQK=32u -DQB=24u
//KERNEL mv_q8_0 -DPRODUCT_MV -DTYPE=q8_0 -DTYPE_q8_0 -DQK=32u -DQB=34u
//KERNEL mv_iq4_nl -DPRODUCT_MV -DTYPE=iq4_nl -DTYPE_iq4_nl -DQK=32u -DQB=18u
//KERNEL mv_mxfp4 -DPRODUCT_MV -DTYPE=mxfp4 -DTYPE_mxfp4 -DQK=32u -DQB=17u
//KERNEL mv_nvfp4 -DPRODUCT_MV -DTYPE=nvfp4 -DTYPE_nvfp4 -DQK=64u -DQB=36u
//KERNEL mv_q1_0 -DPRODUCT_MV -DTYPE=q1_0 -DTYPE_q1_0 -DQK=128u -DQB=18u
//KERNEL mv_q2_0 -DPRODUCT_MV -DTYPE=q2_0 -DTYPE_q2_0 -DQK=64u -DQB=18u
//KERNEL mv_tq1_0 -DPRODUCT_MV -DTYPE=tq1_0 -DTYPE_tq1_0 -DQK=256u -DQB=54u
//KERNEL mv_tq2_0 -DPRODUCT_MV -DTYPE=tq2_0 -DTYPE_tq2_0 -DQK=256u -DQB=66u
//KERNEL mv_q2_K -DPRODUCT_MV -DTYPE=q2_K -DTYPE_q2_K -DQK=256u -DQB=84u
//KERNEL mv_q3_K -DPRODUCT_MV -DTYPE=q3_K -DTYPE_q3_K -DQK=256u -DQB=110u
//KERNEL mv_q4_K -DPRODUCT_MV -DTYPE=q4_K -DTYPE_q4_K -DQK=256u -DQB=144u
//KERNEL mv_q5_K -DPRODUCT_MV -DTYPE=q5_K -DTYPE_q5_K -DQK=256u -DQB=176u
//KERNEL mv_q6_K -DPRODUCT_MV -DTYPE=q6_K -DTYPE_q6_K -DQK=256u -DQB=210u
//KERNEL mv_iq4_xs -DPRODUCT_MV -DTYPE=iq4_xs -DTYPE_iq4_xs -DQK=256u -DQB=136u
//KERNEL mv_iq2_xxs -DPRODUCT_MV -DTYPE=iq2_xxs -DTYPE_iq2_xxs -DQK=256u -DQB=66u
//KERNEL mv_iq2_xs -DPRODUCT_MV -DTYPE=iq2_xs -DTYPE_iq2_xs -DQK=256u -DQB=74u
//KERNEL mv_iq2_s -DPRODUCT_MV -DTYPE=iq2_s -DTYPE_iq2_s -DQK=256u -DQB=82u
//KERNEL mv_iq3_xxs -DPRODUCT_MV -DTYPE=iq3_xxs -DTYPE_iq3_xxs -DQK=256u -DQB=98u
//KERNEL mv_iq3_s -DPRODUCT_MV -DTYPE=iq3_s -DTYPE_iq3_s -DQK=256u -DQB=110u
//KERNEL mv_iq1_s -DPRODUCT_MV -DTYPE=iq1_s -DTYPE_iq1_s -DQK=256u -DQB=50u
//KERNEL mv_iq1_m -DPRODUCT_MV -DTYPE=iq1_m -DTYPE_iq1_m -DQK=256u -DQB=56u
//KERNEL mm_f32 -DPRODUCT_MM -DTYPE=f32 -DTYPE_f32
//KERNEL mm_f16 -DPRODUCT_MM -DTYPE=f16 -DTYPE_f16
//KERNEL mm_bf16 -DPRODUCT_MM -DTYPE=bf16 -DTYPE_bf16
//KERNEL mm_q4_0 -DPRODUCT_MM -DTYPE=q4_0 -DTYPE_q4_0 -DQK=32u -DQB=18u
//KERNEL mm_q4_1 -DPRODUCT_MM -DTYPE=q4_1 -DTYPE_q4_1 -DQK=32u -DQB=20u
//KERNEL mm_q5_0 -DPRODUCT_MM -DTYPE=q5_0 -DTYPE_q5_0 -DQK=32u -DQB=22u
//KERNEL mm_q5_1 -DPRODUCT_MM -DTYPE=q5_1 -DTYPE_q5_1 -DQK=32u -DQB=24u
//KERNEL mm_q8_0 -DPRODUCT_MM -DTYPE=q8_0 -DTYPE_q8_0 -DQK=32u -DQB=34u
//KERNEL mm_iq4_nl -DPRODUCT_MM -DTYPE=iq4_nl -DTYPE_iq4_nl -DQK=32u -DQB=18u
//KERNEL mm_mxfp4 -DPRODUCT_MM -DTYPE=mxfp4 -DTYPE_mxfp4 -DQK=32u -DQB=17u
//KERNEL mm_nvfp4 -DPRODUCT_MM -DTYPE=nvfp4 -DTYPE_nvfp4 -DQK=64u -DQB=36u
//KERNEL mm_q1_0 -DPRODUCT_MM -DTYPE=q1_0 -DTYPE_q1_0 -DQK=128u -DQB=18u
//KERNEL mm_q2_0 -DPRODUCT_MM -DTYPE=q2_0 -DTYPE_q2_0 -DQK=64u -DQB=18u
//KERNEL mm_tq1_0 -DPRODUCT_MM -DTYPE=tq1_0 -DTYPE_tq1_0 -DQK=256u -DQB=54u
//KERNEL mm_tq2_0 -DPRODUCT_MM -DTYPE=tq2_0 -DTYPE_tq2_0 -DQK=256u -DQB=66u
//KERNEL mm_q2_K -DPRODUCT_MM -DTYPE=q2_K -DTYPE_q2_K -DQK=256u -DQB=84u
//KERNEL mm_q3_K -DPRODUCT_MM -DTYPE=q3_K -DTYPE_q3_K -DQK=256u -DQB=110u
//KERNEL mm_q4_K -DPRODUCT_MM -DTYPE=q4_K -DTYPE_q4_K -DQK=256u -DQB=144u
//KERNEL mm_q5_K -DPRODUCT_MM -DTYPE=q5_K -DTYPE_q5_K -DQK=256u -DQB=176u
//KERNEL mm_q6_K -DPRODUCT_MM -DTYPE=q6_K -DTYPE_q6_K -DQK=256u -DQB=210u
//KERNEL mm_iq4_xs -DPRODUCT_MM -DTYPE=iq4_xs -DTYPE_iq4_xs -DQK=256u -DQB=136u
//KERNEL mm_iq2_xxs -DPRODUCT_MM -DTYPE=iq2_xxs -DTYPE_iq2_xxs -DQK=256u -DQB=66u
//KERNEL mm_iq2_xs -DPRODUCT_MM -DTYPE=iq2_xs -DTYPE_iq2_xs -DQK=256u -DQB=74u
//KERNEL mm_iq2_s -DPRODUCT_MM -DTYPE=iq2_s -DTYPE_iq2_s -DQK=256u -DQB=82u
//KERNEL mm_iq3_xxs -DPRODUCT_MM -DTYPE=iq3_xxs -DTYPE_iq3_xxs -DQK=256u -DQB=98u
//KERNEL mm_iq3_s -DPRODUCT_MM -DTYPE=iq3_s -DTYPE_iq3_s -DQK=256u -DQB=110u
//KERNEL mm_iq1_s -DPRODUCT_MM -DTYPE=iq1_s -DTYPE_iq1_s -DQK=256u -DQB=50u
//KERNEL mm_iq1_m -DPRODUCT_MM -DTYPE=iq1_m -DTYPE_iq1_m -DQK=256u -DQB=56u
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
