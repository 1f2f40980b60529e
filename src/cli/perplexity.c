// SPDX-License-Identifier: MIT
// perplexity.c: `berth perplexity MODEL TEXT`: measures how well a model predicts a text, as llama.cpp's llama-perplexity does.
// Each context starts with the BOS token. Only the second half of each context counts, so that every counted token has a context.

#include "base/json.h"
#include "base/min.h"
#include "cli/generate_options.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>

static const struct cli_option option_rows[] = {
    CLI_OPT_MODEL,
    CLI_CONTEXTS_ROWS,
    CLI_OPT_CACHE_TYPE,
    CLI_PLACE_ROWS,
    CLI_OPT_LLAMA,
    CLI_OPT_JSON(CLI_TO(struct cli_contexts, json), "print one JSON object: perplexity, error, tokens, chunks"),
    {0},
};

const struct cli_help cli_perplexity_help = {
    .command = "perplexity",
    .what = "measure how well a model predicts a text",
    .operands = "MODEL TEXT",
    .takes = ".gguf .txt",
    .n_operands = {2, 2, 2},
    .bases = {[CLI_IN_MODEL] = offsetof(struct cli_contexts, model)},
    .about =
        "Runs MODEL on the file TEXT, one context at a time, and prints its perplexity: the average number of equally likely "
        "tokens among which the model is undecided; lower is better. The second half of each context counts. Ctrl-C ends it "
        "and prints the result so far.",
    .options = option_rows,
    .size = sizeof(struct cli_contexts),
    .initial = &(const struct cli_contexts){.model = {.may_llama = true, .all_outputs = true}},
    .examples = {{"For a text", "perplexity model.gguf text.txt"},
        {"For its first ten contexts of 1,024 tokens", "perplexity -c 1024 --chunks 10 -m model.gguf -f text.txt"}},
};

// Sums of surprises (negative log probabilities) in nats.
struct sums {
    const struct session *session;
    float *logits; // [n_vocab] temporary array
    double sum, squares;
    int64_t n;
};

static double token_surprise(const float *logits, int64_t n, int32_t token) {
    float most = -INFINITY;
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        most = max_f32(logits[i], most);
    }
    for (int64_t i = 0; i < n; i++) {
        sum += exp((double) logits[i] - (double) most);
    }
    return log(sum) - ((double) logits[token] - (double) most);
}

// Adds the surprises of the second half of a context to the sums. The logits of row i predict token i + 1.
static bool context_add(void *user, const int32_t *ids, int64_t i_context, int64_t n, struct model_error *error) {
    struct sums *sums = user;
    const struct session *s = sums->session;
    const int64_t n_ctx = s->params.n_ctx, n_vocab = s->model->params.n_vocab;
    for (int64_t i = n_ctx / 2; i + 1 < n_ctx; i++) {
        if (!session_row(s, i, sums->logits, error)) {
            return false;
        }
        const double x = token_surprise(sums->logits, n_vocab, ids[i + 1]);
        sums->sum += x;
        sums->squares += x * x;
        sums->n++;
    }
    cli_progress("reading the text", (uint64_t) i_context + 1, (uint64_t) n,
        "context %" PRId64 " of %" PRId64 ", perplexity %.4f", i_context + 1, n, exp(sums->sum / (double) sums->n));
    return true;
}

static void result_print(const struct cli_contexts *o, const struct sums *s, int64_t n_chunks) {
    const double mean = s->sum / (double) s->n, variance = s->squares / (double) s->n - mean * mean;
    const double perplexity = exp(mean);
    const double error = s->n > 1 ? perplexity * sqrt(max_f64(variance, 0) / (double) (s->n - 1)) : 0;
    if (o->json) {
        berth_json_printf(&(struct berth_json_writer){.file = stdout},
            "{'perplexity': %.6f, 'error': %.6f, 'tokens': %" PRId64 ", 'chunks': %" PRId64 ", 'ctx': %" PRId64
            ", 'stopped': %c}\n",
            perplexity, error, s->n, n_chunks, o->model.n_ctx, cli_is_interrupted(NULL));
    } else {
        printf("perplexity %.4f +- %.4f over %" PRId64 " tokens in %" PRId64 " context%s of %" PRId64 "\n", perplexity, error,
            s->n, n_chunks, n_chunks == 1 ? "" : "s", o->model.n_ctx);
    }
}

static int perplexity_measure(struct workbench *m, const struct cli_contexts *o) {
    struct sums sums = {.session = m->session, .logits = berth_malloc((size_t) m->model->params.n_vocab * sizeof sums.logits[0])};
    struct context_reader reader = {.each = context_add, .user = &sums};
    int64_t n = 0;
    const int code = sums.logits != NULL ? cli_contexts_read(m, o, &reader, &n) : cli_fail(CLI_FAILURE, "out of memory");
    if (code == CLI_OK) {
        result_print(o, &sums, n);
    }
    berth_free(sums.logits);
    return code;
}

int cli_perplexity(const struct cli_args *args) {
    struct cli_contexts *o = args->options;
    struct workbench m;
    if (o->model.n_ctx < 4) {
        return cli_usage(
            "perplexity", "--ctx %" PRId64 " is too small: half of the context has no token to predict", o->model.n_ctx);
    }
    o->model.n_batch = o->model.n_ctx;
    cli_catch_interrupt();
    int code = cli_model_open_text(&m, &o->model);
    if (code != CLI_OK) {
        return code;
    }
    model_devices_set_abort(&m.devices, cli_is_interrupted, NULL);
    code = cli_model_session(&m, &o->model);
    if (code == CLI_OK) {
        code = perplexity_measure(&m, o);
    }
    workbench_close(&m);
    return code;
}
