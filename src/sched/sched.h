// SPDX-License-Identifier: MIT
// sched.h: the state of the scheduler, and the passes over it.
//
//   graph --src/record--> rows --assign.c--> backends --split.c--> splits, copies --plan.c, place.c--> addresses
//   addresses --run.c, early.c, resident.c--> computed tensors
//
// A cached graph (struct sched_cached) holds a record of one graph and the results of all passes. If a new graph matches a cached
// graph, the scheduler only sets the addresses of the new graph's tensors.
// The scheduler changes only the addresses in the caller's graph, with one exception: while a backend optimizes, reserves or
// computes a split, copies replace the sources that are on other backends.
//
// Terms:
// - A row is the entry of one tensor in the record.
// - The base of a row is the row of the tensor that owns the memory: for a view the viewed tensor, otherwise the row itself.
// - A slot is the separate memory of one graph in flight. A scheduler with 4 slots can have 4 graphs in flight.
// - A form is the type, shape and op of a tensor (src/record/record.h).
#pragma once

#include "alloc/alloc.h"
#include "backend/backend.h"
#include "berth-sched.h"
#include "core/optable.h"

#include <time.h>

#define SCHED_N_CACHED 2 // for example, alternating prefill and decode graphs

// Backends that the caller chose (ggml_backend_sched_set_tensor_backend).
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

// The scheduler's columns of a row. If the caller has not given memory to a base, the fields `backend`, `reason` and `refused` of
// the base apply to all its views. If a graph lists a tensor twice, the second row counts as a view of the first.
struct sched_row {
    int32_t base;           // record_base() of the row
    int32_t slots;          // per-slot input: first index in cached.slot_places; otherwise -1
    int16_t caller_backend; // backend that the caller chose, -1: none
    int16_t backend;        // assigned backend, -1: none
    int16_t refused;        // preferred backend that cannot run the op, -1: none
    uint8_t reason;         // enum berth_sched_reason: why `backend` was chosen
    bool is_placed;         // the base has memory of the caller
    bool is_empty;          // nothing to compute
    bool is_input;          // the tensor has GGML_TENSOR_FLAG_INPUT
    bool reads_weight;
    bool is_weight_owner_refused; // `refused` is the backend that owns a weight of the op
};

// A copy of a tensor on another backend. A node that writes into the memory of a tensor starts a new version of its bytes. Each
// version has its own copy.
struct sched_copy {
    int32_t row;              // the copied tensor
    int32_t version;          // number of earlier nodes that write the base
    int32_t next;             // next copy of the same row, -1: last
    int16_t backend;          // backend that reads the copy
    int16_t from;             // backend of the source memory, -1: none
    int16_t writer;           // backend that computed these bytes, -1: written before the first node
    bool copies_caller_bytes; // the source is an input of the caller; it is copied before compute returns
    bool is_early;            // a weight that may be copied while the split before its readers runs (early.c)
    int32_t resident;         // index in sched.residents.list of the memory of the copy (resident.c), -1: planned memory
    size_t tensor;            // index of the first of n_slots tensors in cached.tensors
};

// A source on another backend than its node. While the split is computed, the copy replaces the source.
struct sched_edge {
    int32_t node; // row of the node
    int32_t copy; // index in cached.copies
    int32_t src;  // index in rec.srcs
};

// A lifetime request of a backend: a tensor keeps its memory until a node has run.
struct sched_dep {
    int32_t row, copy; // the tensor: a row, or a copy if row is -1
    int32_t until;     // row of the node
    int32_t next;      // next request with the same `until`, -1: last
};

struct sched_split {
    int32_t i_start, i_end;   // [i_start, i_end) in cached.order
    int32_t copies, n_copies; // its copies in cached.copies
    int32_t n_early;          // number of early copies among them
    int32_t edges, n_edges;   // its edges in cached.edges
    int16_t backend;
    uint64_t uid; // equal uids mean equal nodes at equal addresses; backends may rely on it
};

