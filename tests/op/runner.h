// SPDX-License-Identifier: MIT
// runner.h: what runs the cases of the op suite: each is built, in all layouts if it is one of the first, and handed to who
// compares it. The suite of the CPU (main.c), that of devices (tests/cuda/ops_main.c) and that of devices made of several
// (meta_main.c) are built on it.
#pragma once

#include "op.h"

#include <stddef.h>

#define OP_MAX_OPS 256
#define OP_ARENA_SIZE (64u << 20)

struct op_tally {
    const char *op;
    int n_cases; // of all parts
    int n_odd;   // built in another layout, of all parts
    int n_passed, n_failed, n_skipped;
    int n_unsupported; // a device does not do it
    int n_plain;       // of the passed ones: compared with a loop in double precision, since the reference has no result
    int n_refused;     // of the passed ones: neither the reference nor Berth does it, and Berth says so
    int n_dense;       // of the passed ones: the reference takes a source for dense that is not; Berth follows its strides
    double worst;      // error of the passed ones
};

struct op_case {
    const char *op, *what;
    double max_nmse;
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
    uint64_t seed;       // 0: the numbers that every run has
    bool is_list;        // cases are counted, and none is run
    bool is_as_built;    // none is run in another layout
    char *arena, *saved; // contexts are made in arena; saved is as it was before a case was computed
    void (*compare)(struct op_suite *s, struct op_tally *tally, const struct op_case *c);
};

// -v, -k OP, --part I/N or --seed N at argv[*i], which moves on over its value; false: none of them, or wrong.
bool op_suite_option(struct op_suite *s, int argc, char **argv, int *i);
// The cases of every family that needs nothing of its own.
void op_suite_run(struct op_suite *s);

struct op_tally *op_tally_of(struct op_suite *s, const char *op);
// A line, if it is a failure or lines are wanted.
void op_report(const struct op_suite *s, const char *verdict, const struct op_case *c, const char *why, double error);
// The case as it was built.
void op_case_restore(struct op_suite *s, const struct op_case *c);
