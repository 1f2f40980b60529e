// SPDX-License-Identifier: MIT
// eval.c: allocates and computes a graph. If the loss is not finite, the computation stops before the backward pass, so that the
// parameters keep their values. A second forward pass then searches for the first tensor that is not finite. The program's own eval
// callback is called in the first pass only.

#include "core/graph.h"
#include "core/op.h"
#include "ggml-backend.h"
#include "opt/opt.h"
#include "sched/sched.h"

#include <math.h>

// ---- memory ----

void ggml_opt_prepare_alloc(ggml_opt_context_t opt_ctx, struct ggml_context *ctx_compute, struct ggml_cgraph *gf,
    struct ggml_tensor *inputs, struct ggml_tensor *outputs) {
    if (opt_ctx == NULL) {
        return;
    }
    if (opt_ctx->is_static || ctx_compute == NULL || gf == NULL || inputs == NULL || outputs == NULL) {
        opt_ctx->status = berth_fail(GGML_STATUS_FAILED, "%s: %s", __func__,
            opt_ctx->is_static ? "the graphs are static" : "context, graph, inputs or outputs are NULL");
        return;
    }
    opt_ctx->ctx_compute = ctx_compute;
    opt_ctx->forward = gf;
    opt_ctx->params.inputs = inputs;
    opt_ctx->params.outputs = outputs;
    opt_ctx->status = GGML_STATUS_SUCCESS;
}

// Chooses the graph of a pass: `forward` without a backward pass, `step` at the end of a period, otherwise `grad`. If the
// context's build_type does not include the chosen graph, the largest graph that it includes is used.
static enum ggml_opt_build_type kind_of(const struct ggml_opt_context *o, bool backward) {
    const bool completes_period = (o->i_period + 1) % o->params.opt_period == 0;
    const enum ggml_opt_build_type all = completes_period ? GGML_OPT_BUILD_TYPE_OPT : GGML_OPT_BUILD_TYPE_GRAD;
    const enum ggml_opt_build_type pass_kind = backward ? all : GGML_OPT_BUILD_TYPE_FORWARD;
    return pass_kind < o->params.build_type ? pass_kind : o->params.build_type;
}

static struct ggml_cgraph *graph_of(const struct ggml_opt_context *o, enum ggml_opt_build_type kind) {
    if (kind == GGML_OPT_BUILD_TYPE_OPT) {
        return o->step;
    }
    return kind == GGML_OPT_BUILD_TYPE_GRAD ? o->grad : o->forward;
}

void ggml_opt_alloc(ggml_opt_context_t opt_ctx, bool backward) {
    struct ggml_opt_context *o = opt_ctx;
    if (o == NULL) {
        return;
    }
    const enum ggml_opt_build_type kind = kind_of(o, backward);
    o->ready = NULL;
    if (!o->is_static) {
        if (o->forward == NULL) {
            o->status = berth_fail(GGML_STATUS_FAILED, "%s: there is no graph, call ggml_opt_prepare_alloc first", __func__);
            return;
        }
        o->status = opt_build(o, kind);
        if (o->status != GGML_STATUS_SUCCESS) {
            return;
        }
    }
    struct ggml_cgraph *graph = graph_of(o, kind);
    ggml_backend_sched_reset(o->params.backend_sched);
    if (graph == NULL || !ggml_backend_sched_alloc_graph(o->params.backend_sched, graph)) {
        o->status = GGML_STATUS_ALLOC_FAILED;
        return;
    }
    if (kind != GGML_OPT_BUILD_TYPE_FORWARD && o->i_period == 0) {
        opt_states_zero(o, false);
    }
    o->ready = graph;
    o->status = GGML_STATUS_SUCCESS;
}

// ---- the optimiser's hyperparameters ----

static bool f32_between(float x, float low, float high) {
    return x >= low && x <= high; // false for NaN
}

