// SPDX-License-Identifier: MIT
// date_202312.c: compiles date.h for the API of December 2023. Buffer types allocate buffers, and there is a registry.

#define BERTH_2023 202312
#include "compat2023/date.h"
