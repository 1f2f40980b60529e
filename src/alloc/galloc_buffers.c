// SPDX-License-Identifier: MIT
// galloc_buffers.c: the buffers of a graph allocator.
// - If a pool is too small for a new plan, each of its chunks gets exactly the size that the new plan requires. A chunk may
//   therefore shrink.
// - If a pool is too small for an older plan, its chunks only grow, so that alternating plans reach a stable size.
// - If memory does not suffice for the old and the new buffer at the same time, the old buffer is freed first. If the allocation
//   of the new buffer then fails, a buffer of the old size is allocated again.

#include "alloc/galloc.h"
#include "backend/backend.h"

#include <string.h>

// ---- list of owned buffers ----

static size_t owned_slot(const struct ggml_gallocr *galloc, const struct ggml_backend_buffer *buffer) {
    size_t lo = 0, hi = galloc->n_owned;
    while (lo < hi) {
        const size_t mid = lo + (hi - lo) / 2;
        if ((uintptr_t) galloc->owned[mid] < (uintptr_t) buffer) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return lo;
}

bool berth_galloc_owns(const struct ggml_gallocr *galloc, const struct ggml_backend_buffer *buffer) {
    const size_t i = owned_slot(galloc, buffer);
    return i < galloc->n_owned && galloc->owned[i] == buffer;
}

static bool owned_reserve(struct ggml_gallocr *galloc) {
    const size_t n_few = sizeof galloc->few / sizeof galloc->few[0], n = galloc->n_owned + 1;
    if (n > n_few && !BERTH_GROW(&galloc->many, &galloc->many_cap, n)) {
        return false;
    }
    if (n == n_few + 1) {
        memcpy(galloc->many, galloc->few, sizeof galloc->few);
    }
    galloc->owned = n > n_few ? galloc->many : galloc->few;
    return true;
}

static void owned_add(struct ggml_gallocr *galloc, ggml_backend_buffer_t buffer) {
    ggml_backend_buffer_set_usage(buffer, GGML_BACKEND_BUFFER_USAGE_COMPUTE);
    const size_t i = owned_slot(galloc, buffer);
    memmove(&galloc->owned[i + 1], &galloc->owned[i], (galloc->n_owned - i) * sizeof galloc->owned[0]);
    galloc->owned[i] = buffer;
    galloc->n_owned++;
}

static ggml_backend_buffer_t chunk_new(struct ggml_gallocr *galloc, struct galloc_pool *pool, size_t size) {
    if (!owned_reserve(galloc)) {
        return NULL;
    }
    ggml_backend_buffer_t buffer = ggml_backend_buft_alloc_buffer(pool->buft, size);
    if (buffer != NULL) {
        owned_add(galloc, buffer);
    }
    return buffer;
}

// As chunk_new, for a buffer that the allocator can do without: a failure frees no memory of other owners (berth_reclaim).
static ggml_backend_buffer_t chunk_try_new(struct ggml_gallocr *galloc, struct galloc_pool *pool, size_t size) {
    berth_reclaim_pause();
    ggml_backend_buffer_t buffer = chunk_new(galloc, pool, size);
    berth_reclaim_resume();
    return buffer;
}

// Frees the memory but keeps the struct, because tensors may still point to it.
static void chunk_retire(ggml_backend_buffer_t buffer) {
    if (buffer != NULL && buffer->iface.free_buffer != NULL) {
        buffer->iface.free_buffer(buffer);
    }
    if (buffer != NULL) {
        buffer->iface = (struct ggml_backend_buffer_i){0};
        buffer->context = NULL;
        buffer->size = 0;
    }
}

void berth_galloc_buffers_free(struct ggml_gallocr *galloc) {
    for (size_t i = 0; i < galloc->n_owned; i++) {
        ggml_backend_buffer_free(galloc->owned[i]);
    }
    for (int p = 0; p < galloc->n_pools; p++) {
        berth_free(galloc->pools[p].many);
    }
    berth_free(galloc->many);
}

// ---- composite devices (src/meta) ----

// A layout is the memory of a composite device, planned separately for each of its devices. Addresses in a layout cannot be
// dereferenced. All layouts share one buffer, which has the memory of the largest layout on each device.

void berth_galloc_parts_drop(struct ggml_gallocr *galloc, struct galloc_plan *plan, int p) {
    if (plan->needs[p].layout != NULL) {
        galloc->pools[p].composite->layout_free(plan->needs[p].layout);
        plan->needs[p].layout = NULL;
        galloc->epoch++; // addresses in the layout are no longer valid
    }
}

enum ggml_status berth_galloc_parts_solve(struct ggml_gallocr *galloc, struct galloc_plan *plan, struct record *rec, int p) {
    const struct berth_layout_params params = {
        .pool_of = galloc->pool_of, .pool = p, .time_limit_us = galloc->options.time_limit_us, .report = &plan->needs[p].report};
    berth_galloc_parts_drop(galloc, plan, p);
    return galloc->pools[p].composite->layout_new(
        galloc->pools[p].buft, rec, &plan->lives, &params, plan->offsets, &plan->needs[p].layout);
}

static enum ggml_status parts_ensure_memory(struct ggml_gallocr *galloc, struct galloc_plan *plan, int p, bool is_new) {
    struct galloc_pool *pool = &galloc->pools[p];
    struct berth_layout *layout = plan->needs[p].layout;
    if (pool->parts.buffer == NULL) {
        ggml_backend_buffer_t buffer = owned_reserve(galloc) ? pool->composite->layout_buffer(pool->buft) : NULL;
        if (buffer == NULL) {
            return berth_fail(
                GGML_STATUS_ALLOC_FAILED, "out of memory for a compute buffer of type %s", ggml_backend_buft_name(pool->buft));
        }
        owned_add(galloc, buffer);
        pool->parts = (struct galloc_chunk){buffer, ggml_backend_buffer_get_base(buffer)};
        galloc->epoch++;
    }
    const size_t before = berth_galloc_parts_size(pool);
    bool is_moved = false;
    const bool ok =
        pool->composite->layout_ensure_memory(pool->parts.buffer, layout, is_new && before < layout->bytes, &is_moved);
    galloc->epoch += is_moved;
    if (!ok) {
        return berth_fail(GGML_STATUS_ALLOC_FAILED,
            "cannot allocate compute buffers of type %s with %zu bytes on all devices; the allocator has %zu bytes there",
            ggml_backend_buft_name(pool->buft), layout->bytes, before);
    }
    return GGML_STATUS_SUCCESS;
}

size_t berth_galloc_parts_size(const struct galloc_pool *pool) {
    return pool->parts.buffer != NULL ? pool->composite->layout_bytes(pool->parts.buffer) : 0;
}

// ---- growth ----

static void chunk_set(struct ggml_gallocr *galloc, struct galloc_pool *pool, size_t c, ggml_backend_buffer_t buffer) {
    pool->chunks[c] = (struct galloc_chunk){buffer, buffer != NULL ? ggml_backend_buffer_get_base(buffer) : NULL};
    galloc->epoch++;
}

static bool chunk_grow(struct ggml_gallocr *galloc, struct galloc_pool *pool, size_t c, size_t size) {
    ggml_backend_buffer_t old = pool->chunks[c].buffer;
    const size_t old_size = ggml_backend_buffer_get_size(old);
    ggml_backend_buffer_t fresh = old_size > 0 ? chunk_try_new(galloc, pool, size) : chunk_new(galloc, pool, size);
    if (fresh == NULL && old_size > 0) {
        chunk_retire(old);
        old = NULL;
        fresh = chunk_new(galloc, pool, size);
        if (fresh == NULL) {
            chunk_set(galloc, pool, c, chunk_new(galloc, pool, old_size));
            return false;
        }
    }
    if (fresh == NULL) {
        return false;
    }
    chunk_retire(old);
    chunk_set(galloc, pool, c, fresh);
    return true;
}

static bool chunks_grow(struct galloc_pool *pool, size_t n) {
    if (n <= pool->n_chunks) {
        return true;
    }
    if (n > 1 && !BERTH_GROW(&pool->many, &pool->many_cap, n)) {
        return false;
    }
    if (n > 1 && pool->n_chunks == 1) {
        pool->many[0] = pool->chunks[0];
    }
    pool->chunks = n > 1 ? pool->many : &pool->one;
    return true;
}

static size_t chunk_size(const struct galloc_pool *pool, size_t c) {
    return ggml_backend_buffer_get_size(pool->chunks[c].buffer);
}

// Shrinks the pool to the given sizes. If no smaller memory can be allocated, a chunk keeps its memory.
static void pool_trim(struct ggml_gallocr *galloc, struct galloc_pool *pool, const size_t *sizes, size_t n_sizes) {
    for (; pool->n_chunks > n_sizes; pool->n_chunks--) {
        chunk_retire(pool->chunks[pool->n_chunks - 1].buffer);
        chunk_set(galloc, pool, pool->n_chunks - 1, NULL);
    }
    if (n_sizes == 1 && pool->chunks != &pool->one) {
        pool->one = pool->chunks[0];
        pool->chunks = &pool->one;
    }
    for (size_t c = 0; c < n_sizes; c++) {
        if (chunk_size(pool, c) <= sizes[c]) {
            continue;
        }
        ggml_backend_buffer_t fresh = chunk_try_new(galloc, pool, sizes[c]);
        if (fresh != NULL) {
            chunk_retire(pool->chunks[c].buffer);
            chunk_set(galloc, pool, c, fresh);
        }
    }
}

// Returns true if the pool has memory, but some chunk is too small.
static bool is_outgrown(const struct galloc_pool *pool, const size_t *sizes, size_t n_sizes) {
    bool has_memory = false, is_short = false;
    for (size_t c = 0; c < pool->n_chunks; c++) {
        has_memory = has_memory || chunk_size(pool, c) > 0;
    }
    for (size_t c = 0; c < n_sizes; c++) {
        is_short = is_short || sizes[c] > (c < pool->n_chunks ? chunk_size(pool, c) : 0);
    }
    return has_memory && is_short;
}

static enum ggml_status pool_grow(struct ggml_gallocr *galloc, struct galloc_pool *pool, const size_t *sizes, size_t n_sizes) {
    if (!chunks_grow(pool, n_sizes)) {
        return berth_fail(GGML_STATUS_ALLOC_FAILED, "out of memory for a list of %zu buffers", n_sizes);
    }
    while (pool->n_chunks < n_sizes) {
        chunk_set(galloc, pool, pool->n_chunks++, NULL);
    }
    for (size_t c = 0; c < n_sizes; c++) {
        ggml_backend_buffer_t buffer = pool->chunks[c].buffer;
        const bool is_enough = buffer != NULL && ggml_backend_buffer_get_size(buffer) >= sizes[c];
        if (is_enough) {
            continue;
        }
        berth_clear_error(); // the error of the backend becomes part of the message
        if (!chunk_grow(galloc, pool, c, sizes[c])) {
            const char *why = berth_last_error();
            return berth_fail(GGML_STATUS_ALLOC_FAILED,
                "cannot allocate a compute buffer of type %s of %zu bytes; the allocator has %zu bytes there%s%s",
                ggml_backend_buft_name(pool->buft), sizes[c], chunk_size(pool, c), why[0] != '\0' ? ": " : "", why);
        }
    }
    return GGML_STATUS_SUCCESS;
}

enum ggml_status berth_galloc_buffers_reserve(struct ggml_gallocr *galloc, struct galloc_plan *plan) {
    const bool is_new = !plan->is_backed;
    for (int p = 0; p < galloc->n_pools; p++) {
        const struct galloc_need *need = &plan->needs[p];
        struct galloc_pool *pool = &galloc->pools[p];
        const bool is_trimmed = is_new && is_outgrown(pool, need->sizes, need->n);
        enum ggml_status status = pool_grow(galloc, pool, need->sizes, need->n);
        if (status != GGML_STATUS_SUCCESS) {
            return status;
        }
        if (need->layout != NULL) {
            status = parts_ensure_memory(galloc, plan, p, is_new);
            if (status != GGML_STATUS_SUCCESS) {
                return status;
            }
        }
        if (is_trimmed) {
            pool_trim(galloc, pool, need->sizes, need->n);
        }
    }
    plan->is_backed = true;
    return GGML_STATUS_SUCCESS;
}
