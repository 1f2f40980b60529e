// SPDX-License-Identifier: MIT
// reclaim.c: holders of memory that only makes the program faster, such as resident copies of weights. If a buffer cannot be
// allocated, the holders free their memory, and the allocation is tried once more.
//
// A holder may be busy on another thread. `is_held` says so: the owner sets it during its own calls, and reclaim skips a holder
// that is held. While reclaim frees a holder's memory, the owner's next call waits. The lock of the list is not held meanwhile.
//
// The list is in descending order of the ids. Each call of berth_reclaim asks a holder at most once, also if other threads call
// berth_reclaim at the same time.

#include "backend/backend.h"
#include "base/lock.h"

#include <sched.h>

static struct berth_lock holders_lock = BERTH_LOCK_INIT;
static struct berth_holder *holders;
static uint64_t last_id;
static _Thread_local int n_pauses; // calls of berth_reclaim_pause without berth_reclaim_resume
BERTH_LOCK_ACROSS_FORK(holders_lock, 102)

static bool holder_try(struct berth_holder *holder) {
    bool is_held = false;
    return atomic_compare_exchange_strong(&holder->is_held, &is_held, true);
}

void berth_holder_hold(struct berth_holder *holder) {
    while (!holder_try(holder)) {
        sched_yield();
    }
}

void berth_holder_let_go(struct berth_holder *holder) {
    atomic_store(&holder->is_held, false);
}

void berth_holder_add(struct berth_holder *holder) {
    berth_lock_take(&holders_lock);
    holder->id = ++last_id;
    holder->next = holders;
    holders = holder;
    berth_lock_drop(&holders_lock);
}

void berth_holder_remove(struct berth_holder *holder) {
    berth_lock_take(&holders_lock);
    struct berth_holder **at = &holders;
    while (*at != NULL && *at != holder) {
        at = &(*at)->next;
    }
    if (*at != NULL) {
        *at = holder->next;
    }
    berth_lock_drop(&holders_lock);
}

// Returns the first holder with an id below *id that is not held, holds it, and sets *id to its id. NULL: none.
static struct berth_holder *holder_next(uint64_t *id) {
    berth_lock_take(&holders_lock);
    struct berth_holder *holder = holders;
    while (holder != NULL && (holder->id >= *id || !holder_try(holder))) {
        holder = holder->next;
    }
    if (holder != NULL) {
        *id = holder->id;
    }
    berth_lock_drop(&holders_lock);
    return holder;
}

void berth_reclaim_pause(void) {
    n_pauses++;
}

void berth_reclaim_resume(void) {
    n_pauses--;
}

bool berth_reclaim(ggml_backend_buffer_type_t buft) {
    if (n_pauses > 0) {
        return false;
    }
    uint64_t id = UINT64_MAX;
    bool is_freed = false;
    struct berth_holder *holder;
    berth_log_hold();
    while ((holder = holder_next(&id)) != NULL) {
        is_freed = holder->reclaim(holder, buft) || is_freed;
        berth_holder_let_go(holder);
    }
    berth_log_let_go();
    return is_freed;
}
