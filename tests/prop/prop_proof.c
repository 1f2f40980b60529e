// SPDX-License-Identifier: MIT
// prop_proof.c: proofs of random problems (src/proof). Each proof must be accepted and show the planner's bound. A damaged proof, with
// its checksum corrected, must be refused or show a true bound; so must a proof for a problem that was changed.
//
//   prop_proof [SEED]
//   prop_proof measure N_ITEMS N_PROBLEMS
//                          for problems whose bound needs a search: time of the search without and with a proof, time of the check
//   prop_proof write DIR   writes all problems that need a search, and some others, as DIR/N.csv with their proofs DIR/N.proof, for
//                          the second checker (tests/proof/check.py)

#include "plan_brute.h"
#include "proof/proof.h"
#include "support/check.h"

#include <inttypes.h>
#include <time.h>

#define N_MAX 400
#define TEXT_MAX ((size_t) 1 << 30) // of address space

struct text {
    char *bytes; // [TEXT_MAX]
    size_t n, at;
};

struct problem {
    struct berth_plan_item items[N_MAX];
    int64_t n;
    uint64_t offsets[N_MAX];
    struct berth_plan_report report;
    uint64_t optimum; // the lowest peak; 0: unknown
};

static int n_proven, n_lost, n_searches, n_damaged, n_accepted, n_lower, n_shorter, n_changed, n_true, n_equal;
static int64_t n_steps;

static bool text_write(const char *bytes, size_t size, void *user) {
    struct text *t = user;
    if (size > TEXT_MAX - t->n) {
        return false;
    }
    memcpy(t->bytes + t->n, bytes, size);
    t->n += size;
    return true;
}

// Reads at most 100 bytes of a short text at a time, so that words cross the ends of pieces. size is at least 100.
static size_t text_read(char *to, size_t size, void *user) {
    struct text *t = user;
    const size_t piece = t->n > 100000 ? size : 100, n = t->n - t->at < piece ? t->n - t->at : piece;
    memcpy(to, t->bytes + t->at, n);
    t->at += n;
    return n;
}

// Returns the sum of the bounds that the proof shows; UINT64_MAX: the proof was refused.
static uint64_t text_check(struct text *t, const struct problem *m, int64_t *steps) {
    static struct proof proof;
    uint64_t sum = 0;
    int32_t pools[N_MAX];
    int n_pools = 0;
    t->at = 0;
    *steps = 0;
    proof_init(&proof, m->items, m->n, text_read, t);
    while (proof_next(&proof)) {
        for (int k = 0; k < n_pools; k++) {
            if (pools[k] == proof.pool) {
                proof_refuse(&proof, "a pool is repeated, so the sum of the bounds is not the bound of the sum");
            }
        }
        pools[n_pools++] = proof.pool;
        sum += proof.bound;
        *steps += proof.n_steps;
    }
    const bool is_valid = !proof.is_refused && !proof.mem.has_failed;
    berth_arrays_free(&proof.mem);
    return is_valid ? sum : UINT64_MAX;
}

static void proof_fail(const struct problem *m, const struct text *t, const char *what, uint64_t bound) {
    printf("%s: bound %" PRIu64 " of the proof, bound %" PRIu64 " and peak %" PRIu64 " of the planner\n%.*s", what, bound,
        m->report.bound, m->report.peak, (int) t->n, t->bytes);
    for (int64_t i = 0; i < m->n; i++) {
        const struct berth_plan_item *x = &m->items[i];
        printf("%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRIu64 ",%" PRIu64 ",%d,%d,%d:%" PRIu64 "\n", i, x->first, x->last,
            x->size, x->align, x->pool, x->alias, x->is_fixed, x->fixed);
    }
    exit(1);
}

