// SPDX-License-Identifier: MIT
// test_registry_client.c: clients that import missing functions are reported, each once, also if memory runs out. Also tests
// backends by name, and devices that are registered until memory runs out.

#include "support/check.h"

#include "ggml-backend-impl.h"
#include "support/module.h"
#include "support/other_thread.h"

#include <dlfcn.h>

static char said[1 << 14]; // the log, truncated to this size
static bool is_asking;     // during the next line, another thread calls the registry
static int n_asked, n_answers;

static void *look_too(void *arg) {
    (void) arg;
    ggml_backend_load_all_from_path("/no/such/folder");
    return NULL;
}

static void log_keep(enum ggml_log_level level, const char *text, void *user_data) {
    (void) level, (void) user_data;
    strncat(said, text, sizeof said - strlen(said) - 1);
    if (is_asking) {
        is_asking = false;
        n_asked++;
        n_answers += other_thread_answers(look_too);
    }
}

static int setup(void **state) {
    (void) state;
    ggml_log_set(log_keep, NULL);
    return module_setup() ? 0 : -1;
}

static int teardown(void **state) {
    (void) state;
    module_teardown();
    return 0;
}

// Compiles a library that calls n missing functions and one that exists. Weak references do not count as missing.
static bool client_make(const char *file, int n) {
    FILE *f = fopen(module_path("client.c"), "w");
    if (f == NULL) {
        return false;
    }
    fputs("void ggml_there(void);\n__attribute__((weak)) void ggml_weak(void);\n", f);
    for (int i = 0; i < n; i++) {
        fprintf(f, "void ggml_missing_%03d(void);\n", i);
    }
    fputs("void work(void) {\n    ggml_there();\n    if (ggml_weak) ggml_weak();\n", f);
    for (int i = 0; i < n; i++) {
        fprintf(f, "    ggml_missing_%03d();\n", i);
    }
    fputs("}\n", f);
    fclose(f);
    char flags[160];
    snprintf(flags, sizeof flags, "-Wl,-z,lazy -Wl,--unresolved-symbols=ignore-all -Wl,-soname,%s", file);
    char sources[320]; // client.c, then the library on which it depends
    snprintf(sources, sizeof sources, "%.150s %.150s", module_path("client.c"), module_path("libggml-stub.so"));
    return module_compile(file, sources, flags);
}

static bool stub_make(void) {
    FILE *f = fopen(module_path("stub.c"), "w");
    if (f == NULL) {
        return false;
    }
    fputs("void ggml_there(void) {}\nvoid ggml_more(void) {}\n", f);
    fclose(f);
    return module_compile("libggml-stub.so", module_path("stub.c"), "-Wl,-soname,libggml-stub.so");
}

// Makes the registry check the loaded libraries again.
static void look(void) {
    said[0] = '\0';
    ggml_backend_load_all_from_path("/no/such/folder");
}

static void missing_functions_are_reported(void **state) {
    (void) state;
    if (!module_has_compiler() || !stub_make() || !client_make("libone.so", 1) || !client_make("libmany.so", 200) ||
        !client_make("libgood.so", 0)) {
        print_message("skipped: no compiler to make a loadable backend with\n");
        skip();
    }
    void *stub = dlopen(module_path("libggml-stub.so"), RTLD_LAZY | RTLD_GLOBAL);
    assert_non_null(stub);
    void *good = dlopen(module_path("libgood.so"), RTLD_LAZY);
    assert_non_null(good);
    look();
    assert_null(strstr(said, "libgood.so needs"));
    void *one = dlopen(module_path("libone.so"), RTLD_LAZY);
    assert_non_null(one);
    is_asking = true;
    look();
    assert_int_equal(n_asked, 1);
    assert_int_equal(n_answers, 1); // no lock is held while the log callback runs
    assert_non_null(strstr(said, "libone.so needs 1 function that Berth"));
    assert_non_null(strstr(said, "ggml_missing_000."));
    look();
    assert_null(strstr(said, "libone.so")); // reported once
    void *many = dlopen(module_path("libmany.so"), RTLD_LAZY);
    assert_non_null(many);
    look();
    assert_non_null(strstr(said, "libmany.so needs 200 functions that Berth"));
    assert_non_null(strstr(said, ", ...."));
    assert_null(strstr(said, "ggml_missing_199"));
    assert_null(strstr(said, "libone.so"));
    // The set of loaded libraries changes in each round, and memory runs out at another place.
    for (int i = 1; i < 40; i++) {
        void *again = dlopen(module_path("libgood.so"), RTLD_LAZY);
        dlclose(good);
        dlclose(again);
        good = dlopen(module_path("libgood.so"), RTLD_LAZY);
        assert_non_null(good);
        berth_alloc_watch(true);
        berth_alloc_fail_at(i * i);
        look();
        berth_alloc_fail_at(0);
        assert_int_equal(berth_alloc_alive(), 0);
        berth_alloc_watch(false);
    }
    dlclose(good);
    dlclose(one);
    dlclose(many);
    dlclose(stub);
}

static void backends_by_name(void **state) {
    (void) state;
    ggml_backend_t cpu = ggml_backend_init_by_name("cpu", NULL);
    assert_non_null(cpu);
    ggml_backend_free(cpu);
    cpu = ggml_backend_init_by_type(GGML_BACKEND_DEVICE_TYPE_CPU, NULL);
    assert_non_null(cpu);
    ggml_backend_free(cpu);
    cpu = ggml_backend_init_best();
    assert_non_null(cpu);
    ggml_backend_free(cpu);
}

static void devices_until_memory_ends(void **state) {
    (void) state;
    static struct ggml_backend_device devices[600];
    const size_t n_before = ggml_backend_dev_count();
    int n_refused = 0;
    for (size_t i = 0; i < 600; i++) {
        berth_clear_error();
        berth_alloc_fail_at(1);
        ggml_backend_device_register(&devices[i]);
        berth_alloc_fail_at(0);
        if (berth_last_error()[0] != '\0') {
            assert_non_null(strstr(berth_last_error(), "out of memory to register device"));
            assert_int_equal(ggml_backend_dev_count(), n_before + i);
            n_refused++;
            ggml_backend_device_register(&devices[i]);
        }
        assert_int_equal(ggml_backend_dev_count(), n_before + i + 1);
    }
    assert_true(n_refused > 1);
    ggml_backend_device_register(&devices[0]); // already registered
    assert_int_equal(ggml_backend_dev_count(), n_before + 600);
    assert_null(ggml_backend_dev_by_name("no such")); // devices without a name are skipped
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(missing_functions_are_reported),
        cmocka_unit_test(backends_by_name),
        cmocka_unit_test(devices_until_memory_ends),
    };
    return cmocka_run_group_tests_name("registry_client", tests, setup, teardown);
}
