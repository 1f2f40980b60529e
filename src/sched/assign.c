// SPDX-License-Identifier: MIT
// assign.c: chooses a backend for every tensor of a graph, and records the reason for the choice.
//
// The passes run in this order:
// 1. assign_fixed: the caller's choices, tensors with memory, inputs (on the host, the last backend), and ops that read weights.
// 2. spread_down, spread_up: ops between assigned ops get the backend of a neighbour, devices before the host. Between two
//    devices, border_find chooses the border that the fewest bytes cross.
// 3. assign_rest: each remaining op goes to the backend that can use most of its source bytes without a copy.
//
// Invariant: memory that the scheduler allocates belongs to one backend, and only that backend runs ops that write into the
// memory. So a base and all its views get the same backend. The decider of a row (sched_decider) is the row that stores this
// backend: the base, or the row itself if the caller has given memory to the base. The cost is O(edges * backends).

#include "sched/sched.h"

#include "base/min.h"
#include "core/op.h"

#include <string.h>

// ---- state of all passes ----

struct assign {
    struct ggml_backend_sched *sched;
    struct sched_cached *cached;
    uint8_t *support;         // [n_nodes * n_backends] 0: not asked yet, 1: supported, 2: not supported
    int32_t *next_writer;     // [n_rows] next node that writes the memory of the same decider, -1: end
    int host;                 // index of the host backend
    int32_t n_spreadable;     // upper bound of the number of nodes without a backend
    uint64_t *border_diff;    // [n_nodes + 2] scratch of border_find: difference array of the bytes that cross each border
    bool has_unassigned_leaf; // some leaf has no backend yet
};

static inline bool assign_supports(struct assign *a, int b, int32_t node) {
    uint8_t *support = &a->support[(size_t) node * (size_t) a->sched->n_backends + (size_t) b];
    if (*support == 0) {
        *support = ggml_backend_supports_op(a->sched->backends[b], a->cached->rec.tensors[node]) ? 1 : 2;
    }
    return *support == 1;
}

// Returns true if row r is a node with something to compute. False for leafs and for nodes such as views.
static inline bool assign_has_work(const struct assign *a, int32_t r) {
    return r < a->cached->rec.n_nodes && !a->cached->rows[r].is_empty;
}

static inline int32_t assign_writer_after(const struct assign *a, int32_t r) {
    return a->next_writer != NULL ? a->next_writer[r] : -1;
}

// Returns true if backend b supports the op of row r and every op that writes into the memory of r.
static inline bool assign_can_run(struct assign *a, int b, int32_t r) {
    if (assign_has_work(a, r) && !assign_supports(a, b, r)) {
        return false;
    }
    for (int32_t w = assign_writer_after(a, r); w >= 0; w = assign_writer_after(a, w)) {
        if (!assign_supports(a, b, w)) {
            return false;
        }
    }
    return true;
}

static bool assign_uses_buft(const struct ggml_backend_sched *sched, int b, ggml_backend_buffer_type_t buft) {
    return buft == NULL ? b == sched->n_backends - 1 : // an address without a buffer is host memory
               ggml_backend_supports_buft(sched->backends[b], buft);
}

static inline bool assign_has_backend(const struct assign *a, int32_t r) {
    return a->cached->rows[sched_decider(a->cached, r)].backend >= 0;
}

static inline int assign_backend_of(const struct assign *a, int32_t r) {
    return a->cached->rows[sched_decider(a->cached, r)].backend;
}

static void assign_set(struct assign *a, int32_t r, int b, enum berth_sched_reason reason) {
    struct sched_row *row = &a->cached->rows[sched_decider(a->cached, r)];
    row->backend = (int16_t) b;
    row->reason = (uint8_t) reason;
}

// Records in row.refused that backend b cannot run the op. If several backends cannot, the owner of the op's weight is recorded
// (assign_by_weight), or else the backend with the lowest index.
static void assign_refuse(struct assign *a, int32_t decider, int b) {
    struct sched_row *row = &a->cached->rows[decider];
    if (!row->is_weight_owner_refused && (row->refused < 0 || b < row->refused)) {
        row->refused = (int16_t) b;
    }
}

