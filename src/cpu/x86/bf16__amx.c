// SPDX-License-Identifier: MIT
// bf16__amx.c: products of bf16 rows with several columns by AMX tiles. One instruction multiplies 32 elements of 16 rows with the
// same elements of 16 columns. A tile of rows is loaded from the rows themselves, so only columns are packed: in step k of a panel
// are the pairs of elements 32 k, 32 k + 1 of all columns, then the next pairs. A tile has as many columns as there are, so missing
// columns are not packed.

#include "base/min.h"
#include "cpu/kernels.h"
#include "cpu/x86/tiles.h"

#include <string.h>

#define MR 32
#define NR 32
#define K 32        // elements of a step
#define X_STEP 64   // bytes of a row in a step
#define Y_PAIRS 128 // bytes of a pair of elements of NR columns
#define Y_STEP (K / 2 * Y_PAIRS)
#define FAR 1024   // prefetch distance in bytes
#define MIN_COLS 5 // with fewer columns, the tiles of dot_f.h are faster, because they read fewer rows at the same time

// Tile numbers. Intrinsics require constants.
#define SUMS_00 0 // rows 0 to 15, columns 0 to 15
#define SUMS_01 1 // rows 0 to 15, columns 16 to 31
#define SUMS_10 2
#define SUMS_11 3
#define ROWS_0 4
#define ROWS_1 5
#define COLS_0 6
#define COLS_1 7

// Rows become contiguous, with zeros after the last element. Missing rows are zeros.
static void pack_x(int64_t n, void *panel, const void *x, size_t bx, int nx) {
    const size_t size = 2 * (size_t) n, padded = (size_t) ((n + K - 1) / K) * X_STEP;
    for (int r = 0; r < MR; r++) {
        char *to = (char *) panel + (size_t) r * padded;
        const size_t used = r < nx ? size : 0;
        if (r < nx) {
            memcpy(to, (const char *) x + (size_t) r * bx, size);
        }
        memset(to + used, 0, padded - used);
    }
}

static void pack_y(CPU_TABLE, int64_t n, void *panel, const float *const *y, int ny) {
    for (int c = 0; c < ny; c++) {
        char *to = (char *) panel + 4 * c;
        for (int64_t i = 0; i < n; i += K, to += Y_STEP) {
            uint16_t v[K] = {0};
            k->traits[GGML_TYPE_BF16].from_float(y[c] + i, v, n - i < K ? n - i : K);
            for (int j = 0; j < K / 2; j++) {
                memcpy(to + j * Y_PAIRS, v + 2 * j, 4);
            }
        }
    }
}

// Multiplies MR rows, of which nx are stored. has_more: there are more than 16 columns.
static inline __attribute__((always_inline)) void product(
    int64_t n, float *s, int64_t ld_s, const char *x, size_t bx, int nx, const char *y, int ny, const bool has_more) {
    const uint16_t size_0 = (uint16_t) (4 * min_int(ny, 16)), size_1 = (uint16_t) (4 * (has_more ? ny - 16 : 1));
    const struct tile_config config = {.palette = 1,
        .row_size = {size_0, size_1, size_0, size_1, X_STEP, X_STEP, size_0, size_1},
        .n_rows = {16, 16, 16, 16, 16, 16, K / 2, K / 2}};
    struct tile_config saved;
    float sums[MR][NR];
    tiles_begin(&saved, &config);
    _tile_zero(SUMS_00);
    _tile_zero(SUMS_01);
    _tile_zero(SUMS_10);
    _tile_zero(SUMS_11);
    const int64_t end = (n + K - 1) / K * X_STEP;
    for (int64_t at = 0; at < end; at += X_STEP, y += Y_STEP) {
        // In L2, because rows whose distance is a power of 2 share few sets of L1. After the end of the rows, the next MR rows.
        const char *far = x + (at + FAR < end ? at + FAR : at + FAR - end + MR * (int64_t) bx);
        for (int r = 0; r < MR; r++) {
            _mm_prefetch(far + (size_t) r * bx, _MM_HINT_T1);
        }
        _tile_loadd(COLS_0, y, Y_PAIRS);
        _tile_loadd(ROWS_0, x + at, bx);
        _tile_dpbf16ps(SUMS_00, ROWS_0, COLS_0);
        _tile_loadd(ROWS_1, x + 16 * bx + at, bx);
        _tile_dpbf16ps(SUMS_10, ROWS_1, COLS_0);
        if (has_more) {
            _tile_loadd(COLS_1, y + 64, Y_PAIRS);
            _tile_dpbf16ps(SUMS_01, ROWS_0, COLS_1);
            _tile_dpbf16ps(SUMS_11, ROWS_1, COLS_1);
        }
    }
    _tile_stored(SUMS_00, sums[0], sizeof sums[0]);
    _tile_stored(SUMS_10, sums[16], sizeof sums[0]);
    if (has_more) {
        _tile_stored(SUMS_01, sums[0] + 16, sizeof sums[0]);
        _tile_stored(SUMS_11, sums[16] + 16, sizeof sums[0]);
    }
    tiles_end(&saved);
    for (int c = 0; c < ny; c++) {
        for (int r = 0; r < nx; r++) {
            s[r + c * ld_s] = sums[r][c];
        }
    }
}

static void rows_of(int64_t n, float *s, int64_t ld_s, const char *x, size_t bx, int nx, const char *y, int ny) {
    if (ny > 16) {
        product(n, s, ld_s, x, bx, nx, y, ny, true);
    } else {
        product(n, s, ld_s, x, bx, nx, y, ny, false);
    }
}

static void rows_run(CPU_GEMM_ROWS_ARGS) {
    rows_of(n, s, ld_s, vx, bx, MR, vy, ny);
}

static void panels_run(CPU_GEMM_ARGS) {
    rows_of(n, s, ld_s, vx, (size_t) ((n + K - 1) / K) * X_STEP, nx, vy, ny);
}

void cpu_tier_amx_bf16(struct cpu_kernels *k) {
    k->gemm[GGML_TYPE_BF16] = (struct cpu_gemm){.pack_x = pack_x,
        .pack_y = pack_y,
        .run = panels_run,
        .mr = MR,
        .nr = NR,
        .min_cols = MIN_COLS,
        .step = K,
        .x_size = MR * X_STEP,
        .y_size = Y_STEP,
        .rows = {rows_run, K, INT_MAX, 1}};
}
