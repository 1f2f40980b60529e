// SPDX-License-Identifier: MIT
// context.c: creates, frees and queries an optimisation context. Every function accepts NULL.

#include "berth-opt.h"
#include "core/op.h"
#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "opt/opt.h"

static enum ggml_status params_check(const struct ggml_opt_params *p) {
    if (p->backend_sched == NULL) {
        return berth_fail(GGML_STATUS_FAILED, "ggml_opt_init: the scheduler is NULL");
    }
    if ((unsigned) p->loss_type > GGML_OPT_LOSS_TYPE_MEAN_SQUARED_ERROR ||
        (unsigned) p->optimizer >= GGML_OPT_OPTIMIZER_TYPE_COUNT || p->opt_period < 1 || p->get_opt_pars == NULL) {
        return berth_fail(GGML_STATUS_FAILED,
            "ggml_opt_init: loss %d, optimiser %d, period %d%s: there are %d losses and %d optimisers, the period must be 1 or "
            "more",
            (int) p->loss_type, (int) p->optimizer, (int) p->opt_period, p->get_opt_pars == NULL ? ", no get_opt_pars" : "",
            GGML_OPT_LOSS_TYPE_MEAN_SQUARED_ERROR + 1, GGML_OPT_OPTIMIZER_TYPE_COUNT);
    }
    const int n_given = (p->ctx_compute != NULL) + (p->inputs != NULL) + (p->outputs != NULL);
    if (n_given != 0 && n_given != 3) {
        return berth_fail(GGML_STATUS_FAILED,
            "ggml_opt_init: static graphs require context, inputs and outputs, only %d of 3 are set", n_given);
    }
    return GGML_STATUS_SUCCESS;
}

static bool own_init(struct ggml_opt_context *o) {
    const bool sgd = o->params.optimizer == GGML_OPT_OPTIMIZER_TYPE_SGD;
    o->ctx_own = ggml_init((struct ggml_init_params){.mem_size = 2 * ggml_tensor_overhead(), .no_alloc = true});
    // Hyperparameters of the optimiser (opt.h): 2 for SGD, 7 for AdamW.
    o->numbers = ggml_new_tensor_1d(o->ctx_own, GGML_TYPE_F32, sgd ? 2 : 7);
    o->one = ggml_new_tensor_1d(o->ctx_own, GGML_TYPE_F32, 1);
    ggml_set_name(o->numbers, sgd ? "sgd_params" : "adamw_params");
    ggml_set_input(o->numbers);
    o->buffer_own =
        o->ctx_own != NULL ? ggml_backend_alloc_ctx_tensors_from_buft(o->ctx_own, ggml_backend_cpu_buffer_type()) : NULL;
    if (o->buffer_own == NULL) {
        return false;
    }
    const float one = 1.0f;
    ggml_backend_buffer_clear(o->buffer_own, 0);
    ggml_backend_tensor_set(o->one, &one, 0, sizeof one);
    return true;
}

ggml_opt_context_t ggml_opt_init(struct ggml_opt_params params) {
    if (params_check(&params) != GGML_STATUS_SUCCESS) {
        return NULL;
    }
    struct ggml_opt_context *o = berth_calloc(1, sizeof *o);
    if (o == NULL) {
        return NULL;
    }
    o->params = params;
    o->is_static = params.ctx_compute != NULL;
    o->ctx_compute = params.ctx_compute;
    o->iter = 1;
    opt_rng_init(&o->rng);
    if (!own_init(o) || (o->is_static && opt_build(o, params.build_type) != GGML_STATUS_SUCCESS)) {
        ggml_opt_free(o);
        return NULL;
    }
    return o;
}

void ggml_opt_free(ggml_opt_context_t opt_ctx) {
    if (opt_ctx == NULL) {
        return;
    }
    opt_states_free(opt_ctx);
    ggml_backend_buffer_free(opt_ctx->buffer_own);
    ggml_free(opt_ctx->ctx_own);
    ggml_free(opt_ctx->ctx_results);
    berth_free(opt_ctx);
}

// Starts a new period. `optimizer`: also sets the moments to 0 and restarts at step 1.
void ggml_opt_reset(ggml_opt_context_t opt_ctx, bool optimizer) {
    if (opt_ctx == NULL) {
        return;
    }
    opt_states_zero(opt_ctx, optimizer);
    opt_ctx->i_period = 0;
    if (optimizer) {
        opt_ctx->iter = 1;
    }
}

bool ggml_opt_static_graphs(ggml_opt_context_t opt_ctx) {
    return opt_ctx != NULL && opt_ctx->is_static;
}

#define GETTER(name, field) \
    struct ggml_tensor *ggml_opt_##name(ggml_opt_context_t opt_ctx) { \
        return opt_ctx != NULL ? opt_ctx->field : NULL; \
    }

GETTER(inputs, params.inputs)
GETTER(outputs, params.outputs)
GETTER(labels, labels)
GETTER(loss, loss)
GETTER(pred, pred)
GETTER(ncorrect, ncorrect)

struct ggml_tensor *ggml_opt_grad_acc(ggml_opt_context_t opt_ctx, struct ggml_tensor *node) {
    return opt_ctx != NULL && opt_ctx->grad != NULL ? ggml_graph_get_grad_acc(opt_ctx->grad, node) : NULL;
}

enum ggml_opt_optimizer_type ggml_opt_context_optimizer_type(ggml_opt_context_t opt_ctx) {
    return opt_ctx != NULL ? opt_ctx->params.optimizer : GGML_OPT_OPTIMIZER_TYPE_COUNT;
}

// ---- functions of berth-opt.h ----

enum ggml_status berth_opt_status(ggml_opt_context_t opt_ctx) {
    return opt_ctx != NULL ? opt_ctx->status : GGML_STATUS_FAILED;
}

struct ggml_tensor *berth_opt_moment(ggml_opt_context_t opt_ctx, const struct ggml_tensor *param, int i) {
    if (opt_ctx == NULL || param == NULL || i < 0 || i > 1) {
        return NULL;
    }
    const struct opt_state *state = opt_state_of(opt_ctx, param);
    return state != NULL ? state->moments[i] : NULL;
}

int64_t berth_opt_iter(ggml_opt_context_t opt_ctx) {
    return opt_ctx != NULL ? opt_ctx->iter : 0;
}

void berth_opt_set_iter(ggml_opt_context_t opt_ctx, int64_t iter) {
    if (opt_ctx != NULL && iter >= 1) {
        opt_ctx->iter = iter;
    }
}
