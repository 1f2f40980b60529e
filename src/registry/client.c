// SPDX-License-Identifier: MIT
// client.c: reports functions of a newer ggml that loaded libraries (clients) import but no library exports.
// Without the report, the first call of a missing function ends the process (lazy binding).
//
// The first pass over the libraries copies the names that clients import. The second pass marks the names that a library exports.
// No pointer into a library is kept between the passes, because another thread may unload the library.

#include "base/lock.h"
#include "registry/elf.h"
#include "registry/registry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define IMPORTS_MAX 65536 // names that are looked up, over all clients

bool berth_client_imports(const char *symbol) {
    static const char *const prefixes[] = {"ggml_", "gguf_", "quantize_", "dequantize_"};
    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++) {
        if (strncmp(symbol, prefixes[i], strlen(prefixes[i])) == 0) {
            return true;
        }
    }
    return false;
}

bool berth_client_release_of(const char *library, char *release, size_t size) {
    static const char prefix[] = "libggml.", suffix[] = ".so";
    const size_t len = strlen(library), around = sizeof prefix - 1 + sizeof suffix - 1;
    if (len <= around || len - around >= size || strncmp(library, prefix, sizeof prefix - 1) != 0 ||
        strcmp(library + len - (sizeof suffix - 1), suffix) != 0) {
        return false;
    }
    memcpy(release, library + sizeof prefix - 1, len - around);
    release[len - around] = '\0';
    return true;
}

// ---- imports of clients ----

struct import {
    char *name;
    uint32_t i_client; // index in client_check.clients
    bool is_found;     // a library exports it
};

struct client_check {
    struct import *imports;
    size_t n, n_cap;
    char (*clients)[64]; // file names, truncated to 63 bytes
    size_t n_clients, n_clients_cap;
    bool ok; // false: out of memory, or more than IMPORTS_MAX names
};

static const char *file_name(const char *path) {
    const char *slash = strrchr(path, '/');
    if (slash != NULL) {
        return slash + 1;
    }
    return path[0] != '\0' ? path : "the program";
}

static void add_import(void *user, const char *name, bool is_defined, bool is_weak) {
    struct client_check *check = user;
    if (is_defined || is_weak || !berth_client_imports(name) || !check->ok) {
        return;
    }
    const size_t size = strlen(name) + 1;
    char *copy = check->n < IMPORTS_MAX ? berth_malloc(size) : NULL;
    if (copy == NULL || !BERTH_GROW(&check->imports, &check->n_cap, check->n + 1)) {
        berth_free(copy);
        check->ok = false;
        return;
    }
    memcpy(copy, name, size);
    check->imports[check->n++] = (struct import){copy, (uint32_t) check->n_clients - 1, false};
}

static void report_release(const char *library) {
    char release[32];
    if (berth_client_release_of(library, release, sizeof release)) {
        berth_client_release(release);
    }
}

// Returns true if the library depends on a library of ggml. Also calls report_release with the name of each needed library.
static bool is_client(const struct berth_elf *elf) {
    const char *name;
    bool found = false;
    for (size_t i = 0; (name = berth_elf_name(elf, DT_NEEDED, i)) != NULL; i++) {
        found = found || strncmp(name, "libggml", strlen("libggml")) == 0;
        report_release(name);
    }
    return found;
}

static int library_collect(struct dl_phdr_info *info, size_t size, void *user) {
    struct client_check *check = user;
    struct berth_elf elf;
    (void) size;
    report_release(file_name(
        info->dlpi_name)); // also the library's own name, because a program may load libggml before the client that needs it
    if (berth_elf_loaded(&elf, info) && is_client(&elf) && check->ok) {
        check->ok = BERTH_GROW(&check->clients, &check->n_clients_cap, check->n_clients + 1);
        if (check->ok) {
            snprintf(check->clients[check->n_clients++], sizeof check->clients[0], "%s", file_name(info->dlpi_name));
            check->ok = berth_elf_symbols(&elf, add_import, check) && check->ok;
        }
    }
    berth_elf_fini(&elf);
    return 0;
}

// ---- exports of libraries ----

static int by_name(const void *a, const void *b) {
    return strcmp(((const struct import *) a)->name, ((const struct import *) b)->name);
}

