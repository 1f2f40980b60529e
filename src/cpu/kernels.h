// SPDX-License-Identifier: MIT
// kernels.h: the table of micro-kernels. They see pointers, counts and strides only. ukr/*.c fill every slot with portable C;
// each tier of instructions the machine has (arm/, x86/) then overwrites the slots it does better (kernel_table.c). Two tables
// exist: the best one, and the portable one that ggml_backend_cpu_set_use_ref asks for.
//
// Rules of a slot: n >= 0; any alignment; x and y may be the same pointer as the result where the comment says "in place", and
// do not overlap otherwise. A tier may not change vec_dot_type: work memory is sized by it. What the portable table lacks no
// table has, so `supports` asks that one; a driver that runs takes its kernels from p->k alone.
#pragma once

#include "ggml-cpu.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef void (*cpu_row1_t)(int64_t n, float *y, const float *x);                 // y[i] = f(x[i]), in place
typedef void (*cpu_row2_t)(int64_t n, float *z, const float *x, const float *y); // z[i] = f(x[i], y[i]), in place

// nx times ny dot products at once: s[ix + iy * ld_s] = dot(row ix of x, row iy of y), 1 <= nx <= mr, 1 <= ny <= nr.
// x is of the slot's type, y of its vec_dot_type, both n elements a row, bx and by bytes from row to row.
#define CPU_TILE_ARGS int64_t n, float *s, int64_t ld_s, const void *vx, size_t bx, int nx, const void *vy, size_t by, int ny
typedef void (*cpu_tile_t)(CPU_TILE_ARGS);

struct cpu_tile {
    cpu_tile_t run; // NULL: use vec_dot
    int mr, nr;
};

// The table that a kernel is called from, for those that call others of it.
struct cpu_kernels;
#define CPU_TABLE const struct cpu_kernels *k __attribute__((unused))

// A product of columns too few to pay for packing rows of x: mr of them as they lie, bx bytes apart, with a panel of columns.
#define CPU_GEMM_ROWS_ARGS int64_t n, float *s, int64_t ld_s, const void *vx, size_t bx, const void *vy, int ny
struct cpu_gemm_rows {
    void (*run)(CPU_GEMM_ROWS_ARGS); // NULL: there is none
    int step;                        // n is a multiple of it
    int max_cols;                    // more pay for packing
};

// A product of many columns. Rows of x, of the slot's type, and columns of y, which are floats, are first brought into panels: a
// form the machine multiplies fast. What that costs is paid once for all panels of the other side. Panels of f32 are the same on
// every machine: element k of all rows (or columns) side by side, then element k + 1; callers may fill them themselves.
#define CPU_GEMM_ARGS int64_t n, float *s, int64_t ld_s, const void *vx, int nx, const void *vy, int ny
struct cpu_gemm {
    void (*pack_x)(int64_t n, void *panel, const void *x, size_t bx, int nx);         // 1 <= nx <= mr rows
    void (*pack_y)(CPU_TABLE, int64_t n, void *panel, const float *const *y, int ny); // 1 <= ny <= nr columns
    // s[ix + iy * ld_s] = dot(row ix, column iy) for the nx and ny that were packed; NULL: use tile
    void (*run)(CPU_GEMM_ARGS);
    int mr, nr;
    int min_cols;          // fewer do not pay for packing
    int step;              // a panel has whole steps of so many elements, n is rounded up ...
    size_t x_size, y_size; // ... and so many bytes for each ...
    size_t x_head, y_head; // ... after so many at its start
    struct cpu_gemm_rows rows;
};

#define CPU_GEMV_COLS 8

// A product of a few columns: rows of x, of the slot's type, as they lie, with one column in a form of its own.
struct cpu_gemv {
    void (*pack_y)(CPU_TABLE, int64_t n, void *panel, const float *y);
    // s[ix] = dot(row ix of x, the column); NULL: use tile
    void (*run)(int64_t n, float *s, const void *x, size_t bx, int nx, const void *y);
    // the same of ny columns, each with its s: 2 to CPU_GEMV_COLS; NULL: one after the other
    void (*run_cols)(int64_t n, float *const *s, const void *x, size_t bx, int nx, const void *const *y, int ny);
    int step;      // the form has whole steps of so many elements, n is rounded up ...
    size_t y_size; // ... and so many bytes for each
    int max_cols;  // more are faster another way; 0: they are not
};

#define CPU_MIX_ARGS int64_t d, float *y, int64_t ld_y, int ny, const float *w, int64_t ld_w, const float *x, int64_t ld_x, int n

struct cpu_kernels {
    // By type. from_float and vec_dot are what ggml_get_type_traits_cpu shows; NULL: not to be had for this type.
    struct ggml_type_traits_cpu traits[GGML_TYPE_COUNT];
    ggml_to_float_t to_float[GGML_TYPE_COUNT];
    struct cpu_tile tile[GGML_TYPE_COUNT];
    struct cpu_gemm gemm[GGML_TYPE_COUNT];
    struct cpu_gemv gemv[GGML_TYPE_COUNT];

