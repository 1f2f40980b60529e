// SPDX-License-Identifier: MIT
// date_202311.c: compiles date.h for the API of November 2023, which has a CPU backend but no registry.

#define BERTH_2023 202311
#include "registry2023/date.h"
