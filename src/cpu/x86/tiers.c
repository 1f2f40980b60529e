// SPDX-License-Identifier: MIT
// tiers.c: the tiers of x86-64, oldest first. The files <what>__<tier>.c of a tier are compiled with the flags of the tier.

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

// Windows has no AMX tier, because gcc's macros for tiles do not compile where long has 32 bits.
#ifndef _WIN32
// Linux saves AMX tiles only for a process that requested it. Without the request, the first AMX instruction raises SIGILL.
static bool may_use_tiles(void) {
#    ifdef __linux__
    enum { REQ_XCOMP_PERM = 0x1023, XTILEDATA = 18 };
    return syscall(SYS_arch_prctl, REQ_XCOMP_PERM, XTILEDATA) == 0;
#    else
    return false;
#    endif
}

static bool has_amx(void) {
    const struct cpu_features *f = cpu_features();
    return f->amx_int8 && f->amx_bf16 && __builtin_cpu_supports("gfni") && has_vnni() && may_use_tiles();
}
#endif

// In the order in which the files fill the table: gemm_q keeps slots of an older tier. The tiers sse42 and avx use the files of avx2
// (sse.h).
#define AVX2(X, tier) \
    X(tier, dot_f) X(tier, gemm_f) X(tier, quantize) X(tier, dot_q) X(tier, gemm_q) X(tier, gemv_q) X(tier, widen) X(tier, vec)
#define AVXVNNI(X, tier) X(tier, gemv_q) X(tier, gemm_q)
#define AVX512(X, tier) X(tier, dot_f) X(tier, gemm_f) X(tier, gemm_q) X(tier, gemv_q) X(tier, widen) X(tier, vec)
#define VNNI(X, tier) X(tier, gemv_q) X(tier, gemm_q)
#define AMX(X, tier) X(tier, gemv_q) X(tier, gemm_q) X(tier, bf16)

CPU_TIER_FILES(sse42, AVX2)
CPU_TIER_FILES(avx, AVX2)
CPU_TIER_FILES(avx2, AVX2)
CPU_TIER_FILES(avxvnni, AVXVNNI)
CPU_TIER_FILES(avx512, AVX512)
CPU_TIER_FILES(vnni, VNNI)
#ifndef _WIN32
CPU_TIER_FILES(amx, AMX)
#endif

// The cosine and sine of avx2 need fused multiply-adds to be exact for angles of up to 2^30. The tier sse42 has no tiles, and
// multiplies floats column by column: the sums of a tile would not fit into the registers.
static void fill_sse42_without_tiles(struct cpu_kernels *k) {
    const struct cpu_kernels before = *k;
    fill_sse42(k);
    k->cos_sin = before.cos_sin;
    memcpy(k->tile, before.tile, sizeof k->tile);
    k->gemv[GGML_TYPE_F32].run_cols = NULL;
    k->gemv[GGML_TYPE_F16].run_cols = NULL;
    k->gemv[GGML_TYPE_BF16].run_cols = NULL;
}

static void fill_avx_without_angles(struct cpu_kernels *k) {
    const struct cpu_kernels before = *k;
    fill_avx(k);
    k->cos_sin = before.cos_sin;
}

static const struct cpu_tier tiers[] = {
    {"sse42", has_sse42, fill_sse42_without_tiles},
    {"avx", has_avx, fill_avx_without_angles},
    {"avx2", has_avx2, fill_avx2},
    {"avxvnni", has_avxvnni, fill_avxvnni},
    {"avx512", has_avx512, fill_avx512},
    {"vnni", has_vnni, fill_vnni},
#ifndef _WIN32
    {"amx", has_amx, fill_amx},
#endif
    {NULL, NULL, NULL},
};

const struct cpu_tier *const cpu_tiers = tiers;
