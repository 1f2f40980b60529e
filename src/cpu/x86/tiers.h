// SPDX-License-Identifier: MIT
// tiers.h: the fillers of x86-64's tiers.
#pragma once

#include "cpu/kernels.h"

void cpu_tier_sse42_float(struct cpu_kernels *k);    // dot_f__sse42.c
void cpu_tier_sse42_gemm_f(struct cpu_kernels *k);   // gemm_f__sse42.c
void cpu_tier_sse42_quantize(struct cpu_kernels *k); // quantize__sse42.c
void cpu_tier_sse42_dot_q(struct cpu_kernels *k);    // dot_q__sse42.c
void cpu_tier_sse42_gemm_q(struct cpu_kernels *k);   // gemm_q__sse42.c
void cpu_tier_sse42_gemv_q(struct cpu_kernels *k);   // gemv_q__sse42.c
void cpu_tier_sse42_widen(struct cpu_kernels *k);    // widen__sse42.c
void cpu_tier_sse42_vec(struct cpu_kernels *k);      // vec__sse42.c
void cpu_tier_avx_float(struct cpu_kernels *k);      // dot_f__avx.c
void cpu_tier_avx_gemm_f(struct cpu_kernels *k);     // gemm_f__avx.c
void cpu_tier_avx_gemm_q(struct cpu_kernels *k);     // gemm_q__avx.c
void cpu_tier_avx_quantize(struct cpu_kernels *k);   // quantize__avx.c
void cpu_tier_avx_dot_q(struct cpu_kernels *k);      // dot_q__avx.c
void cpu_tier_avx_gemv_q(struct cpu_kernels *k);     // gemv_q__avx.c
void cpu_tier_avx_widen(struct cpu_kernels *k);      // widen__avx.c
void cpu_tier_avx_vec(struct cpu_kernels *k);        // vec__avx.c
void cpu_tier_avx2_float(struct cpu_kernels *k);     // dot_f__avx2.c
void cpu_tier_avx2_gemm_f(struct cpu_kernels *k);    // gemm_f__avx2.c
void cpu_tier_avx2_quantize(struct cpu_kernels *k);  // quantize__avx2.c
void cpu_tier_avx2_dot_q(struct cpu_kernels *k);     // dot_q__avx2.c
void cpu_tier_avx2_gemm_q(struct cpu_kernels *k);    // gemm_q__avx2.c
void cpu_tier_avx2_gemv_q(struct cpu_kernels *k);    // gemv_q__avx2.c
void cpu_tier_avx2_widen(struct cpu_kernels *k);     // widen__avx2.c
void cpu_tier_avx2_vec(struct cpu_kernels *k);       // vec__avx2.c
void cpu_tier_avxvnni_gemv(struct cpu_kernels *k);   // gemv_q__avxvnni.c
void cpu_tier_avxvnni_gemm(struct cpu_kernels *k);   // gemm_q__avxvnni.c
void cpu_tier_avx512_float(struct cpu_kernels *k);   // dot_f__avx512.c
void cpu_tier_avx512_gemv_k(struct cpu_kernels *k);  // gemv_k__avx512.c
void cpu_tier_avx512_gemv_q(struct cpu_kernels *k);  // gemv_q__avx512.c
void cpu_tier_avx512_gemm_f(struct cpu_kernels *k);  // gemm_f__avx512.c
void cpu_tier_avx512_gemm_q(struct cpu_kernels *k);  // gemm_q__avx512.c
void cpu_tier_avx512_vec(struct cpu_kernels *k);     // vec__avx512.c
void cpu_tier_vnni_gemv(struct cpu_kernels *k);      // gemv_q__vnni.c
void cpu_tier_vnni_gemv_k(struct cpu_kernels *k);    // gemv_k__vnni.c
void cpu_tier_vnni_gemm(struct cpu_kernels *k);      // gemm_q__vnni.c
void cpu_tier_amx_gemm(struct cpu_kernels *k);       // gemm_q__amx.c
