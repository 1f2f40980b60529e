// SPDX-License-Identifier: MIT
// plan_scale.h: bench-plan scale: generated problems of thousands to millions of items.
#pragma once

#include "plan_instance.h"

#include <malloc.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static uint64_t rng_state = 1;

static uint64_t rng(void) {
    rng_state += 0x9E3779B97F4A7C15u;
    uint64_t z = rng_state;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

static uint64_t log_uniform(void) {
    uint64_t bits = rng() % 20;
    return ((uint64_t) 1 << bits) + rng() % ((uint64_t) 1 << bits);
}

enum shape { NETWORK, DENSE, COMB };

static void make(struct instance *in, int64_t n, enum shape shape) {
    rng_state = (uint64_t) n * 8 + shape;
    in->n = n;
    in->items = calloc((size_t) n, sizeof *in->items);
    in->offsets = calloc((size_t) n, sizeof *in->offsets);
    for (int64_t i = 0; i < n; i++) {
        uint64_t kind = rng() % 100;
        int64_t width = 1;
        int64_t first = i;
        if (shape == NETWORK) {
            width = 1 + (int64_t) (rng() % (kind < 90 ? 8 : kind < 99 ? 200 : (uint64_t) n));
        } else if (shape == DENSE) {
            first = (int64_t) (rng() % (uint64_t) n);
            width = 1 + (int64_t) (rng() % (uint64_t) (n / 10));
        } else if (i % 2 == 0) { // every other item has a long lifetime, so that free gaps never join
            first = i / 2;
            width = n - i;
        } else {
            first = i;
            width = 1 + (int64_t) (rng() % 3);
        }
        in->items[i] = (struct berth_plan_item){first, first + width - 1, log_uniform(), 1, 0, 0, 0, false};
    }
}

static double one_pass(struct instance *in, enum plan_priority priority, double *ratio) {
    struct one_pool one;
    one_pool_init(&one, in->items, in->n);
    struct greedy_pass *pass = berth_greedy_pass_new(&one.pool.prob);
    double start = clock_s(CLOCK_PROCESS_CPUTIME_ID);
    int64_t peak = berth_greedy_pass_run(pass, priority, false, PLAN_NO_CAP, one.off);
    double s = clock_s(CLOCK_PROCESS_CPUTIME_ID) - start;
    *ratio = (double) peak / (double) one.pool.prob.bound;
    berth_greedy_pass_free(pass);
    one_pool_fini(&one);
    return s;
}

// The bytes per item that solving takes at its peak, in addition to the items and offsets. Measured in a child process.
static double bytes_per_item(struct instance *in) {
    int ends[2];
    double bytes = -1;
    if (pipe(ends) != 0) {
        return bytes;
    }
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        struct rusage before, after;
        memset(in->offsets, 1, (size_t) in->n * sizeof *in->offsets);
        getrusage(RUSAGE_SELF, &before);
        berth_plan_solve(in->items, in->n, NULL, in->offsets, NULL);
        getrusage(RUSAGE_SELF, &after);
        bytes = (double) (after.ru_maxrss - before.ru_maxrss) * 1024 / (double) in->n;
        ssize_t n = write(ends[1], &bytes, sizeof bytes);
        _exit(n == sizeof bytes ? 0 : 1);
    }
    close(ends[1]);
    if (child < 0 || read(ends[0], &bytes, sizeof bytes) != sizeof bytes) {
        bytes = -1;
    }
    close(ends[0]);
    waitpid(child, NULL, 0);
    return bytes;
}

static int run_scale(int64_t n_max) {
    static const char *const names[] = {"network", "dense", "comb"};
    printf("%-8s %8s | %9s %8s | %9s %9s %-14s | %9s\n", "shape", "n", "pass us/n", "ratio", "fast us/n", "ratio", "method",
        "bytes/n");
    mallopt(M_MMAP_THRESHOLD, 1 << 16);
    for (int shape = NETWORK; shape <= COMB; shape++) {
        for (int64_t n = 1000; n <= n_max; n *= 10) {
            struct instance in;
            make(&in, n, (enum shape) shape);
            double bytes = bytes_per_item(&in);
            double ratio;
            double pass = one_pass(&in, PLAN_TWA, &ratio);
            double s;
            struct berth_plan_params params = {0};
            struct berth_plan_report r = solve(&in, &params, names[shape], &s);
            printf("%-8s %8lld | %9.3f %8.4f | %9.3f %9.4f %-14s | %9.1f\n", names[shape], (long long) n, pass * 1e6 / (double) n,
                ratio, s * 1e6 / (double) n, 1 + r.gap, r.method, bytes);
            fflush(stdout);
            instance_free(&in);
        }
    }
    return 0;
}
