// SPDX-License-Identifier: MIT
// long_ops.c: runs a million random ops between guard pages (op_cases.h). BERTH_SEED sets the seed.

#include "op_cases.h"

static void test_random_ops(void **state) {
    (void) state;
    op_cases_run(check_seed(1000000), 1000000);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_ops)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
