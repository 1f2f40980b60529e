// SPDX-License-Identifier: MIT
// prop_plan_align.c: up to 6 random items with mixed alignments, without search time. The plans are valid, and the bound is never
// above the optimum. Every plan is proven optimal, because the fast path tries all plans of so few items.

#include "plan_brute.h"
#include "support/check.h"

#define N_MAX 6

struct offset_search {
    const struct berth_plan_item *items;
    int64_t n;
    uint64_t off[N_MAX];
    uint64_t best; // the search looks for plans below this peak
};

// Tries every offset at which an item ends below the peak of the best plan so far.
static void offsets_try_all(struct offset_search *a, int64_t i, uint64_t peak) {
    if (i == a->n) {
        a->best = peak;
        return;
    }
    const struct berth_plan_item *item = &a->items[i];
    for (a->off[i] = 0; a->off[i] + item->size < a->best; a->off[i] += item->align) {
        const uint64_t end = a->off[i] + item->size;
        if (brute_is_valid(a->items, i + 1, 0, a->off)) {
            offsets_try_all(a, i + 1, end > peak ? end : peak);
        }
    }
}

static struct berth_plan_item random_item(void) {
    static const uint64_t aligns[] = {1, 1, 2, 4, 8, 8, 16, 3};
    const int64_t x = (int64_t) brute_random(5), y = (int64_t) brute_random(5);
    struct berth_plan_item item = brute_item(x < y ? x : y, x < y ? y : x, 1 + brute_random(20));
    item.align = aligns[brute_random(8)];
    return item;
}

int main(int argc, char **argv) {
    brute_seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 5;
    int n_runs = argc > 2 ? atoi(argv[2]) : check_cases(500);
    printf("seed %llu\n", (unsigned long long) brute_seed);
    int n_optimal = 0, n_proven = 0, n_raised = 0;
    uint64_t sum = 0, sum_best = 0;
    for (int k = 0; k < n_runs; k++) {
        struct berth_plan_item items[N_MAX];
        const int64_t n = 2 + (int64_t) brute_random(N_MAX - 1);
        for (int64_t i = 0; i < n; i++) {
            items[i] = random_item();
        }
        uint64_t off[N_MAX];
        struct berth_plan_report r;
        if (berth_plan_solve(items, n, NULL, off, &r) != GGML_STATUS_SUCCESS || !brute_is_valid(items, n, 0, off)) {
            printf("no valid plan: %s\n", berth_last_error());
            brute_print(items, n);
            return 1;
        }
        struct offset_search a = {.items = items, .n = n, .best = r.peak + 1};
        offsets_try_all(&a, 0, 0);
        if (a.best > r.peak || r.bound > a.best || (r.proven && r.peak != a.best)) {
            printf("peak %llu, bound %llu, proven %d, optimum %llu\n", (unsigned long long) r.peak, (unsigned long long) r.bound,
                r.proven, (unsigned long long) a.best);
            brute_print(items, n);
            return 1;
        }
        n_optimal += r.peak == a.best;
        n_proven += r.proven;
        n_raised += r.bound > brute_live(items, n);
        sum += r.peak;
        sum_best += a.best;
    }
    printf("%d plans: %d optimal, %d proven, %d with a bound above the live bytes; sum of peaks / sum of optima %.4f\n", n_runs,
        n_optimal, n_proven, n_raised, (double) sum / (double) sum_best);
    return n_optimal == n_runs && n_proven == n_runs ? 0 : 1;
}
