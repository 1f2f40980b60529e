// SPDX-License-Identifier: MIT
// trainer.c: computes training steps. Masks, positions and labels are written before every step, because the allocator may let
// other tensors of the graph reuse their memory.

#include "base/min.h"
#include "train/train.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define BETA1 0.9f
#define BETA2 0.95f
#define EPSILON 1e-8f

// ---- creation and destruction ----

static bool params_check(const struct model *m, const struct train_params *p, struct model_error *error) {
    if (p->n_ctx < 1 || p->n_seq < 1 || p->n_steps < 0 || p->rank < 0 || p->n_ctx > INT32_MAX / p->n_seq) {
        return model_fail(error, "invalid run: %" PRId64 " sequences of %" PRId64 " tokens, %" PRId64 " steps, rank %" PRId64,
            p->n_seq, p->n_ctx, p->n_steps, p->rank);
    }
    if (p->world != NULL && p->n_seq % p->world->n_ranks != 0) {
        return model_fail(
            error, "%" PRId64 " sequences per step cannot be divided evenly among %d ranks", p->n_seq, p->world->n_ranks);
    }
    if (m->params.n_expert > 0) { // the selection of experts has no gradient
        return model_fail(error, "a model with %" PRId64 " experts cannot be trained; only dense models can", m->params.n_expert);
    }
    if (p->rank > m->params.n_embd) {
        return model_fail(error, "adapter rank %" PRId64 " is greater than the embedding length %" PRId64 " of the model",
            p->rank, m->params.n_embd);
    }
    return true;
}

struct trainer *trainer_new(
    struct model *model, const struct model_devices *devices, const struct train_params *params, struct model_error *error) {
    if ((model->params.desc->has & ARCH_STATE) != 0) {
        model_fail(error, "models of architecture %s cannot be trained: their state has no gradient", model->params.arch);
        return NULL;
    }
    struct trainer *t = params_check(model, params, error) ? berth_calloc(1, sizeof *t) : NULL;
    if (t == NULL) {
        model_fail(error, "out of memory");
        return NULL;
    }
    t->model = model;
    t->devices = devices;
    t->params = *params;
    t->cost_ratio = 1;
    t->losses = berth_calloc((size_t) params->n_steps + 1, sizeof *t->losses);
    if (t->losses == NULL) {
        model_fail(error, "out of memory for the losses of %" PRId64 " steps", params->n_steps);
    }
    if (t->losses == NULL || !train_ranks_make(t, error) || !train_tensors_make(t, error) || !train_graph_step(t, error) ||
        !train_graph_learn(t, error)) {
        trainer_free(t);
        return NULL;
    }
    return t;
}

void trainer_free(struct trainer *t) {
    if (t == NULL) {
        return;
    }
    train_graph_fini(&t->learn);
    train_graph_fini(&t->evaluate);
    train_graph_fini(&t->step);
    train_tensors_free(t);
    berth_free(t->losses);
    berth_free(t->evaluations);
    berth_free(t->sums);
    berth_free(t);
}

// ---- inputs ----

// A token attends to itself and to earlier tokens within the window. mask may be NULL.
static void mask_set(struct trainer *t, struct ggml_tensor *mask, int64_t window) {
    const ggml_fp16_t visible = ggml_fp32_to_fp16(0), hidden = ggml_fp32_to_fp16(-INFINITY);
    const int64_t n = mask != NULL ? t->params.n_ctx : 0;
    ggml_fp16_t *row = (ggml_fp16_t *) (void *) t->row;
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = 0; j < n; j++) {
            row[j] = j <= i && j > i - window ? visible : hidden;
        }
        ggml_backend_tensor_set(mask, row, (size_t) (i * n) * sizeof *row, (size_t) n * sizeof *row);
    }
}

static void masks_set(struct trainer *t, const struct graph_inputs *in) {
    mask_set(t, in->mask, t->params.n_ctx);
    mask_set(t, in->window, t->model->params.n_window);
}

static void positions_set(struct trainer *t, struct ggml_tensor *pos) {
    int32_t *row = (int32_t *) (void *) t->row;
    for (int64_t i = 0; i < t->params.n_ctx; i++) {
        row[i] = (int32_t) i;
    }
    ggml_backend_tensor_set(pos, row, 0, (size_t) t->params.n_ctx * sizeof *row);
}

// Writes the tokens and labels of sequence s. The label of a token is the next token. If !counts, all labels are 0, so the
// sequence adds nothing to the loss.
static void window_set(struct trainer *t, struct train_graph *g, int64_t s, const int32_t *tokens, bool counts) {
    const int64_t n = t->params.n_ctx, n_vocab = t->model->params.n_vocab;
    const size_t size = (size_t) n_vocab * sizeof *t->row;
    ggml_backend_tensor_set(g->in.tokens, tokens, (size_t) (s * n) * sizeof *tokens, (size_t) n * sizeof *tokens);
    memset(t->row, 0, size);
    for (int64_t i = 0; i < n; i++) {
        t->row[tokens[i + 1]] = counts ? 1 : 0;
        ggml_backend_tensor_set(g->labels, t->row, (size_t) (s * n + i) * size, size);
        t->row[tokens[i + 1]] = 0;
    }
}

