// SPDX-License-Identifier: MIT
// compat2023.h: the internal interface of the 2023 API (include/2023).
// The macros below rename the public structs to gen_*, because the current API has structs with the same names.
//   - A date is the month of the ggml API for which a program was written (BERTH_2023=YYYYMM): 202311, 202312 or 202402.
//   - A source is the object that allocates buffers: a backend at date 202311, a buffer type at the later dates.
//   - A 2023 buffer or 2023 backend is a buffer or backend of any of the three dates.
// The layout of the public structs differs between dates. Only date.h accesses their fields. Other files call the functions in
// struct gen_date.
// A 2023 buffer starts with struct gen_head, which starts with a current buffer. So tensor->buffer is valid for both APIs.
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
#ifdef BERTH_2023_LAYOUT                // date.h includes the structs of its date, too
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

// ---- buffers (backend.c) ----

struct gen_head {
    struct ggml_backend_buffer today;     // this buffer in the current API; tensor->buffer points to it
    struct ggml_backend_buffer_type type; // buffer type of the current API, for this buffer only
    const struct gen_date *date;
    size_t align;
    bool is_measure; // the addresses have no memory, because the buffer only measures or is retired
    bool is_retired; // memory freed; tensors may still point to it
};

// The functions that access the structs of one date. At date 202311, a buffer that no backend owns has the source NULL.
struct gen_date {
    int number; // value of BERTH_2023
    // buffers
    void *(*base)(gen_buffer_t buffer);
    size_t (*size)(gen_buffer_t buffer);
    size_t (*alloc_size)(gen_buffer_t buffer, struct ggml_tensor *tensor); // 0: ggml_nbytes of the tensor
    void (*init_tensor)(gen_buffer_t buffer, struct ggml_tensor *tensor);
    void (*free_tensor)(gen_buffer_t buffer, struct ggml_tensor *tensor);
    void (*set)(gen_buffer_t buffer, struct ggml_tensor *tensor, const void *data, size_t offset, size_t size);
    void (*get)(gen_buffer_t buffer, const struct ggml_tensor *tensor, void *data, size_t offset, size_t size);
    bool (*copy)(struct ggml_tensor *src,
        struct ggml_tensor *dst); // without a copy in host memory; false: not supported. dst is in a buffer of this date
    bool (*clear)(gen_buffer_t buffer, uint8_t value); // false: not supported
    void (*reset)(gen_buffer_t buffer);
    void (*release)(gen_buffer_t buffer); // frees the memory and clears the functions of the struct
    const char *(*buffer_name)(gen_buffer_t buffer);
    bool (*pulls_ops)(gen_buffer_t buffer); // true: ops that read leaves in this buffer should run on its backend
    gen_source_t (*source_of)(gen_buffer_t buffer);
    // sources
    const char *(*source_name)(gen_source_t source);
    gen_buffer_t (*alloc)(gen_source_t source, size_t size);
    gen_buffer_t (*measure)(
        gen_source_t source); // a buffer without memory, with the tensor sizes and the alignment of the source
    size_t (*source_align)(gen_source_t source);
    size_t (*source_alloc_size)(gen_source_t source, const struct ggml_tensor *tensor);
    size_t (*source_max_size)(gen_source_t source);
    bool (*is_host)(gen_source_t source);
    bool (*reads)(gen_backend_t backend, gen_source_t source); // true: the backend can read buffers of the source
    // backends
    const char *(*name)(gen_backend_t backend);
    bool (*is_cpu)(gen_backend_t backend);
    bool (*supports_op)(gen_backend_t backend, const struct ggml_tensor *op);
    enum ggml_status (*compute)(gen_backend_t backend, struct ggml_cgraph *graph);
    void (*synchronize)(gen_backend_t backend);
};

// Initialises the head of a buffer. date.h sets the other fields.
void berth_2023_buffer_head(gen_buffer_t buffer, const struct gen_date *date, size_t align, size_t size);
// Returns NULL if the buffer belongs to the current API only.
gen_buffer_t berth_2023_buffer_of(const struct ggml_backend_buffer *buffer);
// Returns NULL if no 2023 buffer contains this type.
gen_buffer_t berth_2023_buffer_of_type(const struct ggml_backend_buffer_type *type);
// If the tensor has no memory, returns false and sets an error with the tensor's name.
bool berth_2023_has_memory(gen_buffer_t buffer, const struct ggml_tensor *tensor) BERTH_MUST_USE;
// Frees the memory of a buffer and keeps the struct, because tensors may still point to it.
void berth_2023_buffer_retire(gen_buffer_t buffer);
// Fills the results of a failed graph with NaN (bytes of 0xff), so that no caller takes them for valid results.
void berth_2023_spoil(const struct ggml_cgraph *graph);
// Calls berth_2023_spoil on failure.
enum ggml_status berth_2023_compute(const struct gen_date *date, gen_backend_t backend, struct ggml_cgraph *graph) BERTH_MUST_USE;
// Returns an aligned address for buffers without memory. The address is never accessed.
void *berth_2023_measure_base(size_t align);

