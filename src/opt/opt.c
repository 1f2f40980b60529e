// SPDX-License-Identifier: MIT
// opt.c: ggml-opt.h. Optimiser parameters and names are real; training is not built in yet: those functions link, set the last
// error and answer NULL, 0 or false, so that no dataset, context or result can come to exist.

#include "base/base.h"
#include "ggml-opt.h"

// ---- parameters ----

struct ggml_opt_optimizer_params ggml_opt_get_default_optimizer_params(void *userdata) {
    (void) userdata;
    return (struct ggml_opt_optimizer_params){
        .adamw = {.alpha = 0.001f, .beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-8f, .wd = 0.0f},
        .sgd   = {.alpha = 1e-3f, .wd = 0.0f},
    };
}

// userdata points at the parameters; the defaults if it is NULL.
struct ggml_opt_optimizer_params ggml_opt_get_constant_optimizer_params(void *userdata) {
    return userdata != NULL ? *(struct ggml_opt_optimizer_params *) userdata : ggml_opt_get_default_optimizer_params(NULL);
}

struct ggml_opt_params ggml_opt_default_params(ggml_backend_sched_t backend_sched, enum ggml_opt_loss_type loss_type) {
    return (struct ggml_opt_params){
        .backend_sched = backend_sched,
        .loss_type     = loss_type,
        .build_type    = GGML_OPT_BUILD_TYPE_OPT,
        .opt_period    = 1,
        .get_opt_pars  = ggml_opt_get_default_optimizer_params,
        .optimizer     = GGML_OPT_OPTIMIZER_TYPE_ADAMW,
    };
}

const char *ggml_opt_optimizer_name(enum ggml_opt_optimizer_type type) {
    switch (type) {
        case GGML_OPT_OPTIMIZER_TYPE_ADAMW: return "adamw";
        case GGML_OPT_OPTIMIZER_TYPE_SGD: return "sgd";
        default: return "undefined";
    }
}

// ---- training ----

static void *not_built_in(const char *func) {
    berth_fail(GGML_STATUS_FAILED, "%s: training is not built in yet", func);
    return NULL;
}

ggml_opt_dataset_t ggml_opt_dataset_init(enum ggml_type type_data, enum ggml_type type_label, int64_t ne_datapoint,
    int64_t ne_label, int64_t ndata, int64_t ndata_shard) {
    (void) type_data, (void) type_label, (void) ne_datapoint, (void) ne_label, (void) ndata, (void) ndata_shard;
    return not_built_in(__func__);
}

void ggml_opt_dataset_free(ggml_opt_dataset_t dataset) {
    (void) dataset;
}

int64_t ggml_opt_dataset_ndata(ggml_opt_dataset_t dataset) {
    (void) dataset;
    not_built_in(__func__);
    return 0;
}

struct ggml_tensor *ggml_opt_dataset_data(ggml_opt_dataset_t dataset) {
    (void) dataset;
    return not_built_in(__func__);
}

struct ggml_tensor *ggml_opt_dataset_labels(ggml_opt_dataset_t dataset) {
    (void) dataset;
    return not_built_in(__func__);
}

void ggml_opt_dataset_shuffle(ggml_opt_context_t opt_ctx, ggml_opt_dataset_t dataset, int64_t idata) {
    (void) opt_ctx, (void) dataset, (void) idata;
    not_built_in(__func__);
}

void ggml_opt_dataset_get_batch(
    ggml_opt_dataset_t dataset, struct ggml_tensor *data_batch, struct ggml_tensor *labels_batch, int64_t ibatch) {
    (void) dataset, (void) data_batch, (void) labels_batch, (void) ibatch;
    not_built_in(__func__);
}

void ggml_opt_dataset_get_batch_host(
    ggml_opt_dataset_t dataset, void *data_batch, size_t nb_data_batch, void *labels_batch, int64_t ibatch) {
    (void) dataset, (void) data_batch, (void) nb_data_batch, (void) labels_batch, (void) ibatch;
    not_built_in(__func__);
}

ggml_opt_context_t ggml_opt_init(struct ggml_opt_params params) {
    (void) params;
    return not_built_in(__func__);
}

void ggml_opt_free(ggml_opt_context_t opt_ctx) {
    (void) opt_ctx;
}

void ggml_opt_reset(ggml_opt_context_t opt_ctx, bool optimizer) {
    (void) opt_ctx, (void) optimizer;
    not_built_in(__func__);
}

bool ggml_opt_static_graphs(ggml_opt_context_t opt_ctx) {
    (void) opt_ctx;
    return false;
}

struct ggml_tensor *ggml_opt_inputs(ggml_opt_context_t opt_ctx) {
    (void) opt_ctx;
    return not_built_in(__func__);
}

struct ggml_tensor *ggml_opt_outputs(ggml_opt_context_t opt_ctx) {
    (void) opt_ctx;
    return not_built_in(__func__);
}

