// SPDX-License-Identifier: MIT
// plan.c: `berth plan FILE` reads items, plans them, prints the result, and writes the plan.

#include "view/plan.h"
#include "base/json.h"
#include "cli/help.h"
#include "cli/models.h"
#include "cli/plans.h"
#include "proof/file.h"

#include <inttypes.h>
#include <string.h>

struct options {
    const char *path;
    const char *out;
    const char *proof;
    bool json;
    bool has_capacity;
    struct view_budget budget;
    bool is_stopped; // by Ctrl-C
    struct model_options model;
    struct berth_plan_params params;
};

static const struct cli_option option_rows[] = {
    CLI_OPTION(0, "capacity", "N",
        "test whether each buffer fits into N bytes. Exit code 0: yes, 1: proven not to fit, 4: unknown, try a longer --time. N "
        "takes K, M, G, KiB, MiB, ..., kB, MB, ...",
        .kind = CLI_SIZE, CLI_TO(struct options, params.memory_limit)),
    CLI_OPTION(0, "budget", "N",
        "for a captured graph or CSV with costs: stay within N bytes by recomputing. Exit code 0: it fits, 1: proven not to fit, "
        "4: "
        "no schedule was found",
        .kind = CLI_SIZE, CLI_TO(struct options, budget.bytes)),
    CLI_OPTION(0, "spill", "N",
        "with --budget: values may also be spilled to another pool of N bytes; the cost per byte is printed with the result",
        .kind = CLI_SIZE, CLI_TO(struct options, budget.spill)),
    CLI_OPT_SEARCH_TIME(struct options, params.time_limit_us),
    CLI_OPT_SEARCH_THREADS(struct options, params.n_threads),
    CLI_OPTION(
        's', "seed", "S", "random seed of the search", .kind = CLI_INT, .preset = "0", CLI_TO(struct options, params.seed)),
    CLI_OPT_MODEL,
    CLI_SESSION_ROWS,
    CLI_OPT_LLAMA,
    CLI_OPTION('o', "out", "FILE",
        "write the plan: CSV with a column 'offset', or JSON if the name ends in .json; '-': standard output", .takes = "*",
        CLI_TO(struct options, out)),
    CLI_OPTION(0, "proof", "FILE",
        "write why the bound holds, which 'berth verify --proof FILE PLAN' checks (PLAN from --out); nothing else is then called "
        "proven. With --budget: why no schedule keeps it (verify takes the same --budget and --spill). FILE.gz is compressed",
        .takes = "*", CLI_TO(struct options, proof)),
    CLI_OPT_JSON(CLI_TO(struct options, json),
        "print one JSON object: items, peak, bound, gap, proven, fits (null without --capacity), method, ms, stopped, and "
        "buffers (the same keys per buffer, the curve of the search, and the values alive at its peak); models add 'memory' and "
        "'lower'"),
    {0},
};

const struct cli_help cli_plan_help = {
    .command = "plan",
    .what = "place the buffers of a file in memory with the lowest peak",
    .operands = "FILE",
    .takes = ".csv .json .ggraph .ggraph.gz .gguf",
    .n_operands = {1, 1, 1},
    .bases = {[CLI_IN_MODEL] = offsetof(struct options, model)},
    .about =
        "Places every buffer of FILE in memory with the lowest peak and proves how good the plan is. FILE is a CSV of lifetimes "
        "with a header line (id,lower,upper,size and optionally alignment, offset, pool, alias, fixed; upper is exclusive), a "
        "plan saved as JSON (first and last are inclusive), a captured graph (.ggraph, .ggraph.gz), or a GGUF model; '-' "
        "reads standard input. If the offsets in FILE are a valid plan, the search starts from it.",
    .options = option_rows,
    .size = sizeof(struct options),
    .initial = &(const struct options){.model = {.may_llama = true}},
    .negative = "proven not to fit",
    .further = "4 no result in the time limit",
    .examples = {{"Does a graph fit into 64 MiB?", "plan --capacity 64MiB graph.ggraph.gz"},
        {"Search for 500 ms and keep the plan", "plan --time 500 -t 2 -o best.json hard.csv"}},
};

