// SPDX-License-Identifier: MIT
// progress.c: calls the progress callback from one thread at a time, at most every PERIOD_US.

#include "base/min.h"
#include "plan/solve/plan.h"

#define PERIOD_US 50000

bool berth_plan_watch_is_over(struct plan_watch *watch, int64_t now_us) {
    if (atomic_load_explicit(&watch->is_over, memory_order_relaxed)) {
        return true;
    }
    if (atomic_flag_test_and_set_explicit(&watch->lock, memory_order_acquire)) {
        return false; // another thread is calling the callback
    }
    if (now_us >= watch->next_us) {
        const struct plan_state *s = watch->state;
        watch->next_us = now_us + PERIOD_US;
        const int64_t peak = min_i64(s->peak, atomic_load(&watch->least));
        if (!watch->ask((uint64_t) peak * watch->unit, (uint64_t) s->bound * watch->unit, watch->user)) {
            atomic_store(&watch->is_over, true);
        }
    }
    atomic_flag_clear_explicit(&watch->lock, memory_order_release);
    return atomic_load_explicit(&watch->is_over, memory_order_relaxed);
}
