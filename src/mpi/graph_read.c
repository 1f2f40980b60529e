// SPDX-License-Identifier: MIT
// graph_read.c: a graph of bytes that may be anything. What is not checked here is not relied on: types and ops are known ones,
// sources stand before what reads them, each tensor lies in a buffer of the device with all its bytes, aligned for its numbers,
// and each node has the shapes that its op requires (berth_op_shape_holds).

#include "mpi/wire.h"

#include "core/span.h"

#include <string.h>

#define TENSORS_MAX ((size_t) 1 << 20)

// What its numbers are loaded as.
static size_t alignment_of(enum ggml_type type) {
    const size_t size = ggml_type_size(type);
    if (ggml_blck_size(type) == 1) {
        return size;
    }
    if (size % 4 == 0) {
        return 4;
    }
    return size % 2 == 0 ? 2 : 1;
}

struct reading {
    const struct mpi_wire_memory *memory;
    struct ggml_tensor **tensors; // those read so far
    struct berth_span_reserve room;
    char *why;
    size_t why_size, i; // the tensor that is being read
};

static bool reading_refuse(struct reading *r, const char *what, long long number) {
    snprintf(r->why, r->why_size, "tensor %zu: %s (%lld)", r->i, what, number);
    return false;
}

static bool header_is_sound(struct reading *r, const struct mpi_wire_tensor *w) {
    if (w->type >= GGML_TYPE_COUNT || ggml_blck_size((enum ggml_type) w->type) <= 0 ||
        ggml_type_size((enum ggml_type) w->type) == 0) {
        return reading_refuse(r, "there is no such type", w->type);
    }
    if (w->op >= GGML_OP_COUNT || w->flags > 31 || w->is_node > 1) {
        return reading_refuse(r, "there is no such op, flag or node", w->op);
    }
    const size_t align = alignment_of((enum ggml_type) w->type);
    for (int i = 0; i < GGML_MAX_DIMS; i++) {
        if (w->ne[i] < 0 || w->ne[i] > (int64_t) 1 << 40 || w->nb[i] > (uint64_t) 1 << 46 || w->nb[i] % align != 0) {
            return reading_refuse(r, "an extent or a stride is out of bounds", i);
        }
    }
    for (int i = 0; i < GGML_MAX_SRC; i++) {
        if (w->src[i] > r->i) {
            return reading_refuse(r, "a source comes after what reads it", w->src[i]);
        }
    }
    return true;
}

static bool memory_is_sound(struct reading *r, const struct mpi_wire_tensor *w, struct ggml_tensor *t) {
    if (r->memory == NULL || w->buffer == 0) {
        return true;
    }
    const size_t id = w->buffer - 1;
    const struct mpi_wire_buffer *in = id < r->memory->n ? &r->memory->buffers[id] : NULL;
    if (in == NULL || in->buffer == NULL || in->device != r->memory->device) {
        return reading_refuse(r, "there is no such buffer", (long long) id);
    }
    ggml_backend_buffer_t buffer = in->buffer;
    if (w->offset > ggml_backend_buffer_get_size(buffer) || w->offset % alignment_of(t->type) != 0) {
        return reading_refuse(r, "its offset is none of its buffer", (long long) w->offset);
    }
    char *base = ggml_backend_buffer_get_base(buffer);
    t->buffer = buffer;
    t->data = base != NULL ? base + w->offset : NULL; // a buffer of no bytes may lie nowhere
    const enum berth_span_fault fault = berth_span_check(&r->room, t);
    return fault <= BERTH_SPAN_EMPTY || reading_refuse(r, "its bytes do not lie in its buffer", fault);
}

// Elements along a dimension, blocks along the first.
static size_t count_of(const struct ggml_tensor *t, int i) {
    return (size_t) (i == 0 ? t->ne[0] / ggml_blck_size(t->type) : t->ne[i]);
}

#define SHARED_MAX ((size_t) 1 << 30) // bytes that elements of a source would take which lie on each other

// Has it as many bytes as its elements take, or as `otherwise`? One whose strides let them lie on each other can be of any
// length.
static bool is_spread(const struct ggml_tensor *t, size_t otherwise) {
    size_t size = ggml_type_size(t->type);
    bool has_wrapped = false;
    for (int i = 0; i < GGML_MAX_DIMS; i++) {
        const size_t n = count_of(t, i);
        if (n == 0) {
            return true;
        }
        has_wrapped |= __builtin_mul_overflow(size, n, &size);
    }
    return !has_wrapped && (size <= otherwise || size <= berth_span(t));
}

// The bytes from the first on, in a ring of so many, among which all elements are: steps of whole rings lead nowhere.
static size_t span_in_ring(const struct ggml_tensor *t, size_t ring) {
    size_t size = ggml_type_size(t->type);
    for (int i = 0; i < GGML_MAX_DIMS; i++) {
        size += t->nb[i] % ring != 0 ? (count_of(t, i) - 1) * t->nb[i] : 0;
    }
    return size;
}

// Do they lie side by side, as columns or heads of one matrix do? Then it shows in a ring that is as long as one of the steps of
// t. Both have elements, and their spans were found to be no longer than their buffer.
static bool is_async_move(const struct ggml_tensor *t, const struct ggml_tensor *a, const struct ggml_tensor *b) {
    bool any = false;
    for (int i = 0; i < GGML_MAX_DIMS; i++) {
        if (count_of(t, i) > 1 && t->nb[i] > 0) {
            const size_t at = ((uintptr_t) b->data - (uintptr_t) a->data) % t->nb[i];
            any = any || (at >= span_in_ring(a, t->nb[i]) && span_in_ring(b, t->nb[i]) <= t->nb[i] - at);
        }
    }
    return any;
}

