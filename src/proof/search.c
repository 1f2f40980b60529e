// SPDX-License-Identifier: MIT
// search.c: replays the log of a search. docs/dev/proofs.md proves that every step is sound: whatever the steps are, a contradiction
// is reached only if no plan fits into the capacity. So an error in the log can make the check fail, but not accept a false claim.

#include "base/min.h"
#include "base/multiple.h"
#include "proof/proof.h"

#define UNITS_LIMIT ((uint64_t) 1 << 60)      // the largest capacity: sums of a few offsets and sizes do not overflow
#define LOW_LIMIT ((int64_t) UNITS_LIMIT * 4) // above each `low`

struct block {
    int64_t size;       // units
    int64_t low;        // the block is here or higher; if it is placed, its offset
    int64_t sky;        // the highest end of a placed neighbour
    uint64_t excluded;  // the last step that excludes the block
    int32_t begin, end; // sections [begin, end)
    int32_t n_saved;    // the number of open assumptions when the block was last saved
    bool is_placed;
    struct block *prev, *next; // among the blocks that are not placed
};

struct change {
    struct block *at, old;
};

struct search {
    struct proof *p;
    int64_t cap; // units
    int32_t n, n_sec;
    struct block *b;        // [n + 1] b[n] is before the first and after the last block that is not placed
    int32_t n_open;         // number of open assumptions
    struct change *changes; // to undo; a block has at most one for each open assumption
    size_t n_changes, changes_cap;
    bool is_contradiction;
    struct berth_arrays mem;
};

// ---- the state ----

// Saves a block, to restore it when the last open assumption is closed.
static void block_save(struct search *s, struct block *b) {
    if (s->n_changes >= s->changes_cap && !BERTH_GROW(&s->changes, &s->changes_cap, s->n_changes + 1)) {
        s->mem.has_failed = true;
        return;
    }
    s->changes[s->n_changes++] = (struct change){b, *b};
    b->n_saved = s->n_open;
}

// A block is at `low` or higher, and a placed neighbour ends at `sky`. After a contradiction nothing changes, so all numbers stay
// below 2 * UNITS_LIMIT.
static void block_raise(struct search *s, struct block *b, int64_t low, int64_t sky) {
    if ((low > b->low || sky > b->sky) && !s->is_contradiction) {
        if (b->n_saved < s->n_open) {
            block_save(s, b);
        }
        b->low = max_i64(min_i64(low, LOW_LIMIT), b->low);
        b->sky = max_i64(sky, b->sky);
        s->is_contradiction = b->low + b->size > s->cap;
    }
}

static bool is_alive(const struct block *b, int32_t begin, int32_t end) {
    return b->begin < end && b->end > begin;
}

static bool is_same_life(const struct block *a, const struct block *b) {
    return a->begin == b->begin && a->end == b->end;
}

// Returns the next block that is not placed and is alive in a section of [begin, end). b == NULL: the first one. NULL: there is none.
static struct block *alive_next(const struct search *s, struct block *b, int32_t begin, int32_t end) {
    struct block *const limit = &s->b[s->n];
    do {
        b = b == NULL ? limit->next : b->next;
    } while (b != limit && !is_alive(b, begin, end));
    return b != limit ? b : NULL;
}

// ---- steps: false if a condition does not hold ----

// P: assumes that block b is at its low.
static bool step_place(struct search *s, struct block *b) {
    const int64_t end = b->low + b->size;
    s->n_open++;
    block_save(s, b);
    b->is_placed = true;
    b->prev->next = b->next;
    b->next->prev = b->prev;
    for (struct block *near = NULL; (near = alive_next(s, near, b->begin, b->end)) != NULL;) {
        if (near->low < b->low) {
            return false; // it may be below b
        }
        // A larger block with the same lifetime is not directly on b.
        block_raise(s, near, end + (is_same_life(near, b) && near->size > b->size), end);
    }
    return true;
}

// X: the last assumption led to a contradiction, so its block is higher.
static bool step_close(struct search *s) {
    if (!s->is_contradiction || s->n_open == 0 || s->n_changes == 0) {
        return false;
    }
    struct block *b;
    bool is_assumption;
    do {
        const struct change *c = &s->changes[--s->n_changes];
        b = c->at;
        is_assumption = b->is_placed; // the block of the assumption was saved first
        *b = c->old;
    } while (!is_assumption && s->n_changes > 0);
    b->prev->next = b;
    b->next->prev = b;
    s->n_open--;
    s->is_contradiction = false;
    block_raise(s, b, b->low + 1, 0);
    return true;
}

