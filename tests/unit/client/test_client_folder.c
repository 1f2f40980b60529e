// SPDX-License-Identifier: MIT
// test_client_folder.c: tests the check of a folder of clients. Links to Berth's own libraries take the part of clients and of
// Berth: the CPU backend calls functions of libggml-base. tests/client/check.sh tests `berth client` with compiled clients.

#include "client/folder.h"
#include "support/check.h"

#include <sys/stat.h>
#include <unistd.h>

static char libraries[4096]; // folder with Berth's libraries

// Creates folder/name, a link to a library of Berth.
static void library_link(const char *folder, const char *name, const char *library) {
    char path[4096], target[8192];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    snprintf(target, sizeof target, "%s/%s", libraries, library);
    assert_int_equal(symlink(target, path), 0);
}

static void folder_remove(const char *folder) {
    char command[4096];
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    assert_int_equal(system(command), 0);
}

static void test_folder(void **state) {
    (void) state;
    char path[] = "/tmp/berth-client-XXXXXX", berth[] = "/tmp/berth-own-XXXXXX";
    struct client_folder f;
    assert_true(mkdtemp(path) != NULL && mkdtemp(berth) != NULL);
    assert_false(client_folder_read(&f, "/tmp/berth-none", berth));
    assert_string_equal(f.why, "/tmp/berth-none: No such file or directory");
    client_folder_fini(&f);
    assert_false(client_folder_read(&f, path, berth));
    assert_non_null(strstr(f.why, "libggml-base.so: Berth's own library cannot be read"));
    client_folder_fini(&f);
    library_link(berth, "libggml-base.so", "libggml-base.so");
    library_link(berth, "libggml.so", "libggml.so");
    assert_true(client_folder_read(&f, path, berth) && client_folder_works(&f));
    assert_int_equal(f.n, 0);
    client_folder_fini(&f);

    library_link(path, "libcaller.so", "libggml-cpu.so");
    library_link(path, "libggml-base.so", "libggml-base.so");
    library_link(path, "unread.so", "../build.ninja");
    assert_true(client_folder_read(&f, path, berth));
    assert_true(f.n == 2 && f.n_callers == 1 && f.n_missing == 0 && f.missing_libraries.n == 0 && f.is_berth);
    assert_true(strcmp(f.libraries[0].name, "libcaller.so") == 0 && f.libraries[0].n_imports > 0);
    assert_true(f.libraries[1].role == CLIENT_BASE && f.libraries[1].is_berth);
    assert_true(f.unreadable.n == 1 && strncmp(f.unreadable.items[0], "unread.so: ", 11) == 0);
    client_folder_fini(&f);
    for (int64_t n = 1, is_complete = 0; !is_complete; n += 97) {
        berth_alloc_watch(true);
        berth_alloc_fail_at(n);
        is_complete = client_folder_read(&f, path, berth);
        berth_alloc_fail_at(0);
        is_complete = is_complete && f.n == 2; // a library that did not fit into memory is unreadable
        client_folder_fini(&f);
        assert_int_equal(berth_alloc_alive(), 0);
    }
    folder_remove(berth);

    assert_non_null(strcpy(berth, "/tmp/berth-own-XXXXXX"));
    assert_non_null(mkdtemp(berth)); // a Berth that exports few functions and lacks the caller's library
    library_link(berth, "libggml-base.so", "libggml.so");
    library_link(berth, "libggml.so", "libggml.so");
    assert_true(client_folder_read(&f, path, berth) && !client_folder_works(&f));
    assert_true(f.n_missing > 0 && f.n_missing == f.libraries[0].absent.n);
    client_folder_fini(&f);
    folder_remove(berth);
    folder_remove(path);
}

static void test_releases(void **state) {
    (void) state;
    assert_string_equal(client_release_ggml("b10361"), "0.19.0");
    assert_string_equal(client_release_ggml("v0.5.0"), "0.25.1");
    assert_null(client_release_ggml(""));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_folder), cmocka_unit_test(test_releases)};
    const char *program = getenv("BERTH_PROGRAM");
    struct stat st;
    char file[8192];
    check_quiet();
    if (program != NULL) {
        const char *slash = strrchr(program, '/');
        snprintf(libraries, sizeof libraries, "%.*s/../lib", (int) (slash - program), program);
    }
    snprintf(file, sizeof file, "%s/libggml-base.so", libraries);
    if (stat(file, &st) != 0) {
        print_message("skipped: this build has no shared libraries\n");
        return 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
