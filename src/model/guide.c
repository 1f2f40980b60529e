// SPDX-License-Identifier: MIT
// guide.c: computes which tokens may follow a text. The state of the text is a set of places (grammar_stack.h). Each place of the
// set is at an element that matches a byte.
//
// places_step computes the set after one byte. The first pass moves each matching place to its next element and leaves rules that
// end. The second pass enters called rules, callers before callees, so that the stack below a rule is complete. A call at the end
// of an alternative pushes nothing, so repetitions do not grow the stack.
//
// Tokens are tested in the order of their bytes, so a common prefix is processed once. A mask holds the tokens that may follow
// one set of places. The last masks are cached, because the same set often recurs, for example after each character of a string.

#include "base/min.h"
#include "model/grammar_stack.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define N_MASKS 16                       // cached masks
#define STEPS_PER_POLL 4096              // steps between two polls of grammar.stop
#define COLLECT_SIZE ((size_t) 16 << 20) // bytes of stacks below which unused stacks are not removed

struct place_set {
    uint32_t *ids;
    size_t n, room;
    bool is_over; // the text may end at this position
};

struct piece {
    const char *bytes;
    uint32_t n;
    int32_t token;
};

struct mask {
    struct place_set set;
    uint8_t *bits; // [n_tokens / 8 + 1]
    int64_t n_allowed;
    bool is_valid;
};

struct place_list {
    struct grammar_place *places;
    size_t n, room;
};

// A source is a call of a rule in a component (struct grammar_rule). The source adds places to the stack below the component: the
// place after the call or, if the call ends its alternative, all places of the stack below the caller.
struct source {
    uint32_t id;   // number of the place or stack
    uint32_t next; // next source of the same component; GRAMMAR_NONE: none
    bool is_stack;
};

struct guide {
    const struct grammar *g;
    const struct vocab *vocab;
    char *bytes;          // bytes of all tokens, concatenated
    struct piece *pieces; // [n_pieces] tokens with bytes, sorted by their bytes
    int32_t n_pieces;
    struct grammar_stacks stacks;
    size_t collect_at;  // bytes of stacks at which unused stacks are removed
    size_t arrays_size; // bytes of the arrays below that grow, and of the sets
    uint32_t stamp;     // number of the current round, which marks visited places and stacks
    uint32_t *work;     // places to visit
    size_t n_work, work_room;
    struct place_list ready, calls; // results of the first pass: places at bytes, places at calls
    struct source *sources;
    size_t n_sources, sources_room;
    uint32_t *first_source; // [n_components] GRAMMAR_NONE: the component is not called
    uint32_t *called;       // [n_called] called components, a heap with the greatest number on top
    size_t n_called;
    uint32_t *joined; // places of a stack under construction
    size_t n_joined, joined_room;
    struct place_set *sets; // [n_sets] the set after each byte of a token; sets[0]: the current position of the text
    size_t n_sets;
    struct mask masks[N_MASKS];
    size_t next_mask;
    uint64_t n_steps;          // steps for the current token
    struct model_error *error; // error of the current call
};

static bool out_of_memory(struct guide *u) {
    return model_fail(u->error, "out of memory for the places of the grammar");
}

// Grows an array of the guide. All arrays together have the same limit as the stacks.
static bool array_grow(struct guide *u, void **p, size_t *room, size_t n, size_t size) {
    const size_t old = *room;
    if (n <= old) {
        return true;
    }
    if (!berth_grow(p, room, n, size)) {
        return out_of_memory(u);
    }
    u->arrays_size += (*room - old) * size;
    return u->arrays_size <= u->g->max_stack_size ||
           model_fail(u->error, "the arrays of the grammar need %zu bytes, more than the limit of %zu", u->arrays_size,
               u->g->max_stack_size);
}

// False: the limit is exceeded, or the work must stop.
static bool step_count(struct guide *u) {
    if (++u->n_steps > u->g->max_steps) {
        return model_fail(
            u->error, "the grammar is too ambiguous: one token needs more than the limit of %" PRIu64 " steps", u->g->max_steps);
    }
    return u->n_steps % STEPS_PER_POLL != 0 || grammar_poll(u->g, u->error);
}

