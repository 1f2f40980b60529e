// SPDX-License-Identifier: MIT
// sys/stat.h: see posix.h. The C library's numbers of devices and files do not identify files, so Berth has its own struct.
#pragma once

#include_next <sys/stat.h>

#include "base/windows/posix.h"

#include <time.h>

#undef stat
#undef fstat
#define stat posix_stat // the function and the struct
#define fstat posix_fstat
#define lstat posix_stat
#define mkdir posix_mkdir

struct stat {
    uint64_t st_dev, st_ino; // volume, and file on it; 0 for pipes and devices
    unsigned st_mode, st_nlink;
    int st_uid, st_gid; // 0
    int64_t st_size;
    time_t st_mtime;
};

#define S_ISSOCK(mode) ((void) (mode), 0)

static inline int fchmod(int fd, unsigned mode) { // files have no mode
    (void) fd, (void) mode;
    return 0;
}
