// SPDX-License-Identifier: MIT
// tallocr.c: tensor allocators of 2023: one tensor at a time into the smallest gap that takes it. Graphs are placed by
// galloc.c between the pieces that are taken here.

#include "compat2023/compat2023.h"
#include "core/op.h"

#include <string.h>

// Measuring is done at an address that is as badly aligned as the caller's memory may be.
#define MEASURE_BASE ((uintptr_t) 1 << 20)

// ---- life ----

static gen_tallocr_t tallocr_over(gen_buffer_t buffer, bool owns_buffer, bool is_measure) {
    gen_tallocr_t talloc = buffer != NULL ? berth_calloc(1, sizeof *talloc) : NULL;
    if (talloc == NULL) {
        if (owns_buffer) {
            berth_2023_buffer_free(buffer);
        }
        berth_fail(GGML_STATUS_ALLOC_FAILED, "no tensor allocator: no buffer, or out of memory");
        return NULL;
    }
    talloc->buffer     = buffer;
    talloc->align      = berth_2023_buffer_get_alignment(buffer);
    talloc->is_measure = is_measure;
    if (is_measure) {
        berth_2023_buffer_is_measure(buffer);
    }
    talloc->owns_buffer = owns_buffer;
    talloc->capacity    = is_measure ? UINT64_MAX : berth_2023_buffer_get_size(buffer);
    talloc->start       = (talloc->align - (uintptr_t) berth_2023_buffer_get_base(buffer) % talloc->align) % talloc->align;
    return talloc;
}

gen_tallocr_t berth_2023_tallocr_new(void *data, size_t size, size_t alignment) {
    if (data == NULL || alignment == 0) {
        berth_fail(GGML_STATUS_FAILED, "ggml_tallocr_new: no memory, or an alignment of 0");
        return NULL;
    }
    return tallocr_over(berth_2023_buffer_over(NULL, data, size, alignment), true, false);
}

gen_tallocr_t berth_2023_tallocr_new_measure(size_t alignment) {
    if (alignment == 0) {
        berth_fail(GGML_STATUS_FAILED, "ggml_tallocr_new_measure: an alignment of 0");
        return NULL;
    }
    const uintptr_t aligned = (MEASURE_BASE + alignment - 1) / alignment * alignment;
    void *base              = (void *) (alignment > 1 ? aligned + 1 : aligned);
    return tallocr_over(berth_2023_buffer_over(NULL, base, SIZE_MAX / 2, alignment), true, true);
}

gen_tallocr_t berth_2023_tallocr_new_from_buffer(gen_buffer_t buffer) {
    return tallocr_over(buffer, false, false);
}

gen_tallocr_t berth_2023_tallocr_new_from_backend(gen_backend_t backend, size_t size) {
    gen_tallocr_t talloc = tallocr_over(berth_2023_alloc_buffer(backend, size), true, false);
    if (talloc != NULL) {
        talloc->grows_on = backend;
    }
    return talloc;
}

// Tensors are as large as in a buffer of the backend: a buffer of one byte is there to be asked. Its memory is not touched.

static void measure_free(gen_buffer_t buffer) {
    berth_2023_buffer_free(buffer->context);
}

static void *measure_base(gen_buffer_t buffer) {
    const size_t align = berth_2023_buffer_get_alignment(buffer);
    return (void *) ((MEASURE_BASE + align - 1) / align * align);
}

static size_t measure_alloc_size(gen_buffer_t buffer, struct ggml_tensor *tensor) {
    return berth_2023_buffer_get_alloc_size(buffer->context, tensor);
}

gen_tallocr_t berth_2023_tallocr_new_measure_from_backend(gen_backend_t backend) {
    static const struct gen_buffer_i iface = {
        .free_buffer = measure_free, .get_base = measure_base, .get_alloc_size = measure_alloc_size};
    gen_buffer_t sample = berth_2023_alloc_buffer(backend, 1);
    if (sample == NULL) {
        return NULL;
    }
    gen_buffer_t buffer = berth_2023_buffer_init(backend, iface, sample, SIZE_MAX / 2);
    if (buffer == NULL) {
        berth_2023_buffer_free(sample);
        return NULL;
    }
    return tallocr_over(buffer, true, true);
}

void berth_2023_tallocr_free(gen_tallocr_t talloc) {
    if (talloc == NULL) {
        return;
    }
    if (talloc->owns_buffer) {
        berth_2023_buffer_free(talloc->buffer);
    }
    for (size_t i = 0; i < talloc->n_old; i++) {
        berth_2023_buffer_free(talloc->old[i]);
    }
    berth_free(talloc->old);
    berth_free(talloc->pieces);
    berth_free(talloc);
}