static bool graph_compute(struct train_graph *g, struct model_error *error) {
    const enum ggml_status status = ggml_backend_sched_graph_compute(g->sched, g->graph);
    return status == GGML_STATUS_SUCCESS ||
           model_fail(error, "%s", status == GGML_STATUS_ABORTED ? "computation was interrupted" : berth_last_error());
}

static float loss_get(const struct train_graph *g) {
    float loss;
    ggml_backend_tensor_get(g->loss, &loss, 0, sizeof loss);
    return loss;
}

// ---- parts of a step ----

float train_rate(const struct train_params *p, int64_t step) {
    if (step < p->n_warmup) {
        return p->lr * (float) (step + 1) / (float) p->n_warmup;
    }
    const double part = p->n_steps > p->n_warmup ? (double) (step - p->n_warmup) / (double) (p->n_steps - p->n_warmup) : 0;
    switch (p->schedule) {
        case TRAIN_COSINE: return (float) ((double) p->lr * (0.5 + 0.5 * cos(3.14159265358979323846 * fmin(part, 1))));
        case TRAIN_LINEAR: return (float) ((double) p->lr * (1 - fmin(part, 1)));
        default: return p->lr;
    }
}

// The sum has a fixed order, so that every run gets the same value.
static double gradient_norm(struct trainer *t) {
    double sum = 0;
    for (size_t i = 0; i < t->n_tensors; i++) {
        const int64_t n = ggml_nelements(t->tensors[i].grad), row = (int64_t) t->row_size;
        for (int64_t at = 0; at < n; at += row) {
            const int64_t step = min_i64(n - at, row);
            double part[4] = {0};
            ggml_backend_tensor_get(t->tensors[i].grad, t->row, (size_t) at * sizeof *t->row, (size_t) step * sizeof *t->row);
            for (int64_t k = 0; k < step; k++) {
                part[k & 3] += (double) t->row[k] * (double) t->row[k];
            }
            sum += part[0] + part[1] + part[2] + part[3];
        }
    }
    return sqrt(sum);
}

static void rates_set(struct trainer *t) {
    const struct train_params *p = &t->params;
    const float lr = train_rate(p, t->n_done);
    const double n = (double) t->n_done + 1;
    const float adamw[7] = {lr, BETA1, BETA2, EPSILON, p->decay, (float) (1 / (1 - pow((double) BETA1, n))),
        (float) (1 / (1 - pow((double) BETA2, n)))};
    const float sgd[2] = {lr, p->decay};
    const float shrink = p->clip > 0 && t->grad_norm > (double) p->clip ? (float) ((double) p->clip / t->grad_norm) : 1;
    for (int d = 0; d < t->devices->n; d++) {
        ggml_backend_tensor_set(
            t->rates[d], p->optimizer == GGML_OPT_OPTIMIZER_TYPE_ADAMW ? adamw : sgd, 0, ggml_nbytes(t->rates[d]));
        ggml_backend_tensor_set(t->shrink[d], &shrink, 0, sizeof shrink);
    }
}

static bool train_learn(struct trainer *t, struct train_data *data, struct model_error *error) {
    const struct train_params *p = &t->params;
    for (int d = 0; d < t->devices->n; d++) {
        if (t->grads[d].buffer != NULL) {
            ggml_backend_buffer_clear(t->grads[d].buffer, 0);
        }
    }
    masks_set(t, &t->learn.in);
    positions_set(t, t->learn.in.pos);
    const int64_t first = t->n_done * p->n_seq + train_first_local(p);
    for (int64_t s = 0; s < train_n_local(p); s++) {
        window_set(t, &t->learn, s, train_data_window(data, p->seed, first + s), true);
    }
    return graph_compute(&t->learn, error);
}

// ---- search for the first value that is not finite ----

// The weights are checked first. Then the failed step is computed again until a node has a value that is not finite.
struct fault_search {
    struct trainer *t;
    const struct ggml_tensor *found;
};

// Returns true without a check if the tensor is not contiguous or not f32. The graph does not compute tensors of other types.
static bool is_all_finite(struct trainer *t, const struct ggml_tensor *x) {
    const int64_t n = ggml_nelements(x), row = (int64_t) t->row_size;
    if (x->type != GGML_TYPE_F32 || !ggml_is_contiguous(x)) {
        return true;
    }
    for (int64_t at = 0; at < n; at += row) {
        const int64_t step = min_i64(n - at, row);
        ggml_backend_tensor_get(x, t->row, (size_t) at * sizeof *t->row, (size_t) step * sizeof *t->row);
        for (int64_t i = 0; i < step; i++) {
            if (!isfinite(t->row[i])) {
                return false;
            }
        }
    }
    return true;
}

