// SPDX-License-Identifier: MIT
// order_beam.c: a beam search over sets of tasks that have run, for parts of any size. Each step adds one task to each state. Of
// the resulting states, it keeps the `width` states with the lowest peak; among equal peaks, those with the fewest live bytes.
// With width 1, the result is a greedy order. A task is free if it raises neither the live bytes nor the peak. If a state has
// free tasks, only one of them is tried. A step takes width * (ready tasks + n / 64) time. The width shrinks, down to 1, so that
// the search stays within WORK_MAX. If the work is used up all the same, the search gives up. The memory is O(n * width).

#include "base/min.h"
#include "plan/order/order.h"

#include <string.h>

#define WORK_MAX 6000000 // tasks tried, plus words copied / 8; about 0.2 s

struct state {
    uint64_t live, peak;
    uint64_t hash;  // hash of the set of tasks that have run
    uint32_t trace; // index in traces of the last task
};

struct trace {
    uint32_t parent; // index in traces, UINT32_MAX: none
    int32_t task;
};

// A possible state of the next step: the state with index `state` of this step, after which `task` has run.
struct candidate {
    uint64_t peak, live, hash; // of the possible state
    int32_t state, task;
};

// Index `now` of an array [2] is this step, index `!now` the next step.
struct beam {
    const struct order_part *p;
    size_t n_words; // words per set
    int32_t width;
    int64_t work; // remaining work
    uint64_t limit;
    uint64_t *key;           // [n] random words; the hash of a set is the xor of its tasks' words
    uint64_t *mask;          // [n_blocks] users as a set; NULL if a set has several words
    struct state *states[2]; // [width]
    uint64_t *done[2];       // [width * n_words] tasks that have run
    uint64_t *ready[2];      // [width * n_words] tasks that can run
    int32_t n_states;
    struct trace *traces;
    size_t n_traces, n_traces_cap;
    struct candidate *candidates;
    size_t n_candidates, n_candidates_cap;
    uint32_t *table; // hash table: index of a candidate + 1, 0: empty entry
    size_t n_table;  // a power of two, >= 2 * candidates
};

static bool set_has(const uint64_t *set, int32_t t) {
    return (set[t >> 6] >> (t & 63) & 1) != 0;
}

static bool is_last_user(const struct beam *m, int32_t b, const uint64_t *done, int32_t t) {
    const struct order_part *p = m->p;
    if (m->mask != NULL) {
        return (m->mask[b] & ~done[0]) == (uint64_t) 1 << t;
    }
    for (int32_t k = p->users.start[b + 1]; k-- > p->users.start[b];) {
        if (p->users.at[k] != t && !set_has(done, p->users.at[k])) {
            return false;
        }
    }
    return true;
}

// Returns the live bytes after task t. *peak: the live bytes while t runs.
static uint64_t task_effect(const struct beam *m, const uint64_t *done, uint64_t live, int32_t t, uint64_t *peak) {
    const struct order_part *p = m->p;
    uint64_t need = p->need[t];
    for (int32_t k = p->takeover.start[t]; k < p->takeover.start[t + 1] && need > 0; k++) {
        if (is_last_user(m, p->takeover.at[k], done, t)) {
            need = 0;
        }
    }
    *peak = live + need;
    live += p->stay[t];
    for (int32_t k = p->used.start[t]; k < p->used.start[t + 1]; k++) {
        live -= is_last_user(m, p->used.at[k], done, t) ? p->size[p->used.at[k]] : 0;
    }
    return live;
}

static bool candidate_before(const struct candidate *a, const struct candidate *b) {
    if (a->peak != b->peak) {
        return a->peak < b->peak;
    }
    return a->live != b->live ? a->live < b->live : a->hash < b->hash;
}

