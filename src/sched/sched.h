// SPDX-License-Identifier: MIT
// sched.h: the scheduler's state, and the passes over it.
//
//   graph --src/record--> rows --assign.c--> backends --split.c--> splits, copies --plan.c, place.c--> addresses --run.c-->
//   numbers
//
// A memo is all that is known of one graph: a whole record of it (src/record), with the scheduler's columns beside its rows, and
// what became of it. The last ones are kept, and a graph that matches one goes straight to its addresses.
// The caller's graph is never changed but for its tensors' addresses: sources that cross are exchanged for their copies only
// while a plan is made or a split is handed to its backend.
#pragma once

#include "alloc/alloc.h"
#include "backend/backend.h"
#include "berth-sched.h"
#include "core/optable.h"

#include <time.h>

#define SCHED_N_CACHED 2 // e.g. a long batch and a single token in turns

// The backends that the caller chose.
struct sched_choices {
    struct ggml_tensor **tensors;
    int16_t *backends;
    int32_t n;
    size_t tensors_cap, backends_cap;
    struct record_index index;
};

static inline int sched_choice(const struct sched_choices *choices, const struct ggml_tensor *t) {
    const int32_t i = choices->n > 0 ? record_index_find(&choices->index, choices->tensors, t) : -1;
    return i >= 0 ? choices->backends[i] : -1;
}

// ---- one graph ----

// The columns of a row. backend, reason and refused of an unplaced root hold for all its views: whoever writes into memory runs
// where it lies. A tensor that is listed again counts as a view of its first row.
struct sched_row {
    int32_t base;    // record_base
    int32_t slots;   // first of its places in cached.slot_places, -1: it has one place only
    int16_t caller;  // backend the caller chose, -1: none
    int16_t backend; // -1: none
    int16_t refused; // first backend that should have run it and does not support it, -1: none
    uint8_t reason;
    bool is_placed; // its base has memory of the caller's
    bool is_empty;  // nothing to compute
    bool is_input;  // flagged as the caller's
    bool reads_weight;
    bool lost_weight; // refused is who has the weight
};

// A tensor that crosses to a backend: made once for each version of its bytes.
struct sched_copy {
    int32_t row;
    int32_t version;          // of the root's bytes: counts the nodes that wrote to it before
    int32_t next;             // next copy of the same row, -1: last
    int16_t backend;          // that needs it
    int16_t from;             // backend of the memory, -1: none of ours
    int16_t writer;           // backend that computed these bytes, -1: they were there before the first node
    bool copies_caller_bytes; // the caller's bytes: copied before compute returns
    size_t tensor;            // first of its n_slots tensors in cached.tensors
};

// An edge that crosses: while a split is handed out, the node's source is the copy.
struct sched_edge {
    int32_t node; // row
    int32_t copy;
    int32_t src; // in rec.srcs
};

// A backend's wish: a tensor's memory is its own until a node has run.
struct sched_dep {
    int32_t row, copy; // which tensor: a row, or if that is -1 a copy
    int32_t until;     // row of the node
    int32_t next;      // with the same node, -1: last
};

struct sched_split {
    int32_t i_start, i_end;   // in cached.order
    int32_t copies, n_copies; // its inputs, in cached.copies
    int32_t edges, n_edges;   // in cached.edges
    int16_t backend;
    uint64_t uid; // backends may take the same one for the same nodes at the same addresses
};

struct sched_cached {
    struct record rec;
    struct sched_row *rows;      // its columns
    struct record_place *places; // [n_rows] where the scheduler put them, while the buffers are those of epoch
    size_t places_cap;
    int32_t n_writers; // nodes that write through a view
    bool has_views;    // some row is a view
    bool has_choices;  // some row has a caller

    struct ggml_tensor **nodes; // [n_nodes] in execution order, if a backend has changed it within a split
    int32_t *order;             // [n_nodes] their rows
    size_t nodes_cap, order_cap;
    bool is_reordered;

    struct sched_split *splits;
    struct sched_copy *copies;
    struct sched_edge *edges;
    struct sched_dep *deps;
    struct ggml_tensor *tensors;      // [n_copies * n_slots], then [n_inputs * (n_slots - 1)]
    struct record_place *slot_places; // [n_inputs * n_slots] of inputs
    int32_t n_splits, n_copies, n_edges, n_deps, n_inputs;
    size_t splits_cap, copies_cap, edges_cap, deps_cap, tensors_cap, slot_places_cap;
    int n_slots;    // graphs in flight that it is made for
    int uid_slot;   // the slot that the splits' uids stand for, -1: they are to be renewed
    bool *conflict; // [n_backends * n_backends] one touches the other's memory without a copy; of use if has_conflict
    bool has_conflict;

