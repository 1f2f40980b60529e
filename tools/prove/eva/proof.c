// SPDX-License-Identifier: MIT
// proof.c: src/proof/items.c and check.c with any items, and search.c up to its first step. Then the search is in a state from which
// search.c continues.

#include "tools/prove/eva/eva.h"

#define EVA_ITEMS 3

#define calloc eva_calloc
#define qsort eva_qsort
static void *eva_calloc(size_t n, size_t size);
static void eva_qsort(void *base, size_t n, size_t size, int (*compare)(const void *, const void *));

#include "src/base/alloc.c"
#include "src/proof/check.c"
#include "src/proof/items.c"
#include "src/proof/search.c"

#undef calloc

#include "tools/prove/eva/block.h"

// ---- memory: each size is allocated at its own place, so Eva knows the size of each block of memory exactly ----

static struct block *eva_blocks; // the blocks of the search
static int eva_n_blocks;

#define EVA_HEAD sizeof(struct berth_scratch_block)
#define EVA_SIZES(X, n) \
    X(EVA_HEAD + (n) * sizeof(struct proof_item)) \
    X(EVA_HEAD + (n) * sizeof(struct proof_key)) \
    X(EVA_HEAD + 2 * (n) * sizeof(struct proof_key))
#define EVA_CALLOC(x) \
    if (size == (x)) { \
        return calloc(1, x); \
    }
#define EVA_CALLOC_BLOCKS(n) \
    if (size == EVA_HEAD + ((n) + 1) * sizeof(struct block)) { \
        p = calloc(1, EVA_HEAD + ((n) + 1) * sizeof(struct block)); \
        eva_blocks = p == NULL ? NULL : (struct block *) (p + 1); \
        eva_n_blocks = n; \
        return p; \
    }

static void *eva_calloc(size_t one, size_t size) {
    struct berth_scratch_block *p;
    //@ check eva_size: one == 1;
    EVA_SIZES(EVA_CALLOC, (size_t) 0)
    EVA_SIZES(EVA_CALLOC, (size_t) 1)
    EVA_SIZES(EVA_CALLOC, (size_t) 2)
    EVA_SIZES(EVA_CALLOC, (size_t) 3)
    EVA_CALLOC_BLOCKS(0)
    EVA_CALLOC_BLOCKS(1)
    EVA_CALLOC_BLOCKS(2)
    EVA_CALLOC_BLOCKS(3)
    //@ check eva_size: \false;
    return NULL;
}

// The search is in a state from which search.c continues.
static void eva_steps_begin(void) {
    //@ loop unroll EVA_ITEMS + 1;
    for (int i = 0; i <= eva_n_blocks; i++) {
        //@ check eva_state: block_is_valid(eva_blocks + i, eva_blocks, eva_n_blocks);
    }
}

#include "tools/prove/eva/reader_model.h"

// Each element becomes any of the elements.
static void eva_qsort(void *base, size_t n, size_t size, int (*compare)(const void *, const void *)) {
    struct proof_key *keys = base, old[2 * EVA_ITEMS];
    //@ check eva_sort: size == sizeof(struct proof_key) && n <= 2 * EVA_ITEMS && \valid(keys + (0 .. n - 1));
    if (n == 0) {
        return;
    }
    //@ loop unroll 2 * EVA_ITEMS;
    for (size_t i = 0; i < n; i++) {
        old[i] = keys[i];
    }
    (void) compare(&keys[Frama_C_unsigned_long_interval(0, n - 1)], &keys[Frama_C_unsigned_long_interval(0, n - 1)]);
    //@ loop unroll 2 * EVA_ITEMS;
    for (size_t i = 0; i < n; i++) {
        keys[i] = old[Frama_C_unsigned_long_interval(0, n - 1)];
    }
}

static struct proof eva_proof;
static struct berth_plan_item eva_items[EVA_ITEMS];

static size_t eva_read(char *to, size_t size, void *user) {
    return 0;
}

static void eva_run(int64_t n) {
    struct proof *p = &eva_proof;
    //@ loop unroll EVA_ITEMS;
    for (int i = 0; i < EVA_ITEMS; i++) {
        EVA_ANY_ITEM(eva_items[i]);
    }
    proof_init(p, eva_items, n, eva_read, NULL);
    if (!p->mem.has_failed) {
        // The parts of the proof before this one have used any of the groups.
        p->n_parts = EVA_ANY_U64();
        p->is_line_end = EVA_ANY_BOOL();
        //@ loop unroll EVA_ITEMS;
        for (int i = 0; i < n; i++) {
            p->items[i].n_used = EVA_ANY_U64();
        }
        (void) proof_next(p);
    }
    berth_arrays_free(&p->mem);
}

int main(void) {
    eva_run(0);
    eva_run(1);
    eva_run(2);
    eva_run(3);
    return 0;
}
