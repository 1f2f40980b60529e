// SPDX-License-Identifier: MIT
// grammar.h: texts that a model may write, as a grammar in GBNF, and the tokens that such a text may go on with.
//
//     text --grammar_new--> rules over bytes --guide_new--> a guide over a vocabulary --guide_mask, guide_accept--> text
//
// A character class becomes the byte sequences of its characters' UTF-8, so that nothing below knows characters, and tokens that
// hold parts of a character need no care of their own. Grammars come from anywhere: reading one takes time and memory
// proportional to its size, and a guide has limits.
#pragma once

#include "model/vocab.h"

enum grammar_kind { GRAMMAR_END, GRAMMAR_BYTE, GRAMMAR_RULE, GRAMMAR_REPEAT };

struct grammar_elem {
    uint8_t kind;      // of grammar_kind
    uint8_t low, high; // of GRAMMAR_BYTE
    uint32_t rule;     // of GRAMMAR_RULE; of GRAMMAR_REPEAT the index of the repetition
};

#define GRAMMAR_NONE UINT32_MAX

struct grammar_repeat {
    uint32_t rule;
    uint32_t least; // 0 if the rule may be empty
    uint32_t most;  // GRAMMAR_NONE: any number; never 0
};

struct grammar_alt {
    uint32_t at;   // its first element; they end with GRAMMAR_END
    uint32_t next; // of the same rule, or GRAMMAR_NONE
};

struct grammar_rule {
    char *name; // NULL: made on the way
    size_t name_size;
    uint32_t first; // alternative, GRAMMAR_NONE: none yet
    // grammar_check.c
    bool is_empty;      // it matches the empty text
    uint32_t component; // rules that begin with each other have the same one; a rule's is greater than those it begins with
};

struct grammar {
    struct grammar_elem *elems;
    struct grammar_repeat *repeats;
    struct grammar_alt *alts;
    struct grammar_rule *rules;
    size_t n_elems, n_repeats, n_alts, n_rules;
    size_t elems_room, repeats_room, alts_room, rules_room;
    uint32_t root;
    uint32_t n_components;
    uint32_t *members;        // [n_rules] by component
    uint32_t *first_member;   // [n_components + 1] in members
    ggml_abort_callback stop; // asked during all work with the grammar; NULL: nothing stops it
    void *stop_data;
    size_t max_stack_size; // bytes that the stacks of a guide may take: GRAMMAR_STACK_SIZE
    uint64_t max_steps;    // of a guide for one token: GRAMMAR_STEPS
};

#define GRAMMAR_STACK_SIZE ((size_t) 1 << 30)
#define GRAMMAR_STEPS ((uint64_t) 1 << 31)

// grammar_parse.c: NULL with an error that has the line. While stop returns true the work ends with an error; it may be NULL.
struct grammar *grammar_new(const char *text, size_t size, ggml_abort_callback stop, void *stop_data, struct model_error *error);
void grammar_free(struct grammar *grammar);
// False with an error if the program is to stop.
bool grammar_go_on(const struct grammar *grammar, struct model_error *error);
// grammar_check.c: that no rule begins with itself, and what rules have of it.
bool grammar_check(struct grammar *grammar, struct model_error *error);

// Whether the rule of a call may be absent, `count` times after the first.
static inline bool grammar_can_skip(const struct grammar *g, const struct grammar_elem *e, uint32_t count) {
    if (e->kind == GRAMMAR_REPEAT) {
        return count >= g->repeats[e->rule].least;
    }
    return g->rules[e->rule].is_empty;
}

static inline uint32_t grammar_callee(const struct grammar *g, const struct grammar_elem *e) {
    return e->kind == GRAMMAR_REPEAT ? g->repeats[e->rule].rule : e->rule;
}

// Whether nothing of the alternative follows the call that comes after `count` others.
static inline bool grammar_is_tail(const struct grammar *g, const struct grammar_elem *e, uint32_t count) {
    return e[1].kind == GRAMMAR_END && (e->kind == GRAMMAR_RULE || g->repeats[e->rule].most == count + 1);
}

// ---- guide.c ----

struct guide;
// The vocabulary and the grammar must live as long. NULL with an error.
struct guide *guide_new(const struct grammar *grammar, const struct vocab *vocab, struct model_error *error);
void guide_free(struct guide *guide);
bool guide_reset(struct guide *guide, struct model_error *error); // to the beginning of a text
// Logits of tokens that no text of the grammar has here become -infinity; those that end a text stay where one may end. How many
// tokens are left, 0: the text can only end, and the vocabulary has no token for that; -1 with an error: out of memory, beyond a
// limit of the grammar, or stopped.
int64_t guide_mask(struct guide *guide, float *logits, int64_t n, struct model_error *error);
// Tells it what was chosen. False with an error as above.
bool guide_accept(struct guide *guide, int32_t token, struct model_error *error);
