// SPDX-License-Identifier: MIT
// tokenize.c: converts text to tokens. The text between special tokens (special.c) is encoded by SentencePiece BPE or by GPT-2 BPE.

#include "model/vocab.h"

#include <string.h>

// ---- merging: the cheapest pair of adjacent pieces is merged first. Pairs wait in a heap. A pair is outdated if one of its
// pieces was merged with another piece; it is dropped when it is popped. Each merge adds at most two pairs: O(n log n) ----

// Computes the cost of merging two adjacent pieces. False: the pieces cannot be merged.
typedef bool (*merge_cost_t)(const void *user, const char *left, size_t n_left, size_t n_right, double *cost);
struct merge_piece {
    uint32_t at, size;
    int32_t before, next; // -1: none
};

struct pair {
    double cost;
    int32_t left, right;
    uint32_t size; // size of both pieces when the pair was added
};

struct merger {
    const char *text;
    struct merge_piece *pieces;
    struct pair *heap; // capacity 3 * n_pieces: one per piece, two per merge
    size_t n_heap;
    merge_cost_t cost;
    const void *user;
};

static bool is_before(const struct pair *a, const struct pair *b) {
    return a->cost < b->cost || (a->cost == b->cost && a->left < b->left);
}

static void heap_push(struct merger *m, struct pair pair) {
    size_t i = m->n_heap++;
    for (; i > 0 && is_before(&pair, &m->heap[(i - 1) / 2]); i = (i - 1) / 2) {
        m->heap[i] = m->heap[(i - 1) / 2];
    }
    m->heap[i] = pair;
}

static struct pair heap_pop(struct merger *m) {
    const struct pair best = m->heap[0], moved = m->heap[--m->n_heap];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < m->n_heap; i = child) {
        if (child + 1 < m->n_heap && is_before(&m->heap[child + 1], &m->heap[child])) {
            child++;
        }
        if (!is_before(&m->heap[child], &moved)) {
            break;
        }
        m->heap[i] = m->heap[child];
    }
    m->heap[i] = moved;
    return best;
}

static void pair_try(struct merger *m, int32_t left, int32_t right) {
    if (left < 0 || right < 0) {
        return;
    }
    const struct merge_piece *a = &m->pieces[left], *b = &m->pieces[right];
    struct pair pair = {.left = left, .right = right, .size = a->size + b->size};
    if (m->cost(m->user, m->text + a->at, a->size, b->size, &pair.cost)) {
        heap_push(m, pair);
    }
}

static size_t pieces_start(struct merger *m, size_t size) {
    size_t n = 0;
    uint32_t c;
    for (size_t at = 0; at < size; n++) {
        const size_t step = utf8_next(m->text + at, size - at, &c);
        m->pieces[n] = (struct merge_piece){(uint32_t) at, (uint32_t) step, (int32_t) n - 1, (int32_t) n + 1};
        at += step;
    }
    if (n > 0) {
        m->pieces[n - 1].next = -1;
    }
    return n;
}

// Starts with one piece per character and merges the cheapest pair until no pair can be merged. Of equally cheap pairs, the
// leftmost is merged. Returns all *n pieces in order. A piece that was merged into its left neighbour has size 0. NULL: out of
// memory.
static struct merge_piece *merge_text(const char *text, size_t size, merge_cost_t cost, const void *user, size_t *n) {
    struct merger m = {.text = text, .cost = cost, .user = user};
    *n = 0;
    if (size > INT32_MAX / 4) {
        return NULL;
    }
    m.pieces = berth_malloc((size + 1) * sizeof *m.pieces);
    m.heap = berth_malloc((3 * size + 1) * sizeof *m.heap);
    if (m.pieces == NULL || m.heap == NULL) {
        berth_free(m.pieces);
        berth_free(m.heap);
        return NULL;
    }
    *n = pieces_start(&m, size);
    for (size_t i = 1; i < *n; i++) {
        pair_try(&m, (int32_t) i - 1, (int32_t) i);
    }
    while (m.n_heap > 0) {
        const struct pair pair = heap_pop(&m);
        struct merge_piece *a = &m.pieces[pair.left], *b = &m.pieces[pair.right];
        if (a->size == 0 || b->size == 0 || a->size + b->size != pair.size) {
            continue;
        }
        a->size += b->size;
        b->size = 0;
        a->next = b->next;
        if (b->next >= 0) {
            m.pieces[b->next].before = pair.left;
        }
        pair_try(&m, a->before, pair.left);
        pair_try(&m, pair.left, a->next);
    }
    berth_free(m.heap);
    return m.pieces;
}

