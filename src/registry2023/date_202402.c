// SPDX-License-Identifier: MIT
// date_202402.c: compiles date.h for the API of February 2024.

#define BERTH_2023 202402
#include "registry2023/date.h"
