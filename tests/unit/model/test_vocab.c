// SPDX-License-Identifier: MIT
// test_vocab.c: tests tokenizers: known tokens, round trips of texts, characters from bytes, and invalid vocabularies.

#include "support/vocab_sample.h"

#include <math.h>
#include <time.h>

// ---- a small SentencePiece vocabulary ----

static const char *const spm_texts[] = {"<unk>", "<s>", "</s>", "\xE2\x96\x81", "a", "b", "c", "ab", "abc",
    "\xE2\x96\x81"
    "a",
    "bc",
    "\xE2\x96\x81"
    "abc",
    "<tag>"};
#define N_SPM (sizeof spm_texts / sizeof *spm_texts)

struct spm {
    const char *tokens[256 + N_SPM];
    float scores[256 + N_SPM];
    int32_t types[256 + N_SPM];
    char bytes[256][8];
    size_t n;
};

static void spm_fill(struct spm *s) {
    static const float scores[N_SPM] = {0, 0, 0, -10, -11, -12, -13, -1, -3, -2, -0.5f, -4, 0};
    *s = (struct spm){0};
    for (; s->n < N_SPM; s->n++) {
        s->tokens[s->n] = spm_texts[s->n];
        s->scores[s->n] = scores[s->n];
        s->types[s->n] = s->n == 0 ? TOKEN_UNKNOWN : s->n < 3 ? TOKEN_CONTROL : TOKEN_NORMAL;
    }
    s->types[N_SPM - 1] = TOKEN_USER;
    for (int b = 0; b < 256; b++, s->n++) {
        snprintf(s->bytes[b], sizeof s->bytes[b], "<0x%02X>", (unsigned) b);
        s->tokens[s->n] = s->bytes[b];
        s->types[s->n] = TOKEN_BYTE;
    }
}

static struct gguf_context *spm_keys(struct spm *s) {
    struct gguf_context *g = gguf_init_empty();
    gguf_set_val_str(g, "tokenizer.ggml.model", "llama");
    gguf_set_arr_str(g, "tokenizer.ggml.tokens", (const char **) (uintptr_t) s->tokens, s->n);
    gguf_set_arr_data(g, "tokenizer.ggml.scores", GGUF_TYPE_FLOAT32, s->scores, s->n);
    gguf_set_arr_data(g, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, s->types, s->n);
    return g;
}

static struct vocab *vocab_of(const struct gguf_context *g, size_t n) {
    struct model_error error = {""};
    struct vocab *v = vocab_new(g, (int64_t) n, &error);
    if (v == NULL) {
        print_error("%s\n", error.text);
        fail();
    }
    return v;
}

static void expect_tokens(const struct vocab *v, const char *text, bool add, bool parse, const int32_t *want, size_t n) {
    struct model_error error = {""};
    struct token_list list = {0};
    assert_true(vocab_encode(v, text, strlen(text), (add ? ENCODE_ADD : 0u) | (parse ? ENCODE_PARSE : 0u), &list, &error));
    if (list.n != n || memcmp(list.ids, want, n * sizeof *want) != 0) {
        print_error("'%s':", text);
        for (size_t i = 0; i < list.n; i++) {
            print_error(" %d", list.ids[i]);
        }
        fail();
    }
    token_list_fini(&list);
}
#define EXPECT(v, text, add, parse, ...) \
    expect_tokens(v, text, add, parse, (int32_t[]){__VA_ARGS__}, sizeof(int32_t[]){__VA_ARGS__} / sizeof(int32_t))