    // Rows of two, in place
    cpu_row2_t add, sub, mul, div;
    cpu_row2_t silu_mul; // silu(x) y
    // Rows of one, in place
    cpu_row1_t exp, silu, gelu, gelu_quick, tanh, sigmoid;

    // Elements turned with their neighbours, in place: z[i] = x[i] c[i] + x[i ^ 1] s[i]; n is even
    void (*turn)(int64_t n, float *z, const float *x, const float *c, const float *s);
    // c = cos(x), s = sin(x) to a unit in the last place, however many turns x is; no two of the rows overlap
    void (*cos_sin)(int64_t n, float *c, float *s, const float *x);

    // Rows with scalars
    void (*scale)(int64_t n, float *y, const float *x, float s, float b); // y = x * s + b, in place
    void (*mad)(int64_t n, float *y, const float *x, float s);            // y += x * s
    void (*fill)(int64_t n, float *y, float v);

    // To one number
    double (*sum)(int64_t n, const float *x);
    double (*sum_sq)(int64_t n, const float *x);
    float (*max)(int64_t n, const float *x); // -inf for n = 0
    // y = exp(x - max), in place; returns the sum of y
    double (*exp_sum)(int64_t n, float *y, const float *x, float max);

    // Weighted rows: y[j] += sum over i of w[j][i] x[i], for ny rows of y and n of x, of d elements each, ld floats from row to
    // row. A row of x has no part in a row of y that gives it weight 0, whatever it holds.
    void (*mix)(CPU_MIX_ARGS);

    char tier[96]; // "portable" or the tiers that are in: "neon+dotprod"
};

extern struct cpu_kernels cpu_kernels_portable;
extern struct cpu_kernels cpu_kernels_best;

// Fills both tables; BERTH_CPU_ISA=<tier> stops at that tier ("portable": none) and logs the choice.
void cpu_kernels_init(void);

// The tier that filled a slot of cpu_kernels_best: cpu_slot_tier(CPU_SLOT(add)), cpu_slot_tier(CPU_SLOT(tile[type].run)).
#define CPU_SLOT(member) offsetof(struct cpu_kernels, member)
const char *cpu_slot_tier(size_t slot_off);

// Dot products count in int: `supports` asks whether a row's length is one, and what runs converts it by the other.
static inline bool cpu_dot_is_length(int64_t n) {
    return n >= 0 && n <= INT_MAX;
}
static inline int cpu_dot_length(int64_t n) {
    return cpu_dot_is_length(n) ? (int) n : 0;
}

// The parameters of a vec_dot, which ggml_vec_dot_t gives; all kernels multiply one row with one other.
#define CPU_DOT_ARGS \
    int n, float *restrict s, size_t bs __attribute__((unused)), const void *restrict vx, size_t bx __attribute__((unused)), \
        const void *restrict vy, size_t by __attribute__((unused)), int nrc __attribute__((unused))

// A tile that is not full, one dot product at a time.
static inline __attribute__((always_inline)) void cpu_tile_by_dot(ggml_vec_dot_t dot, CPU_TILE_ARGS) {
    for (int c = 0; c < ny; c++) {
        for (int r = 0; r < nx; r++) {
            dot(cpu_dot_length(n), s + r + c * ld_s, 0, (const char *) vx + (size_t) r * bx, 0,
                (const char *) vy + (size_t) c * by, 0, 1);
        }
    }
}

// ---- for tiers ----

// What the processor and the system together can run.
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

struct cpu_tier {
    const char *name;
    bool (*has)(void);                  // the machine and its system can run it
    void (*fill)(struct cpu_kernels *); // overwrites slots
};
// The tiers of this architecture from the oldest to the newest, ended by a NULL name. NULL for an architecture without any.
extern const struct cpu_tier *const cpu_tiers;

// A file <what>__<tier>.c ends with its filler, cpu_tier_<tier>_<what>. Where several tiers are made of one file, it names the
// filler CPU_TIER_FILL(what); CPU_TIER is defined for each file by its name (src/CMakeLists.txt).
#define CPU_TIER_NAME(tier, what) cpu_tier_##tier##_##what
#define CPU_TIER_OF(tier, what) CPU_TIER_NAME(tier, what)
#define CPU_TIER_FILL(what) CPU_TIER_OF(CPU_TIER, what)

// fill_<tier>, which runs the fillers of the files that FILES(X, tier) lists as X(tier, what), in that order.
#define CPU_TIER_DECLARE(tier, what) void cpu_tier_##tier##_##what(struct cpu_kernels *k);
#define CPU_TIER_CALL(tier, what) cpu_tier_##tier##_##what(k);
#define CPU_TIER_FILES(tier, FILES) \
    FILES(CPU_TIER_DECLARE, tier) \
    static void fill_##tier(struct cpu_kernels *k) { \
        FILES(CPU_TIER_CALL, tier) \
    }

// ---- portable kernels (ukr/), one filler a file ----

void cpu_ukr_vec(struct cpu_kernels *k);
void cpu_ukr_convert(struct cpu_kernels *k);
void cpu_ukr_dot(struct cpu_kernels *k);
