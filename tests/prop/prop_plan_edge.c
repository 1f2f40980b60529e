// SPDX-License-Identifier: MIT
// prop_plan_edge.c: random items with alignments, fixed offsets, alias groups, pools and chunks. The plans are valid, the bound
// is never above the optimum (exhaustive search), and proven plans are optimal.

#include "plan_brute.h"
#include "support/check.h"

#define N_MAX 4
#define OFF_MAX 64

struct offset_search {
    const struct berth_plan_item *items;
    int64_t n;
    uint64_t max_chunk;
    uint64_t off[N_MAX];
    uint64_t best;
};

// The sum, over all chunks of all pools, of the highest end in the chunk.
static uint64_t required_bytes(const struct offset_search *o, int64_t n, const uint64_t *off) {
    uint64_t sum = 0;
    for (int64_t i = 0; i < n; i++) {
        uint64_t chunk = o->max_chunk > 0 ? off[i] / o->max_chunk : 0;
        uint64_t used = 0;
        bool is_first = true;
        for (int64_t j = 0; j < n; j++) {
            if (o->items[j].pool != o->items[i].pool || o->items[j].size == 0 ||
                (o->max_chunk > 0 && off[j] / o->max_chunk != chunk)) {
                continue;
            }
            is_first &= j >= i;
            uint64_t end = (o->max_chunk > 0 ? off[j] % o->max_chunk : off[j]) + o->items[j].size;
            used = end > used ? end : used;
        }
        sum += is_first && o->items[i].size > 0 ? used : 0;
    }
    return sum;
}

static void offsets_try_all(struct offset_search *o, int64_t i) {
    if (i == o->n) {
        o->best = required_bytes(o, i, o->off);
        return;
    }
    const bool is_fixed = o->items[i].is_fixed;
    const uint64_t fixed = o->items[i].fixed;
    for (o->off[i] = is_fixed ? fixed : 0; o->off[i] <= (is_fixed ? fixed : OFF_MAX); o->off[i]++) {
        if (brute_is_valid(o->items, i + 1, o->max_chunk, o->off) && required_bytes(o, i + 1, o->off) < o->best) {
            offsets_try_all(o, i + 1);
        }
    }
}

// features: a set of bits. 1: alignments, 2: fixed offsets, 4: aliases, 8: pools, 16: every alignment is 4.
static struct berth_plan_item random_item(uint64_t max_chunk, int features) {
    int64_t x = (int64_t) brute_random(6);
    int64_t y = (int64_t) brute_random(6);
    struct berth_plan_item item = brute_item(x < y ? x : y, x < y ? y : x, brute_random(9));
    if (max_chunk > 0 && item.size > max_chunk) {
        item.size = max_chunk;
    }
    if (features & 1) {
        static const uint64_t aligns[] = {0, 1, 2, 3, 4, 8};
        item.align = aligns[brute_random(6)];
    }
    if ((features & 2) && brute_random(4) == 0) {
        item.is_fixed = true;
        item.fixed = brute_random(24) / (item.align > 1 ? item.align : 1) * (item.align > 1 ? item.align : 1);
    }
    if ((features & 4) && brute_random(2) == 0) {
        item.alias = 1 + (int32_t) brute_random(2);
    }
    if (features & 8) {
        item.pool = (int32_t) brute_random(3) - 1;
    }
    if (features & 16) {
        item.align = 4;
    }
    return item;
}

int main(int argc, char **argv) {
    brute_seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 77;
    int n_runs = argc > 2 ? atoi(argv[2]) : check_cases(1500);
    printf("seed %llu\n", (unsigned long long) brute_seed);
    int n_refused = 0, n_proven = 0, n_optimal = 0, n_raised = 0, n_solved = 0;
    for (int k = 0; k < n_runs; k++) {
        struct berth_plan_item items[N_MAX];
        int features = (int) brute_random(32);
        uint64_t max_chunk = brute_random(3) == 0 ? 8 + brute_random(10) : 0;
        int64_t n = 1 + (int64_t) brute_random(N_MAX);
        for (int64_t i = 0; i < n; i++) {
            items[i] = random_item(max_chunk, features);
        }
        uint64_t off[N_MAX], bound;
        int64_t step;
        struct berth_plan_report r;
        struct berth_plan_params params = {.chunk_limit = max_chunk, .time_limit_us = 2000};
        struct offset_search o = {.items = items, .n = n, .max_chunk = max_chunk, .best = UINT64_MAX};
        offsets_try_all(&o, 0);
        enum ggml_status status = berth_plan_solve(items, n, &params, off, &r);
        if (status != GGML_STATUS_SUCCESS) {
            n_refused++;
            if (o.best != UINT64_MAX) {
                printf("refused, but a plan of %llu exists: %s\n", (unsigned long long) o.best, berth_last_error());
                brute_print(items, n);
                return 1;
            }
            continue;
        }
        n_solved++;
        bool ok = brute_is_valid(items, n, max_chunk, off) &&
                  berth_plan_check(items, n, &params, off, NULL) == GGML_STATUS_SUCCESS && r.peak == required_bytes(&o, n, off) &&
                  r.bound <= o.best && r.peak >= o.best && (!r.proven || r.peak == o.best) &&
                  berth_plan_bound(items, n, &params, &bound, &step) == GGML_STATUS_SUCCESS && bound <= r.bound;
        if (!ok) {
            printf("chunk %llu: peak %llu (%llu), bound %llu, optimum %llu, proven %d\n", (unsigned long long) max_chunk,
                (unsigned long long) r.peak, (unsigned long long) required_bytes(&o, n, off), (unsigned long long) r.bound,
                (unsigned long long) o.best, r.proven);
            brute_print(items, n);
            for (int64_t i = 0; i < n; i++) {
                printf("  offset %llu\n", (unsigned long long) off[i]);
            }
            return 1;
        }
        n_proven += r.proven;
        n_optimal += r.peak == o.best;
        n_raised += r.bound > brute_live(items, n);
    }
    printf("%d solved: %d optimal, %d proven, %d with a bound above the live bytes; %d inputs refused as contradictory\n",
        n_solved, n_optimal, n_proven, n_raised, n_refused);
    return n_solved > n_runs / 2 ? 0 : 1;
}
