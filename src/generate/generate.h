// SPDX-License-Identifier: MIT
// generate.h: the text of tokens as they come: whole characters, nothing that commands a terminal, and an end before a stop word.
#pragma once

#include "generate/logprobs.h"
#include "generate/sampling.h"
#include "model/vocab.h"

struct speaker {
    const struct vocab *vocab;
    struct utf8_stream stream;
    char *piece, *chars;
    size_t cap;
    FILE *file;
    FILE *copy; // gets all of it too, untamed; NULL: nobody
    bool is_terminal;
    const struct cli_sampling *sampling; // its stop words
    char *held;                          // what may be the beginning of a stop word, not written yet
    size_t n_held, max_stop;
    bool is_over;          // a stop word came
    struct guide *guide;   // what may be written; NULL: anything
    struct logprobs *logs; // gets how likely it was; NULL: nobody
};

// False: out of memory; speaker_fini also then.
bool speaker_init(struct speaker *speaker, const struct vocab *vocab, const struct cli_sampling *sampling, FILE *file);
// False: writing failed.
bool speaker_put(struct speaker *speaker, int32_t token);
// What is held is written: no stop word became of it.
bool speaker_end(struct speaker *speaker);
void speaker_fini(struct speaker *speaker);

// What was made, for the line at the end.
struct spoken {
    int64_t n_made;
    int64_t n_decoded; // of those made, the ones that were read again: what made_us was spent on
    int64_t made_us;
    int32_t last;      // the last token that was chosen
    bool is_last_read; // it is in the cache
};

// The value of --predict: tokens, or -1 for no limit. CLI_OK, or CLI_USAGE after a message.
int cli_parse_predict(const char *command, const char *text, int64_t *n);

// Lets the model go on after what it has read, until it ends, n_most tokens are made (-1: any number), its context is full, a
// stop word comes, or Ctrl-C.
bool speak(struct session *session, struct speaker *speaker, struct sampler *sampler, int64_t n_most, struct spoken *spoken,
    struct model_error *error);
