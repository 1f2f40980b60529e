// SPDX-License-Identifier: MIT
// spread.h: how far two variants of the reference are from each other, by op and types: what a tolerance is measured by.
#pragma once

#include "oracle_link.h"

#define OP_MAX_SPREADS 1024

struct op_spread_row {
    const char *op;
    char types[48];
    int n;
    double variants;         // the largest error between the two
    double berth_a, berth_b; // the largest between Berth and each of them
    double excess;           // the largest ratio of Berth's error to the variants' in one case
};

struct op_spread {
    struct op_oracle other; // the second variant
    struct op_spread_row rows[OP_MAX_SPREADS];
    int n_rows;
};

void op_spread_add(struct op_spread *s, const char *op, const struct ggml_tensor *t, double variants, double a, double b);
void op_spread_print(const struct op_spread *s, const char *first);
