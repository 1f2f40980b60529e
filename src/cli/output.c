// SPDX-License-Identifier: MIT
// output.c: files that the commands write. A file appears when it is whole: until then it is written beside its place under a
// name of its own, so that a failure leaves what was there before. Written as they are: devices and pipes, and files that
// another could not replace without a difference: of other owners, of several names, in folders that take no new ones.

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
    struct output *_Atomic next;
};
static struct output *_Atomic outputs; // a signal may come between any two changes

void cli_streams_init(void) {
    for (int fd = 0; fd <= 2; fd++) {
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF) { // the lowest that is free: this one
            (void) !open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY);
        }
    }
}

// Writing the one would empty the other?
static bool is_same_file(const char *a, const char *b) {
    struct stat s, t;
    return stat(a, &s) == 0 && S_ISREG(s.st_mode) && stat(b, &t) == 0 && s.st_dev == t.st_dev && s.st_ino == t.st_ino;
}

bool cli_is_stdout(const char *path) {
    struct stat s, t;
    return strcmp(path, "-") == 0 || (fstat(STDOUT_FILENO, &s) == 0 && !S_ISCHR(s.st_mode) && stat(path, &t) == 0 &&
                                         s.st_dev == t.st_dev && s.st_ino == t.st_ino);
}

// Why a file cannot be made here, as far as that is known before; 0: it can.
static int folder_refuses(const char *path) {
    const char *slash = strrchr(path, '/');
    char *folder      = slash != NULL ? strdup(path) : NULL;
    if (folder != NULL) {
        folder[slash - path + 1] = '\0';
    }
    const bool ok = (folder != NULL || slash == NULL) && access(folder != NULL ? folder : ".", W_OK | X_OK) == 0;
    const int why = ok ? 0 : errno;
    free(folder);
    return why;
}

static int output_refuses(const char *path) {
    struct stat st;
    if (stat(path, &st) == 0) {
        return S_ISDIR(st.st_mode) ? EISDIR : access(path, W_OK) != 0 ? errno : 0;
    }
    if (errno != ENOENT || *path == '\0') {
        return errno;
    }
    return lstat(path, &st) == 0 ? 0 : folder_refuses(path); // a link into nothing may lead anywhere
}

static int fail_to_open(const char *path, int why) {
    return cli_fail(CLI_FAILURE, "%s: cannot be written: %s", path, strerror(why));
}

int cli_output_check(const char *path, const char *input) {
    if (path == NULL || strcmp(path, "-") == 0) {
        return CLI_OK;
    }
    if (is_same_file(path, input)) {
        return cli_fail(CLI_FAILURE, "%s: is the input itself, which would be lost", path);
    }
    const int why = output_refuses(path);
    return why != 0 ? fail_to_open(path, why) : CLI_OK;
}

static void output_free(struct output *o) {
    if (o != NULL) {
        free(o->target);
        free(o->part);
        free(o);
    }
}

// May the open file take the place of the old one: on the same disk, with its owner, group and mode?
static bool can_replace(int fd, const struct stat *old) {
    struct stat st;
    return fstat(fd, &st) == 0 && st.st_dev == old->st_dev && fchown(fd, old->st_uid, old->st_gid) == 0 &&
           fchmod(fd, old->st_mode & 0777) == 0;
}

