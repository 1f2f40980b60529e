// SPDX-License-Identifier: MIT
// lifetime.h: from a record to what the planner takes: items with lifetimes, one for each piece of memory.
#pragma once

#include "berth-plan.h"
#include "record/record.h"

// May this node's result take over the memory of its source i_src, whose layout is the same? Asked beyond ggml's own list.
typedef bool (*lifetime_inplace_t)(const struct ggml_tensor *node, int i_src, void *user);

// The columns of a record for which memory is planned.
struct lifetime_row {
    int32_t id;    // buffer that the caller gave, -1: none
    int32_t buf;   // buffer it has, -1: as the node that needs it first
    int32_t item;  // the memory it was given, -1: none
    int32_t took;  // index in record.srcs of the source whose memory it took over, -1: none
    bool is_kept;  // shares its memory with nobody
    bool is_fixed; // has its place and takes over no other
    bool is_asked; // took over memory by the caller's word
    bool is_late;  // a late leaf, or the node that overwrites it first
};

static inline struct lifetime_row *lifetime_rows(const struct record *rec) {
    return rec->columns;
}

static inline struct lifetime_row lifetime_row_in(int32_t buf) {
    return (struct lifetime_row){.id = buf, .buf = buf, .item = -1, .took = -1};
}

// Which rows of a record run, and when. Those behind its nodes are there before the first step.
struct lifetime_order {
    const int32_t *steps; // [n_steps] rows, NULL: the nodes as they are listed
    int32_t n_steps;
    int32_t n_early; // rows behind the nodes; what else does not run comes with who needs it first
};

static inline int32_t lifetime_step(const struct lifetime_order *order, int32_t i) {
    return order->steps != NULL ? order->steps[i] : i;
}

// What a tensor without memory takes in buffer buf.
struct lifetime_sizes {
    size_t (*alloc_size)(void *user, const struct ggml_tensor *t, int buf);
    bool is_by_layout; // tensors take the bytes of their layout
    void *user;
};

struct lifetime_rules {
    bool via_views;              // in place also through a view that covers its whole source
    bool free_unread;            // inputs and results that nobody reads give their memory back
    const int32_t *homes;        // [n_bufs] a node may take over memory of another buffer of its home; NULL: of its pool only
    lifetime_inplace_t in_place; // beyond ggml's list, may be NULL
    void *user;
    const bool *barriers; // [n_steps] memory is given back only after steps that have one, NULL: after every step
    bool late_leafs;      // late leafs have memory only from the node that overwrites them; false: they share it with each other
};

struct lifetimes {
    struct lifetime_row *rows;     // [n_all] the record's columns, or the caller's
    struct lifetime_order order;   // likewise
    struct berth_plan_item *items; // pool = buffer id; first and last are steps; the others lie behind them
    int32_t *owners;               // [n_items] the row that got the memory first
    bool *returned;                // [n_items] given back before the end
    char *room;                    // the caller's: per_row bytes for each row, then per_item for each of max_items
    size_t per_row, per_item;      // set by the caller before, multiples of 8
    size_t n_items, max_items;
    size_t size;     // bytes of it all
    int32_t n_asked; // rows that is_asked is true of
    int32_t n_loose; // rows outside the graph that were given memory
    int32_t n_late;  // late leafs
};

// A record whose columns are out's rows, with the buffers that the caller gave: NULL: all 0.
enum ggml_status berth_lifetimes_record(struct lifetimes *out, struct record *rec, const struct ggml_cgraph *graph,
    const int *node_bufs, const int *leaf_bufs, const struct record_rules *rules) BERTH_MUST_USE;

// By rows and order: fills item, buf and took of the columns, and the items. align and pool of buffer b: aligns[b], pools[b]
// (buffers of one type share a pool).
enum ggml_status berth_lifetimes(struct lifetimes *out, struct record *rec, const struct lifetime_sizes *sizes,
    const struct lifetime_rules *rules, const size_t *aligns, const int32_t *pools) BERTH_MUST_USE;
void berth_lifetimes_fini(struct lifetimes *l);

// A reshaped graph under an old plan: does each row still fit its item, and is each in-place pair still of one layout?
// aligns as above.
bool berth_lifetimes_still_fit(
    const struct lifetimes *l, struct record *rec, const struct lifetime_sizes *sizes, const size_t *aligns);

// ---- late.c ----

// Late leafs, and when each is overwritten: late[r] is 1 + that step; 0 or less: row r is not a late leaf. late has room for
// all rows.
void berth_lifetimes_late(const struct record *rec, const struct lifetime_order *order, int32_t *late);
// Lets late leafs of the same size share memory where one dies before the other is overwritten. The memory is theirs from the
// start, so that a host that writes all leafs before the graph runs harms none that is read. False: out of memory.
bool berth_lifetimes_share_late(struct lifetimes *l, const struct record *rec, const int32_t *late) BERTH_MUST_USE;
// Under an old plan: does each late leaf still have its node?
bool berth_lifetimes_still_late(const struct lifetimes *l, const struct record *rec);
