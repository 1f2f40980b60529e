// SPDX-License-Identifier: MIT
// date_202402.c: February 2024: buffer types with names, buffers made of several.

#define BERTH_2023 202402
#include "compat2023/date.h"
