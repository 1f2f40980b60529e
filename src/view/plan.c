// SPDX-License-Identifier: MIT
// plan.c: which reader a file is for, and its plan, buffer by buffer.

#include "view/plan.h"

#include "base/base.h"
#include "cli/help.h"
#include "cli/models.h"

#include <stdlib.h>
#include <string.h>

// ---- reading ----

// -c is of models; it was the capacity once.
static enum ggml_status options_fit(const char *path, bool is_model, const struct model_options *options) {
    return is_model || options->n_ctx == 0
               ? GGML_STATUS_SUCCESS
               : berth_fail(
                     GGML_STATUS_FAILED, "%s: is no model, so that it has no context; bytes are given by --capacity", path);
}

enum ggml_status cli_plan_read(
    const char *path, const struct model_options *options, const struct cli_budget *budget, struct cli_plan *plan) {
    const bool is_graph = cli_ends_with(path, ".ggraph") || cli_ends_with(path, ".ggraph.gz") ||
                          cli_starts_with(path, "ggraph 1") || cli_starts_with(path, "\x1f\x8b"); // gzip

    *plan = (struct cli_plan){.budget = *budget, .can_budget = is_graph};
    const bool is_model = !is_graph && cli_starts_with(path, CLI_GGUF);
    enum ggml_status status = options_fit(path, is_model, options);
    if (status == GGML_STATUS_SUCCESS && budget->bytes > 0 && is_model) {
        status = berth_fail(GGML_STATUS_FAILED, "%s: --budget is for captured graphs and CSV with costs", path);
    }
    if (status != GGML_STATUS_SUCCESS) {
        return status;
    }
    status = is_graph   ? cli_plan_read_graph(path, plan)
             : is_model ? cli_plan_read_model(path, options, plan)
                        : berth_plan_read_file(path, &plan->set);
    if (status == GGML_STATUS_SUCCESS && budget->bytes > 0 && !is_graph) {
        status = cli_plan_budget_set(path, plan);
    }
    if (status == GGML_STATUS_SUCCESS) {
        status = cli_plan_buffers(plan);
    }
    if (status != GGML_STATUS_SUCCESS) {
        cli_plan_free(plan);
    }
    return status;
}

// ---- options ----

int cli_plan_budget(const char *command, const char *option, const char *value, uint64_t *bytes) {
    return cli_parse_size(value, bytes) && *bytes > 0
               ? CLI_OK
               : cli_usage(command, "--%s '%s' is not a number of bytes from 1 to 2^62", option, value);
}

int cli_plan_budget_check(const char *command, const struct cli_budget *budget) {
    return budget->spill > 0 && budget->bytes == 0 ? cli_usage(command, "--spill is for a graph under a --budget") : CLI_OK;
}

bool cli_plan_option(const char *command, int c, const char *value, struct berth_plan_params *params, int *code) {
    int64_t n;
    *code = CLI_OK;
    if (c == CLI_TIME) {
        *code = cli_parse_ms(value, &params->budget_us)
                    ? CLI_OK
                    : cli_usage(command, "--time '%s' is not a number of milliseconds", value);
    } else if (c == 't') { // the time once, which mostly was larger
        *code =
            cli_parse_int(value, 1, 256, &n)
                ? CLI_OK
                : cli_usage(command, "--threads '%s' is not a number from 1 to 256; milliseconds are --time %s", value, value);
        params->n_threads = *code == CLI_OK ? (int32_t) n : 0;
    }
    return c == CLI_TIME || c == 't';
}

// ---- planning ----

// A search in progress, for who looks on.
struct search {
    int64_t start_us, budget_us;    // of all buffers
    uint64_t done_peak, done_bound; // of the buffers before
};

static bool watch(uint64_t peak, uint64_t bound, void *user) {
    const struct search *s = user;
    const int64_t us = ggml_time_us() - s->start_us;
    char text[2][32];
    peak += s->done_peak;
    bound += s->done_bound;
    cli_progress("searching", (uint64_t) us, (uint64_t) s->budget_us, "peak %s, bound %s, gap %.3f%%",
        cli_short_bytes(peak, text[0]), cli_short_bytes(bound, text[1]),
        bound > 0 ? 100 * ((double) peak / (double) bound - 1) : 0);
    return !cli_is_interrupted(NULL);
}

