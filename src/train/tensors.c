// SPDX-License-Identifier: MIT
// tensors.c: creates the trained tensors: all weights as f32, or the pairs of an adapter. Gradients and moments are on the device
// of their weight.

#include "base/min.h"
#include "train/train.h"

#include <math.h>
#include <string.h>

#define WIDEN_STEP ((int64_t) 1 << 16) // values per conversion

void *train_tensor_get(const struct ggml_tensor *t, void **bytes, struct model_error *error) {
    berth_free(*bytes);
    *bytes = berth_malloc(ggml_nbytes(t));
    if (*bytes == NULL) {
        model_fail(error, "out of memory for %zu bytes of '%s'", ggml_nbytes(t), t->name);
    } else {
        ggml_backend_tensor_get(t, *bytes, 0, ggml_nbytes(t));
    }
    return *bytes;
}

// ---- selection ----

// RoPE factors define positions and are not trained. A tied output is the same matrix as the embedding, which is trained already.
static bool is_trained(const struct model *m, const struct model_weight *w) {
    return strstr(w->file->name, "rope_") == NULL && !(m->is_tied && w->slot == &m->output);
}

static bool weights_list(struct trainer *t, struct model_error *error) {
    struct model *m = t->model;
    for (size_t i = 0; i < m->n_weights; i++) {
        const struct model_weight *w = &m->weights[i];
        const enum ggml_type type = w->file->type;
        if (!is_trained(m, w)) {
            continue;
        }
        if (type != GGML_TYPE_F32 && type != GGML_TYPE_F16 && type != GGML_TYPE_BF16) {
            return model_fail(error,
                "tensor '%s' has type %s, but only f32, f16 and bf16 weights can be trained; train an adapter instead (--lora "
                "RANK)",
                w->file->name, ggml_type_name(type));
        }
        const int device = w->layer < 0 ? t->devices->n - 1 : m->layer_device[w->layer];
        t->tensors[t->n_tensors++] = (struct train_tensor){.file = w->file, .device = device};
    }
    return true;
}

static void pairs_list(struct trainer *t) {
    for (size_t i = 0; i < t->lora->n_pairs; i++) {
        const struct lora_pair *p = &t->lora->pairs[i];
        const int device = t->model->layer_device[p->layer];
        t->tensors[t->n_tensors++] = (struct train_tensor){.w = p->a, .device = device};
        t->tensors[t->n_tensors++] = (struct train_tensor){.w = p->b, .device = device};
    }
}

// ---- memory ----

static struct ggml_tensor *tensor_like(struct ggml_context *ctx, const struct ggml_tensor *t, const char *end) {
    struct ggml_tensor *r = ggml_new_tensor(ctx, GGML_TYPE_F32, GGML_MAX_DIMS, t->ne);
    ggml_format_name(r, "%s%s", t->name, end);
    return r;
}

static bool part_alloc(struct trainer *t, struct model_part *part, int d, struct model_error *error) {
    ggml_backend_dev_t dev = t->devices->dev[d];
    ggml_backend_buffer_type_t buft = ggml_backend_dev_buffer_type(dev);
    if (ggml_get_first_tensor(part->ctx) == NULL) {
        return true;
    }
    part->buffer = ggml_backend_alloc_ctx_tensors_from_buft(part->ctx, buft);
    if (part->buffer == NULL) {
        return model_fail(error, "cannot allocate memory for training on %s (%zu bytes): %s", ggml_backend_dev_name(dev),
            ggml_backend_alloc_ctx_tensors_from_buft_size(part->ctx, buft), berth_last_error());
    }
    part->size = ggml_backend_buffer_get_size(part->buffer);
    t->size += part->size;
    ggml_backend_buffer_clear(part->buffer, 0);
    return true;
}

static bool device_make(struct trainer *t, int d, struct model_error *error) {
    const bool is_adam = t->params.optimizer == GGML_OPT_OPTIMIZER_TYPE_ADAMW;
    const size_t n = 3 * t->n_tensors + 8;
    t->values[d].ctx = ggml_init((struct ggml_init_params){.mem_size = n * ggml_tensor_overhead(), .no_alloc = true});
    t->grads[d].ctx = ggml_init((struct ggml_init_params){.mem_size = n * ggml_tensor_overhead(), .no_alloc = true});
    if (t->values[d].ctx == NULL || t->grads[d].ctx == NULL) {
        return model_fail(error, "out of memory for %zu tensors", 2 * n);
    }
    for (size_t i = 0; i < t->n_tensors; i++) {
        struct train_tensor *x = &t->tensors[i];
        if (x->device != d) {
            continue;
        }
        if (x->file != NULL) {
            x->w = tensor_like(t->values[d].ctx, x->file, "");
        }
        ggml_set_param(x->w);
        x->grad = tensor_like(t->grads[d].ctx, x->w, ".grad");
        x->m = is_adam ? tensor_like(t->values[d].ctx, x->w, ".m") : NULL;
        x->v = is_adam ? tensor_like(t->values[d].ctx, x->w, ".v") : NULL;
    }
    t->rates[d] = ggml_new_tensor_1d(t->values[d].ctx, GGML_TYPE_F32, is_adam ? 7 : 2);
    t->shrink[d] = ggml_new_tensor_1d(t->values[d].ctx, GGML_TYPE_F32, 1);
    ggml_set_name(t->rates[d], "rates");
    ggml_set_name(t->shrink[d], "shrink");
    if (d + 1 == t->devices->n) {
        t->loss_grad = ggml_new_tensor_1d(t->values[d].ctx, GGML_TYPE_F32, 1);
        ggml_set_name(t->loss_grad, "loss.grad");
    }
    return (t->lora == NULL || part_alloc(t, &t->lora->parts[d], d, error)) && part_alloc(t, &t->values[d], d, error) &&
           part_alloc(t, &t->grads[d], d, error);
}

