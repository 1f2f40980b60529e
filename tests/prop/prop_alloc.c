// SPDX-License-Identifier: MIT
// prop_alloc.c: random graphs give the same results with the allocator as with separate memory for each tensor. long_alloc.c runs
// more.

#include "alloc_cases.h"

static void random_graphs(void **state) {
    (void) state;
    cases_run(check_seed(1), check_cases(2000));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_graphs)};
    return cmocka_run_group_tests_name("alloc", tests, NULL, NULL);
}
