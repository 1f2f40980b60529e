// SPDX-License-Identifier: MIT
// vocab.h: the tokenizer of a model file: text to tokens and back. Two kinds: SentencePiece's BPE (scores, bytes as fallback) and
// GPT-2's BPE over bytes (merges, words cut first). Files come from anywhere: every length and id is checked when it is read.
#pragma once

#include "base/siphash.h"
#include "model/model.h"

enum vocab_kind { VOCAB_SPM, VOCAB_BPE };

enum token_type { // as files number them
    TOKEN_NORMAL = 1,
    TOKEN_UNKNOWN = 2,
    TOKEN_CONTROL = 3,
    TOKEN_USER = 4,
    TOKEN_UNUSED = 5,
    TOKEN_BYTE = 6,
};

// A list of texts of a file, and the way to them by their bytes: open addressing.
struct text_table {
    const char **texts; // [n] borrowed from the file
    uint32_t *sizes;    // [n] bytes
    int32_t n;
    size_t longest;               // bytes
    int32_t *slots;               // indices of texts; -1: free
    size_t n_slots;               // a power of two
    struct berth_siphash_key key; // of the hash: a file cannot know which texts would collide
};

struct special_trie;

struct vocab {
    const struct vocab_ops *ops;
    const void *ops_data; // of a tokenizer that is not the file's
    enum vocab_kind kind;
    const struct split_rule *split; // BPE: how texts are cut into words
    bool is_word_first;             // BPE: a word that is a token is that token, whatever the merges say
    int32_t n_tokens;
    float *scores;   // [n_tokens] SPM
    uint8_t *types;  // [n_tokens] of token_type
    size_t max_size; // bytes of the longest token
    struct text_table tokens;
    struct text_table merges; // BPE: "left right", best first

    int32_t byte_token[256];             // -1: none
    struct special_trie *specials;       // special.c; NULL: there are none
    int32_t bos, eos, eot, eom, unknown; // -1: none
    bool add_bos, add_eos, add_space;
};

struct token_list {
    int32_t *ids;
    size_t n, cap;
};

// What a tokenizer does: Berth's own for a file's tables, or an engine's.
struct vocab_ops {
    bool (*encode)(const struct vocab *vocab, const char *text, size_t size, unsigned how, struct token_list *out,
        struct model_error *error);
    size_t (*piece)(const struct vocab *vocab, int32_t token, char *out, size_t cap);
    bool (*is_end)(const struct vocab *vocab, int32_t token);
};
extern const struct vocab_ops vocab_ops_file;

// NULL with an error. The file must live as long as the vocabulary.
struct vocab *vocab_new(const struct gguf_context *meta, int64_t n_vocab, struct model_error *error);
// The tokenizer of a model that was placed: its engine's.
struct vocab *vocab_of_model(const struct model *model, struct model_error *error);
void vocab_free(struct vocab *vocab);

// How a text becomes tokens: with those that begin and end every text; with control tokens that are spelled out in it.
enum { ENCODE_PLAIN = 0, ENCODE_ADD = 1, ENCODE_PARSE = 2 };
// Appends the tokens of a text. O(n log n).
bool vocab_encode(
    const struct vocab *vocab, const char *text, size_t size, unsigned how, struct token_list *out, struct model_error *error);
void token_list_fini(struct token_list *list);
// The bytes of a token, appended at *out (as much as fits into cap) and counted; parts of a character may come one by one.
// Control tokens have none, nor has that for what is unknown.
size_t vocab_piece(const struct vocab *vocab, int32_t token, char *out, size_t cap);
// Does a text end with this token? By the file's keys, or by its name, whatever its type: files forget both. O(1).
bool vocab_is_end(const struct vocab *vocab, int32_t token);

// ---- within the room ----

struct text_part {
    const char *text;
    size_t size;
};
// Of equal texts the last one counts if last_wins, else the first. False: out of memory.
bool text_table_fill(struct text_table *table, bool last_wins);
// Index of the text that the parts make together; -1: none.
int32_t text_table_find(const struct text_table *table, const struct text_part *parts, int n_parts);
int32_t vocab_find(const struct vocab *vocab, const char *text, size_t size); // -1: no token
bool token_push(struct token_list *list, int32_t token, struct model_error *error);
size_t token_piece(const struct vocab *vocab, int32_t token, char *out, size_t cap); // of vocab_ops_file
bool token_is_end(const struct vocab *vocab, int32_t token);
// GPT-2's alphabet: a character for every byte.
uint32_t byte_to_char(uint8_t byte);
int byte_of_char(uint32_t c); // -1: none

// special.c: after the tokens are read. False: out of memory.
bool specials_init(struct vocab *vocab);
void specials_free(struct special_trie *trie);
enum { SPECIAL_NONE = -1, SPECIAL_INSIDE = -2 };
// [size] for each byte of a text the special token that begins there, or SPECIAL_*; to be freed. NULL: out of memory.
int32_t *specials_find(const struct vocab *vocab, const char *text, size_t size, bool with_control);

// ---- characters (unicode.c) ----

// The character at text, at most size bytes long; bytes that are no UTF-8 count as one character each, U+FFFD. Its size is
// returned.
size_t utf8_next(const char *text, size_t size, uint32_t *c);
size_t utf8_put(uint32_t c, char out[4]);

// Bytes as they come, whole characters as they go: what is no UTF-8 becomes U+FFFD.
struct utf8_stream {
    char held[4];
    size_t n_held;
};
// Writes to out, which has room for 3 * (size + 4) bytes; returns how many.
size_t utf8_stream_put(struct utf8_stream *stream, const char *bytes, size_t size, char *out);
size_t utf8_stream_end(struct utf8_stream *stream, char *out);

// Kinds of characters.
bool char_is_letter(uint32_t c);      // L
bool char_is_number(uint32_t c);      // N
bool char_is_punctuation(uint32_t c); // P
bool char_is_space(uint32_t c);       // White_Space

// ---- words (pretokenize.c) ----

struct split_rule;
// The rule of a file's tokenizer.ggml.pre; NULL if it is not known. adds_bos: texts begin with a token unless the file says no.
const struct split_rule *split_find(const char *name, bool *is_word_first, bool *adds_bos);
// Cuts n characters into words: is_cut[i] says that one begins at character i; is_cut has n + 1 places.
void split_words(const struct split_rule *rule, const uint32_t *chars, size_t n, bool *is_cut);
