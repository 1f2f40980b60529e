// SPDX-License-Identifier: MIT
// contexts.h: a text that a model reads context by context, for the commands that measure something over one.
#pragma once

#include "cli/help.h"
#include "cli/models.h"
#include "model/vocab.h"

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

// One of those rows, --json or an option of the model: true, with *code as cli_model_option's.
bool cli_contexts_option(const char *command, int c, const char *value, struct cli_contexts *o, int *code);
// MODEL and TEXT behind the options, and what is not given. -1 to go on, else the exit code.
int cli_contexts_operands(const char *command, int argc, char **argv, struct cli_contexts *o);

// Called after each context, whose tokens are ids: false ends reading, and the context does not count; with an error if there is
// one. It may write a note for the line of progress.
typedef bool (*cli_context_read)(
    void *user, const struct session *session, const int32_t *ids, char note[64], struct model_error *error);

// Reads the text, each context behind the token that begins a text, to its end or until Ctrl-C: *n_read contexts, at least one.
// After a message if it fails.
int cli_contexts_each(struct workbench *m, const struct cli_contexts *o, const struct vocab *vocab, cli_context_read each,
    void *user, int64_t *n_read);
