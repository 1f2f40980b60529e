// SPDX-License-Identifier: MIT
// alive.h: what is alive at a step of a plan: what the peak is made of.
#pragma once

#include "view/plan.h"

#include <stdio.h>

#define CLI_ALIVE_SHOWN 8

// One piece of memory, and the tensor that has it at the step.
struct cli_alive {
    uint64_t size;
    const char *name, *op; // op "" where the file says none
};

// What is alive in a buffer at the step where the most is, largest first; to be freed. *bytes: all of it. NULL: out of memory.
struct cli_alive *cli_alive_at_bound(const struct cli_plan *plan, const struct cli_buffer *buffer, size_t *n, uint64_t *bytes);
// The largest of them, a line each, as the lines of `berth plan`; as a member "alive" of a JSON object.
// False: out of memory, and nothing is printed.
bool cli_alive_print(FILE *file, const struct cli_plan *plan, const struct cli_buffer *buffer);
bool cli_alive_json(FILE *file, const struct cli_plan *plan, const struct cli_buffer *buffer);
// The same of the buffer that needs most; nothing where there is none.
bool cli_alive_print_most(FILE *file, const struct cli_plan *plan);
bool cli_alive_json_most(FILE *file, const struct cli_plan *plan);
