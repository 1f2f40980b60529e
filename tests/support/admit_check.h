// SPDX-License-Identifier: MIT
// admit_check.h: a checker of src/admit that shares no code with it. It is told what is admitted and ended, gives every
// sequence real pages, and computes the promised totals page by page: a page is held from the step of its first token to the
// end of its last holder. src/admit computes them from sequences and a tree of shared pages instead.
#pragma once

#include "admit/admit.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct admit_check_seq {
    bool is_running;
    int64_t n_cached;       // tokens in the cache at admission
    int64_t begin, n_steps; // step of the admission, and number of steps from there
    int32_t *tokens;        // [n_steps] tokens in the cache after each step
    int64_t n_tokens_cap;
    int32_t *pages; // pages that it holds
    int64_t n_pages, n_pages_cap;
    int32_t *first; // [n_first] the step, counted from `begin`, that computes the first token of each page; 0 for cached pages
    int64_t n_first, n_first_cap;
};

struct admit_check {
    struct admit_params params;
    struct admit_check_seq *seqs; // [n_running] by id
    int64_t now;
    int32_t *unused; // pages that nobody holds
    int64_t n_unused;
    int32_t *n_holders; // [n_pages]
    int64_t *until;     // [n_pages] of pages with several holders: the first step in which nobody holds the page
    int32_t *change;    // [n_ctx + 1] pages taken minus pages freed, per step
    int64_t n_shares;   // sum over pages of holders after the first
    int64_t n_checked;  // steps whose totals were compared
    char error[200];    // first error; "": none
};

static inline bool admit_check_fail(struct admit_check *c, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    if (c->error[0] == '\0') {
        vsnprintf(c->error, sizeof c->error, fmt, args);
    }
    va_end(args);
    return false;
}

// Appends a number to an array.
static inline bool admit_check_push(struct admit_check *c, int32_t **p, int64_t *n, int64_t *n_cap, int32_t value) {
    if (*n == *n_cap) {
        int32_t *q = realloc(*p, (size_t) (2 * *n + 8) * sizeof *q);
        if (q == NULL) {
            return admit_check_fail(c, "the checker ran out of memory");
        }
        *p = q;
        *n_cap = 2 * *n + 8;
    }
    (*p)[(*n)++] = value;
    return true;
}

static inline bool admit_check_init(struct admit_check *c, const struct admit_params *params) {
    *c = (struct admit_check){.params = *params, .n_unused = params->n_pages};
    c->seqs = calloc((size_t) params->n_running, sizeof *c->seqs);
    c->unused = calloc((size_t) params->n_pages, sizeof *c->unused);
    c->n_holders = calloc((size_t) params->n_pages, sizeof *c->n_holders);
    c->until = calloc((size_t) params->n_pages, sizeof *c->until);
    c->change = calloc((size_t) params->n_ctx + 1, sizeof *c->change);
    if (c->seqs == NULL || c->unused == NULL || c->n_holders == NULL || c->until == NULL || c->change == NULL) {
        return admit_check_fail(c, "the checker ran out of memory");
    }
    for (int64_t i = 0; i < params->n_pages; i++) {
        c->unused[i] = (int32_t) i;
    }
    return true;
}

static inline void admit_check_fini(struct admit_check *c) {
    for (int id = 0; c->seqs != NULL && id < c->params.n_running; id++) {
        free(c->seqs[id].tokens);
        free(c->seqs[id].pages);
        free(c->seqs[id].first);
    }
    free(c->seqs);
    free(c->unused);
    free(c->n_holders);
    free(c->until);
    free(c->change);
}

// Gives the sequence one page: `page`, or an unused one if page is -1.
static inline bool admit_check_hold(struct admit_check *c, struct admit_check_seq *s, int32_t page) {
    if (page < 0) {
        if (c->n_unused == 0) {
            return admit_check_fail(c, "step %lld: all %lld pages are held", (long long) c->now, (long long) c->params.n_pages);
        }
        page = c->unused[--c->n_unused];
    }
    c->n_shares += c->n_holders[page] > 0;
    c->n_holders[page]++;
    return admit_check_push(c, &s->pages, &s->n_pages, &s->n_pages_cap, page);
}

