// SPDX-License-Identifier: MIT
// date_202402.c: compiles date.h for February 2024. From this date on, buffer types have names, and there are multi-buffers.

#define BERTH_2023 202402
#include "compat2023/date.h"
