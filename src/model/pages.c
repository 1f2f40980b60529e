// SPDX-License-Identifier: MIT
// pages.c: which pages hold which positions of which sequence (pages.h).

#include "model/pages.h"

#include "base/min.h"
#include "base/siphash.h"

#define NONE (-1)

struct page {
    int32_t place;
    int32_t before;   // page of the preceding positions; NONE: the page holds the first positions
    int32_t n_refs;   // sequences that use the page
    int32_t n_after;  // known pages that follow this page
    int32_t next;     // next page of the same bucket; NONE: last
    bool is_known;    // the page is in a bucket
    uint64_t used_at; // clock when the last sequence ended that used the page
};

struct pages {
    struct pages_params params;
    int64_t max_pages;       // of a sequence
    struct page *list;       // [n_pages]
    int32_t *at;             // [n_pages] page at each place
    int32_t *tokens;         // [n_pages * n_page] tokens of known pages
    int32_t *tables;         // [n_seq * max_pages] pages of each sequence
    int64_t *n_of;           // [n_seq] pages of each sequence
    int64_t *n_learned;      // [n_seq] leading pages that pages_learn has looked at
    int32_t *buckets;        // [n_buckets] first page; NONE: empty
    int32_t *chain;          // [max_pages] temporary array
    struct page_move *moves; // [max_pages]
    int64_t n_moves;
    size_t n_buckets; // a power of two
    uint64_t clock;
    int64_t n_used;
    struct berth_siphash_key key; // random, so that requests cannot choose collisions
    struct berth_arrays memory;
};

// ---- creation ----

static int64_t pages_of(const struct pages_params *params, int64_t n) {
    return (n + params->n_page - 1) / params->n_page;
}

static size_t bucket_count(const struct pages_params *params) {
    size_t n = 1;
    while (n < (size_t) params->n_pages) {
        n *= 2;
    }
    return n;
}

size_t pages_size(const struct pages_params *params) {
    const size_t n_pages = (size_t) params->n_pages, n_seq = (size_t) params->n_seq;
    const size_t max_pages = (size_t) pages_of(params, params->n_ctx);
    return sizeof(struct pages) + n_pages * (sizeof(struct page) + sizeof(int32_t) * (1 + (size_t) params->n_page)) +
           n_seq * (max_pages * sizeof(int32_t) + 2 * sizeof(int64_t)) + bucket_count(params) * sizeof(int32_t) +
           max_pages * (sizeof(int32_t) + sizeof(struct page_move));
}

struct pages *pages_new(const struct pages_params *params) {
    struct pages *p = berth_calloc(1, sizeof *p);
    if (p == NULL) {
        return NULL;
    }
    const size_t n_pages = (size_t) params->n_pages, n_seq = (size_t) params->n_seq;
    p->params = *params;
    p->max_pages = pages_of(params, params->n_ctx);
    p->n_buckets = bucket_count(params);
    p->list = berth_arrays_new(&p->memory, n_pages, sizeof *p->list);
    p->at = berth_arrays_new(&p->memory, n_pages, sizeof *p->at);
    p->tokens = berth_arrays_new(&p->memory, n_pages * (size_t) params->n_page, sizeof *p->tokens);
    p->tables = berth_arrays_new(&p->memory, n_seq * (size_t) p->max_pages, sizeof *p->tables);
    p->n_of = berth_arrays_new(&p->memory, n_seq, sizeof *p->n_of);
    p->n_learned = berth_arrays_new(&p->memory, n_seq, sizeof *p->n_learned);
    p->buckets = berth_arrays_new(&p->memory, p->n_buckets, sizeof *p->buckets);
    p->chain = berth_arrays_new(&p->memory, (size_t) p->max_pages, sizeof *p->chain);
    p->moves = berth_arrays_new(&p->memory, (size_t) p->max_pages, sizeof *p->moves);
    if (p->memory.has_failed) {
        pages_free(p);
        return NULL;
    }
    p->key = berth_siphash_key_new(p);
    for (int32_t i = 0; i < params->n_pages; i++) {
        p->list[i] = (struct page){.place = i, .before = NONE, .next = NONE};
        p->at[i] = i;
    }
    for (size_t i = 0; i < p->n_buckets; i++) {
        p->buckets[i] = NONE;
    }
    return p;
}

void pages_free(struct pages *p) {
    if (p != NULL) {
        berth_arrays_free(&p->memory);
        berth_free(p);
    }
}

// ---- known pages ----

static int32_t *table_of(const struct pages *p, int seq) {
    return p->tables + seq * p->max_pages;
}

static int32_t *bucket_of(const struct pages *p, int32_t before, const int32_t *tokens) {
    struct berth_siphash h = berth_siphash_begin(&p->key);
    berth_siphash_add(&h, &before, sizeof before);
    berth_siphash_add(&h, tokens, (size_t) p->params.n_page * sizeof *tokens);
    return &p->buckets[berth_siphash_end(&h) & (p->n_buckets - 1)];
}