    bool is_split;  // the above is whole
    uint64_t epoch; // of galloc's buffers for which places are good, 0: none
    int64_t used;   // clock of the last use
};

// Bytes of inputs on their way from one place to another (preserved.c). The memory stays for the next time.
struct sched_preserved {
    bool is_taken;
    struct preserved_input *list; // [n]
    char *bytes;                  // [n_bytes] of them, one after the other
    size_t n, cap, n_bytes, bytes_cap;
};

// ---- the scheduler ----

enum sched_trace_kind { SCHED_TRACE_SPLIT, SCHED_TRACE_COPY, SCHED_TRACE_OP };

struct sched_trace_event {
    char name[GGML_MAX_NAME];
    const char *op; // its name, of SCHED_TRACE_OP, whose are also those marked *
    int64_t start_ns, end_ns;
    int64_t cpu_ns; // * of all threads of the process
    int64_t in_use; // * bytes of its backend's compute buffers, -1: not known
    size_t bytes;   // copied, or read
    size_t written; // *
    double flops;   // *
    int32_t split, n_nodes;
    int16_t backend;
    uint8_t kind; // of sched_trace_kind
};

struct ggml_backend_sched {
    struct berth_arrays mem;         // of all arrays by backend up to n_backends
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
    struct galloc_plan *plan;     // of the graph that was planned last: spare, or one of kept. NULL: none yet
    struct galloc_plan *spare;    // for the next graph, NULL: none yet
    struct galloc_plan **kept;    // [n_kept] of reserved graphs, the newest last
    struct sched_cached *planned; // whose plan it is, NULL: the graph's memo is another's by now
    size_t n_kept, kept_cap;
    struct berth_staging staging;

    struct sched_choices chosen;
    struct sched_cached cached_graphs[SCHED_N_CACHED];
    struct sched_cached *cur;      // the graph that was split last, NULL after reset
    struct sched_cached *last_run; // of the graph that was placed last
    struct ggml_cgraph *graph;     // of cur
    bool is_alloc;
    bool is_put;     // all addresses of cur are given
    bool is_running; // inside sched_run: cur is in use, and whoever is called from there must not change it
    struct sched_preserved preserved;
    bool is_carrying;  // while a graph is placed to be computed: its inputs hold what the program wrote
    bool was_reserved; // growing again is worth a line
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
    int64_t trace_start_ns;
    int64_t *in_use; // [n_backends * (n_nodes + 1)] of the graph that is traced: bytes of compute buffers at each step
    size_t in_use_cap;
    bool has_in_use;
    struct berth_sched_stats stats;
    int last_n_splits;
};

// Ops and the eval callback run while the scheduler is in the middle of its graph: what changes it is refused then, with an error
// that names the function. NULL is idle.
static inline bool sched_is_idle(const char *func, const struct ggml_backend_sched *sched) {
    if (sched == NULL || !sched->is_running) {
        return true;
    }
    berth_fail(GGML_STATUS_FAILED,
        "%s: the scheduler is computing a graph of %d nodes; its eval callback and its ops may not change it", func,
        sched->cur->rec.n_nodes);
    return false;
}

// ---- cached.c ----

// Fills rows from the graph.
enum ggml_status sched_cached_build(
    struct ggml_backend_sched *sched, struct sched_cached *cached, const struct ggml_cgraph *graph) BERTH_MUST_USE;
// Whether the graph is the memo's; then the rows' tensors are its tensors. With put, they get their addresses on the way, so that
// a graph that comes again is looked at once.
enum sched_match { SCHED_OTHER, SCHED_SAME, SCHED_SAME_PLACED };
enum sched_match sched_cached_match(
    struct ggml_backend_sched *sched, struct sched_cached *cached, const struct ggml_cgraph *graph, bool put);
void sched_cached_drop(struct sched_cached *cached); // forgets the graph, keeps the memory
void sched_cached_fini(struct sched_cached *cached);

static inline struct ggml_tensor **sched_nodes(const struct sched_cached *cached) {
    return cached->is_reordered ? cached->nodes : cached->rec.tensors;
}

