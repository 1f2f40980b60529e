// SPDX-License-Identifier: MIT
// span.h: computes and checks which bytes belong to a tensor, with overflow checks.
// The span of a tensor is the range from its first byte to the end of its last element, including the holes of strided views.
// All code that accesses the bytes of a tensor checks here first: set, get, copies, compute. Kernels rely on these checks.
// All functions are inline, because libggml-cpu can also be loaded with ggml's own libggml-base, which does not export them.
#pragma once

#include "base/base.h"
#include "base/min.h"
#include "ggml-backend-impl.h"

#include <inttypes.h>
#include <stdio.h>

// The span of a tensor with an invalid type, a negative extent, or a last byte whose offset does not fit 63 bits.
// This value exceeds any memory. Padding it to any alignment does not overflow.
#define BERTH_SPAN_INVALID ((size_t) 1 << 63)

/*@ // The bytes from the first element to the end of the last element of a row.
    logic integer span_row(struct ggml_tensor *t, integer type_size, integer blck_size) =
        blck_size == 1 ? type_size + (t->ne[0] - 1) * t->nb[0] : t->ne[0] * t->nb[0] / blck_size;
    // The bytes that the other elements of dimension i add.
    logic integer span_more(struct ggml_tensor *t, integer i) = (t->ne[i] - 1) * t->nb[i]; */

/*@ requires \valid_read(t) && blck_size > 0;
    requires t->ne[0] != 0 && t->ne[1] != 0 && t->ne[2] != 0 && t->ne[3] != 0;
    assigns \nothing;
    ensures \result <= BERTH_SPAN_INVALID;
    ensures \result < BERTH_SPAN_INVALID ==> t->ne[0] > 0 && t->ne[1] > 0 && t->ne[2] > 0 && t->ne[3] > 0;
    ensures \result < BERTH_SPAN_INVALID ==>
        \result == span_row(t, type_size, blck_size) + span_more(t, 1) + span_more(t, 2) + span_more(t, 3);
    ensures \result == BERTH_SPAN_INVALID ==> t->ne[0] < 0 || t->ne[1] < 0 || t->ne[2] < 0 || t->ne[3] < 0 ||
        (blck_size != 1 && t->ne[0] * t->nb[0] > UINT64_MAX) ||
        span_row(t, type_size, blck_size) + span_more(t, 1) + span_more(t, 2) + span_more(t, 3) >= BERTH_SPAN_INVALID; */
static __attribute__((noinline, cold, unused)) size_t berth_span_checked(
    const struct ggml_tensor *t, size_t type_size, int64_t blck_size) {
    size_t size = type_size, step;
    /*@ loop invariant 0 <= i <= 4;
        loop invariant (i > 0 ==> t->ne[0] > 0) && (i > 1 ==> t->ne[1] > 0) && (i > 2 ==> t->ne[2] > 0) && (i > 3 ==> t->ne[3] > 0);
        loop invariant i == 0 ==> size == type_size;
        loop invariant i == 1 ==> size == span_row(t, type_size, blck_size);
        loop invariant i == 2 ==> size == span_row(t, type_size, blck_size) + span_more(t, 1);
        loop invariant i == 3 ==> size == span_row(t, type_size, blck_size) + span_more(t, 1) + span_more(t, 2);
        loop invariant i == 4 ==> size == span_row(t, type_size, blck_size) + span_more(t, 1) + span_more(t, 2) + span_more(t, 3);
        loop assigns i, size, step;
        loop variant 4 - i; */
    for (int i = 0; i < GGML_MAX_DIMS; i++) {
        const bool in_blocks = i == 0 && blck_size != 1;
        if (t->ne[i] < 0 || __builtin_mul_overflow((size_t) t->ne[i] - !in_blocks, t->nb[i], &step)) {
            return BERTH_SPAN_INVALID;
        }
        if (in_blocks) {
            size = step / (size_t) blck_size;
        } else if (__builtin_add_overflow(size, step, &size)) {
            return BERTH_SPAN_INVALID;
        }
    }
    return min_size(size, BERTH_SPAN_INVALID);
}

