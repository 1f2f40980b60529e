// SPDX-License-Identifier: MIT
// train.h: trains models of src/model on ggml's public API.
//
//   texts --data.c--> windows --trainer.c--> gradients --clip--> optimiser step --state.c, save.c--> checkpoint, model or adapter
//
// A step computes two graphs: first the forward and backward pass, then the optimiser. Between the two graphs, the loss and the
// gradients are checked. After a failed step all weights are unchanged.
// The same data, seed and number of threads give the same numbers. A resumed run equals an uninterrupted run bit by bit.
#pragma once

#include "berth-mpi.h"
#include "ggml-opt.h"
#include "model/vocab.h"

// ---- random numbers (splitmix64) ----

static inline uint64_t train_random(uint64_t *state) {
    uint64_t x = *state += 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}
// Returns a number in [-1, 1).
static inline double train_random_uniform(uint64_t *state) {
    return (double) (train_random(state) >> 11) * 0x1p-52 - 1;
}

// ---- texts (data.c) ----

enum train_split { TRAIN_SPLIT_FILE, TRAIN_SPLIT_LINE, TRAIN_SPLIT_BLANK }; // what counts as one text

// Concatenated texts, each with the tokens that begin and end a text. The tokens are cut into adjacent windows of n_ctx tokens.
// The label of a token is the next token, so the last label of a window is the token after the window. A remainder shorter than a
// window is not used.
struct train_data {
    struct token_list tokens;
    int64_t n_texts;
    int64_t n_ctx, n_windows; // valid after train_data_cut
    uint64_t hash;            // hash of tokens and n_ctx
    int64_t *order;           // [n_windows] order of the current epoch
    int64_t epoch;            // epoch of order; -1: none
};

bool train_data_add(struct train_data *data, const struct vocab *vocab, const char *text, size_t size, enum train_split split,
    struct model_error *error);
bool train_data_cut(struct train_data *data, int64_t n_ctx, struct model_error *error);
// Returns the n_ctx + 1 tokens of window i of a run. Each epoch uses all windows once. The seed and the epoch determine the order.
const int32_t *train_data_window(struct train_data *data, uint64_t seed, int64_t i);
const int32_t *train_data_plain(const struct train_data *data, int64_t i); // window i in the order of the text
void train_data_fini(struct train_data *data);

// ---- trainer (trainer.c, train_graph.c) ----

enum train_schedule { TRAIN_COSINE, TRAIN_LINEAR, TRAIN_CONSTANT }; // learning rate after the warm-up

struct train_params {
    int64_t n_ctx;    // tokens per sequence
    int64_t n_seq;    // sequences per step, over all ranks
    int64_t n_steps;  // steps of the complete run
    int64_t n_warmup; // steps in which the learning rate grows to lr
    int64_t rank;     // rank of the adapter; 0: all weights are trained
    float alpha;      // alpha of the adapter
    float lr;         // highest learning rate
    float decay;      // weight decay; a step multiplies each weight by 1 - decay * learning rate
    float clip;       // largest norm of the gradient of all weights; 0: no limit
    enum train_schedule schedule;
    enum ggml_opt_optimizer_type optimizer;
    uint64_t seed;
    uint64_t memory;                     // byte limit of trained tensors and graphs; 0: none
    const struct berth_mpi_world *world; // ranks that share each batch; NULL: a single process
};

struct train_tensor {
    struct ggml_tensor *w;          // f32, marked as a parameter
    struct ggml_tensor *grad;       // gradient of the current step
    struct ggml_tensor *m, *v;      // means of the gradient and its square; NULL: SGD
    const struct ggml_tensor *file; // the weight in the file; NULL: a matrix of an adapter
    int device;
};

// The scheduler owns the memory of the graph.
struct train_graph {
    struct ggml_context *ctx;
    struct ggml_cgraph *graph;
    ggml_backend_sched_t sched;
    struct graph_inputs in;
    struct ggml_tensor *labels;         // f32 [n_vocab, rows]
    struct ggml_tensor *loss;           // f32 [1]
    struct ggml_context *recompute_ctx; // holds the graph with copies of recomputed nodes; NULL: none
};

struct trainer {
    struct model *model;
    const struct model_devices *devices;
    struct train_params params;
    struct model_lora *lora; // in model->loras; NULL: all weights are trained
    struct train_tensor *tensors;
    size_t n_tensors;
    struct model_part *values, *grads;        // [devices->n] memory of trained tensors and moments; memory of gradients
    struct ggml_tensor *loss_grad;            // f32 [1] gradient of the loss with respect to itself
    struct ggml_tensor **rates;               // [devices->n] parameters of the optimiser: f32 [7] (AdamW) or [2] (SGD)
    struct ggml_tensor **shrink;              // [devices->n] f32 [1] factor that clips gradients
    struct train_graph learn, evaluate, step; // forward and backward pass; forward pass, built on first use; optimiser
    float *row;                               // [row_size] temporary array
    size_t row_size;                          // elements
    float *sums;                              // temporary array for sums over ranks; NULL: a single process

