// SPDX-License-Identifier: MIT
// main.c: conformance: compares Berth with the reference, function by function.
#include "link.h"
#include "report.h"

#include "base/base.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define EXIT_SKIPPED 77
// Percent of the argument sets of a function that the reference should accept. If it accepts fewer, the generator is poor.
#define MIN_ACCEPTED 35

struct options {
    uint64_t seed;
    int sets, graphs, shown;
    const char *only; // comma-separated names; NULL: all
    const char *reference;
    bool verbose;
};

static const char usage[] =
    "usage: conformance [options]\n"
    "Compares Berth with the reference: the same recipes of API calls on both, results compared field by field.\n"
    "  --only NAMES     only these functions, comma separated, with or without ggml_; also: symbols, probes, graphs\n"
    "  --sets N         argument sets per function (500)\n"
    "  --graphs N       random graphs (120)\n"
    "  --seed N         seed of the random recipes; set i of a function depends only on the seed\n"
    "  --show N         differences printed per function (3)\n"
    "  --verbose        counts of every function, and why the reference refused\n"
    "  --reference DIR  folder of the reference's libraries; default: the folder that tools/fetch-reference.sh prints\n"
    "Exit code: 0 the same, 1 differences, 77 skipped, because there is no reference.\n";

// ---- set-up ----

static bool parse(struct options *o, int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        const char *arg = argv[i];
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (strcmp(arg, "--verbose") == 0) {
            o->verbose = true;
            continue;
        }
        if (value == NULL) {
            return false;
        }
        i++;
        if (strcmp(arg, "--seed") == 0) {
            o->seed = strtoull(value, NULL, 0);
        } else if (strcmp(arg, "--sets") == 0) {
            o->sets = atoi(value);
        } else if (strcmp(arg, "--graphs") == 0) {
            o->graphs = atoi(value);
        } else if (strcmp(arg, "--show") == 0) {
            o->shown = atoi(value);
        } else if (strcmp(arg, "--only") == 0) {
            o->only = value;
        } else if (strcmp(arg, "--reference") == 0) {
            o->reference = value;
        } else {
            return false;
        }
    }
    return true;
}

static bool is_selected(const struct options *o, const char *name) {
    if (o->only == NULL) {
        return true;
    }
    for (const char *p = o->only; *p != 0;) {
        const size_t n = strcspn(p, ",");
        const char *tail = strncmp(name, "ggml_", 5) == 0 ? name + 5 : name;
        if ((strlen(name) == n && strncmp(p, name, n) == 0) || (strlen(tail) == n && strncmp(p, tail, n) == 0)) {
            return true;
        }
        p += n + (p[n] == ',');
    }
    return false;
}

// Returns the folder that the fetch script prints, or NULL. Then the script has printed the reason.
static const char *fetch_reference(void) {
    static char dir[4096];
    FILE *f = popen(CONFORMANCE_FETCH, "r");
    if (f == NULL) {
        return NULL;
    }
    const bool got = fgets(dir, sizeof(dir), f) != NULL;
    const int state = pclose(f);
    dir[strcspn(dir, "\n")] = 0;
    return got && WIFEXITED(state) && WEXITSTATUS(state) == 0 ? dir : NULL;
}

static const char *oracle_program(void) {
    static char path[4096];
    const ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 32);
    if (n < 0) {
        return "conformance-oracle";
    }
    path[n] = 0;
    char *slash = strrchr(path, '/');
    strcpy(slash == NULL ? path : slash + 1, "conformance-oracle");
    return path;
}

static const char *data_dir(void) {
    const char *dir = getenv("BERTH_DATA");
    return dir != NULL ? dir : access(CONFORMANCE_DATA, R_OK) == 0 ? CONFORMANCE_DATA : NULL;
}

// ---- the run ----

struct run {
    struct options options;
    struct machine mine;
    struct link ref;
    struct recipe recipe;
    struct outcome out_mine, out_ref;
    struct counts all;
    struct purposes purposes;
    int n_functions; // functions that were checked
    int n_poor;      // functions whose sets the reference rarely accepts
    int n_missing;
};

static struct run *current; // for the death callback of a sanitizer

static void on_death(void) {
    if (current != NULL) {
        printf("the current recipe:\n");
        recipe_print(&current->recipe, stdout);
        fflush(stdout);
    }
}