static int options_check(struct options *o) {
    o->path = o->model.path;
    o->has_capacity = o->params.memory_limit > 0;
    if (o->budget.spill > 0 && o->budget.bytes == 0) {
        return cli_usage("plan", "--spill requires --budget");
    }
    if (o->json && o->out != NULL && cli_is_stdout(o->out)) {
        return cli_usage("plan", "--json and --out - cannot be combined: both write to standard output");
    }
    const int code = cli_output_check(o->proof);
    return code != CLI_OK ? code : cli_output_check(o->out);
}

static void print_report(
    struct berth_json_writer *w, const struct options *o, size_t n_items, const struct berth_plan_report *r) {
    berth_json_printf(w, "'items': %zu, 'peak': %" PRIu64 ", 'bound': %" PRIu64 ", 'gap': %.6f, 'proven': %c", n_items, r->peak,
        r->bound, r->gap, r->proven);
    if (o->has_capacity) {
        berth_json_printf(w, "'fits': %c", r->fits);
    } else {
        berth_json_printf(w, "'fits': null");
    }
    berth_json_printf(w, "'method': %s, 'ms': %.3f", r->method, (double) r->time_us / 1000);
}

// The lowest cost of a schedule has no proof. So with --proof, it is not called proven.
static bool is_budget_proven(const struct options *o, const struct berth_budget_result *b) {
    return b->proven && (o->proof == NULL || !b->fits);
}

// Returns false if memory is exhausted.
static bool print_json(const struct options *o, const struct view_plan *plan, const struct berth_plan_report *sum) {
    bool ok = true;
    struct berth_json_writer w = {.file = stdout};
    berth_json_begin(&w, NULL, '{');
    print_report(&w, o, plan->set->n_items, sum);
    berth_json_printf(&w, "'stopped': %c", o->is_stopped);
    berth_json_begin(&w, "buffers", '[');
    for (size_t b = 0; b < plan->n_buffers; b++) {
        const struct view_buffer *buffer = &plan->buffers[b];
        berth_json_begin(&w, NULL, '{');
        berth_json_printf(&w, "'buffer': %d, 'name': %s", buffer->pool, buffer->name);
        print_report(&w, o, buffer->n_items, &buffer->report);
        berth_json_begin(&w, "curve", '[');
        for (size_t k = 0; k < buffer->n_curve; k++) {
            const struct view_point *point = &buffer->curve[k];
            berth_json_printf(&w, "{'ms': %.3f, 'peak': %" PRIu64 ", 'bound': %" PRIu64 "}", (double) point->us / 1000,
                point->peak, point->bound);
        }
        berth_json_end(&w);
        ok = cli_alive_json(&w, plan, buffer) && ok;
        berth_json_end(&w);
    }
    berth_json_end(&w);
    if (plan->n_homes > 0) {
        berth_json_begin(&w, "memory", '[');
        for (size_t i = 0; i < plan->n_homes; i++) {
            const struct view_home *home = &plan->homes[i];
            berth_json_printf(&w,
                "{'device': %s, 'weights': %" PRIu64 ", 'mapped': %c, 'cache': %" PRIu64 ", 'compute': %" PRIu64 "}",
                home->device, home->weights, home->is_mapped, home->cache, home->compute);
        }
        berth_json_end(&w);
    }
    if (plan->budgeted != NULL) {
        const struct berth_budget_result *b = plan->budgeted;
        berth_json_begin(&w, "budget", '{');
        berth_json_printf(&w,
            "'bytes': %" PRIu64 ", 'fits': %c, 'proven': %c, 'least': %" PRIu64 ", 'again': %" PRId64 ", 'out': %" PRId64
            ", 'in': %" PRId64 ", 'cost': "
            "%" PRIu64 ", 'cost_once': %" PRIu64 ", 'cost_bound': %" PRIu64,
            o->budget.bytes, b->fits, is_budget_proven(o, b), b->uses[0].live_bound, b->n_recomputed, b->n_spilled, b->n_restored,
            b->cost, b->cost_once, b->cost_bound);
        berth_json_begin(&w, "alive", '[');
        for (int64_t i = 0; i < b->n_alive && i < VIEW_BUDGET_N_ALIVE; i++) {
            berth_json_printf(&w, "{'name': %s, 'bytes': %" PRIu64 "}", plan->alive[i].name, plan->alive[i].size);
        }
        berth_json_end(&w);
        berth_json_end(&w);
    }
    cli_lower_json(&w, o->path, &o->model, plan);
    fputs("}\n", stdout);
    return ok;
}

