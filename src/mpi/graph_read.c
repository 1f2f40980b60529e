// SPDX-License-Identifier: MIT
// graph_read.c: reads a graph from untrusted bytes. It checks everything that later code relies on:
// types, ops, order of sources, memory of each tensor in a buffer of the device, alignment, shapes (berth_op_shape_holds).

#include "mpi/wire.h"

#include "core/span.h"

#include <string.h>

#define TENSORS_MAX ((size_t) 1 << 20)

// Kernels load elements with this alignment.
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
    struct ggml_tensor **tensors; // tensors read so far
    struct berth_span_base base;
    char *why;
    size_t why_size, i; // i: index of the current tensor
};

static bool reading_reject(struct reading *r, const char *what, long long number) {
    snprintf(r->why, r->why_size, "tensor %zu: %s (%lld)", r->i, what, number);
    return false;
}

static bool header_check(struct reading *r, const struct mpi_wire_tensor *w) {
    if (w->type >= GGML_TYPE_COUNT || ggml_blck_size((enum ggml_type) w->type) <= 0 ||
        ggml_type_size((enum ggml_type) w->type) == 0) {
        return reading_reject(r, "unknown type", w->type);
    }
    if (w->op >= GGML_OP_COUNT || w->flags > 31 || w->is_node > 1) {
        return reading_reject(r, "unknown op, flag or node mark", w->op);
    }
    const size_t align = alignment_of((enum ggml_type) w->type);
    for (int i = 0; i < GGML_MAX_DIMS; i++) {
        if (w->ne[i] < 0 || w->ne[i] > (int64_t) 1 << 40 || w->nb[i] > (uint64_t) 1 << 46 || w->nb[i] % align != 0) {
            return reading_reject(r, "an extent or a stride is out of range", i);
        }
    }
    for (int i = 0; i < GGML_MAX_SRC; i++) {
        if (w->src[i] > r->i) {
            return reading_reject(r, "a source comes after its reader", w->src[i]);
        }
    }
    return true;
}

static bool memory_check(struct reading *r, const struct mpi_wire_tensor *w, struct ggml_tensor *t) {
    if (r->memory == NULL || w->buffer == 0) {
        return true;
    }
    const size_t id = w->buffer - 1;
    const struct mpi_wire_buffer *in = id < r->memory->n ? &r->memory->buffers[id] : NULL;
    if (in == NULL || in->buffer == NULL || in->device != r->memory->device) {
        return reading_reject(r, "unknown buffer", (long long) id);
    }
    ggml_backend_buffer_t buffer = in->buffer;
    if (w->offset > ggml_backend_buffer_get_size(buffer) || w->offset % alignment_of(t->type) != 0) {
        return reading_reject(r, "its offset is outside its buffer or not aligned", (long long) w->offset);
    }
    char *base = ggml_backend_buffer_get_base(buffer);
    t->buffer = buffer;
    t->data = base != NULL ? base + w->offset : NULL; // a buffer of 0 bytes may have no address
    const enum berth_span_fault fault = berth_span_check(&r->base, t);
    return fault <= BERTH_SPAN_EMPTY || reading_reject(r, "its bytes are not inside its buffer", fault);
}

// Returns the extent of axis i; for axis 0, in blocks.
static size_t count_of(const struct ggml_tensor *t, int i) {
    return (size_t) (i == 0 ? t->ne[0] / ggml_blck_size(t->type) : t->ne[i]);
}

#define SHARED_MAX ((size_t) 1 << 30) // limit of bytes of a source with overlapping elements

// Returns true if the bytes of all elements together are at most the span of t (so that the elements need not overlap), or at
// most `overlap_max`. With overlapping strides, even a small span can have any number of elements.
static bool has_separate_elements(const struct ggml_tensor *t, size_t overlap_max) {
    size_t size = ggml_type_size(t->type);
    bool has_wrapped = false;
    for (int i = 0; i < GGML_MAX_DIMS; i++) {
        const size_t n = count_of(t, i);
        if (n == 0) {
            return true;
        }
        has_wrapped |= __builtin_mul_overflow(size, n, &size);
    }
    return !has_wrapped && (size <= overlap_max || size <= berth_span(t));
}

