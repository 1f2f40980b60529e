// SPDX-License-Identifier: MIT
// test_registry.c: the table of registries and devices, refused libraries and their messages, and the choice among builds in a
// folder. Tests that load a backend compile one; without a compiler they are skipped with a message.

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/device.h"
#include "support/module.h"

#include <elf.h>
#include <pthread.h>
#include <sys/stat.h>

static void no_log(enum ggml_log_level level, const char *text, void *user_data) {
    (void) level;
    (void) text;
    (void) user_data;
}

static int setup(void **state) {
    (void) state;
    ggml_log_set(no_log, NULL);
    berth_clear_error();
    return 0;
}

static void assert_error(const char *part) {
    if (strstr(berth_last_error(), part) == NULL) {
        fail_msg("the last error is \"%s\", without \"%s\"", berth_last_error(), part);
    }
    berth_clear_error();
}

// ---- the table ----

enum { n_many = 300 };

struct many {
    struct ggml_backend_reg reg;
    struct device dev[2];
};

static struct many many[n_many];

static const char *many_name(ggml_backend_reg_t reg) {
    return ((struct many *) reg->context)->dev[0].name;
}

static size_t many_count(ggml_backend_reg_t reg) {
    (void) reg;
    return 2;
}

static ggml_backend_dev_t many_device(ggml_backend_reg_t reg, size_t index) {
    return &((struct many *) reg->context)->dev[index].dev;
}

static struct many *many_new(int i) {
    struct many *m = &many[i];
    m->reg = (struct ggml_backend_reg){
        .api_version = GGML_BACKEND_API_VERSION,
        .iface = {.get_name = many_name, .get_device_count = many_count, .get_device = many_device},
        .context = m,
    };
    for (int j = 0; j < 2; j++) {
        char name[32];
        snprintf(name, sizeof name, "Many%d%s", i, j == 0 ? "" : "b");
        device_init(&m->dev[j], name);
        m->dev[j].dev.reg = &m->reg;
    }
    return m;
}

static void any_number(void **state) {
    (void) state;
    const size_t regs = ggml_backend_reg_count(), devs = ggml_backend_dev_count();
    for (int i = 0; i < n_many; i++) {
        ggml_backend_register(&many_new(i)->reg);
        ggml_backend_register(&many[i].reg); // registering twice changes nothing
        ggml_backend_device_register(&many[i].dev[1].dev);
    }
    assert_int_equal(ggml_backend_reg_count(), regs + n_many);
    assert_int_equal(ggml_backend_dev_count(), devs + 2 * n_many);
    assert_ptr_equal(ggml_backend_reg_get(regs + 7), &many[7].reg);
    assert_ptr_equal(ggml_backend_dev_get(devs + 15), &many[7].dev[1].dev);
    assert_ptr_equal(ggml_backend_reg_by_name("mANY299"), &many[299].reg);
    assert_ptr_equal(ggml_backend_dev_by_name("many42B"), &many[42].dev[1].dev);
    assert_ptr_equal(ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_GPU), &many[0].dev[0].dev);
    ggml_backend_t backend = ggml_backend_init_best();
    assert_ptr_equal(ggml_backend_get_device(backend), &many[0].dev[0].dev);
    ggml_backend_free(backend);
    backend = ggml_backend_init_by_name("Many9", NULL);
    assert_ptr_equal(ggml_backend_get_device(backend), &many[9].dev[0].dev);
    ggml_backend_free(backend);

    ggml_backend_unload(&many[0].reg);
    assert_null(ggml_backend_dev_by_name("Many0b"));
    assert_ptr_equal(ggml_backend_dev_get(devs), &many[1].dev[0].dev);
    for (int i = 1; i < n_many; i++) {
        ggml_backend_unload(&many[i].reg);
    }
    assert_int_equal(ggml_backend_reg_count(), regs);
    assert_int_equal(ggml_backend_dev_count(), devs);
    ggml_backend_unload(&many[0].reg);
    assert_error("not registered");
}

