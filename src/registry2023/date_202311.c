// SPDX-License-Identifier: MIT
// date_202311.c: the CPU backend of the date November 2023.

#define BERTH_2023 202311
#include "registry2023/date.h"
