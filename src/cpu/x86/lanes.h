// SPDX-License-Identifier: MIT
// lanes.h: unpacks quantised rows into chunks. A run is 32 or 16 elements of a row with a common scale. A chunk is LANES runs of one
// row. Each lane of the vectors of a chunk belongs to one run, so the integer sums of all runs of a chunk are one vector, and one
// multiplication scales them. Vector j holds quad j, the elements 4 j to 4 j + 3, of each run.
//
// Formats with blocks of 32: a run is a block, and a unit, the part of a row that lanes_<type> unpacks, is LANES blocks.
// q1_0: as blocks of 32. q2_0 and nvfp4: a run has 16 elements, and a unit is LANES runs.
// Formats with blocks of 256: all runs have 16 elements, and a unit is a block: one or two chunks. Lanes are not in the order of the
// row: lane l has run order_<...>[l].
//
// Bytes of x are unsigned: value + offset. Without VNNI, elements of 8 bits are signed words instead (WIDE). Two vectors hold a quad:
// the first and third element, then the second and fourth.
#pragma once

#include "cpu/x86/floats.h"
#include "cpu/x86/unpack_iq.h"

#define LANES V_LANES
#define CHUNKS (16 / LANES) // of a block of 256
#define V_BYTES (4 * LANES)
#ifdef __AVX512F__
#    define VI __m512i
#    define VI_OP(op) _mm512_##op
#    define VI_LOAD _mm512_loadu_si512
#    define VI_AND _mm512_and_si512
#    define VI_ZERO _mm512_setzero_si512
#    define VI_SHUFFLE(a, b, order) _mm512_castps_si512(_mm512_shuffle_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b), order))
#else
#    define VI __m256i
#    define VI_OP(op) _mm256_##op
#    define VI_LOAD load32
#    define VI_AND _mm256_and_si256
#    define VI_ZERO _mm256_setzero_si256
#    define VI_SHUFFLE(a, b, order) _mm256_castps_si256(_mm256_shuffle_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b), order))
#endif
#if defined __AVX512VNNI__ || defined __AVXVNNI__
#    define WIDE 0
#else
#    define WIDE 1
#endif

struct x_chunk {
    V scale, min;
    VI v[8 << WIDE];
};

static const uint8_t order_nibbles[16] = {0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15};  // q4_K, q5_K
static const uint8_t order_eights[16] = {0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 6, 7, 12, 13, 14, 15};   // q2_K, q3_K, q6_K
static const uint8_t order_low_high[16] = {0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15}; // iq4_xs
static const uint8_t order_cells[16] = {0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15};    // unpack_iq.h

#define BYTE_ALL(v) VI_OP(set1_epi8)((char) (v))
#define LOW4(v) VI_AND(v, BYTE_ALL(15))
#ifdef __GFNI__
// A matrix of VGF2P8AFFINEQB: moves n bits of a byte from bit `from` to bit 0. One instruction replaces a shift and a mask.
#    define BITS_MATRIX(n, from) ((long long) (0x0102040810204080ull << (8 * (from)) & ~0ull << (64 - 8 * (n))))
#    define HIGH4(v) _mm512_gf2p8affine_epi64_epi8(v, _mm512_set1_epi64(BITS_MATRIX(4, 4)), 0)
#else
#    define HIGH4(v) LOW4(VI_OP(srli_epi16)(v, 4))
#endif

// ---- quads ----

// Loads 16 bytes from each of LANES / 4 addresses, `step` bytes apart.
UNPACK_INLINE VI pieces(const void *from, const size_t step) {
    const char *at = from;
    const __m256i two = both(at, at + step);
#ifdef __AVX512F__
    return _mm512_inserti64x4(_mm512_castsi256_si512(two), both(at + 2 * step, at + 3 * step), 1);
#else
    return two;
#endif
}

// Lane i of t[j] is quad j of the 16 bytes at block i. Blocks are `size` bytes apart.
UNPACK_INLINE void quads_across(VI t[4], VI a0, VI a1, VI a2, VI a3) {
    const VI b0 = VI_OP(unpacklo_epi32)(a0, a1), b1 = VI_OP(unpackhi_epi32)(a0, a1);
    const VI b2 = VI_OP(unpacklo_epi32)(a2, a3), b3 = VI_OP(unpackhi_epi32)(a2, a3);
    t[0] = VI_OP(unpacklo_epi64)(b0, b2);
    t[1] = VI_OP(unpackhi_epi64)(b0, b2);
    t[2] = VI_OP(unpacklo_epi64)(b1, b3);
    t[3] = VI_OP(unpackhi_epi64)(b1, b3);
}

