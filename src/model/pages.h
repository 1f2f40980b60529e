// SPDX-License-Identifier: MIT
// pages.h: the pages of a cache that several sequences share. Uses no tensors.
//
// A page holds the keys and values of n_page consecutive positions of a sequence. It is at a place: its rows of the cache begin at
// place * n_page. Sequences with the same first tokens use the same pages for them.
//
//     state    n_refs  is_known  meaning
//     free        0     false    holds nothing
//     private    >0     false    one sequence uses it
//     known      >0     true     it is full, and another sequence that begins with the same tokens may use it
//     kept        0     true     no sequence uses it; it can be dropped at any time
//
// Invariants (pages_check):
// 1. Each place has one page, and each page has one place.
// 2. If is_ordered, the places of a sequence's pages increase. Attention sums over keys in the order of their rows, so a sequence
//    gets the same bits wherever its pages are. Otherwise no page moves.
// 3. The page before a known page is known. A kept page is dropped only if no known page follows it.
//
// Only pages_new allocates.
#pragma once

#include "base/base.h"

struct pages_params {
    int64_t n_page;  // positions per page
    int64_t n_pages; // places
    int64_t n_ctx;   // largest number of positions of a sequence
    int n_seq;       // largest number of sequences
    bool no_keep;    // a page that no sequence uses is free: no page is kept
    bool is_ordered; // the places of a sequence's pages increase, so pages may move
};

// A page moves to another place: its rows must be copied.
struct page_move {
    int64_t from, to; // places
};

struct pages_prefix {
    int64_t n_cached; // leading tokens that known or kept pages hold: a multiple of n_page
    int64_t n_shared; // leading tokens of n_cached in pages that sequences use
    int sharer;       // a sequence that uses the n_shared tokens; -1: n_shared is 0
};

struct pages;

size_t pages_size(const struct pages_params *params);       // bytes that pages_new allocates
struct pages *pages_new(const struct pages_params *params); // NULL: out of memory
void pages_free(struct pages *pages);

// Finds the pages that hold the first of n tokens. At least one token remains.
struct pages_prefix pages_find(const struct pages *pages, const int32_t *tokens, int64_t n);
// Starts a sequence with the first n_cached tokens of pages_find. The sequence must have no pages.
void pages_start(struct pages *pages, int seq, const int32_t *tokens, int64_t n_cached);
// Returns the number of positions for which the sequence has pages.
int64_t pages_n_positions(const struct pages *pages, int seq);
// Adds a page to the sequence. False: no page is free. The caller must copy the *n_moves moved pages in the order of pages_moves
// before it uses the cache.
bool pages_add(struct pages *pages, int seq, int64_t *n_moves);
const struct page_move *pages_moves(const struct pages *pages);
// The first n positions of the sequence are computed, for these tokens. Complete pages become known.
void pages_learn(struct pages *pages, int seq, const int32_t *tokens, int64_t n);
// Ends the sequence. Its known pages are kept, unless no_keep.
void pages_end(struct pages *pages, int seq);

// Row of the cache that holds a position of a sequence.
int64_t pages_row(const struct pages *pages, int seq, int64_t pos);
int64_t pages_n_used(const struct pages *pages); // pages that sequences use
int64_t pages_top(const struct pages *pages);    // 1 + the largest place that a sequence uses; 0: none
// Returns whether the invariants hold.
bool pages_check(const struct pages *pages);