static void import_mark_found(void *user, const char *name, bool is_defined, bool is_weak) {
    struct client_check *check = user;
    (void) is_weak;
    if (!is_defined || !berth_client_imports(name)) {
        return;
    }
    const struct import key = {.name = (char *) name};
    struct import *found = bsearch(&key, check->imports, check->n, sizeof key, by_name);
    if (found == NULL) {
        return;
    }
    while (found > check->imports && by_name(found - 1, &key) == 0) {
        found--;
    }
    for (; found < check->imports + check->n && by_name(found, &key) == 0; found++) {
        found->is_found = true;
    }
}

static int library_find_exports(struct dl_phdr_info *info, size_t size, void *user) {
    struct client_check *check = user;
    struct berth_elf elf;
    (void) size;
    if (berth_elf_loaded(&elf, info)) {
        const char *soname = berth_elf_name(&elf, DT_SONAME, 0);
        // Only the symbols of ggml's libraries are read, because other libraries may have tens of thousands.
        if (strncmp(file_name(info->dlpi_name), "libggml", 7) == 0 || (soname != NULL && strncmp(soname, "libggml", 7) == 0)) {
            check->ok = berth_elf_symbols(&elf, import_mark_found, check) && check->ok;
        }
    }
    berth_elf_fini(&elf);
    return 0;
}

// ---- report ----

static void client_report(const struct client_check *check, uint32_t i_client) {
    char names[1024];
    size_t n = 0, used = 0;
    names[0] = '\0';
    for (size_t i = 0; i < check->n; i++) {
        if (check->imports[i].is_found || check->imports[i].i_client != i_client) {
            continue;
        }
        n++;
        const int len = snprintf(names + used, sizeof names - used, "%s%s", used > 0 ? ", " : "", check->imports[i].name);
        if (len < 0 || used + (size_t) len >=
                           sizeof names - 8) { // no space: the message ends with "..."; the number of functions is still complete
            snprintf(names + used, sizeof names - used, "%s", used > 0 ? ", ..." : "...");
            used = sizeof names - 1;
        } else {
            used += (size_t) len;
        }
    }
    if (n > 0) {
        berth_log(GGML_LOG_LEVEL_ERROR,
            "berth: %s needs %zu function%s that Berth %s (ggml %s) does not have, and will end at the first call of one: %s. "
            "Use a newer Berth or an older client; `berth client FOLDER` lists the details.\n",
            check->clients[i_client], n, n == 1 ? "" : "s", berth_version(), ggml_version(), names);
    }
}

// Only the first 16 reported clients are remembered. Other clients may be reported repeatedly.
static void clients_report(const struct client_check *check) {
    static char reported[16][sizeof check->clients[0]];
    static size_t n_reported;
    for (uint32_t i = 0; i < check->n_clients; i++) {
        bool is_reported = false;
        for (size_t k = 0; k < n_reported; k++) {
            is_reported = is_reported || strcmp(reported[k], check->clients[i]) == 0;
        }
        if (!is_reported) {
            client_report(check, i);
        }
        if (!is_reported && n_reported < sizeof reported / sizeof reported[0]) {
            memcpy(reported[n_reported++], check->clients[i], sizeof reported[0]);
        }
    }
}

static int count_loads(struct dl_phdr_info *info, size_t size, void *user) {
    unsigned long long *n = user;
    (void) size;
    *n = info->dlpi_adds;
    return 1; // the counter is the same for every library
}

void berth_client_check(void) {
    static struct berth_lock lock = BERTH_LOCK_INIT;
    static unsigned long long n_loads_seen;
    unsigned long long n_loads = 0;
    struct client_check check = {.ok = true};
    berth_log_hold();
    berth_lock_take(&lock);
    dl_iterate_phdr(count_loads, &n_loads);
    if (n_loads != n_loads_seen) {
        n_loads_seen = n_loads;
        dl_iterate_phdr(library_collect, &check);
        if (check.ok && check.n > 0) {
            qsort(check.imports, check.n, sizeof check.imports[0], by_name);
            dl_iterate_phdr(library_find_exports, &check);
        }
        if (check.ok) {
            clients_report(&check);
        }
    }
    berth_lock_drop(&lock);
    berth_log_let_go();
    for (size_t i = 0; i < check.n; i++) {
        berth_free(check.imports[i].name);
    }
    berth_free(check.imports);
    berth_free(check.clients);
}

#ifdef GGML_SHARED
__attribute__((constructor)) static void on_load(void) {
    berth_client_check();
}
#endif
