// SPDX-License-Identifier: MIT
// blocks.h: the bytes of every quantised block. Little endian, packed by nature: no block has padding, and the asserts below each
// struct hold it to the ABI. Where two halves sit side by side (d and its companion), one 32-bit name covers both.
#pragma once

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

typedef uint16_t ggml_half;
typedef uint32_t ggml_half2;

#define BERTH_BLOCK_IS(block, size) static_assert(sizeof(block) == (size), #block " differs from the ABI in size")
#define BERTH_FIELD_IS(block, field, off) static_assert(offsetof(block, field) == (off), #block "." #field " is misplaced")

// How CPU and GPU backends compute the levels of a q8_0 or q8_1 block from floats with the largest magnitude max: 1: x * (127 /
// max), 0: x * (1 / (max / 127)), rounded to the nearest integer, ties to even. The reference's CPU backend differs by
// architecture in this way, and only in the last bit of the factor.
#ifdef __x86_64__
#    define BERTH_Q8_FACTOR_OF_MAX 1
#else
#    define BERTH_Q8_FACTOR_OF_MAX 0
#endif
// A smaller max, or one that is not finite, is quantised as quantize_row_q8_0_ref does.
#define BERTH_Q8_MAX_LEAST 0x1p-100f

// Whether a * b + c of the offline quantisers is rounded once, as in the reference's builds: where the base architecture has such
// an instruction.
#ifdef __aarch64__
#    define BERTH_MAD_IS_FUSED 1
#else
#    define BERTH_MAD_IS_FUSED 0
#endif

// Elements a block holds; those of 256 are the superblocks.
enum {
    QK_K = 256,
    QK_Q1_0 = 128,
    QK_Q2_0 = 64,
    QK_Q4_0 = 32,
    QK_Q4_1 = 32,
    QK_MXFP4 = 32,
    QK_NVFP4 = 64,
    QK_Q5_0 = 32,
    QK_Q5_1 = 32,
    QK_Q8_0 = 32,
    QK_Q8_1 = 32,
    QK_TQ1_0 = 256,
    QK_TQ2_0 = 256,
    QK_Q2_K = 256,
    QK_Q3_K = 256,
    QK_Q4_K = 256,
    QK_Q5_K = 256,
    QK_Q6_K = 256,
    QK_Q8_K = 256,
    QK_IQ2_XXS = 256,
    QK_IQ2_XS = 256,
    QK_IQ2_S = 256,
    QK_IQ3_XXS = 256,
    QK_IQ3_S = 256,
    QK_IQ1_S = 256,
    QK_IQ1_M = 256,
    QK_IQ4_NL = 32,
    QK_IQ4_XS = 256,
};

typedef struct {
    ggml_half d;
    uint8_t qs[16];
} block_q1_0;
BERTH_BLOCK_IS(block_q1_0, 18);
BERTH_FIELD_IS(block_q1_0, d, 0);
BERTH_FIELD_IS(block_q1_0, qs, 2);

typedef struct {
    ggml_half d;
    uint8_t qs[16];
} block_q2_0;
BERTH_BLOCK_IS(block_q2_0, 18);
BERTH_FIELD_IS(block_q2_0, d, 0);
BERTH_FIELD_IS(block_q2_0, qs, 2);

typedef struct {
    ggml_half d;
    uint8_t qs[16];
} block_q4_0;
BERTH_BLOCK_IS(block_q4_0, 18);
BERTH_FIELD_IS(block_q4_0, d, 0);
BERTH_FIELD_IS(block_q4_0, qs, 2);

typedef struct {
    union {
        struct {
            ggml_half d;
            ggml_half m;
        };
        ggml_half2 dm;
    };
    uint8_t qs[16];
} block_q4_1;
BERTH_BLOCK_IS(block_q4_1, 20);
BERTH_FIELD_IS(block_q4_1, d, 0);
BERTH_FIELD_IS(block_q4_1, m, 2);
BERTH_FIELD_IS(block_q4_1, dm, 0);
BERTH_FIELD_IS(block_q4_1, qs, 4);

typedef struct {
    uint8_t e;
    uint8_t qs[16];
} block_mxfp4;
BERTH_BLOCK_IS(block_mxfp4, 17);
BERTH_FIELD_IS(block_mxfp4, e, 0);
BERTH_FIELD_IS(block_mxfp4, qs, 1);

typedef struct {
    uint8_t d[4];
    uint8_t qs[32];
} block_nvfp4;
BERTH_BLOCK_IS(block_nvfp4, 36);
BERTH_FIELD_IS(block_nvfp4, d, 0);
BERTH_FIELD_IS(block_nvfp4, qs, 4);