// ---- SentencePiece BPE: a space is written as U+2581. Pieces are merged by score. A character without a token becomes its bytes
// ----

#define SPACE "\xE2\x96\x81"

static bool spm_cost(const void *user, const char *left, size_t n_left, size_t n_right, double *cost) {
    const struct vocab *v = user;
    const int32_t token = vocab_find(v, left, n_left + n_right);
    if (token < 0) {
        return false;
    }
    *cost = -(double) v->scores[token];
    return true;
}

static bool spm_push(const struct vocab *v, const char *text, size_t size, struct token_list *out, struct model_error *error) {
    const int32_t token = vocab_find(v, text, size);
    if (token >= 0) {
        return token_push(out, token, error);
    }
    for (size_t i = 0; i < size; i++) {
        const int32_t byte = v->byte_token[(unsigned char) text[i]];
        if (byte < 0) { // the vocabulary has no byte tokens
            return v->unknown < 0 || token_push(out, v->unknown, error);
        }
        if (!token_push(out, byte, error)) {
            return false;
        }
    }
    return true;
}

static bool spm_encode(const struct vocab *v, const char *text, size_t size, struct token_list *out, struct model_error *error) {
    char *spaced = berth_malloc(3 * size + 1);
    struct merge_piece *pieces = NULL;
    size_t n = 0, n_spaced = 0;
    for (size_t i = 0; spaced != NULL && i < size; i++) {
        if (text[i] == ' ') {
            memcpy(spaced + n_spaced, SPACE, 3);
            n_spaced += 3;
        } else {
            spaced[n_spaced++] = text[i];
        }
    }
    if (spaced != NULL) {
        pieces = merge_text(spaced, n_spaced, spm_cost, v, &n);
    }
    bool ok = pieces != NULL || model_fail(error, "out of memory for the tokens of %zu bytes", size);
    for (size_t i = 0; ok && i < n; i++) {
        ok = pieces[i].size == 0 || spm_push(v, spaced + pieces[i].at, pieces[i].size, out, error);
    }
    berth_free(spaced);
    berth_free(pieces);
    return ok;
}

// ---- GPT-2 BPE: a text is split into words. The bytes of a word are written in an alphabet of printable characters. Pieces are
// merged in the order of the file's merges ----

// The file writes a merge as "left right".
static bool bpe_cost(const void *user, const char *left, size_t n_left, size_t n_right, double *cost) {
    const struct vocab *v = user;
    const struct text_part parts[] = {{left, n_left}, {" ", 1}, {left + n_left, n_right}};
    const int32_t rank = n_left + n_right + 1 > v->merges.longest ? -1 : text_table_find(&v->merges, parts, 3);
    *cost = rank;
    return rank >= 0;
}

// Merges of an inconsistent file can produce a piece without a token. The piece is then encoded character by character.
static bool bpe_push(const struct vocab *v, const char *text, size_t size, struct token_list *out, struct model_error *error) {
    int32_t token = vocab_find(v, text, size);
    if (token >= 0) {
        return token_push(out, token, error);
    }
    uint32_t c;
    for (size_t at = 0, step; at < size; at += step) {
        step = utf8_next(text + at, size - at, &c);
        token = vocab_find(v, text + at, step);
        if (token < 0) {
            token = v->unknown;
        }
        if (token >= 0 && !token_push(out, token, error)) {
            return false;
        }
    }
    return true;
}

static bool word_push(const struct vocab *v, const char *text, size_t size, struct token_list *out, struct model_error *error) {
    if (v->is_word_first && vocab_find(v, text, size) >= 0) {
        return bpe_push(v, text, size, out, error);
    }
    size_t n;
    struct merge_piece *pieces = merge_text(text, size, bpe_cost, v, &n);
    bool ok = pieces != NULL || model_fail(error, "out of memory for a word of %zu bytes", size);
    for (size_t i = 0; ok && i < n; i++) {
        ok = pieces[i].size == 0 || bpe_push(v, text + pieces[i].at, pieces[i].size, out, error);
    }
    berth_free(pieces);
    return ok;
}

struct gpt2_text {
    uint32_t *chars; // [n]
    size_t *ends;    // [n] end of each character in `text`
    bool *is_cut;    // [n + 1]
    char *text;
    size_t n;
};

