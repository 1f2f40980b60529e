// SPDX-License-Identifier: MIT
// context.c: creates and frees a gguf_context, and answers queries about it.

#include "gguf/context.h"

struct gguf_context *gguf_init_empty(void) {
    struct gguf_context *ctx = berth_calloc(1, sizeof *ctx);
    if (ctx == NULL) {
        return BERTH_FAIL_NULL(GGML_STATUS_ALLOC_FAILED, "gguf: out of memory: %zu bytes for a context", sizeof *ctx);
    }
    ctx->version = GGUF_VERSION;
    ctx->alignment = GGUF_DEFAULT_ALIGNMENT;
    ctx->kv.name_at = offsetof(struct gguf_kv, key);
    ctx->info.name_at = offsetof(struct gguf_info, name);
    return ctx;
}

void gguf_free(struct gguf_context *ctx) {
    if (ctx == NULL) {
        return;
    }
    for (size_t i = 0; i < ctx->kv.n; i++) {
        const struct gguf_kv *kv = ctx->kv.items[i];
        if (kv->flags & GGUF_FLAG_OWNED) {
            berth_free(berth_gguf_kv_value(kv));
        }
    }
    for (size_t i = 0; i < ctx->info.n; i++) {
        // A block with its own allocation begins with the origin. Other infos are in the arena and have the origin NULL.
        berth_free(berth_gguf_info_origin(ctx->info.items[i]));
    }
    berth_gguf_table_fini(&ctx->kv);
    berth_gguf_table_fini(&ctx->info);
    berth_gguf_arena_free(&ctx->arena);
    berth_free(ctx);
}

size_t berth_gguf_memory(const struct gguf_context *ctx) {
    return sizeof *ctx + ctx->arena.total + berth_gguf_table_size(&ctx->kv) + berth_gguf_table_size(&ctx->info);
}

static const struct type_row {
    const char *name;
    size_t size;
} types[GGUF_TYPE_COUNT] = {
    [GGUF_TYPE_UINT8] = {"u8", 1},
    [GGUF_TYPE_INT8] = {"i8", 1},
    [GGUF_TYPE_UINT16] = {"u16", 2},
    [GGUF_TYPE_INT16] = {"i16", 2},
    [GGUF_TYPE_UINT32] = {"u32", 4},
    [GGUF_TYPE_INT32] = {"i32", 4},
    [GGUF_TYPE_FLOAT32] = {"f32", 4},
    [GGUF_TYPE_BOOL] = {"bool", 1},
    [GGUF_TYPE_STRING] = {"str", 0},
    [GGUF_TYPE_ARRAY] = {"arr", 0},
    [GGUF_TYPE_UINT64] = {"u64", 8},
    [GGUF_TYPE_INT64] = {"i64", 8},
    [GGUF_TYPE_FLOAT64] = {"f64", 8},
};

const char *gguf_type_name(enum gguf_type type) {
    return (unsigned) type < GGUF_TYPE_COUNT ? types[type].name : NULL;
}

size_t gguf_type_size(enum gguf_type type) {
    return (unsigned) type < GGUF_TYPE_COUNT ? types[type].size : 0;
}

// ggml's header declares gguf_type_size outside of extern "C". C++ programs therefore link to the C++ name.
GGML_API size_t gguf_type_size_cxx(enum gguf_type type) __asm__("_Z14gguf_type_size9gguf_type")
    __attribute__((alias("gguf_type_size")));

static bool ctx_is_given(const struct gguf_context *ctx, const char *caller) {
    if (ctx == NULL) {
        berth_fail(GGML_STATUS_FAILED, "%s: the context is NULL", caller);
    }
    return ctx != NULL;
}

uint32_t gguf_get_version(const struct gguf_context *ctx) {
    return ctx_is_given(ctx, __func__) ? ctx->version : 0;
}

size_t gguf_get_alignment(const struct gguf_context *ctx) {
    return ctx_is_given(ctx, __func__) ? ctx->alignment : 0;
}

size_t gguf_get_data_offset(const struct gguf_context *ctx) {
    return ctx_is_given(ctx, __func__) ? ctx->data_offset : 0;
}

int64_t gguf_get_n_kv(const struct gguf_context *ctx) {
    return ctx_is_given(ctx, __func__) ? (int64_t) ctx->kv.n : 0;
}

int64_t gguf_get_n_tensors(const struct gguf_context *ctx) {
    return ctx_is_given(ctx, __func__) ? (int64_t) ctx->info.n : 0;
}

static const void *item_at(const struct gguf_table *table, int64_t id, const char *caller, const char *what) {
    if (id < 0 || (uint64_t) id >= table->n) {
        return BERTH_FAIL_NULL(
            GGML_STATUS_FAILED, "%s: there is no %s %lld, the context has %zu", caller, what, (long long) id, table->n);
    }
    return table->items[id];
}

const struct gguf_kv *berth_gguf_kv_at(const struct gguf_context *ctx, int64_t id, const char *caller) {
    return ctx_is_given(ctx, caller) ? item_at(&ctx->kv, id, caller, "key") : NULL;
}

const struct gguf_info *berth_gguf_info_at(const struct gguf_context *ctx, int64_t id, const char *caller) {
    return ctx_is_given(ctx, caller) ? item_at(&ctx->info, id, caller, "tensor") : NULL;
}

static int64_t table_find(const struct gguf_table *table, const char *name, const char *caller) {
    if (name == NULL) {
        berth_fail(GGML_STATUS_FAILED, "%s: the name is NULL", caller);
        return -1;
    }
    return berth_gguf_table_find(table, name);
}

int64_t gguf_find_key(const struct gguf_context *ctx, const char *key) {
    return ctx_is_given(ctx, __func__) ? table_find(&ctx->kv, key, __func__) : -1;
}

int64_t gguf_find_tensor(const struct gguf_context *ctx, const char *name) {
    return ctx_is_given(ctx, __func__) ? table_find(&ctx->info, name, __func__) : -1;
}
