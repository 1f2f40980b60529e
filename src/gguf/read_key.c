// SPDX-License-Identifier: MIT
// read_key.c: parses the keys of a file and their values. If the size of the source is known, numbers are read directly into the
// context. Other data is first read into scratch memory.

#include "gguf/read.h"

#include <inttypes.h>
#include <string.h>

#define STRING_SIZE_MIN 8 // bytes in a file: the length

// Bytes per read if the total size is unknown.
#define STEP_SIZE ((size_t) 1 << 16)

bool berth_gguf_no_memory(const struct gguf_reader *r, uint64_t size, const char *what) {
    return BERTH_FAIL_FALSE(GGML_STATUS_ALLOC_FAILED,
        "gguf: %.120s: out of memory: %" PRIu64 " bytes for the %s at offset %" PRIu64, r->s->name, size, what, r->s->at);
}

// Reads `size` bytes and stores them, followed by a NUL, after the first n_have bytes of the scratch.
static bool scratch_read(struct gguf_reader *r, size_t n_have, uint64_t size, const char *what) {
    if (!berth_gguf_source_holds(r->s, size, 1, what)) {
        return false;
    }
    for (uint64_t n_read = 0;;) {
        const uint64_t left = size - n_read;
        const bool unknown = r->s->size == GGUF_SIZE_UNKNOWN;
        const size_t step = unknown && left > STEP_SIZE ? STEP_SIZE : (size_t) left;
        size_t n_want;
        if (!berth_add_ok(n_have, step, &n_want) || !berth_add_ok(n_want, GGUF_CHUNK_HEAD + 1, &n_want) ||
            !BERTH_GROW(&r->scratch, &r->scratch_cap, n_want)) {
            return berth_gguf_no_memory(r, size, what);
        }
        if (!berth_gguf_source_read(r->s, berth_gguf_scratch(r) + n_have, step, what)) {
            return false;
        }
        n_have += step;
        n_read += step;
        if (n_read == size) {
            berth_gguf_scratch(r)[n_have] = '\0';
            return true;
        }
    }
}

// Moves the first `size` bytes of the scratch to the context. Small data is copied. For large data, the context takes over the
// scratch.
static void *scratch_keep(struct gguf_reader *r, size_t size, size_t align, const char *what) {
    if (size >= STEP_SIZE) {
        void *block = r->scratch;
        r->scratch = NULL;
        r->scratch_cap = 0;
        return berth_gguf_arena_adopt(&r->ctx->arena, block, size);
    }
    void *p = berth_gguf_arena_take(&r->ctx->arena, size, align);
    if (p == NULL) {
        berth_gguf_no_memory(r, size, what);
        return NULL;
    }
    memcpy(p, berth_gguf_scratch(r), size);
    return p;
}

bool berth_gguf_name_read(struct gguf_reader *r, size_t *size, const char *what) {
    const uint64_t at = r->s->at;
    uint64_t n;
    if (!GGUF_READ(r, &n, what) || !scratch_read(r, 0, n, what)) {
        return false;
    }
    if (memchr(berth_gguf_scratch(r), '\0', (size_t) n) != NULL) {
        return berth_gguf_source_fail(r->s, at, "the %s of %" PRIu64 " bytes contains a NUL", what, n);
    }
    *size = (size_t) n;
    return true;
}

static void *numbers_read(struct gguf_reader *r, enum gguf_type type, uint64_t n, const char *what) {
    const size_t elem_size = gguf_type_size(type);
    if (!berth_gguf_source_holds(r->s, n, elem_size, what)) {
        return NULL;
    }
    const size_t size = (size_t) n * elem_size; // no overflow: berth_gguf_source_holds compared n with the remaining bytes
    unsigned char *p;
    if (r->s->size == GGUF_SIZE_UNKNOWN && size > STEP_SIZE) {
        p = scratch_read(r, 0, size, what) ? scratch_keep(r, size, elem_size, what) : NULL;
    } else {
        p = berth_gguf_arena_take(&r->ctx->arena, size, elem_size);
        if (p == NULL) {
            berth_gguf_no_memory(r, size, what);
        } else if (!berth_gguf_source_read(r->s, p, size, what)) {
            return NULL;
        }
    }
    for (size_t i = 0; p != NULL && type == GGUF_TYPE_BOOL && i < size; i++) {
        p[i] = p[i] != 0;
    }
    return p;
}

static bool string_read(struct gguf_reader *r, struct gguf_list *list) {
    uint64_t n;
    if (!GGUF_READ(r, &n, "length of a string") || !scratch_read(r, 0, n, "string")) {
        return false;
    }
    list->n = (size_t) n;
    list->data = scratch_keep(r, (size_t) n + 1, 1, "string");
    return list->data != NULL;
}