struct sched_cached {
    struct record rec;
    struct sched_row *rows;      // [n_rows] rec.columns
    struct record_place *places; // [n_rows] addresses; valid for `epoch`
    size_t places_cap;
    int32_t n_writers;   // nodes that write through a view
    bool writes_weights; // some node writes a weight
    bool has_views;      // some row is a view
    bool has_choices;    // the caller chose a backend for some row

    struct ggml_tensor **nodes; // [n_nodes] in execution order; valid if is_reordered
    int32_t *order;             // [n_nodes] rows of nodes
    size_t nodes_cap, order_cap;
    bool is_reordered;

    struct sched_split *splits;
    struct sched_copy *copies;
    struct sched_edge *edges;
    struct sched_dep *deps;
    struct ggml_tensor *tensors;      // [n_copies * n_slots], then [n_inputs * (n_slots - 1)]
    struct record_place *slot_places; // [n_inputs * n_slots] places of the inputs
    int32_t n_splits, n_copies, n_edges, n_deps, n_inputs;
    size_t splits_cap, copies_cap, edges_cap, deps_cap, tensors_cap, slot_places_cap;
    int n_slots;    // sched->n_slots when the graph was split
    int uid_slot;   // slot for which the uids of the splits (sched_split.uid) are valid, -1: none
    bool *conflict; // [n_backends * n_backends] [a][b]: backends a and b use the same memory; valid if has_conflict
    bool has_conflict;

    bool is_split;             // all passes up to sched_optimize have succeeded
    int64_t residents_version; // sched->residents.version when the graph was split
    bool has_tried_residents;  // sched_residents_add has been called since
    bool has_tried_fill;       // sched_residents_fill has been called since
    uint64_t epoch;            // buffer epoch for which `places` is valid, 0: none
    int64_t used;              // sched->clock at the last use
};

// Saved contents of inputs while a graph gets new addresses (preserve_inputs.c).
struct sched_preserved {
    bool is_saved;                // saved since the last restore
    struct preserved_input *list; // [n]
    char *bytes;                  // [n_bytes] contents, one input after the other
    size_t n, cap, n_bytes, bytes_cap;
};

// ---- the scheduler ----

// Copies weights to a backend's device while the backend computes (early.c).
struct sched_copier {
    ggml_backend_t backend;      // another backend of the same device, NULL: none
    ggml_backend_event_t before; // end of the work that the backend had when the copier started
    ggml_backend_event_t after;  // end of the copies
    bool in_flight;              // has received copies since the last wait
};

// A copy of a weight of the host that stays in the memory of a device (resident.c).
struct sched_resident {
    const void *data; // the weight: its address and its bytes
    size_t size;
    struct ggml_tensor *copy; // NULL: a node writes the weight, so it has no resident copy
    int16_t backend;          // backend of the device
    bool is_filled;           // the copy has the bytes of the weight
};

// Resident copies that were allocated together.
struct sched_resident_group {
    struct ggml_context *ctx;
    ggml_backend_buffer_t buffer;
    struct sched_resident_group *next;
};

struct sched_residents {
    struct sched_resident *list;
    int32_t n;
    int32_t next; // index at which the next search starts
    size_t cap;
    struct sched_resident_group *groups;
    size_t *limits, *used;  // [n_backends] bytes; a limit may be BERTH_SCHED_RESIDENT_AUTO
    uint64_t weights_epoch; // berth_weights_epoch() at the last check
    int64_t version;        // counts changes of the list and of is_filled
    bool has_new;           // the running graph has filled a copy
    bool assumes_filled;    // all copies count as filled, while memory is reserved
    struct berth_holder holder;
    bool is_listed; // berth_reclaim asks the holder; only the scheduler's own calls read and write this
    int n_calls;    // calls of the scheduler in progress, one inside the other
};

enum sched_trace_kind { SCHED_TRACE_SPLIT, SCHED_TRACE_COPY, SCHED_TRACE_OP };

