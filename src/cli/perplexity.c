// SPDX-License-Identifier: MIT
// perplexity.c: `berth perplexity MODEL TEXT`: how well a model foretells a text. As llama.cpp's llama-perplexity measures it:
// contexts one after the other, each behind the token that begins a text, and of each the second half counts, so that every token
// has a past.

#include "cli/help.h"
#include "cli/models.h"
#include "model/vocab.h"

#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

enum { CHUNKS = CLI_OWN };

static const struct cli_option option_rows[] = {
    CLI_OPT_MODEL,
    {.letter = 'f', .name = "file", .value = "FILE", .takes = "*", .what = "the text; the same as TEXT behind the options"},
    {.letter = 'c', .name = "ctx", .value = "N", .what = "tokens of a context (default 512)", .also = "ctx-size"},
    {.id = CHUNKS, .name = "chunks", .value = "N", .what = "read at most N contexts (default: all)"},
    CLI_OPT_CACHE_TYPE,
    CLI_OPT_THREADS,
    CLI_OPT_DEVICE,
    CLI_OPT_NO_MMAP,
    CLI_OPT_GPU_LAYERS,
    CLI_OPT_JSON("print one JSON object: perplexity, error, tokens, chunks"),
    {0},
};

const struct cli_help cli_perplexity_help = {
    .command  = "perplexity",
    .what     = "how well a model foretells a text",
    .operands = "MODEL TEXT",
    .takes    = ".gguf .txt",
    .about =
        "Runs MODEL over the file TEXT, a context at a time, and tells its perplexity: among how many equally likely tokens it "
        "was undecided, on average; less is better. The second half of each context counts. Ctrl-C ends reading; what was "
        "read by then is told.",
    .options  = option_rows,
    .examples = {{"Of a text", "perplexity model.gguf text.txt"},
        {"Of its first ten contexts of 1,024 tokens", "perplexity -c 1024 --chunks 10 -m model.gguf -f text.txt"}},
};

struct options {
    struct cli_model_options model;
    const char *text;
    int64_t n_chunks; // 0: all
    bool json;
};

// Surprises in nats.
struct sums {
    double sum, squares;
    int64_t n, n_chunks;
};

// -1 to go on, else the exit code.
static int parse(int argc, char **argv, struct options *o) {
    for (int c, code = CLI_OK; (c = cli_option_next(&cli_perplexity_help, argc, argv)) != CLI_END;) {
        switch (c) {
            case 'f': o->text = optarg; break;
            case CHUNKS:
                if (!cli_parse_int(optarg, 1, INT32_MAX, &o->n_chunks)) {
                    return cli_usage("perplexity", "--chunks '%s' is not a number from 1 to %d", optarg, INT32_MAX);
                }
                break;
            case CLI_JSON: o->json = true; break;
            default:
                if (!cli_model_option("perplexity", c, optarg, &o->model, &code)) {
                    return c == CLI_SHOWN ? CLI_OK : CLI_USAGE;
                }
        }
        if (code != CLI_OK) {
            return code;
        }
    }
    const int n_given = argc - optind + (o->model.path != NULL) + (o->text != NULL);
    if (n_given != 2) {
        return cli_usage("perplexity", "MODEL and TEXT are wanted, %d are given", n_given);
    }
    o->model.path  = o->model.path != NULL ? o->model.path : argv[optind++];
    o->text        = o->text != NULL ? o->text : argv[optind];
    o->model.n_ctx = o->model.n_ctx > 0 ? o->model.n_ctx : 512;
    if (o->model.n_ctx < 4) {
        return cli_usage("perplexity", "--ctx %" PRId64 ": half of a context has no token to foretell", o->model.n_ctx);
    }
    o->model.n_batch     = o->model.n_ctx;
    o->model.all_outputs = true;
    return -1;
}

// Minus the logarithm of the share that `token` has.
static double surprise(const float *logits, int64_t n, int32_t token) {
    float most = -INFINITY;
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        most = logits[i] > most ? logits[i] : most;
    }
    for (int64_t i = 0; i < n; i++) {
        sum += exp((double) logits[i] - (double) most);
    }
    return log(sum) - ((double) logits[token] - (double) most);
}

// The logits of row i foretell token i + 1.
static void context_add(const struct session *s, const int32_t *ids, float *logits, struct sums *sums) {
    const int64_t n_ctx = s->params.n_ctx, n_vocab = s->model->params.n_vocab;
    for (int64_t i = n_ctx / 2; i + 1 < n_ctx; i++) {
        const size_t size = (size_t) n_vocab * sizeof *logits;
        ggml_backend_tensor_get(s->in.logits, logits, (size_t) i * size, size);
        const double x = surprise(logits, n_vocab, ids[i + 1]);
        sums->sum += x;
        sums->squares += x * x;
        sums->n++;
    }
    sums->n_chunks++;
}

