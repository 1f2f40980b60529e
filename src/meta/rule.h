// SPDX-License-Identifier: MIT
// rule.h: how an op carries what is split.
#pragma once

#include "meta/meta.h"

// A node whose sources have states, and what its rule makes of it.
struct meta_node {
    const struct ggml_tensor *t;
    int n;                                // devices
    const meta_state *have[GGML_MAX_SRC]; // NULL: no such source
    const meta_state *want[GGML_MAX_SRC]; // to be turned into these
    meta_state out;
    meta_state made[4]; // states that want points to
    int n_made;
};

// All sources are whole or split. False: the op cannot carry it and wants whole sources.
bool meta_rule(struct meta_node *node);
// Some sources are sums over the devices: may the op be computed on each part of the sum? Then its result is one, too.
bool meta_rule_sum(struct meta_node *node);
// Does the op write to its source k, too?
bool meta_writes(const struct ggml_tensor *t, int k);