struct sched_trace_event {
    char name[GGML_MAX_NAME];
    const char *op; // name of the op
    int64_t start_ns, end_ns;
    int64_t cpu_ns; // CPU time of all threads; SCHED_TRACE_OP only
    int64_t in_use; // bytes of compute buffers, -1: unknown; SCHED_TRACE_OP only
    size_t bytes;   // copied or read
    size_t written; // bytes; SCHED_TRACE_OP only
    double flops;   // SCHED_TRACE_OP only
    int32_t split, n_nodes;
    int16_t backend;
    uint8_t kind; // enum sched_trace_kind
};

struct ggml_backend_sched {
    struct berth_arrays mem;         // owns all arrays per backend up to n_backends
    ggml_backend_t *backends;        // [n_backends] NULL: the program has freed the backend
    struct berth_backend_list watch; // clears entries of backends when the program frees them
    ggml_backend_buffer_type_t *bufts;
    bool *reaches;                // [n_backends * n_backends] [a][b]: backend a can use memory of backend b's buffer type
    size_t *limits;               // [n_backends] memory limits in bytes, 0: none
    size_t *sizes;                // [n_backends] scratch: sizes that a plan requires
    bool has_same_bufts;          // some backends have the same buffer type
    int *first_same_buft;         // [n_backends] the first backend with the same buffer type
    bool *in_flight;              // [n_backends] has received work since the last wait
    struct sched_copier *copiers; // [n_backends] valid if has_copiers
    bool has_copiers;
    bool may_copy_early; // BERTH_SCHED_EARLY_COPIES is not 0, and memory has sufficed
    int32_t early_split; // split whose early copies have been started, -1: none
    struct sched_residents residents;
    int n_backends;
    bool op_offload;
    int offload_min_batch; // GGML_OP_OFFLOAD_MIN_BATCH, 0: the devices decide
    bool is_strict;
    int debug; // GGML_SCHED_DEBUG

    void *scratch; // used by one pass at a time
    size_t scratch_size;
    ggml_gallocr_t galloc;
    struct galloc_plan *plan;     // plan of the last planned graph: `spare` or one of `kept`; NULL: none
    struct galloc_plan *spare;    // the next graph is planned here; NULL: none yet
    struct galloc_plan **kept;    // [n_kept] plans of reserved graphs, the newest last
    struct sched_cached *planned; // the graph of `plan`, NULL: its cache entry has been reused
    size_t n_kept, kept_cap;
    struct berth_staging staging;

    struct sched_choices chosen;
    struct sched_cached cached_graphs[SCHED_N_CACHED];
    struct sched_cached *cur;      // the last split graph, NULL after reset
    struct sched_cached *last_run; // the last placed graph
    struct ggml_cgraph *graph;     // graph of cur
    bool is_graph_allocated;       // graph has been planned and all its tensors have addresses
    bool is_placed_by_match;       // sched_cached_match has set the addresses of all tensors of cur
    bool is_running;               // inside sched_run: cur must not change
    struct sched_preserved preserved;
    bool preserves_inputs; // inputs keep their contents while a graph is placed
    bool logs_growth;      // later growth of buffers is logged
    int64_t clock;         // number of graphs that were prepared

    int n_slots; // number of graphs in flight
    int slot;    // slot of the current graph, < n_slots
    int next_slot;
    ggml_backend_event_t
        *events;       // [n_backends * n_event_slots] end of the backend's work on the slot's last graph, NULL: no events
    bool *recorded;    // [n_backends * n_event_slots] the slot may be used only after this event
    int n_event_slots; // slots that events and recorded have

    ggml_backend_sched_eval_callback callback;
    void *callback_data;

    bool is_tracing;
    struct sched_trace_event *trace;
    size_t n_trace, trace_cap;
    size_t n_trace_lost; // events lost because memory ran out
    int64_t trace_start_ns;
    int64_t *in_use; // [n_backends * (n_nodes + 1)] of the traced graph: bytes of compute buffers in use at each step
    size_t in_use_cap;
    bool has_in_use;
    struct berth_sched_stats stats;
    int last_n_splits;
};

