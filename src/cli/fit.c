// SPDX-License-Identifier: MIT
// fit.c: `berth fit MODEL --memory N`: the largest context, then the largest batch, that fit into N bytes, of all devices
// together or of each. Every question is answered by planning the graphs as a session would; nothing is loaded. The context is
// found by halving between one that fits and one that does not, then the batch likewise.

#include "cli/fit_limits.h"
#include "cli/help.h"

#include <getopt.h>
#include <inttypes.h>
#include <string.h>

#define BATCH 512 // a context is worth more than a batch beyond this

enum { FIT_MEMORY = CLI_OWN, MAX_CTX_GIVEN };

static const struct cli_option option_rows[] = {
    {.id       = FIT_MEMORY,
        .name  = "memory",
        .value = "N",
        .what  = "bytes of all devices together; takes K, M, G, KiB, MiB, ..., kB, MB, ... NAME=N: of the device NAME; may be "
                 "repeated, and all limits hold. A GPU that is not named has what it says is free"},
    CLI_OPT_MODEL,
    {.letter   = 'c',
        .name  = "ctx",
        .value = "N",
        .what  = "look for the batch only, in a context of N positions",
        .also  = "ctx-size"},
    {.letter   = 'b',
        .name  = "batch",
        .value = "N",
        .what  = "look for the context only, with batches of N tokens",
        .also  = "batch-size"},
    {.id       = MAX_CTX_GIVEN,
        .name  = "max-ctx",
        .value = "N",
        .what  = "look no further than N positions (default: what the model was trained for)"},
    CLI_OPT_CACHE_TYPE,
    CLI_OPT_DEVICE,
    CLI_OPT_GPU_LAYERS,
    CLI_OPT_JSON(
        "print one JSON object: model, memory, limits, fits, ctx, ctx_limit, batch, batch_limit, full, total, plans, devices"),
    {0},
};

const struct cli_help cli_fit_help = {
    .command  = "fit",
    .what     = "the largest context and batch of a model in given memory",
    .operands = "--memory N [MODEL]",
    .takes    = ".gguf",
    .about =
        "Finds the largest context that fits into N bytes, with batches of 512 tokens or, in a shorter context, as many as it "
        "has; then the largest batch for that context. The bytes are exact: weights, cache and the planned memory of the largest "
        "graphs, on each device. Layers lie where 'berth run' would put them. It says what stands in the way of more: which "
        "memory, or what the model was trained for. Weights are not touched. Without MODEL it is the one that comes with Berth.",
    .options  = option_rows,
    .no       = "nothing fits",
    .examples = {{"What does 8 GiB allow?", "fit --memory 8GiB model.gguf"},
        {"With a limit on one GPU", "fit --memory CUDA0=6G --memory 16G model.gguf"}},
};

struct options {
    struct cli_model_options model;
    struct fit_limits limits;
    int64_t max_ctx; // 0: the model's
    bool json;
};

// What stands in the way of more; a row of `limits`.
enum limit { GIVEN, MEMORY, MODEL, MAX_CTX, CONTEXT };

static const struct {
    const char *name, *what;
} limits[] = {
    [GIVEN]   = {"given", "as given"},
    [MEMORY]  = {"memory", "what the memory allows"},
    [MODEL]   = {"model", "what the model was trained for; --max-ctx looks further"},
    [MAX_CTX] = {"max-ctx", "what --max-ctx allows"},
    [CONTEXT] = {"context", "all of the context"},
};

struct search {
    struct cli_model *m;
    const struct options *o;
    int64_t n_ctx, n_batch; // of what m->session holds
    enum limit ctx_limit, batch_limit;
    int full;                 // which limit was passed last: a device, FIT_ALL, or FIT_NONE
    int ctx_full, batch_full; // the same, of what stands in the way of each
    int n_plans;
};

// -m was the memory once.
static int model_given(const char *value, struct cli_model_options *o) {
    const char *equal = strrchr(value, '=');
    uint64_t bytes;
    if (cli_parse_size(equal != NULL ? equal + 1 : value, &bytes)) {
        return cli_usage("fit", "-m '%s': -m is the model; the bytes are --memory %s", value, value);
    }
    o->path = value;
    return CLI_OK;
}

// -1 to go on, else the exit code.
static int parse(int argc, char **argv, struct options *o) {
    for (int c, code = CLI_OK; (c = cli_option_next(&cli_fit_help, argc, argv)) != CLI_END;) {
        switch (c) {
            case FIT_MEMORY: code = fit_limits_add(&o->limits, optarg); break;
            case MAX_CTX_GIVEN:
                if (!cli_parse_int(optarg, 1, INT32_MAX, &o->max_ctx)) {
                    return cli_usage("fit", "--max-ctx '%s' is not a number from 1 to %d", optarg, INT32_MAX);
                }
                break;
            case 'm': code = model_given(optarg, &o->model); break;
            case CLI_JSON: o->json = true; break;
            default:
                if (!cli_model_option("fit", c, optarg, &o->model, &code)) {
                    return c == CLI_SHOWN ? CLI_OK : CLI_USAGE;
                }
        }
        if (code != CLI_OK) {
            return code;
        }
    }
    if (o->limits.n == 0) {
        return cli_usage("fit", "--memory is missing");
    }
    o->model.plan_only = true;
    return cli_model_file("fit", argc, argv, &o->model);
}

