// SPDX-License-Identifier: MIT
// test_model_grammar.c: tests grammars: compares the allowed tokens with all texts of a random grammar; tests recursion, error
// messages with their lines, limits, stopping, and every allocation failing.

#include "support/vocab_sample.h"

#include "model/grammar.h"

#include <math.h>

#define MAX_TEXTS 200 // texts of a random grammar
#define MAX_SIZE 48   // bytes per text
#define N_RANDOM 300

static struct vocab *vocab_make(struct gguf_context **keys) {
    struct sample_vocab v;
    struct model_error error = {""};
    sample_vocab_init(&v);
    *keys = sample_vocab_keys(&v, "gpt-2");
    struct vocab *vocab = vocab_new(*keys, (int64_t) v.n_tokens, &error);
    assert_non_null(vocab);
    sample_vocab_fini(&v);
    return vocab;
}

// ---- random grammars: an expression in GBNF, and all its texts ----

struct texts {
    char text[MAX_TEXTS][MAX_SIZE];
    int n; // MAX_TEXTS + 1: the grammar has too many texts, and the test skips it
};

static void texts_add(struct texts *t, const char *a, const char *b) {
    if (t->n < MAX_TEXTS && strlen(a) + strlen(b) < MAX_SIZE) {
        snprintf(t->text[t->n++], MAX_SIZE, "%s%s", a, b);
    } else {
        t->n = MAX_TEXTS + 1;
    }
}

static void texts_product(const struct texts *a, const struct texts *b, struct texts *out) {
    out->n = a->n > MAX_TEXTS || b->n > MAX_TEXTS ? MAX_TEXTS + 1 : 0;
    for (int i = 0; i < a->n && out->n <= MAX_TEXTS; i++) {
        for (int j = 0; j < b->n && out->n <= MAX_TEXTS; j++) {
            texts_add(out, a->text[i], b->text[j]);
        }
    }
}

static void expression(struct check_rng *r, int depth, char *gbnf, size_t cap, struct texts *out);

static void item(struct check_rng *r, int depth, char *gbnf, size_t cap, struct texts *out) {
    static const struct {
        const char *gbnf, *texts[4];
    } rows[] = {{"\"the\"", {"the"}}, {"\"a\\\"\"", {"a\""}}, {"\"sh\"", {"sh"}}, {"\"\"", {""}}, {"[ab]", {"a", "b"}},
        {"[a-c]", {"a", "b", "c"}}, {"\"\\u00e4\"", {"\xC3\xA4"}}, {"[\xC3\xA3-\xC3\xA5]", {"\xC3\xA3", "\xC3\xA4", "\xC3\xA5"}},
        {"[\\u8239\\u6e2f]", {"\xE8\x88\xB9", "\xE6\xB8\xAF"}}, {"[^\\x00-y{-\\U0010ffff]", {"z"}}, {"\" ship\"", {" ship"}}};
    out->n = 0;
    if (depth > 0 && check_rng_below(r, 2) == 0) {
        char inner[600];
        expression(r, depth - 1, inner, sizeof inner, out);
        snprintf(gbnf, cap, "( %s )", inner);
        return;
    }
    const size_t i = check_rng_below(r, sizeof rows / sizeof *rows);
    snprintf(gbnf, cap, "%s", rows[i].gbnf);
    for (int k = 0; k < 4 && rows[i].texts[k] != NULL; k++) {
        texts_add(out, rows[i].texts[k], "");
    }
}

static void repeated(struct check_rng *r, int depth, char *gbnf, size_t cap, struct texts *out) {
    static const struct {
        const char *suffix;
        int least, most;
    } rows[] = {{"", 1, 1}, {"", 1, 1}, {"?", 0, 1}, {"{2}", 2, 2}, {"{0,2}", 0, 2}, {"{1,3}", 1, 3}, {"{,1}", 0, 1}};
    static struct texts one[4], power[4];
    char inner[700];
    item(r, depth, inner, sizeof inner, &one[depth]);
    const size_t i = check_rng_below(r, sizeof rows / sizeof *rows);
    snprintf(gbnf, cap, "%s%s", inner, rows[i].suffix);
    out->n = 0;
    power[depth].n = 0;
    texts_add(&power[depth], "", "");
    for (int k = 0; k <= rows[i].most; k++) {
        for (int j = 0; k >= rows[i].least && j < power[depth].n && out->n <= MAX_TEXTS; j++) {
            texts_add(out, power[depth].n <= MAX_TEXTS ? power[depth].text[j] : "", "");
        }
        static struct texts next[4];
        texts_product(&power[depth], &one[depth], &next[depth]);
        power[depth] = next[depth];
        if (power[depth].n > MAX_TEXTS && k < rows[i].most) {
            out->n = MAX_TEXTS + 1;
            return;
        }
    }
}