static bool is_same_layout(const struct ggml_tensor *a, const struct ggml_tensor *b) {
    if (a->type != b->type) {
        return false;
    }
    bool is_same = true;
    for (int i = 0; i < GGML_MAX_DIMS; i++) {
        is_same &= a->ne[i] == b->ne[i] && (count_of(a, i) == 1 || a->nb[i] == b->nb[i]);
    }
    return is_same || (ggml_nelements(a) == ggml_nelements(b) && ggml_is_contiguous(a) && ggml_is_contiguous(b));
}

// Kernels read a source and write a node as if they were apart, or the same elements. Addresses are of one buffer each: a device
// may give the same to several.
static bool is_across(const struct ggml_tensor *node, const struct ggml_tensor *src) {
    const struct ggml_tensor *a = (uintptr_t) node->data <= (uintptr_t) src->data ? node : src, *b = a == node ? src : node;
    const size_t size = berth_span(a), b_size = berth_span(b), gap = (uintptr_t) b->data - (uintptr_t) a->data;
    if (a->buffer != b->buffer || b_size == 0 || size <= gap || (gap == 0 && is_same_layout(a, b))) {
        return false;
    }
    return gap == 0 || !(is_async_move(a, a, b) || is_async_move(b, a, b));
}

// Who is computed lies in memory, as all it reads.
static bool node_is_sound(struct reading *r, const struct ggml_tensor *t) {
    if (mpi_op_is_empty(t->op)) {
        return true;
    }
    bool has_memory = t->data != NULL;
    for (int i = 0; i < GGML_MAX_SRC; i++) {
        has_memory &= t->src[i] == NULL || t->src[i]->data != NULL;
    }
    if (r->memory != NULL && !has_memory) {
        return reading_refuse(r, "it or a source has no memory", t->op);
    }
    if (berth_op_shape_holds == NULL || !berth_op_shape_holds(t)) {
        return reading_refuse(r, "its shape is none of its op's", t->op);
    }
    if (!is_spread(t, 0)) {
        return reading_refuse(r, "its elements lie on each other", t->op);
    }
    for (int i = 0; i < GGML_MAX_SRC; i++) {
        if (t->src[i] != NULL && !is_spread(t->src[i], SHARED_MAX)) { // one op would take for ever
            return reading_refuse(r, "so many elements lie on each other in source", i);
        }
    }
    for (int i = 0; i < GGML_MAX_SRC && t->data != NULL; i++) {
        if (t->src[i] != NULL && is_across(t, t->src[i])) {
            return reading_refuse(r, "it lies across a source, number", i);
        }
    }
    return true;
}

static bool read_tensor(struct reading *r, const struct mpi_wire_tensor *w, struct ggml_context *ctx, struct ggml_cgraph *graph) {
    if (!header_is_sound(r, w)) {
        return false;
    }
    struct ggml_tensor *t = ggml_new_tensor_1d(ctx, (enum ggml_type) w->type, 0);
    r->tensors[r->i] = t;
    for (int i = 0; i < GGML_MAX_DIMS; i++) {
        t->ne[i] = w->ne[i];
        t->nb[i] = (size_t) w->nb[i];
    }
    t->op = (enum ggml_op) w->op;
    t->flags = (int32_t) w->flags;
    memcpy(t->op_params, w->op_params, sizeof t->op_params);
    for (int i = 0; i < GGML_MAX_SRC; i++) {
        t->src[i] = w->src[i] > 0 ? r->tensors[w->src[i] - 1] : NULL;
    }
    if (!memory_is_sound(r, w, t)) {
        return false;
    }
    if (!w->is_node) {
        return t->op == GGML_OP_NONE || reading_refuse(r, "it is no node and has an op", t->op);
    }
    if (!node_is_sound(r, t)) {
        return false;
    }
    const int32_t flags = t->flags;
    if (t->op != GGML_OP_NONE) {
        ggml_build_forward_expand(graph, t);
        t->flags = flags; // a node that is not to be computed is not
    }
    return true;
}

struct ggml_context *mpi_wire_read(const void *bytes, size_t size, const struct mpi_wire_memory *memory,
    struct ggml_cgraph **graph, char *why, size_t why_size) {
    const size_t n = size / sizeof(struct mpi_wire_tensor);
    if (n == 0 || n * sizeof(struct mpi_wire_tensor) != size || n > TENSORS_MAX) {
        snprintf(why, why_size, "%zu bytes are no graph", size);
        return NULL;
    }
    struct reading r = {.memory = memory, .why = why, .why_size = why_size};
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){
        .mem_size = (n + 1) * ggml_tensor_overhead() + ggml_graph_overhead_custom(n, false), .no_alloc = true});
    r.tensors = shim_calloc(n, sizeof r.tensors[0]);
    *graph = ctx != NULL ? ggml_new_graph_custom(ctx, n, false) : NULL;
    bool ok = ctx != NULL && r.tensors != NULL && *graph != NULL;
    if (!ok) {
        snprintf(why, why_size, "out of memory for a graph of %zu tensors", n);
    }
    for (; ok && r.i < n; r.i++) {
        struct mpi_wire_tensor w;
        memcpy(&w, (const char *) bytes + r.i * sizeof w, sizeof w);
        ok = read_tensor(&r, &w, ctx, *graph);
    }
    shim_free(r.tensors);
    if (!ok) {
        ggml_free(ctx);
        return NULL;
    }
    return ctx;
}
