// SPDX-License-Identifier: MIT
// sched.c: creates and frees schedulers, and runs a graph through the passes.
//
//   new --> (set_tensor_backend) --> split, place --> compute --> compute the same graph | reset --> ...
//
// Failures are returned as statuses. After a failure the scheduler holds no graph and accepts the next one.

#include "sched/sched.h"

#include "base/size.h"
#include "core/op.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PIPELINE_SLOTS 4 // graphs in flight if parallel is true, as in ggml

// ---- new, free, reset ----

static bool backends_init(struct ggml_backend_sched *sched, ggml_backend_t *backends, ggml_backend_buffer_type_t *bufts, int n) {
    const size_t n_backends = (size_t) n;
    sched->backends = berth_arrays_new(&sched->mem, n_backends, sizeof sched->backends[0]);
    sched->bufts = berth_arrays_new(&sched->mem, n_backends, sizeof sched->bufts[0]);
    sched->limits = berth_arrays_new(&sched->mem, n_backends, sizeof sched->limits[0]);
    sched->sizes = berth_arrays_new(&sched->mem, n_backends, sizeof sched->sizes[0]);
    sched->first_same_buft = berth_arrays_new(&sched->mem, n_backends, sizeof sched->first_same_buft[0]);
    sched->in_flight = berth_arrays_new(&sched->mem, n_backends, sizeof sched->in_flight[0]);
    sched->residents.limits = berth_arrays_new(&sched->mem, n_backends, sizeof sched->residents.limits[0]);
    sched->residents.used = berth_arrays_new(&sched->mem, n_backends, sizeof sched->residents.used[0]);
    sched->copiers = berth_arrays_new(&sched->mem, n_backends, sizeof sched->copiers[0]);
    sched->reaches = berth_arrays_new(&sched->mem, n_backends * n_backends, sizeof sched->reaches[0]);
    if (sched->mem.has_failed) {
        return false;
    }
    sched->n_backends = n;
    for (int b = 0; b < n; b++) {
        sched->backends[b] = backends[b];
        sched->bufts[b] = bufts != NULL && bufts[b] != NULL ? bufts[b] : ggml_backend_get_default_buffer_type(backends[b]);
    }
    for (int b = 0; b < n; b++) {
        for (int h = 0; h < n; h++) {
            sched->reaches[(size_t) b * n_backends + (size_t) h] =
                b == h || ggml_backend_supports_buft(backends[b], sched->bufts[h]);
        }
        while (sched->bufts[sched->first_same_buft[b]] != sched->bufts[b]) {
            sched->first_same_buft[b]++;
        }
        sched->has_same_bufts = sched->has_same_bufts || sched->first_same_buft[b] != b;
    }
    sched->watch = (struct berth_backend_list){.backends = sched->backends, .n = n};
    berth_backend_watch(&sched->watch);
    return true;
}

static int env_number(const char *name) {
    const char *text = getenv(name);
    return text != NULL ? (int) strtol(text, NULL, 10) : 0;
}

// Returns true if the backend has resident copies by default. It must be able to reserve: computing then allocates no memory that
// the resident copies could have used up. An integrated GPU has none, because it can read the memory of the host.
static bool may_have_residents(ggml_backend_t backend) {
    return ggml_backend_dev_type(ggml_backend_get_device(backend)) == GGML_BACKEND_DEVICE_TYPE_GPU &&
           berth_backend_can_reserve(backend);
}

// Sets the limit of resident copies from BERTH_SCHED_RESIDENT, for every backend except the host's.
static void resident_limits_init(struct ggml_backend_sched *sched) {
    const char *text = getenv("BERTH_SCHED_RESIDENT");
    uint64_t size = 0;
    const bool is_size = text != NULL && berth_parse_size(text, &size);
    if (text != NULL && !is_size && strcmp(text, "auto") != 0) {
        berth_log(GGML_LOG_LEVEL_WARN,
            "scheduler: BERTH_SCHED_RESIDENT=%s is neither auto nor a number of bytes such as 8G; it is ignored\n", text);
    }
    for (int b = 0; b < sched->n_backends - 1; b++) {
        if (is_size) {
            sched->residents.limits[b] = (size_t) size;
        } else if (may_have_residents(sched->backends[b])) {
            sched->residents.limits[b] = BERTH_SCHED_RESIDENT_AUTO;
        }
    }
}

