// SPDX-License-Identifier: MIT
// tiers.c: the tiers of arm, oldest first. A tier is filled by files named *__<tier>.c, compiled with its flags.

#include "cpu/arm/tiers.h"

#include "cpu/features.h"
#include "cpu/kernels.h"

static bool has_neon(void) {
    return cpu_features()->neon;
}

static bool has_dotprod(void) {
    return cpu_features()->dotprod;
}

static bool has_i8mm(void) {
    return cpu_features()->i8mm && has_dotprod();
}

static void fill_dotprod(struct cpu_kernels *k) {
    cpu_tier_dotprod_q32(k);
    cpu_tier_dotprod_k(k);
}

static const struct cpu_tier tiers[] = {
    {"neon", has_neon, cpu_tier_neon},
    {"dotprod", has_dotprod, fill_dotprod},
    {"i8mm", has_i8mm, cpu_tier_i8mm_gemm},
    {NULL, NULL, NULL},
};

const struct cpu_tier *const cpu_tiers = tiers;
