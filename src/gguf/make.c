// SPDX-License-Identifier: MIT
// make.c: creates a ggml_context with the tensors of a file. If data is read, the first tensor holds all bytes, and the other
// tensors point into it.

#include "gguf/read.h"

#include <inttypes.h>
#include <string.h>

static bool data_check(const struct gguf_context *ctx, struct gguf_source *s) {
    const uint64_t end = (uint64_t) ctx->data_offset + ctx->data_size;
    unsigned char last;
    if (s->size == GGUF_SIZE_UNKNOWN && ctx->data_size > 0) { // read the last byte before allocating memory
        if (s->callback == NULL) {
            return berth_gguf_source_fail(s, s->at, "%zu bytes of tensors require a seekable file", ctx->data_size);
        }
        return berth_gguf_source_seek(s, end - 1) && berth_gguf_source_read(s, &last, 1, "data of the tensors");
    }
    if (ctx->data_size > 0 && end > s->size) {
        return berth_gguf_source_fail(s, ctx->data_offset, "the tensors need %zu bytes, but the file has only %" PRIu64,
            ctx->data_size, s->size > ctx->data_offset ? s->size - ctx->data_offset : 0);
    }
    return true;
}

static void tensors_add(const struct gguf_context *ctx, struct ggml_context *out, char *data) {
    ggml_set_no_alloc(out, true);
    for (size_t i = 0; i < ctx->info.n; i++) {
        const struct gguf_info *info = ctx->info.items[i];
        struct ggml_tensor *t = ggml_new_tensor(out, (enum ggml_type) info->type, GGML_MAX_DIMS, berth_gguf_info_ne(info));
        // Cannot fail: the reader has checked type and extents, and context_new has made the ggml_context large enough.
        BERTH_ASSERT(!berth_is_poison(t));
        ggml_set_name(t, info->name);
        if (data != NULL) {
            t->data = data + info->offset;
        }
    }
}

// The sum fits 64 bits, because there are fewer than 2^32 tensors and at most 2^63 bytes of data.
static struct ggml_context *context_new(size_t n_tensors, size_t data_size) {
    const size_t size = n_tensors * ggml_tensor_overhead() + GGML_PAD(data_size, (size_t) GGML_MEM_ALIGN);
    return ggml_init((struct ggml_init_params){.mem_size = size, .no_alloc = data_size == 0});
}

struct ggml_context *berth_gguf_tensors_plain(const struct gguf_context *ctx) {
    struct ggml_context *out = context_new(ctx->info.n, 0);
    if (out != NULL) {
        tensors_add(ctx, out, NULL);
    }
    return out;
}

bool berth_gguf_tensors_make(struct gguf_context *ctx, struct gguf_source *s, struct gguf_init_params params) {
    if (params.no_alloc) {
        *params.ctx = berth_gguf_tensors_plain(ctx);
        return *params.ctx != NULL;
    }
    if (!data_check(ctx, s)) {
        return false;
    }
    struct ggml_context *out = context_new(ctx->info.n + 1, ctx->data_size);
    if (out == NULL) {
        return false;
    }
    ggml_set_no_alloc(out, false);
    struct ggml_tensor *data = ggml_new_tensor_1d(out, GGML_TYPE_I8, (int64_t) ctx->data_size);
    BERTH_ASSERT(!berth_is_poison(data));
    ggml_set_name(data, "GGUF tensor data binary blob"); // programs look it up by this name
    if (ctx->data_size > 0 && (!berth_gguf_source_seek(s, ctx->data_offset) ||
                                  !berth_gguf_source_read(s, data->data, ctx->data_size, "data of the tensors"))) {
        ggml_free(out);
        return false;
    }
    tensors_add(ctx, out, data->data);
    ggml_set_no_alloc(out, false);
    ctx->data = data->data;
    *params.ctx = out;
    return true;
}
