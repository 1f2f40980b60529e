// SPDX-License-Identifier: MIT
// test_cpu_numa.c: lists of numbers as the Linux kernel writes them ("0-3,8"), placements of threads read from test folders like
// /sys/devices/system/node, and thread pools that use the placements.

#include "support/check.h"
#include "support/oracle.h"

#include "cpu/numa.h"
#include "cpu/pool.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>

// ---- lists ----

// Returns the ranges of a list as text, or "bad".
static const char *expanded(const char *list) {
    static char text[256];
    int n = 0, first, last, more;
    text[0] = '\0';
    while ((more = cpu_list_next(&list, &first, &last)) > 0) {
        n += snprintf(text + n, sizeof text - (size_t) n, "%d..%d ", first, last);
    }
    return more < 0 ? "bad" : text;
}

static void lists_are_read(void **state) {
    (void) state;
    assert_string_equal(expanded("0-3,8\n"), "0..3 8..8 ");
    assert_string_equal(expanded("0"), "0..0 ");
    assert_string_equal(expanded("\n"), "");
    assert_string_equal(expanded(""), "");
    assert_string_equal(expanded("5,7-7,0-2147483647\n"), "5..5 7..7 0..2147483647 ");
}

static void malformed_lists_are_refused(void **state) {
    (void) state;
    static const char *const bad[] = {
        "a", "-1", "1-", "3-1", "1,", ",1", "1,,2", "1-2-3", "1 2", "0x1", "2147483648", "1-99999999999", "1;2", " 1"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_string_equal(expanded(bad[i]), "bad");
    }
}

// ---- placements from a test tree ----

static char root[64];

static void tree_file(const char *name, const char *text) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", root, name);
    char *slash = strrchr(path, '/');
    *slash = '\0';
    mkdir(path, 0700); // it may exist already
    *slash = '/';
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    const size_t n = strlen(text);
    assert_true(fd >= 0);
    assert_true(write(fd, text, n) == (ssize_t) n);
    close(fd);
}

static int tree_make(void **state) {
    (void) state;
    snprintf(root, sizeof root, "/tmp/berth-numa-XXXXXX");
    return mkdtemp(root) != NULL ? 0 : -1;
}

static int tree_remove(void **state) {
    (void) state;
    char command[96];
    snprintf(command, sizeof command, "rm -r %s", root);
    return system(command);
}

// Reads the placement from the test tree, as if the process may use processors 0 to n - 1 and the calling thread runs on `cpu`.
static struct cpu_numa *numa_of(enum ggml_numa_strategy strategy, int n, int cpu) {
    static cpu_set_t allowed[2]; // room for more than 1024 processors
    memset(allowed, 0, sizeof allowed);
    for (int i = 0; i < n; i++) {
        CPU_SET_S((size_t) i, sizeof allowed, allowed);
    }
    const struct cpu_numa_host host = {.root = root, .allowed = allowed, .allowed_size = sizeof allowed, .cpu = cpu};
    return cpu_numa_new(strategy, &host);
}

static void assert_place(const struct cpu_numa *numa, int ith, const char *list) {
    const cpu_set_t *set = cpu_numa_place(numa, ith);
    const size_t size = cpu_numa_set_size(numa);
    int first, last, n = 0;
    while (cpu_list_next(&list, &first, &last) > 0) {
        for (int i = first; i <= last; i++, n++) {
            assert_true(CPU_ISSET_S((size_t) i, size, set));
        }
    }
    assert_int_equal(CPU_COUNT_S(size, set), n);
}

static void two_nodes(const char *list0, const char *list1) {
    tree_file("online", "0-1\n");
    tree_file("node0/cpulist", list0);
    tree_file("node1/cpulist", list1);
}

static void threads_are_distributed(void **state) {
    (void) state;
    two_nodes("0-3,8\n", "4-7,9-1100\n");
    static const enum ggml_numa_strategy strategies[] = {GGML_NUMA_STRATEGY_DISTRIBUTE, GGML_NUMA_STRATEGY_MIRROR};
    for (size_t i = 0; i < 2; i++) {
        struct cpu_numa *numa = numa_of(strategies[i], 2048, 0);
        assert_non_null(numa);
        assert_int_equal(cpu_numa_n_nodes(numa), 2);
        assert_int_equal(cpu_numa_n_cpus(numa), 1101);
        for (int ith = 0; ith < 600; ith += 2) {
            assert_place(numa, ith, "0-3,8");
            assert_place(numa, ith + 1, "4-7,9-1100");
        }
        cpu_numa_free(numa);
    }
}

static void threads_are_isolated(void **state) {
    (void) state;
    two_nodes("0-3\n", "4-7\n");
    struct cpu_numa *numa = numa_of(GGML_NUMA_STRATEGY_ISOLATE, 7, 5);
    assert_non_null(numa);
    assert_int_equal(cpu_numa_n_nodes(numa), 2);
    assert_int_equal(cpu_numa_n_cpus(numa), 3);
    for (int ith = 0; ith < 5; ith++) {
        assert_place(numa, ith, "4-6"); // the process may not use processor 7
    }
    cpu_numa_free(numa);
    assert_null(numa_of(GGML_NUMA_STRATEGY_ISOLATE, 7, 9));
    assert_null(numa_of(GGML_NUMA_STRATEGY_ISOLATE, 7, -1));
}

