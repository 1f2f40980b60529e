// SPDX-License-Identifier: MIT
// search.c: one step of src/proof/search.c in any state of the search, and that it leaves such a state. proof.c shows that the first
// step finds such a state. So any number of steps is covered.

#include "tools/prove/eva/eva.h"

#define EVA_BLOCKS 4
#define EVA_CHANGES 8

#define realloc eva_realloc
static void *eva_realloc(void *p, size_t size);

#include "src/base/alloc.c"
#include "src/proof/search.c"

#undef realloc

// Functions that one step does not call.
static void eva_steps_begin(void) {
}

#include "tools/prove/eva/block.h"
#include "tools/prove/eva/reader_model.h"

int proof_by_key(const void *a, const void *b) {
    return 0;
}

const struct proof_item *proof_item_take(struct proof *p, uint64_t align) {
    return NULL;
}

static bool eva_can_grow;

// Larger memory with the same bytes. It can fail.
static void *eva_realloc(void *p, size_t size) {
    struct change *old = p, *new = NULL;
    if (!eva_can_grow) {
        return NULL;
    }
    if (size == 8 * sizeof *new) {
        //@ check eva_size: p == \null;
        return malloc(8 * sizeof *new);
    }
    //@ check eva_size: size == 13 * sizeof(struct change);
    new = malloc(13 * sizeof *new);
    if (new == NULL) {
        return NULL;
    }
    memcpy(new, old, EVA_CHANGES * sizeof *new);
    free(old);
    return new;
}

static struct proof eva_proof;
static struct block eva_blocks[EVA_BLOCKS + 1];

// Any block of a search with n blocks.
static void eva_block(struct block *b, int n) {
    b->size = Frama_C_long_interval(0, EVA_UNITS + 1);
    b->low = Frama_C_long_interval(0, EVA_LOW);
    b->sky = Frama_C_long_interval(0, EVA_SKY);
    b->excluded = EVA_ANY_U64();
    b->begin = Frama_C_interval(0, 2 * n);
    b->end = Frama_C_interval(0, 2 * n);
    b->n_saved = Frama_C_interval(0, n);
    b->is_placed = EVA_ANY_BOOL();
    b->prev = &eva_blocks[Frama_C_interval(0, n)];
    b->next = &eva_blocks[Frama_C_interval(0, n)];
}

// Any search with n blocks. n_changes of the n_cap changes have been written.
static void eva_search(struct search *s, int n, struct change *changes, size_t n_cap, size_t n_changes) {
    *s = (struct search){.p = &eva_proof};
    eva_proof.is_line_end = EVA_ANY_BOOL();
    eva_proof.is_refused = EVA_ANY_BOOL();
    eva_proof.n_steps = EVA_ANY_U64();
    s->cap = Frama_C_long_interval(0, EVA_UNITS);
    s->n = n;
    s->n_sec = Frama_C_interval(1, 2 * n);
    s->b = eva_blocks;
    s->n_open = Frama_C_interval(0, n);
    s->is_contradiction = EVA_ANY_BOOL();
    //@ loop unroll EVA_BLOCKS + 1;
    for (int i = 0; i <= n; i++) {
        eva_block(&eva_blocks[i], n);
    }
    s->changes_cap = n_cap;
    s->changes = changes;
    s->n_changes = n_changes;
    //@ loop unroll EVA_CHANGES;
    for (size_t i = 0; i < n_changes; i++) {
        s->changes[i].at = &eva_blocks[Frama_C_interval(0, n)];
        eva_block(&s->changes[i].old, n);
    }
}

// block_save with memory for n_cap changes, all of which have been written, so that the memory grows.
static void eva_save(struct change *changes, size_t n_cap) {
    struct search s;
    eva_search(&s, EVA_BLOCKS, changes, n_cap, n_cap);
    block_save(&s, &eva_blocks[Frama_C_interval(0, EVA_BLOCKS)]);
    if (!s.mem.has_failed) {
        //@ check eva_state: s.n_changes == n_cap + 1 && s.n_changes <= s.changes_cap && \initialized(&s.changes[0 .. n_cap].at);
        //@ check eva_state: \initialized(&s.changes[0 .. n_cap].old.low) && \initialized(&s.changes[0 .. n_cap].old.next);
        berth_free(s.changes);
    }
}

int main(void) {
    struct search s;
    struct change changes[EVA_CHANGES];
    // One step, while no memory grows.
    eva_search(&s, EVA_BLOCKS, changes, EVA_CHANGES, Frama_C_interval_split(0, EVA_CHANGES));
    //@ widen_hints global:"all", EVA_CHANGES;
    (void) step_take(&s);
    //@ check eva_state: 0 <= s.n_open <= s.n && s.n_changes <= s.changes_cap;
    //@ loop unroll EVA_BLOCKS + 1;
    for (int i = 0; i <= s.n; i++) {
        //@ check eva_state: block_is_valid(&s.b[i], &eva_blocks[0], s.n);
    }
    eva_can_grow = true;
    eva_save(NULL, 0);
    struct change *full = malloc(EVA_CHANGES * sizeof *full);
    if (full != NULL) {
        eva_save(full, EVA_CHANGES);
    }
    return 0;
}
