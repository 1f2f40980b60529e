// SPDX-License-Identifier: MIT
// reclaim.c: gives the memory of resident copies back if another allocation of the process needs it (backend/reclaim.c).
//
// The allocation may be made by another thread. So a scheduler that has resident copies is held during its own calls: these wait
// while the copies are freed, and a failed allocation skips a scheduler whose call is in progress.

#include "sched/sched.h"

#include <string.h>

// Called by an allocation of any thread that failed.
static bool residents_reclaim(struct berth_holder *holder, ggml_backend_buffer_type_t buft) {
    struct ggml_backend_sched *sched =
        (struct ggml_backend_sched *) ((char *) holder - offsetof(struct ggml_backend_sched, residents.holder));
    struct sched_residents *res = &sched->residents;
    size_t size = 0;
    for (int b = 0; b < sched->n_backends; b++) {
        size += sched->bufts[b] == buft ? res->used[b] : 0;
    }
    if (size == 0) {
        return false;
    }
    berth_log(GGML_LOG_LEVEL_INFO, "scheduler: frees resident copies of %d weights, because %s has no memory left\n", res->n,
        ggml_backend_buft_name(buft));
    sched_finish(sched);
    sched_residents_free(sched);
    memset(res->limits, 0, (size_t) sched->n_backends * sizeof res->limits[0]);
    return true;
}

bool sched_hold(struct ggml_backend_sched *sched) {
    if (!sched->residents.is_listed || sched->is_running) { // if it is running, the call that runs it holds it
        return false;
    }
    berth_holder_hold(&sched->residents.holder);
    return true;
}

void sched_let_go(struct ggml_backend_sched *sched, bool is_held) {
    struct sched_residents *res = &sched->residents;
    if (is_held) {
        berth_holder_let_go(&res->holder);
    } else if (res->groups != NULL && !res->is_listed && !sched->is_running) {
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
