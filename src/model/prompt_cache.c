// SPDX-License-Identifier: MIT
// prompt_cache.c: what a session has read, as a file, so that another run need not read it again.
//
//   "BERTHPC3", then u64: mark of the model, number of tokens, first position that layers with a window still have; the tokens,
//   i32; then of each layer the rows of keys and those of values that the tokens have, in their order, or the whole state of a
//   layer that has one. All in the machine's own byte order.
//
// The mark is of the model's parameters and weights (fingerprint.c), its adapters, the cache's types and what else decides a row,
// so that a file of another model is told apart. A text that begins as the kept one does goes on behind what is common; a state
// cannot be taken back, so all of it must be the beginning, and a window not further than the rows reach that were kept.

#include "base/min.h"
#include "base/siphash.h"
#include "model/model.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define MAGIC "BERTHPC3" // the last byte is the version
#define STEP ((size_t) 1 << 20)

// ---- the mark ----

// Of all that decides a row of the cache. A model's fingerprint has its parameters and its weights.
static uint64_t mark_of(const struct session *s) {
    static const struct berth_siphash_key key = {{0x6265727468206b65u, 0x70742070726f6d70u}}; // the same in every run
    const struct model *m = s->model;
    struct berth_siphash hash = berth_siphash_begin(&key);
    const uint64_t numbers[] = {model_fingerprint(m, true), (uint64_t) s->params.cache_k, (uint64_t) s->params.cache_v,
        m->rope_long != NULL && s->params.n_ctx > m->params.n_ctx_orig}; // these rows are turned otherwise
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

// Which way, and through what.
struct mover {
    bool is_write; // to the file, else from there
    char *step;    // [STEP]
    FILE *file;
};

// Bytes at .. end of a tensor; t NULL: what is read is dropped.
static bool bytes_move(const struct mover *m, struct ggml_tensor *t, size_t at, size_t end) {
    for (size_t n; at < end; at += n) {
        n = min_size(end - at, STEP);
        if (m->is_write && t != NULL) {
            ggml_backend_tensor_get(t, m->step, at, n);
        }
        if ((m->is_write ? fwrite(m->step, 1, n, m->file) : fread(m->step, 1, n, m->file)) != n) {
            return false;
        }
        if (!m->is_write && t != NULL) {
            ggml_backend_tensor_set(t, m->step, at, n);
        }
    }
    return true;
}

// The rows of positions from .. to, which may go around the end of a ring.
static bool rows_move(const struct mover *m, struct ggml_tensor *t, int64_t from, int64_t to) {
    for (int64_t n; from < to; from += n) {
        const int64_t row = from % t->ne[1];
        n = min_i64(to - from, t->ne[1] - row);
        if (!bytes_move(m, t, (size_t) row * t->nb[1], (size_t) (row + n) * t->nb[1])) {
            return false;
        }
    }
    return true;
}

// What a file has of positions, and what is wanted of it.
struct span {
    int64_t first;  // of layers with a window; others have all from 0 on
    int64_t n;      // all
    int64_t n_kept; // of these; of a file that is written: all
};

// Rows that are kept to or from the file; the file's others are passed over.
static bool tensor_move(
    const struct mover *m, const struct session *s, int64_t layer, struct ggml_tensor *t, const struct span *x) {
    if (t == NULL) {
        return true;
    }
    if (is_state(s)) {
        return bytes_move(m, t, 0, ggml_nbytes(t));
    }
    const int64_t first = params_has_window(&s->model->params, layer) ? x->first : 0;
    const int64_t from = x->n_kept - first > t->ne[1] ? x->n_kept - t->ne[1] : first; // more has no room
    return bytes_move(m, NULL, 0, (size_t) (from - first) * t->nb[1]) && rows_move(m, t, from, x->n_kept) &&
           bytes_move(m, NULL, 0, (size_t) (x->n - x->n_kept) * t->nb[1]);
}

static bool all_move(const struct session *s, const struct span *x, bool is_write, FILE *file, struct model_error *error) {
    const struct mover m = {is_write, berth_malloc(STEP), file};
    bool ok = m.step != NULL || model_fail(error, "out of memory");
    for (int64_t i = 0; ok && i < s->model->params.n_layer; i++) {
        ok = (tensor_move(&m, s, i, s->k[i], x) && tensor_move(&m, s, i, s->v[i], x)) ||
             (is_write ? model_fail(error, "writing failed: %s", strerror(errno)) : model_fail(error, "the file is cut short"));
    }
    berth_free(m.step);
    return ok;
}

static bool can_keep(const struct session *s, struct model_error *error) {
    return s->model->engine->can_save || model_fail(error, "what %s has read cannot be kept in a file", s->model->engine->name);
}

// ---- the file ----

bool session_save(const struct session *s, const int32_t *tokens, int64_t n, FILE *file, struct model_error *error) {
    if (!can_keep(s, error)) {
        return false;
    }
    const struct span all = {.first = n > s->n_ring ? n - s->n_ring : 0, .n = n, .n_kept = n};
    const uint64_t head[3] = {mark_of(s), (uint64_t) n, (uint64_t) all.first};
    const bool ok = fwrite(MAGIC, 1, 8, file) == 8 && fwrite(head, sizeof head, 1, file) == 1 &&
                    fwrite(tokens, sizeof *tokens, (size_t) n, file) == (size_t) n;
    return ok ? all_move(s, &all, true, file, error) : model_fail(error, "writing failed: %s", strerror(errno));
}

// How many of the n_kept tokens in the file are those of the text and can be taken: one at least is left to read.
static bool common_find(
    const struct session *s, FILE *file, struct span *x, const int32_t *tokens, int64_t n, struct model_error *error) {
    bool is_same = true;
    for (int64_t i = 0; i < x->n; i++) {
        int32_t token;
        if (fread(&token, sizeof token, 1, file) != 1) {
            return model_fail(error, "the file is cut short");
        }
        if (x->n_kept >= n - 1 || x->n_kept >= s->params.n_ctx || token != tokens[i]) {
            is_same = false;
        }
        x->n_kept += is_same;
    }
    const int64_t n_window = s->model->params.n_window;
    const bool is_far = n_window > 0 && x->first > 0 && x->n_kept - n_window + 1 < x->first; // the next token sees further
    if (is_far || (is_state(s) && x->n_kept < x->n)) {
        x->n_kept = 0;
    }
    return true;
}

bool session_load(struct session *s, const int32_t *tokens, int64_t n, FILE *file, bool *is_old, struct model_error *error) {
    char magic[8];
    uint64_t head[3];
    *is_old = false;
    if (!can_keep(s, error)) {
        return false;
    }
    const bool has_magic = fread(magic, 1, 8, file) == 8;
    if (has_magic && memcmp(magic, MAGIC, 7) == 0 && magic[7] != MAGIC[7]) {
        *is_old = true;
        return model_fail(error, "it has format '%.8s' of another version of Berth, and this one has '" MAGIC "'", magic);
    }
    if (!has_magic || memcmp(magic, MAGIC, 8) != 0 || fread(head, sizeof head, 1, file) != 1) {
        return model_fail(error, "it is no prompt cache");
    }
    if (head[0] != mark_of(s)) {
        return model_fail(error,
            "it is of another model, of other adapters, or of a cache of another type: name another file, or remove this one");
    }
    if (head[1] > INT32_MAX || head[2] > head[1]) {
        return model_fail(error, "it has %" PRIu64 " tokens from %" PRIu64 " on", head[1], head[2]);
    }
    struct span x = {.first = (int64_t) head[2], .n = (int64_t) head[1]};
    if (!common_find(s, file, &x, tokens, n, error)) {
        return false;
    }
    if (x.n_kept > 0 && !all_move(s, &x, false, file, error)) {
        session_reset(s);
        return false;
    }
    s->n_past = x.n_kept;
    return true;
}
