// SPDX-License-Identifier: MIT
// pretokenize.c: splits a text into words before byte-pair encoding, by the patterns with which models were trained. A rule is a
// list of passes. Each pass splits the words of the previous pass.

#include "base/min.h"
#include "model/vocab.h"

#include <string.h>

#define MAX_PASSES 4

// Returns the number of characters that the pattern matches at i; 0: no match. n: end of the text.
typedef size_t (*match_t)(const uint32_t *c, size_t i, size_t n);

struct split_rule {
    match_t passes[MAX_PASSES];
};

typedef bool (*kind_t)(uint32_t c);

static size_t run_size(const uint32_t *c, size_t i, size_t n, kind_t kind) {
    size_t end = i;
    while (end < n && kind(c[end])) {
        end++;
    }
    return end - i;
}

static bool is_line_end(uint32_t c) {
    return c == '\r' || c == '\n';
}

static bool is_other(uint32_t c) {
    return !char_is_space(c) && !char_is_letter(c) && !char_is_number(c);
}

static uint32_t char_lower(uint32_t c) {
    return c >= 'A' && c <= 'Z' ? c + 32 : c;
}

// ---- parts of patterns ----

// Matches 's 't 're 've 'm 'll 'd.
static size_t contraction_size(const uint32_t *c, size_t i, size_t n, bool any_case) {
    if (c[i] != '\'' || i + 1 >= n) {
        return 0;
    }
    const uint32_t a = any_case ? char_lower(c[i + 1]) : c[i + 1];
    const uint32_t second = i + 2 < n ? c[i + 2] : 0, b = any_case ? char_lower(second) : second;
    if (a == 's' || a == 't' || a == 'm' || a == 'd') {
        return 2;
    }
    return (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l') ? 3 : 0;
}

// An optional space, then one or more characters of a kind.
static size_t spaced_size(const uint32_t *c, size_t i, size_t n, kind_t kind) {
    const size_t skip = c[i] == ' ' ? 1 : 0;
    const size_t size = run_size(c, i + skip, n, kind);
    return size > 0 ? skip + size : 0;
}

// If a word follows, the last of several spaces belongs to the word.
static size_t spaces_size(const uint32_t *c, size_t i, size_t n) {
    const size_t size = run_size(c, i, n, char_is_space);
    return size > 1 && i + size < n ? size - 1 : size;
}

// Spaces up to their last line end; 0: no line end.
static size_t lines_size(const uint32_t *c, size_t i, size_t n) {
    size_t size = run_size(c, i, n, char_is_space);
    while (size > 0 && !is_line_end(c[i + size - 1])) {
        size--;
    }
    return size;
}

// ---- patterns ----

// 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
static size_t match_gpt2(const uint32_t *c, size_t i, size_t n) {
    size_t size = contraction_size(c, i, n, false);
    for (int k = 0; size == 0 && k < 3; k++) {
        size = spaced_size(c, i, n, (const kind_t[]){char_is_letter, char_is_number, is_other}[k]);
    }
    return size > 0 ? size : spaces_size(c, i, n);
}

// (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,max}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
static size_t match_modern(const uint32_t *c, size_t i, size_t n, size_t max_digits) {
    size_t size = contraction_size(c, i, n, true);
    if (size > 0) {
        return size;
    }
    const size_t skip = !is_line_end(c[i]) && !char_is_letter(c[i]) && !char_is_number(c[i]) ? 1 : 0;
    size = run_size(c, i + skip, n, char_is_letter);
    if (size > 0) {
        return skip + size;
    }
    size = run_size(c, i, n - i > max_digits ? i + max_digits : n, char_is_number); // not longer, so that the time is linear
    if (size > 0) {
        return size;
    }
    size = spaced_size(c, i, n, is_other);
    if (size > 0) {
        return size + run_size(c, i + size, n, is_line_end);
    }
    size = lines_size(c, i, n);
    return size > 0 ? size : spaces_size(c, i, n);
}

static size_t match_llama3(const uint32_t *c, size_t i, size_t n) {
    return match_modern(c, i, n, 3);
}

static size_t match_qwen2(const uint32_t *c, size_t i, size_t n) {
    return match_modern(c, i, n, 1);
}

static bool is_upper(uint32_t c) {
    return char_is_letter(c) && !(c >= 'a' && c <= 'z');
}

static bool is_lower(uint32_t c) {
    return char_is_letter(c) && !(c >= 'A' && c <= 'Z');
}

static bool is_line_end_or_slash(uint32_t c) {
    return is_line_end(c) || c == '/';
}

// Alternatives: 1. [^\r\n\p{L}\p{N}]?, upper-case letters, at least one lower-case letter.
// 2. [^\r\n\p{L}\p{N}]?, at least one upper-case letter, lower-case letters. 3. \p{N}.
// The others are as in match_modern, but with [\r\n/]* instead of [\r\n]*.
// Letters outside ASCII count as both cases. If no lower-case ASCII letter follows the upper-case letters, alternative 1 ends at
// the last of them that is outside ASCII.
static size_t match_tekken(const uint32_t *c, size_t i, size_t n) {
    const size_t skip = !is_line_end(c[i]) && !char_is_letter(c[i]) && !char_is_number(c[i]) ? 1 : 0;
    const size_t start = i + skip;
    const size_t n_upper = run_size(c, start, n, is_upper), n_lower = run_size(c, start + n_upper, n, is_lower);
    if (n_upper + n_lower > 0) {
        size_t n_kept = n_upper; // letters of alternative 1, which ends with a lower-case letter
        while (n_lower == 0 && n_kept > 0 && !is_lower(c[start + n_kept - 1])) {
            n_kept--;
        }
        return skip + (n_lower > 0 || n_kept == 0 ? n_upper + n_lower : n_kept);
    }
    if (char_is_number(c[i])) {
        return 1;
    }
    size_t size = spaced_size(c, i, n, is_other);
    if (size > 0) {
        return size + run_size(c, i + size, n, is_line_end_or_slash);
    }
    size = lines_size(c, i, n);
    return size > 0 ? size : spaces_size(c, i, n);
}

static bool is_mark(uint32_t c) {
    return char_is_punctuation(c) || (c < 0x80 && c != 0 && strchr("$+<=>^~|", (int) c) != NULL);
}

static size_t match_marks(const uint32_t *c, size_t i, size_t n) {
    return run_size(c, i, n, is_mark);
}

static size_t match_numbers(const uint32_t *c, size_t i, size_t n) {
    return run_size(c, i, n, char_is_number);
}

static size_t match_one_number(const uint32_t *c, size_t i, size_t n) {
    return i < n && char_is_number(c[i]) ? 1 : 0;
}

static bool is_digit(uint32_t c) {
    return c >= '0' && c <= '9';
}

static size_t match_three_digits(const uint32_t *c, size_t i, size_t n) {
    return i + 3 <= n && is_digit(c[i]) && is_digit(c[i + 1]) && is_digit(c[i + 2]) ? 3 : 0;
}

// ---- rules ----

static const struct split_rule rule_default = {{match_marks, match_gpt2, match_numbers, match_three_digits}};
static const struct split_rule rule_gpt2 = {{match_gpt2}};
static const struct split_rule rule_llama3 = {{match_llama3}};
static const struct split_rule rule_qwen2 = {{match_qwen2}};
static const struct split_rule rule_smollm = {{match_one_number, match_gpt2}};
static const struct split_rule rule_tekken = {{match_tekken}};

static const struct name_row {
    const char *name;
    const struct split_rule *rule;
    bool is_word_first, adds_bos;
} names[] = {
    {"default", &rule_default, false, false},
    {"gpt-2", &rule_gpt2, false, false},
    {"phi-2", &rule_gpt2, false, false},
    {"mpt", &rule_gpt2, false, false},
    {"olmo", &rule_gpt2, false, false},
    {"llama3", &rule_llama3, true, true},
    {"llama-v3", &rule_llama3, true, true},
    {"llama-bpe", &rule_llama3, true, true},
    {"falcon3", &rule_llama3, true, true},
    {"pixtral", &rule_llama3, true, true},
    {"smaug-bpe", &rule_llama3, false, false},
    {"qwen2", &rule_qwen2, false, false},
    {"stablelm2", &rule_qwen2, false, false},
    {"deepseek-r1-qwen", &rule_qwen2, false, false},
    {"smollm", &rule_smollm, false, false},
    {"starcoder", &rule_smollm, false, false},
    {"refact", &rule_smollm, false, false},
    {"command-r", &rule_smollm, false, false},
    {"tekken", &rule_tekken, true, true},
};

const struct split_rule *split_find(const char *name, bool *is_word_first, bool *adds_bos) {
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(name, names[i].name) == 0) {
            *is_word_first = names[i].is_word_first;
            *adds_bos = names[i].adds_bos;
            return names[i].rule;
        }
    }
    return NULL;
}

void split_words(const struct split_rule *rule, const uint32_t *chars, size_t n, bool *is_cut) {
    is_cut[0] = is_cut[n] = true;
    for (int p = 0; p < MAX_PASSES && rule->passes[p] != NULL; p++) {
        for (size_t start = 0, end; start < n; start = end) {
            for (end = start + 1; !is_cut[end]; end++) {
            }
            for (size_t i = start; i < end;) {
                const size_t size = rule->passes[p](chars, i, end);
                if (size > 0) {
                    is_cut[i] = is_cut[i + size] = true;
                }
                i += size > 0 ? size : 1;
            }
        }
    }
}
