// SPDX-License-Identifier: MIT
// engine.h: many requests on one model. One thread computes steps; in each step, every running sequence computes one token or one chunk
// of its prompt. All memory is allocated by engine_new. A request is admitted only if it fits beside all admitted requests until its last
// token (src/admit).
//
// All functions are thread-safe. The engine never calls a client's function with a lock held.
#pragma once

#include "generate/generate.h"
#include "model/model.h"

struct engine;

struct engine_params {
    struct model *model; // placed
    const struct model_devices *devices;
    const struct vocab *vocab;
    int64_t n_ctx;         // largest number of tokens of one sequence, prompt and answer
    int64_t n_pool;        // tokens that the cache holds for all sequences
    int64_t n_page;        // tokens per page
    int64_t n_batch;       // tokens per step, at most
    int n_running;         // sequences at once, at most
    int n_waiting;         // requests that wait, at most
    int64_t wait_us;       // longest time that a request waits
    bool is_deterministic; // results do not depend on the other sequences of a step
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

// A generated token. `top` has the most probable tokens, best first.
struct engine_logprob {
    int32_t token;
    float log;
    const struct logprob *top; // [n_top], generate.h
    int n_top;
};

// One sequence. A client that wants n answers submits n requests. All pointers are borrowed until engine_submit returns; text and tokens
// are copied to memory that engine_new allocated.
struct engine_request {
    const int32_t *tokens; // prompt
    int64_t n_tokens;
    int64_t n_max; // largest number of new tokens
    struct engine_sampling sampling;
    const char *const *stops;
    int n_stops;
    struct text_guide guide; // restricts the tokens; .guide NULL: none. If engine_submit returns ENGINE_OK, the engine owns it
                             // and calls text_guide_close; otherwise the caller keeps it.
    int n_logprobs;          // alternatives per token; -1: no log probabilities
    bool is_embedding;       // only the mean of the final hidden states is wanted
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
    ENGINE_FAILED, // the error text has the cause
};

struct engine_ticket; // one request; the client frees it with engine_release

enum engine_status engine_submit(
    struct engine *e, struct engine_request *r, struct engine_ticket **out, int *retry_s, struct model_error *error);

enum engine_end {
    ENGINE_RUNNING,
    ENGINE_STOP,
    ENGINE_LENGTH,
    ENGINE_CANCELLED,
    ENGINE_TIMEOUT /* waited too long */,
    ENGINE_ERROR
};

// What is new since the last call.
struct engine_piece {
    const char *text; // complete characters; valid until the next call with this ticket
    size_t n_text;
    const struct engine_logprob *logprobs; // of the new tokens
    int n_logprobs;
    const float *embedding;             // n_embd floats, at the end of an embedding request
    int64_t n_prompt, n_cached, n_made; // tokens so far; n_cached: prompt tokens that another request had computed
    enum engine_end end;
    bool is_waiting;   // not admitted yet
    const char *error; // ENGINE_ERROR
};

// timeout_us 0: returns at once.
void engine_read(struct engine_ticket *t, int64_t timeout_us, struct engine_piece *out);
void engine_cancel(struct engine_ticket *t);  // frees its pages at the next step
void engine_release(struct engine_ticket *t); // cancels if it still runs

struct engine_stats {
    int64_t n_pool, n_used, n_promised_peak; // tokens: the pool, used now, largest promised for a future step
    int n_running, n_waiting;
    int64_t n_steps, n_prompt_tokens, n_made_tokens, n_cached_tokens;
    int64_t n_requests, n_done, n_refused, n_cancelled, n_failed;
    char why_waiting[160]; // why the first waiting request waits; "": none waits
    // memory, bytes per kind: weights, cache, compute, work, engine
    size_t weights, cache, compute, work, own;
};
void engine_stats(struct engine *e, struct engine_stats *out);

struct engine *engine_new(const struct engine_params *params, struct model_error *error);
// New requests get ENGINE_CLOSED. Running requests may finish within drain_us; then they end with ENGINE_CANCELLED.
void engine_close(struct engine *e, int64_t drain_us);
void engine_free(struct engine *e);
