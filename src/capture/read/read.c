// SPDX-License-Identifier: MIT
// read.c: reads captured graphs (format: capture/capture.h). All tensors are created before references are resolved, because a
// line may refer to later tensors. Memory grows with the lines read, so a false count in the header cannot force a large
// allocation.

#include "capture/ggraph.h"

#include "base/min.h"
#include "capture/read/reader.h"
#include "core/graph.h"
#include "core/op.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE_FIELDS 20
#define CTX_TENSORS 1024 // tensors of one context

// ---- names of ops and types ----

// UNARY:SILU and GLU:SWIGLU name the variant of an op, which is stored in the tensor's first parameter.
static void op_set(struct ggml_tensor *t, const char *name) {
    t->op = GGML_OP_CUSTOM; // an unknown op name, from another ggml version, becomes a custom op
    for (int i = 0; i < GGML_OP_COUNT; i++) {
        if (strcmp(ggml_op_name((enum ggml_op) i), name) == 0) {
            t->op = (enum ggml_op) i;
        }
    }
    if (strncmp(name, "UNARY:", 6) == 0) {
        t->op = GGML_OP_UNARY;
        for (int i = 0; i < GGML_UNARY_OP_COUNT; i++) {
            if (strcmp(ggml_unary_op_name((enum ggml_unary_op) i), name + 6) == 0) {
                t->op_params[0] = i;
            }
        }
    }
    if (strncmp(name, "GLU:", 4) == 0) {
        t->op = GGML_OP_GLU;
        for (int i = 0; i < GGML_GLU_OP_COUNT; i++) {
            if (strcmp(ggml_glu_op_name((enum ggml_glu_op) i), name + 4) == 0) {
                t->op_params[0] = i;
            }
        }
    }
}

static enum ggml_type type_by_name(const char *name) {
    for (int i = 0; i < GGML_TYPE_COUNT; i++) {
        if (ggml_blck_size((enum ggml_type) i) > 0 && strcmp(ggml_type_name((enum ggml_type) i), name) == 0) {
            return (enum ggml_type) i;
        }
    }
    return GGML_TYPE_COUNT;
}

// ---- buffer types with the recorded alignment and size ----

static const char *buft_name(ggml_backend_buffer_type_t buft) {
    return ((const struct ggraph_buf *) buft->context)->name;
}

static size_t buft_align(ggml_backend_buffer_type_t buft) {
    return ((const struct ggraph_buf *) buft->context)->align;
}

static size_t buft_max(ggml_backend_buffer_type_t buft) {
    return ((const struct ggraph_buf *) buft->context)->max_size;
}

static ggml_backend_buffer_t buft_refuse(ggml_backend_buffer_type_t buft, size_t size) {
    (void) size;
    berth_fail(
        GGML_STATUS_FAILED, "%s is a recorded buffer type: Berth can plan for it, but cannot allocate it", buft_name(buft));
    return NULL;
}

void ggraph_bufts(struct ggraph *g, ggml_backend_buffer_type_t *types) {
    for (int i = 0; i < g->n_bufs; i++) {
        types[i] = &g->bufts[g->bufs[i].same_as];
    }
}

static enum ggml_status read_buf(struct ggraph_reader *r, char **f, int n) {
    struct ggraph *g = r->g;
    if (n < 7) {
        return ggraph_refuse(r, "a buffer line requires id, name, align, max, same_as and ggml_size");
    }
    struct ggraph_buf *bufs = berth_realloc(g->bufs, (size_t) (g->n_bufs + 1) * sizeof *bufs);
    if (bufs == NULL) {
        return berth_fail(GGML_STATUS_ALLOC_FAILED, "out of memory for %d buffers", g->n_bufs + 1);
    }
    g->bufs = bufs;
    struct ggraph_buf *buf = &bufs[g->n_bufs];
    const size_t same_as = ggraph_value(f[5], "same_as");

    *buf = (struct ggraph_buf){.align = ggraph_value(f[3], "align"),
        .max_size = ggraph_value(f[4], "max"),
        .same_as = (int) same_as,
        .ggml_size = ggraph_value(f[6], "ggml_size")};
    snprintf(buf->name, sizeof buf->name, "%s", f[2]);
    if (buf->align == 0 || buf->align > (size_t) 1 << 30 || same_as > (size_t) g->n_bufs) {
        return ggraph_refuse(r, "a buffer's alignment or same_as is out of range");
    }
    g->n_bufs++;
    return GGML_STATUS_SUCCESS;
}