UNPACK_INLINE void quads_of_blocks(VI t[4], const void *blocks, const size_t size, const size_t off) {
    const char *at = (const char *) blocks + off;
    const size_t step = 4 * size;
    quads_across(t, pieces(at, step), pieces(at + size, step), pieces(at + 2 * size, step), pieces(at + 3 * size, step));
}

// Stores quad j of elements of 8 bits: signed words (WIDE), or bytes, which the caller made unsigned.
UNPACK_INLINE void put_8bit(VI *v, int j, VI q) {
#if WIDE
    v[2 * j] = VI_OP(srai_epi16)(VI_OP(slli_epi16)(q, 8), 8);
    v[2 * j + 1] = VI_OP(srai_epi16)(q, 8);
#else
    v[j] = q;
#endif
}

UNPACK_INLINE VI table_all(const int8_t *table) {
    const __m128i t = _mm_loadu_si128((const void *) table);
#ifdef __AVX512F__
    return _mm512_broadcast_i32x4(t);
#else
    return _mm256_broadcastsi128_si256(t);
#endif
}

// The table of iq4_nl and iq4_xs. Without WIDE, entries have an offset of 128.
UNPACK_INLINE VI table_iq4_all(void) {
    return WIDE ? table_all(table_iq4) : VI_OP(add_epi8)(table_all(table_iq4), BYTE_ALL(128));
}

// ---- scales of blocks of 32 ----

UNPACK_INLINE short word_at(const char *at) {
    int16_t v;
    memcpy(&v, at, sizeof v);
    return v;
}
#define OF_BLOCKS(vector, one, b, size) \
    vector(one(b), one((b) + (size)), one((b) + 2 * (size)), one((b) + 3 * (size)), one((b) + 4 * (size)), \
        one((b) + 5 * (size)), one((b) + 6 * (size)), one((b) + 7 * (size)))

#ifdef __AVX512F__
// Returns two words of 16 bits of each of 16 blocks, from byte `at` of a block: as one lane (is_dword), or the first words in the
// lower half and the second words in the upper half. Each load reads two or four blocks. The last load ends with the last block.
UNPACK_INLINE __m512i words_of_blocks(const char *b, const int size, const int at, const bool is_dword) {
    const int per = 3 * size + at + 4 <= 64 ? 4 : 2;
    const int over = (16 - per) * size + 64 - 16 * size, back = over > 0 ? over : 0;
    uint16_t which[32];
    for (int i = 0; i < 32; i++) {
        const int block = is_dword ? i / 2 : i % 16, second = is_dword ? i % 2 : i / 16;
        which[i] = (uint16_t) ((block % per * size + at + (block >= 16 - per ? back : 0)) / 2 + second);
    }
    const __m512i index = _mm512_loadu_si512(which);
    const uint32_t first = (1u << per) - 1, some = is_dword ? (1u << (2 * per)) - 1 : first | first << 16;
    __m512i all = _mm512_setzero_si512();
    _Pragma("GCC unroll 8") for (int i = 0; i < 8; i++) { // the bound is a constant, because sanitizers do not fold 16 / per
        if (i * per < 16) {
            const char *from = b + i * per * size - (i == 16 / per - 1 ? back : 0);
            all = _mm512_mask_permutexvar_epi16(all, some << (i * per * (1 + is_dword)), index, _mm512_loadu_si512(from));
        }
    }
    return all;
}