static void expression(struct check_rng *r, int depth, char *gbnf, size_t cap, struct texts *out) {
    static struct texts sequence[4], part[4], product[4];
    size_t n = 0;
    out->n = 0;
    gbnf[0] = '\0';
    for (uint64_t i = 0, n_alts = 1 + check_rng_below(r, 2); i < n_alts; i++) {
        n += (size_t) snprintf(gbnf + n, cap - n, "%s", i > 0 ? " |\n" : "");
        sequence[depth].n = 0;
        texts_add(&sequence[depth], "", "");
        for (uint64_t k = 0, n_items = 1 + check_rng_below(r, 2); k < n_items; k++) {
            char text[800];
            repeated(r, depth, text, sizeof text, &part[depth]);
            n += (size_t) snprintf(gbnf + n, cap - n, " %s", text);
            assert_true(n < cap);
            texts_product(&sequence[depth], &part[depth], &product[depth]);
            sequence[depth] = product[depth];
        }
        for (int j = 0; j < sequence[depth].n && out->n <= MAX_TEXTS; j++) {
            if (sequence[depth].n > MAX_TEXTS) {
                out->n = MAX_TEXTS + 1;
            } else {
                texts_add(out, sequence[depth].text[j], "");
            }
        }
    }
}

// ---- comparison of a guide with all texts ----

static bool has_prefix(const struct texts *t, const char *prefix, size_t n) {
    for (int i = 0; i < t->n; i++) {
        if (strlen(t->text[i]) >= n && memcmp(t->text[i], prefix, n) == 0) {
            return true;
        }
    }
    return false;
}

static bool has_text(const struct texts *t, const char *text) {
    for (int i = 0; i < t->n; i++) {
        if (strcmp(t->text[i], text) == 0) {
            return true;
        }
    }
    return false;
}

// Chooses random allowed tokens until the text ends, and checks for every token of the vocabulary whether it is allowed.
static void walk_compare(struct guide *guide, const struct vocab *v, const struct texts *t, struct check_rng *r) {
    static float logits[SAMPLE_MAX_TOKENS];
    char so_far[MAX_SIZE + 256] = "";
    struct model_error error = {""};
    for (size_t n = 0;;) {
        int32_t allowed[SAMPLE_MAX_TOKENS];
        int64_t n_allowed = 0;
        memset(logits, 0, sizeof logits);
        const int64_t n_left = guide_mask(guide, logits, v->n_tokens, &error);
        for (int32_t i = 0; i < v->n_tokens; i++) {
            const size_t size = vocab_is_end(v, i) ? 0 : vocab_piece(v, i, so_far + n, sizeof so_far - n);
            const bool want =
                vocab_is_end(v, i) ? (so_far[n] = '\0', has_text(t, so_far)) : size > 0 && has_prefix(t, so_far, n + size);
            if (want != (logits[i] == 0)) {
                print_error("token %d after '%.*s': %s\n", i, (int) n, so_far, want ? "is refused" : "is allowed");
            }
            assert_int_equal(want, logits[i] == 0);
            assert_true(logits[i] == 0 || isinf(logits[i]));
            if (logits[i] == 0) {
                allowed[n_allowed++] = i;
            }
        }
        assert_int_equal(n_allowed, n_left);
        assert_true(n_left > 0);
        const int32_t token = allowed[check_rng_below(r, (uint64_t) n_allowed)];
        if (vocab_is_end(v, token)) {
            return;
        }
        n += vocab_piece(v, token, so_far + n, sizeof so_far - n);
        assert_true(guide_accept(guide, token, &error));
    }
}

