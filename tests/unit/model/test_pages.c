// SPDX-License-Identifier: MIT
// test_pages.c: tests the pages of a cache with random sequences: invariants, contents after moves, common prefixes, a full cache.

#include "support/check.h"

#include "base/min.h"
#include "model/pages.h"

#define N_SEQ 6
#define N_PAGE 4
#define N_PAGES 24
#define N_CTX 48

// What each row of a cache holds: the hash of a position's token and all tokens before it.
static uint64_t cache[N_PAGES * N_PAGE];

struct text {
    int32_t tokens[N_CTX];
    int64_t n; // positions in the cache; 0: the sequence does not run
};

static uint64_t text_hash(const struct text *t, int64_t n) {
    uint64_t h = 7;
    for (int64_t i = 0; i < n; i++) {
        h = h * 1099511628211u + (uint64_t) t->tokens[i] + 1;
    }
    return h;
}

// *n_moved counts the moves of pages.
static bool text_extend(struct pages *p, int seq, struct text *t, int64_t n, int64_t *n_moved) {
    while (pages_n_positions(p, seq) < n) {
        int64_t n_moves = 0;
        if (!pages_add(p, seq, &n_moves)) {
            return false;
        }
        for (int64_t i = 0; i < n_moves; i++) {
            const struct page_move m = pages_moves(p)[i];
            memcpy(cache + m.to * N_PAGE, cache + m.from * N_PAGE, N_PAGE * sizeof *cache);
            memset(cache + m.from * N_PAGE, 0, N_PAGE * sizeof *cache);
        }
        *n_moved += n_moves;
    }
    for (; t->n < n; t->n++) {
        cache[pages_row(p, seq, t->n)] = text_hash(t, t->n + 1);
    }
    pages_learn(p, seq, t->tokens, n);
    return true;
}

static void texts_check(const struct pages *p, const struct text *texts, bool is_ordered) {
    assert_true(pages_check(p));
    for (int seq = 0; seq < N_SEQ; seq++) {
        for (int64_t i = 0; i < texts[seq].n; i++) {
            assert_true(cache[pages_row(p, seq, i)] == text_hash(&texts[seq], i + 1));
            assert_true(!is_ordered || i == 0 || pages_row(p, seq, i) > pages_row(p, seq, i - 1));
        }
    }
}

static void random_run(bool no_keep, bool is_ordered) {
    const uint64_t seed = check_seed(1);
    struct check_rng rng = check_rng_new(seed);
    const struct pages_params params = {
        .n_page = N_PAGE, .n_pages = N_PAGES, .n_ctx = N_CTX, .n_seq = N_SEQ, .no_keep = no_keep, .is_ordered = is_ordered};
    struct pages *p = pages_new(&params);
    struct text texts[N_SEQ] = {0};
    int64_t n_cached = 0, n_shared = 0, n_full = 0, n_moved = 0;
    for (int i = 0; i < check_cases(20000); i++) {
        const int seq = (int) check_rng_below(&rng, N_SEQ);
        struct text *t = &texts[seq];
        if (t->n == 0) {
            const int64_t n = 1 + (int64_t) check_rng_below(&rng, N_CTX);
            const uint64_t kind = check_rng_below(&rng, 3); // texts of one kind have long common prefixes
            for (int64_t k = 0; k < N_CTX; k++) {
                t->tokens[k] = (int32_t) (check_rng_below(&rng, 40) == 0 ? check_rng_below(&rng, 100) : kind);
            }
            const struct pages_prefix found = pages_find(p, t->tokens, n);
            assert_true(found.n_cached < n && found.n_cached % N_PAGE == 0 && found.n_shared <= found.n_cached);
            assert_true((found.n_shared > 0) == (found.sharer >= 0));
            assert_true(found.n_shared == 0 || texts[found.sharer].n >= found.n_shared);
            pages_start(p, seq, t->tokens, found.n_cached);
            t->n = found.n_cached;
            n_cached += found.n_cached;
            n_shared += found.n_shared;
            if (!text_extend(p, seq, t, found.n_cached + 1, &n_moved)) {
                pages_end(p, seq);
                t->n = 0;
            }
        } else if (t->n == N_CTX || check_rng_below(&rng, 20) == 0) {
            pages_end(p, seq);
            t->n = 0;
        } else if (!text_extend(p, seq, t, min_i64(N_CTX, t->n + 1 + (int64_t) check_rng_below(&rng, 6)), &n_moved)) {
            assert_int_equal(pages_n_used(p), N_PAGES); // fails only if every page is in use
            n_full++;
            pages_end(p, seq);
            t->n = 0;
        }
        texts_check(p, texts, is_ordered);
        assert_true(pages_top(p) >= pages_n_used(p) && pages_top(p) <= N_PAGES);
    }
    assert_true((n_cached > n_shared) == !no_keep && n_shared > 0 && n_full > 0);
    assert_true((n_moved > 0) == is_ordered);
    for (int seq = 0; seq < N_SEQ; seq++) {
        pages_end(p, seq);
    }
    assert_int_equal(pages_n_used(p), 0);
    assert_int_equal(pages_top(p), 0);
    pages_free(p);
}

static void test_random(void **state) {
    (void) state;
    random_run(false, true);
    random_run(true, true);
    random_run(false, false);
}

// Unused pages are dropped in the order in which their sequences ended, the end of a text before its beginning.
static void test_drop(void **state) {
    (void) state;
    const struct pages_params params = {.n_page = 2, .n_pages = 4, .n_ctx = 8, .n_seq = 2};
    const int32_t a[] = {1, 2, 3, 4, 5}, b[] = {6, 7, 8, 9, 10}, c[] = {11, 12, 13, 14};
    struct pages *p = pages_new(&params);
    int64_t n_moves;
    for (int i = 0; i < 2; i++) {
        assert_true(pages_add(p, 0, &n_moves) && pages_add(p, 0, &n_moves));
        pages_learn(p, 0, i == 0 ? a : b, 4);
        pages_end(p, 0);
    }
    assert_int_equal(pages_find(p, a, 5).n_cached, 4);
    assert_int_equal(pages_find(p, b, 5).n_cached, 4);
    assert_int_equal(pages_find(p, b, 4).n_cached, 2); // one token remains
    assert_true(pages_add(p, 0, &n_moves));
    pages_learn(p, 0, c, 2);
    assert_int_equal(pages_find(p, a, 5).n_cached, 2);
    assert_int_equal(pages_find(p, b, 5).n_cached, 4);
    pages_start(p, 1, b, 4);
    assert_int_equal(pages_n_used(p), 3);
    assert_true(pages_add(p, 1, &n_moves));
    assert_false(pages_add(p, 1, &n_moves));
    assert_int_equal(pages_find(p, a, 5).n_cached, 0);
    assert_true(pages_check(p));
    pages_free(p);
}

static void test_memory(void **state) {
    (void) state;
    const struct pages_params params = {.n_page = 2, .n_pages = 4, .n_ctx = 8, .n_seq = 2};
    struct pages *p = NULL;
    for (int64_t n = 1; p == NULL; n++) {
        assert_true(n < 100);
        berth_alloc_watch(true);
        berth_alloc_fail_at(n);
        p = pages_new(&params);
        berth_alloc_fail_at(0);
        assert_true(p != NULL || berth_alloc_alive() == 0);
    }
    pages_free(p);
    berth_alloc_watch(false);
}

int main(void) {
    check_quiet();
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random), cmocka_unit_test(test_drop), cmocka_unit_test(test_memory)};
    return cmocka_run_group_tests_name("pages", tests, NULL, NULL);
}
