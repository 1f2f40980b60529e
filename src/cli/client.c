// SPDX-License-Identifier: MIT
// client.c: `berth client FOLDER` checks whether libraries that were built for ggml, such as llama.cpp's, run on this Berth. A
// client is such a library. Each function that the clients in the folder import must be exported by Berth or by a library that
// Berth does not replace. Berth's libraries are in the folder of the libggml that this program uses.

#include "base/json.h"

#include "cli/help.h"
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

static const struct cli_option option_rows[] = {
    CLI_OPT_JSON(CLI_TO_BOOL, "print one JSON object: release, tested, libraries with missing functions, works"),
    {0},
};

const struct cli_help cli_client_help = {
    .command = "client",
    .what = "check whether a client of ggml, such as llama.cpp, runs on Berth",
    .operands = "FOLDER",
    .takes = "/",
    .n_operands = {1, 1, 0},
    .about =
        "Checks whether the libraries of a folder that call ggml's functions, such as llama.cpp's, run on this Berth. Prints "
        "their release, the functions that they import, the functions that Berth lacks, and the libraries of ggml that they "
        "need. Reads the files whose names end in '.so' or '.node' or contain '.so.'. Runs none of their code.",
    .options = option_rows,
    .size = sizeof(bool),
    .negative = "a function or library is missing",
    .examples = {{"Does it run on Berth?", "client node_modules/@node-llama-cpp/linux-x64/bins/linux-x64"},
        {"For scripts", "client --json /opt/llama/lib"}},
};

// A sorted set of texts.
struct client_names {
    char **items;
    size_t n, n_cap;
};

enum client_role {
    CLIENT_CALLER, // calls ggml's functions: libllama, an addon, a backend that is not a CPU backend
    CLIENT_CPU,    // a CPU backend: Berth's is used instead
    CLIENT_BASE,   // libggml-base or libggml: Berth's are used instead
};

struct client_library {
    char *name;
    enum client_role role;
    bool is_berth;               // a library of Berth
    bool has_rpath;              // DT_RPATH: its folders take precedence over LD_LIBRARY_PATH
    size_t n_imports;            // number of imported functions of ggml
    struct client_names needs;   // libraries of ggml that it depends on
    struct client_names imports; // imported functions
    struct client_names absent;  // imported functions that no library exports
};

struct client_folder {
    const char *path;
    struct client_library *libraries;
    size_t n, n_cap;
    struct client_names unreadable;        // "NAME: why"
    char release[32];                      // of llama.cpp, "" if no name contains it
    char place[4096];                      // folder with Berth's libraries under clients' names; "": none
    struct client_names missing_libraries; // names of required libraries for which Berth has no file
    size_t n_callers, n_missing;           // number of callers; number of missing functions over all callers
    bool has_rpath;                        // of a caller
    bool is_berth;                         // the folder contains Berth's libggml-base
};

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

