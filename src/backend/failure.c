// SPDX-License-Identifier: MIT
// failure.c: stores failures of void functions (set, get, copy) in a list. struct ggml_backend cannot hold them, because the
// struct is part of the ABI and cannot get a new field.
// The first failure per backend is kept until the next synchronize or compute reports it.
// Invariant: n_kept is the length of the list. While n_kept is 0, a report costs one atomic load.

#include "backend/backend.h"
#include "base/lock.h"

#include <stdatomic.h>
#include <stdio.h>

struct kept {
    struct kept *next;
    ggml_backend_t backend;
    char text[384];
};

static struct berth_lock kept_lock = BERTH_LOCK_INIT;
static struct kept *kept_list;
static atomic_size_t n_kept;
BERTH_LOCK_ACROSS_FORK(kept_lock, 102)

static struct kept **kept_find(ggml_backend_t backend) {
    struct kept **at = &kept_list;
    while (*at != NULL && (*at)->backend != backend) {
        at = &(*at)->next;
    }
    return at;
}

void berth_backend_fail(ggml_backend_t backend, const char *fmt, ...) {
    char text[sizeof((struct kept *) NULL)->text];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    berth_fail(GGML_STATUS_FAILED, "%s", text);
    if (backend == NULL) {
        return;
    }
    berth_lock_take(&kept_lock);
    struct kept **at = kept_find(backend);
    if (*at == NULL) {
        struct kept *entry = berth_malloc(sizeof *entry);
        if (entry != NULL) {
            entry->next = NULL;
            entry->backend = backend;
            snprintf(entry->text, sizeof entry->text, "%s", text);
            *at = entry;
            atomic_fetch_add(&n_kept, 1);
        }
    }
    berth_lock_drop(&kept_lock);
}

// Removes the entry of the backend from the list and returns it; NULL: none. The caller frees the entry.
static struct kept *kept_take(ggml_backend_t backend) {
    if (BERTH_LIKELY(atomic_load_explicit(&n_kept, memory_order_acquire) == 0)) {
        return NULL;
    }
    berth_lock_take(&kept_lock);
    struct kept **at = kept_find(backend);
    struct kept *entry = *at;
    if (entry != NULL) {
        *at = entry->next;
        atomic_fetch_sub(&n_kept, 1);
    }
    berth_lock_drop(&kept_lock);
    return entry;
}

enum ggml_status berth_backend_report(ggml_backend_t backend) {
    struct kept *entry = kept_take(backend);
    if (entry == NULL) {
        return GGML_STATUS_SUCCESS;
    }
    berth_fail(GGML_STATUS_FAILED, "%s", entry->text);
    berth_free(entry);
    return GGML_STATUS_FAILED;
}

void berth_backend_forget(ggml_backend_t backend) {
    berth_free(kept_take(backend));
}
