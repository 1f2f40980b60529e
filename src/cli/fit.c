// SPDX-License-Identifier: MIT
// fit.c: `berth fit MODEL --memory N`: the largest context, then the largest batch, that fit into N bytes. Every question is
// answered by planning the graphs as a session would; nothing is loaded. The context is found by halving between one that fits
// and one that does not, then the batch likewise.

#include "cli/models.h"

#include <getopt.h>
#include <inttypes.h>
#include <string.h>

#define BATCH 512 // a context is worth more than a batch beyond this

static const char usage[] =
    "Usage: berth fit [OPTION]... --memory N [MODEL]\n\n"
    "Finds the largest context that fits into N bytes, with batches of 512 tokens or, in a shorter context, as many as it\n"
    "has; then the largest batch for that context. The bytes are exact: weights, cache and the planned memory of the largest\n"
    "graphs, the sum over all devices. It says what stands in the way of more: the memory, or what the model was trained for.\n"
    "Weights are not touched. Without MODEL it is the one that comes with Berth.\n\n"
    "  -m, --memory N      bytes; takes K, M, G, KiB, MiB, ..., kB, MB, ...\n"
    "  -c, --ctx N         look for the batch only, in a context of N positions\n"
    "  -b, --batch N       look for the context only, with batches of N tokens\n"
    "      --max-ctx N     look no further than N positions (default: what the model was trained for)\n"
    "  -d, --device NAME   run there (default: all GPUs and the CPU)\n"
    "      --json          print one JSON object: model, memory, fits, ctx, ctx_limit, batch, batch_limit, total, plans,\n"
    "                      devices\n"
    "  -h, --help          this text\n\n"
    "Exit codes: 0 fine, 1 nothing fits, 2 wrong usage, 3 failure.\n";

struct options {
    struct cli_model_options model;
    uint64_t memory;
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
    int n_plans;
};

// -1 to go on, else the exit code.
static int parse(int argc, char **argv, struct options *o) {
    static const struct option table[] = {{"memory", required_argument, NULL, 'm'}, {"ctx", required_argument, NULL, 'c'},
        {"batch", required_argument, NULL, 'b'}, {"max-ctx", required_argument, NULL, 'M'},
        {"device", required_argument, NULL, 'd'}, {"json", no_argument, NULL, 'J'}, {"help", no_argument, NULL, 'h'}, {0}};
    opterr                             = 0;
    for (int c, code = CLI_OK; (c = getopt_long(argc, argv, ":m:c:b:d:h", table, NULL)) != -1;) {
        switch (c) {
            case 'm':
                if (!cli_parse_size(optarg, &o->memory) || o->memory == 0) {
                    return cli_usage("fit", "--memory '%s' is not a number of bytes from 1 to 2^62", optarg);
                }
                break;
            case 'M':
                if (!cli_parse_int(optarg, 1, INT32_MAX, &o->max_ctx)) {
                    return cli_usage("fit", "--max-ctx '%s' is not a number from 1 to %d", optarg, INT32_MAX);
                }
                break;
            case 'J': o->json = true; break;
            case 'h': fputs(usage, stdout); return CLI_OK;
            case ':': return cli_usage("fit", "'%s' needs a value", argv[optind - 1]);
            default:
                if (!cli_model_option("fit", c, optarg, &o->model, &code)) {
                    return cli_usage("fit", "unknown option '%s'", argv[optind - 1]);
                }
        }
        if (code != CLI_OK) {
            return code;
        }
    }
    if (o->memory == 0) {
        return cli_usage("fit", "--memory is missing");
    }
    o->model.plan_only = true;
    return cli_model_file("fit", argc, argv, &o->model);
}

