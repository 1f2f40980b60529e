// SPDX-License-Identifier: MIT
// unicode.c: which characters are letters, numbers, punctuation, spaces: what patterns mean by \p{L}, \p{N}, \p{P} and \s.

#include "model/unicode_table.h"
#include "model/vocab.h"

static bool is_in(const struct char_run *runs, size_t n, uint32_t c) {
    size_t low = 0;
    while (low < n) { // the first run that begins behind c
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
    return is_in(letters, sizeof letters / sizeof *letters, c);
}

bool char_is_number(uint32_t c) {
    return is_in(numbers, sizeof numbers / sizeof *numbers, c);
}

bool char_is_punctuation(uint32_t c) {
    return is_in(marks, sizeof marks / sizeof *marks, c);
}

bool char_is_space(uint32_t c) {
    return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) ||
           c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}
