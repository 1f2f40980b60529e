// SPDX-License-Identifier: MIT
// ggml-opt.h: training: data sets, losses, optimisers, epochs. docs/user/training.md is the guide.
//
// Two ways to use it:
//   - Static graphs: ggml_opt_init gets the context, inputs and outputs. Its graphs are built once. For each batch call
//     ggml_opt_alloc, write the inputs and labels, and call ggml_opt_eval. ggml_opt_epoch and ggml_opt_fit do this for all data.
//   - Dynamic graphs: ggml_opt_init gets none of the three. For each batch call ggml_opt_prepare_alloc with a new graph, then
//     proceed as above. The caller may free the graph after ggml_opt_eval.
//
// General rules:
//   - Parameters are the tensors that ggml_set_param has marked.
//   - A function that fails returns NULL or does nothing, and sets berth_last_error() (berth.h). berth_opt_status (berth-opt.h)
//     returns the status of the last alloc, eval or epoch.
//   - Every function accepts NULL.
//   - Use one context, data set or result from one thread at a time.
#pragma once

#include "ggml-backend.h"
#include "ggml.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ggml_opt_dataset;
struct ggml_opt_context;
struct ggml_opt_result;

// Data and labels in host memory.
typedef struct ggml_opt_dataset *ggml_opt_dataset_t;

// An optimisation: its graphs, its optimiser and the state of each parameter.
typedef struct ggml_opt_context *ggml_opt_context_t;

// The accumulated results of many evaluations.
typedef struct ggml_opt_result *ggml_opt_result_t;

// The loss. It is computed from the outputs and, for the last two, from labels of the same shape.
enum ggml_opt_loss_type {
    GGML_OPT_LOSS_TYPE_MEAN = 0,               // mean of the outputs
    GGML_OPT_LOSS_TYPE_SUM = 1,                // sum of the outputs
    GGML_OPT_LOSS_TYPE_CROSS_ENTROPY = 2,      // cross entropy of logits and label probabilities
    GGML_OPT_LOSS_TYPE_MEAN_SQUARED_ERROR = 3, // mean of the squared differences of outputs and labels
};

// The graphs that a context builds. Each includes the one before.
enum ggml_opt_build_type {
    GGML_OPT_BUILD_TYPE_FORWARD = 10, // outputs and loss
    GGML_OPT_BUILD_TYPE_GRAD = 20,    // and the backward pass
    GGML_OPT_BUILD_TYPE_OPT = 30,     // and the optimiser steps
};

// The optimiser.
enum ggml_opt_optimizer_type {
    GGML_OPT_OPTIMIZER_TYPE_ADAMW = 0, // AdamW; two moments per parameter element
    GGML_OPT_OPTIMIZER_TYPE_SGD = 1,   // stochastic gradient descent; no state
    GGML_OPT_OPTIMIZER_TYPE_COUNT = 2, // number of optimisers
};

// Parameters of the optimisers. Only those of the context's optimiser are used.
struct ggml_opt_optimizer_params {
    struct {
        float alpha; // learning rate, 0 or more
        float beta1; // decay of the first moment, 0 to 1
        float beta2; // decay of the second moment, 0 to 1
        float eps;   // added to the denominator, 0 or more
        float wd;    // weight decay, 0 to 1
    } adamw;
    struct {
        float alpha; // learning rate, 0 or more
        float wd;    // weight decay, 0 to 1
    } sgd;
};

// Returns the parameters of the optimiser for the next step. The argument is get_opt_pars_ud of the context.
typedef struct ggml_opt_optimizer_params (*ggml_opt_get_optimizer_params)(void *);

// Called after each batch of an epoch. The arguments are: whether the batch was for training; the context; the data set; the
// result so far; the number of batches done; the number of all batches; the start time in microseconds.
typedef void (*ggml_opt_epoch_callback)(
    bool, ggml_opt_context_t, ggml_opt_dataset_t, ggml_opt_result_t, int64_t, int64_t, int64_t);

// The parameters of a context. ggml_opt_default_params fills in defaults.
struct ggml_opt_params {
    ggml_backend_sched_t backend_sched;         // computes the graphs; required
    struct ggml_context *ctx_compute;           // context of static graphs; NULL: dynamic graphs
    struct ggml_tensor *inputs;                 // inputs of static graphs; NULL: dynamic graphs
    struct ggml_tensor *outputs;                // outputs of static graphs; NULL: dynamic graphs
    enum ggml_opt_loss_type loss_type;          // loss
    enum ggml_opt_build_type build_type;        // graphs to build
    int32_t opt_period;                         // evaluations per optimiser step, 1 or more; gradients accumulate over them
    ggml_opt_get_optimizer_params get_opt_pars; // called before each step; required
    void *get_opt_pars_ud;                      // its argument
    enum ggml_opt_optimizer_type optimizer;     // optimiser
};

// ---- data sets ----

