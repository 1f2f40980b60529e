// SPDX-License-Identifier: MIT
// tiers.h: the fillers of arm's tiers.
#pragma once

#include "cpu/kernels.h"

void cpu_tier_neon(struct cpu_kernels *k);              // dot__neon.c, calls the other eleven
void cpu_tier_neon_tile(struct cpu_kernels *k);         // tile__neon.c
void cpu_tier_neon_gemm(struct cpu_kernels *k);         // gemm_f32__neon.c
void cpu_tier_neon_quantize(struct cpu_kernels *k);     // quantize__neon.c
void cpu_tier_neon_vec(struct cpu_kernels *k);          // vec__neon.c
void cpu_tier_neon_widen(struct cpu_kernels *k);        // widen__neon.c
void cpu_tier_neon_q32(struct cpu_kernels *k);          // dot_q32__neon.c
void cpu_tier_neon_k(struct cpu_kernels *k);            // dot_k__neon.c
void cpu_tier_neon_gemv_f(struct cpu_kernels *k);       // gemv_f__neon.c
void cpu_tier_neon_gemv_q32(struct cpu_kernels *k);     // gemv_q32__neon.c
void cpu_tier_neon_gemv_k(struct cpu_kernels *k);       // gemv_k__neon.c
void cpu_tier_fp16_gemm(struct cpu_kernels *k);         // gemm_f16__fp16.c
void cpu_tier_fp16_gemv(struct cpu_kernels *k);         // gemv_f16__fp16.c
void cpu_tier_fhm(struct cpu_kernels *k);               // dot_f16__fhm.c
void cpu_tier_fhm_gemm(struct cpu_kernels *k);          // gemm_f16__fhm.c
void cpu_tier_fhm_gemv(struct cpu_kernels *k);          // gemv_f16__fhm.c
void cpu_tier_dotprod_q32(struct cpu_kernels *k);       // dot_q32__dotprod.c
void cpu_tier_dotprod_k(struct cpu_kernels *k);         // dot_k__dotprod.c
void cpu_tier_dotprod_gemv_q32(struct cpu_kernels *k);  // gemv_q32__dotprod.c
void cpu_tier_dotprod_gemv_q8_0(struct cpu_kernels *k); // gemv_q8_0__dotprod.c
void cpu_tier_dotprod_gemv_k(struct cpu_kernels *k);    // gemv_k__dotprod.c
void cpu_tier_dotprod_gemm(struct cpu_kernels *k);      // gemm_q__dotprod.c
void cpu_tier_i8mm_gemm(struct cpu_kernels *k);         // gemm_q__i8mm.c
void cpu_tier_bf16(struct cpu_kernels *k);              // gemm_bf16__bf16.c

// Single products, which tiles of the same tier take for their rests (dot__neon.c).
void cpu_vec_dot_f32__neon(
    int n, float *restrict s, size_t bs, const void *restrict x, size_t bx, const void *restrict y, size_t by, int nrc);
void cpu_vec_dot_f16__neon(
    int n, float *restrict s, size_t bs, const void *restrict x, size_t bx, const void *restrict y, size_t by, int nrc);