static inline struct gen_head *gen_head(gen_buffer_t buffer) {
    return (struct gen_head *) (void *) buffer;
}

static inline ggml_backend_buffer_t gen_today(gen_buffer_t buffer) {
    return (ggml_backend_buffer_t) (void *) buffer;
}

// ---- adapters from the 2023 API to the current API (facade.c) ----

// A 2023 backend as a device, a buffer type and a backend of the current API.
// Buffers that the facade allocates stay valid after the facade is freed.
struct gen_facade {
    struct ggml_backend_device dev;
    struct ggml_backend_buffer_type buft;
    struct ggml_backend backend;
    const struct gen_date *date;
    gen_backend_t gen; // NULL: only a source
    gen_source_t source;
};

void berth_2023_facade_init(struct gen_facade *facade, const struct gen_date *date, gen_backend_t gen, gen_source_t source);
// Also discards an error that is stored for facade->backend.
void berth_2023_facade_fini(struct gen_facade *facade);

// ---- the scheduler (sched.c) ----

gen_sched_t berth_2023_sched_over(
    const struct gen_date *date, gen_backend_t *backends, const gen_source_t *sources, int n_backends) BERTH_MUST_USE;

// ---- tensor allocators (tallocr.c) ----

// An allocated piece of a buffer. Pieces are sorted by offset and do not overlap.
struct gen_piece {
    uint64_t off, size;
    const struct ggml_tensor *tensor; // only compared: it may be freed
};

struct gen_tallocr {
    gen_buffer_t buffer;
    size_t align;
    uint64_t start;    // first aligned offset from the buffer's base
    uint64_t capacity; // bytes of the buffer; UINT64_MAX while measuring
    uint64_t peak;     // highest end of a piece, in bytes; includes failed requests
    bool is_measure;
    bool owns_buffer;
    gen_source_t grows_on; // source of a larger buffer; NULL: cannot grow
    gen_buffer_t *old;     // [n_old] outgrown buffers; the next reset retires them
    size_t n_old, old_cap;
    struct gen_piece *pieces;
    size_t n_pieces, pieces_cap;
};

// Replaces the allocator's buffer by one of `need` bytes. The pieces keep their offsets from `start`.
// Tensors in the old buffer keep their addresses. If no buffer is available, returns false and changes nothing.
bool berth_2023_grow(struct gen_tallocr *talloc, uint64_t need) BERTH_MUST_USE;
// Returns the outgrown buffer of the allocator whose head (struct gen_head) is at `buffer`. NULL: the allocator has none.
gen_buffer_t berth_2023_old(const struct gen_tallocr *talloc, const struct ggml_backend_buffer *buffer);
static inline bool gen_is_retired(gen_buffer_t buffer) {
    return gen_head(buffer)->is_retired;
}

// Gives the tensor the address at offset `off` of the allocator's buffer. While measuring, does not call the buffer's
// init_tensor.
void berth_2023_place(struct gen_tallocr *talloc, struct ggml_tensor *tensor, uint64_t off);
// Adds a piece. Returns false if out of memory for the list of pieces.
bool berth_2023_take(struct gen_tallocr *talloc, uint64_t off, uint64_t size, const struct ggml_tensor *tensor) BERTH_MUST_USE;
// Returns NULL if no piece is at off, or if the piece belongs to another tensor.
struct gen_piece *berth_2023_piece(const struct gen_tallocr *talloc, uint64_t off, const struct ggml_tensor *tensor);
// Removes the piece that berth_2023_piece returns, if there is one.
void berth_2023_give(struct gen_tallocr *talloc, uint64_t off, const struct ggml_tensor *tensor);

// The buffer may be NULL. If owns_buffer, the allocator frees the buffer, also if this function fails.
// With is_measure, the returned addresses have no memory.
gen_tallocr_t berth_2023_tallocr_over(
    gen_buffer_t buffer, bool owns_buffer, bool is_measure, gen_source_t grows_on) BERTH_MUST_USE;

// ---- the allocator of the first generation (allocr.c) ----

// The tensor allocator may be NULL. The new allocator frees it, also if this function fails.
ggml_allocr_t berth_2023_allocr_over(gen_tallocr_t talloc) BERTH_MUST_USE;
