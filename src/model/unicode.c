// SPDX-License-Identifier: MIT
// unicode.c: decodes and encodes UTF-8, and classifies characters as \p{L}, \p{N}, \p{P} and \s do.

#include "model/unicode_table.h"
#include "model/vocab.h"

#include <string.h>

#define REPLACEMENT 0xFFFDu

// 0: no character begins with this byte.
static size_t char_size(unsigned char first) {
    if (first < 0xC2) {
        return first < 0x80;
    }
    return first < 0xF5 ? 2 + (first >= 0xE0) + (first >= 0xF0) : 0;
}

// Excludes overlong forms, surrogates and values above U+10FFFF.
static bool is_second(unsigned char first, unsigned char second) {
    switch (first) {
        case 0xE0: return second >= 0xA0 && second <= 0xBF;
        case 0xED: return second >= 0x80 && second <= 0x9F;
        case 0xF0: return second >= 0x90 && second <= 0xBF;
        case 0xF4: return second >= 0x80 && second <= 0x8F;
        default: return second >= 0x80 && second <= 0xBF;
    }
}

// Returns the number of bytes at p that begin one valid character; 0: the first byte is invalid.
static size_t valid_prefix(const unsigned char *p, size_t size) {
    const size_t full_size = size > 0 ? char_size(p[0]) : 0;
    size_t n = full_size > 0 ? 1 : 0;
    while (n > 0 && n < full_size && n < size && (n == 1 ? is_second(p[0], p[1]) : (p[n] & 0xC0) == 0x80)) {
        n++;
    }
    return n;
}

size_t utf8_next(const char *text, size_t size, uint32_t *c) {
    const unsigned char *p = (const unsigned char *) text;
    const size_t n = valid_prefix(p, size);
    if (n == 0 || n < char_size(p[0])) {
        *c = REPLACEMENT;
        return size > 0;
    }
    *c = n == 1 ? p[0] : p[0] & (0x7Fu >> n);
    for (size_t i = 1; i < n; i++) {
        *c = *c << 6 | (p[i] & 0x3Fu);
    }
    return n;
}

size_t utf8_put(uint32_t c, char out[4]) {
    if (c < 0x80) {
        out[0] = (char) c;
        return 1;
    }
    const size_t n = 2 + (c >= 0x800) + (c >= 0x10000);
    for (size_t i = n - 1; i > 0; i--) {
        out[i] = (char) (0x80 | (c & 0x3F));
        c >>= 6;
    }
    out[0] = (char) ((0xF00u >> n & 0xFFu) | c);
    return n;
}

size_t utf8_stream_put(struct utf8_stream *s, const char *bytes, size_t size, char *out) {
    size_t n = 0;
    for (size_t i = 0; i < size; i++) {
        s->held[s->n_held++] = bytes[i];
        while (s->n_held > 0) {
            const unsigned char *held = (const unsigned char *) s->held;
            const size_t prefix = valid_prefix(held, s->n_held);
            if (prefix == s->n_held && prefix < char_size(held[0])) {
                break; // incomplete character: wait for more bytes
            }
            const bool is_whole = prefix > 0 && prefix == char_size(held[0]);
            const size_t n_used = prefix > 0 ? prefix : 1;
            if (is_whole) {
                memcpy(out + n, s->held, prefix);
                n += prefix;
            } else {
                n += utf8_put(REPLACEMENT, out + n);
            }
            s->n_held -= n_used;
            memmove(s->held, s->held + n_used, s->n_held);
        }
    }
    return n;
}

size_t utf8_stream_end(struct utf8_stream *s, char *out) {
    const size_t n = s->n_held > 0 ? utf8_put(REPLACEMENT, out) : 0;
    s->n_held = 0;
    return n;
}

// ---- categories ----

static bool is_in_runs(const struct char_run *runs, size_t n, uint32_t c) {
    size_t low = 0;
    while (low < n) { // find the first run that begins after c
        const size_t mid = low + (n - low) / 2;
        if (runs[mid].first <= c) {
            low = mid + 1;
        } else {
            n = mid;
        }
    }
    return low > 0 && c - runs[low - 1].first < runs[low - 1].n;
}

bool char_is_letter(uint32_t c) {
    return is_in_runs(letters, sizeof letters / sizeof *letters, c);
}

bool char_is_number(uint32_t c) {
    return is_in_runs(numbers, sizeof numbers / sizeof *numbers, c);
}

bool char_is_punctuation(uint32_t c) {
    return is_in_runs(marks, sizeof marks / sizeof *marks, c);
}

bool char_is_space(uint32_t c) {
    return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) ||
           c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}
