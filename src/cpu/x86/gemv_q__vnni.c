// SPDX-License-Identifier: MIT
// gemv_q__vnni.c: products of rows in blocks of 32 elements with a few columns, by VPDPBUSD, 64 bytes at a time. For q8_0, a
// vector holds two blocks. For formats with nibbles, one vector holds the low nibbles of four blocks, and the next vector their
// high nibbles. Columns (column_q.h) have the same order. A row is unpacked once for all columns.

#include "cpu/x86/by_rows.h"
#include "cpu/x86/column_q.h"

// The order of the 16 units of 16 bytes in a group of a column (column_q.h). Units 2 b and 2 b + 1 are the halves of block b. The
// low nibbles of a block of a row belong to the first half of the column's block, the high nibbles to the second half. So
// order_low_high has the first halves of four blocks, then their second halves.
static const uint8_t order_plain[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
static const uint8_t order_low_high[16] = {0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15};
PACK_OFFSET(q8_0, 128, order_plain)
PACK_OFFSET(iq4_nl, 128, order_low_high)
PACK_OFFSET(q4_0, 8, order_low_high)
PACK_OFFSET(q5_0, 16, order_low_high)
PACK_OFFSET(mxfp4, 12, order_low_high)
PACK_SUMS(with_min, order_low_high)

// ---- the rows ----

UNPACK_INLINE __m512i load64(const void *at) {
    return _mm512_loadu_si512(at);
}

UNPACK_INLINE __m128i load16(const void *at) {
    return _mm_loadu_si128(at);
}

// Loads 16 bytes of each of four blocks.
#define FOUR(b) \
    _mm512_inserti32x4(_mm512_inserti32x4(_mm512_inserti32x4(_mm512_castsi128_si512(load16((b)[0].qs)), load16((b)[1].qs), 1), \
                           load16((b)[2].qs), 2), \
        load16((b)[3].qs), 3)

UNPACK_INLINE __m512i low(__m512i v) {
    return _mm512_and_si512(v, _mm512_set1_epi8(15));
}

UNPACK_INLINE __m512i high(__m512i v) {
    return low(_mm512_srli_epi16(v, 4));
}

// unpack64_<type> stores unsigned bytes: of two blocks of q8_0 in v[0], or of four blocks of the other types in v[0] and v[1].
UNPACK_INLINE void unpack64_q8_0(__m512i v[2], const block_q8_0 *b) {
    const __m512i x = _mm512_inserti64x4(_mm512_castsi256_si512(load32(b[0].qs)), load32(b[1].qs), 1);
    v[0] = _mm512_xor_si512(x, _mm512_set1_epi8((char) 128)); // adds 128
}

#define UNPACK64_4BIT(type) \
    UNPACK_INLINE void unpack64_##type(__m512i v[2], const block_##type *b) { \
        const __m512i q = FOUR(b); \
        v[0] = low(q); \
        v[1] = high(q); \
    }
UNPACK64_4BIT(q4_0)
UNPACK64_4BIT(q4_1)

// Returns the fifth bits of the low nibbles, or of the high nibbles, of four blocks: 64 bits. `which` is the mask of these bits
// in the qh of two blocks.
UNPACK_INLINE uint64_t fifths(const uint8_t *a, const uint8_t *b, const uint8_t *c, const uint8_t *d, uint64_t which) {
    uint32_t u[4];
    memcpy(&u[0], a, 4);
    memcpy(&u[1], b, 4);
    memcpy(&u[2], c, 4);
    memcpy(&u[3], d, 4);
    return _pext_u64(u[0] | (uint64_t) u[1] << 32, which) | _pext_u64(u[2] | (uint64_t) u[3] << 32, which) << 32;
}

#define UNPACK64_5BIT(type) \
    UNPACK_INLINE void unpack64_##type(__m512i v[2], const block_##type *b) { \
        const __m512i q = FOUR(b), l = low(q), h = high(q), fifth = _mm512_set1_epi8(16); \
        const uint64_t of_l = fifths(b[0].qh, b[1].qh, b[2].qh, b[3].qh, 0x0000ffff0000ffff); \
        const uint64_t of_h = fifths(b[0].qh, b[1].qh, b[2].qh, b[3].qh, 0xffff0000ffff0000); \
        v[0] = _mm512_mask_add_epi8(l, of_l, l, fifth); \
        v[1] = _mm512_mask_add_epi8(h, of_h, h, fifth); \
    }
UNPACK64_5BIT(q5_0)
UNPACK64_5BIT(q5_1)

// The values of the nibbles plus an offset of 128 (iq4_nl) or 12 (mxfp4), which makes them unsigned.
static const uint8_t table_iq4_plus_128[16] = {1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241};
static const uint8_t table_mxfp4_plus_12[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};

#define UNPACK64_TABLE(type, table) \
    UNPACK_INLINE void unpack64_##type(__m512i v[2], const block_##type *b) { \
        const __m512i t = _mm512_broadcast_i32x4(load16(table)), q = FOUR(b); \
        v[0] = _mm512_shuffle_epi8(t, low(q)); \
        v[1] = _mm512_shuffle_epi8(t, high(q)); \
    }
UNPACK64_TABLE(iq4_nl, table_iq4_plus_128)
UNPACK64_TABLE(mxfp4, table_mxfp4_plus_12)

