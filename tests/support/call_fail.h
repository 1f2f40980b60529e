// SPDX-License-Identifier: MIT
// call_fail.h: replaces libc's file functions in a test program, so that the n-th call of one of them can be made to fail. For one file
// per program.
#pragma once

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *call_name = ""; // the function that fails
static int call_left;              // calls until the one that fails
static int call_errno;

// Makes the n-th call of the function from now on fail with this errno.
static inline void call_fail_at(const char *name, int n, int error) {
    call_left = n;
    call_errno = error;
    call_name = name;
}

// Ends the failing. Returns whether the call has failed.
static inline bool call_has_failed(void) {
    call_name = "";
    return call_left <= 0;
}

static bool call_fails(const char *name) {
    if (strcmp(call_name, name) != 0 || --call_left != 0) {
        return false;
    }
    errno = call_errno;
    return true;
}

// Declares `next`, the function that the one of this program replaces.
#define CALL_NEXT(result, name, ...) \
    result (*next)(__VA_ARGS__); \
    *(void **) &next = dlsym(RTLD_NEXT, name)

#pragma GCC visibility push(default)
int open(const char *path, int flags, ...) {
    va_list args;
    va_start(args, flags);
    const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(args, mode_t) : 0;
    va_end(args);
    CALL_NEXT(int, "open", const char *, int, ...);
    return call_fails("open") ? -1 : next(path, flags, mode);
}

FILE *fdopen(int fd, const char *mode) {
    CALL_NEXT(FILE *, "fdopen", int, const char *);
    return call_fails("fdopen") ? NULL : next(fd, mode);
}

int fchown(int fd, uid_t owner, gid_t group) {
    CALL_NEXT(int, "fchown", int, uid_t, gid_t);
    return call_fails("fchown") ? -1 : next(fd, owner, group);
}

int fsync(int fd) {
    CALL_NEXT(int, "fsync", int);
    return call_fails("fsync") ? -1 : next(fd);
}

char *realpath(const char *path, char *resolved) {
    CALL_NEXT(char *, "realpath", const char *, char *);
    return call_fails("realpath") ? NULL : next(path, resolved);
}

int rename(const char *from, const char *to) {
    CALL_NEXT(int, "rename", const char *, const char *);
    return call_fails("rename") ? -1 : next(from, to);
}
#pragma GCC visibility pop
