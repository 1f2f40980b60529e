// SPDX-License-Identifier: MIT
// test_plan_solve.c: the planner's contract: the input that it accepts and refuses, its messages and its report, and that it
// survives the failure of any allocation.

#include "base/base.h"
#include "berth-plan-io.h"
#include "support/plan_made.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

static struct berth_plan_item item(int64_t first, int64_t last, uint64_t size) {
    return (struct berth_plan_item){first, last, size, 1, 0, 0, 0, false};
}

static void fix(struct berth_plan_item *x, uint64_t offset) {
    x->is_fixed = true;
    x->fixed = offset;
}

static void quiet(enum ggml_log_level level, const char *text, void *user) {
    (void) level;
    (void) text;
    (void) user;
}

static void assert_refused(
    const struct berth_plan_item *items, int64_t n, const struct berth_plan_params *params, const char *words) {
    uint64_t off[8];
    assert_int_equal(berth_plan_solve(items, n, params, off, NULL), GGML_STATUS_FAILED);
    assert_non_null(strstr(berth_last_error(), words));
}

static void test_nothing(void **state) {
    (void) state;
    struct berth_plan_report r;
    assert_int_equal(berth_plan_solve(NULL, 0, NULL, NULL, &r), GGML_STATUS_SUCCESS);
    assert_true(r.proven && r.fits && r.peak == 0 && r.bound == 0);
    assert_int_equal(berth_plan_check(NULL, 0, NULL, NULL, NULL), GGML_STATUS_SUCCESS);
    uint64_t bound = 7;
    assert_int_equal(berth_plan_bound(NULL, 0, NULL, &bound, NULL), GGML_STATUS_SUCCESS);
    assert_int_equal(bound, 0);
    struct berth_plan_item empty[3] = {item(0, 5, 0), item(3, 3, 0), item(-9, 9, 0)};
    fix(&empty[1], 40);
    uint64_t off[3];
    assert_int_equal(berth_plan_solve(empty, 3, NULL, off, &r), GGML_STATUS_SUCCESS);
    assert_true(r.proven && r.peak == 0 && off[1] == 40);
}

static void test_refusals(void **state) {
    (void) state;
    struct berth_plan_item x[2] = {item(3, 2, 8), item(0, 1, 8)};
    assert_refused(x, 2, NULL, "ends at step 2, before it starts at 3");
    x[0] = item(0, 1, ((uint64_t) 1 << 62) + 1);
    assert_refused(x, 2, NULL, "more than 2^62");
    x[0] = item(0, 1, 100);
    assert_refused(x, 2, &(struct berth_plan_params){.chunk_limit = 99}, "100 bytes, but a chunk has only 99");
    fix(&x[0], 6);
    x[0].align = 4;
    assert_refused(x, 2, NULL, "fixed offset 6");
    x[0] = item(0, 1, 8);
    fix(&x[0], 0);
    fix(&x[1], 4);
    assert_refused(x, 2, NULL, "share bytes");
    x[0].alias = x[1].alias = 3;
    assert_refused(x, 2, NULL, "alias group 3");
    x[1].is_fixed = false;
    x[1].pool = 1;
    assert_refused(x, 2, NULL, "different pools, 0 and 1");
    x[0] = item(0, 1, 8);
    x[1] = item(2, 3, 8);
    x[0].alias = x[1].alias = 3;
    x[0].align = 4;
    fix(&x[1], 6);
    assert_refused(x, 2, NULL, "alias group 3 cannot have offset 6: common alignment 4");
    fix(&x[1], 106);
    assert_refused(x, 2, &(struct berth_plan_params){.chunk_limit = 100}, "chunks of 100");
    x[0] = x[1] = item(0, 1, 8);
    uint64_t start[2] = {0, 4};
    assert_refused(x, 2, &(struct berth_plan_params){.start = start}, "start plan is invalid");
    assert_refused(x, -1, NULL, "-1 items");
    struct berth_plan_item big[9];
    for (int i = 0; i < 9; i++) {
        big[i] = item(0, 0, (uint64_t) 1 << 62);
    }
    assert_refused(big, 5, NULL, "2^63"); // the sums of 5 and 8 sizes would wrap to 2^62 and 0
    assert_refused(big, 8, NULL, "2^63");
    assert_refused(big, 9, NULL, "2^63");
    big[3].size--;
    assert_refused(big, 4, NULL, "2^63");
}

