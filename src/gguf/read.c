// SPDX-License-Identifier: MIT
// read.c: a gguf_context from bytes that nobody vouches for.
//
//     magic "GGUF" | version u32 | n_tensors i64 | n_kv i64 | kv ... | tensor ... | padding | data
//     kv      key | type u32 | value;   an array is  type u32 | n u64 | elements;   a string is  n u64 | bytes
//     tensor  name | n_dims u32 | ne i64 ... | type u32 | offset u64
//
// Every count is compared with the bytes that are left before memory is taken for it; where their number is unknown (a pipe),
// memory grows with what has been read. Every refusal says what is wrong and at which offset.
// The time is linear in the header's bytes.

#include "gguf/read.h"
#include "core/type.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

// Smallest sizes in a file.
#define KV_SIZE_MIN 14     // length, one letter, type, one byte
#define TENSOR_SIZE_MIN 24 // length, no name, n_dims, no extent, type, offset
#define STRING_SIZE_MIN 8

// What is read at once while nobody knows how much there is.
#define STEP_SIZE ((size_t) 1 << 16)

struct reader {
    struct gguf_source *s;
    struct gguf_context *ctx;
    unsigned char *scratch; // for what has to be whole before its size in the context is known; room for a chunk's head first
    size_t scratch_cap;
};

static bool no_memory(const struct reader *r, uint64_t size, const char *what) {
    berth_fail(GGML_STATUS_ALLOC_FAILED, "gguf: %.120s: out of memory: %" PRIu64 " bytes for the %s at offset %" PRIu64,
        r->s->name, size, what, r->s->at);
    return false;
}

static unsigned char *scratch_data(const struct reader *r) {
    return r->scratch + GGUF_CHUNK_HEAD;
}

#define READ(r, out, what) berth_gguf_source_read((r)->s, out, sizeof *(out), what)

// Reads size bytes behind the first n_have of the scratch, and one NUL behind them.
static bool scratch_read(struct reader *r, size_t n_have, uint64_t size, const char *what) {
    if (!berth_gguf_source_holds(r->s, size, 1, what)) {
        return false;
    }
    for (uint64_t n_read = 0;;) {
        const uint64_t left = size - n_read;
        const bool unknown  = r->s->size == GGUF_SIZE_UNKNOWN;
        const size_t step   = unknown && left > STEP_SIZE ? STEP_SIZE : (size_t) left;
        size_t n_want;
        if (!berth_add_ok(n_have, step, &n_want) || !berth_add_ok(n_want, GGUF_CHUNK_HEAD + 1, &n_want) ||
            !berth_grow((void **) &r->scratch, &r->scratch_cap, n_want, 1)) {
            return no_memory(r, size, what);
        }
        if (!berth_gguf_source_read(r->s, scratch_data(r) + n_have, step, what)) {
            return false;
        }
        n_have += step;
        n_read += step;
        if (n_read == size) {
            scratch_data(r)[n_have] = '\0';
            return true;
        }
    }
}

// The scratch's first bytes, from now on the context's: copied, or where that is much, the scratch itself.
static void *scratch_keep(struct reader *r, size_t size, size_t align, const char *what) {
    if (size >= STEP_SIZE) {
        void *block    = r->scratch;
        r->scratch     = NULL;
        r->scratch_cap = 0;
        return berth_gguf_arena_adopt(&r->ctx->arena, block, size);
    }
    void *p = berth_gguf_arena_take(&r->ctx->arena, size, align);
    if (p == NULL) {
        no_memory(r, size, what);
        return NULL;
    }
    memcpy(p, scratch_data(r), size);
    return p;
}

// The length and bytes of a name into the scratch. A name that holds NUL could never be found.
static bool name_read(struct reader *r, size_t *size, const char *what) {
    const uint64_t at = r->s->at;
    uint64_t n;
    if (!READ(r, &n, what) || !scratch_read(r, 0, n, what)) {
        return false;
    }
    if (memchr(scratch_data(r), '\0', (size_t) n) != NULL) {
        berth_gguf_source_fail(r->s, at, "the %s of %" PRIu64 " bytes holds a NUL", what, n);
        return false;
    }
    *size = (size_t) n;
    return true;
}

