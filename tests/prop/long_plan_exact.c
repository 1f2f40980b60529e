// SPDX-License-Identifier: MIT
// long_plan_exact.c: prop_plan_exact.c at full length: instances of up to 7 items exhaustively (sampled from 5 items on), and
// 100,000 random ones of up to 12 items.

#include "plan_exact_cases.h"

#include <time.h>

// How far the run is, so that one that is cut short still says what it has seen.
static void tell(const char *what) {
    printf("%-10s so far %d instances, %d above live bytes, %d proofs of no, %.1f s\n", what, n_checked, n_above_live, n_no,
        (double) clock() / CLOCKS_PER_SEC);
    fflush(stdout);
}

int main(int argc, char **argv) {
    brute_seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 20232;
    printf("seed %llu\n", (unsigned long long) brute_seed);
    static const uint64_t strides[] = {0, 1, 1, 1, 7, 200, 2000, 20000};
    for (int64_t n = 1; n <= 7; n++) {
        check_exhaustive(n, 4, n < 6 ? 5 : 3, strides[n]);
        tell("exhaustive");
    }
    static const struct {
        int n_instances, n_max, size_max, steps;
    } random_runs[] = {{20000, 7, 4, 5}, {40000, 10, 9, 8}, {60000, 12, 20, 10}, {20000, 12, 6, 7}};
    for (size_t k = 0; k < sizeof random_runs / sizeof random_runs[0]; k++) {
        check_random(random_runs[k].n_instances, random_runs[k].n_max, (uint64_t) random_runs[k].size_max,
            (uint64_t) random_runs[k].steps, true);
        tell("random");
    }
    check_tight(2000, 7, 5, 5, true);
    check_tight(2000, 8, 9, 4, true);
    check_tight(2000, 6, 12, 6, true);
    check_tight(2000, 8, 4, 4, true);
    tell("tight");
    return 0;
}
