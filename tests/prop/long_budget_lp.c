// SPDX-License-Identifier: MIT
// long_budget_lp.c: compares the budget solver with an integer programme (budget_lp.h) on 60 graphs of 20 to 40 ops. cbc searches
// for a schedule of the programme that costs at most as much as Berth's. If cbc proves that there is none, Berth's schedule is
// cheaper than every schedule of the programme. This can happen, because only Berth may reorder ops.
// BERTH_SECONDS=n sets the time limit per graph (30), BERTH_GRAPHS=n the number of graphs (60).

#include "budget_lp.h"

#include <unistd.h>

struct tally {
    // n_proven: Berth found a schedule, and cbc finished in time. n_open: cbc did not finish. n_equal: cbc's optimum equals Berth's
    // cost. n_below: cbc proved that the programme has no schedule as cheap as Berth's. n_none: cbc proved that there is no schedule,
    // and Berth found none.
    int n_proven, n_open, n_equal, n_below, n_none;
    double gap;   // sum of (Berth's cost - optimum) / optimum over the graphs whose optimum cbc has proven
    double worst; // the largest of these
};

static int number_of(const char *name, int otherwise) {
    const char *text = getenv(name);
    return text == NULL || atoi(text) <= 0 ? otherwise : atoi(text);
}

// Runs Berth's solver.
static struct berth_budget_result *solve(const struct lp_case *c, uint64_t budget) {
    const struct berth_budget_pool pool = {.limit = budget};
    const struct berth_budget_params params = {
        .pools = &pool, .n_pools = 1, .live_only = true, .time_limit_us = 300000, .seed = 1};
    struct berth_budget_result *r = NULL;
    assert_int_equal(berth_budget_solve(c->ops, c->n, &params, &r), GGML_STATUS_SUCCESS);
    return r;
}

static uint64_t limit_draw(const struct lp_case *c, struct check_rng *rng) {
    const struct berth_budget_params params = {.live_only = true};
    struct berth_budget_result *r = NULL;
    assert_int_equal(berth_budget_solve(c->ops, c->n, &params, &r), GGML_STATUS_SUCCESS);
    const uint64_t most = r->uses[0].live, least = r->uses[0].live_bound;
    berth_budget_free(r);
    return least + (most - least) * (15 + check_rng_below(rng, 75)) / 100;
}

static void case_compare(const struct lp_case *c, uint64_t budget, const char *path, int seconds, int at, struct tally *sum) {
    struct berth_budget_result *r = solve(c, budget);
    double cost;
    lp_write(path, c, budget, r->fits ? r->cost : UINT64_MAX);
    const enum lp_answer answer = lp_solve(path, seconds, &cost);
    if (!r->fits) {
        assert_true(answer == LP_NONE || (answer == LP_OPEN && isinf(cost))); // cbc must not find a schedule if Berth finds none
        sum->n_none += answer == LP_NONE;
    }
    const bool is_proven = answer == LP_NONE || answer == LP_OPTIMAL;
    const double gap = answer == LP_OPTIMAL ? ((double) r->cost - cost) / cost : 0;
    // The second cost is the cost of running every op once.
    printf("%2d: %d ops, limit %llu: Berth %s %llu of %llu (%s%s), ", at, c->n, (unsigned long long) budget,
        r->fits ? "costs" : "does not fit,", (unsigned long long) r->cost, (unsigned long long) r->cost_once, r->method,
        r->proven ? ", proven" : "");
    if (answer == LP_NONE) {
        printf("cbc has proven that the programme has no schedule as cheap as Berth's\n");
    } else {
        printf("%s%.0f\n", answer == LP_OPEN ? "open, found " : "the optimum is ", cost);
    }
    fflush(stdout);
    sum->n_proven += r->fits && is_proven;
    sum->n_open += !is_proven;
    sum->n_equal += answer == LP_OPTIMAL && fabs(gap) < 1e-9;
    sum->n_below += r->fits && answer == LP_NONE;
    sum->gap += r->fits ? gap : 0;
    sum->worst = gap > sum->worst ? gap : sum->worst;
    berth_budget_free(r);
}

static void test_compared(void **state) {
    (void) state;
    if (system("command -v cbc > /dev/null 2>&1") != 0) {
        printf("skipped: cbc is not installed (Debian: coinor-cbc)\n");
        skip();
    }
    const int seconds = number_of("BERTH_SECONDS", 30), n = number_of("BERTH_GRAPHS", 60);
    char path[128];
    snprintf(path, sizeof path, "%s/budget-%d.lp", getenv("TMPDIR") == NULL ? "/tmp" : getenv("TMPDIR"), (int) getpid());
    struct check_rng rng = check_rng_new(check_seed(21));
    struct tally sum = {0};
    struct lp_case c;
    for (int i = 0; i < n; i++) {
        lp_case_make(&c, 20 + (int32_t) check_rng_below(&rng, 21), &rng);
        case_compare(&c, limit_draw(&c, &rng), path, seconds, i, &sum);
    }
    printf("%d graphs: %d optima proven, Berth equal to %d and below %d; %d cannot fit, %d open; above the optimum by %.3f%% on "
           "average, "
           "%.2f%% at most\n",
        n, sum.n_proven, sum.n_equal, sum.n_below, sum.n_none, sum.n_open, sum.n_proven == 0 ? 0 : 100 * sum.gap / sum.n_proven,
        100 * sum.worst);
    assert_true(sum.n_proven > 0 && sum.gap / sum.n_proven <= 0.02);
    static const char *const ends[] = {"", ".out", ".log"};
    for (size_t k = 0; k < sizeof ends / sizeof *ends; k++) {
        char name[160];
        snprintf(name, sizeof name, "%s%s", path, ends[k]);
        unlink(name);
    }
}

int main(void) {
    check_quiet();
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_compared)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