// ---- first pass: past a byte, and out of rules that end ----

static bool work_add(struct guide *u, uint32_t place) {
    if (u->stacks.place_stamps[place] == u->stamp) {
        return true;
    }
    if (!array_grow(u, (void **) &u->work, &u->work_room, u->n_work + 1, sizeof *u->work)) {
        return false;
    }
    u->stacks.place_stamps[place] = u->stamp;
    u->work[u->n_work++] = place;
    return true;
}

static bool place_visit(struct guide *u, uint32_t elem, uint32_t below) {
    uint32_t place;
    return stacks_place(&u->stacks, elem, 0, below, &place, u->error) && work_add(u, place);
}

static bool list_add(struct guide *u, struct place_list *list, struct grammar_place place) {
    if (!array_grow(u, (void **) &list->places, &list->room, list->n + 1, sizeof *list->places)) {
        return false;
    }
    list->places[list->n++] = place;
    return true;
}

static bool stack_pop(struct guide *u, uint32_t stack, bool *is_over) {
    const struct grammar_stack k = u->stacks.stacks[stack];
    if (u->stacks.stack_stamps[stack] == u->stamp) {
        return true;
    }
    u->stacks.stack_stamps[stack] = u->stamp;
    for (uint32_t i = 0; i < k.n; i++) {
        const uint32_t place = u->stacks.members[k.at + i];
        if (place == PLACE_OVER) {
            *is_over = true;
        } else if (!step_count(u) || !work_add(u, place)) {
            return false;
        }
    }
    return true;
}

static bool work_run(struct guide *u, bool *is_over) {
    while (u->n_work > 0) {
        const struct grammar_place at = u->stacks.places[u->work[--u->n_work]];
        const struct grammar_elem *e = &u->g->elems[at.elem];
        bool ok;
        if (!step_count(u)) {
            return false;
        }
        if (e->kind == GRAMMAR_BYTE) {
            ok = list_add(u, &u->ready, at);
        } else if (e->kind == GRAMMAR_END) {
            ok = stack_pop(u, at.below, is_over);
        } else {
            ok = list_add(u, &u->calls, at) && (!grammar_can_skip(u->g, e, at.count) || place_visit(u, at.elem + 1, at.below));
        }
        if (!ok) {
            return false;
        }
    }
    return true;
}

// ---- joined stacks ----

static bool joined_add(struct guide *u, const uint32_t *places, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (!array_grow(u, (void **) &u->joined, &u->joined_room, u->n_joined + 1, sizeof *u->joined)) {
            return false;
        }
        u->joined[u->n_joined++] = places[i];
        if (!step_count(u)) {
            return false;
        }
    }
    return true;
}

static bool joined_add_stack(struct guide *u, uint32_t stack) {
    const struct grammar_stack *k = &u->stacks.stacks[stack];
    return joined_add(u, u->stacks.members + k->at, k->n);
}

static int by_place(const void *a, const void *b) {
    const struct grammar_place *x = a, *y = b;
    if (x->elem != y->elem) {
        return x->elem < y->elem ? -1 : 1;
    }
    if (x->count != y->count) {
        return x->count < y->count ? -1 : 1;
    }
    return (x->below > y->below) - (x->below < y->below);
}

// Joins places that differ only in their stacks into one place on the union of the stacks.
static bool list_join(struct guide *u, struct place_list *list) {
    size_t n = 0;
    if (list->n > 1) {
        qsort(list->places, list->n, sizeof *list->places, by_place);
    }
    for (size_t i = 0, end; i < list->n; i = end) {
        struct grammar_place p = list->places[i];
        for (end = i + 1; end < list->n && list->places[end].elem == p.elem && list->places[end].count == p.count;) {
            end++;
        }
        if (end - i > 1) {
            u->n_joined = 0;
            for (size_t k = i; k < end; k++) {
                if (!joined_add_stack(u, list->places[k].below)) {
                    return false;
                }
            }
            if (!stacks_stack(&u->stacks, u->joined, u->n_joined, &p.below, u->error)) {
                return false;
            }
        }
        list->places[n++] = p;
    }
    list->n = n;
    return true;
}

