// SPDX-License-Identifier: MIT
// date_202312.c: the registry and the CPU backend of the date December 2023.

#define BERTH_2023 202312
#include "registry2023/date.h"