// Reads list->n strings. Sets list->data and list->ends.
static bool strings_read(struct gguf_reader *r, struct gguf_list *list) {
    size_t *ends = NULL, n_cap = 0, end = 0;
    bool ok = berth_gguf_source_holds(r->s, list->n, STRING_SIZE_MIN, "array of strings");
    if (ok && r->s->size != GGUF_SIZE_UNKNOWN && list->n > 0) {
        ends = berth_gguf_arena_take(&r->ctx->arena, list->n * sizeof *ends, sizeof *ends);
        n_cap = list->n;
        ok = ends != NULL || berth_gguf_no_memory(r, list->n * sizeof *ends, "array of strings");
    }
    const bool in_arena = n_cap > 0;
    for (size_t i = 0; ok && i < list->n; i++) {
        uint64_t n;
        ok = GGUF_READ(r, &n, "length of a string") && scratch_read(r, end, n, "string");
        if (ok && !in_arena && !BERTH_GROW(&ends, &n_cap, i + 1)) {
            ok = berth_gguf_no_memory(r, (i + 1) * sizeof *ends, "array of strings");
        }
        if (ok) {
            ends[i] = end += (size_t) n + 1;
        }
    }
    if (ok && list->n > 0) {
        size_t *kept = in_arena ? ends : berth_gguf_arena_take(&r->ctx->arena, list->n * sizeof *ends, sizeof *ends);
        list->data = scratch_keep(r, end, 1, "array of strings");
        ok = list->data != NULL && (kept != NULL || berth_gguf_no_memory(r, list->n * sizeof *ends, "array of strings"));
        if (ok && !in_arena) {
            memcpy(kept, ends, list->n * sizeof *ends);
        }
        list->ends = kept;
    }
    if (!in_arena) {
        berth_free(ends);
    }
    return ok;
}

static bool array_read(struct gguf_reader *r, enum gguf_type type, struct gguf_list *list) {
    const uint64_t at = r->s->at;
    uint64_t n;
    if (!GGUF_READ(r, &n, "length of an array")) {
        return false;
    }
    if (n > SIZE_MAX / 8) {
        return berth_gguf_source_fail(r->s, at, "an array of %" PRIu64 " elements is too large", n);
    }
    list->n = (size_t) n;
    if (type == GGUF_TYPE_STRING) {
        return strings_read(r, list);
    }
    list->data = n > 0 ? numbers_read(r, type, n, "array") : NULL;
    return n == 0 || list->data != NULL;
}

static bool kv_type_read(struct gguf_reader *r, struct gguf_kv *parsed, const char *key) {
    for (;;) {
        const uint64_t at = r->s->at;
        uint32_t type;
        if (!GGUF_READ(r, &type, "type of a key")) {
            return false;
        }
        if (type == GGUF_TYPE_ARRAY && parsed->flags == 0) {
            parsed->flags = GGUF_FLAG_ARRAY;
            continue;
        }
        if (type >= GGUF_TYPE_COUNT || type == GGUF_TYPE_ARRAY) {
            const char *what = parsed->flags != 0 ? "an array" : "a value";
            return berth_gguf_source_fail(r->s, at, "key '%.100s': %s of type %" PRIu32 " is not supported", key,
                type == GGUF_TYPE_ARRAY ? "an array of arrays" : what, type);
        }
        parsed->type = (uint8_t) type;
        return true;
    }
}

bool berth_gguf_kv_read(struct gguf_reader *r) {
    const uint64_t at = r->s->at;
    size_t key_size;
    if (!berth_gguf_name_read(r, &key_size, "key")) {
        return false;
    }
    const char *key = (const char *) berth_gguf_scratch(r);
    struct gguf_kv parsed = {0};
    if (key_size == 0 || berth_gguf_table_find(&r->ctx->kv, key) >= 0) {
        return berth_gguf_source_fail(r->s, at, key_size == 0 ? "a key is empty" : "key '%.100s' occurs twice", key);
    }
    if (!kv_type_read(r, &parsed, key)) {
        return false;
    }
    const size_t before = berth_gguf_kv_before(&parsed);
    const bool is_list = parsed.flags != 0 || parsed.type == GGUF_TYPE_STRING;
    char *block = berth_gguf_arena_take(&r->ctx->arena, before + sizeof parsed + key_size + 1, is_list ? 8 : before);
    if (block == NULL) {
        return berth_gguf_no_memory(r, before + sizeof parsed + key_size + 1, "key");
    }
    struct gguf_kv *kv = (struct gguf_kv *) (block + before);
    *kv = parsed;
    memcpy(kv->key, key, key_size + 1);
    if (is_list) {
        struct gguf_list list = {0};
        if (!(parsed.flags != 0 ? array_read(r, (enum gguf_type) parsed.type, &list) : string_read(r, &list))) {
            return false;
        }
        memcpy(block, &list, before);
    } else {
        if (!berth_gguf_source_read(r->s, block, before, "value of a key")) {
            return false;
        }
        if (parsed.type == GGUF_TYPE_BOOL) {
            *block = *block != 0;
        }
    }
    return berth_gguf_table_add(&r->ctx->kv, kv) || berth_gguf_no_memory(r, r->ctx->kv.n * sizeof(void *), "table of keys");
}