UNPACK_INLINE V f16_of_blocks(const char *b, const int size) {
    return _mm512_cvtph_ps(_mm512_castsi512_si256(words_of_blocks(b, size, 0, false)));
}
// Like f16_of_blocks, with one load per block. This is faster in one_column.h, and slower for several columns.
UNPACK_INLINE V f16_one_by_one(const char *b, const int size) {
    return _mm512_cvtph_ps(
        _mm256_set_m128i(OF_BLOCKS(_mm_setr_epi16, word_at, b + 8 * size, size), OF_BLOCKS(_mm_setr_epi16, word_at, b, size)));
}
UNPACK_INLINE VI dwords_of_blocks(const char *b, const int size, const int at) {
    return words_of_blocks(b, size, at, true);
}
UNPACK_INLINE void two_f16_of_blocks(struct x_chunk *x, const char *b, const int size) {
    const __m512i words = words_of_blocks(b, size, 0, false);
    x->scale = _mm512_cvtph_ps(_mm512_castsi512_si256(words));
    x->min = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(words, 1));
}
// Bytes at odd addresses are the high bytes of words.
UNPACK_INLINE V scales_of_mxfp4(const char *b) {
    const __m512i e = _mm512_cvtepu16_epi32(_mm512_castsi512_si256(words_of_blocks(b, sizeof(block_mxfp4), 0, false)));
    const __m512i v = _mm512_and_si512(_mm512_mask_srli_epi32(e, 0xaaaa, e, 8), _mm512_set1_epi32(255));
    const __m512i normal = _mm512_slli_epi32(_mm512_sub_epi32(v, _mm512_set1_epi32(1)), 23);
    const __mmask16 is_least = _mm512_cmplt_epi32_mask(v, _mm512_set1_epi32(2));
    return _mm512_castsi512_ps(_mm512_mask_sllv_epi32(normal, is_least, _mm512_set1_epi32(0x00200000), v));
}
#else
#    define f16_of_blocks f16_one_by_one
UNPACK_INLINE V f16_one_by_one(const char *b, const int size) {
    return _mm256_cvtph_ps(OF_BLOCKS(_mm_setr_epi16, word_at, b, size));
}
UNPACK_INLINE VI dwords_of_blocks(const char *b, const int size, const int at) {
    const size_t step = 4 * (size_t) size;
    b += at;
    const __m256i b0 = _mm256_unpacklo_epi32(pieces(b, step), pieces(b + size, step));
    const __m256i b2 = _mm256_unpacklo_epi32(pieces(b + 2 * size, step), pieces(b + 3 * size, step));
    return _mm256_unpacklo_epi64(b0, b2);
}
UNPACK_INLINE V f16_of_dwords(__m256i v) {
    return _mm256_cvtph_ps(_mm_packus_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1)));
}
UNPACK_INLINE void two_f16_of_blocks(struct x_chunk *x, const char *b, const int size) {
    const __m256i both = dwords_of_blocks(b, size, 0);
    x->scale = f16_of_dwords(_mm256_and_si256(both, _mm256_set1_epi32(0xffff)));
    x->min = f16_of_dwords(_mm256_srli_epi32(both, 16));
}
UNPACK_INLINE V scales_of_mxfp4(const char *b) {
    const int size = sizeof(block_mxfp4);
    return scales_mxfp4(_mm_setr_epi8(
        b[0], b[size], b[2 * size], b[3 * size], b[4 * size], b[5 * size], b[6 * size], b[7 * size], 0, 0, 0, 0, 0, 0, 0, 0));
}
#endif

// ---- blocks of 32 ----

UNPACK_INLINE void lanes_q8_0(struct x_chunk *x, const block_q8_0 *b) {
    x->scale = f16_of_blocks((const char *) b, sizeof *b);
    _Pragma("GCC unroll 2") for (int h = 0; h < 2; h++) {
        VI t[4];
        quads_of_blocks(t, b, sizeof *b, offsetof(block_q8_0, qs) + (size_t) (16 * h));
        _Pragma("GCC unroll 4") for (int j = 0; j < 4; j++) {
            put_8bit(x->v, 4 * h + j, WIDE ? t[j] : VI_OP(add_epi8)(t[j], BYTE_ALL(128)));
        }
    }
}

// Low nibbles are elements 0 to 15, high nibbles 16 to 31.
UNPACK_INLINE void nibbles_of_blocks(VI *v, const void *b, const size_t size, const size_t off) {
    VI t[4];
    quads_of_blocks(t, b, size, off);
    _Pragma("GCC unroll 4") for (int j = 0; j < 4; j++) {
        v[j] = LOW4(t[j]);
        v[4 + j] = HIGH4(t[j]);
    }
}

UNPACK_INLINE void lanes_q4_0(struct x_chunk *x, const block_q4_0 *b) {
    x->scale = f16_of_blocks((const char *) b, sizeof *b);
    nibbles_of_blocks(x->v, b, sizeof *b, offsetof(block_q4_0, qs));
}

