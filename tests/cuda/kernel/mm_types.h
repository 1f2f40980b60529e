// SPDX-License-Identifier: MIT
// mm_types.h: the types of weights for mm.cu. Each row has the block size of a type, its kernels, and a function (tame) that turns
// a block of random bytes into a valid block by setting its scales. The macros HOT and COLD declare the kernels of a type: HOT
// declares mv, mmv, mma_64 and mma_256, COLD declares mmv and mma_128.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>
#include <string.h>

struct mmv_args;
struct mv_args;
struct mma_args;
struct act_args;

struct mm_type {
    const char *name;
    int qk, bytes; // elements and bytes of a block
    void (*tame)(char *block, uint32_t random);
    void (*to_float)(const void *, float *, int64_t);
    // Kernels; NULL: the type has no such kernel. mv: one column. mmv: up to 8 columns. mmv_wide: 5 to 8 columns, without the
    // rounding residuals of the columns. mma_N: tiles of N columns.
    const void *mv, *mmv, *mmv_wide, *mma_64, *mma_128, *mma_256;
    bool hot;        // more sizes are measured; "time few" measures only types with this field
    const void *mvb; // kernel for one column of a dense type, NULL: the type is quantised
};

static void tame_half(char *at, uint32_t random) { // magnitudes from 0.01 to 0.04, both signs
    const uint16_t v = (uint16_t) (0x2100 + random % 0x0800 + (random >> 16 & 0x8000));
    memcpy(at, &v, 2);
}
template <int A, int B = -1> static void tame_at(char *block, uint32_t random) {
    tame_half(block + A, random);
    if (B >= 0) {
        tame_half(block + B, random * 2654435761u);
    }
}
static void tame_mxfp4(char *block, uint32_t random) {
    block[0] = (char) (118 + random % 6);
}
static void tame_nvfp4(char *block, uint32_t random) {
    for (int i = 0; i < 4; i++) {
        block[i] = (char) (0x20 + (random >> (8 * i) & 31));
    }
}
static void tame_iq1_m(char *block, uint32_t) {
    block[55] = (char) ((block[55] & 15) | 0x20);
}

#define MMV(name) extern "C" __global__ void mmv_##name(const mmv_args)
#define MV(name) extern "C" __global__ void mv_##name(const mv_args)
#define MVB(name) extern "C" __global__ void mvb_##name(const mv_args)
#define MMA(name, nt) extern "C" __global__ void mma90_##name##_##nt(const mma_args)
#define ROW(name) extern "C" void dequantize_row_##name(const void *, float *, int64_t)
extern "C" __global__ void act_tiles(const act_args);
#define HOT(name) \
    MMV(name); \
    MV(name); \
    MMA(name, 64); \
    MMA(name, 256); \
    ROW(name);
#define COLD(name) \
    MMV(name); \
    MMA(name, 128); \
    ROW(name);
// clang-format off
HOT(q4_0) HOT(q4_1) HOT(q5_0) HOT(q5_1) HOT(q8_0) HOT(q2_K) HOT(q3_K) HOT(q4_K) HOT(q5_K) HOT(q6_K) HOT(iq4_nl) HOT(iq4_xs)
HOT(mxfp4) HOT(nvfp4) HOT(f16) HOT(bf16) HOT(f32) MMV(f16_wide); MMV(bf16_wide); MVB(f32); MVB(f16); MVB(bf16);
COLD(iq2_xxs) COLD(iq2_xs) COLD(iq2_s) COLD(iq3_xxs) COLD(iq3_s) COLD(iq1_s) COLD(iq1_m) COLD(q1_0) COLD(q2_0) COLD(tq1_0) COLD(tq2_0)
// clang-format on

#define K(name) (const void *) name
#define HOT_ROW(name, qk, bytes, tame, hot) \
    { \
#        name, qk, bytes, tame, dequantize_row_##name, K(mv_##name), K(mmv_##name), NULL, K(mma90_##name##_64), NULL, \
            K(mma90_##name##_256), hot \
    }
#define COLD_ROW(name, qk, bytes, tame) \
    { #name, qk, bytes, tame, dequantize_row_##name, NULL, K(mmv_##name), NULL, NULL, K(mma90_##name##_128), NULL, false }

    static const mm_type mm_types[] = {
        {"f32", 1, 4, NULL, NULL, K(mv_f32), K(mmv_f32), NULL, NULL, NULL, NULL, true, K(mvb_f32)},
        {"f16", 1, 2, NULL, NULL, K(mv_f16), K(mmv_f16), K(mmv_f16_wide), K(mma90_f16_64), NULL, K(mma90_f16_256), true,
            K(mvb_f16)},
        {"bf16", 1, 2, NULL, NULL, K(mv_bf16), K(mmv_bf16), K(mmv_bf16_wide), K(mma90_bf16_64), NULL, K(mma90_bf16_256), true,
            K(mvb_bf16)},
        HOT_ROW(q8_0, 32, 34, tame_at<0>, true),
        HOT_ROW(q4_0, 32, 18, tame_at<0>, true),
        HOT_ROW(q4_K, 256, 144, (tame_at<0, 2>), true),
        HOT_ROW(q6_K, 256, 210, tame_at<208>, true),
        HOT_ROW(q5_K, 256, 176, (tame_at<0, 2>), true),
        HOT_ROW(q4_1, 32, 20, (tame_at<0, 2>), false),
        HOT_ROW(q5_0, 32, 22, tame_at<0>, false),
        HOT_ROW(q5_1, 32, 24, (tame_at<0, 2>), false),
        HOT_ROW(q2_K, 256, 84, (tame_at<80, 82>), false),
        HOT_ROW(q3_K, 256, 110, tame_at<108>, false),
        HOT_ROW(iq4_nl, 32, 18, tame_at<0>, false),
        HOT_ROW(iq4_xs, 256, 136, tame_at<0>, false),
        HOT_ROW(mxfp4, 32, 17, tame_mxfp4, true),
        HOT_ROW(nvfp4, 64, 36, tame_nvfp4, false),
        COLD_ROW(iq2_xxs, 256, 66, tame_at<0>),
        COLD_ROW(iq2_xs, 256, 74, tame_at<0>),
        COLD_ROW(iq2_s, 256, 82, tame_at<0>),
        COLD_ROW(iq3_xxs, 256, 98, tame_at<0>),
        COLD_ROW(iq3_s, 256, 110, tame_at<0>),
        COLD_ROW(iq1_s, 256, 50, tame_at<0>),
        COLD_ROW(iq1_m, 256, 56, tame_iq1_m),
        COLD_ROW(q1_0, 128, 18, tame_at<0>),
        COLD_ROW(q2_0, 64, 18, tame_at<0>),
        COLD_ROW(tq1_0, 256, 54, tame_at<52>),
        COLD_ROW(tq2_0, 256, 66, tame_at<64>),
};
