// SPDX-License-Identifier: MIT
// resident.c: keeps copies of weights of the host in the memory of a device (resident copies).
//
// The resident copies of a device have a limit in bytes. The program sets it, or it is half of the device memory that is free once
// the compute buffers of the first graph that copies weights are allocated. A weight that the scheduler copies to the device then
// gets memory of its own there, in the order of the graph, up to the limit. The first graph that reads the weight fills the resident
// copy. From then on the copy counts as the weight: ops that read it run on the device, also those of small batches, and nothing is
// copied.
//
// If another part of the process cannot allocate memory of the device, all resident copies are freed (backend/reclaim.c).
//
// A cached graph depends on which copies are filled, so `version` counts these changes, and a cached graph of another version is
// split again. A weight must not change while it has a resident copy. Berth's functions that write to weights or free them count
// in berth_weights_epoch. If this count changes, all copies are filled again. If a node of a graph writes a weight, the weight
// gets no resident copy, and such a node of the scheduler's own graph does not count.

#include "sched/sched.h"

#include "base/multiple.h"

#include <string.h>

bool sched_is_host_weight(const struct sched_cached *cached, int32_t r) {
    return sched_is_weight(cached, r) && ggml_backend_buft_is_host(cached->rec.rows[sched_base(cached, r)].buft);
}

// Returns the index of the copy of the weight at `data` on backend b, or -1. Graphs read weights in the order of the list, so the
// search starts behind the last result.
static int32_t copy_find(struct sched_residents *res, const void *data, size_t size, int b) {
    for (int32_t k = 0; k < res->n; k++) {
        const int32_t i = (res->next + k) % res->n;
        if (res->list[i].data == data && res->list[i].size == size && res->list[i].backend == b) {
            res->next = (i + 1) % res->n;
            return i;
        }
    }
    return -1;
}

int32_t sched_resident_find(struct ggml_backend_sched *sched, const struct sched_cached *cached, int32_t r, int b) {
    struct sched_residents *res = &sched->residents;
    if (res->n == 0 || sched->n_slots > 1 || !sched_is_host_weight(cached, r)) {
        return -1;
    }
    const int32_t i = copy_find(res, cached->rec.tensors[r]->data, sched_nbytes(cached, r), b);
    return i >= 0 && res->list[i].copy != NULL ? i : -1;
}

bool sched_resident_is_valid(struct ggml_backend_sched *sched, const struct sched_cached *cached) {
    const struct sched_residents *res = &sched->residents;
    if (cached->residents_version != res->version) {
        return false;
    }
    for (int32_t i = 0; res->n > 0 && i < cached->n_copies; i++) {
        const struct sched_copy *copy = &cached->copies[i];
        if (copy->resident >= 0 && res->list[copy->resident].data != cached->rec.tensors[copy->row]->data) {
            return false;
        }
    }
    return true;
}

// ---- changes of weights ----

bool sched_residents_has_unfilled(const struct ggml_backend_sched *sched) {
    const struct sched_residents *res = &sched->residents;
    for (int32_t i = 0; i < res->n; i++) {
        if (res->list[i].copy != NULL && !res->list[i].is_filled) {
            return true;
        }
    }
    return false;
}

void sched_residents_clear(struct ggml_backend_sched *sched) {
    struct sched_residents *res = &sched->residents;
    if (res->n == 0) {
        return;
    }
    for (int32_t i = 0; i < res->n; i++) {
        res->list[i].is_filled = false;
    }
    res->version++;
}

void sched_residents_check(struct ggml_backend_sched *sched) {
    struct sched_residents *res = &sched->residents;
    const uint64_t epoch = berth_weights_epoch();
    if (res->weights_epoch != epoch) {
        sched_residents_clear(sched);
    }
    res->weights_epoch = epoch;
}

static bool has_copy_of(const struct sched_residents *res, const struct ggml_tensor *t) {
    const uintptr_t begin = (uintptr_t) t->data, end = begin + ggml_nbytes(t);
    for (int32_t i = 0; i < res->n; i++) {
        const uintptr_t at = (uintptr_t) res->list[i].data;
        if (res->list[i].copy != NULL && at < end && begin < at + res->list[i].size) {
            return true;
        }
    }
    return false;
}

void sched_residents_skip_own_writes(struct ggml_backend_sched *sched, const struct sched_cached *cached) {
    struct sched_residents *res = &sched->residents;
    uint64_t n = 0;
    for (int32_t r = 0; res->n > 0 && cached->writes_weights && r < cached->rec.n_nodes; r++) {
        if (!berth_writes_host_weight(cached->rec.tensors[r])) {
            continue;
        }
        if (has_copy_of(res, cached->rec.tensors[r])) { // for example, another tensor at the same address is written
            return;
        }
        n++; // as graph_check of the backends does
    }
    res->weights_epoch += n;
}