// ---- second pass: into called rules ----

static void called_push(struct guide *u, uint32_t component) {
    size_t i = u->n_called++;
    for (; i > 0 && u->called[(i - 1) / 2] < component; i = (i - 1) / 2) {
        u->called[i] = u->called[(i - 1) / 2];
    }
    u->called[i] = component;
}

static uint32_t called_pop(struct guide *u) {
    const uint32_t top = u->called[0], last = u->called[--u->n_called];
    size_t i = 0;
    for (size_t k; (k = 2 * i + 1) < u->n_called; i = k) {
        k += k + 1 < u->n_called && u->called[k + 1] > u->called[k];
        if (u->called[k] <= last) {
            break;
        }
        u->called[i] = u->called[k];
    }
    u->called[i] = last;
    return top;
}

static bool source_add(struct guide *u, uint32_t component, uint32_t id, bool is_stack) {
    if (!array_grow(u, (void **) &u->sources, &u->sources_room, u->n_sources + 1, sizeof *u->sources)) {
        return false;
    }
    if (u->first_source[component] == GRAMMAR_NONE) {
        called_push(u, component);
    }
    u->sources[u->n_sources] = (struct source){id, u->first_source[component], is_stack};
    u->first_source[component] = (uint32_t) u->n_sources++;
    return true;
}

// Adds the source of the call at elem. count: matches of the rule so far. from: component of the calling rule; GRAMMAR_NONE: the
// call is a place of the first pass.
static bool call_add(struct guide *u, uint32_t elem, uint32_t count, uint32_t below, uint32_t from) {
    const struct grammar_elem *e = &u->g->elems[elem];
    const uint32_t component = u->g->rules[grammar_callee(u->g, e)].component;
    // A call within a component ends its alternative (grammar_check), so it adds no place. called_enter enters all rules of the
    // component.
    if (component == from) {
        return true;
    }
    if (grammar_is_tail(u->g, e, count)) {
        return source_add(u, component, below, true);
    }
    uint32_t place;
    struct grammar_place after = {elem + 1, 0, below};
    if (e->kind == GRAMMAR_REPEAT) {
        const struct grammar_repeat *r = &u->g->repeats[e->rule];
        if (r->most == GRAMMAR_NONE) {
            after = (struct grammar_place){elem, count < r->least ? count + 1 : r->least, below};
        } else if (count + 1 < r->most) {
            after = (struct grammar_place){elem, count + 1, below};
        }
    }
    return stacks_place(&u->stacks, after.elem, after.count, after.below, &place, u->error) &&
           source_add(u, component, place, false);
}

static bool sources_join(struct guide *u, uint32_t component, uint32_t *stack) {
    const uint32_t first = u->first_source[component];
    bool is_single_stack = u->sources[first].is_stack;
    for (uint32_t i = first; is_single_stack && i != GRAMMAR_NONE; i = u->sources[i].next) {
        is_single_stack = u->sources[i].is_stack && u->sources[i].id == u->sources[first].id;
    }
    u->first_source[component] = GRAMMAR_NONE;
    if (is_single_stack) {
        *stack = u->sources[first].id;
        return true;
    }
    u->n_joined = 0;
    for (uint32_t i = first; i != GRAMMAR_NONE; i = u->sources[i].next) {
        const struct source *s = &u->sources[i];
        if (!(s->is_stack ? joined_add_stack(u, s->id) : joined_add(u, &s->id, 1))) {
            return false;
        }
    }
    return stacks_stack(&u->stacks, u->joined, u->n_joined, stack, u->error);
}

static bool set_add(struct guide *u, struct place_set *set, uint32_t id) {
    if (!array_grow(u, (void **) &set->ids, &set->room, set->n + 1, sizeof *set->ids)) {
        return false;
    }
    set->ids[set->n++] = id;
    return true;
}