static void test_random(void **state) {
    (void) state;
    struct gguf_context *keys;
    struct vocab *v = vocab_make(&keys);
    struct check_rng r = check_rng_new(check_seed(17));
    static struct texts t;
    int n_tried = 0;
    for (int i = 0; i < N_RANDOM; i++) {
        struct model_error error = {""};
        char body[4000], gbnf[4200];
        expression(&r, 2, body, sizeof body, &t);
        if (t.n > MAX_TEXTS || t.n == 0) {
            continue;
        }
        snprintf(gbnf, sizeof gbnf, "# made\nroot ::= x # what it is\nx ::=%s\n", body);
        struct grammar *g = grammar_new(gbnf, strlen(gbnf), NULL, NULL, &error);
        if (g == NULL) {
            print_error("%s\n%s\n", gbnf, error.text);
        }
        assert_non_null(g);
        struct guide *guide = guide_new(g, v, &error);
        assert_non_null(guide);
        for (int k = 0; k < 3; k++) {
            walk_compare(guide, v, &t, &r);
            assert_true(guide_reset(guide, &error));
        }
        guide_free(guide);
        grammar_free(g);
        n_tried++;
    }
    printf("%d grammars\n", n_tried);
    assert_true(n_tried > N_RANDOM / 3);
    vocab_free(v);
    gguf_free(keys);
}

// ---- recursion ----

// Returns whether the grammar accepts the text.
static bool takes(const struct vocab *v, const char *gbnf, const char *text) {
    struct model_error error = {""};
    static float logits[SAMPLE_MAX_TOKENS];
    struct grammar *g = grammar_new(gbnf, strlen(gbnf), NULL, NULL, &error);
    struct guide *guide = g != NULL ? guide_new(g, v, &error) : NULL;
    bool ok = guide != NULL;
    if (!ok) {
        print_error("%s\n", error.text);
    }
    assert_true(ok);
    for (const char *p = text; ok && *p != '\0'; p++) { // byte by byte
        char c[4];
        const int32_t token = vocab_find(v, c, utf8_put(byte_to_char((uint8_t) *p), c));
        assert_true(token >= 0);
        memset(logits, 0, sizeof logits);
        assert_true(guide_mask(guide, logits, v->n_tokens, &error) >= 0);
        ok = logits[token] == 0 && guide_accept(guide, token, &error);
    }
    memset(logits, 0, sizeof logits);
    assert_true(!ok || guide_mask(guide, logits, v->n_tokens, &error) >= 0);
    ok = ok && logits[v->eos] == 0;
    guide_free(guide);
    grammar_free(g);
    return ok;
}

static void test_recursion(void **state) {
    (void) state;
    static const char balanced[] = "root ::= \"(\" root* \")\"";
    static const char nothing[] = "root ::= ((\"a\"?)*)* \"b\"";
    static const char json[] =
        "root ::= value\nvalue ::= list | \"[]\" | string\nlist ::=\n  \"[\" value\n  (\",\" value)* \"]\"\n"
        "string ::= \"\\\"\" [^\"\\\\]* \"\\\"\"\n";
    struct gguf_context *keys;
    struct vocab *v = vocab_make(&keys);
    assert_true(takes(v, balanced, "()") && takes(v, balanced, "((()())())"));
    assert_false(takes(v, balanced, "") || takes(v, balanced, "(()") || takes(v, balanced, "())"));
    assert_true(takes(v, nothing, "b") && takes(v, nothing, "aaaaab"));
    assert_false(takes(v, nothing, "aaaa") || takes(v, nothing, "ba"));
    assert_true(takes(v, json, "[\"a\xC3\xA4\",[[],[\"\xF0\x9F\x9A\xA2\"]],\"\"]"));
    assert_false(takes(v, json, "[,]") || takes(v, json, "[\"a]") || takes(v, json, "[\"\xC3\"]"));
    char many[4000], text[2100];
    snprintf(many, sizeof many, "root ::= [a-z]{5,2000} \"!\"");
    memset(text, 'q', 2000);
    strcpy(text + 2000, "!");
    assert_true(takes(v, many, text) && takes(v, many, "abcde!"));
    assert_false(takes(v, many, "abcd!"));
    vocab_free(v);
    gguf_free(keys);
}

