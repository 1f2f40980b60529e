// SPDX-License-Identifier: MIT
// set.h: building a berth_plan_set item by item, for the readers. All texts of ids lie in one block behind the scenes.
#pragma once

#include "base/base.h"

// What a reader learns of one item; fields that the text does not give keep the values of BERTH_SET_ITEM.
struct berth_set_item {
    struct berth_plan_item item;
    uint64_t offset;
    const char *id; // not terminated
    size_t id_len;
};

#define BERTH_SET_ITEM \
    (struct berth_set_item) { \
        .item = {.align = 1, .fixed = BERTH_PLAN_ANY, .alias = -1}, .offset = BERTH_PLAN_ANY \
    }
#define BERTH_SET_SIZE_MAX ((uint64_t) 1 << 62) // of sizes, offsets and alignments
#define BERTH_SET_STEP_MAX ((int64_t) 1 << 62)  // of steps, either way

struct berth_set_builder {
    struct berth_plan_set *set;
    size_t n_items_cap, n_offsets_cap, n_starts_cap, n_text_cap;
    size_t *starts; // of each id in text
    char *text;
    size_t text_size;
    size_t n_offsets; // items with an offset
};

// All fail only for want of memory, without an error text.
bool berth_set_begin(struct berth_set_builder *b) BERTH_MUST_USE;
bool berth_set_add(struct berth_set_builder *b, const struct berth_set_item *item) BERTH_MUST_USE;
// Hands the set over; the builder is empty after.
bool berth_set_end(struct berth_set_builder *b, struct berth_plan_set **set) BERTH_MUST_USE;
void berth_set_drop(struct berth_set_builder *b);
