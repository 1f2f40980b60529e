// SPDX-License-Identifier: MIT
// admit.c: simulates a server with more requests than it can run at once, and counts how many run at once: with the rule of
// src/admit, and with a reservation of every request's maximum. Requests are served in their order. A request with at most m
// new tokens stops after 1..m of them, which neither rule knows before. The checker (tests/support/admit_check.h) gives every
// sequence real pages. With the rule, it also recomputes the totals of all later steps in every step. Fails if the checker
// finds an error.
//
//     bench-admit [N_REQUESTS] [SEED] [PROMPT_TOKENS_PER_STEP]
//     bench-admit scale    times with long contexts and many sequences, without the checker

#include "admit/admit.h"
#include "base/min.h"
#include "clock.h"
#include "support/admit_check.h"

#include <math.h>

#define N_PAGE 16
#define N_POOL 131072
#define N_RUNNING 256
#define MIN_PROMPT 20
#define MAX_PROMPT 4000
#define MIN_NEW 50
#define MAX_NEW 2000

// splitmix64: the numbers of request i do not depend on how many were drawn before.
static uint64_t hash_of(uint64_t x) {
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

struct lengths {
    bool is_log; // log-uniform instead of uniform
    uint64_t seed;
};

// A number of low..high from the k-th random number of request i.
static int64_t draw(uint64_t seed, int64_t i, int k, int64_t low, int64_t high, bool is_log) {
    const double u = (double) (hash_of(hash_of(seed) + 4 * (uint64_t) i + (uint64_t) k) >> 11) * 0x1p-53;
    if (!is_log) {
        return low + (int64_t) (u * (double) (high - low + 1));
    }
    const int64_t x = (int64_t) floor((double) low * exp(u * log((double) (high + 1) / (double) low)));
    return clamp_i64(x, low, high);
}

static struct admit_request request_of(const struct lengths *l, int64_t i, int64_t *n_stop) {
    struct admit_request r = {.n_prompt = draw(l->seed, i, 0, MIN_PROMPT, MAX_PROMPT, l->is_log)};
    r.n_new = draw(l->seed, i, 1, MIN_NEW, MAX_NEW, l->is_log);
    *n_stop = draw(l->seed, i, 2, 1, r.n_new, false);
    return r;
}

struct running {
    int64_t n_prompt;
    int64_t n_stop;  // new tokens until it stops
    int64_t n_pages; // its maximum
};

struct sim {
    struct admit *a;
    struct admit_check check;
    struct running running[N_RUNNING]; // by id
    int64_t n_reserved;                // pages, sum of all maxima
    int64_t n_done;
    int64_t n_steps, n_sum;   // steps in which a request waits, and sum of the sequences that run in them
    int64_t n_used, n_tokens; // sum of pages held and of tokens computed in these steps
    int n_most;               // sequences at once
    int64_t n_yes, n_wait;    // answers
    double yes_s, wait_s;     // time of admit_request
    int64_t n_advances;       // steps
    double step_s;            // time of admit_end and admit_advance
};

// Returns false if the request must wait or the checker found an error.
static bool request_try(struct sim *s, const struct admit_request *r, int64_t n_stop, bool is_reserved) {
    const int64_t n_pages = (r->n_prompt + r->n_new - 1 + N_PAGE - 1) / N_PAGE;
    const bool fits = s->n_reserved + n_pages <= s->check.params.n_pages && admit_n_running(s->a) < N_RUNNING;
    if (is_reserved && !fits) {
        return false;
    }
    int id;
    const double begin_s = clock_s(CLOCK_MONOTONIC);
    const enum admit_status status = admit_request(s->a, r, &id, NULL);
    const double used_s = clock_s(CLOCK_MONOTONIC) - begin_s;
    if (status != ADMIT_YES) {
        s->n_wait++;
        s->wait_s += used_s;
        return fits ? admit_check_fail(&s->check, "reservation admits a request, the rule does not") : false;
    }
    s->n_yes++;
    s->yes_s += used_s;
    s->running[id] = (struct running){r->n_prompt, n_stop, n_pages};
    s->n_reserved += n_pages;
    return admit_check_admitted(&s->check, s->a, r, id);
}

// is_reserved: the totals are not checked, because reservation does not use them.
static bool step_run(struct sim *s, bool is_counted, bool is_reserved) {
    if (!admit_check_compute(&s->check, s->a) || (!is_reserved && !admit_check_totals(&s->check, s->a))) {
        return false;
    }
    const int n_running = admit_n_running(s->a);
    s->n_most = max_int(s->n_most, n_running);
    if (is_counted) {
        s->n_steps++;
        s->n_sum += n_running;
        s->n_used += s->check.params.n_pages - s->check.n_unused;
    }
    double used_s = 0;
    for (int id = 0; id < N_RUNNING; id++) {
        if (!admit_is_running(s->a, id)) {
            continue;
        }
        s->n_tokens += is_counted ? admit_tokens(s->a, id) : 0;
        const int64_t n_made = admit_computed(s->a, id) + admit_tokens(s->a, id) - s->running[id].n_prompt + 1;
        if (n_made >= s->running[id].n_stop) {
            const double begin_s = clock_s(CLOCK_MONOTONIC);
            admit_end(s->a, id);
            used_s += clock_s(CLOCK_MONOTONIC) - begin_s;
            admit_check_ended(&s->check, id);
            s->n_reserved -= s->running[id].n_pages;
            s->n_done++;
        }
    }
    const double begin_s = clock_s(CLOCK_MONOTONIC);
    admit_advance(s->a);
    s->step_s += used_s + clock_s(CLOCK_MONOTONIC) - begin_s;
    s->n_advances++;
    admit_check_advance(&s->check);
    return true;
}

// Returns the mean number of sequences that run at once while a request waits; 0: failed.
static double simulate(const struct lengths *l, int64_t n_requests, int64_t n_prompts, bool is_reserved) {
    const struct admit_params params = {.n_page = N_PAGE,
        .n_pages = N_POOL / N_PAGE,
        .n_ctx = MAX_PROMPT + MAX_NEW,
        .n_batch = n_prompts + N_RUNNING,
        .n_running = N_RUNNING};
    static struct sim s;
    s = (struct sim){.a = admit_new(&params)};
    bool ok = admit_check_init(&s.check, &params) && s.a != NULL;
    for (int64_t i = 0; ok && s.n_done < n_requests;) {
        bool is_waiting = false;
        while (i < n_requests && !is_waiting) {
            int64_t n_stop;
            const struct admit_request r = request_of(l, i, &n_stop);
            is_waiting = !request_try(&s, &r, n_stop, is_reserved);
            i += !is_waiting;
        }
        ok = s.check.error[0] == '\0' && step_run(&s, is_waiting, is_reserved);
    }
    const double steps = (double) max_i64(s.n_steps, 1), mean = ok ? (double) s.n_sum / steps : 0;
    printf("  %-11s %7.2f requests at once (most %d), %5.1f%% of the pool, %.1f tokens per step; %lld requests done, %lld steps "
           "checked\n",
        is_reserved ? "reservation" : "rule", mean, s.n_most, 100 * (double) s.n_used / steps / (double) params.n_pages,
        (double) s.n_tokens / steps, (long long) s.n_done, (long long) s.check.n_checked);
    if (!is_reserved) {
        printf("  %-11s %.2f us per admission, %.2f us per answer to wait (%lld), %.2f us per step (ends, advance); %zu bytes\n",
            "time", s.yes_s / (double) max_i64(s.n_yes, 1) * 1e6, s.wait_s / (double) max_i64(s.n_wait, 1) * 1e6,
            (long long) s.n_wait, s.step_s / (double) max_i64(s.n_advances, 1) * 1e6, admit_size(&params));
    }
    if (!ok) {
        printf("  FAILED: %s\n", s.a == NULL ? "out of memory" : s.check.error);
    }
    admit_check_fini(&s.check);
    admit_free(s.a);
    return mean;
}

static int run_lengths(int64_t n_requests, uint64_t seed, int64_t n_prompts) {
    static const double least[2] = {1.2, 1.4};
    int n_bad = 0;
    printf("%lld requests, seed %llu, pool of %d tokens in pages of %d, at most %d requests, %lld prompt tokens per step\n",
        (long long) n_requests, (unsigned long long) seed, N_POOL, N_PAGE, N_RUNNING, (long long) n_prompts);
    for (int is_log = 1; is_log >= 0; is_log--) {
        const struct lengths l = {is_log == 1, seed};
        printf("%s lengths: prompts of %d to %d tokens, %d to %d new tokens\n", is_log ? "log-uniform" : "uniform", MIN_PROMPT,
            MAX_PROMPT, MIN_NEW, MAX_NEW);
        const double reserved = simulate(&l, n_requests, n_prompts, true);
        const double rule = simulate(&l, n_requests, n_prompts, false);
        const double ratio = reserved > 0 ? rule / reserved : 0;
        printf("  ratio %.3f, at least %.1f is required: %s\n", ratio, least[is_log], ratio >= least[is_log] ? "ok" : "FAILED");
        n_bad += ratio < least[is_log];
    }
    return n_bad > 0;
}

// Times with n_ctx steps and up to n_running sequences, which end after a random part of their steps.
static int run_scale(void) {
    static const struct {
        int64_t n_ctx;
        int n_running;
    } sizes[] = {{6000, 64}, {32768, 256}, {131072, 1024}, {131072, 4096}};
    printf("%8s %8s %10s %12s %12s %12s %12s\n", "context", "running", "bytes", "admit us", "wait us", "end us", "advance us");
    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
        const int64_t n_ctx = sizes[k].n_ctx;
        const struct admit_params params = {.n_page = N_PAGE,
            .n_pages = n_ctx / 40 / N_PAGE * sizes[k].n_running,
            .n_ctx = n_ctx,
            .n_batch = 2048 + sizes[k].n_running,
            .n_running = sizes[k].n_running};
        struct admit *a = admit_new(&params);
        if (a == NULL) {
            return 1;
        }
        double s[4] = {0}; // admit, wait, end, advance
        int64_t n[4] = {0};
        for (int64_t i = 0; i < 20000; i++) {
            const struct admit_request r = {
                .n_prompt = draw(1, i, 0, 1, n_ctx / 2, true), .n_new = draw(1, i, 1, 1, n_ctx / 2, true)};
            int id;
            const double begin_s = clock_s(CLOCK_MONOTONIC);
            const enum admit_status status = admit_request(a, &r, &id, NULL);
            const double answer_s = clock_s(CLOCK_MONOTONIC);
            s[status == ADMIT_WAIT] += answer_s - begin_s;
            n[status == ADMIT_WAIT]++;
            if (status == ADMIT_WAIT || i % 4 == 0) {
                admit_end(a, (int) draw(1, i, 2, 0, params.n_running - 1, false));
                const double end_s = clock_s(CLOCK_MONOTONIC);
                admit_advance(a);
                s[2] += end_s - answer_s;
                s[3] += clock_s(CLOCK_MONOTONIC) - end_s;
                n[2]++;
                n[3]++;
            }
        }
        printf("%8lld %8d %10zu", (long long) n_ctx, admit_n_running(a), admit_size(&params));
        for (int j = 0; j < 4; j++) {
            printf(" %12.2f", s[j] / (double) max_i64(n[j], 1) * 1e6);
        }
        printf("\n");
        admit_free(a);
    }
    return 0;
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "scale") == 0) {
        return run_scale();
    }
    const int64_t n_requests = argc > 1 ? atoll(argv[1]) : 1000000, n_prompts = argc > 3 ? atoll(argv[3]) : 2048;
    if (n_requests < 1 || n_prompts < 0 || n_prompts > 1 << 20) {
        fprintf(stderr, "usage: bench-admit [N_REQUESTS] [SEED] [PROMPT_TOKENS_PER_STEP] | scale\n");
        return 2;
    }
    return run_lengths(n_requests, argc > 2 ? strtoull(argv[2], NULL, 10) : 1, n_prompts);
}
