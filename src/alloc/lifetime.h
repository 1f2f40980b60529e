// SPDX-License-Identifier: MIT
// lifetime.h: computes the input of the planner from a record: items with lifetimes, one per piece of memory.
#pragma once

#include "berth-plan.h"
#include "record/record.h"

// Returns true if the result of `node` may take over the memory of its source i_src, which has the same layout. Called for ops
// that ggml does not run in place.
typedef bool (*lifetime_inplace_t)(const struct ggml_tensor *node, int i_src, void *user);

// Columns of a record whose memory is planned.
struct lifetime_row {
    int32_t id;          // index of the buffer that the caller chose, -1: none
    int32_t buf;         // index of the assigned buffer, -1: not yet; the first node that reads the row decides
    int32_t item;        // its item, -1: none
    int32_t took;        // index in record.srcs of the source whose memory the row took over, -1: none
    bool is_kept;        // shares its memory with no other row
    bool is_fixed;       // has a fixed address and takes over no memory
    bool is_by_callback; // took over memory because the in_place callback allowed it
    bool is_late;        // the row is a late leaf (late.c), or the node that overwrites a late leaf
};

static inline struct lifetime_row *lifetime_rows(const struct record *rec) {
    return rec->columns;
}

static inline struct lifetime_row lifetime_row_in(int32_t buf) {
    return (struct lifetime_row){.id = buf, .buf = buf, .item = -1, .took = -1};
}

// The execution order of the rows. The first n_early leafs have memory from before the first step. Every other row that does not
// run gets its memory at its first reader.
struct lifetime_order {
    const int32_t *steps; // [n_steps] rows, NULL: the nodes in their order
    int32_t n_steps;
    int32_t n_early;
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
    bool via_views;              // a result may take over the memory of a tensor through a view of all its bytes
    bool free_unread;            // frees inputs and results that no node reads
    const int32_t *homes;        // [n_bufs] a takeover requires equal homes (ggml_gallocr.homes); NULL: equal pools
    lifetime_inplace_t in_place; // for ops that ggml does not run in place, may be NULL
    void *user;
    const bool *barriers; // [n_steps] true: memory is freed after this step; NULL: after every step
    // true: a late leaf has memory only from the node that overwrites it. false: late leafs have memory from step 0, which they
    // share with each other (berth_lifetimes_share_late).
    bool late_leafs;
};

struct lifetimes {
    struct lifetime_row *rows;     // [n_all] columns of the record or of the caller
    struct lifetime_order order;   // of the record or of the caller
    struct berth_plan_item *items; // owns the block with room, owners and returned
    int32_t *owners;               // [n_items] first row that used the item
    bool *returned;                // [n_items] the item was freed, so items[i].last is its last use
    char *room;                    // memory for the caller: per_row bytes per row, then per_item bytes per item (max_items)
    size_t per_row, per_item;      // set by the caller; multiples of 8
    size_t n_items, max_items;
    size_t size;           // bytes of the block
    int32_t n_by_callback; // number of rows with is_by_callback
    int32_t n_unlisted;    // rows with memory that are neither nodes nor leafs
    int32_t n_late;        // number of late leafs
};

// Builds a record with out->rows as columns. Buffer ids NULL: all 0.
enum ggml_status berth_lifetimes_record(struct lifetimes *out, struct record *rec, const struct ggml_cgraph *graph,
    const int *node_bufs, const int *leaf_bufs, const struct record_rules *rules) BERTH_MUST_USE;

// Computes the items, and item, buf and took of the columns. Buffers of one type share a pool.
enum ggml_status berth_lifetimes(struct lifetimes *out, struct record *rec, const struct lifetime_sizes *sizes,
    const struct lifetime_rules *rules, const size_t *aligns, const int32_t *pools) BERTH_MUST_USE;
void berth_lifetimes_fini(struct lifetimes *l);

// Returns true if the plan of l is valid for rec, a graph with smaller tensors: every row fits its item, and every row that took
// over memory still has the layout of the source.
bool berth_lifetimes_still_fit(
    const struct lifetimes *l, struct record *rec, const struct lifetime_sizes *sizes, const size_t *aligns);

// ---- late.c ----

// Fills late[r] with 1 + the step that overwrites the late leaf r, or with 0 or less if row r is not a late leaf.
void berth_lifetimes_late(const struct record *rec, const struct lifetime_order *order, int32_t *late);
// Late leafs of equal size share memory if their lifetimes are disjoint. No other rows use this memory, so the host may write all
// leafs before the graph runs. False: out of memory.
bool berth_lifetimes_share_late(struct lifetimes *l, const struct record *rec, const int32_t *late) BERTH_MUST_USE;
// Returns true if each late leaf is still overwritten by its node.
bool berth_lifetimes_still_late(const struct lifetimes *l, const struct record *rec);
