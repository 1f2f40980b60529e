// SPDX-License-Identifier: MIT
// file.c: the one way in for files whose bytes are not trusted: regular, and of a size that is known from the open file itself.
// Opening never waits: a pipe of that name, whose opening would, is refused like every other thing that has no size. It is not
// even opened: who writes into it would be told that its reader has gone.

#include "base/base.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int berth_file_open_fd(const char *path, uint64_t *size, const char **why) {
    struct stat st;
    *why = stat(path, &st) != 0 ? strerror(errno) : !S_ISREG(st.st_mode) ? "it is no regular file" : NULL;
    if (*why != NULL) {
        return -1;
    }
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY); // something else may have its name by now
    if (fd < 0) {
        *why = strerror(errno);
        return -1;
    }
    *why = fstat(fd, &st) != 0 ? strerror(errno) : !S_ISREG(st.st_mode) ? "it is no regular file" : NULL;
    if (*why != NULL) {
        close(fd);
        return -1;
    }
    *size = (uint64_t) st.st_size;
    return fd;
}

FILE *berth_file_open(const char *path, uint64_t *size, const char **why) {
    const int fd = berth_file_open_fd(path, size, why);
    FILE *file = fd >= 0 ? fdopen(fd, "rb") : NULL;
    if (fd >= 0 && file == NULL) {
        *why = strerror(errno);
        close(fd);
    }
    return file;
}

bool berth_file_starts_with(const char *path, const char *magic) {
    char found[16];
    const size_t n = strlen(magic);
    uint64_t size;
    const char *why;
    FILE *file = berth_file_open(path, &size, &why); // what is read from a pipe is gone
    if (file == NULL) {
        return false;
    }
    const bool is_equal = n <= sizeof found && fread(found, 1, n, file) == n && memcmp(found, magic, n) == 0;
    fclose(file);
    return is_equal;
}
