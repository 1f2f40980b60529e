// SPDX-License-Identifier: MIT
// optable.h: one row an op with all that is true of it everywhere. Backends have tables of their own.
#pragma once

#include "ggml.h"

struct berth_grad;

struct berth_op_info {
    const char *name;
    const char *symbol;
    int n_src;                          // sources it reads at most
    bool in_place;                      // the result may take over the first source's memory, as ggml allows it
    bool is_view;                       // moves no data: the result is another look at its source
    bool is_empty;                      // nothing to compute: NONE and the views
    bool may_expand;                    // a buffer type may ask for more than ggml_nbytes() for the result
    bool writes_src;                    // writes into memory of a source (through a view): such ops keep their order
    bool is_flat;                       // its derivative is 0 wherever there is one: no gradient goes through
    void (*grad)(struct berth_grad *g); // the gradient rule (grad.h); NULL: backward graphs refuse the op
    unsigned grad_srcs;                 // bit i: the rule has a gradient for source i; the others are given, not learnt
};

// NULL for a number that is no op.
const struct berth_op_info *berth_op_info(enum ggml_op op);
