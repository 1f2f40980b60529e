// SPDX-License-Identifier: MIT
// epoch.c: one pass over a data set: training batches, then validation batches. The text on stderr equals the reference's, byte for
// byte.

#include "core/op.h"

#include "base/min.h"
#include "opt/opt.h"

#include <math.h>

// Runs batches first to end - 1. False: an evaluation failed.
static bool batches_run(ggml_opt_context_t o, ggml_opt_dataset_t dataset, ggml_opt_result_t result,
    ggml_opt_epoch_callback callback, bool train, int64_t first, int64_t end) {
    const int64_t start_us = ggml_time_us();
    for (int64_t i = first; i < end; i++) {
        ggml_opt_alloc(o, train);
        if (o->status != GGML_STATUS_SUCCESS) {
            return false;
        }
        ggml_opt_dataset_get_batch(dataset, o->params.inputs, o->labels, i);
        ggml_opt_eval(o, result);
        if (o->status != GGML_STATUS_SUCCESS) {
            return false;
        }
        if (callback != NULL) {
            callback(train, o, dataset, result, i - first + 1, end - first, start_us);
        }
    }
    return true;
}

void ggml_opt_epoch(ggml_opt_context_t opt_ctx, ggml_opt_dataset_t dataset, ggml_opt_result_t result_train,
    ggml_opt_result_t result_eval, int64_t idata_split, ggml_opt_epoch_callback callback_train,
    ggml_opt_epoch_callback callback_eval) {
    if (opt_ctx == NULL || dataset == NULL) {
        berth_fail(GGML_STATUS_FAILED, "%s: the %s is NULL", __func__, opt_ctx == NULL ? "context" : "data set");
        return;
    }
    if (!opt_ctx->is_static) {
        opt_ctx->status = berth_fail(GGML_STATUS_FAILED, "%s: an epoch requires static graphs", __func__);
        return;
    }
    const struct ggml_tensor *inputs = opt_ctx->params.inputs;
    const int64_t batch = ggml_nelements(inputs) / dataset->data->ne[0]; // data per batch
    const int64_t split = idata_split < 0 ? dataset->ndata : idata_split;
    if (batch < 1 || ggml_nelements(inputs) % dataset->data->ne[0] != 0 || split > dataset->ndata || split % batch != 0 ||
        batch % dataset->ndata_shard != 0) {
        opt_ctx->status = berth_fail(GGML_STATUS_FAILED,
            "%s: %lld of %lld data are for training: this number must be a multiple of the batch size %lld, and the batch size a "
            "multiple of the shard size %lld",
            __func__, (long long) split, (long long) dataset->ndata, (long long) batch, (long long) dataset->ndata_shard);
        return;
    }
    if (batches_run(opt_ctx, dataset, result_train, callback_train, true, 0, split / batch)) {
        batches_run(opt_ctx, dataset, result_eval, callback_eval, false, split / batch, dataset->ndata / batch);
    }
}

// ---- progress ----

#define CELLS 8

