// SPDX-License-Identifier: MIT
// gemm_f16__fhm.c: as gemm_f16__fp16.c, but sums in halves reach the floats by a multiplication with one, which all four pipes
// do, where only one of them converts.

#include "cpu/arm/gemm_f16.h"
#include "cpu/arm/tiers.h"

static inline __attribute__((always_inline)) void add(float *to, float16x8_t v) {
    const float16x8_t one = vdupq_n_f16(1);
    vst1q_f32(to, vfmlalq_low_f16(vld1q_f32(to), v, one));
    vst1q_f32(to + 4, vfmlalq_high_f16(vld1q_f32(to + 4), v, one));
}

GEMM_F16_RUN(fhm)

void cpu_tier_fhm_gemm(struct cpu_kernels *k) {
    k->gemm[GGML_TYPE_F16].run      = run__fhm;
    k->gemm[GGML_TYPE_F16].rows.run = run_rows__fhm;
}
