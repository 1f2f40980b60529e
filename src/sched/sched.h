// SPDX-License-Identifier: MIT
// sched.h: the scheduler's state, and the passes over it.
//
//   graph --memo.c--> rows --assign.c--> backends --split.c--> splits, copies --plan.c, place.c--> addresses --run.c--> numbers
//
// A memo is all that is known of one graph; the last ones are kept, and a graph that matches one goes straight to its addresses.
// The caller's graph is never changed but for its tensors' addresses: sources that cross are exchanged for their copies only
// while a plan is made or a split is handed to its backend.
#pragma once

#include "backend/backend.h"
#include "berth-sched.h"
#include "core/graph.h"
#include "core/optable.h"

#define SCHED_N_MEMOS 2 // e.g. a long batch and a single token in turns

// ---- tensors to positions (index.c) ----

// Where in a list of tensors one is: the first position if it is there several times. The list is the user's. Empty when zeroed.
struct sched_index {
    int32_t *slots; // position + 1, 0: free
    size_t n_slots; // in use, a power of two, or 0
    size_t n_keys;  // n_keys * 2 <= n_slots
    size_t slots_cap;
};

// Empty, with room for n. False: out of memory.
bool sched_index_reset(struct sched_index *index, size_t n) BERTH_MUST_USE;
// Room for n; the first n_listed of the list are in it. False: out of memory, and nothing changed.
bool sched_index_reserve(struct sched_index *index, struct ggml_tensor *const *keys, int32_t n_listed, size_t n) BERTH_MUST_USE;
// Adds keys[i], for which there is room. Its position: i, or where it was met before.
int32_t sched_index_add(struct sched_index *index, struct ggml_tensor *const *keys, int32_t i);
int32_t sched_index_find(
    const struct sched_index *index, struct ggml_tensor *const *keys, const struct ggml_tensor *key); // or -1
void sched_index_fini(struct sched_index *index);

// The backends that the caller chose.
struct sched_choices {
    struct ggml_tensor **tensors;
    int16_t *backends;
    int32_t n;
    size_t tensors_cap, backends_cap;
    struct sched_index index;
};

static inline int sched_choice(const struct sched_choices *choices, const struct ggml_tensor *t) {
    const int32_t i = choices->n > 0 ? sched_index_find(&choices->index, choices->tensors, t) : -1;
    return i >= 0 ? choices->backends[i] : -1;
}

// ---- one graph ----

// ne, nb, op, op_params and flags of a tensor lie side by side: compared and kept as bytes.
#define SCHED_FORM_OFF offsetof(struct ggml_tensor, ne)
#define SCHED_FORM_SIZE (offsetof(struct ggml_tensor, src) - SCHED_FORM_OFF)

// What a tensor is, apart from its edges and its memory. Tensors of a graph share few of them.
struct sched_form {
    _Alignas(16) unsigned char bytes[SCHED_FORM_SIZE];
    size_t view_offs;
    size_t nbytes;
    int32_t type;
    int32_t op;
    bool is_empty; // nothing to compute
    bool is_input; // flagged as the caller's
};

// One tensor. Rows: nodes in order, leafs in order, then what only sources and views name.
// backend, reason and refused of an unplaced root hold for all its views: whoever writes into memory runs where it lies.
struct sched_row {
    ggml_backend_buffer_type_t buft; // of the caller's memory; NULL: none, or an address without a buffer
    ggml_backend_buffer_t mem;       // where the scheduler put it; NULL: placed by the caller, or not yet
    void *data;                      // where the scheduler or the caller put it
    int32_t form;
    int32_t view_src; // row, -1: no view
    int32_t src;      // first of its sources in memo.srcs
    int32_t plan_row; // in the allocator's record
    int32_t slots;    // first of its places in memo.slot_data, -1: it has one place only
    int16_t n_src;    // sources that are not NULL
    int16_t caller;   // backend the caller chose, -1: none
    int16_t backend;  // -1: none
    int16_t refused;  // first backend that should have run it and does not support it, -1: none
    uint8_t reason;
    uint8_t usage; // of the caller's buffer
    bool is_placed;
    bool is_empty; // as in its form
    bool is_input; // likewise
    bool is_dense; // its sources are the first n_src of ggml_tensor.src
    bool reads_weight;
    bool lost_weight; // refused is who has the weight
};

