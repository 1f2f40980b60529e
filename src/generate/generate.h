// SPDX-License-Identifier: MIT
// generate.h: what a model makes of a text: the next tokens (generate.c), held to a
// grammar (schema.c) and with their probabilities (logprobs.c); or a measurement over a long text, context by context (generate.c).
//
// Nothing here knows a command line. A function that can fail returns false or NULL and says in a model_error what and why. Long
// work asks a callback of the caller's whether to stop.
#pragma once

#include "base/json.h"
#include "model/grammar.h"

// ---- the grammar that a text is held to ----

// A grammar over a vocabulary.
struct text_guide {
    struct grammar *grammar;
    struct guide *guide; // NULL: any text is allowed
};

// A grammar as its file has it.
struct guide_source {
    const char *text;
    size_t size;
    const char *name;         // of the file, for errors
    bool is_schema;           // a JSON schema, else GBNF
    ggml_abort_callback stop; // opening fails once it returns true, and so does all use of the grammar; NULL: nothing stops it
    void *stop_data;
};

bool text_guide_open(
    struct text_guide *guide, const struct guide_source *source, const struct vocab *vocab, struct model_error *error);
void text_guide_close(struct text_guide *guide);

// schema.c: a JSON schema as a grammar in GBNF, to be freed by berth_free. Takes time and memory proportional to its size.
char *schema_to_grammar(const struct guide_source *source, struct model_error *error);

// ---- log probabilities of the tokens that were chosen (logprobs.c) ----

struct logprob {
    int32_t token;
    float log; // natural logarithm of its probability, before a grammar, penalties or sampling change it
};

struct logprobs {
    int64_t n_top;         // likeliest tokens that are kept of each choice
    struct logprob *items; // [n * (n_top + 1)] what was chosen, then the likeliest; token -1: the vocabulary has no more
    size_t n, room;
};

// Reads the logits of a choice; false: out of memory.
bool logprobs_look(struct logprobs *l, const float *logits, int64_t n);
// The token that was chosen by them.
void logprobs_choose(struct logprobs *l, const float *logits, int32_t token);
// No token was chosen: removes the last look. NULL is taken.
void logprobs_drop(struct logprobs *l);
// Writes a JSON list.
void logprobs_write(struct berth_json_writer *w, const char *key, const struct logprobs *l, const struct vocab *vocab);
void logprobs_fini(struct logprobs *l);

// ---- the text of tokens as they come (generate.c) ----

// Writes whole characters, and nothing from a stop word on, even where its bytes come in several tokens.
struct text_writer {
    const struct vocab *vocab;
    const char *const *stops; // [n_stops] the caller's
    int n_stops;
    FILE *file;
    FILE *copy;       // gets the same text, control characters included; NULL: none
    bool is_terminal; // control characters become '?' in file
    struct utf8_stream stream;
    char *piece, *chars;
    size_t cap;
    char *held; // [n_held] may be the beginning of a stop word, not written yet
    size_t n_held, max_stop;
    bool is_over; // a stop word came
};

// False: out of memory; text_writer_fini also then.
bool text_writer_init(struct text_writer *w, const struct vocab *vocab, const char *const *stops, int n_stops, FILE *file);
// False: writing failed.
bool text_writer_put(struct text_writer *w, int32_t token);
// Writes what is held: no stop word became of it.
bool text_writer_end(struct text_writer *w);
void text_writer_fini(struct text_writer *w);

// All but session, writer and sampler may be NULL.
struct generator {
    struct session *session;
    struct text_writer *writer;
    struct sampler *sampler;
    struct guide *guide;   // the tokens that are allowed
    struct logprobs *logs; // gets the log probabilities
    ggml_abort_callback stop;
    void *stop_data;
};

struct generate_result {
    int64_t n_made;
    int64_t n_decoded; // tokens of n_made that were decoded in made_us
    int64_t made_us;
    int32_t last;      // the last token that was chosen
    bool is_last_read; // it is in the cache
};

// Appends tokens to what the session has read, until the model ends the text, n_max tokens are made (-1: no limit), the context is
// full, a stop word comes, the grammar allows no token, or stop returns true. Adds to *result.
bool text_generate(const struct generator *g, int64_t n_max, struct generate_result *result, struct model_error *error);

// ---- a long text, context by context (generate.c) ----

struct context_reader {
    struct session *session; // a context has params.n_ctx tokens; params.n_batch is the same
    const struct vocab *vocab;
    const char *text;
    size_t size;
    const char *name; // of the text, for errors
    int64_t n_max;    // contexts, 0: all
    // Called after context i of n, whose tokens are ids; false ends reading without counting it, with an error if there is one.
    bool (*each)(void *user, const int32_t *ids, int64_t i, int64_t n, struct model_error *error);
    void *user;
    ggml_abort_callback stop; // asked before each context; NULL: nothing stops it
    void *stop_data;
};

// Reads whole contexts, the first token of each replaced by the one that begins a text: *n_read of them, at least one. True also
// if it was stopped after the first one.
bool contexts_read(const struct context_reader *r, int64_t *n_read, struct model_error *error);