// Plans one shape; *fits is the answer.
static int ask(struct search *s, int64_t n_ctx, int64_t n_batch, bool *fits) {
    struct cli_model_options o = s->o->model;
    o.n_ctx                    = n_ctx;
    o.n_batch                  = n_batch;
    session_free(s->m->session);
    s->m->session  = NULL;
    const int code = cli_model_session(s->m, &o);
    s->n_ctx       = n_ctx;
    s->n_batch     = n_batch;
    s->n_plans++;
    const int full = code == CLI_OK ? fit_limits_passed(&s->o->limits, s->m) : FIT_NONE;
    s->full        = full != FIT_NONE ? full : s->full;
    *fits          = code == CLI_OK && full == FIT_NONE;
    return code;
}

static int64_t batch_in(const struct search *s, int64_t n_ctx) {
    const int64_t batch = s->o->model.n_batch > 0 ? s->o->model.n_batch : BATCH;
    return batch < n_ctx ? batch : n_ctx;
}

// The largest n in [low, high] that fits, where low does: of the context, or of the batch in a given context.
static int largest(struct search *s, int64_t low, int64_t high, int64_t n_ctx, int64_t *out) {
    int code  = CLI_OK;
    bool fits = false;
    *out      = low;
    for (int64_t n = high, n_asked = 0; code == CLI_OK && low < high; n = low + (high - low + 1) / 2, n_asked++) {
        uint64_t n_left = 0; // each answer halves what is open
        for (int64_t open = high - low; open > 0; open /= 2) {
            n_left++;
        }
        cli_progress(n_ctx > 0 ? "batch" : "context", (uint64_t) n_asked, (uint64_t) n_asked + n_left,
            "between %" PRId64 " and %" PRId64, low, high);
        code = n_ctx > 0 ? ask(s, n_ctx, n, &fits) : ask(s, n, batch_in(s, n), &fits);
        if (fits) {
            low = n;
        } else {
            high = n - 1;
        }
        *out = low;
    }
    return code;
}

// *fits says whether anything does; n_ctx and n_batch are then the answer, and the session is planned for it.
static int search(struct search *s, bool *fits) {
    const struct options *o = s->o;
    int64_t n_ctx           = o->model.n_ctx, n_batch;
    int64_t max             = o->max_ctx > 0 ? o->max_ctx : s->m->model->params.n_ctx_train;
    int code                = n_ctx > 0 ? ask(s, n_ctx, o->model.n_batch > 0 ? batch_in(s, n_ctx) : 1, fits) : ask(s, 1, 1, fits);
    if (code != CLI_OK || !*fits) {
        s->ctx_limit = s->batch_limit = MEMORY;
        s->ctx_full = s->batch_full = s->full;
        return code;
    }
    if (n_ctx == 0) {
        code         = largest(s, 1, max, 0, &n_ctx);
        s->ctx_limit = n_ctx < max ? MEMORY : o->max_ctx > 0 ? MAX_CTX : MODEL;
        s->ctx_full  = s->full;
    }
    n_batch = o->model.n_ctx > 0 && o->model.n_batch == 0 ? 1 : batch_in(s, n_ctx);
    if (code == CLI_OK && o->model.n_batch == 0) {
        code           = largest(s, n_batch, n_ctx, n_ctx, &n_batch);
        s->batch_limit = n_batch < n_ctx ? MEMORY : CONTEXT;
        s->batch_full  = s->full;
    }
    return code == CLI_OK ? ask(s, n_ctx, n_batch, fits) : code;
}

// "all devices" or a device's name.
static const char *name_of(const struct search *s, int device) {
    return device >= 0 ? ggml_backend_dev_name(s->m->devices.dev[device]) : "all devices";
}

static void print_limits(const struct search *s) {
    const struct fit_limits *given = &s->o->limits;
    char text[64];
    for (size_t i = 0; i < given->n; i++) {
        const struct fit_limit *limit = &given->items[i];
        const char *name              = limit->device >= 0 ? name_of(s, limit->device) : "";
        if (limit->text != NULL) {
            printf("%s%s%s%s", i > 0 ? ", " : "", cli_bytes(limit->bytes, text), *name != '\0' ? " of " : "", name);
        }
    }
}

static void print_limit(const struct search *s, const char *what, enum limit limit, int full) {
    const bool is_named = limit == MEMORY && s->o->limits.n > 1 && full != FIT_NONE;
    printf("  %-8s %s%s%s\n", what, limits[limit].what, is_named ? ", of " : "", is_named ? name_of(s, full) : "");
}

static void print_taken(const struct search *s, const char *indent, int device) {
    const struct fit_limit *limit = fit_limits_get(&s->o->limits, device);
    const uint64_t taken          = fit_bytes(s->m, device);
    char text[64];
    printf("%stakes    %s\n", indent, cli_bytes(taken, text));
    if (limit != NULL && taken <= limit->bytes) {
        printf("%sleft     %s\n", indent, cli_bytes(limit->bytes - taken, text));
    } else if (limit != NULL) {
        printf("%smissing  %s\n", indent, cli_bytes(taken - limit->bytes, text));
    }
}