UNPACK_INLINE void lanes_q4_1(struct x_chunk *x, const block_q4_1 *b) {
    two_f16_of_blocks(x, (const char *) b, sizeof *b);
    nibbles_of_blocks(x->v, b, sizeof *b, offsetof(block_q4_1, qs));
}

UNPACK_INLINE void lanes_iq4_nl(struct x_chunk *x, const block_iq4_nl *b) {
    VI t[8];
    x->scale = f16_of_blocks((const char *) b, sizeof *b);
    nibbles_of_blocks(t, b, sizeof *b, offsetof(block_iq4_nl, qs));
    _Pragma("GCC unroll 8") for (int j = 0; j < 8; j++) {
        put_8bit(x->v, j, VI_OP(shuffle_epi8)(table_iq4_all(), t[j]));
    }
}

UNPACK_INLINE void lanes_mxfp4(struct x_chunk *x, const block_mxfp4 *b) {
    x->scale = scales_of_mxfp4((const char *) b);
    nibbles_of_blocks(x->v, b, sizeof *b, offsetof(block_mxfp4, qs));
    _Pragma("GCC unroll 8") for (int j = 0; j < 8; j++) {
        x->v[j] = VI_OP(shuffle_epi8)(table_all(table_mxfp4_plus_12), x->v[j]);
    }
}

// Adds 16 to the elements whose bit is set. Lane i of `bits` holds 32 bits of block i.
UNPACK_INLINE void add_fifth_bits(VI *v, VI bits) {
    _Pragma("GCC unroll 8") for (int j = 0; j < 8; j++) {
        const int pick = 0x01010101 * (j / 2);
        const __m128i from = _mm_setr_epi32(pick, pick + 0x04040404, pick + 0x08080808, pick + 0x0c0c0c0c);
        const int bit = j % 2 == 0 ? 0x08040201 : (int) 0x80402010;
#ifdef __AVX512F__
        const __m512i each = _mm512_shuffle_epi8(bits, _mm512_broadcast_i32x4(from));
        v[j] = _mm512_mask_add_epi8(v[j], _mm512_test_epi8_mask(each, _mm512_set1_epi32(bit)), v[j], _mm512_set1_epi8(16));
#else
        const __m256i mask = _mm256_set1_epi32(bit);
        const __m256i each = _mm256_and_si256(_mm256_shuffle_epi8(bits, _mm256_broadcastsi128_si256(from)), mask);
        v[j] = _mm256_or_si256(v[j], _mm256_and_si256(_mm256_cmpeq_epi8(each, mask), _mm256_set1_epi8(16)));
#endif
    }
}

UNPACK_INLINE void lanes_q5_0(struct x_chunk *x, const block_q5_0 *b) {
    x->scale = f16_of_blocks((const char *) b, sizeof *b);
    nibbles_of_blocks(x->v, b, sizeof *b, offsetof(block_q5_0, qs));
    add_fifth_bits(x->v, dwords_of_blocks((const char *) b, sizeof *b, offsetof(block_q5_0, qh)));
}

UNPACK_INLINE void lanes_q5_1(struct x_chunk *x, const block_q5_1 *b) {
    two_f16_of_blocks(x, (const char *) b, sizeof *b);
    nibbles_of_blocks(x->v, b, sizeof *b, offsetof(block_q5_1, qs));
    add_fifth_bits(x->v, dwords_of_blocks((const char *) b, sizeof *b, offsetof(block_q5_1, qh)));
}

// ---- blocks of 64 and 128 ----

// Lane l has the scale of block l / 4.
UNPACK_INLINE long long f16_in_4(const uint16_t *h) {
    return (long long) (*h * 0x0001000100010001ull);
}
#ifdef __AVX512F__
#    define F16_IN_4(b) \
        _mm512_cvtph_ps(_mm256_setr_epi64x(f16_in_4(&b[0].d), f16_in_4(&b[1].d), f16_in_4(&b[2].d), f16_in_4(&b[3].d)))
#else
#    define F16_IN_4(b) _mm256_cvtph_ps(_mm_set_epi64x(f16_in_4(&b[1].d), f16_in_4(&b[0].d)))
#endif

