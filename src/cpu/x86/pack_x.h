// SPDX-License-Identifier: MIT
// pack_x.h: packs rows of quantised blocks into panels, 8 rows at a time (panel_q.h defines run and quad). Bytes are transposed
// first: a vector holds four bytes of each row. Then one operation unpacks all 8 rows. Transposing before unpacking moves at most
// half as many bytes. g: first of the 8 rows.
#pragma once

// Lane r of to[j] is word j of row r.
UNPACK_INLINE void words_across(__m256i to[4], const __m128i v[8]) {
    __m256i a[4];
    for (int r = 0; r < 4; r++) {
        a[r] = _mm256_inserti128_si256(_mm256_castsi128_si256(v[r]), v[r + 4], 1);
    }
    const __m256i b0 = _mm256_unpacklo_epi32(a[0], a[1]), b1 = _mm256_unpackhi_epi32(a[0], a[1]);
    const __m256i b2 = _mm256_unpacklo_epi32(a[2], a[3]), b3 = _mm256_unpackhi_epi32(a[2], a[3]);
    to[0] = _mm256_unpacklo_epi64(b0, b2);
    to[1] = _mm256_unpackhi_epi64(b0, b2);
    to[2] = _mm256_unpacklo_epi64(b1, b3);
    to[3] = _mm256_unpackhi_epi64(b1, b3);
}

UNPACK_INLINE void bytes_across(__m256i to[4], const char *const *row, size_t at) {
    __m128i v[8];
    for (int r = 0; r < 8; r++) {
        v[r] = _mm_loadu_si128((const void *) (row[r] + at));
    }
    words_across(to, v);
}

UNPACK_INLINE __m256 f16_across(const char *const *row, size_t at) {
    uint16_t h[8];
    for (int r = 0; r < 8; r++) {
        memcpy(&h[r], row[r] + at, sizeof h[r]);
    }
    return _mm256_cvtph_ps(_mm_setr_epi16(
        (short) h[0], (short) h[1], (short) h[2], (short) h[3], (short) h[4], (short) h[5], (short) h[6], (short) h[7]));
}

// Missing rows are replaced by the first row.
UNPACK_INLINE void rows_at(const char *rows[MR], const void *x, size_t bx, int nx) {
    for (int r = 0; r < MR; r++) {
        rows[r] = (const char *) x + (r < nx ? (size_t) r * bx : 0);
    }
}

// Prefetches the next `size` bytes of each row. The hardware prefetcher does not follow this many rows. Prefetching two or four
// times as far ahead was not faster.
UNPACK_INLINE void prefetch_rows(const char *const *row, size_t at, size_t size) {
    for (int r = 0; r < 8; r++) {
        for (size_t i = 0; i < size; i += 64) {
            _mm_prefetch(row[r] + at + size + i, _MM_HINT_T0);
        }
    }
}

UNPACK_INLINE void store_floats(char *to, __m256 v) {
    _mm256_storeu_ps((float *) (void *) to, v);
}

UNPACK_INLINE void store_quads(char *run, int g, int j, __m256i v, const bool has_min) {
    _mm256_storeu_si256((void *) (run + 4 * ((1 + has_min + j) * MR + g)), v);
}

// ---- 32 elements ----

enum form { NIBBLES, BY_TABLE };

// Low nibbles: elements 0 to 15; high nibbles: 16 to 31. BY_TABLE maps nibbles through a table and adds an offset.
UNPACK_INLINE void store_nibbles(
    char *run, int g, const __m256i q[4], const enum form form, const int8_t *table, const int offset, const bool has_min) {
    for (int j = 0; j < 4; j++) {
        __m256i low = low4(q[j]), high = BITS_AT(q[j], 4, 15);
        if (form == BY_TABLE) {
            const __m256i t = _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *) table));
            const __m256i o = _mm256_set1_epi8((char) offset);
            low = _mm256_add_epi8(_mm256_shuffle_epi8(t, low), o);
            high = _mm256_add_epi8(_mm256_shuffle_epi8(t, high), o);
        }
        store_quads(run, g, j, low, has_min);
        store_quads(run, g, 4 + j, high, has_min);
    }
}

