// SPDX-License-Identifier: MIT
// date_202311.c: compiles date.h for November 2023. At this date, backends allocate buffers.

#define BERTH_2023 202311
#include "compat2023/date.h"
