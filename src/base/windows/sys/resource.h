// SPDX-License-Identifier: MIT
// sys/resource.h: limits of resources. Windows has none.
#pragma once

#define RLIMIT_NOFILE 1
#define RLIM_INFINITY (~0ull)

typedef unsigned long long rlim_t;
struct rlimit {
    rlim_t rlim_cur, rlim_max;
};

static inline int getrlimit(int which, struct rlimit *limit) {
    (void) which;
    limit->rlim_cur = limit->rlim_max = RLIM_INFINITY;
    return 0;
}
