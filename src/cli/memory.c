// SPDX-License-Identifier: MIT
// memory.c: what the commands over models share about memory: the options --memory and --allow, and the lines that say what is
// alive at the peak and what would lower it.

#include "base/json.h"
#include "cli/models.h"
#include "cli/plans.h"
#include "fit/fit.h"

#include <inttypes.h>
#include <string.h>

#define HINT_US 1000000 // of the search that is offered

// ---- options ----

static int limit_add(struct fit_limits *limits, const char *command, const char *text) {
    const char *sign = strrchr(text, '=');
    struct model_error error = {""};
    uint64_t bytes;
    if (sign == text || !cli_parse_size(sign != NULL ? sign + 1 : text, &bytes) || bytes == 0) {
        return cli_usage(
            command, "--memory '%s' is not a number of bytes from 1 to 2^62, or a device, '=' and such a number", text);
    }
    switch (fit_limits_add(limits, text, sign != NULL ? (size_t) (sign - text) : 0, bytes, &error)) {
        case GGML_STATUS_SUCCESS: return CLI_OK;
        case GGML_STATUS_FAILED: return cli_usage(command, "%s", error.text);
        default: return cli_fail(CLI_FAILURE, "%s", error.text);
    }
}

int cli_fit_memory(const struct cli_option *option, const char *command, const char *value, void *target) {
    (void) option;
    char *text = (char *) (uintptr_t) value; // an argument of the command, which is cut at its commas
    for (char *next; text != NULL; text = next) {
        next = strchr(text, ',');
        if (next != NULL) {
            *next++ = '\0';
        }
        const int code = limit_add(target, command, text);
        if (code != CLI_OK) {
            return code;
        }
    }
    return CLI_OK;
}

int cli_fit_allow(const struct cli_option *option, const char *command, const char *value, void *target) {
    (void) option;
    struct model_error error = {""};
    return fit_allow_parse(value, target, &error) ? CLI_OK : cli_usage(command, "%s", error.text);
}

// ---- what would lower it ----

void cli_lower_print(FILE *file, const char *path, const struct model_options *options, const struct view_plan *plan,
    const struct berth_plan_report *report, int64_t searched_us) {
    struct fit_way ways[FIT_MAX_WAYS];
    const int n = fit_ways_find(path, options, plan, ways);
    const char *between = "  lower    ";
    char text[32];
    for (int i = 0; i < n; i++) {
        if (ways[i].error[0] != '\0') {
            fprintf(file, "%s%s could not be planned: %s", between, ways[i].option, ways[i].error);
        } else {
            fprintf(file, "%s%s takes %s less", between, ways[i].option, cli_short_bytes(ways[i].less, text));
        }
        between = "; ";
    }
    if (report->peak > report->bound && searched_us < HINT_US) {
        fprintf(file, "%s--time 1000 searches for up to %s less", between, cli_short_bytes(report->peak - report->bound, text));
        between = "; ";
    } else if (report->peak == report->bound && plan->can_budget && plan->budgeted == NULL) {
        fprintf(file, "%s--budget N runs ops again to stay within N bytes", between);
        between = "; ";
    }
    if (between[0] == ';') {
        fputc('\n', file);
    }
}

void cli_lower_json(
    struct berth_json_writer *w, const char *path, const struct model_options *options, const struct view_plan *plan) {
    struct fit_way ways[FIT_MAX_WAYS];
    const int n = fit_ways_find(path, options, plan, ways);
    berth_json_begin(w, "lower", '[');
    for (int i = 0; i < n; i++) {
        if (ways[i].error[0] != '\0') {
            berth_json_printf(w, "{'option': %s, 'error': %s}", ways[i].option, ways[i].error);
        } else {
            berth_json_printf(w, "{'option': %s, 'less': %" PRIu64 "}", ways[i].option, ways[i].less);
        }
    }
    berth_json_end(w);
}

// ---- the peak ----

void cli_peak_print(FILE *file, const char *path, const struct model_options *options) {
    struct fit_peak p;
    struct model_error error = {""};
    if (!fit_peak_init(&p, path, options, &error)) {
        fprintf(file, "  alive at the peak: not known: %s\n", error.text);
        return;
    }
    if (cli_alive_print(file, &p.plan)) {
        cli_lower_print(file, path, options, &p.plan, &p.report, HINT_US); // these commands have no --time
    } else {
        fputs("  alive at the peak: not known: out of memory\n", file);
    }
    fit_peak_fini(&p);
}

void cli_peak_json(struct berth_json_writer *w, const char *path, const struct model_options *options) {
    struct fit_peak p;
    struct model_error error = {""};
    const bool is_known = fit_peak_init(&p, path, options, &error);
    if (is_known && cli_alive_json(w, &p.plan, view_plan_largest(&p.plan))) {
        cli_lower_json(w, path, options, &p.plan);
    } else {
        berth_json_printf(w, "'alive': {'error': %s}", is_known ? "out of memory" : error.text);
    }
    fit_peak_fini(&p);
}
