// SPDX-License-Identifier: MIT
// The online allocator and its free space: against a slow model, at its limits, and with failing allocations.

#include "berth.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

static uint64_t rng = 1;

static uint32_t roll(uint32_t n) {
    rng = rng * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t) ((rng >> 33) % n);
}

static uint64_t take(struct berth_online *online, uint64_t size) {
    uint64_t off = 12345;
    assert_int_equal(berth_online_alloc(online, size, &off), GGML_STATUS_SUCCESS);
    return off;
}

static void best_fit_and_joining(void **state) {
    (void) state;
    struct berth_online *online = berth_online_new(1, 0);
    const uint64_t a = take(online, 10), b = take(online, 20), c = take(online, 5), d = take(online, 15), e = take(online, 1);
    assert_int_equal(a, 0);
    assert_int_equal(b, 10);
    assert_int_equal(c, 30);
    assert_int_equal(d, 35);
    assert_int_equal(e, 50);
    assert_int_equal(berth_online_peak(online), 51);
    assert_int_equal(berth_online_release(online, b, 20), GGML_STATUS_SUCCESS);
    assert_int_equal(berth_online_release(online, d, 15), GGML_STATUS_SUCCESS);
    assert_int_equal(take(online, 12), 35); // 15 fits better than 20
    assert_int_equal(take(online, 20), 10);
    assert_int_equal(berth_online_release(online, 10, 20), GGML_STATUS_SUCCESS);
    assert_int_equal(berth_online_release(online, c, 5), GGML_STATUS_SUCCESS);
    assert_int_equal(take(online, 25), 10); // joined
    assert_int_equal(take(online, 0), 0);
    assert_int_equal(berth_online_release(online, 0, 0), GGML_STATUS_SUCCESS);
    assert_int_equal(berth_online_used(online), 10 + 25 + 12 + 1);
    assert_int_equal(berth_online_blocks(online), 4);
    berth_online_reset(online);
    assert_int_equal(berth_online_peak(online), 0);
    assert_int_equal(berth_online_blocks(online), 0);
    assert_int_equal(take(online, 7), 0);
    berth_online_free(online);
    berth_online_free(NULL);
}

static void wrong_calls_are_refused(void **state) {
    (void) state;
    struct berth_online *online = berth_online_new(16, 100);
    uint64_t off;
    assert_int_equal(berth_online_release(online, 0, 8), GGML_STATUS_FAILED);
    const uint64_t a = take(online, 8);
    assert_int_equal(take(online, 8), 16);
    assert_int_equal(berth_online_release(online, a, 9), GGML_STATUS_FAILED);
    assert_int_equal(berth_online_release(online, a + 1, 8), GGML_STATUS_FAILED);
    assert_int_equal(berth_online_release(online, a, 8), GGML_STATUS_SUCCESS);
    assert_int_equal(berth_online_release(online, a, 8), GGML_STATUS_FAILED);
    assert_int_equal(berth_online_alloc(online, 101, &off), GGML_STATUS_ALLOC_FAILED);
    assert_int_equal(berth_online_alloc(online, 69, &off), GGML_STATUS_ALLOC_FAILED); // 68 are free behind 32
    assert_non_null(strstr(berth_last_error(), "no room for 69 bytes"));
    assert_int_equal(take(online, 68), 32);
    assert_int_equal(berth_online_alloc(NULL, 1, &off), GGML_STATUS_FAILED);
    assert_int_equal(berth_online_alloc(online, 1, NULL), GGML_STATUS_FAILED);
    assert_int_equal(berth_online_release(NULL, 1, 1), GGML_STATUS_FAILED);
    assert_int_equal(berth_online_peak(NULL), 0);
    berth_online_reset(NULL);
    berth_online_free(online);
    assert_null(berth_online_new(UINT64_MAX, 0));
    online = berth_online_new(0, (uint64_t) 1 << 62);
    assert_int_equal(take(online, (uint64_t) 1 << 62), 0);
    assert_int_equal(berth_online_alloc(online, 1, &off), GGML_STATUS_ALLOC_FAILED);
    berth_online_free(online);
}

#define N_MODEL 64

// The free block that ggml would choose: the smallest that fits, the last of equals, the end of memory only if there is no other.
static uint64_t model_choice(const uint64_t *off, const uint64_t *size, int n, uint64_t want) {
    uint64_t best_size = UINT64_MAX, best = 0, at = 0;
    for (;;) {
        uint64_t next = UINT64_MAX;
        int who = -1;
        for (int i = 0; i < n; i++) {
            if (size[i] > 0 && off[i] >= at && off[i] < next) {
                next = off[i];
                who = i;
            }
        }
        if (who < 0) {
            return best_size != UINT64_MAX ? best : at;
        }
        if (next - at >= want && next - at <= best_size) {
            best_size = next - at;
            best = at;
        }
        at = off[who] + size[who];
    }
}

