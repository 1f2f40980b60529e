// SPDX-License-Identifier: MIT
// kernel_table.c: fills the kernel tables: portable C first, then every supported tier, oldest first. BERTH_CPU_ISA=<tier> omits
// later tiers; BERTH_CPU_ISA=portable omits all tiers. If BERTH_CPU_ISA is set, the tiers in use are logged. The invariant table is
// made from the best one.

#include "cpu/cpu.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct cpu_kernels cpu_kernels_portable;
struct cpu_kernels cpu_kernels_best;
struct cpu_kernels cpu_kernels_invariant;
bool cpu_batch_invariant_default;

#if !defined(__aarch64__) && !defined(__x86_64__)
const struct cpu_tier *const cpu_tiers = NULL;
#endif

// The last tier that filled each slot (word) of cpu_kernels_best; NULL: portable. A changed word shows that a tier filled the
// slot.
#define N_WORDS (CPU_SLOT(tier) / sizeof(uintptr_t))
static const char *filled_by[N_WORDS];

static void record_filled(const struct cpu_kernels *before, const struct cpu_kernels *after, const char *tier) {
    for (size_t i = 0; i < N_WORDS; i++) {
        const size_t off = i * sizeof(uintptr_t);
        if (memcmp((const char *) before + off, (const char *) after + off, sizeof(uintptr_t)) != 0) {
            filled_by[i] = tier;
        }
    }
}

const char *cpu_slot_tier(size_t slot_off) {
    const char *tier = slot_off / sizeof(uintptr_t) < N_WORDS ? filled_by[slot_off / sizeof(uintptr_t)] : NULL;
    return tier != NULL ? tier : "portable";
}

static void fill_portable(struct cpu_kernels *k) {
    cpu_ukr_vec(k);
    cpu_ukr_convert(k);
    cpu_ukr_dot(k);
    strcpy(k->tier, "portable");
}

// False for NULL.
static bool is_tier(const char *name) {
    for (const struct cpu_tier *t = cpu_tiers; name != NULL && t != NULL && t->name != NULL; t++) {
        if (strcmp(t->name, name) == 0) {
            return true;
        }
    }
    return false;
}

static void fill_tiers(struct cpu_kernels *k, const char *last) {
    size_t n = 0;
    for (const struct cpu_tier *t = cpu_tiers; t != NULL && t->name != NULL; t++) {
        if (t->has()) {
            const struct cpu_kernels before = *k;
            t->fill(k);
            record_filled(&before, k, t->name);
            const size_t len = strlen(t->name);
            if (n + len + 2 < sizeof k->tier) {
                n += (size_t) snprintf(k->tier + n, sizeof k->tier - n, "%s%s", n > 0 ? "+" : "", t->name);
            }
        } else if (last != NULL && strcmp(t->name, last) == 0) {
            shim_log(
                GGML_LOG_LEVEL_WARN, "BERTH_CPU_ISA=%s: this machine does not support the tier; using the older tiers", last);
        }
        if (last != NULL && strcmp(t->name, last) == 0) {
            break;
        }
    }
}

// Each type keeps one order of additions for any number of columns: that of gemm, otherwise of gemv column by column, otherwise of
// vec_dot. Tiles and run_cols are faster, but add in another order than vec_dot and run.
static void fill_invariant(struct cpu_kernels *k) {
    *k = cpu_kernels_best;
    k->is_invariant = true;
    for (int type = 0; type < GGML_TYPE_COUNT; type++) {
        k->tile[type] = (struct cpu_tile){0};
        k->gemv[type].max_cols = 0;
        k->gemv[type].run_cols = NULL;
        if (k->gemm[type].run != NULL && k->gemv[type].run_invariant != NULL) {
            k->gemv[type].run = k->gemv[type].run_invariant;
        } else if (k->gemm[type].run != NULL) {
            k->gemm[type].min_cols = 1;
            k->gemv[type] = (struct cpu_gemv){0};
        }
    }
}

void cpu_kernels_init(void) {
    fill_portable(&cpu_kernels_portable);
    cpu_kernels_best = cpu_kernels_portable;
    cpu_kernels_portable.is_invariant = true; // it has vec_dot only

    const char *invariant = getenv("BERTH_CPU_BATCH_INVARIANT");
    cpu_batch_invariant_default = invariant != NULL && strcmp(invariant, "1") == 0;
    const char *requested = getenv("BERTH_CPU_ISA");
    if (requested != NULL && requested[0] == '\0') {
        requested = NULL;
    }
    const bool portable = requested != NULL && strcmp(requested, "portable") == 0;
    if (requested != NULL && !portable && !is_tier(requested)) {
        shim_log(GGML_LOG_LEVEL_WARN, "BERTH_CPU_ISA=%s: unknown tier; using all tiers that this machine supports", requested);
        requested = NULL;
    }
    if (!portable) {
        fill_tiers(&cpu_kernels_best, requested);
    }
    fill_invariant(&cpu_kernels_invariant);
    if (requested != NULL) {
        shim_log(GGML_LOG_LEVEL_INFO, "BERTH_CPU_ISA=%s: using kernels %s", requested, cpu_kernels_best.tier);
    }
}

static void init_once(void) {
    cpu_optable_init();
    cpu_kernels_init();
}

void cpu_init(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, init_once);
}

void ggml_cpu_init(void) {
    cpu_init();
}

const struct ggml_type_traits_cpu *ggml_get_type_traits_cpu(enum ggml_type type) {
    cpu_init();
    return (unsigned) type < GGML_TYPE_COUNT ? &cpu_kernels_best.traits[type] : NULL;
}
