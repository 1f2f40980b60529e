// SPDX-License-Identifier: MIT
// write.c: writes captured graphs. A file appears under its final name only when it is complete.

#include "capture/capture.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

// ---- text ----

void berth_capture_write_head(FILE *f, int32_t n_nodes, int32_t n_leafs, int32_t n_other, int n_bufs) {
    fprintf(f, "source berth %s\nggml %s %s\ncounts nodes=%d leafs=%d other=%d bufs=%d\n", berth_version(), ggml_version(),
        ggml_commit(), n_nodes, n_leafs, n_other, n_bufs);
}

static void write_word(const char *text, FILE *f) {
    for (const char *p = text[0] != '\0' ? text : "-"; *p != '\0'; p++) {
        fputc(isspace((unsigned char) *p) || iscntrl((unsigned char) *p) ? '_' : *p, f);
    }
}

void berth_capture_write_buf(FILE *f, int i, const struct capture_buf *buf) {
    fprintf(f, "buf %d ", i);
    write_word(buf->name != NULL ? buf->name : "", f);
    fprintf(f, " align=%zu max=%zu same_as=%d ggml_size=%zu\n", buf->align, buf->chunk_limit != 0 ? buf->chunk_limit : SIZE_MAX,
        buf->same_as, buf->size);
}

void berth_capture_write_columns(FILE *f) {
    fputs(
        "columns id kind op type ne nb nbytes alloc_size view_src view_offs flags ext buf ggml_chunk ggml_offset srcs name item "
        "life\n",
        f);
}

static void write_op(const struct capture_tensor *t, FILE *f) {
    // The ops differ if the tensor is the destination of a copy between backends: the scheduler plans such a copy as GGML_OP_DUP.
    if (t->op != t->tensor->op) {
        fputs(ggml_op_name(t->op), f);
        return;
    }
    if (t->op == GGML_OP_UNARY || t->op == GGML_OP_GLU) {
        fputs(t->op == GGML_OP_UNARY ? "UNARY:" : "GLU:", f);
    }
    fputs(ggml_op_desc(t->tensor), f);
}

static void write_flags(int32_t flags, FILE *f) {
    static const struct {
        int32_t flag;
        char letter;
    } letters[] = {{GGML_TENSOR_FLAG_INPUT, 'i'}, {GGML_TENSOR_FLAG_OUTPUT, 'o'}, {GGML_TENSOR_FLAG_PARAM, 'p'},
        {GGML_TENSOR_FLAG_LOSS, 'l'}};
    int n = 0;
    for (size_t i = 0; i < sizeof letters / sizeof letters[0]; i++) {
        if ((flags & letters[i].flag) != 0) {
            fputc(letters[i].letter, f);
            n++;
        }
    }
    fputs(n == 0 ? "-" : "", f);
}

void berth_capture_write_tensor(FILE *f, const struct capture_tensor *c, const int32_t *srcs, int n_srcs) {
    const struct ggml_tensor *t = c->tensor;
    fprintf(f, "%d %c ", c->id, c->kind);
    write_op(c, f);
    fprintf(f, " %s %" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 " %zu,%zu,%zu,%zu %zu %zu %d %zu ", ggml_type_name(t->type),
        t->ne[0], t->ne[1], t->ne[2], t->ne[3], t->nb[0], t->nb[1], t->nb[2], t->nb[3], ggml_nbytes(t), c->alloc_size,
        c->view_src, t->view_offs);
    write_flags(c->flags, f);
    fprintf(f, " %d %d %" PRId64 " %" PRId64 " ", c->has_memory, c->buf, c->chunk, c->off);
    for (int k = 0; k < n_srcs; k++) {
        fprintf(f, "%s%d", k > 0 ? "," : "", srcs[k]);
    }
    fputs(n_srcs == 0 ? "- " : " ", f);
    write_word(t->name, f);
    fprintf(f, " %d ", c->item);
    if (c->life != NULL) {
        fprintf(f, "%" PRId64 ",%" PRId64 ",%" PRIu64 ",%d", c->life->first, c->life->last, c->life->size, c->life_buf);
    }
    fputs(c->life == NULL ? "-\n" : "\n", f);
}

// ---- files ----

const char *berth_capture_dir(void) {
    // A setuid program must not write files to a folder that its user chooses.
    const char *dir = secure_getenv("BERTH_CAPTURE");
    return dir != NULL && dir[0] != '\0' ? dir : NULL;
}

static uint64_t hash_text(const char *p, size_t n) {
    uint64_t h = 0xCBF29CE484222325u;
    for (size_t i = 0; i < n; i++) {
        h = (h ^ (uint8_t) p[i]) * 0x100000001B3u;
    }
    return h;
}

bool berth_capture_write_file(const char *dir, const char *text, size_t size) {
    char name[32], path[4096];
    struct berth_replace to;
    snprintf(name, sizeof name, "graph-%016" PRIx64, hash_text(text, size));
    if ((size_t) snprintf(path, sizeof path, "%s/%s.ggraph", dir, name) >= sizeof path) {
        errno = ENAMETOOLONG;
        return false;
    }
    struct stat st;
    if (lstat(path, &st) == 0) {
        errno = EEXIST;
        return S_ISREG(st.st_mode); // a symbolic link is refused, because another user may have created it
    }
    if (!berth_replace_open_new(&to, path)) {
        return false;
    }
    const bool ok = fprintf(to.file, "ggraph 1\nname %s\n", name) > 0 && fwrite(text, 1, size, to.file) == size;
    return berth_replace_close(&to, ok);
}
