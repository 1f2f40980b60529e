// SPDX-License-Identifier: MIT
// pthread.h: see posix.h. Windows has no fork.
#pragma once

#include_next <pthread.h>

#undef pthread_atfork
static inline int pthread_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void)) {
    (void) prepare, (void) parent, (void) child;
    return 0;
}
