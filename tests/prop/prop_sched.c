// SPDX-License-Identifier: MIT
// prop_sched.c: random graphs over random devices give the same bits as one CPU backend. long_sched.c runs more and larger graphs.

#include "support/device_graph.h"

#ifndef N_SEEDS
#    define N_SEEDS 60
#    define MOST_NODES 400
#endif

static void check_many(bool async, bool parallel, bool offload, bool resident, int n_seeds, int most_nodes) {
    const uint64_t seed = check_seed(async ? 1000 : 1);
    for (int i = 0; i < n_seeds; i++) {
        struct check_rng rng = check_rng_new(seed + (uint64_t) i);
        struct rg_params p = {
            .seed = seed + (uint64_t) i,
            .n_nodes = 10 + (int) check_rng_below(&rng, 2) * (int) check_rng_below(&rng, (uint64_t) most_nodes - 10) +
                       (int) check_rng_below(&rng, 40),
            .n_devices = 1 + (int) check_rng_below(&rng, 5),
            .async = async,
            .parallel = parallel,
            .offload = offload,
            .resident = resident,
            .delay_us = async ? 50 : 0,
            .n_runs = 7,
        };
        rg_check(&p);
        if ((i + 1) % 100 == 0) {
            print_message("%d of %d graphs\n", i + 1, n_seeds);
        }
    }
}

static void devices_compute_what_the_cpu_does(void **state) {
    (void) state;
    check_many(false, false, false, false, N_SEEDS, MOST_NODES);
}

static void async_devices_compute_what_the_cpu_does(void **state) {
    (void) state;
    check_many(true, false, false, false, N_SEEDS / 4, MOST_NODES);
}

static void pipelined_devices_compute_what_the_cpu_does(void **state) {
    (void) state;
    check_many(true, true, false, false, N_SEEDS / 4, MOST_NODES);
}

// The scheduler copies weights while other ops run.
static void async_devices_compute_with_weights_of_the_host(void **state) {
    (void) state;
    check_many(true, false, true, false, N_SEEDS / 2, MOST_NODES);
}

// Some of the copied weights stay on the devices.
static void devices_compute_with_resident_copies(void **state) {
    (void) state;
    check_many(false, false, true, true, N_SEEDS / 2, MOST_NODES);
    check_many(true, false, true, true, N_SEEDS / 2, MOST_NODES);
}

int main(void) {
    check_quiet();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_compute_what_the_cpu_does),
        cmocka_unit_test(async_devices_compute_what_the_cpu_does),
        cmocka_unit_test(pipelined_devices_compute_what_the_cpu_does),
        cmocka_unit_test(async_devices_compute_with_weights_of_the_host),
        cmocka_unit_test(devices_compute_with_resident_copies),
    };
    return cmocka_run_group_tests_name("prop_sched", tests, NULL, NULL);
}
