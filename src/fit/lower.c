// SPDX-License-Identifier: MIT
// lower.c: see lower.h. A setting is named if it takes less, or if it could not be planned, and why.

#include "fit/lower.h"

#include "base/json.h"
#include "cli/plans.h"

#include <inttypes.h>
#include <stdlib.h>

#define BATCH 512 // of a session that is asked for none
#define MAX_WAYS 2
#define HINT_US 1000000 // of the search that is offered

struct way {
    char option[64];
    uint64_t less;   // bytes of all devices
    char error[256]; // why it could not be planned; empty: it could
};

static uint64_t total_of(const struct cli_plan *plan) {
    uint64_t sum = 0;
    for (size_t i = 0; i < plan->n_homes; i++) {
        sum += plan->homes[i].weights + plan->homes[i].cache + plan->homes[i].compute;
    }
    return sum;
}

// Is it worth a word?
static bool way_try(const char *path, struct model_options *other, const struct cli_plan *plan, struct way *way) {
    struct cli_plan found = {0};
    other->is_quiet = true;
    const bool ok = cli_plan_read_model(path, other, &found) == GGML_STATUS_SUCCESS;
    way->less = ok && total_of(&found) < total_of(plan) ? total_of(plan) - total_of(&found) : 0;
    snprintf(way->error, sizeof way->error, "%s", ok ? "" : berth_last_error());
    cli_plan_free(&found);
    berth_clear_error();
    return !ok || way->less > 0;
}

static int ways_find(const char *path, const struct model_options *options, const struct cli_plan *plan, struct way *ways) {
    int n = 0;
    struct model_options other = *options;
    other.n_batch = (options->n_batch > 0 ? options->n_batch : BATCH) / 2;
    if (plan->n_homes > 0 && other.n_batch > 0) {
        snprintf(ways[n].option, sizeof ways[n].option, "-b %" PRId64, other.n_batch);
        n += way_try(path, &other, plan, &ways[n]);
    }
    other = *options;
    if (plan->n_homes > 0 && !options->has_cache_type) {
        other.has_cache_type = true;
        other.cache_k = other.cache_v = GGML_TYPE_Q8_0;
        snprintf(ways[n].option, sizeof ways[n].option, "--cache-type q8_0");
        n += way_try(path, &other, plan, &ways[n]);
    }
    return n;
}

void cli_lower_print(FILE *file, const char *path, const struct model_options *options, const struct cli_plan *plan,
    const struct berth_plan_report *report, int64_t searched_us) {
    struct way ways[MAX_WAYS];
    const int n = ways_find(path, options, plan, ways);
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

void cli_lower_json(FILE *file, const char *path, const struct model_options *options, const struct cli_plan *plan) {
    struct way ways[MAX_WAYS];
    const int n = ways_find(path, options, plan, ways);
    fputs(", \"lower\": [", file);
    for (int i = 0; i < n; i++) {
        fprintf(file, "%s{\"option\": \"%s\", ", i > 0 ? ", " : "", ways[i].option);
        if (ways[i].error[0] != '\0') {
            fputs("\"error\": ", file);
            berth_json_write_string(ways[i].error, file);
        } else {
            fprintf(file, "\"less\": %" PRIu64, ways[i].less);
        }
        fputc('}', file);
    }
    fputs("]", file);
}

// A model's graph, planned as `berth plan` plans it.
struct peak {
    struct cli_plan plan;
    struct berth_plan_report report;
    bool is_known;
};

static void peak_find(struct peak *p, const char *path, const struct model_options *options) {
    const struct berth_plan_params params = {0};
    struct model_options own = *options;
    bool is_stopped = false;
    *p = (struct peak){.is_known = false};
    own.is_quiet = true;
    uint64_t *offsets = cli_plan_read(path, &own, &(struct cli_budget){0}, &p->plan) == GGML_STATUS_SUCCESS
                            ? malloc((p->plan.set->n_items + 1) * sizeof *offsets)
                            : NULL;
    p->is_known = offsets != NULL && cli_plan_solve(&p->plan, &params, offsets, &p->report, &is_stopped) == GGML_STATUS_SUCCESS;
    free(offsets);
}

static void peak_free(struct peak *p) {
    cli_plan_free(&p->plan);
    berth_clear_error();
}

static const char *why_unknown(void) {
    const char *error = berth_last_error();
    return error[0] != '\0' ? error : "out of memory";
}

void cli_peak_print(FILE *file, const char *path, const struct model_options *options) {
    struct peak p;
    peak_find(&p, path, options);
    if (p.is_known && cli_alive_print_most(file, &p.plan)) {
        cli_lower_print(file, path, options, &p.plan, &p.report, HINT_US); // these commands have no --time
    } else {
        fprintf(file, "  alive at the peak: not known: %s\n", why_unknown());
    }
    peak_free(&p);
}

void cli_peak_json(FILE *file, const char *path, const struct model_options *options) {
    struct peak p;
    peak_find(&p, path, options);
    if (p.is_known && cli_alive_json_most(file, &p.plan)) {
        cli_lower_json(file, path, options, &p.plan);
    } else {
        fputs(", \"alive\": {\"error\": ", file);
        berth_json_write_string(why_unknown(), file);
        fputs("}", file);
    }
    peak_free(&p);
}
