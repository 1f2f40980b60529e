// SPDX-License-Identifier: MIT
// symbols.c: are the functions there? The tables of the ABI say what ggml.h declares and what each client imports.
#include "report.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#define MAX_FUNCTIONS 1024

struct functions {
    char *names[MAX_FUNCTIONS];
    int n;
};

static bool functions_have(const struct functions *f, const char *name) {
    for (int i = 0; i < f->n; i++) {
        if (strcmp(f->names[i], name) == 0) {
            return true;
        }
    }
    return false;
}

static FILE *open_table(const char *dir, const char *name) {
    char path[4096];
    snprintf(path, sizeof(path), "%s/abi/%s", dir, name);
    return fopen(path, "r");
}

static bool exported(const char *name) {
    Dl_info info;
    void *address = dlsym(RTLD_DEFAULT, name);
    return address != NULL && dladdr(address, &info) != 0 && strstr(info.dli_fname, "libggml-base") != NULL;
}

// Fields of a line, cut at tabs.
static int split(char *line, char **fields, int n) {
    int k = 0;
    for (char *p = line; p != NULL && k < n;) {
        fields[k++] = p;
        p           = strchr(p, '\t');
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
    FILE *imports   = data_dir == NULL ? NULL : open_table(data_dir, "imports.tsv");
    if (functions == NULL || imports == NULL) {
        printf("symbols: SKIPPED: no abi/functions.tsv and abi/imports.tsv; name their folder in BERTH_DATA\n");
        if (functions != NULL) {
            fclose(functions);
        }
        if (imports != NULL) {
            fclose(imports);
        }
        return -1;
    }
    char line[4096], *fields[4];
    struct functions declared = {0};
    int n_missing = 0, n_imports = 0;
    while (fgets(line, sizeof(line), functions) != NULL) {
        if (split(line, fields, 2) == 2 && strcmp(fields[0], "ggml.h") == 0 && declared.n < MAX_FUNCTIONS) {
            declared.names[declared.n++] = strdup(fields[1]);
            if (!exported(fields[1])) {
                printf("symbols: libggml-base lacks %s\n", fields[1]);
                n_missing++;
            }
        }
    }
    while (fgets(line, sizeof(line), imports) != NULL) {
        if (split(line, fields, 3) == 3 && functions_have(&declared, fields[2])) {
            n_imports++;
            if (!exported(fields[2])) {
                printf("symbols: %s imports %s, which libggml-base lacks\n", fields[0], fields[2]);
            }
        }
    }
    printf("symbols: %d functions of ggml.h and %d imports of clients looked up, %d missing\n", declared.n, n_imports, n_missing);
    for (int i = 0; i < declared.n; i++) {
        free(declared.names[i]);
    }
    fclose(functions);
    fclose(imports);
    return n_missing;
}
