// SPDX-License-Identifier: MIT
// tiers.c: the tiers of x86-64, oldest first. A tier is filled by files named *__<tier>.c, compiled with its flags.

#include "cpu/kernels.h"

#include <stddef.h>

static const struct cpu_tier tiers[] = {
    {NULL, NULL, NULL},
};

const struct cpu_tier *const cpu_tiers = tiers;