struct ggml_tensor *ggml_opt_labels(ggml_opt_context_t opt_ctx) {
    (void) opt_ctx;
    return not_built_in(__func__);
}

struct ggml_tensor *ggml_opt_loss(ggml_opt_context_t opt_ctx) {
    (void) opt_ctx;
    return not_built_in(__func__);
}

struct ggml_tensor *ggml_opt_pred(ggml_opt_context_t opt_ctx) {
    (void) opt_ctx;
    return not_built_in(__func__);
}

struct ggml_tensor *ggml_opt_ncorrect(ggml_opt_context_t opt_ctx) {
    (void) opt_ctx;
    return not_built_in(__func__);
}

struct ggml_tensor *ggml_opt_grad_acc(ggml_opt_context_t opt_ctx, struct ggml_tensor *node) {
    (void) opt_ctx, (void) node;
    return not_built_in(__func__);
}

enum ggml_opt_optimizer_type ggml_opt_context_optimizer_type(ggml_opt_context_t opt_ctx) {
    (void) opt_ctx;
    not_built_in(__func__);
    return GGML_OPT_OPTIMIZER_TYPE_COUNT;
}

ggml_opt_result_t ggml_opt_result_init(void) {
    return not_built_in(__func__);
}

void ggml_opt_result_free(ggml_opt_result_t result) {
    (void) result;
}

void ggml_opt_result_reset(ggml_opt_result_t result) {
    (void) result;
    not_built_in(__func__);
}

void ggml_opt_result_ndata(ggml_opt_result_t result, int64_t *ndata) {
    (void) result;
    if (ndata != NULL) {
        *ndata = 0;
    }
    not_built_in(__func__);
}

static void no_figures(const char *func, double *figure, double *uncertainty) {
    if (figure != NULL) {
        *figure = 0.0;
    }
    if (uncertainty != NULL) {
        *uncertainty = 0.0;
    }
    not_built_in(func);
}

void ggml_opt_result_loss(ggml_opt_result_t result, double *loss, double *unc) {
    (void) result;
    no_figures(__func__, loss, unc);
}

void ggml_opt_result_pred(ggml_opt_result_t result, int32_t *pred) {
    (void) result, (void) pred;
    not_built_in(__func__);
}

void ggml_opt_result_accuracy(ggml_opt_result_t result, double *accuracy, double *unc) {
    (void) result;
    no_figures(__func__, accuracy, unc);
}

void ggml_opt_prepare_alloc(ggml_opt_context_t opt_ctx, struct ggml_context *ctx_compute, struct ggml_cgraph *gf,
    struct ggml_tensor *inputs, struct ggml_tensor *outputs) {
    (void) opt_ctx, (void) ctx_compute, (void) gf, (void) inputs, (void) outputs;
    not_built_in(__func__);
}

void ggml_opt_alloc(ggml_opt_context_t opt_ctx, bool backward) {
    (void) opt_ctx, (void) backward;
    not_built_in(__func__);
}

void ggml_opt_eval(ggml_opt_context_t opt_ctx, ggml_opt_result_t result) {
    (void) opt_ctx, (void) result;
    not_built_in(__func__);
}

void ggml_opt_epoch(ggml_opt_context_t opt_ctx, ggml_opt_dataset_t dataset, ggml_opt_result_t result_train,
    ggml_opt_result_t result_eval, int64_t idata_split, ggml_opt_epoch_callback callback_train,
    ggml_opt_epoch_callback callback_eval) {
    (void) opt_ctx, (void) dataset, (void) result_train, (void) result_eval, (void) idata_split;
    (void) callback_train, (void) callback_eval;
    not_built_in(__func__);
}

void ggml_opt_epoch_callback_progress_bar(bool train, ggml_opt_context_t opt_ctx, ggml_opt_dataset_t dataset,
    ggml_opt_result_t result, int64_t ibatch, int64_t ibatch_max, int64_t t_start_us) {
    (void) train, (void) opt_ctx, (void) dataset, (void) result, (void) ibatch, (void) ibatch_max, (void) t_start_us;
    not_built_in(__func__);
}

void ggml_opt_fit(ggml_backend_sched_t backend_sched, struct ggml_context *ctx_compute, struct ggml_tensor *inputs,
    struct ggml_tensor *outputs, ggml_opt_dataset_t dataset, enum ggml_opt_loss_type loss_type,
    enum ggml_opt_optimizer_type optimizer, ggml_opt_get_optimizer_params get_opt_pars, int64_t nepoch, int64_t nbatch_logical,
    float val_split, bool silent) {
    (void) backend_sched, (void) ctx_compute, (void) inputs, (void) outputs, (void) dataset, (void) loss_type;
    (void) optimizer, (void) get_opt_pars, (void) nepoch, (void) nbatch_logical, (void) val_split, (void) silent;
    not_built_in(__func__);
}
