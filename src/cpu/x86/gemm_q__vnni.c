// SPDX-License-Identifier: MIT
// gemm_q__vnni.c: products of quantised rows with many columns, 32 rows times 6 columns: a vector holds four bytes of each of 16
// rows, which meet four bytes of a column, the same for all, in one instruction that multiplies and adds. Twelve sums of
// integers are enough to hide its latency (5 cycles, two a cycle).

#define MR 32
#define NR 6
#define MIN_COLS 5 // by_rows.h takes four at once
#define OFFSET_8BIT 128

#include "cpu/x86/panel_q.h"
#include "cpu/x86/product_q512.h"

UNPACK_INLINE void product(int64_t n, float *s, int64_t ld_s, const char *x, int nx, const char *y, int ny, const int R,
    const bool has_min, const bool is_8bit) {
    (void) is_8bit; // all bytes are unsigned here
    __m512 sum[NR][2];
    EACH_COLUMN(c) {
        sum[c][0] = sum[c][1] = _mm512_setzero_ps();
    }
    for (int64_t i = 0; i < n; i += R, x += X_RUN(R, has_min), y += Y_RUN(R)) {
        const char *xb = x + 4 * (1 + has_min) * MR, *yb = y + 4 * 2 * NR;
        __m512i t[NR][2];
        EACH_COLUMN(c) {
            t[c][0] = t[c][1] = has_min ? _mm512_setzero_si512() : quad_at(y + 4 * c);
        }
        for (int j = 0; j < R / 4; j++, xb += 4 * MR, yb += 4 * NR) {
            const __m512i x0 = _mm512_loadu_si512(xb), x1 = _mm512_loadu_si512(xb + 64);
            EACH_COLUMN(c) {
                const __m512i q = quad_at(yb + 4 * c);
                t[c][0] = _mm512_dpbusd_epi32(t[c][0], x0, q);
                t[c][1] = _mm512_dpbusd_epi32(t[c][1], x1, q);
            }
        }
        add_run(sum, t, x, y, has_min);
    }
    put_sums(s, ld_s, sum, nx, ny);
}

GEMM_Q_TIER(cpu_tier_vnni_gemm_q)