// Returns whether the scheduler may be changed. If an op or the eval callback calls a function that changes the scheduler, the
// call fails with an error that names the function. If sched is NULL, the result is true.
static inline bool sched_is_idle(const char *func, const struct ggml_backend_sched *sched) {
    if (sched == NULL || !sched->is_running) {
        return true;
    }
    berth_fail(GGML_STATUS_FAILED,
        "%s: the scheduler is computing a graph of %d nodes; its eval callback and its ops may not change it", func,
        sched->cur->rec.n_nodes);
    return false;
}

// ---- graph_cache.c ----

// Builds the record and the columns of the graph.
enum ggml_status sched_cached_build(
    struct ggml_backend_sched *sched, struct sched_cached *cached, const struct ggml_cgraph *graph) BERTH_MUST_USE;
// Compares the graph with the cached graph. If they are equal, the rows of the cached graph then refer to the tensors of `graph`.
// If with_places is true and the cached addresses are valid, a match also sets the addresses and returns SCHED_SAME_PLACED.
enum sched_match { SCHED_OTHER, SCHED_SAME, SCHED_SAME_PLACED };
enum sched_match sched_cached_match(
    struct ggml_backend_sched *sched, struct sched_cached *cached, const struct ggml_cgraph *graph, bool with_places);
void sched_cached_drop(struct sched_cached *cached); // forgets the graph, keeps the memory
void sched_cached_fini(struct sched_cached *cached);

static inline struct ggml_tensor **sched_nodes(const struct sched_cached *cached) {
    return cached->is_reordered ? cached->nodes : cached->rec.tensors;
}

// Returns the row of the i-th node in execution order.
static inline int32_t sched_order(const struct sched_cached *cached, int32_t i) {
    return cached->is_reordered ? cached->order[i] : i;
}

static inline int32_t sched_base(const struct sched_cached *cached, int32_t i) {
    return cached->rows[i].base;
}

// Returns the row that decides the backend of row i: row i itself if the caller has given memory to its base, otherwise the base.
static inline int32_t sched_decider(const struct sched_cached *cached, int32_t i) {
    return cached->rows[i].is_placed ? i : cached->rows[i].base;
}

// Returns true if the memory of row i is neither placed by the caller nor assigned to a backend.
static inline bool sched_is_unassigned(const struct sched_cached *cached, int32_t i) {
    return !cached->rows[i].is_placed && cached->rows[cached->rows[i].base].backend < 0;
}

// Returns true if the memory of row i holds weights, which no op writes.
static inline bool sched_is_in_weights(const struct sched_cached *cached, int32_t i) {
    return cached->rows[i].is_placed && cached->rec.rows[cached->rows[i].base].usage == GGML_BACKEND_BUFFER_USAGE_WEIGHTS;
}

// Returns true if row i is a weight: ops that read row i should run on the backend that owns the weight. A view of a weight is
// not a weight here, because the view is often smaller than the op's other sources (tests/prop/prop_sched_rival.c).
static inline bool sched_is_weight(const struct sched_cached *cached, int32_t i) {
    return cached->rec.rows[i].op == GGML_OP_NONE && sched_is_in_weights(cached, i);
}

// Returns true for an input that needs one address per slot, because the program writes the input while other graphs are in
// flight. The memory of such an input belongs to no other tensor.
static inline bool sched_is_per_slot_input(const struct sched_cached *cached, int32_t r) {
    const struct sched_row *row = &cached->rows[r];
    return cached->n_slots > 1 && row->is_input && !row->is_placed && row->base == r && row->is_empty;
}

static inline size_t sched_nbytes(const struct sched_cached *cached, int32_t r) {
    return cached->rec.forms[cached->rec.rows[r].form].n_bytes;
}

