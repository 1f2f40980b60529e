// SPDX-License-Identifier: MIT
// compat2023.h: the allocators and backends of 2023 inside: their public structs under names of their own, since today's have the
// same ones, and the tensor allocator.
//
// The structs that programs of then fill or read were laid out differently at each date. Everything that touches a field of them
// is in date.h, which is compiled once per date; the other files see buffers, backends and sources through struct gen_date. A
// buffer of any date begins with struct gen_head, and that with a buffer of today, so that a tensor's buffer is right for all.
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
#define ggml_backend_buffer_type gen_source
#define ggml_backend_buffer_type_t gen_source_t
#define ggml_backend_buffer_type_i gen_source_i
#define ggml_tallocr gen_tallocr
#define ggml_tallocr_t gen_tallocr_t
#define ggml_gallocr gen_gallocr
#define ggml_gallocr_t gen_gallocr_t
#define ggml_hash_set gen_hash_set
#define ggml_backend_sched gen_sched
#define ggml_backend_sched_t gen_sched_t
#ifdef BERTH_2023_LAYOUT                // date.h: the structs of its date, too
#    include <2023/ggml-backend-impl.h> // public
#else
#    include <2023/ggml-backend.h> // public
#endif
#undef ggml_backend
#undef ggml_backend_t
#undef ggml_backend_i
#undef ggml_backend_buffer
#undef ggml_backend_buffer_t
#undef ggml_backend_buffer_i
#undef ggml_backend_buffer_type
#undef ggml_backend_buffer_type_t
#undef ggml_backend_buffer_type_i
#undef ggml_tallocr
#undef ggml_tallocr_t
#undef ggml_gallocr
#undef ggml_gallocr_t
#undef ggml_hash_set
#undef ggml_backend_sched
#undef ggml_backend_sched_t

// A source is what buffers are asked of: a backend until November 2023, a buffer type since.

// ---- buffers (backend.c) ----

// The first bytes of a buffer.
struct gen_head {
    struct ggml_backend_buffer today;     // what tensors point to
    struct ggml_backend_buffer_type type; // of today, for this buffer alone
    const struct gen_date *date;
    size_t align;
    bool is_measure; // there is no memory behind its addresses, or no more
    bool is_retired; // its memory went back
};

// What the structs of a date do. A source may be NULL until November 2023: memory that no backend owns.
struct gen_date {
    int number; // as BERTH_2023 has it
    // buffers
    void *(*base)(gen_buffer_t buffer);
    size_t (*size)(gen_buffer_t buffer);
    size_t (*alloc_size)(gen_buffer_t buffer, struct ggml_tensor *tensor); // 0: as the tensor says
    void (*init_tensor)(gen_buffer_t buffer, struct ggml_tensor *tensor);
    void (*free_tensor)(gen_buffer_t buffer, struct ggml_tensor *tensor);
    void (*set)(gen_buffer_t buffer, struct ggml_tensor *tensor, const void *data, size_t offset, size_t size);
    void (*get)(gen_buffer_t buffer, const struct ggml_tensor *tensor, void *data, size_t offset, size_t size);
    bool (*copy)(
        struct ggml_tensor *src, struct ggml_tensor *dst); // in one step; false: it cannot. dst is in a buffer of the date
    bool (*clear)(gen_buffer_t buffer, uint8_t value);     // false: it cannot
    void (*reset)(gen_buffer_t buffer);
    void (*release)(gen_buffer_t buffer); // gives the memory back, and the struct has no functions any more
    const char *(*buffer_name)(gen_buffer_t buffer);
    bool (*pulls_ops)(gen_buffer_t buffer); // ops on leafs in it should run where it is
    gen_source_t (*source_of)(gen_buffer_t buffer);
    // sources
    const char *(*source_name)(gen_source_t source);
    gen_buffer_t (*alloc)(gen_source_t source, size_t size);
    gen_buffer_t (*measure)(gen_source_t source); // no memory, but the sizes and the alignment of its buffers
    size_t (*source_align)(gen_source_t source);
    size_t (*source_alloc_size)(gen_source_t source, const struct ggml_tensor *tensor);
    size_t (*source_max_size)(gen_source_t source);
    bool (*is_host)(gen_source_t source);
    bool (*reads)(gen_backend_t backend, gen_source_t source);
    // backends
    const char *(*name)(gen_backend_t backend);
    bool (*is_cpu)(gen_backend_t backend);
    bool (*supports_op)(gen_backend_t backend, const struct ggml_tensor *op);
    enum ggml_status (*compute)(gen_backend_t backend, struct ggml_cgraph *graph);
    void (*synchronize)(gen_backend_t backend);
};

