// SPDX-License-Identifier: MIT
// long_plan_exact.c: runs the cases of prop_plan_exact.c in larger numbers:
// - all instances of 1 to 3 items
// - every 7th instance of 4 items, every 200th of 5, every 2,000th of 6 and every 20,000th of 7 items
// - 140,000 random instances of up to 12 items
// - 8,000 tight instances (check_tight)

#include "plan_exact_cases.h"

#include <time.h>

// Prints the progress, so that an interrupted run shows the cases that it has checked.
static void progress_print(const char *what) {
    printf("%-10s so far %d instances, %d with an optimum above the live bytes, %d proofs of infeasibility, %.1f s\n", what,
        n_checked, n_above_live, n_no, (double) clock() / CLOCKS_PER_SEC);
    fflush(stdout);
}

int main(int argc, char **argv) {
    brute_seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 20232;
    printf("seed %llu\n", (unsigned long long) brute_seed);
    // strides[n]: one of this number of instances of n items is checked.
    static const uint64_t strides[] = {0, 1, 1, 1, 7, 200, 2000, 20000};
    for (int64_t n = 1; n <= 7; n++) {
        check_exhaustive(n, 4, n < 6 ? 5 : 3, strides[n]);
        progress_print("exhaustive");
    }
    static const struct {
        int n_instances, n_max, size_max, steps;
    } random_runs[] = {{20000, 7, 4, 5}, {40000, 10, 9, 8}, {60000, 12, 20, 10}, {20000, 12, 6, 7}};
    for (size_t k = 0; k < sizeof random_runs / sizeof random_runs[0]; k++) {
        check_random(random_runs[k].n_instances, random_runs[k].n_max, (uint64_t) random_runs[k].size_max,
            (uint64_t) random_runs[k].steps, true);
        progress_print("random");
    }
    check_tight(2000, 7, 5, 5, true);
    check_tight(2000, 8, 9, 4, true);
    check_tight(2000, 6, 12, 6, true);
    check_tight(2000, 8, 4, 4, true);
    progress_print("tight");
    return 0;
}
