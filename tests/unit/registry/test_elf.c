// SPDX-License-Identifier: MIT
// test_elf.c: reading ELF libraries: a file and the loaded library give the same result, and damaged files are refused without a
// crash.

#include "support/check.h"

#include "registry/elf.h"
#include "registry/registry.h"
#include "support/module.h"

#include <sys/mman.h>

struct seen {
    size_t n_defined, n_undefined, n_weak;
    bool has_free; // imports free() of the C library
    bool has_answer;
};

static void see(void *user, const char *name, bool is_defined, bool is_weak) {
    struct seen *seen = user;
    seen->n_defined += is_defined;
    seen->n_undefined += !is_defined;
    seen->n_weak += is_weak;
    seen->has_free = seen->has_free || (!is_defined && strcmp(name, "free") == 0);
    seen->has_answer = seen->has_answer || (is_defined && strcmp(name, "answer") == 0);
}

static bool sample_make(const char *file, const char *flags) {
    FILE *f = fopen(module_path("sample.c"), "w");
    if (f == NULL) {
        return false;
    }
    fputs("#include <stdlib.h>\nint answer(void *p) { free(p); return 42; }\n", f);
    fclose(f);
    return module_compile(file, module_path("sample.c"), flags);
}

// The number of symbols is found in either kind of hash table, gnu or sysv.
static void names_and_symbols(void **state) {
    (void) state;
    static const char *const flags[] = {
        "-Wl,--hash-style=gnu,-soname,libsample.so.7", "-Wl,--hash-style=sysv,-soname,libsample.so.7"};
    for (size_t i = 0; module_has_compiler() && i < sizeof flags / sizeof flags[0]; i++) {
        char why[160];
        struct berth_elf elf;
        struct seen seen = {0};
        assert_true(sample_make("sample.so", flags[i]));
        assert_true(berth_elf_open(&elf, module_path("sample.so"), why, sizeof why));
        assert_string_equal(berth_elf_name(&elf, DT_SONAME, 0), "libsample.so.7");
        assert_non_null(strstr(berth_elf_name(&elf, DT_NEEDED, 0), "libc"));
        assert_null(berth_elf_name(&elf, DT_NEEDED, 1));
        assert_null(berth_elf_name(&elf, DT_RPATH, 0));
        assert_true(berth_elf_symbols(&elf, see, &seen));
        assert_true(seen.has_free && seen.has_answer);
        berth_elf_fini(&elf);
    }
}

// A program exports nothing, so the hash table does not give the number of its imports. The relocations give it.
static void program_has_imports(void **state) {
    (void) state;
    char why[160];
    struct berth_elf elf;
    struct seen seen = {0};
    assert_true(berth_elf_open(&elf, "/proc/self/exe", why, sizeof why));
    assert_true(berth_elf_symbols(&elf, see, &seen));
    assert_true(seen.n_undefined > 10);
    berth_elf_fini(&elf);
}

static int compare_loaded(struct dl_phdr_info *info, size_t size, void *user) {
    char why[160];
    struct berth_elf loaded, file;
    struct seen a = {0}, b = {0};
    (void) size;
    if (info->dlpi_name[0] == '/' && berth_elf_loaded(&loaded, info)) {
        assert_true(berth_elf_open(&file, info->dlpi_name, why, sizeof why));
        for (size_t i = 0; i < 16; i++) {
            const char *x = berth_elf_name(&loaded, DT_NEEDED, i), *y = berth_elf_name(&file, DT_NEEDED, i);
            assert_true((x == NULL) == (y == NULL) && (x == NULL || strcmp(x, y) == 0));
        }
        assert_true(berth_elf_symbols(&loaded, see, &a) && berth_elf_symbols(&file, see, &b));
        assert_memory_equal(&a, &b, sizeof a);
        *(int *) user += a.n_defined > 0;
        berth_elf_fini(&loaded);
        berth_elf_fini(&file);
    }
    return 0;
}

static void loaded_is_as_in_the_file(void **state) {
    (void) state;
    int n = 0;
    dl_iterate_phdr(compare_loaded, &n);
    assert_true(n >= 2); // at least the C library and those of the tests
}

static unsigned char *file_bytes(const char *path, size_t *size) {
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    static unsigned char bytes[1 << 20];
    *size = fread(bytes, 1, sizeof bytes, f);
    fclose(f);
    return bytes;
}

