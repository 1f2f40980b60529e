// SPDX-License-Identifier: MIT
// test_cpu_kernels.c: compares every tier that this machine supports, slot by slot, with the portable kernels: dot products, single
// columns and panels of every type, with lengths and counts that are not multiples of the vector sizes. It shows which tier is
// wrong; op-suite only shows that one is wrong. The last row of each buffer ends at a page that cannot be accessed (walled.h).

#include "support/walled.h"

#include "cpu/cpu.h"
#include "quant/blocks.h"

#include <float.h>
#include <math.h>

#define N_MAX 1536
#define ROWS 37
#define COLS 11

static struct cpu_kernels tier; // the portable kernels, overwritten by the tiers so far
static const char *tier_name;
static float rows[ROWS * N_MAX], cols[COLS * N_MAX];

static void numbers(void) {
    uint32_t state = 12345;
    for (int i = 0; i < ROWS * N_MAX; i++) {
        state = state * 1664525u + 1013904223u;
        rows[i] = (float) (int32_t) state / 2147483648.0f;
    }
    for (int i = 0; i < COLS * N_MAX; i++) {
        state = state * 1664525u + 1013904223u;
        cols[i] = (float) (int32_t) state / 536870912.0f;
    }
}

static bool is_close(float a, float b, double scale, double tolerance) {
    return fabs((double) a - (double) b) <= tolerance * scale;
}

// Returns the scale of the rounding error of a sum of n terms. It depends on the magnitude of the terms, not on the sum.
static double weight(int64_t n) {
    return sqrt((double) n) * 2.0;
}

// The operands of the products that a test checks, and the expected results.
struct subject {
    enum ggml_type type, with; // type of the rows; type of the columns in vec_dot
    int64_t n;
    size_t row_size;
    char *x;         // ROWS rows of the type
    float *y;        // COLS columns of n floats
    float *expected; // [COLS][ROWS]
};

// Fills a row of a format that cannot be written by a graph. All bits are random, so that every point of a codebook occurs, but
// every block has the scale d = 2^-8.
static void random_blocks(enum ggml_type type, char *row, int64_t n) {
    static uint32_t state = 54321;
    const uint16_t d = 0x1c00;
    const size_t size = ggml_type_size(type);
    for (size_t i = 0; i < ggml_row_size(type, n); i++) {
        state = state * 1664525u + 1013904223u;
        row[i] = (char) (state >> 24);
    }
    for (int64_t i = 0; i < n / ggml_blck_size(type); i++, row += size) {
        if (type != GGML_TYPE_IQ1_M) {
            memcpy(row, &d, sizeof d);
            continue;
        }
        uint8_t *scales = ((block_iq1_m *) (void *) row)->scales;
        for (int k = 0; k < 4; k++) {
            scales[2 * k + 1] = (uint8_t) ((scales[2 * k + 1] & 15) | (d >> (4 * k) & 15) << 4);
        }
    }
}

