// SPDX-License-Identifier: MIT
// prop_model_grammar.c: compares the matcher of grammars (the guide) with a naive computation, on random small grammars. A
// language is a set of texts of the letters a and b with at most MAX_LEN bytes, stored as one bit per text. The naive computation
// starts with an empty language for every rule, and applies the rules until no language grows. The guide must accept a text if
// and only if its bit is set in the language of `root`.

#include "support/vocab_sample.h"

#include "model/grammar.h"

#include <math.h>

#define MAX_LEN 5
#define N_TEXTS 63 // number of texts of 0 to MAX_LEN bytes
#define N_RULES 3
#define N_GRAMMARS 1600

// ---- texts as bits: bit 2^n - 1 + x is the text of n bytes with the bits of x (0: a, 1: b), first byte in the highest bit ----

static int length_of(int text) {
    int n = 0;
    while (text >= (1 << (n + 1)) - 1) {
        n++;
    }
    return n;
}

static int text_join(int a, int b) { // returns -1 if the result is too long
    const int n = length_of(a), m = length_of(b);
    const int x = a - ((1 << n) - 1), y = b - ((1 << m) - 1);
    return n + m > MAX_LEN ? -1 : (1 << (n + m)) - 1 + (x << m | y);
}

static uint64_t language_join(uint64_t a, uint64_t b) {
    uint64_t out = 0;
    for (int i = 0; i < N_TEXTS; i++) {
        for (int j = 0; (a >> i & 1) != 0 && j < N_TEXTS; j++) {
            const int both = (b >> j & 1) != 0 ? text_join(i, j) : -1;
            out |= both >= 0 ? (uint64_t) 1 << both : 0;
        }
    }
    return out;
}

// ---- expressions ----

enum kind { LETTERS, CALL, GROUP }; // a literal or class; the name of a rule; an expression in parentheses

struct item {
    enum kind kind;
    uint64_t letters; // language of a LETTERS item
    const char *gbnf;
    int rule, group;
    int least, most; // number of repetitions; most == -1: no limit
};

struct expression {
    struct item items[3][3];
    int n_items[3];
    int n_alts;
};

struct rule_set {
    struct expression all[N_RULES + 12]; // the rules, then the groups
    int n;
};

static const struct {
    const char *gbnf;
    uint64_t language;
} letters[] = {{"\"a\"", 1u << 1}, {"\"b\"", 1u << 2}, {"[ab]", 3u << 1}, {"\"\"", 1}, {"\"ab\"", 1u << 4}, {"\"ba\"", 1u << 5}};

static void expression_make(struct check_rng *r, struct rule_set *m, int at, int depth) {
    static const int times[][2] = {
        {1, 1}, {1, 1}, {1, 1}, {0, 1}, {0, -1}, {1, -1}, {2, 2}, {0, 2}, {1, 3}, {3, -1}, {0, 0}, {0, 4}};
    struct expression e = {.n_alts = 1 + (int) check_rng_below(r, 3)};
    for (int a = 0; a < e.n_alts; a++) {
        e.n_items[a] = (int) check_rng_below(r, 4);
        for (int i = 0; i < e.n_items[a]; i++) {
            struct item *x = &e.items[a][i];
            const uint64_t which = check_rng_below(r, 8);
            const int *t = times[check_rng_below(r, sizeof times / sizeof *times)];
            const size_t letter = check_rng_below(r, sizeof letters / sizeof *letters);
            *x = (struct item){LETTERS, letters[letter].language, letters[letter].gbnf, 0, 0, t[0], t[1]};
            if (which < 3) {
                x->kind = CALL;
                x->rule = (int) check_rng_below(r, N_RULES);
            } else if (which == 3 && depth < 2 && m->n < N_RULES + 12) {
                x->kind = GROUP;
                x->group = m->n++;
                expression_make(r, m, x->group, depth + 1);
            }
        }
    }
    m->all[at] = e;
}

static size_t expression_print(const struct rule_set *m, int at, char *out, size_t cap) {
    const struct expression *e = &m->all[at];
    size_t n = 0;
    for (int a = 0; a < e->n_alts; a++) {
        n += (size_t) snprintf(out + n, cap - n, "%s", a > 0 ? " |" : "");
        for (int i = 0; i < e->n_items[a]; i++) {
            const struct item *x = &e->items[a][i];
            if (x->kind == GROUP) {
                n += (size_t) snprintf(out + n, cap - n, " (");
                n += expression_print(m, x->group, out + n, cap - n);
                n += (size_t) snprintf(out + n, cap - n, ")");
            } else if (x->kind == CALL) {
                n += (size_t) snprintf(out + n, cap - n, " %s", x->rule == 0 ? "root" : x->rule == 1 ? "r1" : "r2");
            } else {
                n += (size_t) snprintf(out + n, cap - n, " %s", x->gbnf);
            }
            if (x->most < 0) {
                n += (size_t) snprintf(out + n, cap - n, x->least == 0 ? "*" : x->least == 1 ? "+" : "{%d,}", x->least);
            } else if (x->least != 1 || x->most != 1) {
                n += (size_t) snprintf(out + n, cap - n, "{%d,%d}", x->least, x->most);
            }
            assert_true(n < cap);
        }
    }
    return n;
}

