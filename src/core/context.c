// SPDX-License-Identifier: MIT
// context.c: arenas for tensors and graphs, and the poison tensor that carries the first error of an arena.
// Objects have no gaps: used memory = offs + size of the last object. Adding an object takes O(1) time.

#include "core/context.h"

#include "base/min.h"
#include "core/op.h"

#include <stdio.h>

// ---- poison ----

static void poison_init(struct ggml_context *ctx) {
    ctx->poison = (struct ggml_tensor){.type = GGML_TYPE_F32, .flags = BERTH_FLAG_POISON, .name = "poison", .extra = ctx->error};
    ctx->poison.nb[0] = sizeof(float);
    for (int i = 0; i < GGML_MAX_DIMS; i++) {
        ctx->poison.ne[i] = 1;
        ctx->poison.nb[i] = sizeof(float);
    }
    ctx->error[0] = '\0';
}

bool berth_is_poison(const struct ggml_tensor *tensor) {
    return tensor != NULL && berth_poisoned(tensor);
}

const char *berth_context_error(const struct ggml_context *ctx) {
    return ctx != NULL ? ctx->error : "";
}

const char *berth_poison_error(const struct ggml_tensor *tensor) {
    return berth_is_poison(tensor) ? (const char *) tensor->extra : "";
}

// Sets the context's error only if there is none yet. Always sets the thread's last error.
static struct ggml_tensor *poison_record(struct ggml_context *ctx, const char *text) {
    if (ctx == NULL) {
        berth_set_error("%s", text);
        return NULL;
    }
    if (ctx->error[0] != '\0') {
        berth_set_error("%s", text);
        return &ctx->poison;
    }
    snprintf(ctx->error, sizeof ctx->error, "%s", text);
    berth_fail(GGML_STATUS_FAILED, "%s", text);
    return &ctx->poison;
}

struct ggml_tensor *berth_poison(struct ggml_context *ctx, const char *func, const char *fmt, ...) {
    char text[BERTH_CONTEXT_ERROR_SIZE];
    int n = snprintf(text, sizeof text, "%s: ", func);
    va_list args;
    va_start(args, fmt);
    vsnprintf(text + n, sizeof text - (size_t) n, fmt, args);
    va_end(args);
    return poison_record(ctx, text);
}

struct ggml_tensor *berth_poison_spread(struct ggml_context *ctx, const char *func, const struct ggml_tensor *bad) {
    if (ctx == NULL) {
        return berth_poison(ctx, func, "the context is NULL");
    }
    if (bad == NULL) {
        return berth_poison(ctx, func, "a source tensor is NULL");
    }
    if (ctx->error[0] == '\0') {
        return poison_record(ctx, berth_poison_error(bad));
    }
    return &ctx->poison;
}

// ---- life of a context ----

struct ggml_context *ggml_init(struct ggml_init_params params) {
    const bool owned = params.mem_buffer == NULL;
    size_t size = params.mem_size == 0 ? GGML_MEM_ALIGN : params.mem_size;
    if (owned && !berth_pad_ok(size, GGML_MEM_ALIGN, &size)) {
        return BERTH_FAIL_NULL(GGML_STATUS_ALLOC_FAILED, "ggml_init: %zu bytes exceed the address space", params.mem_size);
    }
    struct ggml_context *ctx = berth_malloc(sizeof *ctx);
    void *given = owned ? berth_aligned_alloc(64, size) : params.mem_buffer;
    if (ctx == NULL || given == NULL) {
        berth_fail(GGML_STATUS_ALLOC_FAILED, "ggml_init: out of memory for a context of %zu bytes", size);
        if (owned) {
            berth_aligned_free(given);
        }
        berth_free(ctx);
        return NULL;
    }
    // A caller's memory may start at any address. The first object starts at the first aligned byte.
    const size_t skip = (size_t) (-(uintptr_t) given & (GGML_MEM_ALIGN - 1));
    const size_t have = owned ? size : params.mem_size;

    ctx->mem_given = given;
    ctx->mem_buffer = (char *) given + min_size(skip, have);
    ctx->mem_size = have - min_size(skip, have);
    ctx->mem_buffer_owned = owned;
    ctx->no_alloc = params.no_alloc;
    poison_init(ctx);
    ggml_reset(ctx);
    return ctx;
}

void ggml_reset(struct ggml_context *ctx) {
    if (ctx == NULL) {
        return;
    }
    ctx->n_objects = 0;
    ctx->objects_begin = NULL;
    ctx->objects_end = NULL;
    ctx->error[0] = '\0';
}

void ggml_free(struct ggml_context *ctx) {
    if (ctx == NULL) {
        return;
    }
    if (ctx->mem_buffer_owned) {
        berth_aligned_free(ctx->mem_given);
    }
    berth_free(ctx);
}

