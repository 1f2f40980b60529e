// SPDX-License-Identifier: MIT
// gemv_q__avx2.c: products of rows in blocks of 32 elements with a few columns. A row is unpacked once for all columns. Term:
// pair: two blocks of nibbles, one in each half of a vector. VPMADDUBSW requires one unsigned operand:
//   most formats: bytes of a row have an offset, which the column corrects (y_pairs.initial)
//   iq4_nl: bytes of a row times the signs of the column are multiplied with magnitudes of the column
//   q8_0: magnitudes of a row are multiplied with the column times the signs of the row; a byte of a row may be -128

#include "cpu/x86/by_rows.h"
#include "cpu/x86/column_q.h"

// 8 blocks of a column. A pair: the first 16 bytes of both blocks, then the last 16 bytes.
struct y_pairs {
    float scale[8];
    float sum[8]; // multiplied with the minima
    union {
        int32_t initial[4][8];    // -offset * sum of y, per lane
        uint8_t magnitude[GROUP]; // for iq4_nl: the magnitudes of qs
    };
    int8_t qs[GROUP];
};

// ---- the column ----

enum form { PLAIN, PAIRS, PAIRS_SIGNED }; // q8_0; pairs with `initial`; pairs with `magnitude`

UNPACK_INLINE void store_bytes(
    struct y_pairs *to, const int8_t *even, const int8_t *odd, int j, const enum form form, int offset) {
    const __m256i a = load32(even), b = load32(odd), ones = _mm256_set1_epi8(1);
    const __m256i low = _mm256_permute2x128_si256(a, b, 0x20), high = _mm256_permute2x128_si256(a, b, 0x31);
    _mm256_storeu_si256((void *) (to->qs + 64 * j), form == PLAIN ? a : low);
    _mm256_storeu_si256((void *) (to->qs + 64 * j + 32), form == PLAIN ? b : high);
    if (form == PAIRS_SIGNED) {
        _mm256_storeu_si256((void *) (to->magnitude + 64 * j), _mm256_abs_epi8(low));
        _mm256_storeu_si256((void *) (to->magnitude + 64 * j + 32), _mm256_abs_epi8(high));
    } else if (form == PAIRS) {
        const __m256i sums = _mm256_add_epi16(_mm256_maddubs_epi16(ones, low), _mm256_maddubs_epi16(ones, high));
        _mm256_storeu_si256((void *) to->initial[j], _mm256_madd_epi16(sums, _mm256_set1_epi16((short) -offset)));
    }
}

#define PACK_COLUMN(name, block, TYPE, form, offset, sum_of) \
    static void pack_##name(CPU_TABLE, int64_t n, void *panel, const float *y) { \
        struct y_pairs *to = panel; \
        for (int64_t i = 0; i < n; i += GROUP, to++) { \
            const int m = n - i < GROUP ? (int) (n - i) : GROUP; \
            block b[8]; \
            memset(b, 0, sizeof b); \
            k->traits[TYPE].from_float(y + i, b, m); \
            for (int j = 0; j < 8; j++) { \
                to->scale[j] = f16_as_float(&b[j].d); \
                to->sum[j] = sum_of; \
            } \
            for (int j = 0; j < 4; j++) { \
                store_bytes(to, b[2 * j].qs, b[2 * j + 1].qs, j, form, offset); \
            } \
        } \
    }
PACK_COLUMN(plain, block_q8_0, GGML_TYPE_Q8_0, PLAIN, 0, 0.0f)
PACK_COLUMN(signs, block_q8_0, GGML_TYPE_Q8_0, PAIRS_SIGNED, 0, 0.0f)
PACK_COLUMN(offset_8, block_q8_0, GGML_TYPE_Q8_0, PAIRS, 8, 0.0f)
PACK_COLUMN(offset_12, block_q8_0, GGML_TYPE_Q8_0, PAIRS, 12, 0.0f)
PACK_COLUMN(offset_16, block_q8_0, GGML_TYPE_Q8_0, PAIRS, 16, 0.0f)
PACK_COLUMN(with_min, block_q8_1, GGML_TYPE_Q8_1, PAIRS, 0, f16_as_float(&b[j].s))

