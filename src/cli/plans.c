// SPDX-License-Identifier: MIT
// plans.c: the functions of plans.h.

#include "cli/plans.h"

#include "base/size.h"
#include "cli/help.h"

#include <inttypes.h>
#include <string.h>

// ---- reading and planning ----

int cli_plan_open(
    const char *path, const struct model_options *options, const struct view_budget *budget, struct view_plan *plan) {
    if (view_plan_read(path, options, budget, plan) != GGML_STATUS_SUCCESS) {
        return cli_fail(CLI_FAILURE, "%s", berth_last_error());
    }
    if (plan->n_ctx_train > 0) {
        cli_context_warn(options->n_ctx, plan->n_ctx_train);
    }
    return CLI_OK;
}

static bool search_show(const struct view_progress *p, void *user) {
    (void) user;
    char text[2][32];
    const double gap = p->bound > 0 ? 100 * ((double) p->peak / (double) p->bound - 1) : 0;
    cli_progress("searching", (uint64_t) p->us, (uint64_t) p->limit_us, "peak %s, bound %s, gap %.3f%%, fell %.0f s ago",
        cli_short_bytes(p->peak, text[0]), cli_short_bytes(p->bound, text[1]), gap, (double) (p->us - p->fell_us) / 1e6);
    return !cli_is_interrupted(NULL);
}

int cli_plan_place(const char *path, struct view_plan *plan, const struct berth_plan_params *params, uint64_t *offsets,
    struct berth_plan_report *sum, bool *is_stopped) {
    if (params->time_limit_us > 0) {
        cli_catch_interrupt();
    }
    plan->watch = search_show;
    const enum ggml_status status = view_plan_solve(plan, params, offsets, sum, is_stopped);
    cli_progress_end();
    return status == GGML_STATUS_SUCCESS ? CLI_OK : cli_fail(CLI_FAILURE, "%s: %s", path, berth_last_error());
}

// ---- values alive at the peak ----

static double share_of(uint64_t part, uint64_t all) {
    return all > 0 ? (double) part / (double) all : 0;
}

bool cli_alive_print(FILE *file, const struct view_plan *plan) {
    const struct view_buffer *buffer = view_plan_largest(plan);
    size_t n;
    uint64_t bytes, rest = 0;
    char text[32];
    if (buffer == NULL) {
        return true;
    }
    struct view_alive *list = view_alive_at_bound(plan, buffer, &n, &bytes);
    const bool is_out_of_memory = list == NULL;
    if (is_out_of_memory || n == 0) {
        berth_free(list);
        return !is_out_of_memory;
    }
    fprintf(file, "  alive at step %" PRId64, buffer->report.bound_step);
    if (plan->n_buffers > 1 && *buffer->name != '\0') {
        fputs(" in ", file);
        cli_text(file, 0, buffer->name);
    }
    fprintf(file, ": %s in %zu piece%s\n", cli_short_bytes(bytes, text), n, n == 1 ? "" : "s");
    for (size_t i = 0; i < n; i++) {
        if (i >= CLI_ALIVE_SHOWN) {
            rest += list[i].size;
            continue;
        }
        fprintf(file, "    %10s %5.1f%%  ", cli_short_bytes(list[i].size, text), 100 * share_of(list[i].size, bytes));
        cli_text(file, *list[i].op != '\0' ? 28 : 0, list[i].name);
        if (*list[i].op != '\0') {
            fputc(' ', file);
            cli_text(file, 0, list[i].op);
        }
        fputc('\n', file);
    }
    if (n > CLI_ALIVE_SHOWN) {
        fprintf(file, "    %10s %5.1f%%  %zu others\n", cli_short_bytes(rest, text), 100 * share_of(rest, bytes),
            n - CLI_ALIVE_SHOWN);
    }
    berth_free(list);
    return true;
}

bool cli_alive_json(struct berth_json_writer *w, const struct view_plan *plan, const struct view_buffer *buffer) {
    size_t n = 0;
    uint64_t bytes = 0;
    struct view_alive *list = buffer != NULL ? view_alive_at_bound(plan, buffer, &n, &bytes) : NULL;
    if (list == NULL) {
        return buffer == NULL;
    }
    berth_json_begin(w, "alive", '{');
    berth_json_printf(w, "'step': %" PRId64 ", 'bytes': %" PRIu64 ", 'pieces': %zu", buffer->report.bound_step, bytes, n);
    berth_json_begin(w, "largest", '[');
    for (size_t i = 0; i < n && i < CLI_ALIVE_SHOWN; i++) {
        berth_json_printf(w, "{'name': %s, 'op': %s, 'bytes': %" PRIu64 ", 'share': %.6f}", list[i].name, list[i].op,
            list[i].size, share_of(list[i].size, bytes));
    }
    berth_json_end(w);
    berth_json_end(w);
    berth_free(list);
    return true;
}

