// SPDX-License-Identifier: MIT
// time.h: see posix.h.
#pragma once

#include_next <time.h>

static inline struct tm *posix_gmtime(const time_t *t, struct tm *out) {
    return gmtime_s(out, t) == 0 ? out : NULL;
}
#define gmtime_r posix_gmtime