// ---- initial values ----

static bool weight_fill(struct trainer *t, struct train_tensor *x, struct model_error *error) {
    const int64_t n = ggml_nelements(x->file);
    const size_t type_size = ggml_type_size(x->file->type);
    for (int64_t at = 0; at < n; at += WIDEN_STEP) {
        const int64_t step = min_i64(n - at, WIDEN_STEP);
        if (!rows_widen(x->file->type, (const char *) x->file->data + (size_t) at * type_size, t->row, step, error)) {
            return false;
        }
        ggml_backend_tensor_set(x->w, t->row, (size_t) at * sizeof *t->row, (size_t) step * sizeof *t->row);
    }
    return true;
}

// A is uniform in +-1 / sqrt(columns). B stays 0, so the new adapter changes nothing.
static void lora_a_fill(struct trainer *t, struct train_tensor *x, uint64_t *state) {
    const double range = 1 / sqrt((double) x->w->ne[0]);
    const int64_t n = ggml_nelements(x->w);
    for (int64_t at = 0; at < n; at += WIDEN_STEP) {
        const int64_t step = min_i64(n - at, WIDEN_STEP);
        for (int64_t i = 0; i < step; i++) {
            t->row[i] = (float) (range * train_random_uniform(state));
        }
        ggml_backend_tensor_set(x->w, t->row, (size_t) at * sizeof *t->row, (size_t) step * sizeof *t->row);
    }
}

static bool values_fill(struct trainer *t, struct model_error *error) {
    uint64_t state = t->params.seed;
    for (size_t i = 0; i < t->n_tensors; i++) {
        struct train_tensor *x = &t->tensors[i];
        if (x->file != NULL && !weight_fill(t, x, error)) {
            return false;
        }
        if (x->file == NULL && i % 2 == 0) {
            lora_a_fill(t, x, &state);
        }
    }
    const float loss_grad = t->params.world != NULL ? 1.0f / (float) t->params.world->n_ranks : 1;
    ggml_backend_tensor_set(t->loss_grad, &loss_grad, 0, sizeof loss_grad);
    return true;
}

// Makes the model use the trained tensors instead of the weights of the file, so that graphs contain the trained tensors.
static void slots_set(struct trainer *t) {
    struct model *m = t->model;
    for (size_t i = 0, k = 0; i < m->n_weights && t->lora == NULL; i++) {
        if (is_trained(m, &m->weights[i])) {
            *m->weights[i].slot = t->tensors[k++].w;
        }
    }
    if (m->is_tied && t->lora == NULL) {
        m->output = m->token_embd;
    }
}

bool train_tensors_make(struct trainer *t, struct model_error *error) {
    const size_t n_devices = (size_t) t->devices->n;
    t->tensors = berth_calloc(2 * t->model->n_weights + 1, sizeof *t->tensors);
    t->values = berth_calloc(n_devices, sizeof *t->values);
    t->grads = berth_calloc(n_devices, sizeof *t->grads);
    t->rates = berth_calloc(n_devices, sizeof *t->rates);
    t->shrink = berth_calloc(n_devices, sizeof *t->shrink);
    t->row_size = (size_t) max_i64(max_i64(t->model->params.n_vocab, t->params.n_ctx), WIDEN_STEP);
    t->row = berth_malloc(t->row_size * sizeof *t->row);
    if (t->tensors == NULL || t->values == NULL || t->grads == NULL || t->rates == NULL || t->shrink == NULL || t->row == NULL) {
        return model_fail(error, "out of memory for the tables of %zu weights", t->model->n_weights);
    }
    if (t->params.rank > 0) {
        t->lora = lora_new(t->model, t->params.rank, t->params.alpha, error);
        if (t->lora == NULL) {
            return false;
        }
        t->lora->next = t->model->loras; // freed by the model
        t->model->loras = t->lora;
        pairs_list(t);
    } else if (!weights_list(t, error)) {
        return false;
    }
    for (int d = 0; d < t->devices->n; d++) {
        if (!device_make(t, d, error)) {
            return false;
        }
    }
    if (!values_fill(t, error)) {
        return false;
    }
    slots_set(t);
    return true;
}

void train_tensors_free(struct trainer *t) {
    model_parts_free(t->values, t->devices->n);
    model_parts_free(t->grads, t->devices->n);
    berth_free(t->tensors);
    berth_free(t->rates);
    berth_free(t->shrink);
    berth_free(t->row);
}
