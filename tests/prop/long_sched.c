// SPDX-License-Identifier: MIT
// long_sched.c: prop_sched.c with 1,000 graphs of up to 3,000 nodes, and as many in all with threads and pipelines.

#define N_SEEDS 1000
#define MOST_NODES 3000
#include "prop_sched.c"
