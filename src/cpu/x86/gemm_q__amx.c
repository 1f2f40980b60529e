// SPDX-License-Identifier: MIT
// gemm_q__amx.c: products of quantised rows with many columns by AMX tiles. One instruction multiplies a run (panel_q.h) of 32
// bytes of 16 columns with the same run of 16 rows. Vectors scale the integer results while the next run is multiplied. Formats
// with runs of 16 elements keep the kernels of gemm_q__vnni.c: half of a tile would be empty. The bytes of a run of a column are
// contiguous (Y_QUAD), because they are a row of a tile.

#define MR 32
#define NR 16
#define OFFSET_8BIT 128
#define Y_QUAD(j, c, R) (8 * NR + (c) * (R) + 4 * (j))

#include "cpu/x86/panel_q.h"
#include "cpu/x86/tiles.h"

#define K 32 // bytes of a run

// Tile numbers (sums, columns, rows) of even and odd runs. Intrinsics require constants.
#define EVEN 0, 1, 2
#define ODD 3, 4, 5

#define CONFIG(n_cols) \
    { \
        .palette = 1, .row_size = {64, K, 64, 64, K, 64}, .n_rows = { n_cols, n_cols, K / 4, n_cols, n_cols, K / 4 } \
    }
static const struct tile_config configs[4] = {CONFIG(4), CONFIG(8), CONFIG(12), CONFIG(16)};

UNPACK_INLINE __m512 floats_at(const char *at) {
    return _mm512_loadu_ps((const void *) at);
}

// Stores the integer sums at `to`. x: the bytes of 16 rows. y: the start of the run in the panel of columns.
#define MULTIPLY(tiles, to, x, y) MULTIPLY_BY(tiles, to, x, y)
#define MULTIPLY_BY(sums, columns, rows, to, x, y) \
    do { \
        _tile_zero(sums); \
        _tile_loadd(columns, (y) + 8 * NR, K); \
        _tile_loadd(rows, x, 4 * MR); \
        _tile_dpbsud(sums, columns, rows); \
        _tile_stored(sums, to, 64); \
    } while (0)

UNPACK_INLINE void add_run(
    __m512 *sum, const int32_t *t, __m512 scale, __m512 min, const char *y, const bool has_min, const int n_cols) {
    const float *d = (const float *) (const void *) y + NR, *sums = (const void *) y;
    const int32_t *initial = (const void *) y;
    _Pragma("GCC unroll 16") // without unrolling, the compiler keeps the sums in memory
        for (int c = 0; c < n_cols; c++) {
        __m512i v = _mm512_load_si512(t + 16 * c);
        if (!has_min) {
            v = _mm512_add_epi32(v, _mm512_set1_epi32(initial[c]));
        }
        sum[c] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(v), _mm512_mul_ps(scale, _mm512_set1_ps(d[c])), sum[c]);
        if (has_min) {
            sum[c] = _mm512_fmadd_ps(min, _mm512_set1_ps(sums[c]), sum[c]);
        }
    }
}

// Multiplies rows h .. h + 15 with n_cols columns, at least ny.
UNPACK_INLINE void rows16_run(int64_t n, float *s, int64_t ld_s, const char *x, int h, int nx, const char *y, int ny,
    const bool has_min, const int n_cols) {
    _Alignas(64) int32_t t[2][NR * 16];
    __m512 sum[NR];
    _Pragma("GCC unroll 16") for (int c = 0; c < n_cols; c++) {
        sum[c] = _mm512_setzero_ps();
    }
    const size_t bytes = 4 * (size_t) ((1 + has_min) * MR + h);
    MULTIPLY(EVEN, t[0], x + bytes, y);
    for (int64_t i = 0; i < n / K; i += 2) {
        const char *x1 = x + X_RUN(K, has_min), *y1 = y + Y_RUN(K);
        if (i + 1 < n / K) {
            MULTIPLY(ODD, t[1], x1 + bytes, y1);
        }
        add_run(sum, t[0], floats_at(x + 4 * h), floats_at(x + 4 * (MR + h)), y, has_min, n_cols);
        x += 2 * X_RUN(K, has_min);
        y += 2 * Y_RUN(K);
        if (i + 1 < n / K) {
            if (i + 2 < n / K) {
                MULTIPLY(EVEN, t[0], x + bytes, y);
            }
            add_run(sum, t[1], floats_at(x1 + 4 * h), floats_at(x1 + 4 * (MR + h)), y1, has_min, n_cols);
        }
    }
    const __mmask16 rows = (__mmask16) (nx < 16 ? (1u << nx) - 1 : 0xffff);
    _Pragma("GCC unroll 16") for (int c = 0; c < n_cols; c++) {
        if (c < ny) {
            _mm512_mask_storeu_ps(s + c * ld_s, rows, sum[c]);
        }
    }
}

UNPACK_INLINE void product(int64_t n, float *s, int64_t ld_s, const char *x, int nx, const char *y, int ny, const int R,
    const bool has_min, const bool is_8bit) {
    (void) R, (void) is_8bit; // all bytes of x are unsigned here
    struct tile_config saved;
    tiles_begin(&saved, &configs[(ny - 1) / 4]);
    for (int h = 0; h < nx; h += 16) { // the last panel of columns may have few columns
        if (ny > 12) {
            rows16_run(n, s + h, ld_s, x, h, nx - h, y, ny, has_min, 16);
        } else if (ny > 8) {
            rows16_run(n, s + h, ld_s, x, h, nx - h, y, ny, has_min, 12);
        } else if (ny > 4) {
            rows16_run(n, s + h, ld_s, x, h, nx - h, y, ny, has_min, 8);
        } else {
            rows16_run(n, s + h, ld_s, x, h, nx - h, y, ny, has_min, 4);
        }
    }
    tiles_end(&saved);
}

GEMM_Q_RUN(8bit, K, false, true)
GEMM_Q_RUN(32, K, false, false)
GEMM_Q_RUN(32_min, K, true, false)

void cpu_tier_amx_gemm_q(struct cpu_kernels *k) {
    const struct panel_runs runs = {.run_8bit = run_8bit, .run_32 = run_32, .run_32_min = run_32_min};
    struct cpu_gemm kept[GGML_TYPE_COUNT];
    memcpy(kept, k->gemm, sizeof kept);
    gemm_q_fill(k, &runs);
    for (int type = 0; type < GGML_TYPE_COUNT; type++) {
        if (k->gemm[type].run == NULL) {
            k->gemm[type] = kept[type];
        }
    }
}
