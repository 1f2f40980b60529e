// SPDX-License-Identifier: MIT
// test_files.c: reading and writing files. Anything but a regular file is refused without blocking. A written file replaces the old
// one completely or not at all, and keeps its permissions. Streams into memory report a lack of memory.

#include "support/call_fail.h"
#include "support/check.h"
#include "support/libc_fail.h"

#include "base/base.h"
#include "gguf.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[64];

static int setup(void **state) {
    (void) state;
    snprintf(folder, sizeof folder, "/tmp/berth-files-XXXXXX");
    return mkdtemp(folder) != NULL ? 0 : -1;
}

static int teardown(void **state) {
    (void) state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command) == 0 ? 0 : -1;
}

static const char *path_of(const char *name) {
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void write_text(const char *path, const char *text) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void assert_text(const char *path, const char *text) {
    char found[64] = "";
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    found[fread(found, 1, sizeof found - 1, file)] = '\0';
    fclose(file);
    assert_string_equal(found, text);
}

static void only_regular_files_are_opened(void **state) {
    (void) state;
    uint64_t size;
    const char *why;
    write_text(path_of("a"), "12345");
    FILE *file = berth_file_open(path_of("a"), &size, &why);
    assert_non_null(file);
    assert_int_equal(size, 5);
    fclose(file);
    assert_true(berth_file_starts_with(path_of("a"), "123"));
    assert_false(berth_file_starts_with(path_of("a"), "124"));
    assert_false(berth_file_starts_with(path_of("a"), "123456"));
    assert_false(berth_file_starts_with(path_of("none"), "1"));
    assert_null(berth_file_open(path_of("none"), &size, &why));
    assert_string_equal(why, strerror(ENOENT));
    assert_null(berth_file_open(folder, &size, &why));
    assert_string_equal(why, "not a regular file");
    assert_null(berth_file_open("/dev/zero", &size, &why));
    assert_string_equal(why, "not a regular file");

    assert_int_equal(mkfifo(path_of("pipe"), 0600), 0);
    alarm(20); // ends the test if opening the pipe blocks
    assert_null(berth_file_open(path_of("pipe"), &size, &why));
    assert_string_equal(why, "not a regular file");
    check_quiet();
    assert_null(gguf_init_from_file(path_of("pipe"), (struct gguf_init_params){.no_alloc = true}));
    assert_non_null(strstr(berth_last_error(), "not a regular file"));
    alarm(0);
}

// Without stdin, the next file gets the descriptor 0, which is valid.
static void descriptor_zero(void **state) {
    (void) state;
    uint64_t size;
    const char *why;
    write_text(path_of("a"), "12345");
    const int kept = dup(STDIN_FILENO);
    close(STDIN_FILENO);
    const int fd = berth_file_open_fd(path_of("a"), &size, &why);
    close(STDIN_FILENO);
    FILE *file = berth_file_open(path_of("a"), &size, &why);
    const int descriptor = file != NULL ? fileno(file) : -1;
    if (file != NULL) {
        fclose(file);
    }
    struct berth_replace to;
    const bool is_open = berth_replace_open(&to, path_of("a")) && to.part != NULL && fileno(to.file) == 0;
    if (is_open) {
        fputs("new", to.file);
    }
    const bool is_replaced = is_open && berth_replace_close(&to, true);
    if (kept >= 0) {
        dup2(kept, STDIN_FILENO);
        close(kept);
    }
    assert_int_equal(fd, 0);
    assert_int_equal(descriptor, 0);
    assert_true(is_replaced);
    assert_text(path_of("a"), "new");
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) // a sanitizer replaces libc's allocator
static void no_memory_for_a_file(void **state) {
    (void) state;
    uint64_t size;
    const char *why = NULL;
    write_text(path_of("a"), "12345");
    const char *path = path_of("a");
    const int next = dup(STDOUT_FILENO);
    close(next);
    atomic_store(&must_fail, true);
    FILE *file = berth_file_open(path, &size, &why);
    atomic_store(&must_fail, false);
    assert_null(file);
    assert_string_equal(why, strerror(ENOMEM));
    const int again = dup(STDOUT_FILENO); // the descriptor was closed
    close(again);
    assert_int_equal(again, next);
}
#endif

static void replaces_completely_or_not_at_all(void **state) {
    (void) state;
    struct berth_replace to;
    struct stat st;
    const char *path = path_of("target");
    write_text(path, "old");
    assert_int_equal(chmod(path, 0604), 0);

    assert_true(berth_replace_open(&to, path));
    fputs("new", to.file);
    fflush(to.file);
    assert_text(path, "old"); // an incomplete file is not visible
    assert_false(berth_replace_close(&to, false));
    assert_text(path, "old");

    assert_true(berth_replace_open(&to, path));
    fputs("new", to.file);
    assert_true(berth_replace_close(&to, true));
    assert_text(path, "new");
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0604);

    // Writing through a link replaces the target and keeps the link.
    char link[128];
    snprintf(link, sizeof link, "%s/link", folder);
    assert_int_equal(symlink("target", link), 0);
    assert_true(berth_replace_open(&to, link));
    fputs("newer", to.file);
    assert_true(berth_replace_close(&to, true));
    assert_int_equal(lstat(link, &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    assert_text(link, "newer");

    assert_false(berth_replace_open(&to, path_of("no/such")));
    assert_int_equal(errno, ENOENT);
    assert_false(berth_replace_open(&to, ""));
    assert_true(berth_replace_open(&to, "/dev/full")); // written in place
    assert_null(to.part);
    fputs("x", to.file);
    assert_false(berth_replace_close(&to, true));
    assert_int_equal(errno, ENOSPC);
}

static void replacing_without_memory(void **state) {
    (void) state;
    struct berth_replace to;
    berth_alloc_watch(true);
    for (int i = 1; i <= 2; i++) {
        berth_alloc_fail_at(i);
        assert_false(berth_replace_open(&to, path_of("x")));
        assert_int_equal(errno, ENOMEM);
        assert_int_equal(berth_alloc_alive(), 0);
    }
    berth_alloc_fail_at(0);
    berth_alloc_watch(false);
}

static int next_descriptor(void) {
    const int fd = dup(STDOUT_FILENO);
    close(fd);
    return fd;
}

static ino_t inode_of(const char *path) {
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return st.st_ino;
}

// Replaces the file while one call fails. Returns whether the file was replaced. No descriptor and no temporary file may remain.
static bool replace_failing(const char *path, const char *name, int n, int error) {
    struct berth_replace to;
    char part[192];
    snprintf(part, sizeof part, "%s.%ld.0.part", path, (long) getpid());
    write_text(path, "old");
    const int next = next_descriptor();
    call_fail_at(name, n, error);
    errno = 0;
    bool ok = berth_replace_open(&to, path);
    if (ok) {
        fputs("new", to.file);
        ok = berth_replace_close(&to, true);
    }
    const int why = errno;
    assert_true(call_has_failed());
    assert_int_equal(why, ok ? 0 : error);
    assert_int_equal(next_descriptor(), next);
    assert_int_equal(access(part, F_OK), -1);
    return ok;
}

static void failed_calls_keep_the_old_file(void **state) {
    (void) state;
    static const struct {
        const char *name;
        int error;
    } calls[] = {{"realpath", ELOOP}, {"open", EMFILE}, {"fdopen", ENOMEM}, {"fsync", EIO}, {"rename", ENOSPC}};
    const char *path = path_of("target");
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        assert_false(replace_failing(path, calls[i].name, 1, calls[i].error));
        assert_text(path, "old");
    }
    assert_false(replace_failing(path, "fsync", 2, EIO)); // the folder was not synced: the new name may be lost
    assert_text(path, "new");
}

static void some_failed_calls_are_harmless(void **state) {
    (void) state;
    const char *path = path_of("target");
    static const int unsupported[] = {EINVAL, ENOSYS, EOPNOTSUPP, EROFS};
    for (size_t i = 0; i < sizeof unsupported / sizeof unsupported[0]; i++) {
        assert_true(replace_failing(path, "fsync", 1, unsupported[i]));
        assert_text(path, "new");
    }
    assert_true(replace_failing(path, "open", 2, EACCES)); // the folder cannot be read
    assert_text(path, "new");

    // Without a temporary file, the old file is overwritten.
    static const int unwritable[] = {EACCES, EPERM, EROFS, ENAMETOOLONG};
    const ino_t inode = inode_of(path);
    for (size_t i = 0; i < sizeof unwritable / sizeof unwritable[0]; i++) {
        assert_true(replace_failing(path, "open", 1, unwritable[i]));
        assert_text(path, "new");
    }
    assert_true(replace_failing(path, "fchown", 1, EPERM)); // another user's file
    assert_text(path, "new");
    assert_int_equal(inode_of(path), inode);
}

// A killed process with the same process id has left its temporary file.
static void leftover_parts_are_skipped(void **state) {
    (void) state;
    struct berth_replace to;
    const char *path = path_of("target");
    char part[192];
    snprintf(part, sizeof part, "%s.%ld.0.part", path, (long) getpid());
    write_text(part, "left");
    assert_true(berth_replace_open(&to, path));
    fputs("new", to.file);
    assert_true(berth_replace_close(&to, true));
    assert_text(path, "new");
    assert_text(part, "left");
}

// The disk becomes full while a model is written.
static void gguf_keeps_the_old_file(void **state) {
    (void) state;
    check_quiet();
    char path[128];
    snprintf(path, sizeof path, "%s", path_of("model.gguf"));
    write_text(path, "old");
    struct gguf_context *g = gguf_init_empty();
    char text[20000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    gguf_set_val_str(g, "much", text);

    struct rlimit before, little;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    little = before;
    little.rlim_cur = 5000;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &little), 0);
    const bool ok = gguf_write_to_file(g, path, true);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_false(ok);
    assert_text(path, "old");

    assert_true(gguf_write_to_file(g, path, true));
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size, gguf_get_meta_size(g));
    gguf_free(g);
}