static void *register_half(void *from) {
    for (int i = *(int *) from; i < n_many; i += 2) {
        ggml_backend_register(&many[i].reg);
        ggml_backend_reg_by_name(many[i].dev[0].name);
        ggml_backend_dev_count();
        if (i % 3 == 0) {
            ggml_backend_unload(&many[i].reg);
        }
    }
    return NULL;
}

static void from_threads(void **state) {
    (void) state;
    const size_t regs = ggml_backend_reg_count(), devs = ggml_backend_dev_count();
    for (int i = 0; i < n_many; i++) {
        many_new(i);
    }
    pthread_t thread[2];
    int from[2] = {0, 1};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_create(&thread[i], NULL, register_half, &from[i]), 0);
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(thread[i], NULL);
    }
    assert_int_equal(ggml_backend_reg_count(), regs + n_many - (n_many + 2) / 3);
    for (int i = 0; i < n_many; i++) {
        if (i % 3 != 0) {
            ggml_backend_unload(&many[i].reg);
        }
    }
    assert_int_equal(ggml_backend_dev_count(), devs);
}

static void out_of_range_and_null(void **state) {
    (void) state;
    assert_null(ggml_backend_reg_get(1000));
    assert_error("there is no registry 1000, there are");
    assert_null(ggml_backend_dev_get(SIZE_MAX));
    assert_error("there is no device 18446744073709551615, there are");
    assert_null(ggml_backend_reg_by_name("no such"));
    assert_null(ggml_backend_init_by_name("no such", NULL));
    assert_error("no device is named no such");
    assert_null(ggml_backend_init_by_type((enum ggml_backend_dev_type) 77, NULL));
    assert_error("type 77");
    ggml_backend_register(NULL), ggml_backend_device_register(NULL), ggml_backend_unload(NULL);
    assert_null(ggml_backend_reg_by_name(NULL));
    assert_null(ggml_backend_dev_by_name(NULL));
    assert_null(ggml_backend_init_by_name(NULL, NULL));
    assert_null(ggml_backend_load(NULL));
}

static void registering_runs_out_of_memory(void **state) {
    (void) state;
    ggml_backend_reg_count();
    for (int i = 1; i <= 2; i++) {
        struct many *m = many_new(i);
        const size_t regs = ggml_backend_reg_count(), devs = ggml_backend_dev_count();
        berth_alloc_fail_at(i);
        ggml_backend_register(&m->reg);
        berth_alloc_fail_at(0);
        const bool there = ggml_backend_reg_count() == regs + 1;
        assert_int_equal(ggml_backend_dev_count(), there ? devs + 2 : devs);
        if (there) {
            ggml_backend_unload(&m->reg);
        } else {
            assert_error("out of memory to register backend");
        }
    }
}

// The lists of registries and of devices grow at different times. An allocation fails at every length of the lists: a backend is
// registered with all its devices or not at all.
static void the_table_cannot_grow(void **state) {
    (void) state;
    const size_t regs = ggml_backend_reg_count(), devs = ggml_backend_dev_count();
    size_t n_there = 0, n_refused = 0;
    for (int i = 0; i < n_many; i++) {
        struct many *m = many_new(i);
        for (int fail = 1; fail <= 3; fail++) {
            berth_alloc_fail_at(fail);
            ggml_backend_register(&m->reg);
            berth_alloc_fail_at(0);
            if (ggml_backend_reg_count() > regs + n_there) {
                break;
            }
            n_refused++;
            assert_int_equal(ggml_backend_dev_count(), devs + 2 * n_there);
        }
        n_there++;
        assert_int_equal(ggml_backend_reg_count(), regs + n_there);
        assert_int_equal(ggml_backend_dev_count(), devs + 2 * n_there);
    }
    assert_true(n_refused > n_many);
    for (int i = 0; i < n_many; i++) {
        ggml_backend_unload(&many[i].reg);
    }
    assert_int_equal(ggml_backend_dev_count(), devs);
}

