// SPDX-License-Identifier: MIT
// map.c: `berth map FILE [OTHER] -o OUT`: plans what needs planning and writes the memory map. What is drawn is in map_view.c,
// the formats are in map_svg.c and map_html.c.

#include "cli/map.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "Usage: berth map [OPTION]... -o OUT FILE [OTHER]\n\n"
    "Draws the memory map of FILE: address against time, one rectangle a tensor, coloured by what its op does, with the peak\n"
    "and the proven bound. With OTHER, FILE is the plan before and OTHER the plan after, to compare.\n"
    "Files are what 'berth plan' takes. Those without offsets are planned first; offsets that they have are drawn as they "
    "are.\n\n"
    "  -o, --out OUT     OUT.svg is a picture; OUT.html is a page of one file to look around in: details under the pointer,\n"
    "                    zoom, search, comparison\n"
    "  -t, --time MS     search this long beyond the fast path (default 0; may have a fraction)\n"
    "  -h, --help        this text\n\n"
    "Exit codes: 0 fine, 2 wrong usage, 3 failure.\n";

// ---- writing ----

bool cli_map_is_name(const char *path) {
    return cli_ends_with(path, ".svg") || cli_ends_with(path, ".html");
}

int cli_map_write(const struct map_plan *plan, const struct map_plan *before, const char *path) {
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
        code       = file == NULL
                         ? CLI_FAILURE
                         : cli_close(file, path, (cli_ends_with(path, ".svg") ? map_svg_write : map_html_write)(views, n, file));
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
    struct cli_plan plan    = {0};
    enum ggml_status status = berth_plan_read_json(text, size, title, &plan.set);
    if (status == GGML_STATUS_SUCCESS) {
        status = cli_plan_buffers(&plan);
    }
    const int code = status != GGML_STATUS_SUCCESS
                         ? cli_fail(CLI_FAILURE, "the map cannot be drawn: %s",
                               status == GGML_STATUS_ALLOC_FAILED ? "out of memory" : berth_last_error())
                         : cli_map_write(&(struct map_plan){base_name(title), &plan, plan.set->offsets}, NULL, path);
    cli_plan_free(&plan);
    return code;
}

// ---- the command ----

struct options {
    const char *out;
    const char *paths[2];
    size_t n_paths;
    struct berth_plan_params params;
};

static int parse(int argc, char **argv, struct options *o) {
    static const struct option table[] = {
        {"out", required_argument, NULL, 'o'}, {"time", required_argument, NULL, 't'}, {"help", no_argument, NULL, 'h'}, {0}};
    opterr = 0;
    for (int c; (c = getopt_long(argc, argv, ":o:t:h", table, NULL)) != -1;) {
        switch (c) {
            case 'o': o->out = optarg; break;
            case 't':
                if (!cli_parse_ms(optarg, &o->params.budget_us)) {
                    return cli_usage("map", "--time '%s' is not a number of milliseconds", optarg);
                }
                break;
            case 'h': fputs(usage, stdout); return -1;
            case ':': return cli_usage("map", "'%s' needs a value", argv[optind - 1]);
            default: return cli_usage("map", "unknown option '%s'", argv[optind - 1]);
        }
    }
    for (; optind < argc && o->n_paths < 2; optind++) {
        o->paths[o->n_paths++] = argv[optind];
    }
    if (o->n_paths == 0) {
        return cli_usage("map", "no file is given");
    }
    if (optind < argc) {
        return cli_usage("map", "'%s' is one file too many", argv[optind]);
    }
    if (o->out == NULL) {
        return cli_usage("map", "no --out FILE is given");
    }
    return cli_map_is_name(o->out) ? CLI_OK : cli_usage("map", "--out '%s' ends neither in .svg nor in .html", o->out);
}

// Reads a file, and plans it if it has no plan. *offsets is to be freed.
static int load(const char *path, const struct berth_plan_params *params, struct cli_plan *plan, uint64_t **offsets) {
    *offsets = NULL;
    if (cli_plan_read(path, 0, 0, plan) != GGML_STATUS_SUCCESS) {
        return cli_fail(CLI_FAILURE, "%s", berth_last_error());
    }
    const struct berth_plan_set *set = plan->set;
    struct berth_plan_report report;
    enum ggml_status status = GGML_STATUS_SUCCESS;
    *offsets                = malloc((set->n_items + 1) * sizeof **offsets);
    if (*offsets == NULL) {
        return cli_fail(CLI_FAILURE, "out of memory");
    }
    if (set->has_offsets) {
        memcpy(*offsets, set->offsets, set->n_items * sizeof **offsets);
        status = berth_plan_check(set->items, (int64_t) set->n_items, NULL, *offsets, NULL);
    } else {
        status = cli_plan_solve(plan, params, *offsets, &report);
    }
    return status == GGML_STATUS_SUCCESS ? CLI_OK : cli_fail(CLI_FAILURE, "%s: %s", path, berth_last_error());
}

int cli_map(int argc, char **argv) {
    struct options o = {0};
    int code         = parse(argc, argv, &o);
    if (code != CLI_OK) {
        return code < 0 ? CLI_OK : code;
    }
    struct cli_plan plans[2] = {0};
    uint64_t *offsets[2]     = {NULL};
    struct map_plan maps[2];
    for (size_t i = 0; i < o.n_paths && code == CLI_OK; i++) {
        code    = load(o.paths[i], &o.params, &plans[i], &offsets[i]);
        maps[i] = (struct map_plan){base_name(o.paths[i]), &plans[i], offsets[i]};
    }
    if (code == CLI_OK) {
        code = cli_map_write(&maps[o.n_paths - 1], o.n_paths > 1 ? &maps[0] : NULL, o.out);
    }
    for (size_t i = 0; i < o.n_paths; i++) {
        cli_plan_free(&plans[i]);
        free(offsets[i]);
    }
    return code;
}
