// SPDX-License-Identifier: MIT
// The sampler: the likeliest at temperature 0, frequencies as the logits say, limits, seeds, and logits that are no numbers.

#include "support/check.h"

#include "model/model.h"

#include <math.h>

static void test_greedy(void **state) {
    (void) state;
    struct sampler s;
    const float logits[] = {0.5f, NAN, 3, 3, -INFINITY};
    sampler_init(&s, 0, 0, 1, 1);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(sampler_pick(&s, logits, 5), 2); // the first of equals
    }
    const float none[] = {NAN, NAN};
    assert_int_equal(sampler_pick(&s, none, 2), -1);
    sampler_fini(&s);
}

// Shares of 200,000 picks against the softmax.
static void test_frequencies(void **state) {
    (void) state;
    const float logits[] = {0, 1, 2, -1, 0.5f, NAN};
    const int n          = 200000;
    struct sampler s;
    for (int t = 0; t < 3; t++) {
        const float temperature = (float[]){0.5f, 1, 2}[t];
        int counts[6]           = {0};
        double sum              = 0;
        sampler_init(&s, temperature, 0, 1, 42);
        for (int i = 0; i < n; i++) {
            const int32_t token = sampler_pick(&s, logits, 6);
            assert_in_range(token, 0, 4);
            counts[token]++;
        }
        for (int i = 0; i < 5; i++) {
            sum += exp((double) logits[i] / (double) temperature);
        }
        for (int i = 0; i < 5; i++) {
            const double want = exp((double) logits[i] / (double) temperature) / sum, got = (double) counts[i] / n;
            assert_true(fabs(want - got) < 5 * sqrt(want * (1 - want) / n));
        }
        sampler_fini(&s);
    }
}

static void test_limits(void **state) {
    (void) state;
    float logits[1000];
    struct sampler s;
    for (int i = 0; i < 1000; i++) {
        logits[i] = (float) (i * 7919 % 1000) / 100;
    }
    bool seen[1000] = {false};
    int n_seen      = 0;
    sampler_init(&s, 5, 10, 1, 3);
    for (int i = 0; i < 5000; i++) {
        seen[sampler_pick(&s, logits, 1000)] = true;
    }
    for (int i = 0; i < 1000; i++) {
        n_seen += seen[i];
        assert_true(!seen[i] || logits[i] >= 9.9f);
    }
    assert_int_equal(n_seen, 10);
    sampler_fini(&s);
    const float three[] = {0, logf(6), logf(3)}; // shares 0.1, 0.6, 0.3
    int counts[3]       = {0};
    sampler_init(&s, 1, 0, 0.85f, 3); // 0.6 and 0.3 are needed for it
    for (int i = 0; i < 9000; i++) {
        counts[sampler_pick(&s, three, 3)]++;
    }
    assert_int_equal(counts[0], 0);
    assert_true(abs(counts[1] - 6000) < 300 && abs(counts[2] - 3000) < 300);
    sampler_fini(&s);
    sampler_init(&s, 1, 0, 0, 3);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(sampler_pick(&s, three, 3), 1);
    }
    sampler_fini(&s);
}

static void test_seeds(void **state) {
    (void) state;
    struct sampler a, b, c;
    const float logits[64] = {0};
    int n_other            = 0;
    sampler_init(&a, 1, 0, 1, 1);
    sampler_init(&b, 1, 0, 1, 1);
    sampler_init(&c, 1, 0, 1, 2);
    for (int i = 0; i < 100; i++) {
        const int32_t token = sampler_pick(&a, logits, 64);
        assert_int_equal(token, sampler_pick(&b, logits, 64));
        n_other += token != sampler_pick(&c, logits, 64);
    }
    assert_true(n_other > 80);
    sampler_fini(&a);
    sampler_fini(&b);
    sampler_fini(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_greedy), cmocka_unit_test(test_frequencies),
        cmocka_unit_test(test_limits), cmocka_unit_test(test_seeds)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
