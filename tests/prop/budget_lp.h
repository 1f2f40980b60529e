// SPDX-License-Identifier: MIT
// budget_lp.h: the budget problem as an integer programme, for the solver cbc. Stage t ends with the first run of op t. Before
// that, the stage may recompute ops 0 to t - 1, each at most once and in the given order. The position of op k in a stage is the
// moment at which the stage runs op k, or would run it. Berth may also reorder first runs, so Berth's cost can be lower.
//
//   r t i     op i runs in stage t (i <= t)
//   s t i     value i is in memory when stage t begins (i < t)
//   l t i m   value i is in memory in stage t at least until the position of its m-th reader
//
//   r t j <= r t i + s t i      for each source i of j
//   s t i <= r t-1 i + s t-1 i
//   l t i m >= r t u(m)         u(m): the m-th reader of i
//   l t i m >= l t i m+1        for the last m: l t i m >= s t+1 i
//   for each t, k: the bytes in memory at the position of op k in stage t <= limit
#pragma once

#include "support/check.h"

#include <inttypes.h>
#include <math.h>

#define LP_MAX 40

struct lp_case {
    struct berth_budget_op ops[LP_MAX];
    int32_t srcs[LP_MAX][4];
    int32_t n;
    int32_t readers[LP_MAX][LP_MAX], n_readers[LP_MAX];
    bool keep[LP_MAX], can_recompute[LP_MAX];
};

static inline bool lp_src_add(struct lp_case *c, int32_t i, int32_t src) {
    for (int32_t k = 0; k < c->ops[i].n_srcs; k++) {
        if (c->srcs[i][k] == src) {
            return false;
        }
    }
    c->srcs[i][c->ops[i].n_srcs++] = src;
    c->readers[src][c->n_readers[src]++] = i;
    return true;
}

// Makes one of three kinds of graphs: a chain with its backward pass, the same with skips, or a random graph.
static inline void lp_case_make(struct lp_case *c, int32_t n, struct check_rng *rng) {
    const uint64_t kind = check_rng_below(rng, 3);
    *c = (struct lp_case){.n = n};
    for (int32_t i = 0; i < n; i++) {
        c->ops[i] = (struct berth_budget_op){
            .srcs = c->srcs[i], .size = 1 + check_rng_below(rng, 9), .cost = 1 + check_rng_below(rng, 30)};
        c->ops[i].flags = check_rng_below(rng, 24) == 0 ? BERTH_BUDGET_ONCE : 0;
        if (i > 0) {
            lp_src_add(c, i, kind < 2 || i < 3 ? i - 1 : i - 1 - (int32_t) check_rng_below(rng, 3));
        }
        if (kind < 2 && i > n / 2) {
            lp_src_add(c, i, n - 1 - i);
        }
        if (i > 4 && check_rng_below(rng, kind == 0 ? 12 : 3) == 0) {
            lp_src_add(c, i, (int32_t) check_rng_below(rng, (uint64_t) i - 1));
        }
    }
    for (int32_t i = 0; i < n; i++) {
        c->keep[i] = c->n_readers[i] == 0;
        c->can_recompute[i] = !c->keep[i] && c->ops[i].flags == 0;
    }
}

// ---- the file ----

// The constraint on memory at the position of op k in stage t is: sum of terms + constants <= limit. Writes the term of value i,
// its size times the variable that says whether the value is in memory. After its last possible reader in the last stage, a value
// has no variable: then writes nothing and returns a constant, which is the size of a kept value and 0 for other values.
static inline uint64_t lp_bytes_write(FILE *f, const struct lp_case *c, int32_t t, int32_t k, int32_t i) {
    const uint64_t size = c->ops[i].size;
    if (k <= i) {
        if (i < t) {
            fprintf(f, " + %" PRIu64 " s%d_%d", size, t, i);
        }
        if (k == i) {
            fprintf(f, " + %" PRIu64 " r%d_%d", size, t, i);
        }
        return 0;
    }
    for (int32_t m = 0; m < c->n_readers[i]; m++) { // the first reader from k on in this stage
        if (c->readers[i][m] >= k && c->readers[i][m] <= t) {
            fprintf(f, " + %" PRIu64 " l%d_%d_%d", size, t, i, m);
            return 0;
        }
    }
    if (t + 1 < c->n) {
        fprintf(f, " + %" PRIu64 " s%d_%d", size, t + 1, i);
        return 0;
    }
    return c->keep[i] ? size : 0;
}

