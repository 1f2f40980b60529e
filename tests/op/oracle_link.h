// SPDX-License-Identifier: MIT
// oracle_link.h: the reference in a separate process, op-oracle. The reference does not run under sanitizers, and it ends its
// process for unsupported inputs. Both processes map the memory of a case (the arena) at the same address. Only requests and
// outcomes go through pipes.
#pragma once

#include "support/child.h"

#include "ggml.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum op_outcome { OP_DONE, OP_UNSUPPORTED, OP_FAILED, OP_DIED };

#define OP_ORACLE_ADDRESS_TAKEN 3 // exit code of op-oracle: the arena's address is taken

// A request to the oracle. The response is an enum op_outcome as int32_t.
struct op_request {
    struct ggml_cgraph *graph;
    struct ggml_tensor *node; // the last node of the graph
};

struct op_oracle {
    const char *filter; // part of the name of the requested CPU library; NULL: the best that runs here
    char name[64];      // name of the library after op_oracle_open
    struct child child; // started when needed
};

// Allocates memory at an address that is usually free in the process of op-oracle too. NULL: out of memory.
void *op_arena_new(size_t size);

// Returns false and prints a line if no reference runs here.
bool op_oracle_open(struct op_oracle *o);
// Returns the exit code; -1: there is none.
int op_oracle_close(struct op_oracle *o);
// The graph is in the arena. OP_DIED: the oracle's process ended; the next call starts another.
enum op_outcome op_oracle_compute(struct op_oracle *o, struct ggml_cgraph *graph, struct ggml_tensor *node);
