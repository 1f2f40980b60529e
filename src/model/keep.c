// SPDX-License-Identifier: MIT
// keep.c: what a session has read, as a file, so that another run need not read it again.
//
//   "BERTHPC1", then u64: mark of the model, number of tokens; the tokens, i32; then of each layer the rows of keys and those of
//   values that the tokens have, or the whole state of a layer that has one. All in the machine's own byte order.
//
// The mark is of the weights' bytes (some of each), the cache's types and what else decides a row, so that a file of another
// model is told apart. A text that begins as the kept one does goes on behind what is common; a state cannot be taken back, so
// all of it must be the beginning.

#include "model/model.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define MAGIC "BERTHPC1"
#define STEP ((size_t) 1 << 20)
#define SAMPLE 64 // bytes of each weight

// ---- the mark ----

static void mark_add(uint64_t *mark, const void *bytes, size_t n) {
    for (size_t i = 0; i < n; i++) {
        *mark = (*mark ^ ((const unsigned char *) bytes)[i]) * 0x100000001b3u; // FNV-1a
    }
}

static void mark_number(uint64_t *mark, double x) {
    mark_add(mark, &x, sizeof x);
}

static uint64_t mark_of(const struct session *s) {
    const struct model *m        = s->model;
    const struct model_params *p = &m->params;
    uint64_t mark                = 0xcbf29ce484222325u;
    mark_add(&mark, p->arch, strlen(p->arch));
    mark_number(&mark, (double) s->params.cache_k);
    mark_number(&mark, (double) s->params.cache_v);
    mark_number(&mark, m->rope_long != NULL && s->params.n_ctx > p->n_ctx_orig); // these rows are turned otherwise
    for (size_t i = 0; i < m->n_weights; i++) {
        const struct ggml_tensor *t = m->weights[i].file;
        const size_t size = ggml_nbytes(t), n = size < SAMPLE ? size : SAMPLE;
        mark_number(&mark, (double) size);
        mark_add(&mark, t->data, n);
        mark_add(&mark, (const char *) t->data + (size - n) / 2, n);
    }
    for (const struct model_lora *l = m->loras; l != NULL; l = l->next) {
        mark_number(&mark, l->n_pairs > 0 ? l->pairs[0].scale : 0);
        if (l->file != NULL) {
            mark_add(&mark, berth_gguf_map_base(l->file), berth_gguf_map_size(l->file));
        }
    }
    return mark;
}

// ---- rows ----

static bool is_state(const struct session *s) {
    return (s->model->params.desc->has & ARCH_STATE) != 0;
}

static size_t size_of(const struct session *s, const struct ggml_tensor *t, int64_t n) {
    return t == NULL ? 0 : is_state(s) ? ggml_nbytes(t) : (size_t) n * t->nb[1];
}

static bool tensor_write(const struct ggml_tensor *t, size_t size, char *step, FILE *file) {
    for (size_t at = 0; at < size;) {
        const size_t n = size - at < STEP ? size - at : STEP;
        ggml_backend_tensor_get(t, step, at, n);
        if (fwrite(step, 1, n, file) != n) {
            return false;
        }
        at += n;
    }
    return true;
}

// The first `kept` bytes of size go into the tensor.
static bool tensor_read(struct ggml_tensor *t, size_t size, size_t kept, char *step, FILE *file) {
    for (size_t at = 0; at < size;) {
        const size_t n = size - at < STEP ? size - at : STEP;
        if (fread(step, 1, n, file) != n) {
            return false;
        }
        if (at < kept) {
            ggml_backend_tensor_set(t, step, at, n < kept - at ? n : kept - at);
        }
        at += n;
    }
    return true;
}

static bool can_keep(const struct session *s, struct model_error *error) {
    return s->llama == NULL || model_fail(error, "what libllama has read cannot be kept in a file");
}

// ---- the file ----

bool session_save(const struct session *s, const int32_t *tokens, int64_t n, FILE *file, struct model_error *error) {
    if (!can_keep(s, error)) {
        return false;
    }
    const uint64_t head[2] = {mark_of(s), (uint64_t) n};
    char *step             = model_alloc_malloc(STEP);
    bool ok                = step != NULL || model_fail(error, "out of memory");
    if (ok) {
        ok = fwrite(MAGIC, 1, 8, file) == 8 && fwrite(head, sizeof head, 1, file) == 1 &&
             fwrite(tokens, sizeof *tokens, (size_t) n, file) == (size_t) n;
        for (int64_t i = 0; ok && i < s->model->params.n_layer; i++) {
            ok = tensor_write(s->k[i], size_of(s, s->k[i], n), step, file) &&
                 tensor_write(s->v[i], size_of(s, s->v[i], n), step, file);
        }
        ok = ok || model_fail(error, "writing failed: %s", strerror(errno));
    }
    model_alloc_free(step);
    return ok;
}

// How many of the n_kept tokens in the file are those of the text and can be taken: one at least is left to read.
static bool common_find(const struct session *s, FILE *file, uint64_t n_kept, const int32_t *tokens, int64_t n, int64_t *common,
    struct model_error *error) {
    bool is_same = true;
    *common      = 0;
    for (uint64_t i = 0; i < n_kept; i++) {
        int32_t token;
        if (fread(&token, sizeof token, 1, file) != 1) {
            return model_fail(error, "the file is cut short");
        }
        is_same = is_same && *common < n - 1 && *common < s->params.n_ctx && token == tokens[i];
        *common += is_same;
    }
    *common = is_state(s) && (uint64_t) *common < n_kept ? 0 : *common;
    return true;
}

bool session_load(struct session *s, const int32_t *tokens, int64_t n, FILE *file, int64_t *n_kept, struct model_error *error) {
    char magic[8];
    uint64_t head[2];
    *n_kept = 0;
    if (!can_keep(s, error)) {
        return false;
    }
    if (fread(magic, 1, 8, file) != 8 || memcmp(magic, MAGIC, 8) != 0 || fread(head, sizeof head, 1, file) != 1) {
        return model_fail(error, "it is no prompt cache");
    }
    if (head[0] != mark_of(s)) {
        return model_fail(error, "it is of another model, of other adapters, or of a cache of another type");
    }
    if (head[1] > INT32_MAX || !common_find(s, file, head[1], tokens, n, n_kept, error)) {
        return model_fail(error, "it has %" PRIu64 " tokens", head[1]);
    }
    char *step = model_alloc_malloc(STEP);
    bool ok    = step != NULL || model_fail(error, "out of memory");
    for (int64_t i = 0; ok && *n_kept > 0 && i < s->model->params.n_layer; i++) {
        struct ggml_tensor *both[2] = {s->k[i], s->v[i]};
        for (int k = 0; ok && k < 2; k++) {
            ok = tensor_read(both[k], size_of(s, both[k], (int64_t) head[1]), size_of(s, both[k], *n_kept), step, file) ||
                 model_fail(error, "the file is cut short");
        }
    }
    model_alloc_free(step);
    if (!ok) {
        session_reset(s);
        return false;
    }
    s->n_past = *n_kept;
    return true;
}
