// SPDX-License-Identifier: MIT
// opt.h: shared declarations of src/opt, which implements ggml-opt.h.
//
// A context has up to three graphs. `forward` computes outputs, loss and the number of correct predictions. `grad` also computes
// gradients. `step` also updates the parameters. A period is a sequence of opt_period backward passes. The gradients of a period
// are added up. The last pass of a period uses `step`, the other passes use `grad`. Static graphs are built once, by
// ggml_opt_init. Dynamic graphs are built by every ggml_opt_alloc. Gradient sums and moments outlive a dynamic graph. They are
// found by the address of the parameter.
//
//     init --(static)--> built --alloc--> ready --eval--> built --alloc--> ...
//     init --(dynamic)--> empty --prepare--> prepared --alloc--> ready --eval--> empty --prepare--> ...
#pragma once

#include "base/base.h"
#include "ggml-opt.h"

// ---- order.c ----

// The 32-bit Mersenne twister (Matsumoto and Nishimura, 1998) with its default seed.
struct opt_rng {
    uint32_t state[624];
    int n_used; // number of words of `state` that were returned; 624: `state` must be refilled
};

void opt_rng_init(struct opt_rng *rng);
uint32_t opt_rng_next(struct opt_rng *rng);
// Shuffles the first n entries as the reference does, with std::shuffle of libstdc++.
void opt_shuffle(struct opt_rng *rng, int64_t *order, int64_t n);

// ---- dataset.c ----

struct ggml_opt_dataset {
    struct ggml_context *ctx;
    struct ggml_backend_buffer *buffer;
    struct ggml_tensor *data;   // [ne_datapoint, ndata]
    struct ggml_tensor *labels; // [ne_label, ndata], NULL without labels
    int64_t ndata, ndata_shard;
    size_t data_size, labels_size; // bytes per shard
    int64_t *order;                // [n_shards], indices of shards
    int64_t n_shards;
};

// ---- result.c ----

struct ggml_opt_result {
    int64_t ndata;
    float *losses; // [n_losses] one per evaluation
    size_t n_losses, losses_cap;
    int32_t *preds; // [n_preds] predicted class of each datum; only for cross entropy
    size_t n_preds, preds_cap;
    int64_t ncorrect; // -1: not counted
    bool is_mean;     // true: losses are means over the data; false: sums
};

struct opt_outcome {
    float loss;
    bool is_mean;
    int64_t ndata;
    const int32_t *preds; // [ndata], NULL: none
    int64_t ncorrect;     // -1: not counted
};

enum ggml_status opt_result_add(struct ggml_opt_result *result, const struct opt_outcome *outcome) BERTH_MUST_USE;

// ---- context.c, state.c, build.c, eval.c ----

// The training state of one parameter.
struct opt_state {
    const struct ggml_tensor *param;
    int64_t ne[GGML_MAX_DIMS]; // extents of param; detects that another tensor has the same address
    struct ggml_context *ctx;
    struct ggml_backend_buffer *buffer;
    struct ggml_tensor *acc;        // sum of gradients over a period; NULL: not needed
    struct ggml_tensor *moments[2]; // first and second moment of AdamW
};

struct ggml_opt_context {
    struct ggml_opt_params params; // arguments of ggml_opt_init; inputs and outputs are replaced by those of the current graph
    bool is_static;
    struct opt_rng rng;

    // Valid as long as the context:
    struct ggml_context *ctx_own;
    struct ggml_backend_buffer *buffer_own;
    struct ggml_tensor *one;     // gradient of the loss with respect to itself
    struct ggml_tensor *numbers; // hyperparameters of the optimiser, written before each step
    struct opt_state *states;    // [n_states], one per parameter
    size_t n_states, states_cap;

    // Of the current graphs:
    struct ggml_context *ctx_results; // holds loss, labels and counts
    struct ggml_context *ctx_compute; // the caller's context
    struct ggml_cgraph *forward, *grad, *step;
    struct ggml_tensor *labels, *loss, *pred, *ncorrect;
    bool loss_is_mean;
    // The loss of an evaluation is loss_scale times the computed loss: opt_period if the graph divides by opt_period, else 1.
    float loss_scale;

    struct ggml_cgraph *ready; // the graph to which ggml_opt_alloc gave memory; NULL after its evaluation
    int64_t i_period;          // backward passes since the last step
    int64_t iter;              // number of the next step, from 1
    enum ggml_status status;   // result of the last alloc or eval
};

// Creates a missing state. NULL: out of memory.
struct opt_state *opt_state_of(struct ggml_opt_context *o, const struct ggml_tensor *param);
bool opt_needs_acc(const struct ggml_opt_context *o);
void opt_states_zero(struct ggml_opt_context *o, bool moments); // zeroes the gradient sums; with `moments` also the moments
void opt_states_free(struct ggml_opt_context *o);

// Builds the loss and the graphs up to `type`: forward, grad, step. If o->forward is NULL, creates it in ctx_compute.
enum ggml_status opt_build(struct ggml_opt_context *o, enum ggml_opt_build_type type) BERTH_MUST_USE;
