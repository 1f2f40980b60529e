// SPDX-License-Identifier: MIT
// context.h: what a gguf_context holds: two tables of named blocks, one for keys and one for tensors.
//
// The blocks are packed, since a file may hold millions of small keys and the context has to stay below twice the file's header:
//
//     key     | value (aligned to its size) | type, flags | key text, NUL |
//     tensor  | origin (owned only) | ne[4] (unless all are 1) | offset, type, flags | name, NUL |
//
// A table's item points at the fixed part in the middle; what lies before it is found by the flags.
//   1. Blocks of a file lie in the arena and go with the context; blocks set by the caller are owned: allocated and freed alone.
//   2. Names in a table are unique and not longer than their strlen says.
//   3. Offsets of tensors run without holes: offset[i + 1] = pad(offset[i] + size[i], alignment); data_size ends the last.
//   4. alignment is what the key general.alignment says, or 32; a power of two.
#pragma once

#include "base/base.h"
#include "base/siphash.h"
#include "gguf.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "GGUF is read and written as it lies in memory");

// ---- arena.c: memory for blocks that go together ----

struct gguf_chunk;
#define GGUF_CHUNK_HEAD 16

struct gguf_arena {
    struct gguf_chunk *chunks; // the first one is being filled
    size_t used;               // bytes of it
    size_t total;              // bytes taken from the allocator
};

// align: a power of two up to 16. NULL: out of memory. Small pieces share chunks, large ones have their own.
void *berth_gguf_arena_take(struct gguf_arena *arena, size_t size, size_t align) BERTH_MUST_USE;
// Takes over a block of berth_malloc, whose size bytes behind the first GGUF_CHUNK_HEAD are the piece, and shrinks it to fit.
void *berth_gguf_arena_adopt(struct gguf_arena *arena, void *block, size_t size) BERTH_MUST_USE;
void berth_gguf_arena_free(struct gguf_arena *arena);

// ---- table.c: items in their order, found by name ----

struct gguf_table {
    void **items;
    size_t n, n_cap;
    uint32_t *slots; // open addressing; index of an item + 1, 0 for none
    size_t n_slots;
    size_t n_expected;            // how many there will be, 0 if unknown: growing stops there
    size_t name_at;               // bytes from an item to its name
    struct berth_siphash_key key; // of the names' hash, from the first slot on
};

#define GGUF_TABLE_MAX ((size_t) UINT32_MAX - 1)

int64_t berth_gguf_table_find(const struct gguf_table *table, const char *name); // -1: none
// The name must be new. False: out of memory, nothing changed.
bool berth_gguf_table_add(struct gguf_table *table, void *item) BERTH_MUST_USE;
void berth_gguf_table_remove(struct gguf_table *table, size_t i); // cannot fail; the later ones move up
void berth_gguf_table_fini(struct gguf_table *table);
size_t berth_gguf_table_size(const struct gguf_table *table);

// ---- keys ----

enum { GGUF_FLAG_ARRAY = 1, GGUF_FLAG_OWNED = 2, GGUF_FLAG_ONES = 4 };

struct gguf_kv {
    uint8_t type; // enum gguf_type of the value, of the elements for an array
    uint8_t flags;
    char key[];
};

// Types of numbers: the suffix of their functions, in C, in a file.
// clang-format off
#define GGUF_NUMBERS(X) \
    X(u8, uint8_t, GGUF_TYPE_UINT8) X(i8, int8_t, GGUF_TYPE_INT8) X(u16, uint16_t, GGUF_TYPE_UINT16) X(i16, int16_t, GGUF_TYPE_INT16) \
    X(u32, uint32_t, GGUF_TYPE_UINT32) X(i32, int32_t, GGUF_TYPE_INT32) X(f32, float, GGUF_TYPE_FLOAT32) X(u64, uint64_t, GGUF_TYPE_UINT64) \
    X(i64, int64_t, GGUF_TYPE_INT64) X(f64, double, GGUF_TYPE_FLOAT64) X(bool, bool, GGUF_TYPE_BOOL)
// clang-format on

// The value of what is no number.
struct gguf_list {
    size_t n;           // elements; for a string its bytes without NUL
    const void *data;   // numbers, or text with a NUL after each string
    const size_t *ends; // array of strings only: where each ends in data, past its NUL
};

// Bytes before a kv: its number, or a gguf_list (without `ends` where there are none).
static inline size_t berth_gguf_kv_before(const struct gguf_kv *kv) {
    if (kv->flags & GGUF_FLAG_ARRAY) {
        return kv->type == GGUF_TYPE_STRING ? sizeof(struct gguf_list) : offsetof(struct gguf_list, ends);
    }
    return kv->type == GGUF_TYPE_STRING ? offsetof(struct gguf_list, ends) : gguf_type_size((enum gguf_type) kv->type);
}
static inline void *berth_gguf_kv_value(const struct gguf_kv *kv) {
    return (char *) kv - berth_gguf_kv_before(kv);
}

// ---- tensors ----

struct gguf_info {
    uint64_t offset; // of the data, from the start of the data section
    uint8_t type;
    uint8_t flags;
    char name[];
};

// Where the data to write comes from.
struct gguf_origin {
    const void *data;
    struct ggml_backend_buffer *buffer; // NULL: data is memory of the host
};

extern const int64_t berth_gguf_ones[GGML_MAX_DIMS];

static inline const int64_t *berth_gguf_info_ne(const struct gguf_info *info) {
    return info->flags & GGUF_FLAG_ONES ? berth_gguf_ones : (const int64_t *) info - GGML_MAX_DIMS;
}
// NULL unless owned.
static inline struct gguf_origin *berth_gguf_info_origin(const struct gguf_info *info) {
    return info->flags & GGUF_FLAG_OWNED ? (struct gguf_origin *) ((char *) info - GGML_MAX_DIMS * sizeof(int64_t)) - 1 : NULL;
}

// Bytes of a tensor; false if the type does not exist, an extent is negative, one but the first is 0 (other readers refuse or
// divide by it), the row is no whole number of blocks, or a number passes 63 bits.
bool berth_gguf_nbytes(enum ggml_type type, const int64_t ne[GGML_MAX_DIMS], size_t *size) BERTH_MUST_USE;

// ---- the context ----

struct gguf_context {
    uint32_t version;
    size_t alignment;
    size_t data_offset; // in the file it was read from; 0 if there is none
    size_t data_size;   // of all tensors, each padded
    void *data;         // what was read of it, in the context of tensors that came with this one; NULL: nothing
    struct gguf_table kv;
    struct gguf_table info;
    struct gguf_arena arena;
};

// Bytes the context holds from the allocator, blocks set by the caller apart.
size_t berth_gguf_memory(const struct gguf_context *ctx);

// Item of a valid id; NULL after berth_fail with the name of the calling function.
const struct gguf_kv *berth_gguf_kv_at(const struct gguf_context *ctx, int64_t id, const char *caller);
const struct gguf_info *berth_gguf_info_at(const struct gguf_context *ctx, int64_t id, const char *caller);

// Gives the tensors from i_first on their offsets again. False, with the error set, if the sum passes 63 bits.
bool berth_gguf_offsets(struct gguf_context *ctx, size_t alignment, size_t i_first) BERTH_MUST_USE;
