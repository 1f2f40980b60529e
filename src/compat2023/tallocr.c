// SPDX-License-Identifier: MIT
// tallocr.c: the tensor allocators of the 2023 API. Each tensor is placed in the smallest gap that is large enough (best fit).
// A piece is the range of bytes of a placed tensor. galloc.c places graphs in the gaps between pieces.

#include "compat2023/compat2023.h"
#include "core/op.h"

#include <string.h>

// ---- creating and freeing ----

gen_tallocr_t berth_2023_tallocr_over(gen_buffer_t buffer, bool owns_buffer, bool is_measure, gen_source_t grows_on) {
    gen_tallocr_t talloc = buffer != NULL ? berth_calloc(1, sizeof *talloc) : NULL;
    if (talloc == NULL) {
        if (owns_buffer) {
            berth_2023_buffer_free(buffer);
        }
        berth_fail(GGML_STATUS_ALLOC_FAILED, "cannot create a tensor allocator: the buffer is NULL, or out of memory");
        return NULL;
    }
    talloc->buffer = buffer;
    talloc->align = berth_2023_buffer_get_alignment(buffer);
    talloc->is_measure = is_measure;
    talloc->grows_on = grows_on;
    if (is_measure) {
        gen_head(buffer)->is_measure = true;
    }
    talloc->owns_buffer = owns_buffer;
    talloc->capacity = is_measure ? UINT64_MAX : berth_2023_buffer_get_size(buffer);
    talloc->start = (talloc->align - (uintptr_t) berth_2023_buffer_get_base(buffer) % talloc->align) % talloc->align;
    return talloc;
}

gen_tallocr_t berth_2023_tallocr_new_from_buffer(gen_buffer_t buffer) {
    return berth_2023_tallocr_over(buffer, false, false, NULL);
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
    const uint64_t slack = talloc->start > 0 ? talloc->align : 0; // spare bytes: a buffer may start unaligned
    if (talloc->grows_on == NULL || need > SIZE_MAX / 4 ||
        !berth_grow((void **) &talloc->old, &talloc->old_cap, talloc->n_old + 1, sizeof talloc->old[0])) {
        return false;
    }
    gen_buffer_t buffer = gen_head(talloc->buffer)->date->alloc(talloc->grows_on, (size_t) (need + slack));
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
    berth_log(GGML_LOG_LEVEL_INFO, "an allocator of %llu bytes on %s grows to %llu: the graph needs more than was measured\n",
        (unsigned long long) talloc->capacity, gen_head(talloc->buffer)->date->source_name(talloc->grows_on),
        (unsigned long long) need);
    talloc->old[talloc->n_old++] = talloc->buffer;
    talloc->buffer = buffer;
    talloc->start = start;
    talloc->capacity = berth_2023_buffer_get_size(buffer);
    return true;
}

// ---- pieces ----

static size_t piece_lower_bound(const struct gen_tallocr *talloc, uint64_t off) {
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
    const size_t i = piece_lower_bound(talloc, off);
    memmove(&talloc->pieces[i + 1], &talloc->pieces[i], (talloc->n_pieces - i) * sizeof talloc->pieces[0]);
    talloc->pieces[i] = (struct gen_piece){off, size, tensor};
    talloc->n_pieces++;
    return true;
}

struct gen_piece *berth_2023_piece(const struct gen_tallocr *talloc, uint64_t off, const struct ggml_tensor *tensor) {
    const size_t i = piece_lower_bound(talloc, off);
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

// Returns the offset of the smallest gap that holds size bytes. If there is none, returns the end of the last piece.
static uint64_t find_gap(const struct gen_tallocr *talloc, uint64_t size) {
    uint64_t at = talloc->start, best = UINT64_MAX, best_size = UINT64_MAX;
    for (size_t i = 0; i < talloc->n_pieces; i++) {
        const uint64_t gap = talloc->pieces[i].off - at;
        if (gap >= size && gap < best_size) {
            best = at;
            best_size = gap;
        }
        at = talloc->pieces[i].off + talloc->pieces[i].size;
    }
    return best != UINT64_MAX ? best : at;
}

void berth_2023_place(struct gen_tallocr *talloc, struct ggml_tensor *tensor, uint64_t off) {
    tensor->data = (void *) ((uintptr_t) berth_2023_buffer_get_base(talloc->buffer) + off);
    tensor->buffer = gen_today(talloc->buffer);
    if (!talloc->is_measure) {
        berth_2023_buffer_init_tensor(talloc->buffer, tensor);
    }
}

void berth_2023_tallocr_alloc(gen_tallocr_t talloc, struct ggml_tensor *tensor) {
    if (talloc == NULL || tensor == NULL || berth_poisoned(tensor) || tensor->view_src != NULL || tensor->data != NULL) {
        berth_fail(GGML_STATUS_FAILED,
            "ggml_tallocr_alloc: the allocator is NULL, or the tensor %s is a view or has memory already", berth_name_of(tensor));
        return;
    }
    const uint64_t align = talloc->align, need = berth_2023_buffer_get_alloc_size(talloc->buffer, tensor);
    const uint64_t size = need > UINT64_MAX / 4 ? UINT64_MAX / 4 : (need + align - 1) / align * align;
    uint64_t off = find_gap(talloc, size);
    if (off + size > talloc->peak) {
        talloc->peak = off + size;
    }
    // The last tensor needs no padding after its end.
    const uint64_t start = talloc->start;
    if (off + need > talloc->capacity && berth_2023_grow(talloc, off + need)) {
        off += talloc->start - start;
    }
    if (off + need > talloc->capacity) {
        berth_fail(GGML_STATUS_ALLOC_FAILED, "the allocator is full: tensor %s needs %llu bytes, in total %llu of %llu",
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
