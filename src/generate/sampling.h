// SPDX-License-Identifier: MIT
// sampling.h: options of how the next token is chosen, for the commands that let a model write.
#pragma once

#include "cli/help.h"
#include "model/grammar.h"

#define CLI_MAX_BIASES 256
#define CLI_MAX_STOPS 16

struct cli_sampling {
    double temperature, top_p, min_p, typical, repeat, frequency, presence, tau, eta;
    int64_t top_k, last_n, seed, mirostat; // seed -1: another one each time
    struct sample_bias biases[CLI_MAX_BIASES];
    int64_t n_biases;
    const char *stops[CLI_MAX_STOPS]; // texts that end an answer
    int n_stops;
    const char *grammar, *schema; // files; NULL: none
};

#define CLI_SAMPLING_DEFAULT \
    { \
        .temperature = 0.8, .top_p = 0.95, .min_p = 0, .typical = 1, .repeat = 1, .tau = 5, .eta = 0.1, .top_k = 40, \
        .last_n = 64, .seed = -1 \
    }

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

// Takes option c of `command` if it is one of these; *code is then CLI_OK or that of a message.
bool cli_sampling_option(const char *command, int c, const char *value, struct cli_sampling *o, int *code);
// Chooses a seed where none was given.
void cli_sampling_seed(struct cli_sampling *o);
// `o` must outlive the sampler.
void cli_sampling_start(const struct cli_sampling *o, struct sampler *sampler);

// The grammar that a model is held to, over its vocabulary.
struct cli_guide {
    struct grammar *grammar;
    struct guide *guide; // NULL: it may write what it likes
};
// CLI_OK, or the code of a message.
int cli_guide_open(const struct cli_sampling *o, const struct vocab *vocab, struct cli_guide *guide);
void cli_guide_close(struct cli_guide *guide);
