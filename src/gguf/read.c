// SPDX-License-Identifier: MIT
// read.c: parses the header of untrusted bytes into a gguf_context: version, counts and tensors. read_key.c parses the keys.
//
//     magic "GGUF" | version u32 | n_tensors i64 | n_kv i64 | kv ... | tensor ... | padding | data
//     kv      key | type u32 | value;   an array is  type u32 | n u64 | elements;   a string is  n u64 | bytes
//     tensor  name | n_dims u32 | ne i64 ... | type u32 | offset u64
//
// A false count must not force a large allocation, so a count is first compared with the number of remaining bytes. If that
// number is unknown (a pipe), memory grows with the bytes read. Every error states its reason and its offset in the file. Reading
// takes time linear in the size of the header.

#include "gguf/read.h"
#include "core/type.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

// Smallest sizes in a file, in bytes.
#define KV_SIZE_MIN 14     // length, one character, type, one byte
#define TENSOR_SIZE_MIN 24 // length, no name, n_dims, no extent, type, offset

static bool alignment_find(struct gguf_reader *r) {
    const int64_t id = berth_gguf_table_find(&r->ctx->kv, GGUF_KEY_GENERAL_ALIGNMENT);
    if (id < 0) {
        return true;
    }
    const struct gguf_kv *kv = r->ctx->kv.items[id];
    uint32_t alignment = 0;
    if (kv->type == GGUF_TYPE_UINT32 && !(kv->flags & GGUF_FLAG_ARRAY)) {
        memcpy(&alignment, berth_gguf_kv_value(kv), sizeof alignment);
    }
    if (alignment == 0 || (alignment & (alignment - 1)) != 0) {
        return berth_gguf_source_fail(r->s, r->s->at, "%s is %" PRIu32 " of type %s, but must be a power of two as u32",
            GGUF_KEY_GENERAL_ALIGNMENT, alignment, gguf_type_name((enum gguf_type) kv->type));
    }
    r->ctx->alignment = alignment;
    return true;
}

static bool layout_read(
    struct gguf_reader *r, const char *name, int64_t ne[GGML_MAX_DIMS], struct gguf_info *info, size_t *size) {
    uint64_t at = r->s->at;
    uint32_t n_dims, type;
    if (!GGUF_READ(r, &n_dims, "number of dimensions")) {
        return false;
    }
    if (n_dims > GGML_MAX_DIMS) {
        return berth_gguf_source_fail(
            r->s, at, "tensor '%s' has %" PRIu32 " dimensions, the limit is %d", name, n_dims, GGML_MAX_DIMS);
    }
    at = r->s->at;
    if (!berth_gguf_source_read(r->s, ne, n_dims * sizeof *ne, "extents")) {
        return false;
    }
    const uint64_t type_at = r->s->at;
    if (!GGUF_READ(r, &type, "type of a tensor")) {
        return false;
    }
    if (type >= GGML_TYPE_COUNT || berth_type_row((enum ggml_type) type) == NULL) {
        return berth_gguf_source_fail(r->s, type_at, "tensor '%s' has the unknown type %" PRIu32, name, type);
    }
    info->type = (uint8_t) type;
    if (!berth_gguf_nbytes((enum ggml_type) type, ne, size)) {
        const bool is_negative = ne[0] < 0 || ne[1] < 0 || ne[2] < 0 || ne[3] < 0;
        const bool fits_blocks = ne[0] % ggml_blck_size((enum ggml_type) type) == 0;
        const char *why = fits_blocks ? "more than 2^63 elements or bytes" : "rows are not a multiple of the block size";
        return berth_gguf_source_fail(r->s, at,
            "tensor '%s' of type %s with %" PRId64 " x %" PRId64 " x %" PRId64 " x %" PRId64 " elements: %s", name,
            ggml_type_name((enum ggml_type) type), ne[0], ne[1], ne[2], ne[3], is_negative ? "an extent is negative" : why);
    }
    return GGUF_READ(r, &info->offset, "offset of a tensor");
}