// Adds the functions that Berth's libraries export. has_cpu: includes the CPU library. Returns false after a failure, for which
// it has printed a message.
static bool berth_exports_read(const char *berth_path, bool has_cpu, struct client_names *berth_exports) {
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
            cli_fail(CLI_FAILURE, "%s: Berth's own library cannot be read: %s", path, ok ? "its symbols cannot be read" : why);
            return false;
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

// Reads the libraries of a folder and checks them. Returns false after a failure, for which it has printed a message.
static bool client_folder_read(struct client_folder *folder, const char *path) {
    struct client_names kept_exports = {0}, berth_exports = {0};
    char berth_path[PATH_MAX];
    *folder = (struct client_folder){.path = path};
    DIR *d = opendir(path);
    if (d == NULL) {
        cli_fail(CLI_FAILURE, "%s: %s", path, strerror(errno));
        return false;
    }
    bool ok = files_read(folder, d, &kept_exports);
    closedir(d);
    if (!ok) {
        cli_fail(CLI_FAILURE, "%s: out of memory, or the folder has more than %d libraries or %d functions", path, FILES_MAX,
            IMPORTS_MAX);
    } else if (!berth_folder_find(berth_path)) {
        ok = false;
        cli_fail(CLI_FAILURE, "this program is linked statically and has no shared libraries for a client");
    } else if (!berth_exports_read(berth_path, needs_cpu_library(folder), &berth_exports)) {
        ok = false;
    } else if (!names_check(folder, berth_path) || !imports_check(folder, &berth_exports, &kept_exports)) {
        ok = false;
        cli_fail(CLI_FAILURE, "%s: out of memory for %zu libraries", path, folder->n);
    }
    names_fini(&kept_exports);
    names_fini(&berth_exports);
    return ok;
}

static void client_folder_fini(struct client_folder *folder) {
    for (size_t i = 0; i < folder->n; i++) {
        library_fini(&folder->libraries[i]);
    }
    berth_free(folder->libraries);
    names_fini(&folder->unreadable);
    names_fini(&folder->missing_libraries);
}

static bool client_folder_works(const struct client_folder *folder) {
    return folder->n_missing == 0 && folder->missing_libraries.n == 0 && !folder->has_rpath;
}

// ---- output ----

// Releases of llama.cpp whose binaries Berth's tests run.
static const struct release {
    const char *name, *ggml;
} tested[] = {
    {"b10361", "0.19.0"},
    {"v0.5.0", "0.25.1"},
};

// NULL: the release is not tested.
static const struct release *release_find(const char *name) {
    for (size_t i = 0; i < sizeof tested / sizeof tested[0]; i++) {
        if (strcmp(tested[i].name, name) == 0) {
            return &tested[i];
        }
    }
    return NULL;
}

static const char *role_text(const struct client_library *library) {
    switch (library->role) {
        case CLIENT_CALLER: return "";
        case CLIENT_CPU: return library->is_berth ? "Berth's" : "replaced by Berth's";
        default: return library->is_berth ? "Berth's" : "replaced by Berth's";
    }
}

// ---- as text ----

static void print_names(const struct client_names *names) {
    for (size_t i = 0; i < names->n; i++) {
        putchar(' ');
        cli_text(stdout, 0, names->items[i]);
    }
}

static void print_release(const struct client_folder *folder) {
    const struct release *release = release_find(folder->release);
    printf("%s%-10s%s ", cli_colour(stdout, CLI_BOLD), "client", cli_colour(stdout, CLI_RESET));
    if (release != NULL) {
        printf("llama.cpp %s for ggml %s: tested with Berth\n", release->name, release->ggml);
    } else if (folder->release[0] != '\0') {
        fputs("llama.cpp ", stdout);
        cli_text(stdout, 0, folder->release);
        puts(": not tested with Berth");
    } else {
        puts("unknown: no library name contains a release");
    }
    printf("%s%-10s%s %s for ggml %s\n\n", cli_colour(stdout, CLI_BOLD), "Berth", cli_colour(stdout, CLI_RESET), berth_version(),
        ggml_version());
}

static void print_libraries(const struct client_folder *folder) {
    printf("  %-28s %9s %8s  %s\n", "library", "functions", "missing", "depends on");
    for (size_t i = 0; i < folder->n; i++) {
        const struct client_library *library = &folder->libraries[i];
        fputs("  ", stdout);
        cli_text(stdout, 28, library->name);
        if (library->role == CLIENT_CALLER) {
            printf(" %9zu %8zu ", library->n_imports, library->absent.n);
            print_names(&library->needs);
        } else {
            printf("  %s", role_text(library));
        }
        putchar('\n');
    }
    for (size_t i = 0; i < folder->unreadable.n; i++) {
        fputs("  ", stdout);
        cli_text(stdout, 0, folder->unreadable.items[i]);
        putchar('\n');
    }
    putchar('\n');
}

static void print_missing(const struct client_folder *folder) {
    for (size_t i = 0; i < folder->n; i++) {
        const struct client_library *library = &folder->libraries[i];
        if (library->role == CLIENT_CALLER && library->absent.n > 0) {
            cli_text(stdout, 0, library->name);
            printf(" calls functions that Berth lacks, and ends at the first such call:");
            print_names(&library->absent);
            putchar('\n');
        }
    }
    if (folder->missing_libraries.n > 0) {
        printf("Berth has no library with the name:");
        print_names(&folder->missing_libraries);
        printf(". Without it, ggml's library is loaded, or the program cannot start. To fix it, create a link with each of these "
               "names to Berth's libggml.so, libggml-base.so or libggml-cpu.so%s%s.\n",
            folder->place[0] != '\0' ? " in " : "", folder->place);
    }
    if (folder->has_rpath) {
        puts("A library sets RPATH, which takes precedence over LD_LIBRARY_PATH: copy Berth's files into its folders.");
    }
}

static void print_answer(const struct client_folder *folder) {
    const bool works = client_folder_works(folder);
    printf("%s%s%s: ", cli_colour(stdout, works ? CLI_GREEN : CLI_RED), works ? "works" : "would fail",
        cli_colour(stdout, CLI_RESET));
    if (!works) {
        printf("%zu functions and %zu libraries are missing\n", folder->n_missing, folder->missing_libraries.n);
    } else if (folder->n_callers == 0) {
        puts("the folder has no client, only libraries of ggml");
    } else if (folder->is_berth) {
        puts("Berth has already replaced ggml");
    } else if (folder->place[0] != '\0') {
        fputs("LD_LIBRARY_PATH=", stdout);
        cli_text(stdout, 0, folder->place);
        puts(" replaces ggml by Berth");
    } else {
        puts("every function is available");
    }
}

// ---- as JSON ----

static void json_names(struct berth_json_writer *w, const char *key, const struct client_names *names) {
    berth_json_begin(w, key, '[');
    for (size_t i = 0; i < names->n; i++) {
        berth_json_printf(w, "%s", names->items[i]);
    }
    berth_json_end(w);
}

// JSON writes NULL as null.
static const char *text_or_null(const char *text) {
    return text != NULL && text[0] != '\0' ? text : NULL;
}

static void json_print(const struct client_folder *folder) {
    static const char *const roles[] = {"client", "cpu", "base"};
    const struct release *release = release_find(folder->release);
    struct berth_json_writer w = {.file = stdout};
    berth_json_begin(&w, NULL, '{');
    berth_json_printf(&w, "'folder': %s, 'release': %s, 'release_ggml': %s, 'tested': %c, 'berth': %s, 'ggml': %s, 'place': %s",
        text_or_null(folder->path), text_or_null(folder->release), release != NULL ? text_or_null(release->ggml) : NULL,
        release != NULL, berth_version(), ggml_version(), text_or_null(folder->place));
    berth_json_begin(&w, "libraries", '[');
    for (size_t i = 0; i < folder->n; i++) {
        const struct client_library *library = &folder->libraries[i];
        berth_json_line(&w, 2);
        berth_json_begin(&w, NULL, '{');
        berth_json_printf(&w, "'name': %s, 'role': %s, 'is_berth': %c, 'has_rpath': %c, 'functions': %zu",
            text_or_null(library->name), roles[library->role], library->is_berth, library->has_rpath, library->n_imports);
        json_names(&w, "asks_for", &library->needs);
        json_names(&w, "missing", &library->absent);
        berth_json_end(&w);
    }
    berth_json_end(&w);
    berth_json_line(&w, 2);
    json_names(&w, "unreadable", &folder->unreadable);
    json_names(&w, "missing_libraries", &folder->missing_libraries);
    berth_json_printf(&w, "'missing_functions': %zu, 'works': %c", folder->n_missing, client_folder_works(folder));
    berth_json_end(&w);
    putchar('\n');
}

int cli_client(const struct cli_args *args) {
    int code;
    const char *path = args->operands[0];
    struct client_folder folder;
    if (!client_folder_read(&folder, path)) {
        code = CLI_FAILURE;
    } else if (folder.n == 0) {
        code = cli_fail(CLI_FAILURE, "%s: no library in this folder uses ggml's functions%s%s", path,
            folder.unreadable.n > 0 ? "; " : "", folder.unreadable.n > 0 ? folder.unreadable.items[0] : "");
    } else {
        code = client_folder_works(&folder) ? CLI_OK : CLI_NEGATIVE;
        if (*(const bool *) args->options) {
            json_print(&folder);
        } else {
            print_release(&folder);
            print_libraries(&folder);
            print_missing(&folder);
            print_answer(&folder);
        }
    }
    client_folder_fini(&folder);
    return code;
}
