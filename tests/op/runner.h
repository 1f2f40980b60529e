// SPDX-License-Identifier: MIT
// runner.h: builds each case of the op suite and passes it to the comparison function of the suite. Cases 0, 1, 2, 4, 8, ... of
// each op are also built in all layouts of enum op_layout. Users: the CPU (main.c), devices (tests/cuda/ops_main.c) and composite
// devices (meta_main.c).
#pragma once

#include "op.h"

#include <stddef.h>

#define OP_MAX_OPS 256
#define OP_ARENA_SIZE (64u << 20)

struct op_tally {
    const char *op;
    int n_cases;  // number of cases in all parts (--part)
    int n_relaid; // cases built in another layout, in all parts
    int n_passed, n_failed, n_skipped;
    int n_unsupported; // the device does not support it
    int n_plain;       // passed cases that were compared with double precision only, because the reference has no result
    int n_refused;     // passed cases that the reference and Berth refuse
    int n_dense;       // passed cases in which the reference ignores strides, so its result in layout OP_AS_BUILT was used
    double worst;      // largest error of the passed cases
};

struct op_case {
    const char *op, *what; // name of the op; description of the case
    double max_nmse;       // tolerance to the reference
    struct ggml_context *ctx;
    struct ggml_cgraph *graph;
    struct ggml_tensor *t;
    enum op_layout layout;
    op_plain_t plain;
    double plain_nmse;
    size_t used; // bytes of the arena
};

struct op_suite {
    struct op_tally tallies[OP_MAX_OPS];
    int n_ops;
    const char *only;
    bool verbose;
    int part, n_parts;
    uint64_t seed;       // seed of --seed; 0: the default numbers
    bool is_list;        // cases are only counted, not run
    bool is_as_built;    // cases run only as built, in no other layout
    char *arena, *saved; // memory of the contexts; its content before a compute
    void (*compare)(struct op_suite *s, struct op_tally *tally, const struct op_case *c);
};

// Parses -v, -k OP, --part I/N or --seed N at argv[*i], and advances *i. Returns false for another or malformed option.
bool op_suite_option(struct op_suite *s, int argc, char **argv, int *i);
// Custom ops are excluded: only main.c runs them.
void op_suite_run(struct op_suite *s);

struct op_tally *op_tally_of(struct op_suite *s, const char *op);
// Prints failures, and with -v all cases.
void op_report(const struct op_suite *s, const char *verdict, const struct op_case *c, const char *why, double error);
void op_case_restore(struct op_suite *s, const struct op_case *c);
