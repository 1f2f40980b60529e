// SPDX-License-Identifier: MIT
// assign_expand.c: backends run on over the ops between those that are fixed. Where two devices meet, the border is put where the
// fewest bytes cross. Linear in the edges.

#include "sched/assign.h"

#include <string.h>

#define BORDER_AHEAD 64 // nodes behind a gap that are looked at for readers

// Has one of the two the source row at hand and the other not? Then *is_left tells which.
static bool one_has(struct assign *a, int32_t s, int left, int right, bool *is_left) {
    if (sched_is_open(a->memo, s)) {
        return false;
    }
    *is_left = sched_reaches(a->sched, a->memo, left, s);
    return *is_left != sched_reaches(a->sched, a->memo, right, s);
}

// The nodes from g0 up to g1 are free; before them runs `left`, after them `right`. The number of them that go to left so that
// the fewest bytes cross; the most nodes where it is equal. What is read from elsewhere crosses either way. A border after c
// nodes lets a source of left's cross if its last reader is not among the first c, and one of right's if its first reader is.
// Readers that are counted are marked in rows[].slots, which no other pass uses before places are given.
static int32_t border(struct assign *a, int32_t g0, int32_t g1, int left, int right) {
    struct sched_memo *memo = a->memo;
    const int32_t n = g1 - g0;
    memset(a->change, 0, ((size_t) n + 2) * sizeof a->change[0]);
    bool has_right = false;
    int32_t end = g1 + 1; // readers behind the gap count as far as right is going to run
    while (end < memo->rec.n_nodes && end < g1 + BORDER_AHEAD && (!assign_is_set(a, end) || assign_backend_of(a, end) == right)) {
        end++;
    }
    for (int32_t i = end - 1; i >= g0; i--) { // backwards: the last reader comes first
        const struct record_row *row = &memo->rec.rows[i];
        for (int32_t k = row->src; k < row->src + row->n_src; k++) {
            const int32_t s = memo->rec.srcs[k], base = sched_base(memo, s);
            const bool in_gap = base >= g0 && base < g1;
            bool is_left = true;
            if (memo->rows[s].slots >= 0 || (!in_gap && !one_has(a, s, left, right, &is_left))) {
                continue;
            }
            if (!is_left) {
                has_right = true;
                continue;
            }
            const int32_t made = in_gap ? base - g0 + 1 : 0, until = i - g0 < n ? i - g0 : n;
            if (made <= until) {
                a->change[made] += sched_nbytes(memo, s);
                a->change[until + 1] -= sched_nbytes(memo, s);
            }
            memo->rows[s].slots = i;
        }
    }
    for (int32_t i = g0; has_right && i < g1; i++) {
        const struct record_row *row = &memo->rec.rows[i];
        for (int32_t k = row->src; k < row->src + row->n_src; k++) {
            const int32_t s = memo->rec.srcs[k];
            bool is_left = true;
            if (memo->rows[s].slots < 0 && one_has(a, s, left, right, &is_left) && !is_left) {
                a->change[i - g0 + 1] += sched_nbytes(memo, s);
                memo->rows[s].slots = i;
            }
        }
    }
    for (int32_t i = g0; i < end; i++) {
        const struct record_row *row = &memo->rec.rows[i];
        for (int32_t k = row->src; k < row->src + row->n_src; k++) {
            memo->rows[memo->rec.srcs[k]].slots = -1;
        }
    }
    int32_t best = 0;
    uint64_t bytes = 0, least = UINT64_MAX;
    for (int32_t c = 0; c <= n; c++) {
        bytes += a->change[c];
        best = bytes <= least ? c : best;
        least = bytes <= least ? bytes : least;
    }
    return best;
}

void sched_spread_down(struct assign *a, bool with_last) {
    int cur = -1;
    for (int32_t i = 0; a->n_free > 0 && i < a->memo->rec.n_nodes; i++) {
        if (!assign_is_node(a, i)) {
            continue;
        }
        if (assign_is_set(a, i)) {
            cur = assign_backend_of(a, i);
            cur = cur == a->last && !with_last ? -1 : cur;
            continue;
        }
        if (cur < 0) {
            continue;
        }
        int32_t end = i;
        while (end < a->memo->rec.n_nodes && (!assign_is_node(a, end) || !assign_is_set(a, end))) {
            end++;
        }
        const int right = end < a->memo->rec.n_nodes ? assign_backend_of(a, end) : -1;
        const bool meet = right >= 0 && right != cur && (right != a->last || with_last);
        const int32_t stop = meet ? i + border(a, i, end, cur, right) : end;
        for (; i < end; i++) {
            if (i < stop && assign_is_node(a, i) && !assign_is_set(a, i)) {
                (void) assign_set_if_able(a, i, cur, BERTH_SCHED_EXPANSION);
            }
        }
        i = end - 1;
    }
}

void sched_spread_up(struct assign *a, bool with_last) {
    int cur = -1;
    for (int32_t i = a->memo->rec.n_nodes - 1; a->n_free > 0 && i >= 0; i--) {
        if (!assign_is_node(a, i)) {
            continue;
        }
        if (assign_is_set(a, i)) {
            cur = assign_backend_of(a, i);
            cur = cur == a->last && !with_last ? -1 : cur;
        } else if (cur >= 0) {
            (void) assign_set_if_able(a, i, cur, BERTH_SCHED_EXPANSION);
        }
    }
}
