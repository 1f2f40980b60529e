// SPDX-License-Identifier: MIT
// long_budget.c: compares the budget solver with brute force on 20,000 random graphs at every limit, and with the known optimum
// on long chains. BERTH_SEED=n repeats a run.

#include "budget_brute.h"
#include "budget_chain.h"

static void test_exact(void **state) {
    (void) state;
    cases_compare(11, 20000, 10);
}

// Packed memory is the peak of a plan of the schedule's values (budget_brute.h).
static void test_packed(void **state) {
    (void) state;
    cases_compare_packed(12, 2000);
}

static void test_chains(void **state) {
    (void) state;
    int n = 0;
    for (int32_t l = 10; l <= 1000; l += l < 100 ? 1 : l < 990 ? 89 : 10) { // 100, 189, ... 990, 1000
        for (uint64_t budget = 3; budget <= (uint64_t) l + 3; budget++, n++) {
            chain_compare_equal(l, budget);
        }
    }
    printf("%d chains of 10 to 1,000 equal ops: all have the optimal number of recomputations\n", n);
    struct check_rng rng = check_rng_new(check_seed(13));
    for (int32_t l = 3; l <= 80; l++) {
        chain_compare_costs(l, &rng);
    }
}

int main(void) {
    check_quiet();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exact),
        cmocka_unit_test(test_packed),
        cmocka_unit_test(test_chains),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
