// SPDX-License-Identifier: MIT
// optable.h: one row per op with all its properties that do not depend on a backend. The rows are at the end of the files of the
// constructors, ops_*.c. Backends have their own tables.
#pragma once

#include "berth.h"

struct berth_grad;

// How an op treats sources that are split over the devices of a composite device (src/meta/rule.c).
enum berth_split_rule {
    BERTH_SPLIT_NONE,
    BERTH_SPLIT_EACH, // elementwise, with broadcasting
    BERTH_SPLIT_ADD_ID,
    BERTH_SPLIT_GLU,
    BERTH_SPLIT_ROWS, // each row is computed separately
    BERTH_SPLIT_SOFT_MAX,
    BERTH_SPLIT_ROPE,
    BERTH_SPLIT_KEEP, // the op does nothing along the split axis
    BERTH_SPLIT_MUL_MAT,
    BERTH_SPLIT_MUL_MAT_ID,
    BERTH_SPLIT_GET_ROWS,
    BERTH_SPLIT_SET_ROWS,
    BERTH_SPLIT_CONT, // the same elements in the same order
    BERTH_SPLIT_CPY,
    BERTH_SPLIT_CONCAT,
    BERTH_SPLIT_FLASH_ATTN,
    BERTH_SPLIT_SSM_CONV,
    BERTH_SPLIT_STEP, // an optimiser step: weights, gradients, moments, hyperparameters
    BERTH_SPLIT_RULES,
};

// Whether an op may be applied to partial sums: tensors of which each device of a composite device has one term, so that the sum
// over the devices is the value. If the op may, the results of the devices are partial sums too.
enum berth_partial_rule {
    BERTH_PARTIAL_NONE,
    BERTH_PARTIAL_ADD,       // all sources must be partial sums; the op adds or subtracts them
    BERTH_PARTIAL_MUL_FIRST, // only the first source may be a partial sum; the op multiplies or divides it by the others
    BERTH_PARTIAL_LINEAR,    // the op has one source and is linear
    BERTH_PARTIAL_SCALE,     // as BERTH_PARTIAL_LINEAR if op_params[1], the added constant, is 0
};

struct berth_op_info {
    const char *name;
    const char *symbol;
    int n_src;        // highest number of sources that the op reads
    int n_needed;     // number of required sources; 0: all of them
    bool in_place;    // the result may use the memory of the first source, as in ggml
    bool is_view;     // moves no data: the result is a view of its source
    bool is_empty;    // nothing to compute: NONE and the views
    bool may_expand;  // a buffer type may require more than ggml_nbytes() for the result
    bool writes_src;  // writes into the memory of a source (through a view); ops with this property keep their order
    int overwrites;   // 1 + index of the source whose memory an in-place result overwrites without reading it; 0: none
    unsigned updates; // bit i: the op writes source i in addition to the result
    enum berth_op_family family;
    // Creates a sample: a small node with this op, for queries to devices and for tests (berth_op_sample). Its sources have types a
    // and b, or its source has type a and its result type b. sub selects the formula of UNARY or GLU. NULL: no sample
    // (GGML_OP_NONE).
    struct ggml_tensor *(*sample)(struct ggml_context *ctx, enum ggml_type a, enum ggml_type b, int sub);
    const char *relation; // text between the types a and b of a sample in reports: "x" in "q4_0 x f32"; NULL: only a is used
    // Corrects the general cost (berth_op_cost) of a node whose first two sources are not NULL. NULL: the general cost is correct.
    void (*cost)(const struct ggml_tensor *node, struct berth_op_cost *c);
    // Returns true if the extents of a node and of its sources could come from the op's constructor. All required sources must be
    // set. Backends check the types. It is used for nodes from other processes (berth_op_shape_holds). NULL: such nodes are
    // refused.
    bool (*shape)(const struct ggml_tensor *node);
    enum berth_split_rule split; // how a composite device splits the op; 0: each device gets complete sources
    enum berth_partial_rule partial_rule;
    bool is_flat;                       // the derivative is 0 wherever it is defined: no gradient passes through the op
    void (*grad)(struct berth_grad *g); // the gradient rule (grad.h); NULL: a backward pass refuses the op
    unsigned grad_src_mask;             // bit i: the rule computes a gradient for source i; the other sources get none
};

struct berth_op_entry {
    enum ggml_op op; // GGML_OP_COUNT: end of the list
    struct berth_op_info info;
};
#define BERTH_OPS_END \
    { \
        GGML_OP_COUNT, { \
            0 \
        } \
    }

// A move is a node that spills a value of a graph to another pool of memory (OUT) or reads it back (IN). It is a GGML_OP_DUP with
// this value as its first parameter. If its source and its result get the same memory, the scheduler's copy between the pools is
// the only copy.
enum berth_move { BERTH_MOVE_NONE, BERTH_MOVE_OUT = 0x6d6f7601, BERTH_MOVE_IN = 0x6d6f7602 };
static inline enum berth_move berth_move_of(const struct ggml_tensor *t) {
    const int32_t kind = t->op == GGML_OP_DUP ? t->op_params[0] : 0;
    return kind == BERTH_MOVE_OUT || kind == BERTH_MOVE_IN ? (enum berth_move) kind : BERTH_MOVE_NONE;
}

// Returns the bytes of a tensor's elements. These are fewer than its span if its strides leave gaps.
double berth_elements_size(const struct ggml_tensor *t);
// A `cost` function for ops that only move data and belong to a family whose ops compute.
void berth_cost_move(const struct ggml_tensor *node, struct berth_op_cost *c);

// `shape` functions for rows of the op table. berth_shape_as_source: the result has the shape of the first source.
// berth_shape_as_many: the result has as many elements as each source.
bool berth_shape_as_source(const struct ggml_tensor *r);
bool berth_shape_as_many(const struct ggml_tensor *r);
static inline bool berth_shape_is(const struct ggml_tensor *t, int64_t ne0, int64_t ne1, int64_t ne2, int64_t ne3) {
    return t->ne[0] == ne0 && t->ne[1] == ne1 && t->ne[2] == ne2 && t->ne[3] == ne3;
}
static inline bool berth_divides(int64_t a, int64_t b) {
    return a > 0 && b % a == 0;
}

// Returns true if no gradient passes through the node: is_flat of its op, or for UNARY of its formula.
bool berth_op_is_flat(const struct ggml_tensor *node);
// Returns NULL if the number is not an op.
const struct berth_op_info *berth_op_info(enum ggml_op op);
