// SPDX-License-Identifier: MIT
// fcntl.h: see posix.h.
#pragma once

#include_next <fcntl.h>

#include "posix.h"

#define open posix_open

#define O_CLOEXEC _O_NOINHERIT
#define O_NONBLOCK 0
#define O_NOCTTY 0
#define O_DIRECTORY 0x20000000 // posix_open fails, because folders cannot be opened
#define O_TMPFILE 0x20000000   // likewise: the caller makes a file with a name
#define F_GETFD 1

// Only F_GETFD.
static inline int fcntl(int fd, int command) {
    (void) command;
    return _get_osfhandle(fd) == -1 ? -1 : 0;
}

static inline int openat(int folder, const char *path, int flags) { // folders have no descriptors
    (void) folder, (void) path, (void) flags;
    return -1;
}
