// SPDX-License-Identifier: MIT
// tiers.c: the tiers of ARM, oldest first. The files <what>__<tier>.c of a tier are compiled with the flags of the tier.

#include "cpu/kernels.h"

static bool has_neon(void) {
    return cpu_features()->neon;
}

static bool has_fp16(void) {
    return cpu_features()->fp16_va;
}

static bool has_fhm(void) {
    return cpu_features()->fhm && has_fp16();
}

static bool has_dotprod(void) {
    return cpu_features()->dotprod;
}

static bool has_i8mm(void) {
    return cpu_features()->i8mm && has_dotprod();
}

static bool has_bf16(void) {
    return cpu_features()->bf16;
}

// The files of each tier, in the order in which they fill the table: a later file may use or replace slots of an earlier file.
#define NEON(X, tier) \
    X(tier, dot) \
    X(tier, gemm_f32) \
    X(tier, quantize) \
    X(tier, vec) \
    X(tier, widen) \
    X(tier, dot_q32) X(tier, dot_k) X(tier, dot_iq) X(tier, dot_low_bit) X(tier, gemv_f) X(tier, gemv_q32) X(tier, gemv_k)
#define FP16(X, tier) X(tier, gemm_f16) X(tier, gemv_f16)
#define FHM(X, tier) X(tier, dot_f16) X(tier, gemm_f16) X(tier, gemv_f16)
#define DOTPROD(X, tier) \
    X(tier, dot_q32) \
    X(tier, dot_k) X(tier, dot_iq) X(tier, dot_low_bit) X(tier, gemv_q32) X(tier, gemv_q8_0) X(tier, gemv_k) X(tier, gemm_q)
#define I8MM(X, tier) X(tier, gemm_q)
#define BF16(X, tier) X(tier, gemm_bf16)

CPU_TIER_FILES(neon, NEON)
CPU_TIER_FILES(fp16, FP16)
CPU_TIER_FILES(fhm, FHM)
CPU_TIER_FILES(dotprod, DOTPROD)
CPU_TIER_FILES(i8mm, I8MM)
CPU_TIER_FILES(bf16, BF16)

static const struct cpu_tier tiers[] = {
    {"neon", has_neon, fill_neon},
    {"fp16", has_fp16, fill_fp16},
    {"fhm", has_fhm, fill_fhm},
    {"dotprod", has_dotprod, fill_dotprod},
    {"i8mm", has_i8mm, fill_i8mm},
    {"bf16", has_bf16, fill_bf16},
    {NULL, NULL, NULL},
};

const struct cpu_tier *const cpu_tiers = tiers;
