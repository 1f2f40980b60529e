// SPDX-License-Identifier: MIT
// lora.c: reads, creates and merges adapters. An adapter is a file in llama.cpp's format with a pair of low-rank matrices per
// adapted weight. A pair is on the device of its weight. A pair without a weight or with the wrong shape is an error.

#include "base/min.h"
#include "model/model.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STEP_SIZE ((size_t) 8 << 20) // bytes per copy to a device

// ---- creation and destruction ----

static struct model_lora *lora_make(const struct model *m, struct model_error *error) {
    struct model_lora *l = berth_calloc(1, sizeof *l);
    if (l != NULL) {
        l->pairs = berth_calloc(m->n_weights + 1, sizeof *l->pairs);
    }
    if (l == NULL || l->pairs == NULL) {
        model_fail(error, "out of memory for an adapter of %zu weights", m->n_weights);
        lora_free(l);
        return NULL;
    }
    return l;
}

void lora_free(struct model_lora *l) {
    if (l == NULL) {
        return;
    }
    model_parts_free(l->parts, l->n_parts);
    berth_free(l->pairs);
    berth_gguf_map_close(l->file);
    berth_free(l);
}

const struct lora_pair *lora_find(const struct model_lora *l, const struct ggml_tensor *weight) {
    for (size_t i = 0; i < l->n_pairs; i++) {
        if (l->pairs[i].weight == weight) {
            return &l->pairs[i];
        }
    }
    return NULL;
}

// Only matrices with which the graph multiplies can be adapted: matrices of layers and of the output. Embeddings (layer -1)
// cannot be adapted, because the graph looks up their rows. Vectors and weights with three axes, such as those of experts, cannot
// be adapted either.
static bool can_adapt(const struct model_weight *w) {
    return w->layer >= 0 && !w->is_vector && w->file->ne[1] > 1 && w->file->ne[2] == 1;
}

// ---- adapter files ----

static bool keys_check(const struct model *m, const struct gguf_context *meta, float *alpha, struct model_error *error) {
    const char *type = NULL, *kind = NULL, *arch = NULL, *model_arch = NULL;
    *alpha = 0;
    if (!keys_text(meta, "general.type", &type, error) || !keys_text(meta, "adapter.type", &kind, error) ||
        !keys_text(meta, "general.architecture", &arch, error) || !keys_real(meta, "adapter.lora.alpha", alpha, error) ||
        !keys_text(berth_gguf_map_meta(m->file), "general.architecture", &model_arch, error)) {
        return false;
    }
    if (type == NULL || strcmp(type, "adapter") != 0) {
        return model_fail(
            error, "not an adapter: key 'general.type' is %s%.64s", type == NULL ? "missing" : "", type != NULL ? type : "");
    }
    if (kind == NULL || strcmp(kind, "lora") != 0) {
        return model_fail(
            error, "key 'adapter.type' is %s%.64s, but must be lora", kind == NULL ? "missing" : "", kind != NULL ? kind : "");
    }
    return (arch != NULL && model_arch != NULL && strcmp(arch, model_arch) == 0) ||
           model_fail(error, "the adapter is for architecture '%.64s', but the model has '%.64s'", arch != NULL ? arch : "",
               model_arch != NULL ? model_arch : "");
}

// Finds a matrix of a pair in the adapter's file. suffix: "a" or "b". Returns NULL if the file does not have the matrix.
static struct ggml_tensor *matrix_find(const struct model_lora *l, const char *weight, const char *suffix) {
    char name[GGML_MAX_NAME + 16];
    snprintf(name, sizeof name, "%s.lora_%s", weight, suffix);
    return gguf_find_tensor(berth_gguf_map_meta(l->file), name) >= 0 ? ggml_get_tensor(berth_gguf_map_tensors(l->file), name)
                                                                     : NULL;
}

static bool matrix_check(const struct ggml_tensor *t, struct model_error *error) {
    return type_is_real(t->type) ||
           model_fail(error, "tensor '%s' has type %s, which cannot be converted to f32", t->name, ggml_type_name(t->type));
}

static bool pair_check(const struct lora_pair *p, const struct model_weight *w, struct model_error *error) {
    const char *name = w->file->name;
    if (p->a == NULL || p->b == NULL) {
        return model_fail(error, "tensor '%s.lora_%s' exists, but '%s.lora_%s' is missing", name, p->a != NULL ? "a" : "b", name,
            p->a != NULL ? "b" : "a");
    }
    if (!can_adapt(w)) {
        return model_fail(error, "tensor '%s' cannot be adapted: only matrices of layers and the output can", name);
    }
    if (p->a->ne[0] != w->file->ne[0] || p->b->ne[1] != w->file->ne[1] || p->a->ne[1] != p->b->ne[0] || p->a->ne[2] != 1 ||
        p->b->ne[2] != 1 || p->a->ne[3] != 1 || p->b->ne[3] != 1) {
        return model_fail(error,
            "shapes A [%" PRId64 ", %" PRId64 "] and B [%" PRId64 ", %" PRId64 "] do not match '%s' [%" PRId64 ", %" PRId64 "]",
            p->a->ne[0], p->a->ne[1], p->b->ne[0], p->b->ne[1], name, w->file->ne[0], w->file->ne[1]);
    }
    return matrix_check(p->a, error) && matrix_check(p->b, error);
}