static bool assign_set_if_able(struct assign *a, int32_t r, int b, enum berth_sched_reason reason) {
    const int32_t decider = sched_decider(a->cached, r);
    if (assign_can_run(a, b, decider)) {
        assign_set(a, decider, b, reason);
        a->n_spreadable--;
        return true;
    }
    assign_refuse(a, decider, b);
    return false;
}

bool sched_reaches(const struct ggml_backend_sched *sched, const struct sched_cached *cached, int b, int32_t i) {
    const int32_t base = sched_base(cached, i);
    if (cached->rows[i].is_placed) {
        return assign_uses_buft(sched, b, cached->rec.rows[base].buft);
    }
    const int owner = cached->rows[base].backend;
    return owner >= 0 && sched->reaches[(size_t) b * (size_t) sched->n_backends + (size_t) owner];
}

// ---- tensors that the caller, memory or weights decide ----

// Returns the first backend that can use memory of type buft and run the op of the node; -1: none.
static int first_for_buft(struct assign *a, ggml_backend_buffer_type_t buft, int32_t node) {
    for (int b = 0; b < a->sched->n_backends; b++) {
        if (assign_uses_buft(a->sched, b, buft) && (!assign_has_work(a, node) || assign_supports(a, b, node))) {
            return b;
        }
    }
    return -1;
}

static enum ggml_status assign_by_memory(struct assign *a, int32_t r) {
    struct sched_cached *cached = a->cached;
    const ggml_backend_buffer_type_t buft = cached->rec.rows[sched_base(cached, r)].buft;
    struct sched_row *row = &cached->rows[r];
    const bool is_chosen =
        assign_has_work(a, r) && row->caller_backend >= 0; // the caller's choice applies to the op, not to its memory
    const int b = is_chosen ? row->caller_backend : first_for_buft(a, buft, r);
    const struct ggml_tensor *t = cached->rec.tensors[r];
    row->backend = (int16_t) b;
    row->reason = is_chosen ? BERTH_SCHED_CALLER : BERTH_SCHED_PLACED;
    if (assign_has_work(a, r) && (b < 0 || !assign_uses_buft(a->sched, b, buft))) {
        return berth_fail(GGML_STATUS_FAILED, "scheduler: %s (%s) writes into memory of type %s, which %s", berth_name_of(t),
            ggml_op_name(t->op), buft != NULL ? ggml_backend_buft_name(buft) : "host",
            b >= 0 ? "the backend chosen for it cannot use" : "no backend can use");
    }
    return GGML_STATUS_SUCCESS;
}

// Returns the number of tokens that an op processes at once. Copying a weight to a device pays only for many tokens.
static int64_t batch_of(const struct ggml_tensor *t) {
    switch (t->op) {
        case GGML_OP_GET_ROWS: return 0; // reads few rows of its weight
        case GGML_OP_MUL_MAT: return t->ne[1];
        case GGML_OP_MUL_MAT_ID:
        case GGML_OP_ROPE: return t->ne[2];
        default: return ggml_nrows(t);
    }
}

static bool can_offload(struct assign *a, int b, int32_t node) {
    const struct ggml_tensor *t = a->cached->rec.tensors[node];
    return (a->sched->offload_min_batch <= 0 || batch_of(t) >= a->sched->offload_min_batch) && assign_supports(a, b, node) &&
           ggml_backend_offload_op(a->sched->backends[b], t);
}

// Assigns the node to a device that offloads the op, or else to the first backend that can use the weight (memory of type buft).
// False: no such backend can run the op.
static bool assign_by_weight(struct assign *a, int32_t node, ggml_backend_buffer_type_t buft) {
    struct sched_row *decider = &a->cached->rows[sched_decider(a->cached, node)];
    const int b = first_for_buft(a, buft, node);
    if (a->sched->op_offload && b == a->host && ggml_backend_buft_is_host(buft)) {
        for (int d = 0; d < b; d++) {
            if (can_offload(a, d, node) && assign_set_if_able(a, node, d, BERTH_SCHED_OFFLOAD)) {
                return true;
            }
        }
    }
    if (b >= 0 && assign_set_if_able(a, node, b, BERTH_SCHED_WEIGHT)) {
        return true;
    }
    // If no backend can both use the weight and run the op (b < 0), the first backend that can use the weight counts as its owner.
    int owner = b;
    for (int d = 0; owner < 0 && d < a->sched->n_backends; d++) {
        if (assign_uses_buft(a->sched, d, buft)) {
            owner = d;
        }
    }
    if (owner >= 0 && !decider->is_weight_owner_refused) {
        decider->refused = (int16_t) owner;
        decider->is_weight_owner_refused = true;
    }
    return false;
}

