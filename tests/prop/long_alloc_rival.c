// SPDX-License-Identifier: MIT
// long_alloc_rival.c: runs the cases of prop_alloc_rival.c with 20,000 graphs.

#include "alloc_rival.h"

static void never_more_than_reference(void **state) {
    (void) state;
    rival_cases(check_seed(5000000), 20000);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(never_more_than_reference)};
    return cmocka_run_group_tests_name("alloc compared with the reference", tests, NULL, NULL);
}
