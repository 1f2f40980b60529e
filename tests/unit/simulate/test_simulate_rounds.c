// SPDX-License-Identifier: MIT
// test_simulate_rounds.c: the medians over rounds of measurement (simulate/rounds.c), with invented rounds: slow moments do not
// affect them.

#include "support/check.h"

#include "simulate/cluster.h"

#include <string.h>

#define TYPE GGML_TYPE_Q4_K
#define N_DEVICES 2

static void check_median(double want, bool is_time, int n, ...) {
    double numbers[8];
    va_list args;
    va_start(args, n);
    for (int i = 0; i < n; i++) {
        numbers[i] = va_arg(args, double);
    }
    va_end(args);
    assert_true(cluster_median(numbers, n, is_time) == want);
}

static void test_median(void **state) {
    (void) state;
    check_median(0, false, 0);
    check_median(0, false, 2, 0.0, 0.0);
    check_median(7, false, 1, 7.0);
    check_median(7, false, 2, 1.0, 7.0); // one of two is slow: for speeds and for times
    check_median(1, true, 2, 7.0, 1.0);
    check_median(5, false, 3, 5.0, 9.0, 1.0);
    check_median(6, false, 4, 1.0, 6.0, 2.0, 7.0); // two of four are slow
    check_median(2, true, 4, 1.0, 6.0, 2.0, 7.0);
    check_median(10, false, 5, 10.0, 2.0, 10.5, 3.0, 11.0);
    check_median(5, false, 5, 4.0, 0.0, 90.0, 3.0, 5.0); // an unknown speed (0) does not count: 3, 4, 5, 90
    check_median(0, true, 5, 0.0, 0.0, 1.0, 0.0, 0.0);   // a time of 0 is a valid value
}

// Rounds of measurement of a host with two devices and a link.
struct rounds {
    struct cluster list[CLUSTER_ROUNDS], out;
    struct cluster_host hosts[CLUSTER_ROUNDS + 1][1];
    struct cluster_device devices[CLUSTER_ROUNDS + 1][N_DEVICES];
    struct cluster_link links[CLUSTER_ROUNDS + 1][1];
};

// Makes n rounds and computes their medians. slow_alone, slow_together: for each round, the factors by which the devices are
// slower alone and together.
static void choose(struct rounds *r, int n, const double *slow_alone, const double *slow_together) {
    memset(r, 0, sizeof *r);
    for (int i = 0; i <= n; i++) {
        struct cluster *c = i < n ? &r->list[i] : &r->out;
        const double factor = i < n ? slow_alone[i] : 1, all = i < n ? slow_together[i] : 1;
        *c = (struct cluster){.hosts = r->hosts[i],
            .devices = r->devices[i],
            .links = r->links[i],
            .n_hosts = 1,
            .n_devices = N_DEVICES,
            .n_links = 1};
        for (int d = 0; i < n && d < N_DEVICES; d++) {
            struct cluster_device *device = &c->devices[d];
            device->bandwidth = device->read[TYPE] = (d == 0 ? 10e9 : 8e9) / factor;
            device->flops = device->product[TYPE] = device->attend = 1e11 / factor;
            device->start = device->op = 1e-6 * factor;
        }
        c->links[0] = (struct cluster_link){.latency = 2e-5 * factor, .bandwidth = 1e9 / factor};
        c->hosts[0].together = 0.75 * factor / all; // relative to the speed alone, which is slower by `factor`
    }
    cluster_choose_rounds(&r->out, r->list, n, TYPE);
}

static bool is_near(double a, double b) {
    return a > 0.999 * b && a < 1.001 * b;
}

static void check_machine(const struct rounds *r) {
    for (int d = 0; d < N_DEVICES; d++) {
        const struct cluster_device *device = &r->out.devices[d];
        assert_true(is_near(device->read[TYPE], d == 0 ? 10e9 : 8e9) && is_near(device->bandwidth, device->read[TYPE]));
        assert_true(is_near(device->flops, 1e11) && is_near(device->product[TYPE], 1e11) && is_near(device->attend, 1e11));
        assert_true(is_near(device->start, 1e-6) && is_near(device->op, 1e-6));
        assert_true(device->read[GGML_TYPE_F16] == 0 && device->attend_read == 0); // not measured
    }
    assert_true(is_near(r->out.links[0].latency, 2e-5) && is_near(r->out.links[0].bandwidth, 1e9));
    assert_true(is_near(r->out.hosts[0].together, 0.75));
}

static void test_slow_moments(void **state) {
    (void) state;
    static const double none[] = {1, 1, 1, 1, 1}, one[] = {1, 1, 6, 1, 1}, two[] = {4, 1, 1, 1, 2}, other[] = {1, 3, 1, 9, 1};
    static struct rounds r;
    for (int n = 1; n <= CLUSTER_ROUNDS; n++) {
        choose(&r, n, none, none);
        check_machine(&r);
    }
    for (int n = 3; n <= CLUSTER_ROUNDS; n++) {
        choose(&r, n, one, none);
        check_machine(&r);
        choose(&r, n, none, one);
        check_machine(&r);
        choose(&r, n, one, one);
        check_machine(&r);
    }
    choose(&r, 2, two, none); // one of two rounds is slow
    check_machine(&r);
    choose(&r, 5, two, none);
    check_machine(&r);
    choose(&r, 5, none, two);
    check_machine(&r);
    choose(&r, 5, two, two);
    check_machine(&r);
    choose(&r, 5, two, other); // slow alone: rounds 0 and 4; slow together: rounds 1 and 3
    check_machine(&r);
    choose(&r, 4, other, other);
    check_machine(&r);
}

// If more than half of the rounds are slow, the machine itself is slow.
static void test_slow_machine(void **state) {
    (void) state;
    static const double slow[] = {2, 1, 2, 2, 1}, none[] = {1, 1, 1, 1, 1};
    static struct rounds r;
    choose(&r, 5, slow, slow);
    assert_true(is_near(r.out.devices[0].read[TYPE], 5e9) && is_near(r.out.links[0].latency, 4e-5));
    assert_true(is_near(r.out.hosts[0].together, 0.75));
    choose(&r, 5, none, slow);
    assert_true(is_near(r.out.devices[0].read[TYPE], 10e9) && is_near(r.out.hosts[0].together, 0.375));
    choose(&r, 5, slow, none); // the speed together is never higher than alone
    assert_true(r.out.hosts[0].together == 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_median),
        cmocka_unit_test(test_slow_moments),
        cmocka_unit_test(test_slow_machine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
