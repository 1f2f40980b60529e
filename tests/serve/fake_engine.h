// SPDX-License-Identifier: MIT
// fake_engine.h: an engine without a model, for tests of requests and HTTP. Each sequence gets the tokens 0, 1, 2, ... with the texts
// " w0", " w1", ..., one per step. A thread does a step every fake.step_us; with 0 there is no thread, and fake_step does one.
#pragma once

#include "serve/engine.h"

// A test may change the settings while the thread runs.
struct fake {
    _Atomic int step_us;
    _Atomic int n_queue;                      // engine_submit returns ENGINE_FULL if as many sequences are active; 0: no limit
    _Atomic enum engine_status submit_status; // of engine_submit, if not ENGINE_OK
    _Atomic enum engine_end forced_end;       // of each sequence at its next step, if not ENGINE_RUNNING
    _Atomic int n_wait_steps;                 // steps before a sequence is admitted
    _Atomic int64_t n_stop;                   // tokens after which a sequence ends with ENGINE_STOP; 0: never
    int64_t n_embd;
    const char *const
        *words; // texts of the tokens instead of " w0", ...; after the last one, NULL, a sequence ends with ENGINE_STOP
    // Counted:
    _Atomic int n_active, n_submitted, n_cancelled, n_guides, n_stops;
};
extern struct fake fake;

void fake_step(struct engine *e);
