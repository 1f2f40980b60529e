// SPDX-License-Identifier: MIT
// grammar_stack.c: stores the places and stacks of a guide without duplicates.

#include "model/grammar_stack.h"

#include <stdlib.h>
#include <string.h>

#define REMOVED UINT32_MAX

bool stacks_init(struct grammar_stacks *s, size_t max_size, struct model_error *error) {
    *s = (struct grammar_stacks){.max_size = max_size};
    s->key = berth_siphash_key_new(s);
    s->n_places = 1; // PLACE_OVER
    if (!berth_grow((void **) &s->places, &s->places_room, 1, sizeof *s->places)) {
        return model_fail(error, "out of memory for the stacks of a grammar");
    }
    s->places[PLACE_OVER] = (struct grammar_place){GRAMMAR_NONE, 0, STACK_NONE};
    s->place_stamps = berth_calloc(s->places_room, sizeof *s->place_stamps);
    return s->place_stamps != NULL || model_fail(error, "out of memory for the stacks of a grammar");
}

void stacks_fini(struct grammar_stacks *s) {
    berth_free(s->places);
    berth_free(s->place_stamps);
    berth_free(s->stacks);
    berth_free(s->stack_stamps);
    berth_free(s->members);
    berth_free(s->place_slots);
    berth_free(s->stack_slots);
    *s = (struct grammar_stacks){0};
}

size_t stacks_size(const struct grammar_stacks *s) {
    const size_t slot = 4 * sizeof *s->place_slots; // the hash tables are at least a quarter full
    return s->n_places * (sizeof *s->places + sizeof *s->place_stamps + slot) +
           s->n_stacks * (sizeof *s->stacks + sizeof *s->stack_stamps + slot) + s->n_members * sizeof *s->members;
}

// ---- lists ----

static bool is_full(const struct grammar_stacks *s, size_t n_more, struct model_error *error) {
    const size_t size = stacks_size(s) + n_more * sizeof *s->members;
    if (size > s->max_size || s->n_places >= REMOVED || s->n_stacks >= REMOVED) {
        model_fail(error, "the grammar is too ambiguous: the stacks of this text need %zu bytes, but the limit is %zu", size,
            s->max_size);
        return true;
    }
    return false;
}

static bool stamped_grow(void **list, size_t n, size_t *room, size_t size, uint32_t **stamps) {
    size_t new_room = *room;
    if (!berth_grow(list, &new_room, n + 1, size)) {
        return false;
    }
    if (new_room != *room) {
        uint32_t *grown = berth_realloc(*stamps, new_room * sizeof *grown);
        if (grown == NULL) {
            return false; // the list has grown, but *room keeps the old, valid value
        }
        memset(grown + *room, 0, (new_room - *room) * sizeof *grown);
        *stamps = grown;
        *room = new_room;
    }
    return true;
}

// ---- hash tables ----

static size_t place_slot(const struct grammar_stacks *s, const struct grammar_place *p) {
    size_t i = (size_t) berth_siphash_of(&s->key, p, sizeof *p) & (s->n_place_slots - 1);
    while (s->place_slots[i] != 0 && memcmp(&s->places[s->place_slots[i] - 1], p, sizeof *p) != 0) {
        i = (i + 1) & (s->n_place_slots - 1);
    }
    return i;
}

static size_t stack_slot(const struct grammar_stacks *s, const uint32_t *places, size_t n) {
    size_t i = (size_t) berth_siphash_of(&s->key, places, n * sizeof *places) & (s->n_stack_slots - 1);
    while (s->stack_slots[i] != 0) {
        const struct grammar_stack *k = &s->stacks[s->stack_slots[i] - 1];
        if (k->n == n && memcmp(s->members + k->at, places, n * sizeof *places) == 0) {
            break;
        }
        i = (i + 1) & (s->n_stack_slots - 1);
    }
    return i;
}

static void places_enter(struct grammar_stacks *s) {
    memset(s->place_slots, 0, s->n_place_slots * sizeof *s->place_slots);
    for (uint32_t i = 1; i < s->n_places; i++) {
        s->place_slots[place_slot(s, &s->places[i])] = i + 1;
    }
}

static void stacks_enter(struct grammar_stacks *s) {
    memset(s->stack_slots, 0, s->n_stack_slots * sizeof *s->stack_slots);
    for (uint32_t i = 0; i < s->n_stacks; i++) {
        s->stack_slots[stack_slot(s, s->members + s->stacks[i].at, s->stacks[i].n)] = i + 1;
    }
}

// The table is at most half full. False: out of memory.
static bool slots_grow(
    struct grammar_stacks *s, uint32_t **slots, size_t *n_slots, size_t n, void (*enter)(struct grammar_stacks *)) {
    if (2 * n + 2 <= *n_slots) {
        return true;
    }
    const size_t n_new = *n_slots > 0 ? 2 * *n_slots : 256;
    uint32_t *grown = berth_malloc(n_new * sizeof *grown);
    if (grown == NULL) {
        return false;
    }
    berth_free(*slots);
    *slots = grown;
    *n_slots = n_new;
    enter(s);
    return true;
}

bool stacks_place(
    struct grammar_stacks *s, uint32_t elem, uint32_t count, uint32_t below, uint32_t *place, struct model_error *error) {
    const struct grammar_place p = {elem, count, below};
    if (!slots_grow(s, &s->place_slots, &s->n_place_slots, s->n_places, places_enter)) {
        return model_fail(error, "out of memory for %zu places of a grammar", s->n_places);
    }
    const size_t slot = place_slot(s, &p);
    if (s->place_slots[slot] != 0) {
        *place = s->place_slots[slot] - 1;
        return true;
    }
    if (is_full(s, 0, error)) {
        return false;
    }
    if (!stamped_grow((void **) &s->places, s->n_places, &s->places_room, sizeof *s->places, &s->place_stamps)) {
        return model_fail(error, "out of memory for %zu places of a grammar", s->n_places);
    }
    *place = (uint32_t) s->n_places++;
    s->places[*place] = p;
    s->place_slots[slot] = *place + 1;
    return true;
}

