// SPDX-License-Identifier: MIT
// embed.c: `berth embed MODEL [TEXT]...` computes the embedding vector of each text. The model's last norm has one output per
// token. The vector is the mean of these outputs or the output of the last token. It is scaled to length 1.

#include "base/base.h"
#include "base/json.h"
#include "cli/help.h"
#include "cli/models.h"
#include "generate/generate.h"

#include <inttypes.h>
#include <limits.h>
#include <string.h>

struct options {
    struct model_options model;
    const char *prompt, *file;
    bool is_last, is_raw, json;
};

static const struct cli_option option_rows[] = {
    CLI_OPT_MODEL,
    CLI_OPTION('p', "prompt", "TEXT", "the text; may also be given after MODEL", CLI_TO(struct options, prompt)),
    CLI_OPTION('f', "file", "FILE", "read one text per line from FILE ('-': standard input)", .takes = "*", .use = CLI_READ,
        CLI_TO(struct options, file)),
    CLI_OPTION(0, "pooling", "KIND", "mean: average over all tokens; last: the last token", .takes = "mean last",
        .kind = CLI_WORD, CLI_TO(struct options, is_last), .preset = "mean"),
    CLI_OPTION(0, "raw", NULL, "do not scale the vectors to length 1", CLI_TO(struct options, is_raw)),
    CLI_SESSION_ROWS,
    CLI_PLACE_ROWS,
    CLI_OPT_LLAMA,
    CLI_OPT_JSON(CLI_TO(struct options, json), "print one JSON object: model, pooling, embeddings"),
    {0},
};

const struct cli_help cli_embed_help = {
    .command = "embed",
    .what = "compute embedding vectors of texts",
    .operands = "MODEL [TEXT]...",
    .takes = ".gguf|",
    .n_operands = {1, INT_MAX, 1},
    .bases = {[CLI_IN_MODEL] = offsetof(struct options, model)},
    .about =
        "Prints one line of numbers per text: its embedding vector, which is the output of the model's last norm. Texts with a "
        "similar meaning have vectors with a similar direction, if the model was trained for it.",
    .options = option_rows,
    .size = sizeof(struct options),
    .initial = &(const struct options){.model = {.may_llama = true, .is_embedding = true}},
    .examples = {{"Two texts", "embed model.gguf 'the cat' 'the dog'"},
        {"One text per line, as JSON", "embed --json -f texts.txt -m model.gguf"}},
};

struct embedding {
    const struct options *o;
    struct workbench *m;
    int64_t n_done;
};

static void vector_print(const struct embedding *e, const char *text, size_t size, int64_t n_tokens, const float *x, int64_t n) {
    const char *between = e->o->json ? ", " : " ";
    if (e->o->json) {
        fputs(e->n_done > 0 ? ",\n " : "", stdout);
        struct berth_json_writer w = {.file = stdout};
        berth_json_begin(&w, NULL, '{');
        berth_json_put_key(&w, "text");
        berth_json_write_text(text, size, stdout);
        berth_json_printf(&w, "'tokens': %" PRId64 ", 'embedding': [", n_tokens);
    }
    for (int64_t i = 0; i < n; i++) {
        printf("%s%.7g", i > 0 ? between : "", (double) x[i]);
    }
    fputs(e->o->json ? "]}" : "\n", stdout);
}

static int text_print(struct embedding *e, const char *text, size_t size) {
    const struct text_embedder embedder = {
        .session = e->m->session, .vocab = e->m->vocab, .is_last = e->o->is_last, .is_raw = e->o->is_raw};
    const int64_t n = e->m->model->params.n_embd;
    struct model_error error = {""};
    int64_t n_tokens;
    float *x = berth_malloc((size_t) n * sizeof *x);
    if (x == NULL) {
        return cli_fail(CLI_FAILURE, "out of memory");
    }
    const bool ok = text_embed(&embedder, text, size, x, &n_tokens, &error);
    if (ok) {
        vector_print(e, text, size, n_tokens, x, n);
        e->n_done++;
    }
    berth_free(x);
    return ok ? CLI_OK : cli_fail(CLI_FAILURE, "text %" PRId64 ": %s", e->n_done + 1, error.text);
}

static int lines_embed(struct embedding *e, const char *path) {
    size_t size = 0;
    cli_interrupt_wake_reads(true);
    char *text = cli_read_text(path, &size);
    cli_interrupt_wake_reads(false);
    int code = text != NULL ? CLI_OK : CLI_FAILURE;
    for (size_t at = 0, n; at < size && code == CLI_OK; at += n + 1) {
        const char *end = memchr(text + at, '\n', size - at);
        n = end != NULL ? (size_t) (end - text) - at : size - at;
        code = n > 0 ? text_print(e, text + at, n) : CLI_OK;
    }
    berth_free(text);
    return code;
}

static int embed_all(struct embedding *e, char **texts, int n) {
    const struct options *o = e->o;
    if (o->json) {
        berth_json_printf(&(struct berth_json_writer){.file = stdout}, "{'model': %s, 'pooling': %s, 'embeddings': [", e->m->path,
            o->is_last ? "last" : "mean");
    }
    int code = o->prompt != NULL ? text_print(e, o->prompt, strlen(o->prompt)) : CLI_OK;
    for (int i = 0; i < n && code == CLI_OK; i++) {
        code = text_print(e, texts[i], strlen(texts[i]));
    }
    if (o->file != NULL && code == CLI_OK) {
        code = lines_embed(e, o->file);
    }
    fputs(o->json ? "]}\n" : "", stdout);
    return code;
}

int cli_embed(const struct cli_args *args) {
    const struct options *o = args->options;
    struct workbench m;
    if (args->n == 0 && o->prompt == NULL && o->file == NULL) {
        return cli_usage("embed", "missing text: give TEXT, --prompt or --file");
    }
    cli_catch_interrupt();
    int code = cli_model_open_text(&m, &o->model);
    if (code != CLI_OK) {
        return code;
    }
    model_devices_set_abort(&m.devices, cli_is_interrupted, NULL);
    code = cli_model_session(&m, &o->model);
    if (code == CLI_OK) {
        struct embedding e = {.o = o, .m = &m};
        code = embed_all(&e, args->operands, args->n);
    }
    workbench_close(&m);
    return code;
}
