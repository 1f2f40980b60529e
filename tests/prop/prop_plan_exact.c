// SPDX-License-Identifier: MIT
// prop_plan_exact.c: compares the planner with brute force on small sets of items. A long search finds and proves the optimum,
// also with each rule switched off. With less time, plans are valid and not below the optimum. long_plan_exact.c runs more
// instances.

#include "plan_exact_cases.h"
#include "support/check.h"

int main(int argc, char **argv) {
    brute_seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 20231;
    printf("seed %llu\n", (unsigned long long) brute_seed);
    for (int64_t n = 1; n <= 3; n++) {
        check_exhaustive(n, 4, 5, n == 3 ? 40 * CHECK_PART : 1);
    }
    check_exhaustive(5, 3, 4, 4000 * CHECK_PART);
    check_random(check_cases(1000), 8, 4, 5, true);
    check_random(check_cases(400), 10, 9, 8, true);
    check_random(check_cases(150), 12, 20, 10, true);
    check_tight(check_cases(90), 7, 5, 5, true);
    check_tight(check_cases(60), 8, 9, 4, true);
    check_tight(check_cases(60), 6, 12, 6, true);
    printf("%d instances, %d with an optimum above the live bytes, %d proofs of infeasibility, %d by beams, %d joined\n",
        n_checked, n_above_live, n_no, n_beam_no, n_joined);
    return n_above_live > 0 && n_no > 0 && n_beam_no > 0 && n_joined > 0 ? 0 : 1;
}
