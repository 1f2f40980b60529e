// SPDX-License-Identifier: MIT
// galloc_parts.c: graphs on a device made of several (src/meta). Such a device plans for each of its parts by itself what the
// graph takes there (a layout); addresses are one behind the other and are no memory. All layouts of an allocator lie in one
// buffer, which has on each device what the largest of them takes there.

#include "alloc/galloc.h"

void berth_galloc_parts_drop(struct ggml_gallocr *galloc, struct galloc_plan *plan, int p) {
    if (plan->needs[p].layout != NULL) {
        galloc->pools[p].several->layout_free(plan->needs[p].layout);
        plan->needs[p].layout = NULL;
        galloc->epoch++; // addresses in it are none any more
    }
}

enum ggml_status berth_galloc_parts_solve(struct ggml_gallocr *galloc, struct galloc_plan *plan, struct record *rec, int p) {
    const struct berth_layout_params params = {
        .pool_of = galloc->pool_of, .pool = p, .budget_us = galloc->options.budget_us, .report = &plan->needs[p].report};
    berth_galloc_parts_drop(galloc, plan, p);
    return galloc->pools[p].several->layout_new(
        galloc->pools[p].buft, rec, &plan->lives, &params, plan->offsets, &plan->needs[p].layout);
}

enum ggml_status berth_galloc_parts_back(struct ggml_gallocr *galloc, struct galloc_plan *plan, int p, bool is_new) {
    struct galloc_pool *pool = &galloc->pools[p];
    struct berth_layout *layout = plan->needs[p].layout;
    if (pool->parts.buffer == NULL) {
        ggml_backend_buffer_t buffer = berth_galloc_own_room(galloc) ? pool->several->layout_buffer(pool->buft) : NULL;
        if (buffer == NULL) {
            return berth_fail(GGML_STATUS_ALLOC_FAILED, "out of memory for a buffer of %s", ggml_backend_buft_name(pool->buft));
        }
        berth_galloc_own(galloc, buffer);
        pool->parts = (struct galloc_chunk){buffer, ggml_backend_buffer_get_base(buffer)};
        galloc->epoch++;
    }
    const size_t before = berth_galloc_parts_size(pool);
    bool is_moved = false;
    const bool ok = pool->several->layout_back(pool->parts.buffer, layout, is_new && before < layout->bytes, &is_moved);
    galloc->epoch += is_moved;
    return ok ? GGML_STATUS_SUCCESS
              : berth_fail(GGML_STATUS_ALLOC_FAILED,
                    "compute buffers of type %s of %zu bytes on all devices are not to be had; the allocator holds %zu bytes "
                    "there",
                    ggml_backend_buft_name(pool->buft), layout->bytes, before);
}

size_t berth_galloc_parts_size(const struct galloc_pool *pool) {
    return pool->parts.buffer != NULL ? pool->several->layout_bytes(pool->parts.buffer) : 0;
}
