// SPDX-License-Identifier: MIT
// test_plain_reader.c: the reader of captured graphs without zlib: plain files are read, packed ones are rejected with an error
// that says what to do.

#include "support/check.h"

#include "capture/ggraph.h"

#include <unistd.h>

static void test_plain(void **state) {
    (void) state;
    struct ggraph g = {0};
    assert_int_equal(ggraph_read(&g, "tests/data/graph/unet-2d.ggraph"), GGML_STATUS_SUCCESS);
    ggraph_free(&g);
}

static void test_packed(void **state) {
    (void) state;
    char path[] = "/tmp/berth-plain-XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "\x1f\x8b\x08\x00", 4), 4);
    close(fd);
    struct ggraph g = {0};
    assert_int_not_equal(ggraph_read(&g, path), GGML_STATUS_SUCCESS);
    assert_non_null(strstr(berth_last_error(), "built without zlib: run gunzip on it"));
    ggraph_free(&g);
    unlink(path);
}

static void test_unreadable(void **state) {
    (void) state;
    struct ggraph g = {0};
    assert_int_not_equal(ggraph_read(&g, "tests/data/none.ggraph"), GGML_STATUS_SUCCESS);
    assert_non_null(strstr(berth_last_error(), "cannot be opened: No such file"));
    ggraph_free(&g);
    assert_int_not_equal(ggraph_read(&g, "tests/data"), GGML_STATUS_SUCCESS);
    assert_non_null(strstr(berth_last_error(), "Is a directory"));
    ggraph_free(&g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain), cmocka_unit_test(test_packed), cmocka_unit_test(test_unreadable)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