static void test_errors(void **state) {
    (void) state;
    static const struct {
        const char *gbnf, *want;
    } rows[] = {{"", "the start rule 'root' is missing"}, {"x ::= \"a\"", "the start rule 'root' is missing"},
        {"root ::= y", "rule 'y' is used"}, {"root ::= \"a\nb", "line 2: '\"' is missing"}, {"root ::= [a", "']' is missing"},
        {"root ::= []", "the class contains no characters"}, {"root ::= [z-a]", "is below its start"},
        {"root ::= (\"a\"", "')' is missing"}, {"root ::= \"a\")", "')' without '('"}, {"root ::= \"\\q\"", "unknown escape"},
        {"root ::= \"\\u12\"", "hexadecimal"}, {"root ::= \"\\U00110000\"", "above U+10FFFF"},
        {"root ::= \"a\"{3,2}", "is below the minimum count"}, {"root ::= \"a\"{x}", "{} requires integers"},
        {"root ::= \"a\"{100001}", "{} requires integers"}, {"root ::= \"a\"{2", "'}' is missing"},
        {"root ::= *", "expected a literal"}, {"\"a\"", "line 1: expected a rule"},
        {"root ::= \"a\"\nroot ::= \"b\"", "line 2: this rule is already defined"},
        {"root ::= root \"a\" | \"b\"", "rule 'root' begins with itself"},
        {"root ::= x\nx ::= \"b\"? y \"c\"\ny ::= root \"d\"", "begins with itself"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct model_error error = {""};
        assert_null(grammar_new(rows[i].gbnf, strlen(rows[i].gbnf), NULL, NULL, &error));
        if (strstr(error.text, rows[i].want) == NULL) {
            print_error("%s: '%s' is not '%s'\n", rows[i].gbnf, error.text, rows[i].want);
        }
        assert_non_null(strstr(error.text, rows[i].want));
    }
}

// ---- grammars that are designed to use much memory and time ----

static int32_t token_of(const struct vocab *v, char letter) {
    return vocab_find(v, &letter, 1);
}

// Feeds a byte n times. Returns the number of bytes that were allowed and accepted.
static int feed(struct guide *guide, const struct vocab *v, char letter, int n, struct model_error *error) {
    static float logits[SAMPLE_MAX_TOKENS];
    const int32_t token = token_of(v, letter);
    for (int i = 0; i < n; i++) {
        memset(logits, 0, sizeof logits);
        if (guide_mask(guide, logits, v->n_tokens, error) < 0 || logits[token] != 0 || !guide_accept(guide, token, error)) {
            return i;
        }
    }
    return n;
}

// Alternatives that differ only in their continuation share a stack: 2^500 of them use less than a megabyte.
static void test_shared_stacks(void **state) {
    (void) state;
    static const char *const rows[] = {"root ::= \"a\" root \"x\" | \"a\" root \"y\" | \"b\"",
        "root ::= \"a\" root \"x\" | \"a\" root \"y\" | \"a\" root \"x\" | \"b\"",
        "root ::= l\nl ::= p | q | \"b\"\np ::= \"a\" l \"x\"\nq ::= \"a\" l \"y\"",
        "root ::= \"b\" | \"a\" root (\"x\" | \"y\")"};
    struct gguf_context *keys;
    struct vocab *v = vocab_make(&keys);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct model_error error = {""};
        struct grammar *g = grammar_new(rows[i], strlen(rows[i]), NULL, NULL, &error);
        assert_non_null(g);
        g->max_stack_size = 1 << 20;
        struct guide *guide = guide_new(g, v, &error);
        assert_non_null(guide);
        assert_int_equal(feed(guide, v, 'a', 500, &error), 500);
        assert_int_equal(feed(guide, v, 'b', 2, &error), 1);
        assert_int_equal(feed(guide, v, 'x', 300, &error), 300);
        assert_int_equal(feed(guide, v, 'y', 300, &error), 200);
        assert_string_equal(error.text, "");
        guide_free(guide);
        grammar_free(g);
    }
    vocab_free(v);
    gguf_free(keys);
}

// The grammar allows a text to be split into two parts at every byte. The stacks grow with the text, not with the number of splits.
static void test_splits(void **state) {
    (void) state;
    static const char gbnf[] = "root ::= s \"b\"\ns ::= \"a\" s s | \"a\" s | \"a\"";
    struct gguf_context *keys;
    struct model_error error = {""};
    struct vocab *v = vocab_make(&keys);
    struct grammar *g = grammar_new(gbnf, strlen(gbnf), NULL, NULL, &error);
    assert_non_null(g);
    g->max_stack_size = (size_t) 8 << 20;
    g->max_steps = 1000000;
    struct guide *guide = guide_new(g, v, &error);
    assert_non_null(guide);
    assert_int_equal(feed(guide, v, 'a', 200, &error), 200);
    assert_int_equal(feed(guide, v, 'b', 1, &error), 1);
    assert_string_equal(error.text, "");
    guide_free(guide);
    grammar_free(g);
    vocab_free(v);
    gguf_free(keys);
}