// Opens a file beside the target, under a name that nothing has; nobody may read it who may not read the old one.
static int part_open(const char *target, mode_t mode, char *part, size_t size) {
    int fd = -1;
    errno  = EEXIST;
    for (int i = 0; fd < 0 && errno == EEXIST && i < 1000; i++) { // a program that was killed leaves one, and ids come again
        snprintf(part, size, "%s.%ld.%d.part", target, (long) getpid(), i);
        fd = open(part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    }
    return fd;
}

// Neither there nor a place of a new file: what is there has to be written as it is.
static bool is_no_place(int why) {
    return why == EACCES || why == EPERM || why == EROFS || why == ENAMETOOLONG;
}

// A file beside the place of `path`. NULL with errno 0: to be written as it is; else what is wrong.
static struct output *output_new(const char *path) {
    struct stat old;
    const bool exists = stat(path, &old) == 0;
    if (*path == '\0' ||
        (exists ? !S_ISREG(old.st_mode) || old.st_nlink != 1 || access(path, W_OK) != 0 : lstat(path, &old) == 0)) {
        errno = 0;
        return NULL;
    }
    struct output *o = calloc(1, sizeof *o);
    const size_t size =
        o != NULL && (o->target = exists ? realpath(path, NULL) : strdup(path)) != NULL ? strlen(o->target) + 48 : 0;
    if (size == 0 || (o->part = malloc(size)) == NULL) {
        output_free(o);
        return NULL;
    }
    const int fd = part_open(o->target, exists ? old.st_mode & 0777 : 0666, o->part, size);
    int why      = fd >= 0 ? 0 : is_no_place(errno) ? 0 : errno;
    if (fd >= 0 && (!exists || can_replace(fd, &old))) {
        o->file = fdopen(fd, "wb");
        why     = o->file == NULL ? errno : 0;
    }
    if (o->file == NULL) {
        if (fd >= 0) {
            close(fd);
            unlink(o->part);
        }
        output_free(o);
        errno = why;
        return NULL;
    }
    return o;
}

void cli_output_stop(int number) {
    for (const struct output *o = outputs; o != NULL; o = o->next) {
        unlink(o->part);
    }
    signal(number, SIG_DFL);
    raise(number);
}

// Also the ends that writing itself may bring: a pipe that nobody reads, a file beyond the user's limit.
static void signals_catch(void) {
    static const int numbers[] = {SIGHUP, SIGINT, SIGTERM, SIGQUIT, SIGPIPE, SIGXCPU, SIGXFSZ};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        struct sigaction action = {0};
        if (sigaction(numbers[i], NULL, &action) == 0 &&
            action.sa_handler == SIG_DFL) { // not if it is ignored, or a command's own
            action.sa_handler = cli_output_stop;
            sigaction(numbers[i], &action, NULL);
        }
    }
}

FILE *cli_open(const char *path) {
    if (cli_is_stdout(path)) {
        return stdout;
    }
    errno            = 0;
    struct output *o = output_new(path);
    if (o != NULL) {
        signals_catch();
        o->next = outputs;
        outputs = o;
        return o->file;
    }
    FILE *file = errno == 0 ? fopen(path, "wb") : NULL;
    if (file == NULL) {
        fail_to_open(path, errno);
    }
    return file;
}

// What is known of an open file; NULL: it is written as it is.
static struct output *output_find(const FILE *file) {
    struct output *o = outputs;
    while (o != NULL && o->file != file) {
        o = o->next;
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
    struct output *_Atomic *at = &outputs;
    while (*at != o) {
        at = &(*at)->next;
    }
    *at = o->next;
    output_free(o);
    errno = why;
    return ok;
}

static bool output_close(FILE *file, bool ok) {
    struct output *o = output_find(file);
    errno            = ok ? 0 : errno;
    ok               = fflush(file) == 0 && !ferror(file) && ok;
    if (file != stdout) {
        ok = fclose(file) == 0 && ok;
    }
    return o != NULL ? output_end(o, ok) : ok;
}

int cli_close(FILE *file, const char *path, bool ok) {
    return output_close(file, ok)
               ? CLI_OK
               : cli_fail(CLI_FAILURE, "%s: writing failed: %s", path, errno == 0 ? "unknown error" : strerror(errno));
}

void cli_drop(FILE *file) {
    (void) output_close(file, false);
}

int cli_finish(int code) {
    const int why = fflush(stdout) != 0 ? errno : 0; // what failed earlier has left no reason behind
    if (why != 0 || ferror(stdout)) {
        return cli_fail(CLI_FAILURE, "standard output: writing failed%s%s", why != 0 ? ": " : "", why != 0 ? strerror(why) : "");
    }
    return code;
}