static const char *unmatched_find(const struct model_lora *l) {
    struct ggml_context *ctx = berth_gguf_map_tensors(l->file);
    for (struct ggml_tensor *t = ggml_get_first_tensor(ctx); t != NULL; t = ggml_get_next_tensor(ctx, t)) {
        size_t i = 0;
        while (i < l->n_pairs && l->pairs[i].a != t && l->pairs[i].b != t) {
            i++;
        }
        if (i == l->n_pairs) {
            return t->name;
        }
    }
    return NULL;
}

static bool pairs_find(struct model_lora *l, const struct model *m, float alpha, float scale, struct model_error *error) {
    for (size_t i = 0; i < m->n_weights; i++) {
        const struct model_weight *w = &m->weights[i];
        struct lora_pair p = {.weight = *w->slot, .layer = w->layer};
        p.a = matrix_find(l, w->file->name, "a");
        p.b = matrix_find(l, w->file->name, "b");
        if (p.a == NULL && p.b == NULL) {
            continue;
        }
        if (!pair_check(&p, w, error)) {
            return false;
        }
        p.scale = alpha != 0 ? scale * alpha / (float) p.b->ne[0] : scale; // without alpha the scale is not divided by the rank
        l->pairs[l->n_pairs++] = p;
    }
    const char *unmatched = unmatched_find(l);
    return unmatched == NULL || model_fail(error, "tensor '%s' does not match any weight of the model", unmatched);
}

struct model_lora *lora_open(const struct model *m, const char *path, float scale, struct model_error *error) {
    float alpha;
    struct model_error why = {""};
    struct model_lora *l = lora_make(m, error);
    if (l == NULL) {
        return NULL;
    }
    l->file = berth_gguf_map_open(path, NULL);
    if (l->file == NULL) {
        model_fail(error, "%s", berth_last_error());
    } else if (!keys_check(m, berth_gguf_map_meta(l->file), &alpha, &why) || !pairs_find(l, m, alpha, scale, &why)) {
        model_fail(error, "%s: %s", path, why.text);
    } else {
        return l;
    }
    lora_free(l);
    return NULL;
}

// ---- placement ----

// Creates one context per device. Each context has the tensors a and b of the pairs whose weights are on this device. The tensors
// get no memory here. `rank`: rank of pairs that do not come from a file.
static bool parts_make(struct model_lora *l, const struct model *m, int64_t rank, struct model_error *error) {
    l->parts = berth_calloc((size_t) m->n_parts, sizeof *l->parts);
    if (l->parts == NULL) {
        return model_fail(error, "out of memory for an adapter on %d devices", m->n_parts);
    }
    l->n_parts = m->n_parts;
    for (int d = 0; d < l->n_parts; d++) {
        struct ggml_context *ctx =
            ggml_init((struct ggml_init_params){.mem_size = (2 * l->n_pairs + 1) * ggml_tensor_overhead(), .no_alloc = true});
        if (ctx == NULL) {
            return model_fail(error, "out of memory for %zu tensors of an adapter", 2 * l->n_pairs);
        }
        l->parts[d].ctx = ctx;
        for (size_t i = 0; i < l->n_pairs; i++) {
            struct lora_pair *p = &l->pairs[i];
            const struct ggml_tensor *w = p->weight;
            if (m->layer_device[p->layer] != d) {
                continue;
            }
            p->a = p->a != NULL ? ggml_dup_tensor(ctx, p->a) : ggml_new_tensor_2d(ctx, GGML_TYPE_F32, w->ne[0], rank);
            p->b = p->b != NULL ? ggml_dup_tensor(ctx, p->b) : ggml_new_tensor_2d(ctx, GGML_TYPE_F32, rank, w->ne[1]);
            ggml_format_name(p->a, "%s.lora_a", w->name);
            ggml_format_name(p->b, "%s.lora_b", w->name);
        }
    }
    return true;
}