// The bounds of four pools have the sum 2^64.
static void test_pools_are_too_large_together(void **state) {
    (void) state;
    struct berth_plan_item x[4];
    for (int i = 0; i < 4; i++) {
        x[i] = item(0, 1, (uint64_t) 1 << 62);
        x[i].pool = i;
    }
    uint64_t bound = 7;
    assert_int_equal(berth_plan_bound(x, 4, NULL, &bound, NULL), GGML_STATUS_FAILED);
    assert_non_null(strstr(berth_last_error(), "the pools together need more than 2^64 - 1 bytes"));
    assert_int_equal(bound, 7);
    assert_int_equal(berth_plan_bound(x, 3, NULL, &bound, NULL), GGML_STATUS_SUCCESS);
    assert_true(bound == 3 * ((uint64_t) 1 << 62));
    assert_refused(x, 4, NULL, "2^64 - 1 bytes");
}

// An alias group takes its bytes also at the steps between its items, so the peak of each pool is twice its bound. The sum of the
// peaks is 2^64, and that of the bounds 2^63.
static void test_peaks_are_too_large_together(void **state) {
    (void) state;
    struct berth_plan_item x[12];
    uint64_t off[12];
    struct berth_plan_report r;
    for (int i = 0; i < 12; i++) {
        const int64_t step = i % 3;
        x[i] = item(2 * step, 2 * step, (uint64_t) 1 << 61);
        x[i].pool = i / 3;
        x[i].alias = step == 1 ? 0 : 1 + i / 3;
    }
    assert_int_equal(berth_plan_solve(x, 9, NULL, off, &r), GGML_STATUS_SUCCESS);
    assert_true(r.peak == 3 * ((uint64_t) 1 << 62) && r.bound == 3 * ((uint64_t) 1 << 61));
    assert_int_equal(berth_plan_solve(x, 12, NULL, off, &r), GGML_STATUS_FAILED);
    assert_non_null(strstr(berth_last_error(), "the pools together need more than 2^64 - 1 bytes"));
}

// A plan with an offset above 2^62 is refused, because a plan file could not hold it.
static void test_offsets_end_at_2_62(void **state) {
    (void) state;
    struct berth_plan_item x[3];
    uint64_t off[3];
    x[0] = x[1] = x[2] = item(0, 1, ((uint64_t) 1 << 61) + 1);
    assert_refused(x, 3, NULL, "of 2305843009213693953 bytes would have offset 4611686018427387906, but the limit is 2^62");
    for (int i = 0; i < 3; i++) {
        x[i].size = (uint64_t) 1 << 61;
    }
    assert_int_equal(berth_plan_solve(x, 3, NULL, off, NULL), GGML_STATUS_SUCCESS);
    char name[] = "x", *ids[3] = {name, name, name};
    struct berth_plan_set set = {.items = x, .n_items = 3, .ids = ids, .offsets = off};
    struct berth_plan_set *reread;
    struct berth_stream s;
    assert_true(berth_stream_open(&s));
    assert_int_equal(berth_plan_write_csv(&set, off, s.file), GGML_STATUS_SUCCESS);
    assert_true(berth_stream_close(&s));
    assert_int_equal(berth_plan_read_csv(s.text, s.size, "plan", &reread), GGML_STATUS_SUCCESS);
    assert_memory_equal(reread->offsets, off, sizeof off);
    berth_plan_set_free(reread);
    berth_stream_fini(&s);
}

// The solver finds a plan with a lower peak, but an offset in it exceeds 2^62. It must return the start plan instead.
static void test_start_stays(void **state) {
    (void) state;
    const struct berth_plan_item x[] = {{.last = 1, .size = (uint64_t) 1 << 62, .align = 1}, {.last = 1, .size = 10, .align = 1},
        {.last = 1, .size = 5, .align = 1}};
    const uint64_t start[] = {200, 0, 100};
    uint64_t offsets[3];
    struct berth_plan_report report;
    assert_int_equal(berth_plan_solve(x, 3, NULL, offsets, &report), GGML_STATUS_FAILED);
    assert_non_null(strstr(berth_last_error(), "the limit is 2^62"));
    assert_int_equal(berth_plan_solve(x, 3, &(struct berth_plan_params){.start = start}, offsets, &report), GGML_STATUS_SUCCESS);
    assert_true(offsets[0] == 200 && offsets[1] == 0 && offsets[2] == 100 && report.peak == ((uint64_t) 1 << 62) + 200);
}

