// SPDX-License-Identifier: MIT
// llama_find.c: finds libllama and loads it on Berth. Its releases differ in their structs, so only those that llama_abi.h knows
// are taken; their names say which they are. The libraries of ggml's that it asks for are loaded first, by the names of Berth's
// (the program looks for them in its own folders), so that the linker has them when libllama comes.

#include "model/llama.h"

#include "base/base.h"
#include "registry/elf.h"

#include <dirent.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const releases[] = {"v0.5.0", "b10361"}; // the newest first

#define HOW "npm install node-llama-cpp@3.22.1 brings it; BERTH_LLAMA=DIR names another folder"

struct search {
    char path[4096]; // of the library, once it is found
    const char *release;
    char flawed[4096 + 200]; // the first file that cannot be loaded, and why; "": none
};

// A pipe, or a file that was cut short, must not reach the linker: it waits for the one and is killed by the other.
static bool library_is_sound(struct search *s) {
    char why[160];
    struct berth_elf elf;
    const bool ok = berth_elf_open(&elf, s->path, why, sizeof why);
    berth_elf_fini(&elf);
    if (!ok && s->flawed[0] == '\0') {
        snprintf(s->flawed, sizeof s->flawed, "%s cannot be loaded: %s; ", s->path, why);
    }
    return ok;
}

static bool folder_look(struct search *s, const char *folder) {
    for (size_t i = 0; i < sizeof releases / sizeof *releases && s->release == NULL; i++) {
        const int n = snprintf(s->path, sizeof s->path, "%s/libllama.%s.so", folder, releases[i]);
        if (n > 0 && (size_t) n < sizeof s->path && access(s->path, R_OK) == 0 && library_is_sound(s)) {
            s->release = releases[i];
        }
    }
    return s->release != NULL;
}

// Below a folder those of node-llama-cpp's packages: node_modules/@node-llama-cpp/NAME/bins/NAME.
static bool node_look(struct search *s, const char *folder) {
    char at[4096];
    DIR *d = snprintf(at, sizeof at, "%s/node_modules/@node-llama-cpp", folder) < (int) sizeof at ? opendir(at) : NULL;
    for (struct dirent *e; d != NULL && s->release == NULL && (e = readdir(d)) != NULL;) {
        char bins[4096 + 600];
        snprintf(bins, sizeof bins, "%s/%s/bins/%s", at, e->d_name, e->d_name);
        folder_look(s, bins);
    }
    if (d != NULL) {
        closedir(d);
    }
    return s->release != NULL;
}

// Where npm installs for all, and for one user.
static bool npm_look(struct search *s) {
    static const char *const folders[] = {"/usr/local/lib", "/usr/lib"};
    for (size_t i = 0; i < sizeof folders / sizeof *folders && s->release == NULL; i++) {
        char inner[64];
        snprintf(inner, sizeof inner, "%s/node_modules/node-llama-cpp", folders[i]);
        (void) (node_look(s, folders[i]) || node_look(s, inner));
    }
    const char *home = secure_getenv("HOME");
    return s->release != NULL || (home != NULL && home[0] == '/' && node_look(s, home));
}

static bool usual_look(struct search *s) {
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
            folder_look(s, part);
        }
    }
    for (size_t i = 0; i < sizeof folders / sizeof *folders && s->release == NULL; i++) {
        folder_look(s, folders[i]);
    }
    return s->release != NULL || npm_look(s);
}

// Never in the current folder unless it is asked for: a folder of downloaded files must not bring code. It is said if it is
// there.
static bool is_here(void) {
    struct search s = {.release = NULL};
    return node_look(&s, ".");
}

static bool library_find(struct search *s, struct model_error *error) {
    const char *given = secure_getenv("BERTH_LLAMA");
    if (given != NULL && *given != '\0') {
        if (folder_look(s, given) || node_look(s, given)) {
            return true;
        }
        return s->flawed[0] != '\0'
                   ? model_fail(error, "%s" HOW, s->flawed)
                   : model_fail(error, "BERTH_LLAMA=%s: there is neither libllama.v0.5.0.so nor libllama.b10361.so; " HOW, given);
    }
    return usual_look(s) || model_fail(error, "%slibllama is not found; " HOW "%s", s->flawed,
                                is_here() ? ", BERTH_LLAMA=. that of node_modules here" : "");
}

// Berth's libraries under the names that it asks for. Where one has none, ggml's own would be loaded beside Berth's, whose
// functions come first nevertheless.
static void names_load(const char *path) {
    char why[160];
    struct berth_elf elf;
    const char *name;
    if (berth_elf_open(&elf, path, why, sizeof why)) {
        for (size_t i = 0; (name = berth_elf_name(&elf, DT_NEEDED, i)) != NULL; i++) {
            if (strncmp(name, "libggml", 7) == 0) {
                dlopen(name, RTLD_NOW | RTLD_GLOBAL); // stays loaded
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

// What it said since the last look: the first error, which is the reason of those that follow it, and the caches.
static struct {
    char error[512];
    double cache_mib;
} said;

static void log_keep(int level, const char *text, void *user) {
    const char *size = strstr(text, " size = "), *unit = size != NULL ? strstr(size, " MiB (") : NULL;
    (void) user;
    if (level == GGML_LOG_LEVEL_ERROR && said.error[0] == '\0') {
        snprintf(said.error, sizeof said.error, "%.*s", (int) strcspn(text, "\n"), text);
    }
    if (unit != NULL) {
        said.cache_mib += strtod(size + 8, NULL);
    }
}

void llama_error_clear(void) {
    said.error[0] = '\0';
}

const char *llama_error(void) {
    return said.error[0] != '\0' ? said.error : berth_last_error();
}

size_t llama_said_cache(void) {
    const double mib = said.cache_mib;
    said.cache_mib = 0;
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
    names_load(s.path);
    void *handle = dlopen(s.path, RTLD_NOW | RTLD_LOCAL); // stays loaded
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
    lib.llama_log_set(log_keep, NULL);
    lib.llama_backend_init();
    return &lib;
}
