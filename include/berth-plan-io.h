// SPDX-License-Identifier: MIT
// berth-plan-io.h: around the planner: plans as CSV and JSON,
// and the pass that looks for an order of a graph's ops with a lower peak. Part of berth-plan.h.
#pragma once

#include "berth-plan.h"

#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

// ---- plans as files ----

// A tensor that lies in an item's memory. Several follow each other where results took over memory in place.
struct berth_plan_tensor {
    size_t item;      // index in items
    const char *name; // this and the next two are "" where the file does not say
    const char *op;   // as ggml_op_desc says it
    const char *type; // as ggml_type_name says it
    int64_t ne[4];    // elements; 0 where the file does not say
    int64_t node;     // the step that computes it, -1: there before, or unknown
    const char *uses; // the steps that read it, split by blanks; "" where the file does not say
};

struct berth_plan_pool {
    int32_t pool;
    const char *name;
    uint64_t max_chunk; // as in berth_plan_params
};

// Items as a file holds them. Free with berth_plan_set_free.
struct berth_plan_set {
    size_t n_items;
    struct berth_plan_item *items;
    char **ids;        // text that names each item, never NULL; numbers and duplicates are fine
    uint64_t *offsets; // BERTH_PLAN_ANY where the file gives none
    bool has_offsets;  // there are items, and every one has an offset
    bool has_report;   // the three below were in the file
    bool proven;       // peak is the minimum
    uint64_t peak;     // bytes the plan needs
    uint64_t bound;    // no plan needs less
    size_t n_tensors;
    struct berth_plan_tensor *tensors; // in the order of items, and within one in the order in which they lie there
    size_t n_pools;
    struct berth_plan_pool *pools; // what the file says of pools
    uint64_t *costs;    // [n_items] of a CSV with the columns cost and reads, NULL of others; BERTH_PLAN_ANY: none given
    const char **reads; // [n_items] with costs: the ids of what the op that makes the item reads, split by blanks
    char *text;         // ids, names, ops and types point into it
};

// Readers take any bytes; `name` stands before messages ("a.csv:3: ..."). A failure leaves *set NULL and berth_last_error() set:
// GGML_STATUS_FAILED with line (CSV) or line and column (JSON) if the text is wrong, GGML_STATUS_ALLOC_FAILED without memory.
//
// CSV: a header line names the columns, in any order: id, lower, upper, size, and if wanted alignment, offset, pool, alias,
// fixed, and the two of a budget, cost and reads. upper is exclusive. Other columns are skipped. Fields may be quoted; lines end
// in LF, CR LF or CR.
BERTH_API enum ggml_status berth_plan_read_csv(const char *text, size_t size, const char *name, struct berth_plan_set **set);
// JSON: {"items": [{"id", "first", "last", "size", "alignment", "offset", "pool", "alias", "fixed"}, ...], "peak", "bound",
// "proven"}; last is inclusive. Only first, last and size are needed; unknown keys are skipped. Plans of graphs
// (berth_gallocr_save) also have "tensors": [{"name", "op", "type", "shape", "node", "uses"}, ...] in an item and "pools":
// [{"pool", "name", "max_chunk"}, ...].
BERTH_API enum ggml_status berth_plan_read_json(const char *text, size_t size, const char *name, struct berth_plan_set **set);
// The file at path, "-" for standard input: JSON if its first character is '{', CSV otherwise.
BERTH_API enum ggml_status berth_plan_read_file(const char *path, struct berth_plan_set **set);
BERTH_API void berth_plan_set_free(struct berth_plan_set *set);

// Writers flush and fail if the stream does (a full disk). Columns and keys that say nothing new are left out. offsets may be
// NULL.
BERTH_API enum ggml_status berth_plan_write_csv(const struct berth_plan_set *set, const uint64_t *offsets, FILE *file);
BERTH_API enum ggml_status berth_plan_write_json(
    const struct berth_plan_set *set, const uint64_t *offsets, const struct berth_plan_report *report, FILE *file);

// ---- order of ops ----

enum berth_order_flag {
    BERTH_ORDER_INPUT = 1,  // not computed: there from the start. Its slot in the order stays its own
    BERTH_ORDER_OUTPUT = 2, // its memory is kept to the end
    BERTH_ORDER_WRITES = 4, // writes into the memory of view_of: keeps its place among all that read or write that memory
    BERTH_ORDER_EFFECT = 8, // acts on the outside: these keep their order among themselves
};

// A value and the op that computes it. Ops stand in a valid order: a source is an input, the op itself (ignored), or stands
// before.
struct berth_order_op {
    const int32_t *srcs; // values that the op reads
    int32_t n_srcs;
    int32_t view_of;  // the result lies in the memory of this value; -1: it has its own
    uint64_t size;    // bytes of its own memory, up to 2^62; 0: none (views, what is allocated elsewhere)
    uint64_t align;   // as in berth_plan_item
    uint64_t inplace; // bit i: the result may take over the memory of source i if no one else needs it any more. That source must
                      // own memory of the same size in the same pool and must not be an output
    int32_t pool;     // as in berth_plan_item
    uint32_t flags;   // of berth_order_flag
};

struct berth_order_params {
    const struct berth_plan_params *plan; // the last word: both orders are solved with these, the new one must be lower. NULL:
                                          // live bytes decide alone
    int64_t max_nodes;                    // nodes of the exact search a part; 0: 20,000
    int32_t beam;                         // width of the beam; 0: 64
};

struct berth_order_report {
    uint64_t live_given; // peak of live bytes of the given order, the sum over pools
    uint64_t live;       // of the order returned
    uint64_t live_bound; // no order has less; 0 if there are several pools
    bool changed;        // another order than the given one is returned
    bool proven;         // no order has a lower peak of live bytes
    uint64_t peak_given; // solved peak of the given order; 0 if no solver ran
    uint64_t peak;       // solved peak of the order returned
    int32_t n_parts;     // independent parts that were looked at
    int32_t n_exact;     // of these, solved to the end
    int64_t n_nodes;     // nodes of the exact search
    int64_t time_us;
};

// order[k] becomes the op that runs k-th: the given order (order[k] == k) unless a better one was found. params and report may be
// NULL. GGML_STATUS_FAILED if the ops contradict what is said above.
BERTH_API enum ggml_status berth_plan_order(const struct berth_order_op *ops, size_t n_ops,
    const struct berth_order_params *params, int32_t *order, struct berth_order_report *report);

// Items of a graph under an order (NULL: the given one): one item for each memory, views and results in place merged into it.
// items has room for n_ops; item_of[i], if not NULL, becomes the item of value i or -1. Steps are slots of the order.
BERTH_API enum ggml_status berth_plan_order_items(const struct berth_order_op *ops, size_t n_ops, const int32_t *order,
    struct berth_plan_item *items, size_t *n_items, int32_t *item_of);

#ifdef __cplusplus
}
#endif