static bool state_follow(struct beam *m, int32_t s, int now) {
    const struct state *state = &m->states[now][s];
    const uint64_t *done = m->done[now] + (size_t) s * m->n_words, *ready = m->ready[now] + (size_t) s * m->n_words;
    const size_t n_before = m->n_candidates;
    for (size_t w = 0; w < m->n_words; w++) {
        for (uint64_t r = ready[w]; r != 0; r &= r - 1) {
            const int32_t t = (int32_t) (w * 64) + __builtin_ctzll(r);
            uint64_t peak;
            const uint64_t live = task_effect(m, done, state->live, t, &peak);
            m->work--;
            const bool is_free = live <= state->live && peak <= state->peak;
            peak = max_u64(peak, state->peak);
            if (peak >= m->limit) {
                continue;
            }
            if (!BERTH_GROW(&m->candidates, &m->n_candidates_cap, m->n_candidates + 1)) {
                return false;
            }
            if (is_free) {
                m->n_candidates = n_before;
            }
            m->candidates[m->n_candidates++] = (struct candidate){peak, live, state->hash ^ m->key[t], s, t};
            if (is_free) {
                return true;
            }
        }
    }
    return true;
}

static bool drop_duplicates(struct beam *m) {
    if (m->n_table < 2 * m->n_candidates) {
        size_t n = m->n_table == 0 ? 256 : m->n_table;
        while (n < 2 * m->n_candidates) {
            n *= 2;
        }
        berth_free(m->table);
        m->table = berth_malloc(n * sizeof *m->table);
        m->n_table = m->table == NULL ? 0 : n;
        if (m->table == NULL) {
            return false;
        }
    }
    size_t n_slots = 256;
    while (n_slots < 2 * m->n_candidates) {
        n_slots *= 2;
    }
    memset(m->table, 0, n_slots * sizeof *m->table);
    size_t n = 0;
    for (size_t i = 0; i < m->n_candidates; i++) {
        size_t at = (size_t) m->candidates[i].hash & (n_slots - 1);
        while (m->table[at] != 0 && m->candidates[m->table[at] - 1].hash != m->candidates[i].hash) {
            at = (at + 1) & (n_slots - 1);
        }
        if (m->table[at] == 0) {
            m->candidates[n] = m->candidates[i];
            m->table[at] = (uint32_t) ++n;
        } else if (m->candidates[i].peak < m->candidates[m->table[at] - 1].peak) {
            m->candidates[m->table[at] - 1] = m->candidates[i];
        }
    }
    m->n_candidates = n;
    return true;
}

// Keeps the `width` best candidates, by quickselect with Hoare's partition.
static void select_best(struct beam *m) {
    struct candidate *c = m->candidates;
    size_t lo = 0, hi = m->n_candidates;
    const size_t want = (size_t) m->width;
    while (lo < want && want < hi) {
        const struct candidate pivot = c[lo + (hi - 1 - lo) / 2];
        size_t i = lo, j = hi - 1;
        for (;; i++, j--) {
            while (candidate_before(&c[i], &pivot)) {
                i++;
            }
            while (candidate_before(&pivot, &c[j])) {
                j--;
            }
            if (i >= j) {
                break;
            }
            const struct candidate swap = c[i];
            c[i] = c[j];
            c[j] = swap;
        }
        // Now [lo, j] <= pivot <= [j + 1, hi), and both ranges are not empty.
        if (want <= j + 1) {
            hi = j + 1;
        } else {
            lo = j + 1;
        }
    }
    m->n_candidates = min_size(m->n_candidates, want);
}

static bool candidate_take(struct beam *m, const struct candidate *c, int32_t s, int now) {
    const struct order_part *p = m->p;
    const size_t n = m->n_words;
    const uint64_t *from_done = m->done[now] + (size_t) c->state * n, *from_ready = m->ready[now] + (size_t) c->state * n;
    uint64_t *done = m->done[!now] + (size_t) s * n, *ready = m->ready[!now] + (size_t) s * n;
    memcpy(done, from_done, n * sizeof *done);
    memcpy(ready, from_ready, n * sizeof *ready);
    done[c->task >> 6] |= (uint64_t) 1 << (c->task & 63);
    ready[c->task >> 6] &= ~((uint64_t) 1 << (c->task & 63));
    for (int32_t k = p->succ.start[c->task]; k < p->succ.start[c->task + 1]; k++) {
        const int32_t t = p->succ.at[k];
        int32_t j = p->pred.start[t];
        while (j < p->pred.start[t + 1] && set_has(done, p->pred.at[j])) {
            j++;
        }
        if (j == p->pred.start[t + 1]) {
            ready[t >> 6] |= (uint64_t) 1 << (t & 63);
        }
    }
    if (m->n_traces >= UINT32_MAX || !BERTH_GROW(&m->traces, &m->n_traces_cap, m->n_traces + 1)) {
        return false;
    }
    m->traces[m->n_traces] = (struct trace){m->states[now][c->state].trace, c->task};
    m->states[!now][s] = (struct state){c->live, c->peak, c->hash, (uint32_t) m->n_traces++};
    return true;
}