static enum ggml_status make_bufts(struct ggraph_reader *r) {
    struct ggraph *g = r->g;
    g->bufts = berth_calloc((size_t) g->n_bufs, sizeof g->bufts[0]);
    if (g->n_bufs == 0 || g->bufts == NULL) {
        return ggraph_refuse(r, "the header has no line 'buf'");
    }
    for (int i = 0; i < g->n_bufs; i++) {
        g->bufts[i] = (struct ggml_backend_buffer_type){
            .iface = {.get_name = buft_name, .alloc_buffer = buft_refuse, .get_alignment = buft_align, .get_max_size = buft_max},
            .context = &g->bufs[i]};
    }
    return GGML_STATUS_SUCCESS;
}

// ---- header ----

static enum ggml_status read_counts(struct ggraph_reader *r, char **f, int n) {
    const size_t nodes = n > 1 ? ggraph_value(f[1], "nodes") : SIZE_MAX, leafs = n > 2 ? ggraph_value(f[2], "leafs") : SIZE_MAX,
                 other = n > 3 ? ggraph_value(f[3], "other") : SIZE_MAX;
    if (nodes > 1 << 28 || leafs > 1 << 28 || other > 1 << 28) {
        return ggraph_refuse(r, "the line 'counts' requires nodes=N leafs=N other=N bufs=N");
    }
    r->n_nodes = (int64_t) nodes;
    r->n_leafs = (int64_t) leafs;
    r->n_other = (int64_t) other;
    return GGML_STATUS_SUCCESS;
}

static enum ggml_status read_header(struct ggraph_reader *r) {
    enum ggml_status status = GGML_STATUS_SUCCESS;
    (void) ggraph_line(r); // the caller has checked the first line
    r->n_nodes = -1;
    while (status == GGML_STATUS_SUCCESS) {
        char *f[LINE_FIELDS];
        if (!ggraph_line(r)) {
            return ggraph_no_line(r, "ends in its header");
        }
        if (strncmp(r->line, "leaforder ", 10) == 0) {
            berth_free(r->leaf_order);
            const size_t size = strlen(r->line + 10) + 1;
            r->leaf_order = berth_malloc(size);
            if (r->leaf_order == NULL) {
                return berth_fail(GGML_STATUS_ALLOC_FAILED, "out of memory for a line of %zu bytes", size);
            }
            memcpy(r->leaf_order, r->line + 10, size);
            continue;
        }
        const int n = ggraph_split(r->line, f, LINE_FIELDS);
        if (n > 1 && strcmp(f[0], "name") == 0) {
            snprintf(r->g->name, sizeof r->g->name, "%s", f[1]);
        } else if (n > 1 && strcmp(f[0], "ggml") == 0) {
            sscanf(f[1], "%d.%d.%d", &r->g->version[0], &r->g->version[1], &r->g->version[2]);
        } else if (n > 0 && strcmp(f[0], "counts") == 0) {
            status = read_counts(r, f, n);
        } else if (n > 0 && strcmp(f[0], "buf") == 0) {
            status = read_buf(r, f, n);
        } else if (n > 0 && strcmp(f[0], "columns") == 0) {
            r->g->has_items = n == 20 && strcmp(f[18], "item") == 0 && strcmp(f[19], "life") == 0;
            break;
        }
    }
    if (status != GGML_STATUS_SUCCESS) {
        return status;
    }
    return r->n_nodes < 0 ? ggraph_refuse(r, "the header has no line 'counts'") : make_bufts(r);
}

// ---- items ----

// Each line has the number of the tensor's item. One line of each item also has the item's lifetime. Each item must have exactly
// one lifetime. The cost is O(tensors).