static uint64_t total(const struct cli_model *m) {
    uint64_t sum = 0;
    for (int d = 0; d < m->devices.n; d++) {
        const struct session_memory *x = &m->session->memory[d];
        sum += x->weights + x->cache + x->compute;
    }
    return sum;
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
    *fits = code == CLI_OK && total(s->m) <= s->o->memory;
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
    for (int64_t n = high; code == CLI_OK && low < high; n = low + (high - low + 1) / 2) {
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
        return code;
    }
    if (n_ctx == 0) {
        code         = largest(s, 1, max, 0, &n_ctx);
        s->ctx_limit = n_ctx < max ? MEMORY : o->max_ctx > 0 ? MAX_CTX : MODEL;
    }
    n_batch = o->model.n_ctx > 0 && o->model.n_batch == 0 ? 1 : batch_in(s, n_ctx);
    if (code == CLI_OK && o->model.n_batch == 0) {
        code           = largest(s, n_batch, n_ctx, n_ctx, &n_batch);
        s->batch_limit = n_batch < n_ctx ? MEMORY : CONTEXT;
    }
    return code == CLI_OK ? ask(s, n_ctx, n_batch, fits) : code;
}

static void print_text(const struct search *s, bool fits) {
    const struct cli_model *m = s->m;
    char text[3][64];
    printf("%s in %s: ", m->path, cli_bytes(s->o->memory, text[0]));
    if (!fits) {
        printf("%sno%s, a context of %" PRId64 " with a batch of %" PRId64 " takes %s\n", cli_colour(stdout, CLI_RED),
            cli_colour(stdout, CLI_RESET), s->n_ctx, s->n_batch, cli_bytes(total(m), text[1]));
    } else {
        printf("%scontext %" PRId64 ", batch %" PRId64 "%s\n", cli_colour(stdout, CLI_GREEN), s->n_ctx, s->n_batch,
            cli_colour(stdout, CLI_RESET));
        printf("  context  %s\n  batch    %s\n", limits[s->ctx_limit].what, limits[s->batch_limit].what);
        printf("  takes    %s\n", cli_bytes(total(m), text[1]));
        printf("  left     %s\n", cli_bytes(s->o->memory - total(m), text[1]));
    }
    for (int d = 0; d < m->devices.n; d++) {
        const struct session_memory *x = &m->session->memory[d];
        if (x->weights + x->cache + x->compute > 0) {
            printf("  %s\n    weights  %s%s\n    cache    %s\n", ggml_backend_dev_name(m->devices.dev[d]),
                cli_bytes(x->weights, text[0]), m->model->parts[d].is_mapped ? ", in the file's own pages" : "",
                cli_bytes(x->cache, text[1]));
            printf("    compute  %s", cli_bytes(x->compute, text[2]));
            printf(x->report.proven ? ", proven to be the least\n" : ", at most %.3f%% above the least\n", 100 * x->report.gap);
        }
    }
    printf("  found with %d plan%s\n", s->n_plans, s->n_plans == 1 ? "" : "s");
}

static void print_json(const struct search *s, bool fits) {
    fputs("{\"model\": ", stdout);
    cli_json_text(stdout, s->m->path);
    printf(", \"memory\": %" PRIu64 ", \"fits\": %s, \"ctx\": %" PRId64 ", \"ctx_limit\": \"%s\", \"batch\": %" PRId64
           ", \"batch_limit\": \"%s\", \"total\": %" PRIu64 ", \"plans\": %d, \"devices\": ",
        s->o->memory, fits ? "true" : "false", s->n_ctx, limits[s->ctx_limit].name, s->n_batch, limits[s->batch_limit].name,
        total(s->m), s->n_plans);
    cli_model_memory_json(stdout, s->m);
    puts("}");
}

int cli_fit(int argc, char **argv) {
    struct options o = {0};
    struct cli_model m;
    int code = parse(argc, argv, &o);
    if (code >= 0) {
        return code;
    }
    code = cli_model_open(&m, &o.model);
    if (code != CLI_OK) {
        return code;
    }
    struct search s = {.m = &m, .o = &o};
    bool fits       = false;
    code            = search(&s, &fits);
    if (code == CLI_OK) {
        (o.json ? print_json : print_text)(&s, fits);
        code = fits ? CLI_OK : CLI_NO;
    }
    cli_model_close(&m);
    return code;
}
