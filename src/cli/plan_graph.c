// SPDX-License-Identifier: MIT
// plan_graph.c: captured graphs (.ggraph, .ggraph.gz) as items to plan: what the graph allocator would ask the planner, with the
// in-place rules of the ggml version that the file names; and the plan of a file, buffer by buffer.

#include "cli/plan_graph.h"

#include "berth-alloc.h"
#include "cli/ggraph.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static bool ends_with(const char *text, const char *end) {
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

// ---- reading ----

// Through the allocator's own file format, which has all that a plan has.
static enum ggml_status items_of(struct ggraph *g, ggml_gallocr_t galloc, const char *path, struct berth_plan_set **set) {
    char *text              = NULL;
    size_t size             = 0;
    size_t *sizes           = calloc((size_t) g->n_bufs, sizeof *sizes);
    FILE *file              = sizes != NULL ? open_memstream(&text, &size) : NULL;
    enum ggml_status status = GGML_STATUS_ALLOC_FAILED;
    if (file != NULL) {
        status = berth_gallocr_sizes(galloc, g->graph, g->node_bufs, g->leaf_bufs, sizes);
        if (status == GGML_STATUS_SUCCESS) {
            status = berth_gallocr_save(galloc, g->graph, file);
        }
        if (fclose(file) == 0 && status == GGML_STATUS_SUCCESS) {
            status = berth_plan_read_json(text, size, path, set);
        }
        if (status == GGML_STATUS_SUCCESS) {
            (*set)->has_offsets = false; // the plan is to be made, not to be started from
        }
    }
    free(sizes);
    free(text);
    return status;
}

// A buffer type a pool, in the order in which the allocator numbers them.
static enum ggml_status buffers_of(const struct ggraph *g, struct cli_plan *plan) {
    plan->buffers = calloc((size_t) g->n_bufs, sizeof plan->buffers[0]);
    for (int i = 0; plan->buffers != NULL && i < g->n_bufs; i++) {
        if (g->bufs[i].same_as == i) {
            struct cli_buffer *buffer = &plan->buffers[plan->n_buffers];

            buffer->pool      = (int32_t) plan->n_buffers++;
            buffer->max_chunk = g->bufs[i].max_size < (size_t) 1 << 62 ? g->bufs[i].max_size : 0;
            snprintf(buffer->name, sizeof buffer->name, "%s", g->bufs[i].name);
        }
    }
    return plan->buffers != NULL ? GGML_STATUS_SUCCESS : GGML_STATUS_ALLOC_FAILED;
}

static enum ggml_status read_graph(const char *path, struct cli_plan *plan) {
    struct ggraph g;
    enum ggml_status status = ggraph_read(&g, path);
    if (status != GGML_STATUS_SUCCESS) {
        return status;
    }
    ggml_backend_buffer_type_t *types = calloc((size_t) g.n_bufs, sizeof(ggml_backend_buffer_type_t));
    ggml_gallocr_t galloc             = NULL;
    if (types != NULL) {
        ggraph_bufts(&g, types);
        galloc = ggml_gallocr_new_n(types, g.n_bufs);
    }
    if (galloc != NULL) {
        struct berth_gallocr_options options = berth_gallocr_options_default();
        options.inplace_via_views            = false;
        options.in_place                     = ggraph_in_place;
        options.in_place_user                = &g;
        berth_gallocr_set_options(galloc, &options);
    }
    status = galloc != NULL ? items_of(&g, galloc, path, &plan->set) : GGML_STATUS_ALLOC_FAILED;
    if (status == GGML_STATUS_SUCCESS) {
        status = buffers_of(&g, plan);
    }
    ggml_gallocr_free(galloc);
    free(types);
    ggraph_free(&g);
    return status;
}

// The pools that the items name.
static enum ggml_status find_buffers(struct cli_plan *plan) {
    for (int64_t last = INT64_MIN;;) {
        int64_t next = INT64_MAX;
        for (size_t i = 0; i < plan->set->n_items; i++) {
            const int64_t pool = plan->set->items[i].pool;
            next               = pool > last && pool < next ? pool : next;
        }
        if (next == INT64_MAX) {
            return GGML_STATUS_SUCCESS;
        }
        struct cli_buffer *buffers = realloc(plan->buffers, (plan->n_buffers + 1) * sizeof *buffers);
        if (buffers == NULL) {
            return GGML_STATUS_ALLOC_FAILED;
        }
        plan->buffers              = buffers;
        buffers[plan->n_buffers++] = (struct cli_buffer){.pool = (int32_t) next};
        last                       = next;
    }
}

