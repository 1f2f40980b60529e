// SPDX-License-Identifier: MIT
// tallocr.c: places tensors serially in a buffer, and all tensors of a context in as many buffers as necessary. A failed call
// leaves every tensor unchanged.

#include "backend/backend.h"
#include "core/op.h"
#include "ggml-alloc.h"

// ---- tensor by tensor ----

static size_t align_gap(const void *base, size_t offset, size_t align) {
    return (align - ((uintptr_t) base + offset) % align) % align;
}

struct ggml_tallocr ggml_tallocr_new(ggml_backend_buffer_t buffer) {
    if (buffer == NULL) {
        berth_fail(GGML_STATUS_FAILED, "ggml_tallocr_new: the buffer is NULL");
        return (struct ggml_tallocr){.alignment = 1};
    }
    void *base = ggml_backend_buffer_get_base(buffer);
    const size_t align = ggml_backend_buffer_get_alignment(buffer);
    return (struct ggml_tallocr){.buffer = buffer, .base = base, .alignment = align, .offset = align_gap(base, 0, align)};
}

enum ggml_status ggml_tallocr_alloc(struct ggml_tallocr *talloc, struct ggml_tensor *tensor) {
    if (talloc == NULL || talloc->buffer == NULL || tensor == NULL) {
        const char *what = "tensor";
        if (talloc == NULL || talloc->buffer == NULL) {
            what = talloc == NULL ? "allocator" : "allocator's buffer";
        }
        return berth_fail(GGML_STATUS_FAILED, "ggml_tallocr_alloc: the %s is NULL", what);
    }
    const size_t size = ggml_backend_buffer_get_size(talloc->buffer);
    const size_t left = talloc->offset < size ? size - talloc->offset : 0;
    const size_t need = ggml_backend_buffer_get_alloc_size(talloc->buffer, tensor);
    if (need > left) {
        return berth_fail(GGML_STATUS_ALLOC_FAILED,
            "ggml_tallocr_alloc: the buffer is full: tensor %s needs %zu bytes, %zu of %zu are left", berth_name_of(tensor), need,
            left, size);
    }
    const enum ggml_status status = ggml_backend_tensor_alloc(talloc->buffer, tensor, (char *) talloc->base + talloc->offset);
    if (status == GGML_STATUS_SUCCESS) {
        talloc->offset += need;
        talloc->offset += align_gap(talloc->base, talloc->offset, talloc->alignment);
    }
    return status;
}

// ---- all tensors of a context ----

// The tensors [first, end) of a context, which share one buffer of `size` bytes.
struct chunk {
    struct ggml_tensor *first, *end;
    size_t size;
};

static bool needs_memory(const struct ggml_tensor *t) {
    return t->data == NULL && t->view_src == NULL;
}

// Finds the chunk that starts at tensor `first`. It has as many tensors as fit into the largest buffer of the type, but at least
// one. False: the size overflows.
static bool chunk_from(
    struct ggml_context *ctx, ggml_backend_buffer_type_t buft, struct ggml_tensor *first, struct chunk *chunk) {
    const size_t align = ggml_backend_buft_get_alignment(buft), max = ggml_backend_buft_get_max_size(buft);
    *chunk = (struct chunk){.first = first};

    struct ggml_tensor *t = first;
    for (; t != NULL; t = ggml_get_next_tensor(ctx, t)) {
        if (!needs_memory(t)) {
            continue;
        }
        size_t size = ggml_backend_buft_get_alloc_size(buft, t), sum;
        if (!berth_add_ok(size, align - 1, &size) || !berth_add_ok(chunk->size, size - size % align, &sum)) {
            return BERTH_FAIL_FALSE(GGML_STATUS_ALLOC_FAILED, "the tensors of the context are larger than the address space");
        }
        if (sum > max && chunk->size > 0) {
            break;
        }
        chunk->size = sum;
    }
    chunk->end = t;
    return true;
}

static struct {
    berth_tensors_placed_t callback;
    void *user_data;
} watcher;

void berth_tensors_on_place(berth_tensors_placed_t callback, void *user_data) {
    watcher.callback = callback;
    watcher.user_data = user_data;
}

static void report_placed(ggml_backend_buffer_type_t buft, size_t size) {
    if (watcher.callback != NULL) {
        watcher.callback(buft, size, watcher.user_data);
    }
}

size_t ggml_backend_alloc_ctx_tensors_from_buft_size(struct ggml_context *ctx, ggml_backend_buffer_type_t buft) {
    size_t total = 0;
    struct chunk chunk;
    for (struct ggml_tensor *t = ggml_get_first_tensor(ctx); t != NULL && buft != NULL; t = chunk.end) {
        if (!chunk_from(ctx, buft, t, &chunk) || !berth_add_ok(total, chunk.size, &total)) {
            return SIZE_MAX;
        }
    }
    report_placed(buft, total);
    return total;
}

struct placed {
    struct ggml_tensor *tensor;
    void *data_was; // NULL, except for a view that had its address but not its buffer
};

// The work to undo after a failure.
struct work {
    ggml_backend_buffer_t *buffers;
    size_t n_buffers, n_buffers_cap;
    struct placed *placed;
    size_t n_placed, n_placed_cap;
};

static void work_undo(struct work *w) {
    for (size_t i = 0; i < w->n_placed; i++) {
        struct ggml_tensor *t = w->placed[i].tensor;

        t->buffer = NULL;
        t->data = w->placed[i].data_was;
        t->extra = NULL;
    }
    for (size_t i = 0; i < w->n_buffers; i++) {
        ggml_backend_buffer_free(w->buffers[i]);
    }
}

