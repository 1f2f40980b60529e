// SPDX-License-Identifier: MIT
// test_cpu_kernels.c: every tier this machine can run, slot by slot, against the portable kernels: dot products, single columns
// and panels of every type, with lengths and counts that leave rests. Shows which tier is wrong, where op-suite shows that one
// is.

#include "support/check.h"

#include "cpu/cpu.h"

#include <math.h>
#include <string.h>

#define N_MAX 1536
#define ROWS 37
#define COLS 11

static struct cpu_kernels tier; // portable, and what the tiers so far put in
static const char *tier_name;
static float rows[ROWS * N_MAX], cols[COLS * N_MAX];

static void numbers(void) {
    uint32_t state = 12345;
    for (int i = 0; i < ROWS * N_MAX; i++) {
        state   = state * 1664525u + 1013904223u;
        rows[i] = (float) (int32_t) state / 2147483648.0f;
    }
    for (int i = 0; i < COLS * N_MAX; i++) {
        state   = state * 1664525u + 1013904223u;
        cols[i] = (float) (int32_t) state / 536870912.0f;
    }
}

static bool is_close(float a, float b, double scale, double tolerance) {
    return fabs((double) a - (double) b) <= tolerance * scale;
}

// What rounding may do is a part of what the terms of a sum weigh, not of the sum.
static double weight(int64_t n) {
    return sqrt((double) n) * 2.0;
}

struct subject {
    enum ggml_type type, with;
    int64_t n;
    size_t row_size;
    char *x;         // ROWS rows of the type
    float *expected; // [COLS][ROWS]
};

static struct subject subject_new(enum ggml_type type, int64_t n) {
    const struct cpu_kernels *k = &cpu_kernels_portable;
    struct subject s = {.type = type, .with = k->traits[type].vec_dot_type, .n = n, .row_size = ggml_row_size(type, n)};
    s.x              = malloc(s.row_size * ROWS);
    s.expected       = malloc(sizeof(float) * ROWS * COLS);
    char *y          = malloc(ggml_row_size(s.with, n));
    assert_true(s.x != NULL && s.expected != NULL && y != NULL);
    for (int r = 0; r < ROWS; r++) {
        k->traits[type].from_float(rows + r * N_MAX, s.x + (size_t) r * s.row_size, n);
    }
    for (int c = 0; c < COLS; c++) {
        k->traits[s.with].from_float(cols + c * N_MAX, y, n);
        for (int r = 0; r < ROWS; r++) {
            k->traits[type].vec_dot((int) n, &s.expected[c * ROWS + r], 0, s.x + (size_t) r * s.row_size, 0, y, 0, 1);
        }
    }
    free(y);
    return s;
}

static void expect(const struct subject *s, const char *slot, int r, int c, float got, double tolerance) {
    const float want = s->expected[c * ROWS + r];
    if (!is_close(got, want, weight(s->n), tolerance)) {
        fail_msg("%s: %s of %s, %d elements, row %d column %d: %g instead of %g", tier_name, slot, ggml_type_name(s->type),
            (int) s->n, r, c, (double) got, (double) want);
    }
}

static void check_dots(const struct subject *s) {
    char *y = malloc(ggml_row_size(s->with, s->n) * COLS);
    assert_non_null(y);
    const size_t by = ggml_row_size(s->with, s->n);
    for (int c = 0; c < COLS; c++) {
        tier.traits[s->with].from_float(cols + c * N_MAX, y + (size_t) c * by, s->n);
        for (int r = 0; r < ROWS; r++) {
            float got;
            tier.traits[s->type].vec_dot((int) s->n, &got, 0, s->x + (size_t) r * s->row_size, 0, y + (size_t) c * by, 0, 1);
            expect(s, "vec_dot", r, c, got, 1e-5);
        }
    }
    const struct cpu_tile *t = &tier.tile[s->type];
    for (int nx = 1; t->run != NULL && nx <= t->mr; nx++) {
        for (int ny = 1; ny <= t->nr; ny++) {
            float got[64 * 64];
            t->run(s->n, got, 64, s->x, s->row_size, nx, y, by, ny);
            for (int i = 0; i < nx * ny; i++) {
                expect(s, "tile", i % nx, i / nx, got[i % nx + i / nx * 64], 1e-5);
            }
        }
    }
    free(y);
}

static void check_gemv(const struct subject *s) {
    const struct cpu_gemv *g = &tier.gemv[s->type];
    if (g->run == NULL) {
        return;
    }
    float got[ROWS];
    char *y = aligned_alloc(64, ((size_t) ((s->n + g->step - 1) / g->step) * g->y_size + 63) / 64 * 64);
    assert_non_null(y);
    for (int c = 0; c < COLS; c++) {
        g->pack_y(s->n, y, cols + c * N_MAX);
        g->run(s->n, got, s->x, s->row_size, ROWS, y);
        for (int r = 0; r < ROWS; r++) {
            expect(s, "gemv", r, c, got[r], 1e-5);
        }
    }
    free(y);
}

static void check_gemm(const struct subject *s) {
    const struct cpu_gemm *g = &tier.gemm[s->type];
    if (g->run == NULL) {
        return;
    }
    const size_t n_steps = (size_t) ((s->n + g->step - 1) / g->step);
    char *x              = aligned_alloc(64, (g->x_head + n_steps * g->x_size + 63) / 64 * 64);
    char *y              = aligned_alloc(64, (g->y_head + n_steps * g->y_size + 63) / 64 * 64);
    assert_true(x != NULL && y != NULL);
    for (int nx = 1; nx <= g->mr; nx++) {
        g->pack_x(s->n, x, s->x, s->row_size, nx);
        for (int ny = 1; ny <= g->nr && ny <= COLS; ny++) {
            const float *column[COLS];
            float got[COLS * 64];
            for (int c = 0; c < ny; c++) {
                column[c] = cols + c * N_MAX;
            }
            g->pack_y(s->n, y, column, ny);
            g->run(s->n, got, 64, x, nx, y, ny);
            for (int i = 0; i < nx * ny; i++) { // halves are added up in halves, a few at a time
                expect(s, "gemm", i % nx, i / nx, got[i % nx + i / nx * 64], s->type == GGML_TYPE_F16 ? 3e-3 : 1e-5);
            }
        }
    }
    free(x);
    free(y);
}

static void check_tier(void) {
    for (int t = 0; t < GGML_TYPE_COUNT; t++) {
        const struct ggml_type_traits_cpu *traits = &cpu_kernels_portable.traits[t];
        if (traits->vec_dot == NULL || traits->from_float == NULL) {
            continue;
        }
        const int64_t blck      = ggml_blck_size((enum ggml_type) t);
        const int64_t lengths[] = {blck, 3 * blck, blck == 1 ? 1003 : N_MAX};
        for (int i = 0; i < 3; i++) {
            struct subject s = subject_new((enum ggml_type) t, lengths[i]);
            check_dots(&s);
            check_gemv(&s);
            check_gemm(&s);
            free(s.x);
            free(s.expected);
        }
    }
}

static void test_tiers(void **state) {
    (void) state;
    cpu_init();
    numbers();
    tier = cpu_kernels_portable;
    for (const struct cpu_tier *t = cpu_tiers; t != NULL && t->name != NULL; t++) {
        if (t->has()) {
            t->fill(&tier);
            tier_name = t->name;
            check_tier();
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_tiers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
