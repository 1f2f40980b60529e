// SPDX-License-Identifier: MIT
// assign.h: what the passes of an assignment share: who supports what, and giving a root its backend.
#pragma once

#include "sched/sched.h"

struct assign {
    struct ggml_backend_sched *sched;
    struct sched_memo *memo;
    uint8_t *known;       // [n_nodes * n_backends] 0: not asked, 1: supported, 2: not
    int32_t *next_writer; // [n_rows] from a root through the nodes that write into it, -1: end; NULL: no node writes to another
    int last;             // backend of the host
    int32_t n_free;       // nodes that spreading can still give a backend, at most
    uint64_t *change;     // [n_nodes + 2] scratch of the border search: bytes that cross, less those one border before
    bool has_unread;      // something that nobody computes has no backend yet
};

static inline bool assign_supports(struct assign *a, int b, int32_t node) {
    uint8_t *known = &a->known[(size_t) node * (size_t) a->sched->n_backends + (size_t) b];
    if (*known == 0) {
        *known = ggml_backend_supports_op(a->sched->backends[b], a->memo->rec.tensors[node]) ? 1 : 2;
    }
    return *known == 1;
}

static inline bool assign_is_node(const struct assign *a, int32_t r) {
    return r < a->memo->rec.n_nodes && !a->memo->rows[r].is_empty;
}

static inline int32_t assign_writer_after(const struct assign *a, int32_t r) {
    return a->next_writer != NULL ? a->next_writer[r] : -1;
}

// b supports every op that writes memory of this root (or the op of this row alone).
static inline bool assign_can_run(struct assign *a, int b, int32_t r) {
    if (assign_is_node(a, r) && !assign_supports(a, b, r)) {
        return false;
    }
    for (int32_t w = assign_writer_after(a, r); w >= 0; w = assign_writer_after(a, w)) {
        if (!assign_supports(a, b, w)) {
            return false;
        }
    }
    return true;
}

static inline bool assign_uses_buft(const struct ggml_backend_sched *sched, int b, ggml_backend_buffer_type_t buft) {
    return buft == NULL ? b == sched->n_backends - 1 : // an address without a buffer is the host's
               ggml_backend_supports_buft(sched->backends[b], buft);
}

static inline bool assign_is_set(const struct assign *a, int32_t r) {
    return a->memo->rows[sched_root(a->memo, r)].backend >= 0;
}

static inline int assign_backend_of(const struct assign *a, int32_t r) {
    return a->memo->rows[sched_root(a->memo, r)].backend;
}

static inline void assign_set(struct assign *a, int32_t r, int b, enum berth_sched_reason reason) {
    struct sched_row *row = &a->memo->rows[sched_root(a->memo, r)];
    row->backend = (int16_t) b;
    row->reason = (uint8_t) reason;
}

// The first that should have run it is remembered; who has its weight, before all others.
static inline void assign_refuse(struct assign *a, int32_t root, int b) {
    struct sched_row *row = &a->memo->rows[root];
    if (!row->lost_weight && (row->refused < 0 || b < row->refused)) {
        row->refused = (int16_t) b;
    }
}

static inline bool assign_set_if_able(struct assign *a, int32_t r, int b, enum berth_sched_reason reason) {
    const int32_t root = sched_root(a->memo, r);
    if (assign_can_run(a, b, root)) {
        assign_set(a, root, b, reason);
        a->n_free--;
        return true;
    }
    assign_refuse(a, root, b);
    return false;
}

// ---- the passes (assign_fixed.c, assign_expand.c) ----

// What is decided by the caller, by memory, or by weights.
enum ggml_status sched_fix(struct assign *a) BERTH_MUST_USE;
// Backends run on over ops that are free, down and up; with_last: the host too.
void sched_spread_down(struct assign *a, bool with_last);
void sched_spread_up(struct assign *a, bool with_last);
