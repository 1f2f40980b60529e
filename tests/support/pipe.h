// SPDX-License-Identifier: MIT
// pipe.h: reads and writes complete messages through pipes, for tests that communicate with a second program (child.h).
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <unistd.h>

// Reads all n bytes. Returns false at the end of the stream.
static inline bool pipe_read(int fd, void *data, size_t n) {
    for (char *p = data; n > 0;) {
        const ssize_t got = read(fd, p, n);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            return false;
        }
        p += got;
        n -= (size_t) got;
    }
    return true;
}

static inline bool pipe_write(int fd, const void *data, size_t n) {
    for (const char *p = data; n > 0;) {
        const ssize_t put = write(fd, p, n);
        if (put < 0 && errno == EINTR) {
            continue;
        }
        if (put <= 0) {
            return false;
        }
        p += put;
        n -= (size_t) put;
    }
    return true;
}
