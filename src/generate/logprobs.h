// SPDX-License-Identifier: MIT
// logprobs.h: how likely each token was that a model chose, and which others were.
#pragma once

#include "model/vocab.h"

struct logprob {
    int32_t token;
    float log; // natural logarithm of its probability, before anything is left out or made less likely
};

struct logprobs {
    int64_t n_top;         // of the likeliest that are kept of each choice
    struct logprob *items; // [n * (n_top + 1)] what was chosen, then the likeliest
    size_t n, room;
};

// Looks at the logits of a choice; false: out of memory.
bool logprobs_look(struct logprobs *l, const float *logits, int64_t n);
// Which token it was that was chosen.
void logprobs_choose(struct logprobs *l, const float *logits, int32_t token);
// There was no choice: the last look counts for nothing. NULL is taken.
void logprobs_drop(struct logprobs *l);
// A JSON list.
void logprobs_write(const struct logprobs *l, const struct vocab *vocab, FILE *file);
void logprobs_fini(struct logprobs *l);