static bool tensor_read(struct gguf_reader *r) {
    struct gguf_context *ctx = r->ctx;
    const uint64_t at = r->s->at;
    size_t name_size, size, end;
    if (!berth_gguf_name_read(r, &name_size, "name of a tensor")) {
        return false;
    }
    const char *name = (const char *) berth_gguf_scratch(r);
    if (name_size >= GGML_MAX_NAME) {
        return berth_gguf_source_fail(
            r->s, at, "the tensor name '%.80s' has %zu bytes, the limit is %d", name, name_size, GGML_MAX_NAME - 1);
    }
    if (berth_gguf_table_find(&ctx->info, name) >= 0) {
        return berth_gguf_source_fail(r->s, at, "tensor '%s' occurs twice", name);
    }
    int64_t ne[GGML_MAX_DIMS] = {1, 1, 1, 1};
    struct gguf_info parsed = {0};
    if (!layout_read(r, name, ne, &parsed, &size)) {
        return false;
    }
    if (parsed.offset != ctx->data_size) { // also refuses offsets that are not aligned, because data_size is aligned
        const char *why = parsed.offset < ctx->data_size ? "it overlaps another" : "there is a hole before it";
        return berth_gguf_source_fail(r->s, r->s->at - 8,
            "tensor '%s' of %zu bytes has data offset %" PRIu64 ", expected %zu: %s", name, size, parsed.offset, ctx->data_size,
            parsed.offset % ctx->alignment != 0 ? "not aligned" : why);
    }
    if (!berth_add_ok(ctx->data_size, size, &end) || !berth_pad_ok(end, ctx->alignment, &end) || end > INT64_MAX) {
        return berth_gguf_source_fail(r->s, at, "tensor '%s' of %zu bytes ends after 2^63 bytes", name, size);
    }
    const bool ones = memcmp(ne, berth_gguf_ones, sizeof ne) == 0;
    const size_t before = ones ? 0 : sizeof ne;
    const size_t total = before + offsetof(struct gguf_info, name) + name_size + 1;
    char *block = berth_gguf_arena_take(&ctx->arena, total, 8);
    if (block == NULL) {
        return berth_gguf_no_memory(r, total, "tensor");
    }
    struct gguf_info *info = (struct gguf_info *) (void *) (block + before);
    memcpy(block, ne, before);
    info->offset = parsed.offset;
    info->type = parsed.type;
    info->flags = ones ? GGUF_FLAG_ONES : 0;
    memcpy(info->name, name, name_size + 1);
    ctx->data_size = end;
    return berth_gguf_table_add(&ctx->info, info) || berth_gguf_no_memory(r, ctx->info.n * sizeof(void *), "table of tensors");
}

static bool version_read(struct gguf_reader *r) {
    struct gguf_source *s = r->s;
    unsigned char magic[4];
    if (!GGUF_READ(r, &magic, "magic")) {
        return false;
    }
    if (memcmp(magic, GGUF_MAGIC, sizeof magic) != 0) {
        return berth_gguf_source_fail(s, 0, "not a GGUF file: it begins with %02x %02x %02x %02x, not with \"" GGUF_MAGIC "\"",
            magic[0], magic[1], magic[2], magic[3]);
    }
    uint32_t version;
    if (!GGUF_READ(r, &version, "version")) {
        return false;
    }
    if (version != 0 && (version & 0xFFFF) == 0) {
        return berth_gguf_source_fail(
            s, 4, "a big-endian file (version 0x%08" PRIx32 "): convert it to little-endian first", version);
    }
    if (version < 2 || version > GGUF_VERSION) {
        static const char *const old[] = {"invalid", "no longer supported"};
        return berth_gguf_source_fail(s, 4, "version %" PRIu32 " is %s, supported are 2 and %d", version,
            version < 2 ? old[version] : "newer than this library", GGUF_VERSION);
    }
    r->ctx->version = version;
    return true;
}

static bool counts_read(struct gguf_reader *r) {
    struct gguf_source *s = r->s;
    int64_t n_tensors, n_kv;
    if (!GGUF_READ(r, &n_tensors, "number of tensors") || !GGUF_READ(r, &n_kv, "number of keys")) {
        return false;
    }
    if (n_tensors < 0 || (uint64_t) n_tensors > GGUF_TABLE_MAX || n_kv < 0 || (uint64_t) n_kv > GGUF_TABLE_MAX) {
        return berth_gguf_source_fail(s, 8,
            "the header states %" PRId64 " tensors and %" PRId64
            " keys, expected 0 to %zu of each: the file is damaged, get it again",
            n_tensors, n_kv, GGUF_TABLE_MAX);
    }
    if (!berth_gguf_source_holds(s, (uint64_t) n_tensors, TENSOR_SIZE_MIN, "tensors") ||
        !berth_gguf_source_holds(s, (uint64_t) n_kv, KV_SIZE_MIN, "keys")) {
        return false;
    }
    r->ctx->info.n_expected = (size_t) n_tensors;
    r->ctx->kv.n_expected = (size_t) n_kv;
    return true;
}

