// SPDX-License-Identifier: MIT
// alloc.c: all memory of the libraries comes from these functions. A test can make the N-th allocation fail, and can count blocks
// that were not freed. Outside of tests, a call costs one predictable branch more than a call of libc.

#include "base/aligned.h"
#include "base/base.h"
#include "base/min.h"

#include <stdatomic.h>
#include <stdlib.h>

static atomic_bool watched;         // a test counts allocations or makes one fail
static atomic_int_fast64_t fail_in; // n > 0: the n-th allocation from now on fails; < 0: all fail; 0: none fails
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

static void *block_count(void *p) {
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
    return size == 0 || must_fail() ? NULL : block_count(malloc(size));
}

void *berth_calloc(size_t n, size_t size) {
    size_t total;
    return !berth_mul_ok(n, size, &total) || total == 0 || must_fail() ? NULL : block_count(calloc(n, size));
}

void *berth_realloc(void *p, size_t size) {
    if (size == 0 || must_fail()) {
        return NULL;
    }
    const bool is_new = p == NULL; // p must not be used after realloc
    void *q = realloc(p, size);
    if (is_watched() && q != NULL) {
        atomic_fetch_add(&n_made, 1);
        atomic_fetch_add(&n_alive, is_new);
    }
    return q;
}

void berth_free(void *p) {
    count_free(p);
    free(p);
}

void *berth_aligned_alloc(size_t align, size_t size) {
    return size == 0 || must_fail() ? NULL : block_count(aligned_new(max_size(align, sizeof(void *)), size));
}

void berth_aligned_free(void *p) {
    count_free(p);
    aligned_delete(p);
}

bool berth_grow(void **p, size_t *n_cap, size_t n_want, size_t elem_size) {
    if (n_want <= *n_cap) {
        return true;
    }
    // The first capacity is n_want, but at least 8, because a caller that knows the final number passes it in the first call.
    size_t n = *n_cap > 0 ? *n_cap : max_size(n_want, 8);
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

// ---- scratch ----

// Memory for the duration of one call. The first bytes are in the struct, on the caller's stack.
// berth_scratch_back frees all memory that was taken after a mark.

struct berth_scratch_block {
    _Alignas(16) struct berth_scratch_block *prev;
};

void *berth_scratch_take(struct berth_scratch *s, size_t size) {
    size_t padded;
    if (!berth_pad_ok(size, 16, &padded)) {
        return NULL;
    }
    if (padded <= sizeof s->stack_bytes - s->at.used) {
        void *p = s->stack_bytes + s->at.used;
        s->at.used += padded;
        return p;
    }
    struct berth_scratch_block *block = berth_add_ok(padded, sizeof *block, &padded) ? berth_malloc(padded) : NULL;
    if (block == NULL) {
        return NULL;
    }
    block->prev = s->at.last;
    s->at.last = block;
    return block + 1;
}

static void blocks_free(struct berth_scratch_block **last, const struct berth_scratch_block *until) {
    while (*last != until) {
        struct berth_scratch_block *block = *last;
        *last = block->prev;
        berth_free(block);
    }
}

void berth_scratch_back(struct berth_scratch *s, struct berth_scratch_mark mark) {
    blocks_free(&s->at.last, mark.last);
    s->at.used = mark.used;
}

void *berth_arrays_new(struct berth_arrays *a, size_t n, size_t size) {
    size_t total;
    struct berth_scratch_block *block = NULL;
    if (berth_mul_ok(n, size, &total) && berth_add_ok(total, sizeof *block, &total)) {
        block = berth_calloc(1, total);
    }
    if (block == NULL) {
        a->has_failed = true;
        return NULL;
    }
    block->prev = a->last;
    a->last = block;
    return block + 1;
}

void berth_arrays_free(struct berth_arrays *a) {
    blocks_free(&a->last, NULL);
}