static inline size_t berth_span_of(const struct ggml_tensor *t, size_t type_size, int64_t blck_size) {
    // Fast path for extents up to 2^26 and strides below 2^34: the sum of the four products stays below 2^62.
    // For an extent of 0 or less, n0 to n3 wrap to large numbers, and the test fails.
    const uint64_t n0 = (uint64_t) t->ne[0] - 1, n1 = (uint64_t) t->ne[1] - 1;
    const uint64_t n2 = (uint64_t) t->ne[2] - 1, n3 = (uint64_t) t->ne[3] - 1;
    if (BERTH_LIKELY(((n0 | n1 | n2 | n3) >> 26 | (t->nb[0] | t->nb[1] | t->nb[2] | t->nb[3]) >> 34) == 0 && blck_size > 0)) {
        const size_t row =
            BERTH_LIKELY(blck_size == 1) ? type_size + n0 * t->nb[0] : (size_t) t->ne[0] * t->nb[0] / (size_t) blck_size;
        return row + n1 * t->nb[1] + n2 * t->nb[2] + n3 * t->nb[3];
    }
    if (t->ne[0] == 0 || t->ne[1] == 0 || t->ne[2] == 0 || t->ne[3] == 0) {
        return 0;
    }
    return blck_size > 0 ? berth_span_checked(t, type_size, blck_size) : BERTH_SPAN_INVALID;
}

// Returns bytes. 0: the tensor is empty. BERTH_SPAN_INVALID: no memory can hold the tensor.
static inline size_t berth_span(const struct ggml_tensor *t) {
    return BERTH_LIKELY(t->type == GGML_TYPE_F32) ? berth_span_of(t, sizeof(float), 1)
                                                  : berth_span_of(t, ggml_type_size(t->type), ggml_blck_size(t->type));
}

// ---- checks of one tensor ----

enum berth_span_fault {
    BERTH_SPAN_OK,
    BERTH_SPAN_EMPTY, // not a fault: the tensor has no elements
    BERTH_SPAN_NO_MEMORY,
    BERTH_SPAN_NO_TYPE,     // the type is invalid
    BERTH_SPAN_TOO_MANY,    // more than BERTH_SPAN_MAX_ELEMENTS elements
    BERTH_SPAN_SPLIT_BLOCK, // a row splits a block or has gaps
    BERTH_SPAN_TOO_LARGE,   // berth_span is BERTH_SPAN_INVALID
    BERTH_SPAN_PAST_SOURCE, // the view ends after the end of its source
    BERTH_SPAN_PAST_BUFFER,
};

// A cache of one buffer's base address: get_base is called once for consecutive tensors of the same buffer. Initially all zero.
struct berth_span_base {
    struct ggml_backend_buffer *buffer;
    uintptr_t base; // 0: the buffer has no addresses
};

static inline struct ggml_backend_buffer *berth_span_buffer(const struct ggml_tensor *t) {
    return t->view_src != NULL ? t->view_src->buffer : t->buffer;
}

// A tensor with strides of 0 has few bytes but any number of elements, so this number is limited separately.
// With this limit, kernels may multiply the extents of one tensor without checks.
#define BERTH_SPAN_MAX_ELEMENTS ((int64_t) 1 << 48)

static __attribute__((noinline, cold, unused)) bool berth_span_has_too_many_checked(const struct ggml_tensor *t) {
    int64_t n = 1;
    for (int i = 0; i < GGML_MAX_DIMS; i++) {
        if (t->ne[i] < 0 || __builtin_mul_overflow(n, t->ne[i], &n)) {
            return t->ne[0] != 0 && t->ne[1] != 0 && t->ne[2] != 0 && t->ne[3] != 0;
        }
    }
    return n > BERTH_SPAN_MAX_ELEMENTS;
}

static inline bool berth_span_has_too_many(const struct ggml_tensor *t) {
    const uint64_t any = (uint64_t) t->ne[0] | (uint64_t) t->ne[1] | (uint64_t) t->ne[2] | (uint64_t) t->ne[3];
    return BERTH_UNLIKELY(any >> 12 != 0) && berth_span_has_too_many_checked(t);
}