// The data section is aligned if there are tensors. It must not start after the end of the file.
static bool data_find(struct gguf_reader *r) {
    struct gguf_context *ctx = r->ctx;
    size_t end;
    if (!berth_pad_ok((size_t) r->s->at, ctx->info.n > 0 ? ctx->alignment : 1, &ctx->data_offset) ||
        !berth_add_ok(ctx->data_offset, ctx->data_size, &end) || end > INT64_MAX) {
        return berth_gguf_source_fail(r->s, r->s->at, "%zu bytes of data end after 2^63", ctx->data_size);
    }
    if (ctx->data_offset > r->s->size) {
        return berth_gguf_source_fail(r->s, r->s->at, "the file ends before its data, which begins at %zu", ctx->data_offset);
    }
    return true;
}

static bool header_read(struct gguf_reader *r) {
    struct gguf_context *ctx = r->ctx;
    if (!version_read(r) || !counts_read(r)) {
        return false;
    }
    while (ctx->kv.n < ctx->kv.n_expected) {
        if (!berth_gguf_kv_read(r)) {
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
    ctx->kv.n_expected = 0;
    ctx->info.n_expected = 0;
    return data_find(r);
}

struct gguf_context *berth_gguf_read(struct gguf_source *s, struct gguf_init_params params) {
    struct gguf_reader r = {.s = s, .ctx = gguf_init_empty()};
    if (params.ctx != NULL) {
        *params.ctx = NULL;
    }
    if (r.ctx == NULL) {
        return NULL;
    }
    const bool ok = header_read(&r);
    berth_free(r.scratch);
    if (!ok || (params.ctx != NULL && !berth_gguf_tensors_make(r.ctx, s, params))) {
        gguf_free(r.ctx);
        return NULL;
    }
    // The header may start in the middle of the caller's file, but data_offset counts from the start of that file.
    if (s->file != NULL && s->base > 0) {
        r.ctx->data_offset += (size_t) s->base;
    }
    return r.ctx;
}

struct gguf_context *gguf_init_from_file_ptr(FILE *file, struct gguf_init_params params) {
    if (file == NULL) {
        return BERTH_FAIL_NULL(GGML_STATUS_FAILED, "gguf_init_from_file_ptr: the file is NULL");
    }
    struct gguf_source s;
    berth_gguf_source_file(&s, file, "file");
    return berth_gguf_read(&s, params);
}

struct gguf_context *gguf_init_from_file(const char *fname, struct gguf_init_params params) {
    uint64_t size;
    const char *why = "the name is NULL";
    FILE *file = fname == NULL ? NULL : berth_file_open(fname, &size, &why);
    if (file == NULL) {
        return BERTH_FAIL_NULL(GGML_STATUS_FAILED, "gguf: %s: cannot be opened: %s", fname == NULL ? "(NULL)" : fname, why);
    }
    struct gguf_source s;
    berth_gguf_source_file(&s, file, fname);
    struct gguf_context *ctx = berth_gguf_read(&s, params);
    fclose(file);
    return ctx;
}

struct gguf_context *gguf_init_from_buffer(const void *data, size_t size, struct gguf_init_params params) {
    if (data == NULL) {
        return BERTH_FAIL_NULL(GGML_STATUS_FAILED, "gguf_init_from_buffer: the buffer is NULL");
    }
    struct gguf_source s;
    berth_gguf_source_buffer(&s, data, size);
    return berth_gguf_read(&s, params);
}

struct gguf_context *gguf_init_from_callback(gguf_reader_callback_t callback, void *userdata, size_t max_chunk_read,
    uint64_t max_expected_size, struct gguf_init_params params) {
    if (callback == NULL) {
        return BERTH_FAIL_NULL(GGML_STATUS_FAILED, "gguf_init_from_callback: the callback is NULL");
    }
    struct gguf_source s;
    berth_gguf_source_callback(&s, callback, userdata, max_chunk_read, max_expected_size);
    return berth_gguf_read(&s, params);
}