// Returns the f16 at word `at` of each of 8 blocks as floats. A block has `words` words of 16 bits. The f16 of four adjacent
// blocks are within 64 bytes, so one load per four blocks is enough.
UNPACK_INLINE __m256 f16_of_blocks(const void *b, const int words, const int at) {
    const __m512i which = _mm512_castsi128_si512(_mm_setr_epi16((short) at, (short) (at + words), (short) (at + 2 * words),
        (short) (at + 3 * words), (short) at, (short) (at + words), (short) (at + 2 * words), (short) (at + 3 * words)));
    const __m512i first = _mm512_permutexvar_epi16(which, load64(b));
    const __m512i all = _mm512_mask_permutexvar_epi16(first, 0xf0, which, load64((const char *) b + 8 * words));
    return _mm256_cvtph_ps(_mm512_castsi512_si128(all));
}
// SCALES_n, MINS_n: the scales or minima of blocks of n bytes.
#define SCALES_18(b) f16_of_blocks(b, 9, 0)
#define SCALES_20(b) f16_of_blocks(b, 10, 0)
#define MINS_20(b) f16_of_blocks(b, 10, 1)

// A step processes `per` blocks: 2 blocks of q8_0, 4 blocks of the other types. Returns the number of the block to which each of
// the 16 sums of step j belongs.
UNPACK_INLINE __m512i blocks_at(int j, const int per) {
    const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return _mm512_add_epi32(_mm512_srli_epi32(lanes, per == 2 ? 3 : 2), _mm512_set1_epi32(j * per));
}

// Returns 16 sums of four (per == 2) or eight products each, plus `initial`.
UNPACK_INLINE __m512i dot(__m512i initial, const __m512i v[2], const int8_t *y, const int per) {
    const __m512i sums = _mm512_dpbusd_epi32(initial, v[0], load64(y));
    return per == 2 ? sums : _mm512_dpbusd_epi32(sums, v[1], load64(y + 64));
}

#define Y_BLOCKS y_group
#define SUMS \
    __m512 sum[COLS]; \
    __m256 mins[COLS]
#define SUMS_ZERO(c) sum[c] = _mm512_setzero_ps(), mins[c] = _mm256_setzero_ps()
#define SUMS_ADD(type, x) group_##type(sum, mins, x, y, ny)
#define SUMS_END(c) (_mm512_reduce_add_ps(sum[c]) + sum8(mins[c]))

// A block has 8 (per == 2) or 4 of the 16 sums of a step. The mask 0x0101 or 0x1111 selects the first sum of each block. Only
// this sum starts with y_group.initial, which corrects the offset of the row's unsigned bytes (column_q.h). The other sums start
// with 0.
#define GEMV(type, per, scales_of, has_min, mins_of) \
    UNPACK_INLINE void group_##type( \
        __m512 *sum, __m256 *mins, const block_##type *x, const struct y_group *const *y, const int ny) { \
        const __m256 scales = scales_of(x); \
        __m512 d[COLS]; \
        EACH_COL(c) { \
            d[c] = _mm512_castps256_ps512(_mm256_mul_ps(scales, _mm256_loadu_ps(y[c]->scale))); \
            if (has_min) { \
                mins[c] = _mm256_fmadd_ps(mins_of(x), _mm256_loadu_ps(y[c]->sum), mins[c]); \
            } \
        } \
        _Pragma("GCC unroll 4") for (int j = 0; j < 8 / (per); j++) { \
            const __m512i at = blocks_at(j, per); \
            __m512i v[2]; \
            unpack64_##type(v, x + j * (per)); \
            EACH_COL(c) { \
                const __m512i f = _mm512_castsi256_si512(load32(y[c]->initial)); \
                const __m512i initial = _mm512_maskz_permutexvar_epi32((has_min) ? 0 : (per) == 2 ? 0x0101 : 0x1111, at, f); \
                const __m512i sums = dot(initial, v, y[c]->qs + 32 * (per) *j, per); \
                sum[c] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums), _mm512_permutexvar_ps(at, d[c]), sum[c]); \
            } \
        } \
    } \
    ROWS_32(type)
GEMV(q8_0, 2, SCALES_F16, false, MINS_NONE)
GEMV(iq4_nl, 4, SCALES_18, false, MINS_NONE)
GEMV(q4_0, 4, SCALES_18, false, MINS_NONE)
GEMV(q5_0, 4, SCALES_F16, false, MINS_NONE)
GEMV(mxfp4, 4, SCALES_MXFP4, false, MINS_NONE)
GEMV(q4_1, 4, SCALES_20, true, MINS_20)
GEMV(q5_1, 4, SCALES_F16, true, MINS_F16)

void cpu_tier_vnni_gemv_q(struct cpu_kernels *k) {
#define ROW(TYPE, type, y) GEMV_ROW(TYPE, type, y, GROUP, y_group)
    ROW(Q8_0, q8_0, q8_0)
    ROW(IQ4_NL, iq4_nl, iq4_nl)
    ROW(Q4_0, q4_0, q4_0)
    ROW(Q5_0, q5_0, q5_0)
    ROW(MXFP4, mxfp4, mxfp4)
    ROW(Q4_1, q4_1, with_min)
    ROW(Q5_1, q5_1, with_min)
#undef ROW
}
