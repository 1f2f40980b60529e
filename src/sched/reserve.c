// SPDX-License-Identifier: MIT
// reserve.c: reserves all memory that computing a graph requires.
//
// Afterwards the scheduler can compute this graph without allocation. It can also compute every graph with the same nodes and
// edges and no larger extent without allocation (exceptions below). sched_reserve prepares the following:
// 1. The plan is kept (plan.c).
// 2. Every entry of the graph cache, the scratch of the passes and the buffer for saved inputs have enough capacity.
// 3. Staging memory on the host exists for copies between devices that cannot access each other's memory.
// 4. Backends that can reserve have done so for each split.
//
// Exceptions: if a graph has a smaller extent than the reserved graph, another backend may run an op (offload), or a backend may
// choose an algorithm that requires more memory. A program that computes such graphs has to reserve one graph of each kind, for
// example one for prefill and one for decode.

#include "sched/sched.h"

#include "base/min.h"

// ---- capacities ----

#define RESERVE(cached, list, n) BERTH_GROW(&(cached)->list, &(cached)->list##_cap, (size_t) (n))

static bool cached_reserve(struct ggml_backend_sched *sched, struct sched_cached *to, const struct sched_cached *from) {
    const size_t n_backends = (size_t) sched->n_backends, n_slots = (size_t) from->n_slots, n_inputs = (size_t) from->n_inputs;
    const struct ggml_tensor *tensors = to->tensors;

    to->rec.is_full_match = true;
    to->rec.column_size = sizeof to->rows[0];
    if (to->conflict == NULL) {
        to->conflict = berth_malloc(n_backends * n_backends * sizeof to->conflict[0]);
    }

    const bool ok = to->conflict != NULL && berth_record_reserve_like(&to->rec, &from->rec) &&
                    RESERVE(to, places, from->rec.n_rows + 1) && RESERVE(to, splits, from->n_splits) &&
                    RESERVE(to, copies, from->n_copies) && RESERVE(to, edges, from->n_edges) && RESERVE(to, deps, from->n_deps) &&
                    RESERVE(to, slot_places, n_inputs * n_slots) &&
                    RESERVE(to, tensors, (size_t) from->n_copies * n_slots + n_inputs * (n_slots - 1)) &&
                    (!from->is_reordered || (RESERVE(to, nodes, from->rec.n_nodes) && RESERVE(to, order, from->rec.n_nodes)));
    to->rows = to->rec.columns;
    if (to->tensors != tensors) { // the copies have new addresses, so the splits need new uids (uids_renew, sched.c)
        to->uid_slot = -1;
    }
    return ok;
}

static bool cached_reserve_all(struct ggml_backend_sched *sched, const struct sched_cached *cached) {
    for (int m = 0; m < SCHED_N_CACHED; m++) {
        if (!cached_reserve(sched, &sched->cached_graphs[m], cached)) {
            return false;
        }
    }
    return sched_scratch(sched, ((size_t) cached->rec.n_rows + 1) * sizeof(struct record_undo)) != NULL &&
           sched_preserved_reserve(sched, cached);
}

static bool is_host(ggml_backend_buffer_type_t buft) {
    return buft == NULL || ggml_backend_buft_is_host(buft);
}

static size_t staging_size(const struct ggml_backend_sched *sched, const struct sched_cached *cached) {
    size_t most = 0;
    for (int32_t i = 0; i < cached->n_copies; i++) {
        const struct sched_copy *copy = &cached->copies[i];
        const struct sched_row *base = &cached->rows[sched_base(cached, copy->row)];
        const ggml_backend_buffer_type_t from =
            base->is_placed ? cached->rec.rows[base - cached->rows].buft : sched->bufts[base->backend];
        if (!is_host(from) && !is_host(sched->bufts[copy->backend])) {
            most = max_size(most, sched_nbytes(cached, copy->row));
        }
    }
    return most;
}

// ---- backends ----

// In the returned graph, copies replace sources on other backends. The caller must call sched_edges_to_graph afterwards.
static struct ggml_cgraph split_begin(
    struct ggml_backend_sched *sched, struct sched_cached *cached, const struct sched_split *split) {
    sched_edges_to_copies(cached, split, 0);
    return sched_part(sched, cached, split->i_start, split->i_end);
}

