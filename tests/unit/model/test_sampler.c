// SPDX-License-Identifier: MIT
// test_sampler.c: tests the sampler: the most probable token at temperature 0, frequencies that match the logits, limits, seeds,
// penalties, and logits that are NaN.

#include "support/check.h"

#include "model/model.h"

#include <math.h>

static void test_greedy(void **state) {
    (void) state;
    struct sampler s;
    const float logits[] = {0.5f, NAN, 3, 3, -INFINITY};
    sampler_init(&s, 0, 0, 1, 1);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(sampler_pick(&s, logits, 5), 2); // the first of equal ones
    }
    const float none[] = {NAN, NAN};
    assert_int_equal(sampler_pick(&s, none, 2), -1);
    sampler_fini(&s);
}

// Random logits of few different values, so that many are equal, NaN or infinite.
static void test_greedy_random(void **state) {
    (void) state;
    enum { N_MAX = 2000 };
    static float logits[N_MAX];
    struct check_rng rng = check_rng_new(check_seed(1));
    struct sampler s;
    sampler_init(&s, 0, 0, 1, 1);
    for (int run = 0; run < check_cases(4000); run++) {
        const int n = 1 + (int) check_rng_below(&rng, N_MAX);
        const float values[] = {NAN, -INFINITY, -3, -1, 0, (float) n};
        const uint64_t n_values = 1 + check_rng_below(&rng, 6), n_rare = 1 + check_rng_below(&rng, 3000);
        int32_t want = -1;
        for (int i = 0; i < n; i++) {
            logits[i] = values[check_rng_below(&rng, n_values)];
            if (check_rng_below(&rng, n_rare) == 0) {
                logits[i] = 10000;
            }
            if (!isnan(logits[i]) && (want < 0 || logits[i] > logits[want])) {
                want = i;
            }
        }
        assert_int_equal(sampler_pick(&s, logits, n), want);
    }
    sampler_fini(&s);
}

