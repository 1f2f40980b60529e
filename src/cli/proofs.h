// SPDX-License-Identifier: MIT
// proofs.h: files with proofs: `berth plan --proof` writes them, `berth verify --proof` checks them.
#pragma once

#include "base/base.h"

struct cli_proof_out {
    const char *path;
    FILE *file;
    void *gz; // gzFile; NULL: the file is not compressed
};

// Opens the file. If its name ends in .gz, the text is compressed. On failure prints a message and returns the exit code.
int cli_proof_open(struct cli_proof_out *o, const char *path);
// The callback of struct berth_plan_params; user is a struct cli_proof_out.
bool cli_proof_write(const char *text, size_t size, void *user);
// Closes the file. If not ok, the file is removed.
int cli_proof_close(struct cli_proof_out *o, bool ok);

// The result of checking a proof against the items of a plan.
struct cli_proof_sum {
    uint64_t bound;  // bytes, the sum over pools
    int64_t n_steps; // steps of searches
    bool is_optimal; // the peak of each pool is the bound of the pool
    bool is_valid;   // false: the proof was refused
    char why[256];   // why it was refused
};

// Checks the file. peaks: the plan of the set is valid, so peaks and bounds are compared. Returns CLI_OK also if the proof is
// refused. On failure prints a message and returns the exit code.
int cli_proof_check(const char *path, const struct berth_plan_set *set, bool has_plan, struct cli_proof_sum *sum);
