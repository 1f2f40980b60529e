// SPDX-License-Identifier: MIT
// filter.c: converts tokens to complete characters and finds stop words (generate.h: struct text_filter).

#include "base/min.h"
#include "generate/generate.h"

#include <string.h>

static size_t stop_longest(const char *const *stops, int n_stops) {
    size_t n = 0;
    for (int i = 0; i < n_stops; i++) {
        n = max_size(n, strlen(stops[i]));
    }
    return n;
}

static size_t piece_size(const struct vocab *vocab) {
    return vocab->max_size + 8;
}

size_t text_filter_size_for(const struct vocab *vocab, size_t max_stop) {
    return piece_size(vocab) + max_stop + 3 * (piece_size(vocab) + 4);
}

size_t text_filter_size(const struct vocab *vocab, const char *const *stops, int n_stops) {
    return text_filter_size_for(vocab, stop_longest(stops, n_stops));
}

void text_filter_init(struct text_filter *f, const struct vocab *vocab, const char *const *stops, int n_stops, char *memory) {
    *f = (struct text_filter){
        .vocab = vocab, .stops = stops, .n_stops = n_stops, .piece = memory, .held = memory + piece_size(vocab)};
}

// Returns how many held bytes can be passed on: the bytes before a stop word, or before a suffix that may begin a stop word. Sets
// is_over if a complete stop word is held.
static size_t held_count(struct text_filter *f) {
    size_t whole = f->n_held, part = f->n_held; // where the first complete stop word and the first possible one begin
    for (int i = 0; i < f->n_stops; i++) {
        const size_t size = strlen(f->stops[i]);
        for (size_t at = 0; at < whole; at++) {
            const size_t n_compared = min_size(f->n_held - at, size);
            if (memcmp(f->held + at, f->stops[i], n_compared) != 0) {
                continue;
            }
            part = min_size(part, at);
            if (n_compared == size) {
                whole = at;
                f->is_over = true;
            }
        }
    }
    return f->is_over ? whole : part;
}

// Drops the bytes that the last call passed on.
static void passed_drop(struct text_filter *f) {
    f->n_held -= f->n_passed;
    memmove(f->held, f->held + f->n_passed, f->n_held);
    f->n_passed = 0;
}

// Passes on the held bytes, except for an end that may be the beginning of a stop word.
static size_t held_pass(struct text_filter *f, char **text) {
    f->n_passed = held_count(f);
    if (f->is_over) {
        f->n_held = f->n_passed;
    }
    *text = f->held;
    return f->n_passed;
}

size_t text_filter_put(struct text_filter *f, int32_t token, char **text) {
    passed_drop(f);
    const size_t n = vocab_piece(f->vocab, token, f->piece, piece_size(f->vocab));
    f->n_held += utf8_stream_put(&f->stream, f->piece, n, f->held + f->n_held);
    return held_pass(f, text);
}

size_t text_filter_end(struct text_filter *f, char **text) {
    passed_drop(f);
    if (!f->is_over) {
        f->n_held += utf8_stream_end(&f->stream, f->held + f->n_held);
        held_pass(f, text);
    }
    f->n_passed = f->n_held;
    *text = f->held;
    return f->n_passed;
}
