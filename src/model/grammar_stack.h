// SPDX-License-Identifier: MIT
// grammar_stack.h: the stacks of a guide (grammar.h), stored as one graph without duplicates.
//
// A place is a position in the grammar together with the stack below it. A stack is a set of places at which the text may
// continue when a rule ends. Each place and each stack is stored once, so equal places have equal numbers. After n bytes there
// are at most n places per call in the grammar. Without sharing, the number of stacks could double with each byte.
#pragma once

#include "base/siphash.h"
#include "model/grammar.h"

struct grammar_place {
    uint32_t elem;  // index of the element
    uint32_t count; // GRAMMAR_REPEAT: how often the rule was matched so far; otherwise 0
    uint32_t below; // number of the stack at which the text continues when the rule of elem ends
};

#define PLACE_OVER 0u // the place at which the text may end
#define STACK_NONE UINT32_MAX

struct grammar_stack {
    size_t at; // index of its first place in members
    uint32_t n;
    uint32_t born; // number of places when this stack was created; its members have lower numbers
};

struct grammar_stacks {
    struct grammar_place *places; // [n_places]; PLACE_OVER has no element
    uint32_t *place_stamps;       // [places_room] last round that visited the place; 0: none
    struct grammar_stack *stacks; // [n_stacks]
    uint32_t *stack_stamps;       // [stacks_room] last round that visited the stack; 0: none
    uint32_t *members;            // [n_members] places of all stacks, ascending per stack
    size_t n_places, places_room, n_stacks, stacks_room, n_members, members_room;
    uint32_t *place_slots, *stack_slots; // hash tables of number + 1; 0: free
    size_t n_place_slots, n_stack_slots;
    struct berth_siphash_key key;
    size_t max_size; // limit in bytes
};

bool stacks_init(struct grammar_stacks *stacks, size_t max_size, struct model_error *error);
void stacks_fini(struct grammar_stacks *stacks);
size_t stacks_size(const struct grammar_stacks *stacks);
// Finds or creates a place. False with an error: out of memory, or max_size is exceeded.
bool stacks_place(
    struct grammar_stacks *stacks, uint32_t elem, uint32_t count, uint32_t below, uint32_t *place, struct model_error *error);
// Finds or creates the stack of n places. Sorts `places` and removes duplicates from it.
bool stacks_stack(struct grammar_stacks *stacks, uint32_t *places, size_t n, uint32_t *stack, struct model_error *error);
// Removes all places and stacks that are unreachable from the n places in `live`. Updates `live` to the new numbers of its
// places. False: out of memory; nothing has changed.
bool stacks_collect(struct grammar_stacks *stacks, uint32_t *live, size_t n);
