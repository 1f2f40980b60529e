// SPDX-License-Identifier: MIT
// search.c: replays the log of a search. docs/dev/proofs.md proves that every step is sound: whatever the steps are, a contradiction
// is reached only if no plan fits into the capacity. So an error in the log can make the check fail, but not accept a false claim.

#include "base/min.h"
#include "proof/proof.h"

#include <stdlib.h>

#define UNITS_LIMIT ((uint64_t) 1 << 60) // the largest capacity: sums of a few offsets and sizes do not overflow

// An entry of the undo log. at == NULL: block `old` was assumed to be at its low.
struct change {
    int64_t *at, old;
};

struct block {
    int64_t first, last; // steps
    int64_t size;        // units
    int64_t low;         // the block is here or higher; if it is placed, its offset
    int64_t sky;         // the highest end of a placed block with a common section
    int64_t excluded;    // the last step that excludes the block
    int32_t begin, end;  // sections [begin, end)
    bool is_placed;
};

struct search {
    struct proof_reader *r;
    int64_t cap; // units
    int32_t n, n_sec;
    struct block *b;        // [n]
    int32_t *ids;           // [n] blocks of the section that a step names
    struct change *changes; // undo log
    size_t n_changes, changes_cap;
    bool is_contradiction, is_out_of_memory;
    int64_t n_steps;
    struct berth_arrays mem;
};

// ---- blocks ----

// Takes one block: items of one alias group that are alive without a gap. *pad: the largest padding so far, in bytes.
static bool block_take(struct search *s, struct proof_pool *p, uint64_t unit, uint64_t align, uint64_t *pad) {
    struct block *b = &s->b[s->n++];
    uint64_t n_members, k, size = UINT64_MAX;
    int32_t group = -1;
    if (!proof_number(s->r, (uint64_t) p->n, &n_members, NULL)) {
        return false;
    }
    for (uint64_t m = 0; m < n_members; m++) {
        if (!proof_number(s->r, (uint64_t) p->n - 1, &k, NULL)) {
            return false;
        }
        const struct berth_plan_item *item = proof_item(p, k);
        if (m == 0) {
            group = p->group[k];
            b->first = item->first;
            b->last = item->last;
        }
        if (p->group[k] != group || item->first < b->first || (item->first > b->last && item->first - 1 > b->last)) {
            return proof_refuse(s->r, "item %llu does not continue the block", (unsigned long long) k);
        }
        size = min_u64(item->size, size);
        b->last = max_i64(item->last, b->last);
    }
    if (n_members == 0 || size == 0 || p->is_used[group] || p->align[group] % align != 0) {
        return proof_refuse(s->r, "the items of a block cannot be used");
    }
    p->is_used[group] = true;
    const uint64_t padding = (align - size % align) % align;
    *pad = max_u64(padding, *pad);
    // A block that does not fit is a contradiction whatever its size is.
    b->size = (int64_t) min_u64((size + padding) / unit, (uint64_t) s->cap + 1);
    return (size + padding) % unit == 0 || proof_refuse(s->r, "the size of a block is not a multiple of the unit");
}

struct event {
    int64_t step;
    int32_t i;
    bool is_end;
};

static int by_step(const void *a, const void *b) {
    const struct event *x = a, *y = b;
    if (x->step != y->step) {
        return x->step < y->step ? -1 : 1;
    }
    return x->is_end - y->is_end;
}

// Numbers the sections: a new one begins where a block begins after another has ended in the section before.
static bool sections_find(struct search *s) {
    struct event *events = berth_arrays_new(&s->mem, 2 * (size_t) s->n, sizeof *events);
    if (events == NULL) {
        return false;
    }
    for (int32_t i = 0; i < s->n; i++) {
        events[2 * i] = (struct event){s->b[i].first, i, false};
        events[2 * i + 1] = (struct event){s->b[i].last, i, true};
    }
    qsort(events, 2 * (size_t) s->n, sizeof *events, by_step);
    bool has_ended = true;
    s->n_sec = 0;
    for (int32_t e = 0; e < 2 * s->n; e++) {
        if (events[e].is_end) {
            s->b[events[e].i].end = s->n_sec;
        } else {
            s->n_sec += has_ended;
            s->b[events[e].i].begin = s->n_sec - 1;
        }
        has_ended = events[e].is_end;
    }
    return true;
}

// ---- the state ----

static void change_add(struct search *s, int64_t *at, int64_t old) {
    s->is_out_of_memory |= !BERTH_GROW(&s->changes, &s->changes_cap, s->n_changes + 1);
    if (!s->is_out_of_memory) {
        s->changes[s->n_changes++] = (struct change){at, old};
    }
}