static void given_affinity_is_kept(void **state) {
    (void) state;
    two_nodes("0-3\n", "4-7\n");
    struct cpu_numa *numa = numa_of(GGML_NUMA_STRATEGY_NUMACTL, 6, 0);
    assert_non_null(numa);
    assert_int_equal(cpu_numa_n_cpus(numa), 6);
    assert_place(numa, 0, "0-5");
    assert_place(numa, 3, "0-5");
    cpu_numa_free(numa);
}

// A node with memory but without processors is counted and gets no threads. Node numbers may have gaps.
static void nodes_without_processors_get_no_threads(void **state) {
    (void) state;
    tree_file("online", "0,8-9\n");
    tree_file("node0/cpulist", "0-1\n");
    tree_file("node8/cpulist", "\n");
    tree_file("node9/cpulist", "2-3\n");
    struct cpu_numa *numa = numa_of(GGML_NUMA_STRATEGY_DISTRIBUTE, 4, 0);
    assert_non_null(numa);
    assert_int_equal(cpu_numa_n_nodes(numa), 3);
    assert_place(numa, 0, "0-1");
    assert_place(numa, 1, "2-3");
    assert_place(numa, 2, "0-1");
    cpu_numa_free(numa);
    numa = numa_of(GGML_NUMA_STRATEGY_DISTRIBUTE, 2, 0); // the process may not use the processors of node 9
    assert_non_null(numa);
    assert_place(numa, 1, "0-1");
    cpu_numa_free(numa);
}

static void one_node_gives_no_placement(void **state) {
    (void) state;
    tree_file("online", "0\n");
    tree_file("node0/cpulist", "0-7\n");
    for (int s = GGML_NUMA_STRATEGY_DISTRIBUTE; s < GGML_NUMA_STRATEGY_COUNT; s++) {
        assert_null(numa_of((enum ggml_numa_strategy) s, 8, 0));
    }
}

static void broken_trees_are_refused(void **state) {
    (void) state;
    two_nodes("0-3\n", "4-x\n");
    assert_null(numa_of(GGML_NUMA_STRATEGY_DISTRIBUTE, 8, 0));
    two_nodes("0-3\n", "4-7\n");
    tree_file("online", "0-2147483647\n"); // the list ends at the first missing node
    assert_null(numa_of(GGML_NUMA_STRATEGY_DISTRIBUTE, 8, 0));
    tree_file("online", "two\n");
    assert_null(numa_of(GGML_NUMA_STRATEGY_DISTRIBUTE, 8, 0));
    const struct cpu_numa_host nowhere = {.root = "/nonexistent"};
    assert_null(cpu_numa_new(GGML_NUMA_STRATEGY_DISTRIBUTE, &nowhere));
}

static void long_lists_are_read(void **state) {
    (void) state;
    char list[2048] = "0";
    for (int i = 2; i < 800; i += 2) {
        snprintf(list + strlen(list), sizeof list - strlen(list), ",%d", i);
    }
    two_nodes("1\n", list);
    struct cpu_numa *numa = numa_of(GGML_NUMA_STRATEGY_DISTRIBUTE, 1000, 0);
    assert_non_null(numa);
    assert_place(numa, 1, list);
    cpu_numa_free(numa);
}

static void every_failed_allocation_is_survived(void **state) {
    (void) state;
    two_nodes("0-3\n", "4-7\n");
    for (int64_t n = 1;; n++) {
        berth_alloc_watch(true);
        berth_alloc_fail_at(n);
        struct cpu_numa *numa = numa_of(GGML_NUMA_STRATEGY_DISTRIBUTE, 8, 0);
        berth_alloc_fail_at(0);
        const bool done = numa != NULL;
        cpu_numa_free(numa);
        assert_int_equal(berth_alloc_alive(), 0);
        berth_alloc_watch(false);
        if (done) {
            assert_true(n > 4);
            break;
        }
    }
}

// ---- pools ----

struct seen {
    cpu_set_t set[4];
};

static void affinity_job(void *arg, int ith) {
    struct seen *s = arg;
    pthread_getaffinity_np(pthread_self(), sizeof s->set[ith], &s->set[ith]);
}

// Creates a tree with two processors of the process in separate nodes. Returns false if the process has only one processor.
static bool tree_of_own_processors(int cpu[2], cpu_set_t *own) {
    int n = 0;
    assert_int_equal(sched_getaffinity(0, sizeof *own, own), 0);
    for (int i = 0; i < CPU_SETSIZE && n < 2; i++) {
        if (CPU_ISSET(i, own)) {
            cpu[n++] = i;
        }
    }
    char list[2][16];
    for (int i = 0; i < n; i++) {
        snprintf(list[i], sizeof list[i], "%d\n", cpu[i]);
    }
    if (n == 2) {
        two_nodes(list[0], list[1]);
    }
    return n == 2;
}