static ggml_backend_dev_t second_alone(ggml_backend_reg_t reg, size_t index) {
    return index == 0 ? NULL : many_device(reg, index);
}

// The registry reports two devices, but its function returns NULL for one of them.
static void a_device_that_is_not_there(void **state) {
    (void) state;
    struct many *m = many_new(0);
    const size_t devs = ggml_backend_dev_count();
    m->reg.iface.get_device = second_alone;
    ggml_backend_register(&m->reg);
    assert_int_equal(ggml_backend_dev_count(), devs + 1);
    assert_ptr_equal(ggml_backend_dev_by_name("Many0b"), &m->dev[1].dev);
    ggml_backend_unload(&m->reg);
    assert_int_equal(ggml_backend_dev_count(), devs);
}

// ---- loading ----

static bool write_bytes(const char *path, const void *bytes, size_t size) {
    FILE *f = fopen(path, "wb");
    const bool ok = f != NULL && fwrite(bytes, 1, size, f) == size;
    if (f != NULL) {
        fclose(f);
    }
    return ok;
}

static void refuses_other_files(void **state) {
    (void) state;
    const size_t regs = ggml_backend_reg_count();
    assert_null(ggml_backend_load("/no/such/libggml-x.so"));
    assert_error("/no/such/libggml-x.so");
    assert_null(ggml_backend_load("libm.so.6"));
    assert_error("libm.so.6 cannot be loaded: not a backend");
    assert_true(write_bytes(module_path("libggml-text.so"), "hello", 5));
    assert_null(ggml_backend_load(module_path("libggml-text.so")));
    assert_error("libggml-text.so cannot be loaded: not a shared library");

    // The header of this program, changed to another machine.
    Elf64_Ehdr header;
    FILE *f = fopen("/proc/self/exe", "rb");
    assert_non_null(f);
    assert_int_equal(fread(&header, sizeof header, 1, f), 1);
    fclose(f);
    header.e_machine = header.e_machine == EM_X86_64 ? EM_AARCH64 : EM_X86_64;
    assert_true(write_bytes(module_path("libggml-alien.so"), &header, sizeof header));
    assert_null(ggml_backend_load(module_path("libggml-alien.so")));
    assert_error("libggml-alien.so cannot be loaded: built for ");

    ggml_backend_load_all_from_path(module_dir); // both files are skipped
    assert_int_equal(ggml_backend_reg_count(), regs);
    unlink(module_path("libggml-text.so"));
    unlink(module_path("libggml-alien.so"));
}

static void need_compiler(void) {
    if (!module_has_compiler()) {
        print_message("skipped: no compiler to make a loadable backend with\n");
        skip();
    }
}

static void loads_and_unloads(void **state) {
    (void) state;
    need_compiler();
    const size_t regs = ggml_backend_reg_count();
    assert_true(module_write("libggml-old.so", "Old", -1, GGML_BACKEND_API_VERSION - 1));
    assert_null(ggml_backend_load(module_path("libggml-old.so")));
    assert_error("libggml-old.so cannot be loaded: it implements API version 1, this Berth requires 2");
    assert_true(module_write("libggml-none.so", "None", -1, 0));
    assert_null(ggml_backend_load(module_path("libggml-none.so")));
    assert_error("libggml-none.so cannot be loaded: its ggml_backend_init failed");
    assert_true(module_write("libggml-weak.so", "Weak", 0, GGML_BACKEND_API_VERSION));
    assert_null(ggml_backend_load(module_path("libggml-weak.so")));
    assert_error("libggml-weak.so cannot be loaded: it does not support this machine");
    assert_int_equal(ggml_backend_reg_count(), regs);

    assert_true(module_write("libggml-good.so", "Good", -1, GGML_BACKEND_API_VERSION));
    ggml_backend_reg_t reg = ggml_backend_load(module_path("libggml-good.so"));
    assert_non_null(reg);
    assert_ptr_equal(ggml_backend_load(module_path("libggml-good.so")), reg);
    assert_int_equal(ggml_backend_reg_count(), regs + 1);
    assert_ptr_equal(ggml_backend_reg_by_name("good"), reg);
    assert_string_equal(ggml_backend_reg_get_proc_address(reg, "echo"), "echo");
    for (int i = 0; i < 20; i++) {
        ggml_backend_unload(reg);
        assert_null(ggml_backend_reg_by_name("good"));
        reg = ggml_backend_load(module_path("libggml-good.so"));
    }
    ggml_backend_unload(reg);
    unlink(module_path("libggml-old.so"));
    unlink(module_path("libggml-none.so"));
    unlink(module_path("libggml-weak.so"));
    unlink(module_path("libggml-good.so"));
}

