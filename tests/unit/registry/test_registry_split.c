// SPDX-License-Identifier: MIT
// test_registry_split.c: BERTH_SPLIT=tensor: a composite device replaces its parts in the list of devices. When the library of a
// part is unloaded, the other parts are listed again.

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/device.h"

#include <sys/wait.h>
#include <unistd.h>

static void no_log(enum ggml_log_level level, const char *text, void *user_data) {
    (void) level;
    (void) text;
    (void) user_data;
}

struct library {
    struct ggml_backend_reg reg;
    struct device devs[2];
    size_t n;
};

static const char *library_name(ggml_backend_reg_t reg) {
    return ((struct library *) reg->context)->devs[0].name;
}

static size_t library_count(ggml_backend_reg_t reg) {
    return ((struct library *) reg->context)->n;
}

static ggml_backend_dev_t library_device(ggml_backend_reg_t reg, size_t index) {
    return &((struct library *) reg->context)->devs[index].dev;
}

static int n_asked_back;

// A backend may query the registry while it is queried itself.
static enum ggml_backend_dev_type type_after_query(ggml_backend_dev_t dev) {
    (void) dev;
    n_asked_back += ggml_backend_dev_count() > 0;
    return GGML_BACKEND_DEVICE_TYPE_GPU;
}

static void library_init(struct library *l, const char *name, size_t n) {
    *l = (struct library){.n = n};
    l->reg = (struct ggml_backend_reg){
        .api_version = GGML_BACKEND_API_VERSION,
        .iface = {.get_name = library_name, .get_device_count = library_count, .get_device = library_device},
        .context = l,
    };
    for (size_t j = 0; j < n; j++) {
        char full[32];
        snprintf(full, sizeof full, "%s%zu", name, j);
        device_init(&l->devs[j], full);
        l->devs[j].dev.reg = &l->reg;
        l->devs[j].dev.iface.get_type = type_after_query;
    }
}

static const char *name_at(size_t i) {
    ggml_backend_dev_t dev = i < ggml_backend_dev_count() ? ggml_backend_dev_get(i) : NULL;
    return dev != NULL ? ggml_backend_dev_name(dev) : "";
}

// Checks that the first device in the list is the composite device of this name.
static void is_one_device(const char *name) {
    struct ggml_backend_dev_props props;
    assert_string_equal(name_at(0), name);
    ggml_backend_dev_t dev = ggml_backend_dev_get(0);
    ggml_backend_dev_get_props(dev, &props);
    assert_int_equal(props.type, GGML_BACKEND_DEVICE_TYPE_GPU);
    ggml_backend_reg_t reg = ggml_backend_dev_backend_reg(dev);
    assert_int_equal(ggml_backend_reg_dev_count(reg), 1);
    assert_ptr_equal(ggml_backend_reg_dev_get(reg, 0), dev);
    assert_null(reg->iface.get_device(reg, 1));
}

// The composite device exists as long as all its parts do. The remaining parts are listed again, and may form another composite
// device.
static void composite_is_removed_with_a_part(void **state) {
    (void) state;
    static struct library stays;
    struct library *goes = malloc(sizeof *goes);
    const size_t n = ggml_backend_dev_count();
    library_init(&stays, "S", 1);
    library_init(goes, "G", 2);
    alarm(60); // ends the test if a backend that queries the registry deadlocks
    ggml_backend_register(&stays.reg);
    assert_string_equal(name_at(n), "S0");
    ggml_backend_register(&goes->reg);
    is_one_device("Meta(S0,G0,G1)");
    assert_true(n_asked_back > 0);
    alarm(0);
    assert_null(ggml_backend_dev_by_name("G1"));
    ggml_backend_reg_t made = ggml_backend_dev_backend_reg(ggml_backend_dev_get(0));
    for (int i = 0; i < 3; i++) {
        ggml_backend_unload(&goes->reg);
        assert_int_equal(ggml_backend_dev_count(), n + 1);
        assert_string_equal(name_at(0), "S0");
        assert_int_equal(ggml_backend_reg_dev_count(made), 0);
        assert_null(ggml_backend_reg_dev_get(made, 0));
        ggml_backend_register(&goes->reg); // the same parts as before
        is_one_device("Meta(S0,G0,G1)");
        assert_int_equal(ggml_backend_dev_count(), n + 1);
    }
    ggml_backend_unload(&stays.reg);
    is_one_device("Meta(G0,G1)");
    ggml_backend_register(&stays.reg);
    assert_string_equal(name_at(n + 1), "S0"); // registered later: listed next to the composite device
    ggml_backend_unload(&goes->reg);
    memset(goes, 0xdf, sizeof *goes);
    free(goes); // as if its library was closed
    assert_int_equal(ggml_backend_dev_count(), n + 1);
    assert_non_null(ggml_backend_dev_by_name("S0"));
    assert_null(ggml_backend_dev_by_name("G0"));
    ggml_backend_unload(&stays.reg);
    assert_int_equal(ggml_backend_dev_count(), n);
}

static enum ggml_backend_dev_type type_accel(ggml_backend_dev_t dev) {
    (void) dev;
    return GGML_BACKEND_DEVICE_TYPE_ACCEL;
}