// Reads the promised steps of a new sequence and checks them: chunks that add up to the prompt, then one token per step.
static inline bool admit_check_steps(
    struct admit_check *c, struct admit_check_seq *s, const struct admit *a, const struct admit_request *r, int id) {
    const int64_t n_end = r->n_prompt + (r->n_new > 0 ? r->n_new - 1 : 0);
    int64_t n = r->n_cached;
    s->n_steps = 0;
    while (n < n_end) {
        const int64_t n_now = admit_tokens_at(a, id, s->n_steps);
        const bool is_prompt = n < r->n_prompt;
        const int64_t n_most = is_prompt ? r->n_prompt - n : 1;
        if (n_now < 1 || n_now > n_most || (is_prompt && c->params.n_chunk > 0 && n_now > c->params.n_chunk)) {
            return admit_check_fail(c, "sequence %d computes %lld tokens in its step %lld, %lld are possible", id,
                (long long) n_now, (long long) s->n_steps, (long long) n_most);
        }
        for (int64_t i = n; i < n + n_now; i++) {
            const bool is_first = i % c->params.n_page == 0;
            if (is_first && !admit_check_push(c, &s->first, &s->n_first, &s->n_first_cap, (int32_t) s->n_steps)) {
                return false;
            }
        }
        n += n_now;
        if (!admit_check_push(c, &s->tokens, &s->n_steps, &s->n_tokens_cap, (int32_t) n)) {
            return false;
        }
    }
    if (admit_tokens_at(a, id, s->n_steps) != 0 || admit_steps_left(a, id) != s->n_steps) {
        return admit_check_fail(
            c, "sequence %d has %lld steps left, not %lld", id, (long long) admit_steps_left(a, id), (long long) s->n_steps);
    }
    return true;
}

// To be called when a request is admitted.
static inline bool admit_check_admitted(struct admit_check *c, const struct admit *a, const struct admit_request *r, int id) {
    if (id < 0 || id >= c->params.n_running || c->seqs[id].is_running) {
        return admit_check_fail(c, "id %d is not free", id);
    }
    struct admit_check_seq *s = &c->seqs[id];
    s->is_running = true;
    s->begin = c->now;
    s->n_cached = r->n_cached;
    s->n_pages = 0;
    s->n_first = 0;
    const int64_t n_shared = r->n_shared / c->params.n_page;
    for (int64_t i = 0; i < r->n_cached / c->params.n_page; i++) {
        const int32_t page = i < n_shared ? c->seqs[r->sharer].pages[i] : -1;
        if (!admit_check_hold(c, s, page) || !admit_check_push(c, &s->first, &s->n_first, &s->n_first_cap, 0)) {
            return false;
        }
    }
    return admit_check_steps(c, s, a, r, id);
}

// To be called before or after admit_end.
static inline void admit_check_ended(struct admit_check *c, int id) {
    struct admit_check_seq *s = &c->seqs[id];
    for (int64_t i = 0; i < s->n_pages; i++) {
        if (--c->n_holders[s->pages[i]] == 0) {
            c->unused[c->n_unused++] = s->pages[i];
        } else {
            c->n_shares--;
        }
    }
    s->n_pages = 0;
    s->is_running = false;
}

// Counts the pages of a sequence: those that it holds now, and those that it will take.
static inline void admit_check_pages(struct admit_check *c, const struct admit_check_seq *s) {
    const int64_t end = s->begin + s->n_steps;
    int32_t n_own = c->n_shares == 0 ? (int32_t) s->n_pages : 0;
    for (int64_t i = 0; c->n_shares > 0 && i < s->n_pages; i++) {
        const int32_t page = s->pages[i];
        if (c->n_holders[page] == 1) {
            n_own++;
        } else if (end > c->until[page]) { // held by others, until an earlier step
            c->change[c->until[page] > c->now ? c->until[page] - c->now : 0]++;
            c->change[end - c->now]--;
            c->until[page] = end;
        }
    }
    c->change[0] += n_own;
    c->change[end - c->now] -= n_own;
    for (int64_t i = s->n_pages; i < s->n_first; i++) {
        c->change[s->begin + s->first[i] - c->now]++;
        c->change[end - c->now]--;
    }
}