// Plans the problem, and makes its proof.
static void problem_solve(struct problem *m, struct text *t, int64_t time_limit_us) {
    struct berth_plan_params params = {
        .time_limit_us = time_limit_us, .is_counted = true, .proof = t != NULL ? text_write : NULL, .proof_data = t};
    if (t != NULL) {
        t->n = 0;
    }
    if (berth_plan_solve(m->items, m->n, &params, m->offsets, &m->report) != GGML_STATUS_SUCCESS) {
        m->report.bound = UINT64_MAX; // the items contradict each other
    }
}

#define TIME_LIMIT_US 50000
#define JOINED_SEED 9941452381785170360u // of a problem that the search of joined blocks solves

enum kind { TIGHT, ALIGNED, MIXED, N_KINDS };

static uint64_t bytes_alive(const struct problem *m, int64_t step) {
    uint64_t sum = 0;
    for (int64_t i = 0; i < m->n; i++) {
        sum += m->items[i].first <= step && step <= m->items[i].last ? m->items[i].size : 0;
    }
    return sum;
}

// Makes n random items, and items with a lifetime of one step that fill every step almost completely.
static void problem_make_tight(struct problem *m, int64_t n) {
    const int64_t n_steps = 5 + n / 4 - (int64_t) brute_random((uint64_t) n / 4);
    const uint64_t size_max = 4 + brute_random(6);
    uint64_t live = 0;
    m->n = n;
    for (int64_t i = 0; i < m->n; i++) {
        const int64_t first = (int64_t) brute_random((uint64_t) n_steps), last = first + (int64_t) brute_random(3);
        m->items[i] = brute_item(first, last < n_steps ? last : n_steps - 1, brute_random(size_max) + 1);
    }
    for (int64_t step = 0; step < n_steps; step++) {
        const uint64_t sum = bytes_alive(m, step);
        if (sum > live) {
            live = sum;
        }
    }
    for (int64_t step = 0; step < n_steps; step++) {
        const uint64_t gap = live - bytes_alive(m, step), less = gap > 1 ? brute_random(2) : 0;
        if (gap > less) {
            m->items[m->n++] = brute_item(step - (int64_t) brute_random(2), step, gap - less);
            m->items[m->n - 1].first = step;
        }
    }
}

// Appends two items, one after the other, that fill a step each. The search joins them (join.c).
static void problem_add_pair(struct problem *m) {
    uint64_t live = 0;
    int64_t last = 0;
    for (int64_t i = 0; i < m->n; i++) {
        const uint64_t sum = bytes_alive(m, m->items[i].first);
        if (sum > live) {
            live = sum;
        }
        if (m->items[i].last > last) {
            last = m->items[i].last;
        }
    }
    for (int k = 1; k <= 2; k++) {
        m->items[m->n++] = brute_item(last + k, last + k, live);
    }
}

static void problem_make_mixed(struct problem *m) {
    static const uint64_t aligns[] = {1, 2, 4, 3};
    m->n = 3 + (int64_t) brute_random(7);
    for (int64_t i = 0; i < m->n; i++) {
        const int64_t first = (int64_t) brute_random(6) - 3;
        struct berth_plan_item *item = &m->items[i];
        *item = brute_item(first, first + (int64_t) brute_random(6), brute_random(9));
        item->align = aligns[brute_random(4)];
        item->alias = brute_random(3) == 0 ? 1 + (int32_t) brute_random(3) : 0;
        item->pool = item->alias == 0 ? (int32_t) brute_random(2) : 0;
        item->is_fixed = brute_random(8) == 0;
        item->fixed = item->is_fixed ? 12 * brute_random(4) : 0;
    }
}

// Items of at least 9 blocks with one alignment are rounded up.
static void items_align(struct problem *m) {
    for (int64_t i = 0; i < m->n; i++) {
        m->items[i].align = 4;
        m->items[i].size = 4 * m->items[i].size - brute_random(4);
    }
}

