// SPDX-License-Identifier: MIT
// read.h: shared declarations of the reader (source.c, read.c, read_key.c, make.c).
#pragma once

#include "gguf/context.h"

// Bytes of a file, a buffer or a callback, read once from start to end.
struct gguf_source {
    const char *name;                // for messages
    const unsigned char *bytes;      // exactly one of bytes, file and callback is set
    FILE *file;                      //
    gguf_reader_callback_t callback; //
    void *user_data;
    size_t max_chunk; // largest number of bytes per call of callback
    int64_t base;     // file only: position of the first byte, -1: not seekable
    uint64_t at;      // position of the next byte to read
    uint64_t size;    // total bytes; GGUF_SIZE_UNKNOWN: unknown
};

#define GGUF_SIZE_UNKNOWN UINT64_MAX

/*@ predicate source_is_valid(struct gguf_source *s) =
        \valid_read(s) && s->at <= s->size && (s->bytes != \null ==> \valid_read(s->bytes + (0 .. s->size - 1))); */

void berth_gguf_source_buffer(struct gguf_source *s, const void *data, size_t size);
void berth_gguf_source_file(struct gguf_source *s, FILE *file, const char *name); // starts at the current position of file
void berth_gguf_source_callback(
    struct gguf_source *s, gguf_reader_callback_t callback, void *user_data, size_t max_chunk, uint64_t max_size);

/*@ requires source_is_valid(s);
    assigns \nothing;
    ensures \result == s->size - s->at; */
static inline uint64_t berth_gguf_source_left(const struct gguf_source *s) {
    return s->size - s->at;
}
// Returns whether n elements of at least elem_size bytes fit into the remaining bytes. If not, sets an error that starts with
// `what`.
bool berth_gguf_source_holds(const struct gguf_source *s, uint64_t n, uint64_t elem_size, const char *what) BERTH_MUST_USE;
// If fewer than `size` bytes remain, returns false and sets an error that contains `what`.
bool berth_gguf_source_read(struct gguf_source *s, void *out, size_t size, const char *what) BERTH_MUST_USE;
bool berth_gguf_source_seek(struct gguf_source *s, uint64_t at) BERTH_MUST_USE;
// Calls berth_fail with the source's name, the text, and the offset `at`. Returns false.
//@ assigns \nothing; ensures !\result;
bool berth_gguf_source_fail(const struct gguf_source *s, uint64_t at, const char *fmt, ...) BERTH_PRINTF(3, 4);

struct gguf_reader {
    struct gguf_source *s;
    struct gguf_context *ctx;
    // Memory for data of unknown size. Its first GGUF_CHUNK_HEAD bytes stay unused, so that the arena can adopt it.
    unsigned char *scratch;
    size_t scratch_cap;
};

static inline unsigned char *berth_gguf_scratch(const struct gguf_reader *r) {
    return r->scratch + GGUF_CHUNK_HEAD;
}

#define GGUF_READ(r, out, what) berth_gguf_source_read((r)->s, out, sizeof *(out), what)

// Sets an error that names the size and `what`. Returns false.
bool berth_gguf_no_memory(const struct gguf_reader *r, uint64_t size, const char *what);
// Reads a name into the scratch. A name that contains NUL is refused, because it could never be found.
bool berth_gguf_name_read(struct gguf_reader *r, size_t *size, const char *what) BERTH_MUST_USE;
bool berth_gguf_kv_read(struct gguf_reader *r) BERTH_MUST_USE;

// ---- make.c, read.c ----

// NULL: failed.
struct gguf_context *berth_gguf_read(struct gguf_source *s, struct gguf_init_params params) BERTH_MUST_USE;

// Creates *params.ctx with the tensors of the file. Reads their data unless params.no_alloc is set. False: failed, and *params.ctx
// is NULL.
bool berth_gguf_tensors_make(struct gguf_context *ctx, struct gguf_source *s, struct gguf_init_params params) BERTH_MUST_USE;
// Returns a new ggml_context with the tensors, without data. NULL: failed.
struct ggml_context *berth_gguf_tensors_plain(const struct gguf_context *ctx) BERTH_MUST_USE;