// The columns of q1_0 and q2_0 have the order of transpose_quads. A bit of q1_0 becomes 2 or 0, which is too large by 1.
UNPACK_INLINE void lanes_q1_0(struct x_chunk *x, const block_q1_0 *b) {
    VI q = pieces(b->qs, sizeof *b);
    x->scale = F16_IN_4(b);
    x->v[0] = VI_AND(VI_OP(slli_epi16)(q, 1), BYTE_ALL(2));
    _Pragma("GCC unroll 7") for (int s = 1; s < 8; s++) {
        x->v[s] = VI_AND(q, BYTE_ALL(2));
        q = VI_OP(srli_epi16)(q, 1);
    }
}

UNPACK_INLINE void lanes_q2_0(struct x_chunk *x, const block_q2_0 *b) {
    VI q = pieces(b->qs, sizeof *b);
    x->scale = F16_IN_4(b);
    _Pragma("GCC unroll 4") for (int s = 0; s < 4; s++) {
        x->v[s] = VI_AND(q, BYTE_ALL(3));
        q = VI_OP(srli_epi16)(q, 2);
    }
}

// A run is two words of 4 bytes: low nibbles first, then high nibbles.
UNPACK_INLINE void lanes_nvfp4(struct x_chunk *x, const block_nvfp4 *b) {
    const VI q0 = pieces(b->qs, sizeof *b), q1 = pieces(b->qs + 16, sizeof *b), table = table_all(table_mxfp4_plus_12);
    const VI words[2] = {VI_SHUFFLE(q0, q1, 0x88), VI_SHUFFLE(q0, q1, 0xdd)};
#ifdef __AVX512F__
    const __m128i s = _mm_setr_epi32((int) u32_at(b[0].d), (int) u32_at(b[1].d), (int) u32_at(b[2].d), (int) u32_at(b[3].d));
    const __m256i f16 = _mm256_slli_epi16(_mm256_cvtepu8_epi16(bytes_of_scales_nvfp4(s)), 7);
    x->scale = _mm512_mul_ps(_mm512_cvtph_ps(f16), _mm512_set1_ps(NVFP4_FACTOR));
#else
    x->scale = scales_nvfp4(_mm_setr_epi32((int) u32_at(b[0].d), (int) u32_at(b[1].d), 0, 0));
#endif
    _Pragma("GCC unroll 2") for (int j = 0; j < 2; j++) {
        x->v[j] = VI_OP(shuffle_epi8)(table, LOW4(words[j]));
        x->v[2 + j] = VI_OP(shuffle_epi8)(table, HIGH4(words[j]));
    }
}

// ---- blocks of 256 ----

#define SHUFFLE16(v, ...) _mm_shuffle_epi8(v, _mm_setr_epi8(__VA_ARGS__))
#define IN_NIBBLES(v, first) \
    SHUFFLE16(v, first, first, first + 2, first + 2, first + 4, first + 4, first + 6, first + 6, first + 1, first + 1, \
        first + 3, first + 3, first + 5, first + 5, first + 7, first + 7)
#define IN_EIGHTS(v) SHUFFLE16(v, 0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 6, 7, 12, 13, 14, 15)
#define IN_LOW_HIGH(v) SHUFFLE16(v, 0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7)

// Returns the bytes of the lanes of chunk i as floats, times d.
UNPACK_INLINE V numbers(__m128i bytes, int i, V d) {
#ifdef __AVX512F__
    (void) i;
    return _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes)), d);
#else
    return _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(i == 0 ? bytes : _mm_srli_si128(bytes, 8))), d);
#endif
}

UNPACK_INLINE void put_scales(struct x_chunk *x, __m128i bytes, float d) {
    for (int i = 0; i < CHUNKS; i++) {
        x[i].scale = numbers(bytes, i, V_ALL(d));
    }
}

UNPACK_INLINE void put_mins(struct x_chunk *x, __m128i bytes, const uint16_t *d) {
    for (int i = 0; i < CHUNKS; i++) {
        x[i].min = numbers(bytes, i, V_ALL(f16_as_float(d)));
    }
}

