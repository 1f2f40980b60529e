// SPDX-License-Identifier: MIT
// model_tokens.h: a small tokenizer of each kind that libllama supports. All have special tokens, every byte (or letter), the
// pieces below, and unused tokens up to the size of the vocabulary.
#pragma once

#include "ggml.h"
#include "gguf.h"
#include "model_archs.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_TOKENS_MIN = 400, TOKEN_SIZE = 32 };
enum { KIND_NORMAL = 1, KIND_UNKNOWN = 2, KIND_CONTROL = 3, KIND_UNUSED = 5, KIND_BYTE = 6 };

struct token_list {
    char (*text)[TOKEN_SIZE];
    float *score;
    int32_t *kind;
    int32_t n, n_cap;
};

// Pairs of pieces. Each piece is a single character or the result of an earlier merge.
static const char *const merges[][2] = {
    {"t", "h"},
    {"th", "e"},
    {"i", "n"},
    {"a", "n"},
    {"e", "r"},
    {"o", "n"},
    {"an", "d"},
    {"in", "g"},
    {"o", "u"},
    {"e", "n"},
    {"h", "e"},
    {"s", "t"},
    {"a", "t"},
    {"o", "r"},
    {"e", "s"},
    {"c", "e"},
    {"on", "ce"},
    {"t", "i"},
    {"m", "e"},
    {"ti", "me"},
};

static void token_add(struct token_list *list, const char *text, int32_t kind) {
    if (list->n < list->n_cap) {
        snprintf(list->text[list->n], TOKEN_SIZE, "%s", text);
        list->score[list->n] = -(float) list->n;
        list->kind[list->n] = kind;
        list->n++;
    }
}

static void token_add_utf8(struct token_list *list, unsigned code) {
    char text[3] = {(char) code, 0, 0};
    if (code >= 0x80) {
        text[0] = (char) (0xC0 | (code >> 6));
        text[1] = (char) (0x80 | (code & 0x3F));
    }
    token_add(list, text, KIND_NORMAL);
}

// Byte-level BPE represents a byte by a printable character: the byte itself, or the next free character from 256 on.
static void tokens_bpe_bytes(struct token_list *list) {
    unsigned next = 256;
    for (unsigned byte = 0; byte < 256; byte++) {
        const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
        token_add_utf8(list, printable ? byte : next++);
    }
}

static void tokens_pieces(struct token_list *list, const char *before, bool with_letters) {
    char text[TOKEN_SIZE];
    for (char c = 'a'; with_letters && c <= 'z'; c++) {
        snprintf(text, sizeof text, "%s%c", before, c);
        token_add(list, text, KIND_NORMAL);
    }
    for (size_t i = 0; i < sizeof merges / sizeof merges[0]; i++) {
        snprintf(text, sizeof text, "%s%s%s", before, merges[i][0], merges[i][1]);
        token_add(list, text, KIND_NORMAL);
    }
}

static void tokens_fill(struct token_list *list) {
    char text[TOKEN_SIZE];
    while (list->n < list->n_cap) {
        snprintf(text, sizeof text, "<unused%d>", list->n);
        token_add(list, text, KIND_UNUSED);
    }
}

static void tokens_spm(struct token_list *list) {
    char text[TOKEN_SIZE];
    token_add(list, "<unk>", KIND_UNKNOWN);
    token_add(list, "<s>", KIND_CONTROL);
    token_add(list, "</s>", KIND_CONTROL);
    for (int byte = 0; byte < 256; byte++) {
        snprintf(text, sizeof text, "<0x%02X>", byte);
        token_add(list, text, KIND_BYTE);
    }
    token_add(list, "\u2581", KIND_NORMAL);
    tokens_pieces(list, "", true);
    tokens_pieces(list, "\u2581", true);
}

static void tokens_ugm(struct token_list *list) {
    token_add(list, "<pad>", KIND_CONTROL);
    token_add(list, "</s>", KIND_CONTROL);
    token_add(list, "<unk>", KIND_UNKNOWN);
    token_add(list, "\u2581", KIND_NORMAL);
    tokens_pieces(list, "", true);
    tokens_pieces(list, "\u2581", true);
}

