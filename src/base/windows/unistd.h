// SPDX-License-Identifier: MIT
// unistd.h: see posix.h.
#pragma once

#include_next <unistd.h>

#include "posix.h"

#define access posix_access
#define unlink posix_unlink
#define rmdir posix_rmdir
#define chdir posix_chdir
#define readlink posix_readlink
#define pread posix_pread
#define sysconf posix_sysconf
#define fsync _commit

#ifndef X_OK
#    define X_OK 0
#endif
#undef X_OK
#define X_OK 0 // Windows has no permission to search a folder

#define _SC_PAGESIZE 1
#define _SC_PHYS_PAGES 2
#define _SC_NPROCESSORS_ONLN 3
#define _SC_AVPHYS_PAGES 4

static inline int fchown(int fd, int user, int group) { // files have no numbers of owners
    (void) fd, (void) user, (void) group;
    return 0;
}

static inline int pause(void) {
    usleep(1000);
    return -1;
}

int posix_gethostname(char *name, int size);
#ifndef _INC_WINDOWS
#    define gethostname posix_gethostname
#endif
