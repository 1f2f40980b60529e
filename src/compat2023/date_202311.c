// SPDX-License-Identifier: MIT
// date_202311.c: compiles date.h for the API of November 2023. In this API, backends allocate buffers.

#define BERTH_2023 202311
#include "compat2023/date.h"
