// SPDX-License-Identifier: MIT
// proof.h: checks proofs that no plan has a lower peak. docs/dev/proofs.md specifies the format and proves each rule. This folder
// shares no code with the planner, so an error in the planner cannot hide here.
#pragma once

#include "base/base.h"
#include <stdlib.h>

#define PROOF_SIZE_LIMIT ((uint64_t) 1 << 62) // the largest size of an item

// Stores up to `size` bytes of the text in `to`. Returns their number; 0: the text has ended.
typedef size_t (*proof_read_t)(char *to, size_t size, void *user);

// An item of the plan. align and n_used count for the first item of each alias group only.
struct proof_item {
    const struct berth_plan_item *item;
    int32_t group;   // the first item of the same alias group; the item itself if it has none
    uint64_t align;  // the least common multiple of the alignments of the group
    uint64_t n_used; // the last part that has used the group
};

struct proof {
    struct proof_item *items; // [n_items] by rising pool
    int64_t n_items, i_pool;  // i_pool: the first item of `pool`
    uint64_t n_parts;         // number of the current part of the proof
    // What the current part shows: no plan of this pool has a peak below `bound` bytes. n_steps: the steps of a search.
    int32_t pool;
    uint64_t bound, n_steps;
    struct berth_arrays mem; // mem.has_failed: out of memory
    // The text. After a refusal there is no more text, and all numbers are 0.
    proof_read_t read;
    void *user;
    size_t at, n;     // text[at .. n) is unread
    uint32_t sum[2];  // Adler-32 of the bytes of this part
    uint64_t line;    // number of the current line
    bool is_line_end; // the last number was the last one of its line
    bool is_refused;  // `why` is the reason
    char why[192];
    char text[1 << 16];
};

// ---- items.c ----

// items: n items of a plan, which must stay valid. Afterwards p->mem must be freed.
void proof_init(struct proof *p, const struct berth_plan_item *items, int64_t n, proof_read_t read, void *user);
// Takes the number of an item of the pool. NULL: the proof is refused. align > 0: uses the group of the item, once per part; its
// alignment must be a multiple of align.
const struct proof_item *proof_item_take(struct proof *p, uint64_t align);

struct proof_key {
    int64_t key;
    int32_t order, i; // order decides if keys are equal
};
int proof_by_key(const void *a, const void *b); // for qsort

// ---- check.c ----

// Checks the next part. False: out of memory, the proof is refused, or it has ended.
bool proof_next(struct proof *p) BERTH_MUST_USE;

// ---- search.c: takes the reason `search` and checks that it proves the bound ----

void proof_search(struct proof *p);

// ---- reader.c: the text, as words and numbers. It may be larger than memory ----

// Refuses the proof. Stores the reason, unless the proof is refused already. Returns false.
bool proof_refuse(struct proof *p, const char *format, ...) BERTH_PRINTF(2, 3);
// Returns the next byte without taking it; -1: the text has ended, or the proof is refused.
int proof_peek(struct proof *p);
// Take the next byte, and this text.
int proof_byte(struct proof *p);
void proof_text(struct proof *p, const char *text);
// Takes a number from 0 to most, and the space or line break after it.
uint64_t proof_number(struct proof *p, uint64_t most);