// A tensor that crosses to a backend: made once for each version of its bytes.
struct sched_copy {
    int32_t row;
    int32_t version;  // of the root's bytes: counts the nodes that wrote to it before
    int32_t next;     // next copy of the same row, -1: last
    int32_t plan_row; // of its first tensor in the allocator's record
    int16_t backend;  // that needs it
    int16_t from;     // backend of the memory, -1: none of ours
    int16_t writer;   // backend that computed these bytes, -1: they were there before the first node
    bool is_users;    // the caller's bytes: copied before compute returns
    size_t tensor;    // first of its n_slots tensors in memo.tensors
};

// An edge that crosses: while a split is handed out, node->src[slot] is the copy.
struct sched_edge {
    int32_t node; // row
    int32_t copy;
    int32_t slot;
};

// A backend's wish: a tensor's memory is its own until a node has run.
struct sched_dep {
    int32_t row, copy; // which tensor: a row, or if that is -1 a copy
    int32_t until;     // row of the node
    int32_t next;      // with the same node, -1: last
    int32_t plan_row;  // in the allocator's record, -1: nothing to keep
};

struct sched_split {
    int32_t i_start, i_end;   // in memo.order
    int32_t copies, n_copies; // its inputs, in memo.copies
    int32_t edges, n_edges;   // in memo.edges
    int16_t backend;
    uint64_t uid; // backends may take the same one for the same nodes at the same addresses
};

struct sched_memo {
    struct ggml_tensor **tensors_at; // [n_rows] in the graph that was seen last
    struct sched_row *rows;
    struct sched_form *forms; // [n_forms]
    int32_t *srcs;            // rows of sources
    uint8_t *slots;           // index in ggml_tensor.src
    int32_t n_rows, n_nodes, n_leafs, n_srcs, n_forms;
    size_t at_cap, rows_cap, forms_cap, srcs_cap, slots_cap;
    int32_t n_writers; // nodes that write through a view
    bool has_views;    // some row is a view
    bool has_twice;    // some tensor has two rows
    bool has_choices;  // some row has a caller

    struct ggml_tensor **nodes; // [n_nodes] in execution order, if a backend has changed it within a split
    int32_t *order;             // [n_nodes] their rows
    size_t nodes_cap, order_cap;
    bool is_reordered;

    struct sched_split *splits;
    struct sched_copy *copies;
    struct sched_edge *edges;
    struct sched_dep *deps;
    struct ggml_tensor *tensors; // [n_copies * n_slots], then [n_inputs * (n_slots - 1)]
    void **slot_data;            // [n_inputs * n_slots] places of inputs
    ggml_backend_buffer_t *slot_mem;
    int32_t n_splits, n_copies, n_edges, n_deps, n_inputs;
    size_t splits_cap, copies_cap, edges_cap, deps_cap;
    int n_slots;    // graphs in flight that it is made for
    int uid_slot;   // the slot that the splits' uids stand for, -1: they are to be renewed
    bool *conflict; // [n_backends * n_backends] one touches the other's memory without a copy; NULL: none do

    struct sched_index index; // tensor to row
    bool has_index;           // of the graph that was seen last; made when asked
    bool is_split;            // the above is whole
    uint64_t epoch;           // of galloc's buffers for which rows[].data are good, 0: none
    bool is_rows;             // rows can be compared with a graph
    bool is_lost;             // tensors_at is of a graph that turned out to be another
    int64_t used;             // clock of the last use
};

struct sched_carry;

// ---- the scheduler ----

struct sched_trace_event {
    char name[40];
    int64_t start_us, end_us;
    size_t bytes;
    int32_t split, n_nodes;
    int16_t backend;
    bool is_copy;
};

struct ggml_backend_sched {
    ggml_backend_t *backends;        // NULL: the program has freed it
    struct berth_backend_list watch; // of backends
    ggml_backend_buffer_type_t *bufts;
    bool *reaches;    // [n_backends * n_backends] row b: b uses memory of the other's buffer type
    size_t *limits;   // [n_backends] bytes, 0: none
    size_t *sizes;    // [n_backends] scratch: what a plan needs
    bool has_alike;   // some backends have the same buffer type
    int *first_alike; // [n_backends] the first backend of the same buffer type
    bool *in_flight;  // [n_backends] has been given work since it was waited for
    int n_backends;
    bool op_offload;
    int offload_min_batch; // GGML_OP_OFFLOAD_MIN_BATCH, 0: as the devices like
    bool is_strict;
    int debug; // GGML_SCHED_DEBUG

    void *scratch; // of one pass at a time
    size_t scratch_size;
    ggml_gallocr_t galloc;
    struct galloc_plan *plan; // of the graph that was planned last, NULL: none yet

