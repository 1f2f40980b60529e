// SPDX-License-Identifier: MIT
// date_202311.c: the date November 2023, at which backends allocate buffers.

#define BERTH_2023 202311
#include "compat2023/date.h"
