// SPDX-License-Identifier: MIT
// plan.h: plans the memory of a server: how many tokens the cache holds within a limit for weights, cache, compute buffers, work
// memory, engine and HTTP together.
#pragma once

#include "model/workbench.h"
#include "serve/engine.h"
#include "serve/http.h"

#define SERVE_PAGE 32 // tokens per page of the cache

struct serve_question {
    const struct model *model; // placed; with plan_only nothing is loaded
    const struct model_devices *devices;
    const struct vocab *vocab;
    int64_t n_ctx;   // tokens of one sequence; 0: the context of training, at most 4096
    int64_t n_batch; // tokens per step; 0: 512
    int n_running;   // sequences at once
    int n_waiting;
    int64_t wait_us;
    size_t memory; // bytes; 0: no limit, and every sequence can have a full context
    bool is_deterministic;
    // HTTP; serve_plan_find sets the sizes that depend on the context.
    struct http_params *http;
    struct service_params *service;
};

struct serve_plan {
    struct engine_params engine;
    struct engine_stats sizes; // weights, cache, compute, work, own
    size_t http;               // bytes of HTTP and requests
};

// Sets *plan, and the limits of q->http and q->service. False: *error holds the cause, with the smallest memory that would suffice.
bool serve_plan_find(const struct serve_question *q, struct serve_plan *plan, struct model_error *error);
size_t serve_plan_size(const struct serve_plan *plan); // the sum

// ---- plan_speed.c ----

// Returns how many users have a full context at the same time, by the rule of admission. Writes why one more waits. 0: out of memory.
int serve_plan_users(const struct serve_plan *plan, char *text, size_t size);
// Predicts or measures the tokens per second of n_users users together, with half of each context filled. `o` opens the model. 0:
// unknown.
double serve_plan_speed(const struct serve_plan *plan, const struct model_options *o, int n_users, struct model_error *error);
