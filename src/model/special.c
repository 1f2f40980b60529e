// SPDX-License-Identifier: MIT
// special.c: which special tokens stand in a text, spelled out. The longest are looked for first, in all of the text, and take
// their bytes; of two of one size that overlap, the token of the lower id. One look into the table a byte and size of special
// tokens, at bytes that some special token begins with.

#include "model/vocab.h"

#include <stdlib.h>

static bool is_special(const struct vocab *v, int32_t id, bool with_control) {
    return v->types[id] == TOKEN_USER || (with_control && (v->types[id] == TOKEN_CONTROL || v->types[id] == TOKEN_UNKNOWN));
}

static int by_size(const void *a, const void *b) {
    const uint32_t x = *(const uint32_t *) a, y = *(const uint32_t *) b;
    return (x < y) - (x > y);
}

bool specials_init(struct vocab *v) {
    size_t n = 0;
    for (int32_t i = 0; i < v->n_tokens; i++) {
        n += is_special(v, i, true);
    }
    v->special_sizes = n > 0 ? model_alloc_malloc(n * sizeof *v->special_sizes) : NULL;
    if (v->special_sizes == NULL) {
        return n == 0;
    }
    n = 0;
    for (int32_t i = 0; i < v->n_tokens; i++) {
        if (is_special(v, i, true) && v->sizes[i] > 0) {
            v->special_sizes[n++]                               = v->sizes[i];
            v->is_special_first[(unsigned char) v->texts[i][0]] = true;
        }
    }
    qsort(v->special_sizes, n, sizeof *v->special_sizes, by_size);
    for (size_t i = 0; i < n; i++) {
        if (i == 0 || v->special_sizes[i] != v->special_sizes[v->n_special_sizes - 1]) {
            v->special_sizes[v->n_special_sizes++] = v->special_sizes[i];
        }
    }
    return true;
}

struct match {
    int32_t id;
    uint32_t at; // in the text
};

static int by_id(const void *a, const void *b) {
    const struct match *x = a, *y = b;
    return x->id != y->id ? (x->id > y->id) - (x->id < y->id) : (x->at > y->at) - (x->at < y->at);
}

// What is taken is at least n bytes long, so it lies over n bytes only if it does over the first or the last of them.
static bool is_free(const int32_t *at, size_t i, size_t n) {
    return at[i] == SPECIAL_NONE && at[i + n - 1] == SPECIAL_NONE;
}

// Those of n bytes; `found` has room for one a byte of the text.
static void size_find(
    const struct vocab *v, const char *text, size_t size, bool with_control, size_t n, struct match *found, int32_t *at) {
    size_t n_found = 0;
    for (size_t i = 0; i + n <= size; i++) {
        if (v->is_special_first[(unsigned char) text[i]] && is_free(at, i, n)) {
            const int32_t id = vocab_find(v, text + i, n);
            if (id >= 0 && is_special(v, id, with_control)) {
                found[n_found++] = (struct match){id, (uint32_t) i};
            }
        }
    }
    qsort(found, n_found, sizeof *found, by_id);
    for (size_t f = 0; f < n_found; f++) {
        if (is_free(at, found[f].at, n)) {
            for (size_t k = 1; k < n; k++) {
                at[found[f].at + k] = SPECIAL_INSIDE;
            }
            at[found[f].at] = found[f].id;
        }
    }
}

int32_t *specials_find(const struct vocab *v, const char *text, size_t size, bool with_control) {
    int32_t *at         = model_alloc_malloc((size + 1) * sizeof *at);
    struct match *found = model_alloc_malloc((size + 1) * sizeof *found);
    if (at == NULL || found == NULL) {
        model_alloc_free(at);
        model_alloc_free(found);
        return NULL;
    }
    for (size_t i = 0; i < size; i++) {
        at[i] = SPECIAL_NONE;
    }
    for (size_t s = 0; s < v->n_special_sizes; s++) {
        if (v->special_sizes[s] <= size) {
            size_find(v, text, size, with_control, v->special_sizes[s], found, at);
        }
    }
    model_alloc_free(found);
    return at;
}
