// SPDX-License-Identifier: MIT
// tiers.c: the tiers of x86-64, oldest first. A tier is filled by files named *__<tier>.c, compiled with its flags.

#include "cpu/x86/tiers.h"

#include "cpu/features.h"
#include "cpu/kernels.h"

#include <string.h>

#ifdef __linux__
#    include <sys/syscall.h>
#    include <unistd.h>
#endif

static bool has_sse42(void) {
    return cpu_features()->sse42;
}

static bool has_avx(void) {
    return cpu_features()->avx && has_sse42();
}

static bool has_avx2(void) {
    const struct cpu_features *f = cpu_features();
    return f->avx2 && f->fma && f->f16c && f->bmi2;
}

static bool has_avxvnni(void) {
    return cpu_features()->avx_vnni && has_avx2();
}

static bool has_avx512(void) {
    return cpu_features()->avx512 && has_avx2();
}

static bool has_vnni(void) {
    return cpu_features()->avx512_vnni && has_avx512();
}

// The system saves tiles only for a process that has asked for it, all its threads then; without that the first tile is an
// illegal instruction.
static bool may_use_tiles(void) {
#ifdef __linux__
    enum { REQ_XCOMP_PERM = 0x1023, XTILEDATA = 18 };
    return syscall(SYS_arch_prctl, REQ_XCOMP_PERM, XTILEDATA) == 0;
#else
    return false;
#endif
}

static bool has_amx(void) {
    return cpu_features()->amx_int8 && has_vnni() && may_use_tiles();
}

// What avx2 has, and the tiers below it that are made of the same files (sse.h). In this order: what quantises is used by what
// follows, and gemv_q changes what gemm_q put in.
#define FILL_AS_AVX2(tier) \
    cpu_tier_##tier##_float(k); \
    cpu_tier_##tier##_gemm_f(k); \
    cpu_tier_##tier##_quantize(k); \
    cpu_tier_##tier##_dot_q(k); \
    cpu_tier_##tier##_gemm_q(k); \
    cpu_tier_##tier##_gemv_q(k); \
    cpu_tier_##tier##_widen(k); \
    cpu_tier_##tier##_vec(k)

// Angles of up to 2^30 need multiply-adds that round once; tiles have more sums than there are registers.
static void fill_sse42(struct cpu_kernels *k) {
    const struct cpu_kernels before = *k;
    FILL_AS_AVX2(sse42);
    k->cos_sin = before.cos_sin;
    memcpy(k->tile, before.tile, sizeof k->tile);
}

static void fill_avx(struct cpu_kernels *k) {
    const struct cpu_kernels before = *k;
    FILL_AS_AVX2(avx);
    k->cos_sin = before.cos_sin;
}

static void fill_avx2(struct cpu_kernels *k) {
    FILL_AS_AVX2(avx2);
}

static void fill_avxvnni(struct cpu_kernels *k) {
    cpu_tier_avxvnni_gemv(k);
    cpu_tier_avxvnni_gemm(k);
}

static void fill_avx512(struct cpu_kernels *k) {
    cpu_tier_avx512_float(k);
    cpu_tier_avx512_gemm_f(k);
    cpu_tier_avx512_gemm_q(k);
    cpu_tier_avx512_gemv_k(k); // after gemm_q, and the next
    cpu_tier_avx512_gemv_q(k);
    cpu_tier_avx512_vec(k);
}

static void fill_vnni(struct cpu_kernels *k) {
    cpu_tier_vnni_gemv(k);
    cpu_tier_vnni_gemv_k(k);
    cpu_tier_vnni_gemm(k);
}

static const struct cpu_tier tiers[] = {
    {"sse42", has_sse42, fill_sse42},
    {"avx", has_avx, fill_avx},
    {"avx2", has_avx2, fill_avx2},
    {"avxvnni", has_avxvnni, fill_avxvnni},
    {"avx512", has_avx512, fill_avx512},
    {"vnni", has_vnni, fill_vnni},
    {"amx", has_amx, cpu_tier_amx_gemm},
    {NULL, NULL, NULL},
};

const struct cpu_tier *const cpu_tiers = tiers;
