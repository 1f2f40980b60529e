// SPDX-License-Identifier: MIT
// sys/mman.h: maps files and anonymous memory (memory.c).
#pragma once

#include <stddef.h>
#include <sys/types.h>

#define PROT_NONE 0
#define PROT_READ 1
#define PROT_WRITE 2
#define MAP_SHARED 1
#define MAP_PRIVATE 2
#define MAP_ANONYMOUS 32
#define MAP_NORESERVE 0
#define MAP_FAILED ((void *) -1)
#define MADV_WILLNEED 3
#define MADV_DONTNEED 4

#define mmap posix_mmap
#define munmap posix_munmap
#define madvise posix_madvise
#define mprotect posix_mprotect

// With MAP_ANONYMOUS, munmap must release the whole mapping.
void *posix_mmap(void *at, size_t size, int access, int flags, int fd, off_t offset);
int posix_munmap(void *memory, size_t size);
int posix_mprotect(void *memory, size_t size, int access);
int posix_madvise(void *memory, size_t size, int advice); // only advice, which may have no effect
