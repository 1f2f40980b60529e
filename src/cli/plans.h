// SPDX-License-Identifier: MIT
// plans.h: functions that the commands on plans share.
#pragma once

#include "base/json.h"
#include "cli/models.h"
#include "fit/fit.h"
#include "view/plan.h"

#define CLI_ALIVE_SHOWN 8

// Warns if the context is longer than that of training. On failure prints a message and returns the exit code.
int cli_plan_open(
    const char *path, const struct model_options *options, const struct view_budget *budget, struct view_plan *plan);
// Calls view_plan_solve with a progress bar. Ctrl-C ends a search. On failure prints a message and returns the exit code.
int cli_plan_place(const char *path, struct view_plan *plan, const struct berth_plan_params *params, uint64_t *offsets,
    struct berth_plan_report *sum, bool *is_stopped);

// Refuses --allow without --memory. Returns the exit code.
int cli_fit_check(const char *command, const struct fit_question *question);
// For --memory and --allow of the command: finds a setting of the model within the limits, sets the options to it, and prints
// what changes. Without limits does nothing. On failure prints a message and returns the exit code. has_loras: the model gets
// adapters.
int cli_fit_apply(const char *command, struct fit_question *question, struct model_options *model, bool has_loras);

// cli_alive_print prints the largest values alive at the peak of the largest buffer. cli_alive_json writes the values of the given
// buffer as the member "alive". Without a buffer, nothing is printed. False: out of memory; nothing is printed.
bool cli_alive_print(FILE *file, const struct view_plan *plan);
bool cli_alive_json(struct berth_json_writer *w, const struct view_plan *plan, const struct view_buffer *buffer);

// Prints the line "lower ..." of `berth plan`, or writes the JSON member "lower". Both list options of the command that lower the
// peak of a model. Each option is planned, which takes as long as the plan itself. searched_us: time limit of the search that
// made the plan. If searched_us is short, a longer search is suggested.
void cli_lower_print(FILE *file, const char *path, const struct model_options *options, const struct view_plan *plan,
    const struct berth_plan_report *report, int64_t searched_us);
void cli_lower_json(
    struct berth_json_writer *w, const char *path, const struct model_options *options, const struct view_plan *plan);
// Prints the values alive at the peak of a model's graph and the line "lower". If the graph cannot be planned, prints the reason.
// JSON: the members "alive" and "lower", or only "alive" with an "error".
void cli_peak_print(FILE *file, const char *path, const struct model_options *options);
void cli_peak_json(struct berth_json_writer *w, const char *path, const struct model_options *options);

// ---- map.c ----

// The name ends with .svg or .html.
bool cli_map_is_name(const char *path);
// Writes the map of a plan that an allocator or a scheduler saved as JSON. On failure prints a message and returns the exit code.
int cli_map_saved(const char *text, size_t size, const char *title, const char *path);
