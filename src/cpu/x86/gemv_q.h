// SPDX-License-Identifier: MIT
// gemv_q.h: products of quantised rows with a few columns, for all tiers (kernels.h: cpu_gemv). A chunk (lanes.h) of a row is
// unpacked to registers and multiplied with the chunks of all columns. The sums of a row and a column are added in the same order for
// any number of columns. So the result does not depend on the number of columns.
//
// A packed column is in chunks, too: [LANES scales] [LANES initial values or sums] [the vectors that are multiplied with those of x].
// `initial` is the integer that the sum of a run starts with: -offset * sum of the column's run. Formats with minima have `sum`
// instead: scale * sum of the column's run, which is multiplied with the minimum. It is negated for blocks of 256, which subtract
// the minimum. In some tiers, the chunks of a unit are followed by the bytes in the order in which one_column.h reads them, and by
// the sums of runs of 16 elements.
#pragma once

#include "base/min.h"
#include "cpu/kernels.h"
#include "cpu/x86/ahead.h"
#include "cpu/x86/lanes.h"
#include "cpu/x86/one_column.h"

#ifdef __AVX512F__
#    define HAS_PLAIN(form) (form).is_plain
#else
#    define HAS_PLAIN(form) (!(form).is_packed && (WIDE || (form).is_256)) // VNNI is fast enough for blocks of 32
#endif
#define FEW 3         // up to FEW columns, the sums are in registers
#define FOUR 4        // rows whose sums are added across lanes together
#define ROWS 16       // rows whose sums are kept in memory
#define Y_SIZE 24576u // bytes of columns that stay in the L1 cache
#define EACH_COL(c) _Pragma("GCC unroll 4") for (int c = 0; c < n_cols; c++)

// n_vecs: vectors of a chunk. n_sums: vectors whose products are added in 16 bits before they are widened (without VNNI). is_packed:
// the runs of a row are in lanes already, so one column needs no order of its own. is_plain: one column is multiplied
// by one_column.h in tiers with AVX-512, too.
struct form {
    int n_vecs, n_sums;
    bool is_wide, has_min, is_256, is_packed, is_plain;
};
static const struct form form_8bit = {8 << WIDE, 1, .is_wide = WIDE}; // q8_0, iq4_nl
static const struct form form_4bit = {8, 8, .is_wide = false};
static const struct form form_5bit = {8, 4, .is_plain = !WIDE}; // q5_0
static const struct form form_mxfp4 = {8, 4, .is_wide = false};
static const struct form form_4bit_min = {8, 8, .has_min = true};
static const struct form form_5bit_min = {8, 4, .has_min = true, .is_plain = !WIDE};
static const struct form form_k_8bit = {4 << WIDE, 1, .is_wide = WIDE, .is_256 = true}; // iq4_xs
static const struct form form_k_3bit = {4, 4, .is_256 = true};                          // q3_K, tq2_0
static const struct form form_k_6bit = {4, 2, .is_256 = true};
static const struct form form_k_min = {4, 4, .has_min = true, .is_256 = true};
static const struct form form_iq_64 = {4, 1, .is_256 = true, .is_plain = true}; // by the offset of unpack_iq.h
static const struct form form_iq_16 = {4, 4, .is_256 = true, .is_plain = true};
static const struct form form_iq_1 = {4, 4, .is_256 = true, .is_plain = true};
static const struct form form_q1_0 = {8, 8, .is_packed = true};
static const struct form form_16 = {4, 4, .is_packed = true}; // q2_0, nvfp4
#define Y_CHUNK(form) ((size_t) V_BYTES * (size_t) (2 + (form).n_vecs))
// Bytes in the order of the row. In blocks of 256, 16 sums of 16 bits follow. The next unit is aligned to vectors.
#define PLAIN_SIZE(form) ((form).is_256 ? 256 + (size_t) V_BYTES : 32 * (size_t) LANES)
#define Y_CHUNKS(form) ((form).is_256 ? CHUNKS * Y_CHUNK(form) : Y_CHUNK(form))
#define Y_UNIT(form) (Y_CHUNKS(form) + (HAS_PLAIN(form) ? PLAIN_SIZE(form) : 0))

// ---- the column ----

UNPACK_INLINE void put_float(char *to, float v) {
    memcpy(to, &v, sizeof v);
}
UNPACK_INLINE void put_int(char *to, int32_t v) {
    memcpy(to, &v, sizeof v);
}

