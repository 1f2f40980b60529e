// SPDX-License-Identifier: MIT
// child.h: starts a second program with a pipe in each direction. Tests run the reference in this program, because it aborts on
// unsupported input and does not work with sanitizers.
#pragma once

#include "support/pipe.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>

struct child {
    pid_t pid;    // 0: not running
    int to, from; // pipes to its standard input and from its standard output
};

// Closes the program's input, which ends it. Returns its exit code, -1 if it has none.
static inline int child_close(struct child *c) {
    int status = 0;
    if (c->pid <= 0) {
        return -1;
    }
    close(c->to), close(c->from);
    const bool ended = waitpid(c->pid, &status, 0) == c->pid && WIFEXITED(status);
    *c = (struct child){0};
    return ended ? WEXITSTATUS(status) : -1;
}

// is_quiet: standard error goes to /dev/null. Returns false if no process could be created.
static inline bool child_start(struct child *c, char *const *argv, bool is_quiet) {
    int to[2], from[2];
    *c = (struct child){0};
    if (pipe2(to, O_CLOEXEC) != 0) {
        return false;
    }
    if (pipe2(from, O_CLOEXEC) != 0) {
        close(to[0]), close(to[1]);
        return false;
    }
    signal(SIGPIPE, SIG_IGN);
    fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0) {
        dup2(to[0], STDIN_FILENO);
        dup2(from[1], STDOUT_FILENO);
        if (is_quiet) {
            dup2(open("/dev/null", O_WRONLY), STDERR_FILENO);
        }
        execv(argv[0], argv);
        _exit(127);
    }
    close(to[0]), close(from[1]);
    if (pid < 0) {
        close(to[1]), close(from[0]);
        return false;
    }
    *c = (struct child){.pid = pid, .to = to[1], .from = from[0]};
    return true;
}
