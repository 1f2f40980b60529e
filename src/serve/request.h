// SPDX-License-Identifier: MIT
// request.h: a request of OpenAI's API on the engine, without HTTP. A service holds what all requests share. One thread calls all
// functions here; the engine's thread only calls service_wake.
//
//     request_new --submits prompts--> engine --service_wake--> request_poll, until REQUEST_DONE or REQUEST_FAILED
//
// A request with several prompts or answers submits at most REQUEST_WINDOW of them at a time.
#pragma once

#include "serve/api.h"

#include <stdatomic.h>

#define REQUEST_WINDOW API_MAX_CHOICES

// Limits of a grammar that a request brings. The steps bound the time that one token takes in the engine's thread: a step is a byte of
// a token at a place of the grammar, and usual schemas need a few per token of the vocabulary.
#define SERVICE_STACKS_SIZE ((size_t) 1 << 20) // bytes of the stacks of a grammar, and of the arrays of its guide
#define SERVICE_GRAMMAR_RATIO 64               // bytes of a grammar per byte of the largest schema
#define SERVICE_STEPS_PER_TOKEN 256
#define SERVICE_STEPS_LEAST ((uint64_t) 1 << 20)

struct service_params {
    struct engine *engine;
    const struct vocab *vocab;
    const struct chat_template *chat; // NULL: the model has none
    const char *model;                // name under which the model is served
    int64_t n_ctx, n_embd;
    int n_running, n_waiting; // limits of the engine, for metrics
    int n_requests;           // requests at the same time, at most
    int n_guided;             // requests with a grammar at the same time, at most
    size_t answers_size;      // bytes for all requests and their answers; a request reserves its part when it begins
    size_t max_text;          // bytes of a prompt; 0: limited only by the context
    int64_t created;          // seconds since 1970
};

struct service_slot {
    struct service *service;
    struct request *request; // NULL: free
    atomic_bool has_news;    // set by service_wake
};

struct service {
    struct service_params params;
    struct service_slot *slots; // [params.n_requests]
    int n_active;               // slots in use
    int n_guided;               // of them, with a grammar
    size_t answers_reserved;    // bytes
    uint64_t n_ids;             // requests so far
    uint64_t random;            // state of the random seeds
    int wake_fd;                // an eventfd that becomes readable when a slot has news
};

// False: out of memory or of descriptors.
bool service_init(struct service *s, const struct service_params *params);
// All requests must be freed, and the engine must have ended, because its thread calls service_wake.
void service_fini(struct service *s);
// Bytes that a service and its requests use at most, with these parameters.
size_t service_size(const struct service_params *params, int64_t n_vocab);

enum request_state {
    REQUEST_WAITING, // nothing is admitted yet
    REQUEST_RUNNING,
    REQUEST_DONE,   // all answers are complete
    REQUEST_FAILED, // request->error is set
};

struct request_item {
    struct engine_ticket *ticket; // NULL: not submitted yet, or ended
    size_t input;                 // index of its prompt
    uint64_t seed;
    char *text; // [n_text] the answer; with is_stream unused
    size_t n_text, text_room;
    // With tools: bytes of the answer that are not divided into text and calls yet. The calls; with is_stream only their number.
    char *rest; // [n_rest]
    size_t n_rest, rest_room;
    struct api_call *calls; // [n_calls]
    size_t calls_room;
    int n_calls;
    int64_t n_chars; // characters of the answer so far, with is_stream
    struct logprobs logprobs;
    float *embedding; // [n_embd]
    struct api_usage usage;
    enum engine_end end;
    bool is_begun; // the first event of the stream is written
};

struct request {
    struct service *service;
    struct service_slot *slot;
    void *user; // of the caller
    struct api_request api;
    struct api_reply reply;
    char id[48];
    struct token_list *prompts; // [n_prompts]
    size_t n_prompts;
    struct request_item *items; // [n_items]
    size_t n_items, n_submitted, n_ended;
    bool is_admitted;
    bool is_stalled;  // the engine was full when the next item was submitted: try again at retry_us, or when an item ends
    int64_t retry_us; // 0: at once
    bool has_more;    // the last request_poll could not read all text that the engine has
    bool is_guided;
    size_t reserved; // bytes of service.answers_reserved: the request and its answers
    struct api_error error;
    // The events of a stream that the client has not got yet.
    char *out; // [n_out], of which out_at bytes are sent
    size_t n_out, out_room, out_at;
    bool is_closed; // the last event is in `out`
};

// Reads the body, checks it against the model, and submits the first prompts. NULL: *error holds the status and the cause.
struct request *request_new(struct service *s, enum api_kind kind, const char *body, size_t size, struct api_error *error);
// Collects what the engine has made since the last call. With is_stream, writes it to `out` as events.
enum request_state request_poll(struct request *r);
// Returns the state without reading from the engine.
enum request_state request_state(const struct request *r);
// Writes the body of the response after REQUEST_DONE. Not for streams.
void request_write(const struct request *r, FILE *file);
struct api_usage request_usage(const struct request *r);
void request_free(struct request *r); // cancels what still runs
