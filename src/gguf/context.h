// SPDX-License-Identifier: MIT
// context.h: struct gguf_context: two tables of blocks. A block holds one key with its value, or describes one tensor.
//
// A file may contain millions of small keys, so blocks are packed. A context must take less memory than twice the file's header:
//
//     key     | value (aligned to its size) | type, flags | key text, NUL |
//     tensor  | origin (owned only) | ne[4] (unless all are 1) | offset, type, flags | name, NUL |
//
// An item of a table points into a block, at the struct gguf_kv or struct gguf_info. The flags of this struct say which fields
// precede the struct.
//   1. Blocks read from a file are in the arena, which is freed with the context. Blocks that the caller set are owned: each has
//      its own allocation.
//   2. Names in a table are unique. The length of a name is its strlen.
//   3. The offsets have no holes: offset[i + 1] = pad(offset[i] + size[i], alignment). data_size is the last tensor's padded end.
//   4. alignment is the value of the key general.alignment, or 32. It is a power of two.
#pragma once

#include "base/base.h"
#include "base/siphash.h"
#include "gguf.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "GGUF is read and written without byte swapping");

// ---- arena.c: memory for blocks that are freed together ----

struct gguf_chunk;
#define GGUF_CHUNK_HEAD 16

struct gguf_arena {
    struct gguf_chunk *chunks; // list of chunks; the first one is being filled
    size_t used;               // used bytes of the first chunk
    size_t total;              // bytes that the arena has obtained from berth_malloc
};

// align: a power of two up to 16. Large blocks get their own chunk. NULL: out of memory.
void *berth_gguf_arena_take(struct gguf_arena *arena, size_t size, size_t align) BERTH_MUST_USE;
// Takes over a block from berth_malloc and shrinks it to GGUF_CHUNK_HEAD + size bytes. The caller's content starts after the
// first GGUF_CHUNK_HEAD bytes. Returns the new address of the content.
void *berth_gguf_arena_adopt(struct gguf_arena *arena, void *block, size_t size) BERTH_MUST_USE;
void berth_gguf_arena_free(struct gguf_arena *arena);

// ---- table.c: items in order, found by name ----

struct gguf_table {
    void **items;
    size_t n, n_cap;
    uint32_t *slots; // open addressing; index of an item + 1, 0: empty
    size_t n_slots;
    size_t n_expected;            // final number of items; 0: unknown
    size_t name_at;               // bytes from an item to its name
    struct berth_siphash_key key; // random hash key; set with the first slots
};

#define GGUF_TABLE_MAX ((size_t) UINT32_MAX - 1)

int64_t berth_gguf_table_find(const struct gguf_table *table, const char *name); // -1: none
// The name must be new. False: out of memory; the table is unchanged.
bool berth_gguf_table_add(struct gguf_table *table, void *item) BERTH_MUST_USE;
void berth_gguf_table_remove(struct gguf_table *table, size_t i); // cannot fail; later items move up
void berth_gguf_table_fini(struct gguf_table *table);
size_t berth_gguf_table_size(const struct gguf_table *table);

// ---- keys ----

// ARRAY: the value of the key is an array. OWNED: the block has its own allocation. ONES: all extents of the tensor are 1.
enum { GGUF_FLAG_ARRAY = 1, GGUF_FLAG_OWNED = 2, GGUF_FLAG_ONES = 4 };

struct gguf_kv {
    uint8_t type; // enum gguf_type of the value, or of the elements of an array
    uint8_t flags;
    char key[];
};

// X(suffix of gguf_get_val_* and gguf_set_val_*, C type, type in a file).
// clang-format off
#define GGUF_NUMBERS(X) \
    X(u8, uint8_t, GGUF_TYPE_UINT8) X(i8, int8_t, GGUF_TYPE_INT8) X(u16, uint16_t, GGUF_TYPE_UINT16) X(i16, int16_t, GGUF_TYPE_INT16) \
    X(u32, uint32_t, GGUF_TYPE_UINT32) X(i32, int32_t, GGUF_TYPE_INT32) X(f32, float, GGUF_TYPE_FLOAT32) X(u64, uint64_t, GGUF_TYPE_UINT64) \
    X(i64, int64_t, GGUF_TYPE_INT64) X(f64, double, GGUF_TYPE_FLOAT64) X(bool, bool, GGUF_TYPE_BOOL)
// clang-format on

struct gguf_list {
    size_t n;           // elements; for a string its bytes without NUL
    const void *data;   // numbers, or text with a NUL after each string
    const size_t *ends; // arrays of strings only: offset in data after the NUL of each string
};

// Returns the size in bytes of the value, which precedes the kv in its block. The value is a number or a gguf_list. Only an array
// of strings has the last field of gguf_list, `ends`.
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
    uint64_t offset; // bytes from the start of the data section
    uint8_t type;
    uint8_t flags;
    char name[];
};

// Where the data of a tensor is read from when a file is written.
struct gguf_origin {
    const void *data;
    struct ggml_backend_buffer *buffer; // NULL: data is in host memory
};

extern const int64_t berth_gguf_ones[GGML_MAX_DIMS];

static inline const int64_t *berth_gguf_info_ne(const struct gguf_info *info) {
    return info->flags & GGUF_FLAG_ONES ? berth_gguf_ones : (const int64_t *) info - GGML_MAX_DIMS;
}
// Returns the origin of the tensor's data. The origin is the start of the block that holds the info, so the result is also the
// pointer to free. Returns NULL unless the block has its own allocation (GGUF_FLAG_OWNED).
static inline struct gguf_origin *berth_gguf_info_origin(const struct gguf_info *info) {
    return info->flags & GGUF_FLAG_OWNED ? (struct gguf_origin *) ((char *) info - GGML_MAX_DIMS * sizeof(int64_t)) - 1 : NULL;
}

// Computes the bytes of a tensor. False: the type does not exist, an extent is negative, the row is not a multiple of the block
// size, or a number exceeds 63 bits. An extent of 0 gives 0 bytes, but all extents are checked.
bool berth_gguf_nbytes(enum ggml_type type, const int64_t ne[GGML_MAX_DIMS], size_t *size) BERTH_MUST_USE;

// ---- the context ----

struct gguf_context {
    uint32_t version;
    size_t alignment;
    size_t data_offset; // position of the data section in the file that was read; 0: no file
    size_t data_size;   // bytes of all tensors, each padded
    void *data;         // data that was read, in the ggml_context of the tensors; NULL: none
    struct gguf_table kv;
    struct gguf_table info;
    struct gguf_arena arena;
};

// Returns the allocated bytes, without blocks that the caller set.
size_t berth_gguf_memory(const struct gguf_context *ctx);

// If the id is invalid, both functions call berth_fail with the name `caller` and return NULL.
const struct gguf_kv *berth_gguf_kv_at(const struct gguf_context *ctx, int64_t id, const char *caller);
const struct gguf_info *berth_gguf_info_at(const struct gguf_context *ctx, int64_t id, const char *caller);

// Sets the alignment, and recomputes the offsets of the tensors i_first, i_first + 1, ... and data_size. False, with the error
// set: the data would exceed 63 bits; the context is unchanged.
bool berth_gguf_offsets(struct gguf_context *ctx, size_t alignment, size_t i_first) BERTH_MUST_USE;
