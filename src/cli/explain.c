// SPDX-License-Identifier: MIT
// explain.c: `berth explain MODEL` prints the device of every op of a model's graphs, the reason, and the copies between devices.
// The weights are not loaded. With --split tensor or --fused they are loaded, and both graphs run once, because the devices'
// shares and the fused ops are known only after computing.

#include "base/base.h"
#include "base/json.h"
#include "base/min.h"
#include "cli/help.h"
#include "cli/plans.h"

#include <inttypes.h>
#include <string.h>

struct options {
    struct model_options model;
    int64_t layer; // a layer, VIEW_LAYERS_FOLDED or VIEW_LAYERS_ALL
    int32_t n_parallel;
    size_t memory;
    bool json, fused, all;
};

static const struct cli_option option_rows[] = {
    CLI_OPT_MODEL,
    CLI_SESSION_ROWS,
    CLI_OPT_DEVICE,
    CLI_OPT_GPU_LAYERS,
    CLI_OPT_HOST_EXPERTS,
    CLI_OPT_SPLIT,
    CLI_OPT_LLAMA,
    CLI_OPTION(0, "layer", "N", "print only layer N, counted from 0", CLI_RANGE(0, INT32_MAX), CLI_TO(struct options, layer)),
    CLI_OPTION(0, "parallel", "N",
        "instead: print the plan of 'berth serve --parallel N': its memory, the tokens that its cache holds, the users that fit, "
        "and why one more waits",
        CLI_RANGE(1, 1024), CLI_TO(struct options, n_parallel)),
    CLI_OPTION(
        0, "memory", "SIZE", "with --parallel: memory limit of the server", .kind = CLI_SIZE, CLI_TO(struct options, memory)),
    CLI_OPTION('a', "all", NULL, "print every layer (default: equal layers once)", CLI_TO(struct options, all)),
    CLI_OPTION(0, "fused", NULL, "print the ops that devices fuse; loads the model", CLI_TO(struct options, fused)),
    CLI_OPT_JSON(
        CLI_TO(struct options, json), "print one JSON object: model, ctx, batch, decode, prompt, alive, lower; every layer"),
    {0},
};

const struct cli_help cli_explain_help = {
    .command = "explain",
    .what = "show where every op of a model runs, and why",
    .operands = "[MODEL]",
    .takes = ".gguf",
    .n_operands = {0, 1, 1},
    .bases = {[CLI_IN_MODEL] = offsetof(struct options, model)},
    .about =
        "Prints, for the graph of one token and for the graph of a prompt batch, which device runs each op and why, and which "
        "tensors are copied between devices, with their bytes. Weights are not read. Without MODEL, the small model of Berth "
        "is used.\n\nA split is a sequence of ops that run on one device; its inputs are the tensors that are copied to it. "
        "The reasons are:\n"
        "  placed          its result is there\n"
        "  weight          the largest weight that it reads is there\n"
        "  input           it is an input of the graph\n"
        "  caller          the program chose the device\n"
        "  expansion       its neighbours run there\n"
        "  priority        most of its sources are there\n"
        "  reader          the op that reads it runs there\n"
        "  offload         the device computes it although its weight is elsewhere\n"
        "  fallback        the preferred device does not support the op, its types or\n"
        "                  its memory\n"
        "\nWith --split tensor it prints how many results are summed over the devices, with their bytes, and the ops that "
        "cannot be computed on split sources, with the bytes moved for them. With --fused it prints the ops that a device fused "
        "into one launch, and how often. Both options load the model and compute both graphs once.",
    .options = option_rows,
    .size = sizeof(struct options),
    .initial = &(const struct options){.model = {.may_llama = true}, .layer = VIEW_LAYERS_FOLDED},
    .negative = "there is no such layer, or --fused with libllama",
    .examples = {{"Where does each op run?", "explain model.gguf"},
        {"The fourth layer, with a long context", "explain --layer 3 -c 32768 model.gguf"}},
};

static int options_check(struct options *o) {
    if (o->all) {
        o->layer = VIEW_LAYERS_ALL;
    }
    if (o->memory > 0) {
        return cli_usage("explain", "--memory requires --parallel");
    }
    if (o->model.by_best) {
        return cli_usage("explain", "--split auto is not supported; only 'berth run' has it");
    }
    if (o->model.by_tensor && o->json) {
        return cli_usage("explain", "--json and --split tensor cannot be combined");
    }
    if (o->fused && (o->json || o->model.by_tensor || o->layer != VIEW_LAYERS_FOLDED)) {
        return cli_usage("explain", "--fused cannot be combined with --json, --layer, --all or --split tensor");
    }
    o->model.plan_only = !o->model.by_tensor && !o->fused;
    return CLI_OK;
}

// ---- a graph ----

// Builds the graph of n_tokens tokens over the whole context, and lets the scheduler place its ops.
static int graph_split(struct session *s, int64_t n_tokens) {
    struct model_error error = {""};
    if (!session_graph(s, n_tokens, s->params.n_ctx, &error)) {
        return cli_fail(CLI_FAILURE, "%s", error.text);
    }
    return berth_sched_split(s->sched, s->graph) == GGML_STATUS_SUCCESS ? CLI_OK
                                                                        : cli_fail(CLI_FAILURE, "%s", berth_last_error());
}

static int print_json(struct session *s, int64_t n_tokens) {
    const int code = graph_split(s, n_tokens);
    if (code != CLI_OK || berth_sched_explain_json(s->sched, stdout) == GGML_STATUS_SUCCESS) {
        return code;
    }
    return ferror(stdout) ? CLI_FAILURE : cli_fail(CLI_FAILURE, "%s", berth_last_error()); // cli_finish reports a full disk
}

