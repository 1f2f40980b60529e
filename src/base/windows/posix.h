// SPDX-License-Identifier: MIT
// posix.h: functions of POSIX and GNU that Windows' C library lacks, or whose paths it does not read as UTF-8. The headers of this
// folder have the names of the POSIX headers (unistd.h, dlfcn.h, sys/mman.h, ...). Each includes the compiler's header of that name,
// if there is one, and this file. Only builds for Windows have this folder on their include path, so the rest of the sources calls
// POSIX functions on every system. posix.c, files.c, memory.c and library.c hold the functions.
//
// All paths are UTF-8. They may use either slash; paths that these functions return use '/'. Files are opened in binary mode.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
// These headers declare functions whose names become macros.
#include <direct.h>
#include <io.h>

#include <sys/types.h>

// ---- paths (files.c) ----

// Converts between UTF-8 and UTF-16. The caller frees the result. NULL: out of memory or not UTF-8, with errno.
wchar_t *posix_wide(const char *text);
char *posix_utf8(const wchar_t *text);

int posix_open(const char *path, int flags, ...);
FILE *posix_fopen(const char *path, const char *mode);
struct posix_stat; // the struct stat of sys/stat.h
int posix_stat(const char *path, struct posix_stat *st);
int posix_fstat(int fd, struct posix_stat *st);
int posix_access(const char *path, int mode);
int posix_unlink(const char *path);
int posix_rename(const char *from, const char *to);
int posix_mkdir(const char *path, mode_t mode);
int posix_rmdir(const char *path);
int posix_chdir(const char *path);
char *posix_realpath(const char *path, char *resolved);           // resolved: NULL or PATH_MAX bytes
ssize_t posix_readlink(const char *path, char *out, size_t size); // only /proc/self/exe, the path of the program
int posix_mkostemp(char *path, int flags);                        // the name may be removed while the file is open
char *posix_mkdtemp(char *path);
ssize_t posix_pread(int fd, void *out, size_t size, off_t at);
int posix_fallocate(int fd, off_t at, off_t size);
ssize_t posix_getline(char **line, size_t *cap, FILE *file);

// ---- memory (memory.c) ----

int posix_setenv(const char *name, const char *value, int overwrite);
int posix_unsetenv(const char *name);
void *posix_memmem(const void *all, size_t n_all, const void *part, size_t n_part);
char *posix_strndup(const char *text, size_t n);
char *posix_stpcpy(char *to, const char *from);
char *posix_strsep(char **rest, const char *ends);

// ---- system (posix.c) ----

long posix_sysconf(int name);
// Sleeps until posix_wake_all(word), unless *word is not `value`. It may also wake up without a reason.
void posix_wait_on(const void *word, unsigned value);
void posix_wake_all(void *word);
// Replaces the arguments of main by those of the command line in UTF-8.
void posix_arguments_get(int *argc, char ***argv);
// Sets the standard streams to bytes, and the console to UTF-8.
void posix_console_init(void);
