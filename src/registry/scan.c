// SPDX-License-Identifier: MIT
// scan.c: loads all backends of a folder. A backend is a file libggml-NAME.so, or several files libggml-NAME-VARIANT.so. A
// variant is a build for certain processors. Variants are tried by descending ggml_backend_score(), then libggml-NAME.so is
// tried. A NAME that is already registered is skipped. Backends are loaded in alphabetical order, with the CPU last, so that the
// order of devices does not depend on the file system.

#include "registry/registry.h"

#include <dirent.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#ifdef _WIN32
#    define PREFIX "ggml-"
#    define SUFFIX ".dll"
#else
#    define PREFIX "libggml-"
#    define SUFFIX ".so"
#endif

// A file of a backend. One allocation holds both texts: path '\0' name '\0'.
struct backend_file {
    char *path;
    const char *name;
    bool is_variant;
    int score; // ggml_backend_score() of a variant; 0: does not run on this machine
    int i_dir; // index of the folder; files of earlier folders are preferred
};

struct list {
    struct backend_file *items;
    size_t n, n_cap;
};

static void list_fini(struct list *list) {
    for (size_t i = 0; i < list->n; i++) {
        berth_free(list->items[i].path);
    }
    berth_free(list->items);
}

// Adds a file to the list, unless its name is not the name of a backend. Returns false if out of memory.
static bool list_add(struct list *list, const char *dir, int i_dir, const char *file) {
    const size_t len = strlen(file), pre = sizeof PREFIX - 1, suf = sizeof SUFFIX - 1;
    if (len <= pre + suf || strncmp(file, PREFIX, pre) != 0 || strcmp(file + len - suf, SUFFIX) != 0) {
        return true;
    }
    const char *core = file + pre;
    const char *dash = memchr(core, '-', len - pre - suf);
    const size_t n_name = dash != NULL ? (size_t) (dash - core) : len - pre - suf;
    if (n_name == 0 || (n_name == 4 && strncmp(core, "base", 4) == 0)) {
        return true;
    }
    if (!BERTH_GROW(&list->items, &list->n_cap, list->n + 1)) {
        return false;
    }
    const size_t n_path = strlen(dir) + 1 + len + 1;
    char *text = berth_malloc(n_path + n_name + 1);
    if (text == NULL) {
        return false;
    }
    snprintf(text, n_path, "%s/%s", dir, file);
    memcpy(text + n_path, core, n_name);
    text[n_path + n_name] = '\0';
    list->items[list->n++] =
        (struct backend_file){.path = text, .name = text + n_path, .is_variant = dash != NULL, .i_dir = i_dir};
    return true;
}

static bool list_folder(struct list *list, const char *dir, int i_dir) {
    DIR *d = opendir(dir);
    if (d == NULL) {
        return true;
    }
    bool ok = true;
    for (struct dirent *e; ok && (e = readdir(d)) != NULL;) {
        ok = list_add(list, dir, i_dir, e->d_name);
    }
    closedir(d);
    return ok;
}

static int by_name(const void *pa, const void *pb) {
    const struct backend_file *a = pa, *b = pb;
    const int cpu = (strcmp(a->name, "cpu") == 0) - (strcmp(b->name, "cpu") == 0);
    const int cmp = cpu != 0 ? cpu : strcmp(a->name, b->name);
    if (cmp != 0) {
        return cmp;
    }
    return a->i_dir != b->i_dir ? a->i_dir - b->i_dir : strcmp(a->path, b->path);
}

static int by_rank(const void *pa, const void *pb) {
    const struct backend_file *a = pa, *b = pb;
    if (a->is_variant != b->is_variant) {
        return a->is_variant ? -1 : 1;
    }
    if (a->score != b->score) {
        return a->score > b->score ? -1 : 1;
    }
    return by_name(pa, pb);
}

static int score_of(const char *path) {
    void *handle = berth_library_open(path);
    if (handle == NULL) {
        return 0;
    }
    ggml_backend_score_t score;
    void *p = dlsym(handle, "ggml_backend_score");
    memcpy(&score, &p, sizeof score);
    const int n = score != NULL ? score() : 0;
    dlclose(handle);
    return n;
}