// Returns memory for one pass, not zeroed, valid until the next call. NULL: out of memory.
static inline void *sched_scratch(struct ggml_backend_sched *sched, size_t size) {
    return berth_grow(&sched->scratch, &sched->scratch_size, size, 1) ? sched->scratch : NULL;
}

// ---- assign.c ----

enum ggml_status sched_assign(struct ggml_backend_sched *sched, struct sched_cached *cached) BERTH_MUST_USE;
// Returns true if backend b can use the memory of row i without a copy.
bool sched_reaches(const struct ggml_backend_sched *sched, const struct sched_cached *cached, int b, int32_t i);

// ---- split.c ----

// Cuts the graph into splits. After sched_optimize, the caller sets cached->is_split.
enum ggml_status sched_split(struct ggml_backend_sched *sched, struct sched_cached *cached) BERTH_MUST_USE;
void sched_edges_to_copies(struct sched_cached *cached, const struct sched_split *split, int slot);
void sched_edges_to_graph(struct sched_cached *cached, const struct sched_split *split);

// ---- optimize.c ----

// Lets the backends change the order of nodes within their splits and request longer lifetimes.
enum ggml_status sched_optimize(struct ggml_backend_sched *sched, struct sched_cached *cached) BERTH_MUST_USE;

static inline struct ggml_tensor *sched_copy_tensor(const struct sched_cached *cached, int32_t copy, int slot) {
    return &cached->tensors[cached->copies[copy].tensor + (size_t) slot];
}

// Returns the tensor of an input in a slot > 0. In slot 0, the input itself is used.
static inline struct ggml_tensor *sched_slot_tensor(const struct sched_cached *cached, const struct sched_row *row, int slot) {
    const size_t n = (size_t) cached->n_slots;
    return &cached->tensors[(size_t) cached->n_copies * n + (size_t) row->slots / n * (n - 1) + (size_t) slot - 1];
}

// ---- plan.c ----

// Return the rows that sched_plan appends for a slot of an input (slot > 0) and for a copy.
static inline int32_t sched_slot_row(const struct sched_cached *cached, const struct sched_row *row, int slot) {
    return cached->rec.n_rows + row->slots / cached->n_slots * (cached->n_slots - 1) + slot - 1;
}
static inline int32_t sched_copy_row(const struct sched_cached *cached, int32_t copy, int slot) {
    return cached->rec.n_rows + cached->n_inputs * (cached->n_slots - 1) + copy * cached->n_slots + slot;
}

// Purpose of a plan. MEASURE: only its sizes are read. RESERVE: the plan is kept. PLACE: the tensors of the graph get addresses.
// PLACE may use the kept plan of a reserved graph. For that, the reserved graph must have the same rows and edges as the placed
// graph, and none of its tensors may be smaller.
enum sched_plan_use { SCHED_PLAN_MEASURE, SCHED_PLAN_RESERVE, SCHED_PLAN_PLACE };

// Makes sched->plan for a split graph. Allocates no buffer.
enum ggml_status sched_plan(
    struct ggml_backend_sched *sched, struct sched_cached *cached, enum sched_plan_use use) BERTH_MUST_USE;
// Keeps the last plan. If there are too many plans, the oldest is dropped. False: out of memory.
bool sched_plan_keep(struct ggml_backend_sched *sched) BERTH_MUST_USE;
void sched_plans_free(struct ggml_backend_sched *sched);

// ---- place.c ----

// Computes the buffer size that the graph requires on each backend. Allocates no buffer.
enum ggml_status sched_measure(struct ggml_backend_sched *sched, struct sched_cached *cached, size_t *sizes) BERTH_MUST_USE;
enum ggml_status sched_get_buffers(
    struct ggml_backend_sched *sched, struct sched_cached *cached, enum sched_plan_use use) BERTH_MUST_USE;