void __sanitizer_set_death_callback(void (*callback)(void)) __attribute__((weak));

static uint64_t mix(uint64_t a, uint64_t b, uint64_t c) {
    struct rng g = {a ^ (b * 0x9E3779B97F4A7C15u)};
    rng_next(&g);
    g.state ^= c * 0xD1B54A32D192ED03u;
    return rng_next(&g);
}

// Runs the current recipe on both implementations. Returns whether they agree or may differ.
static bool run_both(struct run *run, const char *name, uint64_t set, struct counts *c, int *shown) {
    machine_run(&run->mine, &run->recipe, &run->out_mine);
    link_run(&run->ref, &run->recipe, &run->out_ref);
    const struct verdict v = compare(&run->recipe, &run->out_mine, &run->out_ref);
    count(c, &run->recipe, &v, &run->out_mine, &run->out_ref);
    if (v.purpose != NULL) {
        purposes_add(&run->purposes, v.purpose);
    }
    if (v.ok || v.purpose != NULL) {
        return true;
    }
    if (run->out_mine.kind == OUTCOME_MISSING) {
        return false;
    }
    if ((*shown)++ < run->options.shown) {
        printf("DIFFERENCE in %s, set %" PRIu64 ", seed %" PRIu64 "\n", name, set, run->options.seed);
        print_difference(&run->recipe, &v, &run->out_mine, &run->out_ref);
    }
    return false;
}

#define MAX_REASONS 12

struct reasons {
    char text[MAX_REASONS][160];
    int n[MAX_REASONS];
};

static void reasons_add(struct reasons *r, const struct outcome *ref) {
    const char *text = strstr(ref->message, ".c:");
    text = text != NULL ? text + 3 : ref->message;
    for (int i = 0; i < MAX_REASONS; i++) {
        if (r->n[i] == 0) {
            snprintf(r->text[i], sizeof(r->text[i]), "%.150s", text);
        }
        if (strncmp(r->text[i], text, 150) == 0) {
            r->n[i]++;
            return;
        }
    }
}

static void run_function(struct run *run, enum call_id id) {
    const struct call_info *info = &call_table[id];
    struct counts c = {0};
    struct reasons reasons[2] = {0}; // for valid sets, for other sets
    int shown = 0;
    for (int i = 0; i < run->options.sets; i++) {
        const int part = i % 20; // 12 valid, 5 mutated, 3 wild
        struct gen g = {{mix(run->options.seed, id, (uint64_t) i)}, &run->recipe};
        const enum recipe_sort sort = part < 12 ? SORT_VALID : part < 17 ? SORT_MUTATED : SORT_WILD;
        gen_recipe(&g, id, sort);
        run_both(run, info->name, (uint64_t) i, &c, &shown);
        if (run->out_ref.kind != OUTCOME_DONE) {
            reasons_add(&reasons[sort != SORT_VALID], &run->out_ref);
        }
        if (c.missing > 0) {
            break;
        }
    }
    if (c.missing > 0) {
        printf("MISSING %s: %s\n", info->name, run->out_mine.message);
        run->n_missing++;
        return;
    }
    if (run->options.verbose) {
        printf("%-32s sets %" PRId64 " same %" PRId64 " poison %" PRId64 " survived %" PRId64 " intended %" PRId64
               " different %" PRId64 "\n",
            info->name, c.sets, c.same, c.poison, c.survived, c.purposeful, c.different);
        for (int k = 0; k < 2; k++) {
            for (int i = 0; i < MAX_REASONS && reasons[k].n[i] > 0; i++) {
                printf("    %s %4d x %s\n", k == 0 ? "valid" : "other", reasons[k].n[i], reasons[k].text[i]);
            }
        }
    }
    if (c.ref_ok * 100 < c.sets * MIN_ACCEPTED && never_succeeds(id) == NULL) {
        printf("POOR %s: the reference accepts only %" PRId64 " of %" PRId64 " sets: improve the generator of the function\n",
            info->name, c.ref_ok, c.sets);
        run->n_poor++;
    }
    if (c.different > shown || c.different > run->options.shown) {
        printf("%s: %" PRId64 " differences in total\n", info->name, c.different);
    }
    counts_add(&run->all, &c);
    run->n_functions++;
}