// Creates a data set of ndata data with ne_datapoint elements each, and ne_label elements per label; ne_label 0 means no labels.
// ndata_shard data stay together when the set is shuffled; a last incomplete shard is not used. The caller then fills the
// tensors. Free it with ggml_opt_dataset_free. Returns NULL on failure.
GGML_API ggml_opt_dataset_t ggml_opt_dataset_init(enum ggml_type type_data, enum ggml_type type_label, int64_t ne_datapoint,
    int64_t ne_label, int64_t ndata, int64_t ndata_shard);

// Frees the data set and its tensors.
GGML_API void ggml_opt_dataset_free(ggml_opt_dataset_t dataset);

// Returns the number of data.
GGML_API int64_t ggml_opt_dataset_ndata(ggml_opt_dataset_t dataset);

// Returns the tensor of the data, [ne_datapoint, ndata], in host memory. The data set owns it.
GGML_API struct ggml_tensor *ggml_opt_dataset_data(ggml_opt_dataset_t dataset);

// Returns the tensor of the labels, [ne_label, ndata], in host memory. The data set owns it. Returns NULL without labels.
GGML_API struct ggml_tensor *ggml_opt_dataset_labels(ggml_opt_dataset_t dataset);

// Shuffles the first idata data by shards, or all if idata is negative. idata must be a multiple of the shard size. The context
// has the random numbers; they start alike in each context.
GGML_API void ggml_opt_dataset_shuffle(ggml_opt_context_t opt_ctx, ggml_opt_dataset_t dataset, int64_t idata);

// Copies batch number ibatch into the tensors, which must be contiguous and allocated. The size of data_batch sets the number of
// data in a batch; it must be a multiple of the shard size. labels_batch is NULL exactly if the set has no labels.
GGML_API void ggml_opt_dataset_get_batch(
    ggml_opt_dataset_t dataset, struct ggml_tensor *data_batch, struct ggml_tensor *labels_batch, int64_t ibatch);

// Like ggml_opt_dataset_get_batch, into host memory. nb_data_batch is the size of data_batch in bytes. labels_batch must have
// room for the labels of as many data.
GGML_API void ggml_opt_dataset_get_batch_host(
    ggml_opt_dataset_t dataset, void *data_batch, size_t nb_data_batch, void *labels_batch, int64_t ibatch);

// ---- parameters of optimisers ----

// Returns the default parameters. AdamW: alpha 0.001, beta1 0.9, beta2 0.999, eps 1e-8, wd 0. SGD: alpha 0.001, wd 0. The
// argument is ignored.
GGML_API struct ggml_opt_optimizer_params ggml_opt_get_default_optimizer_params(void *userdata);

// Returns the parameters that userdata points to, a struct ggml_opt_optimizer_params. Returns the defaults for NULL.
GGML_API struct ggml_opt_optimizer_params ggml_opt_get_constant_optimizer_params(void *userdata);

// Returns parameters for this scheduler and loss: dynamic graphs, all build types, a step per evaluation, AdamW with default
// parameters.
GGML_API struct ggml_opt_params ggml_opt_default_params(ggml_backend_sched_t backend_sched, enum ggml_opt_loss_type loss_type);

// ---- contexts ----

// Creates a context. The scheduler, and for static graphs ctx_compute, must outlive it. ctx_compute needs room for the graphs.
// Free the context with ggml_opt_free. Returns NULL on failure.
GGML_API ggml_opt_context_t ggml_opt_init(struct ggml_opt_params params);

// Frees the context, gradients and moments. Parameters and ctx_compute stay.
GGML_API void ggml_opt_free(ggml_opt_context_t opt_ctx);

// Sets the gradients to 0. With optimizer = true it also sets the moments to 0 and counts steps from 1.
GGML_API void ggml_opt_reset(ggml_opt_context_t opt_ctx, bool optimizer);

// Returns whether the context has static graphs.
GGML_API bool ggml_opt_static_graphs(ggml_opt_context_t opt_ctx);

// Returns the inputs of the current graph. The caller writes them after ggml_opt_alloc. Returns NULL without a graph.
GGML_API struct ggml_tensor *ggml_opt_inputs(ggml_opt_context_t opt_ctx);

// Returns the outputs of the current graph. Returns NULL without a graph.
GGML_API struct ggml_tensor *ggml_opt_outputs(ggml_opt_context_t opt_ctx);

// Returns the labels of the current graph, of the shape of the outputs. The caller writes them after ggml_opt_alloc. Returns NULL
// for losses without labels.
GGML_API struct ggml_tensor *ggml_opt_labels(ggml_opt_context_t opt_ctx);

// Returns the tensor of the loss, one f32 value. With a period above 1 a mean is already divided by the period.
GGML_API struct ggml_tensor *ggml_opt_loss(ggml_opt_context_t opt_ctx);

// Returns the predicted class of each datum, an I32 tensor. Returns NULL unless the loss is cross entropy.
GGML_API struct ggml_tensor *ggml_opt_pred(ggml_opt_context_t opt_ctx);

