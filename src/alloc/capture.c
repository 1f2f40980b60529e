// SPDX-License-Identifier: MIT
// capture.c: writer of captured graphs, in the format that src/cli/ggraph.c reads: a header, then one line a tensor. A file
// appears whole under its final name or not at all.

#include "alloc/capture.h"

#include "ggml-backend.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static atomic_bool is_broken; // something went wrong once
static atomic_uint n_files;   // for names of unfinished files

// ---- text ----

// Ids follow the lines: nodes, leafs that are listed once, the rest. ids[row], -1: another row stands for it.
static int32_t *make_ids(const struct record *rec, int32_t *n_leafs) {
    int32_t *ids = berth_malloc(((size_t) rec->n_rows + 1) * sizeof *ids);
    int32_t n    = rec->n_nodes;
    *n_leafs     = 0;
    for (int32_t r = 0; ids != NULL && r < rec->n_rows; r++) {
        const bool is_leaf = r >= rec->n_nodes && r < rec->n_nodes + rec->n_leafs;
        ids[r]             = r < rec->n_nodes ? r : rec->rows[r].same_as == r ? n++ : -1;
        *n_leafs += is_leaf && ids[r] >= 0;
    }
    return ids;
}

static void write_header(
    const struct ggml_gallocr *galloc, const struct galloc_plan *plan, const int32_t *ids, int32_t n_leafs, FILE *f) {
    const struct record *rec = &plan->rec;
    const int32_t n_other    = rec->n_rows - rec->n_nodes - rec->n_leafs;
    fprintf(f, "source berth %s\nggml %s %s\ncounts nodes=%d leafs=%d other=%d bufs=%d\n", berth_version(), ggml_version(),
        ggml_commit(), rec->n_nodes, n_leafs, n_other, galloc->n_bufs);
    for (int b = 0; b < galloc->n_bufs; b++) {
        int same_as = 0;
        while (galloc->pool_of[same_as] != galloc->pool_of[b]) {
            same_as++;
        }
        const struct galloc_pool *pool = &galloc->pools[galloc->pool_of[b]];
        const struct galloc_need *need = &plan->needs[galloc->pool_of[b]];
        const char *name               = ggml_backend_buft_name(pool->buft);
        size_t size                    = 0;
        for (size_t c = 0; c < need->n && same_as == b; c++) {
            size += need->sizes[c];
        }
        fprintf(f, "buf %d %s align=%zu max=%zu same_as=%d ggml_size=%zu\n", b, name != NULL ? name : "-", pool->align,
            pool->max_chunk != 0 ? pool->max_chunk : SIZE_MAX, same_as, size);
    }
    for (int32_t i = 0; i < rec->n_leafs && rec->n_twice > 0; i++) {
        const struct record_row *row = &rec->rows[rec->n_nodes + i];
        fprintf(f, "%s%d:%d%s", i == 0 ? "leaforder " : ",", ids[row->same_as], row->id, i + 1 == rec->n_leafs ? "\n" : "");
    }
    fputs(
        "columns id kind op type ne nb nbytes alloc_size view_src view_offs flags ext buf ggml_chunk ggml_offset srcs name\n", f);
}

static void write_word(const char *text, FILE *f) {
    for (const char *p = text[0] != '\0' ? text : "-"; *p != '\0'; p++) {
        fputc(isspace((unsigned char) *p) || iscntrl((unsigned char) *p) ? '_' : *p, f);
    }
}

static void write_op(const struct ggml_tensor *t, FILE *f) {
    fprintf(f, "%s%s", t->op == GGML_OP_UNARY ? "UNARY:" : t->op == GGML_OP_GLU ? "GLU:" : "", ggml_op_desc(t));
}

