// SPDX-License-Identifier: MIT
// date_202312.c: compiles the registry and the CPU backend of date.h for December 2023.

#define BERTH_2023 202312
#include "registry2023/date.h"