    int64_t n_done;           // steps done
    float *losses;            // [n_steps] loss of each step
    struct train_evaluation { // mean validation loss after a step
        int64_t step;
        float loss;
    } * evaluations;
    size_t n_evaluations, cap_evaluations;
    double grad_norm;    // gradient norm of the last step before clipping
    bool is_stopped;     // a rank requested a stop at the last train_ranks_stop
    size_t size;         // bytes of trained tensors, gradients and moments
    size_t compute;      // bytes of the compute buffers
    size_t n_recomputed; // nodes that a step recomputes to save memory
    double cost_ratio;   // cost of a step divided by its cost without recomputing
};

// The model must be placed. The trainer changes the model's tensors and adds its adapter to model->loras. NULL: *error holds the
// cause.
struct trainer *trainer_new(
    struct model *model, const struct model_devices *devices, const struct train_params *params, struct model_error *error);
void trainer_free(struct trainer *trainer); // call before model_free; the model is unusable in between
// Computes one step. Stores the loss in trainer->losses. False: the step failed, and the weights are unchanged.
bool trainer_step(struct trainer *trainer, struct train_data *data, struct model_error *error);
// Appends the mean loss over all windows to trainer->evaluations. stop is polled between windows and may be NULL.
bool trainer_evaluate(struct trainer *trainer, const struct train_data *data, bool (*stop)(void *), struct model_error *error);
// Each rank processes train_n_local sequences per step, from index train_first_local on.
static inline int64_t train_n_local(const struct train_params *p) {
    return p->world != NULL ? p->n_seq / p->world->n_ranks : p->n_seq;
}
static inline int64_t train_first_local(const struct train_params *p) {
    return p->world != NULL ? p->world->rank * train_n_local(p) : 0;
}
// `step` counts from 0.
float train_rate(const struct train_params *params, int64_t step);

// train_graph.c:
bool train_graph_learn(struct trainer *trainer, struct model_error *error);
bool train_graph_evaluate(struct trainer *trainer, struct model_error *error);
bool train_graph_step(struct trainer *trainer, struct model_error *error);
void train_graph_fini(struct train_graph *graph);
// tensors.c: train_tensor_get replaces *bytes by a copy of the tensor's bytes and returns *bytes. NULL: *error holds the cause.
void *train_tensor_get(const struct ggml_tensor *tensor, void **bytes, struct model_error *error);
bool train_tensors_make(struct trainer *trainer, struct model_error *error);
void train_tensors_free(struct trainer *trainer);

// ---- several ranks (ranks.c): all ranks must call these functions; without ranks they do nothing ----

bool train_ranks_make(struct trainer *trainer, struct model_error *error);
// Checks that all ranks have the same text, options, step and weights.
bool train_ranks_check(struct trainer *trainer, const struct train_data *data, struct model_error *error);
// Sets trainer->is_stopped if `mine` is true on any rank. False: a rank is lost.
bool train_ranks_stop(struct trainer *trainer, bool mine, struct model_error *error);
// Sets *loss to the mean over all ranks. False: a rank failed or is lost.
bool train_ranks_loss(struct trainer *trainer, bool ok, float *loss, struct model_error *error);
// Replaces the gradients by their sums over all ranks.
bool train_ranks_sum(struct trainer *trainer, struct model_error *error);

// ---- files (state.c, save.c, config.c, plot.c) ----

// Writes everything that a run needs to resume: tensors, moments, progress and parameters.
bool train_state_write(const struct trainer *trainer, const struct train_data *data, FILE *file, struct model_error *error);
// Reads the parameters for trainer_new. n_done may be NULL.
bool train_state_params(const char *path, struct train_params *params, int64_t *n_done, struct model_error *error);
// The trainer must have been created with the parameters of train_state_params.
bool train_state_read(struct trainer *trainer, const struct train_data *data, const char *path, struct model_error *error);
// Writes the adapter, or the model with the types of its file.
bool train_save(const struct trainer *trainer, FILE *file, struct model_error *error);
// Writes a model with random weights and another model's tokenizer. config: docs/user/training.md.
bool train_new(const char *config, const struct gguf_context *tokenizer, uint64_t seed, FILE *file, struct model_error *error);
// Draws the losses of all steps and the validation losses as SVG. False: writing failed.
bool train_plot_write(const struct trainer *trainer, FILE *file);
