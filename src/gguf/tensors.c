// SPDX-License-Identifier: MIT
// tensors.c: queries, adds and changes the tensors of a context. Data is not copied.

#include "base/min.h"
#include "core/span.h"
#include "core/type.h"
#include "gguf/context.h"

#include <string.h>

const int64_t berth_gguf_ones[GGML_MAX_DIMS] = {1, 1, 1, 1};

bool berth_gguf_nbytes(enum ggml_type type, const int64_t ne[GGML_MAX_DIMS], size_t *size) {
    const struct berth_type_row *row = berth_type_row(type);
    if (row == NULL || ne[0] < 0 || ne[0] % row->traits.blck_size != 0) {
        return false;
    }
    // An extent of 0 counts as 1 here, so that the product of the other extents is checked for overflow.
    const int64_t n_blocks = ne[0] > 0 ? ne[0] / row->traits.blck_size : 1;
    int64_t n_bytes, n = ne[0] > 0 ? ne[0] : row->traits.blck_size; // number of elements
    bool is_empty = ne[0] == 0, ok = berth_mul_i64_ok(n_blocks, (int64_t) row->traits.type_size, &n_bytes);
    for (int i = 1; ok && i < GGML_MAX_DIMS; i++) {
        const int64_t extent = ne[i] > 0 ? ne[i] : 1;
        is_empty = is_empty || ne[i] == 0;
        ok = ne[i] >= 0 && berth_mul_i64_ok(n_bytes, extent, &n_bytes) && berth_mul_i64_ok(n, extent, &n);
    }
    *size = is_empty ? 0 : (size_t) n_bytes;
    return ok;
}

static size_t info_size(const struct gguf_info *info) {
    size_t size = 0; // cannot fail: the extents were checked when the block was created
    return berth_gguf_nbytes((enum ggml_type) info->type, berth_gguf_info_ne(info), &size) ? size : 0;
}

bool berth_gguf_offsets(struct gguf_context *ctx, size_t alignment, size_t i_first) {
    size_t sum = 0; // this loop only checks the sizes, so that a failure changes no offset
    for (size_t i = 0; i < ctx->info.n; i++) {
        size_t padded;
        if (!berth_pad_ok(info_size(ctx->info.items[i]), alignment, &padded) || !berth_add_ok(sum, padded, &sum) ||
            sum > INT64_MAX) {
            return BERTH_FAIL_FALSE(
                GGML_STATUS_FAILED, "gguf: the tensors have more than 2^63 bytes with alignment %zu", alignment);
        }
    }
    size_t end = 0;
    for (size_t i = 0; i < ctx->info.n; i++) {
        struct gguf_info *info = ctx->info.items[i];
        if (i >= i_first) {
            info->offset = end;
        }
        end = GGML_PAD(info->offset + info_size(info), alignment);
    }
    ctx->alignment = alignment;
    ctx->data_size = end;
    return true;
}

size_t gguf_get_tensor_offset(const struct gguf_context *ctx, int64_t tensor_id) {
    const struct gguf_info *info = berth_gguf_info_at(ctx, tensor_id, __func__);
    return info == NULL ? 0 : (size_t) info->offset;
}

const char *gguf_get_tensor_name(const struct gguf_context *ctx, int64_t tensor_id) {
    const struct gguf_info *info = berth_gguf_info_at(ctx, tensor_id, __func__);
    return info == NULL ? NULL : info->name;
}

const int64_t *gguf_get_tensor_ne(const struct gguf_context *ctx, int64_t tensor_id) {
    const struct gguf_info *info = berth_gguf_info_at(ctx, tensor_id, __func__);
    return info == NULL ? NULL : berth_gguf_info_ne(info);
}

enum ggml_type gguf_get_tensor_type(const struct gguf_context *ctx, int64_t tensor_id) {
    const struct gguf_info *info = berth_gguf_info_at(ctx, tensor_id, __func__);
    return info == NULL ? GGML_TYPE_COUNT : (enum ggml_type) info->type;
}

size_t gguf_get_tensor_size(const struct gguf_context *ctx, int64_t tensor_id) {
    const struct gguf_info *info = berth_gguf_info_at(ctx, tensor_id, __func__);
    return info == NULL ? 0 : info_size(info);
}

// The caller sets the offset. NULL, with the error set: out of memory.
static struct gguf_info *info_new(const char *name, enum ggml_type type, const int64_t *ne, const char *caller) {
    const size_t before = sizeof(struct gguf_origin) + GGML_MAX_DIMS * sizeof *ne;
    const size_t name_size = strnlen(name, GGML_MAX_NAME - 1) + 1;
    const size_t size = before + offsetof(struct gguf_info, name) + name_size;
    char *block = berth_calloc(1, max_size(size, before + sizeof(struct gguf_info)));
    if (block == NULL) {
        return BERTH_FAIL_NULL(GGML_STATUS_ALLOC_FAILED, "%s: out of memory: tensor '%s' takes %zu bytes", caller, name, size);
    }
    struct gguf_info *info = (struct gguf_info *) (void *) (block + before);
    memcpy(block + sizeof(struct gguf_origin), ne, GGML_MAX_DIMS * sizeof *ne);
    info->type = (uint8_t) type;
    info->flags = GGUF_FLAG_OWNED;
    memcpy(info->name, name, name_size - 1);
    return info;
}

