// SPDX-License-Identifier: MIT
// read.h: what the parts of reading share: where bytes come from (source.c), the header and its tensors (read.c), keys (read_key.c),
// and tensors for the caller (make.c).
#pragma once

#include "gguf/context.h"

// Bytes from a file, a buffer or a callback, read once from front to back, with their position for messages.
struct gguf_source {
    const char *name;                // for messages
    const unsigned char *bytes;      // one of these three
    FILE *file;                      //
    gguf_reader_callback_t callback; //
    void *user_data;
    size_t max_chunk; // bytes a call of callback may ask for
    int64_t base;     // file: where the first byte lies, -1 if it cannot be seeked
    uint64_t at;      // from the first byte
    uint64_t size;    // of all; UINT64_MAX if unknown
};

#define GGUF_SIZE_UNKNOWN UINT64_MAX

void berth_gguf_source_buffer(struct gguf_source *s, const void *data, size_t size);
void berth_gguf_source_file(struct gguf_source *s, FILE *file, const char *name); // from its position on
void berth_gguf_source_callback(
    struct gguf_source *s, gguf_reader_callback_t callback, void *user_data, size_t max_chunk, uint64_t max_size);

static inline uint64_t berth_gguf_source_left(const struct gguf_source *s) {
    return s->size - s->at;
}
// Whether n elements of at least elem_size bytes can follow; if not, an error that begins with `what`.
bool berth_gguf_source_holds(const struct gguf_source *s, uint64_t n, uint64_t elem_size, const char *what) BERTH_MUST_USE;
// False, after an error, if the bytes end.
bool berth_gguf_source_read(struct gguf_source *s, void *out, size_t size, const char *what) BERTH_MUST_USE;
// Moves to a later position.
bool berth_gguf_source_seek(struct gguf_source *s, uint64_t at) BERTH_MUST_USE;
// berth_fail with the source's name before and the given offset behind; false.
bool berth_gguf_source_fail(const struct gguf_source *s, uint64_t at, const char *fmt, ...) BERTH_PRINTF(3, 4);

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

// ---- make.c, read.c ----

// NULL after an error.
struct gguf_context *berth_gguf_read(struct gguf_source *s, struct gguf_init_params params) BERTH_MUST_USE;

// Makes *params.ctx with a tensor for each of the file's, and reads their data unless params.no_alloc. False after an error;
// then *params.ctx is NULL.
bool berth_gguf_tensors_make(struct gguf_context *ctx, struct gguf_source *s, struct gguf_init_params params) BERTH_MUST_USE;
// The tensors without data; NULL after an error.
struct ggml_context *berth_gguf_tensors_plain(const struct gguf_context *ctx) BERTH_MUST_USE;