// Stores the scales and minima of q4_K and q5_K, which have 8 of each. d: the factors of both.
UNPACK_INLINE void put_nibbles_scales(struct x_chunk *x, __m128i bytes, const uint16_t *d) {
#ifdef __AVX512F__
    int32_t two;
    memcpy(&two, d, sizeof two);
    const __m512i in_halves = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
    const __m512i order = _mm512_setr_epi32(0, 0, 2, 2, 4, 4, 6, 6, 1, 1, 3, 3, 5, 5, 7, 7);
    const __m512 factors = _mm512_permutexvar_ps(in_halves, _mm512_castps128_ps512(_mm_cvtph_ps(_mm_cvtsi32_si128(two))));
    const __m512 all = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes)), factors);
    x->scale = _mm512_permutexvar_ps(order, all);
    x->min = _mm512_permutexvar_ps(_mm512_add_epi32(order, _mm512_set1_epi32(8)), all);
#else
    put_scales(x, IN_NIBBLES(bytes, 0), f16_as_float(d));
    put_mins(x, IN_NIBBLES(bytes, 8), d + 1);
#endif
}

// Bits of two, four or eight runs share bytes. A lane's number is 8 * e + i.
#ifdef __AVX512F__
#    define LANE_E(l) ((l) / 8)
#    define LANE_I(l) ((l) % 8)
#    define EACH_LANE(f) \
        _mm512_setr_epi32(f(0), f(1), f(2), f(3), f(4), f(5), f(6), f(7), f(8), f(9), f(10), f(11), f(12), f(13), f(14), f(15))
#    define QUAD_I(l) (4 * LANE_I(l))                        // eight pieces of 16 bytes
#    define QUAD_EIGHTS(l) (LANE_I(l) / 4 * 8 + (l) % 2 * 4) // four pieces
#    define QUAD_TWO(l) ((l) % 2 * 4)                        // two pieces
#    define BIT_NIBBLE(l) (4 * LANE_E(l))
#    define BIT_PAIR(l) (2 * (2 * LANE_E(l) + LANE_I(l) % 4 / 2))
#    define TO_FIFTH(l) (4 - (LANE_I(l) / 2 * 2 + LANE_E(l)))       // q5_K
#    define TO_HIGH_2(l) (4 - BIT_PAIR(l))                          // q6_K
#    define TO_THIRD(l) (2 - (LANE_I(l) / 4 * 4 + BIT_PAIR(l) / 2)) // q3_K

UNPACK_INLINE __m512i quad_index(__m512i first, int j) {
    return _mm512_add_epi32(first, _mm512_set1_epi32(j));
}
// Returns n bits of each byte, from bit from(lane). Two lanes of the same 8 bytes have the same bits.
#    ifdef __GFNI__
#        define BITS_OF_LANES(v, n, from) \
            _mm512_gf2p8affine_epi64_epi8(v, \
                _mm512_setr_epi64(BITS_MATRIX(n, from(0)), BITS_MATRIX(n, from(2)), BITS_MATRIX(n, from(4)), \
                    BITS_MATRIX(n, from(6)), BITS_MATRIX(n, from(8)), BITS_MATRIX(n, from(10)), BITS_MATRIX(n, from(12)), \
                    BITS_MATRIX(n, from(14))), \
                0)
#    else
#        define BITS_OF_LANES(v, n, from) VI_AND(_mm512_srlv_epi32(v, EACH_LANE(from)), BYTE_ALL((1 << (n)) - 1))
#    endif
UNPACK_INLINE __m512i nibbles_256(const uint8_t *qs, int j) {
    const __m512i q = _mm512_permutex2var_epi32(VI_LOAD(qs), quad_index(EACH_LANE(QUAD_I), j), VI_LOAD(qs + 64));
    return BITS_OF_LANES(q, 4, BIT_NIBBLE);
}
UNPACK_INLINE __m512i pairs_256(const uint8_t *qs, int j) {
    const __m512i q = _mm512_permutexvar_epi32(quad_index(EACH_LANE(QUAD_EIGHTS), j), VI_LOAD(qs));
    return BITS_OF_LANES(q, 2, BIT_PAIR);
}
// Rotates lanes, so that the bits of a lane's run get to the position that `mask` selects, and adds these bits to v.
UNPACK_INLINE __m512i or_rotated(__m512i v, __m512i raw, __m512i index, __m512i by, int mask) {
    return _mm512_ternarylogic_epi32(v, _mm512_rolv_epi32(_mm512_permutexvar_epi32(index, raw), by), BYTE_ALL(mask), 0xf8);
}
UNPACK_INLINE __m512i load_half(const uint8_t *at) {
    return _mm512_castsi256_si512(load32(at));
}

