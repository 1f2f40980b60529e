// SPDX-License-Identifier: MIT
// test_mapping.c: finds the file behind mapped memory (/proc/self/maps), reads its pages and drops them. Failing calls give an errno
// or change only the time.

#include "support/call_fail.h"
#include "support/check.h"

#include "base/mapping.h"

#include <sys/mman.h>

#define SIZE ((size_t) 3 << 20)

#pragma GCC visibility push(default)
int madvise(void *at, size_t size, int advice) {
    CALL_NEXT(int, "madvise", void *, size_t, int);
    return call_fails("madvise") ? -1 : next(at, size, advice);
}

int mincore(void *at, size_t size, unsigned char *pages) {
    CALL_NEXT(int, "mincore", void *, size_t, unsigned char *);
    return call_fails("mincore") ? -1 : next(at, size, pages);
}

int posix_fadvise(int fd, off_t at, off_t size, int advice) {
    CALL_NEXT(int, "posix_fadvise", int, off_t, off_t, int);
    return call_fails("posix_fadvise") ? errno : next(fd, at, size, advice);
}

ssize_t pread(int fd, void *out, size_t size, off_t at) {
    CALL_NEXT(ssize_t, "pread", int, void *, size_t, off_t);
    return call_fails("pread") ? -1 : next(fd, out, size, at);
}
#pragma GCC visibility pop

static char path[64];
static int fd = -1;
static unsigned char *bytes = MAP_FAILED;

static int setup(void **state) {
    (void) state;
    snprintf(path, sizeof path, "/tmp/berth mapping-XXXXXX"); // with a blank
    fd = mkstemp(path);
    if (fd < 0 || ftruncate(fd, SIZE) != 0) {
        return -1;
    }
    for (size_t i = 0; i < SIZE; i += 4096) {
        const unsigned char byte = (unsigned char) (i >> 12);
        if (pwrite(fd, &byte, 1, (off_t) i) != 1) {
            return -1;
        }
    }
    bytes = mmap(NULL, SIZE, PROT_READ, MAP_SHARED, fd, 0);
    return bytes != MAP_FAILED && fdatasync(fd) == 0 ? 0 : -1;
}

static int teardown(void **state) {
    (void) state;
    munmap(bytes, SIZE);
    close(fd);
    return unlink(path);
}

static size_t pages_in_memory(void) {
    unsigned char pages[SIZE / 4096];
    size_t n = 0;
    assert_int_equal(mincore(bytes, SIZE, pages), 0);
    for (size_t i = 0; i < SIZE / 4096; i++) {
        n += pages[i] & 1;
    }
    return n;
}

static void assert_content(void) {
    for (size_t i = 0; i < SIZE; i += 4096) {
        assert_int_equal(bytes[i], (unsigned char) (i >> 12));
    }
}

static void only_shared_files_are_found(void **state) {
    (void) state;
    struct berth_mapping m;
    unsigned char *other = mmap(NULL, SIZE, PROT_READ, MAP_PRIVATE, fd, 0);
    assert_false(berth_mapping_open(&m, other, SIZE));
    munmap(other, SIZE);
    other = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_false(berth_mapping_open(&m, other, SIZE));
    munmap(other, SIZE);
    assert_false(berth_mapping_open(&m, other, SIZE)); // nothing is mapped there now
    assert_false(berth_mapping_open(&m, &m, sizeof m));
    assert_false(berth_mapping_open(&m, bytes, 0));
    assert_false(berth_mapping_open(&m, bytes, SIZE_MAX));
    assert_false(berth_mapping_open(&m, bytes, SIZE + 4096 * 4096));
    assert_true(berth_mapping_open(&m, bytes + 100, SIZE - 200));
    assert_int_equal(m.offset, 100);
    berth_mapping_close(&m);
}

static void parts_of_a_mapping_are_one(void **state) {
    (void) state;
    struct berth_mapping m;
    assert_int_equal(madvise(bytes + 8192, 8192, MADV_RANDOM), 0); // /proc/self/maps now has three lines
    assert_true(berth_mapping_open(&m, bytes, SIZE));
    berth_mapping_close(&m);
    assert_int_equal(munmap(bytes + 8192, 8192), 0);
    assert_false(berth_mapping_open(&m, bytes, SIZE)); // a hole
}