static void work_fini(struct work *w) {
    berth_free(w->buffers);
    berth_free(w->placed);
}

static enum ggml_status chunk_place(
    struct ggml_context *ctx, ggml_backend_buffer_type_t buft, const struct chunk *chunk, struct work *w) {
    if (!BERTH_GROW(&w->buffers, &w->n_buffers_cap, w->n_buffers + 1)) {
        return berth_fail(GGML_STATUS_ALLOC_FAILED, "out of memory for a list of %zu buffers", w->n_buffers + 1);
    }
    berth_clear_error(); // the error of the backend becomes part of the message
    ggml_backend_buffer_t buffer = ggml_backend_buft_alloc_buffer(buft, chunk->size);
    if (buffer == NULL) {
        const char *why = berth_last_error();
        return berth_fail(GGML_STATUS_ALLOC_FAILED,
            "cannot allocate a buffer of type %s of %zu bytes (buffer %zu of the context)%s%s", ggml_backend_buft_name(buft),
            chunk->size, w->n_buffers + 1, why[0] != '\0' ? ": " : "", why);
    }
    w->buffers[w->n_buffers++] = buffer;

    struct ggml_tallocr talloc = ggml_tallocr_new(buffer);
    for (struct ggml_tensor *t = chunk->first; t != chunk->end; t = ggml_get_next_tensor(ctx, t)) {
        if (!needs_memory(t)) {
            continue;
        }
        if (!BERTH_GROW(&w->placed, &w->n_placed_cap, w->n_placed + 1)) {
            return berth_fail(GGML_STATUS_ALLOC_FAILED, "out of memory for a list of %zu tensors", w->n_placed + 1);
        }
        const enum ggml_status status = ggml_tallocr_alloc(&talloc, t);
        if (status != GGML_STATUS_SUCCESS) {
            return status;
        }
        w->placed[w->n_placed++] = (struct placed){t, NULL};
    }
    return GGML_STATUS_SUCCESS;
}

static enum ggml_status views_place(struct ggml_context *ctx, struct work *w) {
    for (struct ggml_tensor *t = ggml_get_first_tensor(ctx); t != NULL; t = ggml_get_next_tensor(ctx, t)) {
        if (t->view_src == NULL || t->buffer != NULL || (t->view_src->buffer == NULL && t->view_src->data != NULL)) {
            continue; // not a view, already placed, or a view of memory in an arena
        }
        if (!BERTH_GROW(&w->placed, &w->n_placed_cap, w->n_placed + 1)) {
            return berth_fail(GGML_STATUS_ALLOC_FAILED, "out of memory for a list of %zu tensors", w->n_placed + 1);
        }
        void *data_was = t->data;
        const enum ggml_status status = ggml_backend_view_init(t);
        if (status != GGML_STATUS_SUCCESS) {
            return status;
        }
        w->placed[w->n_placed++] = (struct placed){t, data_was};
    }
    return GGML_STATUS_SUCCESS;
}

// Returns the buffer of all tensors. NULL: no tensor needs memory, or an error occurred; w holds the work to undo.
static ggml_backend_buffer_t tensors_place(struct ggml_context *ctx, ggml_backend_buffer_type_t buft, struct work *w) {
    struct chunk chunk;
    for (struct ggml_tensor *t = ggml_get_first_tensor(ctx); t != NULL; t = chunk.end) {
        if (!chunk_from(ctx, buft, t, &chunk)) {
            return NULL;
        }
        if (chunk.size > 0 && chunk_place(ctx, buft, &chunk, w) != GGML_STATUS_SUCCESS) {
            return NULL;
        }
    }
    if (w->n_buffers == 0 || views_place(ctx, w) != GGML_STATUS_SUCCESS) {
        return NULL;
    }
    return w->n_buffers == 1 ? w->buffers[0] : ggml_backend_multi_buffer_alloc_buffer(w->buffers, w->n_buffers);
}

// Returns NULL without an error if no tensor of the context needs memory.
struct ggml_backend_buffer *ggml_backend_alloc_ctx_tensors_from_buft(struct ggml_context *ctx, ggml_backend_buffer_type_t buft) {
    if (ctx == NULL || buft == NULL) {
        return BERTH_FAIL_NULL(GGML_STATUS_FAILED, "ggml_backend_alloc_ctx_tensors_from_buft: the %s is NULL",
            ctx == NULL ? "context" : "buffer type");
    }
    if (berth_context_error(ctx)[0] != '\0') {
        return BERTH_FAIL_NULL(GGML_STATUS_FAILED, "%s", berth_context_error(ctx));
    }
    const struct berth_composite_hooks *composite = berth_composite_hooks_get();
    if (composite != NULL && composite->is_composite(buft)) {
        return composite->alloc_ctx(ctx, buft);
    }
    struct work w = {0};
    struct ggml_backend_buffer *all = tensors_place(ctx, buft, &w);
    if (all == NULL) {
        work_undo(&w);
    } else {
        report_placed(buft, ggml_backend_buffer_get_size(all));
    }
    work_fini(&w);
    return all;
}

struct ggml_backend_buffer *ggml_backend_alloc_ctx_tensors(struct ggml_context *ctx, ggml_backend_t backend) {
    return ggml_backend_alloc_ctx_tensors_from_buft(ctx, ggml_backend_get_default_buffer_type(backend));
}
