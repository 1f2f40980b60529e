// SPDX-License-Identifier: MIT
// link.c: recipes and outcomes over pipes. Both ends are built from the same source, so structs travel as they are.
#include "link.h"

#include "support/pipe.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static bool link_open(struct link *l) {
    int to[2], from[2];
    if (pipe2(to, O_CLOEXEC) != 0) {
        return false;
    }
    if (pipe2(from, O_CLOEXEC) != 0) {
        close(to[0]), close(to[1]);
        return false;
    }
    signal(SIGPIPE, SIG_IGN);
    fflush(NULL);
    l->pid = fork();
    if (l->pid == 0) {
        dup2(to[0], STDIN_FILENO);
        dup2(from[1], STDOUT_FILENO);
        execl(l->program, l->program, l->library, (char *) NULL);
        _exit(127);
    }
    close(to[0]), close(from[1]);
    l->to   = to[1];
    l->from = from[0];
    if (l->pid < 0) {
        l->pid = 0;
        close(l->to), close(l->from);
        return false;
    }
    return true;
}

void link_close(struct link *l) {
    if (l->pid > 0) {
        close(l->to), close(l->from);
        waitpid(l->pid, NULL, 0);
        l->pid = 0;
    }
}

static bool outcome_receive(int fd, struct outcome *o) {
    char *text      = o->text;
    const int alloc = o->text_alloc;
    const bool ok   = pipe_read(fd, o, sizeof(*o));
    o->text         = text;
    o->text_alloc   = alloc;
    if (!ok || o->n_text < 0) {
        return false;
    }
    if (o->n_text + 1 > o->text_alloc) {
        o->text_alloc = 2 * o->n_text + 4096;
        o->text       = realloc(o->text, (size_t) o->text_alloc);
        if (o->text == NULL) {
            abort();
        }
    }
    o->text[o->n_text] = 0;
    return pipe_read(fd, o->text, (size_t) o->n_text);
}

void link_run(struct link *l, const struct recipe *r, struct outcome *o) {
    if (l->pid == 0 && !link_open(l)) {
        o->kind = OUTCOME_DIED;
        return;
    }
    if (!pipe_write(l->to, r, sizeof(*r)) || !pipe_write(l->to, r->calls, (size_t) r->n_calls * sizeof(*r->calls)) ||
        !outcome_receive(l->from, o)) {
        link_close(l);
        o->kind   = OUTCOME_DIED;
        o->n_text = 0;
    }
}
