// SPDX-License-Identifier: MIT
// module.h: loadable backends for tests, compiled at run time into a temporary folder. If there is no compiler, tests are
// skipped.
#pragma once

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MODULE_PATH 256 // size of a buffer for the path of a module

static char module_dir[64]; // set by module_setup, removed by module_teardown

static inline bool module_setup(void) {
    snprintf(module_dir, sizeof module_dir, "/tmp/berth-modules-XXXXXX");
    return mkdtemp(module_dir) != NULL;
}

static inline void module_teardown(void) {
    char path[MODULE_PATH + 64];
    DIR *d = opendir(module_dir);
    for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL;) {
        if (e->d_name[0] != '.') {
            snprintf(path, sizeof path, "%s/%s", module_dir, e->d_name);
            unlink(path);
        }
    }
    if (d != NULL) {
        closedir(d);
    }
    rmdir(module_dir);
}

static inline const char *module_compiler(void) {
    const char *cc = getenv("CC");
    return cc != NULL && cc[0] != '\0' ? cc : "cc";
}

static inline bool module_has_compiler(void) {
    char command[512];
    snprintf(command, sizeof command, "%s --version >/dev/null 2>&1", module_compiler());
    return system(command) == 0;
}

static inline const char *module_path(const char *file) {
    static char path[4][MODULE_PATH];
    static int i;
    i = (i + 1) % 4;
    snprintf(path[i], MODULE_PATH, "%s/%s", module_dir, file);
    return path[i];
}

// flags: additional arguments of the compiler.
static inline bool module_compile(const char *file, const char *source, const char *flags) {
    char command[1024];
    snprintf(command, sizeof command, "%s -std=c11 -shared -fPIC -Iinclude -DGGML_BACKEND_DL %s -o %s %s", module_compiler(),
        flags, module_path(file), source);
    return system(command) == 0;
}

// A backend without devices. If score < 0, there is no score function. If api_version is 0, the init function returns NULL.
static inline bool module_write(const char *file, const char *name, int score, int api_version) {
    char source[MODULE_PATH];
    snprintf(source, sizeof source, "%s", module_path("module.c"));
    FILE *f = fopen(source, "w");
    if (f == NULL) {
        return false;
    }
    fprintf(f,
        "#include \"ggml-backend-impl.h\"\n"
        "static const char *name(ggml_backend_reg_t r) { (void) r; return \"%s\"; }\n"
        "static size_t count(ggml_backend_reg_t r) { (void) r; return 0; }\n"
        "static void *proc(ggml_backend_reg_t r, const char *n) { (void) r; return (void *) n; }\n"
        "static struct ggml_backend_reg reg = {%d, {name, count, 0, proc}, 0};\n"
        "static ggml_backend_reg_t get(void) { return %s; }\n"
        "GGML_BACKEND_DL_IMPL(get)\n",
        name, api_version, api_version == 0 ? "0" : "&reg");
    if (score >= 0) {
        fprintf(f, "static int score(void) { return %d; }\nGGML_BACKEND_DL_SCORE_IMPL(score)\n", score);
    }
    fclose(f);
    const bool ok = module_compile(file, source, "");
    unlink(source);
    return ok;
}
