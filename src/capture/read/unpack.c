// SPDX-License-Identifier: MIT
// unpack.c: the bytes of a captured graph's file. With zlib (BERTH_ZLIB) gzip may have packed them; without it they are plain,
// and a packed file is refused with what to do about it.

#include "capture/read/reader.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#ifdef BERTH_ZLIB

#    include <zlib.h>

enum ggml_status ggraph_file_open(struct ggraph_reader *r) {
    errno = 0;
    r->file = gzopen(r->path, "rb");
    if (r->file == NULL) {
        return berth_fail(
            GGML_STATUS_FAILED, "%s: cannot be opened: %s", r->path, errno != 0 ? strerror(errno) : "out of memory");
    }
    return GGML_STATUS_SUCCESS;
}

size_t ggraph_file_read(struct ggraph_reader *r, void *to, unsigned size) {
    int code = Z_OK;
    errno = 0;
    const int n = gzread(r->file, to, size);
    const char *error = gzerror(r->file, &code);
    if (n <= 0 && code == Z_BUF_ERROR) {
        r->status = berth_fail(GGML_STATUS_FAILED, "%s:%lld: the packed text is cut off", r->path, (long long) r->i_line + 1);
    } else if (n < 0) {
        r->status = berth_fail(GGML_STATUS_FAILED, "%s: cannot be read: %s", r->path, code == Z_ERRNO ? strerror(errno) : error);
    }
    return n > 0 ? (size_t) n : 0;
}

const char *ggraph_file_hint(const struct ggraph_reader *r) {
    return gzdirect(r->file) ? "" : "; other packed files have to be unpacked first";
}

void ggraph_file_close(struct ggraph_reader *r) {
    if (r->file != NULL) {
        gzclose_r(r->file);
    }
}

#else

enum ggml_status ggraph_file_open(struct ggraph_reader *r) {
    r->file = fopen(r->path, "rbe");
    if (r->file == NULL) {
        return berth_fail(GGML_STATUS_FAILED, "%s: cannot be opened: %s", r->path, strerror(errno));
    }
    return GGML_STATUS_SUCCESS;
}

size_t ggraph_file_read(struct ggraph_reader *r, void *to, unsigned size) {
    const size_t n = fread(to, 1, size, r->file);
    if (n == 0 && ferror(r->file)) {
        r->status = berth_fail(GGML_STATUS_FAILED, "%s: cannot be read: %s", r->path, strerror(errno));
    }
    return n;
}

const char *ggraph_file_hint(const struct ggraph_reader *r) {
    const bool is_packed = r->size >= 2 && memcmp(r->text, "\x1f\x8b", 2) == 0;
    return is_packed
               ? "; it is packed, and this Berth was built without zlib: unpack it with gunzip, or install zlib's header and "
                 "build Berth again"
               : "";
}

void ggraph_file_close(struct ggraph_reader *r) {
    if (r->file != NULL) {
        fclose(r->file);
    }
}

#endif
