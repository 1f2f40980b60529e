// SPDX-License-Identifier: MIT
// fused.h: a family of the op suite that runs only on devices.
#pragma once

#include "op.h"

void op_suite_fused(struct op_suite *s);
