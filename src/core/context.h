// SPDX-License-Identifier: MIT
// context.h: the arena that holds the tensors and graphs of a ggml_context.
#pragma once

#include "base/base.h"

// The object's data starts at arena + offs. `next` links the objects in the order of creation.
struct ggml_object {
    size_t offs; // bytes from the start of the arena to the data
    size_t size; // bytes of data, a multiple of GGML_MEM_ALIGN
    struct ggml_object *next;
    enum ggml_object_type type;
    char padding[4];
};

#define GGML_OBJECT_SIZE sizeof(struct ggml_object)

_Static_assert(sizeof(struct ggml_object) == 32, "ggml_tensor_overhead() is part of the ABI");

#define BERTH_CONTEXT_ERROR_SIZE 384

struct ggml_context {
    size_t mem_size;       // bytes of the arena
    char *mem_buffer;      // start of the arena, aligned to GGML_MEM_ALIGN
    void *mem_given;       // pointer before alignment, from allocator or caller
    bool mem_buffer_owned; // ggml_init allocated mem_given
    bool no_alloc;
    int n_objects;
    struct ggml_object *objects_begin;
    struct ggml_object *objects_end;
    struct ggml_tensor poison;            // the result of failed constructors (op.h); not in the arena, which may be full
    char error[BERTH_CONTEXT_ERROR_SIZE]; // the first error of the context; poison.extra points here
};

// If the arena is full, returns NULL and sets the context's error.
struct ggml_object *berth_object_new(struct ggml_context *ctx, enum ggml_object_type type, size_t size);

static inline void *berth_object_data(const struct ggml_context *ctx, const struct ggml_object *obj) {
    return ctx->mem_buffer + obj->offs;
}