// Loads the best of n files that belong to the same backend. Returns false if out of memory.
static bool load_best(struct backend_file *items, size_t n) {
    if (ggml_backend_reg_by_name(items[0].name) != NULL) {
        return true;
    }
    for (size_t i = 0; i < n; i++) {
        items[i].score = items[i].is_variant ? score_of(items[i].path) : 0;
    }
    qsort(items, n, sizeof items[0], by_rank);
    for (size_t i = 0; i < n; i++) {
        if (items[i].score <= 0 && items[i].is_variant) {
            continue;
        }
        ggml_backend_reg_t reg;
        const enum ggml_status status = berth_library_load(items[i].path, true, &reg);
        if (status != GGML_STATUS_FAILED) {
            return status == GGML_STATUS_SUCCESS;
        }
    }
    return true;
}

// Returns false if out of memory.
static bool load_folders(const char *const *dirs, int n_dirs, enum berth_scan which) {
    struct list list = {0};
    bool ok = true;
    for (int i = 0; ok && i < n_dirs; i++) {
        bool is_repeated = false;
        for (int j = 0; j < i; j++) {
            is_repeated = is_repeated || strcmp(dirs[i], dirs[j]) == 0;
        }
        ok = is_repeated || list_folder(&list, dirs[i], i);
    }
    if (!ok) {
        berth_fail(GGML_STATUS_ALLOC_FAILED, "out of memory for a list of %zu backends", list.n);
    }
    if (list.n > 0) {
        qsort(list.items, list.n, sizeof list.items[0], by_name);
    }
    for (size_t i = 0, end; i < list.n; i = end) {
        for (end = i + 1; end < list.n && strcmp(list.items[end].name, list.items[i].name) == 0; end++) {
        }
        if (((strcmp(list.items[i].name, "cpu") == 0 ? BERTH_SCAN_CPU : BERTH_SCAN_DEVICES) & which) != 0) {
            ok = load_best(&list.items[i], end - i) && ok;
        }
    }
    list_fini(&list);
    return ok;
}

static bool program_folder(char *out, size_t size) {
    const ssize_t n = readlink("/proc/self/exe", out, size - 1);
    if (n <= 0) {
        return false;
    }
    out[n] = '\0';
    char *slash = strrchr(out, '/');
    if (slash != NULL) {
        slash[1] = '\0';
    }
    return slash != NULL;
}

// Searches these folders in this order: the folder of the program, the folder of libggml, and the folder to which libggml's
// symbolic link points. The current folder is never searched, because it may contain downloaded files.
static bool load_default_folders(enum berth_scan which) {
    char path[PATH_MAX], resolved[3][PATH_MAX];
    const char *dirs[3];
    int n = 0;
    if (program_folder(path, sizeof path) && realpath(path, resolved[n]) != NULL) {
        dirs[n] = resolved[n];
        n++;
    }
    for (int is_real = 0; is_real < 2; is_real++) {
        if (berth_own_folder(path, sizeof path, is_real) && realpath(path, resolved[n]) != NULL) {
            dirs[n] = resolved[n];
            n++;
        }
    }
    return load_folders(dirs, n, which);
}

// Returns false if out of memory.
static bool load_named_file(void) {
    ggml_backend_reg_t reg;
    const char *file = secure_getenv("GGML_BACKEND_PATH");
    return file == NULL || file[0] == '\0' || berth_library_load(file, true, &reg) != GGML_STATUS_ALLOC_FAILED;
}

// Without GGML_SHARED (the static library) nothing is loaded, because loaded backends would use another copy of the registry.
bool berth_installed_load(enum berth_scan which) {
#ifdef GGML_SHARED
    if (which == BERTH_SCAN_CPU && ggml_backend_reg_by_name("CPU") != NULL) {
        return true; // saves a walk through the folders
    }
    const bool ok = load_default_folders(which);
    return (which & BERTH_SCAN_DEVICES) == 0 ? ok : load_named_file() && ok;
#else
    (void) which;
    return true;
#endif
}

void ggml_backend_load_all_from_path(const char *dir_path) {
    bool ok = true;
    berth_client_check(); // checks the libraries that were loaded after this one
    if (dir_path != NULL) {
        berth_registry_ready(BERTH_REGISTRY_BUILT_IN);
        berth_registry_skip_installed();
        ok = load_folders(&dir_path, 1, BERTH_SCAN_ALL);
        ok = load_named_file() && ok;
    } else if (!berth_registry_ready(BERTH_REGISTRY_INSTALLED)) { // the stage was loaded before, but files may have been added
        ok = load_default_folders(BERTH_SCAN_ALL);
        ok = load_named_file() && ok;
    }
    (void) ok; // an error has been logged
}

void ggml_backend_load_all(void) {
    ggml_backend_load_all_from_path(NULL);
}