// Assigns the node to a device that has a filled resident copy of the weight.
static bool assign_by_resident(struct assign *a, int32_t node, int32_t weight) {
    for (int b = 0; a->sched->residents.n > 0 && b < a->host; b++) {
        if (sched_resident_is_ready(a->sched, sched_resident_find(a->sched, a->cached, weight, b)) &&
            assign_supports(a, b, node) && assign_set_if_able(a, node, b, BERTH_SCHED_WEIGHT)) {
            return true;
        }
    }
    return false;
}

// Tries the backends of the node's weights, the largest weight first.
static bool assign_by_largest_weight(struct assign *a, int32_t node) {
    struct sched_cached *cached = a->cached;
    const struct record_row *row = &cached->rec.rows[node];
    if (row->op == GGML_OP_ROPE) {
        return false; // the frequency factors are too small to decide the backend
    }
    int32_t largest = -1;
    for (int32_t k = row->src; k < row->src + row->n_src; k++) {
        const int32_t s = cached->rec.srcs[k];
        if (sched_is_weight(cached, s) && (largest < 0 || sched_nbytes(cached, s) > sched_nbytes(cached, largest))) {
            largest = s;
        }
    }
    if (largest >= 0 && assign_by_resident(a, node, largest)) {
        return true;
    }
    if (largest < 0 || assign_by_weight(a, node, cached->rec.rows[sched_base(cached, largest)].buft)) {
        return largest >= 0;
    }
    for (int32_t k = row->src; k < row->src + row->n_src; k++) {
        const int32_t s = cached->rec.srcs[k];
        if (s != largest && sched_is_weight(cached, s) &&
            assign_by_weight(a, node, cached->rec.rows[sched_base(cached, s)].buft)) {
            return true;
        }
    }
    return false;
}

static inline bool reads_weight(const struct sched_cached *cached, const struct record_row *row) {
    for (int32_t k = row->src; k < row->src + row->n_src; k++) {
        if (sched_is_weight(cached, cached->rec.srcs[k])) {
            return true;
        }
    }
    return false;
}

static inline enum ggml_status assign_fixed_row(struct assign *a, int32_t r) {
    struct sched_cached *cached = a->cached;
    enum ggml_status status = GGML_STATUS_SUCCESS;
    const struct sched_row *row = &cached->rows[r];
    if (row->is_placed) {
        status = assign_by_memory(a, r);
    } else if (!assign_has_backend(a, r) && cached->rows[sched_decider(cached, r)].is_input) {
        // n_spreadable does not count inputs. So this adds back the 1 that assign_set_if_able subtracts on success.
        a->n_spreadable += assign_set_if_able(a, r, a->host, BERTH_SCHED_INPUT);
    }
    if (assign_has_backend(a, r)) {
        return status;
    }
    if (!assign_has_work(a, r)) {
        a->has_unassigned_leaf =
            a->has_unassigned_leaf || sched_decider(cached, r) == r; // a view gets the backend of its decider
        return status;
    }
    a->n_spreadable++;
    if (row->reads_weight) {
        (void) assign_by_largest_weight(a, r);
    }
    return status;
}

static enum ggml_status assign_fixed(struct assign *a) {
    struct sched_cached *cached = a->cached;
    for (int32_t r = 0; cached->has_choices && r < cached->rec.n_rows; r++) {
        if (cached->rows[r].caller_backend >= 0 && (sched_base(cached, r) == r || assign_has_work(a, r))) {
            assign_set(a, r, cached->rows[r].caller_backend, BERTH_SCHED_CALLER);
        }
    }
    a->n_spreadable = 0;
    enum ggml_status status = GGML_STATUS_SUCCESS;
    for (int32_t r = cached->rec.n_nodes; r < cached->rec.n_rows && status == GGML_STATUS_SUCCESS;
         r++) { // leafs and other sources first: nodes depend on their backends
        status = assign_fixed_row(a, r);
    }
    for (int32_t r = 0; r < cached->rec.n_nodes && status == GGML_STATUS_SUCCESS; r++) {
        cached->rows[r].reads_weight = reads_weight(cached, &cached->rec.rows[r]);
        status = assign_fixed_row(a, r);
    }
    return status;
}

