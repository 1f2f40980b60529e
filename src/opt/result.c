// SPDX-License-Identifier: MIT
// result.c: the losses and counts of several evaluations, and the uncertainty of their means. The ggml_opt_result_* functions
// accept NULL as a result.

#include "opt/opt.h"

#include "base/min.h"

#include <math.h>
#include <string.h>

ggml_opt_result_t ggml_opt_result_init(void) {
    struct ggml_opt_result *result = berth_calloc(1, sizeof *result);
    if (result != NULL) {
        result->ncorrect = -1;
    }
    return result;
}

void ggml_opt_result_free(ggml_opt_result_t result) {
    if (result != NULL) {
        berth_free(result->losses);
        berth_free(result->preds);
        berth_free(result);
    }
}

void ggml_opt_result_reset(ggml_opt_result_t result) {
    if (result != NULL) {
        result->ndata = 0;
        result->n_losses = 0;
        result->n_preds = 0;
        result->ncorrect = -1;
    }
}

enum ggml_status opt_result_add(struct ggml_opt_result *result, const struct opt_outcome *outcome) {
    const size_t n = outcome->preds != NULL ? (size_t) outcome->ndata : 0;
    if (!berth_grow((void **) &result->losses, &result->losses_cap, result->n_losses + 1, sizeof result->losses[0]) ||
        (n > 0 && !berth_grow((void **) &result->preds, &result->preds_cap, result->n_preds + n, sizeof result->preds[0]))) {
        return berth_fail(
            GGML_STATUS_ALLOC_FAILED, "ggml_opt_eval: no memory for the result of %zu evaluations", result->n_losses);
    }
    result->losses[result->n_losses++] = outcome->loss;
    result->is_mean = outcome->is_mean;
    result->ndata += outcome->ndata;
    if (n > 0) {
        memcpy(result->preds + result->n_preds, outcome->preds, n * sizeof result->preds[0]);
        result->n_preds += n;
    }
    if (outcome->ncorrect >= 0) {
        result->ncorrect = max_i64(result->ncorrect, 0) + outcome->ncorrect;
    }
    return GGML_STATUS_SUCCESS;
}

void ggml_opt_result_ndata(ggml_opt_result_t result, int64_t *ndata) {
    if (ndata != NULL) {
        *ndata = result != NULL ? result->ndata : 0;
    }
}

static void figure_set(double *figure, double value, double *uncertainty, double spread) {
    if (figure != NULL) {
        *figure = value;
    }
    if (uncertainty != NULL) {
        *uncertainty = spread;
    }
}

// If the losses are means, *loss is their mean and *unc the standard error of this mean. If the losses are sums, *loss is their
// sum and *unc the standard deviation of the single losses.
void ggml_opt_result_loss(ggml_opt_result_t result, double *loss, double *unc) {
    const size_t n = result != NULL ? result->n_losses : 0;
    if (n == 0) {
        figure_set(loss, 0.0, unc, NAN);
        return;
    }
    double sum = 0, squares = 0;
    for (size_t i = 0; i < n; i++) {
        sum += (double) result->losses[i];
    }
    const double mean = sum / (double) n;
    for (size_t i = 0; i < n; i++) {
        const double d = (double) result->losses[i] - mean;
        squares += d * d;
    }
    const double variance = n > 1 ? squares / (double) (n - 1) : NAN;
    figure_set(loss, result->is_mean ? mean : sum, unc, sqrt(result->is_mean ? variance / (double) n : variance));
}

// pred must have as many entries as ggml_opt_result_ndata returns.
void ggml_opt_result_pred(ggml_opt_result_t result, int32_t *pred) {
    if (result != NULL && pred != NULL && result->n_preds > 0) {
        memcpy(pred, result->preds, result->n_preds * sizeof pred[0]);
    }
}

void ggml_opt_result_accuracy(ggml_opt_result_t result, double *accuracy, double *unc) {
    const bool counted = result != NULL && result->ncorrect >= 0 && result->ndata > 0;
    const double p = counted ? (double) result->ncorrect / (double) result->ndata : NAN;
    const bool has_uncertainty = counted && result->ndata > 1;
    figure_set(accuracy, p, unc, has_uncertainty ? sqrt(p * (1.0 - p) / (double) (result->ndata - 1)) : NAN);
}