static void test_spm(void **state) {
    (void) state;
    struct spm s;
    spm_fill(&s);
    struct gguf_context *g = spm_keys(&s);
    struct vocab *v = vocab_of(g, s.n);
    const int32_t byte = N_SPM;
    EXPECT(v, "a", true, true, 1, 9);                                // a space is added before the text
    EXPECT(v, "abc", false, true, 11);                               // "bc" has the best score, then " a", then both together
    EXPECT(v, "c ab", false, true, 3, 6, 3, 7);                      // "ab" (-1) before " a" (-2)
    EXPECT(v, "", true, true, 1);                                    // only the BOS token
    EXPECT(v, "d", false, true, 3, byte + 'd');                      // a byte token
    EXPECT(v, "\xC3\xA4", false, true, 3, byte + 0xC3, byte + 0xA4); // the bytes of a character
    EXPECT(v, "a<tag>a", false, false, 9, 12, 9); // a user token is always recognised; a space is added after it
    EXPECT(v, "</s>", false, true, 2);            // a control token that is spelled out
    EXPECT(v, "\n", false, true, 3, byte + '\n');
    char piece[8];
    assert_int_equal(vocab_piece(v, 9, piece, sizeof piece), 2);
    assert_memory_equal(piece, " a", 2);
    assert_int_equal(vocab_piece(v, byte + 0xC3, piece, sizeof piece), 1);
    assert_int_equal((unsigned char) piece[0], 0xC3);
    assert_int_equal(vocab_piece(v, 1, piece, sizeof piece), 0);
    assert_int_equal(vocab_piece(v, -1, piece, sizeof piece), 0);
    assert_int_equal(vocab_piece(v, 1 << 30, piece, sizeof piece), 0);
    assert_int_equal(vocab_piece(v, 12, piece, 2), 5); // the full size, although it does not fit
    assert_true(vocab_is_end(v, 2) && !vocab_is_end(v, 1) && vocab_is_end(v, -1));
    gguf_set_val_bool(g, "tokenizer.ggml.add_space_prefix", false);
    gguf_set_val_bool(g, "tokenizer.ggml.add_bos_token", false);
    gguf_set_val_bool(g, "tokenizer.ggml.add_eos_token", true);
    vocab_free(v);
    v = vocab_of(g, s.n);
    EXPECT(v, "a", true, true, 4, 2);
    vocab_free(v);
    gguf_free(g);
}

// Special tokens of any size. Where they overlap, the longest wins; of equally long ones, the lower id.
static void test_specials(void **state) {
    (void) state;
    struct spm s;
    spm_fill(&s);
    enum { LONG = 5000 };
    static char longer[LONG + 1], text[2 * LONG + 3];
    memset(longer, '<', LONG);
    s.tokens[7] = longer;
    s.tokens[8] = "bb<";
    s.tokens[9] = "<ab";
    s.types[7] = s.types[8] = s.types[9] = TOKEN_USER;
    struct gguf_context *g = spm_keys(&s);
    gguf_set_val_bool(g, "tokenizer.ggml.add_space_prefix", false);
    struct vocab *v = vocab_of(g, s.n);
    const int32_t b = N_SPM + '<';
    snprintf(text, sizeof text, "a%s%sb", longer, longer);
    EXPECT(v, text, false, false, 4, 7, 7, 5);
    snprintf(text, sizeof text, "bb%sab", longer); // the longest token wins, although others begin before it and inside it
    EXPECT(v, text, false, false, 5, 5, 7, 4, 5);
    EXPECT(v, "bb<ab", false, false, 8, 4, 5);
    EXPECT(v, "<<ab<tag>", false, false, b, 9, 12);
    vocab_free(v);
    gguf_free(g);
}

// ---- complete texts ----

static void expect_back(const struct vocab *v, const char *text, size_t size, size_t skip) {
    struct model_error error = {""};
    struct token_list list = {0};
    char back[8192];
    size_t n = 0;
    assert_true(vocab_encode(v, text, size, ENCODE_PLAIN, &list, &error));
    for (size_t i = 0; i < list.n; i++) {
        n += vocab_piece(v, list.ids[i], back + n, sizeof back - n);
        assert_true(n <= sizeof back);
    }
    skip = n > 0 ? skip : 0;
    assert_int_equal(n - skip, size);
    assert_memory_equal(back + skip, text, size);
    token_list_fini(&list);
}

