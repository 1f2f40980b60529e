// SPDX-License-Identifier: MIT
// model.c: models and their tokens (berth-model.h).

#include "library/library.h"

#include "base/base.h"
#include "base/min.h"

bool library_is_stopped(void *model) {
    const struct berth_model *m = model;
    return m->stop != NULL && m->stop(m->stop_data);
}

enum ggml_status library_status(bool ok, bool is_stopped, const struct model_error *error) {
    if (ok) {
        return GGML_STATUS_SUCCESS;
    }
    if (is_stopped) {
        berth_set_error("stopped by the caller");
        return GGML_STATUS_ABORTED;
    }
    berth_set_error("%s", error->text[0] != '\0' ? error->text : "out of memory");
    return GGML_STATUS_FAILED;
}

// ---- opening ----

static bool model_load(struct berth_model *m, const char *path, const struct berth_model_params *p, struct model_error *error) {
    const struct model_options options = {.path = path,
        .device = p->device,
        .n_threads = p->n_threads,
        .no_mmap = p->no_mmap,
        .may_llama = true,
        .progress = p->progress,
        .progress_user = p->user_data};
    if (p->n_threads < 0) {
        return model_fail(error, "n_threads is %d; it must not be negative", p->n_threads);
    }
    if (!workbench_open(&m->w, &options, error)) {
        return false;
    }
    for (int64_t i = 0; i < p->n_loras; i++) {
        if (!workbench_lora_add(&m->w, p->loras[i], error)) {
            return false;
        }
    }
    return workbench_vocab_open(&m->w, error);
}

struct berth_model *berth_model_open(const char *path, const struct berth_model_params *params) {
    static const struct berth_model_params no_params;
    struct model_error error = {""};
    struct berth_model *model = berth_calloc(1, sizeof *model);
    if (model == NULL) {
        berth_set_error("out of memory");
        return NULL;
    }
    if (!model_load(model, path, params != NULL ? params : &no_params, &error)) {
        berth_set_error("%s", error.text);
        berth_model_free(model);
        return NULL;
    }
    model_devices_set_abort(&model->w.devices, library_is_stopped, model);
    return model;
}

void berth_model_free(struct berth_model *model) {
    if (model != NULL) {
        workbench_close(&model->w);
        berth_free(model);
    }
}

void berth_model_info(const struct berth_model *model, struct berth_model_info *info) {
    if (info == NULL) {
        return;
    }
    *info = (struct berth_model_info){.bos = -1, .eos = -1};
    if (model != NULL) {
        const struct model_params *p = &model->w.model->params;
        *info = (struct berth_model_info){.path = model->w.path,
            .arch = p->arch,
            .n_layer = p->n_layer,
            .n_embd = p->n_embd,
            .n_vocab = p->n_vocab,
            .n_ctx_train = p->n_ctx_train,
            .bos = model->w.vocab->bos,
            .eos = model->w.vocab->eos};
    }
}

const struct gguf_context *berth_model_keys(const struct berth_model *model) {
    return model != NULL ? berth_gguf_map_meta(model->w.model->file) : NULL;
}

void berth_model_set_stop(struct berth_model *model, ggml_abort_callback stop, void *user_data) {
    if (model != NULL) {
        model->stop = stop;
        model->stop_data = user_data;
    }
}

bool berth_flag_is_set(void *flag) {
    return flag != NULL && *(const volatile int *) flag != 0;
}

// ---- tokens ----

int64_t berth_model_tokenize(
    const struct berth_model *model, const char *text, size_t size, unsigned flags, int32_t *tokens, int64_t max_tokens) {
    struct token_list list = {0};
    struct model_error error = {""};
    unsigned how = 0;
    if (model == NULL || (text == NULL && size > 0)) {
        berth_set_error("berth_model_tokenize requires a model and a text");
        return -1;
    }
    if ((flags & BERTH_TOKENIZE_ADD) != 0) {
        how |= ENCODE_ADD;
    }
    if ((flags & BERTH_TOKENIZE_PARSE) != 0) {
        how |= ENCODE_PARSE;
    }
    int64_t n = -1;
    if (vocab_encode(model->w.vocab, text != NULL ? text : "", size, how, &list, &error)) {
        n = (int64_t) list.n;
        const int64_t n_stored = tokens != NULL ? min_i64(n, max_tokens) : 0;
        if (n_stored > 0) {
            memcpy(tokens, list.ids, (size_t) n_stored * sizeof *tokens);
        }
    } else {
        berth_set_error("%s", error.text);
    }
    token_list_fini(&list);
    return n;
}

int64_t berth_model_detokenize(const struct berth_model *model, const int32_t *tokens, int64_t n, char *text, size_t max_size) {
    if (model == NULL || (tokens == NULL && n > 0)) {
        berth_set_error("berth_model_detokenize requires a model and tokens");
        return -1;
    }
    size_t size = 0;
    for (int64_t i = 0; i < n; i++) {
        if (tokens[i] < 0 || tokens[i] >= model->w.vocab->n_tokens) {
            berth_set_error("token %d is not in the vocabulary of %d tokens", (int) tokens[i], (int) model->w.vocab->n_tokens);
            return -1;
        }
        const size_t room = text != NULL && size < max_size ? max_size - size : 0;
        size += vocab_piece(model->w.vocab, tokens[i], room > 0 ? text + size : NULL, room);
    }
    return (int64_t) size;
}

bool berth_model_is_end(const struct berth_model *model, int32_t token) {
    return model != NULL && token >= 0 && token < model->w.vocab->n_tokens && vocab_is_end(model->w.vocab, token);
}
