// SPDX-License-Identifier: MIT
// map.c: `berth map FILE [OTHER] -o OUT` plans files that have no plan and writes the memory map (src/view).

#include "view/map.h"

#include "cli/help.h"
#include "cli/plans.h"

#include <string.h>

struct options {
    const char *out;
    const char *paths[2];
    size_t n_paths;
    bool captured, curve;
    struct view_budget budget;
    struct model_options model;
    struct berth_plan_params params;
};

static const struct cli_option option_rows[] = {
    CLI_OPTION('o', "out", "OUT",
        "the file to write: OUT.svg is a picture, OUT.html an interactive page with details, zoom, search and comparison (? "
        "lists "
        "the keys)",
        .takes = ".svg .html", CLI_TO(struct options, out), .is_required = true),
    CLI_OPTION(0, "captured", NULL, "for a captured graph: compare with the placement of the captured program",
        CLI_TO(struct options, captured)),
    CLI_OPTION(0, "curve", NULL, "draw the peak over the time of the search instead of the map; OUT must end in .svg",
        CLI_TO(struct options, curve)),
    CLI_OPTION(0, "budget", "N",
        "for a captured graph or CSV with costs: stay within N bytes by recomputing; recomputed values are hatched",
        .kind = CLI_SIZE, CLI_TO(struct options, budget.bytes)),
    CLI_OPTION(0, "spill", "N", "with --budget: values may also be spilled to another pool of N bytes; they are dotted",
        .kind = CLI_SIZE, CLI_TO(struct options, budget.spill)),
    CLI_OPT_SEARCH_TIME(struct options, params.time_limit_us),
    CLI_OPT_SEARCH_THREADS(struct options, params.n_threads),
    CLI_OPT_MODEL,
    CLI_SESSION_ROWS,
    CLI_OPT_LLAMA,
    {0},
};

const struct cli_help cli_map_help = {
    .command = "map",
    .what = "draw the memory map of a plan as SVG or HTML",
    .operands = "-o OUT FILE [OTHER]",
    .takes = ".csv .json .ggraph .ggraph.gz .gguf",
    .n_operands = {1, 2, 2},
    .bases = {[CLI_IN_MODEL] = offsetof(struct options, model)},
    .about =
        "Draws the memory map of FILE: addresses over time, one rectangle per tensor, coloured by family of ops, with the peak "
        "and the proven bound. With OTHER, the map compares FILE (before) with OTHER (after). It accepts the files of 'berth "
        "plan'. Files without offsets are planned first; existing offsets are drawn unchanged.",
    .options = option_rows,
    .size = sizeof(struct options),
    .initial = &(const struct options){.model = {.may_llama = true}},
    .examples = {{"A picture of a model's memory", "map model.gguf -o map.svg"},
        {"Compare two plans", "map fast.json best.json -o compare.html"},
        {"See how the peak falls during a search", "map hard.csv --time 5000 --curve -o curve.svg"}},
};

// ---- writing ----

bool cli_map_is_name(const char *path) {
    return berth_ends_with(path, ".svg") || berth_ends_with(path, ".html");
}

static int map_write(const struct map_plan *plan, const struct map_plan *before, const char *path) {
    struct map_view views[2];
    size_t n = 0;
    if (before != NULL && !map_view_init(&views[n++], before)) {
        return cli_fail(CLI_FAILURE, "%s: %s", before->title, berth_last_error());
    }
    int code = CLI_OK;
    if (!map_view_init(&views[n], plan)) {
        code = cli_fail(CLI_FAILURE, "%s: %s", plan->title, berth_last_error());
    } else {
        n++;
        FILE *file = cli_open(path);
        code = CLI_FAILURE;
        if (file != NULL) {
            code = cli_close(file, path, (berth_ends_with(path, ".svg") ? map_svg_write : map_html_write)(views, n, file));
        }
    }
    while (n > 0) {
        map_view_fini(&views[--n]);
    }
    return code;
}

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash != NULL && slash[1] != '\0' ? slash + 1 : path;
}

int cli_map_saved(const char *text, size_t size, const char *title, const char *path) {
    struct view_plan plan = {0};
    enum ggml_status status = berth_plan_read_json(text, size, title, &plan.set);
    if (status == GGML_STATUS_SUCCESS) {
        status = view_plan_buffers(&plan);
    }
    const int code = status != GGML_STATUS_SUCCESS
                         ? cli_fail(CLI_FAILURE, "the map cannot be drawn: %s",
                               status == GGML_STATUS_ALLOC_FAILED ? "out of memory" : berth_last_error())
                         : map_write(&(struct map_plan){base_name(title), &plan, plan.set->offsets}, NULL, path);
    view_plan_free(&plan);
    return code;
}

