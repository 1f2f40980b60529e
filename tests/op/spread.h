// SPDX-License-Identifier: MIT
// spread.h: the differences between two CPU libraries of the reference (variants A and B), per op and types.
#pragma once

#include "oracle_link.h"

#define OP_MAX_SPREADS 1024

struct op_spread_row {
    const char *op;
    char types[48];
    int n;
    double a_to_b;           // the largest error between the two variants
    double berth_a, berth_b; // the largest error between Berth and each variant
    double excess;           // the largest quotient of two errors of one case: Berth to A, divided by A to B
};

struct op_spread {
    struct op_oracle other; // the second variant
    struct op_spread_row rows[OP_MAX_SPREADS];
    int n_rows;
};

void op_spread_add(
    struct op_spread *s, const char *op, const struct ggml_tensor *t, double a_to_b, double berth_to_a, double berth_to_b);
void op_spread_print(const struct op_spread *s, const char *first);
