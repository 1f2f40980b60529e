// SPDX-License-Identifier: MIT
// reader.h: what the two parts of reading a header share: the whole and its tensors (read.c), keys (read_key.c).
#pragma once

#include "gguf/read.h"

struct gguf_reader {
    struct gguf_source *s;
    struct gguf_context *ctx;
    unsigned char *scratch; // for what has to be whole before its size in the context is known; room for a chunk's head first
    size_t scratch_cap;
};

static inline unsigned char *berth_gguf_scratch(const struct gguf_reader *r) {
    return r->scratch + GGUF_CHUNK_HEAD;
}

#define GGUF_READ(r, out, what) berth_gguf_source_read((r)->s, out, sizeof *(out), what)

// Says what memory is missing for; false.
bool berth_gguf_no_memory(const struct gguf_reader *r, uint64_t size, const char *what);
// The length and bytes of a name into the scratch. A name that holds NUL could never be found.
bool berth_gguf_name_read(struct gguf_reader *r, size_t *size, const char *what) BERTH_MUST_USE;
// One key with its value into the context.
bool berth_gguf_kv_read(struct gguf_reader *r) BERTH_MUST_USE;