// Each fixed item raises the lower bound of the peak. If the solver searched all steps for the one with the most live bytes
// (bound_step) after each item, the time would be quadratic.
static void test_many_fixed(void **state) {
    (void) state;
    enum { N = 50000 };
    struct berth_plan_item *x = calloc(N, sizeof *x);
    uint64_t *off = calloc(N, sizeof *off);
    struct berth_plan_report r;
    assert_true(x != NULL && off != NULL);
    for (int i = 0; i < N; i++) {
        x[i] = item(i, i + 3, 64);
        x[i].fixed = (uint64_t) i * 64;
        x[i].is_fixed = true;
    }
    const clock_t start = clock();
    assert_int_equal(berth_plan_solve(x, N, NULL, off, &r), GGML_STATUS_SUCCESS);
    const double seconds = (double) (clock() - start) / CLOCKS_PER_SEC;
    assert_true(r.peak == (uint64_t) N * 64 && r.proven && r.bound_step == N - 1);
    print_message("%d fixed items: %.3f s\n", N, seconds);
    assert_true(seconds < 1);
    free(off);
    free(x);
}

static void test_large_sizes(void **state) {
    (void) state;
    struct berth_plan_item x[3] = {
        item(INT64_MIN, 0, ((uint64_t) 1 << 62) - 1), item(0, INT64_MAX, 12345), item(1, 7, (uint64_t) 1 << 62)};
    uint64_t off[3];
    struct berth_plan_report r;
    struct berth_plan_params params = {.time_limit_us = 1000};
    assert_int_equal(berth_plan_solve(x, 3, &params, off, &r), GGML_STATUS_SUCCESS);
    assert_int_equal(berth_plan_check(x, 3, NULL, off, NULL), GGML_STATUS_SUCCESS);
    assert_true(r.peak == ((uint64_t) 1 << 62) + 12345 && r.proven);
}

static void test_check_names_the_fault(void **state) {
    (void) state;
    struct berth_plan_item x[3] = {item(0, 4, 8), item(5, 9, 8), item(4, 5, 8)};
    struct berth_plan_fault f;
    uint64_t off[3] = {0, 0, 8};
    assert_int_equal(berth_plan_check(x, 3, NULL, off, &f), GGML_STATUS_SUCCESS);
    assert_int_equal(f.kind, BERTH_PLAN_SOUND);
    off[2] = 7;
    assert_int_equal(berth_plan_check(x, 3, NULL, off, &f), GGML_STATUS_FAILED);
    assert_true(f.kind == BERTH_PLAN_COLLIDE && f.i == 0 && f.j == 2);
    x[2].align = 16;
    assert_int_equal(berth_plan_check(x, 3, NULL, off, &f), GGML_STATUS_FAILED);
    assert_true(f.kind == BERTH_PLAN_ALIGN && f.i == 2);
    x[2].align = 1;
    fix(&x[1], 4);
    assert_int_equal(berth_plan_check(x, 3, NULL, off, &f), GGML_STATUS_FAILED);
    assert_true(f.kind == BERTH_PLAN_FIXED && f.i == 1);
    x[1].is_fixed = false;
    off[2] = 8;
    assert_int_equal(berth_plan_check(x, 3, &(struct berth_plan_params){.chunk_limit = 12}, off, &f), GGML_STATUS_FAILED);
    assert_true(f.kind == BERTH_PLAN_CHUNK && f.i == 2);
    off[2] = UINT64_MAX - 2;
    assert_int_equal(berth_plan_check(x, 3, NULL, off, &f), GGML_STATUS_FAILED);
    assert_true(f.kind == BERTH_PLAN_OVERFLOW && f.i == 2);
    off[2] = INT64_MAX - 7;
    assert_int_equal(berth_plan_check(x, 3, NULL, off, &f), GGML_STATUS_FAILED);
    assert_true(f.kind == BERTH_PLAN_OVERFLOW && f.i == 2);
    off[2] = 8;
    x[0].alias = x[1].alias = 1;
    off[1] = 16;
    assert_int_equal(berth_plan_check(x, 3, NULL, off, &f), GGML_STATUS_FAILED);
    assert_true(f.kind == BERTH_PLAN_ALIAS && f.i == 0 && f.j == 1);
}

