// SPDX-License-Identifier: MIT
// set.h: builds a berth_plan_set item by item, for the readers of files.
#pragma once

#include "base/base.h"

// One item as a reader found it. Fields that the file does not give keep the values of BERTH_SET_ITEM.
struct berth_set_item {
    struct berth_plan_item item; // its fields alias, fixed and is_fixed are not used; see below
    uint64_t offset, fixed;      // BERTH_PLAN_ANY: none
    int32_t alias;               // number of the alias group in the file, from 0; -1: none
    uint64_t cost;               // BERTH_PLAN_ANY: none
    size_t id, reads;            // texts, as offsets in berth_set_builder.text; 0: ""
};

#define BERTH_SET_ITEM \
    (struct berth_set_item) { \
        .item = {.align = 1}, .offset = BERTH_PLAN_ANY, .fixed = BERTH_PLAN_ANY, .alias = -1, .cost = BERTH_PLAN_ANY \
    }
// In the names of this file, `set` means a plan set (struct berth_plan_set), not the verb.
#define BERTH_SET_SIZE_MAX ((uint64_t) 1 << 62) // limit on sizes, offsets and alignments
#define BERTH_SET_STEP_MAX ((int64_t) 1 << 62)  // limit on the absolute value of every number in a file

// The texts of a tensor, as offsets in berth_set_builder.text.
struct berth_set_words {
    size_t name, op, type, uses;
};

struct berth_set_builder {
    struct berth_plan_set *set;
    size_t n_items_cap, n_offsets_cap, n_starts_cap, n_text_cap, n_tensors_cap, n_words_cap, n_pools_cap, n_pool_names_cap;
    size_t *starts;                // [n_items] offset of the id in text
    struct berth_set_words *words; // [n_tensors]
    size_t *pool_names;            // [n_pools] offset of the name in text
    bool has_costs;                // the set gets costs and reads
    size_t *read_texts;            // [n_items] offset of the reads in text, if has_costs
    size_t n_costs_cap, n_reads_cap;
    char *text; // begins with "", to which the offset 0 of a missing text refers
    size_t text_size;
    int64_t n_offsets; // number of items with an offset
};

// These functions fail only if memory is exhausted, and then set no error text.
bool berth_set_begin(struct berth_set_builder *b) BERTH_MUST_USE;
bool berth_set_add(struct berth_set_builder *b, const struct berth_set_item *item) BERTH_MUST_USE;
// Stores a text. *at: its offset in b->text.
bool berth_set_text(struct berth_set_builder *b, const char *text, size_t len, size_t *at) BERTH_MUST_USE;
// Adds a tensor with the texts of words. The tensor belongs to the item that is added next.
bool berth_set_add_tensor(
    struct berth_set_builder *b, const struct berth_plan_tensor *tensor, const struct berth_set_words *words) BERTH_MUST_USE;
bool berth_set_add_pool(struct berth_set_builder *b, const struct berth_plan_pool *pool, size_t name) BERTH_MUST_USE;
// Returns the complete set to the caller and empties the builder.
bool berth_set_end(struct berth_set_builder *b, struct berth_plan_set **set) BERTH_MUST_USE;
void berth_set_drop(struct berth_set_builder *b);

// Returns an array with the rank of each item: the number of earlier items with the same id; 0 for the id "". The caller frees
// the array. NULL: out of memory.
size_t *berth_set_id_ranks(const struct berth_plan_set *set) BERTH_MUST_USE;