// The row that runs as number i.
static inline int32_t sched_order(const struct sched_cached *cached, int32_t i) {
    return cached->is_reordered ? cached->order[i] : i;
}

// The row whose memory row i looks at.
static inline int32_t sched_base(const struct sched_cached *cached, int32_t i) {
    return cached->rows[i].base;
}

// The row that decides for row i: its root if that is not placed, else itself.
static inline int32_t sched_root(const struct sched_cached *cached, int32_t i) {
    return cached->rows[i].is_placed ? i : cached->rows[i].base;
}

// Its memory is neither placed nor given a backend yet.
static inline bool sched_is_open(const struct sched_cached *cached, int32_t i) {
    return !cached->rows[i].is_placed && cached->rows[cached->rows[i].base].backend < 0;
}

// Its memory holds weights, which no op writes.
static inline bool sched_in_weights(const struct sched_cached *cached, int32_t i) {
    return cached->rows[i].is_placed && cached->rec.rows[cached->rows[i].base].usage == GGML_BACKEND_BUFFER_USAGE_WEIGHTS;
}

// What pulls the ops that read it. What an op makes of a weight, as a view of some rows, does not: it is often smaller than
// the values that would have to cross to it (prop_sched_rival.c).
static inline bool sched_is_weight(const struct sched_cached *cached, int32_t i) {
    return cached->rec.rows[i].op == GGML_OP_NONE && sched_in_weights(cached, i);
}

// An input that the scheduler places and the program writes while other graphs are in flight: it shares its memory with nobody.
static inline bool sched_is_per_slot_input(const struct sched_cached *cached, int32_t r) {
    const struct sched_row *row = &cached->rows[r];
    return cached->n_slots > 1 && row->is_input && !row->is_placed && row->base == r && row->is_empty;
}

static inline size_t sched_nbytes(const struct sched_cached *cached, int32_t r) {
    return cached->rec.forms[cached->rec.rows[r].form].n_bytes;
}

// Memory for one pass, good until the next call, not zeroed. NULL: out of memory.
static inline void *sched_scratch(struct ggml_backend_sched *sched, size_t size) {
    return berth_grow(&sched->scratch, &sched->scratch_size, size, 1) ? sched->scratch : NULL;
}

// ---- assign.c ----

enum ggml_status sched_assign(struct ggml_backend_sched *sched, struct sched_cached *cached) BERTH_MUST_USE;
// Can backend b use the memory of row i as it is?
bool sched_reaches(const struct ggml_backend_sched *sched, const struct sched_cached *cached, int b, int32_t i);

// ---- split.c ----

// sched_optimize follows; then the memo is_split.
enum ggml_status sched_split(struct ggml_backend_sched *sched, struct sched_cached *cached) BERTH_MUST_USE;
// Lets the edges of a split lead to the copies of the slot, and back to the graph's tensors.
void sched_edges_to_copies(struct sched_cached *cached, const struct sched_split *split, int slot);
void sched_edges_to_graph(struct sched_cached *cached, const struct sched_split *split);

// ---- optimize.c ----

// Lets the backends put the nodes of their splits into an order they like better, and wish for memory to stay.
enum ggml_status sched_optimize(struct ggml_backend_sched *sched, struct sched_cached *cached) BERTH_MUST_USE;

static inline struct ggml_tensor *sched_copy_tensor(const struct sched_cached *cached, int32_t copy, int slot) {
    return &cached->tensors[cached->copies[copy].tensor + (size_t) slot];
}

// The tensor that stands for a further place of an input.
static inline struct ggml_tensor *sched_ghost(const struct sched_cached *cached, const struct sched_row *row, int slot) {
    const size_t n = (size_t) cached->n_slots;
    return &cached->tensors[(size_t) cached->n_copies * n + (size_t) row->slots / n * (n - 1) + (size_t) slot - 1];
}

// ---- plan.c ----

// Rows that are appended for a plan, see plan.c: of a further place of an input, of a copy.
static inline int32_t sched_ghost_row(const struct sched_cached *cached, const struct sched_row *row, int slot) {
    return cached->rec.n_rows + row->slots / cached->n_slots * (cached->n_slots - 1) + slot - 1;
}
static inline int32_t sched_copy_row(const struct sched_cached *cached, int32_t copy, int slot) {
    return cached->rec.n_rows + cached->n_inputs * (cached->n_slots - 1) + copy * cached->n_slots + slot;
}

