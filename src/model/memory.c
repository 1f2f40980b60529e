// SPDX-License-Identifier: MIT
// memory.c: errors, and the one place that takes memory of the module's own, as src/base/alloc.c is the libraries': a test can
// make the N-th allocation fail and count what is alive.

#include "model/model.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>

bool model_fail(struct model_error *error, const char *fmt, ...) {
    if (error != NULL && error->text[0] == '\0') {
        va_list args;
        va_start(args, fmt);
        vsnprintf(error->text, sizeof error->text, fmt, args);
        va_end(args);
    }
    return false;
}

static atomic_int_fast64_t fail_in; // > 0: this many allocations until one fails
static atomic_int_fast64_t n_made, n_alive;

void model_alloc_fail_at(int64_t n) {
    atomic_store(&fail_in, n);
    atomic_store(&n_made, 0);
}

int64_t model_alloc_n_made(void) {
    return atomic_load(&n_made);
}

int64_t model_alloc_n_alive(void) {
    return atomic_load(&n_alive);
}

static bool alloc_must_fail(void) {
    return atomic_load_explicit(&fail_in, memory_order_relaxed) > 0 && atomic_fetch_sub(&fail_in, 1) == 1;
}

static void *alloc_count(void *p, bool is_new) {
    atomic_fetch_add_explicit(&n_made, p != NULL, memory_order_relaxed);
    atomic_fetch_add_explicit(&n_alive, p != NULL && is_new, memory_order_relaxed);
    return p;
}

void *model_alloc_malloc(size_t size) {
    return alloc_must_fail() ? NULL : alloc_count(malloc(size), true);
}

void *model_alloc_calloc(size_t n, size_t size) {
    return alloc_must_fail() ? NULL : alloc_count(calloc(n, size), true);
}

void *model_alloc_realloc(void *p, size_t size) {
    return alloc_must_fail() ? NULL : alloc_count(realloc(p, size), p == NULL);
}

void model_alloc_free(void *p) {
    atomic_fetch_sub_explicit(&n_alive, p != NULL, memory_order_relaxed);
    free(p);
}

bool model_list_grow(void **list, size_t n, size_t *room, size_t size) {
    if (n < *room) {
        return true;
    }
    void *more = model_alloc_realloc(*list, (2 * *room + 16) * size);
    if (more != NULL) {
        *list = more;
        *room = 2 * *room + 16;
    }
    return more != NULL;
}