// Divides some items at a step. The parts have one alias, so they are still one block.
static void items_divide(struct problem *m) {
    for (int64_t i = m->n; i-- > 0 && m->n < N_MAX;) {
        struct berth_plan_item *item = &m->items[i];
        if (item->last > item->first && brute_random(4) == 0) {
            item->alias = (int32_t) i + 1;
            m->items[m->n] = *item;
            m->items[m->n++].first = item->first + 1;
            item->last -= (int64_t) brute_random(2);
            if (item->last < item->first) {
                item->last = item->first;
            }
        }
    }
}

// TIGHT and ALIGNED: problems that are not solved without a search.
static void problem_make(struct problem *m, enum kind kind) {
    if (kind == MIXED) {
        problem_make_mixed(m);
        return;
    }
    do {
        problem_make_tight(m, 7 + (int64_t) brute_random(16));
        if (kind == ALIGNED) {
            items_align(m);
        }
        if (brute_random(2) == 0) {
            items_divide(m);
        }
    } while (berth_plan_solve(m->items, m->n, NULL, m->offsets, &m->report) != GGML_STATUS_SUCCESS || m->report.proven);
}

// Appends the right checksum. Proofs of several pools are damaged in the first pool only.
static void checksum_fix(struct text *t) {
    uint32_t a = 1, b = 0;
    size_t end = 0;
    while (end + 4 < t->n && memcmp(t->bytes + end, "\nend ", 5) != 0) {
        end++;
    }
    if (end + 5 >= t->n) {
        return;
    }
    end++;
    for (size_t i = 0; i < end; i++) {
        a = (a + (unsigned char) t->bytes[i]) % 65521;
        b = (b + a) % 65521;
    }
    char rest[1 << 12];
    size_t from = end;
    while (from < t->n && t->bytes[from] != '\n') {
        from++;
    }
    const size_t n_rest = t->n - from;
    if (n_rest > sizeof rest) {
        return;
    }
    memcpy(rest, t->bytes + from, n_rest);
    t->n = end + (size_t) sprintf(t->bytes + end, "end %" PRIu32, b << 16 | a);
    memcpy(t->bytes + t->n, rest, n_rest);
    t->n += n_rest;
}

static size_t line_at(const struct text *t, size_t at) {
    while (at > 0 && t->bytes[at - 1] != '\n') {
        at--;
    }
    return at;
}

static size_t line_size(const struct text *t, size_t at) {
    const char *end = memchr(t->bytes + at, '\n', t->n - at);
    return end != NULL ? (size_t) (end - t->bytes) + 1 - at : t->n - at;
}

// Damages a copy of a proof: a byte, a number, or a line that is removed, repeated or moved.
static void text_damage(const struct text *from, struct text *to) {
    static const char letters[] = "0123456789PXNABRTVW \n";
    memcpy(to->bytes, from->bytes, from->n);
    to->n = from->n;
    for (int count = 1 + (int) brute_random(3); count > 0; count--) {
        const size_t at = brute_random(to->n), line = line_at(to, at), size = line_size(to, line);
        switch (brute_random(5)) {
            case 0: to->bytes[at] = letters[brute_random(sizeof letters - 1)]; break;
            case 1:
                if (to->bytes[at] >= '0' && to->bytes[at] < '9') {
                    to->bytes[at]++;
                }
                break;
            case 2:
                memmove(to->bytes + line, to->bytes + line + size, to->n - line - size);
                to->n -= size;
                break;
            case 3:
                memmove(to->bytes + line + size, to->bytes + line, to->n - line);
                to->n += size;
                break;
            default: {
                const size_t other = line_at(to, brute_random(to->n));
                char copy[256];
                if (size <= sizeof copy && other < line) {
                    memcpy(copy, to->bytes + line, size);
                    memmove(to->bytes + other + size, to->bytes + other, line - other);
                    memcpy(to->bytes + other, copy, size);
                }
            }
        }
    }
    checksum_fix(to);
}

