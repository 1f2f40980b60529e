// SPDX-License-Identifier: MIT
// lock.h: a mutex with a static initialiser, so that it can guard process-wide state from the first call on. A lock that is held
// only for a few instructions, without calls of foreign code, can also be taken across fork: the child then finds the lock free and
// its data consistent, although the thread that held it does not exist there.
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

// Use in the file that defines the static lock `name`. fork takes the locks in the reverse order of these priorities: 101 is taken
// last. So a lock that is taken while another one is held needs the lower priority.
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