ggml_backend_sched_t ggml_backend_sched_new(ggml_backend_t *backends, ggml_backend_buffer_type_t *bufts, int n_backends,
    size_t graph_size, bool parallel, bool op_offload) {
    (void) graph_size; // the scheduler grows with its graphs
    if (backends == NULL || n_backends <= 0 || n_backends > INT16_MAX) {
        return BERTH_FAIL_NULL(GGML_STATUS_FAILED, "ggml_backend_sched_new: %d backends; 1 to 32767 are possible", n_backends);
    }
    for (int b = 0; b < n_backends; b++) {
        if (backends[b] == NULL ||
            ((bufts == NULL || bufts[b] == NULL) && ggml_backend_get_default_buffer_type(backends[b]) == NULL)) {
            return BERTH_FAIL_NULL(GGML_STATUS_FAILED, "ggml_backend_sched_new: backend %d of %d %s", b, n_backends,
                backends[b] == NULL ? "is NULL" : "has no buffer type");
        }
    }
    struct ggml_backend_sched *sched = berth_calloc(1, sizeof *sched);
    if (sched != NULL && backends_init(sched, backends, bufts, n_backends)) {
        sched->op_offload = op_offload;
        sched->offload_min_batch = env_number("GGML_OP_OFFLOAD_MIN_BATCH");
        sched->debug = env_number("GGML_SCHED_DEBUG");
        sched->is_strict = env_number("BERTH_SCHED_STRICT") != 0;
        sched->may_copy_early = getenv("BERTH_SCHED_EARLY_COPIES") == NULL || env_number("BERTH_SCHED_EARLY_COPIES") != 0;
        sched->early_split = -1;
        resident_limits_init(sched);
        sched->n_slots = parallel ? PIPELINE_SLOTS : 1;
        sched->galloc = ggml_gallocr_new_n(sched->bufts, n_backends);
    }
    if (sched == NULL || sched->galloc == NULL || sched_events_init(sched) != GGML_STATUS_SUCCESS) {
        berth_fail(GGML_STATUS_ALLOC_FAILED, "ggml_backend_sched_new: out of memory for a scheduler of %d backends", n_backends);
        ggml_backend_sched_free(sched);
        return NULL;
    }
    return sched;
}

void ggml_backend_sched_free(ggml_backend_sched_t sched) {
    if (sched == NULL || !sched_is_idle(__func__, sched)) {
        return;
    }
    sched_hold(sched);   // until the end
    sched_finish(sched); // does not access idle backends, which may be freed
    berth_backend_unwatch(&sched->watch);
    sched_events_fini(sched);
    sched_early_fini(sched);
    sched_holder_fini(sched);
    sched_residents_free(sched);
    for (int m = 0; m < SCHED_N_CACHED; m++) {
        sched_cached_fini(&sched->cached_graphs[m]);
    }
    berth_free(sched->chosen.tensors);
    berth_free(sched->chosen.backends);
    berth_record_index_fini(&sched->chosen.index);
    sched_plans_free(sched);
    ggml_gallocr_free(sched->galloc);
    berth_free(sched->trace);
    berth_free(sched->in_use);
    berth_free(sched->scratch);
    berth_free(sched->staging.bytes);
    berth_free(sched->preserved.list);
    berth_free(sched->preserved.bytes);
    berth_arrays_free(&sched->mem);
    berth_free(sched);
}

void ggml_backend_sched_reset(ggml_backend_sched_t sched) {
    if (sched == NULL || !sched_is_idle(__func__, sched)) {
        return;
    }
    sched->chosen.n = 0;
    sched->cur = NULL;
    sched->graph = NULL;
    sched->is_graph_allocated = false;
}

// ---- from a graph to splits ----

static enum ggml_status check_strict(struct ggml_backend_sched *sched, struct sched_cached *cached) {
    for (int32_t r = 0; sched->is_strict && r < cached->rec.n_nodes; r++) {
        const enum berth_sched_reason reason = sched_reason(sched, cached, r);
        if (!cached->rows[r].is_empty && reason >= BERTH_SCHED_FALLBACK_OP) {
            const struct ggml_tensor *t = cached->rec.tensors[r];
            return berth_fail(GGML_STATUS_FAILED, "scheduler, strict mode: %s (%s) would run on %s: %s by %s", berth_name_of(t),
                ggml_op_desc(t), ggml_backend_name(sched->backends[cached->rows[r].backend]), berth_sched_reason_name(reason),
                ggml_backend_name(sched->backends[cached->rows[r].refused]));
        }
    }
    return GGML_STATUS_SUCCESS;
}

