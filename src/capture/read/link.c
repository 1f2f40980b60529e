// SPDX-License-Identifier: MIT
// link.c: what the tensors of a captured graph name: the tensor whose memory they show, and their sources.
// Nodes run in the order of their ids, so a node reads tensors before it, leafs and tensors from outside. Two exceptions, which
// real programs have: a copy names its own result as the place to copy to, and a node that computes nothing (NONE, put in by
// schedulers) names a node that it only has to come before. On success every chain of views ends. O(tensors + sources).

#include "capture/read/reader.h"

#include <string.h>

enum ggml_status ggraph_link_read(struct ggraph_reader *r, const char *view_src, const char *srcs) {
    const int64_t n_all = r->n_nodes + r->n_leafs + r->n_other;
    int64_t v;
    if (!berth_grow((void **) &r->links, &r->links_cap, r->n_links + 2 + GGML_MAX_SRC, sizeof r->links[0])) {
        return berth_fail(GGML_STATUS_ALLOC_FAILED, "out of memory for %zu edges", r->n_links);
    }
    if (!ggraph_number(view_src, &v) || v < -1 || v >= n_all) {
        return ggraph_refuse(r, "view_src names no tensor");
    }
    r->links[r->n_links++] = (int32_t) v;
    int32_t *n_srcs = &r->links[r->n_links++];

    *n_srcs = 0;
    for (const char *p = strcmp(srcs, "-") == 0 ? NULL : srcs; p != NULL; p = strchr(p, ','), p = p != NULL ? p + 1 : NULL) {
        if (*n_srcs == GGML_MAX_SRC || !ggraph_number(p, &v) || v < 0 || v >= n_all) {
            return ggraph_refuse(r, "srcs names no tensor, or too many");
        }
        r->links[r->n_links++] = (int32_t) v;
        (*n_srcs)++;
    }
    return GGML_STATUS_SUCCESS;
}

static enum ggml_status view_check(const struct ggraph_reader *r, int64_t id, int32_t view_src) {
    if (view_src == id) {
        return ggraph_refuse(r, "tensor %lld is a view of itself", (long long) id);
    }
    if (id < r->n_nodes && view_src > id && view_src < r->n_nodes) {
        return ggraph_refuse(r, "node %lld is a view of node %d, which comes later", (long long) id, view_src);
    }
    return GGML_STATUS_SUCCESS;
}

static enum ggml_status src_check(const struct ggraph_reader *r, int64_t id, int32_t src) {
    const enum ggml_op op = r->tensors[id]->op;
    if (id >= r->n_nodes) {
        return ggraph_refuse(r, "tensor %lld is no node, and yet has a source, tensor %d", (long long) id, src);
    }
    if (src == id && op != GGML_OP_CPY) {
        return ggraph_refuse(r, "node %lld, %s, is its own source: only a copy may be", (long long) id, ggml_op_name(op));
    }
    if (src > id && src < r->n_nodes && op != GGML_OP_NONE) {
        return ggraph_refuse(r, "node %lld, %s, has node %d as source, which comes later", (long long) id, ggml_op_name(op), src);
    }
    return GGML_STATUS_SUCCESS;
}

// Does every chain of views end? Each walk leaves its number on the tensors it passes and stops at those of an earlier one, which
// ended; a tensor with the walk's own number closes a circle.
static enum ggml_status views_end(struct ggraph_reader *r, int64_t n_all, int64_t first_line) {
    int32_t *marks = berth_calloc((size_t) n_all + 1, sizeof marks[0]);
    if (marks == NULL) {
        return berth_fail(GGML_STATUS_ALLOC_FAILED, "out of memory for the marks of %lld tensors", (long long) n_all);
    }
    enum ggml_status status = GGML_STATUS_SUCCESS;
    int32_t *views = r->links; // gathered at the front of what is not needed any more
    for (int64_t i = 0; i < n_all && status == GGML_STATUS_SUCCESS; i++) {
        int32_t at = (int32_t) i;
        while (at >= 0 && marks[at] == 0) {
            marks[at] = (int32_t) i + 1;
            at = views[at];
        }
        if (at >= 0 && marks[at] == (int32_t) i + 1) {
            r->i_line = first_line + at;
            status = ggraph_refuse(r, "tensor %d is a view of tensor %d, and so on, of itself in the end", at, views[at]);
        }
    }
    berth_free(marks);
    return status;
}

enum ggml_status ggraph_link_all(struct ggraph_reader *r, int64_t n_all) {
    const int64_t first_line = r->i_line - n_all + 1; // a line a tensor
    size_t at = 0;
    for (int64_t i = 0; i < n_all; i++) {
        struct ggml_tensor *t = r->tensors[i];
        const int32_t view_src = r->links[at++], n_srcs = r->links[at++];
        r->i_line = first_line + i;
        enum ggml_status status = view_check(r, i, view_src);
        for (int32_t k = 0; k < n_srcs && status == GGML_STATUS_SUCCESS; k++) {
            const int32_t src = r->links[at++];
            t->src[k] = r->tensors[src];
            status = src_check(r, i, src);
        }
        if (status != GGML_STATUS_SUCCESS) {
            return status;
        }
        t->view_src = view_src >= 0 ? r->tensors[view_src] : NULL;
        r->links[i] = view_src;
    }
    return views_end(r, n_all, first_line);
}
