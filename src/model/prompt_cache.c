// SPDX-License-Identifier: MIT
// prompt_cache.c: saves the cache of a session to a file, so that a later run need not process the prompt. The file, in the
// machine's byte order:
//
//   "BERTHPC3"; u64: hash of the session, number of tokens, first position of layers with a window; i32: the tokens;
//   per layer: the rows of keys, then of values, of these tokens, or the complete state of a state-space layer.
//
// The hash covers everything that changes a row, such as the weights (fingerprint.c), the adapters and the types of the cache. A
// file with another hash is refused. The rows of the longest common prefix of the saved tokens and the new text are used. There
// are two exceptions:
//   - A state cannot be reversed, so the text of a state-space model must begin with all saved tokens.
//   - For layers with a window, the saved rows must contain the window of the next token.
// If an exception applies, no row is used.

#include "base/min.h"
#include "base/siphash.h"
#include "model/model.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define MAGIC "BERTHPC3"             // the last character is the version
#define STEP_SIZE ((size_t) 1 << 20) // bytes per transfer

// ---- hash ----

// The fingerprint covers the parameters and the weights of the model.
static uint64_t session_hash(const struct session *s) {
    static const struct berth_siphash_key key = {{0x6265727468206b65u, 0x70742070726f6d70u}}; // constant, so that runs agree
    const struct model *m = s->model;
    struct berth_siphash hash = berth_siphash_begin(&key);
    const uint64_t numbers[] = {model_fingerprint(m, true), (uint64_t) s->params.cache_k, (uint64_t) s->params.cache_v,
        m->rope_long != NULL && s->params.n_ctx > m->params.n_ctx_orig}; // RoPE then uses rope_long, otherwise rope_short
    berth_siphash_add(&hash, numbers, sizeof numbers);
    for (const struct model_lora *l = m->loras; l != NULL; l = l->next) {
        for (size_t i = 0; i < l->n_pairs; i++) {
            berth_siphash_add(&hash, &l->pairs[i].scale, sizeof l->pairs[i].scale);
        }
        if (l->file != NULL) {
            berth_siphash_add(&hash, berth_gguf_map_base(l->file), berth_gguf_map_size(l->file));
        }
    }
    return berth_siphash_end(&hash);
}

// ---- rows ----

static bool is_state(const struct session *s) {
    return (s->model->params.desc->has & ARCH_STATE) != 0;
}

struct transfer {
    bool is_write; // to the file; false: from the file
    char *buffer;  // [STEP_SIZE]
    FILE *file;
};

// t NULL: skips the bytes in the file.
static bool bytes_transfer(const struct transfer *m, struct ggml_tensor *t, size_t at, size_t end) {
    for (size_t n; at < end; at += n) {
        n = min_size(end - at, STEP_SIZE);
        if (m->is_write && t != NULL) {
            ggml_backend_tensor_get(t, m->buffer, at, n);
        }
        if ((m->is_write ? fwrite(m->buffer, 1, n, m->file) : fread(m->buffer, 1, n, m->file)) != n) {
            return false;
        }
        if (!m->is_write && t != NULL) {
            ggml_backend_tensor_set(t, m->buffer, at, n);
        }
    }
    return true;
}

// Transfers the rows of positions from ... to - 1. The rows may wrap around the end of a ring.
static bool rows_transfer(const struct transfer *m, struct ggml_tensor *t, int64_t from, int64_t to) {
    for (int64_t n; from < to; from += n) {
        const int64_t row = from % t->ne[1];
        n = min_i64(to - from, t->ne[1] - row);
        if (!bytes_transfer(m, t, (size_t) row * t->nb[1], (size_t) (row + n) * t->nb[1])) {
            return false;
        }
    }
    return true;
}

struct span {
    int64_t first;  // first position of layers with a window; other layers have all positions from 0 on
    int64_t n;      // number of positions in the file
    int64_t n_kept; // the first n_kept positions are used; all when a file is written
};

// Skips the rows of the file that are not used.
static bool tensor_transfer(
    const struct transfer *m, const struct session *s, int64_t layer, struct ggml_tensor *t, const struct span *x) {
    if (t == NULL) {
        return true;
    }
    if (is_state(s)) {
        return bytes_transfer(m, t, 0, ggml_nbytes(t));
    }
    const int64_t first = params_has_window(&s->model->params, layer) ? x->first : 0;
    const int64_t from = x->n_kept - first > t->ne[1] ? x->n_kept - t->ne[1] : first; // the tensor has no room for more rows
    return bytes_transfer(m, NULL, 0, (size_t) (from - first) * t->nb[1]) && rows_transfer(m, t, from, x->n_kept) &&
           bytes_transfer(m, NULL, 0, (size_t) (x->n - x->n_kept) * t->nb[1]);
}

