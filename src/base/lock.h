// SPDX-License-Identifier: MIT
// lock.h: a mutex with a static initialiser, for process-wide state.
// BERTH_LOCK_ACROSS_FORK: fork waits for the lock, so that the child finds the data consistent.
// Use it only for locks that are held for a few instructions, without calls of foreign code.
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

// Use in the file that defines the static lock `name`. `priority` is a number from 101 on. fork takes the lock with the highest
// number first and the lock with the lowest number last.
// If lock B is taken while lock A is held, B needs a lower number than A.
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
