// SPDX-License-Identifier: MIT
// product_q512.h: what products of panels (panel_q.h) with vectors of 16 lanes have in common, two vectors for MR = 32 rows. The
// file that includes it has included panel_q.h.
#pragma once

#define EACH_COLUMN(c) _Pragma("GCC unroll 16") for (int c = 0; c < NR; c++)

// Four bytes of a column, or a float of it, for all rows.
UNPACK_INLINE __m512i quad_at(const char *at) {
    int32_t v;
    memcpy(&v, at, sizeof v);
    return _mm512_set1_epi32(v);
}

UNPACK_INLINE __m512 float_at(const char *at) {
    float v;
    memcpy(&v, at, sizeof v);
    return _mm512_set1_ps(v);
}

UNPACK_INLINE __m512 floats_at(const char *at) {
    return _mm512_loadu_ps((const void *) at);
}

// The integers of one run, t, scaled and added; x and y are where the run begins.
UNPACK_INLINE void add_run(__m512 sum[NR][2], __m512i t[NR][2], const char *x, const char *y, const bool has_min) {
    EACH_COLUMN(c) {
        const __m512 d = float_at(y + 4 * (NR + c));
        _Pragma("GCC unroll 2") for (int v = 0; v < 2; v++) {
            sum[c][v] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(t[c][v]), _mm512_mul_ps(floats_at(x + 64 * v), d), sum[c][v]);
            if (has_min) {
                sum[c][v] = _mm512_fmadd_ps(floats_at(x + 4 * MR + 64 * v), float_at(y + 4 * c), sum[c][v]);
            }
        }
    }
}

UNPACK_INLINE void put_sums(float *s, int64_t ld_s, __m512 sum[NR][2], int nx, int ny) {
    float tile[NR][MR];
    EACH_COLUMN(c) {
        _mm512_storeu_ps(tile[c], sum[c][0]);
        _mm512_storeu_ps(tile[c] + 16, sum[c][1]);
    }
    for (int c = 0; c < ny; c++) {
        memcpy(s + c * ld_s, tile[c], (size_t) nx * sizeof(float));
    }
}
