// SPDX-License-Identifier: MIT
// output.c: files that the commands write. A file appears when it is whole: until then it is written beside its place under a
// name of its own, so that a failure leaves what was there before. Devices and pipes are written as they are.

#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// A file that is being written.
struct output {
    FILE *file;
    char *target, *part; // where it goes, where it is
    struct output *next;
};
static struct output *outputs;

void cli_streams_init(void) {
    for (int fd = 0; fd <= 2; fd++) {
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF) { // the lowest that is free: this one
            (void) !open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY);
        }
    }
}

bool cli_is_same_file(const char *a, const char *b) {
    struct stat s, t;
    return stat(a, &s) == 0 && stat(b, &t) == 0 && s.st_dev == t.st_dev && s.st_ino == t.st_ino;
}

int cli_not_input(const char *path, const char *input) {
    return path == NULL || !cli_is_same_file(path, input)
               ? CLI_OK
               : cli_fail(CLI_FAILURE, "%s: is the input itself, which would be lost", path);
}

static void output_free(struct output *o) {
    if (o != NULL) {
        free(o->target);
        free(o->part);
        free(o);
    }
}

// A file beside the place of `path`; NULL where that is no place for one: a device, a link into nothing, a folder of others.
static struct output *output_new(const char *path) {
    struct stat st;
    const bool exists = stat(path, &st) == 0;
    if (*path == '\0' || (exists ? !S_ISREG(st.st_mode) || access(path, W_OK) != 0 : lstat(path, &st) == 0)) {
        return NULL;
    }
    struct output *o = calloc(1, sizeof *o);
    if (o == NULL) {
        return NULL;
    }
    o->target         = exists ? realpath(path, NULL) : strdup(path);
    const size_t size = o->target != NULL ? strlen(o->target) + 32 : 0;
    o->part           = size > 0 ? malloc(size) : NULL;
    if (o->part != NULL) {
        snprintf(o->part, size, "%s.%ld.part", o->target, (long) getpid());
        o->file = fopen(o->part, "wbx");
    }
    if (o->file == NULL) {
        output_free(o);
        return NULL;
    }
    if (exists) {
        (void) !fchmod(fileno(o->file), st.st_mode & 07777);
    }
    return o;
}

// An end from outside leaves no part of a file behind.
static void on_signal(int number) {
    for (const struct output *o = outputs; o != NULL; o = o->next) {
        unlink(o->part);
    }
    raise(number); // the handler is gone: the usual end
}

static void signals_catch(void) {
    static const int numbers[] = {SIGHUP, SIGINT, SIGTERM};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        struct sigaction action = {0};
        if (sigaction(numbers[i], NULL, &action) == 0 &&
            action.sa_handler == SIG_DFL) { // not if it is ignored, or a command's own
            action.sa_handler = on_signal;
            action.sa_flags   = (int) SA_RESETHAND;
            sigaction(numbers[i], &action, NULL);
        }
    }
}

FILE *cli_open(const char *path) {
    if (strcmp(path, "-") == 0) {
        return stdout;
    }
    struct output *o = output_new(path);
    if (o != NULL) {
        signals_catch();
        o->next = outputs;
        outputs = o;
        return o->file;
    }
    FILE *file = fopen(path, "wb");
    if (file == NULL) {
        cli_fail(CLI_FAILURE, "%s: cannot be written: %s", path, strerror(errno));
    }
    return file;
}

// What is known of an open file; NULL: it is written as it is.
static struct output *output_take(const FILE *file) {
    struct output **at = &outputs;
    while (*at != NULL && (*at)->file != file) {
        at = &(*at)->next;
    }
    struct output *o = *at;
    if (o != NULL) {
        *at = o->next;
    }
    return o;
}

// Moves what was written to its place, or drops it.
static bool output_end(struct output *o, bool ok) {
    int why = errno;
    if (ok && rename(o->part, o->target) != 0) {
        ok  = false;
        why = errno;
    }
    if (!ok) {
        unlink(o->part);
    }
    output_free(o);
    errno = why;
    return ok;
}

int cli_close(FILE *file, const char *path, bool ok) {
    struct output *o = output_take(file);
    errno            = ok ? 0 : errno;
    ok               = fflush(file) == 0 && !ferror(file) && ok;
    if (file != stdout) {
        ok = fclose(file) == 0 && ok;
    }
    ok = o != NULL ? output_end(o, ok) : ok;
    return ok ? CLI_OK : cli_fail(CLI_FAILURE, "%s: writing failed: %s", path, errno == 0 ? "unknown error" : strerror(errno));
}

int cli_finish(int code) {
    const int why = fflush(stdout) != 0 ? errno : 0; // what failed earlier has left no reason behind
    if (why != 0 || ferror(stdout)) {
        return cli_fail(CLI_FAILURE, "standard output: writing failed%s%s", why != 0 ? ": " : "", why != 0 ? strerror(why) : "");
    }
    return code;
}
