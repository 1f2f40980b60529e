// SPDX-License-Identifier: MIT
// explain.c: `berth explain MODEL`: where every op of a model's graphs runs, why, and what crosses between devices. Nothing is
// loaded: the graphs are split as they would be.

#include "cli/help.h"
#include "cli/models.h"

#include <getopt.h>
#include <inttypes.h>
#include <string.h>

static const struct cli_option option_rows[] = {
    CLI_OPT_MODEL,
    CLI_OPT_CTX,
    CLI_OPT_BATCH,
    CLI_OPT_CACHE_TYPE,
    CLI_OPT_DEVICE,
    CLI_OPT_GPU_LAYERS,
    CLI_OPT_JSON("print one JSON object: model, ctx, batch, decode, prompt"),
    {0},
};

const struct cli_help cli_explain_help = {
    .command  = "explain",
    .operands = "[MODEL]",
    .about = "Says for the graph of one token and for that of a batch of the prompt which device runs each op and why, and which "
             "tensors cross between devices, with their bytes. Weights are not touched. Without MODEL it is the one that comes "
             "with Berth.\n\nA split is a run of ops on one device; its inputs are the tensors that are copied to it. Why an op "
             "runs where it does:\n  placed, weight  what it writes, or the largest weight it reads, lies there\n  input, caller "
             "  it is an input of the graph; the program said so\n  expansion       its neighbours run there\n  priority        "
             "most of what it reads lies there\n  reader          the op that reads it runs there\n  offload         the device "
             "wants it, though its weight lies elsewhere\n  fallback        the device that should have run it does not support "
             "the op,\n                  its types or its memory",
    .options  = option_rows,
    .examples = {{"Where does each op run?", "explain model.gguf"}, {"With a long context", "explain -c 32768 model.gguf"}},
};

struct options {
    struct cli_model_options model;
    bool json;
};

// -1 to go on, else the exit code.
static int parse(int argc, char **argv, struct options *o) {
    for (int c, code = CLI_OK; (c = cli_option_next(&cli_explain_help, argc, argv)) != CLI_END;) {
        switch (c) {
            case CLI_JSON: o->json = true; break;
            default:
                if (!cli_model_option("explain", c, optarg, &o->model, &code)) {
                    return c == CLI_SHOWN ? CLI_OK : CLI_USAGE;
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
