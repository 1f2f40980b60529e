// SPDX-License-Identifier: MIT
// write.c: writes a context as a GGUF file, with the version of the context and zeros as padding. A sink counts bytes, or writes to
// memory or a file. An existing file is replaced only when the new file is complete (base/file.c).

#include "base/min.h"
#include "ggml-backend-impl.h"
#include "gguf/context.h"

#include <errno.h>
#include <string.h>

#define COPY_SIZE ((size_t) 1 << 20) // bytes of the buffer for data on a device

struct sink {
    FILE *file;          // destination; NULL: not a file
    unsigned char *data; // destination; NULL: not memory; both NULL: only count
    size_t size;         // bytes written so far
    bool failed;         // writing to the file failed
};

static void sink_put(struct sink *s, const void *bytes, size_t size) {
    if (size == 0 || s->failed) {
        return;
    }
    if (s->file != NULL && fwrite(bytes, 1, size, s->file) != size) {
        s->failed = true;
        berth_fail(GGML_STATUS_FAILED, "gguf: writing %zu bytes at offset %zu failed: %s", size, s->size, strerror(errno));
        return;
    }
    if (s->data != NULL) {
        memcpy(s->data + s->size, bytes, size);
    }
    s->size += size;
}

static void put_u32(struct sink *s, uint32_t x) {
    sink_put(s, &x, sizeof x);
}

static void put_u64(struct sink *s, uint64_t x) {
    sink_put(s, &x, sizeof x);
}

static void put_text(struct sink *s, const char *text, size_t size) {
    put_u64(s, size);
    sink_put(s, text, size);
}

static void put_padding(struct sink *s, size_t alignment) {
    static const unsigned char zeros[256];
    if (s->file == NULL && s->data == NULL) {
        s->size += -s->size & (alignment - 1);
        return;
    }
    for (size_t left = -s->size & (alignment - 1); left > 0 && !s->failed;) {
        const size_t size = min_size(left, sizeof zeros);
        sink_put(s, zeros, size);
        left -= size;
    }
}

static void put_kv(struct sink *s, const struct gguf_kv *kv) {
    const void *value = berth_gguf_kv_value(kv);
    const struct gguf_list *list = value;
    put_text(s, kv->key, strlen(kv->key));
    if (kv->flags & GGUF_FLAG_ARRAY) {
        put_u32(s, GGUF_TYPE_ARRAY);
        put_u32(s, kv->type);
        put_u64(s, list->n);
        if (kv->type != GGUF_TYPE_STRING) {
            sink_put(s, list->data, list->n * gguf_type_size((enum gguf_type) kv->type));
            return;
        }
        for (size_t i = 0; i < list->n; i++) {
            const size_t begin = i == 0 ? 0 : list->ends[i - 1];
            put_text(s, (const char *) list->data + begin, list->ends[i] - begin - 1);
        }
        return;
    }
    put_u32(s, kv->type);
    if (kv->type == GGUF_TYPE_STRING) {
        put_text(s, list->data, list->n);
    } else {
        sink_put(s, value, gguf_type_size((enum gguf_type) kv->type));
    }
}

static void put_info(struct sink *s, const struct gguf_info *info) {
    const int64_t *ne = berth_gguf_info_ne(info);
    uint32_t n_dims = GGML_MAX_DIMS;
    while (n_dims > 1 && ne[n_dims - 1] == 1) {
        n_dims--;
    }
    put_text(s, info->name, strlen(info->name));
    put_u32(s, n_dims);
    sink_put(s, ne, n_dims * sizeof *ne);
    put_u32(s, info->type);
    put_u64(s, info->offset);
}

static void put_meta(struct sink *s, const struct gguf_context *ctx) {
    sink_put(s, GGUF_MAGIC, 4);
    put_u32(s, ctx->version);
    put_u64(s, ctx->info.n);
    put_u64(s, ctx->kv.n);
    for (size_t i = 0; i < ctx->kv.n && !s->failed; i++) {
        put_kv(s, ctx->kv.items[i]);
    }
    for (size_t i = 0; i < ctx->info.n && !s->failed; i++) {
        put_info(s, ctx->info.items[i]);
    }
    put_padding(s, ctx->alignment);
}

