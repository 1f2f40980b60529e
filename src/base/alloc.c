// SPDX-License-Identifier: MIT
// alloc.c: the one door through which the libraries take memory, so that a test can make the N-th allocation fail and count
// what is alive. Not watched, a call costs one predictable branch over libc.

#include "base/base.h"

#include <stdatomic.h>
#include <stdlib.h>

// Cross the libraries, though no public header has them.
GGML_API void *ggml_aligned_malloc(size_t size);
GGML_API void ggml_aligned_free(void *ptr, size_t size);

static atomic_bool watched;         // any of the below is in use
static atomic_int_fast64_t fail_in; // > 0: this many allocations until one fails; < 0: all fail
static atomic_int_fast64_t n_made;
static atomic_int_fast64_t n_alive;

void berth_alloc_fail_at(int64_t n) {
    atomic_store(&fail_in, n);
    if (n != 0) {
        atomic_store(&watched, true);
    }
}

void berth_alloc_watch(bool on) {
    atomic_store(&n_made, 0);
    atomic_store(&n_alive, 0);
    atomic_store(&watched, on);
}

int64_t berth_alloc_made(void) {
    return atomic_load(&n_made);
}

int64_t berth_alloc_alive(void) {
    return atomic_load(&n_alive);
}

static bool is_watched(void) {
    return BERTH_UNLIKELY(atomic_load_explicit(&watched, memory_order_relaxed));
}

static bool must_fail(void) {
    if (!is_watched()) {
        return false;
    }
    const int64_t n = atomic_load(&fail_in);
    return n < 0 || (n > 0 && atomic_fetch_sub(&fail_in, 1) == 1);
}

static void *counted(void *p) {
    if (is_watched() && p != NULL) {
        atomic_fetch_add(&n_made, 1);
        atomic_fetch_add(&n_alive, 1);
    }
    return p;
}

static void count_free(const void *p) {
    if (is_watched() && p != NULL) {
        atomic_fetch_sub(&n_alive, 1);
    }
}

void *berth_malloc(size_t size) {
    return size == 0 || must_fail() ? NULL : counted(malloc(size));
}

void *berth_calloc(size_t n, size_t size) {
    size_t total;
    return !berth_mul_ok(n, size, &total) || total == 0 || must_fail() ? NULL : counted(calloc(n, size));
}

void *berth_realloc(void *p, size_t size) {
    if (size == 0 || must_fail()) {
        return NULL;
    }
    void *q = realloc(p, size);
    if (is_watched() && q != NULL) {
        atomic_fetch_add(&n_made, 1);
        atomic_fetch_add(&n_alive, p == NULL);
    }
    return q;
}

void berth_free(void *p) {
    count_free(p);
    free(p);
}

void *berth_aligned_alloc(size_t align, size_t size) {
    void *p = NULL;
    if (size == 0 || must_fail() || posix_memalign(&p, align < sizeof(void *) ? sizeof(void *) : align, size) != 0) {
        return NULL;
    }
    return counted(p);
}

void berth_aligned_free(void *p) {
    count_free(p);
    free(p);
}

bool berth_grow(void **p, size_t *n_cap, size_t n_want, size_t elem_size) {
    if (n_want <= *n_cap) {
        return true;
    }
    // The first time as many as are asked for: who knows the number asks for all at once.
    size_t n = *n_cap > 0 ? *n_cap : n_want < 8 ? 8 : n_want;
    while (n < n_want) {
        if (!berth_add_ok(n, n / 2 + 1, &n)) {
            return false;
        }
    }
    size_t size;
    if (!berth_mul_ok(n, elem_size, &size)) {
        return false;
    }
    void *q = berth_realloc(*p, size);
    if (q == NULL) {
        return false;
    }
    *p = q;
    *n_cap = n;
    return true;
}

// For backends that take page-friendly memory from the base library.
void *ggml_aligned_malloc(size_t size) {
    if (size == 0) {
        return NULL;
    }
    void *p = berth_aligned_alloc(64, size);
    if (p == NULL) {
        berth_fail(GGML_STATUS_ALLOC_FAILED, "out of memory: %zu bytes aligned to 64 are not to be had", size);
    }
    return p;
}

void ggml_aligned_free(void *ptr, size_t size) {
    (void) size;
    berth_aligned_free(ptr);
}
