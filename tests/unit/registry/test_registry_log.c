// SPDX-License-Identifier: MIT
// test_registry_log.c: log lines of backends that the registry calls are printed after all locks are released. A program's log
// callback may then wait for another thread that queries the registry, and the callback sees all devices.

#include "support/check.h"

#include "base/base.h"
#include "ggml-backend-impl.h"
#include "ggml-cuda.h"
#include "support/other_thread.h"

#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

static char said[1 << 12];
static size_t n_seen; // number of devices at the last line
static int n_answers, n_lines;
static atomic_int n_asked;             // queries of the device's type
static bool is_talkative;              // the device logs a line when its type is queried
static size_t n_asked_back = SIZE_MAX; // backends that this backend found during its set-up

static void *ask(void *arg) {
    (void) arg;
    ggml_backend_dev_count();
    return NULL;
}

static void wait_for_another(enum ggml_log_level level, const char *text, void *user_data) {
    (void) level, (void) user_data;
    strncat(said, text, sizeof said - strlen(said) - 1);
    n_lines++;
    n_answers += other_thread_answers(ask);
    n_seen = ggml_backend_dev_count();
}

// ---- a linked backend with one device; both log ----

static const char *name(ggml_backend_reg_t reg) {
    (void) reg;
    return "Talker";
}

static const char *dev_name(ggml_backend_dev_t dev) {
    (void) dev;
    return "Talker0";
}

static enum ggml_backend_dev_type dev_type(ggml_backend_dev_t dev) {
    (void) dev;
    n_asked++;
    if (is_talkative) {
        berth_log(GGML_LOG_LEVEL_INFO, "asked for its type\n");
    }
    return GGML_BACKEND_DEVICE_TYPE_ACCEL;
}

static struct ggml_backend_device talker = {.iface = {.get_name = dev_name, .get_type = dev_type}};

static size_t count(ggml_backend_reg_t reg) {
    (void) reg;
    berth_log(GGML_LOG_LEVEL_INFO, "%0300d devices\n", 1); // longer than the log's buffer
    return 1;
}

static ggml_backend_dev_t device(ggml_backend_reg_t reg, size_t index) {
    (void) reg, (void) index;
    return &talker;
}

static struct ggml_backend_reg reg = {
    .api_version = GGML_BACKEND_API_VERSION,
    .iface = {.get_name = name, .get_device_count = count, .get_device = device},
};

ggml_backend_reg_t ggml_backend_cuda_reg(void) {
    berth_log(GGML_LOG_LEVEL_WARN, "set up\n");
    berth_log(GGML_LOG_LEVEL_CONT, "and ready\n");
    talker.reg = &reg;
    n_asked_back = ggml_backend_reg_count(); // a backend may query the registry during its set-up
    return &reg;
}

// ---- tests ----

static void lines_wait_for_the_backends(void **state) {
    (void) state;
    ggml_log_set(wait_for_another, NULL);
    assert_true(ggml_backend_dev_count() >= 2); // the CPU is linked, too
    assert_memory_equal(said, "set up\nand ready\n0000", 21);
    assert_non_null(strstr(said, "1 devices\n"));
    assert_true(n_lines >= 3);
    assert_int_equal(n_answers, n_lines);
    assert_int_equal(n_seen, ggml_backend_dev_count());
    assert_int_equal(n_asked_back, 0);
}

// The n-th allocation of the first query fails, in a separate process. Returns 0 if all devices are found, 1 if only by the next
// query.
static int first_question(int n) {
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        check_quiet();
        berth_alloc_fail_at(n);
        const bool was_missing = ggml_backend_reg_count() < 2;
        berth_alloc_fail_at(0);
        _exit(ggml_backend_reg_count() == 2 && ggml_backend_dev_count() == 2 ? was_missing : 2);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void missing_until_there_is_memory(void **state) {
    (void) state;
    int n_of[3] = {0};
    for (int n = 1; n <= 16; n++) {
        const int code = first_question(n);
        assert_in_range(code, 0, 2);
        n_of[code]++;
    }
    assert_true(n_of[0] > 0 && n_of[1] > 2);
    assert_int_equal(n_of[2], 0);
}

// BERTH_SPLIT queries the type of every device under a lock that other queries for devices need.
static void lines_wait_for_the_split(void **state) {
    (void) state;
    static struct ggml_backend_device more;
    more = talker;
    is_talkative = true;
    said[0] = '\0';
    n_answers = n_lines = 0;
    ggml_backend_device_register(&more); // a changed number of devices is checked again
    const int n_before = n_asked;
    ggml_backend_dev_count();
    is_talkative = false;
    assert_true(n_asked > n_before);
    assert_true(n_lines > 0);
    assert_non_null(strstr(said, "asked for its type\n"));
    assert_int_equal(n_answers, n_lines);
}

static void held_lines_without_memory_are_counted(void **state) {
    (void) state;
    said[0] = '\0';
    berth_log_hold();
    berth_log_hold();
    berth_alloc_fail_at(1);
    berth_log(GGML_LOG_LEVEL_INFO, "lost\n");
    berth_alloc_fail_at(0);
    berth_log(GGML_LOG_LEVEL_INFO, "kept\n");
    berth_log_let_go();
    assert_string_equal(said, "");
    berth_log_let_go();
    assert_string_equal(said, "kept\nberth: out of memory for 1 log line\n");
    berth_log(GGML_LOG_LEVEL_INFO, "at once\n");
    assert_non_null(strstr(said, "at once\n"));
}

// ---- held lines are printed before the process ends ----

static int pipe_fd;

static void line_write(enum ggml_log_level level, const char *text, void *user_data) {
    (void) level, (void) user_data;
    assert_int_equal(write(pipe_fd, text, strlen(text)), strlen(text));
}

static void end(const char *text) {
    (void) text;
    _exit(5);
}

static void held_lines_come_before_an_abort(void **state) {
    (void) state;
    int ends[2], status;
    char text[64] = "";
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        pipe_fd = ends[1];
        ggml_log_set(line_write, NULL);
        ggml_set_abort_callback(end);
        berth_log_hold();
        berth_log_hold();
        berth_log(GGML_LOG_LEVEL_ERROR, "the reason\n");
        GGML_ABORT("the end");
    }
    close(ends[1]);
    const ssize_t n = read(ends[0], text, sizeof text - 1);
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 5);
    assert_int_equal(n, strlen("the reason\n"));
    assert_string_equal(text, "the reason\n");
}

int main(void) {
    setenv("BERTH_SPLIT", "tensor", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(missing_until_there_is_memory), // first, because nothing has queried the registry yet
        cmocka_unit_test(lines_wait_for_the_backends),
        cmocka_unit_test(lines_wait_for_the_split),
        cmocka_unit_test(held_lines_without_memory_are_counted),
        cmocka_unit_test(held_lines_come_before_an_abort),
    };
    return cmocka_run_group_tests_name("registry_log", tests, NULL, NULL);
}
