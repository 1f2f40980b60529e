// SPDX-License-Identifier: MIT
// test_quant.c: tests block formats without the reference: known bytes, bounds of the error, edge cases, row checks.
#include "berth.h"
#include "quant/half.h"
#include "quant/quants.h"
#include "quant/round.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef void (*row_fn)(const float *, void *, int64_t);
typedef void (*deq_fn)(const void *, float *, int64_t);
typedef size_t (*rows_fn)(const float *, void *, int64_t, int64_t, const float *);

struct format {
    const char *name;
    enum ggml_type type;
    int qk;
    size_t block_size;
    rows_fn rows;
    deq_fn deq;
    double bound;            // largest relative squared error on a row of normally distributed elements (normal_row)
    bool has_search;         // Berth searches for the best block; a non-finite element makes all elements of its block NaN
    uint64_t bytes;          // hash of the blocks that the reference writes for a normal_row; 0: Berth writes other blocks
    uint64_t weighted_bytes; // the same with weights
};

#define DEQ(name) ((deq_fn) (void (*)(void)) dequantize_row_##name)
#define SIMPLE(name, type, bound, bytes) \
    { #name, GGML_TYPE_##type, QK_##type, sizeof(block_##name), quantize_##name, DEQ(name), bound, false, bytes, bytes }
#define WEIGHTED(name, type, bound, bytes, weighted_bytes) \
    { #name, GGML_TYPE_##type, QK_##type, sizeof(block_##name), quantize_##name, DEQ(name), bound, false, bytes, weighted_bytes }
#define SEARCHED(name, type, bound) \
    { #name, GGML_TYPE_##type, QK_##type, sizeof(block_##name), quantize_##name, DEQ(name), bound, true, 0, 0 }

static const struct format formats[] = {
    SIMPLE(q1_0, Q1_0, 0.40, 0x3ddca04838c2a40c),
    SIMPLE(q2_0, Q2_0, 0.60, 0xf2d9557d2691d94d),
    WEIGHTED(q4_0, Q4_0, 0.012, 0xbf8148bb1eb829b4, 0xdf6e7285adfc9447),
    WEIGHTED(q4_1, Q4_1, 0.008, 0xa1f964bcef554c74, 0x83e2c4a60e6aaa7e),
    WEIGHTED(q5_0, Q5_0, 0.003, 0x997773f269443099, 0xe90a0f53d27bfdf2),
    WEIGHTED(q5_1, Q5_1, 0.002, 0x5b153c1963b8505f, 0x5ae7335af0108d75),
    SIMPLE(q8_0, Q8_0, 5e-5, 0xa677043a3821cc89),
    SIMPLE(tq1_0, TQ1_0, 0.75, 0x676885217e4d4cb5),
    SIMPLE(tq2_0, TQ2_0, 0.75, 0x6224a32ab4e3daae),
    SIMPLE(mxfp4, MXFP4, 0.02, 0x21852a9cd194e0a2),
    SIMPLE(nvfp4, NVFP4, 0.015, 0xa9310b71dd23196a),
    SEARCHED(q2_K, Q2_K, 0.08),
    SEARCHED(q3_K, Q3_K, 0.025),
    SEARCHED(q4_K, Q4_K, 0.006),
    SEARCHED(q5_K, Q5_K, 0.0015),
    SEARCHED(q6_K, Q6_K, 0.0005),
    SEARCHED(iq4_nl, IQ4_NL, 0.006),
    SEARCHED(iq4_xs, IQ4_XS, 0.007),
    SEARCHED(iq3_xxs, IQ3_XXS, 0.035),
    SEARCHED(iq3_s, IQ3_S, 0.025),
    SEARCHED(iq2_s, IQ2_S, 0.07),
    SEARCHED(iq2_xs, IQ2_XS, 0.10),
    SEARCHED(iq2_xxs, IQ2_XXS, 0.13),
    SEARCHED(iq1_s, IQ1_S, 0.23),
    SEARCHED(iq1_m, IQ1_M, 0.20),
};
enum { N_FORMATS = sizeof(formats) / sizeof(formats[0]), N = 2048 };

static uint64_t rng_state;

static double uniform(void) {
    rng_state = rng_state * 6364136223846793005u + 1442695040888963407u;
    return (double) (rng_state >> 11) * 0x1p-53;
}

// The sum of twelve uniform numbers is close enough to a normal distribution, and gives the same floats on every machine.
static void normal_row(float *x, int n, uint64_t seed) {
    rng_state = seed;
    for (int i = 0; i < n; i++) {
        double v = -6;
        for (int k = 0; k < 12; k++) {
            v += uniform();
        }
        x[i] = (float) v;
    }
}

static uint64_t hash(const uint8_t *p, size_t n) {
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n; i++) {
        h = (h ^ p[i]) * 0x100000001b3u;
    }
    return h;
}

static float x[N], y[N], w[N];
static _Alignas(8) uint8_t blocks[N * 8];

static size_t size_of(const struct format *f, int n) {
    return (size_t) (n / f->qk) * f->block_size;
}

static double relative_error(const float *weights) {
    double e = 0;
    double s = 0;
    for (int i = 0; i < N; i++) {
        const double d = (double) x[i] - y[i];
        e += (weights != NULL ? weights[i] : 1) * d * d;
        s += (weights != NULL ? weights[i] : 1) * (double) x[i] * x[i];
    }
    return e / s;
}

static void test_half_round_trip(void **state) {
    (void) state;
    for (uint32_t h = 0; h < 0x10000; h++) {
        const float f = berth_half_to_float((uint16_t) h);
        if (isnan(f)) {
            assert_int_equal(berth_float_to_half(f), (h & 0x8000) | 0x7e00);
        } else {
            assert_int_equal(berth_float_to_half(f), h);
        }
        assert_int_equal(berth_float_to_bf16(berth_bf16_to_float((uint16_t) h)), (h & 0x7fff) > 0x7f80 ? h | 0x40 : h);
    }
}

static void test_half_rounds_to_even(void **state) {
    (void) state;
    assert_int_equal(berth_float_to_half(1.0f + 0x1p-11f), 0x3c00);
    assert_int_equal(berth_float_to_half(1.0f + 3 * 0x1p-11f), 0x3c02);
    assert_int_equal(berth_float_to_half(0x1p-25f), 0x0000);
    assert_int_equal(berth_float_to_half(0x1.000002p-25f), 0x0001);
    assert_int_equal(berth_float_to_half(65519.996f), 0x7bff);
    assert_int_equal(berth_float_to_half(65520.0f), 0x7c00);
    assert_int_equal(berth_float_to_half(-INFINITY), 0xfc00);
    assert_int_equal(berth_float_to_bf16(1.0f + 0x1p-8f), 0x3f80);
    assert_int_equal(berth_float_to_bf16(1.0f + 3 * 0x1p-8f), 0x3f82);
}

static void test_known_bytes(void **state) {
    (void) state;
    for (int i = 0; i < N_FORMATS; i++) {
        const struct format *f = &formats[i];
        for (int weighted = 0; weighted < 2; weighted++) {
            const uint64_t want = weighted ? f->weighted_bytes : f->bytes;
            normal_row(x, N, 7);
            for (int j = 0; j < N; j++) {
                w[j] = (float) (0.1 + uniform());
            }
            assert_int_equal(f->rows(x, blocks, 1, N, weighted ? w : NULL), size_of(f, N));
            const uint64_t got = hash(blocks, size_of(f, N));
            if (want != 0 && got != want) {
                fail_msg("%s%s: bytes hash to 0x%016llx", f->name, weighted ? " weighted" : "", (unsigned long long) got);
            }
        }
    }
}

static void test_error_is_small(void **state) {
    (void) state;
    for (int i = 0; i < N_FORMATS; i++) {
        const struct format *f = &formats[i];
        normal_row(x, N, 8);
        for (int weighted = 0; weighted < 2; weighted++) {
            for (int j = 0; j < N; j++) {
                w[j] = (float) (0.1 + uniform());
            }
            f->rows(x, blocks, 1, N, weighted ? w : NULL);
            f->deq(blocks, y, N);
            const double e = relative_error(weighted ? w : NULL);
            if (!(e <= f->bound)) {
                fail_msg("%s%s: error %g, bound %g", f->name, weighted ? " weighted" : "", e, f->bound);
            }
            assert_true(ggml_validate_row_data(f->type, blocks, size_of(f, N)));
        }
    }
}

static void test_rows_are_independent(void **state) {
    (void) state;
    for (int i = 0; i < N_FORMATS; i++) {
        const struct format *f = &formats[i];
        static _Alignas(8) uint8_t again[N * 8];
        normal_row(x, N, 9);
        assert_int_equal(f->rows(x, blocks, 4, N / 4, NULL), size_of(f, N));
        for (int r = 0; r < 4; r++) {
            f->rows(x + r * N / 4, again + r * size_of(f, N / 4), 1, N / 4, NULL);
        }
        assert_memory_equal(blocks, again, size_of(f, N));
    }
}

static void test_zero_rows(void **state) {
    (void) state;
    memset(x, 0, sizeof(x));
    for (int i = 0; i < N_FORMATS; i++) {
        const struct format *f = &formats[i];
        memset(blocks, 0xff, sizeof(blocks));
        f->rows(x, blocks, 1, N, NULL);
        f->deq(blocks, y, N);
        for (int j = 0; j < N; j++) {
            assert_true(y[j] == 0.0f);
        }
    }
}

static void test_edge_magnitudes(void **state) {
    (void) state;
    static const float scale[] = {1e37f, 1e6f, 1e-7f, 1e-38f, 1e-44f};
    for (int i = 0; i < N_FORMATS; i++) {
        const struct format *f = &formats[i];
        for (int k = 0; k < 5; k++) {
            normal_row(x, N, 10);
            for (int j = 0; j < N; j++) {
                x[j] *= scale[k];
                w[j] = k % 2 ? 0.0f : 1e30f;
            }
            f->rows(x, blocks, 1, N, k < 3 ? NULL : w);
            f->deq(blocks, y, N);
            if (f->has_search) {
                assert_true(ggml_validate_row_data(f->type, blocks, size_of(f, N)));
                assert_true(relative_error(NULL) <= 1.01);
            }
        }
    }
}

static void test_bad_weights(void **state) {
    (void) state;
    for (int i = 0; i < N_FORMATS; i++) {
        const struct format *f = &formats[i];
        normal_row(x, N, 11);
        for (int j = 0; j < N; j++) {
            w[j] = j % 3 == 0 ? NAN : j % 3 == 1 ? -INFINITY : (float) j;
        }
        f->rows(x, blocks, 1, N, w);
        assert_true(ggml_validate_row_data(f->type, blocks, size_of(f, N)));
    }
}

// Tests rows of one constant value, and blocks with a single value among zeros. A value is written as the product of a scale and
// a level. The search tries many pairs of scale and level. It must find a product with an error below 1e-4 of the value. The
// rounding error of an f16 can be almost five times as large.
static void test_one_value(void **state) {
    (void) state;
    static const float values[] = {0.7317f, -1.2345f, 3.1416e-3f};
    for (int i = 0; i < N_FORMATS; i++) {
        const struct format *f = &formats[i];
        if (f->type < GGML_TYPE_Q2_K || f->type > GGML_TYPE_Q6_K) {
            continue;
        }
        for (int k = 0; k < 6; k++) {
            for (int j = 0; j < N; j++) {
                x[j] = k < 3 || j % f->qk == 77 ? values[k % 3] : 0.0f;
            }
            f->rows(x, blocks, 1, N, NULL);
            f->deq(blocks, y, N);
            if (!(relative_error(NULL) < 1e-8)) {
                fail_msg("%s: %s of %g has error %g", f->name, k < 3 ? "a row" : "a single value", (double) values[k % 3],
                    relative_error(NULL));
            }
        }
    }
}

// The rows of test_one_value in iq4_nl, whose levels do not include 0 and reach from -127 to 113. In blocks with a single value,
// the 31 zeros are off by one step each.
static void test_one_value_without_zero(void **state) {
    (void) state;
    static const float values[] = {0.7317f, -1.2345f, 3.1416e-3f};
    for (int k = 0; k < 6; k++) {
        for (int j = 0; j < N; j++) {
            x[j] = k < 3 || j % QK_IQ4_NL == 7 ? values[k % 3] : 0.0f;
        }
        quantize_iq4_nl(x, blocks, 1, N, NULL);
        dequantize_row_iq4_nl((const block_iq4_nl *) blocks, y, N);
        assert_true(relative_error(NULL) < (k < 3 ? 1e-8 : 31.0 / (112 * 112)));
    }
}

// Of two elements of the largest magnitude, the first sets the sign of the scale: the first is exact, and the other is one level
// too small.
static void test_first_of_equal_extremes(void **state) {
    (void) state;
    static const struct {
        enum ggml_type type;
        deq_fn deq;
        float levels;
    } known[] = {{GGML_TYPE_Q4_0, DEQ(q4_0), 8}, {GGML_TYPE_Q5_0, DEQ(q5_0), 16}};
    for (int i = 0; i < 2; i++) {
        for (float first = -2.0f; first <= 2.0f; first += 4.0f) {
            memset(x, 0, sizeof(x));
            x[3] = first;
            x[20] = -first;
            ggml_get_type_traits(known[i].type)->from_float_ref(x, blocks, 32);
            known[i].deq(blocks, y, 32);
            for (int j = 0; j < 32; j++) {
                assert_true(y[j] == (j == 20 ? -first * (known[i].levels - 1) / known[i].levels : x[j]));
            }
        }
    }
}

// from_float_ref, which makes no search, must write tiny elements (1e-20) like zeros. This is tested in rows of tiny elements
// only, and in rows where runs of 32 tiny elements alternate with runs of 32 other elements.
static void test_tiny_runs_are_zeros(void **state) {
    (void) state;
    static _Alignas(8) uint8_t zeros[sizeof(blocks)];
    for (int i = 0; i < N_FORMATS; i++) {
        const struct format *f = &formats[i];
        const bool is_k = f->type >= GGML_TYPE_Q2_K && f->type <= GGML_TYPE_Q6_K;
        if (!is_k && f->type != GGML_TYPE_IQ4_NL && f->type != GGML_TYPE_IQ4_XS) {
            continue;
        }
        for (int with_others = 0; with_others < 2; with_others++) {
            normal_row(x, N, 16);
            for (int j = 0; j < N; j++) {
                x[j] = with_others && j % 64 >= 32 ? x[j] : 0.0f;
            }
            ggml_get_type_traits(f->type)->from_float_ref(x, zeros, N);
            f->deq(zeros, y, N);
            for (int j = 0; j < N; j++) {
                if (x[j] == 0.0f && y[j] != 0.0f) {
                    fail_msg("%s: element %d is %g, not zero", f->name, j, (double) y[j]);
                }
            }
            assert_true(!with_others || relative_error(NULL) < 4 * f->bound);
            for (int j = 0; j < N; j++) {
                x[j] = x[j] == 0.0f ? (j % 2 ? 1e-20f : -1e-20f) : x[j];
            }
            ggml_get_type_traits(f->type)->from_float_ref(x, blocks, N);
            f->deq(blocks, w, N);
            for (int j = 0; j < N; j++) {
                if (w[j] != y[j]) { // w: from the row with tiny elements; y: from the row with zeros in their place
                    fail_msg("%s: element %d is %g, and %g next to zeros", f->name, j, (double) w[j], (double) y[j]);
                }
            }
        }
    }
}

// A search ignores an infinite weight and still uses the other weights. So infinite weights give the same blocks as weights of 0.
static void test_infinite_weights(void **state) {
    (void) state;
    static _Alignas(8) uint8_t without[sizeof(blocks)];
    for (int i = 0; i < N_FORMATS; i++) {
        const struct format *f = &formats[i];
        for (int is_infinite = 0; is_infinite < 2 && f->has_search; is_infinite++) {
            normal_row(x, N, 17);
            for (int j = 0; j < N; j++) {
                w[j] = j % 5 == 0 ? (is_infinite ? INFINITY : 0.0f) : (float) (1 + j % 3);
            }
            f->rows(x, is_infinite ? blocks : without, 1, N, w);
        }
        assert_true(!f->has_search || memcmp(blocks, without, size_of(f, N)) == 0);
    }
}

static void test_unusable_weights(void **state) {
    (void) state;
    static const float nothing[] = {0.0f, -1.0f, NAN, INFINITY};
    for (int i = 0; i < N_FORMATS; i++) {
        const struct format *f = &formats[i];
        for (int k = 0; k < 4 && f->bytes != 0; k++) {
            normal_row(x, N, 7);
            for (int j = 0; j < N; j++) {
                w[j] = nothing[k];
            }
            f->rows(x, blocks, 1, N, w);
            assert_true(hash(blocks, size_of(f, N)) == f->bytes);
        }
    }
}

static void test_non_finite(void **state) {
    (void) state;
    static const float odd[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < N_FORMATS; i++) {
        const struct format *f = &formats[i];
        for (int k = 0; k < 3; k++) {
            normal_row(x, N, 12);
            x[f->qk + 5] = odd[k];
            f->rows(x, blocks, 1, N, NULL);
            f->deq(blocks, y, N);
            if (f->has_search) {
                for (int j = 0; j < N; j++) {
                    assert_true(isnan(y[j]) == (j / f->qk == 1));
                }
                assert_false(ggml_validate_row_data(f->type, blocks, size_of(f, N)));
            }
        }
        // Every conversion also gets rows in which all or half of the elements are not finite. Sanitizers check these calls.
        for (int k = 0; k < 6; k++) {
            for (int j = 0; j < N; j++) {
                x[j] = k < 3 || j % 2 ? odd[k % 3] : (float) j;
                w[j] = 1.0f;
            }
            f->rows(x, blocks, 1, N, NULL);
            f->deq(blocks, y, N);
            f->rows(x, blocks, 1, N, w);
            f->deq(blocks, y, N);
            if (ggml_get_type_traits(f->type)->from_float_ref != NULL) {
                ggml_get_type_traits(f->type)->from_float_ref(x, blocks, N);
                f->deq(blocks, y, N);
            }
        }
    }
}

// from_float_ref, which copies and caches use, writes the same bytes as the reference. This holds also for the formats for which
// quantize_* uses Berth's own search. The hashes are from the reference's build for Arm, which fuses multiply-adds; quant_diff
// compares with the library itself.
#if defined(__aarch64__)
static void test_known_rows(void **state) {
    (void) state;
    static const struct {
        enum ggml_type type;
        uint64_t bytes;
    } known[] = {
        {GGML_TYPE_Q2_K, 0xf8c0ee2274bac964},
        {GGML_TYPE_Q3_K, 0x5883668119fbf926},
        {GGML_TYPE_Q4_K, 0xc6b4313363ff628f},
        {GGML_TYPE_Q5_K, 0x3d7c54ce66800d1b},
        {GGML_TYPE_Q6_K, 0x300dbfa56161bb56},
        {GGML_TYPE_IQ4_NL, 0x66b9b403615e1785},
        {GGML_TYPE_IQ4_XS, 0xcf068b02bbae314d},
    };
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        normal_row(x, N, 7);
        ggml_get_type_traits(known[i].type)->from_float_ref(x, blocks, N);
        const uint64_t got = hash(blocks, ggml_row_size(known[i].type, N));
        if (got != known[i].bytes) {
            fail_msg("%s: bytes hash to 0x%016llx", ggml_type_name(known[i].type), (unsigned long long) got);
        }
    }
}
#endif

static void test_any_bytes_dequantise(void **state) {
    (void) state;
    rng_state = 13;
    for (size_t j = 0; j < sizeof(blocks); j++) {
        blocks[j] = (uint8_t) (uniform() * 256);
    }
    for (int i = 0; i < N_FORMATS; i++) {
        formats[i].deq(blocks, y, N);
        ggml_validate_row_data(formats[i].type, blocks, size_of(&formats[i], N));
    }
}

static void test_bad_row_length(void **state) {
    (void) state;
    normal_row(x, N, 14);
    for (int i = 0; i < N_FORMATS; i++) {
        berth_clear_error();
        assert_int_equal(formats[i].rows(x, blocks, 1, formats[i].qk + 1, NULL), 0);
        assert_true(berth_last_error()[0] != '\0');
        assert_int_equal(formats[i].rows(x, blocks, 0, formats[i].qk, NULL), 0);
        berth_clear_error();
        assert_int_equal(formats[i].rows(x, blocks, -1, formats[i].qk, NULL), 0);
        assert_int_equal(formats[i].rows(x, blocks, 1, -formats[i].qk, NULL), 0);
        assert_non_null(strstr(berth_last_error(), "a block has"));
        assert_int_equal(formats[i].rows(x, blocks, INT64_MAX, N, NULL), 0);
        assert_non_null(strstr(berth_last_error(), "exceed the address space"));
    }
    // The formats above have at most two bytes per element, so the size of one row never exceeds the address space. This call has
    // three bytes per element, so the size does.
    berth_clear_error();
    assert_int_equal(berth_rows_size("it", 1, INT64_MAX, 1, 3), 0);
    assert_string_equal(berth_last_error(), "it: 1 rows of 9223372036854775807 elements exceed the address space");
    assert_int_equal(berth_rows_size("it", 2, 96, 32, 18), 108);
}

static void test_intermediate_formats(void **state) {
    (void) state;
    block_q8_1 a[2];
    block_q8_K b[1];
    normal_row(x, 256, 15);
    quantize_row_q8_1_ref(x, a, 64);
    int sum = 0;
    for (int j = 0; j < 32; j++) {
        sum += a[1].qs[j];
    }
    assert_true(fabsf(berth_half_to_float(a[1].s) - (float) sum * berth_half_to_float(a[1].d)) < 0.05f);
    quantize_row_q8_K_ref(x, b, 256);
    dequantize_row_q8_K(b, y, 256);
    for (int j = 0; j < 256; j++) {
        assert_true(fabsf(x[j] - y[j]) <= 0.51f * fabsf(b[0].d));
    }
    for (int r = 0; r < 16; r++) {
        int s = 0;
        for (int j = 0; j < 16; j++) {
            s += b[0].qs[16 * r + j];
        }
        assert_int_equal(b[0].bsums[r], s);
    }
    static const block_q8_K nothing;
    memset(x, 0, sizeof(x));
    quantize_row_q8_K_ref(x, b, 256);
    assert_memory_equal(b, &nothing, sizeof(nothing));
}

// The tables are constant, so init and free may be called at any time and change nothing.
static void test_init_and_free_change_nothing(void **state) {
    (void) state;
    static _Alignas(8) uint8_t before[sizeof(blocks)];
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < N_FORMATS; i++) {
            const struct format *f = &formats[i];
            if (f->type == GGML_TYPE_IQ2_XXS || f->type == GGML_TYPE_IQ3_S) {
                uint8_t *to = (round == 0 ? before : blocks) + (f->type == GGML_TYPE_IQ3_S ? N : 0);
                normal_row(x, N, 18);
                assert_true(f->rows(x, to, 1, N, NULL) <= N);
            }
        }
        assert_true(round == 0 || memcmp(blocks, before, sizeof(blocks)) == 0);
        memset(blocks, 0, sizeof(blocks));
        if (round == 0) {
            iq2xs_init_impl(GGML_TYPE_IQ2_XXS);
            iq3xs_init_impl(512);
        } else {
            iq2xs_free_impl(GGML_TYPE_IQ2_XXS);
            iq3xs_free_impl(512);
        }
    }
}

