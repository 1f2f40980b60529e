// SPDX-License-Identifier: MIT
// train.h: trains models of src/model over ggml's public API: texts as windows of tokens, a trainer that steps, its state as a
// file, and what comes out as a model or as an adapter.
//
//   texts --data.c--> windows --trainer.c--> gradients --clip--> optimiser step --state.c, save.c--> checkpoint, model or adapter
//
// A step is two graphs: forward and backward first, whose loss and gradients are looked at, then the optimiser's. So numbers that
// are none never reach a weight: a run that fails leaves all weights as they were before the step.
// The same numbers come from the same data, seed and threads: a run that is saved and resumed equals the unbroken one bit by bit.
#pragma once

#include "berth-mpi.h"
#include "ggml-opt.h"
#include "model/vocab.h"

// ---- random numbers (splitmix64): the next one, and its state ----

static inline uint64_t train_random(uint64_t *state) {
    uint64_t x = *state += 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}
// From -1 to 1.
static inline double train_random_even(uint64_t *state) {
    return (double) (train_random(state) >> 11) * 0x1p-52 - 1;
}

// ---- texts (data.c) ----

enum train_split { TRAIN_SPLIT_FILE, TRAIN_SPLIT_LINE, TRAIN_SPLIT_BLANK }; // what one text of a file is

// Texts in a row, each with the tokens that begin and end one. Windows of n_ctx tokens follow each other without a gap; each
// knows the token behind it. A last part that fills no window is not used.
struct train_data {
    struct token_list tokens;
    int64_t n_texts;
    int64_t n_ctx, n_windows; // after train_data_cut
    uint64_t hash;            // of tokens and n_ctx
    int64_t *order;           // [n_windows] of the epoch
    int64_t epoch;            // -1: none yet
};

// Appends what one file says.
bool train_data_add(struct train_data *data, const struct vocab *vocab, const char *text, size_t size, enum train_split split,
    struct model_error *error);
bool train_data_cut(struct train_data *data, int64_t n_ctx, struct model_error *error);
// The tokens of the i-th window of a run, n_ctx of them and the one behind: each epoch has all windows, in an order of its own
// that the seed decides.
const int32_t *train_data_window(struct train_data *data, uint64_t seed, int64_t i);
const int32_t *train_data_plain(const struct train_data *data, int64_t i); // in the order of the text
void train_data_fini(struct train_data *data);

// ---- the trainer (trainer.c, train_graph.c) ----

enum train_schedule { TRAIN_COSINE, TRAIN_LINEAR, TRAIN_CONSTANT }; // of the rate, after the warm-up: down to 0, or as it is

struct train_params {
    int64_t n_ctx;    // tokens of a sequence
    int64_t n_seq;    // sequences a step, of all ranks together
    int64_t n_steps;  // of the whole run
    int64_t n_warmup; // steps in which the rate grows to lr
    int64_t rank;     // of the adapter; 0: all weights are trained
    float alpha;      // of the adapter
    float lr;         // the highest rate
    float decay;      // of weights, a step and unit of rate
    float clip;       // longest gradient, all weights taken as one vector; 0: any
    enum train_schedule schedule;
    enum ggml_opt_optimizer_type optimizer;
    uint64_t seed;
    uint64_t memory;                     // bytes for what is trained and for the graphs of a step; 0: as many as they take
    const struct berth_mpi_world *world; // the ranks that share each batch; NULL: this process is alone
};

// One tensor that is trained.
struct train_tensor {
    struct ggml_tensor *w;          // f32, marked as a parameter
    struct ggml_tensor *grad;       // the step's
    struct ggml_tensor *m, *v;      // running means of the gradient and its square; NULL with SGD
    const struct ggml_tensor *file; // where it comes from; NULL: half of an adapter's pair
    int device;
};

// A graph with the scheduler that keeps its memory.
struct train_graph {
    struct ggml_context *ctx;
    struct ggml_cgraph *graph;
    ggml_backend_sched_t sched;
    struct graph_inputs in;
    struct ggml_tensor *labels; // f32 [n_vocab, rows]
    struct ggml_tensor *loss;   // f32 [1]
    struct ggml_context *again; // the graph and copies of nodes that run again to save memory; NULL: none
};