static inline void lp_stage_write(FILE *f, const struct lp_case *c, int32_t t, uint64_t budget) {
    fprintf(f, " r%d_%d = 1\n", t, t);
    for (int32_t i = 0; i < t; i++) {
        const int32_t before = t - 1;
        fprintf(f, " s%d_%d - r%d_%d", t, i, before, i);
        if (i < before) {
            fprintf(f, " - s%d_%d", before, i);
        }
        fprintf(f, " <= 0\n");
        if (c->can_recompute[i]) {
            fprintf(f, " s%d_%d + r%d_%d <= 1\n", t, i, t, i);
        } else {
            fprintf(f, " r%d_%d = 0\n", t, i);
        }
        if (c->keep[i]) {
            fprintf(f, " s%d_%d = 1\n", t, i);
        }
    }
    for (int32_t j = 0; j <= t; j++) {
        for (int32_t k = 0; k < c->ops[j].n_srcs; k++) {
            const int32_t i = c->srcs[j][k];
            fprintf(f, " r%d_%d - r%d_%d - s%d_%d <= 0\n", t, j, t, i, t, i);
        }
    }
    for (int32_t i = 0; i < t; i++) {
        int32_t n = 0; // number of readers that can run in this stage
        for (; n < c->n_readers[i] && c->readers[i][n] <= t; n++) {
            fprintf(f, " l%d_%d_%d - r%d_%d >= 0\n", t, i, n, t, c->readers[i][n]);
            if (n > 0) {
                fprintf(f, " l%d_%d_%d - l%d_%d_%d >= 0\n", t, i, n - 1, t, i, n);
            }
        }
        if (n > 0 && t + 1 < c->n) {
            fprintf(f, " l%d_%d_%d - s%d_%d >= 0\n", t, i, n - 1, t + 1, i);
        }
    }
    for (int32_t k = 0; k <= t; k++) {
        int64_t left = (int64_t) budget;
        for (int32_t i = 0; i <= t; i++) {
            left -= (int64_t) lp_bytes_write(f, c, t, k, i);
        }
        fprintf(f, " <= %" PRId64 "\n", left);
    }
}

// LP format. most: upper limit of the cost; UINT64_MAX: none.
static inline void lp_write(const char *path, const struct lp_case *c, uint64_t budget, uint64_t most) {
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "Minimize\n cost:");
    for (int32_t t = 0; t < c->n; t++) {
        for (int32_t i = 0; i <= t; i++) {
            fprintf(f, " + %" PRIu64 " r%d_%d\n", c->ops[i].cost, t, i);
        }
    }
    fprintf(f, "Subject To\n");
    for (int32_t t = 0; t < c->n; t++) {
        lp_stage_write(f, c, t, budget);
    }
    for (int32_t t = 0; t < c->n && most != UINT64_MAX; t++) {
        for (int32_t i = 0; i <= t; i++) {
            fprintf(f, " + %" PRIu64 " r%d_%d\n", c->ops[i].cost, t, i);
        }
    }
    if (most != UINT64_MAX) {
        fprintf(f, " <= %" PRIu64 "\n", most);
    }
    fprintf(f, "Binary\n");
    for (int32_t t = 0; t < c->n; t++) {
        for (int32_t i = 0; i <= t; i++) {
            fprintf(f, " r%d_%d\n", t, i);
            if (i < t) {
                fprintf(f, " s%d_%d\n", t, i);
            }
        }
    }
    fprintf(f, "End\n");
    fclose(f);
}

// ---- solving ----

enum lp_answer { LP_OPTIMAL, LP_NONE, LP_OPEN };

// *cost: cost of the best solution that cbc found; INFINITY: none. LP_NONE: there is no solution. LP_OPEN: cbc did not finish in
// time.
static inline enum lp_answer lp_solve(const char *path, int seconds, double *cost) {
    char command[512], line[256] = "";
    snprintf(command, sizeof command, "cbc %s ratio 0 allow 0 sec %d solve solu %s.out > %s.log 2>&1", path, seconds, path, path);
    const int rc = system(command);
    char out[300];
    snprintf(out, sizeof out, "%s.out", path);
    FILE *f = rc == 0 ? fopen(out, "r") : NULL;
    *cost = INFINITY;
    if (f == NULL || fgets(line, sizeof line, f) == NULL) {
        fail_msg("cbc %s: exit code %d and no answer; see %s.log", path, rc, path);
    }
    fclose(f);
    const char *number = strstr(line, "objective value");
    const bool has_no_solution = strstr(line, "nfeasible") != NULL || strstr(line, "no integer solution") != NULL;
    if (number != NULL && !has_no_solution) {
        *cost = atof(number + strlen("objective value"));
    }
    return strncmp(line, "Optimal", 7) == 0 ? LP_OPTIMAL : strstr(line, "nfeasible") != NULL ? LP_NONE : LP_OPEN;
}
