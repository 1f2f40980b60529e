// SPDX-License-Identifier: MIT
// view.c: ops that compute nothing.

#include "cpu/optable.h"

const struct cpu_op_entry cpu_ops_view[] = {
    {GGML_OP_NONE, {.run = NULL}},
    {GGML_OP_RESHAPE, {.run = NULL}},
    {GGML_OP_VIEW, {.run = NULL}},
    {GGML_OP_PERMUTE, {.run = NULL}},
    {GGML_OP_TRANSPOSE, {.run = NULL}},
    CPU_OPS_END,
};