// Any bytes survive a round trip, valid UTF-8 or not.
static void test_round_trip(void **state) {
    (void) state;
    static const char *const rules[] = {"gpt-2", "llama-bpe", "qwen2", "default", "smollm", "tekken"};
    struct sample_vocab v;
    sample_vocab_init(&v);
    struct check_rng r = check_rng_new(check_seed(7));
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        struct gguf_context *g = sample_vocab_keys(&v, rules[i]);
        struct vocab *vocab = vocab_of(g, v.n_tokens);
        for (int k = 0; k < 2000; k++) {
            char text[600];
            expect_back(vocab, text, sample_random_text(&r, text, sizeof text, true), 0);
        }
        vocab_free(vocab);
        gguf_free(g);
    }
    sample_vocab_fini(&v);
}

static void test_round_trip_spm(void **state) {
    (void) state;
    struct spm s;
    spm_fill(&s);
    s.types[N_SPM - 1] = TOKEN_NORMAL; // a user token would add a space after it
    struct gguf_context *g = spm_keys(&s);
    struct vocab *v = vocab_of(g, s.n);
    struct check_rng r = check_rng_new(check_seed(8));
    for (int k = 0; k < 2000; k++) {
        char text[600];
        size_t n = sample_random_text(&r, text, sizeof text, true);
        for (size_t i = 0; i + 3 <= n; i++) { // U+2581 would become a space
            if (memcmp(text + i, "\xE2\x96\x81", 3) == 0) {
                memcpy(text + i, "abc", 3);
            }
        }
        expect_back(v, text, n, 1);
    }
    vocab_free(v);
    gguf_free(g);
}

// The time for a long text of one word must not be quadratic.
static void test_long(void **state) {
    (void) state;
    const size_t n = 400000;
    char *text = malloc(n);
    struct sample_vocab s;
    sample_vocab_init(&s);
    struct gguf_context *g = sample_vocab_keys(&s, "qwen2");
    struct vocab *v = vocab_of(g, s.n_tokens);
    for (int kind = 0; kind < 5; kind++) {
        struct token_list list = {0};
        struct model_error error = {""};
        for (size_t i = 0; i < n; i++) {
            text[i] = "ship  \n\n..==111"[kind * 3 + (int) (i % 3 != 0) + (int) (i % 5 == 0)];
        }
        const int64_t start = ggml_time_us();
        assert_true(vocab_encode(v, text, n, ENCODE_PARSE, &list, &error));
        assert_true(ggml_time_us() - start < 20000000);
        assert_true(list.n > 0);
        token_list_fini(&list);
    }
    vocab_free(v);
    gguf_free(g);
    sample_vocab_fini(&s);
    free(text);
}

// ---- characters ----

static void test_alphabet(void **state) {
    (void) state;
    for (int b = 0; b < 256; b++) {
        assert_int_equal(byte_of_char(byte_to_char((uint8_t) b)), b);
    }
    assert_int_equal(byte_to_char(' '), 0x120);
    assert_int_equal(byte_to_char('\n'), 0x10A);
    assert_int_equal(byte_to_char(0xAD), 0x143);
    assert_int_equal(byte_of_char(0x144), -1);
    assert_int_equal(byte_of_char(' '), -1);
}

static void test_kinds(void **state) {
    (void) state;
    assert_true(char_is_letter('a') && char_is_letter(0xE4) && char_is_letter(0x8239) && char_is_letter(0x10FFF0) == false);
    assert_true(char_is_number('7') && char_is_number(0xBD) && char_is_number(0x967) && !char_is_number('a'));
    assert_true(char_is_punctuation('!') && char_is_punctuation(0x2014) && !char_is_punctuation('$'));
    assert_true(char_is_space(' ') && char_is_space(0xA0) && char_is_space(0x3000) && !char_is_space(0x200B));
    assert_false(char_is_letter(0) || char_is_letter(UINT32_MAX) || char_is_number(UINT32_MAX));
}