static bool set_add_place(struct guide *u, struct place_set *set, uint32_t elem, uint32_t below) {
    uint32_t place;
    return stacks_place(&u->stacks, elem, 0, below, &place, u->error) && set_add(u, set, place);
}

static bool rule_enter(struct guide *u, uint32_t rule, uint32_t below, struct place_set *set) {
    const struct grammar *g = u->g;
    for (uint32_t a = g->rules[rule].first; a != GRAMMAR_NONE; a = g->alts[a].next) {
        for (uint32_t at = g->alts[a].at; g->elems[at].kind != GRAMMAR_END; at++) {
            const struct grammar_elem *e = &g->elems[at];
            if (!step_count(u)) {
                return false;
            }
            if (e->kind == GRAMMAR_BYTE) {
                if (!set_add_place(u, set, at, below)) {
                    return false;
                }
                break;
            }
            if (!call_add(u, at, 0, below, g->rules[rule].component)) {
                return false;
            }
            if (!grammar_can_skip(g, e, 0)) {
                break;
            }
        }
    }
    return true;
}

static bool called_enter(struct guide *u, struct place_set *set) {
    while (u->n_called > 0) {
        const uint32_t component = called_pop(u);
        uint32_t below;
        if (!sources_join(u, component, &below)) {
            return false;
        }
        for (uint32_t i = u->g->first_member[component]; i < u->g->first_member[component + 1]; i++) {
            if (!rule_enter(u, u->g->members[i], below, set)) {
                return false;
            }
        }
    }
    return true;
}

// ---- one round of both passes ----

static void round_begin(struct guide *u, struct place_set *set) {
    set->n = 0;
    set->is_over = false;
    u->ready.n = u->calls.n = 0;
    u->n_sources = u->n_work = 0;
    while (u->n_called > 0) { // left by a round that failed
        u->first_source[u->called[--u->n_called]] = GRAMMAR_NONE;
    }
    if (++u->stamp == 0) { // overflow after 2^32 rounds
        memset(u->stacks.place_stamps, 0, u->stacks.places_room * sizeof *u->stacks.place_stamps);
        if (u->stacks.stacks_room > 0) {
            memset(u->stacks.stack_stamps, 0, u->stacks.stacks_room * sizeof *u->stacks.stack_stamps);
        }
        u->stamp = 1;
    }
}

static bool places_step(struct guide *u, const struct place_set *from, uint8_t byte, struct place_set *to) {
    round_begin(u, to);
    for (size_t i = 0; i < from->n; i++) {
        const struct grammar_place at = u->stacks.places[from->ids[i]];
        const struct grammar_elem e = u->g->elems[at.elem];
        if (!step_count(u) || (byte >= e.low && byte <= e.high && !place_visit(u, at.elem + 1, at.below))) {
            return false;
        }
    }
    if (!work_run(u, &to->is_over) || !list_join(u, &u->ready) || !list_join(u, &u->calls)) {
        return false;
    }
    for (size_t i = 0; i < u->ready.n; i++) {
        if (!set_add_place(u, to, u->ready.places[i].elem, u->ready.places[i].below)) {
            return false;
        }
    }
    for (size_t i = 0; i < u->calls.n; i++) {
        const struct grammar_place *p = &u->calls.places[i];
        if (!call_add(u, p->elem, p->count, p->below, GRAMMAR_NONE)) {
            return false;
        }
    }
    return called_enter(u, to);
}

bool guide_reset(struct guide *u, struct model_error *error) {
    uint32_t over = PLACE_OVER, stack;
    u->error = error;
    u->n_steps = 0;
    round_begin(u, &u->sets[0]);
    u->sets[0].is_over = u->g->rules[u->g->root].can_be_empty;
    return stacks_stack(&u->stacks, &over, 1, &stack, error) && source_add(u, u->g->rules[u->g->root].component, stack, true) &&
           called_enter(u, &u->sets[0]);
}

// ---- creation and destruction ----

static int by_bytes(const void *a, const void *b) {
    const struct piece *x = a, *y = b;
    const int c = memcmp(x->bytes, y->bytes, min_size(x->n, y->n));
    if (c != 0) {
        return c;
    }
    if (x->n != y->n) {
        return x->n < y->n ? -1 : 1;
    }
    return x->token < y->token ? -1 : 1;
}