static void print_alive_together(FILE *file, const struct view_plan *plan) {
    const size_t n = plan->budgeted->n_alive;
    char text[64];
    for (size_t i = 0; i < n && i < VIEW_BUDGET_N_ALIVE; i++) {
        fprintf(file, i == 0 ? "           alive together: " : ", ");
        cli_text(file, 0, plan->alive[i].name);
        fprintf(file, " %s", cli_short_bytes(plan->alive[i].size, text));
    }
    if (n > VIEW_BUDGET_N_ALIVE) {
        fprintf(file, " and %zu more", n - VIEW_BUDGET_N_ALIVE);
    }
    fputs(n > 0 ? "\n" : "", file);
}

static void print_budget(FILE *file, const struct options *o, const struct view_plan *plan) {
    const struct berth_budget_result *b = plan->budgeted;
    const uint64_t bytes = o->budget.bytes;
    char text[2][64];
    if (b == NULL) {
        return;
    }
    if (b->fits) {
        fprintf(file, "  budget   %s: kept, %" PRId64 " %s recomputed", cli_bytes(bytes, text[0]), b->n_recomputed,
            b->n_recomputed == 1 ? "op" : "ops");
        if (b->n_uses > 1 && o->budget.spill > 0) {
            fprintf(file, ", %" PRId64 " values spilled to %s and %" PRId64 " read back", b->n_spilled,
                cli_bytes(b->uses[1].peak, text[0]), b->n_restored);
        }
        const double once = (double) (b->cost_once > 0 ? b->cost_once : 1);
        fprintf(file, ", cost %.4f times that without limit%s", (double) b->cost / once,
            is_budget_proven(o, b) ? ", proven minimal" : "");
        fputc('\n', file);
        if (o->budget.spill > 0) {
            fprintf(file, "  costs    %s\n", plan->spill_price);
        }
    } else if (b->uses[0].live_bound > bytes) {
        fprintf(file, "  budget   cannot fit: at least %s are required", cli_bytes(b->uses[0].live_bound, text[0]));
        fprintf(file, ", %s more than given\n", cli_bytes(b->uses[0].live_bound - bytes, text[1]));
        print_alive_together(file, plan);
    } else {
        fprintf(file, "  budget   %s: no schedule found%s; every schedule requires at least %s\n", cli_bytes(bytes, text[0]),
            is_budget_proven(o, b) ? ", proven that there is none" : "", cli_bytes(b->uses[0].live_bound, text[1]));
        print_alive_together(file, plan);
    }
}

// Prints how the search of the largest buffer closed the gap: when it last lowered the peak, how the peak fell in the second half of
// the search, and what the bound accounts for.
static void print_search(FILE *file, const struct view_plan *plan, const struct berth_plan_report *r) {
    const struct view_buffer *b = view_plan_largest(plan);
    if (b == NULL || b->n_curve < 2) {
        return;
    }
    const struct view_point *first = &b->curve[0], *last = &b->curve[b->n_curve - 1], *middle = first;
    const uint64_t fell = first->peak - last->peak, rose = last->bound - first->bound;
    if (r->peak == r->bound && rose == 0) {
        return;
    }
    int64_t fell_us = 0;
    for (size_t k = 1; k < b->n_curve; k++) {
        if (b->curve[k].peak < b->curve[k - 1].peak) {
            fell_us = b->curve[k].us;
        }
        if (b->curve[k].us <= b->report.time_us / 2) {
            middle = &b->curve[k];
        }
    }
    char text[32];
    fprintf(file, "  search   ");
    if (fell_us == 0) {
        fprintf(file, "found no lower peak\n");
    } else {
        fprintf(file, "the peak fell by %s", cli_short_bytes(fell, text));
        fprintf(file, ", last after %.2f s", (double) fell_us / 1e6);
        if (r->peak > r->bound) {
            fprintf(file, "; in the second half by %s%s", cli_short_bytes(middle->peak - last->peak, text),
                middle->peak > last->peak ? ": a longer --time may lower it" : "");
        }
        fputc('\n', file);
    }
    if (rose > 0) {
        fprintf(file, "           the bound rose by %s, which is %.0f%% of the closed gap\n", cli_short_bytes(rose, text),
            100 * (double) rose / ((double) rose + (double) fell));
    }
}