// Stores `n` quads of a run in a lane of a chunk.
UNPACK_INLINE void put_run(char *chunk, int lane, const int8_t *q, const int n, const bool is_wide) {
    char *to = chunk + 2 * V_BYTES + 4 * lane;
    for (int j = 0; j < n; j++, q += 4) {
        if (is_wide) {
            const int16_t odd[2] = {q[0], q[2]}, even[2] = {q[1], q[3]};
            memcpy(to + V_BYTES * (2 * j), odd, sizeof odd);
            memcpy(to + V_BYTES * (2 * j + 1), even, sizeof even);
        } else {
            memcpy(to + V_BYTES * j, q, 4);
        }
    }
}

// Stores block j in the order in which one_column.h reads it.
UNPACK_INLINE void put_plain(char *unit, int j, const int8_t *q, const struct form form, const bool in_vectors) {
    const int per = V_BYTES / 16;
    char *to = unit + Y_CHUNKS(form) + (in_vectors ? 2 * V_BYTES * (j / per) + 16 * (j % per) : 32 * j);
    if (HAS_PLAIN(form)) {
        memcpy(to, q, 16);
        memcpy(to + (in_vectors ? V_BYTES : 16), q + 16, 16);
    }
}

// The last chunk of a column may have fewer than LANES blocks. Other lanes are 0.
#define PACK_32(name, block, TYPE, form, in_vectors, initial) \
    static void pack_##name(CPU_TABLE, int64_t n, void *panel, const float *y) { \
        char *to = panel; \
        for (int64_t i = 0; i < n; i += 32 * LANES, to += Y_UNIT(form)) { \
            const int m = n - i < 32 * LANES ? (int) (n - i) : 32 * LANES; \
            block b[LANES]; \
            k->traits[TYPE].from_float(y + i, b, m); \
            if (m < 32 * LANES) { \
                memset(to, 0, Y_UNIT(form)); \
            } \
            for (int j = 0; j < m / 32; j++) { \
                put_float(to + 4 * j, f16_as_float(&b[j].d)); \
                initial; \
                put_run(to, j, b[j].qs, 8, (form).is_wide); \
                put_plain(to, j, b[j].qs, form, in_vectors); \
            } \
        } \
    }
#define PACK_OFFSET(name, form, offset, in_vectors) \
    PACK_32(name, block_q8_0, GGML_TYPE_Q8_0, form, in_vectors, put_int(to + V_BYTES + 4 * j, -(offset) *sum_bytes(b[j].qs)))
PACK_OFFSET(q8_0, form_8bit, 128, false)
PACK_OFFSET(iq4_nl, form_8bit, 128, true)
PACK_OFFSET(offset_8, form_4bit, 8, true)
PACK_OFFSET(offset_16, form_5bit, 16, true)
PACK_OFFSET(offset_12, form_mxfp4, 12, true)
PACK_32(q1_0, block_q8_0, GGML_TYPE_Q8_0, form_q1_0, false, transpose_quads(b[j].qs, 8);
        put_int(to + V_BYTES + 4 * j, -sum_bytes(b[j].qs)))
#define PACK_MIN(name, form) \
    PACK_32(name, block_q8_1, GGML_TYPE_Q8_1, form, true, put_float(to + V_BYTES + 4 * j, f16_as_float(&b[j].s)))
PACK_MIN(min_4bit, form_4bit_min)
PACK_MIN(min_5bit, form_5bit_min)

// Lanes have 16 elements. n_across: the argument of transpose_quads.
#define PACK_16(name, n_across, offset) \
    static void pack_##name(CPU_TABLE, int64_t n, void *panel, const float *y) { \
        char *to = panel; \
        for (int64_t i = 0; i < n; i += 16 * LANES, to += Y_UNIT(form_16)) { \
            const int m = n - i < 16 * LANES ? (int) (n - i) : 16 * LANES; \
            block_q8_0 b[LANES / 2]; \
            k->traits[GGML_TYPE_Q8_0].from_float(y + i, b, m); \
            if (m < 16 * LANES) { \
                memset(to, 0, Y_UNIT(form_16)); \
            } \
            for (int j = 0; j < m / 32; j++) { \
                transpose_quads(b[j].qs, n_across); \
                for (int lane = 2 * j; lane < 2 * j + 2; lane++) { \
                    const int8_t *q = b[j].qs + 16 * (lane % 2); \
                    put_float(to + 4 * lane, f16_as_float(&b[j].d)); \
                    put_int(to + V_BYTES + 4 * lane, -(offset) *sum_16(q)); \
                    put_run(to, lane, q, 4, false); \
                } \
            } \
        } \
    }
