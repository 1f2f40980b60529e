// SPDX-License-Identifier: MIT
// lock.h: a mutex that needs no set-up, so that it can guard process-wide state from the first call on.
#pragma once

#include <pthread.h>

struct berth_lock {
    pthread_mutex_t mutex;
};

#define BERTH_LOCK_INIT \
    { PTHREAD_MUTEX_INITIALIZER }

static inline void berth_lock_take(struct berth_lock *lock) {
    pthread_mutex_lock(&lock->mutex);
}

static inline void berth_lock_drop(struct berth_lock *lock) {
    pthread_mutex_unlock(&lock->mutex);
}
