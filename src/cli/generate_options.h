// SPDX-License-Identifier: MIT
// generate_options.h: options of run and chat (sampling), and of perplexity and imatrix (contexts).
#pragma once

#include "cli/help.h"
#include "cli/models.h"
#include "generate/generate.h"

// ---- sampling ----

struct cli_biases {
    struct sample_bias *items;
    size_t n, cap;
};

struct cli_sampling {
    struct sampler sampler; // settings; a command works on a copy
    struct cli_biases biases;
    struct cli_texts stops; // texts that end an answer
    int64_t mirostat;       // 0 or 2
    int64_t seed;
    const char *grammar, *schema; // files; NULL: none
};
#define CLI_SAMPLING_INITIAL \
    { .seed = -1 }

// Rows for the struct cli_sampling at bases[CLI_IN_SAMPLING].
#define CLI_TO_SAMPLING(field) .base = CLI_IN_SAMPLING, CLI_TO(struct cli_sampling, field)
#define CLI_SAMPLING_ROWS \
    CLI_OPTION(0, "temp", "T", "temperature; 0: always the most likely token; higher values are more random", .preset = "0.8", \
        CLI_REAL_IN(0, 1e6), CLI_TO_SAMPLING(sampler.temperature), .also = "temperature"), \
        CLI_OPTION(0, "top-k", "K", "keep the K most likely tokens, 0: all", .preset = "40", CLI_RANGE(0, 0), \
            CLI_TO_SAMPLING(sampler.top_k)), \
        CLI_OPTION(0, "typical", "P", "then keep the most typical tokens with a total probability of P, 1: all", .preset = "1", \
            CLI_REAL_IN(0, 1), CLI_TO_SAMPLING(sampler.typical), .also = "typical-p"), \
        CLI_OPTION(0, "top-p", "P", "then keep the most likely tokens with a total probability of P", .preset = "0.95", \
            CLI_REAL_IN(0, 1), CLI_TO_SAMPLING(sampler.top_p)), \
        CLI_OPTION(0, "min-p", "P", "then keep tokens at least P times as likely as the most likely one", .preset = "0", \
            CLI_REAL_IN(0, 1), CLI_TO_SAMPLING(sampler.min_p)), \
        CLI_OPTION(0, "repeat-penalty", "X", "lower the logits of recent tokens by the factor X, 1: off", .preset = "1", \
            CLI_REAL_IN((double) 1e-6f, 1e6), CLI_TO_SAMPLING(sampler.repeat)), \
        CLI_OPTION(0, "repeat-last-n", "N", "number of recent tokens for the penalties, 0: none", .preset = "64", \
            CLI_RANGE(0, 1 << 24), CLI_TO_SAMPLING(sampler.last_n)), \
        CLI_OPTION(0, "frequency-penalty", "X", "subtract X from a logit for each occurrence among the recent tokens", \
            .preset = "0", CLI_REAL_IN(-1e6, 1e6), CLI_TO_SAMPLING(sampler.frequency)), \
        CLI_OPTION(0, "presence-penalty", "X", "subtract X from a logit if the token is among the recent ones", .preset = "0", \
            CLI_REAL_IN(-1e6, 1e6), CLI_TO_SAMPLING(sampler.presence)), \
        CLI_OPTION(0, "mirostat", "N", \
            "2: use Mirostat 2.0, which keeps the surprise at --mirostat-ent. It replaces --top-k, --typical, --top-p and " \
            "--min-p", \
            .preset = "0", CLI_RANGE(0, 2), CLI_TO_SAMPLING(mirostat), .parse = cli_sampling_mirostat), \
        CLI_OPTION(0, "mirostat-ent", "X", "target surprise of Mirostat in bits", .preset = "5", \
            CLI_REAL_IN((double) 1e-6f, 1e6), CLI_TO_SAMPLING(sampler.tau)), \
        CLI_OPTION(0, "mirostat-lr", "X", "learning rate of Mirostat", .preset = "0.1", CLI_REAL_IN(0, 1e6), \
            CLI_TO_SAMPLING(sampler.eta)), \
        CLI_OPTION(0, "logit-bias", "ID+X", \
            "add X to the logit of token ID; ID-X: subtract X; ID-inf: never choose it. May be repeated", .is_list = true, \
            CLI_TO_SAMPLING(biases), .parse = cli_sampling_bias), \
        CLI_OPTION(0, "stop", "TEXT", "stop before TEXT is generated; may be repeated", .is_list = true, CLI_TO_SAMPLING(stops), \
            .parse = cli_sampling_stop, .also = "reverse-prompt"), \
        CLI_OPTION(0, "grammar", "FILE", "generate only text that matches the grammar in FILE (GBNF)", .takes = "*", \
            .use = CLI_READ, .base = CLI_IN_SAMPLING, CLI_TO_ALL(cli_sampling_grammar), .also = "grammar-file"), \
        CLI_OPTION(0, "json-schema", "FILE", "generate only JSON that matches the schema in FILE", .takes = ".json", \
            .use = CLI_READ, .base = CLI_IN_SAMPLING, CLI_TO_ALL(cli_sampling_grammar), .also = "json-schema-file"), \
        CLI_OPTION('s', "seed", "S", "random seed (default: a new one for each run)", CLI_RANGE(0, 0), CLI_TO_SAMPLING(seed))

int cli_sampling_mirostat(const struct cli_option *option, const char *command, const char *value, void *target);
int cli_sampling_bias(const struct cli_option *option, const char *command, const char *text, void *target);
int cli_sampling_grammar(const struct cli_option *option, const char *command, const char *value, void *target);
int cli_sampling_stop(const struct cli_option *option, const char *command, const char *text, void *target);
// Call after parsing: chooses a seed if none is given.
void cli_sampling_init(struct cli_sampling *o);
// Does nothing without --grammar and --json-schema. On failure prints a message and returns the exit code.
int cli_guide_open(const struct cli_sampling *o, const struct vocab *vocab, struct text_guide *guide);

// ---- contexts ----

struct cli_contexts {
    struct model_options model; // model.n_ctx is the length of a context
    const char *text;           // file
    int64_t n_max;              // number of contexts, 0: all
    bool json;
};

// Rows for the struct cli_contexts at bases[CLI_IN_CONTEXTS].
#define CLI_TO_CONTEXTS(field) .base = CLI_IN_CONTEXTS, CLI_TO(struct cli_contexts, field)
#define CLI_CONTEXTS_ROWS \
    CLI_OPTION('f', "file", "FILE", "the text file; may also be given as an argument", .takes = "*", .use = CLI_READ, \
        CLI_TO_CONTEXTS(text), .is_operand = true), \
        CLI_OPTION( \
            'c', "ctx", "N", "tokens per context", .preset = "512", CLI_INT_OF_MODEL(n_ctx, INT32_MAX), .also = "ctx-size"), \
        CLI_OPTION( \
            0, "chunks", "N", "process at most N contexts (default: all)", CLI_RANGE(1, INT32_MAX), CLI_TO_CONTEXTS(n_max))

// Calls contexts_read on the text file. Ctrl-C stops the work. The caller sets r->each and r->user. On failure prints a message
// and returns the exit code.
int cli_contexts_read(struct workbench *m, const struct cli_contexts *o, struct context_reader *r, int64_t *n_read);
