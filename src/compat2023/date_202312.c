// SPDX-License-Identifier: MIT
// date_202312.c: the end of 2023: buffer types and a registry.

#define BERTH_2023 202312
#include "compat2023/date.h"