// Compares the frequencies of 200,000 picks with the softmax.
static void test_frequencies(void **state) {
    (void) state;
    const float logits[] = {0, 1, 2, -1, 0.5f, NAN};
    const int n = 200000;
    struct sampler s;
    for (int t = 0; t < 3; t++) {
        const float temperature = (float[]){0.5f, 1, 2}[t];
        int counts[6] = {0};
        double sum = 0;
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
    int n_seen = 0;
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
    const float three[] = {0, logf(6), logf(3)}; // probabilities 0.1, 0.6, 0.3
    int counts[3] = {0};
    sampler_init(&s, 1, 0, 0.85f, 3); // top_p needs 0.6 and 0.3
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
    int n_other = 0;
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

// Measures the frequency of each token in many picks.
static void shares(struct sampler *s, const float *logits, int n, double *share) {
    const int n_picks = 20000;
    memset(share, 0, (size_t) n * sizeof *share);
    for (int i = 0; i < n_picks; i++) {
        const int32_t token = sampler_pick(s, logits, n);
        assert_in_range(token, 0, n - 1);
        share[token] += 1.0 / n_picks;
    }
}

static void test_min_p(void **state) {
    (void) state;
    const float logits[] = {logf(0.5f), logf(0.3f), logf(0.15f), logf(0.05f)};
    double share[4];
    struct sampler s;
    sampler_init(&s, 1, 0, 1, 5);
    s.min_p = 0.4f; // 0.4 * 0.5 = 0.2
    shares(&s, logits, 4, share);
    assert_true(fabs(share[0] - 0.625) < 0.02 && fabs(share[1] - 0.375) < 0.02 && share[2] == 0 && share[3] == 0);
    s.top_k = 3, s.min_p = 0.2f;
    shares(&s, logits, 4, share);
    assert_true(share[2] > 0.1 && share[3] == 0);
    sampler_fini(&s);
}

// The surprise of a token is minus the log of its probability. For the probabilities 0.6, 0.2, 0.1 and 0.1, the mean surprise is
// 1.09 nats. The tokens with 0.2 (surprise 1.61) and 0.6 (surprise 0.51) are nearest to it.
static void test_typical(void **state) {
    (void) state;
    const float logits[] = {logf(0.1f), logf(0.6f), logf(0.2f), logf(0.1f)};
    double share[4];
    struct sampler s;
    sampler_init(&s, 1, 0, 1, 6);
    s.typical = 0.15f;
    shares(&s, logits, 4, share);
    assert_true(share[2] > 0.999);
    s.typical = 0.5f;
    shares(&s, logits, 4, share);
    assert_true(share[0] == 0 && share[3] == 0 && fabs(share[1] - 0.75) < 0.02);
    sampler_fini(&s);
}

static void test_penalties(void **state) {
    (void) state;
    const float logits[] = {2, 3, -1, 2.5f};
    struct sampler s;
    sampler_init(&s, 0, 0, 1, 1);
    s.repeat = 2, s.last_n = 2;
    assert_int_equal(sampler_pick(&s, logits, 4), 1);
    assert_true(sampler_accept(&s, 1)); // 3 becomes 1.5
    assert_int_equal(sampler_pick(&s, logits, 4), 3);
    assert_true(sampler_accept(&s, 3)); // 2.5 becomes 1.25
    assert_int_equal(sampler_pick(&s, logits, 4), 0);
    assert_true(sampler_accept(&s, 0)); // token 1 leaves the history
    assert_int_equal(sampler_pick(&s, logits, 4), 1);
    assert_true(sampler_accept(&s, 2));
    const float *changed = sampler_logits(&s, logits, 4);
    assert_true(changed[0] == 1 && changed[1] == 3 && changed[2] == -2 && changed[3] == 2.5f);
    s.repeat = 1, s.frequency = 0.5f, s.presence = 0.25f, s.last_n = 5;
    for (int i = 0; i < 5; i++) {
        assert_true(sampler_accept(&s, i < 3 ? 1 : 0));
    }
    changed = sampler_logits(&s, logits, 4);
    assert_true(changed[0] == 2 - 1.25f && changed[1] == 3 - 1.75f && changed[2] == -1 && changed[3] == 2.5f);
    const struct sample_bias biases[] = {{3, 1}, {1, -INFINITY}, {77, 1}, {-1, 1}};
    s.frequency = s.presence = 0;
    s.biases = biases, s.n_biases = 4;
    assert_int_equal(sampler_pick(&s, logits, 4), 3);
    for (s.temperature = 1; s.temperature < 50; s.temperature++) {
        assert_int_not_equal(sampler_pick(&s, logits, 4), 1);
    }
    sampler_fini(&s);
}

// The mean surprise converges to tau for any logits. After convergence mu changes little.
static void test_mirostat(void **state) {
    (void) state;
    float logits[500];
    for (int i = 0; i < 500; i++) {
        logits[i] = -logf((float) i + 1.0f);
    }
    for (int t = 0; t < 3; t++) {
        struct sampler s;
        bool seen[500] = {false};
        int n_seen = 0;
        float early = 0;
        sampler_init(&s, 1, 0, 1, 9);
        s.tau = (float[]){1, 2, 4}[t];
        for (int i = 0; i < 4000; i++) {
            const int32_t token = sampler_pick(&s, logits, 500);
            early = i == 1000 ? s.mu : early;
            n_seen += i >= 1000 && !seen[token];
            seen[token] = i >= 1000;
        }
        assert_true(fabsf(s.mu - early) / (s.eta * 3000) < 0.02f);
        assert_true(n_seen > 1 << t && n_seen < 8 << (2 * t + 2)); // about 2^tau tokens are likely
        sampler_fini(&s);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_greedy),
        cmocka_unit_test(test_greedy_random),
        cmocka_unit_test(test_frequencies),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_seeds),
        cmocka_unit_test(test_min_p),
        cmocka_unit_test(test_typical),
        cmocka_unit_test(test_penalties),
        cmocka_unit_test(test_mirostat),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
