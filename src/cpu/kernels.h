// SPDX-License-Identifier: MIT
// kernels.h: the table of micro-kernels. Kernels see pointers, counts and strides only.
// Terms: slot: an entry of the table, a function pointer or a number; tier: an instruction set level (arm/, x86/).
// ukr/*.c fill the slots with portable C. The optional slots tile, gemm and gemv stay NULL there. Each supported tier then
// overwrites the slots that it improves (kernel_table.c). There are three tables: best, portable, and invariant. The portable table
// is for ggml_backend_cpu_set_use_ref. The invariant table is for berth_cpu_set_batch_invariant: it has the slots of the best
// table, less those that depend on the number of columns.
//
// Rules for kernels: n >= 0. Pointers may have any alignment. If the comment says "in place", the result may be x or y.
// Otherwise, the result does not overlap x and y. A tier must not change vec_dot_type: the size of work memory depends on
// vec_dot_type. If a conversion or vec_dot is NULL in the portable table, the slot is NULL in both tables. So `supports`
// functions check the portable table. The `run` function of an op uses the kernels of p->k only.
//
// Rules for gemm and gemv, for batch invariance: the result of a row and a column has the same bits, whatever the other rows and
// columns, their number, and the place of the column in its panel. gemm.rows.run gives the bits of gemm.run. The f16 kernels of ARM
// hold these rules only for columns that pack_y packed with the invariant table.
#pragma once

#include "ggml-cpu.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef void (*cpu_row1_t)(int64_t n, float *y, const float *x);                 // y[i] = f(x[i]), in place
typedef void (*cpu_row2_t)(int64_t n, float *z, const float *x, const float *y); // z[i] = f(x[i], y[i]), in place

// nx times ny dot products: s[ix + iy * ld_s] = dot(row ix of x, row iy of y), 1 <= nx <= mr, 1 <= ny <= nr. x has the slot's
// type, y the vec_dot_type. Rows have n elements and are bx and by bytes apart.
#define CPU_TILE_ARGS int64_t n, float *s, int64_t ld_s, const void *vx, size_t bx, int nx, const void *vy, size_t by, int ny
typedef void (*cpu_tile_t)(CPU_TILE_ARGS);

struct cpu_tile {
    cpu_tile_t run; // NULL: use vec_dot
    int mr, nr;     // maximum nx and ny
};

struct cpu_kernels;
#define CPU_TABLE const struct cpu_kernels *k __attribute__((unused))

// Panels start at multiples of a cache line.
#define CPU_GEMM_LINE 64
static inline size_t cpu_gemm_lines(size_t size) {
    return (size + CPU_GEMM_LINE - 1) / CPU_GEMM_LINE * CPU_GEMM_LINE;
}

// A product with few columns, for which packing the rows of x costs more than it saves. mr unpacked rows, bx bytes apart, are
// multiplied with ny columns in adjacent panels (struct cpu_gemm), each padded to whole cache lines.
#define CPU_GEMM_ROWS_ARGS int64_t n, float *s, int64_t ld_s, const void *vx, size_t bx, const void *vy, int ny
struct cpu_gemm_rows {
    void (*run)(CPU_GEMM_ROWS_ARGS); // NULL: not implemented
    int step;                        // n must be a multiple of step
    int max_cols;                    // with more columns, packing the rows is faster
    int n_panels;                    // maximum panels of columns
};

// A product with many columns. The rows of x have the slot's type, the columns of y are floats. Both are packed into panels.
// Panels of f32 have the same layout on every machine: element k of all rows (or columns), then element k + 1. So callers may
// fill f32 panels directly. A panel of columns without a head (y_head is 0) may be packed in parts that are multiples of step.
#define CPU_GEMM_ARGS int64_t n, float *s, int64_t ld_s, const void *vx, int nx, const void *vy, int ny
struct cpu_gemm {
    void (*pack_x)(int64_t n, void *panel, const void *x, size_t bx, int nx);         // 1 <= nx <= mr rows
    void (*pack_y)(CPU_TABLE, int64_t n, void *panel, const float *const *y, int ny); // 1 <= ny <= nr columns
    // s[ix + iy * ld_s] = dot(row ix, column iy) for the nx rows and ny columns that were packed; NULL: use tile.
    void (*run)(CPU_GEMM_ARGS);
    int mr, nr;            // maximum rows and columns of a panel
    int min_cols;          // with fewer columns, other kernels are faster
    int step;              // elements; a panel holds n rounded up to a multiple of step
    size_t x_size, y_size; // bytes of a panel per step
    size_t x_head, y_head; // bytes at the start of a panel, before the steps
    struct cpu_gemm_rows rows;
};

