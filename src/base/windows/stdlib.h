// SPDX-License-Identifier: MIT
// stdlib.h: see posix.h.
#pragma once

#include_next <stdlib.h>

#include "posix.h"

#define realpath posix_realpath
#define mkostemp posix_mkostemp
#define mkstemp(path) posix_mkostemp(path, 0)
#define mkdtemp posix_mkdtemp
#define setenv posix_setenv
#define unsetenv posix_unsetenv
#define secure_getenv getenv
