// SPDX-License-Identifier: MIT
// admit_world.h: src/admit with its checker (admit_check.h), and the decision about a request by brute force: the chunks, and
// then the pages of every step one by one.
#pragma once

#include "support/admit_check.h"

struct admit_world {
    struct admit *a;
    struct admit_check check;
    int id;                   // of the last request; -1: not admitted
    int64_t *page_ends;       // [n_pages] of the pages that a request shares: world_page_end
    int64_t n_answers[4];     // by enum admit_status
    int64_t n_shared;         // admitted requests that share pages
    int64_t n_unreserved;     // admitted requests that do not fit if maxima are reserved
    int64_t n_not_recomputed; // requests whose chunks differ too often from step to step to be compared
};

static inline bool world_init(struct admit_world *w, const struct admit_params *params) {
    *w = (struct admit_world){.a = admit_new(params)};
    w->page_ends = calloc((size_t) params->n_pages, sizeof *w->page_ends);
    return w->a != NULL && w->page_ends != NULL && admit_check_init(&w->check, params);
}

static inline void world_fini(struct admit_world *w) {
    admit_check_fini(&w->check);
    free(w->page_ends);
    admit_free(w->a);
}

// Pages that all running sequences hold at their ends, each page counted once.
static inline int64_t world_reserved(const struct admit_world *w) {
    const struct admit_check *c = &w->check;
    int64_t n = 0;
    for (int id = 0; id < c->params.n_running; id++) {
        n += c->seqs[id].is_running ? c->seqs[id].n_first : 0;
    }
    for (int64_t i = 0; i < c->params.n_pages; i++) {
        n -= c->n_holders[i] > 1 ? c->n_holders[i] - 1 : 0;
    }
    return n;
}

// The first step in which no running sequence holds the page.
static inline int64_t world_page_end(const struct admit_world *w, int32_t page) {
    int64_t end = 0;
    for (int id = 0; id < w->check.params.n_running; id++) {
        const struct admit_check_seq *s = &w->check.seqs[id];
        for (int64_t i = 0; s->is_running && i < s->n_pages; i++) {
            if (s->pages[i] == page && s->begin + s->n_steps > end) {
                end = s->begin + s->n_steps;
            }
        }
    }
    return end;
}

// Tokens that the running sequences leave for one more sequence, t steps ahead.
static inline int64_t world_free_tokens(const struct admit_world *w, int64_t t) {
    const struct admit_check *c = &w->check;
    int64_t n_free = c->params.n_batch - c->params.n_running + 1;
    for (int id = 0; id < c->params.n_running; id++) {
        const struct admit_check_seq *s = &c->seqs[id];
        const int64_t i = c->now - s->begin + t;
        if (s->is_running && i < s->n_steps) {
            n_free -= s->tokens[i] - (i > 0 ? s->tokens[i - 1] : s->n_cached) - 1;
        }
    }
    return n_free;
}

static inline int64_t world_min(int64_t a, int64_t b) {
    return a < b ? a : b;
}

// The pages of a request that fits alone, step by step. Returns false if its chunks differ too often to be compared.
static inline bool world_expect_pages(const struct admit_world *w, const struct admit_request *r, struct admit_reason *why) {
    const struct admit_params *p = &w->check.params;
    const int64_t n_end = r->n_prompt + (r->n_new > 0 ? r->n_new - 1 : 0);
    const int64_t n_shared = r->n_shared / p->n_page;
    int64_t n = r->n_cached, size = 0, n_changes = 0;
    for (int64_t i = 0; i < n_shared; i++) {
        w->page_ends[i] = world_page_end(w, w->check.seqs[r->sharer].pages[i]);
    }
    for (int64_t t = 0; n < n_end; t++) {
        int64_t n_now = 1;
        if (n < r->n_prompt) {
            n_now = world_min(world_free_tokens(w, t), r->n_prompt - n);
            if (p->n_chunk > 0) {
                n_now = world_min(n_now, p->n_chunk);
            }
        }
        n_changes += n_now != size;
        size = n_now;
        n += n_now;
        int64_t n_need = admit_total(w->a, t) + (n + p->n_page - 1) / p->n_page;
        for (int64_t i = 0; i < n_shared; i++) {
            n_need -= w->page_ends[i] > w->check.now + t;
        }
        if (n_changes > 30) {
            return false;
        }
        if (n_need > p->n_pages) {
            *why = (struct admit_reason){.why = ADMIT_WHY_PAGES, .n_need = n_need, .n_have = p->n_pages, .i_step = t};
            return true;
        }
    }
    return true;
}

