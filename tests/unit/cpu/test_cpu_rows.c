// SPDX-License-Identifier: MIT
// test_cpu_rows.c: compares the conversions and row functions of every tier that this machine supports with the portable kernels.
// Tiers are filled one after the other, as in kernel_table.c. Lengths are not multiples of vector sizes, and memory after a result
// must stay unchanged. test_cpu_kernels.c tests the products.

#include "support/check.h"

#include "cpu/cpu.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CANARY 0x5a

static uint64_t seed = 88172645463325252u;

static float noise(void) {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (float) ((double) (seed >> 11) / 4503599627370496.0 - 1.0);
}

// Allocates `size` bytes, followed by bytes (CANARY) that must not change. fresh_free checks them.
static void *fresh(size_t size) {
    char *at = malloc(size + 64);
    memset(at, CANARY, size + 64);
    return at;
}

static void fresh_free(void *at, size_t size) {
    for (size_t i = size; i < size + 64; i++) {
        assert_int_equal(((char *) at)[i], CANARY);
    }
    free(at);
}

static float *numbers(int64_t n) {
    float *x = malloc((size_t) (n + 1) * sizeof *x);
    for (int64_t i = 0; i < n; i++) {
        x[i] = noise();
    }
    return x;
}

static void assert_near(const char *what, int64_t n, double got, double want, double limit) {
    if (!(fabs(got - want) <= limit) && !(isnan(got) && isnan(want)) && got != want) {
        fail_msg("%s, n %lld: %.9g instead of %.9g, limit %g", what, (long long) n, got, want, limit);
    }
}

// Calls check for each tier that this machine has, with a table of the tiers up to it.
static void for_each_tier(void (*check)(const struct cpu_kernels *k)) {
    cpu_init();
    struct cpu_kernels k = cpu_kernels_portable;
    for (const struct cpu_tier *t = cpu_tiers; t != NULL && t->name != NULL; t++) {
        if (t->has()) {
            t->fill(&k);
            check(&k);
        }
    }
}

// ---- rows of blocks ----

// Rows of blocks, and their values as floats.
struct rows {
    char *data;
    float *x;
    size_t size; // bytes per row
};

static bool rows_make(struct rows *r, enum ggml_type type, int64_t n, int n_rows) {
    const ggml_from_float_t from = cpu_kernels_portable.traits[type].from_float;
    const ggml_to_float_t to = cpu_kernels_portable.to_float[type];
    if (from == NULL || to == NULL || ggml_blck_size(type) == 0 || n % ggml_blck_size(type) != 0) {
        return false;
    }
    r->size = ggml_row_size(type, n);
    r->data = malloc(r->size * (size_t) n_rows);
    r->x = numbers(n * n_rows);
    for (int i = 0; i < n_rows; i++) {
        from(r->x + i * n, r->data + (size_t) i * r->size, n);
        to(r->data + (size_t) i * r->size, r->x + i * n, n);
    }
    return true;
}

static void rows_free(struct rows *r) {
    free(r->data);
    free(r->x);
}

static const int64_t lengths[] = {1, 7, 31, 32, 33, 64, 96, 224, 256, 288, 512, 768, 1000};
#define N_LENGTHS (sizeof lengths / sizeof lengths[0])

// ---- conversions ----

static void check_convert(const struct cpu_kernels *k) {
    for (int t = 0; t < GGML_TYPE_COUNT; t++) {
        const ggml_from_float_t from = k->traits[t].from_float, plain = cpu_kernels_portable.traits[t].from_float;
        for (size_t i = 0; i < N_LENGTHS; i++) {
            const int64_t n = lengths[i];
            struct rows x;
            if (!rows_make(&x, (enum ggml_type) t, n, 1)) {
                continue;
            }
            for (int how = 0; how < 7 && from != plain; how++) {
                float *v = numbers(n);
                for (int64_t j = 0; j < n; j++) {
                    v[j] *= how == 1 ? 1e-30f : how == 2 ? 1e4f : how == 3 ? 0.0f : 1.0f;
                    v[j] = how == 4 ? rintf(v[j] * 254.0f) * 0.5f : v[j]; // values halfway between two bytes
                }
                if (how == 4 && n > 16) {
                    v[3] = -127.0f;
                }
                if (how >= 5 && n > 16) { // two elements have the largest magnitude: the first one counts
                    v[9] = how == 5 ? 5.0f : -5.0f;
                    v[14] = -v[9];
                }
                char *got = fresh(x.size), *want = fresh(x.size);
                from(v, got, n);
                plain(v, want, n);
                if (memcmp(got, want, x.size) != 0) {
                    fail_msg(
                        "%s from floats, n %lld, kind %d: other bytes", ggml_type_name((enum ggml_type) t), (long long) n, how);
                }
                fresh_free(got, x.size);
                fresh_free(want, x.size);
                free(v);
            }
            if (k->to_float[t] != cpu_kernels_portable.to_float[t]) {
                float *y = fresh((size_t) n * sizeof *y);
                k->to_float[t](x.data, y, n);
                assert_memory_equal(y, x.x, (size_t) n * sizeof *y);
                fresh_free(y, (size_t) n * sizeof *y);
            }
            rows_free(&x);
        }
    }
}

static void test_convert(void **state) {
    (void) state;
    for_each_tier(check_convert);
}

// ---- rows of floats ----

static const int64_t counts[] = {0, 1, 3, 7, 8, 9, 15, 16, 17, 31, 33, 100, 256, 257, 300, 1000};
#define N_COUNTS (sizeof counts / sizeof counts[0])