gen_buffer_t berth_2023_tallocr_get_buffer(gen_tallocr_t talloc) {
    return talloc != NULL ? talloc->buffer : NULL;
}

bool berth_2023_tallocr_is_measure(gen_tallocr_t talloc) {
    return talloc != NULL && talloc->is_measure;
}

void berth_2023_tallocr_reset(gen_tallocr_t talloc) {
    if (talloc == NULL) {
        return;
    }
    talloc->n_pieces = 0;
    for (size_t i = 0; i < talloc->n_old; i++) {
        if (!gen_is_retired(talloc->old[i])) {
            berth_2023_buffer_retire(talloc->old[i]);
        }
    }
}

size_t berth_2023_tallocr_max_size(gen_tallocr_t talloc) {
    return talloc != NULL ? (size_t) talloc->peak : 0;
}

// ---- growing ----

gen_buffer_t berth_2023_old(const struct gen_tallocr *talloc, const struct ggml_backend_buffer *buffer) {
    for (size_t i = 0; i < talloc->n_old; i++) {
        if (buffer == gen_today(talloc->old[i])) {
            return talloc->old[i];
        }
    }
    return NULL;
}

bool berth_2023_grow(struct gen_tallocr *talloc, uint64_t need) {
    const uint64_t slack = talloc->start > 0 ? talloc->align : 0; // a backend whose buffers are not aligned
    if (talloc->grows_on == NULL || need > SIZE_MAX / 4 ||
        !berth_grow((void **) &talloc->old, &talloc->old_cap, talloc->n_old + 1, sizeof talloc->old[0])) {
        return false;
    }
    gen_buffer_t buffer = berth_2023_alloc_buffer(talloc->grows_on, (size_t) (need + slack));
    if (buffer == NULL) {
        return false;
    }
    const uint64_t start = (talloc->align - (uintptr_t) berth_2023_buffer_get_base(buffer) % talloc->align) % talloc->align;
    if (start > talloc->start + slack) {
        berth_2023_buffer_free(buffer);
        return false;
    }
    for (size_t i = 0; i < talloc->n_pieces; i++) {
        talloc->pieces[i].off += start - talloc->start;
    }
    berth_log(GGML_LOG_LEVEL_INFO, "an allocator of %llu bytes on backend %s grows to %llu: more is needed than was measured\n",
        (unsigned long long) talloc->capacity, berth_2023_name(talloc->grows_on), (unsigned long long) need);
    talloc->old[talloc->n_old++] = talloc->buffer;
    talloc->buffer               = buffer;
    talloc->start                = start;
    talloc->capacity             = berth_2023_buffer_get_size(buffer);
    return true;
}

// ---- pieces ----