// The file is valid, but it needs a function that no library has. The message comes from the dynamic linker.
static void missing_symbol_is_reported(void **state) {
    (void) state;
    need_compiler();
    FILE *f = fopen(module_path("needy.c"), "w");
    assert_non_null(f);
    fputs("extern int nobody_has_this(void);\nint (*const needed)(void) = nobody_has_this;\n", f);
    fclose(f);
    assert_true(module_compile("libggml-needy.so", module_path("needy.c"), ""));
    assert_null(ggml_backend_load(module_path("libggml-needy.so")));
    assert_error("nobody_has_this");
    unlink(module_path("needy.c"));
    unlink(module_path("libggml-needy.so"));
}

// Of builds with equal scores, the first by name is loaded. A build that cannot be opened and one without a score are skipped, and
// so are files whose names contain no backend name.
static void builds_with_equal_scores(void **state) {
    (void) state;
    need_compiler();
    const int v = GGML_BACKEND_API_VERSION;
    assert_true(module_write("libggml-twin-b.so", "TwinB", 4, v) && module_write("libggml-twin-a.so", "TwinA", 4, v));
    assert_true(module_write("libggml-twin-c.so", "TwinC", -1, v));
    assert_true(write_bytes(module_path("libggml-twin-d.so"), "cut", 3));
    assert_true(module_write("libggml-.so", "Nameless", -1, v) && module_write("libggml--x.so", "Nameless", 1, v));
    assert_true(module_write("libggml-base.so", "Base", -1, v) && module_write("libggml-base-x.so", "BaseX", 1, v));
    const size_t regs = ggml_backend_reg_count();
    ggml_backend_load_all_from_path(module_dir);
    assert_int_equal(ggml_backend_reg_count(), regs + 1);
    assert_string_equal(ggml_backend_reg_name(ggml_backend_reg_get(regs)), "TwinA");
    ggml_backend_unload(ggml_backend_reg_get(regs));
    static const char *const files[] = {"libggml-twin-a.so", "libggml-twin-b.so", "libggml-twin-c.so", "libggml-twin-d.so",
        "libggml-.so", "libggml--x.so", "libggml-base.so", "libggml-base-x.so"};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        unlink(module_path(files[i]));
    }
}

