// SPDX-License-Identifier: MIT
// long_plan_exact.c: prop_plan_exact.c at full length: instances of up to 7 items exhaustively (sampled from 5 items on), and
// 100,000 random ones of up to 12 items.

#include "plan_exact_cases.h"

int main(int argc, char **argv) {
    brute_seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 20232;
    printf("seed %llu\n", (unsigned long long) brute_seed);
    static const uint64_t strides[] = {0, 1, 1, 1, 7, 200, 2000, 20000};
    for (int64_t n = 1; n <= 7; n++) {
        check_exhaustive(n, 4, n < 6 ? 5 : 3, strides[n]);
        printf("up to %lld items: %d instances, %d above live bytes, %d proofs of no\n", (long long) n, n_checked, n_above_live,
            n_no);
        fflush(stdout);
    }
    check_random(20000, 7, 4, 5, true);
    check_random(40000, 10, 9, 8, true);
    check_random(60000, 12, 20, 10, true);
    check_random(20000, 12, 6, 7, true);
    check_tight(2000, 7, 5, 5, true);
    check_tight(2000, 8, 9, 4, true);
    check_tight(2000, 6, 12, 6, true);
    check_tight(2000, 8, 4, 4, true);
    printf("%d instances, %d above live bytes, %d proofs of no\n", n_checked, n_above_live, n_no);
    return 0;
}
