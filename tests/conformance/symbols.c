// SPDX-License-Identifier: MIT
// symbols.c: checks that Berth exports the functions in two tables of the data directory: abi/functions.tsv lists those that
// ggml's headers declare, abi/imports.tsv those that each client imports.
#include "report.h"

#include <dlfcn.h>
#include <string.h>

static FILE *open_table(const char *dir, const char *name) {
    char path[4096];
    snprintf(path, sizeof(path), "%s/abi/%s", dir, name);
    return fopen(path, "r");
}

// Whether a library, "libggml-base" or "libggml", exports the function. NULL: any library.
static bool is_exported(const char *library, const char *name) {
    Dl_info info;
    void *address = dlsym(RTLD_DEFAULT, name);
    if (address == NULL || dladdr(address, &info) == 0) {
        return false;
    }
    if (library == NULL) {
        return true;
    }
    const char *slash = strrchr(info.dli_fname, '/'), *file = slash != NULL ? slash + 1 : info.dli_fname;
    const size_t n = strlen(library);
    return strncmp(file, library, n) == 0 && strncmp(file + n, ".so", 3) == 0;
}

// Splits a line at tabs into fields.
static int split(char *line, char **fields, int n) {
    int k = 0;
    for (char *p = line; p != NULL && k < n;) {
        fields[k++] = p;
        p = strchr(p, '\t');
        if (p != NULL) {
            *p++ = 0;
        }
    }
    line[strcspn(line, "\n")] = 0;
    if (k > 0) {
        fields[k - 1][strcspn(fields[k - 1], "\n")] = 0;
    }
    return k;
}

int check_symbols(const char *data_dir) {
    FILE *functions = data_dir == NULL ? NULL : open_table(data_dir, "functions.tsv");
    FILE *imports = data_dir == NULL ? NULL : open_table(data_dir, "imports.tsv");
    if (functions == NULL || imports == NULL) {
        printf("symbols: SKIPPED: abi/functions.tsv or abi/imports.tsv does not exist (set BERTH_DATA to their folder)\n");
        if (functions != NULL) {
            fclose(functions);
        }
        if (imports != NULL) {
            fclose(imports);
        }
        return -1;
    }
    static const char *const others[] = {"libggml.so", "libggml-cpu.so"}; // not linked, because nothing here calls them
    for (int i = 0; i < 2; i++) {
        if (dlopen(others[i], RTLD_NOW | RTLD_GLOBAL) == NULL) {
            printf("symbols: %s\n", dlerror());
        }
    }
    char line[4096], *fields[4];
    int n_missing = 0, n_declared = 0, n_imports = 0;
    while (fgets(line, sizeof(line), functions) != NULL) {
        if (split(line, fields, 2) != 2 || strcmp(fields[0], "header") == 0 || strcmp(fields[0], "ggml-cuda.h") == 0) {
            continue;
        }
        n_declared++;
        if (!is_exported(strcmp(fields[0], "ggml.h") == 0 ? "libggml-base" : NULL, fields[1])) {
            printf("symbols: %s, declared in %s, is not exported\n", fields[1], fields[0]);
            n_missing++;
        }
    }
    while (fgets(line, sizeof(line), imports) != NULL) {
        if (split(line, fields, 3) == 3 && strcmp(fields[0], "importer") != 0) {
            n_imports++;
            if (!is_exported(fields[1], fields[2])) {
                printf("symbols: %s imports %s, which %s does not export\n", fields[0], fields[2], fields[1]);
                n_missing++;
            }
        }
    }
    printf(
        "symbols: %d functions of the headers and %d imports of clients checked, %d missing\n", n_declared, n_imports, n_missing);
    fclose(functions);
    fclose(imports);
    return n_missing;
}