void sched_resident_filled(struct ggml_backend_sched *sched, int32_t i) {
    sched->residents.list[i].is_filled = true;
    sched->residents.has_new = true;
}

void sched_residents_end(struct ggml_backend_sched *sched, enum ggml_status status) {
    struct sched_residents *res = &sched->residents;
    if (status != GGML_STATUS_SUCCESS) { // a copy of this graph may have failed
        sched_residents_clear(sched);
    } else if (res->has_new) {
        res->version++;
    }
    res->has_new = false;
}

void sched_residents_exclude_written(struct ggml_backend_sched *sched, const struct sched_cached *cached) {
    struct sched_residents *res = &sched->residents;
    for (int32_t r = 0; res->n > 0 && cached->n_writers > 0 && r < cached->rec.n_nodes; r++) {
        const int32_t base = sched_base(cached, r);
        if (base == r || cached->rows[r].is_empty || !sched_is_in_weights(cached, base)) {
            continue;
        }
        for (int32_t i = 0; i < res->n; i++) {
            if (res->list[i].data == cached->rec.tensors[base]->data && res->list[i].copy != NULL) {
                res->list[i].copy = NULL;
                res->version++;
            }
        }
    }
}

// ---- filling ----

// Returns true if the graph copies a weight to an unfilled resident copy when it runs.
static bool graph_fills(const struct ggml_backend_sched *sched, const struct sched_cached *cached) {
    for (int32_t i = 0; i < cached->n_copies; i++) {
        const int32_t resident = cached->copies[i].resident;
        if (resident >= 0 && !sched->residents.list[resident].is_filled) {
            return true;
        }
    }
    return false;
}

enum ggml_status sched_residents_fill(struct ggml_backend_sched *sched, struct sched_cached *cached) {
    struct sched_residents *res = &sched->residents;
    if (res->n == 0 || cached->has_tried_fill || cached->n_slots > 1 || graph_fills(sched, cached)) {
        return GGML_STATUS_SUCCESS;
    }
    cached->has_tried_fill = true;
    bool has_new = false;
    for (int32_t r = 0; r < cached->rec.n_rows; r++) {
        for (int b = 0; b < sched->n_backends; b++) {
            const int32_t i = res->used[b] > 0 ? sched_resident_find(sched, cached, r, b) : -1;
            if (i < 0 || res->list[i].is_filled) {
                continue;
            }
            ggml_backend_tensor_set_async(
                sched->backends[b], res->list[i].copy, cached->rec.tensors[r]->data, 0, res->list[i].size);
            sched->in_flight[b] = sched->backends[b]->iface.synchronize != NULL;
            if (berth_backend_report(sched->backends[b]) != GGML_STATUS_SUCCESS) {
                sched_residents_clear(sched);
                return berth_fail(GGML_STATUS_FAILED, "scheduler: copying %s to backend %s failed: %s",
                    berth_name_of(cached->rec.tensors[r]), ggml_backend_name(sched->backends[b]), berth_last_error());
            }
            sched->stats.n_copied++;
            sched->stats.copied_size += (int64_t) res->list[i].size;
            res->list[i].is_filled = has_new = true;
        }
    }
    res->version += has_new;
    return GGML_STATUS_SUCCESS;
}

// ---- memory ----

// Returns true if some node of the graph writes the memory of row r.
static bool row_is_written(const struct sched_cached *cached, int32_t r) {
    for (int32_t i = 0; cached->n_writers > 0 && i < cached->rec.n_nodes; i++) {
        if (i != r && sched_base(cached, i) == sched_base(cached, r) && !cached->rows[i].is_empty) {
            return true;
        }
    }
    return false;
}

// Returns the bytes of a resident copy of the weight that the copy reads, if it has none yet and they fit into the limit of
// backend b; otherwise 0.
static size_t candidate_size(
    struct ggml_backend_sched *sched, const struct sched_cached *cached, const struct sched_copy *copy, int b, size_t used) {
    struct sched_residents *res = &sched->residents;
    const struct ggml_tensor *weight = cached->rec.tensors[copy->row];
    if (copy->backend != b || !sched_is_host_weight(cached, copy->row) || row_is_written(cached, copy->row) ||
        copy_find(res, weight->data, sched_nbytes(cached, copy->row), b) >= 0) {
        return 0;
    }
    size_t size = ggml_backend_buft_get_alloc_size(sched->bufts[b], weight);
    const size_t align = ggml_backend_buft_get_alignment(sched->bufts[b]);
    return berth_add_ok(size, (size_t) berth_padding(size, align), &size) && size <= res->limits[b] - used ? size : 0;
}

static bool has_candidates(struct ggml_backend_sched *sched, const struct sched_cached *cached, int b) {
    for (int32_t i = 0; i < cached->n_copies; i++) {
        if (candidate_size(sched, cached, &cached->copies[i], b, sched->residents.used[b]) > 0) {
            return true;
        }
    }
    return false;
}

