// SPDX-License-Identifier: MIT
// grammar.h: texts that a model may write, as a grammar in GBNF, and the tokens that such a text may go on with.
//
//     text --grammar_new--> rules over bytes --guide_new--> a guide over a vocabulary --guide_mask, guide_accept--> text
//
// A character class becomes the byte sequences of its characters' UTF-8, so that nothing below knows characters, and tokens that
// hold parts of a character need no care of their own.
#pragma once

#include "model/vocab.h"

enum grammar_kind { GRAMMAR_END, GRAMMAR_BYTE, GRAMMAR_RULE };

struct grammar_elem {
    enum grammar_kind kind;
    uint8_t low, high; // of GRAMMAR_BYTE
    uint32_t rule;     // of GRAMMAR_RULE
};

#define GRAMMAR_NONE UINT32_MAX

struct grammar_alt {
    uint32_t at;   // its first element; they end with GRAMMAR_END
    uint32_t next; // of the same rule, or GRAMMAR_NONE
};

struct grammar_rule {
    char *name;     // NULL: made on the way
    uint32_t first; // alternative, GRAMMAR_NONE: none yet
};

struct grammar {
    struct grammar_elem *elems;
    struct grammar_alt *alts;
    struct grammar_rule *rules;
    size_t n_elems, n_alts, n_rules;
    size_t elems_room, alts_room, rules_room;
    uint32_t root;
};

// grammar_parse.c: NULL with an error that has the line.
struct grammar *grammar_new(const char *text, size_t size, struct model_error *error);
void grammar_free(struct grammar *grammar);
// grammar_check.c: that no rule begins with itself.
bool grammar_check(const struct grammar *grammar, struct model_error *error);

// ---- guide.c ----

struct guide;
// The vocabulary and the grammar must live as long. NULL: out of memory.
struct guide *guide_new(const struct grammar *grammar, const struct vocab *vocab, struct model_error *error);
void guide_free(struct guide *guide);
bool guide_reset(struct guide *guide); // to the beginning of a text; false: out of memory
// Logits of tokens that no text of the grammar has here become -infinity; those that end a text stay where one may end. How many
// tokens are left, 0: the text can only end, and the vocabulary has no token for that; -1: out of memory.
int64_t guide_mask(struct guide *guide, float *logits, int64_t n);
// Tells it what was chosen. False: out of memory.
bool guide_accept(struct guide *guide, int32_t token);
