// SPDX-License-Identifier: MIT
// grammar_stack.h: the stacks of a guide, as one graph that shares everything equal.
//
// A place is an element of the grammar, how often its repetition was matched before, and the stack below it. A stack is a set of
// places, of which each may be what follows at the end of a rule. Two stacks that end alike are one from there on, and each place
// and each stack exists once: equal places have equal numbers. Alternatives that differ only in what follows are therefore one
// place over one stack, and a text of n bytes has at most n times the grammar's calls of them, where a list of all stacks can
// double with each byte.
#pragma once

#include "base/siphash.h"
#include "model/grammar.h"

struct grammar_place {
    uint32_t elem, count;
    uint32_t below; // stack
};

#define PLACE_OVER 0u // the text is over
#define STACK_NONE UINT32_MAX

struct grammar_stack {
    size_t at; // of its places in members
    uint32_t n;
    uint32_t born; // number of places when it was made: all of its own are older
};

struct grammar_stacks {
    struct grammar_place *places; // [n_places]; PLACE_OVER has no element
    uint32_t *place_stamps;       // [places_room] for the user; 0 when it is new
    struct grammar_stack *stacks; // [n_stacks]
    uint32_t *stack_stamps;       // [stacks_room] likewise
    uint32_t *members;            // [n_members] places of stacks, ascending
    size_t n_places, places_room, n_stacks, stacks_room, n_members, members_room;
    uint32_t *place_slots, *stack_slots; // hash tables of number + 1; 0: free
    size_t n_place_slots, n_stack_slots;
    struct berth_siphash_key key;
    size_t max_size; // bytes
};

bool stacks_init(struct grammar_stacks *stacks, size_t max_size, struct model_error *error);
void stacks_fini(struct grammar_stacks *stacks);
// Bytes that places and stacks take.
size_t stacks_size(const struct grammar_stacks *stacks);
// False with an error: out of memory, or beyond max_size.
bool stacks_place(
    struct grammar_stacks *stacks, uint32_t elem, uint32_t count, uint32_t below, uint32_t *place, struct model_error *error);
// The stack of n places; sorts them and drops equal ones.
bool stacks_stack(struct grammar_stacks *stacks, uint32_t *places, size_t n, uint32_t *stack, struct model_error *error);
// Drops everything that `live` does not reach, and renumbers these. False: out of memory, and all is as before.
bool stacks_collect(struct grammar_stacks *stacks, uint32_t *live, size_t n);