#define CPU_GEMV_COLS 16

// A product with few columns. The rows of x have the slot's type and are not packed. Each column is packed separately.
struct cpu_gemv {
    void (*pack_y)(CPU_TABLE, int64_t n, void *panel, const float *y);
    // s[ix] = dot(row ix of x, the column); NULL: use tile.
    void (*run)(int64_t n, float *s, const void *x, size_t bx, int nx, const void *y);
    // The same with ny columns, 2 to CPU_GEMV_COLS, each with its own s; NULL: call run for each column.
    void (*run_cols)(int64_t n, float *const *s, const void *x, size_t bx, int nx, const void *const *y, int ny);
    int step;      // elements; a packed column holds n rounded up to a multiple of step
    size_t y_size; // bytes of a packed column per step
    int max_cols;  // with more columns, other kernels are faster; 0: no limit
    // As run, but gives the bits of the type's gemm.run; NULL: not implemented. For batch invariance.
    void (*run_invariant)(int64_t n, float *s, const void *x, size_t bx, int nx, const void *y);
};

#define CPU_MIX_ARGS int64_t d, float *y, int64_t ld_y, int ny, const float *w, int64_t ld_w, const float *x, int64_t ld_x, int n

struct cpu_kernels {
    // Indexed by type. from_float and vec_dot are those of ggml_get_type_traits_cpu; NULL: unavailable for this type.
    struct ggml_type_traits_cpu traits[GGML_TYPE_COUNT];
    ggml_to_float_t to_float[GGML_TYPE_COUNT];
    struct cpu_tile tile[GGML_TYPE_COUNT];
    struct cpu_gemm gemm[GGML_TYPE_COUNT];
    struct cpu_gemv gemv[GGML_TYPE_COUNT];

    // Two rows, in place
    cpu_row2_t add, sub, mul, div;
    cpu_row2_t silu_mul; // silu(x) y
    // One row, in place
    cpu_row1_t exp, silu, gelu, gelu_quick, tanh, sigmoid;

    // Rotates pairs of neighbours (RoPE), in place: z[i] = x[i] c[i] + x[i ^ 1] s[i]; n is even
    void (*rotate)(int64_t n, float *z, const float *x, const float *c, const float *s);
    // c = cos(x), s = sin(x), with an error of at most one unit in the last place for any x; the rows do not overlap
    void (*cos_sin)(int64_t n, float *c, float *s, const float *x);

    // Rows with scalars
    void (*scale)(int64_t n, float *y, const float *x, float s, float b); // y = x * s + b, in place
    void (*mad)(int64_t n, float *y, const float *x, float s);            // y += x * s
    void (*fill)(int64_t n, float *y, float v);

    // Reductions
    double (*sum)(int64_t n, const float *x);
    double (*sum_sq)(int64_t n, const float *x);
    float (*max)(int64_t n, const float *x); // -inf for n = 0
    // y = exp(x - max), in place; returns the sum of y
    double (*exp_sum)(int64_t n, float *y, const float *x, float max);

    // Weighted sums of rows: y[j] += sum over i of w[j][i] x[i], for ny rows of y and n rows of x, of d elements each; ld_*: floats
    // between rows. A row of x with weight 0 does not affect that row of y, even if it contains NaN or infinity.
    void (*mix)(CPU_MIX_ARGS);

    char tier[96]; // "portable", or the tiers that filled slots: "neon+dotprod"
    // true: the method of an op must depend on types and layouts only, never on the number of columns, tokens or sequences
    bool is_invariant;
};

extern struct cpu_kernels cpu_kernels_portable;
extern struct cpu_kernels cpu_kernels_best;
extern struct cpu_kernels cpu_kernels_invariant;