static void run_probes(struct run *run) {
    int shown = 0;
    struct counts c = {0};
    for (int probe = PROBE_NONE + 1; probe < PROBE_COUNT; probe++) {
        recipe_clear(&run->recipe);
        run->recipe.probe = (uint32_t) probe;
        run->recipe.seed = mix(run->options.seed, 7, (uint64_t) probe);
        run_both(run, probe_name(probe), 0, &c, &shown);
    }
    printf("probes: %" PRId64 " run, %" PRId64 " the same\n", c.sets, c.same);
    counts_add(&run->all, &c);
}

static void run_graphs(struct run *run) {
    int shown = 0;
    struct counts c = {0};
    int64_t n_calls = 0;
    const int n = run->options.graphs;
    for (int i = 0; i < n; i++) {
        struct gen g = {{mix(run->options.seed, 11, (uint64_t) i)}, &run->recipe};
        const int max_nodes = i % 10 == 9 ? 2000 : i % 2 == 0 ? 40 : 300;
        gen_graph_recipe(&g, (int) rng_range(&g.rng, 1, max_nodes));
        n_calls += run->recipe.n_calls;
        run_both(run, "graphs", (uint64_t) i, &c, &shown);
    }
    printf("graphs: %" PRId64 " built with %" PRId64 " calls, %" PRId64 " the same, %" PRId64 " refused by both, %" PRId64
           " different\n",
        c.sets, n_calls, c.same, c.poison + c.survived, c.different);
    counts_add(&run->all, &c);
}

int main(int argc, char **argv) {
    static struct run run;
    static struct api api;
    run.options = (struct options){.seed = 1, .sets = 500, .graphs = 120, .shown = 3};
    if (!parse(&run.options, argc, argv)) {
        fputs(usage, stderr);
        return 2;
    }
    const struct options *o = &run.options;
    int n_missing_symbols = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (is_selected(o, "symbols")) {
        n_missing_symbols = check_symbols(data_dir());
    }
    const char *dir = o->reference != NULL ? o->reference : fetch_reference();
    char library[4200];
    snprintf(library, sizeof(library), "%s/libggml-base.so", dir == NULL ? "" : dir);
    if (dir == NULL || access(library, R_OK) != 0) {
        printf("conformance: SKIPPED: no reference%s%s (run tools/fetch-reference.sh)\n", dir == NULL ? "" : " in ",
            dir == NULL ? "" : dir);
        return n_missing_symbols > 0 ? 1 : EXIT_SKIPPED;
    }
    api_load(&api, RTLD_DEFAULT);
    berth_client_release("v0.5.0"); // a release whose callers pass all arguments
    if (!machine_init(&run.mine, &api)) {
        printf("conformance: Berth lacks ggml_init or ggml_free\n");
        return 1;
    }
    run.ref = (struct link){.program = oracle_program(), .library = library};
    current = &run;
    if (__sanitizer_set_death_callback != NULL) {
        __sanitizer_set_death_callback(on_death);
    }
    printf("conformance: Berth %s, seed %" PRIu64 ", %d sets per function\n", berth_version(), o->seed, o->sets);
    for (int id = 0; id < CALL_COUNT; id++) {
        if (is_selected(o, call_table[id].name)) {
            run_function(&run, (enum call_id) id);
        }
    }
    if (is_selected(o, "probes")) {
        run_probes(&run);
    }
    if (is_selected(o, "graphs")) {
        run_graphs(&run);
    }
    const struct counts *c = &run.all;
    purposes_print(&run.purposes);
    printf("conformance: %d functions checked, %" PRId64 " argument sets tried: %" PRId64 " succeeded in both, %" PRId64
           " aborts turned into poison, %" PRId64 " other aborts survived, %" PRId64 " intended differences, %" PRId64
           " differences; %d functions missing, %d poorly covered\n",
        run.n_functions, c->sets, c->same, c->poison, c->survived, c->purposeful, c->different, run.n_missing, run.n_poor);
    link_close(&run.ref);
    machine_fini(&run.mine);
    recipe_free(&run.recipe);
    outcome_fini(&run.out_mine);
    outcome_fini(&run.out_ref);
    return c->different > 0 || run.n_missing > 0 || run.n_poor > 0 || n_missing_symbols > 0 ? 1 : 0;
}
