// SPDX-License-Identifier: MIT
// ggraph.h: reads a captured graph (.ggraph, .ggraph.gz through gzip) as ops for the order pass, by ggml's rules of memory: what
// is a view, what writes, what may run in place, what is kept. For benchmarks; trusts the file.
#pragma once

#include "berth.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct ggraph {
    struct berth_order_op *ops;
    int32_t n_ops, n_nodes;
    bool is_split; // over several buffers: copies between them have no edges, so the scheduler's order is the only one
    int32_t (*srcs)[16];
};

struct ggraph_row {
    char kind, op[48], type[16], shape[2][128], flags[8];
    uint64_t size;
    int32_t view_src, ext, buf, n_srcs;
};

static inline bool ggraph_is_in(const char *op, const char *const *names) {
    for (; *names != NULL; names++) {
        if (strcmp(op, *names) == 0) {
            return true;
        }
    }
    return false;
}

// ggml's own list; CLAMP is newer than the rest.
static inline bool ggraph_can_inplace(const char *op) {
    static const char *const names[] = {"SCALE", "DIAG_MASK_ZERO", "DIAG_MASK_INF", "ADD", "ADD_ID", "ADD1", "SUB", "MUL", "DIV",
        "SQR", "SQRT", "LOG", "ROPE", "ROPE_BACK", "SILU_BACK", "RMS_NORM", "RMS_NORM_BACK", "SOFT_MAX", "SOFT_MAX_BACK", NULL};
    return strncmp(op, "UNARY:", 6) == 0 || ggraph_is_in(op, names);
}

static inline bool ggraph_is_view(const char *op) {
    static const char *const names[] = {"NONE", "VIEW", "RESHAPE", "PERMUTE", "TRANSPOSE", NULL};
    return ggraph_is_in(op, names);
}

static inline void ggraph_free(struct ggraph *g) {
    free(g->ops);
    free(g->srcs);
    *g = (struct ggraph){0};
}

// What stays to the end by ggml's rules: outputs, results that nobody reads, and memory with a view that nobody reads.
static inline void ggraph_mark_kept(struct ggraph *g) {
    bool *is_read = calloc((size_t) g->n_ops, sizeof *is_read);
    for (int32_t i = 0; is_read != NULL && i < g->n_ops; i++) {
        for (int32_t k = 0; k < g->ops[i].n_srcs; k++) {
            is_read[g->ops[i].srcs[k]] = true;
        }
    }
    for (int32_t i = 0; is_read != NULL && i < g->n_ops; i++) {
        g->ops[i].flags |= is_read[i] ? 0 : (uint32_t) BERTH_ORDER_OUTPUT;
    }
    free(is_read);
}

static inline void ggraph_row_to_op(
    struct ggraph *g, const struct ggraph_row *rows, int32_t i, const uint64_t *align, bool clamp) {
    const struct ggraph_row *row = &rows[i];
    struct berth_order_op *op    = &g->ops[i];
    *op                          = (struct berth_order_op){.srcs = g->srcs[i], .n_srcs = row->n_srcs, .view_of = row->view_src};
    op->pool                     = row->buf < 0 ? 0 : row->buf;
    op->align                    = align[op->pool];
    const bool is_own            = row->view_src < 0 && !row->ext;
    op->size                     = is_own ? (row->size + op->align - 1) / op->align * op->align : 0;
    op->flags |= row->kind != 'N' || strchr(row->flags, 'i') != NULL ? BERTH_ORDER_INPUT : 0;
    op->flags |= strchr(row->flags, 'o') != NULL ? BERTH_ORDER_OUTPUT : 0;
    if (row->kind == 'N' && row->view_src >= 0 && !ggraph_is_view(row->op)) {
        op->flags |= BERTH_ORDER_WRITES;
    } else if (row->kind == 'N' && row->ext && !ggraph_is_view(row->op)) {
        op->flags |= BERTH_ORDER_EFFECT;
    }
    if (ggraph_can_inplace(row->op) || (clamp && strcmp(row->op, "CLAMP") == 0)) {
        for (int32_t k = 0; k < row->n_srcs; k++) {
            const struct ggraph_row *src = &rows[g->srcs[i][k]];
            if (strcmp(src->type, row->type) == 0 && strcmp(src->shape[0], row->shape[0]) == 0 &&
                strcmp(src->shape[1], row->shape[1]) == 0) {
                op->inplace |= (uint64_t) 1 << k;
            }
        }
    }
}

static inline bool ggraph_read(const char *path, struct ggraph *g) {
    char command[1024], line[8192];
    uint64_t align[64]      = {[0] = 1};
    struct ggraph_row *rows = NULL;
    bool clamp              = false;
    snprintf(command, sizeof command, "gzip -dcf -- '%s'", path);
    *g         = (struct ggraph){0};
    FILE *file = popen(command, "r");
    if (file == NULL) {
        return false;
    }
    int n_nodes = 0, n_leafs = 0, n_other = 0, n_bufs = 0, n = 0;
    while (fgets(line, sizeof line, file) != NULL) {
        char srcs[1024], nbytes[32];
        int buf, id;
        unsigned long long a, size;
        if (strncmp(line, "counts ", 7) == 0) {
            sscanf(line, "counts nodes=%d leafs=%d other=%d bufs=%d", &n_nodes, &n_leafs, &n_other, &n_bufs);
            g->is_split = n_bufs > 1;
            g->n_nodes  = n_nodes;
            g->n_ops    = n_nodes + n_leafs + n_other;
            rows        = calloc((size_t) g->n_ops + 1, sizeof *rows);
            g->ops      = calloc((size_t) g->n_ops + 1, sizeof *g->ops);
            g->srcs     = calloc((size_t) g->n_ops + 1, sizeof *g->srcs);
        } else if (strncmp(line, "ggml 0.25", 9) == 0) {
            clamp = true;
        } else if (sscanf(line, "buf %d %*s align=%llu", &buf, &a) == 2 && buf < 64) {
            align[buf] = a;
        } else if (line[0] >= '0' && line[0] <= '9' && rows != NULL && n < g->n_ops) {
            struct ggraph_row *row = &rows[n];
            if (sscanf(line, "%d %c %47s %15s %127s %127s %31s %llu %d %*s %7s %d %d %*s %*s %1023s", &id, &row->kind, row->op,
                    row->type, row->shape[0], row->shape[1], nbytes, &size, &row->view_src, row->flags, &row->ext, &row->buf,
                    srcs) != 13) {
                continue;
            }
            row->size = size;
            for (char *p = srcs; *p != '-' && *p != '\0' && row->n_srcs < 16;) {
                g->srcs[n][row->n_srcs++] = (int32_t) strtol(p, &p, 10);
                p += *p == ',';
            }
            n++;
        }
    }
    const bool ok = pclose(file) == 0 && rows != NULL && n == g->n_ops;
    for (int32_t i = 0; ok && i < n; i++) {
        ggraph_row_to_op(g, rows, i, align, clamp);
    }
    free(rows);
    if (!ok) {
        ggraph_free(g);
        return false;
    }
    ggraph_mark_kept(g);
    return true;
}
