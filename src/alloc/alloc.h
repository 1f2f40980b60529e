// SPDX-License-Identifier: MIT
// alloc.h: the interface of the graph allocator for other folders. The caller builds a record. The allocator makes a plan for the
// record, allocates buffers and returns the addresses of the rows.
#pragma once

#include "alloc/lifetime.h"
#include "berth-alloc.h"

struct galloc_plan;

// has_places: the plan stores the addresses of all rows. ggml_gallocr_alloc_graph requires these addresses. A caller that reads
// addresses with berth_galloc_place does not.
struct galloc_plan *berth_galloc_plan_new(const struct ggml_gallocr *galloc, bool has_places);
void berth_galloc_plan_free(struct ggml_gallocr *galloc, struct galloc_plan *plan);
// Columns that the caller fills: rows[n_rows], and the row of each step in execution order, steps[n_steps]. If out of memory,
// rows is NULL.
struct galloc_columns {
    struct lifetime_row *rows;
    int32_t *steps;
};
struct galloc_columns berth_galloc_plan_columns(struct galloc_plan *plan, size_t n_rows, size_t n_steps) BERTH_MUST_USE;
// Computes lifetimes and offsets from filled columns. The tensors must exist until the plan is saved. Allocates no buffer.
enum ggml_status berth_galloc_plan_make(
    struct ggml_gallocr *galloc, struct galloc_plan *plan, struct record *rec, const struct lifetime_order *order) BERTH_MUST_USE;
// Stores the rows and edges of the record, including appended ones, in a plan that was just made.
bool berth_galloc_plan_remember(struct galloc_plan *plan, const struct record *rec) BERTH_MUST_USE;
// Returns true if the record has the rows and edges of the plan, and no tensor is larger than planned. The plan then refers to
// the tensors of this record. Allocates no memory.
bool berth_galloc_plan_accepts(struct ggml_gallocr *galloc, struct galloc_plan *plan, struct record *rec,
    const struct lifetime_row *rows, const struct lifetime_order *order);
// Returns true if this plan accepts every graph that the other plan accepts. Requires berth_galloc_plan_remember of both.
bool berth_galloc_plan_covers(const struct galloc_plan *plan, const struct galloc_plan *other);
// Returns an empty plan with at least as much reserved memory as `plan`. NULL: out of memory.
struct galloc_plan *berth_galloc_plan_like(struct ggml_gallocr *galloc, const struct galloc_plan *plan);
// Computes the bytes that each buffer requires. If buffers share a pool, the first buffer has the size and the others have 0.
void berth_galloc_plan_sizes(const struct ggml_gallocr *galloc, const struct galloc_plan *plan, size_t *sizes);
// Returns the report of a buffer. NULL: the plan has no offsets.
const struct berth_plan_report *berth_galloc_plan_report(
    const struct ggml_gallocr *galloc, const struct galloc_plan *plan, int buf);
// Writes the plan as JSON (galloc_json.c). The tensors of the graph must still exist.
enum ggml_status berth_galloc_plan_save(
    const struct ggml_gallocr *galloc, const struct galloc_plan *plan, FILE *file) BERTH_MUST_USE;

// Allocates buffers large enough for the plan. On failure the allocator keeps its buffers, or has new buffers of the same sizes.
enum ggml_status berth_galloc_buffers_reserve(struct ggml_gallocr *galloc, struct galloc_plan *plan) BERTH_MUST_USE;
// Counts the changes of buffers, starting at 1. Addresses are valid while the value does not change.
uint64_t berth_galloc_epoch(const struct ggml_gallocr *galloc);
// Returns the address of a row. The row must not be a view. If a tensor has two rows, the row must be the first one. If the plan
// has no memory for the row, the returned buffer is NULL.
struct record_place berth_galloc_place(const struct ggml_gallocr *galloc, const struct galloc_plan *plan, int32_t row);

bool berth_galloc_owns(const struct ggml_gallocr *galloc, const struct ggml_backend_buffer *buffer);
// Returns rules for a record. is_ours is true for tensors in buffers of this allocator.
struct record_rules berth_galloc_record_rules(struct ggml_gallocr *galloc);