// Checks that the `size` bytes of t are inside the buffer and, for a view, inside the source. size must be more than 0.
static inline enum berth_span_fault berth_span_check_bytes(
    struct berth_span_base *cached, const struct ggml_tensor *t, size_t size) {
    const struct ggml_tensor *whole = t->view_src;
    struct ggml_backend_buffer *buffer = t->buffer;
    if (BERTH_UNLIKELY(size >= BERTH_SPAN_INVALID)) {
        return BERTH_SPAN_TOO_LARGE;
    }
    if (BERTH_UNLIKELY(t->data == NULL)) {
        return BERTH_SPAN_NO_MEMORY;
    }
    if (whole != NULL) {
        const size_t have = berth_span(whole);
        if (have == BERTH_SPAN_INVALID || !berth_is_inside(t->view_offs, size, have)) {
            return BERTH_SPAN_PAST_SOURCE;
        }
        buffer = whole->buffer;
    }
    if (buffer == NULL) {
        return BERTH_SPAN_OK; // the memory belongs to the context or the caller, so its end is unknown
    }
    if (cached->buffer != buffer) {
        cached->buffer = buffer;
        cached->base = buffer->iface.get_base != NULL ? (uintptr_t) buffer->iface.get_base(buffer) : 0;
    }
    const size_t off = (uintptr_t) t->data - cached->base; // an address before the buffer gives an offset larger than any buffer
    return BERTH_LIKELY(berth_is_inside(off, size, buffer->size)) || cached->base == 0 ? BERTH_SPAN_OK : BERTH_SPAN_PAST_BUFFER;
}

static inline __attribute__((always_inline)) enum berth_span_fault berth_span_check(
    struct berth_span_base *cached, const struct ggml_tensor *t) {
    size_t type_size = sizeof(float), blck_size = 1;
    if (t->type != GGML_TYPE_F32) {
        type_size = ggml_type_size(t->type);
        blck_size = (size_t) ggml_blck_size(t->type);
    }
    if (BERTH_UNLIKELY(blck_size == 0)) {
        return BERTH_SPAN_NO_TYPE; // kernels use types as table indices even for tensors without elements
    }
    const size_t size = berth_span_of(t, type_size, (int64_t) blck_size);
    if (size < BERTH_SPAN_INVALID && berth_span_has_too_many(t)) {
        return BERTH_SPAN_TOO_MANY;
    }
    if (blck_size > 1 && BERTH_UNLIKELY(t->nb[0] != type_size || (uint64_t) t->ne[0] % blck_size != 0) &&
        (size != 0 || (t->ne[0] != 0 && t->ne[1] != 0 && t->ne[2] != 0 && t->ne[3] != 0))) {
        return BERTH_SPAN_SPLIT_BLOCK; // the span of such a row can round to 0 bytes although the row has elements
    }
    return BERTH_UNLIKELY(size == 0) ? BERTH_SPAN_EMPTY : berth_span_check_bytes(cached, t, size);
}

static inline void berth_span_report(enum berth_span_fault fault, const struct ggml_tensor *t, char *text, size_t text_size) {
    const char *name = t->name[0] != '\0' ? t->name : "(unnamed)";
    switch (fault) {
        case BERTH_SPAN_OK: text[0] = '\0'; break;
        case BERTH_SPAN_EMPTY: snprintf(text, text_size, "%s is empty", name); break;
        case BERTH_SPAN_NO_MEMORY: snprintf(text, text_size, "%s has no memory", name); break;
        case BERTH_SPAN_NO_TYPE: snprintf(text, text_size, "%s has type %d, which does not exist", name, (int) t->type); break;
        case BERTH_SPAN_TOO_MANY:
            snprintf(text, text_size,
                "%s, [%" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64 "], has more than %" PRId64 " elements", name, t->ne[0],
                t->ne[1], t->ne[2], t->ne[3], BERTH_SPAN_MAX_ELEMENTS);
            break;
        case BERTH_SPAN_SPLIT_BLOCK:
            snprintf(text, text_size,
                "%s splits blocks: rows of %" PRId64 " elements of %s, stride %zu bytes, blocks of %" PRId64, name, t->ne[0],
                ggml_type_name(t->type), t->nb[0], ggml_blck_size(t->type));
            break;
        case BERTH_SPAN_TOO_LARGE:
            snprintf(text, text_size,
                "%s, [%" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64
                "] with strides [%zu, %zu, %zu, %zu], spans more bytes than 63 bits can count",
                name, t->ne[0], t->ne[1], t->ne[2], t->ne[3], t->nb[0], t->nb[1], t->nb[2], t->nb[3]);
            break;
        case BERTH_SPAN_PAST_SOURCE:
            snprintf(text, text_size, "%s, a view of %zu bytes at %zu, ends after the %zu bytes of its source", name,
                berth_span(t), t->view_offs, berth_span(t->view_src));
            break;
        case BERTH_SPAN_PAST_BUFFER:
            snprintf(text, text_size, "%s, %zu bytes at %p, is not inside its buffer of %zu bytes", name, berth_span(t), t->data,
                berth_span_buffer(t)->size);
            break;
    }
}

