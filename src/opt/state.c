// SPDX-License-Identifier: MIT
// state.c: the training state of a parameter. The state is in the same kind of memory as the parameter, so an optimiser step
// copies nothing between devices.

#include "core/op.h"
#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "opt/opt.h"

// Static graphs with a period of one backward pass need no accumulators, because the step reads the gradients directly. Dynamic
// graphs always have accumulators, as in the reference, because programs read them (ggml_opt_grad_acc).
bool opt_needs_acc(const struct ggml_opt_context *o) {
    return !(o->is_static && o->params.build_type == GGML_OPT_BUILD_TYPE_OPT && o->params.opt_period == 1);
}

static bool needs_moments(const struct ggml_opt_context *o) {
    return o->params.build_type == GGML_OPT_BUILD_TYPE_OPT && o->params.optimizer == GGML_OPT_OPTIMIZER_TYPE_ADAMW;
}

static void state_fini(struct opt_state *s) {
    ggml_backend_buffer_free(s->buffer);
    ggml_free(s->ctx);
    *s = (struct opt_state){0};
}

static bool state_matches(const struct opt_state *s, const struct ggml_tensor *param) {
    return s->param == param && memcmp(s->ne, param->ne, sizeof s->ne) == 0;
}

static ggml_backend_buffer_type_t state_buft(const struct ggml_opt_context *o, const struct ggml_tensor *param) {
    if (param->buffer != NULL) {
        return ggml_backend_buffer_is_host(param->buffer) ? ggml_backend_cpu_buffer_type()
                                                          : ggml_backend_buffer_get_type(param->buffer);
    }
    const ggml_backend_t first = ggml_backend_sched_get_backend(o->params.backend_sched, 0);
    return ggml_backend_sched_get_buffer_type(o->params.backend_sched, first);
}

static struct ggml_tensor *tensor_like(struct ggml_context *ctx, const struct ggml_tensor *param) {
    return ggml_new_tensor(ctx, GGML_TYPE_F32, GGML_MAX_DIMS, param->ne);
}

static bool state_init(struct ggml_opt_context *o, struct opt_state *s, const struct ggml_tensor *param) {
    *s = (struct opt_state){.param = param};
    s->ctx = ggml_init((struct ggml_init_params){.mem_size = 4 * ggml_tensor_overhead(), .no_alloc = true});
    s->acc = opt_needs_acc(o) ? tensor_like(s->ctx, param) : NULL;
    memcpy(s->ne, param->ne, sizeof s->ne);
    if (needs_moments(o)) {
        for (int i = 0; i < 2; i++) {
            s->moments[i] = tensor_like(s->ctx, param);
            ggml_format_name(s->moments[i], "AdamW %c for %s", i == 0 ? 'm' : 'v', param->name);
        }
    }
    if (s->acc == NULL && s->moments[0] == NULL) {
        return s->ctx != NULL;
    }
    s->buffer = ggml_backend_alloc_ctx_tensors_from_buft(s->ctx, state_buft(o, param));
    if (s->buffer == NULL) {
        state_fini(s);
        return false;
    }
    ggml_backend_buffer_clear(s->buffer, 0);
    return true;
}

struct opt_state *opt_state_of(struct ggml_opt_context *o, const struct ggml_tensor *param) {
    struct opt_state *free_slot = NULL;
    for (size_t i = 0; i < o->n_states; i++) {
        if (state_matches(&o->states[i], param)) {
            return &o->states[i];
        }
        if (o->states[i].param == param) { // a freed parameter had this address, with other extents
            state_fini(&o->states[i]);
            free_slot = &o->states[i];
        }
    }
    if (free_slot == NULL) {
        if (!berth_grow((void **) &o->states, &o->states_cap, o->n_states + 1, sizeof o->states[0])) {
            return NULL;
        }
        free_slot = &o->states[o->n_states++];
        *free_slot = (struct opt_state){0};
    }
    return state_init(o, free_slot, param) ? free_slot : NULL;
}

void opt_states_zero(struct ggml_opt_context *o, bool moments) {
    for (size_t i = 0; i < o->n_states; i++) {
        struct ggml_tensor *const all[] = {
            o->states[i].acc, moments ? o->states[i].moments[0] : NULL, moments ? o->states[i].moments[1] : NULL};
        for (int k = 0; k < 3; k++) {
            if (all[k] != NULL) {
                ggml_set_zero(all[k]);
            }
        }
    }
}

void opt_states_free(struct ggml_opt_context *o) {
    for (size_t i = 0; i < o->n_states; i++) {
        state_fini(&o->states[i]);
    }
    berth_free(o->states);
    o->states = NULL;
    o->n_states = o->states_cap = 0;
}
