// SPDX-License-Identifier: MIT
// gemm.h: the ways of MUL_MAT other than plain tiles (matmul.c): many columns through panels (kernels.h:cpu_gemm), and few
// columns each in a form of its own (kernels.h:cpu_gemv). Which way a product goes depends on types and shapes only, never on
// tasks.
#pragma once

#include "cpu/cpu.h"

// op[i, j] = dot(row i of a, row j of b), batches of a shared by those of b.
struct cpu_gemm_call {
    const struct ggml_tensor *op;
    const struct ggml_tensor *a; // rows without holes, or f32 with rows next to each other (nb[1] is that of an element)
    const struct ggml_tensor *b; // f32, likewise
    char *work;                  // cpu_gemm_work_size() bytes
};

bool cpu_gemm_takes(const struct cpu_kernels *k, const struct ggml_tensor *op);        // MUL_MAT
bool cpu_gemm_takes_across(const struct cpu_kernels *k, const struct ggml_tensor *op); // a result of sources of f32
size_t cpu_gemm_work_size(enum ggml_type type_a, const struct ggml_tensor *b, int n_tasks);
void cpu_gemm_run(const struct cpu_params *p, const struct cpu_gemm_call *call);

// Panels of rows that lie next to each other: element i of all of them side by side, which is how panels of f32 are on every
// machine (kernels.h). Several panels, of `size` bytes each, at a time, so that a line of memory is read to its end once.
void cpu_gemm_pack_across(int64_t n, char *panels, size_t size, int side, const char *rows, size_t step, int64_t n_rows);

bool cpu_gemv_takes(const struct cpu_kernels *k, const struct ggml_tensor *op); // asked after the former
size_t cpu_gemv_work_size(const struct ggml_tensor *op);
void cpu_gemv_run(const struct cpu_params *p, struct ggml_tensor *op);
// nx rows times ny columns, at most CPU_GEMV_COLS, each in its form and with its result.
void cpu_gemv_columns(
    const struct cpu_gemv *g, int64_t n, float *const *s, const void *x, size_t bx, int nx, const void *const *y, int ny);

// ---- memory of panels and columns, in whole lines of the cache ----

#define CPU_GEMM_LINE 64
#define CPU_GEMM_X_PANELS 4 // of rows, which stay in the second cache while a panel of columns stays in the first
#define CPU_GEMM_MR 32      // rows and ...
#define CPU_GEMM_NR 32      // ... columns that a panel can have

static inline size_t cpu_gemm_lines(size_t size) {
    return (size + CPU_GEMM_LINE - 1) / CPU_GEMM_LINE * CPU_GEMM_LINE;
}
static inline size_t cpu_gemm_x_size(const struct cpu_gemm *g, int64_t n) {
    return cpu_gemm_lines(g->x_head + (size_t) ((n + g->step - 1) / g->step) * g->x_size);
}
static inline size_t cpu_gemm_y_size(const struct cpu_gemm *g, int64_t n) {
    return cpu_gemm_lines(g->y_head + (size_t) ((n + g->step - 1) / g->step) * g->y_size);
}
// Are rows of n elements taken as they lie, for so many columns?
static inline bool cpu_gemm_has_rows(const struct cpu_gemm *g, int64_t n, int64_t n_cols) {
    return g->rows.run != NULL && n % g->rows.step == 0 && n_cols <= g->rows.max_cols;
}
static inline size_t cpu_gemv_y_size(const struct cpu_gemv *g, int64_t n) {
    return cpu_gemm_lines((size_t) ((n + g->step - 1) / g->step) * g->y_size);
}

// All rows of b in the form gemv takes, one after the other: this task's share of it.
void cpu_gemv_pack(const struct cpu_params *p, const struct ggml_tensor *b, const struct cpu_gemv *g, char *columns);