static bool pieces_make(struct guide *u) {
    const struct vocab *v = u->vocab;
    size_t size = 0;
    for (int32_t i = 0; i < v->n_tokens; i++) {
        size += vocab_piece(v, i, NULL, 0);
    }
    u->bytes = berth_malloc(size + 1);
    u->pieces = berth_calloc((size_t) v->n_tokens + 1, sizeof *u->pieces);
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
        longest = max_size(n, longest);
    }
    qsort(u->pieces, (size_t) u->n_pieces, sizeof *u->pieces, by_bytes);
    u->n_sets = longest + 1;
    u->sets = berth_calloc(u->n_sets, sizeof *u->sets);
    return u->sets != NULL;
}

// Bytes of stacks at which unused stacks are removed for the first time: well before the limit of the grammar.
static size_t collect_least(const struct grammar *g) {
    return min_size(COLLECT_SIZE, g->max_stack_size / 2);
}

struct guide *guide_new(const struct grammar *grammar, const struct vocab *vocab, struct model_error *error) {
    struct guide *u = berth_calloc(1, sizeof *u);
    if (u == NULL) {
        model_fail(error, "out of memory");
        return NULL;
    }
    u->g = grammar;
    u->vocab = vocab;
    u->error = error;
    u->collect_at = collect_least(grammar);
    u->first_source = berth_malloc((size_t) grammar->n_components * sizeof *u->first_source);
    u->called = berth_malloc((size_t) grammar->n_components * sizeof *u->called);
    if (u->first_source == NULL || u->called == NULL || !pieces_make(u)) {
        guide_free(u);
        model_fail(error, "out of memory for the tokens of a grammar");
        return NULL;
    }
    memset(u->first_source, 0xff, (size_t) grammar->n_components * sizeof *u->first_source);
    if (!stacks_init(&u->stacks, grammar->max_stack_size, error) || !guide_reset(u, error)) {
        guide_free(u);
        return NULL;
    }
    return u;
}

void guide_free(struct guide *u) {
    if (u == NULL) {
        return;
    }
    for (size_t i = 0; u->sets != NULL && i < u->n_sets; i++) {
        berth_free(u->sets[i].ids);
    }
    for (size_t i = 0; i < N_MASKS; i++) {
        berth_free(u->masks[i].set.ids);
        berth_free(u->masks[i].bits);
    }
    berth_free(u->sets);
    berth_free(u->bytes);
    berth_free(u->pieces);
    stacks_fini(&u->stacks);
    berth_free(u->work);
    berth_free(u->ready.places);
    berth_free(u->calls.places);
    berth_free(u->sources);
    berth_free(u->first_source);
    berth_free(u->called);
    berth_free(u->joined);
    berth_free(u);
}

// ---- tokens ----

static size_t common_prefix(const struct piece *a, const struct piece *b) {
    const size_t most = min_size(a->n, b->n);
    size_t n = 0;
    while (n < most && a->bytes[n] == b->bytes[n]) {
        n++;
    }
    return n;
}

static bool mask_fill(struct guide *u, struct mask *m) {
    size_t n_matched = 0; // bytes of the previous piece that the grammar allowed
    m->n_allowed = 0;
    memset(m->bits, 0, (size_t) u->vocab->n_tokens / 8 + 1);
    for (int32_t i = 0; i < u->n_pieces; i++) {
        const struct piece *piece = &u->pieces[i];
        const size_t n_same = i > 0 ? common_prefix(piece - 1, piece) : 0;
        if (n_same > n_matched) { // fails at the same byte as the previous piece
            continue;
        }
        size_t n = n_same;
        while (n < piece->n) {
            if (!places_step(u, &u->sets[n], (uint8_t) piece->bytes[n], &u->sets[n + 1])) {
                return false;
            }
            if (u->sets[n + 1].n == 0 && !u->sets[n + 1].is_over) {
                break;
            }
            n++;
        }
        n_matched = n;
        if (n == piece->n) {
            m->bits[piece->token / 8] |= (uint8_t) (1u << (piece->token % 8));
            m->n_allowed++;
        }
    }
    for (int32_t i = 0; u->sets[0].is_over && i < u->vocab->n_tokens; i++) {
        if (vocab_is_end(u->vocab, i)) {
            m->bits[i / 8] |= (uint8_t) (1u << (i % 8));
            m->n_allowed++;
        }
    }
    return true;
}

