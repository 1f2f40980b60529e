// SPDX-License-Identifier: MIT
// test_registry_first_foreign.c: the first query to the registry finds all installed backends. This program copies itself into a
// folder next to a backend with a GPU. It runs the copy once per kind of query, because a process has only one first query.

#include "support/check.h"

#include "ggml-backend.h"
#include "support/module.h"

#include <pthread.h>
#include <spawn.h>
#include <sys/wait.h>

extern char **environ;

// ---- in the copy ----

static bool has_gpu(void) {
    return ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_GPU) != NULL;
}

static bool is_loaded_once(void) {
    const char *text = getenv("MODULE_GPU_INITS");
    return text != NULL && strcmp(text, "1") == 0;
}

// Returns whether an init function has found `device`. Frees the backend that the function returned.
static bool init_finds(ggml_backend_t backend, const char *device) {
    // The module's device has no backend, so opening it fails; opening the CPU succeeds.
    const bool ok = strcmp(device, "CPU") == 0 ? backend != NULL : backend == NULL;
    ggml_backend_free(backend);
    return ok;
}

static bool ask_reg_count(void) {
    return ggml_backend_reg_count() >= 2;
}

static bool ask_reg_get(void) {
    return strcmp(ggml_backend_reg_name(ggml_backend_reg_get(0)), "CPU") != 0; // the CPU is last
}

static bool ask_reg_by_name(void) {
    return ggml_backend_reg_by_name("module") != NULL;
}

static bool ask_dev_count(void) {
    return ggml_backend_dev_count() == 2;
}

static bool ask_dev_get(void) {
    return strcmp(ggml_backend_dev_name(ggml_backend_dev_get(0)), "Module0") == 0;
}

static bool ask_dev_by_name(void) {
    return ggml_backend_dev_by_name("Module0") != NULL;
}

static bool ask_dev_by_type(void) {
    return has_gpu();
}

static bool ask_init_by_name(void) {
    return init_finds(ggml_backend_init_by_name("CPU", NULL), "CPU");
}

static bool ask_init_by_type(void) {
    return init_finds(ggml_backend_init_by_type(GGML_BACKEND_DEVICE_TYPE_GPU, NULL), "Module0");
}

static bool ask_init_best(void) {
    return init_finds(ggml_backend_init_best(), "Module0");
}

// libllama's sequence: it loads backends only if the registry is empty, then looks for a GPU.
static bool ask_like_libllama(void) {
    if (ggml_backend_reg_count() == 0) {
        ggml_backend_load_all();
    }
    return has_gpu() && ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU) != NULL;
}

static bool ask_load_all_later(void) {
    const size_t n = ggml_backend_reg_count();
    ggml_backend_load_all();
    ggml_backend_load_all_from_path(NULL);
    return ggml_backend_reg_count() == n;
}

static bool ask_load_all_before(void) {
    ggml_backend_load_all();
    return ask_reg_count();
}

// A program that names the folder of its backends gets only these.
static bool ask_another_folder(void) {
    ggml_backend_load_all_from_path("/no/such/folder");
    const bool ok = !has_gpu() && ggml_backend_dev_by_name("CPU") != NULL;
    ggml_backend_load_all();
    return ok;
}

static bool ask_after_unload(void) {
    ggml_backend_unload(ggml_backend_reg_by_name("Module"));
    return !has_gpu();
}

static void *look_for_gpu(void *found) {
    *(bool *) found = has_gpu();
    return NULL;
}

// All threads of a program see all backends, no matter which thread makes the first query.
static bool ask_from_threads(void) {
    enum { n = 8 };
    pthread_t threads[n];
    bool found[n] = {false}, ok = true;
    for (int i = 0; i < n; i++) {
        ok = pthread_create(&threads[i], NULL, look_for_gpu, &found[i]) == 0 && ok;
    }
    for (int i = 0; i < n; i++) {
        pthread_join(threads[i], NULL);
        ok = ok && found[i];
    }
    return ok;
}

