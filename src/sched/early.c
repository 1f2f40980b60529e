// SPDX-License-Identifier: MIT
// early.c: copies weights to a device while the split before their readers runs.
//
// A weight on the host that a split reads on a device is an early copy if the device can copy and compute at the same time. The
// scheduler has a second backend of such a device, the copier, with a queue of its own. The memory of an early copy is in use from
// the start of the split before its readers (plan.c), so the copier may write it while that split runs.
//
//     backend:  ... split s-1 | record `before` | split s ................ | wait for `after` | split s+1
//     copier:                   wait for `before` | copies for split s+1 | record `after`
//
// All work before split s may have used the memory. So the copier waits for `before` of each backend that has work in flight. If
// such a backend has no events, the copies are made directly before split s+1, like other copies. The same holds while the
// scheduler traces or calls an eval callback, because both wait after each split. Only weights are copied early: no node writes
// them before their readers run.

#include "sched/sched.h"

static bool backend_has_events(ggml_backend_t backend) {
    struct ggml_backend_dev_props props;
    if (backend->device == NULL || backend->iface.event_record == NULL || backend->iface.event_wait == NULL ||
        backend->iface.set_tensor_async == NULL) {
        return false;
    }
    ggml_backend_dev_get_props(backend->device, &props);
    return props.caps.async && props.caps.events;
}

static void copier_fini(struct sched_copier *copier) {
    ggml_backend_free(copier->backend);
    ggml_backend_event_free(copier->before);
    ggml_backend_event_free(copier->after);
    *copier = (struct sched_copier){0};
}

// Creates the copiers of all backends that can have one.
static void copiers_init(struct ggml_backend_sched *sched) {
    sched->has_copiers = true;
    for (int b = 0; b < sched->n_backends; b++) {
        struct sched_copier *copier = &sched->copiers[b];
        ggml_backend_dev_t dev = sched->backends[b]->device;
        if (!backend_has_events(sched->backends[b])) {
            continue;
        }
        copier->backend = ggml_backend_dev_init(dev, NULL);
        copier->before = ggml_backend_event_new(dev);
        copier->after = ggml_backend_event_new(dev);
        if (copier->backend == NULL || copier->before == NULL || copier->after == NULL) {
            copier_fini(copier);
        }
    }
}

bool sched_copies_early(struct ggml_backend_sched *sched, const struct sched_cached *cached, int32_t r, int b) {
    if (!sched->may_copy_early || cached->n_slots > 1 || cached->n_splits < 2 || !sched_is_host_weight(cached, r)) {
        return false;
    }
    if (!sched->has_copiers) {
        copiers_init(sched);
    }
    return sched->copiers[b].backend != NULL;
}

bool sched_has_early_copies(const struct sched_cached *cached) {
    for (int32_t s = 0; s < cached->n_splits; s++) {
        if (cached->splits[s].n_early > 0) {
            return true;
        }
    }
    return false;
}

void sched_early_reserve(struct ggml_backend_sched *sched, const struct sched_cached *cached, const struct sched_split *split) {
    for (int32_t i = split->copies; i < split->copies + split->n_copies; i++) {
        if (cached->copies[i].is_early) {
            const size_t size = ggml_nbytes(cached->rec.tensors[cached->copies[i].row]);
            berth_backend_reserve_copies(sched->copiers[split->backend].backend, size);
        }
    }
}

bool sched_early_prepare(struct ggml_backend_sched *sched, const struct sched_cached *cached, int32_t i_split) {
    if (i_split >= cached->n_splits || cached->splits[i_split].n_early == 0 || sched->is_tracing || sched->callback != NULL) {
        return false;
    }
    const int reader = cached->splits[i_split].backend;
    for (int b = 0; b < sched->n_backends; b++) {
        if (sched->in_flight[b] && sched->copiers[b].before == NULL) {
            return false;
        }
    }
    // The program may have queued work on the reader's backend, so in_flight is not asked for it.
    for (int b = 0; b < sched->n_backends; b++) {
        if (sched->in_flight[b] || b == reader) {
            ggml_backend_event_record(sched->copiers[b].before, sched->backends[b]);
            ggml_backend_event_wait(sched->copiers[reader].backend, sched->copiers[b].before);
        }
    }
    return true;
}

enum ggml_status sched_early_start(struct ggml_backend_sched *sched, struct sched_cached *cached, int32_t i_split) {
    const struct sched_split *split = &cached->splits[i_split];
    struct sched_copier *copier = &sched->copiers[split->backend];
    copier->in_flight = true;
    for (int32_t i = split->copies; i < split->copies + split->n_copies; i++) {
        if (cached->copies[i].is_early) {
            const struct ggml_tensor *src = cached->rec.tensors[cached->copies[i].row];
            const size_t size = ggml_nbytes(src);
            ggml_backend_tensor_set_async(copier->backend, sched_copy_tensor(cached, i, 0), src->data, 0, size);
            if (cached->copies[i].resident >= 0) {
                sched_resident_filled(sched, cached->copies[i].resident);
            }
            sched->stats.n_copied++;
            sched->stats.copied_size += (int64_t) size;
        }
    }
    ggml_backend_event_record(copier->after, copier->backend);
    sched->early_split = i_split;
    if (berth_backend_report(copier->backend) != GGML_STATUS_SUCCESS) {
        return berth_fail(GGML_STATUS_FAILED, "scheduler: copying %d weights to backend %s for split %d of %d failed: %s",
            split->n_early, ggml_backend_name(copier->backend), i_split, cached->n_splits, berth_last_error());
    }
    return GGML_STATUS_SUCCESS;
}

void sched_early_join(struct ggml_backend_sched *sched, const struct sched_cached *cached) {
    const int b = cached->splits[sched->early_split].backend;
    ggml_backend_event_wait(sched->backends[b], sched->copiers[b].after);
    sched->in_flight[b] = true;
    sched->early_split = -1;
}

void sched_early_wait(struct ggml_backend_sched *sched) {
    for (int b = 0; b < sched->n_backends; b++) {
        if (sched->copiers[b].in_flight) {
            berth_backend_wait(sched->copiers[b].backend);
            sched->copiers[b].in_flight = false;
        }
    }
    sched->early_split = -1;
}

void sched_early_fini(struct ggml_backend_sched *sched) {
    for (int b = 0; b < sched->n_backends; b++) {
        copier_fini(&sched->copiers[b]);
    }
}
