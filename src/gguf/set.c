// SPDX-License-Identifier: MIT
// set.c: sets and removes keys. A key that is set becomes the last one. A failed allocation leaves the context unchanged.

#include "gguf/context.h"

#include <string.h>

struct value {
    enum gguf_type type;
    bool is_array;
    size_t n;
    const void *data;           // numbers, or the text of all strings; NULL if `strings` is set
    const char *const *strings; // [n] separate strings; NULL if `data` is set
    const size_t *ends;         // end of each string in `data`, as in gguf_list
    size_t text_size;           // bytes of all strings with their NULs
};

static size_t text_end(const struct value *v, size_t i) {
    return v->ends != NULL ? v->ends[i] : 0;
}

// Copies the elements of v to `at`, which is 8-aligned, and makes the list point to the copy. For an array of strings (has_ends),
// the ends precede the text.
static void list_fill(struct gguf_list *list, const struct value *v, char *at, bool has_ends) {
    list->n = v->type == GGUF_TYPE_STRING && !v->is_array ? v->text_size - 1 : v->n;
    size_t *ends = (size_t *) (void *) at;
    const bool str = v->type == GGUF_TYPE_STRING;
    if (!str) {
        list->data = at;
        if (v->n > 0) {
            memcpy(at, v->data, v->n * gguf_type_size(v->type));
        }
        for (size_t i = 0; v->type == GGUF_TYPE_BOOL && i < v->n; i++) {
            at[i] = at[i] != 0;
        }
        return;
    }
    char *text = has_ends ? (char *) (ends + v->n) : at;
    list->data = text;
    if (has_ends) {
        list->ends = ends;
    }
    size_t end = 0;
    for (size_t i = 0; i < v->n; i++) {
        const size_t start = i == 0 || v->strings != NULL ? 0 : text_end(v, i - 1);
        const char *from = v->strings != NULL ? v->strings[i] : (const char *) v->data + start;
        size_t size = v->text_size;
        if (v->strings != NULL) {
            size = strlen(from) + 1;
        } else if (v->ends != NULL) {
            size = text_end(v, i) - start;
        }
        memcpy(text + end, from, size);
        end += size;
        if (has_ends) {
            ends[i] = end;
        }
    }
}

// Creates an owned block (context.h). NULL, with the error set: out of memory.
static struct gguf_kv *kv_new(const char *key, const struct value *v, const char *caller) {
    const struct gguf_kv head = {.type = (uint8_t) v->type, .flags = GGUF_FLAG_OWNED | (v->is_array ? GGUF_FLAG_ARRAY : 0)};
    const bool has_list = v->is_array || v->type == GGUF_TYPE_STRING;
    const bool has_ends = v->is_array && v->type == GGUF_TYPE_STRING;
    const size_t value_size = berth_gguf_kv_before(&head);
    const size_t key_size = strlen(key) + 1;
    size_t size = value_size + sizeof head, list_at = 0, part = 0;
    const size_t each = has_ends ? sizeof *v->ends : gguf_type_size(v->type);
    bool ok = berth_add_ok(size, key_size, &size);
    if (ok && has_list) {
        ok = berth_pad_ok(size, 8, &list_at) && berth_mul_ok(v->n, each, &part) && berth_add_ok(list_at, part, &size) &&
             berth_add_ok(size, v->text_size, &size);
    }
    char *block = ok ? berth_malloc(size) : NULL;
    if (block == NULL) {
        return BERTH_FAIL_NULL(GGML_STATUS_ALLOC_FAILED, "%s: out of memory: '%s' takes %zu bytes", caller, key, size);
    }
    struct gguf_kv *kv = (struct gguf_kv *) (block + value_size);
    *kv = head;
    memcpy(kv->key, key, key_size);
    if (has_list) {
        struct gguf_list list = {0};
        list_fill(&list, v, block + list_at, has_ends);
        memcpy(block, &list, value_size);
    } else {
        memcpy(block, v->data, value_size);
    }
    return kv;
}

static void kv_free(struct gguf_kv *kv) {
    if (kv->flags & GGUF_FLAG_OWNED) {
        berth_free(berth_gguf_kv_value(kv));
    }
}

static bool is_alignment(const char *key) {
    return strcmp(key, GGUF_KEY_GENERAL_ALIGNMENT) == 0;
}

// Returns the value of general.alignment. 0, with the error set: the value is invalid.
static size_t alignment_of(const struct value *v, const char *caller) {
    uint32_t alignment = 0;
    if (v->type != GGUF_TYPE_UINT32 || v->is_array) {
        berth_fail(GGML_STATUS_FAILED, "%s: %s must be one u32", caller, GGUF_KEY_GENERAL_ALIGNMENT);
        return 0;
    }
    memcpy(&alignment, v->data, sizeof alignment);
    if (alignment == 0 || (alignment & (alignment - 1)) != 0) {
        berth_fail(GGML_STATUS_FAILED, "%s: %s is %u, must be a power of two", caller, GGUF_KEY_GENERAL_ALIGNMENT, alignment);
        return 0;
    }
    return alignment;
}