static void test_chunks_and_pools(void **state) {
    (void) state;
    struct berth_plan_item x[4] = {item(0, 9, 60), item(0, 9, 60), item(0, 9, 40), item(0, 9, 30)};
    x[3].pool = 5;
    uint64_t off[4];
    struct berth_plan_report r;
    struct berth_plan_params params = {.chunk_limit = 100, .time_limit_us = 1000};
    assert_int_equal(berth_plan_solve(x, 4, &params, off, &r), GGML_STATUS_SUCCESS);
    assert_int_equal(berth_plan_check(x, 4, &params, off, NULL), GGML_STATUS_SUCCESS);
    assert_true(off[0] / 100 != off[1] / 100);
    assert_true(r.peak == 190 && r.bound == 190 && r.proven); // 100 + 60 bytes in pool 0, 30 bytes in pool 5
}

// Items with larger alignments are placed lower, and other items use the padding between them.
static void test_mixed_alignments(void **state) {
    (void) state;
    struct berth_plan_item x[4] = {item(0, 1, 10), item(0, 1, 7), item(0, 1, 9), item(0, 1, 9)};
    struct berth_plan_report r;
    uint64_t off[4];
    x[1].align = 8;
    assert_int_equal(berth_plan_solve(x, 2, NULL, off, &r), GGML_STATUS_SUCCESS);
    assert_true(r.proven && r.peak == 17 && off[1] == 0 && off[0] == 7);
    // Two items of 9 bytes at multiples of 8 end at 25 or later, although only 18 bytes are alive. The bound includes this.
    x[2].align = x[3].align = 8;
    uint64_t bound;
    assert_int_equal(berth_plan_bound(x + 2, 2, NULL, &bound, NULL), GGML_STATUS_SUCCESS);
    assert_int_equal(bound, 25);
    const struct berth_plan_item then[3] = {x[2], x[3], item(50, 60, 1)};
    int64_t step = -1;
    assert_int_equal(berth_plan_bound(then, 3, NULL, &bound, &step), GGML_STATUS_SUCCESS);
    assert_true(bound == 25 && step == 0);
    assert_int_equal(berth_plan_solve(x, 4, NULL, off, &r), GGML_STATUS_SUCCESS);
    assert_true(r.proven);
    assert_int_equal(r.peak, 41); // 9 bytes at 0, 10 at 9, 7 at 24, 9 at 32
    // With more than a few items of one alignment, sizes are rounded up to it, here from 300 to 320.
    struct berth_plan_item many[9];
    uint64_t many_off[9];
    for (int i = 0; i < 9; i++) {
        many[i] = item(0, 1, 300);
        many[i].align = 64;
    }
    assert_int_equal(berth_plan_solve(many, 9, NULL, many_off, &r), GGML_STATUS_SUCCESS);
    assert_true(r.proven && r.peak == 8 * 320 + 300);
}

// Fields that a program leaves 0 have no effect: alignment, alias group, pool, fixed offset.
static void test_zeroed_items(void **state) {
    (void) state;
    const struct berth_plan_item x[3] = {
        {.first = 0, .last = 2, .size = 100}, {.first = 1, .last = 2, .size = 200}, {.first = 2, .last = 3, .size = 50}};
    uint64_t off[3];
    struct berth_plan_report r;
    assert_int_equal(berth_plan_solve(x, 3, NULL, off, &r), GGML_STATUS_SUCCESS);
    assert_true(r.peak == 350 && r.proven);
    assert_int_equal(berth_plan_check(x, 3, NULL, off, NULL), GGML_STATUS_SUCCESS);
    memset(off, 0, sizeof off);
    struct berth_plan_fault fault;
    assert_int_equal(berth_plan_check(x, 3, NULL, off, &fault), GGML_STATUS_FAILED);
    assert_int_equal(fault.kind, BERTH_PLAN_COLLIDE);
    struct berth_plan_item below = x[0];
    below.alias = -1;
    assert_int_equal(berth_plan_solve(&below, 1, NULL, off, &r), GGML_STATUS_FAILED);
    assert_non_null(strstr(berth_last_error(), "alias group -1"));
}