// N: of the blocks of a section that are at `least` or higher and not excluded, those that cannot be the lowest are above another.
static bool step_not_first(struct search *s, int32_t sec) {
    const int64_t least = s->p->is_line_end ? 0 : (int64_t) proof_number(s->p, UNITS_LIMIT);
    int64_t latest = s->cap, end = INT64_MAX;
    while (!s->p->is_line_end && !s->p->is_refused) {
        s->b[proof_number(s->p, (uint64_t) s->n - 1)].excluded = s->p->n_steps;
    }
    for (struct block *b = NULL; (b = alive_next(s, b, sec, sec + 1)) != NULL;) {
        if (b->low < least) {
            b->excluded = s->p->n_steps;
        }
        if (b->excluded < s->p->n_steps) {
            latest = max_i64(latest - b->size, -1);
        }
    }
    for (struct block *b = NULL; (b = alive_next(s, b, sec, sec + 1)) != NULL;) {
        if (b->excluded < s->p->n_steps && b->low <= latest) {
            end = min_i64(b->low + b->size, end);
        }
    }
    s->is_contradiction |= latest < s->cap && end == INT64_MAX; // none of the chosen blocks can be the lowest
    for (struct block *b = NULL; (b = alive_next(s, b, sec, sec + 1)) != NULL;) {
        if (b->excluded < s->p->n_steps && b->low > latest) {
            block_raise(s, b, end, 0);
        }
    }
    return true;
}

// A, B: a block that is alive in section `to` but not in `from` overlaps the addresses of a block of `from` that is not alive in `to`,
// if it is larger than the unused units of `from`.
static bool step_border(struct search *s, int32_t from, int32_t to) {
    int64_t floor = s->cap, slack = s->cap, least = LOW_LIMIT, top = 0;
    struct block *own = NULL, *only = NULL; // a block of `from` that is not alive in `to`; NULL in `only` if there are several
    for (struct block *b = NULL; (b = alive_next(s, b, from, from + 1)) != NULL;) {
        floor = min_i64(b->low, floor);
        slack = max_i64(slack - b->size, -1);
        if (!is_alive(b, to, to + 1)) {
            least = min_i64(b->low, least);
            only = own == NULL ? b : NULL;
            own = b;
        }
    }
    slack -= floor;
    s->is_contradiction |= slack < 0;
    for (struct block *b = NULL; (b = alive_next(s, b, to, to + 1)) != NULL && !s->is_contradiction;) {
        if (!is_alive(b, from, from + 1) && b->low >= floor && b->size > slack) {
            top = max_i64(b->low + b->size, top);
            s->is_contradiction = own == NULL;
            block_raise(s, b, least - slack, 0);
        }
    }
    if (only != NULL) {
        block_raise(s, only, top - slack - only->size, 0);
    }
    return true;
}

// T: block b is above the equal block before it.
// R: block b is not at its sky, so it is directly on a neighbour, and a neighbour keeps it from moving down.
// W: block b is the largest of the blocks that are alive in all of its sections, so it is below all others, but it is above its sky.
static bool step_near(struct search *s, int letter, struct block *b) {
    int64_t end = s->cap + 1, twin_end = 0;
    bool is_held = false, is_lowest = true;
    for (struct block *near = NULL; (near = alive_next(s, near, b->begin, b->end)) != NULL;) {
        const bool is_same = is_same_life(near, b), is_twin = is_same && near->size == b->size && near < b;
        const bool is_inside = near->begin >= b->begin && near->end <= b->end;
        if (near != b) {
            is_held |= near->low < b->sky + b->size;
            is_lowest &= is_inside && near->low >= b->sky && !is_twin && !(is_same && near->size > b->size);
            end = min_i64(near->low + near->size, end);
            if (is_twin) {
                twin_end = near->low + near->size;
            }
        }
    }
    if (letter != 'T' && (b->low <= b->sky || (letter == 'W' && !is_lowest))) {
        return false;
    }
    s->is_contradiction |= letter == 'W' || (letter == 'R' && !is_held);
    block_raise(s, b, letter == 'T' ? twin_end : end, 0);
    return true;
}

// V: no block of the sections [begin, end) can be the lowest below `level`. level 0: there is no limit.
static bool step_valley(struct search *s, int32_t begin) {
    const int32_t end = (int32_t) proof_number(s->p, (uint64_t) s->n_sec);
    const int64_t level = (int64_t) proof_number(s->p, UNITS_LIMIT), below = level == 0 ? s->cap + 1 : level;
    for (struct block *b = NULL; (b = alive_next(s, b, begin, end)) != NULL;) {
        if (b->low < below && (b->begin < begin || b->end > end || b->low <= b->sky)) {
            return false;
        }
    }
    for (struct block *b = NULL; (b = alive_next(s, b, begin, end)) != NULL;) {
        block_raise(s, b, below, 0);
    }
    return true;
}