// Returns true if the stored addresses are valid for the current buffers.
static inline bool sched_has_places(const struct ggml_backend_sched *sched, const struct sched_cached *cached) {
    return cached->epoch != 0 && cached->epoch == berth_galloc_epoch(sched->galloc);
}
// Assigns an address to every tensor of the graph.
enum ggml_status sched_place(struct ggml_backend_sched *sched, struct sched_cached *cached) BERTH_MUST_USE;
// Sets the addresses of the copies from the current plan.
void sched_place_copies(struct ggml_backend_sched *sched, struct sched_cached *cached);
// Returns true if every tensor has the address of its row. False if a tensor has two rows, or a buffer changed an address.
bool sched_is_all_placed(const struct sched_cached *cached);

// ---- preserve_inputs.c ----

// Saves the contents of the inputs that the scheduler has placed, and clears their addresses. A second call does nothing.
enum ggml_status sched_preserved_save(struct ggml_backend_sched *sched, const struct ggml_cgraph *graph) BERTH_MUST_USE;
// Writes the contents to the new addresses. An input without a new address gets its old address back.
void sched_preserved_restore(struct ggml_backend_sched *sched);
bool sched_preserved_reserve(struct ggml_backend_sched *sched, const struct sched_cached *cached) BERTH_MUST_USE;

// ---- reserve.c ----

// Reserves all memory that computing the graph requires. The memory also suffices if tensors of the graph become smaller later.
enum ggml_status sched_reserve(struct ggml_backend_sched *sched, struct sched_cached *cached) BERTH_MUST_USE;
// Computes the bytes that sched_reserve allocates besides buffers: work memory per backend, and staging memory on the host.
void sched_work_sizes(struct ggml_backend_sched *sched, struct sched_cached *cached, size_t *sizes);

// ---- run.c ----

// Returns the nodes [i0, i1) in execution order as a graph.
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
// Waits for the backends that have work of this scheduler.
void sched_finish(struct ggml_backend_sched *sched);
// Waits for all backends. A failure that a backend has stored remains stored for the next report.
void sched_drain(struct ggml_backend_sched *sched);
// Waits for all backends. Returns the first failure, with the name of the backend in the last error.
enum ggml_status sched_wait_all(struct ggml_backend_sched *sched) BERTH_MUST_USE;
// Waits until no graph uses the slot.
void sched_wait_slot(struct ggml_backend_sched *sched, int slot);
enum ggml_status sched_events_init(struct ggml_backend_sched *sched) BERTH_MUST_USE;
void sched_events_fini(struct ggml_backend_sched *sched);

// ---- early.c ----

// Returns true if weight r can be copied to backend b before the split that reads it starts. The last split reads it.
bool sched_copies_early(struct ggml_backend_sched *sched, const struct sched_cached *cached, int32_t r, int b);
bool sched_has_early_copies(const struct sched_cached *cached);
// Makes the copier allocate the memory that copying the split's weights requires.
void sched_early_reserve(struct ggml_backend_sched *sched, const struct sched_cached *cached, const struct sched_split *split);
// Call it before the nodes of the preceding split are computed. Returns true if sched_early_start may then copy the weights of the
// split. i_split may be the number of splits.
bool sched_early_prepare(struct ggml_backend_sched *sched, const struct sched_cached *cached, int32_t i_split);
enum ggml_status sched_early_start(struct ggml_backend_sched *sched, struct sched_cached *cached, int32_t i_split) BERTH_MUST_USE;
// Lets the backend of early_split wait for the early copies.
void sched_early_join(struct ggml_backend_sched *sched, const struct sched_cached *cached);
// Waits until all early copies have ended.
void sched_early_wait(struct ggml_backend_sched *sched);
void sched_early_fini(struct ggml_backend_sched *sched);

// ---- resident.c ----

