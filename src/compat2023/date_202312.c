// SPDX-License-Identifier: MIT
// date_202312.c: compiles date.h for December 2023. From this date on, buffer types allocate buffers, and there is a registry.

#define BERTH_2023 202312
#include "compat2023/date.h"