static void streams_report_missing_memory(void **state) {
    (void) state;
    struct berth_stream s;
    assert_true(berth_stream_open(&s));
    assert_true(berth_stream_close(&s));
    assert_string_equal(s.text, "");
    berth_stream_fini(&s);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    const int64_t n_alive = libc_alive();
    assert_true(berth_stream_open(&s));
    assert_true(berth_stream_close(&s));
    berth_stream_fini(&s);
    assert_int_equal(libc_alive(), n_alive); // the stream is freed
    atomic_store(&must_fail, true);
    const bool is_open = berth_stream_open(&s);
    const bool is_closed = berth_stream_close(&s);
    atomic_store(&must_fail, false);
    assert_false(is_open || is_closed);
#endif

    berth_alloc_watch(true);
    for (int i = 1, ok = 0; ok == 0; i++) {
        berth_alloc_fail_at(i);
        ok = berth_stream_open(&s);
        for (int k = 0; ok && k < 30000; k++) {
            fprintf(s.file, "%d,", k);
        }
        if (ok && (ok = berth_stream_close(&s)) != 0) {
            assert_int_equal(s.size, 10 * 2 + 90 * 3 + 900 * 4 + 9000 * 5 + 20000 * 6);
            assert_int_equal(strlen(s.text), s.size);
            assert_true(i > 3);
            berth_stream_fini(&s);
        }
        assert_int_equal(berth_alloc_alive(), 0);
        assert_null(s.text);
    }
    berth_alloc_fail_at(0);
    berth_alloc_watch(false);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_regular_files_are_opened),
        cmocka_unit_test(descriptor_zero),
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
        cmocka_unit_test(no_memory_for_a_file),
#endif
        cmocka_unit_test(replaces_completely_or_not_at_all),
        cmocka_unit_test(replacing_without_memory),
        cmocka_unit_test(failed_calls_keep_the_old_file),
        cmocka_unit_test(some_failed_calls_are_harmless),
        cmocka_unit_test(leftover_parts_are_skipped),
        cmocka_unit_test(gguf_keeps_the_old_file),
        cmocka_unit_test(streams_report_missing_memory),
    };
    return cmocka_run_group_tests_name("files", tests, setup, teardown);
}