static void another_file_with_the_name_is_refused(void **state) {
    (void) state;
    struct berth_mapping m;
    char old[80];
    snprintf(old, sizeof old, "%s.old", path);
    struct berth_mapping same;
    assert_true(berth_mapping_open(&m, bytes, SIZE));
    for (int n = 1; n < 5; n++) { // fopen of glibc does not call open
        call_fail_at("open", n, EACCES);
        const bool is_found = berth_mapping_open(&same, bytes, SIZE);
        assert_true(is_found || call_has_failed());
        berth_mapping_close(&same);
    }
    (void) call_has_failed();
    berth_mapping_close(&m);
    assert_int_equal(link(path, old), 0);
    assert_int_equal(unlink(path), 0);
    assert_false(berth_mapping_open(&m, bytes, SIZE)); // the path in /proc/self/maps ends in "(deleted)"
    assert_int_equal(rename(old, path), 0);
}

static void pages_are_loaded_and_dropped(void **state) {
    (void) state;
    struct berth_mapping m;
    assert_true(berth_mapping_open(&m, bytes, SIZE));
    berth_mapping_set_random(&m, true);
    berth_mapping_drop(&m, (uintptr_t) bytes, SIZE);
    assert_int_equal(pages_in_memory(), 0);
    berth_mapping_request(&m, (uintptr_t) bytes + 5000, 1 << 20);
    assert_int_equal(berth_mapping_load(&m, (uintptr_t) bytes + 5000, 1 << 20), 0);
    const size_t n = pages_in_memory();
    assert_true(n >= 257 && n < SIZE / 4096 / 2);
    // pages that are only partly inside stay
    berth_mapping_drop(&m, (uintptr_t) bytes + 5000, 1 << 20);
    assert_int_equal(pages_in_memory(), n - 255);
    assert_content();
    // addresses outside change nothing
    berth_mapping_drop(&m, 0, SIZE_MAX);
    berth_mapping_request(&m, 0, 1);
    assert_int_equal(berth_mapping_load(&m, (uintptr_t) bytes - 8192, 4096), 0);
    assert_int_equal(berth_mapping_load(&m, (uintptr_t) bytes - 8192, SIZE_MAX), 0);
    berth_mapping_set_random(&m, false);
    assert_content();
    berth_mapping_close(&m);
    assert_int_equal(berth_mapping_load(&m, (uintptr_t) bytes, SIZE), 0);
    berth_mapping_drop(&m, (uintptr_t) bytes, SIZE);
    berth_mapping_close(&m);
}

static void failing_advice_changes_only_the_time(void **state) {
    (void) state;
    static const char *const names[] = {"madvise", "posix_fadvise", "mincore"};
    for (size_t i = 0; i < 3; i++) {
        for (int n = 1; n < 20; n++) {
            struct berth_mapping m;
            call_fail_at(names[i], n, EINVAL);
            assert_true(berth_mapping_open(&m, bytes, SIZE));
            berth_mapping_set_random(&m, true);
            berth_mapping_drop(&m, (uintptr_t) bytes, SIZE);
            berth_mapping_request(&m, (uintptr_t) bytes, SIZE);
            assert_int_equal(berth_mapping_load(&m, (uintptr_t) bytes, SIZE), 0);
            (void) call_has_failed();
            assert_content();
            berth_mapping_close(&m);
        }
    }
}

static void read_errors_are_returned(void **state) {
    (void) state;
    struct berth_mapping m;
    assert_true(berth_mapping_open(&m, bytes, SIZE));
    berth_mapping_drop(&m, (uintptr_t) bytes, SIZE);
    berth_mapping_set_random(&m, true);
    int n_failed = 0;
    for (int n = 1; n < 4; n++) { // some calls only wait, so their errors do not matter
        call_fail_at("pread", n, EIO);
        const int error = berth_mapping_load(&m, (uintptr_t) bytes, SIZE);
        assert_true(error == 0 || (error == EIO && call_has_failed()));
        n_failed += error != 0;
        (void) call_has_failed();
        berth_mapping_drop(&m, (uintptr_t) bytes, SIZE);
    }
    assert_true(n_failed > 0);
    berth_mapping_set_random(&m, true);
    berth_mapping_drop(&m, (uintptr_t) bytes, SIZE);
    assert_int_equal(ftruncate(fd, SIZE / 2), 0);
    assert_int_equal(berth_mapping_load(&m, (uintptr_t) bytes, SIZE / 2), 0);
    assert_int_equal(berth_mapping_load(&m, (uintptr_t) bytes, SIZE), EIO);
    berth_mapping_close(&m);
}

int main(void) {
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(only_shared_files_are_found),
        CASE(parts_of_a_mapping_are_one),
        CASE(another_file_with_the_name_is_refused),
        CASE(pages_are_loaded_and_dropped),
        CASE(failing_advice_changes_only_the_time),
        CASE(read_errors_are_returned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
