// SPDX-License-Identifier: MIT
// plan_instance.h: reads the problems of bench-plan, solves them and checks the plans.
#pragma once

#include "base/base.h"
#include "clock.h"
#include "plan/solve/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- reading ----

struct instance {
    struct berth_plan_item *items;
    uint64_t *offsets;
    int64_t n;
};

static void instance_free(struct instance *in) {
    free(in->items);
    free(in->offsets);
    *in = (struct instance){0};
}

// Reads lines id,lower,upper,size from a stream. False: the stream has no such line.
static bool instance_read(struct instance *in, FILE *f) {
    char line[512];
    int64_t cap = 0;
    *in = (struct instance){0};
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        const char *rest = strchr(line, ',');
        long long lower, upper;
        unsigned long long size;
        if (rest == NULL || sscanf(rest, ",%lld,%lld,%llu", &lower, &upper, &size) != 3) {
            continue;
        }
        if (in->n == cap) {
            cap = cap * 2 + 256;
            in->items = realloc(in->items, (size_t) cap * sizeof *in->items);
        }
        in->items[in->n++] = (struct berth_plan_item){lower, upper - 1, size, 1, 0, 0, 0, false};
    }
    in->offsets = calloc((size_t) in->n + 1, sizeof *in->offsets);
    return in->n > 0;
}

static bool instance_open(struct instance *in, const char *path) {
    size_t len = strlen(path);
    bool is_gz = len > 3 && strcmp(path + len - 3, ".gz") == 0;
    char command[1200];
    snprintf(command, sizeof command, "gzip -dc '%s' 2>/dev/null", path);
    FILE *f = is_gz ? popen(command, "r") : fopen(path, "r");
    bool ok = instance_read(in, f);
    if (f != NULL) {
        is_gz ? pclose(f) : fclose(f);
    }
    return ok;
}

// All items as one problem of the solver, to call its methods directly.
struct one_pool {
    struct plan_pool pool;
    struct berth_scratch scratch;
    int64_t *off;
};

static void one_pool_init(struct one_pool *one, const struct berth_plan_item *items, int64_t n) {
    struct plan_traits traits;
    one->pool = (struct plan_pool){.items = items, .ids = malloc((size_t) n * sizeof *one->pool.ids), .n_ids = (int32_t) n};
    one->off = malloc((size_t) n * sizeof *one->off);
    berth_scratch_init(&one->scratch);
    for (int32_t i = 0; i < n; i++) {
        one->pool.ids[i] = i;
    }
    if (berth_plan_items_check(items, n, 0, &traits) != GGML_STATUS_SUCCESS ||
        berth_plan_pool_init(&one->pool, &traits, &one->scratch) != GGML_STATUS_SUCCESS) {
        exit(1);
    }
}

static void one_pool_fini(struct one_pool *one) {
    free(one->pool.ids);
    free(one->off);
    berth_plan_pool_fini(&one->pool);
    berth_scratch_fini(&one->scratch);
}

// ---- solving ----

static struct berth_plan_report solve(
    struct instance *in, const struct berth_plan_params *params, const char *name, double *seconds) {
    struct berth_plan_report report = {0};
    double start = clock_s(CLOCK_PROCESS_CPUTIME_ID);
    enum ggml_status status = berth_plan_solve(in->items, in->n, params, in->offsets, &report);
    *seconds = clock_s(CLOCK_PROCESS_CPUTIME_ID) - start;
    struct berth_plan_fault fault = {0};
    if (status != GGML_STATUS_SUCCESS || berth_plan_check(in->items, in->n, params, in->offsets, &fault) != GGML_STATUS_SUCCESS ||
        report.peak < report.bound) {
        fprintf(stderr, "%s: wrong plan: status %d, fault %d at items %lld and %lld, peak %llu, bound %llu\n", name, (int) status,
            (int) fault.kind, (long long) fault.i, (long long) fault.j, (unsigned long long) report.peak,
            (unsigned long long) report.bound);
        exit(1);
    }
    return report;
}