static bool step_take(struct search *s) {
    const int letter = proof_byte(s->p);
    if (letter == 'X') {
        return proof_byte(s->p) == '\n' && step_close(s);
    }
    const bool is_block = letter == 'P' || letter == 'R' || letter == 'T' || letter == 'W';
    const int32_t k = (int32_t) proof_number(s->p, (uint64_t) (is_block ? s->n : s->n_sec) - 1); // a block or a section
    if (is_block && (s->b[k].is_placed || (letter == 'P' && (s->is_contradiction || s->n_open >= s->n)))) {
        return false;
    }
    if (is_block) {
        return letter == 'P' ? step_place(s, &s->b[k]) : step_near(s, letter, &s->b[k]);
    }
    switch (letter) {
        case 'N': return step_not_first(s, k);
        case 'A': return k + 1 < s->n_sec && step_border(s, k, k + 1);
        case 'B': return k > 0 && step_border(s, k, k - 1);
        case 'V': return step_valley(s, k);
        default: return false;
    }
}

// ---- the blocks ----

// Takes one block: items of one alias group that are alive without a gap. keys: its first and last step. *pad: the largest padding so
// far, in bytes.
static bool block_take(struct search *s, uint64_t unit, uint64_t align, struct proof_key *keys, uint64_t *pad) {
    const struct proof_item *k = proof_item_take(s->p, align);
    if (k == NULL) {
        return false;
    }
    const int64_t first = k->item->first;
    int64_t last = k->item->last;
    uint64_t size = k->item->size;
    while (!s->p->is_line_end) {
        const struct proof_item *next = proof_item_take(s->p, 0);
        if (next == NULL || next->group != k->group || next->item->first < first ||
            (next->item->first > last && next->item->first - 1 > last)) {
            return false;
        }
        last = max_i64(next->item->last, last);
        size = min_u64(next->item->size, size);
    }
    const uint64_t padding = berth_padding(size, align);
    *pad = max_u64(padding, *pad);
    // A block that does not fit is a contradiction whatever its size is.
    s->b[s->n].size = (int64_t) min_u64((size + padding) / unit, (uint64_t) s->cap + 1);
    keys[0] = (struct proof_key){first, 0, s->n};
    keys[1] = (struct proof_key){last, 1, s->n};
    s->n++;
    return size > 0 && (size + padding) % unit == 0;
}

// Numbers the sections: a new one begins where a block begins after another has ended in the section before. keys: the first and last
// steps of all blocks.
static void sections_find(struct search *s, struct proof_key *keys) {
    bool has_ended = false; // the first section has begun
    qsort(keys, 2 * (size_t) s->n, sizeof *keys, proof_by_key);
    for (int32_t k = 0; k < 2 * s->n; k++) {
        struct block *b = &s->b[keys[k].i];
        const bool is_end = keys[k].order == 1;
        s->n_sec += !is_end && has_ended;
        has_ended = is_end;
        *(is_end ? &b->end : &b->begin) = s->n_sec - !is_end;
    }
}

// Takes the capacity and the blocks, and checks that a plan below the bound would fit into the capacity.
static bool header_take(struct search *s) {
    proof_text(s->p, "search ");
    const uint64_t cap = proof_number(s->p, UNITS_LIMIT), unit = proof_number(s->p, UNITS_LIMIT);
    const uint64_t align = proof_number(s->p, UNITS_LIMIT);
    proof_text(s->p, "blocks ");
    const int32_t n = (int32_t) proof_number(s->p, (uint64_t) (s->p->n_items - s->p->i_pool));
    uint64_t pad = 0;
    s->cap = (int64_t) cap;
    s->b = berth_arrays_new(&s->mem, (size_t) n + 1, sizeof *s->b);
    struct proof_key *keys = berth_arrays_new(&s->mem, 2 * (size_t) n, sizeof *keys);
    if (s->mem.has_failed || unit == 0 || align == 0 || n == 0 || s->p->bound == 0) {
        return proof_refuse(s->p, "out of memory, or the unit, the alignment, the bound or the number of blocks is 0");
    }
    for (int32_t i = 0; i <= n; i++) {
        s->b[i].prev = &s->b[i > 0 ? i - 1 : n];
        s->b[i].next = &s->b[i < n ? i + 1 : 0];
        if (i < n && !block_take(s, unit, align, &keys[2 * i], &pad)) {
            return proof_refuse(s->p, "these items are not a block");
        }
    }
    sections_find(s, keys);
    // A plan with a peak below the bound, with padded blocks, has a peak of at most bound - 1 + pad.
    return cap >= (s->p->bound - 1 + pad) / unit || proof_refuse(s->p, "the capacity is too small for the bound");
}

void proof_search(struct proof *p) {
    struct search s = {.p = p, .n_sec = 1};
    if (header_take(&s)) {
        proof_text(p, "steps\n");
        while (!p->is_refused && !s.mem.has_failed && proof_peek(p) != 'e') {
            p->n_steps++;
            if (!step_take(&s) || !p->is_line_end) {
                proof_refuse(p, "a condition of the step does not hold, or there is no such step");
            }
        }
        if (!s.is_contradiction || s.n_open > 0) {
            proof_refuse(p, "the log ends without a contradiction, or with an open assumption");
        }
    }
    p->mem.has_failed |= s.mem.has_failed;
    berth_free(s.changes);
    berth_arrays_free(&s.mem);
}
