// SPDX-License-Identifier: MIT
// place.c: allocates buffers for a plan and assigns an address to every tensor. The cached graph stores the addresses, so a cache
// hit needs neither planner nor allocator.

#include "sched/sched.h"

// ---- sizes ----

enum ggml_status sched_measure(struct ggml_backend_sched *sched, struct sched_cached *cached, size_t *sizes) {
    const enum ggml_status status = sched_plan(sched, cached, SCHED_PLAN_MEASURE);
    if (status == GGML_STATUS_SUCCESS) {
        berth_galloc_plan_sizes(sched->galloc, sched->plan, sizes);
    }
    return status;
}

static enum ggml_status check_limits(struct ggml_backend_sched *sched) {
    berth_galloc_plan_sizes(sched->galloc, sched->plan, sched->sizes);
    for (int b = 0; b < sched->n_backends; b++) {
        if (sched->limits[b] == 0 || sched->sizes[b] <= sched->limits[b]) {
            continue;
        }
        if (sched->n_slots > 1) { // no log line: fewer graphs in flight may fit
            return GGML_STATUS_ALLOC_FAILED;
        }
        return berth_fail(GGML_STATUS_ALLOC_FAILED,
            "scheduler: the graph requires %zu bytes on backend %s, its memory limit is %zu", sched->sizes[b],
            ggml_backend_name(sched->backends[b]), sched->limits[b]);
    }
    return GGML_STATUS_SUCCESS;
}

static size_t buffers_size(const struct ggml_backend_sched *sched) {
    size_t size = 0;
    for (int b = 0; b < sched->n_backends; b++) {
        size += ggml_gallocr_get_buffer_size(sched->galloc, b);
    }
    return size;
}

// Waits until all backends are idle before it changes buffers, because a reallocation must not free memory in use.
enum ggml_status sched_get_buffers(struct ggml_backend_sched *sched, struct sched_cached *cached, enum sched_plan_use use) {
    enum ggml_status status = sched_plan(sched, cached, use);
    if (status == GGML_STATUS_SUCCESS) {
        status = check_limits(sched);
    }
    if (status != GGML_STATUS_SUCCESS) {
        return status;
    }
    sched_drain(sched);
    const size_t before = buffers_size(sched);
    if (berth_galloc_buffers_reserve(sched->galloc, sched->plan) != GGML_STATUS_SUCCESS) {
        return berth_fail(GGML_STATUS_ALLOC_FAILED, "scheduler: cannot allocate the buffers of a graph of %d nodes: %s",
            cached->rec.n_nodes,
            berth_last_error()); // message of the device, with the requested and the free bytes
    }
    const size_t after = buffers_size(sched);
    if (sched->logs_growth && after > before) {
        berth_log(GGML_LOG_LEVEL_INFO,
            "scheduler: a graph of %d nodes needs more memory than was reserved: %zu instead of %zu bytes\n", cached->rec.n_nodes,
            after, before);
    }
    return status;
}

// ---- addresses ----

static inline enum ggml_status tensor_place(struct ggml_tensor *t, ggml_backend_buffer_t buffer, void *data) {
    if (t->data == data && t->buffer == buffer) {
        return GGML_STATUS_SUCCESS;
    }
    t->buffer = buffer;
    t->data = data;
    if (buffer == NULL || buffer->iface.init_tensor == NULL ||
        ggml_backend_buffer_init_tensor(buffer, t) == GGML_STATUS_SUCCESS) {
        return GGML_STATUS_SUCCESS;
    }
    return berth_fail(GGML_STATUS_FAILED, "scheduler: the buffer rejects tensor %s (init_tensor failed)", berth_name_of(t));
}

static void row_store_place(struct ggml_backend_sched *sched, struct sched_cached *cached, int32_t r) {
    const struct sched_row *row = &cached->rows[r];
    cached->places[r] = berth_galloc_place(sched->galloc, sched->plan, r);
    for (int slot = 0; row->slots >= 0 && slot < cached->n_slots; slot++) {
        cached->slot_places[row->slots + slot] =
            slot == 0 ? cached->places[r] : berth_galloc_place(sched->galloc, sched->plan, sched_slot_row(cached, row, slot));
    }
}

void sched_place_copies(struct ggml_backend_sched *sched, struct sched_cached *cached) {
    for (int32_t i = 0; i < cached->n_copies; i++) {
        for (int slot = 0; slot < cached->n_slots; slot++) {
            const int32_t resident = cached->copies[i].resident;
            struct record_place place;
            if (resident >= 0) {
                const struct ggml_tensor *at = sched->residents.list[resident].copy;
                place = (struct record_place){at->buffer, at->data};
            } else {
                place = berth_galloc_place(sched->galloc, sched->plan, sched_copy_row(cached, i, slot));
            }
            struct ggml_tensor *t = sched_copy_tensor(cached, i, slot);
            t->buffer = place.buffer;
            t->data = place.data;
        }
    }
}

