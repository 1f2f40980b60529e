// SPDX-License-Identifier: MIT
// view.c: ops that compute nothing.

#include "cuda/cuda.h"

const struct cuda_op_entry cuda_ops_view[] = {
    {GGML_OP_NONE, {.run = NULL}},
    {GGML_OP_VIEW, {.run = NULL}},
    {GGML_OP_RESHAPE, {.run = NULL}},
    {GGML_OP_PERMUTE, {.run = NULL}},
    {GGML_OP_TRANSPOSE, {.run = NULL}},
    CUDA_OPS_END,
};
