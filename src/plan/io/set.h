// SPDX-License-Identifier: MIT
// set.h: building a berth_plan_set item by item, for the readers. All texts of ids lie in one block behind the scenes.
#pragma once

#include "base/base.h"

// What a reader learns of one item; fields that the text does not give keep the values of BERTH_SET_ITEM.
struct berth_set_item {
    struct berth_plan_item item; // without what follows
    uint64_t offset, fixed;      // BERTH_PLAN_ANY: none
    int32_t alias;               // groups of files count from 0; -1: none
    uint64_t cost;               // BERTH_PLAN_ANY: none
    size_t id, reads;            // places of their texts in berth_set_builder.text, 0: ""
};

#define BERTH_SET_ITEM \
    (struct berth_set_item) { \
        .item = {.align = 1}, .offset = BERTH_PLAN_ANY, .fixed = BERTH_PLAN_ANY, .alias = -1, .cost = BERTH_PLAN_ANY \
    }
#define BERTH_SET_SIZE_MAX ((uint64_t) 1 << 62) // of sizes, offsets and alignments
#define BERTH_SET_STEP_MAX ((int64_t) 1 << 62)  // of steps, either way

// Texts of a tensor or a pool, as places in berth_set_builder.text until the set is handed over.
struct berth_set_words {
    size_t name, op, type, uses;
};

struct berth_set_builder {
    struct berth_plan_set *set;
    size_t n_items_cap, n_offsets_cap, n_starts_cap, n_text_cap, n_tensors_cap, n_words_cap, n_pools_cap, n_pool_names_cap;
    size_t *starts;                // of each id in text
    struct berth_set_words *words; // of each tensor
    size_t *pool_names;
    bool has_costs;     // the set gets costs and reads
    size_t *read_texts; // of each item, then
    size_t n_costs_cap, n_reads_cap;
    char *text; // begins with "", which is what a text that was not given stands for
    size_t text_size;
    size_t n_offsets; // items with an offset
};

// All fail only for want of memory, without an error text.
bool berth_set_begin(struct berth_set_builder *b) BERTH_MUST_USE;
bool berth_set_add(struct berth_set_builder *b, const struct berth_set_item *item) BERTH_MUST_USE;
// Keeps a text; *at is its place.
bool berth_set_text(struct berth_set_builder *b, const char *text, size_t len, size_t *at) BERTH_MUST_USE;
// Texts come through words. A tensor belongs to the item that is added next.
bool berth_set_add_tensor(
    struct berth_set_builder *b, const struct berth_plan_tensor *tensor, const struct berth_set_words *words) BERTH_MUST_USE;
bool berth_set_add_pool(struct berth_set_builder *b, const struct berth_plan_pool *pool, size_t name) BERTH_MUST_USE;
// Hands the set over; the builder is empty after.
bool berth_set_end(struct berth_set_builder *b, struct berth_plan_set **set) BERTH_MUST_USE;
void berth_set_drop(struct berth_set_builder *b);

// For each item how many before it have its id, "" aside; to be freed. NULL: out of memory, without an error text.
size_t *berth_set_id_ranks(const struct berth_plan_set *set) BERTH_MUST_USE;
