// SPDX-License-Identifier: MIT
// arena.c: memory for the blocks of one file. Small blocks are packed into chunks. A block of LARGE_SIZE bytes or more gets its
// own chunk, so a chunk has at most LARGE_SIZE unused bytes.

#include "gguf/context.h"

#define CHUNK_SIZE ((size_t) 8192)
#define LARGE_SIZE (CHUNK_SIZE / 8)

struct gguf_chunk {
    struct gguf_chunk *next;
    size_t size; // bytes of data
    char data[];
};
_Static_assert(
    sizeof(struct gguf_chunk) == GGUF_CHUNK_HEAD, "berth_gguf_arena_adopt turns the first GGUF_CHUNK_HEAD bytes into this head");

static struct gguf_chunk *chunk_new(struct gguf_arena *arena, size_t size) {
    size_t total;
    if (!berth_add_ok(size, sizeof(struct gguf_chunk), &total)) {
        return NULL;
    }
    struct gguf_chunk *chunk = berth_malloc(total);
    if (chunk != NULL) {
        chunk->size = size;
        arena->total += total;
    }
    return chunk;
}

// Adds a chunk that holds one large block. The chunk is inserted after the first chunk, which is still being filled.
static void *chunk_link(struct gguf_arena *arena, struct gguf_chunk *chunk) {
    if (arena->chunks == NULL) { // this chunk becomes the first one; it is full, so the next small block starts a new chunk
        chunk->next = NULL;
        arena->chunks = chunk;
        arena->used = chunk->size;
    } else {
        chunk->next = arena->chunks->next;
        arena->chunks->next = chunk;
    }
    return chunk->data;
}

void *berth_gguf_arena_adopt(struct gguf_arena *arena, void *block, size_t size) {
    struct gguf_chunk *chunk = berth_realloc(block, GGUF_CHUNK_HEAD + size);
    if (chunk == NULL) { // shrinking failed: the block keeps its size
        chunk = block;
    }
    chunk->size = size;
    arena->total += GGUF_CHUNK_HEAD + size;
    return chunk_link(arena, chunk);
}

void *berth_gguf_arena_take(struct gguf_arena *arena, size_t size, size_t align) {
    BERTH_ASSERT(align > 0 && align <= 16 && (align & (align - 1)) == 0);
    struct gguf_chunk *first = arena->chunks;
    if (size >= LARGE_SIZE) {
        struct gguf_chunk *chunk = chunk_new(arena, size);
        return chunk == NULL ? NULL : chunk_link(arena, chunk);
    }
    const size_t at = (arena->used + align - 1) & ~(align - 1);
    if (first != NULL && at <= first->size && size <= first->size - at) {
        arena->used = at + size;
        return first->data + at;
    }
    struct gguf_chunk *chunk = chunk_new(arena, CHUNK_SIZE - sizeof(struct gguf_chunk));
    if (chunk == NULL) {
        return NULL;
    }
    chunk->next = first;
    arena->chunks = chunk;
    arena->used = size;
    return chunk->data;
}

void berth_gguf_arena_free(struct gguf_arena *arena) {
    while (arena->chunks != NULL) {
        struct gguf_chunk *next = arena->chunks->next;
        berth_free(arena->chunks);
        arena->chunks = next;
    }
    arena->used = 0;
    arena->total = 0;
}
