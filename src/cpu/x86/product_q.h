// SPDX-License-Identifier: MIT
// product_q.h: what products of panels (panel_q.h) with vectors of 8 lanes have in common, one vector for MR = 8 rows. The file
// that includes it has included panel_q.h.
#pragma once

// Four bytes of a column, or a float of it, for all rows.
UNPACK_INLINE __m256i quad_at(const char *at) {
    int32_t v;
    memcpy(&v, at, sizeof v);
    return _mm256_set1_epi32(v);
}

UNPACK_INLINE __m256 float_at(const char *at) {
    float v;
    memcpy(&v, at, sizeof v);
    return _mm256_set1_ps(v);
}

// The integers of one run, t, scaled and added; x and y are where the run begins.
UNPACK_INLINE void add_run(__m256 *sum, const __m256i *t, const char *x, const char *y, const bool has_min) {
    const __m256 scale = _mm256_loadu_ps((const float *) (const void *) x);
    _Pragma("GCC unroll 16") for (int c = 0; c < NR; c++) {
        sum[c] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(t[c]), _mm256_mul_ps(scale, float_at(y + 4 * (NR + c))), sum[c]);
        if (has_min) {
            sum[c] = _mm256_fmadd_ps(_mm256_loadu_ps((const float *) (const void *) x + MR), float_at(y + 4 * c), sum[c]);
        }
    }
}

UNPACK_INLINE void put_sums(float *s, int64_t ld_s, const __m256 *sum, int nx, int ny) {
    float tile[NR][MR];
    _Pragma("GCC unroll 16") for (int c = 0; c < NR; c++) {
        _mm256_storeu_ps(tile[c], sum[c]);
    }
    for (int c = 0; c < ny; c++) {
        memcpy(s + c * ld_s, tile[c], (size_t) nx * sizeof(float));
    }
}