static void uids_renew(struct sched_cached *cached, int slot) {
    for (int32_t s = 0; cached->uid_slot != slot && s < cached->n_splits; s++) {
        cached->splits[s].uid = ggml_graph_next_uid();
    }
    cached->uid_slot = slot;
}

static struct sched_cached *cached_find(struct ggml_backend_sched *sched, const struct ggml_cgraph *graph, bool with_places) {
    for (int k = 0; k < SCHED_N_CACHED; k++) { // the last used graph first
        struct sched_cached *cached = NULL;
        for (int m = 0; m < SCHED_N_CACHED; m++) {
            const bool is_next =
                k == 0 ? sched->cached_graphs[m].used == sched->clock : sched->cached_graphs[m].used != sched->clock;
            if (is_next && (cached == NULL || k == 0)) {
                cached = &sched->cached_graphs[m];
            }
        }
        if (cached == NULL || !cached->is_split || cached->n_slots != sched->n_slots) {
            continue;
        }
        const enum sched_match match = sched_cached_match(sched, cached, graph, with_places && cached->n_slots == 1);
        if (match != SCHED_OTHER) {
            sched->is_placed_by_match = match == SCHED_SAME_PLACED;
            return cached;
        }
    }
    return NULL;
}

static struct sched_cached *cached_oldest(struct ggml_backend_sched *sched) {
    struct sched_cached *oldest = &sched->cached_graphs[0];
    for (int m = 1; m < SCHED_N_CACHED; m++) {
        if (sched->cached_graphs[m].used < oldest->used) {
            oldest = &sched->cached_graphs[m];
        }
    }
    return oldest;
}

static enum ggml_status cached_make(struct ggml_backend_sched *sched, struct sched_cached *cached, struct ggml_cgraph *graph) {
    if (sched->planned == cached) {
        sched->planned = NULL;
    }
    enum ggml_status status = sched_cached_build(sched, cached, graph);
    if (status != GGML_STATUS_SUCCESS) {
        return status;
    }
    status = sched_assign(sched, cached);
    if (status != GGML_STATUS_SUCCESS) {
        goto fail;
    }
    status = check_strict(sched, cached);
    if (status != GGML_STATUS_SUCCESS) {
        goto fail;
    }
    sched->graph = graph;
    status = sched_split(sched, cached);
    if (status != GGML_STATUS_SUCCESS) {
        goto fail;
    }
    status = sched_optimize(sched, cached);
    if (status != GGML_STATUS_SUCCESS) {
        goto fail;
    }
    cached->is_split = true;
    return GGML_STATUS_SUCCESS;
fail:
    sched_cached_drop(cached);
    return status;
}

static enum ggml_status graph_prepare(struct ggml_backend_sched *sched, struct ggml_cgraph *graph, bool with_places) {
    sched->is_graph_allocated = false;
    sched->is_placed_by_match = false;
    sched->cur = NULL;
    sched_residents_check(sched);
    struct sched_cached *cached = cached_find(sched, graph, with_places);
    if (cached == NULL) {
        cached = cached_oldest(sched);
        const enum ggml_status status = cached_make(sched, cached, graph);
        if (status != GGML_STATUS_SUCCESS) {
            sched->graph = NULL;
            return status;
        }
        sched->stats.n_planned++;
    } else {
        sched->stats.n_cache_hits++;
    }
    cached->used = ++sched->clock;
    sched->cur = cached;
    sched->graph = graph;
    sched->last_n_splits = cached->n_splits;
    if (sched->debug > 0) {
        sched_explain_log(sched);
    }
    return GGML_STATUS_SUCCESS;
}

// Rebuilds a cache entry that wrongly matched: the graph lists one tensor twice where the cached graph lists two different
// tensors.
static enum ggml_status cached_remake(struct ggml_backend_sched *sched, struct sched_cached *cached) {
    const enum ggml_status status = cached_make(sched, cached, sched->graph);
    if (status != GGML_STATUS_SUCCESS) {
        return status;
    }
    sched->last_n_splits = cached->n_splits;
    sched->stats.n_cache_hits--;
    sched->stats.n_planned++;
    return sched_place(sched, cached);
}

