// SPDX-License-Identifier: MIT
// fuzz_plan.c: takes the input as items and params for the plan solver. There must be no crash, no plan that the checker refuses,
// and no peak below the bound, and the solver must end in time. Without a time limit, a second run must give the same plan. With a
// time limit, the clock jumps when it is read for the n-th time; the input chooses n (clock.h).

#include "fuzz/bytes.h"
#include "fuzz/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_ITEMS 64
#define CHUNKED_ITEMS 10 // max items of an input with chunks; the solver tries 400 more orders per further item
#define BUDGET_US 300
#define JUMP_LIMIT 12 // n is less than this number
#define PATIENCE_S 2  // processor time: sanitizers are slow, and the machine may be busy

static int64_t some_step(struct bytes *b) {
    const uint64_t kind = get(b, 1);
    return kind < 250 ? (int64_t) (kind % 32) : (int64_t) get(b, 8) >> 2;
}

// Features that the items of one input may have. An input uses few features, because combinations often contradict each other.
enum { RAW = 1, ALIGNED = 2, FIXED = 4, ALIASES = 8, POOLS = 16 };

static int64_t read_items(struct bytes *b, struct berth_plan_item *items, int64_t n_most) {
    const uint64_t features = get(b, 1);
    int64_t n = 0;
    while (b->p < b->end && n < n_most) {
        struct berth_plan_item *item = &items[n++];
        const uint64_t has = features == 0 ? 0 : get(b, 1) & features;
        *item = (struct berth_plan_item){.align = 1};
        item->first = some_step(b);
        item->last = (has & RAW) != 0 ? (int64_t) get(b, 8) : item->first + (int64_t) (get(b, 1) % 12);
        item->size = (has & RAW) != 0 ? get(b, 8) : some_size(b);
        item->align = (has & ALIGNED) != 0 ? some_size(b) : 1;
        item->is_fixed = (has & FIXED) != 0;
        item->fixed = item->is_fixed ? some_size(b) : 0;
        item->alias = (has & ALIASES) != 0 ? (int32_t) (get(b, 1) % 4) + 1 : 0;
        item->pool = (has & POOLS) != 0 ? (int32_t) (get(b, 1) % 3) : 0;
    }
    return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct berth_plan_item items[MAX_ITEMS];
    uint64_t offsets[MAX_ITEMS + 1], offsets_2[MAX_ITEMS + 1];
    struct berth_plan_report report, second;
    struct berth_plan_fault fault;
    struct bytes b = {data, data + size};
    const uint64_t shape = get(&b, 1);
    struct berth_plan_params params = {0};
    ggml_log_set(quiet, NULL);
    params.memory_limit = (shape & 1) != 0 ? some_size(&b) : 0;
    params.chunk_limit = (shape & 6) == 6 ? some_size(&b) : 0;
    params.time_limit_us = (shape & 8) != 0 ? BUDGET_US : 0;
    params.seed = (shape & 16) != 0 ? get(&b, 1) : 0;
    params.n_threads = (shape & 0xe0) == 0xe0 ? 2 : 0;
    const int64_t n = read_items(&b, items, params.chunk_limit != 0 ? CHUNKED_ITEMS : MAX_ITEMS);

    clock_jump_at(params.time_limit_us > 0 ? clock_input_hash(data, size, JUMP_LIMIT) : 0);
    const clock_t start = clock();
    const enum ggml_status status = berth_plan_solve(items, n, &params, offsets, &report);
    expect(clock() - start < PATIENCE_S * CLOCKS_PER_SEC, "took too long");
    if (status != GGML_STATUS_SUCCESS) {
        expect(berth_last_error()[0] != '\0', "failed without a message");
        return 0;
    }
    expect(berth_plan_check(items, n, &params, offsets, &fault) == GGML_STATUS_SUCCESS, "invalid plan");
    expect(report.peak >= report.bound, "peak below the bound");
    expect(params.memory_limit != 0 || !report.proven || report.peak == report.bound, "proven, but the peak is not the bound");
    uint64_t bound;
    expect(berth_plan_bound(items, n, &params, &bound, NULL) == GGML_STATUS_SUCCESS && bound <= report.bound,
        "the search lowered the bound");
    if (params.time_limit_us == 0) {
        expect(berth_plan_solve(items, n, &params, offsets_2, &second) == GGML_STATUS_SUCCESS && second.peak == report.peak &&
                   (n == 0 || memcmp(offsets, offsets_2, (size_t) n * sizeof *offsets) == 0),
            "the same input gives two different plans");
    }
    params.start = offsets;
    clock_jump_at(0);
    expect(berth_plan_solve(items, n, &params, offsets_2, &second) == GGML_STATUS_SUCCESS && second.peak <= report.peak,
        "the plan is worse than its start plan");
    return 0;
}