static uint64_t item_language(const struct item *x, const uint64_t *known) {
    const uint64_t one = x->kind == LETTERS ? x->letters : known[x->kind == CALL ? x->rule : x->group];
    uint64_t power = 1, out = x->least == 0 ? 1 : 0;
    for (int i = 1; i <= (x->most < 0 ? x->least + MAX_LEN : x->most); i++) { // more are too long or empty
        power = language_join(power, one);
        out |= i >= x->least ? power : 0;
    }
    return out;
}

static uint64_t language_of(const struct rule_set *m) {
    uint64_t known[N_RULES + 12] = {0};
    for (bool is_changed = true; is_changed;) {
        is_changed = false;
        for (int at = 0; at < m->n; at++) {
            uint64_t all = 0;
            for (int a = 0; a < m->all[at].n_alts; a++) {
                uint64_t sequence = 1;
                for (int i = 0; i < m->all[at].n_items[a]; i++) {
                    sequence = language_join(sequence, item_language(&m->all[at].items[a][i], known));
                }
                all |= sequence;
            }
            is_changed = is_changed || all != known[at];
            known[at] = all;
        }
    }
    return known[0];
}

// ---- the guide ----

static bool guide_accepts(struct guide *guide, const struct vocab *v, int text) {
    static float logits[SAMPLE_MAX_TOKENS];
    struct model_error error = {""};
    const int n = length_of(text), x = text - ((1 << n) - 1);
    assert_true(guide_reset(guide, &error));
    for (int i = 0; i <= n; i++) {
        memset(logits, 0, sizeof logits);
        assert_true(guide_mask(guide, logits, v->n_tokens, &error) >= 0);
        if (i == n) {
            return logits[v->eos] == 0;
        }
        const char letter = (x >> (n - 1 - i) & 1) != 0 ? 'b' : 'a';
        const int32_t token = vocab_find(v, &letter, 1);
        if (logits[token] != 0) {
            return false;
        }
        assert_true(guide_accept(guide, token, &error));
    }
    return false;
}

static void test_languages(void **state) {
    (void) state;
    struct sample_vocab sample;
    struct model_error error = {""};
    sample_vocab_init(&sample);
    struct gguf_context *keys = sample_vocab_keys(&sample, "gpt-2");
    struct vocab *v = vocab_new(keys, (int64_t) sample.n_tokens, &error);
    assert_non_null(v);
    struct check_rng r = check_rng_new(check_seed(35));
    static struct rule_set m;
    const int n_grammars = check_cases(N_GRAMMARS);
    int n_tried = 0, n_texts = 0;
    for (int i = 0; i < n_grammars; i++) {
        char gbnf[20000];
        size_t n = 0;
        m.n = N_RULES;
        for (int k = 0; k < N_RULES; k++) {
            expression_make(&r, &m, k, 0);
            n += (size_t) snprintf(gbnf + n, sizeof gbnf - n, k == 0 ? "root ::=" : "\nr%d ::=", k);
            n += expression_print(&m, k, gbnf + n, sizeof gbnf - n);
        }
        error = (struct model_error){""};
        struct grammar *g = grammar_new(gbnf, n, NULL, NULL, &error);
        if (g == NULL) {
            assert_non_null(strstr(error.text, "begins with itself"));
            continue;
        }
        struct guide *guide = guide_new(g, v, &error);
        assert_non_null(guide);
        const uint64_t language = language_of(&m);
        for (int text = 0; text < N_TEXTS; text++) {
            const bool want = (language >> text & 1) != 0;
            if (guide_accepts(guide, v, text) != want) {
                print_error("%s\ntext %d of %d bytes is %s\n", gbnf, text, length_of(text), want ? "refused" : "accepted");
                fail();
            }
            n_texts += want;
        }
        guide_free(guide);
        grammar_free(g);
        n_tried++;
    }
    printf("%d grammars, %d accepted texts\n", n_tried, n_texts);
    assert_true(n_tried > n_grammars / 8 && n_texts > n_tried);
    vocab_free(v);
    gguf_free(keys);
    sample_vocab_fini(&sample);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_languages)};
    check_quiet();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