PACK_16(q2_0, 4, 1)
PACK_16(nvfp4, 1, 12)

#define PACK_256(name, form, order, offset) \
    static void pack_##name(CPU_TABLE, int64_t n, void *panel, const float *y) { \
        char *to = panel; \
        for (int64_t i = 0; i < n; i += QK_K) { \
            block_q8_K b; \
            k->traits[GGML_TYPE_Q8_K].from_float(y + i, &b, QK_K); \
            for (int l = 0; l < 16; l++) { \
                const int run = (order)[l], lane = l % LANES; \
                put_float(to + 4 * lane, b.d); \
                if ((form).has_min) { \
                    put_float(to + V_BYTES + 4 * lane, -b.d * (float) b.bsums[run]); \
                } else { \
                    put_int(to + V_BYTES + 4 * lane, -(offset) *b.bsums[run]); \
                } \
                put_run(to, lane, b.qs + 16 * run, 4, (form).is_wide); \
                to += lane == LANES - 1 ? Y_CHUNK(form) : 0; \
            } \
            if (HAS_PLAIN(form)) { \
                memcpy(to, b.qs, sizeof b.qs); \
                memcpy(to + sizeof b.qs, b.bsums, sizeof b.bsums); \
                to += PLAIN_SIZE(form); \
            } \
        } \
    }
PACK_256(k_nibbles, form_k_min, order_nibbles, 0)
PACK_256(k_pairs, form_k_min, order_eights, 0)
PACK_256(k_offset_4, form_k_3bit, order_eights, 4)
PACK_256(k_offset_32, form_k_6bit, order_eights, 32)
PACK_256(k_8bit, form_k_8bit, order_low_high, 128)
PACK_256(k_offset_1, form_k_3bit, order_eights, 1)
PACK_256(iq_64, form_iq_64, order_cells, 64)
PACK_256(iq_16, form_iq_16, order_cells, 16)
PACK_256(iq_1, form_iq_1, order_cells, 1)

// ---- a chunk of a row and some columns ----

UNPACK_INLINE VI dot_words(VI sum, VI x, VI y) {
    return VI_OP(add_epi32)(sum, VI_OP(madd_epi16)(x, y));
}

// Prevents the compiler from reordering additions, which would require more registers.
#ifdef __AVX2__
#    define KEEP(v) __asm__("" : "+v"(v))
#else
#    define KEEP(v) __asm__("" : "+x"((v).lo), "+x"((v).hi))
#endif

// Adds the products of the vectors x and y to the integer sums t.
UNPACK_INLINE VI dot_vecs(VI t, const VI *x, const char *y, const struct form form) {
#if WIDE
    if (!form.is_wide) {
        VI p = VI_ZERO();
        _Pragma("GCC unroll 8") for (int j = 0; j < form.n_vecs; j++) {
            const VI two = VI_OP(maddubs_epi16)(x[j], VI_LOAD((const void *) (y + V_BYTES * j)));
            p = j % form.n_sums == 0 ? two : VI_OP(add_epi16)(p, two);
            KEEP(p);
            if (j % form.n_sums == form.n_sums - 1) {
                t = dot_words(t, p, VI_OP(set1_epi16)(1));
            }
        }
        return t;
    }
#endif
    _Pragma("GCC unroll 16") for (int j = 0; j < form.n_vecs; j++) {
        const VI v = VI_LOAD((const void *) (y + V_BYTES * j));
#if WIDE
        t = dot_words(t, x[j], v);
        KEEP(t);
#elif defined __AVX512F__
        t = _mm512_dpbusd_epi32(t, x[j], v);
#else
        t = _mm256_dpbusd_avx_epi32(t, x[j], v);
#endif
    }
    return t;
}

// Returns sum + the product of a chunk of a row and a chunk of a column.
UNPACK_INLINE V multiply(V sum, const struct x_chunk *x, const char *y, const struct form form) {
    const float *d = (const void *) y;
    const char *second = y + V_BYTES;
    VI t = form.has_min || form.is_wide ? VI_ZERO() : VI_LOAD((const void *) second);
    t = dot_vecs(t, x->v, second + V_BYTES, form);
    sum = V_FMA(VI_OP(cvtepi32_ps)(t), V_PS(mul)(x->scale, form.is_256 ? V_ALL(d[0]) : V_LOAD(d)), sum);
    return form.has_min ? V_FMA(x->min, V_LOAD((const float *) (const void *) second), sum) : sum;
}

