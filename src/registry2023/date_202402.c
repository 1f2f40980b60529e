// SPDX-License-Identifier: MIT
// date_202402.c: the registry and the CPU backend of the date February 2024.

#define BERTH_2023 202402
#include "registry2023/date.h"
