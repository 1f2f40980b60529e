// SPDX-License-Identifier: MIT
// gemv_q__avxvnni.c: products of rows in blocks of 32 elements with one column (column_q.h), by the VPDPBUSD of processors without
// AVX-512. Rows are read sequentially, 32 elements at a time. The unpacked bytes of a row are unsigned: they are larger than the
// value by an offset, which is 128 for elements of 8 bits.

#include "cpu/x86/ahead.h"
#include "cpu/x86/column_q.h"

#define OFFSET_8BIT 128

static const uint8_t order[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
PACK_OFFSET(offset_8bit, OFFSET_8BIT, order)
PACK_OFFSET(offset_8, 8, order)
PACK_OFFSET(offset_12, 12, order)
PACK_OFFSET(offset_16, 16, order)
PACK_SUMS(q8_1, order)

// ---- the rows ----

UNPACK_INLINE __m256i bytes_q8_0(const block_q8_0 *b) {
    return _mm256_xor_si256(unpack_q8_0(b), _mm256_set1_epi8((char) OFFSET_8BIT)); // adds 128
}
UNPACK_INLINE __m256i bytes_iq4_nl(const block_iq4_nl *b) {
    return _mm256_xor_si256(unpack_iq4_nl(b), _mm256_set1_epi8((char) OFFSET_8BIT));
}
UNPACK_INLINE __m256i bytes_q4_0(const block_q4_0 *b) {
    return nibbles(b->qs);
}
UNPACK_INLINE __m256i bytes_q4_1(const block_q4_1 *b) {
    return nibbles(b->qs);
}
UNPACK_INLINE __m256i bytes_q5_0(const block_q5_0 *b) {
    return _mm256_or_si256(nibbles(b->qs), _mm256_and_si256(bits32(b->qh), _mm256_set1_epi8(0x10)));
}
UNPACK_INLINE __m256i bytes_q5_1(const block_q5_1 *b) {
    return unpack_q5_1(b);
}
UNPACK_INLINE __m256i bytes_mxfp4(const block_mxfp4 *b) {
    static const int8_t above[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};
    return unpack_table(above, b->qs);
}

UNPACK_INLINE __m256i initial_at(const struct y_group *y, int j, const bool has_min) {
    return has_min ? _mm256_setzero_si256() : _mm256_zextsi128_si256(_mm_cvtsi32_si128(y->initial[j]));
}

#define GEMV(type, scales_of, has_min, mins_of, min_of) \
    static void gemv_##type(int64_t n, float *s, const void *vx, size_t bx, int nx, const void *vy) { \
        for (int r = 0; r < nx; r++) { \
            const block_##type *x = (const void *) ((const char *) vx + (size_t) r * bx); \
            const struct y_group *y = vy; \
            __m256 sum0 = _mm256_setzero_ps(), sum1 = sum0, mins = sum0; \
            int64_t i = 0; \
            for (; i + 8 <= n / 32; i += 8, x += 8, y++) { \
                float d[8]; \
                prefetch_ahead(x, 8 * sizeof *x); \
                _mm256_storeu_ps(d, _mm256_mul_ps(scales_of(x), _mm256_loadu_ps(y->scale))); \
                if (has_min) { \
                    mins = _mm256_fmadd_ps(mins_of(x), _mm256_loadu_ps(y->sum), mins); \
                } \
                for (int j = 0; j < 8; j += 2) { \
                    const __m256i a = \
                        _mm256_dpbusd_avx_epi32(initial_at(y, j, has_min), bytes_##type(&x[j]), load32(y->qs + 32 * j)); \
                    const __m256i b = _mm256_dpbusd_avx_epi32( \
                        initial_at(y, j + 1, has_min), bytes_##type(&x[j + 1]), load32(y->qs + 32 * j + 32)); \
                    sum0 = _mm256_fmadd_ps(_mm256_cvtepi32_ps(a), _mm256_broadcast_ss(&d[j]), sum0); \
                    sum1 = _mm256_fmadd_ps(_mm256_cvtepi32_ps(b), _mm256_broadcast_ss(&d[j + 1]), sum1); \
                } \
            } \
            float rest = 0.0f; \
            for (int j = 0; i < n / 32; i++, j++) { \
                const __m256i a = \
                    _mm256_dpbusd_avx_epi32(initial_at(y, j, has_min), bytes_##type(&x[j]), load32(y->qs + 32 * j)); \
                sum0 = _mm256_fmadd_ps(_mm256_cvtepi32_ps(a), _mm256_set1_ps(scale_##type(&x[j]) * y->scale[j]), sum0); \
                if (has_min) { \
                    rest += min_of(&x[j]) * y->sum[j]; \
                } \
            } \
            s[r] = sum8(_mm256_add_ps(_mm256_add_ps(sum0, sum1), mins)) + rest; \
        } \
    }
GEMV(q8_0, SCALES_F16, false, MINS_NONE, MIN_NONE)
GEMV(iq4_nl, SCALES_F16, false, MINS_NONE, MIN_NONE)
GEMV(q4_0, SCALES_F16, false, MINS_NONE, MIN_NONE)
GEMV(q5_0, SCALES_F16, false, MINS_NONE, MIN_NONE)
GEMV(mxfp4, SCALES_MXFP4, false, MINS_NONE, MIN_NONE)
GEMV(q4_1, SCALES_F16, true, MINS_F16, MIN_F16)
GEMV(q5_1, SCALES_F16, true, MINS_F16, MIN_F16)

void cpu_tier_avxvnni_gemv_q(struct cpu_kernels *k) {
#define ROW(TYPE, type, y) \
    k->gemv[GGML_TYPE_##TYPE] = \
        (struct cpu_gemv){.pack_y = pack_##y, .run = gemv_##type, .step = GROUP, .y_size = sizeof(struct y_group)};
    ROW(Q8_0, q8_0, offset_8bit)
    ROW(IQ4_NL, iq4_nl, offset_8bit)
    ROW(Q4_0, q4_0, offset_8)
    ROW(Q5_0, q5_0, offset_16)
    ROW(MXFP4, mxfp4, offset_12)
    ROW(Q4_1, q4_1, q8_1)
    ROW(Q5_1, q5_1, q8_1)
#undef ROW
}
