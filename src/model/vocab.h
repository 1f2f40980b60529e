// SPDX-License-Identifier: MIT
// vocab.h: the tokenizer of a model file. It is SentencePiece BPE (merges by score, byte tokens for unknown characters) or GPT-2
// BPE (merges by rank, after a split into words). Files are untrusted: every length and id is checked.
#pragma once

#include "base/siphash.h"
#include "model/model.h"

enum vocab_kind { VOCAB_SPM, VOCAB_BPE };

enum token_type { // values of tokenizer.ggml.token_type
    TOKEN_NORMAL = 1,
    TOKEN_UNKNOWN = 2,
    TOKEN_CONTROL = 3,
    TOKEN_USER = 4,
    TOKEN_UNUSED = 5,
    TOKEN_BYTE = 6,
};

// A list of texts of a file, with a hash table (open addressing).
struct text_table {
    const char **texts; // [n] borrowed from the file
    uint32_t *sizes;    // [n] bytes
    int32_t n;
    size_t longest;               // bytes of the longest text
    int32_t *slots;               // indices of texts; -1: free
    size_t n_slots;               // a power of two
    struct berth_siphash_key key; // random, so that a file cannot choose collisions
};

struct special_trie;

struct vocab {
    const struct vocab_ops *ops;
    const void *ops_data; // data of the engine that implements ops; NULL with vocab_ops_file
    enum vocab_kind kind;
    const struct split_rule *split; // BPE: how a text is split into words
    bool is_word_first;             // BPE: a word that is a token is encoded as that token, without merges
    int32_t n_tokens;
    float *scores;   // [n_tokens] SPM: scores
    uint8_t *types;  // [n_tokens] values of token_type
    size_t max_size; // bytes of the longest token
    struct text_table tokens;
    struct text_table merges; // BPE: "left right", in the order of their rank

    int32_t byte_token[256];             // token of each byte; -1: none
    struct special_trie *specials;       // special.c; NULL: no special tokens
    int32_t bos, eos, eot, eom, unknown; // -1: none
    bool add_bos, add_eos, add_space;
};

struct token_list {
    int32_t *ids;
    size_t n, cap;
};

// The functions of a tokenizer: Berth's own for the tables of a file, or those of an engine.
struct vocab_ops {
    bool (*encode)(const struct vocab *vocab, const char *text, size_t size, unsigned how, struct token_list *out,
        struct model_error *error);
    size_t (*piece)(const struct vocab *vocab, int32_t token, char *out, size_t cap);
    bool (*is_end)(const struct vocab *vocab, int32_t token);
};
extern const struct vocab_ops vocab_ops_file;

// NULL: *error holds the cause. The file must live as long as the vocabulary.
struct vocab *vocab_new(const struct gguf_context *meta, int64_t n_vocab, struct model_error *error);
// Returns the tokenizer that the engine of a placed model creates.
struct vocab *vocab_of_model(const struct model *model, struct model_error *error);
void vocab_free(struct vocab *vocab);

// ENCODE_ADD: adds the tokens that begin and end a text. ENCODE_PARSE: recognises control tokens that are spelled out in the text.
enum { ENCODE_PLAIN = 0, ENCODE_ADD = 1, ENCODE_PARSE = 2 };
// Appends the tokens of a text. O(n log n).
bool vocab_encode(
    const struct vocab *vocab, const char *text, size_t size, unsigned how, struct token_list *out, struct model_error *error);
void token_list_fini(struct token_list *list);
// Writes at most cap bytes of a token to out. Returns the token's full number of bytes. A token may hold part of a character.
// Control tokens and the unknown token have no bytes.
size_t vocab_piece(const struct vocab *vocab, int32_t token, char *out, size_t cap);
// Returns whether this token ends a text, by the keys of the file or by the token's name. Files often lack the key or give the
// token a wrong type. O(1).
bool vocab_is_end(const struct vocab *vocab, int32_t token);

// ---- within this folder ----

struct text_part {
    const char *text;
    size_t size;
};
// If texts are equal, last_wins says whether the last or the first is found. False: out of memory.
bool text_table_fill(struct text_table *table, bool last_wins);
// Returns the index of the concatenation of the parts; -1: not in the table.
int32_t text_table_find(const struct text_table *table, const struct text_part *parts, int n_parts);
int32_t vocab_find(const struct vocab *vocab, const char *text, size_t size); // -1: no token
bool token_push(struct token_list *list, int32_t token, struct model_error *error);
size_t token_piece(const struct vocab *vocab, int32_t token, char *out, size_t cap); // of vocab_ops_file
bool token_is_end(const struct vocab *vocab, int32_t token);
// The alphabet of GPT-2: one printable character per byte.
uint32_t byte_to_char(uint8_t byte);
int byte_of_char(uint32_t c); // -1: not in the alphabet

// special.c: called after the tokens are read. False: out of memory.
bool specials_init(struct vocab *vocab);
void specials_free(struct special_trie *trie);
enum { SPECIAL_NONE = -1, SPECIAL_INSIDE = -2 };
// Returns an array of `size` entries, one per byte of the text: the special token that begins at this byte, SPECIAL_INSIDE or
// SPECIAL_NONE. The caller frees the array. NULL: out of memory.
int32_t *specials_find(const struct vocab *vocab, const char *text, size_t size, bool with_control);

// ---- characters (unicode.c) ----

// Decodes the first character of a text and returns its number of bytes. An invalid byte counts as one character, U+FFFD.
size_t utf8_next(const char *text, size_t size, uint32_t *c);
size_t utf8_put(uint32_t c, char out[4]);

// Converts bytes that arrive in pieces to complete characters. Invalid UTF-8 becomes U+FFFD.
struct utf8_stream {
    char held[4]; // bytes of an incomplete character
    size_t n_held;
};
// Writes to out, which has room for 3 * (size + 4) bytes, and returns the number of bytes written.
size_t utf8_stream_put(struct utf8_stream *stream, const char *bytes, size_t size, char *out);
size_t utf8_stream_end(struct utf8_stream *stream, char *out);

// Unicode categories of characters.
bool char_is_letter(uint32_t c);      // L
bool char_is_number(uint32_t c);      // N
bool char_is_punctuation(uint32_t c); // P
bool char_is_space(uint32_t c);       // White_Space

// ---- split into words (pretokenize.c) ----

struct split_rule;
// Returns the rule for the value of tokenizer.ggml.pre; NULL: unknown. *adds_bos: by default, texts begin with the BOS token.
const struct split_rule *split_find(const char *name, bool *is_word_first, bool *adds_bos);
// Splits n characters into words: is_cut[i] is set if a word begins at character i. is_cut has n + 1 entries.
void split_words(const struct split_rule *rule, const uint32_t *chars, size_t n, bool *is_cut);