static void print_device(const struct search *s, int d) {
    const struct cli_model *m      = s->m;
    const struct session_memory *x = &m->session->memory[d];
    char text[64];
    printf("  %s\n    weights  %s%s\n", name_of(s, d), cli_bytes(x->weights, text),
        m->model->parts[d].is_mapped ? ", in the file's own pages" : "");
    printf("    cache    %s\n", cli_bytes(x->cache, text));
    printf("    compute  %s", cli_bytes(x->compute, text));
    printf(x->report.proven ? ", proven to be the least\n" : ", at most %.3f%% above the least\n", 100 * x->report.gap);
    if (fit_bytes(m, d) < fit_bytes(m, FIT_ALL) || fit_limits_get(&s->o->limits, d) != NULL) {
        print_taken(s, "    ", d);
    }
}

static void print_text(const struct search *s, bool fits) {
    const struct cli_model *m = s->m;
    char text[64];
    cli_text(stdout, 0, m->path);
    fputs(" in ", stdout);
    print_limits(s);
    fputs(": ", stdout);
    if (!fits) {
        printf("%sno%s, a context of %" PRId64 " with a batch of %" PRId64 " takes %s", cli_colour(stdout, CLI_RED),
            cli_colour(stdout, CLI_RESET), s->n_ctx, s->n_batch, cli_bytes(fit_bytes(m, s->full), text));
        printf("%s%s\n", s->full >= 0 ? " of " : "", s->full >= 0 ? name_of(s, s->full) : "");
    } else {
        printf("%scontext %" PRId64 ", batch %" PRId64 "%s\n", cli_colour(stdout, CLI_GREEN), s->n_ctx, s->n_batch,
            cli_colour(stdout, CLI_RESET));
        print_limit(s, "context", s->ctx_limit, s->ctx_full);
        print_limit(s, "batch", s->batch_limit, s->batch_full);
    }
    print_taken(s, "  ", FIT_ALL);
    for (int d = 0; d < m->devices.n; d++) {
        if (fit_bytes(m, d) > 0) {
            print_device(s, d);
        }
    }
    printf("  found with %d plan%s\n", s->n_plans, s->n_plans == 1 ? "" : "s");
}

static void print_json(const struct search *s, bool fits) {
    const struct fit_limits *given = &s->o->limits;
    const struct fit_limit *all    = fit_limits_get(given, FIT_ALL);
    const char *between            = "";
    fputs("{\"model\": ", stdout);
    cli_json_text(stdout, s->m->path);
    fputs(", \"memory\": ", stdout);
    if (all != NULL) {
        printf("%" PRIu64, all->bytes);
    } else {
        fputs("null", stdout);
    }
    fputs(", \"limits\": {", stdout);
    for (size_t i = 0; i < given->n; i++) {
        if (given->items[i].device >= 0) {
            fputs(between, stdout);
            cli_json_text(stdout, name_of(s, given->items[i].device));
            printf(": %" PRIu64, given->items[i].bytes);
            between = ", ";
        }
    }
    printf("}, \"fits\": %s, \"ctx\": %" PRId64 ", \"ctx_limit\": \"%s\", \"batch\": %" PRId64
           ", \"batch_limit\": \"%s\", \"full\": ",
        fits ? "true" : "false", s->n_ctx, limits[s->ctx_limit].name, s->n_batch, limits[s->batch_limit].name);
    const bool is_full = s->ctx_limit == MEMORY || s->batch_limit == MEMORY;
    const int full     = s->batch_limit == MEMORY ? s->batch_full : s->ctx_full;
    if (is_full && full != FIT_NONE) {
        cli_json_text(stdout, name_of(s, full));
    } else {
        fputs("null", stdout);
    }
    printf(", \"total\": %" PRIu64 ", \"plans\": %d, \"devices\": ", fit_bytes(s->m, FIT_ALL), s->n_plans);
    cli_model_memory_json(stdout, s->m);
    puts("}");
}

static int fit(const struct options *o, struct cli_model *m) {
    struct search s = {.m = m, .o = o, .full = FIT_NONE, .ctx_full = FIT_NONE, .batch_full = FIT_NONE};
    bool fits       = false;
    const int code  = search(&s, &fits);
    cli_progress_end();
    if (code != CLI_OK) {
        return code;
    }
    (o->json ? print_json : print_text)(&s, fits);
    return fits ? CLI_OK : CLI_NO;
}

int cli_fit(int argc, char **argv) {
    struct options o = {0};
    struct cli_model m;
    int code = parse(argc, argv, &o);
    if (code < 0) {
        code = cli_model_open(&m, &o.model);
        if (code == CLI_OK) {
            code = fit_limits_resolve(&o.limits, &m);
            code = code == CLI_OK ? fit(&o, &m) : code;
            cli_model_close(&m);
        }
    }
    fit_limits_free(&o.limits);
    return code;
}
