// SPDX-License-Identifier: MIT
// test_base.c: the base layer: allocations that fail on demand, errors per thread, the log, the clock, the client's release,
// SipHash.

#include "support/check.h"

#include "base/base.h"
#include "base/siphash.h"

#include <pthread.h>
#include <wchar.h>

void *ggml_aligned_malloc(size_t size); // exported without a header

static void alloc_fails_on_demand(void **state) {
    (void) state;
    berth_alloc_watch(true);
    berth_alloc_fail_at(2);
    void *a = berth_malloc(8), *b = berth_malloc(8), *c = berth_calloc(2, 8);
    assert_non_null(a);
    assert_null(b);
    assert_non_null(c);
    assert_int_equal(berth_alloc_made(), 2);
    assert_int_equal(berth_alloc_alive(), 2);
    berth_free(a);
    berth_free(c);
    assert_int_equal(berth_alloc_alive(), 0);
    berth_alloc_fail_at(0);
    berth_alloc_watch(false);
}

static void arrays_are_freed_together(void **state) {
    (void) state;
    struct berth_arrays a = {0};
    berth_alloc_watch(true);
    int32_t *x = berth_arrays_new(&a, 1000, sizeof *x), *none = berth_arrays_new(&a, 0, sizeof *none);
    assert_non_null(x);
    assert_non_null(none);
    assert_int_equal(x[0] | x[999], 0);
    assert_false(a.has_failed);
    assert_null(berth_arrays_new(&a, SIZE_MAX / 4 + 2, 4)); // the product is 4
    assert_null(berth_arrays_new(&a, SIZE_MAX, 1));
    assert_true(a.has_failed);
    berth_alloc_fail_at(1);
    assert_null(berth_arrays_new(&a, 1, 1));
    berth_arrays_free(&a);
    assert_int_equal(berth_alloc_alive(), 0);
    berth_alloc_watch(false);
}

// Pieces do not overlap, small pieces allocate nothing, and berth_scratch_back frees all pieces after a mark.
static void scratch_is_freed_to_a_mark(void **state) {
    (void) state;
    struct berth_scratch s;
    berth_scratch_init(&s);
    berth_alloc_watch(true);
    char *a = berth_scratch_take(&s, 20), *b = berth_scratch_take(&s, 1);
    assert_true(a != NULL && b >= a + 20 && (uintptr_t) b % 16 == 0);
    assert_int_equal(berth_alloc_made(), 0);
    const struct berth_scratch_mark mark = s.at;
    char *c = berth_scratch_take(&s, sizeof s.stack_bytes), *d = berth_scratch_take(&s, 3 * sizeof s.stack_bytes);
    assert_true(c != NULL && d != NULL && (uintptr_t) d % 16 == 0);
    memset(c, 1, sizeof s.stack_bytes);
    memset(d, 2, 3 * sizeof s.stack_bytes);
    assert_int_equal(c[sizeof s.stack_bytes - 1], 1);
    assert_int_equal(berth_alloc_alive(), 2);
    char *e = berth_scratch_take(&s, 16); // e is taken from the unused rest of s.stack_bytes
    assert_int_equal(berth_alloc_alive(), 2);
    berth_scratch_back(&s, mark);
    assert_int_equal(berth_alloc_alive(), 0);
    assert_ptr_equal(berth_scratch_take(&s, 16), e);
    assert_null(berth_scratch_take(&s, SIZE_MAX));
    assert_null(berth_scratch_take(&s, SIZE_MAX - 16));
    berth_alloc_fail_at(1);
    assert_null(berth_scratch_take(&s, sizeof s.stack_bytes + 1));
    berth_scratch_fini(&s);
    assert_int_equal(berth_alloc_alive(), 0);
    berth_alloc_fail_at(0);
    berth_alloc_watch(false);
}

static void alloc_refuses_overflow(void **state) {
    (void) state;
    assert_null(berth_malloc(0));
    volatile size_t half = SIZE_MAX / 2;
    assert_null(berth_calloc(half, 4));
    void *p = NULL;
    size_t cap = 0;
    assert_true(berth_grow(&p, &cap, 100, 8));
    assert_true(cap >= 100);
    assert_false(berth_grow(&p, &cap, SIZE_MAX / 2, 8));
    assert_false(berth_grow(&p, &cap, SIZE_MAX, 1)); // half of the capacity more is never enough
    assert_non_null(p);
    berth_free(p);
}

