// SPDX-License-Identifier: MIT
// plans.h: what the commands over plans share: options, the progress of a search, what is alive at the peak.
#pragma once

#include "base/json.h"
#include "cli/models.h"
#include "view/plan.h"

#define CLI_ALIVE_SHOWN 8

// Reads a file, and warns of a context that is longer than a model was trained for; CLI_OK, or after a message.
int cli_plan_open(
    const char *path, const struct model_options *options, const struct view_budget *budget, struct view_plan *plan);
// view_plan_solve with a progress bar; Ctrl-C ends a search. CLI_OK, or after a message.
int cli_plan_place(const char *path, struct view_plan *plan, const struct berth_plan_params *params, uint64_t *offsets,
    struct berth_plan_report *sum, bool *is_stopped);

// The largest of what is alive at the peak of the buffer that needs most, a line each; of any buffer as a member "alive" of a JSON
// object. Nothing where there is no buffer. False: out of memory, and nothing is printed.
bool cli_alive_print(FILE *file, const struct view_plan *plan);
bool cli_alive_json(struct berth_json_writer *w, const struct view_plan *plan, const struct view_buffer *buffer);

// A line "lower ..." after what `berth plan` prints, or the member "lower" of its JSON: settings of a model, each planned for it,
// which takes as long as its plan did. A longer search is offered unless one was made: searched_us is its time limit.
void cli_lower_print(FILE *file, const char *path, const struct model_options *options, const struct view_plan *plan,
    const struct berth_plan_report *report, int64_t searched_us);
void cli_lower_json(
    struct berth_json_writer *w, const char *path, const struct model_options *options, const struct view_plan *plan);
// What is alive at the peak of a model's graph, and the line "lower", for commands that plan it otherwise; or why it cannot be
// planned. In JSON: the members "alive" and "lower", or an "alive" with an "error" alone.
void cli_peak_print(FILE *file, const char *path, const struct model_options *options);
void cli_peak_json(struct berth_json_writer *w, const char *path, const struct model_options *options);

// ---- map.c ----

// Is this a name that maps take: .svg or .html?
bool cli_map_is_name(const char *path);
// Writes the map of a plan as an allocator or a scheduler saved it, as JSON; CLI_OK, or after a message.
int cli_map_saved(const char *text, size_t size, const char *title, const char *path);
