// SPDX-License-Identifier: MIT
// The budget solver against brute force on 20,000 random graphs at every budget, and on long chains against the known optimum.
// BERTH_SEED=n repeats one run.

#include "budget_brute.h"
#include "budget_chain.h"

static void test_exact(void **state) {
    (void) state;
    cases_compare(11, 20000, 10);
}

static void test_packed(void **state) {
    (void) state;
    cases_compare_packed(12, 2000);
}

static void test_chains(void **state) {
    (void) state;
    static const int32_t lengths[] = {10, 33, 100, 330, 1000};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        for (uint64_t budget = 3; budget <= (uint64_t) lengths[i] + 3; budget++) {
            chain_compare_even(lengths[i], budget);
        }
    }
    struct check_rng rng = check_rng_new(check_seed(13));
    for (int32_t l = 3; l <= 60; l++) {
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
