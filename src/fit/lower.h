// SPDX-License-Identifier: MIT
// lower.h: what would lower the memory that a plan takes: settings of a model that are tried, and options that can be.
#pragma once

#include "cli/models.h"
#include "view/plan.h"

// A line "lower ..." behind what `berth plan` prints, or ", \"lower\": [...]" of its JSON. Other settings of a model are planned
// for it, which takes as long as its plan did. A longer search is offered unless one was made: searched_us is its time limit.
void cli_lower_print(FILE *file, const char *path, const struct model_options *options, const struct cli_plan *plan,
    const struct berth_plan_report *report, int64_t searched_us);
void cli_lower_json(FILE *file, const char *path, const struct model_options *options, const struct cli_plan *plan);
// What is alive at the peak of a model's graph, and the line "lower": for commands that plan it otherwise. Where it cannot be
// planned, which is not what they were asked, a line says why. In JSON: ", \"alive\": {...}, \"lower\": [...]", or an alive with
// an "error" alone.
void cli_peak_print(FILE *file, const char *path, const struct model_options *options);
void cli_peak_json(FILE *file, const char *path, const struct model_options *options);