// n numbers into memory of the context.
static void *numbers_read(struct reader *r, enum gguf_type type, uint64_t n, const char *what) {
    const size_t elem_size = berth_gguf_type_size(type);
    if (!berth_gguf_source_holds(r->s, n, elem_size, what)) {
        return NULL;
    }
    const size_t size = (size_t) n * elem_size; // fits: not more than what is left, or checked by the division
    unsigned char *p;
    if (r->s->size == GGUF_SIZE_UNKNOWN && size > STEP_SIZE) {
        p = scratch_read(r, 0, size, what) ? scratch_keep(r, size, elem_size, what) : NULL;
    } else {
        p = berth_gguf_arena_take(&r->ctx->arena, size, elem_size);
        if (p == NULL) {
            no_memory(r, size, what);
        } else if (!berth_gguf_source_read(r->s, p, size, what)) {
            return NULL;
        }
    }
    for (size_t i = 0; p != NULL && type == GGUF_TYPE_BOOL && i < size; i++) {
        p[i] = p[i] != 0;
    }
    return p;
}

static bool string_read(struct reader *r, struct gguf_list *list) {
    uint64_t n;
    if (!READ(r, &n, "length of a string") || !scratch_read(r, 0, n, "string")) {
        return false;
    }
    list->n    = (size_t) n;
    list->data = scratch_keep(r, (size_t) n + 1, 1, "string");
    return list->data != NULL;
}