// ---- two blocks of a row ----

UNPACK_INLINE void split(__m256i v[2], const uint8_t *even, const uint8_t *odd) {
    const __m256i q = both(even, odd);
    v[0] = low4(q);
    v[1] = BITS_AT(q, 4, 15);
}

UNPACK_INLINE void or_fifth_bits(__m256i v[2], const uint8_t *even, const uint8_t *odd) {
    int32_t a, b;
    memcpy(&a, even, sizeof a);
    memcpy(&b, odd, sizeof b);
    const __m256i h = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_cvtsi32_si128(a)), _mm_cvtsi32_si128(b), 1);
    const __m256i which = _mm256_setr_epi64x(0, 0x0101010101010101, 0, 0x0101010101010101);
    const __m256i mask = _mm256_set1_epi64x((long long) 0x8040201008040201);
    for (int i = 0; i < 2; i++) {
        const __m256i at = _mm256_add_epi8(which, _mm256_set1_epi8((char) (2 * i)));
        const __m256i is_set = _mm256_cmpeq_epi8(_mm256_and_si256(_mm256_shuffle_epi8(h, at), mask), mask);
        v[i] = _mm256_or_si256(v[i], _mm256_and_si256(is_set, _mm256_set1_epi8(16)));
    }
}

UNPACK_INLINE void by_table(__m256i v[2], const int8_t *table) {
    const __m256i t = _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *) table));
    v[0] = _mm256_shuffle_epi8(t, v[0]);
    v[1] = _mm256_shuffle_epi8(t, v[1]);
}

static const int8_t table_mxfp4_plus_12[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};

#define PAIR(type, then) \
    UNPACK_INLINE void pair_##type(__m256i v[2], const block_##type *b) { \
        split(v, b[0].qs, b[1].qs); \
        then; \
    }
PAIR(q4_0, (void) 0)
PAIR(q4_1, (void) 0)
PAIR(q5_0, or_fifth_bits(v, b[0].qh, b[1].qh))
PAIR(q5_1, or_fifth_bits(v, b[0].qh, b[1].qh))
PAIR(iq4_nl, by_table(v, table_iq4))
PAIR(mxfp4, by_table(v, table_mxfp4_plus_12))

// ---- products ----

UNPACK_INLINE __m256i widened(__m256i pairs) {
    return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}

UNPACK_INLINE __m256 add_pair(__m256 sum, const __m256i v[2], const struct y_pairs *y, int j, __m256 d, const enum form form) {
    const __m256i y0 = load32(y->qs + 64 * j), y1 = load32(y->qs + 64 * j + 32);
    __m256i dot;
    if (form == PAIRS_SIGNED) {
        const __m256i m0 = load32(y->magnitude + 64 * j), m1 = load32(y->magnitude + 64 * j + 32);
        const __m256i p0 = _mm256_maddubs_epi16(m0, _mm256_sign_epi8(v[0], y0)),
                      p1 = _mm256_maddubs_epi16(m1, _mm256_sign_epi8(v[1], y1));
        dot = _mm256_add_epi32(widened(p0), widened(p1));
    } else {
        dot = widened(_mm256_add_epi16(_mm256_maddubs_epi16(v[0], y0), _mm256_maddubs_epi16(v[1], y1)));
        dot = _mm256_add_epi32(dot, load32(y->initial[j]));
    }
    const __m256i each = _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1);
    const __m256 scale = _mm256_permutevar8x32_ps(d, _mm256_add_epi32(each, _mm256_set1_epi32(2 * j)));
    return _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), scale, sum);
}

#define GROUP_PAIRS(type, form) \
    UNPACK_INLINE void group_##type( \
        __m256 *sum, const block_##type *x, const struct y_pairs *const *y, const __m256 *d, const int ny) { \
        _Pragma("GCC unroll 4") for (int j = 0; j < 4; j++) { \
            __m256i v[2]; \
            pair_##type(v, x + 2 * j); \
            EACH_COL(c) { \
                sum[c] = add_pair(sum[c], v, y[c], j, d[c], form); \
            } \
        } \
    }
