// SPDX-License-Identifier: MIT
// long_alloc.c: runs the cases of prop_alloc.c with 10,000 graphs.

#include "alloc_cases.h"

static void random_graphs(void **state) {
    (void) state;
    cases_run(check_seed(1000000), 10000);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_graphs)};
    return cmocka_run_group_tests_name("alloc", tests, NULL, NULL);
}
