// SPDX-License-Identifier: MIT
// source.h: bytes from a file, a buffer or a callback, read once from front to back, with their position for messages.
#pragma once

#include "gguf/context.h"

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
// berth_fail with the source's name before and the given offset behind.
void berth_gguf_source_fail(const struct gguf_source *s, uint64_t at, const char *fmt, ...) BERTH_PRINTF(3, 4);
