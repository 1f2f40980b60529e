// SPDX-License-Identifier: MIT
// optable.h: one row an op with all that is true of it everywhere. It stands in the file of its constructor, ops_*.c, at the end.
// Backends have tables of their own.
#pragma once

#include "berth.h"

struct berth_grad;

struct berth_op_info {
    const char *name;
    const char *symbol;
    int n_src;        // sources it reads at most
    bool in_place;    // the result may take over the first source's memory, as ggml allows it
    bool is_view;     // moves no data: the result is another look at its source
    bool is_empty;    // nothing to compute: NONE and the views
    bool may_expand;  // a buffer type may ask for more than ggml_nbytes() for the result
    bool writes_src;  // writes into memory of a source (through a view): such ops keep their order
    int overwrites;   // 1 + the source that a result in its memory replaces without reading it; 0: none
    unsigned updates; // bit i: source i is written as well as the result
    enum berth_op_family family;
    // A small tensor of the op with sources of types a and b, or of a with a result of type b, to ask devices about and to start
    // tests from: berth_op_sample. sub: which of UNARY or GLU. NULL: none (GGML_OP_NONE)
    struct ggml_tensor *(*sample)(struct ggml_context *ctx, enum ggml_type a, enum ggml_type b, int sub);
    const char *relation; // between the two types, "x" in "q4_0 x f32"; NULL: only the first one varies
    // Corrects the general cost (berth_op_cost), for a node that has its first two sources; NULL: the general cost is right.
    void (*cost)(const struct ggml_tensor *node, struct berth_op_cost *c);
    bool is_flat;                       // its derivative is 0 wherever there is one: no gradient goes through
    void (*grad)(struct berth_grad *g); // the gradient rule (grad.h); NULL: backward graphs refuse the op
    unsigned grad_srcs;                 // bit i: the rule has a gradient for source i; the others are given, not learnt
};

struct berth_op_entry {
    enum ggml_op op; // GGML_OP_COUNT: the end of the list
    struct berth_op_info info;
};
#define BERTH_OPS_END \
    { \
        GGML_OP_COUNT, { \
            0 \
        } \
    }

// A node of a graph under a budget that moves a value to another pool of memory, or back: GGML_OP_DUP with this as its first
// parameter. What it reads may become what it makes, so that a scheduler's copy is the whole of the move.
enum berth_move { BERTH_MOVE_NONE, BERTH_MOVE_OUT = 0x6d6f7601, BERTH_MOVE_IN = 0x6d6f7602 };
static inline enum berth_move berth_move_of(const struct ggml_tensor *t) {
    const int32_t kind = t->op == GGML_OP_DUP ? t->op_params[0] : 0;
    return kind == BERTH_MOVE_OUT || kind == BERTH_MOVE_IN ? (enum berth_move) kind : BERTH_MOVE_NONE;
}

// Bytes of a tensor's elements: fewer than it spans where its strides leave gaps.
double berth_elements_size(const struct ggml_tensor *t);
// For `cost` of rows: an op that only moves data, of a family that computes.
void berth_cost_move(const struct ggml_tensor *node, struct berth_op_cost *c);

// Whether no gradient goes through the node: is_flat of its op, or of its formula where that is UNARY.
bool berth_op_is_flat(const struct ggml_tensor *node);
// NULL for a number that is no op.
const struct berth_op_info *berth_op_info(enum ggml_op op);
