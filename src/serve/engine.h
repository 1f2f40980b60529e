// SPDX-License-Identifier: MIT
// engine.h: many requests on one model. One thread computes steps. In each step, every running sequence computes one token or one
// chunk of its prompt. engine_new allocates all memory. A request is admitted only if it fits next to all admitted requests until
// its last token (src/admit). So a running request never waits, is never evicted, and never fails for lack of memory.
//
// All functions are thread-safe. Calls with the same ticket must not run at the same time, except engine_cancel. The engine never
// calls a client's function with a lock held.
#pragma once

#include "generate/generate.h"
#include "model/model.h"
#include "serve/latency.h"

struct engine;

struct engine_params {
    const struct model *model; // placed
    const struct model_devices *devices;
    const struct vocab *vocab;
    int64_t n_ctx;                   // largest number of tokens of one sequence, prompt and answer
    int64_t n_pool;                  // tokens that the cache holds for all sequences; rounded down to complete pages
    int64_t n_page;                  // tokens per page
    int64_t n_batch;                 // tokens per step, at most
    int n_running;                   // sequences at once, at most
    int n_waiting;                   // requests that wait, at most
    int64_t wait_us;                 // longest time that a request waits; 0: no limit
    bool is_deterministic;           // results do not depend on the other sequences of a step. Only the CPU promises this
    enum ggml_type cache_k, cache_v; // types of keys and values, if has_cache_type; otherwise f16
    bool has_cache_type;
};

// Settings of the sampler, as in struct sampler (model.h).
struct engine_sampling {
    float temperature;                 // 0: always the most probable token
    int64_t top_k;                     // 0: no limit
    float top_p, min_p;                // 1, 0: no limit
    float repeat, frequency, presence; // penalties; 1, 0, 0: none
    const struct sample_bias *biases;  // copied by engine_submit; at most ENGINE_MAX_BIASES
    int64_t n_biases;
    uint64_t seed;
};
#define ENGINE_MAX_BIASES 256
#define ENGINE_MAX_STOPS 16
#define ENGINE_MAX_STOP_SIZE 128 // bytes of a stop text
#define ENGINE_MAX_LOGPROBS 20   // alternatives per token
#define ENGINE_MAX_ITEMS 65536   // log probabilities of a request: its tokens times (alternatives + 1)

// A generated token. `top` has the most probable tokens, best first.
struct engine_logprob {
    int32_t token;
    float log;
    const struct logprob *top; // [n_top], generate.h
    int n_top;
};

// One sequence. A client that wants n answers submits n requests. All pointers are borrowed until engine_submit returns.
struct engine_request {
    const int32_t *tokens; // prompt
    int64_t n_tokens;
    int64_t n_max; // largest number of new tokens
    struct engine_sampling sampling;
    const char *const *stops;
    int n_stops;
    // Restricts the tokens; .guide NULL: none. If engine_submit returns ENGINE_OK, the engine owns it and calls text_guide_close.
    // Otherwise the caller keeps it.
    struct text_guide guide;
    int n_logprobs;    // alternatives per token; -1: no log probabilities
    bool is_embedding; // returns only the mean of the final hidden states
    bool is_retried;   // the client repeats it after ENGINE_FULL, which then does not count as a refusal
    // Called by the engine's thread when engine_read may have something new. Must not block. NULL: none. It may still be called
    // once while or after engine_release runs, so `user` must live as long as the engine.
    void (*wake)(void *user);
    void *user;
};

enum engine_status {
    ENGINE_OK,
    ENGINE_FULL,   // the queue is full: try again after retry_s
    ENGINE_NEVER,  // can never fit: the error text has the numbers
    ENGINE_CLOSED, // the engine is shutting down
    ENGINE_FAILED, // the request is invalid: the error text has the cause
};

struct engine_ticket; // one request; the client frees it with engine_release

// retry_s may be NULL.
enum engine_status engine_submit(
    struct engine *e, const struct engine_request *r, struct engine_ticket **out, int *retry_s, struct model_error *error);

enum engine_end {
    ENGINE_RUNNING,   // no end yet; waiting included
    ENGINE_STOP,      // the model, a stop text or the grammar ended the text
    ENGINE_LENGTH,    // n_max tokens were generated
    ENGINE_CANCELLED, // by engine_cancel or engine_close
    ENGINE_TIMEOUT,   // waited longer than wait_us
    ENGINE_ERROR,
};

// What is new since the last call.
struct engine_piece {
    const char *text; // complete characters; valid until the next call with this ticket
    size_t n_text;
    const struct engine_logprob *logprobs; // of the new tokens
    int n_logprobs;
    const float *embedding;             // n_embd floats, at the end of an embedding request; valid until engine_release
    int64_t n_prompt, n_cached, n_made; // tokens so far; n_cached: prompt tokens that another request had computed
    enum engine_end end;                // not ENGINE_RUNNING: this piece is the last one
    bool is_waiting;                    // not admitted yet
    bool has_more;                      // more text is there
    const char *error;                  // ENGINE_ERROR: the cause; otherwise NULL
};

// Waits until there is something new, or timeout_us have passed; 0: returns at once. A piece has at most some thousand bytes. If
// more text is there, the engine calls `wake` again.
void engine_read(struct engine_ticket *t, int64_t timeout_us, struct engine_piece *out);
void engine_cancel(struct engine_ticket *t);  // frees its pages before the next step
void engine_release(struct engine_ticket *t); // cancels if it still runs. The ticket is invalid afterwards. NULL: nothing to do

struct engine_stats {
    int64_t n_pool, n_used, n_promised_peak; // tokens: the pool, used now, largest promised for a future step
    int n_running, n_waiting;
    int64_t n_steps, n_prompt_tokens, n_made_tokens, n_cached_tokens;
    int64_t n_requests, n_done, n_refused, n_cancelled, n_failed;
    struct latency first, next; // time to the first token of a request, since its submission; time between two of its tokens
    char why_waiting[160];      // why the first waiting request waits; "": none waits
    const char *waiting_kind;   // what it waits for: "pages", "running" or "prefix"; NULL: none waits
    // Memory, bytes per kind; `own`: tickets, pages and admission.
    size_t weights, cache, compute, work, own;
};
void engine_stats(struct engine *e, struct engine_stats *out);

// Computes the memory fields of *out without allocating on devices. The model may be placed with plan_only.
bool engine_plan(const struct engine_params *params, struct engine_stats *out, struct model_error *error);

// NULL: *error holds the cause.
struct engine *engine_new(const struct engine_params *params, struct model_error *error);
// New requests get ENGINE_CLOSED. Waiting requests end with ENGINE_CANCELLED. Running requests may finish within drain_us; then they
// end with ENGINE_CANCELLED. Returns when the engine's thread has ended. Tickets can still be read.
void engine_close(struct engine *e, int64_t drain_us);
// All tickets must be released. e may be NULL.
void engine_free(struct engine *e);