// Returns true if row r is a weight in memory of the host.
bool sched_is_host_weight(const struct sched_cached *cached, int32_t r);
// Returns the index in the list of the resident copy of weight r on backend b, or -1.
int32_t sched_resident_find(struct ggml_backend_sched *sched, const struct sched_cached *cached, int32_t r, int b);
// Returns true if nothing has to be copied before the copy can be read. i may be -1, which is no resident copy.
static inline bool sched_resident_is_ready(const struct ggml_backend_sched *sched, int32_t i) {
    return i >= 0 && (sched->residents.list[i].is_filled || sched->residents.assumes_filled);
}
// Returns true if the resident copies of the split graph are still those of its weights.
bool sched_resident_is_valid(struct ggml_backend_sched *sched, const struct sched_cached *cached);
// Adds resident copies of the weights that the split graph copies, and allocates their memory. Returns true if there are new
// ones; the graph must then be split again.
bool sched_residents_add(struct ggml_backend_sched *sched, struct sched_cached *cached);
// Replaces BERTH_SCHED_RESIDENT_AUTO by a number of bytes, if the graph has copies that may become resident. Call it once the
// compute buffers of the graph are allocated. Returns true if sched_residents_add must be called once more.
bool sched_residents_choose_limits(struct ggml_backend_sched *sched, struct sched_cached *cached);
// Fills the resident copies of all weights that the graph reads, unless the graph itself copies one of them. A graph that was split
// before must then be split again.
enum ggml_status sched_residents_fill(struct ggml_backend_sched *sched, struct sched_cached *cached) BERTH_MUST_USE;
bool sched_residents_has_unfilled(const struct ggml_backend_sched *sched);
// Removes the copies of weights that a node of the graph writes.
void sched_residents_exclude_written(struct ggml_backend_sched *sched, const struct sched_cached *cached);
void sched_resident_filled(struct ggml_backend_sched *sched, int32_t i);
// Call it when a graph has run.
void sched_residents_end(struct ggml_backend_sched *sched, enum ggml_status status);
// All copies must be filled again.
void sched_residents_clear(struct ggml_backend_sched *sched);
// Clears the copies if the program has changed weights since the last call.
void sched_residents_check(struct ggml_backend_sched *sched);
// Call it after all nodes of the graph have run without a failure. Changes of weights by these nodes then do not count as changes
// since the last check, unless one of these weights has a resident copy.
void sched_residents_skip_own_writes(struct ggml_backend_sched *sched, const struct sched_cached *cached);
// Frees all copies. The backends must be idle.
void sched_residents_free(struct ggml_backend_sched *sched);

// ---- reclaim.c ----

// Between these calls, no other thread frees the resident copies. The calls may be nested.
void sched_hold(struct ggml_backend_sched *sched);
void sched_let_go(struct ggml_backend_sched *sched);
// Waits for the scheduler's work, frees all copies and adds none from now on. Writes one line to the log, with the reason.
void sched_residents_disable(struct ggml_backend_sched *sched, const char *why);
// Call it at the end of the scheduler, after sched_hold.
void sched_holder_fini(struct ggml_backend_sched *sched);

// ---- explain.c, trace.c ----

void sched_explain_log(struct ggml_backend_sched *sched);
enum berth_sched_reason sched_reason(struct ggml_backend_sched *sched, struct sched_cached *cached, int32_t row);
// Adds an event that ends now. name: the copied or computed tensor; NULL for a split. Returns NULL if memory runs out; the event
// is then lost.
struct sched_trace_event *sched_trace_add(
    struct ggml_backend_sched *sched, enum sched_trace_kind kind, const char *name, int split, int backend, int64_t start_ns);
int64_t sched_trace_now(void); // nanoseconds of a monotonic clock
// Computes sched->in_use. False: out of memory.
bool sched_trace_memory(struct ggml_backend_sched *sched, const struct sched_cached *cached) BERTH_MUST_USE;
// Computes the nodes of a split one by one, with one event per op.
enum ggml_status sched_trace_ops(struct ggml_backend_sched *sched, struct sched_cached *cached, int32_t i_split) BERTH_MUST_USE;
