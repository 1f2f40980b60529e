// SPDX-License-Identifier: MIT
// reclaim.c: gives the memory of resident copies back if another allocation of the process needs it (backend/reclaim.c).
//
// The allocation may be made by another thread. So a scheduler that has resident copies is held during its own calls: these wait
// while the copies are freed, and a failed allocation skips a scheduler whose call is in progress. It also skips a scheduler whose
// backends have received work since the scheduler last waited for them: freeing the copies would have to wait for these backends,
// and the program may be using or freeing them.

#include "sched/sched.h"

#include <stdio.h>
#include <string.h>

void sched_residents_disable(struct ggml_backend_sched *sched, const char *why) {
    struct sched_residents *res = &sched->residents;
    size_t size = 0;
    for (int b = 0; b < sched->n_backends; b++) {
        size += res->used[b];
    }
    berth_log(GGML_LOG_LEVEL_WARN,
        "scheduler: freeing %zu bytes of resident copies, because %s; BERTH_SCHED_RESIDENT limits resident copies\n", size, why);
    sched_finish(sched);
    sched_residents_free(sched);
    memset(res->limits, 0, (size_t) sched->n_backends * sizeof res->limits[0]);
}

// Called by an allocation of any thread that failed.
static bool residents_reclaim(struct berth_holder *holder, ggml_backend_buffer_type_t buft) {
    struct ggml_backend_sched *sched =
        (struct ggml_backend_sched *) ((char *) holder - offsetof(struct ggml_backend_sched, residents.holder));
    struct sched_residents *res = &sched->residents;
    size_t size = 0;
    for (int b = 0; b < sched->n_backends; b++) {
        if (sched->in_flight[b]) {
            return false;
        }
        size += sched->bufts[b] == buft ? res->used[b] : 0;
    }
    if (size == 0) {
        return false;
    }
    char why[256];
    snprintf(why, sizeof why, "a buffer of type %s could not be allocated", ggml_backend_buft_name(buft));
    sched_residents_disable(sched, why);
    return true;
}

// Calls may be nested, because a callback of the program may call the scheduler. While a graph runs, ops of any thread may call the
// scheduler. These calls are not counted, because the call that runs the graph holds the scheduler until they have returned.

void sched_hold(struct ggml_backend_sched *sched) {
    struct sched_residents *res = &sched->residents;
    if (sched->is_running || res->n_calls++ > 0 || !res->is_listed) {
        return;
    }
    berth_holder_hold(&res->holder);
}

void sched_let_go(struct ggml_backend_sched *sched) {
    struct sched_residents *res = &sched->residents;
    if (sched->is_running || --res->n_calls > 0) {
        return;
    }
    if (res->is_listed) {
        berth_holder_let_go(&res->holder);
    } else if (res->groups != NULL) {
        res->holder.reclaim = residents_reclaim;
        res->is_listed = true;
        berth_holder_add(&res->holder);
    }
}

void sched_holder_fini(struct ggml_backend_sched *sched) {
    if (sched->residents.is_listed) {
        berth_holder_remove(&sched->residents.holder);
    }
}
