// SPDX-License-Identifier: MIT
// build.h: interface between version.c and build.c, which build a program.
// A version of a tensor is its parts in one state. A tensor can have several versions at a time, such as its split parts and a
// complete copy.
#pragma once

#include "core/optable.h"
#include "meta/program.h"

struct meta_version {
    struct ggml_tensor *parts; // [n] one per device; NULL: out of memory
    int32_t temp;              // index in program.temps of the temporary tensor that has the memory; -1: graph memory
};

struct meta_row {
    const meta_state *state;    // of a root: its current state
    struct meta_version native; // version in the tensor's planned memory
    struct meta_version whole;  // complete copy of a split root, if has_whole
    // Cache of a view: view_state is the state of the view while the state of its root is view_state_of. view_state NULL: no
    // state describes the view.
    const meta_state *view_state;
    const meta_state *view_state_of;
    int32_t n_uses; // of a root: number of uses as a source, including uses of its views
    bool has_whole;
};

#define META_N_KEPT_STATES 16 // number of stored states that new states are compared with

struct meta_builder {
    struct meta_program *p;
    ggml_backend_t *backends;
    int n;
    struct meta_row *rows;
    int64_t clock;       // time unit of temporary tensors; advances with each step and each node
    bool is_running;     // the last step is META_COMPUTE, so further nodes are appended to it
    int64_t whole_bytes; // bytes moved for the current node
    const meta_state *kept_states[META_N_KEPT_STATES];
    size_t n_kept_states;
    bool has_failed;            // out of memory
    bool has_grown;             // a root got new memory: earlier addresses are invalid
    struct meta_sizing *sizing; // NULL: the tensors have memory. Otherwise only the sizes of parts are computed
};

// ---- version.c ----

struct meta_step *meta_step_add(struct meta_builder *b, enum meta_step_kind kind); // NULL: out of memory
void *meta_builder_take(struct meta_builder *b, size_t n, size_t size);
struct ggml_tensor *meta_parts_take(struct meta_builder *b); // [n] parts
const meta_state *meta_state_keep(struct meta_builder *b, const meta_state *s);
struct meta_row *meta_row_of(struct meta_builder *b, const struct ggml_tensor *t); // row of its root
void meta_use(struct meta_builder *b, struct meta_version v); // extends the lifetime of a temporary version to now
// Returns true if the root has its own memory, as a weight has; false for graph memory.
bool meta_is_own(const struct meta_builder *b, const struct ggml_tensor *root);

// Returns NULL if no state describes the tensor.
const meta_state *meta_state_of(struct meta_builder *b, const struct ggml_tensor *t);
// Returns the native version: the parts in the tensor's planned memory, in the current state.
struct meta_version meta_native(struct meta_builder *b, const struct ggml_tensor *t);
// Returns a version in new temporary memory. Its parts are contiguous.
struct meta_version meta_temp_new(struct meta_builder *b, const struct ggml_tensor *t, const meta_state *s);
// meta_whole_root returns a complete version of the root. meta_whole_view returns the view t of a complete root.
// If the root is mirrored or can be summed in place, the version is the native one. Otherwise the version is a copy.
struct meta_version meta_whole_root(struct meta_builder *b, const struct ggml_tensor *root);
struct meta_version meta_whole_view(struct meta_builder *b, const struct ggml_tensor *t, struct meta_version root);
void meta_move(struct meta_builder *b, const struct ggml_tensor *t, struct meta_version from, const meta_state *from_state,
    struct meta_version to, const meta_state *to_state);
void meta_sum(struct meta_builder *b, const struct ggml_tensor *root, struct meta_version v);
// Converts a source of the node to the state that the rule requires. meta_can_convert tests whether that is possible.
bool meta_can_convert(struct meta_builder *b, const struct ggml_tensor *t, const meta_state *have, const meta_state *want,
    const struct ggml_tensor *node);
struct meta_version meta_convert(struct meta_builder *b, const struct ggml_tensor *t, const meta_state *have,
    const meta_state *want, const struct ggml_tensor *node);

// ---- sizing.c ----

// Returns -1 if no item of the current plan holds the root.
int32_t meta_sizing_item(const struct meta_sizing *s, const struct ggml_tensor *root);
// Computes the root's part on device j, which has no memory yet. Enlarges the root's item so that it can hold the part.
void meta_sizing_part(
    struct meta_sizing *s, const struct ggml_tensor *root, const meta_state *state, int j, struct ggml_tensor *part);
void meta_sizing_enlarge(struct meta_sizing *s, const struct ggml_tensor *root, int j, const struct ggml_tensor *part);

// ---- build.c ----

// Returns false for views and for nodes without computation.
static inline bool meta_computes(const struct ggml_tensor *t) {
    const struct berth_op_info *info = berth_op_info(t->op);
    return info != NULL && !info->is_empty && ggml_nelements(t) > 0 && t->op != GGML_OP_NONE;
}
enum ggml_status meta_build(struct meta_builder *b) BERTH_MUST_USE;

// ---- program.c ----

enum ggml_status meta_program_size(struct meta_sizing *s, const struct ggml_cgraph *graph) BERTH_MUST_USE;