// If memory runs out during the search for backends, a later query finds the missing ones.
static bool ask_without_memory(void) {
    check_quiet();
    for (int i = 1; i < 30; i++) {
        berth_alloc_fail_at(i);
        ggml_backend_reg_count();
        berth_alloc_fail_at(0);
    }
    return has_gpu();
}

static const struct ask {
    const char *name;
    bool (*run)(void);
} asks[] = {
    {"reg_count", ask_reg_count},
    {"reg_get", ask_reg_get},
    {"reg_by_name", ask_reg_by_name},
    {"dev_count", ask_dev_count},
    {"dev_get", ask_dev_get},
    {"dev_by_name", ask_dev_by_name},
    {"dev_by_type", ask_dev_by_type},
    {"init_by_name", ask_init_by_name},
    {"init_by_type", ask_init_by_type},
    {"init_best", ask_init_best},
    {"libllama", ask_like_libllama},
    {"load_all later", ask_load_all_later},
    {"load_all before", ask_load_all_before},
    {"another folder", ask_another_folder},
    {"after unload", ask_after_unload},
    {"threads", ask_from_threads},
};

static int run_ask(const char *name) {
    alarm(60); // ends the test in a deadlock
    if (strcmp(name, "without memory") == 0) {
        return ask_without_memory() ? 0 : 1;
    }
    for (size_t i = 0; i < sizeof asks / sizeof asks[0]; i++) {
        if (strcmp(asks[i].name, name) == 0) {
            return !asks[i].run() ? 1 : is_loaded_once() ? 0 : 2;
        }
    }
    return 3;
}

// ---- in this program ----

static char copy_path[MODULE_PATH];

static bool copy_self(void) {
    char command[2 * MODULE_PATH + 16];
    char self[MODULE_PATH] = "";
    if (readlink("/proc/self/exe", self, sizeof self - 1) <= 0) {
        return false;
    }
    snprintf(copy_path, sizeof copy_path, "%s", module_path("copy"));
    snprintf(command, sizeof command, "cp '%s' '%s'", self, copy_path);
    return system(command) == 0;
}

static void assert_ask(const char *name) {
    char *argv[] = {copy_path, (char *) name, NULL};
    pid_t child;
    int status = -1;
    assert_int_equal(posix_spawn(&child, copy_path, NULL, NULL, argv, environ), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        fail_msg("first query \"%s\": %s %d (1: no GPU, 2: not loaded once)", name, WIFEXITED(status) ? "exit code" : "signal",
            WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
    }
}

static void need_module(const char *flags) {
    if (!module_has_compiler()) {
        print_message("skipped: no compiler to make a loadable backend with\n");
        skip();
    }
    unlink(module_path("libggml-module.so"));
    assert_true(module_compile("libggml-module.so", "tests/support/module_gpu.c", flags));
}

static void every_first_query_finds_it(void **state) {
    (void) state;
    need_module("");
    for (size_t i = 0; i < sizeof asks / sizeof asks[0]; i++) {
        assert_ask(asks[i].name);
    }
    assert_ask("without memory");
}

// While the backend is loaded, it waits for its thread, which queries the registry. After ten seconds the thread gets the backends
// that are registered so far.
static void a_backend_that_waits_for_a_thread(void **state) {
    (void) state;
    need_module("-DASKS_IN_THREAD -pthread");
    assert_ask("libllama");
}

static int group_setup(void **state) {
    (void) state;
    return module_setup() && copy_self() ? 0 : -1;
}

static int group_teardown(void **state) {
    (void) state;
    module_teardown();
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 2) {
        return run_ask(argv[1]);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_first_query_finds_it),
        cmocka_unit_test(a_backend_that_waits_for_a_thread),
    };
    return cmocka_run_group_tests_name("registry_first_foreign", tests, group_setup, group_teardown);
}
