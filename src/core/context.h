// SPDX-License-Identifier: MIT
// context.h: the arena that tensors and graphs live in.
#pragma once

#include "base/base.h"

// An object's header; its data follows at arena + offs. The list runs in the order of creation.
struct ggml_object {
    size_t offs; // from the arena's start to the data
    size_t size; // of the data, a multiple of GGML_MEM_ALIGN
    struct ggml_object *next;
    enum ggml_object_type type;
    char padding[4];
};

#define GGML_OBJECT_SIZE sizeof(struct ggml_object)

_Static_assert(sizeof(struct ggml_object) == 32, "ggml_tensor_overhead() is part of the ABI");

#define BERTH_CONTEXT_ERROR_SIZE 384

struct ggml_context {
    size_t mem_size;       // bytes of the arena
    char *mem_buffer;      // its start, aligned to GGML_MEM_ALIGN
    void *mem_given;       // what to free, or the caller's pointer
    bool mem_buffer_owned; // mem_given was allocated by ggml_init
    bool no_alloc;
    int n_objects;
    struct ggml_object *objects_begin;
    struct ggml_object *objects_end;
    struct ggml_tensor poison;            // outside the arena, so that it exists when the arena is full
    char error[BERTH_CONTEXT_ERROR_SIZE]; // the first error; poison.extra points here
};

// Room for size bytes in the arena; NULL when it is full, with the context's error set.
struct ggml_object *berth_object_new(struct ggml_context *ctx, enum ggml_object_type type, size_t size);

static inline void *berth_object_data(const struct ggml_context *ctx, const struct ggml_object *obj) {
    return ctx->mem_buffer + obj->offs;
}