static bool beam_init(struct beam *m, struct berth_arrays *mem) {
    const struct order_part *p = m->p;
    const size_t n = (size_t) p->n, n_sets = (size_t) m->width * m->n_words;
    m->key = berth_arrays_new(mem, n, sizeof *m->key);
    for (int i = 0; i < 2; i++) {
        m->states[i] = berth_arrays_new(mem, (size_t) m->width, sizeof *m->states[i]);
        m->done[i] = berth_arrays_new(mem, n_sets, sizeof *m->done[i]);
        m->ready[i] = berth_arrays_new(mem, n_sets, sizeof *m->ready[i]);
    }
    if (m->n_words == 1) {
        m->mask = berth_arrays_new(mem, (size_t) p->n_blocks, sizeof *m->mask);
    }
    if (mem->has_failed) {
        return false;
    }
    uint64_t x = 0x2545f4914f6cdd1du;
    for (size_t i = 0; i < n; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        m->key[i] = x * 0x9e3779b97f4a7c15u;
        if (p->pred.start[i] == p->pred.start[i + 1]) {
            m->ready[0][i >> 6] |= (uint64_t) 1 << (i & 63);
        }
    }
    for (int32_t b = 0; m->mask != NULL && b < p->n_blocks; b++) {
        for (int32_t k = p->users.start[b]; k < p->users.start[b + 1]; k++) {
            m->mask[b] |= (uint64_t) 1 << p->users.at[k];
        }
    }
    m->states[0][0] = (struct state){.live = p->live, .peak = p->bound, .trace = UINT32_MAX};
    m->n_states = 1;
    return true;
}

enum order_result order_beam(const struct order_part *p, uint64_t limit, int32_t width, int32_t *order, uint64_t *peak) {
    if (p->bound >= limit) {
        return ORDER_NONE_BETTER;
    }
    struct berth_arrays mem = {0};
    struct beam m = {.p = p, .n_words = ((size_t) p->n + 63) / 64, .width = max_i32(width, 1), .work = WORK_MAX, .limit = limit};
    enum order_result result = ORDER_OUT_OF_MEMORY;
    if (!beam_init(&m, &mem)) {
        goto fail;
    }
    int now = 0;
    for (int32_t i = 0; i < p->n; i++, now = !now) {
        const int64_t before = m.work;
        m.n_candidates = 0;
        for (int32_t s = 0; s < m.n_states; s++) {
            if (!state_follow(&m, s, now)) {
                goto fail;
            }
        }
        m.work -= m.n_states * (int64_t) (m.n_words / 8);
        // set_work: work per state in this step.
        const int64_t set_work = (before - m.work) / m.n_states + 1, width_max = m.work / set_work / (p->n - i);
        if (width_max < m.width) {
            m.width = (int32_t) max_i64(width_max, 1);
        }
        if (m.work < 0) {
            result = ORDER_GAVE_UP;
            goto fail;
        }
        if (m.n_candidates > 1 && !drop_duplicates(&m)) {
            goto fail;
        }
        select_best(&m);
        for (size_t c = 0; c < m.n_candidates; c++) {
            if (!candidate_take(&m, &m.candidates[c], (int32_t) c, now)) {
                goto fail;
            }
        }
        m.n_states = (int32_t) m.n_candidates;
        if (m.n_states == 0) {
            result = ORDER_GAVE_UP;
            goto fail;
        }
    }
    const struct state *best = &m.states[now][0];
    for (int32_t s = 1; s < m.n_states; s++) {
        if (m.states[now][s].peak < best->peak) {
            best = &m.states[now][s];
        }
    }
    *peak = best->peak;
    uint32_t x = best->trace;
    for (int32_t i = p->n; i-- > 0; x = m.traces[x].parent) {
        order[i] = m.traces[x].task;
    }
    result = ORDER_BETTER;
fail:
    berth_free(m.traces);
    berth_free(m.candidates);
    berth_free(m.table);
    berth_arrays_free(&mem);
    return result;
}