// A repetition is one element, however often it repeats.
static void test_repetitions(void **state) {
    (void) state;
    struct model_error error = {""};
    char *gbnf = malloc(400 * 16 + 64);
    size_t n = (size_t) sprintf(gbnf, "root ::=");
    for (int i = 0; i < 400; i++) {
        n += (size_t) sprintf(gbnf + n, " \"x\"{0,100000}");
    }
    struct grammar *g = grammar_new(gbnf, n, NULL, NULL, &error);
    assert_non_null(g);
    assert_true(g->n_elems < 2000 && g->n_rules < 1000);
    grammar_free(g);
    free(gbnf);
}

// Unreachable stacks are removed: a text of any length stays within a small limit.
// Removing unused stacks keeps a grammar within its limit, also within a limit below that at which they are usually removed.
static void unreachable_check(size_t max_stack_size) {
    static const char gbnf[] = "root ::= (\"a\" | \"(\" root \")\"){0,100000}";
    struct gguf_context *keys;
    struct model_error error = {""};
    struct vocab *v = vocab_make(&keys);
    struct grammar *g = grammar_new(gbnf, strlen(gbnf), NULL, NULL, &error);
    assert_non_null(g);
    g->max_stack_size = max_stack_size;
    struct guide *guide = guide_new(g, v, &error);
    assert_non_null(guide);
    for (int i = 0; i < check_cases(2000); i++) {
        assert_int_equal(feed(guide, v, '(', 20, &error), 20);
        assert_int_equal(feed(guide, v, ')', 20, &error), 20);
    }
    guide_free(guide);
    grammar_free(g);
    vocab_free(v);
    gguf_free(keys);
}

static void test_unreachable_stacks(void **state) {
    (void) state;
    unreachable_check((size_t) 24 << 20);
    unreachable_check((size_t) 1 << 20);
}