// Block i is at `low` or higher. After a contradiction nothing changes, so all numbers stay below 2 * UNITS_LIMIT.
static void block_raise(struct search *s, int32_t i, int64_t low) {
    if (low > s->b[i].low && !s->is_contradiction) {
        change_add(s, &s->b[i].low, s->b[i].low);
        s->b[i].low = low;
        s->is_contradiction = low + s->b[i].size > s->cap;
    }
}

// Returns whether block j is not placed and has a common section with block i.
static bool is_near(const struct search *s, int32_t i, int32_t j) {
    return !s->b[j].is_placed && j != i && s->b[i].begin < s->b[j].end && s->b[j].begin < s->b[i].end;
}

// P: assumes that block i is at low[i].
static bool step_place(struct search *s, int32_t i) {
    const int64_t end = s->b[i].low + s->b[i].size;
    change_add(s, NULL, i);
    s->b[i].is_placed = true;
    for (int32_t j = 0; j < s->n; j++) {
        if (is_near(s, i, j)) {
            if (s->b[j].low < s->b[i].low) {
                return proof_refuse(s->r, "block %d may be below block %d", j, i);
            }
            change_add(s, &s->b[j].sky, s->b[j].sky);
            s->b[j].sky = max_i64(end, s->b[j].sky);
            block_raise(s, j, end);
        }
    }
    return true;
}

// X: the last assumption led to a contradiction, so its block is higher.
static bool step_close(struct search *s) {
    int32_t i = -1;
    while (i < 0 && s->n_changes > 0 && s->is_contradiction) {
        const struct change c = s->changes[--s->n_changes];
        if (c.at == NULL) {
            i = (int32_t) c.old;
        } else {
            *c.at = c.old;
        }
    }
    if (i < 0) {
        return proof_refuse(s->r, "there is no contradiction, or no assumption");
    }
    s->b[i].is_placed = false;
    s->is_contradiction = false;
    block_raise(s, i, s->b[i].low + 1);
    return true;
}

// Lists in ids the blocks of a section that are not placed. Returns their number.
static int32_t section_list(struct search *s, int32_t sec) {
    int32_t n = 0;
    for (int32_t i = 0; i < s->n; i++) {
        if (s->b[i].begin <= sec && sec < s->b[i].end && !s->b[i].is_placed) {
            s->ids[n++] = i;
        }
    }
    return n;
}

// N: of the blocks of a section that are at `least` or higher and not excluded, those that cannot be the lowest are above another.
static void step_not_first(struct search *s, int32_t sec, int64_t least) {
    int64_t latest = s->cap, end = INT64_MAX;
    int32_t n = 0;
    for (int32_t k = 0, n_all = section_list(s, sec); k < n_all; k++) {
        const int32_t i = s->ids[k];
        if (s->b[i].low >= least && s->b[i].excluded != s->n_steps && latest >= 0) {
            s->ids[n++] = i;
            latest -= s->b[i].size;
        }
    }
    for (int32_t k = 0; k < n; k++) {
        const struct block *b = &s->b[s->ids[k]];
        if (b->low <= latest) {
            end = min_i64(b->low + b->size, end);
        }
    }
    s->is_contradiction |= n > 0 && end == INT64_MAX; // none can be the lowest
    for (int32_t k = 0; k < n; k++) {
        if (s->b[s->ids[k]].low > latest) {
            block_raise(s, s->ids[k], end);
        }
    }
}

static bool is_alive(const struct search *s, int32_t i, int32_t sec) {
    return s->b[i].begin <= sec && sec < s->b[i].end;
}

// A, B: a block that is alive in section `to` but not in `from` overlaps the addresses of a block of `from` that is not alive in `to`,
// if it is larger than the unused units of `from`.
static void step_border(struct search *s, int32_t from, int32_t to) {
    int64_t floor = s->cap, slack = s->cap, least = INT64_MAX, top = 0;
    int32_t only = -1, n_own = 0;
    for (int32_t k = 0, n = section_list(s, from); k < n; k++) {
        const int32_t i = s->ids[k];
        floor = min_i64(s->b[i].low, floor);
        slack -= slack >= 0 ? s->b[i].size : 0;
        if (!is_alive(s, i, to)) {
            least = min_i64(s->b[i].low, least);
            only = i;
            n_own++;
        }
    }
    slack -= floor;
    s->is_contradiction |= slack < 0;
    for (int32_t k = 0, n = section_list(s, to); k < n && !s->is_contradiction; k++) {
        const int32_t i = s->ids[k];
        if (!is_alive(s, i, from) && s->b[i].low >= floor && s->b[i].size > slack) {
            top = max_i64(s->b[i].low + s->b[i].size, top);
            s->is_contradiction = n_own == 0;
            block_raise(s, i, least - slack);
        }
    }
    if (n_own == 1) {
        block_raise(s, only, top - slack - s->b[only].size);
    }
}

