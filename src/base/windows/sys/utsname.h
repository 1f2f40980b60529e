// SPDX-License-Identifier: MIT
// sys/utsname.h: see posix.h.
#pragma once

struct utsname {
    char sysname[16], release[32], machine[16];
};

#define uname posix_uname
int posix_uname(struct utsname *name);
