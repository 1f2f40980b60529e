// SPDX-License-Identifier: MIT
// text.c: reads the lines and fields of a captured graph. The text is decompressed line by line, because a small file may
// decompress to more than fits in memory. Without zlib (BERTH_ZLIB) a compressed file is refused with a hint.

#include "capture/read/reader.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PIECE 65536 // bytes per read
// Largest size of a line, in bytes. It is large, because the line leaforder has two numbers for each leaf of the graph.
#define LINE_MAX_SIZE ((size_t) 1 << 26)

// ---- the file ----

#ifdef BERTH_ZLIB

#    include <zlib.h>

static enum ggml_status file_open(struct ggraph_reader *r) {
    errno = 0;
    r->file = gzopen(r->path, "rb");
    if (r->file == NULL) {
        return berth_fail(
            GGML_STATUS_FAILED, "%s: cannot be opened: %s", r->path, errno != 0 ? strerror(errno) : "out of memory");
    }
    return GGML_STATUS_SUCCESS;
}

// Returns the number of bytes read; 0: end of the file, or an error in r->status.
static size_t file_read(struct ggraph_reader *r, void *to, unsigned size) {
    int code = Z_OK;
    errno = 0;
    const int n = gzread(r->file, to, size);
    const char *error = gzerror(r->file, &code);
    if (n <= 0 && code == Z_BUF_ERROR) {
        r->status =
            berth_fail(GGML_STATUS_FAILED, "%s:%lld: the compressed text is truncated", r->path, (long long) r->i_line + 1);
    } else if (n < 0) {
        r->status = berth_fail(GGML_STATUS_FAILED, "%s: cannot be read: %s", r->path, code == Z_ERRNO ? strerror(errno) : error);
    }
    return n > 0 ? (size_t) n : 0;
}

// Returns the end of the error message for a file that is not a captured graph.
static const char *file_hint(const struct ggraph_reader *r) {
    return gzdirect(r->file) ? "" : " after decompression";
}

static void file_close(struct ggraph_reader *r) {
    if (r->file != NULL) {
        gzclose_r(r->file);
    }
}

#else

static enum ggml_status file_open(struct ggraph_reader *r) {
    r->file = fopen(r->path, "rbe");
    if (r->file == NULL) {
        return berth_fail(GGML_STATUS_FAILED, "%s: cannot be opened: %s", r->path, strerror(errno));
    }
    return GGML_STATUS_SUCCESS;
}

static size_t file_read(struct ggraph_reader *r, void *to, unsigned size) {
    const size_t n = fread(to, 1, size, r->file);
    if (n == 0 && ferror(r->file)) {
        r->status = berth_fail(GGML_STATUS_FAILED, "%s: cannot be read: %s", r->path, strerror(errno));
    }
    return n;
}

static const char *file_hint(const struct ggraph_reader *r) {
    const bool is_packed = r->size >= 2 && memcmp(r->text, "\x1f\x8b", 2) == 0;
    return is_packed
               ? "; it is compressed, and this Berth was built without zlib: run gunzip on it, or install zlib's header and "
                 "build Berth again"
               : "";
}

static void file_close(struct ggraph_reader *r) {
    if (r->file != NULL) {
        fclose(r->file);
    }
}

#endif

// ---- lines and fields ----

// Reads up to PIECE more bytes of the file. On failure sets r->status. At the end of the file sets r->is_end.
static void piece_read(struct ggraph_reader *r) {
    if (r->size - r->at > LINE_MAX_SIZE) {
        r->i_line++;
        r->status = ggraph_refuse(r, "the line has more than %zu bytes", LINE_MAX_SIZE);
        return;
    }
    if (r->at > 0) {
        memmove(r->text, r->text + r->at, r->size - r->at);
        r->size -= r->at;
        r->at = 0;
    }
    if (!berth_grow((void **) &r->text, &r->text_cap, r->size + PIECE + 1, 1)) {
        r->status = berth_fail(GGML_STATUS_ALLOC_FAILED, "%s: out of memory for %zu bytes", r->path, r->size + PIECE);
        return;
    }
    const size_t n = file_read(r, r->text + r->size, PIECE);
    r->size += n;
    r->text[r->size] = '\0';
    r->is_end = n == 0;
}

enum ggml_status ggraph_text_open(struct ggraph_reader *r) {
    r->status = file_open(r);
    if (r->status != GGML_STATUS_SUCCESS) {
        return r->status;
    }
    piece_read(r);
    if (r->status != GGML_STATUS_SUCCESS) {
        return r->status;
    }
    if (strncmp(r->text, "ggraph 1", 8) != 0) { // checked before more is read, because the file may be an endless stream
        r->i_line = 1;
        return ggraph_refuse(r, "not a captured graph: the first line is not \"ggraph 1\"%s", file_hint(r));
    }
    return r->status;
}

void ggraph_text_close(struct ggraph_reader *r) {
    file_close(r);
    berth_free(r->text);
}

bool ggraph_line(struct ggraph_reader *r) {
    char *end = NULL;
    for (size_t n_seen = 0; (end = memchr(r->text + r->at + n_seen, '\n', r->size - r->at - n_seen)) == NULL && !r->is_end;) {
        n_seen = r->size - r->at;
        piece_read(r);
        if (r->status != GGML_STATUS_SUCCESS) {
            return false;
        }
    }
    if (r->at == r->size) {
        return false;
    }
    r->line = r->text + r->at;
    r->at = end != NULL ? (size_t) (end - r->text) + 1 : r->size;
    if (end != NULL) {
        *end = '\0';
    }
    r->i_line++;
    return true;
}

// ggraph_line returned false. If reading the file failed, r->status has the error. Otherwise the text has ended too early.
enum ggml_status ggraph_no_line(const struct ggraph_reader *r, const char *what) {
    return r->status != GGML_STATUS_SUCCESS ? r->status : ggraph_refuse(r, "%s", what);
}

enum ggml_status ggraph_refuse(const struct ggraph_reader *r, const char *fmt, ...) {
    char what[256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    return berth_fail(GGML_STATUS_FAILED, "%s:%lld: %s", r->path, (long long) r->i_line, what);
}

int ggraph_split(char *line, char **fields, int n_max) {
    int n = 0;
    for (char *p = line; *p != '\0' && n < n_max;) {
        while (*p == ' ') {
            p++;
        }
        if (*p != '\0') {
            fields[n++] = p;
        }
        while (*p != '\0' && *p != ' ') {
            p++;
        }
        if (*p == ' ') {
            *p++ = '\0';
        }
    }
    return n;
}

bool ggraph_number(const char *text, int64_t *out) {
    char *end;
    *out = strtoll(text, &end, 10);
    return end != text && (*end == '\0' || *end == ',' || *end == ':');
}

bool ggraph_four(const char *text, int64_t out[4]) {
    for (int i = 0; i < 4; i++) {
        if (text == NULL || !ggraph_number(text, &out[i]) || out[i] < 0) {
            return false;
        }
        text = strchr(text, ',');
        text = text != NULL ? text + 1 : NULL;
    }
    return true;
}

size_t ggraph_value(const char *text, const char *key) {
    const size_t n = strlen(key);
    return strncmp(text, key, n) == 0 && text[n] == '=' ? (size_t) strtoull(text + n + 1, NULL, 10) : SIZE_MAX;
}