static enum ggml_status item_read(struct ggraph_reader *r, int64_t id, const char *item, const char *life) {
    struct ggraph_place *place = &r->g->places[id];
    int64_t x[4];
    if (!ggraph_number(item, &place->item) || place->item < -1) {
        return ggraph_refuse(r, "item '%.32s' is not an integer >= -1", item);
    }
    if (strcmp(life, "-") == 0) {
        return GGML_STATUS_SUCCESS;
    }
    if (place->item < 0 || !ggraph_four(life, x) || x[1] < x[0] || x[2] > (int64_t) 1 << 62 || x[3] >= r->g->n_bufs) {
        return ggraph_refuse(r, "life '%.80s' is not FIRST,LAST,SIZE,BUFFER of an item", life);
    }
    const size_t n = (size_t) r->g->n_items + 1;
    if (!berth_grow((void **) &r->items_by_line, &r->items_by_line_cap, n, sizeof r->items_by_line[0])) {
        return berth_fail(GGML_STATUS_ALLOC_FAILED, "%s: out of memory for %zu items", r->path, n);
    }
    r->items_by_line[r->g->n_items++] =
        (struct ggraph_item){.first = x[0], .last = x[1], .size = (uint64_t) x[2], .buf = (int) x[3], .owner = id};
    return GGML_STATUS_SUCCESS;
}

// Sorts the items by their numbers. Requires that all lines are read.
static enum ggml_status items_sort(struct ggraph_reader *r, int64_t n_all) {
    struct ggraph *g = r->g;
    const int64_t first_line = r->i_line - n_all + 1; // one line per tensor
    g->items = berth_calloc((size_t) g->n_items + 1, sizeof g->items[0]);
    if (g->items == NULL) {
        return berth_fail(GGML_STATUS_ALLOC_FAILED, "%s: out of memory for %lld items", r->path, (long long) g->n_items);
    }
    for (int64_t i = 0; i < g->n_items; i++) {
        g->items[i].owner = -1;
    }
    for (int64_t i = 0; i < g->n_items; i++) {
        const int64_t item = g->places[r->items_by_line[i].owner].item;
        r->i_line = first_line + r->items_by_line[i].owner;
        if (item >= g->n_items || g->items[item].owner >= 0) {
            return ggraph_refuse(
                r, "item %lld of %lld has two lifetimes or is out of range", (long long) item, (long long) g->n_items);
        }
        g->items[item] = r->items_by_line[i];
    }
    for (int64_t i = 0; i < n_all; i++) {
        if (g->places[i].item >= g->n_items) {
            r->i_line = first_line + i;
            return ggraph_refuse(r, "item %lld has no lifetime", (long long) g->places[i].item);
        }
    }
    r->i_line = first_line + n_all - 1;
    return GGML_STATUS_SUCCESS;
}

// ---- edges ----

// A link is a reference to a viewed tensor or to a source. Nodes run in the order of their ids, so no source of a node is a later
// node. Real programs have two exceptions: a copy may be its own source, and a node of op NONE, which a scheduler adds, may have
// a later source. A chain of views must not be a cycle. The cost is O(tensors + sources).

// Reads the links of one tensor. Stores them as ids, because the tensors may not exist yet.
static enum ggml_status links_read(struct ggraph_reader *r, const char *view_src, const char *srcs) {
    const int64_t n_all = r->n_nodes + r->n_leafs + r->n_other;
    int64_t v;
    if (!berth_grow((void **) &r->links, &r->links_cap, r->n_links + 2 + GGML_MAX_SRC, sizeof r->links[0])) {
        return berth_fail(GGML_STATUS_ALLOC_FAILED, "out of memory for %zu edges", r->n_links);
    }
    if (!ggraph_number(view_src, &v) || v < -1 || v >= n_all) {
        return ggraph_refuse(r, "view_src '%.32s' is not the id of a tensor", view_src);
    }
    r->links[r->n_links++] = (int32_t) v;
    int32_t *n_srcs = &r->links[r->n_links++];