// What a plan is for: sizes alone; a graph that is reserved, and the plan kept; a graph that is placed, by any plan that is good
// for it: its own, or that of a reserved graph with its rows and edges that is nowhere smaller.
enum sched_plan_use { SCHED_PLAN_OWN, SCHED_PLAN_KEPT, SCHED_PLAN_ANY };

// The memory plan of a split graph into sched->plan. No buffer is touched.
enum ggml_status sched_plan(
    struct ggml_backend_sched *sched, struct sched_cached *cached, enum sched_plan_use use) BERTH_MUST_USE;
// Keeps the plan that was made last, of a graph that is reserved; the oldest ones make room. False: out of memory.
bool sched_plan_keep(struct ggml_backend_sched *sched) BERTH_MUST_USE;
void sched_plans_free(struct ggml_backend_sched *sched);

// ---- place.c ----

// What the backends' buffers would need for this graph; nothing is allocated.
enum ggml_status sched_measure(struct ggml_backend_sched *sched, struct sched_cached *cached, size_t *sizes) BERTH_MUST_USE;
enum ggml_status sched_get_buffers(
    struct ggml_backend_sched *sched, struct sched_cached *cached, enum sched_plan_use use) BERTH_MUST_USE;
// Whether the memo's places are good for the buffers as they are.
static inline bool sched_has_places(const struct ggml_backend_sched *sched, const struct sched_cached *cached) {
    return cached->epoch != 0 && cached->epoch == berth_galloc_epoch(sched->galloc);
}
// Gives every tensor of the graph its address.
enum ggml_status sched_place(struct ggml_backend_sched *sched, struct sched_cached *cached) BERTH_MUST_USE;
// Copies are where the plan at hand has them.
void sched_note_copies(struct ggml_backend_sched *sched, struct sched_cached *cached);
// Is every tensor where its row says? One that stands at two rows is not, nor one that its buffer has put elsewhere.
bool sched_is_all_put(const struct sched_cached *cached);

// ---- preserved.c ----

// Takes the inputs that the scheduler has placed out of their places, once; then the graph is placed, or not; then they are given
// their bytes, or their old places.
enum ggml_status sched_preserved_save(struct ggml_backend_sched *sched, const struct ggml_cgraph *graph) BERTH_MUST_USE;
void sched_preserved_restore(struct ggml_backend_sched *sched);
// Room for the inputs of a graph.
bool sched_preserved_reserve(struct ggml_backend_sched *sched, const struct sched_cached *cached) BERTH_MUST_USE;

// ---- reserve.c ----

// Buffers, and all else that computing the graph takes, or one of its rows and edges that is nowhere larger.
enum ggml_status sched_reserve(struct ggml_backend_sched *sched, struct sched_cached *cached) BERTH_MUST_USE;
// What that takes of each backend beside buffers, and of the host.
void sched_work_sizes(struct ggml_backend_sched *sched, struct sched_cached *cached, size_t *sizes);

// ---- run.c ----

// The nodes i0 to i1 in execution order, as a graph of their own.
static inline struct ggml_cgraph sched_part(
    const struct ggml_backend_sched *sched, const struct sched_cached *cached, int32_t i0, int32_t i1) {
    return (struct ggml_cgraph){
        .n_nodes = i1 - i0,
        .nodes = sched_nodes(cached) + i0,
        .use_counts = sched->graph->use_counts,
        .visited_hash_set = sched->graph->visited_hash_set,
        .order = sched->graph->order,
    };
}

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
enum berth_sched_reason sched_reason(struct ggml_backend_sched *sched, struct sched_cached *cached, int32_t row);
// What ended now; the name is that of the tensor that was copied or computed, NULL: the split was. NULL: no memory for it, which
// is counted.
struct sched_trace_event *sched_trace_add(
    struct ggml_backend_sched *sched, enum sched_trace_kind kind, const char *name, int split, int backend, int64_t start_ns);
// Nanoseconds; what is in use at each step of a graph that is to run, false: no memory to find out; the nodes of a split one by
// one, each a bar.
int64_t sched_trace_now(void);
bool sched_trace_memory(struct ggml_backend_sched *sched, const struct sched_cached *cached) BERTH_MUST_USE;
enum ggml_status sched_trace_ops(struct ggml_backend_sched *sched, struct sched_cached *cached, int32_t i_split) BERTH_MUST_USE;