static void print_text(FILE *file, const struct options *o, const struct view_plan *plan, const struct berth_plan_report *r) {
    char text[64];
    const char *what = plan->n_buffers > 1 ? "each buffer " : "";
    const char *bold = cli_colour(file, CLI_BOLD), *reset = cli_colour(file, CLI_RESET), *dim = cli_colour(file, CLI_DIM);
    const char *good = cli_colour(file, CLI_GREEN), *fair = cli_colour(file, CLI_YELLOW), *bad = cli_colour(file, CLI_RED);
    fputs(bold, file);
    cli_text(file, 0, o->path);
    fprintf(file, "%s\n", reset);
    fprintf(file, "  items    %" PRId64 "\n", plan->set->n_items);
    fprintf(file, "  peak     %s%s%s\n", bold, cli_bytes(r->peak, text), reset);
    fprintf(file, "  bound    %s", cli_bytes(r->bound, text));
    fprintf(file, "%s, live bytes are highest at step %" PRId64 "%s\n", dim, r->bound_step, reset);
    if (r->peak == r->bound) {
        fprintf(file, "  gap      %snone: proven optimal%s\n", good, reset);
    } else {
        fprintf(file, "  gap      %s%.3f%%, %s%s\n", fair, 100 * r->gap, cli_bytes(r->peak - r->bound, text), reset);
    }
    if (o->has_capacity) {
        const char *colour = good, *answer = "yes, ", *hint = "";
        if (!r->fits && r->proven) {
            colour = bad;
            answer = "no: proven that no plan fits ";
        } else if (!r->fits) {
            colour = fair;
            answer = "unknown: no plan found that fits ";
            hint = o->params.time_limit_us > 0 ? "; a longer --time may find a plan" : "; --time 10000 searches for ten seconds";
        }
        fprintf(
            file, "  fits     %s%s%sinto%s %s%s\n", colour, answer, what, reset, cli_bytes(o->params.memory_limit, text), hint);
    }
    print_budget(file, o, plan);
    fprintf(file, "  method   %s\n", r->method);
    print_search(file, plan, r);
    fprintf(file, "  time     %.3f ms%s\n", (double) r->time_us / 1000, o->is_stopped ? ", stopped: the best plan so far" : "");
}

static void print_buffers(FILE *file, const struct view_plan *plan) {
    char peak[64], bound[64];
    for (size_t b = 0; b < plan->n_buffers && plan->n_buffers > 1; b++) {
        const struct view_buffer *buffer = &plan->buffers[b];
        fprintf(file, "  buffer %d%s", buffer->pool, buffer->name[0] != '\0' ? " " : "");
        cli_text(file, 0, buffer->name);
        fprintf(file, ": %zu item%s, peak %s, bound %s\n", buffer->n_items, buffer->n_items == 1 ? "" : "s",
            cli_bytes(buffer->report.peak, peak), cli_bytes(buffer->report.bound, bound));
    }
}

static void print_homes(FILE *file, const struct view_plan *plan) {
    uint64_t total = 0;
    char text[4][32];
    for (size_t i = 0; i < plan->n_homes; i++) {
        const struct view_home *home = &plan->homes[i];
        const uint64_t all = home->weights + home->cache + home->compute;
        fprintf(file, "  %s: weights %s%s, cache %s, compute %s: %s\n", home->device, cli_short_bytes(home->weights, text[0]),
            home->is_mapped ? " (mapped)" : "", cli_short_bytes(home->cache, text[1]), cli_short_bytes(home->compute, text[2]),
            cli_short_bytes(all, text[3]));
        total += all;
    }
    if (plan->n_homes > 1) {
        fprintf(file, "  total: %s\n", cli_short_bytes(total, text[0]));
    }
}

static int write_plan(
    const struct options *o, const struct berth_plan_set *set, const uint64_t *offsets, const struct berth_plan_report *report) {
    FILE *file = cli_open(o->out);
    if (file == NULL) {
        return CLI_FAILURE;
    }
    const bool json = berth_ends_with(o->out, ".json");
    const enum ggml_status status =
        json ? berth_plan_write_json(set, offsets, report, file) : berth_plan_write_csv(set, offsets, file);
    return cli_close(file, o->out, status == GGML_STATUS_SUCCESS);
}

