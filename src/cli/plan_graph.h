// SPDX-License-Identifier: MIT
// plan_graph.h: what `berth plan` reads beyond CSV and JSON, and what it plans: buffer by buffer, each with its own largest
// chunk.
#pragma once

#include "berth-alloc.h"

struct cli_buffer {
    int32_t pool;       // of its items
    char name[64];      // of its type, "" if the file names none
    uint64_t max_chunk; // bytes, 0: no limit
    size_t n_items;
    struct berth_plan_report report;
};

struct cli_plan {
    struct berth_plan_set *set;
    struct cli_buffer *buffers; // by rising pool
    size_t n_buffers;
};

// Items of a file: CSV, JSON, or a captured graph if the name ends in .ggraph or .ggraph.gz. On failure plan is empty.
enum ggml_status cli_plan_read(const char *path, struct cli_plan *plan);
// Items of a captured graph, whatever its file is called: with the tensors that lie in each, and without offsets.
enum ggml_status cli_plan_read_graph(const char *path, struct berth_plan_set **set);
// Fills the buffers of a plan that has a set only: the pools that its items name, with what the file says of them.
enum ggml_status cli_plan_buffers(struct cli_plan *plan);
void cli_plan_free(struct cli_plan *plan);

// Plans every buffer, checks the plan, and fills the reports: one a buffer, and their sum. params->start, if not NULL, has the
// offsets of all items; max_chunk is the buffers' own.
enum ggml_status cli_plan_solve(
    struct cli_plan *plan, const struct berth_plan_params *params, uint64_t *offsets, struct berth_plan_report *sum);