static enum ggml_status optimizer_params_set(struct ggml_opt_context *o) {
    const struct ggml_opt_optimizer_params p = o->params.get_opt_pars(o->params.get_opt_pars_ud);
    float numbers[7];
    size_t n;
    if (o->params.optimizer == GGML_OPT_OPTIMIZER_TYPE_SGD) {
        if (!f32_between(p.sgd.alpha, 0.0f, INFINITY) || !f32_between(p.sgd.wd, 0.0f, 1.0f)) {
            return berth_fail(GGML_STATUS_FAILED, "ggml_opt_eval: sgd: alpha %g must not be negative, wd %g must be 0 to 1",
                (double) p.sgd.alpha, (double) p.sgd.wd);
        }
        numbers[0] = p.sgd.alpha;
        numbers[1] = p.sgd.wd;
        n = 2;
    } else {
        if (!f32_between(p.adamw.alpha, 0.0f, INFINITY) || !f32_between(p.adamw.beta1, 0.0f, 1.0f) ||
            !f32_between(p.adamw.beta2, 0.0f, 1.0f) || !f32_between(p.adamw.eps, 0.0f, INFINITY) ||
            !f32_between(p.adamw.wd, 0.0f, 1.0f)) {
            return berth_fail(GGML_STATUS_FAILED,
                "ggml_opt_eval: adamw: alpha %g, beta1 %g, beta2 %g, eps %g, wd %g: none may be negative, betas and wd at most 1",
                (double) p.adamw.alpha, (double) p.adamw.beta1, (double) p.adamw.beta2, (double) p.adamw.eps,
                (double) p.adamw.wd);
        }
        memcpy(numbers, &p.adamw, 5 * sizeof numbers[0]);
        numbers[5] = 1.0f / (1.0f - powf(p.adamw.beta1, (float) o->iter));
        numbers[6] = 1.0f / (1.0f - powf(p.adamw.beta2, (float) o->iter));
        n = 7;
    }
    ggml_backend_tensor_set(o->numbers, numbers, 0, n * sizeof numbers[0]);
    return GGML_STATUS_SUCCESS;
}

// ---- computing with a check of the loss ----

struct watch {
    const struct ggml_opt_context *o;
    ggml_backend_sched_eval_callback user_callback;
    void *user_data;
    bool user_watches;
    bool is_search;          // true: the second pass, which searches for the first tensor that is not finite
    float loss;              // loss of the first pass; NaN until it is computed
    struct ggml_tensor *bad; // result of the second pass; NULL: not found
};

// Returns true if a float tensor contains NaN or +infinity. -infinity is accepted, because attention masks contain it.
static bool is_bad(const struct ggml_tensor *t) {
    const ggml_to_float_t widen = t->type == GGML_TYPE_F32 ? NULL : ggml_get_type_traits(t->type)->to_float;
    const size_t row_size = ggml_row_size(t->type, t->ne[0]);
    if ((t->type != GGML_TYPE_F32 && t->type != GGML_TYPE_F16 && t->type != GGML_TYPE_BF16) || !ggml_is_contiguous(t) ||
        ggml_is_empty(t)) {
        return false;
    }
    float *row = berth_malloc((size_t) t->ne[0] * sizeof *row);
    void *raw = widen != NULL ? berth_malloc(row_size) : row;
    bool bad = false;
    for (int64_t i = 0; i < ggml_nrows(t) && row != NULL && raw != NULL && !bad; i++) {
        ggml_backend_tensor_get(t, raw, (size_t) i * row_size, row_size);
        if (widen != NULL) {
            widen(raw, row, t->ne[0]);
        }
        for (int64_t k = 0; k < t->ne[0]; k++) {
            bad = bad || isnan(row[k]) || row[k] == INFINITY;
        }
    }
    if (raw != row) {
        berth_free(raw);
    }
    berth_free(row);
    return bad;
}

static bool watch_loss(struct watch *w, struct ggml_tensor *t) {
    ggml_backend_tensor_get(t, &w->loss, 0, sizeof w->loss);
    return isfinite(w->loss) != 0;
}

static bool on_node(struct ggml_tensor *t, bool ask, void *data) {
    struct watch *w = data;
    if (w->is_search) {
        if (!ask && is_bad(t)) {
            w->bad = t;
        }
        return ask || (w->bad == NULL && t != w->o->loss);
    }
    if (ask) {
        w->user_watches = w->user_callback != NULL && w->user_callback(t, true, w->user_data);
        return w->user_watches || t == w->o->loss;
    }
    const bool go_on = !w->user_watches || w->user_callback(t, false, w->user_data);
    return (t != w->o->loss || watch_loss(w, t)) && go_on;
}

static enum ggml_status ready_compute(struct ggml_opt_context *o, struct watch *w) {
    ggml_backend_sched_t sched = o->params.backend_sched;
    w->user_callback = sched->callback;
    w->user_data = sched->callback_data;
    ggml_backend_sched_set_eval_callback(sched, on_node, w);
    const enum ggml_status status = ggml_backend_sched_graph_compute(sched, o->ready);
    ggml_backend_sched_set_eval_callback(sched, w->user_callback, w->user_data);
    return status;
}

