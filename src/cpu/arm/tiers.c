// SPDX-License-Identifier: MIT
// tiers.c: the tiers of arm, oldest first. A tier is filled by files named *__<tier>.c, compiled with its flags.

#include "cpu/arm/tiers.h"

#include "cpu/features.h"
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

static void fill_fp16(struct cpu_kernels *k) {
    cpu_tier_fp16_gemm(k);
    cpu_tier_fp16_gemv(k);
}

static void fill_fhm(struct cpu_kernels *k) {
    cpu_tier_fhm(k);
    cpu_tier_fhm_gemm(k);
    cpu_tier_fhm_gemv(k);
}

static void fill_dotprod(struct cpu_kernels *k) {
    cpu_tier_dotprod_q32(k);
    cpu_tier_dotprod_k(k);
    cpu_tier_dotprod_gemv_q32(k);
    cpu_tier_dotprod_gemv_q8_0(k);
    cpu_tier_dotprod_gemv_k(k);
    cpu_tier_dotprod_gemm(k);
}

static const struct cpu_tier tiers[] = {
    {"neon", has_neon, cpu_tier_neon},
    {"fp16", has_fp16, fill_fp16},
    {"fhm", has_fhm, fill_fhm},
    {"dotprod", has_dotprod, fill_dotprod},
    {"i8mm", has_i8mm, cpu_tier_i8mm_gemm},
    {"bf16", has_bf16, cpu_tier_bf16},
    {NULL, NULL, NULL},
};

const struct cpu_tier *const cpu_tiers = tiers;