static enum ggml_status tensors_place(struct ggml_backend_sched *sched, struct sched_cached *cached) {
    enum ggml_status status = GGML_STATUS_SUCCESS;
    if (sched->preserves_inputs) {
        status = sched_preserved_save(sched, sched->graph);
        if (status != GGML_STATUS_SUCCESS) {
            return status;
        }
    }
    status = sched_place(sched, cached);
    if (status != GGML_STATUS_SUCCESS || sched_is_all_placed(cached) || !berth_record_has_unknown_duplicates(&cached->rec)) {
        return status;
    }
    return cached_remake(sched, cached);
}

static enum ggml_status graph_place(struct ggml_backend_sched *sched, struct sched_cached *cached) {
    enum ggml_status status = sched_events_init(sched);
    if (status != GGML_STATUS_SUCCESS) {
        return status;
    }
    if (cached->n_slots > 1) {
        sched->slot = sched->next_slot % cached->n_slots;
        sched->next_slot = (sched->slot + 1) % cached->n_slots;
        if (cached != sched->last_run) {
            sched_drain(sched); // the graphs in flight may use the same memory as this graph
        }
        sched_wait_slot(sched, sched->slot);
    } else {
        sched->slot = 0;
    }
    sched->last_run = cached;
    if (!sched->is_placed_by_match) {
        status = tensors_place(sched, cached);
    }
    uids_renew(cached, sched->slot);
    return status;
}

// Early copies need more memory. If memory does not suffice, all copies of later graphs are made when they are needed.
static bool early_copies_give_up(struct ggml_backend_sched *sched, struct sched_cached *cached) {
    if (!sched->may_copy_early || cached == NULL || !cached->is_split || !sched_has_early_copies(cached)) {
        return false;
    }
    berth_log(
        GGML_LOG_LEVEL_INFO, "scheduler: memory does not suffice to copy weights while other ops run: %s\n", berth_last_error());
    sched->may_copy_early = false;
    sched_cached_drop(cached);
    return true;
}

// Resident copies take memory that the graph may need. If memory does not suffice, there are none from now on.
static bool residents_give_up(struct ggml_backend_sched *sched) {
    if (sched->residents.n == 0) {
        return false;
    }
    char why[512];
    snprintf(why, sizeof why, "the memory of a graph could not be allocated (%s)", berth_last_error());
    sched_residents_disable(sched, why);
    return true;
}

// pass is graph_place or sched_reserve. If memory does not suffice, retries without early copies, then without resident copies,
// then with fewer graphs in flight.
static enum ggml_status prepare_with_retry(struct ggml_backend_sched *sched, struct ggml_cgraph *graph,
    enum ggml_status (*pass)(struct ggml_backend_sched *, struct sched_cached *)) {
    const int n_slots = sched->n_slots;
    for (;;) {
        enum ggml_status status = graph_prepare(sched, graph, pass == graph_place);
        if (status == GGML_STATUS_SUCCESS) {
            if (sched_residents_add(sched, sched->cur)) {
                continue; // the graph is split again
            }
            status = pass(sched, sched->cur);
        }
        if (status == GGML_STATUS_SUCCESS) {
            if (sched_residents_choose_limits(sched, sched->cur)) {
                continue;
            }
            if (sched->n_slots < n_slots) {
                berth_log(GGML_LOG_LEVEL_WARN, "scheduler: memory does not suffice for %d graphs in flight; continuing with %d\n",
                    n_slots, sched->n_slots);
            }
            return status;
        }
        struct sched_cached *const cached = sched->cur;
        sched->cur = NULL;
        sched->graph = NULL;
        if (status == GGML_STATUS_ALLOC_FAILED && (early_copies_give_up(sched, cached) || residents_give_up(sched))) {
            continue;
        }
        if (status != GGML_STATUS_ALLOC_FAILED || sched->n_slots == 1) {
            sched->n_slots = n_slots; // the graphs in flight were not the cause
            return status;
        }
        sched_drain(sched);
        sched->n_slots--;
        sched->slot = sched->next_slot = 0;
    }
}

