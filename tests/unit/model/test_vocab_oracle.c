// SPDX-License-Identifier: MIT
// test_vocab_oracle.c: compares tokenizers with the reference's: the same tokens for the same texts, for SentencePiece and BPE
// vocabularies and every pre-tokenizer.

#include "support/oracle.h"

#include "support/vocab_sample.h"

#include <unistd.h>

#define N_TEXTS 3000
#define N_WIDE 300
#define LONG 700 // bytes of a long special token

// The struct of the reference's library: 80 bytes, of which this test sets one.
struct reference_params {
    char before[72];
    bool vocab_only;
    char after[7];
};

static struct {
    struct reference_params (*llama_model_default_params)(void);
    void *(*llama_model_load_from_file)(const char *path, struct reference_params params);
    void (*llama_model_free)(void *model);
    const void *(*llama_model_get_vocab)(const void *model);
    int32_t (*llama_tokenize)(
        const void *vocab, const char *text, int32_t size, int32_t *tokens, int32_t max, bool add, bool parse);
    int32_t (*llama_token_to_piece)(
        const void *vocab, int32_t token, char *out, int32_t cap, int32_t n_skipped, bool with_special);
    bool (*llama_vocab_is_eog)(const void *vocab, int32_t token);
    void (*llama_log_set)(void (*log)(int level, const char *text, void *user), void *user);
} reference;

static void log_drop(int level, const char *text, void *user) {
    (void) level;
    (void) text;
    (void) user;
}

static bool reference_load(void) {
    void *llama = oracle_load("libllama." ORACLE_BUILD ".so");
    if (llama == NULL) {
        return false;
    }
#define X(name) *(void **) &reference.name = dlsym(llama, #name)
    X(llama_model_default_params);
    X(llama_model_load_from_file);
    X(llama_model_free);
    X(llama_model_get_vocab);
    X(llama_tokenize);
    X(llama_token_to_piece);
    X(llama_vocab_is_eog);
    X(llama_log_set);
#undef X
    reference.llama_log_set(log_drop, NULL);
    return true;
}

static void need_reference(void) {
    static bool tried, loaded;
    loaded = tried ? loaded : reference_load();
    tried = true;
    if (!loaded) {
        printf("skipped: %s\n", oracle_why());
        skip();
    }
}

static void tokens_print(const char *text, size_t size, const int32_t *a, size_t n, const int32_t *b, size_t m) {
    printf("'%.*s'\n  Berth:", (int) size, text);
    for (size_t i = 0; i < n; i++) {
        printf(" %d", a[i]);
    }
    printf("\n  reference:");
    for (size_t i = 0; i < m; i++) {
        printf(" %d", b[i]);
    }
    printf("\n");
}

// Makes a random text of at most cap bytes and returns its size.
typedef size_t (*draw_t)(struct check_rng *r, char *out, size_t cap);

static size_t any_text(struct check_rng *r, char *out, size_t cap) {
    return sample_random_text(r, out, cap, false);
}

// Characters from all ranges of Unicode, runs of one character, of spaces and of digits, control characters, and emoji of several
// characters.
static size_t wide_text(struct check_rng *r, char *out, size_t cap) {
    static const uint32_t spaces[] = {' ', ' ', '\n', '\t', '\r', 0x0B, 0x0C, 0x85, 0xA0, 0x1680, 0x2003, 0x2028, 0x202F, 0x3000};
    static const uint32_t joined[] = {0x1F468, 0x200D, 0x1F469, 0x1F3FD, 0xFE0F, 0x1F1E9, 0x1F1EA, 0x20E3, 0x301, 0x5D0, 0x663};
    static const uint32_t ranges[] = {0x80, 0x250, 0x800, 0x3000, 0xD800, 0x10000, 0x20000, 0x110000};
    const size_t n_parts = check_rng_below(r, 24);
    size_t n = 0;
    for (size_t i = 0; i < n_parts; i++) {
        const uint64_t kind = check_rng_below(r, 6);
        const size_t most = check_rng_below(r, 12) == 0 ? 600 : 4;
        const bool is_same = check_rng_below(r, 2) == 0;
        uint32_t c = 0;
        for (size_t k = check_rng_below(r, most) + 1; k > 0 && n + 4 <= cap; k--) {
            const uint32_t below = ranges[check_rng_below(r, sizeof ranges / sizeof *ranges)];
            const uint32_t next = kind == 0   ? spaces[check_rng_below(r, sizeof spaces / sizeof *spaces)]
                                  : kind == 1 ? '0' + (uint32_t) check_rng_below(r, 10)
                                  : kind == 2 ? 1 + (uint32_t) check_rng_below(r, 0x9F)
                                  : kind == 3 ? joined[check_rng_below(r, sizeof joined / sizeof *joined)]
                                  : kind == 4 ? 'a' + (uint32_t) check_rng_below(r, 26) - 32 * (uint32_t) check_rng_below(r, 2)
                                              : 1 + (uint32_t) check_rng_below(r, below - 1);
            c = c == 0 || !is_same ? next : c;
            n += utf8_put(c >= 0xD800 && c < 0xE000 ? 0xE000 : c, out + n);
        }
    }
    return n;
}

