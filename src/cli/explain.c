// SPDX-License-Identifier: MIT
// explain.c: `berth explain MODEL`: where every op of a model's graphs runs, why, and what crosses between devices. Nothing is
// loaded: the graphs are split as they would be.

#include "cli/models.h"

#include <getopt.h>
#include <inttypes.h>
#include <string.h>

static const char usage[] =
    "Usage: berth explain [OPTION]... [MODEL]\n\n"
    "Says for the graph of one token and for that of a batch of the prompt which device runs each op and why, and which\n"
    "tensors cross between devices, with their bytes. Weights are not touched. Without MODEL it is the one that comes with\n"
    "Berth.\n\n"
    "A split is a run of ops on one device; its inputs are the tensors that are copied to it. Why an op runs where it does:\n"
    "  placed, weight  what it writes, or the largest weight it reads, lies there\n"
    "  input, caller   it is an input of the graph; the program said so\n"
    "  expansion       its neighbours run there\n"
    "  priority        most of what it reads lies there\n"
    "  reader          the op that reads it runs there\n"
    "  offload         the device wants it, though its weight lies elsewhere\n"
    "  fallback        the device that should have run it does not support the op, its types or its memory\n\n"
    "  -c, --ctx N         positions of the context (default: the model's, but 512 to 4096)\n"
    "  -b, --batch N       tokens of the batch (default 512)\n"
    "      --cache-type T  type of the cache's keys and values, or T,T for each (default f16)\n"
    "  -d, --device NAME   run there (default: all GPUs and the CPU)\n"
    "      --json          print one JSON object: model, ctx, batch, decode, prompt\n"
    "  -h, --help          this text\n\n"
    "Exit codes: 0 fine, 2 wrong usage, 3 failure.\n";

struct options {
    struct cli_model_options model;
    bool json;
};

// -1 to go on, else the exit code.
static int parse(int argc, char **argv, struct options *o) {
    static const struct option table[] = {{"ctx", required_argument, NULL, 'c'}, {"batch", required_argument, NULL, 'b'},
        {"device", required_argument, NULL, 'd'}, {"cache-type", required_argument, NULL, CLI_CACHE_TYPE},
        {"json", no_argument, NULL, 'J'}, {"help", no_argument, NULL, 'h'}, {0}};
    opterr                             = 0;
    for (int c, code = CLI_OK; (c = getopt_long(argc, argv, ":c:b:d:h", table, NULL)) != -1;) {
        switch (c) {
            case 'J': o->json = true; break;
            case 'h': fputs(usage, stdout); return CLI_OK;
            case ':': return cli_usage("explain", "'%s' needs a value", argv[optind - 1]);
            default:
                if (!cli_model_option("explain", c, optarg, &o->model, &code)) {
                    return cli_bad_option("explain", argc, argv);
                }
        }
        if (code != CLI_OK) {
            return code;
        }
    }
    o->model.plan_only = true;
    return cli_model_file("explain", argc, argv, &o->model);
}

static int explain(struct session *s, int64_t n_tokens, bool json) {
    struct model_error error = {""};
    if (!session_graph(s, n_tokens, s->params.n_ctx, &error)) {
        return cli_fail(CLI_FAILURE, "%s", error.text);
    }
    if (berth_sched_split(s->sched, s->graph) != GGML_STATUS_SUCCESS ||
        (json ? berth_sched_explain_json : berth_sched_explain_text)(s->sched, stdout) != GGML_STATUS_SUCCESS) {
        return ferror(stdout) ? CLI_FAILURE : cli_fail(CLI_FAILURE, "%s", berth_last_error()); // cli_finish tells of a full disk
    }
    return CLI_OK;
}

static int explain_text(const struct cli_model *m) {
    struct session *s = m->session;
    printf("%s: %s, %" PRId64 " layers; one token over %" PRId64 " positions\n", m->path, m->model->params.arch,
        m->model->params.n_layer, s->params.n_ctx);
    int code = explain(s, 1, false);
    if (code == CLI_OK) {
        printf("\na batch of %" PRId64 " tokens over %" PRId64 " positions\n", s->params.n_batch, s->params.n_ctx);
        code = explain(s, s->params.n_batch, false);
    }
    return code;
}

static int explain_json(const struct cli_model *m) {
    struct session *s = m->session;
    fputs("{\"model\": ", stdout);
    cli_json_text(stdout, m->path);
    printf(", \"ctx\": %" PRId64 ", \"batch\": %" PRId64 ", \"decode\": ", s->params.n_ctx, s->params.n_batch);
    int code = explain(s, 1, true);
    if (code == CLI_OK) {
        fputs(", \"prompt\": ", stdout);
        code = explain(s, s->params.n_batch, true);
    }
    puts("}");
    return code;
}

int cli_explain(int argc, char **argv) {
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
    code = cli_model_session(&m, &o.model);
    if (code == CLI_OK) {
        code = o.json ? explain_json(&m) : explain_text(&m);
    }
    cli_model_close(&m);
    return code;
}