static int answer_code(const struct options *o, const struct view_plan *plan, const struct berth_plan_report *report) {
    if (plan->budgeted != NULL && !plan->budgeted->fits && !o->is_stopped) {
        return is_budget_proven(o, plan->budgeted) ? CLI_NEGATIVE : CLI_UNKNOWN;
    }
    if (o->is_stopped) {
        return CLI_STOPPED;
    }
    if (!o->has_capacity || report->fits) {
        return CLI_OK;
    }
    return report->proven ? CLI_NEGATIVE : CLI_UNKNOWN;
}

// ---- the file of --proof ----

struct proof_out {
    FILE *file; // NULL: none
    struct proof_writer writer;
};

// Opens the file of --proof, if there is one. The solvers then write to it.
static int proof_open(struct options *o, struct proof_out *out) {
    const char *why;
    out->file = NULL;
    if (o->proof == NULL) {
        return CLI_OK;
    }
    FILE *file = cli_open(o->proof);
    if (file == NULL) {
        return CLI_FAILURE;
    }
    if (!proof_writer_init(&out->writer, file, berth_ends_with(o->proof, ".gz"), &why)) {
        return cli_close_why(file, o->proof, false, why);
    }
    out->file = file;
    o->params.proof = o->budget.proof = proof_writer_write;
    o->params.proof_data = o->budget.proof_data = &out->writer;
    return CLI_OK;
}

// Ends the file. If code is not CLI_OK, or nothing is proven, there is no file.
static int proof_close(const struct options *o, struct proof_out *out, bool is_proven, int code) {
    if (out->file == NULL) {
        return code;
    }
    if (code == CLI_OK && !is_proven) {
        cli_warn("%s: not written: it is not proven that no schedule keeps --budget; a file of this name is unchanged", o->proof);
    }
    const bool is_written = proof_writer_fini(&out->writer);
    if (is_written && (code != CLI_OK || !is_proven)) {
        cli_drop(out->file);
        return code;
    }
    return cli_close(out->file, o->proof, is_written);
}

int cli_plan(const struct cli_args *args) {
    struct options *o = args->options;
    int code = options_check(o);
    if (code != CLI_OK) {
        return code;
    }
    struct view_plan plan;
    struct proof_out proof;
    code = proof_open(o, &proof);
    if (code != CLI_OK) {
        return code;
    }
    if (cli_plan_open(o->path, &o->model, &o->budget, &plan) != CLI_OK) {
        return proof_close(o, &proof, false, CLI_FAILURE);
    }
    // If no schedule keeps the limit, the proof is about schedules, and the plan of the original graph has none.
    const bool is_kept = plan.budgeted == NULL || plan.budgeted->fits;
    if (!is_kept) {
        o->params.proof = NULL;
    }
    const struct berth_plan_set *set = plan.set;
    struct berth_plan_report report;
    uint64_t *offsets = berth_malloc((set->n_items + 1) * sizeof *offsets);
    if (set->has_offsets && berth_plan_check(set->items, set->n_items, NULL, set->offsets, NULL) == GGML_STATUS_SUCCESS) {
        o->params.start = set->offsets;
    }
    if (offsets == NULL) {
        code = cli_fail(CLI_FAILURE, "out of memory");
    } else {
        code = cli_plan_place(o->path, &plan, &o->params, offsets, &report, &o->is_stopped);
    }
    code = proof_close(o, &proof, is_kept || plan.budgeted->proven, code);
    if (code != CLI_OK) {
        goto end;
    }
    FILE *file = o->out != NULL && cli_is_stdout(o->out) ? stderr : stdout;
    bool ok;
    if (o->json) {
        ok = print_json(o, &plan, &report);
    } else {
        print_text(file, o, &plan, &report);
        print_buffers(file, &plan);
        ok = cli_alive_print(file, &plan);
        print_homes(file, &plan);
        cli_lower_print(file, o->path, &o->model, &plan, &report, o->params.time_limit_us);
    }
    if (!ok) {
        code = cli_fail(CLI_FAILURE, "%s: out of memory for the values alive at the peak", o->path);
    } else if (o->out != NULL) {
        code = write_plan(o, set, offsets, &report);
    }
    if (code == CLI_OK) {
        code = answer_code(o, &plan, &report);
    }
end:
    berth_free(offsets);
    view_plan_free(&plan);
    return code;
}