enum ggml_status cli_plan_read(const char *path, struct cli_plan *plan) {
    const bool is_graph = ends_with(path, ".ggraph") || ends_with(path, ".ggraph.gz");

    *plan                   = (struct cli_plan){0};
    enum ggml_status status = is_graph ? read_graph(path, plan) : berth_plan_read_file(path, &plan->set);
    if (status == GGML_STATUS_SUCCESS && !is_graph) {
        status = find_buffers(plan);
    }
    if (status != GGML_STATUS_SUCCESS) {
        cli_plan_free(plan);
    }
    return status;
}

void cli_plan_free(struct cli_plan *plan) {
    berth_plan_set_free(plan->set);
    free(plan->buffers);
    *plan = (struct cli_plan){0};
}

// ---- planning ----

// Memory for the items of one buffer.
struct part {
    struct berth_plan_item *items;
    uint64_t *offsets, *start;
};

static enum ggml_status solve_buffer(const struct berth_plan_set *set, struct cli_buffer *buffer,
    const struct berth_plan_params *params, struct part *part, uint64_t *offsets) {
    struct berth_plan_params own = *params;

    own.max_chunk   = buffer->max_chunk;
    own.start       = params->start != NULL ? part->start : NULL;
    buffer->n_items = 0;
    for (size_t i = 0; i < set->n_items; i++) {
        if (set->items[i].pool == buffer->pool) {
            part->start[buffer->n_items]   = params->start != NULL ? params->start[i] : 0;
            part->items[buffer->n_items++] = set->items[i];
        }
    }
    const int64_t n         = (int64_t) buffer->n_items;
    enum ggml_status status = berth_plan_solve(part->items, n, &own, part->offsets, &buffer->report);
    if (status == GGML_STATUS_SUCCESS) {
        status = berth_plan_check(part->items, n, &own, part->offsets, NULL);
    }
    for (size_t i = 0, at = 0; status == GGML_STATUS_SUCCESS && i < set->n_items; i++) {
        if (set->items[i].pool == buffer->pool) {
            offsets[i] = part->offsets[at++];
        }
    }
    return status;
}

// A buffer that surely does not fit answers for all of them; otherwise each answer must be sure.
static void sum_reports(const struct cli_plan *plan, struct berth_plan_report *sum) {
    uint64_t most = 0;
    bool is_no    = false;

    *sum = (struct berth_plan_report){.proven = true, .fits = true, .method = "nothing to place"};
    for (size_t b = 0; b < plan->n_buffers; b++) {
        const struct berth_plan_report *r = &plan->buffers[b].report;
        sum->peak += r->peak;
        sum->bound += r->bound;
        sum->proven = sum->proven && r->proven;
        sum->fits   = sum->fits && r->fits;
        is_no       = is_no || (!r->fits && r->proven);
        sum->time_us += r->time_us;
        sum->n_nodes += r->n_nodes;
        sum->n_peak += r->n_peak;
        if (b == 0 || r->peak > most) {
            most            = r->peak;
            sum->method     = r->method;
            sum->bound_step = r->bound_step;
        }
    }
    sum->proven = sum->proven || is_no;
    sum->gap    = sum->bound > 0 ? (double) sum->peak / (double) sum->bound - 1 : 0;
}

enum ggml_status cli_plan_solve(
    struct cli_plan *plan, const struct berth_plan_params *params, uint64_t *offsets, struct berth_plan_report *sum) {
    const size_t n   = plan->set->n_items + 1;
    struct part part = {malloc(n * sizeof *part.items), malloc(n * sizeof *part.offsets), malloc(n * sizeof *part.start)};

    struct berth_plan_params own = *params;
    enum ggml_status status      = GGML_STATUS_ALLOC_FAILED;
    bool has_chunks              = false;
    if (part.items != NULL && part.offsets != NULL && part.start != NULL) {
        status = GGML_STATUS_SUCCESS;
    }
    for (size_t b = 0; b < plan->n_buffers && status == GGML_STATUS_SUCCESS; b++) {
        own.budget_us = params->budget_us / (int64_t) plan->n_buffers;
        has_chunks    = has_chunks || plan->buffers[b].max_chunk > 0;
        status        = solve_buffer(plan->set, &plan->buffers[b], &own, &part, offsets);
    }
    // An alias group over several buffers is no group.
    if (status == GGML_STATUS_SUCCESS && !has_chunks) {
        status = berth_plan_check(plan->set->items, (int64_t) plan->set->n_items, NULL, offsets, NULL);
    }
    free(part.items);
    free(part.offsets);
    free(part.start);
    if (status == GGML_STATUS_SUCCESS) {
        sum_reports(plan, sum);
    }
    return status;
}