// Bytes that are given one by one or all at once result in the same complete characters.
static void test_stream(void **state) {
    (void) state;
    static const struct {
        const char *in, *out;
    } rows[] = {
        {"abc", "abc"},
        {"\xC3\xA4\xE8\x88\xB9\xF0\x9F\x9A\xA2", "\xC3\xA4\xE8\x88\xB9\xF0\x9F\x9A\xA2"},
        {"a\xC3", "a\xEF\xBF\xBD"},
        {"\xF0\x9F\x9A", "\xEF\xBF\xBD"},
        {"\xF0\x9F\x9Ax", "\xEF\xBF\xBDx"},
        {"\x80\x80", "\xEF\xBF\xBD\xEF\xBF\xBD"},
        {"\xC0\xAF", "\xEF\xBF\xBD\xEF\xBF\xBD"},
        {"\xED\xA0\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},
        {"\xF4\x90\x80\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char out[64];
        struct utf8_stream s = {0};
        size_t n = utf8_stream_put(&s, rows[i].in, strlen(rows[i].in), out);
        n += utf8_stream_end(&s, out + n);
        assert_int_equal(n, strlen(rows[i].out));
        assert_memory_equal(out, rows[i].out, n);
        n = 0;
        for (const char *p = rows[i].in; *p != '\0'; p++) {
            n += utf8_stream_put(&s, p, 1, out + n);
        }
        n += utf8_stream_end(&s, out + n);
        assert_int_equal(n, strlen(rows[i].out));
        assert_memory_equal(out, rows[i].out, n);
    }
}

// ---- invalid vocabularies ----

static void refuse(const struct gguf_context *g, int64_t n, const char *text) {
    struct model_error error = {""};
    struct vocab *v = vocab_new(g, n, &error);
    if (v != NULL || strstr(error.text, text) == NULL) {
        print_error("expected '%s', got '%s'\n", text, error.text);
        fail();
    }
}

static void test_refused(void **state) {
    (void) state;
    struct spm s;
    spm_fill(&s);
    const int64_t n = (int64_t) s.n;
    struct gguf_context *g = spm_keys(&s);
    refuse(g, n + 1, "the tokenizer has 269 tokens, but the model has embeddings for 270");
    gguf_set_arr_data(g, "tokenizer.ggml.scores", GGUF_TYPE_FLOAT32, s.scores, s.n - 1);
    refuse(g, n, "key 'tokenizer.ggml.scores' has 268 values for 269 tokens");
    gguf_set_arr_data(g, "tokenizer.ggml.scores", GGUF_TYPE_INT32, s.scores, s.n);
    refuse(g, n, "key 'tokenizer.ggml.scores' is not an array of f32");
    gguf_free(g);
    g = spm_keys(&s);
    s.types[7] = 77;
    gguf_set_arr_data(g, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, s.types, s.n);
    refuse(g, n, "token 7 has the unknown type 77");
    s.types[7] = TOKEN_NORMAL;
    gguf_set_arr_data(g, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, s.types, s.n);
    gguf_set_val_u32(g, "tokenizer.ggml.bos_token_id", 269);
    refuse(g, n, "key 'tokenizer.ggml.bos_token_id' is 269, but must be between -1 and 268");
    gguf_set_val_u32(g, "tokenizer.ggml.bos_token_id", UINT32_MAX); // none
    vocab_free(vocab_of(g, s.n));
    gguf_set_val_str(g, "tokenizer.ggml.add_bos_token", "yes");
    refuse(g, n, "has type str, but must be a bool");
    gguf_set_val_str(g, "tokenizer.ggml.model", "bert");
    refuse(g, n, "tokenizer 'bert' is not supported");
    gguf_set_val_str(g, "tokenizer.ggml.model", "no_vocab");
    refuse(g, n, "the file has no tokenizer");
    gguf_set_val_u32(g, "tokenizer.ggml.model", 3);
    refuse(g, n, "but must be a string");
    gguf_set_val_str(g, "tokenizer.ggml.model", "gpt2");
    gguf_remove_key(g, "tokenizer.ggml.add_bos_token");
    refuse(g, n, "key 'tokenizer.ggml.merges' is missing");
    const char *merges[] = {"a b"};
    gguf_set_arr_str(g, "tokenizer.ggml.merges", merges, 1);
    gguf_set_val_str(g, "tokenizer.ggml.pre", "someday");
    refuse(g, n, "pre-tokenizer 'someday' is not supported");
    gguf_set_val_u32(g, "tokenizer.ggml.tokens", 1);
    refuse(g, n, "key 'tokenizer.ggml.tokens' is not an array of strings");
    gguf_free(g);
}

// Scores that are NaN, merges that produce no token, and empty or duplicate tokens are accepted.
static void test_inconsistent(void **state) {
    (void) state;
    struct spm s;
    spm_fill(&s);
    s.scores[7] = NAN;
    s.scores[10] = INFINITY;
    s.scores[9] = -INFINITY;
    s.tokens[4] = "";
    s.tokens[5] = "ab";
    struct gguf_context *g = spm_keys(&s);
    struct vocab *v = vocab_of(g, s.n);
    struct check_rng r = check_rng_new(9);
    for (int i = 0; i < 500; i++) {
        char text[600];
        struct token_list list = {0};
        struct model_error error = {""};
        const size_t n = sample_random_text(&r, text, sizeof text, true);
        assert_true(vocab_encode(v, text, n, ENCODE_ADD | ENCODE_PARSE, &list, &error));
        token_list_fini(&list);
    }
    vocab_free(v);
    gguf_free(g);
    const char *tokens[] = {"a", "b", "ab", ""}, *merges[] = {"b a", "a b", "", " ", "a", "ab ab", "a b"};
    g = gguf_init_empty();
    gguf_set_val_str(g, "tokenizer.ggml.model", "gpt2");
    gguf_set_val_str(g, "tokenizer.ggml.pre", "gpt-2");
    gguf_set_arr_str(g, "tokenizer.ggml.tokens", tokens, 4);
    gguf_set_arr_str(g, "tokenizer.ggml.merges", merges, 7);
    v = vocab_of(g, 4);
    EXPECT(v, "ab", false, true, 2);
    EXPECT(v, "ba", false, true, 1, 0);         // the merge produces "ba", which is not a token
    EXPECT(v, "abab", false, true, 0, 1, 0, 1); // "b a" is merged first; then no merge applies
    EXPECT(v, "axb", false, true, 0, 1);        // 'x' has no token, and there is no unknown token
    vocab_free(v);
    gguf_free(g);
}

// ---- many special tokens ----

// Makes a SentencePiece vocabulary of these tokens.
static struct vocab *specials_make(char **texts, const int32_t *types, size_t n, struct gguf_context **keys) {
    struct model_error error = {""};
    float *scores = calloc(n, sizeof *scores);
    *keys = gguf_init_empty();
    gguf_set_val_str(*keys, "tokenizer.ggml.model", "llama");
    gguf_set_arr_str(*keys, "tokenizer.ggml.tokens", (const char **) (uintptr_t) texts, n);
    gguf_set_arr_data(*keys, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, types, n);
    gguf_set_arr_data(*keys, "tokenizer.ggml.scores", GGUF_TYPE_FLOAT32, scores, n);
    struct vocab *v = vocab_new(*keys, (int64_t) n, &error);
    free(scores);
    assert_non_null(v);
    return v;
}

// Finds special tokens by their definition. Longer tokens are searched first, and of equally long tokens the one with the lower id.
// Each token is searched from the start of the text. A found token occupies its bytes, so that no later token can use them.
static void specials_naive(const struct vocab *v, const char *text, size_t size, bool with_control, int32_t *at) {
    for (size_t i = 0; i < size; i++) {
        at[i] = SPECIAL_NONE;
    }
    for (size_t n = size; n > 0; n--) {
        for (int32_t id = 0; id < v->n_tokens; id++) {
            const bool is_one =
                v->types[id] == TOKEN_USER || (with_control && (v->types[id] == TOKEN_CONTROL || v->types[id] == TOKEN_UNKNOWN));
            for (size_t i = 0; is_one && v->tokens.sizes[id] == n && vocab_find(v, v->tokens.texts[id], n) == id && i + n <= size;
                 i++) {
                bool is_free = memcmp(text + i, v->tokens.texts[id], n) == 0;
                for (size_t k = i; k < i + n; k++) {
                    is_free = is_free && at[k] == SPECIAL_NONE;
                }
                for (size_t k = i; is_free && k < i + n; k++) {
                    at[k] = k == i ? id : SPECIAL_INSIDE;
                }
            }
        }
    }
}

static void test_specials_random(void **state) {
    (void) state;
    struct check_rng r = check_rng_new(check_seed(14));
    int64_t n_found = 0;
    for (int i = 0; i < check_cases(400); i++) {
        char *texts[24];
        int32_t types[24];
        struct gguf_context *keys;
        const size_t n = 2 + check_rng_below(&r, 22);
        for (size_t k = 0; k < n; k++) { // including equal ones
            const size_t size = 1 + check_rng_below(&r, 6);
            texts[k] = calloc(1, size + 1);
            types[k] = (int32_t) (1 + check_rng_below(&r, 4));
            for (size_t j = 0; j < size; j++) {
                texts[k][j] = (char) ('a' + check_rng_below(&r, 2));
            }
        }
        struct vocab *v = specials_make(texts, types, n, &keys);
        for (int k = 0; k < 20; k++) {
            char text[40];
            int32_t want[40];
            const size_t size = check_rng_below(&r, sizeof text);
            for (size_t j = 0; j < size; j++) {
                text[j] = (char) ('a' + check_rng_below(&r, 2) + (check_rng_below(&r, 12) == 0));
            }
            specials_naive(v, text, size, k % 2 == 0, want);
            int32_t *got = specials_find(v, text, size, k % 2 == 0);
            assert_non_null(got);
            for (size_t j = 0; j < size; j++) {
                assert_int_equal(got[j], want[j]);
                n_found += got[j] >= 0;
            }
            berth_free(got);
        }
        vocab_free(v);
        gguf_free(keys);
        for (size_t k = 0; k < n; k++) {
            free(texts[k]);
        }
    }
    assert_true(n_found > 1000);
}

// Special tokens of 1,500 sizes, in a text that contains all of them, or the beginnings of all of them, everywhere. A search per
// size took a minute on one core.
static void test_specials_many(void **state) {
    (void) state;
    static char *texts[1500];
    static int32_t types[1500];
    const size_t n = sizeof texts / sizeof *texts, size = 100000;
    for (int kind = 0; kind < 2; kind++) {
        struct gguf_context *keys;
        for (size_t i = 0; i < n; i++) {
            texts[i] = malloc(i + 2);
            memset(texts[i], 'a', i + 1);
            texts[i][i + 1] = '\0';
            texts[i][i] = kind == 0 ? 'b' : 'a';
            types[i] = i % 2 == 0 ? TOKEN_USER : TOKEN_CONTROL;
        }
        char *text = malloc(size);
        memset(text, 'a', size);
        text[size - 1] = kind == 0 ? 'b' : 'a';
        struct vocab *v = specials_make(texts, types, n, &keys);
        const clock_t start = clock();
        for (int with_control = 0; with_control < 2; with_control++) {
            int32_t *at = specials_find(v, text, size, with_control == 1);
            assert_non_null(at);
            const size_t longest = with_control == 1 ? n : n - 1; // the last token is a control token
            assert_int_equal(at[kind == 0 ? size - longest : 0], longest - 1);
            assert_int_equal(at[kind == 0 ? 0 : 1], kind == 0 ? SPECIAL_NONE : SPECIAL_INSIDE);
            berth_free(at);
        }
        assert_true(clock() - start < 10 * CLOCKS_PER_SEC);
        vocab_free(v);
        gguf_free(keys);
        free(text);
        for (size_t i = 0; i < n; i++) {
            free(texts[i]);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_spm), cmocka_unit_test(test_specials),
        cmocka_unit_test(test_specials_random), cmocka_unit_test(test_specials_many), cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_round_trip_spm), cmocka_unit_test(test_long), cmocka_unit_test(test_alphabet),
        cmocka_unit_test(test_kinds), cmocka_unit_test(test_stream), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_inconsistent)};
    check_quiet();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