static size_t piece_slot(const struct gen_tallocr *talloc, uint64_t off) {
    size_t lo = 0, hi = talloc->n_pieces;
    while (lo < hi) {
        const size_t mid = lo + (hi - lo) / 2;
        if (talloc->pieces[mid].off < off) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return lo;
}

bool berth_2023_take(struct gen_tallocr *talloc, uint64_t off, uint64_t size, const struct ggml_tensor *tensor) {
    if (size == 0) {
        return true;
    }
    if (!berth_grow((void **) &talloc->pieces, &talloc->pieces_cap, talloc->n_pieces + 1, sizeof talloc->pieces[0])) {
        return false;
    }
    const size_t i = piece_slot(talloc, off);
    memmove(&talloc->pieces[i + 1], &talloc->pieces[i], (talloc->n_pieces - i) * sizeof talloc->pieces[0]);
    talloc->pieces[i] = (struct gen_piece){off, size, tensor};
    talloc->n_pieces++;
    return true;
}

struct gen_piece *berth_2023_piece(const struct gen_tallocr *talloc, uint64_t off, const struct ggml_tensor *tensor) {
    const size_t i = piece_slot(talloc, off);
    return i < talloc->n_pieces && talloc->pieces[i].off == off && talloc->pieces[i].tensor == tensor ? &talloc->pieces[i] : NULL;
}

void berth_2023_give(struct gen_tallocr *talloc, uint64_t off, const struct ggml_tensor *tensor) {
    struct gen_piece *piece = berth_2023_piece(talloc, off, tensor);
    if (piece != NULL) {
        const size_t n_after = talloc->n_pieces - 1 - (size_t) (piece - talloc->pieces);
        memmove(piece, piece + 1, n_after * sizeof *piece);
        talloc->n_pieces--;
    }
}

// The smallest gap between pieces that takes size bytes, else behind the last one.
static uint64_t find_gap(const struct gen_tallocr *talloc, uint64_t size) {
    uint64_t at = talloc->start, best = UINT64_MAX, best_size = UINT64_MAX;
    for (size_t i = 0; i < talloc->n_pieces; i++) {
        const uint64_t gap = talloc->pieces[i].off - at;
        if (gap >= size && gap < best_size) {
            best      = at;
            best_size = gap;
        }
        at = talloc->pieces[i].off + talloc->pieces[i].size;
    }
    return best != UINT64_MAX ? best : at;
}

void berth_2023_place(struct gen_tallocr *talloc, struct ggml_tensor *tensor, uint64_t off) {
    tensor->data   = (void *) ((uintptr_t) berth_2023_buffer_get_base(talloc->buffer) + off);
    tensor->buffer = gen_today(talloc->buffer);
    if (!talloc->is_measure) {
        berth_2023_buffer_init_tensor(talloc->buffer, tensor);
    }
}

void berth_2023_tallocr_alloc(gen_tallocr_t talloc, struct ggml_tensor *tensor) {
    if (talloc == NULL || tensor == NULL || berth_poisoned(tensor) || tensor->view_src != NULL || tensor->data != NULL) {
        berth_fail(GGML_STATUS_FAILED, "ggml_tallocr_alloc: no allocator, or the tensor is a view or has memory: %s",
            berth_name_of(tensor));
        return;
    }
    const uint64_t align = talloc->align, need = berth_2023_buffer_get_alloc_size(talloc->buffer, tensor);
    const uint64_t size = need > UINT64_MAX / 4 ? UINT64_MAX / 4 : (need + align - 1) / align * align;
    uint64_t off        = find_gap(talloc, size);
    if (off + size > talloc->peak) {
        talloc->peak = off + size;
    }
    // The last tensor needs no padding behind it.
    const uint64_t start = talloc->start;
    if (off + need > talloc->capacity && berth_2023_grow(talloc, off + need)) {
        off += talloc->start - start;
    }
    if (off + need > talloc->capacity) {
        berth_fail(GGML_STATUS_ALLOC_FAILED, "the allocator is full: tensor %s needs %llu bytes, %llu in all of %llu",
            berth_name_of(tensor), (unsigned long long) need, (unsigned long long) (off + need),
            (unsigned long long) talloc->capacity);
        return;
    }
    if (!berth_2023_take(talloc, off, size, tensor)) {
        berth_fail(GGML_STATUS_ALLOC_FAILED, "out of memory for a list of %zu tensors", talloc->n_pieces);
        return;
    }
    berth_2023_place(talloc, tensor, off);
}

// ---- all tensors of a context ----

gen_buffer_t berth_2023_alloc_ctx_tensors(struct ggml_context *ctx, gen_backend_t backend) {
    gen_tallocr_t measure = berth_2023_tallocr_new_measure_from_backend(backend);
    uint64_t size         = 0;
    for (struct ggml_tensor *t = ggml_get_first_tensor(ctx); t != NULL && measure != NULL; t = ggml_get_next_tensor(ctx, t)) {
        if (t->data == NULL && t->view_src == NULL) {
            const uint64_t need = berth_2023_buffer_get_alloc_size(measure->buffer, t);
            size += (need + measure->align - 1) / measure->align * measure->align;
        }
    }
    berth_2023_tallocr_free(measure);
    gen_buffer_t buffer  = size > 0 ? berth_2023_alloc_buffer(backend, size) : NULL;
    gen_tallocr_t talloc = buffer != NULL ? berth_2023_tallocr_new_from_buffer(buffer) : NULL;
    if (talloc == NULL) {
        berth_2023_buffer_free(buffer);
        return NULL;
    }
    for (struct ggml_tensor *t = ggml_get_first_tensor(ctx); t != NULL; t = ggml_get_next_tensor(ctx, t)) {
        if (t->data == NULL && t->view_src == NULL) {
            berth_2023_tallocr_alloc(talloc, t);
        }
    }
    for (struct ggml_tensor *t = ggml_get_first_tensor(ctx); t != NULL; t = ggml_get_next_tensor(ctx, t)) {
        if (t->view_src != NULL && t->view_src->data != NULL && t->buffer == NULL) {
            t->data   = (char *) t->view_src->data + t->view_offs;
            t->buffer = t->view_src->buffer;
            berth_2023_buffer_init_tensor(berth_2023_buffer_of(t->buffer), t);
        }
    }
    berth_2023_tallocr_free(talloc);
    return buffer;
}

gen_buffer_t berth_2023_alloc_ctx_tensors_from_buft(struct ggml_context *ctx, ggml_backend_buffer_type_t buft) {
    return berth_2023_alloc_ctx_tensors(ctx, (gen_backend_t) (void *) buft);
}
