// SPDX-License-Identifier: MIT
// folder.c: the functions of folder.h.

#include "client/folder.h"

#include "ggml-backend.h"
#include "registry/elf.h"
#include "registry/registry.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILES_MAX 4096 // libraries of one folder
#define IMPORTS_MAX 65536

// ---- sets of names ----

static void names_fini(struct client_names *names) {
    for (size_t i = 0; i < names->n; i++) {
        berth_free(names->items[i]);
    }
    berth_free(names->items);
    *names = (struct client_names){0};
}

// Returns the index of the first name that is not less than `name`.
static size_t names_find(const struct client_names *names, const char *name) {
    size_t low = 0, high = names->n;
    while (low < high) {
        const size_t mid = (low + high) / 2;
        if (strcmp(names->items[mid], name) < 0) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return low;
}

static bool names_have(const struct client_names *names, const char *name) {
    const size_t i = names_find(names, name);
    return i < names->n && strcmp(names->items[i], name) == 0;
}

// False: out of memory, or more than IMPORTS_MAX names.
static bool names_add(struct client_names *names, const char *name) {
    const size_t i = names_find(names, name), size = strlen(name) + 1;
    if (i < names->n && strcmp(names->items[i], name) == 0) {
        return true;
    }
    if (names->n == IMPORTS_MAX || !berth_grow((void **) &names->items, &names->n_cap, names->n + 1, sizeof names->items[0])) {
        return false;
    }
    char *copy = berth_malloc(size);
    if (copy == NULL) {
        return false;
    }
    memcpy(copy, name, size);
    memmove(names->items + i + 1, names->items + i, (names->n - i) * sizeof names->items[0]);
    names->items[i] = copy;
    names->n++;
    return true;
}

// ---- one library ----

// What on_symbol collects from the symbols of a library.
struct walk {
    struct client_names *imports, *exports; // receive the functions of ggml; NULL: not collected
    size_t n_defined;                       // exported functions of ggml
    bool is_berth, ok;                      // the library exports a function of Berth; false: out of memory
};

static void on_symbol(void *user, const char *name, bool is_defined, bool is_weak) {
    struct walk *walk = user;
    walk->is_berth = walk->is_berth || (is_defined && strncmp(name, "berth_", 6) == 0);
    if (!walk->ok || !berth_client_imports(name)) {
        return;
    }
    walk->n_defined += is_defined;
    if (is_defined) {
        walk->ok = walk->exports == NULL || names_add(walk->exports, name);
    } else if (!is_weak) {
        walk->ok = walk->imports == NULL || names_add(walk->imports, name);
    }
}

static bool starts_with(const char *text, const char *start) {
    return strncmp(text, start, strlen(start)) == 0;
}

static enum client_role role_of(const char *name) {
    if (starts_with(name, "libggml-cpu")) {
        return CLIENT_CPU;
    }
    return starts_with(name, "libggml-base.") || starts_with(name, "libggml.") ? CLIENT_BASE : CLIENT_CALLER;
}

// Sets library->needs and, if a name contains it, folder->release. Returns false if memory is exhausted.
static bool needs_read(struct client_folder *folder, struct client_library *library, const struct berth_elf *elf) {
    const char *name;
    for (size_t i = 0; (name = berth_elf_name(elf, DT_NEEDED, i)) != NULL; i++) {
        if (!starts_with(name, "libggml")) {
            continue;
        }
        if (!names_add(&library->needs, name)) {
            return false;
        }
        if (folder->release[0] == '\0') {
            berth_client_release_of(name, folder->release, sizeof folder->release);
        }
    }
    return true;
}

static void library_fini(struct client_library *library) {
    berth_free(library->name);
    names_fini(&library->needs);
    names_fini(&library->imports);
    names_fini(&library->absent);
}

// Adds a library to the folder, unless the library does not use ggml. kept_exports: exports of libraries that Berth does not
// replace; the library's exports are added if Berth does not replace it. False: out of memory.
static bool library_add(
    struct client_folder *folder, const char *name, struct berth_elf *elf, struct client_names *kept_exports) {
    struct client_library library = {.role = role_of(name)};
    struct walk walk = {.imports = &library.imports, .exports = library.role == CLIENT_CALLER ? kept_exports : NULL, .ok = true};
    char why[PATH_MAX];
    if (!needs_read(folder, &library, elf)) {
        goto fail;
    }
    if (!berth_elf_symbols(elf, on_symbol, &walk)) {
        snprintf(why, sizeof why, "%.255s: its symbols cannot be read", name);
        library_fini(&library);
        return names_add(&folder->unreadable, why);
    }
    if (!walk.ok) {
        goto fail;
    }
    if (library.role == CLIENT_CALLER && library.imports.n == 0 && library.needs.n == 0) {
        library_fini(&library);
        return true;
    }
    const bool is_forwarder = walk.n_defined == 0 && library.needs.n > 0; // exports nothing, such as libggml.so.0
    library.is_berth = (walk.is_berth || is_forwarder) && library.role != CLIENT_CALLER;
    library.n_imports = library.imports.n;
    library.has_rpath = berth_elf_name(elf, DT_RPATH, 0) != NULL && berth_elf_name(elf, DT_RUNPATH, 0) == NULL;
    const size_t size = strlen(name) + 1;
    library.name = berth_malloc(size);
    if (library.name == NULL ||
        !berth_grow((void **) &folder->libraries, &folder->n_cap, folder->n + 1, sizeof folder->libraries[0])) {
        goto fail;
    }
    memcpy(library.name, name, size);
    folder->libraries[folder->n++] = library;
    return true;
fail:
    library_fini(&library);
    return false;
}

// ---- the folder ----

BERTH_PRINTF(2, 3) static bool folder_fail(struct client_folder *folder, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    vsnprintf(folder->why, sizeof folder->why, fmt, args);
    va_end(args);
    return false;
}

static bool is_library_name(const char *name) {
    return berth_ends_with(name, ".so") || berth_ends_with(name, ".node") || strstr(name, ".so.") != NULL;
}

static bool file_read(struct client_folder *folder, const char *path, const char *name, struct client_names *kept_exports) {
    char why[160], text[PATH_MAX];
    struct berth_elf elf;
    bool ok;
    if (berth_elf_open(&elf, path, why, sizeof why)) {
        ok = library_add(folder, name, &elf, kept_exports);
    } else {
        snprintf(text, sizeof text, "%.255s: %s", name, why);
        ok = names_add(&folder->unreadable, text);
    }
    berth_elf_fini(&elf);
    return ok;
}

static bool files_read(struct client_folder *folder, DIR *d, struct client_names *kept_exports) {
    struct client_names names = {0}; // sorted, independent of the file system's order
    bool ok = true;
    for (struct dirent *e; ok && (e = readdir(d)) != NULL;) {
        ok = !is_library_name(e->d_name) || (names.n < FILES_MAX && names_add(&names, e->d_name));
    }
    for (size_t i = 0; ok && i < names.n; i++) {
        char path[PATH_MAX];
        const int n = snprintf(path, sizeof path, "%s/%s", folder->path, names.items[i]);
        struct stat st;
        if (n > 0 && (size_t) n < sizeof path && stat(path, &st) == 0 && S_ISREG(st.st_mode)) {
            ok = file_read(folder, path, names.items[i], kept_exports);
        }
    }
    names_fini(&names);
    return ok;
}

// ---- Berth's side ----

// Returns the folder of the libggml that this program uses, without a trailing slash.
static bool berth_folder_find(char out[PATH_MAX]) {
    Dl_info info;
    void *address;
    void (*function)(void) = ggml_backend_load_all;
    memcpy(&address, &function, sizeof address);
    if (dladdr(address, &info) == 0 || info.dli_fname == NULL || realpath(info.dli_fname, out) == NULL) {
        return false;
    }
    char *slash = strrchr(out, '/');
    if (slash != NULL) {
        *slash = '\0';
    }
    return slash != NULL;
}

// Adds the functions that Berth's libraries export. has_cpu: includes the CPU library.
static bool berth_exports_read(
    struct client_folder *folder, const char *berth_path, bool has_cpu, struct client_names *berth_exports) {
    static const char *const files[] = {"libggml-base.so", "libggml.so", "libggml-cpu.so"};
    for (size_t i = 0; i < (has_cpu ? 3 : 2); i++) {
        char path[PATH_MAX + 32], why[160];
        struct berth_elf elf;
        struct walk walk = {.exports = berth_exports, .ok = true};
        snprintf(path, sizeof path, "%s/%s", berth_path, files[i]);
        const bool ok = berth_elf_open(&elf, path, why, sizeof why);
        const bool read = ok && berth_elf_symbols(&elf, on_symbol, &walk) && walk.ok;
        berth_elf_fini(&elf);
        if (!read) {
            return folder_fail(
                folder, "%s: Berth's own library cannot be read: %s", path, ok ? "its symbols cannot be read" : why);
        }
    }
    return true;
}

static bool is_file(const char *folder, const char *name) {
    char path[2 * PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return access(path, R_OK) == 0;
}

// Sets folder->place and folder->missing_libraries. Returns false if memory is exhausted.
static bool names_check(struct client_folder *folder, const char *berth_path) {
    const int n = snprintf(folder->place, sizeof folder->place, "%s/berth", berth_path);
    if (n < 0 || (size_t) n >= sizeof folder->place || !is_file(folder->place, "libggml-base.so")) {
        folder->place[0] = '\0';
    }
    const char *place = folder->place[0] != '\0' ? folder->place : berth_path;
    for (size_t i = 0; i < folder->n; i++) {
        const struct client_library *library = &folder->libraries[i];
        for (size_t k = 0; library->role == CLIENT_CALLER && k < library->needs.n; k++) {
            const char *name = library->needs.items[k];
            const enum client_role role = role_of(name);
            // Other backends are not replaced.
            if (role != CLIENT_CALLER && !is_file(place, name) && !names_add(&folder->missing_libraries, name)) {
                return false;
            }
        }
    }
    return true;
}

static bool needs_cpu_library(const struct client_folder *folder) {
    for (size_t i = 0; i < folder->n; i++) {
        const struct client_names *needs = &folder->libraries[i].needs;
        for (size_t k = 0; folder->libraries[i].role == CLIENT_CALLER && k < needs->n; k++) {
            // libggml.so.0 depends on the CPU library.
            if (role_of(needs->items[k]) == CLIENT_CPU || strcmp(needs->items[k], "libggml.so.0") == 0) {
                return true;
            }
        }
    }
    return false;
}

// Sets the missing functions of each library and the counts of the folder. Returns false if memory is exhausted.
static bool imports_check(
    struct client_folder *folder, const struct client_names *berth_exports, const struct client_names *kept_exports) {
    for (size_t i = 0; i < folder->n; i++) {
        struct client_library *library = &folder->libraries[i];
        for (size_t k = 0; library->role != CLIENT_BASE && k < library->imports.n; k++) {
            const char *name = library->imports.items[k];
            if (!names_have(berth_exports, name) && !names_have(kept_exports, name) && !names_add(&library->absent, name)) {
                return false;
            }
        }
        folder->is_berth = folder->is_berth || (library->role == CLIENT_BASE && library->is_berth);
        if (library->role == CLIENT_CALLER) {
            folder->n_callers++;
            folder->n_missing += library->absent.n;
            folder->has_rpath = folder->has_rpath || library->has_rpath;
        }
    }
    return true;
}

bool client_folder_read(struct client_folder *folder, const char *path, const char *berth_path) {
    struct client_names kept_exports = {0}, berth_exports = {0};
    char own_path[PATH_MAX];
    bool ok = false;
    *folder = (struct client_folder){.path = path};
    DIR *d = opendir(path);
    if (d == NULL) {
        return folder_fail(folder, "%s: %s", path, strerror(errno));
    }
    const bool is_read = files_read(folder, d, &kept_exports);
    closedir(d);
    if (!is_read) {
        folder_fail(
            folder, "%s: out of memory, or the folder has more than %d libraries or %d functions", path, FILES_MAX, IMPORTS_MAX);
        goto end;
    }
    if (berth_path == NULL) {
        if (!berth_folder_find(own_path)) {
            folder_fail(folder, "this program is linked statically and has no shared libraries for a client");
            goto end;
        }
        berth_path = own_path;
    }
    if (!berth_exports_read(folder, berth_path, needs_cpu_library(folder), &berth_exports)) {
        goto end;
    }
    ok = names_check(folder, berth_path) && imports_check(folder, &berth_exports, &kept_exports);
    if (!ok) {
        folder_fail(folder, "%s: out of memory for %zu libraries", path, folder->n);
    }
end:
    names_fini(&kept_exports);
    names_fini(&berth_exports);
    return ok;
}

void client_folder_fini(struct client_folder *folder) {
    for (size_t i = 0; i < folder->n; i++) {
        library_fini(&folder->libraries[i]);
    }
    berth_free(folder->libraries);
    names_fini(&folder->unreadable);
    names_fini(&folder->missing_libraries);
}

bool client_folder_works(const struct client_folder *folder) {
    return folder->n_missing == 0 && folder->missing_libraries.n == 0 && !folder->has_rpath;
}

const char *client_release_ggml(const char *release) {
    static const struct { const char *name, *ggml; } tested[] = {{"b10361", "0.19.0"}, {"v0.5.0", "0.25.1"}};
    for (size_t i = 0; i < sizeof tested / sizeof tested[0]; i++) {
        if (strcmp(tested[i].name, release) == 0) {
            return tested[i].ggml;
        }
    }
    return NULL;
}
