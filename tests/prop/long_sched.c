// SPDX-License-Identifier: MIT
// long_sched.c: runs prop_sched.c with graphs of up to 3,000 nodes: 1,000 graphs on synchronous devices, 250 graphs on devices
// with threads, and 250 graphs in pipelines.

#define N_SEEDS 1000
#define MOST_NODES 3000
#include "prop_sched.c"
