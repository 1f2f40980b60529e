// SPDX-License-Identifier: MIT
// oracle_link.h: the reference in a process of its own, op-oracle, built without sanitizers: they and the reference do not mix,
// and it ends its process where it meets what it does not do. Both processes map the arena of a case at the same address, so the
// reference computes on the very tensors that Berth was given; only "compute this graph" and "done" go through pipes.
#pragma once

#include "support/child.h"

#include "ggml.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum op_outcome { OP_DONE, OP_UNSUPPORTED, OP_FAILED, OP_DIED };

#define OP_ORACLE_TAKEN 3 // op-oracle's exit code if the arena's address is not free there

// What the oracle is asked; it answers with an enum op_outcome as int32_t.
struct op_request {
    struct ggml_cgraph *graph;
    struct ggml_tensor *node; // its last one
};

struct op_oracle {
    const char *wish;   // part of the name of the CPU library wanted; NULL: the best that runs here
    char name[64];      // the library's, once it is open
    struct child child; // started when it is needed
};

// An arena that oracles can see: an address both have free. NULL: no memory.
void *op_arena_new(size_t size);

// Starts it. False, with a printed line, if there is no reference for it to run.
bool op_oracle_open(struct op_oracle *o);
// Ends it; its exit code, -1 if it has none.
int op_oracle_close(struct op_oracle *o);
// Computes the graph, which lies in the arena with its tensors. OP_DIED: it ended its process; the next call starts another.
enum op_outcome op_oracle_compute(struct op_oracle *o, struct ggml_cgraph *graph, struct ggml_tensor *node);
