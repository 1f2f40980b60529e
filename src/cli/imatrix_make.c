// SPDX-License-Identifier: MIT
// imatrix_make.c: `berth imatrix MODEL TEXT -o OUT`: runs a model on a text and writes an importance matrix in the format of
// llama.cpp's llama-imatrix.

#include "base/json.h"
#include "cli/generate_options.h"
#include "quantize/quantize.h"

#include <inttypes.h>

struct options {
    struct cli_contexts read;
    const char *out;
};

static const struct cli_option option_rows[] = {
    CLI_OPT_MODEL,
    CLI_CONTEXTS_ROWS,
    CLI_OPTION('o', "out", "OUT", "the file to write (GGUF)", .takes = "*", CLI_TO(struct options, out), .is_required = true),
    CLI_PLACE_ROWS,
    CLI_OPT_JSON(CLI_TO(struct options, read.json), "print one JSON object: tensors, chunks, tokens"),
    {0},
};

const struct cli_help cli_imatrix_help = {
    .command = "imatrix",
    .what = "compute an importance matrix for quantising",
    .operands = "-o OUT MODEL TEXT",
    .takes = ".gguf .txt",
    .n_operands = {2, 2, 2},
    .bases = {[CLI_IN_MODEL] = offsetof(struct options, read.model), [CLI_IN_CONTEXTS] = offsetof(struct options, read)},
    .about =
        "Runs MODEL on the file TEXT, one context at a time, and writes the importance matrix to OUT for 'berth gguf quantize "
        "--imatrix'. Ctrl-C ends it and writes the result so far.",
    .options = option_rows,
    .size = sizeof(struct options),
    .initial = &(const struct options){.read.model.all_outputs = true},
    .examples = {{"From a text", "imatrix -o im.gguf model.gguf text.txt"},
        {"From its first ten contexts", "imatrix --chunks 10 -o im.gguf -m model.gguf -f text.txt"}},
};

static int imatrix_write(const struct imatrix_collector *c, const struct options *o, int64_t n_chunks) {
    const struct imatrix_source source = {.text = o->read.text, .n_chunks = n_chunks, .n_ctx = o->read.model.n_ctx};
    struct model_error error = {""};
    int64_t n_tensors;
    FILE *file = cli_open(o->out);
    if (file == NULL) {
        return CLI_FAILURE;
    }
    const int code = cli_close_why(file, o->out, imatrix_collector_write(c, &source, file, &n_tensors, &error), error.text);
    if (code != CLI_OK) {
        return code;
    }
    FILE *results = cli_is_stdout(o->out) ? stderr : stdout;
    if (o->read.json) {
        berth_json_printf(&(struct berth_json_writer){.file = results},
            "{'tensors': %" PRId64 ", 'chunks': %" PRId64 ", 'tokens': %" PRId64 "}\n", n_tensors, n_chunks,
            n_chunks * o->read.model.n_ctx);
    } else {
        cli_text(results, 0, o->out);
        fprintf(results, ": %" PRId64 " matrices, from %" PRId64 " context%s of %" PRId64 " tokens\n", n_tensors, n_chunks,
            n_chunks == 1 ? "" : "s", o->read.model.n_ctx);
    }
    return CLI_OK;
}

// ---- the command ----

// Ctrl-C ends the graph early, which is not a failure of the session. An interrupted context is not counted, but the values that
// it added to the sums stay.
static bool context_count(void *user, const int32_t *ids, int64_t i, int64_t n, struct model_error *error) {
    const struct imatrix_collector *c = user;
    (void) ids;
    if (cli_is_interrupted(NULL)) {
        return false;
    }
    if (c->has_failed) {
        return model_fail(error, "out of memory for the sums of a matrix");
    }
    cli_progress("reading the text", (uint64_t) i + 1, (uint64_t) n, "context %" PRId64 " of %" PRId64, i + 1, n);
    return true;
}

static int imatrix_collect(struct workbench *m, const struct options *o) {
    struct imatrix_collector c;
    struct model_error error = {""};
    int64_t n = 0;
    if (!imatrix_collector_init(&c, m->model, &error)) {
        return cli_fail(CLI_FAILURE, "%s", error.text);
    }
    c.is_stopped = cli_is_interrupted;
    ggml_backend_sched_set_eval_callback(m->session->sched, imatrix_collector_eval, &c);
    struct context_reader reader = {.each = context_count, .user = &c};
    int code = cli_contexts_read(m, &o->read, &reader, &n);
    if (code == CLI_OK) {
        code = imatrix_write(&c, o, n);
    }
    imatrix_collector_fini(&c);
    return code;
}

int cli_imatrix(const struct cli_args *args) {
    struct options *o = args->options;
    struct workbench m;
    o->read.model.n_batch = o->read.model.n_ctx;
    cli_catch_interrupt();
    int code = cli_model_open_text(&m, &o->read.model);
    if (code != CLI_OK) {
        return code;
    }
    code = cli_output_check(o->out);
    if (code == CLI_OK) {
        code = cli_model_session(&m, &o->read.model);
    }
    if (code == CLI_OK) {
        code = imatrix_collect(&m, o);
    }
    workbench_close(&m);
    return code;
}