typedef struct {
    ggml_half d;
    uint8_t qh[4];
    uint8_t qs[16];
} block_q5_0;
BERTH_BLOCK_IS(block_q5_0, 22);
BERTH_FIELD_IS(block_q5_0, d, 0);
BERTH_FIELD_IS(block_q5_0, qh, 2);
BERTH_FIELD_IS(block_q5_0, qs, 6);

typedef struct {
    union {
        struct {
            ggml_half d;
            ggml_half m;
        };
        ggml_half2 dm;
    };
    uint8_t qh[4];
    uint8_t qs[16];
} block_q5_1;
BERTH_BLOCK_IS(block_q5_1, 24);
BERTH_FIELD_IS(block_q5_1, d, 0);
BERTH_FIELD_IS(block_q5_1, m, 2);
BERTH_FIELD_IS(block_q5_1, dm, 0);
BERTH_FIELD_IS(block_q5_1, qh, 4);
BERTH_FIELD_IS(block_q5_1, qs, 8);

typedef struct {
    ggml_half d;
    int8_t qs[32];
} block_q8_0;
BERTH_BLOCK_IS(block_q8_0, 34);
BERTH_FIELD_IS(block_q8_0, d, 0);
BERTH_FIELD_IS(block_q8_0, qs, 2);

typedef struct {
    union {
        struct {
            ggml_half d;
            ggml_half s;
        };
        ggml_half2 ds;
    };
    int8_t qs[32];
} block_q8_1;
BERTH_BLOCK_IS(block_q8_1, 36);
BERTH_FIELD_IS(block_q8_1, d, 0);
BERTH_FIELD_IS(block_q8_1, s, 2);
BERTH_FIELD_IS(block_q8_1, ds, 0);
BERTH_FIELD_IS(block_q8_1, qs, 4);

typedef struct {
    uint8_t qs[48];
    uint8_t qh[4];
    ggml_half d;
} block_tq1_0;
BERTH_BLOCK_IS(block_tq1_0, 54);
BERTH_FIELD_IS(block_tq1_0, qs, 0);
BERTH_FIELD_IS(block_tq1_0, qh, 48);
BERTH_FIELD_IS(block_tq1_0, d, 52);

typedef struct {
    uint8_t qs[64];
    ggml_half d;
} block_tq2_0;
BERTH_BLOCK_IS(block_tq2_0, 66);
BERTH_FIELD_IS(block_tq2_0, qs, 0);
BERTH_FIELD_IS(block_tq2_0, d, 64);

typedef struct {
    uint8_t scales[16];
    uint8_t qs[64];
    union {
        struct {
            ggml_half d;
            ggml_half dmin;
        };
        ggml_half2 dm;
    };
} block_q2_K;
BERTH_BLOCK_IS(block_q2_K, 84);
BERTH_FIELD_IS(block_q2_K, scales, 0);
BERTH_FIELD_IS(block_q2_K, qs, 16);
BERTH_FIELD_IS(block_q2_K, d, 80);
BERTH_FIELD_IS(block_q2_K, dmin, 82);
BERTH_FIELD_IS(block_q2_K, dm, 80);

typedef struct {
    uint8_t hmask[32];
    uint8_t qs[64];
    uint8_t scales[12];
    ggml_half d;
} block_q3_K;
BERTH_BLOCK_IS(block_q3_K, 110);
BERTH_FIELD_IS(block_q3_K, hmask, 0);
BERTH_FIELD_IS(block_q3_K, qs, 32);
BERTH_FIELD_IS(block_q3_K, scales, 96);
BERTH_FIELD_IS(block_q3_K, d, 108);

typedef struct {
    union {
        struct {
            ggml_half d;
            ggml_half dmin;
        };
        ggml_half2 dm;
    };
    uint8_t scales[12];
    uint8_t qs[128];
} block_q4_K;
BERTH_BLOCK_IS(block_q4_K, 144);
BERTH_FIELD_IS(block_q4_K, d, 0);
BERTH_FIELD_IS(block_q4_K, dmin, 2);
BERTH_FIELD_IS(block_q4_K, dm, 0);
BERTH_FIELD_IS(block_q4_K, scales, 4);
BERTH_FIELD_IS(block_q4_K, qs, 16);

typedef struct {
    union {
        struct {
            ggml_half d;
            ggml_half dmin;
        };
        ggml_half2 dm;
    };
    uint8_t scales[12];
    uint8_t qh[32];
    uint8_t qs[128];
} block_q5_K;
BERTH_BLOCK_IS(block_q5_K, 176);
BERTH_FIELD_IS(block_q5_K, d, 0);
BERTH_FIELD_IS(block_q5_K, dmin, 2);
BERTH_FIELD_IS(block_q5_K, dm, 0);
BERTH_FIELD_IS(block_q5_K, scales, 4);
BERTH_FIELD_IS(block_q5_K, qh, 16);
BERTH_FIELD_IS(block_q5_K, qs, 48);