// ---- checks of all tensors of a graph ----

// State of the checks of one graph: a cache of buffer bases and a cache of tensors that passed, both indexed by address.
#define BERTH_SPAN_SLOTS 32
struct berth_span_walk {
    struct berth_span_base bases[4]; // index: hash of the buffer's address
    const struct ggml_tensor *passed[BERTH_SPAN_SLOTS];
};

static inline const struct ggml_tensor **berth_span_slot(struct berth_span_walk *walk, const struct ggml_tensor *t) {
    return &walk->passed[((uintptr_t) t >> 5) % BERTH_SPAN_SLOTS];
}

static inline struct berth_span_base *berth_span_base_for(struct berth_span_walk *walk, const struct ggml_tensor *t) {
    return &walk->bases[((uintptr_t) berth_span_buffer(t) >> 6) % 4];
}

static inline bool berth_span_same_layout(const struct ggml_tensor *a, const struct ggml_tensor *b) {
    return a->type == b->type &&
           ((a->ne[0] ^ b->ne[0]) | (a->ne[1] ^ b->ne[1]) | (a->ne[2] ^ b->ne[2]) | (a->ne[3] ^ b->ne[3])) == 0 &&
           ((a->nb[0] ^ b->nb[0]) | (a->nb[1] ^ b->nb[1]) | (a->nb[2] ^ b->nb[2]) | (a->nb[3] ^ b->nb[3])) == 0;
}

// A view with the address and layout of its source is not checked itself: it is valid if the source is valid.
static __attribute__((noinline, unused)) enum berth_span_fault berth_span_walk_uncached(
    struct berth_span_walk *walk, const struct ggml_tensor *t) {
    const struct ggml_tensor *whole = t->view_src;
    const bool in_place = whole != NULL && t->data == whole->data && berth_span_same_layout(t, whole);
    const struct ggml_tensor *at = in_place ? whole : t;
    enum berth_span_fault fault = BERTH_SPAN_OK;
    if (!in_place || *berth_span_slot(walk, whole) != whole) {
        fault = berth_span_check(berth_span_base_for(walk, at), at);
    }
    if (BERTH_LIKELY(fault == BERTH_SPAN_OK)) {
        *berth_span_slot(walk, at) = at;
        *berth_span_slot(walk, t) = t;
    }
    return fault;
}

static inline enum berth_span_fault berth_span_walk(struct berth_span_walk *walk, const struct ggml_tensor *t) {
    return *berth_span_slot(walk, t) == t ? BERTH_SPAN_OK : berth_span_walk_uncached(walk, t);
}

// The most frequent kind of node is handled inline: f32, not a view, in a buffer with a cached base.
static inline enum berth_span_fault berth_span_walk_node(struct berth_span_walk *walk, const struct ggml_tensor *t) {
    const struct berth_span_base *cached = &walk->bases[((uintptr_t) t->buffer >> 6) % 4];
    if (BERTH_LIKELY(t->type == GGML_TYPE_F32 && t->view_src == NULL && t->data != NULL && cached->buffer == t->buffer)) {
        const size_t size = berth_span_of(t, sizeof(float), 1), off = (uintptr_t) t->data - cached->base;
        if (size != 0 && size < BERTH_SPAN_INVALID && !berth_span_has_too_many(t) &&
            (t->buffer == NULL || berth_is_inside(off, size, t->buffer->size))) {
            *berth_span_slot(walk, t) = t;
            return BERTH_SPAN_OK;
        }
    }
    return berth_span_walk(walk, t);
}

// Returns n such that all sources after the first n are NULL. n is 2 or GGML_MAX_SRC.
static inline int berth_span_n_src(const struct ggml_tensor *node) {
    uintptr_t more = 0;
#pragma GCC unroll 16
    for (int s = 2; s < GGML_MAX_SRC; s++) {
        more |= (uintptr_t) node->src[s];
    }
    return more == 0 ? 2 : GGML_MAX_SRC;
}