static void test_alias_group(void **state) {
    (void) state;
    // The items of the group have the same size, and the second begins at the step at which the first ends. At each step, the
    // group therefore needs exactly the bytes of its live items, and the solver can prove that the peak of 15 is optimal.
    struct berth_plan_item x[3] = {item(0, 4, 10), item(4, 9, 10), item(2, 6, 5)};
    x[0].alias = x[1].alias = 1;
    uint64_t off[3];
    struct berth_plan_report r;
    assert_int_equal(berth_plan_solve(x, 3, NULL, off, &r), GGML_STATUS_SUCCESS);
    assert_true(off[0] == off[1] && r.peak == 15 && r.proven);
}

static void test_capacity(void **state) {
    (void) state;
    struct berth_plan_item x[2] = {item(0, 1, 8), item(1, 2, 8)};
    uint64_t off[2];
    struct berth_plan_report r;
    assert_int_equal(berth_plan_solve(x, 2, &(struct berth_plan_params){.memory_limit = 15}, off, &r), GGML_STATUS_SUCCESS);
    assert_true(!r.fits && r.proven && r.peak == 16);
    assert_int_equal(berth_plan_solve(x, 2, &(struct berth_plan_params){.memory_limit = 16}, off, &r), GGML_STATUS_SUCCESS);
    assert_true(r.fits && r.proven);
}

struct text {
    char text[4096];
    size_t n;
};

static bool text_append(const char *piece, size_t size, void *user) {
    struct text *t = user;
    if (size >= sizeof t->text - t->n) {
        return false;
    }
    memcpy(t->text + t->n, piece, size);
    t->n += size;
    t->text[t->n] = 0;
    return true;
}

// 10 items with 11 live bytes at most and an optimum of 12 bytes, then items of one byte. The fast path raises the bound by searching
// the core, which has at most half of the items.
static void make_small_core(struct berth_plan_item *x, int n) {
    static const int rows[][3] = {
        {3, 5, 2}, {4, 5, 3}, {2, 4, 3}, {0, 0, 5}, {3, 4, 3}, {6, 6, 4}, {1, 1, 2}, {5, 8, 6}, {0, 2, 5}, {1, 3, 2}};
    for (int i = 0; i < n; i++) {
        x[i] = i < 10 ? item(rows[i][0], rows[i][1], (uint64_t) rows[i][2]) : item(i, i, 1);
    }
}

static void test_small_core(void **state) {
    (void) state;
    struct berth_plan_item x[30];
    uint64_t off[30], bound;
    struct berth_plan_report r;
    make_small_core(x, 30);
    assert_int_equal(berth_plan_bound(x, 30, NULL, &bound, NULL), GGML_STATUS_SUCCESS);
    assert_int_equal(bound, 11);
    assert_int_equal(berth_plan_solve(x, 30, NULL, off, &r), GGML_STATUS_SUCCESS);
    assert_true(r.proven && r.bound == 12 && r.n_nodes > 0);
    // With a proof, the bound of the fast path has one too.
    struct text t = {.n = 0};
    const struct berth_plan_params params = {.proof = text_append, .proof_data = &t};
    assert_int_equal(berth_plan_solve(x, 30, &params, off, &r), GGML_STATUS_SUCCESS);
    assert_true(r.proven && r.bound == 12);
    assert_non_null(strstr(t.text, "\nsteps\n"));
}

static void make_random(struct berth_plan_item *x, int n, uint64_t s) {
    for (int i = 0; i < n; i++) {
        s = s * 6364136223846793005u + 1442695040888963407u;
        int64_t first = (int64_t) (s >> 33) % 30;
        int64_t width = 1 + (int64_t) (s >> 40) % 9;
        x[i] = item(first, first + width, 1 + (s >> 50) % 40);
    }
}

// Makes an instance that the fast path does not solve, so that every part of the solver allocates memory.
static void make_hard(struct berth_plan_item *x, int n) {
    make_random(x, n, 5);
}

// A brief solve runs only the first methods. Without a time limit, there is no search after the other methods either. The gap is
// the part of the bound by which the peak exceeds it.
static void test_brief(void **state) {
    (void) state;
    static const char *const skipped[] = {"WAT", "largest", "ZW", "AT", "aimed", "core"};
    int n_lower = 0, n_gaps = 0;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        struct berth_plan_item x[150];
        uint64_t off[150];
        struct berth_plan_report brief, full;
        make_random(x, 150, seed);
        assert_int_equal(
            berth_plan_solve(x, 150, &(struct berth_plan_params){.is_brief = true}, off, &brief), GGML_STATUS_SUCCESS);
        for (size_t i = 0; i < sizeof skipped / sizeof skipped[0]; i++) {
            assert_null(strstr(brief.method, skipped[i]));
        }
        assert_int_equal(berth_plan_solve(x, 150, NULL, off, &full), GGML_STATUS_SUCCESS);
        assert_true(full.peak <= brief.peak && full.bound >= brief.bound);
        assert_true(brief.gap == (double) brief.peak / (double) brief.bound - 1);
        assert_true((brief.gap == 0) == brief.proven);
        n_lower += full.peak < brief.peak;
        n_gaps += brief.gap > 0;
    }
    print_message("%d of 40 peaks are lower with all methods, %d exceed the bound\n", n_lower, n_gaps);
    assert_true(n_lower > 0 && n_gaps > 0);
}