static bool work(struct cli_model *m, const struct options *o, const struct vocab *vocab, const struct token_list *tokens,
    float *logits, struct sums *sums, struct model_error *error) {
    const int64_t n_ctx = o->model.n_ctx;
    int64_t n_chunks    = (int64_t) tokens->n / n_ctx;
    if (n_chunks == 0) {
        return model_fail(error, "%s: %zu tokens are less than a context of %" PRId64, o->text, tokens->n, n_ctx);
    }
    n_chunks = o->n_chunks > 0 && o->n_chunks < n_chunks ? o->n_chunks : n_chunks;
    for (int64_t i = 0; i < n_chunks && !cli_is_interrupted(NULL); i++) {
        int32_t *ids        = tokens->ids + i * n_ctx;
        const int32_t first = ids[0];
        ids[0]              = vocab->add_bos && vocab->bos >= 0 ? vocab->bos : first;
        session_reset(m->session);
        if (!session_decode(m->session, ids, n_ctx, error)) {
            break;
        }
        context_add(m->session, ids, logits, sums);
        cli_progress("reading the text", (uint64_t) i + 1, (uint64_t) n_chunks,
            "context %" PRId64 " of %" PRId64 ", perplexity %.4f", i + 1, n_chunks, exp(sums->sum / (double) sums->n));
    }
    cli_progress_end();
    return sums->n > 0 && (error->text[0] == '\0' || cli_is_interrupted(NULL));
}

static void tell(const struct options *o, const struct sums *s) {
    const double mean = s->sum / (double) s->n, variance = s->squares / (double) s->n - mean * mean;
    const double perplexity = exp(mean);
    const double error      = s->n > 1 ? perplexity * sqrt((variance > 0 ? variance : 0) / (double) (s->n - 1)) : 0;
    if (o->json) {
        printf("{\"perplexity\": %.6f, \"error\": %.6f, \"tokens\": %" PRId64 ", \"chunks\": %" PRId64 ", \"ctx\": %" PRId64
               ", \"stopped\": %s}\n",
            perplexity, error, s->n, s->n_chunks, o->model.n_ctx, cli_is_interrupted(NULL) ? "true" : "false");
    } else {
        printf("perplexity %.4f +- %.4f, of %" PRId64 " tokens in %" PRId64 " context%s of %" PRId64 "\n", perplexity, error,
            s->n, s->n_chunks, s->n_chunks == 1 ? "" : "s", o->model.n_ctx);
    }
}

static int measure(struct cli_model *m, const struct options *o, const struct vocab *vocab) {
    struct model_error error = {""};
    struct token_list tokens = {0};
    struct sums sums         = {0};
    size_t size              = 0;
    char *text               = cli_read_text(o->text, &size);
    float *logits            = malloc((size_t) m->model->params.n_vocab * sizeof *logits);
    int code                 = text == NULL ? CLI_FAILURE : CLI_OK;
    if (code == CLI_OK && logits == NULL) {
        code = cli_fail(CLI_FAILURE, "out of memory");
    }
    if (code == CLI_OK) {
        const bool ok =
            vocab_encode(vocab, text, size, true, false, &tokens, &error) && work(m, o, vocab, &tokens, logits, &sums, &error);
        code = ok ? CLI_OK : cli_fail(CLI_FAILURE, "%s", error.text[0] != '\0' ? error.text : "stopped within the first context");
    }
    if (code == CLI_OK) {
        tell(o, &sums);
    }
    token_list_fini(&tokens);
    free(logits);
    free(text);
    return code;
}

int cli_perplexity(int argc, char **argv) {
    struct options o         = {0};
    struct model_error error = {""};
    struct cli_model m;
    int code = parse(argc, argv, &o);
    if (code >= 0) {
        return code;
    }
    cli_catch_interrupt();
    code = cli_model_open(&m, &o.model);
    if (code != CLI_OK) {
        return code;
    }
    model_devices_set_abort(&m.devices, cli_is_interrupted, NULL);
    struct vocab *vocab = vocab_new(berth_gguf_map_meta(m.model->file), m.model->params.n_vocab, &error);
    code                = vocab == NULL ? cli_fail(CLI_FAILURE, "%s: %s", m.path, error.text) : cli_model_session(&m, &o.model);
    if (code == CLI_OK) {
        code = measure(&m, &o, vocab);
    }
    vocab_free(vocab);
    cli_model_close(&m);
    return code;
}
