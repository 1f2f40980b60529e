// SPDX-License-Identifier: MIT
// alloc.h: what others build on the graph allocator: plans for records of theirs, buffers for these, places in them. Pools and
// chunks stay inside (galloc.h).
#pragma once

#include "alloc/lifetime.h"
#include "berth-alloc.h"

struct galloc_plan;

// has_places: with room for the addresses of all rows, of a plan that the allocator itself applies to graphs.
struct galloc_plan *berth_galloc_plan_new(const struct ggml_gallocr *galloc, bool has_places);
void berth_galloc_plan_free(struct ggml_gallocr *galloc, struct galloc_plan *plan);
// What the plan of somebody else's record keeps of it, to be filled by them: columns for n_rows rows, room for n_steps steps.
// rows NULL: out of memory.
struct galloc_columns {
    struct lifetime_row *rows;
    int32_t *steps;
};
struct galloc_columns berth_galloc_plan_columns(struct galloc_plan *plan, size_t n_rows, size_t n_steps) BERTH_MUST_USE;
// Lifetimes and offsets for a whole record, appended rows and all, whose columns are filled. The record is looked at no later,
// but its tensors are, when the plan is saved. No buffer is touched.
enum ggml_status berth_galloc_plan_make(
    struct ggml_gallocr *galloc, struct galloc_plan *plan, struct record *rec, const struct lifetime_order *order) BERTH_MUST_USE;
// Lets a plan that was just made know its record's rows and edges, as they are with what was appended.
bool berth_galloc_plan_remember(struct galloc_plan *plan, const struct record *rec) BERTH_MUST_USE;
// Is the record, with these columns and this order, of a graph with the rows and edges that the plan remembers, in which nothing
// is larger? Then the plan is one for it, and for its tensors. No heap memory.
bool berth_galloc_plan_takes(struct ggml_gallocr *galloc, struct galloc_plan *plan, struct record *rec,
    const struct lifetime_row *rows, const struct lifetime_order *order);
// Is every graph that the other plan takes one that this plan takes? Both remember.
bool berth_galloc_plan_covers(const struct galloc_plan *plan, const struct galloc_plan *other);
// A new plan with columns for as many rows and steps.
struct galloc_plan *berth_galloc_plan_like(struct ggml_gallocr *galloc, const struct galloc_plan *plan);
// What each buffer needs; buffers of one type share a pool, and the first of them stands for it.
void berth_galloc_plan_sizes(const struct ggml_gallocr *galloc, const struct galloc_plan *plan, size_t *sizes);
// Of a buffer; NULL: the plan is none.
const struct berth_plan_report *berth_galloc_plan_report(
    const struct ggml_gallocr *galloc, const struct galloc_plan *plan, int buf);
// As JSON (galloc_json.c); the graph's tensors must be alive.
enum ggml_status berth_galloc_plan_save(
    const struct ggml_gallocr *galloc, const struct galloc_plan *plan, FILE *file) BERTH_MUST_USE;

// Buffers large enough for the plan. On failure the allocator holds what it held, or as much.
enum ggml_status berth_galloc_buffers_reserve(struct ggml_gallocr *galloc, struct galloc_plan *plan) BERTH_MUST_USE;
// Counts changes of buffers, from 1: places are good for as long as it stays.
uint64_t berth_galloc_epoch(const struct ggml_gallocr *galloc);
// Where the memory of a row lies that is no view and no other's double; buffer NULL: it has none of the plan.
struct record_place berth_galloc_place(const struct ggml_gallocr *galloc, const struct galloc_plan *plan, int32_t row);

bool berth_galloc_owns(const struct ggml_gallocr *galloc, const struct ggml_backend_buffer *buffer);
// Memory in buffers of the allocator is nobody else's.
struct record_rules berth_galloc_record_rules(struct ggml_gallocr *galloc);