// ---- rows ----

// sum: FOUR sums of each column, ld vectors apart.
UNPACK_INLINE void store_sums(float *const *s, int64_t r, int nx, const V *sum, int ld, int ny) {
    for (int c = 0; c < ny; c++) {
        float four[FOUR];
        const __m128 sums = sums_across4(sum + ld * c);
        if (nx >= FOUR) {
            _mm_storeu_ps(s[c] + r, sums);
        } else {
            _mm_storeu_ps(four, sums);
            memcpy(s[c] + r, four, (size_t) nx * sizeof(float));
        }
    }
}

// Defines gemv_<type> and gemv_cols_<type>. `per` blocks of `length` elements are a unit of `chunks` chunks. unit_<type> returns unit
// i of a row. The last unit is copied if the row ends in it.
#define GEMV(type, form_name, per, length, chunks) \
    UNPACK_INLINE const block_##type *unit_##type(block_##type *copy, const char *row, int64_t i, int64_t n) { \
        const block_##type *b = (const block_##type *) (const void *) row + i * (per); \
        const int64_t left = n / (length) -i * (per); \
        if (left >= (per)) { \
            return b; \
        } \
        memset(copy, 0, (per) * sizeof *b); \
        memcpy(copy, b, (size_t) left * sizeof *b); \
        return copy; \
    } \
    UNPACK_INLINE void few_##type( \
        int64_t n, float *const *s, const char *x, size_t bx, int nx, const void *const *y, const int n_cols) { \
        V sum[FEW][FOUR], own[FEW]; \
        for (int i = 0; i < FEW * FOUR; i++) { \
            sum[i / FOUR][i % FOUR] = V_PS(setzero)(); \
        } \
        for (int64_t r = 0; r < nx; r++) { \
            EACH_COL(c) { \
                own[c] = V_PS(setzero)(); \
            } \
            for (int64_t i = 0; i * (per) * (length) < n; i++) { \
                block_##type copy[per]; \
                const block_##type *b = unit_##type(copy, x + (size_t) r * bx, i, n); \
                struct x_chunk chunk[chunks]; \
                prefetch_ahead(b, (per) * sizeof *b); \
                lanes_##type(chunk, b); \
                _Pragma("GCC unroll 2") for (size_t u = 0; u < (chunks); u++) { \
                    EACH_COL(c) { \
                        const char *at = (const char *) y[c] + (size_t) i * Y_UNIT(form_##form_name); \
                        own[c] = multiply(own[c], &chunk[u], at + u * Y_CHUNK(form_##form_name), form_##form_name); \
                    } \
                } \
            } \
            EACH_COL(c) { \
                sum[c][r % FOUR] = own[c]; \
            } \
            if (r % FOUR == FOUR - 1 || r == nx - 1) { \
                store_sums(s, r / FOUR * FOUR, (int) (r % FOUR) + 1, sum[0], FOUR, n_cols); \
            } \
        } \
    } \
    static inline void gemv_##type(int64_t n, float *s, const void *x, size_t bx, int nx, const void *y) { \
        few_##type(n, &s, x, bx, nx, &y, 1); \
    } \
    /* With long columns, all rows are multiplied with a part of the columns before the next part, so that it stays in L1. */ \
    static void many_##type( \
        int64_t n, float *const *s, const char *x, size_t bx, int nx, const void *const *y, int ny, int64_t n_units) { \
        const int64_t part = (int64_t) (Y_SIZE / ((size_t) ny * Y_CHUNKS(form_##form_name))); \
        const size_t ahead = part < n_units ? 2 * bx : AHEAD; \
        V sum[CPU_GEMV_COLS][ROWS]; \
        for (int c = 0; c < ny; c++) { \
            for (int r = 0; r < ROWS; r++) { \
                sum[c][r] = V_PS(setzero)(); \
            } \
        } \
        for (int64_t i0 = 0; i0 < n_units; i0 += part) { \
            const int64_t i1 = min_i64(i0 + part, n_units); \
            for (int r = 0; r < nx; r++) { \
                for (int64_t i = i0; i < i1; i++) { \
                    block_##type copy[per]; \
                    const block_##type *b = unit_##type(copy, x + (size_t) r * bx, i, n); \
                    struct x_chunk chunk[chunks]; \
                    prefetch_by(b, ahead, (per) * sizeof *b); \
                    lanes_##type(chunk, b); \
                    for (int c = 0; c < ny; c++) { \
                        const char *at = (const char *) y[c] + (size_t) i * Y_UNIT(form_##form_name); \
                        V own = sum[c][r]; \
                        _Pragma("GCC unroll 2") for (size_t u = 0; u < (chunks); u++) { \
                            own = multiply(own, &chunk[u], at + u * Y_CHUNK(form_##form_name), form_##form_name); \
                        } \
                        sum[c][r] = own; \
                    } \
                } \
            } \
        } \
        for (int r = 0; r < nx; r += FOUR) { \
            store_sums(s, r, nx - r, &sum[0][r], ROWS, ny); \
        } \
    } \
    static void gemv_cols_##type(int64_t n, float *const *s, const void *x, size_t bx, int nx, const void *const *y, int ny) { \
        if (ny == 2) { \
            few_##type(n, s, x, bx, nx, y, 2); \
        } else if (ny == 3) { \
            few_##type(n, s, x, bx, nx, y, 3); \
        } else { \
            float *to[CPU_GEMV_COLS]; \
            for (int r = 0; r < nx; r += ROWS) { \
                for (int c = 0; c < ny; c++) { \
                    to[c] = s[c] + r; \
                } \
                many_##type(n, to, (const char *) x + (size_t) r * bx, bx, min_int(nx - r, ROWS), y, ny, \
                    (n + (per) * (length) -1) / ((per) * (length))); \
            } \
        } \
    }
#define GEMV_32(type, form_name) GEMV(type, form_name, LANES, 32, 1)
#define GEMV_256(type, form_name) GEMV(type, form_name, 1, QK_K, CHUNKS)
GEMV_32(q8_0, 8bit)
GEMV_32(iq4_nl, 8bit)
GEMV_32(q4_0, 4bit)
GEMV_32(q5_0, 5bit)
GEMV_32(mxfp4, mxfp4)
GEMV_32(q4_1, 4bit_min)
GEMV_32(q5_1, 5bit_min)
GEMV_256(q4_K, k_min)
GEMV_256(q5_K, k_min)
GEMV_256(q2_K, k_min)
GEMV_256(q3_K, k_3bit)
GEMV_256(q6_K, k_6bit)
GEMV_256(iq4_xs, k_8bit)
GEMV_256(tq2_0, k_3bit)
#define GEMV_IQ(TYPE, type, n_runs, offset) GEMV_256(type, iq_##offset)
IQ_FORMATS(GEMV_IQ)
GEMV(q1_0, q1_0, LANES / 4, QK_Q1_0, 1)
GEMV(q2_0, 16, LANES / 4, QK_Q2_0, 1)
GEMV(nvfp4, 16, LANES / 4, QK_NVFP4, 1)

// ---- one column ----

// Defines one_<type>: the product of rows with one column in the order of the row. add_unit adds the product of unit b to sum.
#define ONE_COLUMN(type, form_name, per, length, VEC, sum_of, add_unit) \
    static void one_##type(int64_t n, float *s, const void *vx, size_t bx, int nx, const void *vy) { \
        for (int r = 0; r < nx; r++) { \
            const char *row = (const char *) vx + (size_t) r * bx, *y = vy; \
            VEC sum = {0}; \
            for (int64_t i = 0; i * (per) * (length) < n; i++, y += Y_UNIT(form_##form_name)) { \
                block_##type copy[per]; \
                const block_##type *b = unit_##type(copy, row, i, n); \
                const float *scale = (const void *) y; \
                const int8_t *qs = (const int8_t *) y + Y_CHUNKS(form_##form_name); \
                prefetch_ahead(b, (per) * sizeof *b); \
                add_unit; \
            } \
            s[r] = sum_of(sum); \
        } \
    }
#define ONE_256(type, form_name) \
    ONE_COLUMN(type, form_name, 1, QK_K, __m256, sum8, sum = add_##type(sum, b, qs, (const void *) (qs + 256), *scale))
#define ONE_32(type, form_name, scales_of, add_min_or_initial) \
    ONE_COLUMN(type, form_name, LANES, 32, V, SUM_V, const V d = V_PS(mul)(scales_of, V_LOAD(scale)); add_min_or_initial; \
               sum = add_##type(sum, b, qs, d))
#define ONE_IQ(TYPE, type, n_runs, offset) ONE_256(type, iq_##offset)
IQ_FORMATS(ONE_IQ)
#define SCALES f16_of_blocks((const char *) b, sizeof *b)
#define INITIAL sum = V_FMA(VI_OP(cvtepi32_ps)(VI_LOAD((const void *) (y + V_BYTES))), d, sum)
#define MINS sum = V_FMA(f16_of_blocks((const char *) b + 2, sizeof *b), V_LOAD(scale + LANES), sum)
#ifdef __AVX512F__
#    define SUM_V _mm512_reduce_add_ps
#    define ONE_K(type) gemv_##type
#    define ONE_B(type) gemv_##type
#else
#    define SUM_V sum8
#    define ONE_K(type) one_##type
ONE_256(q4_K, k_min)
ONE_256(q5_K, k_min)
ONE_256(q2_K, k_min)
ONE_256(q3_K, k_3bit)
ONE_256(q6_K, k_6bit)
ONE_256(iq4_xs, k_8bit)
ONE_256(tq2_0, k_3bit)
#    if WIDE
#        define ONE_B(type) one_##type
ONE_32(q8_0, 8bit, SCALES, (void) 0)
ONE_32(iq4_nl, 8bit, SCALES, (void) 0)
ONE_32(q4_0, 4bit, SCALES, INITIAL)
ONE_32(mxfp4, mxfp4, scales_of_mxfp4((const char *) b), INITIAL)
ONE_32(q4_1, 4bit_min, SCALES, MINS)
#    else
#        define ONE_B(type) gemv_##type
#    endif
#endif
#if WIDE != LANES / 16 // AVX2 without VNNI, AVX-512 with VNNI
#    define ONE_5BIT(type) one_##type
ONE_32(q5_0, 5bit, f16_one_by_one((const char *) b, sizeof *b), INITIAL)
ONE_COLUMN(q5_1, 5bit_min, LANES, 32, V, SUM_V, struct x_chunk f; two_f16_of_blocks(&f, (const char *) b, sizeof *b);
           sum = V_FMA(f.min, V_LOAD(scale + LANES), sum); sum = add_q5_1(sum, b, qs, V_PS(mul)(f.scale, V_LOAD(scale))))
#else
#    define ONE_5BIT(type) gemv_##type
#endif

void CPU_TIER_FILL(gemv_q)(struct cpu_kernels *k) {
#define ROW(TYPE, type, pack, form_name, n_step, one) \
    k->gemv[GGML_TYPE_##TYPE] = (struct cpu_gemv){ \
        .pack_y = pack_##pack, .run = one, .run_cols = gemv_cols_##type, .step = n_step, .y_size = Y_UNIT(form_##form_name)};
#define ROW_32(TYPE, type, pack, form_name) ROW(TYPE, type, pack, form_name, 32 * LANES, ONE_B(type))
#define ROW_256(TYPE, type, pack, form_name) ROW(TYPE, type, pack, form_name, QK_K, ONE_K(type))
    ROW_32(Q8_0, q8_0, q8_0, 8bit)
    ROW_32(IQ4_NL, iq4_nl, iq4_nl, 8bit)
    ROW_32(Q4_0, q4_0, offset_8, 4bit)
    ROW(Q5_0, q5_0, offset_16, 5bit, 32 * LANES, ONE_5BIT(q5_0))
    ROW_32(MXFP4, mxfp4, offset_12, mxfp4)
    ROW_32(Q4_1, q4_1, min_4bit, 4bit_min)
    ROW(Q5_1, q5_1, min_5bit, 5bit_min, 32 * LANES, ONE_5BIT(q5_1))
    ROW_256(Q4_K, q4_K, k_nibbles, k_min)
    ROW_256(Q5_K, q5_K, k_nibbles, k_min)
    ROW_256(Q2_K, q2_K, k_pairs, k_min)
    ROW_256(Q3_K, q3_K, k_offset_4, k_3bit)
    ROW_256(Q6_K, q6_K, k_offset_32, k_6bit)
    ROW_256(IQ4_XS, iq4_xs, k_8bit, k_8bit)
    ROW_256(TQ2_0, tq2_0, k_offset_1, k_3bit)
#define ROW_IQ(TYPE, type, n_runs, offset) ROW(TYPE, type, iq_##offset, iq_##offset, QK_K, one_##type)
    IQ_FORMATS(ROW_IQ)
    ROW(Q1_0, q1_0, q1_0, q1_0, 32 * LANES, gemv_q1_0)
    ROW(Q2_0, q2_0, q2_0, 16, 16 * LANES, gemv_q2_0)
    ROW(NVFP4, nvfp4, nvfp4, 16, 16 * LANES, gemv_nvfp4)
#undef ROW
#undef ROW_32
#undef ROW_256
#undef ROW_IQ
}