static bool part_fill(struct model_lora *l, ggml_backend_dev_t dev, int d, struct model_error *error) {
    struct ggml_context *ctx = l->parts[d].ctx;
    if (ggml_get_first_tensor(ctx) == NULL) {
        return true;
    }
    l->parts[d].buffer = ggml_backend_alloc_ctx_tensors_from_buft(ctx, ggml_backend_dev_buffer_type(dev));
    if (l->parts[d].buffer == NULL) {
        return model_fail(
            error, "cannot allocate memory for the adapter on %s: %s", ggml_backend_dev_name(dev), berth_last_error());
    }
    ggml_backend_buffer_set_usage(l->parts[d].buffer, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    l->parts[d].size = ggml_backend_buffer_get_size(l->parts[d].buffer);
    for (struct ggml_tensor *t = ggml_get_first_tensor(ctx); t != NULL; t = ggml_get_next_tensor(ctx, t)) {
        const struct ggml_tensor *from = ggml_get_tensor(berth_gguf_map_tensors(l->file), t->name);
        const size_t size = ggml_nbytes(t);
        for (size_t at = 0; at < size; at += STEP_SIZE) {
            const size_t step = min_size(size - at, STEP_SIZE);
            ggml_backend_tensor_set(t, (const char *) from->data + at, at, step);
        }
    }
    return true;
}

bool model_lora_add(
    struct model *m, const struct model_devices *devices, const char *path, float scale, struct model_error *error) {
    struct model_lora *l = lora_open(m, path, scale, error);
    bool ok = l != NULL && parts_make(l, m, 0, error);
    for (int d = 0; ok && d < l->n_parts; d++) {
        ok = part_fill(l, devices->dev[d], d, error);
    }
    if (!ok) {
        lora_free(l);
        return false;
    }
    struct model_lora **end = &m->loras;
    while (*end != NULL) {
        end = &(*end)->next;
    }
    *end = l;
    return true;
}

struct model_lora *lora_new(const struct model *m, int64_t rank, float alpha, struct model_error *error) {
    struct model_lora *l = lora_make(m, error);
    for (size_t i = 0; l != NULL && i < m->n_weights; i++) {
        const struct model_weight *w = &m->weights[i];
        if (can_adapt(w) && w->layer < m->params.n_layer) {
            l->pairs[l->n_pairs++] = (struct lora_pair){.weight = *w->slot, .layer = w->layer, .scale = alpha / (float) rank};
        }
    }
    if (l != NULL && !parts_make(l, m, rank, error)) {
        lora_free(l);
        return NULL;
    }
    return l;
}

// ---- merging: W + scale B A, row by row in f32, converted back to the type of W ----

// model_place replaces the weights of the model by tensors on devices. Merging reads the weights from the file. So the model must
// not be placed.

struct merging {
    const struct model *model;
    const struct model_lora *lora;
    float *a, *b, *row; // [rank][columns], [rows][rank], [columns]
    void *out;          // bytes of the tensor that tensor_bytes returned last
};

static void matrices_free(struct merging *m) {
    berth_free(m->a);
    berth_free(m->b);
    berth_free(m->row);
    m->a = m->b = m->row = NULL;
}

static bool matrices_read(struct merging *m, const struct lora_pair *p, struct model_error *error) {
    const int64_t n_a = ggml_nelements(p->a), n_b = ggml_nelements(p->b);
    m->a = berth_malloc((size_t) n_a * sizeof *m->a);
    m->b = berth_malloc((size_t) n_b * sizeof *m->b);
    m->row = berth_malloc((size_t) p->weight->ne[0] * sizeof *m->row);
    m->out = berth_malloc(ggml_nbytes(p->weight));
    if (m->a == NULL || m->b == NULL || m->row == NULL || m->out == NULL) {
        return model_fail(error, "out of memory for %zu bytes of '%s'", ggml_nbytes(p->weight), p->weight->name);
    }
    return rows_widen(p->a->type, p->a->data, m->a, n_a, error) && rows_widen(p->b->type, p->b->data, m->b, n_b, error);
}

static bool pair_merge(struct merging *m, const struct lora_pair *p, struct model_error *error) {
    const struct ggml_tensor *w = p->weight;
    const int64_t n = w->ne[0], rank = p->b->ne[0];
    const size_t size = ggml_row_size(w->type, n);
    for (int64_t j = 0; j < w->ne[1]; j++) {
        if (!rows_widen(w->type, (const char *) w->data + (size_t) j * size, m->row, n, error)) {
            return false;
        }
        for (int64_t r = 0; r < rank; r++) {
            const float x = p->scale * m->b[j * rank + r];
            const float *a = m->a + r * n;
            for (int64_t i = 0; i < n; i++) {
                m->row[i] += x * a[i];
            }
        }
        if (!rows_narrow(w->type, m->row, (char *) m->out + (size_t) j * size, 1, n, error)) {
            return false;
        }
    }
    return true;
}

static const void *tensor_bytes(int64_t i, void *user, struct model_error *error) {
    struct merging *m = user;
    const struct ggml_tensor *t = m->model->by_id[i];
    const struct lora_pair *p = lora_find(m->lora, t);
    berth_free(m->out);
    m->out = NULL;
    if (p == NULL) {
        return t->data;
    }
    const bool ok = matrices_read(m, p, error) && pair_merge(m, p, error);
    matrices_free(m);
    return ok ? m->out : NULL;
}

bool lora_merge(const struct model *model, const struct model_lora *lora, FILE *file, struct model_error *error) {
    struct merging m = {.model = model, .lora = lora};
    const struct gguf_context *old = berth_gguf_map_meta(model->file);
    if (model->n_files > 1) {
        return model_fail(error, "the model has %" PRId64 " files; join them with 'berth gguf merge' first", model->n_files);
    }
    struct gguf_context *meta = model_header_new(old);
    for (int64_t i = 0; i < gguf_get_n_tensors(old); i++) {
        gguf_add_tensor(meta, model->by_id[i]);
    }
    meta = model_header_check(meta, error);
    const bool ok = meta != NULL && model_write(file, meta, tensor_bytes, &m, error);
    berth_free(m.out);
    gguf_free(meta);
    return ok;
}
