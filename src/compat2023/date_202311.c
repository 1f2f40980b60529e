// SPDX-License-Identifier: MIT
// date_202311.c: November 2023: backends that allocate.

#define BERTH_2023 202311
#include "compat2023/date.h"
