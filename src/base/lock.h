// SPDX-License-Identifier: MIT
// lock.h: a mutex that needs no set-up, so that it can guard process-wide state from the first call on. One that is held for a
// few instructions only, without a call of others' code, can be held across fork: then the child, which has no thread to drop it,
// finds it free and its data whole.
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

// In the file that has the static lock `name`. fork takes the locks in the reverse order of these numbers: 101 is taken last, so
// that a lock which is taken while another one is held has the lower number.
#define BERTH_LOCK_ACROSS_FORK(name, priority) \
    static void name##_before_fork(void) { \
        berth_lock_take(&name); \
    } \
    static void name##_after_fork(void) { \
        berth_lock_drop(&name); \
    } \
    __attribute__((constructor(priority))) static void name##_watch_forks(void) { \
        pthread_atfork(name##_before_fork, name##_after_fork, name##_after_fork); \
    }
