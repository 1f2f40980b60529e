// SPDX-License-Identifier: MIT
// preload.c: a library that is loaded before libc and makes its calls fail, including calls from libc itself. It reaches
// allocations that Berth's allocator does not make: memory streams, open files, copies of texts, the loader.
//
//     FAULT_CALL=memory|fsync|rename   the kind of call that fails
//     FAULT_AT=N                       the N-th call fails
//     FAULT_FROM=N                     the N-th call and all later ones fail
//     FAULT_COUNT=FILE                 the number of calls is written to this file at the end
//
// Calls are counted from the start of main, because earlier calls belong to the loader. Any thread may call.

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

// glibc's own allocator under its internal names, which stay available.
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t size);
void *__libc_memalign(size_t align, size_t size);

enum call { CALL_NONE, CALL_MEMORY, CALL_FSYNC, CALL_RENAME };

static atomic_int call; // none until main starts
static atomic_ulong n_calls;
static unsigned long at, from;

static unsigned long number(const char *name) {
    const char *text = getenv(name);
    return text != NULL ? strtoul(text, NULL, 10) : 0;
}

__attribute__((constructor)) static void begin(void) {
    static const char *const names[] = {"none", "memory", "fsync", "rename"};
    const char *name = getenv("FAULT_CALL");
    at = number("FAULT_AT");
    from = number("FAULT_FROM");
    for (int i = CALL_MEMORY; name != NULL && i <= CALL_RENAME; i++) {
        if (strcmp(name, names[i]) == 0) {
            atomic_store(&call, i);
        }
    }
}

__attribute__((destructor)) static void end(void) {
    atomic_store(&call, CALL_NONE);
    const char *path = getenv("FAULT_COUNT");
    const int fd = path != NULL ? open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666) : -1;
    if (fd >= 0) {
        dprintf(fd, "%lu\n", atomic_load(&n_calls));
        close(fd);
    }
}

static bool must_fail(enum call which) {
    if (atomic_load(&call) != (int) which) {
        return false;
    }
    const unsigned long n = atomic_fetch_add(&n_calls, 1) + 1;
    return n == at || (from > 0 && n >= from);
}

static bool no_memory(void) {
    if (must_fail(CALL_MEMORY)) {
        errno = ENOMEM;
        return true;
    }
    return false;
}

#pragma GCC visibility push(default) // these functions replace those of libc

void *malloc(size_t size) {
    return no_memory() ? NULL : __libc_malloc(size);
}

void *calloc(size_t n, size_t size) {
    return no_memory() ? NULL : __libc_calloc(n, size);
}

void *realloc(void *p, size_t size) {
    return no_memory() ? NULL : __libc_realloc(p, size);
}

void *memalign(size_t align, size_t size) {
    return no_memory() ? NULL : __libc_memalign(align, size);
}

void *aligned_alloc(size_t align, size_t size) {
    return no_memory() ? NULL : __libc_memalign(align, size);
}

int posix_memalign(void **p, size_t align, size_t size) {
    if (no_memory()) {
        return ENOMEM;
    }
    *p = __libc_memalign(align, size);
    return *p != NULL ? 0 : ENOMEM;
}

int fsync(int fd) {
    if (must_fail(CALL_FSYNC)) {
        errno = EIO;
        return -1;
    }
    return (int) syscall(SYS_fsync, fd);
}

int rename(const char *old, const char *new) {
    if (must_fail(CALL_RENAME)) {
        errno = EIO;
        return -1;
    }
    return (int) syscall(SYS_renameat2, AT_FDCWD, old, AT_FDCWD, new, 0);
}

#pragma GCC visibility pop
