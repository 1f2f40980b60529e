// SPDX-License-Identifier: MIT
// opt.h: what the files of src/opt share: the random order, data sets, results, and the context of an optimisation.
//
// A context has up to three graphs: forward (outputs, loss, what is counted), grad (and gradients), step (and optimiser steps).
// Static ones are built once, over a graph the caller gives to ggml_opt_init; dynamic ones for every ggml_opt_alloc, over what
// ggml_opt_prepare_alloc got. State that outlives graphs belongs to the parameter, by its address.
//
//     init --(static)--> built --alloc--> ready --eval--> built --alloc--> ...
//     init --(dynamic)--> empty --prepare--> prepared --alloc--> ready --eval--> empty --prepare--> ...
#pragma once

#include "base/base.h"
#include "ggml-opt.h"

// ---- order.c ----

// The Mersenne twister of 32 bits (Matsumoto and Nishimura, 1998) with the usual start.
struct opt_rng {
    uint32_t state[624];
    int n_used; // of state; 624: all
};

void opt_rng_init(struct opt_rng *rng);
uint32_t opt_rng_next(struct opt_rng *rng);
// The order of the first n becomes a random one, the same that the reference takes: std::shuffle of libstdc++.
void opt_shuffle(struct opt_rng *rng, int64_t *order, int64_t n);

// ---- dataset.c ----

struct ggml_opt_dataset {
    struct ggml_context *ctx;
    struct ggml_backend_buffer *buffer;
    struct ggml_tensor *data;   // [ne_datapoint, ndata]
    struct ggml_tensor *labels; // [ne_label, ndata], NULL without
    int64_t ndata, ndata_shard;
    size_t data_size, labels_size; // of a shard, in bytes
    int64_t *order;                // of shards
    int64_t n_shards;
};

// ---- result.c ----

struct ggml_opt_result {
    int64_t ndata;
    float *losses; // one an evaluation
    size_t n_losses, losses_cap;
    int32_t *preds; // one a datum, where there are classes
    size_t n_preds, preds_cap;
    int64_t ncorrect; // -1: not counted
    bool is_mean;     // losses are means over data, else sums
};

struct opt_outcome {
    float loss;
    bool is_mean;
    int64_t ndata;
    const int32_t *preds; // ndata of them, NULL: none
    int64_t ncorrect;     // -1: not counted
};

enum ggml_status opt_result_add(struct ggml_opt_result *result, const struct opt_outcome *outcome) BERTH_MUST_USE;

// ---- context.c, state.c, build.c, eval.c ----

// What belongs to one parameter.
struct opt_state {
    const struct ggml_tensor *param;
    int64_t ne[GGML_MAX_DIMS]; // of param, should another tensor come to lie there
    struct ggml_context *ctx;
    struct ggml_backend_buffer *buffer;
    struct ggml_tensor *acc;        // sum of gradients over a period; NULL: not needed
    struct ggml_tensor *moments[2]; // of AdamW
};

struct ggml_opt_context {
    struct ggml_opt_params params; // as given; inputs and outputs are those of the graph at hand
    bool is_static;
    struct opt_rng rng;

    // in memory of its own, for as long as the context lives
    struct ggml_context *ctx_own;
    struct ggml_backend_buffer *buffer_own;
    struct ggml_tensor *one;     // the gradient of the loss by itself
    struct ggml_tensor *numbers; // of the optimiser, written before each step
    struct opt_state *states;    // by parameter
    size_t n_states, states_cap;

    // the graphs at hand
    struct ggml_context *ctx_results; // loss, labels, counts
    struct ggml_context *ctx_compute; // the caller's
    struct ggml_cgraph *forward, *grad, *step;
    struct ggml_tensor *labels, *loss, *pred, *ncorrect;
    bool loss_is_mean;
    float loss_scale; // what the loss is to be multiplied by for one evaluation: the period, if it was divided by it

    struct ggml_cgraph *ready; // that ggml_opt_alloc gave memory, until it is evaluated
    int64_t i_period;          // backward passes since the last step
    int64_t iter;              // steps, from 1
    enum ggml_status status;   // of the last alloc and eval
};

// The state of a parameter, made if there is none. NULL: out of memory.
struct opt_state *opt_state_of(struct ggml_opt_context *o, const struct ggml_tensor *param);
bool opt_needs_acc(const struct ggml_opt_context *o);
void opt_states_zero(struct ggml_opt_context *o, bool moments);
void opt_states_free(struct ggml_opt_context *o);

// Builds the loss over outputs and all graphs up to that kind. forward may be NULL: made in ctx_compute.
enum ggml_status opt_build(struct ggml_opt_context *o, enum ggml_opt_build_type type) BERTH_MUST_USE;
