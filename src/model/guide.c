// SPDX-License-Identifier: MIT
// guide.c: which tokens a text may go on with. Where the grammar stands is a set of places, each an element with what is to
// follow when its rule ends: a stack. Stacks share their ends and are kept once each, so that a place is a number, and equal sets
// are equal lists. A rule's last call leaves nothing on the stack: repetitions do not grow it. Tokens are tried in the order of
// their bytes: what several begin with is read once, and what cannot begin is left with one look. Masks of the sets met last are
// kept: within a string or a word the set is the same again and again.

#include "model/grammar.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define N_MASKS 16 // that are kept

struct place {
    uint32_t elem;  // it stands before this one
    uint32_t below; // place to go on with at the end of the rule, 0: the text is over
};

struct place_set {
    uint32_t *ids;
    size_t n, room;
    bool is_over; // the text may end here
};

struct piece {
    const char *bytes;
    uint32_t n;
    int32_t token;
};

// The tokens that may come where a set is.
struct mask {
    struct place_set set;
    uint8_t *bits; // [n_tokens / 8 + 1]
    int64_t n_left;
    bool is_made;
};

struct guide {
    const struct grammar *g;
    const struct vocab *vocab;
    char *bytes;          // of all tokens, one behind the other
    struct piece *pieces; // [n_pieces] tokens that have bytes, by these
    int32_t n_pieces;
    struct place *places; // [n_places] 0 is none
    uint32_t *stamps;     // [places_room] when a place was looked at last
    size_t n_places, places_room;
    uint32_t *slots; // [n_slots] hash of places, 0: free
    size_t n_slots;
    uint32_t stamp;
    uint32_t *work; // places that are to be looked at
    size_t n_work, work_room;
    struct place_set *sets; // [n_sets] after each byte of a token; 0: where the text stands
    size_t n_sets;
    struct mask masks[N_MASKS];
    size_t next_mask;
};

// ---- places ----

static bool grow(void **list, size_t n, size_t *room, size_t size) {
    if (n < *room) {
        return true;
    }
    void *more = model_alloc_realloc(*list, (2 * *room + 64) * size);
    if (more != NULL) {
        *list = more;
        *room = 2 * *room + 64;
    }
    return more != NULL;
}

static size_t slot_of(const struct guide *u, uint32_t elem, uint32_t below) {
    uint64_t h = ((uint64_t) elem << 32 | below) * 0x9e3779b97f4a7c15u;
    size_t i   = (size_t) (h >> 32) & (u->n_slots - 1);
    while (u->slots[i] != 0 && (u->places[u->slots[i]].elem != elem || u->places[u->slots[i]].below != below)) {
        i = (i + 1) & (u->n_slots - 1);
    }
    return i;
}

static bool slots_grow(struct guide *u) {
    const size_t n  = u->n_slots > 0 ? 2 * u->n_slots : 1024;
    uint32_t *slots = model_alloc_calloc(n, sizeof *slots);
    if (slots == NULL) {
        return false;
    }
    model_alloc_free(u->slots);
    u->slots   = slots;
    u->n_slots = n;
    for (uint32_t i = 1; i < u->n_places; i++) {
        u->slots[slot_of(u, u->places[i].elem, u->places[i].below)] = i;
    }
    return true;
}

// The number of a place; 0: out of memory.
static uint32_t place_of(struct guide *u, uint32_t elem, uint32_t below) {
    if (2 * u->n_places + 2 > u->n_slots && !slots_grow(u)) {
        return 0;
    }
    const size_t slot = slot_of(u, elem, below);
    if (u->slots[slot] != 0) {
        return u->slots[slot];
    }
    size_t room = u->places_room;
    if (!grow((void **) &u->places, u->n_places, &u->places_room, sizeof *u->places)) {
        return 0;
    }
    if (u->places_room != room) {
        uint32_t *stamps = model_alloc_realloc(u->stamps, u->places_room * sizeof *stamps);
        if (stamps == NULL) {
            u->places_room = room; // what is there still is
            return 0;
        }
        memset(stamps + room, 0, (u->places_room - room) * sizeof *stamps);
        u->stamps = stamps;
    }
    u->places[u->n_places] = (struct place){elem, below};
    u->slots[slot]         = (uint32_t) u->n_places;
    return (uint32_t) u->n_places++;
}

// Something more to look at, once a round.
static bool look_at(struct guide *u, uint32_t elem, uint32_t below) {
    const uint32_t id = place_of(u, elem, below);
    if (id == 0 || !grow((void **) &u->work, u->n_work, &u->work_room, sizeof *u->work)) {
        return false;
    }
    if (u->stamps[id] != u->stamp) {
        u->stamps[id]        = u->stamp;
        u->work[u->n_work++] = id;
    }
    return true;
}

static bool set_add(struct place_set *set, uint32_t id) {
    if (!grow((void **) &set->ids, set->n, &set->room, sizeof *set->ids)) {
        return false;
    }
    set->ids[set->n++] = id;
    return true;
}