void gguf_add_tensor(struct gguf_context *ctx, const struct ggml_tensor *tensor) {
    size_t size, end;
    if (ctx == NULL || tensor == NULL) {
        berth_fail(GGML_STATUS_FAILED, "gguf_add_tensor: the %s is NULL", ctx == NULL ? "context" : "tensor");
        return;
    }
    if (berth_is_poison(tensor)) {
        berth_fail(GGML_STATUS_FAILED, "gguf_add_tensor: %s", berth_poison_error(tensor));
        return;
    }
    if (berth_gguf_table_find(&ctx->info, tensor->name) >= 0) {
        berth_fail(GGML_STATUS_FAILED, "gguf_add_tensor: there is a tensor '%s' already", tensor->name);
        return;
    }
    const bool has_size = berth_gguf_nbytes(tensor->type, tensor->ne, &size);
    if (!has_size || (size > 0 && !ggml_is_contiguous(tensor))) { // the strides of an empty tensor do not matter
        berth_fail(GGML_STATUS_FAILED, "gguf_add_tensor: '%s' of type %d with %lld x %lld x %lld x %lld elements is %s",
            tensor->name, (int) tensor->type, (long long) tensor->ne[0], (long long) tensor->ne[1], (long long) tensor->ne[2],
            (long long) tensor->ne[3], has_size ? "not contiguous" : "not valid in a file");
        return;
    }
    if (!berth_add_ok(ctx->data_size, size, &end) || !berth_pad_ok(end, ctx->alignment, &end) || end > INT64_MAX) {
        berth_fail(
            GGML_STATUS_FAILED, "gguf_add_tensor: %zu bytes and %zu of '%s' exceed 2^63", ctx->data_size, size, tensor->name);
        return;
    }
    struct gguf_info *info = info_new(tensor->name, tensor->type, tensor->ne, __func__);
    if (info == NULL) {
        return;
    }
    *berth_gguf_info_origin(info) = (struct gguf_origin){tensor->data, berth_span_buffer(tensor)};
    info->offset = ctx->data_size;
    if (!berth_gguf_table_add(&ctx->info, info)) {
        berth_fail(GGML_STATUS_ALLOC_FAILED, "gguf_add_tensor: out of memory: cannot add tensor %zu", ctx->info.n);
        berth_free(berth_gguf_info_origin(info));
        return;
    }
    ctx->data_size = end;
}

// -1: failed.
static int64_t find_or_fail(const struct gguf_context *ctx, const char *name, const char *caller) {
    const int64_t id = ctx == NULL || name == NULL ? -1 : berth_gguf_table_find(&ctx->info, name);
    if (id < 0) {
        berth_fail(GGML_STATUS_FAILED, "%s: there is no tensor '%s'", caller, name == NULL ? "(NULL)" : name);
    }
    return id;
}

void gguf_set_tensor_type(struct gguf_context *ctx, const char *name, enum ggml_type type) {
    const int64_t id = find_or_fail(ctx, name, __func__);
    if (id < 0) {
        return;
    }
    struct gguf_info *info = ctx->info.items[id];
    const uint8_t old = info->type;
    size_t size;
    if (!berth_gguf_nbytes(type, berth_gguf_info_ne(info), &size)) {
        berth_fail(GGML_STATUS_FAILED, "gguf_set_tensor_type: '%s' with rows of %lld elements cannot be of type %s (%d)", name,
            (long long) berth_gguf_info_ne(info)[0], berth_type_row(type) != NULL ? ggml_type_name(type) : "none", (int) type);
        return;
    }
    info->type = (uint8_t) type;
    if (!berth_gguf_offsets(ctx, ctx->alignment, (size_t) id + 1)) {
        info->type = old;
    }
}

void gguf_set_tensor_data(struct gguf_context *ctx, const char *name, const void *data) {
    const int64_t id = find_or_fail(ctx, name, __func__);
    if (id < 0) {
        return;
    }
    struct gguf_info *info = ctx->info.items[id];
    if (berth_gguf_info_origin(info) == NULL) { // a block that was read from a file has no space for an origin, so it is replaced
        struct gguf_info *own = info_new(info->name, (enum ggml_type) info->type, berth_gguf_info_ne(info), __func__);
        if (own == NULL) {
            return;
        }
        own->offset = info->offset;
        ctx->info.items[id] = own;
        info = own;
    }
    *berth_gguf_info_origin(info) = (struct gguf_origin){data, NULL};
}