// Exchanges the address of t with *place. backends_reserve exchanges the addresses of all tensors before the backends reserve,
// and again afterwards. So the tensors have their planned addresses while the backends reserve. A composite device reads these
// addresses when it reserves.
static void place_swap(struct ggml_tensor *t, struct record_place *place) {
    const struct record_place last = {t->buffer, t->data};
    t->buffer = place->buffer;
    t->data = place->data;
    *place = last;
}

static void places_find(struct ggml_backend_sched *sched, const struct sched_cached *cached, struct record_place *places) {
    for (int32_t r = 0; r < cached->rec.n_rows; r++) {
        const struct ggml_tensor *t = cached->rec.tensors[r];
        const int32_t base = sched_base(cached, r);
        const bool is_planned = base < cached->rec.n_rows && !cached->rec.rows[base].has_memory;
        places[r] = (struct record_place){t->buffer, t->data};
        if (is_planned) {
            places[r] = berth_galloc_place(sched->galloc, sched->plan, base);
            if (base != r && places[r].data != NULL) {
                places[r].data = (char *) places[r].data + t->view_offs;
            }
        }
    }
}

static enum ggml_status backends_reserve(struct ggml_backend_sched *sched, struct sched_cached *cached) {
    enum ggml_status status = GGML_STATUS_SUCCESS;
    struct record_place *places = berth_calloc((size_t) cached->rec.n_rows + 1, sizeof *places);
    if (places == NULL) {
        return berth_fail(GGML_STATUS_ALLOC_FAILED, "scheduler: out of memory for the addresses of %d rows", cached->rec.n_rows);
    }
    // sched_place_copies changes addresses, so the stored places and the uids of the splits become invalid.
    cached->epoch = 0;
    cached->uid_slot = -1;
    sched_place_copies(sched, cached);
    places_find(sched, cached, places);
    for (int32_t r = 0; r < cached->rec.n_rows; r++) {
        place_swap(cached->rec.tensors[r], &places[r]);
    }
    for (int32_t s = 0; s < cached->n_splits && status == GGML_STATUS_SUCCESS; s++) {
        const struct ggml_cgraph part = split_begin(sched, cached, &cached->splits[s]);
        status = berth_backend_reserve(sched->backends[cached->splits[s].backend], &part);
        sched_early_reserve(sched, cached, &cached->splits[s]);
        sched_edges_to_graph(cached, &cached->splits[s]);
    }
    for (int32_t r = cached->rec.n_rows; r-- > 0;) { // backwards, because a tensor that is listed twice was swapped twice
        place_swap(cached->rec.tensors[r], &places[r]);
    }
    berth_free(places);
    return status;
}

void sched_work_sizes(struct ggml_backend_sched *sched, struct sched_cached *cached, size_t *sizes) {
    for (int32_t s = 0; s < cached->n_splits; s++) {
        const int b = cached->splits[s].backend;
        const struct ggml_cgraph part = split_begin(sched, cached, &cached->splits[s]);
        sizes[b] = max_size(sizes[b], berth_backend_reserve_size(sched->backends[b], &part));
        sched_edges_to_graph(cached, &cached->splits[s]);
    }
    sizes[sched->n_backends - 1] += staging_size(sched, cached);
}

enum ggml_status sched_reserve(struct ggml_backend_sched *sched, struct sched_cached *cached) {
    const enum ggml_status status = sched_get_buffers(sched, cached, SCHED_PLAN_RESERVE);
    if (status != GGML_STATUS_SUCCESS) {
        return status;
    }
    if (!sched_plan_keep(sched) || !cached_reserve_all(sched, cached) ||
        !berth_grow(&sched->staging.bytes, &sched->staging.size, staging_size(sched, cached), 1)) {
        return berth_fail(
            GGML_STATUS_ALLOC_FAILED, "scheduler: out of memory to reserve a graph of %d nodes", cached->rec.n_nodes);
    }
    return backends_reserve(sched, cached);
}
