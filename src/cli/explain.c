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
#include <stdlib.h>
#include <string.h>

#define EXPLAIN_FOLDED (-1) // a layer is printed, then the number of equal layers that follow
#define EXPLAIN_ALL (-2)    // every line

struct options {
    struct model_options model;
    int64_t layer; // a layer, EXPLAIN_FOLDED or EXPLAIN_ALL
    bool json, fused, all;
};

static const struct cli_option option_rows[] = {
    CLI_OPT_MODEL,
    CLI_SESSION_ROWS,
    CLI_OPT_DEVICE,
    CLI_OPT_GPU_LAYERS,
    CLI_OPT_SPLIT,
    CLI_OPT_LLAMA,
    CLI_OPTION(0, "layer", "N", "print only layer N, counted from 0", CLI_RANGE(0, INT32_MAX), CLI_TO(struct options, layer)),
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
    .initial = &(const struct options){.model = {.may_llama = true}, .layer = EXPLAIN_FOLDED},
    .negative = "there is no such layer, or --fused with libllama",
    .examples = {{"Where does each op run?", "explain model.gguf"},
        {"The fourth layer, with a long context", "explain --layer 3 -c 32768 model.gguf"}},
};

static int options_check(struct options *o) {
    if (o->all) {
        o->layer = EXPLAIN_ALL;
    }
    if (o->model.by_best) {
        return cli_usage("explain", "--split auto is not supported; only 'berth run' has it");
    }
    if (o->model.by_tensor && o->json) {
        return cli_usage("explain", "--json and --split tensor cannot be combined");
    }
    if (o->fused && (o->json || o->model.by_tensor || o->layer != EXPLAIN_FOLDED)) {
        return cli_usage("explain", "--fused cannot be combined with --json, --layer, --all or --split tensor");
    }
    o->model.plan_only = !o->model.by_tensor && !o->fused;
    return CLI_OK;
}

// ---- equal layers are printed once: their lines are equal except for the numbers of nodes and layers ----

// Consecutive lines of one layer.
struct block {
    const char *text, *end;
    int64_t layer;
    size_t n_lines;
};

// Parses "  node 5 blk.0.attn.q (ROPE". Returns the text after the layer's number; NULL: the line has no layer.
static const char *layer_of(const char *line, int64_t *layer) {
    const char *p = strncmp(line, "  node ", 7) == 0 ? line + 7 : NULL;
    if (p != NULL) {
        p += strspn(p, "0123456789");
        p = strncmp(p, " blk.", 5) == 0 ? p + 5 : NULL;
    }
    if (p == NULL || *p < '0' || *p > '9') {
        return NULL;
    }
    char *end;
    *layer = strtoll(p, &end, 10);
    return *end == '.' ? end : NULL;
}

static const char *next_line(const char *line) {
    const char *end = strchr(line, '\n');
    return end != NULL ? end + 1 : line + strlen(line);
}

// Returns the block that begins at a line, which must have a layer.
static struct block block_at(const char *line) {
    struct block b = {.text = line};
    int64_t layer;
    layer_of(line, &b.layer);
    for (; *line != '\0' && layer_of(line, &layer) != NULL && layer == b.layer; line = next_line(line)) {
        b.n_lines++;
    }
    b.end = line;
    return b;
}

// Returns whether two blocks differ only in the numbers of nodes and layers.
static bool blocks_equal(const struct block *a, const struct block *b) {
    const char *x = a->text, *y = b->text;
    bool same = a->n_lines == b->n_lines;
    for (size_t i = 0; i < a->n_lines && same; i++, x = next_line(x), y = next_line(y)) {
        int64_t layer;
        const char *p = layer_of(x, &layer), *q = layer_of(y, &layer);
        const size_t n = (size_t) (next_line(x) - p);
        same = n == (size_t) (next_line(y) - q) && memcmp(p, q, n) == 0;
    }
    return same;
}

// Prints one line for layers `from` to `to`, which equal the printed block `first`. If to < from, prints nothing.
static void equal_layers_print(int64_t from, int64_t to, const struct block *first, FILE *file) {
    if (to == from) {
        fprintf(file, "  layer %" PRId64 ": the same %zu nodes as layer %" PRId64 "\n", to, first->n_lines, first->layer);
    } else if (to > from) {
        fprintf(file, "  layers %" PRId64 " to %" PRId64 ": %" PRId64 " x the same %zu nodes as layer %" PRId64 "\n", from, to,
            to - from + 1, first->n_lines, first->layer);
    }
}

// Prints the lines of a text by layer. layer: EXPLAIN_FOLDED, EXPLAIN_ALL, or the only layer to print. A node belongs to the
// layer in its name (blk.3.ffn.up). Lines without a layer are always printed. Returns the number of lines of `layer`. Takes time
// linear in the size of the text.
static size_t layers_print(const char *text, int64_t layer, FILE *file) {
    struct block first = {0};  // the last printed block
    int64_t from = 0, to = -1; // the layers after it that are equal to it
    size_t n_printed = 0;
    while (*text != '\0') {
        int64_t i;
        const char *next = next_line(text);
        const bool has_layer = layer_of(text, &i) != NULL;
        if (layer == EXPLAIN_ALL || !has_layer) {
            equal_layers_print(from, to, &first, file);
            first = (struct block){0};
            to = from - 1;
            fwrite(text, 1, (size_t) (next - text), file);
            text = next;
            continue;
        }
        const struct block b = block_at(text);
        n_printed += b.layer == layer ? b.n_lines : 0;
        if (layer >= 0 ? b.layer == layer : first.text == NULL || !blocks_equal(&first, &b)) {
            equal_layers_print(from, to, &first, file);
            fwrite(b.text, 1, (size_t) (b.end - b.text), file);
            first = b;
            from = b.layer + 1;
            to = b.layer;
        } else if (layer < 0) {
            to = b.layer;
        }
        text = b.end;
    }
    equal_layers_print(from, to, &first, file);
    return n_printed;
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
    } else if (layers_print(text.text, layer, stdout) == 0 && layer >= 0) {
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
    int code = options_check(o);
    if (code != CLI_OK || (code = cli_model_open(&m, &o->model)) != CLI_OK) {
        return code;
    }
    code = explain_model(&m, o);
    workbench_close(&m);
    return code;
}
