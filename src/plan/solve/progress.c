// SPDX-License-Identifier: MIT
// progress.c: whoever looks on while a search runs. Any thread of the search may come by; one at a time asks, at most every
// PERIOD_US, and the answer "enough" is for all of them, for good.

#include "plan/solve/plan.h"

#define PERIOD_US 50000

bool berth_plan_watch_is_over(struct plan_watch *watch, int64_t now_us) {
    if (atomic_load_explicit(&watch->is_over, memory_order_relaxed)) {
        return true;
    }
    if (atomic_flag_test_and_set_explicit(&watch->lock, memory_order_acquire)) {
        return false; // somebody else is asking
    }
    if (now_us >= watch->next_us) {
        const struct plan_state *s = watch->state;
        watch->next_us = now_us + PERIOD_US;
        if (!watch->ask((uint64_t) s->peak * watch->unit, (uint64_t) s->bound * watch->unit, watch->user)) {
            atomic_store(&watch->is_over, true);
        }
    }
    atomic_flag_clear_explicit(&watch->lock, memory_order_release);
    return atomic_load_explicit(&watch->is_over, memory_order_relaxed);
}
