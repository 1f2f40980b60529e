// SPDX-License-Identifier: MIT
// date_202312.c: the date December 2023, with buffer types and a registry.

#define BERTH_2023 202312
#include "compat2023/date.h"
