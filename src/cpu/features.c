// SPDX-License-Identifier: MIT
// features.c: detects instruction sets at run time. If the system does not save the registers of a set, the set counts as absent.
// ggml_cpu_has_* report this machine, not the compiler flags of the library.

#include "cpu/kernels.h"

#include "ggml-cpu.h"

#include <pthread.h>
#include <string.h>

static struct cpu_features found;

#if defined(__aarch64__) && defined(__linux__)
#    include <sys/auxv.h>
#    include <sys/prctl.h>

#    ifndef PR_SVE_GET_VL
#        define PR_SVE_GET_VL 51
#    endif

// As the Linux kernel defines them; older headers lack some.
#    define CAP_FP (1ul << 0)
#    define CAP_ASIMD (1ul << 1)
#    define CAP_ASIMDHP (1ul << 10)
#    define CAP_ASIMDDP (1ul << 20)
#    define CAP_ASIMDFHM (1ul << 23)
#    define CAP_SVE (1ul << 22)
#    define CAP2_SVE2 (1ul << 1)
#    define CAP2_I8MM (1ul << 13)
#    define CAP2_BF16 (1ul << 14)
#    define CAP2_SME (1ul << 23)
#    define CAP2_SME2 (1ul << 37)

static void features_find(struct cpu_features *f) {
    const unsigned long cap = getauxval(AT_HWCAP), cap2 = getauxval(AT_HWCAP2);
    f->neon = (cap & CAP_ASIMD) != 0;
    f->arm_fma = (cap & CAP_FP) != 0;
    f->fp16_va = (cap & CAP_ASIMDHP) != 0;
    f->dotprod = (cap & CAP_ASIMDDP) != 0;
    f->fhm = (cap & CAP_ASIMDFHM) != 0;
    f->sve = (cap & CAP_SVE) != 0;
    f->sve2 = (cap2 & CAP2_SVE2) != 0;
    f->i8mm = (cap2 & CAP2_I8MM) != 0;
    f->bf16 = (cap2 & CAP2_BF16) != 0;
    f->sme = (cap2 & CAP2_SME) != 0;
    f->sme2 = (cap2 & CAP2_SME2) != 0;
    if (f->sve) {
        const int vl = prctl(PR_SVE_GET_VL);
        f->sve_bytes = vl > 0 ? vl & 0xffff : 0;
    }
}

#elif defined(__x86_64__)
#    include <cpuid.h>

static unsigned long long xcr0_read(void) {
    unsigned lo, hi;
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return (unsigned long long) hi << 32 | lo;
}

// This function does not request AMX tiles from the system, because the tiles make signal frames larger. The `has` function of
// the AMX tier (x86/tiers.c) requests them.
static void features_find(struct cpu_features *f) {
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d)) {
        return;
    }
    f->sse3 = (c & (1u << 0)) != 0;
    f->ssse3 = (c & (1u << 9)) != 0;
    f->sse42 = f->ssse3 && (c & (1u << 19)) != 0 && (c & (1u << 20)) != 0; // SSE4.2 includes SSE4.1
    const unsigned long long os = (c & (1u << 27)) != 0 ? xcr0_read() : 0;
    const bool ymm = (os & 0x6) == 0x6;
    const bool zmm = (os & 0xe6) == 0xe6;
    const bool tiles = (os & 0x60000) == 0x60000;
    f->avx = ymm && (c & (1u << 28)) != 0;
    f->fma = f->avx && (c & (1u << 12)) != 0;
    f->f16c = f->avx && (c & (1u << 29)) != 0;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) {
        return;
    }
    f->bmi2 = (b & (1u << 8)) != 0;
    f->avx2 = f->avx && (b & (1u << 5)) != 0;
    const unsigned need = 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31; // F, DQ, BW, VL
    f->avx512 = zmm && f->avx2 && (b & need) == need;
    f->avx512_vbmi = f->avx512 && (c & (1u << 1)) != 0;
    f->avx512_vnni = f->avx512 && (c & (1u << 11)) != 0;
    const bool tile = tiles && (d & (1u << 24)) != 0;
    f->amx_int8 = tile && (d & (1u << 25)) != 0;
    f->amx_bf16 = tile && (d & (1u << 22)) != 0;
    if (!__get_cpuid_count(7, 1, &a, &b, &c, &d)) {
        return;
    }
    f->avx_vnni = f->avx2 && (a & (1u << 4)) != 0;
    f->avx512_bf16 = f->avx512 && (a & (1u << 5)) != 0;
}

#else

static void features_find(struct cpu_features *f) {
    (void) f;
}

#endif

static void find_once(void) {
    features_find(&found);
}

const struct cpu_features *cpu_features(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find_once);
    return &found;
}

// clang-format off
int ggml_cpu_has_sse3(void) { return cpu_features()->sse3; }
int ggml_cpu_has_ssse3(void) { return cpu_features()->ssse3; }
int ggml_cpu_has_avx(void) { return cpu_features()->avx; }
int ggml_cpu_has_avx_vnni(void) { return cpu_features()->avx_vnni; }
int ggml_cpu_has_avx2(void) { return cpu_features()->avx2; }
int ggml_cpu_has_bmi2(void) { return cpu_features()->bmi2; }
int ggml_cpu_has_f16c(void) { return cpu_features()->f16c; }
int ggml_cpu_has_fma(void) { return cpu_features()->fma; }
int ggml_cpu_has_avx512(void) { return cpu_features()->avx512; }
int ggml_cpu_has_avx512_vbmi(void) { return cpu_features()->avx512_vbmi; }
int ggml_cpu_has_avx512_vnni(void) { return cpu_features()->avx512_vnni; }
int ggml_cpu_has_avx512_bf16(void) { return cpu_features()->avx512_bf16; }
int ggml_cpu_has_amx_int8(void) { return cpu_features()->amx_int8; }
int ggml_cpu_has_neon(void) { return cpu_features()->neon; }
int ggml_cpu_has_arm_fma(void) { return cpu_features()->arm_fma; }
int ggml_cpu_has_fp16_va(void) { return cpu_features()->fp16_va; }
int ggml_cpu_has_dotprod(void) { return cpu_features()->dotprod; }
int ggml_cpu_has_matmul_int8(void) { return cpu_features()->i8mm; }
int ggml_cpu_has_sve(void) { return cpu_features()->sve; }
int ggml_cpu_get_sve_cnt(void) { return cpu_features()->sve_bytes; }
int ggml_cpu_has_sme(void) { return cpu_features()->sme; }
int ggml_cpu_has_sme2(void) { return cpu_features()->sme2; }
// Berth has no kernels for these architectures, and does not include llamafile.
int ggml_cpu_has_riscv_v(void) { return 0; }
int ggml_cpu_get_rvv_vlen(void) { return 0; }
int ggml_cpu_has_vsx(void) { return 0; }
int ggml_cpu_has_vxe(void) { return 0; }
int ggml_cpu_has_wasm_simd(void) { return 0; }
int ggml_cpu_has_llamafile(void) { return 0; }
// clang-format on
