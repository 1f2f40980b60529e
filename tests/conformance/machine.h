// SPDX-License-Identifier: MIT
// machine.h: the machine runs a recipe (call.h) on Berth or the reference, and writes the outcome as text, with one line per
// value, tensor and graph.
#pragma once

#include "call.h"

enum outcome_kind {
    OUTCOME_DONE,    // all calls returned
    OUTCOME_FAILED,  // call `at` aborted (reference) or returned poison (Berth)
    OUTCOME_CRASHED, // call `at` raised a signal, or took too long; the process continues
    OUTCOME_DIED,    // the process that runs the reference (link.h) ended, so nothing else is known
    OUTCOME_MISSING, // the implementation lacks the function of call `at`
};

struct outcome {
    int32_t kind;
    int32_t at;
    int32_t silent;     // Berth failed, but berth_last_error() returns no text
    int32_t n_text;     // bytes of text, without the final 0
    char message[256];  // message of the failure
    char *text;         // description of all results; empty unless OUTCOME_DONE
    int32_t text_alloc; // capacity of text in bytes
};

struct machine {
    const struct api *api;
    void *arena;
    size_t arena_size;
    struct ggml_context *ctx;
    union value *values; // [call]
    int n_values_alloc;
    struct ggml_cgraph *views; // [call], graphs that were returned by value
    struct ggml_tensor *list[CALL_MAX_LIST];
    int64_t out[4]; // results that were returned by pointer
    float outf[2];
    struct outcome *outcome;
};

bool machine_init(struct machine *m, const struct api *api);
void machine_fini(struct machine *m);
void machine_run(struct machine *m, const struct recipe *r, struct outcome *o);
void outcome_fini(struct outcome *o);

void text_add(struct outcome *o, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
// dump.c
void machine_dump(struct machine *m, const struct recipe *r);

// ---- probes ----

// A probe is a fixed procedure that replaces the calls of a recipe. It writes its results to the text of the outcome. As for
// every recipe, the texts of Berth and of the reference must be equal.

enum probe_id {
    PROBE_NONE,
    PROBE_FP16_TO_FP32, // all 65536 f16 values
    PROBE_BF16_TO_FP32, // all 65536 bf16 values
    PROBE_FP32_TO_FP16, // random floats and edge cases
    PROBE_FP32_TO_BF16,
    PROBE_TYPE_TRAITS,
    PROBE_MISC, // version, guids, thread pool parameters, hash sizes, zeroing, printing
    PROBE_COUNT
};

const char *probe_name(int probe);
void probe_run(struct machine *m, const struct recipe *r);
