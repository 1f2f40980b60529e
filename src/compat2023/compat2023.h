// SPDX-License-Identifier: MIT
// compat2023.h: the allocators and backends of 2023 inside: their public structs under names of their own, since today's have the
// same ones, and the tensor allocator.
//
// A buffer of then begins with a buffer of today (struct gen_buffer), so that a tensor's buffer is right for both.
#pragma once

#include "alloc/lifetime.h"
#include "backend/backend.h"
#include "berth-plan.h"

#define BERTH_2023_IMPLEMENTATION
#define ggml_backend gen_backend
#define ggml_backend_t gen_backend_t
#define ggml_backend_i gen_backend_i
#define ggml_backend_buffer gen_buffer
#define ggml_backend_buffer_t gen_buffer_t
#define ggml_backend_buffer_i gen_buffer_i
#define ggml_tallocr gen_tallocr
#define ggml_tallocr_t gen_tallocr_t
#define ggml_gallocr gen_gallocr
#define ggml_gallocr_t gen_gallocr_t
#define ggml_hash_set gen_hash_set
#define ggml_backend_sched gen_sched
#define ggml_backend_sched_t gen_sched_t
#include <2023/ggml-backend-impl.h> // public
#undef ggml_backend
#undef ggml_backend_t
#undef ggml_backend_i
#undef ggml_backend_buffer
#undef ggml_backend_buffer_t
#undef ggml_backend_buffer_i
#undef ggml_tallocr
#undef ggml_tallocr_t
#undef ggml_gallocr
#undef ggml_gallocr_t
#undef ggml_hash_set
#undef ggml_backend_sched
#undef ggml_backend_sched_t

BERTH_API gen_backend_t berth_2023_wrap(ggml_backend_t backend);
BERTH_API ggml_backend_t berth_2023_wrapped(gen_backend_t backend);

// ---- buffers (backend.c) ----

// The buffer of then that a tensor's buffer is, NULL if it is one of today.
gen_buffer_t berth_2023_buffer_of(const struct ggml_backend_buffer *buffer);
// Whose buffers have this type, NULL: it is none of then, or of memory that no backend owns.
gen_backend_t berth_2023_backend_of_type(ggml_backend_buffer_type_t type);
// From now on nothing is read from or written to its addresses.
void berth_2023_buffer_is_measure(gen_buffer_t buffer);
// Gives the memory back and keeps the struct, whose address tensors may still hold.
void berth_2023_buffer_retire(gen_buffer_t buffer);
// No result of a graph that could not be computed looks like one: those in buffers of then become NaN (bytes of 0xff).
void berth_2023_spoil(const struct ggml_cgraph *graph);
// Over memory of the host that stays the caller's; base may be an address that nobody touches.
gen_buffer_t berth_2023_buffer_over(gen_backend_t backend, void *base, size_t size, size_t align);

static inline ggml_backend_buffer_t gen_today(gen_buffer_t buffer) {
    return (ggml_backend_buffer_t) (void *) buffer;
}

// ---- tensor allocators (tallocr.c) ----

// A piece that is taken. Pieces are sorted by offset and do not overlap.
struct gen_piece {
    uint64_t off, size;
    const struct ggml_tensor *tensor; // that is there; only compared, it may be gone
};

struct gen_tallocr {
    gen_buffer_t buffer;
    size_t align;
    uint64_t start;    // first aligned offset from the buffer's base
    uint64_t capacity; // bytes of the buffer; UINT64_MAX while measuring
    uint64_t peak;     // end of the highest piece so far, or of what was asked for in vain, from the base
    bool is_measure;
    bool owns_buffer;
    gen_backend_t grows_on; // who gives it a larger buffer, NULL: nobody
    gen_buffer_t *old;      // [n_old] buffers that were too small: good until the next reset, then without memory
    size_t n_old, old_cap;
    struct gen_piece *pieces;
    size_t n_pieces, pieces_cap;
};

// A buffer of need bytes from the base on takes the place of the allocator's. What was placed stays where it is, its offsets stay
// taken. False: it cannot be had, and nothing changed.
bool berth_2023_grow(struct gen_tallocr *talloc, uint64_t need) BERTH_MUST_USE;
// One of its old buffers, NULL: it is none.
gen_buffer_t berth_2023_old(const struct gen_tallocr *talloc, const struct ggml_backend_buffer *buffer);
static inline bool gen_is_retired(gen_buffer_t buffer) {
    return buffer->iface.get_base == NULL;
}

// Places a tensor, hook included (not while measuring).
void berth_2023_place(struct gen_tallocr *talloc, struct ggml_tensor *tensor, uint64_t off);
// The piece is the tensor's from now on. False: out of memory for the books.
bool berth_2023_take(struct gen_tallocr *talloc, uint64_t off, uint64_t size, const struct ggml_tensor *tensor) BERTH_MUST_USE;
// The tensor's piece at off, NULL: there is none, or it is another tensor's.
struct gen_piece *berth_2023_piece(const struct gen_tallocr *talloc, uint64_t off, const struct ggml_tensor *tensor);
// The tensor's piece, if there is one, is free from now on.
void berth_2023_give(struct gen_tallocr *talloc, uint64_t off, const struct ggml_tensor *tensor);
