// SPDX-License-Identifier: MIT
// source.c: reads the bytes of a GGUF file from a buffer, a file or a callback.

#include "base/min.h"
#include "gguf/read.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

void berth_gguf_source_buffer(struct gguf_source *s, const void *data, size_t size) {
    *s = (struct gguf_source){.name = "buffer", .bytes = data, .size = size};
}

void berth_gguf_source_file(struct gguf_source *s, FILE *file, const char *name) {
    *s = (struct gguf_source){.name = name, .file = file, .size = GGUF_SIZE_UNKNOWN};
    const off_t at = ftello(file);
    s->base = at;
    if (at < 0) {
        return; // file is a pipe
    }
    const bool can_seek = fseeko(file, 0, SEEK_END) == 0;
    const off_t end = can_seek ? ftello(file) : -1;
    if (fseeko(file, at, SEEK_SET) != 0 || end < at) {
        s->base = can_seek ? at : -1;
        s->size = can_seek ? 0 : GGUF_SIZE_UNKNOWN;
        return;
    }
    s->size = (uint64_t) (end - at);
}

void berth_gguf_source_callback(
    struct gguf_source *s, gguf_reader_callback_t callback, void *user_data, size_t max_chunk, uint64_t max_size) {
    *s = (struct gguf_source){.name = "callback",
        .callback = callback,
        .user_data = user_data,
        .max_chunk = max_chunk == 0 ? SIZE_MAX : max_chunk,
        .size = max_size};
}

bool berth_gguf_source_fail(const struct gguf_source *s, uint64_t at, const char *fmt, ...) {
    char text[320];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return BERTH_FAIL_FALSE(GGML_STATUS_FAILED, "gguf: %.120s: %s, at offset %" PRIu64, s->name, text, at);
}

/*@ requires source_is_valid(s) && elem_size > 0;
    assigns \nothing;
    ensures \result <==> n * elem_size <= s->size - s->at; */
bool berth_gguf_source_holds(const struct gguf_source *s, uint64_t n, uint64_t elem_size, const char *what) {
    const uint64_t left = berth_gguf_source_left(s);
    if (n <= left / elem_size) {
        return true;
    }
    return berth_gguf_source_fail(s, s->at,
        "%s: %" PRIu64 " elements of at least %" PRIu64 " bytes do not fit into the remaining %" PRIu64 " bytes", what, n,
        elem_size, left);
}

static size_t callback_read(struct gguf_source *s, unsigned char *out, size_t size) {
    size_t n = 0;
    while (n < size) {
        const size_t want = min_size(size - n, s->max_chunk);
        const size_t got = s->callback(s->user_data, out + n, s->at + n, want);
        if (got == 0 || got > want) {
            break;
        }
        n += got;
    }
    return n;
}

// Returns the next `size` bytes of a buffer and moves the cursor behind them. If fewer remain, returns NULL, and the cursor stays.
/*@ requires source_is_valid(s) && \valid(s) && s->bytes != \null;
    requires \separated(s, s->bytes + (0 .. s->size - 1));
    assigns s->at;
    ensures source_is_valid(s);
    ensures \result == \null <==> \old(s->at) + size > s->size;
    ensures \result == \null ==> s->at == \old(s->at);
    ensures \result != \null ==> s->at == \old(s->at) + size && \valid_read(\result + (0 .. size - 1)); */
static const unsigned char *bytes_next(struct gguf_source *s, size_t size) {
    if (size > berth_gguf_source_left(s)) {
        return NULL;
    }
    const unsigned char *bytes = s->bytes + s->at;
    s->at += size;
    return bytes;
}

bool berth_gguf_source_read(struct gguf_source *s, void *out, size_t size, const char *what) {
    const uint64_t left = berth_gguf_source_left(s);
    size_t n = 0;
    if (size == 0) {
        return true;
    }
    if (s->bytes != NULL) {
        const unsigned char *bytes = bytes_next(s, size);
        if (bytes != NULL) {
            memcpy(out, bytes, size);
            return true;
        }
    } else if (size <= left) {
        errno = 0;
        n = s->file != NULL ? fread(out, 1, size, s->file) : callback_read(s, out, size);
        if (n == size) {
            s->at += size;
            return true;
        }
    }
    if (s->file != NULL && ferror(s->file)) {
        return berth_gguf_source_fail(s, s->at, "the %s cannot be read: %s", what, strerror(errno));
    }
    return berth_gguf_source_fail(s, s->at, "the file ends in the %s: %zu bytes are needed, %" PRIu64 " are left", what, size,
        size <= left ? (uint64_t) n : left);
}

bool berth_gguf_source_seek(struct gguf_source *s, uint64_t at) {
    if (at == s->at) {
        return true;
    }
    if (s->file != NULL && (s->base < 0 || at > (uint64_t) (INT64_MAX - s->base) ||
                               fseeko(s->file, (off_t) (s->base + (int64_t) at), SEEK_SET) != 0)) {
        return berth_gguf_source_fail(s, s->at, "cannot seek to %" PRIu64 ": reading tensors requires a file, not a pipe", at);
    }
    s->at = at;
    return true;
}
