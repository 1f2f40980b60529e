// SPDX-License-Identifier: MIT
// build.h: interface between version.c (versions of tensors) and build.c (nodes), which build a program. A version of a tensor is
// the set of its parts in one state.
#pragma once

#include "core/optable.h"
#include "meta/program.h"

// A version of a tensor.
struct meta_version {
    struct ggml_tensor *parts; // [n] one per device; NULL: out of memory
    int32_t temp;              // temporary tensor whose memory it uses, -1: memory of the graph
};

struct meta_row {
    const meta_state *state;      // of a root: its current state
    struct meta_version native;   // the version in the memory that the graph's plan gives the tensor
    struct meta_version whole;    // the version that is a complete copy of a split root; valid if has_whole
    const meta_state *view_state; // of a view: its state if its root has state view_state_of; NULL: no state describes it
    const meta_state *view_state_of;
    int32_t n_uses; // of a root: number of uses of it or its views as a source
    bool has_whole;
};

#define META_N_KEPT_STATES 16 // stored states that a new state is compared with; a graph has few different states

struct meta_builder {
    struct meta_program *p;
    ggml_backend_t *backends;
    int n;
    struct meta_row *rows;
    int64_t clock;
    bool is_running;     // a META_COMPUTE step is open
    int64_t whole_bytes; // bytes moved for the current node
    const meta_state *kept_states[META_N_KEPT_STATES];
    size_t n_kept_states;
    bool has_failed;            // out of memory
    bool has_grown;             // a root got new memory: earlier steps may have the old address
    struct meta_sizing *sizing; // NULL: tensors have memory; otherwise only sizes are computed
};

// ---- version.c ----

struct meta_step *meta_step_add(struct meta_builder *b, enum meta_step_kind kind); // NULL: out of memory
void *meta_builder_take(struct meta_builder *b, size_t n, size_t size);
struct ggml_tensor *meta_parts_take(struct meta_builder *b); // [n] parts
const meta_state *meta_state_keep(struct meta_builder *b, const meta_state *s);
struct meta_row *meta_row_of(struct meta_builder *b, const struct ggml_tensor *t); // row of its root
// Marks that the version is read or written at the current step.
void meta_use(struct meta_builder *b, struct meta_version v);
// Returns true if the root has its own memory. The callback has fixed its state.
bool meta_is_own(const struct meta_builder *b, const struct ggml_tensor *root);

// Returns the current state of a tensor; NULL: it cannot be expressed as a state.
const meta_state *meta_state_of(struct meta_builder *b, const struct ggml_tensor *t);
// Returns the native version of t: in the memory from the graph's plan, in its current state.
struct meta_version meta_native(struct meta_builder *b, const struct ggml_tensor *t);
// Returns a contiguous temporary tensor of t's shape in a state.
struct meta_version meta_temp_new(struct meta_builder *b, const struct ggml_tensor *t, const meta_state *s);
// meta_whole_root returns a complete version of the root: the native version if it is mirrored or can be summed in place, otherwise
// a copy. meta_whole_view returns the view t of a complete root.
struct meta_version meta_whole_root(struct meta_builder *b, const struct ggml_tensor *root);
struct meta_version meta_whole_view(struct meta_builder *b, const struct ggml_tensor *t, struct meta_version root);
void meta_move(struct meta_builder *b, const struct ggml_tensor *t, struct meta_version from, const meta_state *from_state,
    struct meta_version to, const meta_state *to_state);
// Adds the parts of all devices in place.
void meta_sum(struct meta_builder *b, const struct ggml_tensor *root, struct meta_version v);
// meta_convert returns the version of a source of the node in the state that the rule requires. meta_can_convert returns true if
// that is possible.
bool meta_can_convert(struct meta_builder *b, const struct ggml_tensor *t, const meta_state *have, const meta_state *want,
    const struct ggml_tensor *node);
struct meta_version meta_convert(struct meta_builder *b, const struct ggml_tensor *t, const meta_state *have,
    const meta_state *want, const struct ggml_tensor *node);

// ---- sizing.c ----

// Returns the item of the current plan that holds the root, -1: none.
int32_t meta_sizing_item(const struct meta_sizing *s, const struct ggml_tensor *root);
// Describes the root's part on device j, which has no memory yet, and enlarges its item to hold it.
void meta_sizing_part(
    struct meta_sizing *s, const struct ggml_tensor *root, const meta_state *state, int j, struct ggml_tensor *part);
// Enlarges the item of a root so that this part of it can be computed.
void meta_sizing_enlarge(struct meta_sizing *s, const struct ggml_tensor *root, int j, const struct ggml_tensor *part);

// ---- build.c ----

// Returns false for views and for nodes without computation.
static inline bool meta_computes(const struct ggml_tensor *t) {
    const struct berth_op_info *info = berth_op_info(t->op);
    return info != NULL && !info->is_empty && ggml_nelements(t) > 0 && t->op != GGML_OP_NONE;
}
// Makes the steps and nodes for all nodes of the record.
enum ggml_status meta_build(struct meta_builder *b) BERTH_MUST_USE;

// ---- program.c ----

// Computes only the sizes that the steps of this graph require.
enum ggml_status meta_program_size(struct meta_sizing *s, const struct ggml_cgraph *graph) BERTH_MUST_USE;
