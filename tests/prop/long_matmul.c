// SPDX-License-Identifier: MIT
// long_matmul.c: products of every format with every number of columns from 1 to 70 (matmul_cases.h). BERTH_SEED sets the seed.

#include "matmul_cases.h"

static void test_every_number_of_columns(void **state) {
    (void) state;
    cpu_init();
    const uint64_t seed = check_seed(1);
    enum ggml_type all[GGML_TYPE_COUNT];
    const int n_formats = formats(all);
    for (int64_t n = 1; n <= COLUMNS_MAX; n++) {
        for (int i = 0; i < n_formats; i++) {
            columns_case(seed, all[i], n);
            columns_case(seed + 1000000, all[i], n);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_number_of_columns)};
    return cmocka_run_group_tests_name("long_matmul", tests, NULL, NULL);
}