// Reads the bytes as a file. The test accepts any result without a crash. Returns true if the file was read.
static bool try_bytes(const unsigned char *bytes, size_t size) {
    static int fd; // one file in memory, reused for thousands of cases
    char path[32], why[160] = "";
    fd = fd == 0 ? memfd_create("damaged.so", 0) : fd;
    assert_true(fd > 0 && ftruncate(fd, (off_t) size) == 0 && pwrite(fd, bytes, size, 0) == (ssize_t) size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    struct berth_elf elf;
    struct seen seen = {0};
    const bool ok = berth_elf_open(&elf, path, why, sizeof why);
    assert_true(ok || why[0] != '\0');
    const bool read = ok && berth_elf_symbols(&elf, see, &seen);
    for (size_t i = 0; ok && berth_elf_name(&elf, DT_NEEDED, i) != NULL; i++) {
        assert_true(i < 4096 && strlen(berth_elf_name(&elf, DT_NEEDED, i)) < size);
    }
    berth_elf_fini(&elf);
    return read;
}

static void damaged_files_are_refused(void **state) {
    (void) state;
    if (!module_has_compiler() || !sample_make("sample.so", "-s")) {
        skip();
    }
    size_t size;
    unsigned char *bytes = file_bytes(module_path("sample.so"), &size);
    berth_alloc_watch(true);
    assert_true(try_bytes(bytes, size));
    for (size_t n = 0; n < size; n += n < 1024 ? 8 : 512) {
        try_bytes(bytes, n);
    }
    // The reader uses only the headers, the tables in the first kilobytes, and the dynamic section.
    static const unsigned char values[] = {0x00, 0x01, 0x7f, 0x80, 0xff};
    uint32_t random = 1;
    for (int i = 0; i < 4000; i++) {
        random = random * 1664525 + 1013904223;
        const size_t span = i % 3 == 0 ? 64 + 10 * 56 : i % 3 == 1 ? 2048 : size;
        const size_t at = (random >> 8) % (span < size ? span : size);
        const size_t n = i % 5 == 0 && at + 8 <= size ? 8 : 1; // a complete address or count
        unsigned char old[8];
        memcpy(old, bytes + at, n);
        memset(bytes + at, values[i % sizeof values], n);
        try_bytes(bytes, size);
        memcpy(bytes + at, old, n);
    }
    assert_int_equal(berth_alloc_alive(), 0);
    berth_alloc_watch(false);
}

// ---- each field of the headers and tables, with many kinds of wrong values ----

static const uint64_t wrong_values[] = {0, 1, 3, 0xFFFF, (uint64_t) 1 << 28, ((uint64_t) 1 << 28) + 8, (uint64_t) 1 << 40,
    (uint64_t) INT64_MAX, UINT64_MAX - 7, UINT64_MAX};

// Writes each wrong value into the field, reads the file, and restores the old value.
static void try_field(unsigned char *bytes, size_t size, size_t at, size_t n) {
    unsigned char old[8];
    memcpy(old, bytes + at, n);
    for (size_t i = 0; i < sizeof wrong_values / sizeof wrong_values[0]; i++) {
        memcpy(bytes + at, &wrong_values[i], n);
        try_bytes(bytes, size);
    }
    for (int step = -8; step <= 8; step += 4) { // slightly wrong
        uint64_t value = 0;
        memcpy(&value, old, n);
        value += (uint64_t) (int64_t) step;
        memcpy(bytes + at, &value, n);
        try_bytes(bytes, size);
    }
    memcpy(bytes + at, old, n);
}

static size_t find_segment(const unsigned char *bytes, uint32_t type, Elf64_Phdr *out) {
    Elf64_Ehdr header;
    memcpy(&header, bytes, sizeof header);
    for (size_t i = 0; i < header.e_phnum; i++) {
        memcpy(out, bytes + header.e_phoff + i * sizeof *out, sizeof *out);
        if (out->p_type == type) {
            return header.e_phoff + i * sizeof *out;
        }
    }
    return 0;
}

// Changes the tags and values of the dynamic section. hidden: tags to remove, so that the reader must use others.
static void try_dynamic(unsigned char *bytes, size_t size, const int64_t *hidden, size_t n_hidden) {
    Elf64_Phdr p;
    assert_true(find_segment(bytes, PT_DYNAMIC, &p) > 0);
    static unsigned char kept[1 << 14];
    assert_true(p.p_filesz <= sizeof kept);
    memcpy(kept, bytes + p.p_offset, p.p_filesz);
    for (size_t at = p.p_offset; at < p.p_offset + p.p_filesz; at += sizeof(Elf64_Dyn)) {
        Elf64_Dyn d;
        memcpy(&d, bytes + at, sizeof d);
        for (size_t k = 0; k < n_hidden; k++) {
            if (d.d_tag == hidden[k]) {
                d.d_tag = DT_DEBUG;
                memcpy(bytes + at, &d, sizeof d);
            }
        }
    }
    try_bytes(bytes, size);
    for (size_t at = p.p_offset; at < p.p_offset + p.p_filesz; at += sizeof(Elf64_Dyn)) {
        Elf64_Dyn d;
        memcpy(&d, bytes + at, sizeof d);
        try_field(bytes, size, at + 8, 8);
        if (d.d_tag != DT_NULL) {
            try_field(bytes, size, at, 8);
        }
    }
    memcpy(bytes + p.p_offset, kept, p.p_filesz);
}

// Changes the words of a table that the dynamic section names: counts, buckets and chains.
static void try_table(unsigned char *bytes, size_t size, int64_t tag, size_t n_words) {
    Elf64_Phdr dynamic, load;
    assert_true(find_segment(bytes, PT_DYNAMIC, &dynamic) > 0 && find_segment(bytes, PT_LOAD, &load) > 0);
    for (size_t at = dynamic.p_offset; at < dynamic.p_offset + dynamic.p_filesz; at += sizeof(Elf64_Dyn)) {
        Elf64_Dyn d;
        memcpy(&d, bytes + at, sizeof d);
        for (size_t i = 0; d.d_tag == tag && i < n_words && d.d_un.d_ptr + 4 * i + 8 < load.p_filesz; i++) {
            try_field(
                bytes, size, (size_t) d.d_un.d_ptr + 4 * i, 4); // the first segment is at address 0 in the file and in memory
        }
    }
}

static void wrong_fields_do_not_crash(void **state) {
    (void) state;
    static const int64_t hashes[] = {DT_HASH, DT_GNU_HASH}, all[] = {DT_HASH, DT_GNU_HASH, DT_RELA, DT_JMPREL};
    static const char *const flags[] = {"-s -Wl,--hash-style=gnu", "-s -Wl,--hash-style=sysv"};
    for (size_t f = 0; f < sizeof flags / sizeof flags[0]; f++) {
        if (!module_has_compiler() || !sample_make("sample.so", flags[f])) {
            skip();
        }
        size_t size;
        unsigned char *bytes = file_bytes(module_path("sample.so"), &size);
        berth_alloc_watch(true);
        for (size_t at = 16; at < sizeof(Elf64_Ehdr); at += 2) {
            try_field(bytes, size, at, 2);
        }
        Elf64_Phdr p;
        static const uint32_t types[] = {PT_LOAD, PT_DYNAMIC};
        for (size_t t = 0; t < 2; t++) {
            const size_t at = find_segment(bytes, types[t], &p);
            for (size_t k = 0; k < sizeof p; k += k < 8 ? 4 : 8) {
                try_field(bytes, size, at + k, k < 8 ? 4 : 8);
            }
        }
        try_dynamic(bytes, size, NULL, 0);
        try_dynamic(bytes, size, hashes, 2); // then relocations count the symbols
        try_dynamic(bytes, size, all, 4);    // then nothing counts them
        try_table(bytes, size, DT_GNU_HASH, 32);
        try_table(bytes, size, DT_HASH, 4);
        assert_true(try_bytes(bytes, size)); // all fields have their old values
        assert_int_equal(berth_alloc_alive(), 0);
        berth_alloc_watch(false);
    }
}

static void memory_runs_out(void **state) {
    (void) state;
    if (!module_has_compiler() || !sample_make("sample.so", "")) {
        skip();
    }
    size_t size;
    unsigned char *bytes = file_bytes(module_path("sample.so"), &size);
    int n_failed = 0;
    berth_alloc_watch(true);
    for (int64_t i = 1; i < 16; i++) {
        berth_alloc_fail_at(i);
        n_failed += !try_bytes(bytes, size);
        berth_alloc_fail_at(0);
        assert_int_equal(berth_alloc_alive(), 0);
    }
    assert_int_equal(n_failed, 4); // segments, dynamic section, names, symbols
    berth_alloc_watch(false);
}

static void other_files(void **state) {
    (void) state;
    char why[160];
    struct berth_elf elf;
    static const char *const paths[] = {"/no/such.so", "/", "/dev/null", "README.md"};
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        why[0] = '\0';
        assert_false(berth_elf_open(&elf, paths[i], why, sizeof why));
        assert_true(why[0] != '\0');
        berth_elf_fini(&elf);
    }
}

static void releases_in_names(void **state) {
    (void) state;
    char release[8];
    assert_true(berth_client_release_of("libggml.b10361.so", release, sizeof release));
    assert_string_equal(release, "b10361");
    static const char *const none[] = {
        "libggml.so", "libggml.so.0", "libggml-base.so", "", "libllama.b1.so", "libggml.b1.so.0", "libggml.v10.20.30.so"};
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
        assert_false(berth_client_release_of(none[i], release, sizeof release));
    }
}

static int setup(void **state) {
    (void) state;
    return module_setup() ? 0 : -1;
}

static int teardown(void **state) {
    (void) state;
    module_teardown();
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_and_symbols),
        cmocka_unit_test(program_has_imports),
        cmocka_unit_test(loaded_is_as_in_the_file),
        cmocka_unit_test(damaged_files_are_refused),
        cmocka_unit_test(wrong_fields_do_not_crash),
        cmocka_unit_test(memory_runs_out),
        cmocka_unit_test(other_files),
        cmocka_unit_test(releases_in_names),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
