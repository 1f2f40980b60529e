// SPDX-License-Identifier: MIT
// features.h: what the processor and the system together can run.
#pragma once

#include <stdbool.h>

struct cpu_features {
    // arm
    bool neon, arm_fma, fp16_va, fhm, dotprod, i8mm, bf16, sve, sve2, sme, sme2;
    int sve_bytes; // vector length, 0 without SVE
    // x86: each only if the system saves its registers
    bool sse3, ssse3, sse42, avx, f16c, fma, avx2, bmi2, avx_vnni, avx512, avx512_vbmi, avx512_vnni, avx512_bf16, amx_int8,
        amx_bf16;
};

// Read once; safe on any thread.
const struct cpu_features *cpu_features(void);