static void aligned_memory_is_aligned(void **state) {
    (void) state;
    for (size_t align = 1; align <= 4096; align *= 2) {
        void *p = berth_aligned_alloc(align, 100);
        assert_non_null(p);
        assert_int_equal((uintptr_t) p % align, 0);
        berth_aligned_free(p);
    }
    check_quiet();
    assert_null(ggml_aligned_malloc(0));
    assert_null(ggml_aligned_malloc(SIZE_MAX / 2));
    assert_string_equal(berth_last_error(), "out of memory: cannot allocate 9223372036854775807 bytes aligned to 64");
}

static void *other_thread(void *arg) {
    (void) arg;
    return (void *) (uintptr_t) (berth_last_error()[0] == '\0');
}

static void errors_belong_to_their_thread(void **state) {
    (void) state;
    check_quiet();
    assert_int_equal(berth_fail(GGML_STATUS_FAILED, "needed %d", 42), GGML_STATUS_FAILED);
    assert_string_equal(berth_last_error(), "needed 42");
    berth_set_error("again: %s", berth_last_error()); // its own text as an argument
    assert_string_equal(berth_last_error(), "again: needed 42");
    pthread_t t;
    void *clean;
    assert_int_equal(pthread_create(&t, NULL, other_thread, NULL), 0);
    pthread_join(t, &clean);
    assert_non_null(clean);
    berth_clear_error();
    assert_string_equal(berth_last_error(), "");
}

static void log_into(enum ggml_log_level level, const char *text, void *user_data) {
    snprintf(user_data, 1024, "%d %s", (int) level, text);
}

static void log_goes_to_the_callback_only(void **state) {
    (void) state;
    char seen[1024] = "";
    ggml_log_set(log_into, seen);
    ggml_log_callback callback;
    void *user_data;
    ggml_log_get(&callback, &user_data);
    assert_ptr_equal(callback, log_into);
    assert_ptr_equal(user_data, seen);
    berth_log(GGML_LOG_LEVEL_WARN, "%s is %d", "x", 7);
    assert_string_equal(seen, "3 x is 7");
    char long_text[600];
    memset(long_text, 'a', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = '\0';
    berth_log(GGML_LOG_LEVEL_INFO, "%s", long_text); // longer than the line buffer
    assert_int_equal(strlen(seen), 2 + strlen(long_text));
    long_text[256] = '\0'; // one byte longer than the line buffer
    berth_log(GGML_LOG_LEVEL_INFO, "%s", long_text);
    assert_int_equal(strlen(seen), 2 + 256);
    berth_alloc_fail_at(1);
    berth_log(GGML_LOG_LEVEL_INFO, "%s", long_text); // without memory, the line is truncated
    berth_alloc_fail_at(0);
    assert_int_equal(strlen(seen), 2 + 255);
    berth_log(GGML_LOG_LEVEL_INFO, "%s", "");
    assert_string_equal(seen, "2 ");
#ifndef _WIN32                                                   // where a wint_t has 16 bits
    berth_log(GGML_LOG_LEVEL_INFO, "%lc", (wint_t) 0x80000000u); // cannot be formatted
    assert_string_equal(seen, "2 %lc");
#endif
    ggml_log_set(NULL, NULL);
    ggml_log_get(&callback, &user_data);
    assert_non_null(callback);
}

static void log_append(enum ggml_log_level level, const char *text, void *user_data) {
    char *seen = user_data;
    snprintf(seen + strlen(seen), 1024 - strlen(seen), "%d %s", (int) level, text);
}

static void held_lines_are_printed_later(void **state) {
    (void) state;
    char seen[1024] = "";
    ggml_log_set(log_append, seen);
    berth_log_hold();
    berth_log(GGML_LOG_LEVEL_INFO, "a\n");
    berth_log_hold();
    berth_log(GGML_LOG_LEVEL_WARN, "bc\n");
    berth_log_let_go();
    berth_log(GGML_LOG_LEVEL_ERROR, "d\n");
    assert_string_equal(seen, "");
    berth_log_let_go();
    assert_string_equal(seen, "2 a\n3 bc\n4 d\n");
    berth_log_let_go(); // nothing is held
    berth_log(GGML_LOG_LEVEL_INFO, "e\n");
    assert_string_equal(seen, "2 a\n3 bc\n4 d\n2 e\n");

    static const char *const lost[] = {"3 berth: out of memory for 1 log line\n", "3 berth: out of memory for 2 log lines\n"};
    for (int n = 1; n <= 2; n++) {
        seen[0] = '\0';
        berth_log_hold();
        for (int i = 0; i < n; i++) {
            berth_alloc_fail_at(1);
            berth_log(GGML_LOG_LEVEL_INFO, "lost\n");
        }
        berth_alloc_fail_at(0);
        berth_log_let_go();
        assert_string_equal(seen, lost[n - 1]);
    }
    ggml_log_set(NULL, NULL);
}

static void status_has_names(void **state) {
    (void) state;
    assert_string_equal(ggml_status_to_string(GGML_STATUS_SUCCESS), "GGML status: success");
    assert_non_null(strstr(ggml_status_to_string(GGML_STATUS_ALLOC_FAILED), "memory"));
    assert_non_null(strstr(ggml_status_to_string((enum ggml_status) 77), "unknown"));
}

static void clock_runs(void **state) {
    (void) state;
    const int64_t t0 = ggml_time_us();
    while (ggml_time_us() == t0) {
    }
    assert_true(ggml_time_us() > t0);
    assert_true(ggml_time_ms() > 0);
    assert_true(ggml_cycles_per_ms() > 0);
}

static void files_and_ids(void **state) {
    (void) state;
    assert_null(ggml_fopen("/nowhere/at/all", "r"));
    assert_null(ggml_fopen(NULL, "r"));
    ggml_guid a = {1, 2}, b = {1, 2}, c = {1, 3};
    assert_true(ggml_guid_matches(&a, &b));
    assert_false(ggml_guid_matches(&a, &c));
    assert_false(ggml_guid_matches(NULL, &c));
    assert_string_equal(ggml_version(), "0.25.1");
}

// The order matters, because a process keeps the first known release.
static void release_is_known_unless_clients_differ(void **state) {
    (void) state;
    static const char *const unknown[] = {NULL, "", "b", "bx", "b0", "b-5", "b10361x", "b10362", "v0.3.9", "v1.0.0", "0"};
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++) {
        berth_client_release(unknown[i]);
        assert_int_equal(berth_client_minor(), 0);
    }
    berth_client_release("v0.4.0");
    berth_client_release("v0.5.0");
    berth_client_release("v0.10.2");
    berth_client_release("other");
    assert_int_equal(berth_client_minor(), 25);
    berth_client_release("b10361");
    assert_int_equal(berth_client_minor(), 0);
    berth_client_release("b10361");
    assert_int_equal(berth_client_minor(), 0);
}