// Eval callback of the scheduler. Called before a node is computed (ask) and afterwards. Returning false stops the graph.
static bool on_node(struct ggml_tensor *node, bool ask, void *user) {
    struct fault_search *fault_search = user;
    if (ask) {
        return true;
    }
    if (!is_all_finite(fault_search->t, node)) {
        fault_search->found = node;
    }
    return fault_search->found == NULL;
}

static bool fault_report(struct trainer *t, struct train_data *data, const char *what, struct model_error *error) {
    struct fault_search fault_search = {.t = t};
    struct model_error why = {""};
    for (size_t i = 0; i < t->n_tensors && fault_search.found == NULL; i++) {
        fault_search.found = is_all_finite(t, t->tensors[i].w) ? NULL : t->tensors[i].w;
    }
    if (fault_search.found == NULL) {
        ggml_backend_sched_set_eval_callback(t->learn.sched, on_node, &fault_search);
        (void) train_learn(t, data, &why); // expected to fail
        ggml_backend_sched_set_eval_callback(t->learn.sched, NULL, NULL);
    }
    const struct ggml_tensor *x = fault_search.found;
    char name[96 + GGML_MAX_NAME] = "repeating the step does not reproduce it";
    if (x == NULL && t->params.world != NULL) {
        snprintf(
            name, sizeof name, "rank %d of %d has no tensor with such a value", t->params.world->rank, t->params.world->n_ranks);
    }
    if (x != NULL) {
        snprintf(name, sizeof name, "the first tensor with such a value is '%s' (%s)", x->name,
            x->op == GGML_OP_NONE ? "a weight" : ggml_op_desc(x));
    }
    return model_fail(error, "step %" PRId64 ": the %s is not a finite number; %s", t->n_done + 1, what, name);
}

// ---- steps ----

bool trainer_step(struct trainer *t, struct train_data *data, struct model_error *error) {
    if (t->n_done >= t->params.n_steps) {
        return model_fail(error, "all %" PRId64 " steps are done", t->params.n_steps);
    }
    const bool ok = train_learn(t, data, error);
    float loss = ok ? loss_get(&t->learn) : 0;
    if (!train_ranks_loss(t, ok, &loss, error) || (isfinite(loss) && !train_ranks_sum(t, error))) {
        return false;
    }
    t->grad_norm = isfinite(loss) ? gradient_norm(t) : 0;
    if (!isfinite(loss) || !isfinite(t->grad_norm)) {
        return fault_report(t, data, isfinite(loss) ? "gradient" : "loss", error);
    }
    rates_set(t);
    if (!graph_compute(&t->step, error)) {
        return false;
    }
    t->losses[t->n_done++] = loss;
    return true;
}

// ---- validation ----

static bool evaluation_add(struct trainer *t, float loss, struct model_error *error) {
    if (!berth_grow((void **) &t->evaluations, &t->cap_evaluations, t->n_evaluations + 1, sizeof *t->evaluations)) {
        return model_fail(error, "out of memory for %zu losses", t->n_evaluations + 1);
    }
    t->evaluations[t->n_evaluations++] = (struct train_evaluation){t->n_done, loss};
    return true;
}

// Evaluates at most train_n_local windows, from window `at` on. Adds their losses to *sum.
static bool windows_evaluate(
    struct trainer *t, const struct train_data *data, int64_t at, double *sum, struct model_error *error) {
    const int64_t n_local = train_n_local(&t->params);
    masks_set(t, &t->evaluate.in);
    positions_set(t, t->evaluate.in.pos);
    for (int64_t s = 0; s < n_local; s++) { // the last batch may be only partly filled
        const bool counts = at + s < data->n_windows;
        window_set(t, &t->evaluate, s, train_data_plain(data, counts ? at + s : 0), counts);
    }
    if (!graph_compute(&t->evaluate, error)) {
        return false;
    }
    // The loss is a mean over n_local windows. Windows that do not count add 0 to it.
    *sum += (double) loss_get(&t->evaluate) * (double) n_local;
    return true;
}

bool trainer_evaluate(struct trainer *t, const struct train_data *data, bool (*stop)(void *), struct model_error *error) {
    const struct train_params *p = &t->params;
    double sum = 0;
    bool ok = train_graph_evaluate(t, error);
    for (int64_t at = 0; at < data->n_windows; at += p->n_seq) {
        if (!train_ranks_stop(t, stop != NULL && stop(NULL), error)) {
            return false;
        }
        if (t->is_stopped) {
            return model_fail(error, "computation was interrupted");
        }
        if (ok) { // a rank that has failed computes nothing more, but still takes part in the sums of train_ranks_stop
            ok = windows_evaluate(t, data, at + train_first_local(p), &sum, error);
        }
    }
    // train_ranks_loss divides by the number of ranks.
    float loss = (float) (sum / (double) data->n_windows * (p->world != NULL ? p->world->n_ranks : 1));
    return train_ranks_loss(t, ok, &loss, error) && evaluation_add(t, loss, error);
}
