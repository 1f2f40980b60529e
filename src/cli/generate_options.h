// SPDX-License-Identifier: MIT
// generate_options.h: options of the commands that generate text (run, chat) or measure over one (perplexity, imatrix).
#pragma once

#include "cli/help.h"
#include "cli/models.h"
#include "generate/generate.h"

// ---- sampling ----

#define CLI_MAX_BIASES 256
#define CLI_MAX_STOPS 16

struct cli_sampling {
    struct sampling_params params;
    struct sample_bias biases[CLI_MAX_BIASES]; // params.biases, once there are some
    const char *stops[CLI_MAX_STOPS];          // texts that end an answer
    int n_stops;
    const char *grammar, *schema; // files; NULL: none
};

#define CLI_SAMPLING_ROWS \
    {.id = CLI_TEMP, \
        .name = "temp", \
        .value = "T", \
        .what = "0: always the likeliest token; higher: wilder (default 0.8)", \
        .also = "temperature"}, \
        {.id = CLI_TOP_K, .name = "top-k", .value = "K", .what = "choose among the K likeliest, 0: all (default 40)"}, \
        {.id = CLI_TYPICAL, \
            .name = "typical", \
            .value = "P", \
            .what = "of those, the most typical that have P together (default 1: all)", \
            .also = "typical-p"}, \
        {.id = CLI_TOP_P, .name = "top-p", .value = "P", .what = "of those, the likeliest that have P together (default 0.95)"}, \
        {.id = CLI_MIN_P, \
            .name = "min-p", \
            .value = "P", \
            .what = "of those, the ones at least P times as likely as the likeliest (default 0)"}, \
        {.id = CLI_REPEAT, \
            .name = "repeat-penalty", \
            .value = "X", \
            .what = "make tokens of the last ones less likely, 1: not (default 1)"}, \
        {.id = CLI_LAST_N, \
            .name = "repeat-last-n", \
            .value = "N", \
            .what = "how many tokens are the last ones, 0: none (default 64)"}, \
        {.id = CLI_FREQUENCY, \
            .name = "frequency-penalty", \
            .value = "X", \
            .what = "less likely by X for each time among the last ones (default 0)"}, \
        {.id = CLI_PRESENCE, \
            .name = "presence-penalty", \
            .value = "X", \
            .what = "less likely by X if among the last ones (default 0)"}, \
        {.id = CLI_MIROSTAT, \
            .name = "mirostat", \
            .value = "N", \
            .what = "2: keep the surprise at --mirostat-ent instead of top-k to min-p (default 0)"}, \
        {.id = CLI_TAU, .name = "mirostat-ent", .value = "X", .what = "the surprise in bits (default 5)"}, \
        {.id = CLI_ETA, .name = "mirostat-lr", .value = "X", .what = "how fast it is followed (default 0.1)"}, \
        {.id = CLI_BIAS, \
            .name = "logit-bias", \
            .value = "ID+X", \
            .what = "make token ID more likely by X; ID-X: less; ID-inf: never. May be given again"}, \
        {.id = CLI_STOP, \
            .name = "stop", \
            .value = "TEXT", \
            .what = "end before TEXT is written; may be given again", \
            .also = "reverse-prompt"}, \
        {.id = CLI_GRAMMAR, \
            .name = "grammar", \
            .value = "FILE", \
            .takes = "*", \
            .use = CLI_READ, \
            .what = "write only what the grammar in FILE allows (GBNF)", \
            .also = "grammar-file"}, \
        {.id = CLI_SCHEMA, \
            .name = "json-schema", \
            .value = "FILE", \
            .takes = ".json", \
            .use = CLI_READ, \
            .what = "write only JSON that is valid by the schema in FILE", \
            .also = "json-schema-file"}, \
    { \
        .letter = 's', .name = "seed", .value = "S", .what = "seed of the choices (default: another one each time)" \
    }

// Takes option c of `command` if it is one of these; *code is then CLI_OK or that of a message. *o stays where it is afterwards.
bool cli_sampling_option(const char *command, int c, const char *value, struct cli_sampling *o, int *code);
// Opens the grammar of --grammar or --json-schema, if there is one. CLI_OK, or the code of a message.
int cli_guide_open(const struct cli_sampling *o, const struct vocab *vocab, struct text_guide *guide);

// ---- contexts ----

struct cli_contexts {
    struct model_options model; // model.n_ctx is the length of a context
    const char *text;           // file
    int64_t n_max;              // contexts, 0: all
    bool json;
};

#define CLI_CONTEXTS_ROWS \
    {.letter = 'f', \
        .name = "file", \
        .value = "FILE", \
        .takes = "*", \
        .use = CLI_READ, \
        .what = "the text; the same as TEXT behind the options"}, \
        {.letter = 'c', .name = "ctx", .value = "N", .what = "tokens of a context (default 512)", .also = "ctx-size"}, { \
        .id = CLI_CHUNKS, .name = "chunks", .value = "N", .what = "read at most N contexts (default: all)" \
    }

// One of those rows: true, with *code set: CLI_OK, or that of a wrong value.
bool cli_contexts_option(const char *command, int c, const char *value, struct cli_contexts *o, int *code);
// MODEL and TEXT behind the options, and what is not given. -1 to go on, else the exit code.
int cli_contexts_operands(const char *command, int argc, char **argv, struct cli_contexts *o);
// contexts_read over the file, until Ctrl-C; r has vocab, each and user. CLI_OK, or the code of a message.
int cli_contexts_read(struct workbench *m, const struct cli_contexts *o, struct context_reader *r, int64_t *n_read);