static void kv_set(struct gguf_context *ctx, const char *key, const struct value *v, const char *caller) {
    if (ctx == NULL || key == NULL || *key == '\0') {
        const char *why = key == NULL ? "key is NULL" : "key is empty";
        berth_fail(GGML_STATUS_FAILED, "%s: the %s", caller, ctx == NULL ? "context is NULL" : why);
        return;
    }
    const size_t old_alignment = ctx->alignment;
    size_t alignment = old_alignment;
    if (is_alignment(key) && (alignment = alignment_of(v, caller)) == 0) {
        return;
    }
    struct gguf_kv *kv = kv_new(key, v, caller);
    if (kv == NULL) {
        return;
    }
    if (alignment != ctx->alignment && !berth_gguf_offsets(ctx, alignment, 0)) {
        kv_free(kv);
        return;
    }
    const int64_t id = berth_gguf_table_find(&ctx->kv, key);
    if (id >= 0) { // removing the old entry leaves space in the table, so that adding the new one cannot fail
        struct gguf_kv *old = ctx->kv.items[id];
        berth_gguf_table_remove(&ctx->kv, (size_t) id);
        kv_free(old);
    }
    if (!berth_gguf_table_add(&ctx->kv, kv)) {
        berth_fail(GGML_STATUS_ALLOC_FAILED, "%s: out of memory: cannot add key %zu, '%s'", caller, ctx->kv.n, key);
        kv_free(kv);
        if (!berth_gguf_offsets(ctx, old_alignment, 0)) {
            BERTH_ASSERT(false); // the old alignment was valid before
        }
    }
}

int64_t gguf_remove_key(struct gguf_context *ctx, const char *key) {
    const int64_t id = gguf_find_key(ctx, key);
    if (id < 0) {
        return -1;
    }
    if (is_alignment(key) && !berth_gguf_offsets(ctx, GGUF_DEFAULT_ALIGNMENT, 0)) {
        return -1;
    }
    struct gguf_kv *old = ctx->kv.items[id];
    berth_gguf_table_remove(&ctx->kv, (size_t) id);
    kv_free(old);
    return id;
}

#define SET_NUMBER(suffix, ctype, gtype) \
    void gguf_set_val_##suffix(struct gguf_context *ctx, const char *key, ctype val) { \
        kv_set(ctx, key, &(struct value){.type = gtype, .n = 1, .data = &val}, __func__); \
    }

GGUF_NUMBERS(SET_NUMBER)

void gguf_set_val_str(struct gguf_context *ctx, const char *key, const char *val) {
    if (val == NULL) {
        berth_fail(GGML_STATUS_FAILED, "gguf_set_val_str: the string is NULL");
        return;
    }
    kv_set(ctx, key, &(struct value){.type = GGUF_TYPE_STRING, .n = 1, .data = val, .text_size = strlen(val) + 1}, __func__);
}

void gguf_set_arr_data(struct gguf_context *ctx, const char *key, enum gguf_type type, const void *data, size_t n) {
    if (gguf_type_size(type) == 0 || (data == NULL && n > 0)) {
        const char *name = gguf_type_name(type);
        berth_fail(GGML_STATUS_FAILED, "gguf_set_arr_data: cannot set %zu elements of type %s (%d): %s", n,
            name != NULL ? name : "none", (int) type, data == NULL ? "the data is NULL" : "the type is not a number");
        return;
    }
    kv_set(ctx, key, &(struct value){.type = type, .is_array = true, .n = n, .data = data}, __func__);
}

void gguf_set_arr_str(struct gguf_context *ctx, const char *key, const char **data, size_t n) {
    size_t text_size = 0;
    for (size_t i = 0; i < n; i++) {
        if (data == NULL || data[i] == NULL) {
            berth_fail(GGML_STATUS_FAILED, "gguf_set_arr_str: string %zu of %zu is NULL", i, n);
            return;
        }
        text_size += strlen(data[i]) + 1;
    }
    const struct value v = {
        .type = GGUF_TYPE_STRING, .is_array = true, .n = n, .strings = (const char *const *) data, .text_size = text_size};
    kv_set(ctx, key, &v, __func__);
}

void gguf_set_kv(struct gguf_context *ctx, const struct gguf_context *src) {
    if (ctx == NULL || src == NULL) {
        berth_fail(GGML_STATUS_FAILED, "gguf_set_kv: the source or destination context is NULL");
        return;
    }
    if (ctx == src) {
        return;
    }
    for (size_t i = 0; i < src->kv.n; i++) {
        const struct gguf_kv *kv = src->kv.items[i];
        const void *value = berth_gguf_kv_value(kv);
        struct value v = {.type = kv->type, .is_array = kv->flags & GGUF_FLAG_ARRAY, .n = 1, .data = value};
        if (v.is_array || v.type == GGUF_TYPE_STRING) {
            const struct gguf_list *list = value;
            v.data = list->data;
            v.n = v.is_array ? list->n : 1;
            v.ends = v.is_array && v.type == GGUF_TYPE_STRING ? list->ends : NULL;
            if (v.ends != NULL && list->n > 0) {
                v.text_size = list->ends[list->n - 1];
            } else if (!v.is_array) {
                v.text_size = list->n + 1;
            }
        }
        kv_set(ctx, kv->key, &v, __func__);
    }
}
