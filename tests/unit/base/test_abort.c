// SPDX-License-Identifier: MIT
// test_abort.c: ggml_abort, which programs call, passes the file, the line and the reason to the program's callback and ends the process.

#include "support/check.h"

#include "base/base.h"

#include <sys/wait.h>
#include <unistd.h>

static const char *want_abort;

static void abort_check(const char *text) {
    _exit(strcmp(text, want_abort) == 0 ? 0 : 1);
}

static void abort_reports_file_and_line(void **state) {
    (void) state;
    char file[201], reason[501], want[1024];
    memset(file, 'f', 200);
    memset(reason, 'r', 500);
    file[200] = reason[500] = '\0';
    snprintf(want, sizeof want, "%s:7: %s", file, reason);
    want_abort = want;
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        ggml_set_abort_callback(abort_check);
        ggml_abort(file, 7, "%s", reason);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(abort_reports_file_and_line),
    };
    return cmocka_run_group_tests_name("abort", tests, NULL, NULL);
}