// The last character is never completely full.
static void print_bar(double part) {
    static const char *const widths[] = {" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
    for (int i = 0; i < CELLS; i++) {
        const double rest = part * CELLS - i;
        const int width = rest <= 0 ? 0 : (int) (rest * 8);
        fputs(rest > 1 ? "█" : widths[min_int(width, 7)], stderr);
    }
}

static void print_time(const char *name, int64_t seconds) {
    fprintf(stderr, "%s%02lld:%02lld:%02lld", name, (long long) seconds / 3600, (long long) seconds / 60 % 60,
        (long long) seconds % 60);
}

void ggml_opt_epoch_callback_progress_bar(bool train, ggml_opt_context_t opt_ctx, ggml_opt_dataset_t dataset,
    ggml_opt_result_t result, int64_t ibatch, int64_t ibatch_max, int64_t t_start_us) {
    (void) dataset;
    if (opt_ctx == NULL || opt_ctx->params.outputs == NULL || ibatch < 1) {
        return;
    }
    const int64_t batch = opt_ctx->params.outputs->ne[1], us = ggml_time_us() - t_start_us;
    double loss, loss_unc, accuracy, accuracy_unc;
    ggml_opt_result_loss(result, &loss, &loss_unc);
    ggml_opt_result_accuracy(result, &accuracy, &accuracy_unc);
    fputs(train ? "train: [" : "val:   [", stderr);
    print_bar((double) ibatch / (double) ibatch_max);
    fprintf(stderr, "] data=%07lld/%07lld loss=%.5lf±%.5lf acc=%.2lf±%.2lf%% ", (long long) (ibatch * batch),
        (long long) (ibatch_max * batch), loss, loss_unc, 100.0 * accuracy, 100.0 * accuracy_unc);
    print_time("t=", us / 1000000);
    print_time(" ETA=", us * (ibatch_max - ibatch) / ibatch / 1000000);
    fputs(" \r", stderr);
    if (ibatch == ibatch_max) {
        fputc('\n', stderr);
    }
    fflush(stderr);
}

// ---- fitting ----

struct fit {
    ggml_opt_context_t o;
    ggml_opt_dataset_t dataset;
    ggml_opt_result_t train, val;
    int64_t n_epoch, epoch; // epoch: current epoch, from 1; the program's get_opt_pars gets a pointer to it
    int64_t split;          // number of training data
    int64_t logical;        // data per optimiser step
    bool silent;
};

static void fit_run(struct fit *f) {
    const ggml_opt_epoch_callback bar = f->silent ? NULL : ggml_opt_epoch_callback_progress_bar;
    const int64_t start_us = ggml_time_us();
    if (f->logical < f->dataset->ndata) {
        ggml_opt_dataset_shuffle(f->o, f->dataset, -1);
    }
    for (; f->epoch <= f->n_epoch && f->o->status == GGML_STATUS_SUCCESS; f->epoch++) {
        if (f->logical < f->split) {
            ggml_opt_dataset_shuffle(f->o, f->dataset, f->split);
        }
        ggml_opt_result_reset(f->train);
        ggml_opt_result_reset(f->val);
        if (!f->silent) {
            fprintf(stderr, "ggml_opt_fit: epoch %04lld/%04lld:\n", (long long) f->epoch, (long long) f->n_epoch);
        }
        ggml_opt_epoch(f->o, f->dataset, f->train, f->val, f->split, bar, bar);
        if (!f->silent) {
            fputc('\n', stderr);
        }
    }
    if (!f->silent) {
        print_time("ggml_opt_fit: training took ", (ggml_time_us() - start_us) / 1000000);
        fputc('\n', stderr);
    }
}

void ggml_opt_fit(ggml_backend_sched_t backend_sched, struct ggml_context *ctx_compute, struct ggml_tensor *inputs,
    struct ggml_tensor *outputs, ggml_opt_dataset_t dataset, enum ggml_opt_loss_type loss_type,
    enum ggml_opt_optimizer_type optimizer, ggml_opt_get_optimizer_params get_opt_pars, int64_t nepoch, int64_t nbatch_logical,
    float val_split, bool silent) {
    if (inputs == NULL || outputs == NULL || dataset == NULL) {
        berth_fail(GGML_STATUS_FAILED, "%s: inputs, outputs or dataset is NULL", __func__);
        return;
    }
    const int64_t physical = ggml_nelements(inputs) / dataset->data->ne[0];
    if (physical < 1 || nbatch_logical < 1 || nbatch_logical % physical != 0 || dataset->ndata % nbatch_logical != 0 ||
        nbatch_logical / physical > INT32_MAX || !(val_split >= 0.0f && val_split < 1.0f)) {
        berth_fail(GGML_STATUS_FAILED,
            "%s: %lld data, %lld per step, %lld per batch: each must be a multiple of the next; val_split %g must be from 0 to "
            "below 1",
            __func__, (long long) dataset->ndata, (long long) nbatch_logical, (long long) physical, (double) val_split);
        return;
    }
    struct fit f = {.dataset = dataset, .n_epoch = nepoch, .epoch = 1, .logical = nbatch_logical, .silent = silent};
    struct ggml_opt_params params = ggml_opt_default_params(backend_sched, loss_type);
    params.ctx_compute = ctx_compute;
    params.inputs = inputs;
    params.outputs = outputs;
    params.opt_period = (int32_t) (nbatch_logical / physical);
    params.get_opt_pars = get_opt_pars;
    params.get_opt_pars_ud = &f.epoch;
    params.optimizer = optimizer;
    f.split = (int64_t) ((1.0f - val_split) * (float) (dataset->ndata / nbatch_logical)) * nbatch_logical;
    f.o = ggml_opt_init(params);
    f.train = ggml_opt_result_init();
    f.val = ggml_opt_result_init();
    if (f.o != NULL && f.train != NULL && f.val != NULL) {
        fit_run(&f);
    }
    ggml_opt_free(f.o);
    ggml_opt_result_free(f.train);
    ggml_opt_result_free(f.val);
}