static inline bool world_is_valid(const struct admit_world *w, const struct admit_request *r) {
    const int64_t n_page = w->check.params.n_page;
    if (r->n_cached < 0 || r->n_cached >= r->n_prompt || r->n_cached % n_page != 0) {
        return false;
    }
    if (r->n_shared < 0 || r->n_shared > r->n_cached || r->n_shared % n_page != 0) {
        return false;
    }
    if (r->n_shared == 0) {
        return true;
    }
    const bool is_id = r->sharer >= 0 && r->sharer < w->check.params.n_running;
    if (!is_id || !w->check.seqs[r->sharer].is_running) {
        return false;
    }
    const struct admit_check_seq *s = &w->check.seqs[r->sharer];
    const int64_t i = w->check.now - s->begin;
    return r->n_shared <= (i > 0 ? s->tokens[i - 1] : s->n_cached);
}

static inline enum admit_status world_expect(
    struct admit_world *w, const struct admit_request *r, struct admit_reason *why, bool *is_known) {
    const struct admit_params *p = &w->check.params;
    *why = (struct admit_reason){.why = ADMIT_WHY_NONE};
    *is_known = true;
    if (r->n_prompt < 1 || r->n_new < 0) {
        return ADMIT_INVALID;
    }
    if (r->n_prompt > p->n_ctx || r->n_new > p->n_ctx - r->n_prompt) {
        return ADMIT_NEVER;
    }
    const int64_t n_end = r->n_prompt + (r->n_new > 0 ? r->n_new - 1 : 0);
    if (n_end > p->n_pages * p->n_page) {
        return ADMIT_NEVER;
    }
    if (!world_is_valid(w, r)) {
        return ADMIT_INVALID;
    }
    int n_running = 0;
    for (int id = 0; id < p->n_running; id++) {
        n_running += w->check.seqs[id].is_running;
    }
    if (n_running == p->n_running) {
        why->why = ADMIT_WHY_RUNNING;
        return ADMIT_WAIT;
    }
    *is_known = world_expect_pages(w, r, why);
    return why->why == ADMIT_WHY_PAGES ? ADMIT_WAIT : ADMIT_YES;
}

// Requests, and compares the answer with the one expected and with reservation. Returns false after an error.
static inline bool world_request(struct admit_world *w, const struct admit_request *r, enum admit_status *status) {
    struct admit_reason expected, why;
    bool is_known;
    const enum admit_status wanted = world_expect(w, r, &expected, &is_known);
    const int64_t n_reserved = world_reserved(w);
    *status = admit_request(w->a, r, &w->id, &why);
    w->n_answers[*status]++;
    w->n_not_recomputed += !is_known;
    if (is_known && *status != wanted) {
        return admit_check_fail(&w->check, "the answer is %d, not %d", *status, wanted);
    }
    if ((*status == ADMIT_YES) != (w->id >= 0) || (*status == ADMIT_YES) != (why.why == ADMIT_WHY_NONE)) {
        return admit_check_fail(&w->check, "answer %d with id %d and reason %d", *status, w->id, why.why);
    }
    if (*status == ADMIT_WAIT && why.n_wait < 1) {
        return admit_check_fail(&w->check, "a request waits for %lld steps", (long long) why.n_wait);
    }
    if (is_known && wanted == ADMIT_WAIT && expected.why == ADMIT_WHY_PAGES &&
        (why.why != expected.why || why.n_need != expected.n_need || why.i_step != expected.i_step)) {
        return admit_check_fail(&w->check, "%lld pages are needed in step %lld, not %lld in step %lld",
            (long long) expected.n_need, (long long) expected.i_step, (long long) why.n_need, (long long) why.i_step);
    }
    if (*status == ADMIT_INVALID || *status == ADMIT_NEVER || why.why == ADMIT_WHY_RUNNING) {
        return true;
    }
    const int64_t n_page = w->check.params.n_page;
    const int64_t n_most = (r->n_prompt + (r->n_new > 0 ? r->n_new - 1 : 0) + n_page - 1) / n_page - r->n_shared / n_page;
    const bool fits = n_reserved + n_most <= w->check.params.n_pages;
    if (*status == ADMIT_WAIT) {
        return fits ? admit_check_fail(&w->check, "reservation admits a request, the rule does not") : true;
    }
    w->n_unreserved += !fits;
    w->n_shared += r->n_shared > 0;
    return admit_check_admitted(&w->check, w->a, r, w->id);
}

static inline void world_end(struct admit_world *w, int id) {
    if (id >= 0 && id < w->check.params.n_running && w->check.seqs[id].is_running) {
        admit_check_ended(&w->check, id);
    }
    admit_end(w->a, id);
}

// Computes the present step and goes on to the next one.
static inline bool world_step(struct admit_world *w) {
    if (!admit_check_step(&w->check, w->a)) {
        return false;
    }
    int64_t peak = 0;
    for (int64_t t = 0; t < w->check.params.n_ctx; t++) {
        const int64_t total = admit_total(w->a, t);
        if (total > peak) {
            peak = total;
        }
    }
    if (peak != admit_peak(w->a)) {
        return admit_check_fail(&w->check, "the peak is %lld, not %lld", (long long) peak, (long long) admit_peak(w->a));
    }
    admit_advance(w->a);
    admit_check_advance(&w->check);
    return true;
}