// ---- spreading backends to the ops between assigned ops ----
//
// A gap is a sequence of unassigned nodes between an assigned node before the gap (its backend is `left`) and an assigned node
// after the gap (its backend is `right`). A border at c gives the first c nodes of the gap to `left` and the others to `right`.

#define BORDER_AHEAD 64 // border_find also looks for readers in this number of nodes after the gap

// Returns true if exactly one of the backends left and right can use source row s without a copy. *is_left: that backend is left.
static bool only_one_reaches(struct assign *a, int32_t s, int left, int right, bool *is_left) {
    if (sched_is_unassigned(a->cached, s)) {
        return false;
    }
    *is_left = sched_reaches(a->sched, a->cached, left, s);
    return *is_left != sched_reaches(a->sched, a->cached, right, s);
}

// The gap is the nodes [g0, g1). Returns the border c that the fewest bytes cross; of equal borders the last. A source crosses
// the border if the backend on one side owns it and a node on the other side reads it. A source that both backends can use, or
// neither, is not counted. rows[].slots marks counted sources, because the field is unused until sched_split.
static int32_t border_find(struct assign *a, int32_t g0, int32_t g1, int left, int right) {
    struct sched_cached *cached = a->cached;
    const int32_t n = g1 - g0;
    memset(a->border_diff, 0, ((size_t) n + 2) * sizeof a->border_diff[0]);
    bool has_right = false;
    int32_t end = g1 + 1; // nodes [g1, end) after the gap also count as readers; none of them runs on another backend than right
    while (end < cached->rec.n_nodes && end < g1 + BORDER_AHEAD &&
           (!assign_has_backend(a, end) || assign_backend_of(a, end) == right)) {
        end++;
    }
    for (int32_t i = end - 1; i >= g0; i--) { // backwards, so that a source is counted at its last reader
        const struct record_row *row = &cached->rec.rows[i];
        for (int32_t k = row->src; k < row->src + row->n_src; k++) {
            const int32_t s = cached->rec.srcs[k], base = sched_base(cached, s);
            const bool in_gap = base >= g0 && base < g1;
            bool is_left = true;
            if (cached->rows[s].slots >= 0 || (!in_gap && !only_one_reaches(a, s, left, right, &is_left))) {
                continue;
            }
            if (!is_left) {
                has_right = true;
                continue;
            }
            const int32_t first_border = in_gap ? base - g0 + 1 : 0, last_border = min_i32(i - g0, n);
            if (first_border <= last_border) {
                a->border_diff[first_border] += sched_nbytes(cached, s);
                a->border_diff[last_border + 1] -= sched_nbytes(cached, s);
            }
            cached->rows[s].slots = i;
        }
    }
    for (int32_t i = g0; has_right && i < g1; i++) {
        const struct record_row *row = &cached->rec.rows[i];
        for (int32_t k = row->src; k < row->src + row->n_src; k++) {
            const int32_t s = cached->rec.srcs[k];
            bool is_left = true;
            if (cached->rows[s].slots < 0 && only_one_reaches(a, s, left, right, &is_left) && !is_left) {
                a->border_diff[i - g0 + 1] += sched_nbytes(cached, s);
                cached->rows[s].slots = i;
            }
        }
    }
    for (int32_t i = g0; i < end; i++) {
        const struct record_row *row = &cached->rec.rows[i];
        for (int32_t k = row->src; k < row->src + row->n_src; k++) {
            cached->rows[cached->rec.srcs[k]].slots = -1;
        }
    }
    int32_t best = 0;
    uint64_t bytes = 0, least = UINT64_MAX;
    for (int32_t c = 0; c <= n; c++) {
        bytes += a->border_diff[c];
        if (bytes <= least) {
            best = c;
            least = bytes;
        }
    }
    return best;
}

