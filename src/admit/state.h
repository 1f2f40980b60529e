// SPDX-License-Identifier: MIT
// state.h: the state of struct admit. docs/dev/admission.md explains it.
//
// Invariants between two calls, for every step t of now..now + n_ctx - 1:
//     1. total(t) = sum over sequences s with t < s.end of (pages of s in step t) - s.base
//                 + sum over shared nodes x with t < x.end of x.n_pages
//     2. total(t) <= n_pages
//     3. extra(t) = sum over sequences of (tokens in step t) - 1, and extra(t) <= n_batch - n_running
//     4. a shared node has at least two children, and its end is the largest end of its children
#pragma once

#include "admit/admit.h"

// Most runs of one sequence. A prompt that would need more runs is computed with one token per step in its last run.
#define ADMIT_MAX_RUNS 32

// Steps of a sequence in which it computes the same number of tokens.
struct admit_run {
    int32_t first;  // first step, counted from the sequence's admission
    int32_t before; // tokens in the cache before that step
    int32_t size;   // tokens per step
};

// The steps of a sequence. The last run lasts until n_steps.
struct admit_schedule {
    int32_t n_steps;
    int32_t n_runs;
    struct admit_run runs[ADMIT_MAX_RUNS];
};

// Pages are in a tree, because sequences share prefixes. The leaf of a sequence has the pages that only this sequence holds.
// The nodes above the leaf have its shared pages. Nodes 0..n_running-1 are the leaves, the others are shared nodes.
struct admit_node {
    int64_t end;      // first step in which no sequence below this node runs
    int32_t base;     // pages of the nodes above this one
    int32_t n_pages;  // shared nodes only; the pages of a leaf follow from its schedule
    int32_t parent;   // -1: none
    int32_t child;    // first child, -1: a leaf
    int32_t previous; // siblings; -1: none. A node without a parent has none
    int32_t next;     // of unused shared nodes: the next unused one
};

struct admit {
    struct admit_params params;
    int64_t n_extra;                  // tokens per step that prompts share
    int64_t now;                      // number of the present step
    int64_t i_now;                    // its index in total and extra
    int32_t *total;                   // [n_ctx] ring over steps: pages promised
    int32_t *extra;                   // [n_ctx] ring over steps: tokens above one of each sequence
    int n_active;                     // sequences that run
    int32_t *active;                  // [n_running] their ids are active[0..n_active), unused ids follow
    int32_t *place;                   // [n_running] place[active[i]] = i
    int32_t i_unused;                 // first unused shared node; -1: none
    int64_t *begin;                   // [n_running] step in which the sequence was admitted
    struct admit_schedule *schedules; // [n_running + 1] the last one is of the request being decided
    struct admit_node *nodes;         // [2 * n_running]
};

// ---- rings of numbers per step (ring.c); t counts from the present step, t + n <= n_ctx ----

// The largest number of the n steps from t on; 0 if n is 0.
int32_t admit_ring_max(const struct admit *a, const int32_t *ring, int64_t t, int64_t n);
void admit_ring_add(const struct admit *a, int32_t *ring, int64_t t, int64_t n, int32_t value);
int32_t admit_ring_get(const struct admit *a, const int32_t *ring, int64_t t);

// ---- schedules (schedule.c) ----

// Divides the prompt into chunks, as large as the present and later steps allow.
void admit_schedule_make(const struct admit *a, const struct admit_request *r, struct admit_schedule *s);
// The run of step t; t counts from the admission and is below n_steps.
const struct admit_run *admit_schedule_run(const struct admit_schedule *s, int64_t t);
// Tokens in the cache before step t, t <= n_steps.
int64_t admit_schedule_before(const struct admit_schedule *s, int64_t t);
// Adds sign * (tokens - 1) to extra in all steps from t on. now_t: the step, counted from the admission, of the present step.
void admit_schedule_add_extra(struct admit *a, const struct admit_schedule *s, int64_t now_t, int32_t sign);

// Walks over the steps of a schedule in pieces. In the steps of a piece, the number of pages is constant.
struct admit_pieces {
    const struct admit *a;
    const struct admit_schedule *s;
    int64_t now_t;     // the step of the schedule that is the present one
    int64_t t;         // next step of the schedule
    int32_t i_run;     // its run
    int32_t base;      // pages that are not counted
    int32_t above;     // a node whose pages this sequence keeps longer than the others do; -1: none
    int32_t n_above;   // pages of `above` that the sequence shares
    int32_t n_kept;    // pages of nodes that have ended for the others before t
    int64_t i_step, n; // the piece: n steps, the first is i_step steps after the present one
    int32_t n_pages;   // pages per step
};
bool admit_pieces_next(struct admit_pieces *p);

// ---- the tree of shared pages (tree.c) ----

void admit_tree_init(struct admit *a);
// The node that has page i of the sequence, i below the sequence's pages.
int32_t admit_tree_find(const struct admit *a, int32_t leaf, int64_t i);
// Adds a leaf that shares n_shared pages, the last of them in node `above` (-1: it shares none), and ends in step `end`.
void admit_tree_add(struct admit *a, int32_t leaf, int32_t above, int32_t n_shared, int64_t end);
// Removes a leaf, and its shared pages from the steps in which no other sequence holds them.
void admit_tree_remove(struct admit *a, int32_t leaf);
