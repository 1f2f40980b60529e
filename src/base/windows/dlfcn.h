// SPDX-License-Identifier: MIT
// dlfcn.h: loads libraries (library.c). A library is searched in its own folder first, if the path has a folder.
#pragma once

#define RTLD_LAZY 1
#define RTLD_NOW 2
#define RTLD_LOCAL 0
#define RTLD_GLOBAL 0
#define RTLD_NOLOAD 4
#define RTLD_DEFAULT ((void *) 0)

typedef struct {
    const char *dli_fname; // valid until the next call in this thread
    void *dli_fbase;
} Dl_info;

#define dlopen posix_dlopen
#define dlsym posix_dlsym
#define dlclose posix_dlclose
#define dlerror posix_dlerror
#define dladdr posix_dladdr

void *posix_dlopen(const char *path, int flags);
void *posix_dlsym(void *library, const char *name); // RTLD_DEFAULT: all libraries of the process
int posix_dlclose(void *library);
char *posix_dlerror(void); // text of the last error in this thread; NULL: none since the last call
int posix_dladdr(const void *at, Dl_info *info);
