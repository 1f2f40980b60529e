// SPDX-License-Identifier: MIT
// gemm_q__vnni.c: products of quantised rows with many columns, in tiles of 32 rows by 6 columns, by VPDPBUSD. VPDPBUSD multiplies
// four bytes of each of 16 rows with four bytes of a column, repeated in all lanes, and adds the products. It has a latency of 5
// cycles, and two start per cycle, so the twelve vectors of sums hide the latency. The tier avxvnni, for processors without
// AVX-512, uses 8 rows and vectors of 8 lanes.

#ifdef __AVX512F__
#    define MR 32
#    define DOT_QUADS _mm512_dpbusd_epi32
#else
#    define MR 8
#    define DOT_QUADS _mm256_dpbusd_avx_epi32
#endif
#define NR 6
#define MIN_COLS 14 // on a busy machine, 16 columns of gemv_q.h took up to 15% longer than 17 columns of panels
#define OFFSET_8BIT 128

#include "cpu/x86/panel_q.h"
#include "cpu/x86/product_q.h"

UNPACK_INLINE void run_multiply(
    VI t[NR][VECS], const char *x, const char *y, const int R, const bool has_min, const bool is_8bit, const int n_cols) {
    (void) has_min, (void) is_8bit; // all bytes of x are unsigned in this tier, also those of 8 bits
    for (int j = 0; j < R / 4; j++, x += 4 * MR, y += 4 * NR) {
        VI rows[VECS];
        EACH_VEC(v) {
            rows[v] = VI_LOAD(x + 4 * V_LANES * v);
        }
        EACH_COLUMN(c) {
            const VI q = quad_at(y + 4 * c);
            EACH_VEC(v) {
                t[c][v] = DOT_QUADS(t[c][v], rows[v], q);
            }
        }
    }
}

GEMM_Q_TIER(CPU_TIER_FILL(gemm_q))
