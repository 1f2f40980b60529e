// SPDX-License-Identifier: MIT
// engine_clock.c: waiting with a time limit.

#include "base/min.h"
#include "serve/engine_state.h"

#include <time.h>

int64_t engine_now_us(void) {
    return ggml_time_us();
}

bool engine_wait(struct engine *e, pthread_cond_t *cond, int64_t until_us) {
    if (until_us == 0) {
        pthread_cond_wait(cond, &e->lock);
        return true;
    }
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    const int64_t left_us = max_i64(until_us - engine_now_us(), 0);
    until.tv_sec += (time_t) (left_us / 1000000);
    until.tv_nsec += (long) (left_us % 1000000 * 1000);
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    return pthread_cond_timedwait(cond, &e->lock, &until) == 0;
}