static void test_limits(void **state) {
    (void) state;
    static const char gbnf[] = "root ::= \"a\" root root | \"a\" (\"a\"? \"a\"?){0,100} | \"b\"";
    struct gguf_context *keys;
    struct vocab *v = vocab_make(&keys);
    const struct {
        size_t size;
        uint64_t steps;
        const char *want;
    } rows[] = {
        {8 << 10, GRAMMAR_STEPS, "but the limit is 8192"}, {GRAMMAR_STACK_SIZE, 5000, "more than the limit of 5000 steps"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct model_error error = {""};
        struct grammar *g = grammar_new(gbnf, strlen(gbnf), NULL, NULL, &error);
        assert_non_null(g);
        g->max_stack_size = rows[i].size;
        g->max_steps = rows[i].steps;
        struct guide *guide = guide_new(g, v, &error);
        assert_non_null(guide);
        assert_true(feed(guide, v, 'a', 1000, &error) < 1000);
        assert_non_null(strstr(error.text, rows[i].want));
        error = (struct model_error){""};
        if (rows[i].size == GRAMMAR_STACK_SIZE) { // the guide can start another text
            assert_true(guide_reset(guide, &error));
            assert_int_equal(feed(guide, v, 'b', 1, &error), 1);
        }
        guide_free(guide);
        grammar_free(g);
    }
    vocab_free(v);
    gguf_free(keys);
}

// ---- stopping ----

struct countdown {
    int n_asked, n_left;
};

static bool countdown_ask(void *data) {
    struct countdown *c = data;
    c->n_asked++;
    return c->n_left-- <= 0;
}

// Each grammar tests one kind of work: the stop callback is polled at least once per thousand bytes.
static void test_stop(void **state) {
    (void) state;
    static const char *const rows[][3] = {{"root ::= \"", "x", "\""}, {"root ::= [", "x", "]"}, {"root ::= \"x\"", " root", ""},
        {"root ::= \"a\"\nr ::= ", "r|", "r"}, {"root ::= \"x\"", "\"\"{0,5}", ""}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char gbnf[30000];
        size_t n = (size_t) sprintf(gbnf, "%s", rows[i][0]);
        for (int k = 0; k < 3000; k++) {
            n += (size_t) sprintf(gbnf + n, "%s", rows[i][1]);
        }
        n += (size_t) sprintf(gbnf + n, "%s", rows[i][2]);
        struct model_error error = {""};
        struct countdown all = {0, INT32_MAX};
        struct grammar *g = grammar_new(gbnf, n, countdown_ask, &all, &error);
        assert_true(g != NULL && all.n_asked > (int) n / 1000);
        grammar_free(g);
        struct countdown some = {0, all.n_asked / 2};
        assert_null(grammar_new(gbnf, n, countdown_ask, &some, &error));
        assert_non_null(strstr(error.text, "interrupted"));
    }
}

// The stop callback is also polled while tokens are tested.
static void test_stop_guide(void **state) {
    (void) state;
    static const char gbnf[] = "root ::= (.{0,1000} | .{2,1000} | .{3,1000})*";
    static float logits[SAMPLE_MAX_TOKENS];
    struct gguf_context *keys;
    struct vocab *v = vocab_make(&keys);
    struct countdown c = {0, INT32_MAX};
    struct model_error error = {""};
    struct grammar *g = grammar_new(gbnf, strlen(gbnf), countdown_ask, &c, &error);
    struct guide *guide = g != NULL ? guide_new(g, v, &error) : NULL;
    assert_non_null(guide);
    c.n_left = 0;
    assert_int_equal(guide_mask(guide, logits, v->n_tokens, &error), -1);
    assert_non_null(strstr(error.text, "interrupted"));
    guide_free(guide);
    grammar_free(g);
    vocab_free(v);
    gguf_free(keys);
}

// Every allocation fails once: the result is an error each time, and no memory is leaked.
static void test_memory(void **state) {
    (void) state;
    static const char gbnf[] = "root ::= (\"the\" | [a-z\xC3\xA4]{2,4} x)*\nx ::= [^a]+ \".\"";
    static float logits[SAMPLE_MAX_TOKENS];
    struct gguf_context *keys;
    struct vocab *v = vocab_make(&keys);
    berth_alloc_watch(true);
    bool is_complete = false;
    for (int64_t n = 1; !is_complete; n++) {
        struct model_error error = {""};
        berth_alloc_fail_at(n);
        struct grammar *g = grammar_new(gbnf, strlen(gbnf), NULL, NULL, &error);
        struct guide *guide = g != NULL ? guide_new(g, v, &error) : NULL;
        is_complete = guide != NULL && guide_mask(guide, logits, v->n_tokens, &error) > 0 && guide_accept(guide, 'b', &error) &&
                      guide_mask(guide, logits, v->n_tokens, &error) > 0;
        assert_true(guide != NULL || error.text[0] != '\0');
        berth_alloc_fail_at(0);
        guide_free(guide);
        grammar_free(g);
        assert_int_equal(berth_alloc_alive(), 0);
    }
    berth_alloc_watch(false);
    vocab_free(v);
    gguf_free(keys);
}

// Many calls of one rule, each with the same large stack below it: the stacks are small, and the array that joins them is not.
static void test_arrays_limit(void **state) {
    (void) state;
    static char gbnf[16384];
    struct gguf_context *keys;
    struct vocab *v = vocab_make(&keys);
    struct model_error error = {""};
    size_t n = (size_t) sprintf(gbnf, "root ::= s \"b\"\ns ::= \"a\" s s | \"a\" s q | \"a\"\np ::= \"c\"\nq ::= p \"x\"");
    for (int i = 0; i < 2000; i++) {
        n += (size_t) sprintf(gbnf + n, " | p");
    }
    struct grammar *g = grammar_new(gbnf, n, NULL, NULL, &error);
    assert_non_null(g);
    assert_true(grammar_size(g) > 2000 * sizeof *g->alts && grammar_size(g) < 64 * n);
    g->max_stack_size = (size_t) 256 << 10;
    struct guide *guide = guide_new(g, v, &error);
    assert_non_null(guide);
    assert_true(feed(guide, v, 'a', 200, &error) < 200);
    assert_non_null(strstr(error.text, "the arrays of the grammar need"));
    assert_non_null(strstr(error.text, "more than the limit of 262144"));
    guide_free(guide);
    grammar_free(g);
    vocab_free(v);
    gguf_free(keys);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random), cmocka_unit_test(test_recursion),
        cmocka_unit_test(test_errors), cmocka_unit_test(test_shared_stacks), cmocka_unit_test(test_splits),
        cmocka_unit_test(test_repetitions), cmocka_unit_test(test_unreachable_stacks), cmocka_unit_test(test_limits),
        cmocka_unit_test(test_arrays_limit), cmocka_unit_test(test_stop), cmocka_unit_test(test_stop_guide),
        cmocka_unit_test(test_memory)};
    check_quiet();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
