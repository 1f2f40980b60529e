// SPDX-License-Identifier: MIT
// improve.h: local search by one thread. improve_threads.c runs one or several such workers.
#pragma once

#include "plan/solve/plan.h"

#define IMPROVE_SMALL 2000    // with fewer blocks, the exact search mostly ends within a few milliseconds
#define IMPROVE_MANY 4000     // with more blocks, local search gets more time than other searches
#define IMPROVE_TURN_US 10000 // least time of a turn

struct improve_worker;

// NULL: out of memory. overlap, g and s must outlive the result. Worker 0 searches as if it were alone. A worker with another
// number makes other choices.
struct improve_worker *berth_improve_new(const struct plan_prob *p, const struct plan_overlap *overlap, const struct plan_goal *g,
    struct plan_state *s, int i_worker) BERTH_MUST_USE;
void berth_improve_free(struct improve_worker *w);
// Runs one method until it has used its turn, until_us (on the clock of the goal), or the goal is reached. The plan in s may have
// changed since the last turn.
void berth_improve_turn(struct improve_worker *w, int64_t until_us);
