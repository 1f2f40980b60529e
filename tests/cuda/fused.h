// SPDX-License-Identifier: MIT
// fused.h: a family of the op suite that only devices run.
#pragma once

#include "op.h"

void op_suite_fused(struct op_suite *s);