// Memory for the items of one buffer.
struct part {
    struct berth_plan_item *items;
    uint64_t *offsets, *start;
};

static enum ggml_status solve_buffer(const struct berth_plan_set *set, struct cli_buffer *buffer,
    const struct berth_plan_params *params, struct search *search, struct part *part, uint64_t *offsets) {
    struct berth_plan_params own = *params;

    own.max_chunk = buffer->max_chunk;
    own.start = params->start != NULL ? part->start : NULL;
    for (size_t k = 0; k < buffer->n_items; k++) {
        part->items[k] = set->items[buffer->items[k]];
        part->start[k] = params->start != NULL ? params->start[buffer->items[k]] : 0;
    }
    const int64_t n = (int64_t) buffer->n_items;
    const int64_t start_us = ggml_time_us();
    enum ggml_status status = berth_plan_solve_watched(part->items, n, &own, watch, search, part->offsets, &buffer->report);
    // The planner leaves the clock alone where a plan takes less than a look at it.
    buffer->report.time_us = ggml_time_us() - start_us + 1;
    search->done_peak += buffer->report.peak;
    search->done_bound += buffer->report.bound;
    if (status == GGML_STATUS_SUCCESS) {
        status = berth_plan_check(part->items, n, &own, part->offsets, NULL);
    }
    for (size_t k = 0; status == GGML_STATUS_SUCCESS && k < buffer->n_items; k++) {
        offsets[buffer->items[k]] = part->offsets[k];
    }
    return status;
}

// A buffer that surely does not fit answers for all of them; otherwise each answer must be sure.
static void sum_reports(const struct cli_plan *plan, struct berth_plan_report *sum) {
    uint64_t most = 0;
    bool is_no = false;

    *sum = (struct berth_plan_report){.proven = true, .fits = true, .method = "nothing to place"};
    for (size_t b = 0; b < plan->n_buffers; b++) {
        const struct berth_plan_report *r = &plan->buffers[b].report;
        sum->peak += r->peak;
        sum->bound += r->bound;
        sum->proven = sum->proven && r->proven;
        sum->fits = sum->fits && r->fits;
        is_no = is_no || (!r->fits && r->proven);
        sum->time_us += r->time_us;
        sum->n_nodes += r->n_nodes;
        sum->n_peak += r->n_peak;
        if (b == 0 || r->peak > most) {
            most = r->peak;
            sum->method = r->method;
            sum->bound_step = r->bound_step;
        }
    }
    sum->proven = sum->proven || is_no;
    sum->gap = sum->bound > 0 ? (double) sum->peak / (double) sum->bound - 1 : 0;
}

enum ggml_status cli_plan_solve(struct cli_plan *plan, const struct berth_plan_params *params, uint64_t *offsets,
    struct berth_plan_report *sum, bool *is_stopped) {
    const size_t n = plan->set->n_items + 1;
    struct part part = {malloc(n * sizeof *part.items), malloc(n * sizeof *part.offsets), malloc(n * sizeof *part.start)};

    struct search search = {.start_us = ggml_time_us(), .budget_us = params->budget_us};
    struct berth_plan_params own = *params;
    enum ggml_status status = GGML_STATUS_SUCCESS;
    bool has_chunks = false;
    if (params->budget_us > 0) {
        cli_catch_interrupt();
    }
    if (part.items == NULL || part.offsets == NULL || part.start == NULL) {
        status = berth_fail(GGML_STATUS_ALLOC_FAILED, "out of memory for %zu items", n);
    }
    for (size_t b = 0; b < plan->n_buffers && status == GGML_STATUS_SUCCESS; b++) {
        own.budget_us = params->budget_us / (int64_t) plan->n_buffers;
        has_chunks = has_chunks || plan->buffers[b].max_chunk > 0;
        status = solve_buffer(plan->set, &plan->buffers[b], &own, &search, &part, offsets);
    }
    cli_progress_end();
    *is_stopped = params->budget_us > 0 && cli_is_interrupted(NULL);
    // An alias group over several buffers is no group. Each buffer alone was checked.
    if (status == GGML_STATUS_SUCCESS && !has_chunks && plan->n_buffers > 1) {
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
