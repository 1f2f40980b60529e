// SPDX-License-Identifier: MIT
// berth-plan-io.h: plans as CSV and JSON, and the search for an order of ops with a lower peak. Part of berth-plan.h.
#pragma once

#include "berth-plan.h"

#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

// ---- plans as files ----

// A tensor in the memory of an item. An item has several tensors, one after another, if results take over memory in place.
struct berth_plan_tensor {
    int64_t item;     // index of its item
    const char *name; // this and the next two are "" if the file does not state them
    const char *op;   // as ggml_op_desc returns it
    const char *type; // as ggml_type_name returns it
    int64_t ne[4];    // extents; 0 if the file does not state them
    int64_t node;     // the step that computes it; -1: no step does, or unknown
    const char *uses; // the steps that read it, separated by blanks; "" if the file does not state them
};

// A pool as a file describes it.
struct berth_plan_pool {
    int32_t pool;         // number of the pool
    const char *name;     // its name
    uint64_t chunk_limit; // as in berth_plan_params
};

// The items of a file. berth_plan_set_free frees it and everything in it.
struct berth_plan_set {
    int64_t n_items;                   // number of items
    struct berth_plan_item *items;     // the items
    char **ids;                        // text that names each item, never NULL; numbers and duplicates are possible
    uint64_t *offsets;                 // offset of each item; BERTH_PLAN_ANY if the file has none
    bool has_offsets;                  // there are items, and every item has an offset
    bool has_report;                   // the file has the next three
    bool proven;                       // peak is the minimum
    uint64_t peak;                     // bytes that the plan needs
    uint64_t bound;                    // no plan needs less
    int64_t n_tensors;                 // number of tensors
    struct berth_plan_tensor *tensors; // in the order of items, and within an item in the order in which they use its memory
    int64_t n_pools;                   // number of pools that the file describes
    struct berth_plan_pool *pools;     // these pools
    uint64_t *costs;                   // [n_items] for a CSV with the columns cost and reads, else NULL; BERTH_PLAN_ANY: no cost
    const char **reads;                // [n_items] with costs: the ids that the op of the item reads, separated by blanks
    char *text;                        // memory of ids, names, ops and types
};

// Readers accept any bytes. `name` starts their messages ("a.csv:3: ..."). The caller frees *set with berth_plan_set_free. A
// failure leaves *set NULL: GGML_STATUS_FAILED, with line (CSV) or line and column (JSON), if the text is wrong,
// GGML_STATUS_ALLOC_FAILED if memory runs out.

// Reads CSV text of size bytes. A header line names the columns, in any order: id, lower, upper (exclusive), size; optional are
// alignment, offset, pool, alias, fixed, and for budgets cost and reads. Other columns are skipped. Fields may be quoted. Lines
// end in LF, CR LF or CR.
BERTH_API enum ggml_status berth_plan_read_csv(const char *text, size_t size, const char *name, struct berth_plan_set **set);

// Reads JSON text of size bytes: {"items": [{"id", "first", "last", "size", "alignment", "offset", "pool", "alias", "fixed"},
// ...], "peak", "bound", "proven"}. last is inclusive. Only first, last and size are required; unknown keys are skipped. Plans of
// graphs (berth_gallocr_save) also have "tensors": [{"name", "op", "type", "shape", "node", "uses"}, ...] in an item, and
// "pools": [{"pool", "name", "max_chunk"}, ...].
BERTH_API enum ggml_status berth_plan_read_json(const char *text, size_t size, const char *name, struct berth_plan_set **set);

// Reads a file, or standard input for "-": JSON if the first character is '{', otherwise CSV.
BERTH_API enum ggml_status berth_plan_read_file(const char *path, struct berth_plan_set **set);

// Frees a set that a reader returned.
BERTH_API void berth_plan_set_free(struct berth_plan_set *set);

// Writers flush the stream and fail if the stream does, for example on a full disk. Columns and keys without information are left
// out.

// Writes the set as CSV. offsets, one per item, may be NULL.
BERTH_API enum ggml_status berth_plan_write_csv(const struct berth_plan_set *set, const uint64_t *offsets, FILE *file);

// Writes the set as JSON. offsets, one per item, and report may be NULL.
BERTH_API enum ggml_status berth_plan_write_json(
    const struct berth_plan_set *set, const uint64_t *offsets, const struct berth_plan_report *report, FILE *file);

// ---- order of ops ----

// Properties of an op. They can be combined.
enum berth_order_flag {
    BERTH_ORDER_INPUT = 1,  // not computed: present from the start. It keeps its position in the order
    BERTH_ORDER_OUTPUT = 2, // its memory is kept to the end
    BERTH_ORDER_WRITES = 4, // writes into the memory of view_of: it keeps its order with all ops that read or write that memory
    BERTH_ORDER_EFFECT = 8, // has effects outside the graph: these ops keep their order among each other
};

// A value and the op that computes it. The ops must be in a valid order: each source is an input, or the op itself (which is
// ignored), or comes before the op.
struct berth_order_op {
    const int32_t *srcs; // values that the op reads
    int64_t n_srcs;      // number of sources
    int32_t view_of;     // the result is in the memory of this value; -1: it has its own memory
    uint64_t size;       // bytes of its own memory, up to 2^62; 0: none, as for views and memory that others allocate
    uint64_t align;      // as in berth_plan_item
    // Bit i: the result may take over the memory of source i if nothing needs that memory afterwards. Source i must own memory of
    // the same size in the same pool and must not be an output.
    uint64_t inplace;
    int32_t pool;   // as in berth_plan_item
    uint32_t flags; // of berth_order_flag
};

// How to search for an order. All members may be 0.
struct berth_order_params {
    // Both orders are planned with these parameters, and the new order is returned only if its peak is lower. NULL: live bytes
    // decide.
    const struct berth_plan_params *plan;
    int64_t max_nodes;  // most nodes of the exact search per part; 0: 20,000
    int64_t beam_width; // width of the beam search; 0: 64
};

// The result of a search for an order.
struct berth_order_report {
    uint64_t live_given; // peak of live bytes in the given order, the sum over pools
    uint64_t live;       // the same in the order returned
    uint64_t live_bound; // no order has less; 0 with several pools
    bool changed;        // the order returned differs from the given one
    bool proven;         // no order has a lower peak of live bytes
    uint64_t peak_given; // planned peak of the given order; 0 if the planner did not run
    uint64_t peak;       // planned peak of the order returned
    int64_t n_parts;     // independent parts that were searched
    int64_t n_exact;     // of these, parts that were searched completely
    int64_t n_nodes;     // nodes of the exact search
    int64_t time_us;     // wall time
};

// Searches for an order of the ops with a lower peak. order[k] becomes the op that runs as number k; it is the given order
// (order[k] == k) unless a better one is found. params and report may be NULL. Returns GGML_STATUS_FAILED if the ops contradict
// the rules above.
BERTH_API enum ggml_status berth_plan_order(const struct berth_order_op *ops, int64_t n_ops,
    const struct berth_order_params *params, int32_t *order, struct berth_order_report *report);

// Stores the items of a graph in an order; NULL means the given order. There is one item per piece of memory: views and in-place
// results are merged into it. items must have room for n_ops. item_of[i], if not NULL, becomes the item of value i, or -1. Steps
// are positions in the order.
BERTH_API enum ggml_status berth_plan_order_items(const struct berth_order_op *ops, int64_t n_ops, const int32_t *order,
    struct berth_plan_item *items, int64_t *n_items, int32_t *item_of);

#ifdef __cplusplus
}
#endif
