// SPDX-License-Identifier: MIT
// engine_state.h: the state of an engine, shared by engine*.c.
//
// The states of a ticket, and who changes them:
//
//     FREE --engine_submit--> WAITING --admission--> RUNNING --last token, stop, cancel--> ENDED --engine_release--> FREE
//                                  \--cancel, timeout--------------------------------------^
//
// If a client releases a ticket that waits or runs, the engine's thread ends it and frees it.
//
// `lock` guards the queue, the states of tickets, and the fields of a ticket marked (lock). The engine's thread alone uses the pool,
// admission, and the other fields of a running ticket. It publishes new tokens by raising n_made with the lock held.
#pragma once

#include "admit/admit.h"
#include "model/pool.h"
#include "serve/engine.h"

#include <pthread.h>

#define ENGINE_READ_TOKENS 64 // tokens per engine_read
#define ENGINE_READ_SIZE 4096 // bytes of text per engine_read, apart from the text of the last token
#define ENGINE_LAST_N 64      // tokens to which penalties apply

enum ticket_state { TICKET_FREE, TICKET_WAITING, TICKET_RUNNING, TICKET_ENDED };

struct engine_ticket {
    struct engine *engine;
    struct engine_ticket *next; // (lock) next free or waiting ticket
    enum ticket_state state;    // (lock)
    bool is_cancelled;          // (lock)
    bool is_released;           // (lock) the client does not use the ticket any more
    bool has_more;              // (lock) the last engine_read could not return everything
    enum engine_end end;        // (lock)
    int64_t n_made;             // (lock) tokens that engine_read may use
    int64_t n_cached;           // (lock)
    pthread_cond_t news;        // n_made, state or end has changed

    // The request. Constant until the ticket is free.
    int64_t n_prompt, n_max;
    int64_t begin_us; // time of submission
    int64_t token_us; // time of the last published token. Only the engine's thread uses it
    int n_logprobs;
    bool is_embedding;
    void (*wake)(void *user);
    void *user;
    struct sample_bias biases[ENGINE_MAX_BIASES];
    char stop_texts[ENGINE_MAX_STOPS][ENGINE_MAX_STOP_SIZE + 1];
    const char *stops[ENGINE_MAX_STOPS];

    // The engine's thread.
    int id;                // of admission, of pages and in engine->running
    int64_t result;        // index of the result in the step; -1: none
    int64_t n_new;         // tokens generated, some of them not published yet
    enum engine_end ended; // becomes `end` when the step is published
    int32_t *tokens;       // [n_ctx] prompt and answer
    struct sampler sampler;
    int32_t past[ENGINE_LAST_N];
    struct text_filter filter; // finds stop words
    char *filter_memory;
    struct text_guide guide;
    struct logprobs logs;     // items: [ENGINE_MAX_ITEMS or less]
    float *embedding;         // [n_embd] sum, at the end the mean
    struct model_error error; // ENGINE_ERROR: the cause

    // The reader.
    int64_t n_read; // tokens that engine_read has returned
    bool is_over;   // engine_read has returned the end
    struct text_filter read_filter;
    char *read_memory;
    char *text; // [ENGINE_READ_SIZE and the text of one token]
    struct engine_logprob read_logprobs[ENGINE_READ_TOKENS];
};

struct wake_call {
    void (*wake)(void *user);
    void *user;
};

struct engine {
    struct engine_params params;
    size_t n_items; // entries of log probabilities per ticket
    struct pool *pool;
    struct admit *admit;
    struct engine_ticket *tickets; // [n_tickets]
    int n_tickets;
    struct engine_ticket **running; // [n_running] by id; NULL: the id does not run
    struct wake_call *wakes;        // [max_wakes] calls to make without the lock
    int n_wakes, max_wakes;
    struct sampler scratch; // memory for all samplers
    struct berth_arrays memory;

    pthread_mutex_t lock;
    pthread_cond_t work;                // a request, a cancellation or the end has arrived
    struct engine_ticket *free;         // (lock)
    struct engine_ticket *first, *last; // (lock) waiting tickets
    bool is_closed;                     // (lock)
    bool is_joined;                     // (lock) the thread has ended
    bool has_locks, has_thread;         // set by engine_new
    int64_t deadline_us;                // (lock) running requests end at this time if is_closed
    struct engine_stats stats;          // (lock)
    int64_t step_us;                    // (lock) mean time of a step
    int64_t n_wait_steps;               // (lock) steps until the first waiting request fits, at most
    pthread_t thread;
};

// engine_step.c: the engine's thread.
void *engine_run(void *engine);
// engine_ticket.c: ends a ticket. Requires the lock.
void ticket_end(struct engine_ticket *t, enum engine_end end);
// Requires the lock. The ticket must be ended and released.
void ticket_free(struct engine_ticket *t);
// engine_clock.c: waits for cond until the time (0: no limit), with the lock held. False: the time has come.
bool engine_wait(struct engine *e, pthread_cond_t *cond, int64_t until_us);
int64_t engine_now_us(void);