// limit: relative tolerance; least: absolute tolerance. Small results of gelu are subnormal f16 values.
static void row1_try(const char *name, cpu_row1_t best, cpu_row1_t plain, int64_t n, double limit, double least) {
    float *x = numbers(n), *got = fresh((size_t) n * sizeof *got), *want = malloc((size_t) (n + 1) * sizeof *want);
    static const float specials[] = {NAN, INFINITY, -INFINITY, 0.0f, -0.0f, 88.5f, -87.5f, -100.0f, 10.0f, -10.0f, 1e30f, -1e30f};
    for (int64_t i = 0; i < n; i++) {
        x[i] = i % 7 == 6 ? specials[i / 7 % 12] : x[i] * 20.0f;
    }
    best(n, got, x);
    plain(n, want, x);
    for (int64_t i = 0; i < n; i++) {
        assert_near(name, n, got[i], want[i], limit * fabs((double) want[i]) + least);
    }
    fresh_free(got, (size_t) n * sizeof *got);
    free(want);
    free(x);
}

static void row2_try(const char *name, cpu_row2_t best, cpu_row2_t plain, int64_t n) {
    float *x = numbers(n), *y = numbers(n), *got = fresh((size_t) n * sizeof *got),
          *want = malloc((size_t) (n + 1) * sizeof *want);
    best(n, got, x, y);
    plain(n, want, x, y);
    for (int64_t i = 0; i < n; i++) {
        assert_near(name, n, got[i], want[i], 0);
    }
    fresh_free(got, (size_t) n * sizeof *got);
    free(want);
    free(y);
    free(x);
}

static void numbers_try(const struct cpu_kernels *k, int64_t n) {
    const struct cpu_kernels *p = &cpu_kernels_portable;
    float *x = numbers(n), *got = fresh((size_t) n * sizeof *got), *want = malloc((size_t) (n + 1) * sizeof *want);
    for (int scale = 0; scale < 2; scale++) {
        k->scale(n, got, x, -1.5f, (float) scale);
        p->scale(n, want, x, -1.5f, (float) scale);
        for (int64_t i = 0; i < n; i++) {
            assert_near("scale", n, got[i], want[i], 1e-6);
        }
    }
    k->mad(n, got, x, 0.3f);
    p->mad(n, want, x, 0.3f);
    for (int64_t i = 0; i < n; i++) {
        assert_near("mad", n, got[i], want[i], 1e-6);
    }
    assert_near("sum", n, k->sum(n, x), p->sum(n, x), 0);
    assert_near("sum_sq", n, k->sum_sq(n, x), p->sum_sq(n, x), 0);
    assert_near("exp_sum", n, k->exp_sum(n, got, x, 0.7f), p->exp_sum(n, want, x, 0.7f), 1e-6 * (double) n);
    for (int64_t i = 0; i < n; i++) {
        assert_near("exp_sum", n, got[i], want[i], 3e-7 * (double) want[i]);
    }
    if (n > 1) {
        x[n / 2] = NAN;
    }
    assert_near("max", n, (double) k->max(n, x), (double) p->max(n, x), 0);
    k->fill(n, got, 2.5f);
    for (int64_t i = 0; i < n; i++) {
        assert_true(got[i] == 2.5f);
    }
    fresh_free(got, (size_t) n * sizeof *got);
    free(want);
    free(x);
}

static void check_rows(const struct cpu_kernels *k) {
    const struct cpu_kernels *p = &cpu_kernels_portable;
    for (size_t i = 0; i < N_COUNTS; i++) {
        const int64_t n = counts[i];
        row2_try("add", k->add, p->add, n);
        row2_try("sub", k->sub, p->sub, n);
        row2_try("mul", k->mul, p->mul, n);
        row2_try("div", k->div, p->div, n);
        row1_try("exp", k->exp, p->exp, n, 3e-7, 1e-12);
        row1_try("silu", k->silu, p->silu, n, 1e-6, 1e-12);
        row1_try("sigmoid", k->sigmoid, p->sigmoid, n, 1e-6, 1e-12);
        row1_try("tanh", k->tanh, p->tanh, n, 1e-6, 1e-12);
        row1_try("gelu", k->gelu, p->gelu, n, 2e-3, 2e-6);
        row1_try("gelu_quick", k->gelu_quick, p->gelu_quick, n, 2e-3, 2e-6);
        numbers_try(k, n);
    }
}

static void test_rows(void **state) {
    (void) state;
    for_each_tier(check_rows);
}

// Rows with weight 0 contain NaN and must not affect the result.
static void check_mix(const struct cpu_kernels *k) {
    static const int64_t widths[] = {1, 8, 15, 16, 40, 64, 128};
    for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++) {
        for (int ny = 1; ny <= 9; ny++) {
            const int64_t d = widths[i];
            const int n = 13;
            float *x = numbers(n * (d + 1)), *w = numbers(ny * n), *y = numbers(ny * (d + 2)), *z = numbers(ny * (d + 2));
            memcpy(z, y, (size_t) (ny * (d + 2)) * sizeof *y);
            for (int j = 0; j < ny; j++) {
                w[j * n + 5] = 0.0f;
                w[j * n + 7] = j % 2 == 0 ? 0.0f : w[j * n + 7];
            }
            for (int64_t u = 0; u < d; u++) {
                x[5 * (d + 1) + u] = NAN;
            }
            k->mix(d, y, d + 2, ny, w, n, x, d + 1, n);
            cpu_kernels_portable.mix(d, z, d + 2, ny, w, n, x, d + 1, n);
            for (int64_t u = 0; u < ny * (d + 2); u++) {
                assert_near("mix", d, y[u], z[u], 1e-5);
            }
            free(x), free(w), free(y), free(z);
        }
    }
}

static void test_mix(void **state) {
    (void) state;
    for_each_tier(check_mix);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_convert),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_mix),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
