// SPDX-License-Identifier: MIT
// logprobs.c: log probabilities of the chosen tokens (generate.h).

#include "base/json.h"
#include "base/min.h"
#include "generate/generate.h"

#include <math.h>

static struct logprob *logprobs_last(const struct logprobs *l) {
    return l->items + (l->n - 1) * (size_t) (l->n_top + 1);
}

// Inserts a token into the list of the most probable tokens, which is sorted with the best first. token -1 marks a free entry.
static void top_insert(struct logprob *top, int64_t n_top, int32_t token, float logit) {
    int64_t i = n_top;
    while (i > 0 && (top[i - 1].token < 0 || top[i - 1].log < logit)) {
        if (i < n_top) {
            top[i] = top[i - 1];
        }
        i--;
    }
    if (i < n_top) {
        top[i] = (struct logprob){token, logit};
    }
}

bool logprobs_compute(struct logprobs *l, const float *logits, int64_t n) {
    if (!berth_grow((void **) &l->items, &l->room, l->n + 1, ((size_t) l->n_top + 1) * sizeof *l->items)) {
        return false;
    }
    l->n++;
    struct logprob *top = logprobs_last(l) + 1;
    float largest = -INFINITY;
    double sum = 0;
    for (int64_t i = 0; i < l->n_top; i++) {
        top[i] = (struct logprob){-1, 0};
    }
    for (int64_t i = 0; i < n; i++) {
        if (!isnan(logits[i])) {
            largest = max_f32(logits[i], largest);
            top_insert(top, l->n_top, (int32_t) i, logits[i]);
        }
    }
    for (int64_t i = 0; i < n; i++) {
        sum += isnan(logits[i]) ? 0 : exp((double) logits[i] - (double) largest);
    }
    const float all = largest + (float) log(sum);
    logprobs_last(l)->log = all; // logarithm of the sum; logprobs_choose replaces it
    logprobs_last(l)->token = -1;
    for (int64_t i = 0; i < l->n_top; i++) {
        top[i].log -= all;
    }
    return true;
}

void logprobs_choose(struct logprobs *l, const float *logits, int32_t token) {
    *logprobs_last(l) = (struct logprob){token, logits[token] - logprobs_last(l)->log};
}

void logprobs_drop(struct logprobs *l) {
    if (l != NULL) {
        l->n--;
    }
}

static void item_write(
    struct berth_json_writer *w, const struct logprob *item, const struct vocab *vocab, char *piece, size_t cap) {
    const size_t n = vocab_piece(vocab, item->token, piece, cap);
    berth_json_printf(w, "'token': %d", (int) item->token);
    berth_json_put_key(w, "text");
    berth_json_write_text(piece, min_size(n, cap), w->file);
    berth_json_printf(w, "'logprob': %.6g", (double) item->log);
}

void logprobs_write(struct berth_json_writer *w, const char *key, const struct logprobs *l, const struct vocab *vocab) {
    const size_t cap = vocab->max_size + 8;
    char *piece = berth_malloc(cap);
    berth_json_begin(w, key, '[');
    for (size_t i = 0; piece != NULL && i < l->n; i++) {
        const struct logprob *items = l->items + i * (size_t) (l->n_top + 1);
        berth_json_begin(w, NULL, '{');
        item_write(w, items, vocab, piece, cap);
        berth_json_begin(w, "top", '[');
        for (int64_t k = 1; k <= l->n_top && items[k].token >= 0; k++) {
            berth_json_begin(w, NULL, '{');
            item_write(w, &items[k], vocab, piece, cap);
            berth_json_end(w);
        }
        berth_json_end(w);
        berth_json_end(w);
    }
    berth_json_end(w);
    berth_free(piece);
}

void logprobs_fini(struct logprobs *l) {
    berth_free(l->items);
    *l = (struct logprobs){0};
}