size_t ggml_used_mem(const struct ggml_context *ctx) {
    return ctx == NULL || ctx->objects_end == NULL ? 0 : ctx->objects_end->offs + ctx->objects_end->size;
}

bool ggml_get_no_alloc(struct ggml_context *ctx) {
    return ctx != NULL && ctx->no_alloc;
}

void ggml_set_no_alloc(struct ggml_context *ctx, bool no_alloc) {
    if (ctx != NULL) {
        ctx->no_alloc = no_alloc;
    }
}

void *ggml_get_mem_buffer(const struct ggml_context *ctx) {
    return ctx != NULL ? ctx->mem_given : NULL;
}

size_t ggml_get_mem_size(const struct ggml_context *ctx) {
    return ctx != NULL ? ctx->mem_size : 0;
}

// ---- objects ----

static struct ggml_object *arena_full(struct ggml_context *ctx, size_t size, size_t used) {
    berth_poison(ctx, "context", "arena is full: %zu bytes needed, %zu of %zu left", size, ctx->mem_size - used, ctx->mem_size);
    return NULL;
}

struct ggml_object *berth_object_new(struct ggml_context *ctx, enum ggml_object_type type, size_t size) {
    const size_t used = ggml_used_mem(ctx);
    size_t data_size, need;
    if (BERTH_UNLIKELY(!berth_pad_ok(size, GGML_MEM_ALIGN, &data_size) || !berth_add_ok(data_size, GGML_OBJECT_SIZE, &need))) {
        return arena_full(ctx, SIZE_MAX, used);
    }
    if (BERTH_UNLIKELY(need > ctx->mem_size - used)) {
        return arena_full(ctx, need, used);
    }
    struct ggml_object *obj = (struct ggml_object *) (void *) (ctx->mem_buffer + used);

    *obj = (struct ggml_object){.offs = used + GGML_OBJECT_SIZE, .size = data_size, .next = NULL, .type = type};
    if (ctx->objects_end != NULL) {
        ctx->objects_end->next = obj;
    } else {
        ctx->objects_begin = obj;
    }
    ctx->objects_end = obj;
    ctx->n_objects++;
    return obj;
}

void *ggml_new_buffer(struct ggml_context *ctx, size_t nbytes) {
    struct ggml_object *obj = ctx != NULL ? berth_object_new(ctx, GGML_OBJECT_TYPE_WORK_BUFFER, nbytes) : NULL;
    return obj != NULL ? berth_object_data(ctx, obj) : NULL;
}

void ggml_print_object(const struct ggml_object *obj) {
    if (obj != NULL) {
        berth_log(GGML_LOG_LEVEL_INFO, " - ggml_object: type = %d, offset = %zu, size = %zu, next = %p\n", (int) obj->type,
            obj->offs, obj->size, (void *) obj->next);
    }
}

void ggml_print_objects(const struct ggml_context *ctx) {
    if (ctx == NULL) {
        return;
    }
    berth_log(GGML_LOG_LEVEL_INFO, "objects in context %p: %d\n", (const void *) ctx, ctx->n_objects);
    for (const struct ggml_object *obj = ctx->objects_begin; obj != NULL; obj = obj->next) {
        ggml_print_object(obj);
    }
}

// ---- the tensors in a context ----

static struct ggml_tensor *tensor_from(const struct ggml_context *ctx, const struct ggml_object *obj) {
    while (obj != NULL && obj->type != GGML_OBJECT_TYPE_TENSOR) {
        obj = obj->next;
    }
    return obj != NULL ? berth_object_data(ctx, obj) : NULL;
}

struct ggml_tensor *ggml_get_first_tensor(const struct ggml_context *ctx) {
    return ctx != NULL ? tensor_from(ctx, ctx->objects_begin) : NULL;
}

struct ggml_tensor *ggml_get_next_tensor(const struct ggml_context *ctx, struct ggml_tensor *tensor) {
    if (ctx == NULL || tensor == NULL || tensor == &ctx->poison) {
        return NULL;
    }
    const struct ggml_object *obj = (const struct ggml_object *) (const void *) ((const char *) tensor - GGML_OBJECT_SIZE);
    return tensor_from(ctx, obj->next);
}

struct ggml_tensor *ggml_get_tensor(struct ggml_context *ctx, const char *name) {
    if (name == NULL) {
        return NULL;
    }
    for (struct ggml_tensor *t = ggml_get_first_tensor(ctx); t != NULL; t = ggml_get_next_tensor(ctx, t)) {
        if (strcmp(t->name, name) == 0) {
            return t;
        }
    }
    return NULL;
}

size_t ggml_get_max_tensor_size(const struct ggml_context *ctx) {
    size_t max = 0;
    for (struct ggml_tensor *t = ggml_get_first_tensor(ctx); t != NULL; t = ggml_get_next_tensor(ctx, t)) {
        max = max_size(ggml_nbytes(t), max);
    }
    return max;
}