static bool has_arguments(const char *func, ggml_backend_sched_t sched, const struct ggml_cgraph *graph) {
    if (sched == NULL || graph == NULL) {
        return BERTH_FAIL_FALSE(GGML_STATUS_FAILED, "%s: the %s is NULL", func, sched == NULL ? "scheduler" : "graph");
    }
    if (!sched_is_idle(func, sched)) {
        return false;
    }
    for (int b = 0; b < sched->n_backends; b++) {
        if (sched->backends[b] == NULL) {
            return BERTH_FAIL_FALSE(GGML_STATUS_FAILED, "%s: backend %d of %d has been freed", func, b, sched->n_backends);
        }
    }
    return true;
}

enum ggml_status berth_sched_split(ggml_backend_sched_t sched, struct ggml_cgraph *graph) {
    if (!has_arguments(__func__, sched, graph)) {
        return GGML_STATUS_FAILED;
    }
    sched_hold(sched);
    const enum ggml_status status = graph_prepare(sched, graph, false);
    sched_let_go(sched);
    return status;
}

void ggml_backend_sched_split_graph(ggml_backend_sched_t sched, struct ggml_cgraph *graph) {
    const enum ggml_status status = berth_sched_split(sched, graph);
    (void) status; // berth_last_error() has the text
}

// ---- memory ----

static struct {
    berth_sched_planned_t callback;
    void *user_data;
} watcher;

void berth_sched_on_plan(berth_sched_planned_t callback, void *user_data) {
    watcher.callback = callback;
    watcher.user_data = user_data;
}

static void report_planned(struct ggml_backend_sched *sched, struct ggml_cgraph *graph, const size_t *sizes) {
    if (watcher.callback != NULL) {
        watcher.callback(sched, graph, sizes, watcher.user_data);
    }
}

// Reserves for the time after resident copies have been filled, when other ops run on the device.
static enum ggml_status reserve_filled(struct ggml_backend_sched *sched, struct ggml_cgraph *graph) {
    if (!sched_residents_has_unfilled(sched)) {
        return GGML_STATUS_SUCCESS;
    }
    sched->residents.assumes_filled = true;
    sched->residents.version++;
    const enum ggml_status status = prepare_with_retry(sched, graph, sched_reserve);
    sched->residents.assumes_filled = false;
    sched->residents.version++;
    return status;
}

bool ggml_backend_sched_reserve(ggml_backend_sched_t sched, struct ggml_cgraph *measure_graph) {
    if (!has_arguments(__func__, sched, measure_graph)) {
        return false;
    }
    sched_hold(sched);
    sched->logs_growth = false; // growth is expected in this call
    enum ggml_status status = prepare_with_retry(sched, measure_graph, sched_reserve);
    if (status == GGML_STATUS_SUCCESS) {
        report_planned(sched, measure_graph, NULL);
        status = reserve_filled(sched, measure_graph);
    }
    sched->logs_growth = true;
    ggml_backend_sched_reset(sched);
    sched_let_go(sched);
    return status == GGML_STATUS_SUCCESS;
}

void ggml_backend_sched_reserve_size(ggml_backend_sched_t sched, struct ggml_cgraph *measure_graph, size_t *sizes) {
    if (!has_arguments(__func__, sched, measure_graph) || sizes == NULL) {
        return;
    }
    sched_hold(sched);
    memset(sizes, 0, (size_t) sched->n_backends * sizeof sizes[0]);
    if (graph_prepare(sched, measure_graph, false) == GGML_STATUS_SUCCESS) {
        if (sched_measure(sched, sched->cur, sizes) == GGML_STATUS_SUCCESS) {
            report_planned(sched, measure_graph, sizes);
        } else {
            memset(sizes, 0, (size_t) sched->n_backends * sizeof sizes[0]);
        }
    }
    ggml_backend_sched_reset(sched);
    sched_let_go(sched);
}

enum ggml_status berth_sched_work_sizes(ggml_backend_sched_t sched, struct ggml_cgraph *graph, size_t *sizes) {
    if (!has_arguments(__func__, sched, graph) || sizes == NULL) {
        return GGML_STATUS_FAILED;
    }
    sched_hold(sched);
    memset(sizes, 0, (size_t) sched->n_backends * sizeof sizes[0]);
    const enum ggml_status status = graph_prepare(sched, graph, false);
    if (status == GGML_STATUS_SUCCESS) {
        sched_work_sizes(sched, sched->cur, sizes);
    }
    ggml_backend_sched_reset(sched);
    sched_let_go(sched);
    return status;
}