// Returns the span of t without the axes whose stride is a multiple of `ring`.
static size_t span_in_ring(const struct ggml_tensor *t, size_t ring) {
    size_t size = ggml_type_size(t->type);
    for (int i = 0; i < GGML_MAX_DIMS; i++) {
        size += t->nb[i] % ring != 0 ? (count_of(t, i) - 1) * t->nb[i] : 0;
    }
    return size;
}

// Returns true if a and b are interleaved without overlap along an axis of t, like columns of one matrix. t is a or b. a has the
// lower address. Both have elements, and their spans are inside their buffer.
static bool is_interleaved(const struct ggml_tensor *t, const struct ggml_tensor *a, const struct ggml_tensor *b) {
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

// Kernels assume that a node and its source share no memory, or that element i of both has the same address. Returns true if
// neither is the case. Only addresses in the same buffer are compared, because a device may use the same addresses in several
// buffers.
static bool overlaps_source(const struct ggml_tensor *node, const struct ggml_tensor *src) {
    const struct ggml_tensor *a = (uintptr_t) node->data <= (uintptr_t) src->data ? node : src, *b = a == node ? src : node;
    const size_t size = berth_span(a), b_size = berth_span(b), gap = (uintptr_t) b->data - (uintptr_t) a->data;
    if (a->buffer != b->buffer || b_size == 0 || size <= gap || (gap == 0 && is_same_layout(a, b))) {
        return false;
    }
    return gap == 0 || !(is_interleaved(a, a, b) || is_interleaved(b, a, b));
}

// Ops without computation are not checked.
static bool node_check(struct reading *r, const struct ggml_tensor *t) {
    if (mpi_op_is_empty(t->op)) {
        return true;
    }
    bool has_memory = t->data != NULL;
    for (int i = 0; i < GGML_MAX_SRC; i++) {
        has_memory &= t->src[i] == NULL || t->src[i]->data != NULL;
    }
    if (r->memory != NULL && !has_memory) {
        return reading_reject(r, "the node or a source has no memory", t->op);
    }
    if (berth_op_shape_holds == NULL || !berth_op_shape_holds(t)) {
        return reading_reject(r, "its shapes violate the rules of its op", t->op);
    }
    if (!has_separate_elements(t, 0)) {
        return reading_reject(r, "its elements overlap", t->op);
    }
    for (int i = 0; i < GGML_MAX_SRC; i++) {
        if (t->src[i] != NULL && !has_separate_elements(t->src[i], SHARED_MAX)) { // computing the op would take too long
            return reading_reject(r, "too many elements overlap in source", i);
        }
    }
    for (int i = 0; i < GGML_MAX_SRC && t->data != NULL; i++) {
        if (t->src[i] != NULL && overlaps_source(t, t->src[i])) {
            return reading_reject(r, "it overlaps other elements of source", i);
        }
    }
    return true;
}

static bool read_tensor(struct reading *r, const struct mpi_wire_tensor *w, struct ggml_context *ctx, struct ggml_cgraph *graph) {
    if (!header_check(r, w)) {
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
    if (!memory_check(r, w, t)) {
        return false;
    }
    if (!w->is_node) {
        return t->op == GGML_OP_NONE || reading_reject(r, "it is not a node but has an op", t->op);
    }
    if (!node_check(r, t)) {
        return false;
    }
    const int32_t flags = t->flags;
    if (t->op != GGML_OP_NONE) {
        ggml_build_forward_expand(graph, t);
        t->flags = flags; // ggml_build_forward_expand sets the compute flag, which this node may lack
    }
    return true;
}

struct ggml_context *mpi_wire_read(const void *bytes, size_t size, const struct mpi_wire_memory *memory,
    struct ggml_cgraph **graph, char *why, size_t why_size) {
    const size_t n = size / sizeof(struct mpi_wire_tensor);
    if (n == 0 || n * sizeof(struct mpi_wire_tensor) != size || n > TENSORS_MAX) {
        snprintf(why, why_size, "%zu bytes are not a valid graph", size);
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
