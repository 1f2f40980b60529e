// SPDX-License-Identifier: MIT
// ggraph_text.c: the text of a captured graph: packed or not, its lines, and their fields. It is unpacked as a whole, so that
// counts can be held against the bytes that are there.

#include "cli/ggraph_reader.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

static enum ggml_status first_line_check(struct ggraph_reader *r, bool is_packed) {
    r->i_line                     = 1;
    const bool ok                 = strncmp(r->text, "ggraph 1", 8) == 0;
    const enum ggml_status status = ok ? GGML_STATUS_SUCCESS
                                       : ggraph_refuse(r, "not a captured graph: the first line is no \"ggraph 1\"%s",
                                             is_packed ? "; other packed files have to be unpacked first" : "");
    r->i_line                     = 0;
    return status;
}

enum ggml_status ggraph_text_read(struct ggraph_reader *r) {
    const char *path = r->path;
    size_t cap       = 0;
    errno            = 0;
    gzFile file      = gzopen(path, "rb");
    if (file == NULL) {
        return berth_fail(GGML_STATUS_FAILED, "%s: cannot be opened: %s", path, errno != 0 ? strerror(errno) : "out of memory");
    }
    enum ggml_status status = GGML_STATUS_SUCCESS;
    for (int n = 1; n > 0 && status == GGML_STATUS_SUCCESS; r->size += (size_t) n) {
        if (!berth_grow((void **) &r->text, &cap, r->size + 65536, 1)) {
            status = berth_fail(GGML_STATUS_ALLOC_FAILED, "%s: out of memory for %zu bytes", path, r->size);
            break;
        }
        n = gzread(file, r->text + r->size, 65535);
        if (n < 0) {
            int code;
            const char *what = gzerror(file, &code);
            status = berth_fail(GGML_STATUS_FAILED, "%s: cannot be read: %s", path, code == Z_ERRNO ? strerror(errno) : what);
            n      = 0;
        }
        r->text[r->size + (size_t) n] = '\0';
        if (status == GGML_STATUS_SUCCESS && r->size == 0) { // before more is read: it may be endless
            status = first_line_check(r, !gzdirect(file));
        }
    }
    if (gzclose_r(file) == Z_BUF_ERROR && status == GGML_STATUS_SUCCESS) {
        status = berth_fail(GGML_STATUS_FAILED, "%s: the packed text is cut off after %zu bytes", path, r->size);
    }
    return status;
}

bool ggraph_line(struct ggraph_reader *r) {
    if (r->at >= r->size) {
        return false;
    }
    r->line   = r->text + r->at;
    char *end = memchr(r->line, '\n', r->size - r->at);
    r->at     = end != NULL ? (size_t) (end - r->text) + 1 : r->size;
    if (end != NULL) {
        *end = '\0';
    }
    r->i_line++;
    return true;
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
