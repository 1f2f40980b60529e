// SPDX-License-Identifier: MIT
// proof.h: writes why the bound of a pool holds. docs/dev/proofs.md specifies the text and proves each rule. src/proof checks it.
#pragma once

#include "plan/solve/plan.h"

// ---- proof_log.c: the steps of one exact search, as text ----

#define PLAN_LOG_ARGS 3 // the largest n of berth_plan_log_step

// Text beyond PLAN_LOG_MEMORY is in a temporary file.
struct plan_log {
    char *text;         // [cap] the last n bytes of the log
    size_t n, cap;      // bytes
    FILE *file;         // the bytes before `text`; NULL: none
    uint64_t file_size; // bytes in `file` that belong to the log
    bool has_failed;    // out of memory or disk space: the log is incomplete
};

static inline uint64_t plan_log_size(const struct plan_log *l) {
    return l->file_size + l->n;
}
// Appends a step: the letter and n arguments.
void berth_plan_log_step(struct plan_log *l, char letter, const int64_t *args, int n);
// Appends an argument to the last step.
void berth_plan_log_more(struct plan_log *l, int32_t arg);
// Removes all text after the first `size` bytes.
void berth_plan_log_cut(struct plan_log *l, uint64_t size);
void berth_plan_log_fini(struct plan_log *l);

// ---- proof.c ----

// The blocks that an exact search is about.
struct plan_log_scope {
    const int32_t *ids; // [n] numbers in the pool's problem, rising; NULL: all blocks
    int32_t n;
};

// The log that proves the highest bound so far, and the caller's callback.
struct plan_proof {
    berth_plan_write_t write;
    void *user;
    struct plan_log log;
    int32_t *ids; // [n] copy of the scope; NULL: all blocks
    int32_t n;
    int64_t bound; // units; 0: there is no log
    atomic_flag lock;
};

// Stores a log that proves the bound `bound`, which is in units, if it is the highest so far. Takes the text out of log.
void berth_plan_proof_keep(struct plan_proof *proof, struct plan_log *log, const struct plan_log_scope *scope, int64_t bound);
// Writes the proof of a pool with the bound *bound in bytes. If it is not known why the bound holds, writes the proof of a lower bound,
// and lowers *bound.
enum ggml_status berth_plan_proof_write(struct plan_proof *proof, const struct plan_pool *pool, uint64_t *bound) BERTH_MUST_USE;
void berth_plan_proof_fini(struct plan_proof *proof);