static void pools_use_the_placement(void **state) {
    (void) state;
    int cpu[2];
    cpu_set_t own;
    if (!tree_of_own_processors(cpu, &own)) {
        skip();
    }
    struct ggml_threadpool_params params = ggml_threadpool_params_default(4);
    struct ggml_threadpool *pool = ggml_threadpool_new(&params);
    params.cpumask[cpu[1]] = true;
    struct ggml_threadpool *masked = ggml_threadpool_new(&params);
    struct seen s;
    cpu_pool_run(pool, 4, affinity_job, &s);
    assert_true(CPU_EQUAL(&s.set[1], &own));

    // The strategy may be set after the pool was created.
    const struct cpu_numa_host host = {.root = root, .allowed = &own, .allowed_size = sizeof own, .cpu = cpu[0]};
    struct cpu_numa *numa = cpu_numa_new(GGML_NUMA_STRATEGY_DISTRIBUTE, &host);
    assert_non_null(numa);
    assert_false(ggml_is_numa());
    assert_null(cpu_numa_activate(numa));
    assert_true(ggml_is_numa());
    assert_int_equal(cpu_pool_n_cpus(pool), 2);
    cpu_pool_run(pool, 4, affinity_job, &s);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(CPU_COUNT(&s.set[i]), 1);
        assert_true(CPU_ISSET(cpu[i % 2], &s.set[i]));
    }
    cpu_set_t now; // the affinity of the calling thread is restored
    assert_int_equal(sched_getaffinity(0, sizeof now, &now), 0);
    assert_true(CPU_EQUAL(&now, &own));

    cpu_pool_run(masked, 4, affinity_job, &s); // a mask has priority
    for (int i = 0; i < 4; i++) {
        assert_int_equal(CPU_COUNT(&s.set[i]), 1);
        assert_true(CPU_ISSET(cpu[1], &s.set[i]));
    }
    ggml_threadpool_free(masked);
    ggml_threadpool_free(pool);
    assert_ptr_equal(cpu_numa_activate(NULL), numa);
    cpu_numa_free(numa);
    assert_int_equal(sched_setaffinity(0, sizeof own, &own), 0);
}

// ---- the public functions on this machine ----

static int count_nodes(void) {
    char text[256] = "";
    const int fd = open("/sys/devices/system/node/online", O_RDONLY);
    if (fd >= 0) {
        assert_true(read(fd, text, sizeof text - 1) > 0);
        close(fd);
    }
    const char *at = text;
    int n = 0, first, last;
    while (cpu_list_next(&at, &first, &last) > 0) {
        n += last - first + 1;
    }
    return n;
}

static void numa_detection_agrees_with_the_reference(void **state) {
    (void) state;
    assert_false(ggml_is_numa());
    ggml_numa_init(GGML_NUMA_STRATEGY_DISABLED);
    ggml_numa_init((enum ggml_numa_strategy) - 1);
    ggml_numa_init(GGML_NUMA_STRATEGY_COUNT);
    assert_false(ggml_is_numa());
    ggml_numa_init(GGML_NUMA_STRATEGY_DISTRIBUTE);
    ggml_numa_init(GGML_NUMA_STRATEGY_ISOLATE); // the first call is effective
    assert_int_equal(ggml_is_numa(), count_nodes() > 1);

    void *base = oracle_load("libggml-base.so"), *lib = NULL;
    if (base != NULL) {
        lib = oracle_load(strstr(ORACLE_ARCH, "arm64") != NULL ? "libggml-cpu-armv8.0_1.so" : "libggml-cpu-x64.so");
    }
    if (lib == NULL) {
        printf("not compared: %s\n", oracle_why());
        return;
    }
    void (*init)(enum ggml_numa_strategy) = NULL;
    bool (*is_numa)(void) = NULL;
    void *found = dlsym(lib, "ggml_numa_init");
    memcpy(&init, &found, sizeof init);
    found = dlsym(lib, "ggml_is_numa");
    memcpy(&is_numa, &found, sizeof is_numa);
    assert_true(init != NULL && is_numa != NULL);
    assert_false(is_numa());
    init(GGML_NUMA_STRATEGY_DISTRIBUTE);
    assert_int_equal(is_numa(), ggml_is_numa());
}

#define ON_TREE(test) cmocka_unit_test_setup_teardown(test, tree_make, tree_remove)

int main(void) {
    check_quiet();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_are_read),
        cmocka_unit_test(malformed_lists_are_refused),
        ON_TREE(threads_are_distributed),
        ON_TREE(threads_are_isolated),
        ON_TREE(given_affinity_is_kept),
        ON_TREE(nodes_without_processors_get_no_threads),
        ON_TREE(one_node_gives_no_placement),
        ON_TREE(broken_trees_are_refused),
        ON_TREE(long_lists_are_read),
        ON_TREE(every_failed_allocation_is_survived),
        ON_TREE(pools_use_the_placement),
        cmocka_unit_test(numa_detection_agrees_with_the_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
