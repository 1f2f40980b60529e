// SPDX-License-Identifier: MIT
// blocks.h: the memory layout of every quantised block. Blocks are little endian and have no padding. The build compares the
// layouts with cmake/abi.tsv.
#pragma once

#include <stddef.h>
#include <stdint.h>

typedef uint16_t ggml_half;
typedef uint32_t ggml_half2;

// How CPU and GPU backends compute the levels of a q8_0 or q8_1 block whose largest magnitude is max. 1: x * (127 / max). 0: x *
// (1 / (max / 127)). The product is rounded to nearest even. The reference's CPU backend uses 1 on x86-64 and 0 elsewhere.
#ifdef __x86_64__
#    define BERTH_Q8_FACTOR_OF_MAX 1
#else
#    define BERTH_Q8_FACTOR_OF_MAX 0
#endif
// If max is smaller than this or not finite, the backends quantise the block by the rules of quantize_row_q8_0_ref.
#define BERTH_Q8_MAX_LEAST 0x1p-100f

// 1: the offline quantisers compute a * b + c with one rounding, as the reference does on architectures with a fused multiply-add
// in the base instruction set.
#ifdef __aarch64__
#    define BERTH_MAD_IS_FUSED 1
#else
#    define BERTH_MAD_IS_FUSED 0
#endif

// Elements per block. Blocks of 256 elements are superblocks.
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

typedef struct {
    ggml_half d;
    uint8_t qs[16];
} block_q2_0;

typedef struct {
    ggml_half d;
    uint8_t qs[16];
} block_q4_0;

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

typedef struct {
    uint8_t e;
    uint8_t qs[16];
} block_mxfp4;

typedef struct {
    uint8_t d[4];
    uint8_t qs[32];
} block_nvfp4;

typedef struct {
    ggml_half d;
    uint8_t qh[4];
    uint8_t qs[16];
} block_q5_0;

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

typedef struct {
    ggml_half d;
    int8_t qs[32];
} block_q8_0;

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

typedef struct {
    uint8_t qs[48];
    uint8_t qh[4];
    ggml_half d;
} block_tq1_0;

typedef struct {
    uint8_t qs[64];
    ggml_half d;
} block_tq2_0;

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

typedef struct {
    uint8_t hmask[32];
    uint8_t qs[64];
    uint8_t scales[12];
    ggml_half d;
} block_q3_K;

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

typedef struct {
    uint8_t ql[128];
    uint8_t qh[64];
    int8_t scales[16];
    ggml_half d;
} block_q6_K;

typedef struct {
    float d;
    int8_t qs[256];
    int16_t bsums[16];
} block_q8_K;

typedef struct {
    ggml_half d;
    uint16_t qs[32];
} block_iq2_xxs;

typedef struct {
    ggml_half d;
    uint16_t qs[32];
    uint8_t scales[8];
} block_iq2_xs;

typedef struct {
    ggml_half d;
    uint8_t qs[64];
    uint8_t qh[8];
    uint8_t scales[8];
} block_iq2_s;

typedef struct {
    ggml_half d;
    uint8_t qs[96];
} block_iq3_xxs;

typedef struct {
    ggml_half d;
    uint8_t qs[64];
    uint8_t qh[8];
    uint8_t signs[32];
    uint8_t scales[4];
} block_iq3_s;

typedef struct {
    ggml_half d;
    uint8_t qs[32];
    uint16_t qh[8];
} block_iq1_s;

typedef struct {
    uint8_t qs[32];
    uint8_t qh[16];
    uint8_t scales[8];
} block_iq1_m;

typedef struct {
    ggml_half d;
    uint8_t qs[16];
} block_iq4_nl;

typedef struct {
    ggml_half d;
    uint16_t scales_h;
    uint8_t scales_l[4];
    uint8_t qs[128];
} block_iq4_xs;