static void test_validate(void **state) {
    (void) state;
    const float bad[2] = {1.0f, NAN};
    const uint16_t inf[1] = {0x7c00};
    assert_true(ggml_validate_row_data(GGML_TYPE_F32, bad, 4));
    assert_false(ggml_validate_row_data(GGML_TYPE_F32, bad, 8));
    assert_false(ggml_validate_row_data(GGML_TYPE_F32, bad, 3));
    assert_false(ggml_validate_row_data(GGML_TYPE_F16, inf, 2));
    assert_true(ggml_validate_row_data(GGML_TYPE_BF16, inf, 2));
    assert_true(ggml_validate_row_data(GGML_TYPE_I16, inf, 2));
    assert_false(ggml_validate_row_data(GGML_TYPE_COUNT, inf, 2));
    assert_false(ggml_validate_row_data(GGML_TYPE_F32, NULL, 4));
    assert_true(ggml_validate_row_data(GGML_TYPE_F32, NULL, 0));
}

// The functions for four floats equal those for one in every bit, also for values that do not fit.
static void test_round_four(void **state) {
    (void) state;
    uint32_t bits = 1;
    for (int i = 0; i < 1000000; i++) {
        static const float edges[] = {0.5f, 0x1.fffffep-2f, 1.5f, 2.5f, 0x1.fffffep22f, 0x1p23f, 0x1.fffffep30f, 0x1p31f, 0x1p32f,
            INFINITY, NAN, 0.0f, 0x1.000002p22f, 0x1.fffffcp21f};
        v4f v;
        for (int j = 0; j < 4; j++) {
            bits = bits * 1664525u + 1013904223u;
            const float e = edges[(bits >> 8) % (sizeof edges / sizeof edges[0])];
            v[j] = bits >> 28 == 0 ? (bits & 1 ? -e : e) : berth_bits_float(bits);
        }
        const v4i cut = berth_trunc_4(v), near = berth_round_4(v);
        for (int j = 0; j < 4; j++) {
            assert_int_equal(cut[j], berth_trunc_i32(v[j]));
            assert_int_equal(near[j], berth_round_i32(v[j]));
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_half_round_trip),
        cmocka_unit_test(test_half_rounds_to_even),
        cmocka_unit_test(test_round_four),
        cmocka_unit_test(test_known_bytes),
        cmocka_unit_test(test_error_is_small),
        cmocka_unit_test(test_rows_are_independent),
        cmocka_unit_test(test_zero_rows),
        cmocka_unit_test(test_edge_magnitudes),
        cmocka_unit_test(test_bad_weights),
        cmocka_unit_test(test_one_value),
        cmocka_unit_test(test_one_value_without_zero),
        cmocka_unit_test(test_first_of_equal_extremes),
        cmocka_unit_test(test_tiny_runs_are_zeros),
        cmocka_unit_test(test_infinite_weights),
        cmocka_unit_test(test_unusable_weights),
#if defined(__aarch64__)
        cmocka_unit_test(test_known_rows),
#endif
        cmocka_unit_test(test_non_finite),
        cmocka_unit_test(test_any_bytes_dequantise),
        cmocka_unit_test(test_bad_row_length),
        cmocka_unit_test(test_intermediate_formats),
        cmocka_unit_test(test_init_and_free_change_nothing),
        cmocka_unit_test(test_validate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