static void best_of_a_folder(void **state) {
    (void) state;
    need_compiler();
    const int v = GGML_BACKEND_API_VERSION;
    assert_true(module_write("libggml-vec-a.so", "Vec3", 3, v));
    assert_true(module_write("libggml-vec-b.so", "Vec9", 9, v - 1)); // highest score, but for another API version
    assert_true(module_write("libggml-vec-c.so", "Vec5", 5, v));
    assert_true(module_write("libggml-vec-d.so", "Vec0", 0, v));
    assert_true(module_write("libggml-vec.so", "VecPlain", -1, v));
    assert_true(module_write("libggml-plain.so", "Plain", -1, v));
    assert_true(module_write("libggml-plain-x.so", "PlainX", 0, v));
    assert_true(module_write("libggml-extra.so", "Extra", -1, v));
    const size_t regs = ggml_backend_reg_count();
    ggml_backend_load_all_from_path(module_dir);
    assert_int_equal(ggml_backend_reg_count(), regs + 3);
    assert_string_equal(ggml_backend_reg_name(ggml_backend_reg_get(regs)), "Extra");
    assert_string_equal(ggml_backend_reg_name(ggml_backend_reg_get(regs + 1)), "Plain");
    assert_string_equal(ggml_backend_reg_name(ggml_backend_reg_get(regs + 2)), "Vec5");
    ggml_backend_load_all_from_path(module_dir); // loading again changes nothing
    assert_int_equal(ggml_backend_reg_count(), regs + 3);
    while (ggml_backend_reg_count() > regs) {
        ggml_backend_unload(ggml_backend_reg_get(regs));
    }

    // A file named by the environment.
    setenv("GGML_BACKEND_PATH", module_path("libggml-vec-a.so"), 1);
    ggml_backend_load_all_from_path("/no/such/folder");
    assert_int_equal(ggml_backend_reg_count(), regs + 1);
    ggml_backend_unload(ggml_backend_reg_by_name("Vec3"));
    setenv("GGML_BACKEND_PATH", "/no/such/file.so", 1);
    ggml_backend_load_all_from_path("/no/such/folder");
    assert_error("/no/such/file.so");
    setenv("GGML_BACKEND_PATH", "", 1); // the same as unset
    berth_clear_error();
    ggml_backend_load_all_from_path("/no/such/folder");
    assert_string_equal(berth_last_error(), "");
    unsetenv("GGML_BACKEND_PATH");

    // Memory runs out during loading: fewer backends, no crash, no leak.
    berth_alloc_watch(true);
    for (int i = 1; i <= 24; i++) {
        const int64_t alive = berth_alloc_alive();
        berth_alloc_fail_at(i);
        ggml_backend_load_all_from_path(module_dir);
        berth_alloc_fail_at(0);
        while (ggml_backend_reg_count() > regs) {
            ggml_backend_unload(ggml_backend_reg_get(regs));
        }
        assert_int_equal(berth_alloc_alive(), alive);
    }
    berth_alloc_watch(false);
}

// Backends in the current folder are not loaded, unless the caller names that folder.
static void current_folder_is_not_searched(void **state) {
    (void) state;
    need_compiler();
    char before[4096];
    assert_non_null(getcwd(before, sizeof before));
    assert_true(module_write("libggml-here.so", "Here", -1, GGML_BACKEND_API_VERSION));
    assert_int_equal(chdir(module_dir), 0);
    ggml_backend_load_all();
    ggml_backend_reg_t unasked = ggml_backend_reg_by_name("Here");
    ggml_backend_load_all_from_path(".");
    ggml_backend_reg_t asked = ggml_backend_reg_by_name("Here");
    assert_int_equal(chdir(before), 0);
    assert_null(unasked);
    assert_non_null(asked);
    ggml_backend_unload(asked);
    unlink(module_path("libggml-here.so"));
}

// A library file that is cut off, as after an incomplete download. The dynamic loader would map pages that the file does not
// have. The file is cut at every 509th byte. Each time it is refused, or loaded if the missing bytes do not matter.
static void truncated_library_is_refused(void **state) {
    (void) state;
    need_compiler();
    assert_true(module_write("libggml-whole.so", "Whole", -1, GGML_BACKEND_API_VERSION));
    static char bytes[1 << 20];
    FILE *f = fopen(module_path("libggml-whole.so"), "rb");
    const size_t size = f != NULL ? fread(bytes, 1, sizeof bytes, f) : 0;
    assert_true(f != NULL && size > 4096 && size < sizeof bytes);
    fclose(f);
    size_t n_refused = 0;
    for (size_t n = 0; n < size; n += 509) {
        unlink(module_path("libggml-cut.so")); // a new file each time, because the loader identifies files by inode
        assert_true(write_bytes(module_path("libggml-cut.so"), bytes, n));
        ggml_backend_reg_t reg = ggml_backend_load(module_path("libggml-cut.so"));
        if (reg != NULL) {
            ggml_backend_unload(reg);
            continue;
        }
        n_refused++;
        assert_error(n < sizeof(Elf64_Ehdr) ? "not a shared library" : "truncated");
    }
    assert_true(n_refused > 3);
    assert_true(write_bytes(module_path("libggml-cut.so"), bytes, size));
    ggml_backend_reg_t reg = ggml_backend_load(module_path("libggml-cut.so"));
    assert_non_null(reg);
    ggml_backend_unload(reg);
    unlink(module_path("libggml-cut.so"));
    unlink(module_path("libggml-whole.so"));
}

