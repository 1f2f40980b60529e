// SPDX-License-Identifier: MIT
// fused.h: cases of the op suite (tests/op) for fusions, which only cuda-ops (ops_main.c) runs.
#pragma once

#include "op.h"

void op_suite_fused(struct op_suite *s);
