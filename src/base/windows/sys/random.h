// SPDX-License-Identifier: MIT
// sys/random.h: see posix.h.
#pragma once

#include <sys/types.h>

#define GRND_NONBLOCK 0
#define getrandom posix_getrandom

ssize_t posix_getrandom(void *out, size_t size, unsigned flags);