// The head of a buffer that date.h fills.
void berth_2023_buffer_head(gen_buffer_t buffer, const struct gen_date *date, size_t align, size_t size);
// The buffer of then that a tensor's buffer is, NULL if it is one of today.
gen_buffer_t berth_2023_buffer_of(const struct ggml_backend_buffer *buffer);
// The buffer of then whose type this is, NULL: it is none of then.
gen_buffer_t berth_2023_buffer_of_type(const struct ggml_backend_buffer_type *type);
// Whether the bytes of a tensor can be read and written; false is an error with the tensor's name.
bool berth_2023_has_memory(gen_buffer_t buffer, const struct ggml_tensor *tensor) BERTH_MUST_USE;
// Gives the memory back and keeps the struct, whose address tensors may still hold.
void berth_2023_buffer_retire(gen_buffer_t buffer);
// No result of a graph that could not be computed looks like one: those in buffers of then become NaN (bytes of 0xff).
void berth_2023_spoil(const struct ggml_cgraph *graph);
// Checks the graph, has it computed, and spoils its results if that failed.
enum ggml_status berth_2023_compute(const struct gen_date *date, gen_backend_t backend, struct ggml_cgraph *graph) BERTH_MUST_USE;
// An address that nobody touches, aligned.
void *berth_2023_measure_base(size_t align);

static inline struct gen_head *gen_head(gen_buffer_t buffer) {
    return (struct gen_head *) (void *) buffer;
}

static inline ggml_backend_buffer_t gen_today(gen_buffer_t buffer) {
    return (ggml_backend_buffer_t) (void *) buffer;
}

// ---- a backend of then as today's functions see it (facade.c) ----

// Buffers that are made through it do not need it any more.
struct gen_facade {
    struct ggml_backend_device dev;
    struct ggml_backend_buffer_type buft;
    struct ggml_backend backend;
    const struct gen_date *date;
    gen_backend_t gen; // NULL: a source alone
    gen_source_t source;
};

void berth_2023_facade_init(struct gen_facade *facade, const struct gen_date *date, gen_backend_t gen, gen_source_t source);
// A failure that is kept for it is forgotten.
void berth_2023_facade_fini(struct gen_facade *facade);

// ---- the scheduler (sched.c) ----

gen_sched_t berth_2023_sched_over(
    const struct gen_date *date, gen_backend_t *backends, const gen_source_t *sources, int n_backends) BERTH_MUST_USE;

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
    gen_source_t grows_on; // who gives it a larger buffer, NULL: nobody
    gen_buffer_t *old;     // [n_old] buffers that were too small: good until the next reset, then without memory
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
    return gen_head(buffer)->is_retired;
}

// Places a tensor, hook included (not while measuring).
void berth_2023_place(struct gen_tallocr *talloc, struct ggml_tensor *tensor, uint64_t off);
// The piece is the tensor's from now on. False: out of memory for the books.
bool berth_2023_take(struct gen_tallocr *talloc, uint64_t off, uint64_t size, const struct ggml_tensor *tensor) BERTH_MUST_USE;
// The tensor's piece at off, NULL: there is none, or it is another tensor's.
struct gen_piece *berth_2023_piece(const struct gen_tallocr *talloc, uint64_t off, const struct ggml_tensor *tensor);
// The tensor's piece, if there is one, is free from now on.
void berth_2023_give(struct gen_tallocr *talloc, uint64_t off, const struct ggml_tensor *tensor);

// Over a buffer, NULL included, which is freed with the allocator, and at once on failure, if it owns it. What it measures has no
// bytes.
gen_tallocr_t berth_2023_tallocr_over(
    gen_buffer_t buffer, bool owns_buffer, bool is_measure, gen_source_t grows_on) BERTH_MUST_USE;

// ---- the allocator of the first generation (allocr.c) ----

// Over a tensor allocator, NULL included, which is freed with it, and at once on failure.
ggml_allocr_t berth_2023_allocr_over(gen_tallocr_t talloc) BERTH_MUST_USE;