static int by_number(const void *a, const void *b) {
    const uint32_t x = *(const uint32_t *) a, y = *(const uint32_t *) b;
    return (x > y) - (x < y);
}

bool stacks_stack(struct grammar_stacks *s, uint32_t *places, size_t n, uint32_t *stack, struct model_error *error) {
    size_t n_unique = 0;
    if (n > 1) {
        qsort(places, n, sizeof *places, by_number);
    }
    for (size_t i = 0; i < n; i++) {
        if (i == 0 || places[i] != places[n_unique - 1]) {
            places[n_unique++] = places[i];
        }
    }
    if (!slots_grow(s, &s->stack_slots, &s->n_stack_slots, s->n_stacks, stacks_enter)) {
        return model_fail(error, "out of memory for %zu stacks of a grammar", s->n_stacks);
    }
    const size_t slot = stack_slot(s, places, n_unique);
    if (s->stack_slots[slot] != 0) {
        *stack = s->stack_slots[slot] - 1;
        return true;
    }
    if (is_full(s, n_unique, error)) {
        return false;
    }
    if (!stamped_grow((void **) &s->stacks, s->n_stacks, &s->stacks_room, sizeof *s->stacks, &s->stack_stamps) ||
        !berth_grow((void **) &s->members, &s->members_room, s->n_members + n_unique, sizeof *s->members)) {
        return model_fail(error, "out of memory for %zu stacks of a grammar", s->n_stacks);
    }
    *stack = (uint32_t) s->n_stacks++;
    s->stacks[*stack] = (struct grammar_stack){s->n_members, (uint32_t) n_unique, (uint32_t) s->n_places};
    s->stack_slots[slot] = *stack + 1;
    memcpy(s->members + s->n_members, places, n_unique * sizeof *places);
    s->n_members += n_unique;
    return true;
}

// ---- removal of unused places and stacks ----

// Sets new_place and new_stack to 0 for reachable places and stacks. Other entries stay REMOVED. A place or stack refers only to
// older ones, so one pass from the newest to the oldest suffices.
static void live_mark(const struct grammar_stacks *s, const uint32_t *live, size_t n, uint32_t *new_place, uint32_t *new_stack) {
    new_place[PLACE_OVER] = 0;
    for (size_t i = 0; i < n; i++) {
        new_place[live[i]] = 0;
    }
    for (size_t k = s->n_stacks, p = s->n_places; k > 0 || p > 1;) {
        if (k > 0 && (p <= 1 || s->stacks[k - 1].born >= p)) { // the newest entry is a stack
            k--;
            for (uint32_t i = 0; new_stack[k] != REMOVED && i < s->stacks[k].n; i++) {
                new_place[s->members[s->stacks[k].at + i]] = 0;
            }
        } else {
            p--;
            if (new_place[p] != REMOVED) {
                new_stack[s->places[p].below] = 0;
            }
        }
    }
}

// Oldest first: everything that a place or stack refers to already has its new number.
static void live_move(struct grammar_stacks *s, uint32_t *new_place, uint32_t *new_stack) {
    size_t n_stacks = 0, n_places = 1, n_members = 0;
    for (size_t k = 0, p = 1; k < s->n_stacks || p < s->n_places;) {
        if (k < s->n_stacks && s->stacks[k].born <= p) {
            const struct grammar_stack old = s->stacks[k];
            if (new_stack[k] != REMOVED) {
                s->stacks[n_stacks] = (struct grammar_stack){n_members, old.n, (uint32_t) n_places};
                for (uint32_t i = 0; i < old.n; i++) {
                    s->members[n_members++] = new_place[s->members[old.at + i]];
                }
                new_stack[k] = (uint32_t) n_stacks++;
            }
            k++;
        } else {
            if (new_place[p] != REMOVED) {
                s->places[n_places] = s->places[p];
                s->places[n_places].below = new_stack[s->places[p].below];
                new_place[p] = (uint32_t) n_places++;
            }
            p++;
        }
    }
    s->n_stacks = n_stacks;
    s->n_places = n_places;
    s->n_members = n_members;
}

bool stacks_collect(struct grammar_stacks *s, uint32_t *live, size_t n) {
    uint32_t *new_place = berth_malloc((s->n_places + 1) * sizeof *new_place);
    uint32_t *new_stack = berth_malloc((s->n_stacks + 1) * sizeof *new_stack);
    const bool ok = new_place != NULL && new_stack != NULL;
    if (ok) {
        memset(new_place, 0xff, (s->n_places + 1) * sizeof *new_place);
        memset(new_stack, 0xff, (s->n_stacks + 1) * sizeof *new_stack);
        live_mark(s, live, n, new_place, new_stack);
        live_move(s, new_place, new_stack);
        for (size_t i = 0; i < n; i++) {
            live[i] = new_place[live[i]];
        }
        memset(s->place_stamps, 0, s->places_room * sizeof *s->place_stamps);
        memset(s->stack_stamps, 0, s->stacks_room * sizeof *s->stack_stamps);
        places_enter(s);
        stacks_enter(s);
    }
    berth_free(new_place);
    berth_free(new_stack);
    return ok;
}
