// SPDX-License-Identifier: MIT
// test_memory_left.c: the memory limit from files like those of /proc and of control groups, in a folder of the test. Missing files
// and files with other contents are no limit.

#include "support/check.h"

#include "base/memory_left.h"

#include <unistd.h>

#define GIB "1073741824"

static char root[64];

static int setup(void **state) {
    (void) state;
    snprintf(root, sizeof root, "/tmp/berth-memory-XXXXXX");
    return mkdtemp(root) != NULL ? 0 : -1;
}

static int teardown(void **state) {
    (void) state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", root);
    return system(command) == 0 ? 0 : -1;
}

static void file_make(const char *path, const char *text) {
    char command[512];
    snprintf(command, sizeof command, "rm -rf %s%s && mkdir -p %s%s && rmdir %s%s", root, path, root, path, root, path);
    assert_int_equal(system(command), 0);
    snprintf(command, sizeof command, "%s%s", root, path);
    FILE *file = fopen(command, "wb");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void assert_left(uint64_t limit, uint64_t left, const char *source) {
    struct berth_memory_left m;
    assert_true(berth_memory_left_read(root, &m));
    assert_int_equal(m.limit, limit);
    assert_int_equal(m.left, left);
    const char *end = m.source + strlen(m.source) - strlen(source);
    assert_true(strlen(m.source) >= strlen(source));
    assert_string_equal(end, source);
}

static void no_file_is_no_limit(void **state) {
    (void) state;
    struct berth_memory_left m;
    assert_false(berth_memory_left_read(root, &m));
    file_make("/proc/meminfo", "nonsense\n");
    file_make("/proc/self/cgroup", "0::/a\n7:memory:/b\nx\n:\n");
    assert_false(berth_memory_left_read(root, &m));
    file_make("/sys/fs/cgroup/a/memory.max", "max\n");
    file_make("/sys/fs/cgroup/a/memory.current", "4096\n");
    assert_false(berth_memory_left_read(root, &m));
}

static void machine(void **state) {
    (void) state;
    file_make("/proc/meminfo", "MemTotal:    1000 kB\nMemFree:   10 kB\nMemAvailable:   300 kB\n");
    assert_left(1000 * 1024, 300 * 1024, "the machine");
}

static void version_1(void **state) {
    (void) state;
    file_make("/proc/meminfo", "MemTotal: 4194304 kB\nMemAvailable: 4000000 kB\n");
    file_make("/proc/self/cgroup", "9:cpu:/a\n4:memory:/a/b\n0::/\n");
    file_make("/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "9223372036854771712\n"); // no limit
    file_make("/sys/fs/cgroup/memory/a/b/memory.usage_in_bytes", "1\n");
    file_make("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", GIB "\n");
    file_make("/sys/fs/cgroup/memory/a/memory.usage_in_bytes", "600\n");
    file_make("/sys/fs/cgroup/memory/a/memory.stat", "inactive_file 599\ntotal_inactive_file 300\ntotal_active_file 200\n");
    assert_left(1073741824, 1073741824 - 100, "/memory/a");
    // without the counts, all used memory is taken
    file_make("/sys/fs/cgroup/memory/a/memory.stat", "cache 5\n");
    assert_left(1073741824, 1073741824 - 600, "/memory/a");
}

static void version_2(void **state) {
    (void) state;
    file_make("/proc/self/cgroup", "0::/a/b\n");
    file_make("/sys/fs/cgroup/a/b/memory.max", GIB "\n");
    file_make("/sys/fs/cgroup/a/b/memory.current", "1000\n");
    file_make("/sys/fs/cgroup/a/b/memory.stat", "anon 100\ninactive_file 500\nactive_file 400\n");
    assert_left(1073741824, 1073741824 - 100, "/a/b");
    // the folder above has a higher limit, but less of it is left
    file_make("/sys/fs/cgroup/a/memory.max", "1073741823\n");
    file_make("/sys/fs/cgroup/a/memory.current", "1073740000\n");
    assert_left(1073741823, 1823, "/a");
    // more is used than allowed
    file_make("/sys/fs/cgroup/a/memory.current", "2073740000\n");
    assert_left(1073741823, 0, "/a");
}

// In a container, the folder of /proc/self/cgroup is not visible.
static void container(void **state) {
    (void) state;
    file_make("/proc/self/cgroup", "0::/docker/0123\n");
    file_make("/sys/fs/cgroup/memory.max", GIB "\n");
    file_make("/sys/fs/cgroup/memory.current", "24\n");
    assert_left(1073741824, 1073741800, "/sys/fs/cgroup");
}

static void unused(void **state) {
    (void) state;
    struct berth_memory_left m;
    file_make("/proc/meminfo", "MemTotal: 1000 kB\nMemAvailable: 300 kB\n");
    file_make("/proc/self/status", "Name:\tx\nRssAnon:\t  20 kB\nVmData:\t  50 kB\n");
    assert_true(berth_memory_left_read(root, &m));
    assert_int_equal(m.unused, 30 * 1024);
}

int main(void) {
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(no_file_is_no_limit),
        CASE(machine),
        CASE(version_1),
        CASE(version_2),
        CASE(container),
        CASE(unused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