static bool gpt2_text_init(struct gpt2_text *w, const char *text, size_t size) {
    w->chars = berth_calloc(size + 1, sizeof *w->chars);
    w->ends = berth_malloc((size + 1) * sizeof *w->ends);
    w->is_cut = berth_calloc(size + 1, sizeof *w->is_cut);
    w->text = berth_malloc(2 * size + 4);
    if (w->chars == NULL || w->ends == NULL || w->is_cut == NULL || w->text == NULL) {
        return false;
    }
    size_t n_text = 0;
    for (size_t at = 0, step; at < size; at += step, w->n++) {
        step = utf8_next(text + at, size - at, &w->chars[w->n]);
        for (size_t i = 0; i < step; i++) {
            char out[4];
            const size_t n = utf8_put(byte_to_char((uint8_t) text[at + i]), out);
            for (size_t k = 0; k < n; k++) {
                w->text[n_text++] = out[k];
            }
        }
        w->ends[w->n] = n_text;
    }
    return true;
}

static bool bpe_encode(const struct vocab *v, const char *text, size_t size, struct token_list *out, struct model_error *error) {
    struct gpt2_text w = {0};
    bool ok = size < SIZE_MAX / 16 && gpt2_text_init(&w, text, size);
    if (!ok) {
        model_fail(error, "out of memory for the words of %zu bytes", size);
    } else {
        split_words(v->split, w.chars, w.n, w.is_cut);
        w.is_cut[w.n] = true;
        size_t start = 0;
        for (size_t i = 1; ok && i <= w.n; i++) {
            if (w.is_cut[i]) {
                ok = word_push(v, w.text + start, w.ends[i - 1] - start, out, error);
                start = w.ends[i - 1];
            }
        }
    }
    berth_free(w.chars);
    berth_free(w.ends);
    berth_free(w.is_cut);
    berth_free(w.text);
    return ok;
}

// ---- complete texts ----

// The part contains no special token.
static bool plain_encode(
    const struct vocab *v, const char *text, size_t size, struct token_list *out, struct model_error *error) {
    if (size == 0) {
        return true;
    }
    if (v->kind == VOCAB_BPE) {
        return bpe_encode(v, text, size, out, error);
    }
    if (!v->add_space) {
        return spm_encode(v, text, size, out, error);
    }
    char *spaced = berth_malloc(size + 1);
    if (spaced == NULL) {
        return model_fail(error, "out of memory for a text of %zu bytes", size);
    }
    spaced[0] = ' ';
    memcpy(spaced + 1, text, size);
    const bool ok = spm_encode(v, spaced, size + 1, out, error);
    berth_free(spaced);
    return ok;
}

static bool text_encode(
    const struct vocab *v, const char *text, size_t size, unsigned how, struct token_list *out, struct model_error *error) {
    const bool is_complete = (how & ENCODE_ADD) != 0;
    if (is_complete && v->add_bos && v->bos >= 0 && !token_push(out, v->bos, error)) {
        return false;
    }
    int32_t *specials = specials_find(v, text, size, (how & ENCODE_PARSE) != 0);
    bool ok = specials != NULL || model_fail(error, "out of memory for the special tokens of %zu bytes", size);
    size_t start = 0;
    for (size_t at = 0; ok && at < size; at++) {
        if (specials[at] >= 0) {
            ok = plain_encode(v, text + start, at - start, out, error) && token_push(out, specials[at], error);
            start = at + v->tokens.sizes[specials[at]];
        }
    }
    berth_free(specials);
    return ok && plain_encode(v, text + start, size - start, out, error) &&
           (!is_complete || !v->add_eos || v->eos < 0 || token_push(out, v->eos, error));
}

// ---- all tokenizers ----

const struct vocab_ops vocab_ops_file = {.encode = text_encode, .piece = token_piece, .is_end = token_is_end};

bool vocab_encode(
    const struct vocab *v, const char *text, size_t size, unsigned how, struct token_list *out, struct model_error *error) {
    if (size > INT32_MAX / 16) {
        return model_fail(error, "a text of %zu bytes is too long", size);
    }
    return v->ops->encode(v, text, size, how, out, error);
}

size_t vocab_piece(const struct vocab *v, int32_t token, char *out, size_t cap) {
    return v->ops->piece(v, token, out, cap);
}

bool vocab_is_end(const struct vocab *v, int32_t token) {
    return v->ops->is_end(v, token);
}