static void pipe_is_refused(void **state) {
    (void) state;
    assert_int_equal(mkfifo(module_path("libggml-pipe.so"), 0600), 0);
    alarm(20); // opening the pipe would block forever
    assert_null(ggml_backend_load(module_path("libggml-pipe.so")));
    alarm(0);
    assert_error("libggml-pipe.so cannot be loaded: not a regular file");
    unlink(module_path("libggml-pipe.so"));
}

static void load_all_registers_the_cpu_once(void **state) {
    (void) state;
    ggml_backend_load_all();
    const size_t regs = ggml_backend_reg_count();
    ggml_backend_load_all();
    assert_int_equal(ggml_backend_reg_count(), regs);
    size_t n_cpu = 0;
    for (size_t i = 0; i < regs; i++) {
        n_cpu += strcmp(ggml_backend_reg_name(ggml_backend_reg_get(i)), "CPU") == 0;
    }
    assert_true(n_cpu <= 1); // linked, next to the library, or in the folder: registered once
}

// The linked backends are registered again at the end.
static void init_best_without_backends(void **state) {
    (void) state;
    ggml_backend_reg_t cpu = ggml_backend_reg_by_name("CPU");
    assert_non_null(cpu);
    while (ggml_backend_reg_count() > 0) {
        ggml_backend_unload(ggml_backend_reg_get(0));
    }
    assert_int_equal(ggml_backend_dev_count(), 0);
    assert_null(ggml_backend_init_best());
    assert_error("no backend is registered");
    ggml_backend_register(cpu);
    ggml_backend_t backend = ggml_backend_init_best();
    assert_non_null(backend);
    ggml_backend_free(backend);
}

static int group_setup(void **state) {
    (void) state;
    return module_setup() ? 0 : -1;
}

static int group_teardown(void **state) {
    (void) state;
    module_teardown();
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(the_table_cannot_grow, setup), // first, because the other tests leave the table large
        cmocka_unit_test_setup(any_number, setup),
        cmocka_unit_test_setup(from_threads, setup),
        cmocka_unit_test_setup(out_of_range_and_null, setup),
        cmocka_unit_test_setup(registering_runs_out_of_memory, setup),
        cmocka_unit_test_setup(a_device_that_is_not_there, setup),
        cmocka_unit_test_setup(refuses_other_files, setup),
        cmocka_unit_test_setup(loads_and_unloads, setup),
        cmocka_unit_test_setup(missing_symbol_is_reported, setup),
        cmocka_unit_test_setup(builds_with_equal_scores, setup),
        cmocka_unit_test_setup(best_of_a_folder, setup),
        cmocka_unit_test_setup(current_folder_is_not_searched, setup),
        cmocka_unit_test_setup(truncated_library_is_refused, setup),
        cmocka_unit_test_setup(pipe_is_refused, setup),
        cmocka_unit_test_setup(init_best_without_backends, setup),
        cmocka_unit_test_setup(load_all_registers_the_cpu_once, setup),
    };
    return cmocka_run_group_tests_name("registry", tests, group_setup, group_teardown);
}