// The strings one behind the other into the scratch, then into the context; their ends beside them.
static bool strings_read(struct reader *r, struct gguf_list *list) {
    size_t *ends = NULL, n_cap = 0, end = 0;
    bool ok = berth_gguf_source_holds(r->s, list->n, STRING_SIZE_MIN, "array of strings");
    if (ok && r->s->size != GGUF_SIZE_UNKNOWN && list->n > 0) {
        ends  = berth_gguf_arena_take(&r->ctx->arena, list->n * sizeof *ends, sizeof *ends);
        n_cap = list->n;
        ok    = ends != NULL || no_memory(r, list->n * sizeof *ends, "array of strings");
    }
    const bool in_arena = n_cap > 0;
    for (size_t i = 0; ok && i < list->n; i++) {
        uint64_t n;
        ok = READ(r, &n, "length of a string") && scratch_read(r, end, n, "string");
        if (ok && !in_arena && !berth_grow((void **) &ends, &n_cap, i + 1, sizeof *ends)) {
            ok = no_memory(r, (i + 1) * sizeof *ends, "array of strings");
        }
        if (ok) {
            ends[i] = end += (size_t) n + 1;
        }
    }
    if (ok && list->n > 0) {
        size_t *kept = in_arena ? ends : berth_gguf_arena_take(&r->ctx->arena, list->n * sizeof *ends, sizeof *ends);
        list->data   = scratch_keep(r, end, 1, "array of strings");
        ok           = list->data != NULL && (kept != NULL || no_memory(r, list->n * sizeof *ends, "array of strings"));
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

static bool array_read(struct reader *r, enum gguf_type type, struct gguf_list *list) {
    const uint64_t at = r->s->at;
    uint64_t n;
    if (!READ(r, &n, "length of an array")) {
        return false;
    }
    if (n > SIZE_MAX / 8) {
        berth_gguf_source_fail(r->s, at, "an array of %" PRIu64 " elements", n);
        return false;
    }
    list->n = (size_t) n;
    if (type == GGUF_TYPE_STRING) {
        return strings_read(r, list);
    }
    list->data = n > 0 ? numbers_read(r, type, n, "array") : NULL;
    return n == 0 || list->data != NULL;
}

// A key's type, and for an array that of its elements.
static bool kv_type_read(struct reader *r, struct gguf_kv *shape, const char *key) {
    for (;;) {
        const uint64_t at = r->s->at;
        uint32_t type;
        if (!READ(r, &type, "type of a key")) {
            return false;
        }
        if (type == GGUF_TYPE_ARRAY && shape->flags == 0) {
            shape->flags = GGUF_FLAG_ARRAY;
            continue;
        }
        if (type >= GGUF_TYPE_COUNT || type == GGUF_TYPE_ARRAY) {
            berth_gguf_source_fail(r->s, at, "key '%.100s': %s of type %" PRIu32, key,
                type == GGUF_TYPE_ARRAY ? "an array of arrays,"
                : shape->flags != 0     ? "an array"
                                        : "a value",
                type);
            return false;
        }
        shape->type = (uint8_t) type;
        return true;
    }
}

static bool kv_read(struct reader *r) {
    const uint64_t at = r->s->at;
    size_t key_size;
    if (!name_read(r, &key_size, "key")) {
        return false;
    }
    const char *key      = (const char *) scratch_data(r);
    struct gguf_kv shape = {0};
    if (key_size == 0 || berth_gguf_table_find(&r->ctx->kv, key) >= 0) {
        berth_gguf_source_fail(r->s, at, key_size == 0 ? "an empty key" : "key '%.100s' is there twice", key);
        return false;
    }
    if (!kv_type_read(r, &shape, key)) {
        return false;
    }
    const size_t before = berth_gguf_kv_before(&shape);
    const bool is_list  = shape.flags != 0 || shape.type == GGUF_TYPE_STRING;
    char *block         = berth_gguf_arena_take(&r->ctx->arena, before + sizeof shape + key_size + 1, is_list ? 8 : before);
    if (block == NULL) {
        return no_memory(r, before + sizeof shape + key_size + 1, "key");
    }
    struct gguf_kv *kv = (struct gguf_kv *) (block + before);
    *kv                = shape;
    memcpy(kv->key, key, key_size + 1);
    if (is_list) {
        struct gguf_list list = {0};
        if (!(shape.flags != 0 ? array_read(r, (enum gguf_type) shape.type, &list) : string_read(r, &list))) {
            return false;
        }
        memcpy(block, &list, before);
    } else {
        if (!berth_gguf_source_read(r->s, block, before, "value of a key")) {
            return false;
        }
        if (shape.type == GGUF_TYPE_BOOL) {
            *block = *block != 0;
        }
    }
    return berth_gguf_table_add(&r->ctx->kv, kv) || no_memory(r, r->ctx->kv.n * sizeof(void *), "table of keys");
}

static bool alignment_find(struct reader *r) {
    const int64_t id = berth_gguf_table_find(&r->ctx->kv, GGUF_KEY_GENERAL_ALIGNMENT);
    if (id < 0) {
        return true;
    }
    const struct gguf_kv *kv = r->ctx->kv.items[id];
    uint32_t alignment       = 0;
    if (kv->type == GGUF_TYPE_UINT32 && !(kv->flags & GGUF_FLAG_ARRAY)) {
        memcpy(&alignment, berth_gguf_kv_value(kv), sizeof alignment);
    }
    if (alignment == 0 || (alignment & (alignment - 1)) != 0) {
        berth_gguf_source_fail(r->s, r->s->at, "%s is %" PRIu32 " of type %s, but must be a power of two as u32",
            GGUF_KEY_GENERAL_ALIGNMENT, alignment, gguf_type_name((enum gguf_type) kv->type));
        return false;
    }
    r->ctx->alignment = alignment;
    return true;
}

// Extents, type and offset of a tensor, in file order.
static bool shape_read(struct reader *r, const char *name, int64_t ne[GGML_MAX_DIMS], struct gguf_info *info, size_t *size) {
    uint64_t at = r->s->at;
    uint32_t n_dims, type;
    if (!READ(r, &n_dims, "number of dimensions")) {
        return false;
    }
    if (n_dims > GGML_MAX_DIMS) {
        berth_gguf_source_fail(r->s, at, "tensor '%s' has %" PRIu32 " dimensions, the most are %d", name, n_dims, GGML_MAX_DIMS);
        return false;
    }
    at = r->s->at;
    if (!berth_gguf_source_read(r->s, ne, n_dims * sizeof *ne, "extents")) {
        return false;
    }
    const uint64_t type_at = r->s->at;
    if (!READ(r, &type, "type of a tensor")) {
        return false;
    }
    if (type >= GGML_TYPE_COUNT || berth_type_row((enum ggml_type) type) == NULL) {
        berth_gguf_source_fail(r->s, type_at, "tensor '%s' is of type %" PRIu32 ", which is none", name, type);
        return false;
    }
    info->type = (uint8_t) type;
    if (!berth_gguf_nbytes((enum ggml_type) type, ne, size)) {
        berth_gguf_source_fail(r->s, at,
            "tensor '%s' of type %s with %" PRId64 " x %" PRId64 " x %" PRId64 " x %" PRId64
            " elements: no size, no whole blocks, or more than 2^63 bytes",
            name, ggml_type_name((enum ggml_type) type), ne[0], ne[1], ne[2], ne[3]);
        return false;
    }
    return READ(r, &info->offset, "offset of a tensor");
}

static bool tensor_read(struct reader *r) {
    struct gguf_context *ctx = r->ctx;
    const uint64_t at        = r->s->at;
    size_t name_size, size, end;
    if (!name_read(r, &name_size, "name of a tensor")) {
        return false;
    }
    const char *name = (const char *) scratch_data(r);
    if (name_size >= GGML_MAX_NAME) {
        berth_gguf_source_fail(
            r->s, at, "the tensor name '%.80s' has %zu bytes, the most are %d", name, name_size, GGML_MAX_NAME - 1);
        return false;
    }
    if (berth_gguf_table_find(&ctx->info, name) >= 0) {
        berth_gguf_source_fail(r->s, at, "tensor '%s' is there twice", name);
        return false;
    }
    int64_t ne[GGML_MAX_DIMS] = {1, 1, 1, 1};
    struct gguf_info shape    = {0};
    if (!shape_read(r, name, ne, &shape, &size)) {
        return false;
    }
    if (shape.offset != ctx->data_size) { // alignment included: data_size is always aligned
        berth_gguf_source_fail(r->s, r->s->at - 8,
            "tensor '%s' of %zu bytes lies at %" PRIu64 " of the data, but must at %zu: %s", name, size, shape.offset,
            ctx->data_size,
            shape.offset % ctx->alignment != 0 ? "not aligned"
            : shape.offset < ctx->data_size    ? "it overlaps another"
                                               : "there is a hole before it");
        return false;
    }
    if (!berth_add_ok(ctx->data_size, size, &end) || !berth_pad_ok(end, ctx->alignment, &end) || end > INT64_MAX) {
        berth_gguf_source_fail(r->s, at, "tensor '%s' of %zu bytes ends past 2^63", name, size);
        return false;
    }
    const bool ones     = memcmp(ne, berth_gguf_ones, sizeof ne) == 0;
    const size_t before = ones ? 0 : sizeof ne;
    const size_t total  = before + offsetof(struct gguf_info, name) + name_size + 1;
    char *block         = berth_gguf_arena_take(&ctx->arena, total, 8);
    if (block == NULL) {
        return no_memory(r, total, "tensor");
    }
    struct gguf_info *info = (struct gguf_info *) (void *) (block + before);
    memcpy(block, ne, before);
    info->offset = shape.offset;
    info->type   = shape.type;
    info->flags  = ones ? GGUF_FLAG_ONES : 0;
    memcpy(info->name, name, name_size + 1);
    ctx->data_size = end;
    return berth_gguf_table_add(&ctx->info, info) || no_memory(r, ctx->info.n * sizeof(void *), "table of tensors");
}

static bool version_read(struct reader *r) {
    struct gguf_source *s = r->s;
    unsigned char magic[4];
    if (!READ(r, &magic, "magic")) {
        return false;
    }
    if (memcmp(magic, GGUF_MAGIC, sizeof magic) != 0) {
        berth_gguf_source_fail(s, 0, "no GGUF file: it begins with %02x %02x %02x %02x, not with \"" GGUF_MAGIC "\"", magic[0],
            magic[1], magic[2], magic[3]);
        return false;
    }
    uint32_t version;
    if (!READ(r, &version, "version")) {
        return false;
    }
    if (version != 0 && (version & 0xFFFF) == 0) {
        berth_gguf_source_fail(s, 4, "a big-endian file (version 0x%08" PRIx32 "): convert it to little-endian first", version);
        return false;
    }
    if (version < 2 || version > GGUF_VERSION) {
        berth_gguf_source_fail(s, 4, "version %" PRIu32 " is %s, 2 and %d are read", version,
            version == 1   ? "no longer in use"
            : version == 0 ? "none"
                           : "newer than this library",
            GGUF_VERSION);
        return false;
    }
    r->ctx->version = version;
    return true;
}

static bool counts_read(struct reader *r) {
    struct gguf_source *s = r->s;
    int64_t n_tensors, n_kv;
    if (!READ(r, &n_tensors, "number of tensors") || !READ(r, &n_kv, "number of keys")) {
        return false;
    }
    if (n_tensors < 0 || (uint64_t) n_tensors > GGUF_TABLE_MAX || n_kv < 0 || (uint64_t) n_kv > GGUF_TABLE_MAX) {
        berth_gguf_source_fail(s, 8, "%" PRId64 " tensors and %" PRId64 " keys", n_tensors, n_kv);
        return false;
    }
    if (!berth_gguf_source_holds(s, (uint64_t) n_tensors, TENSOR_SIZE_MIN, "tensors") ||
        !berth_gguf_source_holds(s, (uint64_t) n_kv, KV_SIZE_MIN, "keys")) {
        return false;
    }
    r->ctx->info.n_expected = (size_t) n_tensors;
    r->ctx->kv.n_expected   = (size_t) n_kv;
    return true;
}

// Where the data begins: aligned, and not past the file's end. Without tensors there is no padding.
static bool data_find(struct reader *r) {
    struct gguf_context *ctx = r->ctx;
    size_t end;
    if (!berth_pad_ok((size_t) r->s->at, ctx->info.n > 0 ? ctx->alignment : 1, &ctx->data_offset) ||
        !berth_add_ok(ctx->data_offset, ctx->data_size, &end) || end > INT64_MAX) {
        berth_gguf_source_fail(r->s, r->s->at, "%zu bytes of data end past 2^63", ctx->data_size);
        return false;
    }
    if (ctx->data_offset > r->s->size) {
        berth_gguf_source_fail(r->s, r->s->at, "the file ends before its data, which begins at %zu", ctx->data_offset);
        return false;
    }
    return true;
}

static bool header_read(struct reader *r) {
    struct gguf_context *ctx = r->ctx;
    if (!version_read(r) || !counts_read(r)) {
        return false;
    }
    while (ctx->kv.n < ctx->kv.n_expected) {
        if (!kv_read(r)) {
            return false;
        }
    }
    if (!alignment_find(r)) {
        return false;
    }
    while (ctx->info.n < ctx->info.n_expected) {
        if (!tensor_read(r)) {
            return false;
        }
    }
    ctx->kv.n_expected   = 0;
    ctx->info.n_expected = 0;
    return data_find(r);
}

struct gguf_context *berth_gguf_read(struct gguf_source *s, struct gguf_init_params params) {
    struct reader r = {.s = s, .ctx = gguf_init_empty()};
    if (params.ctx != NULL) {
        *params.ctx = NULL;
    }
    if (r.ctx == NULL) {
        return NULL;
    }
    bool ok = header_read(&r);
    berth_free(r.scratch);
    ok = ok && (params.ctx == NULL || berth_gguf_tensors_make(r.ctx, s, params));
    if (!ok) {
        gguf_free(r.ctx);
        return NULL;
    }
    return r.ctx;
}

struct gguf_context *gguf_init_from_file_ptr(FILE *file, struct gguf_init_params params) {
    if (file == NULL) {
        berth_fail(GGML_STATUS_FAILED, "gguf_init_from_file_ptr: the file is NULL");
        return NULL;
    }
    struct gguf_source s;
    berth_gguf_source_file(&s, file, "file");
    return berth_gguf_read(&s, params);
}

struct gguf_context *gguf_init_from_file(const char *fname, struct gguf_init_params params) {
    FILE *file = fname == NULL ? NULL : fopen(fname, "rb");
    if (file == NULL) {
        berth_fail(GGML_STATUS_FAILED, "gguf: %s: cannot be opened: %s", fname == NULL ? "(NULL)" : fname,
            fname == NULL ? "no name" : strerror(errno));
        return NULL;
    }
    struct gguf_source s;
    berth_gguf_source_file(&s, file, fname);
    struct gguf_context *ctx = berth_gguf_read(&s, params);
    fclose(file);
    return ctx;
}

struct gguf_context *gguf_init_from_buffer(const void *data, size_t size, struct gguf_init_params params) {
    if (data == NULL) {
        berth_fail(GGML_STATUS_FAILED, "gguf_init_from_buffer: the buffer is NULL");
        return NULL;
    }
    struct gguf_source s;
    berth_gguf_source_buffer(&s, data, size);
    return berth_gguf_read(&s, params);
}

struct gguf_context *gguf_init_from_callback(gguf_reader_callback_t callback, void *userdata, size_t max_chunk_read,
    uint64_t max_expected_size, struct gguf_init_params params) {
    if (callback == NULL) {
        berth_fail(GGML_STATUS_FAILED, "gguf_init_from_callback: the callback is NULL");
        return NULL;
    }
    struct gguf_source s;
    berth_gguf_source_callback(&s, callback, userdata, max_chunk_read, max_expected_size);
    return berth_gguf_read(&s, params);
}