// q: nibbles, as in store_nibbles. bits: 32 fifth bits per row.
UNPACK_INLINE void store_5bit(char *run, int g, const __m256i q[4], __m256i bits, const bool has_min) {
    const __m256i each =
        _mm256_setr_epi8(0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12, 0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12);
    for (int j = 0; j < 8; j++) {
        const __m256i at = _mm256_add_epi8(each, _mm256_set1_epi8((char) (j / 2)));
        const __m256i bit = _mm256_set1_epi32(j % 2 == 0 ? 0x08040201 : (int) 0x80402010);
        const __m256i of = _mm256_and_si256(_mm256_shuffle_epi8(bits, at), bit);
        const __m256i four = j < 4 ? low4(q[j]) : BITS_AT(q[j - 4], 4, 15);
        const __m256i five = _mm256_and_si256(_mm256_cmpeq_epi8(of, bit), _mm256_set1_epi8(16));
        store_quads(run, g, j, _mm256_or_si256(four, five), has_min);
    }
}

#define BYTES_NIBBLES(type, form, table, offset, has_min) \
    bytes_across(q, row, at + offsetof(block_##type, qs)); \
    store_nibbles(to, g, q, form, table, offset, has_min)
#define BYTES_5BIT(type, has_min) \
    int32_t h[8]; \
    for (int r = 0; r < 8; r++) { \
        memcpy(&h[r], row[r] + at + offsetof(block_##type, qh), sizeof h[r]); \
    } \
    bytes_across(q, row, at + offsetof(block_##type, qs)); \
    store_5bit(to, g, q, load32(h), has_min)
#define BYTES_8BIT(type) \
    for (int i = 0; i < 2; i++) { \
        bytes_across(q, row, at + offsetof(block_##type, qs) + (size_t) (16 * i)); \
        for (int j = 0; j < 4; j++) { \
            store_quads(to, g, 4 * i + j, _mm256_add_epi8(q[j], _mm256_set1_epi8((char) OFFSET_8BIT)), false); \
        } \
    }
#define SCALES_OF_F16(type) f16_across(row, at + offsetof(block_##type, d))
#define SCALES_OF_MXFP4(type) \
    scales_mxfp4(_mm_setr_epi8( \
        row[0][at], row[1][at], row[2][at], row[3][at], row[4][at], row[5][at], row[6][at], row[7][at], 0, 0, 0, 0, 0, 0, 0, 0))
#define NO_MINS(type)
#define MINS_OF_F16(type) store_floats(to + 4 * (MR + g), f16_across(row, at + offsetof(block_##type, m)));

// 8 blocks of all rows at a time, so that lines of the panel stay in L1.
#define PACK_32(type, has_min, scales, mins, bytes) \
    static void pack_x_##type(int64_t n, void *panel, const void *x, size_t bx, int nx) { \
        const char *rows[MR]; \
        rows_at(rows, x, bx, nx); \
        for (int64_t b0 = 0; b0 < n / 32; b0 += 8) { \
            const int64_t b1 = n / 32 < b0 + 8 ? n / 32 : b0 + 8; \
            for (int g = 0; g < MR; g += 8) { \
                const char *const *row = rows + g; \
                prefetch_rows(row, (size_t) b0 * sizeof(block_##type), 8 * sizeof(block_##type)); \
                for (int64_t b = b0; b < b1; b++) { \
                    const size_t at = (size_t) b * sizeof(block_##type); \
                    char *to = (char *) panel + (size_t) b * X_RUN(32, has_min); \
                    __m256i q[4]; \
                    store_floats(to + 4 * g, scales(type)); \
                    mins(type); \
                    bytes; \
                } \
            } \
        } \
    }
PACK_32(q8_0, false, SCALES_OF_F16, NO_MINS, BYTES_8BIT(q8_0))
PACK_32(q4_0, false, SCALES_OF_F16, NO_MINS, BYTES_NIBBLES(q4_0, NIBBLES, NULL, 0, false))
PACK_32(q4_1, true, SCALES_OF_F16, MINS_OF_F16, BYTES_NIBBLES(q4_1, NIBBLES, NULL, 0, true))
PACK_32(q5_0, false, SCALES_OF_F16, NO_MINS, BYTES_5BIT(q5_0, false))
PACK_32(q5_1, true, SCALES_OF_F16, MINS_OF_F16, BYTES_5BIT(q5_1, true))
PACK_32(iq4_nl, false, SCALES_OF_F16, NO_MINS, BYTES_NIBBLES(iq4_nl, BY_TABLE, table_iq4, OFFSET_8BIT, false))
PACK_32(mxfp4, false, SCALES_OF_MXFP4, NO_MINS, BYTES_NIBBLES(mxfp4, BY_TABLE, table_mxfp4, 12, false))

// ---- 256 elements ----

UNPACK_INLINE __m256 byte_of(__m256i v, const int j, __m256 d, const bool is_signed) {
    const __m256i up = _mm256_slli_epi32(v, 24 - 8 * j);
    return _mm256_mul_ps(_mm256_cvtepi32_ps(is_signed ? _mm256_srai_epi32(up, 24) : _mm256_srli_epi32(up, 24)), d);
}

// Stores the scales or minima of 8 rows, times d. Runs are `step` bytes apart in the panel.
UNPACK_INLINE void store_numbers(
    char *to, const __m256i *v, __m256 d, const int n_runs, const size_t step, const bool is_signed) {
    _Pragma("GCC unroll 16") for (int j = 0; j < n_runs; j++) {
        store_floats(to + (size_t) j * step, byte_of(v[j / 4], j % 4, d, is_signed));
    }
}

// to[0], to[1]: scales. to[2], to[3]: minima. As scales_6bit, for 8 rows.
UNPACK_INLINE void scales_across_6bit(__m256i to[4], const char *const *row, size_t at) {
    const __m256i six = _mm256_set1_epi8(0x3f), two = _mm256_set1_epi8(0x30);
    __m256i u[4]; // d and dmin; then 12 bytes
    bytes_across(u, row, at);
    to[0] = _mm256_and_si256(u[1], six);
    to[1] = _mm256_or_si256(low4(u[3]), _mm256_and_si256(_mm256_srli_epi32(u[1], 2), two));
    to[2] = _mm256_and_si256(u[2], six);
    to[3] = _mm256_or_si256(BITS_AT(u[3], 4, 15), _mm256_and_si256(_mm256_srli_epi32(u[2], 2), two));
}

#define NUMBERS_6BIT(type) \
    __m256i u[4]; \
    scales_across_6bit(u, row, at); \
    store_numbers(to + 4 * g, u, d, 8, step, false); \
    store_numbers(to + 4 * (MR + g), u + 2, MINS_D(type), 8, step, false)
#define NUMBERS_Q2_K(type) \
    __m256i u[4], mins[4]; \
    bytes_across(u, row, at + offsetof(block_q2_K, scales)); \
    for (int j = 0; j < 4; j++) { \
        mins[j] = BITS_AT(u[j], 4, 15); \
        u[j] = low4(u[j]); \
    } \
    store_numbers(to + 4 * g, u, d, 16, step, false); \
    store_numbers(to + 4 * (MR + g), mins, MINS_D(type), 16, step, false)
#define NUMBERS(type) \
    __m128i each[8]; \
    __m256i u[4]; \
    for (int r = 0; r < 8; r++) { \
        each[r] = scales_##type((const void *) (row[r] + at)); \
    } \
    words_across(u, each); \
    store_numbers(to + 4 * g, u, d, n_runs, step, true)
#define MINS_D(type) _mm256_xor_ps(f16_across(row, at + offsetof(block_##type, dmin)), _mm256_set1_ps(-0.0f))

#define BYTES_BY_BITS(type, R, has_min) \
    for (int i = 0; i < 2; i++) { \
        __m256i raw[RAW_##type][4]; \
        for (int k = 0; k < RAW_##type; k++) { \
            bytes_across(raw[k], row, at + RAW_AT_##type + (size_t) (32 * k + 16 * i)); \
        } \
        for (int j = 0; j < 4; j++) { \
            __m256i in[RAW_##type], v[8]; \
            for (int k = 0; k < RAW_##type; k++) { \
                in[k] = raw[k][j]; \
            } \
            bits_##type(in, v); \
            for (int k = 0; k < 8; k++) { \
                store_quads(to + (size_t) ((32 * k + 16 * i) / (R)) * step, g, (R) == 32 ? 4 * i + j : j, v[k], has_min); \
            } \
        } \
    }
#define BYTES_IQ4_XS \
    for (int k = 0; k < 8; k++) { \
        __m256i q[4]; \
        bytes_across(q, row, at + offsetof(block_iq4_xs, qs) + (size_t) (16 * k)); \
        store_nibbles(to + (size_t) k * step, g, q, BY_TABLE, table_iq4, OFFSET_8BIT, false); \
    }

// A block has `length` elements. The last arguments pack a block of 8 rows.
#define PACK_BLOCKS(type, length, R, has_min, ...) \
    static void pack_x_##type(int64_t n, void *panel, const void *x, size_t bx, int nx) { \
        const int n_runs = (length) / (R); \
        const size_t step = X_RUN(R, has_min); \
        const char *rows[MR]; \
        rows_at(rows, x, bx, nx); \
        for (int64_t b = 0; b < n / (length); b++) { \
            const size_t at = (size_t) b * sizeof(block_##type); \
            char *to = (char *) panel + (size_t) (b * n_runs) * step; \
            for (int g = 0; g < MR; g += 8) { \
                const char *const *row = rows + g; \
                prefetch_rows(row, at, sizeof(block_##type)); \
                __VA_ARGS__ \
            } \
        } \
    }
#define D_OF_F16(type) const __m256 d = f16_across(row, at + offsetof(block_##type, d))
#define PACK_256(type, R, has_min, ...) PACK_BLOCKS(type, QK_K, R, has_min, D_OF_F16(type); __VA_ARGS__)
PACK_256(q4_K, 32, true, NUMBERS_6BIT(q4_K); BYTES_BY_BITS(q4_K, 32, true))
PACK_256(q5_K, 32, true, NUMBERS_6BIT(q5_K); BYTES_BY_BITS(q5_K, 32, true))
PACK_256(q2_K, 16, true, NUMBERS_Q2_K(q2_K); BYTES_BY_BITS(q2_K, 16, true))
PACK_256(q3_K, 16, false, NUMBERS(q3_K); BYTES_BY_BITS(q3_K, 16, false))
PACK_256(q6_K, 16, false, NUMBERS(q6_K); BYTES_BY_BITS(q6_K, 16, false))
PACK_256(iq4_xs, 32, false, NUMBERS(iq4_xs); BYTES_IQ4_XS)
PACK_256(tq2_0, 32, false, NUMBERS(tq2_0); BYTES_BY_BITS(tq2_0, 32, false))

// Codebooks return neighbouring elements of one row, so blocks are unpacked before their bytes are transposed. q: the bytes of 8
// rows. `more` is added to each byte.
static void store_unpacked(char *to, int g, const char *q, int n_runs, int more) {
    const size_t step = X_RUN(QK_K / n_runs, false);
    const char *row[8];
    for (int r = 0; r < 8; r++) {
        row[r] = q + QK_K * r;
    }
    for (int i = 0; i < 16; i++) {
        char *run = to + (size_t) (i * n_runs / 16) * step;
        __m256i v[4];
        bytes_across(v, row, (size_t) (16 * i));
        for (int j = 0; j < 4; j++) {
            store_quads(run, g, n_runs == 16 ? j : i % 2 * 4 + j, _mm256_add_epi8(v[j], _mm256_set1_epi8((char) more)), false);
        }
    }
}

// 7-bit elements use the kernels of 8-bit elements.
#define MORE_64 (OFFSET_8BIT - 64)
#define MORE_16 0
#define MORE_1 0
#define BYTES_IQ(type, more) \
    float ds[8]; \
    char q[8 * QK_K]; \
    for (int r = 0; r < 8; r++) { \
        const block_##type *from = (const void *) (row[r] + at); \
        __m256i v[8]; \
        unpack_##type(from, v); \
        for (int j = 0; j < 8; j++) { \
            _mm256_storeu_si256((void *) (q + QK_K * r + 32 * j), v[j]); \
        } \
        ds[r] = d_##type(from); \
    } \
    const __m256 d = _mm256_loadu_ps(ds); \
    NUMBERS(type); \
    store_unpacked(to, g, q, n_runs, more);
#define PACK_IQ(TYPE, type, n_runs, offset) PACK_BLOCKS(type, QK_K, QK_K / (n_runs), false, BYTES_IQ(type, MORE_##offset))
IQ_FORMATS(PACK_IQ)

// ---- 64 and 128 elements ----

// The columns of q1_0 and q2_0 have the order of transpose_quads. A bit of q1_0 becomes 2 or 0, which is too large by 1.
#define BYTES_Q1_0 \
    __m256i q[4]; \
    bytes_across(q, row, at + offsetof(block_q1_0, qs)); \
    for (int i = 0; i < 4; i++) { \
        char *run = to + (size_t) i * step; \
        store_floats(run + 4 * g, d); \
        store_quads(run, g, 0, BITS_UP(q[i], 1, 2), false); \
        for (int s = 1; s < 8; s++, q[i] = _mm256_srli_epi16(q[i], 1)) { \
            store_quads(run, g, s, BITS_AT(q[i], 0, 2), false); \
        } \
    }
#define BYTES_Q2_0 \
    __m256i q[4]; \
    bytes_across(q, row, at + offsetof(block_q2_0, qs)); \
    for (int i = 0; i < 4; i++) { \
        char *run = to + (size_t) (i / 2) * step; \
        store_floats(run + 4 * g, d); \
        for (int s = 0; s < 4; s++, q[i] = _mm256_srli_epi16(q[i], 2)) { \
            store_quads(run, g, i % 2 * 4 + s, BITS_AT(q[i], 0, 3), false); \
        } \
    }
#define BYTES_NVFP4 \
    __m256i q[8], table = _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *) table_mxfp4_plus_12)); \
    bytes_across(q, row, at + offsetof(block_nvfp4, qs)); \
    bytes_across(q + 4, row, at + offsetof(block_nvfp4, qs) + 16); \
    for (int i = 0; i < 4; i++) { \
        char *run = to + (size_t) i * step; \
        const char *const *r = row; \
        const size_t s = at + (size_t) i; \
        const __m128i scales = \
            _mm_setr_epi8(r[0][s], r[1][s], r[2][s], r[3][s], r[4][s], r[5][s], r[6][s], r[7][s], 0, 0, 0, 0, 0, 0, 0, 0); \
        store_floats(run + 4 * g, scales_nvfp4(scales)); \
        for (int j = 0; j < 2; j++) { \
            store_quads(run, g, j, _mm256_shuffle_epi8(table, low4(q[2 * i + j])), false); \
            store_quads(run, g, 2 + j, _mm256_shuffle_epi8(table, BITS_AT(q[2 * i + j], 4, 15)), false); \
        } \
    }
PACK_BLOCKS(q1_0, QK_Q1_0, 32, false, D_OF_F16(q1_0); BYTES_Q1_0)
PACK_BLOCKS(q2_0, QK_Q2_0, 32, false, D_OF_F16(q2_0); BYTES_Q2_0)
PACK_BLOCKS(nvfp4, QK_NVFP4, 16, false, BYTES_NVFP4)