static void agrees_with_a_slow_model(void **state) {
    (void) state;
    for (int round = 0; round < 8; round++) {
        uint64_t off[N_MODEL] = {0}, size[N_MODEL] = {0}, peak = 0;
        struct berth_online *online = berth_online_new(1, 0);
        for (int step = 0; step < 2000; step++) {
            const int i = (int) roll(N_MODEL);
            if (size[i] > 0) {
                assert_int_equal(berth_online_release(online, off[i], size[i]), GGML_STATUS_SUCCESS);
                size[i] = 0;
            } else {
                const uint64_t want = 1 + roll(round % 2 == 0 ? 8 : 1000), expected = model_choice(off, size, N_MODEL, want);
                off[i] = take(online, want);
                size[i] = want;
                assert_int_equal(off[i], expected);
                peak = off[i] + want > peak ? off[i] + want : peak;
            }
        }
        assert_int_equal(berth_online_peak(online), peak);
        berth_online_free(online);
    }
}

static void many_blocks(void **state) {
    (void) state;
    const int n = 100000;
    struct berth_online *online = berth_online_new(32, 0);
    for (int i = 0; i < n; i++) {
        assert_int_equal(take(online, 32), (uint64_t) i * 32);
    }
    for (int i = 0; i < n; i += 2) { // no two free blocks touch: 50,000 of them
        assert_int_equal(berth_online_release(online, (uint64_t) i * 32, 32), GGML_STATUS_SUCCESS);
    }
    for (int i = 0; i < n; i += 2) {
        assert_true(take(online, 1 + roll(32)) < (uint64_t) n * 32);
    }
    assert_int_equal(berth_online_peak(online), (uint64_t) n * 32);
    berth_online_free(online);
}

// Debug builds check the whole free space after each of these calls.
static void crooked_alignments_in_a_small_space(void **state) {
    (void) state;
    static const uint64_t aligns[] = {1, 3, 7, 24, 32, 100};
    for (size_t a = 0; a < sizeof aligns / sizeof *aligns; a++) {
        struct berth_online *online = berth_online_new(aligns[a], 4096);
        uint64_t off[64], size[64] = {0}, used = 0;
        int n_refused = 0;
        for (int step = 0; step < 4000; step++) {
            const uint32_t i = roll(64);
            if (size[i] > 0) {
                assert_int_equal(berth_online_release(online, off[i], size[i]), GGML_STATUS_SUCCESS);
                used -= size[i];
                size[i] = 0;
                continue;
            }
            const uint64_t want = 1 + roll(200);
            if (berth_online_alloc(online, want, &off[i]) != GGML_STATUS_SUCCESS) {
                n_refused++;
                continue;
            }
            size[i] = want;
            used += want;
            assert_int_equal(off[i] % aligns[a], 0);
            assert_true(off[i] + want <= 4096);
            for (uint32_t k = 0; k < 64; k++) {
                assert_true(k == i || size[k] == 0 || off[k] + size[k] <= off[i] || off[i] + want <= off[k]);
            }
            assert_int_equal(berth_online_used(online), used);
        }
        assert_true(n_refused > 0);
        berth_online_free(online);
    }
}

static void every_allocation_may_fail(void **state) {
    (void) state;
    bool done = false;
    for (int n = 1; !done; n++) {
        berth_alloc_watch(true);
        berth_alloc_fail_at(n);
        struct berth_online *online = berth_online_new(8, 0);
        uint64_t off[40];
        int n_failed = online == NULL;
        for (int i = 0; online != NULL && i < 40; i++) {
            n_failed += berth_online_alloc(online, 16, &off[i]) != GGML_STATUS_SUCCESS;
        }
        done = n_failed == 0;
        berth_alloc_fail_at(0);
        assert_true(n_failed <= 1); // the books stay sound
        berth_online_free(online);
        assert_int_equal(berth_alloc_alive(), 0);
        berth_alloc_watch(false);
        assert_true(n < 100);
    }
}

static void quiet(enum ggml_log_level level, const char *text, void *user_data) {
    (void) level;
    (void) text;
    (void) user_data;
}

int main(void) {
    ggml_log_set(quiet, NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(best_fit_and_joining),
        cmocka_unit_test(wrong_calls_are_refused),
        cmocka_unit_test(agrees_with_a_slow_model),
        cmocka_unit_test(many_blocks),
        cmocka_unit_test(crooked_alignments_in_a_small_space),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
