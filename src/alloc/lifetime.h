// SPDX-License-Identifier: MIT
// lifetime.h: computes the input of the planner from a record: items with lifetimes, one per piece of memory.
#pragma once

#include "berth-plan.h"
#include "record/record.h"

// Callback: returns true if the node's result may take over the memory of its source i_src, which has the same layout. It is called
// for ops that ggml does not run in place.
typedef bool (*lifetime_inplace_t)(const struct ggml_tensor *node, int i_src, void *user);

// Columns of a record whose memory is planned.
struct lifetime_row {
    int32_t id;          // buffer that the caller chose, -1: none
    int32_t buf;         // assigned buffer, -1: that of the first node that reads it
    int32_t item;        // its item, -1: none
    int32_t took;        // index in record.srcs of the source whose memory it took over, -1: none
    bool is_kept;        // shares its memory with no other row
    bool is_fixed;       // has a fixed address and takes over no memory
    bool is_by_callback; // took over memory because the in_place callback allowed it
    bool is_late;        // a late leaf, or the node that overwrites it first
};

static inline struct lifetime_row *lifetime_rows(const struct record *rec) {
    return rec->columns;
}

static inline struct lifetime_row lifetime_row_in(int32_t buf) {
    return (struct lifetime_row){.id = buf, .buf = buf, .item = -1, .took = -1};
}

// The execution order: the rows of a record that run. The n_early rows after the nodes (the leafs) have memory before the first
// step.
struct lifetime_order {
    const int32_t *steps; // [n_steps] rows, NULL: the nodes in their order
    int32_t n_steps;
    int32_t n_early; // number of these leafs; all other rows that do not run get their memory at their first reader
};

static inline int32_t lifetime_step(const struct lifetime_order *order, int32_t i) {
    return order->steps != NULL ? order->steps[i] : i;
}

// Sizes of tensors without memory.
struct lifetime_sizes {
    size_t (*alloc_size)(void *user, const struct ggml_tensor *t, int buf);
    bool is_by_layout; // the size is the number of bytes of the layout
    void *user;
};

struct lifetime_rules {
    bool via_views;              // a node may also take over memory through a view that covers its source
    bool free_unread;            // the memory of inputs and results that no node reads is freed
    const int32_t *homes;        // [n_bufs] a node may take over memory of a buffer with the same home; NULL: of its pool only
    lifetime_inplace_t in_place; // for ops that ggml does not run in place, may be NULL
    void *user;
    const bool *barriers; // [n_steps] memory is freed only after steps with a barrier, NULL: after every step
    bool late_leafs;      // late leafs have memory from their overwriting node on; false: from the first step on, but shared
};

struct lifetimes {
    struct lifetime_row *rows;     // [n_all] columns of the record or of the caller
    struct lifetime_order order;   // of the record or of the caller
    struct berth_plan_item *items; // first and last are steps; room, owners and returned follow in the same block
    int32_t *owners;               // [n_items] row that received the memory first
    bool *returned;                // [n_items] freed before the last step ends
    char *room; // memory for the caller: per_row bytes for each row, then per_item bytes for each of max_items items
    size_t per_row, per_item; // bytes; set by the caller before berth_lifetimes, multiples of 8
    size_t n_items, max_items;
    size_t size;           // bytes of the block
    int32_t n_by_callback; // number of rows with is_by_callback
    int32_t n_unlisted;    // number of rows that need memory but are neither nodes nor leafs of the graph
    int32_t n_late;        // number of late leafs
};

// Builds a record with out->rows as columns. The buffer ids come from the caller; NULL: all 0.
enum ggml_status berth_lifetimes_record(struct lifetimes *out, struct record *rec, const struct ggml_cgraph *graph,
    const int *node_bufs, const int *leaf_bufs, const struct record_rules *rules) BERTH_MUST_USE;

// Computes the items, and item, buf and took of the columns, from rows and order. Buffer b has alignment aligns[b] and pool
// pools[b]; buffers of one type share a pool.
enum ggml_status berth_lifetimes(struct lifetimes *out, struct record *rec, const struct lifetime_sizes *sizes,
    const struct lifetime_rules *rules, const size_t *aligns, const int32_t *pools) BERTH_MUST_USE;
void berth_lifetimes_fini(struct lifetimes *l);

// Checks whether an old plan is valid for a smaller graph: returns true if each row fits its item, and if each result that took
// over memory has the same layout as the source. aligns as in berth_lifetimes.
bool berth_lifetimes_still_fit(
    const struct lifetimes *l, struct record *rec, const struct lifetime_sizes *sizes, const size_t *aligns);

// ---- late.c ----

// Finds late leafs and the steps that overwrite them. late has one entry per row: 1 + the step that overwrites the late leaf r; 0
// or less: row r is not a late leaf.
void berth_lifetimes_late(const struct record *rec, const struct lifetime_order *order, int32_t *late);
// Makes late leafs of the same size share memory if one is dead before the other is overwritten. This memory is used by late leafs
// only, from the first step on. So a host may write all leafs before the graph runs and overwrites no leaf whose bytes are read.
// Returns false if out of memory.
bool berth_lifetimes_share_late(struct lifetimes *l, const struct record *rec, const int32_t *late) BERTH_MUST_USE;
// Checks an old plan: returns true if each late leaf is still overwritten by its node.
bool berth_lifetimes_still_late(const struct lifetimes *l, const struct record *rec);
