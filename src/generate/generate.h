// SPDX-License-Identifier: MIT
// generate.h: generates the next tokens of a text (generate.c, filter.c). The tokens can be restricted to a grammar (schema.c), and their
// probabilities can be collected (logprobs.c). generate.c also processes a long text context by context. A function that fails
// returns false or NULL and writes the cause into a model_error.
#pragma once

#include "base/json.h"
#include "model/grammar.h"

// ---- grammars ----

struct text_guide {
    struct grammar *grammar;
    struct guide *guide; // NULL: every text is allowed
};

struct guide_source {
    const char *text;
    size_t size;
    const char *name;         // of the file, for error messages
    bool is_schema;           // a JSON schema; false: GBNF
    ggml_abort_callback stop; // if it returns true, opening and every use of the grammar fail; NULL: not called
    void *stop_data;
};

bool text_guide_open(
    struct text_guide *guide, const struct guide_source *source, const struct vocab *vocab, struct model_error *error);
void text_guide_close(struct text_guide *guide);

// schema.c: converts a JSON schema to GBNF. The caller frees the text with berth_free. Time and memory are proportional to the
// size of the schema.
char *schema_to_grammar(const struct guide_source *source, struct model_error *error);

// ---- log probabilities of the chosen tokens (logprobs.c) ----

struct logprob {
    int32_t token;
    float log; // natural logarithm of the probability, before temperature, grammar and sampler change it
};

struct logprobs {
    int64_t n_top; // number of most probable tokens kept per choice
    // [n * (n_top + 1)] for each choice: the chosen token, then the most probable tokens. token -1: the vocabulary has no further
    // tokens.
    struct logprob *items;
    size_t n, room; // number of choices; capacity
};

// Appends an entry with the most probable tokens. False: out of memory.
bool logprobs_compute(struct logprobs *l, const float *logits, int64_t n);
// Stores the token that was chosen after logprobs_compute.
void logprobs_choose(struct logprobs *l, const float *logits, int32_t token);
// Removes the entry of the last logprobs_compute if no token was chosen. l may be NULL.
void logprobs_drop(struct logprobs *l);
// Writes a JSON array.
void logprobs_write(struct berth_json_writer *w, const char *key, const struct logprobs *l, const struct vocab *vocab);
void logprobs_fini(struct logprobs *l);

// ---- choosing a token (generate.c) ----

// How a token is chosen. guide and logs may be NULL.
struct token_chooser {
    struct sampler *sampler;
    struct guide *guide;   // restricts the tokens
    struct logprobs *logs; // collects log probabilities
};

// TOKEN_FAILED: the cause is in *error. TOKEN_NONE: the grammar allows no token.
enum { TOKEN_FAILED = -1, TOKEN_NONE = -2 };

// Chooses the next token by n logits, which a guide changes.
int32_t token_choose(const struct token_chooser *chooser, float *logits, int64_t n, struct model_error *error);

// ---- text of the generated tokens ----

// Converts tokens to complete characters, up to the first stop word (filter.c). A stop word may span several tokens.
struct text_filter {
    const struct vocab *vocab;
    const char *const *stops; // [n_stops] owned by the caller
    int n_stops;
    struct utf8_stream stream;
    char *piece; // bytes of a token
    char *held;  // [n_held] bytes that may be the beginning of a stop word. The last call passed on the first n_passed of them
    size_t n_held, n_passed;
    bool is_over; // a stop word was found
};

// Bytes of memory for a filter with these stop words, or with stop words of at most max_stop bytes.
size_t text_filter_size(const struct vocab *vocab, const char *const *stops, int n_stops);
size_t text_filter_size_for(const struct vocab *vocab, size_t max_stop);
// The memory must live as long as the filter.
void text_filter_init(struct text_filter *f, const struct vocab *vocab, const char *const *stops, int n_stops, char *memory);
// Adds a token. Returns the number of bytes that can be written now; *text is valid until the next call.
size_t text_filter_put(struct text_filter *f, int32_t token, char **text);
// The text ends: returns the remaining bytes.
size_t text_filter_end(struct text_filter *f, char **text);