static bool sets_equal(const struct place_set *a, const struct place_set *b) {
    return a->n == b->n && a->is_over == b->is_over && (a->n == 0 || memcmp(a->ids, b->ids, a->n * sizeof *a->ids) == 0);
}

static int by_number(const void *a, const void *b) {
    const uint32_t x = *(const uint32_t *) a, y = *(const uint32_t *) b;
    return (x > y) - (x < y);
}

// Removes unreachable stacks if they may use much memory. Out of memory: the stacks stay.
static void stacks_trim(struct guide *u) {
    if (stacks_size(&u->stacks) < u->collect_at || !stacks_collect(&u->stacks, u->sets[0].ids, u->sets[0].n)) {
        return;
    }
    for (size_t i = 0; i < N_MASKS; i++) { // the places have new numbers
        u->masks[i].is_valid = false;
    }
    const size_t most = u->g->max_stack_size - u->g->max_stack_size / 8;
    u->collect_at = min_size(max_size(2 * stacks_size(&u->stacks), collect_least(u->g)), most);
}

// Returns the mask of the current position; NULL with an error.
static const struct mask *mask_find(struct guide *u) {
    struct place_set *current = &u->sets[0];
    stacks_trim(u);
    if (current->n > 1) {
        qsort(current->ids, current->n, sizeof *current->ids, by_number);
    }
    for (size_t i = 0; i < N_MASKS; i++) {
        if (u->masks[i].is_valid && sets_equal(&u->masks[i].set, current)) {
            return &u->masks[i];
        }
    }
    struct mask *m = &u->masks[u->next_mask++ % N_MASKS];
    m->is_valid = false;
    if (m->bits == NULL) {
        m->bits = berth_malloc((size_t) u->vocab->n_tokens / 8 + 1);
    }
    if (m->bits == NULL) {
        out_of_memory(u);
        return NULL;
    }
    m->set.n = 0;
    m->set.is_over = current->is_over;
    for (size_t i = 0; i < current->n; i++) {
        if (!set_add(u, &m->set, current->ids[i])) {
            return NULL;
        }
    }
    m->is_valid = mask_fill(u, m);
    return m->is_valid ? m : NULL;
}

int64_t guide_mask(struct guide *u, float *logits, int64_t n, struct model_error *error) {
    u->error = error;
    u->n_steps = 0;
    const struct mask *m = mask_find(u);
    for (int64_t i = 0; m != NULL && i < n; i++) {
        if (i >= u->vocab->n_tokens || (m->bits[i / 8] >> (i % 8) & 1) == 0) {
            logits[i] = -INFINITY;
        }
    }
    return m != NULL ? m->n_allowed : -1;
}

bool guide_accept(struct guide *u, int32_t token, struct model_error *error) {
    char piece[64], *bytes = piece;
    const size_t n = vocab_is_end(u->vocab, token) ? 0 : vocab_piece(u->vocab, token, piece, sizeof piece);
    u->error = error;
    u->n_steps = 0;
    if (n > sizeof piece) {
        bytes = berth_malloc(n);
        if (bytes == NULL) {
            return out_of_memory(u);
        }
        vocab_piece(u->vocab, token, bytes, n);
    }
    bool ok = true;
    for (size_t i = 0; ok && i < n; i++) {
        ok = places_step(u, &u->sets[0], (uint8_t) bytes[i], &u->sets[1]);
        if (ok) {
            const struct place_set before = u->sets[0];
            u->sets[0] = u->sets[1];
            u->sets[1] = before;
        }
    }
    if (bytes != piece) {
        berth_free(bytes);
    }
    return ok;
}