// R: block i is above the end of its lowest neighbour. D: no neighbour keeps it from moving down, so its place is impossible.
static bool step_rest(struct search *s, int32_t i, bool is_on) {
    int64_t end = s->cap + 1;
    bool is_free = true;
    for (int32_t j = 0; j < s->n; j++) {
        if (is_near(s, i, j)) {
            end = min_i64(s->b[j].low + s->b[j].size, end);
            is_free &= s->b[j].low >= s->b[i].sky + s->b[i].size;
        }
    }
    if (s->b[i].low <= s->b[i].sky || (!is_on && !is_free)) {
        return proof_refuse(s->r, "block %d may be where it is", i);
    }
    s->is_contradiction |= !is_on;
    block_raise(s, i, end);
    return true;
}

static bool is_same_life(const struct search *s, int32_t i, int32_t j) {
    return i != j && s->b[i].begin == s->b[j].begin && s->b[i].end == s->b[j].end;
}

// T: of the equal blocks j < i, i is above j.
static bool step_twin(struct search *s, int32_t i, int32_t j) {
    if (j >= i || s->b[j].is_placed || s->b[i].size != s->b[j].size || !is_same_life(s, i, j)) {
        return proof_refuse(s->r, "blocks %d and %d are not equal", i, j);
    }
    block_raise(s, i, s->b[j].low + s->b[j].size);
    return true;
}

// S: no larger block with the same lifetime is directly on the placed block i.
static void step_sorted(struct search *s, int32_t i) {
    const int64_t end = s->b[i].low + s->b[i].size;
    for (int32_t j = 0; j < s->n; j++) {
        if (!s->b[j].is_placed && is_same_life(s, i, j) && s->b[j].size > s->b[i].size && s->b[j].low == end) {
            block_raise(s, j, end + 1);
        }
    }
}

// V: no block of the sections [lo, hi) can be the lowest below `level`. level 0: there is no limit.
static bool step_valley(struct search *s, int32_t lo, int32_t hi, int64_t level) {
    const int64_t below = level == 0 ? INT64_MAX : level;
    for (int pass = 0; pass < 2; pass++) {
        for (int32_t i = 0; i < s->n; i++) {
            if (s->b[i].is_placed || s->b[i].begin >= hi || s->b[i].end <= lo || s->b[i].low >= below) {
                continue;
            }
            if (pass == 0 && (s->b[i].begin < lo || s->b[i].end > hi || s->b[i].low <= s->b[i].sky)) {
                return proof_refuse(s->r, "block %d can be below %lld", i, (long long) below);
            }
            if (pass == 1) {
                block_raise(s, i, min_i64(below, s->cap + 1));
            }
        }
    }
    return true;
}

// W: block i is the largest of the blocks that are alive in all of its sections, so it is below all others, but it is above its sky.
static bool step_wide(struct search *s, int32_t i) {
    for (int32_t j = 0; j < s->n; j++) {
        if (is_near(s, i, j) &&
            (s->b[j].begin < s->b[i].begin || s->b[j].end > s->b[i].end || s->b[j].low < s->b[i].sky ||
                (is_same_life(s, i, j) && (s->b[j].size > s->b[i].size || (s->b[j].size == s->b[i].size && j < i))))) {
            return proof_refuse(s->r, "block %d may be below block %d", j, i);
        }
    }
    s->is_contradiction |= s->b[i].low > s->b[i].sky;
    return s->is_contradiction || proof_refuse(s->r, "block %d may be at the bottom", i);
}

// ---- steps ----

// The step N, with its list of excluded blocks.
static bool section_take(struct search *s) {
    uint64_t sec, least = 0, i;
    bool is_last;
    if (!proof_number(s->r, (uint64_t) s->n_sec - 1, &sec, &is_last) ||
        (!is_last && !proof_number(s->r, UNITS_LIMIT, &least, &is_last))) {
        return false;
    }
    while (!is_last) {
        if (!proof_number(s->r, (uint64_t) s->n - 1, &i, &is_last)) {
            return false;
        }
        s->b[i].excluded = s->n_steps;
    }
    step_not_first(s, (int32_t) sec, (int64_t) least);
    return true;
}