    *n_srcs = 0;
    for (const char *p = strcmp(srcs, "-") == 0 ? NULL : srcs; p != NULL; p = strchr(p, ','), p = p != NULL ? p + 1 : NULL) {
        if (*n_srcs == GGML_MAX_SRC || !ggraph_number(p, &v) || v < 0 || v >= n_all) {
            return ggraph_refuse(r, "srcs contains an unknown id or more than GGML_MAX_SRC ids");
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
        return ggraph_refuse(r, "node %lld is a view of the later node %d", (long long) id, view_src);
    }
    return GGML_STATUS_SUCCESS;
}

static enum ggml_status src_check(const struct ggraph_reader *r, int64_t id, int32_t src) {
    const enum ggml_op op = r->tensors[id]->op;
    if (id >= r->n_nodes) {
        return ggraph_refuse(r, "tensor %lld is not a node but has a source: tensor %d", (long long) id, src);
    }
    if (src == id && op != GGML_OP_CPY) {
        return ggraph_refuse(r, "node %lld (%s) is its own source, which only a copy may be", (long long) id, ggml_op_name(op));
    }
    if (src > id && src < r->n_nodes && op != GGML_OP_NONE) {
        return ggraph_refuse(r, "node %lld (%s) has the later node %d as source", (long long) id, ggml_op_name(op), src);
    }
    return GGML_STATUS_SUCCESS;
}

// Checks that every chain of views ends. Walk i follows the chain from tensor i and marks each tensor with the number of the
// walk. If a walk reaches a tensor with its own number, the chain is a cycle.
static enum ggml_status views_check(struct ggraph_reader *r, int64_t n_all, int64_t first_line) {
    int32_t *marks = berth_calloc((size_t) n_all + 1, sizeof marks[0]);
    if (marks == NULL) {
        return berth_fail(GGML_STATUS_ALLOC_FAILED, "out of memory for the marks of %lld tensors", (long long) n_all);
    }
    enum ggml_status status = GGML_STATUS_SUCCESS;
    int32_t *views = r->links; // links_set stored view_src of each tensor here
    for (int64_t i = 0; i < n_all && status == GGML_STATUS_SUCCESS; i++) {
        int32_t at = (int32_t) i;
        while (at >= 0 && marks[at] == 0) {
            marks[at] = (int32_t) i + 1;
            at = views[at];
        }
        if (at >= 0 && marks[at] == (int32_t) i + 1) {
            r->i_line = first_line + at;
            status =
                ggraph_refuse(r, "tensor %d is a view of tensor %d, and this chain of views leads back to it", at, views[at]);
        }
    }
    berth_free(marks);
    return status;
}

// Sets the sources and view sources of all tensors. Refuses links that no program can have. Requires that all lines are read.
// Overwrites r->links[i] with the view_src of tensor i.
static enum ggml_status links_set(struct ggraph_reader *r, int64_t n_all) {
    const int64_t first_line = r->i_line - n_all + 1; // one line per tensor
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
    return views_check(r, n_all, first_line);
}

// ---- tensors ----

static int32_t flags_of(const char *text) {
    int32_t flags = 0;
    flags |= strchr(text, 'i') != NULL ? GGML_TENSOR_FLAG_INPUT : 0;
    flags |= strchr(text, 'o') != NULL ? GGML_TENSOR_FLAG_OUTPUT : 0;
    flags |= strchr(text, 'p') != NULL ? GGML_TENSOR_FLAG_PARAM : 0;
    flags |= strchr(text, 'l') != NULL ? GGML_TENSOR_FLAG_LOSS : 0;
    return flags;
}

// NULL: out of memory.
static struct ggml_context *ctx_add(struct ggraph_reader *r, size_t size) {
    struct ggraph *g = r->g;
    if (!berth_grow((void **) &g->ctxs, &r->ctxs_cap, g->n_ctxs + 1, sizeof g->ctxs[0])) {
        return NULL;
    }
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){.mem_size = size, .no_alloc = true});
    if (ctx != NULL) {
        g->ctxs[g->n_ctxs++] = ctx;
    }
    return ctx;
}

// Creates the tensor with this id, which must be the next id. NULL: out of memory.
static struct ggml_tensor *tensor_new(struct ggraph_reader *r, int64_t id, enum ggml_type type) {
    const size_t n = (size_t) id + 1;
    if (!berth_grow((void **) &r->tensors, &r->tensors_cap, n, sizeof r->tensors[0]) ||
        !berth_grow((void **) &r->buf_ids, &r->buf_ids_cap, n, sizeof r->buf_ids[0]) ||
        !berth_grow((void **) &r->g->places, &r->places_cap, n, sizeof r->g->places[0]) ||
        (id % CTX_TENSORS == 0 && ctx_add(r, CTX_TENSORS * (ggml_tensor_overhead() + 16)) == NULL)) {
        return NULL;
    }
    struct ggml_tensor *t = ggml_new_tensor_1d(r->g->ctxs[r->g->n_ctxs - 1], type, 0);
    return berth_is_poison(t) ? NULL : t;
}