// Everything that can be reached from what is to be looked at without a byte: places before bytes go into the set.
static bool settle(struct guide *u, struct place_set *set) {
    bool ok = true;
    while (ok && u->n_work > 0) {
        const uint32_t id            = u->work[--u->n_work];
        const struct place at        = u->places[id];
        const struct grammar_elem *e = &u->g->elems[at.elem];
        if (e->kind == GRAMMAR_BYTE) {
            ok = set_add(set, id);
        } else if (e->kind == GRAMMAR_END && at.below == 0) {
            set->is_over = true;
        } else if (e->kind == GRAMMAR_END) {
            ok = look_at(u, u->places[at.below].elem, u->places[at.below].below);
        } else {
            const uint32_t below = e[1].kind == GRAMMAR_END ? at.below : place_of(u, at.elem + 1, at.below);
            ok                   = below != 0 || e[1].kind == GRAMMAR_END;
            for (uint32_t a = u->g->rules[e->rule].first; ok && a != GRAMMAR_NONE; a = u->g->alts[a].next) {
                ok = look_at(u, u->g->alts[a].at, below);
            }
        }
    }
    u->n_work = 0;
    return ok;
}

static int by_number(const void *a, const void *b) {
    const uint32_t x = *(const uint32_t *) a, y = *(const uint32_t *) b;
    return x < y ? -1 : x > y;
}

static void round_begin(struct guide *u, struct place_set *set) {
    set->n       = 0;
    set->is_over = false;
    if (++u->stamp == 0) { // after 2^32 rounds
        memset(u->stamps, 0, u->places_room * sizeof *u->stamps);
        u->stamp = 1;
    }
}

static bool step(struct guide *u, const struct place_set *from, uint8_t byte, struct place_set *to) {
    bool ok = true;
    round_begin(u, to);
    for (size_t i = 0; ok && i < from->n; i++) {
        const struct place at       = u->places[from->ids[i]];
        const struct grammar_elem e = u->g->elems[at.elem];
        ok                          = byte < e.low || byte > e.high || look_at(u, at.elem + 1, at.below);
    }
    return settle(u, to) && ok;
}

static bool start(struct guide *u) {
    bool ok = true;
    round_begin(u, &u->sets[0]);
    for (uint32_t a = u->g->rules[u->g->root].first; ok && a != GRAMMAR_NONE; a = u->g->alts[a].next) {
        ok = look_at(u, u->g->alts[a].at, 0);
    }
    return settle(u, &u->sets[0]) && ok;
}

// ---- life ----

static int by_bytes(const void *a, const void *b) {
    const struct piece *x = a, *y = b;
    const int c = memcmp(x->bytes, y->bytes, x->n < y->n ? x->n : y->n);
    return c != 0 ? c : x->n != y->n ? (x->n < y->n ? -1 : 1) : x->token < y->token ? -1 : 1;
}

// The bytes of every token that has some, in order.
static bool pieces_make(struct guide *u) {
    const struct vocab *v = u->vocab;
    size_t size           = 0;
    for (int32_t i = 0; i < v->n_tokens; i++) {
        size += vocab_piece(v, i, NULL, 0);
    }
    u->bytes  = model_alloc_malloc(size + 1);
    u->pieces = model_alloc_calloc((size_t) v->n_tokens + 1, sizeof *u->pieces);
    if (u->bytes == NULL || u->pieces == NULL) {
        return false;
    }
    size_t at = 0, longest = 0;
    for (int32_t i = 0; i < v->n_tokens; i++) {
        const size_t n = vocab_is_end(v, i) ? 0 : vocab_piece(v, i, u->bytes + at, size - at);
        if (n > 0) {
            u->pieces[u->n_pieces++] = (struct piece){u->bytes + at, (uint32_t) n, i};
        }
        at += n;
        longest = n > longest ? n : longest;
    }
    qsort(u->pieces, (size_t) u->n_pieces, sizeof *u->pieces, by_bytes);
    u->n_sets = longest + 1;
    u->sets   = model_alloc_calloc(u->n_sets, sizeof *u->sets);
    return u->sets != NULL;
}

struct guide *guide_new(const struct grammar *grammar, const struct vocab *vocab, struct model_error *error) {
    struct guide *u = model_alloc_calloc(1, sizeof *u);
    if (u != NULL) {
        u->g        = grammar;
        u->vocab    = vocab;
        u->n_places = 1;
    }
    if (u == NULL || !grow((void **) &u->places, 1, &u->places_room, sizeof *u->places)) {
        guide_free(u);
        model_fail(error, "out of memory");
        return NULL;
    }
    u->stamps = model_alloc_calloc(u->places_room, sizeof *u->stamps);
    if (u->stamps == NULL || !pieces_make(u) || !start(u)) {
        guide_free(u);
        model_fail(error, "out of memory for the tokens of a grammar");
        return NULL;
    }
    return u;
}