// Checks inputs, parameters and the nodes up to the loss.
static const struct ggml_tensor *find_bad(struct ggml_opt_context *o) {
    for (int i = 0; i < o->ready->n_leafs; i++) {
        if ((o->ready->leafs[i]->flags & GGML_TENSOR_FLAG_INPUT) != 0 && is_bad(o->ready->leafs[i])) {
            return o->ready->leafs[i];
        }
    }
    for (int i = 0; i < o->ready->n_nodes; i++) {
        if (o->ready->nodes[i]->op == GGML_OP_NONE && is_bad(o->ready->nodes[i])) {
            return o->ready->nodes[i];
        }
    }
    struct watch w = {.o = o, .is_search = true};
    return ready_compute(o, &w) == GGML_STATUS_SUCCESS ? w.bad : NULL;
}

static enum ggml_status report_bad(struct ggml_opt_context *o, float loss) {
    const struct ggml_tensor *bad = find_bad(o);
    return berth_fail(GGML_STATUS_FAILED,
        "ggml_opt_eval: step %lld: the loss is %g, no step was taken; first tensor that is not finite: %s (%s)",
        (long long) o->iter, (double) loss, bad != NULL ? bad->name : "the loss itself",
        bad != NULL ? ggml_op_desc(bad) : ggml_op_desc(o->loss));
}

// ---- evaluation ----

static enum ggml_status result_add(struct ggml_opt_context *o, struct ggml_opt_result *result, float loss) {
    struct opt_outcome out = {
        .loss = loss * o->loss_scale, .is_mean = o->loss_is_mean, .ndata = o->params.outputs->ne[1], .ncorrect = -1};
    int32_t *preds = NULL;
    if (o->pred != NULL) {
        preds = berth_malloc(ggml_nbytes(o->pred));
        if (preds == NULL) {
            return GGML_STATUS_ALLOC_FAILED;
        }
        if (isfinite(loss)) { // otherwise pred and ncorrect were not computed
            ggml_backend_tensor_get(o->pred, preds, 0, ggml_nbytes(o->pred));
            ggml_backend_tensor_get(o->ncorrect, &out.ncorrect, 0, sizeof out.ncorrect);
        } else {
            memset(preds, 0, ggml_nbytes(o->pred));
            out.ncorrect = 0;
        }
        out.preds = preds;
    }
    const enum ggml_status status = opt_result_add(result, &out);
    berth_free(preds);
    return status;
}

static enum ggml_status ready_eval(struct ggml_opt_context *o, struct ggml_opt_result *result) {
    const bool is_step = o->ready == o->step && o->step != NULL;
    if (is_step) {
        const enum ggml_status status = optimizer_params_set(o);
        if (status != GGML_STATUS_SUCCESS) {
            return status;
        }
    }
    struct watch w = {.o = o, .loss = NAN};
    enum ggml_status status = ready_compute(o, &w);
    if (status != GGML_STATUS_SUCCESS) {
        return status;
    }
    const bool is_sound = isfinite(w.loss) != 0;
    if (!is_sound) {
        status = report_bad(o, w.loss);
    } else if (o->ready != o->forward) {
        o->i_period = (o->i_period + 1) % o->params.opt_period;
        o->iter += is_step;
    }
    if (result != NULL) {
        const enum ggml_status added = result_add(o, result, w.loss);
        if (status == GGML_STATUS_SUCCESS) {
            status = added;
        }
    }
    return status;
}

void ggml_opt_eval(ggml_opt_context_t opt_ctx, ggml_opt_result_t result) {
    if (opt_ctx == NULL) {
        return;
    }
    if (opt_ctx->ready == NULL) {
        opt_ctx->status =
            berth_fail(GGML_STATUS_FAILED, "%s: there is no graph to evaluate, call ggml_opt_alloc first", __func__);
        return;
    }
    opt_ctx->status = ready_eval(opt_ctx, result);
    opt_ctx->ready = NULL;
    if (!opt_ctx->is_static) { // the caller may free these graphs now
        opt_ctx->forward = opt_ctx->grad = opt_ctx->step = NULL;
        opt_ctx->params.inputs = opt_ctx->params.outputs = NULL;
    }
}
