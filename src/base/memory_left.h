// SPDX-License-Identifier: MIT
// memory_left.h: how much main memory the pages of files may take (memory_left.c).
#pragma once

#include "base/base.h"

struct berth_memory_left {
    uint64_t limit;   // bytes of main memory that the process may use
    uint64_t left;    // bytes of the limit that are unused or hold pages of files, which the system can drop
    uint64_t unused;  // bytes that the process has allocated and not yet written, which may soon take part of `left`
    char source[256]; // "the machine", or the folder of the control group
};

// Reads the memory of the machine and the limits of the process's control groups (cgroup v1 and v2), and returns the one that
// leaves least. root: a folder before the paths of the system's files; "" except in tests. Returns false if nothing can be read.
// Allocates no memory.
bool berth_memory_left_read(const char *root, struct berth_memory_left *out) BERTH_MUST_USE;