static void tokens_wpm(struct token_list *list) {
    static const char *const special[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
    for (size_t i = 0; i < sizeof special / sizeof special[0]; i++) {
        token_add(list, special[i], KIND_CONTROL);
    }
    tokens_pieces(list, "", true);
    tokens_pieces(list, "\u2581", true);
}

static void tokens_rwkv(struct token_list *list) {
    char text[TOKEN_SIZE];
    token_add(list, "<s>", KIND_CONTROL);
    for (int byte = 0; byte < 256; byte++) {
        snprintf(text, sizeof text, "\\x%02x", byte);
        token_add(list, text, KIND_NORMAL);
    }
    tokens_pieces(list, "", false);
}

static void tokens_bpe_merges(struct gguf_context *gguf) {
    char text[2 * (sizeof merges / sizeof merges[0])][TOKEN_SIZE];
    const char *list[2 * (sizeof merges / sizeof merges[0])];
    size_t n = 0;
    for (; n < sizeof merges / sizeof merges[0]; n++) {
        snprintf(text[n], TOKEN_SIZE, "%s %s", merges[n][0], merges[n][1]);
        list[n] = text[n];
    }
    gguf_set_arr_str(gguf, "tokenizer.ggml.merges", list, n);
}

// Returns false if the vocabulary is too small or out of memory.
static bool tokens_write(struct gguf_context *gguf, enum tokens kind, int32_t n_vocab) {
    static const struct {
        const char *model, *pre;
        void (*make)(struct token_list *);
        int bos, eos;
    } kinds[] = {
        [TOKENS_SPM] = {"llama", "default", tokens_spm, 1, 2},
        [TOKENS_BPE] = {"gpt2", "gpt-2", tokens_bpe_bytes, -1, -1},
        [TOKENS_WPM] = {"bert", "default", tokens_wpm, 2, 3},
        [TOKENS_UGM] = {"t5", "default", tokens_ugm, -1, 1},
        [TOKENS_RWKV] = {"rwkv", "default", tokens_rwkv, 0, 0},
    };
    struct token_list list = {.n_cap = n_vocab};
    list.text = calloc((size_t) n_vocab, TOKEN_SIZE);
    list.score = calloc((size_t) n_vocab, sizeof *list.score);
    list.kind = calloc((size_t) n_vocab, sizeof *list.kind);
    const char **text = calloc((size_t) n_vocab, sizeof *text);
    const bool ok = n_vocab >= N_TOKENS_MIN && list.text != NULL && list.score != NULL && list.kind != NULL && text != NULL;
    if (ok) {
        int bos = kinds[kind].bos, eos = kinds[kind].eos;
        kinds[kind].make(&list);
        if (kind == TOKENS_BPE) {
            tokens_pieces(&list, "", false);
            bos = eos = list.n;
            token_add(&list, "<|end|>", KIND_CONTROL);
            tokens_bpe_merges(gguf);
        }
        tokens_fill(&list);
        for (int32_t i = 0; i < n_vocab; i++) {
            text[i] = list.text[i];
        }
        gguf_set_val_str(gguf, "tokenizer.ggml.model", kinds[kind].model);
        gguf_set_val_str(gguf, "tokenizer.ggml.pre", kinds[kind].pre);
        gguf_set_arr_str(gguf, "tokenizer.ggml.tokens", text, (size_t) n_vocab);
        gguf_set_arr_data(gguf, "tokenizer.ggml.scores", GGUF_TYPE_FLOAT32, list.score, (size_t) n_vocab);
        gguf_set_arr_data(gguf, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, list.kind, (size_t) n_vocab);
        gguf_set_val_u32(gguf, "tokenizer.ggml.eos_token_id", (uint32_t) eos);
        if (bos >= 0) {
            gguf_set_val_u32(gguf, "tokenizer.ggml.bos_token_id", (uint32_t) bos);
        }
        if (kind == TOKENS_WPM) {
            gguf_set_val_u32(gguf, "tokenizer.ggml.token_type_count", 2);
            gguf_set_val_u32(gguf, "tokenizer.ggml.unknown_token_id", 1);
            gguf_set_val_u32(gguf, "tokenizer.ggml.padding_token_id", 0);
            gguf_set_val_u32(gguf, "tokenizer.ggml.seperator_token_id", 3);
            gguf_set_val_u32(gguf, "tokenizer.ggml.mask_token_id", 4);
        }
    }
    free(text);
    free(list.kind);
    free(list.score);
    free(list.text);
    return ok;
}
