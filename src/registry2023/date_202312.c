// SPDX-License-Identifier: MIT
// date_202312.c: compiles date.h for the API of December 2023.

#define BERTH_2023 202312
#include "registry2023/date.h"