    struct sched_choices chosen;
    struct sched_memo memos[SCHED_N_MEMOS];
    struct sched_memo *cur;      // the graph that was split last, NULL after reset
    struct sched_memo *last_run; // of the graph that was placed last
    struct ggml_cgraph *graph;   // of cur
    bool is_alloc;
    bool is_put;               // all addresses of cur are given
    struct sched_carry *carry; // while a graph is placed to be computed: its inputs hold what the program wrote. Else NULL
    bool was_reserved;         // growing again is worth a line
    int64_t clock;

    int n_copies; // graphs in flight
    int slot;     // of the graph at hand, < n_copies
    int next_slot;
    ggml_backend_event_t *events; // [n_backends * n_copies] end of the backend's work on the slot's last graph, NULL: has none
    bool *recorded;               // likewise: the event is to be waited for before the slot is used
    int n_events;                 // slots that events has room for

    ggml_backend_sched_eval_callback callback;
    void *callback_data;

    bool is_tracing;
    struct sched_trace_event *trace;
    size_t n_trace, trace_cap;
    size_t n_trace_lost; // events that there was no memory for
    int64_t trace_start_us;
    struct berth_sched_stats stats;
    int last_n_splits;
};

// ---- memo.c, match.c ----

// Fills rows from the graph.
enum ggml_status sched_memo_build(
    struct ggml_backend_sched *sched, struct sched_memo *memo, const struct ggml_cgraph *graph) BERTH_MUST_USE;
// Whether the graph is the memo's; then tensors_at are its tensors, and *moved tells if any differs from before. With put,
// tensors get their addresses on the way (place.c:sched_put), so that a graph that comes again is looked at once; if it turns
// out to be another after all, that does no harm: memory of the scheduler's own counts as none.
enum sched_match { SCHED_OTHER, SCHED_SAME, SCHED_SAME_PLACED };
enum sched_match sched_memo_match(
    struct ggml_backend_sched *sched, struct sched_memo *memo, const struct ggml_cgraph *graph, bool put, bool *moved);
int32_t sched_memo_row(struct sched_memo *memo, const struct ggml_tensor *t); // -1: none, or out of memory for the index
bool sched_memo_is_tangled(struct sched_memo *memo); // a tensor stands at two rows that did not when it was built, or no memory
void sched_memo_drop(struct sched_memo *memo);       // forgets the graph, keeps the memory
void sched_memo_fini(struct sched_memo *memo);

static inline struct ggml_tensor **sched_nodes(const struct sched_memo *memo) {
    return memo->is_reordered ? memo->nodes : memo->tensors_at;
}

// The row that runs as number i.
static inline int32_t sched_order(const struct sched_memo *memo, int32_t i) {
    return memo->is_reordered ? memo->order[i] : i;
}

// The row that decides for row i: its root if that is not placed, else itself.
static inline int32_t sched_root(const struct sched_memo *memo, int32_t i) {
    const int32_t v = memo->rows[i].view_src;
    return v >= 0 && !memo->rows[v].is_placed ? v : i;
}

// The row whose memory row i looks at.
static inline int32_t sched_base(const struct sched_memo *memo, int32_t i) {
    return memo->rows[i].view_src >= 0 ? memo->rows[i].view_src : i;
}

static inline size_t sched_nbytes(const struct sched_memo *memo, int32_t r) {
    return memo->forms[memo->rows[r].form].nbytes;
}

// Memory for one pass, good until the next call, not zeroed. NULL: out of memory.
void *sched_scratch(struct ggml_backend_sched *sched, size_t size);

// ---- assign.c ----

enum ggml_status sched_assign(struct ggml_backend_sched *sched, struct sched_memo *memo) BERTH_MUST_USE;
// Can backend b use the memory of row i as it is?
bool sched_reaches(const struct ggml_backend_sched *sched, const struct sched_memo *memo, int b, int32_t i);

// ---- split.c ----

enum ggml_status sched_split(struct ggml_backend_sched *sched, struct sched_memo *memo) BERTH_MUST_USE;
// Lets the edges of a split lead to the copies of the slot, and back to the graph's tensors.
void sched_edges_to_copies(struct sched_memo *memo, const struct sched_split *split, int slot);
void sched_edges_to_graph(struct sched_memo *memo, const struct sched_split *split);

// ---- optimize.c ----