// Sets the address of row r, which is a view or the second row of a tensor.
static enum ggml_status view_place(struct sched_cached *cached, int32_t r) {
    const int32_t base = sched_base(cached, r);
    struct ggml_tensor *t = cached->rec.tensors[r];
    const struct ggml_tensor *root = cached->rec.tensors[base];
    const bool is_known = !cached->rows[r].is_placed && cached->rec.rows[base].view_src < 0;
    cached->places[r] = is_known ? cached->places[base] : (struct record_place){NULL, NULL};
    return root != t && root->data != NULL ? tensor_place(t, root->buffer, (char *) root->data + t->view_offs)
                                           : GGML_STATUS_SUCCESS;
}

// Returns true if row r is a view whose source may not have an address yet. No constructor of ggml makes such views.
static inline bool is_early_view(const struct sched_cached *cached, int32_t r) {
    const int32_t v = cached->rec.rows[r].view_src;
    return v >= 0 && !cached->rows[v].is_placed && (v > r || cached->rec.rows[v].view_src >= 0);
}

// Sets the addresses of all rows except early views. is_new: the addresses come from the plan, not from the cached graph.
static enum ggml_status rows_place(struct ggml_backend_sched *sched, struct sched_cached *cached, bool is_new, bool *has_early) {
    const struct record *rec = &cached->rec;
    for (int32_t r = 0; r < rec->n_rows; r++) {
        if (r + RECORD_AHEAD < rec->n_rows) {
            record_fetch(rec->tensors[r + RECORD_AHEAD]);
        }
        if (sched_base(cached, r) != r) {
            const bool is_early = is_early_view(cached, r);
            *has_early = *has_early || is_early;
            if (!is_early && view_place(cached, r) != GGML_STATUS_SUCCESS) {
                return GGML_STATUS_FAILED;
            }
            continue;
        }
        if (rec->rows[r].has_memory) {
            cached->places[r] = (struct record_place){NULL, rec->tensors[r]->data};
            continue;
        }
        if (is_new) {
            row_store_place(sched, cached, r);
        }
        if (cached->rows[r].slots >= 0) {
            cached->places[r] = cached->slot_places[cached->rows[r].slots + sched->slot];
        }
        const struct record_place *place = &cached->places[r];
        if (place->buffer != NULL && tensor_place(rec->tensors[r], place->buffer, place->data) != GGML_STATUS_SUCCESS) {
            return GGML_STATUS_FAILED;
        }
    }
    return GGML_STATUS_SUCCESS;
}

static enum ggml_status early_views_place(struct sched_cached *cached) {
    enum ggml_status status = GGML_STATUS_SUCCESS;
    for (int32_t r = 0; r < cached->rec.n_rows && status == GGML_STATUS_SUCCESS; r++) {
        if (is_early_view(cached, r)) {
            status = view_place(cached, r);
        }
    }
    return status;
}

// Calls init_tensor for the copies. One call per plan suffices, because copies keep their addresses.
static enum ggml_status copies_init_tensors(struct sched_cached *cached) {
    for (size_t i = 0; i < (size_t) cached->n_copies * (size_t) cached->n_slots; i++) {
        struct ggml_tensor *t = &cached->tensors[i];
        if (t->buffer != NULL && t->buffer->iface.init_tensor != NULL &&
            ggml_backend_buffer_init_tensor(t->buffer, t) != GGML_STATUS_SUCCESS) {
            return berth_fail(
                GGML_STATUS_FAILED, "scheduler: the buffer rejects tensor %s (init_tensor failed)", berth_name_of(t));
        }
    }
    return GGML_STATUS_SUCCESS;
}

bool sched_is_all_placed(const struct sched_cached *cached) {
    for (int32_t r = 0; r < cached->rec.n_rows; r++) {
        const struct record_place *place = &cached->places[r];
        const struct ggml_tensor *t = cached->rec.tensors[r];
        if (sched_base(cached, r) == r && place->buffer != NULL && (t->buffer != place->buffer || t->data != place->data)) {
            return false;
        }
    }
    return true;
}

static enum ggml_status graph_place_tensors(struct ggml_backend_sched *sched, struct sched_cached *cached) {
    const bool is_new = !sched_has_places(sched, cached);
    enum ggml_status status;
    if (is_new) {
        cached->uid_slot = -1;
        status = sched_get_buffers(sched, cached, SCHED_PLAN_PLACE);
        if (status != GGML_STATUS_SUCCESS) {
            return status;
        }
        sched_place_copies(sched, cached);
        status = copies_init_tensors(cached);
        if (status != GGML_STATUS_SUCCESS) {
            return status;
        }
    }
    bool has_early = false;
    status = rows_place(sched, cached, is_new, &has_early);
    if (status != GGML_STATUS_SUCCESS || !has_early) {
        return status;
    }
    return early_views_place(cached);
}

enum ggml_status sched_place(struct ggml_backend_sched *sched, struct sched_cached *cached) {
    const enum ggml_status status = graph_place_tensors(sched, cached);
    cached->epoch = status == GGML_STATUS_SUCCESS ? berth_galloc_epoch(sched->galloc) : 0; // 0: the stored places are invalid
    return status;
}