GROUP_PAIRS(q4_0, PAIRS)
GROUP_PAIRS(q4_1, PAIRS)
GROUP_PAIRS(q5_0, PAIRS)
GROUP_PAIRS(q5_1, PAIRS)
GROUP_PAIRS(mxfp4, PAIRS)
GROUP_PAIRS(iq4_nl, PAIRS_SIGNED)

UNPACK_INLINE void group_q8_0(__m256 *sum, const block_q8_0 *x, const struct y_pairs *const *y, const __m256 *d, const int ny) {
    float scale[COLS][8];
    EACH_COL(c) {
        _mm256_storeu_ps(scale[c], d[c]);
    }
    _Pragma("GCC unroll 8") for (int j = 0; j < 8; j++) {
        const __m256i v = load32(x[j].qs), m = _mm256_abs_epi8(v);
        EACH_COL(c) {
            const __m256i dot = widened(_mm256_maddubs_epi16(m, _mm256_sign_epi8(load32(y[c]->qs + 32 * j), v)));
            sum[c] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), _mm256_broadcast_ss(&scale[c][j]), sum[c]);
        }
    }
}

// ---- rows ----

#define Y_BLOCKS y_pairs
#define SUMS __m256 sum[COLS]
#define SUMS_ZERO(c) sum[c] = _mm256_setzero_ps()
#define SUMS_ADD(type, x) add_##type(sum, x, y, ny)
#define SUMS_END(c) sum8(sum[c])

#define GEMV(type, scales_of, has_min, mins_of) \
    UNPACK_INLINE void add_##type(__m256 *sum, const block_##type *x, const struct y_pairs *const *y, const int ny) { \
        const __m256 scales = scales_of(x); \
        __m256 d[COLS]; \
        EACH_COL(c) { \
            d[c] = _mm256_mul_ps(scales, _mm256_loadu_ps(y[c]->scale)); \
            if (has_min) { \
                sum[c] = _mm256_fmadd_ps(mins_of(x), _mm256_loadu_ps(y[c]->sum), sum[c]); \
            } \
        } \
        group_##type(sum, x, y, d, ny); \
    } \
    ROWS_32(type)
GEMV(q8_0, SCALES_F16, false, MINS_NONE)
GEMV(iq4_nl, SCALES_F16, false, MINS_NONE)
GEMV(q4_0, SCALES_F16, false, MINS_NONE)
GEMV(q5_0, SCALES_F16, false, MINS_NONE)
GEMV(mxfp4, SCALES_MXFP4, false, MINS_NONE)
GEMV(q4_1, SCALES_F16, true, MINS_F16)
GEMV(q5_1, SCALES_F16, true, MINS_F16)

void CPU_TIER_FILL(gemv_q)(struct cpu_kernels *k) {
#define ROW(TYPE, type, y) GEMV_ROW(TYPE, type, y, GROUP, y_pairs)
    ROW(Q8_0, q8_0, plain)
    ROW(IQ4_NL, iq4_nl, signs)
    ROW(Q4_0, q4_0, offset_8)
    ROW(Q5_0, q5_0, offset_16)
    ROW(MXFP4, mxfp4, offset_12)
    ROW(Q4_1, q4_1, with_min)
    ROW(Q5_1, q5_1, with_min)
#undef ROW
    // gemm_q__avx2.c pads columns to a multiple of four. With fewer columns than min_cols, gemm_q__avx2.c is slower.
    k->gemm[GGML_TYPE_Q8_0].min_cols = 7;
    k->gemm[GGML_TYPE_IQ4_NL].min_cols = 7;
    k->gemm[GGML_TYPE_MXFP4].min_cols = 7;
    k->gemm[GGML_TYPE_Q4_0].min_cols = 8;
    k->gemm[GGML_TYPE_Q4_1].min_cols = 8;
}
