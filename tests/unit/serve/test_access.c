// SPDX-License-Identifier: MIT
// test_access.c: tests API keys, the names of hosts, and origins.

#include "support/check.h"

#include "base/base.h"
#include "serve/access.h"

static bool keys_read(struct access_keys *keys, const char *text, struct model_error *error) {
    *error = (struct model_error){""};
    return access_keys_read(keys, text, strlen(text), "keys", error);
}

static void test_keys(void **state) {
    (void) state;
    struct access_keys keys;
    struct model_error error;
    assert_true(keys_read(&keys, "# comment\n\nalpha \r\nbeta", &error));
    assert_int_equal(keys.n, 2);
    assert_true(access_key_is_valid(&keys, "Bearer alpha"));
    assert_true(access_key_is_valid(&keys, "bearer  beta"));
    static const char *const wrong[] = {
        "Bearer alph", "Bearer alphaa", "Bearer ", "alpha", "Basic alpha", "Bearer # comment", ""};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_false(access_key_is_valid(&keys, wrong[i]));
    }
    assert_false(access_key_is_valid(&keys, NULL));
    access_keys_fini(&keys);
    assert_false(keys_read(&keys, "\n# only a comment\n", &error));
    assert_non_null(strstr(error.text, "contains no key"));
    assert_false(keys_read(&keys, "", &error));
    char long_key[5001];
    memset(long_key, 'k', 5000);
    long_key[5000] = '\0';
    assert_false(keys_read(&keys, long_key, &error));
    assert_non_null(strstr(error.text, "5000 bytes"));
    berth_alloc_fail_at(1);
    assert_false(keys_read(&keys, "alpha", &error));
    berth_alloc_fail_at(0);
    assert_non_null(strstr(error.text, "out of memory"));
}

static void test_hosts(void **state) {
    (void) state;
    static const char *const local[] = {
        "localhost", "LocalHost:8080", "127.0.0.1", "127.0.0.1:8080", "127.1.2.3", "[::1]", "[::1]:8080", "::1"};
    static const char *const other[] = {"example.com", "localhost.example.com", "127.0.0.1.example.com", "127.example:80", "",
        "[::2]", "[::1", "::2", "10.0.0.1"};
    for (size_t i = 0; i < sizeof local / sizeof *local; i++) {
        assert_true(access_host_is_local(local[i]));
    }
    for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
        assert_false(access_host_is_local(other[i]));
    }
    assert_true(access_host_is_local(NULL));
}

static void test_origins(void **state) {
    (void) state;
    assert_true(access_origin_is_allowed(NULL, "h", NULL));
    assert_true(access_origin_is_allowed("http://localhost:8080", "localhost:8080", NULL));
    assert_false(access_origin_is_allowed("http://localhost:8081", "localhost:8080", NULL));
    assert_false(access_origin_is_allowed("http://evil.example", "localhost:8080", NULL));
    assert_false(access_origin_is_allowed("null", "localhost:8080", NULL));
    assert_false(access_origin_is_allowed("http://evil.example", NULL, NULL));
    assert_true(access_origin_is_allowed("https://chat.example", "localhost:8080", "https://chat.example"));
    assert_false(access_origin_is_allowed("https://other.example", "localhost:8080", "https://chat.example"));
    assert_true(access_origin_is_allowed("https://other.example", "localhost:8080", "*"));
}

int main(void) {
    check_quiet();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_hosts),
        cmocka_unit_test(test_origins),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
