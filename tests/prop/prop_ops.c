// SPDX-License-Identifier: MIT
// prop_ops.c: runs 50,000 random ops between guard pages (op_cases.h). BERTH_SEED sets the seed, BERTH_CASE runs only that case.

#include "op_cases.h"

static void test_random_ops(void **state) {
    (void) state;
    const uint64_t seed = check_seed(1);
    const char *only = getenv("BERTH_CASE");
    if (only == NULL) {
        op_cases_run(seed, check_cases(50000));
        return;
    }
    struct op_cases c;
    op_cases_open(&c, seed);
    op_case_run(&c, strtoull(only, NULL, 10));
    op_case_print(stdout, &c);
    printf("%s\n", berth_last_error());
    op_cases_close(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_ops)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