// Takes the n arguments of a step; the first one is a block or a section.
static bool arguments_take(struct search *s, int n, uint64_t most, int64_t *arguments) {
    for (int k = 0; k < n; k++) {
        uint64_t x;
        bool is_last;
        if (!proof_number(s->r, k < 2 ? most : UNITS_LIMIT, &x, &is_last) || is_last != (k == n - 1)) {
            return proof_refuse(s->r, "the step has another number of arguments");
        }
        arguments[k] = (int64_t) x;
    }
    return true;
}

static bool step_take(struct search *s) {
    const int letter = proof_peek(s->r);
    int64_t a[3] = {0};
    if (letter < 'A' || letter > 'X' || !proof_byte(s->r, (char) letter) || (s->is_contradiction && letter == 'P')) {
        return proof_refuse(s->r, "a step cannot follow here");
    }
    s->n_steps++;
    const bool is_block = letter != 'A' && letter != 'B' && letter != 'V';
    const int n_arguments = letter == 'T' ? 2 : letter == 'V' ? 3 : 1;
    if (letter == 'X') {
        return proof_byte(s->r, '\n') && step_close(s);
    }
    if (letter == 'N') {
        return section_take(s);
    }
    if (!arguments_take(s, n_arguments, (uint64_t) (is_block ? s->n - 1 : s->n_sec), a)) {
        return false;
    }
    const int32_t i = (int32_t) a[0];
    if (is_block && s->b[i].is_placed != (letter == 'S')) {
        return proof_refuse(s->r, "block %d is placed, or S names one that is not", i);
    }
    switch (letter) {
        case 'P': return step_place(s, i);
        case 'R':
        case 'D': return step_rest(s, i, letter == 'R');
        case 'T': return step_twin(s, i, (int32_t) a[1]);
        case 'W': return step_wide(s, i);
        case 'V': return step_valley(s, i, (int32_t) a[1], a[2]);
        case 'S': step_sorted(s, i); return true;
        default: break;
    }
    const int32_t to = letter == 'A' ? i + 1 : i - 1;
    if ((letter != 'A' && letter != 'B') || i >= s->n_sec || to < 0 || to >= s->n_sec) {
        return proof_refuse(s->r, "there is no such step");
    }
    step_border(s, i, to);
    return true;
}

// ---- the statement ----

// Takes the capacity and the blocks, and checks that a plan below the bound would fit into the capacity.
static bool header_take(struct search *s, struct proof_pool *p, uint64_t bound) {
    uint64_t cap, unit, align, n, pad = 0;
    if (!proof_word(s->r, "search") || !proof_number(s->r, UNITS_LIMIT, &cap, NULL) ||
        !proof_number(s->r, UNITS_LIMIT, &unit, NULL) || !proof_number(s->r, UNITS_LIMIT, &align, NULL) ||
        !proof_word(s->r, "blocks") || !proof_number(s->r, (uint64_t) p->n, &n, NULL)) {
        return false;
    }
    if (unit == 0 || align == 0 || n == 0 || bound == 0) {
        return proof_refuse(s->r, "the unit, the alignment, the bound or the number of blocks is 0");
    }
    s->b = berth_arrays_new(&s->mem, (size_t) n, sizeof *s->b);
    s->ids = berth_arrays_new(&s->mem, (size_t) n, sizeof *s->ids);
    s->cap = (int64_t) cap;
    for (uint64_t i = 0; i < n && !s->mem.has_failed; i++) {
        if (!block_take(s, p, unit, align, &pad)) {
            return false;
        }
    }
    // A plan with a peak below the bound, with padded blocks, has a peak of at most bound - 1 + pad.
    return cap >= (bound - 1 + pad) / unit || proof_refuse(s->r, "the capacity is too small for the bound");
}

static bool steps_check(struct search *s, struct proof_pool *p, uint64_t bound) {
    if (!header_take(s, p, bound) || s->mem.has_failed || !sections_find(s) || !proof_word(s->r, "steps")) {
        return false;
    }
    while (proof_peek(s->r) != 'e') {
        if (!step_take(s) || s->is_out_of_memory) {
            return false;
        }
    }
    for (size_t k = 0; k < s->n_changes; k++) {
        s->is_contradiction &= s->changes[k].at != NULL; // false: an assumption is not refuted
    }
    return s->is_contradiction || proof_refuse(s->r, "the log ends without a contradiction");
}

bool proof_search(struct proof_reader *r, struct proof_pool *p, struct proof_claim *claim, bool *is_out_of_memory) {
    struct search s = {.r = r};
    const bool ok = steps_check(&s, p, claim->bound);
    *is_out_of_memory = s.is_out_of_memory || s.mem.has_failed;
    claim->n_steps = s.n_steps;
    berth_free(s.changes);
    berth_arrays_free(&s.mem);
    return ok;
}
