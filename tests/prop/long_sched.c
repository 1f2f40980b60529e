// SPDX-License-Identifier: MIT
// long_sched.c: runs prop_sched.c with 1,000 graphs of up to 3,000 nodes, and 250 each on devices with threads and in pipelines.

#define N_SEEDS 1000
#define MOST_NODES 3000
#include "prop_sched.c"
