// SPDX-License-Identifier: MIT
// llama_find.c: finds libllama and loads it with Berth's libraries as its ggml. The structs of libllama differ between releases, so
// only the releases in llama_abi.h are accepted. The file name states the release. Berth's libraries with the names of ggml are
// loaded first, so that the dynamic linker uses them for libllama.

#include "model/llama.h"

#include "base/base.h"
#include "registry/elf.h"

#include <dirent.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const releases[] = {"v0.5.0", "b10361"}; // newest first

#define INSTALL_HINT "'npm install node-llama-cpp@3.22.1' installs it; BERTH_LLAMA=DIR sets the folder to search"

struct search {
    char path[4096]; // path of libllama, once found
    const char *release;
    char unloadable[4096 + 200]; // the first file that cannot be loaded, with the reason; "": none
};

// Checks the file first, because the dynamic linker would wait for a pipe and crash on a truncated file.
static bool library_is_sound(struct search *s) {
    char why[160];
    struct berth_elf elf;
    const bool ok = berth_elf_open(&elf, s->path, why, sizeof why);
    berth_elf_fini(&elf);
    if (!ok && s->unloadable[0] == '\0') {
        snprintf(s->unloadable, sizeof s->unloadable, "%s cannot be loaded: %s; ", s->path, why);
    }
    return ok;
}

static bool folder_search(struct search *s, const char *folder) {
    for (size_t i = 0; i < sizeof releases / sizeof *releases && s->release == NULL; i++) {
        const int n = snprintf(s->path, sizeof s->path, "%s/libllama.%s.so", folder, releases[i]);
        if (n > 0 && (size_t) n < sizeof s->path && access(s->path, R_OK) == 0 && library_is_sound(s)) {
            s->release = releases[i];
        }
    }
    return s->release != NULL;
}

// Searches the packages of node-llama-cpp below a folder: node_modules/@node-llama-cpp/NAME/bins/NAME.
static bool node_search(struct search *s, const char *folder) {
    char at[4096];
    DIR *d = snprintf(at, sizeof at, "%s/node_modules/@node-llama-cpp", folder) < (int) sizeof at ? opendir(at) : NULL;
    for (struct dirent *e; d != NULL && s->release == NULL && (e = readdir(d)) != NULL;) {
        char bins[4096 + 600];
        snprintf(bins, sizeof bins, "%s/%s/bins/%s", at, e->d_name, e->d_name);
        folder_search(s, bins);
    }
    if (d != NULL) {
        closedir(d);
    }
    return s->release != NULL;
}

static bool npm_search(struct search *s) {
    static const char *const folders[] = {"/usr/local/lib", "/usr/lib"};
    for (size_t i = 0; i < sizeof folders / sizeof *folders && s->release == NULL; i++) {
        char inner[64];
        snprintf(inner, sizeof inner, "%s/node_modules/node-llama-cpp", folders[i]);
        (void) (node_search(s, folders[i]) || node_search(s, inner));
    }
    const char *home = secure_getenv("HOME");
    return s->release != NULL || (home != NULL && home[0] == '/' && node_search(s, home));
}

static bool default_search(struct search *s) {
    static const char *const folders[] = {
        "/usr/local/lib",
        "/usr/lib",
#if defined(__aarch64__)
        "/usr/lib/aarch64-linux-gnu",
#elif defined(__x86_64__)
        "/usr/lib/x86_64-linux-gnu",
#endif
        "/usr/lib64",
        "/opt/llama/lib"
    };
    char copy[4096], *rest = copy;
    const char *given = secure_getenv("LD_LIBRARY_PATH");
    snprintf(copy, sizeof copy, "%s", given != NULL ? given : "");
    for (char *part; s->release == NULL && (part = strsep(&rest, ":")) != NULL;) {
        if (*part != '\0') {
            folder_search(s, part);
        }
    }
    for (size_t i = 0; i < sizeof folders / sizeof *folders && s->release == NULL; i++) {
        folder_search(s, folders[i]);
    }
    return s->release != NULL || npm_search(s);
}