static bool put_from_buffer(struct sink *s, const struct gguf_info *info, size_t size) {
    const struct gguf_origin *origin = berth_gguf_info_origin(info);
    struct ggml_tensor t = {.type = (enum ggml_type) info->type, .buffer = origin->buffer, .data = (void *) origin->data};
    memcpy(t.ne, berth_gguf_info_ne(info), sizeof t.ne);
    memcpy(t.name, info->name, strlen(info->name) + 1);
    t.nb[0] = ggml_type_size(t.type);
    t.nb[1] = ggml_row_size(t.type, t.ne[0]);
    t.nb[2] = t.nb[1] * (size_t) t.ne[1];
    t.nb[3] = t.nb[2] * (size_t) t.ne[2];

    if (t.buffer->iface.get_tensor == NULL) {
        return BERTH_FAIL_FALSE(GGML_STATUS_FAILED, "gguf: the buffer of '%s' cannot be read", info->name);
    }
    const size_t step = min_size(size, COPY_SIZE);
    unsigned char *copy = berth_calloc(1, step);
    if (copy == NULL) {
        return BERTH_FAIL_FALSE(
            GGML_STATUS_ALLOC_FAILED, "gguf: out of memory: %zu bytes for the copy buffer of '%s'", step, info->name);
    }
    for (size_t at = 0; at < size && !s->failed; at += step) {
        const size_t n = min_size(size - at, step);
        t.buffer->iface.get_tensor(t.buffer, &t, copy, at, n);
        sink_put(s, copy, n);
    }
    berth_free(copy);
    return !s->failed;
}

static bool data_check(const struct gguf_context *ctx) {
    for (size_t i = 0; i < ctx->info.n; i++) {
        const struct gguf_info *info = ctx->info.items[i];
        const struct gguf_origin *origin = berth_gguf_info_origin(info);
        if ((origin == NULL || origin->data == NULL) && gguf_get_tensor_size(ctx, (int64_t) i) > 0) {
            return BERTH_FAIL_FALSE(
                GGML_STATUS_FAILED, "gguf: tensor %zu, '%s', has no data to write: call gguf_set_tensor_data", i, info->name);
        }
    }
    return true;
}

bool gguf_write_to_file_ptr(const struct gguf_context *ctx, FILE *file, bool only_meta) {
    if (ctx == NULL || file == NULL) {
        return BERTH_FAIL_FALSE(GGML_STATUS_FAILED, "gguf_write_to_file_ptr: the %s is NULL", ctx == NULL ? "context" : "file");
    }
    if (!only_meta && !data_check(ctx)) {
        return false;
    }
    struct sink s = {.file = file};
    put_meta(&s, ctx);
    for (size_t i = 0; !only_meta && i < ctx->info.n && !s.failed; i++) {
        const struct gguf_info *info = ctx->info.items[i];
        const struct gguf_origin *origin = berth_gguf_info_origin(info);
        const size_t size = gguf_get_tensor_size(ctx, (int64_t) i);
        if (size > 0 && origin->buffer == NULL) {
            sink_put(&s, origin->data, size);
        } else if (size > 0 && !put_from_buffer(&s, info, size)) {
            return false;
        }
        put_padding(&s, ctx->alignment);
    }
    return !s.failed;
}

bool gguf_write_to_file(const struct gguf_context *ctx, const char *fname, bool only_meta) {
    if (ctx == NULL || fname == NULL) {
        return BERTH_FAIL_FALSE(GGML_STATUS_FAILED, "gguf_write_to_file: the %s is NULL", ctx == NULL ? "context" : "name");
    }
    struct berth_replace to;
    if (!berth_replace_open(&to, fname)) {
        return BERTH_FAIL_FALSE(GGML_STATUS_FAILED, "gguf: %s: cannot be opened to write: %s", fname, strerror(errno));
    }
    const bool ok = gguf_write_to_file_ptr(ctx, to.file, only_meta);
    if (!berth_replace_close(&to, ok) && ok) { // closing writes the last bytes, so it can fail, too
        return BERTH_FAIL_FALSE(GGML_STATUS_FAILED, "gguf: %s: writing failed: %s", fname, strerror(errno));
    }
    return ok;
}

size_t gguf_get_meta_size(const struct gguf_context *ctx) {
    if (ctx == NULL) {
        berth_fail(GGML_STATUS_FAILED, "gguf_get_meta_size: the context is NULL");
        return 0;
    }
    struct sink s = {0};
    put_meta(&s, ctx);
    return s.size;
}

void gguf_get_meta_data(const struct gguf_context *ctx, void *data) {
    if (ctx == NULL || data == NULL) {
        berth_fail(GGML_STATUS_FAILED, "gguf_get_meta_data: the %s is NULL", ctx == NULL ? "context" : "destination");
        return;
    }
    struct sink s = {.data = data};
    put_meta(&s, ctx);
}
