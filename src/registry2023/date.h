// SPDX-License-Identifier: MIT
// date.h: the backend registry and the CPU backend of the 2023 API. This file is compiled once per date (date_*.c).
// A date is the month of the ggml API for which a program was written (BERTH_2023=YYYYMM). AT(name) adds the date to a function's
// name. This folder is a separate library, because src/compat2023 must not depend on the current registry.
// Entries of the registry are never removed.

#define BERTH_2023_LAYOUT
#include "compat2023/compat2023.h"

#define AT(name) BERTH_2023_AT(name)

gen_backend_t AT(cpu_init)(void) {
    ggml_backend_t today = ggml_backend_init_by_type(GGML_BACKEND_DEVICE_TYPE_CPU, NULL);
    return today != NULL ? AT(wrap)((struct berth_today_backend *) (void *) today) : NULL;
}

#if BERTH_2023 >= 202312
#    include "base/lock.h"

#    include <string.h>
#    include <strings.h>

struct entry {
    char *name;
    ggml_backend_init_fn init;
    gen_source_t buft;
    void *user_data;
};

static struct berth_lock lock = BERTH_LOCK_INIT;
static struct entry *entries; // entry i is entries[i - 1]; entry 0 is the CPU
static size_t n_entries, entries_cap;

static gen_backend_t init_cpu(const char *params, void *user_data) {
    (void) params;
    (void) user_data;
    return AT(cpu_init)();
}

static bool entry_get(size_t i, struct entry *out) {
    if (i == 0) {
        *out = (struct entry){.name = (char *) (uintptr_t) "CPU", .init = init_cpu, .buft = AT(cpu_buffer_type)()};
        return true;
    }
    berth_lock_take(&lock);
    const bool is_there = i <= n_entries;
    if (is_there) {
        *out = entries[i - 1];
    }
    berth_lock_drop(&lock);
    if (!is_there) {
        berth_fail(GGML_STATUS_FAILED, "ggml_backend_reg: there is no backend %zu, %zu are registered", i, n_entries + 1);
    }
    return is_there;
}

size_t AT(reg_get_count)(void) {
    berth_lock_take(&lock);
    const size_t n = n_entries + 1;
    berth_lock_drop(&lock);
    return n;
}

// Returns the entry whose name equals the first len characters of `name`, without regard to case; SIZE_MAX: none.
static size_t entry_find(const char *name, size_t len) {
    struct entry e;
    for (size_t i = 0, n = AT(reg_get_count)(); i < n; i++) {
        if (entry_get(i, &e) && strncasecmp(e.name, name, len) == 0 && e.name[len] == '\0') {
            return i;
        }
    }
    return SIZE_MAX;
}

size_t AT(reg_find_by_name)(const char *name) {
    return name != NULL ? entry_find(name, strlen(name)) : SIZE_MAX;
}

const char *AT(reg_get_name)(size_t i) {
    struct entry e;
    return entry_get(i, &e) ? e.name : NULL;
}

gen_backend_t AT(reg_init_backend)(size_t i, const char *params) {
    struct entry e;
    return entry_get(i, &e) ? e.init(params, e.user_data) : NULL;
}

gen_source_t AT(reg_get_default_buffer_type)(size_t i) {
    struct entry e;
    return entry_get(i, &e) ? e.buft : NULL;
}

gen_buffer_t AT(reg_alloc_buffer)(size_t i, size_t size) {
    struct entry e;
    return entry_get(i, &e) ? AT(buft_alloc_buffer)(e.buft, size) : NULL;
}

gen_backend_t AT(reg_init_backend_from_str)(const char *text) {
    if (text == NULL) {
        berth_fail(GGML_STATUS_FAILED, "ggml_backend_reg_init_backend_from_str: the text is NULL");
        return NULL;
    }
    const size_t len = strcspn(text, ":");
    const size_t i = entry_find(text, len);
    if (i == SIZE_MAX) {
        berth_fail(
            GGML_STATUS_FAILED, "ggml_backend_reg_init_backend_from_str: no backend is registered as %.*s", (int) len, text);
        return NULL;
    }
    return AT(reg_init_backend)(i, text[len] == ':' ? text + len + 1 : "");
}

void AT(register)(const char *name, ggml_backend_init_fn init_fn, gen_source_t default_buffer_type, void *user_data) {
    if (name == NULL || init_fn == NULL) {
        berth_fail(GGML_STATUS_FAILED, "ggml_backend_register: the name or the function is NULL");
        return;
    }
    if (AT(reg_find_by_name)(name) != SIZE_MAX) {
        berth_fail(GGML_STATUS_FAILED, "ggml_backend_register: %s is registered already", name);
        return;
    }
    const size_t size = strlen(name) + 1;
    char *copy = berth_malloc(size);
    berth_lock_take(&lock);
    const bool is_added = copy != NULL && berth_grow((void **) &entries, &entries_cap, n_entries + 1, sizeof entries[0]);
    if (is_added) {
        memcpy(copy, name, size);
        entries[n_entries++] = (struct entry){.name = copy, .init = init_fn, .buft = default_buffer_type, .user_data = user_data};
    }
    berth_lock_drop(&lock);
    if (!is_added) {
        berth_free(copy);
        berth_fail(GGML_STATUS_ALLOC_FAILED, "ggml_backend_register: out of memory for %s", name);
    }
}
#endif
