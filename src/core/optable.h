// SPDX-License-Identifier: MIT
// optable.h: the op table: one row per op with the properties that do not depend on a backend.
// The rows are at the end of the files of the constructors, ops_*.c.
#pragma once

#include "berth.h"

struct berth_grad;

// How a composite device splits the sources of an op (src/meta/rule.c).
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

// Whether an op may be applied to partial sums. The result is then a partial sum too.
// Partial sum: each device of a composite device has one term, and the sum over the devices is the value.
enum berth_partial_rule {
    BERTH_PARTIAL_NONE,
    BERTH_PARTIAL_ADD,       // all sources are partial sums; adds or subtracts
    BERTH_PARTIAL_MUL_FIRST, // only the first source is a partial sum
    BERTH_PARTIAL_LINEAR,    // one source; the op is linear
    BERTH_PARTIAL_SCALE,     // linear if op_params[1], the added constant, is 0
};

struct berth_op_info {
    const char *name;
    const char *symbol;
    int n_src;        // highest number of sources that the op reads
    int n_needed;     // number of required sources; 0: all of them
    bool in_place;    // the result may use the memory of the first source, as in ggml
    bool is_view;     // moves no data: the result is a view of its source
    bool is_empty;    // nothing to compute: NONE and the views
    bool may_expand;  // a buffer type may require more memory for the result than ggml_nbytes() (get_alloc_size)
    int overwrites;   // 1 + index of the source that the op overwrites without reading it; 0: none
    unsigned updates; // bit i: also writes source i, such as the moments of AdamW
    enum berth_op_family family;
    // Sample: a small node with this op, for device queries and tests (berth_op_sample). NULL: no sample (GGML_OP_NONE).
    // a and b are the types of the sources, or of the source and the result. sub selects the formula of UNARY or GLU.
    struct ggml_tensor *(*sample)(struct ggml_context *ctx, enum ggml_type a, enum ggml_type b, int sub);
    const char *relation; // text between the names of types a and b in reports, such as x in "q4_0 x f32"; NULL: b is unused
    // Corrects the general cost (berth_op_cost). Called only if the first two sources are set. NULL: the general cost is correct.
    void (*cost)(const struct ggml_tensor *node, struct berth_op_cost *c);
    // Checks the extents of nodes from other processes (berth_op_shape_holds). All required sources must be set.
    // Backends check the types. NULL: nodes from other processes are refused.
    bool (*shape)(const struct ggml_tensor *node);
    enum berth_split_rule split; // 0: each device gets complete sources
    enum berth_partial_rule partial_rule;
    bool is_flat;                       // derivative 0 wherever defined: passes no gradient
    void (*grad)(struct berth_grad *g); // the gradient rule (grad.h); NULL: a backward pass refuses the op
    unsigned grad_src_mask;             // bit i: the rule computes source i's gradient
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

// A move is a GGML_OP_DUP that spills a value to another memory pool (OUT) or reads the value back (IN). op_params[0] is
// BERTH_MOVE_OUT or BERTH_MOVE_IN. The scheduler copies the source between the pools. If it copies the source directly to the
// address of the DUP's result, it need not run the DUP.
enum berth_move { BERTH_MOVE_NONE, BERTH_MOVE_OUT = 0x6d6f7601, BERTH_MOVE_IN = 0x6d6f7602 };
static inline enum berth_move berth_move_of(const struct ggml_tensor *t) {
    const int32_t kind = t->op == GGML_OP_DUP ? t->op_params[0] : 0;
    return kind == BERTH_MOVE_OUT || kind == BERTH_MOVE_IN ? (enum berth_move) kind : BERTH_MOVE_NONE;
}

// Returns the size of all elements in bytes, without the gaps that strides leave.
double berth_elements_size(const struct ggml_tensor *t);
// The `cost` function of an op that only moves data although other ops of its family compute, such as IM2COL.
void berth_cost_move(const struct ggml_tensor *node, struct berth_op_cost *c);

// Functions for the member `shape`. as_source: the result has the shape of the first source. as_many: the result has as many
// elements as each of its sources.
bool berth_shape_as_source(const struct ggml_tensor *r);
bool berth_shape_as_many(const struct ggml_tensor *r);
static inline bool berth_shape_is(const struct ggml_tensor *t, int64_t ne0, int64_t ne1, int64_t ne2, int64_t ne3) {
    return t->ne[0] == ne0 && t->ne[1] == ne1 && t->ne[2] == ne2 && t->ne[3] == ne3;
}
static inline bool berth_divides(int64_t a, int64_t b) {
    return a > 0 && b % a == 0;
}

bool berth_op_is_flat(const struct ggml_tensor *node);
// Returns NULL if the number is not an op.
const struct berth_op_info *berth_op_info(enum ggml_op op);