// A text of few letters, so that special tokens are frequent and overlap.
static size_t specials_text(struct check_rng *r, char *out, size_t cap) {
    static const char *const parts[] = {
        "k", "q", "z", "w", "j", "<", "<<", "|", "end", "ab", ">", " ", "<|end|>", "<tool>", "qzw"};
    const size_t n_parts = check_rng_below(r, 24);
    size_t n = 0;
    for (size_t i = 0; i < n_parts; i++) {
        const char *part = parts[check_rng_below(r, sizeof parts / sizeof *parts)];
        const bool is_long = check_rng_below(r, 40) == 0;
        const size_t size = is_long ? LONG - 3 + check_rng_below(r, 6) : strlen(part);
        if (n + size > cap) {
            break;
        }
        if (is_long) {
            memset(out + n, part[0] == '<' ? '<' : 'j', size);
        } else {
            memcpy(out + n, part, size);
        }
        n += size;
    }
    return n;
}

// Writes a character after a letter, a digit, a punctuation mark and a line end.
static size_t kinds_put(uint32_t c, char *out) {
    size_t n = 0;
    for (const char *before = "a1!\n"; *before != '\0'; before++) {
        out[n++] = *before;
        n += utf8_put(c >= 0xD800 && c < 0xE000 ? 0xE000 : c, out + n);
    }
    return n;
}

#define EVERY 64
#define LAST_CHAR 0x33480 // after it, only characters without width and private ones are assigned
// Writes the next EVERY characters of Unicode in ascending order, up to LAST_CHAR.
static size_t every_text(struct check_rng *r, char *out, size_t cap) {
    static uint32_t c;
    size_t n = 0;
    (void) r;
    for (size_t i = 0; i < EVERY && n + 20 <= cap && c < LAST_CHAR; i++) {
        n += kinds_put(c++, out + n);
    }
    return n;
}

// Writes a random character from ranges that contain punctuation.
static size_t marks_text(struct check_rng *r, char *out, size_t cap) {
    static const uint32_t first[] = {0x20, 0x2000, 0x3000, 0x11B00, 0x11F40, 0x16E90, 0xFE30, 0x1E950, 0x10A50, 0xAAD0};
    (void) cap;
    return kinds_put(first[check_rng_below(r, sizeof first / sizeof *first)] + (uint32_t) check_rng_below(r, 0x20), out);
}

// Compares the bytes of every token.
static void compare_pieces(const struct vocab *ours, const void *theirs) {
    for (int32_t i = 0; i < ours->n_tokens; i++) {
        char a[1024], b[1024];
        const size_t n = vocab_piece(ours, i, a, sizeof a);
        const int32_t m = reference.llama_token_to_piece(theirs, i, b, sizeof b, 0, false);
        if (m < 0 || n != (size_t) m || memcmp(a, b, n) != 0) {
            print_error("token %d '%s' of type %d: Berth '%.*s', reference '%.*s'\n", i, ours->tokens.texts[i], ours->types[i],
                (int) n, a, m, b);
            fail();
        }
    }
}