// Returns the number of correct predictions, an I64 tensor. Returns NULL unless the loss is cross entropy.
GGML_API struct ggml_tensor *ggml_opt_ncorrect(ggml_opt_context_t opt_ctx);

// Returns the tensor in which the gradient of a parameter accumulates. Returns NULL if the current graphs have none, as with
// static graphs and a period of 1.
GGML_API struct ggml_tensor *ggml_opt_grad_acc(ggml_opt_context_t opt_ctx, struct ggml_tensor *node);

// Returns the optimiser of the context. Returns GGML_OPT_OPTIMIZER_TYPE_COUNT for NULL.
GGML_API enum ggml_opt_optimizer_type ggml_opt_context_optimizer_type(ggml_opt_context_t);

// Returns "adamw", "sgd", or "undefined" for other values.
GGML_API const char *ggml_opt_optimizer_name(enum ggml_opt_optimizer_type);

// ---- results ----

// Creates an empty result. Free it with ggml_opt_result_free. Returns NULL if memory runs out.
GGML_API ggml_opt_result_t ggml_opt_result_init(void);

// Frees the result.
GGML_API void ggml_opt_result_free(ggml_opt_result_t result);

// Empties the result.
GGML_API void ggml_opt_result_reset(ggml_opt_result_t result);

// Stores the number of data evaluated so far.
GGML_API void ggml_opt_result_ndata(ggml_opt_result_t result, int64_t *ndata);

// Stores the loss and its uncertainty; either pointer may be NULL. For losses that are means: the mean over evaluations and its
// standard error. For sums: the sum, and the standard deviation of one evaluation. The uncertainty is NaN with fewer than two
// evaluations.
GGML_API void ggml_opt_result_loss(ggml_opt_result_t result, double *loss, double *unc);

// Stores the predicted classes of all data evaluated so far. pred must have room for as many as ggml_opt_result_ndata states.
GGML_API void ggml_opt_result_pred(ggml_opt_result_t result, int32_t *pred);

// Stores the fraction of correct predictions and its uncertainty; either pointer may be NULL. Both are NaN if predictions are not
// counted.
GGML_API void ggml_opt_result_accuracy(ggml_opt_result_t result, double *accuracy, double *unc);

// ---- evaluation ----

// Sets the graph of the next evaluation, for contexts with dynamic graphs. gf is its forward graph. ctx_compute must have room
// for the backward pass. All must stay valid until ggml_opt_eval.
GGML_API void ggml_opt_prepare_alloc(ggml_opt_context_t opt_ctx, struct ggml_context *ctx_compute, struct ggml_cgraph *gf,
    struct ggml_tensor *inputs, struct ggml_tensor *outputs);

// Allocates memory for the next evaluation. backward = true includes the backward pass and, at the end of a period, the optimiser
// step. Write the inputs and labels after it.
GGML_API void ggml_opt_alloc(ggml_opt_context_t opt_ctx, bool backward);

// Computes the graph that ggml_opt_alloc allocated. result may be NULL; otherwise it accumulates the loss and the predictions. If
// the loss is not finite, no step is taken and the error names the first tensor that is not finite.
GGML_API void ggml_opt_eval(ggml_opt_context_t opt_ctx, ggml_opt_result_t result);

// ---- epochs ----

// Evaluates all batches of a data set once, for contexts with static graphs. The first idata_split data train, the others only
// evaluate; a negative value means that all train. Results and callbacks may be NULL. It ends at the first failure.
GGML_API void ggml_opt_epoch(ggml_opt_context_t opt_ctx, ggml_opt_dataset_t dataset, ggml_opt_result_t result_train,
    ggml_opt_result_t result_eval, int64_t idata_split, ggml_opt_epoch_callback callback_train,
    ggml_opt_epoch_callback callback_eval);

// A callback for ggml_opt_epoch that prints a progress bar, loss, accuracy and time to stderr.
GGML_API void ggml_opt_epoch_callback_progress_bar(bool train, ggml_opt_context_t opt_ctx, ggml_opt_dataset_t dataset,
    ggml_opt_result_t result, int64_t ibatch, int64_t ibatch_max, int64_t t_start_us);

// Trains the parameters that outputs depend on, for nepoch epochs, and frees everything it made. A step takes nbatch_logical
// data, which must be a multiple of the batch of inputs and a divisor of the number of data. val_split, from 0 to below 1, is the
// fraction that only evaluates. get_opt_pars is called with a pointer to the epoch, an int64_t from 1. silent = false prints
// progress to stderr.
GGML_API void ggml_opt_fit(ggml_backend_sched_t backend_sched, struct ggml_context *ctx_compute, struct ggml_tensor *inputs,
    struct ggml_tensor *outputs, ggml_opt_dataset_t dataset, enum ggml_opt_loss_type loss_type,
    enum ggml_opt_optimizer_type optimizer, ggml_opt_get_optimizer_params get_opt_pars, int64_t nepoch, int64_t nbatch_logical,
    float val_split, bool silent);

#ifdef __cplusplus
}
#endif