bool sched_residents_choose_limits(struct ggml_backend_sched *sched, struct sched_cached *cached) {
    struct sched_residents *res = &sched->residents;
    bool has_new = false;
    for (int b = 0; cached->n_slots == 1 && b < sched->n_backends; b++) {
        if (res->limits[b] == BERTH_SCHED_RESIDENT_AUTO && has_candidates(sched, cached, b)) {
            size_t n_free = 0, n_total = 0;
            ggml_backend_dev_memory(ggml_backend_get_device(sched->backends[b]), &n_free, &n_total);
            res->limits[b] = n_free / 2;
            cached->has_tried_residents = false;
            has_new = true;
        }
    }
    return has_new;
}

// Appends entries for the weights that the graph copies to backend b, as far as the limit of b permits. The tensors of the entries
// have no memory yet. False: out of host memory.
static bool entries_append(
    struct ggml_backend_sched *sched, const struct sched_cached *cached, int b, struct ggml_context *ctx, size_t *used) {
    struct sched_residents *res = &sched->residents;
    for (int32_t i = 0; i < cached->n_copies; i++) {
        const struct sched_copy *copy = &cached->copies[i];
        const struct ggml_tensor *weight = cached->rec.tensors[copy->row];
        const size_t size = candidate_size(sched, cached, copy, b, *used);
        if (size == 0) {
            continue;
        }
        struct ggml_tensor *to = ggml_dup_tensor(ctx, weight);
        if (to == NULL || !BERTH_GROW(&res->list, &res->cap, (size_t) res->n + 1)) {
            return false;
        }
        memcpy(to->nb, weight->nb, sizeof to->nb);
        ggml_format_name(to, "%s#%s", ggml_backend_name(sched->backends[b]), weight->name);
        res->list[res->n++] = (struct sched_resident){
            .data = weight->data, .size = sched_nbytes(cached, copy->row), .copy = to, .backend = (int16_t) b};
        *used += size;
    }
    return true;
}

// Adds resident copies on backend b. Returns true if there are new ones. If the device has no memory for them, writes one line to
// the log and adds none, now or later.
static bool residents_add_on(struct ggml_backend_sched *sched, const struct sched_cached *cached, int b) {
    struct sched_residents *res = &sched->residents;
    const int32_t n_before = res->n;
    size_t used = res->used[b];
    struct ggml_init_params params = {.mem_size = ((size_t) cached->n_copies + 1) * ggml_tensor_overhead(), .no_alloc = true};
    struct sched_resident_group *group = berth_calloc(1, sizeof *group);
    if (group == NULL) {
        return false;
    }
    group->ctx = ggml_init(params);
    if (group->ctx == NULL || !entries_append(sched, cached, b, group->ctx, &used) || res->n == n_before) {
        goto none;
    }
    berth_reclaim_pause(); // these copies do not replace those of another scheduler
    group->buffer = ggml_backend_alloc_ctx_tensors_from_buft(group->ctx, sched->bufts[b]);
    berth_reclaim_resume();
    if (group->buffer == NULL) {
        berth_log(GGML_LOG_LEVEL_WARN, "scheduler: %s has no memory for resident copies of %d weights (%zu bytes): %s\n",
            ggml_backend_name(sched->backends[b]), res->n - n_before, used - res->used[b], berth_last_error());
        res->limits[b] = res->used[b];
        goto none;
    }
    group->next = res->groups;
    res->groups = group;
    res->used[b] = used;
    res->version++;
    return true;
none:
    res->n = n_before;
    ggml_free(group->ctx);
    berth_free(group);
    return false;
}

bool sched_residents_add(struct ggml_backend_sched *sched, struct sched_cached *cached) {
    if (cached->has_tried_residents || cached->n_slots > 1) {
        return false;
    }
    cached->has_tried_residents = true;
    bool has_new = false;
    for (int b = 0; b < sched->n_backends; b++) {
        const size_t limit = sched->residents.limits[b];
        if (limit != BERTH_SCHED_RESIDENT_AUTO && limit > sched->residents.used[b] && has_candidates(sched, cached, b)) {
            has_new = residents_add_on(sched, cached, b) || has_new;
        }
    }
    return has_new;
}

void sched_residents_free(struct ggml_backend_sched *sched) {
    struct sched_residents *res = &sched->residents;
    while (res->groups != NULL) {
        struct sched_resident_group *group = res->groups;
        res->groups = group->next;
        ggml_backend_buffer_free(group->buffer);
        ggml_free(group->ctx);
        berth_free(group);
    }
    berth_free(res->list);
    res->list = NULL;
    res->n = res->next = 0;
    res->cap = 0;
    for (int b = 0; b < sched->n_backends; b++) {
        res->used[b] = 0;
    }
    res->version++;
}
