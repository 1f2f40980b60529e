// SPDX-License-Identifier: MIT
// data.c: concatenates texts to one sequence of tokens, cuts the sequence into windows, and shuffles the windows in each epoch.

#include "train/train.h"

#include <inttypes.h>
#include <string.h>

// ---- texts ----

static bool text_add(struct train_data *d, const struct vocab *vocab, const char *text, size_t size, struct model_error *error) {
    d->n_texts++;
    return (vocab->bos < 0 || !vocab->add_bos || token_push(&d->tokens, vocab->bos, error)) &&
           vocab_encode(vocab, text, size, ENCODE_PLAIN, &d->tokens, error) &&
           (vocab->eos < 0 || token_push(&d->tokens, vocab->eos, error));
}

// Returns the bytes of the first text. *n_between: bytes of the separator after the text.
static size_t text_size(const char *text, size_t size, enum train_split split, size_t *n_between) {
    size_t n = 0;
    *n_between = 0;
    if (split == TRAIN_SPLIT_FILE) {
        return size;
    }
    const size_t n_separator = split == TRAIN_SPLIT_LINE ? 1 : 2; // line ends that separate texts
    for (size_t n_ends = 0, text_end = 0; n < size; n++) {
        if (text[n] == '\n') {
            n_ends++;
        } else if (text[n] != '\r' && text[n] != ' ' && text[n] != '\t') {
            n_ends = 0;
        }
        if (n_ends == 0) {
            text_end = n + 1; // after the last character that is not blank
        }
        if (n_ends == n_separator) {
            *n_between = n + 1 - text_end;
            return text_end;
        }
    }
    return n;
}

static bool is_blank(const char *text, size_t size) {
    for (size_t i = 0; i < size; i++) {
        if (strchr(" \t\r\n", text[i]) == NULL || text[i] == '\0') {
            return false;
        }
    }
    return true;
}

bool train_data_add(struct train_data *d, const struct vocab *vocab, const char *text, size_t size, enum train_split split,
    struct model_error *error) {
    while (size > 0) {
        size_t n_between;
        const size_t n = text_size(text, size, split, &n_between);
        size_t n_text = n;
        while (split == TRAIN_SPLIT_FILE && n_text > 0 && strchr("\r\n", text[n_text - 1]) != NULL && text[n_text - 1] != '\0') {
            n_text--; // the final line end is not part of a text
        }
        if (!is_blank(text, n_text) && !text_add(d, vocab, text, n_text, error)) {
            return false;
        }
        text += n + n_between;
        size -= n + n_between;
    }
    return true;
}

void train_data_fini(struct train_data *d) {
    token_list_fini(&d->tokens);
    berth_free(d->order);
    d->order = NULL;
}

// ---- windows ----

bool train_data_cut(struct train_data *d, int64_t n_ctx, struct model_error *error) {
    static const struct berth_siphash_key key = {{0x6265727468, 0x747261696E}};
    const int64_t n = (int64_t) d->tokens.n;
    d->n_ctx = n_ctx;
    d->n_windows = n > 0 ? (n - 1) / n_ctx : 0;
    d->epoch = -1;
    if (d->n_windows == 0) {
        return model_fail(error,
            "the texts have %" PRId64 " tokens, but a sequence of %" PRId64 " needs %" PRId64
            ": give more text or a smaller --ctx",
            n, n_ctx, n_ctx + 1);
    }
    d->order = berth_malloc((size_t) d->n_windows * sizeof *d->order);
    if (d->order == NULL) {
        return model_fail(error, "out of memory for the order of %" PRId64 " windows", d->n_windows);
    }
    struct berth_siphash s = berth_siphash_begin(&key);
    berth_siphash_add(&s, d->tokens.ids, d->tokens.n * sizeof *d->tokens.ids);
    berth_siphash_add(&s, &n_ctx, sizeof n_ctx);
    d->hash = berth_siphash_end(&s);
    return true;
}

const int32_t *train_data_plain(const struct train_data *d, int64_t i) {
    return d->tokens.ids + i * d->n_ctx;
}

// Fisher and Yates.
static void order_make(struct train_data *d, uint64_t seed, int64_t epoch) {
    uint64_t state = seed ^ (uint64_t) epoch * 0xD1342543DE82EF95u;
    for (int64_t i = 0; i < d->n_windows; i++) {
        d->order[i] = i;
    }
    for (int64_t i = d->n_windows - 1; i > 0; i--) {
        const int64_t j = (int64_t) (train_random(&state) % (uint64_t) (i + 1));
        const int64_t swap = d->order[i];
        d->order[i] = d->order[j];
        d->order[j] = swap;
    }
    d->epoch = epoch;
}

const int32_t *train_data_window(struct train_data *d, uint64_t seed, int64_t i) {
    const int64_t epoch = i / d->n_windows;
    if (epoch != d->epoch) {
        order_make(d, seed, epoch);
    }
    return train_data_plain(d, d->order[i % d->n_windows]);
}