static struct subject subject_new(enum ggml_type type, int64_t n) {
    const struct cpu_kernels *k = &cpu_kernels_portable;
    struct subject s = {.type = type, .with = k->traits[type].vec_dot_type, .n = n, .row_size = ggml_row_size(type, n)};
    s.x = walled(s.row_size * ROWS);
    s.y = walled(sizeof(float) * COLS * (size_t) n);
    s.expected = malloc(sizeof(float) * ROWS * COLS);
    char *y = malloc(ggml_row_size(s.with, n));
    assert_true(s.expected != NULL && y != NULL);
    for (int r = 0; r < ROWS; r++) {
        if (k->traits[type].from_float != NULL) {
            k->traits[type].from_float(rows + r * N_MAX, s.x + (size_t) r * s.row_size, n);
        } else {
            random_blocks(type, s.x + (size_t) r * s.row_size, n);
        }
    }
    for (int c = 0; c < COLS; c++) {
        memcpy(s.y + c * n, cols + c * N_MAX, (size_t) n * sizeof(float));
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

static void subject_free(struct subject *s) {
    walled_free(s->x, s->row_size * ROWS);
    walled_free(s->y, sizeof(float) * COLS * (size_t) s->n);
    free(s->expected);
}

#define LD 64 // floats between columns of a result

// Returns memory for a result of nx by ny numbers that ends at the inaccessible page.
static float *result_at(int nx, int ny) {
    static float *all;
    if (all == NULL) {
        all = walled(LD * LD * sizeof(float));
    }
    return all + LD * LD - ((ny - 1) * LD + nx);
}

// Compares a result for the last nx rows and the last ny columns.
static void expect_tile(const struct subject *s, const char *slot, int nx, int ny, const float *got, double tolerance) {
    for (int i = 0; i < nx * ny; i++) {
        expect(s, slot, ROWS - nx + i % nx, COLS - ny + i / nx, got[i % nx + i / nx * LD], tolerance);
    }
}

static void check_dots(const struct subject *s) {
    const size_t by = ggml_row_size(s->with, s->n);
    char *y = walled(by * COLS);
    for (int c = 0; c < COLS; c++) {
        tier.traits[s->with].from_float(s->y + c * s->n, y + (size_t) c * by, s->n);
        for (int r = 0; r < ROWS; r++) {
            float got;
            tier.traits[s->type].vec_dot((int) s->n, &got, 0, s->x + (size_t) r * s->row_size, 0, y + (size_t) c * by, 0, 1);
            expect(s, "vec_dot", r, c, got, 1e-5);
        }
    }
    const struct cpu_tile *t = &tier.tile[s->type];
    for (int nx = 1; t->run != NULL && nx <= t->mr && nx <= ROWS; nx++) {
        for (int ny = 1; ny <= t->nr && ny <= COLS; ny++) {
            float *got = result_at(nx, ny);
            t->run(
                s->n, got, LD, s->x + (size_t) (ROWS - nx) * s->row_size, s->row_size, nx, y + (size_t) (COLS - ny) * by, by, ny);
            expect_tile(s, "tile", nx, ny, got, 1e-5);
        }
    }
    walled_free(y, by * COLS);
}

// Checks several columns at a time, each with its own result.
static void check_gemv_cols(const struct subject *s, const struct cpu_gemv *g, size_t size) {
    char *y = walled(size * CPU_GEMV_COLS);
    float *got[CPU_GEMV_COLS], results[CPU_GEMV_COLS][ROWS];
    const void *columns[CPU_GEMV_COLS];
    for (int c = 0; c < CPU_GEMV_COLS; c++) {
        columns[c] = y + size * (size_t) c;
        got[c] = results[c];
        g->pack_y(&tier, s->n, y + size * (size_t) c, s->y + c % COLS * s->n);
    }
    for (int ny = 2; ny <= CPU_GEMV_COLS; ny++) {
        const int first = CPU_GEMV_COLS - ny;
        memset(results, 0xff, sizeof results);
        g->run_cols(s->n, got + first, s->x, s->row_size, ROWS, columns + first, ny);
        for (int i = 0; i < ny * ROWS; i++) {
            const int c = first + i / ROWS, r = i % ROWS;
            expect(s, "gemv of columns", r, c % COLS, got[c][r], s->type == GGML_TYPE_F16 ? 1e-3 : 1e-5);
        }
    }
    walled_free(y, size * CPU_GEMV_COLS);
}

static void check_gemv(const struct subject *s) {
    const struct cpu_gemv *g = &tier.gemv[s->type];
    if (g->run == NULL) {
        return;
    }
    const size_t size = ((size_t) ((s->n + g->step - 1) / g->step) * g->y_size + 63) / 64 * 64;
    char *y = walled(size);
    for (int c = 0; c < COLS; c++) {
        float *got = result_at(ROWS, 1);
        g->pack_y(&tier, s->n, y, s->y + c * s->n);
        g->run(s->n, got, s->x, s->row_size, ROWS, y);
        for (int r = 0; r < ROWS; r++) {
            // Kernels of f16 add four products in f16, which rounds more.
            expect(s, "gemv", r, c, got[r], s->type == GGML_TYPE_F16 ? 1e-3 : 1e-5);
        }
    }
    walled_free(y, size);
    if (g->run_cols != NULL) {
        check_gemv_cols(s, g, size);
    }
}

// Packs the last ny columns into adjacent panels of y_size bytes.
static void columns_pack(const struct subject *s, const struct cpu_gemm *g, char *y, size_t y_size, int ny) {
    for (int c = 0; c < ny; c += g->nr, y += y_size) {
        const float *column[COLS];
        const int nc = ny - c < g->nr ? ny - c : g->nr;
        for (int i = 0; i < nc; i++) {
            column[i] = s->y + (COLS - ny + c + i) * s->n;
        }
        g->pack_y(&tier, s->n, y, column, nc);
    }
}

// Checks the kernel that reads rows in place; the last row ends at the inaccessible page.
static void check_gemm_rows(const struct subject *s, const struct cpu_gemm *g, size_t y_size) {
    if (g->rows.run == NULL || s->n % g->rows.step != 0) {
        return;
    }
    assert_true(g->mr <= ROWS);
    for (int ny = 1; ny <= g->rows.n_panels * g->nr && ny <= COLS; ny++) {
        const size_t size = (size_t) ((ny + g->nr - 1) / g->nr) * y_size;
        char *y = walled(size);
        float *got = result_at(g->mr, ny);
        columns_pack(s, g, y, y_size, ny);
        g->rows.run(s->n, got, LD, s->x + (size_t) (ROWS - g->mr) * s->row_size, s->row_size, y, ny);
        expect_tile(s, "rows", g->mr, ny, got, s->type == GGML_TYPE_F16 ? 3e-3 : 1e-5);
        walled_free(y, size);
    }
}

static void check_gemm(const struct subject *s) {
    const struct cpu_gemm *g = &tier.gemm[s->type];
    if (g->run == NULL) {
        return;
    }
    const size_t n_steps = (size_t) ((s->n + g->step - 1) / g->step);
    const size_t x_size = (g->x_head + n_steps * g->x_size + 63) / 64 * 64;
    const size_t y_size = (g->y_head + n_steps * g->y_size + 63) / 64 * 64;
    char *x = walled(x_size), *y = walled(y_size);
    for (int nx = 1; nx <= g->mr; nx++) {
        g->pack_x(s->n, x, s->x + (size_t) (ROWS - nx) * s->row_size, s->row_size, nx);
        for (int ny = 1; ny <= g->nr && ny <= COLS; ny++) {
            float *got = result_at(nx, ny);
            columns_pack(s, g, y, y_size, ny);
            g->run(s->n, got, LD, x, nx, y, ny);
            // Kernels of f16 add a few products at a time in f16, which rounds more.
            expect_tile(s, "gemm", nx, ny, got, s->type == GGML_TYPE_F16 ? 3e-3 : 1e-5);
        }
    }
    check_gemm_rows(s, g, y_size);
    walled_free(x, x_size);
    walled_free(y, y_size);
}

static void check_tier(void) {
    for (int t = 0; t < GGML_TYPE_COUNT; t++) {
        if (cpu_kernels_portable.traits[t].vec_dot == NULL) {
            continue;
        }
        const int64_t blck = ggml_blck_size((enum ggml_type) t);
        const int64_t lengths[] = {blck, 3 * blck, 4 * blck, blck == 1 ? 1003 : N_MAX, blck == 1 ? 96 : 5 * blck};
        for (int i = 0; i < 5; i++) {
            struct subject s = subject_new((enum ggml_type) t, lengths[i]);
            check_dots(&s);
            check_gemv(&s);
            check_gemm(&s);
            subject_free(&s);
        }
    }
}

// Checks the scales of mxfp4, from those that are subnormal floats to the largest with which a sum is still finite.
static void check_powers(void) {
    const struct cpu_kernels *k = &cpu_kernels_portable;
    const struct cpu_gemv *g = &tier.gemv[GGML_TYPE_MXFP4];
    enum { N = 128, N_POWERS = 240 };
    block_mxfp4 x[N_POWERS][N / QK_MXFP4];
    block_q8_0 y[N / QK_Q8_0];
    char column[1024];
    float got[N_POWERS], want[N_POWERS];
    if (g->run == NULL) {
        return;
    }
    assert_true((N + (size_t) g->step - 1) / (size_t) g->step * g->y_size <= sizeof column);
    k->traits[GGML_TYPE_Q8_0].from_float(cols, y, N);
    g->pack_y(&tier, N, column, cols);
    for (int e = 0; e < N_POWERS; e++) {
        k->traits[GGML_TYPE_MXFP4].from_float(rows, x[e], N);
        for (int i = 0; i < N / QK_MXFP4; i++) {
            x[e][i].e = (uint8_t) e;
        }
        k->traits[GGML_TYPE_MXFP4].vec_dot(N, &want[e], 0, x[e], 0, y, 0, 1);
    }
    g->run(N, got, x, sizeof x[0], N_POWERS, column);
    for (int e = 0; e < N_POWERS; e++) {
        if (got[e] != want[e] && !(fabsf(got[e] - want[e]) <= 1e-5f * fabsf(want[e]))) {
            fail_msg("%s: mxfp4 with scale %d: %g instead of %g", tier_name, e, (double) got[e], (double) want[e]);
        }
    }
}

// ---- rows of floats ----

#define ROW_MAX 83 // elements: complete vectors of any tier, and a remainder

static void expect_near(const char *slot, int64_t n, int64_t i, float got, float want) {
    if (!(got == want || (isnan(got) && isnan(want)) || is_close(got, want, fabs((double) want) + 1e-6, 1e-3))) {
        fail_msg(
            "%s: %s of %d elements, number %d: %g instead of %g", tier_name, slot, (int) n, (int) i, (double) got, (double) want);
    }
}

// Checks row functions in place, on rows that end at the inaccessible page, and sums over these rows.
static void check_row(int64_t n) {
    const struct cpu_kernels *p = &cpu_kernels_portable;
    const size_t size = (size_t) n * sizeof(float);
    float *x = walled(size), *y = walled(size), want[ROW_MAX];
#define ONE(slot) \
    do { \
        memcpy(x, cols, size); \
        tier.slot(n, x, x); \
        p->slot(n, want, cols); \
        for (int64_t i = 0; i < n; i++) { \
            expect_near(#slot, n, i, x[i], want[i]); \
        } \
    } while (0)
    ONE(exp);
    ONE(silu);
    ONE(gelu);
    ONE(gelu_quick);
    ONE(tanh);
    ONE(sigmoid);
#undef ONE
#define TWO(slot) \
    do { \
        memcpy(x, cols, size); \
        memcpy(y, rows, size); \
        tier.slot(n, x, x, y); \
        p->slot(n, want, cols, rows); \
        for (int64_t i = 0; i < n; i++) { \
            expect_near(#slot, n, i, x[i], want[i]); \
        } \
    } while (0)
    TWO(add);
    TWO(sub);
    TWO(mul);
    TWO(div);
    TWO(silu_mul);
#undef TWO
    memcpy(x, cols, size);
    memcpy(y, rows, size);
    memcpy(want, cols, size);
    const int64_t n_rotated = n / 2 * 2;
    tier.rotate(n_rotated, x, x, y, cols);
    p->rotate(n_rotated, want, want, rows, cols);
    for (int64_t i = 0; i < n; i++) { // two products may nearly cancel; the error of the difference is that of the products
        const float least = i < n_rotated ? fabsf(cols[i] * rows[i]) * 1e-6f : 0.0f;
        if (fabsf(x[i] - want[i]) > least) {
            expect_near("rotate", n, i, x[i], want[i]);
        }
    }
    memcpy(x, cols, size);
    expect_near("max", n, 0, tier.max(n, x), p->max(n, cols));
    expect_near("sum", n, 0, (float) tier.sum(n, x), (float) p->sum(n, cols));
    expect_near("sum_sq", n, 0, (float) tier.sum_sq(n, x), (float) p->sum_sq(n, cols));
    expect_near("exp_sum", n, 0, (float) tier.exp_sum(n, x, x, 4.0f), (float) p->exp_sum(n, want, cols, 4.0f));
    memcpy(x, cols, size);
    memcpy(y, rows, size);
    memcpy(want, rows, size);
    tier.mad(n, y, x, 0.5f);
    p->mad(n, want, cols, 0.5f);
    tier.scale(n, x, x, 3.0f, 1.0f);
    for (int64_t i = 0; i < n; i++) {
        expect_near("mad", n, i, y[i], want[i]);
        expect_near("scale", n, i, x[i], cols[i] * 3.0f + 1.0f);
    }
    walled_free(x, size);
    walled_free(y, size);
}

// Checks y += w x for rows of d elements; rows with weight 0 contain NaN.
static void check_mix(int64_t d, int ny, int n) {
    const size_t x_size = (size_t) (n * d) * sizeof(float), y_size = (size_t) (ny * d) * sizeof(float);
    const size_t w_size = (size_t) (n * ny) * sizeof(float);
    float *x = walled(x_size), *y = walled(y_size), *w = walled(w_size), *want = malloc(y_size);
    assert_non_null(want);
    memcpy(x, rows, x_size);
    memcpy(y, cols, y_size);
    memcpy(want, cols, y_size);
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < ny; j++) {
            w[i + j * n] = i % 3 == 1 || (i + j) % 5 == 0 ? 0.0f : 0.125f * (float) (i + j);
        }
        for (int64_t k = 0; k < d && i % 3 == 1; k++) {
            x[i * d + k] = NAN;
        }
    }
    tier.mix(d, y, d, ny, w, n, x, d, n);
    cpu_kernels_portable.mix(d, want, d, ny, w, n, x, d, n);
    for (int64_t i = 0; i < ny * d; i++) {
        assert_false(isnan(want[i]));
        expect_near("mix", d, i, y[i], want[i]);
    }
    free(want);
    walled_free(x, x_size);
    walled_free(y, y_size);
    walled_free(w, w_size);
}

static void check_rows(void) {
    for (int64_t n = 0; n <= ROW_MAX; n += n < 20 ? 1 : 9) {
        check_row(n);
        for (int ny = 1; ny <= 6 && n > 0; ny += n > 20 ? 5 : 1) {
            check_mix(n, ny, 1);
            check_mix(n, ny, 7);
        }
    }
}

// Calls check for each tier that this machine supports.
static void each_tier(void (*check)(void)) {
    cpu_init();
    numbers();
    tier = cpu_kernels_portable;
    for (const struct cpu_tier *t = cpu_tiers; t != NULL && t->name != NULL; t++) {
        if (t->has()) {
            t->fill(&tier);
            tier_name = t->name;
            check();
        }
    }
}

static void test_products(void **state) {
    (void) state;
    each_tier(check_tier);
    each_tier(check_powers);
}

static void test_rows(void **state) {
    (void) state;
    each_tier(check_rows);
}

// A row and a column have very large elements, but at different positions. The result must be finite.
static void test_far_scales(void **state) {
    (void) state;
    cpu_init();
    const struct cpu_kernels *k = &cpu_kernels_best;
    const struct cpu_gemm *g = &k->gemm[GGML_TYPE_F16];
    if (g->run == NULL) {
        skip();
    }
    enum { ELEMENTS = 64 };
    uint16_t x[ELEMENTS];
    float row[ELEMENTS] = {60000.0f, 0.5f}, y[ELEMENTS] = {0.0f, 1e37f}, got;
    const float *column = y;
    const size_t n_steps = (size_t) ((ELEMENTS + g->step - 1) / g->step);
    char *px = aligned_alloc(64, (g->x_head + n_steps * g->x_size + 63) / 64 * 64);
    char *py = aligned_alloc(64, (g->y_head + n_steps * g->y_size + 63) / 64 * 64);
    assert_true(px != NULL && py != NULL);
    k->traits[GGML_TYPE_F16].from_float(row, x, ELEMENTS);
    g->pack_x(ELEMENTS, px, x, sizeof x, 1);
    g->pack_y(&tier, ELEMENTS, py, &column, 1);
    g->run(ELEMENTS, &got, 1, px, 1, py, 1);
    assert_true(is_close(got, 5e36f, 5e36, 1e-2));
    free(px);
    free(py);
}

// Rows of the largest f16 values, whose products and sums exceed the range of f16, in every tier.
static void check_large(void) {
    enum { ELEMENTS = 96 };
    const struct cpu_gemm *g = &tier.gemm[GGML_TYPE_F16];
    const struct cpu_gemv *v = &tier.gemv[GGML_TYPE_F16];
    uint16_t x[ELEMENTS];
    float row[ELEMENTS], y[ELEMENTS], got = 0, want = 0;
    for (int i = 0; i < ELEMENTS; i++) {
        row[i] = i % 3 == 0 ? -60000.0f : 60000.0f;
        y[i] = i % 5 == 0 ? 0.5f : 30.0f;
        want += row[i] * y[i];
    }
    cpu_kernels_portable.traits[GGML_TYPE_F16].from_float(row, x, ELEMENTS);
    char *px = malloc(g->x_head + ELEMENTS * g->x_size + 64), *py = malloc(g->y_head + ELEMENTS * g->y_size + 64);
    char *pv = malloc(ELEMENTS * v->y_size + 64);
    assert_true(px != NULL && py != NULL && pv != NULL);
    if (g->run != NULL) {
        const float *column = y;
        g->pack_x(ELEMENTS, px, x, sizeof x, 1);
        g->pack_y(&tier, ELEMENTS, py, &column, 1);
        g->run(ELEMENTS, &got, 1, px, 1, py, 1);
        if (!is_close(got, want, fabs((double) want), 1e-2)) {
            fail_msg("%s: gemm of large rows: %g instead of %g", tier_name, (double) got, (double) want);
        }
    }
    if (g->rows.run != NULL && ELEMENTS % g->rows.step == 0) {
        float all[32];
        g->rows.run(ELEMENTS, all, 1, x, 0, py, 1); // the same row for all rows
        for (int r = 0; r < g->mr; r++) {
            if (!is_close(all[r], want, fabs((double) want), 1e-2)) {
                fail_msg("%s: large rows in place: %g instead of %g", tier_name, (double) all[r], (double) want);
            }
        }
    }
    if (v->run != NULL) {
        v->pack_y(&tier, ELEMENTS, pv, y);
        v->run(ELEMENTS, &got, x, sizeof x, 1, pv);
        if (!is_close(got, want, fabs((double) want), 1e-2)) {
            fail_msg("%s: gemv of large rows: %g instead of %g", tier_name, (double) got, (double) want);
        }
    }
    if (v->run_cols != NULL) {
        float pair[2], *const to[2] = {pair, pair + 1};
        const void *const columns[2] = {pv, pv};
        v->run_cols(ELEMENTS, to, x, sizeof x, 1, columns, 2);
        if (!is_close(pair[0], want, fabs((double) want), 1e-2) || !is_close(pair[1], want, fabs((double) want), 1e-2)) {
            fail_msg("%s: gemv of large rows and two columns: %g instead of %g", tier_name, (double) pair[1], (double) want);
        }
    }
    free(px);
    free(py);
    free(pv);
}

static void test_large(void **state) {
    (void) state;
    cpu_init();
    tier = cpu_kernels_portable;
    for (const struct cpu_tier *t = cpu_tiers; t != NULL && t->name != NULL; t++) {
        if (t->has()) {
            t->fill(&tier);
            tier_name = t->name;
            check_large();
        }
    }
}

// NaN stays NaN for any payload. Sanitizers check the arithmetic.
static void test_nan_with_payload(void **state) {
    (void) state;
    cpu_init();
    const struct cpu_kernels *k = &cpu_kernels_best;
    const cpu_row1_t maps[] = {k->exp, k->silu, k->sigmoid, k->tanh, k->gelu, k->gelu_quick};
    for (uint32_t payload = 1; payload < 0x800000; payload = payload * 3 + 1) {
        const uint32_t bits[] = {0x7f800000 | payload, 0xff800000 | payload, 0x7fc00000 | payload, 0xffc00000 | payload};
        float x[8], y[8];
        for (int i = 0; i < 8; i++) {
            memcpy(&x[i], &bits[i % 4], sizeof x[i]);
        }
        for (size_t m = 0; m < sizeof maps / sizeof maps[0]; m++) {
            for (int n = 1; n <= 8; n += 7) {
                maps[m](n, y, x);
                assert_true(isnan(y[0]) && isnan(y[n - 1]));
            }
        }
        assert_true(isnan(k->exp_sum(8, y, x, 0.0f)));
    }
}

// The result must be within a unit in the last place of the result in double: near multiples of pi / 2, far from 0, and for
// infinities and NaN.
static void expect_angle(const char *slot, float x, float got, double want) {
    const float least = fmaxf(fabsf((float) want), FLT_MIN);
    if (isnan(want) ? !isnan(got) : !(fabs(got - want) <= (double) (nextafterf(least, INFINITY) - least))) {
        fail_msg("%s: %s of %a: %a instead of %a", tier_name, slot, (double) x, (double) got, want);
    }
}

static void check_angles_of(int64_t n, uint32_t *state) {
    const size_t size = (size_t) n * sizeof(float);
    float *x = walled(size), *c = walled(size), *s = walled(size);
    for (int64_t i = 0; i < n; i++) {
        *state = *state * 1664525u + 1013904223u;
        const float any = ldexpf((float) (int32_t) *state, (int) (*state % 71) - 61); // up to 2^40
        const float edges = (float) ((double) ((int32_t) *state >> 6) * 1.5707963267948966);
        const float specials[] = {0.0f, -0.0f, INFINITY, NAN, 0x1p30f, -0x1.fffffep29f, 0x1p-149f, FLT_MAX};
        x[i] = *state >> 28 == 0 ? specials[*state >> 25 & 7] : *state >> 31 ? edges : any;
    }
    tier.cos_sin(n, c, s, x);
    for (int64_t i = 0; i < n; i++) {
        expect_angle("cos", x[i], c[i], cos((double) x[i]));
        expect_angle("sin", x[i], s[i], sin((double) x[i]));
        assert_true(x[i] != 0.0f || signbit(x[i]) == signbit(s[i]));
    }
    walled_free(x, size);
    walled_free(c, size);
    walled_free(s, size);
}

static void check_angles(void) {
    uint32_t any = 1;
    for (int64_t i = 0; i < 20000; i++) {
        check_angles_of(1 + i % 13, &any);
    }
}

static void test_angles(void **state) {
    (void) state;
    each_tier(check_angles);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_products), cmocka_unit_test(test_rows),
        cmocka_unit_test(test_far_scales), cmocka_unit_test(test_large), cmocka_unit_test(test_nan_with_payload),
        cmocka_unit_test(test_angles)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
