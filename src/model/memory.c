// SPDX-License-Identifier: MIT
// memory.c: the one door through which this room takes memory of its own, as src/base/alloc.c is the libraries': a test can make
// the N-th allocation fail and count what is alive.

#include "model/model.h"

#include <stdatomic.h>
#include <stdlib.h>

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

static bool must_fail(void) {
    return atomic_load_explicit(&fail_in, memory_order_relaxed) > 0 && atomic_fetch_sub(&fail_in, 1) == 1;
}

static void *counted(void *p, bool is_new) {
    atomic_fetch_add_explicit(&n_made, p != NULL, memory_order_relaxed);
    atomic_fetch_add_explicit(&n_alive, p != NULL && is_new, memory_order_relaxed);
    return p;
}

void *model_alloc_malloc(size_t size) {
    return must_fail() ? NULL : counted(malloc(size), true);
}

void *model_alloc_calloc(size_t n, size_t size) {
    return must_fail() ? NULL : counted(calloc(n, size), true);
}

void *model_alloc_realloc(void *p, size_t size) {
    return must_fail() ? NULL : counted(realloc(p, size), p == NULL);
}

void model_alloc_free(void *p) {
    atomic_fetch_sub_explicit(&n_alive, p != NULL, memory_order_relaxed);
    free(p);
}