// The test vectors of SipHash-2-4 by its authors. The bytes are also given in parts of every size.
static void siphash_matches_test_vectors(void **state) {
    (void) state;
    struct berth_siphash_key key;
    unsigned char bytes[64];
    for (int i = 0; i < 64; i++) {
        bytes[i] = (unsigned char) i;
    }
    memcpy(&key, bytes, sizeof key);
    const uint64_t want[2] = {0x726FDB47DD0E0E31u, 0xA129CA6149BE45E5u}; // of 0 bytes and of 15 bytes
    for (size_t part = 1; part <= 16; part++) {
        for (int i = 0; i < 2; i++) {
            struct berth_siphash s = berth_siphash_begin(&key);
            s.n_rounds = 2;
            s.n_last = 4;
            for (size_t at = 0, n = i == 0 ? 0 : 15; at < n; at += part) {
                berth_siphash_add(&s, bytes + at, n - at < part ? n - at : part);
            }
            assert_true(berth_siphash_end(&s) == want[i]);
        }
    }
    assert_true(berth_siphash_of(&key, NULL, 0) == 0xABAC0158050FC4DCu);
    const struct berth_siphash_key a = berth_siphash_key_new(&key), b = berth_siphash_key_new(&key);
    assert_true(a.k[0] != b.k[0] && a.k[1] != b.k[1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(alloc_fails_on_demand),
        cmocka_unit_test(scratch_is_freed_to_a_mark),
        cmocka_unit_test(arrays_are_freed_together),
        cmocka_unit_test(alloc_refuses_overflow),
        cmocka_unit_test(aligned_memory_is_aligned),
        cmocka_unit_test(errors_belong_to_their_thread),
        cmocka_unit_test(log_goes_to_the_callback_only),
        cmocka_unit_test(held_lines_are_printed_later),
        cmocka_unit_test(status_has_names),
        cmocka_unit_test(clock_runs),
        cmocka_unit_test(files_and_ids),
        cmocka_unit_test(siphash_matches_test_vectors),
        cmocka_unit_test(release_is_known_unless_clients_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