#    define UNPACK_K(type, at_j) \
        UNPACK_INLINE void bytes_##type(struct x_chunk *x, const block_##type *b) { \
            _Pragma("GCC unroll 4") for (int j = 0; j < 4; j++) { \
                at_j; \
            } \
        }
UNPACK_K(q4_K, x->v[j] = nibbles_256(b->qs, j))
UNPACK_K(q5_K,
    x->v[j] = or_rotated(nibbles_256(b->qs, j), load_half(b->qh), quad_index(EACH_LANE(QUAD_TWO), j), EACH_LANE(TO_FIFTH), 0x10))
UNPACK_K(q6_K, x->v[j] = or_rotated(
                   nibbles_256(b->ql, j), VI_LOAD(b->qh), quad_index(EACH_LANE(QUAD_EIGHTS), j), EACH_LANE(TO_HIGH_2), 0x30))
UNPACK_K(q2_K, x->v[j] = pairs_256(b->qs, j))
UNPACK_K(tq2_0, x->v[j] = pairs_256(b->qs, j))
UNPACK_K(q3_K,
    x->v[j] = or_rotated(pairs_256(b->qs, j), load_half(b->hmask), quad_index(EACH_LANE(QUAD_TWO), j), EACH_LANE(TO_THIRD), 4))
UNPACK_K(iq4_xs, put_8bit(x->v, j, _mm512_shuffle_epi8(table_iq4_all(), nibbles_256(b->qs, j))))
#else
// Returns words 4 to 7 of each half from b, the others from a.
#    define LAST_HALVES(a, b) _mm256_blend_epi16(a, b, 0xf0)

// Lanes 2 and 3 of each half are shifted by two bits: h holds pairs of bits of four runs.
UNPACK_INLINE void pairs_across(__m256i t[4], const uint8_t *qs) {
    const __m256i u0 = both(qs, qs + 32), u1 = both(qs + 16, qs + 48);
    quads_across(t, u0, u1, _mm256_srli_epi16(u0, 2), _mm256_srli_epi16(u1, 2));
}

UNPACK_INLINE void bytes_q4_K(struct x_chunk *x, const block_q4_K *b) {
    VI t[4];
    quads_of_blocks(t, b->qs, 16, 0);
    for (int j = 0; j < 4; j++) {
        x[0].v[j] = LOW4(t[j]);
        x[1].v[j] = HIGH4(t[j]);
    }
}

UNPACK_INLINE void bytes_q5_K(struct x_chunk *x, const block_q5_K *b) {
    const __m128i h0 = _mm_loadu_si128((const void *) b->qh), h1 = _mm_loadu_si128((const void *) (b->qh + 16));
    const __m256i u0 = _mm256_set_m128i(_mm_srli_epi16(h0, 4), h0), u1 = _mm256_set_m128i(_mm_srli_epi16(h1, 4), h1);
    VI t[4], h[4];
    quads_of_blocks(t, b->qs, 16, 0);
    quads_across(h, u0, u1, _mm256_srli_epi16(u0, 2), _mm256_srli_epi16(u1, 2));
    for (int j = 0; j < 4; j++) {
        x[0].v[j] = _mm256_or_si256(LOW4(t[j]), BITS_UP(h[j], 4, 0x10));
        x[1].v[j] = _mm256_or_si256(HIGH4(t[j]), BITS_UP(h[j], 3, 0x10));
    }
}

UNPACK_INLINE void bytes_q6_K(struct x_chunk *x, const block_q6_K *b) {
    const __m256i u0 = both(b->qh, b->qh + 32), u1 = both(b->qh + 16, b->qh + 48);
    VI t[4], h[4];
    quads_of_blocks(t, b->ql, 16, 0);
    quads_across(h, u0, u1, u0, u1);
    for (int j = 0; j < 4; j++) {
        const __m256i first = LAST_HALVES(_mm256_slli_epi16(h[j], 4), _mm256_slli_epi16(h[j], 2));
        const __m256i last = LAST_HALVES(h[j], _mm256_srli_epi16(h[j], 2));
        x[0].v[j] = _mm256_or_si256(LOW4(t[j]), _mm256_and_si256(first, _mm256_set1_epi8(0x30)));
        x[1].v[j] = _mm256_or_si256(HIGH4(t[j]), _mm256_and_si256(last, _mm256_set1_epi8(0x30)));
    }
}