static bool layers_transfer(const struct session *s, const struct span *x, bool is_write, FILE *file, struct model_error *error) {
    const struct transfer m = {is_write, berth_malloc(STEP_SIZE), file};
    bool ok = m.buffer != NULL || model_fail(error, "out of memory");
    for (int64_t i = 0; ok && i < s->model->params.n_layer; i++) {
        ok = (tensor_transfer(&m, s, i, s->k[i], x) && tensor_transfer(&m, s, i, s->v[i], x)) ||
             (is_write ? model_fail(error, "writing failed: %s", strerror(errno)) : model_fail(error, "the file is truncated"));
    }
    berth_free(m.buffer);
    return ok;
}

static bool save_is_supported(const struct session *s, struct model_error *error) {
    return s->model->engine->can_save ||
           model_fail(error, "a prompt cache is not supported for models that %s runs", s->model->engine->name);
}

// ---- files ----

bool session_save(const struct session *s, const int32_t *tokens, int64_t n, FILE *file, struct model_error *error) {
    if (!save_is_supported(s, error)) {
        return false;
    }
    const struct span all = {.first = n > s->n_ring ? n - s->n_ring : 0, .n = n, .n_kept = n};
    const uint64_t head[3] = {session_hash(s), (uint64_t) n, (uint64_t) all.first};
    const bool ok = fwrite(MAGIC, 1, 8, file) == 8 && fwrite(head, sizeof head, 1, file) == 1 &&
                    fwrite(tokens, sizeof *tokens, (size_t) n, file) == (size_t) n;
    return ok ? layers_transfer(s, &all, true, file, error) : model_fail(error, "writing failed: %s", strerror(errno));
}

// Sets x->n_kept to the number of leading tokens that the text and the file share and that can be used. At least one token of the
// text is not covered, because the model must compute logits.
static bool prefix_find(
    const struct session *s, FILE *file, struct span *x, const int32_t *tokens, int64_t n, struct model_error *error) {
    bool is_prefix = true;
    for (int64_t i = 0; i < x->n; i++) {
        int32_t token;
        if (fread(&token, sizeof token, 1, file) != 1) {
            return model_fail(error, "the file is truncated");
        }
        // While is_prefix is true, x->n_kept equals i, so tokens[i] is read only if it exists.
        if (is_prefix && (x->n_kept >= n - 1 || x->n_kept >= s->params.n_ctx || token != tokens[i])) {
            is_prefix = false;
        }
        x->n_kept += is_prefix;
    }
    const int64_t n_window = s->model->params.n_window;
    // Whether the next token attends to rows that were not saved.
    const bool is_beyond_window = n_window > 0 && x->first > 0 && x->n_kept - n_window + 1 < x->first;
    if (is_beyond_window || (is_state(s) && x->n_kept < x->n)) {
        x->n_kept = 0;
    }
    return true;
}

bool session_load(struct session *s, const int32_t *tokens, int64_t n, FILE *file, bool *is_old, struct model_error *error) {
    char magic[8];
    uint64_t head[3];
    *is_old = false;
    if (!save_is_supported(s, error)) {
        return false;
    }
    const bool has_magic = fread(magic, 1, 8, file) == 8;
    if (has_magic && memcmp(magic, MAGIC, 7) == 0 && magic[7] != MAGIC[7]) {
        *is_old = true;
        return model_fail(error, "the file has format '%.8s' of another version of Berth; this version uses '" MAGIC "'", magic);
    }
    if (!has_magic || memcmp(magic, MAGIC, 8) != 0 || fread(head, sizeof head, 1, file) != 1) {
        return model_fail(error, "not a prompt cache");
    }
    if (head[0] != session_hash(s)) {
        return model_fail(error,
            "the file was saved with another model, other adapters or another cache type; use another file, or remove this one");
    }
    if (head[1] > INT32_MAX || head[2] > head[1]) {
        return model_fail(
            error, "the file is damaged: it states %" PRIu64 " tokens with windows from position %" PRIu64, head[1], head[2]);
    }
    struct span x = {.first = (int64_t) head[2], .n = (int64_t) head[1]};
    if (!prefix_find(s, file, &x, tokens, n, error)) {
        return false;
    }
    if (x.n_kept > 0 && !layers_transfer(s, &x, false, file, error)) {
        session_reset(s);
        return false;
    }
    s->n_past = x.n_kept;
    return true;
}