// A part of a composite device that is also registered alone is listed once. After a device is unloaded and another is registered,
// the number of devices is the same, but the new device must still become a part.
static void part_is_registered_twice(void **state) {
    (void) state;
    static struct library stays, goes, helps;
    const size_t n = ggml_backend_dev_count();
    library_init(&stays, "S", 1);
    library_init(&goes, "G", 1);
    library_init(&helps, "H", 1);
    ggml_backend_register(&stays.reg);
    ggml_backend_register(&goes.reg);
    is_one_device("Meta(S0,G0)");
    ggml_backend_device_register(&stays.devs[0].dev);
    ggml_backend_unload(&goes.reg);
    assert_int_equal(ggml_backend_dev_count(), n + 1);
    helps.devs[0].dev.iface.get_type = type_accel;
    ggml_backend_register(&helps.reg);
    assert_int_equal(ggml_backend_dev_count(), n + 2);
    ggml_backend_unload(&helps.reg);
    ggml_backend_register(&goes.reg);
    is_one_device("Meta(S0,G0)");
    ggml_backend_unload(&goes.reg);
    ggml_backend_unload(&stays.reg);
    assert_int_equal(ggml_backend_dev_count(), n);
}

// CPUs of other ranks form a composite device with this rank's CPU, which is also listed alone. If a rank has a GPU, this rank's
// CPU is not a part.
static void ranks_include_the_local_cpu(void **state) {
    (void) state;
    static struct library ranks, gpu;
    const size_t n = ggml_backend_dev_count();
    library_init(&ranks, "MPI1:CPU", 1);
    snprintf(ranks.devs[0].name, sizeof ranks.devs[0].name, "MPI1:CPU");
    ggml_backend_register(&ranks.reg);
    is_one_device("Meta(CPU,MPI1:CPU)");
    assert_non_null(ggml_backend_dev_by_name("CPU"));
    assert_int_equal(ggml_backend_dev_count(), n + 1);
    ggml_backend_unload(&ranks.reg);
    library_init(&gpu, "MPI2:GPU", 1); // MPI2:GPU0
    ggml_backend_register(&gpu.reg);
    assert_int_equal(ggml_backend_dev_count(), n + 1);
    ggml_backend_register(&ranks.reg);
    is_one_device("Meta(MPI2:GPU0,MPI1:CPU)");
    ggml_backend_unload(&ranks.reg);
    ggml_backend_unload(&gpu.reg);
    assert_int_equal(ggml_backend_dev_count(), n);
}

static struct library leaves;
static bool is_armed;

static enum ggml_backend_dev_type type_after_unload(ggml_backend_dev_t dev) {
    (void) dev;
    if (is_armed) {
        is_armed = false;
        ggml_backend_unload(&leaves.reg);
    }
    return GGML_BACKEND_DEVICE_TYPE_GPU;
}

// While the registry queries a part, that part unloads another part's library. No composite device of both is made.
static void part_is_unloaded_during_creation(void **state) {
    (void) state;
    static struct library stays;
    const size_t n = ggml_backend_dev_count();
    library_init(&leaves, "L", 1);
    library_init(&stays, "S", 1);
    stays.devs[0].dev.iface.get_type = type_after_unload;
    ggml_backend_register(&leaves.reg);
    assert_int_equal(ggml_backend_dev_count(), n + 1);
    alarm(60); // ends the test in a deadlock
    ggml_backend_register(&stays.reg);
    is_armed = true;
    assert_int_equal(ggml_backend_dev_count(), n + 1);
    alarm(0);
    assert_false(is_armed);
    assert_non_null(ggml_backend_dev_by_name("S0"));
    assert_null(ggml_backend_dev_by_name("L0"));
    ggml_backend_register(&leaves.reg);
    is_one_device("Meta(S0,L0)");
    ggml_backend_unload(&leaves.reg);
    ggml_backend_unload(&stays.reg);
    assert_int_equal(ggml_backend_dev_count(), n);
}

// If the parts cannot be listed again for lack of memory, nothing changes.
static void unload_without_memory_changes_nothing(void **state) {
    (void) state;
    static struct library goes, fill[64];
    const size_t n = ggml_backend_dev_count();
    size_t n_fill = 0;
    bool is_failed = false;
    library_init(&goes, "G", 2);
    while (!is_failed && n_fill < 64) { // until the table is full
        ggml_backend_register(&goes.reg);
        is_one_device("Meta(G0,G1)");
        library_init(&fill[n_fill], "F", 1);
        fill[n_fill].devs[0].dev.iface.get_type = type_accel;
        ggml_backend_register(&fill[n_fill++].reg);
        berth_alloc_fail_at(1);
        ggml_backend_unload(&goes.reg);
        berth_alloc_fail_at(0);
        is_failed = ggml_backend_dev_count() == n + n_fill + 1;
    }
    assert_true(is_failed);
    assert_non_null(strstr(berth_last_error(), "out of memory to list the devices"));
    is_one_device("Meta(G0,G1)");
    ggml_backend_unload(&goes.reg);
    while (n_fill > 0) {
        ggml_backend_unload(&fill[--n_fill].reg);
    }
    assert_int_equal(ggml_backend_dev_count(), n);
}

// A rank that serves its devices has no composite device; the program's rank has one. Each role runs in a separate process, because
// a process reads its role only once.
static size_t devices_in_role(const char *role) {
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        static struct library two;
        setenv("BERTH_MPI_ROLE", role, 1);
        const size_t n = ggml_backend_dev_count();
        library_init(&two, "T", 2);
        ggml_backend_register(&two.reg);
        _exit((int) (ggml_backend_dev_count() - n));
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return (size_t) WEXITSTATUS(status);
}

static void workers_have_no_composite_device(void **state) {
    (void) state;
    assert_int_equal(devices_in_role("worker"), 2);
    assert_int_equal(devices_in_role("program"), 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(workers_have_no_composite_device), // first, because nothing has queried the devices yet
        cmocka_unit_test(composite_is_removed_with_a_part),
        cmocka_unit_test(part_is_registered_twice),
        cmocka_unit_test(ranks_include_the_local_cpu),
        cmocka_unit_test(part_is_unloaded_during_creation),
        cmocka_unit_test(unload_without_memory_changes_nothing),
    };
    setenv("BERTH_SPLIT", "tensor", 1);
    ggml_log_set(no_log, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