static void compare(const char *path, uint64_t seed, draw_t draw, int n_texts) {
    struct model_error error = {""};
    struct berth_gguf_map *map = berth_gguf_map_open(path, NULL);
    const struct gguf_context *g = berth_gguf_map_meta(map);
    const int64_t n_tokens = (int64_t) gguf_get_arr_n(g, gguf_find_key(g, "tokenizer.ggml.tokens"));
    struct vocab *ours = vocab_new(g, n_tokens, &error);
    struct reference_params params = reference.llama_model_default_params();
    params.vocab_only = true;
    void *model = reference.llama_model_load_from_file(path, params);
    assert_string_equal(error.text, "");
    assert_non_null(ours);
    assert_non_null(model);
    const void *theirs = reference.llama_model_get_vocab(model);
    struct check_rng r = check_rng_new(seed);
    compare_pieces(ours, theirs);
    for (int i = 0; i < n_texts; i++) {
        char text[2048];
        int32_t tokens[2048 + 8];
        struct token_list list = {0};
        const size_t size = draw(&r, text, sizeof text);
        const bool add = check_rng_below(&r, 2) == 0, parse = check_rng_below(&r, 2) == 0;
        assert_true(vocab_encode(ours, text, size, (add ? ENCODE_ADD : 0u) | (parse ? ENCODE_PARSE : 0u), &list, &error));
        const int32_t n = reference.llama_tokenize(theirs, text, (int32_t) size, tokens, 2048 + 8, add, parse);
        if (n < 0 || (size_t) n != list.n || memcmp(tokens, list.ids, list.n * sizeof *tokens) != 0) {
            tokens_print(text, size, list.ids, list.n, tokens, n < 0 ? 0 : (size_t) n);
            fail();
        }
        token_list_fini(&list);
    }
    reference.llama_model_free(model);
    vocab_free(ours);
    berth_gguf_map_close(map);
}

static void test_spm(void **state) {
    (void) state;
    need_reference();
    compare("models/tales-q8_0.gguf", check_seed(1), any_text, N_TEXTS);
    compare("models/tales-q8_0.gguf", check_seed(1), wide_text, N_TEXTS);
}

static const char *const rules[] = {"gpt-2", "llama-bpe", "qwen2", "default", "phi-2", "mpt", "olmo", "llama3", "llama-v3",
    "falcon3", "pixtral", "smaug-bpe", "stablelm2", "deepseek-r1-qwen", "smollm", "starcoder", "refact", "command-r", "tekken"};
#define N_RULES (sizeof rules / sizeof *rules)

static void compare_keys(struct gguf_context *g, uint64_t seed, draw_t draw, int n_texts) {
    char path[] = "/tmp/berth-vocab-XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    assert_true(gguf_write_to_file(g, path, true));
    compare(path, seed, draw, n_texts);
    unlink(path);
}

static void test_bpe(void **state) {
    (void) state;
    need_reference();
    struct sample_vocab v;
    sample_vocab_init(&v);
    for (size_t i = 0; i < N_RULES; i++) {
        struct gguf_context *g = sample_vocab_keys(&v, rules[i]);
        printf("%s\n", rules[i]);
        compare_keys(g, check_seed(2 + i), any_text, N_TEXTS);
        gguf_free(g);
    }
    sample_vocab_fini(&v);
}

static struct gguf_context *pairs_keys(
    const char **tokens, size_t n_tokens, const char **merges, size_t n_merges, const char *rule) {
    struct gguf_context *g = gguf_init_empty();
    gguf_set_val_str(g, "general.architecture", "llama");
    gguf_set_val_str(g, "tokenizer.ggml.model", "gpt2");
    gguf_set_val_str(g, "tokenizer.ggml.pre", rule);
    gguf_set_arr_str(g, "tokenizer.ggml.tokens", tokens, n_tokens);
    gguf_set_arr_str(g, "tokenizer.ggml.merges", merges, n_merges);
    gguf_set_val_u32(g, "tokenizer.ggml.bos_token_id", 0);
    return g;
}