// Columns: id kind op type ne nb nbytes alloc_size view_src view_offs flags ext buf chunk offset srcs name; with has_items also
// item life.
static enum ggml_status read_tensor(struct ggraph_reader *r, int64_t id) {
    char *f[LINE_FIELDS];
    if (!ggraph_line(r)) {
        return ggraph_no_line(r, "ends before all tensors");
    }
    const int n = ggraph_split(r->line, f, LINE_FIELDS);
    int64_t ne[4], nb[4], number_id, view_offs, buf;
    struct ggraph_place place = {.item = -1};
    if (n < (r->g->has_items ? 19 : 16)) {
        return ggraph_refuse(r, "a tensor line requires %s fields, this line has %d", r->g->has_items ? "19" : "16 or 17", n);
    }
    if (!ggraph_number(f[0], &number_id) || number_id != id) {
        return ggraph_refuse(r, "id '%.32s' is not %lld: ids must be consecutive", f[0], (long long) id);
    }
    const enum ggml_type type = type_by_name(f[3]);
    if (type == GGML_TYPE_COUNT) {
        return ggraph_refuse(r, "unknown tensor type '%.32s'", f[3]);
    }
    if (!ggraph_four(f[4], ne) || !ggraph_four(f[5], nb)) {
        return ggraph_refuse(r, "extents '%.80s' or strides '%.80s' are not four integers >= 0", f[4], f[5]);
    }
    if (!ggraph_number(f[9], &view_offs) || view_offs < 0) {
        return ggraph_refuse(r, "view_offs '%.32s' is not an integer >= 0", f[9]);
    }
    if (!ggraph_number(f[12], &buf) || buf < -1 || buf >= r->g->n_bufs) {
        return ggraph_refuse(r, "buf '%.32s' is not an integer from -1 to %d", f[12], r->g->n_bufs - 1);
    }
    if (!ggraph_number(f[13], &place.chunk) || !ggraph_number(f[14], &place.offset)) {
        return ggraph_refuse(r, "chunk '%.32s' or offset '%.32s' is not an integer", f[13], f[14]);
    }
    struct ggml_tensor *t = tensor_new(r, id, type);
    if (t == NULL) {
        return berth_fail(GGML_STATUS_ALLOC_FAILED, "%s: out of memory for %lld tensors", r->path, (long long) id + 1);
    }
    for (int i = 0; i < GGML_MAX_DIMS; i++) {
        t->ne[i] = ne[i];
        t->nb[i] = (size_t) nb[i];
    }
    op_set(t, f[2]);
    t->view_offs = (size_t) view_offs;
    t->flags = flags_of(f[10]) | GGML_TENSOR_FLAG_COMPUTE;
    t->data = f[11][0] == '1' ? t : NULL; // not NULL: the program owns the memory; the address is never used
    ggml_set_name(t, n > 16 ? f[16] : "");
    t->extra = (void *) (intptr_t) (id + 1);
    place.tensor = t;
    place.buf = (int) buf;
    r->tensors[id] = t;
    r->g->places[id] = place;
    r->buf_ids[id] = (int32_t) max_i64(buf, 0);
    const enum ggml_status status = links_read(r, f[8], f[15]);
    if (status != GGML_STATUS_SUCCESS || !r->g->has_items) {
        return status;
    }
    return item_read(r, id, f[17], f[18]);
}

// Sets the leafs of the graph from the line leaforder, "id:buf,id:buf,...". A file has this line if the graph lists a tensor
// twice, for example as a node and as a leaf, because the tensor then has only one line.
static enum ggml_status order_leafs(struct ggraph_reader *r, int64_t n_all) {
    struct ggml_cgraph *graph = r->g->graph;
    int n = 0;
    for (char *p = r->leaf_order; p != NULL; p = strchr(p, ',') != NULL ? strchr(p, ',') + 1 : NULL) {
        int64_t id, buf;
        const char *colon = strchr(p, ':');
        if (!ggraph_number(p, &id) || id < 0 || id >= n_all || colon == NULL || !ggraph_number(colon + 1, &buf) || buf < 0 ||
            buf >= r->g->n_bufs) {
            return berth_fail(GGML_STATUS_FAILED, "%s: leaforder contains an unknown tensor or buffer", r->path);
        }
        int *bufs = berth_realloc(r->g->leaf_bufs, (size_t) (n + 1) * sizeof *bufs);
        if (bufs != NULL) {
            r->g->leaf_bufs = bufs;
        }
        if (bufs == NULL || n >= graph->size) {
            return berth_fail(
                GGML_STATUS_FAILED, "%s: leaforder has %d leafs, but the graph can hold %d", r->path, n + 1, graph->size);
        }
        bufs[n] = (int) buf;
        graph->leafs[n++] = r->tensors[id];
    }
    graph->n_leafs = n;
    return GGML_STATUS_SUCCESS;
}

