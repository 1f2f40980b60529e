// SPDX-License-Identifier: MIT
// gemm.h: MUL_MAT with many columns (kernels.h: cpu_gemm) or few columns (kernels.h: cpu_gemv). A column is a row of src[1]. The
// choice of the method depends on types and shapes only, never on the number of tasks. With batch invariance, the table of kernels
// makes it independent of the number of columns (kernel_table.c).
#pragma once

#include "cpu/cpu.h"

// op[i, j] = dot(row i of a, row j of b). Several batches of b may share a batch of a.
struct cpu_gemm_call {
    const struct ggml_tensor *op;
    const struct ggml_tensor *a; // dense rows; f32: also transposed rows
    const struct ggml_tensor *b; // f32 with dense or transposed rows
    char *work;                  // cpu_gemm_work_size() bytes
};

bool cpu_gemm_takes(const struct cpu_kernels *k, const struct ggml_tensor *op); // for MUL_MAT
bool cpu_gemm_takes_transposed(
    const struct cpu_kernels *k, const struct ggml_tensor *op); // for OUT_PROD, which converts its sources to f32
size_t cpu_gemm_work_size(const struct cpu_kernels *k, enum ggml_type type_a, const struct ggml_tensor *b, int n_tasks);
void cpu_gemm_run(const struct cpu_params *p, const struct cpu_gemm_call *call);

// Fills panels of `side` rows and `size` bytes each from n_rows transposed rows of n floats. The elements i of all rows are
// adjacent. The elements i + 1 start `step` bytes later. All panels are filled together, so that each cache line is read once.
void cpu_gemm_pack_transposed(int64_t n, char *panels, size_t size, int side, const char *rows, size_t step, int64_t n_rows);

bool cpu_gemv_takes(const struct cpu_kernels *k, const struct ggml_tensor *op); // used if cpu_gemm_takes is false
size_t cpu_gemv_work_size(const struct ggml_tensor *op);
void cpu_gemv_run(const struct cpu_params *p, struct ggml_tensor *op);
// Multiplies nx rows with ny packed columns, at most CPU_GEMV_COLS. s[iy]: results of column y[iy].
void cpu_gemv_columns(
    const struct cpu_gemv *g, int64_t n, float *const *s, const void *x, size_t bx, int nx, const void *const *y, int ny);

// ---- sizes of panels and columns, rounded up to cache lines ----

#define CPU_GEMM_X_PANELS 4 // maximum panels of rows per item (L2 cache)
#define CPU_GEMM_MR 32      // maximum rows of a panel
#define CPU_GEMM_NR 32      // maximum columns of a panel

static inline size_t cpu_gemm_x_size(const struct cpu_gemm *g, int64_t n) {
    return cpu_gemm_lines(g->x_head + (size_t) ((n + g->step - 1) / g->step) * g->x_size);
}
static inline size_t cpu_gemm_y_size(const struct cpu_gemm *g, int64_t n) {
    return cpu_gemm_lines(g->y_head + (size_t) ((n + g->step - 1) / g->step) * g->y_size);
}
// True if rows of n elements are not packed for n_cols columns (kernels.h: cpu_gemm_rows).
static inline bool cpu_gemm_has_rows(const struct cpu_gemm *g, int64_t n, int64_t n_cols) {
    return g->rows.run != NULL && n % g->rows.step == 0 && n_cols <= g->rows.max_cols;
}
// Returns how many of n_left panels of columns are multiplied with unpacked rows at a time.
static inline int64_t cpu_gemm_rows_panels(const struct cpu_gemm *g, int64_t n_left) {
    return n_left < g->rows.n_panels ? n_left : g->rows.n_panels;
}
static inline size_t cpu_gemv_y_size(const struct cpu_gemv *g, int64_t n) {
    return cpu_gemm_lines((size_t) ((n + g->step - 1) / g->step) * g->y_size);
}

// Packs this task's share of the rows of b. `columns` receives the packed columns of all tasks.
void cpu_gemv_pack(const struct cpu_params *p, const struct ggml_tensor *b, const struct cpu_gemv *g, char *columns);
