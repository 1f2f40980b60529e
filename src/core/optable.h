// SPDX-License-Identifier: MIT
// optable.h: one row an op with all that is true of it everywhere. It stands in the file of its constructor, ops_*.c, at the end.
// Backends have tables of their own.
#pragma once

#include "berth.h"

struct berth_grad;

// How an op carries on what is split over devices (src/meta/rule.c).
enum berth_split_rule {
    BERTH_SPLIT_NONE,
    BERTH_SPLIT_EACH, // element by element, with broadcasting
    BERTH_SPLIT_ADD_ID,
    BERTH_SPLIT_GLU,
    BERTH_SPLIT_ROWS, // row by row
    BERTH_SPLIT_SOFT_MAX,
    BERTH_SPLIT_ROPE,
    BERTH_SPLIT_KEEP, // nothing happens along the axis
    BERTH_SPLIT_MUL_MAT,
    BERTH_SPLIT_MUL_MAT_ID,
    BERTH_SPLIT_GET_ROWS,
    BERTH_SPLIT_SET_ROWS,
    BERTH_SPLIT_CONT, // the same elements in their order
    BERTH_SPLIT_CPY,
    BERTH_SPLIT_CONCAT,
    BERTH_SPLIT_FLASH_ATTN,
    BERTH_SPLIT_SSM_CONV,
    BERTH_SPLIT_STEP, // an optimiser's: weights, gradients, what is kept of them, numbers
    BERTH_SPLIT_RULES,
};

// Whether an op may be computed on each term of a sum over devices, so that its result is one as well.
enum berth_sum_rule {
    BERTH_SUM_NONE,
    BERTH_SUM_ALL,   // every source a sum: they are added
    BERTH_SUM_FIRST, // the first a sum, the others whole: it is multiplied
    BERTH_SUM_ALONE, // one source, no constant is added
    BERTH_SUM_SCALE, // the same where parameter 1 is 0
};

struct berth_op_info {
    const char *name;
    const char *symbol;
    int n_src;        // sources it reads at most
    int n_needed;     // sources it cannot do without; 0: all
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
    // Whether the extents of a node, whose sources are there, fit each other as its constructor makes them; types are for backends
    // to refuse. For nodes of unknown origin (berth_op_shape_holds). NULL: such nodes are not computed.
    bool (*shape)(const struct ggml_tensor *node);
    enum berth_split_rule split; // how a composite device splits it; 0: it gets whole sources
    enum berth_sum_rule sum;
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

// For `shape` of rows: the shape of the first source; as many elements as each source has.
bool berth_shape_as_source(const struct ggml_tensor *r);
bool berth_shape_as_many(const struct ggml_tensor *r);
static inline bool berth_shape_is(const struct ggml_tensor *t, int64_t ne0, int64_t ne1, int64_t ne2, int64_t ne3) {
    return t->ne[0] == ne0 && t->ne[1] == ne1 && t->ne[2] == ne2 && t->ne[3] == ne3;
}
static inline bool berth_divides(int64_t a, int64_t b) {
    return a > 0 && b % a == 0;
}

// Whether no gradient goes through the node: is_flat of its op, or of its formula where that is UNARY.
bool berth_op_is_flat(const struct ggml_tensor *node);
// NULL for a number that is no op.
const struct berth_op_info *berth_op_info(enum ggml_op op);