static int print_text(struct session *s, int64_t n_tokens, int64_t layer) {
    int code = graph_split(s, n_tokens);
    struct berth_stream text;
    if (code != CLI_OK) {
        return code;
    }
    const bool is_printed = berth_stream_open(&text) && berth_sched_explain_text(s->sched, text.file) == GGML_STATUS_SUCCESS;
    if (!berth_stream_close(&text) || !is_printed) {
        code = cli_fail(CLI_FAILURE, "%s", is_printed ? "out of memory for the text" : berth_last_error());
    } else if (view_layers_write(text.text, layer, stdout) == 0 && layer >= 0) {
        code = cli_fail(CLI_NEGATIVE, "there is no layer %" PRId64 ": the model has %" PRId64 ", counted from 0", layer,
            s->model->params.n_layer);
    }
    berth_stream_fini(&text);
    return code;
}

static int explain_text(const struct workbench *m, int64_t layer) {
    struct session *s = m->session;
    cli_text(stdout, 0, m->path);
    printf(": %s, %" PRId64 " layers; one token over %" PRId64 " positions\n", m->model->params.arch, m->model->params.n_layer,
        s->params.n_ctx);
    const int code = print_text(s, 1, layer);
    if (code != CLI_OK) {
        return code;
    }
    printf("\na batch of %" PRId64 " tokens over %" PRId64 " positions\n", s->params.n_batch, s->params.n_ctx);
    return print_text(s, s->params.n_batch, layer);
}

// Prints how the devices computed the last graph.
typedef void (*print_t)(const struct workbench *m);

static void print_shares(const struct workbench *m) {
    fputs("  ", stdout);
    berth_meta_explain(m->devices.backend[0], stdout);
}

// Prints one line per fusion, with the number of its uses. Skips backends that do not report fusions.
static void print_fused(const struct workbench *m) {
    int n_printed = 0;
    for (int i = 0; i < m->devices.n; i++) {
        size_t (*explain)(ggml_backend_t, char *, size_t);
        char text[4096] = "", *rest = text;
        model_device_proc(m->devices.dev[i], "berth_backend_explain", &explain);
        if (explain != NULL && explain(m->devices.backend[i], text, sizeof text) > 0) {
            printf("  %s fused in its last graph:\n", ggml_backend_dev_name(m->devices.dev[i]));
            for (const char *line; (line = strsep(&rest, "\n")) != NULL && line[0] != '\0'; n_printed++) {
                printf("    %s\n", line);
            }
        }
    }
    if (n_printed == 0) {
        puts("  no device fused ops");
    }
}

static int compute_and_print(const struct workbench *m, int64_t n_tokens, print_t print) {
    struct model_error error = {""};
    int32_t *tokens = berth_calloc((size_t) n_tokens, sizeof *tokens);
    if (tokens == NULL) {
        return cli_fail(CLI_FAILURE, "out of memory for %" PRId64 " tokens", n_tokens);
    }
    const bool ok = session_decode(m->session, tokens, n_tokens, &error);
    berth_free(tokens);
    if (!ok) {
        return cli_fail(CLI_FAILURE, "%s", error.text);
    }
    printf("%" PRId64 " token%s at position %" PRId64 "\n", n_tokens, n_tokens == 1 ? "" : "s", m->session->n_past - n_tokens);
    print(m);
    return CLI_OK;
}

static int explain_computed(const struct workbench *m, print_t print) {
    const struct session *s = m->session;
    cli_text(stdout, 0, m->path);
    printf(": %s, %" PRId64 " layers\n", m->model->params.arch, m->model->params.n_layer);
    const int64_t n_batch = min_i64(s->params.n_batch, s->params.n_ctx - 1);
    int code = n_batch > 1 ? compute_and_print(m, n_batch, print) : CLI_OK;
    return code == CLI_OK ? compute_and_print(m, 1, print) : code;
}

static int explain_json(const struct workbench *m, const struct model_options *options) {
    struct session *s = m->session;
    struct berth_json_writer w = {.file = stdout};
    berth_json_begin(&w, NULL, '{');
    berth_json_printf(&w, "'model': %s, 'ctx': %" PRId64 ", 'batch': %" PRId64, m->path, s->params.n_ctx, s->params.n_batch);
    berth_json_put_key(&w, "decode");
    int code = print_json(s, 1);
    if (code == CLI_OK) {
        berth_json_put_key(&w, "prompt");
        code = print_json(s, s->params.n_batch);
    }
    if (m->model->engine->can_replan && code == CLI_OK) {
        cli_peak_json(&w, m->path, options);
    }
    puts("}");
    return code;
}

static int explain_model(struct workbench *m, const struct options *o) {
    if (o->fused && !m->model->engine->has_fused) {
        return cli_fail(CLI_NEGATIVE, "--fused is not supported for a model that libllama runs");
    }
    int code = cli_model_session(m, &o->model);
    if (code != CLI_OK) {
        return code;
    }
    if (!o->model.plan_only) {
        return explain_computed(m, o->fused ? print_fused : print_shares);
    }
    if (o->json) {
        return explain_json(m, &o->model);
    }
    code = explain_text(m, o->layer);
    if (o->layer < 0 && m->model->engine->can_replan && code == CLI_OK) {
        cli_peak_print(stdout, m->path, &o->model);
    }
    return code;
}

int cli_explain(const struct cli_args *args) {
    struct options *o = args->options;
    struct workbench m;
    if (o->n_parallel > 0) {
        return cli_serve_plan(&o->model, o->memory, o->n_parallel, o->json, false);
    }
    int code = options_check(o);
    if (code != CLI_OK || (code = cli_model_open(&m, &o->model)) != CLI_OK) {
        return code;
    }
    code = explain_model(&m, o);
    workbench_close(&m);
    return code;
}
