// SPDX-License-Identifier: MIT
// save.c: writes the result of training: the model with the keys and types of its file, or the adapter in llama.cpp's format.

#include "train/train.h"

#include <string.h>

struct saving {
    const struct trainer *t;
    void *wide; // a tensor in f32
    void *out;  // the tensor in its own type
};

// ---- models ----

static const struct train_tensor *trained_find(const struct trainer *t, const struct ggml_tensor *file) {
    for (size_t i = 0; i < t->n_tensors; i++) {
        if (t->tensors[i].file == file) {
            return &t->tensors[i];
        }
    }
    return NULL;
}

static const void *model_bytes(int64_t i, void *user, struct model_error *error) {
    struct saving *s = user;
    const struct ggml_tensor *file = s->t->model->by_id[i];
    const struct train_tensor *x = trained_find(s->t, file);
    if (x == NULL) {
        return file->data;
    }
    berth_free(s->out);
    s->out = NULL;
    if (train_tensor_get(x->w, &s->wide, error) == NULL || file->type == GGML_TYPE_F32) {
        return s->wide;
    }
    s->out = berth_malloc(ggml_nbytes(file));
    if (s->out == NULL) {
        model_fail(error, "out of memory for %zu bytes of '%s'", ggml_nbytes(file), file->name);
        return NULL;
    }
    return rows_narrow(file->type, s->wide, s->out, ggml_nrows(file), file->ne[0], error) ? s->out : NULL;
}

static struct gguf_context *model_meta(const struct trainer *t) {
    const struct gguf_context *old = berth_gguf_map_meta(t->model->file);
    struct gguf_context *meta = model_header_new(old);
    for (int64_t i = 0; i < gguf_get_n_tensors(old); i++) {
        gguf_add_tensor(meta, t->model->by_id[i]);
    }
    return meta;
}

// ---- adapters ----

static const void *lora_bytes(int64_t i, void *user, struct model_error *error) {
    struct saving *s = user;
    return train_tensor_get(s->t->tensors[i].w, &s->wide, error);
}

static struct gguf_context *lora_meta(const struct trainer *t) {
    struct gguf_context *meta = model_header_new(NULL);
    gguf_set_val_str(meta, "general.type", "adapter");
    gguf_set_val_str(meta, "general.architecture", t->model->params.arch);
    gguf_set_val_str(meta, "adapter.type", "lora");
    gguf_set_val_f32(meta, "adapter.lora.alpha", t->params.alpha);
    for (size_t i = 0; i < t->n_tensors; i++) {
        gguf_add_tensor(meta, t->tensors[i].w);
    }
    return meta;
}

bool train_save(const struct trainer *t, FILE *file, struct model_error *error) {
    struct saving s = {.t = t};
    struct gguf_context *meta = model_header_check(t->lora != NULL ? lora_meta(t) : model_meta(t), error);
    const bool ok = meta != NULL && model_write(file, meta, t->lora != NULL ? lora_bytes : model_bytes, &s, error);
    berth_free(s.wide);
    berth_free(s.out);
    gguf_free(meta);
    return ok;
}
