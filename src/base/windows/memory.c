// SPDX-License-Identifier: MIT
// memory.c: mapped memory (sys/mman.h), and functions of texts and of the environment (posix.h).

#include "base/windows/posix.h"

#include <errno.h>
#include <io.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <windows.h>

// ---- mappings ----

static DWORD protection(int access, bool is_private) {
    if ((access & PROT_WRITE) != 0) {
        return is_private ? PAGE_WRITECOPY : PAGE_READWRITE;
    }
    return (access & PROT_READ) != 0 ? PAGE_READONLY : PAGE_NOACCESS;
}

static void *fail_as(int why) {
    errno = why;
    return MAP_FAILED;
}

void *posix_mmap(void *at, size_t size, int access, int flags, int fd, off_t offset) {
    if (size == 0) {
        return fail_as(EINVAL);
    }
    if ((flags & MAP_ANONYMOUS) != 0) {
        void *memory = VirtualAlloc(at, size, MEM_RESERVE | MEM_COMMIT, protection(access, false));
        return memory != NULL ? memory : fail_as(ENOMEM);
    }
    const HANDLE file = (HANDLE) _get_osfhandle(fd);
    if (file == INVALID_HANDLE_VALUE) {
        return fail_as(EBADF);
    }
    const bool is_private = (flags & MAP_PRIVATE) != 0, is_written = (access & PROT_WRITE) != 0;
    const HANDLE mapping =
        CreateFileMappingW(file, NULL, is_written ? protection(access, is_private) : PAGE_READONLY, 0, 0, NULL);
    if (mapping == NULL) {
        return fail_as(GetLastError() == ERROR_ACCESS_DENIED ? EACCES : ENOMEM);
    }
    DWORD view = FILE_MAP_READ;
    if (is_written) {
        view = is_private ? FILE_MAP_COPY : FILE_MAP_READ | FILE_MAP_WRITE;
    }
    void *memory = MapViewOfFile(mapping, view, (DWORD) ((uint64_t) offset >> 32), (DWORD) (uint64_t) offset, size);
    CloseHandle(mapping); // the view keeps the mapping
    return memory != NULL ? memory : fail_as(ENOMEM);
}

int posix_munmap(void *memory, size_t size) {
    (void) size;
    if (UnmapViewOfFile(memory) || VirtualFree(memory, 0, MEM_RELEASE)) {
        return 0;
    }
    errno = EINVAL;
    return -1;
}

int posix_mprotect(void *memory, size_t size, int access) {
    DWORD old;
    if (VirtualProtect(memory, size, protection(access, false), &old)) {
        return 0;
    }
    errno = EACCES;
    return -1;
}

// Unlocking pages that are not locked removes them from the working set, and the file keeps their content.
int posix_madvise(void *memory, size_t size, int advice) {
    if (advice == MADV_DONTNEED) {
        VirtualUnlock(memory, size);
    }
    return 0;
}

// ---- environment ----

int posix_setenv(const char *name, const char *value, int overwrite) {
    if (!overwrite && getenv(name) != NULL) {
        return 0;
    }
    return _putenv_s(name, value) == 0 ? 0 : -1; // an empty value removes the variable
}

int posix_unsetenv(const char *name) {
    return _putenv_s(name, "") == 0 ? 0 : -1;
}

// ---- texts ----

void *posix_memmem(const void *all, size_t n_all, const void *part, size_t n_part) {
    const char *at = all;
    for (; n_all >= n_part; at++, n_all--) {
        if (memcmp(at, part, n_part) == 0) {
            return (void *) at;
        }
    }
    return NULL;
}

char *posix_strndup(const char *text, size_t n) {
    const size_t size = strnlen(text, n);
    char *copy = malloc(size + 1);
    if (copy != NULL) {
        memcpy(copy, text, size);
        copy[size] = '\0';
    }
    return copy;
}

char *posix_stpcpy(char *to, const char *from) {
    const size_t size = strlen(from);
    memcpy(to, from, size + 1);
    return to + size;
}

char *posix_strsep(char **rest, const char *ends) {
    char *part = *rest;
    if (part == NULL) {
        return NULL;
    }
    char *end = strpbrk(part, ends);
    *rest = end != NULL ? end + 1 : NULL;
    if (end != NULL) {
        *end = '\0';
    }
    return part;
}