// Returns the known page with these tokens that follows `before`; NONE: there is none.
static int32_t known_find(const struct pages *p, int32_t before, const int32_t *tokens) {
    const size_t size = (size_t) p->params.n_page * sizeof *tokens;
    int32_t page = *bucket_of(p, before, tokens);
    while (page != NONE && (p->list[page].before != before || memcmp(p->tokens + page * p->params.n_page, tokens, size) != 0)) {
        page = p->list[page].next;
    }
    return page;
}

static void known_add(struct pages *p, int32_t page, const int32_t *tokens) {
    struct page *x = &p->list[page];
    int32_t *bucket = bucket_of(p, x->before, tokens);
    memcpy(p->tokens + page * p->params.n_page, tokens, (size_t) p->params.n_page * sizeof *tokens);
    x->next = *bucket;
    x->is_known = true;
    *bucket = page;
    if (x->before != NONE) {
        p->list[x->before].n_after++;
    }
}

static void known_drop(struct pages *p, int32_t page) {
    struct page *x = &p->list[page];
    int32_t *at = bucket_of(p, x->before, p->tokens + page * p->params.n_page);
    while (*at != page) {
        at = &p->list[*at].next;
    }
    *at = x->next;
    if (x->before != NONE) {
        p->list[x->before].n_after--;
    }
    x->is_known = false;
    x->before = NONE;
}

// ---- places ----

static bool is_free(const struct page *x) {
    return x->n_refs == 0 && !x->is_known;
}

// Returns the free page with the smallest place after `after`; NONE: there is none.
static int32_t free_find(const struct pages *p, int64_t after) {
    for (int64_t place = after + 1; place < p->params.n_pages; place++) {
        if (is_free(&p->list[p->at[place]])) {
            return p->at[place];
        }
    }
    return NONE;
}

// Drops the kept page after `after` that has not been used for the longest time. Returns it; NONE: there is none.
static int32_t kept_drop(struct pages *p, int64_t after) {
    int32_t oldest = NONE;
    for (int32_t i = 0; i < p->params.n_pages; i++) {
        const struct page *x = &p->list[i];
        const bool can_drop = x->is_known && x->n_refs == 0 && x->n_after == 0 && x->place > after;
        if (can_drop && (oldest == NONE || x->used_at < p->list[oldest].used_at)) {
            oldest = i;
        }
    }
    if (oldest != NONE) {
        known_drop(p, oldest);
    }
    return oldest;
}

static int32_t page_take(struct pages *p, int64_t after) {
    const int32_t page = free_find(p, after);
    return page != NONE ? page : kept_drop(p, after);
}

// Exchanges the places of a page and a free page.
static void page_move(struct pages *p, int32_t page, int32_t to) {
    struct page *x = &p->list[page], *y = &p->list[to];
    const int32_t from = x->place;
    p->moves[p->n_moves++] = (struct page_move){.from = from, .to = y->place};
    x->place = y->place;
    y->place = from;
    p->at[x->place] = page;
    p->at[y->place] = to;
}

// Counts the page and its predecessors with places after `place`.
static int64_t chain_length(const struct pages *p, int32_t page, int64_t place) {
    int64_t n = 0;
    for (; page != NONE && p->list[page].place > place; page = p->list[page].before) {
        n++;
    }
    return n;
}

// Moves a free page to a place after `last`, the last page of a sequence, which is after all free pages. To do so, a page X moves
// down: X is `last`, or a page after it. The predecessors of X between the free page and X move down too, each to the place of its
// predecessor. So the places of every sequence still increase.
static void free_raise(struct pages *p, int32_t page, int32_t last) {
    const int64_t place = p->list[page].place;
    int32_t best = last;
    int64_t n_best = chain_length(p, last, place);
    for (int64_t i = p->list[last].place + 1; i < p->params.n_pages && n_best > 1; i++) {
        const int64_t n = chain_length(p, p->at[i], place);
        if (n < n_best) {
            best = p->at[i];
            n_best = n;
        }
    }
    int64_t n = 0;
    for (int32_t x = best; n < n_best; x = p->list[x].before) {
        p->chain[n++] = x;
    }
    while (n-- > 0) {
        page_move(p, p->chain[n], page);
    }
}

// Takes a page with a place after `last`. If there is none, pages move.
static int32_t page_take_after(struct pages *p, int32_t last) {
    int32_t page = page_take(p, p->list[last].place);
    if (page != NONE) {
        return page;
    }
    page = page_take(p, -1);
    if (page != NONE) {
        free_raise(p, page, last);
    }
    return page;
}

// ---- sequences ----

struct pages_prefix pages_find(const struct pages *p, const int32_t *tokens, int64_t n) {
    struct pages_prefix r = {.sharer = -1};
    const int64_t n_page = p->params.n_page;
    int32_t last = NONE, last_shared = NONE;
    while (r.n_cached + n_page < n) {
        const int32_t page = known_find(p, last, tokens + r.n_cached);
        if (page == NONE) {
            break;
        }
        r.n_cached += n_page;
        last = page;
        if (p->list[page].n_refs > 0) { // so have all pages before it
            r.n_shared = r.n_cached;
            last_shared = page;
        }
    }
    for (int seq = 0; r.n_shared > 0 && r.sharer < 0; seq++) {
        const int64_t i = r.n_shared / n_page - 1;
        if (p->n_of[seq] > i && table_of(p, seq)[i] == last_shared) {
            r.sharer = seq;
        }
    }
    return r;
}