static int curve_write(const char *path, const struct view_plan *plan, const char *out) {
    if (plan->set->has_offsets) {
        return cli_fail(CLI_FAILURE, "%s: the file has offsets, so there was no search", path);
    }
    FILE *file = cli_open(out);
    return file != NULL ? cli_close(file, out, map_curve_write(plan, file)) : CLI_FAILURE;
}

// ---- the command ----

static int options_check(struct options *o, int n, char **operands) {
    o->paths[o->n_paths++] = o->model.path;
    if (n > 0) {
        o->paths[o->n_paths++] = operands[0];
    }
    if (o->captured && o->n_paths > 1) {
        return cli_usage("map", "--captured takes one file; unexpected argument '%s'", o->paths[1]);
    }
    if (o->budget.spill > 0 && o->budget.bytes == 0) {
        return cli_usage("map", "--spill requires --budget");
    }
    if (o->curve && (o->captured || o->n_paths > 1 || !berth_ends_with(o->out, ".svg"))) {
        return cli_usage("map", "--curve requires a single FILE, an --out that ends in .svg, and no --captured");
    }
    return cli_map_is_name(o->out) ? CLI_OK : cli_usage("map", "--out '%s' must end in .svg or .html", o->out);
}

// Reads a file. Plans it if it has no offsets. The caller frees *offsets.
static int map_load(const char *path, const struct options *o, struct view_plan *plan, uint64_t **offsets, bool *is_stopped) {
    *offsets = NULL;
    if (cli_plan_open(path, &o->model, &o->budget, plan) != CLI_OK) {
        return CLI_FAILURE;
    }
    const struct berth_plan_set *set = plan->set;
    struct berth_plan_report report;
    *offsets = berth_malloc((set->n_items + 1) * sizeof **offsets);
    if (*offsets == NULL) {
        return cli_fail(CLI_FAILURE, "out of memory");
    }
    if (!set->has_offsets) {
        return cli_plan_place(path, plan, &o->params, *offsets, &report, is_stopped);
    }
    memcpy(*offsets, set->offsets, set->n_items * sizeof **offsets);
    return berth_plan_check(set->items, set->n_items, NULL, *offsets, NULL) == GGML_STATUS_SUCCESS
               ? CLI_OK
               : cli_fail(CLI_FAILURE, "%s: the offsets are not a valid plan; 'berth verify' prints the first fault", path);
}

// Sets *map to the placement of the captured program (--captured).
static int captured_get(const char *path, const struct view_plan *plan, struct map_plan *map) {
    const struct berth_plan_set *set = plan->set;
    bool has_all = !set->has_offsets;
    for (int64_t i = 0; i < set->n_items && has_all; i++) {
        has_all = set->offsets[i] != BERTH_PLAN_ANY;
    }
    if (!has_all) {
        return cli_fail(CLI_FAILURE, "%s: --captured requires a captured graph in which every tensor has an offset", path);
    }
    *map = (struct map_plan){"as captured", plan, set->offsets};
    return berth_plan_check(set->items, set->n_items, NULL, set->offsets, NULL) == GGML_STATUS_SUCCESS
               ? CLI_OK
               : cli_fail(CLI_FAILURE,
                     "%s: the captured offsets are not valid with the lifetimes that this version of Berth computes", path);
}

int cli_map(const struct cli_args *args) {
    struct options *o = args->options;
    int code = options_check(o, args->n, args->operands);
    if (code != CLI_OK) {
        return code;
    }
    struct view_plan plans[2] = {0};
    uint64_t *offsets[2] = {NULL};
    struct map_plan maps[2], before;
    bool is_stopped = false;
    code = cli_output_check(o->out);
    const struct map_plan *old = o->n_paths > 1 ? &maps[0] : NULL;
    for (size_t i = 0; i < o->n_paths && code == CLI_OK; i++) {
        code = map_load(o->paths[i], o, &plans[i], &offsets[i], &is_stopped);
        maps[i] = (struct map_plan){base_name(o->paths[i]), &plans[i], offsets[i]};
    }
    if (o->captured && code == CLI_OK) {
        old = &before;
        code = captured_get(o->paths[0], &plans[0], &before);
    }
    if (code == CLI_OK) {
        code = o->curve ? curve_write(o->paths[0], &plans[0], o->out) : map_write(&maps[o->n_paths - 1], old, o->out);
    }
    for (size_t i = 0; i < o->n_paths; i++) {
        view_plan_free(&plans[i]);
        berth_free(offsets[i]);
    }
    return is_stopped && code == CLI_OK ? CLI_STOPPED : code;
}
