// SPDX-License-Identifier: MIT
// lora_merge.c: a model with an adapter in its weights: W + scale B A, row by row in floats, back in the type of W. Models that
// are not placed: their weights are read from the file.

#include "model/model.h"

#include <inttypes.h>
#include <stdlib.h>

// Both halves as floats, and room for one tensor.
struct merging {
    const struct model *model;
    const struct model_lora *lora;
    float *a, *b, *row; // [rank][columns], [rows][rank], [columns]
    void *out;          // the last tensor's bytes
};

static void halves_free(struct merging *m) {
    model_alloc_free(m->a);
    model_alloc_free(m->b);
    model_alloc_free(m->row);
    m->a = m->b = m->row = NULL;
}

static bool halves_read(struct merging *m, const struct lora_pair *p, struct model_error *error) {
    const int64_t n_a = ggml_nelements(p->a), n_b = ggml_nelements(p->b);
    m->a = model_alloc_malloc((size_t) n_a * sizeof *m->a);
    m->b = model_alloc_malloc((size_t) n_b * sizeof *m->b);
    m->row = model_alloc_malloc((size_t) p->weight->ne[0] * sizeof *m->row);
    m->out = model_alloc_malloc(ggml_nbytes(p->weight));
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

static const void *bytes_of(int64_t i, void *user, struct model_error *error) {
    struct merging *m = user;
    const struct ggml_tensor *t = m->model->by_id[i];
    const struct lora_pair *p = lora_find(m->lora, t);
    model_alloc_free(m->out);
    m->out = NULL;
    if (p == NULL) {
        return t->data;
    }
    const bool ok = halves_read(m, p, error) && pair_merge(m, p, error);
    halves_free(m);
    return ok ? m->out : NULL;
}

bool lora_merge(const struct model *model, const struct model_lora *lora, FILE *file, struct model_error *error) {
    struct merging m = {.model = model, .lora = lora};
    const struct gguf_context *old = berth_gguf_map_meta(model->file);
    if (model->n_files > 1) {
        return model_fail(error, "the model is in %" PRId64 " files: 'berth gguf merge' makes one of them", model->n_files);
    }
    struct gguf_context *meta = gguf_init_empty();
    berth_clear_error();
    gguf_set_kv(meta, old);
    for (int64_t i = 0; i < gguf_get_n_tensors(old); i++) {
        gguf_add_tensor(meta, model->by_id[i]);
    }
    const bool ok = (meta != NULL && *berth_last_error() == '\0') || model_fail(error, "%s", berth_last_error());
    const bool is_written = ok && model_write(file, meta, bytes_of, &m, error);
    model_alloc_free(m.out);
    gguf_free(meta);
    return is_written;
}
