// SPDX-License-Identifier: MIT
// schedule.c: the steps of one sequence: the chunks of its prompt, then one token per step. A schedule is made at admission and
// does not change afterwards.

#include "admit/state.h"
#include "base/min.h"

// Tokens of the prompt that step t can take. One token is always free for the sequence, because all prompts together take at
// most n_batch - n_running more.
static int64_t chunk_size(const struct admit *a, int64_t t, int64_t n_left) {
    const int64_t n_free = a->n_extra - admit_ring_get(a, a->extra, t) + 1;
    const int64_t n_most = a->params.n_chunk > 0 ? min_i64(a->params.n_chunk, n_left) : n_left;
    return min_i64(n_free, n_most);
}

static void run_append(struct admit_schedule *s, int64_t t, int64_t n_before, int64_t size) {
    if (s->n_runs == 0 || s->runs[s->n_runs - 1].size != size) {
        s->runs[s->n_runs++] = (struct admit_run){(int32_t) t, (int32_t) n_before, (int32_t) size};
    }
}

void admit_schedule_make(const struct admit *a, const struct admit_request *r, struct admit_schedule *s) {
    const int64_t n_after = max_i64(r->n_new - 1, 0); // the last new token is not computed
    int64_t t = 0, n_before = r->n_cached;
    s->n_runs = 0;
    while (n_before < r->n_prompt && s->n_runs < ADMIT_MAX_RUNS - 1) {
        const int64_t size = chunk_size(a, t, r->n_prompt - n_before);
        run_append(s, t, n_before, size);
        n_before += size;
        t++;
    }
    const int64_t n_ones = r->n_prompt - n_before + n_after;
    if (n_ones > 0) {
        run_append(s, t, n_before, 1);
    }
    s->n_steps = (int32_t) (t + n_ones);
}

const struct admit_run *admit_schedule_run(const struct admit_schedule *s, int64_t t) {
    int32_t i = s->n_runs - 1;
    while (s->runs[i].first > t) {
        i--;
    }
    return &s->runs[i];
}

int64_t admit_schedule_before(const struct admit_schedule *s, int64_t t) {
    const struct admit_run *run = admit_schedule_run(s, t);
    return run->before + (int64_t) run->size * (t - run->first);
}

static int64_t run_end(const struct admit_schedule *s, int32_t i) {
    return i + 1 < s->n_runs ? s->runs[i + 1].first : s->n_steps;
}

void admit_schedule_add_extra(struct admit *a, const struct admit_schedule *s, int64_t now_t, int32_t sign) {
    for (int32_t i = 0; i < s->n_runs; i++) {
        const int64_t first = max_i64(s->runs[i].first, now_t);
        const int64_t end = run_end(s, i);
        if (first < end && s->runs[i].size > 1) {
            admit_ring_add(a, a->extra, first - now_t, end - first, sign * (s->runs[i].size - 1));
        }
    }
}

bool admit_pieces_next(struct admit_pieces *p) {
    const struct admit_schedule *s = p->s;
    if (p->t >= s->n_steps) {
        return false;
    }
    while (run_end(s, p->i_run) <= p->t) {
        p->i_run++;
    }
    const struct admit_run *run = &s->runs[p->i_run];
    const int64_t n_page = p->a->params.n_page;
    const int64_t n_tokens = run->before + (int64_t) run->size * (p->t - run->first + 1); // after step t
    const int64_t n_pages = (n_tokens + n_page - 1) / n_page;
    const int64_t n_same = (n_pages * n_page - n_tokens) / run->size + 1; // steps until a further page is needed
    p->n = min_i64(n_same, run_end(s, p->i_run) - p->t);
    p->i_step = p->t - p->now_t;
    const int64_t step = p->a->now + p->i_step;
    while (p->above >= 0 && p->a->nodes[p->above].end <= step) {
        p->n_kept += p->n_above;
        p->above = p->a->nodes[p->above].parent;
        p->n_above = p->above >= 0 ? p->a->nodes[p->above].n_pages : 0;
    }
    if (p->above >= 0) {
        p->n = min_i64(p->n, p->a->nodes[p->above].end - step);
    }
    p->n_pages = (int32_t) n_pages - p->base + p->n_kept;
    p->t += p->n;
    return true;
}