// Every byte and every pair of bytes is a token. If two characters are in one word, some of their bytes are merged. So every word
// boundary between characters from all over Unicode has an effect.
static void test_bpe_wide(void **state) {
    enum { N_PAIRS = 256 * 256 };
    static char texts[256 + 2 * N_PAIRS][10]; // tokens, then merges
    static const char *tokens[256 + N_PAIRS], *merges[N_PAIRS];
    (void) state;
    need_reference();
    for (int i = 0; i < 256; i++) {
        tokens[i] = texts[i];
        utf8_put(byte_to_char((uint8_t) i), texts[i]);
    }
    for (int i = 0; i < N_PAIRS; i++) {
        const unsigned pair = (unsigned) i * 40503u % N_PAIRS; // in an order that favours no pre-tokenizer
        tokens[256 + i] = texts[256 + i];
        merges[i] = texts[256 + N_PAIRS + i];
        snprintf(texts[256 + i], 10, "%s%s", tokens[pair / 256], tokens[pair % 256]);
        snprintf(texts[256 + N_PAIRS + i], 10, "%s %s", tokens[pair / 256], tokens[pair % 256]);
    }
    static const char *const different[] = {"gpt-2", "llama-bpe", "qwen2", "default", "smollm", "tekken", "smaug-bpe"};
    for (size_t i = 0; i < sizeof different / sizeof *different; i++) {
        struct gguf_context *g = pairs_keys(tokens, 256 + N_PAIRS, merges, N_PAIRS, different[i]);
        printf("%s\n", different[i]);
        compare_keys(g, check_seed(30 + i), wide_text, N_WIDE);
        gguf_free(g);
    }
}

// Each character follows a letter, a digit, a punctuation mark and a line end, and forms a token with it unless a word begins
// there. So the category of the character has an effect.
static void test_kinds(void **state) {
    static const char before[] = "a1!\n";
    enum { N = 4 * 256 };
    static char texts[256 + 2 * N][10]; // tokens, then merges
    static const char *tokens[256 + N], *merges[N];
    (void) state;
    need_reference();
    for (int i = 0; i < 256; i++) {
        tokens[i] = texts[i];
        utf8_put(byte_to_char((uint8_t) i), texts[i]);
    }
    for (int i = 0; i < N; i++) {
        const char *first = tokens[(unsigned char) before[i / 256]];
        tokens[256 + i] = texts[256 + i];
        merges[i] = texts[256 + N + i];
        snprintf(texts[256 + i], 10, "%s%s", first, tokens[i % 256]);
        snprintf(texts[256 + N + i], 10, "%s %s", first, tokens[i % 256]);
    }
    struct gguf_context *g = pairs_keys(tokens, 256 + N, merges, N, "gpt-2");
    compare_keys(g, 0, every_text, (LAST_CHAR + EVERY - 1) / EVERY);
    gguf_free(g);
    g = pairs_keys(
        tokens, 256 + N, merges, N, "default"); // this pre-tokenizer also knows punctuation; it is slow in the reference
    compare_keys(g, check_seed(60), marks_text, N_WIDE);
    gguf_free(g);
}

// Special tokens that overlap, and a long one: the same ones are found at the same positions.
static void test_specials(void **state) {
    static const char *const specials[] = {"kq", "qz", "kqzw", "zwj", "jjz", "<<<<<<", "<<<", "ab<", "<|end|", "d|><t"};
    (void) state;
    need_reference();
    struct sample_vocab v;
    sample_vocab_init(&v);
    char longer[LONG];
    memset(longer, '<', LONG);
    sample_token(&v, longer, LONG, TOKEN_CONTROL);
    memset(longer, 'j', LONG);
    sample_token(&v, longer, LONG, TOKEN_USER);
    for (size_t i = 0; i < sizeof specials / sizeof *specials; i++) {
        sample_token(&v, specials[i], strlen(specials[i]), i % 3 == 0 ? TOKEN_CONTROL : TOKEN_USER);
    }
    struct gguf_context *g = sample_vocab_keys(&v, "gpt-2");
    compare_keys(g, check_seed(100), specials_text, N_TEXTS);
    gguf_free(g);
    sample_vocab_fini(&v);
}