static void write_tensor(
    const struct ggml_gallocr *galloc, const struct galloc_plan *plan, const int32_t *ids, int32_t r, FILE *f) {
    const struct record *rec     = &plan->rec;
    const struct record_row *row = &rec->rows[r];
    const struct ggml_tensor *t  = rec->tensors[r];
    const int32_t buf            = row->buf >= 0 ? row->buf : 0;
    fprintf(f, "%d %c ", ids[r], r < rec->n_nodes ? 'N' : r < rec->n_nodes + rec->n_leafs ? 'L' : 'X');
    write_op(t, f);
    fprintf(f, " %s %" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 " %zu,%zu,%zu,%zu %zu %zu %d %zu ", ggml_type_name(t->type),
        t->ne[0], t->ne[1], t->ne[2], t->ne[3], t->nb[0], t->nb[1], t->nb[2], t->nb[3], ggml_nbytes(t),
        ggml_backend_buft_get_alloc_size(galloc->pools[galloc->pool_of[buf]].buft, t),
        row->view_src >= 0 ? ids[rec->rows[row->view_src].same_as] : -1, t->view_offs);
    const struct {
        int32_t flag;
        char letter;
    } flags[]   = {{GGML_TENSOR_FLAG_INPUT, 'i'}, {GGML_TENSOR_FLAG_OUTPUT, 'o'}, {GGML_TENSOR_FLAG_PARAM, 'p'},
          {GGML_TENSOR_FLAG_LOSS, 'l'}};
    int n_flags = 0;
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
        if ((t->flags & flags[i].flag) != 0) {
            fputc(flags[i].letter, f);
            n_flags++;
        }
    }
    fprintf(f, "%s %d %d ", n_flags == 0 ? "-" : "", row->has_memory, row->id);
    if (row->item >= 0) {
        fprintf(f, "%d %zu ", plan->spots[row->item].chunk, plan->spots[row->item].off);
    } else {
        fputs("-1 -1 ", f);
    }
    for (int k = 0; k < row->n_src; k++) {
        fprintf(f, "%s%d", k > 0 ? "," : "", ids[rec->rows[rec->srcs[row->src + k]].same_as]);
    }
    fputs(row->n_src == 0 ? "- " : " ", f);
    write_word(t->name, f);
    fputc('\n', f);
}

// ---- files ----

static uint64_t hash_text(const char *p, size_t n) {
    uint64_t h = 0xCBF29CE484222325u;
    for (size_t i = 0; i < n; i++) {
        h = (h ^ (uint8_t) p[i]) * 0x100000001B3u;
    }
    return h;
}

static bool write_file(const char *dir, const char *text, size_t size) {
    char name[32], path[4096], part[4096];
    snprintf(name, sizeof name, "graph-%016" PRIx64, hash_text(text, size));
    if ((size_t) snprintf(path, sizeof path, "%s/%s.ggraph", dir, name) >= sizeof path ||
        (size_t) snprintf(part, sizeof part, "%s/.%s.%ld.%u", dir, name, (long) getpid(), atomic_fetch_add(&n_files, 1)) >=
            sizeof part) {
        errno = ENAMETOOLONG;
        return false;
    }
    if (access(path, F_OK) == 0) {
        return true;
    }
    FILE *f = fopen(part, "wx");
    if (f == NULL) {
        return false;
    }
    bool ok = fprintf(f, "ggraph 1\nname %s\n", name) > 0 && fwrite(text, 1, size, f) == size;
    ok      = fclose(f) == 0 && ok && rename(part, path) == 0;
    if (!ok) {
        const int why = errno;
        unlink(part);
        errno = why;
    }
    return ok;
}

static bool capture(const char *dir, const struct ggml_gallocr *galloc, const struct galloc_plan *plan) {
    char *text  = NULL;
    size_t size = 0;
    int32_t n_leafs;
    int32_t *ids = make_ids(&plan->rec, &n_leafs);
    FILE *f      = ids != NULL ? open_memstream(&text, &size) : NULL;
    if (f == NULL) {
        berth_free(ids);
        errno = ENOMEM;
        return false;
    }
    write_header(galloc, plan, ids, n_leafs, f);
    for (int32_t r = 0; r < plan->rec.n_rows; r++) {
        if (ids[r] >= 0) {
            write_tensor(galloc, plan, ids, r, f);
        }
    }
    const bool is_whole = !ferror(f);
    const bool ok       = fclose(f) == 0 && is_whole && write_file(dir, text, size);
    free(text); // of open_memstream
    berth_free(ids);
    return ok;
}

static const char *capture_dir(void) {
    const char *dir = getenv("BERTH_CAPTURE");
    return dir != NULL && dir[0] != '\0' ? dir : NULL;
}

bool berth_capture_is_on(void) {
    return capture_dir() != NULL;
}

void berth_capture(const struct ggml_gallocr *galloc, const struct galloc_plan *plan) {
    const char *dir = galloc->has_capture ? capture_dir() : NULL;
    if (dir == NULL || atomic_load(&is_broken)) {
        return;
    }
    if (!capture(dir, galloc, plan) && !atomic_exchange(&is_broken, true)) {
        berth_log(GGML_LOG_LEVEL_WARN, "BERTH_CAPTURE: graphs cannot be written to %s: %s\n", dir, strerror(errno));
    }
}
