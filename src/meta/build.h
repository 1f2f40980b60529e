// SPDX-License-Identifier: MIT
// build.h: what the two halves of building a program share: versions of tensors (version.c), nodes (build.c).
#pragma once

#include "core/optable.h"
#include "meta/program.h"

// The parts of a tensor in some state.
struct meta_version {
    struct ggml_tensor *parts; // [n]; NULL: out of memory
    int32_t temp;              // whose memory it is or looks at, -1: the graph's
};

struct meta_row {
    const meta_state *state;    // of a root: now
    struct meta_version native; // where the graph's plan has it
    struct meta_version whole;  // of a split root
    const meta_state *as;       // of a view: what follows from its root's state as_of; NULL: no state says it
    const meta_state *as_of;
    int32_t n_uses; // as a source, of it or of views of it
    bool has_whole;
};

#define META_N_CACHED_PLANS 16 // states that are looked at before another is kept: a graph has few that differ

struct meta_builder {
    struct meta_program *p;
    ggml_backend_t *backends;
    int n;
    struct meta_row *rows;
    int64_t clock;
    bool is_running;     // a META_COMPUTE step is open
    int64_t whole_bytes; // moved for the node at hand
    const meta_state *kept[META_N_CACHED_PLANS];
    size_t n_kept;
    bool has_failed;            // memory
    bool has_grown;             // a root got other memory: what was built so far may not know
    struct meta_sizing *sizing; // NULL: tensors have memory; else it is about how much they need
};

// ---- version.c ----

struct meta_step *meta_step_add(struct meta_builder *b, enum meta_step_kind kind); // NULL: out of memory
void *meta_builder_take(struct meta_builder *b, size_t n, size_t size);
struct ggml_tensor *meta_parts_take(struct meta_builder *b); // [n]
const meta_state *meta_state_keep(struct meta_builder *b, const meta_state *s);
struct meta_row *meta_row_of(struct meta_builder *b, const struct ggml_tensor *t); // of its root
// The version is read or written now.
void meta_use(struct meta_builder *b, struct meta_version v);
// A root's memory may hold what a callback said it does and nothing else.
bool meta_is_own(const struct meta_builder *b, const struct ggml_tensor *root);

// The state of a tensor now; NULL: no state says it.
const meta_state *meta_state_of(struct meta_builder *b, const struct ggml_tensor *t);
// Where the graph's plan has it, in the state it has.
struct meta_version meta_native(struct meta_builder *b, const struct ggml_tensor *t);
// A temporary tensor of t's shape in a state, without gaps.
struct meta_version meta_temp_new(struct meta_builder *b, const struct ggml_tensor *t, const meta_state *s);
// The whole root: its own parts, if they are or can be made whole, or a copy; and a view of that.
struct meta_version meta_whole_root(struct meta_builder *b, const struct ggml_tensor *root);
struct meta_version meta_whole_view(struct meta_builder *b, const struct ggml_tensor *t, struct meta_version root);
void meta_move(struct meta_builder *b, const struct ggml_tensor *t, struct meta_version from, const meta_state *from_state,
    struct meta_version to, const meta_state *to_state);
// Adds up what the devices have, in place.
void meta_sum(struct meta_builder *b, const struct ggml_tensor *root, struct meta_version v);
// A source of node as its rule wants it; can_turn: is there a way?
bool meta_can_turn(struct meta_builder *b, const struct ggml_tensor *t, const meta_state *have, const meta_state *want,
    const struct ggml_tensor *node);
struct meta_version meta_turn(struct meta_builder *b, const struct ggml_tensor *t, const meta_state *have, const meta_state *want,
    const struct ggml_tensor *node);

// ---- sizing.c ----

// The item of the plan at hand that a root lies in, -1: none.
int32_t meta_sizing_item(const struct meta_sizing *s, const struct ggml_tensor *root);
// The root's part on device j, which has no memory yet; its item needs as much.
void meta_sizing_part(
    struct meta_sizing *s, const struct ggml_tensor *root, const meta_state *state, int j, struct ggml_tensor *part);
// What the item of a root needs so that this part of it can be computed.
void meta_sizing_note(struct meta_sizing *s, const struct ggml_tensor *root, int j, const struct ggml_tensor *part);

// ---- build.c ----

// Is it work, or only a view, or nothing?
static inline bool meta_computes(const struct ggml_tensor *t) {
    const struct berth_op_info *info = berth_op_info(t->op);
    return info != NULL && !info->is_empty && ggml_nelements(t) > 0 && t->op != GGML_OP_NONE;
}
// Steps and nodes for all of the record's nodes.
enum ggml_status meta_build(struct meta_builder *b) BERTH_MUST_USE;

// ---- program.c ----

// What the steps of this graph need, for sizing; no more is made.
enum ggml_status meta_program_size(struct meta_sizing *s, const struct ggml_cgraph *graph) BERTH_MUST_USE;
