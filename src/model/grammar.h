// SPDX-License-Identifier: MIT
// grammar.h: restricts generated text to a grammar in GBNF: parses the grammar and computes the tokens that may follow.
//
//     text --grammar_new--> rules over bytes --guide_new--> a guide over a vocabulary --guide_mask, guide_accept--> text
//
// A guide is the state of a text that follows the grammar. It computes which tokens may follow the text.
// A character class becomes the UTF-8 byte sequences of its characters, so a token may end within a character. Grammars are
// untrusted: parsing takes time and memory proportional to the size of the grammar, and the memory and the steps of a guide are
// limited.
//
// A rule has alternatives. An alternative is a sequence of elements. GRAMMAR_RULE and GRAMMAR_REPEAT elements call a rule.
#pragma once

#include "model/vocab.h"

enum grammar_kind { GRAMMAR_END, GRAMMAR_BYTE, GRAMMAR_RULE, GRAMMAR_REPEAT };

struct grammar_elem {
    uint8_t kind;      // grammar_kind
    uint8_t low, high; // GRAMMAR_BYTE: range of bytes
    uint32_t rule;     // GRAMMAR_RULE: the rule; GRAMMAR_REPEAT: index of the repetition
};

#define GRAMMAR_NONE UINT32_MAX

struct grammar_repeat {
    uint32_t rule;
    uint32_t least; // minimum count; 0 if the rule may be empty
    uint32_t most;  // maximum count, never 0; GRAMMAR_NONE: unlimited
};

struct grammar_alt {
    uint32_t at;   // first element; the elements end with GRAMMAR_END
    uint32_t next; // next alternative of the same rule; GRAMMAR_NONE: none
};

struct grammar_rule {
    char *name; // NULL: a rule that the parser created
    size_t name_size;
    uint32_t first; // first alternative; GRAMMAR_NONE: none yet
    // Set by grammar_check.c:
    bool can_be_empty; // the rule matches the empty text
    // Number of the rule's strongly connected component in the relation "rule A begins with a call of rule B". If this rule
    // begins with a call of a rule of another component, that component has a smaller number.
    uint32_t component;
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
    uint32_t *members;        // [n_rules] rules, sorted by component
    uint32_t *first_member;   // [n_components + 1] start of each component in members
    ggml_abort_callback stop; // polled while the grammar is parsed or used; true stops the work; NULL: never
    void *stop_data;
    size_t max_stack_size; // bytes, limit for the stacks of a guide, and for its arrays; default GRAMMAR_STACK_SIZE
    uint64_t max_steps;    // limit for the steps of a guide per token; default GRAMMAR_STEPS
};

#define GRAMMAR_STACK_SIZE ((size_t) 1 << 30)
#define GRAMMAR_STEPS ((uint64_t) 1 << 31)

// grammar_parse.c: NULL: *error holds the line and the cause. If stop returns true, parsing fails. stop may be NULL.
struct grammar *grammar_new(const char *text, size_t size, ggml_abort_callback stop, void *stop_data, struct model_error *error);
void grammar_free(struct grammar *grammar);
size_t grammar_size(const struct grammar *grammar); // bytes
// False with an error: grammar->stop requests a stop.
bool grammar_poll(const struct grammar *grammar, struct model_error *error);
// grammar_check.c: refuses rules that begin with themselves, and sets can_be_empty and component of every rule.
bool grammar_check(struct grammar *grammar, struct model_error *error);

// Returns whether the text may continue after the call e without another match of its rule. The rule was matched `count` times.
static inline bool grammar_can_skip(const struct grammar *g, const struct grammar_elem *e, uint32_t count) {
    if (e->kind == GRAMMAR_REPEAT) {
        return count >= g->repeats[e->rule].least;
    }
    return g->rules[e->rule].can_be_empty;
}

static inline uint32_t grammar_callee(const struct grammar *g, const struct grammar_elem *e) {
    return e->kind == GRAMMAR_REPEAT ? g->repeats[e->rule].rule : e->rule;
}

// Returns whether the alternative ends after the next match of the call e, whose rule was matched `count` times before.
static inline bool grammar_is_tail(const struct grammar *g, const struct grammar_elem *e, uint32_t count) {
    return e[1].kind == GRAMMAR_END && (e->kind == GRAMMAR_RULE || g->repeats[e->rule].most == count + 1);
}

// ---- guide.c ----

struct guide;
// The vocabulary and the grammar must live as long as the guide. NULL: *error holds the cause.
struct guide *guide_new(const struct grammar *grammar, const struct vocab *vocab, struct model_error *error);
void guide_free(struct guide *u);
bool guide_reset(struct guide *guide, struct model_error *error); // to the beginning of a text
// Sets the logits of all tokens that may not follow to -infinity. If the text may end, tokens that end a text are allowed.
// Returns the number of allowed tokens. 0: the text must end, and the vocabulary has no token that ends a text. -1 with an error:
// out of memory, a limit of the grammar is exceeded, or the work was stopped.
int64_t guide_mask(struct guide *u, float *logits, int64_t n, struct model_error *error);
// False with an error: see guide_mask.
bool guide_accept(struct guide *guide, int32_t token, struct model_error *error);