struct trainer {
    struct model *model;
    const struct model_devices *devices;
    struct train_params params;
    struct model_lora *lora; // listed with the model; NULL: all weights are trained
    struct train_tensor *tensors;
    size_t n_tensors;
    struct model_part *values, *grads;    // [devices->n] of the tensors above
    struct ggml_tensor *one;              // f32 [1] the gradient of the loss by itself
    struct ggml_tensor **rates;           // [devices->n] what the optimiser goes by: f32 [7] or [2]
    struct ggml_tensor **shrink;          // [devices->n] f32 [1] by which gradients are shortened
    struct train_graph learn, look, step; // forward and backward; forward alone, made when it is wanted; the optimiser
    float *row;                           // [n_vocab] or [n_ctx] scratch
    size_t row_size;                      // elements
    float *sums;                          // what is summed over all ranks; NULL: alone

    int64_t n_done;     // steps
    float *losses;      // [n_steps] of each step
    struct train_look { // on other texts
        int64_t step;
        float loss;
    } * looks;
    size_t n_looks, cap_looks;
    double grad_norm; // of the last step, before it was shortened
    bool is_stopped;  // some rank was told to, when they were asked last
    size_t size;      // bytes of trained weights, gradients and means
    size_t compute;   // bytes of the graphs'
    size_t n_again;   // nodes that a step runs again to save memory
    double slower;    // what a step costs, of one without these; 1: the same
};

// The model is placed; the trainer changes its tensors, and lists its adapter with it. NULL with an error.
struct trainer *trainer_new(
    struct model *model, const struct model_devices *devices, const struct train_params *params, struct model_error *error);
void trainer_free(struct trainer *trainer); // before the model, which then is fit for nothing but its end
// One step on the next windows of the data; trainer->losses has its loss. False: not done, the weights are as before.
bool trainer_step(struct trainer *trainer, struct train_data *data, struct model_error *error);
// The mean loss over all windows; it is added to trainer->looks. stop is asked between windows; it may be NULL.
bool trainer_look(struct trainer *trainer, const struct train_data *data, bool (*stop)(void *), struct model_error *error);
// Sequences of a step that this rank takes, and the first of them.
static inline int64_t train_n_own(const struct train_params *p) {
    return p->world != NULL ? p->n_seq / p->world->size : p->n_seq;
}
static inline int64_t train_first_own(const struct train_params *p) {
    return p->world != NULL ? p->world->rank * train_n_own(p) : 0;
}
// The rate of a step, counted from 0.
float train_rate(const struct train_params *params, int64_t step);

// train_graph.c
bool train_graph_learn(struct trainer *trainer, struct model_error *error);
bool train_graph_look(struct trainer *trainer, struct model_error *error);
bool train_graph_step(struct trainer *trainer, struct model_error *error);
void train_graph_fini(struct train_graph *graph);
// tensors.c: the bytes of a tensor in place of those in *bytes; NULL with an error. The tensors that are trained, with their first values.
void *train_tensor_get(const struct ggml_tensor *tensor, void **bytes, struct model_error *error);
bool train_tensors_make(struct trainer *trainer, struct model_error *error);
void train_tensors_free(struct trainer *trainer);

// ---- several ranks (ranks.c): called by all of them; alone there is nothing to ask ----

bool train_ranks_make(struct trainer *trainer, struct model_error *error);
// Whether all ranks are about to do the same: text, options, step, weights.
bool train_ranks_check(struct trainer *trainer, const struct train_data *data, struct model_error *error);
// trainer->is_stopped: whether one of them is to stop. False: a rank is lost.
bool train_ranks_stop(struct trainer *trainer, bool mine, struct model_error *error);
// The mean of all losses; false where a rank has none, or is lost.
bool train_ranks_loss(struct trainer *trainer, bool ok, float *loss, struct model_error *error);
// Gradients become their sum over all ranks.
bool train_ranks_sum(struct trainer *trainer, struct model_error *error);

// ---- files (state.c, save.c, config.c) ----

// All that a run needs to go on: numbers, means, where it is and what it is made of.
bool train_state_write(const struct trainer *trainer, const struct train_data *data, FILE *file, struct model_error *error);
// What a run was started with, so that it can be made again; n_done too if it is not NULL.
bool train_state_params(const char *path, struct train_params *params, int64_t *n_done, struct model_error *error);
// Into a trainer that was made with these.
bool train_state_read(struct trainer *trainer, const struct train_data *data, const char *path, struct model_error *error);
// The model in its types, or the adapter.
bool train_save(const struct trainer *trainer, FILE *file, struct model_error *error);
// A model of random weights by a description (docs/user/training.md), with the tokenizer of another.
bool train_new(const char *config, const struct gguf_context *tokenizer, uint64_t seed, FILE *file, struct model_error *error);
