// SPDX-License-Identifier: MIT
// other_thread.h: checks that a function returns in another thread while the calling thread waits for it. The function does not
// return if it needs a lock that the calling thread holds.
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <time.h>

#define OTHER_THREAD_S 10 // seconds; a function that takes longer is assumed to be blocked

static inline bool other_thread_answers(void *(*function)(void *) ) {
    pthread_t thread;
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += OTHER_THREAD_S;
    if (pthread_create(&thread, NULL, function, NULL) != 0) {
        return false;
    }
    if (pthread_timedjoin_np(thread, NULL, &end) == 0) {
        return true;
    }
    pthread_detach(thread);
    return false;
}
