// SPDX-License-Identifier: MIT
// signal.h: the signals of POSIX that Windows lacks never arrive, and there are no masks. Ctrl-C raises SIGINT.
#pragma once

#include_next <signal.h>

#include <stddef.h>

#define SIGHUP 1
#define SIGQUIT 3
#define SIGTRAP 5
#define SIGBUS 7
#define SIGPIPE 13
#define SIGXCPU 24
#define SIGXFSZ 25
#define SIGPROF 27
#define SIGSYS 31

#define SA_RESTART 1
#define SA_SIGINFO 2
#define SIG_SETMASK 0
#define SIG_BLOCK 1

typedef unsigned long long posix_sigset;
#define sigset_t posix_sigset

#define sigaction posix_sigaction // the function and the struct
struct sigaction {
    void (*sa_handler)(int);
    sigset_t sa_mask;
    int sa_flags;
};

// Fails for signals that Windows lacks. A handler stays set after its signal.
int posix_sigaction(int number, const struct sigaction *action, struct sigaction *old);

static inline int sigemptyset(sigset_t *set) {
    *set = 0;
    return 0;
}
static inline int sigfillset(sigset_t *set) {
    *set = ~0ull;
    return 0;
}
static inline int sigdelset(sigset_t *set, int number) {
    *set &= ~(1ull << number);
    return 0;
}
#define pthread_sigmask(how, set, old) ((void) (how), (void) (set), (void) (old), 0)