static enum ggml_status alloc_graph(struct ggml_backend_sched *sched, struct ggml_cgraph *graph) {
    const enum ggml_status status = prepare_with_retry(sched, graph, graph_place);
    sched->is_graph_allocated = status == GGML_STATUS_SUCCESS;
    return status;
}

bool ggml_backend_sched_alloc_graph(ggml_backend_sched_t sched, struct ggml_cgraph *graph) {
    if (!has_arguments(__func__, sched, graph)) {
        return false;
    }
    sched_hold(sched);
    const enum ggml_status status = alloc_graph(sched, graph);
    sched_let_go(sched);
    return status == GGML_STATUS_SUCCESS;
}

// ---- compute ----

// Returns true if the graph still matches the current cached graph and all its addresses are valid.
static bool is_still_allocated(struct ggml_backend_sched *sched, const struct ggml_cgraph *graph) {
    struct sched_cached *cached = sched->cur;
    sched_residents_check(sched);
    if (!sched->is_graph_allocated || sched_cached_match(sched, cached, graph, true) != SCHED_SAME_PLACED) {
        return false;
    }
    uids_renew(cached, sched->slot);
    return true;
}

// Places the graph unless its addresses are valid. Inputs keep their contents.
static enum ggml_status graph_keep_placed(struct ggml_backend_sched *sched, struct ggml_cgraph *graph) {
    if (sched->graph == graph && is_still_allocated(sched, graph)) {
        return GGML_STATUS_SUCCESS;
    }
    sched->preserves_inputs = true;
    const enum ggml_status status = alloc_graph(sched, graph);
    sched->preserves_inputs = false;
    sched_preserved_restore(sched);
    return status;
}

// Places the graph and fills the resident copies of its weights. If copies were filled, ops that were assigned to the host can run
// on the device, so the graph is split and placed again.
static enum ggml_status graph_make_ready(struct ggml_backend_sched *sched, struct ggml_cgraph *graph) {
    enum ggml_status status = graph_keep_placed(sched, graph);
    if (status != GGML_STATUS_SUCCESS) {
        return status;
    }
    status = sched_residents_fill(sched, sched->cur);
    if (status != GGML_STATUS_SUCCESS || sched_resident_is_valid(sched, sched->cur)) {
        return status;
    }
    return graph_keep_placed(sched, graph);
}

enum ggml_status ggml_backend_sched_graph_compute_async(ggml_backend_sched_t sched, struct ggml_cgraph *graph) {
    if (!has_arguments(__func__, sched, graph)) {
        return GGML_STATUS_FAILED;
    }
    sched_hold(sched);
    enum ggml_status status = graph_make_ready(sched, graph);
    if (status == GGML_STATUS_SUCCESS) {
        status = sched_run(sched);
    }
    sched_let_go(sched);
    return status;
}

enum ggml_status ggml_backend_sched_graph_compute(ggml_backend_sched_t sched, struct ggml_cgraph *graph) {
    const enum ggml_status status = ggml_backend_sched_graph_compute_async(sched, graph);
    if (status != GGML_STATUS_SUCCESS) {
        return status;
    }
    return berth_sched_synchronize(sched);
}

enum ggml_status berth_sched_synchronize(ggml_backend_sched_t sched) {
    if (sched == NULL) {
        return berth_fail(GGML_STATUS_FAILED, "ggml_backend_sched_synchronize: the scheduler is NULL");
    }
    sched_hold(sched);
    const enum ggml_status status = sched_wait_all(sched);
    if (!sched->is_graph_allocated) {
        sched->next_slot = 0; // so a program that computes one graph at a time always uses slot 0
    }
    sched_let_go(sched);
    return status;
}

void ggml_backend_sched_synchronize(ggml_backend_sched_t sched) {
    const enum ggml_status status = berth_sched_synchronize(sched);
    (void) status; // berth_last_error() has the text
}

void ggml_backend_sched_set_eval_callback(
    ggml_backend_sched_t sched, ggml_backend_sched_eval_callback callback, void *user_data) {
    if (sched != NULL) {
        sched->callback = callback;
        sched->callback_data = user_data;
    }
}