void guide_free(struct guide *u) {
    if (u == NULL) {
        return;
    }
    for (size_t i = 0; u->sets != NULL && i < u->n_sets; i++) {
        model_alloc_free(u->sets[i].ids);
    }
    for (size_t i = 0; i < N_MASKS; i++) {
        model_alloc_free(u->masks[i].set.ids);
        model_alloc_free(u->masks[i].bits);
    }
    model_alloc_free(u->sets);
    model_alloc_free(u->bytes);
    model_alloc_free(u->pieces);
    model_alloc_free(u->places);
    model_alloc_free(u->stamps);
    model_alloc_free(u->slots);
    model_alloc_free(u->work);
    model_alloc_free(u);
}

bool guide_reset(struct guide *u) {
    return start(u);
}

// ---- tokens ----

// How many bytes a token and the one before it have in common at the beginning.
static size_t shared(const struct piece *a, const struct piece *b) {
    const size_t most = a->n < b->n ? a->n : b->n;
    size_t n          = 0;
    while (n < most && a->bytes[n] == b->bytes[n]) {
        n++;
    }
    return n;
}

static bool mask_fill(struct guide *u, struct mask *m) {
    size_t n_alive = 0; // bytes of the piece before that could be read
    m->n_left      = 0;
    memset(m->bits, 0, (size_t) u->vocab->n_tokens / 8 + 1);
    for (int32_t i = 0; i < u->n_pieces; i++) {
        const struct piece *piece = &u->pieces[i];
        const size_t n_same       = i > 0 ? shared(piece - 1, piece) : 0;
        if (n_same > n_alive) { // it fails where that failed
            continue;
        }
        size_t n = n_same;
        while (n < piece->n) {
            if (!step(u, &u->sets[n], (uint8_t) piece->bytes[n], &u->sets[n + 1])) {
                return false;
            }
            if (u->sets[n + 1].n == 0 && !u->sets[n + 1].is_over) {
                break;
            }
            n++;
        }
        n_alive = n;
        if (n == piece->n) {
            m->bits[piece->token / 8] |= (uint8_t) (1u << (piece->token % 8));
            m->n_left++;
        }
    }
    for (int32_t i = 0; u->sets[0].is_over && i < u->vocab->n_tokens; i++) {
        if (vocab_is_end(u->vocab, i)) {
            m->bits[i / 8] |= (uint8_t) (1u << (i % 8));
            m->n_left++;
        }
    }
    return true;
}

static bool is_same(const struct place_set *a, const struct place_set *b) {
    return a->n == b->n && a->is_over == b->is_over && (a->n == 0 || memcmp(a->ids, b->ids, a->n * sizeof *a->ids) == 0);
}

// The mask of where the text stands; NULL: out of memory.
static const struct mask *mask_find(struct guide *u) {
    const struct place_set *now = &u->sets[0];
    if (now->n > 1) {
        qsort(now->ids, now->n, sizeof *now->ids, by_number);
    }
    for (size_t i = 0; i < N_MASKS; i++) {
        if (u->masks[i].is_made && is_same(&u->masks[i].set, now)) {
            return &u->masks[i];
        }
    }
    struct mask *m = &u->masks[u->next_mask++ % N_MASKS];
    m->is_made     = false;
    m->bits        = m->bits != NULL ? m->bits : model_alloc_malloc((size_t) u->vocab->n_tokens / 8 + 1);
    m->set.n       = 0;
    m->set.is_over = now->is_over;
    for (size_t i = 0; i < now->n; i++) {
        if (!set_add(&m->set, now->ids[i])) {
            return NULL;
        }
    }
    m->is_made = m->bits != NULL && mask_fill(u, m);
    return m->is_made ? m : NULL;
}

int64_t guide_mask(struct guide *u, float *logits, int64_t n) {
    const struct mask *m = mask_find(u);
    for (int64_t i = 0; m != NULL && i < n; i++) {
        if (i >= u->vocab->n_tokens || (m->bits[i / 8] >> (i % 8) & 1) == 0) {
            logits[i] = -INFINITY;
        }
    }
    return m != NULL ? m->n_left : -1;
}

bool guide_accept(struct guide *u, int32_t token) {
    char piece[64], *bytes = piece;
    const size_t n = vocab_is_end(u->vocab, token) ? 0 : vocab_piece(u->vocab, token, piece, sizeof piece);
    if (n > sizeof piece) {
        bytes = model_alloc_malloc(n);
        vocab_piece(u->vocab, token, bytes, bytes != NULL ? n : 0);
    }
    bool ok = bytes != NULL;
    for (size_t i = 0; ok && i < n; i++) {
        ok                           = step(u, &u->sets[0], (uint8_t) bytes[i], &u->sets[1]);
        const struct place_set moved = u->sets[0];
        u->sets[0]                   = u->sets[1];
        u->sets[1]                   = moved;
    }
    if (bytes != piece) {
        model_alloc_free(bytes);
    }
    return ok;
}