static void page_use(struct pages *p, int seq, int32_t page) {
    p->n_used += p->list[page].n_refs == 0;
    p->list[page].n_refs++;
    table_of(p, seq)[p->n_of[seq]++] = page;
}

void pages_start(struct pages *p, int seq, const int32_t *tokens, int64_t n_cached) {
    int32_t last = NONE;
    for (int64_t i = 0; i < n_cached; i += p->params.n_page) {
        last = known_find(p, last, tokens + i);
        page_use(p, seq, last);
    }
    p->n_learned[seq] = p->n_of[seq];
}

int64_t pages_n_positions(const struct pages *p, int seq) {
    return p->n_of[seq] * p->params.n_page;
}

bool pages_add(struct pages *p, int seq, int64_t *n_moves) {
    const int64_t n_of = p->n_of[seq];
    const int32_t last = n_of > 0 ? table_of(p, seq)[n_of - 1] : NONE;
    p->n_moves = 0;
    *n_moves = 0;
    if (n_of == p->max_pages) {
        return false;
    }
    const bool must_follow = p->params.is_ordered && last != NONE;
    const int32_t page = must_follow ? page_take_after(p, last) : page_take(p, -1);
    if (page == NONE) {
        return false;
    }
    p->list[page].before = last;
    page_use(p, seq, page);
    *n_moves = p->n_moves;
    return true;
}

const struct page_move *pages_moves(const struct pages *p) {
    return p->moves;
}

void pages_learn(struct pages *p, int seq, const int32_t *tokens, int64_t n) {
    for (int64_t i = p->n_learned[seq]; (i + 1) * p->params.n_page <= n; i++) {
        const int32_t page = table_of(p, seq)[i], before = p->list[page].before;
        const int32_t *own = tokens + i * p->params.n_page;
        const bool can_follow = before == NONE || p->list[before].is_known;
        if (can_follow && known_find(p, before, own) == NONE) {
            known_add(p, page, own);
        }
        p->n_learned[seq] = i + 1;
    }
}

void pages_end(struct pages *p, int seq) {
    p->clock++;
    for (int64_t i = p->n_of[seq]; i-- > 0;) {
        const int32_t page = table_of(p, seq)[i];
        struct page *x = &p->list[page];
        x->n_refs--;
        p->n_used -= x->n_refs == 0;
        x->used_at = p->clock;
        if (p->params.no_keep && x->n_refs == 0 && x->is_known) { // no known page follows: it would use this one
            known_drop(p, page);
        }
        if (is_free(x)) {
            x->before = NONE;
        }
    }
    p->n_of[seq] = 0;
    p->n_learned[seq] = 0;
}

int64_t pages_row(const struct pages *p, int seq, int64_t pos) {
    const int32_t page = table_of(p, seq)[pos / p->params.n_page];
    return p->list[page].place * p->params.n_page + pos % p->params.n_page;
}

int64_t pages_n_used(const struct pages *p) {
    return p->n_used;
}

int64_t pages_top(const struct pages *p) {
    int64_t top = p->params.n_pages;
    while (top > 0 && p->list[p->at[top - 1]].n_refs == 0) {
        top--;
    }
    return top;
}

// ---- invariants ----

static bool page_check(const struct pages *p, int32_t page) {
    const struct page *x = &p->list[page];
    const struct page *before = x->before != NONE ? &p->list[x->before] : NULL;
    const bool has_place = x->place >= 0 && x->place < p->params.n_pages && p->at[x->place] == page;
    const bool is_after = before == NULL || before->place < x->place || !p->params.is_ordered;
    const bool follows = before == NULL || (is_after && !is_free(before));
    const bool is_reachable = !x->is_known || before == NULL || before->is_known;
    return has_place && follows && is_reachable && x->n_refs >= 0 && (!is_free(x) || (before == NULL && x->n_after == 0));
}

bool pages_check(const struct pages *p) {
    int64_t n_used = 0;
    for (int32_t i = 0; i < p->params.n_pages; i++) {
        int64_t n_refs = 0;
        for (int seq = 0; seq < p->params.n_seq; seq++) {
            for (int64_t k = 0; k < p->n_of[seq]; k++) {
                const bool is_here = table_of(p, seq)[k] == i;
                const int32_t before = k > 0 ? table_of(p, seq)[k - 1] : NONE;
                n_refs += is_here;
                if (is_here && p->list[i].before != before) {
                    return false;
                }
            }
        }
        n_used += n_refs > 0;
        if (n_refs != p->list[i].n_refs || !page_check(p, i)) {
            return false;
        }
    }
    return n_used == p->n_used;
}