static void test_threads_change_nothing(void **state) {
    (void) state;
    struct berth_plan_item x[60];
    make_hard(x, 60);
    uint64_t one[60], two[60];
    struct berth_plan_report r1, r2;
    struct berth_plan_params params = {.time_limit_us = 20000000, .seed = 3};
    assert_int_equal(berth_plan_solve(x, 60, &params, one, &r1), GGML_STATUS_SUCCESS);
    params.n_threads = 3;
    assert_int_equal(berth_plan_solve(x, 60, &params, two, &r2), GGML_STATUS_SUCCESS);
    assert_true(r1.proven && r2.proven && r1.peak == r2.peak);
    assert_memory_equal(one, two, sizeof one);
    params.start = one;
    assert_int_equal(berth_plan_solve(x, 60, &params, two, &r2), GGML_STATUS_SUCCESS);
    assert_true(r2.peak == r1.peak);
}

// The search in depth finds the optimum. At its end, the plans of the other threads are higher.
static void test_threads_keep_the_optimum(void **state) {
    (void) state;
    struct plan_made m;
    plan_made_hard(&m, 12);
    uint64_t *off = calloc((size_t) m.n & 0xFFFFFF, sizeof *off);
    assert_non_null(off);
    for (int32_t n_threads = 2; n_threads <= 3; n_threads++) {
        const struct berth_plan_params params = {.time_limit_us = 60000000, .n_threads = n_threads};
        struct berth_plan_report r;
        assert_int_equal(berth_plan_solve(m.items, m.n, &params, off, &r), GGML_STATUS_SUCCESS);
        assert_true(r.proven && r.peak == m.optimum);
    }
    free(off);
    made_free(&m);
}

// With the longest limit, the search in depth runs, too. Local search alone does not end on this problem.
static void test_longest_limit(void **state) {
    (void) state;
    struct plan_made m;
    plan_made_hard(&m, 2);
    uint64_t *off = calloc((size_t) m.n & 0xFFFFFF, sizeof *off);
    assert_non_null(off);
    const struct berth_plan_params params = {.time_limit_us = INT64_MAX};
    struct berth_plan_report r;
    assert_int_equal(berth_plan_solve(m.items, m.n, &params, off, &r), GGML_STATUS_SUCCESS);
    assert_true(r.proven && r.peak == m.optimum);
    free(off);
    made_free(&m);
}

struct watch_data {
    int n_left;           // calls until the callback ends the search
    uint64_t peak, bound; // arguments of the last call
};

static bool watch_callback(uint64_t peak, uint64_t bound, void *user) {
    struct watch_data *l = user;
    l->peak = peak;
    l->bound = bound;
    return --l->n_left > 0;
}

// The callback gets the current peak and bound, and ends the search at its third call. The result is the best plan found until
// then. The search takes less than 60 s of wall time with any number of threads.
static void test_watched(void **state) {
    (void) state;
    struct plan_made m;
    plan_made_hard(&m, 341); // takes more than a few seconds
    uint64_t *off = calloc((size_t) m.n & 0xFFFFFF, sizeof *off);
    assert_non_null(off);
    struct berth_plan_report r;
    struct berth_plan_params params = {.time_limit_us = 600000000};
    for (int32_t n_threads = 1; n_threads <= 4; n_threads += 3) {
        struct watch_data l = {.n_left = 3};
        params.n_threads = n_threads;
        assert_int_equal(berth_plan_solve_watched(m.items, m.n, &params, watch_callback, &l, off, &r), GGML_STATUS_SUCCESS);
        assert_int_equal(l.n_left, 0);
        assert_true(!r.proven && r.peak <= l.peak && l.peak >= l.bound && r.bound >= l.bound && l.bound > 0);
        assert_true(r.time_us < 60000000);
        assert_int_equal(berth_plan_check(m.items, m.n, NULL, off, NULL), GGML_STATUS_SUCCESS);
    }
    free(off);
    made_free(&m);
}