// Returns the number of tokens for which Berth and the reference disagree whether they end a text, for a file with tokens of these
// names and this type. key: the token that the file's key for EOS names; NULL: none.
static int ends_differ(const char *const *names, size_t n_names, int32_t type, const char *key) {
    struct sample_vocab v;
    sample_vocab_init(&v);
    for (size_t i = 0; i < n_names; i++) {
        sample_token(&v, names[i], strlen(names[i]), type);
    }
    struct gguf_context *g = sample_vocab_keys(&v, "gpt-2");
    for (size_t i = 0; key != NULL && i < v.n_tokens; i++) {
        if (strcmp(v.tokens[i], key) == 0) {
            gguf_set_val_u32(g, "tokenizer.ggml.eos_token_id", (uint32_t) i);
        }
    }
    char path[] = "/tmp/berth-vocab-XXXXXX";
    close(mkstemp(path));
    assert_true(gguf_write_to_file(g, path, true));
    struct model_error error = {""};
    struct vocab *ours = vocab_new(g, (int64_t) v.n_tokens, &error);
    struct reference_params params = reference.llama_model_default_params();
    params.vocab_only = true;
    void *model = reference.llama_model_load_from_file(path, params);
    int n_bad = 0;
    assert_true(ours != NULL && model != NULL);
    for (int32_t i = 0; i < (int32_t) v.n_tokens; i++) {
        const bool is_theirs = reference.llama_vocab_is_eog(reference.llama_model_get_vocab(model), i);
        if (vocab_is_end(ours, i) != is_theirs) {
            print_error("type %d: '%s' %s in the reference\n", type, v.tokens[i], is_theirs ? "ends" : "does not end");
            n_bad++;
        }
    }
    reference.llama_model_free(model);
    vocab_free(ours);
    gguf_free(g);
    unlink(path);
    sample_vocab_fini(&v);
    return n_bad;
}

// Tokens that end a text, by their names and by the file's keys, for every type.
static void test_ends(void **state) {
    static const char *const names[] = {"<|eot_id|>", "<|im_end|>", "<|end_of_text|>", "<|endoftext|>", "<end_of_turn>",
        "<|eom_id|>", "<EOT>", "_<EOT>", "< EOT >", "_< EOT >", "[EOT]", "[EOS]", "</s>", "<eos>", "<|eos|>",
        "<end_of_utterance>", "<\uFF5Cend\u2581of\u2581sentence\uFF5C>", "<|end_of_sentence|>", "<|eot|>", "<|im_start|>",
        "<|user|>", "<|END_OF_TURN_TOKEN|>", "<turn|>", "<|message_end|>", "<|endofprompt|>", "[|endofturn|]",
        "<|reserved_special_token_0|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", "<fim-pad>", "<|fim_suffix|>",
        "<|tool_call_end|>", "<|eom|>", "<|im_sep|>", "[/INST]", "<|endofturn|>"};
    (void) state;
    need_reference();
    for (int32_t type = TOKEN_NORMAL; type <= TOKEN_USER; type++) {
        assert_int_equal(ends_differ(names, type == TOKEN_UNKNOWN ? 0 : sizeof names / sizeof *names, type, NULL), 0);
    }
}

// Whether a token ends a text can depend on the other tokens of the file. Tests files with every subset of the four names, once
// with "<|end|>" and once with "<tool>" as the EOS token of the file.
static void test_ends_of_parts(void **state) {
    static const char *const names[] = {"<|return|>", "<|call|>", "<|calls|>", "<|flush|>"};
    enum { N = sizeof names / sizeof *names };
    int n_bad = 0;
    (void) state;
    need_reference();
    for (unsigned set = 0; set < 2u << N; set++) {
        const char *some[N];
        const char *key = set >> N ? "<|end|>" : "<tool>";
        size_t n = 0;
        for (size_t i = 0; i < N; i++) {
            some[n] = names[i];
            n += set >> i & 1;
        }
        const int n_differ = ends_differ(some, n, set % 3 == 0 ? TOKEN_CONTROL : TOKEN_NORMAL, key);
        for (size_t i = 0; i <= n && n_differ > 0; i++) {
            print_error("%s%s", i < n ? some[i] : key, i < n ? " " : " by key\n");
        }
        n_bad += n_differ;
    }
    assert_int_equal(n_bad, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ends), cmocka_unit_test(test_ends_of_parts),
        cmocka_unit_test(test_spm), cmocka_unit_test(test_bpe), cmocka_unit_test(test_bpe_wide), cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_specials)};
    check_quiet();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
