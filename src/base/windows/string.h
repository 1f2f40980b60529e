// SPDX-License-Identifier: MIT
// string.h: see posix.h.
#pragma once

#include_next <string.h>

#include "posix.h"

#define memmem posix_memmem
#define strndup posix_strndup
#define stpcpy posix_stpcpy
#define strsep posix_strsep