// Made problems: hard problems with a known optimum, and a training network for which the method "outward from the peak"
// (from_peak.c) fails. Without a memory limit, the solver finds and proves the optimum of each. With the optimum as the memory
// limit, the plan fits.
static void test_made(void **state) {
    (void) state;
    static const uint64_t seeds[] = {12, 17, 27, 57, 241};
    struct plan_made m;
    for (size_t k = 0; k <= sizeof seeds / sizeof seeds[0]; k++) {
        const bool is_hard = k < sizeof seeds / sizeof seeds[0];
        if (is_hard) {
            plan_made_hard(&m, seeds[k]);
        } else {
            plan_made_training(&m, 13);
        }
        struct berth_plan_report r;
        struct berth_plan_params params = {.time_limit_us = 60000000};
        berth_clear_error();
        uint64_t *off = calloc((size_t) m.n & 0xFFFFFF, sizeof *off);
        assert_non_null(off);
        assert_int_equal(berth_plan_solve(m.items, m.n, &params, off, &r), GGML_STATUS_SUCCESS);
        assert_true(r.proven && (!is_hard || r.peak == m.optimum));
        assert_int_equal(berth_plan_check(m.items, m.n, NULL, off, NULL), GGML_STATUS_SUCCESS);
        params.memory_limit = is_hard ? m.optimum : r.bound;
        assert_int_equal(berth_plan_solve(m.items, m.n, &params, off, &r), GGML_STATUS_SUCCESS);
        assert_true(r.proven && r.fits);
        assert_string_equal(berth_last_error(), ""); // searches that find no plan report no error
        free(off);
        made_free(&m);
    }
}

// Solves with the n-th allocation failing, for every n. Returns the number of failures.
static int fail_each_allocation(const struct berth_plan_item *x, int64_t n_items, const struct berth_plan_params *params) {
    uint64_t *off = calloc((size_t) n_items & 0xFFFFFF, sizeof *off);
    assert_non_null(off);
    int n_failed = 0;
    bool is_complete = false;
    for (int64_t n = 1; !is_complete; n++) {
        assert_true(n < 2000);
        struct berth_plan_report r;
        memset(off, 0, (size_t) n_items * sizeof *off);
        berth_alloc_watch(true);
        berth_alloc_fail_at(n);
        enum ggml_status status = berth_plan_solve(x, n_items, params, off, &r);
        is_complete = berth_alloc_made() < n - 1; // the failed allocation is not counted
        berth_alloc_fail_at(0);
        assert_int_equal(berth_alloc_alive(), 0);
        assert_true(status == GGML_STATUS_ALLOC_FAILED || status == GGML_STATUS_SUCCESS);
        if (status == GGML_STATUS_SUCCESS) {
            assert_int_equal(berth_plan_check(x, n_items, params, off, NULL), GGML_STATUS_SUCCESS);
        }
        berth_alloc_watch(false);
        n_failed += status != GGML_STATUS_SUCCESS;
    }
    free(off);
    return n_failed;
}

static void test_failing_allocations(void **state) {
    (void) state;
    struct berth_plan_item x[60];
    // Variants: 0: one thread; 1: two threads; 2: alignments; 3: pools and alias groups; 4: a fixed item and chunks.
    for (int variant = 0; variant < 5; variant++) {
        struct berth_plan_params params = {.time_limit_us = 20000, .n_threads = variant == 1 ? 2 : 1};
        make_hard(x, 60);
        for (int i = 0; i < 60 && variant >= 2; i++) {
            x[i].align = variant == 2 ? (uint64_t) (1 + i % 3) : 1;
            x[i].pool = variant == 3 ? i % 3 : 0;
            x[i].alias = variant == 3 ? 1 + i % 15 : 0;
            x[i].alias = variant == 3 && x[i].pool != (i % 15) % 3 ? 0 : x[i].alias;
        }
        if (variant == 4) {
            fix(&x[3], 77);
            params.chunk_limit = 128;
            params.time_limit_us = 2000;
        }
        assert_true(fail_each_allocation(x, 60, &params) > 5);
    }
    struct plan_made m; // takes a search
    plan_made_hard(&m, 12);
    const struct berth_plan_params params = {.time_limit_us = 20000, .is_counted = true};
    assert_true(fail_each_allocation(m.items, m.n, &params) > 5);
    made_free(&m);
}