// The default of berth_cpu_set_batch_invariant: true if BERTH_CPU_BATCH_INVARIANT=1 is in the environment.
extern bool cpu_batch_invariant_default;

// Fills all tables. BERTH_CPU_ISA=<tier> stops at that tier ("portable": none) and logs the choice.
void cpu_kernels_init(void);

// Returns the tier that filled a slot of cpu_kernels_best, for example cpu_slot_tier(CPU_SLOT(add)).
#define CPU_SLOT(member) offsetof(struct cpu_kernels, member)
const char *cpu_slot_tier(size_t slot_off);

// Dot products count elements in int. `supports` functions check row lengths with cpu_dot_is_length.
static inline bool cpu_dot_is_length(int64_t n) {
    return n >= 0 && n <= INT_MAX;
}
static inline int cpu_dot_length(int64_t n) {
    return cpu_dot_is_length(n) ? (int) n : 0;
}

// The parameters of ggml_vec_dot_t. All kernels multiply one row of x with one row of y (nrc = 1).
#define CPU_DOT_ARGS \
    int n, float *restrict s, size_t bs __attribute__((unused)), const void *restrict vx, size_t bx __attribute__((unused)), \
        const void *restrict vy, size_t by __attribute__((unused)), int nrc __attribute__((unused))

// For tiles with fewer rows or columns than a tile kernel requires.
static inline __attribute__((always_inline)) void cpu_tile_by_dot(ggml_vec_dot_t dot, CPU_TILE_ARGS) {
    for (int c = 0; c < ny; c++) {
        for (int r = 0; r < nx; r++) {
            dot(cpu_dot_length(n), s + r + c * ld_s, 0, (const char *) vx + (size_t) r * bx, 0,
                (const char *) vy + (size_t) c * by, 0, 1);
        }
    }
}

// ---- for tiers ----

// Instruction sets that both the processor and the operating system support.
struct cpu_features {
    // arm
    bool neon, arm_fma, fp16_va, fhm, dotprod, i8mm, bf16, sve, sve2, sme, sme2;
    int sve_bytes; // vector length in bytes; 0 without SVE
    // x86: set only if the system saves the registers
    bool sse3, ssse3, sse42, avx, f16c, fma, avx2, bmi2, avx_vnni, avx512, avx512_vbmi, avx512_vnni, avx512_bf16, amx_int8,
        amx_bf16;
};

// Thread-safe.
const struct cpu_features *cpu_features(void);

struct cpu_tier {
    const char *name;
    bool (*has)(void);                  // true if the processor and the operating system support the tier
    void (*fill)(struct cpu_kernels *); // overwrites slots
};
// The tiers of this architecture, oldest first, ended by a NULL name. NULL for an architecture without tiers.
extern const struct cpu_tier *const cpu_tiers;

// The fill function of <what>__<tier>.c is cpu_tier_<tier>_<what>. A file that is compiled for several tiers uses
// CPU_TIER_FILL(what). src/CMakeLists.txt defines CPU_TIER from the file name.
#define CPU_TIER_NAME(tier, what) cpu_tier_##tier##_##what
#define CPU_TIER_OF(tier, what) CPU_TIER_NAME(tier, what)
#define CPU_TIER_FILL(what) CPU_TIER_OF(CPU_TIER, what)

// Defines fill_<tier>, which calls the fill functions that FILES(X, tier) lists as X(tier, what).
#define CPU_TIER_DECLARE(tier, what) void cpu_tier_##tier##_##what(struct cpu_kernels *k);
#define CPU_TIER_CALL(tier, what) cpu_tier_##tier##_##what(k);
#define CPU_TIER_FILES(tier, FILES) \
    FILES(CPU_TIER_DECLARE, tier) \
    static void fill_##tier(struct cpu_kernels *k) { \
        FILES(CPU_TIER_CALL, tier) \
    }

// ---- portable kernels (ukr/), one fill function per file ----

void cpu_ukr_vec(struct cpu_kernels *k);
void cpu_ukr_convert(struct cpu_kernels *k);
void cpu_ukr_dot(struct cpu_kernels *k);