static enum ggml_status graph_make(struct ggraph_reader *r) {
    struct ggraph *g = r->g;
    const size_t n_order = r->leaf_order != NULL ? strlen(r->leaf_order) / 3 + 1 : 0;
    const size_t size = (size_t) (r->n_nodes + r->n_leafs) + n_order + 1;
    struct ggml_context *ctx = ctx_add(r, ggml_graph_overhead_custom(size, false));
    struct ggml_cgraph *graph = ctx != NULL ? ggml_new_graph_custom(ctx, size, false) : NULL;
    g->graph = graph;
    g->node_bufs = berth_calloc((size_t) r->n_nodes + 1, sizeof(int));
    g->leaf_bufs = berth_calloc((size_t) r->n_leafs + 1, sizeof(int));
    if (graph == NULL || g->node_bufs == NULL || g->leaf_bufs == NULL) {
        return berth_fail(GGML_STATUS_ALLOC_FAILED, "%s: out of memory for a graph of %zu tensors", r->path, size);
    }
    graph->n_nodes = (int) r->n_nodes;
    graph->n_leafs = (int) r->n_leafs;
    for (int64_t i = 0; i < r->n_nodes; i++) {
        graph->nodes[i] = r->tensors[i];
        g->node_bufs[i] = r->buf_ids[i];
    }
    for (int64_t i = 0; i < r->n_leafs; i++) {
        graph->leafs[i] = r->tensors[r->n_nodes + i];
        g->leaf_bufs[i] = r->buf_ids[r->n_nodes + i];
    }
    return GGML_STATUS_SUCCESS;
}

static enum ggml_status read_body(struct ggraph_reader *r) {
    const int64_t n_all = r->n_nodes + r->n_leafs + r->n_other;
    r->g->n_places = n_all;
    for (int64_t i = 0; i < n_all; i++) {
        const enum ggml_status status = read_tensor(r, i);
        if (status != GGML_STATUS_SUCCESS) {
            return status;
        }
    }
    if (ggraph_line(r)) {
        return ggraph_refuse(r, "unexpected line after the %lld tensors of 'counts'", (long long) n_all);
    }
    enum ggml_status status = r->status;
    if (status != GGML_STATUS_SUCCESS) {
        return status;
    }
    if (r->g->has_items) {
        status = items_sort(r, n_all);
        if (status != GGML_STATUS_SUCCESS) {
            return status;
        }
    }
    status = links_set(r, n_all);
    if (status != GGML_STATUS_SUCCESS) {
        return status;
    }
    status = graph_make(r);
    if (status != GGML_STATUS_SUCCESS || r->leaf_order == NULL) {
        return status;
    }
    return order_leafs(r, n_all);
}

enum ggml_status ggraph_read(struct ggraph *g, const char *path) {
    *g = (struct ggraph){0};
    struct ggraph_reader r = {.g = g, .path = path};
    enum ggml_status status = ggraph_text_open(&r);
    if (status == GGML_STATUS_SUCCESS) {
        status = read_header(&r);
    }
    if (status == GGML_STATUS_SUCCESS) {
        status = read_body(&r);
    }
    ggraph_text_close(&r);
    berth_free(r.tensors);
    berth_free(r.buf_ids);
    berth_free(r.links);
    berth_free(r.leaf_order);
    berth_free(r.items_by_line);
    if (status != GGML_STATUS_SUCCESS) {
        ggraph_free(g);
    }
    return status;
}

void ggraph_free(struct ggraph *g) {
    for (size_t i = 0; i < g->n_ctxs; i++) {
        ggml_free(g->ctxs[i]);
    }
    berth_free(g->ctxs);
    berth_free(g->node_bufs);
    berth_free(g->leaf_bufs);
    berth_free(g->bufs);
    berth_free(g->bufts);
    berth_free(g->places);
    berth_free(g->items);
    *g = (struct ggraph){0};
}

bool ggraph_in_place(const struct ggml_tensor *node, int i_src, void *user) {
    const struct ggraph *g = user;
    (void) i_src;
    return node->op == GGML_OP_CLAMP && (g->version[0] > 0 || g->version[1] >= 25);
}
