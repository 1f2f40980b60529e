// SPDX-License-Identifier: MIT
// file.h: files with proofs, which may be compressed.
#pragma once

#include "base/base.h"
#include "berth-budget.h"
#include "berth-plan-io.h"

// Writes the text of a proof to a file that the caller has opened.
struct proof_writer {
    FILE *file;
    void *gz; // gzFile; NULL: the text is not compressed
    bool has_failed;
    int why; // errno of the first failed write
};

// is_gz: the text is compressed. On failure returns false, and *why is the reason.
bool proof_writer_init(struct proof_writer *w, FILE *file, bool is_gz, const char **why) BERTH_MUST_USE;
// The callback of struct berth_plan_params; user is a struct proof_writer.
bool proof_writer_write(const char *text, size_t size, void *user) BERTH_MUST_USE;
// Writes the rest. The caller closes the file. If any write failed, returns false and sets errno.
bool proof_writer_fini(struct proof_writer *w) BERTH_MUST_USE;

// The result of checking a proof against the items of a plan.
struct proof_result {
    uint64_t bound;  // bytes, the sum over pools
    int64_t n_steps; // steps of searches
    bool is_optimal; // the peak of each pool is the bound of the pool
    bool is_valid;   // false: the proof was refused
    char why[256];   // why the proof was refused, or the file could not be read
};

// Checks the file, which may be compressed under any name. has_plan: the plan of the set is valid, so peaks and bounds are compared.
// Returns false if the file cannot be read or memory is exhausted. A refused proof is not a failure.
bool proof_file_check(
    const char *path, const struct berth_plan_set *set, bool has_plan, struct proof_result *result) BERTH_MUST_USE;

// Checks the file as a proof that no schedule of the ops keeps the limits. result->n_steps is the number of states.
bool proof_file_check_budget(const char *path, const struct berth_budget_op *ops, int64_t n_ops,
    const struct berth_budget_params *params, struct proof_result *result) BERTH_MUST_USE;
