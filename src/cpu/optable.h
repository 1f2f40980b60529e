// SPDX-License-Identifier: MIT
// optable.h: the list of op driver families. Each op/<name>.c, which defines cpu_ops_<name>[], needs a line here.
#pragma once

#include "cpu/cpu.h"

// clang-format off
#define CPU_FAMILIES(X) \
    X(eltwise) \
    X(copy) \
    X(matmul) \
    X(norm) \
    X(rows) \
    X(softmax) \
    X(pool) \
    X(upscale) \
    X(im2col) \
    X(conv) \
    X(reduce) \
    X(repeat) \
    X(fill) \
    X(sort) \
    X(pad) \
    X(custom) \
    X(rope) \
    X(glu) \
    X(train) \
    X(ssm) \
    X(recurrent) \
    X(experts) \
    X(outprod) \
    X(attn) \
    X(indexer)
// clang-format on

#define CPU_FAMILY_DECLARE(name) extern const struct cpu_op_entry cpu_ops_##name[];
CPU_FAMILIES(CPU_FAMILY_DECLARE)
#undef CPU_FAMILY_DECLARE