typedef struct {
    uint8_t ql[128];
    uint8_t qh[64];
    int8_t scales[16];
    ggml_half d;
} block_q6_K;
BERTH_BLOCK_IS(block_q6_K, 210);
BERTH_FIELD_IS(block_q6_K, ql, 0);
BERTH_FIELD_IS(block_q6_K, qh, 128);
BERTH_FIELD_IS(block_q6_K, scales, 192);
BERTH_FIELD_IS(block_q6_K, d, 208);

typedef struct {
    float d;
    int8_t qs[256];
    int16_t bsums[16];
} block_q8_K;
BERTH_BLOCK_IS(block_q8_K, 292);
BERTH_FIELD_IS(block_q8_K, d, 0);
BERTH_FIELD_IS(block_q8_K, qs, 4);
BERTH_FIELD_IS(block_q8_K, bsums, 260);

typedef struct {
    ggml_half d;
    uint16_t qs[32];
} block_iq2_xxs;
BERTH_BLOCK_IS(block_iq2_xxs, 66);
BERTH_FIELD_IS(block_iq2_xxs, d, 0);
BERTH_FIELD_IS(block_iq2_xxs, qs, 2);

typedef struct {
    ggml_half d;
    uint16_t qs[32];
    uint8_t scales[8];
} block_iq2_xs;
BERTH_BLOCK_IS(block_iq2_xs, 74);
BERTH_FIELD_IS(block_iq2_xs, d, 0);
BERTH_FIELD_IS(block_iq2_xs, qs, 2);
BERTH_FIELD_IS(block_iq2_xs, scales, 66);

typedef struct {
    ggml_half d;
    uint8_t qs[64];
    uint8_t qh[8];
    uint8_t scales[8];
} block_iq2_s;
BERTH_BLOCK_IS(block_iq2_s, 82);
BERTH_FIELD_IS(block_iq2_s, d, 0);
BERTH_FIELD_IS(block_iq2_s, qs, 2);
BERTH_FIELD_IS(block_iq2_s, qh, 66);
BERTH_FIELD_IS(block_iq2_s, scales, 74);

typedef struct {
    ggml_half d;
    uint8_t qs[96];
} block_iq3_xxs;
BERTH_BLOCK_IS(block_iq3_xxs, 98);
BERTH_FIELD_IS(block_iq3_xxs, d, 0);
BERTH_FIELD_IS(block_iq3_xxs, qs, 2);

typedef struct {
    ggml_half d;
    uint8_t qs[64];
    uint8_t qh[8];
    uint8_t signs[32];
    uint8_t scales[4];
} block_iq3_s;
BERTH_BLOCK_IS(block_iq3_s, 110);
BERTH_FIELD_IS(block_iq3_s, d, 0);
BERTH_FIELD_IS(block_iq3_s, qs, 2);
BERTH_FIELD_IS(block_iq3_s, qh, 66);
BERTH_FIELD_IS(block_iq3_s, signs, 74);
BERTH_FIELD_IS(block_iq3_s, scales, 106);

typedef struct {
    ggml_half d;
    uint8_t qs[32];
    uint16_t qh[8];
} block_iq1_s;
BERTH_BLOCK_IS(block_iq1_s, 50);
BERTH_FIELD_IS(block_iq1_s, d, 0);
BERTH_FIELD_IS(block_iq1_s, qs, 2);
BERTH_FIELD_IS(block_iq1_s, qh, 34);

typedef struct {
    uint8_t qs[32];
    uint8_t qh[16];
    uint8_t scales[8];
} block_iq1_m;
BERTH_BLOCK_IS(block_iq1_m, 56);
BERTH_FIELD_IS(block_iq1_m, qs, 0);
BERTH_FIELD_IS(block_iq1_m, qh, 32);
BERTH_FIELD_IS(block_iq1_m, scales, 48);

typedef struct {
    ggml_half d;
    uint8_t qs[16];
} block_iq4_nl;
BERTH_BLOCK_IS(block_iq4_nl, 18);
BERTH_FIELD_IS(block_iq4_nl, d, 0);
BERTH_FIELD_IS(block_iq4_nl, qs, 2);

typedef struct {
    ggml_half d;
    uint16_t scales_h;
    uint8_t scales_l[4];
    uint8_t qs[128];
} block_iq4_xs;
BERTH_BLOCK_IS(block_iq4_xs, 136);
BERTH_FIELD_IS(block_iq4_xs, d, 0);
BERTH_FIELD_IS(block_iq4_xs, scales_h, 2);
BERTH_FIELD_IS(block_iq4_xs, scales_l, 4);
BERTH_FIELD_IS(block_iq4_xs, qs, 8);
