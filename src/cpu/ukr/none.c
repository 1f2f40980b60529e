// SPDX-License-Identifier: MIT
// none.c: an architecture without tiers of its own runs the portable kernels.

#include "cpu/kernels.h"

#include <stddef.h>

#if !defined(__aarch64__) && !defined(__x86_64__)
const struct cpu_tier *const cpu_tiers = NULL;
#else
typedef int cpu_none; // a file must declare something
#endif