#    define BYTES_OF_PAIRS(type) \
        UNPACK_INLINE void bytes_##type(struct x_chunk *x, const block_##type *b) { \
            VI t[4]; \
            pairs_across(t, b->qs); \
            for (int j = 0; j < 4; j++) { \
                x[0].v[j] = BITS_AT(t[j], 0, 3); \
                x[1].v[j] = BITS_AT(t[j], 4, 3); \
            } \
        }
BYTES_OF_PAIRS(q2_K)
BYTES_OF_PAIRS(tq2_0)

UNPACK_INLINE void bytes_q3_K(struct x_chunk *x, const block_q3_K *b) {
    const __m128i h0 = _mm_loadu_si128((const void *) b->hmask), h1 = _mm_loadu_si128((const void *) (b->hmask + 16));
    const __m256i u0 = _mm256_set_m128i(_mm_srli_epi16(h0, 4), h0), u1 = _mm256_set_m128i(_mm_srli_epi16(h1, 4), h1);
    VI t[4], h[4];
    pairs_across(t, b->qs);
    quads_across(h, u0, u1, _mm256_srli_epi16(u0, 1), _mm256_srli_epi16(u1, 1));
    for (int j = 0; j < 4; j++) {
        x[0].v[j] = _mm256_or_si256(BITS_AT(t[j], 0, 3), BITS_UP(h[j], 2, 4));
        x[1].v[j] = _mm256_or_si256(BITS_AT(t[j], 4, 3), BITS_AT(h[j], 0, 4));
    }
}

UNPACK_INLINE void bytes_iq4_xs(struct x_chunk *x, const block_iq4_xs *b) {
    VI t[4];
    quads_of_blocks(t, b->qs, 16, 0);
    for (int j = 0; j < 4; j++) {
        put_8bit(x[0].v, j, _mm256_shuffle_epi8(table_iq4_all(), LOW4(t[j])));
        put_8bit(x[1].v, j, _mm256_shuffle_epi8(table_iq4_all(), HIGH4(t[j])));
    }
}
#endif

#define LANES_K(type, put) \
    UNPACK_INLINE void lanes_##type(struct x_chunk *x, const block_##type *b) { \
        const __m128i scales = scales_##type(b); \
        put; \
        bytes_##type(x, b); \
    }
LANES_K(q4_K, put_nibbles_scales(x, scales, &b->d))
LANES_K(q5_K, put_nibbles_scales(x, scales, &b->d))
LANES_K(q2_K, put_scales(x, IN_EIGHTS(scales), d_q2_K(b)); put_mins(x, IN_EIGHTS(mins_q2_K(b)), &b->dmin))
LANES_K(q3_K, put_scales(x, IN_EIGHTS(scales), d_q3_K(b)))
LANES_K(q6_K, put_scales(x, IN_EIGHTS(scales), d_q6_K(b)))
LANES_K(iq4_xs, put_scales(x, IN_LOW_HIGH(scales), d_iq4_xs(b)))
LANES_K(tq2_0, put_scales(x, scales, d_tq2_0(b)))

// Two vectors of 32 elements, j and j + 4, are one vector of AVX-512.
#ifdef __AVX512F__
#    define TWO_CELLS(v, j) _mm512_inserti64x4(_mm512_castsi256_si512((v)[j]), (v)[(j) + 4], 1)
#else
#    define TWO_CELLS(v, j) (v)[j]
#endif
#define IN_CELLS_16(v) SHUFFLE16(v, 0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15)
#define IN_CELLS_8(v) SHUFFLE16(v, 0, 1, 2, 3, 0, 1, 2, 3, 4, 5, 6, 7, 4, 5, 6, 7)
#define LANES_IQ(TYPE, type, n_runs, offset) \
    UNPACK_INLINE void lanes_##type(struct x_chunk *x, const block_##type *b) { \
        __m256i v[8]; \
        unpack_##type(b, v); \
        put_scales(x, IN_CELLS_##n_runs(scales_##type(b)), d_##type(b)); \
        _Pragma("GCC unroll 2") for (int i = 0; i < CHUNKS; i++) { \
            quads_across( \
                x[i].v, TWO_CELLS(v, 4 * i), TWO_CELLS(v, 4 * i + 1), TWO_CELLS(v, 4 * i + 2), TWO_CELLS(v, 4 * i + 3)); \
        } \
    }
IQ_FORMATS(LANES_IQ)
