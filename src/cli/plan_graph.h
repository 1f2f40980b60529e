// SPDX-License-Identifier: MIT
// plan_graph.h: what `berth plan` reads beyond CSV and JSON, and what it says of each buffer.
#pragma once

#include "berth-plan.h"

// Items of a file: CSV, JSON, or a captured graph if the name ends in .ggraph or .ggraph.gz.
enum ggml_status cli_plan_read(const char *path, struct berth_plan_set **set);

struct cli_pool {
    size_t n;       // items
    uint64_t peak;  // bytes in this plan
    uint64_t bound; // no plan needs less
    int64_t step;   // where the most is alive
};

// Pools are numbered from 0.
int32_t cli_plan_pools(const struct berth_plan_set *set);
bool cli_plan_pool(const struct berth_plan_set *set, const uint64_t *offsets, int32_t pool, struct cli_pool *out);