static void spread_down(struct assign *a, bool with_host) {
    int neighbour = -1;
    for (int32_t i = 0; a->n_spreadable > 0 && i < a->cached->rec.n_nodes; i++) {
        if (!assign_has_work(a, i)) {
            continue;
        }
        if (assign_has_backend(a, i)) {
            neighbour = assign_backend_of(a, i);
            if (neighbour == a->host && !with_host) {
                neighbour = -1;
            }
            continue;
        }
        if (neighbour < 0) {
            continue;
        }
        int32_t end = i;
        while (end < a->cached->rec.n_nodes && (!assign_has_work(a, end) || !assign_has_backend(a, end))) {
            end++;
        }
        const int right = end < a->cached->rec.n_nodes ? assign_backend_of(a, end) : -1;
        const bool has_border = right >= 0 && right != neighbour && (right != a->host || with_host);
        const int32_t stop = has_border ? i + border_find(a, i, end, neighbour, right) : end;
        for (; i < end; i++) {
            if (i < stop && assign_has_work(a, i) && !assign_has_backend(a, i)) {
                (void) assign_set_if_able(a, i, neighbour, BERTH_SCHED_EXPANSION);
            }
        }
        i = end - 1;
    }
}

static void spread_up(struct assign *a, bool with_host) {
    int neighbour = -1;
    for (int32_t i = a->cached->rec.n_nodes - 1; a->n_spreadable > 0 && i >= 0; i--) {
        if (!assign_has_work(a, i)) {
            continue;
        }
        if (assign_has_backend(a, i)) {
            neighbour = assign_backend_of(a, i);
            if (neighbour == a->host && !with_host) {
                neighbour = -1;
            }
        } else if (neighbour >= 0) {
            (void) assign_set_if_able(a, i, neighbour, BERTH_SCHED_EXPANSION);
        }
    }
}

// ---- remaining tensors ----

static uint64_t bytes_reachable(struct assign *a, int b, int32_t node) {
    const struct record_row *row = &a->cached->rec.rows[node];
    uint64_t bytes = 0;
    for (int32_t k = row->src; k < row->src + row->n_src; k++) {
        if (sched_reaches(a->sched, a->cached, b, a->cached->rec.srcs[k])) {
            bytes += sched_nbytes(a->cached, a->cached->rec.srcs[k]);
        }
    }
    return bytes;
}

static enum ggml_status node_pick(struct assign *a, int32_t node) {
    const int32_t decider = sched_decider(a->cached, node);
    int best = -1;
    uint64_t most = 0;
    for (int b = 0; b < a->sched->n_backends; b++) {
        if (!assign_can_run(a, b, decider)) {
            assign_refuse(a, decider, b);
            continue;
        }
        const uint64_t bytes = bytes_reachable(a, b, node);
        if (best < 0 || bytes > most) {
            best = b;
            most = bytes;
        }
    }
    if (best < 0) {
        const struct ggml_tensor *t = a->cached->rec.tensors[node];
        return berth_fail(GGML_STATUS_FAILED, "scheduler: no backend can run %s (%s, %s%s)", berth_name_of(t), ggml_op_desc(t),
            ggml_type_name(t->type), assign_writer_after(a, decider) >= 0 ? ", with the ops that share its memory" : "");
    }
    assign_set(a, node, best, BERTH_SCHED_PRIORITY);
    return GGML_STATUS_SUCCESS;
}

// Moves the op to a backend of higher priority that has the same buffer type and supports the op, if the move adds no copy.
static void node_upgrade(struct assign *a, int32_t node) {
    struct sched_row *row = &a->cached->rows[sched_decider(a->cached, node)];
    if (row->reason == BERTH_SCHED_CALLER || (row->is_input && row->reason == BERTH_SCHED_INPUT)) {
        return;
    }
    for (int b = a->sched->first_same_buft[row->backend]; b < row->backend; b++) {
        if (a->sched->bufts[b] != a->sched->bufts[row->backend] || !assign_can_run(a, b, sched_decider(a->cached, node))) {
            continue;
        }
        const struct record_row *n = &a->cached->rec.rows[node];
        bool reaches_all = true;
        for (int32_t k = n->src; k < n->src + n->n_src && reaches_all; k++) {
            const int32_t s = a->cached->rec.srcs[k];
            reaches_all = sched_is_unassigned(a->cached, s) || sched_reaches(a->sched, a->cached, b, s);
        }
        if (reaches_all) {
            row->backend = (int16_t) b;
            return;
        }
    }
}