// libllama in the current folder is only mentioned in the error message. It is never loaded unless BERTH_LLAMA names the folder,
// because a folder of downloaded files must not run code.
static bool is_in_current_folder(void) {
    struct search s = {.release = NULL};
    return node_search(&s, ".");
}

static bool library_find(struct search *s, struct model_error *error) {
    const char *given = secure_getenv("BERTH_LLAMA");
    if (given != NULL && *given != '\0') {
        if (folder_search(s, given) || node_search(s, given)) {
            return true;
        }
        return s->unloadable[0] != '\0'
                   ? model_fail(error, "%s" INSTALL_HINT, s->unloadable)
                   : model_fail(error, "BERTH_LLAMA=%s contains neither libllama.v0.5.0.so nor libllama.b10361.so; " INSTALL_HINT,
                         given);
    }
    return default_search(s) || model_fail(error, "%slibllama was not found; " INSTALL_HINT "%s", s->unloadable,
                                    is_in_current_folder() ? "; BERTH_LLAMA=. uses the one in ./node_modules" : "");
}

// Loads Berth's libraries under the ggml names that libllama depends on. If Berth has no library with such a name, the linker
// loads ggml's library as well, but Berth's functions take precedence.
static void ggml_names_load(const char *path) {
    char why[160];
    struct berth_elf elf;
    const char *name;
    if (berth_elf_open(&elf, path, why, sizeof why)) {
        for (size_t i = 0; (name = berth_elf_name(&elf, DT_NEEDED, i)) != NULL; i++) {
            if (strncmp(name, "libggml", 7) == 0) {
                dlopen(name, RTLD_NOW | RTLD_GLOBAL); // never unloaded
            }
        }
    }
    berth_elf_fini(&elf);
}

static bool symbol_get(void *handle, const char *name, void *out) {
    void *p = dlsym(handle, name);
    memcpy(out, &p, sizeof p);
    return p != NULL;
}

// Data from libllama's log: the first error since llama_error_clear, and the bytes of caches since the last
// llama_logged_cache_size.
static struct {
    char error[512];
    double cache_mib;
} logged;

static void on_log(int level, const char *text, void *user) {
    const char *size = strstr(text, " size = "), *unit = size != NULL ? strstr(size, " MiB (") : NULL;
    (void) user;
    if (level == GGML_LOG_LEVEL_ERROR && logged.error[0] == '\0') {
        snprintf(logged.error, sizeof logged.error, "%.*s", (int) strcspn(text, "\n"), text);
    }
    if (unit != NULL) {
        logged.cache_mib += strtod(size + 8, NULL);
    }
}

void llama_error_clear(void) {
    logged.error[0] = '\0';
}

const char *llama_error(void) {
    return logged.error[0] != '\0' ? logged.error : berth_last_error();
}

size_t llama_logged_cache_size(void) {
    const double mib = logged.cache_mib;
    logged.cache_mib = 0;
    return mib > 0 ? (size_t) (mib * 1024 * 1024) : 0;
}

const struct llama_library *llama_library_get(struct model_error *error) {
    static struct llama_library lib;
    struct search s = {.release = NULL};
    if (lib.release != NULL) {
        return &lib;
    }
    if (!library_find(&s, error)) {
        return NULL;
    }
    ggml_names_load(s.path);
    void *handle = dlopen(s.path, RTLD_NOW | RTLD_LOCAL); // never unloaded
    const char *missing = handle == NULL ? dlerror() : NULL;
#define LLAMA_TAKE(name, result, arguments) \
    if (missing == NULL && !symbol_get(handle, #name, &lib.name)) { \
        missing = #name " is missing"; \
    }
    LLAMA_FUNCTIONS(LLAMA_TAKE)
#undef LLAMA_TAKE
    if (missing != NULL) {
        model_fail(error, "%s: %s", s.path, missing);
        return NULL;
    }
    snprintf(lib.path, sizeof lib.path, "%s", s.path);
    lib.release = s.release;
    lib.llama_log_set(on_log, NULL);
    lib.llama_backend_init();
    return &lib;
}
