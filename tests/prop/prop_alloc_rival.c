// SPDX-License-Identifier: MIT
// prop_alloc_rival.c: compares the allocator with the reference's on random graphs; long_alloc_rival.c runs more.

#include "alloc_rival.h"

static void never_more_than_reference(void **state) {
    (void) state;
    rival_cases(check_seed(1), 2000);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(never_more_than_reference)};
    return cmocka_run_group_tests_name("alloc compared with the reference", tests, NULL, NULL);
}