static enum ggml_status assign_rest(struct assign *a) {
    struct sched_cached *cached = a->cached;
    const bool is_done = a->n_spreadable == 0 && !a->sched->has_same_bufts; // usually true
    for (int32_t r = 0; !is_done && r < cached->rec.n_nodes; r++) {
        if (!assign_has_work(a, r)) {
            continue;
        }
        if (!assign_has_backend(a, r)) {
            const enum ggml_status status = node_pick(a, r);
            if (status != GGML_STATUS_SUCCESS) {
                return status;
            }
        }
        const int b = assign_backend_of(a, r);
        if (a->sched->first_same_buft[b] != b) {
            node_upgrade(a, r);
        }
    }
    for (int32_t r = 0; a->has_unassigned_leaf && r < cached->rec.n_nodes;
         r++) { // tensors that no op computes get the backend of their first reader
        const struct record_row *row = &cached->rec.rows[r];
        for (int32_t k = row->src; !cached->rows[r].is_empty && k < row->src + row->n_src; k++) {
            if (!cached->rows[cached->rec.srcs[k]].is_placed && !assign_has_backend(a, cached->rec.srcs[k])) {
                assign_set(a, cached->rec.srcs[k], assign_backend_of(a, r), BERTH_SCHED_READER);
            }
        }
    }
    for (int32_t r = 0; a->has_unassigned_leaf && r < cached->rec.n_rows; r++) {
        const int32_t decider = sched_decider(cached, r);
        if (decider == r && !cached->rows[r].is_placed && cached->rows[r].backend < 0) {
            assign_set(a, r, a->host, BERTH_SCHED_READER); // no op reads it
        }
    }
    for (int32_t r = 0; cached->has_views && r < cached->rec.n_rows; r++) { // views copy the assignment of their decider
        const struct sched_row *decider = &cached->rows[sched_decider(cached, r)];
        struct sched_row *row = &cached->rows[r];
        if (decider == row) {
            continue;
        }
        row->backend = decider->backend;
        row->reason = decider->reason;
        row->refused = decider->refused;
    }
    return GGML_STATUS_SUCCESS;
}

static bool assign_init(struct assign *a) {
    const size_t n_nodes = (size_t) a->cached->rec.n_nodes, n_rows = (size_t) a->cached->rec.n_rows;
    const size_t n_support = n_nodes * (size_t) a->sched->n_backends;
    const size_t n_writers = a->cached->n_writers > 0 ? n_rows : 0;
    a->host = a->sched->n_backends - 1;
    a->border_diff =
        sched_scratch(a->sched, (n_nodes + 2) * sizeof a->border_diff[0] + n_writers * sizeof a->next_writer[0] + n_support);
    if (a->border_diff == NULL) {
        return false;
    }
    int32_t *after_diff = (int32_t *) (a->border_diff + n_nodes + 2);
    a->support = (uint8_t *) (after_diff + n_writers);
    memset(a->support, 0, n_support);
    if (n_writers == 0) {
        return true;
    }
    a->next_writer = after_diff;
    memset(a->next_writer, -1, n_rows * sizeof a->next_writer[0]);
    for (int32_t r = a->cached->rec.n_nodes - 1; r >= 0; r--) {
        const int32_t decider = sched_decider(a->cached, r);
        if (decider != r && assign_has_work(a, r)) {
            a->next_writer[r] = a->next_writer[decider];
            a->next_writer[decider] = r;
        }
    }
    return true;
}

enum ggml_status sched_assign(struct ggml_backend_sched *sched, struct sched_cached *cached) {
    struct assign a = {.sched = sched, .cached = cached};
    if (!assign_init(&a)) {
        return berth_fail(GGML_STATUS_ALLOC_FAILED, "scheduler: out of memory to assign %d backends to %d nodes",
            sched->n_backends, cached->rec.n_nodes);
    }
    sched_residents_exclude_written(sched, cached);
    const enum ggml_status status = assign_fixed(&a);
    if (status != GGML_STATUS_SUCCESS) {
        return status;
    }
    if (sched->n_backends > 1) { // devices before the host
        spread_down(&a, false);
        spread_up(&a, false);
    }
    spread_down(&a, true);
    spread_up(&a, true);
    return assign_rest(&a);
}
