// SPDX-License-Identifier: MIT
// proof.h: checks proofs that no plan has a lower peak. docs/dev/proofs.md specifies the format and proves each rule. This folder
// shares no code with the planner, so an error in the planner cannot hide here.
#pragma once

#include "base/base.h"

// Stores up to `size` bytes of the text in `to`. Returns their number; 0: the text has ended.
typedef size_t (*proof_read_t)(char *to, size_t size, void *user);

// ---- reader.c: the text, as words and numbers ----

struct proof_reader {
    proof_read_t read;
    void *user;
    size_t at, n;    // text[at .. n) is unread
    uint32_t sum[2]; // Adler-32 of the bytes of this pool
    int64_t line;    // number of the current line
    char why[192];   // why the proof was refused
    char text[1 << 16];
};

void proof_reader_init(struct proof_reader *r, proof_read_t read, void *user);
// Stores the reason and returns false, also if a reason was stored before.
bool proof_refuse(struct proof_reader *r, const char *format, ...) BERTH_PRINTF(2, 3);
// Returns the next byte without taking it; -1: the text has ended.
int proof_peek(struct proof_reader *r);
// Takes a word, and the space or line break after it. False: the next word is another.
bool proof_word(struct proof_reader *r, const char *word) BERTH_MUST_USE;
// Takes a number from 0 to most, and the space or line break after it. *is_last: it was a line break; is_last may be NULL.
bool proof_number(struct proof_reader *r, uint64_t most, uint64_t *x, bool *is_last) BERTH_MUST_USE;
// Takes a number that may be negative.
bool proof_signed(struct proof_reader *r, int64_t *x) BERTH_MUST_USE;
// Takes one byte.
bool proof_byte(struct proof_reader *r, char c) BERTH_MUST_USE;
// ---- check.c ----

// A pool that a proof is about. Its items are numbered in their order.
struct proof_pool {
    const struct berth_plan_item *items; // of all pools
    int32_t n;                           // number of items of this pool
    int32_t *ids;                        // [n] number among all items
    int32_t *group;                      // [n] first item of the same alias group; the item itself if there is none
    uint64_t *align;                     // [n] of `group`: the least common multiple of the alignments of the group
    bool *is_used;                       // [n] of `group`: a statement has named an item of this group
    struct berth_arrays mem;
};

static inline const struct berth_plan_item *proof_item(const struct proof_pool *p, uint64_t k) {
    return &p->items[p->ids[k]];
}

struct proof_claim {
    int32_t pool;
    uint64_t bound;  // bytes; no plan of this pool has a lower peak
    int64_t n_steps; // of the search; 0: none was needed
};

enum proof_answer { PROOF_VALID, PROOF_REFUSED, PROOF_ENDED, PROOF_OUT_OF_MEMORY };

// Checks the next pool of a proof. PROOF_ENDED: there is none. PROOF_REFUSED: r->why is the reason.
enum proof_answer proof_check(
    struct proof_reader *r, const struct berth_plan_item *items, int64_t n, struct proof_claim *claim) BERTH_MUST_USE;

// ---- search.c ----

// Takes the statement `search` and checks that it proves the bound. *is_out_of_memory: memory ran out.
bool proof_search(struct proof_reader *r, struct proof_pool *p, struct proof_claim *claim, bool *is_out_of_memory) BERTH_MUST_USE;
