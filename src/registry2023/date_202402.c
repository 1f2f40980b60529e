// SPDX-License-Identifier: MIT
// date_202402.c: compiles the registry and the CPU backend of date.h for February 2024.

#define BERTH_2023 202402
#include "registry2023/date.h"