// Writes the text of tokens to a file, or passes it to a function (generate.c).
struct text_writer {
    const struct vocab *vocab;
    FILE *file;
    bool (*put)(const char *text, size_t size, void *user); // gets the text instead of `file`; NULL: none
    void *put_user;
    FILE *copy;       // gets the same text, always with its control characters; NULL: none
    bool is_terminal; // `file` is a terminal, so '?' replaces control characters in the text written to it
    struct text_filter filter;
    char *memory; // of the filter; NULL: text_writer_init failed
};

// False: out of memory. text_writer_fini must be called in any case. file may be NULL if the caller sets `put`.
bool text_writer_init(struct text_writer *w, const struct vocab *vocab, const char *const *stops, int n_stops, FILE *file);
// False: writing failed.
bool text_writer_put(struct text_writer *w, int32_t token);
// Writes the held bytes.
bool text_writer_end(struct text_writer *w);
void text_writer_fini(struct text_writer *w);

// The inputs of text_generate. Every field except session, writer and sampler may be NULL.
struct generator {
    struct session *session;
    struct text_writer *writer;
    struct sampler *sampler;
    struct guide *guide;   // restricts the tokens
    struct logprobs *logs; // collects log probabilities
    ggml_abort_callback stop;
    void *stop_data;
};

// Appends the tokens of a prompt to `tokens`, and adds them to the history that the sampler uses for its penalties. Fails if the
// prompt has no tokens or more tokens than the context has positions.
bool text_prompt_encode(
    const struct generator *g, const char *prompt, size_t size, struct token_list *tokens, struct model_error *error);

struct generate_result {
    int64_t n_made;    // generated tokens, without the token that ends the text
    int64_t n_decoded; // generated tokens that the model has processed
    int64_t made_us;   // time of all generated tokens
    int32_t last;      // the last chosen token
    bool is_last_read; // the model has processed the last token, so the token is in the cache
};

// Continues the text in the session. Adds to *result. Stops
// - if the model ends the text,
// - after n_max tokens (-1: no limit),
// - if the context is full,
// - at a stop word,
// - if the grammar allows no token,
// - if g->stop returns true.
bool text_generate(const struct generator *g, int64_t n_max, struct generate_result *result, struct model_error *error);

// ---- embeddings (embed.c) ----

// The embedding of a text: the mean of the outputs of the model's last norm over all tokens.
struct text_embedder {
    struct session *session; // with is_embedding
    const struct vocab *vocab;
    bool is_last; // the output of the last token instead of the mean
    bool is_raw;  // the embedding is not scaled to length 1
};

// Stores the n_embd values of the embedding. *n_tokens: tokens of the text. The session is reset first.
bool text_embed(
    const struct text_embedder *e, const char *text, size_t size, float *embedding, int64_t *n_tokens, struct model_error *error);

// ---- long texts, context by context (generate.c) ----

struct context_reader {
    struct session *session; // a context has session->params.n_ctx tokens; n_batch has the same value
    const struct vocab *vocab;
    const char *text;
    size_t size;
    const char *name; // of the text, for error messages
    int64_t n_max;    // largest number of contexts; 0: all
    // Called with the tokens of context i of n after the context was processed. If it returns false, contexts_read stops and does
    // not count this context. If it also sets *error, contexts_read fails.
    bool (*each)(void *user, const int32_t *ids, int64_t i, int64_t n, struct model_error *error);
    void *user;
    ggml_abort_callback stop; // polled before each context; NULL: never
    void *stop_data;
};

// Processes the complete contexts of the text; an incomplete context at the end is left out. If the vocabulary adds a BOS token,
// it replaces the first token of each context. *n_read: number of processed contexts. If r->stop ends the call, the result is
// true if at least one context was processed.
bool contexts_read(const struct context_reader *r, int64_t *n_read, struct model_error *error);