#define HINT_US 1000000 // time limit of the search that is suggested

// ---- options ----

static int limit_add(struct fit_limits *limits, const char *command, const char *text) {
    const char *sign = strrchr(text, '=');
    struct model_error error = {""};
    uint64_t bytes;
    if (sign == text || !berth_parse_size(sign != NULL ? sign + 1 : text, &bytes) || bytes == 0) {
        return cli_usage(command, "--memory '%s' is neither a number of bytes from 1 to 2^62 nor DEVICE=BYTES", text);
    }
    switch (fit_limits_add(limits, text, sign != NULL ? (size_t) (sign - text) : 0, bytes, &error)) {
        case GGML_STATUS_SUCCESS: return CLI_OK;
        case GGML_STATUS_FAILED: return cli_usage(command, "%s", error.text);
        default: return cli_fail(CLI_FAILURE, "%s", error.text);
    }
}

int cli_fit_memory(const struct cli_option *option, const char *command, const char *value, void *target) {
    (void) option;
    char *text = (char *) (uintptr_t) value; // an argument of the command, which is split at its commas in place
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

int cli_fit_check(const char *command, const struct fit_question *q) {
    return q->allow != 0 && q->limits.n == 0 ? cli_usage(command, "--allow requires --memory") : CLI_OK;
}

int cli_fit_apply(const char *command, struct fit_question *q, struct model_options *model, bool has_loras) {
    struct fit_answer a;
    struct model_error error = {""};
    struct workbench m;
    char text[256];
    if (q->limits.n == 0) {
        return CLI_OK;
    }
    while (q->limits.items[q->limits.n - 1].text == NULL) { // the free memory of a GPU, from an earlier call
        q->limits.n--;
    }
    q->model = *model;
    if (q->allow == 0) {
        q->allow = FIT_BATCH | FIT_RECOMPUTE | FIT_CACHE_TYPE | FIT_SPILL;
    }
    if (has_loras) { // fit_solve plans graphs without the ops of adapters
        q->allow &= ~(unsigned) FIT_RECOMPUTE;
    }
    if (q->allow == 0) {
        return cli_usage(command, "--allow recompute and --lora cannot be combined");
    }
    q->max_ctx = 4096; // the largest default context without --memory
    q->watch = cli_watch;
    if (!fit_open(q, &m, &error)) {
        return cli_fail(CLI_FAILURE, "%s", error.text);
    }
    cli_context_warn(q->model.n_ctx, m.model->params.n_ctx_train);
    int code = CLI_OK;
    const bool ok = fit_solve(q, &m, &a, &error);
    cli_progress_end();
    if (!ok) {
        code = cli_fail(CLI_FAILURE, "%s", error.text);
    } else if (!a.fits) {
        code = cli_fail(CLI_FAILURE, "%s: --memory is not enough: a context of %" PRId64 " requires %s", m.path, a.n_ctx,
            cli_bytes(fit_bytes(&m, a.full), text));
    } else {
        if (fit_answer_describe(q, &a, text)) {
            cli_warn("to stay within --memory: %s", text);
        }
        fit_apply(q, &a, model);
    }
    workbench_close(&m);
    return code;
}

// ---- options that lower the peak ----

void cli_lower_print(FILE *file, const char *path, const struct model_options *options, const struct view_plan *plan,
    const struct berth_plan_report *report, int64_t searched_us) {
    struct fit_way ways[FIT_MAX_WAYS];
    const int n = fit_ways_find(path, options, plan, ways);
    const char *between = "  lower    ";
    char text[32];
    for (int i = 0; i < n; i++) {
        if (ways[i].error[0] != '\0') {
            fprintf(file, "%s%s cannot be planned: %s", between, ways[i].option, ways[i].error);
        } else {
            fprintf(file, "%s%s saves %s", between, ways[i].option, cli_short_bytes(ways[i].less, text));
        }
        between = "; ";
    }
    if (report->peak > report->bound && searched_us < HINT_US) {
        fprintf(file, "%s--time 1000 may save up to %s", between, cli_short_bytes(report->peak - report->bound, text));
        between = "; ";
    } else if (report->peak == report->bound && plan->can_budget && plan->budgeted == NULL) {
        fprintf(file, "%s--budget N recomputes ops to stay within N bytes", between);
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
        fprintf(file, "  alive at the peak: unknown: %s\n", error.text);
        return;
    }
    if (cli_alive_print(file, &p.plan)) {
        // With HINT_US the function does not suggest --time, which these commands do not have.
        cli_lower_print(file, path, options, &p.plan, &p.report, HINT_US);
    } else {
        fputs("  alive at the peak: unknown: out of memory\n", file);
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