static void check_damaged(const struct problem *m, const struct text *t, int64_t n_steps_of, struct text *damaged, int n) {
    for (int k = 0; k < n; k++) {
        int64_t steps;
        text_damage(t, damaged);
        if (damaged->n == t->n && memcmp(damaged->bytes, t->bytes, t->n) == 0) {
            n_equal++;
            continue;
        }
        n_damaged++;
        const uint64_t bound = text_check(damaged, m, &steps);
        if (bound != UINT64_MAX) {
            n_accepted++;
            n_lower += bound < m->report.bound;
            n_shorter += bound == m->report.bound && steps < n_steps_of;
            if (bound > m->optimum) {
                proof_fail(m, damaged, "a damaged proof shows a false bound", bound);
            }
        }
    }
}

// Changes the problem a little. The proof may be valid for the changed problem too, but then the bound must be true.
static void check_changed(const struct problem *m, struct text *t, struct text *scratch) {
    struct problem other = *m;
    struct berth_plan_item *item = &other.items[brute_random((uint64_t) m->n)];
    switch (brute_random(4)) {
        case 0: item->size -= item->size > 1; break;
        case 1: item->last -= item->last > item->first; break;
        case 2: item->first += item->last > item->first; break;
        default: item->alias = item->is_fixed ? item->alias : 1 + (int32_t) brute_random(3);
    }
    problem_solve(&other, scratch, TIME_LIMIT_US);
    if (other.report.bound == UINT64_MAX || other.report.bound != other.report.peak) {
        return;
    }
    int64_t steps;
    const uint64_t bound = text_check(t, &other, &steps);
    n_changed++;
    n_true += bound != UINT64_MAX;
    if (bound != UINT64_MAX && bound > other.report.peak) {
        proof_fail(&other, t, "the proof of another problem shows a false bound", bound);
    }
}

// Writes the problem and its proof.
static void problem_write(const struct problem *m, const struct text *t, const char *dir, int number) {
    char path[1000];
    snprintf(path, sizeof path, "%s/%d.csv", dir, number);
    FILE *f = fopen(path, "w");
    if (f == NULL) {
        exit(2);
    }
    fputs("id,lower,upper,size,alignment,offset,pool,alias,fixed\n", f);
    for (int64_t i = 0; i < m->n; i++) {
        const struct berth_plan_item *x = &m->items[i];
        fprintf(f, "%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%d,%d,", i, x->first, x->last + 1,
            x->size, x->align, m->offsets[i], x->pool, x->alias - 1);
        if (x->is_fixed) {
            fprintf(f, "%" PRIu64, x->fixed);
        }
        fputc('\n', f);
    }
    fclose(f);
    snprintf(path, sizeof path, "%s/%d.proof", dir, number);
    f = fopen(path, "w");
    if (f == NULL || fwrite(t->bytes, 1, t->n, f) != t->n) {
        exit(2);
    }
    fclose(f);
}

static double seconds_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double) t.tv_sec + 1e-9 * (double) t.tv_nsec;
}

static int times_measure(int64_t n, int n_problems) {
    struct text t = {malloc(TEXT_MAX), 0, 0};
    static struct problem m;
    double sums[3] = {0};
    printf("%6s %10s %12s %9s %9s %9s\n", "items", "steps", "bytes", "search s", "+ proof", "check s");
    while (n_problems > 0 && t.bytes != NULL) {
        int64_t steps;
        problem_make_tight(&m, n);
        const double start = seconds_now();
        problem_solve(&m, NULL, 20000000);
        const double search = seconds_now() - start;
        if (m.report.bound != m.report.peak) {
            continue;
        }
        problem_solve(&m, &t, 20000000);
        const double both = seconds_now() - start;
        const uint64_t bound = text_check(&t, &m, &steps);
        const double end = seconds_now() - start;
        if (bound != m.report.bound) {
            proof_fail(&m, &t, "the proof was refused, or shows another bound", bound);
        }
        if (steps > 0) {
            printf("%6lld %10lld %12zu %9.4f %8.1f%% %9.4f\n", (long long) m.n, (long long) steps, t.n, search,
                100 * ((both - search) / search - 1), end - both);
            fflush(stdout);
            n_problems--;
            sums[0] += search;
            sums[1] += both - search;
            sums[2] += end - both;
        }
    }
    printf("sum: search %.3f s, with proof %.3f s (%+.1f%%), check %.3f s\n", sums[0], sums[1], 100 * (sums[1] / sums[0] - 1),
        sums[2]);
    free(t.bytes);
    return 0;
}

