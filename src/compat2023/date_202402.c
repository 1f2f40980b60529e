// SPDX-License-Identifier: MIT
// date_202402.c: the date February 2024, with names of buffer types and with multi-buffers.

#define BERTH_2023 202402
#include "compat2023/date.h"
