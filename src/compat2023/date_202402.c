// SPDX-License-Identifier: MIT
// date_202402.c: compiles date.h for the API of February 2024. Buffer types have names, and there are multi-buffers.

#define BERTH_2023 202402
#include "compat2023/date.h"