// Checks the proof of a problem whose bound the search of the joined problem raises.
static void check_joined(struct text *t) {
    static struct problem m;
    int64_t steps;
    const uint64_t seed = brute_seed;
    brute_seed = JOINED_SEED;
    problem_make_tight(&m, 30);
    brute_seed = seed;
    problem_add_pair(&m);
    problem_solve(&m, t, 4000000);
    const uint64_t bound = text_check(t, &m, &steps);
    if (bound != m.report.peak || steps == 0) {
        proof_fail(&m, t, "the search of joined blocks has no proof", bound);
    }
}

int main(int argc, char **argv) {
    if (argc > 3 && strcmp(argv[1], "measure") == 0) {
        return times_measure(atoll(argv[2]), atoi(argv[3]));
    }
    const char *dir = argc > 2 && strcmp(argv[1], "write") == 0 ? argv[2] : NULL;
    struct text t = {malloc(TEXT_MAX), 0, 0}, damaged = {malloc(TEXT_MAX), 0, 0};
    struct problem m;
    brute_seed = argc > 1 && dir == NULL ? strtoull(argv[1], NULL, 10) : 4711;
    printf("seed %llu\n", (unsigned long long) brute_seed);
    for (int k = 0; k < check_cases(1000); k++) {
        const enum kind kind = (enum kind)(k % N_KINDS);
        int64_t steps;
        problem_make(&m, kind);
        problem_solve(&m, NULL, TIME_LIMIT_US);
        if (m.report.bound == UINT64_MAX) {
            continue;
        }
        m.optimum = m.report.proven ? m.report.peak : 0;
        problem_solve(&m, &t, TIME_LIMIT_US);
        const uint64_t bound = text_check(&t, &m, &steps);
        if (bound != m.report.bound || (m.optimum > 0 && bound > m.optimum)) {
            proof_fail(&m, &t, "the proof was refused, or shows another bound", bound);
        }
        // The exhaustive search of small problems with alignments or fixed items writes no log (docs/dev/proofs.md). The other searches
        // may take a little longer with a proof.
        if (m.optimum > 0 && kind != MIXED && (kind != ALIGNED || m.n > 8)) {
            n_proven++;
            n_lost += bound < m.optimum;
        }
        n_searches += steps > 0;
        n_steps += steps;
        if (dir != NULL && (steps > 0 || k % 20 < (int) N_KINDS)) {
            problem_write(&m, &t, dir, k);
        }
        if (dir == NULL && m.optimum > 0) {
            check_damaged(&m, &t, steps, &damaged, steps > 0 ? 280 : 4);
            check_changed(&m, &t, &damaged);
        }
    }
    if (dir == NULL) {
        check_joined(&t);
    }
    printf("%d optima, %d of them not shown by the proof; ", n_proven, n_lost);
    printf("%d proofs by search, %lld steps; %d problems changed, their old proof accepted for %d\n", n_searches,
        (long long) n_steps, n_changed, n_true);
    printf("%d damaged proofs, %d accepted: %d with a lower bound, %d with fewer steps, %d others; all bounds are true; %d not "
           "changed\n",
        n_damaged, n_accepted, n_lower, n_shorter, n_accepted - n_lower - n_shorter, n_equal);
    free(t.bytes);
    free(damaged.bytes);
    return n_searches > 0 && 20 * n_lost <= n_proven && (dir != NULL || n_damaged > 0) ? 0 : 1;
}