// Lets the backends put the nodes of their splits into an order they like better, and wish for memory to stay.
enum ggml_status sched_optimize(struct ggml_backend_sched *sched, struct sched_memo *memo) BERTH_MUST_USE;

static inline struct ggml_tensor *sched_copy_tensor(const struct sched_memo *memo, int32_t copy, int slot) {
    return &memo->tensors[memo->copies[copy].tensor + (size_t) slot];
}

// The tensor that stands for a further place of an input.
static inline struct ggml_tensor *sched_ghost(const struct sched_memo *memo, const struct sched_row *row, int slot) {
    const size_t n = (size_t) memo->n_slots;
    return &memo->tensors[(size_t) memo->n_copies * n + (size_t) row->slots / n * (n - 1) + (size_t) slot - 1];
}

// ---- plan.c ----

struct galloc_plan;
// The memory plan of a split graph into sched->plan. No buffer is touched.
enum ggml_status sched_plan(struct ggml_backend_sched *sched, struct sched_memo *memo) BERTH_MUST_USE;
void sched_plan_fini(struct ggml_backend_sched *sched);
void sched_plan_sizes(const struct ggml_backend_sched *sched, size_t *sizes); // bytes for each backend
// Where the plan puts a row, in buffers that are reserved. NULL: nowhere.
void sched_plan_spot(const struct ggml_backend_sched *sched, int32_t plan_row, ggml_backend_buffer_t *mem, void **data);

// ---- place.c ----

// What the backends' buffers would need for this graph; nothing is allocated.
enum ggml_status sched_measure(struct ggml_backend_sched *sched, struct sched_memo *memo, size_t *sizes) BERTH_MUST_USE;
enum ggml_status sched_reserve(struct ggml_backend_sched *sched, struct sched_memo *memo) BERTH_MUST_USE;
// Gives the tensor of a row its address: a root's place, or a view's within its root's. What a view looks at must be placed.
static inline bool sched_put(struct ggml_tensor *t, ggml_backend_buffer_t mem, void *data) {
    if (t->data == data && t->buffer == mem) {
        return true;
    }
    t->buffer = mem;
    t->data   = data;
    return mem == NULL || mem->iface.init_tensor == NULL || ggml_backend_buffer_init_tensor(mem, t) == GGML_STATUS_SUCCESS;
}
// Gives every tensor of the graph its address.
bool sched_has_places(const struct ggml_backend_sched *sched, const struct sched_memo *memo);
enum ggml_status sched_place(struct ggml_backend_sched *sched, struct sched_memo *memo) BERTH_MUST_USE;
// Is every tensor where its row says? One that stands at two rows is not, nor one that its buffer has put elsewhere.
bool sched_is_all_put(const struct sched_memo *memo);

// ---- carry.c ----

// Bytes of inputs on their way from one place to another.
struct sched_carry {
    bool is_taken;
    struct carried *list; // [n]
    size_t n, cap;
};

// Takes the inputs that the scheduler has placed out of their places, once; then the graph is placed, or not; then they are given
// their bytes, or their old places.
enum ggml_status sched_carry_take(
    struct ggml_backend_sched *sched, struct sched_carry *carry, const struct ggml_cgraph *graph) BERTH_MUST_USE;
void sched_carry_give(struct sched_carry *carry);

// ---- run.c ----

enum ggml_status sched_run(struct ggml_backend_sched *sched) BERTH_MUST_USE;
// Waits for backends that have work of this scheduler's.
void sched_finish(struct ggml_backend_sched *sched);
// Waits for all backends; failures they keep stay kept.
void sched_drain(struct ggml_backend_sched *sched);
// Waits for all backends; the first failure is returned, with the backend's name in the last error.
enum ggml_status sched_wait_all(struct ggml_backend_sched *sched) BERTH_MUST_USE;
// Waits until no graph uses the slot.
void sched_wait_slot(struct ggml_backend_sched *sched, int slot);
enum ggml_status sched_events_init(struct ggml_backend_sched *sched) BERTH_MUST_USE;
void sched_events_fini(struct ggml_backend_sched *sched);

// ---- explain.c, trace.c ----

void sched_explain_log(struct ggml_backend_sched *sched);
// Of a row, with the cause of a fallback looked up.
enum berth_sched_reason sched_reason(struct ggml_backend_sched *sched, struct sched_memo *memo, int32_t row);
// What ended now. The name is that of a tensor that was copied, NULL: the split was computed.
void sched_trace_add(struct ggml_backend_sched *sched, const char *name, int split, int backend, size_t bytes, int64_t start_us);