// Compares the promised totals of all steps with the sum over all pages.
static inline bool admit_check_totals(struct admit_check *c, const struct admit *a) {
    int64_t n_ahead = 1; // steps until the last sequence ends
    for (int id = 0; id < c->params.n_running; id++) {
        const struct admit_check_seq *s = &c->seqs[id];
        if (s->is_running && s->begin + s->n_steps - c->now > n_ahead) {
            n_ahead = s->begin + s->n_steps - c->now;
        }
        for (int64_t i = 0; s->is_running && i < s->n_cached / c->params.n_page; i++) { // no other pages can be shared
            c->until[s->pages[i]] = 0;
        }
    }
    memset(c->change, 0, (size_t) (n_ahead + 1) * sizeof *c->change);
    for (int id = 0; id < c->params.n_running; id++) {
        if (c->seqs[id].is_running) {
            admit_check_pages(c, &c->seqs[id]);
        }
    }
    int64_t total = 0;
    for (int64_t t = 0; t <= n_ahead; t++) {
        total += c->change[t];
        if (total > c->params.n_pages || total != admit_total(a, t)) {
            return admit_check_fail(c, "step %lld, %lld ahead: %lld pages of %lld, promised are %lld", (long long) c->now,
                (long long) t, (long long) total, (long long) c->params.n_pages, (long long) admit_total(a, t));
        }
    }
    c->n_checked++;
    return true;
}

// Computes the present step: gives every sequence the pages of its tokens, and checks the limits of a step.
static inline bool admit_check_compute(struct admit_check *c, const struct admit *a) {
    int64_t n_tokens = 0;
    int n_running = 0;
    for (int id = 0; id < c->params.n_running; id++) {
        struct admit_check_seq *s = &c->seqs[id];
        if (s->is_running != admit_is_running(a, id)) {
            return admit_check_fail(
                c, "step %lld: sequence %d %s", (long long) c->now, id, s->is_running ? "has ended" : "has not ended");
        }
        if (!s->is_running) {
            continue;
        }
        const int64_t i = c->now - s->begin;
        const int64_t n_before = i > 0 ? s->tokens[i - 1] : s->n_cached;
        if (s->tokens[i] - n_before != admit_tokens(a, id) || n_before != admit_computed(a, id)) {
            return admit_check_fail(c, "step %lld: sequence %d computes %lld tokens after %lld, promised were %lld after %lld",
                (long long) c->now, id, (long long) admit_tokens(a, id), (long long) admit_computed(a, id),
                (long long) (s->tokens[i] - n_before), (long long) n_before);
        }
        n_tokens += admit_tokens(a, id);
        n_running++;
        while (s->n_pages * c->params.n_page < s->tokens[i]) {
            if (!admit_check_hold(c, s, -1)) {
                return false;
            }
        }
    }
    if (n_tokens > c->params.n_batch || n_running != admit_n_running(a)) {
        return admit_check_fail(c, "step %lld: %lld tokens of %lld, %d sequences", (long long) c->now, (long long) n_tokens,
            (long long) c->params.n_batch, n_running);
    }
    return true;
}

// Computes the present step, and checks the totals of all steps.
static inline bool admit_check_step(struct admit_check *c, const struct admit *a) {
    return admit_check_compute(c, a) && admit_check_totals(c, a);
}

// To be called next to admit_advance.
static inline void admit_check_advance(struct admit_check *c) {
    c->now++;
    for (int id = 0; id < c->params.n_running; id++) {
        if (c->seqs[id].is_running && c->now - c->seqs[id].begin == c->seqs[id].n_steps) {
            admit_check_ended(c, id);
        }
    }
}