// Solves from a start plan in which no items share bytes. A failure is reported although the start plan is valid.
static void test_failing_allocations_of_start(void **state) {
    (void) state;
    struct berth_plan_item x[60];
    uint64_t start[60], at = 0;
    make_hard(x, 60);
    for (int i = 0; i < 60; i++) {
        start[i] = at;
        at += x[i].size;
    }
    assert_true(fail_each_allocation(x, 60, &(struct berth_plan_params){.start = start}) > 5);
}

// No part of the bound is left out if an allocation fails.
static void test_failing_allocations_of_bound(void **state) {
    (void) state;
    struct berth_plan_item x[3] = {item(0, 1, 9), item(0, 1, 9), item(50, 60, 1)};
    x[0].align = x[1].align = 8;
    bool is_complete = false;
    for (int64_t n = 1; !is_complete; n++) {
        assert_true(n < 100);
        uint64_t bound = 7;
        berth_alloc_watch(true);
        berth_alloc_fail_at(n);
        const enum ggml_status status = berth_plan_bound(x, 3, NULL, &bound, NULL);
        is_complete = berth_alloc_made() < n - 1; // the failed allocation is not counted
        berth_alloc_fail_at(0);
        assert_int_equal(berth_alloc_alive(), 0);
        berth_alloc_watch(false);
        assert_true(status == GGML_STATUS_ALLOC_FAILED ? bound == 7 : status == GGML_STATUS_SUCCESS && bound == 25);
    }
}

// A proof of a raised bound has the steps of the search.
static void test_failing_allocations_of_proof(void **state) {
    (void) state;
    struct berth_plan_item x[10]; // so few that the fast path does not raise the bound
    uint64_t off[10];
    bool is_complete = false;
    make_small_core(x, 10);
    for (int64_t n = 1; !is_complete; n++) {
        assert_true(n < 500);
        struct berth_plan_report r;
        struct text t = {.n = 0};
        berth_alloc_watch(true);
        berth_alloc_fail_at(n);
        const struct berth_plan_params params = {
            .time_limit_us = 5000, .is_counted = true, .proof = text_append, .proof_data = &t};
        const enum ggml_status status = berth_plan_solve(x, 10, &params, off, &r);
        is_complete = berth_alloc_made() < n - 1; // the failed allocation is not counted
        berth_alloc_fail_at(0);
        assert_int_equal(berth_alloc_alive(), 0);
        berth_alloc_watch(false);
        assert_true(status == GGML_STATUS_ALLOC_FAILED || status == GGML_STATUS_SUCCESS ||
                    strstr(berth_last_error(), "cannot write the proof of 10 items: out of memory") != NULL);
        if (status == GGML_STATUS_SUCCESS) {
            assert_true((r.bound == 12) == (strstr(t.text, "\nsteps\n") != NULL));
        }
        assert_true(!is_complete || r.bound == 12);
    }
}

int main(void) {
    ggml_log_set(quiet, NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_large_sizes),
        cmocka_unit_test(test_pools_are_too_large_together),
        cmocka_unit_test(test_peaks_are_too_large_together),
        cmocka_unit_test(test_offsets_end_at_2_62),
        cmocka_unit_test(test_many_fixed),
        cmocka_unit_test(test_check_names_the_fault),
        cmocka_unit_test(test_chunks_and_pools),
        cmocka_unit_test(test_mixed_alignments),
        cmocka_unit_test(test_zeroed_items),
        cmocka_unit_test(test_alias_group),
        cmocka_unit_test(test_capacity),
        cmocka_unit_test(test_small_core),
        cmocka_unit_test(test_brief),
        cmocka_unit_test(test_threads_change_nothing),
        cmocka_unit_test(test_threads_keep_the_optimum),
        cmocka_unit_test(test_longest_limit),
        cmocka_unit_test(test_start_stays),
        cmocka_unit_test(test_watched),
        cmocka_unit_test(test_made),
        cmocka_unit_test(test_failing_allocations),
        cmocka_unit_test(test_failing_allocations_of_start),
        cmocka_unit_test(test_failing_allocations_of_bound),
        cmocka_unit_test(test_failing_allocations_of_proof),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
